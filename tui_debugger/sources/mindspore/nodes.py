"""From file names to node rows: the node table of one rank and which row every name on disk belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.npy import open_array
from tui_debugger.cache.store import Store
from tui_debugger.graph.build import FileNode, build_table, extend_table, reorder
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable
from tui_debugger.model import ReadSpec
from tui_debugger.sources.columns import latest, tensor_keys
from tui_debugger.sources.mindspore.contents import Contents
from tui_debugger.sources.mindspore.graphs import GraphFiles
from tui_debugger.sources.mindspore.lexicon import Int32, Int64, Prefix
from tui_debugger.sources.mindspore.listing import Listing
from tui_debugger.sources.mindspore.match import FileGroup, Match, match_files
from tui_debugger.sources.mindspore.names import logical_dtype, split_prefix

Rows = tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]
"""Node row and doubt by prefix of the lexicon."""
_UNKNOWN = -1


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
        groups_of = _groups(listing)
        self._grow(len(listing.lexicon.prefixes))
        for root, groups in groups_of.items():
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
        fresh = set(unknown.tolist())
        first = not (self._row != _UNKNOWN).any()
        if self.has_graph:
            groups = _groups(listing)
            lexicon = listing.lexicon
            for root in dict.fromkeys(lexicon.prefix(number)[0] for number in unknown.tolist()):
                # All groups of the step take part: the known ones are the evidence for the new ones.
                self._matched(root, groups[root], listing, only=fresh)
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

    def _matched(
        self, root: int, groups: Mapping[int, FileGroup], listing: Listing, only: set[int] | None = None
    ) -> None:
        files = listing.files

        def load(index: int) -> npt.NDArray[Any]:
            token = files.lexicon.dtype(int(files.ending[index]))
            return open_array(ReadSpec(files.path(index), dtype=logical_dtype(token, unknown="")))

        # A row that an earlier step gave away stays with the name that has it.
        taken = set(self._row.tolist()) if only is not None else set()
        known = Contents(self._store, files) if self._store is not None else None
        earlier = self._match.get(root)
        match = match_files(self._graph, list(groups.values()), load, root=root, earlier=earlier, known=known)
        if known is not None:
            known.keep()
        for prefix, row, doubt in zip(groups, match.node.tolist(), match.uncertain.tolist(), strict=True):
            if row < 0 or row in taken or (only is not None and prefix not in only):
                continue
            self._row[prefix] = row
            self._doubtful[prefix] = doubt
        self._match[root] = _united(earlier, match)
        self.open = any(other.open for other in self._match.values())

    def _append(self, prefixes: Sequence[int], listing: Listing) -> None:
        outputs = _output_slots(listing)[np.searchsorted(listing.prefixes, prefixes)].tolist()
        names = {info.root_id: info.name for info in reversed(self.table.graphs) if info.is_root}
        extra = []
        for number, count in zip(prefixes, outputs, strict=True):
            prefix = listing.lexicon.prefix(number)
            extra.append(_file_node(prefix, names.get(prefix[0], f"kernel_graph_{prefix[0]}"), count))
        self.table = extend_table(self.table, _unique(extra))
        for number, node in zip(prefixes, extra, strict=True):
            self._row[number] = self.table.find(node.name, node.graph)

    def _flag(self) -> None:
        """Marks the rows whose files are in doubt."""
        self.version += 1
        flags = self.table.flags & np.uint8(255 - int(NodeFlag.UNCERTAIN))
        flags[self._row[self._doubtful]] |= int(NodeFlag.UNCERTAIN)
        if not np.array_equal(flags, self.table.flags):
            self.table = replace(self.table, flags=flags)


def _groups(listing: Listing) -> dict[int, dict[int, FileGroup]]:
    """The files of a listing by root graph and prefix; of duplicates the latest."""
    files, lexicon = listing.files, listing.lexicon
    keys = tensor_keys(files.prefix, listing.side, listing.slot)
    kept = latest(keys, files.timestamp)
    starts = np.searchsorted(files.prefix[kept], np.append(listing.prefixes, len(lexicon.prefixes)))
    sides, slots = listing.side[kept].tolist(), listing.slot[kept].tolist()
    stamps, numbers = files.timestamp[kept].tolist(), kept.tolist()
    groups: dict[int, dict[int, FileGroup]] = {}
    for at, prefix in enumerate(listing.prefixes.tolist()):
        part = slice(int(starts[at]), int(starts[at + 1]))
        root, _, text = lexicon.prefix(prefix)
        op_type, op_name = split_prefix(text)
        group = FileGroup(
            op_type,
            op_name,
            tuple(zip(sides[part], slots[part], numbers[part], strict=True)),
            min(stamps[part], default=0),
        )
        groups.setdefault(root, {})[prefix] = group
    return groups


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


def _unique(nodes: list[FileNode]) -> list[FileNode]:
    """Gives nodes of one name and different types different ids, in place; returns the list."""
    seen: dict[tuple[str, str], str] = {}
    for number, node in enumerate(nodes):
        if seen.setdefault((node.graph, node.name), node.op_type) != node.op_type:
            nodes[number] = replace(node, name=f"{node.op_type}.{node.name}")
    return nodes
