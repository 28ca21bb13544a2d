"""How health looks on screen: the glyph says it, the colour makes it stand out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.style import Style

from tui_debugger.analysis.health import Health
from tui_debugger.tui import theme

STYLES: Final[Mapping[Health, Style]] = {
    Health.ABSENT: theme.NORMAL,
    Health.NOT_JUDGED: theme.DIM,
    Health.CLEAN: theme.WATCHED,
    Health.UNCHECKED: theme.DIM,
    Health.UNREADABLE: theme.DOUBT,
    Health.HIT: theme.DOUBT,
    Health.NOT_FINITE: theme.FINDING,
    Health.INF: theme.FINDING,
    Health.NAN: theme.FINDING,
    Health.ORIGIN: theme.FINDING + Style(reverse=True),
}
