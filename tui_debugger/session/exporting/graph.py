"""Graphs as files: a workbook as MindInsight exports it, or plain .csv and .json."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from tui_debugger.errors import TdbgError
from tui_debugger.session.exporting.files import fresh_file, fresh_text
from tui_debugger.session.exporting.graph_table import (
    NODE_COLUMNS,
    OPERATOR,
    SHEETS,
    RankGraph,
    Sheet,
    fill_sheets,
    flat_node_row,
    node_rows,
)
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import document_of_rows

MOST_ROWS = 1_048_575
"""Rows of a sheet below its titles; what is more goes on in a second sheet."""
_MOST_CHARACTERS = 32_767
"""What a cell holds."""
_HEAD_FILL = "D9D9D9"


def has_openpyxl() -> bool:
    """Whether workbooks can be written."""
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        return False
    return True


def write_workbook(graphs: Iterable[RankGraph], path: Path, dump: Path, *, force: bool = False) -> int:
    """Writes the sheets of ``graph_table`` as .xlsx, row by row, and returns how many nodes.

    Raises:
        TdbgError: openpyxl is missing; the file exists, lies inside the dump, or cannot be written.
    """
    if not has_openpyxl():
        raise TdbgError(
            "writing .xlsx needs openpyxl, which is not installed",
            where=str(path),
            hint="pip install 'tui_debugger[xlsx]', or choose a name that ends with .csv or .json",
        )
    with fresh_file(path, dump, force=force, what="the workbook") as file:
        book = _Book()
        number = fill_sheets(graphs, str(dump), book.append)
        book.save(file)
    return number


def write_sheets_csv(graphs: Iterable[RankGraph], stem: Path, dump: Path) -> Path:
    """Writes every sheet of the workbook as ``STEM_operator.csv`` and so on, for those without openpyxl.

    Returns:
        The operators' file.

    Raises:
        TdbgError: a file exists, lies inside the dump, or cannot be written.
    """
    paths = {sheet.name: stem.with_name(f"{stem.name}_{sheet.name}.csv") for sheet in SHEETS}
    with ExitStack() as stack:
        writers = {}
        for sheet in SHEETS:
            writers[sheet.name] = csv.writer(stack.enter_context(fresh_text(paths[sheet.name], dump)))
            writers[sheet.name].writerow([title for title, _ in sheet.columns])
        fill_sheets(graphs, str(dump), lambda sheet, row: writers[sheet.name].writerow(row))
    return paths[OPERATOR.name]


def write_nodes_csv(graphs: Iterable[RankGraph], path: Path, dump: Path, *, force: bool = False) -> int:
    """Writes one row per node and returns how many.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    number = 0
    with fresh_text(path, dump, force=force) as file:
        writer = csv.writer(file)
        writer.writerow(NODE_COLUMNS)
        for row in (row for graph in graphs for row in node_rows(graph)):
            writer.writerow(flat_node_row(row))
            number += 1
    return number


_AROUND = 2
"""Pieces of a document that are no rows: its head and its tail."""


def write_nodes_json(graphs: Iterable[RankGraph], path: Path, dump: Path, *, force: bool = False) -> int:
    """Writes ``{"path": DUMP, "nodes": [...]}`` and returns how many nodes.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    number = 0
    with fresh_text(path, dump, force=force) as file:
        rows = (row for graph in graphs for row in node_rows(graph))
        for piece in document_of_rows({"path": str(dump)}, "nodes", rows):
            file.write(piece)
            number += 1
    return number - _AROUND


class _Book:
    """A workbook whose sheets are filled side by side; a sheet that is full goes on in another one."""

    def __init__(self) -> None:
        from openpyxl import Workbook

        self._book = Workbook(write_only=True)
        self._pages = {sheet.name: self._page(sheet, sheet.name) for sheet in SHEETS}
        self._rows = Counter[str]()

    def append(self, sheet: Sheet, row: Sequence[object]) -> None:
        """Adds a row to a sheet."""
        full, rest = divmod(self._rows[sheet.name], MOST_ROWS)
        if full and not rest:
            self._pages[sheet.name] = self._page(sheet, f"{sheet.name}_{full + 1}")
        self._rows[sheet.name] += 1
        page = self._pages[sheet.name]
        page.append([_cell(page, value) for value in row])

    def save(self, file: BinaryIO) -> None:
        """Writes the workbook."""
        self._book.save(file)

    def _page(self, sheet: Sheet, name: str) -> Any:
        from openpyxl.utils import get_column_letter

        page = self._book.create_sheet(name)
        page.freeze_panes = "B2"
        for at, (_, width) in enumerate(sheet.columns, 1):
            page.column_dimensions[get_column_letter(at)].width = width
        page.auto_filter.ref = f"A1:{get_column_letter(len(sheet.columns))}1"
        page.append(list(_titles(page, sheet)))
        return page


def _titles(page: Any, sheet: Sheet) -> Iterator[Any]:
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font, PatternFill

    for title, _ in sheet.columns:
        cell = WriteOnlyCell(page, title)
        cell.font = Font(bold=True)
        cell.fill = PatternFill("solid", fgColor=_HEAD_FILL)
        yield cell


def _cell(page: Any, value: object) -> object:
    """A value as a cell: text stays text, whatever it begins with."""
    if not isinstance(value, str):
        return value
    text = "\n".join(map(clean, value.split("\n"))).replace("\ufffe", "�").replace("\uffff", "�")
    if len(text) > _MOST_CHARACTERS:
        text = text[: _MOST_CHARACTERS - 1] + "…"
    if not text.startswith(("=", "#", "+", "-", "@")):
        return text
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(page, text)
    cell.data_type = "s"
    return cell
