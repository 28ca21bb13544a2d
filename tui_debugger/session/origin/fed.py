"""Bad tensors that certainly do not start it, found in columns: hardly any is left to be asked one by one.

Bad means NaN or Inf. After the first bad step most tensors of a run are bad, all of them because of what they were made
from. What is told here ``Examiner`` would say too, by the same rules; what needs a closer look (an input that its own
kernel may have written over, a weight as it was before this step) is left to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.categories import update_of
from tui_debugger.graph.edges import edges, holders
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category, Side
from tui_debugger.session.flow import Flow
from tui_debugger.session.measuring import Measurements
from tui_debugger.session.origin.making import in_place, updater_of
from tui_debugger.sources.base import TensorTable

Mask = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]


def surely_fed(  # noqa: PLR0917 - the columns of a question, and what is known of its step
    measurements: Measurements, step: int, node: Int64, side: npt.ArrayLike, slot: npt.ArrayLike, designed: Mask
) -> Mask:
    """Which tensors of a step, all of them bad, were made from something bad.

    Measures nothing: what is not known yet counts as clean.

    Args:
        measurements: of the rank.
        step: the step.
        node: rows in the node table.
        side: of the tensors of these nodes.
        slot: the same.
        designed: the rows of the step's table whose Inf was written by intent: those are not bad.
    """
    answers = np.zeros(len(node), np.bool_)
    if measurements.flow.table(step).round.any():  # a node is not bad in all of its runs: each is looked at closely
        return answers
    found = _Step(measurements, step, designed)
    sides, slots = np.asarray(side), np.asarray(slot, np.int64)
    outputs, inputs = np.flatnonzero(sides == Side.OUTPUT), np.flatnonzero(sides == Side.INPUT)
    answers[outputs] = found.outputs(node[outputs])
    answers[inputs] = found.inputs(node[inputs], slots[inputs])
    return answers


class _Step:
    """What is bad in a step, and which nodes got something bad."""

    def __init__(self, measurements: Measurements, step: int, designed: Mask) -> None:
        self._flow: Flow = measurements.flow
        self._step = step
        self._table: TensorTable = self._flow.table(step)
        self._nodes: NodeTable = self._flow.nodes
        rows = measurements.records(step).rows
        self._bad: Mask = (rows["nan"] > 0) | (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0)
        self._bad &= ~designed
        types = [update_of(name) is not None for name in (*self._nodes.types, "")]
        self._updates: Mask = np.array(types, np.bool_)[self._nodes.type_id]
        self._fed = np.zeros(len(self._nodes), np.bool_)
        self._feed_files()
        self._feed_along_edges()

    def outputs(self, node: Int64) -> Mask:
        """Outputs of nodes."""
        found: Mask = self._fed[node]
        for at in np.flatnonzero(self._nodes.are_parameters(node)).tolist():
            found[at] = self._updated_by_bad(int(node[at]))
        return found

    def _updated_by_bad(self, row: int) -> bool:
        """A parameter; at the first step of its graph it may have been bad before."""
        if not self._flow.updated(row) or self._flow.before(row, Side.OUTPUT, 0, self._step) is None:
            return False
        updater, _ = updater_of(self._flow, row)
        return updater >= 0 and bool(self._fed[updater])

    def inputs(self, node: Int64, slot: Int64) -> Mask:
        """Input files that differ from what their producers wrote, as far as that was dumped."""
        holder, made = holders(self._nodes, node, slot)
        wrote = self._table.find_all(holder, Side.OUTPUT, made)
        constant = self._nodes.category[holder] == Category.CONSTANT
        unwritten = constant | self._fed[holder]
        seen: Mask = np.where(wrote >= 0, self._bad[wrote], unwritten) & ~self._nodes.are_parameters(holder)
        return seen & (holder >= 0)

    def _feed_files(self) -> None:
        """By their own input files. One that is bad while its producer's output is not may be the node's own work."""
        table = self._table
        files = np.flatnonzero((table.side == Side.INPUT) & self._bad & (table.node >= 0))
        node, slot = table.node[files].astype(np.int64), table.slot[files].astype(np.int64)
        holder, made = holders(self._nodes, node, slot)
        wrote = table.find_all(holder, Side.OUTPUT, made)
        sure = (holder < 0) | (~self._nodes.are_parameters(holder) & ((wrote < 0) | self._bad[wrote]))
        self._feed(node[sure], slot[sure])

    def _feed_along_edges(self) -> None:
        """By outputs of this step, where the consumer has no input file of its own."""
        flow, table = edges(self._nodes), self._table
        spoilt = np.zeros(len(self._nodes), np.bool_)
        spoilt[table.node[(table.side == Side.OUTPUT) & self._bad & (table.node >= 0)]] = True
        spoilt &= ~self._nodes.are_parameters(np.arange(len(self._nodes)))
        edge = np.flatnonzero((flow.in_node >= 0) & spoilt[flow.in_node])
        consumer = np.searchsorted(flow.in_ptr, edge, side="right") - 1
        position = edge - flow.in_ptr[consumer]
        wrote = table.find_all(flow.in_node[edge], Side.OUTPUT, flow.in_slot[edge])
        sure = (wrote >= 0) & self._bad[wrote] & (table.find_all(consumer, Side.INPUT, position) < 0)
        self._feed(consumer[sure], position[sure])

    def _feed(self, node: Int64, slot: Int64) -> None:
        """Marks nodes that got something bad in a slot: not where an optimizer shows there what it has written."""
        updating = self._updates[node]
        self._fed[node[~updating]] = True
        for row, at in zip(node[updating].tolist(), slot[updating].tolist(), strict=True):
            if at not in in_place(self._flow, row):
                self._fed[row] = True
