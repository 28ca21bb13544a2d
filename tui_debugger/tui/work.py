"""Runs work beside the event loop; the only file of the screen that starts threads.

A request is a job and a callback. The job runs in a thread, touches no widget and returns an immutable result, which
the callback gets on the event loop. A lane runs one job at a time in one daemon thread. A new request of a lane stops
its running job and replaces its waiting job, so that a held key never queues up work. Results of replaced requests are
dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from textual._context import NoActiveAppError
from textual.message import Message

from tui_debugger.errors import CancelledError, TdbgError

if TYPE_CHECKING:
    from tui_debugger.model import Progress

MIN_INTERVAL = 0.25
"""Seconds between progress messages of one lane (4 Hz: counters must not flood a slow line)."""
FIRST_AFTER = 0.3
"""Seconds of work before the first progress message: quick work shows no bar."""
QUICK = 64 << 20
"""Bytes that may be read without being asked."""
QUICK_PAIRS = 64
"""(rank, step) pairs that may be looked at without being asked."""
ALWAYS_STOPPABLE = frozenset({"check", "open"})
"""Lanes that Esc stops even before they report progress."""

T = TypeVar("T")


class JobProgress(Protocol):
    """Reports from a job to the screen."""

    def __call__(self, progress: Progress, /) -> None:
        """Shows progress. Raises CancelledError once the request was cancelled or replaced."""

    def partial(self, result: Any) -> None:
        """Gives a result to the callback before the job ends, unless the request was replaced."""


class Delivery(Message, bubble=False):
    """Calls ``deliver`` on the event loop, unless a later delivery has an equal ``replaces`` (not None)."""

    def __init__(self, deliver: Callable[[], None], replaces: object = None) -> None:
        super().__init__()
        self.deliver = deliver
        self.replaces = replaces

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Delivery) and self.replaces is not None and message.replaces == self.replaces


@dataclass(eq=False, slots=True)
class _JobRequest:
    job: Callable[[JobProgress], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    progressed: Callable[[Progress], None] | None
    in_header: bool
    number: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    awaited: threading.Lock | None = None
    """Held by the caller that waits for the outcome."""
    outcome: tuple[str, Any] | None = None


class JobRunner:
    """Runs jobs beside the event loop; ``progress`` has the progress that the header shows, by lane."""

    def __init__(
        self,
        post: Callable[[Message], object],
        failed: Callable[[Exception], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts no thread yet.

        ``post`` takes messages from any thread; their receiver calls ``deliver`` of each ``Delivery`` on the event
        loop. ``failed`` takes errors of requests without a callback for them. ``changed`` is called when ``progress``
        changed, and after results with ``in_header``.
        """
        self._post = post
        self._failed = failed
        self._changed = changed
        self._lanes: dict[str, _Lane] = {}
        self.progress: dict[str, Progress] = {}

    def run(
        self,
        lane: str,
        job: Callable[[JobProgress], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None] | None = None,
        progressed: Callable[[Progress], None] | None = None,
        *,
        in_header: bool = True,
        wait: float = 0,
    ) -> int:
        """Asks for work and returns the number of the request; jobs of one lane replace each other.

        ``done`` also gets partial results. ``progressed`` gets the progress; without it the header shows it.
        ``in_header``: the header may change after a result. ``wait``: seconds that the caller waits; an outcome within
        that time is handed to the callback before ``run`` returns.
        """
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(lane, self._hand_over)
        own = self._lanes[lane]
        request = _JobRequest(job, done, failed or self._failed, progressed, in_header)
        own.submit(request, wait=wait > 0)
        if wait > 0 and (outcome := own.outcome(request, wait)) is not None:
            self._deliver(own, request, *outcome)
        return request.number

    def call(self, callback: Callable[[], None], replaces: object = None) -> None:
        """Calls ``callback`` on the event loop, from any thread; of calls with equal ``replaces`` the last one runs."""
        self._send(Delivery(callback, replaces))

    def show_progress(self, lane: str, progress: Progress) -> None:
        self.progress[lane] = progress
        self._changed()

    def busy(self, lane: str) -> bool:
        found = self._lanes.get(lane)
        return found is not None and found.busy

    @property
    def idle(self) -> bool:
        """Tells whether no job runs or waits, and no result is on its way to its callback."""
        return not any(lane.busy or lane.on_the_way for lane in self._lanes.values())

    def cancel(self, lane: str) -> bool:
        """Asks the job of a lane to stop; False if there is none. Its callback is still called."""
        found = self._lanes.get(lane)
        return found is not None and found.cancel()

    def cancel_shown(self) -> bool:
        """Stops the jobs that the header shows; False if there are none."""
        return bool([lane for lane in {*ALWAYS_STOPPABLE, *self.progress} if self.cancel(lane)])

    def close(self, timeout: float = 0.5) -> None:
        """Cancels everything and waits a moment; threads are daemons, so that none delays the exit."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.stop()
        end = time.monotonic() + timeout
        for lane in lanes:
            lane.join(max(end - time.monotonic(), 0.0))

    def _hand_over(self, lane: _Lane, request: _JobRequest, kind: str, value: Any) -> None:
        if kind == "progress":
            self._send(Delivery(lambda: self._deliver(lane, request, kind, value), (lane.name, request.number)))
            return

        def deliver() -> None:
            try:
                self._deliver(lane, request, kind, value)
            finally:
                lane.arrived()

        self._send(Delivery(deliver))

    def _send(self, delivery: Delivery) -> None:
        with suppress(NoActiveAppError):  # the screen was closed
            self._post(delivery)

    def _deliver(self, lane: _Lane, request: _JobRequest, kind: str, value: Any) -> None:
        if request.number != lane.newest:
            return
        if kind == "progress":
            if request.progressed is not None:
                request.progressed(value)
            elif lane.busy:
                self.show_progress(lane.name, value)
            return
        shown = not lane.busy and self.progress.pop(lane.name, None) is not None
        (request.failed if kind == "error" else request.done)(value)
        if shown or (request.in_header and request.progressed is None):
            self._changed()


class _Lane:
    def __init__(self, name: str, hand_over: Callable[[_Lane, _JobRequest, str, Any], None]) -> None:
        self.name = name
        self.newest = 0
        self._hand_over = hand_over
        self._wake = threading.Condition()
        self._waiting: _JobRequest | None = None
        self._running: _JobRequest | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None
        self.on_the_way = 0
        """Results that were not handed to a callback yet."""

    @property
    def busy(self) -> bool:
        with self._wake:
            return self._waiting is not None or self._running is not None

    def submit(self, request: _JobRequest, *, wait: bool) -> None:
        with self._wake:
            self.newest += 1
            request.number = self.newest
            if self._running is not None:
                self._running.stop.set()
            self._waiting = request
            if wait:
                request.awaited = threading.Lock()
                request.awaited.acquire()
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=f"tdbg-{self.name}", daemon=True)
                self._thread.start()
            self._wake.notify()

    def outcome(self, request: _JobRequest, seconds: float) -> tuple[str, Any] | None:
        """Waits for a request's outcome; None if that takes longer: then the callback gets it later."""
        if request.awaited is None:
            return None
        request.awaited.acquire(timeout=seconds)
        with self._wake:
            request.awaited = None
            return request.outcome

    def cancel(self) -> bool:
        with self._wake:
            requests = [request for request in (self._running, self._waiting) if request is not None]
            for request in requests:
                request.stop.set()
            return bool(requests)

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._waiting = None
            if self._running is not None:
                self._running.stop.set()
            self._wake.notify()

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _loop(self) -> None:
        while True:
            with self._wake:
                while self._waiting is None and not self._stopped:
                    self._wake.wait()
                if self._stopped or self._waiting is None:
                    return
                request = self._running = self._waiting
                self._waiting = None
            try:
                kind, value = "result", request.job(_JobReporter(self, request))
            except Exception as error:  # noqa: BLE001  (whatever happens in a worker must reach the screen)
                kind, value = "error", error
            with self._wake:
                self._running = None
                if request.awaited is not None and not self._stopped:
                    request.outcome = kind, value
                    request.awaited.release()
                    continue
                wanted = self._is_wanted(request, kind)
            if wanted:
                self._hand_over(self, request, kind, value)

    def answer(self, request: _JobRequest, kind: str, value: Any) -> None:
        with self._wake:
            wanted = self._is_wanted(request, kind)
        if wanted:
            self._hand_over(self, request, kind, value)

    def _is_wanted(self, request: _JobRequest, kind: str) -> bool:
        """Tells whether to hand something over; a wanted result counts as on its way from now on."""
        if self._stopped or request.number != self.newest:
            return False
        self.on_the_way += kind != "progress"
        return True

    def arrived(self) -> None:
        with self._wake:
            self.on_the_way -= 1


class _JobReporter:
    def __init__(self, lane: _Lane, request: _JobRequest) -> None:
        self._lane = lane
        self._request = request
        self._due = time.monotonic() + FIRST_AFTER

    def __call__(self, progress: Progress, /) -> None:
        if self._request.stop.is_set():
            raise CancelledError("stopped", where=progress.text)
        now = time.monotonic()
        if now >= self._due:
            self._due = now + MIN_INTERVAL
            self._lane.answer(self._request, "progress", progress)

    def partial(self, result: Any) -> None:
        self._lane.answer(self._request, "result", result)


def presentable(error: Exception) -> TdbgError:
    """Returns any exception as a TdbgError."""
    if isinstance(error, TdbgError):
        return error
    return TdbgError(
        f"{type(error).__name__}: {error}", hint="this is a mistake in tdbg; the rest of the screen goes on working"
    )


def one_line(error: Exception) -> str:
    """Returns error and hint for the footer."""
    shown = presentable(error)
    return " — ".join(part for part in (shown.what, shown.hint) if part)
