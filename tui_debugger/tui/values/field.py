"""A slice of a tensor as a table that heat maps know."""

from __future__ import annotations

from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.arrays import Array
from tui_debugger.tui.values.sheet import Sheet
from tui_debugger.words.drawing.heat_page import Field


def field_of(sheet: Sheet) -> Field:
    """A slice of a tensor as a heat map; one free dimension is wrapped, as in the table."""
    lines = sheet.lines
    if not lines:
        return Field(lambda _rows, _columns: sheet.part(()).reshape(1, 1), (1, 1), False, False, _unnamed, _unnamed)
    if sheet.folded:
        (line,) = lines

        def wrapped(_: slice, columns: slice) -> Array:
            return sheet.part((line[columns],)).reshape(1, -1)

        return Field(wrapped, (1, len(line)), True, False, lambda at: str(line[at]), lambda at: f"+{at * line.step}")

    def rectangle(rows: slice, columns: slice) -> Array:
        return sheet.part((lines[0][rows], lines[1][columns]))

    down, across = (sheet.array.strides[axis] for axis in sheet.view.free)
    names = (lambda at: str(lines[0][at]), lambda at: str(lines[1][at]))
    return Field(rectangle, (len(lines[0]), len(lines[1])), False, abs(down) < abs(across), *names)


def _unnamed(_: int) -> str:
    return ""


def is_drawable(array: Array) -> bool:
    """Whether an array holds numbers."""
    return is_numeric(array.dtype)
