"""Where a value stands on an axis, and which values are worth a label: linear or logarithmic, signed data too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from tui_debugger.arrays import Float64
from tui_debugger.words.numbers import number

_LARGEST: Final = float(np.finfo(np.float64).max)
_DECADES: Final = 12
"""A logarithmic axis of signed data shows so many powers of ten on each side of zero at most."""


class Axis(Protocol):
    """A range of values, laid out from 0 (low) to 1 (high)."""

    @property
    def low(self) -> float:
        """The value at 0."""

    @property
    def high(self) -> float:
        """The value at 1."""

    def place(self, values: Float64) -> Float64:
        """Where finite values stand, 0 to 1; NaN for those that cannot stand on this axis."""

    def ticks(self, most: int) -> list[float]:
        """At most so many round values within the range, ascending."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal differences are equal distances."""

    low: float
    high: float

    def place(self, values: Float64) -> Float64:
        """See ``Axis``."""
        return _between(values, self.low, self.high)

    def ticks(self, most: int) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten."""
        span = self.high / 2 - self.low / 2
        if most < 1 or span <= 0:
            return [self.low]
        exponent = math.floor(math.log10(max(span / most, 5e-324))) - 1
        for power in range(exponent, exponent + 4):
            for digit in (1, 2, 5):
                found = _multiples(digit, power, self.low, self.high, most)
                if found is not None:
                    return found
        return [self.low]


@dataclass(frozen=True, slots=True)
class Log:
    """Equal factors are equal distances; ``low`` is above 0."""

    low: float
    high: float

    def place(self, values: Float64) -> Float64:
        """See ``Axis``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log10(values)
        logs[~(values > 0)] = np.nan
        return _between(logs, math.log10(self.low), math.log10(self.high))

    def ticks(self, most: int) -> list[float]:
        """Powers of ten; between them where there is less than one."""
        first, last = math.ceil(_log10(self.low)), math.floor(_log10(self.high))
        if last <= first:
            return Linear(self.low, self.high).ticks(most)
        return [_power(each) for each in _thinned(first, last, most)]


@dataclass(frozen=True, slots=True)
class SymmetricLog:
    """Logarithmic away from 0 on both sides, linear within ``threshold`` of it."""

    low: float
    high: float
    threshold: float

    def place(self, values: Float64) -> Float64:
        """See ``Axis``."""
        low, high = self._bent(np.array([self.low, self.high], np.float64)).tolist()
        return _between(self._bent(values), low, high)

    def _bent(self, values: Float64) -> Float64:
        bent: Float64 = np.copysign(np.log1p(np.abs(values / self.threshold)), values)
        return bent

    def ticks(self, most: int) -> list[float]:
        """0 and powers of ten on both sides."""
        first = math.ceil(_log10(self.threshold))
        per_side = max((most - 1) // 2, 1)
        found = [0.0] if self.low <= 0 <= self.high else []
        for sign, edge in ((-1, -self.low), (1, self.high)):
            last = math.floor(_log10(edge)) if edge > 0 else first - 1
            if last >= first:
                found += [sign * _power(each) for each in _thinned(first, last, per_side)]
        return sorted(found)


def axis_of(values: Float64, *, log: bool) -> Axis:
    """An axis on which all finite values stand; logarithmic where that means something.

    Values above 0 get a logarithmic axis, values of both signs, or with zeros, a symmetric one.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Linear(0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    if not log:
        return Linear(*_widened(low, high))
    if low > 0:
        return Log(low, high) if high > low else Log(max(low / 2, 5e-324), min(high * 2, _LARGEST))
    sizes = np.abs(finite[finite != 0])
    if not len(sizes):
        return Linear(*_widened(low, high))
    largest, smallest = float(sizes.max()), float(sizes.min())
    threshold = max(smallest, largest * 10.0**-_DECADES, 1e-300)
    return SymmetricLog(*(_widened(low, high) if low == high else (low, high)), threshold)


def labels(values: list[float]) -> list[str]:
    """Ticks as text, with as many digits as it takes to tell them apart; zero is 0."""
    said = [number(value + 0.0) for value in values]
    for digits in range(6, 18):
        if len(set(said)) == len(set(values)):
            break
        said = [f"{value + 0.0:.{digits}g}" for value in values]
    return said


def _widened(low: float, high: float) -> tuple[float, float]:
    if low < high:
        return low, high
    by = abs(low) * 0.05 or 1.0
    return max(low - by, -_LARGEST), min(high + by, _LARGEST)


def _between(values: Float64, low: float, high: float) -> Float64:
    """Where values stand between two others, without overflow; 0.5 where there is nothing between."""
    if math.isfinite(high - low):
        span, from_low = high - low, values - low
    else:
        span, from_low = high / 2 - low / 2, values / 2 - low / 2
    return from_low / span if span > 0 else np.where(np.isnan(values), np.nan, 0.5)


def _multiples(digit: int, power: int, low: float, high: float, most: int) -> list[float] | None:
    """Multiples of digit·10^power within a range; None when there are more than ``most``."""
    unit = digit * _power(power)
    if unit <= 0 or not math.isfinite(low / unit) or not math.isfinite(high / unit):
        return None
    first, last = math.ceil(low / unit), math.floor(high / unit)
    if last - first + 1 > most:
        return None
    # Through the decimal text, so that 3 times 0.1 is 0.3.
    found = [float(f"{each * digit}e{power}") for each in range(first, last + 1)]
    return [each for each in found if low <= each <= high]


def _thinned(first: int, last: int, most: int) -> list[int]:
    """Whole numbers from first to last, every n-th of them so that there are at most ``most``."""
    every = max(-(-(last - first + 1) // max(most, 1)), 1)
    return [each for each in range(first, last + 1) if each % every == 0] or [first]


def _log10(value: float) -> float:
    """Without the rounding that makes the logarithm of 1000 2.9999999999999996."""
    exact = math.log10(value)
    return float(round(exact)) if abs(exact - round(exact)) < 1e-12 else exact


def _power(exponent: int) -> float:
    return float(f"1e{exponent}")
