"""Checks one step of one rank: plans, measures what is not known yet, judges, finds the origins."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tui_debugger.analysis.conditions import evaluate, needs
from tui_debugger.analysis.record import Record
from tui_debugger.model import (
    Coverage,
    ErrorBits,
    Hit,
    NodeKind,
    ProgressFn,
    Side,
    TensorKey,
    TensorStats,
    Verdict,
    Watchpoint,
    WatchResult,
    no_progress,
)
from tui_debugger.session.measuring import Measurements
from tui_debugger.session.origin.examine import find_origins
from tui_debugger.session.plan import Mask, Plan, Planner, Subject


@dataclass(frozen=True, slots=True)
class PairResult:
    """What checking one step of one rank found."""

    hits: tuple[Hit, ...]
    coverage: Coverage


class Checker:
    """Judges the steps of one rank with one state of the watchpoint list."""

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
        plan = self.planner.plan(step)
        text = f"rank {self.flow.rank} step {step}"
        self.measurements.ensure(plan.needs, progress, text)
        judged = _Judged()
        for subject in plan.subjects:
            self._judge(plan, subject, judged)
        origins = find_origins(self.measurements, step, judged.hits, progress)
        hits = tuple(sorted((_with_origin(hit, hit.key in origins) for hit in judged.hits), key=lambda hit: hit.order))
        coverage = Coverage(
            checked=judged.checked,
            unreadable=judged.unreadable,
            not_comparable=judged.not_comparable,
            skipped=plan.skipped + judged.copies,
            steps=((self.flow.rank, step),),
            watched=tuple(sorted(judged.watched.items())),
        )
        return PairResult(hits, coverage)

    def cost(self, step: int) -> int:
        """Bytes of the files that a check of this step would read; 0 when everything is known."""
        return self.measurements.cost(self.planner.plan(step).needs)

    def _judge(self, plan: Plan, subject: Subject, judged: _Judged) -> None:
        record = self.measurements.record(plan.step, subject.index)
        if record is None:  # healed since it was measured: a refresh is about to ask for another check
            return
        watch = self._not_judged_elsewhere(subject, record, judged) if subject.side is Side.INPUT else subject.watch
        if not watch and not subject.initial:
            judged.copies += 1
            return
        judged.watched.update(w.id for w in (*watch, *subject.initial))
        first = subject.previous_step is None
        results = [r for w in watch if (r := evaluate(w, record, first_step=first)) is not None]
        results += [r for w in subject.initial if (r := evaluate(w, record, first_step=True, initial=True)) is not None]
        judged.remember(subject, record, watch)
        if record.error:
            judged.unreadable += 1
        else:
            judged.checked += 1
        if results:
            results.sort(key=lambda result: result.watchpoint)
            judged.not_comparable += any(r.verdict is Verdict.NOT_COMPARABLE for r in results)
            judged.hits.append(self._hit(plan.step, subject, record, tuple(results)))

    def _not_judged_elsewhere(self, subject: Subject, record: Record, judged: _Judged) -> tuple[Watchpoint, ...]:
        """The watchpoints of an input file that no file with the same values answers.

        Decided for each watchpoint: a copy that another watchpoint judged says nothing about this one.
        """
        if record.stats is None:
            return subject.watch
        held = self._equal(subject.references, record.stats)
        own = self._equal(subject.own_outputs, record.stats) if _telling(record.stats) else []
        known = subject.holder.row >= 0
        files = [(other, _ids(self.planner.covering(subject.holder.row))) for other in held]
        files += [(other, _ids(self.planner.covering(subject.node))) for other in own]
        if known:
            seen = judged.seen.get((subject.holder.row, subject.holder.slot), ())
            files += [(other, ids) for other, ids in seen if other.stats == record.stats]

        def answered(w: Watchpoint) -> bool:
            if any(w.id in ids and _says_as_much(w, other, record) for other, ids in files):
                return True
            return not known and _answered_without_graph(w, record, judged)

        return tuple(w for w in subject.watch if not answered(w))

    def _equal(self, places: Sequence[tuple[int, int]], stats: TensorStats) -> list[Record]:
        """What is known about the files among ``places`` that hold the same values."""
        records = (self.measurements.record(*place) for place in places)
        return [record for record in records if record is not None and record.stats == stats]

    def _hit(self, step: int, subject: Subject, record: Record, results: tuple[WatchResult, ...]) -> Hit:
        table = self.flow.table(step)
        return Hit(
            key=self._key(step, subject.node, subject.side, int(table.slot[subject.index])),
            row=subject.node,
            results=results,
            order=(step, int(table.order[subject.index])),
            stats=record.stats,
            detail=record.error,
        )

    def _key(self, step: int, row: int, side: Side, slot: int) -> TensorKey:
        nodes = self.flow.nodes
        return TensorKey(self.flow.rank, nodes.graph_of(row).name, nodes.names[row], side, slot, step)


class _Judged:
    """What judging has gathered so far."""

    def __init__(self) -> None:
        self.hits: list[Hit] = []
        self.seen: dict[tuple[int, int], list[tuple[Record, frozenset[int]]]] = {}
        """By the tensor they hold: input files, and the ids of the watchpoints that judged them."""
        self.values: dict[TensorStats, set[int]] = {}
        self.watched = Counter[int]()
        self.checked = 0
        self.unreadable = 0
        self.not_comparable = 0
        self.copies = 0

    def remember(self, subject: Subject, record: Record, watch: Sequence[Watchpoint]) -> None:
        """Notes what was judged by which watchpoints, for the copies that follow."""
        if record.stats is None:
            return
        ids = _ids(watch)
        if subject.side is Side.INPUT and ids:
            self.seen.setdefault((subject.holder.row, subject.holder.slot), []).append((record, ids))
        self.values.setdefault(record.stats, set()).update(ids)


def _ids(watch: Iterable[Watchpoint]) -> frozenset[int]:
    return frozenset(w.id for w in watch)


def _says_as_much(watchpoint: Watchpoint, other: Record, record: Record) -> bool:
    """Whether judging another file with the same values leaves nothing to find in this one.

    Equal values now may have been different ones before: a file that stopped changing can equal what its producer
    made a step ago, and one whose shape changed can hold the same elements.
    """
    if not needs(watchpoint).previous:
        return True
    found = _finding(watchpoint, record)
    return found is None or found == _finding(watchpoint, other)


def _finding(watchpoint: Watchpoint, record: Record) -> ErrorBits | None:
    """Why a record is a finding; None when it is none."""
    result = evaluate(watchpoint, record, first_step=False)
    return result.error if result is not None and result.verdict is Verdict.FINDING else None


def _answered_without_graph(watchpoint: Watchpoint, record: Record, judged: _Judged) -> bool:
    """Without a graph nobody says what an input holds: an operator's flag or axis, or what was judged already.

    A watchpoint that names the node gets the flags and axes too; one that compares with the previous step is
    judged on every tensor.
    """
    meta, include, stats = record.meta, watchpoint.selection.include, record.stats
    if meta is not None and meta.shape == () and meta.dtype.startswith(("bool", "int", "uint")):
        return all(selector.kind is NodeKind.CATEGORY for selector in include)
    if stats is None or needs(watchpoint).previous or not _telling(stats):
        return False
    return watchpoint.id in judged.values.get(stats, ())


def _telling(stats: TensorStats) -> bool:
    """Whether equal statistics mean equal values: zeros and scalars equal something else by chance."""
    return stats.bad or bool(stats.variance)


def _with_origin(hit: Hit, origin: bool) -> Hit:
    return dataclasses.replace(hit, origin=True) if origin else hit
