"""Colours and glyphs of heat maps: from a number to one of at most 24 levels, and how a level looks in a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.heat import Kind
from tui_debugger.arrays import Array

Levels = npt.NDArray[np.int64]


class Colors(Enum):
    """What a terminal can show."""

    NONE = "none"
    FEW = "16"
    MANY = "256"
    TRUE = "all"


def colors_named(system: str | None, *, plain: bool) -> Colors:
    """What a terminal with one of Rich's colour systems can show; ``plain`` for NO_COLOR."""
    known = {"truecolor": Colors.TRUE, "256": Colors.MANY, "standard": Colors.FEW, "windows": Colors.FEW}
    return Colors.NONE if plain else known.get(system or "", Colors.NONE)


GLYPHS: Final = {Kind.NAN: "N", Kind.POS_INF: "▲", Kind.NEG_INF: "▼", Kind.BOTH_INF: "↕"}
"""Cells that are no numbers show that without colour, too."""
POSITIVE_SHADES: Final = "░▒▓█"
NEGATIVE_SHADES: Final = "-=≡▤"
ZERO_SHADE: Final = "·"
"""Where colours cannot tell levels apart, glyphs do, the sign included."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What the ends of the colours stand for.

    Data of both signs get a scale that is symmetric around 0, so that equal colours are equal magnitudes; other data
    run from the value nearest to 0 to the one farthest from it.

    Attributes:
        low: the smallest finite number.
        high: the greatest one.
    """

    low: float
    high: float

    @property
    def signed(self) -> bool:
        """Whether there are both signs."""
        return self.low < 0 < self.high

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers at the ends of the scale, from left to right."""
        if self.signed:
            limit = max(-self.low, self.high)
            return -limit, limit
        return self.low, self.high

    def levels(self, values: Array, most: int) -> Levels:
        """The level of each number, from ``-most`` (negative ones) over 0 to ``most``; NaN gives 0."""
        near, far = (0.0, self.ends[1]) if self.signed else sorted(self.ends, key=abs)
        if far == near:
            part = np.full(np.shape(values), float(np.sign(far)))
        else:
            # Divided first: the difference of two ends can be greater than the greatest float.
            span = 1.0 - near / far
            part = (np.asarray(values, np.float64) / abs(far) - near / abs(far)) / span
        levels: Levels = np.rint(np.nan_to_num(part) * most).astype(np.int64)
        return levels


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours (``#rrggbb``) of the levels.

    Attributes:
        negative, positive: from the level next to 0 to the last one, for data of both signs.
        below, above: the same for data of one sign, which have the whole range to themselves.
        zero: of level 0.
        nan, inf: of cells that are no numbers; their glyphs are drawn in ``ink``.
        ink: dark.
        marker: of the cursor.
    """

    negative: tuple[str, ...]
    positive: tuple[str, ...]
    below: tuple[str, ...]
    above: tuple[str, ...]
    zero: str
    nan: str
    inf: str
    ink: str = "#000000"
    marker: str = "#ffffff"

    def most(self, scale: Scale) -> int:
        """The greatest level."""
        return len(self.positive) if scale.signed else len(self.above)

    def color(self, level: int, scale: Scale) -> str:
        """The colour of a level."""
        if not level:
            return self.zero
        positive, negative = (self.positive, self.negative) if scale.signed else (self.above, self.below)
        return positive[level - 1] if level > 0 else negative[-level - 1]

    def bad(self, kind: int) -> str:
        """The colour of a cell that is no number."""
        return self.nan if kind == Kind.NAN else self.inf


def _ramp(stops: tuple[str, ...], count: int) -> tuple[str, ...]:
    """So many colours between stops, both ends included."""
    parts = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], float)
    places = np.linspace(0, len(stops) - 1, count)
    mixed = np.stack([np.interp(places, range(len(stops)), parts[:, i]) for i in range(3)], axis=1)
    return tuple("#" + "".join(f"{round(part):02x}" for part in color) for color in mixed)


_BLUES = ("#132a45", "#1c4f86", "#2b7fce", "#5fafff", "#b8e2ff")
_ORANGES = ("#3d2708", "#7d4c08", "#c4770f", "#ff9f1c", "#ffe0a0")
# Colours of the 256 that are in every terminal's table as they are, so that nothing is rounded.
_BLUES_256 = ("#00005f", "#0000af", "#005fd7", "#0087ff", "#5fafff", "#87d7ff", "#d7ffff")
_ORANGES_256 = ("#5f0000", "#875f00", "#af5f00", "#d78700", "#ffaf00", "#ffd787", "#ffffd7")
_PALETTES: Final = {
    Colors.TRUE: Palette(
        *(_ramp(_BLUES, 11), _ramp(_ORANGES, 11), _ramp(_BLUES, 23), _ramp(_ORANGES, 23)),
        zero="#1b2027",
        nan="#ff5fa2",
        inf="#d787ff",
    ),
    Colors.MANY: Palette(
        *(_BLUES_256, _ORANGES_256, _BLUES_256, _ORANGES_256), zero="#1c1c1c", nan="#ff5faf", inf="#d787ff"
    ),
    Colors.FEW: Palette(
        *(("#5555ff",) * 4, ("#ffff55",) * 4, ("#5555ff",) * 4, ("#ffff55",) * 4),
        zero="#aaaaaa",
        nan="#ff55ff",
        inf="#ff55ff",
    ),
}


def palette_of(colors: Colors) -> Palette:
    """The colours for a terminal; those that have not enough show levels as glyphs, of which there are 4."""
    return _PALETTES.get(colors, _PALETTES[Colors.FEW])


def shade(level: int) -> str:
    """The glyph of a level of at most 4."""
    if not level:
        return ZERO_SHADE
    return POSITIVE_SHADES[level - 1] if level > 0 else NEGATIVE_SHADES[-level - 1]
