"""Which tensors are laid over each other: a line each, with its mark and colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from tui_debugger.session.diagnosis.trend_text import MARKS, name
from tui_debugger.session.naming import place_text
from tui_debugger.tui.views.trend.plots import COLOURS
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.words.clean import clean

if TYPE_CHECKING:
    from tui_debugger.tui.views.trend.overlay import Overlay


def legend(overlay: Overlay, room: int, *, graphs: bool = False) -> Content:
    """The tensors in order, ``graphs`` with the names of theirs; the one whose table is shown stands out."""
    ranks = [key.rank for key in overlay.keys]
    parts: list[Content | tuple[str, str] | str] = []
    for number, key in enumerate(overlay.keys):
        series = overlay.series_of(key)
        words = (
            name(series, ranks, with_graph=graphs) if series is not None else clean(place_text(key, with_graph=graphs))
        )
        colour = COLOURS[number].color
        mark = MARKS[number] if len(overlay.keys) > 1 else " "
        style = f"{'bold ' if number == overlay.current else ''}{colour.name if colour else ''}"
        parts += ["\n" if number else "", (f"{mark} {shorten(words, room)}", style)]
    return Content.assemble(*parts)
