"""A TensorTable over plain columns: looking up tensors without an object per tensor."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from tui_debugger.model import Side

Int64 = npt.NDArray[np.int64]


def tensor_keys(node: npt.ArrayLike, side: npt.ArrayLike, slot: npt.ArrayLike) -> Int64:
    """One int64 per (node, side, slot) that sorts like the triple; nodes below 2³¹, slots below 2¹⁶."""
    nodes, sides, slots = (np.asarray(column, dtype=np.int64) for column in (node, side, slot))
    keys: Int64 = (nodes << 17) | (sides << 16) | slots
    return keys


def latest(keys: Int64, timestamp: Int64) -> Int64:
    """Of several rows with one key the one with the latest timestamp: row numbers, sorted by key."""
    by = np.lexsort((timestamp, keys))
    last = np.ones(len(by), np.bool_)
    last[:-1] = keys[by[1:]] != keys[by[:-1]]
    kept: Int64 = by[last]
    return kept


class Columns:
    """The columns of ``base.TensorTable`` with lookups over one sorted key column.

    Rows must be sorted by ``order`` and unique by (node, side, slot). Subclasses add ``spec`` and ``recorded``.
    """

    def __init__(
        self,
        node: npt.NDArray[np.int32],
        side: npt.NDArray[np.uint8],
        slot: npt.NDArray[np.int16],
        flags: npt.NDArray[np.uint8],
        timestamp: Int64,
    ) -> None:
        """Takes ownership of the columns and makes them read-only."""
        self.node = node
        self.side = side
        self.slot = slot
        self.flags = flags
        self.order: npt.NDArray[np.int32] = np.arange(len(node), dtype=np.int32)
        self.timestamp = timestamp
        for column in (node, side, slot, flags, self.order, timestamp):
            column.flags.writeable = False

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.node)

    @cached_property
    def _lookup(self) -> tuple[Int64, Int64]:
        keys = tensor_keys(self.node, self.side, self.slot)
        by_key = np.argsort(keys, kind="stable").astype(np.int64)
        return keys[by_key], by_key

    def find(self, node: int, side: Side, slot: int) -> int:
        """Index of a tensor, or -1."""
        if node < 0 or not 0 <= slot < 1 << 16:
            return -1
        keys, rows = self._lookup
        key = (node << 17) | (int(side) << 16) | slot
        at = int(np.searchsorted(keys, key))
        return int(rows[at]) if at < len(keys) and int(keys[at]) == key else -1

    def of_node(self, node: int) -> Int64:
        """Indices of a node's tensors: inputs by slot, then outputs by slot."""
        keys, rows = self._lookup
        if node < 0:
            return rows[:0]
        first, last = np.searchsorted(keys, [node << 17, (node + 1) << 17])
        return rows[int(first) : int(last)]
