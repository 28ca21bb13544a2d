"""One file for each rank: which rank is told by every way to name it, whichever directories lie around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
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
Weights = dict[str, npt.NDArray[np.float32]]
Change = Callable[[Weights], object]
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


def replicas(root: Path, name: str, change: Change) -> None:
    """Writes the weights of three ranks, all equal but for what is changed on rank 2."""
    chance = np.random.default_rng(3)
    weights = {f"layers.{layer}.q.weight": chance.standard_normal((8, 8)).astype(np.float32) for layer in range(20)}
    for rank in range(3):
        own = {each: array.copy() for each, array in weights.items()}
        if rank == 2:
            change(own)
        path = root / f"{name.format(rank)}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **own)


def scale(weights: Weights) -> None:
    weights["layers.1.q.weight"] *= np.float32(1.01)


def draw(weights: Weights) -> None:
    weights["layers.1.q.weight"] = np.random.default_rng(9).standard_normal((8, 8)).astype(np.float32)


def drop(weights: Weights) -> None:
    del weights["layers.1.q.weight"]


@pytest.mark.parametrize(
    "name", ["rank_{}/w", "tp{}", "mp_rank_0{}/model", "zero_pp_rank_{}_mp_rank_00_model_states", "model_rank_{}_of_3"]
)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (scale, (1, "Rank 2 differs from 2 other ranks: weight ")),
        (draw, (2, "differ between ranks whose other weights are almost all equal")),
        (drop, (2, "weights that some of the ranks lack")),
        (dict.copy, (0, "Clean: 3 ranks, 20 tensors compared between them by their bytes")),
    ],
)
def test_where_almost_all_weights_are_equal_the_others_are_said(
    tmp_path: Path, capsys: Capsys, name: str, change: Change, expected: tuple[int, str]
) -> None:
    """Whatever the names tell of the layout: ranks with equal weights are replicas."""
    replicas(tmp_path, name, change)
    answer = run(capsys, "ranks", tmp_path)
    assert answer.code == expected[0], answer.out
    assert expected[1] in answer.lines[0]
    assert ("layers.1.q.weight" in answer.lines[0]) is bool(answer.code)
    assert ("(rank 2 at step 0)" in answer.lines[0]) is (change is drop)
    assert any("in 1 step of each of 3 ranks" in line for line in answer.lines)


def test_the_parts_of_a_model_are_no_replicas(tmp_path: Path, capsys: Capsys) -> None:
    """Norms and biases are equal, the matrices are parts: there are as many of these."""
    chance = np.random.default_rng(3)
    norms = {f"layers.{layer}.norm.weight": chance.standard_normal(8).astype(np.float32) for layer in range(9)}
    for rank in range(2):
        parts = {f"layers.{layer}.q.weight": chance.standard_normal((8, 8)).astype(np.float32) for layer in range(9)}
        np.savez(tmp_path / f"tp{rank}.npz", **norms, **parts)
    answer = run(capsys, "ranks", tmp_path)
    assert (answer.code, answer.lines[0].partition(",")[0]) == (0, "Clean: 2 ranks")


def test_a_file_of_a_rank_that_its_name_counts_is_missed(tmp_path: Path, capsys: Capsys) -> None:
    for rank in (0, 2):
        np.savez(tmp_path / f"model_rank_{rank}_of_3.npz", grad=np.ones(2))
    answer = run(capsys, "ranks", tmp_path)
    assert answer.code == 2
    assert "model_rank_1_of_3.npz (the file of a rank that is missing)" in answer.lines[0]


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
