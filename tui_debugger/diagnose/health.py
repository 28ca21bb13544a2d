"""The health of nodes over steps: the results of checks as a sparse map, steps across and scopes down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.check.hits import HitList
from tui_debugger.check.progress import retry_when_renumbered
from tui_debugger.check.results import combined, counted_parts, is_closed
from tui_debugger.check.step import PairResult
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.diagnose.origin.search import OVERFLOW_ANYWHERE
from tui_debugger.diagnose.run import DiagnosedRun, ranks_of
from tui_debugger.graph.build import Rows, together
from tui_debugger.graph.table import NodeTable
from tui_debugger.graph.tree import ScopeTree, build_tree
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
from tui_debugger.sources.base import TensorFlag
from tui_debugger.stats.health import WORTH_A_LOOK, Codes, Health, codes_of, even_bounds, worst_of_groups, worst_within
from tui_debugger.text.clean import clean
from tui_debugger.text.health import GLYPHS, WORDS, column_width, covered_text, header, span_text
from tui_debugger.text.hits import hit_text, said_words, watch_line
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import place_text, slot_text, step_text

_CONSTANT = int(TensorFlag.CONSTANT)


class HealthChecks:
    """The checks behind a map: the session's own, or checks for NaN and Inf where no watchpoint is enabled."""

    def __init__(self, session: DiagnosedRun) -> None:
        self.by_default = not session.watchpoints.enabled()
        self._session = session
        self._checks = session.checks([OVERFLOW_ANYWHERE] if self.by_default else None)

    @property
    def watchpoints(self) -> tuple[Watchpoint, ...]:
        return self._checks.listed()[1]

    def result(self, pair: Pair) -> PairResult | None:
        """Returns the result of a pair by the present watchpoints; None when it was not checked."""
        return self._checks.known_results.fresh(pair, self._checks.listed()[0])

    def unreadable(self, pairs: Sequence[Pair]) -> tuple[UnreadablePart, ...]:
        return self._checks.unreadable(pairs)

    def missing(self, pairs: Sequence[Pair]) -> list[Pair]:
        return [pair for pair in pairs if self.result(pair) is None]

    def forget_from(self, rank: int, steps: Collection[int]) -> None:
        """Forgets results from changed steps on (none: of all steps)."""
        if self.by_default:  # the session keeps its own results up to date
            self._checks.known_results.keep_only(rank, self._session.steps_before(rank, steps) if steps else ())

    def check(self, pairs: Sequence[Pair], progress: ProgressFn = no_progress) -> CheckResult:
        """Judges pairs that are not known yet. See ``Session.check``, also for ``progress`` that cancels."""
        return self._checks.check(pairs, progress, None)


@dataclass(frozen=True, eq=False)
class CheckedPair:
    """One checked step of one rank; ``base`` is the index in ``HealthMap.bases`` of what was dumped and judged.

    Of each tensor that is not clean: ``at`` is its tree index (ascending), ``codes`` its health, ``which`` its index in
    ``hits``.
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
        pair: (rank, step) of the worst, the first of equals; without findings, the first dumped one.
        hit: the finding on the worst tensor.
        counts: number of tensors by health, worst first.
        nodes: number of nodes in the scope.
        judged, dumped: the most nodes that were judged, and dumped, in one pair.
        checked, pairs: number of its (rank, step) that were checked, and dumped.
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
    """Immutable. Findings are columns for each pair; cells are computed only for the visible part.

    Attributes:
        nodes: the nodes of all ranks.
        tree: their scopes.
        shown: mask over tree indices: entries that can have tensors, and are in scope.
        ranks: ascending.
        steps: dumped by some rank, in the order in which they began to run.
        pairs: all dumped (rank, step); None when not checked.
        bases: over tree indices: ABSENT, NOT_JUDGED or CLEAN (for scopes the best below); UNREADABLE where the step's
            directory could not be listed.
        by_default: the session has no watchpoints of its own.
        parts: what of the pairs could not be read.
    """

    nodes: NodeTable
    tree: ScopeTree
    shown: Mask
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    pairs: Mapping[Pair, CheckedPair | None]
    bases: tuple[Codes, ...]
    watchpoints: tuple[Watchpoint, ...]
    by_default: bool
    parts: tuple[UnreadablePart, ...] = ()

    def cells(self, entries: Int64, steps: Sequence[int], ranks: Sequence[int]) -> Codes:
        """Worst health over some ranks, of shape (entry, step); ``entries`` are tree indices."""
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
        """Mask over tree indices: nodes with findings, or that could not be judged, and the scopes around them."""
        rows = np.zeros(len(self.nodes), np.bool_)
        for (rank, _), pair in self.pairs.items():
            if pair is not None and rank in ranks:
                rows[self.tree.row[pair.at[pair.codes >= WORTH_A_LOOK]]] = True
        return self.tree.keep_mask(rows) & self.shown

    def cell(self, entry: int, steps: Sequence[int], ranks: Sequence[int]) -> Cell:
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
        return combined([pair.coverage for pair in self.pairs.values() if pair is not None])

    @cached_property
    def findings(self) -> int:
        return sum(pair.hits.findings for pair in self.pairs.values() if pair is not None)

    @cached_property
    def vague(self) -> bool:
        """Some findings are known as not finite, without telling NaN from Inf."""
        return any(bool((pair.codes == Health.NOT_FINITE).any()) for pair in self.pairs.values() if pair is not None)

    @property
    def missing(self) -> list[Pair]:
        return [pair for pair, checked in self.pairs.items() if checked is None]

    def covered_text(self) -> str:
        coverage = self.coverage
        each = Counter(rank for rank, _ in self.pairs)
        return covered_text(
            tensors=coverage.checked,
            checked=len(coverage.steps),
            pairs=len(self.pairs),
            ranks=len(self.ranks),
            each=max(each.values()) if len(set(each.values())) == 1 else 0,
            findings=self.findings,
            unreadable=coverage.unreadable,
            not_comparable=coverage.not_comparable,
            parts=counted_parts(self.parts),
        )


def health(
    session: DiagnosedRun,
    checks: HealthChecks,
    pairs: Sequence[Pair] | None = None,
    progress: ProgressFn = no_progress,
) -> HealthMap:
    """The map of known results, for some (rank, step) or all; judges nothing and reads no values."""
    chosen = session.pairs() if pairs is None else tuple(pairs)
    return retry_when_renumbered(lambda: _MapBuilder(session, checks, chosen, progress).map())


def tree_indices(nodes: NodeTable) -> Int64:
    return nodes.memo(_tree_indices)


def _tree_indices(nodes: NodeTable) -> Int64:
    tree = nodes.memo(build_tree)
    index = np.zeros(len(nodes), np.int64)
    leaves = np.flatnonzero(tree.row >= 0)
    index[tree.row[leaves]] = leaves
    return index


def tensor_of(session: DiagnosedRun, nodes: NodeTable, row: int, pair: Pair) -> tuple[TensorKey, int]:
    """The first dumped output (else input) of a node of the map, and the node's row in its rank (-1: missing)."""
    rank, step = pair
    graph, name = nodes.graph_of(row).name, nodes.names[row]

    def located() -> tuple[TensorKey, int]:
        flow = session.flow(rank)
        table = flow.table(step)
        own = flow.nodes.find(name, graph)
        found = table.of_node(own).tolist()
        outputs = [index for index in found if int(table.side[index]) == Side.OUTPUT]
        index = next(iter(outputs or found), -1)
        side, slot = (Side(int(table.side[index])), int(table.slot[index])) if index >= 0 else (Side.OUTPUT, 0)
        number = int(table.round[index]) if index >= 0 else 0
        return TensorKey(rank, graph, name, side, slot, step, number), own

    return retry_when_renumbered(located)


class _MapBuilder:
    def __init__(
        self, session: DiagnosedRun, checks: HealthChecks, pairs: Sequence[Pair], progress: ProgressFn
    ) -> None:
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
        tables = {rank: self._session.nodes(rank) for rank in ranks or ranks_of(self._session)[:1]}
        parts = self._checks.unreadable(list(results))
        nodes, rows = together(tables)
        tree = nodes.memo(build_tree)
        index = tree_indices(nodes)
        found: dict[Pair, CheckedPair | None] = {}
        for pair, result in results.items():
            table = tables[pair[0]]
            if result is None or not _is_about(result, table):
                found[pair] = None
                continue
            judged = np.flatnonzero(np.unpackbits(result.judged)[: len(table)])
            own = dumped[pair], judged, self._unlisted(parts, pair, dumped)
            found[pair] = self._checked(result, own, partial(_moved, rows[pair[0]]), tree, index)
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
        """By pair, the rows of nodes with a tensor that can be watched; checked pairs are listed already."""
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
        """Rows of nodes that an unlisted directory may hold, because other steps of the rank have them."""
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
        self, result: PairResult, own: tuple[Int64, Int64, Int64], moved: partial[Int64], tree: ScopeTree, index: Int64
    ) -> CheckedPair:
        """``own`` are the rank's rows that were dumped, judged, and not listed; ``index`` has tree indices of nodes."""
        hits = result.hits
        codes = codes_of(hits.verdict, hits.origin, *_counts(hits))
        which = np.flatnonzero(codes)
        at = index[moved(hits.node[which])]
        order = np.argsort(at, kind="stable")
        base = self._base(tree, *map(moved, own))
        return CheckedPair(base, at[order], codes[which][order], which[order], hits, result.coverage)

    def _base(self, tree: ScopeTree, dumped: Int64, judged: Int64, unlisted: Int64) -> int:
        """The index of a base; most steps of a run share one."""
        key = (dumped.tobytes(), judged.tobytes(), unlisted.tobytes())
        number = self._numbers.setdefault(key, len(self._bases))
        if number == len(self._bases):
            base = np.full(len(tree), Health.ABSENT, np.uint8)
            known = ((dumped, Health.NOT_JUDGED), (judged, Health.CLEAN), (unlisted, Health.UNREADABLE))
            for rows, code in known:
                mask = np.zeros(len(tree.paths), np.bool_)
                mask[rows] = True
                base[tree.keep_mask(mask)] = code
            self._bases.append(base)
        return number


def _is_about(result: PairResult, nodes: NodeTable) -> bool:
    """Tells whether a result's rows are those of a table: nodes may have been read anew since."""
    return all(part.nodes.lineage is nodes.lineage and len(part.nodes) <= len(nodes) for part in result.hits.parts)


def _moved(rows: Rows | None, own: Int64) -> Int64:
    """Translates rows of a rank's own table into rows of the map's table."""
    return own if rows is None else rows[own]


def _counts(hits: HitList) -> tuple[Int64, Int64, Mask]:
    """NaN and Inf of each hit, and whether a live training only said that there are some."""
    nan, inf, bad = np.zeros(len(hits), np.int64), np.zeros(len(hits), np.int64), np.zeros(len(hits), np.bool_)
    for part, places, at in hits.by_step():
        rows = part.records.rows[at]
        nan[places] = rows["nan"]
        inf[places] = rows["pos_inf"] + rows["neg_inf"]
        bad[places] = part.bad()[at]
    return nan, inf, bad


@dataclass(frozen=True, slots=True, eq=False)
class StepColumns:
    """The steps of a map, laid out in columns; column i has ``steps[bounds[i]:bounds[i + 1]]``."""

    steps: Sequence[int]
    bounds: Int64
    labels: tuple[str, ...]
    width: int

    @classmethod
    def laid_out(cls, steps: Sequence[int], room: int, *, fit: bool) -> StepColumns:
        """Columns for a width; without ``fit``, one for each step even if they are too many."""
        bounds = even_bounds(len(steps), room if fit else len(steps))
        groups = [steps[first:stop] for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        groups = [group for group in groups if group]
        spans = [span_text(group) for group in groups]
        # Where not all columns have room for a span, its first step must do.
        labels = spans if column_width(spans, room) > 2 else [step_text(group[0]) for group in groups]
        return cls(steps, bounds, tuple(labels), column_width(labels, room))

    def __len__(self) -> int:
        return len(self.labels)

    def of(self, column: int) -> Sequence[int]:
        return self.steps[int(self.bounds[column]) : int(self.bounds[column + 1])]

    def at(self, step: int) -> int:
        """The column of a step, or of the nearest one after it."""
        place = self._place(step)
        return max(int(np.searchsorted(self.bounds, place, side="right")) - 1, 0)

    def _place(self, step: int) -> int:
        """The index of a step among the steps, which need not be ascending."""
        steps = np.asarray(self.steps)
        later = np.flatnonzero(steps >= step)
        return int(later[np.argmin(steps[later])]) if len(later) else max(len(steps) - 1, 0)

    @property
    def most(self) -> int:
        """The number of steps in the fullest column."""
        return int(np.diff(self.bounds).max(initial=0))

    def cells(self, map_: HealthMap, entries: Int64, ranks: Sequence[int], first: int, stop: int) -> Codes:
        """Codes of shape (entry, column), for columns from ``first`` to ``stop``."""
        low, high = int(self.bounds[first]), int(self.bounds[stop])
        if high <= low:
            return np.zeros((len(entries), 0), np.uint8)
        codes = self.codes_of(map_, entries, self.steps[low:high], ranks)
        return worst_of_groups(codes, self.bounds[first : stop + 1] - low)

    def codes_of(self, map_: HealthMap, entries: Int64, steps: Sequence[int], ranks: Sequence[int]) -> Codes:
        return map_.cells(entries, steps, ranks)


def map_parts(
    map_: HealthMap, entries: Int64, ranks: Sequence[int], room: int, *, fit: bool = True, flat: bool = False
) -> list[tuple[str, str]]:
    """The cells and the name of each line, headings first."""
    columns = StepColumns.laid_out(map_.steps, room, fit=fit)
    if not len(columns) or not len(entries):
        return []
    across = columns.width * len(columns)
    note = f" (up to {columns.most:,} in a column, the worst is shown)" if columns.most > 1 else ""
    lines = [(header(columns.labels, columns.width, across).ljust(across), f"step{note}")]
    for entry, row in zip(entries.tolist(), columns.cells(map_, entries, ranks, 0, len(columns)), strict=True):
        line = "".join(GLYPHS[Health(code)].ljust(columns.width) for code in row.tolist())
        indent = "" if flat else "  " * int(map_.tree.depth[entry])
        lines.append((line, indent + entry_name(map_, entry, flat=flat)))
    return lines


def map_rows(map_: HealthMap, entries: Int64, ranks: Sequence[int]) -> list[tuple[str, bool, list[str]]]:
    """(path, whether it is a scope, health by step in words) of each entry, for JSON and CSV."""
    cells = map_.cells(entries, map_.steps, ranks)
    return [
        (map_.tree.path(entry), map_.tree.is_scope(entry), [Health(cell).name.lower() for cell in row.tolist()])
        for entry, row in zip(entries.tolist(), cells, strict=True)
    ]


def entry_name(map_: HealthMap, entry: int, *, flat: bool = False) -> str:
    """The last part of the path, with a slash for a scope; the whole name in a flat list, with its graph if several."""
    if flat:
        row = int(map_.tree.row[entry])
        graph = f"{map_.nodes.graph_of(row).name}/" if len(map_.nodes.graphs) > 1 else ""
        return clean(f"{graph}{map_.nodes.names[row]}")
    return clean(map_.tree.label[entry]) + ("/" if map_.tree.is_scope(entry) else "")


def watched_lines(map_: HealthMap) -> list[str]:
    if map_.by_default:
        return ["looked for NaN and Inf in every tensor"]
    return [clean(f"looked for {watch_line(each)}") for each in map_.watchpoints]


class CellText(NamedTuple):
    """The words of a cell: health with step and rank, path of the entry, worst tensor and counts."""

    health: str
    path: str
    details: str


def cell_text(map_: HealthMap, entry: int, steps: Sequence[int], cell: Cell, *, ranks: int) -> CellText:
    where = f"step {span_text(steps)}" if steps else "no step"
    if cell.pair is not None and len(steps) > 1:
        where += f" (worst at {step_text(cell.pair[1])})"
    if cell.pair is not None and ranks > 1 and cell.hit is not None:
        where += f" rank {cell.pair[0]}"
    words = f"{GLYPHS[cell.health]} {WORDS[cell.health]}".strip()
    details = "; ".join(_details(cell, scope=map_.tree.is_scope(entry)))
    return CellText(f"{words}  {where}", clean(map_.tree.path(entry)), details)


def _details(cell: Cell, *, scope: bool) -> list[str]:
    details = []
    if cell.hit is not None:
        worst = clean(place_text(cell.hit.key).rpartition("/")[2]) if scope else slot_text(cell.hit.key)
        details.append(clean(" ".join(filter(None, (worst, said_words(cell.hit), hit_text(cell.hit))))))
    if cell.counts and sum(count for _, count in cell.counts) > 1:
        counted = ", ".join(f"{WORDS[health]} {count:,}" for health, count in cell.counts)
        details.append(f"tensors: {counted}")
    if cell.checked:
        if scope:
            details.append(f"{cell.judged:,} of {plural(cell.nodes, 'node')} judged, {cell.dumped:,} dumped")
        if cell.checked < cell.pairs:
            details.append(f"{cell.checked:,} of {cell.pairs:,} steps checked")
    elif cell.pairs:
        details.append("not checked with these watchpoints: r checks what is missing")
    return details


def rows_of(
    map_: HealthMap, shown: npt.NDArray[np.bool_], *, depth: int | None = None, flat: bool = False, most: int = 40
) -> npt.NDArray[np.int64]:
    """Tree indices of a map's rows among ``shown``; ``flat`` means nodes only, in execution order.

    ``depth`` is the number of levels; None: as many as give at most ``most`` rows, but at least one.
    """
    tree = map_.tree
    if flat:
        leaves = np.flatnonzero(shown & (tree.row >= 0))
        order = map_.nodes.order[tree.row[leaves]].astype(np.int64)
        return leaves[np.argsort(np.where(order < 0, np.iinfo(np.int64).max, order), kind="stable")]
    counts = np.cumsum(np.bincount(tree.depth[shown])) if shown.any() else np.zeros(1, np.int64)
    levels = depth if depth is not None else max(int((counts <= most).sum()), 1)
    return np.flatnonzero(shown & (tree.depth < levels))
