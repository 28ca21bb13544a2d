"""Statistics of one tensor in one pass: its blocks, exact sums over them, and what they add up to.

A block is a piece of an array that stays in the L2 cache with what is made of it. Its elements are read as float32 or
float64 without any rounding: every type of at most 24 significant bits fits into float32, which takes half the memory
and time of float64; complex elements become their magnitudes.

Counts and extremes are taken from the elements as they are, sums in float64: sums of squares of tiny gradients and
variances at large offsets are wrong in anything less. In whatever order n numbers are added in float64, the sum is off
by at most n·2⁻⁵³ of the sum of their magnitudes: for a block 7e-12 of it. In float32, 15 additions may be off by a
millionth, so nothing is added there. Results of blocks, files, processes and hosts merge.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.model import TensorStats
from tui_debugger.stats.dtypes import DType, is_numeric
from tui_debugger.stats.fields import OTHERS, Made, Sums, sums_of
from tui_debugger.stats.records import Bounds

DOT: Final = 1 << 13
"""Elements per dot product: BLAS would start threads for longer ones, which wait for each other on a busy machine."""
ENOUGH: Final = 2.0**-10
"""Σ(x − mean)² as a part of Σx² down to which Σx² − (Σx)²/n will do. Rounding makes the first term wrong by at most
n·2⁻⁵³ of itself, and the second, by Cauchy's inequality, by twice that part of the first: a block loses at most
2.2e-11 of Σx², which is 2.3e-8 of the difference."""
_ONES: Final = np.ones(DOT)


def total(x: Float64) -> float:
    """Returns the sum of the elements; may overflow."""
    n = len(x)
    # Either is faster than np.add.reduce: the first for few elements, the second because it adds in another order.
    return float(x.dot(_ONES[:n])) if n <= DOT else float(np.einsum("i->", x))


def sum_of_squares(x: Float64) -> float:
    """Returns the sum of the squares of the elements; may overflow."""
    return sum_of_products(x, x)


def sum_of_products(x: Float64, y: Float64) -> float:
    """Returns the sum of the products of elements that stand at the same place; may overflow."""
    n = len(x)
    if n <= DOT:
        return float(x.dot(y))
    whole = n - n % DOT
    parts = np.matmul(x[:whole].reshape(-1, 1, DOT), y[:whole].reshape(-1, DOT, 1)).reshape(-1)
    return float(parts.dot(_ONES[: len(parts)])) + float(x[whole:].dot(y[whole:]))


def mean_of(x: Float64, sum_x: float) -> float:
    """Returns the mean of finite elements whose sum may have overflowed."""
    return sum_x / len(x) if math.isfinite(sum_x) else total(x / len(x))


def mean_and_deviations(x: Float64, sum_x: float, squares: float) -> tuple[float, float]:
    """Returns the mean and Σ(x − mean)² of finite elements, from their sum and sum of squares where that will do."""
    n = len(x)
    mean = mean_of(x, sum_x)
    deviations = squares - sum_x * mean
    if deviations > ENOUGH * squares and deviations < math.inf:
        return mean, deviations
    away = np.subtract(x, mean, out=scratch.double_work[:n])
    squares, rest = sum_of_squares(away), total(away) / n  # the rest is what rounding took from the mean
    return (mean + rest, max(squares - rest * rest * n, 0.0)) if math.isfinite(squares) else (mean, squares)


BLOCK: Final = 1 << 16
"""Elements per block: with float64 copies of two tensors it fits into an L2 cache of 2 MiB, and the 10 µs that numpy
calls take whatever they are given weigh little."""
SINGLE: Final = np.dtype(np.float32)
DOUBLE: Final = np.dtype(np.float64)


class Scratch(threading.local):
    """Buffers of one thread: fresh ones would cost more page faults than the arithmetic."""

    def __init__(self) -> None:
        self.singles = (np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32))
        self.doubles = (np.empty(BLOCK), np.empty(BLOCK))
        self.double_work = np.empty(BLOCK)
        self.mask = np.empty(BLOCK, np.bool_)
        self.other_mask = np.empty(BLOCK, np.bool_)


scratch: Final = Scratch()


def exact(block: Array, side: int = 0) -> Float32 | Float64:
    """Returns a 1-D block as contiguous float32 where that holds all values of its type, else as float64.

    Args:
        block: at most ``BLOCK`` elements of a numeric type.
        side: which of two buffers takes the values; float32 and float64 blocks are returned as they are.
    """
    dtype = block.dtype
    if dtype in (SINGLE, DOUBLE) and block.flags.c_contiguous:
        return block
    if not _fits_single(dtype):
        return doubles(block, side)
    out = scratch.singles[side][: len(block)]
    table = _table(dtype)
    if table is None:
        np.copyto(out, block, casting="unsafe")
    else:
        np.take(table, block.view(_unsigned(dtype)), out=out, mode="clip")
    return out


def doubles(block: Array, side: int = 0) -> Float64:
    """Returns a 1-D block as contiguous float64; one that is that already comes back as it is. Complex: magnitudes."""
    dtype = block.dtype
    if dtype != SINGLE:
        if dtype == DOUBLE and block.flags.c_contiguous:
            return block
        if dtype.kind == "c":
            block = np.abs(block.astype(np.complex128))
        elif dtype.itemsize <= 2:
            block = exact(block, side)
    out = scratch.doubles[side][: len(block)]
    np.copyto(out, block, casting="unsafe")
    return out


def double_blocks(array: Array) -> Iterator[Float64]:
    """Yields all elements as float64 (complex: magnitudes), at most ``BLOCK`` at once; each is gone with the next."""
    for (piece,) in pieces(array):
        for start in range(0, len(piece), BLOCK):
            yield doubles(piece[start : start + BLOCK])


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yields 1-D pieces of arrays of one shape, elements in the same order in each; views where that is possible."""
    if all(array.flags.c_contiguous for array in arrays):
        yield tuple(array.reshape(-1) for array in arrays)
    elif all(array.flags.f_contiguous for array in arrays):
        yield tuple(array.T.reshape(-1) for array in arrays)
    elif not all(isinstance(array, np.ndarray) for array in arrays):  # nditer would convert all of a FileArray
        lines = [array.reshape(-1) if array.flags.c_contiguous else array.flat for array in arrays]
        for start in range(0, arrays[0].size, BLOCK):
            yield tuple(np.asarray(line[start : start + BLOCK]) for line in lines)
    else:
        order = np.nditer(arrays, flags=["external_loop", "buffered", "zerosize_ok"], order="K", buffersize=BLOCK)
        with order:
            for piece in order:
                yield piece if isinstance(piece, tuple) else (piece,)


@lru_cache(maxsize=64)
def _fits_single(dtype: DType) -> bool:
    """Returns whether float32 holds every value of a type: at most 16 bits, whatever they mean, or float32 itself."""
    return dtype.itemsize <= 2 or dtype.newbyteorder("=") == SINGLE


@lru_cache(maxsize=64)
def _table(dtype: DType) -> Float32 | None:
    """Returns the value of every bit pattern of a type whose conversion is slow; None when numpy's is fast."""
    if dtype.kind in "biu" or dtype.itemsize > 2 or not dtype.isnative or dtype.name == "bfloat16":
        return None
    patterns = np.arange(1 << 8 * dtype.itemsize).astype(_unsigned(dtype))
    with np.errstate(all="ignore"):
        return patterns.view(dtype).astype(np.float32)


def _unsigned(dtype: DType) -> DType:
    return np.dtype(np.uint8 if dtype.itemsize == 1 else np.uint16)


_OF_ALL: Final = tuple((name, made) for name, made in OTHERS if made.every)
_IDENTITIES: Final = {name: made.identity for name, made in OTHERS}
_OF_FINITE: Final = tuple((name, made) for name, made in OTHERS if not made.every)
_ZERO: Final = {dtype: np.zeros((), dtype) for dtype in (SINGLE, DOUBLE)}
"""Comparing with an array costs half of what comparing with a Python number does."""


class Accumulator:
    """Statistics of all blocks added so far."""

    __slots__ = (
        "_abs_mean",
        "_deviations",
        "_maximum",
        "_mean",
        "_minimum",
        "_others",
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
        self._mean = self._abs_mean = self._squares = self._deviations = 0.0
        self.ranges: dict[Bounds, int] = dict.fromkeys(ranges, 0)
        self._others: dict[str, Sums] = _IDENTITIES.copy()

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

    def add_wide(self, x: Float32 | Float64, wide: Float64, buffer: Float64) -> None:
        """Adds a block of at most ``BLOCK`` elements whose float64 copy is at hand.

        Args:
            x: contiguous; the block as it is.
            wide: the same as float64, not overwritten.
            buffer: takes the magnitudes when the elements are finite and of either sign.
        """
        with np.errstate(all="ignore"):
            self._add_block(x, wide, buffer)

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
            self._merge(other.finite, other._mean, other._abs_mean, other._squares, other._deviations)
        for name, made in OTHERS:
            self._others[name] = made.merge(self._others[name], other._others[name])

    @property
    def zero(self) -> int:
        """Elements that are 0."""
        return self.finite - self.negative - self.positive

    @property
    def mixed(self) -> bool:
        """True if there are finite elements on either side of 0."""
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

    def values(self) -> tuple[float, ...]:
        """Returns the result so far in the order of ``fields.STORED``; NaN stands for None."""
        return (*self._fast(), *(_real(made.result(self._others[name])) for name, made in OTHERS))

    def stats(self) -> TensorStats:
        """Returns the result so far."""
        values: tuple[Any, ...] = self._fast()
        if not self.finite:
            values = (*values[:7], None, None, None, None, None, 0.0)
        if not OTHERS:
            return TensorStats(*values)
        others: dict[str, Any] = {name: made.result(self._others[name]) for name, made in OTHERS}
        return TensorStats(*values, **others)

    def _fast(self) -> tuple[float, ...]:
        """Returns the statistics of ``fields.FAST``."""
        finite = self.finite
        counts = (self.count, self.nan, self.pos_inf, self.neg_inf)
        signs = (finite - self.negative - self.positive, self.negative, self.positive)
        if not finite:
            return (*counts, *signs, math.nan, math.nan, math.nan, math.nan, math.nan, 0.0)
        reals = (self._minimum, self._maximum, self._mean, self._abs_mean, self._deviations / finite, self._squares)
        return (*counts, *signs, *reals)

    def _add_block(self, x: Float32 | Float64, wide: Float64 | None = None, buffer: Float64 | None = None) -> None:
        self.count += len(x)
        low, high = _extremes(x)
        if self.ranges:
            self._count_inside(x, low, high)
        if _OF_ALL:
            self._add_others(_OF_ALL, doubles(x) if wide is None else wide)
        if not (math.isfinite(low) and math.isfinite(high)):
            x, wide = self._count_not_finite(x), None
            if not len(x):
                return
            low, high = _extremes(x)
        self._count_signs(x, low, high)
        self._extend(low, high)
        if _OF_FINITE:
            self._add_others(_OF_FINITE, doubles(x) if wide is None else wide)
        if low == high:
            self._merge(len(x), low, abs(low), len(x) * low * low, 0.0)
            return
        wide = doubles(x) if wide is None else wide
        sum_x, squares = total(wide), sum_of_squares(wide)
        mean, deviations = mean_and_deviations(wide, sum_x, squares)
        abs_mean = abs(mean)
        if low < 0 < high:
            buffer = scratch.doubles[0] if buffer is None else buffer  # in place: less to keep in the cache
            magnitudes = np.abs(wide, out=buffer[: len(x)])
            abs_mean = mean_of(magnitudes, total(magnitudes))
        self._merge(len(x), mean, abs_mean, squares, deviations)

    def _add_others(self, others: tuple[tuple[str, Made], ...], x: Float64) -> None:
        """Adds a block to the statistics that this class has no code of its own for."""
        with np.errstate(all="ignore"):
            for name, made in others:
                self._others[name] = made.merge(self._others[name], sums_of(made, x))

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

    def _merge(self, n: int, mean: float, abs_mean: float, squares: float, deviations: float) -> None:
        """Adds the sums of n finite elements, by Chan's formula."""
        finite = self.finite + n
        if self.finite:
            old, new = self.finite / finite, n / finite
            delta = mean - self._mean
            self._deviations += deviations + delta * delta * old * n
            # The difference of two huge means may overflow.
            self._mean = self._mean + delta * new if math.isfinite(delta) else self._mean * old + mean * new
            self._abs_mean += (abs_mean - self._abs_mean) * new
        else:
            self._deviations, self._mean, self._abs_mean = deviations, mean, abs_mean
        self._squares += squares
        self.finite = finite


def measure_stats(array: Array, ranges: Iterable[Bounds] = ()) -> tuple[TensorStats, dict[Bounds, int]]:
    """Returns the statistics of an array of any shape, order and byte order, and how many elements lie in each range.

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


def _real(value: float | None) -> float:
    return math.nan if value is None else value


def peak(stats: TensorStats | None) -> float | None:
    """Returns the greatest magnitude among the finite elements; None when there are none."""
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    return max(abs(stats.minimum), abs(stats.maximum))


@lru_cache(maxsize=256)
def single_bounds(start: float, end: float) -> tuple[np.float32, np.float32]:
    """Returns the least float32 that is not below a bound and the greatest one not above the other.

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
    """Returns the least and greatest element; NaN when any element is."""
    return x.item(x.argmin()), x.item(x.argmax())


ENDS: Final[dict[str, tuple[float, ...]]] = {"relu": (0.0,), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
"""Values at which the gradient of an activation is 0, by family (``recommend.activation_family``)."""
NEAR: Final = 1e-3
"""So close to an end of tanh or sigmoid an element has less than about a thousandth of its gradient left."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """The counts of elements and units.

    Attributes:
        count: all elements.
        at: elements within ``NEAR`` of each end (for relu: at or below 0), in the order of ``ENDS``.
    """

    count: int
    at: tuple[int, ...]

    @property
    def total(self) -> int:
        """Elements at any end."""
        return sum(self.at)


def saturation(array: npt.NDArray[Any], family: str) -> Saturation:
    """Counts the elements at the ends of an activation's output; a memory map is never loaded as a whole.

    Args:
        array: the output, numeric.
        family: ``relu``, ``sigmoid`` or ``tanh``.
    """
    at = [0] * len(ENDS[family])
    for block in double_blocks(array):
        with np.errstate(all="ignore"):
            for number, end in enumerate(ENDS[family]):
                near = block <= 0 if family == "relu" else np.abs(block - end) <= NEAR
                at[number] += int(np.count_nonzero(near))
    return Saturation(int(array.size), tuple(at))


def unit_axis(shape: tuple[int, ...]) -> int | None:
    """Says which axis counts a layer's units: channels of images (N, C, H, W), else the last; None without samples."""
    if len(shape) < 2:
        return None
    return 1 if len(shape) in (4, 5) else len(shape) - 1


def silent_units(array: npt.NDArray[Any]) -> tuple[int, int] | None:
    """Returns how many units are 0 or below for every sample, of how many; None where there is no axis of samples."""
    axis = unit_axis(array.shape)
    if axis is None or not array.size:
        return None
    units = array.shape[axis]
    answered = np.zeros(units, np.bool_)
    inner = int(np.prod(array.shape[1:], dtype=np.int64))
    rows = max(BLOCK // max(inner, 1), 1)  # samples that fit into a block
    others = tuple(number for number in range(array.ndim) if number != axis)
    for start in range(0, array.shape[0], rows):
        part = array[start : start + rows]
        with np.errstate(all="ignore"):
            answered |= (part > 0).any(axis=others) | np.isnan(part.astype(np.float64)).any(axis=others)
    return int(units - np.count_nonzero(answered)), units
