"""The table of values: only the cells on the screen are read and formatted."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.arrays import Array
from tui_debugger.text.values import CellKind, Index, NumberFormat, Slice, Texts, ValueTable, best_fold
from tui_debugger.tui.widgets.text import fit

GAP = 1
"""Cells between columns."""
_KINDS = {
    CellKind.ZERO: "value-grid--zero",
    CellKind.NAN: "value-grid--nan",
    CellKind.INF: "value-grid--inf",
    CellKind.OUTSIDE: "value-grid--outside",
}


class ValueGrid(Widget, can_focus=True):
    """A table of numbers with row and column indices, and a cursor cell.

    Columns are as wide as the widest number seen so far, and shrink only when slice or format change: they do not jump.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "value-grid--header",
        "value-grid--zero",
        "value-grid--nan",
        "value-grid--inf",
        "value-grid--outside",
    }
    DEFAULT_CSS = """
    ValueGrid {
        height: 1fr;
        & > .value-grid--header { color: $text-muted; text-style: bold; }
        & > .value-grid--zero { color: $text-muted; }
        & > .value-grid--nan { color: $error; text-style: bold; }
        & > .value-grid--inf { color: #d787ff; text-style: bold; }
        & > .value-grid--outside { color: $warning; text-style: bold; }
    }
    """

    class CursorMoved(Message):
        """The cursor came to another cell, or the cell got another value."""

    def __init__(self) -> None:
        super().__init__(id="grid")
        self.value_table: ValueTable | None = None
        self.form = NumberFormat()
        self.row = self.column = 0
        self._top = self._left = 0
        self._cell = 1
        self._text = ""
        self._window: tuple[object, Texts] = (None, [])

    # -- what it shows ---------------------------------------------------------------------------

    def set_view(self, array: Array, view: Slice) -> None:
        self.set_table(ValueTable(array, view))

    def set_table(self, value_table: ValueTable) -> None:
        """Shows a table; the cursor stays on its row and column, as far as they exist."""
        self.value_table = value_table
        self._text = ""
        self._cell = 1
        self._settle()

    def set_format(self, form: NumberFormat) -> None:
        self.form = form
        self._cell = 1
        self._settle()

    def show_text(self, text: str) -> None:
        """Shows a text instead of values."""
        self.value_table = None
        self._text = text
        self.refresh()

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the cursor's cell; None if no values are shown."""
        return (
            None
            if self.value_table is None or self.value_table.empty
            else self.value_table.index(self.row, self.column)
        )

    def go_to(self, index: Index) -> bool:
        """Moves the cursor to an element; False if the slice does not show it."""
        place = self.value_table.place(index) if self.value_table else None
        if place is None:
            return False
        self.move_to(*place)
        return True

    # -- moving ----------------------------------------------------------------------------------

    @property
    def page_rows(self) -> int:
        """Rows of values that fit below the header."""
        return max(1, self.size.height - 1)

    @property
    def page_columns(self) -> int:
        return max(1, (self.size.width - self._label_width) // (self._cell + GAP))

    def move_to(self, row: int, column: int) -> None:
        """Moves the cursor to a cell, within bounds, and scrolls to it."""
        value_table = self.value_table
        if value_table is None or value_table.empty:
            return
        before = (self._top, self._left, self._cell)
        old = self.row
        self.row = max(0, min(row, value_table.rows - 1))
        self.column = max(0, min(column, value_table.columns - 1))
        while value_table.index(self.row, self.column) is None:  # the last row of a folded line is shorter
            self.column -= 1
        self._reveal()
        if before != (self._top, self._left, self._cell) or self.value_table is not value_table:
            self.refresh()
        else:
            self._refresh_row(old)
            self._refresh_row(self.row)
        self.post_message(self.CursorMoved())

    def move_by(self, rows: int, columns: int) -> None:
        """Moves the cursor; in a folded line, left and right continue in the next row."""
        value_table = self.value_table
        if value_table is not None and value_table.folded and columns and not rows:
            line, part = divmod(self.row, value_table.stride)
            place = line * value_table.fold + self.column + columns
            if 0 <= place < len(value_table.lines[0]):
                line, column = divmod(place, value_table.fold)
                self.move_to(line * value_table.stride + part, column)
            return
        self.move_to(self.row + rows * (value_table.stride if value_table else 1), self.column + columns)

    def page(self, rows: int, columns: int) -> None:
        """Moves the cursor by pages; by whole groups where several rows belong together (``stride``)."""
        stride = self.value_table.stride if self.value_table is not None else 1
        down = max(1, self.page_rows // stride) * stride
        self.move_to(self.row + rows * down, self.column + columns * self.page_columns)

    def to_end(self, axis: int, last: bool) -> None:
        value_table = self.value_table
        if value_table is None:
            return
        if axis == 0:
            part = self.row % value_table.stride
            self.move_to(value_table.rows - value_table.stride + part if last else part, self.column)
        else:
            self.move_to(self.row, value_table.columns - 1 if last else 0)

    def _reveal(self) -> None:
        """Scrolls to the cursor by as little as possible, then widens columns for the numbers that came into sight."""
        for _ in range(3):  # wider columns can push the cursor out of sight again
            page_rows, page_columns = self.page_rows, self.page_columns
            value_table = self.value_table
            if value_table is None:
                return
            self._top = max(min(self._top, self.row, value_table.rows - page_rows), self.row - page_rows + 1, 0)
            self._left = max(min(self._left, self.column, value_table.columns - page_columns), 0)
            self._left = max(self._left, self.column - page_columns + 1)
            width = self._widest()
            if width <= self._cell:
                return
            self._cell = width
            self._refold()

    def _settle(self) -> None:
        """Adapts width, fold and cursor to a new table or format."""
        value_table = self.value_table
        if value_table is not None and not value_table.empty and self.size.width:
            self.row, self._top = (min(place, value_table.rows - 1) for place in (self.row, self._top))
            self.column, self._left = (min(place, value_table.columns - 1) for place in (self.column, self._left))
            self._cell = self._widest()
            self._refold()
            self.move_to(self.row, self.column)
        else:
            self.post_message(self.CursorMoved())
        self.refresh()

    def _refold(self) -> None:
        """Folds a line again if its columns do not fit any more; the cursor stays on its element."""
        value_table = self.value_table
        if value_table is None or not value_table.folded:
            return
        room = self.size.width - len(str(max(map(abs, (value_table.lines[0][0], value_table.lines[0][-1]))))) - GAP
        fold = best_fold(room, self._cell + GAP)
        if fold != value_table.fold:
            line, part = divmod(self.row, value_table.stride)
            line, self.column = divmod(min(line * value_table.fold + self.column, len(value_table.lines[0]) - 1), fold)
            self.row = line * value_table.stride + part
            self.value_table = replace(value_table, fold=fold)
            self._top = self.row // self.page_rows * self.page_rows if self.row >= self.page_rows else 0

    def _widest(self) -> int:
        """Cells of the widest visible number or column index."""
        texts = self._texts()
        value_table = self.value_table
        columns = range(self._left, self._left + len(texts[0])) if texts else ()
        labels = max((len(value_table.column_label(column)) for column in columns), default=1) if value_table else 1
        return max(labels, max((len(text) for line in texts for text, _ in line), default=1))

    # -- drawing ---------------------------------------------------------------------------------

    @property
    def _label_width(self) -> int:
        value_table = self.value_table
        if value_table is None or value_table.empty:
            return 0
        return max(len(value_table.row_label(0)), len(value_table.row_label(value_table.rows - 1))) + GAP

    def _texts(self) -> Texts:
        value_table = self.value_table
        if value_table is None or value_table.empty:
            return []
        height = min(self.page_rows, value_table.rows - self._top)
        width = min(self.page_columns, value_table.columns - self._left)
        key = (value_table, self._top, self._left, height, width, self.form)
        if self._window[0] is None or self._window[0] != key:
            self._window = (key, value_table.texts(self._top, self._left, height, width, self.form))
        return self._window[1]

    def _refresh_row(self, row: int) -> None:
        self.refresh(Region(0, row - self._top + 1, self.size.width, 1))

    def on_resize(self) -> None:
        self._settle()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def on_focus(self) -> None:
        self._refresh_row(self.row)

    def on_blur(self) -> None:
        self._refresh_row(self.row)

    def render_line(self, y: int) -> Strip:
        base, width = self.rich_style, self.size.width
        if self.value_table is None or self.value_table.empty:
            lines = self._text.split("\n")
            return Strip(fit([Segment(lines[y] if y < len(lines) else "", base)], width, base))
        texts = self._texts()
        if y == 0:
            segments = self._header(len(texts[0]) if texts else 0)
        elif y - 1 < len(texts):
            segments = self._line(self._top + y - 1, texts[y - 1], base)
        else:
            segments = []
        return Strip(segments).simplify().adjust_cell_length(width, base)

    def _header(self, count: int) -> list[Segment]:
        style = self.get_component_rich_style("value-grid--header")
        assert self.value_table is not None  # noqa: S101 - only called with a value_table
        labels = (self.value_table.column_label(self._left + i) for i in range(count))
        text = "".join(label.rjust(self._cell + GAP) for label in labels)
        return [Segment(" " * (self._label_width - GAP) + text, style)]

    def _line(self, row: int, texts: list[tuple[str, CellKind]], base: Style) -> list[Segment]:
        value_table = self.value_table
        assert value_table is not None  # noqa: S101 - only called with a value_table
        header = self.get_component_rich_style("value-grid--header")
        segments = [Segment(value_table.row_label(row).rjust(self._label_width - GAP), header)]
        for offset, (text, kind) in enumerate(texts):
            column = self._left + offset
            if value_table.folded and value_table.index(row, column) is None:
                break
            style = self.get_component_rich_style(_KINDS[kind]) if kind in _KINDS else base
            if (row, column) == (self.row, self.column):
                # Reverse video shows in every terminal and without colour; without focus, underlining does.
                style += Style(reverse=True) if self.has_focus else Style(underline=True)
            segments += [Segment(" " * (self._cell + GAP - len(text)), base), Segment(text, style)]
        return segments

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        if event.y and event.x >= self._label_width:
            self.move_to(self._top + event.y - 1, self._left + (event.x - self._label_width) // (self._cell + GAP))

    def on_mouse_scroll_down(self) -> None:
        self.move_by(3, 0)

    def on_mouse_scroll_up(self) -> None:
        self.move_by(-3, 0)
