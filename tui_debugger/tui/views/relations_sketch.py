"""The sketch of Relations: boxes and lines around a tensor or a scope; the cursor moves from box to box."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip

from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.relations import Neighbourhood, Related, mark_of, sketch_notes, sketch_of
from tui_debugger.text.sketch import HEAVY, LEAST, Sketch
from tui_debugger.text.tables import cut_end
from tui_debugger.tui import theme
from tui_debugger.tui.actions import bindings, view_actions
from tui_debugger.tui.widgets.line_window import LineWindow
from tui_debugger.tui.widgets.text import fit, joined

_GROUP = "Sketch (s in Relations)"
ACTIONS: Final = (
    *view_actions(
        _GROUP,
        ("move(-1,0)", "left h", "Left", "To the box on the left: what it was made from."),
        ("move(1,0)", "right l", "Right", "To the box on the right: what uses it."),
        ("move(0,-1)", "up k", "Up", "To the box above."),
        ("move(0,1)", "down j", "Down", "To the box below."),
        (
            "select",
            "enter",
            "Open",
            "Opens a scope; puts a tensor into the middle; there, shows its values.",
        ),
        ("close", "-", "Close scope", "Makes the scope around the cursor one box, with the boxes around that."),
    ),
)
_STYLES: Final = {"◆": theme.FINDING, "✗": theme.FINDING, "?": theme.DOUBT}


MOST_LINES: Final = 200


@dataclass(frozen=True)
class BoxPicture:
    """What a sketch shows: boxes with a key and a mark each, the first one in the middle.

    ``draw`` gets a width, and returns the drawing with notes for the line below it.
    """

    keys: Sequence[Hashable]
    marks: Sequence[str]
    draw: Callable[[int], tuple[Sketch, list[str]]]


def tensor_picture(found: Neighbourhood, row: Callable[[Related], TensorRow]) -> BoxPicture:
    """Returns the tensors around a tensor; ``row`` returns a tensor's row, measured if possible."""

    def draw(width: int) -> tuple[Sketch, list[str]]:
        drawn = sketch_of(found, width, MOST_LINES, row)
        return drawn, sketch_notes(found, drawn)

    return BoxPicture([each.key for each in found.tensors], [mark_of(each, row(each)) for each in found.tensors], draw)


class GraphSketch(LineWindow, can_focus=True):
    """Draws a picture as wide as there is room; its lines scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]
    DEFAULT_CSS = "GraphSketch { display: none; }"

    class Moved(Message):
        """The cursor moved to another box, or other boxes are visible."""

    class Chosen(Message):
        """Enter on a box."""

    class Closed(Message):
        """The scope around the cursor shall be one box."""

    class Left(Message):
        """An arrow leads beyond what is drawn."""

        def __init__(self, layers: int) -> None:
            super().__init__()
            self.layers = layers

    def __init__(self) -> None:
        super().__init__(header=False, id="sketch")
        self._picture: BoxPicture | None = None
        self._sketch: Sketch | None = None
        self._notes = ""
        self._styles: list[Style] = []
        self.cursor = 0

    def show(self, picture: BoxPicture, key: Hashable = None) -> None:
        """Shows a picture; the cursor goes to the box with this key, else to the middle."""
        keys = list(picture.keys)
        self._picture, self.cursor = picture, keys.index(key) if key in keys else 0
        self._draw()

    @property
    def key(self) -> Hashable:
        """The key of the box under the cursor; None without a picture."""
        return self._picture.keys[self.cursor] if self._picture is not None else None

    @property
    def in_sight(self) -> set[Hashable]:
        """The keys of the boxes on the screen."""
        boxes = self._sketch.boxes if self._sketch is not None else ()
        seen = [each.box for each in boxes if each.y < self.top + self.page and each.y + each.height > self.top]
        return {self._picture.keys[number] for number in seen} if self._picture is not None else set()

    @property
    def text(self) -> str:
        return "\n".join([*self._sketch.rows, *filter(None, [self._notes])]) if self._sketch is not None else ""

    # -- moving --------------------------------------------------------------------------------------

    def action_move(self, layers: int, rows: int) -> None:
        if self._sketch is not None:
            number = self._sketch.beside(self.cursor, layers, rows)
            if number == self.cursor and layers:
                self.post_message(self.Left(layers))
            self._go(number)

    def action_select(self) -> None:
        self.post_message(self.Chosen())

    def action_close(self) -> None:
        self.post_message(self.Closed())

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        number = self._sketch.at(at.x, at.y + self.top) if at is not None and self._sketch is not None else -1
        if number >= 0:
            event.stop()
            self._go(number)
            if event.chain > 1:
                self.action_select()

    def _go(self, number: int) -> None:
        if number != self.cursor:
            self.cursor = number
            self._reveal()

    def _reveal(self) -> None:
        """Brings the box of the cursor into sight."""
        box = self._sketch.box(self.cursor) if self._sketch is not None else None
        if box is not None and not self.top <= box.y <= box.y + box.height <= self.top + self.page:
            self.show_from(box.y + box.height // 2 - self.page // 2)
        self.refresh_changed()
        self.post_message(self.Moved())

    def show_from(self, top: int) -> None:
        before = self.top
        super().show_from(top)
        if self.top != before:
            self.post_message(self.Moved())

    # -- drawing -------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self._picture is None or self.line_width < LEAST or self.size.height < 3:
            return
        self._sketch, notes = self._picture.draw(self.line_width)
        self._notes = cut_end("  ·  ".join(filter(None, notes)), self.line_width)
        self._styles = [_STYLES.get(mark, theme.NORMAL) for mark in self._picture.marks]
        if self._sketch.box(self.cursor) is None:
            self.cursor = 0
        self.redraw()
        self._reveal()

    @property
    def row_count(self) -> int:
        return len(self._sketch.cells) + bool(self._notes) if self._sketch is not None else 0

    def state_of(self, row: int) -> int:
        box = self._sketch.box(self.cursor) if self._sketch is not None else None
        return self.cursor * 2 + self.has_focus + 1 if box is not None and box.y <= row < box.y + box.height else 0

    def draw(self, row: int, state: int, width: int) -> Strip:
        base, drawn = self.base_style, self._sketch
        if drawn is None or not 0 <= row < self.row_count:
            return Strip.blank(width, base)
        if row == len(drawn.cells):
            return Strip(fit([Segment(self._notes, base + theme.DIM)], width, base), width)
        segments = []
        owned = zip(drawn.owners[row].tolist(), drawn.cells[row], strict=True)
        for owner, cells in groupby(owned, key=itemgetter(0)):
            text = "".join(cell for _, cell in cells)
            style = base + (self._styles[owner] if owner >= 0 else theme.DIM)
            if state and owner == self.cursor:
                text = text.translate(HEAVY)
                style += theme.CURSOR if self.has_focus else theme.CURSOR_BLURRED
            segments.append(Segment(text, style))
        return Strip(fit(joined(segments), width, base), width)
