"""Workbooks: text stays text, numbers that a workbook cannot hold are words, a full sheet goes on in another one."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from tui_debugger.text import spreadsheets
from tui_debugger.text.spreadsheets import Workbook


def written(path: Path, book: Workbook) -> openpyxl.Workbook:
    with path.open("wb") as file:
        book.save(file)
    return openpyxl.load_workbook(path)


def test_no_cell_is_a_formula_and_none_is_lost(tmp_path: Path) -> None:
    cells = ["=1+1", "-Inf 1 of 4", "@a", "b\x1b[31m", "x" * 40_000, 1.5, 3, True, None]
    book = Workbook({"nodes": [str(at) for at in range(len(cells))]})
    book.append("nodes", cells)
    (row,) = written(tmp_path / "b.xlsx", book)["nodes"].iter_rows(min_row=2)
    assert [cell.value for cell in row[:4]] == ["=1+1", "-Inf 1 of 4", "@a", "b\\x1b[31m"]
    assert len(str(row[4].value)) == 32_767
    assert [cell.value for cell in row[5:]] == [1.5, 3, True, None]
    assert {cell.data_type for cell in row[:5]} == {"s"}


def test_nan_and_inf_are_words(tmp_path: Path) -> None:
    book = Workbook({"a": ["x"]})
    for value in (float("nan"), float("inf"), float("-inf")):
        book.append("a", [value])
    found = [row[0] for row in written(tmp_path / "b.xlsx", book)["a"].iter_rows(min_row=2, values_only=True)]
    assert found == ["NaN", "Inf", "-Inf"]


def test_a_full_sheet_goes_on_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheets, "MOST_ROWS", 2)
    book = Workbook({"a": ["x"]})
    for value in range(5):
        book.append("a", [value])
    sheets = written(tmp_path / "b.xlsx", book)
    assert {page.title: [row[0] for row in page.values] for page in sheets} == {
        "a": ["x", 0, 1],
        "a_2": ["x", 2, 3],
        "a_3": ["x", 4],
    }
