"""Parameters that several graphs of a rank use: they are one weight, and often only one graph updates it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.categories import update_of
from tui_debugger.graph.edges import real_inputs
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import TRAINABLE

Mask = npt.NDArray[np.bool_]


def plain_name(name: str) -> str:
    """The name of a parameter without the mark that a graph called by another one sets before it."""
    return name.removeprefix("▸")


def same_parameter(nodes: NodeTable, row: int) -> list[int]:
    """The rows that are the same parameter in other graphs of the rank, in the order of the graphs."""
    return [each for each in nodes.memo(_rows_by_name).get(plain_name(nodes.names[row]), []) if each != row]


def updated_elsewhere(nodes: NodeTable) -> Mask:
    """The rows of weights that no operator of their own graph updates, but one of another graph of the rank does."""
    return nodes.memo(_updated_elsewhere)


def _rows_by_name(nodes: NodeTable) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in np.flatnonzero(nodes.are_parameters(np.arange(len(nodes)))).tolist():
        found.setdefault(plain_name(nodes.names[row]), []).append(row)
    return found


def _updated_elsewhere(nodes: NodeTable) -> Mask:
    found = np.zeros(len(nodes), np.bool_)
    if len(nodes.graphs) < 2:
        return found
    updated = _updated(nodes)
    names = {plain_name(nodes.names[row]) for row in updated}
    trainable = np.isin(nodes.category, [int(each) for each in TRAINABLE])
    for row in np.flatnonzero(trainable).tolist():
        found[row] = row not in updated and plain_name(nodes.names[row]) in names
    return found


def _updated(nodes: NodeTable) -> set[int]:
    """The parameters that an optimizer's operator updates."""
    updates = [update_of(name) for name in nodes.types]
    kinds = np.array([update is not None for update in updates] + [False], np.bool_)
    found: set[int] = set()
    for row in np.flatnonzero(kinds[nodes.type_id]).tolist():
        update, inputs = updates[int(nodes.type_id[row])], real_inputs(nodes, row)
        if update is not None:
            starts = range(0, len(inputs), update.stride) if update.stride else (0,)
            slots = [start + update.weight for start in starts]
            found.update(inputs[slot][0] for slot in slots if slot < len(inputs))
    found.discard(-1)
    return found
