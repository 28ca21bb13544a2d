"""A check that several jobs share: each measures its part of the tensors, and the parts of the index are put together.

A tensor belongs to the same shard at all steps of a rank, so that what compares steps reads each file once. Which one
follows from its rank, node, side and slot alone: every job divides in the same way without asking another one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64, Mask
from tui_debugger.cache.parts import IndexPart
from tui_debugger.cache.store import DiskCache
from tui_debugger.check.plan import RequiredByStep
from tui_debugger.check.progress import retry_when_renumbered, scaled
from tui_debugger.check.records import KIND, index_entries, joined_entry
from tui_debugger.check.step import Checker
from tui_debugger.check.types import Pair
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import ProgressFn, TensorKey, no_progress
from tui_debugger.sources.base import TensorTable
from tui_debugger.stats.records import State


@dataclass(frozen=True, slots=True)
class Shard:
    """One part of the work.

    Attributes:
        number: from 1.
        of: how many there are.
    """

    number: int
    of: int

    def __str__(self) -> str:
        """``2/4``."""
        return f"{self.number}/{self.of}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The statistics that a shard measured.

    Attributes:
        entries: of the index.
        tensors: how many belong to it.
        all_tensors: how many a check of everything would look at.
        unreadable: those of its own that could not be read, with the reason.
    """

    entries: dict[bytes, bytes]
    tensors: int
    all_tensors: int
    unreadable: tuple[tuple[TensorKey, str], ...]


def shard_mask(nodes: NodeTable, table: TensorTable, rank: int, shard: Shard) -> Mask:
    """Tells which rows of a step's table belong to a shard."""
    used, inverse = np.unique(table.node, return_inverse=True)
    names = [f"{rank}\0{nodes.graph_of(row).name}\0{nodes.names[row]}" for row in used.tolist()]
    digests = np.array([zlib.crc32(name.encode("utf-8", "surrogateescape")) for name in names], np.uint64)
    mixed = digests[inverse] + table.side.astype(np.uint64) * np.uint64(7919) + table.slot.astype(np.uint64)
    found: Mask = mixed % np.uint64(shard.of) == np.uint64(shard.number - 1)
    return found


MakeChecker = Callable[[int], Checker]
"""A checker of a rank as its files are now."""


def measure_shard(
    checker: MakeChecker, pairs: Sequence[Pair], shard: Shard, progress: ProgressFn = no_progress
) -> Measured:
    """Measures what a check of some pairs needs, as far as it belongs to a shard.

    Args:
        checker: of a rank.
        pairs: everything that is to be checked, by all jobs together.
        shard: which part.
        progress: see ``ProgressFn``.

    Raises:
        CancelledError: from ``progress``.
    """
    by_rank: dict[int, list[int]] = {}
    for rank, step in pairs:
        by_rank.setdefault(rank, []).append(step)
    entries: dict[bytes, bytes] = {}
    tensors = all_tensors = 0
    unreadable: list[tuple[TensorKey, str]] = []
    for number, (rank, steps) in enumerate(by_rank.items()):
        tell = scaled(progress, number, len(by_rank), 1)
        found = retry_when_renumbered(partial(_of_rank, checker, rank, steps, shard, tell))
        entries |= found.entries
        tensors, all_tensors = tensors + found.tensors, all_tensors + found.all_tensors
        unreadable += found.unreadable
    return Measured(entries, tensors, all_tensors, tuple(unreadable))


def _of_rank(make: MakeChecker, rank: int, steps: Sequence[int], shard: Shard, progress: ProgressFn) -> Measured:
    checker = make(rank)
    measurements, flow = checker.measurements, checker.flow
    entries: dict[bytes, bytes] = {}
    tensors = all_tensors = 0
    unreadable: list[tuple[TensorKey, str]] = []
    for group in checker.batches(steps):
        if group is None:
            continue
        required, own = RequiredByStep(), RequiredByStep()
        for step in group:
            checker.planner.plan(step, required)
        for step in required.steps():
            table = flow.table(step)
            mask = shard_mask(flow.nodes, table, flow.rank, shard)
            for need, rows in required.of_step(step):
                own.ask(step, table, rows[mask[rows]], need)
                all_tensors += len(rows) if step in group else 0
        measurements.ensure_all(own, progress, checker.text(group))
        for step in own.steps():
            kept = measurements.kept(step)
            of_shard = [found for _, found in own.of_step(step)]
            measured: Int64 = np.concatenate(of_shard).astype(np.int64)
            tensors += len(measured) if step in group else 0
            entries |= index_entries(kept, measured)
            for row in measured[kept.records.rows["state"][measured] == State.UNREADABLE].tolist():
                record = kept.records.get(row)
                key = flow.nodes.key(flow.rank, step, int(kept.table.node[row]))
                unreadable.append((key, record.error if record is not None else ""))
    return Measured(entries, tensors, all_tensors, tuple(unreadable))


_VERIFIED: Final = 64
"""Entries that are looked up together to see whether they were kept."""


def merge_parts(store: DiskCache, parts: Sequence[IndexPart]) -> int:
    """Puts parts of an index into the index of this user, beside what is there; returns how many entries were not kept.

    What a part says of a file counts only where the file looks as it did when it was read: who asks finds out.
    """
    lost = 0
    for part in parts:
        keys = list(part.entries)
        for start in range(0, len(keys), _VERIFIED):
            some = keys[start : start + _VERIFIED]
            before = store.get_many(KIND, some)
            joined = {key: joined_entry(before.get(key), part.entries[key]) for key in some}
            payloads = {key: payload for key, payload in joined.items() if payload is not None}
            store.put_many(KIND, payloads)
            after = store.get_many(KIND, some)
            lost += sum(payloads.get(key) is None or after.get(key) != payloads[key] for key in some)
    return lost
