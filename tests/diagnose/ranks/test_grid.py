"""Levels of the rank grid: how far each rank is from the median of those that have a number."""

from __future__ import annotations

import numpy as np

from tui_debugger.diagnose.ranks.grid import ABSENT, LEAST, NOT_FINITE, STATISTICS, RankValues
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.stats.records import Record, Records


def test_levels_are_distances_from_the_median_of_numbers() -> None:
    numbers = np.array(
        [
            [1.0, 1.0, 1.0, 1.1, np.nan, np.nan],
            [np.nan, 2.0, 4.0, np.nan, np.nan, np.nan],
            [np.nan] * 6,
            [1e308, 1.5e308, 1e308, 1.5e308, np.nan, np.nan],
        ]
    )
    marks = np.full(numbers.shape, LEAST, np.uint8)
    marks[:, 4], marks[:, 5] = NOT_FINITE, ABSENT
    found = RankValues(0, "norm", tuple(range(6)), numbers, marks).levels(np.arange(4))
    assert found[0].tolist() == [LEAST, LEAST, LEAST, LEAST + 5, NOT_FINITE, ABSENT]
    assert found[1, 1] == found[1, 2] == LEAST + 6, "both are a third off the middle of the two"
    assert found[3, 0] == found[3, 1] == LEAST + 6
    assert found[2, 4:].tolist() == [NOT_FINITE, ABSENT]


def test_levels_are_those_of_a_plain_median() -> None:
    rng = np.random.default_rng(0)
    for ranks in (1, 2, 5, 64, 1000):
        numbers = rng.normal(size=(20, ranks))
        numbers[rng.random(numbers.shape) < 0.3] = np.nan
        numbers[:, 0] = 1.0
        marks = np.where(np.isnan(numbers), NOT_FINITE, LEAST).astype(np.uint8)
        levels = RankValues(0, "norm", tuple(range(ranks)), numbers, marks).levels(np.arange(20))
        middle = np.nanmedian(numbers, axis=1, keepdims=True)
        distance = np.abs(numbers - middle) / np.abs(middle)
        tens = np.ceil(np.log10(np.where(distance > 0, distance, 1e-99)) + 6)
        expected = np.where(np.isnan(numbers), NOT_FINITE, LEAST + np.clip(np.nan_to_num(tens), 0, 8))
        assert (levels == expected).all()


def test_what_was_not_recorded_is_no_number() -> None:
    """As ``TensorStats`` says it: a dump of statistics may lack the norm, and how many elements are 0."""
    known = TensorStats(4, 0, 0, 0, 1, 0, 3, 0.0, 2.0, 1.0, 1.0, None, 9.0)
    zeros = TensorStats(4, 0, 0, 0, 4, 0, 0, 0.0, 0.0, 0.0, 0.0, None, 0.0)
    lacking = TensorStats(4, 0, 0, 0, 0, 0, 0, 0.0, 2.0, 1.0, None, None, 0.0)
    records = Records(3)
    for row, stats in enumerate((known, zeros, lacking)):
        records.put(row, Record(TensorMeta("float32", (4,), 16), stats))
    found = {name: STATISTICS[name][1](records.rows) for name in ("norm", "zero_percentage")}
    np.testing.assert_array_equal(found["norm"], [3.0, 0.0, np.nan])
    assert [known.norm, zeros.norm, lacking.norm] == [3.0, 0.0, None]
    np.testing.assert_array_equal(found["zero_percentage"], [25.0, 100.0, np.nan])
