"""The sketch of Relations: boxes and lines around the tensor in the middle; the cursor moves from box to box."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.relations import Neighbourhood, Related, mark_of, sketch_notes, sketch_of
from tui_debugger.text.sketch import HEAVY, LEAST, Sketch
from tui_debugger.text.tables import cut_end
from tui_debugger.tui import theme
from tui_debugger.tui.actions import bindings, view_actions
from tui_debugger.tui.widgets.line_window import PaintedLines
from tui_debugger.tui.widgets.text import fit, joined

_GROUP = "Sketch (s in Relations)"
ACTIONS: Final = (
    *view_actions(
        _GROUP,
        ("move(-1,0)", "left h", "Left", "To the box on the left: what it was made from."),
        ("move(1,0)", "right l", "Right", "To the box on the right: what uses it."),
        ("move(0,-1)", "up k", "Up", "To the box above."),
        ("move(0,1)", "down j", "Down", "To the box below."),
        ("select", "enter", "Open", "Puts the box into the middle; there, shows its values."),
    ),
)
_STYLES: Final = {"◆": theme.FINDING, "✗": theme.FINDING, "?": theme.DOUBT}


class GraphSketch(PaintedLines, can_focus=True):
    """Draws the tensors around a tensor in the space that there is."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(ACTIONS)]
    DEFAULT_CSS = "GraphSketch { width: 1fr; height: 1fr; display: none; }"

    class Moved(Message):
        """The cursor moved to another box, or other boxes are visible."""

    class Chosen(Message):
        """Enter on a box."""

    def __init__(self) -> None:
        super().__init__(id="sketch")
        self._found: Neighbourhood | None = None
        self._row: Callable[[Related], TensorRow] = lambda related: related.tensor
        self._cursor = 0
        self._drawn: Sketch | None = None
        self._notes = ""
        self._styles: list[Style] = []

    def show_graph(self, found: Neighbourhood, row: Callable[[Related], TensorRow], *, keep: bool = True) -> None:
        """Shows the tensors around a tensor.

        ``row`` returns a tensor's row, measured if possible. ``keep``: the cursor stays on its tensor if that is still
        there; else it goes to the middle.
        """
        old = self.related
        self._found, self._row = found, row
        keys = [each.key for each in found.tensors]
        self._cursor = keys.index(old.key) if keep and old is not None and old.key in keys else 0
        self._draw()

    @property
    def graph(self) -> Neighbourhood | None:
        return self._found

    @property
    def related(self) -> Related | None:
        return self._found.tensors[self._cursor] if self._found is not None else None

    @property
    def hop(self) -> int:
        """Distance from the middle in hops; negative upstream."""
        return self._found.hops[self._cursor] if self._found is not None else 0

    @property
    def in_sight(self) -> list[Related]:
        found = self._found
        return [found.tensors[each.box] for each in self._drawn.boxes] if found and self._drawn else []

    @property
    def text(self) -> str:
        return "\n".join([*self._drawn.rows, *filter(None, [self._notes])]) if self._drawn is not None else ""

    # -- moving --------------------------------------------------------------------------------------

    def action_move(self, layers: int, rows: int) -> None:
        if self._drawn is not None:
            self._go(self._drawn.beside(self._cursor, layers, rows))

    def action_select(self) -> None:
        self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        number = self._drawn.at(at.x, at.y) if at is not None and self._drawn is not None else -1
        if number >= 0:
            event.stop()
            self._go(number)
            if event.chain > 1:
                self.action_select()

    def _go(self, number: int) -> None:
        if number == self._cursor or self._drawn is None:
            return
        for each in (self._drawn.box(self._cursor), self._drawn.box(number)):
            if each is not None:
                self.refresh(Region(each.x, each.y, each.width, each.height))
        self._cursor = number
        self.post_message(self.Moved())

    # -- drawing -------------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        found = self._found
        if found is None or width < LEAST or height < 3:
            return
        drawn = sketch_of(found, width, height, self._row)
        notes = sketch_notes(found, drawn)
        if notes and height > 3:
            drawn = sketch_of(found, width, height - 1, self._row)
            notes = sketch_notes(found, drawn)
        self._drawn = drawn
        self._notes = cut_end("  ·  ".join(notes), width) if height > 3 else ""
        self._styles = [_STYLES.get(mark_of(each, self._row(each)), theme.NORMAL) for each in found.tensors]
        if drawn.box(self._cursor) is None:
            self._cursor = 0
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        width, base, drawn = self.size.width, self.base_style, self._drawn
        if drawn is None or y > len(drawn.cells) or (y == len(drawn.cells) and not self._notes):
            return Strip.blank(width, base)
        if y == len(drawn.cells):
            return Strip(fit([Segment(self._notes, base + theme.DIM)], width, base), width)
        segments = []
        owned = zip(drawn.owners[y].tolist(), drawn.cells[y], strict=True)
        for owner, cells in groupby(owned, key=itemgetter(0)):
            text = "".join(cell for _, cell in cells)
            style = base + (self._styles[owner] if owner >= 0 else theme.DIM)
            if owner == self._cursor:
                text = text.translate(HEAVY)
                style += theme.CURSOR if self.has_focus else theme.CURSOR_BLURRED
            segments.append(Segment(text, style))
        return Strip(fit(joined(segments), width, base), width)
