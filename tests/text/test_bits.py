"""Elements down to their bits, against how numpy and ml_dtypes themselves count."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.text.values import bits_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            np.float32(0.1),
            "0x3dcccccd  sign 0  exponent 01111011 (2^-4)  mantissa 10011001100110011001101  ULP 7.45058e-09",
        ),
        (np.float16(6e-8), "bytes 01 00  0x0001  sign 0  exponent 00000 (2^-14, subnormal)  mantissa 0000000001  ULP"),
        (
            ml_dtypes.bfloat16(-1),
            "bytes 80 bf  0xbf80  sign 1  exponent 01111111 (2^0)  mantissa 0000000  ULP 0.0078125",
        ),
        (ml_dtypes.float8_e4m3fn(448), "bytes 7e  0x7e  sign 0  exponent 1111 (2^8)  mantissa 110  ULP 32"),
        (ml_dtypes.float8_e5m2(np.nan), "mantissa 10  ULP –"),
        (ml_dtypes.float8_e8m0fnu(4), "bytes 81  0x81  exponent 10000001 (2^2)  ULP 4"),
        (np.float32(-np.inf), "bytes 00 00 80 ff  0xff800000  sign 1  exponent 11111111  mantissa 0"),
        (np.float32(0), "sign 0  exponent 00000000  mantissa 00000000000000000000000  ULP 1.4013e-45"),
        (np.int8(-2), "bytes fe  0xfe  0b11111110"),
        (np.int64(-2), "bytes fe ff ff ff ff ff ff ff  0xfffffffffffffffe"),
        (np.bool_(True), "bytes 01  0x01"),
        (np.complex64(1 - 2j), "real bytes 00 00 80 3f  0x3f800000"),
        (np.str_("a"), "bytes 61 00 00 00"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_said(value: Any, text: str) -> None:
    assert text in bits_text(value)


@given(st.floats(allow_nan=False))
def test_the_fields_make_the_number(value: float) -> None:
    text = bits_text(np.float64(value))
    words = dict(part.split(" ", 1) for part in text.split("  ") if " " in part)
    bits = words["sign"] + words["exponent"].split(" ")[0] + words["mantissa"]
    assert struct.unpack(">d", int(bits, 2).to_bytes(8, "big"))[0] == value
    assert bytes.fromhex(words["bytes"]) == struct.pack("<d", value)


@pytest.mark.parametrize(
    "dtype",
    [
        *("float16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz),
        *(ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e4m3b11fnuz),
    ],
)
def test_a_unit_in_the_last_place_is_the_way_to_the_next_number(dtype: Any) -> None:
    kind = np.dtype(dtype)
    patterns = np.arange(1 << 8 * kind.itemsize - 1, dtype=f"u{kind.itemsize}").view(kind)
    with np.errstate(invalid="ignore"):
        numbers = patterns.astype(np.float64)
    for i in range(0, len(numbers) - 1, 1 if kind.itemsize == 1 else 97):
        if np.isfinite(numbers[i : i + 2]).all():
            unit = float(bits_text(patterns[i]).rpartition("ULP ")[2])
            assert unit == pytest.approx(numbers[i + 1] - numbers[i], rel=1e-5)
