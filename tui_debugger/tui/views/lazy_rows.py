"""Rows of a table that are made into cells when they are drawn: there may be thousands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

from tui_debugger.tui.widgets.text import Cell

T = TypeVar("T")


class LazyRows(Generic[T]):
    """See ``widgets.rows.Rows``."""

    def __init__(self, items: Sequence[T], cells: Callable[[T], Sequence[Cell]], key: Callable[[T], Hashable]) -> None:
        """``cells`` and ``key`` make the cells of an item, and what identifies it."""
        self._items = items
        self._cells = cells
        self._key = key

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self._items)

    def cells(self, index: int) -> Sequence[Cell]:
        """Cells of a row."""
        return self._cells(self._items[index])

    def key(self, index: int) -> Hashable:
        """Key of a row."""
        return self._key(self._items[index])

    def find(self, key: Hashable) -> int:
        """Row of a key, or -1."""
        return self._places.get(key, -1)

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {self._key(item): at for at, item in enumerate(self._items)}
