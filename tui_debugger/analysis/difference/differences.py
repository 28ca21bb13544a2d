"""Everything about how one tensor differs from another one, in one pass over both, block by block and in float64.

Errors are over the elements that are finite on both sides; what is NaN or infinite is counted apart, because one NaN
would make every sum NaN. "There" is the reference: relative errors are parts of its elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tui_debugger.analysis.blocks import Array, Doubles
from tui_debugger.analysis.difference import ulp
from tui_debugger.analysis.difference.largest import Largest, Positions
from tui_debugger.analysis.difference.odd import OddCounts, OddElements
from tui_debugger.analysis.difference.pairs import (
    Index,
    Pairs,
    difference,
    exact_difference,
    needs_halves,
    wide,
    wide_difference,
)
from tui_debugger.analysis.difference.tolerance import EXACT, Tolerance, count_outside, outside
from tui_debugger.analysis.dtypes import DType, name_of
from tui_debugger.analysis.stats import Accumulator
from tui_debugger.analysis.sums import sum_of_products, sum_of_squares, total
from tui_debugger.model import Progress, ProgressFn, TensorStats, no_progress

TOP: Final = 100
"""So many of the largest differences are kept, by each measure."""
_EVERY: Final = 8
"""Blocks between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An element that differs.

    Attributes:
        index: where.
        here, there: the elements, of their own types.
        difference: here − there; NaN or infinite when either is.
        relative: |difference| / |there|; infinite where ``there`` is 0; None where either is not finite.
        ulp: distance in units in the last place; None where it has no meaning.
    """

    index: Index
    here: Any
    there: Any
    difference: Any
    relative: float | None
    ulp: int | None


@dataclass(frozen=True, slots=True)
class Ulps:
    """Distances in units in the last place.

    Attributes:
        type: name of the type whose units these are.
        measured: pairs of finite elements within the range of that type.
        greatest: the greatest distance; 0 for none.
        within_one: how many are at most 1 apart.
    """

    type: str
    measured: int
    greatest: int
    within_one: int


@dataclass(frozen=True, slots=True)
class Differences:
    """How two tensors differ.

    Attributes:
        shape: of both, as they were paired.
        odd: what is NaN or infinite, by kind.
        finite: pairs of finite elements: errors are over these.
        equal: pairs of equal numbers, equal infinities included, NaN not.
        sign_flips: pairs of finite numbers of opposite sign; 0 has none, nor have complex numbers.
        from_zero: pairs of finite elements that differ and whose reference is 0: their relative error is infinite.
        max_abs, mean_abs: absolute error.
        max_rel: greatest relative error over references other than 0.
        norm: Euclidean norm of the difference; ``relative_norm`` as a part of the reference's norm.
        cosine: cosine of the angle between both as vectors.
        ulps: None where units in the last place have no meaning: ``no_ulps`` says why.
        here, there, difference: statistics, complex elements by magnitude.
        by_abs, by_rel, by_ulp: the largest differences. NaN, then Inf on one side come first; they take at most half of
            the list where there are numbers to fill it.
        tolerance, boundary: what ``outside`` is by.
        outside: elements outside of the tolerance. NaN equals NaN, an infinity equals one of its sign.

    A measure is None where nothing is finite on both sides, or what it divides by is 0 or beyond the range of float64.
    """

    shape: tuple[int, ...]
    odd: OddCounts
    finite: int
    equal: int
    sign_flips: int
    from_zero: int
    max_abs: float | None
    mean_abs: float | None
    max_rel: float | None
    norm: float | None
    relative_norm: float | None
    cosine: float | None
    ulps: Ulps | None
    no_ulps: str
    here: TensorStats
    there: TensorStats
    difference: TensorStats
    by_abs: tuple[Entry, ...]
    by_rel: tuple[Entry, ...]
    by_ulp: tuple[Entry, ...]
    tolerance: Tolerance
    boundary: float
    outside: int

    @property
    def count(self) -> int:
        """Elements of each tensor."""
        return self.here.count

    @property
    def different(self) -> int:
        """Pairs that are not equal; NaN equals NaN."""
        return self.count - self.equal - self.odd.both_nan


def compare(
    pairs: Pairs,
    *,
    tolerance: Tolerance = EXACT,
    top: int = TOP,
    types: tuple[DType | None, DType | None] = (None, None),
    progress: ProgressFn = no_progress,
) -> Differences:
    """Compares two arrays; needs a few blocks of memory whatever their size.

    Args:
        pairs: the arrays.
        tolerance: what counts as equal for ``outside``. One with a boundary takes a second pass.
        top: how many of the largest differences are listed.
        types: what the elements stand for where that is not the type of the array: bfloat16 kept in float32.
        progress: counts elements; may raise to stop.
    """
    passes = 2 if tolerance.percent else 1
    run = _Run(pairs, tolerance, top, types)
    with np.errstate(all="ignore"):
        for number, (first, here, there) in enumerate(pairs.blocks()):
            if number % _EVERY == 0:
                progress(Progress(first, passes * pairs.count, "comparing"))
            run.add(first, here, there)
        return run.result(progress)


class _Run:
    """What all blocks so far add up to."""

    def __init__(self, pairs: Pairs, tolerance: Tolerance, top: int, types: tuple[DType | None, DType | None]) -> None:
        self.pairs = pairs
        self.tolerance = tolerance
        self.here, self.there, self.difference = Accumulator(), Accumulator(), Accumulator()
        own = (pairs.here.dtype, pairs.there.dtype)
        self.complex = "c" in (own[0].kind, own[1].kind)
        self.halves = needs_halves(pairs.here, pairs.there)
        self.unit = unit_of(pairs, types)
        self.odd = OddElements(top)
        self.by_abs, self.by_rel, self.by_ulp = Largest(top), Largest(top), Largest(top)
        self.top = top
        self.finite = self.same = self.flips = self.from_zero = self.outside = 0
        self.max_abs = self.max_rel = self.sum_abs = self.squares = 0.0
        self.dot = self.own_squares = self.other_squares = 0.0
        self.ulps = self.greatest = self.within_one = 0

    def add(self, first: int, here: Array, there: Array) -> None:
        """Adds a block."""
        if self._add_same(here, there):
            return
        self.here.add(here)
        self.there.add(there)
        one, other = wide(here), wide(there)
        found = exact_difference(here, there) if self.halves else wide_difference(one, other)
        self.difference.add(found)
        places: Positions | None = None
        if not (np.isfinite(one).all() and np.isfinite(other).all()):
            places = self.odd.take(first, one, other)
            here, there, one, other, found = (each[places] for each in (here, there, one, other, found))
        if len(found):
            self._measure(first, places, one, other, found)
            if self.unit is not None:
                self._count_ulps(first, places, here, there)

    def _add_same(self, here: Array, there: Array) -> bool:
        """Adds a block that is finite and the same on both sides, bit by bit; False for any other block."""
        if here.dtype != there.dtype or self.complex or self.unit not in (None, here.dtype):
            return False
        bits = f"u{here.itemsize}"
        if not np.array_equal(here.view(bits), there.view(bits)) or not np.isfinite(wide(here)).all():
            return False
        block, n = Accumulator(), len(here)
        block.add(here)
        self.here.merge(block)
        self.there.merge(block)
        self.difference.add(np.zeros(n))
        squares = sum_of_squares(wide(here))
        self.dot, self.own_squares, self.other_squares = (
            each + squares for each in (self.dot, self.own_squares, self.other_squares)
        )
        self.finite += n
        self.same += n
        if self.unit is not None:
            self.ulps += n
            self.within_one += n
        return True

    def _measure(self, first: int, places: Positions | None, one: Array, other: Array, found: Array) -> None:
        """Adds pairs of finite elements."""
        error, reference = np.abs(found), np.abs(other)
        n = len(error)
        self.finite += n
        self.dot += _dot(one, other)
        self.own_squares += _dot(one, one)
        self.other_squares += _dot(other, other)
        greatest = float(error.max())
        if not greatest:
            self.same += n
            return
        self.same += n - int(np.count_nonzero(error))
        if not self.complex:
            self.flips += int(np.count_nonzero(((one < 0) & (other > 0)) | ((one > 0) & (other < 0))))
        self.sum_abs += total(error)
        self.squares += sum_of_squares(error)
        self.max_abs = max(self.max_abs, greatest)
        self.by_abs.add(error, first, places)
        self._measure_relative(first, places, error, reference)
        if not self.tolerance.percent:
            self.outside += int(np.count_nonzero(outside(error, reference, self.tolerance, 0.0)))

    def _measure_relative(self, first: int, places: Positions | None, error: Doubles, reference: Doubles) -> None:
        relative = error / reference
        zero = reference == 0
        if zero.any():
            relative[zero] = 0
            self.max_rel = max(self.max_rel, float(relative.max()))
            new = zero & (error > 0)
            self.from_zero += int(np.count_nonzero(new))
            relative[new] = math.inf
        else:
            self.max_rel = max(self.max_rel, float(relative.max()))
        self.by_rel.add(relative, first, places)

    def _count_ulps(self, first: int, places: Positions | None, here: Array, there: Array) -> None:
        assert self.unit is not None  # noqa: S101 - asked for only then
        apart, valid = ulp.distances(here, there, self.unit)
        if valid is not None:
            at = np.flatnonzero(valid)
            apart, places = apart[at], at if places is None else places[at]
        if len(apart):
            self.ulps += len(apart)
            self.greatest = max(self.greatest, int(apart.max()))
            self.within_one += int(np.count_nonzero(apart <= 1))
            self.by_ulp.add(apart, first, places)

    def result(self, progress: ProgressFn) -> Differences:
        """All of it."""
        some = self.finite > 0
        odd, difference_ = self.odd.counts(), self.difference.stats()
        boundary = self.tolerance.boundary(difference_)
        outside_ = self.outside + odd.unequal
        if self.tolerance.percent:
            outside_ = count_outside(self.pairs, self.tolerance, boundary, _second(progress))
        return Differences(
            shape=self.pairs.shape,
            odd=odd,
            finite=self.finite,
            equal=self.same + odd.same_inf,
            sign_flips=self.flips,
            from_zero=self.from_zero,
            max_abs=self.max_abs if some else None,
            mean_abs=self.sum_abs / self.finite if some else None,
            max_rel=self.max_rel if some else None,
            norm=math.sqrt(self.squares) if some else None,
            relative_norm=_ratio(math.sqrt(self.squares), math.sqrt(self.other_squares)) if some else None,
            cosine=_cosine(self.dot, self.own_squares, self.other_squares),
            ulps=None if self.unit is None else Ulps(name_of(self.unit), self.ulps, self.greatest, self.within_one),
            no_ulps=""
            if self.unit is not None
            else "units in the last place need floating-point numbers on both sides",
            here=self.here.stats(),
            there=self.there.stats(),
            difference=difference_,
            by_abs=self._entries(self.by_abs),
            by_rel=self._entries(self.by_rel),
            by_ulp=self._entries(self.by_ulp),
            tolerance=self.tolerance,
            boundary=boundary,
            outside=outside_,
        )

    def _entries(self, largest: Largest) -> tuple[Entry, ...]:
        odd, numbers = self.odd.positions(), largest.positions()
        odd = odd[: max(self.top - len(numbers), (self.top + 1) // 2)]
        return tuple(entry_at(self.pairs, self.pairs.index(at), self.unit) for at in (*odd, *numbers)[: self.top])


def entry_at(pairs: Pairs, index: Index, unit: DType | None) -> Entry:
    """One element of both.

    Args:
        pairs: the arrays.
        index: where.
        unit: the type whose units in the last place count; None for none.
    """
    one, other = (np.asarray(array[index]).reshape(1) for array in (pairs.here, pairs.there))
    relative, apart = None, None
    with np.errstate(all="ignore"):
        found = difference(one, other)
        if np.isfinite(wide(one)).all() and np.isfinite(wide(other)).all():
            error, reference = float(np.abs(found)[0]), float(np.abs(wide(other))[0])
            relative = error / reference if reference else (math.inf if error else 0.0)
            if unit is not None:
                steps, valid = ulp.distances(one, other, unit)
                apart = int(steps[0]) if valid is None or valid[0] else None
    return Entry(index, one[0], other[0], found[0], relative, apart)


def unit_of(pairs: Pairs, types: tuple[DType | None, DType | None] = (None, None)) -> DType | None:
    """The type whose units in the last place count for two arrays; ``types`` as for ``compare``."""
    here, there = (type_ or array.dtype for type_, array in zip(types, (pairs.here, pairs.there), strict=True))
    return ulp.common_type(here, there)


def _dot(one: Array, other: Array) -> float:
    """The inner product; of complex vectors that of the real vectors that they are twice as long."""
    if one.dtype.kind == other.dtype.kind == "f":
        return sum_of_products(one, other)
    return float(np.vdot(other, one).real)


def _second(progress: ProgressFn) -> ProgressFn:
    """Progress of the second of two passes."""
    return lambda snapshot: progress(Progress(snapshot.total + snapshot.done, 2 * snapshot.total, snapshot.text))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if 0 < whole < math.inf else None


def _cosine(dot: float, own: float, other: float) -> float | None:
    both = math.sqrt(own) * math.sqrt(other)
    if not 0 < both < math.inf or not math.isfinite(dot):
        return None
    return max(-1.0, min(1.0, dot / both))
