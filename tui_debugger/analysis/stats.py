"""Statistics of one tensor in one pass, and its comparison with another one.

Elements are cast to float64 block by block: every published rule of the watch conditions starts with that cast, and
sums of squares of tiny gradients or variances at large offsets are wrong in anything less. A block with its
float64 copy stays in the L2 cache. Results of blocks, files, processes and hosts merge.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.record import Bounds, Change, Closeness
from tui_debugger.model import TensorStats

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

BLOCK: Final = 1 << 15
"""Elements per block: five float64 buffers of this length fit into the L2 cache."""
DOT: Final = 1 << 13
"""Elements per dot product: BLAS would start threads for longer ones, which wait for each other on a busy machine."""


class _Scratch(threading.local):
    """Buffers of one thread: fresh ones would cost more page faults than the arithmetic."""

    def __init__(self) -> None:
        self.values = np.empty(BLOCK)
        self.previous = np.empty(BLOCK)
        self.magnitude = np.empty(BLOCK)
        self.work = np.empty(BLOCK)
        self.tolerance = np.empty(BLOCK)


_scratch = _Scratch()


class Accumulator:
    """Statistics of all blocks added so far."""

    __slots__ = (
        "abs_mean",
        "count",
        "finite",
        "maximum",
        "mean",
        "minimum",
        "nan",
        "neg_inf",
        "negative",
        "pos_inf",
        "positive",
        "ranges",
        "spread",
        "squares",
    )

    def __init__(self, ranges: Iterable[Bounds] = ()) -> None:
        """Starts empty. ``ranges``: inclusive bounds whose elements are to be counted."""
        self.count = self.finite = self.nan = self.pos_inf = self.neg_inf = self.negative = self.positive = 0
        self.minimum = math.inf
        self.maximum = -math.inf
        self.mean = self.abs_mean = self.squares = self.spread = 0.0
        self.ranges: dict[Bounds, int] = dict.fromkeys(ranges, 0)

    def add(self, elements: Array) -> None:
        """Adds a 1-D array of a numeric type, of any length."""
        with np.errstate(all="ignore"):
            for start in range(0, len(elements), BLOCK):
                self._add_block(_doubles(elements[start : start + BLOCK], _scratch.values))

    def merge(self, other: Accumulator) -> None:
        """Adds what another accumulator has seen, by Chan's formula."""
        self.count += other.count
        self.nan += other.nan
        self.pos_inf += other.pos_inf
        self.neg_inf += other.neg_inf
        self.negative += other.negative
        self.positive += other.positive
        for bounds, inside in other.ranges.items():
            self.ranges[bounds] = self.ranges.get(bounds, 0) + inside
        self._merge_finite(
            other.finite,
            other.minimum,
            other.maximum,
            mean=other.mean,
            abs_mean=other.abs_mean,
            squares=other.squares,
            spread=other.spread,
        )

    def stats(self) -> TensorStats:
        """The result so far."""
        some = self.finite > 0
        return TensorStats(
            count=self.count,
            nan=self.nan,
            pos_inf=self.pos_inf,
            neg_inf=self.neg_inf,
            zero=self.finite - self.negative - self.positive,
            negative=self.negative,
            positive=self.positive,
            minimum=self.minimum if some else None,
            maximum=self.maximum if some else None,
            mean=self.mean if some else None,
            abs_mean=self.abs_mean if some else None,
            variance=self.spread / self.finite if some else None,
            sum_squares=self.squares,
        )

    def _add_block(self, x: Doubles) -> None:
        self.count += len(x)
        for low, high in self.ranges:
            self.ranges[low, high] += int(np.count_nonzero((x >= low) & (x <= high)))
        squares = _dot(x)
        if not math.isfinite(squares):  # something is not finite, or the squares of finite doubles overflow
            x = self._count_not_finite(x)
            if not len(x):
                return
            squares = _dot(x)
        n = len(x)
        low, high = float(x.min()), float(x.max())
        mean = _mean(x)
        work = _scratch.work[:n]
        if low >= 0:
            abs_mean = mean
            positive = n if low > 0 else int(np.count_nonzero(x))
            negative = 0
        else:
            abs_mean = _mean(np.abs(x, out=work))
            negative = n if high < 0 else int(np.count_nonzero(x < 0))
            positive = int(np.count_nonzero(x > 0)) if high > 0 else 0
        self.negative += negative
        self.positive += positive
        np.subtract(x, mean, out=work)
        spread = _dot(work)
        self._merge_finite(n, low, high, mean=mean, abs_mean=abs_mean, squares=squares, spread=spread)

    def _count_not_finite(self, x: Doubles) -> Doubles:
        """Counts NaN and Inf; returns the finite elements."""
        finite = np.isfinite(x)
        if finite.all():
            return x
        self.nan += int(np.count_nonzero(np.isnan(x)))
        self.pos_inf += int(np.count_nonzero(x == math.inf))
        self.neg_inf += int(np.count_nonzero(x == -math.inf))
        return x[finite]

    def _merge_finite(
        self, n: int, minimum: float, maximum: float, *, mean: float, abs_mean: float, squares: float, spread: float
    ) -> None:
        if not n:
            return
        total = self.finite + n
        old, new = self.finite / total, n / total
        if self.finite:
            delta = mean - self.mean
            self.spread += spread + delta * delta * old * n
            # Weighted, not incremental: the difference of two huge means may overflow.
            self.mean = self.mean * old + mean * new
            self.abs_mean = self.abs_mean * old + abs_mean * new
        else:
            self.spread, self.mean, self.abs_mean = spread, mean, abs_mean
        self.squares += squares
        self.minimum = min(self.minimum, minimum)
        self.maximum = max(self.maximum, maximum)
        self.finite = total


class Comparison:
    """|cur − prev| of all pairs of blocks added so far."""

    __slots__ = ("_close", "_count", "_difference", "_previous")

    def __init__(self, closenesses: Iterable[Closeness] = ()) -> None:
        """Starts empty. ``closenesses``: the tests that all elements have to pass."""
        self._count = 0
        self._difference = self._previous = 0.0
        self._close: dict[Closeness, bool] = dict.fromkeys(closenesses, True)

    def add(self, current: Array, previous: Array) -> None:
        """Adds two 1-D arrays of equal length, elements in the same order."""
        with np.errstate(all="ignore"):
            for start in range(0, len(current), BLOCK):
                stop = start + BLOCK
                self._add_block(current[start:stop], previous[start:stop])

    def result(self) -> tuple[Change, dict[Closeness, bool]]:
        """The means, and for each closeness whether all elements are close. Empty tensors are never close."""
        if not self._count:
            return Change(math.nan, math.nan), dict.fromkeys(self._close, False)
        return Change(self._difference / self._count, self._previous / self._count), dict(self._close)

    def _add_block(self, current: Array, previous: Array) -> None:
        n = len(current)
        now: Array
        before: Array
        if current.dtype.kind == "c" or previous.dtype.kind == "c":
            now, before = current.astype(np.complex128), previous.astype(np.complex128)
            difference, magnitude = np.abs(now - before), np.abs(before)
        else:
            now, before = _doubles(current, _scratch.values), _doubles(previous, _scratch.previous)
            difference = np.subtract(now, before, out=_scratch.work[:n])
            np.abs(difference, out=difference)
            magnitude = np.abs(before, out=_scratch.magnitude[:n])
        self._count += n
        self._difference += float(np.add.reduce(difference))
        self._previous += float(np.add.reduce(magnitude))
        for (rtol, atol, equal_nan), so_far in self._close.items():
            if so_far:
                tolerance = np.multiply(magnitude, rtol, out=_scratch.tolerance[:n])
                close = difference <= np.add(tolerance, atol, out=tolerance)
                all_close = bool(close.all()) if math.isfinite(self._previous) else False
                self._close[rtol, atol, equal_nan] = all_close or _equal_elsewhere(now, before, close, equal_nan)


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
    for (block,) in _blocks(array):
        accumulator.add(block)
    return accumulator.stats(), accumulator.ranges


def compare(
    current: Array, previous: Array, closenesses: Iterable[Closeness] = ()
) -> tuple[Change, dict[Closeness, bool]]:
    """Compares two numeric arrays of the same shape, elements cast to double (complex: to two) first.

    Close means |cur − prev| ≤ atol + rtol·|prev|, or equal; with equal_nan also NaN on both sides. Unlike in
    MindInsight, an Inf that became finite is not close, although Inf ≤ Inf.

    Raises:
        ValueError: the shapes differ.
    """
    if current.shape != previous.shape:
        msg = f"shapes differ: {current.shape} and {previous.shape}"
        raise ValueError(msg)
    comparison = Comparison(closenesses)
    for block, other in _blocks(current, previous):
        comparison.add(block, other)
    return comparison.result()


def double_blocks(array: Array) -> Iterator[Doubles]:
    """All elements as float64 (complex: magnitudes) in pieces of at most ``BLOCK``; each is gone with the next one."""
    for (block,) in _blocks(array):
        for start in range(0, len(block), BLOCK):
            yield _doubles(block[start : start + BLOCK], _scratch.values)


def _blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """1-D pieces of arrays of one shape, elements in the same order in each; views wherever that is possible."""
    if all(array.flags.c_contiguous for array in arrays):
        yield tuple(array.reshape(-1) for array in arrays)
    elif all(array.flags.f_contiguous for array in arrays):
        yield tuple(array.T.reshape(-1) for array in arrays)
    else:
        order = np.nditer(arrays, flags=["external_loop", "buffered", "zerosize_ok"], order="K", buffersize=BLOCK)
        with order:
            for piece in order:
                yield piece if isinstance(piece, tuple) else (piece,)


def _doubles(block: Array, buffer: Doubles) -> Doubles:
    """The block as contiguous float64 in a buffer (or itself, when it is that already)."""
    if block.dtype.kind == "c":
        block = np.abs(block.astype(np.complex128))
    if block.dtype == np.float64 and block.flags.c_contiguous:
        return block
    out = buffer[: len(block)]
    np.copyto(out, block, casting="unsafe")
    return out


def _dot(x: Doubles) -> float:
    """Sum of squares."""
    if len(x) <= DOT:
        return float(np.dot(x, x))
    parts = (x[start : start + DOT] for start in range(0, len(x), DOT))
    return sum(float(np.dot(part, part)) for part in parts)


def _mean(x: Doubles) -> float:
    total = float(np.add.reduce(x))
    return total / len(x) if math.isfinite(total) else float(np.add.reduce(x / len(x)))


def _equal_elsewhere(now: Array, before: Array, close: npt.NDArray[np.bool_], equal_nan: bool) -> bool:
    """Whether all elements are close, or equal: an Inf that stayed, with equal_nan also a NaN, is not close.

    The tolerance of an infinite previous value is infinite, so closeness counts only where that is finite.
    """
    same = (close & np.isfinite(before)) | (now == before)
    if equal_nan:
        same |= np.isnan(now) & np.isnan(before)
    return bool(same.all())
