"""Two arrays side by side: whether they fit, their elements block by block, and the difference of two blocks.

Differences are taken in float64. Integers of any size and sign are subtracted exactly and rounded once; nothing wraps
around. Infinities of the same sign are equal, so their difference is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

import numpy as np

from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.sharing import Stock, in_c_order
from tui_debugger.analysis.workers import Workers
from tui_debugger.arrays import Array
from tui_debugger.errors import TdbgError
from tui_debugger.model import ReadSpec

Index = tuple[int, ...]

COPIED: Final = 1 << 26
"""Bytes up to which a tensor is copied where another shape needs another order of its elements in memory."""
PIECE: Final = 1 << 16
"""Elements per block: what is made of two of them in float64 fits into an L2 cache of 2 MiB."""
_HALF: Final = 32


class Fit(Enum):
    """How the elements of two tensors are paired."""

    SAME = "same shape"
    RESHAPED = "element by element in C order"
    STRETCHED = "broadcast"


def fit_of(here: tuple[int, ...], there: tuple[int, ...]) -> Fit | None:
    """How tensors of two shapes can be paired; None when they cannot.

    Equal shapes, the same number of elements, or one of them stretched over the other by numpy's rules.
    """
    if here == there:
        return Fit.SAME
    if np.prod(here, dtype=object) == np.prod(there, dtype=object):
        return Fit.RESHAPED
    try:
        shape = np.broadcast_shapes(here, there)
    except ValueError:
        return None
    return Fit.STRETCHED if shape in (here, there) else None


class Pairs:
    """Two arrays of one shape.

    Attributes:
        here, there: the arrays.
        shape: of both.
        count: elements of each.
        stock: both as they were given, and who can go through them.
    """

    def __init__(
        self, here: Array, there: Array, specs: tuple[ReadSpec, ...] = (), workers: Workers | None = None
    ) -> None:
        """Pairs arrays that fit.

        Args:
            here: one.
            there: the other one.
            specs: how other processes can read both; empty where they cannot.
            workers: who else works when there is much to do; None: nobody.

        Raises:
            TdbgError: they do not fit, hold no numbers, or a big one would have to be copied.
        """
        for array in (here, there):
            if not is_numeric(array.dtype):
                raise TdbgError(
                    "only numbers can be compared", where=f"element type {array.dtype}", hint="choose another tensor"
                )
        given = (here, there)
        fit = fit_of(here.shape, there.shape)
        if fit is None:
            raise does_not_fit(here.shape, there.shape)
        if fit is Fit.RESHAPED:
            there = _reshaped(there, here.shape)
        elif fit is Fit.STRETCHED:
            here, there = np.broadcast_arrays(here, there)
        self.here, self.there = here, there
        self.shape: tuple[int, ...] = here.shape
        self.count = int(np.prod(self.shape, dtype=object))
        copied = fit is Fit.RESHAPED and not given[1].flags.c_contiguous
        self.stock = Stock(given, self.count, () if copied else specs, workers)
        both = (here, there)
        in_c = all(array.flags.c_contiguous for array in both)
        self._fortran = not in_c and all(array.flags.f_contiguous for array in both)

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Array, Array]]:
        """(number of the first element, elements, elements) in 1-D blocks, in an order of its own: see ``index``.

        Args:
            start: the first element.
            end: the one after the last; None for all.
        """
        here, there = (in_c_order(array.T if self._fortran else array) for array in (self.here, self.there))
        end = self.count if end is None else end
        for first in range(start, end, PIECE):
            last = min(first + PIECE, end)
            yield first, np.asarray(here[first:last]), np.asarray(there[first:last])

    def index(self, number: int) -> Index:
        """The index of an element that ``blocks`` gave as number so and so."""
        if not self.shape:
            return ()
        order = self.shape[::-1] if self._fortran else self.shape
        index = tuple(int(i) for i in np.unravel_index(number, order))
        return index[::-1] if self._fortran else index


def does_not_fit(here: tuple[int, ...], there: tuple[int, ...]) -> TdbgError:
    """The error of two shapes that cannot be paired."""
    return TdbgError(
        "these tensors have different shapes",
        where=f"{here} and {there}",
        hint="compare tensors of equal shapes, of the same number of elements, or that broadcast",
    )


def wide(block: Array) -> Array:
    """The elements as float64, complex ones as complex128; what is of that type is returned as it is."""
    target = np.complex128 if block.dtype.kind == "c" else np.float64
    return block.astype(target, copy=False)


def difference(here: Array, there: Array) -> Array:
    """``here`` − ``there`` for blocks or windows of one shape: float64, or complex128 when either is complex."""
    with np.errstate(all="ignore"):
        return exact_difference(here, there) if needs_halves(here, there) else wide_difference(wide(here), wide(there))


def wide_difference(one: Array, other: Array) -> Array:
    """The difference of what is float64 or complex128 already."""
    found: Array = np.asarray(one - other)
    if not np.isfinite(found).all():
        found[one == other] = 0  # the difference of two equal infinities
    return found


def needs_halves(here: Array, there: Array) -> bool:
    """Whether these are integers whose difference takes more than float64 holds on the way."""
    one, other = here.dtype, there.dtype
    return one.kind in "biu" and other.kind in "biu" and max(one.itemsize, other.itemsize) == 8


def exact_difference(here: Array, there: Array) -> Array:
    """The difference of 64-bit integers: their halves fit into float64, so that only the last addition rounds."""
    high, low = (np.asarray(one - other) for one, other in zip(_halves(here), _halves(there), strict=True))
    found: Array = high * 2.0**_HALF + low
    return found


def _halves(block: Array) -> tuple[Array, Array]:
    whole = block.astype(np.uint64 if block.dtype.kind == "u" else np.int64, copy=False)
    return (whole >> _HALF).astype(np.float64), (whole & 0xFFFFFFFF).astype(np.float64)


def _reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    if array.flags.c_contiguous or array.nbytes <= COPIED:
        return array.reshape(shape)
    raise TdbgError(
        "this tensor is too big to be brought into another shape",
        where=f"{array.shape} in Fortran order",
        hint="write it in C order first, with numpy.ascontiguousarray",
    )
