"""A histogram in blocks that fills what room there is, with its axes. A cursor key draws one line again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.diagnose.distribution import Bars
from tui_debugger.stats.distribution import Bin
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import number
from tui_debugger.text.plot import labels
from tui_debugger.text.tensors import BARS
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import fit

_GAP = 2
"""Cells between two labels of the axis."""
_WIDEST = 12
"""Cells of a bar, at most: two bars of a third of the screen each say less than two slim ones."""


def bar_width(bins: int, room: int) -> int:
    """Cells of a bar with so many bins in so many cells."""
    return max(1, min(_WIDEST, room // max(bins, 1)))


def bar_rows(counts: Sequence[int], height: int, cells: int, *, top: int, log: bool) -> list[str]:
    """The bars line by line, the uppermost line first.

    Args:
        counts: elements of each bin.
        height: lines.
        cells: width of a bar; from 3 on, one of them is the gap to the next bar.
        top: the count of a bar of full height.
        log: the height is that of the logarithm of the count.
    """
    eighths = [_eighths(count, height, top, log) for count in counts]
    gap = " " if cells > 2 else ""
    lines = []
    for line in range(height - 1, -1, -1):
        glyphs = [_glyph(each - 8 * line) for each in eighths]
        lines.append("".join(glyph * (cells - len(gap)) + gap for glyph in glyphs))
    return lines


def _eighths(count: int, height: int, top: int, log: bool) -> int:
    """Height of a bar in eighths of a line; something is never nothing."""
    if not count or not top:
        return 0
    part = math.log1p(count) / math.log1p(top) if log else count / top
    return max(1, round(8 * height * part))


def _glyph(eighths: int) -> str:
    return " " if eighths <= 0 else BARS[min(eighths, 8) - 1]


def height_label(line: int, height: int, top: int, *, log: bool) -> str:
    """What the count axis says beside a line: the greatest count above, the half (or its logarithm's) in the middle."""
    if line == 0:
        return f"{top:,}" if top < 1e6 else number(float(top))
    if height > 4 and line == height // 2:
        part = (height - line) / height
        value = math.expm1(part * math.log1p(top)) if log else part * top
        return number(float(f"{value:.3g}"))
    return ""


def axis_line(bins: int, cells: int, cursor: int, ticks: Sequence[int]) -> str:
    """The line below the bars: a tick above each label, and the cursor."""
    line = ["─"] * (bins * cells)
    for tick in ticks:
        line[tick] = "┬"
    if 0 <= cursor < bins:
        middle = cursor * cells + max(cells - 1, 0) // 2
        line[middle] = "▲"
    return "".join(line)


def axis_labels(bins: Sequence[Bin], cells: int, room: int) -> tuple[str, list[int]]:
    """The labels below the axis, and where their ticks are: lower edges, as many as fit, and 0 before all others."""
    taken: list[tuple[int, int, str]] = []
    texts = labels([each.low for each in bins])
    for index in _by_worth(bins):
        start = index * cells
        text = texts[index]
        end = start + len(text)
        if end <= room and all(end + _GAP <= other or start >= stop + _GAP for other, stop, _ in taken):
            taken.append((start, end, text))
    line = ""
    for start, _, text in sorted(taken):
        line = line.ljust(start) + text
    return line, sorted(start for start, _, _ in taken)


def _by_worth(bins: Sequence[Bin]) -> Iterator[int]:
    """Zero first, then the first bin, then all from the left: what comes later fills the gaps."""
    zero = next((i for i, each in enumerate(bins) if each.low == 0), None)
    if zero is not None:
        yield zero
    yield from (i for i in range(len(bins)) if i != zero)


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
        for place, layer in enumerate(self._layers):
            style = theme.WATCHED if place == 0 else theme.DIM
            if titles:
                lines.append(self._line("", clean(layer.title), theme.STRONG if place == 0 else theme.DIM))
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
