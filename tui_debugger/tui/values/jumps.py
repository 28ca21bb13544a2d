"""Where the next NaN or Inf is: the next element of a table, the next cell of a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.heat import Kind, Window, next_bad
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.tui.values.search import Bad, Found, find_bad, not_finite
from tui_debugger.tui.values.sheet import Sheet
from tui_debugger.words.drawing.heat_layout import Zoom
from tui_debugger.words.drawing.heat_page import Field

_INF: Final = frozenset({Kind.POS_INF, Kind.NEG_INF})


@dataclass(frozen=True, slots=True)
class Wish:
    """What is looked for.

    Attributes:
        name: for messages.
        bad: tells elements.
        kinds: tells cells.
    """

    name: str
    bad: Bad
    kinds: frozenset[Kind]


WISHES: Final[Mapping[str, Wish]] = {
    "": Wish("NaN or Inf", not_finite, _INF | {Kind.NAN}),
    "NaN": Wish("NaN", np.isnan, frozenset({Kind.NAN})),
    "Inf": Wish("Inf", np.isinf, _INF),
}


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a heat map of a slice, all over the table.

    Attributes:
        sheet: the slice.
        field: the same as a table.
        zoom: the size of the cells.
    """

    sheet: Sheet
    field: Field
    zoom: Zoom

    def next_bad(
        self, element: tuple[int, int], direction: int, wish: Wish, progress: ProgressFn = no_progress
    ) -> Found | None:
        """What is looked for in the cells after (or before) that of an element; then in the rest of the tensor.

        Args:
            element: row and column in the table.
            direction: +1 or -1.
            wish: what is looked for.
            progress: may raise to stop.
        """
        rows, columns = self.field.shape
        window = Window(range(0, rows, self.zoom.rows), range(0, columns, self.zoom.columns))
        here = window.place(*element) or (0, 0)
        place = self._next(window, here, direction, wish, progress)
        if place is not None:
            return self._found(window, place, wish, wrapped=False)
        array = self.sheet.array
        if array.size > rows * columns:
            edge = self.sheet.element(rows - 1, columns - 1) if direction > 0 else self.sheet.element(0, 0)
            return find_bad(array, edge, direction, bad=wish.bad, progress=progress)
        height, width = window.shape
        outside = (0, -1) if direction > 0 else (height - 1, width)
        place = self._next(window, outside, direction, wish, progress)
        return self._found(window, place, wish, wrapped=True) if place is not None else None

    def _next(
        self, window: Window, after: tuple[int, int], direction: int, wish: Wish, progress: ProgressFn
    ) -> tuple[int, int] | None:
        return next_bad(self.field.read, window, after, direction, kinds=wish.kinds, progress=progress)

    def _found(self, window: Window, place: tuple[int, int], wish: Wish, *, wrapped: bool) -> Found:
        """The first such element of a cell."""
        rows, columns = window.cell(*place)
        part = self.field.read(slice(rows.start, rows.stop), slice(columns.start, columns.stop))
        last = tuple(size - 1 for size in part.shape)
        inside = find_bad(part, last, 1, bad=wish.bad)
        row, column = inside.index if inside is not None else (0, 0)
        return Found(self.sheet.element(rows.start + row, columns.start + column), wrapped)
