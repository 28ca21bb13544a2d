"""Ends calls whose messages stop coming: each holds a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Watched:
    """One call that is reading."""

    def __init__(self, context: Any, clock: Callable[[], float]) -> None:
        """A call that reads from now on."""
        self.context, self._clock = context, clock
        self.since = clock()
        self.messages = 0

    def renew(self) -> None:
        """A message came."""
        self.since = self._clock()
        self.messages += 1


class Patience:
    """All calls that read, and how long they may wait for a message."""

    def __init__(self, idle: float, clock: Callable[[], float]) -> None:
        """Calls end after ``idle`` seconds without a message."""
        self._idle, self.clock = idle, clock
        self._lock = threading.Lock()
        self._reading: set[Watched] = set()

    def since(self, began: float) -> float:
        """Seconds that have passed."""
        return self.clock() - began

    @property
    def reading(self) -> Sequence[Watched]:
        """The calls that read."""
        with self._lock:
            return tuple(self._reading)

    @contextlib.contextmanager
    def watch(self, context: Any) -> Iterator[Watched]:
        """A call reads."""
        watched = Watched(context, self.clock)
        with self._lock:
            self._reading.add(watched)
        try:
            yield watched
        finally:
            with self._lock:
                self._reading.discard(watched)

    def tick(self) -> None:
        """Ends those that waited too long."""
        now = self.clock()
        with self._lock:
            late = [each for each in self._reading if now - each.since > self._idle]
        for each in late:
            each.context.cancel()
