"""What has to be looked at to judge one step of one rank: subjects, and the tensors they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.condition_table import (
    CONDITIONS,
    WIRE_CHANGE_TOO_SMALL,
    WIRE_NOT_CHANGED,
    WIRE_OPERATOR_OVERFLOW,
    WIRE_OVERFLOW,
)
from tui_debugger.analysis.conditions import needs
from tui_debugger.analysis.recommend import RECOMMENDED
from tui_debugger.analysis.record import Need
from tui_debugger.graph.edges import holders
from tui_debugger.graph.shared import updated_elsewhere
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category, Side, Watchpoint
from tui_debugger.session.flow import Flow
from tui_debugger.session.wants import Wants
from tui_debugger.sources.base import TensorFlag, TensorTable

Mask = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]
_STAYS = frozenset({WIRE_NOT_CHANGED, WIRE_CHANGE_TOO_SMALL})
"""Conditions that find a weight which hardly changes."""


@dataclass(frozen=True, eq=False)
class Subjects:
    """The files of a step that are judged, in execution order, as columns.

    Attributes:
        row: row in the step's table.
        node: the node it is stored under.
        input: whether it is an input of that node.
        holder, holder_slot: the tensor it holds: the node itself for outputs; for inputs what the graph says feeds the
            slot, -1 where it does not say.
        watch: [watchpoint, subject]: which of ``Planner.regular`` judge it.
        covered_holder, covered_node: [watchpoint, subject]: which judge the outputs of its holder, of its node.
        own: (subject, row in the step's table) of outputs that may have been written over an input: an in-place
            operator's input is dumped after the kernel ran.
        skipped: files under no watchpoint.
    """

    row: Int64
    node: Int64
    input: Mask
    holder: Int64
    holder_slot: Int64
    watch: Mask
    covered_holder: Mask
    covered_node: Mask
    own: tuple[Int64, Int64]
    skipped: int

    def __len__(self) -> int:
        """Number of subjects."""
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Plan:
    """One step: its subjects, and what has to be known about which tensor.

    Attributes:
        subjects: what is judged.
        initial: [watchpoint, subject]: which of ``Planner.initial`` judge it as a weight's initial value.
        first: whether no step came before, by subject.
        references: (step, subject, row in that step's table) of files of the tensor that an input holds: the producer's
            output now, for a parameter also of the step before.
        wants: what has to be measured.
    """

    step: int
    subjects: Subjects
    initial: Mask
    first: Mask
    references: tuple[tuple[int, Int64, Int64], ...]
    wants: Wants


class Planner:
    """Decides which files of a step are judged, by which watchpoints.

    Outputs are judged by the watchpoints on their node. An input file is judged as the tensor it holds (by
    the watchpoints on its producer), unless it turns out to be a copy: see ``copies``. It is in scope when
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
        self._last: tuple[NodeTable, TensorTable, _Choice, Subjects] | None = None

    def plan(self, step: int, wants: Wants | None = None) -> Plan:
        """The plan of one step; what it has to know is added to ``wants``."""
        table = self.flow.table(step)
        choice, subjects = self._subjects(table)
        first = self._without_previous(step, subjects.node)
        initial = choice.initial(subjects, self._without_previous(step, np.maximum(subjects.holder, 0)))
        plan = Plan(step, subjects, initial, first, self._references(step, subjects), wants or Wants())
        self._ask(plan, table)
        return plan

    def _subjects(self, table: TensorTable) -> tuple[_Choice, Subjects]:
        """The subjects of a step; those of the last step again when the same tensors were dumped."""
        nodes = self.flow.nodes
        if self._last is not None:
            of, other, choice, subjects = self._last
            if of is nodes and _same_tensors(table, other):
                return choice, subjects
        # After the listing: it may have brought nodes that the masks must know.
        choice = _Choice(nodes, self.regular, self.initial, self._mask, self._scope())
        subjects = choice.subjects(table)
        self._last = (nodes, table, choice, subjects)
        return choice, subjects

    def _without_previous(self, step: int, node: Int64) -> Mask:
        """For each node whether no step came before."""
        graph = self.flow.nodes.graph[node]
        found = np.zeros(len(node), np.bool_)
        for number in np.unique(graph).tolist():
            of = graph == number
            found[of] = self.flow.previous_step(int(node[np.argmax(of)]), step) is None
        return found

    def _references(self, step: int, subjects: Subjects) -> tuple[tuple[int, Int64, Int64], ...]:
        """Files of what each input holds."""
        fed = np.flatnonzero(subjects.input & (subjects.holder >= 0))
        found = [self._outputs(step, subjects, fed)]
        carried = fed[self.flow.nodes.are_parameters(subjects.holder[fed])]
        graph = self.flow.nodes.graph[subjects.holder[carried]]
        for number in np.unique(graph).tolist():
            of = carried[graph == number]
            before = self.flow.previous_step(int(subjects.holder[of[0]]), step)
            if before is not None:
                found.append(self._outputs(before, subjects, of))
        return tuple(found)

    def _outputs(self, step: int, subjects: Subjects, fed: Int64) -> tuple[int, Int64, Int64]:
        rows = self.flow.table(step).find_all(
            subjects.holder[fed], np.full(len(fed), int(Side.OUTPUT)), subjects.holder_slot[fed]
        )
        there = rows >= 0
        return step, fed[there], rows[there]

    def _ask(self, plan: Plan, table: TensorTable) -> None:
        subjects, wants = plan.subjects, plan.wants
        watched: dict[Need, Mask] = {}
        for watchpoints, masks in ((self.regular, subjects.watch), (self.initial, plan.initial)):
            for watchpoint, mask in zip(watchpoints, masks, strict=True):
                need = needs(watchpoint)
                watched[need] = watched[need] | mask if need in watched else mask
        of, own = subjects.own
        for need, mask in watched.items():
            wants.ask(plan.step, table, subjects.row[mask], need)
            # Whether a copy says more than they do takes the same comparisons with the step before of both.
            change = Need(change=need.change, closeness=need.closeness)
            for step, subject, rows in plan.references:
                wants.ask(step, self.flow.table(step), rows[mask[subject]], change)
            wants.ask(plan.step, table, own[mask[of]], change)


class _Choice:
    """What the watchpoints select, by node."""

    def __init__(
        self,
        nodes: NodeTable,
        regular: Sequence[Watchpoint],
        initial: Sequence[Watchpoint],
        mask: Callable[[Watchpoint], Mask],
        scope: Mask,
    ) -> None:
        self._nodes = nodes
        self._scope = scope
        self._regular = _stacked([self._where_it_can_change(w, mask(w)) for w in regular], len(nodes))
        self._initial = _stacked([mask(w) for w in initial], len(nodes))
        self._overflow = np.array([CONDITIONS[w.condition].wire == WIRE_OVERFLOW for w in regular], np.bool_)

    def _where_it_can_change(self, watchpoint: Watchpoint, mask: Mask) -> Mask:
        """A graph that only reads a weight cannot change it: whether it changes is judged where a graph updates it.

        That is so for the recommended watchpoints. One that a person made says what it finds wherever it looks.
        """
        if watchpoint.name.startswith(RECOMMENDED) and CONDITIONS[watchpoint.condition].wire in _STAYS:
            return mask & ~updated_elsewhere(self._nodes)
        return mask

    def subjects(self, table: TensorTable) -> Subjects:
        """What of a step's files is judged."""
        row = np.flatnonzero((table.flags & int(TensorFlag.CONSTANT | TensorFlag.UNKNOWN)) == 0)
        node, slot = table.node[row].astype(np.int64), table.slot[row].astype(np.int64)
        is_input = table.side[row] == int(Side.INPUT)
        holder, holder_slot = node.copy(), slot.copy()
        holder[is_input], holder_slot[is_input] = holders(self._nodes, node[is_input], slot[is_input])
        watch = self._watching(node, is_input, holder)
        kept = watch.any(axis=0) | self._may_be_initial(node, is_input, holder)
        row, node, holder, holder_slot = (each[kept] for each in (row, node, holder, holder_slot))
        is_input = is_input[kept]
        known = holder >= 0
        covering = self._regular & self._scope
        return Subjects(
            row,
            node,
            is_input,
            holder,
            holder_slot,
            watch[:, kept],
            covering[:, holder] & known,
            covering[:, node],
            self._own_outputs(table, node, is_input, holder),
            len(table) - len(row),
        )

    def initial(self, subjects: Subjects, starts: Mask) -> Mask:
        """[watchpoint, subject]: the first input that holds a parameter of which no step came before."""
        mask = np.zeros((len(self._initial), len(subjects)), np.bool_)
        if not len(self._initial):
            return mask
        fed = np.flatnonzero(subjects.input & (subjects.holder >= 0))
        _, at = np.unique(subjects.holder[fed], return_index=True)
        first = fed[at]
        holder = subjects.holder[first]
        chosen = (self._scope[holder] | self._scope[subjects.node[first]]) & starts[first]
        chosen &= self._nodes.are_parameters(holder)
        mask[:, first[chosen]] = self._initial[:, holder[chosen]]
        return mask

    def _watching(self, node: Int64, is_input: Mask, holder: Int64) -> Mask:
        """[watchpoint, file]: which regular watchpoints judge a file."""
        known = is_input & (holder >= 0)
        constant = known & (self._nodes.category[holder] == int(Category.CONSTANT))
        watch = self._regular[:, np.where(known & ~constant, holder, node)]
        # A constant may well be zero or large; NaN in the copy that a kernel read is wrong in any case.
        watch[:, constant] &= self._overflow[:, np.newaxis]
        watch &= self._scope[node] | (known & self._scope[holder])
        return watch

    def _may_be_initial(self, node: Int64, is_input: Mask, holder: Int64) -> Mask:
        if not len(self._initial):
            return np.zeros(len(node), np.bool_)
        chosen: Mask = is_input & (holder >= 0) & self._nodes.are_parameters(holder)
        return chosen

    def _own_outputs(self, table: TensorTable, node: Int64, is_input: Mask, holder: Int64) -> tuple[Int64, Int64]:
        """The outputs of each input's own node, for anything but parameters: those have a file of what was written."""
        carried = (holder >= 0) & self._nodes.are_parameters(holder)
        inputs = np.flatnonzero(is_input & ~carried)
        outputs = np.flatnonzero(table.side == int(Side.OUTPUT))
        outputs = outputs[np.argsort(table.node[outputs], kind="stable")]
        made_by = table.node[outputs]
        start = np.searchsorted(made_by, node[inputs], side="left")
        count = np.searchsorted(made_by, node[inputs], side="right") - start
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(inputs, count), outputs[np.repeat(start, count) + within]


def _stacked(masks: Sequence[Mask], length: int) -> Mask:
    return np.stack(masks) if masks else np.zeros((0, length), np.bool_)


def _same_tensors(table: TensorTable, other: TensorTable) -> bool:
    return table is other or (
        len(table) == len(other)
        and all(
            np.array_equal(one, two)
            for one, two in (
                (table.node, other.node),
                (table.side, other.side),
                (table.slot, other.slot),
                (table.flags, other.flags),
            )
        )
    )
