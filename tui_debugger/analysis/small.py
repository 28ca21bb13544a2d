"""Statistics of many small tensors at once: their elements side by side in one array, one numpy call for all of them.

A call of numpy costs about 1 µs whatever it is given, and the statistics of one tensor take fifteen of them. Most
tensors of real dumps have a hundred elements or fewer: taken one by one, the calls would be all there is to pay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.record import Bounds, Closeness
from tui_debugger.arrays import Array, Float64, Int64, Mask

SMALL: Final = 1 << 11
"""Most elements of a small tensor. Beyond it the calls that one tensor takes by itself weigh little."""

CANCELLED: Final = 1e-7
"""Part of the sum of squares that has to be left by what the mean takes away: 9 digits of the variance are right."""
ROUNDING: Final = 1e-9
"""Relative error of a mean, by far not reached."""


@dataclass(frozen=True, slots=True)
class SmallTensors:
    """Tensors of one real element type, none of them empty, as one array.

    Attributes:
        values: all elements, cast to float64.
        counts: elements of each tensor.
        starts: where each begins.
    """

    values: Float64
    counts: Int64
    starts: Int64

    @classmethod
    def of(cls, values: Array, counts: Int64) -> SmallTensors:
        """Casts the elements of tensors that lie one after the other."""
        return cls(values.astype(np.float64), counts, np.cumsum(counts) - counts)

    def columns(self) -> dict[str, Array]:
        """The fields of ``TensorStats``, one column each; NaN stands for None."""
        x, starts, amount = self.values, self.starts, self.counts
        columns: dict[str, Array] = {"count": amount} | dict.fromkeys(("nan", "pos_inf", "neg_inf"), 0 * amount)
        lowest, highest = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
        if not (np.isfinite(lowest) & np.isfinite(highest)).all():
            finite = np.isfinite(x)
            amount = _count(finite, starts)
            columns["pos_inf"], columns["neg_inf"] = _count(x == np.inf, starts), _count(x == -np.inf, starts)
            columns["nan"] = self.counts - amount - columns["pos_inf"] - columns["neg_inf"]
            lowest = np.minimum.reduceat(np.where(finite, x, np.inf), starts)
            highest = np.maximum.reduceat(np.where(finite, x, -np.inf), starts)
            x = np.where(finite, x, 0.0)
        columns["negative"], columns["positive"] = _count(x < 0, starts), _count(x > 0, starts)
        columns["zero"] = amount - columns["negative"] - columns["positive"]
        some = amount > 0
        columns["minimum"], columns["maximum"] = np.where(some, lowest, np.nan), np.where(some, highest, np.nan)
        columns["mean"], columns["abs_mean"] = self._mean(x, amount), self._mean(np.abs(x), amount)
        columns["sum_squares"] = np.add.reduceat(x * x, starts)
        columns["variance"] = self._variance(columns, amount)
        return columns

    def _mean(self, x: Float64, amount: Int64) -> Float64:
        """Means, 0 / 0 = NaN where nothing is finite."""
        mean: Float64 = np.add.reduceat(x, self.starts) / amount
        overflown = (amount > 0) & ~np.isfinite(mean)
        if overflown.any():  # the sum of huge doubles does; every tensor is measured by itself, whatever the others are
            some = SmallTensors(x, self.counts, self.starts).some(overflown)
            shares = some.values / np.repeat(amount[overflown], some.counts)
            mean[overflown] = np.add.reduceat(shares, some.starts)
        return mean

    def _variance(self, columns: dict[str, Array], amount: Int64) -> Float64:
        """From the sum of squares, unless most of that comes from the mean: then once more from every element."""
        mean, squares = columns["mean"], columns["sum_squares"]
        spread = squares - amount * mean * mean
        variance: Float64 = np.where(columns["minimum"] == columns["maximum"], 0.0, spread / amount)
        lost = (columns["minimum"] < columns["maximum"]) & ~(spread > CANCELLED * squares)
        if lost.any():
            some = self.some(lost)
            away = some.values - np.repeat(mean[lost], some.counts)
            away[~np.isfinite(away)] = 0.0
            variance[lost] = np.add.reduceat(away * away, some.starts) / amount[lost]
        return variance

    def some(self, rows: Mask) -> SmallTensors:
        """Some of the tensors."""
        if rows.all():
            return self
        counts = self.counts[rows]
        return SmallTensors(self.values[np.repeat(rows, self.counts)], counts, np.cumsum(counts) - counts)

    def inside(self, bounds: Bounds, columns: dict[str, Array]) -> Int64:
        """Elements within a range, both ends included; NaN is outside. ``columns``: what they are otherwise."""
        start, end = bounds
        finite = columns["count"] - columns["nan"] - columns["pos_inf"] - columns["neg_inf"] == columns["count"]
        all_in = finite & (columns["minimum"] >= start) & (columns["maximum"] <= end)
        if all_in.all():
            return self.counts
        return _count((self.values >= start) & (self.values <= end), self.starts)

    def compared(
        self, previous: SmallTensors, closenesses: Iterable[Closeness]
    ) -> tuple[Float64, Float64, dict[Closeness, Mask]]:
        """Mean |cur − prev|, mean |prev|, and for each closeness whether all elements are close; see ``stats``."""
        now, before = self.values, previous.values
        difference = np.abs(now - before)
        magnitude = np.abs(before)
        change = np.add.reduceat(difference, self.starts) / self.counts
        reference = np.add.reduceat(magnitude, self.starts) / self.counts
        answers = {}
        for rtol, atol, equal_nan in closenesses:
            # What holds for every element holds for their means, but for what rounding does to those.
            may = ~(change > (reference * rtol + atol) * (1 + ROUNDING))
            close = may & (change == 0) & (rtol >= 0) & (atol >= 0)
            left = may & ~close
            if left.any():
                close[left] = _all_close(self.some(left), previous.some(left), (rtol, atol, equal_nan))
            answers[rtol, atol, equal_nan] = close
        return change, reference, answers


def _all_close(now: SmallTensors, before: SmallTensors, closeness: Closeness) -> Mask:
    rtol, atol, equal_nan = closeness
    x, y = now.values, before.values
    # The tolerance of an infinite previous value is infinite, so closeness counts only where that is finite.
    close = (np.abs(x - y) <= np.abs(y) * rtol + atol) & np.isfinite(y)
    close |= x == y
    if equal_nan:
        close |= np.isnan(x) & np.isnan(y)
    answer: Mask = np.logical_and.reduceat(close, now.starts)
    return answer


def _count(mask: Mask, starts: Int64) -> Int64:
    counts: Int64 = np.add.reduceat(mask, starts, dtype=np.int64)
    return counts
