"""From file names to node rows: the node table of one rank and which row every name on disk belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.npy import open_array
from tui_debugger.graph.build import FileNode, build_table, extend_table, reorder
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeFlag, NodeTable
from tui_debugger.model import ReadSpec
from tui_debugger.sources.columns import latest, tensor_keys
from tui_debugger.sources.mindspore.graphs import GraphFiles
from tui_debugger.sources.mindspore.listing import Listing, Prefix
from tui_debugger.sources.mindspore.match import FileGroup, Match, match_files
from tui_debugger.sources.mindspore.names import logical_dtype, split_prefix

Rows = tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]
"""Node row and doubt by prefix of a listing."""


class NodeMap:
    """Node table of a rank with the row of every name seen so far. Not thread-safe: its owner locks.

    A name keeps its row in every step of a run. Rows are only ever appended.
    """

    def __init__(self, files: GraphFiles) -> None:
        """Builds the table of the graph files; without any, it starts empty."""
        self._graph = build_table(files.graphs, files.orders)
        self.table: NodeTable = self._graph
        self._row: dict[Prefix, int] = {}
        self._doubtful: set[Prefix] = set()
        self._match: dict[int, Match] = {}
        self.open = False
        """Whether another step could decide what the steps matched so far left open."""

    @property
    def has_graph(self) -> bool:
        """Whether any node comes from a graph."""
        return len(self._graph) > 0

    @property
    def uncertain(self) -> int:
        """Number of names whose node stayed open."""
        return len(self._doubtful)

    def settle(self, listing: Listing) -> None:
        """Uses another step to decide what stayed open; only before rows are handed out."""
        for root, groups in _groups(listing).items():
            if self._match.get(root) is not None and self._match[root].open:
                self._matched(root, groups, listing)
        self._flag()

    def resolve(self, listing: Listing) -> Rows:
        """Rows of a listing's names; unknown names are matched, or appended as nodes of their own."""
        unknown = [prefix for prefix in listing.prefixes if prefix not in self._row]
        if unknown:
            self._enter(unknown, listing)
        rows = np.fromiter((self._row[prefix] for prefix in listing.prefixes), np.int32, len(listing.prefixes))
        doubts = (prefix in self._doubtful for prefix in listing.prefixes)
        return rows, np.fromiter(doubts, np.bool_, len(listing.prefixes))

    def _enter(self, unknown: Sequence[Prefix], listing: Listing) -> None:
        """Finds rows for new names."""
        fresh = set(unknown)
        first = not self._row
        if self.has_graph:
            groups = _groups(listing)
            for root in dict.fromkeys(root for root, _, _ in unknown):
                # All groups of the step take part: the known ones are the evidence for the new ones.
                self._matched(root, groups[root], listing, only=fresh)
        stamps = _first_timestamps(listing)
        outside = sorted((prefix for prefix in unknown if prefix not in self._row), key=stamps.__getitem__)
        if outside:
            self._append(outside, listing)
        if first or outside:
            self.table = reorder(self.table, {self._row[prefix]: stamp for prefix, stamp in stamps.items() if stamp})
        self._flag()

    def _matched(
        self, root: int, groups: Mapping[Prefix, FileGroup], listing: Listing, only: set[Prefix] | None = None
    ) -> None:
        def load(index: int) -> npt.NDArray[Any]:
            token = listing.dtypes[int(listing.dtype[index])]
            return open_array(ReadSpec(listing.path(index), dtype=logical_dtype(token, unknown="")))

        # A row that an earlier step gave away stays with the name that has it.
        taken = set(self._row.values()) if only is not None else set()
        match = match_files(self._graph, list(groups.values()), load, root=root, earlier=self._match.get(root))
        for prefix, row, doubt in zip(groups, match.node.tolist(), match.uncertain.tolist(), strict=True):
            if row < 0 or row in taken or (only is not None and prefix not in only):
                continue
            self._row[prefix] = row
            (self._doubtful.add if doubt else self._doubtful.discard)(prefix)
        self._match[root] = _united(self._match.get(root), match)
        self.open = any(other.open for other in self._match.values())

    def _append(self, prefixes: Sequence[Prefix], listing: Listing) -> None:
        outputs = _output_slots(listing)
        numbers = {prefix: number for number, prefix in enumerate(listing.prefixes)}
        names = {info.root_id: info.name for info in reversed(self.table.graphs) if info.is_root}
        extra = []
        for prefix in prefixes:
            root = prefix[0]
            graph = names.get(root, f"kernel_graph_{root}")
            extra.append(_file_node(prefix, graph, int(outputs[numbers[prefix]])))
        self.table = extend_table(self.table, _unique(extra))
        for prefix, node in zip(prefixes, extra, strict=True):
            self._row[prefix] = self.table.find(node.name, node.graph)

    def _flag(self) -> None:
        """Marks the rows whose files are in doubt."""
        flags = self.table.flags & np.uint8(255 - int(NodeFlag.UNCERTAIN))
        flags[[self._row[prefix] for prefix in self._doubtful]] |= int(NodeFlag.UNCERTAIN)
        if not np.array_equal(flags, self.table.flags):
            self.table = replace(self.table, flags=flags)


def _groups(listing: Listing) -> dict[int, dict[Prefix, FileGroup]]:
    """The files of a listing by root graph and name; of duplicates the latest."""
    keys = tensor_keys(listing.prefix, listing.side, listing.slot)
    kept = latest(keys, listing.timestamp)
    numbers = listing.prefix[kept]
    starts = np.searchsorted(numbers, np.arange(len(listing.prefixes) + 1))
    sides, slots, stamps = listing.side[kept].tolist(), listing.slot[kept].tolist(), listing.timestamp[kept].tolist()
    files = kept.tolist()
    groups: dict[int, dict[Prefix, FileGroup]] = {}
    for number, prefix in enumerate(listing.prefixes):
        part = slice(int(starts[number]), int(starts[number + 1]))
        op_type, op_name = split_prefix(prefix[2])
        group = FileGroup(
            op_type,
            op_name,
            tuple(zip(sides[part], slots[part], files[part], strict=True)),
            min(stamps[part], default=0),
        )
        groups.setdefault(prefix[0], {})[prefix] = group
    return groups


def _first_timestamps(listing: Listing) -> dict[Prefix, int]:
    """Timestamp of the first file or statistic row of every name."""
    never = np.iinfo(np.int64).max
    first = np.full(len(listing.prefixes), never)
    np.minimum.at(first, listing.prefix, listing.timestamp)
    for entry in listing.statistics:
        np.minimum.at(first, entry.prefix, entry.rows.timestamp)
    return dict(zip(listing.prefixes, np.where(first == never, 0, first).tolist(), strict=True))


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


def _output_slots(listing: Listing) -> npt.NDArray[np.int64]:
    """Number of output slots seen by prefix, files and statistic rows together."""
    slots = np.zeros(len(listing.prefixes), np.int64)
    outputs = listing.side == 1
    np.maximum.at(slots, listing.prefix[outputs], listing.slot[outputs].astype(np.int64) + 1)
    for entry in listing.statistics:
        outputs = entry.rows.side == 1
        np.maximum.at(slots, entry.prefix[outputs], entry.rows.slot[outputs].astype(np.int64) + 1)
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
