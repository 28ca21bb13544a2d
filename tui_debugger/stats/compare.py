"""Compares two tensors in one pass over both, block by block and in float64.

Errors cover pairs of finite elements; NaN and Inf are counted separately. ``there`` is the reference: relative errors
are fractions of its elements. The kernel (``kernel.pairs``) measures the types that it knows, numpy all others. Counts,
extremes and lists are equal either way; sums may differ by the order of additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64, Mask
from tui_debugger.model import Progress, ProgressFn, TensorStats, no_progress, words
from tui_debugger.stats import compare_pairs
from tui_debugger.stats.blocks import Accumulator
from tui_debugger.stats.compare_pairs import (
    EXACT,
    Boundary,
    Index,
    LargestScores,
    Pairs,
    Positions,
    count_outside,
    difference,
    distances,
    needs_halves,
    outside,
    units_of,
    wide,
)
from tui_debugger.stats.dtypes import DType, name_of
from tui_debugger.stats.fields import OTHERS
from tui_debugger.stats.kernel import is_known
from tui_debugger.stats.kernel.pairs import PairSums
from tui_debugger.stats.spans import Checkpoint, Span, span_results


@dataclass(frozen=True, slots=True)
class OddCounts:
    """The number of elements of each non-finite kind; every such pair is of one kind.

    ``both_nan`` and ``same_inf`` count as equal. ``nan_here`` and ``nan_there`` have NaN on that side only,
    ``inf_here`` and ``inf_there`` face a finite element. ``opposite_inf``: infinities of different sign.
    """

    both_nan: int = 0
    nan_here: int = 0
    nan_there: int = 0
    same_inf: int = 0
    opposite_inf: int = 0
    inf_here: int = 0
    inf_there: int = 0

    @property
    def nan_one_side(self) -> int:
        return self.nan_here + self.nan_there

    @property
    def unequal(self) -> int:
        """The number of pairs that do not count as equal."""
        return self.nan_one_side + self.opposite_inf + self.inf_here + self.inf_there


class OddElements:
    """Counts non-finite pairs, and keeps the first ``most`` places where only one side is NaN, or infinite."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts = [0] * 7
        self._nan: list[int] = []
        self._inf: list[int] = []

    def take(self, here: Array, there: Array, places: Positions) -> None:
        """Counts non-finite pairs of a block (as float64 or complex128) with their ascending places in the tensor."""
        nan_here, nan_there = np.isnan(here), np.isnan(there)
        inf_here, inf_there = np.isinf(here) & ~nan_here, np.isinf(there) & ~nan_there
        both_inf = inf_here & inf_there
        same = both_inf & (here == there)
        one_nan = nan_here ^ nan_there
        one_inf = (inf_here ^ inf_there) & ~(nan_here | nan_there)
        kinds = (
            nan_here & nan_there,
            nan_here & ~nan_there,
            nan_there & ~nan_here,
            same,
            both_inf & ~same,
            one_inf & inf_here,
            one_inf & inf_there,
        )
        for kind, mask in enumerate(kinds):
            self._counts[kind] += int(np.count_nonzero(mask))
        self._keep(self._nan, places, one_nan)
        self._keep(self._inf, places, one_inf | kinds[4])

    def merge(self, other: OddElements) -> None:
        """Adds the results for later elements."""
        self.add(other._counts, other._nan, other._inf)

    def add(self, counts: Sequence[int], nan: Sequence[int], inf: Sequence[int]) -> None:
        """Adds counts by kind, and later places of pairs with NaN, or with Inf, on one side."""
        self._counts = [mine + its for mine, its in zip(self._counts, counts, strict=True)]
        self._nan += nan[: self._most - len(self._nan)]
        self._inf += inf[: self._most - len(self._inf)]

    def _keep(self, kept: list[int], places: Positions, mask: Array) -> None:
        if len(kept) < self._most:
            kept += places[mask][: self._most - len(kept)].tolist()

    def counts(self) -> OddCounts:
        return OddCounts(*self._counts)

    def positions(self) -> list[int]:
        """Returns the places where the sides differ: NaN on one side first, each kind in the order of the elements."""
        return [*self._nan, *self._inf]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Tolerance, number of largest differences to keep, and the type for ULPs (None: none)."""

    tolerance: Boundary
    top: int
    unit: DType | None


class PartialDifferences:
    """Sums, counts and lists of all blocks so far."""

    def __init__(self, options: CompareOptions) -> None:
        self.options = options
        self.here, self.there, self.difference = Accumulator(), Accumulator(), Accumulator()
        self.odd = OddElements(options.top)
        self.by_abs, self.by_rel, self.by_ulp = (LargestScores(options.top) for _ in range(3))
        self.finite = self.same = self.flips = self.from_zero = self.outside = 0
        self.max_abs = self.sum_abs = self.squares = self.max_rel = 0.0
        self.dot = self.own_squares = self.other_squares = 0.0
        self.ulps = self.within_one = self.max_ulp = 0

    def merge(self, other: PartialDifferences) -> None:
        """Adds the results for the next elements."""
        for name in ("here", "there", "difference", "odd", "by_abs", "by_rel", "by_ulp"):
            getattr(self, name).merge(getattr(other, name))
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("max_abs", "max_rel", "max_ulp"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    def take(self, sums: PairSums) -> None:
        """Takes the results of the kernel; this object must be new."""
        for name in ("here", "there", "difference"):
            getattr(self, name).add_moments(sums.moments(name))
        for name in ("by_abs", "by_rel", "by_ulp"):
            getattr(self, name).add(*sums.largest(name))
        self.odd.add(sums.found["odd"].tolist(), sums.first_places("nan"), sums.first_places("inf"))
        for name, value in sums.numbers().items():
            setattr(self, name, value)

    def add(self, first: int, here: Array, there: Array) -> None:
        """Adds a block by numpy; ``first``: number of its first element."""
        with np.errstate(all="ignore"):
            one, other, found = wide(here), wide(there), difference(here, there)
            self.here.add(here)
            self.there.add(there)
            self.difference.add(found)
            both: Mask = np.isfinite(one) & np.isfinite(other)
            odd = np.flatnonzero(~both)
            self.odd.take(one[odd], other[odd], first + odd)
            places = first + np.flatnonzero(both)
            if len(places):
                self._add_finite(one[both], other[both], np.abs(found[both]), places)
                if self.options.unit is not None:
                    self._add_ulps(*distances(here[both], there[both], self.options.unit), places)

    def _add_finite(self, one: Array, other: Array, error: Float64, places: Positions) -> None:
        reference, tolerance = np.abs(other), self.options.tolerance
        self.finite += len(error)
        self.same += int(np.count_nonzero(error == 0))
        if "c" not in (one.dtype.kind, other.dtype.kind):  # 0 has no sign, nor have complex numbers
            self.flips += int(np.count_nonzero((one < 0) & (other > 0) | (one > 0) & (other < 0)))
        self.max_abs = max(self.max_abs, float(error.max()))
        self.sum_abs += float(error.sum())
        self.squares += _dot(error, error)
        self.dot += _dot(one, other)
        self.own_squares += _dot(one, one)
        self.other_squares += _dot(other, other)
        self.by_abs.add(error, places)
        if not tolerance.percent:
            self.outside += int(np.count_nonzero(outside(error, reference, tolerance, 0.0)))
        apart, zero = np.flatnonzero(error > 0), reference == 0
        relative = np.divide(error[apart], reference[apart])
        self.max_rel = max(self.max_rel, float(relative[~zero[apart]].max(initial=0.0)))
        self.from_zero += int(np.count_nonzero(zero[apart]))
        self.by_rel.add(relative, places[apart])

    def _add_ulps(self, apart: Array, valid: Mask | None, places: Positions) -> None:
        if valid is not None:
            apart, places = apart[valid], places[valid]
        self.ulps += len(apart)
        self.max_ulp = max(self.max_ulp, int(apart.max(initial=0)))
        self.within_one += int(np.count_nonzero(apart <= 1))
        self.by_ulp.add(apart, places)


def _dot(one: Array, other: Array) -> float:
    """Returns the inner product; for complex vectors the inner product of their real and imaginary parts."""
    if "c" in (one.dtype.kind, other.dtype.kind):
        one, other = (np.ascontiguousarray(each, np.complex128).view(np.float64) for each in (one, other))
    return float(np.einsum("i,i->", one, other))


def compared_span(options: CompareOptions, pairs: Pairs, span: Span, checkpoint: Checkpoint) -> PartialDifferences:
    """Compares one span of two arrays."""
    found = PartialDifferences(options)
    sums = _kernel_sums(options, pairs)
    for first, here, there in pairs.blocks(*span):
        checkpoint(first - span[0])
        if sums is None:
            found.add(first, here, there)
        else:
            sums.add(first, here, there, units_of(here, there, options.unit))
    if sums is not None:
        found.take(sums)
    return found


def _kernel_sums(options: CompareOptions, pairs: Pairs) -> PairSums | None:
    """Returns the kernel's accumulator; None where numpy must do the work: unknown types, or more statistics."""
    if OTHERS or not is_known(pairs.here.dtype, pairs.there.dtype):
        return None
    tolerance, halves = options.tolerance, needs_halves(pairs.here, pairs.there)
    bounds = options.top, tolerance.rtol, tolerance.atol
    return PairSums(*bounds, counts_outside=not tolerance.percent, halves=halves)


_SUMS: Final = words("""
    finite same flips from_zero outside sum_abs squares dot own_squares other_squares ulps within_one
    """)

TOP: Final = 100
"""The number of largest differences that are kept for each measure."""


@dataclass(frozen=True, slots=True)
class DifferingElement:
    """An element that differs.

    ``difference`` is here − there (NaN or Inf when either is). ``relative`` is |difference| / |there|: infinite where
    ``there`` is 0, None where either is not finite. ``ulp`` is None where ULPs have no meaning.
    """

    index: Index
    here: Any
    there: Any
    difference: Any
    relative: float | None
    ulp: int | None


@dataclass(frozen=True, slots=True)
class Ulps:
    """Distances in units in the last place of ``type``, over ``measured`` pairs of finite elements in its range."""

    type: str
    measured: int
    greatest: int
    within_one: int


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of two tensors. A measure is None without finite pairs, or if its divisor is 0 or overflows.

    Attributes:
        odd: numbers of non-finite pairs, by kind.
        finite: pairs of finite elements, over which errors are measured.
        equal: pairs of equal numbers, including equal infinities, without NaN.
        sign_flips: pairs of finite numbers of opposite sign; 0 and complex numbers have no sign.
        from_zero: finite pairs that differ from a reference of 0: their relative error is infinite.
        max_rel: greatest relative error over references other than 0.
        norm: Euclidean norm of the difference; ``relative_norm`` divides it by the reference's norm.
        ulps: None where units in the last place have no meaning: ``no_ulps`` says why.
        here, there, difference: statistics, of complex elements by magnitude.
            by_abs, by_rel, by_ulp: the largest differences. One-sided NaN, then Inf, come first, in at most half of the
                list if numbers fill the rest.
        outside: elements beyond ``tolerance`` and ``boundary``. NaN equals NaN, an infinity equals the same infinity.
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
    by_abs: tuple[DifferingElement, ...]
    by_rel: tuple[DifferingElement, ...]
    by_ulp: tuple[DifferingElement, ...]
    tolerance: Boundary
    boundary: float
    outside: int

    @property
    def count(self) -> int:
        return self.here.count

    @property
    def different(self) -> int:
        """Pairs that are not equal; NaN equals NaN."""
        return self.count - self.equal - self.odd.both_nan

    @property
    def nothing_to_compare(self) -> bool:
        """Every pair is NaN on both sides: no number says whether they are alike."""
        return 0 < self.count == self.odd.both_nan


def compare(
    pairs: Pairs,
    *,
    tolerance: Boundary = EXACT,
    top: int = TOP,
    types: tuple[DType | None, DType | None] = (None, None),
    progress: ProgressFn = no_progress,
) -> Differences:
    """Compares two arrays; needs a few blocks of memory at any size.

    A ``tolerance`` in percent takes a second pass. ``types`` are real element types that differ from the arrays'
    (bfloat16 kept in float32). ``progress`` may raise to stop.
    """
    options = CompareOptions(tolerance, top, unit_of(pairs, types))
    found = PartialDifferences(options)
    first = _part_of_two(progress, 0) if tolerance.percent else progress
    work = partial(compared_span, options)
    for part in span_results(pairs.shared, work, "comparing", first, cost=12, prepare=Pairs):
        found.merge(part)
    return _result(pairs, found, progress)


def _result(pairs: Pairs, found: PartialDifferences, progress: ProgressFn) -> Differences:
    some, tolerance, unit = found.finite > 0, found.options.tolerance, found.options.unit
    odd, difference_ = found.odd.counts(), found.difference.stats()
    boundary = tolerance.boundary(difference_)
    outside = found.outside + odd.unequal
    by_abs, by_rel, by_ulp = _entries(pairs, found, found.by_abs, found.by_rel, found.by_ulp)
    if tolerance.percent:
        outside = count_outside(pairs, tolerance, boundary, _part_of_two(progress, 1))
    return Differences(
        shape=pairs.shape,
        odd=odd,
        finite=found.finite,
        equal=found.same + odd.same_inf,
        sign_flips=found.flips,
        from_zero=found.from_zero,
        max_abs=found.max_abs if some else None,
        mean_abs=found.sum_abs / found.finite if some else None,
        max_rel=found.max_rel if some else None,
        norm=math.sqrt(found.squares) if some else None,
        relative_norm=_ratio(math.sqrt(found.squares), math.sqrt(found.other_squares)) if some else None,
        cosine=_cosine(found.dot, found.own_squares, found.other_squares),
        ulps=None if unit is None else Ulps(name_of(unit), found.ulps, found.max_ulp, found.within_one),
        no_ulps="" if unit is not None else "units in the last place need floating-point numbers on both sides",
        here=found.here.stats(),
        there=found.there.stats(),
        difference=difference_,
        by_abs=by_abs,
        by_rel=by_rel,
        by_ulp=by_ulp,
        tolerance=tolerance,
        boundary=boundary,
        outside=outside,
    )


def _entries(pairs: Pairs, found: PartialDifferences, *lists: LargestScores) -> list[tuple[DifferingElement, ...]]:
    """Returns the elements of each list, reading an element of several lists once."""
    top, odd = found.options.top, found.odd.positions()
    places = []
    for numbers in (largest.positions() for largest in lists):
        first = odd[: max(top - len(numbers), (top + 1) // 2)]
        places.append([*first, *numbers][:top])
    every = sorted({at for each in places for at in each})
    known = dict(zip(every, entries_at(pairs, [pairs.index(at) for at in every], found.options.unit), strict=True))
    return [tuple(known[at] for at in each) for each in places]


def entry_at(pairs: Pairs, index: Index, unit: DType | None) -> DifferingElement:
    """Returns one element of both; ``unit``: the type for units in the last place, None for none."""
    return entries_at(pairs, [index], unit)[0]


def entries_at(pairs: Pairs, indexes: Sequence[Index], unit: DType | None) -> list[DifferingElement]:
    if not indexes:
        return []
    columns = tuple(np.array(column) for column in zip(*indexes, strict=True))
    one, other = (np.asarray(array[columns]).reshape(-1) for array in (pairs.here, pairs.there))
    relative: list[float | None] = [None] * len(one)
    apart: list[int | None] = [None] * len(one)
    with np.errstate(all="ignore"):
        found = difference(one, other)
        good = np.flatnonzero(np.isfinite(wide(one)) & np.isfinite(wide(other)))
        error, reference = np.abs(found[good]), np.abs(wide(other[good]))
        quotient = np.where(reference > 0, error / reference, np.where(error > 0, math.inf, 0.0))
        for at, each in zip(good.tolist(), quotient.tolist(), strict=True):
            relative[at] = each
        if unit is not None and len(good):
            steps, valid = compare_pairs.distances(one[good], other[good], unit)
            for at, step, known in zip(
                good.tolist(), steps.tolist(), [True] * len(good) if valid is None else valid.tolist(), strict=True
            ):
                apart[at] = step if known else None
    return [DifferingElement(*each) for each in zip(indexes, one, other, found, relative, apart, strict=True)]


def unit_of(pairs: Pairs, types: tuple[DType | None, DType | None] = (None, None)) -> DType | None:
    """Returns the type for units in the last place of two arrays; ``types`` as for ``compare``."""
    here, there = (type_ or array.dtype for type_, array in zip(types, (pairs.here, pairs.there), strict=True))
    return compare_pairs.common_type(here, there)


def _part_of_two(progress: ProgressFn, number: int) -> ProgressFn:
    """Returns the progress of the first (0) or the second (1) of two passes."""
    return lambda now: progress(Progress(number * now.total + now.done, 2 * now.total, now.text))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if 0 < whole < math.inf else None


def _cosine(dot: float, own: float, other: float) -> float | None:
    both = math.sqrt(own) * math.sqrt(other)
    if not 0 < both < math.inf or not math.isfinite(dot):
        return None
    return max(-1.0, min(1.0, dot / both))


MOST: Final = 1 << 20
"""Most elements that ``rearranged`` looks at: sorting them takes a tenth of a second."""
_DIMENSIONS: Final = 4


def rearranged(here: Array, there: Array, found: Differences) -> str:
    """Says how one array is a rearrangement of the other; empty when it is none, nothing differs, or they are big."""
    same_type = here.dtype == there.dtype and here.size == there.size
    if not found.different or not same_type or here.size > MOST or not _alike(found):
        return ""
    here, there = np.asarray(here), np.asarray(there)
    for axes in permutations(range(there.ndim)) if there.ndim <= _DIMENSIONS else ():
        turned = there.transpose(axes)
        if axes != tuple(range(there.ndim)) and turned.shape == here.shape and _equal(here, turned):
            return f"equal when the other one is transposed: {axes}"
    for axis in range(here.ndim) if here.shape == there.shape else ():
        if _equal(here, np.flip(there, axis)):
            return f"equal when the other one is reversed along dimension {axis}"
    if here.dtype.kind != "b" and _equal(np.sort(here, axis=None), np.sort(there, axis=None)):
        return "the same values in another order"
    return ""


def _alike(found: Differences) -> bool:
    """Tells whether counts and extremes allow a rearrangement."""
    one, other = found.here, found.there
    counts = words("nan pos_inf neg_inf zero negative positive minimum maximum")
    return all(getattr(one, name) == getattr(other, name) for name in counts)


def _equal(one: Array, other: Array) -> bool:
    return bool(np.array_equal(one, other) or np.array_equal(_bits(one), _bits(other)))


def _bits(array: Array) -> Array:
    """Returns the elements as unsigned integers, so that NaN equals itself."""
    return (
        np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if array.dtype.itemsize in (1, 2, 4, 8) else array
    )
