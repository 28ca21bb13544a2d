"""Builds node tables from graph files, with the positions of nodes in execution order.

Positions come from execution-order files, else from timestamps. Row numbers never change: ``append_nodes`` appends,
``reorder_rows`` changes positions only.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Mask
from tui_debugger.graph.categories import categorise
from tui_debugger.graph.messages import ParsedGraph, ParsedNode
from tui_debugger.graph.stacks import parse_stack
from tui_debugger.graph.table import (
    CONSTANT,
    ITEM_TYPES,
    MONADS,
    PARAMETER,
    STRUCTURAL_TYPES,
    GraphInfo,
    NodeFlag,
    NodeTable,
    edges,
    pointers,
)
from tui_debugger.model import Frame


def execution_order(
    table: NodeTable, sequence: Sequence[range], execution_orders: Mapping[int | str, Sequence[str]]
) -> tuple[Int32, npt.NDArray[np.uint8]]:
    """Returns positions and flags: graph after graph as listed; an unlisted node follows its predecessor in the file.

    ``sequence``: operator rows of every graph in file order; ``execution_orders``: full names by graph name or root id.
    """
    place: npt.NDArray[np.int64] = np.zeros(len(table), np.int64)
    flags = table.flags.copy()
    bases: dict[int | str, int] = {}  # a root graph and its sub-graphs may share one listing
    end = 0
    for info, rows in zip(table.graphs, sequence, strict=True):
        key = _listing_key(info, execution_orders)
        base = bases.setdefault(key, end)
        listed = dict.fromkeys(execution_orders.get(key, ()))
        position = dict(zip(listed, range(base + 1, base + 1 + len(listed)), strict=True))
        part = slice(rows.start, rows.stop)
        if position:
            known = np.array([position.get(name, 0) for name in table.names[part]], np.int64)
            flags[part][known > 0] |= int(NodeFlag.LISTED)
            before = np.maximum.accumulate(np.where(known > 0, np.arange(len(known)), -1))
            place[part] = np.where(before >= 0, known[before], base)
        else:
            place[part] = np.arange(base + 1, base + 1 + len(rows))
        end = max(end, int(place[rows.stop - 1]) if len(rows) else base, base + len(position)) + 1
    # An unlisted node comes behind the listed node that it follows.
    minor = np.where(flags & int(NodeFlag.LISTED), 0, 1)
    return ranks(table, place, minor), flags


def reorder_rows(table: NodeTable, rows: npt.NDArray[np.integer[Any]], stamps: npt.NDArray[np.int64]) -> NodeTable:
    """Places nodes that no execution-order file lists by their timestamps (any unit, all of one step).

    Such a node follows the listed node of its root graph with the greatest timestamp up to its own; the earliest of
    several timestamps counts. A node without a timestamp follows the node that it followed before. Parameters stay
    behind all operators, constants last.
    """
    if not len(rows):
        return table
    never = np.iinfo(np.int64).max
    stamp: npt.NDArray[np.int64] = np.full(len(table), never)
    np.minimum.at(stamp, rows, stamps)
    stamp[stamp == never] = -1
    listed: Mask = (table.flags & int(NodeFlag.LISTED)).astype(np.bool_)
    operators = classes(table) == 0
    place = table.order.astype(np.int64).copy()
    roots = np.array([info.root_id for info in table.graphs] or [0], np.int64)[table.graph]
    for root in np.unique(roots[rows]).tolist():
        mine = (roots == root) & (stamp >= 0)
        anchors, moving = np.flatnonzero(listed & mine), np.flatnonzero(~listed & mine)
        anchors = anchors[np.argsort(stamp[anchors], kind="stable")]
        before = np.searchsorted(stamp[anchors], stamp[moving], side="right") - 1
        anchor_place = np.append(table.order[anchors], -1)[before]  # -1: before every anchor
        # Parameters and constants get place 0: within their class their timestamps decide.
        place[moving] = np.where(operators[moving], anchor_place, 0)
    minor = np.where(listed, -1, stamp)
    _follow(table, np.flatnonzero(~listed & (stamp < 0)), place, minor)
    return replace(table, order=ranks(table, place, minor))


def order_graphs(table: NodeTable, sequence: Sequence[int]) -> NodeTable:
    """Orders operators by graph (``GraphInfo.root_id`` in ``sequence``, others last), within a graph as before."""
    place = {root: number for number, root in enumerate(sequence)}
    graph = np.array([place.get(info.root_id, len(place)) for info in table.graphs] or [0], np.int64)[table.graph]
    return replace(table, order=ranks(table, graph, table.order))


def observed_order(table: NodeTable, observed: Iterable[Sequence[int]]) -> list[int]:
    """Returns all operators in graph order, but after their inputs and after operators that were seen to run before.

    ``observed`` has the rows of each run in the order seen. It overrides the graph; earlier runs override later runs.
    """
    flow, operators = edges(table), classes(table) == 0
    seen: dict[int, list[int]] = {}
    places: list[dict[int, int]] = []
    known: set[int] = set()
    for sequence in observed:
        ran = [row for row in dict.fromkeys(sequence) if operators[row]]
        places.append({row: place for place, row in enumerate(ran)})
        for before, row in pairwise(ran):
            if row not in known:
                seen.setdefault(row, []).append(before)
        known |= set(ran)

    def ran_after(source: int, row: int) -> bool:
        both = next((place for place in places if source in place and row in place), None)
        return both is not None and both[source] > both[row]

    def sources(row: int) -> list[int]:
        made_from = {*flow.in_node[flow.in_ptr[row] : flow.in_ptr[row + 1]].tolist()} - {-1}
        made_from = {source for source in made_from if operators[source] and not ran_after(source, row)}
        return sorted(made_from | {*seen.get(row, ())}, key=lambda source: int(table.order[source]), reverse=True)

    order: dict[int, None] = {}
    entered: set[int] = set()
    for start in np.argsort(table.order, kind="stable").tolist():
        waiting = [start]
        while waiting:
            row = waiting[-1]
            if row in entered:
                order.setdefault(waiting.pop())
                continue
            entered.add(row)
            waiting += [source for source in sources(row) if source not in entered]
    return [row for row in order if operators[row]]


def _follow(
    table: NodeTable, rows: npt.NDArray[np.int64], place: npt.NDArray[np.int64], minor: npt.NDArray[np.int64]
) -> None:
    """Gives rows without a timestamp the place of the row they followed, in place."""
    by_order = np.argsort(table.order, kind="stable")
    known = np.ones(len(table), np.bool_)
    known[rows] = False
    previous = np.maximum.accumulate(np.where(known[by_order], np.arange(len(table)), -1))
    at = np.flatnonzero(~known[by_order])
    source, found = by_order[previous[at]], previous[at] >= 0
    place[by_order[at]], minor[by_order[at]] = (np.where(found, each[source], -1) for each in (place, minor))


def classes(table: NodeTable) -> npt.NDArray[np.int8]:
    """Returns 0 for operators, 1 for parameters, 2 for constants: the order of these groups."""
    kinds = np.array([{PARAMETER: 1, CONSTANT: 2}.get(name, 0) for name in (*table.types, "")], np.int8)
    classes: npt.NDArray[np.int8] = kinds[table.type_id]
    return classes


def ranks(table: NodeTable, place: npt.NDArray[np.integer], minor: npt.NDArray[np.integer] | None = None) -> Int32:
    """Returns dense positions by class, place, minor place, then old position and row."""
    rows = np.arange(len(table))
    keys = (rows, table.order, np.zeros_like(rows) if minor is None else minor, place, classes(table))
    ranks: Int32 = np.empty(len(table), np.int32)
    ranks[np.lexsort(keys)] = rows
    return ranks


def graph_number(name: str) -> int:
    """Returns the number at the end of a graph's name (``kernel_graph_3``, ``kernel_graph3``), 0 without one."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits and len(digits) < 10 else 0


def directory_names(graphs: Sequence[GraphInfo]) -> dict[int, str]:
    own = (info for info in reversed(graphs) if info.is_root or graph_number(info.name) == info.root_id)
    return {info.root_id: info.name for info in own}


def _listing_key(info: GraphInfo, execution_orders: Mapping[int | str, Sequence[str]]) -> int | str:
    own = () if info.is_root else (graph_number(info.name),)
    return next((key for key in (info.name, *own, info.root_id) if key in execution_orders), info.name)


MAX_SLOTS = 32767
"""The largest slot number in an int16 column."""


def build_table(
    graphs: Sequence[ParsedGraph],
    execution_orders: Mapping[int | str, Sequence[str]] | None = None,
    roots: Container[int] | None = None,
) -> NodeTable:
    """Builds the table of one rank.

    Operators are named by their full name (a Load by scope and index), parameters by their bare name, constants by
    their key (``cst1``). A parameter or constant is displayed in the scope of its first consumer. ``roots`` are the
    graphs that training starts, if known better than from the files: in control flow each graph calls itself a root.
    """
    columns = _GrowingColumns()
    for graph in graphs:
        columns.add_graph(graph)
    table = with_roots(columns.table(), roots)
    order, flags = execution_order(table, columns.sequence, execution_orders or {})
    table = replace(table, order=order, flags=flags)
    table = replace(table, paths=_display_paths(table))
    return replace(table, category=categorise(table))


def with_roots(table: NodeTable, roots: Container[int] | None) -> NodeTable:
    if roots is None:
        return table
    numbers = [graph_number(each.name) for each in table.graphs]
    graphs = tuple(
        [
            replace(each, is_root=number == each.root_id and number in roots)
            for each, number in zip(table.graphs, numbers, strict=True)
        ]
    )
    return table if graphs == table.graphs else replace(table, graphs=graphs)


def _graph_info(graph: ParsedGraph, index: int) -> GraphInfo:
    """Follows MindInsight: a root graph's number equals its root name; a root name that is no number is 0."""
    name = graph.name or f"graph_{index}"
    number = graph_number(name)
    if not graph.root_name:  # before MindSpore 1.3: every graph is its own root
        return GraphInfo(name, number)
    root = int(graph.root_name) if graph.root_name.isdecimal() and len(graph.root_name) < 10 else 0
    return GraphInfo(name, root, number == root)


def clean_path(path: str) -> str:
    """Returns a display path without empty components, which would be nameless scopes."""
    return path if "//" not in path and path[:1] != "/" != path[-1:] else "/".join(filter(None, path.split("/")))


class _GrowingColumns:
    def __init__(self) -> None:
        self.graphs: list[GraphInfo] = []
        self.sequence: list[range] = []
        """Operator rows of every graph in file order."""
        self.names: list[str] = []
        self.types: dict[str, int] = {}
        self.graph: list[int] = []
        self.type_id: list[int] = []
        self.outputs: list[int] = []
        self.in_count: list[int] = []
        self.in_node: list[int] = []
        self.in_slot: list[int] = []
        self.stack_id: list[int] = []
        self.stacks: list[tuple[Frame, ...]] = []
        self.constants: dict[int, str] = {}
        self.constant_types: dict[int, str] = {}
        self.file_names: dict[int, str] = {}
        self.placements: dict[int, str] = {}
        self.group_ranks: dict[int, tuple[int, ...]] = {}
        self._stack_of_text: dict[str, int] = {"": -1}

    def add_graph(self, graph: ParsedGraph) -> None:
        """Appends operators in the file's order, then parameters, then constants."""
        info = _graph_info(graph, len(self.graphs))
        names = {each.name for each in self.graphs}
        self.graphs.append(replace(info, name=_unique(info.name, names)))
        first, nodes = len(self.names), graph.nodes
        self.sequence.append(range(first, first + len(nodes)))
        operators = [_operator_name(node) for node in nodes]
        others = [*(each.name for each in graph.parameters), *(each.key for each in graph.constants)]
        self.names += _all_unique([*operators, *others])
        types = self.types
        self.type_id += [types.setdefault(node.op_type, len(types)) for node in nodes]
        for kind, count in ((PARAMETER, len(graph.parameters)), (CONSTANT, len(graph.constants))):
            if count:
                self.type_id += [types.setdefault(kind, len(types))] * count
        self.outputs += [min(len(node.outputs), MAX_SLOTS) for node in nodes] + [1] * len(others)
        self.stack_id += [self._stack(node.source) for node in nodes] + [-1] * len(others)
        self.graph += [len(self.graphs) - 1] * (len(nodes) + len(others))
        self.group_ranks |= {first + at: node.ranks for at, node in enumerate(nodes) if node.ranks}
        parameters = enumerate(graph.parameters, first + len(nodes))
        self.placements |= {row: each.placement for row, each in parameters if each.placement}
        self._add_constants(graph, first + len(nodes) + len(graph.parameters))
        self._add_inputs(graph, [*(node.index for node in nodes), *others], first)

    def _stack(self, source: str) -> int:
        stack = self._stack_of_text.get(source)
        if stack is None:
            frames = parse_stack(source)
            stack = self._stack_of_text[source] = len(self.stacks) if frames else -1
            self.stacks.extend([frames] if frames else [])
        return stack

    def _add_constants(self, graph: ParsedGraph, first: int) -> None:
        for row, parameter in enumerate(graph.parameters, first - len(graph.parameters)):
            if parameter.type.dtype in MONADS:
                self.constants[row] = parameter.type.dtype
        for row, constant in enumerate(graph.constants, first):
            if constant.value is not None:
                self.constants[row] = constant.value
                self.constant_types[row] = constant.type.dtype
            if constant.full_name:
                self.file_names[row] = constant.full_name

    def _add_inputs(self, graph: ParsedGraph, keys: Sequence[str], first: int) -> None:
        """Adds direct producers; ``keys`` name this graph's rows in references, and the first of equal keys counts.

        The slot is 0 except for a node that takes one item out of a tuple.
        """
        row_of = dict(zip(reversed(keys), range(first + len(keys) - 1, first - 1, -1), strict=True))
        start = len(self.in_node)
        self.in_node += [row_of.get(name, -1) for node in graph.nodes for name in node.inputs]
        counts = [len(node.inputs) for node in graph.nodes]
        self.in_count += counts + [0] * (len(keys) - len(counts))
        slots = [0] * (len(self.in_node) - start)
        items = {name for name in self.types if name.lower() in ITEM_TYPES}
        numbers = {each.key: each.number for each in graph.constants if each.number is not None}
        at = 0
        for node, count in zip(graph.nodes, counts, strict=True):
            if count and node.op_type in items:
                slots[at] = _item(node, numbers)
            at += count
        self.in_slot += slots

    def table(self) -> NodeTable:
        """Returns the table so far: display paths are the names, nothing is ordered or categorised."""
        n = len(self.names)
        type_id = np.array(self.type_id, np.int32)
        structural = [int(NodeFlag.STRUCTURAL) * (name.lower() in STRUCTURAL_TYPES) for name in (*self.types, "")]
        return NodeTable(
            graphs=tuple(self.graphs),
            names=self.names,
            paths=self.names,
            types=tuple(self.types),
            graph=np.array(self.graph, np.int16),
            type_id=type_id,
            category=np.zeros(n, np.uint8),
            flags=np.array(structural, np.uint8)[type_id],
            order=np.full(n, -1, np.int32),
            outputs=np.array(self.outputs, np.int16),
            in_ptr=pointers(np.array(self.in_count, np.int64)),
            in_node=np.array(self.in_node, np.int32),
            in_slot=np.array(self.in_slot, np.int16),
            stack_id=np.array(self.stack_id, np.int32),
            stacks=self.stacks,
            constants=self.constants,
            constant_types=self.constant_types,
            file_names=self.file_names,
            placements=self.placements,
            group_ranks=self.group_ranks,
        )


def _all_unique(names: list[str]) -> list[str]:
    if len(set(names)) == len(names):
        return names
    taken: set[str] = set()
    return [_unique(name, taken) for name in names]


def _unique(name: str, taken: set[str]) -> str:
    """Returns the name, perhaps with a number, and remembers it."""
    chosen, number = name, 2
    while chosen in taken:
        chosen, number = f"{name}#{number}", number + 1
    taken.add(chosen)
    return chosen


def _operator_name(node: ParsedNode) -> str:
    """Follows MindInsight: a Load (and a summary operator) is named by its scope and index."""
    if node.full_name and node.op_type != "Load" and not node.full_name.endswith("[:summary-plugin]"):
        return node.full_name
    name = f"{node.op_type}-op{node.index}"
    return f"{node.scope}/{name}" if node.scope else name


def _item(node: ParsedNode, numbers: Mapping[str, int]) -> int:
    item = node.item
    if item < 0 and len(node.inputs) > 1:
        item = numbers.get(node.inputs[1], -1)
    return item if 0 <= item <= MAX_SLOTS else 0


def _display_paths(table: NodeTable) -> list[str]:
    """Returns full names of operators; parameters and constants go below their first real consumer's scope."""
    paths = list(table.names)
    if any("//" in name or name[:1] == "/" or name[-1:] == "/" for name in paths):
        paths = [clean_path(name) for name in paths]
    flow = edges(table)
    consumer_order = table.order[flow.out_node]
    for row in np.flatnonzero(classes(table) > 0).tolist():
        start, stop = int(flow.out_ptr[row]), int(flow.out_ptr[row + 1])
        if start < stop:
            first = int(flow.out_node[start + int(np.argmin(consumer_order[start:stop]))])
            scope = paths[first].rpartition("/")[0]
            paths[row] = f"{scope}/{paths[row]}" if scope else paths[row]
    return paths


class FileNode(NamedTuple):
    """A node known from file names only; ``outputs`` is the number of slots seen."""

    graph: str
    root_id: int
    name: str
    path: str
    op_type: str
    outputs: int = 1


def append_nodes(table: NodeTable, extra: Iterable[FileNode]) -> tuple[NodeTable, npt.NDArray[np.int64]]:
    """Appends nodes known from file names unless the table has the name; returns it, and the row of each ``extra``.

    They come behind the graph files' operators, parameters and constants behind all operators; see ``reorder_rows``.
    """
    graphs = list(table.graphs)
    by_name = {info.name: index for index, info in enumerate(graphs)}
    types = {name: index for index, name in enumerate(table.types)}
    taken: list[dict[str, int]] = [{} for _ in graphs]
    for row, (graph, name) in enumerate(zip(table.graph.tolist(), table.names, strict=True)):
        taken[graph].setdefault(name, row)
    names, paths = list(table.names), list(table.paths)
    rows, graph_of, type_of, outputs = array("q"), array("h"), array("i"), array("h")  # no objects that scatter memory
    for node in extra:
        graph = by_name.setdefault(node.graph, len(graphs))
        if graph == len(graphs):
            graphs.append(GraphInfo(node.graph, node.root_id, graph_number(node.graph) == node.root_id))
            taken.append({})
        row = taken[graph].setdefault(node.name, len(names))
        rows.append(row)
        if row == len(names):
            names.append(node.name)
            paths.append(clean_path(node.path) or node.name)
            graph_of.append(graph)
            type_of.append(types.setdefault(node.op_type, len(types)))
            outputs.append(min(node.outputs, MAX_SLOTS))
    if not type_of:
        return table, np.array(rows, np.int64)
    n = len(type_of)
    structural = np.array([name.lower() in STRUCTURAL_TYPES for name in types])
    flags = int(NodeFlag.FILE_ONLY) + int(NodeFlag.STRUCTURAL) * structural[np.array(type_of)]
    longer = replace(
        table,
        graphs=tuple(graphs),
        names=names,
        paths=paths,
        types=tuple(types),
        graph=np.append(table.graph, np.array(graph_of)),
        type_id=np.append(table.type_id, np.array(type_of)),
        category=np.append(table.category, np.zeros(n)).astype(np.uint8),
        flags=np.append(table.flags, flags).astype(np.uint8),
        order=np.append(table.order, np.full(n, -1)).astype(np.int32),
        outputs=np.append(table.outputs, np.array(outputs)),
        in_ptr=np.append(table.in_ptr, np.full(n, table.in_ptr[-1])).astype(np.int32),
        stack_id=np.append(table.stack_id, np.full(n, -1)).astype(np.int32),
    )
    longer = replace(longer, category=categorise(longer))
    order = ranks(longer, np.where(longer.order < 0, len(longer), longer.order))
    return replace(longer, order=order), np.array(rows, np.int64)


Rows = npt.NDArray[np.int64]


def together(tables: Mapping[int, NodeTable]) -> tuple[NodeTable, dict[int, Rows | None]]:
    """Returns one table with the nodes of all ranks, and for each rank the rows of its nodes (None: the same rows).

    A node is the same in two ranks when graph and id are equal; nodes of later ranks alone come behind the rest.
    """
    if not tables:
        msg = "there is no rank"
        raise ValueError(msg)
    _, *others = tables
    first = table = next(iter(tables.values()))
    rows: dict[int, Rows | None] = dict.fromkeys(tables)
    for rank in others:
        if not _same(first, tables[rank]):
            table, rows[rank] = append_nodes(table, _nodes(tables[rank]))
    return table, rows


def _same(one: NodeTable, other: NodeTable) -> bool:
    """Tells whether the nodes of ``other`` are the first nodes of ``one``."""
    return one is other or (
        len(other) <= len(one)
        and one.graphs == other.graphs
        and (other.names is one.names or list(other.names) == list(one.names[: len(other)]))
        and np.array_equal(one.graph[: len(other)], other.graph)
    )


def _nodes(table: NodeTable) -> list[FileNode]:
    return [
        FileNode(
            info.name, info.root_id, table.names[row], table.paths[row], table.op_type(row), int(table.outputs[row])
        )
        for row in range(len(table))
        for info in (table.graph_of(row),)
    ]
