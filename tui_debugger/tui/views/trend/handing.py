"""What the history hands out: plots and tables as text, every step as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui_debugger.session.diagnosis.trend_text import Drawing, full_text, name, rows
from tui_debugger.tui.views.extract import Extract

if TYPE_CHECKING:
    from tui_debugger.tui.views.trend.overlay import Overlay


def extract_of(overlay: Overlay, drawings: Sequence[Drawing], under_cursor: str) -> Extract | None:
    """Plots and tables with every step; None before something was read."""
    series = overlay.shown
    if not series:
        return None
    here, ranks = overlay.here, [each.key.rank for each in series]
    graphs = len({each.key.graph for each in series}) > 1
    table = [(name(each, ranks, with_graph=graphs), *row.values()) for each in series for row in rows(each)]
    header = ("tensor", *rows(series[0])[0]) if len(series[0].steps) else ()
    one = f"{name(here, ranks, with_graph=graphs)}  {under_cursor}" if here is not None else ""
    return Extract("trend", full_text(series, drawings), one, header, table)
