"""Weights that two runs name and cut differently: which make which, proven by the contents of their rows.

A checkpoint may hold q, k and v, or a fused weight of all three, in blocks or head by head; experts as several weights
or a stack; transposed matrices; padded vocabularies; and parts of all of these on ranks. In each case a row of one
weight is a row of another: rows are looked up by their digests. Weights whose names differ only in numbers (layers,
experts) are made alike, so that the majority of them tells how the others should be.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import merge
from itertools import islice, product
from operator import eq
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Shape
from tui_debugger.diagnose.runs.digests import digests, rows_and_width, rows_of
from tui_debugger.diagnose.runs.distance import Distance, distance, unit_of
from tui_debugger.diagnose.runs.kinds import factor_between, kind_of_difference
from tui_debugger.diagnose.runs.scaled import Wide, meant_apart, rounded
from tui_debugger.stats.dtypes import name_of

ROUNDING: Final = 3.0
"""Units of rounding that a weight may be off where it was cast to a coarser type."""
_FEW_ELEMENTS: Final = 0.01
"""The largest part of differing elements that are checked one by one."""
_PROVEN: Final = 0.5
"""The part of a weight's rows that has to be found before its layout is believed."""
_LEAST_LAYERS: Final = 2
"""The fewest layers of a stack."""
_USUAL_ORDER: Final = re.compile(
    r"(?:^|[._])(?:(q|wq|query|gate|w1)|(k|wk|key|up|w3)|(v|wv|value))(?:_proj)?(?=[._]|$)", re.IGNORECASE
)
"""Words for weights, in their usual order within fused weights."""
_SPELLED: Final = re.compile(r"qkv|query_key_value|gate_up", re.IGNORECASE)
"""Names of fused weights that tell the order of their parts."""
_LEAST_OF_ALL: Final = 8
"""The fewest elements for which a common factor proves that two weights are the same."""
_MOST_TRIED: Final = 16
"""The most weights of one shape that are tried."""
_MOST_ASKED: Final = 128
"""The number of a weight's rows that decide which layer it is."""
_NUMBER: Final = re.compile(r"(?<![^./])\d+(?![^./])")
OF_RANK: Final = " of rank "
"""Separates the name of a weight from the rank that has a part of it."""
_EMBEDDING: Final = re.compile(r"emb|(?:^|[._/])w[tp]e(?:[._/]|$)|position|lm_head", re.IGNORECASE)
_NORM: Final = re.compile(r"norm|(?:^|[._])ln", re.IGNORECASE)
_LEAST: Final = 4
"""The fewest elements of a vector for a match; a single number may be equal by chance."""


Numbers = tuple[int, ...]


class _Name(NamedTuple):
    """A name with its numbers replaced, and the numbers."""

    template: str
    numbers: Numbers

    def before(self, at: int) -> tuple[str, ...]:
        """Returns the words before a number, and the rank."""
        return (*self.template.split("*")[: at + 1], self.template.partition(OF_RANK)[2])


class _SourceRow(NamedTuple):
    """A row (or column if ``swapped``) of a source weight, relative to the weight that it is for.

    ``inner`` are numbers beyond those that both names have, such as that of an expert.
    """

    template: str
    inner: Numbers
    swapped: bool
    row: int


_SourceRows = list[_SourceRow | None]
"""The source of each row of a weight; None where unknown."""


class _RowPlace(NamedTuple):
    name: str
    swapped: bool
    row: int


@dataclass(slots=True)
class Learned:
    """What weights of some ranks proved for other ranks; ``turned``: some that are not square are transposed.

    ``layouts`` has by direction, name without numbers, and shape: whether it is transposed, and the source of each row.
    """

    layouts: dict[tuple[str, str, Shape], tuple[bool, _SourceRows]] = field(default_factory=dict)
    turned: bool = False


@dataclass(frozen=True, slots=True)
class WeightConversion:
    """A weight of one run that weights of the other run make.

    Attributes:
        sources: in the order of their first rows.
        wrong: the source whose part is wrong; empty where all are right.
        text: how it is wrong, or how it is made.
        distance: of the weight from what it should be.
        side: the run that has the made weight.
        turned: it is transposed.
        renumbered: the runs count its layers or experts from different numbers.
        uncast: the source of a part that is not exactly a cast; empty if all parts are, None if types do not differ.
        start: the first row of the first source that it has.
        doubt: why it may be another weight.
    """

    made: str
    sources: tuple[str, ...]
    wrong: str
    text: str
    distance: Distance
    side: int = 1
    turned: bool = False
    renumbered: bool = False
    uncast: str | None = None
    start: int = 0
    doubt: str = ""


def conversions(
    a: Mapping[str, Array],
    b: Mapping[str, Array],
    *,
    made: int | None = None,
    fp8: tuple[str, str] = ("", ""),
    scales: Mapping[str, Wide] | None = None,
    learned: Learned | None = None,
    proven: bool = False,
) -> list[WeightConversion]:
    """Returns which weights of one run are made of which of the other, as far as values prove it.

    ``a`` and ``b`` are weights without a partner by name; ``made`` is the run that has the made weights (None: the one
    with fewer weights). A weight is only used if all its rows are found. ``fp8`` are element types of scaled weights in
    both runs, or empty. ``scales`` are for fused weights with a scale for each source. ``learned`` carries layouts
    between ranks and is updated. ``proven``: other weights are known to be the same.
    """
    if made == 0 or (made is None and len(b) > len(a)):
        found = _Conversions(b, a, "BA", fp8[::-1], scales or {}).found(learned or Learned(), proven)
        return [replace(each, side=0, distance=turned_around(each.distance)) for each in found]
    return _Conversions(a, b, "AB", fp8, scales or {}).found(learned or Learned(), proven)


def is_norm(name: str) -> bool:
    """Tells whether a parameter is the weight of a norm."""
    return _NORM.search(name) is not None and not name.endswith(("bias", "beta", "running_mean", "running_var"))


def is_embedding(name: str) -> bool:
    """Tells whether a weight has a row for each word or position."""
    return _EMBEDDING.search(name) is not None


@lru_cache(maxsize=4096)
def parsed(name: str) -> _Name:
    """Returns a name with its numeric words replaced, and the numbers."""
    return _Name(_NUMBER.sub("*", name), tuple(map(int, _NUMBER.findall(name))))


def is_near(found: Distance) -> bool:
    """Tells whether rounding explains a distance."""
    return found.relative <= ROUNDING * found.unit


def turned_around(found: Distance) -> Distance:
    """Returns the distance with both runs exchanged."""
    values = found.values and found.values[::-1]
    return replace(found, values=values, types=found.types[::-1], shapes=found.shapes[::-1])


class _Conversions:
    def __init__(
        self,
        a: Mapping[str, Array],
        b: Mapping[str, Array],
        sides: str,
        fp8: tuple[str, str],
        scales: Mapping[str, Wide],
    ) -> None:
        self.a, self.b, self.sides, self.fp8, self.scales = a, b, sides, fp8, scales
        self.learned = Learned()
        types = {name_of(each.dtype): each.dtype for each in (*a.values(), *b.values()) if each.dtype.kind not in "biu"}
        self.coarse = types[max(types, key=lambda name: (unit_of((name,)), name))] if types else None
        self.places: dict[int, list[_RowPlace]] = defaultdict(list)
        self.layouts: dict[str, _SourceRows | None] = {}
        self.by_name = {parsed(name): name for name in a}
        self.layers: dict[tuple[str, Numbers], list[Numbers]] = defaultdict(list)
        self.of_size: dict[tuple[str, Numbers, bool, tuple[int, int], bool], list[_Name]] = defaultdict(list)
        for words, name in sorted(self.by_name.items()):
            for at in range(len(words.numbers) + 1):
                if at < len(words.numbers):
                    self.layers[words.template, words.numbers[:at]].append(words.numbers[at:])
                for whole in (False, True) if at == len(words.numbers) else (False,):
                    for template, swapped in product((words.template, ""), (False, True)):
                        size = rows_and_width(a[name], swapped=swapped)
                        self.of_size[template, words.numbers[:at], whole, size, swapped].append(words)
        self.vectors: dict[bytes, list[str]] = defaultdict(list)
        self.used: dict[str, set[tuple[bool, int]]] = defaultdict(set)
        self.shifts: dict[tuple[str, ...], int] = {}
        self.digests = {name: digests(each, self.coarse, signs=any(fp8)) for name, each in b.items() if each.ndim > 1}
        for name, array in a.items():
            if array.ndim < 2:
                if content := self._content(array):
                    self.vectors[content].append(name)
                    (row,) = digests(array[np.newaxis], self.coarse, signs=any(fp8)).rows  # it may be one of a stack
                    if row is not None:
                        self.places[row].append(_RowPlace(name, False, 0))
                continue
            both = digests(array, self.coarse, signs=any(fp8))
            for swapped, of in ((False, both.rows), (True, both.columns)):
                for row, digest in enumerate(of):
                    if digest is not None:
                        self.places[digest].append(_RowPlace(name, swapped, row))

    def found(self, learned: Learned, proven: bool) -> list[WeightConversion]:
        """Returns the proven conversions, also by layouts of other ranks; updates ``learned``."""
        self.learned = learned
        self.learned.turned |= any(map(self._is_turned, self.digests))
        self.shifts = self._renumbered()
        groups: dict[str, list[str]] = defaultdict(list)
        for name in self.b:
            groups[parsed(name).template].append(name)

        def proves_less(names: Sequence[str]) -> tuple[int, bool, bool]:
            """Biases are cut as their weights are, and one weight as those of other ranks."""
            return -self.b[names[0]].ndim, len(names) == 1, _is_square(self.b[names[0]])

        made = [
            replace(each, renumbered=self._numbers(each.made) != parsed(each.made).numbers)
            for names in sorted(groups.values(), key=proves_less)
            for each in self._of_group(names)
        ]
        whole = self._whole_only(made)
        whole += self._constant(whole) if whole or self.learned.layouts or proven else ()
        return [*whole, *self._left(whole)] if whole else []

    def _constant(self, found: Sequence[WeightConversion]) -> Iterator[WeightConversion]:
        """Yields norms of one value, where each layer has as many in both runs; other constants prove nothing."""
        used = {name for each in found for name in each.sources} | {each.made for each in found}
        groups = defaultdict[object, tuple[list[str], dict[str, list[str]]]](lambda: ([], defaultdict(list)))
        for of in (self.a, self.b):
            for name, array in sorted(of.items()):
                if name in used or array.ndim != 1 or not array.size or not _NORM.search(name):
                    continue
                if bool((array == array[0]).all()):
                    numbers = parsed(name).numbers if of is self.a else self._numbers(name)
                    sources, made = groups[array.shape, float(array[0]), numbers]
                    (sources if of is self.a else made[name.partition(OF_RANK)[2]]).append(name)
        for sources, ranks in groups.values():
            for source, name in (
                pair
                for names in ranks.values()
                if len(names) == len(sources)
                for pair in zip(sources, names, strict=True)
            ):
                text = f"made of {source} or of another one with the same values"
                yield WeightConversion(name, (source,), "", text, distance(self.a[source], self.b[name]))

    def _left(self, found: Sequence[WeightConversion]) -> Iterator[WeightConversion]:
        """Yields remaining weights that are a multiple of another one of the same layer, or the last ones."""
        used = {name for each in found for name in (each.made, *each.sources)}
        names = [[name for name in sorted(of) if name not in used] for of in (self.a, self.b)]
        last = len(names[0]) == len(names[1]) == 1
        free: dict[object, dict[int, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
        for name in names[0]:
            shape = self.a[name].shape
            free[parsed(name).numbers, len(shape), shape[1:]][shape[0]][name] = None
        for name in names[1]:
            whole = self.b[name]
            beside = free[self._numbers(name), whole.ndim, whole.shape[1:]]
            cut = {rows: of for rows, of in beside.items() if of and self._is_padded(whole, rows)}
            for source in list(islice(merge(*cut.values()), _MOST_TRIED)):
                one = self.a[source]
                other = whole[: len(one)]
                if one.size < _LEAST_OF_ALL or not bool((one != one.flat[0]).any()):
                    continue
                types = name_of(one.dtype), name_of(other.dtype)
                if last or factor_between(one.ravel(), other.ravel(), unit_of(types)):
                    text = f"{name} of {self.sides[1]} is what is left for {source} of {self.sides[0]}"
                    if one.shape != whole.shape:
                        both = (one, other) if self.sides == "AB" else (other, one)
                        text += f": {kind_of_difference(*both, unit_of(types))[1]}"
                    yield WeightConversion(name, (source,), source, text, distance(one, other, types))
                    del beside[len(one)][source]
                    break

    def _is_padded(self, whole: Array, rows: int) -> bool:
        """Tells whether a weight has these rows, and behind them at most padding."""
        return len(whole) == rows or (whole.ndim > 1 and self._ends_plain(whole, rows * whole[0].size))

    def _renumbered(self) -> dict[tuple[str, ...], int]:
        """Returns what to add to numbers in names of the second run, by the words before the number.

        A stage of a pipeline may count its layers from zero, and a rank its experts.
        """
        votes: dict[tuple[str, ...], Counter[int]] = defaultdict(Counter)
        for name, of in self.digests.items():
            words = parsed(name)
            for digest in (*_some(of.rows), *_some(of.columns)):
                places = self.places.get(digest, ()) if digest is not None else ()
                for there in {parsed(each.name).numbers for each in places}:
                    for at, (own, other) in enumerate(zip(words.numbers, there, strict=False)):
                        votes[words.before(at)][other - own] += 1
        known = {numbers[:at] for _, numbers in self.by_name for at in range(len(numbers) + 1)}
        shifts = {at: most.most_common(1)[0][0] for at, most in votes.items()}
        for name in self.b:
            words = parsed(name)
            for at in range(len(words.numbers)):
                numbers = *self._shifted(words, shifts)[:at], words.numbers[at] + shifts.get(words.before(at), 0)
                if numbers not in known:
                    shifts.pop(words.before(at), None)
        return shifts

    def _is_turned(self, name: str) -> bool:
        """Tells whether most rows of a weight match columns, or vice versa, of sources that are not square."""
        rows, columns = _some(self.digests[name].rows), _some(self.digests[name].columns)
        for swapped, of in ((False, rows), (True, columns)):
            found = (self.places.get(digest, ()) for digest in of if digest is not None)
            turned = sum(
                any(at.swapped != swapped and not _is_square(self.a[at.name]) for at in each) for each in found
            )
            if turned > _PROVEN * len(of):
                return True
        return False

    def _shifted(self, words: _Name, shifts: Mapping[tuple[str, ...], int]) -> Numbers:
        return tuple(number + shifts.get(words.before(at), 0) for at, number in enumerate(words.numbers))

    def _numbers(self, name: str) -> Numbers:
        """Returns the numbers in a name of the second run, as the first run counts."""
        return self._shifted(parsed(name), self.shifts)

    def _of_group(self, names: Sequence[str]) -> Iterator[WeightConversion]:
        shapes = {self.b[name].shape for name in names}
        if len(shapes) > 1:
            for shape in shapes:
                yield from self._of_group([name for name in names if self.b[name].shape == shape])
            return
        vectors = self.b[names[0]].ndim < 2
        template = parsed(names[0]).template
        for swapped in (False,) if vectors else (False, True):
            places: dict[str, Sequence[_RowPlace | None]] = {
                name: [None] * len(self.b[name])
                if vectors
                else self._located(name, self.digests[name].columns if swapped else self.digests[name].rows)
                for name in names
            }
            if vectors:
                sources = self._of_vectors(template, names)
            else:
                at_home = any(self._is_at_home(name, place) for name in names for place in places[name])
                sources = self._agreed(places, swapped=swapped) if at_home else None
                sources = self._learned(names, sources, swapped=swapped) if at_home else None
                sources = self._as_named(names[0], sources) if sources is not None else None
            self.layouts[template] = sources
            if sources is None:
                continue
            for name in names:
                conversion = self._made(name, sources, places[name], swapped=swapped)
                if conversion is not None:
                    yield conversion
            return

    def _is_at_home(self, name: str, place: _RowPlace | None) -> bool:
        """Tells whether a row comes from the same layer; other layers alone prove nothing."""
        if place is None:
            return False
        return all(own == there for own, there in zip(self._numbers(name), parsed(place.name).numbers, strict=False))

    def _learned(self, names: Sequence[str], sources: _SourceRows | None, *, swapped: bool) -> _SourceRows | None:
        """Returns the sources of rows, from other ranks where one weight alone does not prove them."""
        name, shape = names[0], self.b[names[0]].shape
        key = self.sides, parsed(name).template.partition(OF_RANK)[0], shape
        known = self.learned.layouts.get(key)
        if len(names) == 1 and known is not None:
            if sources is not None and (swapped, _order(sources)) == (known[0], _order(known[1])):
                return sources  # another part of the same weights
            return known[1] if swapped == known[0] and self._takes_wholes(known[1], name) else None
        if sources is None:
            return None
        turned = any(each is not None and each.swapped != swapped for each in sources)
        wholes = {self._name(each, self._numbers(name)) for each in sources if each is not None}
        square = all(whole is not None and _is_square(self.a[whole]) for whole in wholes)
        if len(names) == 1 and turned and square and not self.learned.turned:
            sources = [each and each._replace(swapped=swapped) for each in sources]
        places = [_place_of(template) for template, _ in _order(sources)]
        if len(names) == 1 and places != sorted(places):
            return None
        self.learned.layouts.setdefault(key, (swapped, sources))
        return sources

    def _as_named(self, name: str, sources: _SourceRows) -> _SourceRows | None:
        """Prefers the source of the same name, if there is one source; None where names contradict (k is not v)."""
        templates = {each.template for each in sources if each is not None}
        if len(templates) != 1:
            return sources
        (template,), own = templates, parsed(name).template.partition(OF_RANK)[0]
        alike = self.by_name.get(_Name(own, self._numbers(name)))
        if template != own and alike is not None and self.a[alike].size == self.b[name].size:
            return [each and each._replace(template=own) for each in sources]
        words = [_USUAL_ORDER.search(each) for each in (own, template)]
        return sources if None in words or _place_of(own) == _place_of(template) else None

    def _takes_wholes(self, sources: _SourceRows, name: str) -> bool:
        """Tells whether a weight takes all rows of its sources, so that it is not a rank's part."""
        rows: dict[tuple[str | None, bool], set[int]] = defaultdict(set)
        for each in sources:
            if each is not None:
                rows[self._name(each, self._numbers(name)), each.swapped].add(each.row)
        return all(
            whole is not None and len(own) == rows_and_width(self.a[whole], swapped=turned)[0]
            for (whole, turned), own in rows.items()
        )

    def _of_vectors(self, template: str, names: Sequence[str]) -> _SourceRows | None:
        """Returns the sources of vectors: like the weights beside them, or whole vectors."""
        count = len(self.b[names[0]])
        head, _, last = template.rpartition("bias")
        weight = self.layouts.get(f"{head}weight{last}")
        if weight is not None and len(weight) == count:
            turned = [
                each and each._replace(template="bias".join(each.template.rsplit("weight", 1))) for each in weight
            ]
            if all(each is None or self._name(each, self._numbers(name)) for each in turned for name in names):
                return turned
        votes: Counter[tuple[str, Numbers]] = Counter()
        for name in names:
            own = self._numbers(name)
            for whole in self.vectors.get(self._content(self.b[name]), ()):
                template, numbers = parsed(whole)
                votes[template, numbers[len(own) :]] += 1 + (numbers[: len(own)] == own)
        if not votes or count < _LEAST:
            return None
        source, inner = votes.most_common(1)[0][0]
        return [_SourceRow(source, inner, False, row) for row in range(count)]

    def _content(self, vector: Array) -> bytes:
        """Returns a vector's elements as bytes in the coarser type; empty where all are alike."""
        cast = vector if self.coarse is None or vector.dtype.kind in "biu" else vector.astype(self.coarse)
        return b"" if not cast.size or bool((cast == cast[0]).all()) else cast.tobytes()

    def _located(self, name: str, rows: Sequence[int | None]) -> list[_RowPlace | None]:
        """Returns the place of each row in the first run; of several places, the one after the previous row."""
        own = self._numbers(name)
        found: list[_RowPlace | None] = []
        last: _RowPlace | None = None
        for digest in rows:
            places = self.places.get(digest, []) if digest is not None else []
            following = [each for each in places if last is not None and each == last._replace(row=last.row + 1)]
            alike = [each for each in places if parsed(each.name).numbers[: len(own)] == own]
            last = next(iter((*following, *alike, *places)), None)
            found.append(last)
        return found

    def _agreed(self, places: Mapping[str, Sequence[_RowPlace | None]], *, swapped: bool) -> _SourceRows | None:
        """Returns the source of each row by majority of the weights; None where too few are known."""
        count = len(next(iter(places.values())))
        found = [[self._source(name, place) for place in of] for name, of in places.items()]
        found.sort(
            key=lambda sources: _oddness(sources, swapped=swapped)
        )  # of two that are unlike the usual one is believed
        votes = [Counter(each for each in row if each is not None) for row in zip(*found, strict=True)]
        sources = [max(each, key=lambda source: each[source]) if each else None for each in votes]
        known = sum(each is not None for each in sources)
        if not count or known < max(_PROVEN * count, 1):
            return self._padded(sources, known) if known >= _LEAST else None
        filled = self._filled(sources, next(iter(places)))
        if len(places) > 1:
            return filled
        stack = self._in_stack(filled, next(iter(places)))
        return stack or (filled if _in_order(filled) else None)  # one shuffled weight proves no layout

    def _source(self, name: str, place: _RowPlace | None) -> _SourceRow | None:
        if place is None:
            return None
        template, numbers = parsed(place.name)
        return _SourceRow(template, numbers[len(parsed(name).numbers) :], place.swapped, place.row)

    def _in_stack(self, sources: _SourceRows, name: str) -> _SourceRows | None:
        """Returns the sources of a stack of layers, by majority of its layers; None where it is no stack."""
        known = [each for each in sources if each is not None]
        own, template = self._numbers(name), Counter(each.template for each in known).most_common(1)[0][0]
        layers = self.layers.get((template, own), [])
        rows, rest = divmod(len(sources), max(len(layers), 1))
        inner = {each.inner for each in known}
        if (
            rest
            or not _LEAST_LAYERS <= len(layers) <= len(sources)
            or not inner <= set(layers)
            or (len(inner) == 1 and _in_order(sources))
        ):
            return None
        made: _SourceRows = []
        after_each_other = [(row % rows, row // rows) for row in range(len(sources))]
        in_turns = [divmod(row, len(layers)) for row in range(len(sources))]
        for place in (after_each_other, in_turns):
            votes: list[Counter[tuple[str, bool, int]]] = [Counter() for _ in range(rows)]
            for (row, _), each in zip(place, sources, strict=True):
                if each is not None:
                    votes[row][each.template, each.swapped, each.row] += 1
            if all(votes):
                most = [each.most_common(1)[0][0] for each in votes]
                tried: _SourceRows = [_SourceRow(most[row][0], layers[layer], *most[row][1:]) for row, layer in place]
                made = max(made, tried, key=lambda of: sum(map(eq, of, sources)))
        return made if made and all(each and self._name(each, own) for each in made) else None

    def _padded(self, sources: _SourceRows, known: int) -> _SourceRows | None:
        """Accepts unknown rows at the end as padding, if all rows before are known."""
        return sources if all(each is not None for each in sources[:known]) else None

    def _filled(self, sources: _SourceRows, name: str) -> _SourceRows:
        """Assigns rows that were not found to the only source with as many unused rows."""
        for row in range(1, len(sources)):
            before = sources[row - 1]
            if sources[row] is not None or before is None:
                continue
            ahead = next((of for of in range(row, len(sources)) if sources[of] is not None), row)
            last = sources[ahead]
            if last is not None and last == before._replace(row=before.row + 1 + ahead - row):
                sources[row] = before._replace(row=before.row + 1)  # between two rows of one weight are those between
        missing = [row for row, each in enumerate(sources) if each is None]
        rest = self._left_for(sources, missing, name) if missing else []
        for row, source in zip(missing, rest, strict=False):
            sources[row] = source
        return sources

    def _left_for(self, sources: _SourceRows, missing: Sequence[int], name: str) -> list[_SourceRow]:
        """Returns the unused rows for the missing ones; empty where several sources have as many."""
        own = self._numbers(name)
        used: dict[tuple[str, Numbers], set[int]] = defaultdict(set)
        for each in sources:
            if each is not None:
                used[each.template, each.inner].add(each.row)
        swapped = Counter(each.swapped for each in sources if each is not None).most_common(1)[0][0]
        width = rows_and_width(self.b[name], swapped=False)[1]
        begun: list[list[_SourceRow]] = []
        for (template, inner), rows in used.items():
            whole = self._name(_SourceRow(template, inner, swapped, 0), own)
            size = rows_and_width(self.a[whole], swapped=swapped) if whole is not None else (0, 0)
            left = [_SourceRow(template, inner, swapped, row) for row in range(size[0]) if row not in rows]
            if len(left) == len(missing) and size[1] == width:
                begun.append(left)

        def unused(template: str) -> Iterator[list[_SourceRow]]:
            """Yields weights with as many rows, of which none is used: two of them already leave it open."""
            for at in range(len(own) + 1):
                key = template, own[:at], at < len(own), (len(missing), width), swapped
                for of, numbers in islice(self.of_size.get(key, ()), len(used) + 2):
                    if (of, numbers[len(own) :]) not in used:
                        yield [_SourceRow(of, numbers[len(own) :], swapped, row) for row in range(len(missing))]

        alike = [each for template in {template for template, _ in used} for each in unused(template)]
        chosen = next((each for each in (begun, [*begun, *alike], [*begun, *unused("")]) if len(each) == 1), [])
        if chosen or (last := sources[missing[0] - 1]) is None or missing[-1] - missing[0] + 1 != len(missing):
            return chosen[0] if chosen else []
        whole_name = self._name(last, own)
        end = rows_and_width(self.a[whole_name], swapped=last.swapped)[0] if whole_name else 0
        return [last._replace(row=row) for row in range(last.row + 1, end)][: len(missing)]  # padding may follow

    def _name(self, source: _SourceRow, own: Sequence[int]) -> str | None:
        outer = source.template.count("*") - len(source.inner)
        return self.by_name.get(_Name(source.template, (*own[:outer], *source.inner)))

    def _made(
        self, name: str, sources: _SourceRows, places: Sequence[_RowPlace | None], *, swapped: bool
    ) -> WeightConversion | None:
        """Compares a weight with what its sources make; None where the first run lacks some of them."""
        own, rows = self._numbers(name), rows_of(self.b[name], swapped=swapped)
        expected = np.empty_like(rows)
        of = [self._name(source, own) if source is not None else "" for source in sources]
        if None in of:
            return None
        parts: dict[tuple[str, bool], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row, (whole, source) in enumerate(zip(of, sources, strict=True)):
            if whole and source is not None:
                parts[whole, source.swapped][0].append(row)
                parts[whole, source.swapped][1].append(source.row)
        for (whole, turned), (at, from_) in parts.items():
            stacked = self.a[whole].ndim < 2 <= self.b[name].ndim
            made = self.a[whole][np.newaxis] if stacked else rows_of(self.a[whole], swapped=turned)
            if max(from_) >= len(made) or made.shape[1:] != rows.shape[1:]:
                return None
            expected[_span(at)] = made[_span(from_)].astype(rows.dtype, copy=False)
            self.used[whole].update((turned, row) for row in (range(made.size) if stacked else from_))
        plain = [row for row, each in enumerate(of) if not each]
        padding = expected[plain] = rows[plain]
        names = tuple(dict.fromkeys(each for each in of if each))
        scales = self.scales.get(name)
        if not bool((padding == padding[:, :1]).all()) or (scales is not None and (plain or len(scales) != len(names))):
            return None
        if scales is not None:
            rows = (rows * scales[[names.index(each or "") for each in of]][:, np.newaxis]).astype(np.float32)
        turned = swapped or any(each for _, each in parts)
        how = f"made of {', '.join(names)}{', transposed' if turned else ''}"
        apart = self._apart(expected, rows, names)
        if self._is_near(apart, expected, rows):
            shift = self._shift(sources, plain, names)
            if shift:
                how = f"its rows are shifted by {shift}: padding stands before them, and not behind"
            start = next(source.row for source in sources if source is not None)
            wrong = names[0] if shift else ""
            uncast = self._uncast(expected, rows, of)
            doubt = self._doubt(name, names, padding, across=swapped and all(each for _, each in parts))
            return WeightConversion(
                name, names, wrong, how, apart, turned=turned, uncast=uncast, start=start, doubt=doubt
            )
        for each in names:
            own_rows = [row for row, whole in enumerate(of) if whole == each]
            part = self._apart(expected[own_rows], rows[own_rows], names)
            if not self._is_near(part, expected[own_rows], rows[own_rows]):
                text = self._wrong_text(
                    name, each, expected[own_rows], rows[own_rows], [places[row] for row in own_rows]
                )
                return WeightConversion(name, names, each, text, part, turned=turned)
        return WeightConversion(name, names, names[0], "values differ", apart)

    def _doubt(self, name: str, names: Sequence[str], padding: Array, *, across: bool) -> str:
        """Returns why a weight may be wrong whose rows are all known; ``across``: its columns are padded."""
        kinds = [_place_of(template) for template in dict.fromkeys(parsed(each).template for each in names)]
        if kinds != sorted(kinds) and _SPELLED.search(name):
            return f"its name tells another order than that of its parts: {', '.join(names)}"
        if padding.shape[0] and padding.shape[1] > 1 and bool(padding.any()):
            return f"its padding is {padding[padding != 0].flat[0]:.6g}, and not zero"
        if padding.shape[0] and across and is_embedding(names[0]):
            return "padding makes its rows wider, and no other weight with them"
        return ""

    def _shift(self, sources: _SourceRows, plain: Sequence[int], names: Sequence[str]) -> int:
        """Returns by how many rows padding moves others: words have numbers, and no layout begins with padding."""
        moved = [row - source.row for row, source in enumerate(sources) if source is not None]
        if plain and len(names) == 1 and is_embedding(names[0]):
            return max(*moved, 0)
        return max(moved[0], 0) if plain[:1] == [0] else 0

    def _uncast(self, expected: Array, held: Array, of: Sequence[str | None]) -> str | None:
        """Returns the weight of which a part was not only cast; empty where all were, None of weights of one type."""
        types = {name_of(self.a[name].dtype) for name in of if name} | {name_of(held.dtype)}
        if len(types) < 2 or any(self.fp8) or self.coarse is None or held.dtype.kind in "biu":
            return None
        one, other = expected.astype(self.coarse), held.astype(self.coarse)
        unlike = ((one != other) & ~(np.isnan(one) & np.isnan(other))).any(axis=1)
        return next((name for name, wrong in zip(of, unlike.tolist(), strict=True) if name and wrong), "")

    def _is_near(self, apart: Distance, expected: Array, held: Array) -> bool:
        """Tells whether rounding explains a distance; checks few differing elements one by one."""
        if not is_near(apart):
            return False
        if any(self.fp8) or not 0 < apart.differing <= max(_FEW_ELEMENTS * held.size, 1):
            return True
        one, other = expected.astype(np.float64), held.astype(np.float64)
        return bool((np.abs(one - other) <= ROUNDING * apart.unit * np.abs(one)).all())

    def _apart(self, expected: Array, held: Array, names: Sequence[str]) -> Distance:
        if any(self.fp8) and held.shape[-1] > 1:
            both = [
                rounded(each, name) if name else each for each, name in zip((expected, held), self.fp8, strict=True)
            ]
            return meant_apart(both[0], both[1]).distance
        return distance(expected, held, (name_of(self.a[names[0]].dtype), name_of(held.dtype)))

    def _wrong_text(
        self, name: str, source: str, expected: Array, held: Array, places: Sequence[_RowPlace | None]
    ) -> str:
        here, there = self.sides[0], self.sides[1]
        if expected.shape[0] == expected.shape[1] and is_near(distance(np.ascontiguousarray(expected.T), held)):
            return f"{name} of {there} holds {source} of {here} transposed"
        holders = Counter(each.name for each in places if each is not None)
        other, count = holders.most_common(1)[0] if holders else ("", 0)
        if other and count > len(places) / 2:
            if other != source:
                return f"{name} of {there} holds {other} of {here} where {source} should be"
            orders = [each.row for each in places if each is not None]
            if len(orders) == len(places) and orders != sorted(orders):
                return f"{name} of {there} holds the rows of {source} in another order"
        both = (expected, held) if there == "B" else (held, expected)
        kind = kind_of_difference(*both, unit_of((name_of(expected.dtype), name_of(held.dtype))))[1]
        return f"the part of {name} of {there} that {source} of {here} makes: {kind}"

    def _whole_only(self, made: list[WeightConversion]) -> list[WeightConversion]:
        """Leaves out conversions whose sources have unused rows, unless these are padding."""
        short = {
            name
            for each in made
            for name in each.sources
            if (count := self._used_elements(name)) < self.a[name].size and not self._ends_plain(self.a[name], count)
        }
        return [each for each in made if short.isdisjoint(each.sources)]

    def _used_elements(self, name: str) -> int:
        widths = {turned: rows_and_width(self.a[name], swapped=turned)[1] for turned in (False, True)}
        return sum(widths[turned] for turned, _ in self.used[name])

    def _ends_plain(self, array: Array, count: int) -> bool:
        """Tells whether all rows after the first ``count`` elements have one value each."""
        rows = rows_of(array, swapped=False)
        rest = rows[count // max(rows.shape[1], 1) :]
        return bool(len(rest)) and bool((rest == rest[:, :1]).all())


def _some(of: Sequence[int | None]) -> Sequence[int | None]:
    return of[:: max(len(of) // _MOST_ASKED, 1)]


def _oddness(sources: _SourceRows, *, swapped: bool) -> int:
    """Counts the rows that are unusual: transposed, out of order, or up before gate."""
    last: dict[tuple[str, Numbers], int] = {}
    first: dict[Numbers, int] = {}
    odd = 0
    for each in sources:
        if each is None:
            continue
        odd += each.swapped != swapped or each.row != last.get(each[:2], -1) + 1
        if each[:2] not in last:
            place = _place_of(each.template)
            odd += place < first.get(each.inner, 0)
            first[each.inner] = place
        last[each[:2]] = each.row
    return odd


def _order(sources: _SourceRows) -> list[tuple[str, bool]]:
    return list(dict.fromkeys((each.template, each.swapped) for each in sources if each is not None))


def _place_of(template: str) -> int:
    match = _USUAL_ORDER.search(template)
    return 0 if match is None else next(number for number, word in enumerate(match.groups()) if word)


def _is_square(array: Array) -> bool:
    return array.ndim > 1 and array.shape[-1] == array.shape[-2]


def _span(rows: list[int]) -> slice | list[int]:
    """Returns consecutive rows as a slice, which is read without a copy."""
    return slice(rows[0], rows[-1] + 1) if rows == list(range(rows[0], rows[0] + len(rows))) else rows


def _in_order(sources: _SourceRows) -> bool:
    last: dict[tuple[object, ...], int] = {}
    for each in sources:
        if each is not None:
            if each.row <= last.get(each[:3], -1):
                return False
            last[each[:3]] = each.row
    return True
