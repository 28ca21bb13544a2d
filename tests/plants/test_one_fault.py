"""One fault in a random tensor file of a random step and rank: ``tdbg check`` names it, and only that rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tests.plants.planting import SIDES, Array, File, Ground, must_find, spoiled, step_of, watches
from tui_debugger.model import Category

pytestmark = pytest.mark.usefixtures("measured_by")

SEEDS = range(4)
FEW = range(3)


@pytest.mark.covering("side", "value")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", SIDES)
def test_one_bad_value(ground: Ground, side: str, value: float, seed: int) -> None:
    chance = np.random.default_rng([seed, SIDES.index(side), 1])
    file = ground.pick(chance, lambda f: f.side == side)
    answer = must_find(ground, file, spoiled(file.load(), chance, value), *watches("TO"), *step_of(file))
    assert len(answer.found) == 1


@pytest.mark.covering
@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("side", SIDES)
def test_a_tensor_of_zeros(ground: Ground, side: str, seed: int) -> None:
    """Constants may be zero, and so may what a parameter starts with."""
    chance = np.random.default_rng([seed, SIDES.index(side), 2])
    file = ground.pick(
        chance,
        lambda f: f.side == side and f.holds is not Category.CONSTANT and f.step > 0 and bool(np.any(f.load())),
    )
    zeros = np.zeros_like(file.load()) * np.float32(chance.choice([1, -1]))
    must_find(ground, file, zeros, *watches("TZ"), *step_of(file), clean=False)


@pytest.mark.covering
@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("side", SIDES)
def test_a_weight_that_stops_changing(ground: Ground, side: str, seed: int) -> None:
    chance = np.random.default_rng([seed, SIDES.index(side), 3])
    file, stale = stuck(ground, chance, lambda f: f.side == side and f.holds is Category.WEIGHT)
    must_find(ground, file, stale, *watches("WNC @ category=weight"), *step_of(file), clean=False)


@pytest.mark.covering
@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("side", SIDES)
def test_any_tensor_that_stops_changing(ground: Ground, side: str, seed: int) -> None:
    chance = np.random.default_rng([seed, SIDES.index(side), 4])
    file, stale = stuck(ground, chance, lambda f: f.side == side and f.holds is not Category.CONSTANT)
    must_find(ground, file, stale, *watches("WNC"), *step_of(file), clean=False)


def stuck(ground: Ground, chance: np.random.Generator, wanted: Callable[[File], bool]) -> tuple[File, Array]:
    """A file of a tensor that changes, and its values of the step before."""
    file = ground.pick(chance, lambda f: wanted(f) and ground.changes(f))
    return file, ground.needed(ground.before(file)).load()


@cache
def largest_mean(files: tuple[File, ...]) -> float:
    return max(float(np.mean(np.abs(f.load()))) for f in files)


@pytest.mark.covering
@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("side", SIDES)
def test_a_gradient_that_is_a_million_times_larger(ground: Ground, side: str, seed: int) -> None:
    chance = np.random.default_rng([seed, SIDES.index(side), 5])
    gradients = [f for f in ground.files if f.holds is Category.GRADIENT and f.rank == 0]
    limit = 10 * largest_mean(tuple(gradients))
    file = ground.pick(
        chance,
        lambda f: f.side == side and f.holds is Category.GRADIENT and bool(np.mean(np.abs(f.load())) * 1e6 > 2 * limit),
    )
    watch = watches(f"{chance.choice(['GL', 'TL'])} abs_mean_gt={limit:g} @ category=gradient")
    must_find(ground, file, file.load() * np.float32(1e6), *watch, *step_of(file))
