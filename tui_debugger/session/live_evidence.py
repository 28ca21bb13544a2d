"""Fetches the evidence for the origins of a step while the training stands: after the next step it is gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.causes.made_from import made_from
from tui_debugger.check.hits import HitList
from tui_debugger.check.measure import Measurements
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, UnsupportedError
from tui_debugger.live.dump_writer import size_of
from tui_debugger.live.rank import BATCH, LiveRank
from tui_debugger.live.table import ReceivedStep
from tui_debugger.model import Progress, ProgressFn, Verdict

MOST_HITS: Final = 1024
"""Findings of a step whose evidence is kept."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a fetch: tensors, bytes of values, bytes of one tensor, seconds until the last request."""

    tensors: int
    nbytes: int
    largest: int
    seconds: float = float("inf")


AT_STOPS: Final = Budget(2048, 32 << 20, 8 << 20, 2.0)
"""At every stop with findings: small enough that nobody has to wait."""

Place = tuple[int, int]
"""A step, and the number of a tensor in the graph."""


def evidence(live: LiveRank, measurements: Measurements, step: int, hits: HitList) -> list[Place]:
    """The tensors of the findings of a step and the tensors that they were made from: origins first, then by time."""
    found = hits.with_verdict(Verdict.FINDING)
    chosen = [hit for hit in found[:MOST_HITS] if hit.origin]
    chosen += [hit for hit in found[:MOST_HITS] if not hit.origin]
    if not chosen or live.graph is None or max(hit.row for hit in chosen) >= len(live.graph.nodes):
        return []
    keys = [hit.key for hit in chosen]
    row = np.array([hit.row for hit in chosen], np.int64)
    side, slot = np.array([int(key.side) for key in keys]), np.array([key.slot for key in keys])
    causes = made_from(measurements, step, row, side, slot, np.zeros(len(chosen), np.int64))
    there = causes.values[causes.values["index"] >= 0]
    bounds = np.searchsorted(there["of"], np.arange(len(chosen) + 1))
    places: dict[Place, None] = {}
    for number, hit in enumerate(chosen):
        places |= dict.fromkeys(outputs(live, step, hit.row))
        for value in there[bounds[number] : bounds[number + 1]]:
            table = live.table(int(value["step"]))
            if table is not None:
                places[int(value["step"]), int(table.places[int(value["index"])])] = None
    return list(places)


def outputs(live: LiveRank, step: int, row: int) -> Iterator[Place]:
    graph, slot = live.graph, 0
    while graph is not None and (place := graph.place(row, slot)) >= 0:
        yield step, place
        slot += 1


def statistics(live: LiveRank, places: Iterable[Place], budget: Budget, progress: ProgressFn) -> None:
    """Fetches statistics that are not here yet."""
    _fetch(live.fetch_statistics, list(places)[: budget.tensors], _until(budget, progress))


def values(live: LiveRank, places: Sequence[Place], budget: Budget, progress: ProgressFn) -> None:
    """Fetches values in the order of ``places``; a tensor beyond the budget is skipped, smaller ones may follow."""
    chosen, left = [], budget.nbytes
    kept = {step: live.kept(step) for step in {step for step, _ in places}}
    for step, place in places[: budget.tensors]:
        size = _size(live, kept[step], place)
        if size is not None and size <= min(left, budget.largest):
            left -= size
            chosen.append((step, place))
    _fetch(live.fetch_values, chosen, _until(budget, progress))


def _fetch(
    ask: Callable[[int, Sequence[int], ProgressFn], object], places: Sequence[Place], progress: ProgressFn
) -> None:
    """Asks for places in batches, grouped by step within a batch."""
    for start in range(0, len(places), BATCH):
        part = places[start : start + BATCH]
        for step in dict.fromkeys(of for of, _ in part):
            if not _asked(ask, step, [place for of, place in part if of == step], progress):
                return


def _asked(
    ask: Callable[[int, Sequence[int], ProgressFn], object], step: int, places: Sequence[int], progress: ProgressFn
) -> bool:
    """Asks for places; False when there is no time for further requests."""
    try:
        ask(step, places, progress)
    except _TooLateError:
        return False
    except (UnsupportedError, LostError, NotStoppedError):  # the training cannot answer, or does not hold the tensor
        return True
    return True


class _TooLateError(CancelledError):
    def __init__(self) -> None:
        super().__init__("no time is left")


def _until(budget: Budget, progress: ProgressFn) -> ProgressFn:
    end = time.monotonic() + budget.seconds

    def told(done: Progress) -> None:
        progress(done)
        if time.monotonic() > end:
            raise _TooLateError

    return told


def _size(live: LiveRank, kept: ReceivedStep | None, place: int) -> int | None:
    sent_stats = kept.sent.get(place) if kept is not None else None
    if sent_stats is not None:
        return size_of(sent_stats.meta.dtype, sent_stats.meta.shape)
    return live.graph.nbytes(place) if live.graph is not None else None
