"""From file names to node rows: the node table of one rank and which row every name on disk belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.npy import open_array
from tui_debugger.cache.store import Store
from tui_debugger.graph.build import build_table
from tui_debugger.graph.extend import FileNode, append_nodes
from tui_debugger.graph.order import reorder
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable
from tui_debugger.model import ReadSpec
from tui_debugger.sources.mindspore.contents import Contents
from tui_debugger.sources.mindspore.files import Files
from tui_debugger.sources.mindspore.graphs import GraphFiles
from tui_debugger.sources.mindspore.groups import Groups, groups_of
from tui_debugger.sources.mindspore.lexicon import Int32, Int64, Prefix
from tui_debugger.sources.mindspore.listing import Listing
from tui_debugger.sources.mindspore.match import Match, match_files
from tui_debugger.sources.mindspore.matched import RememberedMatches
from tui_debugger.sources.mindspore.names import logical_dtype, split_prefix

Rows = tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]
"""Node row and doubt by prefix of the lexicon."""
_UNKNOWN = -1
Mask = npt.NDArray[np.bool_]


class NodeMap:
    """Node table of a rank with the row of every name seen so far. Not thread-safe: its owner locks.

    A name keeps its row in every step of a run. Rows are only ever appended.

    Attributes:
        table: the nodes.
        open: whether another step could decide what the steps matched so far left open.
        version: another number when rows or doubts may have changed.
    """

    def __init__(self, files: GraphFiles, store: Store | None = None) -> None:
        """Builds the table of the graph files; without any, it starts empty. ``store`` knows contents of files."""
        self._store = store
        self._graph = build_table(files.graphs, files.orders)
        self.table: NodeTable = self._graph
        self.open = False
        self.version = 0
        self._row = np.zeros(0, np.int32)
        self._doubtful = np.zeros(0, np.bool_)
        self._match: dict[int, Match] = {}

    @property
    def has_graph(self) -> bool:
        """Whether any node comes from a graph."""
        return len(self._graph) > 0

    @property
    def uncertain(self) -> int:
        """Number of names whose node stayed open."""
        return int(self._doubtful.sum())

    def settle(self, listing: Listing) -> None:
        """Uses another step to decide what stayed open; only before rows are handed out."""
        by_root = groups_of(listing)
        self._grow(len(listing.lexicon.prefixes))
        for root, groups in by_root.items():
            if self._match.get(root) is not None and self._match[root].open:
                self._matched(root, groups, listing)
        self._flag()

    def resolve(self, listing: Listing) -> Rows:
        """Rows of a listing's names; unknown names are matched, or appended as nodes of their own."""
        prefixes = listing.prefixes
        self._grow(len(listing.lexicon.prefixes))
        unknown = prefixes[self._row[prefixes] == _UNKNOWN]
        if len(unknown):
            self._enter(unknown, listing)
        return self._row, self._doubtful

    def _grow(self, length: int) -> None:
        more = length - len(self._row)
        if more > 0:
            self._row = np.append(self._row, np.full(more, _UNKNOWN, np.int32))
            self._doubtful = np.append(self._doubtful, np.zeros(more, np.bool_))

    def _enter(self, unknown: Int32, listing: Listing) -> None:
        """Finds rows for new names."""
        first = not (self._row != _UNKNOWN).any()
        if self.has_graph:
            for root, groups in groups_of(listing).items():
                fresh = np.isin(groups.prefixes, unknown)
                if fresh.any():  # all groups of the step take part: the known ones are the evidence for the new ones
                    self._matched(root, groups, listing, only=fresh)
        stamps = _first_timestamps(listing)
        outside = unknown[self._row[unknown] == _UNKNOWN]
        if len(outside):
            when = stamps[np.searchsorted(listing.prefixes, outside)]
            self._append(outside[np.argsort(when, kind="stable")].tolist(), listing)
        if first or len(outside):
            known = np.flatnonzero(stamps)
            rows = self._row[listing.prefixes[known]]
            self.table = reorder(self.table, dict(zip(rows.tolist(), stamps[known].tolist(), strict=True)))
        self._flag()

    def _matched(self, root: int, groups: Groups, listing: Listing, only: Mask | None = None) -> None:
        earlier = self._match.get(root)
        match = self._look_up(root, groups, listing.files, earlier)
        mine = match.node >= 0
        if only is not None:
            # A row that an earlier step gave away stays with the name that has it.
            mine &= only & ~np.isin(match.node, self._row)
        self._row[groups.prefixes[mine]] = match.node[mine]
        self._doubtful[groups.prefixes[mine]] = match.uncertain[mine]
        self._match[root] = _united(earlier, match)
        self.open = any(other.open for other in self._match.values())

    def _look_up(self, root: int, groups: Groups, files: Files, earlier: Match | None) -> Match:
        """The match, from the store when nothing that it follows from has changed."""

        def load(index: int) -> npt.NDArray[Any]:
            token = files.lexicon.dtype(int(files.ending[index]))
            return open_array(ReadSpec(files.path(index), dtype=logical_dtype(token, unknown="")))

        if self._store is None:
            return match_files(self._graph, groups.file_groups(), load, root=root, earlier=earlier)
        remembered = RememberedMatches(self._store, self._graph)
        key = remembered.key(root, groups, earlier)
        match = remembered.recall(key, groups, files)
        if match is None:
            known = Contents(self._store, files)
            match = match_files(self._graph, groups.file_groups(), load, root=root, earlier=earlier, known=known)
            known.keep()
            remembered.keep(key, match, known)
        return match

    def _append(self, prefixes: Sequence[int], listing: Listing) -> None:
        outputs = _output_slots(listing)[np.searchsorted(listing.prefixes, prefixes)].tolist()
        names = {info.root_id: info.name for info in reversed(self.table.graphs) if info.is_root}
        lexicon = listing.lexicon
        nodes = (
            _file_node(prefix, names.get(prefix[0], f"kernel_graph_{prefix[0]}"), count)
            for prefix, count in zip(map(lexicon.prefix, prefixes), outputs, strict=True)
        )
        self.table, self._row[prefixes] = append_nodes(self.table, _unique(nodes))

    def _flag(self) -> None:
        """Marks the rows whose files are in doubt."""
        self.version += 1
        flags = self.table.flags & np.uint8(255 - int(NodeFlag.UNCERTAIN))
        flags[self._row[self._doubtful]] |= int(NodeFlag.UNCERTAIN)
        if not np.array_equal(flags, self.table.flags):
            self.table = replace(self.table, flags=flags)


def _first_timestamps(listing: Listing) -> Int64:
    """Timestamp of the first file or statistic row of every name, in the order of ``listing.prefixes``."""
    never = np.iinfo(np.int64).max
    first = np.full(len(listing.prefixes), never)
    np.minimum.at(first, np.searchsorted(listing.prefixes, listing.files.prefix), listing.files.timestamp)
    for entry in listing.statistics:
        np.minimum.at(first, np.searchsorted(listing.prefixes, entry.prefix), entry.rows.timestamp)
    stamps: Int64 = np.where(first == never, 0, first)
    return stamps


def _united(earlier: Match | None, later: Match) -> Match:
    """Both, the later one where they speak of the same group."""
    if earlier is None:
        return later
    place = {key: number for number, key in enumerate(later.keys)}
    others = [number for number, key in enumerate(earlier.keys) if key not in place]
    start = len(later.keys)
    moved = {number: start + at for at, number in enumerate(others)}
    return Match(
        keys=(*later.keys, *(earlier.keys[number] for number in others)),
        node=np.concatenate([later.node, earlier.node[others]]),
        uncertain=np.concatenate([later.uncertain, earlier.uncertain[others]]),
        open={**later.open, **{moved[n]: rows for n, rows in earlier.open.items() if n in moved}},
    )


def _output_slots(listing: Listing) -> Int64:
    """Number of output slots seen, files and statistic rows together, in the order of ``listing.prefixes``."""
    slots = np.zeros(len(listing.prefixes), np.int64)
    columns = [(listing.files.prefix, listing.side, listing.slot)]
    columns += [(entry.prefix, entry.rows.side, entry.rows.slot) for entry in listing.statistics]
    for prefix, side, slot in columns:
        outputs = side == 1
        at = np.searchsorted(listing.prefixes, prefix[outputs])
        np.maximum.at(slots, at, slot[outputs].astype(np.int64) + 1)
    return slots


def _file_node(prefix: Prefix, graph: str, outputs: int) -> FileNode:
    """A node that no graph knows, named and placed as well as its file name allows.

    ``--`` names give the full name back. Names without a scope, and names of 2.7 to 2.10 whose ``_`` cannot be
    told from a scope's, are shown below their operator type.
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
    """Gives nodes of one name and different types different ids."""
    seen: dict[tuple[str, str], str] = {}
    for node in nodes:
        first = seen.setdefault((node.graph, node.name), node.op_type)
        yield node if first == node.op_type else node._replace(name=f"{node.op_type}.{node.name}")
