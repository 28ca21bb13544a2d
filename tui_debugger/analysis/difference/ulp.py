"""Distances between floating-point numbers in units in the last place: how many numbers of their type lie between them.

The bits of a float, read as sign and magnitude, are its number among all floats of its type; that holds for every IEEE
type and for bfloat16 and fp8. Both zeros have the number 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.dtypes import DType, is_numeric, name_of

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

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
    found: Array = (bits ^ (negative & np.iinfo(bits.dtype).max)) - negative
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
    one, other = numbers(pair[0]), numbers(pair[1])
    high, low = np.maximum(one, other), np.minimum(one, other)
    unsigned = np.dtype(f"u{high.itemsize}")
    return high.view(unsigned) - low.view(unsigned), valid  # modulo 2ⁿ, where every distance has room


@lru_cache(maxsize=64)
def _digits(dtype: DType) -> int:
    return int(ml_dtypes.finfo(dtype).nmant)  # type: ignore[no-untyped-call]  # ml_dtypes has no annotations here
