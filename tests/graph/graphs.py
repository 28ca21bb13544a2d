"""Tables of the real dumps, and small graphs written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import (
    ParsedConstant,
    ParsedGraph,
    ParsedNode,
    ParsedParameter,
    SlotType,
    message_class,
    read_graph,
)
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.mindspore.order_files import read_order

DUMPS = ("mindspore-2.0-mlp", "mindspore-2.0-nan", "mindspore-2.10-mlp", "mindspore-2.10-nan")
OLD_DUMPS = DUMPS[:2]
"""Those the old tool could read."""

FLOAT = SlotType("float32", (2,))


def graph_file(root: Path) -> Path:
    """The graph file of a dump."""
    return root / "rank_0" / "graphs" / "ms_output_trace_code_graph_0.pb"


def listing(root: Path) -> list[str]:
    """The execution order of a dump."""
    path = root / "rank_0" / "execution_order" / "ms_execution_order_graph_0.csv"
    return list(read_order(path).names)


def real_table(dumps: Callable[[str], Path], name: str) -> NodeTable:
    """Node table of a real dump."""
    return build_table([read_graph(graph_file(dumps(name)))], {0: listing(dumps(name))})


def op(
    index: int,
    full_name: str,
    inputs: Sequence[str] = (),
    *,
    outputs: int = 1,
    source: str = "",
    item: int = -1,
    op_type: str = "",
) -> ParsedNode:
    """An operator; its type is taken from its name (``a/MatMul-op1``)."""
    scope, _, leaf = full_name.rpartition("/")
    kind = op_type or leaf.rpartition("-op")[0]
    return ParsedNode(str(index), full_name, kind, scope, tuple(inputs), (FLOAT,) * outputs, source, item)


def graph(
    nodes: Sequence[ParsedNode],
    parameters: Sequence[str] = (),
    constants: Sequence[ParsedConstant] = (),
    *,
    name: str = "kernel_graph_0",
    root: str = "0",
) -> ParsedGraph:
    """A graph."""
    return ParsedGraph(
        name, root, tuple(nodes), tuple(ParsedParameter(each, FLOAT) for each in parameters), tuple(constants)
    )


def number(key: str, value: int) -> ParsedConstant:
    """An integer constant."""
    return ParsedConstant(key, f"Default--data-{key}", SlotType("int64", ()), str(value), value)


def model() -> Any:
    """An empty graph file message, to be filled and serialized."""
    built = message_class("ModelProto")()
    built.graph.name = b"kernel_graph_0"
    return built


def row(table: NodeTable, leaf: str) -> int:
    """The only row whose canonical id ends with a text."""
    rows = [i for i, name in enumerate(table.names) if name.endswith(leaf)]
    assert len(rows) == 1, (leaf, rows)
    return rows[0]
