"""What stands below a heat map: what its colours mean, and what its cells stand for."""

from __future__ import annotations

from textual.content import Content

from tui_debugger.analysis.heat import Picture
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values.heat import HeatMap
from tui_debugger.words.drawing.heat_page import BADS
from tui_debugger.words.drawing.heat_text import Run
from tui_debugger.words.numbers import plural

BAR = 23
NARROW = 100
"""Columns below which the bar is shorter."""
Part = Content | str | tuple[str, str]


def legend_of(heat: HeatMap) -> Content:
    """The scale with its ends, the size of a cell, and the glyphs of what NaN and Inf are in sight."""
    page = heat.drawn
    if page is None:
        return Content("")
    level, most = heat.zoomed
    zoom = f"zoom {level + 1}/{most + 1}" + (" fine" if heat.fine else "")
    scale = page.scale(BAR if heat.size.width >= NARROW else BAR // 2)
    return Content.assemble(*map(_part, scale), (f"  {page.size_text}  {zoom}  ", GREY), *map(_part, page.bads()))


def _part(run: Run) -> Part:
    style = " on ".join(filter(None, (run.ink or run.ground, run.ground)))
    return (run.text, style) if style else run.text


def counts_text(picture: Picture, place: tuple[int, int]) -> str:
    """What else is in a cell: how many elements, NaN and Inf."""
    rows, columns = picture.window.cell(*place)
    words = [plural(len(rows) * len(columns), "element")]
    for (_, name), counts in zip(BADS, (picture.nan, picture.pos_inf, picture.neg_inf), strict=True):
        if counts[place]:
            words.append(f"{counts[place]} {name}")
    return "  ".join(words)
