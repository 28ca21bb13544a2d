"""Everything a session has measured so far, so that no tensor is read twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tui_debugger.analysis.record import Need, Record
from tui_debugger.sources.base import TensorTable

Identity = tuple[int, int, int, int]
"""(node row, side, slot, timestamp): stays the same when a growing step is listed again."""


def identity(table: TensorTable, index: int) -> Identity:
    """What a tensor is known by within its (rank, step)."""
    return (int(table.node[index]), int(table.side[index]), int(table.slot[index]), int(table.timestamp[index]))


_Look = tuple[int, int] | None
"""(size, modification time) of a file, (-1, -1) without one; None when it may have changed since it was read."""
_YOUNG_NS = 2 * 10**9
"""A file written more recently than this may have been written to between reading it and looking at its time."""


class RecordCache:
    """Records by (rank, step) and tensor identity. Safe to use from several threads."""

    def __init__(self) -> None:
        """Starts empty."""
        self._lock = threading.Lock()
        self._steps: dict[tuple[int, int], dict[Identity, Record]] = {}
        self._failures: dict[tuple[int, int, Identity], tuple[tuple[str, _Look], ...]] = {}

    def get(self, rank: int, step: int, key: Identity, need: Need | None = None) -> Record | None:
        """A record that answers ``need`` (any record when None), or None."""
        record = self._steps.get((rank, step), {}).get(key)
        if record is None or (need is not None and not record.need.covers(need)):
            return None
        return record

    def put(self, rank: int, step: int, key: Identity, record: Record) -> None:
        """Keeps a record; a later one for the same tensor replaces it."""
        with self._lock:
            self._steps.setdefault((rank, step), {})[key] = record

    def need(self, rank: int, step: int, key: Identity) -> Need:
        """What is known already, so that a new look can answer old and new questions at once."""
        record = self.get(rank, step, key)
        return record.need if record is not None else Need()

    def note_failure(self, rank: int, step: int, key: Identity, files: Sequence[str]) -> None:
        """Remembers how the files behind an unreadable tensor looked, so that ``heal`` sees them change."""
        with self._lock:
            self._failures[rank, step, key] = tuple((file, _look(file)) for file in files)

    def heal(self) -> set[tuple[int, int]]:
        """Drops records of unreadable tensors whose files look different now: they may be whole.

        Returns:
            Their (rank, step) pairs.
        """
        with self._lock:
            healed = [at for at, seen in self._failures.items() if any(_changed(*look) for look in seen)]
            for rank, step, key in healed:
                del self._failures[rank, step, key]
                self._steps.get((rank, step), {}).pop(key, None)
            return {(rank, step) for rank, step, _ in healed}

    def forget(self, rank: int) -> None:
        """Drops everything about a rank: its node rows were renumbered."""
        with self._lock:
            for pair in [pair for pair in self._steps if pair[0] == rank]:
                del self._steps[pair]
            for at in [at for at in self._failures if at[0] == rank]:
                del self._failures[at]

    def forget_changes(self, rank: int) -> None:
        """Drops comparisons with a previous step of one rank: a step in between may have appeared."""
        with self._lock:
            for (of_rank, _), records in self._steps.items():
                if of_rank == rank:
                    for key in [k for k, r in records.items() if r.need.previous]:
                        del records[key]


def _look(file: str) -> _Look:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return -1, -1
    young = abs(time.time_ns() - status.st_mtime_ns) < _YOUNG_NS
    return None if young else (status.st_size, status.st_mtime_ns)


def _changed(file: str, before: _Look) -> bool:
    return before is None or _look(file) != before
