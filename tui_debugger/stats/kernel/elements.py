"""The elements of one array: measured, counted by value, shown in cells, copied to another order.

The calls of ``moments.c``, ``distribution.c``, ``cells.c`` and ``shapes.c``. What counts takes elements that are 1-D
and of a known type (``kernel.is_known``).
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
    checked,
    described,
    function,
    kind_of,
    native,
)

Bounds = tuple[float, float]


class Moments(NamedTuple):
    """The sums of some elements. Means, deviations and extremes are those of the finite ones.

    Attributes:
        elements: how many there are.
        nan: NaN among them.
        pos_inf: +Inf among them.
        neg_inf: -Inf among them.
        negative: finite ones below 0.
        positive: finite ones above 0.
        minimum: the least finite one; +Inf without any, and never -0.
        maximum: the greatest finite one; -Inf without any, and never -0.
        mean: 0 without any.
        abs_mean: mean of the magnitudes.
        deviations: sum of the squared distances from the mean.
        squares: sum of the squares.
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
    """Measures an array; None where the kernel does not: it is not there, or does not know the elements.

    Args:
        elements: of any shape, contiguous, at any address.
        ranges: inclusive bounds whose elements are counted.
    """
    kind = kind_of(elements.dtype)
    if not available() or kind is None or not elements.flags.c_contiguous:
        return None
    sums, inside, bounds = np.empty((), MOMENTS), np.zeros(len(ranges), np.int64), bounds_table(ranges)
    values, wanted = (address(elements), elements.nbytes), (address(bounds), len(ranges))
    call = function("moments", "ipqppqpp")
    checked(call(kind.number, *values, kind.table, *wanted, address(inside), address(sums)))
    return Moments(*sums.item()), inside.tolist()


def moments_of_each(
    places: Int64, nbytes: Int64, kinds: Kinds, ranges: Sequence[Bounds] = ()
) -> tuple[npt.NDArray[Any], Int64]:
    """Measures many arrays at once.

    Args:
        places: where the elements of each begin; the caller holds them.
        nbytes: bytes of each.
        kinds: of the elements of each.
        ranges: inclusive bounds whose elements are counted.

    Returns:
        A structured array with the fields of ``Moments``, and for each array and range how many elements are inside.

    Raises:
        ValueError: some values are no elements of their kind.
    """
    n, bounds = len(places), bounds_table(ranges)
    if len(kinds.number) != n or len(nbytes) != n:
        raise ValueError(NO_SENSE)
    sums, inside = np.empty(n, MOMENTS), np.zeros((n, len(ranges)), np.int64)
    where, lengths = np.ascontiguousarray(places, np.int64), np.ascontiguousarray(nbytes, np.int64)
    arguments = (n, *kinds.addresses(), address(where), address(lengths), address(bounds), len(ranges))
    checked(function("moments_of_each", "qpppppqpp")(*arguments, address(inside), address(sums)))
    return sums, inside


def bounds_table(ranges: Sequence[Bounds]) -> Float64:
    """Returns inclusive bounds as the kernel reads them."""
    return np.array(ranges, np.float64).reshape(len(ranges), 2)


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


def copy_elements(
    source: Array, offset: int, steps: Sequence[int], target: Array, *, bits: int = 0, signed: bool = False
) -> None:
    """Copies elements of a buffer into an array of any strides above 0.

    Args:
        source: 1-D; bytes where elements share them.
        offset: the number of the first element.
        steps: how far its neighbours are apart along each axis of ``target``, in elements.
        target: takes the elements; of the same width, one byte for each that shares one.
        bits: of elements of which several share a byte, the first in its lowest bits; 0: they do not.
        signed: whether the highest of these bits is a sign.

    Raises:
        ValueError: the steps leave the buffer, or the elements do not fit.
    """
    if len(steps) != target.ndim or target.itemsize != (1 if bits else source.itemsize):
        msg = "the elements do not fit"
        raise ValueError(msg)
    count = source.nbytes * 8 // bits if bits else len(source)
    layout = np.array([target.shape, steps, target.strides], np.int64)
    at = address(layout)
    checked(
        function("copy", "pqqiipippp")(
            address(source),
            count,
            offset,
            bits or 8 * source.itemsize,
            signed,
            target.ctypes.data,
            target.ndim,
            at,
            at + layout.strides[0],
            at + 2 * layout.strides[0],
        )
    )
