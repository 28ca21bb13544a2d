"""Everything a session has measured so far, so that no tensor is read twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tui_debugger.analysis.record import Record
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


class Shelf:
    """The records of one rank, for as long as its node rows keep their numbers. Safe to use from several threads."""

    def __init__(self) -> None:
        """Starts empty."""
        self._lock = threading.Lock()
        self._steps: dict[int, dict[Identity, Record]] = {}
        self._failures: dict[tuple[int, Identity], tuple[tuple[str, _Look], ...]] = {}

    def get(self, step: int, key: Identity) -> Record | None:
        """What is known about a tensor."""
        return self._steps.get(step, {}).get(key)

    def put(self, step: int, key: Identity, record: Record) -> None:
        """Keeps a record; a later one for the same tensor replaces it."""
        with self._lock:
            self._steps.setdefault(step, {})[key] = record

    def note_failure(self, step: int, key: Identity, files: Sequence[str]) -> None:
        """Remembers how the files behind an unreadable tensor looked, so that ``heal`` sees them change."""
        with self._lock:
            self._failures[step, key] = tuple((file, _look(file)) for file in files)

    def heal(self) -> set[int]:
        """Drops records of unreadable tensors whose files look different now, as they may be whole; their steps."""
        with self._lock:
            healed = [at for at, seen in self._failures.items() if any(_changed(*look) for look in seen)]
            for step, key in healed:
                del self._failures[step, key]
                self._steps.get(step, {}).pop(key, None)
            return {step for step, _ in healed}

    def without_changes(self) -> Shelf:
        """A new shelf with all records but the comparisons with a previous step."""
        other = Shelf()
        with self._lock:
            other._failures = dict(self._failures)
            for step, records in self._steps.items():
                other._steps[step] = {key: record for key, record in records.items() if not record.need.previous}
        return other


class RecordCache:
    """The shelves of all ranks.

    A shelf that is replaced stays with those who work with it: what they measure meanwhile is lost with it instead of
    passing for knowledge about the present.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self._lock = threading.Lock()
        self._shelves: dict[int, tuple[object, Shelf]] = {}

    def shelf(self, rank: int, lineage: object) -> Shelf:
        """The records of a rank; none are left when its nodes are numbered anew (see ``NodeTable.lineage``)."""
        with self._lock:
            kept = self._shelves.get(rank)
            if kept is None or kept[0] is not lineage:
                kept = self._shelves[rank] = (lineage, Shelf())
            return kept[1]

    def heal(self) -> set[tuple[int, int]]:
        """(rank, step) of the unreadable tensors whose files look different now; they are looked at again."""
        with self._lock:
            shelves = {rank: shelf for rank, (_, shelf) in self._shelves.items()}
        return {(rank, step) for rank, shelf in shelves.items() for step in shelf.heal()}

    def forget_changes(self, rank: int) -> None:
        """Drops comparisons with a previous step of one rank: a step in between may have appeared."""
        with self._lock:
            if rank in self._shelves:
                lineage, shelf = self._shelves[rank]
                self._shelves[rank] = (lineage, shelf.without_changes())


def _look(file: str) -> _Look:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return -1, -1
    young = abs(time.time_ns() - status.st_mtime_ns) < _YOUNG_NS
    return None if young else (status.st_size, status.st_mtime_ns)


def _changed(file: str, before: _Look) -> bool:
    return before is None or _look(file) != before
