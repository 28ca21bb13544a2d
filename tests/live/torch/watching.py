"""The recommended watchpoints of a training, as they are sent to it."""

from __future__ import annotations

from dataclasses import replace

from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.search import select
from tui_debugger.live.graph import remote_watchpoints
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import RemoteWatchpoint
from tui_debugger.watch.recommended import recommended


def recommended_watchpoints(training: RemoteTraining) -> list[RemoteWatchpoint]:
    """Each on the nodes that it covers."""
    table = build_table([parse_graph(graph) for graph in training.graphs])
    types = [table.op_type(row) for row in range(len(table))]
    found = recommended(table.category, types, device=training.info.backend)
    pairs = [(replace(each, id=number), select(table, each.selection)) for number, each in enumerate(found, 1)]
    return remote_watchpoints(pairs, table, training.info)
