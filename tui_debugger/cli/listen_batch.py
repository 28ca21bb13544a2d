"""``tdbg listen --no-screen``: drives trainings to their end; ``listen_log`` reports the findings."""

from __future__ import annotations

import os
import queue
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tui_debugger.cli.listen_log import ANSWER, FindingsLog
from tui_debugger.cli.options import add_watchpoints, conditions_of, given_watchpoints
from tui_debugger.cli.output import interruptible, note
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, TdbgError
from tui_debugger.text.backlog import StreamBehind, writing_behind

if TYPE_CHECKING:
    from pathlib import Path

    from tui_debugger.check.step import PairResult
    from tui_debugger.check.types import Pair
    from tui_debugger.check.verdicts import Doubt
    from tui_debugger.model import ProgressFn, Watchpoint
    from tui_debugger.session.live import LiveEvent, LiveSession, LiveState


_ROOM: Final = 256 << 20
"""Bytes of values that are fetched at one step to be saved."""
_EVERYTHING: Final = 5000
"""The number of tensors that are fetched at one step to be saved."""
_SETTLED: Final = 0.5
"""Seconds without an event of a training after which its ended steps count as judged."""
GRACE: Final = 20.0
"""Seconds that a lost training has to come back before it counts as gone."""
_LOOK: Final = 0.2
"""Seconds between two looks at the clock."""


def run_batch(arguments: Namespace, listen: Callable[[], LiveSession], warning: str) -> int:
    """Listens until the end, sums up, and lets every training go; returns the exit code.

    ``warning`` is printed once the server listens. Raises what ``listen`` raises, and TdbgError if no training came.
    Raises OSError if stdout could not be written: the findings until then are summed up on stderr.
    """
    log = FindingsLog(arguments)
    try:
        with writing_behind() as (backlog, out):
            log.backlog = backlog
            try:
                code = _listen(arguments, listen, warning, log, out)
                backlog.hurry = code not in (0, 1, TdbgError.exit_code)
                return code
            except TdbgError as error:
                log.failed(error)
                raise
    except OSError:
        log.tell_again()
        raise


def _listen(
    arguments: Namespace, listen: Callable[[], LiveSession], warning: str, log: FindingsLog, out: StreamBehind
) -> int:
    given = given_watchpoints(arguments)
    fail_on = conditions_of(arguments.fail_on)
    if arguments.save is not None:
        _make_room(arguments.save)
    with interruptible(lambda _: None) as progress:
        session = listen()
        if warning:
            note(warning)
        for line in (f"waiting for a training at {session.address}", *session.waiting_text().splitlines()):
            note(line)
        batch = HeadlessListener(session, arguments, given, log, progress, out)
        try:
            batch.follow()
        except CancelledError:
            batch.interrupted = True
        except OSError:
            if out.failure is None:
                raise
            batch.cut = True  # nobody would read what comes
    return batch.finish(fail_on)


def _make_room(directory: Path) -> None:
    """Makes the directory at the start: after hours of training a failure would come too late."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        empty = not any(directory.iterdir())
    except FileExistsError:
        empty = False
    except OSError as error:
        raise TdbgError(
            f"the directory cannot be made: {error.strerror or error}", where=str(directory), hint="choose another one"
        ) from error
    if not empty:
        raise TdbgError("the directory exists and is not empty", where=str(directory), hint="choose another one")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise TdbgError("the directory must not be written to", where=str(directory), hint="choose another one")


@dataclass
class Follow:
    """The progress of one training.

    Attributes:
        begun: it was let go for the first time.
        stop: the number of the last stop that was handled.
        standing: it waits there.
        first: its step at the first stop.
        over: nothing more is expected of it.
        lost: when it was lost, by ``time.monotonic``; None while it is connected.
        ended: the last step with complete reports; -1 are the values before the first step.
        passed: the last ended step at the previous look.
        heard: when the last event came.
    """

    begun: bool = False
    stop: int = 0
    standing: bool = False
    first: int = -1
    over: bool = False
    lost: float | None = None
    ended: int = -2
    passed: int = -2
    heard: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class FirstFindingEnd:
    """The end at the first finding: every rank judges that step, until the time ``until`` (``time.monotonic``).

    No rank is held meanwhile: other ranks may need its next operations to reach the end of the step.
    """

    step: int
    until: float


@dataclass
class HeadlessListener:
    """One session of listening.

    ``interrupted``, ``cut``, ``gone``, ``unsaved``, ``unanswered``: see ``Reasons``. ``early``: ranks that ended or
    were lost before their expected end.
    """

    session: LiveSession
    arguments: Namespace
    given: Sequence[Watchpoint]
    log: FindingsLog
    progress: ProgressFn
    out: StreamBehind
    interrupted: bool = False
    cut: bool = False
    gone: list[str] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._events: queue.SimpleQueue[LiveEvent] = queue.SimpleQueue()
        self._end = self.session.subscribe(self._events.put)
        self.session.on_new_nodes(self._more_nodes)
        self._ranks: dict[int, Follow] = {}
        self._rules: frozenset[int] | None = None
        self._ending: FirstFindingEnd | None = None
        self._since = self._looked = time.monotonic()
        for state in self.session.trainings():  # who came before anybody listened to events
            if state.stop is not None and state.graph:
                self._ranks[state.rank] = Follow(stop=state.stop.count, standing=True)

    # -- while it runs -----------------------------------------------------------------------------

    def follow(self) -> None:
        """Runs until the end. Raises TdbgError if no training came in time, or no watchpoint is left."""
        self._begin_all()
        while not self._over():
            with suppress(queue.Empty):
                self._take(self._events.get(timeout=_LOOK))
                self._begin_all()
                self._flush()
            if time.monotonic() - self._looked >= _LOOK:
                self._look_around()

    def _over(self) -> bool:
        return bool(self._ranks) and all(each.over for each in self._ranks.values())

    def _look_around(self) -> None:
        """Prints steps that all ranks judged, and gives up on overdue trainings.

        Raises TdbgError if no training came in time, and OSError if the output cannot be written.
        """
        self.out.check()
        now = self._looked = time.monotonic()
        for rank, each in self._ranks.items():
            self._look_at(rank, each, now)
        self._flush()
        self.log.pause(self.session)
        self._give_up(now)

    def _flush(self) -> None:
        active = [each.ended for each in self._ranks.values() if each.begun and not each.over]
        self.log.flush(min(active, default=None))

    def _look_at(self, rank: int, each: Follow, now: float) -> None:
        """Takes in steps that ended without an event: a training sends no event for steps without findings."""
        if each.over or not each.begun:
            return
        self.session.settle()  # judges a step at its end that had its last report inside it
        before, passed = each.passed, self.session.state(rank).passed
        each.passed = each.passed if passed is None else passed
        if self.session.idle and self._events.empty() and now - each.heard > _SETTLED:
            self._ended(rank, each, before)

    def _give_up(self, now: float) -> None:
        from tui_debugger.text.tensors import ranks_text, step_text

        timeout = self.arguments.timeout
        if timeout is not None and self._rules is None and now - self._since > timeout:
            there = len(self.session.ranks())
            what = f"only {there} of {self._wanted} trainings came" if there else "no training came"
            raise TdbgError(
                f"{what} within {timeout:g} s", where=self.session.address, hint=self.session.waiting_text()
            )
        for rank, each in self._ranks.items():
            if each.lost is not None and not each.over and now - each.lost > GRACE:
                each.over = True
                self.log.ended(rank)
                self.early.append(rank)
        if self._ending is not None and now > self._ending.until:
            silent = [rank for rank, each in self._ranks.items() if not each.over]
            for rank in silent:
                self._ranks[rank].over = True
            if silent:
                ranks = f"rank{'' if len(silent) == 1 else 's'} {ranks_text(silent)}"
                step = step_text(self._ending.step)
                self.unanswered.append(f"{ranks} had not judged step {step} {ANSWER:g} s after the first finding")

    @property
    def _wanted(self) -> int:
        return self.arguments.ranks or 1

    def _take(self, event: LiveEvent) -> None:
        from tui_debugger.live.wire import Event

        kind, rank = event.kind, event.rank
        if kind in (Event.CONNECTED, Event.REFUSED, Event.LOST, Event.BACK, Event.DONE):
            note(event.text)
        if rank is None:
            return
        each = self._ranks.setdefault(rank, Follow())
        if kind is Event.REFUSED:
            self.session.release([rank])
            each.over = True
            self.gone.append(f"rank {rank}: {event.text}")
        each.heard = time.monotonic()
        if kind in (Event.STOPPED, Event.HITS):
            each.lost = None
            if kind is Event.STOPPED:
                self._stood(rank, each, event)
            else:
                self._report(event)
        elif kind in (Event.DONE, Event.LOST):
            self._went(rank, each, done=kind is Event.DONE)
        elif kind is Event.BACK:
            each.lost = None
            if each.begun and not each.over and self.session.state(rank).phase.name == "STOPPED":
                self._go_on(rank, each)  # it still waits where it was lost

    def _went(self, rank: int, each: Follow, *, done: bool) -> None:
        """Handles a training that ended, or a broken connection: a lost training may come back."""
        if done:
            self._begin_ending(self.log.ended(rank))
            if not each.over and self.session.state(rank).ending:
                self.early.append(rank)
            each.over = True
        else:
            each.lost = time.monotonic()

    def _stood(self, rank: int, each: Follow, event: LiveEvent) -> None:
        """Handles a training that waits at a stop, once for each stop."""
        if event.count <= each.stop:
            return
        each.stop, each.standing = event.count, True
        self._report(event, standing=True)
        if each.begun and not each.over:
            self._go_on(rank, each)

    def _begin_all(self) -> None:
        """Lets trainings go from their first stop, as soon as enough trainings are there."""
        ready = [rank for rank, each in self._ranks.items() if each.standing and each.lost is None and not each.over]
        waiting = [rank for rank in ready if not self._ranks[rank].begun]
        if not waiting or (self._rules is None and len(ready) < self._wanted):
            return
        if self._rules is None:
            self._fill_list()
        for rank in waiting:
            self._begin(self.session.state(rank))

    def _fill_list(self) -> None:
        self._rules = add_watchpoints(self.session, self.given, recommended=self._recommended)

    @property
    def _recommended(self) -> bool:
        recommended: bool | None = self.arguments.recommended
        return not self.given if recommended is None else recommended

    def _more_nodes(self, _: int) -> None:
        """Watches newly named nodes by the recommended watchpoints."""
        if self._recommended:
            self.session.add_recommended()

    def _begin(self, state: LiveState) -> None:
        each = self._ranks[state.rank]
        each.begun = True
        each.first = state.stop.ended if state.stop is not None else -1
        self._go_on(state.rank, each)

    def _go_on(self, rank: int, each: Follow) -> None:
        """Lets one training run, as long as steps are left for it."""
        arguments, state = self.arguments, self.session.state(rank)
        at = state.stop.ended if state.stop is not None else each.first
        left = None if arguments.steps is None else each.first + arguments.steps - at
        if left is not None and left <= 0:
            if arguments.save is not None:
                self._collect_all(rank, at)
            self._let_go(rank, each)
            return
        inside = bool(arguments.stop_on_hit and state.stop is not None and state.stop.node)
        stops = {
            "stop_on_hit": not inside and bool(arguments.stop_on_hit or arguments.save is not None),
            "stop_at_nodes": not inside and bool(arguments.stop_on_hit),
        }
        if inside:
            left = 1  # the step is judged at its end: its other operators need no stop each
        elif self._ending is not None:
            left = max(self._ending.step - at, 1)
        each.standing = False
        try:
            went = self.session.run(left, [rank], progress=self.progress, **stops)
            if not went:  # what nobody had judged before was found wrong
                self._report_known(rank, each, at)
                if each.over:
                    return
                self.session.run(left, [rank], progress=self.progress, **stops)
        except (NotStoppedError, LostError):
            return  # it went away meanwhile: an event says so
        self._ended(rank, each, at)  # also where it came without a list, and judged that step now

    def _let_go(self, rank: int, each: Follow) -> None:
        """Lets a training run to its end: only the steps that it has ended count."""
        each.over = True
        self.session.wait_until_idle(_SETTLED)
        self.session.release([rank])

    def _report(self, event: LiveEvent, *, standing: bool = False) -> None:
        rank, step = event.rank, event.step
        if rank is None or step is None:
            return
        if event.result is not None and self._rules is not None:
            self._found((rank, step), event.result, standing=standing)
        each = self._ranks.setdefault(rank, Follow())
        if each.begun:
            self._ended(rank, each, event.ended)

    def _report_known(self, rank: int, each: Follow, step: int) -> None:
        result = self.session.latest(rank, step)
        if result is not None:
            self._found((rank, step), result, standing=True)
            self._ended(rank, each, step)

    def _found(self, pair: Pair, result: PairResult, *, standing: bool) -> None:
        if self._ending is not None and pair[1] > self._ending.step:
            return  # what runs on only so that others get to the end of the step
        more = self.log.take(
            pair, result, graphs=bool(self.session.graph_names(pair[:1])), notes=self.session.notes_at(*pair)
        )
        if more and standing and self.arguments.save is not None:
            self._collect(pair, result)

    def _ended(self, rank: int, each: Follow, step: int) -> None:
        """Marks all steps of a training up to ``step`` as completely reported."""
        each.ended = max(each.ended, step)
        self._begin_ending(self.log.ended(rank, each.ended))
        if self._ending is not None and not each.over and each.ended >= self._ending.step:
            self._let_go(rank, each)

    def _begin_ending(self, found: Sequence[int]) -> None:
        """Begins to end after steps with findings (--stop-on-hit): every training stops at the end of its step."""
        if not found or self._ending is not None or not self.arguments.stop_on_hit:
            return
        self._ending = FirstFindingEnd(min(found), time.monotonic() + ANSWER)
        for rank, each in self._ranks.items():
            if each.over:
                continue
            if each.ended >= self._ending.step:
                self._let_go(rank, each)
            elif not each.standing:
                self.session.pause([rank])

    def _collect(self, pair: Pair, result: PairResult) -> None:
        """Fetches the tensors around findings, to be saved: see ``LiveSession.keep``."""
        from tui_debugger.session.live_evidence import Budget

        try:
            self.session.keep(*pair, result.hits, Budget(_EVERYTHING, _ROOM, _ROOM), self.progress)
        except CancelledError:
            raise
        except TdbgError as error:
            note(f"not everything around the hits could be fetched: {error.what}")

    def _collect_all(self, rank: int, step: int) -> None:
        """Fetches the watched tensors of the last step, to be saved."""
        from tui_debugger.check.hits import HitList
        from tui_debugger.session.live_evidence import Budget

        self.session.keep(rank, step, HitList(()), Budget(_EVERYTHING, _ROOM, _ROOM), self.progress)

    # -- at the end --------------------------------------------------------------------------------

    def finish(self, fail_on: frozenset[str]) -> int:
        """Saves, sums up, lets trainings go; returns the exit code."""
        saved = self._save()
        self._rest()
        self.session.settle()
        code = self.log.summary(self.session, self._rules or frozenset(), fail_on, self, saved)
        self.session.release()
        if not self.interrupted:
            self._stay()
        self._end()
        self.session.close()
        return code

    def early_ends(self, steps: Mapping[int, int], sick: Collection[int]) -> list[Doubt]:
        """Returns a doubt about each kind of early end, with the steps that are clean until there.

        ``steps`` counts the judged steps by rank; ``sick`` are the ranks with findings.
        """
        from tui_debugger.check.verdicts import Doubt
        from tui_debugger.live.wire import Phase
        from tui_debugger.text.numbers import named

        doubts = []
        for rank in self.early:
            state, first = self.session.state(rank), self._ranks[rank].first + 1
            which = f"the training of rank {rank}" if len(self._ranks) > 1 else "the training"
            text = f"{which} {state.ending}"
            ran = range(first, state.ended + 1)
            if rank not in sick and ran and steps.get(rank) == len(ran):
                text += f"; {named('step', ran)} clean"
            doubts.append(Doubt("lost" if state.phase is Phase.LOST else "ended", text))
        return doubts

    def _save(self) -> str:
        """Saves and says where; a full disk takes nothing away from the findings."""
        directory = self.arguments.save
        if directory is None or not self.session.ranks():
            return ""
        try:
            saved = f"{self.session.save(directory, early=self.early)} in {directory}"
            from tui_debugger.text.numbers import plural

            lost = self.session.live.spool.lost.items()
            self.unsaved += [f"values of {plural(count, 'tensor')} were not saved: {why}" for why, count in lost]
            return saved
        except TdbgError as error:
            self.unsaved.append(f"not everything was saved in {directory}: {error.what}")
            return ""

    def _stay(self) -> None:
        """Answers trainings until they end by themselves."""
        if not self.session.dependents():
            return
        note("the training goes on without watchpoints; this process stays until its end, because MindSpore ends a")
        note("training that gets no answer (Ctrl-C leaves, and with it the training ends)")
        with interruptible(lambda _: None), suppress(CancelledError):
            while self.session.dependents():
                with suppress(queue.Empty):
                    self._events.get(timeout=_LOOK)

    def _rest(self) -> None:
        """Handles the events that were left when an exception ended the listening."""
        while not self._events.empty():
            self._report(self._events.get())
