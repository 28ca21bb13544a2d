"""Bars of blocks and the axis below them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.distribution import linear_bins, log_bins
from tui_debugger.tui.views.distribution import axis_labels, axis_line, bar_rows, bar_width, height_label


def test_bars_have_the_height_of_their_counts() -> None:
    assert bar_rows([0, 1, 4, 8], 2, 1, top=8, log=False) == ["   █", " ▂██"]
    assert bar_rows([0, 1, 1000], 2, 1, top=1000, log=True) == ["  █", " ▂█"]


def test_something_is_never_nothing() -> None:
    assert bar_rows([1, 10**9], 3, 1, top=10**9, log=False)[-1] == "▁█"


def test_wide_bars_stand_apart() -> None:
    assert bar_rows([8, 4], 1, 4, top=8, log=False) == ["███ ▄▄▄ "]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.integers(1, 12), st.booleans())
def test_a_greater_count_is_never_drawn_lower(counts: list[int], height: int, log: bool) -> None:
    rows = bar_rows(sorted(counts), height, 1, top=max(counts), log=log)
    heights = [sum(" ▁▂▃▄▅▆▇█".index(row[i]) for row in rows) for i in range(len(counts))]
    assert all(one <= other for one, other in pairwise(heights))
    assert len(rows) == height


def test_the_count_axis_says_the_top_and_the_middle() -> None:
    assert [height_label(line, 8, 1000, log=False) for line in range(8)] == ["1,000", "", "", "", "500", "", "", ""]
    assert height_label(4, 8, 1000, log=True) == "30.6"
    assert height_label(0, 8, 12_345_678, log=False) == "1.235e7"


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(8, 190), st.booleans())
def test_labels_fit_and_stand_at_their_bins(low: float, span: float, room: int, log: bool) -> None:
    high = low + span
    bins = log_bins(low, high, 1e-4, room) if log else linear_bins(low, high, room)
    cells = bar_width(len(bins), room)
    labels, ticks = axis_labels(bins, cells, room)
    assert len(labels) <= room
    assert len(axis_line(len(bins), cells, 0, ticks)) == len(bins) * cells
    for tick in ticks:
        assert tick % cells == 0
        assert labels[tick] != " "
        assert tick == 0 or labels[tick - 1] == " "


def test_labels_have_enough_digits_to_differ() -> None:
    labels, _ = axis_labels(linear_bins(1000.0001, 1000.0009, 40), 1, 40)
    assert len(set(labels.split())) == len(labels.split()) > 1


def test_zero_is_always_labelled() -> None:
    labels, ticks = axis_labels(log_bins(-1e9, 1e9, 1e-9, 60), 1, 60)
    assert "  0  " in labels
    assert len(ticks) > 2


def test_the_cursor_stands_in_the_middle_of_its_bar() -> None:
    assert axis_line(3, 3, 1, [0]) == "┬───▲────"
