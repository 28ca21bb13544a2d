"""The health of every node at every step: the results of checks as a sparse map, steps across and scopes down."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.graph.build import Rows, together
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import Tree, build_tree
from tui_debugger.model import (
    Coverage,
    Hit,
    Progress,
    ProgressFn,
    Side,
    TensorKey,
    UnreadablePart,
    Watchpoint,
    no_progress,
    turn_of,
)
from tui_debugger.session.checking import PairResult
from tui_debugger.session.hits import HitList
from tui_debugger.session.live_checks import ReceivedHits, bad_tensors
from tui_debugger.session.origin.search import OVERFLOW_ANYWHERE
from tui_debugger.session.results import combined
from tui_debugger.session.session import Session
from tui_debugger.session.types import CheckResult, Pair
from tui_debugger.session.undisturbed import undisturbed
from tui_debugger.session.unreadable import is_closed
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.health import WORTH_A_LOOK, Codes, Health, codes_of, worst_within
from tui_debugger.text.health import covered_text

_CONSTANT = int(TensorFlag.CONSTANT)


class HealthChecks:
    """The checks that a map is made of: the session's own, or, without an enabled watchpoint, for NaN and Inf."""

    def __init__(self, session: Session) -> None:
        """Reads nothing; which watchpoints count is decided now."""
        self.by_default = not session.watchpoints.enabled()
        self._session = session
        self._checks = session.checks([OVERFLOW_ANYWHERE] if self.by_default else None)

    @property
    def watchpoints(self) -> tuple[Watchpoint, ...]:
        """Those that judge."""
        return self._checks.listed()[1]

    def result(self, pair: Pair) -> PairResult | None:
        """What a pair was found to be by the watchpoints as they are; None when nobody looked."""
        return self._checks.book.fresh(pair, self._checks.listed()[0])

    def unreadable(self, pairs: Sequence[Pair]) -> tuple[UnreadablePart, ...]:
        """What of some pairs could not be looked at."""
        return self._checks.unreadable(pairs, self.watchpoints)

    def missing(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs that nobody looked at."""
        return [pair for pair in pairs if self.result(pair) is None]

    def forget_from(self, rank: int, steps: Collection[int]) -> None:
        """The files of some steps changed (none: of all): what was found there and later does not hold any more."""
        if self.by_default:  # the session looks after its own
            self._checks.book.keep_only(rank, self._session.steps_before(rank, steps) if steps else ())

    def check(self, pairs: Sequence[Pair], progress: ProgressFn = no_progress) -> CheckResult:
        """Judges pairs that are not known yet. See ``Session.check``, also for ``progress`` that cancels."""
        return self._checks.check(pairs, progress, None)


@dataclass(frozen=True, eq=False)
class CheckedPair:
    """One checked step of one rank.

    Attributes:
        base: number of the array in ``HealthMap.bases`` that says what was dumped and judged.
        at: tree index of every tensor that has something to say, ascending.
        codes: its health.
        which: its number in ``hits``.
        hits: the result's.
        coverage: the result's.
    """

    base: int
    at: Int64
    codes: Codes
    which: Int64
    hits: HitList
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the map, or several merged into one.

    Attributes:
        health: the worst in it.
        pair: (rank, step) of the worst, of equals the first; of a cell without findings the first dumped one.
        hit: what was found on the worst tensor.
        counts: how many tensors are how bad, worst first.
        nodes: how many nodes the scope has.
        judged, dumped: how many of them were judged, and dumped, where most were.
        checked, pairs: how many of its (rank, step) were checked, and how many were dumped.
    """

    health: Health
    pair: Pair | None
    hit: Hit | None
    counts: tuple[tuple[Health, int], ...]
    nodes: int
    judged: int
    dumped: int
    checked: int
    pairs: int


@dataclass(frozen=True, eq=False)
class HealthMap:
    """Immutable. Findings are columns per pair; what is drawn is computed for what is in sight.

    Attributes:
        nodes: the nodes of all ranks.
        tree: their scopes.
        shown: mask over tree indices: what can have tensors, and is in scope.
        ranks: ascending.
        steps: those that some rank dumped, in the order in which they began to run.
        pairs: every dumped (rank, step); None when it was not checked.
        bases: over tree indices: ABSENT, NOT_JUDGED or CLEAN, for scopes the best of what is in them; UNREADABLE where
            nothing is known because the step's directory could not be listed.
        watchpoints: those that judged.
        by_default: whether they are only there because the session has none.
        parts: what of the pairs could not be looked at.
    """

    nodes: NodeTable
    tree: Tree
    shown: Mask
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    pairs: Mapping[Pair, CheckedPair | None]
    bases: tuple[Codes, ...]
    watchpoints: tuple[Watchpoint, ...]
    by_default: bool
    parts: tuple[UnreadablePart, ...] = ()

    def cells(self, entries: Int64, steps: Sequence[int], ranks: Sequence[int]) -> Codes:
        """[entry, step]: the worst over some ranks. ``entries`` are tree indices."""
        first, size = np.asarray(entries, np.int64), self.tree.size[entries].astype(np.int64)
        cells = np.zeros((len(first), len(steps)), np.uint8)
        grounds = [base[first] for base in self.bases]
        for column, step in enumerate(steps):
            for rank in ranks:
                if (rank, step) not in self.pairs:
                    continue
                pair = self.pairs[rank, step]
                if pair is None:
                    np.maximum(cells[:, column], np.uint8(Health.UNCHECKED), out=cells[:, column])
                    continue
                np.maximum(cells[:, column], grounds[pair.base], out=cells[:, column])
                if len(pair.at):
                    found = worst_within(pair.at, pair.codes, first, size)
                    np.maximum(cells[:, column], found, out=cells[:, column])
        return cells

    def noteworthy(self, ranks: Sequence[int]) -> Mask:
        """Tree indices of nodes with findings, or that could not be judged, and of the scopes around them."""
        rows = np.zeros(len(self.nodes), np.bool_)
        for (rank, _), pair in self.pairs.items():
            if pair is not None and rank in ranks:
                rows[self.tree.row[pair.at[pair.codes >= WORTH_A_LOOK]]] = True
        return self.tree.keep_mask(rows) & self.shown

    def cell(self, entry: int, steps: Sequence[int], ranks: Sequence[int]) -> Cell:
        """Everything about one cell."""
        first, stop = entry, entry + int(self.tree.size[entry])
        health, best, hit = Health.ABSENT, None, None
        counts = np.zeros(len(Health), np.int64)
        judged = dumped = checked = dumped_pairs = 0
        for step in steps:
            for rank in ranks:
                if (rank, step) not in self.pairs:
                    continue
                dumped_pairs += 1
                pair = self.pairs[rank, step]
                if pair is None:
                    health, best = (Health.UNCHECKED, (rank, step)) if health < Health.UNCHECKED else (health, best)
                    continue
                checked += 1
                inside = slice(*np.searchsorted(pair.at, (first, stop)).tolist())
                codes, which = pair.codes[inside], pair.which[inside]
                counts += np.bincount(codes, minlength=len(Health))
                ground = self.bases[pair.base][first:stop][self.tree.row[first:stop] >= 0]
                judged = max(judged, int((ground == Health.CLEAN).sum()))
                dumped = max(dumped, int(((ground == Health.NOT_JUDGED) | (ground == Health.CLEAN)).sum()))
                worst = Health(max(int(self.bases[pair.base][entry]), int(codes.max(initial=0))))
                if worst > health or best is None:
                    health, best, hit = max(worst, health), (rank, step), None
                    if len(codes) and worst == codes.max() and worst >= WORTH_A_LOOK:
                        hit = pair.hits[int(which[codes == worst].min())]
        known = [(each, int(counts[each])) for each in reversed(Health) if each >= WORTH_A_LOOK and counts[each]]
        below = int((self.tree.row[first:stop] >= 0).sum())
        return Cell(health, best, hit, tuple(known), below, judged, dumped, checked, dumped_pairs)

    @cached_property
    def coverage(self) -> Coverage:
        """What all the checks together looked at."""
        return combined([pair.coverage for pair in self.pairs.values() if pair is not None])

    @cached_property
    def findings(self) -> int:
        """Tensors with a finding."""
        return sum(pair.hits.findings for pair in self.pairs.values() if pair is not None)

    @cached_property
    def vague(self) -> bool:
        """Whether there is NaN or Inf of which nobody knows which of the two."""
        return any(bool((pair.codes == Health.NOT_FINITE).any()) for pair in self.pairs.values() if pair is not None)

    @property
    def missing(self) -> list[Pair]:
        """The pairs that were not checked."""
        return [pair for pair, checked in self.pairs.items() if checked is None]

    def covered_text(self) -> str:
        """What it speaks of, in words."""
        coverage = self.coverage
        return covered_text(
            tensors=coverage.checked,
            checked=len(coverage.steps),
            pairs=len(self.pairs),
            ranks=len(self.ranks),
            findings=self.findings,
            unreadable=coverage.unreadable,
            not_comparable=coverage.not_comparable,
            parts=len(self.parts),
        )


def health(
    session: Session,
    checks: HealthChecks,
    pairs: Sequence[Pair] | None = None,
    progress: ProgressFn = no_progress,
) -> HealthMap:
    """The map of what is known; judges nothing and reads no values.

    Args:
        session: the run.
        checks: whose results; ``checks.check`` adds some.
        pairs: of which (rank, step); None: all.
        progress: see ``ProgressFn``.
    """
    chosen = session.pairs() if pairs is None else tuple(pairs)
    return undisturbed(lambda: _Making(session, checks, chosen, progress).map())


def tensor_of(session: Session, nodes: NodeTable, row: int, pair: Pair) -> tuple[TensorKey, int]:
    """The first output (else input) of a node that was dumped, and the node's row in its rank; -1 where it is not.

    Args:
        session: the run.
        nodes: the table of the map.
        row: in that table.
        pair: where.
    """
    rank, step = pair
    graph, name = nodes.graph_of(row).name, nodes.names[row]

    def placed() -> tuple[TensorKey, int]:
        flow = session.flow(rank)
        table = flow.table(step)
        own = flow.nodes.find(name, graph)
        found = table.of_node(own).tolist()
        outputs = [index for index in found if int(table.side[index]) == Side.OUTPUT]
        index = next(iter(outputs or found), -1)
        side, slot = (Side(int(table.side[index])), int(table.slot[index])) if index >= 0 else (Side.OUTPUT, 0)
        number = int(table.round[index]) if index >= 0 else 0
        return TensorKey(rank, graph, name, side, slot, step, number), own

    return undisturbed(placed)


class _Making:
    """Puts a map together."""

    def __init__(self, session: Session, checks: HealthChecks, pairs: Sequence[Pair], progress: ProgressFn) -> None:
        self._session = session
        self._checks = checks
        self._pairs = pairs
        self._progress = progress
        self._numbers: dict[tuple[bytes, ...], int] = {}
        self._bases: list[Codes] = []

    def map(self) -> HealthMap:
        ranks = tuple(dict.fromkeys(rank for rank, _ in sorted(self._pairs)))
        results = {pair: self._checks.result(pair) for pair in self._pairs}
        dumped = self._dumped({pair for pair, result in results.items() if result is not None})
        tables = {rank: self._session.nodes(rank) for rank in ranks or tuple(self._session.ranks())[:1]}
        parts = self._checks.unreadable(list(results))
        nodes, rows = together(tables)
        tree = nodes.memo(build_tree)
        index = np.zeros(len(nodes), np.int64)
        leaves = np.flatnonzero(tree.row >= 0)
        index[tree.row[leaves]] = leaves
        found: dict[Pair, CheckedPair | None] = {}
        for pair, result in results.items():
            known = result is not None and _speaks_of(result, tables[pair[0]])
            moved = partial(_moved, rows[pair[0]])
            if result is None or not known:
                found[pair] = None
                continue
            own = dumped[pair], _rows_of(result.judged, len(tables[pair[0]])), self._unlisted(parts, pair, dumped)
            found[pair] = self._checked(result, own, moved, tree, index)
        return HealthMap(
            nodes=nodes,
            tree=tree,
            shown=tree.keep_mask(nodes.watchable & self._in_scope(tables, rows, len(nodes))),
            ranks=ranks,
            steps=self._in_order(),
            pairs=found,
            bases=tuple(self._bases),
            watchpoints=self._checks.watchpoints,
            by_default=self._checks.by_default,
            parts=parts,
        )

    def _in_order(self) -> tuple[int, ...]:
        first: dict[int, int] = {}
        spans = {rank: self._session.turn_spans(rank) for rank in {rank for rank, _ in self._pairs}}
        for rank, step in self._pairs:
            begin = spans[rank].get(step, (turn_of(step), 0))[0]
            first[step] = min(first.get(step, begin), begin)
        return tuple(sorted(first, key=lambda step: (first[step], step)))

    def _dumped(self, pairs: set[Pair]) -> dict[Pair, Int64]:
        """Node rows with a tensor that can be watched, by pair; what was checked has been listed already."""
        flows = {rank: self._session.flow(rank, self._progress) for rank in {rank for rank, _ in pairs}}
        found: dict[Pair, Int64] = {}
        same: dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], Int64]] = {}
        for number, (rank, step) in enumerate(sorted(pairs)):
            if not number % 64:
                self._progress(Progress(number, len(pairs), "putting the map together"))
            table = flows[rank].table(step)
            last = same.get(rank)
            if last is None or last[0] is not table.node or last[1] is not table.flags:
                rows = np.unique(table.node[(table.flags & _CONSTANT) == 0]).astype(np.int64)
                last = same[rank] = (table.node, table.flags, rows)
            found[rank, step] = last[2]
        return found

    def _unlisted(self, parts: Sequence[UnreadablePart], pair: Pair, dumped: Mapping[Pair, Int64]) -> Int64:
        """Node rows that may have been dumped in a directory that could not be listed, as in others of the rank."""
        rank, step = pair
        if not any(part.rank == rank and part.step in (None, step) and not part.graph for part in parts):
            return np.zeros(0, np.int64)
        nodes = self._session.nodes(rank)
        closed = [is_closed(parts, rank, info.root_id, step) for info in nodes.graphs]
        mask = np.zeros(len(nodes), np.bool_)
        for (of, _), rows in dumped.items():
            mask[rows if of == rank else []] = True
        mask = (mask if mask.any() else nodes.watchable) & np.array(closed or [False])[nodes.graph]
        mask[dumped[pair]] = False
        return np.flatnonzero(mask)

    def _in_scope(self, tables: Mapping[int, NodeTable], rows: Mapping[int, Rows | None], count: int) -> Mask:
        mask = np.zeros(count, np.bool_)
        for rank in tables:
            mask[_moved(rows[rank], np.flatnonzero(self._session.in_scope(rank)))] = True
        return mask

    def _checked(
        self, result: PairResult, own: tuple[Int64, Int64, Int64], moved: partial[Int64], tree: Tree, index: Int64
    ) -> CheckedPair:
        """``own`` are the rank's rows that were dumped, judged, and not listed; ``index`` is the tree index of each."""
        hits = result.hits
        codes = codes_of(hits.verdict, hits.origin, *_counts(hits))
        which = np.flatnonzero(codes)
        at = index[moved(hits.node[which])]
        order = np.argsort(at, kind="stable")
        base = self._base(tree, *map(moved, own))
        return CheckedPair(base, at[order], codes[which][order], which[order], hits, result.coverage)

    def _base(self, tree: Tree, dumped: Int64, judged: Int64, unlisted: Int64) -> int:
        """The number of what was dumped, judged and not listed; most steps of a run share one."""
        key = (dumped.tobytes(), judged.tobytes(), unlisted.tobytes())
        number = self._numbers.setdefault(key, len(self._bases))
        if number == len(self._bases):
            base = np.full(len(tree), Health.ABSENT, np.uint8)
            known = ((dumped, Health.NOT_JUDGED), (judged, Health.CLEAN), (unlisted, Health.UNREADABLE))
            for rows, code in known:
                mask = np.zeros(len(tree.paths), np.bool_)
                mask[rows] = True
                base[tree.any_below(mask)] = code
            self._bases.append(base)
        return number


def _speaks_of(result: PairResult, nodes: NodeTable) -> bool:
    """Whether a result's rows are those of a table: nodes may have been read anew since it was made."""
    return all(part.nodes.lineage is nodes.lineage and len(part.nodes) <= len(nodes) for part in result.hits.parts)


def _moved(rows: Rows | None, own: Int64) -> Int64:
    """Rows of a rank's own table as rows of the map's."""
    return own if rows is None else rows[own]


def _rows_of(bits: npt.NDArray[np.uint8], count: int) -> Int64:
    return np.flatnonzero(np.unpackbits(bits)[:count])


def _counts(hits: HitList) -> tuple[Int64, Int64, Mask]:
    """NaN and Inf of every hit, and whether a training only said that there are some."""
    nan, inf, bad = np.zeros(len(hits), np.int64), np.zeros(len(hits), np.int64), np.zeros(len(hits), np.bool_)
    for part, places, at in hits.by_step():
        rows = part.records.rows[at]
        nan[places] = rows["nan"]
        inf[places] = rows["pos_inf"] + rows["neg_inf"]
        if isinstance(part, ReceivedHits):
            bad[places] = bad_tensors(part)[at]
    return nan, inf, bad
