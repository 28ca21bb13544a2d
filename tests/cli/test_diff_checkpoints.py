"""``tdbg diff A B`` of checkpoints: what parameters are paired by, other shapes, weights cut anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.cli.checkpoints import (
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
from tests.cli.running import Answer, run
from tests.json_page import assert_described
from tests.sources.arrays import write_arrays, write_safetensors

Capsys = pytest.CaptureFixture[str]


def small() -> Weights:
    names = ("encoder.wte.weight", "encoder.l0.fc.weight", "encoder.l1.fc.weight")
    made = {name: random(12, 8, seed=number) for number, name in enumerate(names)}
    return made | {f"encoder.l{number}.fc.bias": random(12, seed=9 + number) for number in range(2)}


# -- what parameters are paired by -----------------------------------------------------------------


def test_strangers_that_end_alike_are_a_missing_and_a_foreign_parameter(diff: Callable[..., Answer]) -> None:
    a, b = small(), small()
    b["head.proj.weight"] = b.pop("encoder.wte.weight") * np.float32(1.5) + random(12, 8, seed=70)
    answer = diff(a, b)
    assert answer.code == 1
    assert "encoder.wte.weight is only in A, and head.proj.weight is only in B: no other name fits" in answer.out
    assert "paired 4 by name" in answer.out


def test_one_stranger_with_the_values_of_another_parameter_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    a, b = small(), small()
    b["head.proj.weight"] = b.pop("encoder.wte.weight")
    answer = diff(a, b)
    assert answer.code == 2
    assert "head.proj.weight: it has the values of encoder.wte.weight, and no word of that name" in answer.out


def test_a_parameter_that_only_is_missing_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    a, b = small(), small()
    del b["encoder.wte.weight"]
    assert diff(a, b).code == 2


@pytest.mark.parametrize(
    ("old", "new"), [("encoder.", "module.encoder."), ("encoder.", "transformer.h."), ("encoder", "_orig_mod.encoder")]
)
def test_a_renamed_scope_is_proven_by_its_values(diff: Callable[..., Answer], old: str, new: str) -> None:
    a = small()
    b = {name.replace(old, new): value for name, value in a.items()}
    assert diff(a, b).code == 0
    wrong = b | {new + "l1.fc.weight" if new[-1] == "." else new + ".l1.fc.weight": random(12, 8, seed=77)}
    answer = diff(a, wrong, "--json")
    assert answer.code == 1
    assert answer.json["headline"]["node"] == "encoder.l1.fc.weight"


def test_a_renamed_scope_without_equal_values_is_doubtful_everywhere(diff: Callable[..., Answer]) -> None:
    a = small()
    b = {name.replace("encoder.", "transformer.h."): random(*value.shape, seed=55) for name, value in a.items()}
    answer = diff(a, b)
    assert answer.code == 2
    assert "is paired with transformer.h.l0.fc.bias by the end of the name only, and no value proves it" in answer.out
    assert all(row["doubtful"] for row in diff(a, b, "--json").json["nodes"])
    assert diff(a, b, "--map-name", "s/^encoder/transformer.h/").code == 1


def test_zeros_prove_nothing(diff: Callable[..., Answer]) -> None:
    names = ("encoder.l0.fc.bias", "encoder.l1.fc.bias")
    a = {name: np.zeros(8, np.float32) for name in names}
    assert diff(a, {name.replace("encoder", "other"): value for name, value in a.items()}).code == 2
    assert diff(a, a).code == 0


def test_another_shape_of_a_whole_parameter_is_a_difference(diff: Callable[..., Answer]) -> None:
    answer = diff(small(), small() | {"encoder.l1.fc.weight": random(12, 10)})
    assert answer.code == 1
    assert "encoder.l1.fc.weight at step 0: its shape is 12×8 in A and 12×10 in B" in answer.out


# -- weights that are named and cut otherwise ------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (hugging_face(), vllm(hugging_face())),
        (hugging_face(), megatron(hugging_face())),
        (megatron(hugging_face()), vllm(hugging_face())),
        (hugging_face(), transposed(hugging_face())),
        (experts(), stacked(experts())),
        (experts(), transposed(stacked(experts()))),
    ],
    ids=["vllm", "megatron", "megatron to vllm", "transposed", "experts", "experts transposed"],
)
def test_a_healthy_conversion_is_the_same(diff: Callable[..., Answer], one: Weights, other: Weights) -> None:
    for a, b in ((one, other), (other, one)):
        answer = diff(a, b)
        assert answer.code == 0, answer.out
        assert " by value" in answer.out


def test_a_conversion_may_round(diff: Callable[..., Answer]) -> None:
    other = {name: value.astype(ml_dtypes.bfloat16) for name, value in megatron(hugging_face()).items()}
    answer = diff(hugging_face(), other, "--json")
    assert answer.code == 0
    assert_described(answer.json, "diff")
    made = {row["node"]: row["sources"] for row in answer.json["coverage"]["made_of"]}
    scope = "model.layers.1.self_attn."
    assert made["decoder.layers.1.self_attention.linear_qkv.weight"] == [f"{scope}{each}_proj.weight" for each in "qkv"]


UP, GATE = "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.gate_proj.weight"
KEY, OUT = "model.layers.1.self_attn.k_proj.weight", "model.layers.2.self_attn.o_proj.weight"
FAULTS: dict[str, tuple[Callable[[Weights], Weights], str, str]] = {
    "scaled": (lambda w: w | {KEY: w[KEY] * np.float32(1.5)}, KEY, "B is A times 1.5"),
    "of another layer": (lambda w: w | {UP: w[UP.replace("1", "0")]}, UP, "holds model.layers.0.mlp.up_proj.weight"),
    "swapped": (lambda w: w | {UP: w[GATE], GATE: w[UP]}, GATE, f"holds {UP} of A where {GATE} should be"),
    "transposed": (lambda w: w | {OUT: w[OUT].T.copy()}, OUT, "transposed"),
    "stale": (lambda w: w | {KEY: w[KEY] + random(*w[KEY].shape, seed=3) * np.float32(0.1)}, KEY, "elements differ"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("convert", [vllm, megatron])
def test_the_wrong_weight_of_a_conversion_is_named(
    diff: Callable[..., Answer], convert: Callable[[Weights], Weights], fault: str
) -> None:
    plant, name, says = FAULTS[fault]
    answer = diff(hugging_face(), convert(plant(hugging_face())), "--json")
    assert answer.code == 1
    assert (answer.json["headline"]["node"], len(answer.json["findings"])) == (name, 1)
    assert says in answer.json["headline"]["text"]


def test_an_expert_that_is_a_copy_of_another_one_is_named(diff: Callable[..., Answer]) -> None:
    wrong, copied = (f"layers.1.experts.{number}.up_proj.weight" for number in (2, 0))
    answer = diff(experts(), stacked(experts() | {wrong: experts()[copied]}))
    assert answer.code == 1
    assert f"holds {copied} of A where {wrong} should be" in answer.out


def test_square_matrices_that_alone_are_not_transposed_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    """Their shape does not tell, and a conversion forgets them all at once."""
    one = {
        f"h.{layer}.{name}.weight": random(*shape, seed=9 * layer + len(name))
        for layer in range(2)
        for name, shape in (("c_attn", (8, 24)), ("attn.c_proj", (8, 8)))
    }
    one["wte.weight"] = random(20, 8, seed=99)
    linear = {name: value if name == "wte.weight" else value.T.copy() for name, value in one.items()}
    assert diff(one, linear).code == 0
    forgotten = linear | {name: value for name, value in one.items() if "c_proj" in name}
    answer = diff(one, forgotten)
    assert answer.code == 2
    assert "h.0.attn.c_proj.weight:0: it is square, and not transposed as all other matrices are" in answer.out


def test_a_conversion_that_nothing_proves_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    """Only the fused weights are others: whether they were cut otherwise or hold something else is not known."""
    other = {
        name: random(*value.shape, seed=88) if "qkv" in name or "gate_up" in name else value
        for name, value in vllm(hugging_face()).items()
    }
    assert diff(hugging_face(), other).code == 2


def test_one_wrong_element_of_a_cast_is_found(diff: Callable[..., Answer]) -> None:
    """The rounding of all others hides it in the norm."""
    cast = {name: value.astype(ml_dtypes.bfloat16) for name, value in small().items()}
    assert diff(small(), cast).code == 0
    name = "encoder.l1.fc.weight"
    cast[name][2, 3] = 1.03 * float(cast[name][2, 3])
    answer = diff(small(), cast, "--json")
    assert (answer.code, answer.json["headline"]["node"], answer.json["headline"]["index"]) == (1, name, [2, 3])


def wrapped(of: Weights) -> Weights:
    """As FSDP and checkpoint_wrapper name parameters."""
    inner = "_fsdp_wrapped_module._checkpoint_wrapped_module"
    return {f"_fsdp_wrapped_module.{name.replace('.fc', f'.{inner}.fc')}": value for name, value in of.items()}


def test_names_of_wrappers_are_no_part_of_a_name(diff: Callable[..., Answer]) -> None:
    one = {f"encoder.l{layer}.fc.weight": random(8, 8, seed=layer) for layer in range(3)}
    assert diff(one, wrapped(one)).code == 0
    answer = diff(one, wrapped(one | {"encoder.l1.fc.weight": one["encoder.l1.fc.weight"].T}), "--json")
    assert (answer.code, answer.json["headline"]["node"]) == (1, "encoder.l1.fc.weight")
    assert "transposed" in answer.json["headline"]["text"]


# -- parts of tensor-parallel ranks ------------------------------------------------------------------


def test_parts_of_fused_weights_are_proven_by_values(diff: Callable[..., Answer]) -> None:
    answer = diff(hugging_face(), tensor_parallel(hugging_face()))
    assert answer.code == 0, answer.out
    assert " by value" in answer.out


def test_the_wrong_part_of_a_fused_weight_is_named(diff: Callable[..., Answer]) -> None:
    wrong = hugging_face() | {KEY: hugging_face()[KEY] * np.float32(1.5)}
    ranks = tensor_parallel(hugging_face())
    answer = diff(hugging_face(), [ranks[0], tensor_parallel(wrong)[1]], "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, KEY, 1)
    assert "of rank 1" in answer.json["headline"]["text"]


def test_parts_that_nothing_proves_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    ranks = tensor_parallel(hugging_face())
    for name, value in ranks[1].items():
        if "qkv" in name:
            ranks[1][name] = random(*value.shape, seed=91)
    assert diff(hugging_face(), ranks).code == 2


@pytest.mark.parametrize("name", ["model_tp_rank_0", "model_tp_rank_1", "mp_rank_00_model_states", "consolidated.00"])
def test_the_file_of_one_rank_may_hold_parts_of_its_weights(capsys: Capsys, tmp_path: Path, name: str) -> None:
    """Another shape of what may be a part is no difference: the other ranks are not there."""
    write_arrays(tmp_path / "A", small(), "safetensors")
    part = {each: value[:6] if "fc.weight" in each else value for each, value in small().items()}
    (tmp_path / "B").mkdir()
    write_safetensors(tmp_path / "B" / f"{name}.safetensors", part)
    assert run(capsys, "diff", tmp_path / "A", tmp_path / "B").code == 2


# -- what else a checkpoint has ------------------------------------------------------------------------


def test_the_log_of_a_trainer_takes_part(diff: Callable[..., Answer], tmp_path: Path) -> None:
    def logged(side: str, **numbers: float) -> None:
        log = {"global_step": 20, "log_history": [{"step": 10, "loss": 2.0}, {"step": 20, **numbers}]}
        (tmp_path / side).mkdir(exist_ok=True)
        (tmp_path / side / "trainer_state.json").write_text(json.dumps(log))

    logged("A", loss=1.0, train_runtime=60.0)
    logged("B", loss=1.004, train_runtime=75.0)
    assert diff(small(), small()).code == 0
    logged("B", loss=1.5, train_runtime=60.0)
    answer = diff(small(), small())
    assert answer.code == 1
    assert "loss at step 0: at step 20 the log of B says 1.5, that of A 1" in answer.out
    answer = diff(small(), small() | {"encoder.l1.fc.weight": random(12, 8, seed=77)}, "--json")
    assert answer.json["headline"]["node"] == "encoder.l1.fc.weight"
    assert answer.json["notices"] == ["loss at step 20 the log of B says 1.5, that of A 1"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"lr": 3e-3}, "optimizer/param_groups/0/lr at step 0: B has 0.003, A 0.001"),
        ({"betas": (0.9, 0.95)}, "optimizer/param_groups/0/betas/1 at step 0: B has 0.95, A 0.999"),
        ({"lr": 1e-3 * (1 + 1e-12)}, ""),
        ({"epoch": 4}, "epoch at step 0: B has 4, A 3"),
        (
            {"epoch": 4, "lr": 3e-3},
            "B has 4, A 3; other numbers that differ: optimizer/param_groups/0/lr",
        ),
        ({"elapsed_time": 70.5}, ""),
    ],
)
def test_numbers_beside_the_tensors_of_a_checkpoint_take_part(
    capsys: Capsys, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    torch = pytest.importorskip("torch")
    for side, settings in (("A", {}), ("B", changed)):
        numbers = {"lr": 1e-3, "betas": (0.9, 0.999), "epoch": 3, "elapsed_time": 60.0} | settings
        group = {"lr": numbers["lr"], "betas": numbers["betas"], "params": [0]}
        state = {0: {"exp_avg": torch.ones(2, 3), "step": 5}}
        saved = {"model": {"fc.weight": torch.ones(2, 3)}, "optimizer": {"state": state, "param_groups": [group]}}
        beside = {name: numbers[name] for name in ("epoch", "elapsed_time")}
        torch.save(saved | beside, tmp_path / f"{side}.pt")
    answer = run(capsys, "diff", tmp_path / "A.pt", tmp_path / "B.pt")
    assert answer.code == bool(told)
    assert told in answer.out
