"""Pane 2: source lines, of the whole run or of the selected node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural
from tui_debugger.tui import theme
from tui_debugger.tui.panes.pane import Pane, pane_bindings
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.graph.stacks import SourceFile, StackIndex
    from tui_debugger.model import Frame
    from tui_debugger.tui.widgets.search import ListSearch
    from tui_debugger.tui.widgets.text import Cell


@dataclass(frozen=True)
class SourceLineRows:
    """Files with their lines, flat. The key is (path, line); line 0 is the file itself.

    Attributes:
        files: number of files.
        entries: file and index into its lines, -1 for the file's own line.
        places: row by key.
    """

    files: int
    entries: tuple[tuple[SourceFile, int], ...]
    places: dict[Hashable, int]

    @classmethod
    def of(cls, index: StackIndex) -> SourceLineRows:
        """Returns the rows of an index; made in a worker, as a large run has very many lines."""
        entries = tuple((file, line) for file in index.files for line in range(-1, len(file.lines)))
        rows = cls(len(index.files), entries, {})
        rows.places.update({rows.key(i): i for i in range(len(entries))})
        return rows

    @property
    def lines(self) -> int:
        """Number of source lines."""
        return len(self.entries) - self.files

    @cached_property
    def line_rows(self) -> Sequence[int]:
        """The rows that are lines and not files."""
        return [row for row, (_, line) in enumerate(self.entries) if line >= 0]

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.entries)

    def key(self, index: int) -> Hashable:
        """Returns the path and line of a row."""
        file, line = self.entries[index]
        return file.path, file.lines[line].line if line >= 0 else 0

    def find(self, key: Hashable) -> int:
        """Returns the row of a path and line, or -1."""
        return self.places.get(key, -1)

    def frame(self, index: int) -> Frame:
        """Returns the line of a row as a frame; of a file its first line."""
        from tui_debugger.model import Frame  # not before a line is chosen: the first frame waits for no model

        file, number = self.entries[index]
        line = file.lines[max(number, 0)]
        return Frame(file.path, line.line, line.code, end_line=line.line, framework=file.framework)

    def cells(self, index: int) -> Sequence[Cell]:
        """Returns a file, or a line with the number of its nodes."""
        file, number = self.entries[index]
        if number < 0:
            style = theme.DIM if file.framework else theme.STRONG
            return (Text(clean(file.path), style),)
        line = file.lines[number]
        style = theme.DIM if file.framework else theme.NORMAL
        return Text(str(line.line), theme.DIM), Text(line.code, style), Text(f"{len(line.rows):,}", theme.DIM)


def frame_cells(frame: Frame) -> Sequence[Cell]:
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
    return name, Text(str(frame.line), theme.DIM), code


_COLUMNS = (
    Column("line", 6, right=True, frozen=True),
    Column("code", 20, elastic=3),
    Column("nodes", 5, right=True, searched=False),
)
_FRAME_COLUMNS = (
    Column("file", 16, elastic=1, frozen=True),
    Column("line", 6, right=True, frozen=True),
    Column("code", 16, elastic=4),
)


class StackPane(Pane):
    """Source lines. Enter on a line restricts the node list to it."""

    PANE = "stack"
    BINDINGS: ClassVar[list[BindingType]] = pane_bindings("stack")

    class LineChosen(Message):
        """Show only the nodes of this source line."""

        def __init__(self, path: str, line: int) -> None:
            """Path as the training process saw it."""
            super().__init__()
            self.path = path
            self.line = line

    class ModeChanged(Message):
        """The pane changed between run and node, and may need its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable(_FRAME_COLUMNS, empty="no node selected", id="stack-table")
        self.whole_run = False
        self._frames: tuple[Frame, ...] = ()
        self._reason = "no node selected"
        self._run: SourceLineRows | None = None
        self._before_search: tuple[bool, object] = (False, None)

    def toggle_mode(self) -> None:
        """Changes between the run and the node."""
        self.whole_run = not self.whole_run
        self._draw(keep=False)
        self.post_message(self.ModeChanged())

    def show_run(self, rows: SourceLineRows) -> None:
        """Shows all lines of the run, or those that a search found."""
        self._run = rows
        if self.whole_run:
            self._draw()

    def show_node(self, frames: tuple[Frame, ...], reason: str) -> None:
        """Shows the stack of the selected node; ``reason`` says why it is empty."""
        self._frames, self._reason = frames, reason
        if not self.whole_run:
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
        """Opens the search box on all lines of the run."""
        if not self.search_text:
            self._before_search = self.whole_run, self.table.place()
        if not self.whole_run:
            self.toggle_mode()
        super().open_search()

    def matches(self) -> Sequence[int]:
        """Returns the lines that are left."""
        run = self._run
        return run.line_rows if run is not None and self.table.rows is run else ()

    def place(self, _: ListSearch) -> object:
        """Returns where the cursor was before the lines of the run were shown."""
        return self._before_search

    def go_back(self, search: ListSearch, place: object) -> None:
        """Goes back there; the box shows the lines of the run as long as it is open."""
        if isinstance(place, tuple):
            whole_run, before = place
            if whole_run or search.typing:
                self.table.go_back(before if whole_run else None)
            else:
                self.toggle_mode()
                self.table.go_back(before)

    def _draw(self, *, keep: bool = True) -> None:
        if self.whole_run:
            self.table.set_columns(_COLUMNS)
            searching = bool(self.search_text)
            self.table.set_empty("no line matches" if searching else "the dump has no source lines")
            if self._run is not None:
                self.table.set_rows(self._run, keep=keep)
                self.set_count(f"of the run · {plural(self._run.files, 'file')}, {plural(self._run.lines, 'line')}")
            return

        self.table.set_columns(_FRAME_COLUMNS)
        self.table.set_empty(self._reason)
        self.table.set_rows(ListRows([frame_cells(frame) for frame in self._frames]), keep=keep)
        self.set_count("of the node")
        self._show_path()  # the first row of another stack is no other row for the table

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        """Shows the whole path."""
        event.stop()
        self._show_path()

    def _show_path(self) -> None:
        frame = self.frame
        self.set_detail("" if frame is None else frame.path)

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter restricts the node list."""
        event.stop()
        frame = self.frame
        if frame is None or (self.whole_run and event.key == (frame.path, 0)):
            return
        self.post_message(self.LineChosen(frame.path, frame.line))
