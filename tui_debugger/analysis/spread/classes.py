"""How many elements each class of keys holds: one pass over the elements, then all questions are about few of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tui_debugger.analysis.blocks import BLOCK, SINGLE, doubles, exact
from tui_debugger.analysis.dtypes import DType
from tui_debugger.analysis.sharing import Checkpoint, Span, Stock, in_line, in_order, stock_of
from tui_debugger.analysis.spread.keys import CLASS_OF_BITS, CLASSES, SIGN, SINGLES, ZERO_CLASS, KeyKind, Keys, kind_of
from tui_debugger.arrays import Array, Float32, Float64, Int64, Mask
from tui_debugger.model import ProgressFn, no_progress

_MANY: Final = 4 * BLOCK
"""Elements that are counted at once: adding up 65536 counts should not take longer than counting."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """How many elements each class holds.

    Attributes:
        kind: the keys.
        counts: elements by class, NaN and Inf included.
        below: elements below each class, 65537 of them.
        finite: finite elements; those below the first finite one are −Inf and NaN.
        first: elements with keys before the first finite one.
        zeros: elements that are 0.
        keys: all keys there are, ascending, and ``held`` elements of each; None where there may be many.
    """

    kind: KeyKind
    counts: Int64
    below: Int64
    finite: int
    first: int
    zeros: int
    keys: Keys | None = None
    held: Int64 | None = None

    def inside(self, classes: Mask) -> int:
        """Elements other than 0 in some classes."""
        return int(self.counts[classes].sum()) - (self.zeros if classes[ZERO_CLASS] else 0)


def count_classes(array: Array | Stock, progress: ProgressFn = no_progress) -> ClassCounts:
    """Counts every element by its class, in one pass.

    Raises:
        TypeError: the element type is not numeric.
        CancelledError: from ``progress``.
    """
    stock = stock_of(array)
    dtype = stock.arrays[0].dtype
    kind = kind_of(dtype)
    if dtype.itemsize <= 2:
        patterns = np.zeros(1 << 8 * dtype.itemsize, np.int64)
        for part in in_order(stock, lambda: _CountPatterns(dtype), "counting", progress):
            patterns += part
        return _of_patterns(patterns, dtype, kind)
    counts, zeros = np.zeros(CLASSES, np.int64), 0
    for part, more in in_order(stock, lambda: _CountClasses(kind), "counting", progress):
        counts += part
        zeros += more
    return _summed(kind, counts, zeros)


def _summed(
    kind: KeyKind, counts: Int64, zeros: int, keys: Keys | None = None, held: Int64 | None = None
) -> ClassCounts:
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    low, high = (bound >> kind.shift for bound in kind.finite)  # each is where a class begins
    first = int(below[low])
    return ClassCounts(kind, counts, below, int(below[high]) - first, first, zeros, keys, held)


def _of_patterns(patterns: Int64, dtype: DType, kind: KeyKind) -> ClassCounts:
    """Of types of at most 16 bits: how often there is each of their values is all that can be asked."""
    there = np.flatnonzero(patterns)
    with np.errstate(all="ignore"):
        values = exact(there.astype(_unsigned(dtype)).view(dtype))  # no more than a block
        keys, at = np.unique(kind.of(values), return_inverse=True)
    held = np.bincount(at, patterns[there], minlength=len(keys)).astype(np.int64)
    counts = np.bincount((keys >> kind.key.type(kind.shift)).astype(np.int64), held, CLASSES).astype(np.int64)
    zeros = int(held[keys == kind.key.type(kind.zero)].sum())
    return _summed(kind, counts, zeros, keys, held)


def _unsigned(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}")


@dataclass(frozen=True, slots=True)
class _CountPatterns:
    """The task of a span: how often it has each pattern of bits."""

    dtype: DType
    cost: int = 3

    def prepare(self, arrays: tuple[Array, ...]) -> Any:
        return in_line(arrays[0])

    def do(self, prepared: Any, span: Span, checkpoint: Checkpoint) -> Int64:
        size = 1 << 8 * self.dtype.itemsize
        found = np.zeros(size, np.int64)
        for start in range(*span, _MANY):
            checkpoint(start - span[0])
            block = np.asarray(prepared[start : min(start + _MANY, span[1])])
            found += np.bincount(block.view(_unsigned(self.dtype)), minlength=size)
        return found


@dataclass(frozen=True, slots=True)
class _CountClasses:
    """The task of a span: how many of its elements are in each class, and how many are 0."""

    kind: KeyKind
    cost: int = 4

    def prepare(self, arrays: tuple[Array, ...]) -> Any:
        return in_line(arrays[0])

    def do(self, prepared: Any, span: Span, checkpoint: Checkpoint) -> tuple[Int64, int]:
        by_bits, zeros, minus = np.zeros(CLASSES, np.int64), 0, 0
        for start in range(*span, _MANY):
            checkpoint(start - span[0])
            values = self._values(np.asarray(prepared[start : min(start + _MANY, span[1])]))
            found = np.bincount(self.kind.upper_bits(values), minlength=CLASSES)
            if found[0] or found[SIGN]:
                zeros += int(np.count_nonzero(values == self.kind.value.type(0)))
            if found[SIGN]:
                minus += int(np.count_nonzero(values.view(self.kind.key) == self.kind.key.type(self.kind.zero)))
            by_bits += found
        counts = np.empty(CLASSES, np.int64)
        counts[CLASS_OF_BITS] = by_bits
        counts[ZERO_CLASS] += minus
        counts[CLASS_OF_BITS[SIGN]] -= minus
        return counts, zeros

    def _values(self, block: Array) -> Float32 | Float64:
        if block.dtype == self.kind.value and block.flags.c_contiguous:
            return block
        with np.errstate(all="ignore"):
            parts = [block[start : start + BLOCK] for start in range(0, len(block), BLOCK)]
            if self.kind == SINGLES:
                return np.concatenate([exact(part).astype(SINGLE) for part in parts])
            return np.concatenate([doubles(part).copy() for part in parts])
