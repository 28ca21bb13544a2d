"""Statistics that a recorder left incomplete: what they answer is judged, what they leave open is not "clean"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tui_debugger.model import AtLeast, TensorMeta, TensorStats, Verdict, Watchpoint
from tui_debugger.stats.records import Record, Records, RequiredStats, derive_ranges
from tui_debugger.watch.evaluate import SILENT, ColumnEvaluator, needs

EXTREMES = TensorStats(
    count=1000,
    nan=0,
    pos_inf=0,
    neg_inf=0,
    zero=0,
    negative=1,
    positive=1,
    minimum=-2.0,
    maximum=3.0,
    mean=0.1,
    abs_mean=None,
    variance=None,
    sum_squares=5.0,
)


def verdict(stats: TensorStats, condition: str, **params: float) -> int:
    watchpoint = Watchpoint(1, condition, tuple(params.items()))
    need = needs(watchpoint)
    records = Records.of([Record(TensorMeta("float32", (stats.count,), 0), stats, need=need)])
    derive_ranges(records, need, np.arange(1))
    return int(ColumnEvaluator(records, np.arange(1)).evaluate(watchpoint, first_step=True).verdict[0])


@pytest.mark.parametrize(
    ("percent", "expected"), [(100, SILENT), (99.9, SILENT), (99.8, Verdict.CANNOT_JUDGE), (1, Verdict.CANNOT_JUDGE)]
)
def test_zeros_that_nobody_counted_are_unknown_but_for_what_the_extremes_tell(
    percent: float, expected: Verdict | int
) -> None:
    assert verdict(EXTREMES, "tensor_all_zero", zero_percentage_ge=percent) == expected


def test_zeros_that_were_counted_are_judged() -> None:
    counted = replace(EXTREMES, zero=600, negative=200, positive=200)
    assert verdict(counted, "tensor_all_zero", zero_percentage_ge=50) == Verdict.FINDING
    assert verdict(counted, "tensor_all_zero", zero_percentage_ge=70) == SILENT
    zeros = replace(EXTREMES, zero=1000, negative=0, positive=0, minimum=0.0, maximum=0.0, sum_squares=0.0)
    assert verdict(zeros, "tensor_all_zero", zero_percentage_ge=100) == Verdict.FINDING


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(-2, 3, SILENT), (-9, 9, SILENT), (4, 9, Verdict.FINDING), (-1, 9, Verdict.CANNOT_JUDGE)],
)
def test_a_range_is_judged_where_the_extremes_leave_one_answer(
    start: float, end: float, expected: Verdict | int
) -> None:
    params = {"range_start_inclusive": start, "range_end_inclusive": end, "range_percentage_lt": 50}
    assert verdict(EXTREMES, "tensor_range", **params) == expected


@pytest.mark.parametrize(
    ("squares", "mean", "below", "expected"),
    [
        (5.0, 0.0, 1e-12, SILENT),  # so many squares below 9 cannot come from such small magnitudes
        (0.0, 0.1, 1e-12, SILENT),  # nor can this mean
        (0.0, 0.0, 1e-12, Verdict.CANNOT_JUDGE),
        (5.0, 0.0, 4.0, Verdict.FINDING),  # no magnitude is as large
        (5.0, 0.0, 0.08, Verdict.FINDING),  # nor is the root of the mean square
        (5.0, 0.0, 0.05, Verdict.CANNOT_JUDGE),
    ],
)
def test_a_mean_of_magnitudes_that_nobody_took_lies_between_bounds(
    squares: float, mean: float, below: float, expected: Verdict | int
) -> None:
    stats = replace(EXTREMES, sum_squares=squares, mean=mean)
    assert verdict(stats, "gradient_vanishing", abs_mean_lt=below) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"abs_mean_gt": 50.0}, SILENT),  # no magnitude is as large, whatever the norm
        ({"abs_mean_gt": 1.0}, Verdict.CANNOT_JUDGE),
        ({"max_gt": 2.5}, Verdict.FINDING),
    ],
)
def test_one_element_that_stands_for_uncounted_ones_makes_no_mean_of_a_norm(
    params: dict[str, float], expected: Verdict | int
) -> None:
    stats = replace(EXTREMES, count=1, negative=0, positive=0, sum_squares=9e4)
    assert verdict(stats, "tensor_too_large", **params) == expected
    assert verdict(stats, "tensor_all_zero", zero_percentage_ge=50) == Verdict.CANNOT_JUDGE


def test_a_mean_of_magnitudes_is_judged_where_nobody_took_extremes() -> None:
    stats = replace(EXTREMES, negative=0, positive=0, minimum=None, maximum=None, mean=None, abs_mean=0.5)
    assert verdict(stats, "tensor_too_large", abs_mean_gt=0.4) == Verdict.FINDING
    assert verdict(stats, "tensor_too_large", abs_mean_gt=0.6) == SILENT
    assert verdict(stats, "tensor_too_large", abs_mean_gt=0.6, max_gt=9.0) == Verdict.CANNOT_JUDGE
    assert verdict(stats, "tensor_all_zero", zero_percentage_ge=100) == SILENT, "a mean magnitude needs an element"
    assert verdict(stats, "tensor_all_zero", zero_percentage_ge=99.8) == Verdict.CANNOT_JUDGE


@pytest.mark.parametrize(
    ("field", "value"), [("minimum", -2.0), ("mean", 0.1), ("abs_mean", 0.5), ("sum_squares", 5.0)]
)
def test_a_tensor_of_unknown_size_is_not_all_zero_where_one_number_is_not(field: str, value: float) -> None:
    nothing = replace(EXTREMES, count=1, negative=0, positive=0, minimum=None, maximum=None, mean=None, sum_squares=0.0)
    stats = replace(nothing, at_least=AtLeast.COUNT, **{field: value})
    assert verdict(stats, "tensor_all_zero", zero_percentage_ge=100) == SILENT
    assert verdict(stats, "tensor_all_zero", zero_percentage_ge=99) == Verdict.CANNOT_JUDGE
    unknown = replace(nothing, at_least=AtLeast.COUNT)
    assert verdict(unknown, "tensor_all_zero", zero_percentage_ge=100) == Verdict.CANNOT_JUDGE


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nan > 0", Verdict.FINDING),
        ("nan >= 1", Verdict.FINDING),
        ("0 < nan", Verdict.FINDING),
        ("nan > 5", Verdict.CANNOT_JUDGE),
        ("nan < 1", SILENT),
        ("nan < 5", Verdict.CANNOT_JUDGE),
        ("nan == 1", Verdict.CANNOT_JUDGE),
        ("inf == 0 and nan > 0", Verdict.CANNOT_JUDGE),
    ],
)
def test_a_lower_bound_decides_what_it_can(expression: str, expected: Verdict | int) -> None:
    stats = replace(EXTREMES, nan=1, at_least=AtLeast.NAN | AtLeast.INF)
    watchpoint = Watchpoint(1, "expression", (("expression", expression),))
    records = Records.of([Record(TensorMeta("float32", (1000,), 0), stats, need=needs(watchpoint))])
    found = ColumnEvaluator(records, np.arange(1)).evaluate(watchpoint, first_step=True)
    assert int(found.verdict[0]) == expected


@pytest.mark.parametrize("expression", ["count > 100", "count < 100", "zero > 0", "nan / count > 0.5"])
def test_of_an_unknown_number_of_elements_no_count_is_judged(expression: str) -> None:
    stats = replace(EXTREMES, count=1, negative=0, positive=0, at_least=AtLeast.COUNT)
    watchpoint = Watchpoint(1, "expression", (("expression", expression),))
    records = Records.of([Record(None, stats, need=needs(watchpoint))])
    found = ColumnEvaluator(records, np.arange(1)).evaluate(watchpoint, first_step=True)
    assert int(found.verdict[0]) == Verdict.CANNOT_JUDGE


def test_one_nan_leaves_no_range_to_be_judged() -> None:
    bounds = (-9.0, 9.0)
    need = RequiredStats(frozenset({bounds}))
    bad = replace(EXTREMES, nan=1, minimum=None, maximum=None, mean=None)
    records = Records.of([Record(TensorMeta("float32", (1000,), 0), bad, need=need)])
    derive_ranges(records, need, np.arange(1))
    assert records.ranges[bounds].tolist() == [-2]


def test_what_adds_up_is_counted() -> None:
    assert not EXTREMES.counted
    assert replace(EXTREMES, count=2).counted
