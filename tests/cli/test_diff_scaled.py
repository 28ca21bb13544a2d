"""``tdbg diff A B`` of checkpoints that keep weights in one byte an element, beside scales."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import Answer, run
from tests.sources.arrays import write_arrays

Capsys = pytest.CaptureFixture[str]
Weights = dict[str, npt.NDArray[Any]]
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
MOST = {FP8: 448.0, np.dtype(ml_dtypes.float8_e5m2): 57344.0, np.dtype(np.int8): 127.0}
HEIGHT, WIDTH = 256, 192
WRONG = "layers.1.self_attn.k_proj.weight"


@pytest.fixture
def diff(capsys: Capsys, tmp_path: Path) -> Callable[..., Answer]:
    def compared(a: Weights, b: Weights, *words: str) -> Answer:
        for name, values in {"A": a, "B": b}.items():
            write_arrays(tmp_path / name, values, "safetensors")
        return run(capsys, "diff", tmp_path / "A", tmp_path / "B", *words)

    return compared


def plain() -> Weights:
    made: Weights = {"norm.weight": np.ones(WIDTH, ml_dtypes.bfloat16)}
    for layer in range(2):
        for number, name in enumerate("qkvo"):
            values = np.random.default_rng([layer, number]).normal(size=(HEIGHT, WIDTH)) * 0.02
            made[f"layers.{layer}.self_attn.{name}_proj.weight"] = values.astype(ml_dtypes.bfloat16)
    return made


def kept(
    of: Weights, block: tuple[int, int], end: str = "_scale", dtype: np.dtype[Any] = FP8, shape: tuple[int, ...] = ()
) -> Weights:
    """Returns weights as elements and scales: one for each block."""
    made = {}
    for name, whole in of.items():
        if whole.ndim < 2:
            made[name] = whole
            continue
        wide = whole.astype(np.float32)
        counts = -(-HEIGHT // block[0]), -(-WIDTH // block[1])
        scales = np.empty(counts, np.float32)
        values = np.empty(wide.shape, dtype)
        for at in np.ndindex(counts):
            part = tuple(slice(n * size, (n + 1) * size) for n, size in zip(at, block, strict=True))
            scales[at] = np.abs(wide[part]).max() / MOST[dtype]
            scaled = wide[part] / scales[at]
            values[part] = (np.rint(scaled) if dtype.kind == "i" else scaled).astype(dtype)
        made[name] = values
        made[f"{name}{end}"] = scales.reshape(shape) if shape else scales
    return made


def fused(of: Weights) -> Weights:
    """q, k and v of a layer in one weight, and their scales as well."""
    made = {}
    for name, value in of.items():
        if ".q_proj." in name:
            made[name.replace("q_proj", "qkv_proj")] = np.concatenate(
                [of[name.replace("q_proj", f"{each}_proj")] for each in "qkv"]
            )
        elif not any(each in name for each in (".k_proj", ".v_proj")):
            made[name] = value
    return made


KINDS: dict[str, Callable[[], Weights]] = {
    "blocks": lambda: kept(plain(), (128, 128), "_scale_inv"),
    "rows": lambda: kept(plain(), (1, WIDTH)),
    "rows, a vector": lambda: kept(plain(), (1, WIDTH), shape=(HEIGHT,)),
    "whole": lambda: kept(plain(), (HEIGHT, WIDTH), shape=(1,)),
    "e5m2": lambda: kept(plain(), (128, 128), "_scale_inv", np.dtype(ml_dtypes.float8_e5m2)),
    "int8": lambda: kept(plain(), (1, WIDTH), dtype=np.dtype(np.int8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_copy_is_the_same_within_its_rounding(diff: Callable[..., Answer], kind: str) -> None:
    for a, b in ((plain(), KINDS[kind]()), (KINDS[kind](), plain())):
        answer = diff(a, b)
        assert answer.code == 0, answer.out
        assert "8 weights as the elements times their scales mean, within their rounding" in answer.out


@pytest.mark.parametrize("factor", [2.0, 0.5, 1.03])
@pytest.mark.parametrize("kind", [each for each in KINDS if "rows" not in each and each != "int8"])
def test_one_wrong_scale_names_its_weight(diff: Callable[..., Answer], kind: str, factor: float) -> None:
    wrong = KINDS[kind]()
    scale = next(name for name in wrong if name.startswith(f"{WRONG}_scale"))
    wrong[scale] = wrong[scale].copy()
    wrong[scale].flat[-1] *= factor
    answer = diff(plain(), wrong, "--json")
    assert answer.code == 1
    assert (answer.json["headline"]["node"], len(answer.json["findings"])) == (WRONG, 1)
    times = re.search(r"scale.*: B is A times ([0-9.]+)", answer.json["headline"]["text"])
    assert times is not None
    assert float(times[1]) == pytest.approx(factor, rel=0.005)


def test_a_wrong_scale_of_a_row_says_which_row(diff: Callable[..., Answer]) -> None:
    wrong = kept(plain(), (1, WIDTH))
    wrong[f"{WRONG}_scale"][100] *= 2
    assert f"{WRONG} at step 0: the scale of row 100: B is A times" in diff(plain(), wrong).out


def test_copies_with_other_blocks_are_the_same(diff: Callable[..., Answer]) -> None:
    assert diff(KINDS["blocks"](), KINDS["rows"]()).code == 0


def test_elements_of_another_layer_beside_the_right_scale(diff: Callable[..., Answer]) -> None:
    wrong = KINDS["blocks"]()
    wrong[WRONG] = wrong[WRONG.replace("1", "0")]
    answer = diff(plain(), wrong, "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, WRONG, 1)


def test_scales_of_activations_are_not_compared_and_that_is_said(diff: Callable[..., Answer]) -> None:
    name = WRONG.replace(".weight", ".input_scale")
    answer = diff(plain(), KINDS["rows"]() | {name: np.ones((), np.float32)})
    assert answer.code == 0
    assert f"only in B: {name} (step 0): a scale of activations: no weight depends on it" in answer.out


def test_a_scale_that_does_not_fit_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    answer = diff(plain(), KINDS["blocks"]() | {f"{WRONG}_scale_inv": np.ones((3, 3), np.float32)})
    assert answer.code == 2
    assert f"{WRONG}:0: the shape of its scale does not fit" in answer.out


@pytest.mark.parametrize("kind", ["blocks", "rows"])
def test_fused_weights_beside_scales(diff: Callable[..., Answer], kind: str) -> None:
    healthy = fused(KINDS[kind]())
    answer = diff(plain(), healthy)
    assert answer.code == 0, answer.out
    wrong = {name: value.copy() for name, value in healthy.items()}
    scale = next(name for name in wrong if name.startswith("layers.1.self_attn.qkv_proj.weight_scale"))
    wrong[scale][len(wrong[scale]) // 2] *= 2
    answer = diff(plain(), wrong, "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, WRONG, 1)
