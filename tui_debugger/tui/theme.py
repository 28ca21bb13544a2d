"""Colours and glyphs. State is always a glyph and a colour; blue and orange, for colour-blind people too.

The colours are chosen so that their nearest neighbours among 256 and 16 colours keep their meaning. Glyphs are one
cell wide everywhere.
"""

from __future__ import annotations

from typing import Final

from rich.style import Style
from textual.theme import Theme

from tui_debugger.model import Category, Verdict
from tui_debugger.words import numbers

BLUE: Final = "#5fafff"
ORANGE: Final = "#ff9f1c"
GREY: Final = "#8a93a3"

NORMAL: Final = Style()
DIM: Final = Style(color=GREY)
STRONG: Final = Style(bold=True)
WATCHED: Final = Style(color=BLUE)
FINDING: Final = Style(color=ORANGE, bold=True)
DOUBT: Final = Style(color=ORANGE)
GOOD: Final = Style(color=BLUE, bold=True)
CHIP: Final = Style(color="#101317", bgcolor=BLUE)

WATCH_GLYPHS: Final = (" ", "◐", "●")
"""None, some, all of the nodes watched."""
HIT_GLYPH: Final = "✗"
ORIGIN_GLYPH: Final = "◆"
UNCERTAIN_GLYPH: Final = "?"
FILE_GLYPH: Final = "≈"
OPEN_GLYPH: Final = "▾"
CLOSED_GLYPH: Final = "▸"
NONE: Final = numbers.NONE

VERDICTS: Final[dict[Verdict, tuple[str, Style]]] = {
    Verdict.FINDING: (HIT_GLYPH, FINDING),
    Verdict.CANNOT_JUDGE: ("?", DOUBT),
    Verdict.NOT_COMPARABLE: (NONE, DIM),
}
CATEGORIES: Final[dict[Category, str]] = {
    Category.OTHER: "operator",
    Category.WEIGHT: "weight",
    Category.NORM: "norm",
    Category.OPTIMIZER_STATE: "optimizer state",
    Category.PARAMETER: "parameter",
    Category.GRADIENT: "gradient",
    Category.ACTIVATION: "activation",
    Category.CONSTANT: "constant",
}

THEME: Final = Theme(
    name="tdbg",
    primary=BLUE,
    secondary=BLUE,
    warning=ORANGE,
    error=ORANGE,
    success=BLUE,
    accent=ORANGE,
    foreground="#d8dee9",
    background="#101317",
    surface="#101317",
    panel="#1b2027",
    boost="#1b2027",
    dark=True,
    variables={
        "cursor": "#1f4f8f",
        "cursor-blurred": "#2a3038",
        "dim": GREY,
        "border": "#4a5361",
        "border-blurred": "#4a5361",
        "block-cursor-text-style": "bold",
        "input-selection-background": "#1f4f8f",
        "scrollbar": "#4a5361",
        "scrollbar-hover": "#6a7381",
        "scrollbar-active": BLUE,
        "scrollbar-background": "#101317",
        "scrollbar-background-hover": "#101317",
        "scrollbar-background-active": "#101317",
        "scrollbar-corner-color": "#101317",
    },
)
