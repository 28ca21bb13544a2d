"""Bins of histograms: equally wide ones, and ones by powers of two that are the same on both sides of zero."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

FINEST: Final = 20
"""An octave is divided into 2 to the power of this, at most: a millionth of the value."""
_COARSEST: Final = -12
"""2 to the power of 12 octaves in a bin: one for all magnitudes from 1 on, and one for those below."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A range of values.

    Attributes:
        low, high: its edges.
        with_low, with_high: whether the edge itself belongs to it.
    """

    low: float
    high: float
    with_low: bool = True
    with_high: bool = False


def equal_edges(low: float, high: float, bins: int) -> list[float]:
    """Equally spaced, the first and the last exactly the bounds; the range may be wider than the greatest double."""
    scale = 1.0 if math.isfinite(high - low) else 0.5
    with np.errstate(all="ignore"):  # on the way to the last edge, which is then set to the bound itself
        found: list[float] = (np.linspace(low * scale, high * scale, bins + 1) / scale).tolist()
    return found


def linear_bins(low: float, high: float, room: int, *, whole: bool = False) -> tuple[Bin, ...]:
    """At most ``room`` bins of the same width from ``low`` to ``high``, both included; one when they are equal.

    Args:
        low: finite, not above ``high``.
        high: finite.
        room: greatest number of bins, at least 1.
        whole: the values are whole numbers: every bin holds as many of them, and its lower edge is one.
    """
    if whole and max(-low, high) < 2**53:  # above it not every whole number is a double: edges would fall together
        width = max(1, math.ceil((high - low + 1) / room))
        starts = range(int(low), int(high) + 1, width)
        return tuple(Bin(float(start), float(start + width)) for start in starts)
    if low == high:
        return (Bin(low, high, with_high=True),)
    edges = list(dict.fromkeys(equal_edges(low, high, room)))  # a narrow range holds fewer doubles than bins
    last = len(edges) - 2
    return tuple(Bin(edges[i], edges[i + 1], with_high=i == last) for i in range(last + 1))


def log_bins(low: float, high: float, least: float | None, room: int) -> tuple[Bin, ...]:
    """At most ``room`` bins by magnitude: octaves, several of them, or equal parts of one, whatever fits.

    Magnitudes from 2ᵃ up to, but without, 2ᵇ are a bin, with the sign; exactly 0 is a bin of its own in the middle.

    Args:
        low: finite, not above ``high``.
        high: finite.
        least: least magnitude above 0 there is; None when all values are 0.
        room: greatest number of bins; never less than 5 are allowed: zero, and small and great ones of either sign.
    """
    sides = _magnitudes(low, high, least)
    zero = low <= 0 <= high
    fits = [level for level in range(_COARSEST, FINEST + 1) if sum(_many(side, level) for side in sides) + zero <= room]
    level = fits[-1] if fits else _COARSEST
    if all(side is None or side[0] == side[1] for side in sides):
        level = min(level, 0)  # one value: its octave says more than a sliver of it
    negative, positive = sides
    found = [_mirrored(each) for each in _octaves(negative, level)][::-1]
    if zero:
        found.append(Bin(0.0, 0.0, with_high=True))
    return (*found, *_octaves(positive, level))


_Side = tuple[float, float] | None
"""Least and greatest magnitude to be shown on a side of 0; None for none."""


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
    """Number of the bin of a magnitude: 2**level bins an octave, or for a negative level 2**−level octaves a bin."""
    fraction, exponent = math.frexp(magnitude)
    if level < 0:
        return (exponent - 1) >> -level
    return ((exponent - 1) << level) + int((2 * fraction - 1) * (1 << level))


def _edge(index: int, level: int) -> float:
    """The least magnitude of a bin; 0 and Inf where there is no such double."""
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
