"""Looking at a part of the dump that holds the plant, at all of it, and with watchpoints meant for something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.plants.planting import HEALTHY, RANKS, File, Ground, check, must_find, place_of, spoiled, watches
from tui_debugger.model import Category

SEEDS = range(4)
OTHERS = (
    "TZ zero_percentage_ge=100", "TL max_gt=1e30", "TS min_lt=-1e30", "TS abs_mean_lt=0", "TR max_min_gt=1e38",
    "TR range_start_inclusive=0 range_end_inclusive=1 range_percentage_gt=100", "WO @ category=tensor",
    "WNC @ category=tensor", "WCL abs_mean_update_ratio_gt=1e30", "WCS abs_mean_update_ratio_lt=0",
)  # fmt: skip
"""None of them asks for NaN or Inf, yet none can be answered with them: that is a finding."""


def pattern(file: File) -> str:
    """A regular expression for the node whose directory listing shows this file."""
    number = r"\d+" if file.op in ("AddN", "Mul") else re.escape(file.name[-1:])
    stem = file.name.rstrip("0123456789") if number == r"\d+" else file.name[:-1]
    return re.escape(stem).replace("_", "[/._]") + number + "$"


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_restrictions_that_hold_the_plant(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 20])
    file = ground.pick(chance)
    steps, last = str(file.step), max(HEALTHY[ground.name])
    choices = [
        (f"--rank={file.rank}", f"--step={steps}"),
        (f"--rank={file.rank}", f"--step={steps}", f"--filter={pattern(file)}"),
        (f"--step={max(file.step - 1, 0)}-{min(file.step + 1, last)}", f"--filter={pattern(file)}", "--graph=0"),
        (f"--rank=0-{max(RANKS[ground.name])}", f"--step={last},{steps}", "--graph=0"),
    ]
    for choice in choices:
        must_find(ground, file, spoiled(file.load(), chance, np.nan), *watches("TO"), *choice)


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_restrictions_that_leave_the_plant_out(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 21])
    file = ground.pick(chance)
    ranks = ",".join(str(rank) for rank in RANKS[ground.name] if rank != file.rank)
    steps = ",".join(str(step) for step in HEALTHY[ground.name] if step != file.step)
    with ground.planted(file, spoiled(file.load(), chance, np.nan)):
        for choice in ((f"--rank={ranks}", f"--step={file.step}"), (f"--rank={file.rank}", f"--step={steps}")):
            answer = check(ground.root, *watches("TO"), *choice)
            assert (answer.code, answer.found) == (0, set())


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_the_whole_dump_shows_the_plant_and_nothing_else(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 22])
    file = ground.pick(chance)
    steps = () if len(HEALTHY[ground.name]) == 6 else ("--step", "0-2")
    value = chance.choice([np.nan, np.inf, -np.inf])
    answer = must_find(ground, file, spoiled(file.load(), chance, value), *watches("TO"), *steps)
    assert len(answer.found) == 1


@pytest.mark.covering
@pytest.mark.parametrize("text", OTHERS)
def test_a_bad_value_is_a_finding_of_any_watchpoint(ground: Ground, text: str) -> None:
    chance = np.random.default_rng([OTHERS.index(text), 23])
    file = ground.pick(chance, lambda f: f.holds is not Category.CONSTANT and f.step > 0)
    values = spoiled(file.load(), chance, np.nan if chance.integers(2) else np.inf)
    must_find(ground, file, values, *watches(text), *place_of(file), clean=False)


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
def test_a_bad_value_in_the_copy_of_a_constant(grounds: Callable[[str], Ground], name: str, seed: int) -> None:
    """Also with the constant's own file bad, where it has one: nobody watches that."""
    ground = grounds(name)
    chance = np.random.default_rng([seed, 24])
    file = ground.pick(chance, lambda f: f.holds is Category.CONSTANT)
    values = spoiled(file.load(), chance, chance.choice([np.nan, np.inf]))
    answer = must_find(ground, file, values, *watches("TO"), *place_of(file))
    assert len(answer.found) == 1
    for constant in file.path.parent.parent.glob("constants/*"):
        if constant.read_bytes() == file.path.read_bytes():
            with ground.planted(replace(file, path=constant), values):
                must_find(ground, file, values, *watches("TO"), *place_of(file), beside=True)
