"""Element types by name."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tui_debugger.stats.dtypes import canonical_name, declared_view, dtype_of, is_numeric, name_of


@pytest.mark.parametrize(
    ("token", "name", "dtype"),
    [
        ("Float32", "float32", "float32"),
        ("BFloat16", "bfloat16", ml_dtypes.bfloat16),
        ("Bool", "bool", "bool"),
        ("Int4", "int4", "int8"),
        ("UInt1", "uint1", "uint8"),
        ("Complex64", "complex64", "complex64"),
        ("complex128", "complex128", "complex128"),
        ("Float8E4M3FN", "float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8_e5m2", "float8_e5m2", ml_dtypes.float8_e5m2),
        ("torch.bfloat16", "bfloat16", ml_dtypes.bfloat16),
        ("BF16", "bfloat16", ml_dtypes.bfloat16),
    ],
)
def test_tokens_of_files_and_their_numpy_types(token: str, name: str, dtype: object) -> None:
    assert canonical_name(token) == name
    assert dtype_of(token) == np.dtype(dtype)  # type: ignore[call-overload]  # names and scalar types alike


@pytest.mark.parametrize("token", ["", "npy", "DefaultFormat", "float31", "NCHW", "object", "str"])
def test_other_words_are_no_element_types(token: str) -> None:
    assert canonical_name(token) == ""
    assert dtype_of(token) is None


def test_byte_order_does_not_show_in_a_name() -> None:
    assert name_of(np.dtype(">f4")) == "float32"
    assert name_of(np.dtype(ml_dtypes.bfloat16)) == "bfloat16"


def test_declared_types_that_a_header_cannot_state() -> None:
    assert declared_view(np.dtype("f4"), "BFloat16") == (np.dtype("f4"), "bfloat16")
    assert declared_view(np.dtype("V2"), "bfloat16") == (np.dtype(ml_dtypes.bfloat16), "bfloat16")
    assert declared_view(np.dtype("V1"), "Float8E4M3FN") == (np.dtype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn")
    assert declared_view(np.dtype("i1"), "Int4") == (np.dtype("i1"), "int4")


def test_a_contradiction_is_decided_by_the_header() -> None:
    assert declared_view(np.dtype("f4"), "Int64") == (np.dtype("f4"), "float32")
    assert declared_view(np.dtype("f2"), "bfloat16") == (np.dtype("f2"), "float16")
    assert declared_view(np.dtype("i8"), "nonsense") == (np.dtype("i8"), "int64")


def test_numbers_are_told_from_text_and_dates() -> None:
    for good in ("?", "i1", "u8", "f2", "f8", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        assert is_numeric(np.dtype(good))
    for bad in ("U3", "S3", "M8[s]", "m8[s]", "V2"):
        assert not is_numeric(np.dtype(bad))
