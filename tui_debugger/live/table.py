"""The tensors of a step of a training as a table: what came of each, and what it can still be asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

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


@dataclass(eq=False)
class ReceivedStep:
    """The kept contents of a step, by place in the graph; for the other fields see ``base.TensorTable``.

    ``operands`` are by the names of a node and its operand: see ``wire``. ``by_design`` has, for places with NaN or Inf
    in the order in which they ran, the operator types that absorb it.
    """

    values: dict[int, ReceivedValues] = field(default_factory=dict)
    sent: dict[int, SentStats] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)  # tensors that the training says it does not have
    clean: Mask | None = None  # places where the training looked for NaN and Inf, and found none; None: unknown
    inputs_unknown: frozenset[int] = frozenset()
    operands: dict[tuple[str, str], OperandState] = field(default_factory=dict)
    by_design: dict[int, frozenset[str]] = field(default_factory=dict)
    unfinished: bool = False
    stopped: bool = False  # the training stopped here
    version: int = 0  # grows with every change

    def clean_places(self, gradients: Mask) -> Mask | None:
        """The places that were found clean, except for gradients of weights that were not computed at all.

        A training is silent about those, and says that it has none when it is asked. Other missing tensors it may have
        freed after judging them.
        """
        if self.clean is None or not self.missing:
            return self.clean
        there: Mask = self.clean.copy()
        gone = np.zeros(len(there), np.bool_)
        gone[list(self.missing)] = True
        there &= ~(gone & gradients)
        return there

    @property
    def anything(self) -> bool:
        return bool(self.values) or any(sent_stats.stats is not None for sent_stats in self.sent.values())


class LiveTable(TensorTable):
    """A ``base.TensorTable`` that never changes; ``previous``: rows are fetched as values of the step before."""

    def __init__(self, graph: LiveRankGraph, remote: Mask, kept: ReceivedStep, *, previous: bool = False) -> None:
        """Has rows for all places that are ``remote``, clean (without NaN and Inf), or received."""
        values, sent, clean = kept.values, kept.sent, kept.clean_places(graph.gradients)
        here = remote.copy()
        if clean is not None:
            here |= clean
        here[[*values, *sent]] = True
        self.places = np.flatnonzero(here)
        self.previous = previous
        self.inputs_unknown, self.unfinished = kept.inputs_unknown, kept.unfinished
        self.operands, self.by_design = graph.operands(kept.operands), graph.outputs(kept.by_design)
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
