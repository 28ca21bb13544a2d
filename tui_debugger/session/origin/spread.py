"""Where something bad went from its origin: the bad tensors that the data flow reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.edges import edges
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Hit
from tui_debugger.session.flow import Flow
from tui_debugger.session.origin.making import in_place

Mask = npt.NDArray[np.bool_]


def knows_edges(flow: Flow, row: int) -> bool:
    """Whether a graph tells what a node's values are used for."""
    return not int(flow.nodes.flags[row]) & NodeFlag.FILE_ONLY


def downstream(flow: Flow, rows: Sequence[int]) -> Mask:
    """Node rows that the values of some nodes reach within a step, the parameters that they update included."""
    graph = edges(flow.nodes)
    reached = np.zeros(len(flow.nodes), np.bool_)
    front = np.array(rows, np.int64)
    reached[front] = True
    while len(front):
        starts, counts = graph.out_ptr[front], np.diff(graph.out_ptr)[front]
        places = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        following = np.unique(graph.out_node[places])
        front = following[~reached[following]]
        reached[front] = True
    for row in np.flatnonzero(reached).tolist():
        holders = flow.holders(row)
        for slot in in_place(flow, row):
            if slot < len(holders) and holders[slot].row >= 0:
                reached[holders[slot].row] = True
    return reached


def spread_from(flow: Flow, row: int, first: Hit, hits: Sequence[Hit], count: int) -> tuple[Hit, ...]:
    """The next bad tensors after an origin, one for each node, in execution order.

    Args:
        flow: the data flow of the origin's rank.
        row: the origin's node.
        first: its first bad tensor.
        hits: the bad tensors of its step, in execution order.
        count: how many at most.

    Returns:
        Those that the graph reaches from the origin; without a graph whatever follows it.
    """
    reached = downstream(flow, [row]) if knows_edges(flow, row) else np.ones(len(flow.nodes), np.bool_)
    found: dict[int, Hit] = {}
    for hit in hits:
        if len(found) >= count:
            break
        if hit.row != row and hit.order > first.order and reached[hit.row]:
            found.setdefault(hit.row, hit)
    return tuple(found.values())
