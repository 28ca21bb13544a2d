"""A debugging session: a source, a watchpoint list, and everything that front ends ask of them."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.errors import CancelledError, UnreadableTensorError
from tui_debugger.graph.search import NodeQuery, match, select
from tui_debugger.graph.stacks import StackIndex, stack_index
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import Tree, build_tree
from tui_debugger.model import (
    Frame,
    GraphRun,
    NodeSelection,
    Progress,
    ProgressFn,
    RunInfo,
    TensorKey,
    Verdict,
    Watchpoint,
    no_progress,
)
from tui_debugger.session.checking import Checker, PairResult
from tui_debugger.session.excerpt import read_excerpt
from tui_debugger.session.flow import Flow
from tui_debugger.session.records import RecordCache
from tui_debugger.session.results import ResultBook, merged, scaled
from tui_debugger.session.tensors import measured, tensor_rows
from tui_debugger.session.types import CheckResult, Pair, SourceExcerpt, TensorRow
from tui_debugger.session.watchpoints import WatchpointList, WatchpointStore
from tui_debugger.sources.base import Capability, Changes, Source

Mask = npt.NDArray[np.bool_]


class Session:
    """The façade of the headless core. Methods may be called from any thread; slow ones take ``progress``.

    Attributes:
        source: where the tensors come from.
        watchpoints: the list, kept in ``store`` when one is given.
    """

    def __init__(
        self,
        source: Source,
        *,
        store: WatchpointStore | None = None,
        source_map: Sequence[tuple[str, str]] = (),
        executor: Executor | None = None,
    ) -> None:
        """Cheap: nothing is read before it is asked for.

        Args:
            source: an open source; ``close`` closes it.
            store: keeps the watchpoints between sessions; None keeps nothing.
            source_map: (OLD, NEW) prefixes of source paths, tried in order.
            executor: where tensors are measured; None measures in the calling thread.
        """
        self.source = source
        self.watchpoints = WatchpointList(store)
        self._source_map = tuple(source_map)
        self._executor = executor
        self._lock = threading.RLock()
        self._cache = RecordCache()
        self._flows: dict[int, Flow] = {}
        self._book = ResultBook()
        self._trees: dict[int, tuple[NodeTable, Tree]] = {}
        self._stacks: dict[int, tuple[NodeTable, StackIndex]] = {}
        self._masks: dict[tuple[int, NodeSelection], tuple[NodeTable, Mask]] = {}
        self._checked_version = -1

    # -- the run -----------------------------------------------------------------------------------

    @property
    def info(self) -> RunInfo:
        """What was found."""
        return self.source.info

    @property
    def capabilities(self) -> Capability:
        """What the source can do beyond reading."""
        return self.source.capabilities

    def open(self, progress: ProgressFn = no_progress) -> None:
        """Does the slow part of opening: finds the ranks and loads the first rank's nodes and tree."""
        ranks = self.ranks()
        if ranks:
            progress(Progress(0, 0, f"rank {ranks[0]}: reading the graph"))
            self.source.nodes(ranks[0], progress)
            self.tree(ranks[0])

    def ranks(self) -> Sequence[int]:
        """Ranks, ascending."""
        return self.source.ranks()

    def steps(self, rank: int) -> Sequence[int]:
        """Dumped steps of a rank, ascending."""
        return self.source.steps(rank)

    def history(self, rank: int) -> Sequence[GraphRun]:
        """Run history of a rank."""
        return self.source.history(rank)

    def previous_step(self, rank: int, row: int, step: int) -> int | None:
        """The step before, in the root graph of a node."""
        return self.flow(rank).previous_step(row, step)

    def pairs(self, ranks: Iterable[int] | None = None, steps: Iterable[int] | None = None) -> tuple[Pair, ...]:
        """Every dumped (rank, step) among the given ranks and steps, by step then rank."""
        wanted = None if steps is None else set(steps)
        of_ranks = self.ranks() if ranks is None else tuple(ranks)
        found = [(rank, step) for rank in of_ranks for step in self.steps(rank) if wanted is None or step in wanted]
        return tuple(sorted(found, key=lambda pair: (pair[1], pair[0])))

    # -- nodes -------------------------------------------------------------------------------------

    def flow(self, rank: int) -> Flow:
        """The data flow of a rank."""
        with self._lock:
            if rank not in self._flows:
                self._flows[rank] = Flow(self.source, rank)
            return self._flows[rank]

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        """Node table of a rank."""
        return self.source.nodes(rank, progress)

    def tree(self, rank: int) -> Tree:
        """The scope tree of a rank's nodes."""
        nodes = self.source.nodes(rank)
        with self._lock:
            kept = self._trees.get(rank)
            if kept is None or kept[0] is not nodes:
                kept = self._trees[rank] = (nodes, build_tree(nodes))
            return kept[1]

    def stack_index(self, rank: int) -> StackIndex:
        """Source files and lines of a rank's nodes."""
        nodes = self.source.nodes(rank)
        with self._lock:
            kept = self._stacks.get(rank)
            if kept is None or kept[0] is not nodes:
                kept = self._stacks[rank] = (nodes, stack_index(nodes))
            return kept[1]

    def excerpt(self, frame: Frame, context: int = 4) -> SourceExcerpt | None:
        """Lines around a frame where the file exists on this machine, else None."""
        return read_excerpt(frame, self._source_map, context)

    def producers(self, rank: int, row: int) -> list[tuple[int, int]]:
        """(node row, output slot) that feeds each input of a node; row -1 where the graph does not say."""
        return [(holder.row, holder.slot) for holder in self.flow(rank).holders(row)]

    def consumers(self, rank: int, row: int) -> list[tuple[int, int]]:
        """(node row, input slot) of the nodes that read an output of a node."""
        return self.flow(rank).consumers(row)

    def select(self, rank: int, query: NodeQuery, step: int | None = None) -> Mask:
        """Node rows that a query keeps, its watched and hit parts included.

        Raises:
            BadQueryError: a regular expression that does not compile.
        """
        mask: Mask = match(self.nodes(rank), query).copy()
        if query.watched is not None:
            mask &= self.watch_state(rank, query.watched or None).astype(bool)
        if query.hit:
            mask &= self.hit_rows(rank, step)
        return mask

    def selection_mask(self, rank: int, selection: NodeSelection) -> Mask:
        """Node rows of a selection."""
        nodes = self.source.nodes(rank)
        key = (rank, selection)
        with self._lock:
            kept = self._masks.get(key)
            if kept is None or kept[0] is not nodes:
                kept = self._masks[key] = (nodes, select(nodes, selection))
            return kept[1]

    def watch_state(self, rank: int, watchpoint_id: int | None = None) -> npt.NDArray[np.uint8]:
        """1 per node row that the given watchpoint (None: any enabled one) covers."""
        chosen = (
            self.watchpoints.enabled()
            if watchpoint_id is None
            else tuple(w for w in (self.watchpoints.get(watchpoint_id),) if w is not None)
        )
        state = np.zeros(len(self.nodes(rank)), np.uint8)
        for watchpoint in chosen:
            state |= self.selection_mask(rank, watchpoint.selection).astype(np.uint8)
        return state

    def watched_count(self, selection: NodeSelection) -> int:
        """Nodes that a selection names, over all ranks whose nodes are the first rank's or loaded."""
        ranks = self.ranks()
        return int(self.selection_mask(ranks[0], selection).sum()) if ranks else 0

    def hit_rows(self, rank: int, step: int | None = None) -> Mask:
        """Node rows with a finding in the known results of a step (None: of every step)."""
        return self._book.rows_where(rank, step, len(self.nodes(rank)), lambda hit: hit.verdict is Verdict.FINDING)

    def origin_rows(self, rank: int, step: int | None = None) -> Mask:
        """Node rows where something bad starts, in the known results of a step (None: of every step)."""
        return self._book.rows_where(rank, step, len(self.nodes(rank)), lambda hit: hit.origin)

    # -- tensors -----------------------------------------------------------------------------------

    def tensor_rows(self, rank: int, step: int, row: int) -> tuple[TensorRow, ...]:
        """Inputs, outputs and parameters of a node at a step; lists, reads nothing."""
        known = self._book.latest((rank, step))
        hits = {hit.key for hit in known.hits if hit.verdict is Verdict.FINDING} if known else set()
        return tensor_rows(self.flow(rank), step, row, hits.__contains__)

    def measure(self, rows: Sequence[TensorRow], progress: ProgressFn = no_progress) -> tuple[TensorRow, ...]:
        """The rows (all of one rank) with dtype, shape, statistics or the reason why not."""
        if not rows:
            return ()
        rank = rows[0].key.rank
        return measured(self._checker(rank, ()), rows, progress)

    def read(self, key: TensorKey) -> npt.NDArray[Any]:
        """The values of a tensor, memory-mapped and read-only.

        Raises:
            UnreadableTensorError: it was not dumped, or its file is broken.
        """
        from tui_debugger.analysis.npy import open_array

        row = self.nodes(key.rank).find(key.node, key.graph)
        table = self.source.tensors(key.rank, key.step)
        index = table.find(row, key.side, key.slot) if row >= 0 else -1
        if index < 0 or not self.flow(key.rank).has_values(table, index):
            raise UnreadableTensorError(
                "this tensor was not dumped",
                where=f"rank {key.rank} step {key.step} {key.node} {key.side.label}:{key.slot}",
                hint="choose a step in which its node ran, or dump with input_output 0 and saved_data tensor",
            )
        return open_array(table.spec(index))

    def save_npy(self, key: TensorKey, path: Path) -> Path:
        """Writes a tensor as .npy; refuses to overwrite and to write inside the dump.

        Raises:
            UnreadableTensorError: the tensor cannot be read.
            TdbgError: the file exists, lies inside the dump, or cannot be written.
        """
        from tui_debugger.session.export import save_npy

        return save_npy(self.read(key), path, Path(self.info.path))

    # -- checking ----------------------------------------------------------------------------------

    def recommended(self) -> tuple[Watchpoint, ...]:
        """The recommended watchpoints for the first rank's nodes, with id 0; add them to use them."""
        from tui_debugger.analysis.recommend import recommended

        ranks = self.ranks()
        if not ranks:
            return ()
        nodes = self.nodes(ranks[0])
        return recommended(nodes.category, [nodes.op_type(row) for row in range(len(nodes))], device=self.info.device)

    def add_recommended(self) -> int:
        """Adds the recommended watchpoints that are not in the list yet; returns how many."""
        present = {(w.condition, w.params, w.selection) for w in self.watchpoints.items()}
        added = 0
        for watchpoint in self.recommended():
            if (watchpoint.condition, watchpoint.params, watchpoint.selection) not in present:
                self.watchpoints.add(watchpoint.condition, watchpoint.params, watchpoint.selection, watchpoint.name)
                added += 1
        return added

    @property
    def outdated(self) -> bool:
        """Whether the watchpoint list changed since the last check (or was never checked)."""
        return self._checked_version != self.watchpoints.version

    def check(
        self,
        pairs: Sequence[Pair],
        progress: ProgressFn = no_progress,
        on_result: Callable[[CheckResult], None] | None = None,
    ) -> CheckResult:
        """Checks (rank, step) pairs with the enabled watchpoints; what is known and fresh is not judged again.

        ``progress`` may raise CancelledError: the result then holds what was finished and says so.
        ``on_result`` gets the result of every finished pair while the rest is still running.
        """
        version, watchpoints = self.watchpoints.version, self.watchpoints.enabled()
        started, finished, cancelled = time.monotonic(), [], False
        for number, pair in enumerate(pairs):
            try:
                result = self._book.fresh(pair, version) or self._check_pair(
                    pair, version, watchpoints, scaled(progress, number, len(pairs))
                )
            except CancelledError:
                cancelled = True
                break
            finished.append((pair, result))
            if on_result is not None:
                on_result(merged([(pair, result)], watchpoints, version, 0.0, False))
        self._checked_version = version
        return merged(finished, watchpoints, version, time.monotonic() - started, cancelled)

    def known(self, pairs: Sequence[Pair]) -> CheckResult | None:
        """Fresh results of every pair, or None when one is missing or outdated."""
        version = self.watchpoints.version
        found = [(pair, self._book.fresh(pair, version)) for pair in pairs]
        results = [(pair, result) for pair, result in found if result is not None]
        if len(results) != len(found):
            return None
        return merged(results, self.watchpoints.enabled(), version, 0.0, False)

    def cost(self, pairs: Sequence[Pair]) -> int:
        """Bytes that checking the pairs would read."""
        version, watchpoints = self.watchpoints.version, self.watchpoints.enabled()
        open_pairs = [pair for pair in pairs if self._book.fresh(pair, version) is None]
        return sum(self._checker(rank, watchpoints).cost(step) for rank, step in open_pairs)

    def next_step_with_hit(
        self, ranks: Sequence[int], after_step: int, progress: ProgressFn = no_progress
    ) -> CheckResult | None:
        """Checks the steps after a step, in order, until one has a finding; its result, or None.

        Raises:
            CancelledError: from ``progress``.
        """
        steps = sorted({step for rank in ranks for step in self.steps(rank) if step > after_step})
        for number, step in enumerate(steps):
            result = self.check(self.pairs(ranks, (step,)), scaled(progress, number, len(steps)))
            if result.cancelled:
                raise CancelledError("stopped", where=f"step {step}")
            if any(hit.verdict is Verdict.FINDING for hit in result.hits):
                return result
        return None

    def _check_pair(
        self, pair: Pair, version: int, watchpoints: Sequence[Watchpoint], progress: ProgressFn
    ) -> PairResult:
        rank, step = pair
        result = self._checker(rank, watchpoints).check(step, progress)
        self._book.put(pair, version, result)
        return result

    def _checker(self, rank: int, watchpoints: Sequence[Watchpoint]) -> Checker:
        return Checker(
            self.flow(rank), self._cache, watchpoints, lambda w: self.selection_mask(rank, w.selection), self._executor
        )

    # -- following ---------------------------------------------------------------------------------

    def refresh(self) -> Changes:
        """Looks for what is new on disk and forgets what it makes stale."""
        changes = self.source.refresh()
        healed = self._cache.heal()
        if healed:
            changes = dataclasses.replace(changes, grown_steps=tuple(sorted({*changes.grown_steps, *healed})))
        if changes:
            grown = {*changes.grown_steps, *changes.new_steps}
            for rank in changes.rebuilt:
                self._book.drop_from(rank, 0)
                self._cache.forget(rank)
            for rank in {rank for rank, _ in grown}:
                first = min(step for of, step in grown if of == rank)
                self._book.drop_from(rank, first)
                if any(step > first for step in self.steps(rank)):
                    self._cache.forget_changes(rank)
        return changes

    def close(self) -> None:
        """Closes the source. Idempotent."""
        self.source.close()
