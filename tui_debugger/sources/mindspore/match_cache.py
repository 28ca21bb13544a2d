"""The groups of files to match, and what earlier sessions found out about them.

The store keeps two things, and trusts nothing in either:

* Digests of tensor files, one payload per directory: a row per file that was read, valid as long as the file has the
  same size and modification time.
* Matches, under a digest of all that they follow from but the contents of files: the nodes, the names, what another
  step had decided. The payload says which files were read and how they looked; it holds while they look the same.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int16, Int32, Int64, UInt8
from tui_debugger.cache.store import DiskCache
from tui_debugger.graph.table import NodeTable
from tui_debugger.sources.columns import latest, tensor_keys
from tui_debugger.sources.mindspore.data_flow import WHOLE, Digest
from tui_debugger.sources.mindspore.listing import Files, Listing
from tui_debugger.sources.mindspore.match import NOWHERE, FileGroup, Match
from tui_debugger.sources.mindspore.names import split_prefix


@dataclass(frozen=True, eq=False)
class Groups:
    """All files of one root graph, of duplicates the latest, by prefix.

    Attributes:
        root: number of the root graph.
        prefixes: numbers of the prefixes, ascending; one group each.
        texts: ``type.name`` of each group.
        ends: end of each group in the columns below.
        side, slot, timestamp, file: of the files, ``file`` is the number in the listing.
    """

    root: int
    prefixes: Int32
    texts: list[bytes]
    ends: Int64
    side: UInt8
    slot: Int16
    timestamp: Int64
    file: Int64

    @property
    def digest(self) -> bytes:
        """Equal digests mean equal groups in the same order, with the same file numbers."""
        hasher = blake2b(b"%d " % self.root + b"\0".join(self.texts), digest_size=16)
        for column in (self.ends, self.side, self.slot, self.timestamp, self.file):
            hasher.update(column.data)
        return hasher.digest()

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """(operator type, operator name) of each group."""
        return tuple([split_prefix(text) for text in self.texts])

    def file_groups(self) -> list[FileGroup]:
        """One object per group."""
        sides, slots = self.side.tolist(), self.slot.tolist()
        stamps, files = self.timestamp.tolist(), self.file.tolist()
        found, start = [], 0
        for (op_type, op_name), end in zip(self.keys, self.ends.tolist(), strict=True):
            part = slice(start, end)
            members = tuple(zip(sides[part], slots[part], files[part], strict=True))
            found.append(FileGroup(op_type, op_name, members, min(stamps[part], default=0)))
            start = end
        return found


def groups_of(listing: Listing) -> dict[int, Groups]:
    """The groups of a listing by root graph; names with rows of statistics alone are groups without files."""
    files, known_names, prefixes = listing.files, listing.known_names, listing.prefixes
    kept = latest(tensor_keys(files.prefix, listing.side, listing.slot), files.timestamp)
    places = known_names.places_of()[prefixes]
    roots = np.array([root for root, _ in known_names.places] or [0])[places]
    bounds = np.searchsorted(files.prefix[kept], np.append(prefixes, len(known_names.prefixes)))
    found = {}
    for root in dict.fromkeys(roots.tolist()):
        mine = np.flatnonzero(roots == root)
        counts = (bounds[1:] - bounds[:-1])[mine]
        of = kept[np.repeat(roots == root, bounds[1:] - bounds[:-1])]
        found[root] = Groups(
            root=root,
            prefixes=prefixes[mine],
            texts=[known_names.prefixes[number] for number in prefixes[mine].tolist()],
            ends=np.cumsum(counts),
            side=listing.side[of],
            slot=listing.slot[of],
            timestamp=files.timestamp[of],
            file=of,
        )
    return found


CONTENTS_KIND: Final = "contents"
YOUNG_NS: Final = 5 * 10**9
"""A file changed more recently than this may change again and look the same."""
_CONTENTS_HEAD: Final = struct.Struct("<4sB3xq")
"""Magic, version, rows."""
_CONTENTS_MAGIC: Final = b"tdbC"
_VERSION: Final = 1
_ROW: Final = np.dtype(
    [("name", "V16"), ("size", "<i8"), ("mtime", "<i8"), ("bytes", "<i8"), ("whole", "?"), ("digest", "V16")]
)
"""Digest of the file's name, how the file looked, bytes of its values, whether all of them are in the digest."""

_Row = tuple[int, int, int, bytes]
"""(size, modification time, bytes of the values, digest)."""


class ContentDigests:
    """What the store knows about the contents of one listing's files. For one call of the matcher."""

    def __init__(self, store: DiskCache, files: Files) -> None:
        self._store, self._files = store, files
        self._rows: dict[int, dict[tuple[bytes, bool], _Row]] = {}
        self._fresh: set[int] = set()
        self._known: set[int] = set()
        self._looks: dict[int, tuple[bytes, int, int]] = {}

    def get(self, index: int, whole: bool) -> Digest | None:
        """The digest of a file (of its samples, unless it is small or ``whole`` is asked) that looks as it did."""
        rows = self._directory(int(self._files.directory[index]))
        name, size, mtime = self._look(index)
        for kind in (whole, True):
            row = rows.get((name, kind))
            if row is not None and row[:2] == (size, mtime) and (kind == whole or row[2] <= WHOLE):
                self._known.add(index)
                return Digest(row[3], row[2], kind)
        return None

    def put(self, index: int, digest: Digest) -> None:
        """Takes the digest of a file that was just read."""
        self._known.add(index)
        name, size, mtime = self._look(index)
        if size >= 0 and abs(time.time_ns() - mtime) >= YOUNG_NS:
            number = int(self._files.directory[index])
            self._directory(number)[name, digest.whole] = (size, mtime, digest.size, digest.text)
            self._fresh.add(number)

    def read(self) -> tuple[Int64, Int64, Int64] | None:
        """Numbers of the files that were asked for, their sizes and modification times before they were read.

        None when the system refused to read one of them, or one may change without looking different.
        """
        looks = [(index, size, mtime) for index, (_, size, mtime) in self._looks.items()]
        columns = np.array(looks, np.int64).reshape(-1, 3)
        young = np.abs(time.time_ns() - columns[:, 2]) < YOUNG_NS
        if self._looks.keys() - self._known or young.any():
            return None
        return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()

    def keep(self) -> None:
        """Writes what is new."""
        for number in self._fresh:
            rows = [(name, *row[:3], kind, row[3]) for (name, kind), row in self._rows[number].items()]
            column = np.array(rows, _ROW)
            self._store.put(
                CONTENTS_KIND,
                self._key(number),
                _CONTENTS_HEAD.pack(_CONTENTS_MAGIC, _VERSION, len(column)) + column.tobytes(),
            )
        self._fresh.clear()

    def _look(self, index: int) -> tuple[bytes, int, int]:
        """(digest of the name, size, modification time) of a file before it was read; size -1 when it is gone."""
        if index not in self._looks:
            path = os.fsencode(self._files.path(index))
            try:
                status = os.stat(path)  # noqa: PTH116 - a path of bytes
                look = (status.st_size, status.st_mtime_ns)
            except (OSError, ValueError):
                look = (-1, 0)
            self._looks[index] = (blake2b(path.rpartition(b"/")[2], digest_size=16).digest(), *look)
        return self._looks[index]

    def _directory(self, number: int) -> dict[tuple[bytes, bool], _Row]:
        if number not in self._rows:
            payload = self._store.get(CONTENTS_KIND, self._key(number))
            rows = _unpack_contents(payload) if payload is not None else None
            # A directory into which run after run is dumped does not drag the files of all of them along.
            self._rows[number] = _by_name(rows) if rows is not None and len(rows) <= 4 * len(self._files) else {}
        return self._rows[number]

    def _key(self, number: int) -> bytes:
        return blake2b(os.path.realpath(self._files.directories[number]), digest_size=16).digest()


def _unpack_contents(payload: bytes) -> npt.NDArray[Any] | None:
    if len(payload) < _CONTENTS_HEAD.size:
        return None
    magic, version, count = _CONTENTS_HEAD.unpack_from(payload)
    if (
        (magic, version) != (_CONTENTS_MAGIC, _VERSION)
        or count < 0
        or len(payload) != _CONTENTS_HEAD.size + count * _ROW.itemsize
    ):
        return None
    return np.frombuffer(payload, _ROW, count, _CONTENTS_HEAD.size)


def _by_name(rows: npt.NDArray[Any]) -> dict[tuple[bytes, bool], _Row]:
    names, digests = rows["name"].tolist(), rows["digest"].tolist()
    numbers = (rows[field].tolist() for field in ("size", "mtime", "bytes"))
    keys = zip(names, rows["whole"].tolist(), strict=True)
    return dict(zip(keys, zip(*numbers, digests, strict=True), strict=True))


MATCH_KIND: Final = "match"
_RULES: Final = b"1"
"""Part of every key: whoever changes what ``match`` (or what it is made of) decides changes this, too."""
_MATCH_HEAD: Final = struct.Struct("<4s4x4q")
"""Magic, then groups, open groups, rows that these may have, files that were read."""
_MATCH_MAGIC: Final = b"tdbM"


class MatchCache:
    """What the store knows about matches."""

    def __init__(self, store: DiskCache, nodes: NodeTable) -> None:
        """``nodes`` are those of the graph files."""
        self._store, self._nodes = store, nodes

    def key(self, groups: Groups, earlier: Match | None) -> bytes:
        """Returns what a match of these groups is found by."""
        hasher = blake2b(self._nodes.memo(_digest), digest_size=16)
        hasher.update(groups.digest + (b"" if earlier is None else _pack(earlier, _NO_FILES)))
        if earlier is not None:
            hasher.update(repr(earlier.keys).encode("utf-8", "surrogateescape"))
        return hasher.digest()

    def recall(self, key: bytes, groups: Groups, files: Files) -> Match | None:
        """The match, when all files that were read for it look as they did."""
        payload = self._store.get(MATCH_KIND, key)
        found = _unpack_match(payload, groups, len(self._nodes)) if payload is not None else None
        if found is None:
            return None
        match, (numbers, sizes, times) = found
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(files)):
            return None
        now = files.states(numbers)
        same = np.array_equal(now[0], sizes) and np.array_equal(now[1], times)
        return match if same else None

    def keep(self, key: bytes, match: Match, contents: ContentDigests) -> None:
        """Remembers a match, unless a file was unreadable or so young that it may change and look the same."""
        read = contents.read()
        if read is not None:
            self._store.put(MATCH_KIND, key, _pack(match, read))


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
    head = _MATCH_HEAD.pack(_MATCH_MAGIC, len(match.node), len(members), len(rows), len(read[0]))
    columns = (
        match.node.astype("<i4"),
        match.uncertain.astype("u1"),
        np.array(members, "<i4"),
        np.array([len(match.open[group]) for group in members], "<i4"),
        np.array(rows, "<i4"),
        *(column.astype("<i8") for column in read),
    )
    return b"".join([head, *(column.tobytes() for column in columns)])


def _unpack_match(payload: bytes, groups: Groups, nodes: int) -> tuple[Match, _Read] | None:
    """The match of these groups; None when the payload makes no sense."""
    if len(payload) < _MATCH_HEAD.size:
        return None
    magic, count, members, rows, files = _MATCH_HEAD.unpack_from(payload)
    sizes = (4 * count, count, 4 * members, 4 * members, 4 * rows, 8 * files, 8 * files, 8 * files)
    if (
        magic != _MATCH_MAGIC
        or min(sizes) < 0
        or len(payload) != _MATCH_HEAD.size + sum(sizes)
        or count != len(groups.texts)
    ):
        return None
    types = ("<i4", "u1", "<i4", "<i4", "<i4", "<i8", "<i8", "<i8")
    columns, start = [], _MATCH_HEAD.size
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
