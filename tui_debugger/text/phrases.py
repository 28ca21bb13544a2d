"""Numbers within sentences."""

from __future__ import annotations

import math
from typing import Final

from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats import quantiles
from tui_debugger.stats.blocks import peak
from tui_debugger.stats.quantiles import FloatLimits
from tui_debugger.text.numbers import number, share
from tui_debugger.text.tensors import NOT_FINITE, amount, grouped

num = number


def of_all(part: int, whole: int) -> str:
    """Returns ``3 of 1,024 elements``, ``all 512 elements`` or ``the only element``."""
    if part == whole:
        return "the only element" if whole == 1 else f"all {whole:,} elements"
    return f"{part:,} of {whole:,} elements"


def bad_of_all(stats: TensorStats) -> str:
    """Returns ``128 NaN of 256``; without the end if the number of elements is unknown."""
    return bad_counts(stats) + (f" of {stats.count:,}" if stats.sized else "")


def part_of(stats: TensorStats, name: str) -> str:
    """Returns ``3 of 12 elements``, ``≥ 1 of 12 elements``, ``≥ 1 element``."""
    part, whole = int(getattr(stats, name)), stats.count
    if part == whole and stats.counted:
        return every(stats)
    if not stats.is_lower_bound(name):
        return of_all(part, whole)
    if not part:
        return "an unknown number of elements"
    return amount(stats, name, grouped) + (f" of {whole:,} elements" if stats.sized else " elements")


def every(stats: TensorStats) -> str:
    return of_all(stats.count, stats.count) if stats.sized else "all elements"


def may_be_zero(stats: TensorStats) -> bool:
    """Tells whether an element may be 0: by their count, else because 0 lies between the extremes."""
    if stats.zero or not stats.is_lower_bound("zero"):
        return bool(stats.zero)
    return stats.minimum is None or stats.maximum is None or stats.minimum <= 0 <= stats.maximum


def times(factor: float) -> str:
    return f"{factor:.2g} times" if factor < 1000 else f"{number(float(f'{factor:.2g}'))} times"


def tail(name: str) -> str:
    """Returns the end of a node's name, ``Log-op381``, which is enough within a sentence."""
    return name.rpartition("/")[2] or name


def bad_counts(stats: TensorStats) -> str:
    """Returns ``128 NaN and 1 -Inf``; ``≥ 1 NaN`` for a lower bound."""
    words = [f"{amount(stats, name, grouped)} {word}" for word, name in NOT_FINITE if getattr(stats, name)]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


HALVES: Final = frozenset({"float16", "bfloat16"})


def limits_of(meta: TensorMeta | None) -> FloatLimits | None:
    """Returns the limits of a tensor's element type; None for integers and unknown types."""
    return quantiles.limits_of(meta.dtype) if meta is not None else None


NEAR: Final = 0.01
"""The share of a wide type's range from which on it is reported; half types always are."""


def range_words(meta: TensorMeta | None, stats: TensorStats | None, *, only_near: bool = False) -> str:
    """Returns how near a tensor comes to the end of its type's range; empty if unknown, or far and ``only_near``."""
    limits = limits_of(meta)
    top = peak(stats)
    if limits is None or not top or (only_near and limits.name not in HALVES and top < NEAR * limits.largest):
        return ""
    return (
        f"the greatest finite magnitude, {num(top)}, is {share(top, limits.largest)} of what {limits.name} can hold "
        f"({num(limits.largest)})"
    )


def finite_words(stats: TensorStats) -> str:
    """Returns ``from -3.2 to 2.5``, ``all 0``, ``without a finite value``."""
    if stats.minimum is None or stats.maximum is None:
        return "without a finite value" if not (stats.finite or stats.at_least) else "of unknown range"
    if stats.zero == stats.count and (stats.count > 1 or not stats.sized):
        return "all 0"
    if stats.count == 1 and stats.sized:
        return num(stats.minimum)
    if stats.minimum == stats.maximum:
        return f"all {num(stats.minimum)}"
    return f"from {num(stats.minimum)} to {num(stats.maximum)}"


def log10_ratio(one: float, other: float) -> float:
    return abs(math.log10(one) - math.log10(other))
