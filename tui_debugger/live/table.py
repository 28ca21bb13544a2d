"""The tensors of one step of a training: what was fetched, what the training said, what only it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.live.graph import RankGraph
from tui_debugger.live.spool import Kept
from tui_debugger.model import ReadSpec, Side, TensorMeta, TensorStats
from tui_debugger.sources.base import TensorFlag
from tui_debugger.sources.columns import Columns, Spots
from tui_debugger.sources.file_states import file_states
from tui_debugger.stats.records import Specs


@dataclass(frozen=True, slots=True)
class Told:
    """What a training said of a tensor.

    Attributes:
        meta: element type and shape.
        stats: None when only these are known.
        complete: nothing is missing in ``stats``.
        time: when it came, in microseconds since the epoch: never the same twice.
    """

    meta: TensorMeta
    stats: TensorStats | None
    complete: bool
    time: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Values that came, and when."""

    kept: Kept
    time: int


class LiveTable(Columns):
    """See ``base.TensorTable``. Stays as it is; what comes later is in the next table of the step.

    Attributes:
        places: the number of each row in the graph.
        previous: rows are fetched as values of the step before.
    """

    def __init__(
        self,
        graph: RankGraph,
        remote: npt.NDArray[np.bool_],
        values: Mapping[int, Fetched],
        told: Mapping[int, Told],
        previous: bool = False,
    ) -> None:
        """Rows for all places that are ``remote``, or of which something came."""
        here = remote.copy()
        here[[*values, *told]] = True
        self.places = np.flatnonzero(here)
        self.previous = previous
        self._graph = graph
        places = self.places.tolist()
        self._values = {row: values[place] for row, place in enumerate(places) if place in values}
        self._told = {row: told[place] for row, place in enumerate(places) if place in told}
        flags, times = graph.flags[self.places].copy(), np.zeros(len(places), np.int64)
        absent = np.ones(len(places), np.bool_)
        absent[list(self._values)] = False
        flags[absent] |= int(TensorFlag.STAT_ONLY)
        flags[absent & remote[self.places]] |= int(TensorFlag.REMOTE)
        unknown = absent.copy()
        for row, said in self._told.items():
            times[row] = said.time
            if absent[row] and said.stats is not None:
                unknown[row] = False
                flags[row] |= int(TensorFlag.EXACT) if said.complete else 0
        flags[unknown] |= int(TensorFlag.UNKNOWN)
        for row, fetched in self._values.items():
            times[row] = fetched.time
        node, slot = graph.node[self.places], graph.slot[self.places]
        super().__init__(Spots(node, np.full(len(node), int(Side.OUTPUT), np.uint8), slot, flags), times)

    def spec(self, index: int) -> ReadSpec:
        """How to read the values; a path that is empty without any."""
        fetched = self._values.get(index)
        return ReadSpec("") if fetched is None else ReadSpec(str(fetched.kept.path), dtype=fetched.kept.dtype)

    def specs(self, indices: npt.NDArray[np.integer[Any]]) -> Specs:
        """``spec`` of several rows, as columns."""
        return Specs.of(map(self.spec, indices.tolist()))

    @property
    def digest(self) -> bytes:
        """Nothing: the files are gone with the session."""
        return b""

    def file_states(self, indices: npt.NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
        """Sizes and modification times of what was fetched."""
        sizes, times = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.int64)
        there = [at for at, index in enumerate(indices.tolist()) if index in self._values]
        sizes[there], times[there] = file_states(self.specs(np.asarray(indices)[there]).paths)
        return sizes, times

    def recorded(self, index: int) -> TensorStats | None:
        """What the training said."""
        said = self._told.get(index)
        return said.stats if said is not None else None

    def recorded_meta(self, index: int) -> tuple[str, tuple[int, ...]] | None:
        """(dtype, shape) as the training said, else as the graph says."""
        said = self._told.get(index)
        if said is not None:
            return said.meta.dtype, said.meta.shape
        dtype, shape = self._graph.type(int(self.places[index]))
        return (dtype, shape) if shape is not None else None
