"""The façade: an open run with its steps, nodes, watchpoints and checks; ``open_dump`` opens a dump as a session."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Mask, UInt8
from tui_debugger.cache.store import DiskCache, default_store
from tui_debugger.causes.rule import mark_hits
from tui_debugger.check.contents import Contents
from tui_debugger.check.flow import DataFlow, SharedWeights
from tui_debugger.check.measure import Measurements
from tui_debugger.check.outputs import OutputTensors
from tui_debugger.check.pipeline import Checks, Listed
from tui_debugger.check.progress import retry_when_renumbered
from tui_debugger.check.records import StatsCache, StoredStats
from tui_debugger.check.results import AskedPart, belonging
from tui_debugger.check.step import StepChecker
from tui_debugger.check.sweep import Sweep, TensorChoice
from tui_debugger.check.tensors import HitsOf, hits_in, measured, opened, row_of, tensor_rows
from tui_debugger.check.types import CheckResult, Pair, SourceExcerpt, TensorRow
from tui_debugger.diagnose.loss import recognised_losses
from tui_debugger.diagnose.origin.search import OriginReport, search, search_step
from tui_debugger.environment import switch_of
from tui_debugger.graph.search import NodeQuery, match
from tui_debugger.graph.stacks import StackIndex, stack_index
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import ScopeTree, build_tree
from tui_debugger.model import (
    Frame,
    GraphRun,
    NodeSelection,
    Progress,
    ProgressFn,
    ReadSpec,
    RunInfo,
    TensorKey,
    UnreadablePart,
    Watchpoint,
    no_progress,
    turn_of,
    turns,
)
from tui_debugger.notes import RunNotes, ShownNote
from tui_debugger.opener import is_hidden, read_regular
from tui_debugger.session.asked import Selections, asked_nodes, asked_rows
from tui_debugger.session.following import FileState, RunFollower, steps_before, turn_spans
from tui_debugger.session.watchpoints import WatchpointList, WatchpointStore
from tui_debugger.sources.base import (
    CallArguments,
    Capability,
    Changes,
    NumbersSource,
    ParallelSource,
    RankPlaces,
    Source,
)
from tui_debugger.sources.inventory import Inventory, RunInventory
from tui_debugger.sources.joined import JoinedSource, open_sources
from tui_debugger.sources.registry import limits, open_source, shown_by
from tui_debugger.sources.scope import ListedRun, Scope
from tui_debugger.stats.kernel import SWITCH
from tui_debugger.stats.workers import MeasureWorkers
from tui_debugger.text.notes import RECOGNISED
from tui_debugger.text.numbers import grouped_notices
from tui_debugger.watch.recommended import NO_CHANGES, RecommendedChanges, recommended

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_BYTES = 4 << 20
"""Larger source files are not read: no program is that long, but a wrong path may lead to one."""


def mapped_paths(path: str, source_map: Sequence[tuple[str, str]]) -> list[Path]:
    """Local candidates for a path of the training machine, best first: replaced OLD=NEW prefixes, then the path."""
    candidates = []
    for old, new in source_map:
        base = old.rstrip("/")
        if path == base or path.startswith(base + "/"):
            candidates.append(Path(new) / path[len(base) :].lstrip("/") if path != base else Path(new))
    candidates.append(Path(path))
    return candidates


def read_excerpt(frame: Frame, source_map: Sequence[tuple[str, str]], context: int) -> SourceExcerpt | None:
    """Returns the lines around a frame, or None when the file is not here, too large, or too short for the line."""
    for candidate in mapped_paths(frame.path, source_map):
        try:
            lines = read_regular(candidate, MAX_BYTES).decode("utf-8", "replace").splitlines()
        except (OSError, ValueError):
            continue
        if not 1 <= frame.line <= len(lines):
            continue
        first = max(1, frame.line - context)
        last = min(len(lines), max(frame.line, frame.end_line) + context)
        shown = tuple(_CONTROL.sub("·", line.expandtabs(4)) for line in lines[first - 1 : last])
        return SourceExcerpt(str(candidate), first, shown, frame.line)
    return None


class VerifiedIndex(NamedTuple):
    """Counts of right entries and of unreadable tensors, and the file (``lie``) whose entry was wrong, if any."""

    right: int
    unread: int
    lie: str


class Session:
    """The façade of the headless core. Methods may be called from any thread; slow ones take ``progress``.

    Attributes:
        contents: tells whether two tensors have equal contents.
        asked: the ranks and steps that are asked for: unreadable parts of others do not matter.
        settings: problems of environment variables.
    """

    def __init__(
        self,
        source: Source,
        *,
        store: WatchpointStore | None = None,
        source_map: Sequence[tuple[str, str]] = (),
        workers: MeasureWorkers | None = None,
        index: DiskCache | None = None,
        enter_environments: bool = False,
    ) -> None:
        """Cheap: nothing is read before it is asked for. ``close`` closes ``source``, ``workers`` and ``index``.

        ``store`` keeps the watchpoints and ``index`` the measurements between sessions; without ``workers`` tensors are
        measured in the calling thread. ``source_map`` holds (OLD, NEW) prefixes of source paths, tried in order.
        ``enter_environments`` lets the inventory walk installed environments, caches and object stores.
        """
        self.source = source
        self.asked = AskedPart()
        self.recommended_changes: RecommendedChanges | None = None
        self.watchpoints = WatchpointList(store)
        self._source_map = tuple(source_map)
        self._workers = workers or MeasureWorkers(jobs=1)
        self._memory = StoredStats(index)
        self.contents = Contents(index)
        self._lock = threading.Lock()
        self._cache = StatsCache()
        self._own_cache = StatsCache()
        self._follower = RunFollower(source, self._cache)
        self._checks = self._new_checks(self.watchpoints.snapshot)
        self._selections = Selections(partial(asked_nodes, source))
        self._losses: dict[Pair, tuple[ShownNote, ...]] = {}
        self._inventory = RunInventory(enter_environments=enter_environments)
        wrong = index.note if index is not None else "", switch_of(SWITCH).wrong
        self.settings = tuple(filter(None, wrong))

    @property
    def workers(self) -> MeasureWorkers:
        return self._workers

    # -- the run -----------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        """The facts of the run, the limits of its layout, and notices, including those of workers and inventory."""
        info = self.source.info
        shows = shown_by(self.source)
        if shows is None:
            return dataclasses.replace(info, notices=self.notices)
        return dataclasses.replace(
            info,
            notices=self.notices,
            limits=limits(self.source),
            recorded_in=shows.recorded_in,
            values_advice=shows.values_advice,
            tensors_advice=shows.tensors_advice,
        )

    @property
    def notices(self) -> tuple[str, ...]:
        """``info.notices``, without the cost of finding the limits of the layout."""
        own = (*filter(None, [self.scope.text]), *self.settings, *filter(None, [self.watchpoints.problem]))
        return grouped_notices((*own, *self.source.info.notices, *self.inventory.notices, *self._workers.notices))

    @property
    def capabilities(self) -> Capability:
        return self.source.capabilities

    def open(self, progress: ProgressFn = no_progress, *, tree: bool = True) -> None:
        """Does the slow part of opening: finds the ranks, loads the first rank's nodes and, if asked, their tree."""
        ranks = self.ranks()
        if ranks:
            progress(Progress(0, 0, f"rank {ranks[0]}: reading the graph"))
            self.source.nodes(ranks[0], progress)
            if tree:
                self.tree(ranks[0])

    @property
    def inventory(self) -> Inventory:
        return self._inventory.taken

    def take_inventory(self, progress: ProgressFn = no_progress) -> Inventory:
        """Accounts for every entry under PATH: see ``sources.inventory``. Steps count once they were listed."""
        return self._inventory.take(self.source, progress)

    def another(self, path: Path) -> Session:
        """Opens another run, to compare with; the caller closes it."""
        return open_dump(path, workers=MeasureWorkers(jobs=1), remember=False)

    @property
    def scope(self) -> Scope:
        return self.source.scope

    @property
    def around(self) -> ListedRun:
        """The whole run, for context outside of the opened path, such as the step before."""
        return self.source

    @property
    def focus(self) -> tuple[int | None, int | None]:
        """The only rank and the only step of a path into a run, where a screen begins; None where there are several."""
        ranks = [] if self.scope.whole else list(self.ranks())
        if len(ranks) != 1:
            return None, None
        steps = self.steps(ranks[0])
        return ranks[0], steps[0] if len(steps) == 1 else None

    def ranks(self) -> Sequence[int]:
        return self.scope.ranks(self.source)

    def steps(self, rank: int) -> Sequence[int]:
        """Dumped steps of a rank, in the order in which they began to run."""
        return self.scope.steps(self.source, rank)

    def history(self, rank: int) -> Sequence[GraphRun]:
        """Run history of a rank, in the order in which its graphs ran."""
        runs = self.source.history(rank)
        if self.scope.whole:
            return runs
        steps = set(self.steps(rank))
        return [run for run in runs if run.step in steps]

    def before(self, key: TensorKey) -> TensorKey | None:
        """The tensor with the previous value (of a shared weight maybe in another graph); None without earlier run."""

        def found() -> TensorKey | None:
            flow = self.flow(key.rank)
            flow.table(key.step)  # first: it may bring the node
            row = flow.nodes.find(key.node, key.graph)
            at = flow.before(row, key.side, key.slot, key.step, key.round) if row >= 0 else None
            return None if at is None else flow.key(at)

        return retry_when_renumbered(found)

    def notes(self, rank: int) -> RunNotes:
        """The scalars that the program noted of its steps, as far as they are known by now; quick."""
        return self.source.notes(rank)

    def notes_at(self, rank: int, step: int) -> tuple[ShownNote, ...]:
        """The notes of a step, and the losses that were recognised in it by now (see ``find_losses``); quick."""
        noted = tuple(ShownNote(name, value) for name, value in self.notes(rank).at(step).items())
        names = {each.name for each in noted}
        return (*noted, *(each for each in self._losses.get((rank, step), ()) if each.name not in names))

    def run_notes(self, rank: int) -> RunNotes:
        """All notes of a rank, and the losses that were recognised by now, under names that say so; quick."""
        notes = RunNotes(self.notes(rank).all())
        names = set(notes.names())
        found = [(step, losses) for (of, step), losses in list(self._losses.items()) if of == rank]
        for step, losses in found:
            notes.add(
                [(step, {f"{each.name} ({RECOGNISED})": each.value for each in losses if each.name not in names})]
            )
        return notes

    def find_losses(self, pairs: Iterable[Pair], progress: ProgressFn = no_progress) -> None:
        """Looks for the losses of steps, unless they are known: see ``diagnose.loss``. A check does so by itself."""
        for rank, step in pairs:
            if (rank, step) not in self._losses:
                self._losses[rank, step] = retry_when_renumbered(partial(recognised_losses, self, rank, step, progress))

    def turn_spans(self, rank: int) -> dict[int, tuple[int, int]]:
        return turn_spans(self.source, rank)

    def steps_before(self, rank: int, steps: Collection[int]) -> set[int]:
        return steps_before(self.source, rank, steps)

    def unreadable(self, pairs: Sequence[Pair] | None = None, *, graph: bool = True) -> tuple[UnreadablePart, ...]:
        """The parts of what was ``asked`` for that could not be looked at, in the order of their paths.

        ``graph`` includes graph files: they hold no tensor, but a verdict depends on them, for example on whether an
        operator was told to write an Inf.
        """
        found, scope = (*self.source.unreadable(), *self.take_inventory().parts), self.scope
        found = tuple(part for part in found if not is_hidden(part.where))
        parts = [part for part in found if scope.covers(part) and self.asked.covers(part) and (graph or not part.graph)]
        if self._memory.lie:
            parts.append(UnreadablePart("the index", f"{self._memory.lie} is not what it says: emptied, check again"))
        if pairs is None or not parts:
            return tuple(parts)
        return belonging(parts, pairs, {rank: frozenset(self.steps(rank)) for rank in self.ranks()})

    def pairs(self, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> tuple[Pair, ...]:
        """Every dumped (rank, step) among the given ranks and steps, in the order in which they began, then by rank."""
        wanted = None if steps is None else set(steps)
        of_ranks = self.ranks() if ranks is None else tuple(ranks)
        found: list[tuple[int, Pair]] = []
        for rank in of_ranks:
            steps_ = self.steps(rank)
            places = zip(turns(steps_), steps_, strict=True)
            found += [(turn, (rank, step)) for turn, step in places if wanted is None or step in wanted]
        return tuple(pair for _, pair in sorted(found))

    def saved_numbers(self, rank: int, step: int) -> Mapping[str, int | float]:
        """The finite numbers that were saved beside the tensors of a step, by name."""
        return self.source.saved_numbers(rank, step) if isinstance(self.source, NumbersSource) else {}

    def parallel_places(self, rank: int) -> tuple[RankPlaces, str]:
        """The place of a rank along each axis of the parallel layout, and the file that recorded it; else nothing."""
        return self.source.parallel_places(rank) if isinstance(self.source, ParallelSource) else ({}, "")

    def hosts(self) -> dict[int, str]:
        """By rank the directory that it lies in, where the run has several."""
        return self.source.hosts_of_ranks() if isinstance(self.source, JoinedSource) else {}

    # -- nodes -------------------------------------------------------------------------------------

    def flow(self, rank: int, progress: ProgressFn = no_progress) -> DataFlow:
        return DataFlow(self.source, rank, progress)

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        return self.source.nodes(rank, progress)

    def graph_names(self, ranks: Iterable[int] | None = None) -> tuple[str, ...]:
        """The graphs of ranks (None: of all) if one of these ranks has several: then a node name may be ambiguous."""
        tables = [self.nodes(rank) for rank in (self.ranks() if ranks is None else ranks)]
        if all(len(table.graphs) < 2 for table in tables):
            return ()
        return tuple(sorted({info.name for table in tables for info in table.graphs}))

    def tree(self, rank: int) -> ScopeTree:
        return self.source.nodes(rank).memo(build_tree)

    def stack_index(self, rank: int) -> StackIndex:
        return stack_index(self.source.nodes(rank))

    def excerpt(self, frame: Frame, context: int) -> SourceExcerpt | None:
        return read_excerpt(frame, self._source_map, context)

    def producers(self, rank: int, row: int) -> list[tuple[int, int]]:
        """(node row, output slot) that feeds each input of a node; row -1 where the graph does not say."""
        return [(holder.row, holder.slot) for holder in self.flow(rank).holders(row)]

    def consumers(self, rank: int, row: int) -> list[tuple[int, int]]:
        """(node row, input slot) of the nodes that read an output of a node."""
        return self.flow(rank).consumers(row)

    def restrict(self, scope: NodeQuery | None) -> None:
        """Lets watchpoints cover nodes of ``scope`` only (None: all); BadQueryError for a wrong regular expression."""
        self._selections.restrict(scope)

    def in_scope(self, rank: int) -> Mask:
        return self._selections.in_scope(self.nodes(rank))

    def select(self, rank: int, query: NodeQuery, step: int | None = None) -> Mask:
        """Node rows that match a query, its watched and hit parts included; BadQueryError for a wrong expression."""
        nodes = self.nodes(rank)
        mask = match(nodes, query)
        if query.watched is not None:
            mask &= self._watched(nodes, query.watched or None)
        if query.hit:
            mask &= self._checks.known_results.rows_with_finding(rank, step, len(nodes))
        return mask

    def selection_mask(self, rank: int, selection: NodeSelection) -> Mask:
        return self._selections.mask(self.source.nodes(rank), selection)

    def watch_state(self, rank: int, watchpoint_id: int | None = None) -> UInt8:
        """1 per node row that the given watchpoint (None: any enabled one) covers."""
        return self._watched(self.nodes(rank), watchpoint_id).astype(np.uint8)

    def _watched(self, nodes: NodeTable, watchpoint_id: int | None) -> Mask:
        one = self.watchpoints.get(watchpoint_id) if watchpoint_id is not None else None
        chosen = self.watchpoints.enabled() if watchpoint_id is None else filter(None, (one,))
        return self._selections.watched(nodes, tuple(chosen))

    def watched_count(self, selection: NodeSelection) -> int:
        """Nodes of the first rank that a selection names; the ranks of a run have the same graph or parts of one."""
        ranks = self.ranks()
        return int(self.selection_mask(ranks[0], selection).sum()) if ranks else 0

    # -- tensors -----------------------------------------------------------------------------------

    def arguments(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see TensorKey
    ) -> CallArguments | None:
        """The arguments of a node's call, tensors by input slot; None where the run does not record them."""
        return self.source.arguments(rank, step, row, round)

    def tensor_rows(
        self,
        rank: int,
        step: int,
        row: int,
        round: int = 0,  # noqa: A002 - see TensorKey
        *,
        every: bool = False,
    ) -> tuple[TensorRow, ...]:
        """Lists a node's inputs, outputs and parameters in its newest or another round; ``every``: and earlier ones."""
        hits_of = self._hits_at((rank, step))
        return retry_when_renumbered(lambda: tensor_rows(self.flow(rank), step, row, hits_of, round, every=every))

    def row_of(self, key: TensorKey) -> TensorRow:
        """The unmeasured row of one tensor at its own node; UnreadableTensorError when the run has no such node."""
        return retry_when_renumbered(lambda: row_of(self.flow(key.rank), key, self._hits_at((key.rank, key.step))))

    def _hits_at(self, pair: Pair) -> HitsOf:
        return hits_in(self._checks.known_results.latest(pair))

    def measure(self, rows: Sequence[TensorRow], progress: ProgressFn = no_progress) -> tuple[TensorRow, ...]:
        """The rows (all of one rank) with dtype, shape, and statistics or an error."""
        if not rows:
            return ()
        rank = rows[0].key.rank
        return retry_when_renumbered(lambda: measured(self.measurements(rank, progress), rows, progress))

    def read(self, key: TensorKey, progress: ProgressFn = no_progress) -> Array:  # noqa: ARG002 - see live.py
        """The values of a tensor, read-only and maybe memory-mapped; UnreadableTensorError when they cannot be read."""
        return opened(key, retry_when_renumbered(lambda: self.spec(key)))

    def file_state(self, key: TensorKey) -> FileState | None:
        """A state that changes with the tensor's values; ``refresh`` then also notices when the file is overwritten."""
        spec = retry_when_renumbered(lambda: self.spec(key))
        return None if spec is None else self._follower.file_state(key, spec)

    def spec(self, key: TensorKey) -> ReadSpec | None:
        """How to read a tensor; None when its values were not dumped."""
        flow = self.flow(key.rank)
        table = flow.table(key.step)
        index = flow.located(key.step, flow.nodes.find(key.node, key.graph), key.side, key.slot, key.round).index
        return table.spec(index) if index >= 0 and flow.has_values(table, index) else None

    def forget(self, key: TensorKey) -> None:
        """Has a tensor measured anew the next time, whatever its file looks like."""
        self._follower.forget(key)
        self._own_cache = StatsCache()

    def outputs(self, rank: int, progress: ProgressFn = no_progress) -> OutputTensors:
        return OutputTensors(self._of_own_graph(rank, progress))

    def sweep(self, pairs: Sequence[Pair], choice: TensorChoice | None = None) -> Sweep:
        """Walks the chosen tensors in scope lazily, even millions of them."""

        def opened(rank: int, step: int, progress: ProgressFn) -> Measurements:
            measurements = self.measurements(rank, progress)
            measurements.flow.table(step)
            return measurements

        def rows(flow: DataFlow, step: int) -> Mask | None:
            return asked_rows(self.scope, flow.rank, flow.nodes, flow.table(step))

        in_scope = self._selections.in_scope
        return Sweep(lambda *at: retry_when_renumbered(lambda: opened(*at)), in_scope, pairs, choice, rows)

    def save_npy(self, key: TensorKey, path: Path) -> Path:
        """Writes a tensor as .npy; refuses to overwrite and to write inside the dump."""
        from tui_debugger.session.export_files import save_npy

        return save_npy(self.read(key), path, Path(self.info.path))

    # -- checking ----------------------------------------------------------------------------------

    def recommended(self, pairs: Sequence[Pair] = (), progress: ProgressFn = no_progress) -> tuple[Watchpoint, ...]:
        """The recommended watchpoints for the known nodes of the first rank, with id 0; add them to use them.

        Some nodes appear only in later steps or on other ranks (weights that are recorded now and then, the last stage
        of a pipeline). So the first and the last step of the first and the last rank of ``pairs`` are listed, and count
        as well.
        """
        ranks = self.ranks()
        if not ranks:
            return ()
        steps: dict[int, list[int]] = {}
        for rank, step in pairs:
            steps.setdefault(rank, []).append(step)
        seen = {ranks[0], *(list(steps)[at] for at in (0, -1) if steps)}
        for rank in seen & set(steps):
            for step in dict.fromkeys((steps[rank][0], steps[rank][-1])):
                self.source.tensors(rank, step, progress)
        tables = [self.nodes(rank, progress) for rank in sorted(seen)]
        types = [table.op_type(row) for table in tables for row in range(len(table))]
        return recommended(
            np.concatenate([table.category for table in tables]),
            types,
            device=self.info.device,
            changes=self.recommended_changes or NO_CHANGES,
        )

    def add_recommended(self, pairs: Sequence[Pair] = (), progress: ProgressFn = no_progress) -> int:
        return self.watchpoints.add_missing(self.recommended(pairs, progress))

    def check(
        self,
        pairs: Sequence[Pair],
        progress: ProgressFn = no_progress,
        on_result: Callable[[CheckResult], None] | None = None,
    ) -> CheckResult:
        """Checks (rank, step) pairs with the enabled watchpoints; fresh results are not judged again.

        When ``progress`` raises CancelledError, the result holds the finished pairs and says so. ``on_result`` gets the
        result of every finished pair while the rest is still running.
        """

        def finished(result: CheckResult) -> None:
            self.find_losses(result.pairs)
            if on_result is not None:
                on_result(result)

        result = self._checks.check(pairs, progress, finished)
        self.find_losses(result.pairs)
        return result

    def checks(self, others: Sequence[Watchpoint] | None = None) -> Checks:
        """The checks by the session's own list with all their results, or new ones by ``others`` (distinct ids)."""
        if others is None:
            return self._checks
        fixed = tuple(others)
        return self._new_checks(lambda: (0, fixed))

    def _new_checks(self, listed: Listed) -> Checks:
        return Checks(listed, self._checker, self._workers, self._look_ahead, self.unreadable)

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None:
        """Fresh results of every pair, or None when one is missing or outdated."""
        return self._checks.known(pairs)

    @property
    def ongoing(self) -> bool:
        """Whether a training goes on, so that more steps will come."""
        return False

    def why_no_previous(self, key: TensorKey) -> str:  # noqa: ARG002 - of trainings that depends on the tensor
        return "this tensor has no previous step"

    def so_far(self) -> CheckResult | None:
        """The last result of every pair that was checked, outdated or not; None when none was checked."""
        return self._checks.so_far()

    def fresh(self, pairs: Sequence[Pair]) -> bool:
        """Tells whether every pair has a fresh result; cheaper than ``known``, which combines the results."""
        return self._checks.fresh(pairs)

    @property
    def results_edition(self) -> int:
        """Changes whenever the known results change."""
        return self._checks.known_results.edition

    def cost(self, pairs: Sequence[Pair]) -> int:
        """Bytes that checking the pairs would read."""
        return self._checks.cost(pairs)

    def size(self, pairs: Sequence[Pair]) -> int:
        """Bytes of all that was dumped of the pairs, about."""
        return self._checks.size(pairs)

    def find_origin(
        self,
        pairs: Sequence[Pair],
        watchpoints: Sequence[Watchpoint] = (),
        progress: ProgressFn = no_progress,
        spread: int = 5,
    ) -> OriginReport:
        """Finds where NaN, Inf or a finding of watchpoints (their ids must differ) starts: see ``diagnose.origin``."""
        spans = {rank: turn_spans(self.source, rank) for rank in {rank for rank, _ in pairs}}

        def span(pair: Pair) -> tuple[int, int]:
            rank, step = pair
            return spans[rank].get(step, (turn_of(step), turn_of(step)))

        report = search(pairs, watchpoints, partial(search_step, self._checker, spread), progress, span)
        parts = self.unreadable(pairs)
        coverage = dataclasses.replace(report.check.coverage, parts=parts)
        check = dataclasses.replace(report.check, coverage=coverage)
        advice = self.info.tensors_advice
        return dataclasses.replace(report, check=check, graphs=self.graph_names(spans), advice=advice)

    def _checker(self, rank: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn) -> StepChecker:
        measurements = self.measurements(rank, progress)
        return StepChecker(
            measurements,
            watchpoints,
            lambda w: self._selections.selected(measurements.flow.nodes, w.selection),
            lambda: self._selections.in_scope(measurements.flow.nodes),
            lambda table: asked_rows(self.scope, rank, measurements.flow.nodes, table),
            mark=mark_hits,
        )

    def _look_ahead(self, pair: Pair, progress: ProgressFn) -> None:
        rank, step = pair
        self.measurements(rank, progress).look_at(step)

    def measurements(self, rank: int, progress: ProgressFn = no_progress) -> Measurements:
        """Records of a rank's tensors with its present data flow; make a new one per question."""

        def listing(snapshot: Progress) -> None:
            progress(Progress(0, 0, snapshot.text))  # the amount to measure is not known yet

        flow = self.flow(rank, listing)
        return Measurements(flow, self._cache.rank_stats(rank, flow.nodes.lineage), self._workers, self._memory)

    def _of_own_graph(self, rank: int, progress: ProgressFn) -> Measurements:
        """Measurements that compare every tensor with the previous run of its own graph, shared weights too."""
        measurements = self.measurements(rank, progress)
        flow = DataFlow(self.source, rank, progress, sharing=False)
        if not flow.nodes.memo(SharedWeights).groups:
            return measurements
        # Comparisons with another previous tensor must not be mixed up with these, here or in the index.
        return Measurements(
            flow, self._own_cache.rank_stats(rank, flow.nodes.lineage), self._workers, StoredStats(None)
        )

    def verify_index(self, progress: ProgressFn = no_progress) -> VerifiedIndex:
        """Measures everything again that the index remembers of this run; a difference empties the index."""
        right = unread = 0
        pairs = self.pairs()
        for number, (rank, step) in enumerate(pairs):
            progress(Progress(number, len(pairs), f"verifying the index: rank {rank} step {step}"))
            for found in self.measurements(rank, progress).verified(step):
                right, unread = right + (found is True), unread + (found is None)
                progress(Progress(number, len(pairs), f"verifying the index: rank {rank} step {step}"))
            if self._memory.lie:
                break
        return VerifiedIndex(right, unread, self._memory.lie)

    # -- following ---------------------------------------------------------------------------------

    def watch_paths(self) -> Sequence[Path]:
        return self._follower.watch_paths()

    def refresh(self) -> Changes:
        """Looks for changes on disk and drops results that they make stale."""
        changes = self._follower.refresh(self._checks.known_results)
        self._inventory.forget()
        if changes:
            self._own_cache = StatsCache()
            outdated = {*changes.grown_steps}
            kept = {pair: found for pair, found in self._losses.items() if pair not in outdated}
            self._losses = {pair: found for pair, found in kept.items() if pair[0] not in changes.rebuilt}
        return changes

    def close(self) -> None:
        """Stops the workers, writes new measurements to the index, closes the source. Idempotent."""
        self._workers.close()
        for rank_stats in self._cache.all_ranks():
            self._memory.keep(rank_stats.steps().values(), all_of_it=True)
        self._memory.close()
        self.source.close()


def open_dump(
    path: Path,
    *,
    workers: MeasureWorkers | None = None,
    remember: bool = True,
    keep_watchpoints: bool = False,
    source_map: Sequence[tuple[str, str]] = (),
    more: Sequence[Path] = (),
    enter_environments: bool = False,
) -> Session:
    """A session on the dump at a path, which the caller closes.

    ``workers`` default to as many threads as this process may use cores, when the work is worth it. ``remember`` uses
    the index of statistics in the user's cache directory; ``keep_watchpoints`` restores and keeps the watchpoints of
    this dump; ``more`` lists directories with further ranks of the same run. TdbgError: two directories have the same
    rank. NotADumpError: nothing recognisable, several runs, or a layout that cannot be read.
    """
    index = default_store(path) if remember else None
    source = open_sources((path, *more), index) if more else open_source(path, index)
    store = WatchpointStore(source.info.path) if keep_watchpoints else None
    return Session(
        source,
        store=store,
        source_map=source_map,
        workers=workers or MeasureWorkers(),
        index=index,
        enter_environments=enter_environments,
    )
