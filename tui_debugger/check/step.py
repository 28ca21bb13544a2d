"""Evaluates the watchpoints on one step of one rank.

Input files that only repeat what another file says are left to that file. That is decided for each watchpoint: a copy
that another watchpoint judged says nothing about this one. Everything is a column over the subjects of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int16, Int64, Mask
from tui_debugger.check.by_design import StepDesigns
from tui_debugger.check.flow import holds_tensors
from tui_debugger.check.hits import HitList, StepHits, facts_of, overflow_text, overflowed
from tui_debugger.check.measure import Measurements
from tui_debugger.check.origins import find_origins
from tui_debugger.check.plan import Plan, Planner, RequiredByStep
from tui_debugger.check.progress import scaled
from tui_debugger.check.provenance import surely_tainted
from tui_debugger.model import Coverage, NodeKind, ProgressFn, Verdict, Watchpoint, no_progress
from tui_debugger.stats.fields import STORED
from tui_debugger.stats.records import ROW, Records, State
from tui_debugger.watch.condition_table import WIRE_OPERATOR_OVERFLOW
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, Evaluated, Facts, judging_plan, needs

_WORDS: Final = len(STORED)
"""A row of ``Records`` starts with so many words of eight bytes that are its statistics."""
_CODES: Final = 1 << 10
"""More than there are values of ``Evaluated.finding``."""


def evaluator_of(measurements: Measurements, step: int, rows: Int64) -> ColumnEvaluator:
    """Returns rows of a step's table, ready to be judged."""
    flow = measurements.flow
    table = flow.table(step)

    def facts() -> Facts:
        return facts_of(flow.nodes, (flow.rank, step), table.node[rows], table.side[rows], table.slot[rows])

    return ColumnEvaluator(measurements.records(step), rows, facts, overflowed(table, rows))


class DuplicateInputs:
    """Finds out which watchpoints need not judge an input, because a file with the same values answers them."""

    def __init__(self, plan: Plan, watchpoints: Sequence[Watchpoint], measurements: Measurements) -> None:
        """``watchpoints`` are those of the rows of ``plan.subjects.watch``; everything is measured."""
        self._plan = plan
        self._watchpoints = watchpoints
        self._measurements = measurements
        subjects, self._records = plan.subjects, measurements.records(plan.step)
        rows = np.take(self._records.rows, subjects.row)
        self._measured: Mask = rows["state"] == State.MEASURED
        bad = (rows["nan"] > 0) | (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0)
        # Equal statistics mean equal values, but zeros and scalars equal something else by chance.
        varied = ~np.isnan(rows["variance"]) & (rows["variance"] != 0)
        self._distinctive: Mask = bad | varied
        self._equal_sources = [self._equal(step, subject, row) for step, subject, row in plan.references]
        self._current_rows = np.full(len(subjects), -1, np.int64)
        for _, subject, row in plan.references[:1]:  # the first are the files of this run
            self._current_rows[subject] = row
        of, own = subjects.own
        distinctive = self._distinctive[of]
        self._equal_own = self._equal(plan.step, of[distinctive], own[distinctive])
        self._values = _words(self._records, subjects.row)
        self._known_inputs = np.flatnonzero(subjects.input & (subjects.holder >= 0) & self._measured)
        place = subjects.holder[self._known_inputs] << 32 | subjects.holder_slot[self._known_inputs] << 16
        place |= measurements.flow.table(plan.step).round[subjects.row[self._known_inputs]].astype(np.int64)
        self._input_groups = _groups(self._values[self._known_inputs], place)
        self._unknown_inputs = np.flatnonzero(subjects.input & (subjects.holder < 0))
        self._flags = self._operators_flags() if len(self._unknown_inputs) else np.zeros(0, np.bool_)

    def answered(self, number: int, evaluated: Evaluated) -> Mask:
        """Subjects that a watchpoint leaves to another file; ``evaluated``: what it says of each."""
        subjects, watchpoint = self._plan.subjects, self._watchpoints[number]
        watch = subjects.watch[number]
        found_here = evaluated.finding
        finding = found_here if judging_plan(watchpoint).beyond_values else None
        answered = np.zeros(len(subjects), np.bool_)
        if judging_plan(watchpoint).condition.wire == WIRE_OPERATOR_OVERFLOW:
            return answered  # it is about the operator that wrote a file, and not about values
        for step, subject, row in self._equal_sources:
            use = subjects.covered_holder[number][subject] & watch[subject]
            inputs = use & subjects.input[subject]
            if finding is None:
                inputs[inputs] = self._answers_here(watchpoint, found_here, step, subject[inputs], row[inputs])
            self._answer(answered, watchpoint, (step, subject[inputs], row[inputs]), finding)
            if finding is not None:  # a weight that this graph only reads: that it did not change says nothing
                answered[subject[use & ~inputs]] = True
        step, subject, row = self._equal_own
        use = subjects.covered_node[number][subject] & watch[subject]
        self._answer(answered, watchpoint, (step, subject[use], row[use]), finding)
        self._answer_repeats(answered, watch, finding)
        if len(self._unknown_inputs):
            self._answer_without_graph(answered, number, finding)
        answered &= watch
        return answered

    def _answers_here(self, watchpoint: Watchpoint, finding: Int16, step: int, subject: Int64, row: Int64) -> Mask:
        """Tells which equal files answer for an input within its own step and graph.

        What was left by another step, or by another graph's run, may not be asked for: a finding is left to it only
        where the file of the tensor itself, written by this run, is one as well.
        """
        answers = np.ones(len(subject), np.bool_)
        doubtful = np.flatnonzero(finding[subject] >= 0)
        if len(doubtful) and step == self._plan.step:
            holder = self._plan.subjects.holder[subject[doubtful]]
            doubtful = doubtful[self._measurements.flow.table(step).node[row[doubtful]] != holder]
        if len(doubtful):
            current = self._current_rows[subject[doubtful]]
            found = (
                evaluator_of(self._measurements, self._plan.step, np.maximum(current, 0))
                .evaluate(watchpoint, np.zeros(len(current), np.bool_))
                .finding
                >= 0
            )
            answers[doubtful] = found & (current >= 0)
        return answers

    def _answer(
        self, answered: Mask, watchpoint: Watchpoint, pairs: tuple[int, Int64, Int64], finding: Int16 | None
    ) -> None:
        """A file that holds the same answers, unless a comparison with the step before finds more here.

        Equal values now may have been different ones before: a file that stopped changing can equal what its producer
        made a step ago, and one whose shape changed can hold the same elements.
        """
        step, subject, row = pairs
        if finding is not None:
            found = finding[subject] >= 0
            answered[subject[~found]] = True
            subject, row = subject[found], row[found]
            if not len(subject):
                return
            evaluator = evaluator_of(self._measurements, step, row)
            other = evaluator.evaluate(watchpoint, np.zeros(len(row), np.bool_)).finding
            subject = subject[finding[subject] == other]
        answered[subject] = True

    def _answer_repeats(self, answered: Mask, watch: Mask, finding: Int16 | None) -> None:
        """Of several inputs that hold the same tensor with the same values, the first one is judged."""
        inputs, groups = self._known_inputs, self._input_groups
        candidates = watch[inputs] & ~answered[inputs]
        later = _later(groups, candidates)
        if finding is not None:
            code = finding[inputs].astype(np.int64)
            if (code[candidates] >= 0).any():
                _, alike = np.unique(groups * _CODES + code + 1, return_inverse=True)
                later &= (code < 0) | _later(alike, candidates)
        answered[inputs[later]] = True

    def _answer_without_graph(self, answered: Mask, number: int, finding: Int16 | None) -> None:
        """Without a graph nobody says what an input holds: an operator's flag or axis, or what was judged already.

        A watchpoint that names the node gets the flags and axes too; one that compares with the previous step is
        judged on every tensor.
        """
        subjects = self._plan.subjects
        by_category = all(
            selector.kind is NodeKind.CATEGORY for selector in self._watchpoints[number].selection.include
        )
        if by_category:
            answered[self._unknown_inputs[self._flags]] = True
        if finding is not None:
            return
        candidates = np.flatnonzero(subjects.watch[number] & ~answered & self._measured)
        later = candidates[_later(_groups(self._values[candidates]), np.ones(len(candidates), np.bool_))]
        open_rows = np.zeros(len(subjects), np.bool_)
        open_rows[self._unknown_inputs[~self._flags]] = True
        answered[later[open_rows[later] & self._distinctive[later]]] = True

    def _operators_flags(self) -> Mask:
        """Inputs of unknown origin that are an operator's flag or axis rather than a tensor."""
        metas = self._records.metas
        flag = [meta.shape == () and meta.dtype.startswith(("bool", "int", "uint")) for meta in metas]
        numbers = self._records.rows["meta"][self._plan.subjects.row[self._unknown_inputs]]
        mask: Mask = np.array([*flag, False], np.bool_)[numbers]
        mask &= self._measured[self._unknown_inputs]
        return mask

    def _equal(self, step: int, subject: Int64, row: Int64) -> tuple[int, Int64, Int64]:
        """The pairs of a subject and a file of a step that hold the same values."""
        other = self._measurements.records(step)
        at = self._plan.subjects.row[subject]
        # Most files that could be equal are: whether they are is asked of one word first, then of all.
        likely = self._records.rows["sum_squares"][at] == other.rows["sum_squares"][row]
        likely &= self._measured[subject] & (other.rows["state"][row] == State.MEASURED)
        at, subject, row = at[likely], subject[likely], row[likely]
        same = (_words(self._records, at) == _words(other, row)).all(axis=1)
        return step, subject[same], row[same]


def _words(records: Records, rows: Int64) -> Int64:
    """The statistics of some rows as they lie in memory: equal words, equal statistics."""
    table = records.rows.view(np.int64).reshape(-1, ROW.itemsize // 8)
    words: Int64 = np.take(table, rows, axis=0)[:, :_WORDS]
    return words


def _groups(words: Int64, place: Int64 | None = None) -> Int64:
    """A number for each row, below their count, the same for rows of equal words (at an equal place)."""
    columns: Iterable[npt.NDArray[Any]] = words.T if place is None else (*words.T, place)
    # Sorting by a mixture of all words is quick; rows that only collide there are told apart by the words themselves.
    mixed = np.zeros(len(words), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    order = np.argsort(mixed, kind="stable")
    differs = (words[order[1:]] != words[order[:-1]]).any(axis=1) | (mixed[order[1:]] != mixed[order[:-1]])
    if place is not None:
        differs |= place[order[1:]] != place[order[:-1]]
    numbers = np.zeros(len(words), np.int64)
    numbers[order[1:]] = np.cumsum(differs)
    return numbers


def _later(groups: Int64, candidates: Mask) -> Mask:
    """Candidates that come after another candidate of their group."""
    at = np.flatnonzero(candidates)
    later: Mask = candidates.copy()
    first = np.empty(int(groups.max(initial=0)) + 1, np.int64)
    first[groups[at[::-1]]] = at[::-1]  # of several that are written to one place the last one stays: the first here
    later[first[groups[at]]] = False
    return later


TOGETHER: Final = 1 << 26
"""Bytes of files that are read together at most, unless one step alone has more."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result of checking one step of one rank.

    Attributes:
        hits: what it found.
        coverage: what it looked at.
        judged: bits over the node rows (``np.packbits``): the nodes of which a watchpoint could judge some tensor.
    """

    hits: HitList
    coverage: Coverage
    judged: npt.NDArray[np.uint8]


class Checker:
    """Judges the steps of one rank with one state of the watchpoint list."""

    alone: ClassVar[bool] = False
    """Steps are judged by ``check_all`` only, which does more than reading, planning and judging."""

    def __init__(
        self,
        measurements: Measurements,
        watchpoints: Sequence[Watchpoint],
        mask: Callable[[Watchpoint], Mask],
        scope: Callable[[], Mask],
    ) -> None:
        """``mask`` gives the node rows of this rank that a watchpoint selects, ``scope`` those that may be checked."""
        self.measurements = measurements
        self.flow = measurements.flow
        self.planner = Planner(self.flow, watchpoints, mask, scope)

    def check(self, step: int, progress: ProgressFn = no_progress) -> PairResult:
        """Checks one step.

        Raises:
            CancelledError: from ``progress``; what was measured is kept for the next time.
            RenumberedError: the nodes were read anew meanwhile.
        """
        ((_, result),) = self.check_all([step], progress)
        return result

    def check_all(self, steps: Sequence[int], progress: ProgressFn = no_progress) -> Iterator[tuple[int, PairResult]]:
        """Checks some steps, in run order; the files of small ones are read together, each once.

        Raises:
            CancelledError: from ``progress``; what was measured is kept for the next time.
            RenumberedError: the nodes were read anew meanwhile.
        """
        done = 0
        for group in self.batches(steps):
            if group is None:
                continue
            wants = RequiredByStep()
            plans = [self.planner.plan(step, wants) for step in group]
            part = scaled(progress, done, len(steps), len(group))
            self.measurements.ensure_all(wants, part, self.text(group))
            for plan in plans:
                yield plan.step, self.judge(plan, part)
            done += len(group)

    def batches(self, steps: Sequence[int]) -> Iterator[list[int] | None]:
        """Steps that are read together: a large one stands alone, so that it keeps no other from being finished.

        None after every step that was listed.
        """
        group: list[int] = []
        size = 0
        for step in steps:
            own = self.measurements.size(step)
            yield None
            if group and size + own > TOGETHER:
                yield group
                group, size = [], 0
            group.append(step)
            size += own
        if group:
            yield group

    def cost(self, step: int) -> int:
        """Bytes of the files that a check of this step would read; 0 when everything is known."""
        return self.measurements.cost(self.planner.plan(step).wants)

    def text(self, steps: Sequence[int]) -> str:
        """Returns what is being read, in words."""
        named = f"step {steps[0]}" if len(steps) == 1 else f"step {min(steps)}–{max(steps)}"
        return f"rank {self.flow.rank} {named}"

    def judge(self, plan: Plan, progress: ProgressFn) -> PairResult:
        """Judges a step of which everything was measured that its plan wants.

        Raises:
            CancelledError: from ``progress``.
        """
        designs = StepDesigns(self.measurements, plan.step, progress)
        designed = designs.rows
        with self.measurements.locked():
            judged = _Judged(plan, self.planner, self.measurements)
            hits = self._hits(plan, judged)
            candidates = self._may_be_origins(hits, designed)
            hits.evaluate(candidates)
        by_design = designs.mark(hits)
        made = [hits.make(index) for index in candidates]
        origins = find_origins(self.measurements, plan.step, made, progress)
        hits.origin[[index for index, hit in zip(candidates, made, strict=True) if hit.key in origins]] = True
        coverage = replace(judged.coverage((self.flow.rank, plan.step), hits), by_design=by_design)
        return PairResult(HitList([hits]), coverage, judged.nodes(len(self.flow.nodes)))

    def _may_be_origins(self, hits: StepHits, designed: Mask) -> list[int]:
        rows = hits.records.rows
        bad = np.flatnonzero((rows["nan"] > 0) | (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0))
        if not len(bad):
            return []
        tainted = surely_tainted(self.measurements, hits.step, hits.node[bad], hits.side[bad], hits.slot[bad], designed)
        candidates: list[int] = bad[~tainted].tolist()
        return candidates

    def _hits(self, plan: Plan, judged: _Judged) -> StepHits:
        table, subjects = self.flow.table(plan.step), plan.subjects
        chosen = np.flatnonzero(judged.reported)
        row = subjects.row[chosen]
        records = Records(len(row))
        records.place(self.measurements.records(plan.step), row, np.arange(len(row)))
        return StepHits(
            rank=self.flow.rank,
            step=plan.step,
            nodes=self.flow.nodes,
            node=subjects.node[chosen],
            side=table.side[row],
            slot=table.slot[row],
            order=table.order[row],
            round=table.round[row],
            # Parameters of a graph that called others are written after those ran: rows stand in the order of time.
            turn=np.maximum.accumulate(self.flow.turns(plan.step, subjects.node[chosen], table.round[row])),
            records=records,
            watchpoints=tuple([(w, False) for w in self.planner.regular] + [(w, True) for w in self.planner.initial]),
            verdicts=judged.verdicts[:, chosen],
            first=plan.first[chosen],
            origin=np.zeros(len(row), np.bool_),
            overflows={
                at: overflow_text(table, int(row[at])) for at in np.flatnonzero(overflowed(table, row)).tolist()
            },
        )


class _Judged:
    """The verdicts of the watchpoints on the subjects of a step.

    Attributes:
        verdicts: [watchpoint, subject]: a ``Verdict`` or ``SILENT``; the regular watchpoints come first.
        reported: subjects that some watchpoint has something to say about.
    """

    def __init__(self, plan: Plan, planner: Planner, measurements: Measurements) -> None:
        subjects, records = plan.subjects, measurements.records(plan.step)
        self._plan = plan
        self._held = holds_tensors(planner.flow.table(plan.step))
        self._watchpoints = [*planner.regular, *planner.initial]
        state = records.rows["state"][subjects.row]
        # A file that healed since it was measured is not known: a refresh is about to ask for another check.
        self._known: Mask = state != State.UNKNOWN
        self._unreadable: Mask = state == State.UNREADABLE
        self._wanted = np.concatenate([subjects.watch, plan.initial])
        self._watched = self._wanted & self._known
        self.verdicts = np.full(self._wanted.shape, SILENT, np.int8)
        if any(needs(watchpoint).previous_stats for watchpoint in self._watchpoints):
            measurements.fill_previous_stats(plan.step, subjects.row)
            for step, _, rows in plan.references:
                measurements.fill_previous_stats(step, np.unique(rows))
            measurements.fill_previous_stats(plan.step, np.unique(subjects.own[1]))
        evaluator = evaluator_of(measurements, plan.step, subjects.row)
        copies = DuplicateInputs(plan, planner.regular, measurements)
        for number, watchpoint in enumerate(planner.regular):
            evaluated = evaluator.evaluate(watchpoint, plan.first)
            self._watched[number] &= ~copies.answered(number, evaluated)
            self.verdicts[number] = np.where(self._watched[number], evaluated.verdict, SILENT)
        every = np.ones(len(subjects), np.bool_)
        for number, watchpoint in enumerate(planner.initial, len(planner.regular)):
            evaluated = evaluator.evaluate(watchpoint, every, initial=True)
            self.verdicts[number] = np.where(self._watched[number], evaluated.verdict, SILENT)
        self.reported: Mask = (self.verdicts != SILENT).any(axis=0)

    def nodes(self, count: int) -> npt.NDArray[np.uint8]:
        """See ``PairResult.judged``."""
        judged = self._watched & (self.verdicts != Verdict.CANNOT_JUDGE) & (self.verdicts != Verdict.NOT_COMPARABLE)
        mask = np.zeros(count, np.bool_)
        mask[self._plan.subjects.node[judged.any(axis=0)]] = True
        return np.packbits(mask)

    def coverage(self, pair: tuple[int, int], hits: StepHits) -> Coverage:
        """Returns what was looked at; ``hits`` know what is by design."""
        wanted, judged = self._wanted.any(axis=0), self._watched.any(axis=0)
        copies = int((wanted & self._known & ~judged).sum())
        counts = zip(self._watchpoints, self._watched.sum(axis=1).tolist(), strict=True)
        return Coverage(
            checked=int((judged & ~self._unreadable).sum()),
            unreadable=int((judged & self._unreadable).sum()),
            not_comparable=int((self.verdicts == Verdict.NOT_COMPARABLE).any(axis=0).sum()),
            skipped=self._plan.subjects.skipped + int((~wanted).sum()) + copies,
            steps=(pair,) if self._held else (),
            watched=tuple(sorted((w.id, count) for w, count in counts if count)),
            blocked=hits.counted(Verdict.BLOCKED),
            by_design=int((hits.verdicts == Verdict.BY_DESIGN).any(axis=0).sum()),
            constants=self._plan.subjects.constants,
        )
