"""Many watchpoints and many faults at once: each watchpoint finds what it finds alone, and what plain numpy finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from tests.plants.planting import Answer, Array, File, Ground, check, spoiled, watches
from tests.thorough import few

SEEDS = few(range(3), 1)
TEXTS = (
    "TO", "TO @ category=gradient", "GE", "WO", "TO @ category=parameter", "TO @ MatMul", "TO @ Adam|SGD",
    "TZ", "TZ zero_percentage_ge=50 @ category=activation", "TZ @ category=tensor, -category=parameter",
    "TL max_gt=0.5", "TL mean_gt=0.01 @ category=gradient", "WL max_gt=0.3", "GL abs_mean_gt=0.001", "TS min_lt=-1",
    "TR range_start_inclusive=-0.1 range_end_inclusive=0.1 range_percentage_lt=20", "AR max_min_gt=0.5",
    "WNC", "WNC @ category=optimizer_state", "WNC rtol=0.1 @ category=trainable",
    "WCL abs_mean_update_ratio_gt=0.1", "WCL abs_mean_update_ratio_gt=1 @ category=tensor", "WCS", "WI",
    "WCS abs_mean_update_ratio_lt=0.01 @ category=tensor, -bias", "TO @ Mul|AddN", "TZ @ Reshape|Transpose|Div",
)  # fmt: skip


def fault(ground: Ground, file: File, chance: np.random.Generator) -> Array:
    """One of the faults, with other values than the file has."""
    values, before = file.load(), ground.before(file)
    kind = chance.integers(6)
    if kind == 0 and before is not None:
        return before.load()
    if kind == 1:
        return np.zeros_like(values)
    if kind == 2:
        larger: Array = values * np.float32(1e6)
        return larger
    if kind == 3:
        return np.expand_dims(values, 0)
    return spoiled(values, chance, float(chance.choice([np.nan, np.inf, -np.inf])))


@contextmanager
def many_faults(ground: Ground, chance: np.random.Generator, count: int) -> Iterator[None]:
    """Several faults, each in a file of its own; every second one goes into all files with the same values."""
    with ExitStack() as plants:
        taken: set[File] = set()
        for number in range(count):
            file = ground.pick(chance, lambda f: f not in taken)
            content, values = fault(ground, file, chance), file.load()
            same = [f for f in ground.of(file.rank, file.step) if number % 2 and equal(f.load(), values)]
            for other in {file, *same} - taken:
                taken.add(other)
                plants.enter_context(ground.planted(other, content, slot=len(taken)))
        yield


def equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def rows(answer: Answer, watchpoint: int) -> dict[str, list[tuple[object, ...]]]:
    """What one watchpoint said, by verdict; and how many tensors it looked at."""
    said: dict[str, list[tuple[object, ...]]] = {}
    for hit in answer.hits:
        for result in hit["results"]:
            if result["watchpoint"] == watchpoint:
                key = (hit["rank"], hit["step"], hit["node"], hit["side"], hit["slot"], result["error"])
                said.setdefault(result["verdict"], []).append(key)
    (tensors,) = (row["tensors"] for row in answer.document["watchpoints"] if row["id"] == watchpoint)
    return {**{verdict: sorted(keys) for verdict, keys in said.items()}, "tensors": [(tensors,)]}


def compare_with_each_alone(ground: Ground, texts: Sequence[str], *where: str) -> None:
    """One command with all watchpoints against one command for each."""
    together = check(ground.root, *watches(*texts), *where)
    codes = []
    for number, text in enumerate(texts, start=1):
        alone = check(ground.root, *watches(text), *where)
        codes.append(alone.code)
        assert rows(together, number) == rows(alone, 1), text
    assert together.code == (1 if 1 in codes else max(codes))


@pytest.mark.covering
@pytest.mark.parametrize("seed", range(3))
def test_each_watchpoint_finds_what_it_finds_alone(ground: Ground, seed: int) -> None:
    chance = np.random.default_rng([seed, 30])
    texts = [str(text) for text in chance.choice(TEXTS, 5, replace=False)]
    step = str(chance.choice([0, 1, 2]))
    with many_faults(ground, chance, 6):
        compare_with_each_alone(ground, texts, "--step", step)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
def test_also_where_hundreds_of_tensors_are_bad(grounds: Callable[[str], Ground], name: str, seed: int) -> None:
    ground, chance = grounds(name), np.random.default_rng([seed, 31])
    texts = [str(text) for text in chance.choice(TEXTS, 4, replace=False)]
    where = ("--step", str(chance.choice([3, 4])), "--rank", "0")
    filters = [(), ("--filter", "MatMul"), ("--filter", "blocks")]
    compare_with_each_alone(ground, texts, *where, *filters[seed])
