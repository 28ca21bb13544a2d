"""Tables as .csv that are safe to open in a spreadsheet: the one place that writes rows for people.

Files in a format that others defined, and that a program reads back (statistic.csv, the index of a converted
dump), are written as they must be by their own writers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from tui_debugger.text.clean import clean

_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Sink(Protocol):
    def write(self, text: str, /) -> object: ...


class CsvTable:
    """Writes rows of a .csv; every cell goes through :func:`cell_text`.

    Args:
        file: where to.
        for_lines: every row is one line that ends as lines of this system do, for a pipe into grep or head; else line
            breaks inside a cell stay.
    """

    def __init__(self, file: _Sink, *, for_lines: bool = False) -> None:
        self._out = csv.writer(file, lineterminator="\n" if for_lines else "\r\n")
        self._text = _cell_in_a_line if for_lines else cell_text

    def row(self, cells: Iterable[object]) -> None:
        """Writes one row."""
        self._out.writerow(map(self._text, cells))

    def rows(self, rows: Iterable[Iterable[object]]) -> None:
        """Writes several rows."""
        self._out.writerows(map(self._text, cells) for cells in rows)


def cell_text(value: object) -> str:
    """Returns one cell of a .csv.

    Text that a spreadsheet would take for a formula gets a leading apostrophe, unless it is a number; control
    characters become visible ones, line breaks stay. Numbers are written so that they read back as they are, NaN and
    Inf as ``nan``, ``inf`` and ``-inf``, which numpy and pandas take for numbers.
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
