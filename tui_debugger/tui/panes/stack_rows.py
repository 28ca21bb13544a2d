"""The rows of the stack list: source lines of the run, frames of a node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from tui_debugger.model import Frame
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.words.clean import clean

if TYPE_CHECKING:
    from tui_debugger.graph.stacks import SourceFile, StackIndex


@dataclass(frozen=True)
class RunRows:
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
    def of(cls, index: StackIndex) -> RunRows:
        """The rows of an index; made in a worker, as a large run has very many lines."""
        entries = tuple((file, line) for file in index.files for line in range(-1, len(file.lines)))
        rows = cls(len(index.files), entries, {})
        rows.places.update({rows.key(i): i for i in range(len(entries))})
        return rows

    @property
    def lines(self) -> int:
        """Number of source lines."""
        return len(self.entries) - self.files

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.entries)

    def key(self, index: int) -> Hashable:
        """Path and line of a row."""
        file, line = self.entries[index]
        return file.path, file.lines[line].line if line >= 0 else 0

    def find(self, key: Hashable) -> int:
        """Row of a path and line, or -1."""
        return self.places.get(key, -1)

    def frame(self, index: int) -> Frame:
        """The line of a row as a frame; of a file its first line."""
        file, number = self.entries[index]
        line = file.lines[max(number, 0)]
        return Frame(file.path, line.line, line.code, end_line=line.line, framework=file.framework)

    def cells(self, index: int) -> Sequence[Cell]:
        """A file, or a line with the number of its nodes."""
        file, number = self.entries[index]
        if number < 0:
            style = theme.DIM if file.framework else theme.STRONG
            return (Text(clean(file.path), style),)
        line = file.lines[number]
        style = theme.DIM if file.framework else theme.NORMAL
        return Text(str(line.line), theme.DIM), Text(line.code, style), Text(f"{len(line.rows):,}", theme.DIM)


def frame_cells(frame: Frame) -> Sequence[Cell]:
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
