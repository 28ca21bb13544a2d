"""The elements of one array: measured, counted by value, shown in cells, copied to another order.

The calls of ``moments.c``, ``distribution.c``, ``cells.c`` and ``shapes.c``. Functions that count take 1-D arrays of a
known type (``kernel.is_known``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64, Int64, Mask
from tui_debugger.stats.kernel import (
    NO_SENSE,
    Kinds,
    address,
    available,
    call,
    kind_of,
    native,
)

Bounds = tuple[float, float]


class Moments(NamedTuple):
    """The sums of some elements. Means, deviations and extremes cover the finite elements.

    ``elements`` counts all. Without finite elements ``minimum`` is +Inf, ``maximum`` -Inf, and ``mean`` 0; extremes are
    never -0. ``deviations`` is the sum of the squared distances from the mean.
    """

    elements: int
    nan: int
    pos_inf: int
    neg_inf: int
    negative: int
    positive: int
    minimum: float
    maximum: float
    mean: float
    abs_mean: float
    deviations: float
    squares: float


MOMENTS: Final = np.dtype([(name, "f8" if number >= 6 else "i8") for number, name in enumerate(Moments._fields)])
"""``struct moments``."""


def moments(elements: Array, ranges: Sequence[Bounds] = ()) -> tuple[Moments, list[int]] | None:
    """Measures an array and counts its elements in inclusive ranges.

    None where the kernel is missing, does not know the type, or the array is not contiguous.
    """
    kind = kind_of(elements.dtype)
    if not available() or kind is None or not elements.flags.c_contiguous:
        return None
    sums, inside, bounds = np.empty((), MOMENTS), np.zeros(len(ranges), np.int64), bounds_table(ranges)
    values, wanted = (elements, elements.nbytes, kind.table), (bounds, len(ranges))
    call("moments", "ipqppqpp", kind.number, *values, *wanted, inside, sums)
    return Moments(*sums.item()), inside.tolist()


def moments_of_each(
    places: Int64, nbytes: Int64, kinds: Kinds, ranges: Sequence[Bounds] = ()
) -> tuple[npt.NDArray[Any], Int64]:
    """Measures many arrays by the addresses of their first elements; the caller keeps the memory alive.

    Returns a structured array with the fields of ``Moments``, and the counts by array and range. Raises ValueError when
    the bytes of an array are no elements of its kind.
    """
    n, bounds = len(places), bounds_table(ranges)
    if len(kinds.number) != n or len(nbytes) != n:
        raise ValueError(NO_SENSE)
    sums, inside = np.empty(n, MOMENTS), np.zeros((n, len(ranges)), np.int64)
    where, lengths = np.ascontiguousarray(places, np.int64), np.ascontiguousarray(nbytes, np.int64)
    call("moments_of_each", "qpppppqpp", n, *kinds, where, lengths, bounds, len(ranges), inside, sums)
    return sums, inside


def bounds_table(ranges: Sequence[Bounds]) -> Float64:
    return np.array(ranges, np.float64).reshape(len(ranges), 2)


UPPER: Final = 1 << 16
"""Number of values of the upper 16 bits of an element."""
_MOST: Final = 1 << 31
"""Elements that 32-bit counters can count."""


class BitCounts:
    """Counts elements by their bits: 1- and 2-byte elements by all bits, others by the upper 16.

    ``zeros``: elements so far that are 0, and that are -0; only where the upper bits are counted.
    """

    def __init__(self, *, width: int, narrow: bool = False) -> None:
        """Starts empty; ``width``: bytes of an element.

        With ``narrow`` the upper bits are float32's (which must hold all elements exactly), else float64's.
        """
        self.zeros: Int64 = np.zeros(2, np.int64)
        self._width, self._narrow = width, narrow
        self._work = np.zeros((2, 256 if width == 1 else UPPER), np.uint32)
        self._counts: Int64 = np.zeros(self._work.shape[1], np.int64)
        self._since = 0

    def add(self, elements: Array) -> None:
        array = native(elements)
        if self._since + len(array) > _MOST:
            self.counts()
        self._since += len(array)
        if self._width <= 2:
            call("patterns", "pqqp", array, len(array), array.itemsize, self._work)
        else:
            call("classes", "eqipp", array, len(array), self._narrow, self._work, self.zeros)

    def counts(self) -> Int64:
        self._counts += self._work[0]
        self._counts += self._work[1]
        self._work[:], self._since = 0, 0
        return self._counts


def keys_of(elements: Array, wanted: Mask, keys: Array) -> Array:
    """Returns the keys of the elements in the ``wanted`` classes (a truth for each upper 16 bits), without keys of 0.

    ``keys`` is a buffer for as many keys as elements, of 32 or 64 bits; the result is a view of it.
    """
    array, bits = native(elements), np.ascontiguousarray(wanted, np.bool_)
    if len(keys) < len(array) or len(bits) != UPPER:
        raise ValueError(NO_SENSE)
    found = call("keys", "eqipp", array, len(array), keys.itemsize == 4, bits, keys, result="q")
    chosen: Array = keys[:found]
    return chosen


def count_edges(elements: Array, edges: Sequence[float]) -> Int64:
    """Returns for each edge how many elements are ≥ it, but for the last edge how many are > it."""
    array, bounds = native(elements), np.array(edges, np.float64)
    reached = np.zeros(len(bounds), np.int64)
    call("edges", "eqpqp", array, len(array), bounds, len(bounds), reached)
    return reached


class Cells:
    """Extremes of the finite elements of each cell (``low``, ``high``), and counts of NaN, +Inf, -Inf."""

    def __init__(self, low: Float64, high: Float64, counts: Int64, steps: tuple[int, int]) -> None:
        """Accumulates into the arrays; ``counts``: (3, rows, columns), ``steps``: rows and columns of a cell."""
        if not low.shape == high.shape == counts.shape[1:] or len(counts) != 3 or low.ndim != 2:
            msg = "cells of different shapes"
            raise ValueError(msg)
        self.low, self.high, self.counts = low, high, counts
        places = [address(each) for each in (low, high, *counts)]
        self._packed = struct.pack("=9q", *places, *low.shape, *steps)

    def add(self, tile: Array, row: int, column: int) -> None:
        """Adds a rectangle whose first element is at ``row`` and ``column`` of the area that the cells show."""
        array = native(tile)
        call("cells", "peqqqq", self._packed, array, row, column, *array.shape)


NAN: Final = 1
INF: Final = 2


def find_bad(elements: Array, kinds: int, *, last: bool = False) -> int | None:
    """Returns the place of the first (or last) element that is NaN or infinite, by ``kinds``; None without any."""
    array = native(elements)
    found: int = call("bad", "eqii", array, len(array), kinds, last, result="q")
    return None if found == len(array) else found


def copy_elements(
    source: Array, offset: int, steps: Sequence[int], target: Array, *, bits: int = 0, signed: bool = False
) -> None:
    """Copies elements of a 1-D buffer, from number ``offset`` on, into an array of any strides above 0.

    ``steps`` are distances of neighbours along each axis of ``target``, in elements. With ``bits`` elements share
    bytes, the first in the lowest bits; each gets a byte in ``target`` (``signed``: the highest bit is a sign). Raises
    ValueError when the steps leave the buffer, or the elements do not fit.
    """
    if len(steps) != target.ndim or target.itemsize != (1 if bits else source.itemsize):
        msg = "the elements do not fit"
        raise ValueError(msg)
    count = source.nbytes * 8 // bits if bits else len(source)
    layout = np.array([target.shape, steps, target.strides], np.int64)
    into = target.ctypes.data, target.ndim, *layout
    call("copy", "pqqiipippp", source, count, offset, bits or 8 * source.itemsize, signed, *into)
