"""Batches: every file once, tensors whole, about as much work in each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stats.requests import looks_of
from tests.thorough import examples
from tui_debugger.stats.measure import LEAST, LIKE_BYTES, MOST, compared_with, costs, cuts, part
from tui_debugger.stats.records import ONLY_COMPARED, ReadRequests, RequiredStats

CHANGE = RequiredStats(change=True)


def looks(chains: list[int], need: RequiredStats | None = CHANGE) -> ReadRequests:
    """Tensors of so many steps each, one after the other."""
    previous: list[int] = []
    for steps in chains:
        previous += [-1, *range(len(previous), len(previous) + steps - 1)]
    return looks_of([Path(f"/{row}") for row in range(len(previous))], previous, [need] * len(previous))


@examples(50)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=60),
    st.lists(st.sampled_from([-1, 0, 400, 1 << 20, 1 << 24, 1 << 26, 1 << 33]), min_size=1, max_size=7),
    st.integers(1, 4),
)
def test_batches_follow_each_other_and_stay_small(chains: list[int], pattern: list[int], workers: int) -> None:
    whole = looks(chains)
    sizes = np.resize(np.array(pattern, np.int64), len(whole))
    found = list(cuts(whole, sizes, workers))
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(whole)
    firsts = set(np.flatnonzero(whole.previous < 0).tolist())
    for start, end in found:
        cost = int(costs(sizes[start:end]).sum())
        assert end - start == 1 or cost <= MOST
        if start not in firsts:  # a tensor is cut apart only where its steps are too much together
            first = max(row for row in firsts if row < start)
            assert int(costs(sizes[first:end]).sum()) > LEAST


def test_work_is_shared_and_small_work_is_not_chopped() -> None:
    whole = looks([50] * 400)
    sizes = np.full(len(whole), 200)
    assert len(list(cuts(whole, sizes, 2))) >= 12
    few = looks([6] * 20)
    assert len(list(cuts(few, np.full(len(few), 200), 2))) == 1
    assert LEAST // LIKE_BYTES == 256


def test_no_files_are_no_batches() -> None:
    assert list(cuts(looks([]), np.zeros(0, np.int64), 2)) == []


@examples(50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.data())
def test_a_part_brings_what_it_is_compared_with(chains: list[int], data: st.DataObject) -> None:
    whole = looks(chains)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(whole) - 1), min_size=1))))
    batch, every = part(whole, rows)
    assert [batch.specs.paths[at] for at in range(len(batch))] == [whole.specs.paths[row] for row in every]
    asked = every[batch.need != ONLY_COMPARED]
    assert asked.tolist() == rows.tolist()
    for at, row in enumerate(every.tolist()):
        if row in rows:
            before = int(whole.previous[row])
            assert (int(every[batch.previous[at]]) if batch.previous[at] >= 0 else -1) == before
        else:
            assert row + 1 in rows


def test_what_nobody_compares_does_not_come_along() -> None:
    whole = looks([5], RequiredStats())
    assert compared_with(whole).tolist() == [-1] * 5
    batch, every = part(whole, np.array([3, 4]))
    assert every.tolist() == [3, 4]
    assert batch.previous.tolist() == [-1, -1]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_huge_file_is_alone(workers: int) -> None:
    whole = looks([1, 1, 1])
    assert list(cuts(whole, np.array([100, 1 << 33, 100]), workers)) == [(0, 1), (1, 2), (2, 3)]
