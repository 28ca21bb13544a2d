"""How the cells of a heat map lie on the screen: how many elements make a cell, and how much room it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tui_debugger.analysis.heat import Window

SIZES: Final = (8, 6, 4, 2, 1)
"""How often a cell may be enlarged. Even numbers end with a line of text."""
FEW: Final = 8
"""Cells in a row or column that are not made fewer to save bytes."""


@dataclass(frozen=True, slots=True)
class Room:
    """The place for a heat map.

    Attributes:
        lines, columns: of text.
        halves: whether half blocks make two rows of cells out of a line.
    """

    lines: int
    columns: int
    halves: bool = True

    @property
    def each(self) -> int:
        """Units in a line: rows of the smallest cells."""
        return 2 if self.halves else 1

    @property
    def units(self) -> int:
        """Rows of the smallest cells."""
        return max(1, self.lines * self.each)

    @property
    def ratio(self) -> int:
        """Columns of text that are about as wide as a unit is high."""
        return 1 if self.halves else 2

    @property
    def width(self) -> int:
        """Columns of the smallest cells."""
        return max(1, self.columns)


@dataclass(frozen=True, slots=True)
class Zoom:
    """A size of cells.

    Attributes:
        rows, columns: elements that a cell covers in each direction (of a folded line: 1 and their number).
        tall, wide: units and columns of text that a cell takes.
        folded: whether the table is one line, wrapped as text is.
    """

    rows: int
    columns: int
    tall: int
    wide: int
    folded: bool = False

    def grid(self, room: Room) -> tuple[int, int]:
        """Rows and columns of cells that fit."""
        return max(1, room.units // self.tall), max(1, room.width // self.wide)

    def smaller(self, room: Room) -> Iterator[Zoom]:
        """The same elements in cells that are enlarged less, as far as that goes."""
        ratio = room.ratio
        for size in SIZES:
            if size < self.tall or size * ratio < self.wide:
                yield replace(self, tall=min(self.tall, size), wide=min(self.wide, max(1, size * ratio)))

    def coarser(self, times: int, cells: tuple[int, int], room: Room) -> Zoom:
        """Cells of about ``times`` by ``times`` of these, each a line high.

        Args:
            times: at least 2.
            cells: rows and columns of the cells that are shown now. A direction with few of them keeps them.
            room: the place.
        """
        line = min(room.each, room.units)
        down = max(1, room.units // line)
        if self.folded:
            wide = min(times, room.width)
            most = down * (room.width // wide)
            return Zoom(1, self.columns * max(times * times, -(-cells[0] * cells[1] // most)), line, wide, folded=True)
        rows = max(min(times, cells[0] // FEW), -(-cells[0] // down), 1)
        fewer = max(min(times, cells[1] // FEW), 1)
        wide = min(fewer, room.width) if self.wide == 1 else self.wide
        columns = max(fewer, -(-cells[1] // (room.width // wide)))
        return Zoom(self.rows * rows, self.columns * columns, line, wide)

    def window(self, shape: tuple[int, int], origin: tuple[int, int], room: Room) -> Window:
        """What of a table can be seen when its element ``origin`` is in the first corner."""
        down, across = self.grid(room)
        if self.folded:
            return Window(range(1), _from(origin[1], down * across * self.columns, shape[1], self.columns))
        rows = _from(origin[0], down * self.rows, shape[0], self.rows)
        return Window(rows, _from(origin[1], across * self.columns, shape[1], self.columns))


def _from(start: int, count: int, end: int, step: int) -> range:
    return range(start, min(start + count, end), step)


def zooms(shape: tuple[int, int], room: Room, *, folded: bool = False) -> tuple[Zoom, ...]:
    """All sizes of cells, from the one that shows the whole table to single elements in large.

    Args:
        shape: rows and columns of the table; neither is 0.
        room: the place.
        folded: whether the table is one line that is wrapped.
    """
    first = _folded(shape[1], room) if folded else _fitting(shape, room)
    found = [first]
    while (zoom := found[-1]).rows > 1 or zoom.columns > 1:
        found.append(Zoom(-(-zoom.rows // 2), -(-zoom.columns // 2), zoom.tall, zoom.wide, folded))
    wide = room.ratio
    for size in SIZES[-2::-1]:
        last = found[-1]
        if size > last.tall and size * wide > last.wide and size <= room.units and size * wide <= room.width:
            found.append(Zoom(1, 1, size, size * wide, folded))
    return tuple(found)


def _fitting(shape: tuple[int, int], room: Room) -> Zoom:
    rows, columns = -(-shape[0] // room.units), -(-shape[1] // room.width)
    ratio = room.ratio
    tall = _enlarged(room.units // shape[0]) if rows == 1 else 1
    wide = _enlarged(room.width // ratio // shape[1]) if columns == 1 else 1
    if rows == columns == 1:  # as square as it was
        tall = wide = min(tall, wide)
    return Zoom(rows, columns, tall, wide if wide == 1 and room.width < ratio * shape[1] else wide * ratio)


def _folded(count: int, room: Room) -> Zoom:
    each = -(-count // (room.units * room.width))
    ratio = room.ratio
    if each > 1:
        return Zoom(1, each, 1, 1, folded=True)
    size = _enlarged(math.isqrt(room.units * room.width // (ratio * count)))
    while size > 1 and -(-count // (room.width // (size * ratio) or 1)) * size > room.units:
        size = _enlarged(size - 1)
    return Zoom(1, 1, size, size * ratio if size * ratio <= room.width and size > 1 else 1, folded=True)


def _enlarged(times: int) -> int:
    return next((size for size in SIZES if size <= times), 1)
