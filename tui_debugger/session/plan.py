"""What has to be looked at to judge one step of one rank: subjects, and the tensors they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.condition_table import CONDITIONS, WIRE_OPERATOR_OVERFLOW, WIRE_OVERFLOW
from tui_debugger.analysis.conditions import needs
from tui_debugger.analysis.record import Need
from tui_debugger.model import PARAMETERS, Side, Watchpoint
from tui_debugger.session.flow import Flow, Holder
from tui_debugger.sources.base import TensorFlag

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Subject:
    """A file to be judged.

    Attributes:
        index: index in the step's table.
        node: the node it is stored under.
        side: input or output of that node.
        holder: the tensor it holds: the node itself for outputs; for inputs what the graph says feeds the slot.
        watch: watchpoints that judge it.
        initial: weight-initialization watchpoints that judge it as a weight's initial value.
        previous_step: the previous step, None at the first dumped step.
        references: (step, index) of files of the tensor it holds.
        own_outputs: (step, index) of outputs that may have been written over it: an in-place operator's input is
            dumped after the kernel ran.
    """

    index: int
    node: int
    side: Side
    holder: Holder
    watch: tuple[Watchpoint, ...]
    initial: tuple[Watchpoint, ...] = ()
    previous_step: int | None = None
    references: tuple[tuple[int, int], ...] = ()
    own_outputs: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Plan:
    """The subjects of one step, in execution order, and what has to be known about which tensor."""

    step: int
    subjects: list[Subject] = field(default_factory=list)
    needs: dict[tuple[int, int], Need] = field(default_factory=dict)
    skipped: int = 0

    def ask(self, step: int, index: int, need: Need) -> None:
        """Adds a question about a tensor."""
        self.needs[step, index] = self.needs.get((step, index), Need()) | need


class Planner:
    """Decides which files of a step are judged, by which watchpoints.

    Outputs are judged by the watchpoints on their node. An input file is judged as the tensor it holds (by
    the watchpoints on its producer), unless it turns out to be a copy: see ``references``. It is in scope when
    the node it is stored under is, or its producer: it shows under the one, and stands for the other.
    """

    def __init__(
        self,
        flow: Flow,
        watchpoints: Sequence[Watchpoint],
        mask: Callable[[Watchpoint], Mask],
        scope: Callable[[], Mask],
    ) -> None:
        """``mask`` gives the node rows a watchpoint selects, ``scope`` the ones that may be looked at."""
        self.flow = flow
        self.initial = [w for w in watchpoints if CONDITIONS[w.condition].initial_only]
        self.regular = [
            w
            for w in watchpoints
            # An operator's overflow is no matter of values: nothing here can judge it, so nothing counts as judged.
            if not CONDITIONS[w.condition].initial_only and CONDITIONS[w.condition].wire != WIRE_OPERATOR_OVERFLOW
        ]
        self._mask = mask
        self._scope = scope
        self._masks: dict[int, Mask] = {}
        self._in_scope: Mask = np.zeros(0, np.bool_)
        self._selecting: dict[int, tuple[Watchpoint, ...]] = {}
        self._covered: dict[int, tuple[Watchpoint, ...]] = {}
        self.needs = {w.id: needs(w) for w in watchpoints}

    def plan(self, step: int) -> Plan:
        """The plan of one step."""
        table = self.flow.table(step)
        # After the listing: it may have brought nodes that the masks must know.
        self._masks = {w.id: self._mask(w) for w in (*self.regular, *self.initial)}
        self._in_scope = self._scope()
        self._selecting, self._covered = {}, {}
        plan = Plan(step)
        first_inputs: dict[int, Subject] = {}
        candidates: list[Subject] = []
        columns = zip(*(column.tolist() for column in (table.node, table.side, table.slot, table.flags)), strict=True)
        for index, (node, side, slot, flags) in enumerate(columns):
            if flags & TensorFlag.CONSTANT:
                continue
            subject = self._subject(index, node, Side(side), slot)
            if subject.side is Side.INPUT and subject.holder.row >= 0:
                first_inputs.setdefault(subject.holder.row, subject)
            candidates.append(subject)
        self._add_initial(step, first_inputs)
        for subject in candidates:
            if not subject.watch and not subject.initial:
                plan.skipped += 1
                continue
            self._complete(plan, subject)
        plan.skipped += len(table) - len(candidates)
        return plan

    def _subject(self, index: int, node: int, side: Side, slot: int) -> Subject:
        if side is Side.OUTPUT:
            return Subject(index, node, side, Holder(node, slot), self.covering(node))
        holder = self.flow.holder(node, slot)
        known = holder.row >= 0
        if not (self._in_scope[node] or (known and self._in_scope[holder.row])):
            return Subject(index, node, side, holder, ())
        if self.flow.is_constant(holder.row):
            # A constant may well be zero or large; NaN in the copy that a kernel read is wrong in any case.
            watch = tuple(w for w in self._selected_by(node) if CONDITIONS[w.condition].wire == WIRE_OVERFLOW)
        else:
            watch = self._selected_by(holder.row if known else node)
        return Subject(index, node, side, holder, watch)

    def covering(self, row: int) -> tuple[Watchpoint, ...]:
        """The regular watchpoints that judge the outputs of a node, as of the last plan."""
        found = self._covered.get(row)
        if found is None:
            found = self._covered[row] = self._selected_by(row) if self._in_scope[row] else ()
        return found

    def _selected_by(self, row: int) -> tuple[Watchpoint, ...]:
        found = self._selecting.get(row)
        if found is None:
            found = self._selecting[row] = tuple(w for w in self.regular if self._masks[w.id][row])
        return found

    def _add_initial(self, step: int, first_inputs: dict[int, Subject]) -> None:
        if not self.initial:
            return
        for row, subject in first_inputs.items():
            if not (self._in_scope[row] or self._in_scope[subject.node]):
                continue
            if self.flow.nodes.category_of(row) in PARAMETERS and self.flow.previous_step(row, step) is None:
                subject.initial = tuple(w for w in self.initial if self._masks[w.id][row])

    def _complete(self, plan: Plan, subject: Subject) -> None:
        need = Need()
        for watchpoint in (*subject.watch, *subject.initial):
            need = need | self.needs[watchpoint.id]
        subject.previous_step = self.flow.previous_step(subject.node, plan.step)
        plan.ask(plan.step, subject.index, need)
        if subject.side is Side.INPUT:
            subject.references = self._references(plan.step, subject)
            subject.own_outputs = self._own_outputs(plan.step, subject)
            # Whether a copy says more than they do takes the same comparisons with the step before of both.
            change = Need(change=need.change, closeness=need.closeness)
            for step, index in (*subject.references, *subject.own_outputs):
                plan.ask(step, index, change)
        plan.subjects.append(subject)

    def _references(self, step: int, subject: Subject) -> tuple[tuple[int, int], ...]:
        """Files of what an input file holds: the producer's output now, for a parameter also the step before."""
        table, holder = self.flow.table(step), subject.holder
        if holder.row < 0:
            return ()
        found = [(step, table.find(holder.row, Side.OUTPUT, holder.slot))]
        if self.flow.nodes.category_of(holder.row) in PARAMETERS:
            before = self.flow.previous_step(holder.row, step)
            if before is not None:
                found.append((before, self.flow.table(before).find(holder.row, Side.OUTPUT, holder.slot)))
        return tuple(pair for pair in found if pair[1] >= 0)

    def _own_outputs(self, step: int, subject: Subject) -> tuple[tuple[int, int], ...]:
        """The node's own outputs, for anything but parameters: those have a file of what was written in place."""
        holder = subject.holder.row
        if holder >= 0 and self.flow.nodes.category_of(holder) in PARAMETERS:
            return ()
        table = self.flow.table(step)
        return tuple((step, int(i)) for i in table.of_node(subject.node) if int(table.side[i]) == Side.OUTPUT)
