"""``tdbg diff A B`` of a checkpoint and a conversion of it: one fault in each of many layouts, and healthy twins."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.cli.checkpoints import (
    HEAD,
    HEIGHT,
    WIDE,
    Ranks,
    Weights,
    as_linear,
    expert_parallel,
    experts,
    fused,
    gpt2,
    gpt_oss,
    grouped_experts,
    half,
    hugging_face,
    in_stacks,
    kept,
    megatron,
    megatron_experts,
    megatron_parallel,
    merged,
    mixtral,
    parallel_stages,
    random,
    renamed,
    scale_of_each_part,
    split_attention,
    stacked,
    stages,
    tensor_parallel,
    trained,
    transposed,
    vllm,
    vllm_experts,
    wide,
    with_adapter,
    write_checkpoint,
)
from tests.cli.running import Answer, run
from tests.thorough import few

Capsys = pytest.CaptureFixture[str]
Diff = Callable[..., Answer]
ATTENTION, GATED = "model.layers.1.self_attn.", "model.layers.1.mlp."


class Names(NamedTuple):
    """The weights that faults are planted in.

    Attributes:
        one: a weight.
        first, second: two of one shape.
        elsewhere: the first of them of another layer.
        square: a square matrix; empty where there is none.
        expert: the first of another expert; empty where there is none.
    """

    one: str
    first: str
    second: str
    elsewhere: str
    square: str = ""
    expert: str = ""


DENSE = Names(
    f"{ATTENTION}v_proj.weight",
    f"{GATED}gate_proj.weight",
    f"{GATED}up_proj.weight",
    "model.layers.2.mlp.gate_proj.weight",
    f"{ATTENTION}o_proj.weight",
)
HEADS_OF = DENSE._replace(first=f"{ATTENTION}k_proj.weight", second=f"{ATTENTION}v_proj.weight")._replace(
    elsewhere="model.layers.2.self_attn.k_proj.weight"
)
EXPERT = "layers.1.experts.2."
OF_EXPERTS = Names(
    *(f"{EXPERT}{each}_proj.weight" for each in ("down", "gate", "up")),
    "layers.0.experts.2.gate_proj.weight",
    expert="layers.1.experts.0.gate_proj.weight",
)
MOE = "model.layers.1.block_sparse_moe.experts."
OF_MIXTRAL = Names(
    f"{MOE}3.w2.weight",
    f"{MOE}2.w1.weight",
    f"{MOE}2.w3.weight",
    f"{MOE.replace('1', '0')}2.w1.weight",
    f"{ATTENTION}o_proj.weight",
    f"{MOE}0.w1.weight",
)
OF_GPT2 = Names(
    "h.1.attn.c_attn.weight",
    "h.1.mlp.c_fc.weight",
    "h.2.mlp.c_fc.weight",
    "h.0.mlp.c_fc.weight",
    "h.1.attn.c_proj.weight",
)
OF_FP8 = Names(*(f"layers.1.self_attn.{each}_proj.weight" for each in "vkq"), "layers.0.self_attn.k_proj.weight")


# -- faults: each returns the weights with it, and the names that it is in ------------------------------

Planted = tuple[Weights, set[str]]


def stale(of: Weights, names: Names) -> Planted:
    value = of[names.one]
    return of | {names.one: (value + random(*value.shape, seed=3) * np.float32(0.2)).astype(value.dtype)}, {names.one}


def scaled(of: Weights, names: Names) -> Planted:
    value = of[names.one]
    return of | {names.one: (value * np.float32(1.25)).astype(value.dtype)}, {names.one}


def swapped(of: Weights, names: Names) -> Planted:
    return of | {names.first: of[names.second], names.second: of[names.first]}, {names.first, names.second}


def of_another_layer(of: Weights, names: Names) -> Planted:
    return of | {names.first: of[names.elsewhere]}, {names.first}


def of_another_expert(of: Weights, names: Names) -> Planted:
    return of | {names.first: of[names.expert]}, {names.first}


def transposed_twice(of: Weights, names: Names) -> Planted:
    """The weight has its shape, and its elements in the order of its columns."""
    return of | {names.square: of[names.square].T.copy().reshape(of[names.square].shape)}, {names.square}


def one_wrong_row(of: Weights, names: Names) -> Planted:
    wrong = of[names.first].copy()
    wrong[2] = random(wrong.shape[1], seed=5)
    return of | {names.first: wrong}, {names.first}


def shifted_rows(of: Weights, names: Names) -> Planted:
    return of | {names.first: np.roll(of[names.first], 1, 0)}, {names.first}


def missing_heads(of: Weights, names: Names) -> Planted:
    """The last group of heads was never written."""
    wrong = of[names.one].copy()
    wrong[-HEAD:] = 0
    return of | {names.one: wrong}, {names.one}


FAULTS = (
    stale,
    scaled,
    swapped,
    of_another_layer,
    of_another_expert,
    transposed_twice,
    one_wrong_row,
    shifted_rows,
    missing_heads,
)


# -- layouts -------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """How a checkpoint is converted.

    Attributes:
        model: the weights of it.
        convert: what makes the other checkpoint of them.
        names: the weights that faults are planted in.
        basis: what weights are paired by.
    """

    model: Callable[[], Weights]
    convert: Callable[[Weights], Weights | list[Weights] | Ranks]
    names: Names
    basis: str = "value"


def dense() -> Weights:
    return trained(hugging_face())


def wrapped(scope: str, inner: str = "") -> Callable[[Weights], Weights]:
    """As wrappers around a model, and around its layers, name parameters."""
    return lambda of: {
        scope + re.sub(r"layers\.\d+", lambda layer: layer[0] + inner, name): value for name, value in of.items()
    }


LAYOUTS = {
    "fused": Layout(dense, vllm, DENSE),
    "fused, q, k and v": Layout(dense, vllm, HEADS_OF),
    "fused, bfloat16": Layout(dense, lambda of: half(vllm(of)), DENSE),
    "by group, padded": Layout(dense, megatron, DENSE),
    "by group, padded, q, k and v": Layout(dense, megatron, HEADS_OF),
    "by group, padded, transposed": Layout(dense, lambda of: transposed(megatron(of)), DENSE),
    "transposed": Layout(dense, transposed, DENSE),
    "renamed": Layout(dense, renamed, DENSE),
    "layers in stacks": Layout(dense, in_stacks, DENSE),
    "cast": Layout(dense, half, DENSE, "name"),
    "DDP": Layout(dense, wrapped("module."), DENSE, "name"),
    "compiled": Layout(dense, wrapped("module._orig_mod.", "._orig_mod"), DENSE, "name"),
    "FSDP": Layout(dense, wrapped("_fsdp_wrapped_module.", "._checkpoint_wrapped_module"), DENSE, "name"),
    "fused, two ranks": Layout(dense, tensor_parallel, DENSE),
    "by group, two ranks": Layout(dense, megatron_parallel, HEADS_OF),
    "two stages": Layout(dense, lambda of: stages(of, from_zero=False), DENSE),
    "two stages that count from zero": Layout(dense, lambda of: stages(of, from_zero=True), DENSE),
    "experts in a stack": Layout(experts, stacked, OF_EXPERTS),
    "experts in a stack, transposed": Layout(experts, lambda of: transposed(stacked(of)), OF_EXPERTS),
    "w13 and w2": Layout(mixtral, vllm_experts, OF_MIXTRAL),
    "gate and up in turns": Layout(mixtral, gpt_oss, OF_MIXTRAL),
    "local experts": Layout(mixtral, megatron_experts, OF_MIXTRAL),
    "grouped experts": Layout(mixtral, grouped_experts, OF_MIXTRAL),
    "experts of ranks": Layout(mixtral, expert_parallel, OF_MIXTRAL),
    "Conv1D to Linear": Layout(gpt2, as_linear, OF_GPT2),
    "Conv1D to q, k and v": Layout(gpt2, split_attention, OF_GPT2),
    "fp8": Layout(wide, lambda of: kept(of, (HEIGHT, WIDE)), OF_FP8, "name"),
    "fp8, rows, fused": Layout(wide, lambda of: fused(kept(of, (1, WIDE))), OF_FP8),
    "fp8, blocks, fused": Layout(wide, lambda of: fused(kept(of, (128, 128), "_scale_inv")), OF_FP8),
    "fp8, a scale for each part": Layout(wide, scale_of_each_part, OF_FP8),
    "merged updates": Layout(lambda: with_adapter(dense()), lambda _: merged(dense()), DENSE),
}
PAIRS = [
    (layout, fault)
    for layout, (_, _, names, _) in LAYOUTS.items()
    for fault in FAULTS
    if (names.square or fault is not transposed_twice)
    and (names.expert or fault is not of_another_expert)
    and (names is HEADS_OF or fault is not missing_heads)
    and layout != "merged updates"
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_conversion_says_how_it_was_paired(diff: Diff, layout: str) -> None:
    model, convert, _, basis = LAYOUTS[layout]
    answer = diff(model(), convert(model()))
    assert answer.code == 0, answer.out
    assert re.search(rf"; paired .*\d+ by {basis}", answer.out)


@pytest.mark.parametrize(("layout", "fault"), few(PAIRS, 70))
def test_the_weight_with_the_fault_is_named(
    diff: Diff, layout: str, fault: Callable[[Weights, Names], Planted]
) -> None:
    model, convert, names, _ = LAYOUTS[layout]
    wrong, planted = fault(model(), names)
    answer = diff(model(), convert(wrong), "--json")
    assert answer.code == 1, answer.json["reasons"]
    assert {each["node"] for each in answer.json["findings"]} <= planted
    assert answer.json["headline"]["there_node"]


# -- faults of one kind of layout -----------------------------------------------------------------------


@pytest.mark.parametrize(("factors", "weight"), [([1, 1.5, 1], "k"), ([1, 1, 0.5], "v")])
def test_a_wrong_scale_of_one_part(diff: Diff, factors: list[float], weight: str) -> None:
    wrong = scale_of_each_part(wide())
    wrong["layers.1.self_attn.qkv_proj.weight_scale"] *= np.array(factors, np.float32)
    answer = diff(wide(), wrong, "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, f"layers.1.self_attn.{weight}_proj.weight")


QUERY = f"{ATTENTION}q_proj.weight"
BASE = f"base_model.model.{ATTENTION}q_proj.base_layer.weight"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: merged(dense(), {QUERY: 4.0}), "has its update 4 times, most others 2 times"),
        (lambda: merged(dense(), {QUERY: 0.0}), "has its update 0 times, most others 2 times"),
        (lambda: merged(dense() | {QUERY: random(*dense()[QUERY].shape, seed=4)}), "and its update make"),
    ],
    ids=["twice", "never", "another base"],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_merged_update(diff: Diff, wrong: Callable[[], Weights], says: str, *, swapped: bool) -> None:
    sides = with_adapter(dense()), wrong()
    answer = diff(*(sides[::-1] if swapped else sides), "--json")
    assert (answer.code, len(answer.json["findings"])) == (1, 1)
    assert {answer.json["headline"]["node"], answer.json["headline"]["there_node"]} == {BASE, QUERY}
    assert says in answer.json["headline"]["text"]


def test_an_update_that_nobody_merged_cannot_be_judged(diff: Diff) -> None:
    answer = diff(with_adapter(dense()), dense(), "--json")
    assert answer.code == 2
    assert all(".lora_" in each["text"] for each in answer.json["reasons"])


def test_an_update_may_lie_beside_the_base_in_a_file_of_its_own(diff: Diff) -> None:
    plain = with_adapter(dense())
    beside = {name.replace(".default", ""): value for name, value in plain.items() if ".lora_" in name}
    assert diff({"model": dense(), "adapter_model": beside}, merged(dense())).code == 0
    wrong = merged(dense(), {QUERY: 4.0})
    answer = diff({"model": dense(), "adapter_model": beside}, wrong, "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, QUERY)


EMBEDDING = "model.embed_tokens.weight"


@pytest.mark.parametrize("convert", [renamed, megatron])
def test_a_weight_of_another_name_may_be_scaled(diff: Diff, convert: Callable[[Weights], Weights]) -> None:
    """Nothing but a factor is between its elements and those of the other run: that proves which weight it is."""
    of = dense()
    answer = diff(of, convert(of | {EMBEDDING: of[EMBEDDING] * np.float32(8)}), "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, EMBEDDING, 1)
    assert "B is A times 8" in answer.json["headline"]["text"]


def test_new_norms_are_paired_with_new_norms_of_their_layer(diff: Diff) -> None:
    assert diff(hugging_face(), renamed(hugging_face())).code == 0


def test_strangers_that_are_zero_are_no_pair(diff: Diff) -> None:
    """All else is proven to be the same, and zeros prove nothing."""
    weight, zeros = random(8, 8), np.zeros(4, np.float32)
    answer = diff(
        {"encoder.wte.weight": weight, "z.bias": zeros}, {"head.proj.weight": weight, "y.bias": zeros}, "--json"
    )
    assert answer.code == 2
    assert any("z.bias is in the first run only" in each["text"] for each in answer.json["reasons"])


@pytest.mark.parametrize("factor", [1.03, 1.2, -1.0])
def test_one_wrong_element_of_a_fused_weight_that_was_cast(diff: Diff, factor: float) -> None:
    other = half(vllm(dense()))
    name = f"{GATED}gate_up_proj.weight"
    other[name][3, 4] = factor * float(other[name][3, 4])
    answer = diff(dense(), other, "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, f"{GATED}gate_proj.weight")


def of_one_layer() -> tuple[Weights, Names]:
    names = Names(*(name.replace("layers.1", "layers.0") for name in DENSE))
    return {name: value for name, value in dense().items() if not re.search(r"layers\.[12]", name)}, names


@pytest.mark.parametrize("convert", [vllm, megatron, transposed, renamed, tensor_parallel])
def test_of_one_layer_nothing_wrong_is_the_same(
    diff: Diff, convert: Callable[[Weights], Weights | list[Weights]]
) -> None:
    """No other layer tells how it is made: names and usual orders do, or nothing, which is a doubt."""
    of, names = of_one_layer()
    assert diff(of, convert(of)).code == 0
    for fault in (swapped, transposed_twice, shifted_rows):
        wrong, planted = fault(of, names)
        answer = diff(of, convert(wrong), "--json")
        assert answer.code in {1, 2}
        assert {each["node"] for each in answer.json["findings"]} <= planted


def test_q_k_and_v_of_one_layer_of_gpt2(diff: Diff) -> None:
    of = {name: value for name, value in gpt2().items() if not re.match(r"h\.[12]", name)}
    assert diff(of, as_linear(of)).code == 0
    assert diff(of, split_attention(of)).code == 0


def from_one(of: Weights) -> Weights:
    """Layers are counted from one."""
    return {re.sub(r"layers\.(\d)", lambda at: f"layers.{int(at[1]) + 1}", name): value for name, value in of.items()}


@pytest.mark.parametrize("convert", [from_one, lambda of: from_one(vllm(of))])
def test_a_run_may_count_its_layers_from_one(diff: Diff, convert: Callable[[Weights], Weights]) -> None:
    """What has one name in both runs is of another layer, and the norms of all layers are alike."""
    assert diff(dense(), convert(dense())).code == 0
    wrong, _ = scaled(dense(), DENSE)
    answer = diff(dense(), convert(wrong), "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, DENSE.one, 1)


def test_layers_in_another_order_are_a_difference(diff: Diff) -> None:
    """Each layer is that behind it, and the last one the first: no way to count makes that the same."""
    turned = {
        re.sub(r"layers\.(\d)", lambda at: f"layers.{(int(at[1]) + 1) % 3}", name): value
        for name, value in dense().items()
    }
    assert diff(dense(), turned).code == 1
    assert diff(dense(), renamed(turned)).code == 1


@pytest.mark.parametrize("from_zero", [False, True])
def test_tensor_parallel_stages(diff: Diff, *, from_zero: bool) -> None:
    assert diff(dense(), parallel_stages(dense(), from_zero=from_zero)).code == 0
    wrong, planted = one_wrong_row(dense(), DENSE)
    answer = diff(dense(), parallel_stages(wrong, from_zero=from_zero), "--json")
    assert answer.code == 1
    assert {each["node"] for each in answer.json["findings"]} == planted


def test_stages_that_count_otherwise(diff: Diff) -> None:
    assert diff(stages(dense(), from_zero=False), stages(dense(), from_zero=True)).code == 0


@pytest.mark.parametrize("other", [stages, parallel_stages])
def test_stages_that_count_from_zero_are_not_accused(diff: Diff, other: Callable[..., Ranks]) -> None:
    """Both runs have several ranks, and nobody has the whole: one name may be of two layers."""
    assert diff(megatron_parallel(dense()), other(dense(), from_zero=False)).code == 0
    answer = diff(megatron_parallel(dense()), other(dense(), from_zero=True), "--json")
    assert (answer.code, answer.json["findings"]) == (2, [])


def test_stages_that_count_from_zero_may_keep_their_names(diff: Diff) -> None:
    of = dense()
    assert diff(megatron(of), stages(of, from_zero=True)).code == 0
    wrong = of | {DENSE.one: of[DENSE.one] * np.float32(1.25)}
    answer = diff(megatron(of), stages(wrong, from_zero=True), "--json")
    assert answer.code == 1
    assert answer.json["headline"]["node"] == "decoder.layers.1.self_attention.linear_qkv.weight"


def test_tied_weights_may_be_kept_once_by_a_conversion(diff: Diff) -> None:
    tied = dense() | {"lm_head.weight": dense()[EMBEDDING]}
    assert diff(tied, megatron(dense())).code == 0
    assert diff(megatron(dense()), tied).code == 0


def test_the_last_word_before_the_padding_may_be_wrong(diff: Diff) -> None:
    other = megatron(hugging_face())
    words = len(hugging_face()["model.embed_tokens.weight"])
    other["embedding.word_embeddings.weight"][words - 1] = 0
    answer = diff(hugging_face(), other, "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, "model.embed_tokens.weight")


def test_tied_weights_may_be_kept_once(diff: Diff) -> None:
    tied = hugging_face() | {"lm_head.weight": hugging_face()["model.embed_tokens.weight"]}
    assert diff(tied, hugging_face()).code == 0
    assert diff(hugging_face(), tied).code == 0


def test_a_head_of_its_own_is_not_tied(diff: Diff) -> None:
    free = hugging_face() | {"lm_head.weight": random(*hugging_face()["model.embed_tokens.weight"].shape, seed=91)}
    assert diff(free, hugging_face()).code == 2


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.25, 1)])
def test_both_runs_may_hold_the_parts_of_ranks(capsys: Capsys, tmp_path: Path, factor: float, code: int) -> None:
    """Rank by rank one has q, k and v, and the other one a fused weight."""
    apart = tensor_parallel(hugging_face(), convert=lambda of: of)
    name = f"{ATTENTION}k_proj.weight"
    wrong = tensor_parallel(hugging_face() | {name: hugging_face()[name] * np.float32(factor)})
    write_checkpoint(tmp_path / "A", apart)
    write_checkpoint(tmp_path / "B", [tensor_parallel(hugging_face())[0], wrong[1]])
    answer = run(capsys, "diff", tmp_path / "A", tmp_path / "B", "--json")
    assert answer.code == code
    if code:
        assert (answer.json["headline"]["node"], answer.json["headline"]["rank"]) == (name, 1)
