"""Distributions of values: counts by classes of keys, elements below a bound, bins of histograms.

A key is an unsigned integer that sorts as the value does; the class of a value is the upper 16 bits of its key.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float32, Float64, Int64, Mask
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.stats import kernel
from tui_debugger.stats.blocks import BLOCK, pieces
from tui_debugger.stats.dtypes import DType, is_numeric
from tui_debugger.stats.kernel import is_known
from tui_debugger.stats.kernel.elements import BitCounts, count_edges, keys_of
from tui_debugger.stats.spans import Checkpoint, SharedArrays, Span, shared_arrays, span_results

CLASSES: Final = 1 << 16
SIGN: Final = 1 << 15
ZERO_CLASS: Final = SIGN
"""The class of 0, and of positive numbers so small that their upper 16 bits are 0."""
CLASS_OF_BITS: Final = np.arange(CLASSES) ^ np.where(np.arange(CLASSES) & SIGN, CLASSES - 1, SIGN)
"""The class for each value of a float's upper 16 bits; callers correct -0, which belongs to the class of 0."""
Keys = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class KeyKind:
    """Keys of 32 or 64 bits: value type float32 or float64, key type uint32 or uint64."""

    bits: int
    value: DType
    key: DType

    @property
    def shift(self) -> int:
        """Bits of a key below its class."""
        return self.bits - 16

    def of(self, values: Float32 | Float64) -> Keys:
        """Returns the keys of values; −0 counts as 0."""
        bits = (values + self.value.type(0)).view(self.key)
        signs = bits.view(f"i{self.bits // 8}") >> (self.bits - 1)  # all bits set for negative values, else none
        keys: Keys = signs.view(self.key)
        keys |= self.key.type(1 << (self.bits - 1))
        keys ^= bits
        return keys

    @property
    def zero(self) -> int:
        return 1 << (self.bits - 1)

    def upper_bits(self, values: Float32 | Float64 | Keys) -> npt.NDArray[np.uint16]:
        """Returns the upper 16 bits of each value or key: a view."""
        parts = self.bits // 16
        return values.view(np.uint16)[parts - 1 if sys.byteorder == "little" else 0 :: parts]

    def key_of(self, value: float, *, above: bool = False) -> int:
        """Returns the smallest key of a value ≥ ``value`` (> ``value`` with ``above``), at most the key of Inf."""
        with np.errstate(all="ignore"):
            near = self.value.type(value) + self.value.type(0)
            if float(near) < value or (above and float(near) == value):
                near = np.nextafter(near, self.value.type(math.inf))
        return int(self.of(np.array([near], self.value))[0])

    def value_of(self, keys: Keys) -> Float32 | Float64:
        top = self.key.type(1 << (self.bits - 1))
        bits = keys ^ np.where(keys & top, top, ~self.key.type(0))
        values: Float32 | Float64 = bits.astype(self.key).view(self.value)
        return values

    @property
    def finite(self) -> tuple[int, int]:
        """The first key of a finite value, and the key after the last finite value."""
        infinite = self.of(np.array([-math.inf, math.inf], self.value))
        return int(infinite[0]) + 1, int(infinite[1])


SINGLES: Final = KeyKind(32, np.dtype(np.float32), np.dtype(np.uint32))
DOUBLES: Final = KeyKind(64, np.dtype(np.float64), np.dtype(np.uint64))


def kind_of(dtype: DType) -> KeyKind:
    """Returns 32 bits where float32 holds every value of the type, else 64; raises TypeError if it has no order."""
    if not is_numeric(dtype):
        msg = f"element type {dtype} has no order"
        raise TypeError(msg)
    return SINGLES if dtype.itemsize <= 2 or dtype.newbyteorder("=") == SINGLES.value else DOUBLES


def value_blocks(line: Any, kind: KeyKind, span: Span, checkpoint: Checkpoint) -> Iterator[Array]:
    """Yields a span's elements in pieces: unchanged if the kernel knows their type, else converted by ``valued``."""
    for start in range(*span, _MANY):
        checkpoint(start - span[0])
        block = np.asarray(line[start : min(start + _MANY, span[1])])
        yield block if is_known(block.dtype) else valued(block, kind)


def valued(block: Array, kind: KeyKind) -> Float32 | Float64:
    """Returns a block as float32 or float64 by the kind of its keys; complex elements as their magnitude."""
    with np.errstate(all="ignore"):
        if block.dtype.kind == "c":
            block = np.abs(block.astype(np.complex128))
        values: Float32 | Float64 = np.ascontiguousarray(block.astype(kind.value, copy=False))
        return values


def chosen_keys(line: Any, kind: KeyKind, wanted: Mask, span: Span, checkpoint: Checkpoint) -> Iterator[Keys]:
    """Yields in pieces the keys, other than 0, of a span's elements in the classes of ``wanted`` (a truth each)."""
    by_bits = wanted[CLASS_OF_BITS]
    by_bits[SIGN] |= wanted[ZERO_CLASS]  # -0 has the upper bits of tiny negative numbers, but is of the class of 0
    zero = kind.key.type(kind.zero)
    room = np.empty(_MANY, kind.key) if kernel.available() else None
    for block in value_blocks(line, kind, span, checkpoint):
        if room is not None:
            found = keys_of(block, by_bits, room).copy()
        else:
            found = kind.of(block[by_bits[kind.upper_bits(block)]])
            found = found[found != zero]
        if len(found):
            yield found


_MANY: Final = 4 * BLOCK
"""Elements that are counted at once: adding up 65536 counts should not take longer than counting."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """The number of elements in each class, NaN and Inf included.

    Attributes:
        below: elements below each class, 65537 entries.
        finite: number of finite elements.
        first: number of elements before the first finite one: −Inf and negative NaN.
        keys: all distinct keys, ascending, with ``held`` elements each; None where there may be many.
        known: the elements that were gathered last, to be used again.
    """

    kind: KeyKind
    counts: Int64
    below: Int64
    finite: int
    first: int
    zeros: int
    keys: Keys | None = None
    held: Int64 | None = None
    known: list[Gathered] = field(default_factory=list)

    def inside(self, classes: Mask) -> int:
        """Returns how many elements other than 0 are in the classes."""
        return int(self.counts[classes].sum()) - (self.zeros if classes[ZERO_CLASS] else 0)


def count_classes(array: Array | SharedArrays, progress: ProgressFn = no_progress) -> ClassCounts:
    """Counts every element by its class, in one pass; raises TypeError for elements that are no numbers."""
    shared = shared_arrays(array)
    dtype = shared.arrays[0].dtype
    kind = kind_of(dtype)
    if dtype.itemsize <= 2:
        patterns = np.zeros(1 << 8 * dtype.itemsize, np.int64)
        for part in span_results(shared, partial(_count_patterns, dtype), "counting", progress, cost=3):
            patterns += part
        return _of_patterns(patterns, dtype, kind)
    counts, zeros = np.zeros(CLASSES, np.int64), 0
    for part, more in span_results(shared, partial(_count_by_class, kind), "counting", progress, cost=4):
        counts += part
        zeros += more
    return _summed(kind, counts, zeros)


def _summed(
    kind: KeyKind, counts: Int64, zeros: int, keys: Keys | None = None, held: Int64 | None = None
) -> ClassCounts:
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    low, high = (bound >> kind.shift for bound in kind.finite)  # both are the begin of a class
    first = int(below[low])
    return ClassCounts(kind, counts, below, int(below[high]) - first, first, zeros, keys, held)


def _of_patterns(patterns: Int64, dtype: DType, kind: KeyKind) -> ClassCounts:
    """Counts a type of at most 16 bits by bit pattern, which gives all its keys with their counts."""
    there = np.flatnonzero(patterns)
    with np.errstate(all="ignore"):
        values = valued(there.astype(_unsigned(dtype)).view(dtype), kind)
        keys, at = np.unique(kind.of(values), return_inverse=True)
    held = np.bincount(at, patterns[there], minlength=len(keys)).astype(np.int64)
    counts = np.bincount((keys >> kind.key.type(kind.shift)).astype(np.int64), held, CLASSES).astype(np.int64)
    zeros = int(held[keys == kind.key.type(kind.zero)].sum())
    return _summed(kind, counts, zeros, keys, held)


def _unsigned(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}")


def _count_patterns(dtype: DType, line: Any, span: Span, checkpoint: Checkpoint) -> Int64:
    """Counts each bit pattern of a span."""
    size, sums = 1 << 8 * dtype.itemsize, None
    if kernel.available():
        sums = BitCounts(width=dtype.itemsize)
    found = np.zeros(size, np.int64)
    for start in range(*span, _MANY):
        checkpoint(start - span[0])
        bits = np.asarray(line[start : min(start + _MANY, span[1])]).view(_unsigned(dtype))
        if sums is not None:
            sums.add(bits)
        else:
            found += np.bincount(bits, minlength=size)
    return found if sums is None else sums.counts()


def _count_by_class(kind: KeyKind, line: Any, span: Span, checkpoint: Checkpoint) -> tuple[Int64, int]:
    """Counts the elements of a span by class, and its zeros."""
    by_bits, (zeros, minus) = np.zeros(CLASSES, np.int64), (0, 0)
    blocks = value_blocks(line, kind, span, checkpoint)
    if kernel.available():
        sums = BitCounts(width=kind.bits // 8, narrow=kind == SINGLES)
        for block in blocks:
            sums.add(block)
        by_bits, (zeros, minus) = sums.counts(), sums.zeros.tolist()
    else:
        for block in blocks:
            by_bits += np.bincount(kind.upper_bits(block), minlength=CLASSES)
            zeros += int(np.count_nonzero(block == 0))
            minus += int(np.count_nonzero(block.view(kind.key) == kind.key.type(kind.zero)))
    counts = np.empty(CLASSES, np.int64)
    counts[CLASS_OF_BITS] = by_bits
    counts[ZERO_CLASS] += minus
    counts[CLASS_OF_BITS[SIGN]] -= minus
    return counts, zeros


MOST_KEPT: Final = 1 << 21
"""Elements that are kept and sorted: at most 16 MB."""
_FEW: Final = 32
"""Up to this many bounds, comparing all elements with each bound is faster than a search among the bounds."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """All elements, except 0, of the classes in ``inside``: ``keys``, ascending."""

    classes: ClassCounts
    keys: Keys
    inside: Mask

    def below(self, bound: int) -> int:
        """Returns how many elements of the whole tensor have keys below a bound, whose class is in ``inside``."""
        kind, which = self.classes.kind, bound >> self.classes.kind.shift
        found = int(self.classes.below[which]) + self._before(bound) - self._before(which << kind.shift)
        return found + (self.classes.zeros if which == ZERO_CLASS and bound > kind.zero else 0)

    def at(self, rank: int) -> int:
        """Returns the key with a rank among all finite elements; its class is in ``inside``."""
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
    """Returns the class of the element at a place in the ascending order of all elements."""
    return int(np.searchsorted(classes.below, place, "right")) - 1


def classes_of_bounds(classes: ClassCounts, bounds: Iterable[int]) -> Mask:
    """Returns the non-empty classes that bounds divide, except a division right after 0."""
    shift, zero = classes.kind.shift, classes.kind.zero
    inner = (1 << shift) - 1
    found: Mask = np.zeros(CLASSES, np.bool_)
    for bound in bounds:
        if bound & inner and bound != zero + 1 and classes.counts[bound >> shift]:
            found[bound >> shift] = True
    return found


def classes_of_ranks(classes: ClassCounts, ranks: Iterable[int]) -> Mask:
    """Returns the classes of the finite elements with the given ranks, except elements that are 0."""
    found: Mask = np.zeros(CLASSES, np.bool_)
    for rank in ranks:
        place = rank + classes.first
        which = class_at(classes, place)
        if which != ZERO_CLASS or place - int(classes.below[which]) >= classes.zeros:
            found[which] = True
    return found


def gather(
    array: Array | SharedArrays, classes: ClassCounts, inside: Mask, progress: ProgressFn = no_progress
) -> Gathered | None:
    """Gathers the elements, but 0, of at least the classes ``inside``; None if they exceed ``MOST_KEPT``.

    ``classes`` come from ``count_classes`` of the same array; ``progress`` may raise CancelledError.
    """
    for known in classes.known:
        if not classes.inside(inside & ~known.inside):
            return known
    many = classes.inside(inside)
    if many > MOST_KEPT:
        return None
    parts: list[Keys] = [np.zeros(0, classes.kind.key)]
    if many:

        def chosen(line: Any, span: Span, checkpoint: Checkpoint) -> Keys:
            return np.concatenate([parts[0], *chosen_keys(line, classes.kind, inside, span, checkpoint)])

        parts += span_results(shared_arrays(array), chosen, "sorting", progress, cost=3)
    found = Gathered(classes, np.sort(np.concatenate(parts)), inside)
    classes.known[:] = [found]
    return found


def count_below(
    array: Array | SharedArrays,
    classes: ClassCounts,
    bounds: Sequence[int],
    progress: ProgressFn = no_progress,
    *,
    gathered: Gathered | None = None,
) -> list[int]:
    """Counts elements with keys below each of ``bounds``; reads the array only when a bound lies inside a class.

    ``gathered`` may hold the elements of all classes that bounds divide (and of others).
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
    array: Array | SharedArrays, classes: ClassCounts, bounds: Sequence[int], split: Mask, progress: ProgressFn
) -> dict[int, int]:
    """Counts below bounds that divide classes of too many elements to gather, by counting between the bounds."""
    shift, zero = classes.kind.shift, classes.kind.zero
    cut = np.array(sorted({bound for bound in bounds if split[bound >> shift]}), classes.kind.key)

    def below(line: Any, span: Span, checkpoint: Checkpoint) -> Int64:
        found = np.zeros(len(cut), np.int64)
        for keys in chosen_keys(line, classes.kind, split, span, checkpoint):
            if len(cut) <= _FEW:
                found += [int(np.count_nonzero(keys < bound)) for bound in cut]
            else:
                among = np.bincount(np.searchsorted(cut, keys, "right"), minlength=len(cut) + 1)
                found += np.cumsum(among)[:-1]
        return found

    sums = sum(span_results(shared_arrays(array), below, "counting", progress, cost=3), np.zeros(len(cut), np.int64))
    held = np.where(split, classes.counts, 0)
    held[ZERO_CLASS] -= classes.zeros if split[ZERO_CLASS] else 0
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(held)])
    found = {}
    for bound, up_to in zip(cut.tolist(), sums.tolist(), strict=True):
        which = bound >> shift
        zeros = classes.zeros if which == ZERO_CLASS and bound > zero else 0
        found[bound] = int(classes.below[which] - before[which]) + up_to + zeros
    return found


FINEST: Final = 20
"""An octave is divided into at most 2**FINEST bins: a millionth of the value."""
_COARSEST: Final = -12
"""A bin holds at most 2**12 octaves: one bin for all magnitudes from 1 on, one for those below."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Values from ``low`` to ``high``; ``with_low`` and ``with_high``: the edge itself belongs to the bin."""

    low: float
    high: float
    with_low: bool = True
    with_high: bool = False


def equal_edges(low: float, high: float, bins: int) -> list[float]:
    """Spaces edges equally, the first and last exactly the bounds; the range may exceed the greatest double."""
    scale = 1.0 if math.isfinite(high - low) else 0.5
    with np.errstate(all="ignore"):  # on the way to the last edge, which is then set to the bound itself
        found: list[float] = (np.linspace(low * scale, high * scale, bins + 1) / scale).tolist()
    return found


def linear_bins(low: float, high: float, most: int, *, whole: bool = False) -> tuple[Bin, ...]:
    """Makes at most ``most`` bins of one width from ``low`` to ``high``, both included; one bin when they are equal.

    With ``whole`` the values are whole numbers: each bin holds equally many of them and starts at one of them.
    """
    if whole and max(-low, high) < 2**53:  # beyond it whole numbers are not all doubles: edges would coincide
        width = max(1, math.ceil((high - low + 1) / most))
        starts = range(int(low), int(high) + 1, width)
        return tuple(Bin(float(start), float(start + width)) for start in starts)
    if low == high:
        return (Bin(low, high, with_high=True),)
    edges = list(dict.fromkeys(equal_edges(low, high, most)))  # a narrow range holds fewer doubles than bins
    last = len(edges) - 2
    return tuple(Bin(edges[i], edges[i + 1], with_high=i == last) for i in range(last + 1))


def log_bins(low: float, high: float, least: float | None, most: int) -> tuple[Bin, ...]:
    """Makes at most ``most`` (≥ 5) bins by magnitude: an octave, several octaves or equal parts of an octave each.

    A bin covers magnitudes from 2ᵃ up to, but without, 2ᵇ, with a sign; exactly 0 is a bin of its own in the middle.
    ``least`` is the smallest magnitude above 0; None when all values are 0.
    """
    sides = _magnitudes(low, high, least)
    zero = low <= 0 <= high
    fits = [level for level in range(_COARSEST, FINEST + 1) if sum(_many(side, level) for side in sides) + zero <= most]
    level = fits[-1] if fits else _COARSEST
    if all(side is None or side[0] == side[1] for side in sides):
        level = min(level, 0)  # one value: its octave says more than a sliver of it
    negative, positive = sides
    found = [_mirrored(each) for each in _octaves(negative, level)][::-1]
    if zero:
        found.append(Bin(0.0, 0.0, with_high=True))
    return (*found, *_octaves(positive, level))


_Side = tuple[float, float] | None
"""Least and greatest magnitude to be shown on one side of 0; None: nothing to show."""


def _magnitudes(low: float, high: float, least: float | None) -> tuple[_Side, _Side]:
    if least is None:
        return None, None
    negative = (max(least, -high), -low) if low < 0 else None
    positive = (max(least, low), high) if high > 0 else None
    return (
        negative if negative is not None and negative[0] <= negative[1] else None,
        positive if positive is not None and positive[0] <= positive[1] else None,
    )


def _many(side: _Side, level: int) -> int:
    return 0 if side is None else _index(side[1], level) - _index(side[0], level) + 1


def _index(magnitude: float, level: int) -> int:
    """Numbers the bin of a magnitude: 2**level bins an octave, or for a negative level 2**−level octaves a bin."""
    fraction, exponent = math.frexp(magnitude)
    if level < 0:
        return (exponent - 1) >> -level
    return ((exponent - 1) << level) + int((2 * fraction - 1) * (1 << level))


def _edge(index: int, level: int) -> float:
    """Returns the least magnitude of a bin; 0 or Inf where there is no such double."""
    octave, part = (index << -level, 0) if level < 0 else divmod(index, 1 << level)
    try:
        return math.ldexp(1 + part / (1 << max(level, 0)), octave)
    except OverflowError:
        return math.inf


def _octaves(side: _Side, level: int) -> Iterator[Bin]:
    if side is None:
        return
    for index in range(_index(side[0], level), _index(side[1], level) + 1):
        low, high = _edge(index, level), _edge(index + 1, level)
        yield Bin(low, high, with_low=low > 0)


def _mirrored(each: Bin) -> Bin:
    return Bin(-each.high, -each.low, with_low=each.with_high, with_high=each.with_low)


BINS: Final = 10
"""Default number of bins: they fit into a line and still separate two peaks."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Number of elements between neighbouring edges.

    Bin i is edges[i] ≤ x < edges[i + 1]; the last bin includes its upper edge. One bin when all elements are equal.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def histogram(array: npt.NDArray[Any], low: float, high: float, bins: int = BINS) -> Histogram:
    """Counts the elements from ``low`` to ``high`` in bins of one width, block by block.

    Elements are cast to float64, complex elements to their magnitude. NaN, and values outside the bounds, are not
    counted. The range may be wider than the greatest double. Raises TypeError (no numbers) and ValueError (bad bounds,
    no bins).
    """
    if not is_numeric(array.dtype):
        msg = f"no histogram for element type {array.dtype}"
        raise TypeError(msg)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high) or bins < 1:
        msg = f"no histogram of {bins} bins from {low} to {high}"
        raise ValueError(msg)
    edges = [low, high] if low == high else equal_edges(low, high, bins)
    # Comparing with every edge needs no arithmetic, so nothing overflows or is rounded into the bin beside, NaN drops
    # out by itself, and for a dozen edges it is faster than computing bin numbers.
    reached = np.zeros(len(edges), np.int64)
    for (piece,) in pieces(array):
        for start in range(0, len(piece), BLOCK):
            block = piece[start : start + BLOCK]
            if is_known(block.dtype):
                reached += count_edges(block, edges)
            else:
                values = valued(block, DOUBLES)
                reached += [np.count_nonzero(values >= edge) for edge in edges[:-1]] + [np.count_nonzero(values > high)]
    return Histogram(tuple(edges), tuple(here - above for here, above in pairwise(reached.tolist())))


def count_bins(
    array: npt.NDArray[Any] | SharedArrays,
    classes: ClassCounts,
    bins: Sequence[Bin],
    progress: ProgressFn = no_progress,
) -> tuple[int, ...]:
    """Counts the elements in each of any bins, in at most one pass; in none where the bins end where classes do.

    ``classes`` come from ``count_classes`` of the same array; ``progress`` may raise CancelledError.
    """
    key_of = classes.kind.key_of
    bounds = []
    for each in bins:
        bounds += [key_of(each.low, above=not each.with_low), key_of(each.high, above=each.with_high)]
    below = count_below(array, classes, bounds, progress)
    return tuple(max(below[i + 1] - below[i], 0) for i in range(0, len(below), 2))
