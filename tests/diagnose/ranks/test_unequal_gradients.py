"""Why reduced gradients of a step differ between ranks: they were not reduced, or were clipped for another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tui_debugger.diagnose.ranks.unequal_gradients import why_unequal

Array = npt.NDArray[Any]
NAMES = [f"Gradients/{number}/weight" for number in range(8)]


def gradient(*seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(64).astype(np.float32)


def asked(held: dict[tuple[str, int], Array]) -> dict[str, tuple[str, bool]]:
    found = why_unequal(dict.fromkeys(NAMES, (0, 1)), lambda name, rank: held.get((name, rank)), "/local")
    return {name: (each.text, each.passed_on) for name, each in found.items()}


def test_gradients_that_are_what_a_rank_put_in_were_not_reduced() -> None:
    """They were clipped after that, on each rank by its own norm."""
    held = {}
    for number, name in enumerate(NAMES):
        for rank in (0, 1):
            held[f"{name}/local", rank] = gradient(number, rank)
            held[name, rank] = gradient(number, rank) * np.float32(0.5 + 0.1 * rank)
    assert set(asked(held).values()) == {("each rank has what it put in: it was not reduced", False)}


def clipped(wrong: float, noise: float = 0.0) -> dict[tuple[str, int], Array]:
    """Rank 1 has one wrong gradient, so that the norm by which it clips is another one."""
    held = {}
    for number, name in enumerate(NAMES):
        held[name, 0] = gradient(number)
        held[name, 1] = gradient(number) * np.float32(0.93) + np.float32(noise) * gradient(number, 7)
    held[NAMES[3], 1] = held[NAMES[3], 1] * np.float32(wrong)
    return held


def test_gradients_that_one_factor_explains_were_clipped_for_another_one() -> None:
    found = asked(clipped(0.5))
    assert set(found) == {*NAMES} - {NAMES[3]}
    assert {each for _, each in found.values()} == {True}
    assert all("by the factor 0.93, as most" in text for text, _ in found.values())


def test_where_no_factor_explains_them_nothing_is_said() -> None:
    assert asked(clipped(0.5, noise=0.01)) == {}
    assert asked(clipped(1.0)) == {}
