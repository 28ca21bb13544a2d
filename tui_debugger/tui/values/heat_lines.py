"""A heat map as lines of a widget, and the marker of the cursor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.strip import Strip

from tui_debugger.words.drawing.heat_page import HeatPage
from tui_debugger.words.drawing.shades import Colors, colors_named

_MARK: Final = Style(color="#000000", bgcolor="#ffffff", bold=True)
_FADED: Final = Style(bold=True, underline=True)


def colors_of(app: App[Any]) -> Colors:
    """What the terminal can show."""
    return colors_named(app.console.color_system, plain=app.no_color)


@lru_cache(maxsize=1024)
def _style(base: Style, ink: str, ground: str) -> Style:
    # Whatever has a ground of its own needs nothing of the base: a colour less to write for every piece.
    own = Style(color=ink or None, bgcolor=ground or None)
    return own if ground else base + own


@dataclass(frozen=True, eq=False)
class HeatLines(HeatPage):
    """A page for a widget."""

    def trimmed(self) -> HeatLines:
        """The same in as much room as it takes: that is a page, from now on."""
        rows, columns = self.picture.window.shape
        if self.field.folded:
            rows = -(-columns // self.across)
        lines = max(1, min(self.room.lines, -(-rows * self.zoom.tall // self.room.each)))
        width = self.room.columns if self.field.folded else min(self.room.columns, columns * self.zoom.wide)
        return replace(self, room=replace(self.room, lines=lines, columns=width))

    def strip(self, line: int, base: Style, names: Style) -> Strip:
        """A line of cells with its name."""
        segments = [Segment(self.name(line).rjust(self.margin - 1) + " ", names)]
        if line < len(self.lines):
            segments += [Segment(run.text, _style(base, run.ink, run.ground)) for run in self.lines[line]]
        return Strip(segments)

    def marked(self, strip: Strip, row: int, column: int, *, strong: bool) -> Strip:
        """A line with the cursor on it: brackets where there is room, else a half block or reverse video."""
        _, start, stop = self.marker(row, column)
        before, cell, after = (strip.crop(*ends) for ends in ((0, start), (start, stop), (stop, None)))
        if self.room.halves and self.zoom.tall == 1:
            other = self.drawer.ground(self.picture, self.place(row + 1 - row % 2 * 2, column))
            style = Style(color=self.drawer.palette.marker, bgcolor=other or None, bold=strong)
            return Strip.join([before, Strip([Segment("▄▀"[row % 2 == 0] * (stop - start), style)]), after])
        mark = _MARK if strong else _FADED
        if stop - start == 1:
            return Strip.join([before, Strip([Segment(cell.text, mark)]), after])
        return Strip.join(
            [before, Strip([Segment("[", mark)]), cell.crop(1, stop - start - 1), Strip([Segment("]", mark)]), after]
        )
