from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tui_debugger.model import ReadSpec
from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.distribution import BINS, Histogram, histogram
from tui_debugger.stats.npy import open_array

Array = npt.NDArray[Any]


def of(array: Array, bins: int = BINS) -> Histogram:
    """Between the smallest and the greatest finite element, which plain numpy finds."""
    values = finite(array)
    return histogram(array, float(values.min()), float(values.max()), bins)


def finite(array: Array) -> npt.NDArray[np.float64]:
    doubles = np.abs(array).astype(np.float64) if array.dtype.kind == "c" else array.astype(np.float64)
    return doubles[np.isfinite(doubles)]


@given(st.lists(st.floats(width=32), min_size=1), st.integers(1, 20))
def test_counts_are_those_of_numpy(values: list[float], bins: int) -> None:
    array = np.array(values, np.float32)
    good = finite(array)
    assume(len(good) and good.min() < good.max())
    found = of(array, bins)
    try:
        counts, edges = np.histogram(good, bins, (good.min(), good.max()))
    except ValueError:  # numpy gives up on ranges that hold fewer doubles than bins
        assume(False)
    assert found.counts == tuple(counts.tolist())
    assert found.edges == tuple(edges.tolist())


@given(st.lists(st.floats(), min_size=1), st.integers(1, 12))
def test_every_finite_double_is_in_the_bin_between_its_edges(values: list[float], bins: int) -> None:
    array = np.array(values)
    good = finite(array)
    assume(len(good))
    found = of(array, bins)
    edges = found.edges
    assert (edges[0], edges[-1]) == (good.min(), good.max())
    assert list(edges) == sorted(edges)
    last = len(found.counts) - 1
    expected = [
        sum(low <= x and (x < high or (i == last and x == high)) for x in good.tolist())
        for i, (low, high) in enumerate(pairwise(edges))
    ]
    assert list(found.counts) == expected
    assert sum(found.counts) == len(good)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_up_to_two_to_the_sixty_three(values: list[int]) -> None:
    array = np.array(values, np.int64)
    found = of(array)
    assert sum(found.counts) == len(values)
    if array.min() != array.max() and float(array.min()) != float(array.max()):
        doubles = array.astype(np.float64)
        assert found.counts == tuple(np.histogram(doubles, BINS, (doubles.min(), doubles.max()))[0].tolist())


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False, True, True]),
        np.arange(256, dtype=np.uint8),
        np.array([0, 2**64 - 1], np.uint64),
        np.array([-65504, 0, 65504, np.inf, np.nan], np.float16),
        np.array([-1, 0.5, 2, np.nan], ml_dtypes.bfloat16),
        np.array([0.5, 1, 448], ml_dtypes.float8_e4m3fn),
        np.array([3 + 4j, 1j, -2, np.nan]),
        np.array([1, 2, 3, 2], ">f4"),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24.0).reshape(2, 3, 4)[:, ::2, 1:],
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_every_element_type_counts_as_its_double(array: Array) -> None:
    good = finite(array)
    counts, edges = np.histogram(good, BINS, (good.min(), good.max()))
    assert of(array) == Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def test_a_constant_tensor_has_one_bin() -> None:
    assert of(np.full(7, 1e300)) == Histogram((1e300, 1e300), (7,))
    assert of(np.array([0.0, -0.0, np.nan])) == Histogram((0.0, 0.0), (2,))


def test_a_range_wider_than_the_greatest_double() -> None:
    found = of(np.array([-1.7e308, -1e307, 1e307, 1.7e308, np.inf, -np.inf]), 4)
    assert found.counts == (1, 1, 1, 1)
    assert all(map(math.isfinite, found.edges))
    assert found.edges[2] == 0


@pytest.mark.parametrize("array", [np.full(3, np.nan), np.array([np.inf, -np.inf]), np.zeros((0, 4))])
def test_without_a_finite_element_nothing_is_counted(array: Array) -> None:
    assert sum(histogram(array, -1.0, 1.0).counts) == 0


def test_what_lies_outside_the_bounds_is_left_out() -> None:
    assert histogram(np.arange(10.0), 2.0, 5.0, 3).counts == (1, 1, 2)


def test_blocks_add_up() -> None:
    array = np.random.default_rng(1).normal(size=2 * BLOCK + 7).astype(np.float32)
    doubles = array.astype(np.float64)
    assert of(array).counts == tuple(np.histogram(doubles, BINS)[0].tolist())


def test_of_a_memory_map(tmp_path: Path) -> None:
    array = np.random.default_rng(2).normal(size=(3, 2_000_000)).astype(np.float32)
    np.save(tmp_path / "big.npy", array)
    assert of(open_array(ReadSpec(str(tmp_path / "big.npy")))) == of(array)


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (math.nan, 1.0), (0.0, math.inf)])
def test_impossible_bounds_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no histogram"):
        histogram(np.zeros(3), *bounds)


def test_no_bins_and_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="0 bins"):
        histogram(np.zeros(3), 0.0, 1.0, 0)
    with pytest.raises(TypeError, match="element type"):
        histogram(np.array(["a"]), 0.0, 1.0)
