"""How far values are from what an element type can hold: from overflow above and from vanishing below."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.analysis.dtypes import canonical_name, dtype_of
from tui_debugger.analysis.sharing import Stock
from tui_debugger.analysis.spread.below import (
    Gathered,
    classes_of_bounds,
    classes_of_ranks,
    count_below,
    gather,
)
from tui_debugger.analysis.spread.classes import ClassCounts
from tui_debugger.analysis.spread.quantiles import order_statistics
from tui_debugger.arrays import Array
from tui_debugger.model import ProgressFn, no_progress

TARGETS: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Types that training is moved to; what would become of the values there is worth knowing."""
_PARTS: Final = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """What a floating-point type can hold.

    Attributes:
        name: of the type.
        largest: greatest finite value.
        normal: least normal value above 0: below it digits get lost, and some devices make it 0.
        smallest: least value above 0.
        eps: distance of 1 to the next value.
        overflow: magnitudes above it are rounded to Inf (or NaN); Inf itself for float64.
        tie: whether ``overflow`` itself is, too.
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
    """The limits of an element type by name; complex: of its parts. None for integers and unknown names."""
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
    """The greatest finite magnitude of an element type; None for bool and unknown names."""
    limits = limits_of(dtype)
    if limits is not None:
        return limits.largest
    name = canonical_name(dtype)
    if name.startswith(("int", "uint")):
        bits = int(name.lstrip("uint"))
        return float(2**bits - 1) if name.startswith("u") else float(2 ** (bits - 1))
    return None


@dataclass(frozen=True, slots=True)
class Fate:
    """What would become of the finite elements in another type, rounded to nearest.

    Attributes:
        limits: of that type.
        overflowing: elements that would be Inf (or NaN, where there is no Inf).
        vanishing: elements other than 0 that would be 0.
        subnormal: other elements below the least normal value: they would lose digits.
    """

    limits: FloatLimits
    overflowing: int
    vanishing: int
    subnormal: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """Where the finite elements lie between the limits of types.

    Attributes:
        finite: finite elements; the shares are of these.
        greatest: greatest magnitude; None when no element is finite.
        least: least magnitude above 0; None when there is none.
        own: their own type; None for integers.
        fates: own type first (nothing overflows there any more), then ``TARGETS`` for floating-point elements.
    """

    finite: int
    greatest: float | None
    least: float | None
    own: FloatLimits | None
    fates: tuple[Fate, ...]


def headroom(
    array: Array | Stock,
    classes: ClassCounts,
    dtype: str,
    progress: ProgressFn = no_progress,
    *,
    extremes: tuple[float, float] | None = None,
) -> Headroom:
    """Looks at every element, in one pass, or a few where many elements are next to a limit.

    Args:
        array: of any size.
        classes: from ``count_classes``.
        dtype: name of the element type to be shown, which may be narrower than the stored one.
        progress: may raise CancelledError.
        extremes: the smallest and the greatest finite element, where they are known.
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
        gathered = gather(array, classes, inside, progress)
    below = [count - classes.first for count in count_below(array, classes, bounds, progress, gathered=gathered)]
    fates = [
        _fate(limits, below[2 + 6 * i : 8 + 6 * i], negative, up_to_zero, classes.finite)
        for i, limits in enumerate(types)
    ]
    found = order_statistics(array, classes, ends | beside, progress, gathered=gathered)
    greatest = max((abs(found[rank]) for rank in ends), default=greatest)
    least = min((abs(found[rank]) for rank in beside), default=least)
    return Headroom(classes.finite, greatest, least, own, tuple(fates))


def _bounds_of(limits: FloatLimits, classes: ClassCounts) -> list[int]:
    """Keys between which elements overflow, are subnormal, vanish: of negative ones, then of positive ones."""
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


def _fate(limits: FloatLimits, below: list[int], negative: int, up_to_zero: int, finite: int) -> Fate:
    """From the number of finite elements below each bound."""
    over = max(below[0], 0) + max(finite - below[5], 0)
    vanishing = (negative - below[2]) + (below[3] - up_to_zero)
    subnormal = (below[2] - below[1]) + (below[4] - below[3])
    return Fate(limits, over, vanishing, subnormal)


def _known(extremes: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """The greatest magnitude, and the least one where all elements are on one side of 0."""
    if extremes is None:
        return None, None
    low, high = extremes
    return max(abs(low), abs(high)), low if low > 0 else -high if high < 0 else None


def _inside(finite: int, *ranks: int) -> set[int]:
    """Places among the finite elements in order, as far as there are such."""
    return {rank for rank in ranks if 0 <= rank < finite}
