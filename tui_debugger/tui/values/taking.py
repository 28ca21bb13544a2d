"""What the tensor view hands out: the slice as text, as a table and as an array, and the value under the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from tui_debugger.analysis.slicing import apply
from tui_debugger.model import TensorKey
from tui_debugger.tui.values.sheet import Index, Sheet
from tui_debugger.tui.views.export import Cells, Extract, stem_of
from tui_debugger.words.numbers import plural
from tui_debugger.words.values import NumberFormat, exact_text, format_window

MOST = 20_000
"""Elements that are written out as text: more than a clipboard takes. Files of numbers have all of them."""
TOGETHER = 4096
"""Elements of a line that are read at once."""


@dataclass(frozen=True, slots=True)
class SheetRows(Sequence[Cells]):
    """The rows of a slice for a .csv, read when they are written: index and values, one line per element of a line."""

    sheet: Sheet
    rows: range

    def __len__(self) -> int:
        """How many."""
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Cells: ...
    @overload
    def __getitem__(self, at: slice) -> SheetRows: ...
    def __getitem__(self, at: int | slice) -> Cells | SheetRows:
        """One row, or some, still unread."""
        if isinstance(at, slice):
            return SheetRows(self.sheet, self.rows[at])
        return next(iter(SheetRows(self.sheet, self.rows[at : at + 1 or None])))

    def __iter__(self) -> Iterator[Cells]:
        """Reads."""
        sheet, lines = self.sheet, self.sheet.lines
        if len(lines) == 2:
            for row in self.rows:
                yield (lines[0][row], *sheet.part((lines[0][row : row + 1], lines[1]))[0])
        elif lines:
            for start in range(0, len(self.rows), TOGETHER):
                rows = self.rows[start : start + TOGETHER]
                line = lines[0][rows[0] : rows[-1] + 1]
                yield from zip(line, sheet.part((line,)), strict=True)
        else:
            yield from (("", sheet.part(())[()]) for _ in self.rows)


def take(sheet: Sheet, form: NumberFormat, heading: Sequence[str], element: Index | None, key: TensorKey) -> Extract:
    """What can be copied and exported of a slice.

    Args:
        sheet: the slice.
        form: how numbers are written as text.
        heading: lines that go before the numbers in the text.
        element: full index of the element under the cursor.
        key: the tensor.
    """
    lines = sheet.lines
    header = ("index", *(str(column) for column in lines[1])) if len(lines) == 2 else ("index", "value")
    count = (sheet.rows if len(lines) == 2 else len(lines[0]) if lines else 1) if not sheet.empty else 0
    return Extract(
        stem=_stem(sheet, key),
        text="\n".join([*heading, "", *_text(sheet, form)]),
        one="" if element is None else exact_text(sheet.array[element]),
        header=header,
        rows=SheetRows(sheet, range(count)),
        array=lambda: apply(sheet.array, sheet.view),
    )


def _stem(sheet: Sheet, key: TensorKey) -> str:
    """Name of a file: the tensor, and the slice unless that is all of it."""
    name = stem_of(key)
    if all(isinstance(entry, range) for entry in sheet.view.entries) and sheet.view.text.strip("[:, ]") == "":
        return name
    words = [word if word != ":" else "all" for word in sheet.view.text[1:-1].split(", ")]
    return f"{name}.{'_'.join(re.sub(r'[^0-9A-Za-z]+', '-', word) for word in words)}"[:160]


def _text(sheet: Sheet, form: NumberFormat) -> list[str]:
    """The numbers in columns, with the indices of rows and columns."""
    if sheet.empty:
        return ["no elements"]
    columns = min(sheet.columns, MOST)
    rows = min(sheet.rows, max(1, MOST // columns))
    cells = [[text for text, _ in row] for row in format_window(sheet.cells(0, 0, rows, columns), form)]
    if sheet.folded:
        cells[-1] = [text for at, text in enumerate(cells[-1]) if sheet.index(rows - 1, at) is not None]
    labels = [sheet.column_label(column) for column in range(columns)]
    width = max(len(text) for row in (labels, *cells) for text in row)
    beside = max(len(sheet.row_label(row)) for row in (0, rows - 1))
    lines = [
        f"{name:>{beside}} " + " ".join(text.rjust(width) for text in row)
        for name, row in zip(("", *(sheet.row_label(row) for row in range(rows))), (labels, *cells), strict=True)
    ]
    left = sheet.rows - rows, sheet.columns - columns
    if any(left):
        lines.append(f"… {plural(left[0], 'row')} and {plural(left[1], 'column')} more: export as .csv or .npy")
    return lines
