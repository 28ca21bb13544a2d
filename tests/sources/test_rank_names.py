"""One file for each rank: which rank is told by every way to name it, whichever directories lie around it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tui_debugger.sources import open_source
from tui_debugger.sources.rank_names import (
    UNNAMED,
    confirmed,
    megatron_numbers,
    number_places,
    rank_of_folder,
    read_rank,
    sized_places,
)

Capsys = pytest.CaptureFixture[str]
NAMED = {
    "rank-{}": "",
    "rank{}": "",
    "rank_{}/grads": "grads/",
    "grads_rank{}": "grads/",
    "grads.rank={}": "grads/",
    "dp{}_tp0": "",
    "tp_rank_{}_pp_rank_0": "",
    "tp{}": "",
    "worker{}": "",
    "gpu{}/grads": "grads/",
    "proc{}/grads": "grads/",
    "model_rank_{}_of_2": "",
    "model_world_size_2_rank_{}": "",
    "zero_pp_rank_{}_mp_rank_00_optim_states": "optim_states/",
    "bf16_zero_pp_rank_{}_mp_rank_00_optim_states": "optim_states/",
    "mp_rank_0{}/model_optim_rng": "model_optim_rng/",
    "mp_rank_01_00{}/model_optim_rng": "model_optim_rng/",
    "mp_rank_00_000_00{}/model_optim_rng": "model_optim_rng/",
    "consolidated.0{}": "",
}
"""How the file of a rank is called, and what of that belongs to the names of tensors."""


def write(root: Path, name: str, *, bad: int) -> None:
    """Writes what two ranks hold; a rank has NaN."""
    for rank in range(2):
        path = root / f"{name.format(rank)}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, grad=np.array([1.0, np.nan if rank == bad else 2.0]))


@pytest.mark.parametrize("above", ["", "step_3", "global_step_3/actor"])
@pytest.mark.parametrize("name", NAMED)
def test_the_rank_that_has_nan_is_the_one_that_broke_first(
    tmp_path: Path, capsys: Capsys, name: str, above: str
) -> None:
    write(tmp_path / above, name, bad=1)
    source = open_source(tmp_path)
    assert list(source.ranks()) == [0, 1]
    assert run(capsys, "ranks", tmp_path).lines[0].startswith("Rank 1 broke first")
    for rank in source.ranks():
        for step in source.steps(rank):
            source.tensors(rank, step)
        (node,) = source.nodes(rank).names
        assert node == f"{'actor/' * ('actor' in above)}{NAMED[name]}grad"


@pytest.mark.parametrize(
    "name", ["tp{}", "dp{}", "mp_rank_0{}/model", "zero_pp_rank_{}_mp_rank_00_model_states", "grads_rank{}", "ep{}"]
)
@pytest.mark.parametrize(("differs", "code"), [(1, 1), (0, 0)])
def test_a_weight_that_differs_in_one_element_is_no_part(
    tmp_path: Path, capsys: Capsys, name: str, differs: int, code: int
) -> None:
    """Whatever the names tell of the layout: two parts of a weight do not have nearly all elements in common."""
    chance = np.random.default_rng(3)
    weights = {f"layers.{layer}.q.weight": chance.standard_normal((8, 8)).astype(np.float32) for layer in range(4)}
    for rank in range(2):
        own = dict(weights)
        own["layers.1.q.weight"] = own["layers.1.q.weight"].copy()
        own["layers.1.q.weight"][2, 3] += np.float32(0.01) * (rank * differs)
        path = tmp_path / f"{name.format(rank)}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **own)
    answer = run(capsys, "ranks", tmp_path)
    assert answer.code == code, answer.out
    assert ("layers.1.q.weight" in answer.lines[0]) is bool(differs)


@pytest.mark.parametrize("names", [("low_rank_4", "low_rank_8"), ("lora_rank0",), ("tp1",), ("top1", "top0")])
def test_numbers_that_are_no_ranks_stay_in_the_names(names: tuple[str, ...]) -> None:
    assert confirmed([read_rank(name) for name in names]) == [None] * len(names)


def test_places_of_ranks_follow_from_their_names(tmp_path: Path, capsys: Capsys) -> None:
    for name in ("dp0_tp0", "dp0_tp1", "dp1_tp0", "dp1_tp1"):
        np.savez(tmp_path / f"{name}.npz", grad=np.ones(2))
    answer = run(capsys, "ranks", tmp_path)
    assert "layout: dp 2 x tp 2 (recorded: names of files)" in answer.lines
    assert "  rank 2: dp 1 of 2, tp 0 of 2" in answer.lines
    assert "rank 1 is dp 0 tp 1" in answer.err


def test_ranks_are_counted_as_launchers_do_and_a_number_without_an_axis_tells_no_layout() -> None:
    names = ["mp_rank_00_000", "mp_rank_01_000", "mp_rank_00_001", "mp_rank_01_001"]
    places = [found.places for found in map(read_rank, names) if found is not None]
    numbers = number_places(places)
    assert [numbers[each] for each in places] == [0, 1, 2, 3]
    assert dict(places[1]) == {"tp": 1, UNNAMED: 0}
    assert sized_places({numbers[each]: each for each in places}) == {}


def test_a_file_that_data_parallel_ranks_share_is_that_of_the_first() -> None:
    names = [
        "mp_rank_00_model_states",
        "zero_pp_rank_0_mp_rank_00_optim_states",
        "zero_pp_rank_1_mp_rank_00_optim_states",
    ]
    places = [found.places for found in map(read_rank, names) if found is not None]
    assert [number_places(places)[each] for each in places] == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        *(("rank_3", 3), ("rank3", 3), ("rank", 0), ("worldsize8_global_rank5", 5)),
        *(("rank_3_old", None), ("ranks", None), ("prank_3", None), ("rank_", None)),
    ],
)
def test_a_directory_is_called_after_a_rank_and_nothing_else(name: str, rank: int | None) -> None:
    assert rank_of_folder(name) == rank


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("mp_rank_01", (1,)), ("mp_rank_01_002", (1, 2)), ("mp_rank_00_001_002", (0, 1, 2)), ("mp_rank_01_model", ())],
)
def test_megatrons_numbers_of_a_rank(name: str, numbers: tuple[int, ...]) -> None:
    assert megatron_numbers(name) == numbers
