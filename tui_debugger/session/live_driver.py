"""Drives the trainings of a live session, and tells its listeners what happened."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_debugger.causes.by_design_steps import may_be_absorbed
from tui_debugger.causes.rule import mark_hits
from tui_debugger.check.measure import Measurements
from tui_debugger.check.received import (
    GivenWatchpoints,
    TrainingJudgement,
    initial_values,
    judgement_of,
    places_without_statistics,
    watched_for_overflow,
    with_statistics,
)
from tui_debugger.check.results import KnownResults
from tui_debugger.check.step import PairResult
from tui_debugger.check.types import Pair
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, TdbgError
from tui_debugger.live import wire
from tui_debugger.live.graph import remote_watchpoints
from tui_debugger.live.rank import LiveRank
from tui_debugger.live.source import LiveSource
from tui_debugger.live.wire import (
    START,
    Event,
    Phase,
    ReceivedHit,
    RemoteWatchpoint,
    TrainingStop,
)
from tui_debugger.model import Coverage, OperandState, Progress, ProgressFn, Verdict, no_progress
from tui_debugger.session.live_events import EventQueue, Happened, LiveEvent, LiveState
from tui_debugger.session.live_evidence import AT_STOPS, evidence, statistics, values
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import step_text

if TYPE_CHECKING:
    from tui_debugger.live.server import Server
    from tui_debugger.live.server.training import RemoteTraining

_MOST_HITS: Final = 500_000
"""Hits of trainings that are kept; the results of the oldest steps are dropped first."""
_MOST_SPANS: Final = 1_000
"""Stretches of silent steps that are kept per training; nothing else is kept of older steps either."""
_TOLD: Final = frozenset({Event.CONNECTED, Event.LOST, Event.BACK, Event.DONE, Event.RUNNING})
"""Events that are passed on as they come."""


@dataclass(frozen=True, slots=True)
class HitStops:
    """Where hits stop a training: at all, also inside a step, and there also at an Inf that may be by design."""

    on_hit: bool = True
    at_nodes: bool = True
    at_inf: bool = True


@dataclass(frozen=True, slots=True)
class Detour:
    """A training runs to the end of its step; ``target`` is the step at which it was to stop (None: at a hit)."""

    target: int | None


@dataclass
class DrivenTraining:
    """The facts about one training besides its values.

    Attributes:
        watched: the list that it judges by.
        coming: lists that were sent while it runs and that it does not judge by yet, by their numbers.
        target: the step at which it is to stop; None: at a hit.
        detour: set while it runs to the end of its step, whatever its target is.
        silent: the number of steps without a result of their own, by list version and coverage of the step.
        spans: (list version, these steps); the oldest spans are dropped.
        covers: the coverage of a silent step, by list, graph, and kind of step: see ``_kind_of_step``.
        accounted: the list and graph of the last step that is accounted for; ``last`` is that step.
        step, reported: the step (with list version) that hits were reported of last, and these hits.
        since: the step from which the silence of the training means that it found nothing.
        found_at: the newest step with reported hits.
        late: the stop of reported hits that are not filed yet, because the same step may have more.
        unfinished: the stop inside a step whose result was filed last: it is filed again at the end of the step.
        unjudged: number of the stop at which it stands after a step that no list judged.
        ended: the last step that ended.
    """

    phase: Phase
    watched: GivenWatchpoints | None = None
    coming: dict[int, GivenWatchpoints] = field(default_factory=dict)
    target: int | None = None
    stops: HitStops = field(default_factory=HitStops)
    detour: Detour | None = None
    pauses: bool = False
    silent: Counter[tuple[int, Coverage]] = field(default_factory=Counter)
    spans: deque[tuple[int, range]] = field(default_factory=lambda: deque(maxlen=_MOST_SPANS))
    covers: dict[tuple[object, ...], Coverage] = field(default_factory=dict)
    accounted: tuple[int, int] | None = None
    last: int = START
    step: tuple[int, int] | None = None
    reported: dict[tuple[str, int, int], ReceivedHit] = field(default_factory=dict)
    since: int | None = None
    found_at: int = START - 1
    late: TrainingStop | None = None
    unfinished: TrainingStop | None = None
    unjudged: int | None = None
    ended: int = START

    def together(self, step: int, hits: Iterable[ReceivedHit], *, again: bool = False) -> tuple[ReceivedHit, ...]:
        """Merges hits with earlier hits of the step; ``again``: the training judged everything once more."""
        at = (step, self.watched.version if self.watched is not None else -1)
        known = self.reported if self.step == at else {}
        if again or self.step != at:
            self.step, self.reported = at, {}
        for hit in hits:
            place = (hit.node, hit.slot, hit.watchpoint)
            before = known.get(place)
            self.reported[place] = hit if before is None else _that_counts(before, hit, again=again)
        return tuple(self.reported.values())

    @property
    def knows_writes(self) -> bool:
        """Whether the client reports from the first step on which weights the program itself made bad."""
        return self.watched is not None and self.watched.info.program.startswith("PyTorch ")


class Driver:
    """Drives trainings. Safe to use from several threads."""

    def __init__(
        self,
        source: LiveSource,
        trainings: Server,
        known_results: KnownResults,
        watched: Callable[[LiveRank], GivenWatchpoints],
        tell: Callable[[LiveEvent], None],
        *,
        measurements: Callable[[int], Measurements],
    ) -> None:
        """Takes in the present trainings, then listens; ``tell`` gets each event after its result was filed."""
        self._source, self._trainings, self._known_results = source, trainings, known_results
        self._watched, self._tell, self._measurements = watched, tell, measurements
        self._new_nodes: Callable[[int], None] = _ignore_rank
        self._closing = threading.Event()
        self._lock = threading.RLock()
        self._driven: dict[int, DrivenTraining] = {}
        self._hits: dict[tuple[int, int], int] = {}
        self._strange: set[tuple[int, int]] = set()
        self._queue = EventQueue(trainings, self._handle, self._resync, self._file_all, self._missed, renew=self._renew)
        self._resync()

    def close(self) -> None:
        self._closing.set()
        self._queue.close()

    def on_new_nodes(self, do: Callable[[int], None]) -> None:
        self._new_nodes = do

    def renew_lists(self) -> None:
        """After a change of the list: running trainings are sent it now, stopped trainings when they go on."""
        self._queue.wake()

    # -- what they are doing -----------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return self._queue.idle

    def wait_until_idle(self, limit: float) -> None:
        self._queue.wait_until_idle(limit)

    def state(self, live: LiveRank) -> LiveState:
        driven, newest = self._of(live), live.training.stop
        # It stands already, but what it found there was not worked through: that step is not known to be clean.
        early = driven.phase is Phase.RUNNING and live.training.phase is Phase.STOPPED
        return LiveState(
            rank=live.number,
            info=live.training.info,
            phase=driven.phase,
            stop=live.stop,
            graph=live.graph is not None,
            remaining=self._remaining(live, driven),
            fetched=live.fetched,
            kept=self._source.spool.of_rank(live.number),
            passed=newest.ended - early if newest is not None else None,
            ended=driven.ended,
            cause=live.training.cause,
        )

    def _remaining(self, live: LiveRank, driven: DrivenTraining) -> int | None:
        if driven.phase is not Phase.RUNNING:
            return 0
        if driven.target is None:
            return None
        stop = live.training.stop
        return max(driven.target - (stop.step if stop is not None else START), 0)

    def silent(self, version: int | None = None) -> list[tuple[int, int, Coverage]]:
        """(rank, steps, coverage of each) of all steps without a hit and without a result of their own."""
        with self._lock:
            return [
                (rank, count, each)
                for rank, driven in self._driven.items()
                for (listed, each), count in driven.silent.items()
                if version in (None, listed)
            ]

    def judged_silently(self, pairs: Iterable[Pair], version: int) -> frozenset[Pair]:
        """Returns the pairs that a training judged by this list without a hit."""
        with self._lock:
            spans = {rank: [span for of, span in each.spans if of == version] for rank, each in self._driven.items()}
        return frozenset(pair for pair in pairs if any(pair[1] in span for span in spans.get(pair[0], ())))

    def settle(self) -> None:
        """Accounts for the silent steps that running trainings have ended."""
        for live in self._source.all():
            self._settle(live, self._of(live))

    def _settle(self, live: LiveRank, driven: DrivenTraining) -> None:
        if driven.phase is Phase.RUNNING and driven.late is None and self._queue.idle:
            stop = live.training.stop
            self._finish_step(live, driven, stop, over=True)
            self._count_silent(live, driven, stop, ended=True)
            driven.ended = stop.ended if stop is not None else driven.ended

    def ended(self) -> dict[int, int]:
        with self._lock:
            return {rank: driven.ended for rank, driven in self._driven.items()}

    # -- what people want --------------------------------------------------------------------------

    def run(self, live: LiveRank, steps: int | None, stops: HitStops, progress: ProgressFn = no_progress) -> bool:
        """See ``LiveSession.run``; False when values that nobody had judged hold findings."""
        self._of(live).pauses = False
        if self._unjudged_findings(live, progress) and stops.on_hit:
            return False
        return self._go(live, steps, stops)

    def _go(self, live: LiveRank, steps: int | None, stops: HitStops) -> bool:
        with self._lock:
            driven = self._of(live)
            stop = live.training.stop
            self._give_list(live, driven)
            driven.target = None if steps is None or stop is None else stop.ended + steps
            driven.stops = stops
        # Without the lock: what the training reports next may have to wait until events are worked through.
        with _running(driven):
            live.training.run(steps, stop_on_hit=stops.on_hit, stop_on_new_nodes=True, stop_at_nodes=stops.at_nodes)
        return True

    def _unjudged_findings(self, live: LiveRank, progress: ProgressFn) -> bool:
        """Has unjudged values at the present stop judged; tells whether that found something."""
        stop = live.standing
        if stop is None:
            return False
        judge = self._initial_findings if stop.step <= START else self._late_findings
        return judge(live, stop, progress)

    def _initial_findings(self, live: LiveRank, stop: TrainingStop, progress: ProgressFn) -> bool:
        from tui_debugger.watch.condition_table import CONDITIONS

        watched = self._watched(live) if live.graph is not None else None
        if watched is None or not any(CONDITIONS[each.condition].initial_only for each in watched.watchpoints):
            return False
        if self._known_results.fresh((live.number, stop.step), watched.version) is not None:
            return False
        return _finding(self.recheck(live, progress))

    def _late_findings(self, live: LiveRank, stop: TrainingStop, progress: ProgressFn) -> bool:
        """Has the step judged that ended before the training got a list."""
        driven = self._of(live)
        watched = self._watched(live) if live.graph is not None else None
        if driven.unjudged != stop.count or watched is None or not watched.watchpoints:
            return False
        result = self._judge_late(live, stop, progress)
        driven.unjudged = None
        return result is not None and _finding(result)

    def _judge_late(self, live: LiveRank, stop: TrainingStop, progress: ProgressFn) -> PairResult | None:
        """Has a training judge the step that it holds; None, and counted as unjudged, when it holds no values of it."""
        result = self.recheck(live, progress)
        if _finding(result) or live.holds_outputs(progress):
            return result
        self._known_results.forget((live.number, stop.step))
        self._source.unjudged(live.number, "steps of which it kept no values", 1, f"first step {stop.step}")
        return None

    def run_to_node(self, live: LiveRank, name: str) -> None:
        self._unjudged_findings(live, no_progress)
        with self._lock:
            driven = self._of(live)
            self._give_list(live, driven)
            stop = live.training.stop
            driven.target = None if stop is None else stop.step + 1
            driven.stops, driven.pauses = HitStops(), False
        with _running(driven):
            live.training.run_to_node(name)

    def pause(self, live: LiveRank) -> None:
        self._of(live).pauses = True
        live.training.pause()

    def release(self, live: LiveRank) -> None:
        """Lets a training go for good: steps that end from now on are not judged."""
        driven = self._of(live)
        self._settle(live, driven)
        with self._lock:
            driven.watched, driven.coming, driven.target = None, {}, None
            if driven.phase is Phase.STOPPED:
                driven.phase = Phase.RUNNING
        live.training.release()

    def recheck(self, live: LiveRank, progress: ProgressFn = no_progress) -> PairResult:
        """Has a training judge its current values by the current list; errors as of ``RemoteTraining``."""
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
        result = self._file(live, stop, watched, hits)
        if _finding(result) and driven.unjudged == stop.count:
            driven.unjudged = None  # the caller sees the finding
        return result

    def _give_list(self, live: LiveRank, driven: DrivenTraining) -> GivenWatchpoints:
        """Sends a training the current list, unless it has it already."""
        if live.graph is None:
            raise NotStoppedError("the graph of the training did not come yet", where=f"rank {live.number}")
        watched = self._watched(live)
        before = driven.watched
        if before is not None and before.graph is watched.graph and before.version == watched.version:
            return before  # naming a hundred thousand nodes anew at every step would take a while
        driven.coming = {}
        live.training.set_watchpoints(_as_sent(live, watched))
        stop = live.training.stop
        if before is not None and stop is not None and driven.phase is not Phase.RUNNING:
            self._keep_silence(live, driven, stop.step, before)
        if stop is not None and (before is None or before.version != watched.version):
            driven.since = stop.step + (driven.phase is Phase.RUNNING)
        driven.watched = watched
        return watched

    def _renew(self) -> None:
        for live in self._source.all():
            driven = self._of(live)
            try:
                with self._lock:
                    self._renew_list(live, driven)
            except Exception as error:  # noqa: BLE001 - as in _handle
                self._broke(live, error)

    def _renew_list(self, live: LiveRank, driven: DrivenTraining) -> None:
        """Sends a running training the current list; until ``_listed`` it judges by the previous one."""
        before = driven.watched
        if before is None or live.graph is None or driven.phase is not Phase.RUNNING:
            return
        watched = self._watched(live)
        newest = [before, *driven.coming.values()][-1]
        if watched.version != newest.version:
            driven.coming[live.training.set_watchpoints(_as_sent(live, watched))] = watched

    def _listed(self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop, number: int) -> None:
        """A running training has adopted the list that was sent to it."""
        with self._lock:
            if number not in driven.coming or driven.watched is None:
                return
            self._count_silent(live, driven, stop, ended=True)
            self._keep_silence(live, driven, stop.step, driven.watched)
            driven.watched, driven.since = driven.coming[number], stop.step
            driven.coming = {each: watched for each, watched in driven.coming.items() if each > number}
        text = f"rank {live.number}: the watchpoints as they are now count from step {stop.ended + 1} on"
        self._tell(LiveEvent(Event.LISTED, live.number, text))

    # -- what happened -----------------------------------------------------------------------------

    def _handle(self, happened: Happened) -> None:
        """Handles one event; a failure of one training must not end the thread."""
        try:
            self._take(happened)
        except Exception as error:  # noqa: BLE001 - it is reported, and the next event is handled
            if happened.training is not None:
                self._broke(self._source.rank_of(happened.training), error)

    def _take(self, happened: Happened) -> None:
        training, event = happened.training, happened.event
        if event is Event.REFUSED or training is None:
            refusals = self._trainings.refusals
            number = self._source.rank_of(training).number if training is not None else None
            self._tell(LiveEvent(Event.REFUSED, number, refusals[-1] if refusals else "a client was turned away"))
            return
        live = self._source.apply(training, event)
        if happened.stop is not None:
            happened = replace(happened, stop=live.located(happened.stop))
        driven = self._of(live)
        if driven.late is not None and (event is not Event.HITS or happened.stop != driven.late):
            self._file_late(live, driven)
        self._finish_step(live, driven, happened.stop, over=event in (Event.LOST, Event.DONE))
        if happened.stop is not None and event in _STANDS:
            driven.ended = happened.stop.ended
        driven.phase = training.phase if event is Event.BACK else _PHASES.get(event, driven.phase)
        if event is Event.GRAPH:
            self._graph_came(live, driven, happened.stop)
        elif event is Event.STOPPED and happened.stop is not None:
            self._stopped(live, driven, happened.stop, happened.hits)
        elif event is Event.HITS and happened.stop is not None:
            self._reported(live, driven, happened.stop, happened.hits)
        elif event is Event.LISTED and happened.stop is not None:
            self._listed(live, driven, happened.stop, happened.listed)
        elif event in _TOLD:
            if event in (Event.LOST, Event.DONE):
                self._count_silent(live, driven, happened.stop, ended=True)
            self._tell(LiveEvent(event, live.number, self._event_text(live, event)))

    def _graph_came(self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop | None) -> None:
        """Nodes came, for the first time or anew: the training is sent the watchpoints on its present nodes."""
        if live.graph is None:
            return
        if driven.watched is not None and driven.watched.graph is not live.graph:
            same_rows = live.graph.extends(driven.watched.graph)
            self._new_nodes(live.number)
            with self._lock:
                self._count_silent(live, driven, stop, ended=True)
                driven.covers.clear()
                if not same_rows:
                    self._known_results.drop_from(live.number, START)
                self._give_list(live, driven)
        count = len(live.graph.nodes)
        self._tell(LiveEvent(Event.GRAPH, live.number, f"rank {live.number}: {plural(count, 'node')}"))

    def _stopped(
        self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop, hits: tuple[ReceivedHit, ...]
    ) -> None:
        self._source.stopped(live, stop)
        if stop.opens:
            self._before_first_run(live, driven, stop)
            return
        target, driven.target = driven.target, None
        detour, driven.detour = driven.detour, None
        target = target if detour is None else detour.target
        if stop.alone:
            self._came_alone(live, driven, stop)
        self._count_silent(live, driven, stop)
        with self._lock:
            watched, hits = driven.watched, driven.together(stop.step, hits)
        grown = stop.grown and watched is not None
        if grown:
            found = self._judge_grown(live, stop)
            with self._lock:
                hits = tuple(driven.reported.values())
        else:
            found = self._file(live, stop, watched, hits) if watched is not None else None
        stays = not grown or not stop.passing or (found is not None and _finding(found) and driven.stops.on_hit)
        if self._may_be_by_design(driven, stop, found):
            if detour is None and watched is not None and found is not None:  # as long as the training holds the inputs
                self._keep_evidence(live, stop, watched, found, hits)
            driven.detour = Detour(target)
            self._known_results.forget((live.number, stop.step))  # until the end of the step
            if self._goes_on(live, stop, stop.step, driven.stops):
                return
            driven.detour = None
            found = self._file(live, stop, watched, hits) if watched is not None else found
        elif not (stop.node or driven.stops.at_inf or driven.pauses) and (hits or detour) and not _doubtful(found):
            stays = stays and (stop.alone or (target is not None and target <= stop.step))
        if stays and watched is not None and found is not None and found.hits.findings:
            found = self._keep_evidence(live, stop, watched, found, hits)
        if not stays and self._goes_on(live, stop, target, driven.stops):
            text = _stop_text(live, stop, found) if found is not None and _finding(found) else ""
            self._tell(LiveEvent(Event.HITS, live.number, text, stop.step, ended=stop.ended, result=found))
            return
        text, driven.phase = _stop_text(live, stop, found), Phase.STOPPED
        self._tell(LiveEvent(Event.STOPPED, live.number, text, stop.step, stop.count, stop.ended, found))

    def _before_first_run(self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop) -> None:
        """A training stands before the first run of another root graph; it has its list already."""
        self._count_silent(live, driven, stop, ended=True)
        watched, target = driven.watched, driven.target
        if watched is not None and (count := initial_values(watched, stop.root)):
            what = "initial values of a network that came after the first step"
            self._source.unjudged(live.number, what, count, f"first step {stop.step + 1}")
        if stop.passing and self._goes_on(live, stop, target, driven.stops):
            return
        driven.target, driven.phase = None, Phase.STOPPED
        text = f"rank {live.number}: after step {step_text(stop.step)}, before the first run of another network"
        self._tell(LiveEvent(Event.STOPPED, live.number, text, stop.step, stop.count, stop.ended))

    @staticmethod
    def _may_be_by_design(driven: DrivenTraining, stop: TrainingStop, found: PairResult | None) -> bool:
        """Tells whether a training stands inside a step for an Inf that the end of the step may explain."""
        if not stop.node or driven.stops.at_inf or found is None or not _finding(found):
            return False
        return may_be_absorbed(found.hits)

    def _judge_grown(self, live: LiveRank, stop: TrainingStop) -> PairResult | None:
        """Judges a step whose end brought nodes that no list covered; None, and counted as unjudged, on failure."""
        try:
            return self._judge_late(live, stop, self._unless_closing)
        except TdbgError as error:
            self._source.unjudged(live.number, "steps with new nodes", 1, f"first step {stop.step}: {error.what}")
            return None

    def _goes_on(self, live: LiveRank, stop: TrainingStop, target: int | None, stops: HitStops) -> bool:
        """Lets a training go on that stands only for its new nodes; False when something else moved it meanwhile."""
        try:
            return self._go(live, None if target is None else target - stop.ended, stops)
        except TdbgError:
            return False

    def _keep_evidence(
        self,
        live: LiveRank,
        stop: TrainingStop,
        watched: GivenWatchpoints,
        found: PairResult,
        hits: tuple[ReceivedHit, ...],
    ) -> PairResult:
        """Fetches the evidence for the findings while the training stands; returns the result with it."""
        try:
            bare = [(stop.step, place) for place in places_without_statistics(watched.graph, hits, stop.root)]
            statistics(live, bare, AT_STOPS, self._unless_closing)
            near = evidence(live, self._measurements(live.number), stop.step, found.hits)
            statistics(live, near, AT_STOPS, self._unless_closing)
            values(live, near, AT_STOPS, self._unless_closing)
            found = self._file(live, stop, watched, hits)  # with the fetched evidence
        except TdbgError as error:  # the training went on or is gone: fetched tensors are kept
            if not isinstance(error, CancelledError | LostError | NotStoppedError):
                self._source.notice(f"rank {live.number}: some tensors around the findings were not kept: {error.what}")
        return found

    def _unless_closing(self, _: Progress) -> None:
        if self._closing.is_set():
            raise CancelledError("the session is closing")

    def _came_alone(self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop) -> None:
        """A training came back after steps without watchpoints, or is new: its past does not matter."""
        if driven.watched is not None and (missed := stop.step - driven.last - 1) > 0:
            first = f"first step {driven.last + 1}"
            self._source.unjudged(live.number, "steps that ran while the connection was lost", missed, first)
        driven.watched, driven.coming, driven.unjudged = None, {}, stop.count

    def _reported(
        self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop, hits: tuple[ReceivedHit, ...]
    ) -> None:
        if driven.watched is None:
            return
        for step in live.noted(stop.step):
            self._known_results.forget((live.number, step))
        runs = driven.phase is Phase.RUNNING
        if runs:
            self._count_silent(live, driven, stop)
        with self._lock:
            driven.together(stop.step, hits, again=not runs)
        driven.late = stop
        if not runs:
            self._file_late(live, driven)

    def _file_late(self, live: LiveRank, driven: DrivenTraining) -> None:
        """Files hits that came one by one: at operator level each hit has its own report."""
        stop, driven.late = driven.late, None
        with self._lock:
            watched, hits = driven.watched, tuple(driven.reported.values())
        if stop is not None and watched is not None:
            found = self._file(live, stop, watched, hits)
            text = _stop_text(live, stop, found)
            self._tell(LiveEvent(Event.HITS, live.number, text, stop.step, ended=stop.ended, result=found))

    def _finish_step(
        self, live: LiveRank, driven: DrivenTraining, now: TrainingStop | None, *, over: bool = False
    ) -> None:
        """Files a step again that was judged while it ran: only its end tells whether an Inf was by design."""
        stop = driven.unfinished
        if stop is None or now is None or (now.ended if over else now.step - 1) < stop.step:
            return
        driven.unfinished = None
        with self._lock:
            watched, hits = driven.watched, tuple(driven.reported.values())
            same = watched is not None and driven.step == (stop.step, watched.version)
        if watched is not None and same:
            found = self._file(live, replace(stop, node=""), watched, hits)
            text = _stop_text(live, stop, found)
            self._tell(LiveEvent(Event.HITS, live.number, text, stop.step, ended=stop.step, result=found))

    def _file_all(self) -> None:
        """Files waiting hits, as no event follows for now."""
        for live in self._source.all():
            driven = self._of(live)
            if driven.late is not None or driven.unfinished is not None:
                try:
                    self._file_late(live, driven)
                    self._finish_step(live, driven, live.training.stop)
                except Exception as error:  # noqa: BLE001 - as in _handle
                    self._broke(live, error)

    def _missed(self, training: RemoteTraining) -> None:
        self._source.unjudged(
            self._source.rank_of(training).number, "reports that came faster than they could be read", 1
        )

    def _broke(self, live: LiveRank, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self._source.notice(f"an event of a training was lost: {text}")
        self._source.unjudged(live.number, "reports that could not be understood", 1, f"first {text}")

    def _file(
        self, live: LiveRank, stop: TrainingStop, watched: GivenWatchpoints, hits: Iterable[ReceivedHit]
    ) -> PairResult:
        """Keeps what a training found at a stop; earlier hits of the step on other tensors stay."""
        pair, received = (live.number, stop.step), list(hits)
        if watched.graph is live.graph:
            received = with_statistics(watched.graph, live.kept(stop.step), received, stop.root)
        live.keep_hit_stats(stop, received)
        strange = next((hit.node for hit in received if watched.graph.find(hit.node) < 0), None)
        if strange is not None and pair not in self._strange:
            self._strange.add(pair)
            what = "steps with hits on nodes that are not in the graph: where it began is not known"
            self._source.unjudged(live.number, what, 1, f"first {strange} at step {stop.step}")
        if stop.node or self._of(live).step == (stop.step, watched.version):
            self._of(live).unfinished = stop if stop.node else None
        first = _begins(live, stop.step, stop.root)
        judgement = judgement_of(live.number, stop, watched, received, self._source.notice, first=first)
        if watched.graph is not live.graph:  # row numbers differ
            return judgement.result()
        by_design = 0
        if len(judgement.hits):
            self._keep_judged(live, stop, watched, judgement)
            by_design = mark_hits(self._measurements(live.number), judgement.hits, self._unless_closing)
            live.keep_designs(watched.graph, stop.step, judgement.designs(watched.graph))
        if strange is not None or _lacks_nodes(live, stop):  # the graph is of another step
            judgement.hits.origin[:] = False
        result = judgement.result(by_design)
        with self._known_results.judging(pair) as ticket:
            self._known_results.put(ticket, watched.version, result)
        with self._lock:
            self._hits.pop(pair, None)
            self._hits[pair] = len(result.hits)
            while sum(self._hits.values()) > _MOST_HITS and len(self._hits) > 1:
                oldest = next(iter(self._hits))
                del self._hits[oldest]
                self._known_results.forget(oldest)
        return result

    def _keep_judged(
        self, live: LiveRank, stop: TrainingStop, watched: GivenWatchpoints, judgement: TrainingJudgement
    ) -> None:
        """Keeps which tensors of a step with hits were clean, and the clean parameters of the steps before."""
        if stop.step > START:
            driven = self._of(live)
            for step in live.last_runs(stop.step):
                self._keep_silence(live, driven, step, watched)
            driven.found_at = max(driven.found_at, stop.step)
        live.keep_judged(watched.graph, stop.step, judgement.clean, unfinished=bool(stop.node))

    def keep_last(self) -> None:
        """For trainings without findings, keeps that the last step was clean: nothing else is known of them."""
        self.settle()
        for live in self._source.all():
            driven = self._of(live)
            watched, step = driven.watched, driven.last
            said = driven.since is not None and step > max(driven.since, driven.found_at, START)
            if watched is not None and said and not any(each > START for each in live.judged()):
                live.keep_judged(watched.graph, step, watched_for_overflow(watched, live.root(step)))

    @staticmethod
    def _keep_silence(live: LiveRank, driven: DrivenTraining, step: int, watched: GivenWatchpoints) -> None:
        """Keeps that the watched parameters were clean in a step of which the training reported nothing."""
        silent = driven.since is not None and step > max(driven.since, driven.found_at)
        from_the_start = step == START and driven.knows_writes
        if step not in live.judged() and (silent or from_the_start):
            looked = watched_for_overflow(watched, live.root(step))
            live.keep_judged(watched.graph, step, looked & watched.graph.parameter)

    def _count_silent(
        self, live: LiveRank, driven: DrivenTraining, stop: TrainingStop | None, *, ended: bool = False
    ) -> None:
        """Accounts for the steps that a training judged without a hit."""
        if stop is None:
            return
        watched = driven.watched
        count = (stop.ended if ended else stop.step - 1) - driven.last
        list_ = (watched.version, id(watched.graph)) if watched is not None else None
        if watched is not None and count > 0:
            steps = range(driven.last + 1, driven.last + 1 + count)
            kinds = _kinds_of_steps(live, steps, remembered=list_ == driven.accounted)
            with self._lock:
                driven.spans.append((watched.version, steps))
                for kind, times in kinds.items():
                    driven.silent[watched.version, self._silent_coverage(live, driven, watched, kind)] += times
        if (stop.ended if ended else stop.step) > driven.last:
            driven.accounted = list_
        driven.last = max(driven.last, stop.ended) if ended else stop.step

    @staticmethod
    def _silent_coverage(live: LiveRank, driven: DrivenTraining, watched: GivenWatchpoints, kind: StepKind) -> Coverage:
        key = (watched.version, id(watched.graph), kind)
        if key not in driven.covers:
            stop, remembered = TrainingStop(0, START + 1, root=kind.root), kind.remembered
            judgement = judgement_of(live.number, stop, watched, (), _ignore, remembered=remembered, first=kind.begins)
            driven.covers[key] = replace(judgement.coverage, steps=())
        return driven.covers[key]

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

    def _of(self, live: LiveRank) -> DrivenTraining:
        with self._lock:
            return self._driven.setdefault(live.number, DrivenTraining(live.training.phase))

    def _event_text(self, live: LiveRank, event: Event) -> str:
        info = live.training.info
        words = {
            Event.CONNECTED: f"{info.program} on {info.address or 'this machine'}",
            Event.LOST: "the connection was lost",
            Event.BACK: "is back",
            Event.DONE: self.state(live).ending or "has finished",
        }
        return f"rank {live.number}: {words[event]}" if event in words else ""


_PHASES: Final = {  # STOPPED is missing: ``_stopped`` sets it when the results of the step are there
    Event.RUNNING: Phase.RUNNING,
    Event.LOST: Phase.LOST,
    Event.DONE: Phase.DONE,
}


def _as_sent(live: LiveRank, watched: GivenWatchpoints) -> list[RemoteWatchpoint]:
    pairs = zip(watched.watchpoints, watched.masks, strict=True)
    return remote_watchpoints(pairs, watched.graph.nodes, live.training.info)


class StepKind(NamedTuple):
    """Determines which tensors a silent training looked at in a step.

    Attributes:
        root: the root graph that ran; None: all of them.
        begins: whether no step before ran that graph.
        remembered: whether the training had the expressions of the list at the step before, too.
    """

    root: int | None
    begins: bool
    remembered: bool


def _kinds_of_steps(live: LiveRank, steps: range, *, remembered: bool) -> Counter[StepKind]:
    """Counts some steps by kind; ``remembered`` applies to the first step."""
    first, rest = steps[0], steps[1:]
    kinds = Counter([_kind_of_step(live, first, remembered=remembered)])
    if rest and live.root(first) is None and live.root(rest[-1]) is None:  # one network, or unknown
        kinds[_kind_of_step(live, rest[0], remembered=True)] += len(rest)
        return kinds
    return kinds + Counter(_kind_of_step(live, step, remembered=True) for step in rest)


def _kind_of_step(live: LiveRank, step: int, *, remembered: bool) -> StepKind:
    root = live.root(step)
    return StepKind(root, _begins(live, step, root), remembered)


def _begins(live: LiveRank, step: int, root: int | None) -> bool:
    return step <= START + 1 or (root is not None and live.run_before(root, step) <= START)


_STANDS: Final = (Event.STOPPED, Event.HITS, Event.LOST, Event.DONE)


def _lacks_nodes(live: LiveRank, stop: TrainingStop) -> bool:
    """Tells whether the training ran nodes up to a stop that it did not send."""
    return any(each.what.startswith(wire.UNSENT_NODES) and each.step <= stop.step for each in live.training.unrecorded)


def _that_counts(before: ReceivedHit, hit: ReceivedHit, *, again: bool) -> ReceivedHit:
    """The first pass of a step counts, unless a later pass has NaN and the first only Inf that a mask may pass on."""
    first, later = (hit, before) if again else (before, hit)
    if first.stats is None or later.stats is None:
        return hit
    if first.stats.nan or not later.stats.nan:
        return first
    passed_on = any(state is not OperandState.CLEAN for _, state in first.operands)
    made = all(state is OperandState.CLEAN for _, state in later.operands)
    return later if passed_on or made else first


def _finding(result: PairResult) -> bool:
    return bool((result.hits.verdict == Verdict.FINDING).any())


def _doubtful(result: PairResult | None) -> bool:
    wrong = (Verdict.FINDING, Verdict.BLOCKED, Verdict.CANNOT_JUDGE)
    return result is None or any((result.hits.verdict == each).any() for each in wrong)


@contextmanager
def _running(driven: DrivenTraining) -> Iterator[None]:
    """Marks a training as running before the call, since its next stop may come before the call returns."""
    before, driven.phase = driven.phase, Phase.RUNNING
    try:
        yield
    except BaseException:
        driven.phase = before
        raise


def _ignore_rank(_: int) -> None:
    """Does nothing."""


def _ignore(_: str) -> None:
    """Does nothing: a judgement without hits has no notices."""


def _stop_text(live: LiveRank, stop: TrainingStop, found: PairResult | None) -> str:
    where = f"rank {live.number}: step {step_text(stop.step)}" + (f" at {stop.node}" if stop.node else "")
    hits = found.hits.findings if found is not None else 0
    return f"{where}, {plural(hits, 'hit')}" if hits else where


def unknown_rank(rank: int, there: Iterable[int]) -> TdbgError:
    listed = ", ".join(map(str, there))
    return TdbgError(f"no training has rank {rank}", hint=f"there is rank {listed}" if listed else "none has come yet")
