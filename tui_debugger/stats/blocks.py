"""Statistics of one tensor: its blocks, their sums in float64, and the statistics from these sums.

The kernel (``elements.moments``) measures contiguous elements of known types in one pass; other elements are cast to
float64 block by block. Without the kernel, numpy measures such blocks. Counts and extremes are equal either way. Adding
n numbers in float64 in any order has an error of at most n·2⁻⁵³ times the sum of magnitudes: 7e-12 for a block. In
float32, 15 additions may be off by a millionth, so nothing is added there. Results can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64
from tui_debugger.model import TensorStats
from tui_debugger.stats.dtypes import is_numeric
from tui_debugger.stats.fields import OTHERS, Sums, sums_of
from tui_debugger.stats.kernel.elements import Moments, moments
from tui_debugger.stats.records import Bounds


def plain_moments(x: Float64, ranges: Sequence[Bounds] = ()) -> tuple[Moments, list[int]]:
    """Measures a non-empty block with numpy, as ``elements.moments`` does; ``ranges`` are inclusive."""
    inside = [int(np.count_nonzero((x >= start) & (x <= end))) for start, end in ranges]
    is_finite = np.isfinite(x)
    finite = x if is_finite.all() else x[is_finite]
    nan, pos_inf, neg_inf = (int(np.count_nonzero(each)) for each in (np.isnan(x), x == math.inf, x == -math.inf))
    if not len(finite):
        return _NOTHING._replace(elements=len(x), nan=nan, pos_inf=pos_inf, neg_inf=neg_inf), inside
    negative, positive = int(np.count_nonzero(finite < 0)), int(np.count_nonzero(finite > 0))
    low, high = float(finite.min()) + 0.0, float(finite.max()) + 0.0  # + 0.0 makes -0 a plain 0
    mean, abs_mean, squares = _mean(finite), _mean(np.abs(finite)), _sum_of_squares(finite)
    if low == high:
        mean, abs_mean, deviations = low, abs(low), 0.0
    else:
        away = finite - mean
        deviations, off = _sum_of_squares(away), _mean(away)  # off: the rounding error of the mean
        if math.isfinite(deviations):
            deviations = max(deviations - off * off * len(finite), 0.0)
    sums = (mean, abs_mean, deviations, squares)
    return Moments(len(x), nan, pos_inf, neg_inf, negative, positive, low, high, *sums), inside


def _mean(x: Float64) -> float:
    """Returns the mean of finite elements whose sum may overflow."""
    mean = float(np.mean(x))
    return mean if math.isfinite(mean) else float(np.sum(x / len(x)))


def _sum_of_squares(x: Float64) -> float:
    return float(np.square(x).sum())


BLOCK: Final = 1 << 16
"""Elements per block: float64 copies of two tensors fit into an L2 cache of 2 MiB, and 10 µs a numpy call weigh little.
"""


def doubles(block: Array) -> Float64:
    """Returns an array as contiguous float64; complex elements as their magnitudes."""
    with np.errstate(all="ignore"):
        wide = np.abs(block.astype(np.complex128)) if block.dtype.kind == "c" else block
        return np.ascontiguousarray(wide, np.float64)


def double_blocks(array: Array) -> Iterator[Float64]:
    """Yields all elements as float64 (complex: magnitudes), at most ``BLOCK`` at once; valid until the next block."""
    for (piece,) in pieces(array):
        for start in range(0, len(piece), BLOCK):
            yield doubles(piece[start : start + BLOCK])


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yields 1-D pieces of arrays of one shape, elements in the same order in each; views where possible."""
    if not all(isinstance(array, np.ndarray) for array in arrays):  # a FileArray is not in memory as a whole
        lines = [array.reshape(-1) if array.flags.c_contiguous else array.flat for array in arrays]
        for start in range(0, arrays[0].size, BLOCK):
            yield tuple(np.asarray(line[start : start + BLOCK]) for line in lines)
    elif all(array.flags.c_contiguous for array in arrays):
        yield tuple(array.reshape(-1) for array in arrays)
    elif all(array.flags.f_contiguous for array in arrays):
        yield tuple(array.T.reshape(-1) for array in arrays)
    else:
        order = np.nditer(arrays, flags=["external_loop", "buffered", "zerosize_ok"], order="K", buffersize=BLOCK)
        with order:
            for piece in order:
                yield piece if isinstance(piece, tuple) else (piece,)


def boxes(shape: tuple[int, ...], start: int, count: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields boxes that cover ``count`` elements from ``start`` on (C order): rest of a row, rows, start of a row.

    Each box is (first index, end) for each dimension; the boxes are in the order of their elements.
    """
    if not count:
        return
    if len(shape) <= 1:
        yield ((start, start + count),) if shape else ()
        return
    row = math.prod(shape[1:])
    while count:
        index, inside = divmod(start, row)
        whole = count // row if not inside else 0
        taken = whole * row or min(row - inside, count)
        if whole:
            yield ((index, index + whole), *((0, size) for size in shape[1:]))
        else:
            yield from (((index, index + 1), *box) for box in boxes(shape[1:], inside, taken))
        start, count = start + taken, count - taken


_NOTHING: Final = Moments(0, 0, 0, 0, 0, 0, math.inf, -math.inf, 0.0, 0.0, 0.0, 0.0)


class Accumulator:
    """Statistics of all blocks added so far, and counts inside inclusive ``ranges``."""

    __slots__ = ("_others", "_sums", "ranges")

    def __init__(self, ranges: Iterable[Bounds] = ()) -> None:
        self._sums = _NOTHING
        self.ranges: dict[Bounds, int] = dict.fromkeys(ranges, 0)
        self._others: dict[str, Sums] = {name: made.identity for name, made in OTHERS}

    @property
    def count(self) -> int:
        return self._sums.elements

    @property
    def zeros(self) -> int:
        return _finite(self._sums) - self._sums.negative - self._sums.positive

    def add(self, elements: Array) -> None:
        """Adds a 1-D array of a numeric type, of any length."""
        bounds = tuple(self.ranges)
        answer = moments(elements, bounds)
        with np.errstate(all="ignore"):
            if answer is not None:
                self.add_moments(*answer)
            for block in double_blocks(elements) if answer is None or OTHERS else ():
                if answer is None:
                    self.add_moments(*(moments(block, bounds) or plain_moments(block, bounds)))
                for name, made in OTHERS:
                    sums = sums_of(made, block if made.every else block[np.isfinite(block)])
                    self._others[name] = made.merge(self._others[name], sums)

    def merge(self, other: Accumulator) -> None:
        self.add_moments(other._sums, [other.ranges[bounds] for bounds in self.ranges])
        for name, made in OTHERS:
            self._others[name] = made.merge(self._others[name], other._others[name])

    def values(self) -> tuple[float, ...]:
        """Returns the result so far in the order of ``fields.STORED``; NaN stands for None."""
        others = (made.result(self._others[name]) for name, made in OTHERS)
        return (*self._fast(math.nan), *(math.nan if value is None else value for value in others))

    def stats(self) -> TensorStats:
        others: dict[str, Any] = {name: made.result(self._others[name]) for name, made in OTHERS}
        return TensorStats(*self._fast(None), **others)

    def _fast(self, unknown: float | None) -> tuple[Any, ...]:
        """Returns the statistics of ``fields.FAST``."""
        sums, finite = self._sums, _finite(self._sums)
        counts = (*sums[:4], self.zeros, sums.negative, sums.positive)
        if not finite:
            return (*counts, *[unknown] * 5, 0.0)
        return (*counts, sums.minimum, sums.maximum, sums.mean, sums.abs_mean, sums.deviations / finite, sums.squares)

    def add_moments(self, new: Moments, inside: Iterable[int] = ()) -> None:
        for bounds, counted in zip(self.ranges, inside, strict=True):
            self.ranges[bounds] += counted
        self._sums = _merged(self._sums, new)


def _finite(sums: Moments) -> int:
    return sums.elements - sums.nan - sums.pos_inf - sums.neg_inf


def _merged(one: Moments, other: Moments) -> Moments:
    """Returns the sums of the elements of both, by Chan's formula."""
    counts = [mine + its for mine, its in zip(one[:6], other[:6], strict=True)]
    mine, its = _finite(one), _finite(other)
    if not mine or not its:
        return Moments._make((*counts, *(one if mine else other)[6:]))
    old, new = mine / (mine + its), its / (mine + its)
    delta = other.mean - one.mean
    reals = (
        min(one.minimum, other.minimum),
        max(one.maximum, other.maximum),
        # The difference of two huge means may overflow.
        one.mean + delta * new if math.isfinite(delta) else one.mean * old + other.mean * new,
        one.abs_mean + (other.abs_mean - one.abs_mean) * new,
        one.deviations + (other.deviations + delta * delta * old * its),
        one.squares + other.squares,
    )
    return Moments._make((*counts, *reals))


def measure_stats(array: Array, ranges: Iterable[Bounds] = ()) -> tuple[TensorStats, dict[Bounds, int]]:
    """Returns an array's statistics (complex elements by magnitude), and how many elements lie in each inclusive range.

    NaN is outside of every range, Inf inside an infinite bound. Raises TypeError for elements that are no numbers.
    """
    if not is_numeric(array.dtype):
        msg = f"no statistics for element type {array.dtype}"
        raise TypeError(msg)
    accumulator = Accumulator(ranges)
    for (piece,) in pieces(array):
        accumulator.add(piece)
    return accumulator.stats(), accumulator.ranges


def peak(stats: TensorStats | None) -> float | None:
    """Returns the greatest magnitude among the finite elements; None when there are none."""
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    return max(abs(stats.minimum), abs(stats.maximum))


ENDS: Final[dict[str, tuple[float, ...]]] = {"relu": (0.0,), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
"""Values at which the gradient of an activation is 0, by family (``watch.recommended.activation_family``)."""
NEAR: Final = 1e-3
"""Distance from an end of tanh or sigmoid where less than about a thousandth of the gradient is left."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Number of all elements, and of elements within ``NEAR`` of each of ``ENDS`` (relu: at or below 0)."""

    count: int
    at: tuple[int, ...]


def saturation(array: npt.NDArray[Any], family: str) -> Saturation:
    """Counts the elements at the ends of an activation's output; a memory map is never loaded as a whole."""
    at = [0] * len(ENDS[family])
    for block in double_blocks(array):
        with np.errstate(all="ignore"):
            for number, end in enumerate(ENDS[family]):
                near = block <= 0 if family == "relu" else np.abs(block - end) <= NEAR
                at[number] += int(np.count_nonzero(near))
    return Saturation(int(array.size), tuple(at))


def unit_axis(shape: tuple[int, ...]) -> int | None:
    """Returns the axis of a layer's units: channels of images (N, C, H, W), else the last; None without samples."""
    if len(shape) < 2:
        return None
    return 1 if len(shape) in (4, 5) else len(shape) - 1


def silent_units(array: npt.NDArray[Any]) -> tuple[int, int] | None:
    """Returns how many units are 0 or below for every sample, and the number of units; None without samples."""
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
