"""What happens to the trainings of a session: what listeners are told, and the queue in which it is worked through."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tui_debugger.check.step import PairResult
from tui_debugger.live.wire import (
    START,
    Event,
    Phase,
    ReceivedHit,
    TrainingInfo,
    TrainingProcess,
    Trainings,
    TrainingStop,
)
from tui_debugger.text.tensors import step_text


@dataclass(frozen=True, slots=True)
class LiveState:
    """The state of one training, as far as its events were worked through.

    Attributes:
        rank: its rank in this session: its own, or the next free number when another has that.
        info: who it is.
        phase: what it is doing.
        stop: where it stopped last; None before the first stop.
        graph: whether its graph is there: only then it has nodes.
        remaining: steps that it was told to run and has not run yet; None: until a hit; 0 when it stands.
        passed: the last step that it ended and that was worked through, also while it runs; None before the first stop.
        ended: the step that it ended last, as far as was heard; ``wire.START`` before one did.
        cause: what ended it before its time, as it said itself; empty: nothing did, or it said nothing.
        fetched: bytes of values and statistics that came from it so far.
        kept: bytes of them that are still in the spool.
    """

    rank: int
    info: TrainingInfo
    phase: Phase
    stop: TrainingStop | None = None
    graph: bool = False
    remaining: int | None = 0
    fetched: int = 0
    kept: int = 0
    passed: int | None = None
    ended: int = START
    cause: str = ""

    @property
    def ending(self) -> str:
        """How it ended before its time: ``ended in step 4 (RuntimeError: ...)``; empty where it did not."""
        if self.phase is Phase.LOST:
            after = f"after step {step_text(self.ended)}" if self.ended > START else "before a step ended"
            return f"was lost {after}: it did not say that it ends (killed, crashed, or the connection broke)"
        if self.phase is Phase.DONE and self.cause:
            return f"ended in step {step_text(self.ended + 1)} ({self.cause})"
        return ""

    @property
    def step(self) -> int | None:
        """The step that it stands after (or in); ``wire.START`` before the first, None before the first stop."""
        return self.stop.step if self.stop is not None else None


class LiveKind(Enum):
    """The kinds of events of a training."""

    CONNECTED = "connected"
    GRAPH = "graph"
    """Its nodes are there, or were read anew: ``LiveSession.ranks`` has it."""
    STOPPED = "stopped"
    """The training waits at a new stop; the results of its step are in ``known``."""
    HITS = "hits"
    """Hits came while it goes on, or in a recheck; they are in ``known`` as well."""
    RUNNING = "running"
    LISTED = "listed"
    """The training runs, and judges by the list of watchpoints as it is now from its next step on."""
    LOST = "lost"
    BACK = "back"
    DONE = "done"
    REFUSED = "refused"
    """A client was turned away; ``text`` says why."""
    FETCHED = "fetched"
    """Values or statistics came in: tables of its steps grew."""
    DROPPED = "dropped"
    """The spool was full: its oldest values are gone; ``text`` says which."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something happened.

    Attributes:
        kind: what.
        rank: of which training; None when it is of none that has a rank here.
        text: one line for people, may be empty.
        step: for ``STOPPED`` and ``HITS`` the step whose result is there.
        count: for ``STOPPED`` the number of the stop: see ``TrainingStop.count``.
        ended: for ``STOPPED`` and ``HITS`` the step that had ended last by then: nothing more comes of the steps up to
            there.
        result: for ``STOPPED`` and ``HITS`` what was found in that step so far; None when it was not judged.
    """

    kind: LiveKind
    rank: int | None = None
    text: str = ""
    step: int | None = None
    count: int = 0
    ended: int = START
    result: PairResult | None = field(default=None, repr=False, compare=False)


_MOST: Final = 1024
"""Events that wait; what does not fit is made up for by looking at all trainings."""
_SLOWEST: Final = 10.0
"""Seconds that a training waits for room in the queue before what it found is counted as lost."""
_PATIENCE: Final = 5.0
"""Seconds that ``close`` waits for the event that is being worked on."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event with where the training stood, what it reported, and the number of its list, when it came."""

    training: TrainingProcess | None
    event: Event
    stop: TrainingStop | None = None
    hits: tuple[ReceivedHit, ...] = ()
    listed: int = 0


class EventQueue:
    """Listens to trainings, and has what they say handled in a thread of its own, in order."""

    def __init__(
        self,
        trainings: Trainings,
        handle: Callable[[Happened], None],
        resync: Callable[[], None],
        idle: Callable[[], None],
        missed: Callable[[TrainingProcess], None],
        *,
        renew: Callable[[], None],
    ) -> None:
        """Starts to listen.

        Args:
            trainings: the server.
            handle: called for each event, in the thread of the queue.
            resync: called there when events were lost: looks at all trainings.
            idle: called there when all that came was worked on.
            missed: called when the report of a training had to be dropped.
            renew: called there when ``wake`` was.
        """
        self._renew = renew
        self._awake = threading.Event()
        self._handle, self._resync, self._idle, self._missed = handle, resync, idle, missed
        self._queue: queue.Queue[Happened | bool] = queue.Queue(_MOST)
        self._lost = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tdbg-live-events", daemon=True)
        self._end = trainings.listen(self._queue_event)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Tells whether all that came was worked on, and told."""
        return not self._queue.unfinished_tasks

    def wake(self) -> None:
        """Has ``renew`` called soon. Never waits: where the queue is full, its thread is awake."""
        self._awake.set()
        with suppress(queue.Full):
            self._queue.put_nowait(True)

    def wait_until_idle(self, limit: float) -> None:
        """Waits until that is so, in any thread but that of the queue."""
        with self._queue.all_tasks_done:
            self._queue.all_tasks_done.wait_for(lambda: self.idle, limit)

    def close(self) -> None:
        """Ends it; what waits is not worked on any more."""
        self._end()
        self._closed.set()
        with suppress(queue.Full):  # then the thread is awake
            self._queue.put_nowait(False)
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)

    def _queue_event(self, training: TrainingProcess | None, event: Event) -> None:
        reports = training is not None and event in (Event.STOPPED, Event.HITS)
        hits: Sequence[ReceivedHit] = training.hits if training is not None and reports else ()
        stop, listed = (training.stop, training.listed) if training is not None else (None, 0)
        happened, block = Happened(training, event, stop, tuple(hits), listed), reports or event is Event.LISTED
        try:
            # What was found must not be lost: a training that reports faster than this works waits a little.
            self._queue.put(happened, block=block, timeout=_SLOWEST)
        except queue.Full:
            self._lost.set()
            if reports and training is not None:
                self._missed(training)

    def _work(self) -> None:
        while not self._closed.is_set():
            happened = self._queue.get()
            if self._closed.is_set():
                return
            if isinstance(happened, Happened):
                self._handle(happened)
            if self._awake.is_set():
                self._awake.clear()
                self._renew()
            if self._queue.empty():
                self._idle()
            if self._lost.is_set() and self._queue.empty():
                self._lost.clear()
                self._resync()
            self._queue.task_done()
