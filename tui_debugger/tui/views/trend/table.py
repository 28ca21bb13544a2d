"""The table beside the plots: a line per step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from rich.text import Text

from tui_debugger.analysis.health import WORTH_A_LOOK
from tui_debugger.session.diagnosis.trend import Point, Series
from tui_debugger.session.diagnosis.trend_text import TITLES, cells, worth_marking_at
from tui_debugger.tui import theme
from tui_debugger.tui.views.health.looks import STYLES
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable

_WIDTHS: Final = (6, 1, 10, 10, 10, 10, 5, 5, 8)
COLUMNS: Final = tuple(
    Column(title, width, elastic=int(title == "hits"), right=title not in ("", "hits"), frozen=number < 2)
    for number, (title, width) in enumerate(zip(TITLES, _WIDTHS, strict=True))
)
WIDTH: Final = sum(_WIDTHS) + len(_WIDTHS) + 8
"""Cells that the whole table likes to have."""


class SeriesRows:
    """Steps of one tensor as rows on demand."""

    def __init__(self, series: Series) -> None:
        """The rows are the runs, in the order in which they ran."""
        self.series = series

    @property
    def row_count(self) -> int:
        """Number of steps."""
        return len(self.series.steps)

    def cells(self, index: int) -> Sequence[Cell]:
        """Numbers, or why there are none."""
        step, _, *rest = cells(self.series, index)
        health = worth_marking_at(self.series, index)
        mark = Text(_, STYLES[health])
        if len(rest) == 1:
            return (step, mark, Text(rest[0], theme.DIM))
        bad = theme.FINDING if health >= WORTH_A_LOOK else theme.NORMAL
        *numbers, nan, inf, hits = rest
        loud = [Text(text, bad if text not in ("0", theme.NONE) else theme.DIM) for text in (nan, inf)]
        return (step, mark, *numbers, *loud, Text(hits, theme.DOUBT))

    def key(self, index: int) -> Point:
        """Step and round."""
        return self.series.point(index)

    def find(self, key: Hashable) -> int:
        """Row of a (step, round), or -1; of round 0 the newest one."""
        return self.series.at(*key) if isinstance(key, tuple) else -1


class StepTable(VirtualTable):
    """Left and right go along the steps, as up and down do."""

    def action_pan_left(self) -> None:
        """One step back."""
        self.action_cursor_up()

    def action_pan_right(self) -> None:
        """One step on."""
        self.action_cursor_down()
