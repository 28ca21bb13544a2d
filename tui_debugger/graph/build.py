"""Builds node tables from graph files.

Row numbers never change afterwards: ``append_nodes`` appends, ``reorder_rows`` changes positions only.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tui_debugger.graph.categories import categorise
from tui_debugger.graph.edges import STRUCTURAL_TYPES, edges, pointers
from tui_debugger.graph.order import classes, execution_order, graph_number
from tui_debugger.graph.reader import ParsedGraph, ParsedNode
from tui_debugger.graph.stacks import parse_stack
from tui_debugger.graph.table import CONSTANT, MONADS, PARAMETER, GraphInfo, NodeFlag, NodeTable
from tui_debugger.model import Frame

MAX_SLOTS = 32767
"""What an int16 column of slots holds."""
_ITEM_TYPES = frozenset({"tuplegetitem", "listgetitem"})


def build_table(
    graphs: Sequence[ParsedGraph],
    execution_orders: Mapping[int | str, Sequence[str]] | None = None,
    roots: Container[int] | None = None,
) -> NodeTable:
    """Builds the table of one rank.

    Operators are named by their full name (a Load by scope and index), parameters by their bare name,
    constants by their key (``cst1``). A parameter or constant is displayed in the scope of the first
    operator that uses it.

    Args:
        graphs: the rank's graphs.
        execution_orders: full names in execution order, by graph name or by root graph id.
        roots: numbers of the graphs that training starts, where that is known better than from the files: in
            control flow each graph calls itself a root.
    """
    columns = _Columns()
    for graph in graphs:
        columns.add_graph(graph)
    table = with_roots(columns.table(), roots)
    order, flags = execution_order(table, columns.sequence, execution_orders or {})
    table = replace(table, order=order, flags=flags)
    table = replace(table, paths=_display_paths(table))
    return replace(table, category=categorise(table))


def with_roots(table: NodeTable, roots: Container[int] | None) -> NodeTable:
    """The table in which only these graphs are roots; None: those that say so."""
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
    """MindInsight's rule: a root graph's number equals its root name; a root name that is no number is 0."""
    name = graph.name or f"graph_{index}"
    number = graph_number(name)
    if not graph.root_name:  # before MindSpore 1.3: every graph is its own root
        return GraphInfo(name, number)
    root = int(graph.root_name) if graph.root_name.isdecimal() and len(graph.root_name) < 10 else 0
    return GraphInfo(name, root, number == root)


def clean_path(path: str) -> str:
    """A display path without empty components, which would be nameless scopes."""
    return path if "//" not in path and path[:1] != "/" != path[-1:] else "/".join(filter(None, path.split("/")))


class _Columns:
    """The columns while they grow."""

    def __init__(self) -> None:
        self.graphs: list[GraphInfo] = []
        self.sequence: list[range] = []
        """Operator rows of every graph in the order of its file."""
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
        """Direct producers, ``keys`` are what nodes refer to the rows of this graph by, of equal ones to the first.

        The slot is 0 but for a node that takes one item out of a tuple.
        """
        row_of = dict(zip(reversed(keys), range(first + len(keys) - 1, first - 1, -1), strict=True))
        start = len(self.in_node)
        self.in_node += [row_of.get(name, -1) for node in graph.nodes for name in node.inputs]
        counts = [len(node.inputs) for node in graph.nodes]
        self.in_count += counts + [0] * (len(keys) - len(counts))
        slots = [0] * (len(self.in_node) - start)
        items = {name for name in self.types if name.lower() in _ITEM_TYPES}
        numbers = {each.key: each.number for each in graph.constants if each.number is not None}
        at = 0
        for node, count in zip(graph.nodes, counts, strict=True):
            if count and node.op_type in items:
                slots[at] = _item(node, numbers)
            at += count
        self.in_slot += slots

    def table(self) -> NodeTable:
        """The table so far: display paths are still the names, nothing is ordered or categorised."""
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
    """The names, with a number behind those that a broken file gives twice."""
    if len(set(names)) == len(names):
        return names
    taken: set[str] = set()
    return [_unique(name, taken) for name in names]


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


def _item(node: ParsedNode, numbers: Mapping[str, int]) -> int:
    """Which item of a tuple a node takes."""
    item = node.item
    if item < 0 and len(node.inputs) > 1:
        item = numbers.get(node.inputs[1], -1)
    return item if 0 <= item <= MAX_SLOTS else 0


def _display_paths(table: NodeTable) -> list[str]:
    """Operators: their full name. Parameters and constants: below their first real consumer's scope."""
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
