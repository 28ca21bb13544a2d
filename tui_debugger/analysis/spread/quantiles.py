"""Percentiles of tensors of any size, exactly: by passes that narrow down where they lie, never by a sample."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import Array
from tui_debugger.analysis.spread.keys import CLASSES, ClassCounts, Int64, KeyKind, Keys, key_blocks
from tui_debugger.model import ProgressFn, no_progress

PERCENTS: Final = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)
KEPT: Final = 1 << 21
"""Elements that are kept and sorted at the end: at most 16 MB."""
_STEP: Final = 16
"""Bits by which a pass narrows a class down."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Percentiles of the finite elements.

    Attributes:
        percents: which, from 0 to 100.
        values: interpolated between neighbours as numpy does it; empty when no element is finite.
        count: finite elements they were taken of, all there are: the values are exact.
    """

    percents: tuple[float, ...]
    values: tuple[float, ...]
    count: int


def quantiles(
    array: Array, classes: ClassCounts, percents: Sequence[float] = PERCENTS, progress: ProgressFn = no_progress
) -> Quantiles:
    """The percentiles of the finite elements, as float64 (complex: of the magnitudes).

    Raises:
        CancelledError: from ``progress``.
    """
    count = classes.finite
    if not count:
        return Quantiles(tuple(percents), (), 0)
    places = [(count - 1) * (percent / 100) for percent in percents]
    wanted = {rank for place in places for rank in (math.floor(place), min(math.floor(place) + 1, count - 1))}
    found = order_statistics(array, classes, wanted, progress)
    values = []
    for place in places:
        low = math.floor(place)
        values.append(_between(found[low], found[min(low + 1, count - 1)], place - low))
    return Quantiles(tuple(percents), tuple(values), count)


def _between(low: float, high: float, part: float) -> float:
    """As numpy interpolates, so that the results are the same to the last bit."""
    difference = high - low
    if not math.isfinite(difference):
        return low * (1 - part) + high * part
    return high - difference * (1 - part) if part >= 0.5 else low + difference * part


def order_statistics(
    array: Array, classes: ClassCounts, ranks: Iterable[int], progress: ProgressFn = no_progress
) -> dict[int, float]:
    """The finite elements at places of the sorted tensor, 0 for the smallest.

    Args:
        array: what ``classes`` were counted of.
        classes: from ``count_classes``.
        ranks: places from 0 to ``classes.finite`` − 1.
        progress: may raise CancelledError.
    """
    wanted = np.unique(np.fromiter(ranks, np.int64))
    if not len(wanted):
        return {}
    search = _Search(classes, wanted)
    while search.elements > KEPT and search.left:
        search.narrow(array, progress)
    keys = search.collect(array, progress)
    values = classes.kind.value_of(keys).astype(np.float64) + 0.0
    return dict(zip(wanted.tolist(), values.tolist(), strict=True))


class _Search:
    """Classes that hold the wanted elements, by more and more of their upper bits."""

    def __init__(self, classes: ClassCounts, wanted: Int64) -> None:
        self.kind: KeyKind = classes.kind
        self.left = classes.kind.shift
        ranks = wanted + classes.first
        at = np.searchsorted(classes.below, ranks, "right") - 1
        self._take(at.astype(np.uint64), ranks - classes.below[at], classes.counts[at])

    def _take(self, classes: Keys, offsets: Int64, counts: Int64) -> None:
        """``classes`` of the wanted elements by their upper bits, places inside them, elements they hold."""
        self.prefixes, first, self.which = np.unique(classes, return_index=True, return_inverse=True)
        self.offsets = offsets
        self.counts = counts[first]
        self.among = np.zeros(CLASSES, np.bool_)  # a look into this is cheaper than a search, and most drop out by it
        self.among[self.prefixes >> np.uint64(self.kind.shift - self.left)] = True

    @property
    def elements(self) -> int:
        return int(self.counts.sum())

    def _chosen(self, keys: Keys) -> tuple[Keys, Int64]:
        """The keys that are in one of the classes, and in which."""
        keys = keys[self.among[(keys >> self.kind.key.type(self.kind.shift)).astype(np.uint16)]]
        high = (keys >> self.kind.key.type(self.left)).astype(np.uint64)
        at = np.searchsorted(self.prefixes, high)
        inside = self.prefixes[np.minimum(at, len(self.prefixes) - 1)] == high
        return keys[inside], at[inside]

    def narrow(self, array: Array, progress: ProgressFn) -> None:
        """One more pass: 16 more bits of every class."""
        left = self.left - _STEP
        mask = self.kind.key.type(CLASSES - 1)
        counts = np.zeros(len(self.prefixes) * CLASSES, np.int64)
        for keys in key_blocks(array, self.kind, progress, "narrowing down"):
            chosen, at = self._chosen(keys)
            if len(chosen):
                inner = ((chosen >> self.kind.key.type(left)) & mask).astype(np.int64)
                counts += np.bincount(at * CLASSES + inner, minlength=len(counts))
        classes, offsets, held = [], [], []
        for which, offset in zip(self.which.tolist(), self.offsets.tolist(), strict=True):
            own = counts[which * CLASSES : (which + 1) * CLASSES]
            sums = np.cumsum(own)
            inner = int(np.searchsorted(sums, offset, "right"))
            classes.append((int(self.prefixes[which]) << _STEP) | inner)
            offsets.append(offset - int(sums[inner] - own[inner]))
            held.append(int(own[inner]))
        self.left = left
        self._take(np.array(classes, np.uint64), np.array(offsets, np.int64), np.array(held, np.int64))

    def collect(self, array: Array, progress: ProgressFn) -> Keys:
        """The keys of the wanted elements, in their order."""
        if not self.left:  # a class is a single value
            return self.prefixes[self.which].astype(self.kind.key)
        found = [self._chosen(keys)[0] for keys in key_blocks(array, self.kind, progress, "sorting")]
        keys = np.sort(np.concatenate(found))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        picked: Keys = keys[starts[self.which] + self.offsets]
        return picked
