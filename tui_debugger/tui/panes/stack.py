"""Pane 2: source lines, of the whole run or of the selected node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.message import Message

from tui_debugger.model import Frame
from tui_debugger.tui import theme
from tui_debugger.tui.panes.pane import Pane, pane_bindings
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable
from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import plural

if TYPE_CHECKING:
    from tui_debugger.graph.stacks import SourceFile, StackIndex

_COLUMNS = (
    Column("line", 6, right=True, frozen=True),
    Column("code", 20, elastic=3),
    Column("nodes", 5, right=True),
)
_FRAME_COLUMNS = (
    Column("file", 16, elastic=1, frozen=True),
    Column("line", 6, right=True, frozen=True),
    Column("code", 16, elastic=4),
)


@dataclass(frozen=True)
class _RunRows:
    """Files with their lines, flat. The key is (path, line); line 0 is the file itself."""

    entries: tuple[tuple[SourceFile, int], ...]
    """File and index into its lines, -1 for the file's own line."""
    places: dict[Hashable, int]

    @classmethod
    def of(cls, index: StackIndex) -> _RunRows:
        entries = tuple((file, line) for file in index.files for line in range(-1, len(file.lines)))
        rows = cls(entries, {})
        rows.places.update({rows.key(i): i for i in range(len(entries))})
        return rows

    @property
    def row_count(self) -> int:
        return len(self.entries)

    def key(self, index: int) -> Hashable:
        file, line = self.entries[index]
        return file.path, file.lines[line].line if line >= 0 else 0

    def find(self, key: Hashable) -> int:
        return self.places.get(key, -1)

    def cells(self, index: int) -> Sequence[Cell]:
        file, number = self.entries[index]
        if number < 0:
            style = theme.DIM if file.framework else theme.STRONG
            return (Text(clean(file.path), style),)
        line = file.lines[number]
        style = theme.DIM if file.framework else theme.NORMAL
        return Text(str(line.line), theme.DIM), Text(line.code, style), Text(f"{len(line.rows):,}", theme.DIM)


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
        """Shows the selected node's stack."""
        super().__init__()
        self.table = VirtualTable(_FRAME_COLUMNS, empty="no node selected", id="stack-table")
        self.whole_run = False
        self._frames: tuple[Frame, ...] = ()
        self._reason = "no node selected"
        self._index: StackIndex | None = None

    def toggle_mode(self) -> None:
        """Changes between the run and the node."""
        self.whole_run = not self.whole_run
        self._draw(keep=False)
        self.post_message(self.ModeChanged())

    def show_run(self, index: StackIndex) -> None:
        """All lines of the run, or those that a search found."""
        self._index = index
        if self.whole_run:
            self._draw()

    def show_node(self, frames: tuple[Frame, ...], reason: str) -> None:
        """The stack of the selected node; ``reason`` says why it is empty."""
        self._frames, self._reason = frames, reason
        if not self.whole_run:
            self._draw(keep=False)

    @property
    def frame(self) -> Frame | None:
        """The frame under the cursor; in the run's list a frame made from the line."""
        row = self.table.cursor_row
        if not self.whole_run:
            return self._frames[row] if row < len(self._frames) else None
        rows = self.table.rows
        if not isinstance(rows, _RunRows) or row >= rows.row_count:
            return None
        file, number = rows.entries[row]
        line = file.lines[max(number, 0)]
        return Frame(file.path, line.line, line.code, end_line=line.line, framework=file.framework)

    def open_search(self) -> None:
        """Searching is about the run."""
        if not self.whole_run:
            self.toggle_mode()
        super().open_search()

    def _draw(self, *, keep: bool = True) -> None:
        if self.whole_run:
            self.table.set_columns(_COLUMNS)
            searching = bool(self.search_text)
            self.table.set_empty("no line matches" if searching else "the dump has no source lines")
            if self._index is not None:
                self.table.set_rows(_RunRows.of(self._index), keep=keep)
                lines = plural(sum(len(file.lines) for file in self._index.files), "line")
                self.set_count(f"of the run · {plural(len(self._index.files), 'file')}, {lines}")
            return
        self.table.set_columns(_FRAME_COLUMNS)
        self.table.set_empty(self._reason)
        self.table.set_rows(ListRows([_frame_cells(frame) for frame in self._frames]), keep=keep)
        self.set_count("of the node")

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        """Shows the whole path."""
        event.stop()
        frame = self.frame
        self.set_detail("" if frame is None else frame.path)

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter restricts the node list."""
        event.stop()
        frame = self.frame
        if frame is None or (self.whole_run and event.key == (frame.path, 0)):
            return
        self.post_message(self.LineChosen(frame.path, frame.line))


def _frame_cells(frame: Frame) -> Sequence[Cell]:
    """Framework frames are dim, enclosing functions say ``in``, forward frames say ``fwd``."""
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
