"""Finds what a tensor was made from, and by which node: by these sources something bad starts there, or does not.

Bad tensors that certainly do not start it, found in columns: hardly any is left to be asked one by one.

Bad means NaN or Inf. After the first bad step most tensors of a run are bad, all of them because of what they were made
from. What is told here ``Examiner`` would say too, by the same rules; what needs a closer look (an input that its own
kernel may have written over, a weight as it was before this step) is left to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.flow import Flow, Holder, Located
from tui_debugger.check.measure import Measurements
from tui_debugger.graph.categories import assigned, in_place_slots, is_collective, is_receiving, update_of
from tui_debugger.graph.table import NodeFlag, NodeTable, edges, holders
from tui_debugger.model import PARAMETERS, Category, Hit, Side
from tui_debugger.sources.base import TensorTable
from tui_debugger.stats.records import holds_bad


class Start(Enum):
    """The way in which something bad starts at a tensor, or the reason why it does not."""

    MADE = "made"
    """A node made it from clean inputs."""
    UNSEEN = "unseen"
    """The same, but the node's output was not dumped: it was seen in the input of a consumer."""
    CHANGED = "changed"
    """An input file is bad although its producer's output is clean."""
    SOURCE = "source"
    """Nothing in this run makes it: a graph input such as the data, or an operator without inputs."""
    UPDATED = "updated"
    """A parameter after its update, though what the update was made from is clean."""
    BEFORE = "before"
    """A parameter that was bad already before the first dumped step."""
    CONSTANT = "constant"
    """Not here: it comes from a constant of the graph, such as the -Inf of a mask."""
    DESIGNED = "by_design"
    """Not here: an operator was told to write this Inf. What became of it may be where it starts."""
    TAINTED = "fed"
    """Not here: something that it was made from is bad."""
    UNKNOWN = "unknown"
    """Not judged: not everything that it was made from is known."""

    @classmethod
    def origins(cls) -> frozenset[Start]:
        """The kinds that mean: it starts here."""
        return _ORIGINS


_ORIGINS = frozenset({Start.MADE, Start.UNSEEN, Start.CHANGED, Start.SOURCE, Start.UPDATED, Start.BEFORE})


@dataclass(frozen=True, slots=True)
class ValueSource:
    """One tensor that another one was made from.

    Attributes:
        node: the node that it is an input of, or that updates the parameter; for a parameter itself its own row.
        slot: input (or output) slot at the node.
        side: ``Side.OUTPUT`` for an output of the node that updates a parameter.
        at: where its value stands; None when it was not dumped.
        held: where the value of before the node ran stands, for an input that may have been written over.
        own: ``at`` is the node's own input file.
        constant: the value of a graph constant.
        stated: the graph itself says what that is.
        unclaimed: it is not known what it holds: it may be an operator's attribute.
        initial: the value that a parameter had before the first dumped step.
        after: ``at`` shows the parameter after its update: where that is clean, the value of before was it, too, for
            nothing that an optimizer does takes a NaN away.
    """

    node: int
    slot: int
    side: Side
    at: Located | None
    held: Located | None = None
    own: bool = False
    constant: bool = False
    stated: bool = False
    unclaimed: bool = False
    initial: bool = False
    after: bool = False


@dataclass(frozen=True, slots=True)
class Provenance:
    """The way in which a tensor came to be.

    Attributes:
        row: the node to be named: what made it, or where it was changed.
        node: the node whose inputs ``sources`` are; -1 when they are no node's inputs.
        start: what it is when no source is bad.
        sources: what it was made from, by slot.
        parameter: row of the parameter whose value it is, or -1.
        before: the one of ``sources`` that is the parameter's own value of before.
        round: the run within the step whose inputs and outputs are meant, as in ``TensorKey``.
        other: row of the node that has to be named beside ``row``, or -1: the producer of an input that was changed,
            the consumer that saw an output that was not dumped, the node that updates a parameter.
        exchanged: other ranks may have had a part in it.
    """

    row: int
    node: int
    start: Start
    sources: tuple[ValueSource, ...] = ()
    parameter: int = -1
    before: ValueSource | None = None
    other: int = -1
    round: int = 0
    exchanged: bool = False


_OF_TWO: Final = frozenset(
    {
        *("Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "FloorDiv", "FloorMod", "DivNoNan", "Xdivy", "Xlogy"),
        *("Pow", "Maximum", "Minimum", "Atan2", "SquaredDifference"),
        *("MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2", "BiasAdd", "Conv2D", "Conv3D"),
        *("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "TanhGrad", "SigmoidGrad", "ReluGrad", "ReluGradV2", "GeLUGrad"),
    }
)
"""MindSpore's operators of two inputs or more: where no graph tells, the one that was not dumped is missing."""


class Provenances:
    """Finds out how the tensors of one step came to be."""

    def __init__(self, measurements: Measurements, step: int) -> None:
        self.measurements = measurements
        self.flow: Flow = measurements.flow
        self.step = step
        self.table = self.flow.table(step)
        self._inputs: dict[tuple[int, int], tuple[ValueSource, ...]] = {}
        self._outputs: dict[tuple[int, int], tuple[Located, ...]] = {}
        self._round = 0

    def of(self, hit: Hit) -> Provenance:
        """Tells how the tensor of a hit was made."""
        self._round = hit.key.round
        return replace(self._of(hit), round=self._round)

    def _of(self, hit: Hit) -> Provenance:
        if hit.key.side is Side.INPUT:
            return self._of_input(hit.row, hit.key.slot)
        if self._is_parameter(hit.row):
            return self._of_parameter(hit.row)
        return self._of_operator(hit.row)

    def outputs(self, row: int, round: int) -> tuple[Located, ...]:  # noqa: A002 - see TensorKey
        """The dumped outputs of a node in a run."""
        found = self._outputs.get((row, round))
        if found is None:
            slots = self.flow.slots(self.step, row, Side.OUTPUT, round) if row >= 0 else ()
            found = tuple(self.flow.located(self.step, row, Side.OUTPUT, slot, round) for slot in slots)
            self._outputs[row, round] = found
        return found

    def _of_operator(self, row: int, seen_by: int = -1) -> Provenance:
        sources = self.inputs(row)
        start = Start.MADE if seen_by < 0 else Start.UNSEEN
        if not sources:
            in_graph = not int(self.flow.nodes.flags[row]) & NodeFlag.FILE_ONLY
            start = Start.SOURCE if in_graph else Start.UNKNOWN
        kind = self.flow.nodes.op_type(row)
        return Provenance(row, row, start, sources, other=seen_by, exchanged=is_collective(kind) or is_receiving(kind))

    def _of_input(self, row: int, slot: int) -> Provenance:
        """An input file that is no copy of what its producer wrote."""
        holder, flow = self.flow.holder(row, slot), self.flow
        if holder.row < 0:
            return Provenance(row, -1, Start.UNKNOWN)
        if self._is_parameter(holder.row) and flow.updated(holder.row):
            return self._of_parameter_input(row, slot, holder)
        wrote = flow.locate_held(self.step, holder, self._round, row)
        if wrote is not None and self._readable(wrote):
            source = ValueSource(row, slot, Side.INPUT, wrote, constant=flow.is_constant(holder.row))
            return Provenance(row, -1, Start.CHANGED, (source,), other=holder.row)
        if flow.is_constant(holder.row):
            return Provenance(holder.row, -1, Start.CONSTANT, other=row)
        if self._is_parameter(holder.row):
            return Provenance(holder.row, -1, Start.SOURCE, parameter=holder.row, other=row)
        return self._of_operator(holder.row, seen_by=row)

    def _of_parameter_input(self, row: int, slot: int, holder: Holder) -> Provenance:
        if slot in in_place(self.flow, row):
            return self._of_parameter(holder.row)
        if self._starts(holder.row):
            return Provenance(holder.row, -1, Start.BEFORE, parameter=holder.row, other=row)
        now = self.flow.located(self.step, holder.row, Side.OUTPUT, holder.slot, self._round)
        places = (self.flow.locate_held(self.step, holder, self._round), now if now.index >= 0 else None)
        # A consumer that runs after the optimizer reads the new value: only a value that is neither was changed.
        sources = tuple(ValueSource(row, slot, Side.INPUT, at) for at in places)
        if not all(places):
            return Provenance(holder.row, -1, Start.UNKNOWN, sources, holder.row, other=row)
        return Provenance(row, -1, Start.CHANGED, sources, holder.row, other=holder.row)

    def _of_parameter(self, row: int) -> Provenance:
        if self._written(row):
            before = self._before(row, row, 0)
            return Provenance(row, -1, Start.SOURCE, () if before is None else (before,), row, before)
        if not self.flow.updated(row):
            return Provenance(row, -1, Start.SOURCE, parameter=row)
        updater, slot = updater_of(self.flow, row)
        if updater < 0:
            before = self._before(row, row, 0)
            return Provenance(row, -1, Start.UNKNOWN, () if before is None else (before,), row, before)
        sources = (
            *self.inputs(updater),
            *(ValueSource(updater, at.slot, at.side, at) for at in self.outputs(updater, self._round)),
        )
        return Provenance(row, updater, Start.UPDATED, sources, row, self._before(row, updater, slot), updater)

    def inputs(self, row: int) -> tuple[ValueSource, ...]:
        """The inputs of a node by slot, those that were not dumped included."""
        found = self._inputs.get((row, self._round))
        if found is None:
            holders = self.flow.holders(row)
            slots = set(self.flow.slots(self.step, row, Side.INPUT, self._round))
            slots |= {slot for slot, held in enumerate(holders) if not self.flow.nodes.orders_only(held.row)}
            if not holders and slots:
                slots |= self._left_out(row, slots)
            written = in_place(self.flow, row)
            found = tuple(self._updated_input(row, s) if s in written else self._input(row, s) for s in sorted(slots))
            self._inputs[row, self._round] = found
        return found

    def _left_out(self, row: int, slots: set[int]) -> set[int]:
        """Returns further slots that a node without a graph has: below dumped ones, by its type, in the run before."""
        found = set(range(max(slots)))
        if int(self.flow.nodes.flags[row]) & NodeFlag.PARTIAL:
            found.add(max(slots) + 1)
        if self.flow.nodes.op_type(row) in _OF_TWO:
            found |= {0, 1}
        run = self.flow.previous_run(row, self.step, self._round)
        return found if run is None else found.union(self.flow.slots(run[0], row, Side.INPUT, run[1]))

    def _input(self, row: int, slot: int) -> ValueSource:
        at, holder = self.flow.locate_input(self.step, row, slot, self._round), self.flow.holder(row, slot)
        if holder.row >= 0 and self._written(holder.row) and (at is None or at.side is not Side.INPUT):
            now = self.flow.located(self.step, holder.row, Side.OUTPUT, holder.slot, self._round)
            return ValueSource(row, slot, Side.INPUT, now if now.index >= 0 else None)
        own = at is not None and at.side is Side.INPUT
        held = self.flow.locate_held(self.step, holder, self._round, row) if own else None
        if at is None and holder.row >= 0 and (after := self._after(row, slot, holder)) is not None:
            return after
        constant = self.flow.is_constant(holder.row)
        stated = constant and holder.row in self.flow.nodes.constants
        return ValueSource(row, slot, Side.INPUT, at, held, own, constant, stated, unclaimed=holder.row < 0)

    def _after(self, row: int, slot: int, holder: Holder) -> ValueSource | None:
        """A parameter of which only the value after its update is there."""
        if not (self._is_parameter(holder.row) and self.flow.updated(holder.row)):
            return None
        now = self.flow.located(self.step, holder.row, Side.OUTPUT, holder.slot, self._round)
        return ValueSource(row, slot, Side.INPUT, now, after=True) if now.index >= 0 else None

    def _updated_input(self, row: int, slot: int) -> ValueSource:
        """A parameter that the node itself updates: its input file shows the new value."""
        before = self._before(self.flow.holder(row, slot).row, row, slot)
        if before is not None:
            return before
        own = self.flow.located(self.step, row, Side.INPUT, slot, self._round)
        return ValueSource(row, slot, Side.INPUT, own if own.index >= 0 else None, after=True)

    def _before(self, row: int, node: int, slot: int) -> ValueSource | None:
        """The value of a parameter before this step; at the first dumped step what a consumer was fed with."""
        held = self.flow.locate_held(self.step, Holder(row, 0), self._round) if row >= 0 else None
        if held is not None:
            return ValueSource(node, slot, Side.INPUT, held)
        if row < 0 or not self._starts(row):
            return None
        for consumer, at in self.flow.consumers(row):
            if at in in_place(self.flow, consumer):
                continue
            seen = self.flow.located(self.step, consumer, Side.INPUT, at, self._round)
            if seen.index >= 0:
                return ValueSource(node, slot, Side.INPUT, seen, initial=True)
        return None

    def _starts(self, row: int) -> bool:
        """Tells whether no run came before that left a value in a parameter."""
        return self.flow.before(row, Side.OUTPUT, 0, self.step, self._round) is None

    def _written(self, row: int) -> bool:
        """Tells whether the program itself wrote into a parameter: it was read with what is in it after the step."""
        return self._is_parameter(row) and assigned(self.flow.nodes, row) == []

    def _is_parameter(self, row: int) -> bool:
        return self.flow.nodes.category_of(row) in PARAMETERS

    def _readable(self, at: Located) -> bool:
        record = self.measurements.record(at.step, at.index)
        return record is None or record.stats is not None


def in_place(flow: Flow, row: int) -> frozenset[int]:
    """Input slots of an optimizer's update operator that hold the parameters it updates; empty for other nodes."""
    return in_place_slots(flow.nodes.op_type(row), len(flow.holders(row)))


def updater_of(flow: Flow, row: int) -> tuple[int, int]:
    """The node that updates a parameter, and in which input slot; row -1 when there is none."""
    return next(((node, slot) for node, slot in flow.consumers(row) if slot in in_place(flow, node)), (-1, 0))


def surely_tainted(  # noqa: PLR0917 - the columns of a question, and what is known of its step
    measurements: Measurements, step: int, node: Int64, side: npt.ArrayLike, slot: npt.ArrayLike, designed: Mask
) -> Mask:
    """Tells which tensors of a step, all of them bad, were made from something bad.

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
    """The bad tensors of a step, and the nodes that got something bad."""

    def __init__(self, measurements: Measurements, step: int, designed: Mask) -> None:
        self._flow: Flow = measurements.flow
        self._step = step
        self._table: TensorTable = self._flow.table(step)
        self._nodes: NodeTable = self._flow.nodes
        rows = measurements.records(step).rows
        self._bad: Mask = holds_bad(rows) & ~designed
        types = [update_of(name) is not None for name in (*self._nodes.types, "")]
        self._updates: Mask = np.array(types, np.bool_)[self._nodes.type_id]
        self._tainted = np.zeros(len(self._nodes), np.bool_)
        self._feed_files()
        self._feed_along_edges()

    def outputs(self, node: Int64) -> Mask:
        """Tells which nodes have outputs that were made from something bad."""
        found: Mask = self._tainted[node]
        for at in np.flatnonzero(self._nodes.are_parameters(node)).tolist():
            found[at] = self._updated_by_bad(int(node[at]))
        return found

    def _updated_by_bad(self, row: int) -> bool:
        """Tells whether a parameter's update was fed something bad; at its first step it may have been bad before."""
        if not self._flow.updated(row) or self._flow.before(row, Side.OUTPUT, 0, self._step) is None:
            return False
        updater, _ = updater_of(self._flow, row)
        return updater >= 0 and bool(self._tainted[updater])

    def inputs(self, node: Int64, slot: Int64) -> Mask:
        """Input files that differ from what their producers wrote, as far as that was dumped."""
        holder, made = holders(self._nodes, node, slot)
        wrote = self._table.find_all(holder, Side.OUTPUT, made)
        constant = self._nodes.category[holder] == Category.CONSTANT
        unwritten = constant | self._tainted[holder]
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
        self._tainted[node[~updating]] = True
        for row, at in zip(node[updating].tolist(), slot[updating].tolist(), strict=True):
            if at not in in_place(self._flow, row):
                self._tainted[row] = True
