"""Pairs two arrays element by element: fit of shapes, differences, ULPs, and tolerances.

Differences are float64; integers are subtracted exactly and rounded once; equal infinities have the difference 0. A
distance in units in the last place (ULPs) is how many numbers of a type lie between two: the bits of a float, read as
sign and magnitude, are its number among all floats of its type, and both zeros are 0. That holds for every IEEE type,
bfloat16 and fp8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64, Mask
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn, TensorStats, no_progress
from tui_debugger.stats.dtypes import DType, is_numeric, name_of
from tui_debugger.stats.kernel import is_known
from tui_debugger.stats.kernel import pairs as kernel_pairs
from tui_debugger.stats.spans import Checkpoint, SharedArrays, Span, flat_in_c_order, span_results
from tui_debugger.stats.workers import MeasureWorkers

Index = tuple[int, ...]

COPIED: Final = 1 << 26
"""Bytes up to which a tensor is copied when a reshape needs another memory order."""
PIECE: Final = 1 << 16
"""Elements per block: the float64 intermediates of two blocks fit into an L2 cache of 2 MiB."""
_HALF: Final = 32


class Fit(Enum):
    """How the elements of two tensors are paired."""

    SAME = "same shape"
    RESHAPED = "element by element in C order"
    STRETCHED = "broadcast"


def fit_of(here: tuple[int, ...], there: tuple[int, ...]) -> Fit | None:
    """Returns how two shapes are paired: equal shapes, equal sizes, or one broadcast over the other; else None."""
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
    """Two arrays (``here`` and ``there``) that were brought to one ``shape`` with ``count`` elements.

    ``shared`` holds the arrays as given, and the workers that can go through them.
    """

    def __init__(self, here: Array, there: Array, workers: MeasureWorkers | None = None) -> None:
        """Pairs arrays, or raises TdbgError: no fit, no numbers, or a big array would have to be copied."""
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
        self.shared = SharedArrays(given, self.count, workers)
        both = (here, there)
        in_c = all(array.flags.c_contiguous for array in both)
        self._fortran = not in_c and all(array.flags.f_contiguous for array in both)

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Array, Array]]:
        """Yields (number of the first element, elements here, elements there), 1-D, in the order of ``index``."""
        here, there = self._lines
        end = self.count if end is None else end
        for first in range(start, end, PIECE):
            last = min(first + PIECE, end)
            yield first, np.asarray(here[first:last]), np.asarray(there[first:last])

    @cached_property
    def _lines(self) -> tuple[Any, Any]:
        here, there = (array.T if self._fortran else array for array in (self.here, self.there))
        return flat_in_c_order(here), flat_in_c_order(there)

    def elements(self, start: int, stop: int) -> tuple[Array, Array]:
        """Returns the elements of both with the numbers ``start`` to ``stop``."""
        here, there = self._lines
        return np.asarray(here[start:stop]), np.asarray(there[start:stop])

    def position(self, index: Index) -> int:
        """Returns the number of an element: the inverse of ``index``."""
        order = self.shape[::-1] if self._fortran else self.shape
        return int(np.ravel_multi_index(index[::-1] if self._fortran else index, order)) if order else 0

    def index(self, number: int) -> Index:
        """Returns the index of the element with a number as ``blocks`` counts."""
        if not self.shape:
            return ()
        order = self.shape[::-1] if self._fortran else self.shape
        index = tuple(int(i) for i in np.unravel_index(number, order))
        return index[::-1] if self._fortran else index


def does_not_fit(here: tuple[int, ...], there: tuple[int, ...]) -> TdbgError:
    return TdbgError(
        "these tensors have different shapes",
        where=f"{here} and {there}",
        hint="compare tensors of equal shapes, of the same number of elements, or that broadcast",
    )


def wide(block: Array) -> Array:
    """Returns the elements as float64, complex elements as complex128; not copied when they are that already."""
    target = np.complex128 if block.dtype.kind == "c" else np.float64
    return block.astype(target, copy=False)


def difference(here: Array, there: Array) -> Array:
    """Returns ``here`` − ``there`` for blocks of one shape: float64, or complex128 when either is complex."""
    with np.errstate(all="ignore"):
        return exact_difference(here, there) if needs_halves(here, there) else wide_difference(wide(here), wide(there))


def wide_difference(one: Array, other: Array) -> Array:
    """Returns the difference of two float64 or complex128 arrays."""
    found: Array = np.asarray(one - other)
    if not np.isfinite(found).all():
        found[one == other] = 0  # the difference of two equal infinities
    return found


def needs_halves(here: Array, there: Array) -> bool:
    """Tells whether these are integers that must be subtracted in two halves to be exact in float64."""
    one, other = here.dtype, there.dtype
    return one.kind in "biu" and other.kind in "biu" and max(one.itemsize, other.itemsize) == 8


def exact_difference(here: Array, there: Array) -> Array:
    """Subtracts 64-bit integers by their halves, which fit into float64, so that only the last addition rounds."""
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
    """Tells whether a type is a real floating-point type whose neighbours can be counted."""
    extension = is_numeric(dtype) and dtype.name.startswith(("bfloat", "float8"))
    return (dtype.kind == "f" and dtype.itemsize in _INTEGERS) or extension


def common_type(here: DType, there: DType) -> DType | None:
    """Returns the type with fewer digits, whose ULPs two tensors are compared in; None unless both are floats.

    A float16 copy of a float32 tensor is right when it is the nearest float16, so units of float32 would say nothing.
    """
    if not (is_float(here) and is_float(there)):
        return None
    coarser = here if _digits(here) <= _digits(there) else there
    native: DType = coarser.newbyteorder("=")
    return native


def numbers(block: Array) -> Array:
    """Numbers every element among the floats of its type, ascending, 0 for zeros; NaN gets an arbitrary number."""
    dtype = block.dtype.newbyteorder("=")
    bits = block.astype(dtype, copy=False).view(_INTEGERS[dtype.itemsize])
    if name_of(dtype) == _UNSIGNED:
        return bits.view(np.uint8).astype(np.int16)
    negative = bits >> (8 * dtype.itemsize - 1)  # all bits set, or none: much faster than selecting by a mask
    found: Array = np.bitwise_and(negative, np.iinfo(bits.dtype).max)
    found ^= bits
    found -= negative
    return found


def distances(here: Array, there: Array, dtype: DType) -> tuple[Array, Mask | None]:
    """Returns the distances of two blocks of finite floats in ULPs of ``dtype``, as unsigned integers.

    Other types are rounded to ``dtype`` first. The second result marks the valid distances (a number beyond the range
    of ``dtype`` has none); None when all are valid.
    """
    one, other, valid = _in_unit(here, there, dtype)
    one, other = numbers(one), numbers(other)
    high, low = np.maximum(one, other), np.minimum(one, other)
    found: Array = high.view(f"u{high.itemsize}")
    found -= low.view(found.dtype)  # modulo 2ⁿ, where every distance has room
    return found, None if valid is None or valid.all() else valid


def _in_unit(here: Array, there: Array, dtype: DType) -> tuple[Array, Array, Mask | None]:
    """Returns two blocks as floats of a type, and which pairs are finite then; None when nothing was rounded."""
    with np.errstate(all="ignore"):
        one, other = (block if block.dtype == dtype else _rounded(block, dtype) for block in (here, there))
        rounded = one is not here or other is not there
        return one, other, np.isfinite(one) & np.isfinite(other) if rounded else None


def _rounded(block: Array, dtype: DType) -> Array:
    """Casts floats to another type; types of one byte by way of float32, because some direct casts do not exist."""
    found: Array = (block.astype(np.float32) if block.dtype.itemsize == 1 else block).astype(dtype)
    return found


def units_of(here: Array, there: Array, dtype: DType | None) -> kernel_pairs.Units | None:
    """Returns the arguments by which the kernel counts units in the last place."""
    if dtype is None:
        return None
    return kernel_pairs.Units(*_in_unit(here, there, dtype), name_of(dtype) == _UNSIGNED)


@lru_cache(maxsize=64)
def _digits(dtype: DType) -> int:
    return int(ml_dtypes.finfo(dtype).nmant)  # type: ignore[no-untyped-call]  # ml_dtypes has no annotations here


Positions = npt.NDArray[np.int64]


class LargestScores:
    """Keeps the ``most`` greatest scores above 0 with their positions; of equal scores the first ones."""

    __slots__ = ("_most", "_positions", "_scores")

    def __init__(self, most: int) -> None:
        self._most = most
        self._scores: Float64 = np.empty(0)
        self._positions: Positions = np.empty(0, np.int64)

    def add(self, scores: Array, positions: Positions) -> None:
        """Adds scores (no NaN) at ascending positions behind all earlier ones."""
        some = np.flatnonzero(scores > 0)
        together = np.concatenate([self._scores, scores[some]])
        order = np.argsort(-together, kind="stable")[: self._most]
        self._scores = together[order]
        self._positions = np.concatenate([self._positions, positions[some]])[order]

    def merge(self, other: LargestScores) -> None:
        """Adds the list of a later stretch."""
        self.add(other._scores, other._positions)

    def positions(self) -> list[int]:
        """Returns the positions, greatest score first."""
        found: list[int] = self._positions.tolist()
        return found


@dataclass(frozen=True, slots=True)
class Boundary:
    """A pair is inside if |here − there| ≤ max(boundary, ``atol`` + ``rtol``·|there|); none of the numbers is negative.

    ``percent`` (0 to 100) makes the boundary a part of the greatest finite difference of the whole tensor, as the
    slider of MindInsight's tensor comparison does.
    """

    rtol: float = 0.0
    atol: float = 0.0
    percent: float = 0.0

    def boundary(self, stats: TensorStats) -> float:
        """Returns max(|max d|, |min d|) × percent for the finite differences summarized by ``stats``."""
        if stats.minimum is None or stats.maximum is None:
            return 0.0
        return max(abs(stats.maximum), abs(stats.minimum)) * (self.percent / 100)

    @property
    def exact(self) -> bool:
        return self == EXACT


EXACT: Final = Boundary()


def outside(error: Float64, reference: Float64, tolerance: Boundary, boundary: float) -> Mask:
    """Tells which pairs of finite elements are outside; ``error``: |here − there|, ``reference``: |there|."""
    if not tolerance.rtol:
        return np.greater(error, max(boundary, tolerance.atol))
    with np.errstate(all="ignore"):
        return np.greater(error, np.maximum(reference * tolerance.rtol + tolerance.atol, boundary))


def outside_mask(here: Array, there: Array, tolerance: Boundary, boundary: float) -> Mask:
    """Tells which elements of two blocks are outside; NaN equals NaN, an infinity equals the same infinity.

    NaN or Inf on one side only is always outside.
    """
    one, other = wide(here), wide(there)
    finite = np.isfinite(one) & np.isfinite(other)
    with np.errstate(all="ignore"):
        apart = outside(np.abs(difference(here, there)), np.abs(other), tolerance, boundary)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
    found: Mask = np.where(finite, apart, ~same)
    return found


def count_outside(pairs: Pairs, tolerance: Boundary, boundary: float, progress: ProgressFn = no_progress) -> int:
    """Counts the elements outside, block by block; ``progress`` may raise to stop."""

    def count(prepared: Pairs, span: Span, checkpoint: Checkpoint) -> int:
        found, (here, there) = 0, (prepared.here, prepared.there)
        compiled, halves = is_known(here.dtype, there.dtype), needs_halves(here, there)
        for first, one, other in prepared.blocks(*span):
            checkpoint(first - span[0])
            if compiled:
                bounds = tolerance.rtol, tolerance.atol, boundary
                found += kernel_pairs.count_outside(one, other, *bounds, halves=halves)
            else:
                found += int(np.count_nonzero(outside_mask(one, other, tolerance, boundary)))
        return found

    return sum(span_results(pairs.shared, count, "tolerance", progress, cost=6, prepare=Pairs))
