"""Events of the trainings of a session: what listeners are told, and the queue that handles reports in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tui_debugger.check.step import PairResult
from tui_debugger.live.wire import (
    START,
    Event,
    Phase,
    ReceivedHit,
    TrainingInfo,
    TrainingStop,
)
from tui_debugger.text.tensors import step_text

if TYPE_CHECKING:
    from tui_debugger.live.server import Server
    from tui_debugger.live.server.training import RemoteTraining


@dataclass(frozen=True, slots=True)
class LiveState:
    """The state of one training after the events that were handled.

    Attributes:
        rank: its rank in this session: its own, or the next free number when another training has that.
        stop: where it stopped last; None before the first stop.
        remaining: steps that it is yet to run; None: until a hit; 0 when it stands.
        fetched, kept: bytes of values and statistics that came so far, and those that are still in the spool.
        passed: the last step that ended and was handled, also while it runs; None before the first stop.
        ended: the last step known to have ended; ``wire.START`` before the first step ended.
        cause: the error that ended it early, as it reported itself; empty: none.
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
        """How the training ended early: ``ended in step 4 (RuntimeError: ...)``; empty when it did not."""
        if self.phase is Phase.LOST:
            after = f"after step {step_text(self.ended)}" if self.ended > START else "before a step ended"
            return f"was lost {after}: it did not say that it ends (killed, crashed, or the connection broke)"
        if self.phase is Phase.DONE and self.cause:
            return f"ended in step {step_text(self.ended + 1)} ({self.cause})"
        return ""

    @property
    def step(self) -> int | None:
        """The step at or in which the training stands; ``wire.START`` before the first, None before the first stop."""
        return self.stop.step if self.stop is not None else None


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something happened to a training.

    Attributes:
        rank: None for a client without a rank in this session.
        step: for ``STOPPED`` and ``HITS`` the step that has a result.
        count: for ``STOPPED`` the number of the stop: see ``TrainingStop.count``.
        ended: for ``STOPPED`` and ``HITS`` the last step that had ended: no report of steps up to it follows.
        result: for ``STOPPED`` and ``HITS`` the findings of that step so far; None when it was not judged.
    """

    kind: Event
    rank: int | None = None
    text: str = ""
    step: int | None = None
    count: int = 0
    ended: int = START
    result: PairResult | None = field(default=None, repr=False, compare=False)


_MOST: Final = 1024
"""Events that may wait; after an overflow all trainings are looked at."""
_SLOWEST: Final = 10.0
"""Seconds that a training waits for room in the queue before its report counts as lost."""
_PATIENCE: Final = 5.0
"""Seconds that ``close`` waits for the event that is being handled."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event with the stop, the hits, and the list number of the training when the event came."""

    training: RemoteTraining | None
    event: Event
    stop: TrainingStop | None = None
    hits: tuple[ReceivedHit, ...] = ()
    listed: int = 0


class EventQueue:
    """Listens to trainings, and handles their events in order, in a thread of its own."""

    def __init__(
        self,
        trainings: Server,
        handle: Callable[[Happened], None],
        resync: Callable[[], None],
        idle: Callable[[], None],
        missed: Callable[[RemoteTraining], None],
        *,
        renew: Callable[[], None],
    ) -> None:
        """Starts to listen; every callback runs in the thread of the queue, except ``missed``.

        ``resync`` is called after events were lost, ``idle`` when all events were handled, ``renew`` after ``wake``,
        and ``missed`` when the report of a training was dropped, in the thread that reports it.
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
        """Whether all events were handled and their listeners told."""
        return not self._queue.unfinished_tasks

    def wake(self) -> None:
        """Has ``renew`` called soon. Never waits: when the queue is full, its thread is awake anyway."""
        self._awake.set()
        with suppress(queue.Full):
            self._queue.put_nowait(True)

    def wait_until_idle(self, limit: float) -> None:
        """Waits for ``idle``; not from the thread of the queue."""
        with self._queue.all_tasks_done:
            self._queue.all_tasks_done.wait_for(lambda: self.idle, limit)

    def close(self) -> None:
        self._end()
        self._closed.set()
        with suppress(queue.Full):  # then the thread is awake
            self._queue.put_nowait(False)
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)

    def _queue_event(self, training: RemoteTraining | None, event: Event) -> None:
        reports = training is not None and event in (Event.STOPPED, Event.HITS)
        hits: Sequence[ReceivedHit] = training.hits if training is not None and reports else ()
        stop, listed = (training.stop, training.listed) if training is not None else (None, 0)
        happened, block = Happened(training, event, stop, tuple(hits), listed), reports or event is Event.LISTED
        try:
            # Reports must not be lost: a training that reports faster than the queue works has to wait.
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
