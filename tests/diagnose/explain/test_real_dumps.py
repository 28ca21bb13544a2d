"""What the guidance says about the faults that were planted in the real dumps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.explain.training import LOG, LOSS, MATMUL, MATMUL_GRAD, RELU, RELU_GRAD, training, values
from tests.session.opened import opened
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import Guidance, GuidanceSection, Standing
from tui_debugger.model import Side, TensorKey, Verdict
from tui_debugger.session import Session

Explained = Callable[[str, int], Guidance]


def explained(session: Session, node: str, step: int) -> Guidance:
    hits = session.check(session.pairs(steps=[step])).hits.with_verdict(Verdict.FINDING)
    hit = next(hit for hit in hits if hit.key.node.endswith(node) and hit.key.side is Side.OUTPUT)
    return explain(session, hit.key, hit)


@pytest.fixture(scope="module")
def nan(dumps: Callable[[str], Path]) -> Explained:
    session = opened(dumps("mindspore-2.0-nan"))
    session.add_recommended()
    return lambda node, step: explained(session, node, step)


@pytest.fixture(scope="module")
def mlp(dumps: Callable[[str], Path]) -> Explained:
    session = opened(
        dumps("mindspore-2.0-mlp"),
        "GV abs_mean_lt=1e-12 @ category=gradient",
        "WCL abs_mean_update_ratio_gt=1 @ category=weight",
    )
    session.add_recommended()
    return lambda node, step: explained(session, node, step)


def section(guidance: Guidance, condition: str) -> GuidanceSection:
    return next(each for each in guidance.sections if condition in each.conditions)


def of_standing(found: GuidanceSection, standing: Standing) -> dict[str, str]:
    return {cause.title: cause.evidence for cause in found.causes if cause.standing is standing}


def likely(guidance: Guidance, condition: str) -> dict[str, str]:
    return of_standing(section(guidance, condition), Standing.LIKELY)


def test_the_logarithm_of_an_all_zero_sample(nan: Explained) -> None:
    guidance = nan("Log-op381", 3)
    assert section(guidance, "tensor_overflow").found == "1 -Inf among 4 elements"
    assert likely(guidance, "tensor_overflow") == {
        "the logarithm of 0": "1 of 4 elements of in:0 is 0, where the logarithm gives -Inf: that is every Inf of the "
        "output"
    }


def test_the_division_by_the_norm_of_an_all_zero_row(nan: Explained) -> None:
    evidence = likely(nan("Div-op385", 3), "tensor_overflow")["division by 0"]
    assert evidence.startswith("8 of 32 elements of the denominator in:1 are 0")
    assert "NaN without Inf means that 0 is divided by 0 there" in evidence
    assert "128 elements are divided by 0" in evidence


def test_a_node_that_got_it_says_so_and_how_inf_turned_into_nan(nan: Explained) -> None:
    guidance = nan("Mul-op383", 3)
    found = likely(guidance, "tensor_overflow")
    assert found["it does not start here: an input is bad already"] == "in:1 from ReduceSum-op382 (1 -Inf)"
    assert "0 × Inf is NaN" in found["Inf turns into NaN here"]
    first = guidance.sections[0].advice[0]
    assert first.view == "origin"
    assert first.arguments[:2] == ("origin", "--from")
    assert first.arguments[2].endswith("Mul-op383:out:0")
    assert first.arguments[3:] == ("--step", "3")


def test_a_weight_names_the_bad_gradient_and_later_the_step_at_which_it_turned(nan: Explained) -> None:
    at = likely(nan("head.weight", 3), "tensor_overflow")
    assert at == {
        "a bad gradient": "the gradient (MatMul-op445:0) that Adam-op572 used at step 3 has 64 NaN of 64",
    }
    later = nan("head.weight", 5)
    (evidence,) = likely(later, "tensor_overflow").values()
    assert evidence == "at step 4 it had 64 NaN already; it is bad since step 3"
    about = later.sections[0].advice[0].about
    assert about is not None
    assert about.step == 3


def test_what_nan_kept_from_being_judged_is_explained_as_nan(nan: Explained) -> None:
    (found,) = nan("head.weight", 3).sections
    assert found.conditions == ("tensor_overflow",)
    assert "not judged because of that: WCL, WNC" in found.facts


def test_a_weight_with_a_learning_rate_of_0(mlp: Explained) -> None:
    guidance = mlp("fc2.weight", 1)
    found = section(guidance, "weight_not_changed")
    assert found.conditions == ("weight_not_changed",)
    assert likely(guidance, "weight_not_changed") == {"the learning rate is too low": "SGD-op124 used 0"}
    assert of_standing(found, Standing.RULED_OUT)["the weight is frozen"] == "SGD-op124 (SGD) updates it"


def test_a_weight_without_a_gradient_is_followed_to_the_dead_layer(mlp: Explained) -> None:
    guidance = mlp("fc3.weight", 1)
    assert likely(guidance, "weight_not_changed")["the gradient is 0 or too small"] == (
        "all 512 elements of the gradient that SGD-op118 got are 0"
    )
    gradient = mlp("MatMul-op103", 1)
    assert "it came in small: a later layer lost it" in likely(gradient, "gradient_vanishing")
    dead = mlp("ReluGrad-op100", 1)
    assert likely(dead, "gradient_vanishing")["dead ReLU units"].startswith("all 256 elements of in:1")


def test_a_dead_layer_names_the_bias_and_counts_its_units(mlp: Explained) -> None:
    guidance = mlp("MatMulBiasAddReluFusion-op89", 0)
    found = section(guidance, "activation_range")
    assert found.conditions == ("tensor_all_zero", "activation_range")
    assert likely(guidance, "activation_range")["a bias that is negative throughout"].startswith(
        "in:2 (fc3.bias) is all -50"
    )
    assert "dead units (0 for every sample of this step): 16 of 16" in found.facts


def test_norms_of_the_gradients_are_told_layer_by_layer(mlp: Explained) -> None:
    facts = " ".join(section(mlp("ReluGrad-op100", 1), "gradient_vanishing").facts)
    assert "head.weight 0.079313, fc4.weight 1.551e-5, fc3.weight 0" in facts
    assert "steepest between fc4.weight and fc3.weight" in facts


def test_a_weight_that_changes_too_much_has_the_numbers_of_its_update(mlp: Explained) -> None:
    guidance = mlp("head.weight", 2)
    found = likely(guidance, "weight_change_too_large")
    possible = of_standing(section(guidance, "weight_change_too_large"), Standing.POSSIBLE)
    rate = possible["the learning rate is too high"]
    assert rate == (
        "SGD-op102 used 0.1: learning rate × mean |gradient| / mean |w| = 1.64; about 0.001 a step is usual"
    )
    assert found["the gradient is too large"] == "its norm, 0.83586, is 13 times that of the weight, 0.063382"
    assert found["the gradient jumped"] == "its norm went from 0.079313 to 0.83586 within a step"
    facts = " ".join(section(guidance, "weight_change_too_large").facts)
    assert "mean |Δw| / mean |w| = 0.011286 / 0.0068954 = 1.6367" in facts
    assert "learning rate 0.1, momentum 0" in facts


# -- in memory: where a dump has no such case ------------------------------------------------------


def key(node: str, step: int) -> TensorKey:
    return TensorKey(0, "kernel_graph_0", node, Side.OUTPUT, 0, step)


def hit_of(session: Session, node: str, step: int, watch: str) -> Guidance:
    from tests.session.opened import watch as add

    add(session, f"{watch} @ node={node}")
    (hit,) = session.check(session.pairs(steps=[step])).hits
    return explain(session, hit.key, hit)


def test_a_parameter_that_nothing_updates_is_frozen() -> None:
    from tests.diagnose.explain.training import OPS

    steps = {0: values(0), 1: values(1)}
    steps[1]["w"] = steps[0]["w"]
    session = training(steps, tuple(op for op in OPS if op.type != "Momentum"))
    guidance = hit_of(session, "w", 1, "WNC")
    assert list(likely(guidance, "weight_not_changed")) == ["the weight is frozen"]


def test_a_gradient_of_usual_size_that_moves_the_weight_far_blames_the_learning_rate() -> None:
    steps = {0: values(0), 1: values(1)}
    for by_name in steps.values():
        by_name["w"] = np.ones((4, 4), np.float32)
        by_name[MATMUL_GRAD] = np.full((4, 4), 0.5, np.float32)
        by_name["learning_rate"] = np.float32(0.8)
    steps[1]["w"] = np.full((4, 4), 0.6, np.float32)
    found = likely(hit_of(training(steps), "w", 1, "WCL abs_mean_update_ratio_gt=0.1"), "weight_change_too_large")
    assert list(found) == ["the learning rate is too high"]
    assert "= 0.4; about 0.001 a step is usual" in found["the learning rate is too high"]


def test_a_learning_rate_that_is_too_low_says_which_one_would_do() -> None:
    steps = {0: values(0), 1: values(1)}
    for by_name in steps.values():
        by_name["w"] = np.ones((4, 4), np.float32)
        by_name[MATMUL_GRAD] = np.full((4, 4), 0.1, np.float32)
        by_name["learning_rate"] = np.float32(1e-5)
    steps[1]["w"] = np.full((4, 4), 1 - 1e-6, np.float32)
    found = likely(hit_of(training(steps), "w", 1, "WCS"), "weight_change_too_small")
    assert found == {
        "the learning rate is too low": "it is 1e-5: learning rate × mean |gradient| / mean |w| = 1e-6, 1e-4 would "
        "take 0.001"
    }


def test_a_step_that_half_precision_cannot_hold_is_lost_in_rounding() -> None:
    steps = {0: values(0), 1: values(1)}
    for by_name in steps.values():
        by_name["w"] = np.full((4, 4), 2.0, np.float16)
        by_name[MATMUL_GRAD] = np.full((4, 4), 0.01, np.float16)
        by_name["learning_rate"] = np.float32(0.01)
    found = likely(hit_of(training(steps), "w", 1, "WNC"), "weight_not_changed")
    assert "the step is lost in the rounding of float16" in found


def test_a_step_with_a_bad_gradient_that_changed_nothing_was_skipped() -> None:
    steps = {0: values(0), 1: values(1)}
    steps[1]["w"] = steps[0]["w"]
    steps[1][MATMUL_GRAD] = np.full((4, 4), np.inf, np.float32)
    found = likely(hit_of(training(steps), "w", 1, "WNC"), "weight_not_changed")
    assert found["the step was skipped"].startswith("the gradient has 16 +Inf")


def test_data_that_is_bad_in_every_step_was_fed_in_bad_each_time() -> None:
    steps = {0: values(0), 1: values(1)}
    for by_name in steps.values():
        by_name["x"] = np.full((4, 4), np.nan, np.float32)
    found = likely(hit_of(training(steps), "x", 1, "TO"), "tensor_overflow")
    assert found == {
        "it came in bad from outside": "nothing in the graph writes this parameter",
    }


# -- what the dump does not know is not told ------------------------------------------------------


def bad_weight(*steps: int) -> Session:
    """A weight that is bad at these of the dumped steps 0, 1, 4, 5; at 2 and 3 nothing was dumped."""
    found = {step: values(step) for step in (0, 1, 4, 5)}
    for step in steps:
        found[step]["w"] = np.full((4, 4), np.nan, np.float32)
    return training(found)


@pytest.mark.parametrize(
    ("steps", "words", "where"),
    [
        ((1, 4, 5), "it is bad since step 1", "where it turned bad"),
        ((4, 5), "", "the earliest at which it is known to be bad"),
        ((0, 1, 4, 5), "it is bad since step 0 or longer: nothing is known from before", "the earliest at which"),
    ],
)
def test_since_when_a_weight_is_bad_is_said_as_far_as_steps_were_dumped(
    steps: tuple[int, ...], words: str, where: str
) -> None:
    (section, *_) = hit_of(bad_weight(*steps), "w", 5, "TO").sections
    assert section.causes[0].evidence == "at step 4 it had 16 NaN already" + (f"; {words}" if words else "")
    assert where in section.advice[0].text


def test_a_weight_that_turned_bad_between_dumped_steps_turned_bad_there() -> None:
    found = {step: values(step) for step in (0, 4, 5, 6)}
    for step in (4, 5, 6):
        found[step]["w"] = np.full((4, 4), np.nan, np.float32)
    (section, *_) = hit_of(training(found), "w", 6, "TO").sections
    assert "it turned bad after step 0, at step 4 at the latest" in section.causes[0].evidence


def test_a_finite_weight_some_steps_ago_does_not_rule_out_that_it_was_bad_before() -> None:
    causes = {cause.title: cause for cause in hit_of(bad_weight(4, 5), "w", 4, "TO").sections[0].causes}
    assert causes["it was bad before"].standing is Standing.UNKNOWN
    assert "at step 1 all 16 elements were finite; the steps in between were not dumped" in str(causes)
    causes = {cause.title: cause for cause in hit_of(bad_weight(1, 4), "w", 1, "TO").sections[0].causes}
    assert causes["it was bad before"].standing is Standing.RULED_OUT


@pytest.mark.parametrize(("before", "told"), [(0, True), (5, False)])
def test_the_change_over_several_steps_is_not_laid_on_the_last_gradient(before: int, *, told: bool) -> None:
    steps = {before: values(0), before + (1 if told else 3): values(1)}
    found = hit_of(training(steps), "w", max(steps), "WCL abs_mean_update_ratio_gt=0.1")
    assert any("momentum, weight decay" in cause.title for cause in found.sections[0].causes) == told


@pytest.mark.parametrize(("step", "blameless"), [(0, True), (7, False)])
def test_a_dead_layer_in_a_dump_that_begins_late_may_be_the_work_of_an_update(step: int, *, blameless: bool) -> None:
    dead = values(step)
    dead[MATMUL], dead[RELU] = np.full((4, 4), -1.0, np.float32), np.zeros((4, 4), np.float32)
    (section, *_) = hit_of(training({step: dead}), RELU, step, "TZ").sections
    assert ("no update of this run is to blame" in str(section)) == blameless
    assert ("how it was at the step before is not known" in str(section)) != blameless


def test_a_large_denominator_is_nothing_that_came_in_large() -> None:
    from tests.sources.memory import Op

    ops = (Op("x", "Data"), Op("y", "Data"), Op("d", "Div", (("x", 0), ("y", 0))))
    x, y = np.full(3, 50.0, np.float32), np.full(3, 1e3, np.float32)
    found = likely(hit_of(training({0: {"x": x, "y": y, "d": x / y}}, ops), "d", 0, "TL max_gt=0"), "tensor_too_large")
    assert found["it came in large already"].startswith("in:0 from x has mean |x| 50")


def test_inf_divided_by_inf_is_no_product() -> None:
    from tests.sources.memory import Op

    ops = (Op("x", "Data"), Op("y", "Data"), Op("d", "Div", (("x", 0), ("y", 0))))
    x = np.array([np.inf, 1.0], np.float32)
    for y in (np.array([np.inf, 0.0], np.float32), np.array([0.0, 2.0], np.float32)):
        with np.errstate(all="ignore"):
            made = x / y
        made[0] = np.nan
        found = likely(hit_of(training({0: {"x": x, "y": y, "d": made}}, ops), "d", 0, "TO"), "tensor_overflow")
        assert "0 × Inf" not in str(found)
        assert ("Inf / Inf is NaN" in str(found)) == bool(np.isinf(y).any())


def test_a_saturated_activation_counts_its_ends() -> None:
    from tests.sources.memory import Op
    from tui_debugger.model import Category

    ops = (Op("x", "Parameter", category=Category.PARAMETER), Op("t", "Tanh", (("x", 0),), Category.ACTIVATION))
    wide = np.array([[-20.0, 20.0], [30.0, 0.5]], np.float32)
    session = training({0: {"x": wide, "t": np.tanh(wide)}}, ops)
    guidance = hit_of(session, "t", 0, "AR range_start_inclusive=-0.9 range_end_inclusive=0.9 range_percentage_lt=50")
    found = section(guidance, "activation_range")
    assert "its argument is too large" in likely(guidance, "activation_range")
    assert "saturated (within 0.001 of an end): 25 % at -1, 50 % at 1" in " ".join(
        fact.replace("25.0", "25").replace("50.0", "50") for fact in found.facts
    )


def test_headroom_of_half_precision_is_told() -> None:
    steps = {0: values(0)}
    steps[0][MATMUL] = np.array([[60000.0, 1.0]], np.float16)
    guidance = hit_of(training(steps), MATMUL, 0, "TL max_gt=50000")
    found = likely(guidance, "tensor_too_large")
    assert found["it is about to overflow float16"] == "60000 is 91.6 % of 65504"


def test_what_statistics_alone_tell_is_told_and_the_rest_is_said_to_be_missing() -> None:
    from tests.diagnose.explain.training import OPS
    from tests.sources.memory import MemorySource, Recorded
    from tui_debugger.stats.blocks import measure_stats

    array = np.array([0.0, 1.0], np.float32)
    tensors = {
        (RELU, Side.OUTPUT, 0): Recorded(measure_stats(array)[0], shape=(2,)),
        (LOG, Side.OUTPUT, 0): Recorded(measure_stats(np.array([-np.inf, 0.0], np.float32))[0], shape=(2,)),
    }
    session = Session(MemorySource({0: {0: tensors}}, ops=OPS))
    guidance = explain(session, key(LOG, 0))
    assert list(likely_first(guidance)) == ["the logarithm of 0"]
    assert "the values: only statistics were dumped" in guidance.missing


def likely_first(guidance: Guidance) -> dict[str, str]:
    return of_standing(guidance.sections[0], Standing.LIKELY)


def test_a_gradient_whose_inputs_were_not_dumped_says_so() -> None:
    steps = {0: values(0)}
    for name in (LOSS, RELU):
        steps[0].pop(name)
    guidance = hit_of(training(steps), RELU_GRAD, 0, "GV abs_mean_lt=100")
    found = section(guidance, "gradient_vanishing")
    assert of_standing(found, Standing.UNKNOWN)
    assert any("in:0, in:1" in text for text in guidance.missing)
