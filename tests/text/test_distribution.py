"""How a tensor's values are spread, in words."""

from __future__ import annotations

import numpy as np
import pytest

from tui_debugger.model import TensorStats
from tui_debugger.stats.distribution import Bin, count_classes, linear_bins, log_bins
from tui_debugger.stats.quantiles import headroom
from tui_debugger.text.distribution import (
    bin_text,
    bins_text,
    counts_items,
    headroom_items,
    moments_items,
    packed,
    range_text,
    taken_text,
)

STATS = TensorStats(1000, 10, 2, 1, 300, 200, 487, -3.0, 4.5, 0.25, 1.5, 4.0, 25.0)


def test_every_element_is_counted_once() -> None:
    items = counts_items(STATS)
    assert items == [
        *("NaN 10 (1.0 %)", "-Inf 1 (0.1 %)", "negative 200 (20.0 %)", "zero 300 (30.0 %)"),
        *("positive 487 (48.7 %)", "+Inf 2 (0.2 %)"),
    ]
    assert counts_items(STATS, shares=False)[0] == "NaN 10"


def test_moments() -> None:
    assert moments_items(STATS) == ["min -3", "max 4.5", "mean 0.25", "σ 2", "mean |x| 1.5", "norm 5"]


def test_moments_of_a_tensor_without_a_finite_element() -> None:
    stats = TensorStats(3, 3, 0, 0, 0, 0, 0, None, None, None, None, None, 0.0)
    assert moments_items(stats) == [f"{name} –" for name in ("min", "max", "mean", "σ", "mean |x|", "norm")]


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (Bin(-0.25, 1.0), "[-0.25, 1)"),
        (Bin(-4.0, -2.0, with_low=False, with_high=True), "(-4, -2]"),
        (Bin(0.0, 0.0, with_high=True), "0"),
        (Bin(4.4758, 4.47581), "[4.4758, 4.47581)"),
    ],
)
def test_brackets_say_whether_an_edge_belongs_to_a_bin(each: Bin, text: str) -> None:
    assert bin_text(each) == text


@pytest.mark.parametrize(
    ("bins", "log", "text"),
    [
        (linear_bins(0.0, 1.0, 20), False, "20 bins of equal width"),
        (log_bins(-3.0, 5.0, 1.0, 6), True, "6 bins by magnitude, 1 octave each"),
        (log_bins(1.0, 255.0, 1.0, 4), True, "4 bins by magnitude, 2 octaves each"),
        (log_bins(1.0, 1.9, 1.0, 4), True, "4 bins by magnitude, 4 an octave"),
        (log_bins(0.0, 0.0, None, 4), True, "1 bin by magnitude"),
    ],
)
def test_bins_in_words(bins: tuple[Bin, ...], log: bool, text: str) -> None:
    assert bins_text(bins, log=log) == text


@pytest.mark.parametrize(
    ("greatest", "dtype", "text"),
    [
        (59600.0, "float16", "max |x| 59600 is 91.0 % of float16's range (65504)"),
        (12.5, "bfloat16", "max |x| 12.5 is 3e37× below bfloat16's greatest, 3.39e38"),
        (100.0, "int8", "max |x| 100 is 78.1 % of int8's range (128)"),
        (1.0, "bool", ""),
        (0.0, "float32", ""),
        (None, "float32", ""),
    ],
)
def test_the_distance_to_overflow(greatest: float | None, dtype: str, text: str) -> None:
    assert range_text(greatest, dtype) == text


@pytest.mark.parametrize(
    ("dtype", "greatest", "text"),
    [
        ("complex64", 1.0, "magnitudes of complex values"),
        ("int64", 2.0**60, "as float64: whole numbers above 2^53 are rounded"),
        ("int64", 100.0, ""),
        ("float32", 1e30, ""),
    ],
)
def test_numbers_that_are_not_quite_the_elements(dtype: str, greatest: float, text: str) -> None:
    assert taken_text(dtype, greatest) == text


def test_what_would_become_of_the_values_in_other_types() -> None:
    array = np.array([1.0, 70000.0, 1e-8, 1e-5, 0.0, np.nan], np.float32)
    assert headroom_items(headroom(array, count_classes(array), "float32"), "float32") == [
        [
            "max |x| 70000 is 5e33× below float32's greatest, 3.403e38",
            "least |x| above 0, 1e-8, is 9e29× its least normal",
        ],
        ["in float16: 20.0 % overflow (1)", "20.0 % become 0 (1)", "20.0 % are subnormal (1)"],
        ["in float8_e4m3fn: 20.0 % overflow (1)", "40.0 % become 0 (2)"],
        ["in float8_e5m2: 20.0 % overflow (1)", "20.0 % become 0 (1)", "20.0 % are subnormal (1)"],
        ["in bfloat16: all in normal range or 0"],
    ]


def test_subnormal_values_of_the_own_type_are_told() -> None:
    array = np.array([1.0, 1e-6], np.float16)
    first, own, *_ = headroom_items(headroom(array, count_classes(array), "float16"), "float16")
    assert first[1] == "least |x| above 0, 1.013e-6, is below its least normal, 6.104e-5"
    assert own == ["as float16: 50.0 % are subnormal (1)"]


def test_no_finite_element_has_no_headroom() -> None:
    array = np.full(3, np.nan, np.float32)
    assert headroom_items(headroom(array, count_classes(array), "float32"), "float32") == []


def test_items_are_never_broken_in_two() -> None:
    assert packed("x: ", ["aaa", "bbb", "ccc"], 12) == ["x: aaa · bbb", "ccc"]
    assert packed("", ["aaaaaaaaaaaaaaaa", "b"], 5) == ["aaaaaaaaaaaaaaaa", "b"]
    assert packed("", [], 5) == []
