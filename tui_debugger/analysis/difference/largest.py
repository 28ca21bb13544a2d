"""The k greatest of many scores that come in blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.blocks import Array, Doubles

Positions = npt.NDArray[np.int64]


class Largest:
    """Keeps the greatest scores above 0 with their positions; of equal ones those that came first."""

    __slots__ = ("_least", "_positions", "_room", "_scores")

    def __init__(self, room: int) -> None:
        """Keeps nothing yet. ``room``: how many at most."""
        self._room = room
        self._least = 0.0
        self._scores: Doubles = np.empty(0)
        self._positions: Positions = np.empty(0, np.int64)

    def add(self, scores: Array, first: int, places: Positions | None = None) -> None:
        """Adds a block, later in order than all before.

        Args:
            scores: real numbers, none of them NaN.
            first: position of the first score.
            places: where each score stands after ``first``; None: one after the other.
        """
        if not self._room or not len(scores) or not scores.max() > self._least:
            return
        found = _best(scores, np.flatnonzero(scores > self._least), self._room)
        where = first + (found if places is None else places[found])
        together = np.concatenate([self._scores, scores[found]])
        order = np.argsort(-together, kind="stable")[: self._room]
        self._scores = together[order]
        self._positions = np.concatenate([self._positions, where])[order]
        if len(self._scores) == self._room:
            self._least = float(self._scores[-1])

    def positions(self) -> list[int]:
        """The positions, greatest score first."""
        found: list[int] = self._positions.tolist()
        return found


def _best(scores: Array, candidates: Positions, room: int) -> Positions:
    """The candidates with the greatest scores, the first ones of those that are equal, in ascending order."""
    if len(candidates) <= room:
        return candidates
    values = scores[candidates]
    limit = np.partition(values, len(values) - room)[len(values) - room]
    above = candidates[values > limit]
    level = candidates[values == limit][: room - len(above)]
    return np.sort(np.concatenate([above, level]))
