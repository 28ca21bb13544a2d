"""The tensors that are laid over each other, and what is still to be read of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tui_debugger.model import TensorKey
from tui_debugger.session.diagnosis.trend import Series, joined

FIRST_PART: Final = 32
"""So many steps are read before there is something to see; then twice as many, and so on."""
LARGEST_PART: Final = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """Some steps of one tensor that are to be read next.

    Attributes:
        key: the tensor.
        steps: ascending.
        done, total: how many of its steps are read, and how many there are.
    """

    key: TensorKey
    steps: Sequence[int]
    done: int
    total: int


class Overlay:
    """One or several tensors, in the order in which they were added.

    Attributes:
        keys: the tensors, at whatever step.
        current: number of the one whose table is shown.
    """

    def __init__(self, steps: Callable[[int], Sequence[int]]) -> None:
        """``steps`` gives the dumped steps of a rank."""
        self._steps = steps
        self.keys: list[TensorKey] = []
        self.current = 0
        self._series: dict[TensorKey, Series] = {}
        self._todo: dict[TensorKey, list[int]] = {}
        self._count = FIRST_PART

    @property
    def shown(self) -> list[Series]:
        """What was read, in order."""
        return [self._series[key] for key in self.keys if key in self._series]

    @property
    def here(self) -> Series | None:
        """The tensor whose table is shown, once something of it was read."""
        return self._series.get(self.keys[self.current]) if self.keys else None

    def series_of(self, key: TensorKey) -> Series | None:
        """What was read of one tensor."""
        return self._series.get(key)

    def has(self, key: TensorKey) -> bool:
        """Whether a tensor is among them, whatever the step."""
        return self._find(key) is not None

    def is_complete(self, key: TensorKey) -> bool:
        """Whether every step of a tensor was read."""
        return key not in self._todo

    @property
    def reading(self) -> TensorKey | None:
        """The first tensor of which something is still to be read."""
        return next((key for key in self.keys if key in self._todo), None)

    def add(self, key: TensorKey) -> None:
        """Adds a tensor, at every step its newest round; its table is shown."""
        key = replace(key, round=0)
        self.keys.append(key)
        self.current = len(self.keys) - 1
        steps = sorted(self._steps(key.rank))
        # What is around the step that one looks at comes first; each part is ascending all the same.
        start = max(bisect_left(steps, key.step) - FIRST_PART // 2, 0)
        stop = start + FIRST_PART
        self._todo[key] = steps[start:stop] + steps[:start] + steps[stop:]
        self._count = FIRST_PART

    def renew(self, rank: int, steps: Iterable[int]) -> None:
        """Has some steps read (again) of the tensors of a rank."""
        there = set(self._steps(rank)).intersection(steps)
        for key in self.keys:
            if key.rank == rank and there:
                self._todo[key] = sorted(there.union(self._todo.get(key, ())))

    def drop(self, key: TensorKey) -> None:
        """Takes a tensor away."""
        self.keys.remove(key)
        self._series.pop(key, None)
        self._todo.pop(key, None)
        self.current = min(self.current, len(self.keys) - 1)

    def turn(self) -> None:
        """The next one becomes the current one."""
        self.current = (self.current + 1) % len(self.keys)

    def next_part(self) -> Part | None:
        """What to read next; None when everything was read."""
        key = self.reading
        if key is None:
            return None
        todo, total = self._todo[key], len(self._steps(key.rank))
        return Part(key, todo[: self._count], total - len(todo), max(total, 1))

    def arrived(self, part: Part, found: Series) -> None:
        """Takes what was read, unless its tensor was taken away meanwhile."""
        if part.key not in self._todo:
            return
        known = self._series.get(part.key)
        self._series[part.key] = joined([known, found]) if known is not None else found
        self._count = min(2 * self._count, LARGEST_PART)
        self._todo[part.key] = self._todo[part.key][len(part.steps) :]
        if not self._todo[part.key]:
            del self._todo[part.key]

    def replace(self, found: Iterable[Series]) -> None:
        """Takes the same histories with other marks."""
        for series in found:
            key = self._find(series.key)
            if key is not None:
                self._series[key] = series

    def _find(self, wanted: TensorKey) -> TensorKey | None:
        return next((key for key in self.keys if _tensor(key) == _tensor(wanted)), None)


def _tensor(key: TensorKey) -> tuple[object, ...]:
    """A key without its step."""
    return (key.rank, key.graph, key.node, key.side, key.slot)
