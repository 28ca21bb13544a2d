"""Checks (rank, step) pairs: plans, measures what is not known yet, judges, finds the origins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from tui_debugger.analysis.conditions import evaluate
from tui_debugger.analysis.measure import measure
from tui_debugger.analysis.record import Job, Need, Record
from tui_debugger.model import (
    Coverage,
    Hit,
    Progress,
    ProgressFn,
    ReadSpec,
    Side,
    TensorKey,
    TensorMeta,
    TensorStats,
    Verdict,
    Watchpoint,
    WatchResult,
    no_progress,
)
from tui_debugger.session.flow import Flow
from tui_debugger.session.origin import OriginFinder
from tui_debugger.session.plan import Mask, Plan, Planner, Subject
from tui_debugger.session.records import Identity, RecordCache, identity
from tui_debugger.sources.base import TensorFlag, TensorTable


@dataclass(frozen=True, slots=True)
class PairResult:
    """What checking one step of one rank found."""

    hits: tuple[Hit, ...]
    coverage: Coverage


class Checker:
    """Judges the steps of one rank with one state of the watchpoint list."""

    def __init__(
        self,
        flow: Flow,
        cache: RecordCache,
        watchpoints: Sequence[Watchpoint],
        mask: Callable[[Watchpoint], Mask],
        executor: Executor | None = None,
    ) -> None:
        """``mask`` gives the node rows of this rank that a watchpoint covers."""
        self.flow = flow
        self.cache = cache
        self.executor = executor
        self.planner = Planner(flow, watchpoints, mask)

    def check(self, step: int, progress: ProgressFn = no_progress) -> PairResult:
        """Checks one step.

        Raises:
            CancelledError: from ``progress``; what was measured is kept for the next time.
        """
        plan = self.planner.plan(step)
        text = f"rank {self.flow.rank} step {step}"
        self.ensure(plan.needs, progress, text)
        judged = _Judged()
        for subject in plan.subjects:
            self._judge(plan, subject, judged)
        origins = OriginFinder(self).find(step, judged.hits, progress)
        hits = tuple(sorted((_with_origin(hit, hit.key in origins) for hit in judged.hits), key=lambda hit: hit.order))
        coverage = Coverage(
            checked=judged.checked,
            unreadable=judged.unreadable,
            not_comparable=judged.not_comparable,
            skipped=plan.skipped + judged.copies,
            steps=((self.flow.rank, step),),
        )
        return PairResult(hits, coverage)

    def cost(self, step: int) -> int:
        """Bytes of the files that a check of this step would read; 0 when everything is known."""
        plan = self.planner.plan(step)
        total = 0
        for (at, index), need in plan.needs.items():
            table = self.flow.table(at)
            if self.cache.get(self.flow.rank, at, identity(table, index), need) is None:
                total += _file_size(table, index)
        return total

    # -- measuring ---------------------------------------------------------------------------------

    def record(self, step: int, index: int) -> Record | None:
        """What is known about a tensor."""
        return self.cache.get(self.flow.rank, step, identity(self.flow.table(step), index))

    def ensure(self, needs: dict[tuple[int, int], Need], progress: ProgressFn = no_progress, text: str = "") -> None:
        """Measures every tensor of ``needs`` that is not known well enough yet."""
        jobs: list[Job] = []
        places: list[tuple[int, Identity]] = []
        for (step, index), need in needs.items():
            table = self.flow.table(step)
            key = identity(table, index)
            if self.cache.get(self.flow.rank, step, key, need) is not None:
                continue
            if not self.flow.has_values(table, index):
                first = self.flow.previous_step(int(table.node[index]), step) is None
                self.cache.put(self.flow.rank, step, key, _recorded(table, index, need, first_step=first))
                continue
            whole = need | self.cache.need(self.flow.rank, step, key)
            jobs.append(Job(len(jobs), table.spec(index), self._previous(step, index, whole), whole))
            places.append((step, key))

        def keep(number: int, record: Record) -> None:
            step, key = places[number]
            self.cache.put(self.flow.rank, step, key, record)
            if record.error or record.previous == "unreadable":
                specs = (jobs[number].spec, jobs[number].previous)
                self.cache.note_failure(self.flow.rank, step, key, [spec.path for spec in specs if spec])

        def tell(snapshot: Progress) -> None:
            progress(Progress(snapshot.done, snapshot.total, text))

        if jobs:
            measure(jobs, executor=self.executor, on_record=keep, progress=tell)

    def _previous(self, step: int, index: int, need: Need) -> ReadSpec | None:
        if not need.previous:
            return None
        table = self.flow.table(step)
        before = self.flow.previous_step(int(table.node[index]), step)
        if before is None:
            return None
        earlier = self.flow.table(before)
        found = earlier.find(int(table.node[index]), Side(int(table.side[index])), int(table.slot[index]))
        return earlier.spec(found) if found >= 0 and self.flow.has_values(earlier, found) else None

    # -- judging -----------------------------------------------------------------------------------

    def _judge(self, plan: Plan, subject: Subject, judged: _Judged) -> None:
        record = self.record(plan.step, subject.index)
        if record is None:  # measured above; only a listing that changed meanwhile gets here
            return
        copy = subject.side is Side.INPUT and self._is_copy(subject, record, judged)
        results: list[WatchResult] = []
        if not copy:
            first = subject.previous_step is None
            results += [r for w in subject.watch if (r := evaluate(w, record, first_step=first)) is not None]
        results += [r for w in subject.initial if (r := evaluate(w, record, first_step=True, initial=True)) is not None]
        if copy and not subject.initial:
            judged.copies += 1
            return
        if subject.side is Side.INPUT and record.stats is not None:
            judged.seen.setdefault((subject.holder.row, subject.holder.slot), []).append(record.stats)
        if record.error:
            judged.unreadable += 1
        else:
            judged.checked += 1
        if results:
            results.sort(key=lambda result: result.watchpoint)
            judged.not_comparable += any(r.verdict is Verdict.NOT_COMPARABLE for r in results)
            judged.hits.append(self._hit(plan.step, subject, record, tuple(results)))

    def _is_copy(self, subject: Subject, record: Record, judged: _Judged) -> bool:
        stats = record.stats
        if stats is None:
            return False
        places = subject.references
        if stats.bad or stats.variance:  # zeros and scalars equal some output by chance, not because it is in place
            places += subject.own_outputs
        if any(other is not None and other.stats == stats for other in (self.record(*place) for place in places)):
            return True
        if subject.holder.row < 0:
            return False
        return stats in judged.seen.get((subject.holder.row, subject.holder.slot), ())

    def _hit(self, step: int, subject: Subject, record: Record, results: tuple[WatchResult, ...]) -> Hit:
        table = self.flow.table(step)
        return Hit(
            key=self.key(step, subject.node, subject.side, int(table.slot[subject.index])),
            row=subject.node,
            results=results,
            order=(step, int(table.order[subject.index])),
            stats=record.stats,
            detail=record.error,
        )

    def key(self, step: int, row: int, side: Side, slot: int) -> TensorKey:
        """The handle of a tensor."""
        nodes = self.flow.nodes
        return TensorKey(self.flow.rank, nodes.graph_of(row).name, nodes.names[row], side, slot, step)


class _Judged:
    """What judging has gathered so far."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.seen: dict[tuple[int, int], list[TensorStats]] = {}
        self.checked = 0
        self.unreadable = 0
        self.not_comparable = 0
        self.copies = 0


def _with_origin(hit: Hit, origin: bool) -> Hit:
    return dataclasses.replace(hit, origin=True) if origin else hit


def _recorded(table: TensorTable, index: int, need: Need, *, first_step: bool) -> Record:
    """A record from the statistics that the dump itself wrote, for tensors without values."""
    stats = table.recorded(index)
    if int(table.flags[index]) & TensorFlag.STAT_ONLY and stats is None:
        return Record(None, None, error="only a statistics row was dumped, and it cannot be read", need=need)
    described = table.recorded_meta(index)
    meta = TensorMeta(described[0], described[1], 0) if described else None
    previous = "unreadable" if need.previous and not first_step else "none"
    return Record(meta, stats, previous=previous, need=need)


def _file_size(table: TensorTable, index: int) -> int:
    try:
        return Path(table.spec(index).path).stat().st_size
    except OSError:
        return 0
