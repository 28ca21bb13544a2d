"""The grid of the health map: a line per scope or node, a glyph per step, computed for what is in sight."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tui_debugger.arrays import Int64
from tui_debugger.diagnose.health import Columns, HealthMap, entry_name
from tui_debugger.stats.health import Codes, Health
from tui_debugger.text.health import GLYPHS, header
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.line_window import BLANK, HEADER
from tui_debugger.tui.widgets.text import Cell, fit, joined, shorten
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable

STYLES: Final[Mapping[Health, Style]] = {
    Health.ABSENT: theme.NORMAL,
    Health.NOT_JUDGED: theme.DIM,
    Health.CLEAN: theme.WATCHED,
    Health.UNCHECKED: theme.DIM,
    Health.UNREADABLE: theme.DOUBT,
    Health.HIT: theme.DOUBT,
    Health.NOT_FINITE: theme.FINDING,
    Health.INF: theme.FINDING,
    Health.NAN: theme.FINDING,
    Health.ORIGIN: theme.FINDING + Style(reverse=True),
}
BLOCK: Final = 64
"""Rows whose cells are computed together."""
_LEAST_NAME, _INDENT = 12, 2
_CURSOR = Style(reverse=True, bold=True)


class GridRows:
    """Tree indices as rows of a table."""

    def __init__(self, map_: HealthMap, entries: Int64, *, flat: bool) -> None:
        """``entries`` in the order in which they are shown."""
        self.map = map_
        self.entries = entries
        self.flat = flat
        self._row = {entry: row for row, entry in enumerate(entries.tolist())}

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.entries)

    def cells(self, index: int) -> Sequence[Cell]:
        """The name alone; the grid draws the rest."""
        return (self.name(index),)

    def key(self, index: int) -> int:
        """The tree index."""
        return int(self.entries[index])

    def find(self, key: Hashable) -> int:
        """Row of a tree index, or -1."""
        return self._row.get(key, -1) if isinstance(key, int) else -1

    def name(self, index: int) -> str:
        """What stands at the beginning of a row."""
        return entry_name(self.map, self.key(index), flat=self.flat)

    def indent(self, index: int) -> int:
        """Cells before the name."""
        return 0 if self.flat else _INDENT * int(self.map.tree.depth[self.key(index)])


class HealthGrid(VirtualTable):
    """Rows with a cursor that moves sideways, too.

    Attributes:
        columns_shown: how steps are laid out.
        column: the one under the cursor.
    """

    class CellMoved(Message):
        """The cursor came to another cell, or the cell changed."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own parameter name
        """Empty."""
        super().__init__((Column("", _LEAST_NAME, elastic=1),), empty="nothing to show", id=id)
        self.columns_shown = Columns.laid_out((), 1, fit=False)
        self.column = 0
        self._grid: GridRows | None = None
        self._ranks: Sequence[int] = ()
        self._open: npt.NDArray[np.bool_] | None = None
        self._fit = True
        self._first = 0
        self._name_width = _LEAST_NAME
        self._blocks: dict[int, Codes] = {}

    # -- what it shows ---------------------------------------------------------------------------

    @property
    def entry(self) -> int:
        """Tree index under the cursor, -1 when there is none."""
        key = self.cursor_key
        return key if isinstance(key, int) else -1

    @property
    def steps_here(self) -> Sequence[int]:
        """The steps of the column under the cursor."""
        return self.columns_shown.of(self.column) if len(self.columns_shown) else ()

    def show_map(self, rows: GridRows, ranks: Sequence[int], opened: npt.NDArray[np.bool_], *, fit_all: bool) -> None:
        """Shows rows of a map; the cursor stays on its row and step where they are still there."""
        step = self.steps_here[0] if self.steps_here else None
        self._grid, self._ranks, self._open, self._fit = rows, ranks, opened, fit_all
        self._blocks.clear()
        self.set_rows(rows)
        self._lay_out(step)

    def move_to_step(self, step: int) -> None:
        """Moves the cursor to a step's column."""
        if len(self.columns_shown):
            self._move_column(self.columns_shown.at(step))

    def code_at(self, row: int, column: int) -> Health:
        """What one cell shows."""
        return Health(int(self._codes(row, column, column + 1)[0]))

    def _lay_out(self, step: int | None = None) -> None:
        if self._grid is None or not self.line_width:
            return
        map_, width = self._grid.map, self.line_width
        names = self._widest_name()
        least = max(min(names, width * 2 // 5), _LEAST_NAME)
        room = max(width - least - 2, 1)
        self.columns_shown = Columns.laid_out(map_.steps, room, fit=self._fit)
        across = min(self.columns_shown.width * len(self.columns_shown), room)
        self._name_width = max(min(names, width - across - 2), 1)
        self.column = min(self.column, max(len(self.columns_shown) - 1, 0))
        if step is not None and len(self.columns_shown):
            self.column = self.columns_shown.at(step)
        self._blocks.clear()
        self._reveal_column()
        self.redraw()
        self.post_message(self.CellMoved())

    def _widest_name(self) -> int:
        if self._grid is None:
            return _LEAST_NAME
        sample = range(min(self._grid.row_count, 2000))
        return max((self._grid.indent(row) + len(self._grid.name(row)) + 2 for row in sample), default=_LEAST_NAME)

    @property
    def in_sight(self) -> int:
        """Columns that fit."""
        room = self.line_width - self._name_width - 2
        return max(min(room // self.columns_shown.width, len(self.columns_shown)), 1)

    def _codes(self, row: int, first: int, stop: int) -> Codes:
        """Cells of a row; those of the rows around it are computed with it."""
        block = row // BLOCK
        if self._grid is None:
            return np.zeros(stop - first, np.uint8)
        if first < self._first or stop > self._first + self.in_sight:
            entries = self._grid.entries[row : row + 1]
            row_codes: Codes = self.columns_shown.cells(self._grid.map, entries, self._ranks, first, stop)[0]
            return row_codes
        if block not in self._blocks:
            entries = self._grid.entries[block * BLOCK : (block + 1) * BLOCK]
            sight = (self._first, min(self._first + self.in_sight, len(self.columns_shown)))
            self._blocks[block] = self.columns_shown.cells(self._grid.map, entries, self._ranks, *sight)
        codes: Codes = self._blocks[block][row % BLOCK, first - self._first : stop - self._first]
        return codes

    # -- moving ----------------------------------------------------------------------------------

    def action_pan_left(self) -> None:
        """One column back."""
        self._move_column(self.column - 1)

    def action_pan_right(self) -> None:
        """One column on."""
        self._move_column(self.column + 1)

    def page_columns(self, direction: int) -> None:
        """A screenful of columns."""
        self._move_column(self.column + direction * self.in_sight)

    def next_finding(self, direction: int, least: Health) -> bool:
        """To the next cell of this row that is at least so bad; False when there is none."""
        if not self.row_count or not len(self.columns_shown):
            return False
        codes = self._codes(self.cursor_row, 0, len(self.columns_shown))
        there = np.flatnonzero(codes >= least)
        there = there[there > self.column] if direction > 0 else there[there < self.column][::-1]
        if len(there):
            self._move_column(int(there[0]))
        return bool(len(there))

    def _move_column(self, column: int) -> None:
        column = max(0, min(column, len(self.columns_shown) - 1))
        if column != self.column:
            self.column = column
            self._reveal_column()
            self.redraw()
            self.post_message(self.CellMoved())

    def _reveal_column(self) -> None:
        sight = self.in_sight
        first = max(min(self._first, self.column), self.column - sight + 1)
        first = max(0, min(first, len(self.columns_shown) - sight))
        if first != self._first:
            self._first = first
            self._blocks.clear()

    def watch_cursor_row(self, old: int, new: int) -> None:
        """See the base class."""
        super().watch_cursor_row(old, new)
        self.post_message(self.CellMoved())

    def on_click(self, event: events.Click) -> None:
        """Goes to the cell; the second click selects."""
        at = event.get_content_offset(self)
        start = self._name_width + 2
        if at is not None and at.x >= start and not self.on_bar(at):
            self._move_column(self._first + (at.x - start) // self.columns_shown.width)
        super().on_click(event)

    # -- drawing ---------------------------------------------------------------------------------

    def fit_to(self, width: int) -> None:
        """Columns share the new width."""
        super().fit_to(width)
        self.call_next(self._lay_out, self.steps_here[0] if self.steps_here else None)

    def draw(self, row: int, state: int, width: int) -> Strip:
        """See the base class."""
        base = self.base_style
        if row == HEADER:
            return self._header_line(base, width)
        if row < 0 or self._grid is None:
            return super().draw(BLANK if self._grid is None else row, state, width)
        style = base + (theme.CURSOR if state == 2 else theme.CURSOR_BLURRED) if state else base
        bar = Segment("▌" if state else " ", style + theme.WATCHED if state else style)
        line = [bar, *self._row_label(row, style), Segment(" ", style), *self._glyphs(row, style, bool(state))]
        return Strip(joined(line)).adjust_cell_length(width, base)

    def _row_label(self, row: int, style: Style) -> list[Segment]:
        grid = self._grid
        if grid is None:
            return []
        key, indent, glyph = grid.key(row), grid.indent(row), ""
        if not grid.flat:
            opened = self._open is not None and bool(self._open[key])
            glyph = ((theme.OPEN_GLYPH if opened else theme.CLOSED_GLYPH) if grid.map.tree.is_scope(key) else " ") + " "
        indent = min(indent, max(self._name_width // 2 - 2, 0))
        text = " " * indent + glyph + shorten(grid.name(row), max(self._name_width - indent - len(glyph), 1))
        return fit([Segment(text, style)], self._name_width, style)

    def _glyphs(self, row: int, style: Style, here: bool) -> list[Segment]:
        stop = min(self._first + self.in_sight, len(self.columns_shown))
        if stop <= self._first:
            return []
        codes = self._codes(row, self._first, stop).tolist()
        width, segments, at = self.columns_shown.width, list[Segment](), self._first
        for code, run in groupby(codes):
            count = len(list(run))
            health = Health(code)
            own = style + STYLES[health]
            if here and at <= self.column < at + count:
                before, after = self.column - at, at + count - self.column - 1
                cell = GLYPHS[health].ljust(width)
                segments += [Segment(cell * before, own)] if before else []
                # The cursor is one cell: the colour of the line goes on beside it.
                segments += [Segment(cell[0], own + _CURSOR), Segment(cell[1:], own)]
                segments += [Segment(cell * after, own)] if after else []
            else:
                segments.append(Segment(GLYPHS[health].ljust(width) * count, own))
            at += count
        return [each for each in segments if each.text]

    def _header_line(self, base: Style, width: int) -> Strip:
        columns, sight = self.columns_shown, self.in_sight
        pad = self._name_width + 2
        style = base + theme.HEADING
        if not len(columns):
            return Strip.blank(width, base)
        shown = columns.labels[self._first : self._first + sight]
        room = max(width - pad, 1)
        line = header(shown, columns.width, room).ljust(room)[:room]
        here = columns.labels[self.column]
        start = min((self.column - self._first) * columns.width, max(room - len(here), 0))
        stop = start + len(here)
        # Parts of other labels beside the cursor's would read as other numbers.
        left, right = line[:start], line[stop:]
        left = left if left.endswith(" ") else left.rpartition(" ")[0]
        right = right if right.startswith(" ") else _without_first_word(right)
        title = "step".rjust(pad - 1) + " "
        parts = [Segment(title, style), Segment(left.ljust(start), style), Segment(here, base + _CURSOR)]
        return Strip(joined([*parts, Segment(right, style)])).adjust_cell_length(width, base)


def _without_first_word(text: str) -> str:
    word = text.partition(" ")[0]
    return " " * len(word) + text[len(word) :]
