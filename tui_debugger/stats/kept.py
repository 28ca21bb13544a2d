"""A cache of the headers and directories of files that hold many tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_FILES: Final = 32
"""Files that are kept whatever their size."""
_MOST: Final = 1 << 27
"""Approximate bytes that all kept files may take when there are more."""
_FILE: Final = 1 << 16
"""Least bytes that a file counts, so that thousands of files of one tensor are not kept for nothing."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """The values read last, by file and state; ``size`` estimates the bytes of a value.

    Two steps are compared tensor by tensor, through the files of all steps: a file that was forgotten in between is
    read again for every tensor in it.
    """

    def __init__(self, size: Callable[[V], int]) -> None:
        self._size = size
        self._found: dict[K, tuple[V, int]] = {}
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns a known value, or makes it and keeps it; drops the oldest ones when there are too many."""
        found = self._found.get(key)
        if found is not None:
            return found[0]
        value = make()
        size = self._size(value) + _FILE
        with self._lock:
            self._total += size - self._found.pop(key, (value, 0))[1]
            self._found[key] = value, size
            while len(self._found) > _FILES and self._total > _MOST:
                self._total -= self._found.pop(next(iter(self._found)))[1]
        return value
