"""``tdbg listen --no-screen``: watchpoints while a training runs, hits as lines, an exit code for batch jobs."""

from __future__ import annotations

import argparse
import os
import queue
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tui_debugger.cli.options import add_watchpoints, conditions_of, given_watchpoints
from tui_debugger.cli.output import interruptible, note
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, TdbgError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tui_debugger.cli.listen_report import Log
    from tui_debugger.model import ProgressFn, Watchpoint
    from tui_debugger.session.checking import PairResult
    from tui_debugger.session.live import LiveEvent, LiveSession, LiveState
    from tui_debugger.session.types import Pair

GRACE: Final = 20.0
"""Seconds that a training which was lost has to come back before it counts as gone."""
_LOOK: Final = 0.2
"""Seconds between two looks at the clock."""


def run_batch(arguments: argparse.Namespace) -> int:
    """Listens until the end, sums up, and lets every training go; returns the exit code.

    Raises:
        TdbgError: see ``listen_common.open_live``; or no training came.
    """
    from tui_debugger.cli.listen_report import Log

    log = Log(arguments)
    try:
        return _listen(arguments, log)
    except TdbgError as error:
        log.failed(error)
        raise


def _listen(arguments: argparse.Namespace, log: Log) -> int:
    from tui_debugger.cli.listen_common import exposed, open_live

    given = given_watchpoints(arguments)
    fail_on = conditions_of(arguments.fail_on)
    if arguments.save is not None:
        _make_room(arguments.save)
    with interruptible(lambda _: None) as progress:
        session = open_live(arguments)
        warning = exposed(arguments)
        if warning:
            note(warning)
        for line in (f"waiting for a training at {session.address}", *session.waiting_text().splitlines()):
            note(line)
        batch = Batch(session, arguments, given, log, progress)
        try:
            batch.follow()
        except CancelledError:
            batch.interrupted = True
    return batch.finish(fail_on)


def _make_room(directory: Path) -> None:
    """Makes the directory now: after hours of training it is too late to hear that it cannot be made."""
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
    """How far one training is.

    Attributes:
        begun: it was let go on the first time.
        stop: number of the stop at which it stood last, as far as that was worked through.
        standing: it waits there.
        first: the step that it stood at then.
        over: nothing more is expected of it.
        lost: when it was lost, by ``time.monotonic``; None while it is there.
        last: the last step that is known.
    """

    begun: bool = False
    stop: int = 0
    standing: bool = False
    first: int = -1
    over: bool = False
    lost: float | None = None
    last: int = -1


@dataclass
class Batch:
    """One session of listening.

    Attributes:
        interrupted: somebody pressed Ctrl-C.
        gone: sentences about trainings that were lost.
        unsaved: why what was to be saved was not.
    """

    session: LiveSession
    arguments: argparse.Namespace
    given: Sequence[Watchpoint]
    log: Log
    progress: ProgressFn
    interrupted: bool = False
    gone: list[str] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listens from now on."""
        self._events: queue.SimpleQueue[LiveEvent] = queue.SimpleQueue()
        self._end = self.session.subscribe(self._events.put)
        self.session.on_new_nodes(self._more_nodes)
        self._ranks: dict[int, Follow] = {}
        self._rules: frozenset[int] | None = None
        self._stop = False
        self._since = time.monotonic()
        for state in self.session.trainings():  # who came before anybody listened to events
            if state.stop is not None and state.graph:
                self._ranks[state.rank] = Follow(stop=state.stop.count, standing=True)

    # -- while it runs -----------------------------------------------------------------------------

    def follow(self) -> None:
        """Until nothing more is to come.

        Raises:
            TdbgError: no training came in time, or no watchpoint is left.
        """
        self._begin_all()
        while not self._over():
            try:
                event = self._events.get(timeout=_LOOK)
            except queue.Empty:
                self.log.pause(self.session)
                self._look_at_the_clock()
                continue
            self._take(event)
            if not self._stop:
                self._begin_all()

    def _over(self) -> bool:
        return self._stop or (bool(self._ranks) and all(each.over for each in self._ranks.values()))

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
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
                self.gone.append(f"the training of rank {rank} was lost")

    @property
    def _wanted(self) -> int:
        return self.arguments.ranks or 1

    def _take(self, event: LiveEvent) -> None:
        from tui_debugger.session.live import LiveKind

        kind, rank = event.kind, event.rank
        if kind in (LiveKind.CONNECTED, LiveKind.REFUSED, LiveKind.LOST, LiveKind.BACK, LiveKind.DONE):
            note(event.text)
        if rank is None:
            return
        each = self._ranks.setdefault(rank, Follow())
        if kind is LiveKind.REFUSED:
            self.session.release([rank])
            each.over = True
            self.gone.append(f"rank {rank}: {event.text}")
        if event.step is not None:
            each.last = event.step
        if kind in (LiveKind.STOPPED, LiveKind.HITS):
            each.lost = None
            if kind is LiveKind.STOPPED:
                self._stood(rank, each, event)
            else:
                self._report(event)
        elif kind is LiveKind.DONE:
            each.over = True
        elif kind is LiveKind.LOST:
            each.lost = time.monotonic()
        elif kind is LiveKind.BACK:
            each.lost = None
            if each.begun and not self._stop and self.session.state(rank).phase.name == "STOPPED":
                self._go_on(rank, each)  # it still waits where it was lost

    def _stood(self, rank: int, each: Follow, event: LiveEvent) -> None:
        """It waits at a stop; one that was taken in already is not a new one."""
        if event.count <= each.stop:
            return
        each.stop, each.standing = event.count, True
        self._report(event, standing=True)
        if each.begun and not self._stop:
            self._go_on(rank, each)

    def _begin_all(self) -> None:
        """Lets trainings go that stand for the first time, as soon as enough are there."""
        ready = [rank for rank, each in self._ranks.items() if each.standing and each.lost is None]
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
        """A training named nodes that it did not have before: what is recommended for them is watched, too."""
        if self._recommended:
            self.session.add_recommended()

    def _begin(self, state: LiveState) -> None:
        each = self._ranks[state.rank]
        each.begun = True
        each.first = state.step if state.step is not None else -1
        self._go_on(state.rank, each)

    def _go_on(self, rank: int, each: Follow) -> None:
        """Lets one training run, as long as steps are left for it."""
        arguments, state = self.arguments, self.session.state(rank)
        at = state.step if state.step is not None else each.first
        left = None if arguments.steps is None else each.first + arguments.steps - at
        if left is not None and left <= 0:
            if arguments.save is not None:
                self.log.collect_all(self.session, rank, at, self.progress)
            each.over = True
            self.session.release([rank])
            return
        stops = bool(arguments.stop_on_hit or arguments.save is not None)
        each.standing = False
        try:
            went = self.session.run(left, [rank], stop_on_hit=stops, progress=self.progress)
            if not went:  # what nobody had judged before was found wrong
                self._report_known(rank, at)
                if not self._stop:
                    self.session.run(left, [rank], stop_on_hit=stops, progress=self.progress)
        except (NotStoppedError, LostError):
            return  # it went away meanwhile, which is told as an event

    def _report(self, event: LiveEvent, *, standing: bool = False) -> None:
        """What an event says was found."""
        if event.rank is not None and event.step is not None and event.result is not None and self._rules is not None:
            self._found((event.rank, event.step), event.result, standing=standing)

    def _report_known(self, rank: int, step: int) -> None:
        """What the training was just asked to judge."""
        result = self.session.latest(rank, step)
        if result is not None:
            self._found((rank, step), result, standing=True)

    def _found(self, pair: Pair, result: PairResult, *, standing: bool) -> None:
        found = self.log.report(pair, result, graphs=bool(self.session.graph_names(pair[:1])))
        if found and standing and self.arguments.save is not None:
            self.log.collect(self.session, pair, result, self.progress)
        if found and self.arguments.stop_on_hit:
            self._stop = True

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

    def _save(self) -> str:
        """Says what was saved where; a disk that is full takes nothing away from what was found."""
        directory = self.arguments.save
        if directory is None or not self.session.ranks():
            return ""
        try:
            return f"{self.session.save(directory)} in {directory}"
        except TdbgError as error:
            self.unsaved.append(f"not everything was saved in {directory}: {error.what}")
            return ""

    def _stay(self) -> None:
        """Answers trainings that would end without anybody who does, until they end by themselves."""
        if not self.session.dependents():
            return
        note("the training goes on without watchpoints; this process stays until its end, because MindSpore ends a")
        note("training that nobody answers (Ctrl-C leaves, and with it the training ends)")
        sys.stdout.flush()
        with interruptible(lambda _: None), suppress(CancelledError):
            while self.session.dependents():
                with suppress(queue.Empty):
                    self._events.get(timeout=_LOOK)

    def _rest(self) -> None:
        """What was reported and not worked on, when something else ended the listening."""
        while not self._events.empty():
            self._report(self._events.get())
