"""Appends nodes that only file names know to a node table. Row numbers never change."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


def append_nodes(table: NodeTable, extra: Iterable[FileNode]) -> tuple[NodeTable, npt.NDArray[np.int64]]:
    """Appends nodes that only file names know; a name the table has already is left out.

    They come after the operators of the graph files (parameters and constants after all operators) in the
    order given; ``order.reorder_rows`` puts them where their timestamps belong.

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
