"""The values window without a screen: how numbers read, how slices lie in rows and columns, how places are found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.text.values import (
    CellKind,
    Family,
    NumberFormat,
    ValueTable,
    best_fold,
    complex_text,
    exact_text,
    family,
    float_text,
    format_window,
    parse_slice,
)
from tui_debugger.tui.values import search as value_search
from tui_debugger.tui.values.search import FoundElement, can_be_bad, find_bad, find_extreme

FOUR = NumberFormat()


def _stop(_: Progress) -> None:
    raise CancelledError("stopped")


class TestNumbersAsText:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.25, "0.2500"),
            (-3.0, "-3.0000"),
            (0.0, "0"),
            (-0.0, "-0"),
            (math.nan, "NaN"),
            (math.inf, "+Inf"),
            (-math.inf, "-Inf"),
            (1e-9, "1.000e-09"),
            (-123456789.0, "-1.235e+08"),
        ],
    )
    def test_a_cell(self, value: float, text: str) -> None:
        assert float_text(value, FOUR) == text

    @given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 10), st.booleans())
    def test_only_zero_reads_as_zero(self, value: float, precision: int, scientific: bool) -> None:
        text = float_text(value, NumberFormat(precision, scientific))
        assert (float(text) == 0) == (value == 0)

    @given(st.floats(), st.integers(0, 10), st.booleans())
    def test_no_cell_is_wider_than_20(self, value: float, precision: int, scientific: bool) -> None:
        assert len(float_text(value, NumberFormat(precision, scientific))) <= 20

    def test_precision_stays_between_0_and_10(self) -> None:
        assert FOUR.finer(100).precision == 10
        assert FOUR.finer(-100).precision == 0
        assert FOUR.toggled().scientific
        assert FOUR.toggled().toggled() == FOUR

    def test_complex_numbers(self) -> None:
        assert complex_text(1.5 - 2j, NumberFormat(1)) == "1.5-2.0j"
        assert complex_text(complex(0, math.inf), NumberFormat(1)) == "0+Infj"
        assert complex_text(complex(math.nan, 1), NumberFormat(1)) == "NaN+1.0j"

    @pytest.mark.parametrize(
        ("dtype", "expected"),
        [
            ("bool", Family.BOOL),
            ("int8", Family.INT),
            ("uint64", Family.INT),
            ("float16", Family.FLOAT),
            (ml_dtypes.bfloat16, Family.FLOAT),
            (ml_dtypes.float8_e4m3fn, Family.FLOAT),
            (ml_dtypes.float8_e5m2, Family.FLOAT),
            (ml_dtypes.int4, Family.INT),
            ("complex64", Family.COMPLEX),
            ("S4", Family.OTHER),
            ("M8[s]", Family.OTHER),
        ],
    )
    def test_families(self, dtype: Any, expected: Family) -> None:
        assert family(np.dtype(dtype)) is expected

    def test_windows_of_every_kind(self) -> None:
        def row(values: Any) -> list[tuple[str, CellKind]]:
            return format_window(np.asarray(values).reshape(1, -1), NumberFormat(1))[0]

        assert row([True, False]) == [("True", CellKind.NORMAL), ("False", CellKind.ZERO)]
        assert row(np.array([2**63, 0], "u8")) == [("9223372036854775808", CellKind.NORMAL), ("0", CellKind.ZERO)]
        assert row(np.array([np.nan, -np.inf], "f2")) == [("NaN", CellKind.NAN), ("-Inf", CellKind.INF)]
        assert row(np.array([1.5, 0], ml_dtypes.bfloat16)) == [("1.5", CellKind.NORMAL), ("0", CellKind.ZERO)]
        assert row(np.array([448, np.nan], ml_dtypes.float8_e4m3fn))[1] == ("NaN", CellKind.NAN)
        assert row(np.array([-8, 7], ml_dtypes.int4)) == [("-8", CellKind.NORMAL), ("7", CellKind.NORMAL)]
        assert row([0j, complex(np.inf, 0)])[1][1] is CellKind.INF
        assert row(np.array([b"\x1b[2J"]))[0][0] == r"b'\x1b[2J'"

    def test_the_exact_value_has_every_digit_of_its_type_and_no_more(self) -> None:
        assert exact_text(np.float32(0.1)) == "0.1"
        assert exact_text(np.float64(0.1) + 0.2) == "0.30000000000000004"
        assert exact_text(ml_dtypes.bfloat16(0.1)) == "0.100098"
        assert exact_text(np.float32(np.nan)) == "NaN"
        assert exact_text(np.float16(-np.inf)) == "-Inf"
        assert exact_text(np.int64(-7)) == "-7"


class TestSheet:
    def sheet(self, shape: tuple[int, ...], text: str, fold: int = 10) -> ValueTable:
        return ValueTable(np.arange(math.prod(shape)).reshape(shape), parse_slice(text, shape), fold)

    def test_two_free_dimensions_are_rows_and_columns(self) -> None:
        sheet = self.sheet((2, 3, 4), "[1, :, 1:3]")
        assert (sheet.rows, sheet.columns) == (3, 2)
        assert sheet.cells(1, 0, 2, 2).tolist() == [[17, 18], [21, 22]]
        assert sheet.index(2, 1) == (1, 2, 2)
        assert sheet.place((1, 2, 2)) == (2, 1)
        assert sheet.place((0, 2, 2)) is None
        assert sheet.place((1, 2, 0)) is None
        assert (sheet.row_label(2), sheet.column_label(1)) == ("2", "2")

    def test_backward_ranges_show_backward(self) -> None:
        sheet = self.sheet((3, 4), "[::-1, ::-2]")
        assert sheet.cells(0, 0, 3, 2).tolist() == [[11, 9], [7, 5], [3, 1]]
        assert sheet.cells(1, 1, 2, 1).tolist() == [[5], [1]]
        assert sheet.index(2, 1) == (0, 1)
        assert sheet.place((0, 1)) == (2, 1)

    def test_one_free_dimension_is_folded_like_text(self) -> None:
        sheet = self.sheet((2, 23), "[1, :]")
        assert (sheet.rows, sheet.columns, sheet.folded) == (3, 10, True)
        assert sheet.cells(1, 8, 2, 2)[0].tolist() == [41, 42]
        assert sheet.index(2, 2) == (1, 22)
        assert sheet.index(2, 3) is None
        assert sheet.place((1, 22)) == (2, 2)
        assert (sheet.row_label(2), sheet.column_label(3)) == ("20", "+3")

    def test_a_scalar_is_one_cell(self) -> None:
        sheet = self.sheet((), "[]")
        assert (sheet.rows, sheet.columns) == (1, 1)
        assert sheet.cells(0, 0, 1, 1).tolist() == [[0]]
        assert sheet.index(0, 0) == ()
        assert sheet.place(()) == (0, 0)

    def test_nothing_to_show(self) -> None:
        assert self.sheet((0, 3), "[:, :]").empty
        assert self.sheet((4,), "[2:2]").empty

    @given(st.data())
    def test_every_cell_is_where_its_index_says(self, data: st.DataObject) -> None:
        shape = tuple(data.draw(st.lists(st.integers(1, 5), max_size=4)))
        words = [str(data.draw(st.integers(0, size - 1))) for size in shape]
        for i in range(min(2, len(shape))):
            words[-1 - i] = data.draw(st.sampled_from([":", "1:", "::-1", "::2", "0:1", words[-1 - i]]))
        sheet = self.sheet(shape, f"[{', '.join(words)}]", fold=data.draw(st.integers(1, 4)))
        if sheet.empty:
            return
        cells = sheet.cells(0, 0, sheet.rows, sheet.columns)
        for row, column in np.ndindex(sheet.rows, sheet.columns):
            index = sheet.index(row, column)
            if index is not None:
                assert cells[row, column] == sheet.array[index]
                assert sheet.place(index) == (row, column)

    def test_folds_are_numbers_in_which_people_count(self) -> None:
        assert best_fold(78, 8) == 8
        assert best_fold(5, 30) == 1
        assert best_fold(10_000, 8) == 100

    def test_only_the_window_of_a_memory_map_is_read(self, tmp_path: Path) -> None:
        # 40 GB of a sparse file: reading more than a window would take minutes and all memory.
        path = tmp_path / "huge.raw"
        with path.open("wb") as file:
            file.truncate(4 * 100_000 * 100_000)
        array = np.memmap(path, np.float32, "r", shape=(100_000, 100_000))
        sheet = ValueTable(array, parse_slice("[:, :]", array.shape))
        assert sheet.cells(99_990, 99_990, 10, 10).tolist() == np.zeros((10, 10)).tolist()


class TestSearch:
    @pytest.fixture(autouse=True)
    def _small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(value_search, "BLOCK", 7)

    def test_next_and_previous_wrap_around_once(self) -> None:
        array = np.zeros((4, 10), np.float32)
        array[1, 3], array[3, 9] = np.nan, -np.inf
        assert find_bad(array, (0, 0), 1) == FoundElement((1, 3))
        assert find_bad(array, (1, 3), 1) == FoundElement((3, 9))
        assert find_bad(array, (3, 9), 1) == FoundElement((1, 3), wrapped=True)
        assert find_bad(array, (1, 3), -1) == FoundElement((3, 9), wrapped=True)
        assert find_bad(array, (3, 9), -1) == FoundElement((1, 3))

    def test_the_only_one_finds_itself(self) -> None:
        array = np.array([0, np.nan, 0])
        assert find_bad(array, (1,), 1) == FoundElement((1,), wrapped=True)
        assert find_bad(array, (1,), -1) == FoundElement((1,), wrapped=True)

    @pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
    def test_every_type_that_can_be_bad(self, dtype: Any) -> None:
        array = np.zeros(30, dtype)
        array[20] = np.nan
        assert can_be_bad(array)
        assert find_bad(array, (0,), 1) == FoundElement((20,))

    @pytest.mark.parametrize("dtype", ["bool", "i4", "u8", ml_dtypes.int4, "S3"])
    def test_types_that_cannot(self, dtype: Any) -> None:
        assert not can_be_bad(np.zeros(3, dtype))
        assert find_bad(np.zeros(3, dtype), (0,), 1) is None

    @given(st.lists(st.sampled_from([0.0, 1.0, -2.0, math.nan, math.inf]), max_size=40), st.data())
    def test_equals_the_obvious_search(self, values: list[float], data: st.DataObject) -> None:
        array = np.array(values)
        bad = [i for i, value in enumerate(values) if not math.isfinite(value)]
        if not values:
            assert find_bad(array, (), 1) is None
            return
        at = data.draw(st.integers(0, len(values) - 1))
        ahead = [i for i in bad if i > at] or bad
        behind = [i for i in bad if i < at][::-1] or bad[::-1]
        for direction, expected in ((1, ahead), (-1, behind)):
            found = find_bad(array, (at,), direction)
            assert (found.index if found else None) == ((expected[0],) if expected else None)

    def test_fortran_order_is_searched_in_its_own_order_without_a_copy(self) -> None:
        array = np.asfortranarray(np.zeros((50, 3)))
        array[40, 0] = array[2, 1] = np.nan
        assert find_bad(array, (0, 0), 1) == FoundElement((40, 0))
        assert find_bad(array, (40, 0), 1) == FoundElement((2, 1))

    def test_a_search_can_be_stopped_between_blocks(self) -> None:
        array = np.zeros(100)
        array[99] = np.nan
        told: list[Progress] = []

        def progress(now: Progress) -> None:
            told.append(now)
            if len(told) == 3:
                raise CancelledError("stopped")

        with pytest.raises(CancelledError):
            find_bad(array, (0,), 1, progress=progress)
        assert [(now.done, now.total) for now in told] == [(0, 100), (7, 100), (14, 100)]
        with pytest.raises(CancelledError):
            find_extreme(array, True, progress=_stop)

    def test_extremes_are_finite_and_first(self) -> None:
        array = np.array([np.nan, 3, -np.inf, 5, 5, np.inf, -2, -2])
        assert find_extreme(array, True) == FoundElement((3,))
        assert find_extreme(array, False) == FoundElement((6,))
        assert find_extreme(np.array([np.nan, np.inf]), True) is None
        assert find_extreme(np.array([], np.float32), True) is None

    @pytest.mark.parametrize("dtype", ["bool", "i8", "u1", "f2", "c8", ml_dtypes.bfloat16, ml_dtypes.int4])
    def test_extremes_of_every_type(self, dtype: Any) -> None:
        array = np.zeros((3, 9), dtype)
        array[2, 4] = 1
        assert find_extreme(array, True) == FoundElement((2, 4))

    def test_text_has_no_extremes(self) -> None:
        assert find_extreme(np.array(["a", "b"]), True) is None

    def test_a_scalar(self) -> None:
        assert find_bad(np.array(np.nan), (), 1) == FoundElement((), wrapped=True)
        assert find_extreme(np.array(2.0), True) == FoundElement(())

    def test_what_does_not_lie_in_one_piece_is_not_copied_as_a_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(value_search, "BLOCK", 1 << 16)
        array = np.broadcast_to(np.array([[0.0], [np.nan]]), (2, 1 << 18))
        assert find_bad(array, (0, 0), 1) == FoundElement((1, 0))
        huge = np.broadcast_to(np.float32(np.nan), (100_000, 100_000))
        assert find_bad(huge, (0, 0), 1) == FoundElement((0, 1))
