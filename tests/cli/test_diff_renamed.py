"""``tdbg diff A B`` of weights under other names: values tell which is which, and names which were exchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import pytest

from tests.cli.checkpoints import (
    Weights,
    as_linear,
    experts,
    gpt2,
    half,
    hugging_face,
    in_stacks,
    kept,
    megatron,
    mixtral,
    random,
    tensor_parallel,
    trained,
    transposed,
    vllm,
    wide,
)
from tests.cli.running import Answer

Diff = Callable[..., Answer]
EMBEDDING = "model.embed_tokens.weight"


def dense() -> Weights:
    return trained(hugging_face())


def with_words(words: Mapping[str, str]) -> Callable[[Weights], Weights]:
    """Replaces parts of names, given as patterns."""

    def convert(of: Weights) -> Weights:
        made = {}
        for name, value in of.items():
            for old, new in words.items():
                name = re.sub(old, new, name)  # noqa: PLW2901 - one word after the other
            made[name] = value
        return made

    return convert


LEAVES = {"embed_tokens.weight": "embed_tokens.embedding", "norm.weight": "norm.scale", r"\.weight": ".kernel"}
LINES = {r"model\.layers\.(\d)\.(self_attn\.|mlp\.)?": r"blk\1_", r"\.weight": "/w", r"\.bias": "/b"}
GGUF = {r"model\.layers\.(\d)\.mlp\.(\w+)_proj": r"blk.\1.\2"}
MIXTRAL = {r"\.block_sparse_moe\.": ".mlp.", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def layers_in_the_middle(of: Weights) -> Weights:
    """As MaxText stacks the transposed matrices of all layers: along the second axis."""
    return {name: np.moveaxis(value, 0, 1) if value.ndim == 3 else value for name, value in in_stacks(of).items()}


def stacked_experts(of: Weights) -> Weights:
    """Each of the three weights of all experts in one array, as torchtitan names it."""
    short = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
    parts: dict[str, list[np.ndarray]] = {}
    for name, value in of.items():
        parts.setdefault(re.sub(r"\d\.(\w+_proj)\.weight", lambda at: short[at[1]], name), []).append(value)
    return {name: np.stack(values) for name, values in parts.items()}


RENAMED: dict[str, tuple[Callable[[], Weights], Callable[[Weights], Weights]]] = {
    "some scopes": (dense, with_words(GGUF)),
    "experts": (mixtral, with_words(MIXTRAL)),
    "leaves": (dense, with_words(LEAVES)),
    "leaves, transposed": (dense, lambda of: with_words(LEAVES)(transposed(of) | {EMBEDDING: of[EMBEDDING]})),
    "one leaf": (dense, with_words({"tokens.weight": "tokens.embedding"})),
    "names without dots": (dense, with_words(LINES)),
    "experts in stacks": (experts, stacked_experts),
    "layers in the middle": (dense, lambda of: layers_in_the_middle(transposed(of) | {EMBEDDING: of[EMBEDDING]})),
    "a number within a word": (dense, with_words({r"model\.layers\.": "net.layer"})),
    "the same, fused": (dense, lambda of: with_words({r"model\.layers\.": "net.layer"})(vllm(of))),
    "new norms": (hugging_face, with_words({r"model\.layers\.": "net.layer", "self_attn": "attention"})),
    "gain and shift": (gpt2, with_words({r"(ln_\d)\.weight": r"\1.gamma", r"(ln_\d)\.bias": r"\1.beta", "^h": "d"})),
}


@pytest.mark.parametrize("names", RENAMED)
def test_weights_under_other_names_are_paired_by_their_values(diff: Diff, names: str) -> None:
    model, convert = RENAMED[names]
    answer = diff(model(), convert(model()))
    assert answer.code == 0, answer.out
    assert re.search(r"; paired .*\d+ by (value|name)", answer.out)


@pytest.mark.parametrize("names", ["some scopes", "leaves", "leaves, transposed", "layers in the middle"])
def test_the_stale_weight_among_renamed_ones_is_named(diff: Diff, names: str) -> None:
    model, convert = RENAMED[names]
    wrong = "model.layers.1.mlp.up_proj.weight"
    stale = model() | {wrong: model()[wrong] + random(*model()[wrong].shape, seed=3)}
    answer = diff(model(), convert(stale), "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, wrong, 1)


# -- exchanged weights -----------------------------------------------------------------------------


def exchanged(of: Weights, one: str, other: str) -> Weights:
    """All weights with a part in their names hold those with another one instead."""
    swap = {one: other, other: one}
    return {name: of[re.sub(f"{re.escape(one)}|{re.escape(other)}", lambda at: swap[at[0]], name)] for name in of}


@pytest.mark.parametrize("words", [LINES, {r"model\.layers\.": "net.layer"}, {"model.layers": "blocks", "mlp": "ff"}])
def test_exchanged_layers_under_other_names(diff: Diff, words: dict[str, str]) -> None:
    answer = diff(dense(), with_words(words)(exchanged(dense(), "layers.1.", "layers.2.")), "--json")
    assert answer.code == 1
    assert {re.findall(r"\d", each["node"])[0] for each in answer.json["findings"]} == {"1", "2"}


def test_exchanged_experts_whose_numbers_are_within_words(diff: Diff) -> None:
    words = {
        r"model\.layers\.(\d)\.mlp\.experts\.(\d)\.": r"blk\1_exp\2_",
        "gate_proj": "w1",
        "down_proj": "w2",
        "up_proj": "w3",
    }
    of = {
        f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj.weight": random(
            8, 6, seed=100 * layer + 10 * expert + at
        )
        for layer in range(2)
        for expert in range(4)
        for at, name in enumerate(("gate", "up", "down"))
    }
    assert diff(of, with_words(words)(of)).code == 0
    one, other = (f"layers.1.mlp.experts.{expert}.up_proj" for expert in (1, 2))
    assert diff(of, with_words(words)(exchanged(of, one, other))).code == 1


def test_exchanged_weights_of_one_layer_under_other_names(diff: Diff) -> None:
    one, other = (f"model.layers.1.mlp.{each}_proj.weight" for each in ("gate", "up"))
    convert = with_words(LINES | {"gate_proj": "a", "up_proj": "b"})
    assert diff(dense(), convert(dense())).code == 0
    answer = diff(dense(), convert(dense() | {one: dense()[other], other: dense()[one]}), "--json")
    assert (answer.code, {each["node"] for each in answer.json["findings"]}) == (1, {one, other})
    assert f"blk1_a/w of B holds {other} of A where {one} should be" in answer.json["headline"]["text"]


def test_names_that_are_nearer_to_those_of_each_other_are_a_doubt(diff: Diff) -> None:
    encoder, decoder = random(8, 8), random(8, 8, seed=1)
    of = {"encoder.fc.weight": encoder, "decoder.fc.weight": decoder}
    assert diff(of, {"enc.lin.weight": encoder, "dec.lin.weight": decoder}).code == 0
    answer = diff(of, {"enc.lin.weight": decoder, "dec.lin.weight": encoder})
    assert answer.code == 2
    assert "though its name is nearer to" in answer.out


def test_exchanged_embeddings_under_other_names_are_a_doubt(diff: Diff) -> None:
    of = {f"{name}.weight": random(16, 8, seed=seed) for seed, name in enumerate(("wte", "wpe", "head"))}
    words = {"wte": "word_embeddings", "wpe": "position_embeddings", "head": "lm_out"}
    assert diff(of, with_words(words)(of)).code == 0
    for other in ("wpe", "head"):
        assert diff(of, with_words(words)(exchanged(of, "wte", other))).code == 2


def test_a_fused_weight_whose_parts_are_in_another_order_than_its_name_says(diff: Diff) -> None:
    of = {
        f"layers.{layer}.{each}.weight": random(8, 8, seed=8 * layer + ord(each))
        for layer in range(3)
        for each in "qkv"
    }

    def fused(order: str) -> Weights:
        return {
            f"layers.{at}.qkv.weight": np.vstack([of[f"layers.{at}.{each}.weight"] for each in order])
            for at in range(3)
        }

    assert diff(of, fused("qkv")).code == 0
    answer = diff(of, fused("kvq"))
    assert answer.code == 2
    assert "its name tells another order" in answer.out


def test_norms_without_one(diff: Diff) -> None:
    """Some programs keep the weight of a norm less 1, and all of them then; a conversion may have forgotten the 1."""
    of = {f"layers.{at}.norm.weight": 1 + np.float32(0.1) * random(16, seed=at) for at in range(3)}
    less = {name: value - np.float32(1) for name, value in of.items()}
    for sides in ((of, less), (less, of)):
        answer = diff(*sides)
        assert answer.code == 2
        assert "one run keeps 3 weights of norms, such as layers.0.norm.weight, without 1" in answer.out
    name = "layers.1.norm.weight"
    assert diff(of, less | {name: of[name]}).code == 1
    assert diff(of, less | {name: less[name] * np.float32(1.5)}).code == 1


def test_numbers_that_name_weights_may_be_others(diff: Diff) -> None:
    """``w3`` goes up there, and ``linear_2`` does here: no layers are exchanged."""
    meta = with_words({"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"})(dense())
    other = with_words({"gate_proj": "linear_1", "up_proj": "linear_2", "down_proj": "linear_3"})(dense())
    assert diff(meta, other).code == 0


@pytest.mark.parametrize("ranks", [2, 4])
def test_parts_on_other_ranks(diff: Diff, ranks: int) -> None:
    """Parts are of ranks in their order."""
    of = {name: value for name, value in dense().items() if ".self_attn." not in name}
    parts = tensor_parallel(of, ranks, lambda own: own)
    assert diff(of, parts).code == 0
    answer = diff(of, [*parts[:-2], parts[-1], parts[-2]])
    assert answer.code == 1
    assert "that another rank should have" in answer.out


# -- padding, axes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [lambda of: of, with_words({"embed_tokens": "token_embed"})])
def test_padding_before_the_words_shifts_them(diff: Diff, convert: Callable[[Weights], Weights]) -> None:
    words, padding = dense()[EMBEDDING], np.zeros((3, dense()[EMBEDDING].shape[1]), np.float32)
    assert diff(dense(), convert(dense() | {EMBEDDING: np.concatenate([words, padding])})).code == 0
    for parts in ([padding, words], [words[:5], padding, words[5:], padding]):
        answer = diff(dense(), convert(dense() | {EMBEDDING: np.concatenate(parts)}), "--json")
        assert (answer.code, answer.json["headline"]["node"]) == (1, EMBEDDING)
    assert "its rows are shifted by 3" in diff(dense(), convert(dense() | {EMBEDDING: np.vstack([padding, words])})).out


def test_other_padding_is_a_doubt(diff: Diff) -> None:
    words = dense()[EMBEDDING]
    for padded in (np.vstack([words, np.ones_like(words[:3])]), np.hstack([words, np.zeros_like(words[:, :4])])):
        assert diff(dense(), dense() | {EMBEDDING: padded}).code == 2


def test_axes_of_convolutions_in_another_order(diff: Diff) -> None:
    of = {f"conv{number}.weight": random(8, 4, 3, 3, seed=number) for number in range(3)}
    other = {name: value.transpose(2, 3, 1, 0).copy() for name, value in of.items()}
    answer = diff(of, other)
    assert answer.code == 0
    assert "axes in the order 2 3 1 0: proven by values" in answer.out
    other["conv1.weight"] = other["conv1.weight"][::-1].copy()
    answer = diff(of, other, "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, "conv1.weight", 1)
    assert diff(of, {name: random(3, 3, 4, 8, seed=9) for name in of}).code == 1


def test_many_proven_parameters_are_one_line_each_side(diff: Diff) -> None:
    of = {f"conv{number}.weight": random(8, 4, 3, 3, seed=number) for number in range(6)}
    answer = diff(of, {name: value.transpose(2, 3, 1, 0).copy() for name, value in of.items()})
    assert answer.code == 0
    (line,) = [line for line in answer.lines if line.startswith("only in B")]
    assert line.startswith("only in B, accounted for: conv0.weight, conv1.weight, conv2.weight and 3 more")


def test_one_square_matrix_whose_bias_tells_its_name(diff: Diff) -> None:
    """The end of the name pairs it, and it is transposed as all others are."""
    words = {r"^transformer\.h\.": "decoder.layers.", "attn.c_proj": "attn.linear_proj"}
    assert diff(gpt2(), with_words(words)(as_linear(gpt2()))).code == 0


# -- casts -----------------------------------------------------------------------------------------


def cut(of: Weights) -> Weights:
    """Cuts off what is too fine for bfloat16."""
    return {
        name: (value.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(ml_dtypes.bfloat16)
        for name, value in of.items()
    }


@pytest.mark.parametrize("convert", [lambda of: of, vllm, megatron])
def test_a_weight_that_is_no_cast_where_all_others_are(diff: Diff, convert: Callable[[Weights], Weights]) -> None:
    """It is off by less than rounding may make, and yet is of another step."""
    name = "model.layers.1.mlp.down_proj.weight"
    assert diff(dense(), half(convert(dense()))).code == 0
    stale = dense() | {name: dense()[name] * (1 + random(*dense()[name].shape, seed=4) * np.float32(0.05))}
    for sides in ((dense(), half(convert(stale))), (half(convert(dense())), stale)):
        answer = diff(*sides, "--json")
        assert answer.code == 1
        found = answer.json["headline"]
        assert name in {found["node"], found["there_node"]}
        assert "are not the rounding of those of the other run" in found["text"]


def test_a_copy_may_cut_off_what_is_too_fine(diff: Diff) -> None:
    assert diff(dense(), cut(dense())).code == 0
    name = "model.layers.1.mlp.down_proj.weight"
    answer = diff(dense(), half(dense()) | {name: cut(dense())[name]}, "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, name)


def test_runs_that_round_otherwise_are_no_copies(diff: Diff) -> None:
    """Most weights are no casts by bytes: nothing says that any should be one."""
    other = {
        name: value * (1 + random(*value.shape, seed=4) * np.float32(0.05)) if value.ndim > 1 else value
        for name, value in dense().items()
    }
    assert diff(dense(), half(other)).code == 0


def test_all_scales_of_a_weight_may_be_off_by_little(diff: Diff) -> None:
    name = "layers.1.self_attn.k_proj.weight"
    block = (16, 16)
    assert diff(wide(), kept(wide(), block)).code == 0
    wrong = wide() | {name: (wide()[name].astype(np.float32) * np.float32(1.02)).astype(ml_dtypes.bfloat16)}
    answer = diff(wide(), kept(wrong, block), "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, name, 1)
    assert "all its scales: B is A times 1.02" in answer.json["headline"]["text"]
