"""Bins hold every value exactly once, fit the room, and mean the same on both sides of zero."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tui_debugger.stats.distribution import Bin, count_bins, count_classes, linear_bins, log_bins


def holds(each: Bin, value: float) -> bool:
    above = value > each.low or (each.with_low and value == each.low)
    return above and (value < each.high or (each.with_high and value == each.high))


values_lists = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30)


@given(values_lists, st.integers(1, 60))
def test_every_value_is_in_one_bin_of_equal_width(values: list[float], room: int) -> None:
    bins = linear_bins(min(values), max(values), room)
    assert len(bins) <= room
    assert all(sum(holds(each, value) for each in bins) == 1 for value in values)


@given(values_lists, st.integers(5, 60))
def test_every_value_is_in_one_bin_by_magnitude(values: list[float], room: int) -> None:
    least = min((abs(value) for value in values if value), default=None)
    bins = log_bins(min(values), max(values), least, room)
    assert len(bins) <= room
    assert all(sum(holds(each, value) for each in bins) == 1 for value in values)
    assert all(one.high <= other.low for one, other in pairwise(bins))


@given(st.lists(st.floats(), min_size=1, max_size=200), st.integers(5, 60), st.booleans())
def test_counts_are_what_the_edges_say(values: list[float], room: int, log: bool) -> None:
    array = np.array(values)
    good = [value for value in values if math.isfinite(value)]
    assume(good)
    least = min((abs(value) for value in good if value), default=None)
    low, high = min(good), max(good)
    bins = log_bins(low, high, least, room) if log else linear_bins(low, high, room)
    counts = count_bins(array, count_classes(array), bins)
    assert counts == tuple(sum(holds(each, value) for value in good) for each in bins)
    assert sum(counts) == len(good)


@given(st.integers(-(2**40), 2**40), st.integers(0, 5000), st.integers(1, 100))
def test_bins_of_whole_numbers_begin_at_one_and_hold_as_many(low: int, span: int, room: int) -> None:
    bins = linear_bins(low, low + span, room, whole=True)
    assert len(bins) <= room
    assert bins[0].low == low
    assert bins[-1].high > low + span
    assert len({each.high - each.low for each in bins}) == 1
    assert all(each.low.is_integer() for each in bins)


def test_octaves_are_the_same_on_both_sides_of_zero() -> None:
    assert log_bins(-3.0, 5.0, 1.0, 6) == (
        Bin(-4.0, -2.0, with_low=False, with_high=True),
        Bin(-2.0, -1.0, with_low=False, with_high=True),
        Bin(0.0, 0.0, with_high=True),
        Bin(1.0, 2.0),
        Bin(2.0, 4.0),
        Bin(4.0, 8.0),
    )


def test_an_octave_is_divided_and_octaves_are_joined_as_the_room_allows() -> None:
    assert [each.low for each in log_bins(1.0, 1.9, 1.0, 4)] == [1.0, 1.25, 1.5, 1.75]
    assert [each.low for each in log_bins(1.0, 255.0, 1.0, 4)] == [1.0, 4.0, 16.0, 64.0]


@pytest.mark.parametrize(
    ("bins", "expected"),
    [
        (linear_bins(3.0, 3.0, 10), (Bin(3.0, 3.0, with_high=True),)),
        (log_bins(0.0, 0.0, None, 10), (Bin(0.0, 0.0, with_high=True),)),
        (log_bins(3.0, 3.0, 3.0, 10), (Bin(2.0, 4.0),)),
        (linear_bins(0.0, 1.0, 50, whole=True), (Bin(0.0, 1.0), Bin(1.0, 2.0))),
    ],
)
def test_a_single_value_is_a_single_bin(bins: tuple[Bin, ...], expected: tuple[Bin, ...]) -> None:
    assert bins == expected


def test_the_widest_range_there_is() -> None:
    most = float(np.finfo(np.float64).max)
    for bins in (linear_bins(-most, most, 20), log_bins(-most, most, 5e-324, 20)):
        assert all(sum(holds(each, value) for each in bins) == 1 for value in (-most, -5e-324, 0.0, 5e-324, most))
