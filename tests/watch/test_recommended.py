"""The recommended watchpoints: which, on which nodes, and what they find on real dumps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tui_debugger.model import BIAS, Category, Hit, Verdict, Watchpoint
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source
from tui_debugger.watch.recommended import recommended
from tui_debugger.watch.text import format_watch

NODES = [
    (Category.WEIGHT, "Parameter"),
    (Category.OPTIMIZER_STATE, "Parameter"),
    (Category.GRADIENT, "MatMul"),
    (Category.GRADIENT, "Tanh"),
    (Category.ACTIVATION, "Sigmoid"),
    (Category.ACTIVATION, "MatMulBiasAddReluFusion"),
    (Category.ACTIVATION, "ReLU"),
    (Category.OTHER, "Mul"),
    (Category.CONSTANT, "Constant"),
]


def of(*nodes: tuple[Category, str], device: str = "") -> tuple[Watchpoint, ...]:
    category = np.array([int(c) for c, _ in nodes], np.uint8)
    return recommended(category, [kind for _, kind in nodes], device=device)


def test_the_set_has_mindinsight_s_names_and_order() -> None:
    found = of(*NODES)
    assert [w.name.removeprefix("recommend_").removesuffix("_watchpoint") for w in found] == [
        *("weight_change_too_large", "weight_not_changed"),
        *("gradient_vanishing", "tensor_overflow", "tensor_all_zero"),
        *("sigmoid_activation_range", "relu_activation_range"),
    ]
    values = {w.condition: dict(w.params) for w in found}
    assert values["weight_change_too_large"] == {"abs_mean_update_ratio_gt": 1, "epsilon": 0.1}
    assert values["weight_not_changed"] == {"rtol": 0, "atol": 0, "in_a_row": 3}
    assert values["gradient_vanishing"] == {"abs_mean_lt": 1e-12, "in_a_row": 3}
    assert values["tensor_all_zero"] == {"zero_percentage_ge": 100, "in_a_row": 3}
    assert {w.id for w in found} == {0}


def test_dead_and_saturated_activations() -> None:
    found = {
        w.name.split("_")[1]: w
        for w in of((Category.OTHER, "Tanh"), (Category.OTHER, "sigmoid"), (Category.OTHER, "ReLUV2"))
    }
    tanh, sigmoid, relu = (dict(found[name].params) for name in ("tanh", "sigmoid", "relu"))
    assert tanh == {
        "range_start_inclusive": math.tanh(-8.8),
        "range_end_inclusive": math.tanh(8.8),
        "range_percentage_lt": 0.1,
    }
    assert sigmoid["range_start_inclusive"] == pytest.approx(9.21e-8, rel=1e-2)
    assert sigmoid["range_end_inclusive"] == pytest.approx(1 - 9.21e-8, abs=1e-9)
    assert relu == {"range_start_inclusive": -1, "range_end_inclusive": 0, "range_percentage_gt": 99.9}
    assert "@ type=ReLUV2, -category=gradient" in format_watch(found["relu"])


def test_fused_operators_count_by_their_last_activation() -> None:
    kinds = ("MatMulBiasAddReluFusion", "MatMulLeakyReluFusion", "PReluFusion", "HSigmoidFusion", "SoftmaxGradFusion")
    (relu,) = [w for w in of(*[(Category.ACTIVATION, kind) for kind in kinds]) if w.condition == "activation_range"]
    assert [s.text for s in relu.selection.include] == ["MatMulBiasAddReluFusion"]


def test_gradients_of_activations_are_not_activations() -> None:
    assert not [w for w in of((Category.GRADIENT, "Tanh")) if w.condition == "activation_range"]


def test_a_group_without_nodes_has_no_watchpoint() -> None:
    assert of() == of((Category.CONSTANT, "Constant")) == ()
    assert [w.condition for w in of((Category.OTHER, "Mul"))] == ["tensor_overflow"]


def test_operator_overflow_is_offered_on_ascend_only() -> None:
    for device, offered in (("Ascend", True), ("GPU", False), ("CPU", False), ("", False)):
        assert ("operator_overflow" in {w.condition for w in of(*NODES, device=device)}) == offered


@pytest.mark.parametrize("name", ["fc1.bias", "fc1_bias", "bias", "ln.beta", "blocks.0.attn.k.bias", "lstm.bias_ih_l0"])
def test_biases_are_known_by_name(name: str) -> None:
    assert re.search(BIAS, name)


@pytest.mark.parametrize("name", ["fc1.weight", "bias.weight", "position_bias_table", "debias", "ln.gamma", "biases.w"])
def test_other_names_are_no_biases(name: str) -> None:
    assert not re.search(BIAS, name)


def test_optimizer_state_is_watched_for_overflow_only() -> None:
    for watchpoint in of(*NODES):
        everything = [s.text for s in watchpoint.selection.include] == ["tensor"]
        assert everything == (watchpoint.condition == "tensor_overflow")


Found = dict[str, set[str]]


@pytest.fixture(scope="module")
def findings(dumps: Callable[[str], Path]) -> Callable[[str, int], Found]:
    """(dump, step) -> conditions that found something, by node name."""
    sessions: dict[str, Session] = {}

    def find(name: str, step: int) -> Found:
        if name not in sessions:
            sessions[name] = Session(open_source(dumps(name)))
            sessions[name].watchpoints.clear()
            sessions[name].add_recommended()
        hits: tuple[Hit, ...] = sessions[name].check([(0, step)]).hits
        found: Found = {}
        for hit in hits:
            if hit.verdict is Verdict.FINDING:
                found.setdefault(hit.key.node, set()).update(result.condition for result in hit.results)
        return found

    return find


@pytest.mark.covering
@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_healthy_steps_of_a_real_transformer_are_silent(
    name: str, step: int, findings: Callable[[str, int], Found]
) -> None:
    assert findings(name, step) == {}


HEALTHY_STEPS = {
    "mindspore-2.0-multi-gan": (0, 1, 2),
    "mindspore-2.10-multi-gan": (0,),
    "mindspore-2.0-multi-flow": (0, 1, 2),
    "mindspore-2.10-multi-flow": (0, 1, 2),
    "mindspore-2.10-multi-order": (0,),
    "mindspore-2.0-multi-eval": (0, 2, 3, 7, 10, 11),
    "mindspore-2.10-multi-eval": (0, 6),
}
"""By dump the steps in which nothing is wrong: comparisons are all false there, and branches are not taken."""
FROZEN_STEPS = {
    "mindspore-2.0-multi-eval": (1, 4, 5, 8, 9),
    "mindspore-2.10-multi-eval": (1, 2, 3, 5),
    "mindspore-2.10-multi-order": (1, 2),
}
"""By dump the steps after which one weight is what it was before, because its learning rate is 0."""


@pytest.mark.parametrize(("name", "step"), [(name, step) for name, some in HEALTHY_STEPS.items() for step in some])
def test_healthy_steps_of_several_graphs_are_silent(
    name: str, step: int, findings: Callable[[str, int], Found]
) -> None:
    assert findings(name, step) == {}


@pytest.mark.parametrize(("name", "step"), [(name, step) for name, some in FROZEN_STEPS.items() for step in some])
def test_a_learning_rate_of_0_is_all_that_is_found(name: str, step: int, findings: Callable[[str, int], Found]) -> None:
    assert findings(name, step) == {"_backbone.fc2.weight": {"weight_not_changed"}}


@pytest.mark.covering
@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
@pytest.mark.parametrize("step", range(1, 6))
def test_only_what_is_wrong_is_named_in_a_healthy_training_with_two_faults(
    name: str, step: int, findings: Callable[[str, int], Found]
) -> None:
    conditions = {each for some in findings(name, step).values() for each in some}
    assert conditions == {"weight_not_changed", "activation_range", "tensor_all_zero", "gradient_vanishing"}


@pytest.mark.covering
@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
@pytest.mark.parametrize("step", range(1, 6))
def test_frozen_weights_and_a_dead_relu_are_named(name: str, step: int, findings: Callable[[str, int], Found]) -> None:
    found = findings(name, step)
    unchanged = {node for node, conditions in found.items() if "weight_not_changed" in conditions}
    assert unchanged == {"fc2.weight", "fc3.weight"}
    dead = [node for node, conditions in found.items() if {"activation_range", "tensor_all_zero"} <= conditions]
    assert [node.split("/")[-2] for node in dead] == ["act3-ReLU"]


@pytest.mark.covering
@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
@pytest.mark.parametrize("step", range(6))
def test_optimizer_state_and_frozen_learning_rates_are_not_named(
    name: str, step: int, findings: Callable[[str, int], Found]
) -> None:
    for node in findings(name, step):
        assert not re.match("accum|stat|moment|learning_rate", node)
        assert "optimizer" not in node
