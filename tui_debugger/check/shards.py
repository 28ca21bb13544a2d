"""A check that several jobs share: each measures its part of the tensors, and the parts of the index are put together.

A tensor belongs to the same shard at all steps of a rank, so that what compares steps reads each file once. Which one
follows from its rank, node, side and slot alone: every job divides in the same way without asking another one.

A part is a file of its own, which may come from another machine: a header (``_HEAD``: magic, version, which shard of
how many, number of entries, bytes of the path of the run), the path, the entries (``_ENTRY``: lengths of key and
payload, both behind it), and a digest of everything before. Numbers are little endian. A file that is cut, changed or
none of ours is refused as a whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64, Mask
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


_HEAD: Final = struct.Struct("<8sIIIII")
_ENTRY: Final = struct.Struct("<HQ")
_MAGIC: Final = b"tdbgpart"
_VERSION: Final = 1
_DIGEST: Final = 16
LARGEST: Final = 1 << 32
"""Bytes of a file of ours, and of what it holds unpacked."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The statistics that one job measured.

    Attributes:
        run: the directory of the dump.
        shard, of: which part of how many, from 1.
        entries: payloads of the index by key.
    """

    run: str
    shard: int
    of: int
    entries: Mapping[bytes, bytes] = field(default_factory=dict)


def pack_part(part: IndexPart) -> bytes:
    """Returns a part as the bytes of a file."""
    run = part.run.encode("utf-8", "surrogateescape")
    pieces = [_HEAD.pack(_MAGIC, _VERSION, part.shard, part.of, len(part.entries), len(run)), run]
    for key, payload in part.entries.items():
        packed = zlib.compress(payload, 1)
        pieces += [_ENTRY.pack(len(key), len(packed)), key, packed]
    body = b"".join(pieces)
    return body + blake2b(body, digest_size=_DIGEST).digest()


def unpack_part(data: bytes) -> IndexPart | None:
    """Returns what the bytes of a file hold; None where they are no part of an index, or a damaged one."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if len(body) < _HEAD.size or blake2b(body, digest_size=_DIGEST).digest() != digest:
        return None
    magic, version, shard, of, count, length = _HEAD.unpack_from(body)
    at = _HEAD.size + length
    if (magic, version) != (_MAGIC, _VERSION) or not 1 <= shard <= of or at > len(body):
        return None
    run = body[_HEAD.size : at].decode("utf-8", "surrogateescape")
    try:
        return IndexPart(run, shard, of, dict(_entries(body, at, count)))
    except (ValueError, zlib.error, struct.error):
        return None


def _entries(body: bytes, at: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries; raises ValueError, zlib.error or struct.error where there are others."""
    left = LARGEST
    for _ in range(count):
        of_key, of_payload = _ENTRY.unpack_from(body, at)
        start = at + _ENTRY.size
        at = start + of_key + of_payload
        unpacker = zlib.decompressobj()
        payload = unpacker.decompress(body[start + of_key : at], left)
        left -= len(payload)
        if at > len(body) or not unpacker.eof or left <= 0:
            raise ValueError("an entry is cut")
        yield body[start : start + of_key], payload
    if at != len(body):
        raise ValueError("there is more than it says")
