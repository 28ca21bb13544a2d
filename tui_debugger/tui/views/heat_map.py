"""The base of the health map and the rank grid: scopes and nodes down, steps or ranks across, a glyph in each cell."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.message import Message
from textual.strip import Strip

from tui_debugger.arrays import Int64, Mask
from tui_debugger.diagnose.health import HealthChecks, HealthMap, StepColumns, entry_name, rows_of
from tui_debugger.model import TensorKey
from tui_debugger.stats.health import WORTH_A_LOOK, Codes, Health
from tui_debugger.text.clean import clean
from tui_debugger.text.health import GLYPHS, header
from tui_debugger.tui import theme
from tui_debugger.tui.actions import SEARCH_VIEW, Action, ActionRow, view_actions
from tui_debugger.tui.cells import HEALTH_STYLES
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import View, ViewHost
from tui_debugger.tui.widgets.line_window import BLANK, HEADER
from tui_debugger.tui.widgets.open_tree import OpenTree
from tui_debugger.tui.widgets.text import Cell as TableCell
from tui_debugger.tui.widgets.text import fit, joined, shorten, with_spans
from tui_debugger.tui.widgets.virtual_table import TableColumn, VirtualTable


def map_actions(
    group: str, *own: ActionRow, across: str, found: str, pages: Sequence[tuple[str, str]]
) -> tuple[Action, ...]:
    """Returns the actions of a map: its own, and those of every map.

    ``own``: (id, keys, title, text). ``across``: the word for a column, such as ``step``. ``found``: follows "Only
    rows" in a help text. ``pages``: keys and titles for a page back, and on.
    """
    back, on = pages
    shared = (
        ("open_close", "space", "Open, close", "Opens or closes the scope; Enter does so, too."),
        ("open_all", "*", "Open all", "Opens or closes everything below the cursor."),
        ("findings", "x", "Findings only", f"Only rows {found}."),
        ("nodes", "t", "Other form", "A row per node in execution order, or scopes again."),
        ("fit", "z", "Zoom", f"All {across}s at once, several in a column, or one in each."),
        ("next(1)", "n", "Next", f"To the next {across} of this row that stands out."),
        ("next(-1)", "N", "Previous", f"To the {across} before that stands out in this row."),
        ("page(-1)", *back, f"A screenful of {across}s back."),
        ("page(1)", *on, f"A screenful of {across}s on."),
    )
    return (SEARCH_VIEW, *view_actions(group, *own, *shared))


BLOCK: Final = 64
"""Rows whose cells are computed together."""
_LEAST_NAME, _INDENT = 12, 2
_CURSOR = Style(reverse=True, bold=True)


class GridRows:
    """Tree indices as rows of a table, in the given order."""

    def __init__(self, map_: HealthMap, entries: Int64, *, flat: bool) -> None:
        self.map = map_
        self.entries = entries
        self.flat = flat
        self._row = {entry: row for row, entry in enumerate(entries.tolist())}

    @property
    def row_count(self) -> int:
        return len(self.entries)

    def cells(self, index: int) -> Sequence[TableCell]:
        return (self.name(index),)

    def key(self, index: int) -> int:
        return int(self.entries[index])

    def find(self, key: Hashable) -> int:
        return self._row.get(key, -1) if isinstance(key, int) else -1

    def name(self, index: int) -> str:
        return entry_name(self.map, self.key(index), flat=self.flat)

    def indent(self, index: int) -> int:
        return 0 if self.flat else _INDENT * int(self.map.tree.depth[self.key(index)])


class HeatGrid(VirtualTable):
    """Rows with a cursor that also moves from column to column.

    Attributes:
        columns_shown: the steps (or ranks) of each column.
        column: index of the column under the cursor.
    """

    across: ClassVar[str] = "step"
    """The title of the columns, above the names."""

    class CellMoved(Message):
        """The cursor came to another cell, or the cell changed."""

    def __init__(self) -> None:
        super().__init__((TableColumn("", _LEAST_NAME, elastic=1),), empty="nothing to show", id="grid")
        self.columns_shown = StepColumns.laid_out((), 1, fit=False)
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
        key = self.cursor_key
        return key if isinstance(key, int) else -1

    @property
    def steps_here(self) -> Sequence[int]:
        return self.columns_shown.of(self.column) if len(self.columns_shown) else ()

    def show_map(self, rows: GridRows, ranks: Sequence[int], opened: npt.NDArray[np.bool_], *, fit_all: bool) -> None:
        """Shows rows of a map; the cursor stays on its row and step if possible."""
        step = self.steps_here[0] if self.steps_here else None
        self._grid, self._ranks, self._open, self._fit = rows, ranks, opened, fit_all
        self._blocks.clear()
        self.set_rows(rows)
        self._lay_out(step)

    def move_to_step(self, step: int) -> None:
        if len(self.columns_shown):
            self._move_column(self.columns_shown.at(step))

    def code_at(self, row: int, column: int) -> Health:
        return Health(int(self._codes(row, column, column + 1)[0]))

    def _lay_out(self, step: int | None = None) -> None:
        if self._grid is None or not self.line_width:
            return
        map_, width = self._grid.map, self.line_width
        names = self._widest_name()
        least = max(min(names, width * 2 // 5), _LEAST_NAME)
        room = max(width - least - 2, 1)
        self.columns_shown = self.columns_for(map_, room)
        across = min(self.columns_shown.width * len(self.columns_shown), room)
        self._name_width = max(min(names, width - across - 2), 1)
        self.column = min(self.column, max(len(self.columns_shown) - 1, 0))
        if step is not None and len(self.columns_shown):
            self.column = self.columns_shown.at(step)
        self._blocks.clear()
        self._reveal_column()
        self.redraw()
        self.post_message(self.CellMoved())

    def columns_for(self, map_: HealthMap, room: int) -> StepColumns:
        return StepColumns.laid_out(map_.steps, room, fit=self._fit)

    def glyph(self, code: int) -> tuple[str, Style]:
        return GLYPHS[Health(code)], HEALTH_STYLES[Health(code)]

    def _widest_name(self) -> int:
        if self._grid is None:
            return _LEAST_NAME
        sample = range(min(self._grid.row_count, 2000))
        return max((self._grid.indent(row) + len(self._grid.name(row)) + 2 for row in sample), default=_LEAST_NAME)

    @property
    def in_sight(self) -> int:
        room = self.line_width - self._name_width - 2
        return max(min(room // self.columns_shown.width, len(self.columns_shown)), 1)

    def _codes(self, row: int, first: int, stop: int) -> Codes:
        """Returns codes of a row; visible columns are computed in blocks of rows and cached."""
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
        self._move_column(self.column - 1)

    def action_pan_right(self) -> None:
        self._move_column(self.column + 1)

    def page_columns(self, direction: int) -> None:
        self._move_column(self.column + direction * self.in_sight)

    def next_finding(self, direction: int, least: int) -> bool:
        """Moves to the next cell of this row with at least the code ``least``; False if there is none."""
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
        super().watch_cursor_row(old, new)
        self.post_message(self.CellMoved())

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        start = self._name_width + 2
        if at is not None and at.x >= start and not self.on_bar(at):
            self._move_column(self._first + (at.x - start) // self.columns_shown.width)
        super().on_click(event)

    def row_text(self, row: int) -> str:
        return "" if self._grid is None else clean(self._grid.map.tree.path(self._grid.key(row)))

    # -- drawing ---------------------------------------------------------------------------------

    def fit_to(self, width: int) -> None:
        super().fit_to(width)
        self.call_next(self._lay_out, self.steps_here[0] if self.steps_here else None)

    def draw(self, row: int, state: int, width: int) -> Strip:
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
        segments = [Segment(text, style)]
        if self._pattern is not None:
            segments = with_spans(segments, self._pattern.spans(text), theme.MATCH)
        return fit(segments, self._name_width, style)

    def _glyphs(self, row: int, style: Style, here: bool) -> list[Segment]:
        stop = min(self._first + self.in_sight, len(self.columns_shown))
        if stop <= self._first:
            return []
        codes = self._codes(row, self._first, stop).tolist()
        width, segments, at = self.columns_shown.width, list[Segment](), self._first
        for code, run in groupby(codes):
            count = len(list(run))
            glyph, meaning = self.glyph(code)
            own = style + meaning
            if here and at <= self.column < at + count:
                before, after = self.column - at, at + count - self.column - 1
                cell = glyph.ljust(width)
                segments += [Segment(cell * before, own)] if before else []
                # Only one cell has the cursor's colour; the rest of a wider column has the line's.
                segments += [Segment(cell[0], own + _CURSOR), Segment(cell[1:], own)]
                segments += [Segment(cell * after, own)] if after else []
            else:
                segments.append(Segment(glyph.ljust(width) * count, own))
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
        # Labels that the cursor's label cuts are removed: the rest would read as another number.
        left, right = line[:start], line[stop:]
        left = left if left.endswith(" ") else left.rpartition(" ")[0]
        right = right if right.startswith(" ") else _without_first_word(right)
        title = self.across.rjust(pad - 1) + " "
        parts = [Segment(title, style), Segment(left.ljust(start), style), Segment(here, base + _CURSOR)]
        return Strip(joined([*parts, Segment(right, style)])).adjust_cell_length(width, base)


def _without_first_word(text: str) -> str:
    word = text.partition(" ")[0]
    return " " * len(word) + text[len(word) :]


class HeatMapView(View):
    """The base of views with scopes and nodes down; subclasses yield grid and lines from ``body``."""

    heading = ""

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.checks = HealthChecks(host.session)
        self.map: HealthMap | None = None
        self.flat = False
        self.fit_all = True
        self.findings_only = False
        self._tree: OpenTree | None = None
        self._placed = False
        """Whether the cursor was moved to its first place."""
        self._complete = True
        """Whether the map has all of its columns."""

    @property
    def grid(self) -> HeatGrid:
        return self.query_one(HeatGrid)

    def _arrange(self) -> None:
        """Fills the grid: open scopes or nodes, all rows or rows with findings."""
        raise NotImplementedError

    def _show_cell(self) -> None:
        """Describes the cell under the cursor."""
        raise NotImplementedError

    def _show_where(self) -> None:
        """Describes what the rows and columns are."""
        raise NotImplementedError

    def _to_start(self) -> None:
        """Moves the cursor to its first place."""
        raise NotImplementedError

    @on(HeatGrid.CellMoved)
    def _cell_moved(self, event: HeatGrid.CellMoved) -> None:
        event.stop()
        if self._complete and self.map is not None and not self._placed:  # the columns are laid out only now
            self._placed = True
            self._to_start()
        self._show_where()
        self._show_cell()

    def _row_words(self) -> list[str]:
        words = ["rows with findings only"] if self.findings_only else []
        return [*words, "nodes in execution order"] if self.flat else words

    def _legend(self) -> str:
        """Returns the meaning of the glyphs."""
        raise NotImplementedError

    def _enter(self, target: ViewTarget) -> None:
        """Handles Enter on a node that was dumped."""
        raise NotImplementedError

    def on_resize(self) -> None:
        if not self.working:
            self.say("")
        self._show_cell()

    def say(self, text: str, *, note: bool = False) -> None:
        """Shows a line; notes replace the legend: a line that comes and goes would draw every cell again."""
        super().say("" if note else text, note=note)
        self.put_line("legend", text if note and text else self._legend())

    @on(VirtualTable.RowSelected)
    def _selected(self) -> None:
        if self._on_scope:
            self.action_open_close()
            return
        target = self.target_here
        if target.row >= 0:
            self._enter(target)
        else:
            self.say("this node was not dumped here", note=True)

    def _worth(self) -> int:
        """Returns the least code that ``next`` stops at."""
        return WORTH_A_LOOK

    def _take_map(self, found: HealthMap) -> bool:
        """Takes a map, with the same scopes open; tells whether its nodes changed."""
        old, tree = self.map, self._tree
        self.map = found
        if old is not None and old.tree is found.tree:
            return False
        hidden = ~found.shown
        self._tree = OpenTree.fresh(found.tree, hidden) if tree is None else tree.carried_to(found.tree, hidden)
        return True

    def _show_rows(self, map_: HealthMap, shown: Mask, across: Sequence[int]) -> None:
        """Shows the rows of a mask over tree indices; ``across``: the ranks to show."""
        tree = self._tree
        if tree is None:
            return
        tree.keep(shown, expand=False)
        entries = rows_of(map_, shown, flat=True) if self.flat else tree.visible().indices.astype(np.int64)
        self.grid.show_map(GridRows(map_, entries, flat=self.flat), across, tree.opened, fit_all=self.fit_all)

    def _go_to(self, key: TensorKey, across: int) -> bool:
        """Moves the cursor to a node and a column; False if there is no such node."""
        map_, tree = self.map, self._tree
        row = -1 if map_ is None else map_.nodes.find(key.node, key.graph)
        if map_ is None or tree is None or row < 0:
            return False
        entry = map_.tree.index_of_row(row)
        if tree.open_around(entry):
            self._arrange()
        self.grid.move_to_key(entry)
        self.grid.move_to_step(across)
        return True

    @property
    def _on_scope(self) -> bool:
        return self._tree is not None and not self.flat and self._tree.is_scope(self.grid.entry)

    # -- keys --------------------------------------------------------------------------------------

    def action_open_close(self) -> None:
        if self._tree is not None and self._on_scope:
            self._tree.opened[self.grid.entry] = not self._tree.opened[self.grid.entry]
            self._arrange()

    def action_open_all(self) -> None:
        if self._tree is not None and self._on_scope:
            self._tree.toggle_below(self.grid.entry)
            self._arrange()

    def action_findings(self) -> None:
        self.findings_only = not self.findings_only
        self._arrange()

    def action_nodes(self) -> None:
        self.flat = not self.flat
        self._arrange()

    def action_fit(self) -> None:
        self.fit_all = not self.fit_all
        self._arrange()

    def action_next(self, by: int) -> None:
        if not self.grid.next_finding(by, self._worth()):
            side = "after" if by > 0 else "before"
            self.say(f"no {self.grid.across} {side} this one stands out in this row", note=True)

    def action_page(self, by: int) -> None:
        self.grid.page_columns(by)
