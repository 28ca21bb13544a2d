"""A slice of an N-D tensor laid out as rows and columns, without reading more than what is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tui_debugger.analysis.slicing import Slice, apply, range_text
from tui_debugger.arrays import Array
from tui_debugger.words.values import CellKind, NumberFormat, format_window

Index = tuple[int, ...]
Texts = list[list[tuple[str, CellKind]]]
FOLDS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80, 100)
"""Column counts for a folded line: numbers in which people can count."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """At most two free dimensions of a tensor as a table.

    Two free dimensions are rows and columns. One free dimension is folded into rows of ``fold`` elements, as text is
    wrapped: a bias of 768 numbers in one endless row (or column) would waste the screen. None is a single cell.

    Attributes:
        array: the whole tensor, usually a memory map; only windows of it are read.
        view: which part of it.
        fold: elements per row when one dimension is free.
    """

    array: Array
    view: Slice
    fold: int = 10

    stride: ClassVar[int] = 1
    """Lines that a row of elements takes: more where several numbers of an element stand below each other."""

    @cached_property
    def lines(self) -> tuple[range, ...]:
        """The indices along the free dimensions, at most two."""
        return tuple(entry for entry in self.view.entries if isinstance(entry, range))

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        if not self.lines:
            return 1
        first = len(self.lines[0])
        return -(-first // self.fold) if self.folded else first

    @cached_property
    def columns(self) -> int:
        """Number of columns."""
        if not self.lines:
            return 1
        return min(self.fold, len(self.lines[0])) if self.folded else len(self.lines[1])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.rows and self.columns)

    @property
    def folded(self) -> bool:
        """Whether one dimension is wrapped into rows."""
        return len(self.lines) == 1

    def cells(self, top: int, left: int, height: int, width: int) -> Array:
        """The values of a window, shape (height, width).

        Args:
            top: first row, inside the sheet.
            left: first column, inside the sheet.
            height: rows, as many as there are.
            width: columns. The last row of a folded line may be short: it is padded by repeating its last element,
                and :meth:`index` says which cells exist.
        """
        if not self.lines:
            return np.asarray(self.part(())).reshape(1, 1)
        if self.folded:
            return self._folded_cells(top, left, height, width)
        return self.part((self.lines[0][top : top + height], self.lines[1][left : left + width]))

    def _folded_cells(self, top: int, left: int, height: int, width: int) -> Array:
        values = self.part((self.lines[0][top * self.fold : (top + height) * self.fold],))
        missing = -len(values) % self.fold
        if missing:
            values = np.concatenate([values, np.repeat(values[-1:], missing)])
        return values.reshape(-1, self.fold)[:, left : left + width]

    def part(self, parts: tuple[range, ...]) -> Array:
        """The values at these indices of the free dimensions."""
        part = iter(parts)
        entries = tuple(next(part) if isinstance(entry, range) else entry for entry in self.view.entries)
        return np.asarray(apply(self.array, Slice(entries, "")))

    def texts(self, top: int, left: int, height: int, width: int, form: NumberFormat) -> Texts:
        """The same window as it is shown."""
        return format_window(self.cells(top, left, height, width), form)

    def index(self, row: int, column: int) -> Index | None:
        """Full index in the tensor of a cell; None beyond the end of a folded line."""
        if not self.folded:
            return self.view.index(*(row, column)[: len(self.lines)])
        place = row * self.fold + column
        return self.view.index(place) if place < len(self.lines[0]) else None

    def place(self, index: Index) -> tuple[int, int] | None:
        """(row, column) of a full index; None when the sheet does not show it."""
        places = []
        for axis, i in zip(self.view.entries, index, strict=True):
            if isinstance(axis, int):
                if axis != i:
                    return None
            elif i not in axis:
                return None
            else:
                places.append(axis.index(i))
        if self.folded:
            return divmod(places[0], self.fold)
        return (places[0], places[1]) if places else (0, 0)

    def spot(self, index: Index) -> tuple[int, int] | None:
        """The same with a folded line as the one row that it is."""
        place = self.place(index)
        return (0, place[0] * self.fold + place[1]) if place is not None and self.folded else place

    def element(self, row: int, column: int) -> Index:
        """Full index of an element, with a folded line as one row."""
        return self.view.index(*(column,) if self.folded else (row, column)[: len(self.lines)])

    def rectangle_text(self, rows: range, columns: range) -> str:
        """Full index of a rectangle of elements, as a slice that can be typed; a folded line counts as one row."""
        parts = iter((columns,) if self.folded else (rows, columns))
        words = []
        for entry in self.view.entries:
            if isinstance(entry, range):
                part = next(parts)
                along = entry[part.start : part.stop]
                words.append(str(along[0]) if len(along) == 1 else range_text(along))
            else:
                words.append(str(entry))
        return f"[{', '.join(words)}]"

    def row_label(self, row: int) -> str:
        """What stands left of a row: its index in the tensor (for a folded line that of its first element)."""
        if not self.lines:
            return ""
        return str(self.lines[0][row * self.fold if self.folded else row])

    def column_label(self, column: int) -> str:
        """What stands above a column: its index; for a folded line the offset from the row's first element."""
        if not self.lines:
            return ""
        return f"+{column * self.lines[0].step}" if self.folded else str(self.lines[1][column])


def best_fold(room: int, cell: int) -> int:
    """How many cells of a width fit into ``room``: a round number of them."""
    fitting = max(1, room // max(1, cell))
    return max(fold for fold in FOLDS if fold <= fitting)
