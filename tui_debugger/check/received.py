"""Hits that a training reported, as the columns that every front end reads. Reports are shown, never invented."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tui_debugger.arrays import Int16, Int64, Mask, UInt8
from tui_debugger.check.flow import is_updated
from tui_debugger.check.hits import HitList, StepHits
from tui_debugger.check.step import PairResult, StepChecker
from tui_debugger.check.types import Pair
from tui_debugger.graph.table import NodeTable, edges
from tui_debugger.live.graph import LiveRankGraph, judged
from tui_debugger.live.table import ReceivedStep
from tui_debugger.live.wire import START, ReceivedHit, TrainingInfo, TrainingStop
from tui_debugger.model import (
    PARAMETERS,
    TRAINABLE,
    Category,
    Coverage,
    ErrorBits,
    ParamResult,
    ProgressFn,
    Side,
    UnreadablePart,
    Verdict,
    Watchpoint,
    WatchResult,
    no_progress,
    turn_of,
)
from tui_debugger.stats.records import Record, Records
from tui_debugger.text.clean import clean
from tui_debugger.watch.condition_table import (
    CONDITIONS,
    NOT_FINITE,
    WIRE_CHANGE_TOO_LARGE,
    WIRE_CHANGE_TOO_SMALL,
    WIRE_NOT_CHANGED,
)
from tui_debugger.watch.evaluate import SILENT, needs
from tui_debugger.watch.text import format_watch

_CHANGED: Final = TRAINABLE | {Category.OPTIMIZER_STATE}
"""Parameters that the step changes: their values are those at its end."""
_SUPPORT: Final = frozenset({"rtol", "atol", "equal_nan", "epsilon", "range_start_inclusive", "range_end_inclusive"})
"""Parameters that decide nothing: clients report 0 as their actual value."""


@dataclass(frozen=True, eq=False)
class ReceivedHits(StepHits):
    """Hits of one step with the client's results of each (``reported``)."""

    reported: tuple[tuple[WatchResult, ...], ...] = ()

    def not_finite(self) -> Int16:
        bits = super().not_finite()
        for at, results in enumerate(self.reported):
            for each in results:
                bits[at] |= int(each.error & NOT_FINITE)
        return bits

    def bad(self) -> Mask:
        said = [any(map(_says_bad, results)) for results in self.reported]
        return super().bad() | np.array(said, np.bool_)

    def evaluate(self, indices: Sequence[int]) -> None:
        """See ``StepHits``: the client has evaluated the watchpoints."""

    def _results(self, index: int) -> tuple[WatchResult, ...]:
        return self.reported[index]


def _says_bad(result: WatchResult) -> bool:
    overflow = CONDITIONS[result.condition].is_overflow
    return bool(result.error & NOT_FINITE) or (overflow and not result.error)


def received_hits(
    pair: Pair,
    graph: LiveRankGraph,
    watchpoints: Sequence[Watchpoint],
    hits: Sequence[ReceivedHit],
    notice: Callable[[str], None],
    *,
    by_client: bool = True,
    root: int | None = None,
    first: bool | None = None,
) -> ReceivedHits:
    """The hits of one step in the order of time: see ``_order``.

    ``notice`` is told of dropped hits on unknown nodes or watchpoints. ``by_client``: the hits came in execution order.
    ``root`` is the root graph that ran (None: any); ``first``: no step before ran it (None: by the step's number).
    """
    rank, step = pair
    first = step <= START + 1 if first is None else first
    known = {watchpoint.id: watchpoint for watchpoint in watchpoints}
    found: dict[tuple[int, int], dict[int, tuple[WatchResult, ReceivedHit]]] = {}
    strange_nodes, strange_watchpoints = 0, 0
    not_changed = set() if by_client else set(graph.nodes.memo(_not_changed).tolist())
    for hit in hits:
        row, watchpoint = graph.find(hit.node, root), known.get(hit.watchpoint)
        if row < 0 or not 0 <= hit.slot < 1 << 15:
            strange_nodes += 1
        elif watchpoint is None:
            strange_watchpoints += 1
        elif hit.condition in _CHANGES and row in not_changed:
            pass  # another network changes it: it counts as not compared
        else:
            found.setdefault((row, hit.slot), {})[hit.watchpoint] = (result_of(hit, watchpoint, first=first), hit)
    if strange_nodes:
        notice(f"rank {rank}: hits on nodes that are not in the graph were dropped")
    if strange_watchpoints:
        notice(f"rank {rank}: hits of watchpoints that do not exist were dropped")
    nodes = graph.nodes
    tensors = _order(nodes, list(found), by_client=by_client)
    return _columns(pair, nodes, watchpoints, {tensor: found[tensor] for tensor in tensors})


def _not_changed(nodes: NodeTable) -> Int64:
    """The weights that no run of their own root graph is to change, because another network trains them.

    In a graph with gradients but without a known update nothing is excluded: its optimizer is unknown.
    """
    rows = np.flatnonzero(np.isin(nodes.category, [int(each) for each in TRAINABLE]))
    roots = np.array([info.root_id for info in nodes.graphs] or [0], np.int64)[nodes.graph]
    updated = np.array([is_updated(nodes, row) for row in rows.tolist()], np.bool_)
    trained = np.unique(roots[nodes.category == int(Category.GRADIENT)])
    unknown = trained[~np.isin(trained, roots[rows[updated]])]
    return rows[~updated & ~np.isin(roots[rows], unknown)]


def _order(nodes: NodeTable, tensors: Sequence[tuple[int, int]], *, by_client: bool) -> list[tuple[int, int]]:
    """Tensors (row, slot) in the order of time, the slots of a node ascending.

    Parameters that the optimizer changes come last. Reports in another order than execution are believed as far as the
    graph allows: inputs of the model come first, and a node after everything it was made from. (A graph does not say
    which of two independent operators ran first.)
    """
    first: dict[int, int] = {}
    for at, (row, _) in enumerate(tensors):
        first.setdefault(row, at)
    if not by_client:
        first = _after_sources(nodes, first)

    def when(tensor: tuple[int, int]) -> tuple[int, int, int, int]:
        row, slot = tensor
        category = nodes.category_of(row)
        if category in _CHANGED:
            return 2, first[row], row, slot
        given = category in PARAMETERS and not by_client
        return 0 if given else 1, first[row], 0 if by_client else int(nodes.order[row]), slot

    return sorted(tensors, key=when)


def _after_sources(nodes: NodeTable, first: Mapping[int, int]) -> dict[int, int]:
    """The place in time of some nodes: as reported, but not later than any node that was made from them."""
    flow, never = edges(nodes), len(nodes) + len(first)
    there = np.full(len(nodes), never, np.int64)
    there[list(first)] = list(first.values())
    for row in np.argsort(nodes.order, kind="stable")[::-1].tolist():
        if there[row] < never:
            sources = flow.in_node[flow.in_ptr[row] : flow.in_ptr[row + 1]]
            sources = sources[sources >= 0]
            there[sources] = np.minimum(there[sources], there[row])
    return dict(zip(first, there[list(first)].tolist(), strict=True))


def places_without_statistics(graph: LiveRankGraph, hits: Sequence[ReceivedHit], root: int | None = None) -> list[int]:
    places = (graph.place(graph.find(hit.node, root), hit.slot) for hit in hits if hit.stats is None)
    return list(dict.fromkeys(place for place in places if place >= 0))


def with_statistics(
    graph: LiveRankGraph, kept: ReceivedStep | None, hits: Sequence[ReceivedHit], root: int | None = None
) -> list[ReceivedHit]:
    """The hits; those without statistics get the statistics that the training sent earlier."""
    complete = list(hits)
    for at, hit in enumerate(hits):
        asked = hit.stats is None and kept is not None
        place = graph.place(graph.find(hit.node, root), hit.slot) if asked else -1
        known = kept.sent.get(place) if kept is not None else None
        if place >= 0 and known is not None and known.stats is not None:
            complete[at] = replace(hit, meta=known.meta, stats=known.stats)
    return complete


def _columns(
    pair: Pair,
    nodes: NodeTable,
    watchpoints: Sequence[Watchpoint],
    found: Mapping[tuple[int, int], Mapping[int, tuple[WatchResult, ReceivedHit]]],
) -> ReceivedHits:
    count = len(found)
    number = {watchpoint.id: at for at, watchpoint in enumerate(watchpoints)}
    verdicts = np.full((len(watchpoints), count), SILENT, np.int8)
    records = Records(count)
    reported = []
    for at, results in enumerate(found.values()):
        for watchpoint, (result, hit) in results.items():
            verdicts[number[watchpoint], at] = result.verdict
            if hit.meta is not None and hit.stats is not None:
                records.put(at, Record(hit.meta, hit.stats))
        reported.append(tuple(results[watchpoint][0] for watchpoint in sorted(results)))
    return ReceivedHits(
        rank=pair[0],
        step=pair[1],
        nodes=nodes,
        node=np.array([row for row, _ in found], np.int64),
        side=np.full(count, int(Side.OUTPUT), np.uint8),
        slot=np.array([slot for _, slot in found], np.int16),
        order=np.arange(count, dtype=np.int32),
        round=np.zeros(count, np.uint16),
        turn=np.full(count, turn_of(pair[1]), np.int64),
        records=records,
        watchpoints=tuple((each, CONDITIONS[each.condition].initial_only) for each in watchpoints),
        verdicts=verdicts,
        first=np.full(count, pair[1] <= START, np.bool_),
        origin=np.zeros(count, np.bool_),
        reported=tuple(reported),
    )


def result_of(hit: ReceivedHit, watchpoint: Watchpoint, *, first: bool = False) -> WatchResult:
    """The client's result of one watchpoint on one tensor; ``first``: no step before ran its graph."""
    error = ErrorBits(hit.error & sum(ErrorBits))
    params = () if CONDITIONS[watchpoint.condition].is_overflow else tuple(map(_param, hit.params))
    if error:
        params = tuple(ParamResult(param.name, param.value, hit=False, actual=None) for param in params)
    return WatchResult(watchpoint.id, watchpoint.condition, _verdict(error, first=first), error, params)


def _param(param: ParamResult) -> ParamResult:
    """Removes the actual value where the client only repeats a parameter."""
    return ParamResult(param.name, param.value, hit=False, actual=None) if param.name in _SUPPORT else param


def _verdict(error: ErrorBits, *, first: bool) -> Verdict:
    if not error or error & ErrorBits.SHAPE_CHANGED:
        return Verdict.FINDING
    if error & NOT_FINITE:
        return Verdict.BLOCKED
    return Verdict.NOT_COMPARABLE if error == ErrorBits.NO_PREVIOUS and first else Verdict.CANNOT_JUDGE


_CHANGES: Final = frozenset({WIRE_CHANGE_TOO_LARGE, WIRE_CHANGE_TOO_SMALL, WIRE_NOT_CHANGED})
_UNREADABLE: Final = ErrorBits.UNREADABLE | ErrorBits.OUT_OF_MEMORY | ErrorBits.NO_VALUE


@dataclass(frozen=True, eq=False)
class GivenWatchpoints:
    """The list as a training was given it: ``masks`` are the node rows of ``graph`` that each watchpoint covers."""

    version: int
    watchpoints: tuple[Watchpoint, ...]
    masks: tuple[Mask, ...]
    graph: LiveRankGraph
    info: TrainingInfo


@dataclass(frozen=True, eq=False)
class TrainingJudgement:
    """The judgement of a training on a step; origins and hits by design are not marked at first."""

    hits: ReceivedHits
    coverage: Coverage
    judged: UInt8
    clean: Mask  # the places of the graph that it looked at for NaN and Inf, and found none

    def designs(self, graph: LiveRankGraph) -> dict[int, frozenset[str]]:
        """For the places with NaN or Inf the operator types that absorb it; only after the hits are marked."""
        hits, found = self.hits, np.flatnonzero(self.hits.bad()).tolist()
        places = ((graph.place(int(hits.node[at]), int(hits.slot[at])), at) for at in found)
        return {place: hits.designed.get(at, frozenset()) for place, at in places if place >= 0}

    def result(self, by_design: int = 0) -> PairResult:
        """The result after its hits are marked, ``by_design`` of them as by design."""
        return PairResult(HitList([self.hits]), replace(self.coverage, by_design=by_design), self.judged)


def judgement_of(
    rank: int,
    stop: TrainingStop,
    watched: GivenWatchpoints,
    hits: Sequence[ReceivedHit],
    notice: Callable[[str], None],
    *,
    remembered: bool | None = None,
    first: bool | None = None,
) -> TrainingJudgement:
    """The result of one step from the reports, or the silence, of a training under the list that it was given.

    ``remembered``: the training had this list at the step before, too, whose statistics its expressions may use (None:
    if there is a step before). ``first``: see ``received_hits``.
    """
    info = watched.info
    first = stop.step <= START + 1 if first is None else first
    judging = [
        (watchpoint, mask)
        for watchpoint, mask in zip(watched.watchpoints, watched.masks, strict=True)
        if _is_judged(watchpoint, stop, info)
    ]
    found = received_hits(
        (rank, stop.step),
        watched.graph,
        watched.watchpoints,
        hits,
        notice,
        by_client=info.own_client,
        root=stop.root,
        first=first,
    )
    ran = watched.graph.of_root(stop.root) & _ran_until(watched.graph, stop.node)
    covered = _places(watched.graph, judging) & ran
    if stop.step <= START:
        covered &= watched.graph.parameter
    listed, own_client = covered, info.own_client
    covered = covered & _comparable(watched.graph, judging, found, remembered, first=first, own_client=own_client)
    clean = _looked_for_overflow(watched.graph, judging, covered)
    for row, slot in zip(found.node[found.bad()].tolist(), found.slot[found.bad()].tolist(), strict=True):
        if (place := watched.graph.place(row, slot)) >= 0:
            clean[place] = False
    silent: Mask = np.any(listed & ~covered, axis=0)
    coverage = _coverage((rank, stop.step), watched.graph, found, judging, covered, not_compared=silent, ran=ran)
    coverage = replace(coverage, parts=_not_judged(watched, info))
    return TrainingJudgement(found, coverage, _judged(watched.graph, found, covered), clean)


def _ran_until(graph: LiveRankGraph, node: str) -> Mask:
    """The places whose nodes have run at a stop inside a step; parameters are judged at the end of the step."""
    if not node:
        return np.ones(len(graph), np.bool_)
    nodes, last = graph.nodes, graph.find(node)
    ran: Mask = nodes.order <= (nodes.order[last] if last >= 0 else -1)
    there: Mask = ran[graph.node] & ~graph.parameter
    return there


def watched_for_overflow(watched: GivenWatchpoints, root: int | None = None) -> Mask:
    """The places whose NaN or Inf a training reports in every step that runs a root graph."""
    pairs = zip(watched.watchpoints, watched.masks, strict=True)
    judging = [(each, mask) for each, mask in pairs if _is_judged(each, TrainingStop(0, START + 1), watched.info)]
    return _looked_for_overflow(watched.graph, judging, _places(watched.graph, judging) & watched.graph.of_root(root))


def initial_values(watched: GivenWatchpoints, root: int | None) -> int:
    pairs = zip(watched.watchpoints, watched.masks, strict=True)
    judging = [(each, mask) for each, mask in pairs if CONDITIONS[each.condition].initial_only]
    looked = _places(watched.graph, judging) & watched.graph.of_root(root) & watched.graph.parameter
    return int(looked.any(axis=0).sum())


def _is_judged(watchpoint: Watchpoint, stop: TrainingStop, info: TrainingInfo) -> bool:
    """Tells whether a client judges a condition at a stop: before the first step only those of initial values."""
    condition = CONDITIONS[watchpoint.condition]
    if condition.initial_only != (stop.step <= START):
        return False
    return judged(condition, info) and not (stop.node and condition.wire in _CHANGES)


def _not_judged(watched: GivenWatchpoints, info: TrainingInfo) -> tuple[UnreadablePart, ...]:
    """Returns the watchpoints whose condition the client does not know: its silence does not mean clean."""
    why = f"{clean(info.program)} does not know this condition"
    return tuple(
        UnreadablePart(clean(format_watch(each)), why, unrecorded=True)
        for each in watched.watchpoints
        if CONDITIONS[each.condition].own and not judged(CONDITIONS[each.condition], info)
    )


def _places(graph: LiveRankGraph, judging: Sequence[tuple[Watchpoint, Mask]]) -> Mask:
    may = graph.nodes.watchable[graph.node]
    rows = [mask[graph.node] & may for _, mask in judging]
    return np.stack(rows) if rows else np.zeros((0, len(graph)), np.bool_)


def _comparable(
    graph: LiveRankGraph,
    judging: Sequence[tuple[Watchpoint, Mask]],
    hits: ReceivedHits,
    remembered: bool | None,
    *,
    first: bool,
    own_client: bool,
) -> Mask:
    """[watchpoint, place]: the tensors that a silent training has really judged.

    It is also silent when the step before did not run, so that nothing was compared; there only parameters have a
    value.
    """
    mask = np.ones((len(judging), len(graph)), np.bool_)
    changed: Mask = ~np.isin(graph.node, [] if own_client else graph.nodes.memo(_not_changed))
    for at, (watchpoint, _) in enumerate(judging):
        if CONDITIONS[watchpoint.condition].wire in _CHANGES:
            mask[at] = changed & graph.parameter if first else changed
        elif needs(watchpoint).previous_stats and (first if remembered is None else not remembered):
            mask[at] = False
    number = {watchpoint.id: at for at, (watchpoint, _) in enumerate(judging)}
    for row, slot, results in zip(hits.node.tolist(), hits.slot.tolist(), hits.reported, strict=True):
        place = graph.place(row, slot)
        for each in results if place >= 0 else ():
            if each.watchpoint in number:
                mask[number[each.watchpoint], place] = True
    return mask


def _judged(graph: LiveRankGraph, hits: ReceivedHits, covered: Mask) -> UInt8:
    """See ``PairResult.judged``: the client reports tensors that it could not judge, and has judged all others."""
    judges = covered.sum(axis=0)
    doubts = ((hits.verdicts == Verdict.CANNOT_JUDGE) | (hits.verdicts == Verdict.NOT_COMPARABLE)).sum(axis=0)
    for row, slot, count in zip(hits.node.tolist(), hits.slot.tolist(), doubts.tolist(), strict=True):
        place = graph.place(row, slot)
        if place >= 0:
            judges[place] -= count
    mask = np.zeros(len(graph.nodes), np.bool_)
    mask[graph.node[judges > 0]] = True
    return np.packbits(mask)


def _coverage(
    pair: tuple[int, int],
    graph: LiveRankGraph,
    hits: ReceivedHits,
    judging: Sequence[tuple[Watchpoint, Mask]],
    covered: Mask,
    *,
    not_compared: Mask,
    ran: Mask,
) -> Coverage:
    covered, not_compared = covered & graph.recorded, not_compared & graph.recorded
    looked = covered.any(axis=0)
    unreadable = sum(any(each.error & _UNREADABLE for each in results) for results in hits.reported)
    counts = zip(judging, covered.sum(axis=1).tolist(), strict=True)
    return Coverage(
        checked=max(int(looked.sum()) - unreadable, 0),
        unreadable=unreadable,
        not_comparable=int((hits.verdicts == Verdict.NOT_COMPARABLE).any(axis=0).sum()) + int(not_compared.sum()),
        skipped=int((~looked & ~not_compared & ran & graph.recorded & (graph.flags == 0)).sum()),
        steps=(pair,),
        watched=tuple(sorted((watchpoint.id, count) for (watchpoint, _), count in counts if count)),
        blocked=hits.counted(Verdict.BLOCKED),
    )


def _looked_for_overflow(graph: LiveRankGraph, judging: Sequence[tuple[Watchpoint, Mask]], covered: Mask) -> Mask:
    """Places that some overflow watchpoint looks at, so that the client reports their NaN or Inf."""
    overflow = [CONDITIONS[watchpoint.condition].is_overflow for watchpoint, _ in judging]
    looked: Mask = np.zeros(len(graph), np.bool_)
    for row in np.flatnonzero(overflow).tolist():
        looked |= covered[row]
    return looked


class LiveChecker(StepChecker):
    """Judges like ``StepChecker``, but has the client judge the step at which it waits."""

    alone = True
    ask: Callable[[int, ProgressFn], PairResult | None] = staticmethod(lambda _step, _progress: None)
    """Has the client judge a step; None when it does not stand there."""

    def check_all(self, steps: Sequence[int], progress: ProgressFn = no_progress) -> Iterator[tuple[int, PairResult]]:
        left = []
        for step in steps:
            result = self.ask(step, progress)
            if result is not None:
                yield step, result
            else:
                left.append(step)
        if left:
            yield from super().check_all(left, progress)
