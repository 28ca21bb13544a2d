"""Colours and glyphs. State is always a glyph and a colour; blue and orange suit colour-blind people.

The nearest of 256 and of 16 colours keep their meaning. Glyphs are one cell wide everywhere.
"""

from __future__ import annotations

from typing import Final

from rich.style import Style
from textual.theme import Theme

from tui_debugger.text import numbers

BLUE: Final = "#5fafff"
ORANGE: Final = "#ff9f1c"
GREY: Final = "#8e97a7"
FOREGROUND: Final = "#d8dee9"
BACKGROUND: Final = "#101317"
CURSOR_COLOR: Final = "#132a5a"
CURSOR_BLURRED_COLOR: Final = "#272c33"
BAR: Final = "#4a5361"
PANEL: Final = "#1b2027"
BAR_HOVERED: Final = "#6a7381"
MATCH_COLOR: Final = "#d7d787"

NORMAL: Final = Style()
DIM: Final = Style(color=GREY)
STRONG: Final = Style(bold=True)
WATCHED: Final = Style(color=BLUE)
FINDING: Final = Style(color=ORANGE, bold=True)
DOUBT: Final = Style(color=ORANGE)
GOOD: Final = Style(color=BLUE, bold=True)
CHIP: Final = Style(color=BACKGROUND, bgcolor=BLUE)
MATCH: Final = Style(color=BACKGROUND, bgcolor=MATCH_COLOR, underline=True)
PLAIN: Final = Style(color=FOREGROUND)
HEADING: Final = Style(color=GREY, bold=True)
CURSOR: Final = Style(bgcolor=CURSOR_COLOR, bold=True)
CURSOR_BLURRED: Final = Style(bgcolor=CURSOR_BLURRED_COLOR)
THUMB: Final = Style(bgcolor=BAR)
"""Styles that lists and frames add to their own. Plain styles, because Textual computes component classes for every

widget before it shows anything.
"""

WATCH_GLYPHS: Final = (" ", "◐", "●")
"""No, some, all nodes watched."""
HIT_GLYPH: Final = "✗"
ORIGIN_GLYPH: Final = "◆"
HIT_ELSEWHERE_GLYPH: Final = "×"
ORIGIN_ELSEWHERE_GLYPH: Final = "◇"
"""A finding, an origin at another step than the current one."""
OVERFLOW_GLYPH: Final = "▲"
"""The device recorded that an operator overflowed, which its values may not show."""
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
    foreground=FOREGROUND,
    background=BACKGROUND,
    surface=BACKGROUND,
    panel=PANEL,
    boost=PANEL,
    dark=True,
    variables={
        "cursor": CURSOR_COLOR,
        "cursor-blurred": CURSOR_BLURRED_COLOR,
        "dim": GREY,
        "border": BAR,
        "border-blurred": BAR,
        "block-cursor-text-style": "bold",
        "input-selection-background": CURSOR_COLOR,
        "scrollbar": BAR,
        "scrollbar-hover": BAR_HOVERED,
        "scrollbar-active": BLUE,
        "scrollbar-background": BACKGROUND,
        "scrollbar-background-hover": BACKGROUND,
        "scrollbar-background-active": BACKGROUND,
        "scrollbar-corner-color": BACKGROUND,
    },
)
