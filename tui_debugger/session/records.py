"""Everything a session has measured so far, so that no tensor is read twice."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tui_debugger.analysis.record import Need, Record
from tui_debugger.sources.base import TensorTable

Identity = tuple[int, int, int, int]
"""(node row, side, slot, timestamp): stays the same when a growing step is listed again."""


def identity(table: TensorTable, index: int) -> Identity:
    """What a tensor is known by within its (rank, step)."""
    return (int(table.node[index]), int(table.side[index]), int(table.slot[index]), int(table.timestamp[index]))


class RecordCache:
    """Records by (rank, step) and tensor identity. Safe to use from several threads."""

    def __init__(self) -> None:
        """Starts empty."""
        self._lock = threading.Lock()
        self._steps: dict[tuple[int, int], dict[Identity, Record]] = {}

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

    def forget_failures(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Drops records of unreadable tensors (and of unreadable previous ones): a growing file may be whole now."""
        with self._lock:
            for pair in pairs:
                records = self._steps.get(pair, {})
                for key in [k for k, r in records.items() if r.error or r.previous == "unreadable"]:
                    del records[key]

    def forget_changes(self, rank: int) -> None:
        """Drops comparisons with a previous step of one rank: a step in between may have appeared."""
        with self._lock:
            for (of_rank, _), records in self._steps.items():
                if of_rank == rank:
                    for key in [k for k, r in records.items() if r.need.previous]:
                        del records[key]
