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


class Spots:
    """Where the tensors of a table are: all about its rows that the steps of a run can share.

    Attributes:
        node, side, slot, flags, order: see ``base.TensorTable``.
    """

    def __init__(
        self,
        node: npt.NDArray[np.int32],
        side: npt.NDArray[np.uint8],
        slot: npt.NDArray[np.int16],
        flags: npt.NDArray[np.uint8],
    ) -> None:
        """Takes ownership of the columns and makes them read-only."""
        self.node, self.side, self.slot, self.flags = node, side, slot, flags
        self.order: npt.NDArray[np.int32] = np.arange(len(node), dtype=np.int32)
        for column in (node, side, slot, flags, self.order):
            column.flags.writeable = False

    @cached_property
    def lookup(self) -> tuple[Int64, npt.NDArray[np.int32]]:
        """The keys of the rows, ascending, and the rows in that order."""
        keys = tensor_keys(self.node, self.side, self.slot)
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[rows], rows


class Columns:
    """The columns of ``base.TensorTable`` with lookups over one sorted key column.

    Rows must be sorted by ``order`` and unique by (node, side, slot). Subclasses add ``spec`` and ``recorded``.
    """

    def __init__(self, spots: Spots, timestamp: Int64) -> None:
        """Takes ownership of the column and makes it read-only."""
        self.spots = spots
        self.node, self.side, self.slot = spots.node, spots.side, spots.slot
        self.flags, self.order = spots.flags, spots.order
        self.timestamp = timestamp
        timestamp.flags.writeable = False

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.node)

    def find(self, node: int, side: Side, slot: int) -> int:
        """Index of a tensor, or -1."""
        if node < 0 or not 0 <= slot < 1 << 16:
            return -1
        keys, rows = self.spots.lookup
        key = (node << 17) | (int(side) << 16) | slot
        at = int(np.searchsorted(keys, key))
        return int(rows[at]) if at < len(keys) and int(keys[at]) == key else -1

    def find_all(self, node: npt.ArrayLike, side: npt.ArrayLike, slot: npt.ArrayLike) -> Int64:
        """Indices of several tensors, -1 where there is none; -1 as a node finds nothing."""
        wanted = tensor_keys(node, side, slot)
        keys, rows = self.spots.lookup
        if not len(keys):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, rows[at], np.int64(-1))

    def of_node(self, node: int) -> Int64:
        """Indices of a node's tensors: inputs by slot, then outputs by slot."""
        keys, rows = self.spots.lookup
        if node < 0:
            return np.zeros(0, np.int64)
        first, last = np.searchsorted(keys, [node << 17, (node + 1) << 17])
        return rows[int(first) : int(last)].astype(np.int64)
