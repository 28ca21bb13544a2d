"""Every condition has guidance, whose sentences hold the numbers of the hit and nothing left to be filled in."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.diagnose.explain.training import MATMUL, MATMUL_GRAD, NAMES, RELU, Array, training, values
from tests.thorough import examples
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import Guidance, Standing, lines
from tui_debugger.model import (
    ErrorBits,
    Hit,
    NodeKind,
    NodeSelection,
    NodeSelector,
    Side,
    TensorKey,
    Verdict,
    WatchResult,
)
from tui_debugger.session import Session
from tui_debugger.text.numbers import number
from tui_debugger.watch.condition_table import CONDITIONS

ALWAYS: dict[str, dict[str, float | str]] = {
    "expression": {"expression": "max - min >= 0 and prev.count > 0"},
    "operator_overflow": {},
    "tensor_all_zero": {"zero_percentage_ge": 0},
    "tensor_overflow": {},
    "tensor_range": {"range_start_inclusive": -0.5, "range_end_inclusive": 0.5, "range_percentage_lt": 100},
    "tensor_too_large": {"abs_mean_gt": 0.001},
    "tensor_too_small": {"abs_mean_lt": 1e30},
    "weight_change_too_large": {"abs_mean_update_ratio_gt": 0},
    "weight_change_too_small": {"abs_mean_update_ratio_lt": 1e9},
    "weight_initialization": {"zero_percentage_ge": 0},
    "weight_not_changed": {"rtol": 1e9},
    "weight_overflow": {},
    "weight_too_large": {"max_gt": -1e30},
    "weight_too_small": {"max_lt": 1e30},
    "activation_range": {"max_min_gt": 0},
    "gradient_exploding": {},
    "gradient_too_large": {"min_gt": -1e30},
    "gradient_vanishing": {"mean_lt": 1e30},
}
"""Parameters with which every healthy tensor hits."""
TARGETS = {"tensor": MATMUL, "weight": "w", "activation": RELU, "gradient": MATMUL_GRAD}
HOLES = re.compile(r"\bNone\b|\bnan\b|\binf\b|[{}]|  ")


def sentences(guidance: Guidance) -> list[str]:
    found = [guidance.node_type, *guidance.missing]
    for section in guidance.sections:
        found += [section.title, section.found, *section.facts]
        found += [text for cause in section.causes for text in (cause.title, cause.evidence)]
        found += [advice.text for advice in section.advice]
    return found


def check_filled(guidance: Guidance) -> None:
    """Nothing empty, nothing left to be filled in; causes in the order of what speaks for them."""
    assert guidance.sections
    for text in sentences(guidance):
        assert text.strip()
        assert not HOLES.search(text), text
        assert "–" not in text, text
    for section in guidance.sections:
        standings = [cause.standing for cause in section.causes]
        assert standings == sorted(standings)
        assert all(section.conditions) or not section.conditions
    assert all(line.wrapped(60) for line in lines(guidance))


def watch(session: Session, condition: str, nodes: tuple[str, ...]) -> None:
    selection = NodeSelection(tuple(NodeSelector(NodeKind.NODE, name) for name in nodes))
    session.watchpoints.add(condition, ALWAYS[condition], selection)


def hits_of(session: Session, step: int) -> list[Hit]:
    return list(session.check(session.pairs(steps=[step])).hits.with_verdict(Verdict.FINDING))


def test_no_condition_is_missing() -> None:
    assert set(ALWAYS) == set(CONDITIONS)


@pytest.mark.parametrize("condition", sorted(set(CONDITIONS) - {"operator_overflow"}))
def test_a_hit_of_every_condition_is_explained_with_its_numbers(condition: str) -> None:
    steps = {0: values(0), 1: values(1)}
    target = TARGETS[CONDITIONS[condition].target]
    overflow = not CONDITIONS[condition].params
    if overflow:
        steps[1][target] = np.array([[np.inf, 1], [np.nan, 2]], np.float32)
    session = training(steps)
    if condition == "weight_initialization":  # initial values are what the first consumer read
        session = with_input(steps)
    watch(session, condition, (target,))
    (hit,) = hits_of(session, 0 if condition == "weight_initialization" else 1)
    guidance = explain(session, hit.key, hit)
    check_filled(guidance)
    (section,) = guidance.sections
    assert section.conditions == (condition,)
    assert section.title == CONDITIONS[condition].title
    assert section.causes
    assert section.advice
    assert guidance.finding
    if overflow:
        assert "1 NaN and 1 +Inf among 4 elements" in section.found
    for param in hit.results[0].params:
        if param.hit and param.actual is not None:
            assert number(param.actual) in section.found


def with_input(steps: dict[int, dict[str, Array]]) -> Session:
    from tests.diagnose.explain.training import OPS
    from tests.sources.memory import MemorySource

    tensors: dict[int, dict[tuple[str, Side, int], Any]] = {
        step: {(name, Side.OUTPUT, 0): np.asarray(array) for name, array in by_name.items()}
        for step, by_name in steps.items()
    }
    tensors[0][MATMUL, Side.INPUT, 1] = np.full((4, 4), 0.5, np.float32)
    return Session(MemorySource({0: tensors}, ops=OPS))


def test_what_a_device_recorded_is_explained_although_no_value_tells() -> None:
    session = training({0: values()})
    key = TensorKey(0, "kernel_graph_0", MATMUL, Side.OUTPUT, 0, 0)
    result = WatchResult(1, "operator_overflow", Verdict.FINDING)
    guidance = explain(session, key, Hit(key, 5, (result,), (0, 0)))
    check_filled(guidance)
    assert guidance.sections[0].conditions == ("operator_overflow",)
    assert "recorded" in guidance.sections[0].found


@pytest.mark.parametrize("bits", [bit for bit in ErrorBits if bit])
def test_every_reason_that_nothing_was_compared_is_explained(bits: ErrorBits) -> None:
    session = training({0: values(0), 1: values(1)})
    key = TensorKey(0, "kernel_graph_0", "w", Side.OUTPUT, 0, 1)
    result = WatchResult(1, "weight_not_changed", Verdict.CANNOT_JUDGE, bits)
    guidance = explain(session, key, Hit(key, 1, (result,), (0, 0)))
    check_filled(guidance)
    section = guidance.sections[0]
    assert section.found.startswith("WNC could not be judged: ")
    assert [cause.standing for cause in section.causes] == [Standing.LIKELY]
    assert section.advice


ODD = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 6e-8, 65504.0, -65504.0]


def floats(width: Any, *more: float) -> st.SearchStrategy[float]:
    """Numbers that a type holds, the odd ones often."""
    return st.one_of(st.sampled_from([*ODD, *more]), st.floats(-1024, 1024, width=width)).map(
        lambda value: float(np.float16(value)) if width == 16 else float(np.float32(value))
    )


ARRAYS = st.one_of(
    hnp.arrays(np.float16, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=floats(16)),
    hnp.arrays(
        np.float32, hnp.array_shapes(min_dims=0, max_dims=3, max_side=4), elements=floats(32, 1e-30, 3e38, -3e38)
    ),
    hnp.arrays(np.int32, hnp.array_shapes(max_dims=2, max_side=4), elements=st.integers(-5, 5)),
)


@st.composite
def runs(draw: st.DrawFn) -> dict[int, dict[str, Array]]:
    """Two or three steps of the training with any values, and some that were not dumped."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    kinds = draw(st.sampled_from([(0, 1), (0, 2), (0, 1, 2)]))
    steps: dict[int, dict[str, Array]] = {}
    for step in kinds:
        base: dict[str, Array] = values(step)
        for name in names:
            if draw(st.booleans()):
                base.pop(name)
            else:
                base[name] = draw(ARRAYS)
        steps[step] = base
    return steps


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(steps=runs(), conditions=st.lists(st.sampled_from(sorted(ALWAYS)), min_size=1, max_size=3, unique=True))
@np.errstate(all="ignore")
def test_whatever_the_values_are_every_sentence_is_whole(
    steps: dict[int, dict[str, Array]], conditions: list[str]
) -> None:
    session = training(steps)
    for condition in conditions:
        watch(session, condition, NAMES)
    for step in steps:
        for hit in session.check(session.pairs(steps=[step])).hits:
            guidance = explain(session, hit.key, hit)
            check_filled(guidance)
            bad = hit.stats is not None and hit.stats.bad and hit.verdict is not Verdict.BY_DESIGN
            assert guidance.finding == (hit.verdict is Verdict.FINDING or bad)
            named = {condition for section in guidance.sections for condition in section.conditions}
            assert named <= {result.condition for result in hit.results}


@examples(25, suppress_health_check=[HealthCheck.too_slow])
@given(steps=runs())
@np.errstate(all="ignore")
def test_a_tensor_that_nobody_checked_is_looked_at_for_nan_and_inf(steps: dict[int, dict[str, Array]]) -> None:
    session = training(steps)
    for step, by_name in steps.items():
        for name in NAMES:
            key = TensorKey(0, "kernel_graph_0", name, Side.OUTPUT, 0, step)
            guidance = explain(session, key)
            check_filled(guidance)
            array = by_name.get(name)
            bad = array is not None and array.dtype.kind == "f" and not bool(np.isfinite(array).all())
            assert guidance.finding == bad
            if array is not None and not bad:
                assert guidance.sections[0].title == "No NaN or Inf"
            if array is None:
                assert guidance.sections[0].title == "Nothing is known about its values"
