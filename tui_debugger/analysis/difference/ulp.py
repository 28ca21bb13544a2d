"""Distances between floating-point numbers in units in the last place: how many numbers of their type lie between them.

The bits of a float, read as sign and magnitude, are its number among all floats of its type; that holds for every IEEE
type and for bfloat16 and fp8. Both zeros have the number 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import ml_dtypes
import numpy as np

from tui_debugger.analysis.dtypes import DType, is_numeric, name_of
from tui_debugger.arrays import Array, Mask

_UNSIGNED: Final = "float8_e8m0fnu"
"""The one type without a sign: all its bits are the exponent."""
_INTEGERS: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def is_float(dtype: DType) -> bool:
    """Whether a type is a real floating-point type whose neighbours can be counted."""
    extension = is_numeric(dtype) and dtype.name.startswith(("bfloat", "float8"))
    return (dtype.kind == "f" and dtype.itemsize in _INTEGERS) or extension


def common_type(here: DType, there: DType) -> DType | None:
    """The type whose units two tensors are compared in: the coarser one, of fewer digits; None unless both are floats.

    A float16 copy of a float32 tensor is right when it is the nearest float16, so units of float32 would say nothing.
    """
    if not (is_float(here) and is_float(there)):
        return None
    coarser = here if _digits(here) <= _digits(there) else there
    native: DType = coarser.newbyteorder("=")
    return native


def numbers(block: Array) -> Array:
    """The number of every element among the floats of its type, ascending, 0 for zeros, in integers as wide as that.

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
    """Whether both blocks are of the type whose units count, and that is one of those below: wider than a byte."""
    return here.dtype == there.dtype == dtype and dtype.itemsize > 1


def same_sign_distances(here: Array, there: Array, room: Array) -> Array:
    """Distances where each pair has the same sign bit: the difference of the magnitudes."""
    kind = _INTEGERS[here.dtype.itemsize]
    apart = np.subtract(here.view(kind), there.view(kind), out=room[: len(here)].view(kind)[: len(here)])
    found: Array = np.abs(apart, out=apart).view(f"u{apart.itemsize}")
    return found


def sift(here: Array, there: Array, least: int, rooms: tuple[Array, Array], mask: Mask) -> tuple[int, Mask]:
    """What can be said without the distances themselves, which take twice as long.

    Args:
        here: finite elements.
        there: the same number of them.
        least: distances below this are not looked for.
        rooms: 64 bits for each element, twice.
        mask: room for the answer.

    Returns:
        How many distances are at most 1; and a mask of the pairs whose distance may be ``least`` or more.
    """
    n, kind = len(here), _INTEGERS[here.dtype.itemsize]
    unsigned = np.dtype(f"u{here.dtype.itemsize}")
    one, other = here.view(kind), there.view(kind)
    first, second = (room.view(kind)[:n] for room in rooms)
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
