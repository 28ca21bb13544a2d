"""A tensor against another one: which one, from where, and what is closed afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import file_of
from tests.session.opened import opened
from tests.sources.writer import MLP, write_dump
from tui_debugger.diagnose.compare import (
    ComparedTensor,
    Comparer,
    DifferentShapesError,
    has_values,
    ranks_with,
    steps_with,
)
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress, Side, TensorKey
from tui_debugger.stats.compare_pairs import Boundary, Fit

RELU = MLP.nodes[1].name
FILE = "ReLU.*.output.0.*"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "dump", ranks=(0, 1)).root


def key_at(step: int = 2, rank: int = 0) -> TensorKey:
    return TensorKey(rank, "kernel_graph0", RELU, Side.OUTPUT, 0, step)


def known(comparer: Comparer, step: int = 2) -> TensorKey:
    """The tensor with the name that its graph has."""
    nodes = comparer.session.nodes(0)
    return replace(key_at(step), graph=nodes.graphs[0].name)


@pytest.fixture
def comparer(dump: Path) -> Comparer:
    return Comparer(opened(dump))


def test_the_previous_step_and_those_beside(comparer: Comparer) -> None:
    key = known(comparer)
    other = comparer.previous(key)
    assert other == ComparedTensor(replace(key, step=1))
    assert (other.text(key), other.text()) == ("step 1", f"{RELU}:out:0  rank 0  step 1")
    assert comparer.beside(other, -1) == ComparedTensor(replace(key, step=0))
    assert comparer.beside(other, +1) == ComparedTensor(key)
    assert comparer.beside(ComparedTensor(key), +1) is None
    assert comparer.beside(ComparedTensor(path="x.npy"), +1) is None


def test_steps_without_the_tensor_are_passed_over(comparer: Comparer, dump: Path) -> None:
    file_of(dump / "rank_0/Net/0/1", FILE).unlink()
    key = known(comparer)
    assert comparer.beside(ComparedTensor(key), -1) == ComparedTensor(replace(key, step=0))
    assert steps_with(comparer.session, key) == [0]
    assert ranks_with(comparer.session, replace(key, step=1)) == [1]
    assert not has_values(comparer.session, replace(key, step=1))


def test_words_say_only_what_tells_the_sides_apart(comparer: Comparer) -> None:
    key = known(comparer)
    assert ComparedTensor(replace(key, rank=1)).text(key) == "rank 1  step 2"
    assert ComparedTensor(replace(key, slot=1)).text(key) == f"{RELU}:out:1  step 2"
    assert ComparedTensor(key, "/run").text(key) == "run /run  step 2"
    assert ComparedTensor(replace(key, step=-1)).text(key) == "start"
    assert ComparedTensor(path="a\x1b[2J.npy").text(key) == "a\\x1b[2J.npy"


def test_numbers_of_the_whole_tensors(comparer: Comparer, dump: Path) -> None:
    key = known(comparer)
    couple = comparer.couple(key, comparer.previous(key))
    here, there = (np.load(file_of(dump / f"rank_0/Net/0/{step}", FILE)).astype(np.float64) for step in (2, 1))
    found, hint = couple.compare(top=3)
    assert (found.max_abs, hint, couple.fit) == (np.abs(here - there).max(), "", Fit.SAME)
    assert len(found.by_abs) == 3
    narrower = couple.within(found, Boundary(percent=50))
    assert narrower == couple.compare(Boundary(percent=50), top=3)[0]


def test_another_run_is_opened_once_and_closed(comparer: Comparer, dump: Path, tmp_path: Path) -> None:
    shutil.copytree(dump, tmp_path / "other")
    key = known(comparer)
    side = ComparedTensor(key, str(tmp_path / "other"))
    run = comparer.run_of(side)
    assert run is comparer.run_of(side) is not comparer.session
    assert comparer.couple(key, side).compare()[0].outside == 0
    assert comparer.beside(side, -1) == replace(side, key=replace(key, step=1))
    comparer.close()
    with pytest.raises(CancelledError):
        comparer.run_of(side)


def test_graphs_of_another_run_may_have_other_numbers(comparer: Comparer, dump: Path) -> None:
    key = replace(known(comparer), graph="kernel_graph_17")
    assert comparer.opened(ComparedTensor(key, str(dump))).side.key == known(comparer)


def test_other_shapes_are_paired_only_when_asked(comparer: Comparer, tmp_path: Path) -> None:
    key = known(comparer)
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(6, np.float32))
    with pytest.raises(DifferentShapesError) as caught:
        comparer.couple(key, ComparedTensor(path=str(path)))
    assert caught.value.fit is Fit.RESHAPED
    couple = comparer.couple(key, ComparedTensor(path=str(path)), reshape=True)
    assert (couple.pairs.shape, couple.there.meta.shape) == ((2, 3), (6,))
    np.save(path, np.zeros((1, 3), np.float32))
    assert comparer.couple(key, ComparedTensor(path=str(path)), reshape=True).fit is Fit.STRETCHED
    np.save(path, np.zeros((4, 4), np.float32))
    with pytest.raises(TdbgError, match="different shapes"):
        comparer.couple(key, ComparedTensor(path=str(path)), reshape=True)


def test_a_big_comparison_can_be_stopped(comparer: Comparer) -> None:
    def stop(_: Progress) -> None:
        raise CancelledError("stopped")

    key = known(comparer)
    couple = comparer.couple(key, comparer.previous(key))
    with pytest.raises(CancelledError):
        couple.compare(progress=stop)


def test_a_hint_when_one_is_the_other_rearranged(comparer: Comparer, dump: Path, tmp_path: Path) -> None:
    values = np.load(file_of(dump / "rank_0/Net/0/2", FILE))
    key, path = known(comparer), tmp_path / "x.npy"
    for made, hint in (
        (values.T.copy(), "equal when the other one is transposed: (1, 0)"),
        (values[::-1], "equal when the other one is reversed along dimension 0"),
        (np.roll(values, 1, axis=1), "the same values in another order"),
        (values + 1, ""),
        (values, ""),
    ):
        np.save(path, made)
        assert comparer.couple(key, ComparedTensor(path=str(path)), reshape=True).compare()[1] == hint


def test_nan_is_no_obstacle_to_the_hint(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    session = opened(dumps("mindspore-2.0-nan"))
    nodes = session.nodes(0)
    row = next(row for row, name in enumerate(nodes.names) if name.endswith("norm-RowNorm/Div-op385"))
    (key,) = (each.key for each in session.tensor_rows(0, 3, row) if each.role == "out")
    np.save(tmp_path / "x.npy", np.flip(session.read(key), 2))
    found, hint = Comparer(session).couple(key, ComparedTensor(path=str(tmp_path / "x.npy"))).compare()
    assert found.odd.both_nan == 128
    assert hint == "equal when the other one is reversed along dimension 2"
