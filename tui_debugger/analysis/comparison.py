"""One tensor compared with another one, element by element, in one pass and in float64."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tui_debugger.analysis.blocks import BLOCK, doubles, pieces, scratch
from tui_debugger.analysis.record import Change, Closeness
from tui_debugger.analysis.sums import total
from tui_debugger.arrays import Array, Float64


class Comparison:
    """|cur − prev| of all pairs of blocks added so far."""

    __slots__ = ("_close", "_count", "_difference", "_previous")

    def __init__(self, closenesses: Iterable[Closeness] = ()) -> None:
        """Starts empty. ``closenesses``: the tests that all elements have to pass."""
        self._count = 0
        self._difference = self._previous = 0.0
        self._close: dict[Closeness, bool] = dict.fromkeys(closenesses, True)

    def add(self, current: Array, previous: Array) -> None:
        """Adds two 1-D arrays of equal length, elements in the same order."""
        add = self._add_complex if "c" in (current.dtype.kind, previous.dtype.kind) else self._add_block
        with np.errstate(all="ignore"):
            for start in range(0, len(current), BLOCK):
                add(current[start : start + BLOCK], previous[start : start + BLOCK])

    def merge(self, other: Comparison) -> None:
        """Adds what another comparison has seen."""
        self._count += other._count
        self._difference += other._difference
        self._previous += other._previous
        for closeness, close in other._close.items():
            self._close[closeness] = self._close.get(closeness, True) and close

    def result(self) -> tuple[Change, dict[Closeness, bool]]:
        """The means, and for each closeness whether all elements are close. Empty tensors are never close."""
        if not self._count:
            return Change(math.nan, math.nan), dict.fromkeys(self._close, False)
        return Change(self._difference / self._count, self._previous / self._count), dict(self._close)

    def _add_block(self, current: Array, previous: Array) -> None:
        n = len(current)
        difference, magnitude = scratch.doubles[0][:n], scratch.doubles[1][:n]
        before = doubles(previous, 1)  # these values are overwritten in place: little stays in the cache
        np.subtract(doubles(current), before, out=difference)
        np.abs(difference, out=difference)
        np.abs(before, out=magnitude)
        if not self._extend(difference, magnitude):
            now, before = doubles(current), doubles(previous, 1)
            self._test(now, before, np.abs(now - before), np.abs(before))

    def _add_complex(self, current: Array, previous: Array) -> None:
        now, before = current.astype(np.complex128), previous.astype(np.complex128)
        difference, magnitude = np.abs(now - before), np.abs(before)
        if not self._extend(difference, magnitude):
            self._test(now, before, difference, magnitude)

    def _extend(self, difference: Float64, magnitude: Float64) -> bool:
        """Adds a block; False where NaN, Inf or an overflow leave it to the elements themselves what is close."""
        changed, reference = total(difference), total(magnitude)
        self._count += len(difference)
        self._difference += changed
        self._previous += reference
        if not changed or not any(self._close.values()):  # no change at all is close, whatever the tolerance
            return True
        if not (math.isfinite(changed) and math.isfinite(reference)):
            return False
        at = difference.argmax()
        greatest, its_magnitude = difference.item(at), magnitude.item(at)
        for (rtol, atol, equal_nan), so_far in self._close.items():
            if so_far and not (greatest <= atol and rtol >= 0):
                close = greatest <= its_magnitude * rtol + atol  # the element that differs most usually decides
                self._close[rtol, atol, equal_nan] = close and _all_close(difference, magnitude, rtol, atol)
        return True

    def _test(self, now: Array, before: Array, difference: Float64, magnitude: Float64) -> None:
        """Tests every element: |now − before| against |before|, or whether both are the same Inf or NaN."""
        finite = np.isfinite(before)  # the tolerance of an infinite value is infinite, which makes nothing close to it
        same = now == before
        for (rtol, atol, equal_nan), so_far in self._close.items():
            if so_far:
                close = (difference <= magnitude * rtol + atol) & finite | same
                if equal_nan:
                    close |= np.isnan(now) & np.isnan(before)
                self._close[rtol, atol, equal_nan] = bool(close.all())


def compare(
    current: Array, previous: Array, closenesses: Iterable[Closeness] = ()
) -> tuple[Change, dict[Closeness, bool]]:
    """Compares two numeric arrays of the same shape, elements cast to double (complex: to two) first.

    Close means |cur − prev| ≤ atol + rtol·|prev|, or equal; with equal_nan also NaN on both sides. Unlike in
    MindInsight, an Inf that became finite is not close, although Inf ≤ Inf.

    Raises:
        ValueError: the shapes differ.
    """
    if current.shape != previous.shape:
        msg = f"shapes differ: {current.shape} and {previous.shape}"
        raise ValueError(msg)
    comparison = Comparison(closenesses)
    for piece, other in pieces(current, previous):
        comparison.add(piece, other)
    return comparison.result()


def _all_close(difference: Float64, magnitude: Float64, rtol: float, atol: float) -> bool:
    """Whether all differences of finite elements are within their tolerance, or nothing at all."""
    n = len(difference)
    tolerance, close = scratch.double_work[:n], scratch.mask[:n]
    np.add(np.multiply(magnitude, rtol, out=tolerance), atol, out=tolerance)
    if np.less_equal(difference, tolerance, out=close).all():
        return True
    close |= difference == 0
    return bool(close.all())
