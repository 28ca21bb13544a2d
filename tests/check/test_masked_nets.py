"""Infinities by design in every kind of net that has some, beside its bad twin: as a dump and as a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest

from tests.check.masked_nets import (
    INF,
    LOWEST,
    SPELLINGS,
    Array,
    Net,
    attend,
    causal,
    logsumexp,
    rows_of,
    softmax,
)
from tests.session.opened import watch
from tests.sources.memory import Key, MemorySource, Value
from tui_debugger.causes.by_design_steps import by_design_text
from tui_debugger.model import Side
from tui_debugger.session import Session

rng = np.random.default_rng(0)
X: Final = rng.normal(size=(4, 4)).astype(np.float32)
KEEP: Final = causal(4)
MASK: Final = np.where(KEEP, np.float32(0), -INF)


@dataclass(frozen=True)
class Case:
    """A net with what a check of it says.

    Attributes:
        make: builds the net.
        findings: nodes with a finding.
        origins: those of them that are origins.
    """

    make: Callable[[Net, str], object]
    findings: frozenset[str]
    origins: frozenset[str]


CASES: dict[str, Case] = {}


def case(findings: str = "", origins: str = "") -> Callable[[Callable[[Net, str], object]], None]:
    """Adds a case: a net that is built on the scores ``Bmm`` of the input ``x``."""

    def add(make: Callable[[Net, str], object]) -> None:
        CASES[make.__name__] = Case(make, frozenset(findings.split()), frozenset(origins.split()))

    return add


def net_of(make: Callable[[Net, str], object]) -> Net:
    net = Net()
    net.fed("x", X)
    make(net, net.op("Bmm", ["x"], X, name="scores"))
    return net


# -- masks that an attention is given -----------------------------------------------------------------


@case()
def where_keeps_or_writes(net: Net, scores: str) -> None:
    hole = net.op("ScalarTensor", [], np.float32(-INF))
    attend(net, net.op("Where", [scores, scores, hole], np.where(KEEP, X, -INF)), X)


@case("ScalarTensor Where Mean", "Mean")
def where_and_the_loss_is_infinite(net: Net, scores: str) -> None:
    hole = net.op("ScalarTensor", [], np.float32(-INF))
    written = net.op("Where", [scores, scores, hole], np.where(KEEP, X, -INF))
    net.op("Mean", [written], np.float32(-INF))


@case("overflow ScalarTensor Where", "overflow")
def where_keeps_an_overflow(net: Net, scores: str) -> None:
    bad = X.copy()
    bad[0, 0] = INF
    overflow = net.op("Exp", [scores], bad, name="overflow")
    hole = net.op("ScalarTensor", [], np.float32(-INF))
    written = net.op("Where", [scores, overflow, hole], np.where(KEEP, bad, -INF))
    net.op("Softmax", [written], np.ones((4, 4), np.float32))


@case()
def a_full_mask_cut_to_a_triangle(net: Net, scores: str) -> None:
    full = net.op("Full", [], np.full((4, 4), -INF))
    triangle = net.op("Triu", [full], MASK)
    attend(net, net.op("Add", [scores, triangle], X + MASK), X)


@case("Softmax out Full Triu Add", "Softmax")
def a_row_that_is_masked_as_a_whole(net: Net, scores: str) -> None:
    mask = MASK.copy()
    mask[2] = -INF
    full = net.op("Full", [], np.full((4, 4), -INF))
    triangle = net.op("Triu", [full], mask)
    attend(net, net.op("Add", [scores, triangle], X + mask), X)


@case()
def alibi_slopes_beside_the_mask(net: Net, scores: str) -> None:
    slopes = net.op("Mul", [], np.arange(4, dtype=np.float32))
    full = net.op("Full", [], np.full((4, 4), -INF))
    mask = net.op("Add", [net.op("Triu", [full], MASK), slopes], MASK + net.value(slopes))
    attend(net, net.op("Add", [scores, mask], X + net.value(mask), name="biased"), X)


@case()
def a_sliding_window_of_two_masks(net: Net, scores: str) -> None:
    past = net.op("MaskedFill", [scores, scores], np.where(np.tri(4, k=-2, dtype=bool), -INF, X))
    future = net.op("MaskedFill", [past, scores], np.where(KEEP, net.value(past), -INF))
    attend(net, future, X)


@case()
def key_padding_and_causal_masks_together(net: Net, scores: str) -> None:
    one = net.op("MaskedFill", [scores, scores], MASK)
    padding = np.where(np.arange(4) < 3, np.float32(0), -INF) + np.zeros((4, 4), np.float32)
    two = net.op("MaskedFill", [scores, scores], padding)
    both = net.op("Add", [one, two], MASK + padding)
    attend(net, net.op("Add", [scores, both], X + MASK + padding, name="biased"), X, "SafeSoftmax")


@case()
def the_mask_of_scaled_dot_product_attention(net: Net, scores: str) -> None:
    zero, hole = net.op("ScalarTensor", [], np.float32(0)), net.op("ScalarTensor", [], np.float32(-INF))
    bias = net.op("Where", [zero, zero, hole], MASK)
    attend(net, net.op("Add", [scores, bias], X + MASK), X, "SafeSoftmax")


@case("LiftFresh", "LiftFresh")
def data_with_inf_that_an_activation_makes_finite(net: Net, _: str) -> None:
    net.op("Relu", [net.op("LiftFresh", [], rows_of([[1, -np.inf]]))], rows_of([[1, 0]]))


@case()
def an_attention_that_is_one_operator(net: Net, scores: str) -> None:
    mask = net.op("MaskedFill", [scores, scores], MASK)
    net.op("ScaledDotProductFlashAttentionForCpu", [scores, scores, scores, mask], X)


@case()
def a_tensor_of_one_number_that_the_program_wrote(net: Net, scores: str) -> None:
    hole = net.op("LiftFresh", [], np.float32(-INF))
    attend(net, net.op("IndexPut", [scores, hole], np.where(KEEP, X, -INF)), X)


@case("LiftFresh Square", "LiftFresh")
def data_with_inf_that_the_program_wrote(net: Net, _: str) -> None:
    fresh = net.op("LiftFresh", [], rows_of([[1, -np.inf]]))
    net.op("Square", [fresh], rows_of([[1, np.inf]]))


# -- masks that a model keeps in a buffer ------------------------------------------------------------


@case()
def a_part_of_a_kept_mask_is_added(net: Net, scores: str) -> None:
    kept = net.fed("mask", np.where(causal(8), np.float32(0), -INF))
    part = net.op("Slice", [net.op("Slice", [kept], net.value(kept)[:4])], MASK)
    net.op("Detach", [part], MASK)  # nothing reads what that shows
    attend(net, net.op("Add", [scores, part], X + MASK), X)


@case("mask Slice Add Square", "mask")
def a_kept_mask_goes_on_into_the_loss(net: Net, scores: str) -> None:
    kept = net.fed("mask", np.where(causal(8), np.float32(0), -INF))
    part = net.op("Slice", [kept], MASK)
    masked = net.op("Add", [scores, part], X + MASK)
    attend(net, masked, X)
    net.op("Square", [part], MASK**2)


@case()
def a_kept_mask_says_which_scores_are_masked(net: Net, scores: str) -> None:
    kept = net.fed("mask", MASK)
    low = net.op("Lt", [kept], MASK < 0)
    attend(net, net.op("MaskedFill", [scores, low], np.where(KEEP, X, np.float32(-1e4))), X)


@case("data", "data")
def a_comparison_of_data_is_computed_with(net: Net, scores: str) -> None:
    data = net.fed("data", np.where(X > 0, X, -INF))
    positive = net.op("Gt", [data], net.value(data) > 0)
    net.op("Mul", [scores, net.op("ToCopy", [positive], (X > 0).astype(np.float32))], np.maximum(X, 0))


@case()
def a_kept_mask_is_converted_to_a_type_that_ends_earlier(net: Net, scores: str) -> None:
    kept = net.fed("mask", np.where(KEEP, np.float32(0), np.finfo(np.float32).min))
    half = X.astype(np.float16)
    small = net.op("ToCopy", [kept], MASK.astype(np.float16))
    attend(net, net.op("Add", [net.op("ToCopy", [scores], half), small], half + net.value(small)), half)


@case("ToCopy", "ToCopy")
def scores_overflow_when_they_are_converted(net: Net, scores: str) -> None:
    large = net.op("Mul", [scores], np.where(KEEP, X, np.float32(-1e9)))
    attend(net, net.op("ToCopy", [large], np.where(KEEP, X, -INF).astype(np.float16)), X.astype(np.float16))


@case()
def a_product_is_added_to_a_kept_mask(net: Net, scores: str) -> None:
    kept = net.fed("mask", MASK)
    attend(net, net.op("Baddbmm", [kept, scores, scores], X @ X + MASK), X)


@case("mask Baddbmm", "Baddbmm")
def a_product_overflows_beside_a_kept_mask(net: Net, scores: str) -> None:
    kept = net.fed("mask", MASK)
    out = X @ X + MASK
    out[3] = -INF
    out[3, 0] = 0
    attend(net, net.op("Baddbmm", [kept, scores, scores], out), X)


@case("mask Baddbmm out", "mask")
def a_kept_mask_is_a_factor(net: Net, scores: str) -> None:
    kept = net.fed("mask", np.full((4, 4), -INF))
    net.op("Baddbmm", [scores, kept, scores], np.full((4, 4), -INF))
    net.op("Mean", ["Baddbmm"], np.float32(-INF), name="out")


# -- choosing: top-k, top-p, experts --------------------------------------------------------------------


@case()
def only_the_best_are_kept(net: Net, scores: str) -> None:
    best = net.op("Topk", [scores], np.sort(X)[:, 2:])
    full = net.op("FullLike", [scores], np.full((4, 4), -INF))
    kept = np.where(np.argsort(np.argsort(X)) >= 2, X, -INF)
    attend(net, net.op("Scatter", [full, best, best], kept), X)


@case("FullLike Scatter Sum", "Sum")
def only_the_best_are_kept_and_summed_up(net: Net, scores: str) -> None:
    best = net.op("Topk", [scores], np.sort(X)[:, 2:])
    full = net.op("FullLike", [scores], np.full((4, 4), -INF))
    kept = net.op("Scatter", [full, best, best], np.where(X > 0, X, -INF))
    net.op("Sum", [kept], np.float32(-INF))


@case()
def nucleus_sampling_sorts_what_is_masked(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    ordered = net.op("Sort", [filled], np.sort(np.where(KEEP, X, -INF)))
    weights = net.op("Softmax", [ordered], softmax(net.value(ordered)))
    net.op("Cumsum", [weights], net.value(weights).cumsum(-1))
    net.op("Multinomial", [net.op("Softmax", [filled], softmax(net.value(filled)), name="chances")], np.ones(4))


@case()
def experts_of_groups_that_are_not_chosen(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(np.arange(4) < 2, X, -INF))
    net.op("Topk", [filled], X[:, :2])


@case("MaskedFill Topk Sum", "Sum")
def more_experts_than_are_left(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(np.arange(4) < 2, X, -INF))
    best = net.op("Topk", [filled], np.where(np.arange(3) < 2, X[:, :3], -INF))
    net.op("Sum", [best], np.float32(-INF))


# -- logarithms of probabilities ------------------------------------------------------------------------


@case()
def the_logarithm_of_a_masked_softmax_is_picked_from(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    with np.errstate(divide="ignore"):
        logs = net.op("LogSoftmax", [filled], np.log(softmax(net.value(filled))))
    net.op("NllLossForward", [logs], np.float32(1))
    net.op("Gather", [logs], net.value(logs)[:, :1])
    net.op("LogSoftmaxBackwardData", [logs, scores], X, backward=True)


@case("MaskedFill LogSoftmax NllLossForward", "NllLossForward")
def the_target_is_a_masked_class(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    with np.errstate(divide="ignore"):
        logs = net.op("LogSoftmax", [filled], np.log(softmax(net.value(filled))))
    net.op("NllLossForward", [logs], INF)


@case()
def logsumexp_and_its_backward_pass(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    total = net.op("Logsumexp", [filled], logsumexp(net.value(filled)))
    back = net.op("Sub", [filled, total], net.value(filled) - net.value(total)[:, None], backward=True)
    net.op("Exp", [back], np.exp(net.value(back)), backward=True)


@case()
def paths_that_cannot_be_in_a_crf(net: Net, scores: str) -> None:
    start = np.full(4, -INF)
    start[0] = 0
    alpha = net.op("IndexPut", [net.op("Full", [], np.full(4, -INF))], start)
    shifted = np.roll(start, 1)
    other = net.op("Roll", [alpha], shifted)
    with np.errstate(invalid="ignore"):
        both = np.where(np.isfinite(start) | np.isfinite(shifted), np.float32(0), -INF)
    both = net.op("Logaddexp", [alpha, other], both)
    emitted = net.op("Add", [both, scores], net.value(both) + X[0])
    net.op("Logsumexp", [emitted], np.float32(1))


@case("Full IndexPut Logsumexp Neg Mean", "Mean")
def no_path_is_left_in_a_crf(net: Net, _: str) -> None:
    alpha = net.op("IndexPut", [net.op("Full", [], np.full(4, -INF))], np.full(4, -INF))
    total = net.op("Logsumexp", [alpha], np.float32(-INF))
    net.op("Mean", [net.op("Neg", [total], INF)], INF)


@case()
def a_categorical_distribution_of_masked_logits(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    total = net.op("Logsumexp", [filled], logsumexp(net.value(filled)))
    logits = net.op("Sub", [filled, total], net.value(filled) - net.value(total)[:, None])
    net.op("Gather", [net.op("Slice", [net.op("Expand", [logits], net.value(logits))], X[:, :1])], X[:, :1])
    net.op("Clamp", [logits], np.clip(net.value(logits), -3e38, None))
    net.op("Eq", [logits, logits], KEEP)


# -- maxima --------------------------------------------------------------------------------------------


@case()
def a_maximum_over_what_is_not_masked(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    net.op("Amax", [filled], net.value(filled).max(-1))


@case()
def pooling_pads_with_minus_inf(net: Net, scores: str) -> None:
    padded = net.op("ConstantPadNd", [scores], np.pad(X, 1, constant_values=-INF))
    net.op("MaxPool2dWithIndices", [padded], X[:3, :3])
    net.op("MaxPool2dWithIndicesBackward", [padded, scores], X, backward=True)


@case("ConstantPadNd AvgPool2d", "AvgPool2d")
def averages_over_what_is_padded_with_minus_inf(net: Net, scores: str) -> None:
    padded = net.op("ConstantPadNd", [scores], np.pad(X, 1, constant_values=-INF))
    net.op("AvgPool2d", [padded], np.full((3, 3), -INF))


@case()
def a_running_maximum(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP[:, ::-1], X, -INF))
    running = net.op("Cummax", [filled], np.maximum.accumulate(net.value(filled), axis=-1))
    net.op("Amax", [running], net.value(running).max(-1))


# -- what a selection leaves out ------------------------------------------------------------------------


def logs_of_distances() -> Array:
    with np.errstate(divide="ignore"):
        return np.log(np.arange(6, dtype=np.float32))


@case()
def buckets_of_distances(net: Net, scores: str) -> None:
    logs = net.op("Log", [net.op("Arange", [], np.arange(6, dtype=np.float32))], logs_of_distances())
    net.op("Add", [scores, net.op("Where", [logs], np.where(np.arange(6) > 0, net.value(logs), 0))], np.float32(1))


@case("Log Add Softmax", "Log")
def the_logarithm_of_0_is_used(net: Net, scores: str) -> None:
    logs = net.op("Log", [net.op("Arange", [], np.arange(6, dtype=np.float32))], logs_of_distances())
    bad = net.op("Add", [scores, logs], net.value(logs))
    net.op("Softmax", [bad], np.full(6, np.nan, np.float32))


@case("Log", "Log")
def the_logarithm_of_0_is_weighed(net: Net, _: str) -> None:
    logs = net.op("Log", [net.op("Arange", [], np.arange(6, dtype=np.float32))], logs_of_distances())
    net.op("Softmax", [logs], np.ones(6, np.float32))


@case("Log Mean", "Log")
def the_logarithm_of_0_is_left_out_and_used(net: Net, _: str) -> None:
    logs = net.op("Log", [net.op("Arange", [], np.arange(6, dtype=np.float32))], logs_of_distances())
    net.op("Where", [logs], np.where(np.arange(6) > 0, net.value(logs), 0))
    net.op("Mean", [logs], np.float32(-INF))


@case()
def buckets_of_distances_as_integers(net: Net, _: str) -> None:
    logs = net.op("Log", [net.op("Arange", [], np.arange(6, dtype=np.float32))], logs_of_distances())
    scaled = net.op("Mul", [net.op("Div", [logs], net.value(logs) / 2)], net.value(logs))
    whole = np.where(np.isfinite(net.value(logs)), net.value(logs), -(2.0**31)).astype(np.int64)
    number = net.op("Add", [net.op("ToCopy", [scaled], whole)], whole + 4)
    small = net.op("Minimum", [number], np.minimum(whole + 4, 7))
    net.op("Where", [number, small], np.where(np.arange(6) > 0, net.value(small), 0))


@case("Log Div Mul", "Log")
def the_logarithm_of_0_is_an_index(net: Net, _: str) -> None:
    logs = net.op("Log", [net.op("Arange", [], np.arange(6, dtype=np.float32))], logs_of_distances())
    scaled = net.op("Mul", [net.op("Div", [logs], net.value(logs) / 2)], net.value(logs))
    net.op("Embedding", [net.op("ToCopy", [scaled], np.arange(6))], X)


@case()
def a_division_by_0_is_overwritten(net: Net, _: str) -> None:
    degree = net.op("Relu", [], rows_of([[0, 1, 2]]))
    with np.errstate(divide="ignore"):
        power = net.op("Pow", [degree], net.value(degree) ** -0.5)
    net.op("Eq", [power], np.isinf(net.value(power)))
    net.op("MaskedFill", [power, power], np.where(np.isinf(net.value(power)), 0, net.value(power)))


@case()
def a_mask_is_the_logarithm_of_true_and_false(net: Net, scores: str) -> None:
    kept = np.arange(4) < 3
    ones = net.op("ToCopy", [net.op("Gt", ["x"], kept)], kept.astype(np.float32))
    with np.errstate(divide="ignore"):
        logs = net.op("Log", [ones], np.log(net.value(ones)))
    attend(net, net.op("Add", [scores, logs], X + net.value(logs)), X)


# -- what stands in data ---------------------------------------------------------------------------------


def missing() -> Array:
    values = X.copy()
    values[1, 2] = np.nan
    return values


@case()
def missing_values_are_left_out(net: Net, _: str) -> None:
    fresh = net.op("LiftFresh", [], missing())
    where = net.op("Isnan", [fresh], np.isnan(net.value(fresh)))
    net.op("Where", [where, fresh], np.nan_to_num(net.value(fresh)))
    net.op("NanToNum", [net.op("View", [fresh], net.value(fresh).reshape(2, 8))], X.reshape(2, 8))


@case("LiftFresh Sub Square", "LiftFresh")
def missing_values_go_into_the_loss(net: Net, scores: str) -> None:
    fresh = net.op("LiftFresh", [], missing())
    net.op("NanToNum", [fresh], X)
    net.op("Square", [net.op("Sub", [scores, fresh], net.value(fresh))], net.value(fresh))


@case("Log", "Log")
def a_nan_of_an_operator_is_left_out(net: Net, scores: str) -> None:
    net.op("NanToNum", [net.op("Log", [scores], missing())], X)


@case("ScalarTensor Where MseLoss", "ScalarTensor")
def an_infinite_label_goes_into_the_loss(net: Net, scores: str) -> None:
    hole = net.op("ScalarTensor", [], np.float32(INF))
    labels = net.op("Where", [scores, scores, hole], np.where(KEEP, X, INF))
    net.op("MseLoss", [scores, labels], np.float32(INF))


# -- half precision --------------------------------------------------------------------------------------


def lowest_masks(net: Net) -> tuple[str, str]:
    one = net.op("MaskedFill", [], np.where(KEEP, np.float16(0), LOWEST))
    two = net.op("Full", [], np.where(np.arange(4) < 3, np.float16(0), LOWEST) + np.zeros((4, 4), np.float16))
    return one, two


@case()
def two_masks_of_the_lowest_number_overflow(net: Net, scores: str) -> None:
    one, two = lowest_masks(net)
    with np.errstate(over="ignore"):
        both = net.op("Add", [one, two], net.value(one) + net.value(two))
        attend(net, net.op("Add", [scores, both], X.astype(np.float16) + net.value(both), name="biased"), X)


@case("Add Mean", "Add")
def scores_that_overflow_to_minus_inf(net: Net, scores: str) -> None:
    large = net.op("Mul", [scores], np.full((4, 4), -60000, np.float16))
    with np.errstate(over="ignore"):
        both = net.op("Add", [large, large], net.value(large) + net.value(large))
    net.op("Mean", [both], np.float16(-np.inf))


@case("Add", "Add")
def scores_that_overflow_and_are_weighed(net: Net, scores: str) -> None:
    large = net.op("Mul", [scores], np.full((4, 4), -60000, np.float16))
    with np.errstate(over="ignore"):
        both = net.op("Add", [large, scores], net.value(large) + net.value(large))
    net.op("Softmax", [both], np.ones((4, 4), np.float16))


# -- what nothing reads ------------------------------------------------------------------------------------


@case()
def a_column_is_looked_at_and_written_over(net: Net, scores: str) -> None:
    full = net.op("Full", [], np.full((4, 4), -INF))
    column = net.op("Select", [full], np.full(4, -INF))
    written = net.op("Fill", [column], np.zeros(4, np.float32))
    both = np.where(np.arange(4) == 0, np.float32(0), -INF) + np.zeros((4, 4), np.float32)
    shown = net.op("Unsqueeze", [full, written], both[:, None])
    attend(net, net.op("Add", [scores, shown], X + both), X)


@case()
def a_mask_is_made_and_not_needed(net: Net, scores: str) -> None:
    net.op("Triu", [net.op("Full", [], np.full((4, 4), -INF))], MASK)
    net.op("ScaledDotProductFlashAttentionForCpu", [scores, scores, scores], X)


@case()
def a_view_of_masked_scores_is_handed_out(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    net.op("View", [filled], net.value(filled).reshape(2, 8))
    attend(net, filled, X)


@case("MaskedFill View")
def only_a_view_of_masked_scores_is_handed_out(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    net.op("View", [filled], net.value(filled).reshape(2, 8))


@case()
def what_is_kept_depends_on_many_tensors(net: Net, scores: str) -> None:
    ordered = net.op("Sort", [scores], np.sort(X))
    share = net.op("Cumsum", [net.op("Softmax", [ordered], softmax(net.value(ordered)))], X)
    none = net.op("LiftFresh", [], np.float32(0))
    attend(net, net.op("MaskedFill", [ordered, share, none, share], np.where(KEEP, X, -INF), name="kept"), X)


# -- where nothing absorbs ----------------------------------------------------------------------------


@case("MaskedFill")
def nobody_reads_the_mask(net: Net, scores: str) -> None:
    net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))


@case("MaskedFill")
def only_the_backward_pass_reads_the_mask(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    net.op("Exp", [filled], np.where(KEEP, X, 0), backward=True)


@case("MaskedFill Mul", "Mul")
def the_backward_pass_multiplies_0_by_the_mask(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    net.op("Softmax", [filled], softmax(net.value(filled)))
    net.op("Mul", [filled, scores], np.where(KEEP, X, np.nan), backward=True)


@case("MaskedFill View Square", "Square")
def the_mask_goes_on_through_a_view(net: Net, scores: str) -> None:
    filled = net.op("MaskedFill", [scores, scores], np.where(KEEP, X, -INF))
    view = net.op("View", [filled], net.value(filled).reshape(2, 8))
    net.op("Square", [view], net.value(view) ** 2)


# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", CASES)
def test_a_dump_and_a_training_get_the_true_answer(name: str, spelling: str) -> None:
    net = net_of(CASES[name].make).in_spelling(spelling)
    findings, origins = net.as_dump()
    assert findings == CASES[name].findings
    assert origins == CASES[name].origins
    assert net.as_training() == CASES[name].findings


@pytest.mark.parametrize("name", [name for name, each in CASES.items() if not each.findings])
def test_a_training_that_counted_nothing_still_calls_no_mask_a_finding(name: str) -> None:
    """In the first step the values may be gone before anybody asks for them: only that some are bad is known."""
    assert net_of(CASES[name].make).as_training(counted=False) == set()


def test_masks_that_nothing_reads_are_said_so() -> None:
    net = net_of(CASES["a_mask_is_made_and_not_needed"].make)
    tensors: dict[Key, Value] = {(name, Side.OUTPUT, 0): value for name, value in net.values.items()}
    session = Session(MemorySource({0: {0: tensors}}, ops=net.ops))
    watch(session, "TO")
    assert by_design_text(session.check(session.pairs()).hits) == "-Inf by design: 2 tensors, read by nothing"
