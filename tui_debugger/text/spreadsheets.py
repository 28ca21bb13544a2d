"""Tables for spreadsheets: the one place that writes rows for people as .csv, and as workbooks (.xlsx, by openpyxl).

No name becomes a formula. Files in a foreign format (statistic.csv, the index of a converted dump) have their own
writers.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import numpy as np

from tui_debugger.errors import TdbgError
from tui_debugger.text.clean import clean

_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Sink(Protocol):
    def write(self, text: str, /) -> object: ...


class CsvTable:
    """Writes rows of a .csv; ``for_lines``: each row is one line for grep or head, else cells keep line breaks."""

    def __init__(self, file: _Sink, *, for_lines: bool = False) -> None:
        self._out = csv.writer(file, lineterminator="\n" if for_lines else "\r\n")
        self._text = _cell_in_a_line if for_lines else cell_text

    def row(self, cells: Iterable[object]) -> None:
        self._out.writerow(map(self._text, cells))

    def rows(self, rows: Iterable[Iterable[object]]) -> None:
        self._out.writerows(map(self._text, cells) for cells in rows)


def cell_text(value: object) -> str:
    """Returns one cell of a .csv.

    Text that a spreadsheet would take for a formula gets a leading apostrophe, unless it is a number; control
    characters become visible, line breaks stay. Numbers read back unchanged; NaN and Inf are ``nan``, ``inf`` and
    ``-inf``, which numpy and pandas read.
    """
    if value is None:
        return ""
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return repr(value)
    if not isinstance(value, str):
        return str(value)  # numpy's own give the shortest text that reads back as the same value of their type
    text = "\n".join(map(clean, value.split("\n")))
    # What a spreadsheet sees is the value before it was cleaned, too: a tab at the beginning is dropped by some.
    risky = text.startswith(_STARTS_FORMULA) or value.startswith(_STARTS_FORMULA)
    harmless = len(text) <= 1 or set(text.split("\n")) == {"-"} or _is_number(text)  # "-": nothing is known of it
    return f"'{text}" if risky and not harmless else text


def _cell_in_a_line(value: object) -> str:
    return cell_text(value).replace("\n", "\\n")


def _is_number(text: str) -> bool:
    try:
        complex(text)
    except ValueError:
        return False
    return True


MOST_ROWS = 1_048_575
"""Rows of a sheet below its titles; further rows go on in a second sheet."""
_MOST_CHARACTERS: Final = 32_767
_HEAD_FILL: Final = "D9D9D9"


def has_openpyxl() -> bool:
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        return False
    return True


def require_openpyxl(path: Path, instead: str) -> None:
    """Raises TdbgError without openpyxl; ``instead`` is its hint, such as ``use --csv``."""
    if not has_openpyxl():
        raise TdbgError(
            "writing .xlsx needs openpyxl, which is not installed",
            where=str(path),
            hint=f"pip install 'tui_debugger[xlsx]', or {instead}",
        )


class Workbook:
    """A workbook whose sheets are filled side by side; a full sheet goes on in another one."""

    def __init__(self, sheets: Mapping[str, Sequence[str]], widths: Mapping[str, Sequence[int]] | None = None) -> None:
        from openpyxl import Workbook as Book

        self._book = Book(write_only=True)
        self._titles = sheets
        self._widths = widths or {}
        self._pages = {name: self._page(name, name) for name in sheets}
        self._rows = Counter[str]()

    def append(self, sheet: str, row: Iterable[object]) -> None:
        full, rest = divmod(self._rows[sheet], MOST_ROWS)
        if full and not rest:
            self._pages[sheet] = self._page(sheet, f"{sheet}_{full + 1}")
        self._rows[sheet] += 1
        page = self._pages[sheet]
        page.append([_cell(page, value) for value in row])

    def save(self, file: BinaryIO) -> None:
        self._book.save(file)

    def _page(self, sheet: str, name: str) -> Any:
        from openpyxl.utils import get_column_letter

        page = self._book.create_sheet(name)
        page.freeze_panes = "B2"
        titles = self._titles[sheet]
        for at, width in enumerate(self._widths.get(sheet, ()), 1):
            page.column_dimensions[get_column_letter(at)].width = width
        page.auto_filter.ref = f"A1:{get_column_letter(len(titles))}1"
        page.append(list(_title_cells(page, titles)))
        return page


def _title_cells(page: Any, titles: Sequence[str]) -> Iterator[Any]:
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font, PatternFill

    for title in titles:
        cell = WriteOnlyCell(page, title)
        cell.font = Font(bold=True)
        cell.fill = PatternFill("solid", fgColor=_HEAD_FILL)
        yield cell


def _cell(page: Any, value: object) -> object:
    """Returns a cell: text stays text, even if it looks like a formula; NaN and Inf become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else _as_text(page, "-Inf")
    if not isinstance(value, str):
        return value
    text = "\n".join(map(clean, value.split("\n"))).replace("\ufffe", "�").replace("\uffff", "�")
    if len(text) > _MOST_CHARACTERS:
        text = text[: _MOST_CHARACTERS - 1] + "…"
    return _as_text(page, text) if text.startswith(("=", "#", "+", "-", "@")) else text


def _as_text(page: Any, text: str) -> object:
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(page, text)
    cell.data_type = "s"
    return cell
