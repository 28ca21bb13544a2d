"""Slice text and windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.errors import BadSliceError
from tui_debugger.text.values import MAX_FREE, apply, default_slice, parse_slice

SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)


def test_entries_are_indices_or_python_slices() -> None:
    array = np.arange(4 * 5 * 6 * 7).reshape(4, 5, 6, 7)
    window = parse_slice("[0, :, 3:9, -1]", array.shape)
    assert window.shape == (5, 3)
    assert window.free == (1, 2)
    assert np.array_equal(apply(array, window), array[0, :, 3:9, -1])
    assert window.index(2, 1) == (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((), "[]"),
        ((4,), "[:]"),
        ((4, 5), "[:, :]"),
        ((3, 4, 5), "[0, :, :]"),
        ((2, 3, 4, 5), "[0, 0, :, :]"),
        ((0, 4, 5), "[:, 0, :]"),
    ],
)
def test_the_default_is_the_first_plane_of_the_last_two_dimensions(shape: tuple[int, ...], text: str) -> None:
    assert default_slice(shape) == text
    parse_slice(text, shape)


@pytest.mark.parametrize("text", ["...", "[...]", "[..., :]", "[:, ..., :]", " [ : , ... ] "])
def test_an_ellipsis_stands_for_what_is_not_written(text: str) -> None:
    assert parse_slice(text, (2, 3)).text == "[:, :]"


def test_brackets_may_be_left_out() -> None:
    assert parse_slice("1, :", (2, 3)) == parse_slice("[1, :]", (2, 3))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[0, :", "brackets"),
        ("0, :]", "brackets"),
        ("[", "brackets"),
        ("[0]", "3 dimensions, the slice 1"),
        ("[0, 0, 0, 0]", "3 dimensions, the slice 4"),
        ("[:, :, :]", "at most two"),
        ("[...]", "at most two"),
        ("[..., ..., 0]", "only once"),
        ("[2, :, :]", "index 2 is outside dimension 0, which has 2"),
        ("[-3, :, :]", "index -3 is outside"),
        ("[a, :, :]", "not a whole number"),
        ("[1.5, :, :]", "not a whole number"),
        ("[1e2, :, :]", "not a whole number"),
        ("[, :, :]", "not a whole number"),
        ("[0, ::0, :]", "step of 0"),
        ("[0, 0:1:1:1, :]", "too many colons"),
        ("[0, 1_0:, :]", "not a whole number"),
        ("[٣, :, :]", "outside|whole number"),
        (f"[{'9' * 30}, :, :]", "not a whole number"),
    ],
)
def test_mistakes_are_named(text: str, part: str) -> None:
    with pytest.raises(BadSliceError, match=part):
        parse_slice(text, (2, 3, 4))


@given(SHAPES)
def test_every_shape_with_a_possible_slice_has_a_default(shape: tuple[int, ...]) -> None:
    if shape.count(0) > MAX_FREE:
        with pytest.raises(BadSliceError, match="empty"):
            parse_slice(default_slice(shape), shape)
        return
    array = np.zeros(shape)
    assert apply(array, parse_slice(default_slice(shape), shape)).ndim == min(len(shape), MAX_FREE)


def _entry(size: int) -> st.SearchStrategy[str]:
    bound = st.just("") | st.integers(-7, 7).map(str)
    step = st.just("") | st.integers(-3, 3).filter(bool).map(str)
    free = st.tuples(bound, bound).map(":".join) | st.tuples(bound, bound, step).map(":".join)
    return (st.integers(-size, size - 1).map(str) | free) if size else free


@given(st.data(), SHAPES)
def test_a_window_is_what_numpy_indexing_gives(data: st.DataObject, shape: tuple[int, ...]) -> None:
    entries = [data.draw(_entry(size)) for size in shape]
    text = "[" + ",".join(entries) + "]"
    array = np.arange(int(np.prod(shape))).reshape(shape)
    if sum(":" in entry for entry in entries) > MAX_FREE:
        with pytest.raises(BadSliceError):
            parse_slice(text, shape)
        return
    expected = eval(f"array[{text[1:-1] or '()'}]")  # noqa: S307  # the text was drawn above
    window = parse_slice(text, shape)
    result = apply(array, window)
    assert result.shape == window.shape == np.shape(expected)
    assert np.array_equal(result, expected)
    assert parse_slice(window.text, shape).shape == window.shape
    assert np.array_equal(apply(array, parse_slice(window.text, shape)), expected)
    for cell in np.ndindex(result.shape):
        assert array[window.index(*cell)] == result[cell]


def test_a_window_is_a_view() -> None:
    array = np.zeros((3, 4, 5))
    assert np.shares_memory(apply(array, parse_slice("[1, ::2, ::-1]", array.shape)), array)
