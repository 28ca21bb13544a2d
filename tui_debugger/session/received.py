"""Hits that a training reported, as the columns that every front end reads. What it says is shown, never invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.condition_table import CONDITIONS, WIRE_OVERFLOW
from tui_debugger.analysis.record import Record
from tui_debugger.analysis.records import Records
from tui_debugger.analysis.sieve import SILENT
from tui_debugger.graph.table import NodeTable
from tui_debugger.live.graph import RankGraph
from tui_debugger.live.types import START, ReceivedHit
from tui_debugger.model import PARAMETERS, ErrorBits, ParamResult, Side, Verdict, Watchpoint, WatchResult, turn_of
from tui_debugger.session.hits import StepHits
from tui_debugger.session.types import Pair

_BAD: Final = ErrorBits.NAN | ErrorBits.INF
_FOUND: Final = _BAD | ErrorBits.SHAPE_CHANGED
_SUPPORT: Final = frozenset({"rtol", "atol", "equal_nan", "epsilon", "range_start_inclusive", "range_end_inclusive"})
"""Parameters that decide nothing: clients report 0 as their actual value."""


@dataclass(frozen=True, eq=False)
class ReceivedHits(StepHits):
    """Hits of one step with what the client said of each.

    Attributes:
        said: the results of each hit.
    """

    said: tuple[tuple[WatchResult, ...], ...] = ()

    def _results(self, index: int) -> tuple[WatchResult, ...]:
        return self.said[index]


def received_hits(
    pair: Pair,
    graph: RankGraph,
    watchpoints: Sequence[Watchpoint],
    hits: Sequence[ReceivedHit],
    notice: Callable[[str], None],
) -> ReceivedHits:
    """The hits of one step: operators as they came, which is as they ran, then parameters.

    A graph says what needs what, but not which of two independent operators ran first; clients report in the order of
    execution (MindSpore 2.0's recorded sessions do, parameters aside).

    Args:
        pair: (rank, step) that they are of.
        graph: of the training.
        watchpoints: those that it was sent.
        hits: as they came; of nodes or watchpoints that are not known they are dropped.
        notice: told about that.
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
    tensors = sorted(found, key=lambda each: nodes.category_of(each[0]) in PARAMETERS)
    return _columns(pair, nodes, watchpoints, {tensor: found[tensor] for tensor in tensors})


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
    if not error or error & _FOUND:
        return Verdict.FINDING
    return Verdict.NOT_COMPARABLE if error == ErrorBits.NO_PREVIOUS and step <= START + 1 else Verdict.CANNOT_JUDGE


def bad_tensors(hits: ReceivedHits) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which hits are on tensors with NaN or Inf, by what the client said."""
    return np.array(
        [
            any(
                each.error & _BAD or (CONDITIONS[each.condition].wire == WIRE_OVERFLOW and not each.error)
                for each in results
            )
            for results in hits.said
        ],
        np.bool_,
    )
