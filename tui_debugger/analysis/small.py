"""Statistics of many small tensors at once: their elements side by side in one array, one numpy call for all of them.

A call of numpy costs about 1 µs whatever it is given, and the statistics of one tensor take fifteen of them. Most
tensors of real dumps have a hundred elements or fewer: taken one by one, the calls would be all there is to pay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.record import Bounds, Closeness

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SMALL: Final = 1 << 12
"""Most elements of a small tensor. Beyond it the calls that one tensor takes by itself weigh little."""


@dataclass(frozen=True, slots=True)
class SmallTensors:
    """Tensors of one real element type, none of them empty, as one array.

    Attributes:
        values: all elements, cast to float64.
        counts: elements of each tensor.
        starts: where each begins.
    """

    values: Doubles
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
        lowest = highest = x
        finite = np.isfinite(x)
        clean = bool(finite.all())
        if not clean:
            amount = _count(finite, starts)
            columns["pos_inf"], columns["neg_inf"] = _count(x == np.inf, starts), _count(x == -np.inf, starts)
            columns["nan"] = self.counts - amount - columns["pos_inf"] - columns["neg_inf"]
            lowest, highest = np.where(finite, x, np.inf), np.where(finite, x, -np.inf)
            x = np.where(finite, x, 0.0)
        columns["negative"], columns["positive"] = _count(x < 0, starts), _count(x > 0, starts)
        columns["zero"] = amount - columns["negative"] - columns["positive"]
        some = amount > 0
        columns["minimum"] = np.where(some, np.minimum.reduceat(lowest, starts), np.nan)
        columns["maximum"] = np.where(some, np.maximum.reduceat(highest, starts), np.nan)
        columns["mean"], columns["abs_mean"] = self._means(x, amount)
        columns["sum_squares"] = np.add.reduceat(x * x, starts)
        away = x - np.repeat(columns["mean"], self.counts)
        if not clean:
            away[~finite] = 0.0
        columns["variance"] = np.add.reduceat(np.multiply(away, away, out=away), starts) / amount
        return columns

    def _means(self, x: Doubles, amount: Int64) -> tuple[Doubles, Doubles]:
        """Means of the elements and of their magnitudes, 0 / 0 = NaN where nothing is finite."""
        means = []
        for part in (x, np.abs(x)):
            mean = np.add.reduceat(part, self.starts) / amount
            if np.isinf(mean).any() or np.isnan(mean[amount > 0]).any():  # the sum of huge doubles overflows
                mean = np.add.reduceat(part / np.repeat(amount, self.counts), self.starts)
            means.append(mean)
        return means[0], means[1]

    def inside(self, bounds: Bounds) -> Int64:
        """Elements within a range, both ends included; NaN is outside."""
        return _count((self.values >= bounds[0]) & (self.values <= bounds[1]), self.starts)

    def compared(
        self, previous: SmallTensors, closenesses: Iterable[Closeness]
    ) -> tuple[Doubles, Doubles, dict[Closeness, Mask]]:
        """Mean |cur − prev|, mean |prev|, and for each closeness whether all elements are close; see ``stats``."""
        now, before = self.values, previous.values
        difference = np.abs(now - before)
        magnitude = np.abs(before)
        means = [np.add.reduceat(part, self.starts) / self.counts for part in (difference, magnitude)]
        answers: dict[Closeness, Mask] = {}
        for rtol, atol, equal_nan in closenesses:
            # The tolerance of an infinite previous value is infinite, so closeness counts only where that is finite.
            close = (difference <= magnitude * rtol + atol) & np.isfinite(before)
            close |= now == before
            if equal_nan:
                close |= np.isnan(now) & np.isnan(before)
            answers[rtol, atol, equal_nan] = np.logical_and.reduceat(close, self.starts)
        return means[0], means[1], answers


def _count(mask: Mask, starts: Int64) -> Int64:
    counts: Int64 = np.add.reduceat(mask, starts, dtype=np.int64)
    return counts
