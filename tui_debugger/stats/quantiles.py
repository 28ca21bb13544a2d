"""Exact percentiles of tensors of any size, and the distance of values from the limits of element types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.arrays import Array, Int64
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.stats import distribution
from tui_debugger.stats.distribution import (
    CLASSES,
    ZERO_CLASS,
    ClassCounts,
    Gathered,
    KeyKind,
    Keys,
    chosen_keys,
    class_at,
    classes_of_bounds,
    classes_of_ranks,
    count_below,
    gather,
)
from tui_debugger.stats.dtypes import canonical_name, dtype_of
from tui_debugger.stats.spans import Checkpoint, SharedArrays, Span, shared_arrays, span_results

PERCENTS: Final = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)
_STEP: Final = 16
"""Bits by which a pass narrows a class down."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Exact percentiles of ``count`` finite elements, interpolated as numpy does it; no values if ``count`` is 0."""

    percents: tuple[float, ...]
    values: tuple[float, ...]
    count: int


def quantiles(
    array: Array | SharedArrays,
    classes: ClassCounts,
    percents: Sequence[float] = PERCENTS,
    progress: ProgressFn = no_progress,
) -> Quantiles:
    """Returns the percentiles of the finite elements as float64, for complex elements of their magnitudes."""
    count = classes.finite
    if not count:
        return Quantiles(tuple(percents), (), 0)
    places = _places(count, percents)
    found = order_statistics(array, classes, _ranks(places, count), progress)
    values = []
    for place in places:
        low = math.floor(place)
        values.append(_between(found[low], found[min(low + 1, count - 1)], place - low))
    return Quantiles(tuple(percents), tuple(values), count)


def _places(count: int, percents: Sequence[float]) -> list[float]:
    """Returns the fractional ranks of percentiles among ``count`` elements."""
    return [(count - 1) * (percent / 100) for percent in percents]


def _ranks(places: Sequence[float], count: int) -> set[int]:
    """Returns the ranks on both sides of each place."""
    return {rank for place in places if count for rank in (math.floor(place), min(math.floor(place) + 1, count - 1))}


def _between(low: float, high: float, part: float) -> float:
    """Interpolates as numpy does, so that the results are equal to the last bit."""
    difference = high - low
    if not math.isfinite(difference):
        return low * (1 - part) + high * part
    return high - difference * (1 - part) if part >= 0.5 else low + difference * part


def order_statistics(
    array: Array | SharedArrays,
    classes: ClassCounts,
    ranks: Iterable[int],
    progress: ProgressFn = no_progress,
    *,
    gathered: Gathered | None = None,
) -> dict[int, float]:
    """Returns the finite elements with the given ranks (0 is the smallest) as float64.

    ``gathered`` may hold the elements of all classes with these ranks (and of others).
    """
    wanted = sorted(set(ranks))
    if not wanted:
        return {}
    if classes.keys is not None and classes.held is not None:
        at = np.searchsorted(np.cumsum(classes.held), np.array(wanted) + classes.first, "right")
        keys = classes.keys[at]
    else:
        if gathered is None:
            gathered = gather(array, classes, classes_of_ranks(classes, wanted), progress)
        found = _narrowed(array, classes, wanted, progress) if gathered is None else map(gathered.at, wanted)
        keys = np.fromiter(found, classes.kind.key, len(wanted))
    values = classes.kind.value_of(keys).astype(np.float64) + 0.0
    return dict(zip(wanted, values.tolist(), strict=True))


def _narrowed(
    array: Array | SharedArrays, classes: ClassCounts, wanted: Sequence[int], progress: ProgressFn
) -> list[int]:
    """Returns the keys of elements whose classes are too big to be kept in memory."""
    kind, found = classes.kind, {}
    places, offsets = [], []
    for rank in wanted:
        which = class_at(classes, rank + classes.first)
        offset = rank + classes.first - int(classes.below[which])
        if which == ZERO_CLASS:
            if offset < classes.zeros:
                found[rank] = kind.zero
                continue
            offset -= classes.zeros
        places.append((rank, which))
        offsets.append(offset)
    if not places:
        return [found[rank] for rank in wanted]
    search = _QuantileSearch(kind, np.array([which for _, which in places], np.uint64), np.array(offsets, np.int64))
    shared = shared_arrays(array)
    search.narrow(shared, progress)
    while search.left and search.elements > distribution.MOST_KEPT:
        search.narrow(shared, progress)
    keys = search.collect(shared, progress).tolist()
    return [found[rank] if rank in found else keys[[at for at, _ in places].index(rank)] for rank in wanted]


class _QuantileSearch:
    """Narrows down the classes of the wanted elements by more and more of their upper bits."""

    def __init__(self, kind: KeyKind, classes: Keys, offsets: Int64) -> None:
        self.kind, self.left, self.elements = kind, kind.shift, 0
        self._take(classes, offsets)

    def _take(self, classes: Keys, offsets: Int64) -> None:
        """Sets the prefixes (upper bits) of the wanted elements, and their offsets inside these."""
        self.prefixes, self.which = np.unique(classes, return_inverse=True)
        self.offsets = offsets
        self.inside = np.zeros(CLASSES, np.bool_)
        self.inside[(self.prefixes >> np.uint64(self.kind.shift - self.left)).astype(np.int64)] = True

    def narrow(self, shared: SharedArrays, progress: ProgressFn) -> None:
        """Goes through the array once more, for 16 more bits of every class."""
        counts = np.zeros(len(self.prefixes) * CLASSES, np.int64)
        for at, many in span_results(shared, self._counted, "narrowing down", progress, cost=4):
            counts[at] += many
        classes, offsets, held = [], [], {}
        for which, offset in zip(self.which.tolist(), self.offsets.tolist(), strict=True):
            own = counts[which * CLASSES : (which + 1) * CLASSES]
            sums = np.cumsum(own)
            inner = int(np.searchsorted(sums, offset, "right"))
            classes.append((int(self.prefixes[which]) << _STEP) | inner)
            offsets.append(offset - int(sums[inner] - own[inner]))
            held[classes[-1]] = int(own[inner])
        self.left -= _STEP
        self.elements = sum(held.values())
        self._take(np.array(classes, np.uint64), np.array(offsets, np.int64))

    def collect(self, shared: SharedArrays, progress: ProgressFn) -> Keys:
        """Returns the keys of the wanted elements, in their order."""
        if not self.left:  # a class is a single value
            return self.prefixes[self.which].astype(self.kind.key)
        keys = np.sort(np.concatenate(list(span_results(shared, self._collected, "sorting", progress, cost=4))))
        starts = np.searchsorted(keys, self.prefixes << np.uint64(self.left))
        picked: Keys = keys[starts[self.which] + self.offsets]
        return picked

    def _keys(self, line: Any, span: Span, checkpoint: Checkpoint) -> Iterator[Keys]:
        return chosen_keys(line, self.kind, self.inside, span, checkpoint)

    def _counted(self, line: Any, span: Span, checkpoint: Checkpoint) -> tuple[Int64, Int64]:
        """Counts a span's elements by the next 16 bits of each class; returns the places with any, and the counts."""
        size = len(self.prefixes) * CLASSES
        counts: Int64 | None = None
        places, many = [np.zeros(0, np.int64)], 0
        for keys in self._keys(line, span, checkpoint):
            places.append(self._places(keys))
            many += len(places[-1])
            if many > size // 2:  # now counting into all counts is faster than sorting
                found = np.bincount(np.concatenate(places), minlength=size)
                counts = found if counts is None else counts + found
                places, many = [np.zeros(0, np.int64)], 0
        if counts is None:
            return np.unique(np.concatenate(places), return_counts=True)
        counts += np.bincount(np.concatenate(places), minlength=size)
        there = np.flatnonzero(counts)
        return there, counts[there]

    def _places(self, keys: Keys) -> Int64:
        """Returns for each key that has one of the prefixes its place in the counts of all classes."""
        shift, mask = self.kind.key.type(self.left - _STEP), self.kind.key.type(CLASSES - 1)
        if self.left < self.kind.shift:
            chosen, at = self._chosen(keys)
            found: Int64 = at * CLASSES + ((chosen >> shift) & mask).astype(np.int64)
            return found
        first = np.zeros(CLASSES, np.int64)  # each key is in one of the classes, by its upper bits
        first[self.prefixes.astype(np.int64)] = np.arange(len(self.prefixes)) * CLASSES
        places: Int64 = np.take(first, self.kind.upper_bits(keys))
        places += ((keys >> shift) & mask).astype(np.int64)
        return places

    def _collected(self, line: Any, span: Span, checkpoint: Checkpoint) -> Keys:
        """Returns a span's keys of each class."""
        chosen = (self._chosen(keys)[0] for keys in self._keys(line, span, checkpoint))
        return np.concatenate([np.zeros(0, self.kind.key), *chosen])

    def _chosen(self, keys: Keys) -> tuple[Keys, Int64]:
        """Returns the keys that have one of the prefixes, and the index of the prefix."""
        high = (keys >> self.kind.key.type(self.left)).astype(np.uint64)
        at = np.searchsorted(self.prefixes, high)
        inside = self.prefixes[np.minimum(at, len(self.prefixes) - 1)] == high
        return keys[inside], at[inside]


TARGETS: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types that training is moved to, for which conversions are reported."""
_PARTS: Final = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """The limits of a floating-point type.

    Attributes:
        normal: least normal value above 0: smaller values lose digits, and some devices make them 0.
        smallest: least value above 0.
        eps: distance of 1 to the next value.
        overflow: magnitudes above it are rounded to Inf (or NaN); Inf itself for float64.
        tie: whether ``overflow`` itself is rounded to Inf, too.
        vanish: magnitudes up to it are rounded to 0.
    """

    name: str
    largest: float
    normal: float
    smallest: float
    eps: float
    overflow: float
    tie: bool
    vanish: float


@lru_cache(maxsize=64)
def limits_of(dtype: str) -> FloatLimits | None:
    """Returns the limits of an element type by name, for complex types of their parts; None for other types."""
    name = _PARTS.get(dtype, canonical_name(dtype))
    found = dtype_of(name)
    if found is None or not name.startswith(("float", "bfloat")):
        return None
    info: Any = ml_dtypes.finfo(found)  # type: ignore[no-untyped-call]  # ml_dtypes says no types for it
    largest, normal, smallest = float(info.max), float(info.smallest_normal), float(info.smallest_subnormal)
    exponent = math.frexp(largest)[1] - 1
    with np.errstate(all="ignore"):
        overflow = largest + math.ldexp(float(info.eps), exponent - 1) if exponent < 1023 else math.inf
        tie = not bool(np.isfinite(np.float64(overflow).astype(found)))
    return FloatLimits(name, largest, normal, smallest, float(info.eps), overflow, tie, smallest / 2)


@lru_cache(maxsize=64)
def capacity(dtype: str) -> float | None:
    """Returns the greatest finite magnitude of an element type; None for bool and unknown names."""
    limits = limits_of(dtype)
    if limits is not None:
        return limits.largest
    name = canonical_name(dtype)
    if name.startswith(("int", "uint")):
        bits = int(name.lstrip("uint"))
        return float(2**bits - 1) if name.startswith("u") else float(2 ** (bits - 1))
    return None


@dataclass(frozen=True, slots=True)
class CastResult:
    """The result of converting the finite elements to another type, rounded to nearest.

    ``overflowing`` elements would be Inf (or NaN); ``vanishing`` non-zero elements would be 0; other ``subnormal``
    elements would lose digits.
    """

    limits: FloatLimits
    overflowing: int
    vanishing: int
    subnormal: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """The distance of the finite elements from the limits of types.

    ``greatest`` and ``least`` magnitude above 0 are None without such an element; ``own`` is None for integers.
    ``conversions`` has the own type first (where nothing overflows), then ``TARGETS``.
    """

    finite: int
    greatest: float | None
    least: float | None
    own: FloatLimits | None
    conversions: tuple[CastResult, ...]


def headroom(
    array: Array | SharedArrays,
    classes: ClassCounts,
    dtype: str,
    progress: ProgressFn = no_progress,
    *,
    extremes: tuple[float, float] | None = None,
) -> Headroom:
    """Measures the headroom in one pass, or in a few where many elements are next to a limit.

    ``dtype`` names the element type to be shown, which may be narrower than the stored one.
    """
    own = limits_of(dtype)
    names = [] if own is None else dict.fromkeys([own.name, *TARGETS])
    types = [limits for limits in map(limits_of, names) if limits is not None]
    key_of = classes.kind.key_of
    bounds = [key_of(0.0), key_of(0.0, above=True)]
    for limits in types:
        bounds += _bounds_of(limits, classes)
    negative, up_to_zero = (count - classes.first for count in count_below(array, classes, bounds[:2], progress))
    greatest, least = _known(extremes)
    ends = _inside(classes.finite, 0, classes.finite - 1) if greatest is None else set()
    beside = _inside(classes.finite, negative - 1, up_to_zero) if least is None else set()
    gathered: Gathered | None = None
    if classes.keys is None:
        inside = classes_of_bounds(classes, bounds) | classes_of_ranks(classes, ends | beside)
        ahead = inside | classes_of_ranks(classes, _ranks(_places(classes.finite, PERCENTS), classes.finite))
        # With more, the percentiles, usually asked for next, need no pass of their own.
        more = classes.inside(ahead) <= distribution.MOST_KEPT
        gathered = gather(array, classes, ahead if more else inside, progress)
    below = [count - classes.first for count in count_below(array, classes, bounds, progress, gathered=gathered)]
    conversions = [
        _conversion(limits, below[2 + 6 * i : 8 + 6 * i], negative, up_to_zero, classes.finite)
        for i, limits in enumerate(types)
    ]
    found = order_statistics(array, classes, ends | beside, progress, gathered=gathered)
    greatest = max((abs(found[rank]) for rank in ends), default=greatest)
    least = min((abs(found[rank]) for rank in beside), default=least)
    return Headroom(classes.finite, greatest, least, own, tuple(conversions))


def _bounds_of(limits: FloatLimits, classes: ClassCounts) -> list[int]:
    """Returns the keys where elements start to overflow, be subnormal, vanish: negative ones, then positive ones."""
    key_of = classes.kind.key_of
    over = min(limits.overflow, float(classes.kind.value.type(math.inf)))
    return [
        key_of(-over, above=limits.tie),
        key_of(-limits.normal, above=True),
        key_of(-limits.vanish),
        key_of(limits.vanish, above=True),
        key_of(limits.normal),
        key_of(over, above=not limits.tie),
    ]


def _conversion(limits: FloatLimits, below: list[int], negative: int, up_to_zero: int, finite: int) -> CastResult:
    """Derives the result from the number of finite elements below each bound."""
    over = max(below[0], 0) + max(finite - below[5], 0)
    vanishing = (negative - below[2]) + (below[3] - up_to_zero)
    subnormal = (below[2] - below[1]) + (below[4] - below[3])
    return CastResult(limits, over, vanishing, subnormal)


def _known(extremes: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """Returns the greatest magnitude, and the least one where all elements are on one side of 0."""
    if extremes is None:
        return None, None
    low, high = extremes
    return max(abs(low), abs(high)), low if low > 0 else -high if high < 0 else None


def _inside(finite: int, *ranks: int) -> set[int]:
    """Returns the ranks that exist among ``finite`` elements."""
    return {rank for rank in ranks if 0 <= rank < finite}
