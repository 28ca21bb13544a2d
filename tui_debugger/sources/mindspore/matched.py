"""Matches of earlier sessions: which files belong to which node is not worked out twice.

The store keeps a match under a digest of all that it follows from but the contents of files: the nodes, the names, what
another step had decided. The payload says which files were read and how they looked; it holds while they look the same.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.cache.store import DiskCache
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.mindspore.contents import Contents
from tui_debugger.sources.mindspore.files import Files
from tui_debugger.sources.mindspore.groups import Groups
from tui_debugger.sources.mindspore.match import NOWHERE, Match

KIND: Final = "match"
_RULES: Final = b"1"
"""Part of every key: whoever changes what ``match`` (or what it is made of) decides changes this, too."""
_HEAD: Final = struct.Struct("<4s4x4q")
"""Magic, then groups, open groups, rows that these may have, files that were read."""
_MAGIC: Final = b"tdbM"


class RememberedMatches:
    """What the store knows about matches."""

    def __init__(self, store: DiskCache, nodes: NodeTable) -> None:
        """``nodes`` are those of the graph files."""
        self._store, self._nodes = store, nodes

    def key(self, groups: Groups, earlier: Match | None) -> bytes:
        """What a match of these groups is found by."""
        hasher = blake2b(self._nodes.memo(_digest), digest_size=16)
        hasher.update(groups.digest + (b"" if earlier is None else _pack(earlier, _NO_FILES)))
        if earlier is not None:
            hasher.update(repr(earlier.keys).encode("utf-8", "surrogateescape"))
        return hasher.digest()

    def recall(self, key: bytes, groups: Groups, files: Files) -> Match | None:
        """The match, when all files that were read for it look as they did."""
        payload = self._store.get(KIND, key)
        found = _unpack(payload, groups, len(self._nodes)) if payload is not None else None
        if found is None:
            return None
        match, (numbers, sizes, times) = found
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(files)):
            return None
        now = files.states(numbers)
        same = np.array_equal(now[0], sizes) and np.array_equal(now[1], times)
        return match if same else None

    def keep(self, key: bytes, match: Match, contents: Contents) -> None:
        """Remembers a match, unless a file was unreadable or so young that it may change and look the same."""
        read = contents.read()
        if read is not None:
            self._store.put(KIND, key, _pack(match, read))


_Read = tuple[Int64, Int64, Int64]
"""Numbers, sizes and modification times of files."""
_NO_FILES: Final[_Read] = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _digest(nodes: NodeTable) -> bytes:
    """All of a node table that a match follows from."""
    hasher = blake2b(_RULES, digest_size=16)
    graphs = [(info.root_id, info.is_root) for info in nodes.graphs]
    texts = (*nodes.names, *nodes.types, repr(graphs), repr(sorted(nodes.file_names.items())))
    hasher.update("\0".join(texts).encode("utf-8", "surrogateescape"))
    wide = (nodes.type_id, nodes.order, nodes.in_ptr, nodes.in_node)
    for column in (*wide, nodes.graph, nodes.flags, nodes.outputs, nodes.in_slot):
        hasher.update(column.tobytes())
    return hasher.digest()


def _pack(match: Match, read: _Read) -> bytes:
    members = list(match.open)
    rows = [row for group in members for row in match.open[group]]
    head = _HEAD.pack(_MAGIC, len(match.node), len(members), len(rows), len(read[0]))
    columns = (
        match.node.astype("<i4"),
        match.uncertain.astype("u1"),
        np.array(members, "<i4"),
        np.array([len(match.open[group]) for group in members], "<i4"),
        np.array(rows, "<i4"),
        *(column.astype("<i8") for column in read),
    )
    return b"".join([head, *(column.tobytes() for column in columns)])


def _unpack(payload: bytes, groups: Groups, nodes: int) -> tuple[Match, _Read] | None:
    """The match of these groups; None when the payload makes no sense."""
    if len(payload) < _HEAD.size:
        return None
    magic, count, members, rows, files = _HEAD.unpack_from(payload)
    sizes = (4 * count, count, 4 * members, 4 * members, 4 * rows, 8 * files, 8 * files, 8 * files)
    if magic != _MAGIC or min(sizes) < 0 or len(payload) != _HEAD.size + sum(sizes) or count != len(groups.texts):
        return None
    types = ("<i4", "u1", "<i4", "<i4", "<i4", "<i8", "<i8", "<i8")
    columns, start = [], _HEAD.size
    for size, dtype in zip(sizes, types, strict=True):
        columns.append(np.frombuffer(payload[start : start + size], dtype))
        start += size
    node, uncertain, group, lengths, row, *read = columns
    if (len(lengths) and lengths.min() < 0) or lengths.sum() != rows:
        return None
    for column, below in ((node, nodes), (row, nodes), (group, count)):
        if len(column) and not NOWHERE <= column.min() <= column.max() < below:
            return None
    ends = np.cumsum(lengths).tolist()
    spans = zip(group.tolist(), [0, *ends[:-1]], ends, strict=True) if members else ()
    opened: Mapping[int, tuple[int, ...]] = {of: tuple(row[start:end].tolist()) for of, start, end in spans}
    return Match(groups.keys, node, uncertain != 0, opened), (read[0], read[1], read[2])
