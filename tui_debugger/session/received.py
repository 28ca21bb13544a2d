"""Hits that a training reported, as the columns that every front end reads. What it says is shown, never invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.edges import edges
from tui_debugger.graph.table import NodeTable
from tui_debugger.live.graph import RankGraph
from tui_debugger.live.keeping import StepKept
from tui_debugger.live.types import START, ReceivedHit
from tui_debugger.model import (
    PARAMETERS,
    TRAINABLE,
    Category,
    ErrorBits,
    ParamResult,
    Side,
    Verdict,
    Watchpoint,
    WatchResult,
    turn_of,
)
from tui_debugger.session.hits import StepHits
from tui_debugger.session.types import Pair
from tui_debugger.stats.records import Record, Records
from tui_debugger.watch.condition_table import CONDITIONS, WIRE_OVERFLOW
from tui_debugger.watch.conditions import NOT_FINITE
from tui_debugger.watch.evaluate import SILENT

_CHANGED: Final = TRAINABLE | {Category.OPTIMIZER_STATE}
"""Parameters that the step changes: their values are those of its end."""
_SUPPORT: Final = frozenset({"rtol", "atol", "equal_nan", "epsilon", "range_start_inclusive", "range_end_inclusive"})
"""Parameters that decide nothing: clients report 0 as their actual value."""


@dataclass(frozen=True, eq=False)
class ReceivedHits(StepHits):
    """Hits of one step with what the client said of each.

    Attributes:
        said: the results of each hit.
    """

    said: tuple[tuple[WatchResult, ...], ...] = ()

    def not_finite(self) -> npt.NDArray[np.int16]:
        """See ``StepHits``: as the client said, who need not tell the statistics."""
        bits = super().not_finite()
        for at, results in enumerate(self.said):
            for each in results:
                bits[at] |= int(each.error & NOT_FINITE)
        return bits

    def _results(self, index: int) -> tuple[WatchResult, ...]:
        return self.said[index]


def received_hits(
    pair: Pair,
    graph: RankGraph,
    watchpoints: Sequence[Watchpoint],
    hits: Sequence[ReceivedHit],
    notice: Callable[[str], None],
    *,
    by_client: bool = True,
) -> ReceivedHits:
    """The hits of one step in the order of time: see ``_order``.

    Args:
        pair: (rank, step) that they are of.
        graph: of the training.
        watchpoints: those that it was sent.
        hits: as they came; of nodes or watchpoints that are not known they are dropped.
        notice: told about that.
        by_client: they came in the order of execution.
    """
    rank, step = pair
    known = {watchpoint.id: watchpoint for watchpoint in watchpoints}
    found: dict[tuple[int, int], dict[int, tuple[WatchResult, ReceivedHit]]] = {}
    strange_nodes, strange_watchpoints = 0, 0
    for hit in hits:
        row, watchpoint = graph.find(hit.node), known.get(hit.watchpoint)
        if row < 0 or not 0 <= hit.slot < 1 << 15:
            strange_nodes += 1
        elif watchpoint is None:
            strange_watchpoints += 1
        else:
            found.setdefault((row, hit.slot), {})[hit.watchpoint] = (result_of(hit, watchpoint, step), hit)
    if strange_nodes:
        notice(f"rank {rank}: hits on nodes that are not in the graph were dropped")
    if strange_watchpoints:
        notice(f"rank {rank}: hits of watchpoints that do not exist were dropped")
    nodes = graph.nodes
    tensors = _order(nodes, list(found), by_client=by_client)
    return _columns(pair, nodes, watchpoints, {tensor: found[tensor] for tensor in tensors})


def _order(nodes: NodeTable, tensors: Sequence[tuple[int, int]], *, by_client: bool) -> list[tuple[int, int]]:
    """Tensors (row, slot) in the order of time, the slots of a node ascending.

    What the optimizer changes comes after all operators of its step. A client that does not report in the order of
    execution is believed as far as the graph allows it: inputs of the model come first, and a node after all that it
    was made from. (A graph does not say which of two independent operators ran first.)
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
    """When each of some nodes was there: as it was reported, but no later than anything that was made from it."""
    flow, never = edges(nodes), len(nodes) + len(first)
    there = np.full(len(nodes), never, np.int64)
    there[list(first)] = list(first.values())
    for row in np.argsort(nodes.order, kind="stable")[::-1].tolist():
        if there[row] < never:
            sources = flow.in_node[flow.in_ptr[row] : flow.in_ptr[row + 1]]
            sources = sources[sources >= 0]
            there[sources] = np.minimum(there[sources], there[row])
    return dict(zip(first, there[list(first)].tolist(), strict=True))


def places_without_statistics(graph: RankGraph, hits: Sequence[ReceivedHit]) -> list[int]:
    """The places of the hits that came without statistics."""
    places = (graph.place(graph.find(hit.node), hit.slot) for hit in hits if hit.stats is None)
    return list(dict.fromkeys(place for place in places if place >= 0))


def with_statistics(graph: RankGraph, kept: StepKept | None, hits: Sequence[ReceivedHit]) -> list[ReceivedHit]:
    """The hits, with what the training said since of those that came without statistics; empty when it said nothing."""
    told, more = list(hits), False
    for at, hit in enumerate(hits):
        place = graph.place(graph.find(hit.node), hit.slot) if hit.stats is None and kept is not None else -1
        said = kept.told.get(place) if kept is not None else None
        if place >= 0 and said is not None and said.stats is not None:
            told[at], more = replace(hit, meta=said.meta, stats=said.stats), True
    return told if more else []


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
    said = []
    for at, results in enumerate(found.values()):
        for watchpoint, (result, hit) in results.items():
            verdicts[number[watchpoint], at] = result.verdict
            if hit.meta is not None and hit.stats is not None:
                records.put(at, Record(hit.meta, hit.stats))
        said.append(tuple(results[watchpoint][0] for watchpoint in sorted(results)))
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
        said=tuple(said),
    )


def result_of(hit: ReceivedHit, watchpoint: Watchpoint, step: int) -> WatchResult:
    """What a client says of one watchpoint on one tensor."""
    error = ErrorBits(hit.error & sum(ErrorBits))
    params = () if CONDITIONS[watchpoint.condition].wire == WIRE_OVERFLOW else tuple(map(_param, hit.params))
    if error:
        params = tuple(ParamResult(param.name, param.value, hit=False, actual=None) for param in params)
    return WatchResult(watchpoint.id, watchpoint.condition, _verdict(error, step), error, params)


def _param(param: ParamResult) -> ParamResult:
    """Without an actual value where the client only repeats a parameter."""
    return ParamResult(param.name, param.value, hit=False, actual=None) if param.name in _SUPPORT else param


def _verdict(error: ErrorBits, step: int) -> Verdict:
    if not error or error & ErrorBits.SHAPE_CHANGED:
        return Verdict.FINDING
    if error & NOT_FINITE:
        return Verdict.BLOCKED
    return Verdict.NOT_COMPARABLE if error == ErrorBits.NO_PREVIOUS and step <= START + 1 else Verdict.CANNOT_JUDGE


def bad_tensors(hits: ReceivedHits) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which hits are on tensors with NaN or Inf, by what the client said."""
    return np.array(
        [
            any(
                each.error & NOT_FINITE or (CONDITIONS[each.condition].wire == WIRE_OVERFLOW and not each.error)
                for each in results
            )
            for results in hits.said
        ],
        np.bool_,
    )
