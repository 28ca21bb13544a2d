"""Elements of two tensors of which one or both are NaN or infinite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tui_debugger.analysis.difference.largest import Positions
from tui_debugger.arrays import Array


@dataclass(frozen=True, slots=True)
class OddCounts:
    """How many there are of each kind; every element is of one kind.

    Attributes:
        both_nan: NaN on both sides, which counts as equal.
        nan_here, nan_there: NaN on one side only, whatever the other one is.
        same_inf: the same infinity on both sides, which counts as equal.
        opposite_inf: infinities that differ.
        inf_here, inf_there: infinite on one side only, the other one is finite.
    """

    both_nan: int = 0
    nan_here: int = 0
    nan_there: int = 0
    same_inf: int = 0
    opposite_inf: int = 0
    inf_here: int = 0
    inf_there: int = 0

    @property
    def nan_one_side(self) -> int:
        """NaN on one side only."""
        return self.nan_here + self.nan_there

    @property
    def unequal(self) -> int:
        """Those that do not count as equal."""
        return self.nan_one_side + self.opposite_inf + self.inf_here + self.inf_there


class OddElements:
    """Counts them, and keeps the first places where one side only is NaN, or infinite."""

    def __init__(self, room: int) -> None:
        """Nothing yet. ``room``: how many places are kept of each kind."""
        self._room = room
        self._counts = [0] * 7
        self._nan: list[int] = []
        self._inf: list[int] = []

    def take(self, here: Array, there: Array, places: Positions) -> None:
        """Counts pairs of which one or both are NaN or infinite.

        Args:
            here: such elements of a block, as float64 or complex128.
            there: their counterparts.
            places: where each pair stands in the whole, ascending.
        """
        nan_here, nan_there = np.isnan(here), np.isnan(there)
        inf_here, inf_there = np.isinf(here) & ~nan_here, np.isinf(there) & ~nan_there
        both_inf = inf_here & inf_there
        same = both_inf & (here == there)
        one_nan = nan_here ^ nan_there
        one_inf = (inf_here ^ inf_there) & ~(nan_here | nan_there)
        kinds = (
            nan_here & nan_there,
            nan_here & ~nan_there,
            nan_there & ~nan_here,
            same,
            both_inf & ~same,
            one_inf & inf_here,
            one_inf & inf_there,
        )
        for kind, mask in enumerate(kinds):
            self._counts[kind] += int(np.count_nonzero(mask))
        self._keep(self._nan, places, one_nan)
        self._keep(self._inf, places, one_inf | kinds[4])

    def merge(self, other: OddElements) -> None:
        """Adds what others found in elements that come after all of these."""
        self._counts = [mine + its for mine, its in zip(self._counts, other._counts, strict=True)]
        self._nan += other._nan[: self._room - len(self._nan)]
        self._inf += other._inf[: self._room - len(self._inf)]

    def _keep(self, kept: list[int], places: Positions, mask: Array) -> None:
        if len(kept) < self._room:
            kept += places[mask][: self._room - len(kept)].tolist()

    def counts(self) -> OddCounts:
        """What was counted."""
        return OddCounts(*self._counts)

    def positions(self) -> list[int]:
        """Places where the sides differ: NaN on one side first, each kind in the order of the elements."""
        return [*self._nan, *self._inf]
