"""Pictures of tables of any size in few cells: every NaN and Inf is visible, then the greatest magnitude wins.

A table is a function that reads a rectangle, so that a memory map of any size, or the difference of two of them, is
read a block at a time, in its own element type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64, Mask
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.kernel import is_known
from tui_debugger.stats.kernel.elements import Cells

Counts = npt.NDArray[np.int64]
Read = Callable[[slice, slice], Array]
"""Reads rows and columns of a table (slices inside it, step 1) as an array of that shape; numbers only."""

TOGETHER: Final = 1 << 20
"""Elements that are read between two checks for a bad cell."""


class HeatCellKind(IntEnum):
    """The kind of a cell: NaN goes before Inf, and Inf before numbers."""

    NUMBER = 0
    NAN = 1
    POS_INF = 2
    NEG_INF = 3
    BOTH_INF = 4


@dataclass(frozen=True, slots=True)
class HeatWindow:
    """The part of a table that a picture shows, and the size of its cells.

    ``rows`` has the first row of each row of cells, its step is the height of a cell, its ``stop`` the end of the part
    (the last cell may be smaller). ``columns`` likewise.
    """

    rows: range
    columns: range

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def size(self) -> int:
        return (self.rows.stop - self.rows.start) * (self.columns.stop - self.columns.start)

    def cell(self, row: int, column: int) -> tuple[range, range]:
        """Returns the rows and columns of the table that make a cell."""
        return _of_cell(self.rows, row), _of_cell(self.columns, column)

    def place(self, row: int, column: int) -> tuple[int, int] | None:
        """Returns the cell with an element of the table; None when the element is outside."""
        inside = self.rows.start <= row < self.rows.stop and self.columns.start <= column < self.columns.stop
        if not inside:
            return None
        return (row - self.rows.start) // self.rows.step, (column - self.columns.start) // self.columns.step


def _of_cell(cells: range, number: int) -> range:
    first = cells[number]
    return range(first, min(first + cells.step, cells.stop))


@dataclass(frozen=True, eq=False)
class Picture:
    """The contents of the cells of a window; all arrays have the shape of the window.

    ``low`` and ``high`` are the extremes of finite elements (complex: magnitudes); +Inf and -Inf without any.
    """

    window: HeatWindow
    low: Float64
    high: Float64
    nan: Counts
    pos_inf: Counts
    neg_inf: Counts

    @cached_property
    def values(self) -> Float64:
        """The finite element of greatest magnitude in each cell (the positive one of two), NaN where there is none."""
        value = np.where(np.abs(self.high) >= np.abs(self.low), self.high, self.low)
        return np.where(np.isfinite(value), value, np.nan)

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        kinds = np.where(
            self.pos_inf > 0,
            np.where(self.neg_inf > 0, HeatCellKind.BOTH_INF, HeatCellKind.POS_INF),
            HeatCellKind.NUMBER,
        )
        kinds = np.where((self.neg_inf > 0) & (self.pos_inf == 0), HeatCellKind.NEG_INF, kinds)
        return np.where(self.nan > 0, HeatCellKind.NAN, kinds).astype(np.int8)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The smallest and the greatest finite element; None when no element is finite."""
        low, high = float(self.low.min(initial=np.inf)), float(self.high.max(initial=-np.inf))
        return (low, high) if low <= high else None

    def coarser(self, rows: int, columns: int) -> Picture:
        """Merges ``rows`` × ``columns`` cells into one: equal to ``shrink`` with the larger step."""
        window = self.window
        wider = HeatWindow(_stepped(window.rows, rows), _stepped(window.columns, columns))

        def merge(how: np.ufunc, cells: Array) -> Array:
            starts = np.arange(0, cells.shape[0], rows), np.arange(0, cells.shape[1], columns)
            merged: Array = how.reduceat(how.reduceat(cells, starts[0], axis=0), starts[1], axis=1)
            return merged

        if not (rows > 1 or columns > 1) or not all(window.shape):
            return self
        counts = (merge(np.add, each) for each in (self.nan, self.pos_inf, self.neg_inf))
        return Picture(wider, merge(np.minimum, self.low), merge(np.maximum, self.high), *counts)

    def turned(self) -> Picture:
        """Exchanges rows and columns."""
        parts = (self.low, self.high, self.nan, self.pos_inf, self.neg_inf)
        return Picture(HeatWindow(self.window.columns, self.window.rows), *(part.T for part in parts))


def _stepped(cells: range, times: int) -> range:
    return range(cells.start, cells.stop, cells.step * times)


def shrink(read: Read, window: HeatWindow, progress: ProgressFn = no_progress) -> Picture:
    """Returns the picture of a window, in memory for one block of elements and the picture.

    ``progress`` is called with the number of elements between blocks and may raise to stop.
    """
    draft = _Draft(window)
    done = 0
    for rows, columns in _tiles(window):
        progress(Progress(done, window.size, "heat map"))
        draft.add(_tile(read, rows, columns), rows, columns)
        done += len(rows) * len(columns)
    return draft.picture()


def strongest(read: Read, rows: range, columns: range, progress: ProgressFn = no_progress) -> tuple[int, int] | None:
    """Returns row and column of the element that a cell shows: first NaN, else Inf, else greatest magnitude.

    None for a cell without elements. ``progress`` is called between blocks and may raise to stop.
    """
    best, at = -1.0, None
    for down, across in _tiles(HeatWindow(range(rows.start, rows.stop), range(columns.start, columns.stop))):
        progress(Progress(0, 0, "looking for the element"))
        tile = np.abs(_valued(_tile(read, down, across))).reshape(-1)
        place = int(tile.argmax())  # the first NaN, if there is one
        row, column = divmod(place, len(across))
        if np.isnan(tile[place]):
            return down.start + row, across.start + column
        if tile[place] > best:
            best, at = float(tile[place]), (down.start + row, across.start + column)
    return at


def next_bad(
    read: Read,
    window: HeatWindow,
    after: tuple[int, int],
    direction: int,
    *,
    kinds: frozenset[HeatCellKind] = frozenset(HeatCellKind) - {HeatCellKind.NUMBER},
    progress: ProgressFn = no_progress,
) -> tuple[int, int] | None:
    """Returns row and column of the next cell in reading order that holds one of ``kinds``; None when there is none.

    The search starts behind the cell ``after``, in direction +1 or -1. ``progress`` is called between blocks with the
    number of rows of cells searched; it may raise to stop.
    """
    height, width = window.shape
    each = max(1, TOGETHER // max(1, window.rows.step * (window.columns.stop - window.columns.start)))
    rows = range(after[0], height) if direction > 0 else range(after[0] + 1)
    starts = range(rows.start, rows.stop, each) if direction > 0 else range(rows.stop - 1, -1, -each)
    for start in starts:
        progress(Progress(abs(start - after[0]), len(rows), "searching"))
        low, high = (start, min(start + each, height)) if direction > 0 else (max(0, start - each + 1), start + 1)
        last = window.rows[high - 1] + window.rows.step
        part = HeatWindow(range(window.rows[low], min(last, window.rows.stop), window.rows.step), window.columns)
        cells = np.flatnonzero(_holding(shrink(read, part, lambda _: progress(Progress(0, 0))), kinds)) + low * width
        here = after[0] * width + after[1]
        cells = cells[cells > here] if direction > 0 else cells[cells < here]
        if cells.size:
            row, column = divmod(int(cells[0 if direction > 0 else -1]), width)
            return row, column
    return None


def _holding(picture: Picture, kinds: frozenset[HeatCellKind]) -> Mask:
    held = np.zeros(picture.window.shape, np.bool_)
    for kind, counts in (
        (HeatCellKind.NAN, picture.nan),
        (HeatCellKind.POS_INF, picture.pos_inf),
        (HeatCellKind.NEG_INF, picture.neg_inf),
    ):
        if kind in kinds:
            held |= counts > 0
    return held


def _tiles(window: HeatWindow) -> Iterator[tuple[range, range]]:
    """Yields the window in rectangles of at most a block: along each side whole cells, or a part of one cell."""
    width = window.columns.stop - window.columns.start
    for rows in _spans(window.rows, max(1, BLOCK // max(1, width))):
        for columns in _spans(window.columns, BLOCK):
            yield rows, columns


def _spans(cells: range, most: int) -> Iterator[range]:
    if cells.step > most:
        for first in cells:
            stop = min(first + cells.step, cells.stop)
            yield from (range(start, min(start + most, stop)) for start in range(first, stop, most))
    else:
        together = most // cells.step * cells.step
        starts = range(cells.start, cells.stop, together)
        yield from (range(start, min(start + together, cells.stop)) for start in starts)


def _tile(read: Read, rows: range, columns: range) -> Array:
    return np.asarray(read(slice(rows.start, rows.stop), slice(columns.start, columns.stop)))


def _valued(tile: Array) -> Array:
    """Returns the elements for comparison: float64, complex elements as magnitudes."""
    with np.errstate(all="ignore"):
        values: Array = np.abs(tile) if tile.dtype.kind == "c" else tile.astype(np.float64, copy=False)
        return values


class _Draft:
    """A picture that is being made."""

    def __init__(self, window: HeatWindow) -> None:
        self.window = window
        self.low, self.high = np.full(window.shape, np.inf), np.full(window.shape, -np.inf)
        self.counts = np.zeros((3, *window.shape), np.int64)

    def picture(self) -> Picture:
        return Picture(self.window, self.low, self.high, *self.counts)

    def add(self, tile: Array, rows: range, columns: range) -> None:
        """Adds a rectangle of ``_tiles``."""
        if is_known(tile.dtype):
            steps = self.window.rows.step, self.window.columns.step
            corner = rows.start - self.window.rows.start, columns.start - self.window.columns.start
            Cells(self.low, self.high, self.counts, steps).add(tile, *corner)
            return
        values = _valued(tile)
        finite = np.isfinite(values)
        low = self._cells(np.minimum, np.where(finite, values, np.inf), columns)
        high = self._cells(np.maximum, np.where(finite, values, -np.inf), columns)
        first = self.window.place(rows.start, columns.start) or (0, 0)
        at = (slice(first[0], first[0] + low.shape[0]), slice(first[1], first[1] + low.shape[1]))
        for counts, bad in zip(self.counts, (np.isnan(values), values == np.inf, values == -np.inf), strict=True):
            counts[at] += self._cells(np.add, bad.astype(np.int64), columns)
        np.minimum(self.low[at], low, out=self.low[at])
        np.maximum(self.high[at], high, out=self.high[at])

    def _cells(self, how: np.ufunc, tile: Array, columns: range) -> Array:
        """Reduces a rectangle to its cells; its rows begin with a cell, or all belong to one."""
        step, across = self.window.rows.step, self.window.columns
        done = (columns.start - across.start) // across.step * across.step + across.start  # start of the first cell
        starts = np.maximum(np.arange(done, columns.stop, across.step) - columns.start, 0)
        cells: Array = how.reduceat(how.reduceat(tile, np.arange(0, len(tile), step), axis=0), starts, axis=1)
        return cells
