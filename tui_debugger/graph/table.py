"""The nodes of one rank as columns, and the data flow between nodes that make tensors.

Nodes that only route values are skipped in the data flow.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Mask
from tui_debugger.model import PARAMETERS, Category, Frame, Side, TensorKey

T = TypeVar("T")


PARAMETER, CONSTANT = "Parameter", "Constant"
"""The types of rows that are no operators."""
ARRAY: Final = "Array"
"""The type of a row of which a file of tensors tells nothing but its name."""
MONADS: Final = frozenset({"umonad", "iomonad"})
"""Types of parameters and constants that only order execution."""
_IS_PARAMETER: Final = np.isin(np.arange(256), [int(category) for category in PARAMETERS])
"""By category."""


class NodeFlag(IntFlag):
    """Marks of a node row."""

    NONE = 0
    FILE_ONLY = 1
    """Known from file names only: there is no graph, or the node is not in it."""
    UNCERTAIN = 2
    """Names and data flow do not decide which files belong to this node."""
    STRUCTURAL = 4
    """Load, Depend, UpdateState, MakeTuple, TupleGetItem ...: never has files."""
    LISTED = 8
    """The execution-order file lists it: its position is known, not guessed."""
    INFERRED = 16
    """The inputs are inferred from equal tensors: the dump does not name them."""
    PARTIAL = 32
    """The node may read more than its recorded inputs, such as the weights of a module."""


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """One graph; ``root_id`` is the number of the graph whose directory has its files: its own, else its root's.

    ``is_root``: training starts it; other graphs are called (control flow), even if they have directories.
    """

    name: str
    root_id: int
    is_root: bool = True


@dataclass(frozen=True)
class NodeTable:
    """Columns over node rows. Append-only while ``lineage`` stays the same.

    Attributes:
        names: canonical ids, unique within a graph.
        paths: display path with ``/``: scope of the tree plus leaf.
        types: operator type names (``Parameter``, ``Constant`` included).
        category, flags: ``model.Category`` and ``NodeFlag`` values.
            order: position in execution order: graphs as they ran, operators of each by the execution-order file, ties
                and gaps by timestamp, parameters after all operators, constants last; -1 when nothing is known.
        outputs: number of output slots.
            in_ptr, in_node, in_slot: inputs in CSR form, row i has ``in_node[in_ptr[i]:in_ptr[i+1]]``, the direct
                producers (perhaps structural); -1 = unknown.
        stacks: unique stacks, each a tuple of frames, innermost first; ``stack_id`` is -1 without one.
        constants: value text by row for constants with a value in the graph; for monads the type name.
        file_names: full name in file names, if not the canonical id (``cst1`` is ``Default--data-0``).
        placements: for a parameter that is a part of a larger tensor, which part, in words.
        group_ranks: the ranks between which a node exchanges values, if the graph says so.
            lineage: one object for all tables whose row numbers mean the same nodes: a table that only grew or was
                reordered keeps it, a new table has a new one.
    """

    graphs: tuple[GraphInfo, ...]
    names: Sequence[str]
    paths: Sequence[str]
    types: tuple[str, ...]
    graph: npt.NDArray[np.int16]
    type_id: Int32
    category: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    order: Int32
    outputs: npt.NDArray[np.int16]
    in_ptr: Int32
    in_node: Int32
    in_slot: npt.NDArray[np.int16]
    stack_id: Int32
    stacks: Sequence[tuple[Frame, ...]] = ()
    constants: dict[int, str] = field(default_factory=dict)
    constant_types: dict[int, str] = field(default_factory=dict)
    file_names: dict[int, str] = field(default_factory=dict)
    placements: dict[int, str] = field(default_factory=dict)
    group_ranks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    lineage: object = field(default_factory=object, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _index(self) -> list[dict[str, int]]:
        if len(self.graphs) == 1:
            return [dict(zip(self.names, range(len(self)), strict=True))]
        index: list[dict[str, int]] = [{} for _ in self.graphs]
        for row, (graph, name) in enumerate(zip(self.graph.tolist(), self.names, strict=True)):
            index[graph][name] = row
        return index

    def find(self, name: str, graph: str | None = None) -> int:
        """Returns the row of a canonical id (in the named graph, else in the first graph that has it), or -1."""
        for index, info in enumerate(self.graphs):
            if graph is None or info.name == graph:
                row = self._index[index].get(name, -1)
                if row >= 0:
                    return row
        return -1

    def graph_of(self, row: int) -> GraphInfo:
        return self.graphs[int(self.graph[row])]

    def key(
        self,
        rank: int,
        step: int,
        row: int,
        side: Side = Side.OUTPUT,
        slot: int = 0,
        *,
        round: int = 0,  # noqa: A002 - see TensorKey
    ) -> TensorKey:
        return TensorKey(rank, self.graph_of(row).name, self.names[row], side, slot, step, round)

    def op_type(self, row: int) -> str:
        return self.types[int(self.type_id[row])]

    def orders_only(self, row: int) -> bool:
        """Tells whether a parameter or constant is a monad: it orders execution and never has a value."""
        return self.constants.get(row, "") in MONADS

    def category_of(self, row: int) -> Category:
        return Category(int(self.category[row]))

    def are_parameters(self, rows: npt.NDArray[np.integer[Any]]) -> Mask:
        found: Mask = _IS_PARAMETER[self.category[rows]]
        return found

    def inputs(self, row: int) -> list[tuple[int, int]]:
        """Returns direct (producer row, producer slot) pairs in input order; producer -1 = unknown."""
        start, stop = int(self.in_ptr[row]), int(self.in_ptr[row + 1])
        return [(int(n), int(s)) for n, s in zip(self.in_node[start:stop], self.in_slot[start:stop], strict=True)]

    def memo(self, build: Callable[[NodeTable], T]) -> T:
        """Returns ``build(self)``, computed once per table: edges, search texts and the like."""
        if build not in self._memo:
            self._memo[build] = build(self)
        result: T = self._memo[build]
        return result

    @cached_property
    def _memo(self) -> dict[object, Any]:
        return {}

    def of_lineage(self, lineage: object) -> NodeTable:
        """Returns the same table for another rank, with shared memos."""
        other = copy.copy(self)
        other.__dict__.update(lineage=lineage, _memo=self._memo)
        return other

    @cached_property
    def structural(self) -> Mask:
        """Mask over rows: nodes that only route values and never have files."""
        return (self.flags & int(NodeFlag.STRUCTURAL)).astype(np.bool_)

    @cached_property
    def watchable(self) -> Mask:
        """Mask over rows: nodes a watchpoint can cover, all but constants and structural nodes."""
        mask: Mask = (self.category != int(Category.CONSTANT)) & ~self.structural
        return mask

    @cached_property
    def beside_graph(self) -> Mask:
        """Mask over rows: nodes known from names of files only, where other nodes are in a graph."""
        mask = (self.flags & int(NodeFlag.FILE_ONLY)).astype(np.bool_)
        return mask & ~mask.all()

    def stack(self, row: int) -> tuple[Frame, ...]:
        index = int(self.stack_id[row])
        return self.stacks[index] if index >= 0 else ()


_PASS = frozenset({"load", "depend", "return"})  # pass their first input on; other inputs only order
_PACK = frozenset({"maketuple", "makelist"})
ITEM_TYPES = frozenset({"tuplegetitem", "listgetitem"})
_ORDER_ONLY = frozenset({"updatestate"})
STRUCTURAL_TYPES = _PASS | _PACK | ITEM_TYPES | _ORDER_ONLY
"""Operator types (lower-case) that route values or order and never have files."""

_MAX_HOPS = 10_000  # only a broken graph with a cycle gets there


@dataclass(frozen=True, slots=True, eq=False)
class EdgeTable:
    """Real inputs and consumers of every row in CSR form (``ptr`` has one entry more than rows).

    Attributes:
        in_ptr, in_node, in_slot: row i reads slot ``in_slot[k]`` of ``in_node[k]`` (-1: unknown) for k in
            ``in_ptr[i] .. in_ptr[i+1]``, in input order, without inputs that only order execution.
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


def edges(table: NodeTable) -> EdgeTable:
    return table.memo(_build)


def resolve(table: NodeTable, row: int, slot: int) -> tuple[int, int]:
    """Returns the real producer (row, slot) of output ``slot`` of ``row``, which may only route values.

    Row -1: the producer is unknown, or there is only order.
    """
    return table.memo(_Routes).resolve(row, slot)


def real_inputs(table: NodeTable, row: int) -> list[tuple[int, int]]:
    """Returns (producer row, producer slot) of a row's inputs in input order; -1 where the producer is unknown."""
    flow = edges(table)
    part = slice(int(flow.in_ptr[row]), int(flow.in_ptr[row + 1]))
    return list(zip(flow.in_node[part].tolist(), flow.in_slot[part].tolist(), strict=True))


def holders(table: NodeTable, nodes: npt.ArrayLike, slots: npt.ArrayLike) -> tuple[Int32, Int32]:
    """Returns ``real_inputs(table, nodes[i])[slots[i]]`` for many inputs, as columns of rows and slots.

    Row -1 (slot 0): the producer is unknown, the graph knows no such input, or ``nodes[i]`` is -1.
    """
    flow = edges(table)
    row, slot = np.asarray(nodes, np.int64), np.asarray(slots, np.int64)
    first = flow.in_ptr[row]  # for row -1 the end of all inputs
    known = (row >= 0) & (slot >= 0) & (slot < flow.in_ptr[np.where(row < 0, 0, row + 1)] - first)
    producer, made = np.full(len(row), -1, np.int32), np.zeros(len(row), np.int32)
    at = first[known] + slot[known]
    producer[known], made[known] = flow.in_node[at], flow.in_slot[at]
    made[producer < 0] = 0
    return producer, made


def real_consumers(table: NodeTable, row: int, slot: int | None = None) -> list[tuple[int, int]]:
    """Returns (consumer row, input number) of all readers of a row, or of one of its slots; by row."""
    flow = edges(table)
    part = slice(int(flow.out_ptr[row]), int(flow.out_ptr[row + 1]))
    pairs = zip(flow.out_node[part].tolist(), flow.out_position[part].tolist(), strict=True)
    return [pair for pair, made in zip(pairs, flow.out_slot[part].tolist(), strict=True) if slot in {None, made}]


_REAL, _PASSES, _PACKS, _PICKS, _ORDERS = range(5)


def _kinds(table: NodeTable) -> npt.NDArray[np.int8]:
    groups = ((_PASS, _PASSES), (_PACK, _PACKS), (ITEM_TYPES, _PICKS), (_ORDER_ONLY, _ORDERS))
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
        """Returns the sources of one direct input of a real node: one tensor, all of a tuple, or nothing but order."""
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


def _build(table: NodeTable) -> EdgeTable:
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
    return EdgeTable(
        in_ptr=in_ptr,
        in_node=node,
        in_slot=slot,
        out_ptr=pointers(np.bincount(node[known], minlength=len(table))),
        out_node=consumer[by_producer],
        out_position=position[by_producer],
        out_slot=slot[by_producer],
    )


def pointers(counts: npt.NDArray[np.int64]) -> Int32:
    """Returns CSR pointers from the number of entries per row: one entry more than rows."""
    ends: Int32 = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return ends
