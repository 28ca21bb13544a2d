"""The one file that starts threads: work in, messages out.

Work is sorted into lanes. A lane does one thing at a time in one daemon thread; new work on a lane cancels what
runs there and replaces what waits, so holding a key never queues up work. Answers of replaced work are dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from tui_debugger.errors import CancelledError
from tui_debugger.tui.messages import Failed, Finished, Progressed

if TYPE_CHECKING:
    from tui_debugger.model import Progress

MIN_INTERVAL = 0.25
"""Seconds between progress messages of one lane (4 Hz: counters must not flood a slow line)."""
FIRST_AFTER = 0.3
"""Seconds of work before the first progress message: quick work shows no bar."""

Post = Callable[[Message], object]


class Report(Protocol):
    """What work gets: call it with progress, and ``tell`` for results that come before the end."""

    def __call__(self, progress: Progress, /) -> None:
        """Shows how far the work is. Raises CancelledError once the work was cancelled or replaced."""

    def tell(self, message: Finished) -> None:
        """Posts a partial result, unless the request was replaced."""


Work = Callable[[Report], Finished]


class Runnable(Protocol):
    """Something with its own thread that is started and stopped, for example a directory follower."""

    def start(self) -> None:
        """Starts."""

    def stop(self) -> None:
        """Stops; does not wait long."""


class Workers:
    """Runs work off the event loop and posts what comes out."""

    def __init__(self, post: Post) -> None:
        """``post`` must be callable from any thread, as ``App.post_message`` is."""
        self._post = post
        self._lanes: dict[str, _Lane] = {}

    def run(self, lane: str, work: Work) -> int:
        """Starts work on a lane and returns its request number.

        The work returns a message; an exception becomes ``Failed``.
        """
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(lane, self._post)
        return self._lanes[lane].submit(work)

    def fresh(self, message: Finished) -> bool:
        """Whether a message answers the newest request of its lane."""
        lane = self._lanes.get(message.lane)
        return lane is not None and lane.request == message.request

    def busy(self, lane: str) -> bool:
        """Whether work is running or waiting on a lane."""
        found = self._lanes.get(lane)
        return found is not None and found.busy

    def cancel(self, lane: str) -> bool:
        """Asks the work on a lane to stop; False when there was none. Its answer still comes."""
        found = self._lanes.get(lane)
        return found is not None and found.cancel()

    def follow(self, follower: Runnable) -> None:
        """Starts a follower of the directory off the event loop: its first look at the disk may be slow."""
        threading.Thread(target=follower.start, name="tdbg-follow", daemon=True).start()

    def close(self, timeout: float = 0.5) -> None:
        """Cancels everything and waits a moment; threads are daemons, so nothing can hold up the exit."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.stop()
        end = time.monotonic() + timeout
        for lane in lanes:
            lane.join(max(end - time.monotonic(), 0.0))


class _Lane:
    def __init__(self, name: str, post: Post) -> None:
        self.name = name
        self.request = 0
        self._post = post
        self._wake = threading.Condition()
        self._waiting: tuple[int, Work, threading.Event] | None = None
        self._running: threading.Event | None = None
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        with self._wake:
            return self._waiting is not None or self._running is not None

    def submit(self, work: Work) -> int:
        with self._wake:
            self.request += 1
            if self._running is not None:
                self._running.set()
            self._waiting = (self.request, work, threading.Event())
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=f"tdbg-{self.name}", daemon=True)
                self._thread.start()
            self._wake.notify()
            return self.request

    def cancel(self) -> bool:
        with self._wake:
            stops = [stop for stop in (self._running, self._waiting[2] if self._waiting else None) if stop is not None]
            for stop in stops:
                stop.set()
            return bool(stops)

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._waiting = None
            if self._running is not None:
                self._running.set()
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
                request, work, stop = self._waiting
                self._waiting, self._running = None, stop
            self._answer(request, self._do(request, work, stop))

    def _do(self, request: int, work: Work, stop: threading.Event) -> Finished:
        try:
            return work(_Reporter(stop, lambda message: self._answer(request, message)))
        except Exception as error:  # noqa: BLE001  (whatever happens in a worker must reach the screen)
            return Failed(error)
        finally:
            with self._wake:
                self._running = None

    def _answer(self, request: int, message: Finished) -> None:
        with self._wake:
            if self._stopped or request != self.request:
                return
        message.lane, message.request = self.name, request
        self._post(message)


class _Reporter:
    def __init__(self, stop: threading.Event, tell: Callable[[Finished], None]) -> None:
        self._stop = stop
        self._due = time.monotonic() + FIRST_AFTER
        self.tell = tell

    def __call__(self, progress: Progress, /) -> None:
        if self._stop.is_set():
            raise CancelledError("stopped", where=progress.text)
        now = time.monotonic()
        if now >= self._due:
            self._due = now + MIN_INTERVAL
            self.tell(Progressed(progress))
