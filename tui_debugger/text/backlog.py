"""Output without waiting: a thread writes it; lines without room are dropped and counted.

A command that answers trainings must not block because the reader of its output does.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO, cast

_ROOM: Final = 64 << 20
"""Characters that may wait to be written."""
_LOOK: Final = 0.2
"""Seconds between two checks for Ctrl-C."""
_HURRY: Final = 3.0
"""Seconds that the output still gets after Ctrl-C."""


class StreamBehind(io.TextIOBase):
    """Stands in for a stream that a ``Backlog`` writes.

    A failure of the stream is raised once, by the next ``write`` or ``check``; later text is dropped.
    ``failure`` is the reason, None while the stream works.
    """

    def __init__(self, backlog: Backlog, stream: TextIO) -> None:
        self._backlog = backlog
        self._stream = stream
        self._descriptor = _descriptor_of(stream)
        self.failure: OSError | None = None
        self._told = False

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a property where the base class declares an attribute
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str, /) -> int:
        """Queues a text without waiting. Raises OSError if an earlier text could not be written."""
        self.check()
        if self.failure is None:
            self._backlog.put(self, text)
        return len(text)

    def check(self) -> None:
        """Raises the OSError of the stream, once."""
        if self.failure is not None and not self._told:
            self._told = True
            raise self.failure

    def write_now(self, text: str) -> None:
        """Writes and waits, past the stream's buffer: at exit nobody could wait for a thread that hangs in it."""
        if self.failure is not None:
            return
        try:
            if self._descriptor is None:
                self._stream.write(text)
                self._stream.flush()
                return
            left = memoryview(text.encode(self.encoding, getattr(self._stream, "errors", None) or "backslashreplace"))
            while left:
                left = left[_write_some(self._descriptor, left) :]
        except OSError as error:
            self.failure = error
        except ValueError as error:  # the stream was closed
            self.failure = OSError(str(error))


class Backlog:
    """Text that waits to be written; ``dropped`` counts lines without room; ``hurry``: Ctrl-C was pressed."""

    def __init__(self, room: int | None = None) -> None:
        """``room``: characters that may wait; None: ``_ROOM``."""
        self._room = _ROOM if room is None else room
        self.dropped = 0
        self.hurry = False
        self._changed = threading.Condition()
        self._waiting: deque[tuple[StreamBehind, str]] = deque()
        self._size = 0
        self._ending = False
        threading.Thread(target=self._work, name="tdbg-output", daemon=True).start()

    def put(self, stream: StreamBehind, text: str) -> None:
        """Takes a text, or counts its lines if there is no room."""
        with self._changed:
            if self._size + len(text) > self._room:
                self.dropped += text.count("\n")
                return
            self._waiting.append((stream, text))
            self._size += len(text)
            self._changed.notify_all()

    def take_all(self) -> int:
        """Removes the limit for the last lines. Returns the number of dropped lines."""
        with self._changed:
            self._room = sys.maxsize
            return self.dropped

    def drain(self) -> None:
        """Waits until everything is written; after Ctrl-C for a short time only."""
        begin = time.monotonic()
        with self._changed:
            while self._size and not (self.hurry and time.monotonic() - begin > _HURRY):
                self._changed.wait(_LOOK)

    def end(self) -> None:
        """Ends the thread, unless it is stuck: no process waits for it."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                if not self._waiting:
                    return
                stream, text = self._waiting.popleft()
            stream.write_now(text)
            with self._changed:
                self._size -= len(text)
                self._changed.notify_all()


def _descriptor_of(stream: TextIO) -> int | None:
    """Flushes a stream and returns its descriptor; None for a stream in memory."""
    with suppress(OSError, ValueError, AttributeError):
        descriptor = stream.fileno()
        stream.flush()
        return descriptor
    return None


def _write_some(descriptor: int, left: memoryview) -> int:
    try:
        return os.write(descriptor, left)
    except BlockingIOError:  # who started us made it so
        select.select([], [descriptor], [], _LOOK)
        return 0


@contextmanager
def writing_behind() -> Iterator[tuple[Backlog, StreamBehind]]:
    """Lets a thread write stdout and stderr; yields the backlog and the new stdout. Raises OSError at its end."""
    streams = sys.stdout, sys.stderr
    backlog = Backlog()
    out, errors = (StreamBehind(backlog, each) for each in streams)
    sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", errors)
    try:
        yield backlog, out
    except KeyboardInterrupt:
        backlog.hurry = True
        raise
    finally:
        try:
            backlog.drain()
            if out.failure is not None:
                raise out.failure
        finally:
            backlog.end()
            sys.stdout, sys.stderr = streams
