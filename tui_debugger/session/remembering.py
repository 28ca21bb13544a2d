"""Records of earlier sessions: taken from the index where the files still look the same, written to it when new."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.cache.blocks import pack, unpack
from tui_debugger.cache.store import DiskCache
from tui_debugger.session.records import KeptStep
from tui_debugger.stats.records import Before, Records, State

Befores = Callable[[Int64], "tuple[Int64, Int64]"]
"""Rows to the step before of each and its row there, -1 where there is none."""
States = Callable[[int], "tuple[Int64, Int64]"]
"""A step to the sizes and modification times of its files now."""

KIND: Final = "records"
BLOCK: Final = 1 << 14
"""Rows that are written together: a step of a million files is not written anew for one."""
WORTHWHILE: Final = 64
"""So many new rows are written at once; fewer wait for more, or for the end of the session."""


class Memory:
    """The index as a session uses it. Without a store it forgets everything."""

    def __init__(self, store: DiskCache | None = None) -> None:
        """Nothing is looked up yet."""
        self._store = store

    def recall(self, step: int, kept: KeptStep, befores: Befores, states: States) -> None:
        """Fills in what is known of a step's tensors, where neither their files nor those before have changed."""
        if self._store is not None and kept.table.digest:
            self._recall(self._store, kept, _Now(step, befores, states))
        kept.remembered = True

    def _recall(self, store: DiskCache, kept: KeptStep, now: _Now) -> None:
        digest, count = kept.table.digest, len(kept.table)
        starts = range(0, count, BLOCK)
        payloads = store.get_many(KIND, [_key(digest, start) for start in starts])
        for start in starts:
            payload = payloads.get(_key(digest, start))
            found = unpack(payload, min(BLOCK, count - start)) if payload is not None else None
            if found is not None:
                now.take(kept, found, start)

    def keep(self, steps: Iterable[KeptStep], *, all_of_it: bool = False) -> None:
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
    """How the files of a step and those before look now."""

    step: int
    befores: Befores
    states: States

    def take(self, kept: KeptStep, found: Records, start: int) -> None:
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
        """Whether rows were compared with what is the step before now, as it looks now."""
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
