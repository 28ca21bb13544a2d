"""Which root graph ran in each step of a MindSpore training with several, such as generator and discriminator."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Container


class GraphRuns:
    """The steps of each root graph, by its number. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: dict[int, array[int]] = {}

    def add(self, step: int, root: int) -> None:
        """Steps must come in ascending order."""
        with self._lock:
            self._steps.setdefault(root, array("q")).append(step)

    def clear(self) -> None:
        with self._lock:
            self._steps.clear()

    def root(self, step: int, among: Container[int]) -> int | None:
        """The graph that a step ran; None if unknown, or not ``among`` the given ones."""
        with self._lock:
            found = (root for root, steps in self._steps.items() if _has(steps, step))
            return next((root for root in found if root in among), None)

    def first(self, root: int) -> int | None:
        with self._lock:
            return next(iter(self._steps.get(root, ())), None)

    def before(self, root: int, step: int) -> int | None:
        """The step of a graph's last run before a step, or None."""
        with self._lock:
            steps = self._steps.get(root, ())
            at = bisect_left(steps, step)
            return steps[at - 1] if at else None


def _has(steps: array[int], step: int) -> bool:
    at = bisect_left(steps, step)
    return at < len(steps) and steps[at] == step
