"""How far a recorded output may be from the exact one: what rounding explains, by norm and by element.

With y* in float64, and units of rounding u, an output y is as far off as

    r = |y - y*|₂ / (u_out |y*|₂ + u_acc √K |x·w|₂)

where K terms are summed up, and |x·w| is their size before anything cancels: the root of the sum of their squares.
Measured on ten healthy runs and on planted errors: healthy outputs stay below 2.84, errors begin at 15 (bfloat16) and
at 1,680 (float32). One element among many hardly moves a norm, so each is judged by itself as well.

Three things are added to the rule, none of which matters where it was measured:

* Terms of one sign that are summed up one after the other err by the size of the sum: half of |y*| counts as size.
* Inputs wider than the output are rounded before they are multiplied (autocast): the size counts once with u_out.
* Numbers too small for the type may be rounded to its smallest one, or to zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.arrays import Array, Float64, Mask

LIMIT: Final = 6.0
"""r from which an output is wrong."""
ELEMENT_LIMIT: Final = 64.0
"""The ratio of one element from which an output is wrong."""
_SIGN_SHARE: Final = 0.5
_ACCUMULATED: Final = 2.0**-24
"""Unit of rounding of what kernels sum up in: float32, also for outputs of 16 bits."""
_UNITS: Final = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-12,
    "bfloat16": 2.0**-9,
    "float8_e4m3fn": 2.0**-5,
    "float8_e4m3fnuz": 2.0**-5,
    "float8_e4m3": 2.0**-5,
    "float8_e5m2": 2.0**-4,
    "float8_e5m2fnuz": 2.0**-4,
}
_GRADUAL: Final = frozenset({"float16", *(name for name in _UNITS if name.startswith("float8"))})
"""Types that kernels do not cut off at their smallest normal number: they would lose too much."""
_LARGEST_INSIDE: Final = float(np.finfo(np.float32).max)


@dataclass(slots=True)
class Expected:
    """What an output is, by arithmetic in float64 of the recorded inputs.

    Attributes:
        value: float64, or of the output's type where nothing is rounded.
        size: of each element the size of its terms before anything cancels; broadcasts to ``value``.
        terms: how many are summed up, K.
        narrow: what is rounded to the output's type on the way, by element: the probabilities of an attention.
        partial: what may be rounded to the output's type before the rest is added (a bias): it explains single
            elements in which the two cancel; on the norm it hardly tells.
        cast: inputs wider than the output are rounded to its type first (autocast).
        exact: nothing is rounded: equal or wrong.
        peak: the largest number on the way; where float32 cannot hold it an overflow is no surprise.
        either: another value that is right as well, by element: what dropout may leave.
        ignored: elements of which kernels are known to make what they like: not judged.
    """

    value: Array
    size: Float64 | float = 0.0
    terms: float = 1.0
    narrow: Float64 | float = 0.0
    partial: Float64 | float = 0.0
    cast: bool = False
    exact: bool = False
    peak: float = 0.0
    either: Float64 | None = None
    ignored: Mask | None = None


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """An output held against arithmetic.

    Attributes:
        slot: output of the node.
        r: its distance by norm, in what rounding explains; inf where one side is finite and the other is not.
        worst: index of the element that is farthest off, for its size.
        element_r: the distance of that element.
        expected: what arithmetic gives there.
        found: what was recorded there.
        wrong: whether no rounding explains it.
    """

    slot: int
    r: float
    worst: tuple[int, ...]
    element_r: float
    expected: float
    found: float

    @property
    def wrong(self) -> bool:
        """Tells whether no rounding explains the output."""
        return self.r > LIMIT or self.element_r > ELEMENT_LIMIT


def unit_of(dtype: np.dtype[Any]) -> float | None:
    """The unit of rounding of a type of floating point numbers; None for another type."""
    return _UNITS.get(dtype.name)


def is_float(array: Array) -> bool:
    """Tells whether an array holds floating point numbers of a known unit."""
    return array.dtype.name in _UNITS


def wide(array: Array) -> Array:
    """Floating point numbers as float64, integers as int64, truth values as they are."""
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array if array.dtype == np.bool_ else array.astype(np.float64)


@dataclass(slots=True)
class Judge:
    """Takes in an output part by part.

    Attributes:
        dtype: of the output.
        shape: of the whole output.
        widest: unit of the most exact input; above the output's own nothing was rounded on the way in.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    widest: float = math.inf
    _error: float = 0.0
    _value: float = 0.0
    _size: float = 0.0
    _narrow: float = 0.0
    _tiny: float = 0.0
    _worst: int = -1
    _ratio: float = -1.0
    _pair: tuple[float, float] = (0.0, 0.0)
    _broken: bool = field(default=False)

    def take(self, expected: Expected, found: Array, start: int = 0) -> None:
        """Takes in a part of the output that begins at an element."""
        if not found.size:
            return
        unit = unit_of(found.dtype)
        with np.errstate(all="ignore"):
            if expected.exact or unit is None:
                self._take_exact(expected.value, found, start)
            else:
                self._take_rounded(expected, found, start, unit)

    def result(self, slot: int) -> OutputCheck:
        """Returns how far the output is off."""
        if self._broken:
            r = math.inf
        else:
            explained = self._value + self._size + self._narrow + math.sqrt(self._tiny)
            error = math.sqrt(self._error)
            r = error / explained if explained else math.inf if error else 0.0
        at = np.unravel_index(max(self._worst, 0), self.shape) if math.prod(self.shape) else ()
        expected, seen = self._pair
        return OutputCheck(slot, r, tuple(int(each) for each in at), max(self._ratio, 0.0), expected, seen)

    def _take_exact(self, value: Array, found: Array, start: int) -> None:
        right = np.broadcast_to(value, found.shape)
        if found.dtype.kind in "iub" and right.dtype.kind in "iuf":
            right = right.astype(found.dtype) if right.dtype.kind != "f" else right
        elif right.dtype != found.dtype:
            right = right.astype(found.dtype)
        same = found == right
        if unit_of(found.dtype) is not None or found.dtype.kind in "fc":
            same |= (found != found) & (right != right)  # noqa: PLR0124 - NaN, in every type
        self._broken |= not bool(np.all(same))
        ratio = np.where(same, 0.0, math.inf).reshape(-1)
        self._note(ratio, right, found, start)

    def _take_rounded(self, expected: Expected, found: Array, start: int, unit: float) -> None:
        right = np.broadcast_to(np.asarray(expected.value, np.float64), found.shape)
        seen = found.astype(np.float64)
        if expected.either is not None:
            other = np.broadcast_to(expected.either, found.shape)
            nearer = np.abs(seen - other) < np.abs(seen - right)
            right = np.where(nearer | (np.isnan(right) & (seen == other)), other, right)
        kept = np.hypot(expected.size, _SIGN_SHARE * np.abs(right)) if np.any(expected.size) else np.float64(0.0)
        inside = min(_ACCUMULATED, unit)
        size = inside * math.sqrt(max(expected.terms, 1.0)) * np.broadcast_to(kept, found.shape)
        narrow = np.asarray(expected.narrow, np.float64)
        if expected.cast and self.widest < unit:
            narrow = narrow + expected.size
        rounded = unit * np.broadcast_to(narrow, found.shape)
        tiny = _smallest(found.dtype)
        explained = unit * (np.abs(right) + np.broadcast_to(expected.partial, found.shape)) + size + rounded + tiny
        error = np.abs(seen - right)
        same, broken = _not_finite(right, seen, explained, found.dtype, expected.peak)
        if expected.ignored is not None:
            same, broken = same | expected.ignored, broken & ~expected.ignored
        self._broken |= bool(np.any(broken))
        ratio = np.where(same, 0.0, np.where(broken, math.inf, error / explained))
        judged = ~same & ~broken
        self._error = self._error + _squares(error, judged)
        self._value = math.hypot(self._value, unit * math.sqrt(_squares(right, judged)))
        self._size = math.hypot(self._size, math.sqrt(_squares(size, judged)))
        self._narrow = math.hypot(self._narrow, math.sqrt(_squares(rounded, judged)))
        self._tiny += tiny * tiny * found.size
        self._note(ratio.reshape(-1), right, seen, start)

    def _note(self, ratio: Float64, right: Array, found: Array, start: int) -> None:
        at = int(np.argmax(ratio))
        if float(ratio[at]) > self._ratio:
            self._ratio, self._worst = float(ratio[at]), start + at
            self._pair = float(right.reshape(-1)[at]), float(found.reshape(-1)[at])


def _squares(values: Array, where: Mask) -> float:
    """The sum of squares of some elements."""
    flat = np.where(where, values, 0.0).reshape(-1)
    return float(np.dot(flat, flat))


def _smallest(dtype: np.dtype[Any]) -> float:
    """What rounding near zero may change: half a step of numbers below the normal ones, or all of them."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no annotations
    return float(info.smallest_subnormal) if dtype.name in _GRADUAL else float(info.tiny)


def _not_finite(
    right: Float64, seen: Float64, explained: Float64, dtype: np.dtype[Any], peak: float
) -> tuple[Mask, Mask]:
    """Which elements agree in that they are not finite, and of which only one side is finite.

    A number that is too large for the type is an infinity, or the largest one on devices that stop there. A number
    that is nearly too large (by a factor of four), or is made of larger ones, may be either.
    """
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # as above
    largest = float(info.max)
    overflown = ~(np.abs(right) <= largest)
    nearly = np.abs(right) + explained >= largest / 4
    either_sign = np.isnan(seen) | np.isnan(right)
    if peak >= _LARGEST_INSIDE:
        nearly, either_sign = np.ones_like(nearly), np.ones_like(nearly)
    bad = ~np.isfinite(seen)
    stopped = overflown & ~np.isnan(right) & (np.abs(seen) >= largest * (1 - 2.0**-8))
    # What is NaN on one side is NaN or an infinity on the other: in which order infinities met is the kernel's.
    same = (stopped | (bad & (nearly | np.isnan(right)))) & (either_sign | (np.signbit(seen) == np.signbit(right)))
    broken = (overflown | bad) & ~same
    return same, broken
