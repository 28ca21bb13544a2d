"""Everything that came from one training: its graph, the statistics and values of its steps; fetches the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.errors import NotStoppedError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.graph import LiveRankGraph
from tui_debugger.live.spool import Key, Spool, SpooledTensor, SpoolFile
from tui_debugger.live.table import LiveTable, ReceivedStep, ReceivedValues, SentStats
from tui_debugger.live.wire import START, Phase, ReceivedHit, RemoteStats, TrainingStop
from tui_debugger.model import OperandState, Progress, ProgressFn, no_progress

if TYPE_CHECKING:
    from tui_debugger.live.server.training import RemoteTraining

T = TypeVar("T")
_EVERY: Final = 0.1
"""Seconds between two looks whether a waiting thread still wants its turn."""


class SpoolSink:
    """A ``wire.ValueSink`` that writes values into files of a spool."""

    def __init__(self, spool: Spool, key: Key) -> None:
        self.kept: dict[int, SpooledTensor] = {}  # complete tensors, by number in the request
        self.refused: set[int] = set()  # numbers of tensors that found no room
        self.nbytes = 0
        self._spool, self._key = spool, key
        self._files: dict[int, SpoolFile] = {}

    def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
        before = self._files.pop(number, None)
        if before is not None:
            before.finish(complete=False)
        file = self._spool.open(self._key, dtype, shape)
        if file is None:
            self.refused.add(number)
            return False
        self._files[number] = file
        return True

    def write(self, number: int, chunk: bytes) -> None:
        file = self._files.get(number)
        self.nbytes += len(chunk)
        if file is not None and not file.write(chunk):
            self.refused.add(number)

    def end(self, number: int, complete: bool) -> None:
        file = self._files.pop(number, None)
        kept = file.finish(complete) if file is not None else None
        if kept is not None:
            self.kept[number] = kept

    def close(self) -> None:
        """Discards incomplete tensors."""
        for number in list(self._files):
            self.end(number, complete=False)


def titled(progress: ProgressFn, text: str) -> ProgressFn:
    def tell(snapshot: Progress) -> None:
        progress(Progress(snapshot.done, snapshot.total, text))

    return tell


STEPS: Final = 4096
"""The number of stops of a training that are remembered."""
MOST_SENT_STATS: Final = 1 << 18
"""The number of statistics that are kept; those of the oldest steps go first."""
_WRONG_MEAN_FROM: Final = 20_000
"""From this many elements on the mean of MindSpore 1.6 to 2.3 covers only the first part of a tensor."""


BATCH: Final = 512
"""The number of tensors that are asked for at once."""
_TABLES: Final = 64
"""The number of tables that are kept."""


class LiveRank:
    """One training of a live session. Safe to use from several threads."""

    def __init__(self, number: int, training: RemoteTraining, spool: Spool) -> None:
        self.number = number
        self.training = training
        self.fetched = 0  # bytes that came so far
        self._spool = spool
        self._lock = threading.RLock()
        self._asking = threading.Lock()
        self._graph: LiveRankGraph | None = None
        self._steps: dict[int, ReceivedStep] = {}
        self._sent = 0
        self._clock = 0
        self._added: frozenset[int] = frozenset()
        self._stop: TrainingStop | None = None
        self._here = False
        self._tables: dict[int, tuple[object, LiveTable]] = {}
        self._changed: set[int] = set()

    # -- what it is --------------------------------------------------------------------------------

    @property
    def graph(self) -> LiveRankGraph | None:
        return self._graph

    @property
    def stop(self) -> TrainingStop | None:
        """The last stop of the training, as far as ``stopped`` was told."""
        return self._stop

    @property
    def standing(self) -> TrainingStop | None:
        """The stop at which the training can be asked for values; None when it cannot."""
        with self._lock:
            return self._stop if self._here else None

    def root(self, step: int) -> int | None:
        """The root graph that ran in a step; None if unknown, or if there is only one."""
        graph = self._graph
        if graph is None or len(graph.roots) < 2:
            return None
        return self.training.graph_runs.root(step, graph.roots)

    def located(self, stop: TrainingStop) -> TrainingStop:
        """A stop with its ``root``; before a first run that is the graph that came last."""
        if not stop.opens:
            return replace(stop, root=self.root(stop.step))
        return replace(stop, root=next(iter(self._added)) if len(self._added) == 1 else stop.root)

    def first_run(self, root: int) -> int | None:
        graph = self._graph
        several = graph is not None and len(graph.roots) > 1
        return self.training.graph_runs.first(root) if several else START + 1

    def last_runs(self, step: int) -> set[int]:
        """The step before, and the steps of the last run of each root graph before a step."""
        with self._lock:
            roots = self._graph.roots if self._graph is not None else ()
            return {step - 1, *(self.run_before(root, step) for root in roots)}

    def run_before(self, root: int, step: int) -> int:
        """The step of the previous run of a root graph; ``START`` before its first one."""
        roots, runs = self._graph.roots if self._graph is not None else frozenset[int](), self.training.graph_runs
        told = len(roots) > 1 and any(runs.first(each) is not None for each in roots)
        if step <= START or not told:
            return step - 1
        before = runs.before(root, step)
        return START if before is None else before

    def steps(self) -> list[int]:
        """Steps that were stopped at, have kept contents, or have previous values at the training; ascending."""
        with self._lock:
            kept = (step for step, each in self._steps.items() if each.stopped or each.anything)
            return sorted({*kept, *self._before()})

    def changed(self) -> set[int]:
        """Steps whose tables changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return changed

    def table(self, step: int) -> LiveTable | None:
        """The tensors of a step; None without a graph."""
        with self._lock:
            graph = self._graph
            if graph is None:
                return None
            kept = self._steps.get(step) or _NOTHING
            remote = self._remote(step, graph)
            state = (graph, kept, kept.version, self._standing_at(step), self._stop.count if self._stop else 0)
            known = self._tables.get(step)
            if known is not None and known[0] == state:
                return known[1]
            table = LiveTable(graph, remote, kept, previous=step in self._before())
            self._tables.pop(step, None)
            self._tables[step] = (state, table)
            while len(self._tables) > _TABLES:
                del self._tables[next(iter(self._tables))]
            return table

    def missing(self, step: int, row: int, slot: int) -> bool:
        with self._lock:
            kept = self._steps.get(step)
            return kept is not None and self._graph is not None and self._graph.place(row, slot) in kept.missing

    # -- what happens to it ------------------------------------------------------------------------

    def set_graph(self, graph: LiveRankGraph) -> bool:
        """Takes the nodes of the graph; contents of nodes that still exist stay. False: the graph is the same again."""
        with self._lock:
            if self._graph is not None and self._graph.data == graph.data:
                return False
            if self._graph is not None:
                self._renumber(self._graph, graph)
            self._tables.clear()
            self._added = graph.roots - (self._graph.roots if self._graph is not None else frozenset())
            self._graph = graph
            if self._stop is not None:
                self._remember(self._stop.step)
            return True

    def stopped(self, stop: TrainingStop) -> None:
        with self._lock:
            stop = self.located(stop)
            self._changed |= self._reached()
            before, self._stop, self._here = self._stop, stop, True
            again = before is not None and before.step == stop.step and before.count != stop.count
            if again and not stop.opens:
                self._renew(stop.step)
            self._remember(stop.step)
            self._changed |= {stop.step} | self._reached()

    def gone(self) -> None:
        """The training was lost or has finished: it cannot be asked any more."""
        with self._lock:
            self._changed |= self._reached()
            self._here = False

    def noted(self, step: int) -> list[int]:
        """Notes that a step with hits ended; forgets the oldest steps beyond ``STEPS`` and returns them."""
        with self._lock:
            self._changed.add(step)
            return self._remember(step)

    def kept(self, step: int) -> ReceivedStep | None:
        """A copy of the kept contents of a step."""
        with self._lock:
            kept, graph = self._steps.get(step), self._graph
            if kept is None or graph is None:
                return None
            return ReceivedStep(
                dict(kept.values),
                dict(kept.sent),
                clean=kept.clean_places(graph.gradients),
                inputs_unknown=kept.inputs_unknown,
                operands=dict(kept.operands),
                by_design=dict(kept.by_design),
                stopped=kept.stopped,
            )

    def judged(self) -> set[int]:
        with self._lock:
            return {step for step, kept in self._steps.items() if kept.clean is not None}

    def keep_judged(self, graph: LiveRankGraph, step: int, clean: Mask, *, unfinished: bool = False) -> None:
        with self._lock:
            if graph is self._graph:
                kept = self._changing(step)
                kept.clean, kept.unfinished, kept.by_design = clean & graph.recorded, unfinished, {}

    def keep_designs(self, graph: LiveRankGraph, step: int, by_design: Mapping[int, frozenset[str]]) -> None:
        with self._lock:
            if graph is self._graph:
                self._changing(step).by_design = dict(by_design)

    def dropped(self, step: int) -> None:
        """The spool had to drop the values of a step."""
        with self._lock:
            kept = self._changing(step)
            kept.values = {place: value for place, value in kept.values.items() if value.kept.path.exists()}

    def keep_hit_stats(self, stop: TrainingStop, hits: Sequence[ReceivedHit]) -> None:
        """Keeps the statistics that came with the hits of a step, and the states of operands."""
        step = stop.step
        with self._lock:
            graph = self._graph
            if graph is None:
                return
            unsure = (graph.find(hit.node, stop.root) for hit in hits if hit.inputs_unknown)
            unknown = frozenset(row for row in unsure if row >= 0)
            if hits:
                self._keep_inputs(self._kept(step), unknown, hits)
            for hit in hits:
                place = graph.place(graph.find(hit.node, stop.root), hit.slot)
                if place >= 0 and hit.meta is not None and hit.stats is not None:
                    self._keep_hit(stop, place, RemoteStats(hit.meta, hit.stats, complete=True))

    # -- what it is asked --------------------------------------------------------------------------

    def fetch_values(self, step: int, places: Sequence[int], progress: ProgressFn = no_progress) -> int:
        """Fetches values of a step that the training holds and that are not here yet; returns how many came.

        NotStoppedError: it does not stand at (or right after) that step, or went on meanwhile. LostError,
        CancelledError: see ``RemoteTraining``; complete tensors are kept.
        """
        came = 0
        for batch in _batches(places):
            with self._turn(progress):
                came += self._values(step, batch, progress)
        return came

    def fetch_statistics(self, step: int, places: Sequence[int], progress: ProgressFn = no_progress) -> None:
        """Fetches statistics. Raises as ``fetch_values``, and UnsupportedError for clients before MindSpore 1.5."""
        for batch in _batches(places):
            with self._turn(progress):
                self._statistics(step, batch, progress)

    def holds_outputs(self, progress: ProgressFn = no_progress) -> bool:
        """Tells whether the training has the output of any operator of the step at which it stands."""
        graph = self._graph
        if graph is None:
            return False
        operators = np.flatnonzero(~graph.parameter & (graph.flags == 0)).tolist()
        some = list(dict.fromkeys([*operators[:BATCH], *operators[-BATCH:]]))
        if not some:
            return True
        try:
            with self._turn(progress):
                found = self.training.bases([graph.remote(each) for each in some])
        except UnsupportedError:
            return True
        return any(each.meta is not None for each in found)

    def ask(self, question: Callable[[], None], progress: ProgressFn) -> None:
        """Asks something else while no question is open."""
        with self._turn(progress):
            question()

    @contextmanager
    def _turn(self, progress: ProgressFn) -> Iterator[None]:
        """Waits until no question is open; ``progress`` is called meanwhile and may cancel."""
        while not self._asking.acquire(timeout=_EVERY):
            progress(Progress(0, 0, "waiting for the training"))
        try:
            yield
        finally:
            self._asking.release()

    def _values(self, step: int, places: Sequence[int], progress: ProgressFn) -> int:
        graph, stop, wanted = self._reachable(step, places, lambda kept, place: place not in kept.values)
        if not wanted:
            return 0
        sink = SpoolSink(self._spool, (self.number, step))
        asked = [graph.remote(place, previous=step != _held(stop)) for place in wanted]
        try:
            self.training.values(asked, sink, titled(progress, f"rank {self.number}: values"))
        finally:
            sink.close()
            with self._lock:
                self.fetched += sink.nbytes
                still = self._still(stop, graph)
                for number, value in sink.kept.items():
                    if still:
                        self._keep_value(step, wanted[number], ReceivedValues(value, self._tick(), stop.count))
                    else:
                        self._discard(step, value)
                self._changed.add(step)
        self._check(still)
        with self._lock:
            lacking = [p for n, p in enumerate(wanted) if n not in sink.kept and n not in sink.refused]
            self._changing(step).missing.update(lacking)
        if sink.refused and not sink.kept:
            raise UnsupportedError(
                "the values cannot be kept",
                where=f"rank {self.number} step {step}",
                hint=f"the spool holds {self._spool.limit:,} bytes: allow more with --spool-limit, or free disk space",
            )
        return len(sink.kept)

    def _statistics(self, step: int, places: Sequence[int], progress: ProgressFn) -> None:
        graph, stop, wanted = self._reachable(step, places, _unmeasured)
        if not wanted:
            return
        asked = [graph.remote(place, previous=step != _held(stop)) for place in wanted]
        sent_stats = self.training.statistics(asked, titled(progress, f"rank {self.number}: statistics"))
        with self._lock:
            still = self._still(stop, graph)
            if still:
                for place, each in zip(wanted, sent_stats, strict=True):
                    self._keep_sent(step, place, each)
                    self.fetched += 100
                self._changed.add(step)
        self._check(still)

    def _reachable(
        self, step: int, places: Sequence[int], open_: Callable[[ReceivedStep, int], bool]
    ) -> tuple[LiveRankGraph, TrainingStop, list[int]]:
        """The graph, the stop, and the places that have to be asked for."""
        with self._lock:
            graph, kept = self._graph, self._steps.get(step) or ReceivedStep()
            if graph is None or self._stop is None or not self._here or self.training.phase is not Phase.STOPPED:
                raise self._elsewhere()
            remote = self._remote(step, graph)
            if not remote.any():
                raise self._elsewhere()
            wanted = [each for each in places if remote[each] and open_(kept, each)]
            return graph, self._stop, list(dict.fromkeys(wanted))

    def _elsewhere(self) -> NotStoppedError:
        return NotStoppedError(
            "the training does not hold these values now",
            where=f"rank {self.number}: {self.training.phase.value}",
            hint="what it holds can be fetched while it stands at the end of that step",
        )

    def _still(self, stop: TrainingStop, graph: LiveRankGraph) -> bool:
        now = self.training.stop
        return now is not None and now.count == stop.count and graph is self._graph

    def _check(self, still: bool) -> None:
        if not still:
            raise self._elsewhere()

    # -- helpers, all under the lock ---------------------------------------------------------------

    def _standing_at(self, step: int) -> int:
        """0: the training holds nothing of a step; 1: its values; 2: they are previous values at the present stop."""
        if not self._here or self._stop is None:
            return 0
        return 1 if step == _held(self._stop) else 2 if step in self._before() else 0

    def _reached(self) -> set[int]:
        here = {_held(self._stop)} if self._here and self._stop is not None else set()
        return here | self._before()

    def _before(self) -> set[int]:
        """The steps of a tensor's previous values: the last run, and the last run of its graph."""
        stop = self._stop
        if not self._here or stop is None or _held(stop) <= START:
            return set()
        root = self.root(stop.step)
        return {stop.step - 1} if root is None else {stop.step - 1, self.run_before(root, stop.step)}

    def _remote(self, step: int, graph: LiveRankGraph) -> Mask:
        """Mask of the places that the training can be asked for, as values of a step."""
        standing, recorded, stop = self._standing_at(step), graph.recorded, self._stop
        if standing == 1 and stop is not None:  # before the first step of a graph no operator has run
            first = stop.step <= START or stop.opens
            there: Mask = graph.parameter | (graph.flags != 0) if first else recorded
            return graph.of_root(stop.root if stop.opens else self.root(step)) & there
        if standing == 2 and stop is not None:
            every = bool(self.training.info.features & wire.ANY_PREVIOUS)
            held: Mask = (graph.flags == 0) & recorded if every else graph.parameter
            held = held & graph.of_root(self.root(stop.step if step <= START else step))
            return held & graph.alone if step < stop.step - 1 else held
        return np.zeros(len(graph), np.bool_)

    def _renew(self, step: int) -> None:
        """The training went on within a step: parameters may have changed, and missing tensors may exist now."""
        if self._graph is None or step not in self._steps:
            return
        kept = self._changing(step)
        for place in np.flatnonzero(self._graph.parameter).tolist():
            self._sent -= kept.sent.pop(place, None) is not None
            self._drop_value(step, place)
        kept.missing.clear()

    def _discard(self, step: int, value: SpooledTensor) -> None:
        self._spool.remove((self.number, step), value)

    def _drop_value(self, step: int, place: int) -> None:
        value = self._kept(step).values.pop(place, None)
        if value is not None:
            self._discard(step, value.kept)

    def _kept(self, step: int) -> ReceivedStep:
        return self._steps.setdefault(step, ReceivedStep())

    def _changing(self, step: int) -> ReceivedStep:
        """The contents of a step, which are about to change."""
        kept = self._kept(step)
        kept.version += 1
        self._changed.add(step)
        return kept

    def _tick(self) -> int:
        self._clock = max(self._clock + 1, time.time_ns() // 1000)
        return self._clock

    def _remember(self, step: int) -> list[int]:
        """Notes that the training stopped at a step; forgets the oldest steps beyond ``STEPS`` and returns them."""
        self._kept(step).stopped = True
        forgotten = []
        while len(self._steps) > STEPS:
            oldest = min(each for each in self._steps if each != step)
            forgotten.append(oldest)
            self._sent -= len(self._steps.pop(oldest).sent)
            self._spool.drop((self.number, oldest))
        return forgotten

    def _keep_value(self, step: int, place: int, value: ReceivedValues) -> None:
        self._drop_value(step, place)
        kept = self._changing(step)
        kept.values[place] = value
        kept.missing.discard(place)

    def _keep_sent(self, step: int, place: int, sent_stats: RemoteStats) -> None:
        """Keeps statistics; without type and shape the training does not have the tensor."""
        kept = self._changing(step)
        if sent_stats.meta is None:
            kept.missing.add(place)
            return
        stats = sent_stats.stats
        if stats is not None and not sent_stats.complete and stats.count >= _WRONG_MEAN_FROM and stats.mean is not None:
            stats = replace(stats, mean=None)
        self._sent += place not in kept.sent
        kept.sent[place] = SentStats(sent_stats.meta, stats, sent_stats.complete, self._tick())
        kept.missing.discard(place)
        while self._sent > MOST_SENT_STATS:
            oldest = min((each for each, of in self._steps.items() if of.sent and each != step), default=None)
            if oldest is None:
                break
            of = self._steps[oldest]
            self._sent -= len(of.sent)
            of.sent = {}
            of.version += 1

    def _keep_hit(self, stop: TrainingStop, place: int, said: RemoteStats) -> None:
        """Keeps the statistics of a hit; drops older values of its tensor, as the node ran again since."""
        kept = self._kept(stop.step)
        before, value = kept.sent.get(place), kept.values.get(place)
        self._keep_sent(stop.step, place, said)
        if value is not None and value.stop < stop.count and (before is None or before.stats != said.stats):
            self._drop_value(stop.step, place)

    @staticmethod
    def _keep_inputs(kept: ReceivedStep, unknown: frozenset[int], hits: Sequence[ReceivedHit]) -> None:
        """Keeps which nodes have inputs unknown to the graph, and the states of operands that hits report."""
        said = {(hit.node, name): state for hit in reversed(hits) for name, state in hit.operands}
        again = {node for node, _ in said}
        operands = {place: state for place, state in kept.operands.items() if place[0] not in again} | said
        kept.version += (unknown, operands) != (kept.inputs_unknown, kept.operands)
        kept.inputs_unknown, kept.operands = unknown, operands

    def _renumber(self, before: LiveRankGraph, graph: LiveRankGraph) -> None:
        """Moves everything to the places of another graph; discards the values of nodes that it does not have."""
        place = before.places_in(graph)
        there = np.flatnonzero(place >= 0)
        answered = before.open_inputs() - graph.open_inputs()
        for step, kept in self._steps.items():
            for old in [old for old in kept.values if place[old] < 0]:
                self._drop_value(step, old)
            self._sent -= len(kept.sent)
            kept.values, kept.sent = _moved(place, kept.values), _moved(place, kept.sent)
            self._sent += len(kept.sent)
            kept.missing = {int(place[old]) for old in kept.missing if place[old] >= 0}
            kept.by_design = _moved(place, kept.by_design)
            if kept.clean is not None:
                clean = np.zeros(len(graph), np.bool_)
                clean[place[there]] = kept.clean[there]
                kept.clean = clean
            # Additional inputs in a newer graph concern later steps only.
            names = answered | {before.name(row) for row in kept.inputs_unknown}
            rows = (graph.nodes.find(*name) for name in names)
            kept.inputs_unknown = frozenset(row for row in rows if row >= 0)
            # Inputs that appear later were not read in this step.
            told = {int(graph.node[place]) for place in kept.sent}
            if kept.clean is not None and not kept.unfinished:  # else the new graph may be that of this very step
                told |= graph.changes
            told -= kept.inputs_unknown
            later = before.later_inputs(graph, (graph.nodes.names[row] for row in told))
            more = {(node, each): OperandState.CLEAN for node, inputs in later.items() for each in inputs}
            kept.operands = more | kept.operands
            kept.version += 1


def _moved(place: Int64, contents: Mapping[int, T]) -> dict[int, T]:
    """Contents by their places in another graph, as far as it has them."""
    return {int(place[old]): each for old, each in contents.items() if place[old] >= 0}


_NOTHING: Final = ReceivedStep()


def _held(stop: TrainingStop) -> int:
    """The step whose values a training holds at a stop: ``START`` before the first run of a graph."""
    return START if stop.opens else stop.step


def _unmeasured(kept: ReceivedStep, place: int) -> bool:
    sent = kept.sent.get(place)
    return place not in kept.values and (sent is None or sent.stats is None)


def _batches(places: Sequence[int]) -> list[Sequence[int]]:
    return [places[start : start + BATCH] for start in range(0, len(places), BATCH)]
