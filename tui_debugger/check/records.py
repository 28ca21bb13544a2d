"""All measurements of a session, so that no tensor is read twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Int64, Mask
from tui_debugger.cache.blocks import pack, unpack
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import TdbgError
from tui_debugger.model import Side, TensorStats
from tui_debugger.sources.base import TensorFlag, TensorTable
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.records import Before, Record, Records, RecordState

_FileState = tuple[int, int] | None
"""(size, ``opener.state_of``) of a file, (-1, -1) without one; None when it may have changed since it was read."""
_GONE: Final[tuple[_FileState, tuple[()]]] = (-1, -1), ()
"""The state of a missing file: one shared object, as a listing may name a million such files."""


class StepStats:
    """The records of the tensors of one step.

    Attributes:
        remembered: whether records of earlier sessions have been looked up.
        fresh: rows that were measured since the step was last stored.
        states: sizes and ``opener.state_of`` of the files when first asked for; ``sizes`` are approximate.
        failures: by the row of each unreadable tensor the state of its file and of other files that matter: ``heal``
            sees them change.
    """

    def __init__(self, table: TensorTable) -> None:
        self.table = table
        self.records = Records(len(table))
        self.remembered = False
        self.fresh = np.zeros(len(table), np.bool_)
        self.states: tuple[Int64, Int64] | None = None
        self.sizes: Int64 | None = None
        self.failures: dict[int, tuple[_FileState, tuple[tuple[str, _FileState], ...]]] = {}

    def looks_different(self, row: int) -> bool:
        own, others = self.failures[row]
        return _changed(self.table.spec(row).path, own) or any(_changed(*state) for state in others)

    @cached_property
    def digest(self) -> bytes:
        """``TensorTable.digest``, made once: a step of a million tensors has many blocks, and each names it."""
        return self.table.digest

    def aligned(self, table: TensorTable) -> StepStats:
        """The same records for a newer listing of the step: files that are still there keep their record."""
        other = StepStats(table)
        old = np.flatnonzero(self.records.rows["state"])
        own = self.table.timestamp[old]
        new = table.find_all(self.table.node[old], self.table.side[old], self.table.slot[old], at=own)
        same = new >= 0
        same[same] = table.timestamp[new[same]] == self.table.timestamp[old[same]]
        other.records.place(self.records, old[same], new[same])
        other.fresh[new[same]] = True
        moved = dict(zip(old[same].tolist(), new[same].tolist(), strict=True)) if self.failures else {}
        other.failures = {moved[row]: seen for row, seen in self.failures.items() if row in moved}
        return other

    def copy(self) -> StepStats:
        other = StepStats(self.table)
        every = np.arange(len(self.records))
        other.records.place(self.records, every, every)
        other.remembered, other.fresh = self.remembered, self.fresh.copy()
        other.states, other.sizes, other.failures = self.states, self.sizes, dict(self.failures)
        return other


class RankStats:
    """The records of one rank, for as long as its node rows keep their numbers. Hold ``lock`` to change records."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._steps: dict[int, StepStats] = {}

    def at(self, step: int, table: TensorTable) -> StepStats:
        kept = self._steps.get(step)
        if kept is None or kept.table is not table:
            with self.lock:
                kept = self._steps.get(step)
                if kept is None or kept.table is not table:
                    kept = self._steps[step] = StepStats(table) if kept is None else kept.aligned(table)
        return kept

    def get(self, step: int, table: TensorTable, index: int) -> Record | None:
        kept = self.at(step, table)
        with self.lock:
            return kept.records.get(index)

    def steps(self) -> dict[int, StepStats]:
        with self.lock:
            return dict(self._steps)

    def note_failure(self, step: int, table: TensorTable, index: int, before: Sequence[str]) -> None:
        """Keeps the state of an unreadable tensor's file, and of the files that it is compared with."""
        state = _file_state(table.spec(index).path), tuple((file, _file_state(file)) for file in before)
        with self.lock:
            self.at(step, table).failures[index] = _GONE if state == _GONE else state

    def heal(self) -> set[int]:
        """Drops records of unreadable tensors whose files changed, as they may be whole now; returns their steps."""
        with self.lock:
            steps = set()
            for step, kept in self._steps.items():
                healed = [row for row in kept.failures if kept.looks_different(row)]
                for row in healed:
                    del kept.failures[row]
                if healed:
                    kept.records.forget(np.array(healed))
                    steps.add(step)
            return steps

    def forget(self, step: int, place: tuple[int, Side, int, int] | None = None) -> None:
        """Drops the record of a tensor (node row, side, slot, round) of a step, or of all tensors of the step."""
        with self.lock:
            if place is None:
                self._steps.pop(step, None)
                return
            kept = self._steps.get(step)
            index = kept.table.find(*place) if kept is not None else -1
            if kept is not None and index >= 0:
                kept.records.forget(np.array([index]))

    def without_changes(self) -> RankStats:
        """Returns a copy of all records without comparisons with a previous step."""
        other = RankStats()
        with self.lock:
            for step, kept in self._steps.items():
                copy = other._steps[step] = kept.copy()
                copy.records.forget_changes(np.arange(len(copy.records)))
        return other


class StatsCache:
    """The records of all ranks.

    Threads that still use a replaced ``RankStats`` lose their new measurements with it, instead of passing them off as
    the present state.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_rank: dict[int, tuple[object, RankStats]] = {}

    def rank_stats(self, rank: int, lineage: object) -> RankStats:
        """The records of a rank; empty after its nodes were numbered anew (see ``NodeTable.lineage``)."""
        with self._lock:
            kept = self._by_rank.get(rank)
            if kept is None or kept[0] is not lineage:
                kept = self._by_rank[rank] = (lineage, RankStats())
            return kept[1]

    def all_ranks(self) -> list[RankStats]:
        with self._lock:
            return [rank_stats for _, rank_stats in self._by_rank.values()]

    def heal(self) -> set[tuple[int, int]]:
        with self._lock:
            all_ranks = {rank: rank_stats for rank, (_, rank_stats) in self._by_rank.items()}
        return {(rank, step) for rank, rank_stats in all_ranks.items() for step in rank_stats.heal()}

    def forget(self, rank: int, step: int, place: tuple[int, Side, int, int] | None = None) -> None:
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


def _file_state(file: str) -> _FileState:
    try:
        status = opener.stat(file)
    except (OSError, ValueError):
        return -1, -1
    state = opener.state_of(status)
    return (status.st_size, state) if state else None


def _changed(file: str, before: _FileState) -> bool:
    return before is None or _file_state(file) != before


Befores = Callable[[Int64], "tuple[Int64, Int64]"]
"""Maps rows to the step of each row's previous value and its row there, -1 where there is none."""
States = Callable[[int], "tuple[Int64, Int64]"]
"""Maps a step to the present sizes of its files, and ``opener.state_of`` them."""

KIND: Final = "records"
BLOCK: Final = 1 << 14
"""Rows that are written together: one new row does not rewrite a step of a million files."""
WORTHWHILE: Final = 64
"""The number of new rows that are written at once; fewer wait for more, or for the end of the session."""


SAMPLED: Final = 8
"""Stored records that a session measures again, one or two of each step up to this number."""
SAMPLED_BYTES: Final = 1 << 22
"""The largest file that is read for that."""
ALIKE: Final = 1e-9
"""Relative difference of sums that compiled code and numpy may compute differently."""


class StoredStats:
    """The index as a session uses it. Without a store it forgets everything.

    It is not trusted blindly: every session measures some records again. If one is wrong, the index is emptied and not
    used any more, and the session cannot judge; ``lie`` is the file of that record.
    """

    def __init__(self, store: DiskCache | None = None) -> None:
        self.lie = ""
        self._store = store
        self._left = SAMPLED if store is not None else 0
        self._random = random.Random()  # noqa: S311 - no secret: another sample each time

    def recall(self, step: int, kept: StepStats, befores: Befores, states: States) -> None:
        """Fills in stored records of a step's tensors whose files and previous values' files are unchanged."""
        valued = self._store is not None and bool(((kept.table.flags & int(TensorFlag.STAT_ONLY)) == 0).any())
        if self._store is not None and valued and kept.digest and not self.lie:
            self._recall(self._store, kept, _Now(step, befores, states))
            self._sample(kept, lambda: states(step))
        kept.remembered = True

    def verified(self, kept: StepStats, rows: Int64, states: tuple[Int64, Int64]) -> Iterator[bool | None]:
        """Measures stored rows again until one is wrong: right or not, None for an unreadable or changing file."""
        for row in rows.tolist():
            right = _is_right(kept, row, states)
            if right is None:  # the next measurement reports the error
                kept.records.forget(np.array([row]))
            elif not right:
                self._empty(kept, row)
            yield right
            if self.lie:
                return

    def _sample(self, kept: StepStats, states_now: Callable[[], tuple[Int64, Int64]]) -> None:
        measured = kept.records.rows["state"] == RecordState.MEASURED
        if self._left <= 0 or not measured.any():
            return
        states = states_now()
        known = np.flatnonzero(measured & (states[0] <= SAMPLED_BYTES))
        some = self._random.sample(known.tolist(), min(2, self._left, len(known)))
        self._left -= len(some)
        for _ in self.verified(kept, np.array(some, np.int64), states):
            pass

    def _empty(self, kept: StepStats, row: int) -> None:
        self.lie = kept.table.spec(row).path
        kept.records.forget(np.arange(len(kept.table)))
        if self._store is not None:
            self._store.clear()

    def _recall(self, store: DiskCache, kept: StepStats, now: _Now) -> None:
        digest, count = kept.digest, len(kept.table)
        starts = range(0, count, BLOCK)
        payloads = store.get_many(KIND, [_key(digest, start) for start in starts])
        for start in starts:
            payload = payloads.get(_key(digest, start))
            found = unpack(payload, min(BLOCK, count - start)) if payload is not None else None
            if found is not None:
                now.take(kept, found, start)

    def keep(self, steps: Iterable[StepStats], *, all_of_it: bool = False) -> None:
        if self._store is None:
            return
        payloads: dict[bytes, bytes] = {}
        for kept in steps:
            fresh = np.flatnonzero(kept.fresh)
            if not kept.digest or len(fresh) < (1 if all_of_it else min(WORTHWHILE, len(kept.table))):
                continue
            for start in np.unique(fresh // BLOCK * BLOCK).tolist():
                payloads[_key(kept.digest, start)] = pack(kept.records.part(start, start + BLOCK))
            kept.fresh[fresh] = False
        if payloads:
            self._store.put_many(KIND, payloads)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


@dataclass(frozen=True, slots=True)
class _Now:
    step: int
    befores: Befores
    states: States

    def take(self, kept: StepStats, found: Records, start: int) -> None:
        """Takes the records that are still valid, for the rows from ``start`` on."""
        sizes, times = self.states(self.step)
        part = slice(start, start + len(found))
        rows = found.rows
        valid = (rows["state"] == RecordState.MEASURED) | (rows["state"] == RecordState.NO_NUMBERS)
        valid &= (rows["identity"] > 0) & (rows["size"] == sizes[part]) & (rows["identity"] == times[part])
        valid &= kept.records.rows["state"][part] == RecordState.UNKNOWN
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
        """Tells whether rows were compared with their present previous values, in their present state."""
        before, index = self.befores(at + start)
        rows = np.take(found.rows, at)
        same: Mask = (rows["before"] == Before.NONE) & (before < 0)
        measured = (rows["before"] == Before.OK) | (rows["before"] == Before.SHAPE)
        for step in np.unique(before[measured & (before >= 0)]).tolist():
            of = np.flatnonzero(measured & (before == step))
            sizes, times = self.states(step)
            now = index[of]
            same[of] = (rows["before_identity"][of] > 0) & (rows["before_size"][of] == sizes[now])
            same[of] &= rows["before_identity"][of] == times[now]
        return same


def _is_right(kept: StepStats, row: int, states: tuple[Int64, Int64]) -> bool | None:
    """Measures a tensor again; None where its file cannot be read, or was replaced."""
    record, spec = kept.records.get(row), kept.table.spec(row)
    if record is None or record.stats is None:
        return None
    try:
        found, _ = measure_stats(open_array(spec))
        status = opener.stat(spec.path)
    except (TdbgError, OSError, ValueError, MemoryError):
        return None
    if (status.st_size, opener.state_of(status)) != (int(states[0][row]), int(states[1][row])):
        return None
    return _alike(found, record.stats)


def _alike(one: TensorStats, other: TensorStats) -> bool:
    """Tells whether two measurements are of the same values: counts and extremes exactly, sums up to rounding."""
    square = one.sum_squares / max(one.finite, 1)
    sums = (
        (one.mean, other.mean, one.abs_mean),
        (one.abs_mean, other.abs_mean, one.abs_mean),
        (one.variance, other.variance, square),
        (one.sum_squares, other.sum_squares, one.sum_squares),
    )
    exact = replace(one, mean=None, abs_mean=None, variance=None, sum_squares=0.0)
    if exact != replace(other, mean=None, abs_mean=None, variance=None, sum_squares=0.0):
        return False
    return all(  # equality first: an infinite sum of squares has no distance from itself
        mine == theirs or (mine is not None and theirs is not None and abs(mine - theirs) <= ALIKE * (scale or 0.0))
        for mine, theirs, scale in sums
    )


def _key(digest: bytes, start: int) -> bytes:
    return digest + start.to_bytes(8, "little")
