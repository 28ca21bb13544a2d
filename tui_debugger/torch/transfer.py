"""Numbers that wait on a device: many small results, one transfer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Doubles = npt.NDArray[np.float64]


def wide_type(device: torch.device) -> torch.dtype:
    """What sums are made in: float64, which Apple's GPUs do not have."""
    return torch.float32 if device.type == "mps" else torch.float64


class Waiting:
    """Collects results without looking at them, so that nothing waits for the device until ``fetch``."""

    def __init__(self) -> None:
        """Starts empty."""
        self._values: list[torch.Tensor] = []
        self._apart: list[int] = []
        """For each of them how many places it has: 1, or one for each of its numbers."""
        self._places = 0

    def __len__(self) -> int:
        """How many results wait."""
        return self._places

    def add(self, values: torch.Tensor) -> int:
        """Adds a number, or a few; what comes back leads to them after ``fetch``."""
        return self._add(values, 1)

    def add_each(self, numbers: Sequence[torch.Tensor]) -> int:
        """Adds many numbers of one device and type; the place of the first one: those of the others follow."""
        return self._add(torch.stack(list(numbers)), len(numbers))

    def _add(self, values: torch.Tensor, places: int) -> int:
        self._values.append(values)
        self._apart.append(places)
        self._places += places
        return self._places - places

    def fetch(self) -> Fetched:
        """All of them, by one transfer from each device (usually there is one); starts empty again."""
        values, self._values = self._values, []
        apart, self._apart = self._apart, []
        self._places = 0
        numbers, start = _fetch(values)
        return Fetched(numbers, _starts(start, np.array(apart, np.int64)))


class Fetched:
    """The numbers on the host."""

    def __init__(self, numbers: Doubles, start: npt.NDArray[np.int64]) -> None:
        """``numbers`` of all results one after the other; where each starts, with one entry more than results."""
        self._numbers = numbers
        self._start = start

    def all(self, place: int) -> Doubles:
        """The numbers of one result."""
        return self._numbers[self._start[place] : self._start[place + 1]]

    def first(self, places: npt.NDArray[np.int64]) -> Doubles:
        """The first number of each result; NaN for a place below 0."""
        found = np.full(len(places), np.nan)
        known = places >= 0
        found[known] = self._numbers[self._start[places[known]]]
        return found


def _starts(start: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the numbers of each place start, by where those of each result do."""
    if not len(places) or int(places.max()) == 1:
        return start
    first = np.repeat(start[:-1], places)
    within = np.arange(len(first)) - np.repeat(np.cumsum(places) - places, places)
    return np.append(first + within, start[-1])


def _join(values: list[torch.Tensor]) -> torch.Tensor:
    """All numbers in one row."""
    if all(not each.dim() for each in values):
        return torch.stack(values)
    return torch.cat([each.reshape(-1) for each in values])


def _fetch(values: list[torch.Tensor]) -> tuple[Doubles, npt.NDArray[np.int64]]:
    """The numbers of all results one after the other, and where those of each start, with one entry more."""
    sizes = np.fromiter((each.numel() for each in values), np.int64, len(values))
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, each in enumerate(values):
        groups.setdefault((each.device, each.dtype), []).append(number)
    order: list[int] = []
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for (device, _), members in sorted(groups.items(), key=lambda item: str(item[0][0])):
        order += members
        joined = _join([values[number] for number in members])
        by_device.setdefault(device, []).append(joined.to(wide_type(device)))
    hosts: list[Any] = [torch.cat(parts).cpu().to(torch.float64).numpy() for parts in by_device.values()]
    numbers = np.concatenate(hosts) if hosts else np.empty(0)
    placed = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes[order], out=placed[1:])
    found = np.empty(len(numbers))
    start = np.zeros(len(values) + 1, np.int64)
    np.cumsum(sizes, out=start[1:])
    target = np.repeat(start[order], sizes[order]) + np.arange(len(numbers)) - np.repeat(placed[:-1], sizes[order])
    found[target] = numbers
    return found, start
