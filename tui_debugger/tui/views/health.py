"""The health map: steps across, scopes down, the worst of each in a glyph, to see when it began and where it spread."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import numpy.typing as npt
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.arrays import Int64
from tui_debugger.check.progress import scaled
from tui_debugger.diagnose.health import (
    Cell,
    CellText,
    Columns,
    HealthChecks,
    HealthMap,
    cell_text,
    entry_name,
    health,
    map_lines,
    map_rows,
    rows_of,
    tensor_of,
    watched_lines,
)
from tui_debugger.model import Side, TensorKey
from tui_debugger.stats.health import WORTH_A_LOOK, Codes, Health
from tui_debugger.text.clean import clean
from tui_debugger.text.health import GLYPHS, header, legend_text
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import SEARCH_VIEW, Action, bindings, view_action
from tui_debugger.tui.cells import HEALTH_STYLES
from tui_debugger.tui.dialogs.modal import Line
from tui_debugger.tui.export import Extract
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import View, ViewHost
from tui_debugger.tui.widgets.line_window import BLANK, HEADER
from tui_debugger.tui.widgets.open_tree import OpenTree
from tui_debugger.tui.widgets.text import Cell as TableCell
from tui_debugger.tui.widgets.text import fit, joined, shorten, with_spans
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.model import ProgressFn
    from tui_debugger.tui.views.view import ViewChanges


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

    def cells(self, index: int) -> Sequence[TableCell]:
        """Returns the name alone; the grid draws the rest."""
        return (self.name(index),)

    def key(self, index: int) -> int:
        """Returns the tree index."""
        return int(self.entries[index])

    def find(self, key: Hashable) -> int:
        """Returns the row of a tree index, or -1."""
        return self._row.get(key, -1) if isinstance(key, int) else -1

    def name(self, index: int) -> str:
        """Returns the beginning of a row."""
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
        """Returns what one cell shows."""
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
        """Moves one column back."""
        self._move_column(self.column - 1)

    def action_pan_right(self) -> None:
        """Moves one column on."""
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

    def row_text(self, row: int) -> str:
        """Returns the path of a row: its name is only the last part."""
        return "" if self._grid is None else clean(self._grid.map.tree.path(self._grid.key(row)))

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
            health = Health(code)
            own = style + HEALTH_STYLES[health]
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


ACTIONS: Final[tuple[Action, ...]] = (
    SEARCH_VIEW,
    *(
        view_action(id_, title, keys, text, "Health map")
        for id_, keys, title, text in (
            ("check", "r", "Check", "Checks what was not checked yet, with the enabled watchpoints (none: NaN, Inf)."),
            ("deeper", "+ =", "Deeper", "Opens the scopes one level deeper."),
            ("shallower", "-", "Less deep", "Closes the deepest level of scopes."),
            ("open_close", "space", "Open, close", "Opens or closes the scope; Enter does so, too."),
            ("open_all", "*", "Open all below", "Opens or closes everything below the cursor."),
            ("findings", "x", "Findings only", "Only rows in which something was found or could not be judged."),
            ("nodes", "t", "Nodes", "A row per node in execution order, or scopes again."),
            ("fit", "f", "Fit", "All steps at once, several in a column, or one in each."),
            ("next", "n", "Next finding", "To the next finding of this row."),
            ("previous", "N", "Finding before", "To the finding before in this row."),
            ("steps_back", "{ [", "Page back", "A screenful of steps back."),
            ("steps_on", "} ]", "Page on", "A screenful of steps on."),
            ("rank_back", "<", "Previous rank", "One rank back; before the first one come all, merged."),
            ("rank_on", ">", "Next rank", "One rank on."),
        )
    ),
)
HINTS: Final = (
    ("Enter", "go there"),
    ("r", "check"),
    ("+ -", "depth"),
    ("x", "findings"),
    ("f", "fit"),
    ("< >", "rank"),
    ("?", "keys"),
    ("Esc", "back"),
)
FIRST_PART: Final = 2
"""The number of steps that are checked before there is something new to see; then twice as many, and so on."""
LARGEST_PART: Final = 256
WIDE: Final = 1 << 20
"""Room for a column per step in a text that is exported."""


class HealthView(View):
    """The whole run at once."""

    OWN_ACTIONS: ClassVar[tuple[Action, ...]] = ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]
    DEFAULT_CSS = """
    HealthView {
        #where, #cell, #worst, #legend, #covered { height: 1; }
        #where, #legend { color: $text-muted; }
        #cell { text-style: bold; }
    }
    """
    heading = "Health map"
    hints = HINTS

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        """Takes the watchpoints as they are now."""
        super().__init__(host, about)
        self.checks = HealthChecks(host.session)
        self.map: HealthMap | None = None
        self.ranks: tuple[int, ...] = ()
        self.flat = False
        self.fit_all = True
        self.findings_only = False
        self._tree: OpenTree | None = None
        self._cell: Cell | None = None
        self._cell_text = CellText("", "", "")
        self._placed = False

    # -- contents ----------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        """Lays out heading, grid, the cell under the cursor, the meaning of the glyphs, the coverage."""
        yield Line(id="where")
        yield HealthGrid(id="grid")
        yield Line(id="cell")
        yield Line(id="worst")
        yield Line(id="legend")
        yield Line(id="covered")

    def on_mount(self) -> None:
        """Shows what is known."""
        self.grid.focus()
        self._load()

    def on_resize(self) -> None:
        """The legend and the path under the cursor take the room there is."""
        if not self.working:
            self.say("")
        self._show_cell()

    @property
    def grid(self) -> HealthGrid:
        """The cells."""
        return self.query_one(HealthGrid)

    def _put(self, name: str, content: Content | str) -> None:
        """Shows a line; all of them are one line high, whatever they say."""
        line = self.query_one(f"#{name}", Line)
        if str(line.content) != str(content):
            line.update(content, layout=False)

    def say(self, text: str, *, note: bool = False) -> None:
        """Notes take the place of the legend: a line that comes and goes would draw every cell again."""
        super().say("" if note else text, note=note)
        vague = self.map is not None and self.map.vague
        self._put("legend", text if note and text else legend_text(max(self.size.width - 2, 20), vague=vague))

    def _load(self) -> None:
        session, checks = self.host.session, self.checks
        self.work("reading results", lambda progress: health(session, checks, None, progress), self._show)

    def take_in(self, changes: ViewChanges) -> None:
        """New steps come at the right, not checked yet; everything stays where it is."""
        session, checks = self.host.session, self.checks
        for rank in {rank for rank, _ in changes.pairs} | changes.ranks:
            checks.forget_from(rank, set(changes.steps_of(rank)))
        self.work_quietly(lambda progress: health(session, checks, None, progress), self._show)

    def _show(self, found: HealthMap) -> None:
        old = self.map
        self.map = found
        if found.vague != (old is not None and old.vague):
            self.say("")  # the legend has one more to say
        if old is None or old.tree is not found.tree:
            self._tree = OpenTree.fresh(found.tree, ~found.shown) if self._tree is None else self._carried(found)
        self.ranks = tuple(rank for rank in self.ranks if rank in found.ranks) or found.ranks
        self._arrange()

    def _carried(self, found: HealthMap) -> OpenTree:
        tree = self._tree
        return OpenTree.fresh(found.tree) if tree is None else tree.carried_to(found.tree, ~found.shown)

    def _to_start(self) -> None:
        """The cursor starts at the tensor that the view was opened from; else where it began to be bad."""
        map_, grid = self.map, self.grid
        if map_ is None:
            return
        key = self.about.key
        row = map_.nodes.find(key.node, key.graph) if self.about.row >= 0 else -1
        if row >= 0 and self._tree is not None:
            entry = map_.tree.index_of_row(row)
            if self._tree.open_around(entry):
                self._arrange()
            grid.move_to_key(entry)
            grid.move_to_step(key.step)
        elif len(grid.columns_shown) and grid.row_count and grid.code_at(0, 0) < WORTH_A_LOOK:
            grid.next_finding(1, WORTH_A_LOOK)
        self._show_cell()

    def _arrange(self) -> None:
        """Puts rows together: open scopes or nodes, all or those with findings."""
        map_, tree = self.map, self._tree
        if map_ is None or tree is None:
            return
        shown = map_.noteworthy(self.ranks) if self.findings_only else map_.shown
        tree.keep(shown, expand=False)
        entries = rows_of(map_, shown, flat=True) if self.flat else tree.visible().indices.astype(np.int64)
        self.grid.set_empty("nothing was found in what was checked" if self.findings_only else "nothing was dumped")
        self.grid.show_map(GridRows(map_, entries, flat=self.flat), self.ranks, tree.opened, fit_all=self.fit_all)
        self._show_scope()
        self._show_cell()

    def _show_scope(self) -> None:
        map_ = self.map
        if map_ is None:
            return
        words = []
        if len(map_.ranks) > 1:
            words.append(
                f"all {len(map_.ranks)} ranks, the worst is shown" if len(self.ranks) > 1 else f"rank {self.ranks[0]}"
            )
        if self.fit_all and self.grid.columns_shown.most > 1:
            words.append(f"up to {self.grid.columns_shown.most:,} steps a column, the worst is shown")
        words += ["rows with findings only"] if self.findings_only else []
        words += ["nodes in execution order"] if self.flat else []
        single = map_.by_default or len(map_.watchpoints) == 1
        words += watched_lines(map_) if single else [f"checked with {len(map_.watchpoints)} watchpoints"]
        self._put("where", "  ·  ".join(words))
        missing = len(map_.missing)
        hint = "   r checks what is missing" if missing and not self.working else ""
        self._put("covered", Content.assemble(map_.covered_text(), (hint, "bold")))

    @on(HealthGrid.CellMoved)
    def _cell_moved(self, event: HealthGrid.CellMoved) -> None:
        event.stop()
        if not self._placed and self.map is not None:  # only now is it known where the columns are
            self._placed = True
            self._to_start()
        self._show_scope()
        self._show_cell()

    def _show_cell(self) -> None:
        """Says what is under the cursor."""
        map_, grid = self.map, self.grid
        if map_ is None or grid.entry < 0 or not grid.steps_here or grid.entry >= len(map_.tree):
            self._cell = None
            self._cell_text = CellText("", "", "")
        else:
            self._cell = map_.cell(grid.entry, grid.steps_here, self.ranks)
            self._cell_text = cell_text(map_, grid.entry, grid.steps_here, self._cell, ranks=len(map_.ranks))
        shown, room = self._cell_text, max(self.size.width - 4, 20)
        self._put("cell", f"{shown.health}  {shorten(shown.path, max(room - len(shown.health) - 2, 8))}")
        self._put("worst", shown.details)

    # -- where it leads ----------------------------------------------------------------------------

    @property
    def target_here(self) -> ViewTarget:
        """The worst tensor of the cell; of a node without findings its first one; else what the view came from."""
        map_, cell, entry = self.map, self._cell, self.grid.entry
        if map_ is None or cell is None or cell.pair is None:
            return self.about
        if cell.hit is not None:
            return ViewTarget.of_hit(cell.hit)
        row = int(map_.tree.row[entry])
        return self._of_node(map_, row, cell.pair) if row >= 0 else self.about

    def _of_node(self, map_: HealthMap, row: int, pair: Pair) -> ViewTarget:
        if map_.pairs.get(pair) is not None:  # it has been listed: this costs nothing
            return ViewTarget(*tensor_of(self.host.session, map_.nodes, row, pair))
        graph, name = map_.nodes.graph_of(row).name, map_.nodes.names[row]
        own = self.host.session.nodes(pair[0]).find(name, graph)
        return ViewTarget(TensorKey(pair[0], graph, name, Side.OUTPUT, 0, pair[1]), own)

    @on(VirtualTable.RowSelected)
    def _selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter: opens or closes a scope, or goes to the node on the main screen."""
        event.stop()
        if self.map is not None and not self.flat and self.map.tree.is_scope(self.grid.entry):
            self.action_open_close()
            return
        target = self.target_here
        if target.row >= 0:
            self.host.go_to(target)
        else:
            self.say("this node was not dumped here", note=True)

    # -- keys --------------------------------------------------------------------------------------

    def action_open_close(self) -> None:
        """Opens or closes the scope under the cursor."""
        tree, entry = self._tree, self.grid.entry
        if tree is not None and not self.flat and tree.is_scope(entry):
            tree.opened[entry] = not tree.opened[entry]
            self._arrange()

    def action_open_all(self) -> None:
        """Opens or closes everything below the cursor."""
        if self._tree is not None and not self.flat and self._tree.is_scope(self.grid.entry):
            self._tree.toggle_below(self.grid.entry)
            self._arrange()

    def action_deeper(self) -> None:
        """Opens one level more."""
        self._to_level(1)

    def action_shallower(self) -> None:
        """Closes the deepest level."""
        self._to_level(-1)

    def _to_level(self, by: int) -> None:
        map_, tree = self.map, self._tree
        if map_ is None or tree is None or self.flat:
            return
        rows = tree.visible().indices
        level = max(int(map_.tree.depth[rows].max(initial=0)) + by, 0)
        tree.opened[:] = (map_.tree.depth < level) & (map_.tree.size > 1)
        above = [each for each in map_.tree.ancestors(self.grid.entry) if map_.tree.depth[each] >= level]
        at = above[-1] if above else self.grid.entry
        self._arrange()
        self.grid.move_to_key(at)

    def action_findings(self) -> None:
        """Shows only rows with findings, or all."""
        self.findings_only = not self.findings_only
        self._arrange()

    def action_nodes(self) -> None:
        """Changes between nodes and scopes."""
        self.flat = not self.flat
        self._arrange()

    def action_fit(self) -> None:
        """Shows all steps on one screen, or one in each column."""
        self.fit_all = not self.fit_all
        self._arrange()

    def action_next(self) -> None:
        """Goes to the next finding of the row."""
        if not self.grid.next_finding(1, WORTH_A_LOOK):
            self.say("no finding after this one in this row", note=True)

    def action_previous(self) -> None:
        """Goes to the finding before."""
        if not self.grid.next_finding(-1, WORTH_A_LOOK):
            self.say("no finding before this one in this row", note=True)

    def action_steps_back(self) -> None:
        """Moves a screenful of steps back."""
        self.grid.page_columns(-1)

    def action_steps_on(self) -> None:
        """Moves a screenful of steps on."""
        self.grid.page_columns(1)

    def action_rank_back(self) -> None:
        """Moves one rank back."""
        self._turn(-1)

    def action_rank_on(self) -> None:
        """Moves one rank on."""
        self._turn(1)

    def _turn(self, by: int) -> None:
        if self.map is None or len(self.map.ranks) < 2:
            self.say("there is one rank only", note=True)
            return
        choices: Sequence[tuple[int, ...]] = (self.map.ranks, *((rank,) for rank in self.map.ranks))
        self.ranks = choices[(choices.index(self.ranks) + by) % len(choices)]
        self._arrange()

    # -- checking ----------------------------------------------------------------------------------

    def action_check(self) -> None:
        """Checks what is missing, a part at a time: each is shown when it is there."""
        if self.working:
            return
        if self.map is None:
            self._load()
            return
        missing = self.checks.missing(self.host.session.pairs())
        if not missing:
            self.say("everything was checked with these watchpoints", note=True)
            return
        self._check(missing, 0, FIRST_PART)

    def _check(self, missing: Sequence[Pair], start: int, count: int) -> None:
        session, checks = self.host.session, self.checks
        part = missing[start : start + count]

        def job(progress: ProgressFn) -> HealthMap:
            checks.check(part, scaled(progress, start, len(missing), len(part)))
            return health(session, checks)

        def done(found: HealthMap) -> None:
            following = start + len(part)
            self._show(found)
            if following < len(missing) and not checks.missing(part):
                self._check(missing, following, min(2 * count, LARGEST_PART))

        self.work(f"checking {len(missing):,} of {len(session.pairs()):,} steps", job, done)

    def action_cancel(self) -> None:
        """Esc: what was finished is shown."""
        asked = self.working
        super().action_cancel()
        if asked and self.map is None:
            self.say("stopped: r starts again", note=True)
        elif asked:
            self._load()
            self.say("stopped: what was finished is shown", note=True)

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        """Returns the rows as they are shown, with every step."""
        map_, grid = self.map, self.grid
        rows = grid.rows
        if map_ is None or not isinstance(rows, GridRows):
            return None
        lines = map_lines(map_, rows.entries, self.ranks, WIDE, fit=False, flat=self.flat)
        text = [*lines, "", legend_text(vague=map_.vague), *watched_lines(map_), map_.covered_text()]
        table = [(path, *cells) for path, _, cells in map_rows(map_, rows.entries, self.ranks)]
        header = ("path", *(f"step {step_text(step)}" for step in map_.steps))
        return Extract("health", "\n".join(text) + "\n", str(self._cell_text), header, table)

    @property
    def row_name(self) -> str:
        """The row under the cursor, for tests."""
        return entry_name(self.map, self.grid.entry, flat=self.flat) if self.map is not None else ""
