"""What neither run recorded, and what both recorded only statistics of: when that is known to agree, and when not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.diagnose.runs.test_judge import IN, OUT, SHIFT, Array, W, X, compared, forward, judgements
from tests.sources.memory import Key, Op, Recorded
from tui_debugger.diagnose.runs.results import COVERED, NodeJudgement
from tui_debugger.model import Category, TensorStats
from tui_debugger.stats.blocks import measure_stats

SECOND = "Other-op2"


def nothing(array: Array) -> Recorded:
    """A tensor of which a dump has the type and the shape."""
    return Recorded(
        TensorStats(array.size, 0, 0, 0, 0, 0, 0, None, None, None, None, None, 0.0), "float32", array.shape
    )


def statistics(step: Mapping[Key, Array]) -> dict[Key, Any]:
    return {key: Recorded(measure_stats(value)[0], "float32", value.shape) for key, value in step.items()}


def without_second(step: dict[Key, Any]) -> dict[Key, Any]:
    """Nobody recorded what the second operator makes, nor what the third one reads."""
    return {key: value for key, value in step.items() if key != ("Third-op3", IN, 0)} | {
        (SECOND, OUT, 0): nothing(step[SECOND, OUT, 0])
    }


def test_a_tensor_that_neither_run_recorded_is_known_by_what_is_around_it() -> None:
    good = without_second(forward(X, W))
    report = compared(good, good)
    assert (report.exit_code, report.doubts) == (0, ())
    assert [
        each.why for step in report.steps for each in step.judged if each.judgement is NodeJudgement.NOT_COMPARED
    ] == [COVERED]
    assert [step.covered for step in report.steps] == [1]


@pytest.mark.parametrize("missing", [("Third-op3", OUT, 0), (SECOND, IN, 0)])
def test_but_not_where_that_was_not_recorded_either(missing: Key) -> None:
    """What is made of it is not known, or what it is made of; its producer cannot be compared then."""
    good = without_second(forward(X, W))
    del good[missing]
    if missing[1] is IN:
        good["Custom-op1", OUT, 0] = nothing(X)
        del good["Custom-op1", IN, 0], good["x", OUT, 0]
    report = compared(good, good)
    assert report.exit_code == 2
    assert any(SECOND in doubt for doubt in report.doubts)


def test_nor_where_what_is_made_of_it_differs() -> None:
    report = compared(without_second(forward(X, W)), without_second(forward(X, W, factor=1.01)))
    assert report.exit_code == 2
    assert judgements(report)["Third-op3"] is NodeJudgement.UNPROVEN
    assert any(SECOND in doubt for doubt in report.doubts)


def test_nor_where_one_run_recorded_it() -> None:
    good = forward(X, W)
    del good["Third-op3", IN, 0]
    report = compared(good, without_second(forward(X, W)))
    assert report.exit_code == 2


def test_nor_where_it_is_of_another_type() -> None:
    good = without_second(forward(X, W))
    other = good | {(SECOND, OUT, 0): Recorded(good[SECOND, OUT, 0].stats, "float16", X.shape)}
    assert compared(good, other).exit_code == 2


def test_statistics_that_differ_are_the_least_by_which_an_input_does() -> None:
    """The values may be as far apart as what the next operator makes of them."""
    swapped = X.copy()
    swapped[:128], swapped[128:] = X[128:], X[:128]
    bad, good = forward(swapped, W), forward(X, W)
    for step in (good, bad):
        step["Third-op3", OUT, 0] = (step["Custom-op1", OUT, 0] + SHIFT)[:1] * np.ones(256, np.float32)
    bad["x", OUT, 0] = bad["Custom-op1", IN, 0] = X
    report = compared(statistics(good), statistics(bad))
    assert [each.name for each in report.findings] == ["Custom-op1"]
    assert judgements(report)["Third-op3"] is NodeJudgement.INHERITED


# -- one factor of all gradients -----------------------------------------------------------------------

NAMES = tuple("abcde")
GRADIENTS = (
    *(Op(name, "Parameter", category=Category.WEIGHT) for name in NAMES),
    Op("Loss-op1", "Loss", [(name, 0) for name in NAMES]),
    *(Op(f"Gradients/{name}", "ParameterGrad", [("Loss-op1", 0)], category=Category.GRADIENT) for name in NAMES),
)


def gradients(factor: float, **others: float) -> dict[Key, Any]:
    made = {(f"Gradients/{name}", OUT, 0): W * np.float32(others.get(name, factor)) for name in NAMES}
    read = {(f"Gradients/{name}", IN, 0): X for name in NAMES}
    return {(name, OUT, 0): W for name in NAMES} | {("Loss-op1", OUT, 0): X} | made | read


def test_a_gradient_that_is_not_scaled_as_all_others_are_is_the_cause() -> None:
    """Clipping passes its norm on to all of them."""
    report = compared(gradients(1.0), gradients(0.9, d=2.7), ops=GRADIENTS)
    assert [each.name for each in report.findings] == ["Gradients/d"]
    assert report.exit_code == 1


def test_one_factor_of_all_gradients_is_one_finding() -> None:
    report = compared(gradients(1.0), gradients(0.5), ops=GRADIENTS)
    (found,) = report.findings
    assert (report.exit_code, found.name) == (1, "Gradients/a")
    assert "5 gradients of parameters differ by one factor" in found.text


def test_gradients_with_factors_of_their_own_are_findings_each() -> None:
    report = compared(gradients(1.0), gradients(1.0, a=2.0, b=3.0, c=0.5, d=0.1), ops=GRADIENTS)
    assert [each.name for each in report.findings] == [f"Gradients/{name}" for name in "abcd"]


def test_a_difference_of_statistics_is_the_least_that_an_input_may_differ_by() -> None:
    """Rounding moves many elements by more than it moves their norm."""
    good = forward(X, W)
    noise = np.random.default_rng(5).standard_normal(X.shape).astype(np.float32)
    other = forward(X, W)
    other[SECOND, OUT, 0] = other[SECOND, OUT, 0] * (1 + np.float32(1.5e-7) * noise)
    other["Third-op3", OUT, 0] = other["Third-op3", OUT, 0] * (1 + np.float32(4e-7) * noise)
    statistics_of = {key: statistics({key: value})[key] for key, value in good.items() if key[0] == SECOND}
    theirs = {key: statistics({key: value})[key] for key, value in other.items() if key[0] == SECOND}
    for step in (good, other):
        step.pop(("Third-op3", IN, 0))
    assert compared(good | statistics_of, other | theirs).exit_code == 0
