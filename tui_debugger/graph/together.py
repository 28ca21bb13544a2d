"""The nodes of several ranks as one table: pipelines run other nodes on other ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.extend import FileNode, append_nodes
from tui_debugger.graph.table import NodeTable

Rows = npt.NDArray[np.int64]


def together(tables: Mapping[int, NodeTable]) -> tuple[NodeTable, dict[int, Rows | None]]:
    """One table with the nodes of all ranks, and for each rank the rows of its own nodes in it.

    Ranks of one program have the same nodes in the same rows, which is told by None. A node is the same in two ranks
    when its graph and its id are; what only later ranks have comes after the rest.

    Raises:
        ValueError: no table.
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
    """Whether the nodes of one table are the first nodes of the other, or both are the same."""
    return one is other or (
        len(other) <= len(one)
        and one.graphs == other.graphs
        and list(other.names) == list(one.names[: len(other)])
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
