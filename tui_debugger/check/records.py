"""Everything a session has measured so far, so that no tensor is read twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int64, Mask
from tui_debugger.cache.blocks import pack, unpack
from tui_debugger.cache.store import DiskCache
from tui_debugger.model import Side
from tui_debugger.sources.base import TensorTable
from tui_debugger.stats.records import Before, Record, Records, State

Identity = tuple[int, int, int, int]
"""(node row, side, slot, timestamp): stays the same when a growing step is listed again."""

_Look = tuple[int, int] | None
"""(size, modification time) of a file, (-1, -1) without one; None when it may have changed since it was read."""
_YOUNG_NS = 2 * 10**9
"""A file written more recently than this may have been written to between reading it and looking at its time."""


class StepStats:
    """The knowledge about the tensors of one step.

    Attributes:
        table: the files that the rows of ``records`` stand for.
        records: what is known about them.
        remembered: whether what earlier sessions measured has been looked up.
        fresh: rows that were measured since the step was last remembered.
        states: how the files looked when that was first asked: sizes and modification times.
        sizes: how large the files are, about; None when nobody has asked.
    """

    def __init__(self, table: TensorTable) -> None:
        self.table = table
        self.records = Records(len(table))
        self.remembered = False
        self.fresh = np.zeros(len(table), np.bool_)
        self.states: tuple[Int64, Int64] | None = None
        self.sizes: Int64 | None = None

    def aligned(self, table: TensorTable) -> StepStats:
        """The same knowledge for a newer listing of the step: files that are still there keep their record."""
        other = StepStats(table)
        old = np.flatnonzero(self.records.rows["state"])
        own = self.table.timestamp[old]
        new = table.find_all(self.table.node[old], self.table.side[old], self.table.slot[old], at=own)
        same = new >= 0
        same[same] = table.timestamp[new[same]] == self.table.timestamp[old[same]]
        other.records.place(self.records, old[same], new[same])
        other.fresh[new[same]] = True
        return other

    def copy(self) -> StepStats:
        """The same again, to be changed."""
        other = StepStats(self.table)
        every = np.arange(len(self.records))
        other.records.place(self.records, every, every)
        other.remembered, other.fresh = self.remembered, self.fresh.copy()
        other.states, other.sizes = self.states, self.sizes
        return other


class RankStats:
    """The records of one rank, for as long as its node rows keep their numbers. Safe to use from several threads.

    Attributes:
        lock: to be held while records are changed.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._steps: dict[int, StepStats] = {}
        self._failures: dict[tuple[int, Identity], tuple[tuple[str, _Look], ...]] = {}

    def at(self, step: int, table: TensorTable) -> StepStats:
        """Returns what is known about the files of a step, as they were when ``table`` was listed."""
        kept = self._steps.get(step)
        if kept is None or kept.table is not table:
            with self.lock:
                kept = self._steps.get(step)
                if kept is None or kept.table is not table:
                    kept = self._steps[step] = StepStats(table) if kept is None else kept.aligned(table)
        return kept

    def get(self, step: int, table: TensorTable, index: int) -> Record | None:
        """Returns what is known about a tensor."""
        kept = self.at(step, table)
        with self.lock:
            return kept.records.get(index)

    def steps(self) -> dict[int, StepStats]:
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

    def without_changes(self) -> RankStats:
        """Returns a copy with all records but the comparisons with a previous step."""
        other = RankStats()
        with self.lock:
            other._failures = dict(self._failures)
            for step, kept in self._steps.items():
                copy = other._steps[step] = kept.copy()
                copy.records.forget_changes(np.arange(len(copy.records)))
        return other


class StatsCache:
    """The knowledge about all ranks.

    A ``RankStats`` that is replaced stays with those who work with it: what they measure meanwhile is lost with it
    instead of passing for knowledge about the present.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_rank: dict[int, tuple[object, RankStats]] = {}

    def rank_stats(self, rank: int, lineage: object) -> RankStats:
        """The records of a rank; none are left when its nodes are numbered anew (see ``NodeTable.lineage``)."""
        with self._lock:
            kept = self._by_rank.get(rank)
            if kept is None or kept[0] is not lineage:
                kept = self._by_rank[rank] = (lineage, RankStats())
            return kept[1]

    def all_ranks(self) -> list[RankStats]:
        """Returns what is known of every rank, as it is now."""
        with self._lock:
            return [rank_stats for _, rank_stats in self._by_rank.values()]

    def heal(self) -> set[tuple[int, int]]:
        """(rank, step) of the unreadable tensors whose files look different now; they are looked at again."""
        with self._lock:
            all_ranks = {rank: rank_stats for rank, (_, rank_stats) in self._by_rank.items()}
        return {(rank, step) for rank, rank_stats in all_ranks.items() for step in rank_stats.heal()}

    def forget(self, rank: int, step: int, place: tuple[int, Side, int, int] | None = None) -> None:
        """See ``Shelf.forget``."""
        with self._lock:
            kept = self._by_rank.get(rank)
        if kept is not None:
            kept[1].forget(step, place)

    def forget_changes(self, rank: int) -> None:
        """Drops comparisons with a previous step of one rank: a step in between may have appeared."""
        with self._lock:
            if rank in self._by_rank:
                lineage, rank_stats = self._by_rank[rank]
                self._by_rank[rank] = (lineage, rank_stats.without_changes())


def _identity(table: TensorTable, index: int) -> Identity:
    """Returns what a tensor is known by within its (rank, step)."""
    return (int(table.node[index]), int(table.side[index]), int(table.slot[index]), int(table.timestamp[index]))


def _look(file: str) -> _Look:
    try:
        status = opener.stat(file)
    except (OSError, ValueError):
        return -1, -1
    young = abs(time.time_ns() - status.st_mtime_ns) < _YOUNG_NS
    return None if young else (status.st_size, status.st_mtime_ns)


def _changed(file: str, before: _Look) -> bool:
    return before is None or _look(file) != before


Befores = Callable[[Int64], "tuple[Int64, Int64]"]
"""Rows to the step before of each and its row there, -1 where there is none."""
States = Callable[[int], "tuple[Int64, Int64]"]
"""A step to the sizes and modification times of its files now."""

KIND: Final = "records"
BLOCK: Final = 1 << 14
"""Rows that are written together: a step of a million files is not written anew for one."""
WORTHWHILE: Final = 64
"""So many new rows are written at once; fewer wait for more, or for the end of the session."""


class StoredStats:
    """The index as a session uses it. Without a store it forgets everything."""

    def __init__(self, store: DiskCache | None = None) -> None:
        self._store = store

    def recall(self, step: int, kept: StepStats, befores: Befores, states: States) -> None:
        """Fills in what is known of a step's tensors, where neither their files nor those before have changed."""
        if self._store is not None and kept.table.digest:
            self._recall(self._store, kept, _Now(step, befores, states))
        kept.remembered = True

    def _recall(self, store: DiskCache, kept: StepStats, now: _Now) -> None:
        digest, count = kept.table.digest, len(kept.table)
        starts = range(0, count, BLOCK)
        payloads = store.get_many(KIND, [_key(digest, start) for start in starts])
        for start in starts:
            payload = payloads.get(_key(digest, start))
            found = unpack(payload, min(BLOCK, count - start)) if payload is not None else None
            if found is not None:
                now.take(kept, found, start)

    def keep(self, steps: Iterable[StepStats], *, all_of_it: bool = False) -> None:
        """Writes what is new where it is worth it."""
        if self._store is None:
            return
        payloads: dict[bytes, bytes] = {}
        for kept in steps:
            fresh = np.flatnonzero(kept.fresh)
            if not kept.table.digest or len(fresh) < (1 if all_of_it else min(WORTHWHILE, len(kept.table))):
                continue
            for start in np.unique(fresh // BLOCK * BLOCK).tolist():
                payloads[_key(kept.table.digest, start)] = pack(kept.records.part(start, start + BLOCK))
            kept.fresh[fresh] = False
        if payloads:
            self._store.put_many(KIND, payloads)

    def close(self) -> None:
        """Lets go of the index."""
        if self._store is not None:
            self._store.close()


@dataclass(frozen=True, slots=True)
class _Now:
    """Returns how the files of a step and those before look now."""

    step: int
    befores: Befores
    states: States

    def take(self, kept: StepStats, found: Records, start: int) -> None:
        """Takes what still holds, for the rows from ``start`` on."""
        sizes, times = self.states(self.step)
        part = slice(start, start + len(found))
        rows = found.rows
        valid = (rows["state"] == State.MEASURED) | (rows["state"] == State.NO_NUMBERS)
        valid &= (rows["mtime"] > 0) & (rows["size"] == sizes[part]) & (rows["mtime"] == times[part])
        valid &= kept.records.rows["state"][part] == State.UNKNOWN
        compared = np.flatnonzero(valid & found.compared())
        if len(compared):
            found.forget_changes(compared[~self._same_before(found, compared, start)])
        if len(found) == len(kept.records) and not kept.records.rows["state"].any():
            if not valid.all():
                found.forget(np.flatnonzero(~valid))
            kept.records = found
            return
        source = np.flatnonzero(valid)
        kept.records.place(found, source, source + start)

    def _same_before(self, found: Records, at: Int64, start: int) -> Mask:
        """Tells whether rows were compared with what is the step before now, as it looks now."""
        before, index = self.befores(at + start)
        rows = np.take(found.rows, at)
        same: Mask = (rows["before"] == Before.NONE) & (before < 0)
        measured = (rows["before"] == Before.OK) | (rows["before"] == Before.SHAPE)
        for step in np.unique(before[measured & (before >= 0)]).tolist():
            of = np.flatnonzero(measured & (before == step))
            sizes, times = self.states(step)
            now = index[of]
            same[of] = (rows["before_mtime"][of] > 0) & (rows["before_size"][of] == sizes[now])
            same[of] &= rows["before_mtime"][of] == times[now]
        return same


def _key(digest: bytes, start: int) -> bytes:
    return digest + start.to_bytes(8, "little")
