"""The k greatest of many scores that come in blocks."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64

Positions = npt.NDArray[np.int64]


class Largest:
    """Keeps the greatest scores above 0 with their positions; of equal ones those that came first.

    A stretch of the elements may have a list of its own: ``merge`` puts neighbours together. So that it does not gather
    what the others made hopeless, it can be told a ``floor``; what is kept in the end does not depend on that.
    """

    __slots__ = ("_floor", "_least", "_positions", "_room", "_scores")

    def __init__(self, room: int, floor: float = 0.0) -> None:
        """Keeps nothing yet.

        Args:
            room: how many at most.
            floor: so many scores elsewhere are this great or greater; smaller ones need not be kept.
        """
        self._room = room
        self._floor = floor
        self._least = 0.0
        self._scores: Float64 = np.empty(0)
        self._positions: Positions = np.empty(0, np.int64)

    @property
    def floor(self) -> float:
        """Scores below this cannot get into the list any more; Inf for a list without room."""
        return max(self._least, self._floor) if self._room else math.inf

    def add(self, scores: Array, first: int, places: Positions | None = None) -> None:
        """Adds a block, later in order than all before.

        Args:
            scores: real numbers, none of them NaN.
            first: position of the first score.
            places: where each score stands after ``first``; None: one after the other.
        """
        if not self._room or not len(scores):
            return
        greatest = scores.max()
        if not greatest > self._least or greatest < self._floor:
            return
        enough = scores >= self._floor if self._floor > self._least else scores > self._least
        found = _best(scores, np.flatnonzero(enough), self._room)
        self._take(scores[found], first + (found if places is None else places[found]))

    def merge(self, other: Largest) -> None:
        """Adds what another list has kept, of scores that are all later in order."""
        if self._room and len(other._scores):
            self._take(other._scores, other._positions)

    def positions(self) -> list[int]:
        """The positions, greatest score first."""
        found: list[int] = self._positions.tolist()
        return found

    def _take(self, scores: Array, where: Positions) -> None:
        together = np.concatenate([self._scores, scores])
        order = np.argsort(-together, kind="stable")[: self._room]
        self._scores = together[order]
        self._positions = np.concatenate([self._positions, where])[order]
        if len(self._scores) == self._room:
            self._least = float(self._scores[-1])


def _best(scores: Array, candidates: Positions, room: int) -> Positions:
    """The candidates with the greatest scores, the first ones of those that are equal, in ascending order."""
    if len(candidates) <= room:
        return candidates
    values = scores[candidates]
    limit = np.partition(values, len(values) - room)[len(values) - room]
    above = candidates[values > limit]
    level = candidates[values == limit][: room - len(above)]
    return np.sort(np.concatenate([above, level]))
