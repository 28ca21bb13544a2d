"""In which order files are read: tensor by tensor, each through its steps, so that every file is read once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64, Mask
from tui_debugger.model import ReadSpec
from tui_debugger.sources.base import TensorTable
from tui_debugger.sources.columns import tensor_keys
from tui_debugger.stats.records import ONLY_COMPARED, ReadRequests, RequiredStats, Specs

Tables = Callable[[int], TensorTable]
"""The table of a step."""
Keeper = Callable[[int], object]
"""Where what is known about a step is kept."""

_ENTRY: Final = np.dtype(
    [
        ("key", "<i8"),
        ("step", "<i8"),
        ("index", "<i8"),
        ("before", "<i8"),
        ("before_index", "<i8"),
        ("need", "<i2"),
        ("valueless", "?"),
    ]
)
"""A file: which tensor it holds, where it stands, and what it is compared with (-1: nothing)."""


class Reading:
    """Files in the order in which they are read.

    Attributes:
        step, index: where each stands: the row of a step's table.
        valueless: of the tensor that it should be compared with only statistics were dumped.
        looks: the files with what is asked about them.
        sizes: bytes of each file, about; -1 without one.
    """

    def __init__(
        self, entries: npt.NDArray[Any], needs: tuple[RequiredStats, ...], specs: Specs, sizes: Int64, keeper: Keeper
    ) -> None:
        """``entries`` are sorted by tensor, then step, and hold every file once."""
        self.step: Int64 = entries["step"]
        self.index: Int64 = entries["index"]
        self.valueless: Mask = entries["valueless"]
        self.sizes = sizes
        self._keeper = keeper
        places = _places(self.step, self.index)
        by = np.argsort(places)
        found = by[np.minimum(np.searchsorted(places[by], _places(*_before(entries))), max(len(by) - 1, 0))]
        previous = np.where(entries["before"] >= 0, found, -1)
        self.looks = ReadRequests(specs, previous.astype(np.int32), needs, entries["need"].copy())

    def answers(self, step: int, keeper: object, need: RequiredStats, rows: Int64) -> Mask:
        """Which rows of a step's table are read for a need, among other things, and will be kept by ``keeper``."""
        enough = np.array([*(each.covers(need) for each in self.looks.needs), False])  # ONLY_COMPARED is the last one
        found = self.index[(self.step == step) & enough[self.looks.need]]
        if not len(found) or self._keeper(step) is not keeper:  # another rank's, or listed anew meanwhile
            return np.zeros(len(rows), np.bool_)
        return np.isin(rows, found)

    def files(self, at: int) -> list[str]:
        """The paths behind a look: the file, and what it is compared with."""
        before = int(self.looks.previous[at])
        return [os.fsdecode(self.looks.specs.paths[each]) for each in (at, before) if each >= 0]


class ReadingList:
    """Collects what is to be read."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._entries: list[npt.NDArray[Any]] = []
        self._needs: dict[RequiredStats, int] = {}

    def __len__(self) -> int:
        """Number of files whose values are asked for."""
        return sum(map(len, self._entries))

    def add(
        self, step: int, table: TensorTable, rows: Int64, need: RequiredStats, compared: tuple[Int64, Int64, Mask]
    ) -> None:
        """Adds rows of a step that share a need.

        ``compared``: for each the step and row that it is compared with, -1 without one, and whether that is valueless.
        """
        entries = np.zeros(len(rows), _ENTRY)
        entries["key"] = tensor_keys(table.node[rows], table.side[rows], table.slot[rows])
        entries["step"], entries["index"] = step, rows
        entries["before"], entries["before_index"], entries["valueless"] = compared
        entries["need"] = self._needs.setdefault(need, len(self._needs))
        self._entries.append(entries)

    def sorted(self, table: Tables, sizes: Callable[[int], Int64], keeper: Keeper) -> Reading:
        """Everything by tensor, then step, files that are only compared with included."""
        entries = np.concatenate(self._entries)
        compared = np.take(entries, np.flatnonzero(entries["before"] >= 0))
        only = np.zeros(len(compared), _ENTRY)
        only["key"], only["step"], only["index"] = compared["key"], compared["before"], compared["before_index"]
        only["need"], only["before"], only["before_index"] = ONLY_COMPARED, -1, -1
        entries = np.concatenate([entries, only])
        entries = np.take(
            entries, np.argsort(-entries["need"], kind="stable")
        )  # of one file what asks most comes first
        _, first = np.unique(_places(entries["step"], entries["index"]), return_index=True)
        entries = np.take(entries, first)
        entries = np.take(entries, np.lexsort((entries["index"], entries["step"], entries["key"])))
        specs, own = _specs(entries, table, sizes)
        return Reading(entries, tuple(self._needs), specs, own, keeper)


def _places(step: Int64, index: Int64) -> Int64:
    """One number for each file; a step has fewer than 2³² of them."""
    places: Int64 = (step << 32) + index
    return places


def _before(entries: npt.NDArray[Any]) -> tuple[Int64, Int64]:
    return entries["before"], entries["before_index"]


def _specs(entries: npt.NDArray[Any], table: Tables, sizes: Callable[[int], Int64]) -> tuple[Specs, Int64]:
    kinds: dict[ReadSpec, int] = {}
    paths: list[bytes] = []
    kind, own = np.zeros(len(entries), np.int32), np.zeros(len(entries), np.int64)
    by_step = np.argsort(entries["step"], kind="stable")
    for step in np.unique(entries["step"]).tolist():
        of = np.flatnonzero(entries["step"] == step)
        rows = entries["index"][of]
        specs = table(step).specs(rows)
        numbers = np.array([kinds.setdefault(spec, len(kinds)) for spec in specs.kinds], np.int32)
        kind[of] = numbers[specs.kind]
        paths += specs.paths
        own[of] = sizes(step)[rows]
    at = np.empty(len(by_step), np.int64)
    at[by_step] = np.arange(len(by_step))
    return Specs([paths[place] for place in at.tolist()], tuple(kinds), kind), own
