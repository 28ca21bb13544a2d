"""Writes tables, texts and graphs: .csv with all digits of its numbers, .txt, and the workbook of MindInsight."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tui_debugger.arrays import Mask
from tui_debugger.graph.messages import ParsedConstant, ParsedGraph, ParsedNode, ParsedParameter, SlotType
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable, edges, real_consumers, real_inputs
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.session.export_files import fresh_file, fresh_text
from tui_debugger.session.session import Session
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import Row, document_of_rows
from tui_debugger.text.rows import frame_row
from tui_debugger.text.spreadsheets import CsvTable, Workbook, require_openpyxl

_ROWS = 4096
"""Rows between two calls of ``progress``, which may cancel."""


def write_table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    path: Path,
    dump: Path,
    progress: ProgressFn = no_progress,
) -> Path:
    """Writes a table as .csv; numbers read back exactly, and ``cell_text`` keeps names from running as formulas."""
    with fresh_text(path, dump) as file:
        table = CsvTable(file)
        table.row(header)
        for start in range(0, len(rows), _ROWS):
            progress(Progress(start, len(rows), "writing"))
            stop = min(start + _ROWS, len(rows))
            table.rows(rows[i] for i in range(start, stop))
    return path.expanduser()


def write_text(lines: Iterable[str], path: Path, dump: Path) -> Path:
    """Writes lines of text, cleaned of control characters."""
    with fresh_text(path, dump) as file:
        file.writelines(f"{clean(line)}\n" for line in lines)
    return path.expanduser()


NONE = "-"
"""Stands for a type or shape that is not known, as in the old workbook."""
_NUMBER = re.compile(r"-op(\d+)$")
_TUPLE = SlotType("tuple", None)

NODE_COLUMNS = (
    *("rank", "graph", "node", "path", "type", "category", "order"),
    *("inputs", "outputs", "consumers", "value", "attributes", "stack"),
)


class GraphFacts:
    """The facts in the graph files of one rank beyond the node table, by node row.

    Element types, shapes and attributes are read from the graph files again, because only an export needs them.
    """

    def __init__(self, nodes: NodeTable, graphs: Sequence[ParsedGraph]) -> None:
        """``nodes`` lists the files' nodes first: operators, parameters, constants of graph after graph."""
        parsed: list[ParsedNode | ParsedParameter | ParsedConstant] = []
        for graph in graphs:
            parsed += [*graph.nodes, *graph.parameters, *graph.constants]
        fits = len(parsed) <= len(nodes) and all(
            nodes.op_type(row) == _type_of(each) for row, each in enumerate(parsed)
        )
        self._parsed = parsed if fits else []  # the files were replaced since the table was made

    def outputs(self, row: int) -> tuple[SlotType, ...]:
        """Type and shape of every output slot; empty when unknown."""
        each = self._parsed[row] if row < len(self._parsed) else None
        if each is None:
            return ()
        return each.outputs if isinstance(each, ParsedNode) else (each.type,)

    def operator(self, row: int) -> ParsedNode | None:
        """The operator of a row; None for other nodes and for nodes that no graph file lists."""
        each = self._parsed[row] if row < len(self._parsed) else None
        return each if isinstance(each, ParsedNode) else None


def _type_of(each: ParsedNode | ParsedParameter | ParsedConstant) -> str:
    if isinstance(each, ParsedNode):
        return each.op_type
    return PARAMETER if isinstance(each, ParsedParameter) else CONSTANT


@dataclass(frozen=True)
class ExportedGraph:
    """The graph of one rank, ready to be written; ``rows`` are the node rows to write, in the order of the files."""

    rank: int
    nodes: NodeTable
    facts: GraphFacts
    rows: tuple[int, ...]

    def of_type(self, *types: str, others: bool = False) -> list[int]:
        """The rows of these types, or of all other types."""
        return [row for row in self.rows if (self.nodes.op_type(row) in types) != others]

    @property
    def operators(self) -> list[int]:
        return self.of_type(PARAMETER, CONSTANT, others=True)

    @cached_property
    def _repeated(self) -> frozenset[tuple[int, str]]:
        found = Counter((int(self.nodes.graph[row]), self._short_label(row)) for row in range(len(self.nodes)))
        return frozenset(label for label, count in found.items() if count > 1)

    def label(self, row: int) -> str:
        """``MatMul_101``: type and number of an operator; its full name where several operators have that number.

        MindSpore 2.7 and newer restart the numbers in every scope.
        """
        label = self._short_label(row)
        return self._long_label(row) if (int(self.nodes.graph[row]), label) in self._repeated else label

    def _short_label(self, row: int) -> str:
        kind, name = self.nodes.op_type(row), self.nodes.names[row]
        if kind in {PARAMETER, CONSTANT}:
            return name
        operator = self.facts.operator(row)
        if kind == "Load" and operator is not None:
            return f"Load_{operator.index}"
        number = _NUMBER.search(name)
        return f"{kind}_{number[1] if number else name}"

    def _long_label(self, row: int) -> str:
        kind, name = self.nodes.op_type(row), self.nodes.names[row]
        return name if kind in {PARAMETER, CONSTANT} else f"{kind}_{name}"

    @cached_property
    def _readers(self) -> tuple[list[int], list[int]]:
        """Consumers grouped by producer: the start of each producer's group, and the consumer rows."""
        nodes = self.nodes
        consumer = np.repeat(np.arange(len(nodes)), np.diff(nodes.in_ptr))
        known = nodes.in_node >= 0
        by_producer = np.argsort(nodes.in_node[known], kind="stable")
        starts = np.searchsorted(nodes.in_node[known][by_producer], np.arange(len(nodes) + 1))
        return starts.tolist(), consumer[known][by_producer].tolist()

    def readers(self, row: int) -> list[int]:
        """Rows of the nodes that take ``row`` as a direct input, once per input; they may only route values."""
        starts, consumers = self._readers
        return consumers[starts[row] : starts[row + 1]]

    def slot_type(self, row: int) -> SlotType:
        """Type and shape of a node's output; a tuple type when it has several outputs."""
        outputs = self.facts.outputs(row) if row >= 0 else ()
        if len(outputs) > 1:
            return _TUPLE
        return outputs[0] if outputs and outputs[0].dtype != "undefined" else SlotType(NONE, None)


def near(nodes: NodeTable, rows: Iterable[int], hops: int) -> Mask:
    """Returns a mask of the rows at most ``hops`` edges downstream or upstream of ``rows``."""
    flow = edges(nodes)
    consumer = np.repeat(np.arange(len(nodes)), np.diff(flow.in_ptr))
    known = flow.in_node >= 0
    source, target = flow.in_node[known], consumer[known]
    sides = []
    for start, end in ((source, target), (target, source)):
        mask = np.zeros(len(nodes), np.bool_)
        mask[list(rows)] = True
        for _ in range(hops):
            mask[end[mask[start]]] = True
        sides.append(mask)
    found: Mask = sides[0] | sides[1]
    return found


@dataclass(frozen=True)
class GraphPart:
    """The wanted nodes of a graph, among the nodes in the session's scope.

    Attributes:
        scope: one or several consecutive scope names in the path of a node; empty for all.
        around: the central node row by rank; only these ranks are wanted. None for all nodes.
        hops: the largest distance from the central node.
    """

    scope: str = ""
    around: Mapping[int, int] | None = None
    hops: int = 2

    def ranks(self, ranks: Iterable[int]) -> list[int]:
        return [rank for rank in ranks if self.around is None or rank in self.around]

    def mask(self, session: Session, rank: int) -> Mask:
        nodes = session.nodes(rank)
        mask: Mask = session.in_scope(rank)[: len(nodes)].copy()
        if self.scope:
            wanted = f"/{self.scope.strip('/')}/"
            inside = (wanted in f"/{path.rpartition('/')[0]}/" for path in nodes.paths)
            mask &= np.fromiter(inside, np.bool_, len(nodes))
        if self.around is not None:
            mask &= near(nodes, [self.around[rank]], self.hops)
        return mask


EVERYTHING = GraphPart()


def rank_graphs(session: Session, ranks: Iterable[int], part: GraphPart = EVERYTHING) -> Iterator[ExportedGraph]:
    for rank in part.ranks(ranks):
        nodes = session.nodes(rank)
        facts = GraphFacts(nodes, session.source.graphs(rank))
        yield ExportedGraph(rank, nodes, facts, tuple(np.flatnonzero(part.mask(session, rank)).tolist()))


def node_rows(graph: ExportedGraph) -> Iterator[Row]:
    """Yields one row per node in execution order, with the keys ``NODE_COLUMNS``."""
    nodes = graph.nodes
    for row in sorted(graph.rows, key=lambda row: int(nodes.order[row])):
        operator = graph.facts.operator(row)
        yield {
            "rank": graph.rank,
            "graph": nodes.graph_of(row).name,
            "node": nodes.names[row],
            "path": nodes.paths[row],
            "type": nodes.op_type(row),
            "category": nodes.category_of(row).name.lower(),
            "order": int(nodes.order[row]),
            "inputs": [f"{nodes.names[node]}:{slot}" if node >= 0 else None for node, slot in real_inputs(nodes, row)],
            "outputs": [
                {"dtype": slot.dtype, "shape": None if slot.shape is None else list(slot.shape)}
                for slot in graph.facts.outputs(row)
            ],
            "consumers": [f"{nodes.names[node]}:{slot}" for node, slot in real_consumers(nodes, row)],
            "value": nodes.constants.get(row),
            "attributes": dict(operator.attributes) if operator is not None else {},
            "stack": [frame_row(frame) for frame in nodes.stack(row)],
        }


def flat_node_row(row: Row) -> list[object]:
    """A row of ``node_rows`` for a .csv: lists and attributes as one text."""
    slots = (f"{slot['dtype']}{'' if slot['shape'] is None else slot['shape']}" for slot in row["outputs"])
    texts = {
        "inputs": "; ".join(name or NONE for name in row["inputs"]),
        "outputs": "; ".join(slots),
        "consumers": "; ".join(row["consumers"]),
        "attributes": "; ".join(f"{name}={value}" for name, value in row["attributes"].items()),
        "stack": "\n".join(f"{frame['file']}:{frame['line']} {frame['code']}" for frame in row["stack"]),
    }
    return [texts.get(column, row[column]) for column in NODE_COLUMNS]


@dataclass(frozen=True)
class Sheet:
    """One sheet of the workbook; ``columns`` holds title and width in characters."""

    name: str
    columns: tuple[tuple[str, int], ...]
    rows: Callable[[ExportedGraph], Iterable[Sequence[object]]]


def fill_sheets(graphs: Iterable[ExportedGraph], dump: str, append: Callable[[Sheet, Sequence[object]], None]) -> int:
    """Hands every row to ``append`` and returns the number of nodes; one graph at a time is in memory."""
    number = 0
    counts = Counter[str]()
    append(INFO, ("dump-dir", os.path.realpath(dump)))
    for graph in graphs:
        for sheet in SHEETS:
            for cells in sheet.rows(graph):
                append(sheet, cells)
        number += len(graph.rows)
        counts.update(graph.nodes.op_type(row) for row in graph.operators)
    for kind, count in sorted(counts.items()):
        append(STATISTICS, (kind, count))
    return number


def _where(graph: ExportedGraph, row: int) -> tuple[object, ...]:
    return graph.rank, graph.nodes.graph_of(row).name


def _constants(graph: ExportedGraph) -> Iterator[Sequence[object]]:
    for row in graph.of_type(CONSTANT):
        value = graph.nodes.constants.get(row, "TENSOR")
        yield (graph.nodes.names[row], value, _lines(map(graph.label, graph.readers(row))), *_where(graph, row))


def _parameters(graph: ExportedGraph) -> Iterator[Sequence[object]]:
    for row in graph.of_type(PARAMETER):
        slot = graph.slot_type(row)
        downstream = _lines(map(graph.label, graph.readers(row)))
        yield (graph.nodes.names[row], slot.dtype, _shape(slot), downstream, *_where(graph, row))


def _operators(graph: ExportedGraph) -> Iterator[Sequence[object]]:
    nodes = graph.nodes
    for row in graph.operators:
        operator = graph.facts.operator(row)
        inputs = nodes.inputs(row)
        names = [graph.label(node) if node >= 0 else NONE for node, _ in inputs]
        if operator is not None and len(operator.inputs) == len(names):
            names = [
                name if node >= 0 else own for name, own, (node, _) in zip(names, operator.inputs, inputs, strict=True)
            ]
        taken = [graph.slot_type(node) for node, _ in inputs]
        made = graph.facts.outputs(row)
        yield (
            graph.label(row),
            _lines(names),
            _lines(slot.dtype for slot in taken),
            _lines(map(_shape, taken)),
            _lines(slot.dtype for slot in made),
            _lines(map(_shape, made)),
            _lines(map(graph.label, graph.readers(row))),
            operator.index if operator is not None else "",
            _attributes(operator),
            nodes.names[row],
            *_where(graph, row),
            _stack(graph, row),
        )


def _attributes(operator: ParsedNode | None) -> str:
    pairs = operator.attributes if operator is not None else ()
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in pairs) + "}"


def _sources(graph: ExportedGraph) -> Iterator[Sequence[object]]:
    by_stack: dict[int, list[int]] = {}
    for row in graph.operators:
        if int(graph.nodes.stack_id[row]) >= 0:
            by_stack.setdefault(int(graph.nodes.stack_id[row]), []).append(row)
    for rows in by_stack.values():
        for row in rows:
            yield (_stack(graph, row), graph.label(row), graph.nodes.names[row], *_where(graph, row))


def _stack(graph: ExportedGraph, row: int) -> str:
    return _lines(f"{frame.path}:{frame.line}\n{frame.code}" for frame in graph.nodes.stack(row))


def _shape(slot: SlotType) -> str:
    return NONE if slot.shape is None else str(slot.shape)


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts)


def _nothing(_: ExportedGraph) -> Iterable[Sequence[object]]:
    return ()


_WHERE = (("rank_id", 20), ("graph_name", 30))
_OPERATOR_COLUMNS = (
    *(("operator", 30), ("input", 30), ("input_dtype", 20), ("input_shape", 25), ("output_dtype", 20)),
    *(("output_shape", 25), ("downstream", 30), ("name", 10), ("attrs", 30), ("full_name", 20), *_WHERE),
    ("stack", 150),
)
_PARAMETER_COLUMNS = (("name", 50), ("output_dtype", 20), ("output_shape", 25), ("downstream", 30), *_WHERE)
INFO = Sheet("info", (("argument", 20), ("value", 150)), _nothing)
OPERATOR = Sheet("operator", _OPERATOR_COLUMNS, _operators)
STATISTICS = Sheet("statistics", (("operator", 30), ("count", 20)), _nothing)
SHEETS = (
    INFO,
    Sheet("constant", (("name", 10), ("value", 30), ("downstream", 30), *_WHERE), _constants),
    Sheet("parameter", _PARAMETER_COLUMNS, _parameters),
    OPERATOR,
    STATISTICS,
    Sheet("source", (("stack", 150), ("operator", 30), ("full_name", 20), *_WHERE), _sources),
)
"""The sheets that MindInsight's ``export_graphs`` writes, in its order and with its column names."""


def write_workbook(graphs: Iterable[ExportedGraph], path: Path, dump: Path, *, force: bool = False) -> int:
    """Writes ``SHEETS`` as .xlsx and returns the number of nodes; TdbgError also when openpyxl is missing."""
    require_openpyxl(path, "choose a name that ends with .csv or .json")
    with fresh_file(path, dump, force=force, what="the workbook") as file:
        book = Workbook(
            {sheet.name: [title for title, _ in sheet.columns] for sheet in SHEETS},
            {sheet.name: [width for _, width in sheet.columns] for sheet in SHEETS},
        )
        number = fill_sheets(graphs, str(dump), lambda sheet, row: book.append(sheet.name, row))
        book.save(file)
    return number


def write_sheets_csv(graphs: Iterable[ExportedGraph], stem: Path, dump: Path) -> Path:
    """Writes every sheet as ``STEM_operator.csv`` and so on, without openpyxl; returns the operators' file."""
    paths = {sheet.name: stem.with_name(f"{stem.name}_{sheet.name}.csv") for sheet in SHEETS}
    with ExitStack() as stack:
        tables = {}
        for sheet in SHEETS:
            tables[sheet.name] = CsvTable(stack.enter_context(fresh_text(paths[sheet.name], dump)))
            tables[sheet.name].row(title for title, _ in sheet.columns)
        fill_sheets(graphs, str(dump), lambda sheet, row: tables[sheet.name].row(row))
    return paths[OPERATOR.name]


def write_nodes_csv(graphs: Iterable[ExportedGraph], path: Path, dump: Path, *, force: bool = False) -> int:
    """Writes one row per node and returns the number of nodes."""
    number = 0
    with fresh_text(path, dump, force=force) as file:
        table = CsvTable(file)
        table.row(NODE_COLUMNS)
        for row in (row for graph in graphs for row in node_rows(graph)):
            table.row(flat_node_row(row))
            number += 1
    return number


_AROUND = 2
"""Pieces of a document that are no rows: its head and its tail."""


def write_nodes_json(graphs: Iterable[ExportedGraph], path: Path, dump: Path, *, force: bool = False) -> int:
    """Writes ``{"path": DUMP, "nodes": [...]}`` and returns the number of nodes."""
    number = 0
    with fresh_text(path, dump, force=force) as file:
        rows = (row for graph in graphs for row in node_rows(graph))
        for piece in document_of_rows({"path": str(dump)}, "nodes", rows):
            file.write(piece)
            number += 1
    return number - _AROUND
