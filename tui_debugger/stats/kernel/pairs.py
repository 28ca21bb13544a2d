"""Two arrays element by element: the calls of ``pairs.c``.

Arrays are 1-D, of known types (``kernel.is_known``) and equal lengths, else ValueError. ``halves`` says that the
elements are integers of which one side has 64 bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float64, Int64
from tui_debugger.stats.kernel import (
    NO_SENSE,
    Kinds,
    address,
    call,
    native,
)
from tui_debugger.stats.kernel.elements import MOMENTS, Moments

_LARGEST: Final = [("scores", "i8"), ("places", "i8"), ("count", "i8"), ("most", "i8")]
_FIRST: Final = [("places", "i8"), ("count", "i8"), ("most", "i8")]
_COUNTS: Final = ("finite", "same", "flips", "from_zero", "outside", "ulps", "within_one")
_REALS: Final = ("max_abs", "sum_abs", "squares", "max_rel", "dot", "own_squares", "other_squares")
_FOUND: Final = np.dtype(
    [
        *((name, MOMENTS) for name in ("here", "there", "difference")),
        *((name, _LARGEST) for name in ("by_abs", "by_rel", "by_ulp")),
        *((name, _FIRST) for name in ("nan", "inf")),
        ("odd", "i8", 7),
        *((name, "i8") for name in _COUNTS),
        ("max_ulp", "u8"),
        *((name, "f8") for name in (*_REALS, "rtol", "atol")),
        *((name, "i8") for name in ("counts_outside", "halves")),
    ]
)
"""``struct found``."""
_UNITS: Final = struct.Struct("=qqqqq")
CLOSENESS: Final = np.dtype([("rtol", "f8"), ("atol", "f8"), ("equal_nan", "i8"), ("close", "i8")])
"""``struct closeness``."""


class Units(NamedTuple):
    """The floats for distances in units in the last place, of one type.

    ``valid`` marks pairs that have a distance (None: all finite pairs). ``has_no_sign``: all bits are the exponent.
    """

    here: Array
    there: Array
    valid: Array | None
    has_no_sign: bool


class PairSums:
    """The sums and lists of all pairs so far.

    ``found`` has the fields of ``struct found``; ``PartialDifferences`` says what they mean.
    """

    def __init__(self, top: int, rtol: float, atol: float, *, counts_outside: bool, halves: bool) -> None:
        """Starts empty; ``top`` limits the lists of largest errors, and of first places with one side not finite."""
        self.found = np.zeros((), _FOUND)
        found = self.found
        for name in ("here", "there", "difference"):
            found[name]["minimum"], found[name]["maximum"] = math.inf, -math.inf
        self._scores = {name: np.empty(top) for name in ("by_abs", "by_rel", "by_ulp")}
        self._places = {name: np.empty(top, np.int64) for name in (*self._scores, "nan", "inf")}
        for name, places in self._places.items():
            found[name]["places"], found[name]["most"] = address(places), top
        for name, scores in self._scores.items():
            found[name]["scores"] = address(scores)
        found["rtol"], found["atol"] = rtol, atol
        found["counts_outside"], found["halves"] = counts_outside, halves

    def add(self, first: int, here: Array, there: Array, units: Units | None = None) -> None:
        """Adds later arrays; ``first``: the number of their first element in the whole."""
        one, other = _native_pair(here, there)
        held, packed = _described_units(units, len(one))
        call("pairs", "peepqq", self.found, one, other, packed, len(one), first)
        del held  # the kernel read it until here

    def moments(self, name: str) -> Moments:
        return Moments(*self.found[name].item())

    def largest(self, name: str) -> tuple[Float64, Int64]:
        """Returns the scores of a list, greatest first and of equal scores the first place first, and their places."""
        count = int(self.found[name]["count"])
        scores, places = self._scores[name][:count], self._places[name][:count]
        order = np.lexsort((places, -scores))
        return scores[order], places[order]

    def first_places(self, name: str) -> list[int]:
        """Returns the first places where only one side is NaN (``nan``) or infinite (``inf``)."""
        found: list[int] = self._places[name][: int(self.found[name]["count"])].tolist()
        return found

    def numbers(self) -> dict[str, Any]:
        return {name: self.found[name].item() for name in (*_COUNTS, *_REALS, "max_ulp")}


def _described_units(units: Units | None, length: int) -> tuple[Units | None, bytes]:
    """Returns arrays that must be kept alive while the kernel reads them, and a ``struct units`` pointing to them."""
    if units is None:
        return None, _UNITS.pack(0, 0, 0, 0, 0)
    here, there = _native_pair(units.here, units.there)
    valid = None if units.valid is None else np.ascontiguousarray(units.valid, np.bool_)
    if here.dtype != there.dtype or len(here) != length or (valid is not None and len(valid) != length):
        msg = "units in the last place need floats of one type, one for each pair"
        raise ValueError(msg)
    at_valid = 0 if valid is None else address(valid)
    packed = _UNITS.pack(address(here), address(there), at_valid, here.itemsize, units.has_no_sign)
    return Units(here, there, valid, units.has_no_sign), packed


def count_outside(here: Array, there: Array, rtol: float, atol: float, boundary: float, *, halves: bool) -> int:
    """Counts the pairs outside of a tolerance; see ``compare_pairs.outside_mask``."""
    one, other = _native_pair(here, there)
    return int(call("outside", "eeqqddd", one, other, len(one), halves, rtol, atol, boundary, result="q"))


def change(
    now: Array, before: Array, tests: Sequence[tuple[float, float, bool]] = ()
) -> tuple[float, float, list[bool]]:
    """Returns the sums of |now - before| and |before|, and for each test whether all elements pass.

    A test is (rtol, atol, NaN is close to NaN).
    """
    one, other = _native_pair(now, before)
    sums, asked = np.zeros(2), np.array([(*test, True) for test in tests], CLOSENESS)
    call("change", "eeqppq", one, other, len(one), sums, asked, len(asked))
    return float(sums[0]), float(sums[1]), [bool(close) for close in asked["close"]]


def changes(
    now: Int64,
    before: Int64,
    lengths: Int64,
    kinds: Kinds,
    tests: Sequence[tuple[float, float, bool]] = (),
) -> tuple[Float64, Int64]:
    """Does as ``change`` for many pairs of arrays at once, given by the addresses of their first elements.

    The caller keeps the memory alive. Returns the two sums for each pair, and 1 for each pair and test that passes.
    """
    n = len(now)
    if not n == len(before) == len(lengths) == len(kinds.number):
        raise ValueError(NO_SENSE)
    sums, asked = np.zeros((n, 2)), np.empty((n, len(tests)), CLOSENESS)
    asked[:] = np.array([(*test, True) for test in tests], CLOSENESS)
    where = (np.ascontiguousarray(each, np.int64) for each in (now, before, lengths))
    call("changes", "qpppppppq", n, *kinds, *where, sums, asked, len(tests))
    return sums, asked["close"]


class PairDistance(NamedTuple):
    """The distance of two stretches of elements; ``differing`` counts NaN as NaN, and -0 as 0.

    Attributes:
        odd: differing elements that are not finite on both sides.
        worst: the first odd element, else the first one with the largest difference.
        most: difference of the worst element; inf where it is odd, -1 where none differs.
        square: sum of (difference · scale)² over pairs that are finite.
        own_squares, other_squares: sum of (element · scale)² of either side, over the same pairs.
        largest: largest magnitude in these pairs.
    """

    differing: int
    odd: int
    worst: int
    outside: int
    most: float
    square: float
    own_squares: float
    other_squares: float
    largest: float


_APART: Final = struct.Struct("=qqqqddddd")


def apart(here: Array, there: Array, scale: float, limits: tuple[float, float] | None, *, halves: bool) -> PairDistance:
    """Compares two arrays; see ``diagnose.runs.distance``.

    Both are multiplied by ``scale`` before squaring. ``limits``: rtol and atol; None: nothing is outside.
    """
    one, other = _native_pair(here, there)
    rtol, atol = limits or (0.0, math.inf)
    found = np.empty(_APART.size, np.uint8)
    call("apart", "peeqqddd", found, one, other, len(one), halves, scale, rtol, atol)
    return PairDistance(*_APART.unpack(found.tobytes()))


def apart_each(here: Array, there: Array, usual: float, *, halves: bool) -> float:
    """Returns the largest |difference| of a pair relative to its larger magnitude, or to ``usual`` if larger."""
    one, other = _native_pair(here, there)
    return float(call("apart_each", "eeqqd", one, other, len(one), halves, usual, result="d"))


def _native_pair(here: Array, there: Array) -> tuple[Array, Array]:
    one, other = native(here), native(there)
    if len(one) != len(other):
        msg = "arrays of different lengths are no pairs"
        raise ValueError(msg)
    return one, other
