"""Units in the last place: numpy's nextafter walks from one number to the other."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.compare_pairs import common_type, distances, numbers
from tui_debugger.stats.dtypes import dtype_of

Array = npt.NDArray[Any]
SMALL = (
    *("float16", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)


def all_of(name: str) -> Array:
    """Every finite number of a type, ascending, each once."""
    dtype = dtype_of(name)
    assert dtype is not None
    bits = np.arange(1 << 8 * dtype.itemsize).astype(np.uint8 if dtype.itemsize == 1 else np.uint16)
    values = bits.view(dtype)
    finite = values[np.isfinite(values.astype(np.float32))]
    _, first = np.unique(finite.astype(np.float64), return_index=True)
    return finite[first]


@pytest.mark.parametrize("name", SMALL)
def test_the_numbers_of_a_type_are_counted_without_a_gap(name: str) -> None:
    values = all_of(name)
    assert set(np.diff(numbers(values).astype(np.int64)).tolist()) == {1}
    zero = numbers(values)[values.astype(np.float64) == 0]
    assert not zero.any()


@pytest.mark.parametrize("name", ["float32", "float64"])
@given(data=st.data())
def test_a_walk_by_nextafter(name: str, data: st.DataObject) -> None:
    dtype = np.dtype(name)
    start = data.draw(st.floats(width=32 if name == "float32" else 64, allow_nan=False, allow_infinity=False))
    steps = data.draw(st.integers(0, 40))
    at = begin = dtype.type(start)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            at = np.nextafter(at, dtype.type(np.inf))
    if np.isfinite(at):
        found, valid = distances(np.array([begin]), np.array([at]), dtype)
        assert (found.tolist(), valid) == ([steps], None)


@given(st.floats(1e-300, 1e300), st.integers(1, 1000))
def test_within_a_binade_distances_are_multiples_of_spacing(start: float, steps: int) -> None:
    end = start + steps * np.spacing(start)
    if np.spacing(end) == np.spacing(start):
        assert distances(np.array([start]), np.array([end]), np.dtype("f8"))[0].tolist() == [steps]


def test_the_two_ends_of_float64_are_further_apart_than_int64_reaches() -> None:
    greatest = np.finfo("f8").max
    found, _ = distances(np.array([-greatest]), np.array([greatest]), np.dtype("f8"))
    assert found.tolist() == [2 * 0x7FEFFFFFFFFFFFFF]


def test_zeros_are_one_number_and_byte_order_is_none() -> None:
    assert distances(np.array([0.0]), np.array([-0.0]), np.dtype("f8"))[0].tolist() == [0]
    one = np.array([1.0, 2.0], ">f4")
    assert distances(one, np.nextafter(one, np.float32(9)).astype("<f4"), np.dtype("f4"))[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("here", "there", "unit"),
    [
        ("float32", "float16", "float16"),
        ("float16", "bfloat16", "bfloat16"),
        ("float64", "float32", "float32"),
        ("float8_e4m3fn", "float8_e5m2", "float8_e5m2"),
        ("float32", "int32", None),
        ("bool", "float32", None),
        ("complex64", "float32", None),
    ],
)
def test_the_coarser_type_is_the_unit(here: str, there: str, unit: str | None) -> None:
    one, other = dtype_of(here), dtype_of(there)
    assert one is not None
    assert other is not None
    wanted = None if unit is None else dtype_of(unit)
    assert common_type(one, other) == wanted
    assert common_type(other, one) == wanted


def test_a_number_beyond_the_coarser_type_has_no_distance() -> None:
    here = np.array([1.0, 1e6, 65504.0], np.float32)
    found, valid = distances(here, np.array([1.0, 1.0, 65504.0], np.float16), np.dtype("f2"))
    assert valid is not None
    assert valid.tolist() == [True, False, True]
    assert found[valid].tolist() == [0, 0]


def test_a_float16_copy_of_float32_is_0_apart_and_its_neighbour_1() -> None:
    here = np.linspace(-3, 3, 50, dtype=np.float32)
    copy = here.astype(np.float16)
    assert not distances(here, copy, np.dtype("f2"))[0].any()
    found, _ = distances(here, np.nextafter(copy, np.float16(9)), np.dtype("f2"))
    assert set(found.tolist()) == {1}


def test_bfloat16_kept_in_float32_counts_as_bfloat16() -> None:
    one = np.array([1.0, -2.0], ml_dtypes.bfloat16)
    bits = one.view(np.int16) + np.int16(3)
    found, _ = distances(
        one.astype(np.float32), bits.view(ml_dtypes.bfloat16).astype(np.float32), np.dtype(ml_dtypes.bfloat16)
    )
    assert found.tolist() == [3, 3]
