"""Appends nodes that only file names know to a node table. Row numbers never change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tui_debugger.graph.build import MAX_SLOTS, clean_path
from tui_debugger.graph.categories import categorise
from tui_debugger.graph.edges import STRUCTURAL_TYPES
from tui_debugger.graph.order import graph_number, ranks
from tui_debugger.graph.table import GraphInfo, NodeFlag, NodeTable


class FileNode(NamedTuple):
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


def extend_table(table: NodeTable, extra: Iterable[FileNode]) -> NodeTable:
    """The table of ``append_nodes``."""
    return append_nodes(table, extra)[0]


def append_nodes(table: NodeTable, extra: Iterable[FileNode]) -> tuple[NodeTable, list[int]]:
    """Appends nodes that only file names know; a name the table has already is left out.

    They come after the operators of the graph files (parameters and constants after all operators) in the
    order given; ``reorder`` puts them where their timestamps belong.

    Returns:
        The longer table, and the row of each of ``extra`` in it.
    """
    graphs = list(table.graphs)
    by_name = {info.name: index for index, info in enumerate(graphs)}
    types = {name: index for index, name in enumerate(table.types)}
    taken: list[dict[str, int]] = [{} for _ in graphs]
    for row, (graph, name) in enumerate(zip(table.graph.tolist(), table.names, strict=True)):
        taken[graph].setdefault(name, row)
    names, paths = list(table.names), list(table.paths)
    columns: list[tuple[int, int, int]] = []
    rows: list[int] = []
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
            columns.append((graph, types.setdefault(node.op_type, len(types)), min(node.outputs, MAX_SLOTS)))
    if not columns:
        return table, rows
    added, n = np.array(columns, np.int32), len(columns)
    structural = np.array([name.lower() in STRUCTURAL_TYPES for name in types])
    flags = int(NodeFlag.FILE_ONLY) + int(NodeFlag.STRUCTURAL) * structural[added[:, 1]]
    longer = replace(
        table,
        graphs=tuple(graphs),
        names=names,
        paths=paths,
        types=tuple(types),
        graph=np.append(table.graph, added[:, 0]).astype(np.int16),
        type_id=np.append(table.type_id, added[:, 1]).astype(np.int32),
        category=np.append(table.category, np.zeros(n)).astype(np.uint8),
        flags=np.append(table.flags, flags).astype(np.uint8),
        order=np.append(table.order, np.full(n, -1)).astype(np.int32),
        outputs=np.append(table.outputs, added[:, 2]).astype(np.int16),
        in_ptr=np.append(table.in_ptr, np.full(n, table.in_ptr[-1])).astype(np.int32),
        stack_id=np.append(table.stack_id, np.full(n, -1)).astype(np.int32),
    )
    longer = replace(longer, category=categorise(longer))
    return replace(longer, order=ranks(longer, np.where(longer.order < 0, len(longer), longer.order))), rows
