"""Shows a table of numbers in few cells, and finds the next NaN or Inf: the calls of ``cells.c``."""

from __future__ import annotations

import struct
from typing import Final

from tui_debugger.arrays import Array, Float64, Int64
from tui_debugger.stats.kernel import address, checked, described, function, native


class Cells:
    """The extremes of the finite elements of each cell, and counts of the others.

    Attributes:
        low, high: the extremes, +Inf and -Inf to begin with.
        counts: NaN, +Inf, -Inf.
    """

    def __init__(self, low: Float64, high: Float64, counts: Int64, steps: tuple[int, int]) -> None:
        """Adds to arrays, all of one shape, ``counts`` of three of them; ``steps``: rows and columns of a cell."""
        if not low.shape == high.shape == counts.shape[1:] or len(counts) != 3 or low.ndim != 2:
            msg = "cells of different shapes"
            raise ValueError(msg)
        self.low, self.high, self.counts = low, high, counts
        places = [address(each) for each in (low, high, *counts)]
        self._packed = struct.pack("=9q", *places, *low.shape, *steps)

    def add(self, tile: Array, row: int, column: int) -> None:
        """Adds a rectangle of a table, of a known type, which begins at a row and column of what the cells show."""
        array = native(tile)
        checked(function("cells", "ppqqqq")(self._packed, described(array), row, column, *array.shape))


NAN: Final = 1
INF: Final = 2


def find_bad(elements: Array, kinds: int, *, last: bool = False) -> int | None:
    """Returns the place of the first, or the last, element that is NaN or infinite; None without any.

    Args:
        elements: 1-D, of a known type.
        kinds: ``NAN``, ``INF`` or both.
        last: the last one.
    """
    array = native(elements)
    found = checked(int(function("bad", "pqii", "q")(described(array), len(array), kinds, last)))
    return None if found == len(array) else found
