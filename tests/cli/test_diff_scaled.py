"""``tdbg diff A B`` of checkpoints that keep weights in one byte an element, beside scales."""

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.cli.checkpoints import HEIGHT, WIDE, Weights, fused, kept, wide
from tests.cli.running import Answer

WRONG = "layers.1.self_attn.k_proj.weight"


KINDS: dict[str, Callable[[], Weights]] = {
    "blocks": lambda: kept(wide(), (128, 128), "_scale_inv"),
    "rows": lambda: kept(wide(), (1, WIDE)),
    "rows, a vector": lambda: kept(wide(), (1, WIDE), shape=(HEIGHT,)),
    "whole": lambda: kept(wide(), (HEIGHT, WIDE), shape=(1,)),
    "e5m2": lambda: kept(wide(), (128, 128), "_scale_inv", np.dtype(ml_dtypes.float8_e5m2)),
    "int8": lambda: kept(wide(), (1, WIDE), dtype=np.dtype(np.int8)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_copy_is_the_same_within_its_rounding(diff: Callable[..., Answer], kind: str) -> None:
    for a, b in ((wide(), KINDS[kind]()), (KINDS[kind](), wide())):
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
    answer = diff(wide(), wrong, "--json")
    assert answer.code == 1
    assert (answer.json["headline"]["node"], len(answer.json["findings"])) == (WRONG, 1)
    times = re.search(r"scale.*: B is A times ([0-9.]+)", answer.json["headline"]["text"])
    assert times is not None
    assert float(times[1]) == pytest.approx(factor, rel=0.005)


def test_a_wrong_scale_of_a_row_says_which_row(diff: Callable[..., Answer]) -> None:
    wrong = kept(wide(), (1, WIDE))
    wrong[f"{WRONG}_scale"][100] *= 2
    assert f"{WRONG} at step 0: the scale of row 100: B is A times" in diff(wide(), wrong).out


def test_copies_with_other_blocks_are_the_same(diff: Callable[..., Answer]) -> None:
    assert diff(KINDS["blocks"](), KINDS["rows"]()).code == 0


def test_elements_of_another_layer_beside_the_right_scale(diff: Callable[..., Answer]) -> None:
    wrong = KINDS["blocks"]()
    wrong[WRONG] = wrong[WRONG.replace("1", "0")]
    answer = diff(wide(), wrong, "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, WRONG, 1)


def test_scales_of_activations_are_not_compared_and_that_is_said(diff: Callable[..., Answer]) -> None:
    name = WRONG.replace(".weight", ".input_scale")
    answer = diff(wide(), KINDS["rows"]() | {name: np.ones((), np.float32)})
    assert answer.code == 0
    assert f"only in B: {name} (step 0): a scale of activations: no weight depends on it" in answer.out


def test_a_scale_that_does_not_fit_cannot_be_judged(diff: Callable[..., Answer]) -> None:
    answer = diff(wide(), KINDS["blocks"]() | {f"{WRONG}_scale_inv": np.ones((3, 3), np.float32)})
    assert answer.code == 2
    assert f"{WRONG}:0: the shape of its scale does not fit" in answer.out


@pytest.mark.parametrize("kind", ["blocks", "rows"])
def test_fused_weights_beside_scales(diff: Callable[..., Answer], kind: str) -> None:
    healthy = fused(KINDS[kind]())
    answer = diff(wide(), healthy)
    assert answer.code == 0, answer.out
    wrong = {name: value.copy() for name, value in healthy.items()}
    scale = next(name for name in wrong if name.startswith("layers.1.self_attn.qkv_proj.weight_scale"))
    wrong[scale][len(wrong[scale]) // 2] *= 2
    answer = diff(wide(), wrong, "--json")
    assert (answer.code, answer.json["headline"]["node"], len(answer.json["findings"])) == (1, WRONG, 1)
