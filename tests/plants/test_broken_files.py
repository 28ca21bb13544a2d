"""Files that are cut, gone or of another shape: never clean when that keeps a watchpoint from judging."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.plants.planting import SIDES, File, Ground, check, must_find, place_of, spoiled, step_of, watches
from tui_debugger.model import Category

SEEDS = range(3)
NEVER = "WCL abs_mean_update_ratio_gt=1e30"
"""Compares with the step before, and finds nothing in values that are numbers."""
CUTS: dict[str, Callable[[bytes], bytes]] = {
    "one byte short": lambda raw: raw[:-1],
    "half of it": lambda raw: raw[: len(raw) // 2],
    "half a header": lambda raw: raw[:40],
    "empty": lambda raw: raw[:0],
    "something else": lambda raw: b"\x00" * len(raw),
}


@pytest.mark.covering
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("side", SIDES)
def test_an_unreadable_file_is_not_clean(ground: Ground, side: str, cut: str) -> None:
    chance = np.random.default_rng([list(CUTS).index(cut), SIDES.index(side), 10])
    file = ground.pick(chance, lambda f: f.side == side)
    # Only an overflow is looked for in the copies of constants.
    text = "TO" if file.holds is Category.CONSTANT or chance.integers(2) else NEVER
    file = file if file.step else ground.needed(ground.after(file))
    command = (*watches(text), *place_of(file))
    assert ground.healthy(*command).code == 0
    with ground.planted(file, CUTS[cut](file.path.read_bytes())):
        answer = check(ground.root, *command)
        allowed = check(ground.root, *command, "--allow-unreadable")
    assert (answer.code, answer.found) == (2, set())
    assert answer.document["coverage"]["unreadable"] == 1
    (row,) = (hit for hit in answer.hits if hit["verdict"] == "cannot_judge")
    assert ground.is_about((row["rank"], row["step"], row["node"], row["side"], row["slot"]), file)
    assert (allowed.code, allowed.found) == (0, set())


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_an_unreadable_file_at_the_step_before_keeps_a_change_from_being_judged(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 11])
    file = ground.pick(chance, lambda f: f.side == "output" and ground.after(f) is not None)
    command = (*watches(NEVER), *place_of(ground.needed(ground.after(file))))
    assert ground.healthy(*command).code == 0
    with ground.planted(file, file.path.read_bytes()[:-4]):
        assert check(ground.root, *command).code == 2


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_a_finding_outranks_an_unreadable_file(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 12])
    cut = ground.pick(chance)
    bad = ground.pick(chance, lambda f: f.step == cut.step and f.path != cut.path)
    with ground.planted(cut, b""):
        assert check(ground.root, *watches("TO"), *step_of(cut)).code == 2
        with ground.planted(bad, spoiled(bad.load(), chance, np.nan), slot=1):
            answer = check(ground.root, *watches("TO"), *step_of(cut))
            assert answer.code == 1
            assert answer.found == ground.about(answer, bad)


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_file_keeps_the_next_step_from_being_compared(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 13])
    file = ground.pick(chance, lambda f: f.side == "output" and ground.after(f) is not None)
    command = (*watches(NEVER), *place_of(ground.needed(ground.after(file))))
    assert ground.healthy(*command).code == 0
    with ground.planted(file, None):
        answer = check(ground.root, *command)
        row = next(hit for hit in answer.hits if hit["verdict"] == "cannot_judge")
        after = ground.needed(ground.after(file))
        assert ground.is_about((row["rank"], row["step"], row["node"], row["side"], row["slot"]), after)
    assert (answer.code, answer.found) == (2, set())


@pytest.mark.covering
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_missing_file_held_is_judged_where_it_was_read(ground: Ground, seed: int) -> None:
    """The consumer's input is the only file left of the tensor."""
    chance = np.random.default_rng([seed, 14])
    read = ground.pick(chance, lambda f: f.side == "input" and producer(ground, f) is not None)
    made = ground.needed(producer(ground, read))
    with ground.planted(made, None):
        must_find(
            ground,
            read,
            spoiled(read.load(), chance, np.inf),
            *watches("TO"),
            *place_of(read),
            beside=True,
            incomplete=True,
        )


def producer(ground: Ground, file: File) -> File | None:
    """The one output file of the same step with the same values, for what an operator made."""
    same = [
        other
        for other in ground.of(file.rank, file.step)
        if other.side == "output" and other.holds is file.holds and np.array_equal(other.load(), file.load())
    ]
    return same[0] if len(same) == 1 and same[0].op != "Parameter" and same[0].name != file.name else None


@pytest.mark.covering("side", "text")
@pytest.mark.parametrize("text", ["WNC", NEVER, "WCS abs_mean_update_ratio_lt=0"])
@pytest.mark.parametrize("side", SIDES)
def test_a_changed_shape(ground: Ground, side: str, text: str) -> None:
    """Of the very same elements, or with some of them gone; found again at the step after, where it changes back."""
    for seed in range(2):
        chance = np.random.default_rng([seed, SIDES.index(side), 15])
        file = ground.pick(
            chance,
            lambda f: (
                f.side == side
                and f.holds is not Category.CONSTANT
                and f.load().ndim > 1
                and f.load().shape[0] > 1
                and ground.changes(f)
                and (after := ground.after(f)) is not None
                and ground.changes(after)
            ),
        )
        values = file.load()
        other = values[:, None] if seed else values[: values.shape[0] // 2]
        must_find(ground, file, other, *watches(text), *place_of(file), clean=False)
        after = ground.needed(ground.after(file))
        with ground.planted(file, other):
            assert ground.about(check(ground.root, *watches(text), *place_of(after)), after)
