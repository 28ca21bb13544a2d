"""A table over any number of rows: it asks for the cells of visible lines only.

A cursor key redraws two lines, a page redraws one screenful, whatever the number of rows. Nothing here
is animated, and rows that appear above the cursor do not move what is under it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.tui import theme
from tui_debugger.tui.actions import bindings_for
from tui_debugger.tui.widgets.rows import Column, ListRows, Rows
from tui_debugger.tui.widgets.text import Cell, Place, fit, segments_of, shift, width_of

__all__ = ["Column", "ListRows", "Rows", "VirtualTable"]

PAN_STEP = 8
"""Cells that one press of left or right moves long text."""
_CACHE_LIMIT = 2048
_HEADER_LINE, _EMPTY_LINE, _BLANK_LINE = -1, -2, -3
"""Lines without a row of their own, as keys of the cache."""


class VirtualTable(ScrollView, can_focus=True):
    """Rows with a cursor, drawn on demand.

    Use ``set_columns`` once and ``set_rows`` whenever the rows change; ``redraw`` when only cell contents changed.
    """

    BINDINGS: ClassVar[list[BindingType]] = list(bindings_for("list"))
    DEFAULT_CSS = """
    VirtualTable {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """

    cursor_row: var[int] = var(0, init=False)

    class RowHighlighted(Message):
        """The cursor came to a row (also when the row under it was replaced by another)."""

        def __init__(self, table: VirtualTable, row: int, key: Hashable) -> None:
            """Row number and key at the time of the event."""
            super().__init__()
            self.table = table
            self.row = row
            self.key = key

        @property
        def control(self) -> VirtualTable:
            """The table."""
            return self.table

    class RowSelected(RowHighlighted):
        """Enter, or a second click, on a row."""

    def __init__(
        self,
        columns: Sequence[Column] = (),
        rows: Rows | None = None,
        *,
        header: bool = True,
        empty: str = "",
        id: str | None = None,  # noqa: A002  (Textual's own parameter name)
        classes: str | None = None,
    ) -> None:
        """``empty`` is the one line shown when there are no rows."""
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._rows: Rows = rows if rows is not None else ListRows(())
        self._header = 1 if header else 0
        self._empty = empty
        self._pan = 0
        self._widths: tuple[int, ...] = ()
        self._overflow = 0
        self._strips: dict[tuple[int, int], Strip] = {}
        self._drawn: dict[int, Strip] = {}
        self._comparing = False
        self._base: Style | None = None
        self._key: Hashable = None
        self._keyed = False

    # -- what it shows ---------------------------------------------------------------------------

    @property
    def rows(self) -> Rows:
        """The rows shown."""
        return self._rows

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self._rows.row_count

    @property
    def cursor_key(self) -> Hashable:
        """Key of the row under the cursor, None when there are no rows."""
        return self._key if self._keyed else None

    @property
    def page(self) -> int:
        """Rows that fit on the screen."""
        return max(self.scrollable_content_region.height - self._header, 1)

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replaces the columns."""
        self._columns = tuple(columns)
        self._measure()
        self.redraw()

    def set_empty(self, text: str) -> None:
        """Replaces the line shown when there are no rows."""
        changed, self._empty = text != self._empty, text
        if changed and not self.row_count:
            self.redraw()

    def set_rows(self, rows: Rows, *, keep: bool = True) -> None:
        """Replaces the rows.

        With ``keep`` the cursor stays on the same key, and that row on the same line of the screen; when the key
        is gone the cursor stays at the same height.
        """
        old_row, old_key, had = self.cursor_row, self._key, self._keyed
        self._rows = rows
        self._strips.clear()
        self.virtual_size = Size(self.size.width, rows.row_count + self._header)
        found = rows.find(old_key) if keep and had else -1
        row = found if found >= 0 else (min(old_row, rows.row_count - 1) if keep else 0)
        self._place(max(row, 0), shift_view=(row - old_row) if found >= 0 else 0)
        self._refresh_changed()

    def redraw(self) -> None:
        """Draws what looks different now: the contents of cells changed."""
        self._strips.clear()
        self._refresh_changed()

    def _refresh_changed(self) -> None:
        """Has the lines drawn again that are not what they were; over a slow line every one of them counts."""
        if not self._comparing:
            self._comparing = True
            self.call_next(self._compare)  # once, however much is being changed now

    def _compare(self) -> None:
        self._comparing = False
        for y in range(self.scrollable_content_region.height):
            if self._line(y) != self._drawn.get(y):
                self.refresh(Region(0, y, self.size.width, 1))

    def redraw_row(self, row: int) -> None:
        """Draws one row again."""
        for state in range(3):
            self._strips.pop((row, state), None)
        self.refresh_line(row + self._header)

    def _place(self, row: int, *, shift_view: int = 0) -> None:
        if shift_view:
            self.scroll_to(y=self.scroll_offset.y + shift_view, animate=False, force=True)
        self.set_reactive(VirtualTable.cursor_row, row)
        self._announce()
        if not shift_view:
            self._reveal()

    def _announce(self, *, force: bool = False) -> None:
        count = self._rows.row_count
        if not count:
            self._keyed, self._key = False, None
            return
        key = self._rows.key(self.cursor_row)
        if force or not self._keyed or key != self._key:
            self._keyed, self._key = True, key
            self.post_message(self.RowHighlighted(self, self.cursor_row, key))

    # -- moving ----------------------------------------------------------------------------------

    def move_to(self, row: int) -> None:
        """Moves the cursor to a row, within bounds, and brings it into sight."""
        self.cursor_row = max(0, min(row, self.row_count - 1))

    def move_to_key(self, key: Hashable) -> bool:
        """Moves the cursor to a key; False when it is not there."""
        row = self._rows.find(key)
        if row < 0:
            return False
        self.move_to(row)
        return True

    def watch_cursor_row(self, old: int, new: int) -> None:
        """Redraws the two lines concerned and tells who listens."""
        self.refresh_line(old + self._header)
        self.refresh_line(new + self._header)
        self._reveal()
        self._announce(force=True)

    def _reveal(self) -> None:
        top, page = self.scroll_offset.y, self.page
        if self.cursor_row < top:
            self.scroll_to(y=self.cursor_row, animate=False, force=True)
        elif self.cursor_row >= top + page:
            self.scroll_to(y=self.cursor_row - page + 1, animate=False, force=True)

    def action_cursor_up(self) -> None:
        """One row up."""
        self.move_to(self.cursor_row - 1)

    def action_cursor_down(self) -> None:
        """One row down."""
        self.move_to(self.cursor_row + 1)

    def action_page_up(self) -> None:
        """One page up."""
        self.move_to(self.cursor_row - self.page)

    def action_page_down(self) -> None:
        """One page down."""
        self.move_to(self.cursor_row + self.page)

    def action_first(self) -> None:
        """To the first row."""
        self.move_to(0)

    def action_last(self) -> None:
        """To the last row."""
        self.move_to(self.row_count - 1)

    def action_pan_left(self) -> None:
        """Moves long text back to the right."""
        self._pan_to(self._pan - PAN_STEP)

    def action_pan_right(self) -> None:
        """Shows more of text that is too long for its column."""
        self._pan_to(self._pan + PAN_STEP)

    def action_select(self) -> None:
        """Enter."""
        if self.row_count:
            self.post_message(self.RowSelected(self, self.cursor_row, self._rows.key(self.cursor_row)))

    def _pan_to(self, pan: int) -> None:
        pan = max(0, min(pan, self._hidden_cells()))
        if pan != self._pan:
            self._pan = pan
            self.redraw()

    def _hidden_cells(self) -> int:
        """Cells that are out of sight to the right, over the visible rows."""
        top = self.scroll_offset.y
        most = 0
        for row in range(top, min(top + self.page, self.row_count)):
            for column, width, cell in self._laid_out(self._rows.cells(row)):
                if column.elastic:
                    most = max(most, width_of(segments_of(cell, Style.null())) - width)
        return self._overflow + most

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor; the second click selects."""
        row = event.y + self.scroll_offset.y - self._header
        if event.y < self._header or not 0 <= row < self.row_count:
            return
        event.stop()
        self.move_to(row)
        if event.chain > 1:
            self.action_select()

    # -- drawing ---------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """First layout."""
        self.virtual_size = Size(self.size.width, self.row_count + self._header)
        self._announce(force=True)

    def on_resize(self) -> None:
        """Columns share the new width; the cursor stays in sight."""
        self.virtual_size = Size(self.size.width, self.row_count + self._header)
        self._measure()
        self._strips.clear()
        self._reveal()

    def on_focus(self, event: events.Focus) -> None:
        """Only the cursor line looks different: Textual's own answer to this would draw everything again."""
        self._follow_focus(event, has_focus=True)
        if isinstance(self.parent, Widget):
            self.parent.post_message(events.DescendantFocus(self))

    def on_blur(self, event: events.Blur) -> None:
        """See ``on_focus``."""
        self._follow_focus(event, has_focus=False)
        if isinstance(self.parent, Widget):
            self.parent.post_message(events.DescendantBlur(self))

    def watch_has_focus(self, _has_focus: bool) -> None:
        """No style of a table depends on the focus; setting the same styles again would draw its scrollbar."""

    def _follow_focus(self, event: events.Event, *, has_focus: bool) -> None:
        event.prevent_default()
        self.has_focus = has_focus
        self.refresh_line(self.cursor_row + self._header)

    def notify_style_update(self) -> None:
        """Colours changed: nothing drawn before is valid."""
        super().notify_style_update()
        self._base = None
        self._strips.clear()

    def _measure(self) -> None:
        """Shares the width among the columns (one cell for the cursor bar, one between columns)."""
        columns = self._columns
        room = self.scrollable_content_region.width - 1
        least = sum(column.width for column in columns) + max(len(columns) - 1, 0)
        spare = max(room - least, 0)
        shares = sum(column.elastic for column in columns)
        widths = []
        for column in columns:
            extra = spare * column.elastic // shares if shares else 0
            spare -= extra
            shares -= column.elastic
            widths.append(column.width + extra)
        self._widths = tuple(widths)
        self._overflow = max(least - room, 0)
        self._pan = min(self._pan, self._overflow) if self._pan else 0

    def render_line(self, y: int) -> Strip:
        """Draws one line of the screen."""
        strip = self._drawn[y] = self._line(y)
        return strip

    def _line(self, y: int) -> Strip:
        if y < self._header:
            row, state = _HEADER_LINE, 0
        else:
            row = self.scroll_offset.y + y - self._header
            state = (2 if self.has_focus else 1) if row == self.cursor_row else 0
            if row >= self.row_count:
                row, state = (_EMPTY_LINE if y == self._header and not self.row_count else _BLANK_LINE), 0
        strip = self._strips.get((row, state))
        if strip is None:
            if len(self._strips) >= _CACHE_LIMIT:
                self._strips.clear()
            strip = self._strips[row, state] = self._draw(row, state)
        return strip

    @property
    def base_style(self) -> Style:
        """Colours of the table itself; Textual works them out anew from all that is around it whenever it is asked."""
        if self._base is None:
            self._base = self.rich_style
        return self._base

    def _draw(self, row: int, state: int) -> Strip:
        base, width = self.base_style, self.scrollable_content_region.width
        if row == _HEADER_LINE:
            style = base + theme.HEADING
            return self._strip([column.title for column in self._columns], style, " ", style, width)
        if row == _BLANK_LINE or (row == _EMPTY_LINE and not self._empty):
            return Strip.blank(width, base)
        if row == _EMPTY_LINE:
            return Strip(fit([Segment(" " + self._empty, base + theme.DIM)], width, base))
        bar, style = " ", base
        if state:
            bar, style = "▌", base + (theme.CURSOR if state == 2 else theme.CURSOR_BLURRED)
        return self._strip(self._rows.cells(row), style, bar, style + theme.WATCHED if state else style, width)

    def _strip(self, cells: Sequence[Cell], base: Style, bar: str, bar_style: Style, width: int) -> Strip:
        """One line: the cursor bar, the frozen columns, and the rest moved sideways by the pan."""
        line_shift = min(self._pan, self._overflow)
        text_shift = self._pan - line_shift
        frozen: list[Segment] = [Segment(bar, bar_style)]
        moving: list[Segment] = []
        gap = Segment(" ", base)
        for column, size, cell in self._laid_out(cells):
            if isinstance(cell, Place) and not text_shift:
                cell = cell.within(size)  # noqa: PLW2901 - the cell as it is drawn
            segments = segments_of(cell, base)
            if text_shift and column.elastic:
                segments = shift(segments, min(text_shift, max(width_of(segments) - size, 0)))
            target = frozen if column.frozen else moving
            target += fit(segments, size, base, right=column.right)
            target.append(gap)
        line = (frozen + shift(moving, line_shift))[:-1]  # no gap after the last column
        return Strip(Segment.simplify(line)).adjust_cell_length(width, base)

    def _laid_out(self, cells: Sequence[Cell]) -> Iterator[tuple[Column, int, Cell]]:
        """Column, width and cell; a last cell before the last column spans what is left."""
        last = len(cells) - 1
        spans = last < len(self._columns) - 1
        for number, (column, size, cell) in enumerate(zip(self._columns, self._widths, cells, strict=False)):
            if spans and number == last:
                rest = sum(self._widths[number:]) + len(self._widths) - 1 - number
                yield replace(column, elastic=1, right=False), rest - self._overflow, cell
            else:
                yield column, size, cell
