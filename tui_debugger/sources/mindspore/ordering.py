"""Timestamps against the graph: nothing runs before what it waits for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tui_debugger.graph.table import NodeTable

_LATEST = 2**63 - 1
_MAX_PASSES = 16  # rows come nearly in execution order, so two passes do, but for damaged graphs


class Bounds:
    """Between which timestamps each operator must have run.

    An operator waits for its inputs and, through its memory state, for what came before it in that memory. Operators
    without a timestamp and nodes that only route values pass on what they wait for themselves.
    """

    def __init__(self, table: NodeTable, times: Mapping[int, Sequence[int]]) -> None:
        """``times`` are the timestamps that each operator may have, by row, ascending.

        Parameters must not be in it: they are written when the step ends.
        """
        self._times = times
        consumers = np.repeat(np.arange(len(table)), np.diff(table.in_ptr)).tolist()
        links = [link for link in zip(table.in_node.tolist(), consumers, strict=True) if 0 <= link[0] != link[1]]
        self._low = self._spread([0] * len(table), links, self._earliest)
        backward = [(consumer, producer) for producer, consumer in reversed(links)]
        self._high = self._spread([-_LATEST] * len(table), backward, self._latest)

    def _spread(self, bound: list[int], links: list[tuple[int, int]], own: Callable[[int, int], int]) -> list[int]:
        """Raises the bound of every target to the own time of its sources, until nothing moves."""
        for _ in range(_MAX_PASSES):
            changed = False
            for source, target in links:
                time = own(source, bound[source])
                if time > bound[target]:
                    bound[target] = time
                    changed = True
            if not changed:
                break
        return bound

    def _earliest(self, row: int, low: int) -> int:
        times = self._times.get(row, ())
        at = bisect_right(times, low)
        return times[at] if at < len(times) else low

    def _latest(self, row: int, negative_high: int) -> int:
        times = self._times.get(row, ())
        at = bisect_left(times, -negative_high) - 1
        return -times[at] if at >= 0 else negative_high

    def fits(self, row: int, timestamp: int) -> bool:
        """Whether a row may have run at a time; an unknown time (0) fits."""
        return not timestamp or self._low[row] < timestamp < -self._high[row]


def ranks(order: Mapping[int, int]) -> dict[int, int]:
    """Position of each key when sorted by its value: compares execution order with timestamps."""
    return {key: place for place, key in enumerate(sorted(order, key=lambda key: (order[key], key)))}
