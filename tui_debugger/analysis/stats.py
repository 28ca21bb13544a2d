"""Statistics of one tensor in one pass.

Counts and extremes are taken from the elements as they are, sums in float64: sums of squares of tiny gradients and
variances at large offsets are wrong in anything less. What is made of a block stays in the L2 cache. Results of
blocks, files, processes and hosts merge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import BLOCK, DOUBLE, SINGLE, doubles, exact, pieces, scratch
from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.record import Bounds
from tui_debugger.analysis.sums import mean_and_spread, mean_of, sum_of_squares, total
from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.model import TensorStats

Values = tuple[int, int, int, int, int, int, int, float, float, float, float, float, float]
_ZERO: Final = {dtype: np.zeros((), dtype) for dtype in (SINGLE, DOUBLE)}
"""Comparing with an array costs half of what comparing with a Python number does."""


class Accumulator:
    """Statistics of all blocks added so far."""

    __slots__ = (
        "_abs_mean",
        "_maximum",
        "_mean",
        "_minimum",
        "_spread",
        "_squares",
        "count",
        "finite",
        "nan",
        "neg_inf",
        "negative",
        "pos_inf",
        "positive",
        "ranges",
    )

    def __init__(self, ranges: Iterable[Bounds] = ()) -> None:
        """Starts empty. ``ranges``: inclusive bounds whose elements are to be counted."""
        self.count = self.finite = self.nan = self.pos_inf = self.neg_inf = self.negative = self.positive = 0
        self._minimum = math.inf
        self._maximum = -math.inf
        self._mean = self._abs_mean = self._squares = self._spread = 0.0
        self.ranges: dict[Bounds, int] = dict.fromkeys(ranges, 0)

    def add(self, elements: Array) -> None:
        """Adds a 1-D array of a numeric type, of any length."""
        n = len(elements)
        if elements.dtype == SINGLE:  # nothing about these can overflow, and a tiny array feels what errstate costs
            for start in range(0, n, BLOCK):
                self._add_block(exact(elements[start : start + BLOCK] if n > BLOCK else elements))
        else:
            with np.errstate(all="ignore"):
                for start in range(0, n, BLOCK):
                    self._add_block(exact(elements[start : start + BLOCK]))

    def add_wide(self, x: Float32 | Float64, wide: Float64, room: Float64) -> None:
        """Adds a block of at most ``BLOCK`` elements whose float64 copy is at hand.

        Args:
            x: contiguous; the block as it is.
            wide: the same as float64, not overwritten.
            room: takes the magnitudes when the elements are finite and of either sign.
        """
        with np.errstate(all="ignore"):
            self._add_block(x, wide, room)

    def merge(self, other: Accumulator) -> None:
        """Adds what another accumulator has seen."""
        self.count += other.count
        self.nan += other.nan
        self.pos_inf += other.pos_inf
        self.neg_inf += other.neg_inf
        self.negative += other.negative
        self.positive += other.positive
        for bounds, inside in other.ranges.items():
            self.ranges[bounds] = self.ranges.get(bounds, 0) + inside
        if other.finite:
            self._extend(other._minimum, other._maximum)
            self._merge(other.finite, other._mean, other._abs_mean, other._squares, other._spread)

    @property
    def zero(self) -> int:
        """Elements that are 0."""
        return self.finite - self.negative - self.positive

    @property
    def mixed(self) -> bool:
        """Whether there are finite elements on either side of 0."""
        return self._minimum < 0 < self._maximum

    @property
    def greatest(self) -> float:
        """The greatest finite magnitude; 0 without one."""
        return max(-self._minimum, self._maximum, 0.0)

    @property
    def abs_sum(self) -> float:
        """Sum of the finite magnitudes."""
        return self._abs_mean * self.finite

    @property
    def squares(self) -> float:
        """Sum of the squares of the finite elements."""
        return self._squares

    def values(self) -> Values:
        """The result so far in the order of ``records.COUNTS`` and ``records.REALS``; NaN stands for None."""
        finite = self.finite
        counts = (self.count, self.nan, self.pos_inf, self.neg_inf)
        signs = (finite - self.negative - self.positive, self.negative, self.positive)
        if not finite:
            return (*counts, *signs, math.nan, math.nan, math.nan, math.nan, math.nan, 0.0)
        reals = (self._minimum, self._maximum, self._mean, self._abs_mean, self._spread / finite, self._squares)
        return (*counts, *signs, *reals)

    def stats(self) -> TensorStats:
        """The result so far."""
        values = self.values()
        return TensorStats(*values) if self.finite else TensorStats(*values[:7], None, None, None, None, None, 0.0)

    def _add_block(self, x: Float32 | Float64, wide: Float64 | None = None, room: Float64 | None = None) -> None:
        self.count += len(x)
        low, high = _extremes(x)
        if self.ranges:
            self._count_inside(x, low, high)
        if not (math.isfinite(low) and math.isfinite(high)):
            x, wide = self._count_not_finite(x), None
            if not len(x):
                return
            low, high = _extremes(x)
        self._count_signs(x, low, high)
        self._extend(low, high)
        if low == high:
            self._merge(len(x), low, abs(low), len(x) * low * low, 0.0)
            return
        wide = doubles(x) if wide is None else wide
        sum_x, squares = total(wide), sum_of_squares(wide)
        mean, spread = mean_and_spread(wide, sum_x, squares)
        abs_mean = abs(mean)
        if low < 0 < high:
            room = scratch.doubles[0] if room is None else room  # in place: less to keep in the cache
            magnitudes = np.abs(wide, out=room[: len(x)])
            abs_mean = mean_of(magnitudes, total(magnitudes))
        self._merge(len(x), mean, abs_mean, squares, spread)

    def _count_signs(self, x: Float32 | Float64, low: float, high: float) -> None:
        """Counts the elements on either side of zero; where all are on one side, no element is looked at."""
        n = len(x)
        if low > 0:
            self.positive += n
        elif high < 0:
            self.negative += n
        elif low < high:
            zero, answers = _ZERO[x.dtype], scratch.mask[:n]
            not_zero = n - int(np.count_nonzero(np.equal(x, zero, out=answers)))
            negative = 0
            if low < 0:
                negative = int(np.count_nonzero(np.less(x, zero, out=answers))) if high > 0 else not_zero
            self.negative += negative
            self.positive += not_zero - negative

    def _count_inside(self, x: Float32 | Float64, low: float, high: float) -> None:
        """Counts the elements in each range. The extremes are NaN when an element is."""
        for start, end in self.ranges:
            if start <= low and high <= end:
                self.ranges[start, end] += len(x)
            elif not (high < start or end < low):
                inside = scratch.mask[: len(x)]
                first, last = (start, end) if x.dtype == DOUBLE else single_bounds(start, end)
                if start <= low:
                    np.less_equal(x, last, out=inside)
                else:
                    np.greater_equal(x, first, out=inside)
                    if not high <= end:
                        inside &= np.less_equal(x, last, out=scratch.other_mask[: len(x)])
                self.ranges[start, end] += int(np.count_nonzero(inside))

    def _count_not_finite(self, x: Float32 | Float64) -> Float32 | Float64:
        """Counts NaN and Inf; returns the finite elements."""
        with np.errstate(all="ignore"):
            finite = np.isfinite(x)
            bad = x[~finite]
            positive, negative = int(np.count_nonzero(bad > 0)), int(np.count_nonzero(bad < 0))
            self.pos_inf += positive
            self.neg_inf += negative
            self.nan += len(bad) - positive - negative
            return x[finite]

    def _extend(self, low: float, high: float) -> None:
        self._minimum = min(self._minimum, low)
        self._maximum = max(self._maximum, high)

    def _merge(self, n: int, mean: float, abs_mean: float, squares: float, spread: float) -> None:
        """Adds the sums of n finite elements, by Chan's formula."""
        finite = self.finite + n
        if self.finite:
            old, new = self.finite / finite, n / finite
            delta = mean - self._mean
            self._spread += spread + delta * delta * old * n
            # The difference of two huge means may overflow.
            self._mean = self._mean + delta * new if math.isfinite(delta) else self._mean * old + mean * new
            self._abs_mean += (abs_mean - self._abs_mean) * new
        else:
            self._spread, self._mean, self._abs_mean = spread, mean, abs_mean
        self._squares += squares
        self.finite = finite


def measure_stats(array: Array, ranges: Iterable[Bounds] = ()) -> tuple[TensorStats, dict[Bounds, int]]:
    """Statistics of an array of any shape, order and byte order, and how many elements lie in each range.

    Complex elements count by their magnitude.

    Args:
        array: numeric array.
        ranges: inclusive bounds; NaN is outside of every range, Inf inside when a bound is infinite.

    Raises:
        TypeError: the element type is not numeric.
    """
    if not is_numeric(array.dtype):
        msg = f"no statistics for element type {array.dtype}"
        raise TypeError(msg)
    accumulator = Accumulator(ranges)
    for (piece,) in pieces(array):
        accumulator.add(piece)
    return accumulator.stats(), accumulator.ranges


def peak(stats: TensorStats | None) -> float | None:
    """The greatest magnitude among the finite elements; None when there are none."""
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    return max(abs(stats.minimum), abs(stats.maximum))


@lru_cache(maxsize=256)
def single_bounds(start: float, end: float) -> tuple[np.float32, np.float32]:
    """The least float32 that is not below a bound and the greatest one not above the other.

    A float32 lies between them exactly when, cast to double, it lies between the bounds.
    """
    with np.errstate(all="ignore"):
        first, last = np.float32(start), np.float32(end)
        if float(first) < start:
            first = np.nextafter(first, np.float32(math.inf))
        if float(last) > end:
            last = np.nextafter(last, np.float32(-math.inf))
    return first, last


def _extremes(x: Float32 | Float64) -> tuple[float, float]:
    """Least and greatest element; NaN when any element is."""
    return x.item(x.argmin()), x.item(x.argmax())
