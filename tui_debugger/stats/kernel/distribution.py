"""Counts the elements of each value, class of values, or below a bound: the calls of ``distribution.c``.

Elements come 1-D and of a known type (``kernel.is_known``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Int64, Mask
from tui_debugger.stats.kernel import NO_SENSE, address, checked, described, function, native

UPPER: Final = 1 << 16
"""Values of the upper 16 bits of an element."""


_MOST: Final = 1 << 31
"""Elements that counts of 32 bits have room for."""


class BitCounts:
    """Counts elements by their bits: those of one or two bytes by all of them, others by the upper 16.

    Attributes:
        zeros: elements so far that are 0, and those of them that are -0; only where the upper bits are counted.
    """

    def __init__(self, *, width: int, narrow: bool = False) -> None:
        """Nothing yet.

        Args:
            width: bytes of an element; 1 and 2 count all bits.
            narrow: the upper bits are those of float32, which holds all elements exactly; else of float64.
        """
        self.zeros: Int64 = np.zeros(2, np.int64)
        self._width, self._narrow = width, narrow
        self._work = np.zeros((2, 256 if width == 1 else UPPER), np.uint32)
        self._counts: Int64 = np.zeros(self._work.shape[1], np.int64)
        self._since = 0

    def add(self, elements: Array) -> None:
        """Adds a block."""
        array, work = native(elements), address(self._work)
        if self._since + len(array) > _MOST:
            self.counts()
        self._since += len(array)
        if self._width <= 2:
            checked(function("patterns", "pqqp")(address(array), len(array), array.itemsize, work))
        else:
            call = function("classes", "pqipp")
            checked(call(described(array), len(array), self._narrow, work, address(self.zeros)))

    def counts(self) -> Int64:
        """Returns the number of elements by their bits."""
        self._counts += self._work[0]
        self._counts += self._work[1]
        self._work[:], self._since = 0, 0
        return self._counts


def keys_of(elements: Array, wanted: Mask, keys: Array) -> Array:
    """Returns the keys of the elements that are in some classes, without those of 0.

    Args:
        elements: all of them.
        wanted: a truth for each value of the upper 16 bits.
        keys: room for as many, of 32 or 64 bits; the answer is a view of it.
    """
    array, bits = native(elements), np.ascontiguousarray(wanted, np.bool_)
    if len(keys) < len(array) or len(bits) != UPPER:
        raise ValueError(NO_SENSE)
    call = function("keys", "pqipp", "q")
    found = checked(int(call(described(array), len(array), keys.itemsize == 4, address(bits), address(keys))))
    chosen: Array = keys[:found]
    return chosen


def count_edges(elements: Array, edges: Sequence[float]) -> Int64:
    """Returns for each edge how many elements are not below it, for the last one how many are above it."""
    array, bounds = native(elements), np.array(edges, np.float64)
    reached = np.zeros(len(bounds), np.int64)
    checked(function("edges", "pqpqp")(described(array), len(array), address(bounds), len(bounds), address(reached)))
    return reached
