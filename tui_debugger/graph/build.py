"""Builds node tables from graph files and file names.

Row numbers never change afterwards: ``extend_table`` appends, ``reorder`` changes positions only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.categories import categorise
from tui_debugger.graph.edges import STRUCTURAL_TYPES, edges, pointers
from tui_debugger.graph.reader import ParsedGraph, ParsedNode
from tui_debugger.graph.stacks import parse_stack
from tui_debugger.graph.table import CONSTANT, PARAMETER, Bool, GraphInfo, Int32, NodeFlag, NodeTable
from tui_debugger.model import Category, Frame

_MAX_SLOTS = 32767  # what an int16 column holds
_ITEM_TYPES = frozenset({"tuplegetitem", "listgetitem"})


@dataclass(frozen=True, slots=True)
class FileNode:
    """A node that only file names know.

    Attributes:
        graph: graph name.
        root_id: id of its root graph.
        name: canonical id, unique within the graph.
        path: display path.
        op_type: operator type; ``Parameter`` and ``Constant`` for those.
        outputs: number of output slots seen.
    """

    graph: str
    root_id: int
    name: str
    path: str
    op_type: str
    outputs: int = 1


def build_table(
    graphs: Sequence[ParsedGraph], execution_orders: Mapping[int | str, Sequence[str]] | None = None
) -> NodeTable:
    """Builds the table of one rank.

    Operators are named by their full name (a Load by scope and index), parameters by their bare name,
    constants by their key (``cst1``). A parameter or constant is displayed in the scope of the first
    operator that uses it.

    Args:
        graphs: the rank's graphs.
        execution_orders: full names in execution order, by graph name or by root graph id.
    """
    columns = _Columns()
    for graph in graphs:
        columns.add_graph(graph)
    table = columns.table()
    order, flags = _execution_order(table, columns.sequence, execution_orders or {})
    table = replace(table, order=order, flags=flags)
    table = replace(table, paths=_display_paths(table))
    return replace(table, category=categorise(table))


def extend_table(table: NodeTable, extra: Sequence[FileNode]) -> NodeTable:
    """Appends nodes that only file names know; a name the table has already is left out.

    They come after the operators of the graph files (parameters and constants after all operators) in the
    order given; ``reorder`` puts them where their timestamps belong.
    """
    graphs = list(table.graphs)
    by_name = {info.name: index for index, info in enumerate(graphs)}
    types = {name: index for index, name in enumerate(table.types)}
    taken: set[tuple[str, str]] = {(graphs[g].name, n) for g, n in zip(table.graph.tolist(), table.names, strict=True)}
    added: list[FileNode] = []
    for node in extra:
        if (node.graph, node.name) in taken:
            continue
        taken.add((node.graph, node.name))
        added.append(node)
        types.setdefault(node.op_type, len(types))
        if node.graph not in by_name:
            by_name[node.graph] = len(graphs)
            graphs.append(GraphInfo(node.graph, node.root_id, graph_number(node.graph) == node.root_id))
    if not added:
        return table
    n = len(added)
    longer = replace(
        table,
        graphs=tuple(graphs),
        names=[*table.names, *(node.name for node in added)],
        paths=[*table.paths, *(_clean(node.path) or node.name for node in added)],
        types=tuple(types),
        graph=np.append(table.graph, [by_name[node.graph] for node in added]).astype(np.int16),
        type_id=np.append(table.type_id, [types[node.op_type] for node in added]).astype(np.int32),
        category=np.append(table.category, np.zeros(n)).astype(np.uint8),
        flags=np.append(table.flags, [_file_flags(node) for node in added]).astype(np.uint8),
        order=np.append(table.order, np.full(n, -1)).astype(np.int32),
        outputs=np.append(table.outputs, [min(node.outputs, _MAX_SLOTS) for node in added]).astype(np.int16),
        in_ptr=np.append(table.in_ptr, np.full(n, table.in_ptr[-1])).astype(np.int32),
        stack_id=np.append(table.stack_id, np.full(n, -1)).astype(np.int32),
    )
    longer = replace(longer, category=categorise(longer))
    return replace(longer, order=_ranks(longer, np.where(longer.order < 0, len(longer), longer.order)))


def reorder(table: NodeTable, timestamps: Mapping[int, int]) -> NodeTable:
    """Puts nodes whose position no execution-order file tells where their timestamps belong.

    Args:
        table: the table.
        timestamps: by row, in any unit; all of one step. Such a node comes right after the listed one
            with the greatest timestamp up to its own. Nodes without a timestamp follow the node they
            followed before. Parameters stay after all operators, constants last.
    """
    if not timestamps:
        return table
    n = len(table)
    stamp: npt.NDArray[np.int64] = np.full(n, -1, np.int64)
    rows = np.fromiter(timestamps, np.int64, len(timestamps))
    stamp[rows] = np.fromiter(timestamps.values(), np.int64, len(timestamps))
    listed: Bool = (table.flags & int(NodeFlag.LISTED)).astype(np.bool_)
    operators = _classes(table) == 0
    anchors = np.flatnonzero(listed & (stamp >= 0))
    anchors = anchors[np.argsort(stamp[anchors], kind="stable")]
    moving = np.flatnonzero(~listed & (stamp >= 0))
    before = np.searchsorted(stamp[anchors], stamp[moving], side="right") - 1
    place = table.order.astype(np.int64).copy()
    anchor_place = np.append(table.order[anchors], -1)[before]  # -1: before every anchor
    # Operators without anchors of their own graph's kind keep their graph's block only when files say so.
    place[moving] = np.where(operators[moving], anchor_place, 0)
    minor = np.where(listed, -1, stamp)
    _follow(table, np.flatnonzero(~listed & (stamp < 0)), place, minor)
    return replace(table, order=_ranks(table, place, minor))


def _follow(
    table: NodeTable, rows: npt.NDArray[np.int64], place: npt.NDArray[np.int64], minor: npt.NDArray[np.int64]
) -> None:
    """Gives rows without a timestamp the place of the row they followed, in place."""
    by_order = np.argsort(table.order, kind="stable")
    known = np.ones(len(table), np.bool_)
    known[rows] = False
    position = np.arange(len(table))
    previous = np.maximum.accumulate(np.where(known[by_order], position, -1))
    for at in np.flatnonzero(~known[by_order]).tolist():
        row = by_order[at]
        source = by_order[previous[at]] if previous[at] >= 0 else -1
        place[row], minor[row] = (place[source], minor[source]) if source >= 0 else (-1, -1)


def _classes(table: NodeTable) -> npt.NDArray[np.int8]:
    """0 operators, 1 parameters, 2 constants: they come in this order."""
    kinds = np.array([{PARAMETER: 1, CONSTANT: 2}.get(name, 0) for name in (*table.types, "")], np.int8)
    classes: npt.NDArray[np.int8] = kinds[table.type_id]
    return classes


def _ranks(table: NodeTable, place: npt.NDArray[np.integer], minor: npt.NDArray[np.integer] | None = None) -> Int32:
    """Dense positions from a sort by class, place, minor place, then the positions and rows they had."""
    rows = np.arange(len(table))
    keys = (rows, table.order, np.zeros_like(rows) if minor is None else minor, place, _classes(table))
    ranks: Int32 = np.empty(len(table), np.int32)
    ranks[np.lexsort(keys)] = rows
    return ranks


def graph_number(name: str) -> int:
    """The number a graph's name ends with (``kernel_graph_3``, ``kernel_graph3``), 0 when there is none."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits and len(digits) < 10 else 0


def _graph_info(graph: ParsedGraph, index: int) -> GraphInfo:
    """MindInsight's rule: a root graph's number equals its root name; a root name that is no number is 0."""
    name = graph.name or f"graph_{index}"
    number = graph_number(name)
    if not graph.root_name:  # before MindSpore 1.3: every graph is its own root
        return GraphInfo(name, number)
    root = int(graph.root_name) if graph.root_name.isdecimal() and len(graph.root_name) < 10 else 0
    return GraphInfo(name, root, number == root)


def _clean(path: str) -> str:
    """A display path without empty components, which would be nameless scopes."""
    return path if "//" not in path and path[:1] != "/" != path[-1:] else "/".join(filter(None, path.split("/")))


def _file_flags(node: FileNode) -> int:
    structural = node.op_type.lower() in STRUCTURAL_TYPES
    return int(NodeFlag.FILE_ONLY | (NodeFlag.STRUCTURAL if structural else NodeFlag.NONE))


class _Columns:
    """The columns while they grow."""

    def __init__(self) -> None:
        self.graphs: list[GraphInfo] = []
        self.sequence: list[list[int]] = []
        """Operator rows of every graph in the order of its file."""
        self.names: list[str] = []
        self.types: dict[str, int] = {}
        self.graph: list[int] = []
        self.type_id: list[int] = []
        self.category: list[int] = []
        self.flags: list[int] = []
        self.outputs: list[int] = []
        self.inputs: list[list[tuple[int, int]]] = []
        self.stack_id: list[int] = []
        self.stacks: list[tuple[Frame, ...]] = []
        self.constants: dict[int, str] = {}
        self.file_names: dict[int, str] = {}
        self._stack_of_text: dict[str, int] = {"": -1}

    def add_graph(self, graph: ParsedGraph) -> None:
        """Appends operators in the file's order, then parameters, then constants."""
        info = _graph_info(graph, len(self.graphs))
        names = {each.name for each in self.graphs}
        self.graphs.append(replace(info, name=_unique(info.name, names)))
        taken: set[str] = set()
        row_of: dict[str, int] = {}
        number_of: dict[str, int] = {}
        first = len(self.names)
        for node in graph.nodes:
            row_of.setdefault(node.index, len(self.names))
            self._add(_unique(_operator_name(node), taken), node.op_type, len(node.outputs), node.source)
        self.sequence.append(list(range(first, len(self.names))))
        for parameter in graph.parameters:
            row_of.setdefault(parameter.name, len(self.names))
            self._add(_unique(parameter.name, taken), PARAMETER)
        for constant in graph.constants:
            row_of.setdefault(constant.key, len(self.names))
            if constant.value is not None:
                self.constants[len(self.names)] = constant.value
            if constant.number is not None:
                number_of[constant.key] = constant.number
            if constant.full_name:
                self.file_names[len(self.names)] = constant.full_name
            self._add(_unique(constant.key, taken), CONSTANT, category=Category.CONSTANT)
        for row, node in enumerate(graph.nodes, first):
            self.inputs[row] = _inputs(node, row_of, number_of)

    def _add(
        self, name: str, op_type: str, outputs: int = 1, source: str = "", category: Category = Category.OTHER
    ) -> None:
        self.names.append(name)
        self.graph.append(len(self.graphs) - 1)
        self.type_id.append(self.types.setdefault(op_type, len(self.types)))
        self.category.append(int(category))
        structural = op_type.lower() in STRUCTURAL_TYPES
        self.flags.append(int(NodeFlag.STRUCTURAL if structural else NodeFlag.NONE))
        self.outputs.append(min(outputs, _MAX_SLOTS))
        self.inputs.append([])
        stack = self._stack_of_text.get(source)
        if stack is None:
            frames = parse_stack(source)
            stack = len(self.stacks) if frames else -1
            self._stack_of_text[source] = stack
            self.stacks.extend([frames] if frames else [])
        self.stack_id.append(stack)

    def table(self) -> NodeTable:
        """The table so far: display paths are still the names, nothing is ordered."""
        flat = [pair for inputs in self.inputs for pair in inputs]
        return NodeTable(
            graphs=tuple(self.graphs),
            names=self.names,
            paths=self.names,
            types=tuple(self.types),
            graph=np.array(self.graph, np.int16),
            type_id=np.array(self.type_id, np.int32),
            category=np.array(self.category, np.uint8),
            flags=np.array(self.flags, np.uint8),
            order=np.full(len(self.names), -1, np.int32),
            outputs=np.array(self.outputs, np.int16),
            in_ptr=pointers(np.array([len(inputs) for inputs in self.inputs], np.int64)),
            in_node=np.array([node for node, _ in flat], np.int32),
            in_slot=np.array([slot for _, slot in flat], np.int16),
            stack_id=np.array(self.stack_id, np.int32),
            stacks=self.stacks,
            constants=self.constants,
            file_names=self.file_names,
        )


def _unique(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it when a broken file names two nodes alike; remembers it."""
    chosen, number = name, 2
    while chosen in taken:
        chosen, number = f"{name}#{number}", number + 1
    taken.add(chosen)
    return chosen


def _operator_name(node: ParsedNode) -> str:
    """MindInsight's naming: a Load (and a summary operator) is named by its scope and index instead."""
    if node.full_name and node.op_type != "Load" and not node.full_name.endswith("[:summary-plugin]"):
        return node.full_name
    name = f"{node.op_type}-op{node.index}"
    return f"{node.scope}/{name}" if node.scope else name


def _inputs(node: ParsedNode, row_of: Mapping[str, int], number_of: Mapping[str, int]) -> list[tuple[int, int]]:
    """Direct producers. The slot is 0 but for a node that takes one item out of a tuple."""
    inputs = [(row_of.get(name, -1), 0) for name in node.inputs]
    if inputs and node.op_type.lower() in _ITEM_TYPES:
        item = node.item
        if item < 0 and len(node.inputs) > 1:
            item = number_of.get(node.inputs[1], -1)
        inputs[0] = (inputs[0][0], item if 0 <= item <= _MAX_SLOTS else 0)
    return inputs


def _execution_order(
    table: NodeTable, sequence: Sequence[Sequence[int]], execution_orders: Mapping[int | str, Sequence[str]]
) -> tuple[Int32, npt.NDArray[np.uint8]]:
    """Positions and flags: graph after graph as listed; what is not listed follows its predecessor in the file."""
    place: npt.NDArray[np.int64] = np.zeros(len(table), np.int64)
    flags = table.flags.copy()
    bases: dict[int | str, int] = {}  # a root graph and its sub-graphs may share one listing
    end = 0
    for info, rows in zip(table.graphs, sequence, strict=True):
        key = _listing_key(info, execution_orders)
        base = bases.setdefault(key, end)
        position: dict[str, int] = {}
        for name in execution_orders.get(key, ()):
            position.setdefault(name, base + len(position) + 1)
        last = base
        for row in rows:
            known = position.get(table.names[row])
            if known is not None:
                flags[row] |= int(NodeFlag.LISTED)
                last = known
            elif not position:
                last += 1
            place[row] = last
        end = max(end, last, base + len(position)) + 1
    minor = np.where(flags & int(NodeFlag.LISTED), 0, 1)  # what follows a listed node comes behind it
    return _ranks(table, place, minor), flags


def _listing_key(info: GraphInfo, execution_orders: Mapping[int | str, Sequence[str]]) -> int | str:
    """Which listing holds a graph's nodes: one of its own, else its root's; its name when there is none."""
    own = () if info.is_root else (graph_number(info.name),)
    return next((key for key in (info.name, *own, info.root_id) if key in execution_orders), info.name)


def _display_paths(table: NodeTable) -> list[str]:
    """Operators: their full name. Parameters and constants: below their first real consumer's scope."""
    paths = [_clean(name) for name in table.names]
    flow = edges(table)
    consumer_order = table.order[flow.out_node]
    for row in np.flatnonzero(_classes(table) > 0).tolist():
        start, stop = int(flow.out_ptr[row]), int(flow.out_ptr[row + 1])
        if start < stop:
            first = int(flow.out_node[start + int(np.argmin(consumer_order[start:stop]))])
            scope = paths[first].rpartition("/")[0]
            paths[row] = f"{scope}/{paths[row]}" if scope else paths[row]
    return paths
