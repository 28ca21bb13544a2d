"""Levels of the rank grid: how far each rank is from the median of those that have a number."""

from __future__ import annotations

import numpy as np

from tui_debugger.diagnose.ranks.grid import ABSENT, LEAST, NOT_FINITE, RankValues


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
