"""Weights whose values are of others than their names say: layers, or weights of a layer, that were exchanged.

Values tell which weight of one run makes which of the other, whatever both are called. The names then have to agree:
weights that one run names alike, but for numbers, are of weights that the other one names alike, and their numbers are
in one order in both.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, permutations
from operator import eq
from typing import Final, NamedTuple

from tui_debugger.arrays import Array
from tui_debugger.diagnose.runs.conversions import OF_RANK, Numbers, WeightConversion, is_near, turned_around
from tui_debugger.diagnose.runs.distance import Distance, distance
from tui_debugger.stats.dtypes import name_of

_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"[A-Za-z]+")
_MOST_NUMBERS: Final = 3
"""Numbers of a name, such as those of a layer and an expert, that may stand in another order in the other run."""
_LEAST_COUNTED: Final = 3
"""Values of a number within a word before it is known to count: ``fc1`` and ``fc2`` are names of their own."""
_LEAST_LETTERS: Final = 3
"""Letters of a word that stands for a longer one: ``enc``, ``attn``."""
_SYNONYMS: Final = (
    frozenset({"wte", "word", "words", "tok", "token", "tokens"}),
    frozenset({"wpe", "pos", "position", "positions"}),
    frozenset({"head", "lm", "out", "output", "unembed"}),
)
"""Words for the embeddings of words and of positions, and for the head of a model."""
_MOST_TRIED: Final = 16
"""Weights of one shape and layer that are held against each other."""


class _Place(NamedTuple):
    """What a weight should be made of by its name.

    Attributes:
        source: the weight of the other run.
        sure: no other way to count explains it.
    """

    source: str
    sure: bool


class _Spelled(NamedTuple):
    template: str
    numbers: Numbers


def held_against_names(
    found: Sequence[WeightConversion], arrays: Sequence[Mapping[str, Array]], known: Mapping[str, str]
) -> list[WeightConversion]:
    """Returns the conversions with what their names say against them.

    Args:
        found: conversions to weights of one run.
        arrays: the weights of both runs.
        known: names of that run that are paired by name, with those of the other run.
    """
    if not found:
        return []
    sources = arrays[1 - found[0].side]
    type_made = name_of(arrays[found[0].side][found[0].made].dtype)

    def apart(one: str, other: str) -> Distance | None:
        """Returns how far two sources are apart; None where one cannot stand in the place of the other."""
        if one not in sources or sources[one].shape != sources[other].shape:
            return None
        both = sources[one], sources[other]
        away = distance(*both, (name_of(both[0].dtype), type_made))
        return None if is_near(away) else away

    made = {each.made: each.sources[0] for each in found}
    places = _places(made, known, sources, lambda one, other: apart(one, other) is not None)
    result = []
    ranks = _on_other_ranks(found)
    for each in found:
        if each.made in ranks and not each.wrong:
            text = f"{each.made} of {'AB'[each.side]} holds the part of {each.sources[0]} that another rank should have"
            result.append(replace(each, wrong=each.sources[0], text=text))
            continue
        place = places.get(each.made)
        away = apart(place.source, each.sources[0]) if place is not None and not each.wrong else None
        if place is None or away is None:
            result.append(each)
            continue
        here, there = "AB"[each.side], "AB"[1 - each.side]
        text = f"{each.made} of {here} holds {each.sources[0]} of {there}"
        if not place.sure:
            result.append(replace(each, doubt=f"{text}, though its name is nearer to {place.source}"))
            continue
        text += f" where {place.source} should be"
        away = away if each.side else turned_around(away)
        names = place.source, *each.sources[1:]
        result.append(replace(each, sources=names, wrong=place.source, text=text, distance=away))
    return result


def _on_other_ranks(found: Sequence[WeightConversion]) -> set[str]:
    """Returns the parts of weights that are not in the order of their ranks; several ranks may have the same part."""
    groups: dict[tuple[str, str], list[tuple[int, tuple[Numbers, int], str]]] = defaultdict(list)
    for each in found:
        name, of_rank, rank = each.made.partition(OF_RANK)
        if of_rank:
            template, numbers = _spelled(each.sources[0])
            groups[name, template].append((int(rank), (numbers, each.start), each.made))
    wrong: set[str] = set()
    for parts in groups.values():
        held = list(dict.fromkeys(part for _, part, _ in sorted(parts)))
        moved = {part for part, other in zip(held, sorted(held), strict=True) if part != other}
        wrong |= {name for _, part, name in parts if part in moved}
    return wrong


def _places(
    made: Mapping[str, str], known: Mapping[str, str], sources: Iterable[str], alike: Callable[[str, str], bool]
) -> dict[str, _Place]:
    """Returns what weights should be made of that are made of others.

    Args:
        made: weights by name, with the first weight of the other run that makes each.
        known: others that are paired by name.
        sources: all weights of the other run.
        alike: tells whether one weight may stand in the place of another one: they have one shape, and other values.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    every = {**known, **made}
    for name in every:
        groups[_spelled(name).template].append(name)
    alike_sources: dict[str, list[str]] = defaultdict(list)
    for name in sources:
        alike_sources[_spelled(name).template].append(name)
    found: dict[str, _Place] = {}
    for names in groups.values():
        for group in _of_one_kind(names, every) if not made.keys().isdisjoint(names) else ():
            found |= dict(_of_another_kind(group, every, alike_sources))
            found |= dict(_renumbered(group, every))
    found = {name: place for name, place in found.items() if name in made and alike(place.source, made[name])}
    return dict(_nearer(made, alike)) | found


@lru_cache(maxsize=1 << 16)
def _spelled(name: str) -> _Spelled:
    """Returns a name without any numbers, and these; a rank belongs to the name."""
    head, *rank = name.partition(OF_RANK)
    return _Spelled(_DIGITS.sub("*", head) + "".join(rank), tuple(map(int, _DIGITS.findall(head))))


def _of_one_kind(names: Sequence[str], made: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """Yields groups of weights with one name without numbers, whose sources mostly have one, too.

    A number within a word counts layers (``stage1``), or tells one weight of a layer from another (``w1``).
    """
    if _usual(names, made):
        yield names
        return
    for numbers in zip(*(_spelled(name).numbers for name in names), strict=True):
        of_number: dict[int, list[str]] = defaultdict(list)
        for name, number in zip(names, numbers, strict=True):
            of_number[number].append(name)
        if len(of_number) < len(names) and all(_usual(group, made) for group in of_number.values()):
            yield from of_number.values()
            return
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in names:
        groups[tuple(_DIGITS.findall(re.sub(r"(?<![^./])\d+(?![^./])", "", name.partition(OF_RANK)[0])))].append(name)
    yield from (group for group in groups.values() if _usual(group, made))


def _usual(names: Sequence[str], made: Mapping[str, str]) -> str:
    """Returns the name without numbers that most sources of the weights share; empty without a majority."""
    ((template, count),) = Counter(_spelled(made[name]).template for name in names).most_common(1)
    return template if 2 * count > len(names) else ""


def _of_another_kind(
    names: Sequence[str], made: Mapping[str, str], sources: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, _Place]]:
    """Yields weights whose source has another name without numbers than the sources of most similar weights."""
    template = _usual(names, made)
    others = [name for name in names if _spelled(made[name]).template != template]
    if not others:
        return
    used = {made[name] for name in names}
    free = [name for name in sources.get(template, ()) if name not in used]
    of_layer: dict[Numbers, list[str]] = defaultdict(list)
    for name in free:
        of_layer[_spelled(name).numbers[:1]].append(name)
    for name in others:
        fits = free if len(free) == 1 else of_layer[_spelled(made[name]).numbers[:1]]
        if len(fits) == 1:
            yield name, _Place(fits[0], True)


def _renumbered(names: Sequence[str], made: Mapping[str, str]) -> Iterator[tuple[str, _Place]]:
    """Yields weights whose numbers are in another order than the numbers of their sources."""
    template = _usual(names, made)
    names = [name for name in names if _spelled(made[name]).template == template]
    own, there = (_ranked([_spelled(name).numbers for name in of]) for of in (names, [made[name] for name in names]))
    if set(own) != set(there) or len(set(there)) != len(there) or len(own[0]) > _MOST_NUMBERS:
        return
    orders = [[tuple(numbers[at] for at in order) for numbers in there] for order in permutations(range(len(own[0])))]
    best = max(orders, key=lambda of: sum(one == other for one, other in zip(own, of, strict=True)))
    whole = all(re.search(r"(?:^|[./])\d+(?:[./]|$)", name) for of in names for name in (of, made[of]))
    counts = len(set(own)) >= _LEAST_COUNTED and any(map(eq, own, best))
    holders = dict(zip(best, names, strict=True))
    for name, numbers, other in zip(names, own, best, strict=True):
        if numbers != other:
            yield name, _Place(made[holders[numbers]], whole or counts)


def _ranked(numbers: Sequence[Numbers]) -> list[Numbers]:
    """Replaces each number by its rank among the numbers of its position; leaves out positions with a single number."""
    columns = [dict(zip(sorted(set(of)), range(len(of)), strict=False)) for of in zip(*numbers, strict=True)]
    return [tuple(of[each] for of, each in zip(columns, row, strict=True) if len(of) > 1) for row in numbers]


def _nearer(made: Mapping[str, str], alike: Callable[[str, str], bool]) -> Iterator[tuple[str, _Place]]:
    """Yields pairs of weights of one layer where each name is nearer to the source of the other weight."""
    groups: dict[object, list[str]] = defaultdict(list)
    for name, source in made.items():
        groups[_spelled(name).numbers, _spelled(source).numbers].append(name)
    for names in groups.values():
        for one, other in combinations(names[:_MOST_TRIED], 2):
            own, there = _apart(one, other), _apart(made[one], made[other])
            straight = _common(own[0], there[0]), _common(own[1], there[1])
            crossed = _common(own[0], there[1]), _common(own[1], there[0])
            if crossed[0] > straight[0] and crossed[1] > straight[1] and alike(made[one], made[other]):
                yield one, _Place(made[other], False)


def _apart(one: str, other: str) -> tuple[list[str], list[str]]:
    """Returns the words that each of two names has and the other lacks."""
    words = [Counter(_WORD.findall(name.lower())) for name in (one, other)]
    return list((words[0] - words[1]).elements()), list((words[1] - words[0]).elements())


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns how many words of a name are in another one as well, maybe shortened."""
    return sum(_is_short_for(*sorted((word, each), key=len)) for word in one for each in other)


def _is_short_for(short: str, word: str) -> bool:
    if any(short in words and word in words for words in _SYNONYMS):
        return True
    return word.startswith(short) and (word == short or len(short) >= _LEAST_LETTERS)
