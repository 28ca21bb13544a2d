"""Everything about how one tensor differs from another one, in one pass over both, block by block and in float64.

Errors are over the elements that are finite on both sides; what is NaN or infinite is counted apart, because one NaN
would make every sum NaN. "There" is the reference: relative errors are parts of its elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tui_debugger.analysis.difference import ulp
from tui_debugger.analysis.difference.largest import Largest
from tui_debugger.analysis.difference.odd import OddCounts
from tui_debugger.analysis.difference.pairs import Index, Pairs, difference, needs_halves, wide
from tui_debugger.analysis.difference.tally import Count, Question, Tally
from tui_debugger.analysis.difference.tolerance import EXACT, Tolerance, count_outside
from tui_debugger.analysis.dtypes import DType, name_of
from tui_debugger.analysis.sharing import in_order
from tui_debugger.model import Progress, ProgressFn, TensorStats, no_progress

TOP: Final = 100
"""So many of the largest differences are kept, by each measure."""


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
    unit = unit_of(pairs, types)
    question = Question(tolerance, top, unit, needs_halves(pairs.here, pairs.there))
    tally = Tally(question)
    first = _part_of_two(progress, 0) if tolerance.percent else progress
    for part in in_order(pairs.stock, lambda: Count(replace(question, floors=tally.floors)), "comparing", first):
        tally.merge(part)
    return _result(pairs, tally, progress)


def _result(pairs: Pairs, tally: Tally, progress: ProgressFn) -> Differences:
    """All of it."""
    some, tolerance, unit = tally.finite > 0, tally.question.tolerance, tally.question.unit
    odd, difference_ = tally.odd.counts(), tally.difference.stats()
    boundary = tolerance.boundary(difference_)
    outside = tally.outside + odd.unequal
    by_abs, by_rel, by_ulp = _entries(pairs, tally, tally.by_abs, tally.by_rel, tally.by_ulp)
    if tolerance.percent:
        outside = count_outside(pairs, tolerance, boundary, _part_of_two(progress, 1))
    return Differences(
        shape=pairs.shape,
        odd=odd,
        finite=tally.finite,
        equal=tally.same + odd.same_inf,
        sign_flips=tally.flips,
        from_zero=tally.from_zero,
        max_abs=tally.max_abs if some else None,
        mean_abs=tally.sum_abs / tally.finite if some else None,
        max_rel=tally.max_rel if some else None,
        norm=math.sqrt(tally.squares) if some else None,
        relative_norm=_ratio(math.sqrt(tally.squares), math.sqrt(tally.other_squares)) if some else None,
        cosine=_cosine(tally.dot, tally.own_squares, tally.other_squares),
        ulps=None if unit is None else Ulps(name_of(unit), tally.ulps, tally.max_ulp, tally.within_one),
        no_ulps="" if unit is not None else "units in the last place need floating-point numbers on both sides",
        here=tally.here.stats(),
        there=tally.there.stats(),
        difference=difference_,
        by_abs=by_abs,
        by_rel=by_rel,
        by_ulp=by_ulp,
        tolerance=tolerance,
        boundary=boundary,
        outside=outside,
    )


def _entries(pairs: Pairs, tally: Tally, *lists: Largest) -> list[tuple[Entry, ...]]:
    """What each list says, elements that are in several looked at once."""
    top, odd = tally.question.top, tally.odd.positions()
    places = []
    for numbers in (largest.positions() for largest in lists):
        first = odd[: max(top - len(numbers), (top + 1) // 2)]
        places.append([*first, *numbers][:top])
    every = sorted({at for each in places for at in each})
    known = dict(zip(every, entries_at(pairs, [pairs.index(at) for at in every], tally.question.unit), strict=True))
    return [tuple(known[at] for at in each) for each in places]


def entry_at(pairs: Pairs, index: Index, unit: DType | None) -> Entry:
    """One element of both.

    Args:
        pairs: the arrays.
        index: where.
        unit: the type whose units in the last place count; None for none.
    """
    return entries_at(pairs, [index], unit)[0]


def entries_at(pairs: Pairs, indexes: Sequence[Index], unit: DType | None) -> list[Entry]:
    """Several elements of both; see ``entry_at``."""
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
            steps, valid = ulp.distances(one[good], other[good], unit)
            for at, step, known in zip(
                good.tolist(), steps.tolist(), [True] * len(good) if valid is None else valid.tolist(), strict=True
            ):
                apart[at] = step if known else None
    return [Entry(*each) for each in zip(indexes, one, other, found, relative, apart, strict=True)]


def unit_of(pairs: Pairs, types: tuple[DType | None, DType | None] = (None, None)) -> DType | None:
    """The type whose units in the last place count for two arrays; ``types`` as for ``compare``."""
    here, there = (type_ or array.dtype for type_, array in zip(types, (pairs.here, pairs.there), strict=True))
    return ulp.common_type(here, there)


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
