"""What was read of files that hold many tensors, kept for the next tensor of the same file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_FILES: Final = 32
"""Files that are kept however much they hold."""
_MOST: Final = 1 << 27
"""Bytes that all of them may take, about, where there are more."""
_FILE: Final = 1 << 16
"""Bytes that a file counts at least, so that thousands of files of one tensor are not kept for nothing."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """What was read last, by the file and its state.

    Two steps are compared tensor by tensor, through the files of all steps: each file that was forgotten in between is
    read once more for every tensor of it.
    """

    def __init__(self, size: Callable[[V], int]) -> None:
        """``size`` tells how many bytes something takes, about."""
        self._size = size
        self._found: dict[K, tuple[V, int]] = {}
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Returns what is kept; None: nothing."""
        found = self._found.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V) -> V:
        """Keeps something, and forgets what was read first where that is too much; returns it."""
        size = self._size(value) + _FILE
        with self._lock:
            self._total += size - self._found.pop(key, (value, 0))[1]
            self._found[key] = value, size
            while len(self._found) > _FILES and self._total > _MOST:
                self._total -= self._found.pop(next(iter(self._found)))[1]
        return value
