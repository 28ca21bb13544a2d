"""Asks a training for tensors and takes what comes, one question at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tui_debugger.live.spool import Kept, Key, Spool, SpoolFile
from tui_debugger.model import Progress, ProgressFn

_EVERY: Final = 0.1
"""Seconds between two looks whether whoever waits for the turn still wants it."""


class SpoolSink:
    """See ``types.ValueSink``: values go into files of a spool.

    Attributes:
        kept: what came whole, by number in the request.
        refused: numbers of tensors that found no room.
    """

    def __init__(self, spool: Spool, key: Key) -> None:
        """``key`` is the (rank, step) that the values are of."""
        self.kept: dict[int, Kept] = {}
        self.refused: set[int] = set()
        self.nbytes = 0
        self._spool, self._key = spool, key
        self._files: dict[int, SpoolFile] = {}

    def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
        """Opens a file; False when there is no room for it."""
        before = self._files.pop(number, None)
        if before is not None:
            before.finish(complete=False)
        file = self._spool.open(self._key, dtype, shape)
        if file is None:
            self.refused.add(number)
            return False
        self._files[number] = file
        return True

    def write(self, number: int, chunk: bytes) -> None:
        """Adds bytes."""
        file = self._files.get(number)
        self.nbytes += len(chunk)
        if file is not None and not file.write(chunk):
            self.refused.add(number)

    def end(self, number: int, complete: bool) -> None:
        """Keeps the file when all came."""
        file = self._files.pop(number, None)
        kept = file.finish(complete) if file is not None else None
        if kept is not None:
            self.kept[number] = kept

    def close(self) -> None:
        """Gives up what did not come to its end."""
        for number in list(self._files):
            self.end(number, complete=False)


class Turns:
    """One question after the other; whoever waits may change their mind."""

    def __init__(self) -> None:
        """Nobody asks."""
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, progress: ProgressFn) -> Iterator[None]:
        """Waits for the turn.

        Raises:
            CancelledError: from ``progress``, which is called while it lasts.
        """
        while not self._lock.acquire(timeout=_EVERY):
            progress(Progress(0, 0, "waiting for the training"))
        try:
            yield
        finally:
            self._lock.release()


def titled(progress: ProgressFn, text: str) -> ProgressFn:
    """The same with other words."""

    def tell(snapshot: Progress) -> None:
        progress(Progress(snapshot.done, snapshot.total, text))

    return tell
