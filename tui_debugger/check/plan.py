"""Plans which statistics of which tensors are needed, as columns over the table of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tui_debugger.arrays import Int16, Int64, Integers, Mask
from tui_debugger.check.flow import DataFlow, of_round, read_by
from tui_debugger.graph.table import NodeTable, holders
from tui_debugger.model import Category, NodeKind, NodeSelection, Side, Watchpoint
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.records import RequiredStats
from tui_debugger.watch.condition_table import CONDITIONS
from tui_debugger.watch.evaluate import needs


class RequiredByStep:
    """The needed statistics of tensors; several needs of one tensor are joined."""

    def __init__(self) -> None:
        self._needs: list[RequiredStats] = []
        self._numbers: dict[RequiredStats, int] = {}
        self._columns: dict[int, Int16] = {}

    def ask(self, step: int, table: TensorTable, rows: Integers, need: RequiredStats) -> None:
        if not len(rows):
            return
        column = self._columns.get(step)
        if column is None:
            column = self._columns[step] = np.zeros(len(table), np.int16)
        numbers = column[rows]
        joined = np.zeros(len(self._needs) + 1, np.int16)
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            joined[number] = self._number(self._needs[number - 1] | need if number else need)
        column[rows] = joined[numbers]

    def steps(self) -> list[int]:
        return sorted(self._columns)

    def of_step(self, step: int) -> Iterator[tuple[RequiredStats, Integers]]:
        column = self._columns[step]
        for number in np.flatnonzero(np.bincount(column)[1:]).tolist():
            yield self._needs[number], np.flatnonzero(column == number + 1)

    def _number(self, need: RequiredStats) -> int:
        number = self._numbers.get(need)
        if number is None:
            self._needs.append(need)
            number = self._numbers[need] = len(self._needs)
        return number


@dataclass(frozen=True, eq=False)
class Subjects:
    """The files of a step that are judged, in execution order, as columns; ``skipped`` files are under no watchpoint.

    Attributes:
        node: the node that the file is stored under; ``input``: whether it is an input of that node.
        holder, holder_slot: the tensor that the file holds: for outputs the node itself, for inputs the producer of the
            slot by the graph, -1 if unknown.
        covered_holder, covered_node: [watchpoint, subject]: which judge the outputs of its holder, of its node.
        own: (subject, row in the step's table) of outputs that may have been written over an input: an in-place
            operator's input is dumped after the kernel ran.
        constants: number of inputs with a graph constant, under a watchpoint that does not name their node.
    """

    row: Int64  # row in the step's table
    node: Int64
    input: Mask
    holder: Int64
    holder_slot: Int64
    watch: Mask  # [watchpoint, subject]: which of ``Planner.regular`` judge it
    covered_holder: Mask
    covered_node: Mask
    own: tuple[Int64, Int64]
    skipped: int
    constants: int = 0

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class StepPlan:
    """The subjects of one step, and the statistics that have to be known.

    ``references`` are (step, subject, row in that step's table) of files of the tensor that a subject holds: for an
    input the producer's output now, for a parameter also its previous value; for a weight that only another graph
    updates the value that the previous run left.
    """

    step: int
    subjects: Subjects
    initial: Mask  # [watchpoint, subject]: which of ``Planner.initial`` judge it as a weight's initial value
    first: Mask  # whether no run came before, by subject
    references: tuple[tuple[int, Int64, Int64], ...]
    required: RequiredByStep


AskedRows = Callable[[TensorTable], "Mask | None"]


def every_row(_: TensorTable) -> Mask | None:
    return None


class Planner:
    """Decides which files of a step are judged, by which watchpoints.

    Outputs are judged by the watchpoints on their node. An input file is judged as the tensor it holds (by the
    watchpoints on its producer), unless it turns out to be a copy: see ``copies``. It is in scope when its node or its
    producer is: it is shown under its node, and stands for the producer's output.
    """

    def __init__(
        self,
        flow: DataFlow,
        watchpoints: Sequence[Watchpoint],
        mask: Callable[[Watchpoint], Mask],
        scope: Callable[[], Mask],
        asked: AskedRows = every_row,
    ) -> None:
        """``mask`` gives the node rows of a watchpoint, ``scope`` the allowed rows, ``asked`` allowed table rows."""
        self.flow = flow
        self.initial = [w for w in watchpoints if CONDITIONS[w.condition].initial_only]
        self.regular = [w for w in watchpoints if not CONDITIONS[w.condition].initial_only]
        self._mask = mask
        self._scope = scope
        self._asked = asked
        self._last: tuple[NodeTable, TensorTable, _SelectedNodes, Subjects] | None = None

    def plan(self, step: int, required: RequiredByStep | None = None) -> StepPlan:
        """The plan of one step; the needed statistics are added to ``required``."""
        table = self.flow.table(step)
        choice, subjects = self._subjects(table, self.flow.at_rest(step))
        rounds = table.round[subjects.row]
        first = self.flow.starts(step, subjects.node, table.side[subjects.row], rounds)
        # For inputs that hold a parameter, an earlier run of the parameter counts.
        outputs = np.full(len(subjects), int(Side.OUTPUT))
        initial = choice.initial(subjects, self.flow.starts(step, np.maximum(subjects.holder, 0), outputs, rounds))
        plan = StepPlan(step, subjects, initial, first, self._references(step, subjects), required or RequiredByStep())
        self._ask(plan)
        return plan

    def _subjects(self, table: TensorTable, at_rest: Int64) -> tuple[_SelectedNodes, Subjects]:
        """The subjects of a step; reuses those of the last step when the same tensors were dumped."""
        nodes = self.flow.nodes
        asked = self._asked(table)
        if self._last is not None and asked is None:
            of, other, choice, subjects = self._last
            if of is nodes and _same_tensors(table, other):
                return choice, subjects
        # After the listing: it may have brought nodes that the masks must know.
        choice = _SelectedNodes(nodes, self.regular, self.initial, self._mask, self._scope())
        subjects = choice.subjects(table, at_rest, asked)
        self._last = (nodes, table, choice, subjects)
        return choice, subjects

    def _references(self, step: int, subjects: Subjects) -> tuple[tuple[int, Int64, Int64], ...]:
        inputs = np.flatnonzero(subjects.input & (subjects.holder >= 0))
        carried = self.flow.nodes.are_parameters(subjects.holder[inputs])
        table = self.flow.table(step)
        holding = np.empty(len(inputs), np.int64)
        from_operators, from_parameters = inputs[~carried], inputs[carried]
        columns = _outputs(subjects, from_operators)
        holding[~carried] = read_by(table, *columns, subjects.row[from_operators])
        rounds = table.round[subjects.row]
        for number in np.unique(rounds[from_parameters]).tolist():
            of = carried & (rounds[inputs] == number)
            holding[of] = of_round(table, *_outputs(subjects, inputs[of]), number)
        dumped = holding >= 0
        found = [(step, inputs[dumped], holding[dumped])]
        repeating = self._repeating(subjects)
        carrying = np.concatenate([from_parameters, repeating])
        before, index = self.flow.befores(step, *_outputs(subjects, carrying), rounds[carrying])
        for earlier in np.unique(before[before >= 0]).tolist():
            of = before == earlier
            found.append((earlier, carrying[of], index[of]))
        found.append((step, *self._updated_now(step, subjects, repeating)))
        return tuple(found)

    def _repeating(self, subjects: Subjects) -> Int64:
        """Weights of graphs that only read them: their files show the values that another graph's run left."""
        outputs = np.flatnonzero(~subjects.input)
        outputs = outputs[self.flow.nodes.are_parameters(subjects.node[outputs])]
        repeating = [self.flow.updated_elsewhere(row) for row in subjects.node[outputs].tolist()]
        return outputs[np.array(repeating, np.bool_)]

    def _updated_now(self, step: int, subjects: Subjects, repeating: Int64) -> tuple[Int64, Int64]:
        """The files of this step that show such weights after their update: (subject, row)."""
        table, of, rows = self.flow.table(step), list[int](), list[int]()
        for subject in repeating.tolist():
            own = int(subjects.node[subject])
            for other in self.flow.shared(own):
                places = table.of_node(other, every=True) if not self.flow.updated_elsewhere(other) else ()
                of += [subject] * len(places)
                rows += [int(place) for place in places]
        return np.array(of, np.int64), np.array(rows, np.int64)

    def _ask(self, plan: StepPlan) -> None:
        subjects, required = plan.subjects, plan.required
        watched: dict[RequiredStats, Mask] = {}
        for watchpoints, masks in ((self.regular, subjects.watch), (self.initial, plan.initial)):
            for watchpoint, mask in zip(watchpoints, masks, strict=True):
                need = needs(watchpoint)
                watched[need] = watched[need] | mask if need in watched else mask
        of, own = subjects.own
        for need, mask in watched.items():
            self._ask_rows(required, plan.step, subjects.row[mask], need)
            # To decide whether a copy adds information, both need the same comparisons with the previous step.
            change = replace(need, ranges=frozenset())
            looks_back = change.previous or change.previous_stats
            for step, subject, rows in plan.references:
                wanted = mask[subject] & (subjects.input[subject] | looks_back)
                self._ask_rows(required, step, rows[wanted], change)
            self._ask_rows(required, plan.step, own[mask[of]], change)

    def _ask_rows(self, required: RequiredByStep, step: int, rows: Integers, need: RequiredStats) -> None:
        """Asks about rows of a step, and for statistics of their previous values."""
        table = self.flow.table(step)
        required.ask(step, table, rows, replace(need, previous_stats=False))
        if not need.previous_stats or not len(rows):
            return
        node = table.node[rows].astype(np.int64)
        before, index = self.flow.befores(step, node, table.side[rows], table.slot[rows], table.round[rows])
        for earlier in np.unique(before[before >= 0]).tolist():
            required.ask(earlier, self.flow.table(earlier), np.unique(index[before == earlier]), RequiredStats())


class _SelectedNodes:
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
        self._regular = _stacked([mask(w) for w in regular], len(nodes))
        self._initial = _stacked([mask(w) for w in initial], len(nodes))
        # NaN in a kernel's copy of a constant is always wrong; zero or large values may be right.
        judges_constants = [
            self._regular[number]
            if CONDITIONS[w.condition].is_overflow
            else mask(replace(w, selection=_by_name(w.selection)))
            for number, w in enumerate(regular)
        ]
        self._judges_constants = _stacked(judges_constants, len(nodes))
        self._by_change = np.array([CONDITIONS[w.condition].is_small_change for w in regular], np.bool_)
        self._by_device = np.array([CONDITIONS[w.condition].is_device_overflow for w in regular], np.bool_)

    def subjects(self, table: TensorTable, at_rest: Int64, asked: Mask | None = None) -> Subjects:
        """The judged files among the ``asked`` rows; weights ``at_rest`` are not checked for small changes."""
        watched = (table.flags & int(TensorFlag.CONSTANT | TensorFlag.UNKNOWN)) == 0
        row = np.flatnonzero(watched if asked is None else watched & asked)
        there = len(table) if asked is None else int(asked.sum())
        node, slot = table.node[row].astype(np.int64), table.slot[row].astype(np.int64)
        is_input = table.side[row] == int(Side.INPUT)
        holder, holder_slot = node.copy(), slot.copy()
        holder[is_input], holder_slot[is_input] = holders(self._nodes, node[is_input], slot[is_input])
        watch, constants = self._watching(node, is_input, holder)
        watch &= ~(self._by_change[:, np.newaxis] & np.isin(holder, at_rest))
        if self._by_device.any():
            watch[self._by_device] = self._operators(table, node, is_input)[self._by_device]
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
            self._own_outputs(table, row, node, is_input, holder),
            there - len(row),
            constants,
        )

    def initial(self, subjects: Subjects, starts: Mask) -> Mask:
        """[watchpoint, subject]: the first input that holds a parameter without an earlier step."""
        mask = np.zeros((len(self._initial), len(subjects)), np.bool_)
        if not len(self._initial):
            return mask
        inputs = np.flatnonzero(subjects.input & (subjects.holder >= 0))
        _, at = np.unique(subjects.holder[inputs], return_index=True)
        first = inputs[at]
        holder = subjects.holder[first]
        chosen = (self._scope[holder] | self._scope[subjects.node[first]]) & starts[first]
        chosen &= self._nodes.are_parameters(holder)
        mask[:, first[chosen]] = self._initial[:, holder[chosen]]
        return mask

    def _watching(self, node: Int64, is_input: Mask, holder: Int64) -> tuple[Mask, int]:
        """[watchpoint, file]: which regular watchpoints judge a file; and how many constants some watchpoint skips."""
        known = is_input & (holder >= 0)
        constant = known & (self._nodes.category[holder] == int(Category.CONSTANT))
        watch = self._regular[:, np.where(known & ~constant, holder, node)]
        watch &= self._scope[node] | (known & self._scope[holder])
        covered = watch[:, constant]
        judged = covered & self._judges_constants[:, node[constant]]
        watch[:, constant] = judged
        return watch, int((covered & ~judged).any(axis=0).sum())

    def _operators(self, table: TensorTable, node: Int64, is_input: Mask) -> Mask:
        """[watchpoint, file] for overflows on the device: outputs judge their operator, else its first input does."""
        if not table.tells_overflow:
            return np.zeros((len(self._regular), len(node)), np.bool_)
        first = np.zeros(len(node), np.bool_)
        wrote = np.zeros(len(self._nodes), np.bool_)
        wrote[node[~is_input]] = True
        readers = np.flatnonzero(is_input & ~wrote[node])
        first[readers[np.unique(node[readers], return_index=True)[1]]] = True
        is_judged = self._nodes.category[node] != int(Category.CONSTANT)
        is_judged &= ~self._nodes.are_parameters(node) & (~is_input | first)
        mask: Mask = self._regular[:, node] & self._scope[node] & is_judged
        return mask

    def _may_be_initial(self, node: Int64, is_input: Mask, holder: Int64) -> Mask:
        if not len(self._initial):
            return np.zeros(len(node), np.bool_)
        chosen: Mask = is_input & (holder >= 0) & self._nodes.are_parameters(holder)
        return chosen

    def _own_outputs(
        self, table: TensorTable, row: Int64, node: Int64, is_input: Mask, holder: Int64
    ) -> tuple[Int64, Int64]:
        """The outputs of each input's own node, except for parameters, which have a file with their new value."""
        carried = (holder >= 0) & self._nodes.are_parameters(holder)
        inputs = np.flatnonzero(is_input & ~carried)
        outputs = np.flatnonzero(table.side == int(Side.OUTPUT))
        outputs = outputs[np.argsort(table.node[outputs], kind="stable")]
        made_by = table.node[outputs]
        start = np.searchsorted(made_by, node[inputs], side="left")
        count = np.searchsorted(made_by, node[inputs], side="right") - start
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        of, found = np.repeat(inputs, count), outputs[np.repeat(start, count) + within]
        if not table.round.any():
            return of, found
        mine, made = table.round[row[of]], table.round[found]
        same = (mine == made) | (mine == 0) | (made == 0)
        return of[same], found[same]


def _outputs(subjects: Subjects, which: Int64) -> tuple[Int64, Int64, Int64]:
    return subjects.holder[which], np.full(len(which), int(Side.OUTPUT)), subjects.holder_slot[which]


def _by_name(selection: NodeSelection) -> NodeSelection:
    """The part of a selection by node, scope, type or regular expression: it means all inputs of such nodes."""
    named = tuple(selector for selector in selection.include if selector.kind is not NodeKind.CATEGORY)
    return NodeSelection(named, selection.exclude)


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
                (table.round, other.round),
            )
        )
    )
