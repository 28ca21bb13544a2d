"""A TensorTable over plain columns: looking up tensors without an object per tensor."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.model import Side


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
        node, side, slot, flags, order, round: see ``base.TensorTable``.
        repeated: whether any tensor was written several times.
    """

    def __init__(
        self,
        node: npt.NDArray[np.int32],
        side: npt.NDArray[np.uint8],
        slot: npt.NDArray[np.int16],
        flags: npt.NDArray[np.uint8],
        round: npt.NDArray[np.uint16] | None = None,  # noqa: A002 - see base.TensorTable
    ) -> None:
        """Takes ownership of the columns and makes them read-only; no ``round``: every tensor was written once."""
        self.node, self.side, self.slot, self.flags = node, side, slot, flags
        self.repeated = round is not None and bool(round.any())
        self.round = round if round is not None else np.zeros(len(node), np.uint16)
        self.order: npt.NDArray[np.int32] = np.arange(len(node), dtype=np.int32)
        for column in (node, side, slot, flags, self.order, self.round):
            column.flags.writeable = False

    @cached_property
    def lookup(self) -> tuple[Int64, npt.NDArray[np.int32]]:
        """The keys of the rows, ascending, and the rows in that order: rounds of one tensor by age."""
        keys = tensor_keys(self.node, self.side, self.slot)
        rows = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[rows], rows


class Columns:
    """The columns of ``base.TensorTable`` with lookups over one sorted key column.

    Rows must be sorted by ``order`` and unique by (node, side, slot, round), later rounds behind earlier ones.
    Subclasses add ``spec`` and ``recorded``.
    """

    def __init__(self, spots: Spots, timestamp: Int64) -> None:
        self.spots = spots
        self.node, self.side, self.slot = spots.node, spots.side, spots.slot
        self.flags, self.order, self.round = spots.flags, spots.order, spots.round
        self.timestamp = timestamp
        timestamp.flags.writeable = False

    def __len__(self) -> int:
        """Number of tensors."""
        return len(self.node)

    def find(self, node: int, side: Side, slot: int, round: int = 0) -> int:  # noqa: A002 - see base.TensorTable
        """Index of a tensor, or -1; round 0 is the newest one."""
        if node < 0 or not 0 <= slot < 1 << 16:
            return -1
        keys, rows = self.spots.lookup
        key = (node << 17) | (int(side) << 16) | slot
        end = int(np.searchsorted(keys, key, side="right"))
        if not end or int(keys[end - 1]) != key:
            return -1
        if not round:
            return int(rows[end - 1])
        start = int(np.searchsorted(keys, key))
        return next((int(row) for row in rows[start:end] if int(self.round[row]) == round), -1)

    def find_all(
        self, node: npt.ArrayLike, side: npt.ArrayLike, slot: npt.ArrayLike, at: npt.ArrayLike | None = None
    ) -> Int64:
        """Indices of several tensors, -1 where there is none; -1 as a node finds nothing. See ``base.TensorTable``."""
        wanted = tensor_keys(node, side, slot)
        keys, rows = self.spots.lookup
        if not len(keys):
            return np.full(len(wanted), -1, np.int64)
        if self.spots.repeated:
            return self._rounds_at(wanted, None if at is None else np.asarray(at, np.int64))
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, rows[place], np.int64(-1))

    def _rounds_at(self, wanted: Int64, at: Int64 | None) -> Int64:
        """``find_all`` where tensors were written several times."""
        keys, rows = self.spots.lookup
        start, end = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
        last = end - 1
        if at is not None:
            when = self.timestamp[rows]
            for number in np.flatnonzero(end - start > 1).tolist():
                earlier = np.searchsorted(when[start[number] : end[number]], at[number], side="right")
                last[number] = start[number] + max(int(earlier) - 1, 0)
        found: Int64 = np.where(end > start, rows[np.maximum(last, 0)], np.int64(-1))
        return found

    def of_node(self, node: int, *, every: bool = False) -> Int64:
        """Indices of a node's tensors: inputs by slot, then outputs by slot; the newest round, or every one."""
        keys, rows = self.spots.lookup
        if node < 0:
            return np.zeros(0, np.int64)
        first, last = (int(each) for each in np.searchsorted(keys, [node << 17, (node + 1) << 17]))
        if self.spots.repeated and not every:
            of = keys[first:last]
            newest: Int64 = rows[first:last][np.append(of[1:] != of[:-1], np.ones(min(len(of), 1), np.bool_))]
            return newest.astype(np.int64)
        found: Int64 = rows[first:last].astype(np.int64)
        return found
