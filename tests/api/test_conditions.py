"""The condition classes: constructors, names and numbers are those of MindInsight."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tui_debugger
from tui_debugger import (
    ConditionBase,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorChangeBelowThresholdCondition,
    TensorInitializationCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorTooSmallCondition,
    TensorUnchangedCondition,
)
from tui_debugger.api import conditions
from tui_debugger.errors import DebuggerParamTypeError, DebuggerParamValueError
from tui_debugger.watch.condition_table import CONDITIONS

MUST = inspect.Parameter.empty
SIGNATURES: dict[type[ConditionBase], tuple[int, dict[str, Any], list[str]]] = {
    TensorTooLargeCondition: (15, dict.fromkeys(("abs_mean_gt", "max_gt", "min_gt", "mean_gt")), []),
    TensorTooSmallCondition: (16, dict.fromkeys(("abs_mean_lt", "max_lt", "min_lt", "mean_lt")), []),
    TensorRangeCondition: (
        21,
        dict.fromkeys(
            (
                *("range_start_inclusive", "range_end_inclusive"),
                *("range_percentage_lt", "range_percentage_gt", "max_min_lt", "max_min_gt"),
            )
        ),
        [],
    ),
    TensorOverflowCondition: (13, {}, []),
    OperatorOverflowCondition: (2, {}, []),
    TensorAllZeroCondition: (17, {"zero_percentage_ge": MUST}, []),
    TensorUnchangedCondition: (20, {"rtol": 1e-5, "atol": 1e-8}, ["equal_nan"]),
    TensorChangeBelowThresholdCondition: (19, {"abs_mean_update_ratio_lt": MUST, "epsilon": 1e-9}, []),
    TensorChangeAboveThresholdCondition: (18, {"abs_mean_update_ratio_gt": MUST, "epsilon": 1e-9}, []),
    TensorInitializationCondition: (14, dict.fromkeys(("zero_percentage_ge", "max_gt", "min_lt")), []),
}
"""Number on the wire, parameters with their defaults in order, names on the wire beyond them."""


def test_every_condition_has_a_class_that_judges_like_it() -> None:
    classes = [each for each in vars(conditions).values() if inspect.isclass(each) and hasattr(each, "row")]
    assert {each.row.wire for each in classes} == {each.wire for each in CONDITIONS.values()}, "api/conditions.py"
    assert {each.__name__ for each in classes} <= set(tui_debugger.__all__)


@pytest.mark.parametrize("kind", SIGNATURES, ids=lambda kind: kind.__name__)
def test_signature_name_number_and_parameter_names(kind: type[ConditionBase]) -> None:
    number, parameters, more = SIGNATURES[kind]
    found = inspect.signature(kind).parameters
    assert {name: each.default for name, each in found.items()} == parameters
    assert list(found) == list(parameters)
    condition = kind(**dict.fromkeys(parameters, 1))
    assert condition.name == kind.__name__.removesuffix("Condition")
    assert condition.condition_id == number
    assert condition.param_dict == dict.fromkeys(parameters, 1.0)
    assert condition.param_names == [*parameters, *more]
    assert str(condition) == str(condition.param_dict)
    assert isinstance(condition, ConditionBase)


def test_what_is_not_set_is_not_there() -> None:
    condition = TensorTooLargeCondition(mean_gt=2, abs_mean_gt=0)
    assert list(condition.param_dict.items()) == [("abs_mean_gt", 0.0), ("mean_gt", 2.0)]
    assert repr(condition) == "TensorTooLargeCondition(abs_mean_gt=0.0, mean_gt=2.0)"
    assert TensorUnchangedCondition().param_dict == {"rtol": 1e-5, "atol": 1e-8}


def test_the_dict_is_a_copy() -> None:
    condition = TensorAllZeroCondition(50)
    condition.param_dict["zero_percentage_ge"] = 0
    assert condition.param_dict == {"zero_percentage_ge": 50.0}


@pytest.mark.parametrize(
    "kind", [TensorTooLargeCondition, TensorTooSmallCondition, TensorRangeCondition, TensorInitializationCondition]
)
def test_something_has_to_be_set(kind: type[Any]) -> None:
    with pytest.raises(DebuggerParamValueError, match="something to compare with"):
        kind()


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"range_percentage_lt": 1}, "range_start_inclusive and range_end_inclusive"),
        ({"range_percentage_gt": 1, "range_end_inclusive": 1}, "range_start_inclusive"),
        ({"range_percentage_gt": 1, "max_min_gt": 1, "range_start_inclusive": 1}, "range_end_inclusive"),
    ],
)
def test_a_percentage_needs_both_ends_of_the_range(given: dict[str, float], missing: str) -> None:
    with pytest.raises(DebuggerParamValueError, match="both ends") as caught:
        TensorRangeCondition(**given)
    assert caught.value.hint == f"set {missing}"


def test_the_ends_alone_decide_nothing() -> None:
    with pytest.raises(DebuggerParamValueError, match="something to compare with"):
        TensorRangeCondition(range_start_inclusive=0, range_end_inclusive=1)


@pytest.mark.parametrize("kind", SIGNATURES, ids=lambda kind: kind.__name__)
def test_values_are_numbers(kind: type[ConditionBase]) -> None:
    for name in SIGNATURES[kind][1]:
        for value in ("1", [1], None if SIGNATURES[kind][1][name] is not None else "none"):
            values = dict.fromkeys(SIGNATURES[kind][1], 1) | {name: value}
            with pytest.raises(DebuggerParamTypeError, match=name):
                kind(**values)


def test_the_old_conditions_take_numbers_of_any_size() -> None:
    assert TensorAllZeroCondition(101).param_dict == {"zero_percentage_ge": 101.0}
    assert TensorTooLargeCondition(abs_mean_gt=-1).param_dict == {"abs_mean_gt": -1.0}


def test_the_new_one_knows_its_ranges() -> None:
    with pytest.raises(DebuggerParamValueError, match="zero_percentage_ge must be 0 to 100"):
        TensorInitializationCondition(zero_percentage_ge=101)


@pytest.mark.parametrize("value", [float("nan"), np.float32("nan"), 10**400])
def test_a_threshold_that_nothing_compares_with_is_refused(value: float) -> None:
    for make in (TensorTooLargeCondition, TensorAllZeroCondition, TensorUnchangedCondition):
        with pytest.raises(DebuggerParamValueError) as caught:
            make(value)
        assert caught.value.hint
    assert TensorTooLargeCondition(max_gt=float("inf")).param_dict == {"max_gt": float("inf")}
