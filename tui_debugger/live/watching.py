"""Watchpoints as a training understands them: nodes one by one, parameters in the order in which clients read them.

What works as a node was tried with MindSpore 2.0: the full name without the graph in front, the graph's name beside
it, and the operator's type as its kind. Scopes never hit, and a name of ``*`` makes all hits come back without names.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.table import NodeTable
from tui_debugger.live.wire import RemoteWatchpoint, TrainingInfo
from tui_debugger.model import Watchpoint
from tui_debugger.watch.condition_table import CONDITIONS, IN_A_ROW, WIRE_OPERATOR_OVERFLOW, Condition

Mask = npt.NDArray[np.bool_]


def remote_watchpoints(
    watchpoints: Iterable[tuple[Watchpoint, Mask]], nodes: NodeTable, info: TrainingInfo
) -> list[RemoteWatchpoint]:
    """Returns what a training is sent.

    Args:
        watchpoints: each with the node rows that it covers; constants and nodes that only route values are left out.
        nodes: the nodes of the training.
        info: who it is.

    Returns:
        Those that have a node there and a condition that can be judged there.
    """
    found = []
    for watchpoint, mask in watchpoints:
        condition = CONDITIONS[watchpoint.condition]
        rows = np.flatnonzero(mask & nodes.watchable).tolist() if judged(condition, info) else []
        named = [(nodes.names[row], nodes.op_type(row), nodes.graph_of(row).name) for row in rows]
        named = [each for each in named if each[0] not in ("", "*")]
        if named:
            params = wire_params(watchpoint, ours=not info.program.startswith("MindSpore "))
            found.append(RemoteWatchpoint(watchpoint.id, condition.wire, params, tuple(named)))
    return found


def judged(condition: Condition, info: TrainingInfo) -> bool:
    """Tells whether a training can judge a condition: what a device recorded is known by Ascend only."""
    return condition.wire != WIRE_OPERATOR_OVERFLOW or info.backend == "Ascend"


def wire_params(watchpoint: Watchpoint, *, ours: bool = False) -> tuple[tuple[str, float, bool], ...]:
    """(name, value, disabled) of every parameter of the condition, in the order in which clients read them.

    ``ours``: it is our own client, which also knows how many steps in a row something has to hold.

    Before 1.6 MindSpore read the first two of tensor_not_changed the other way round: the server sees to that.
    """
    condition = CONDITIONS[watchpoint.condition]
    values = {spec.name: spec.default for spec in condition.params if spec.required and spec.default is not None}
    values |= dict(watchpoint.params)
    params = [
        (spec.name, float(values[spec.name] or 0.0), False) if spec.name in values else (spec.name, 0.0, True)
        for spec in condition.params
        if spec.name != IN_A_ROW or (ours and IN_A_ROW in values)
    ]
    return tuple(params)
