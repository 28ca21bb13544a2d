"""Judges how far a recorded output may be from the exact value: by norm over the output, and for each element.

With the exact output y* in float64 and units of rounding u, a recorded output y has the distance

    r = |y - y*|₂ / (u_out |y*|₂ + u_acc √K |x·w|₂)

K is the number of terms in a sum. |x·w| is the size of the terms before anything cancels: the root of the sum of their
squares. Measured on ten healthy runs and on planted errors: healthy outputs stay below 2.84, errors begin at 15
(bfloat16) and at 1,680 (float32). One wrong element among many hardly changes a norm, so each element is judged by
itself as well.

Three allowances are added to the formula; they did not matter in these measurements:

- Terms of one sign, summed one after the other, err in proportion to the sum: half of |y*| counts as size.
- Inputs wider than the output are rounded before they are multiplied (autocast): the size counts once with u_out.
- Numbers too small for the type may be rounded to its smallest number, or to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ml_dtypes
import numpy as np

from tui_debugger.arrays import Array, Float64, Mask, Shape
from tui_debugger.diagnose.recompute.table import COMPLEX, CannotBindError
from tui_debugger.stats.dtypes import UNITS

LIMIT: Final = 6.0
"""r from which an output is wrong."""
ELEMENT_LIMIT: Final = 64.0
"""The ratio of one element from which an output is wrong."""
ONE_STEP: Final = 4.0 * (1 + 2.0**-10)
"""The ratio of one element from which a number is more than one step of its type off."""
NOT_UPDATED: Final = "not updated"
"""The `difference` of a parameter that an optimizer left unchanged."""
_SIGN_SHARE: Final = 0.5
ACCUMULATED: Final = 2.0**-24
"""Unit of rounding of the type in which kernels sum up: float32, also for outputs of 16 bits."""
_UNITS: Final = {
    **UNITS,
    "float8_e4m3fn": 2.0**-5,
    "float8_e4m3fnuz": 2.0**-5,
    "float8_e4m3": 2.0**-5,
    "float8_e5m2": 2.0**-4,
    "float8_e5m2fnuz": 2.0**-4,
}
_GRADUAL: Final = frozenset({"float16", *(name for name in _UNITS if name.startswith("float8"))})
"""Types whose subnormal numbers kernels keep; kernels may flush those of other types to zero."""
SURE: Final = {np.dtype(np.float64): LIMIT * (1 - 2.0**-20), np.dtype(np.float32): LIMIT / 2}
"""How many roundings an element may be off so that the output is surely right, by the type of the computed value.

A value computed in float32 gets half the limit: what float32 itself loses for values of 16 bits is less than the rest.
"""
_WORKING: Final = frozenset(SURE)
LARGEST_INSIDE: Final = float(np.finfo(np.float32).max)
"""The largest number of the type in which kernels sum up."""


@dataclass(slots=True)
class Expected:
    """The expected output: the result of arithmetic in float64 on the recorded inputs.

    Attributes:
        value: float64, or of the output's type where nothing is rounded.
        size: size of each element's terms before anything cancels; broadcasts to ``value``.
        terms: how many terms are summed up, K.
        narrow: size of intermediate values that are rounded to the output's type, by element (probabilities of an
            attention).
        partial: size of a sum that may be rounded to the output's type before a bias is added; counts for elements
            only, not for the norm.
        cast: inputs wider than the output are rounded to its type first (autocast).
        exact: nothing is rounded: the output is equal or wrong.
        converted: the value is only converted to the output's type: rounded once, to whole numbers towards zero.
        peak: the largest intermediate number; where float32 cannot hold it, an overflow is accepted.
        either: another right value, by element (an element that dropout may keep or drop).
        ignored: elements that are not judged, because kernels disagree about them.
        or_zero: zero is right as well.
        loose: relative error of ``value`` itself, while ``value`` is an approximation.
        whole: makes the complete expectation where only ``value`` was computed; most outputs are right without it.
    """

    value: Array
    size: Float64 | float = 0.0
    terms: float = 1.0
    narrow: Float64 | float = 0.0
    partial: Float64 | float = 0.0
    cast: bool = False
    exact: bool = False
    converted: bool = False
    peak: float = 0.0
    either: Float64 | None = None
    ignored: Mask | None = None
    or_zero: bool = False
    loose: float = 0.0
    whole: Callable[[], Expected] | None = None

    def complete(self) -> Expected:
        """The same expectation with ``size`` and every other part computed."""
        with np.errstate(all="ignore"):
            return self if self.whole is None else self.whole().complete()

    def reshaped(self, shape: Shape) -> Expected:
        whole = self.complete()
        value = np.asarray(whole.value)

        def shaped(part: Any) -> Any:
            return np.broadcast_to(part, value.shape).reshape(shape) if np.ndim(part) else part

        parts = {name: shaped(getattr(whole, name)) for name in ("size", "narrow", "partial", "either", "ignored")}
        return replace(whole, value=value.reshape(shape), **parts)

    def as_pairs(self) -> Expected:
        """Returns the same with real and imaginary parts of complex numbers along one more dimension, the last one."""
        whole = self.complete()
        pairs = _pairs(whole.value)
        if whole.exact:
            return Expected(pairs, exact=True)
        if whole.either is not None or whole.ignored is not None:
            raise CannotBindError(COMPLEX)
        odd = ~np.isfinite(whole.value)  # which part of them is NaN is the kernel's

        def of_both(part: Any) -> Any:
            return np.asarray(part)[..., None] if np.ndim(part) else part

        # Either part is made of the parts of all numbers.
        narrow = whole.narrow if whole.converted else whole.narrow + np.nan_to_num(np.abs(whole.value), posinf=0.0)
        parts = {"size": of_both(whole.size), "narrow": of_both(narrow), "partial": of_both(whole.partial)}
        return replace(whole, value=pairs, ignored=odd[..., None] if np.any(odd) else None, **parts)


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """A recorded output compared with arithmetic.

    Attributes:
        r: distance by norm, in units of what rounding explains; inf where one side only is finite. For right outputs it
            may be an upper bound, because the check stops early.
        worst: index of the element that is farthest off for its size; for right outputs it may be any element.
        element_r: distance of that element, in units of what rounding explains for it.
        expected: what arithmetic gives for that element.
        found: what was recorded for that element.
        difference: a word and a sentence on how a wrong output follows from the right one; empty for right outputs.
    """

    slot: int
    r: float
    worst: Shape
    element_r: float
    expected: float
    found: float
    difference: tuple[str, str] = ("", "")

    @property
    def wrong(self) -> bool:
        return self.r > LIMIT or self.element_r > ELEMENT_LIMIT


def unit_of(dtype: np.dtype[Any]) -> float | None:
    return _UNITS.get(dtype.name)


def is_float(array: Array) -> bool:
    return array.dtype.name in _UNITS


_PRECISION: Final[ContextVar[Any]] = ContextVar("precision", default=np.float64)


@contextmanager
def in_single_precision() -> Iterator[None]:
    """Makes ``doubles`` return float32 inside the context: float32 loses next to nothing for values of 16 bits."""
    token = _PRECISION.set(np.float32)
    try:
        yield
    finally:
        _PRECISION.reset(token)


def doubles(array: Any) -> Float64:
    """The array in float64, or in float32 inside ``in_single_precision``; complex numbers in complex128."""
    found = np.asarray(array)
    return found.astype(np.complex128 if found.dtype.kind == "c" else _PRECISION.get())


def wide(array: Array) -> Array:
    """Floating point numbers as ``doubles``, integers as int64, booleans unchanged."""
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and np.any(array > np.iinfo(np.int64).max):
            raise CannotBindError("whole numbers of more than 63 bits")
        return array.astype(np.int64)
    return array if array.dtype == np.bool_ else doubles(array)


@dataclass(slots=True)
class OutputJudge:
    """Judges an output of ``shape`` part by part; ``widest`` is the unit of rounding of the most exact input."""

    dtype: np.dtype[Any]
    shape: Shape
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
        """Takes in a part of the output; ``start`` is the flat index of its first element."""
        if not found.size:
            return
        with np.errstate(all="ignore"):
            if found.dtype.kind == "c":
                expected, found, start = expected.as_pairs(), _pairs(found), 2 * start
            elif np.iscomplexobj(expected.value):
                raise CannotBindError(COMPLEX)
            unit = unit_of(found.dtype)
            if not expected.exact and unit is None:
                self._take_exact(_as_type_of(found, expected), found, start)
            elif expected.exact or unit is None:
                self._take_exact(expected.value, found, start)
            elif (last := self._until_right(expected, found, unit)) is not None:
                self._take_rounded(last, found, start, unit)

    def take_right(self, expected: Expected, found: Array) -> bool:
        unit = unit_of(found.dtype)
        if unit is None or expected.exact:
            return False
        with np.errstate(all="ignore"):
            return self._until_right(expected, found, unit) is None

    def _until_right(self, expected: Expected, found: Array, unit: float) -> Expected | None:
        """Completes the expectation step by step; returns the complete one, or None once the part is surely right."""
        while not self._take_right(expected, found, unit):
            if expected.whole is None:
                return expected
            expected = expected.whole()
        return None

    def _take_right(self, expected: Expected, found: Array, unit: float) -> bool:
        """Tells whether each element is within a few roundings of its value; then the norm is right as well."""
        value = expected.value
        if expected.either is not None or value.dtype not in _WORKING or not value.ndim or value.shape != found.shape:
            return False
        if expected.or_zero:
            value = value * np.not_equal(found, 0)
        error = np.subtract(found, value, dtype=value.dtype, casting="unsafe")
        np.abs(error, out=error)
        size = np.abs(value)
        sure, one = SURE[value.dtype], value.dtype.type
        sure = min(sure, ONE_STEP) if expected.converted else sure
        allowed = np.multiply(size, one(sure * unit - expected.loose))
        if np.ndim(expected.size):
            inside = min(ACCUMULATED, unit) * math.sqrt(max(expected.terms, 1.0))
            allowed += np.multiply(expected.size, one(sure * inside))
        if np.ndim(expected.narrow):
            allowed += np.multiply(expected.narrow, one(sure * unit))
        right = np.less_equal(error, allowed)
        if not right.all():
            finite = np.isfinite(error)
            if finite.all() or not (np.equal(found, value) | (right & finite)).all():
                return False
            for each in (error, size, allowed):  # infinities on both sides
                np.copyto(each, 0, where=~finite)
        squares, whole, most = (_square(each) for each in (error, size, allowed))
        if not math.isfinite(whole) or not math.isfinite(most):
            return False
        self._error += squares
        self._value = math.hypot(self._value, unit * math.sqrt(whole))
        if np.ndim(expected.size) or np.ndim(expected.narrow):
            self._size = math.hypot(self._size, max(math.sqrt(most) / sure - unit * math.sqrt(whole), 0.0))
        if self._ratio < 0:
            self._note(np.zeros(1), value, found, 0)
        return True

    def take_norms(
        self, error: float, value: float, size: float, tiny: float = 0.0, pair: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        """Takes in a surely right part by norms: of its error, and of rounding of values, of terms and near zero."""
        self._error += error * error
        self._value = math.hypot(self._value, value)
        self._size = math.hypot(self._size, size)
        self._tiny += tiny * tiny
        if self._ratio < 0:
            self._ratio, self._worst, self._pair = 0.0, 0, pair

    def is_surely_wrong(self, explained: float) -> bool:
        """Tells whether the output is wrong however right the rest is; ``explained`` is its whole rounding norm."""
        return self._broken or self._ratio > ELEMENT_LIMIT or math.sqrt(self._error) > 2 * LIMIT * explained

    def result(self, slot: int) -> OutputCheck:
        if self._broken:
            r = math.inf
        else:
            explained = self._value + self._size + self._narrow + math.sqrt(self._tiny)
            error = math.sqrt(self._error)
            r = error / explained if explained else math.inf if error else 0.0
        worst = max(self._worst, 0) // (2 if self.dtype.kind == "c" else 1)
        at = np.unravel_index(worst, self.shape) if math.prod(self.shape) else ()
        expected, seen = self._pair
        return OutputCheck(slot, r, tuple(int(each) for each in at), max(self._ratio, 0.0), expected, seen)

    def _take_exact(self, value: Array, found: Array, start: int) -> None:
        if _are_same_bits(value, found):
            if self._ratio < 0:
                self._note(np.zeros(1), value, found, start)
            return
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
        inside = min(ACCUMULATED, unit)
        size = inside * math.sqrt(max(expected.terms, 1.0)) * np.broadcast_to(kept, found.shape)
        narrow = np.asarray(expected.narrow, np.float64)
        if expected.cast and self.widest < unit:
            narrow = narrow + expected.size
        rounded = unit * np.broadcast_to(narrow, found.shape)
        tiny = smallest(found.dtype)
        explained = unit * (np.abs(right) + np.broadcast_to(expected.partial, found.shape)) + size + rounded + tiny
        error = np.abs(seen - right)
        same, broken = _not_finite(right, seen, explained, found.dtype, expected.peak)
        if expected.ignored is not None:
            same, broken = same | expected.ignored, broken & ~expected.ignored
        self._broken |= bool(np.any(broken))
        ratio = np.where(same, 0.0, np.where(broken, math.inf, error / explained))
        judged = ~same & ~broken
        if expected.converted:
            self._broken |= bool(np.any(ratio > ONE_STEP))
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
            # Not via reshape(-1), which would copy a transposed array.
            self._pair = (
                float(right[np.unravel_index(at, right.shape)]),
                float(found[np.unravel_index(at, found.shape)]),
            )


def _pairs(array: Array) -> Array:
    """Real and imaginary parts along one more dimension, the last one."""
    return np.stack([np.real(array), np.imag(array)], axis=-1)


def _as_type_of(found: Array, expected: Expected) -> Array:
    """Returns what is expected as whole numbers or truth values, of the type that was recorded.

    What is outside of the type is taken from what was recorded: devices cut it off, or leave out bits.

    Raises:
        CannotBindError: which of them is expected is not known.
    """
    value = np.broadcast_to(expected.value, found.shape)
    if found.dtype.kind not in "iub":
        raise CannotBindError(f"values of type {found.dtype.name}")
    if not expected.converted:
        if value.dtype.kind not in "iub":
            raise CannotBindError("whole numbers made of others: how they are rounded is not known")
        return value
    if found.dtype == np.bool_:
        return np.asarray(value != 0)
    whole, limits = np.trunc(value), np.iinfo(found.dtype)
    above = float(limits.max) + 1 if value.dtype.kind == "f" else limits.max
    inside = (whole >= limits.min) & (whole < above if value.dtype.kind == "f" else whole <= above)
    if not np.any(inside):
        raise CannotBindError("numbers outside of the type: devices differ in what they make of them")
    return np.where(inside, np.where(inside, whole, 0).astype(found.dtype), found)


def _are_same_bits(one: Array, other: Array) -> bool:
    """Tells whether two arrays of one type hold the same bits; False for -0.0 and 0.0, which are equal nevertheless."""
    if one.shape != other.shape or one.dtype != other.dtype or one.dtype.itemsize not in _BITS:
        return False
    bits = _BITS[one.dtype.itemsize]
    try:
        return _are_equal(one.view(bits), other.view(bits))
    except ValueError:  # the memory layout does not allow this view
        return False


def _are_equal(one: Array, other: Array) -> bool:
    """Like ``numpy.array_equal``, but compares transposed arrays in tiles that stay in the cache."""
    turned = min(range(one.ndim), key=lambda axis: (one.strides[axis], -axis), default=-1)
    if one.ndim < 2 or turned == one.ndim - 1 or one.shape[turned] * one.shape[-1] <= _TILE * _TILE:
        return bool(np.array_equal(one, other))
    left, right = (np.moveaxis(each, turned, -2) for each in (one, other))
    return all(
        np.array_equal(left[tile], right[tile])
        for at in np.ndindex(left.shape[:-2])
        for down in range(0, left.shape[-2], _TILE)
        for across in range(0, left.shape[-1], _TILE)
        for tile in ((*at, slice(down, down + _TILE), slice(across, across + _TILE)),)
    )


_TILE: Final = 128
_BITS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _square(values: Array) -> float:
    flat = values.reshape(-1)
    return float(np.dot(flat, flat))


def _squares(values: Array, where: Mask) -> float:
    flat = np.where(where, values, 0.0).reshape(-1)
    return float(np.dot(flat, flat))


def smallest(dtype: np.dtype[Any]) -> float:
    """Returns what rounding near zero may change: the smallest number that kernels keep."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no annotations
    return float(info.smallest_subnormal) if dtype.name in _GRADUAL else float(info.tiny)


def _not_finite(
    right: Float64, seen: Float64, explained: Float64, dtype: np.dtype[Any], peak: float
) -> tuple[Mask, Mask]:
    """Returns which elements agree in being not finite, and which elements are finite on one side only.

    A number too large for the type is an infinity, or the largest number on devices that saturate. A number that is
    nearly too large (within a factor of four), or made of larger ones, may be either.
    """
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # as above
    largest = float(info.max)
    overflown = ~(np.abs(right) <= largest)
    nearly = np.abs(right) + explained >= largest / 4
    either_sign = np.isnan(seen) | np.isnan(right)
    if peak >= LARGEST_INSIDE:
        nearly, either_sign = np.ones_like(nearly), np.ones_like(nearly)
    bad = ~np.isfinite(seen)
    stopped = overflown & ~np.isnan(right) & (np.abs(seen) >= largest * (1 - 2.0**-8))
    # NaN on one side may be an infinity on the other: the order in which infinities meet depends on the kernel.
    same = (stopped | (bad & (nearly | np.isnan(right)))) & (either_sign | (np.signbit(seen) == np.signbit(right)))
    broken = (overflown | bad) & ~same
    return same, broken
