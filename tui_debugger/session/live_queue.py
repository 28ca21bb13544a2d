"""Events of trainings, worked through one after the other in a thread of the session."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tui_debugger.live.control import Event, Training, Trainings
from tui_debugger.live.types import ReceivedHit, Stop

_MOST: Final = 1024
"""Events that wait; what does not fit is made up for by looking at all trainings."""
_SLOWEST: Final = 10.0
"""Seconds that a training waits for room in the queue before what it found is counted as lost."""
_PATIENCE: Final = 5.0
"""Seconds that ``close`` waits for the event that is being worked on."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event with where the training stood, and what it reported, when it came."""

    training: Training | None
    event: Event
    stop: Stop | None = None
    hits: tuple[ReceivedHit, ...] = ()


class EventQueue:
    """See the module."""

    def __init__(
        self,
        trainings: Trainings,
        handle: Callable[[Happened], None],
        resync: Callable[[], None],
        idle: Callable[[], None],
        missed: Callable[[Training], None],
    ) -> None:
        """Starts to listen.

        Args:
            trainings: the server.
            handle: called for each event, in the thread of the queue.
            resync: called there when events were lost: looks at all trainings.
            idle: called there when all that came was worked on.
            missed: called when the report of a training had to be dropped.
        """
        self._handle, self._resync, self._idle, self._missed = handle, resync, idle, missed
        self._queue: queue.Queue[Happened | None] = queue.Queue(_MOST)
        self._lost = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="tdbg-live-events", daemon=True)
        self._end = trainings.listen(self._heard)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no event waits."""
        return self._queue.empty()

    def close(self) -> None:
        """Ends it; what waits is not worked on any more."""
        self._end()
        self._closed.set()
        with suppress(queue.Full):  # then the thread is awake
            self._queue.put_nowait(None)
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)

    def _heard(self, training: Training | None, event: Event) -> None:
        reports = training is not None and event in (Event.STOPPED, Event.HITS)
        hits: Sequence[ReceivedHit] = training.hits if training is not None and reports else ()
        stop = training.stop if training is not None else None
        try:
            # What was found must not be lost: a training that reports faster than this works waits a little.
            self._queue.put(Happened(training, event, stop, tuple(hits)), block=reports, timeout=_SLOWEST)
        except queue.Full:
            self._lost.set()
            if reports and training is not None:
                self._missed(training)

    def _work(self) -> None:
        while not self._closed.is_set():
            happened = self._queue.get()
            if happened is None or self._closed.is_set():
                return
            self._handle(happened)
            if self._queue.empty():
                self._idle()
            if self._lost.is_set() and self._queue.empty():
                self._lost.clear()
                self._resync()
