"""Pictures of tables: nothing bad is hidden, the greatest magnitude wins, and no more than a block is read at once."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stats.windows import whole
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.heat import HeatCellKind, HeatWindow, Picture, Read, next_bad, shrink, strongest

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
NUMBERS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0]))


def reader(array: Array) -> Read:
    return lambda rows, columns: array[rows, columns]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Array, HeatWindow]:
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    values = draw(st.lists(NUMBERS, min_size=rows * columns, max_size=rows * columns))
    array = np.array(values, np.float32).reshape(rows, columns)
    top, left = draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))
    down, across = draw(st.integers(1, 10)), draw(st.integers(1, 10))
    window = HeatWindow(
        range(top, draw(st.integers(top + 1, rows)), down), range(left, draw(st.integers(left + 1, columns)), across)
    )
    return array, window


def check(picture: Picture, array: Array) -> None:
    """Every cell against the obvious reckoning in float64."""
    with np.errstate(all="ignore"):
        wide = (np.abs(array) if array.dtype.kind == "c" else array).astype(np.float64)
    for row, column in np.ndindex(picture.window.shape):
        rows, columns = picture.window.cell(row, column)
        part = wide[rows.start : rows.stop, columns.start : columns.stop]
        finite = part[np.isfinite(part)]
        value, place = picture.values[row, column], (row, column)
        assert (picture.nan[place], picture.pos_inf[place], picture.neg_inf[place]) == (
            np.isnan(part).sum(),
            (part == np.inf).sum(),
            (part == -np.inf).sum(),
        )
        if finite.size:
            assert abs(value) == np.abs(finite).max()
            assert value in finite
            assert (picture.low[place], picture.high[place]) == (finite.min(), finite.max())
        else:
            assert math.isnan(value)
        kind = HeatCellKind(int(picture.kinds[place]))
        assert (kind is HeatCellKind.NAN) == bool(np.isnan(part).any())
        assert (kind is HeatCellKind.NUMBER) == bool(np.isfinite(part).all())


@given(tables())
def test_every_cell_is_what_its_elements_say(case: tuple[Array, HeatWindow]) -> None:
    array, window = case
    check(shrink(reader(array), window), array)


@given(tables(), st.integers(1, 4), st.integers(1, 4))
def test_coarser_is_what_a_larger_step_gives(case: tuple[Array, HeatWindow], rows: int, columns: int) -> None:
    array, window = case
    coarser = shrink(reader(array), window).coarser(rows, columns)
    assert coarser.window.rows.step == window.rows.step * rows
    check(coarser, array)


@given(tables())
def test_the_strongest_element_is_the_one_that_gives_the_cell_its_look(case: tuple[Array, HeatWindow]) -> None:
    array, window = case
    picture = shrink(reader(array), window)
    for row, column in np.ndindex(window.shape):
        rows, columns = window.cell(row, column)
        at = strongest(reader(array), rows, columns)
        assert at is not None
        assert at[0] in rows
        assert at[1] in columns
        value = float(array[at])
        kind = HeatCellKind(int(picture.kinds[row, column]))
        if kind is HeatCellKind.NUMBER:
            assert abs(value) == abs(picture.values[row, column])
        else:
            assert math.isnan(value) if kind is HeatCellKind.NAN else math.isinf(value)


@given(tables(), st.sampled_from([1, -1]), st.data())
def test_the_next_bad_cell_is_the_next_in_reading_order(
    case: tuple[Array, HeatWindow], direction: int, data: st.DataObject
) -> None:
    array, window = case
    bad = np.flatnonzero(shrink(reader(array), window).kinds)
    after = data.draw(st.integers(0, window.shape[0] - 1)), data.draw(st.integers(0, window.shape[1] - 1))
    here = after[0] * window.shape[1] + after[1]
    left = bad[bad > here] if direction > 0 else bad[bad < here][::-1]
    expected = divmod(int(left[0]), window.shape[1]) if left.size else None
    assert next_bad(reader(array), window, after, direction) == expected


@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "uint64", "float16", "float32", ">f4", "float64", "complex64"),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    ],
)
def test_every_type_of_numbers(dtype: Any) -> None:
    array = (np.arange(12 * 10).reshape(12, 10) % 7).astype(dtype)
    if array.dtype.kind not in "biu":
        array[5, 5] = np.nan
    if array.dtype.kind == "u":
        array[0, 0] = 2**63
    check(shrink(reader(array), whole(array.shape, (5, 4))), array)


@pytest.mark.parametrize("shape", [(1, 5 * BLOCK), (5 * BLOCK, 1), (1000, 700), (3, 2 * BLOCK)])
@pytest.mark.parametrize("most", [(1, 1), (7, 9), (100, 200)])
def test_tables_of_any_shape_are_read_in_blocks_each_element_once(
    shape: tuple[int, int], most: tuple[int, int]
) -> None:
    array = np.zeros(shape, np.float32)
    array.reshape(-1)[::7919] = -3
    array.reshape(-1)[array.size // 2] = np.nan
    read = 0

    def part(rows: slice, columns: slice) -> Array:
        nonlocal read
        found = array[rows, columns]
        assert 0 < found.size <= BLOCK
        read += found.size
        return found

    picture = shrink(part, whole(shape, most))
    assert read == array.size
    assert picture.nan.sum() == 1
    assert picture.bounds == (-3, 0)
    check(picture, array)


def test_a_picture_can_be_stopped_between_blocks_and_says_how_far_it_is() -> None:
    array = np.zeros((100, BLOCK), np.float32)
    told: list[Progress] = []

    def progress(now: Progress) -> None:
        told.append(now)
        if len(told) == 4:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        shrink(reader(array), whole(array.shape, (10, 16)), progress)
    assert [(now.done, now.total) for now in told] == [(i * BLOCK, array.size) for i in range(4)]


def test_turned_is_the_picture_of_the_transposed_table() -> None:
    array = np.arange(60.0).reshape(6, 10)
    turned = shrink(reader(array.T), whole((10, 6), (4, 3))).turned()
    assert turned.window == HeatWindow(range(0, 6, 2), range(0, 10, 3))
    check(turned, array)


def test_a_picture_without_a_finite_element_has_no_bounds() -> None:
    picture = shrink(reader(np.full((3, 3), np.nan)), whole((3, 3), (1, 1)))
    assert picture.bounds is None
    assert HeatCellKind(int(picture.kinds[0, 0])) is HeatCellKind.NAN


def test_infinities_of_both_signs_in_one_cell_both_show() -> None:
    picture = shrink(reader(np.array([[np.inf, -np.inf, 1.0, -np.inf]])), whole((1, 4), (1, 2)))
    assert [HeatCellKind(int(kind)) for kind in picture.kinds[0]] == [HeatCellKind.BOTH_INF, HeatCellKind.NEG_INF]
