"""Everything a session has measured so far, so that no tensor is read twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.model import Side
from tui_debugger.sources.base import TensorTable
from tui_debugger.stats.records import Record, Records

Identity = tuple[int, int, int, int]
"""(node row, side, slot, timestamp): stays the same when a growing step is listed again."""

_Look = tuple[int, int] | None
"""(size, modification time) of a file, (-1, -1) without one; None when it may have changed since it was read."""
_YOUNG_NS = 2 * 10**9
"""A file written more recently than this may have been written to between reading it and looking at its time."""


class KeptStep:
    """What is known about the tensors of one step.

    Attributes:
        table: the files that the rows of ``records`` stand for.
        records: what is known about them.
        remembered: whether what earlier sessions measured has been looked up.
        fresh: rows that were measured since the step was last remembered.
        states: how the files looked when that was first asked: sizes and modification times.
        sizes: how large the files are, about; None when nobody has asked.
    """

    def __init__(self, table: TensorTable) -> None:
        """Nothing is known."""
        self.table = table
        self.records = Records(len(table))
        self.remembered = False
        self.fresh = np.zeros(len(table), np.bool_)
        self.states: tuple[Int64, Int64] | None = None
        self.sizes: Int64 | None = None

    def aligned(self, table: TensorTable) -> KeptStep:
        """The same knowledge for a newer listing of the step: files that are still there keep their record."""
        other = KeptStep(table)
        old = np.flatnonzero(self.records.rows["state"])
        own = self.table.timestamp[old]
        new = table.find_all(self.table.node[old], self.table.side[old], self.table.slot[old], at=own)
        same = new >= 0
        same[same] = table.timestamp[new[same]] == self.table.timestamp[old[same]]
        other.records.place(self.records, old[same], new[same])
        other.fresh[new[same]] = True
        return other

    def copy(self) -> KeptStep:
        """The same again, to be changed."""
        other = KeptStep(self.table)
        every = np.arange(len(self.records))
        other.records.place(self.records, every, every)
        other.remembered, other.fresh = self.remembered, self.fresh.copy()
        other.states, other.sizes = self.states, self.sizes
        return other


class Shelf:
    """The records of one rank, for as long as its node rows keep their numbers. Safe to use from several threads.

    Attributes:
        lock: to be held while records are changed.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.lock = threading.RLock()
        self._steps: dict[int, KeptStep] = {}
        self._failures: dict[tuple[int, Identity], tuple[tuple[str, _Look], ...]] = {}

    def at(self, step: int, table: TensorTable) -> KeptStep:
        """What is known about the files of a step, as they were when ``table`` was listed."""
        kept = self._steps.get(step)
        if kept is None or kept.table is not table:
            with self.lock:
                kept = self._steps.get(step)
                if kept is None or kept.table is not table:
                    kept = self._steps[step] = KeptStep(table) if kept is None else kept.aligned(table)
        return kept

    def get(self, step: int, table: TensorTable, index: int) -> Record | None:
        """What is known about a tensor."""
        kept = self.at(step, table)
        with self.lock:
            return kept.records.get(index)

    def steps(self) -> dict[int, KeptStep]:
        """Everything that is known, by step."""
        with self.lock:
            return dict(self._steps)

    def note_failure(self, step: int, table: TensorTable, index: int, files: Sequence[str]) -> None:
        """Remembers how the files behind an unreadable tensor looked, so that ``heal`` sees them change."""
        with self.lock:
            self._failures[step, _identity(table, index)] = tuple((file, _look(file)) for file in files)

    def heal(self) -> set[int]:
        """Drops records of unreadable tensors whose files look different now, as they may be whole; their steps."""
        with self.lock:
            healed = [at for at, seen in self._failures.items() if any(_changed(*look) for look in seen)]
            for step, (node, side, slot, written) in healed:
                del self._failures[step, (node, side, slot, written)]
                kept = self._steps.get(step)
                index = int(kept.table.find_all([node], [side], [slot], at=[written])[0]) if kept is not None else -1
                if kept is not None and index >= 0:
                    kept.records.forget(np.array([index]))
            return {step for step, _ in healed}

    def forget(self, step: int, place: tuple[int, Side, int, int] | None = None) -> None:
        """Drops what is known about a tensor (node row, side, slot, round) of a step, or about all of them."""
        with self.lock:
            if place is None:
                self._steps.pop(step, None)
                return
            kept = self._steps.get(step)
            index = kept.table.find(*place) if kept is not None else -1
            if kept is not None and index >= 0:
                kept.records.forget(np.array([index]))

    def without_changes(self) -> Shelf:
        """A new shelf with all records but the comparisons with a previous step."""
        other = Shelf()
        with self.lock:
            other._failures = dict(self._failures)
            for step, kept in self._steps.items():
                copy = other._steps[step] = kept.copy()
                copy.records.forget_changes(np.arange(len(copy.records)))
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

    def shelves(self) -> list[Shelf]:
        """The shelves as they are now."""
        with self._lock:
            return [shelf for _, shelf in self._shelves.values()]

    def heal(self) -> set[tuple[int, int]]:
        """(rank, step) of the unreadable tensors whose files look different now; they are looked at again."""
        with self._lock:
            shelves = {rank: shelf for rank, (_, shelf) in self._shelves.items()}
        return {(rank, step) for rank, shelf in shelves.items() for step in shelf.heal()}

    def forget(self, rank: int, step: int, place: tuple[int, Side, int, int] | None = None) -> None:
        """See ``Shelf.forget``."""
        with self._lock:
            kept = self._shelves.get(rank)
        if kept is not None:
            kept[1].forget(step, place)

    def forget_changes(self, rank: int) -> None:
        """Drops comparisons with a previous step of one rank: a step in between may have appeared."""
        with self._lock:
            if rank in self._shelves:
                lineage, shelf = self._shelves[rank]
                self._shelves[rank] = (lineage, shelf.without_changes())


def _identity(table: TensorTable, index: int) -> Identity:
    """What a tensor is known by within its (rank, step)."""
    return (int(table.node[index]), int(table.side[index]), int(table.slot[index]), int(table.timestamp[index]))


def _look(file: str) -> _Look:
    try:
        status = Path(file).stat()
    except (OSError, ValueError):
        return -1, -1
    young = abs(time.time_ns() - status.st_mtime_ns) < _YOUNG_NS
    return None if young else (status.st_size, status.st_mtime_ns)


def _changed(file: str, before: _Look) -> bool:
    return before is None or _look(file) != before
