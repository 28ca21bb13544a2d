"""What a view shows as a file: a table as .csv, text as .txt; the numbers keep all their digits."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.session.exporting.files import fresh_text
from tui_debugger.text.clean import clean

_ROWS = 4096
"""Rows between two looks at whether anybody still waits."""
_STARTS_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    path: Path,
    dump: Path,
    progress: ProgressFn = no_progress,
) -> Path:
    """Writes a table as .csv and returns the path written.

    Numbers are written so that they read back as they are, NaN and Inf as ``nan``, ``inf`` and ``-inf``, which numpy
    and pandas take for numbers. Names are made safe for whoever opens the file: see :func:`cell_text`.

    Args:
        header: titles of the columns.
        rows: may be lazy.
        path: where to.
        dump: directory that nothing is written into.
        progress: called now and then; nothing is left behind when it raises.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    with fresh_text(path, dump) as file:
        out = csv.writer(file)
        out.writerow(map(cell_text, header))
        for start in range(0, len(rows), _ROWS):
            progress(Progress(start, len(rows), "writing"))
            stop = min(start + _ROWS, len(rows))
            out.writerows(map(cell_text, rows[i]) for i in range(start, stop))
    return path.expanduser()


def write_text(lines: Iterable[str], path: Path, dump: Path) -> Path:
    """Writes lines of text, cleaned of control characters, and returns the path written.

    Raises:
        TdbgError: the file exists, lies inside the dump, or cannot be written.
    """
    with fresh_text(path, dump) as file:
        file.writelines(f"{clean(line)}\n" for line in lines)
    return path.expanduser()


def cell_text(value: object) -> str:
    """One cell of a .csv.

    Text that a spreadsheet would take for a formula gets a leading apostrophe, unless it is a number; control
    characters become visible ones, line breaks stay.
    """
    if value is None:
        return ""
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return repr(value)
    if not isinstance(value, str):
        return str(value)  # numpy's own give the shortest text that reads back as the same value of their type
    text = "\n".join(map(clean, value.split("\n")))
    return f"'{text}" if text.startswith(_STARTS_FORMULA) and len(text) > 1 and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        complex(text)
    except ValueError:
        return False
    return True
