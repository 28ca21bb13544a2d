"""Data flow between the nodes that make tensors, with the nodes that only route values skipped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32
from tui_debugger.graph.table import NodeTable

STRUCTURAL_TYPES = frozenset(
    {
        *("load", "depend", "updatestate"),
        *("maketuple", "tuplegetitem", "makelist", "listgetitem", "return"),
    }
)
"""Operator types (lower-case) that route values or order and never have files."""

_PASS = frozenset({"load", "depend", "return"})  # hand on their first input; the others only order
_PACK = frozenset({"maketuple", "makelist"})
_ITEM = frozenset({"tuplegetitem", "listgetitem"})
_ORDER_ONLY = frozenset({"updatestate"})

_MAX_HOPS = 10_000  # only a broken graph with a cycle gets there


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Real inputs and consumers of every row in CSR form (``ptr`` has one entry more than rows).

    Attributes:
        in_ptr, in_node, in_slot: row i is fed by slot ``in_slot[k]`` of ``in_node[k]`` (-1: unknown) for k in
            ``in_ptr[i] .. in_ptr[i+1]``, in input order. Inputs that only order execution are left out.
        out_ptr, out_node, out_position, out_slot: row i's output slot ``out_slot[k]`` is input number
            ``out_position[k]`` of ``out_node[k]``, sorted by consumer row.
    """

    in_ptr: Int32
    in_node: Int32
    in_slot: Int32
    out_ptr: Int32
    out_node: Int32
    out_position: Int32
    out_slot: Int32


def edges(table: NodeTable) -> Edges:
    """The data flow of a table; computed once."""
    return table.memo(_build)


def resolve(table: NodeTable, row: int, slot: int) -> tuple[int, int]:
    """The node that really made what ``slot`` of ``row`` holds: itself unless the row only routes values.

    Returns:
        (row, slot); row -1 when the value comes from nowhere known or only orders execution.
    """
    return table.memo(_Routes).resolve(row, slot)


def real_inputs(table: NodeTable, row: int) -> list[tuple[int, int]]:
    """(producer row, producer slot) of a row's inputs in input order; -1 where the producer is unknown."""
    flow = edges(table)
    part = slice(int(flow.in_ptr[row]), int(flow.in_ptr[row + 1]))
    return list(zip(flow.in_node[part].tolist(), flow.in_slot[part].tolist(), strict=True))


def holders(table: NodeTable, nodes: npt.ArrayLike, slots: npt.ArrayLike) -> tuple[Int32, Int32]:
    """Returns what feeds many inputs at once: ``real_inputs(table, nodes[i])[slots[i]]`` as two columns.

    Returns:
        Producer rows and their slots; row -1 (slot 0) where the producer is unknown, the node has no such input as
        far as the graph knows, or ``nodes[i]`` is -1.
    """
    flow = edges(table)
    row, slot = np.asarray(nodes, np.int64), np.asarray(slots, np.int64)
    first = flow.in_ptr[row]  # of row -1 the end of all
    known = (row >= 0) & (slot >= 0) & (slot < flow.in_ptr[np.where(row < 0, 0, row + 1)] - first)
    producer, made = np.full(len(row), -1, np.int32), np.zeros(len(row), np.int32)
    at = first[known] + slot[known]
    producer[known], made[known] = flow.in_node[at], flow.in_slot[at]
    made[producer < 0] = 0
    return producer, made


def real_consumers(table: NodeTable, row: int, slot: int | None = None) -> list[tuple[int, int]]:
    """(consumer row, input number there) of everything that reads a row, or one of its slots; by row."""
    flow = edges(table)
    part = slice(int(flow.out_ptr[row]), int(flow.out_ptr[row + 1]))
    pairs = zip(flow.out_node[part].tolist(), flow.out_position[part].tolist(), strict=True)
    return [pair for pair, made in zip(pairs, flow.out_slot[part].tolist(), strict=True) if slot in {None, made}]


_REAL, _PASSES, _PACKS, _PICKS, _ORDERS = range(5)


def _kinds(table: NodeTable) -> npt.NDArray[np.int8]:
    """Returns what every row does with what it is fed."""
    groups = ((_PASS, _PASSES), (_PACK, _PACKS), (_ITEM, _PICKS), (_ORDER_ONLY, _ORDERS))
    by_type = [next((kind for group, kind in groups if name.lower() in group), _REAL) for name in (*table.types, "")]
    kinds: npt.NDArray[np.int8] = np.array(by_type, np.int8)[table.type_id]
    return kinds


class _Routes:
    """The direct inputs as plain lists (ten times faster to follow one by one than arrays)."""

    __slots__ = ("kinds", "node", "ptr", "slot")

    def __init__(self, table: NodeTable) -> None:
        self.kinds: list[int] = _kinds(table).tolist()
        self.ptr: list[int] = table.in_ptr.tolist()
        self.node: list[int] = table.in_node.tolist()
        self.slot: list[int] = table.in_slot.tolist()

    def resolve(self, row: int, slot: int) -> tuple[int, int]:
        """See the function of this name."""
        for _ in range(_MAX_HOPS):
            if row < 0 or self.kinds[row] == _REAL:
                return row, slot
            kind, first = self.kinds[row], self.ptr[row]
            count = self.ptr[row + 1] - first
            if kind == _PASSES and count:
                row = self.node[first]
            elif kind == _PICKS and count:
                row, slot = self.node[first], self.slot[first]
            elif kind == _PACKS and 0 <= slot < count:
                row, slot = self.node[first + slot], 0
            else:
                break
        return -1, 0

    def sources(self, row: int, slot: int) -> list[tuple[int, int]]:
        """Returns what one direct input of a real node brings in: one tensor, all of a tuple, or nothing but order."""
        for _ in range(_MAX_HOPS):
            if row < 0 or self.kinds[row] != _PASSES or self.ptr[row] == self.ptr[row + 1]:
                break
            row = self.node[self.ptr[row]]
        if row >= 0 and self.kinds[row] == _ORDERS:
            return []
        if row < 0 or self.kinds[row] != _PACKS:
            return [self.resolve(row, slot)]
        found: list[tuple[int, int]] = []
        pending = [row]
        for _ in range(_MAX_HOPS):
            if not pending:
                break
            row = pending.pop()
            if row >= 0 and self.kinds[row] == _PACKS:
                pending.extend(reversed(self.node[self.ptr[row] : self.ptr[row + 1]]))
            else:
                found.append(self.resolve(row, 0))
        return found


def _build(table: NodeTable) -> Edges:
    kinds = _kinds(table)
    consumer = np.repeat(np.arange(len(table), dtype=np.int32), np.diff(table.in_ptr))
    entries = np.flatnonzero(kinds[consumer] == _REAL)
    consumer, node, slot = consumer[entries], table.in_node[entries], table.in_slot[entries].astype(np.int32)
    routed = np.flatnonzero((node >= 0) & (kinds[node] != _REAL))
    if len(routed):
        follow = table.memo(_Routes).sources
        pairs = zip(node[routed].tolist(), slot[routed].tolist(), strict=True)
        found = [follow(producer, made) for producer, made in pairs]
        counts = np.ones(len(node), np.int64)
        counts[routed] = [len(sources) for sources in found]
        made = np.array([pair for sources in found for pair in sources], np.int32).reshape(-1, 2)
        placed = np.zeros(len(node), np.bool_)
        placed[routed] = True
        placed = np.repeat(placed, counts)
        consumer, node, slot = (np.repeat(column, counts) for column in (consumer, node, slot))
        node[placed], slot[placed] = made[:, 0], made[:, 1]
    in_ptr = pointers(np.bincount(consumer, minlength=len(table)))
    position = np.arange(len(node), dtype=np.int32) - in_ptr[consumer]
    known = np.flatnonzero(node >= 0)
    by_producer = known[np.argsort(node[known], kind="stable")]
    return Edges(
        in_ptr=in_ptr,
        in_node=node,
        in_slot=slot,
        out_ptr=pointers(np.bincount(node[known], minlength=len(table))),
        out_node=consumer[by_producer],
        out_position=position[by_producer],
        out_slot=slot[by_producer],
    )


def pointers(counts: npt.NDArray[np.int64]) -> Int32:
    """CSR pointers from the number of entries per row: one entry more than rows."""
    ends: Int32 = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return ends
