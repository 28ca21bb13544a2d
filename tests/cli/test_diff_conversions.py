"""``tdbg diff A B`` of a checkpoint and a conversion of it: one fault in each of many layouts, and healthy twins."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import Answer, run
from tests.cli.test_diff_checkpoints import (
    Weights,
    experts,
    hugging_face,
    megatron,
    random,
    stacked,
    tensor_parallel,
    transposed,
    vllm,
)
from tests.sources.arrays import write_arrays, write_safetensors

Capsys = pytest.CaptureFixture[str]
ATTENTION, GATED = "model.layers.1.self_attn.", "model.layers.1.mlp."
EXPERT = "layers.1.experts.2."


class Names(NamedTuple):
    """The weights that faults are planted in: one, two of one shape, and the first of them of another layer."""

    one: str
    first: str
    second: str
    square: str
    elsewhere: str


DENSE = Names(
    f"{ATTENTION}v_proj.weight",
    f"{GATED}gate_proj.weight",
    f"{GATED}up_proj.weight",
    f"{ATTENTION}o_proj.weight",
    "model.layers.2.mlp.gate_proj.weight",
)
OF_EXPERTS = Names(
    *(f"{EXPERT}{each}_proj.weight" for each in ("down", "gate", "up", "up")), "layers.0.experts.2.gate_proj.weight"
)


def trained(of: Weights) -> Weights:
    """The scales of its norms are not all one."""
    return {
        name: value + random(*value.shape, seed=7 + number) if "norm" in name else value
        for number, (name, value) in enumerate(of.items())
    }


def stale(of: Weights, names: Names) -> tuple[Weights, set[str]]:
    noise = random(*of[names.one].shape, seed=3) * np.float32(0.2)
    return of | {names.one: of[names.one] + noise}, {names.one}


def scaled(of: Weights, names: Names) -> tuple[Weights, set[str]]:
    return of | {names.one: of[names.one] * np.float32(1.25)}, {names.one}


def swapped(of: Weights, names: Names) -> tuple[Weights, set[str]]:
    return of | {names.first: of[names.second], names.second: of[names.first]}, {names.first, names.second}


def of_another_layer(of: Weights, names: Names) -> tuple[Weights, set[str]]:
    return of | {names.first: of[names.elsewhere]}, {names.first}


def transposed_twice(of: Weights, names: Names) -> tuple[Weights, set[str]]:
    """The weight has its shape, and its elements in the order of its columns."""
    return of | {names.square: of[names.square].T.copy().reshape(of[names.square].shape)}, {names.square}


FAULTS = (stale, scaled, swapped, of_another_layer, transposed_twice)


def half(of: Weights) -> Weights:
    return {name: each.astype(ml_dtypes.bfloat16) for name, each in of.items()}


def in_stacks(of: Weights) -> Weights:
    """The layers of each weight in one array, as a loop over layers has them."""
    own = {name: value for name, value in of.items() if ".layers." not in name}
    layers: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
    for name, value in of.items():
        if ".layers." in name:
            layers[re.sub(r"layers\.\d+", "layers", name)].append(value)
    return own | {name: np.stack(values) for name, values in layers.items()}


LAYOUTS: dict[str, tuple[Callable[[Weights], Weights | list[Weights]], Names]] = {
    "fused": (vllm, DENSE),
    "fused, bfloat16": (lambda of: half(vllm(of)), DENSE),
    "by group, padded": (megatron, DENSE),
    "by group, padded, transposed": (lambda of: transposed(megatron(of)), DENSE),
    "transposed": (transposed, DENSE),
    "fused, two ranks": (tensor_parallel, DENSE),
    "layers in stacks": (in_stacks, DENSE),
    "experts in a stack": (stacked, OF_EXPERTS),
    "experts in a stack, transposed": (lambda of: transposed(stacked(of)), OF_EXPERTS),
}


@pytest.fixture
def diff(capsys: Capsys, tmp_path: Path) -> Callable[..., Answer]:
    def compared(a: Weights, b: Weights | list[Weights], *words: str) -> Answer:
        write_arrays(tmp_path / "A", a, "safetensors")
        if isinstance(b, list):
            (tmp_path / "B").mkdir()
            for rank, values in enumerate(b):
                write_safetensors(tmp_path / "B" / f"model_tp_rank_{rank}.safetensors", values)
        else:
            write_arrays(tmp_path / "B", b, "safetensors")
        return run(capsys, "diff", tmp_path / "A", tmp_path / "B", *words)

    return compared


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_conversion_says_how_it_was_paired(diff: Callable[..., Answer], layout: str) -> None:
    convert, names = LAYOUTS[layout]
    of = trained(hugging_face()) if names is DENSE else experts()
    answer = diff(of, convert(of))
    assert answer.code == 0, answer.out
    assert "; paired " in answer.out
    assert " by value" in answer.out


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_weight_with_the_fault_is_named(
    diff: Callable[..., Answer], layout: str, fault: Callable[[Weights, Names], tuple[Weights, set[str]]]
) -> None:
    convert, names = LAYOUTS[layout]
    of = trained(hugging_face()) if names is DENSE else experts()
    wrong, planted = fault(of, names)
    answer = diff(of, convert(wrong), "--json")
    assert answer.code == 1, answer.json["reasons"]
    assert {each["node"] for each in answer.json["findings"]} <= planted
    assert answer.json["headline"]["there_node"]


def test_the_last_word_before_the_padding_may_be_wrong(diff: Callable[..., Answer]) -> None:
    other = megatron(hugging_face())
    words = len(hugging_face()["model.embed_tokens.weight"])
    other["embedding.word_embeddings.weight"][words - 1] = 0
    answer = diff(hugging_face(), other, "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, "model.embed_tokens.weight")


def test_tied_weights_may_be_kept_once(diff: Callable[..., Answer]) -> None:
    tied = hugging_face() | {"lm_head.weight": hugging_face()["model.embed_tokens.weight"]}
    assert diff(tied, hugging_face()).code == 0
    assert diff(hugging_face(), tied).code == 0


def test_a_head_of_its_own_is_not_tied(diff: Callable[..., Answer]) -> None:
    free = hugging_face() | {"lm_head.weight": random(*hugging_face()["model.embed_tokens.weight"].shape, seed=91)}
    assert diff(free, hugging_face()).code == 2


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.25, 1)])
def test_both_runs_may_hold_the_parts_of_ranks(capsys: Capsys, tmp_path: Path, factor: float, code: int) -> None:
    """Rank by rank one has q, k and v, and the other one a fused weight."""
    apart = tensor_parallel(hugging_face(), convert=lambda of: of)
    name = f"{ATTENTION}k_proj.weight"
    wrong = tensor_parallel(hugging_face() | {name: hugging_face()[name] * np.float32(factor)})
    for side, ranks in (("A", apart), ("B", [tensor_parallel(hugging_face())[0], wrong[1]])):
        (tmp_path / side).mkdir()
        for rank, values in enumerate(ranks):
            write_safetensors(tmp_path / side / f"model_tp_rank_{rank}.safetensors", values)
    answer = run(capsys, "diff", tmp_path / "A", tmp_path / "B", "--json")
    assert answer.code == code
    if code:
        assert (answer.json["headline"]["node"], answer.json["headline"]["rank"]) == (name, 1)
