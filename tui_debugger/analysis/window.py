"""Small tensors that wait for company: read one by one, measured together, written to their rows of records."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.dtypes import DType, is_numeric
from tui_debugger.analysis.looks import Looks
from tui_debugger.analysis.npy import Layout
from tui_debugger.analysis.records import CHANGE_KNOWN, NOT_KNOWN, Before, Records, State
from tui_debugger.analysis.small import SMALL, SmallTensors
from tui_debugger.arrays import Int64

ELEMENTS: Final = 1 << 17
"""Elements of a window: their float64 copies stay in the L2 cache, or nearly."""
LIKE_ELEMENTS: Final = 256
"""What a tensor counts besides its elements: 500 tensors are enough to share the calls of numpy."""


Tensor = tuple[int, bytes, int, int, int, int]
"""Row, elements as bytes, their number, number of their type and shape, size and modification time of the file."""
Pair = tuple[int, bytes, bytes, int, int, int]
"""Row, elements and those that they are compared with as bytes, their number, size and time of the other's file."""


class Group:
    """The waiting tensors of one element type."""

    __slots__ = ("dtype", "pairs", "tensors")

    def __init__(self, dtype: DType) -> None:
        """Starts empty."""
        self.dtype = dtype
        self.tensors: list[Tensor] = []
        self.pairs: list[Pair] = []


class Window:
    """The waiting tensors of a batch.

    Attributes:
        room: what may be added yet; it is time to measure when nothing is left.
    """

    def __init__(self, looks: Looks, records: Records) -> None:
        """``records`` has a row for each of ``looks``, which says what was asked."""
        self._records = records
        self._need = looks.need
        self._asking = {bounds: np.array([bounds in need.ranges for need in looks.needs]) for bounds in records.ranges}
        self._groups: dict[DType, Group] = {}
        self.room = ELEMENTS

    def group(self, dtype: DType) -> Group:
        """Where tensors of an element type wait."""
        return self._groups.setdefault(dtype, Group(dtype))

    def add(self, group: Group, tensor: Tensor) -> None:
        """Lets a tensor wait."""
        group.tensors.append(tensor)
        self.room -= tensor[2] + LIKE_ELEMENTS

    def measure(self) -> None:
        """Measures all that wait."""
        for group in self._groups.values():
            if group.tensors:
                self._measure(group.dtype, group.tensors)
                group.tensors = []
            if group.pairs:
                self._compare(group.dtype, group.pairs)
                group.pairs = []
        self.room = ELEMENTS

    def _measure(self, dtype: DType, tensors: list[Tensor]) -> None:
        rows_, values, counts_, metas, sizes, times = zip(*tensors, strict=True)
        rows, counts, table = np.array(rows_), np.array(counts_), self._records.rows
        table["state"][rows], table["meta"][rows] = State.MEASURED, metas
        table["size"][rows], table["mtime"][rows] = sizes, times
        filled = counts > 0
        if not filled.all():
            self._put_empty(rows[~filled])
            rows, counts = rows[filled], counts[filled]
        if not len(rows):
            return
        small = SmallTensors.of(_joined(values, dtype), counts)
        columns = small.columns()
        for name, column in columns.items():
            table[name][rows] = column
        for bounds, counted in self._records.ranges.items():
            asked = self._asking[bounds][self._need[rows]]
            if asked.any():
                counted[rows[asked]] = small.inside(bounds, columns)[asked]

    def _put_empty(self, rows: Int64) -> None:
        for name in ("minimum", "maximum", "mean", "abs_mean", "variance"):
            self._records.rows[name][rows] = np.nan
        for bounds, counted in self._records.ranges.items():
            counted[rows[self._asking[bounds][self._need[rows]]]] = 0

    def _compare(self, dtype: DType, pairs: list[Pair]) -> None:
        rows_, values, befores, counts_, sizes, times = zip(*pairs, strict=True)
        rows, counts, table = np.array(rows_), np.array(counts_), self._records.rows
        table["before"][rows] = Before.OK
        table["before_size"][rows], table["before_mtime"][rows] = sizes, times
        table["asked"][rows] |= CHANGE_KNOWN
        filled = counts > 0
        difference, reference = np.full((2, len(rows)), np.nan)
        close = {closeness: np.zeros(len(rows), np.bool_) for closeness in self._records.close}
        if filled.any():
            now, before = (SmallTensors.of(_joined(each, dtype), counts[filled]) for each in (values, befores))
            difference[filled], reference[filled], answers = now.compared(before, close)
            for closeness, answer in answers.items():
                close[closeness][filled] = answer
        table["difference"][rows], table["reference"][rows] = difference, reference
        for closeness, answer in close.items():
            column = self._records.close[closeness]
            asked = column[rows] == NOT_KNOWN
            column[rows[asked]] = answer[asked]


def _joined(values: tuple[Any, ...], dtype: DType) -> npt.NDArray[Any]:
    return np.frombuffer(b"".join(values), dtype)


def fits(layout: Layout) -> bool:
    """Whether tensors like this are measured in windows; complex elements need more than a cast."""
    return layout.count <= SMALL and layout.dtype.kind != "c" and is_numeric(layout.dtype)
