"""The parts of the kernel for two tensors, distributions and heat maps: as numpy has it, and no further.

What they find is compared with numpy where they are used (``test_compare``, ``test_distribution``, ``test_heat``); here
it is hostile lengths, addresses and arguments, and what those tests are too small for.
"""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.stats.kernels import needs_kernel
from tests.stats.test_kernel import NAMES, any_bits
from tui_debugger.stats import kernel
from tui_debugger.stats.compare import CompareOptions, PartialDifferences, compared_span
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Pairs, common_type, outside_mask
from tui_debugger.stats.kernel.elements import INF, NAN, UPPER, BitCounts, Cells, count_edges, find_bad, keys_of
from tui_debugger.stats.kernel.pairs import PairSums, change, count_outside

pytestmark = needs_kernel

Array = npt.NDArray[Any]
LENGTHS = (0, 1, 7, 8, 9, 1023, 1024, 1025, 3000)
COUNTS = ("finite", "same", "flips", "from_zero", "outside", "ulps", "within_one", "max_abs", "max_rel", "max_ulp")
SUMS = ("sum_abs", "squares", "dot", "own_squares", "other_squares")


def moved(array: Array, shift: int) -> Array:
    """The same elements at an address that may not be a multiple of their size, right before the end of the memory."""
    memory = np.zeros(array.nbytes + shift, np.uint8)
    memory[shift:] = array.reshape(-1).view(np.uint8)
    return memory[shift:].view(array.dtype)


def by_both(here: Array, there: Array, tolerance: Boundary = EXACT) -> tuple[PartialDifferences, PartialDifferences]:
    """What the kernel finds of two arrays, and what numpy does."""
    options = CompareOptions(tolerance, 20, common_type(here.dtype, there.dtype))
    by_numpy = PartialDifferences(options)
    by_numpy.add(0, here, there)
    by_kernel = compared_span(options, Pairs(here, there), (0, len(here)), lambda _: None)
    return by_kernel, by_numpy


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_pairs_of_any_bits_are_as_numpy_has_them(name: str, n: int) -> None:
    here, there = any_bits(name, n, 1), any_bits(name, n, 2)
    some = np.random.default_rng(3).random(n) < 0.3
    there = np.where(some, here, there).astype(here.dtype)
    found, wanted = by_both(here, there, Boundary(0.1, 0.5))
    for each in COUNTS:
        assert getattr(found, each) == getattr(wanted, each), each
    for each in SUMS:
        assert getattr(found, each) == pytest.approx(getattr(wanted, each), rel=1e-11, nan_ok=True), each
    assert found.odd.counts() == wanted.odd.counts()
    assert found.odd.positions() == wanted.odd.positions()
    for each in ("by_abs", "by_rel", "by_ulp"):
        assert getattr(found, each).positions() == getattr(wanted, each).positions(), each


@pytest.mark.parametrize("here", NAMES)
@pytest.mark.parametrize("there", ["float32", "bfloat16", "float8_e4m3fn", "uint64", "bool"])
def test_two_types_are_compared_as_doubles(here: str, there: str) -> None:
    one, other = any_bits(here, 1100, 1), any_bits(there, 1100, 2)
    found, wanted = by_both(one, other)
    assert [getattr(found, each) for each in COUNTS] == [getattr(wanted, each) for each in COUNTS]


@pytest.mark.parametrize("shift", [1, 3, 5])
@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int64"])
def test_pairs_may_lie_at_any_address(name: str, shift: int) -> None:
    here, there = any_bits(name, 1500, 1), any_bits(name, 1500, 2)
    found, wanted = by_both(moved(here, shift), moved(there, 8 - shift)), by_both(here, there)
    for each in (*COUNTS, *SUMS):
        assert str(getattr(found[0], each)) == str(getattr(wanted[0], each)), each
    assert change(moved(here, shift), there, [(0.1, 0.1, True)])[2] == change(here, there, [(0.1, 0.1, True)])[2]
    with np.errstate(all="ignore"):
        outside = np.count_nonzero(outside_mask(here, there, Boundary(0.1, 0.5), 2.0))
    halves = name == "int64"
    assert count_outside(moved(here, shift), moved(there, shift), 0.1, 0.5, 2.0, halves=halves) == outside


def test_sums_of_pairs_are_within_their_bound_of_exact_ones() -> None:
    """n additions in whatever order are off by at most n · 2⁻⁵³ of the sum of the magnitudes."""
    random = np.random.default_rng(5)
    here, there = (random.standard_normal(5000) * np.exp2(random.integers(-60, 60, 5000)) for _ in range(2))
    found = by_both(here, there)[0]
    bound = 5000 * 2.0**-53
    whole, other = ([int(x * 2.0**200) for x in map(float, side)] for side in (here, there))
    dot = sum(a * b for a, b in zip(whole, other, strict=True)) / 4**200
    magnitude = sum(abs(a * b) for a, b in zip(whole, other, strict=True)) / 4**200
    squares = sum(a * a for a in whole) / 4**200
    differences = sum(abs(int(float(a - b) * 2.0**200)) for a, b in zip(here, there, strict=True)) / 2**200
    assert abs(found.dot - dot) <= bound * magnitude
    assert abs(found.own_squares - squares) <= bound * squares
    assert abs(found.sum_abs - differences) <= bound * differences


def test_arrays_of_different_lengths_are_no_pairs() -> None:
    sums = PairSums(3, 0.0, 0.0, counts_outside=False, halves=False)
    for call in (
        lambda: sums.add(0, np.zeros(3), np.zeros(4)),
        lambda: change(np.zeros(3), np.zeros(4)),
        lambda: count_outside(np.zeros(3), np.zeros(4), 0, 0, 0, halves=False),
    ):
        with pytest.raises(ValueError, match="lengths"):
            call()


def test_hostile_arguments_of_pairs_read_nothing() -> None:
    x = np.zeros(4)
    sums = PairSums(3, 0.0, 0.0, counts_outside=False, halves=False)
    call, at = kernel.function("pairs", "ppppqq"), kernel.address
    good, none = kernel.described(x), struct.pack("=qqqqq", 0, 0, 0, 0, 0)
    assert call(at(sums.found), good, good, none, 4, 0) == 0
    for elements in ((at(x), 0, -1), (at(x), 0, 11), (at(x), 0, 10), (0, 0, 1)):
        bad = struct.pack("=qqq", *elements)
        assert call(at(sums.found), bad, good, none, 4, 0) < 0
        assert call(at(sums.found), good, bad, none, 4, 0) < 0
    for units in ((0, 0, 0, 8, 0), (at(x), at(x), 0, 3, 0), (at(x), at(x), 0, 8, 1)):
        assert call(at(sums.found), good, good, struct.pack("=qqqqq", *units), 4, 0) < 0
    assert call(at(sums.found), good, good, none, -1, 0) < 0
    assert call(0, good, good, none, 4, 0) < 0
    for place, value in (("most", -1), ("count", 7), ("scores", 0), ("places", 0)):
        broken = sums.found.copy()
        broken["by_rel"][place] = value
        assert call(at(broken), good, good, none, 4, 0) < 0, place


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_bits_keys_and_edges_of_any_bits(name: str, n: int) -> None:
    array = moved(any_bits(name, n), 1)
    width = array.dtype.itemsize
    if width <= 2:
        counts = BitCounts(width=width)
        counts.add(array)
        bits = array.view(f"u{width}")
        assert np.array_equal(counts.counts(), np.bincount(bits, minlength=1 << 8 * width))
    else:
        narrow = name == "float32"
        values = array if narrow else array.astype(np.float64)
        bits = values.view("u4" if narrow else "u8")
        upper = (bits >> (16 if narrow else 48)).astype(np.int64)
        counts = BitCounts(width=4 if narrow else 8, narrow=narrow)
        counts.add(array)
        assert np.array_equal(counts.counts(), np.bincount(upper, minlength=UPPER))
        zero = bits[values == 0]
        assert counts.zeros.tolist() == [len(zero), np.count_nonzero(zero)]
        wanted = np.random.default_rng(1).random(UPPER) < 0.4
        room = np.full(n, 7, bits.dtype)
        found = keys_of(array, wanted, room)
        assert len(found) == np.count_nonzero(wanted[upper] & (values != 0))
    edges = [-1.0, 0.0, 0.5, 3.0]
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
    assert count_edges(array, edges).tolist() == [*((wide >= edge).sum() for edge in edges[:-1]), (wide > 3).sum()]


def test_room_for_fewer_keys_than_elements_is_refused() -> None:
    with pytest.raises(ValueError, match="no sense"):
        keys_of(np.ones(5, np.float32), np.ones(UPPER, np.bool_), np.empty(4, np.uint32))
    with pytest.raises(ValueError, match="no sense"):
        keys_of(np.ones(5, np.float32), np.ones(100, np.bool_), np.empty(5, np.uint32))
    with pytest.raises(ValueError, match="no sense"):  # not every double is a float32
        keys_of(np.ones(5), np.ones(UPPER, np.bool_), np.empty(5, np.uint32))


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "int8"])
def test_the_first_and_the_last_bad_element(name: str) -> None:
    clean = np.ones(5000, getattr(ml_dtypes, name, None) or name)
    assert find_bad(clean, NAN | INF) is None
    assert find_bad(clean[:0], NAN | INF) is None
    if name == "int8":
        return
    for places in ((0,), (4999,), (1024, 3071), (17, 18, 4000)):
        array = clean.copy()
        for number, place in enumerate(places):
            array[place] = np.nan if number % 2 == 0 or name == "float8_e4m3fn" else -np.inf
        bad = np.isnan(array.astype(np.float32))
        infinite = np.isinf(array.astype(np.float32))
        for kinds, mask in ((NAN, bad), (INF, infinite), (NAN | INF, bad | infinite)):
            found = np.flatnonzero(mask)
            assert find_bad(array, kinds) == (found[0] if len(found) else None)
            assert find_bad(array, kinds, last=True) == (found[-1] if len(found) else None)


def test_a_rectangle_that_leaves_the_cells_is_refused() -> None:
    cells = Cells(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 2, 3), np.int64), (2, 2))
    cells.add(np.ones((4, 6)), 0, 0)
    for tile, row, column in (
        (np.ones((5, 6)), 0, 0),
        (np.ones((4, 7)), 0, 0),
        (np.ones((1, 1)), 4, 0),
        (np.ones((1, 1)), -1, 0),
    ):
        with pytest.raises(ValueError, match="no sense"):
            cells.add(tile, row, column)
    with pytest.raises(ValueError, match="shapes"):
        Cells(np.zeros((2, 3)), np.zeros((2, 2)), np.zeros((3, 2, 3), np.int64), (1, 1))
