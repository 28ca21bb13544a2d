"""A single element down to its bits: bytes, the fields of a floating-point number, and its unit in the last place."""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.analysis.dtypes import DType, name_of
from tui_debugger.words.numbers import NONE
from tui_debugger.words.values import Family, family

MOST_BYTES: Final = 16
"""Of longer elements (text), the first ones are shown."""
_MOST_BINARY: Final = 16
"""Bits up to which an integer is written out."""
_SCALE: Final = "float8_e8m0fnu"
"""A type that is nothing but an exponent."""


def bits_text(value: Any) -> str:
    """Bytes as they lie in memory (little end first), the same as one hexadecimal number, and what the bits mean.

    Args:
        value: one element, a numpy scalar of any type.
    """
    element = np.asarray(value)
    kind = family(element.dtype)
    if kind is Family.COMPLEX:
        return f"real {bits_text(element.real[()])}  imag {bits_text(element.imag[()])}"
    raw = _bytes(element)
    shown = raw[:MOST_BYTES].hex(" ") + (" …" if len(raw) > MOST_BYTES else "")
    if kind is Family.OTHER:
        return f"bytes {shown}"
    number = int.from_bytes(raw, "little")
    words = [f"bytes {shown}", f"0x{number:0{2 * len(raw)}x}"]
    if kind is Family.FLOAT:
        words += _fields(element, number)
    elif kind is Family.INT and 8 * len(raw) <= _MOST_BINARY:
        words.append(f"0b{number:0{8 * len(raw)}b}")
    return "  ".join(words)


def _bytes(element: Any) -> bytes:
    little = element.astype(element.dtype.newbyteorder("<")) if element.dtype.kind in "iufU" else element
    return bytes(little.tobytes())


def _fields(element: Any, number: int) -> list[str]:
    dtype = element.dtype
    if name_of(dtype) == _SCALE:
        nan = number == 0xFF
        ulp = NONE if nan else f"{math.ldexp(1.0, number - 127):.6g}"
        return [f"exponent {number:08b}" + ("" if nan else f" (2^{number - 127})"), f"ULP {ulp}"]
    known = _format(dtype)
    if known is None:
        return []
    exponents, digits, lowest = known
    sign, exponent = number >> (exponents + digits), number >> digits & ((1 << exponents) - 1)
    mantissa = number & ((1 << digits) - 1)
    power = lowest + max(exponent, 1) - 1
    finite = math.isfinite(float(element))
    meaning = f" (2^{power}{', subnormal' if not exponent and mantissa else ''})" if finite and float(element) else ""
    ulp = f"{math.ldexp(1.0, power - digits):.6g}" if finite else NONE
    return [
        f"sign {sign}",
        f"exponent {exponent:0{exponents}b}{meaning}",
        f"mantissa {mantissa:0{digits}b}",
        f"ULP {ulp}",
    ]


def _format(dtype: DType) -> tuple[int, int, int] | None:
    """Bits of the exponent and of the mantissa, and the exponent of the smallest normal number; None when not known."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return None
    about: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # it has no annotations
    digits = int(about.nmant)
    return 8 * dtype.itemsize - 1 - digits, digits, int(about.minexp)
