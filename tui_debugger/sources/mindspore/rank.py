"""One rank of a dump: what was read of it so far, and what is new on disk."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tui_debugger.graph.table import NodeTable
from tui_debugger.model import GraphRun, ProgressFn, no_progress
from tui_debugger.sources.mindspore.graphs import GraphFiles, Signature, graph_paths, graph_signature, read_graphs
from tui_debugger.sources.mindspore.history import (
    check_history,
    dumped_runs,
    graph_runs,
    history_signature,
    read_history,
)
from tui_debugger.sources.mindspore.layout import NEVER, GraphDirectory, Stamp, read_layout, stamp
from tui_debugger.sources.mindspore.listing import MAPPING, Listing, Prefix, list_directories
from tui_debugger.sources.mindspore.names import generation, split_prefix
from tui_debugger.sources.mindspore.nodes import NodeMap
from tui_debugger.sources.mindspore.statcsv import FILE as STATISTICS
from tui_debugger.sources.mindspore.tensors import StepTable, step_table

_YOUNG_NS = 5 * 10**9
"""A directory changed more recently than this may change again within one tick of its clock."""
_MATCH_STEPS = 4
"""So many steps may be read to decide which files belong to which node."""
_WATCHED_STEPS = 4
_MOST_ROWS = 4_000_000
"""So many rows of tensor tables are kept per rank: about half a gigabyte."""

Place = tuple[GraphDirectory, Path, bool]
"""(graph directory, directory to list, whether it holds constants)."""


@dataclass(frozen=True, slots=True)
class RankChanges:
    """What is new in one rank."""

    new_steps: tuple[int, ...] = ()
    grown_steps: tuple[int, ...] = ()
    new_nodes: bool = False
    rebuilt: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    """How the directories of a step looked when they were listed.

    Attributes:
        stamps: of the directories and of the files in them that are appended to.
        entries: how many entries they had.
        settled: no change can have escaped the stamps.
    """

    stamps: tuple[Stamp, ...]
    entries: int
    settled: bool


class RankRun:
    """Everything about one rank, read on demand and kept. Safe to call from any thread.

    Long work (node table, listings) holds one lock of the rank; what is quick never waits for it.
    """

    def __init__(self, number: int, path: Path, lender: Callable[[RankRun], Path | None], right_mean: bool) -> None:
        """Reads the names of nets, graphs and steps, and the history files.

        Args:
            number: rank number.
            path: its directory.
            lender: finds the directory of another rank whose graph this one may use, or None.
            right_mean: recorded means can be believed (MindSpore 2.4 and newer).
        """
        self.number = number
        self.path = path
        self._lender = lender
        self._right_mean = right_mean
        self._work = threading.RLock()
        self._layout = read_layout(path)
        self._history_signature = history_signature(path)
        self._history = read_history(path)
        self._ran: dict[int, list[int]] = {}
        self._forget_nodes()
        self._complaints: dict[tuple[bytes, str], int] = {}
        self.generation = ""

    def _forget_nodes(self) -> None:
        self._nodes: NodeMap | None = None
        self._graph_source = self.path
        self._signature: Signature = ()
        self._graph_notices: tuple[str, ...] = ()
        self._tables: dict[int, StepTable] = {}
        self._states: dict[int, _State] = {}
        self._listings: dict[int, Listing] = {}
        self._prefixes: dict[Prefix, Prefix] = {}
        self._provisional = False
        self._half_matched = False
        self._grew = False

    @property
    def nets(self) -> tuple[str, ...]:
        """Net names that have data."""
        return tuple(dict.fromkeys(graph.net for graph in self._layout.graphs))

    def notices(self) -> list[str]:
        """What is missing, broken or ignored, one sentence each."""
        notices = [*self._history.notices, *check_history(self._history, self._layout), *self._graph_notices]
        totals: dict[str, int] = {}
        for (_, text), count in list(self._complaints.items()):
            totals[text] = totals.get(text, 0) + count
        notices += [f"{self.path.name}: {count} {text} ignored" for text, count in totals.items()]
        if self._nodes is not None and self._nodes.uncertain:
            notices.append(
                f"{self.path.name}: the files of {self._nodes.uncertain} nodes may belong to another node of their kind"
            )
        return notices

    def steps(self) -> Sequence[int]:
        """Dumped steps, ascending."""
        return self._layout.steps

    def history(self) -> Sequence[GraphRun]:
        """The run history; graph names are MindSpore's usual ones until the node table is read."""
        graphs = self._nodes.table.graphs if self._nodes is not None else ()
        names = {info.root_id: info.name for info in reversed(graphs) if info.is_root}
        return graph_runs(self._history, self._layout, names)

    def previous_step(self, root_graph: int, step: int) -> int | None:
        """The greatest dumped step below ``step`` in which a root graph ran."""
        if root_graph not in self._ran:
            self._ran = {**self._ran, root_graph: dumped_runs(self._history, self._layout, root_graph)}
        ran = self._ran[root_graph]
        at = bisect_left(ran, step)
        return ran[at - 1] if at else None

    def nodes(self, progress: ProgressFn = no_progress) -> NodeTable:
        """The node table; the first call reads the graph and matches the files of some steps."""
        return self._map(progress).table

    def tensors(self, step: int, progress: ProgressFn = no_progress) -> StepTable:
        """The tensor table of a step; the first call lists its directories. May make the node table longer."""
        table = self._tables.get(step)
        if table is not None:
            return table
        with self._work:
            nodes = self._map(progress)
            if step not in self._tables:
                listing = self._kept_listing(step, progress)
                del self._listings[step]
                length = len(nodes.table)
                rows, doubts = nodes.resolve(listing)
                self._grew = self._grew or len(nodes.table) != length
                table = step_table(listing, rows, doubts, nodes.table, right_mean=self._right_mean)
                if not self._places(step):
                    return table  # not dumped (yet): not worth keeping
                self._keep(step, table)
            return self._tables[step]

    def graph_files(self) -> Sequence[Path]:
        """The graph files that the nodes come from: this rank's own, or those of the rank that lends them."""
        return graph_paths(self._find_graphs()[0])

    def statistic_files(self, step: int) -> Sequence[Path]:
        """The statistic files of a step."""
        paths = (graph.steps[step] / STATISTICS for graph in self._layout.graphs_at(step))
        return [path for path in paths if stamp(path) != NEVER]

    def refresh(self) -> RankChanges:
        """Looks at directory times and names; reads nothing but history files that changed."""
        with self._work:
            before = set(self._layout.steps)
            self._layout = read_layout(self.path)
            after = set(self._layout.steps)
            signature = history_signature(self.path)
            if signature != self._history_signature:
                self._history_signature, self._history = signature, read_history(self.path)
            self._ran = {}
            grown = {step for step in self._states if self._changed(step)}
            new_nodes, self._grew = self._grew, False
            rebuilt = self._nodes is not None and self._outdated_nodes(grown, bool(after - before))
            if rebuilt:
                grown = set(self._states)
                self._forget_nodes()
            for step in grown:
                for cache in (self._tables, self._listings, self._states):
                    cache.pop(step, None)
            fresh = tuple(sorted(after - before))
            return RankChanges(fresh, tuple(sorted(grown & (before | after))), new_nodes or rebuilt, rebuilt)

    def watch_paths(self) -> list[Path]:
        """Directories in which something new shows: the levels above the steps, the newest and the listed steps."""
        layout = self._layout
        paths = [self.path, self.path / "graphs", self.path / "execution_order"]
        for graph in layout.graphs:
            paths += [graph.path.parent, graph.path]
            newest = max(graph.steps, default=None)
            listed = [step for step in sorted(self._states)[-_WATCHED_STEPS:] if step in graph.steps]
            paths += [graph.steps[step] for step in dict.fromkeys((*listed, newest)) if step is not None]
        return list(dict.fromkeys(paths))

    def _keep(self, step: int, table: StepTable) -> None:
        """Keeps a table; the oldest ones give way when all together would fill the memory."""
        rows = len(table) + sum(map(len, self._tables.values()))
        for old in list(self._tables):
            if rows <= _MOST_ROWS:
                break
            rows -= len(self._tables.pop(old))
        self._tables[step] = table

    def _map(self, progress: ProgressFn) -> NodeMap:
        nodes = self._nodes
        if nodes is not None:
            return nodes
        with self._work:
            if self._nodes is None:
                self._nodes = self._read_nodes(progress)
            return self._nodes

    def _read_nodes(self, progress: ProgressFn) -> NodeMap:
        """Reads the graph, then finds the nodes of the files of each root graph's first step."""
        files = self._read_graphs(progress)
        nodes = NodeMap(files)
        steps = self._layout.steps
        first = sorted({min(graph.steps) for graph in self._layout.graphs if graph.steps})
        self._provisional = nodes.has_graph and bool(first) and first[-1] == steps[-1]
        for step in first:
            nodes.resolve(self._kept_listing(step, progress))
        for step in [step for step in steps if step not in first][: _MATCH_STEPS - 1]:
            if not nodes.open:
                break
            nodes.settle(self._kept_listing(step, progress))
        return nodes

    def _read_graphs(self, progress: ProgressFn) -> GraphFiles:
        self._graph_source, self._signature = self._find_graphs()
        files = read_graphs(self._graph_source, progress)
        notices = list(files.notices)
        if self._graph_source != self.path:
            notices.append(f"{self.path.name} has no graph: that of {self._graph_source.name} is used")
        elif not files.graphs:
            notices.append(f"{self.path.name} has no graph: nodes come from file names")
        self._graph_notices = tuple(notices)
        return files

    def _find_graphs(self) -> tuple[Path, Signature]:
        source = self.path
        if not graph_paths(source):
            source = self._lender(self) or source
        return source, graph_signature(source)

    def _outdated_nodes(self, grown: set[int], new_steps: bool) -> bool:
        """Whether a graph arrived, or nodes were matched with a step that was only half there."""
        if self._find_graphs() != (self._graph_source, self._signature):
            return True
        if not self._provisional:
            return False
        self._half_matched = self._half_matched or bool(grown)
        return new_steps and self._half_matched

    def _kept_listing(self, step: int, progress: ProgressFn) -> Listing:
        """The listing of a step, kept until its tensors are asked for."""
        if step not in self._listings:
            self._listings[step] = self._list(step, progress)
        return self._listings[step]

    def _places(self, step: int) -> list[Place]:
        graphs = self._layout.graphs_at(step)
        steps = [(graph, graph.steps[step], False) for graph in graphs]
        return steps + [(graph, graph.constants, True) for graph in graphs if graph.constants is not None]

    def _list(self, step: int, progress: ProgressFn) -> Listing:
        places = self._places(step)
        stamps = _stamps(places)
        expected = max((state.entries for state in self._states.values()), default=0)
        listing = list_directories(places, progress, expected=expected, shared=self._prefixes)
        self._states[step] = _State(stamps, listing.entries, not _young(stamps))
        others = {key: count for key, count in self._complaints.items() if key[0] not in listing.directories}
        self._complaints = {**others, **listing.complaints}
        if not self.generation and listing.prefixes:
            tokens = [token.decode("ascii", "replace") for token in listing.dtypes if token]
            guesses = (generation(split_prefix(prefix)[1], (tokens or [""])[0]) for _, _, prefix in listing.prefixes)
            self.generation = next(filter(None, guesses), "")
        return listing

    def _changed(self, step: int) -> bool:
        """Whether the directories of a listed step look different now."""
        state = self._states[step]
        places = self._places(step)
        if _stamps(places) != state.stamps:
            return True
        if state.settled:
            return False
        settled = not _young(state.stamps)
        if sum(_count(path) for _, path, _ in places) != state.entries:
            return True
        self._states[step] = replace(state, settled=settled)
        return False


def _stamps(places: Sequence[Place]) -> tuple[Stamp, ...]:
    return tuple(stamp(path) for _, place, _ in places for path in (place, place / STATISTICS, place / MAPPING))


def _young(stamps: Sequence[Stamp]) -> bool:
    now = time.time_ns()
    return any(abs(now - when) < _YOUNG_NS for when, _, _ in stamps)


def _count(path: Path) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(1 for _ in entries)
    except OSError:
        return 0
