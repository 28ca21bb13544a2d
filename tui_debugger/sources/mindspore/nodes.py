"""The node table of one rank, and the node row of every name on disk.

The store keeps two things and trusts neither:

- Digests of tensor files, one payload per directory: a row per file, valid while its size and time are unchanged.
- Matches, found by a digest of all their input but the contents of files. The payload says which files were read and
  how they looked; it is valid while they look the same.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, Int16, Int32, Int64, Mask, UInt8
from tui_debugger.cache.columns import StoredColumns
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import BadGraphError
from tui_debugger.graph.build import (
    FileNode,
    append_nodes,
    build_table,
    directory_names,
    order_graphs,
    reorder_rows,
    with_roots,
)
from tui_debugger.graph.messages import ParsedGraph, read_graph
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable
from tui_debugger.last_result import LastResult
from tui_debugger.model import Progress, ProgressFn, UnreadablePart, no_progress
from tui_debugger.opener import why_not
from tui_debugger.sources.base import latest, longer, tensor_keys
from tui_debugger.sources.mindspore.assign import WHOLE, Digest
from tui_debugger.sources.mindspore.layout import NEVER, Stamp, stamp
from tui_debugger.sources.mindspore.listing import Files, MindSporeStepListing
from tui_debugger.sources.mindspore.match import NOWHERE, ContentReading, FileGroup, GroupMatch, match_names
from tui_debugger.sources.mindspore.names import Prefix, split_prefix
from tui_debugger.sources.mindspore.order_files import OperatorOrder, StepsThatRan, read_order
from tui_debugger.stats.npy import open_array


@dataclass(frozen=True, eq=False)
class FileGroups:
    """The files of one root graph, grouped by prefix; of duplicates the latest."""

    root: int
    prefixes: Int32
    """Numbers of the prefixes, ascending; one group each."""
    texts: list[bytes]
    """``type.name`` of each group."""
    ends: Int64
    """End of each group in the columns below."""
    side: UInt8
    slot: Int16
    timestamp: Int64
    file: Int64
    """Number of the file in the listing."""

    @property
    def digest(self) -> bytes:
        """Equal digests mean equal groups in the same order, with the same file numbers."""
        hasher = blake2b(b"%d " % self.root + b"\0".join(self.texts), digest_size=16)
        for column in (self.ends, self.side, self.slot, self.timestamp, self.file):
            hasher.update(column.data)
        return hasher.digest()

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        return tuple([split_prefix(text) for text in self.texts])

    def file_groups(self) -> list[FileGroup]:
        sides, slots = self.side.tolist(), self.slot.tolist()
        stamps, files = self.timestamp.tolist(), self.file.tolist()
        found, start = [], 0
        for (op_type, op_name), end in zip(self.keys, self.ends.tolist(), strict=True):
            part = slice(start, end)
            members = tuple(zip(sides[part], slots[part], files[part], strict=True))
            found.append(FileGroup(op_type, op_name, members, min(stamps[part], default=0)))
            start = end
        return found


def groups_of(listing: MindSporeStepListing) -> dict[int, FileGroups]:
    """The groups of a listing by root graph; a name that only has rows of statistics is a group without files."""
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
        found[root] = FileGroups(
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
_ROW: Final = np.dtype(
    [("name", "V16"), ("size", "<i8"), ("identity", "<i8"), ("bytes", "<i8"), ("whole", "?"), ("digest", "V16")]
)
"""Digest of the file's name; size and state of the file; bytes of its values; whether the digest covers all of them."""
_CONTENTS: Final = StoredColumns(b"tdbC3", _ROW)

_Row = tuple[int, int, int, bytes]
"""(size, ``opener.state_of``, bytes of the values, digest) of a file."""


class ContentDigests:
    """The store's digests of one listing's files. For one call of the matcher."""

    def __init__(self, store: DiskCache, files: Files) -> None:
        self._store, self._files = store, files
        self._rows: dict[int, dict[tuple[bytes, bool], _Row]] = {}
        self._fresh: set[int] = set()
        self._known: set[int] = set()
        self._file_states: dict[int, tuple[bytes, int, int]] = {}

    def get(self, index: int, whole: bool) -> Digest | None:
        """Returns the digest of an unchanged file: of its samples, unless the file is small or ``whole``."""
        rows = self._directory(int(self._files.directory[index]))
        name, size, identity = self._file_state(index)
        for kind in (whole, True):
            row = rows.get((name, kind))
            if row is not None and row[:2] == (size, identity) and (kind == whole or row[2] <= WHOLE):
                self._known.add(index)
                return Digest(row[3], row[2], kind)
        return None

    def put(self, index: int, digest: Digest) -> None:
        self._known.add(index)
        name, size, identity = self._file_state(index)
        if size >= 0 and identity:
            number = int(self._files.directory[index])
            self._directory(number)[name, digest.whole] = (size, identity, digest.size, digest.text)
            self._fresh.add(number)

    def read(self) -> tuple[Int64, Int64, Int64] | None:
        """Numbers, sizes and ``opener.state_of`` of the files that were asked for, as they were before they were read.

        None when a file could not be read, or may change without looking different.
        """
        looks = [(index, size, identity) for index, (_, size, identity) in self._file_states.items()]
        columns = np.array(looks, np.int64).reshape(-1, 3)
        if self._file_states.keys() - self._known or not columns[:, 2].all():
            return None
        return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()

    def keep(self) -> None:
        for number in self._fresh:
            rows = [(name, *row[:3], kind, row[3]) for (name, kind), row in self._rows[number].items()]
            self._store.put(CONTENTS_KIND, self._key(number), _CONTENTS.pack(np.array(rows, _ROW)))
        self._fresh.clear()

    def _file_state(self, index: int) -> tuple[bytes, int, int]:
        """(digest of the name, size, ``opener.state_of``) of a file before it was read; size -1 when it is gone."""
        if index not in self._file_states:
            spec = self._files.spec(index)
            path = os.fsencode(spec.path)
            try:
                status = opener.stat(path)
                state = (status.st_size, opener.state_of(status))
            except (OSError, ValueError):
                state = (-1, 0)
            name = path.rpartition(b"/")[2] + (b"\0" + spec.member.encode() if spec.member else b"")
            self._file_states[index] = (blake2b(name, digest_size=16).digest(), *state)
        return self._file_states[index]

    def _directory(self, number: int) -> dict[tuple[bytes, bool], _Row]:
        if number not in self._rows:
            found = _CONTENTS.unpack(self._store.get(CONTENTS_KIND, self._key(number)))
            # Where run after run is dumped into one directory, the digests of older files are dropped.
            mine = found is not None and len(found[0]) <= 4 * len(self._files)
            self._rows[number] = _by_name(found[0]) if found is not None and mine else {}
        return self._rows[number]

    def _key(self, number: int) -> bytes:
        return blake2b(os.path.realpath(self._files.directories[number]), digest_size=16).digest()


def _by_name(rows: Array) -> dict[tuple[bytes, bool], _Row]:
    names, digests = rows["name"].tolist(), rows["digest"].tolist()
    numbers = (rows[field].tolist() for field in ("size", "identity", "bytes"))
    keys = zip(names, rows["whole"].tolist(), strict=True)
    return dict(zip(keys, zip(*numbers, digests, strict=True), strict=True))


MATCH_KIND: Final = "match"
_RULES: Final = b"1"
"""Part of every key: change it whenever ``match``, or anything it is made of, decides differently."""
_MATCH: Final = StoredColumns(b"tdbM2", "<i4", "u1", "<i4", "<i4", "<i4", "<i8", "<i8", "<i8")
"""Nodes and doubts of groups; open groups, their numbers of candidate rows, these rows; the files that were read."""


class MatchCache:
    """The matches in the store; ``nodes`` are the nodes of the graph files."""

    def __init__(self, store: DiskCache, nodes: NodeTable) -> None:
        self._store, self._nodes = store, nodes

    def key(self, groups: FileGroups, earlier: GroupMatch | None) -> bytes:
        hasher = blake2b(self._nodes.memo(_digest), digest_size=16)
        hasher.update(groups.digest + (b"" if earlier is None else _pack(earlier, _NO_FILES)))
        if earlier is not None:
            hasher.update(repr(earlier.keys).encode("utf-8", "surrogateescape"))
        return hasher.digest()

    def recall(self, key: bytes, groups: FileGroups, files: Files) -> GroupMatch | None:
        """Returns the match when all files that were read for it look as they did."""
        found = _unpack_match(self._store.get(MATCH_KIND, key), groups, len(self._nodes))
        if found is None:
            return None
        match, (numbers, sizes, times) = found
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(files)):
            return None
        now = files.states(numbers)
        same = np.array_equal(now[0], sizes) and np.array_equal(now[1], times)
        return match if same else None

    def keep(self, key: bytes, match: GroupMatch, contents: ContentDigests) -> None:
        """Remembers a match, unless a file was unreadable, or so young that it may change and look the same."""
        read = contents.read()
        if read is not None:
            self._store.put(MATCH_KIND, key, _pack(match, read))


_Read = tuple[Int64, Int64, Int64]
"""Numbers, sizes and ``opener.state_of`` of files."""
_NO_FILES: Final[_Read] = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def _digest(nodes: NodeTable) -> bytes:
    hasher = blake2b(_RULES, digest_size=16)
    graphs = [(info.root_id, info.is_root) for info in nodes.graphs]
    texts = (*nodes.names, *nodes.types, repr(graphs), repr(sorted(nodes.file_names.items())))
    hasher.update("\0".join(texts).encode("utf-8", "surrogateescape"))
    wide = (nodes.type_id, nodes.order, nodes.in_ptr, nodes.in_node)
    for column in (*wide, nodes.graph, nodes.flags, nodes.outputs, nodes.in_slot):
        hasher.update(column.tobytes())
    return hasher.digest()


def _pack(match: GroupMatch, read: _Read) -> bytes:
    members = list(match.open)
    lengths = [len(match.open[group]) for group in members]
    rows = [row for group in members for row in match.open[group]]
    return _MATCH.pack(match.node, match.uncertain, members, lengths, rows, *read)


def _unpack_match(payload: bytes | None, groups: FileGroups, nodes: int) -> tuple[GroupMatch, _Read] | None:
    found = _MATCH.unpack(payload)
    if found is None:
        return None
    node, uncertain, group, lengths, row, *read = found
    count = len(groups.texts)
    if not (len(node) == len(uncertain) == count and len(group) == len(lengths)) or len(set(map(len, read))) > 1:
        return None
    if (len(lengths) and lengths.min() < 0) or lengths.sum() != len(row):
        return None
    for column, below in ((node, nodes), (row, nodes), (group, count)):
        if len(column) and not NOWHERE <= column.min() <= column.max() < below:
            return None
    ends = np.cumsum(lengths).tolist()
    spans = zip(group.tolist(), [0, *ends], ends, strict=False)
    opened: Mapping[int, tuple[int, ...]] = {of: tuple(row[start:end].tolist()) for of, start, end in spans}
    return GroupMatch(groups.keys, node, uncertain != 0, opened), (read[0], read[1], read[2])


DIRECTORY = "graphs"
FILE = re.compile(r"ms_output_trace_code_graph_(\d{1,9})\.pb")
ORDER_DIRECTORY = "execution_order"
Read = TypeVar("Read", OperatorOrder, StepsThatRan)
ORDER_FILE = re.compile(r"ms_execution_order_graph_(\d{1,9})\.csv")

Signature = tuple[tuple[str, Stamp], ...]
"""(name, stamp) of every graph and order file: changes when a file arrives, is rewritten, or becomes readable."""


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """The contents of the graph and order files of a rank."""

    graphs: tuple[ParsedGraph, ...] = ()
    """By number of the file; broken ones are left out."""
    orders: Mapping[int | str, tuple[str, ...]] | None = None
    """Full names in execution order by root graph number."""
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()


def graph_paths(rank: Path) -> list[Path]:
    return [path for _, path in numbered_files(rank / DIRECTORY, FILE)]


def may_have_graph(rank: Path) -> bool:
    """Whether a rank has graph files, or a directory of graphs that cannot be listed."""
    return bool(graph_paths(rank)) or any(part.where.endswith(f"/{DIRECTORY}") for part in unreadable_directories(rank))


def graph_signature(rank: Path) -> Signature:
    paths = numbered_files(rank / DIRECTORY, FILE) + numbered_files(rank / ORDER_DIRECTORY, ORDER_FILE)
    return tuple((path.name, looks) for _, path in paths if (looks := stamp(path)) != NEVER)


def paths_of(rank: Path, signature: Signature) -> list[Path]:
    """Returns the graph files of a signature without listing the directory again."""
    return [rank / DIRECTORY / name for name, _ in signature if FILE.fullmatch(name)]


def broken_graph(path: Path, problem: BadGraphError) -> UnreadablePart:
    cause = problem.__cause__
    why = why_not(path, cause, wanted="a file") if isinstance(cause, OSError) else problem.what
    return UnreadablePart(f"{path.parent.parent.name}/{DIRECTORY}/{path.name}", why, graph=True)


def read_graphs(rank: Path, progress: ProgressFn = no_progress, seen: Collection[str] = ()) -> GraphFiles:
    """Reads the graph and order files of a rank; broken ones become notices."""
    notices: list[str] = []
    parts: list[UnreadablePart] = []
    graphs: list[ParsedGraph] = []
    paths = graph_paths(rank)
    for number, path in enumerate(paths):
        progress(Progress(number, len(paths), f"reading {path.name}"))
        try:
            graphs.append(read_graph(path))
        except BadGraphError as problem:
            part = broken_graph(path, problem)
            notices.append(f"{part.where}: {problem.what}")
            parts.append(part)
    found = read_orders(rank, ORDER_FILE, read_order, notices, parts)
    orders: dict[int | str, tuple[str, ...]] = {number: order.names for number, _, order in found}
    refused = unreadable_directories(rank, seen)
    notices += [f"{part.where} cannot be read: {part.why}" for part in refused]
    if graphs and not any(orders.values()) and not refused and not parts:
        notices.append(f"{rank.name} has no execution order: nodes are in the order of the graph file")
    return GraphFiles(tuple(graphs), orders, tuple(notices), (*refused, *parts))


def read_orders(
    rank: Path,
    pattern: re.Pattern[str],
    read: Callable[[Path], Read],
    notices: list[str],
    parts: list[UnreadablePart],
) -> Iterator[tuple[int, str, Read]]:
    """Yields number, name and content of the files of an order; adds damage to the notices and parts."""
    for number, path in numbered_files(rank / ORDER_DIRECTORY, pattern):
        where = f"{rank.name}/{ORDER_DIRECTORY}/{path.name}"
        try:
            found = read(path)
        except OSError as error:
            notices.append(f"{where} cannot be read")
            parts.append(UnreadablePart(where, why_not(path, error, wanted="a file"), graph=True))
            continue
        if found.damage:
            parts.append(UnreadablePart(where, found.damage, graph=True))
        yield number, where, found


def unreadable_directories(rank: Path, seen: Collection[str] = ()) -> list[UnreadablePart]:
    """The directories of graphs and orders that a rank has, or had (``seen``), and that cannot be listed."""
    parts = []
    listed = {*seen, *names_of(rank)}
    for name in (DIRECTORY, ORDER_DIRECTORY):
        path = rank / name
        try:
            opener.listdir(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or name in listed:
                parts.append(UnreadablePart(f"{rank.name}/{name}", why_not(path, error), graph=True))
    return parts


def numbered_files(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    found = [(pattern.fullmatch(name), directory / name) for name in names_of(directory)]
    return sorted((int(match[1]), path) for match, path in found if match)


def names_of(directory: Path) -> list[str]:
    """Names in a directory, none without it; asked again if refused, lest a graph be taken for missing."""
    for _ in range(2):
        try:
            return opener.listdir(directory)
        except FileNotFoundError:  # noqa: PERF203 - each try by itself
            return []
        except OSError:
            continue
    return []


_NEVER = NOWHERE - 1
"""Row of a name that was not matched."""


class EarlierMatches:
    """The results of matches by prefix; a later result about a name replaces an earlier one."""

    def __init__(self) -> None:
        self._row = np.zeros(0, np.int32)
        self._doubtful = np.zeros(0, np.bool_)
        self._open: dict[int, dict[int, tuple[int, ...]]] = {}

    @property
    def open(self) -> bool:
        return any(self._open.values())

    def open_in(self, root: int) -> bool:
        return bool(self._open.get(root))

    def earlier(self, groups: FileGroups) -> GroupMatch | None:
        """Returns the decisions about some groups as input of the matcher; None without any."""
        self._grow(groups)
        known = np.flatnonzero(self._row[groups.prefixes] != _NEVER)
        if not len(known):
            return None
        numbers = groups.prefixes[known]
        left_open = self._open.get(groups.root, {})
        rows = ((at, left_open.get(number)) for at, number in enumerate(numbers.tolist()))
        return GroupMatch(
            keys=tuple([groups.keys[group] for group in known.tolist()]),
            node=self._row[numbers],
            uncertain=self._doubtful[numbers],
            open={at: possible for at, possible in rows if possible is not None} if left_open else {},
        )

    def take(self, groups: FileGroups, match: GroupMatch) -> None:
        self._grow(groups)
        self._row[groups.prefixes], self._doubtful[groups.prefixes] = match.node, match.uncertain
        numbers, left_open = groups.prefixes.tolist(), self._open.setdefault(groups.root, {})
        for number in numbers if left_open else ():
            left_open.pop(number, None)
        left_open.update((numbers[group], rows) for group, rows in match.open.items())

    def _grow(self, groups: FileGroups) -> None:
        length = int(groups.prefixes.max(initial=-1)) + 1
        self._row, self._doubtful = longer(self._row, length, _NEVER), longer(self._doubtful, length)


Rows = tuple[Int32, Mask]
"""Node row and doubt, both indexed by prefix number of the table of known names."""
_UNKNOWN = -1
_PROGRESS_EVERY = 64


class NodeMap:
    """Node table of a rank with the row of every name seen so far. Not thread-safe: its owner locks.

    A name keeps its row in every step of a run. Rows are only ever appended.
    """

    def __init__(self, files: GraphFiles, store: DiskCache | None = None, roots: frozenset[int] | None = None) -> None:
        """``roots``: numbers of the graphs that training starts; None when only the graphs say."""
        self._store, self._roots = store, roots
        # Most ranks of a large run have no graph of their own.
        self._graph = build_table(files.graphs, files.orders, roots) if files.graphs else _without_nodes()
        self._sequence: list[int] = []
        self.table: NodeTable = self._graph
        self.version = 0
        """Changes whenever rows or doubts may have changed."""
        self._row = np.zeros(0, np.int32)
        self._doubtful = np.zeros(0, np.bool_)
        self._decided = EarlierMatches()

    @property
    def has_graph(self) -> bool:
        return len(self._graph) > 0

    @property
    def open(self) -> bool:
        """Whether another step could decide matches that the steps so far left open."""
        return self._decided.open

    @property
    def uncertain(self) -> int:
        return int(self._doubtful.sum())

    def name_roots(self, roots: frozenset[int] | None) -> None:
        self._roots, same = roots, self.table is self._graph
        self._graph = with_roots(self._graph, roots)
        self.table = self._graph if same else with_roots(self.table, roots)

    def in_order(self, graphs: Iterable[int]) -> bool:
        return set(self._sequence).issuperset(graphs)

    def put_in_order(self, sequence: Sequence[int]) -> None:
        """Orders the operators of graphs as the graphs ran; ``sequence``: numbers of the graphs' directories."""
        if list(sequence) != self._sequence:
            self._sequence = list(sequence)
            self.version += 1
            if len(sequence) > 1:
                self.table = order_graphs(self.table, sequence)

    def settle(self, listing: MindSporeStepListing, progress: ProgressFn = no_progress) -> None:
        """Uses another step to decide open matches (none on CancelledError); only before rows are handed out."""
        wanted = [groups for groups in groups_of(listing).values() if self._decided.open_in(groups.root)]
        self._grow(len(listing.known_names.prefixes))
        matches = [self._look_up(groups, listing.files, progress) for groups in wanted]
        for groups, match in zip(wanted, matches, strict=True):
            self._take(groups, match, match.node >= 0)
        self._flag()

    def resolve(self, listing: MindSporeStepListing, progress: ProgressFn = no_progress) -> Rows:
        """Rows of a listing's names; unknown names are matched, or appended as nodes of their own.

        A CancelledError from ``progress`` leaves nothing decided.
        """
        prefixes = listing.prefixes
        self._grow(len(listing.known_names.prefixes))
        unknown = prefixes[self._row[prefixes] == _UNKNOWN]
        if len(unknown):
            self._enter(unknown, listing, progress)
        return self._row, self._doubtful

    def _grow(self, length: int) -> None:
        self._row, self._doubtful = longer(self._row, length, _UNKNOWN), longer(self._doubtful, length)

    def _enter(self, unknown: Int32, listing: MindSporeStepListing, progress: ProgressFn) -> None:
        first = not (self._row != _UNKNOWN).any()
        if self.has_graph:
            fresh = [(groups, np.isin(groups.prefixes, unknown)) for groups in groups_of(listing).values()]
            # All groups of the step take part: groups with known rows are the evidence for new ones.
            wanted = [(groups, new) for groups, new in fresh if new.any()]
            matches = [self._look_up(groups, listing.files, progress) for groups, _ in wanted]
            for (groups, new), match in zip(wanted, matches, strict=True):
                # A row that an earlier step assigned stays with its name.
                self._take(groups, match, new & (match.node >= 0) & ~np.isin(match.node, self._row))
        stamps = _first_timestamps(listing)
        outside = unknown[self._row[unknown] == _UNKNOWN]
        if len(outside):
            when = stamps[np.searchsorted(listing.prefixes, outside)]
            self._append(outside[np.argsort(when, kind="stable")].tolist(), listing)
        if first or len(outside):
            known = np.flatnonzero(stamps)
            self.table = _reordered(self.table, self._row[listing.prefixes[known]], stamps[known])
        if len(self._sequence) > 1:
            self.table = order_graphs(self.table, self._sequence)
        self._flag()

    def _take(self, groups: FileGroups, match: GroupMatch, mine: Mask) -> None:
        self._row[groups.prefixes[mine]] = match.node[mine]
        self._doubtful[groups.prefixes[mine]] = match.uncertain[mine]
        self._decided.take(groups, match)

    def _look_up(self, groups: FileGroups, files: Files, progress: ProgressFn) -> GroupMatch:
        earlier, load = self._decided.earlier(groups), _Loading(files, progress)
        if self._store is None:
            return self._match(groups, earlier, ContentReading(load))
        remembered = MatchCache(self._store, self._graph)
        key = remembered.key(groups, earlier)
        match = remembered.recall(key, groups, files)
        if match is not None:
            return match
        known = ContentDigests(self._store, files)
        try:
            match = self._match(groups, earlier, ContentReading(load, known))
        finally:
            known.keep()
        remembered.keep(key, match, known)
        return match

    def _match(self, groups: FileGroups, earlier: GroupMatch | None, reading: ContentReading) -> GroupMatch:
        return match_names(self._graph, groups.keys, groups.file_groups, reading, root=groups.root, earlier=earlier)

    def _append(self, prefixes: Sequence[int], listing: MindSporeStepListing) -> None:
        outputs = _output_slots(listing)[np.searchsorted(listing.prefixes, prefixes)].tolist()
        known_names = listing.known_names
        texts = [known_names.prefixes[each] for each in prefixes]
        places = known_names.places_of()[np.asarray(prefixes, np.int64)].tolist()
        named = texts, places, known_names.places
        first = not len(self.table) and not self.table.graphs
        latest = next(iter(_latest), None) if first else None
        if latest is not None and (latest.named, latest.outputs) == (named, outputs):
            longer, rows = replace(latest.table, lineage=self.table.lineage), latest.rows
        else:
            names = directory_names(self.table.graphs)
            nodes = (
                _file_node(prefix, names.get(prefix[0], f"kernel_graph_{prefix[0]}"), count)
                for prefix, count in zip(map(known_names.prefix, prefixes), outputs, strict=True)
            )
            longer, rows = append_nodes(self.table, _unique(nodes))
            if first:
                _latest[:] = [_Appended((texts, places, list(known_names.places)), outputs, longer, rows)]
        self._row[prefixes] = rows
        self.table = with_roots(longer, self._roots)

    def _flag(self) -> None:
        """Marks the rows whose files are in doubt, and frees caches that only matching needs."""
        self.version += 1
        if not self.open:
            same = self.table is self._graph
            self._graph = replace(self._graph)  # a copy without the cached properties
            self.table = self._graph if same else self.table
        flags = self.table.flags & np.uint8(255 - int(NodeFlag.UNCERTAIN))
        flags[self._row[self._doubtful]] |= int(NodeFlag.UNCERTAIN)
        if not np.array_equal(flags, self.table.flags):
            self.table = replace(self.table, flags=flags)


def _without_nodes() -> NodeTable:
    return replace(_NO_NODES, lineage=object())


_NO_NODES: Final = build_table(())


class _Appended(NamedTuple):
    """Names without any graph (texts, numbers of places, places), and the table made of them."""

    named: tuple[list[bytes], list[int], list[tuple[int, bool]]]
    outputs: list[int]
    table: NodeTable
    rows: Int64


_latest: list[_Appended] = []
"""Of the rank that was read last: ranks of a run have the same names, so that their table is made once."""


_orders: Final = LastResult[Int32]()


def _reordered(table: NodeTable, rows: Int32, stamps: Int64) -> NodeTable:
    """``reorder_rows``, cached: it depends on the order of the stamps only, and ranks of a run agree in that."""
    by = np.argsort(stamps, kind="stable")
    later = np.append(False, np.diff(stamps[by]) > 0)
    order = _orders.of(
        *(table.order, table.flags, table.graph, table.type_id, table.types, table.graphs, rows, by, later),
        make=lambda: reorder_rows(table, rows, stamps).order,
    )
    return table if order is table.order else replace(table, order=order)


class _Loading:
    def __init__(self, files: Files, progress: ProgressFn) -> None:
        self._files, self._progress, self._done = files, progress, 0

    def __call__(self, index: int) -> Array:
        if self._done % _PROGRESS_EVERY == 0:
            self._progress(Progress(self._done, 0, "reading tensors to find their nodes"))
        self._done += 1
        return open_array(self._files.spec(index))


def _first_timestamps(listing: MindSporeStepListing) -> Int64:
    """Timestamp of the first file or statistic row of each of ``listing.prefixes``; 0 without."""
    never = np.iinfo(np.int64).max
    first = np.full(len(listing.prefixes), never)
    np.minimum.at(first, np.searchsorted(listing.prefixes, listing.files.prefix), listing.files.timestamp)
    for entry in listing.statistics:
        np.minimum.at(first, np.searchsorted(listing.prefixes, entry.prefix), entry.rows.timestamp)
    stamps: Int64 = np.where(first == never, 0, first)
    return stamps


def _output_slots(listing: MindSporeStepListing) -> Int64:
    """Number of output slots of each of ``listing.prefixes``."""
    slots = np.zeros(len(listing.prefixes), np.int64)
    columns = [(listing.files.prefix, listing.side, listing.slot)]
    columns += [(entry.prefix, entry.rows.side, entry.rows.slot) for entry in listing.statistics]
    for prefix, side, slot in columns:
        outputs = side == 1
        at = np.searchsorted(listing.prefixes, prefix[outputs])
        np.maximum.at(slots, at, slot[outputs].astype(np.int64) + 1)
    return slots


def _file_node(prefix: Prefix, graph: str, outputs: int) -> FileNode:
    """A node that no graph knows. ``--`` in its name stands for ``/``.

    Names without a scope, and names of 2.7 to 2.10 whose ``_`` may or may not separate scopes, are shown below their
    operator type.
    """
    root, constant, name = prefix
    op_type, op_name = split_prefix(name)
    if constant:
        return FileNode(graph, root, op_name, f"{CONSTANT}/{op_name}", CONSTANT, outputs)
    if op_type != PARAMETER and "--" in op_name:
        full = op_name.replace("--", "/")
        return FileNode(graph, root, full, full, op_type, outputs)
    return FileNode(graph, root, op_name, f"{op_type}/{op_name}", op_type, outputs)


def _unique(nodes: Iterable[FileNode]) -> Iterator[FileNode]:
    """Gives nodes of one name and different types different names."""
    seen: dict[str, dict[str, str]] = defaultdict(dict)
    for node in nodes:
        first = seen[node.graph].setdefault(node.name, node.op_type)
        yield node if first == node.op_type else node._replace(name=f"{node.op_type}.{node.name}")
