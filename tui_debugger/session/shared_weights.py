"""Weights that several root graphs of a rank use: one weight in memory, a parameter of its own in every graph.

A graph that trains and one that evaluates, or a generator and the discriminator whose weights it reads: what one of
them leaves in a weight is what the next run of any of them starts with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import in_place_slots
from tui_debugger.graph.edges import real_consumers, real_inputs
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import TRAINABLE, Category
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.npy import TensorFile, open_array

_ARGUMENT: Final = "▸"
"""Marks a parameter of a sub graph that stands for one of its caller."""
_MOST_BYTES: Final = 1 << 24
"""Larger tensors are not read only to find out whether two names mean one weight."""
_CHANGED: Final = TRAINABLE | {Category.OPTIMIZER_STATE}


class SharedWeights:
    """Which parameters of different root graphs may be one weight that some graph updates.

    Attributes:
        groups: the rows of the same name, by row; parameters without such a partner are left out.
        updated: rows that an optimizer of their own graph updates.
        likely: rows whose names differ by a prefix such as that of an optimizer: only equal values make them one.
        proven: (rank, row, row): whether two of a group are one weight, as far as that was found out.
    """

    def __init__(self, nodes: NodeTable) -> None:
        """Looks at names and edges only."""
        self.groups: dict[int, tuple[int, ...]] = {}
        self.updated: set[int] = set()
        self.likely: set[int] = set()
        self.proven: dict[tuple[int, int, int], bool] = {}
        roots = [info.root_id for info in nodes.graphs]
        if len(set(roots)) < 2:
            return
        named = defaultdict[str, list[int]](list)
        for row in np.flatnonzero(nodes.are_parameters(np.arange(len(nodes)))).tolist():
            named[nodes.names[row].removeprefix(_ARGUMENT)].append(row)
        for rows in named.values():
            self._add(nodes, rows)
        for name, rows in named.items():
            partners = named.get(name.partition(".")[2], ())
            both = [row for row in (*rows, *partners) if row not in self.groups]
            if partners and len({nodes.category_of(row) for row in both}) == 1 and self._add(nodes, both):
                self.likely.update(both)

    def _add(self, nodes: NodeTable, rows: Sequence[int]) -> bool:
        if len({nodes.graph_of(row).root_id for row in rows}) < 2:
            return False
        if not any(nodes.category_of(row) in _CHANGED for row in rows):
            return False  # a graph input such as the data: every graph has its own
        updated = {row for row in rows if _is_updated(nodes, row)}
        if updated:
            self.updated |= updated
            self.groups.update(dict.fromkeys(rows, tuple(rows)))
        return bool(updated)


def _is_updated(nodes: NodeTable, row: int) -> bool:
    """Whether an update operator of its graph writes a parameter."""
    return any(
        slot in in_place_slots(nodes.op_type(node), len(real_inputs(nodes, node)))
        for node, slot in real_consumers(nodes, row)
    )


def may_be_one(one: tuple[TensorTable, int], other: tuple[TensorTable, int], *, equal: bool) -> bool:
    """Whether two files may be of one weight: the same type and shape, and where ``equal`` is asked the same values.

    What cannot be read disproves nothing.
    """
    metas = [_meta(*place) for place in (one, other)]
    if metas[0] is None or metas[1] is None:
        return True
    if metas[0] != metas[1]:
        return False
    if not equal or any(int(table.flags[at]) & TensorFlag.STAT_ONLY for table, at in (one, other)):
        return True
    try:
        values = [open_array(table.spec(at)) for table, at in (one, other)]
    except (TdbgError, OSError, ValueError):
        return True
    if values[0].nbytes > _MOST_BYTES:
        return True
    return values[0].tobytes() == values[1].tobytes()


def _meta(table: TensorTable, index: int) -> tuple[str, tuple[int, ...]] | None:
    if int(table.flags[index]) & TensorFlag.STAT_ONLY:
        return table.recorded_meta(index)
    try:
        with TensorFile(table.spec(index)) as file:
            return file.layout.meta.dtype, file.layout.meta.shape
    except (TdbgError, OSError, ValueError):
        return None
