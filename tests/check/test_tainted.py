"""Tensors that need not be asked where they come from: leaving them out changes no answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import checked, opened
from tests.thorough import few
from tui_debugger.check import step as checked_step
from tui_debugger.diagnose.origin import search
from tui_debugger.model import TensorKey
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source

STEPS = (0, 1)
Part = tuple[float, float, float]
"""Parts of the files that get a NaN, an Inf in all elements, or are deleted."""
PARTS: tuple[Part, ...] = ((0.02, 0, 0), (0.3, 0.1, 0.1), (0.9, 0.05, 0.3), (0.5, 0, 0), (0.1, 0.1, 0.6))
DAMAGE = [
    *((name, part) for name in ("mindspore-2.0-mlp", "mindspore-2.10-mlp") for part in PARTS),
    *((name, PARTS[1]) for name in ("mindspore-2.0-nan", "mindspore-2.10-nan")),
]


def ask_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing could be told in columns."""
    for module in (checked_step, search):
        monkeypatch.setattr(module, "surely_tainted", lambda *asked: np.zeros(len(asked[2]), np.bool_))


def spoiled(dump: Path, target: Path, part: Part, seed: int) -> Path:
    """Two steps of a dump with random damage."""
    chance = np.random.default_rng([seed, *(round(100 * each) for each in part)])
    for folder in ("graphs", "execution_order", ".dump_metadata"):
        if (dump / "rank_0" / folder).is_dir():
            shutil.copytree(dump / "rank_0" / folder, target / "rank_0" / folder)
    for step in STEPS:
        for source in sorted(dump.glob(f"rank_0/*/0/{step}/*.npy")):
            copy = target / source.relative_to(dump)
            copy.parent.mkdir(parents=True, exist_ok=True)
            values, dice = np.load(source), chance.random()
            if values.dtype.kind == "f" and values.size and dice < part[0] + part[1]:
                values[() if dice < part[1] else (0,) * values.ndim] = np.inf if dice < part[1] else np.nan
            if chance.random() >= part[2]:
                np.save(copy, values)
    return target


def origins(dump: Source) -> dict[TensorKey, bool]:
    """Every hit, and whether it is an origin."""
    return {hit.key: hit.origin for hit in checked(opened(dump, "TO"))}


@pytest.mark.parametrize(("name", "part"), few(DAMAGE, 3), ids=str)
def test_random_damage_has_the_same_origins(
    name: str, part: Part, tmp_path: Path, dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = open_source(spoiled(dumps(name), tmp_path / "dump", part, seed=1))
    quick, searched = origins(dump), opened(dump).find_origin([(0, step) for step in STEPS])
    ask_everything(monkeypatch)
    assert quick == origins(dump)
    assert any(quick.values())
    slowly = opened(dump).find_origin([(0, step) for step in STEPS])
    assert (searched.origins, searched.end) == (slowly.origins, slowly.end)
    assert [(each.first, each.before, each.bad) for each in searched.searches] == [
        (each.first, each.before, each.bad) for each in slowly.searches
    ]


@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
def test_of_a_run_that_broke_hardly_any_tensor_is_left_to_be_asked(
    name: str, dumps: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    find = checked_step.find_origins

    def counted(*arguments: object) -> object:
        asked.append(len(arguments[2]))  # type: ignore[arg-type] # the hits
        return find(*arguments)  # type: ignore[arg-type] # handed on

    monkeypatch.setattr(checked_step, "find_origins", counted)
    hits = checked(opened(dumps(name), "TO"))
    assert {hit.key.node.rsplit("/", 1)[-1].split("-")[0] for hit in hits if hit.origin} == {"Log", "Div"}
    assert sum(asked) < 0.1 * len(hits)
