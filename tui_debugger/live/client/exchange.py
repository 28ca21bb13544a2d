"""One call under way: begun in one thread, waited for in another, answered in a third."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

_QUEUED: Final = 2
"""Messages of a stream that wait to be sent: 6 MiB."""
_SLICE: Final = 0.2
"""Seconds that are waited at once."""


class Exchange:
    """One call: begun and cancelled in the thread that makes calls, waited for elsewhere.

    Attributes:
        done: it is answered, has failed or was given up.
        reply: None when it failed; ``failure`` says how, as far as gRPC knows.
    """

    def __init__(self, name: str, request: Any, limit: float | None) -> None:
        """Not begun yet. ``limit``: seconds after which gRPC gives it up; None: never."""
        self.name, self.limit = name, limit
        self.done = threading.Event()
        self.reply: Any = None
        self.failure: Any = None
        self._request = request
        self._call: Any = None

    def begin(self, method: Any, headers: Any) -> None:
        """Sends the request."""
        if self.done.is_set():
            return
        try:
            self._call = method.future(self._request, timeout=self.limit, metadata=headers)
            self._call.add_done_callback(self._finished)
        except Exception as error:  # noqa: BLE001 - the channel is closed, or gRPC is broken
            self.failure = error
            self.done.set()

    def _finished(self, call: Any) -> None:
        if not call.cancelled():
            self.failure = call.exception()
            self.reply = call.result() if self.failure is None else None
        self.give_up()

    def wait(self, limit: float | None) -> bool:
        """Waits until it is done; whether it is.

        In slices: a signal that comes between the last look for one and the wait itself would not end it.
        """
        end = None if limit is None else time.monotonic() + limit
        while not self.done.wait(_SLICE):
            if end is not None and time.monotonic() > end:
                return False
        return True

    def give_up(self) -> None:
        """Nobody waits any longer."""
        if isinstance(self._request, Feed):
            self._request.end()
        self.done.set()

    def cancel(self) -> None:
        """Ends the call."""
        if self._call is not None:
            self._call.cancel()


class Feed(Iterator[Any]):
    """Hands messages from the training's thread to gRPC's, a few ahead."""

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._changed = threading.Condition()
        self._waiting: deque[Any] = deque()
        self._ended = False

    def put(self, message: Any, limit: float) -> bool:
        """Hands one over; False when there was no room for ``limit`` seconds, or nobody takes any."""
        with self._changed:
            room = self._changed.wait_for(lambda: self._ended or len(self._waiting) < _QUEUED, limit)
            if not room or self._ended:
                return False
            self._waiting.append(message)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """There are no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __next__(self) -> Any:
        """The next message, as soon as there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._waiting))
            if not self._waiting:
                raise StopIteration
            message = self._waiting.popleft()
            self._changed.notify_all()
            return message
