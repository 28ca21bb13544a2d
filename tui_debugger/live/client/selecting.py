"""Which nodes the watchpoints of a flight recorder cover: the same selections as in offline checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tui_debugger.analysis.conditions import Params
from tui_debugger.analysis.recommend import recommended
from tui_debugger.graph.build import build_table
from tui_debugger.graph.reader import parse_graph
from tui_debugger.graph.search import select
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import NodeSelection, Watchpoint


def flight_watchpoints(
    graphs: Sequence[bytes], watch: Sequence[tuple[str, Params, NodeSelection]] | None, device: str
) -> Iterator[tuple[Watchpoint, list[str]]]:
    """Watchpoints with the full names of the nodes that they cover.

    Args:
        graphs: serialized ``GraphProto`` messages.
        watch: conditions, parameters and selections; None: the recommended ones.
        device: ``CPU``, ``GPU`` ...: conditions that never work there are left out.
    """
    table = build_table([parse_graph(graph) for graph in graphs])
    for number, watchpoint in enumerate(_watchpoints(table, watch, device), 1):
        rows = np.flatnonzero(select(table, watchpoint.selection)).tolist()
        yield replace(watchpoint, id=number), [table.names[row] for row in rows]


def _watchpoints(
    table: NodeTable, watch: Sequence[tuple[str, Params, NodeSelection]] | None, device: str
) -> Sequence[Watchpoint]:
    if watch is not None:
        return [Watchpoint(0, condition, params, selection) for condition, params, selection in watch]
    return recommended(table.category, [table.op_type(row) for row in range(len(table))], device=device)
