"""Counts the recordings of forked processes in shared memory: only their parent speaks with the debugger."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Final

from tui_debugger.live.wire import Unrecorded

FORKED: Final = "tensors that forked processes recorded"
_PLACES: Final = 256
_PLACE: Final = struct.Struct("<QQ48s")
"""The count of a process, the step of its first recording, and the name of that tensor.

Processes that share a place may lose counts; a place that was written to never becomes 0 again.
"""


class ForkedCounts:
    """Tensors that forked processes recorded. Make it before forking."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        with contextlib.suppress(OSError, ValueError):
            self._memory = mmap.mmap(-1, _PLACES * _PLACE.size)

    def add(self, name: str, step: int) -> None:
        if self._memory is None:
            return
        at = os.getpid() % _PLACES * _PLACE.size
        count, first, example = _PLACE.unpack_from(self._memory, at)
        if not count:
            first, example = max(step, 0), name.encode("utf-8", "replace")
        _PLACE.pack_into(self._memory, at, count + 1, first, example)

    def all(self) -> Sequence[Unrecorded]:
        places = [] if self._memory is None else list(_PLACE.iter_unpack(self._memory))
        used = sorted((first, example, count) for count, first, example in places if count)
        if not used:
            return ()
        first, example, _ = used[0]
        name = example.rstrip(b"\0").decode("utf-8", "ignore")
        return (Unrecorded(FORKED, sum(count for _, _, count in used), name, first),)
