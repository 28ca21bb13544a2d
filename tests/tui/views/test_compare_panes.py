"""Windows of two tensors as text: differences, marks, three lines for an element."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.compare_pairs import Boundary, Pairs
from tui_debugger.text.heat_map import heat_table_of
from tui_debugger.text.values import CellKind, NumberFormat, default_slice, parse_slice
from tui_debugger.tui.views.compare_panes import (
    MARK,
    CellContent,
    ComparisonRule,
    DifferenceTable,
    TripleTable,
    value_table_of,
)

Array = npt.NDArray[Any]
FORM = NumberFormat(1)
NAN, INF = np.nan, np.inf
EXACTLY = ComparisonRule()


def texts(
    here: Array, there: Array, shown: CellContent = CellContent.DIFFERENCE, rule: ComparisonRule = EXACTLY
) -> list[list[str]]:
    """The whole sheet as text."""
    sheet = value_table_of(Pairs(here, there), parse_slice(default_slice(here.shape), here.shape), shown, rule)
    return [[text for text, _ in line] for line in sheet.texts(0, 0, sheet.rows, sheet.columns, FORM)]


def test_what_the_cells_hold() -> None:
    here, there = np.array([[1.5, 2.0]]), np.array([[1.0, 2.0]])
    assert texts(here, there) == [["0.5 ", "0 "]]
    assert texts(here, there, CellContent.HERE) == [["1.5", "2.0"]]
    assert texts(here, there, CellContent.THERE) == [["1.0", "2.0"]]
    assert texts(here, there, CellContent.ALL) == [["1.5 ", "2.0 "], ["1.0 ", "2.0 "], ["0.5 ", "0 "]]


def test_nan_and_inf_on_one_side_stand_out_and_on_both_do_not() -> None:
    here, there = np.array([[NAN, NAN, INF, INF, 1.0]]), np.array([[NAN, 1.0, INF, -INF, 1.0]])
    assert texts(here, there) == [["NaN ", f"NaN{MARK}", "0 ", f"+Inf{MARK}", "0 "]]
    sheet = value_table_of(Pairs(here, there), parse_slice(":,:", (1, 5)), CellContent.DIFFERENCE, ComparisonRule())
    kinds = [kind for _, kind in sheet.texts(0, 0, 1, 5, FORM)[0]]
    assert kinds == [CellKind.ZERO, CellKind.OUTSIDE, CellKind.ZERO, CellKind.OUTSIDE, CellKind.ZERO]


def test_the_slider_makes_small_differences_0_and_a_tolerance_marks_what_is_outside() -> None:
    here, there = np.array([[1.0, 4.0, 9.0]]), np.zeros((1, 3))
    slider = ComparisonRule(Boundary(percent=50), 4.5)
    assert texts(here, there, rule=slider) == [["0 ", "0 ", f"9.0{MARK}"]]
    assert texts(here, there, rule=ComparisonRule(Boundary(atol=4))) == [["1.0 ", "4.0 ", f"9.0{MARK}"]]


def test_whole_numbers_stay_whole_and_unsigned_ones_may_be_below_0() -> None:
    assert texts(np.array([[1]], np.uint8), np.array([[3]], np.uint8)) == [["-2 "]]
    assert texts(np.array([[True]]), np.array([[False]])) == [["1 "]]
    assert texts(np.array([[2**63 - 1]]), np.array([[-(2**63)]])) == [["1.8e+19 "]]


@given(st.integers(0, 20), st.integers(1, 9), st.integers(0, 5), st.integers(1, 5))
def test_any_window_of_three_lines_is_cut_from_the_whole(top: int, height: int, left: int, width: int) -> None:
    here = np.arange(42.0).reshape(7, 6)
    sheet = TripleTable(array=here, view=parse_slice(":,:", (7, 6)), pairs=Pairs(here, here * 2), rule=ComparisonRule())
    whole = sheet.texts(0, 0, sheet.rows, 6, FORM)
    height = min(height, sheet.rows - top)
    found = sheet.texts(top, left, height, width, FORM)
    assert found == [line[left : left + width] for line in whole[top : top + height]]
    assert len(whole) == 21


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 4), (2, 3, 4)])
def test_every_element_has_a_place_and_the_place_its_index(shape: tuple[int, ...]) -> None:
    here = np.zeros(shape)
    view = parse_slice(default_slice(shape), shape)
    for shown in CellContent:
        sheet = value_table_of(Pairs(here, here), view, shown, ComparisonRule())
        for index in np.ndindex(shape):
            place = sheet.place(index)
            if place is not None:
                assert sheet.index(*place) == index
                assert sheet.row_label(place[0]) is not None
    triple = value_table_of(Pairs(here, here), view, CellContent.ALL, ComparisonRule())
    assert triple.rows == 3 * value_table_of(Pairs(here, here), view, CellContent.HERE, ComparisonRule()).rows
    assert [triple.row_label(part).strip() for part in (1, 2)] == ["·", "Δ"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_heat_map_sees_the_same_differences(order: Literal["C", "F"]) -> None:
    here, there = (np.array([[1.0, NAN], [3.0, INF]]).copy(order) for _ in range(2))
    there[0, 0] = 0.5
    sheet = value_table_of(Pairs(here, there), parse_slice(":,:", (2, 2)), CellContent.DIFFERENCE, ComparisonRule())
    assert isinstance(sheet, DifferenceTable)
    found = heat_table_of(sheet).read(slice(0, 2), slice(0, 2))
    assert np.array_equal(found, np.array([[0.5, NAN], [0, 0]]), equal_nan=True)
