"""How many elements lie below any bound: by classes where that will do, else by the few in the classes concerned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tui_debugger.analysis.sharing import Checkpoint, Span, Stock, in_line, in_order, stock_of
from tui_debugger.analysis.spread.classes import ClassCounts
from tui_debugger.analysis.spread.keys import CLASSES, ZERO_CLASS, KeyKind, Keys, chosen_keys
from tui_debugger.arrays import Array, Int64, Mask
from tui_debugger.model import ProgressFn, no_progress

KEPT: Final = 1 << 21
"""Elements that are kept and sorted: at most 16 MB."""
_FEW: Final = 32
"""Bounds up to which comparing all elements with each is faster than finding the place of each among them."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """All elements of some classes but 0.

    Attributes:
        classes: of all elements.
        keys: of these, ascending.
        inside: which classes.
    """

    classes: ClassCounts
    keys: Keys
    inside: Mask

    def below(self, bound: int) -> int:
        """How many elements of all have keys below a bound; its class is among these."""
        kind, which = self.classes.kind, bound >> self.classes.kind.shift
        found = int(self.classes.below[which]) + self._before(bound) - self._before(which << kind.shift)
        return found + (self.classes.zeros if which == ZERO_CLASS and bound > kind.zero else 0)

    def at(self, rank: int) -> int:
        """The key at a place of all finite elements in order; its class is among these."""
        kind, place = self.classes.kind, rank + self.classes.first
        which = class_at(self.classes, place)
        offset = place - int(self.classes.below[which])
        if which == ZERO_CLASS:
            if offset < self.classes.zeros:
                return kind.zero
            offset -= self.classes.zeros
        return int(self.keys[self._before(which << kind.shift) + offset])

    def _before(self, key: int) -> int:
        return int(np.searchsorted(self.keys, self.classes.kind.key.type(key)))


def class_at(classes: ClassCounts, place: int) -> int:
    """The class of the element at a place of all elements in order."""
    return int(np.searchsorted(classes.below, place, "right")) - 1


def classes_of_bounds(classes: ClassCounts, bounds: Iterable[int]) -> Mask:
    """The classes that bounds divide, unless they hold nothing or it is 0 that they are divided at."""
    shift, zero = classes.kind.shift, classes.kind.zero
    inner = (1 << shift) - 1
    found: Mask = np.zeros(CLASSES, np.bool_)
    for bound in bounds:
        if bound & inner and bound != zero + 1 and classes.counts[bound >> shift]:
            found[bound >> shift] = True
    return found


def classes_of_ranks(classes: ClassCounts, ranks: Iterable[int]) -> Mask:
    """The classes with the finite elements at some places of their order, unless those are 0."""
    found: Mask = np.zeros(CLASSES, np.bool_)
    for rank in ranks:
        place = rank + classes.first
        which = class_at(classes, place)
        if which != ZERO_CLASS or place - int(classes.below[which]) >= classes.zeros:
            found[which] = True
    return found


def gather(
    array: Array | Stock, classes: ClassCounts, inside: Mask, progress: ProgressFn = no_progress
) -> Gathered | None:
    """The elements of some classes, in one pass; None where they are too many to be kept.

    Args:
        array: what ``classes`` were counted of.
        classes: from ``count_classes``.
        inside: which classes.
        progress: may raise CancelledError.
    """
    many = classes.inside(inside)
    if many > KEPT:
        return None
    parts: list[Keys] = [np.zeros(0, classes.kind.key)]
    if many:
        task = _Gather(classes.kind, inside)
        parts += in_order(stock_of(array), lambda: task, "sorting", progress)
    return Gathered(classes, np.sort(np.concatenate(parts)), inside)


def count_below(
    array: Array | Stock,
    classes: ClassCounts,
    bounds: Sequence[int],
    progress: ProgressFn = no_progress,
    *,
    gathered: Gathered | None = None,
) -> list[int]:
    """How many elements have keys below each of ``bounds``; reads the array only when a bound lies inside a class.

    Args:
        array: what ``classes`` were counted of.
        classes: from ``count_classes``.
        bounds: keys, in any order.
        progress: may raise CancelledError.
        gathered: the elements of all classes that bounds divide, and of others; None where these are not known.
    """
    if classes.keys is not None and classes.held is not None:
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(classes.held)])
        return [int(n) for n in sums[np.searchsorted(classes.keys, np.array(bounds, classes.kind.key))]]
    split = classes_of_bounds(classes, bounds)
    known = gather(array, classes, split, progress) if gathered is None else gathered
    found = {} if known is not None else _counted(array, classes, bounds, split, progress)
    shift, zero = classes.kind.shift, classes.kind.zero
    counts = []
    for bound in bounds:
        if bound == zero + 1:
            counts.append(int(classes.below[ZERO_CLASS]) + classes.zeros)
        elif not split[bound >> shift] or not bound & ((1 << shift) - 1):
            counts.append(int(classes.below[bound >> shift]))
        else:
            counts.append(known.below(bound) if known is not None else found[bound])
    return counts


def _counted(
    array: Array | Stock, classes: ClassCounts, bounds: Sequence[int], split: Mask, progress: ProgressFn
) -> dict[int, int]:
    """The same for bounds that divide classes of many elements: those are counted between the bounds."""
    shift, zero = classes.kind.shift, classes.kind.zero
    cut = np.array(sorted({bound for bound in bounds if split[bound >> shift]}), classes.kind.key)
    task = _Below(classes.kind, split, cut)
    sums = np.zeros(len(cut), np.int64)
    for part in in_order(stock_of(array), lambda: task, "counting", progress):
        sums += part
    held = np.where(split, classes.counts, 0)
    held[ZERO_CLASS] -= classes.zeros if split[ZERO_CLASS] else 0
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(held)])
    found = {}
    for bound, up_to in zip(cut.tolist(), sums.tolist(), strict=True):
        which = bound >> shift
        zeros = classes.zeros if which == ZERO_CLASS and bound > zero else 0
        found[bound] = int(classes.below[which] - before[which]) + up_to + zeros
    return found


@dataclass(frozen=True, slots=True)
class _Gather:
    """The task of a span: the keys that it has of some classes."""

    kind: KeyKind
    inside: Mask
    cost: int = 3

    def prepare(self, arrays: tuple[Array, ...]) -> Any:
        return in_line(arrays[0])

    def do(self, prepared: Any, span: Span, checkpoint: Checkpoint) -> Keys:
        found = list(chosen_keys(prepared, self.kind, self.inside, span, checkpoint))
        return np.concatenate(found) if found else np.zeros(0, self.kind.key)


@dataclass(frozen=True, slots=True)
class _Below:
    """The task of a span: how many elements of some classes are below each bound."""

    kind: KeyKind
    inside: Mask
    bounds: Keys
    cost: int = 3

    def prepare(self, arrays: tuple[Array, ...]) -> Any:
        return in_line(arrays[0])

    def do(self, prepared: Any, span: Span, checkpoint: Checkpoint) -> Int64:
        below = np.zeros(len(self.bounds), np.int64)
        for keys in chosen_keys(prepared, self.kind, self.inside, span, checkpoint):
            if len(below) <= _FEW:
                below += [int(np.count_nonzero(keys < bound)) for bound in self.bounds]
            else:
                among = np.bincount(np.searchsorted(self.bounds, keys, "right"), minlength=len(below) + 1)
                below += np.cumsum(among)[:-1]
        return below
