"""Which nodes the watchpoints of a flight recorder cover: the same selections as in offline checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.search import select
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import NodeSelection, Watchpoint
from tui_debugger.watch.conditions import Params
from tui_debugger.watch.recommended import recommended


def table_of(graphs: Sequence[bytes]) -> NodeTable:
    """The nodes of graphs, each a serialized ``GraphProto`` message."""
    return build_table([parse_graph(graph) for graph in graphs])


def flight_watchpoints(
    table: NodeTable,
    watch: Sequence[tuple[str, Params, NodeSelection]],
    device: str,
    *,
    with_recommended: bool,
) -> Iterator[tuple[Watchpoint, list[str]]]:
    """Watchpoints with the full names of the nodes that they cover.

    Args:
        table: the nodes.
        watch: conditions, parameters and selections.
        device: ``CPU``, ``GPU`` ...: recommended conditions that never work there are left out.
        with_recommended: the recommended ones as well.
    """
    wanted = [Watchpoint(0, condition, params, selection) for condition, params, selection in watch]
    if with_recommended:
        wanted += recommended(table.category, [table.op_type(row) for row in range(len(table))], device=device)
    for number, watchpoint in enumerate(wanted, 1):
        rows = np.flatnonzero(select(table, watchpoint.selection)).tolist()
        yield replace(watchpoint, id=number), [table.names[row] for row in rows]
