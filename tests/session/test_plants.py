"""Faults planted one at a time into copies of healthy real dumps: each is found, and nothing was there before.

Every plant gets a session of its own, because in the newest dumps the files themselves decide which node they
belong to. A finding is compared by file, so that a wrong assignment cannot hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.session.opened import checked, file_of, opened, writable_copy
from tui_debugger.graph.query import NodeQuery
from tui_debugger.model import Category, ErrorBits, Side, Verdict
from tui_debugger.session import Session

Array = npt.NDArray[Any]

DUMPS = ("mindspore-2.0-mlp", "mindspore-2.10-mlp")
SEEDS = range(6)
NAME = re.compile(r"(?P<type>\w+)\.(?P<tensor>.+)\.(?P<time>\d+)\.(?P<place>(input|output)\.\d+)\.DefaultFormat.*\.npy")


@dataclass(frozen=True)
class Dump:
    """A writable copy of a dump, what its healthy files are about, and what each watchpoint finds in them."""

    root: Path
    files: tuple[Path, ...]
    healthy: Session
    categories: dict[Path, tuple[Category, Side]]

    def step(self, number: int) -> Path:
        """The directory of a step."""
        (path,) = self.root.glob(f"rank_0/*/0/{number}")
        return path

    def of(self, category: Category, side: Side = Side.OUTPUT, first: int = 0) -> list[Path]:
        """Float files of one category from a step on."""
        return [
            path
            for path in self.files
            if self.categories.get(path) == (category, side) and int(path.parent.name) >= first
        ]


@pytest.fixture(scope="module", params=DUMPS)
def dump(
    request: pytest.FixtureRequest, dumps: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Dump:
    root = writable_copy(dumps(request.param), tmp_path_factory.mktemp("plants") / "dump")
    session = opened(root)
    nodes = session.nodes(0)
    categories = {}
    for step in session.steps(0):
        table = session.source.tensors(0, step)
        for i in range(len(table)):
            row = int(table.node[i])
            side = Side(int(table.side[i]))
            if side is Side.INPUT:
                row = session.flow(0).holder(row, int(table.slot[i])).row
            category = nodes.category_of(row) if row >= 0 else Category.OTHER
            categories[Path(table.spec(i).path)] = (category, side)
    floats = [path for path in sorted(categories) if np.load(path).dtype == np.float32]
    return Dump(root, tuple(floats), session, categories)


@contextmanager
def planted(path: Path, values: Array) -> Iterator[None]:
    """Other values in a file for a while."""
    kept = path.read_bytes()
    np.save(path, values)
    try:
        yield
    finally:
        path.write_bytes(kept)


def findings(root: Path, watch: str, step: int) -> dict[Path, ErrorBits]:
    """What one watchpoint finds in one step: the error bits by file."""
    session = opened(root, watch)
    hits = [hit for hit in checked(session, step) if hit.verdict is Verdict.FINDING]
    return {file_of(session, hit): hit.results[0].error for hit in hits}


def must_find(dump: Dump, watch: str, path: Path, values: Array) -> None:
    """The watchpoint finds the plant, and did not find that file before."""
    step = int(path.parent.name)
    assert path not in findings(dump.root, watch, step), "found without a plant"
    with planted(path, values):
        assert findings(dump.root, watch, step).get(path) is ErrorBits.NONE, path.name


def pick(files: Sequence[Path], seed: int, usable: Callable[[Array], bool] = lambda _: True) -> tuple[Path, Array]:
    """A random file with usable values, and a copy of them."""
    chance = np.random.default_rng(seed)
    while True:
        path = files[int(chance.integers(len(files)))]
        values = np.load(path)
        if usable(values):
            return path, values.copy()


def place(values: Array, seed: int, value: float) -> Array:
    """The values with one of them replaced."""
    values.reshape(-1)[np.random.default_rng(seed).integers(values.size)] = value
    return values


def test_the_unplanted_copies_have_no_bad_value_anywhere(dump: Dump) -> None:
    session = opened(dump.root, "TO")
    result = session.check(session.pairs())
    assert result.hits == ()
    assert result.coverage.unreadable == 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", list(Side))
def test_one_bad_value_is_found_in_any_file(dump: Dump, side: Side, value: float, seed: int) -> None:
    files = [path for path in dump.files if dump.categories[path][1] is side]
    path, values = pick(files, seed * 31 + int(side))
    must_find(dump, "TO", path, place(values, seed, value))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", list(Side))
def test_a_tensor_of_zeros_is_found_in_any_file(dump: Dump, side: Side, seed: int) -> None:
    """Inputs fed by constants are left out: a constant may well be zero."""
    files = [p for p in dump.files if dump.categories[p][1] is side and dump.categories[p][0] is not Category.CONSTANT]
    path, values = pick(files, seed * 37 + int(side), lambda v: bool(np.any(v)))
    must_find(dump, "TZ", path, np.zeros_like(values))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_weight_that_stops_changing_is_found(dump: Dump, seed: int) -> None:
    path, values = pick(dump.of(Category.WEIGHT, first=1), seed * 41)
    while np.allclose(before(path), values, rtol=1e-5, atol=1e-8):  # some weights of this net never learn
        seed += 100
        path, values = pick(dump.of(Category.WEIGHT, first=1), seed)
    must_find(dump, "WNC @ category=weight", path, before(path))


def before(path: Path) -> Array:
    """The same tensor at the step before."""
    this = NAME.fullmatch(path.name)
    assert this is not None
    step = path.parent.parent / str(int(path.parent.name) - 1)
    for other in step.glob(f"{this['type']}.*"):
        that = NAME.fullmatch(other.name)
        if that is not None and (that["tensor"], that["place"]) == (this["tensor"], this["place"]):
            values: Array = np.load(other)
            return values
    raise AssertionError(path)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", list(Side))
def test_a_gradient_that_explodes_is_found(dump: Dump, side: Side, seed: int) -> None:
    path, values = pick(dump.of(Category.GRADIENT, side), seed * 43, lambda v: bool(np.mean(np.abs(v)) > 1e-3))
    must_find(dump, "GL abs_mean_gt=100 @ category=gradient", path, values * np.float32(1e6))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_jump_of_any_output_is_found(dump: Dump, seed: int) -> None:
    """Change conditions work on every tensor, not on weights only."""
    files = [p for p in dump.files if dump.categories[p][1] is Side.OUTPUT and int(p.parent.name) > 0]
    path, values = pick(files, seed * 47, lambda v: bool(np.any(v)))
    if np.any(before(path)):
        must_find(dump, "WCL abs_mean_update_ratio_gt=1000", path, values * np.float32(1e7))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plant_changes_the_verdict_on_nothing_but_its_own_file(dump: Dump, seed: int) -> None:
    path, values = pick(dump.files, seed * 53)
    with planted(path, place(values, seed, np.nan)):
        session = opened(dump.root, "TO")
        hits = checked(session)
        assert {file_of(session, hit) for hit in hits} == {path}
        assert session.hit_rows(0).sum() == 1
        assert session.select(0, NodeQuery(hit=True)).sum() == 1
