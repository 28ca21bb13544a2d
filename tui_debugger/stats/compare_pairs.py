"""Two arrays element by element: whether they fit, their differences, ULPs, and when two elements count as equal.

Differences are taken in float64. Integers of any size and sign are subtracted exactly and rounded once; nothing wraps
around. Infinities of the same sign are equal, so their difference is 0.

Distances in units in the last place (ULPs) say how many numbers of a type lie between two: the bits of a float, read as
sign and magnitude, are its number among all floats of its type. That holds for every IEEE type and for bfloat16 and
fp8. Both zeros have the number 0.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float32, Float64, Mask
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, ReadSpec, TensorStats, no_progress
from tui_debugger.stats.blocks import SINGLE, Accumulator, exact, scratch, sum_of_products
from tui_debugger.stats.dtypes import DType, is_numeric, name_of
from tui_debugger.stats.spans import Checkpoint, SharedArrays, Span, flat_in_c_order, span_results
from tui_debugger.stats.workers import Workers

Index = tuple[int, ...]

COPIED: Final = 1 << 26
"""Bytes up to which a tensor is copied where another shape needs another order of its elements in memory."""
PIECE: Final = 1 << 16
"""Elements per block: what is made of two of them in float64 fits into an L2 cache of 2 MiB."""
_HALF: Final = 32


class Fit(Enum):
    """The way in which the elements of two tensors are paired."""

    SAME = "same shape"
    RESHAPED = "element by element in C order"
    STRETCHED = "broadcast"


def fit_of(here: tuple[int, ...], there: tuple[int, ...]) -> Fit | None:
    """Returns how tensors of two shapes can be paired; None when they cannot.

    Equal shapes, the same number of elements, or one of them stretched over the other by numpy's rules.
    """
    if here == there:
        return Fit.SAME
    if np.prod(here, dtype=object) == np.prod(there, dtype=object):
        return Fit.RESHAPED
    try:
        shape = np.broadcast_shapes(here, there)
    except ValueError:
        return None
    return Fit.STRETCHED if shape in (here, there) else None


class Pairs:
    """Two arrays of one shape.

    Attributes:
        here, there: the arrays.
        shape: of both.
        count: elements of each.
        shared: both as they were given, and who can go through them.
    """

    def __init__(
        self, here: Array, there: Array, specs: tuple[ReadSpec, ...] = (), workers: Workers | None = None
    ) -> None:
        """Pairs arrays that fit.

        Args:
            here: one.
            there: the other one.
            specs: how other processes can read both; empty where they cannot.
            workers: who else works when there is much to do; None: nobody.

        Raises:
            TdbgError: they do not fit, hold no numbers, or a big one would have to be copied.
        """
        for array in (here, there):
            if not is_numeric(array.dtype):
                raise TdbgError(
                    "only numbers can be compared", where=f"element type {array.dtype}", hint="choose another tensor"
                )
        given = (here, there)
        fit = fit_of(here.shape, there.shape)
        if fit is None:
            raise does_not_fit(here.shape, there.shape)
        if fit is Fit.RESHAPED:
            there = _reshaped(there, here.shape)
        elif fit is Fit.STRETCHED:
            here, there = np.broadcast_arrays(here, there)
        self.here, self.there = here, there
        self.shape: tuple[int, ...] = here.shape
        self.count = int(np.prod(self.shape, dtype=object))
        copied = fit is Fit.RESHAPED and not given[1].flags.c_contiguous
        self.shared = SharedArrays(given, self.count, () if copied else specs, workers)
        both = (here, there)
        in_c = all(array.flags.c_contiguous for array in both)
        self._fortran = not in_c and all(array.flags.f_contiguous for array in both)

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Array, Array]]:
        """Yields (number of the first element, elements, elements), 1-D, in an order of its own: see ``index``.

        Args:
            start: the first element.
            end: the one after the last; None for all.
        """
        here, there = self._lines
        end = self.count if end is None else end
        for first in range(start, end, PIECE):
            last = min(first + PIECE, end)
            yield first, np.asarray(here[first:last]), np.asarray(there[first:last])

    @cached_property
    def _lines(self) -> tuple[Any, Any]:
        here, there = (array.T if self._fortran else array for array in (self.here, self.there))
        return flat_in_c_order(here), flat_in_c_order(there)

    def stretch(self, start: int, stop: int) -> tuple[Array, Array]:
        """Returns the elements of both with these numbers."""
        here, there = self._lines
        return np.asarray(here[start:stop]), np.asarray(there[start:stop])

    def position(self, index: Index) -> int:
        """Returns the number of an element: the reverse of ``index``."""
        order = self.shape[::-1] if self._fortran else self.shape
        return int(np.ravel_multi_index(index[::-1] if self._fortran else index, order)) if order else 0

    def index(self, number: int) -> Index:
        """Returns the index of an element that ``blocks`` gave as number so and so."""
        if not self.shape:
            return ()
        order = self.shape[::-1] if self._fortran else self.shape
        index = tuple(int(i) for i in np.unravel_index(number, order))
        return index[::-1] if self._fortran else index


def does_not_fit(here: tuple[int, ...], there: tuple[int, ...]) -> TdbgError:
    """Returns the error of two shapes that cannot be paired."""
    return TdbgError(
        "these tensors have different shapes",
        where=f"{here} and {there}",
        hint="compare tensors of equal shapes, of the same number of elements, or that broadcast",
    )


def wide(block: Array) -> Array:
    """Returns the elements as float64, complex ones as complex128; what is of that type is returned as it is."""
    target = np.complex128 if block.dtype.kind == "c" else np.float64
    return block.astype(target, copy=False)


def difference(here: Array, there: Array) -> Array:
    """Returns ``here`` − ``there`` for blocks of one shape: float64, or complex128 when either is complex."""
    with np.errstate(all="ignore"):
        return exact_difference(here, there) if needs_halves(here, there) else wide_difference(wide(here), wide(there))


def wide_difference(one: Array, other: Array) -> Array:
    """Returns the difference of what is float64 or complex128 already."""
    found: Array = np.asarray(one - other)
    if not np.isfinite(found).all():
        found[one == other] = 0  # the difference of two equal infinities
    return found


def needs_halves(here: Array, there: Array) -> bool:
    """Returns whether these are integers whose difference takes more than float64 holds on the way."""
    one, other = here.dtype, there.dtype
    return one.kind in "biu" and other.kind in "biu" and max(one.itemsize, other.itemsize) == 8


def exact_difference(here: Array, there: Array) -> Array:
    """Subtracts 64-bit integers: their halves fit into float64, so that only the last addition rounds."""
    high, low = (np.asarray(one - other) for one, other in zip(_halves(here), _halves(there), strict=True))
    found: Array = high * 2.0**_HALF + low
    return found


def _halves(block: Array) -> tuple[Array, Array]:
    whole = block.astype(np.uint64 if block.dtype.kind == "u" else np.int64, copy=False)
    return (whole >> _HALF).astype(np.float64), (whole & 0xFFFFFFFF).astype(np.float64)


def _reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    if array.flags.c_contiguous or array.nbytes <= COPIED:
        return array.reshape(shape)
    raise TdbgError(
        "this tensor is too big to be brought into another shape",
        where=f"{array.shape} in Fortran order",
        hint="write it in C order first, with numpy.ascontiguousarray",
    )


_UNSIGNED: Final = "float8_e8m0fnu"
"""The one type without a sign: all its bits are the exponent."""
_INTEGERS: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def is_float(dtype: DType) -> bool:
    """Returns whether a type is a real floating-point type whose neighbours can be counted."""
    extension = is_numeric(dtype) and dtype.name.startswith(("bfloat", "float8"))
    return (dtype.kind == "f" and dtype.itemsize in _INTEGERS) or extension


def common_type(here: DType, there: DType) -> DType | None:
    """Returns the type whose units two tensors are compared in: that of fewer digits; None unless both are floats.

    A float16 copy of a float32 tensor is right when it is the nearest float16, so units of float32 would say nothing.
    """
    if not (is_float(here) and is_float(there)):
        return None
    coarser = here if _digits(here) <= _digits(there) else there
    native: DType = coarser.newbyteorder("=")
    return native


def numbers(block: Array) -> Array:
    """Numbers every element among the floats of its type, ascending, 0 for zeros, in integers as wide as that.

    NaN gives anything.
    """
    dtype = block.dtype.newbyteorder("=")
    bits = block.astype(dtype, copy=False).view(_INTEGERS[dtype.itemsize])
    if name_of(dtype) == _UNSIGNED:
        return bits.view(np.uint8).astype(np.int16)
    negative = bits >> (8 * dtype.itemsize - 1)  # all bits, or none: much faster than choosing by a mask
    found: Array = np.bitwise_and(negative, np.iinfo(bits.dtype).max)
    found ^= bits
    found -= negative
    return found


def distances(here: Array, there: Array, dtype: DType) -> tuple[Array, Mask | None]:
    """Units in the last place between the elements of two blocks of finite numbers, as unsigned integers.

    Args:
        here: floats of any type.
        there: the same number of floats.
        dtype: the type whose units count (``common_type``); what is of another type is rounded to it first.

    Returns:
        The distances, and which of them mean something: a number beyond the range of ``dtype`` has none. None: all do.
    """
    with np.errstate(all="ignore"):
        pair = [block if block.dtype == dtype else block.astype(dtype) for block in (here, there)]
        rounded = [each for each, block in zip(pair, (here, there), strict=True) if each is not block]
        valid: Mask | None = None
        for each in rounded:
            finite = np.isfinite(each)
            if not finite.all():
                valid = finite if valid is None else valid & finite
    return distances_of_bits(pair[0], pair[1]), valid


def distances_of_bits(here: Array, there: Array) -> Array:
    """Distances between floats of one type."""
    one, other = numbers(here), numbers(there)
    high, low = np.maximum(one, other), np.minimum(one, other)
    found: Array = high.view(f"u{high.itemsize}")
    found -= low.view(found.dtype)  # modulo 2ⁿ, where every distance has room
    return found


def alike(here: Array, there: Array, dtype: DType) -> bool:
    """Says whether both blocks are of the type whose units count, and that is wider than a byte."""
    return here.dtype == there.dtype == dtype and dtype.itemsize > 1


def same_sign_distances(here: Array, there: Array, buffer: Array) -> Array:
    """Distances where each pair has the same sign bit: the difference of the magnitudes."""
    kind = _INTEGERS[here.dtype.itemsize]
    apart = np.subtract(here.view(kind), there.view(kind), out=buffer[: len(here)].view(kind)[: len(here)])
    found: Array = np.abs(apart, out=apart).view(f"u{apart.itemsize}")
    return found


def ulps_at_least(here: Array, there: Array, least: int, work: tuple[Array, Array], mask: Mask) -> tuple[int, Mask]:
    """Returns what can be said without the distances themselves, which take twice as long.

    Args:
        here: finite elements.
        there: the same number of them.
        least: distances below this are not looked for.
        work: 64 bits for each element, twice.
        mask: room for the answer.

    Returns:
        How many distances are at most 1; and a mask of the pairs whose distance may be ``least`` or more.
    """
    n, kind = len(here), _INTEGERS[here.dtype.itemsize]
    unsigned = np.dtype(f"u{here.dtype.itemsize}")
    one, other = here.view(kind), there.view(kind)
    first, second = (buffer.view(kind)[:n] for buffer in work)
    # The numbers of opposite signs are never next to each other, nor so are their bits, but for zeros: see below.
    np.subtract(one, other, out=first)
    first += kind(1)
    near = int(np.count_nonzero(np.less_equal(first.view(unsigned), unsigned.type(2), out=mask)))
    magnitude = kind(np.iinfo(kind).max)
    np.bitwise_and(one, magnitude, out=first)
    np.bitwise_and(other, magnitude, out=second)
    first += second  # no distance is greater than the sum of the magnitudes, which may have one bit more
    sums = first.view(unsigned)
    tiny = np.less_equal(sums, unsigned.type(1), out=mask)
    if tiny.any():
        near += int(np.count_nonzero((one[tiny] ^ other[tiny]) < 0))
    return near, np.greater_equal(sums, unsigned.type(least), out=mask)


@lru_cache(maxsize=64)
def _digits(dtype: DType) -> int:
    return int(ml_dtypes.finfo(dtype).nmant)  # type: ignore[no-untyped-call]  # ml_dtypes has no annotations here


Positions = npt.NDArray[np.int64]


class Largest:
    """Keeps the greatest scores above 0 with their positions; of equal ones those that came first.

    A stretch of the elements may have a list of its own: ``merge`` puts neighbours together. So that it does not gather
    what the others made hopeless, it can be told a ``floor``; what is kept in the end does not depend on that.
    """

    __slots__ = ("_floor", "_least", "_most", "_positions", "_scores")

    def __init__(self, most: int, floor: float = 0.0) -> None:
        """Keeps nothing yet.

        Args:
            most: how many at most.
            floor: so many scores elsewhere are this great or greater; smaller ones need not be kept.
        """
        self._most = most
        self._floor = floor
        self._least = 0.0
        self._scores: Float64 = np.empty(0)
        self._positions: Positions = np.empty(0, np.int64)

    @property
    def floor(self) -> float:
        """Scores below this cannot get into the list any more; Inf for a list without room."""
        return max(self._least, self._floor) if self._most else math.inf

    def add(self, scores: Array, first: int, places: Positions | None = None) -> None:
        """Adds a block, later in order than all before.

        Args:
            scores: real numbers, none of them NaN.
            first: position of the first score.
            places: where each score stands after ``first``; None: one after the other.
        """
        if not self._most or not len(scores):
            return
        greatest = scores.max()
        if not greatest > self._least or greatest < self._floor:
            return
        enough = scores >= self._floor if self._floor > self._least else scores > self._least
        found = _best(scores, np.flatnonzero(enough), self._most)
        self._take(scores[found], first + (found if places is None else places[found]))

    def merge(self, other: Largest) -> None:
        """Adds what another list has kept, of scores that are all later in order."""
        if self._most and len(other._scores):
            self._take(other._scores, other._positions)

    def positions(self) -> list[int]:
        """Returns the positions, greatest score first."""
        found: list[int] = self._positions.tolist()
        return found

    def _take(self, scores: Array, where: Positions) -> None:
        together = np.concatenate([self._scores, scores])
        order = np.argsort(-together, kind="stable")[: self._most]
        self._scores = together[order]
        self._positions = np.concatenate([self._positions, where])[order]
        if len(self._scores) == self._most:
            self._least = float(self._scores[-1])


def _best(scores: Array, candidates: Positions, most: int) -> Positions:
    """Returns the candidates with the greatest scores, the first ones of those that are equal, in ascending order."""
    if len(candidates) <= most:
        return candidates
    values = scores[candidates]
    limit = np.partition(values, len(values) - most)[len(values) - most]
    above = candidates[values > limit]
    level = candidates[values == limit][: most - len(above)]
    return np.sort(np.concatenate([above, level]))


class Buffers(threading.local):
    """Buffers of one thread, for float64 copies of a block, and for what is made of them."""

    def __init__(self) -> None:
        self.one, self.other, self.difference = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
        self.mask = np.empty(PIECE, np.bool_)


buffers: Final = Buffers()


@dataclass
class Block:
    """Pairs of finite elements.

    Attributes:
        first: position of the block that they are of.
        both: where they stand in it; None: they are all of it.
        here, there: of their own types.
        x, y: as float32 or float64, or complex.
        opposite: how many have different sign bits.
    """

    first: int
    both: Mask | None
    here: Array
    there: Array
    x: Array
    y: Array
    opposite: int = 0

    @property
    def complex(self) -> bool:
        """True if either side is complex."""
        return "c" in (self.x.dtype.kind, self.y.dtype.kind)

    @cached_property
    def places(self) -> Positions | None:
        """The place of each after ``first``; None: one after the other."""
        return None if self.both is None else np.flatnonzero(self.both)

    def at(self, chosen: Positions) -> Positions:
        """Returns the places of some of them."""
        return chosen if self.places is None else self.places[chosen]

    def only(self, both: Mask) -> Block:
        """Returns some of them."""
        here, there = self.here[both], self.there[both]
        x = here if self.x is self.here else self.x[both]
        y = there if self.y is self.there else self.y[both]
        return Block(self.first, both, here, there, x, y)


def add_to(statistics: Accumulator, x: Array, wide_: Array, buffer: Float64) -> None:
    """Adds a block to its statistics; ``buffer`` may be overwritten."""
    if x.dtype.kind == "c":
        statistics.add(x)
    else:
        statistics.add_wide(x, wide_, buffer)


def exact_beside(block: Array, side: int, buffer: Float64) -> Float32 | Float64:
    """See ``blocks.exact``; what is converted to float64 goes where the statistics of other blocks leave it alone."""
    x = exact(block, side)
    if x.base is not scratch.doubles[side]:
        return x
    np.copyto(buffer[: len(x)], x)
    return buffer[: len(x)]


def widened(x: Array, buffer: Float64) -> Array:
    """Returns the elements as float64, in ``buffer`` unless they are that already; complex ones as they are."""
    if x.dtype != SINGLE:
        return x
    out = buffer[: len(x)]
    np.copyto(out, x)
    return out


def subtracted(one: Array, other: Array) -> Array:
    """Returns the difference of finite elements, float64 or complex."""
    if "c" in (one.dtype.kind, other.dtype.kind):
        return np.asarray(one - other)
    return np.subtract(one, other, out=buffers.difference[: len(one)])


def magnitudes_of(found: Array, block: Accumulator, buffer: Float64) -> Float64:
    """Returns |found|, where its statistics have left it, if they needed it."""
    out = buffer[: len(found)]
    if found.dtype.kind != "c":
        if block.finite == len(found) and not block.negative:
            return found
        if block.finite == len(found) and block.mixed:
            return out
    return np.abs(found, out=out)


def opposite_signs(x: Array, y: Array, *, zeros: bool) -> tuple[int, int]:
    """Pairs whose sign bits differ, and those among them without a 0 (if there are ``zeros``), which has no sign."""
    n = len(x)
    if x.dtype != y.dtype:
        x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
    bits = np.dtype(f"i{x.itemsize}")
    signs = np.bitwise_xor(x.view(bits), y.view(bits), out=scratch.double_work.view(bits)[:n])
    apart = np.less(signs, bits.type(0), out=buffers.mask[:n])
    found = flips = int(np.count_nonzero(apart))
    if found and zeros:
        flips -= int(np.count_nonzero(apart & ((x == 0) | (y == 0))))
    return found, flips


def dot_of(one: Array, other: Array) -> float:
    """Returns the inner product; of complex vectors that of the real vectors that they are twice as long."""
    if "c" in (one.dtype.kind, other.dtype.kind):
        one, other = (np.ascontiguousarray(each, np.complex128).view(np.float64) for each in (one, other))
    return sum_of_products(one, other)


def squares_of(x: Array) -> float:
    """Returns the sum of the squares of the magnitudes."""
    return dot_of(x, x)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Inside is |here − there| ≤ the larger one of the boundary and ``atol`` + ``rtol``·|there|.

    Attributes:
        rtol, atol: relative and absolute tolerance, not negative.
        percent: the boundary as a part of the greatest finite difference of the whole tensor, 0 to 100: the slider of
            MindInsight's tensor comparison.
    """

    rtol: float = 0.0
    atol: float = 0.0
    percent: float = 0.0

    def boundary(self, stats: TensorStats) -> float:
        """Returns max(|max d|, |min d|) × percent, over the finite differences that ``stats`` are of."""
        if stats.minimum is None or stats.maximum is None:
            return 0.0
        return max(abs(stats.maximum), abs(stats.minimum)) * (self.percent / 100)

    @property
    def exact(self) -> bool:
        """True if only equal numbers are inside."""
        return self == EXACT


EXACT: Final = Tolerance()


def outside(error: Float64, reference: Float64, tolerance: Tolerance, boundary: float) -> Mask:
    """Returns which of some pairs of finite elements are outside.

    Args:
        error: |here − there|.
        reference: |there|.
        tolerance: what is allowed.
        boundary: see ``Tolerance.boundary``.
    """
    if not tolerance.rtol:
        return np.greater(error, max(boundary, tolerance.atol))
    with np.errstate(all="ignore"):
        return np.greater(error, np.maximum(reference * tolerance.rtol + tolerance.atol, boundary))


def outside_mask(here: Array, there: Array, tolerance: Tolerance, boundary: float) -> Mask:
    """Returns which elements of two blocks or windows are outside; NaN equals NaN, an infinity one of its sign.

    Where only one side is NaN or infinite no tolerance helps.
    """
    one, other = wide(here), wide(there)
    finite = np.isfinite(one) & np.isfinite(other)
    with np.errstate(all="ignore"):
        apart = outside(np.abs(difference(here, there)), np.abs(other), tolerance, boundary)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
    found: Mask = np.where(finite, apart, ~same)
    return found


def count_outside(pairs: Pairs, tolerance: Tolerance, boundary: float, progress: ProgressFn = no_progress) -> int:
    """Counts the elements outside, block by block.

    Args:
        pairs: the arrays.
        tolerance: what is allowed.
        boundary: see ``Tolerance.boundary``.
        progress: counts elements; may raise to stop.
    """
    task = _CountOutside(tolerance, boundary)
    return sum(span_results(pairs.shared, lambda: task, "tolerance", progress))


@dataclass(frozen=True, slots=True)
class _CountOutside:
    """The task of a span: how many of its elements are outside."""

    tolerance: Tolerance
    boundary: float
    cost: int = 6

    def prepare(self, arrays: tuple[Array, ...]) -> Pairs:
        here, there = arrays
        return Pairs(here, there)

    def do(self, prepared: Pairs, span: Span, checkpoint: Checkpoint) -> int:
        found = 0
        for first, here, there in prepared.blocks(*span):
            checkpoint(first - span[0])
            found += self._count(here, there)
        return found

    def _count(self, here: Array, there: Array) -> int:
        if "c" not in (here.dtype.kind, there.dtype.kind) and not needs_halves(here, there):
            one = widened(exact_beside(here, 0, buffers.one), buffers.one)
            other = widened(exact_beside(there, 1, buffers.other), buffers.other)
            with np.errstate(all="ignore"):
                error = subtracted(one, other)
                if np.isfinite(error, out=buffers.mask[: len(error)]).all():  # so are both sides, then
                    reference = np.abs(other, out=buffers.other[: len(error)]) if self.tolerance.rtol else other
                    mask = outside(np.abs(error, out=error), reference, self.tolerance, self.boundary)
                    return int(np.count_nonzero(mask))
        return int(np.count_nonzero(outside_mask(here, there, self.tolerance, self.boundary)))
