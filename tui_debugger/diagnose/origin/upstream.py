"""What a tensor was made from: ``Upstream`` looks in one rank, ``exchanged`` at other ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from tui_debugger.causes.made_from import made_from
from tui_debugger.causes.rule import Examination
from tui_debugger.causes.table import Examined, InputState, JudgedValue, criterion_of
from tui_debugger.check.flow import DataFlow, Located
from tui_debugger.check.measure import Measurements
from tui_debugger.check.tensors import measured, tensor_row
from tui_debugger.check.types import TensorRow
from tui_debugger.diagnose.origin.search import OriginDescriber
from tui_debugger.graph.categories import is_collective, is_receiving, is_sending
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import PARAMETERS, Hit, ProgressFn, Side, TensorKey, Watchpoint
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.records import Record
from tui_debugger.watch.evaluate import ColumnEvaluator

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun


class HopLink(Enum):
    """How the value of a hop came into the hop before it."""

    START = "start"
    """The tensor that was asked about."""
    INPUT = "input"
    """A node made the hop before from it."""
    WEIGHT = "weight"
    """As ``INPUT``, and it is a parameter's value after the step before."""
    UPDATE = "update"
    """The optimizer's node used it to write the parameter (the hop before)."""
    BEFORE = "before"
    """The parameter itself, before that update."""
    RESULT = "result"
    """The output of the optimizer's node, whose inputs are not bad."""
    COPY = "copy"
    """The written tensor; the hop before is an input file that should hold the same."""
    SENT = "sent"
    """Another rank gave it to the node."""
    NEAREST = "nearest"
    """The nearest origin of the run, unrelated to the hop before, which is clean."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a tensor goes into the next one downstream.

    Attributes:
        into: the node that read it.
        slots: its input slots there; for ``RESULT``, output slots.
        hidden: nodes between whose tensors were not dumped, nearest to ``into`` first.
        certain: False for a sending node that was found by the shape of what it sent.
    """

    link: HopLink
    into: str = ""
    slots: tuple[int, ...] = ()
    hidden: tuple[str, ...] = ()
    certain: bool = True


Began = tuple[int, int, int]
"""(turn of the run, place of the node in execution order, slot): the earlier, the smaller."""
BEFORE_ALL = -1


@dataclass(frozen=True, slots=True)
class NodeTensorRef:
    """A tensor by the row of its node: it may or may not have been dumped."""

    rank: int
    step: int
    row: int
    side: Side
    slot: int
    round: int = 0


@dataclass(frozen=True, slots=True)
class BadInput:
    """A bad tensor that another one was made from; ``began`` is when it was made."""

    ref: NodeTensorRef
    way: Way
    began: Began


class Upstream:
    """The tensors of one rank and what they were made from, for one question: what is bad."""

    def __init__(self, session: DiagnosedRun, rank: int, watchpoint: Watchpoint, progress: ProgressFn) -> None:
        self.rank = rank
        self._session = session
        self._watchpoint = watchpoint
        self._question = criterion_of(watchpoint)
        self._progress = progress
        self._fetched: set[NodeTensorRef] = set()
        self._begin()

    def _begin(self) -> None:
        self.measurements: Measurements = self._session.measurements(self.rank, self._progress)
        self.flow: DataFlow = self.measurements.flow
        self._examined: dict[NodeTensorRef, Examined] = {}

    # -- one tensor ----------------------------------------------------------------------------------

    def located(self, ref: NodeTensorRef) -> Located:
        return self.flow.located(ref.step, ref.row, ref.side, ref.slot, ref.round)

    def ref(self, at: Located) -> NodeTensorRef:
        return NodeTensorRef(self.rank, at.step, at.row, at.side, at.slot, at.round)

    def key(self, ref: NodeTensorRef) -> TensorKey:
        return self.flow.key(self.located(ref))

    def record(self, ref: NodeTensorRef) -> Record | None:
        """Measures a tensor and returns its record; None when it was not dumped."""
        self._fetch([ref])
        at = self.located(ref)
        if at.index < 0:
            return None
        self.measurements.ensure({(at.step, at.index): self._question.need}, self._progress)
        return self.measurements.record(at.step, at.index)

    def state(self, ref: NodeTensorRef) -> InputState:
        self.record(ref)
        return self._state(self.located(ref))

    def _state(self, at: Located) -> InputState:
        """Tells whether a tensor is bad by what is known already."""
        if at.index < 0:
            return InputState.UNKNOWN
        with self.measurements.locked():
            records = self.measurements.records(at.step)
            return self._question.state(records, at.index)

    def tensor(self, ref: NodeTensorRef) -> TensorRow:
        self._fetch([ref])
        row = tensor_row(self.flow, self.located(ref), (ref.side.label, ref.slot, ""), self._is_bad)
        return measured(self.measurements, [row], self._progress)[0]

    def _is_bad(self, key: TensorKey) -> bool:
        row = self.flow.nodes.find(key.node, key.graph)
        at = self.flow.located(key.step, row, key.side, key.slot, key.round)
        return self._state(at) is InputState.BAD

    def _fetch(self, refs: Iterable[NodeTensorRef]) -> None:
        """Gets statistics from a running training for tensors of which only their existence is known."""
        wanted = [ref for ref in dict.fromkeys(refs) if ref not in self._fetched and self._is_unknown(ref)]
        if wanted:
            self._fetched.update(wanted)
            rows = [tensor_row(self.flow, self.located(each), ("", each.slot, ""), self._is_bad) for each in wanted]
            self._session.measure(rows, self._progress)
            self._begin()  # a data flow keeps what it returned before

    def _is_unknown(self, ref: NodeTensorRef) -> bool:
        at = self.located(ref)
        return at.index >= 0 and bool(int(self.flow.table(ref.step).flags[at.index]) & TensorFlag.UNKNOWN)

    # -- what it was made from -----------------------------------------------------------------------

    def examined(self, ref: NodeTensorRef) -> Examined:
        """Returns what a tensor was made from and which of that is bad; it need not have been dumped itself."""
        found = self._examined.get(ref)
        if found is None:
            place = np.array([[ref.row], [int(ref.side)], [ref.slot], [ref.round]])
            causes = made_from(self.measurements, ref.step, *place)
            places = [causes.located(int(value["step"]), int(value["index"])) for value in causes.values]
            self._fetch(self.ref(at) for at in places if at is not None)
            asked = [(self._hit(ref), (self._question,))]
            found = self._examined[ref] = Examination(self.measurements, ref.step, asked, self._progress).of(0)
        return found

    def _turn(self, ref: NodeTensorRef) -> int:
        return self.flow.turn(ref.row, ref.step, ref.round)

    def _hit(self, ref: NodeTensorRef) -> Hit:
        record, at = self.record(ref), self.located(ref)
        result, order = None, 0
        if at.index >= 0:
            with self.measurements.locked():
                evaluator = ColumnEvaluator(self.measurements.records(at.step), np.array([at.index]))
                (result,) = evaluator.results(self._watchpoint, self.flow.is_first(at))
            order = int(self.flow.table(ref.step).order[at.index])
        return Hit(
            key=self.key(ref),
            row=ref.row,
            results=() if result is None else (result,),
            order=(self._turn(ref), order),
            stats=record.stats if record is not None else None,
            detail=record.error if record is not None else "",
        )

    def describer(self, step: int) -> OriginDescriber:
        return OriginDescriber(self.measurements, step, self._is_bad, self._progress)

    def bad_inputs(self, ref: NodeTensorRef) -> list[BadInput]:
        """Returns the bad tensors of this rank that a tensor was made from, the first to become bad first."""
        examined = self.examined(ref)
        found: dict[NodeTensorRef, BadInput] = {}
        for judged in examined.values:
            if judged.state is not InputState.BAD or judged.constant or judged.initial or judged.at is None:
                continue
            up = self._written(judged, judged.at)
            if up == ref:
                continue
            before = found.get(up)
            slots = (*(before.way.slots if before is not None else ()), judged.slot)
            way = Way(self._link(examined, judged, up), self.flow.nodes.names[judged.node], slots)
            found[up] = BadInput(up, way, self._began(up))
        if any(bad_input.way.link is not HopLink.RESULT for bad_input in found.values()):
            found = {up: bad_input for up, bad_input in found.items() if bad_input.way.link is not HopLink.RESULT}
        # A parameter's earlier value comes before the other inputs of its update from that step.
        return sorted(
            found.values(),
            key=lambda bad_input: (bad_input.began[0], bad_input.way.link is not HopLink.BEFORE, bad_input.began),
        )

    def _written(self, judged: JudgedValue, at: Located) -> NodeTensorRef:
        """Returns the producer's written tensor if it is bad; else the place where the reader saw the bad value."""
        if judged.held is not None and judged.own:
            written = self.ref(judged.held)
            if self.state(written) is InputState.BAD:
                return written
        return self.ref(at)

    def _link(self, examined: Examined, judged: JudgedValue, up: NodeTensorRef) -> HopLink:
        key = examined.hit.key
        if judged.side is Side.OUTPUT:
            return HopLink.RESULT
        if examined.parameter >= 0 and examined.node >= 0:
            itself = up.row == examined.parameter or up.row in self.flow.shared(examined.parameter)
            return HopLink.BEFORE if itself and up.side is Side.OUTPUT else HopLink.UPDATE
        if examined.parameter >= 0 and judged.before:
            return HopLink.BEFORE  # a weight that this graph only reads
        if (up.step, up.round) != (key.step, key.round) and self._is_parameter(up.row) and self.flow.updated(up.row):
            return HopLink.WEIGHT
        return HopLink.COPY if key.side is Side.INPUT and examined.node < 0 else HopLink.INPUT

    def _began(self, ref: NodeTensorRef) -> Began:
        row, turn = ref.row, self._turn(ref)
        if ref.side is Side.INPUT:
            holder = self.flow.holder(row, ref.slot)
            written = self.flow.locate_held(ref.step, holder, ref.round, row)
            if holder.row >= 0 and written is None:  # the written tensor was not dumped: use its age
                row = holder.row
                if self._is_parameter(row) and self.flow.updated(row):
                    before = self.flow.before(row, Side.OUTPUT, holder.slot, ref.step, ref.round)
                    turn = BEFORE_ALL if before is None else self._turn(self.ref(before))
        if self._is_parameter(row) and not self.flow.updated(row):
            return (turn, BEFORE_ALL, ref.slot)
        return (turn, int(self.flow.nodes.order[row]), ref.slot)

    def _is_parameter(self, row: int) -> bool:
        return self.flow.nodes.category_of(row) in PARAMETERS

    # -- what was not dumped -------------------------------------------------------------------------

    def hidden(self, ref: NodeTensorRef) -> tuple[list[NodeTensorRef], list[str]]:
        """Returns undumped tensors that a tensor was made from, and words for other inputs that cannot be judged."""
        examined, refs, outside = self.examined(ref), list[NodeTensorRef](), list[str]()
        nodes = self.flow.nodes
        for judged in examined.values:
            if judged.state is not InputState.UNKNOWN or judged.constant or judged.side is Side.OUTPUT:
                continue
            holder = self.flow.holder(judged.node, judged.slot)
            if holder.row < 0 or self.flow.is_constant(holder.row):
                continue
            if not self._is_parameter(holder.row):
                refs.append(NodeTensorRef(self.rank, ref.step, holder.row, Side.OUTPUT, holder.slot, ref.round))
            elif not self.flow.updated(holder.row):
                outside.append(f"the graph input {nodes.names[holder.row]}")
            else:
                at = self.flow.before(holder.row, Side.OUTPUT, holder.slot, ref.step, ref.round)
                if at is None or not self.flow.is_left_by(at, holder.row, ref.step, ref.round):
                    outside.append(f"{nodes.names[holder.row]} before step {ref.step}")
                else:
                    refs.append(self.ref(at))
        return [each for each in dict.fromkeys(refs) if each != ref], outside

    def clean_sources(self, ref: NodeTensorRef) -> list[NodeTensorRef]:
        judged = self.examined(ref).values
        return [
            self.ref(each.at) for each in judged if each.state is InputState.CLEAN and each.at and not each.constant
        ]

    def statistics_alike(self, ref: NodeTensorRef, other: Record | None) -> bool:
        """Tells whether a tensor has exactly the statistics of another one."""
        record = self.record(ref)
        return record is not None and other is not None and record.stats is not None and record.stats == other.stats


_NUMBER = re.compile(r"-op\d+$")


@dataclass(frozen=True, slots=True)
class OtherRankInputs:
    """Bad inputs of a node's peers on other ranks, the peers' outputs, and the ranks not judged."""

    bad_inputs: tuple[BadInput, ...]
    inputs: tuple[NodeTensorRef, ...]
    absent: tuple[int, ...]


def exchanges(op_type: str) -> bool:
    """Tells whether the outputs of a node may come from another rank."""
    return is_collective(op_type) or is_receiving(op_type)


def exchanged(
    ref: NodeTensorRef, row: int, ranks: Sequence[int], rank_of: Callable[[int], Upstream]
) -> OtherRankInputs:
    """Looks at the other ranks' part in the output of node ``row``; ``ranks`` have this step."""
    here = rank_of(ref.rank)
    group = here.flow.nodes.group_ranks.get(row)
    others = [rank for rank in ranks if rank != ref.rank and (group is None or rank in group)]
    if is_receiving(here.flow.nodes.op_type(row)):
        return _sent(ref, others, rank_of)
    bad_inputs, inputs, absent = list[BadInput](), list[NodeTensorRef](), list[int]()
    for rank in others:
        there = rank_of(rank)
        peer = same_node(here.flow.nodes, row, there.flow.nodes)
        if peer < 0:
            continue  # another stage of a pipeline, or another group
        at = NodeTensorRef(rank, ref.step, peer, Side.OUTPUT, ref.slot, ref.round)
        inputs.append(at)
        bad = there.bad_inputs(at)
        bad_inputs += [replace(each, way=Way(HopLink.SENT, each.way.into, each.way.slots)) for each in bad]
        if not bad and there.hidden(at)[0]:
            absent.append(rank)
    absent += [rank for rank in group or () if rank != ref.rank and rank not in ranks]
    return OtherRankInputs(tuple(bad_inputs), tuple(inputs), tuple(absent))


def _sent(ref: NodeTensorRef, ranks: Sequence[int], rank_of: Callable[[int], Upstream]) -> OtherRankInputs:
    """The inputs of sending nodes: one with exactly the statistics of the received tensor, else all of its shape."""
    received = rank_of(ref.rank).record(ref)
    alike, likely, inputs = list[BadInput](), list[BadInput](), list[NodeTensorRef]()
    for rank in ranks:
        there = rank_of(rank)
        for row in _sending_nodes(there.flow.nodes):
            at = NodeTensorRef(rank, ref.step, row, Side.OUTPUT, 0, ref.round)
            inputs.append(at)
            for bad_input in there.bad_inputs(at):
                record = there.record(bad_input.ref)
                same_kind = record is not None and received is not None and record.meta == received.meta
                exact = there.statistics_alike(bad_input.ref, received)
                way = Way(HopLink.SENT, bad_input.way.into, bad_input.way.slots, certain=exact)
                (alike if exact else likely if same_kind else []).append(replace(bad_input, way=way))
    return OtherRankInputs(tuple(alike or likely), tuple(inputs), ())


def _sending_nodes(nodes: NodeTable) -> list[int]:
    kinds = np.array([is_sending(name) for name in nodes.types] + [False])
    rows: list[int] = np.flatnonzero(kinds[nodes.type_id]).tolist()
    return rows


def same_node(nodes: NodeTable, row: int, others: NodeTable) -> int:
    """The row of the node with the same name on another rank, up to operator numbers; -1 when there is none."""
    name, graph = nodes.names[row], nodes.graph_of(row).name
    found = others.find(name, graph)
    if found >= 0 and others.op_type(found) == nodes.op_type(row):
        return found
    mine, theirs = _alike(nodes, nodes.op_type(row), name), _alike(others, nodes.op_type(row), name)
    place = mine.index(row)
    return theirs[place] if len(mine) == len(theirs) else -1


def _alike(nodes: NodeTable, op_type: str, name: str) -> list[int]:
    """Nodes of a type whose names differ only in the operator's number, in execution order."""
    stem = _NUMBER.sub("", name)
    if op_type not in nodes.types:
        return []
    rows = np.flatnonzero(nodes.type_id == nodes.types.index(op_type)).tolist()
    same = [each for each in rows if _NUMBER.sub("", nodes.names[each]) == stem]
    return sorted(same, key=lambda each: int(nodes.order[each]))
