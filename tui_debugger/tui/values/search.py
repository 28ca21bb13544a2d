"""Finding a place in a tensor that does not fit the memory: next NaN or Inf, largest, smallest.

Everything here reads block by block in memory order, so that a memory-mapped tensor of many GB needs one block,
and tells how far it is between blocks, which can stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats.heat import Kind, Window, next_bad
from tui_debugger.text.heat_map import HeatTable, Zoom
from tui_debugger.text.values import Family, ValueTable, family

Index = tuple[int, ...]
Bad = Callable[[Array], npt.NDArray[np.bool_]]
"""A test for the elements of a block."""
BLOCK = 1 << 20
"""Elements read at once."""


@dataclass(frozen=True, slots=True)
class Found:
    """The place where something was found.

    Attributes:
        index: full index in the tensor.
        wrapped: the search went over the end of the tensor and on from the other side.
    """

    index: Index
    wrapped: bool = False


def not_finite(block: Array) -> npt.NDArray[np.bool_]:
    """NaN and Inf."""
    return ~np.isfinite(block)


class _Flat:
    """An array as one line in memory order (C or Fortran), with the way back to full indices."""

    def __init__(self, array: Array) -> None:
        self.shape = array.shape
        self.fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        ordered = array.T if self.fortran else array
        # Flattening anything but one run of memory would copy all of it; ``flat`` copies a block at a time.
        self.line = ordered.reshape(-1) if ordered.flags.c_contiguous else ordered.flat
        self.size = array.size

    def index(self, position: int) -> Index:
        shape = self.shape[::-1] if self.fortran else self.shape
        index = tuple(int(i) for i in np.unravel_index(position, shape))
        return index[::-1] if self.fortran else index

    def position(self, index: Index) -> int:
        shape = self.shape[::-1] if self.fortran else self.shape
        return int(np.ravel_multi_index(index[::-1] if self.fortran else index, shape)) if shape else 0


def _numbers(block: Array) -> Array:
    """Returns the block as something numpy's comparisons take: ml_dtypes as float32, complex by magnitude."""
    kind = family(block.dtype)
    if kind is Family.COMPLEX:
        magnitude: Array = np.abs(block)
        return magnitude
    if block.dtype.kind in "biuf":
        return block
    return block.astype(np.float32 if kind is Family.FLOAT else np.int64)


def can_be_bad(array: Array) -> bool:
    """Tells whether the element type can hold NaN or Inf at all."""
    return family(array.dtype) in {Family.FLOAT, Family.COMPLEX}


def _spans(start: int, stop: int, direction: int) -> Iterator[tuple[int, int]]:
    if direction > 0:
        yield from ((low, min(low + BLOCK, stop)) for low in range(start, stop, BLOCK))
    else:
        yield from ((max(start, high - BLOCK), high) for high in range(stop, start, -BLOCK))


def find_bad(
    array: Array, origin: Index, direction: int, *, bad: Bad = not_finite, progress: ProgressFn = no_progress
) -> Found | None:
    """Returns the next (or previous) NaN or Inf after ``origin`` in memory order; wraps around once.

    Args:
        array: any shape.
        origin: full index to start from; it is looked at last.
        direction: +1 or −1.
        bad: what is looked for: by default both, else ``np.isnan`` or ``np.isinf``.
        progress: called between blocks; may raise to stop.

    Returns:
        None when there is none.
    """
    if not array.size or not can_be_bad(array):
        return None
    flat = _Flat(array)
    here = flat.position(origin)
    ahead, behind = (here + 1, flat.size), (0, here + 1)
    if direction < 0:
        ahead, behind = (0, here), (here, flat.size)
    looked = 0
    for wrapped, (start, stop) in enumerate((ahead, behind)):
        for low, high in _spans(start, stop, direction):
            progress(Progress(looked, flat.size))
            with np.errstate(all="ignore"):
                places = np.flatnonzero(bad(_numbers(flat.line[low:high])))
            if places.size:
                return Found(flat.index(low + int(places[0 if direction > 0 else -1])), bool(wrapped))
            looked += high - low
    return None


def find_extreme(array: Array, largest: bool, *, progress: ProgressFn = no_progress) -> Found | None:
    """Returns the first largest (or smallest) finite element in memory order; complex numbers by magnitude.

    Returns:
        None when no element is finite.
    """
    if family(array.dtype) is Family.OTHER:
        return None
    flat = _Flat(array)
    best: tuple[Any, int] | None = None
    for low, high in _spans(0, flat.size, +1):
        progress(Progress(low, flat.size))
        with np.errstate(all="ignore"):
            candidate = _block_extreme(_numbers(flat.line[low:high]), largest)
        if candidate is not None:
            value, offset = candidate
            if best is None or (value > best[0] if largest else value < best[0]):
                best = (value, low + offset)
    return None if best is None else Found(flat.index(best[1]))


def _block_extreme(block: Array, largest: bool) -> tuple[Any, int] | None:
    offset = int(block.argmax() if largest else block.argmin())
    if not np.isfinite(block[offset]):
        places = np.flatnonzero(np.isfinite(block))
        if not places.size:
            return None
        finite = block[places]
        offset = int(places[finite.argmax() if largest else finite.argmin()])
    return block[offset], offset


_INF: Final = frozenset({Kind.POS_INF, Kind.NEG_INF})


@dataclass(frozen=True, slots=True)
class SearchKind:
    """A kind of element to look for.

    Attributes:
        name: for messages.
        bad: tells elements.
        kinds: tells cells.
    """

    name: str
    bad: Bad
    kinds: frozenset[Kind]


SEARCH_KINDS: Final[Mapping[str, SearchKind]] = {
    "": SearchKind("NaN or Inf", not_finite, _INF | {Kind.NAN}),
    "NaN": SearchKind("NaN", np.isnan, frozenset({Kind.NAN})),
    "Inf": SearchKind("Inf", np.isinf, _INF),
}


@dataclass(frozen=True, slots=True)
class MapSearch:
    """Cells of a heat map of a slice, all over the table.

    Attributes:
        value_table: the slice.
        field: the same as a table.
        zoom: the size of the cells.
    """

    value_table: ValueTable
    field: HeatTable
    zoom: Zoom

    def next_bad(
        self, element: tuple[int, int], direction: int, sought: SearchKind, progress: ProgressFn = no_progress
    ) -> Found | None:
        """Looks in the cells after (or before) that of an element; then in the rest of the tensor.

        Args:
            element: row and column in the table.
            direction: +1 or -1.
            sought: what is looked for.
            progress: may raise to stop.
        """
        rows, columns = self.field.shape
        window = Window(range(0, rows, self.zoom.rows), range(0, columns, self.zoom.columns))
        here = window.place(*element) or (0, 0)
        place = self._next(window, here, direction, sought, progress)
        if place is not None:
            return self._found(window, place, sought, wrapped=False)
        array = self.value_table.array
        if array.size > rows * columns:
            edge = self.value_table.element(rows - 1, columns - 1) if direction > 0 else self.value_table.element(0, 0)
            return find_bad(array, edge, direction, bad=sought.bad, progress=progress)
        height, width = window.shape
        outside = (0, -1) if direction > 0 else (height - 1, width)
        place = self._next(window, outside, direction, sought, progress)
        return self._found(window, place, sought, wrapped=True) if place is not None else None

    def _next(
        self, window: Window, after: tuple[int, int], direction: int, sought: SearchKind, progress: ProgressFn
    ) -> tuple[int, int] | None:
        return next_bad(self.field.read, window, after, direction, kinds=sought.kinds, progress=progress)

    def _found(self, window: Window, place: tuple[int, int], sought: SearchKind, *, wrapped: bool) -> Found:
        """Returns the first such element of a cell."""
        rows, columns = window.cell(*place)
        part = self.field.read(slice(rows.start, rows.stop), slice(columns.start, columns.stop))
        last = tuple(size - 1 for size in part.shape)
        inside = find_bad(part, last, 1, bad=sought.bad)
        row, column = inside.index if inside is not None else (0, 0)
        return Found(self.value_table.element(rows.start + row, columns.start + column), wrapped)
