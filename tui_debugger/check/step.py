"""Evaluates the watchpoints on steps of one rank, as columns over the subjects of a few steps.

Input files that only repeat a file that the same watchpoint judges are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from tui_debugger.arrays import Array, Int8, Int16, Int64, Mask, UInt8
from tui_debugger.check.flow import holds_tensors
from tui_debugger.check.hits import HitList, StepHits, facts_of, overflow_text, overflowed
from tui_debugger.check.measure import Measurements
from tui_debugger.check.plan import AskedRows, Planner, RequiredByStep, StepPlan, Subjects, every_row
from tui_debugger.check.progress import scaled
from tui_debugger.model import Coverage, NodeKind, ProgressFn, Verdict, Watchpoint, no_progress
from tui_debugger.stats.fields import STORED
from tui_debugger.stats.records import ROW, Records, RecordState, holds_bad
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, Evaluated, Facts, judging_plan, needs

_WORDS: Final = len(STORED)
"""A row of ``Records`` starts with this many words of eight bytes, which are its statistics."""
_CODES: Final = 1 << 10
"""More than there are values of ``Evaluated.finding``."""

JUDGED_TOGETHER: Final = 1 << 14
"""Tensors of several steps that are judged as one table at most, unless one step alone has more.

For small steps numpy's overhead of each call exceeds the work on the tensors.
"""


class JudgedFiles:
    """The subjects of several steps as one table, followed by the files that they are compared with.

    Row i of all columns is subject i of the concatenated plans. ``held`` are (subject, row) of files of the tensor that
    a subject holds (see ``StepPlan.references``), ``current`` by subject the row of such a file of this run, -1 without
    one.
    """

    def __init__(self, plans: Sequence[StepPlan], measurements: Measurements) -> None:
        """Everything that the plans require must be measured."""
        self._flow = measurements.flow
        self._count = 0
        self._chunks: list[tuple[int, Int64]] = []
        self._places: dict[int, Int64] = {}
        starts = [self._add(plan.step, plan.subjects.row) for plan in plans]
        self.subjects = self._joined(plans, starts)
        self.first: Mask = np.concatenate([plan.first for plan in plans])
        self.initial: Mask = np.concatenate([plan.initial for plan in plans], axis=1)
        held, self.current = [], np.full(self._count, -1, np.int64)
        for plan, start in zip(plans, starts, strict=True):
            for number, (step, subject, row) in enumerate(plan.references):
                held.append((subject + start, self._at(step, row)))
                if not number:  # the first are the files of this run
                    self.current[held[-1][0]] = held[-1][1]
        self.held = _paired(held)
        tables = [self._flow.table(step) for step, _ in self._chunks]
        self.records = self._records(measurements)
        self.step: Int64 = np.repeat([step for step, _ in self._chunks], [len(rows) for _, rows in self._chunks])
        self.node = self._column([table.node for table in tables])
        self.round = self._column([table.round for table in tables])
        self._side = self._column([table.side for table in tables])
        self._slot = self._column([table.slot for table in tables])
        self._overflowed = np.concatenate(
            [overflowed(table, rows) for table, (_, rows) in zip(tables, self._chunks, strict=True)]
        )

    def _records(self, measurements: Measurements) -> Records:
        if len(self._chunks) == 1:
            ((step, rows),) = self._chunks
            kept = measurements.records(step)
            if np.array_equal(rows, np.arange(len(kept))):
                return kept
        records, start = Records(self._count), 0
        for step, rows in self._chunks:
            records.place(measurements.records(step), rows, np.arange(start, start + len(rows)))
            start += len(rows)
        return records

    def evaluator(self, rows: Int64) -> ColumnEvaluator:
        def facts() -> Facts:
            at = self._flow.rank, self.step[rows]
            return facts_of(self._flow.nodes, at, self.node[rows], self._side[rows], self._slot[rows])

        return ColumnEvaluator(self.records, rows, facts, self._overflowed[rows])

    def _joined(self, plans: Sequence[StepPlan], starts: Sequence[int]) -> Subjects:
        every = [plan.subjects for plan in plans]
        own = _paired(
            [
                (each.own[0] + start, self._at(plan.step, each.own[1]))
                for plan, each, start in zip(plans, every, starts, strict=True)
            ]
        )
        return Subjects(
            row=np.arange(sum(map(len, every))),
            node=np.concatenate([each.node for each in every]),
            input=np.concatenate([each.input for each in every]),
            holder=np.concatenate([each.holder for each in every]),
            holder_slot=np.concatenate([each.holder_slot for each in every]),
            watch=np.concatenate([each.watch for each in every], axis=1),
            covered_holder=np.concatenate([each.covered_holder for each in every], axis=1),
            covered_node=np.concatenate([each.covered_node for each in every], axis=1),
            own=own,
            skipped=sum(each.skipped for each in every),
            constants=sum(each.constants for each in every),
        )

    def _add(self, step: int, rows: Int64) -> int:
        start = self._count
        if step not in self._places:
            self._places[step] = np.full(len(self._flow.table(step)), -1, np.int64)
        self._count += len(rows)
        self._places[step][rows] = np.arange(start, self._count)
        self._chunks.append((step, rows))
        return start

    def _at(self, step: int, rows: Int64) -> Int64:
        known = self._places.get(step)
        missing = rows if known is None else rows[known[rows] < 0]
        if len(missing):
            self._add(step, np.unique(missing))
        return self._places[step][rows] if len(rows) else rows

    def _column(self, columns: Sequence[Array]) -> Int64:
        parts = [column[rows] for column, (_, rows) in zip(columns, self._chunks, strict=True)]
        joined: Int64 = np.concatenate(parts).astype(np.int64)
        return joined


def _paired(pairs: Sequence[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    one, other = zip(*pairs, strict=True)
    return np.concatenate(one), np.concatenate(other)


class DuplicateInputs:
    """Finds the watchpoints that need not judge an input, because a file with the same values answers for it."""

    def __init__(self, files: JudgedFiles, watchpoints: Sequence[Watchpoint]) -> None:
        self._files = files
        self._watchpoints = watchpoints
        subjects = files.subjects
        rows = files.records.rows[: len(subjects)]
        self._measured: Mask = rows["state"] == RecordState.MEASURED
        bad = holds_bad(rows)
        # Equal statistics mean equal values, but zeros and scalars equal something else by chance.
        varied = ~np.isnan(rows["variance"]) & (rows["variance"] != 0)
        self._telling: Mask = varied & ~bad
        """Subjects whose statistics prove an equal tensor: with NaN, equal statistics leave values and places open."""
        self._equal_held = self._equal(*files.held)
        of, own = subjects.own
        telling = self._telling[of] | (bad[of] & (subjects.holder[of] >= 0))
        self._equal_own = self._equal(of[telling], own[telling])
        self._known_inputs = np.flatnonzero(subjects.input & (subjects.holder >= 0) & self._measured)
        place = subjects.holder[self._known_inputs] << 32 | subjects.holder_slot[self._known_inputs] << 16
        place |= files.round[self._known_inputs]
        self._input_groups = self._groups(self._known_inputs, place)
        self._unknown_inputs = np.flatnonzero(subjects.input & (subjects.holder < 0))
        self._flags = self._operators_flags() if len(self._unknown_inputs) else np.zeros(0, np.bool_)

    def answered(self, number: int, evaluated: Evaluated) -> Mask:
        """Subjects for which another file answers a watchpoint, given its results on each subject."""
        subjects, watchpoint = self._files.subjects, self._watchpoints[number]
        watch = subjects.watch[number]
        found_here = evaluated.finding
        finding = found_here if judging_plan(watchpoint).beyond_values else None
        answered = np.zeros(len(subjects), np.bool_)
        if judging_plan(watchpoint).condition.is_device_overflow:
            return answered  # the device's overflow concerns the operator, not values
        subject, row = self._equal_held
        use = subjects.covered_holder[number][subject] & watch[subject]
        inputs = use & subjects.input[subject]
        if finding is None:
            inputs[inputs] = self._answers_here(watchpoint, found_here, subject[inputs], row[inputs])
        self._answer(answered, watchpoint, (subject[inputs], row[inputs]), finding)
        if finding is not None:  # a weight that this graph only reads is not expected to change
            answered[subject[use & ~inputs]] = True
        subject, row = self._equal_own
        use = subjects.covered_node[number][subject] & watch[subject]
        self._answer(answered, watchpoint, (subject[use], row[use]), finding)
        self._answer_repeats(answered, watch, finding)
        if len(self._unknown_inputs):
            self._answer_without_graph(answered, number, finding)
        answered &= watch
        return answered

    def _answers_here(self, watchpoint: Watchpoint, finding: Int16, subject: Int64, row: Int64) -> Mask:
        """Tells which equal files answer for an input within its own step and graph.

        Files of other steps or graphs may not be part of the check. They answer for a finding only if the tensor's own
        file of this run has the finding as well.
        """
        files = self._files
        answers = np.ones(len(subject), np.bool_)
        of, other = subject, row
        own = (files.step[other] == files.step[of]) & (files.node[other] == files.subjects.holder[of])
        doubtful = np.flatnonzero((finding[of] >= 0) & ~own)
        if len(doubtful):
            current = files.current[subject[doubtful]]
            evaluator = files.evaluator(np.maximum(current, 0))
            found = evaluator.evaluate(watchpoint, np.zeros(len(current), np.bool_)).finding >= 0
            answers[doubtful] = found & (current >= 0)
        return answers

    def _answer(
        self, answered: Mask, watchpoint: Watchpoint, pairs: tuple[Int64, Int64], finding: Int16 | None
    ) -> None:
        """An equal file answers, unless a comparison with the previous step finds more on the subject.

        Equal values may have had different previous values: a file that stopped changing can equal its producer's
        output of the step before, and one whose shape changed can hold the same elements.
        """
        subject, row = pairs
        if finding is not None:
            found = finding[subject] >= 0
            answered[subject[~found]] = True
            subject, row = subject[found], row[found]
            if not len(subject):
                return
            other = self._files.evaluator(row).evaluate(watchpoint, np.zeros(len(row), np.bool_)).finding
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
        """Without a graph, leaves out inputs that are an operator's flag or axis, or equal a judged tensor.

        Watchpoints that name the node judge flags and axes too; those on changes judge every tensor.
        """
        subjects = self._files.subjects
        by_category = all(
            selector.kind is NodeKind.CATEGORY for selector in self._watchpoints[number].selection.include
        )
        if by_category:
            answered[self._unknown_inputs[self._flags]] = True
        if finding is not None:
            return
        candidates = np.flatnonzero(subjects.watch[number] & ~answered & self._measured)
        groups = self._groups(candidates, self._types(candidates))
        later = candidates[_later(groups, np.ones(len(candidates), np.bool_))]
        open_rows = np.zeros(len(subjects), np.bool_)
        open_rows[self._unknown_inputs[~self._flags]] = True
        answered[later[open_rows[later] & self._telling[later]]] = True

    def _types(self, subject: Int64) -> Int64:
        """Numbers the element type of each subject: a tensor of another type is a cast, not a copy."""
        records = self._files.records
        numbers: dict[str, int] = {}
        types = [numbers.setdefault(meta.dtype, len(numbers)) for meta in records.metas]
        found: Int64 = np.array([*types, -1], np.int64)[records.rows["meta"][subject]]
        return found

    def _operators_flags(self) -> Mask:
        """Inputs of unknown origin that are an operator's flag or axis rather than a tensor."""
        records = self._files.records
        flag = [meta.shape == () and meta.dtype.startswith(("bool", "int", "uint")) for meta in records.metas]
        mask: Mask = np.array([*flag, False], np.bool_)[records.rows["meta"][self._unknown_inputs]]
        mask &= self._measured[self._unknown_inputs]
        return mask

    def _equal(self, subject: Int64, row: Int64) -> tuple[Int64, Int64]:
        records = self._files.records
        # Most files that could be equal are equal: one word of each is compared first, then all words.
        squares, measured = records.rows["sum_squares"], records.rows["state"] == RecordState.MEASURED
        likely = (squares[subject] == squares[row]) & measured[subject] & measured[row]
        subject, row = subject[likely], row[likely]
        same = (_words(records, subject) == _words(records, row)).all(axis=1)
        return subject[same], row[same]

    def _groups(self, subject: Int64, place: Int64 | None = None) -> Int64:
        """A number for each subject, shared by subjects of a step with equal statistics (at an equal place)."""
        places = [self._files.step[subject], *([place] if place is not None else [])]
        return _groups(_words(self._files.records, subject), places)


def _words(records: Records, rows: Int64) -> Int64:
    """The statistics of some rows as they lie in memory: equal words, equal statistics."""
    table = records.rows.view(np.int64).reshape(-1, ROW.itemsize // 8)
    words: Int64 = np.take(table, rows, axis=0)[:, :_WORDS]
    return words


def _groups(words: Int64, places: Sequence[Int64]) -> Int64:
    """A number below their count for each row, the same for rows of equal words at equal places."""
    # Sorting by a mixture of all words is quick; rows with the same mixture are compared by the words themselves.
    mixed = np.zeros(len(words), np.uint64)
    for column in (*words.T, *places):
        mixed = (mixed ^ column.view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    order = np.argsort(mixed, kind="stable")
    differs = (words[order[1:]] != words[order[:-1]]).any(axis=1) | (mixed[order[1:]] != mixed[order[:-1]])
    for place in places:
        differs |= place[order[1:]] != place[order[:-1]]
    numbers = np.zeros(len(words), np.int64)
    numbers[order[1:]] = np.cumsum(differs)
    return numbers


def _later(groups: Int64, candidates: Mask) -> Mask:
    """Candidates that come after another candidate of their group."""
    at = np.flatnonzero(candidates)
    later: Mask = candidates.copy()
    first = np.empty(int(groups.max(initial=0)) + 1, np.int64)
    first[groups[at[::-1]]] = at[::-1]  # reversed, so that the first candidate of a group wins
    later[first[groups[at]]] = False
    return later


TOGETHER: Final = 1 << 26
"""Bytes of files that are read together at most, unless one step alone has more."""
_TENSOR: Final = 1 << 9
"""Bytes that each tensor counts in addition: its record and its file's state stay in memory until all are judged."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result of checking one step of one rank."""

    hits: HitList
    coverage: Coverage
    judged: UInt8  # ``np.packbits`` over node rows: nodes with a tensor that could be judged


MarkHits = Callable[[Measurements, StepHits, ProgressFn], int]
"""Marks which hits of a step are origins, and which are by design; returns how many are by design."""


class StepChecker:
    """Judges the steps of one rank with one state of the watchpoint list."""

    alone: ClassVar[bool] = False
    """Steps are judged by ``check_all`` only, which does more than reading, planning and judging."""

    def __init__(
        self,
        measurements: Measurements,
        watchpoints: Sequence[Watchpoint],
        mask: Callable[[Watchpoint], Mask],
        scope: Callable[[], Mask],
        asked: AskedRows = every_row,
        *,
        mark: MarkHits,
    ) -> None:
        """``mask``, ``scope``, ``asked``: see ``Planner``. ``mark`` marks the hits of every step."""
        self.measurements = measurements
        self.mark = mark
        self.flow = measurements.flow
        self.planner = Planner(self.flow, watchpoints, mask, scope, asked)

    def check(self, step: int, progress: ProgressFn = no_progress) -> PairResult:
        ((_, result),) = self.check_all([step], progress)
        return result

    def check_all(self, steps: Sequence[int], progress: ProgressFn = no_progress) -> Iterator[tuple[int, PairResult]]:
        """Checks some steps, in run order; small steps are read together. RenumberedError: the nodes were read anew."""
        done = 0
        for group in self.batches(steps):
            if group is None:
                continue
            required = RequiredByStep()
            plans = [self.planner.plan(step, required) for step in group]
            part = scaled(progress, done, len(steps), len(group))
            self.measurements.ensure_all(required, part, self.text(group))
            yield from self.judge(plans, part)
            done += len(group)

    def batches(self, steps: Sequence[int]) -> Iterator[list[int] | None]:
        """Steps that are read together; a large step stands alone, so that it delays no other. None per listing."""
        group: list[int] = []
        size = 0
        for step in steps:
            self.measurements.kept(step)  # first: looking up stored records asks for the sizes of files
            own = self.measurements.size(step) + _TENSOR * len(self.flow.table(step))
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
        return self.measurements.cost(self.planner.plan(step).required)

    def text(self, steps: Sequence[int]) -> str:
        named = f"step {steps[0]}" if len(steps) == 1 else f"step {min(steps)}–{max(steps)}"
        return f"rank {self.flow.rank} {named}"

    def judge(self, plans: Sequence[StepPlan], progress: ProgressFn) -> Iterator[tuple[int, PairResult]]:
        """Judges steps whose required statistics were measured, several small steps at once."""
        together: list[StepPlan] = []
        for plan in plans:
            if together and sum(len(each.subjects) for each in (*together, plan)) > JUDGED_TOGETHER:
                yield from self._judge_together(together, progress)
                together = []
            together.append(plan)
        if together:
            yield from self._judge_together(together, progress)

    def _judge_together(self, plans: Sequence[StepPlan], progress: ProgressFn) -> Iterator[tuple[int, PairResult]]:
        with self.measurements.locked():
            judged = judged_steps(plans, self.planner, self.measurements)
            hits = [self._hits(each) for each in judged]
        for step, found in zip(judged, hits, strict=True):
            yield step.plan.step, self._result(step, found, progress)

    def _result(self, judged: JudgedStep, hits: StepHits, progress: ProgressFn) -> PairResult:
        by_design = self.mark(self.measurements, hits, progress)
        coverage = replace(judged.coverage((hits.rank, hits.step), hits), by_design=by_design)
        return PairResult(HitList([hits]), coverage, judged.nodes(len(self.flow.nodes)))

    def _hits(self, judged: JudgedStep) -> StepHits:
        plan = judged.plan
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


@dataclass(frozen=True, eq=False)
class JudgedStep:
    """The verdicts of the watchpoints on the subjects of a step."""

    plan: StepPlan
    watchpoints: Sequence[Watchpoint]  # the regular ones come first
    verdicts: Int8  # [watchpoint, subject]: a ``Verdict`` or ``SILENT``
    wanted: Mask  # [watchpoint, subject]: which should judge; ``watched``: which did
    watched: Mask
    state: UInt8  # the ``RecordState`` of each subject
    holds_tensors: bool

    @property
    def reported(self) -> Mask:
        found: Mask = (self.verdicts != SILENT).any(axis=0)
        return found

    def nodes(self, count: int) -> UInt8:
        judged = self.watched & (self.verdicts != Verdict.CANNOT_JUDGE) & (self.verdicts != Verdict.NOT_COMPARABLE)
        mask = np.zeros(count, np.bool_)
        mask[self.plan.subjects.node[judged.any(axis=0)]] = True
        return np.packbits(mask)

    def coverage(self, pair: tuple[int, int], hits: StepHits) -> Coverage:
        """The coverage of the step; ``hits`` must be marked."""
        wanted, judged = self.wanted.any(axis=0), self.watched.any(axis=0)
        # A file that healed since it was measured counts as unknown: a refresh will ask for another check.
        copies = int((wanted & (self.state != RecordState.UNKNOWN) & ~judged).sum())
        unreadable = self.state == RecordState.UNREADABLE
        counts = zip(self.watchpoints, self.watched.sum(axis=1).tolist(), strict=True)
        return Coverage(
            checked=int((judged & ~unreadable).sum()),
            unreadable=int((judged & unreadable).sum()),
            not_comparable=int((self.verdicts == Verdict.NOT_COMPARABLE).any(axis=0).sum()),
            skipped=self.plan.subjects.skipped + int((~wanted).sum()) + copies,
            steps=(pair,) if self.holds_tensors else (),
            watched=tuple(sorted((w.id, count) for w, count in counts if count)),
            blocked=hits.counted(Verdict.BLOCKED),
            by_design=int((hits.verdicts == Verdict.BY_DESIGN).any(axis=0).sum()),
            constants=self.plan.subjects.constants,
        )


def judged_steps(plans: Sequence[StepPlan], planner: Planner, measurements: Measurements) -> list[JudgedStep]:
    watchpoints = [*planner.regular, *planner.initial]
    if any(needs(watchpoint).previous_stats for watchpoint in watchpoints):
        for plan in plans:
            _fill_previous_stats(plan, measurements)
    files = JudgedFiles(plans, measurements)
    subjects = files.subjects
    state = files.records.rows["state"][: len(subjects)].copy()  # a copy: other threads may change the records
    wanted = np.concatenate([subjects.watch, files.initial])
    watched = wanted & (state != RecordState.UNKNOWN)
    verdicts = np.full(wanted.shape, SILENT, np.int8)
    evaluator = files.evaluator(subjects.row)
    copies = DuplicateInputs(files, planner.regular)
    for number, watchpoint in enumerate(watchpoints):
        initial = number >= len(planner.regular)
        evaluated = evaluator.evaluate(watchpoint, files.first | initial, initial=initial)
        if not initial:
            watched[number] &= ~copies.answered(number, evaluated)
        verdicts[number] = np.where(watched[number], evaluated.verdict, SILENT)
    found, start = [], 0
    for plan in plans:
        of = slice(start, start + len(plan.subjects))
        start = of.stop
        columns = verdicts[:, of], wanted[:, of], watched[:, of], state[of]
        found.append(JudgedStep(plan, watchpoints, *columns, holds_tensors(planner.flow.table(plan.step))))
    return found


def _fill_previous_stats(plan: StepPlan, measurements: Measurements) -> None:
    measurements.fill_previous_stats(plan.step, plan.subjects.row)
    for step, _, rows in plan.references:
        measurements.fill_previous_stats(step, np.unique(rows))
    measurements.fill_previous_stats(plan.step, np.unique(plan.subjects.own[1]))
