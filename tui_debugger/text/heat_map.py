"""Heat maps as text: colours, layout of cells, lines, and a page with names and legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Int64
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.stats.dtypes import is_numeric
from tui_debugger.stats.heat import HeatCellKind, HeatWindow, Picture, Read, shrink
from tui_debugger.text.numbers import count, number
from tui_debugger.text.values import ValueTable

Levels = Int64


class Colors(Enum):
    """The colours that a terminal can show."""

    NONE = "none"
    FEW = "16"
    MANY = "256"
    TRUE = "all"


def colors_named(system: str | None, *, plain: bool) -> Colors:
    """Returns the colours of one of Rich's colour systems; ``plain`` for NO_COLOR."""
    known = {"truecolor": Colors.TRUE, "256": Colors.MANY, "standard": Colors.FEW, "windows": Colors.FEW}
    return Colors.NONE if plain else known.get(system or "", Colors.NONE)


GLYPHS: Final = {
    HeatCellKind.NAN: "N",
    HeatCellKind.POS_INF: "▲",
    HeatCellKind.NEG_INF: "▼",
    HeatCellKind.BOTH_INF: "↕",
}
"""Glyphs that tell NaN and Inf apart without colour."""
POSITIVE_SHADES: Final = "░▒▓█"
NEGATIVE_SHADES: Final = "-=≡▤"
ZERO_SHADE: Final = "·"
"""The glyph of level 0 without colours; other levels have a glyph for each sign."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of the colours: symmetric around 0 for both signs, else the values nearest to and farthest from 0."""

    low: float
    high: float

    @property
    def signed(self) -> bool:
        return self.low < 0 < self.high

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers at the ends of the scale, from left to right."""
        if self.signed:
            limit = max(-self.low, self.high)
            return -limit, limit
        return self.low, self.high

    def levels(self, values: Array, most: int) -> Levels:
        """Returns the level of each number, from ``-most`` (negative) over 0 to ``most``; NaN gives 0."""
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
class HeatPalette:
    """Colours (``#rrggbb``) of the levels.

    Attributes:
        negative, positive: from the level next to 0 to the last one, for data of both signs.
        below, above: the same for data of one sign, which have the whole range to themselves.
        nan, inf: the background of cells without a number; their glyphs are drawn in ``ink``.
        marker: the colour of the cursor.
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
        return len(self.positive) if scale.signed else len(self.above)

    def color(self, level: int, scale: Scale) -> str:
        if not level:
            return self.zero
        positive, negative = (self.positive, self.negative) if scale.signed else (self.above, self.below)
        return positive[level - 1] if level > 0 else negative[-level - 1]

    def bad(self, kind: int) -> str:
        return self.nan if kind == HeatCellKind.NAN else self.inf


def _ramp(stops: tuple[str, ...], count: int) -> tuple[str, ...]:
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
    Colors.TRUE: HeatPalette(
        *(_ramp(_BLUES, 11), _ramp(_ORANGES, 11), _ramp(_BLUES, 23), _ramp(_ORANGES, 23)),
        zero="#1b2027",
        nan="#ff5fa2",
        inf="#d787ff",
    ),
    Colors.MANY: HeatPalette(
        *(_BLUES_256, _ORANGES_256, _BLUES_256, _ORANGES_256), zero="#1c1c1c", nan="#ff5faf", inf="#d787ff"
    ),
    Colors.FEW: HeatPalette(
        *(("#5555ff",) * 4, ("#ffff55",) * 4, ("#5555ff",) * 4, ("#ffff55",) * 4),
        zero="#aaaaaa",
        nan="#ff55ff",
        inf="#ff55ff",
    ),
}


def palette_of(colors: Colors) -> HeatPalette:
    """Returns the colours for a terminal. With few colours levels are glyphs, 4 for each sign."""
    return _PALETTES.get(colors, _PALETTES[Colors.FEW])


def shade(level: int) -> str:
    if not level:
        return ZERO_SHADE
    return POSITIVE_SHADES[level - 1] if level > 0 else NEGATIVE_SHADES[-level - 1]


SIZES: Final = (8, 6, 4, 2, 1)
"""Factors by which a cell may be enlarged. Even numbers end at a whole line of text."""
FEW: Final = 8
"""A row or column of up to so many cells keeps them all when bytes must be saved."""


@dataclass(frozen=True, slots=True)
class DrawArea:
    """The place for a heat map; ``halves``: half blocks put two rows of cells into a line."""

    lines: int
    columns: int
    halves: bool = True

    @property
    def each(self) -> int:
        """Units (rows of the smallest cells) in a line."""
        return 2 if self.halves else 1

    @property
    def units(self) -> int:
        return max(1, self.lines * self.each)

    @property
    def ratio(self) -> int:
        """Columns of text that are about as wide as a unit is high."""
        return 1 if self.halves else 2

    @property
    def width(self) -> int:
        return max(1, self.columns)


@dataclass(frozen=True, slots=True)
class Zoom:
    """A size of cells.

    A cell covers ``rows`` by ``columns`` elements and takes ``tall`` units by ``wide`` columns of text. A ``folded``
    table is one line, wrapped as text is: then ``rows`` is 1.
    """

    rows: int
    columns: int
    tall: int
    wide: int
    folded: bool = False

    def grid(self, area: DrawArea) -> tuple[int, int]:
        return max(1, area.units // self.tall), max(1, area.width // self.wide)

    def smaller(self, area: DrawArea) -> Iterator[Zoom]:
        ratio = area.ratio
        for size in SIZES:
            if size < self.tall or size * ratio < self.wide:
                yield replace(self, tall=min(self.tall, size), wide=min(self.wide, max(1, size * ratio)))

    def coarser(self, times: int, cells: tuple[int, int], area: DrawArea) -> Zoom:
        """Returns cells of about ``times`` (at least 2) by ``times`` of these; few ``cells`` are kept."""
        line = min(area.each, area.units)
        down = max(1, area.units // line)
        if self.folded:
            wide = min(times, area.width)
            most = down * (area.width // wide)
            return Zoom(1, self.columns * max(times * times, -(-cells[0] * cells[1] // most)), line, wide, folded=True)
        rows = max(min(times, cells[0] // FEW), -(-cells[0] // down), 1)
        fewer = max(min(times, cells[1] // FEW), 1)
        wide = min(fewer, area.width) if self.wide == 1 else self.wide
        columns = max(fewer, -(-cells[1] // (area.width // wide)))
        return Zoom(self.rows * rows, self.columns * columns, line, wide)

    def window(self, shape: tuple[int, int], origin: tuple[int, int], area: DrawArea) -> HeatWindow:
        """Returns the visible part of a table whose element ``origin`` is in the first corner."""
        down, across = self.grid(area)
        if self.folded:
            return HeatWindow(range(1), _from(origin[1], down * across * self.columns, shape[1], self.columns))
        rows = _from(origin[0], down * self.rows, shape[0], self.rows)
        return HeatWindow(rows, _from(origin[1], across * self.columns, shape[1], self.columns))


def _from(start: int, count: int, end: int, step: int) -> range:
    return range(start, min(start + count, end), step)


def zooms(shape: tuple[int, int], area: DrawArea, *, folded: bool = False) -> tuple[Zoom, ...]:
    """Returns all sizes of cells, from the whole table to enlarged elements; ``folded``: it is one wrapped line."""
    first = _folded(shape[1], area) if folded else _fitting(shape, area)
    found = [first]
    while (zoom := found[-1]).rows > 1 or zoom.columns > 1:
        found.append(Zoom(-(-zoom.rows // 2), -(-zoom.columns // 2), zoom.tall, zoom.wide, folded))
    wide = area.ratio
    for size in SIZES[-2::-1]:
        last = found[-1]
        if size > last.tall and size * wide > last.wide and size <= area.units and size * wide <= area.width:
            found.append(Zoom(1, 1, size, size * wide, folded))
    return tuple(found)


def _fitting(shape: tuple[int, int], area: DrawArea) -> Zoom:
    rows, columns = -(-shape[0] // area.units), -(-shape[1] // area.width)
    ratio = area.ratio
    tall = _enlarged(area.units // shape[0]) if rows == 1 else 1
    wide = _enlarged(area.width // ratio // shape[1]) if columns == 1 else 1
    if rows == columns == 1:  # as square as it was
        tall = wide = min(tall, wide)
    return Zoom(rows, columns, tall, wide if wide == 1 and area.width < ratio * shape[1] else wide * ratio)


def _folded(count: int, area: DrawArea) -> Zoom:
    each = -(-count // (area.units * area.width))
    ratio = area.ratio
    if each > 1:
        return Zoom(1, each, 1, 1, folded=True)
    size = _enlarged(math.isqrt(area.units * area.width // (ratio * count)))
    while size > 1 and -(-count // (area.width // (size * ratio) or 1)) * size > area.units:
        size = _enlarged(size - 1)
    return Zoom(1, 1, size, size * ratio if size * ratio <= area.width and size > 1 else 1, folded=True)


def _enlarged(times: int) -> int:
    return next((size for size in SIZES if size <= times), 1)


Codes = Int64
SHADES: Final = 4
_BAD: Final = 100
"""Is added to a ``HeatCellKind`` to make a code: levels are smaller."""
_OUTSIDE: Final = 200
_SEQUENCE: Final = 7
"""Bytes of an escape sequence without its colours, and of its reset."""
_COLOR: Final = {Colors.NONE: 0, Colors.FEW: 3, Colors.MANY: 9, Colors.TRUE: 17}


@dataclass(frozen=True, slots=True)
class ColoredText:
    """Characters of one cell each in the same colours (``#rrggbb``, empty for the terminal's own)."""

    text: str
    ink: str = ""
    ground: str = ""


class HeatPainter:
    """Draws pictures of one scale in the colours of one terminal."""

    def __init__(self, scale: Scale, colors: Colors) -> None:
        """``scale`` covers the whole tensor, not only the visible part."""
        self.scale = scale
        self.palette: HeatPalette = palette_of(colors)
        self.colors = colors
        self.halves = halves(colors)
        self._most = self.palette.most(scale) if self.halves else SHADES

    def lines(self, picture: Picture, zoom: Zoom, columns: int) -> list[list[ColoredText]]:
        """The lines of a picture, shorter at its end; ``columns``: cells in a row of a folded line."""
        codes = np.repeat(np.repeat(self._codes(picture, zoom, columns), zoom.tall, axis=0), zoom.wide, axis=1)
        if not self.halves:
            return [self._pieces(line[:, None], self._shaded) for line in codes]
        if len(codes) % 2:
            codes = np.concatenate([codes, np.full((1, codes.shape[1]), _OUTSIDE)])
        return [self._pieces(codes[y : y + 2].T, self._halved) for y in range(0, len(codes), 2)]

    def _codes(self, picture: Picture, zoom: Zoom, columns: int) -> Codes:
        levels = np.clip(self.scale.levels(picture.values, self._most), -self._most, self._most)
        codes: Codes = np.where(picture.kinds == HeatCellKind.NUMBER, levels, picture.kinds + np.int64(_BAD))
        if not zoom.folded:
            return codes
        missing = -codes.size % columns
        return np.concatenate([codes.reshape(-1), np.full(missing, _OUTSIDE)]).reshape(-1, columns)

    def _pieces(self, codes: Codes, look: Callable[..., ColoredText]) -> list[ColoredText]:
        starts = np.flatnonzero(np.any(codes[1:] != codes[:-1], axis=1)) + 1
        found: list[ColoredText] = []
        for start, stop in zip((0, *starts.tolist()), (*starts.tolist(), len(codes)), strict=True):
            if codes[start, 0] == _OUTSIDE:
                break
            piece = look(*codes[start].tolist())
            text = piece.text * (stop - start)
            if found and (found[-1].ink, found[-1].ground) == (piece.ink, piece.ground):
                text = found.pop().text + text
            found.append(ColoredText(text, piece.ink, piece.ground))
        return found

    def glyph(self, kind: HeatCellKind) -> ColoredText:
        code = _BAD + kind
        return self._halved(code, code) if self.halves else self._shaded(code)

    def _shaded(self, code: int) -> ColoredText:
        if code >= _BAD:
            return ColoredText(GLYPHS[HeatCellKind(code - _BAD)], self._ink(self.palette.bad(code - _BAD)))
        return ColoredText(shade(code), self._ink(self.palette.color(code, self.scale)))

    def _halved(self, upper: int, lower: int) -> ColoredText:
        bad = [code for code in (upper, lower) if _BAD <= code < _OUTSIDE]
        if bad:
            # A character has one glyph: the worse of the two takes it. NaN is the smallest of the kinds.
            worse = min(bad)
            return ColoredText(GLYPHS[HeatCellKind(worse - _BAD)], self.palette.ink, self.palette.bad(worse - _BAD))
        if upper == lower:
            return ColoredText(" ", "", self.color(upper))
        return ColoredText("▀", self.color(upper), "" if lower == _OUTSIDE else self.color(lower))

    def ground(self, picture: Picture, place: tuple[int, int]) -> str:
        """Returns the colour of one cell; empty outside the picture."""
        if not all(at < count for at, count in zip(place, picture.window.shape, strict=True)):
            return ""
        kind, value = int(picture.kinds[place]), picture.values[place]
        return self.palette.bad(kind) if kind else self.color(int(self.scale.levels(value, self._most)))

    def color(self, level: int) -> str:
        return self.palette.color(level, self.scale)

    def _ink(self, color: str) -> str:
        return color if self.colors is not Colors.NONE else ""

    def cost(self, lines: list[list[ColoredText]]) -> int:
        """Estimates the bytes that writing lines takes."""
        each = _COLOR[self.colors]
        pieces = [piece for line in lines for piece in line]
        return sum(
            len(piece.text.encode()) + _SEQUENCE + each * (bool(piece.ink) + bool(piece.ground)) for piece in pieces
        )

    def bar(self, width: int) -> list[ColoredText]:
        """Returns the scale itself, from its left end to its right one."""
        left, right = self.scale.ends
        places = np.linspace(0.0, 1.0, max(2, width))
        values = left * (1.0 - places) + right * places
        codes = self.scale.levels(values, self._most)
        pairs = np.stack([codes, codes], axis=1) if self.halves else codes[:, None]
        return self._pieces(pairs, self._halved if self.halves else self._shaded)


def halves(colors: Colors) -> bool:
    """Tells whether there are enough colours for half blocks."""
    return colors in {Colors.TRUE, Colors.MANY}


TICKS: Final = (1, 2, 5, 10, 20, 50, 100)
"""Possible distances of column names, in cells."""
BADS: Final = ((HeatCellKind.NAN, "NaN"), (HeatCellKind.POS_INF, "+Inf"), (HeatCellKind.NEG_INF, "-Inf"))


@dataclass(frozen=True, eq=False)
class HeatTable:
    """A table to look at.

    Attributes:
        read: returns its elements; called in a worker for large tables.
        folded: it has one row, which is wrapped as text is.
        sideways: elements of a column, not of a row, are adjacent in memory.
        row_name, column_name: labels of a row and a column; in a wrapped row ``row_name`` gets the first element of
            the line, and ``column_name`` the distance from it.
    """

    read: Read
    shape: tuple[int, int]
    folded: bool = False
    sideways: bool = False
    row_name: Callable[[int], str] = str
    column_name: Callable[[int], str] = str

    def picture(self, window: HeatWindow, progress: ProgressFn = no_progress) -> Picture:
        """Returns the window shrunk into cells, see ``stats.heat.shrink``."""
        if not self.sideways:
            return shrink(self.read, window, progress)
        turned = HeatWindow(window.columns, window.rows)
        return shrink(lambda rows, columns: self.read(columns, rows).T, turned, progress).turned()

    @property
    def margin(self) -> int:
        last = self.shape[1] - 1 if self.folded else self.shape[0] - 1
        return 1 + max(len(self.row_name(0)), len(self.row_name(max(0, last))))


@dataclass(frozen=True, eq=False)
class HeatPage:
    """A picture laid out in characters; ``picture`` shows a part of ``table``."""

    table: HeatTable
    picture: Picture
    zoom: Zoom
    area: DrawArea
    painter: HeatPainter

    @cached_property
    def lines(self) -> list[list[ColoredText]]:
        return self.painter.lines(self.picture, self.zoom, self.across)

    @property
    def cost(self) -> int:
        return self.painter.cost(self.lines)

    @cached_property
    def across(self) -> int:
        return self.zoom.grid(self.area)[1]

    @cached_property
    def margin(self) -> int:
        """Columns of text left of the cells."""
        return self.table.margin

    # -- places ----------------------------------------------------------------------------------

    def place(self, row: int, column: int) -> tuple[int, int]:
        return (0, row * self.across + column) if self.table.folded else (row, column)

    def spot(self, place: tuple[int, int]) -> tuple[int, int]:
        """Returns the place on the screen of a cell of the picture: the opposite of ``place``."""
        row, column = divmod(place[1], self.across) if self.table.folded else place
        return row, column

    def at(self, x: int, y: int) -> tuple[int, int] | None:
        """Returns the cell, as a place in the picture, at a column and a line of text; the header is line 0."""
        row, column = (y - 1) * self.area.each // self.zoom.tall, (x - self.margin) // self.zoom.wide
        place = self.place(row, column)
        inside = y > 0 and 0 <= column < self.across
        inside = inside and all(0 <= at < count for at, count in zip(place, self.picture.window.shape, strict=True))
        return place if inside else None

    def marker(self, row: int, column: int) -> tuple[int, int, int]:
        """Returns line, first column and end of the characters that mark a cell."""
        top = row * self.zoom.tall
        line = (top if self.zoom.tall == 1 else top + self.zoom.tall // 2) // self.area.each
        start = self.margin + column * self.zoom.wide
        return line, start, start + self.zoom.wide

    # -- names -----------------------------------------------------------------------------------

    def header(self) -> str:
        columns, zoom, name = self.picture.window.columns, self.zoom, self.table.column_name
        if self.table.folded:
            columns = range(0, self.across * zoom.columns, zoom.columns)[: len(columns)]
        longest = max(len(name(columns[0])), len(name(columns[-1])))
        each = next((tick for tick in TICKS if tick * zoom.wide >= longest + 2), TICKS[-1])
        text = " " * self.margin
        for at in range(0, len(columns), each):
            text = text.ljust(self.margin + at * zoom.wide) + name(columns[at])
        return text

    def name(self, line: int) -> str:
        """Returns the label of a line: its first row of cells."""
        row = -(-line * self.area.each // self.zoom.tall)
        if row * self.zoom.tall >= (line + 1) * self.area.each:
            return ""
        place = self.place(row, 0)
        cells = self.picture.window.columns if self.table.folded else self.picture.window.rows
        at = place[1] if self.table.folded else place[0]
        return self.table.row_name(cells[at]) if at < len(cells) else ""

    def text(self, write: Callable[[ColoredText], str] = lambda piece: piece.text) -> list[str]:
        """Returns the header and the lines with their names; ``write`` adds colours."""
        names = (f"{self.name(number).rjust(self.margin - 1)} " for number in range(len(self.lines)))
        return [
            self.header(),
            *(name + "".join(map(write, line)) for name, line in zip(names, self.lines, strict=True)),
        ]

    @property
    def plain(self) -> HeatPage:
        """The same page in glyphs, for text without colours."""
        painter = HeatPainter(self.painter.scale, Colors.NONE)
        area, zoom = replace(self.area, halves=False), replace(self.zoom, tall=1)
        return HeatPage(self.table, self.picture, zoom, area, painter)

    # -- the legend ------------------------------------------------------------------------------

    def scale(self, width: int) -> list[ColoredText]:
        """Returns the colours in so many characters, between the values of both ends."""
        if self.picture.bounds is None:
            return [ColoredText("no finite value in sight")]
        left, right = (number(end) for end in self.painter.scale.ends)
        return [ColoredText(f"{left} "), *self.painter.bar(width), ColoredText(f" {right}")]

    @property
    def size_text(self) -> str:
        return f"cell {self.zoom.columns}" if self.zoom.folded else f"cell {self.zoom.rows} × {self.zoom.columns}"

    def bad_legend(self) -> list[ColoredText]:
        found = (self.picture.nan, self.picture.pos_inf, self.picture.neg_inf)
        pieces = []
        for (kind, name), cells in zip(BADS, found, strict=True):
            number_of = int(cells.sum())
            if number_of:
                pieces += [self.painter.glyph(kind), ColoredText(f" {name} {count(number_of)}  ")]
        return pieces or [ColoredText("no NaN or Inf in sight")]


def heat_table_of(values: ValueTable) -> HeatTable:
    lines = values.lines
    if not lines:
        return HeatTable(lambda _, __: values.part(()).reshape(1, 1), (1, 1), False, False, _unnamed, _unnamed)
    if values.folded:
        (line,) = lines

        def wrapped(_: slice, columns: slice) -> Array:
            return values.part((line[columns],)).reshape(1, -1)

        return HeatTable(
            wrapped, (1, len(line)), True, False, lambda at: str(line[at]), lambda at: f"+{at * line.step}"
        )

    def rectangle(rows: slice, columns: slice) -> Array:
        return values.part((lines[0][rows], lines[1][columns]))

    down, across = (values.array.strides[axis] for axis in values.view.free)
    names = (lambda at: str(lines[0][at]), lambda at: str(lines[1][at]))
    return HeatTable(rectangle, (len(lines[0]), len(lines[1])), False, abs(down) < abs(across), *names)


def _unnamed(_: int) -> str:
    return ""


def is_drawable(array: Array) -> bool:
    return is_numeric(array.dtype)
