"""Drives the trainings of a session: tells them the list, lets them go on, and files what they report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from tui_debugger.errors import NotStoppedError, TdbgError
from tui_debugger.live.control import Event, Trainings
from tui_debugger.live.rank import LiveRank
from tui_debugger.live.source import LiveSource
from tui_debugger.live.types import START, Phase, ReceivedHit, Stop
from tui_debugger.live.watching import remote_watchpoints
from tui_debugger.model import Coverage, ProgressFn, Verdict, no_progress
from tui_debugger.session.checking import PairResult
from tui_debugger.session.live_checks import Watched, WeightsBefore, judgement_of
from tui_debugger.session.live_queue import EventQueue, Happened
from tui_debugger.session.live_types import LiveEvent, LiveKind, LiveState
from tui_debugger.session.results import ResultBook
from tui_debugger.words.numbers import plural
from tui_debugger.words.steps import step_text

_MOST_HITS: Final = 500_000
"""So many hits of trainings are kept; those of the steps that came first go first."""
_KINDS: Final = {
    Event.CONNECTED: LiveKind.CONNECTED,
    Event.LOST: LiveKind.LOST,
    Event.BACK: LiveKind.BACK,
    Event.DONE: LiveKind.DONE,
    Event.RUNNING: LiveKind.RUNNING,
}


@dataclass
class Driven:
    """What is known of one training besides its values.

    Attributes:
        phase: what it is doing, as far as events were worked through.
        watched: the list that it was given last.
        target: the step at which it is to stop; None: at a hit.
        silent: steps that ran under a list without a result of their own, and what was looked at in each.
        last: the last step that is accounted for.
        weights: which of its weights were bad when its step began.
        step, said: the step that hits were reported of last, and those hits: of several stops within a step each
            reports what is new.
    """

    phase: Phase
    watched: Watched | None = None
    target: int | None = None
    silent: dict[tuple[int, int], tuple[int, Coverage]] = field(default_factory=dict)
    last: int = START
    step: tuple[int, int] | None = None
    said: dict[tuple[str, int, int], ReceivedHit] = field(default_factory=dict)
    weights: WeightsBefore = field(default_factory=WeightsBefore)

    def together(self, step: int, hits: Iterable[ReceivedHit], *, again: bool = False) -> tuple[ReceivedHit, ...]:
        """Hits with those that were reported of the same step before; ``again``: everything was judged once more."""
        at = (step, self.watched.version if self.watched is not None else -1)
        if again or self.step != at:
            self.step, self.said = at, {}
        self.said |= {(hit.node, hit.slot, hit.watchpoint): hit for hit in hits}
        return tuple(self.said.values())


class Driver:
    """See the module. Safe to use from several threads."""

    def __init__(
        self,
        source: LiveSource,
        trainings: Trainings,
        book: ResultBook,
        watched: Callable[[LiveRank], Watched],
        tell: Callable[[LiveEvent], None],
    ) -> None:
        """Takes in what is there, then listens.

        Args:
            source: where tensors come from.
            trainings: the server.
            book: takes results.
            watched: the list as it is now, for one training that has a graph.
            tell: told what happened, after it was filed.
        """
        self._source, self._trainings, self._book = source, trainings, book
        self._watched, self._tell = watched, tell
        self._lock = threading.RLock()
        self._driven: dict[int, Driven] = {}
        self._hits: dict[tuple[int, int], int] = {}
        self._queue = EventQueue(trainings, self._handle, self._resync)
        self._resync()

    def close(self) -> None:
        """Listens no more."""
        self._queue.close()

    # -- what they are doing -----------------------------------------------------------------------

    def state(self, live: LiveRank) -> LiveState:
        """Where a training is."""
        driven, newest = self._of(live), live.training.stop
        return LiveState(
            rank=live.number,
            info=live.training.info,
            phase=driven.phase,
            stop=live.stop,
            graph=live.graph is not None,
            remaining=self._remaining(live, driven),
            fetched=live.fetched,
            kept=self._source.spool.of_rank(live.number),
            passed=newest.step if newest is not None else None,
        )

    def _remaining(self, live: LiveRank, driven: Driven) -> int | None:
        if driven.phase is not Phase.RUNNING:
            return 0
        if driven.target is None:
            return None
        stop = live.training.stop
        return max(driven.target - (stop.step if stop is not None else START), 0)

    def silent(self) -> list[tuple[int, int, Coverage]]:
        """(rank, steps, coverage of each) of all steps that ran without a hit and have no result of their own."""
        with self._lock:
            return [
                (rank, count, each) for rank, driven in self._driven.items() for count, each in driven.silent.values()
            ]

    # -- what people want --------------------------------------------------------------------------

    def run(self, live: LiveRank, steps: int | None, stop_on_hit: bool, progress: ProgressFn = no_progress) -> bool:
        """Lets one go on; False when the initial values gave it a reason to stay. See ``LiveSession.run``."""
        stop = live.standing
        if stop is not None and stop.step <= START and self._initial_findings(live, stop, progress):
            return not stop_on_hit and self._go(live, steps, stop_on_hit)
        return self._go(live, steps, stop_on_hit)

    def _go(self, live: LiveRank, steps: int | None, stop_on_hit: bool) -> bool:
        with self._lock:
            driven = self._of(live)
            stop = live.training.stop
            self._give_list(live, driven)
            driven.target = None if steps is None or stop is None else stop.step + steps
            with _running(driven):
                live.training.run(steps, stop_on_hit=stop_on_hit)
            return True

    def _initial_findings(self, live: LiveRank, stop: Stop, progress: ProgressFn) -> bool:
        """Has initial values judged where nobody did; whether that found something new."""
        from tui_debugger.analysis.condition_table import CONDITIONS

        watched = self._watched(live) if live.graph is not None else None
        if watched is None or not any(CONDITIONS[each.condition].initial_only for each in watched.watchpoints):
            return False
        if self._book.fresh((live.number, stop.step), watched.version) is not None:
            return False
        result = self.recheck(live, progress)
        return bool((result.hits.verdict == Verdict.FINDING).any())

    def run_to_node(self, live: LiveRank, name: str) -> None:
        """Lets one run to a node."""
        with self._lock:
            driven = self._of(live)
            self._give_list(live, driven)
            stop = live.training.stop
            driven.target = None if stop is None else stop.step + 1
            with _running(driven):
                live.training.run_to_node(name)

    def give_list(self, live: LiveRank) -> None:
        """Tells one the list as it is now; it follows it from its next step on."""
        if live.graph is not None:
            with self._lock:
                self._give_list(live, self._of(live))

    def release(self, live: LiveRank) -> None:
        """Lets one go for good."""
        with self._lock:
            driven = self._of(live)
            driven.watched, driven.target = None, None
            if driven.phase is Phase.STOPPED:
                driven.phase = Phase.RUNNING
            live.training.release()

    def recheck(self, live: LiveRank, progress: ProgressFn = no_progress) -> PairResult:
        """Has one judge what it holds by the list as it is now.

        Raises:
            NotStoppedError, LostError, CancelledError: see ``control.Training``.
        """
        stop = live.standing
        if stop is None or live.graph is None:
            raise NotStoppedError(
                "the training does not stand at a step",
                where=f"rank {live.number}: {live.training.phase.value}",
                hint="pause it first",
            )
        with self._lock:
            driven = self._of(live)
            watched = self._give_list(live, driven)
        hits: list[ReceivedHit] = []
        live.ask(lambda: hits.extend(live.training.recheck(progress)), progress)
        with self._lock:
            driven.together(stop.step, hits, again=True)
        return self._file(live, stop, watched, hits)

    def _give_list(self, live: LiveRank, driven: Driven) -> Watched:
        """Tells a training the list, and remembers what it was told."""
        if live.graph is None:
            raise NotStoppedError("the graph of the training did not come yet", where=f"rank {live.number}")
        watched = self._watched(live)
        before = driven.watched
        if before is not None and before.graph is watched.graph and before.version == watched.version:
            return before  # naming a hundred thousand nodes anew at every step would take a while
        pairs = zip(watched.watchpoints, watched.masks, strict=True)
        live.training.set_watchpoints(remote_watchpoints(pairs, watched.graph.nodes, live.training.info))
        driven.watched = watched
        return watched

    # -- what happened -----------------------------------------------------------------------------

    def _handle(self, happened: Happened) -> None:
        """One event; whatever goes wrong with one training must not end the thread."""
        try:
            self._take(happened)
        except Exception as error:  # noqa: BLE001 - told to people, and the next event is worked on
            self._source.notice(f"an event of a training was lost: {type(error).__name__}: {error}")

    def _take(self, happened: Happened) -> None:
        training, event = happened.training, happened.event
        if event is Event.REFUSED or training is None:
            refusals = self._trainings.refusals
            number = self._source.rank_of(training).number if training is not None else None
            self._tell(LiveEvent(LiveKind.REFUSED, number, refusals[-1] if refusals else "a client was turned away"))
            return
        live = self._source.apply(training, event)
        driven = self._of(live)
        driven.phase = training.phase if event is Event.BACK else _PHASES.get(event, driven.phase)
        if event is Event.GRAPH:
            self._graph_came(live, driven, happened.stop)
        elif event is Event.STOPPED and happened.stop is not None:
            self._stopped(live, driven, happened.stop, happened.hits)
        elif event is Event.HITS and happened.stop is not None:
            self._reported(live, driven, happened.stop, happened.hits)
        elif event in _KINDS:
            if event in (Event.LOST, Event.DONE):
                self._count_silent(live, driven, happened.stop, ended=True)
            self._tell(LiveEvent(_KINDS[event], live.number, self._said(live, event)))

    def _graph_came(self, live: LiveRank, driven: Driven, stop: Stop | None) -> None:
        """Nodes, for the first time or anew: then the training is told the list for those that it has now."""
        if live.graph is None:
            return
        with self._lock:
            if driven.watched is not None and driven.watched.graph is not live.graph:
                self._count_silent(live, driven, stop, ended=True)
                self._book.drop_from(live.number, START)
                self._give_list(live, driven)
        count = len(live.graph.nodes)
        self._tell(LiveEvent(LiveKind.GRAPH, live.number, f"rank {live.number}: {plural(count, 'node')}"))

    def _stopped(self, live: LiveRank, driven: Driven, stop: Stop, hits: tuple[ReceivedHit, ...]) -> None:
        self._source.stopped(live, stop)
        driven.target = None
        self._count_silent(live, driven, stop)
        with self._lock:
            watched, hits = driven.watched, driven.together(stop.step, hits)
        found = self._file(live, stop, watched, hits) if watched is not None else None
        self._tell(LiveEvent(LiveKind.STOPPED, live.number, _stop_text(live, stop, found), stop.step, stop.count))

    def _reported(self, live: LiveRank, driven: Driven, stop: Stop, hits: tuple[ReceivedHit, ...]) -> None:
        if driven.watched is None:
            return
        for step in live.noted(stop.step):
            self._book.forget((live.number, step))
        if driven.phase is Phase.RUNNING:
            self._count_silent(live, driven, stop)
        with self._lock:
            watched, hits = driven.watched, driven.together(stop.step, hits, again=driven.phase is not Phase.RUNNING)
        found = self._file(live, stop, watched, hits)
        self._tell(LiveEvent(LiveKind.HITS, live.number, _stop_text(live, stop, found), stop.step))

    def _file(self, live: LiveRank, stop: Stop, watched: Watched, hits: Iterable[ReceivedHit]) -> PairResult:
        """Keeps what a training found at a stop."""
        pair, received = (live.number, stop.step), list(hits)
        live.told(stop.step, received)
        driven = self._of(live)
        before = driven.weights.at(stop.step, watched)
        result = judgement_of(live.number, stop, watched, received, self._source.notice, before=before)
        if not stop.node:
            driven.weights.judged(stop.step, watched, result)
        if watched.graph is not live.graph:  # its rows are not those of now
            return result
        with self._book.judging(pair) as ticket:
            self._book.put(ticket, watched.version, result)
        with self._lock:
            self._hits.pop(pair, None)
            self._hits[pair] = len(result.hits)
            while sum(self._hits.values()) > _MOST_HITS and len(self._hits) > 1:
                oldest = next(iter(self._hits))
                del self._hits[oldest]
                self._book.forget(oldest)
        return result

    def _count_silent(self, live: LiveRank, driven: Driven, stop: Stop | None, *, ended: bool = False) -> None:
        """Accounts for steps that a training judged and had nothing to say about."""
        if stop is None:
            return
        watched = driven.watched
        count = stop.step - driven.last - (0 if ended else 1)
        if watched is not None and count > 0:
            with self._lock:
                list_ = (watched.version, id(watched.graph))
                before, coverage = driven.silent.get(list_, (0, None))
                if coverage is None:
                    at = Stop(0, max(stop.step, START + 1))
                    coverage = judgement_of(live.number, at, watched, (), _ignore).coverage
                driven.silent[list_] = before + count, replace(coverage, steps=())
        driven.last = stop.step

    def _resync(self) -> None:
        """Looks at all trainings: at the beginning, and when events were lost."""
        for training in self._trainings.all():
            live = self._source.rank_of(training)
            if training.graphs and live.graph is None:
                self._handle(Happened(training, Event.GRAPH))
            stop, driven = training.stop, self._of(live)
            driven.phase = training.phase
            if training.phase is Phase.STOPPED and stop is not None and stop != live.stop:
                self._handle(Happened(training, Event.STOPPED, stop, tuple(training.hits)))
            elif training.phase in (Phase.LOST, Phase.DONE):
                event = Event.LOST if training.phase is Phase.LOST else Event.DONE
                self._handle(Happened(training, event, stop))

    def _of(self, live: LiveRank) -> Driven:
        with self._lock:
            return self._driven.setdefault(live.number, Driven(live.training.phase))

    def _said(self, live: LiveRank, event: Event) -> str:
        info = live.training.info
        words = {
            Event.CONNECTED: f"{info.program} on {info.address or 'this machine'}",
            Event.LOST: "the connection was lost",
            Event.BACK: "is back",
            Event.DONE: "has finished",
        }
        return f"rank {live.number}: {words[event]}" if event in words else ""


_PHASES: Final = {
    Event.STOPPED: Phase.STOPPED,
    Event.RUNNING: Phase.RUNNING,
    Event.LOST: Phase.LOST,
    Event.DONE: Phase.DONE,
}


@contextmanager
def _running(driven: Driven) -> Iterator[None]:
    """It runs from now on, unless it could not be told so: its next stop may be reported before the call returns."""
    before, driven.phase = driven.phase, Phase.RUNNING
    try:
        yield
    except BaseException:
        driven.phase = before
        raise


def _ignore(_: str) -> None:
    """For a judgement without hits, which has nothing to complain of."""


def _stop_text(live: LiveRank, stop: Stop, found: PairResult | None) -> str:
    where = f"rank {live.number}: step {step_text(stop.step)}" + (f" at {stop.node}" if stop.node else "")
    hits = found.hits.findings if found is not None else 0
    return f"{where}, {plural(hits, 'hit')}" if hits else where


def unknown_rank(rank: int, there: Iterable[int]) -> TdbgError:
    """The error of a rank that no training has."""
    listed = ", ".join(map(str, there))
    return TdbgError(f"no training has rank {rank}", hint=f"there is rank {listed}" if listed else "none has come yet")
