"""Pieces of arrays as float32 or float64, without rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tui_debugger.stats.blocks import BLOCK, double_blocks, doubles, exact, pieces
from tui_debugger.stats.dtypes import is_numeric

Array = npt.NDArray[Any]
NARROW = (
    *("?", "i1", "u1", "i2", "u2", "f2", ">f2", ">i2", ">u2"),
    *(getattr(ml_dtypes, name) for name in dir(ml_dtypes) if name.startswith(("float8", "bfloat16"))),
)


def every_value(kind: Any) -> Array:
    """Every bit pattern of an element type."""
    dtype = np.dtype(kind)
    if dtype == np.bool_:
        return np.array([False, True])
    size = dtype.itemsize
    patterns = np.arange(1 << 8 * size).astype(f"u{size}")
    return patterns.view(dtype)


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_every_value_of_a_narrow_type_is_itself_as_float32(kind: Any) -> None:
    values = every_value(kind)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float64)
    for start in range(0, len(values), BLOCK):
        found = exact(values[start : start + BLOCK])
        assert found.dtype == np.float32
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found.astype(np.float64), expected[start : start + BLOCK])
        assert (np.signbit(found) == np.signbit(expected[start : start + BLOCK]))[found == 0].all()


@pytest.mark.parametrize("kind", ["i4", "u4", "i8", "u8", "f8", ">f8", ">i4", np.longdouble])
def test_wide_types_become_doubles(kind: Any) -> None:
    values = np.array([0, 1, 2**24 + 1, 2**31 - 1], kind)
    assert exact(values).tolist() == [0.0, 1.0, 2.0**24 + 1, 2.0**31 - 1]
    assert exact(values).dtype == np.float64


def test_what_needs_no_conversion_is_not_copied() -> None:
    for kind in (np.float32, np.float64):
        values = np.arange(5, dtype=kind)
        assert exact(values) is values
    assert doubles(np.arange(5.0)).base is None


def test_what_is_returned_is_contiguous_and_the_input_stays_as_it_is() -> None:
    for kind in ("f4", "f8", "f2", "i4", "c8", ">f4"):
        strided = np.arange(20).astype(kind)[::-2]
        kept = strided.copy()
        assert exact(strided).flags.c_contiguous
        assert doubles(strided).flags.c_contiguous
        np.testing.assert_array_equal(exact(strided), np.abs(kept))
        np.testing.assert_array_equal(strided, kept)


def test_two_sides_do_not_share_a_buffer() -> None:
    first, second = exact(np.array([1], np.int32), 0), exact(np.array([2], np.int32), 1)
    assert (first.tolist(), second.tolist()) == ([1], [2])
    first, second = exact(np.array([1], np.float16), 0), exact(np.array([2], np.float16), 1)
    assert (first.tolist(), second.tolist()) == ([1], [2])


def test_pieces_of_several_arrays_keep_their_elements_together() -> None:
    array = np.arange(60.0).reshape(3, 4, 5)
    others = [array, np.asfortranarray(array), array[::-1], array.transpose(2, 0, 1), array[:, ::2]]
    for one in others:
        for other in others:
            if one.shape == other.shape:
                together = {pair for a, b in pieces(one, other) for pair in zip(a.tolist(), b.tolist(), strict=True)}
                assert together == set(zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))


@pytest.mark.parametrize("kind", [*NARROW, "f4", "f8", "i8", "c16"], ids=str)
@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1])
def test_double_blocks_hold_every_element_once(kind: Any, count: int) -> None:
    array = np.tile(np.array([0, 1, 1, 1], kind), count // 4 + 1)[:count]
    blocks = [block.copy() for block in double_blocks(array)]
    assert all(len(block) <= BLOCK for block in blocks)
    found = np.concatenate(blocks) if blocks else np.empty(0)
    np.testing.assert_array_equal(found, array.astype(np.complex128).real)
    assert is_numeric(array.dtype)
