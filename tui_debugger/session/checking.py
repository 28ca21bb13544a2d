"""Checks one step of one rank: plans, measures what is not known yet, judges, finds the origins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.model import Coverage, ProgressFn, Verdict, Watchpoint, no_progress
from tui_debugger.session.copies import Copies
from tui_debugger.session.flow import holds_tensors
from tui_debugger.session.hits import HitList, StepHits
from tui_debugger.session.measuring import Measurements
from tui_debugger.session.origin.by_design import StepDesigns
from tui_debugger.session.origin.examine import find_origins
from tui_debugger.session.origin.fed import surely_fed
from tui_debugger.session.plan import Plan, Planner
from tui_debugger.session.progress import scaled
from tui_debugger.session.wants import Wants
from tui_debugger.stats.records import Records, State
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator

TOGETHER: Final = 1 << 26
"""Bytes of files that are read together at most, unless one step alone has more."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """What checking one step of one rank found.

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
    """Whether steps are judged by ``check_all`` only, which does more than reading, planning and judging."""

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
        for group in self.groups(steps):
            if group is None:
                continue
            wants = Wants()
            plans = [self.planner.plan(step, wants) for step in group]
            part = scaled(progress, done, len(steps), len(group))
            self.measurements.ensure_all(wants, part, self.text(group))
            for plan in plans:
                yield plan.step, self.judge(plan, part)
            done += len(group)

    def groups(self, steps: Sequence[int]) -> Iterator[list[int] | None]:
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
        """What is being read, in words."""
        named = f"step {steps[0]}" if len(steps) == 1 else f"step {min(steps)}–{max(steps)}"
        return f"rank {self.flow.rank} {named}"

    def judge(self, plan: Plan, progress: ProgressFn) -> PairResult:
        """Judges a step of which everything was measured that its plan wants.

        Raises:
            CancelledError: from ``progress``.
        """
        designs = StepDesigns(self.measurements, plan.step, progress)
        designed = designs.rows
        with self.measurements.undisturbed():
            judged = _Judged(plan, self.planner, self.measurements)
            hits = self._hits(plan, judged)
            asked = self._may_be_origins(hits, designed)
        by_design = designs.mark(hits)
        made = [hits.make(index) for index in asked]
        origins = find_origins(self.measurements, plan.step, made, progress)
        hits.origin[[index for index, hit in zip(asked, made, strict=True) if hit.key in origins]] = True
        coverage = replace(judged.coverage((self.flow.rank, plan.step), hits), by_design=by_design)
        return PairResult(HitList([hits]), coverage, judged.nodes(len(self.flow.nodes)))

    def _may_be_origins(self, hits: StepHits, designed: Mask) -> list[int]:
        rows = hits.records.rows
        bad = np.flatnonzero((rows["nan"] > 0) | (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0))
        if not len(bad):
            return []
        fed = surely_fed(self.measurements, hits.step, hits.node[bad], hits.side[bad], hits.slot[bad], designed)
        asked: list[int] = bad[~fed].tolist()
        return asked

    def _hits(self, plan: Plan, judged: _Judged) -> StepHits:
        table, subjects = self.flow.table(plan.step), plan.subjects
        chosen = np.flatnonzero(judged.talked_about)
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
        )


class _Judged:
    """What the watchpoints say of the subjects of a step.

    Attributes:
        verdicts: [watchpoint, subject]: a ``Verdict`` or ``SILENT``; the regular watchpoints come first.
        talked_about: subjects that some watchpoint has something to say about.
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
        evaluator = ColumnEvaluator(records, subjects.row)
        copies = Copies(plan, planner.regular, measurements)
        for number, watchpoint in enumerate(planner.regular):
            said = evaluator.evaluate(watchpoint, plan.first)
            self._watched[number] &= ~copies.answered(number, said)
            self.verdicts[number] = np.where(self._watched[number], said.verdict, SILENT)
        every = np.ones(len(subjects), np.bool_)
        for number, watchpoint in enumerate(planner.initial, len(planner.regular)):
            said = evaluator.evaluate(watchpoint, every, initial=True)
            self.verdicts[number] = np.where(self._watched[number], said.verdict, SILENT)
        self.talked_about: Mask = (self.verdicts != SILENT).any(axis=0)

    def nodes(self, count: int) -> npt.NDArray[np.uint8]:
        """See ``PairResult.judged``."""
        told = self._watched & (self.verdicts != Verdict.CANNOT_JUDGE) & (self.verdicts != Verdict.NOT_COMPARABLE)
        mask = np.zeros(count, np.bool_)
        mask[self._plan.subjects.node[told.any(axis=0)]] = True
        return np.packbits(mask)

    def coverage(self, pair: tuple[int, int], hits: StepHits) -> Coverage:
        """What was looked at; ``hits`` know what is by design."""
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
