"""Weights that two runs name and cut differently: which of them make which, proven by what their rows hold.

A checkpoint of one program holds q, k and v, another one a fused weight of all three, in blocks or head by head;
experts are several weights or a stack, matrices are transposed, vocabularies are padded. In all of these a row of one
weight is a row of another: rows are looked up by their digests. Weights of one name but for the numbers in it (layers,
experts) are made alike, so that what most of them are made of tells what the others should be.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.runs.distance import Distance, distance, unit_of
from tui_debugger.diagnose.runs.kinds import kind_of_difference
from tui_debugger.stats.dtypes import name_of

_ROUNDING: Final = 3.0
"""Units of rounding that a weight may be off where it was cast to a coarser type."""
_PROVEN: Final = 0.5
"""The part of the rows of some weight that has to be found before its layout is believed."""
_LEAST: Final = 4
"""Elements of weights with one dimension that have to be found: one number may be the same by chance."""


class _Name(NamedTuple):
    """A name without the numbers in it, and these."""

    template: str
    numbers: tuple[int, ...]


class _Source(NamedTuple):
    """A row of a weight, told from the weight that it is for.

    Attributes:
        template: the name, without numbers.
        inner: numbers beyond those that both names have, such as of an expert.
        swapped: it is a column instead.
        row: its number.
    """

    template: str
    inner: tuple[int, ...]
    swapped: bool
    row: int


class _Place(NamedTuple):
    name: str
    swapped: bool
    row: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """A weight of one run that weights of the other one make.

    Attributes:
        made: the name of the weight.
        sources: those that it is made of, in the order of their first rows.
        wrong: of these the one whose part is not as it should be; empty where all are.
        text: how it is wrong, or how it is made.
        distance: of the weight from what it should be.
        side: the run that has it.
        turned: it is transposed.
    """

    made: str
    sources: tuple[str, ...]
    wrong: str
    text: str
    distance: Distance
    side: int = 1
    turned: bool = False


def conversions(a: Mapping[str, Array], b: Mapping[str, Array]) -> list[Conversion]:
    """Returns which weights of one run are made of which of the other, as far as values prove it.

    A weight of which only some rows are found is in no result: neither is what is made of it.

    Args:
        a: the weights of the first run that have no partner by name.
        b: those of the second; the weights of the run that has fewer are made of the others.
    """
    if len(b) > len(a):
        found = _Conversions(b, a, "BA").found()
        return [replace(each, side=0) for each in found]
    return _Conversions(a, b, "AB").found()


def parsed(name: str) -> _Name:
    """Returns a name without the numbers that are words of it, and the numbers."""
    words = name.split(".")
    numbers = tuple(int(word) for word in words if word.isdecimal())
    return _Name(".".join("*" if word.isdecimal() else word for word in words), numbers)


class _Conversions:
    def __init__(self, a: Mapping[str, Array], b: Mapping[str, Array], sides: str) -> None:
        self.a, self.b, self.sides = a, b, sides
        types = {name_of(each.dtype): each.dtype for each in (*a.values(), *b.values()) if each.dtype.kind not in "biu"}
        self.coarse = types[max(types, key=lambda name: (unit_of((name,)), name))] if types else None
        self.places: dict[bytes, list[_Place]] = defaultdict(list)
        self.layouts: dict[str, list[_Source | None] | None] = {}
        self.by_name = {parsed(name): name for name in a}
        self.vectors: dict[bytes, list[str]] = defaultdict(list)
        for name, array in a.items():
            if array.ndim < 2 and (content := self._content(array)):
                self.vectors[content].append(name)
            for swapped in (False, True) if array.ndim > 1 else ():
                for row, digest in enumerate(self._digests(_rows(array, swapped=swapped))):
                    if digest is not None:
                        self.places[digest].append(_Place(name, swapped, row))

    def found(self) -> list[Conversion]:
        """Returns the conversions that are proven."""
        groups: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self.b, key=lambda name: -self.b[name].ndim):  # biases are cut as their weights are
            groups[parsed(name).template].append(name)
        made = [each for names in groups.values() for each in self._of_group(names)]
        whole = self._whole_only(made)
        return [*whole, *self._constant(whole)] if whole else []

    def _constant(self, found: Sequence[Conversion]) -> Iterator[Conversion]:
        """Yields vectors of one value, such as new scales of norms, of which both runs have as many."""
        used = {name for each in found for name in each.sources}, {each.made for each in found}
        groups = defaultdict[tuple[object, ...], tuple[list[str], list[str]]](lambda: ([], []))
        for side, of in enumerate((self.a, self.b)):
            for name, array in sorted(of.items()):
                if name not in used[side] and array.ndim == 1 and array.size and bool((array == array[0]).all()):
                    groups[array.shape, float(array[0])][side].append(name)
        for one, other in groups.values():
            for source, name in zip(one, other, strict=True) if len(one) == len(other) else ():
                text = f"made of {source} or of another one with the same values"
                yield Conversion(name, (source,), "", text, distance(self.a[source], self.b[name]))

    def _digests(self, rows: Array) -> Iterator[bytes | None]:
        """Yields what tells each row, as the coarser type has it; None of a row of one value, which many have."""
        cast = rows if self.coarse is None or rows.dtype.kind in "biu" else rows.astype(self.coarse)
        if not cast.size:
            return
        plain = (cast == cast[:, :1]).all(axis=1) if cast.shape[1] > 1 else cast[:, 0] == cast[0, 0]
        raw = np.ascontiguousarray(cast).view(np.uint8).reshape(len(cast), -1)
        for row, is_plain in zip(raw, plain.tolist(), strict=True):
            yield None if is_plain else hashlib.blake2b(row.data, digest_size=12).digest()

    def _of_group(self, names: Sequence[str]) -> Iterator[Conversion]:
        """Yields the conversions to weights of one name but for its numbers."""
        shapes = {self.b[name].shape for name in names}
        if len(shapes) > 1:
            for shape in shapes:
                yield from self._of_group([name for name in names if self.b[name].shape == shape])
            return
        for swapped in (False, True) if self.b[names[0]].ndim > 1 else (False,):
            places = {name: self._located(name, swapped=swapped) for name in names}
            template = parsed(names[0]).template
            vectors = self.b[names[0]].ndim < 2
            sources = self._of_vectors(template, names) if vectors else self._agreed(places)
            self.layouts[template] = sources
            if sources is None:
                continue
            for name in names:
                conversion = self._made(name, sources, places[name], swapped=swapped)
                if conversion is not None:
                    yield conversion
            return

    def _of_vectors(self, template: str, names: Sequence[str]) -> list[_Source | None] | None:
        """Returns what vectors are made of: as the weights beside them, or whole ones. One number proves nothing."""
        count = len(self.b[names[0]])
        head, _, last = template.rpartition("bias")
        weight = self.layouts.get(f"{head}weight{last}")
        if weight is not None and len(weight) == count:
            turned = [
                each and each._replace(template="bias".join(each.template.rsplit("weight", 1))) for each in weight
            ]
            if all(each is None or self._name(each, parsed(name).numbers) for each in turned for name in names):
                return turned
        votes: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for name in names:
            own = parsed(name).numbers
            for whole in self.vectors.get(self._content(self.b[name]), ()):
                template, numbers = parsed(whole)
                votes[template, numbers[len(own) :]] += 1 + (numbers[: len(own)] == own)
        if not votes or count < _LEAST:
            return None
        source, inner = votes.most_common(1)[0][0]
        return [_Source(source, inner, False, row) for row in range(count)]

    def _content(self, vector: Array) -> bytes:
        """Returns the elements of a vector as the coarser type has them; nothing of elements that are all alike."""
        cast = vector if self.coarse is None or vector.dtype.kind in "biu" else vector.astype(self.coarse)
        return b"" if not cast.size or bool((cast == cast[0]).all()) else cast.tobytes()

    def _located(self, name: str, *, swapped: bool) -> list[_Place | None]:
        """Returns where the first run has each row of a weight; of several places the one behind the last row."""
        own = parsed(name).numbers
        found: list[_Place | None] = []
        last: _Place | None = None
        for digest in self._digests(_rows(self.b[name], swapped=swapped)):
            places = self.places.get(digest, []) if digest is not None else []
            following = [each for each in places if last is not None and each == last._replace(row=last.row + 1)]
            alike = [each for each in places if parsed(each.name).numbers[: len(own)] == own]
            last = next(iter((*following, *alike, *places)), None)
            found.append(last)
        return found

    def _agreed(self, places: Mapping[str, Sequence[_Place | None]]) -> list[_Source | None] | None:
        """Returns what each row is made of, by most of the weights; None where too little of it is known."""
        count = len(next(iter(places.values())))
        votes: list[Counter[_Source]] = [Counter() for _ in range(count)]
        for name, of in places.items():
            own = parsed(name).numbers
            for row, place in enumerate(of):
                if place is None:
                    continue
                template, numbers = parsed(place.name)
                votes[row][_Source(template, numbers[len(own) :], place.swapped, place.row)] += 1
        sources = [each.most_common(1)[0][0] if each else None for each in votes]
        known = sum(each is not None for each in sources)
        if not count or known < max(_PROVEN * count, 1):
            return self._padded(sources, known) if known >= _LEAST else None
        filled = self._filled(sources, next(iter(places)))
        return filled if len(places) > 1 or _in_order(filled) else None  # one shuffled weight proves no layout

    def _padded(self, sources: list[_Source | None], known: int) -> list[_Source | None] | None:
        """Lets rows at the end be padding, where all before are known."""
        return sources if all(each is not None for each in sources[:known]) else None

    def _filled(self, sources: list[_Source | None], name: str) -> list[_Source | None]:
        """Gives rows that were not found to the one weight beside that has as many rows left."""
        for row, each in enumerate(sources):
            before = sources[row - 1] if row and each is None else None
            last = next((each for each in sources[row:] if each is not None), None)
            if before is not None and last is not None and before[:3] == last[:3]:
                ahead = next(of for of in range(row, len(sources)) if sources[of] is not None) - row
                if before.row + ahead + 1 == last.row:  # between two rows of one weight are those between them
                    sources[row] = before._replace(row=before.row + 1)
        missing = [row for row, each in enumerate(sources) if each is None]
        if not missing:
            return sources
        used = {(each.template, each.inner): set[int]() for each in sources if each is not None}
        for each in sources:
            if each is not None:
                used[each.template, each.inner].add(each.row)
        own = parsed(name).numbers
        swapped = Counter(each.swapped for each in sources if each is not None).most_common(1)[0][0]
        fits: list[list[_Source]] = []
        for (template, numbers), whole in self.by_name.items():
            if numbers[: len(own)] != own[: len(numbers)]:
                continue
            inner = numbers[len(own) :]
            rows = _rows(self.a[whole], swapped=swapped)
            left = [row for row in range(len(rows)) if row not in used.get((template, inner), ())]
            if len(left) == len(missing) and rows.shape[1:] == _rows(self.b[name], swapped=False).shape[1:]:
                fits.append([_Source(template, inner, swapped, row) for row in left])
        begun = [each for each in fits if (each[0].template, each[0].inner) in used]
        chosen = begun if len(begun) == 1 else fits
        if len(chosen) == 1:
            for row, source in zip(missing, chosen[0], strict=True):
                sources[row] = source
        return sources

    def _name(self, source: _Source, own: Sequence[int]) -> str | None:
        """Returns the weight of the first run that a row should be of."""
        outer = source.template.count("*") - len(source.inner)
        return self.by_name.get(_Name(source.template, (*own[:outer], *source.inner)))

    def _made(
        self, name: str, sources: Sequence[_Source | None], places: Sequence[_Place | None], *, swapped: bool
    ) -> Conversion | None:
        """Holds a weight against what it should be; None where the first run lacks some of that."""
        own, rows = parsed(name).numbers, _rows(self.b[name], swapped=swapped)
        expected = np.zeros_like(rows)
        of: list[str] = []
        for row, source in enumerate(sources):
            if source is None:
                of.append("")
                if len(set(rows[row].tolist())) > 1:
                    return None  # no padding
                expected[row] = rows[row]
                continue
            whole = self._name(source, own)
            made = _rows(self.a[whole], swapped=source.swapped) if whole is not None else None
            if whole is None or made is None or source.row >= len(made) or made.shape[1:] != rows.shape[1:]:
                return None
            expected[row] = made[source.row].astype(rows.dtype)
            of.append(whole)
        names = tuple(dict.fromkeys(each for each in of if each))
        types = name_of(self.a[names[0]].dtype), name_of(rows.dtype)
        apart = distance(expected, rows, types)
        turned = swapped or any(each is not None and each.swapped for each in sources)
        how = f"made of {', '.join(names)}{', transposed' if turned else ''}"
        if apart.relative <= _ROUNDING * apart.unit:
            return Conversion(name, names, "", how, apart, turned=turned)
        for each in names:
            own_rows = [row for row, whole in enumerate(of) if whole == each]
            part = distance(expected[own_rows], rows[own_rows], types)
            if part.relative > _ROUNDING * part.unit:
                text = self._wrong_text(
                    name, each, expected[own_rows], rows[own_rows], [places[row] for row in own_rows]
                )
                return Conversion(name, names, each, text, part, turned=turned)
        return Conversion(name, names, names[0], "values differ", apart)

    def _wrong_text(self, name: str, source: str, expected: Array, held: Array, places: Sequence[_Place | None]) -> str:
        """Returns how the part of a weight is wrong that should be of one source."""
        here, there = self.sides[0], self.sides[1]
        if expected.shape[0] == expected.shape[1]:
            other_way = distance(np.ascontiguousarray(expected.T), held)
            if other_way.relative <= _ROUNDING * other_way.unit:
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

    def _whole_only(self, made: list[Conversion]) -> list[Conversion]:
        """Leaves out what is made of weights of which rows are nowhere in the second run, unless these are padding."""
        used: Counter[str] = Counter()
        for each in made:
            rows = len(_rows(self.b[each.made], swapped=False)) * _rows(self.b[each.made], swapped=False).shape[1]
            if len(each.sources) == 1:
                used[each.sources[0]] += rows
            else:
                for source in each.sources:
                    used[source] += self.a[source].size
        short = {
            name for name, count in used.items() if count < self.a[name].size and not self._ends_plain(name, count)
        }
        return [each for each in made if short.isdisjoint(each.sources)]

    def _ends_plain(self, name: str, count: int) -> bool:
        """Tells whether a weight is padded: all behind its first elements is one value a row."""
        rows = _rows(self.a[name], swapped=False)
        rest = rows[count // max(rows.shape[1], 1) :]
        return bool(len(rest)) and bool((rest == rest[:, :1]).all())


def _in_order(sources: Sequence[_Source | None]) -> bool:
    """Tells whether all rows of each weight stand in their order."""
    last: dict[tuple[object, ...], int] = {}
    for each in sources:
        if each is not None:
            if each.row <= last.get(each[:3], -1):
                return False
            last[each[:3]] = each.row
    return True


def _rows(array: Array, *, swapped: bool) -> Array:
    """Returns a weight as rows: a vector as rows of one element, a stack of matrices as the rows of all of them."""
    if array.ndim < 2:
        return array.reshape(-1, 1)
    turned = np.swapaxes(array, -1, -2) if swapped else array
    return np.ascontiguousarray(turned).reshape(-1, turned.shape[-1])
