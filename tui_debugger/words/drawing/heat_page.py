"""A page of a heat map: which cell stands where, the names of rows and columns beside them, and a legend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tui_debugger.analysis.heat import Kind, Picture, Read, Window, shrink
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.words.drawing.heat_layout import Room, Zoom
from tui_debugger.words.drawing.heat_text import Drawer, Run
from tui_debugger.words.drawing.shades import Colors
from tui_debugger.words.numbers import count, number

TICKS: Final = (1, 2, 5, 10, 20, 50, 100)
"""Columns of cells from one name to the next."""
BADS: Final = ((Kind.NAN, "NaN"), (Kind.POS_INF, "+Inf"), (Kind.NEG_INF, "-Inf"))


@dataclass(frozen=True, eq=False)
class Field:
    """A table to look at.

    Attributes:
        read: its elements; called in a worker when there are many.
        shape: rows and columns.
        folded: it has one row, which is wrapped as text is.
        sideways: its columns, not its rows, lie together in memory.
        row_name, column_name: what stands beside a row and above a column (of a wrapped row: beside its first element,
            and ``column_name`` gets the distance from it).
    """

    read: Read
    shape: tuple[int, int]
    folded: bool = False
    sideways: bool = False
    row_name: Callable[[int], str] = str
    column_name: Callable[[int], str] = str

    def picture(self, window: Window, progress: ProgressFn = no_progress) -> Picture:
        """See ``analysis.heat.shrink``."""
        if not self.sideways:
            return shrink(self.read, window, progress)
        turned = Window(window.columns, window.rows)
        return shrink(lambda rows, columns: self.read(columns, rows).T, turned, progress).turned()

    @property
    def margin(self) -> int:
        """Columns of text that the names of the rows take."""
        last = self.shape[1] - 1 if self.folded else self.shape[0] - 1
        return 1 + max(len(self.row_name(0)), len(self.row_name(max(0, last))))


@dataclass(frozen=True, eq=False)
class HeatPage:
    """A picture laid out in characters.

    Attributes:
        field: the table.
        picture: a part of it.
        zoom: the size of the cells.
        room: the place for them.
        drawer: knows colours.
    """

    field: Field
    picture: Picture
    zoom: Zoom
    room: Room
    drawer: Drawer

    @cached_property
    def lines(self) -> list[list[Run]]:
        """The cells."""
        return self.drawer.lines(self.picture, self.zoom, self.across)

    @property
    def cost(self) -> int:
        """Bytes that a page takes, about."""
        return self.drawer.cost(self.lines)

    @cached_property
    def across(self) -> int:
        """Cells in a row."""
        return self.zoom.grid(self.room)[1]

    @cached_property
    def margin(self) -> int:
        """Columns of text left of the cells."""
        return self.field.margin

    # -- places ----------------------------------------------------------------------------------

    def place(self, row: int, column: int) -> tuple[int, int]:
        """A cell on the screen as a place in the picture."""
        return (0, row * self.across + column) if self.field.folded else (row, column)

    def spot(self, place: tuple[int, int]) -> tuple[int, int]:
        """The opposite."""
        row, column = divmod(place[1], self.across) if self.field.folded else place
        return row, column

    def at(self, x: int, y: int) -> tuple[int, int] | None:
        """The cell, as a place in the picture, at a column and a line of text; the header is line 0."""
        row, column = (y - 1) * self.room.each // self.zoom.tall, (x - self.margin) // self.zoom.wide
        place = self.place(row, column)
        inside = y > 0 and 0 <= column < self.across
        inside = inside and all(0 <= at < count for at, count in zip(place, self.picture.window.shape, strict=True))
        return place if inside else None

    def marker(self, row: int, column: int) -> tuple[int, int, int]:
        """Line, first column and end of the characters that mark a cell."""
        top = row * self.zoom.tall
        line = (top if self.zoom.tall == 1 else top + self.zoom.tall // 2) // self.room.each
        start = self.margin + column * self.zoom.wide
        return line, start, start + self.zoom.wide

    # -- names -----------------------------------------------------------------------------------

    def header(self) -> str:
        """Names of columns, above their cells."""
        columns, zoom, name = self.picture.window.columns, self.zoom, self.field.column_name
        if self.field.folded:
            columns = range(0, self.across * zoom.columns, zoom.columns)[: len(columns)]
        longest = max(len(name(columns[0])), len(name(columns[-1])))
        each = next((tick for tick in TICKS if tick * zoom.wide >= longest + 2), TICKS[-1])
        text = " " * self.margin
        for at in range(0, len(columns), each):
            text = text.ljust(self.margin + at * zoom.wide) + name(columns[at])
        return text

    def name(self, line: int) -> str:
        """What stands beside a line: the first row of cells that begins in it."""
        row = -(-line * self.room.each // self.zoom.tall)
        if row * self.zoom.tall >= (line + 1) * self.room.each:
            return ""
        place = self.place(row, 0)
        cells = self.picture.window.columns if self.field.folded else self.picture.window.rows
        at = place[1] if self.field.folded else place[0]
        return self.field.row_name(cells[at]) if at < len(cells) else ""

    def text(self, write: Callable[[Run], str] = lambda run: run.text) -> list[str]:
        """Header and lines with their names; ``write`` adds colours."""
        names = (f"{self.name(number).rjust(self.margin - 1)} " for number in range(len(self.lines)))
        return [
            self.header(),
            *(name + "".join(map(write, line)) for name, line in zip(names, self.lines, strict=True)),
        ]

    @property
    def plain(self) -> HeatPage:
        """The same in glyphs, for text without colours."""
        drawer = Drawer(self.drawer.scale, Colors.NONE)
        room, zoom = replace(self.room, halves=False), replace(self.zoom, tall=1)
        return HeatPage(self.field, self.picture, zoom, room, drawer)

    # -- the legend ------------------------------------------------------------------------------

    def scale(self, width: int) -> list[Run]:
        """The colours in so many characters, with what their ends stand for."""
        if self.picture.bounds is None:
            return [Run("no finite value in sight")]
        left, right = (number(end) for end in self.drawer.scale.ends)
        return [Run(f"{left} "), *self.drawer.bar(width), Run(f" {right}")]

    @property
    def size_text(self) -> str:
        """Rows and columns of the table that make a cell: ``cell 4 × 2``."""
        return f"cell {self.zoom.columns}" if self.zoom.folded else f"cell {self.zoom.rows} × {self.zoom.columns}"

    def bads(self) -> list[Run]:
        """The glyph of what NaN and Inf are in sight, and how many of them."""
        found = (self.picture.nan, self.picture.pos_inf, self.picture.neg_inf)
        runs = []
        for (kind, name), cells in zip(BADS, found, strict=True):
            number_of = int(cells.sum())
            if number_of:
                runs += [self.drawer.glyph(kind), Run(f" {name} {count(number_of)}  ")]
        return runs or [Run("no NaN or Inf in sight")]
