"""The plots of a history, with a mark at the step under the cursor, and the table beside them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from tui_debugger.diagnose.trend import (
    TITLES,
    Group,
    PlotArea,
    Point,
    Series,
    TrendPlot,
    cells,
    drawing,
    worth_marking_at,
)
from tui_debugger.notes import NO_NOTES, RunNotes
from tui_debugger.stats.health import WORTH_A_LOOK, Health
from tui_debugger.text.health import GLYPHS
from tui_debugger.text.plot import BRAILLE, Dots
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.cells import HEALTH_STYLES
from tui_debugger.tui.widgets.line_window import PaintedLines
from tui_debugger.tui.widgets.text import Cell, fit, joined
from tui_debugger.tui.widgets.virtual_table import TableColumn, VirtualTable

LEAST: Final = 11
"""Fewest lines of a plot with its title."""
COLOURS: Final = tuple(
    Style(color=colour)
    for colour in (
        theme.BLUE,
        "#d8dee9",
        theme.ORANGE,
        "#af87ff",
        "#5fd7af",
        "#d7d75f",
        "#ff87af",
        "#5fd7ff",
        "#d7af87",
    )
)
"""The colour of each curve; a mark distinguishes it without colours."""


class Plots(PaintedLines):
    """Shows as many plots as fit."""

    DEFAULT_CSS = "Plots { width: 1fr; height: 1fr; }"

    @dataclass
    class Clicked(Message):
        """The mouse pointed at a step, which may lie between two runs."""

        step: float

    def __init__(self) -> None:
        super().__init__(id="plots")
        self.drawings: tuple[TrendPlot, ...] = ()
        self._series: Sequence[Series] = ()
        self._groups: Sequence[Group] = ()
        self._notes = NO_NOTES
        self._log = False
        self._dots = BRAILLE
        self._step: int | None = None
        self._column: int | None = None
        self._lines: list[list[Segment]] = []
        self._starts: set[int] = set()
        self._drawn_size = Size(0, 0)

    def show_series(
        self,
        series: Sequence[Series],
        groups: Sequence[Group],
        *,
        log: bool,
        dots: Dots,
        notes: RunNotes = NO_NOTES,
    ) -> None:
        self._series, self._groups, self._log, self._dots = series, groups, log, dots
        self._notes = notes
        self._plan()

    def move_to(self, step: int | None) -> None:
        if step == self._step:
            return
        self._step, before = step, self._column
        self._column = self._column_of_step()
        if self._column is not None or before is not None:
            self.refresh()

    def _column_of_step(self) -> int | None:
        """Returns the column of the mark, in cells of the widget; None if it is outside."""
        if self._step is None or not self.drawings:
            return None
        plot = self.drawings[0].plot
        low, high = plot.x_axis.low, plot.x_axis.high
        if not low <= self._step <= high:
            return None
        return plot.margin + int(plot.columns(np.array([float(self._step)]))[0])

    def _plan(self) -> None:
        """Draws as many plots as fit, with a common left margin."""
        width, height = self.size
        self._drawn_size = self.size
        count = max(min(height // LEAST, len(self._groups)), 1) if self._groups and height > 3 else 0
        groups = self._groups[:count]
        heights = [height // count + (number < height % count) - 1 for number in range(count)] if count else []

        def drawn(margin: int) -> tuple[TrendPlot, ...]:
            return tuple(
                drawing(self._series, group, PlotArea(width, tall, self._log, self._dots, margin), self._notes)
                for group, tall in zip(groups, heights, strict=True)
            )

        first = drawn(0)
        margin = max((each.plot.margin - 1 for each in first), default=0)
        self.drawings = first if all(each.plot.margin - 1 == margin for each in first) else drawn(margin)
        panels = [self._panel(each) for each in self.drawings]
        self._lines = [line for panel in panels for line in panel]
        self._starts = set(accumulate(map(len, panels[:-1]), initial=0)) if panels else set()
        self._column = self._column_of_step()
        self.refresh()

    def _panel(self, drawn: TrendPlot) -> list[list[Segment]]:
        base = self.base_style
        dim, plot = base + theme.DIM, drawn.plot
        title = [Segment(f" {drawn.title}", base + theme.STRONG)]
        if len(self._series) == 1 and len(drawn.legend) > 1:
            for number, legend in enumerate(drawn.legend):
                title.append(Segment(f"   {legend.mark} {legend.text}", base + COLOURS[number % len(COLOURS)]))
        title += [Segment("   no value to draw", dim)] if drawn.empty else []
        lines = [title]
        for row, (label, edge, text) in enumerate(zip(plot.labels, plot.border, plot.rows, strict=True)):
            owners = plot.owners[row].tolist()
            cells = [
                Segment(char, base + COLOURS[owner % len(COLOURS)] if owner >= 0 else base)
                for char, owner in zip(text, owners, strict=True)
            ]
            lines.append([Segment(label + edge, dim), *joined(cells)])
        pad = " " * (plot.margin - 1)
        axis = [
            Segment(GLYPHS[Health(code)], base + HEALTH_STYLES[Health(code)]) if code else Segment(line, dim)
            for line, code in zip(plot.axis, drawn.marks.tolist(), strict=True)
        ]
        return [*lines, [Segment(pad + "└", dim), *joined(axis)], [Segment(f"{pad} {plot.ticks}", dim)]]

    # -- drawing ---------------------------------------------------------------------------------

    def on_resize(self) -> None:
        if self._drawn_size != self.size:
            self._plan()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._groups:
            self._plan()

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.base_style
        if y >= len(self._lines):
            return Strip.blank(width, base)
        strip = Strip(fit(self._lines[y], width, base), width)
        column = self._column
        if column is None or column >= width or y in self._starts:
            return strip
        if self._is_ticks(y):
            return self._with_step(strip, column)
        if y % 2 and not self._is_ticks(y + 1):  # mark every second line only: fewer changed lines to write
            return strip
        marked = strip.crop(column, column + 1)
        if marked.text.isspace():  # visible without colours
            marked = Strip([Segment("┊", base)])
        marked = marked.apply_style(theme.CURSOR)
        return Strip.join([strip.crop(0, column), marked, strip.crop(column + 1, width)])

    def _with_step(self, strip: Strip, column: int) -> Strip:
        text = step_text(self._step) if self._step is not None else ""
        width = strip.cell_length
        start = max(min(column - len(text) // 2, width - len(text)), 0)
        marked = Strip([Segment(text, self.base_style + theme.CURSOR)])
        return Strip.join([strip.crop(0, start), marked, strip.crop(start + len(text), width)])

    def _is_ticks(self, y: int) -> bool:
        return y + 1 in self._starts or y + 1 == len(self._lines)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is None or not self.drawings:
            return
        plot = self.drawings[0].plot
        share = (at.x - plot.margin) / max(plot.width - 1, 1)
        if 0 <= share <= 1:
            low, high = plot.x_axis.low, plot.x_axis.high
            self.post_message(self.Clicked(low + (high - low) * share))


_WIDTHS: Final = (6, 1, 10, 10, 10, 10, 5, 5, 8)
COLUMNS: Final = tuple(
    TableColumn(title, width, elastic=int(title == "hits"), right=title not in ("", "hits"), frozen=number < 2)
    for number, (title, width) in enumerate(zip(TITLES, _WIDTHS, strict=True))
)
WIDTH: Final = sum(_WIDTHS) + len(_WIDTHS) + 8
"""Cells that the whole table needs."""


class SeriesRows:
    """The runs of one tensor as rows on demand, in the order in which they ran."""

    def __init__(self, series: Series) -> None:
        self.series = series

    @property
    def row_count(self) -> int:
        return len(self.series.steps)

    def cells(self, index: int) -> Sequence[Cell]:
        step, _, *rest = cells(self.series, index)
        health = worth_marking_at(self.series, index)
        mark = Text(_, HEALTH_STYLES[health])
        if len(rest) == 1:
            return (step, mark, Text(rest[0], theme.DIM))
        bad = theme.FINDING if health >= WORTH_A_LOOK else theme.NORMAL
        *numbers, nan, inf, hits = rest
        loud = [Text(text, bad if text not in ("0", theme.NONE) else theme.DIM) for text in (nan, inf)]
        return (step, mark, *numbers, *loud, Text(hits, theme.DOUBT))

    def key(self, index: int) -> Point:
        return self.series.point(index)

    def find(self, key: Hashable) -> int:
        """Returns the row of a (step, round), or -1; round 0 is the newest."""
        return self.series.at(*key) if isinstance(key, tuple) else -1


class TrendTable(VirtualTable):
    """Left and right move along the steps, as up and down do."""

    def action_pan_left(self) -> None:
        self.action_cursor_up()

    def action_pan_right(self) -> None:
        self.action_cursor_down()
