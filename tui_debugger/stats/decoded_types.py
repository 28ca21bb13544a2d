"""Element types of Ascend devices that numpy lacks: each element is converted to a wider type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.stats.dtypes import DType


@dataclass(frozen=True, eq=False, slots=True)
class DecodedType:
    """An element type with conversion.

    ``stored`` is the type of a code (elements below a byte take one byte each), ``values`` a type that holds all
    numbers exactly, ``decode`` converts codes to numbers of the same shape.
    """

    stored: DType
    values: DType
    decode: Callable[[Array], Array]


def _by_table(numbers: list[float]) -> DecodedType:
    table: Array = np.array(numbers, np.float32)
    return DecodedType(np.dtype(np.uint8), table.dtype, lambda codes: table[codes])


def _hifloat8(code: int) -> float:
    """Returns the number of a code, whose leading bits give the number of exponent bits."""
    rest, sign = code & 0x7F, -1.0 if code & 0x80 else 1.0
    if rest == 0:
        return np.nan if code else 0.0
    if rest == 0x6F:
        return sign * np.inf
    if rest < 8:
        return sign * 2.0 ** (rest - 23)
    exponent_bits = max((rest >> 3).bit_length() - 1, 0) if rest < 0x40 else 3 + (rest >= 0x60)
    fraction_bits = min(5 - exponent_bits, 3)
    fraction = 1 + (rest & (1 << fraction_bits) - 1) / (1 << fraction_bits)
    if not exponent_bits:
        return sign * fraction
    exponent = rest >> fraction_bits & (1 << exponent_bits) - 1
    half = 1 << exponent_bits - 1  # the first bit is the exponent's sign, and is replaced by a leading 1
    return float(sign * fraction * 2.0 ** (-exponent if exponent & half else exponent | half))


def _signed(numbers: list[float]) -> list[float]:
    return numbers + [-number for number in numbers]


def _halves(codes: Array) -> Array:
    """Returns the complex numbers of pairs of float16."""
    pairs = np.ascontiguousarray(codes).view(np.float16).astype(np.float32)
    return pairs.view(np.complex64).reshape(codes.shape)


DECODED: Final = {
    "complex32": DecodedType(np.dtype(np.uint32), np.dtype(np.complex64), _halves),
    "hifloat8": _by_table([_hifloat8(code) for code in range(256)]),
    "float4_e2m1": _by_table(_signed([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])),
    "float4_e1m2": _by_table(_signed([code / 4 for code in range(8)])),
}
"""The types by name."""
