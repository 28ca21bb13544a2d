"""One training as a rank of a source: its graph, where it stands, what is kept of it, and what it can be asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import NotStoppedError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.control import Training
from tui_debugger.live.fetching import SpoolSink, Turns, titled
from tui_debugger.live.graph import RankGraph
from tui_debugger.live.keeping import Keeping, StepKept
from tui_debugger.live.spool import Kept, Spool
from tui_debugger.live.table import LiveTable
from tui_debugger.live.types import START, Phase, ReceivedHit, RemoteStats, Stop
from tui_debugger.model import ProgressFn, no_progress

BATCH: Final = 512
"""So many tensors are asked for at once."""
_TABLES: Final = 64
"""So many tables are kept."""


class LiveRank:
    """See the module. Safe to use from several threads.

    Attributes:
        number: its rank.
        training: the connection.
        fetched: bytes that came so far.
    """

    def __init__(self, number: int, training: Training, spool: Spool) -> None:
        """Nothing is known yet but who it is."""
        self.number = number
        self.training = training
        self.fetched = 0
        self._spool = spool
        self._lock = threading.RLock()
        self._turns = Turns()
        self._graph: RankGraph | None = None
        self._keeping = Keeping()
        self._stop: Stop | None = None
        self._here = False
        self._tables: dict[int, tuple[object, LiveTable]] = {}
        self._changed: set[int] = set()

    # -- what it is --------------------------------------------------------------------------------

    @property
    def graph(self) -> RankGraph | None:
        """Its graph, once it came."""
        return self._graph

    @property
    def stop(self) -> Stop | None:
        """Where it stopped last, as far as ``stopped`` was told."""
        return self._stop

    @property
    def standing(self) -> Stop | None:
        """Where it can be asked for values; None when it cannot."""
        with self._lock:
            return self._stop if self._here else None

    def steps(self) -> list[int]:
        """Steps that were stopped at or of which something is kept, ascending; and the one before that it still has."""
        with self._lock:
            found = set(self._keeping.steps())
            before = self._before()
            if before is not None:
                found.add(before)
            return sorted(found)

    def changed(self) -> set[int]:
        """Steps whose tables changed since this was asked last."""
        with self._lock:
            changed, self._changed = self._changed, set()
            return changed

    def table(self, step: int) -> LiveTable | None:
        """The tensors of a step; None without a graph."""
        with self._lock:
            graph = self._graph
            if graph is None:
                return None
            kept = self._keeping.at(step) or _NOTHING
            remote = self._remote(step, graph)
            state = (graph, kept, kept.version, self._standing_at(step))
            known = self._tables.get(step)
            if known is not None and known[0] == state:
                return known[1]
            table = LiveTable(graph, remote, kept.values, kept.told, previous=self._before() == step)
            self._tables.pop(step, None)
            self._tables[step] = (state, table)
            while len(self._tables) > _TABLES:
                del self._tables[next(iter(self._tables))]
            return table

    def missing(self, step: int, row: int, slot: int) -> bool:
        """Whether the training said that it does not have a tensor."""
        with self._lock:
            kept = self._keeping.at(step)
            return kept is not None and self._graph is not None and self._graph.place(row, slot) in kept.missing

    # -- what happens to it ------------------------------------------------------------------------

    def set_graph(self, graph: RankGraph) -> bool:
        """Its nodes; what was kept belongs to those of before and is dropped. False: it is the same graph again."""
        with self._lock:
            if self._graph is not None and self._graph.data == graph.data:
                return False
            for step in self._keeping.forget_all():
                self._spool.drop((self.number, step))
            self._tables.clear()
            self._graph = graph
            if self._stop is not None:
                self._keeping.stopped(self._stop.step)
            return True

    def stopped(self, stop: Stop) -> None:
        """It waits at a stop."""
        with self._lock:
            before, self._stop, self._here = self._stop, stop, True
            if before is not None and before.step == stop.step and before.count != stop.count:
                self._renew(stop.step)
            for step in self._keeping.stopped(stop.step):
                self._spool.drop((self.number, step))
            self._changed |= {stop.step} | ({before.step, before.step - 1} if before is not None else set())
            previous = self._before()
            if previous is not None:
                self._changed.add(previous)

    def gone(self) -> None:
        """Nothing can be asked any more: it was lost, or has finished."""
        with self._lock:
            if self._here and self._stop is not None:
                self._changed |= {self._stop.step, self._stop.step - 1}
            self._here = False

    def noted(self, step: int) -> list[int]:
        """It came through a step that is worth remembering; returns steps that are too many now."""
        with self._lock:
            forgotten = self._keeping.stopped(step)
            for each in forgotten:
                self._spool.drop((self.number, each))
            self._changed.add(step)
            return forgotten

    def kept(self, step: int) -> StepKept | None:
        """What is kept of a step: a copy."""
        with self._lock:
            kept = self._keeping.at(step)
            return None if kept is None else StepKept(dict(kept.values), dict(kept.told), stopped=kept.stopped)

    def dropped(self, step: int) -> None:
        """The spool had to let the values of a step go."""
        with self._lock:
            self._keeping.values_gone(step)
            self._changed.add(step)

    def told(self, step: int, hits: Sequence[ReceivedHit]) -> None:
        """Keeps the statistics that came with hits."""
        with self._lock:
            graph = self._graph
            if graph is None:
                return
            for hit in hits:
                place = graph.place(graph.find(hit.node), hit.slot)
                if place >= 0 and hit.meta is not None and hit.stats is not None:
                    self._keeping.put_told(step, place, RemoteStats(hit.meta, hit.stats, complete=True))
                    self._changed.add(step)

    # -- what it is asked --------------------------------------------------------------------------

    def fetch_values(self, step: int, places: Sequence[int], progress: ProgressFn = no_progress) -> int:
        """Fetches values of a step that the training holds; those that are here already are not asked for again.

        Returns:
            How many came.

        Raises:
            NotStoppedError: it does not stand at (or right after) that step, or went on meanwhile.
            LostError, CancelledError: see ``control.Training``; what came whole is kept.
        """
        came = 0
        for batch in _batches(places):
            with self._turns.turn(progress):
                came += self._values(step, batch, progress)
        return came

    def fetch_statistics(self, step: int, places: Sequence[int], progress: ProgressFn = no_progress) -> None:
        """Fetches statistics. Raises as ``fetch_values``, and UnsupportedError for clients before MindSpore 1.5."""
        for batch in _batches(places):
            with self._turns.turn(progress):
                self._statistics(step, batch, progress)

    def holds_outputs(self, progress: ProgressFn = no_progress) -> bool:
        """Whether the training has the output of any operator of the step at which it stands."""
        graph = self._graph
        if graph is None:
            return False
        operators = np.flatnonzero(~graph.parameter & (graph.flags == 0)).tolist()
        some = list(dict.fromkeys([*operators[:BATCH], *operators[-BATCH:]]))
        if not some:
            return True
        found: list[RemoteStats] = []
        try:
            self.ask(lambda: found.extend(self.training.bases([graph.remote(each) for each in some])), progress)
        except UnsupportedError:
            return True
        return any(each.meta is not None for each in found)

    def ask(self, question: Callable[[], None], progress: ProgressFn) -> None:
        """Asks something else while no question is open."""
        with self._turns.turn(progress):
            question()

    def _values(self, step: int, places: Sequence[int], progress: ProgressFn) -> int:
        graph, stop, wanted = self._reachable(step, places, lambda kept, place: place not in kept.values)
        if not wanted:
            return 0
        sink = SpoolSink(self._spool, (self.number, step))
        asked = [graph.remote(place, previous=step != stop.step) for place in wanted]
        try:
            self.training.values(asked, sink, titled(progress, f"rank {self.number}: values"))
        finally:
            sink.close()
            with self._lock:
                self.fetched += sink.nbytes
                still = self._still(stop, graph)
                for number, kept in sink.kept.items():
                    old = self._keeping.put_value(step, wanted[number], kept) if still else kept
                    self._discard(step, old)
                self._changed.add(step)
        self._check(still)
        with self._lock:
            lacking = [p for n, p in enumerate(wanted) if n not in sink.kept and n not in sink.refused]
            self._keeping.put_missing(step, lacking)
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
        asked = [graph.remote(place, previous=step != stop.step) for place in wanted]
        said = self.training.statistics(asked, titled(progress, f"rank {self.number}: statistics"))
        with self._lock:
            still = self._still(stop, graph)
            if still:
                for place, each in zip(wanted, said, strict=True):
                    self._keeping.put_told(step, place, each)
                    self.fetched += 100
                self._changed.add(step)
        self._check(still)

    def _reachable(
        self, step: int, places: Sequence[int], open_: Callable[[StepKept, int], bool]
    ) -> tuple[RankGraph, Stop, list[int]]:
        """What has to be asked, at which stop."""
        with self._lock:
            graph, kept = self._graph, self._keeping.at(step) or StepKept()
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

    def _still(self, stop: Stop, graph: RankGraph) -> bool:
        now = self.training.stop
        return now is not None and now.count == stop.count and graph is self._graph

    def _check(self, still: bool) -> None:
        if not still:
            raise self._elsewhere()

    # -- helpers, all under the lock ---------------------------------------------------------------

    def _standing_at(self, step: int) -> int:
        """0: the training holds nothing of a step; 1: its values; 2: those of the step before the one it stands at."""
        if not self._here or self._stop is None:
            return 0
        return 1 if step == self._stop.step else 2 if self._before() == step else 0

    def _before(self) -> int | None:
        """The step whose values the training still has as previous ones."""
        if not self._here or self._stop is None or self._stop.step <= START:
            return None
        return self._stop.step - 1

    def _remote(self, step: int, graph: RankGraph) -> npt.NDArray[np.bool_]:
        """Which places the training can be asked for, as values of a step."""
        standing = self._standing_at(step)
        if standing == 1:  # before the first step no operator has run
            first = self._stop is not None and self._stop.step <= START
            return graph.parameter | (graph.flags != 0) if first else np.ones(len(graph), np.bool_)
        if standing == 2:
            every = bool(self.training.info.features & wire.ANY_PREVIOUS)
            return graph.flags == 0 if every else graph.parameter
        return np.zeros(len(graph), np.bool_)

    def _renew(self, step: int) -> None:
        """Within a step the training went on: parameters may have changed, and what was missing may be there."""
        if self._graph is not None:
            for kept in self._keeping.renew(step, np.flatnonzero(self._graph.parameter).tolist()):
                self._discard(step, kept)

    def _discard(self, step: int, kept: Kept | None) -> None:
        if kept is not None:
            self._spool.remove((self.number, step), kept)


_NOTHING: Final = StepKept()


def _unmeasured(kept: StepKept, place: int) -> bool:
    told = kept.told.get(place)
    return place not in kept.values and (told is None or told.stats is None)


def _batches(places: Sequence[int]) -> list[Sequence[int]]:
    return [places[start : start + BATCH] for start in range(0, len(places), BATCH)]
