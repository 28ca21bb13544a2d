"""What a table shows: columns, and rows that are asked for one at a time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tui_debugger.tui.widgets.text import Cell


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: shown in the header line.
        width: cells; the least width when ``elastic`` is set.
        elastic: share of the spare width this column takes (0: fixed).
        right: right-aligned, for numbers.
        frozen: stays in sight when the line is moved sideways; frozen columns come first.
    """

    title: str
    width: int
    elastic: int = 0
    right: bool = False
    frozen: bool = False


class Rows(Protocol):
    """What a table shows. ``cells`` is called for visible lines only."""

    @property
    def row_count(self) -> int:
        """Number of rows."""

    def cells(self, index: int) -> Sequence[Cell]:
        """One cell per column; when there are fewer, the last one takes the rest of the line."""

    def key(self, index: int) -> Hashable:
        """What identifies a row when rows are inserted or filtered."""

    def find(self, key: Hashable) -> int:
        """Row of a key, or -1 when it is gone."""


class ListRows:
    """Rows over ready-made cells, for short lists."""

    def __init__(self, rows: Sequence[Sequence[Cell]], keys: Sequence[Hashable] | None = None) -> None:
        """``keys`` defaults to the row numbers."""
        self._rows = rows
        self._keys: Sequence[Hashable] = range(len(rows)) if keys is None else keys
        self._index = {key: i for i, key in enumerate(self._keys)}

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def cells(self, index: int) -> Sequence[Cell]:
        """Cells of a row."""
        return self._rows[index]

    def key(self, index: int) -> Hashable:
        """Key of a row."""
        return self._keys[index]

    def find(self, key: Hashable) -> int:
        """Row of a key, or -1."""
        return self._index.get(key, -1)
