"""A histogram that fills what room there is. A cursor key draws one line again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.session.diagnosis.distribution import Bars
from tui_debugger.tui import theme
from tui_debugger.tui.views.distribution.drawing import axis_labels, axis_line, bar_rows, bar_width, height_label
from tui_debugger.tui.widgets.text import fit
from tui_debugger.words.clean import clean

GUTTER = 9
"""Cells of the count axis, with the blank behind it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A histogram and what it is of."""

    title: str
    bars: Bars


class Chart(Widget, can_focus=True):
    """One histogram, or several in the same bins and on the same scale, one above the other."""

    DEFAULT_CSS = "Chart { height: 1fr; width: 1fr; min-height: 4; }"

    class CursorMoved(Message):
        """The cursor came to another bin, or the bins were replaced."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        """Empty."""
        super().__init__(id=id)
        self._layers: tuple[Layer, ...] = ()
        self._log_counts = False
        self._text = ""
        self._lines: list[Strip] = []
        self.cursor = 0

    # -- what it shows ---------------------------------------------------------------------------

    def show(self, layers: Sequence[Layer], *, log_counts: bool, cursor: int) -> None:
        """Replaces everything; all layers have the same bins."""
        self._layers, self._log_counts, self._text = tuple(layers), log_counts, ""
        self.cursor = max(0, min(cursor, self.bins - 1))
        self._draw()
        self.post_message(self.CursorMoved())

    def show_text(self, text: str) -> None:
        """Says something where the bars would be."""
        self._layers, self._text = (), text
        self._draw()
        self.post_message(self.CursorMoved())

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self._layers[0].bars.bins) if self._layers else 0

    def move_to(self, index: int) -> None:
        """Moves the cursor, within bounds."""
        index = max(0, min(index, self.bins - 1))
        if index != self.cursor:
            self.cursor = index
            self._draw_axis()
            self.post_message(self.CursorMoved())

    # -- drawing ---------------------------------------------------------------------------------

    def on_resize(self) -> None:
        """There is other room."""
        self._draw()

    def render_line(self, y: int) -> Strip:
        """One line of the picture."""
        return self._lines[y] if y < len(self._lines) else Strip.blank(self.size.width, self.rich_style)

    @property
    def _cells(self) -> int:
        return bar_width(self.bins, self.size.width - GUTTER)

    def _draw(self) -> None:
        if self._layers and self.bins:
            self._lines = self._picture()
        else:
            self._lines = [self._line("", f" {clean(text)}", theme.NORMAL) for text in ["", *self._text.split("\n")]]
        self.refresh()

    def _picture(self) -> list[Strip]:
        room = self.size.width - GUTTER
        titles = len(self._layers) > 1
        top = max(max(layer.bars.counts, default=0) for layer in self._layers)
        height = max(1, (self.size.height - 2) // len(self._layers) - titles)
        lines: list[Strip] = []
        for number, layer in enumerate(self._layers):
            style = theme.WATCHED if number == 0 else theme.DIM
            if titles:
                lines.append(self._line("", clean(layer.title), theme.STRONG if number == 0 else theme.DIM))
            rows = bar_rows(layer.bars.counts, height, self._cells, top=top, log=self._log_counts)
            for y, row in enumerate(rows):
                lines.append(self._line(height_label(y, height, top, log=self._log_counts), row, style))
        labels, _ = axis_labels(self._layers[0].bars.bins, self._cells, room)
        return [*lines, self._axis(), self._line("", labels, theme.DIM)]

    def _axis(self) -> Strip:
        bins = self._layers[0].bars.bins
        _, ticks = axis_labels(bins, self._cells, self.size.width - GUTTER)
        before, cursor, after = axis_line(len(bins), self._cells, self.cursor, ticks).partition("▲")
        base = self.rich_style
        parts = [Segment("0".rjust(GUTTER - 1) + " ", base + theme.DIM), Segment(before, base + theme.DIM)]
        parts += [Segment(cursor, base + theme.STRONG), Segment(after, base + theme.DIM)]
        return Strip(fit(parts, self.size.width, base))

    def _draw_axis(self) -> None:
        if len(self._lines) > 1:
            y = len(self._lines) - 2
            self._lines[y] = self._axis()
            self.refresh(Region(0, y, self.size.width, 1))

    def _line(self, label: str, text: str, style: Style) -> Strip:
        base = self.rich_style
        gutter = " " * max(GUTTER - 1 - cell_len(label), 0) + label + " " if self._layers else ""
        return Strip(fit([Segment(gutter, base + theme.DIM), Segment(text, base + style)], self.size.width, base))
