"""Words and looks of node categories and verdicts.

Apart from ``theme``: these tables need the model, which the first frame does without.
"""

from __future__ import annotations

from typing import Final

from rich.style import Style

from tui_debugger.model import Category, Verdict
from tui_debugger.stats.health import Health
from tui_debugger.text.health import GLYPHS
from tui_debugger.tui import theme

VERDICTS: Final[dict[Verdict, tuple[str, Style]]] = {
    Verdict.FINDING: (theme.HIT_GLYPH, theme.FINDING),
    Verdict.BLOCKED: (theme.HIT_GLYPH, theme.FINDING),
    Verdict.CANNOT_JUDGE: ("?", theme.DOUBT),
    Verdict.BY_DESIGN: (theme.NONE, theme.DIM),
    Verdict.NOT_COMPARABLE: (theme.NONE, theme.DIM),
    Verdict.BY_DESIGN: (GLYPHS[Health.CLEAN], theme.DIM),
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
