"""One rank of a MindSpore dump: its run history, steps, nodes and tensors, read on demand and kept.

A killed run, a full disk or a cut copy leave a step without some of its files, while each remaining file can be read.
So a step is compared with the two nearest steps of its graph, earlier ones first. A tensor is missing where both have
it: an operator behind a condition, or an optimizer that runs in every fourth step, is not missed in the steps between.
"""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from tui_debugger.arrays import Int64
from tui_debugger.cache.store import DiskCache
from tui_debugger.errors import BadGraphError
from tui_debugger.graph.build import directory_names
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import GraphRun, ProgressFn, Side, UnreadablePart, no_progress, turns
from tui_debugger.notes import NO_NOTES, NOTES_FILE, RunNotes, read_notes
from tui_debugger.opener import why_not
from tui_debugger.said import SAID_FILE, SaidOfRank
from tui_debugger.sources.base import (
    OverflowRecord,
    StepEntries,
    TensorFlag,
    no_garbage_collection,
    tensor_keys,
)
from tui_debugger.sources.mindspore.device_tree import read_device_layout
from tui_debugger.sources.mindspore.layout import (
    NEVER,
    GraphDirectory,
    RankLayout,
    Stamp,
    read_layout,
    relative,
    stamp,
)
from tui_debugger.sources.mindspore.listing import NOT_IGNORED, MindSporeStepListing, Place, RecordedRows, RunBlock
from tui_debugger.sources.mindspore.names import DirectoryNames, KnownNames, decode
from tui_debugger.sources.mindspore.nodes import (
    ORDER_DIRECTORY,
    GraphFiles,
    NodeMap,
    Signature,
    broken_graph,
    graph_paths,
    graph_signature,
    numbered_files,
    paths_of,
    read_graphs,
    read_orders,
    unreadable_directories,
)
from tui_debugger.sources.mindspore.order_files import read_steps
from tui_debugger.sources.mindspore.overflow import DIRECTORY as OVERFLOWS
from tui_debugger.sources.mindspore.overflow import list_records, read_records
from tui_debugger.sources.mindspore.run_order import RunOrder
from tui_debugger.sources.mindspore.statistics import FILE as STATISTICS
from tui_debugger.sources.mindspore.steps import RunTimes, StatisticFiles, StepListings
from tui_debugger.sources.mindspore.tensors import (
    Arrangement,
    MindSporeStepTable,
    Writing,
    overflowed_operator,
    step_table,
)
from tui_debugger.text.numbers import first_of, plural

FILE = re.compile(r"ms_global_execution_order_graph_(\d{1,9})\.csv")


@dataclass(frozen=True)
class History:
    """The steps at which every root graph ran, by the history files of one rank."""

    lines: Mapping[int, Sequence[int]]
    """Steps by root graph, as they stand in its file. A second run into the same directory repeats lines, and rank 0's
    file can hold the lines of all ranks: ``run_order`` interprets them.
    """
    notices: tuple[str, ...] = ()
    parts: tuple[UnreadablePart, ...] = ()

    @cached_property
    def steps(self) -> Mapping[int, frozenset[int]]:
        return {root: frozenset(lines) for root, lines in self.lines.items()}


def read_history(rank: Path) -> History:
    """Reads ``ms_global_execution_order_graph_N.csv``: one step per line, no header."""
    steps: dict[int, tuple[int, ...]] = {}
    notices: list[str] = []
    parts: list[UnreadablePart] = []
    for root, name, ran in read_orders(rank, FILE, read_steps, notices, parts):
        if ran.broken:
            notices.append(f"{name}: {ran.broken} broken lines ignored")
        if ran.steps:
            steps[root] = ran.steps
    return History(steps, tuple(notices), tuple(parts))


def history_signature(rank: Path) -> tuple[tuple[str, Stamp], ...]:
    return tuple((path.name, stamp(path)) for _, path in numbered_files(rank / ORDER_DIRECTORY, FILE))


def check_history(history: History, layout: RankLayout) -> list[str]:
    notices: list[str] = []
    name = layout.path.name
    mains = root_graphs(history, layout)
    roots = sorted({graph.root_graph for graph in layout.graphs if mains is None or graph.root_graph in mains})
    missing = [root for root in roots if root not in history.steps]
    if missing and missing == roots:
        closed = unreadable_directories(layout.path, layout.auxiliary)
        refused = any(part.where == f"{name}/{ORDER_DIRECTORY}" for part in closed)
        lacks = "no run history that can be read" if refused else "no run history"
        notices.append(f"{name} has {lacks}: derived from the dumped steps")
    elif missing:
        graphs = ", ".join(map(str, missing))
        notices.append(f"{name} has no run history of graph {graphs}: derived from the dumped steps")
    for root in roots:
        extra = sorted(layout.dumped(root) - history.steps.get(root, layout.dumped(root)))
        if extra:
            steps = first_of([*map(str, extra)], 5)
            notices.append(f"{name}: steps {steps} of graph {root} are dumped but not in the run history")
    return notices


def root_graphs(history: History, layout: RankLayout) -> frozenset[int] | None:
    """Numbers of the graphs that training starts, as far as a rank tells; None when it does not.

    Only such graphs have a history file. A graph without one is called by others (control flow), unless it ran at a
    step at which no graph with a history ran: then its history is missing.
    """
    if not history.lines:
        return None
    ran = frozenset[int]().union(*history.steps.values())
    others = {graph.root_graph for graph in layout.graphs if not ran.issuperset(graph.steps)}
    return frozenset(history.lines) | others


def graph_runs(order: RunOrder, times: RunTimes, names: Mapping[int, str]) -> tuple[GraphRun, ...]:
    """Every run in the order in which they ran; ``names``: by number of a graph's directory."""
    turn_of = turns([run.step for run in order.runs])
    return tuple(
        GraphRun(
            run.step,
            run.root,
            names.get(run.root, f"kernel_graph_{run.root}"),
            run.dumped,
            run.round,
            times.began(run.root, run.step) or run.began,
            turn,
        )
        for run, turn in zip(order.runs, turn_of, strict=True)
    )


_MATCH_STEPS = 4
"""Number of steps that may be read to match files with nodes."""
_WATCHED_STEPS = 4
_WATCHED_DIRECTORIES = 16
"""Number of step directories that are watched; the newest ones where graphs have more."""
_MOST_ROWS = 4_000_000
"""Number of rows of tensor tables that are kept per rank: 200 MB, a fifth of that when steps hold the same files."""

_Alike = tuple[tuple[DirectoryNames, ...], tuple[RunBlock, ...]]
"""Steps with equal names and equal blocks of runs share an ``Arrangement``."""


@dataclass(frozen=True, slots=True)
class RankChanges:
    """The changes in one rank."""

    new_steps: tuple[int, ...] = ()
    grown_steps: tuple[int, ...] = ()
    new_nodes: bool = False
    rebuilt: bool = False


class RankRun:
    """Everything about one rank, read on demand and kept. Safe to call from any thread.

    Long work (node table, listings) holds one lock of the rank; quick calls never wait for it.
    """

    def __init__(
        self,
        number: int,
        path: Path,
        lender: Callable[[RankRun], Path | None],
        right_mean: bool,
        store: DiskCache | None = None,
        *,
        nets: Callable[[], Collection[str]] = tuple,
        tells_overflow: bool = False,
        steps_alike: bool = True,
        by_device: bool = False,
        statistics: StatisticFiles | None = None,
    ) -> None:
        """Reads the names of nets, graphs and steps, and the history files.

        ``lender`` finds the directory of another rank whose graph this one may use. ``right_mean``: recorded means can
        be believed (2.4 and newer). ``steps_alike``: training was told to dump the same tensors in every step of a
        graph. ``by_device``: ``path`` is the tree of all devices. ``statistics`` reads the files of other ranks, too.
        """
        self.number = number
        self.path = path
        self._lender = lender
        self._store = store
        self._right_mean = right_mean
        self._work = threading.RLock()
        self._known_nets = nets
        self._tells_overflow = tells_overflow
        self._steps_alike = steps_alike
        self._by_device = by_device
        self._layout = self._read_layout()
        self._history_signature = history_signature(path)
        self._history = read_history(path)
        self._checked_history: tuple[tuple[History, RankLayout] | None, list[str]] = None, []
        statistics = statistics if statistics is not None else StatisticFiles()
        self._times = RunTimes(statistics)
        self._listings = StepListings(store, statistics)
        self._notes: RunNotes | None = None
        self._notes_state, self._notes_notice = NEVER, ""
        self._forget_nodes()

    def _forget_nodes(self) -> None:
        self._nodes: NodeMap | None = None
        self._graph_source = self.path
        self._signature: Signature = ()
        self._graph_notices: tuple[str, ...] = ()
        self._graph_parts: tuple[UnreadablePart, ...] = ()
        self._said: SaidOfRank | None = None
        self._said_parts: tuple[UnreadablePart, ...] = ()
        self._tables: dict[int, MindSporeStepTable] = {}
        self._has_values: bool | None = None
        self._rows = 0
        self._arrangements: WeakValueDictionary[_Alike, Arrangement] = WeakValueDictionary()
        self._arranged = 0
        self._listings.forget_all()
        self._overflow_parts: dict[int, Sequence[UnreadablePart]] = {}
        self._overflow_looks: dict[int, Stamp] = {}
        self._overflow_records: dict[int, frozenset[str]] = {}
        self._contents = ContentsOfSteps()
        self._incomplete: dict[int, Sequence[UnreadablePart]] = {}
        self._provisional = False
        self._half_matched = False
        self._grew = False

    @property
    def nets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(graph.net for graph in self._layout.graphs))

    def places(self) -> Iterator[tuple[str, int, int | None, str]]:
        """Yields net, root graph, step and path of directories that hold tensors; step None: the graph's directory."""
        for graph in self._layout.graphs:
            yield graph.net, graph.root_graph, None, os.fspath(graph.path)
            yield from ((graph.net, graph.root_graph, step, os.fspath(path)) for step, path in graph.steps.items())

    @property
    def generation(self) -> str:
        return self._listings.generation

    def notices(self) -> list[str]:
        notices = [*self._history.notices, *self._history_notices(), *self._graph_notices]
        notices += [self._notes_notice] if self._notes_notice else []
        trainings = len(self._order().begins)
        if trainings > 1:
            notices.append(
                f"{self.path.name}: the directory holds {trainings} trainings one after the other; "
                "dump each into a directory of its own to see them apart"
            )
        totals: dict[str, int] = {}
        for complaints in list(self._listings.complaints.values()):
            for text, count in complaints.items():
                totals[text] = totals.get(text, 0) + count
        notices += [f"{self.path.name}: {count} {text}{_what_became(text)}" for text, count in totals.items()]
        if self._nodes is not None and self._nodes.uncertain:
            notices.append(
                f"{self.path.name}: {self._nodes.uncertain} nodes, marked ?, may show the values of another node of "
                "the same scope and type, whose files have names that fit as well; inputs and outputs dumped together "
                "(input_output 0) usually tell them apart"
            )
        return notices

    def _history_notices(self) -> list[str]:
        """Checks again only when history or layout were read again, because the check lists directories."""
        seen, found = self._checked_history
        if seen is None or seen[0] is not self._history or seen[1] is not self._layout:
            seen = self._history, self._layout
            found = check_history(*seen)
            self._checked_history = seen, found
        return found

    def unreadable(self) -> list[UnreadablePart]:
        root = self.path.parent
        listed = [
            UnreadablePart(relative(path, root), why, self.number, step) for path, why, step in self._listings.missing()
        ]
        others = (*list(self._overflow_parts.values()), *list(self._incomplete.values()))
        listed += [part for parts in others for part in parts]
        found = {(part.where, part.why): part for part in (*self._layout.parts, *listed)}
        graphs = {part.where: part for part in (*self._history.parts, *self._graph_parts, *self._said_parts)}
        return [*found.values(), *(replace(part, rank=self.number) for part in graphs.values())]

    def step_directories(self) -> Iterator[tuple[int | None, str]]:
        """Yields step and path of directories of tensors and of overflow records; step None: constants and graphs."""
        yield from ((None, os.fspath(path)) for path in graph_paths(self.path))
        for graph in self._layout.graphs:
            yield from ((step, os.fspath(path)) for step, path in graph.steps.items())
            if graph.constants is not None:
                yield None, os.fspath(graph.constants)
        if OVERFLOWS in self._layout.auxiliary:
            yield from ((step, self._overflow_directory(step)) for step in self._layout.steps)

    def _step_paths(self) -> set[str]:
        return {os.path.normpath(path) for _, path in self.step_directories()}

    @property
    def listed_steps(self) -> Collection[int]:
        return self._listings.steps

    def step_entries(self) -> Iterator[StepEntries]:
        """Yields the rank's directory, then entries of listed steps that are no part of the layout."""
        yield StepEntries(self.number, None, (os.fspath(self._layout.path),), self._step_paths)
        for path, step in self._listings.others():
            yield StepEntries(self.number, step, (path,), self._step_paths)
        for step, records in list(self._overflow_records.items()):
            yield StepEntries(self.number, step, (self._overflow_directory(step),), records.copy)

    def steps(self) -> Sequence[int]:
        return self._order().steps

    def history(self) -> Sequence[GraphRun]:
        """The runs in their order; graph names are MindSpore's usual ones until the node table is read."""
        graphs = self._nodes.table.graphs if self._nodes is not None else ()
        return graph_runs(self._order(), self._times, directory_names(graphs))

    def previous_run(self, root_graph: int, step: int, round: int = 0) -> tuple[int, int] | None:  # noqa: A002
        return self._order().previous(root_graph, step, round)

    def nodes(self, progress: ProgressFn = no_progress) -> NodeTable:
        self.notes()  # here, where the caller expects to wait
        return self._map(progress).table

    def tensors(self, step: int, progress: ProgressFn = no_progress) -> MindSporeStepTable:
        """Returns the tensor table of a step; the first call lists its directories. May append to the node table."""
        table = self._tables.get(step)
        if table is not None and step in self._incomplete:
            return table
        with self._work, no_garbage_collection():
            nodes = self._map(progress)
            if step not in self._incomplete:
                self._incomplete[step] = self._find_lacking(step, progress) if self._steps_alike else ()
            if step not in self._tables:
                listing = self._listing(step, progress)
                length = len(nodes.table)
                table = self._table(nodes, step, listing, progress)
                self._listings.drop(step)
                self._grew = self._grew or len(nodes.table) != length
                if not self._places(step):
                    return table  # not dumped (yet): not worth keeping
                self._keep(step, table)
            return self._tables[step]

    def graph_files(self) -> Sequence[Path]:
        if self._nodes is None:
            return graph_paths(self._find_graphs()[0])
        return paths_of(self._graph_source, self._signature)

    def miss_graph(self, path: Path, problem: BadGraphError) -> None:
        self._graph_parts = tuple(dict.fromkeys((*self._graph_parts, broken_graph(path, problem))))

    def notes(self) -> RunNotes:
        """Notes that our own recorders wrote beside the steps, as of the last read."""
        if self._notes is None:
            self._look_at_notes()
        return self._notes or NO_NOTES

    def _look_at_notes(self) -> None:
        path = self.path / NOTES_FILE
        state = stamp(path)
        if self._notes is not None and state == self._notes_state:
            return
        self._notes_state, self._notes_notice = state, ""
        self._notes = NO_NOTES
        if state == NEVER:
            return
        try:
            self._notes, wrong = read_notes(path)
        except OSError as error:
            self._notes_notice = f"{NOTES_FILE} of rank {self.number} cannot be read: {why_not(path, error)}"
            return
        if wrong:
            self._notes_notice = f"{plural(wrong, 'line')} of {NOTES_FILE} of rank {self.number} without a note"

    def statistic_files(self, step: int) -> Sequence[Path]:
        paths = (graph.steps[step] / STATISTICS for graph in self._layout.graphs_at(step))
        return [path for path in paths if stamp(path) != NEVER]

    def refresh(self) -> RankChanges:
        """Looks at directory times and names; reads nothing but history files that changed."""
        with self._work:
            before = set(self._layout.steps)
            self._layout = self._read_layout()
            after = set(self._layout.steps)
            signature = history_signature(self.path)
            if signature != self._history_signature:
                self._history_signature, self._history = signature, read_history(self.path)
                if self._nodes is not None:
                    self._nodes.name_roots(self._roots())
            self._times.look_again()
            self._look_at_notes()
            grown = {step for step in self._listings.steps if self._listings.changed(step, self._places(step))}
            looks = list(self._overflow_looks.items())
            grown |= {step for step, look in looks if stamp(self._overflow_directory(step)) != look}
            new_nodes, self._grew = self._grew, False
            rebuilt = self._nodes is not None and self._outdated_nodes(grown, bool(after - before))
            if rebuilt:
                grown = set(self._listings.steps)
                self._forget_nodes()
            self._times.forget(grown)
            for step in grown:
                self._drop(step)
                self._listings.forget(step)
                self._overflow_looks.pop(step, None)
                self._overflow_records.pop(step, None)
                self._overflow_parts.pop(step, None)
                self._contents.forget(step)
            if grown or after != before:
                self._incomplete.clear()
            fresh = tuple(sorted(after - before))
            return RankChanges(fresh, tuple(sorted(grown & (before | after))), new_nodes or rebuilt, rebuilt)

    def watch_paths(self) -> list[Path]:
        """Directories in which changes show: the levels above the steps, the newest and the listed steps."""
        layout = self._layout
        paths = [self.path, self.path / "graphs", self.path / "execution_order"]
        found: list[tuple[int, Path]] = []
        for graph in layout.graphs:
            paths += [] if self._by_device else [graph.path.parent, graph.path]
            newest = max(graph.steps, default=None)
            listed = [step for step in sorted(self._listings.steps)[-_WATCHED_STEPS:] if step in graph.steps]
            found += [(step, graph.steps[step]) for step in dict.fromkeys((*listed, newest)) if step is not None]
        found.sort(key=lambda each: -each[0])
        paths += [path for _, path in found[:_WATCHED_DIRECTORIES]]
        return list(dict.fromkeys(paths))

    def _read_layout(self) -> RankLayout:
        if self._by_device:
            return read_device_layout(self.path, self.number)
        return read_layout(self.path, self.number, self._known_nets())

    @property
    def has_values(self) -> bool | None:
        """Whether values of tensors were dumped, by the listed steps; None before any was listed."""
        return self._has_values

    def _keep(self, step: int, table: MindSporeStepTable) -> None:
        valued = bool(((table.flags & int(TensorFlag.STAT_ONLY)) == 0).any())
        self._has_values = bool(self._has_values) or valued if len(table) else self._has_values
        self._tables[step] = table
        self._rows += len(table)
        for old in list(self._tables) if self._rows > _MOST_ROWS else ():
            if self._rows <= _MOST_ROWS or old == step:
                break
            self._drop(old)

    def _drop(self, step: int) -> None:
        table = self._tables.pop(step, None)
        self._rows -= len(table) if table is not None else 0

    def _map(self, progress: ProgressFn) -> NodeMap:
        nodes = self._nodes
        if nodes is not None:
            return nodes
        with self._work, no_garbage_collection():
            if self._nodes is None:
                self._nodes = self._read_nodes(progress)
            return self._nodes

    def _read_nodes(self, progress: ProgressFn) -> NodeMap:
        files = self._read_graphs(progress)
        nodes = NodeMap(files, self._store, self._roots())
        nodes.put_in_order(self._order().graphs)
        steps = self._layout.steps
        first = sorted({min(graph.steps) for graph in self._layout.graphs if graph.steps})
        self._provisional = nodes.has_graph and bool(first) and first[-1] == steps[-1]
        for step in first:
            nodes.resolve(self._listing(step, progress), progress)
        for step in [step for step in steps if step not in first][: _MATCH_STEPS - 1]:
            if not nodes.open:
                break
            nodes.settle(self._listing(step, progress), progress)
        return nodes

    def _roots(self) -> frozenset[int] | None:
        roots = root_graphs(self._history, self._layout)
        lender = self._lender(self) if roots is None else None
        return root_graphs(read_history(lender), self._layout) if lender is not None else roots

    def _read_graphs(self, progress: ProgressFn) -> GraphFiles:
        self._graph_source, self._signature = self._find_graphs()
        seen = self._layout.auxiliary
        files = read_graphs(self._graph_source, progress, seen if self._graph_source == self.path else ())
        notices = list(files.notices)
        refused = unreadable_directories(self.path, seen)
        self._graph_parts = tuple(dict.fromkeys((*refused, *files.parts)))
        if self._graph_source != self.path:
            lacks = "no graph that can be read" if refused else "no graph"
            notices.append(f"{self.path.name} has {lacks}: that of {self._graph_source.name} is used")
        elif not files.graphs and not refused:
            notices.append(f"{self.path.name} has no graph: nodes come from file names")
        self._graph_notices = tuple(notices)
        return files

    def _find_graphs(self) -> tuple[Path, Signature]:
        source = self.path
        if not graph_paths(source):
            source = self._lender(self) or source
        return source, graph_signature(source)

    def _outdated_nodes(self, grown: set[int], new_steps: bool) -> bool:
        """Whether a graph arrived, or nodes were matched with a step that was only half written."""
        if self._find_graphs() != (self._graph_source, self._signature):
            return True
        if not self._provisional:
            return False
        self._half_matched = self._half_matched or bool(grown)
        return new_steps and self._half_matched

    def _listing(self, step: int, progress: ProgressFn) -> MindSporeStepListing:
        return self._listings.listing(step, self._places(step), progress)

    def _find_lacking(self, step: int, progress: ProgressFn) -> Sequence[UnreadablePart]:
        found = []
        for graph in self._layout.graphs_at(step):
            others = nearest(graph.ascending, step)
            passed = [other for other in others if other < step and self._contents.of(other) is None]
            mine = self._contents_of(step, graph, progress)
            beside = {other: self._contents_of(other, graph, progress) for other in others}
            for other in passed:  # unlikely to be asked for, unlike the steps behind this one
                self._listings.drop(other)
            theirs = {other: held for other, held in beside.items() if held is not None}
            if mine is None or len(theirs) < COMPARED_WITH:
                continue
            why = lacking(self._listings.known_names, mine, theirs)
            if why:
                where = relative(graph.steps[step], self.path.parent)
                found.append(UnreadablePart(where, why, self.number, step, incomplete=True))
        return tuple(found)

    def _contents_of(self, step: int, graph: GraphDirectory, progress: ProgressFn) -> StepContents | None:
        held = self._contents.of(step)
        if held is None:
            held = self._contents.learn(step, self._listing(step, progress))
        beside = zip(self._layout.graphs_at(step), held, strict=False)  # constants come last
        return next((found for each, found in beside if each is graph), None)

    def _table(
        self, nodes: NodeMap, step: int, listing: MindSporeStepListing, progress: ProgressFn
    ) -> MindSporeStepTable:
        self._times.learn(step, listing.runs.spans)
        if not nodes.in_order(listing.runs.spans):
            nodes.put_in_order(self._order().graphs)
        rows, doubts = nodes.resolve(listing, progress)
        if nodes.version != self._arranged:
            self._arrangements.clear()
            self._arranged = nodes.version
        alike = tuple(part.pattern for part in listing.parts), listing.runs.blocks
        like = self._arrangements.get(alike) if not listing.statistics else None
        overflows = self._overflows(step, listing)
        table = step_table(
            listing, rows, doubts, nodes.table, right_mean=self._right_mean, like=like, overflows=overflows
        )
        if table.arrangement.timeless:
            self._arrangements[alike] = table.arrangement
        said = self._said_of_rank().of(step, nodes.table.find)
        table.inputs_unknown, table.operands, table.by_design = said.inputs_unknown, said.operands, said.by_design
        return table

    def _said_of_rank(self) -> SaidOfRank:
        if self._said is None:
            self._said, why = SaidOfRank.looked_at(self.path / SAID_FILE)
            damage = [UnreadablePart(f"{self.path.name}/{SAID_FILE}", why, graph=True)] if why else []
            self._said_parts = (*self._said.doubts, *damage)
        return self._said

    def _overflows(self, step: int, listing: MindSporeStepListing) -> dict[Writing, tuple[OverflowRecord, ...]] | None:
        """Device records of a step by operator run; None where overflows are not recorded."""
        directory = self._overflow_directory(step)
        self._overflow_looks[step] = stamp(directory)
        paths, closed = list_records(directory)
        if paths:
            self._overflow_records[step] = frozenset(map(os.fsdecode, paths))
        paths += [part.directory + b"/" + name for part in listing.parts for name in part.overflows]
        files = read_records(paths)
        missing, found = [*closed, *files.missing], dict[Writing, tuple[OverflowRecord, ...]]()
        for path, records in files.records.items():
            for record in records:
                operator = overflowed_operator(listing, record, path)
                if operator is not None:
                    found[operator] = (*found.get(operator, ()), record)
                else:
                    missing.append((path, f"{record}: no file here is known to be of the operator that overflowed"))
        self._overflow_parts[step] = tuple(
            UnreadablePart(relative(Path(os.fsdecode(path)), self.path.parent), why, self.number, step)
            for path, why in missing
        )
        return found if found or files or self._tells_overflow else None

    def _overflow_directory(self, step: int) -> str:
        return f"{self.path}/{OVERFLOWS}/{step}"

    def _order(self) -> RunOrder:
        return self._times.order(self._layout, self._history.lines)

    def _places(self, step: int) -> list[Place]:
        graphs = self._layout.graphs_at(step)
        steps = [(graph, graph.steps[step], False) for graph in graphs]
        return steps + [(graph, graph.constants, True) for graph in graphs if graph.constants is not None]


def _what_became(text: str) -> str:
    return "" if text in NOT_IGNORED else " ignored"


COMPARED_WITH: Final = 2
"""Number of steps that a step is compared with."""


@dataclass(frozen=True, slots=True)
class StepContents:
    """The tensors in the directory of a graph's step."""

    files: DirectoryNames
    recorded: Int64 | None
    """Keys of the rows of ``statistic.csv``, ascending; None without the file."""


class ContentsOfSteps:
    """The contents of the directories of listed steps; equal contents are kept once."""

    def __init__(self) -> None:
        self._recorded: dict[bytes, Int64] = {}
        self._different: dict[tuple[tuple[int, int], ...], tuple[StepContents | None, ...]] = {}
        self._of: dict[int, tuple[StepContents | None, ...]] = {}

    def of(self, step: int) -> tuple[StepContents | None, ...] | None:
        """Contents of a step's directories in the order of its listing; None where not listed, or not readable."""
        return self._of.get(step)

    def learn(self, step: int, listing: MindSporeStepListing) -> tuple[StepContents | None, ...]:
        rows = {each.path.rpartition(b"/")[0]: each for each in listing.statistics}
        found = tuple(
            None if part.missing else StepContents(part.pattern, self._keys(rows.get(part.directory)))
            for part in listing.parts
        )
        # Equal patterns and keys are one object each, which lives as long as the contents that have it.
        key = tuple((0, 0) if each is None else (id(each.files), id(each.recorded)) for each in found)
        self._of[step] = self._different.setdefault(key, found)
        return self._of[step]

    def _keys(self, recorded: RecordedRows | None) -> Int64 | None:
        if recorded is None:
            return None
        unique = np.unique(tensor_keys(recorded.prefix, recorded.rows.side, recorded.rows.slot))
        return self._recorded.setdefault(unique.tobytes(), unique)

    def forget(self, step: int) -> None:
        self._of.pop(step, None)


def nearest(steps: Sequence[int], step: int) -> list[int]:
    """Returns the steps to compare with: the two before ``step``, else the nearest; ``steps`` ascend."""
    at = bisect_left(steps, step)
    first = min(max(at - COMPARED_WITH, 0), max(len(steps) - COMPARED_WITH - 1, 0))
    return [each for each in steps[first : first + COMPARED_WITH + 1] if each != step]


def lacking(known: KnownNames, mine: StepContents, others: Mapping[int, StepContents]) -> str:
    """Names the tensors that a step lacks and all ``others`` (by step) have; empty if none."""
    kept = [each.recorded for each in others.values()]
    if mine.recorded is not None and all(each is not None for each in kept):
        have: Int64 = mine.recorded
        theirs = [each for each in kept if each is not None]
    else:  # statistics in some steps only: compare the tensor files
        if mine.recorded is not None or any(each.files is mine.files for each in others.values()):
            return ""
        have, theirs = _keys(known, mine.files), [_keys(known, each.files) for each in others.values()]
    if any(each is have for each in theirs):
        return ""
    missed = np.setdiff1d(theirs[0], have, assume_unique=True)
    for each in theirs[1:]:
        missed = np.intersect1d(missed, each, assume_unique=True)
    if not len(missed):
        return ""
    first = _name(known, int(missed[0]))
    more = f" and of {plural(len(missed) - 1, 'more tensor')}" if len(missed) > 1 else ""
    return f"nothing of {first}{more} that steps {' and '.join(map(str, others))} have: was the dump cut?"


def _keys(known: KnownNames, files: DirectoryNames) -> Int64:
    return np.unique(tensor_keys(files.prefix, known.sides()[files.ending], known.slots()[files.ending]))


def _name(known: KnownNames, key: int) -> str:
    prefix, side, slot = key >> 17, key >> 16 & 1, key & 0xFFFF
    return f"{decode(known.prefixes[prefix])} {Side(side).name.lower()} {slot}"
