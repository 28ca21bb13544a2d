"""Fetches the evidence for the origins of a step while the training stands there to be asked.

A step further the training has let it go. In this order: the origins with all their inputs, the other findings with
theirs, in the order of time; statistics of all of it, values as far as there is room.
"""

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
from tui_debugger.live.rank import BATCH, LiveRank, ReceivedStep
from tui_debugger.model import Progress, ProgressFn, Verdict

MOST_HITS: Final = 1024
"""The number of findings of a step that are kept with what speaks for them."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of what may be fetched.

    Attributes:
        tensors: so many.
        nbytes: bytes of values.
        largest: bytes of one tensor.
        seconds: after that no further request is made.
    """

    tensors: int
    nbytes: int
    largest: int
    seconds: float = float("inf")


AT_STOPS: Final = Budget(2048, 32 << 20, 8 << 20, 2.0)
"""At every stop with findings: so little that nobody waits for it."""

Place = tuple[int, int]
"""A step, and the number of a tensor in the graph."""


def evidence(live: LiveRank, measurements: Measurements, step: int, hits: HitList) -> list[Place]:
    """The tensors of the findings of a step and all that they were made from, most wanted first."""
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
    """The outputs of a node."""
    graph, slot = live.graph, 0
    while graph is not None and (place := graph.place(row, slot)) >= 0:
        yield step, place
        slot += 1


def statistics(live: LiveRank, places: Iterable[Place], budget: Budget, progress: ProgressFn) -> None:
    """Fetches statistics; those that are here already are not asked for again.

    Raises:
        CancelledError: from ``progress``.
    """
    _fetch(live.fetch_statistics, list(places)[: budget.tensors], _until(budget, progress))


def values(live: LiveRank, places: Sequence[Place], budget: Budget, progress: ProgressFn) -> None:
    """Fetches values, most wanted first, as far as the budget goes; of some that are too large smaller ones follow.

    Raises:
        CancelledError: from ``progress``.
    """
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
    """Asks for places, some at a time, in their order as far as they are of one step."""
    for start in range(0, len(places), BATCH):
        part = places[start : start + BATCH]
        for step in dict.fromkeys(of for of, _ in part):
            if not _asked(ask, step, [place for of, place in part if of == step], progress):
                return


def _asked(
    ask: Callable[[int, Sequence[int], ProgressFn], object], step: int, places: Sequence[int], progress: ProgressFn
) -> bool:
    """Asks; whether it makes sense to ask on."""
    try:
        ask(step, places, progress)
    except _TooLateError:
        return False
    except (UnsupportedError, LostError, NotStoppedError):  # what it cannot say, or does not hold
        return True
    return True


class _TooLateError(CancelledError):
    """The time is over."""

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
