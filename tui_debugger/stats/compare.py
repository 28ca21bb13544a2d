"""Compares one tensor with another one, in one pass over both, block by block and in float64.

Errors are over the elements that are finite on both sides; what is NaN or infinite is counted apart, because one NaN
would make every sum NaN. "There" is the reference: relative errors are parts of its elements.

A pass over a block costs as much as most arithmetic, so nothing is computed twice (the statistics of the difference say
what its greatest error is, and whether any element differs), and the lists of the largest differences are looked at
only where a block can still get into one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64, Mask
from tui_debugger.model import Progress, ProgressFn, TensorStats, no_progress
from tui_debugger.stats import compare_pairs
from tui_debugger.stats.blocks import SINGLE, Accumulator
from tui_debugger.stats.compare_pairs import (
    EXACT,
    PIECE,
    Block,
    Index,
    Largest,
    Pairs,
    Positions,
    Tolerance,
    add_to,
    buffers,
    count_outside,
    difference,
    dot_of,
    exact_beside,
    exact_difference,
    magnitudes_of,
    needs_halves,
    opposite_signs,
    outside,
    squares_of,
    subtracted,
    wide,
    wide_difference,
    widened,
)
from tui_debugger.stats.dtypes import DType, name_of
from tui_debugger.stats.spans import Checkpoint, Span, span_results


@dataclass(frozen=True, slots=True)
class OddCounts:
    """The number of elements of each kind; every element is of one kind.

    Attributes:
        both_nan: NaN on both sides, which counts as equal.
        nan_here, nan_there: NaN on one side only, whatever the other one is.
        same_inf: the same infinity on both sides, which counts as equal.
        opposite_inf: infinities that differ.
        inf_here, inf_there: infinite on one side only, the other one is finite.
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
        """NaN on one side only."""
        return self.nan_here + self.nan_there

    @property
    def unequal(self) -> int:
        """Those that do not count as equal."""
        return self.nan_one_side + self.opposite_inf + self.inf_here + self.inf_there


class OddElements:
    """Counts them, and keeps the first places where one side only is NaN, or infinite."""

    def __init__(self, most: int) -> None:
        """Nothing yet. ``most``: how many places are kept of each kind."""
        self._most = most
        self._counts = [0] * 7
        self._nan: list[int] = []
        self._inf: list[int] = []

    def take(self, here: Array, there: Array, places: Positions) -> None:
        """Counts pairs of which one or both are NaN or infinite.

        Args:
            here: such elements of a block, as float64 or complex128.
            there: their counterparts.
            places: where each pair stands in the whole, ascending.
        """
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
        """Adds what others found in elements that come after all of these."""
        self._counts = [mine + its for mine, its in zip(self._counts, other._counts, strict=True)]
        self._nan += other._nan[: self._most - len(self._nan)]
        self._inf += other._inf[: self._most - len(self._inf)]

    def _keep(self, kept: list[int], places: Positions, mask: Array) -> None:
        if len(kept) < self._most:
            kept += places[mask][: self._most - len(kept)].tolist()

    def counts(self) -> OddCounts:
        """Returns what was counted."""
        return OddCounts(*self._counts)

    def positions(self) -> list[int]:
        """Places where the sides differ: NaN on one side first, each kind in the order of the elements."""
        return [*self._nan, *self._inf]


_SLACK: Final = 1 - 2.0**-50
"""A quotient that is rounded to a bound or above it exceeds the product of its divisor with a bit less than that."""
_FAR: Final = 1 << 8
"""Distances from which on it is worth a try to tell most pairs that are closer by their magnitudes."""
_GLANCE: Final = 64
"""Elements that are compared before all: most blocks that differ do so at once."""
_ZEROS: Final = np.zeros(PIECE, np.float32)


@dataclass(frozen=True, slots=True)
class LowestKept:
    """The least that other stretches have found already: less than that need not be looked at.

    Attributes:
        by_abs, by_rel, by_ulp: see ``Largest``.
        max_rel: greatest relative error so far.
        max_ulp: greatest distance in units in the last place so far.
    """

    by_abs: float = 0.0
    by_rel: float = 0.0
    by_ulp: float = 0.0
    max_rel: float = 0.0
    max_ulp: int = 0


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The questions that are asked about two tensors.

    Attributes:
        tolerance: what counts as equal; one by percent is counted in a pass of its own.
        top: how many of the largest differences are kept.
        unit: the type whose units in the last place count; None for none.
        halves: see ``compare_pairs.needs_halves``.
        lowest: what is known already; makes no difference to the result.
    """

    tolerance: Tolerance
    top: int
    unit: DType | None
    halves: bool
    lowest: LowestKept = LowestKept()


class PartialDifferences:
    """Sums, counts and lists of all blocks so far. ``merge`` adds those of the next stretch."""

    def __init__(self, options: CompareOptions) -> None:
        self.options = options
        self.here, self.there, self.difference = Accumulator(), Accumulator(), Accumulator()
        top, lowest = options.top, options.lowest
        self.odd = OddElements(top)
        self.by_abs, self.by_rel = Largest(top, lowest.by_abs), Largest(top, lowest.by_rel)
        self.by_ulp = Largest(top, lowest.by_ulp)
        self.finite = self.same = self.flips = self.from_zero = self.outside = 0
        self.max_abs = self.sum_abs = self.squares = 0.0
        self.max_rel = lowest.max_rel
        self.dot = self.own_squares = self.other_squares = 0.0
        self.ulps = self.within_one = 0
        self.max_ulp = lowest.max_ulp

    @property
    def lowest(self) -> LowestKept:
        """The bound below which others need not look any more."""
        return LowestKept(self.by_abs.floor, self.by_rel.floor, self.by_ulp.floor, self.max_rel, self.max_ulp)

    def merge(self, other: PartialDifferences) -> None:
        """Adds what was found in the elements that come next."""
        for name in ("here", "there", "difference", "odd", "by_abs", "by_rel", "by_ulp"):
            getattr(self, name).merge(getattr(other, name))
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("max_abs", "max_rel", "max_ulp"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    def add(self, first: int, here: Array, there: Array) -> None:
        """Adds a block of at most ``PIECE`` elements; ``first``: number of the first one."""
        with np.errstate(all="ignore"):
            if "c" in (here.dtype.kind, there.dtype.kind):
                self._add(Block(first, None, here, there, wide(here), wide(there)))
            else:
                x, y = exact_beside(here, 0, buffers.one), exact_beside(there, 1, buffers.other)
                if not self._add_same(here, there, x):
                    self._add(Block(first, None, here, there, x, y))

    def _add_same(self, here: Array, there: Array, x: Float32 | Float64) -> bool:
        """Adds a block that is finite and the same on both sides, bit by bit; False for any other block."""
        if here.dtype != there.dtype or self.options.unit not in (None, here.dtype):
            return False
        bits = f"u{here.itemsize}"
        one, other, n = here.view(bits), there.view(bits), len(here)
        if not (np.array_equal(one[:_GLANCE], other[:_GLANCE]) and np.array_equal(one, other)):
            return False
        block = Accumulator()
        block.add(x)
        if block.finite < n:
            return False
        self.here.merge(block)
        self.there.merge(block)
        self.difference.add(_ZEROS[:n])
        self._add_products(block.squares, block.squares, block.squares)
        self.finite += n
        self.same += n
        if self.options.unit is not None:
            self.ulps += n
            self.within_one += n
        return True

    def _add(self, block: Block) -> None:
        """Adds a block that may hold anything."""
        n, own, its = len(block.x), Accumulator(), Accumulator()
        one, other = widened(block.x, buffers.one), widened(block.y, buffers.other)
        add_to(own, block.x, one, buffers.difference)
        add_to(its, block.y, other, buffers.difference)
        self.here.merge(own)
        self.there.merge(its)
        if own.finite == its.finite == n:
            self._add_products(dot_of(one, other), own.squares, its.squares)
        else:
            block = self._take_odd(block, one, other)
            one, other = widened(block.x, buffers.one), widened(block.y, buffers.other)
            self._add_products(dot_of(one, other), squares_of(one), squares_of(other))
        if len(one):
            halves = self.options.halves
            found = exact_difference(block.here, block.there) if halves else subtracted(one, other)
            if not block.complex:
                block.opposite, flips = opposite_signs(block.x, block.y, zeros=own.zero + its.zero > 0)
                self.flips += flips
            self._measure(block, other, found)

    def _take_odd(self, block: Block, one: Array, other: Array) -> Block:
        """Sets aside what is not finite; returns the rest."""
        both: Mask = np.isfinite(block.x)
        both &= np.isfinite(block.y)
        odd = np.flatnonzero(~both)
        self.odd.take(one[odd], other[odd], block.first + odd)
        found = wide_difference(one[odd], other[odd])
        add_to(self.difference, found, found, buffers.difference)
        return block.only(both)

    def _add_products(self, dot: float, own: float, other: float) -> None:
        self.dot += dot
        self.own_squares += own
        self.other_squares += other

    def _measure(self, block: Block, other: Array, found: Array) -> None:
        """Adds pairs of finite elements, by the second ones of them and the differences."""
        n, change = len(found), Accumulator()
        add_to(change, found, found, buffers.one)
        self.difference.merge(change)
        self.finite += n
        self.same += change.zero
        if change.zero < n:
            error = magnitudes_of(found, change, buffers.one)
            reference = np.abs(other, out=buffers.other[:n])
            self._measure_errors(block, change, error, reference)
        if self.options.unit is not None:
            self._count_ulps(block)

    def _measure_errors(self, block: Block, change: Accumulator, error: Float64, reference: Float64) -> None:
        """Adds errors, at least one of which is not 0; ``reference`` is overwritten."""
        n = len(error)
        if change.finite < n:  # the difference of two finite numbers may be beyond the range of float64
            greatest, self.sum_abs, self.squares = float(error.max()), math.inf, math.inf
        else:
            greatest = change.greatest
            self.sum_abs += change.abs_sum
            self.squares += change.squares
        self.max_abs = max(self.max_abs, greatest)
        if greatest >= self.by_abs.floor:
            self.by_abs.add(error, block.first, block.places)
        tolerance = self.options.tolerance
        if tolerance.exact:
            self.outside += n - change.zero
        elif not tolerance.percent:
            self.outside += int(np.count_nonzero(outside(error, reference, tolerance, 0.0)))
        self._measure_relative(block, error, reference)

    def _measure_relative(self, block: Block, error: Float64, reference: Float64) -> None:
        """Divides only where a quotient may be great enough to matter."""
        n = len(error)
        bound, mask = (buffers.one if error.base is buffers.difference else buffers.difference)[:n], buffers.mask[:n]
        np.multiply(reference, min(self.max_rel, self.by_rel.floor) * _SLACK, out=bound)
        # Products that are rounded up to a subnormal number must not hide a quotient: float32 is far above those.
        (np.greater if block.y.dtype == SINGLE else np.greater_equal)(error, bound, out=mask)
        if not mask.any():
            return
        at = np.flatnonzero(mask)
        error, reference = error[at], reference[at]
        relative = error / reference
        zero = reference == 0
        new = zero & (error > 0)
        relative[zero] = 0
        self.from_zero += int(np.count_nonzero(new))
        self.max_rel = max(self.max_rel, float(relative.max()))
        relative[new] = math.inf
        self.by_rel.add(relative, block.first, block.at(at))

    def _count_ulps(self, block: Block) -> None:
        unit, here, there = self.options.unit, block.here, block.there
        assert unit is not None  # noqa: S101 - asked for only then
        if compare_pairs.alike(here, there, unit):
            if not block.opposite:
                self._add_ulps(block, compare_pairs.same_sign_distances(here, there, buffers.one), block.places)
                return
            if self._far_ulps(block):
                return
        apart, valid = compare_pairs.distances(here, there, unit)
        places = block.places
        if valid is not None:
            at = np.flatnonzero(valid)
            apart, places = apart[at], block.at(at)
        if len(apart):
            self._add_ulps(block, apart, places)

    def _far_ulps(self, block: Block) -> bool:
        """Looks only at pairs that may be far enough apart to matter; False where those are too many for that."""
        least, n = int(min(self.max_ulp, self.by_ulp.floor) * _SLACK), len(block.here)
        if least < _FAR:
            return False
        near, far = compare_pairs.ulps_at_least(
            block.here, block.there, least, (buffers.one, buffers.other), buffers.mask[:n]
        )
        if np.count_nonzero(far) > n // 8:
            return False
        at = np.flatnonzero(far)
        if len(at):
            apart = compare_pairs.distances_of_bits(block.here[at], block.there[at])
            near -= int(np.count_nonzero(apart <= apart.dtype.type(1)))  # which are counted with the others
            self._add_ulps(block, apart, block.at(at))
        self.ulps += n - len(at)
        self.within_one += near
        return True

    def _add_ulps(self, block: Block, apart: Array, places: Positions | None) -> None:
        greatest = int(apart.max())
        self.ulps += len(apart)
        self.max_ulp = max(self.max_ulp, greatest)
        self.within_one += len(apart) if greatest <= 1 else int(np.count_nonzero(apart <= apart.dtype.type(1)))
        if greatest >= self.by_ulp.floor:
            self.by_ulp.add(apart, block.first, places)


@dataclass(frozen=True, slots=True)
class CompareTask:
    """The work on one span."""

    options: CompareOptions
    cost: int = 12

    def prepare(self, arrays: tuple[Array, ...]) -> Pairs:
        """Returns the arrays side by side."""
        here, there = arrays
        return Pairs(here, there)

    def do(self, prepared: Pairs, span: Span, checkpoint: Checkpoint) -> PartialDifferences:
        """See ``spans.SpanTask``."""
        found = PartialDifferences(self.options)
        for first, here, there in prepared.blocks(*span):
            checkpoint(first - span[0])
            found.add(first, here, there)
        return found


_SUMS: Final = (
    *("finite", "same", "flips", "from_zero", "outside", "sum_abs", "squares"),
    *("dot", "own_squares", "other_squares", "ulps", "within_one"),
)

TOP: Final = 100
"""The number of the largest differences that are kept, by each measure."""


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
    """The differences of two tensors.

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

    @property
    def nothing_to_compare(self) -> bool:
        """Every pair is NaN on both sides: no number says whether they are alike."""
        return 0 < self.count == self.odd.both_nan


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
    unit = unit_of(pairs, types)
    options = CompareOptions(tolerance, top, unit, needs_halves(pairs.here, pairs.there))
    found = PartialDifferences(options)
    first = _part_of_two(progress, 0) if tolerance.percent else progress
    for part in span_results(
        pairs.shared, lambda: CompareTask(replace(options, lowest=found.lowest)), "comparing", first
    ):
        found.merge(part)
    return _result(pairs, found, progress)


def _result(pairs: Pairs, found: PartialDifferences, progress: ProgressFn) -> Differences:
    """Returns all of it."""
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


def _entries(pairs: Pairs, found: PartialDifferences, *lists: Largest) -> list[tuple[Entry, ...]]:
    """Returns what each list says, elements that are in several looked at once."""
    top, odd = found.options.top, found.odd.positions()
    places = []
    for numbers in (largest.positions() for largest in lists):
        first = odd[: max(top - len(numbers), (top + 1) // 2)]
        places.append([*first, *numbers][:top])
    every = sorted({at for each in places for at in each})
    known = dict(zip(every, entries_at(pairs, [pairs.index(at) for at in every], found.options.unit), strict=True))
    return [tuple(known[at] for at in each) for each in places]


def entry_at(pairs: Pairs, index: Index, unit: DType | None) -> Entry:
    """Returns one element of both.

    Args:
        pairs: the arrays.
        index: where.
        unit: the type whose units in the last place count; None for none.
    """
    return entries_at(pairs, [index], unit)[0]


def entries_at(pairs: Pairs, indexes: Sequence[Index], unit: DType | None) -> list[Entry]:
    """Returns several elements of both; see ``entry_at``."""
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
    return [Entry(*each) for each in zip(indexes, one, other, found, relative, apart, strict=True)]


def unit_of(pairs: Pairs, types: tuple[DType | None, DType | None] = (None, None)) -> DType | None:
    """Returns the type whose units in the last place count for two arrays; ``types`` as for ``compare``."""
    here, there = (type_ or array.dtype for type_, array in zip(types, (pairs.here, pairs.there), strict=True))
    return compare_pairs.common_type(here, there)


def _part_of_two(progress: ProgressFn, number: int) -> ProgressFn:
    """Progress of the first (0) or the second (1) of two passes."""
    return lambda now: progress(Progress(number * now.total + now.done, 2 * now.total, now.text))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if 0 < whole < math.inf else None


def _cosine(dot: float, own: float, other: float) -> float | None:
    both = math.sqrt(own) * math.sqrt(other)
    if not 0 < both < math.inf or not math.isfinite(dot):
        return None
    return max(-1.0, min(1.0, dot / both))


MOST: Final = 1 << 20
"""Elements up to which it is looked for: sorting them takes a tenth of a second."""
_DIMENSIONS: Final = 4


def rearranged(here: Array, there: Array, found: Differences) -> str:
    """Says how one follows from the other; empty when it does not, or nothing differs, or they are too big.

    Args:
        here: one array in its own shape.
        there: the other one in its own.
        found: how they differ.
    """
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
    """Returns whether counts and extremes allow it at all."""
    one, other = found.here, found.there
    counts = ("nan", "pos_inf", "neg_inf", "zero", "negative", "positive", "minimum", "maximum")
    return all(getattr(one, name) == getattr(other, name) for name in counts)


def _equal(one: Array, other: Array) -> bool:
    return bool(np.array_equal(one, other) or np.array_equal(_bits(one), _bits(other)))


def _bits(array: Array) -> Array:
    """Returns the elements as unsigned integers, so that NaN equals itself."""
    return (
        np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if array.dtype.itemsize in (1, 2, 4, 8) else array
    )
