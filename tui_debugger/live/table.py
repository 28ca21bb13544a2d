"""The tensors of a step of a training as a table: what came of each, and what it can still be asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Mask
from tui_debugger.live.graph import LiveRankGraph
from tui_debugger.live.spool import SpooledTensor
from tui_debugger.model import AtLeast, OperandState, ReadSpec, Side, TensorMeta, TensorStats
from tui_debugger.sources.base import TensorFlag, TensorPlaces, TensorTable


@dataclass(frozen=True, slots=True)
class SentStats:
    """Statistics of a tensor that a training sent."""

    meta: TensorMeta
    stats: TensorStats | None  # None when only ``meta`` is known
    complete: bool  # nothing is missing in ``stats``
    time: int


@dataclass(frozen=True, slots=True)
class ReceivedValues:
    """Values that came, in the spool; ``time`` is in microseconds since the epoch, never the same twice."""

    kept: SpooledTensor
    time: int
    stop: int  # the number of the stop at which the training had them


class LiveTable(TensorTable):
    """A ``base.TensorTable`` that never changes; ``previous``: rows are fetched as values of the step before."""

    def __init__(
        self,
        graph: LiveRankGraph,
        remote: npt.NDArray[np.bool_],
        values: Mapping[int, ReceivedValues],
        sent: Mapping[int, SentStats],
        clean: Mask | None = None,
        *,
        inputs_unknown: frozenset[int] = frozenset(),
        operands: Mapping[tuple[int, int], OperandState] | None = None,
        by_design: Mapping[tuple[int, int], frozenset[str]] | None = None,
        unfinished: bool = False,
        previous: bool = False,
    ) -> None:
        """Has rows for all places that are ``remote``, ``clean`` (without NaN and Inf), or received."""
        here = remote.copy()
        if clean is not None:
            here |= clean
        here[[*values, *sent]] = True
        self.places = np.flatnonzero(here)
        self.previous = previous
        self.inputs_unknown, self.operands, self.unfinished = inputs_unknown, operands or {}, unfinished
        self.by_design = by_design or {}
        self._graph = graph
        places = self.places.tolist()
        self._values = {row: values[place] for row, place in enumerate(places) if place in values}
        self._sent = {row: sent[place] for row, place in enumerate(places) if place in sent}
        flags, times = graph.flags[self.places].copy(), np.zeros(len(places), np.int64)
        absent = np.ones(len(places), np.bool_)
        absent[list(self._values)] = False
        flags[absent] |= int(TensorFlag.STAT_ONLY)
        flags[absent & remote[self.places]] |= int(TensorFlag.REMOTE)
        self._clean = np.zeros(len(places), np.bool_) if clean is None else clean[self.places]
        times[self._clean] = _SAID_CLEAN  # a new time, so that no cache keeps the tensor as unknown
        unknown = absent.copy()
        for row, sent_stats in self._sent.items():
            times[row] = sent_stats.time
            if absent[row] and sent_stats.stats is not None:
                unknown[row] = False
                flags[row] |= int(TensorFlag.EXACT) if sent_stats.complete else 0
        unknown &= ~self._clean | remote[self.places]  # the training can be asked for more than its verdict
        flags[unknown] |= int(TensorFlag.UNKNOWN)
        for row, fetched in self._values.items():
            times[row] = fetched.time
        node, slot = graph.node[self.places], graph.slot[self.places]
        super().__init__(TensorPlaces(node, np.full(len(node), int(Side.OUTPUT), np.uint8), slot, flags), times)

    def spec(self, index: int) -> ReadSpec:
        fetched = self._values.get(index)
        return ReadSpec("") if fetched is None else ReadSpec(str(fetched.kept.path), dtype=fetched.kept.dtype)

    def recorded(self, index: int) -> TensorStats | None:
        sent_stats = self._sent.get(index)
        if sent_stats is not None and sent_stats.stats is not None:
            return sent_stats.stats
        return said_clean(self._graph, int(self.places[index])) if self._clean[index] else None

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) from the training, else from the graph."""
        sent_stats = self._sent.get(index)
        if sent_stats is not None:
            return sent_stats.meta.dtype, sent_stats.meta.shape
        dtype, shape = self._graph.type(int(self.places[index]))
        return (dtype, shape) if shape is not None else None


_SAID_CLEAN: Final = 1
"""Stands for the time at which a training said that a tensor is clean."""


def said_clean(graph: LiveRankGraph, place: int) -> TensorStats:
    """The statistics of a tensor that a training only called free of NaN and Inf."""
    _, shape = graph.type(place)
    bounds = AtLeast.NONE if shape is not None else AtLeast.COUNT
    count = math.prod(shape) if shape is not None else 0
    return TensorStats(count, 0, 0, 0, 0, 0, 0, None, None, None, None, None, math.nan, at_least=bounds)
