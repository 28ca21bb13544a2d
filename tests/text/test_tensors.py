from __future__ import annotations

import numpy as np
import pytest

from tui_debugger.model import TensorMeta
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.distribution import Histogram, histogram
from tui_debugger.text.tensors import aligned, flags, short, sparkline, tensor_line, tensor_parts


def test_the_tallest_bar_is_the_greatest_count_and_only_nothing_is_the_lowest() -> None:
    assert sparkline([0, 1, 7, 14, 1000]) == "▁▂▂▂█"
    assert sparkline([1, 2, 3, 4, 5, 6, 7]) == "▃▄▅▆▇██"
    assert sparkline([5]) == "█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (-1234.5678, "-1235"),
        (65504.0, "65504"),
        (999999.0, "999999"),
        (1234567.0, "1.235e6"),
        (1.23456e-7, "1.235e-7"),
        (0.0, "0"),
        (None, "–"),
        (float("inf"), "Inf"),
    ],
)
def test_numbers_have_four_digits_and_whole_ones_are_exact(value: float | None, text: str) -> None:
    assert short(value) == text


def line(array: np.ndarray, spread: Histogram | None = None) -> str:  # type: ignore[type-arg]  # any element type
    stats, _ = measure_stats(array)
    return " ".join(filter(None, tensor_parts(TensorMeta(array.dtype.name, array.shape, array.nbytes), stats, spread)))


def test_a_tensor_in_one_line() -> None:
    array = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 0.0]], np.float32)
    assert line(array, histogram(array, 0.0, 4.0, 4)) == ("float32 2×3 n=6 █▅▅█ x∈[0, 4] μ=1.667 σ=1.491 zeros 33.3%")


def test_what_is_wrong_stands_at_the_end_with_its_count() -> None:
    array = np.array([1.0, np.nan, np.inf, np.inf, -np.inf, 1.0])
    assert line(array).endswith("x∈[1, 1] μ=1 σ=0 NaN! 1 +Inf! 2 -Inf! 1")


def test_without_finite_values_there_is_no_range() -> None:
    assert line(np.full((2, 2), np.nan)) == "float64 2×2 n=4 NaN! 4"
    assert line(np.zeros((0, 3))) == "float64 0×3 n=0"
    assert flags(measure_stats(np.zeros(2))[0]) == ""


def test_text_has_no_statistics_and_unknown_tensors_have_no_line() -> None:
    assert tensor_line(TensorMeta("<U3", (), 12), None) == "<U3 scalar n=1"
    assert tensor_line(None, None) == ""


def test_a_recorded_type_is_made_safe_to_print() -> None:
    assert "\x1b" not in tensor_line(TensorMeta("float\x1b[31m", (1,), 0), None)


def test_lines_stand_below_each_other_and_empty_columns_take_no_room() -> None:
    meta = TensorMeta("int32", (2,), 8)
    rows = [("in:0", "", *tensor_parts(meta, None, None)), ("param:10", "", "not dumped")]
    assert aligned(rows) == ["in:0     int32 2 n=2", "param:10 not dumped"]
