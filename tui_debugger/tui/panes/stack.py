"""Pane 2: source lines of the whole run, or the stack of the selected node."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from rich.text import Text
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural
from tui_debugger.tui import theme
from tui_debugger.tui.panes.pane import Pane
from tui_debugger.tui.widgets.virtual_table import LazyRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.graph.stacks import SourceFile, StackIndex
    from tui_debugger.model import Frame
    from tui_debugger.session import CheckResult
    from tui_debugger.tui.widgets.search import ListSearch
    from tui_debugger.tui.widgets.text import Cell


@dataclass(frozen=True, eq=False)
class LineHits:
    """Findings by source line.

    ``counts`` maps (path, line) to the numbers of findings at the current step, origins among them, findings at other
    steps, origins among those. Lines without findings are left out.
    """

    counts: Mapping[tuple[str, int], tuple[int, int, int, int]] = field(default_factory=dict)

    @cached_property
    def width(self) -> int:
        """Cells of the longest text; 0 without findings."""
        return max((len(self.text(*line).plain) for line in self.counts), default=0)

    def text(self, path: str, line: int) -> Text:
        """Returns ``✗12 ◆2 ×30 ◇1``: findings and origins here, then at other steps."""
        text = Text(no_wrap=True)
        glyphs = (theme.HIT_GLYPH, theme.ORIGIN_GLYPH, theme.HIT_ELSEWHERE_GLYPH, theme.ORIGIN_ELSEWHERE_GLYPH)
        for at, (glyph, count) in enumerate(zip(glyphs, self.counts.get((path, line), ()), strict=False)):
            if count:
                text.append(" " if text.plain else "")
                text.append(f"{glyph}{count:,}", theme.FINDING if at < 2 else theme.DIM)
        return text


def line_hits(index: StackIndex, nodes: int, result: CheckResult, place: tuple[int, int | None]) -> LineHits:
    """Counts a rank's findings on each line of their nodes' stacks, at the current step and at all others.

    ``nodes``: the number of nodes that ``index`` is about. ``place``: current rank and step.
    """
    import numpy as np

    lines = [(file.path, line) for file in index.files for line in file.lines]
    hits = result.hits
    found = (hits.node < nodes) & (hits.rank == place[0]) & hits.found()
    if not lines or not found.any():
        return LineHits()
    here = hits.at(*place)
    which = (here, here & hits.origin, ~here, ~here & hits.origin)
    by_node = np.stack([np.bincount(hits.node[found & each], minlength=nodes) for each in which])
    rows = np.concatenate([line.rows for _, line in lines])
    starts = np.cumsum([0, *(len(line.rows) for _, line in lines)])[:-1]
    counts = np.add.reduceat(by_node[:, rows], starts, axis=1).T
    return LineHits(
        {
            (lines[at][0], lines[at][1].line): (first, origins, others, far)
            for at in np.flatnonzero(counts.any(axis=1)).tolist()
            for first, origins, others, far in [counts[at].tolist()]
        }
    )


@dataclass(frozen=True)
class SourceLineRows:
    """Rows of a ``VirtualTable``: files with their lines. The key is (path, line); line 0 is the file.

    ``entries``: file, and index into its lines (-1: the file itself). ``places``: row by key.
    """

    files: int
    entries: tuple[tuple[SourceFile, int], ...]
    places: dict[Hashable, int]
    hits: LineHits = field(default_factory=LineHits)

    @classmethod
    def of(cls, index: StackIndex) -> SourceLineRows:
        """Returns the rows of an index; call it in a worker, as a large run has very many lines."""
        entries = tuple((file, line) for file in index.files for line in range(-1, len(file.lines)))
        rows = cls(len(index.files), entries, {})
        rows.places.update({rows.key(i): i for i in range(len(entries))})
        return rows

    @property
    def lines(self) -> int:
        return len(self.entries) - self.files

    @cached_property
    def line_rows(self) -> Sequence[int]:
        return [row for row, (_, line) in enumerate(self.entries) if line >= 0]

    @property
    def row_count(self) -> int:
        return len(self.entries)

    def key(self, index: int) -> Hashable:
        file, line = self.entries[index]
        return file.path, file.lines[line].line if line >= 0 else 0

    def find(self, key: Hashable) -> int:
        return self.places.get(key, -1)

    def frame(self, index: int) -> Frame:
        """Returns the line of a row as a frame; for a file its first line."""
        from tui_debugger.model import Frame  # imported only now: the first frame does without the model

        file, number = self.entries[index]
        line = file.lines[max(number, 0)]
        return Frame(file.path, line.line, line.code, end_line=line.line, framework=file.framework)

    def cells(self, index: int) -> Sequence[Cell]:
        file, number = self.entries[index]
        if number < 0:
            style = theme.DIM if file.framework else theme.STRONG
            return (Text(clean(file.path), style),)
        line = file.lines[number]
        style = theme.DIM if file.framework else theme.NORMAL
        hits = [self.hits.text(file.path, line.line)] if self.hits.width else []
        return [Text(str(line.line), theme.DIM), *hits, Text(line.code, style), Text(f"{len(line.rows):,}", theme.DIM)]


def frame_cells(frame: Frame, hits: LineHits) -> Sequence[Cell]:
    """Returns a row: framework frames are dim, enclosing functions say ``in``, forward frames say ``fwd``."""
    style = theme.DIM if frame.framework else theme.NORMAL
    name = Text(no_wrap=True).append("  " * frame.depth + ("└ " if frame.substack else ""), theme.DIM)
    name.append(clean(frame.path.rpartition("/")[2]), style)
    code = Text(no_wrap=True)
    if frame.forward:
        code.append("fwd ", theme.WATCHED)
    if frame.context:
        code.append("in ", theme.DIM)
        style = theme.DIM
    code.append(clean(frame.code), style)
    counts = hits.text(*_line_of(frame))
    return [name, Text(str(frame.line), theme.DIM), *([counts] if hits.width else []), code]


def _line_of(frame: Frame) -> tuple[str, int]:
    """Returns (path, line); line 0 for the frame of an enclosing function, which has no line of its own."""
    return frame.path, 0 if frame.context else frame.line


def _with_hits(columns: tuple[TableColumn, ...], at: int, hits: LineHits) -> tuple[TableColumn, ...]:
    found = (TableColumn("hits", max(hits.width, 4), searched=False),) if hits.width else ()
    return (*columns[:at], *found, *columns[at:])


_OF_THE_NODE = "of the node"
_COLUMNS = (
    TableColumn("line", 6, right=True, frozen=True),
    TableColumn("code", 20, elastic=3),
    TableColumn("nodes", 5, right=True, searched=False),
)
_FRAME_COLUMNS = (
    TableColumn("file", 16, elastic=1, frozen=True),
    TableColumn("line", 6, right=True, frozen=True),
    TableColumn("code", 16, elastic=4),
)


class StackPane(Pane):
    """Source lines. Enter on a line restricts the node list to it."""

    PANE = "stack"
    CLEARS_SEARCH = True

    @dataclass
    class LineChosen(Message):
        """Asks to show only the nodes of a source line; the path is the training process's."""

        path: str
        line: int

    class ModeChanged(Message):
        """The pane changed between run and node, and may need its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable(_FRAME_COLUMNS, empty="no node selected", id="stack-table")
        self.whole_run = False
        self._frames: tuple[Frame, ...] = ()
        self._reason = "no node selected"
        self._run: SourceLineRows | None = None
        self._hits = LineHits()
        self._before_search: tuple[bool, object] = (False, None)

    def toggle_mode(self) -> None:
        self.whole_run = not self.whole_run
        self._draw(keep=False)
        self.post_message(self.ModeChanged())

    def show_run(self, rows: SourceLineRows) -> None:
        self._run = replace(rows, hits=self._hits)
        if self.whole_run:
            self._draw()

    def show_hits(self, hits: LineHits) -> None:
        if hits.counts == self._hits.counts:
            return
        self._hits = hits
        if self._run is not None:
            self._run = replace(self._run, hits=hits)
        if self._run is not None or not self.whole_run:
            self._draw()

    def show_node(self, frames: tuple[Frame, ...], reason: str) -> None:
        """Shows the stack of the selected node; ``reason`` says why it is empty."""
        at_first = self.count == _OF_THE_NODE and not self.table.cursor_row and not self.table.top
        same = at_first and (frames, reason) == (self._frames, self._reason)
        self._frames, self._reason = frames, reason
        if not self.whole_run and not same:
            self._draw(keep=False)

    @property
    def frame(self) -> Frame | None:
        """The frame under the cursor; in the run's list a frame made from the line."""
        row = self.table.cursor_row
        if not self.whole_run:
            return self._frames[row] if row < len(self._frames) else None
        run = self._run
        return run.frame(row) if run is not None and self.table.rows is run and row < run.row_count else None

    def open_search(self) -> None:
        if not self.search_text:
            self._before_search = self.whole_run, self.table.place()
        if not self.whole_run:
            self.toggle_mode()
        super().open_search()

    def matches(self) -> Sequence[int]:
        run = self._run
        return run.line_rows if run is not None and self.table.rows is run else ()

    def place(self, _: ListSearch) -> object:
        """Returns the cursor's place from before ``open_search`` changed to the lines of the run."""
        return self._before_search

    def go_back(self, search: ListSearch, place: object) -> None:
        """Moves the cursor back, and leaves the lines of the run if they were not shown before the search."""
        if isinstance(place, tuple):
            whole_run, before = place
            if whole_run or search.typing:
                self.table.go_back(before if whole_run else None)
            else:
                self.toggle_mode()
                self.table.go_back(before)

    def _draw(self, *, keep: bool = True) -> None:
        if self.whole_run:
            self._set_columns(_with_hits(_COLUMNS, 1, self._hits))
            searching = bool(self.search_text)
            self.table.set_empty("no line matches" if searching else "the dump has no source lines")
            if self._run is not None:
                self.table.set_rows(self._run, keep=keep)
                self.set_count(f"of the run · {plural(self._run.files, 'file')}, {plural(self._run.lines, 'line')}")
            return

        self._set_columns(_with_hits(_FRAME_COLUMNS, 2, self._hits))
        self.table.set_empty(self._reason)
        hits = self._hits
        rows = LazyRows(
            list(enumerate(self._frames)),
            lambda each: frame_cells(each[1], hits),
            lambda each: each[0],
            lambda each: (each[1], hits.counts.get(_line_of(each[1])), bool(hits.width)),
        )
        self.table.set_rows(rows, keep=keep)
        self.set_count(_OF_THE_NODE)
        self.show_row()  # row 0 of another stack has the same key: the table sends no event

    def _set_columns(self, columns: tuple[TableColumn, ...]) -> None:
        if columns != self.table.columns:
            self.table.set_columns(columns)

    def show_row(self) -> None:
        frame = self.frame
        self.set_detail("" if frame is None else frame.path)

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        frame = self.frame
        if frame is None or (self.whole_run and event.key == (frame.path, 0)):
            return
        self.post_message(self.LineChosen(frame.path, frame.line))
