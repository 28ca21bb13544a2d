"""The worst of a cell: never less than what is in it, never more."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.model import Verdict
from tui_debugger.stats.health import Health, codes_of, even_bounds, worst_of_groups, worst_within

CODES = st.integers(0, max(Health))


@given(
    st.lists(st.tuples(st.integers(0, 50), CODES), max_size=40),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=10),
)
def test_the_worst_within_a_range_is_that_of_a_loop(
    tensors: list[tuple[int, int]], ranges: list[tuple[int, int]]
) -> None:
    tensors.sort()
    places, codes = (np.array([each[part] for each in tensors], np.int64) for part in (0, 1))
    first, size = (np.array([each[part] for each in ranges], np.int64) for part in (0, 1))
    found = worst_within(places, codes.astype(np.uint8), first, size)
    expected = [
        max((code for place, code in tensors if start <= place < start + length), default=0) for start, length in ranges
    ]
    assert found.tolist() == expected


@given(st.integers(1, 300), st.integers(1, 80))
def test_steps_are_shared_evenly_and_none_is_left_out(count: int, room: int) -> None:
    bounds = even_bounds(count, room)
    sizes = np.diff(bounds)
    assert bounds[0] == 0
    assert bounds[-1] == count
    assert len(sizes) == min(count, room)
    assert sizes.max() - sizes.min() <= 1


@given(st.lists(st.lists(CODES, min_size=7, max_size=7), min_size=1, max_size=5), st.integers(1, 7))
def test_merged_steps_show_the_worst_of_them(rows: list[list[int]], room: int) -> None:
    bounds = even_bounds(7, room)
    merged = worst_of_groups(np.array(rows, np.uint8), bounds)
    for row, cells in zip(rows, merged.tolist(), strict=True):
        assert cells == [max(row[a:b]) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]


def test_a_tensor_is_as_bad_as_the_worst_that_was_found_on_it() -> None:
    finding, doubt, nothing = int(Verdict.FINDING), int(Verdict.CANNOT_JUDGE), int(Verdict.NOT_COMPARABLE)
    codes = codes_of(
        np.array([finding, finding, finding, finding, finding, doubt, nothing], np.int8),
        np.array([True, False, False, False, False, False, False]),
        np.array([1, 2, 0, 0, 0, 3, 3]),
        np.array([0, 1, 1, 0, 0, 0, 0]),
        np.array([True, True, True, True, False, True, True]),
    )
    assert [Health(code) for code in codes.tolist()] == [
        *(Health.ORIGIN, Health.NAN, Health.INF, Health.NOT_FINITE, Health.HIT, Health.UNREADABLE, Health.ABSENT),
    ]
