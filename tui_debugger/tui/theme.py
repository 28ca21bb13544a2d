"""Colours and glyphs. State is always a glyph and a colour; blue and orange, for colour-blind people too.

The colours are chosen so that their nearest neighbours among 256 and 16 colours keep their meaning. Glyphs are one
cell wide everywhere.
"""

from __future__ import annotations

from typing import Final

from rich.style import Style
from textual.theme import Theme

from tui_debugger.text import numbers

BLUE: Final = "#5fafff"
ORANGE: Final = "#ff9f1c"
GREY: Final = "#8a93a3"
_FOREGROUND: Final = "#d8dee9"
_BACKGROUND: Final = "#101317"
_CURSOR: Final = "#1f4f8f"
_CURSOR_BLURRED: Final = "#2a3038"
_THUMB: Final = "#4a5361"
_MATCH: Final = "#d7d787"

NORMAL: Final = Style()
DIM: Final = Style(color=GREY)
STRONG: Final = Style(bold=True)
WATCHED: Final = Style(color=BLUE)
FINDING: Final = Style(color=ORANGE, bold=True)
DOUBT: Final = Style(color=ORANGE)
GOOD: Final = Style(color=BLUE, bold=True)
CHIP: Final = Style(color=_BACKGROUND, bgcolor=BLUE)
MATCH: Final = Style(color=_BACKGROUND, bgcolor=_MATCH, underline=True)
PLAIN: Final = Style(color=_FOREGROUND)
HEADING: Final = Style(color=GREY, bold=True)
CURSOR: Final = Style(bgcolor=_CURSOR, bold=True)
CURSOR_BLURRED: Final = Style(bgcolor=_CURSOR_BLURRED)
THUMB: Final = Style(bgcolor=_THUMB)
"""Styles that lists and frames add to their own. Plain styles and no component classes: Textual works those out for
every widget before it shows anything, and there are dozens of them."""

WATCH_GLYPHS: Final = (" ", "◐", "●")
"""None, some, all of the nodes watched."""
HIT_GLYPH: Final = "✗"
ORIGIN_GLYPH: Final = "◆"
HIT_ELSEWHERE_GLYPH: Final = "×"
ORIGIN_ELSEWHERE_GLYPH: Final = "◇"
"""A finding, an origin at another step than the one that is shown."""
UNCERTAIN_GLYPH: Final = "?"
FILE_GLYPH: Final = "≈"
OPEN_GLYPH: Final = "▾"
CLOSED_GLYPH: Final = "▸"
NONE: Final = numbers.NONE

THEME: Final = Theme(
    name="tdbg",
    primary=BLUE,
    secondary=BLUE,
    warning=ORANGE,
    error=ORANGE,
    success=BLUE,
    accent=ORANGE,
    foreground=_FOREGROUND,
    background=_BACKGROUND,
    surface=_BACKGROUND,
    panel="#1b2027",
    boost="#1b2027",
    dark=True,
    variables={
        "cursor": _CURSOR,
        "cursor-blurred": _CURSOR_BLURRED,
        "dim": GREY,
        "border": "#4a5361",
        "border-blurred": "#4a5361",
        "block-cursor-text-style": "bold",
        "input-selection-background": _CURSOR,
        "scrollbar": _THUMB,
        "scrollbar-hover": "#6a7381",
        "scrollbar-active": BLUE,
        "scrollbar-background": _BACKGROUND,
        "scrollbar-background-hover": _BACKGROUND,
        "scrollbar-background-active": _BACKGROUND,
        "scrollbar-corner-color": _BACKGROUND,
    },
)
