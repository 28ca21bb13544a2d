"""A heat map as lines of text: half blocks with two colours, or shades where there are not enough colours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.heat import Kind, Picture
from tui_debugger.words.drawing.heat_layout import Zoom
from tui_debugger.words.drawing.shades import GLYPHS, Colors, Palette, Scale, palette_of, shade

Codes = npt.NDArray[np.int64]
SHADES: Final = 4
_BAD: Final = 100
"""What is added to a ``Kind``: levels are smaller."""
_OUTSIDE: Final = 200
_SEQUENCE: Final = 7
"""Bytes of an escape sequence besides its colours, and of the one that ends it."""
_COLOR: Final = {Colors.NONE: 0, Colors.FEW: 3, Colors.MANY: 9, Colors.TRUE: 17}
"""Bytes of a colour in an escape sequence."""


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look.

    Attributes:
        text: one cell wide each.
        ink, ground: colours as ``#rrggbb``; empty for the terminal's own.
    """

    text: str
    ink: str = ""
    ground: str = ""


class Drawer:
    """Draws pictures of one scale in the colours of one terminal."""

    def __init__(self, scale: Scale, colors: Colors) -> None:
        """``scale`` is that of everything that is looked at, also of what is out of sight now."""
        self.scale = scale
        self.palette: Palette = palette_of(colors)
        self.colors = colors
        self.halves = halves(colors)
        self._most = self.palette.most(scale) if self.halves else SHADES

    def lines(self, picture: Picture, zoom: Zoom, columns: int) -> list[list[Run]]:
        """The lines of a picture; where it ends, lines are shorter.

        Args:
            picture: its cells are those of the zoom.
            zoom: how large cells are.
            columns: cells in a row, for a folded line.
        """
        codes = np.repeat(np.repeat(self._codes(picture, zoom, columns), zoom.tall, axis=0), zoom.wide, axis=1)
        if not self.halves:
            return [self._runs(line[:, None], self._shaded) for line in codes]
        if len(codes) % 2:
            codes = np.concatenate([codes, np.full((1, codes.shape[1]), _OUTSIDE)])
        return [self._runs(codes[y : y + 2].T, self._halved) for y in range(0, len(codes), 2)]

    def _codes(self, picture: Picture, zoom: Zoom, columns: int) -> Codes:
        levels = np.clip(self.scale.levels(picture.values, self._most), -self._most, self._most)
        codes: Codes = np.where(picture.kinds == Kind.NUMBER, levels, picture.kinds + np.int64(_BAD))
        if not zoom.folded:
            return codes
        missing = -codes.size % columns
        return np.concatenate([codes.reshape(-1), np.full(missing, _OUTSIDE)]).reshape(-1, columns)

    def _runs(self, codes: Codes, look: Callable[..., Run]) -> list[Run]:
        """Neighbours of one look in one piece."""
        starts = np.flatnonzero(np.any(codes[1:] != codes[:-1], axis=1)) + 1
        found: list[Run] = []
        for start, stop in zip((0, *starts.tolist()), (*starts.tolist(), len(codes)), strict=True):
            if codes[start, 0] == _OUTSIDE:
                break
            run = look(*codes[start].tolist())
            text = run.text * (stop - start)
            if found and (found[-1].ink, found[-1].ground) == (run.ink, run.ground):
                text = found.pop().text + text
            found.append(Run(text, run.ink, run.ground))
        return found

    def glyph(self, kind: Kind) -> Run:
        """How cells of a kind look that are no numbers."""
        code = _BAD + kind
        return self._halved(code, code) if self.halves else self._shaded(code)

    def _shaded(self, code: int) -> Run:
        if code >= _BAD:
            return Run(GLYPHS[Kind(code - _BAD)], self._ink(self.palette.bad(code - _BAD)))
        return Run(shade(code), self._ink(self.palette.color(code, self.scale)))

    def _halved(self, upper: int, lower: int) -> Run:
        bad = [code for code in (upper, lower) if _BAD <= code < _OUTSIDE]
        if bad:
            # A character has one glyph: the worse of the two takes it. NaN is the smallest of the kinds.
            worse = min(bad)
            return Run(GLYPHS[Kind(worse - _BAD)], self.palette.ink, self.palette.bad(worse - _BAD))
        if upper == lower:
            return Run(" ", "", self.color(upper))
        return Run("▀", self.color(upper), "" if lower == _OUTSIDE else self.color(lower))

    def ground(self, picture: Picture, place: tuple[int, int]) -> str:
        """The colour of one cell; empty outside the picture."""
        if not all(at < count for at, count in zip(place, picture.window.shape, strict=True)):
            return ""
        kind, value = int(picture.kinds[place]), picture.values[place]
        return self.palette.bad(kind) if kind else self.color(int(self.scale.levels(value, self._most)))

    def color(self, level: int) -> str:
        """The colour of a level."""
        return self.palette.color(level, self.scale)

    def _ink(self, color: str) -> str:
        return color if self.colors is not Colors.NONE else ""

    def cost(self, lines: list[list[Run]]) -> int:
        """Bytes that writing lines takes, about."""
        each = _COLOR[self.colors]
        runs = [run for line in lines for run in line]
        return sum(len(run.text.encode()) + _SEQUENCE + each * (bool(run.ink) + bool(run.ground)) for run in runs)

    def bar(self, width: int) -> list[Run]:
        """The scale itself, from its left end to its right one."""
        left, right = self.scale.ends
        places = np.linspace(0.0, 1.0, max(2, width))
        values = left * (1.0 - places) + right * places
        codes = self.scale.levels(values, self._most)
        pairs = np.stack([codes, codes], axis=1) if self.halves else codes[:, None]
        return self._runs(pairs, self._halved if self.halves else self._shaded)


def halves(colors: Colors) -> bool:
    """Whether there are enough colours for half blocks."""
    return colors in {Colors.TRUE, Colors.MANY}
