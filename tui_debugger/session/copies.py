"""Input files that only repeat what another file says: which watchpoints they leave to that file.

Decided for each watchpoint: a copy that another watchpoint judged says nothing about this one. Everything is a column
over the subjects of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int16, Int64, Mask
from tui_debugger.model import NodeKind, Watchpoint
from tui_debugger.session.measuring import Measurements
from tui_debugger.session.plan import Plan
from tui_debugger.stats.fields import STORED
from tui_debugger.stats.records import ROW, Records, State
from tui_debugger.watch.conditions import needs
from tui_debugger.watch.evaluate import ColumnEvaluator, Evaluated

_WORDS: Final = len(STORED)
"""A row of ``Records`` starts with so many words of eight bytes that are its statistics."""
_CODES: Final = 1 << 10
"""More than there are values of ``Sifted.finding``."""


class Copies:
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
        self._telling: Mask = bad | varied
        self._held = [self._equal(step, subject, row) for step, subject, row in plan.references]
        self._now = np.full(len(subjects), -1, np.int64)
        for _, subject, row in plan.references[:1]:  # the first are the files of this run
            self._now[subject] = row
        of, own = subjects.own
        telling = self._telling[of]
        self._own = self._equal(plan.step, of[telling], own[telling])
        self._values = _words(self._records, subjects.row)
        self._fed = np.flatnonzero(subjects.input & (subjects.holder >= 0) & self._measured)
        place = subjects.holder[self._fed] << 32 | subjects.holder_slot[self._fed] << 16
        place |= measurements.flow.table(plan.step).round[subjects.row[self._fed]].astype(np.int64)
        self._fed_groups = _groups(self._values[self._fed], place)
        self._unfed = np.flatnonzero(subjects.input & (subjects.holder < 0))
        self._flags = self._operators_flags() if len(self._unfed) else np.zeros(0, np.bool_)

    def answered(self, number: int, said: Evaluated) -> Mask:
        """Subjects that a watchpoint leaves to another file; ``said``: what it says of each."""
        subjects, watchpoint = self._plan.subjects, self._watchpoints[number]
        watch = subjects.watch[number]
        finding = said.finding if needs(watchpoint).previous else None
        answered = np.zeros(len(subjects), np.bool_)
        for step, subject, row in self._held:
            use = subjects.covered_holder[number][subject] & watch[subject]
            fed = use & subjects.input[subject]
            if finding is None:
                fed[fed] = self._answers_here(watchpoint, said, step, subject[fed], row[fed])
            self._answer(answered, watchpoint, (step, subject[fed], row[fed]), finding)
            if finding is not None:  # a weight that this graph only reads: that it did not change says nothing
                answered[subject[use & ~fed]] = True
        step, subject, row = self._own
        use = subjects.covered_node[number][subject] & watch[subject]
        self._answer(answered, watchpoint, (step, subject[use], row[use]), finding)
        self._answer_repeats(answered, watch, finding)
        if len(self._unfed):
            self._answer_without_graph(answered, number, finding)
        answered &= watch
        return answered

    def _answers_here(self, watchpoint: Watchpoint, said: Evaluated, step: int, subject: Int64, row: Int64) -> Mask:
        """Which equal files answer for an input within its own step and graph.

        What was left by another step, or by another graph's run, may not be asked for: a finding is left to it only
        where the file of the tensor itself, written by this run, is one as well.
        """
        foreign = self._measurements.flow.table(step).node[row] != self._plan.subjects.holder[subject]
        foreign |= step != self._plan.step
        doubtful = np.flatnonzero(foreign & (said.finding[subject] >= 0))
        answers = np.ones(len(subject), np.bool_)
        if len(doubtful):
            now = self._now[subject[doubtful]]
            found = (
                ColumnEvaluator(self._records, np.maximum(now, 0))
                .evaluate(watchpoint, np.zeros(len(now), np.bool_))
                .finding
                >= 0
            )
            answers[doubtful] = found & (now >= 0)
        return answers

    def _answer(
        self, answered: Mask, watchpoint: Watchpoint, pairs: tuple[int, Int64, Int64], finding: Int16 | None
    ) -> None:
        """A file that holds the same answers, unless a comparison with the step before finds more here.

        Equal values now may have been different ones before: a file that stopped changing can equal what its producer
        made a step ago, and one whose shape changed can hold the same elements.
        """
        step, subject, row = pairs
        if finding is not None and len(subject):
            records = self._measurements.records(step)
            other = ColumnEvaluator(records, row).evaluate(watchpoint, np.zeros(len(row), np.bool_)).finding
            subject = subject[(finding[subject] < 0) | (finding[subject] == other)]
        answered[subject] = True

    def _answer_repeats(self, answered: Mask, watch: Mask, finding: Int16 | None) -> None:
        """Of several inputs that hold the same tensor with the same values, the first one is judged."""
        fed, groups = self._fed, self._fed_groups
        candidates = watch[fed] & ~answered[fed]
        later = _later(groups, candidates)
        if finding is not None:
            code = finding[fed].astype(np.int64)
            if (code[candidates] >= 0).any():
                _, alike = np.unique(groups * _CODES + code + 1, return_inverse=True)
                later &= (code < 0) | _later(alike, candidates)
        answered[fed[later]] = True

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
            answered[self._unfed[self._flags]] = True
        if finding is not None:
            return
        candidates = np.flatnonzero(subjects.watch[number] & ~answered & self._measured)
        later = candidates[_later(_groups(self._values[candidates]), np.ones(len(candidates), np.bool_))]
        open_rows = np.zeros(len(subjects), np.bool_)
        open_rows[self._unfed[~self._flags]] = True
        answered[later[open_rows[later] & self._telling[later]]] = True

    def _operators_flags(self) -> Mask:
        """Inputs of unknown origin that are an operator's flag or axis rather than a tensor."""
        metas = self._records.metas
        flag = [meta.shape == () and meta.dtype.startswith(("bool", "int", "uint")) for meta in metas]
        numbers = self._records.rows["meta"][self._plan.subjects.row[self._unfed]]
        mask: Mask = np.array([*flag, False], np.bool_)[numbers]
        mask &= self._measured[self._unfed]
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
