"""The source stack of a node, with the lines around each frame where the file exists on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget

from tui_debugger.check.types import SourceExcerpt
from tui_debugger.model import Frame
from tui_debugger.text.clean import clean
from tui_debugger.tui.dialogs.modal import Line, Modal, Run, run_here
from tui_debugger.tui.theme import DIM, GREY, STRONG
from tui_debugger.tui.widgets.text import Cell, shorten
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable

NOT_HERE = (
    "This file is not on this machine (or shorter than the line number).\n"
    "Where the sources have moved: tdbg open … --source-map OLD=NEW"
)


class SourceScreen(Modal[None]):
    """Frames above, source lines of the frame under the cursor below."""

    FULL = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "own(1)", show=False),
        Binding("N", "own(-1)", show=False),
    ]
    DEFAULT_CSS = """
    SourceScreen {
        #frames { height: auto; max-height: 50%; min-height: 2; }
        #where { color: $primary; text-style: bold; height: 1; margin-top: 1; }
        #lines { height: 1fr; }
    }
    """
    hints = (("↑ ↓", "frame"), ("n N", "next frame of your own code"), ("Esc", "back"))

    def __init__(
        self,
        title: str,
        frames: Sequence[Frame],
        excerpt: Callable[[Frame, int], SourceExcerpt | None],
        *,
        focus: int = 0,
        run: Run[object] = run_here,
    ) -> None:
        """Shows a stack.

        Args:
            title: whose stack it is.
            frames: innermost first.
            excerpt: reads so many lines around a frame; None when the file is not on this machine.
            focus: frame that has the cursor at first.
            run: how ``excerpt`` gets done beside the event loop.
        """
        super().__init__()
        self.heading = f"Source of {shorten(title, 60)}"
        self.frames = frames
        self._excerpt = excerpt
        self._first = focus
        self._run = run
        self._wanted: object = None

    def body(self) -> Iterable[Widget]:
        """Frames, path of the shown file, lines."""
        yield VirtualTable(
            (Column("", 1), Column("place", 26), Column("code", 20, elastic=1)),
            ListRows([_frame_cells(frame) for frame in self.frames]),
            empty="this node has no source stack",
            id="frames",
        )
        yield Line(id="where")
        yield Line(id="lines")

    def on_mount(self) -> None:
        """The cursor starts where the caller was."""
        table = self.query_one(VirtualTable)
        table.styles.height = len(self.frames) + 1 if self.frames else 2
        table.focus()
        if 0 < self._first < len(self.frames):
            table.move_to(self._first)

    def action_own(self, direction: int) -> None:
        """The next frame that is neither of a framework nor mere context."""
        table = self.query_one(VirtualTable)
        count = len(self.frames)
        for step in range(1, count + 1):
            at = (table.cursor_row + direction * step) % count
            if not (self.frames[at].framework or self.frames[at].context):
                table.move_to(at)
                return
        self.say("no frame outside the framework", note=True)

    @on(VirtualTable.RowHighlighted)
    def _read(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        if event.row < len(self.frames):
            self._show(self.frames[event.row])

    def on_resize(self) -> None:
        """More or fewer lines fit."""
        self.call_after_refresh(self._show_current)

    def _show_current(self) -> None:
        row = self.query_one(VirtualTable).cursor_row
        if row < len(self.frames):
            self._show(self.frames[row])

    def _show(self, frame: Frame) -> None:
        self._wanted = wanted = object()
        lines = self.query_one("#lines", Line)
        context = max(2, (lines.size.height - 1) // 2) if lines.size.height else 4

        def done(found: object) -> None:
            if self._wanted is wanted and self.is_attached:
                self._show_excerpt(frame, found if isinstance(found, SourceExcerpt) else None)

        self._run(lambda: self._excerpt(frame, context), done, lambda _: done(None))

    def _show_excerpt(self, frame: Frame, found: SourceExcerpt | None) -> None:
        where, lines = self.query_one("#where", Line), self.query_one("#lines", Line)
        if found is None:
            where.show(f"{shorten(frame.path, 60)}:{frame.line}")
            lines.show(Content.assemble(f"{clean(frame.code.strip())}\n\n", (NOT_HERE, GREY)))
            return
        where.show(f"{shorten(found.path, 60)}:{frame.line}")
        parts: list[str | tuple[str, str]] = []
        digits = len(str(found.first + len(found.lines)))
        last = max(frame.line, frame.end_line)
        for number, line in enumerate(found.lines, found.first):
            hot = frame.line <= number <= last if frame.context is False else number == frame.line
            parts.append((f"{'▶' if hot else ' '} {number:>{digits}} ", "bold" if hot else GREY))
            parts.append((f"{clean(line)}\n", "bold") if hot else f"{clean(line)}\n")
        lines.show(Content.assemble(*parts))


def _frame_cells(frame: Frame) -> tuple[Cell, Cell, Cell]:
    """Mark, place, code. Marks: ◀ forward node's frame, ⋯ enclosing function, └ nested below the frame above."""
    style = DIM if frame.framework or frame.context else ""
    mark = "◀" if frame.forward else "⋯" if frame.context else "·" if frame.framework else "●"
    place = f"{shorten(PurePath(frame.path).name, 20)}:{frame.line}"
    nested = "└ " * min(frame.depth, 3)
    code = Text(nested, DIM)
    if frame.forward:
        code.append("forward: ", DIM)
    if frame.context:
        code.append("in: ", DIM)
    code.append(clean(frame.code.strip()), style)
    return Text(mark, STRONG if not style else DIM), Text(place, style), code
