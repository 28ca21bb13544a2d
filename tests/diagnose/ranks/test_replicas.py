"""Tensors that must be equal on several ranks: which are compared, which ranks are named, and when nobody is blamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import file_of
from tests.opened_files import opened_tensor_files
from tests.sources.memory import MemorySource, Op, Recorded, Value
from tests.sources.writer import write_dump
from tui_debugger.check.contents import KnownBy
from tui_debugger.diagnose.ranks.layout import ToldBy
from tui_debugger.diagnose.ranks.replicas import compare_ranks
from tui_debugger.diagnose.ranks.results import ReplicaKind, Replicas
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category, ProgressFn, Side, TensorStats, no_progress
from tui_debugger.session.session import Session, open_dump
from tui_debugger.sources.registry import open_source

NAMES = tuple(f"layer.{number}.weight" for number in range(4))
SHARD = "layer.2.weight"


def ramp(start: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.arange(start, start + 8, dtype=np.float32)


def weights(change: Mapping[str, float] | None = None, step: int = 0) -> dict[tuple[str, Side, int], Value]:
    """The weights of a rank; ``change`` says by how much some are off."""
    off = change or {}
    return {(name, Side.OUTPUT, 0): ramp(number + 10 * step + off.get(name, 0)) for number, name in enumerate(NAMES)}


def compared(tensors: Mapping[int, Mapping[int, Mapping[tuple[str, Side, int], Value]]], *ops: Op) -> Replicas:
    parameters = [Op(name, "Parameter", category=Category.WEIGHT) for name in NAMES]
    session = Session(MemorySource(tensors, ops=[*parameters, *ops]))
    try:
        return compare_ranks(session)
    finally:
        session.close()


def test_equal_weights_are_clean_and_counted() -> None:
    found = compared({rank: {step: weights(step=step) for step in range(2)} for rank in range(3)})
    assert not found.found
    assert found.compared == {ReplicaKind.WEIGHT: 8}
    assert found.by is KnownBy.BYTES
    assert found.layout.told_by is ToldBy.INFERRED
    assert found.layout.replicas == ((0, 1, 2),)


def test_of_several_ranks_the_one_that_differs_is_named() -> None:
    ranks = {rank: {0: weights(), 1: weights({SHARD: rank == 3} if rank == 3 else None, 1)} for rank in range(4)}
    (difference,) = compared(ranks).differences
    assert (difference.key.node, difference.key.rank, difference.key.step) == (SHARD, 3, 1)
    assert difference.outliers == (3,)
    assert difference.parts == ((0, 1, 2), (3,))
    assert difference.equal_at == 0


def test_of_two_ranks_nobody_is_blamed_but_it_says_which_one_changed() -> None:
    (difference,) = compared({0: {0: weights(), 1: weights()}, 1: {0: weights(), 1: weights({SHARD: 1})}}).differences
    assert difference.outliers == ()
    assert difference.changed == (1,)


def test_where_half_of_the_ranks_differ_nobody_is_blamed() -> None:
    ranks = {rank: {0: weights(), 1: weights({SHARD: float(rank // 2)}, 1)} for rank in range(4)}
    (difference,) = compared(ranks).differences
    assert difference.outliers == ()
    assert difference.parts == ((0, 1), (2, 3))


def test_a_difference_that_stays_is_first_once() -> None:
    ranks = {rank: {step: weights({SHARD: float(rank and step)}, step) for step in range(4)} for rank in range(2)}
    found = compared(ranks)
    assert [each.key.step for each in found.differences] == [1, 2, 3]
    assert [each.key.step for each in found.firsts] == [1]


def test_weights_that_differ_from_the_start_may_be_shards_and_are_no_finding() -> None:
    found = compared({rank: {step: weights({SHARD: float(rank)}, step) for step in range(2)} for rank in range(2)})
    assert not found.found
    assert found.apart == (SHARD,)
    assert found.layout.replicas == ((0,), (1,))
    assert found.compared == {ReplicaKind.WEIGHT: 6}


def test_groups_of_replicas_are_inferred_from_shards() -> None:
    found = compared({rank: {0: weights({SHARD: float(rank % 2)})} for rank in range(4)})
    assert found.layout.replicas == ((0, 2), (1, 3))
    assert found.compared == {ReplicaKind.WEIGHT: 3 + 2}


def test_constant_weights_say_nothing_of_shards() -> None:
    """Biases of zeros are equal on all ranks at first, whether they are parts of a larger one or not."""
    zero = np.zeros(8, np.float32)
    first = {rank: {**weights({SHARD: float(rank)}), ("layer.3.weight", Side.OUTPUT, 0): zero} for rank in range(2)}
    later = {rank: weights({SHARD: float(rank), "layer.3.weight": float(rank)}, 1) for rank in range(2)}
    assert not compared({rank: {0: first[rank], 1: later[rank]} for rank in range(2)}).found


def test_without_weights_nothing_is_compared_and_it_says_so() -> None:
    found = compared({rank: {0: {("x", Side.OUTPUT, 0): ramp(rank)}} for rank in range(2)}, Op("x"))
    assert not found.compared
    assert found.layout.told_by is ToldBy.NOBODY
    assert found.layout.why == "no weights were dumped"


def test_an_unreadable_weight_is_told() -> None:
    broken: dict[tuple[str, Side, int], Value] = {**weights(), (SHARD, Side.OUTPUT, 0): b"no array"}
    found = compared({0: {0: weights()}, 1: {0: broken}})
    assert [key.node for key, _ in found.unknown] == [SHARD]
    assert found.compared == {ReplicaKind.WEIGHT: 3}


def test_statistics_are_compared_where_there_is_nothing_else() -> None:
    def stats(mean: float) -> Recorded:
        return Recorded(TensorStats(8, 0, 0, 0, 0, 0, 8, 1.0, 9.0, mean, mean, 2.0, 8 * mean * mean), shape=(8,))

    def step(mean: float) -> dict[tuple[str, Side, int], Value]:
        return {(name, Side.OUTPUT, 0): stats(mean if name == SHARD else 4.0) for name in NAMES}

    found = compared({rank: {0: step(3.0), 1: step(5.0 if rank == 2 else 3.5)} for rank in range(3)})
    assert found.by is KnownBy.STATISTICS
    assert [(each.key.node, each.outliers) for each in found.differences] == [(SHARD, (2,))]


def gradients(rank: int, reduced: bool, unreduced: str = "") -> dict[tuple[str, Side, int], Value]:
    return {
        ("Gradients/" + name.replace(".", "/"), Side.OUTPUT, 0): ramp(
            number + (0 if reduced and name != unreduced else 100.0 * (rank + 1))
        )
        for number, name in enumerate(NAMES)
    }


GRADIENTS = [Op("Gradients/" + name.replace(".", "/"), "WeightGradient", category=Category.GRADIENT) for name in NAMES]


def test_a_gradient_that_was_not_reduced_differs_from_the_others() -> None:
    tensors = {rank: {0: {**weights(), **gradients(rank, True, SHARD)}} for rank in range(2)}
    (difference,) = compared(tensors, *GRADIENTS).differences
    assert difference.kind is ReplicaKind.GRADIENT
    assert difference.key.node == "Gradients/layer/2/weight"


@pytest.mark.parametrize("reduced", [True, False])
def test_weights_with_one_gradient_on_all_ranks_are_replicas(reduced: bool) -> None:
    """A rank that began with another seed has the same reduced gradients; a part of a model has its own."""

    def drawn(seed: int) -> dict[tuple[str, Side, int], Value]:
        chance = np.random.default_rng(seed)
        return {(name, Side.OUTPUT, 0): chance.standard_normal(8).astype(np.float32) for name in NAMES}

    tensors = {rank: {0: {**drawn(int(rank == 3)), **gradients(rank, reduced)}} for rank in range(4)}
    found = compared(tensors, *GRADIENTS)
    outliers = [(each.key.node, each.outliers) for each in found.differences]
    assert outliers == ([(name, (3,)) for name in NAMES] if reduced else [])


def test_gradients_before_they_are_reduced_are_not_compared() -> None:
    found = compared({rank: {0: {**weights(), **gradients(rank, False)}} for rank in range(2)}, *GRADIENTS)
    assert not found.found
    assert any("before they were reduced" in note for note in found.notes)


@pytest.mark.parametrize("left_out", ["", SHARD])
def test_before_the_collective_a_gradient_that_goes_into_none_is_named(left_out: str) -> None:
    reduces = [Op(f"reduce.{number}", "AllReduce") for number in range(len(NAMES))]
    tensors: dict[int, dict[int, dict[tuple[str, Side, int], Value]]] = {}
    for rank in range(2):
        own = gradients(rank, False)
        reduced: dict[tuple[str, Side, int], Value] = {}
        for number, name in enumerate(NAMES):
            if name != left_out:
                reduced[f"reduce.{number}", Side.INPUT, 0] = own["Gradients/" + name.replace(".", "/"), Side.OUTPUT, 0]
                reduced[f"reduce.{number}", Side.OUTPUT, 0] = ramp(50.0 + number)
        tensors[rank] = {0: {**weights(), **own, **reduced}}
    found = compared(tensors, *GRADIENTS, *reduces)
    assert [each.parameter for each in found.not_reduced] == [left_out] * bool(left_out)
    assert not found.differences


def test_collective_operations_give_the_same_to_the_ranks_of_a_group() -> None:
    """Two groups of one name: 0 with 1, and 2 with 3; one output of the second group is another one."""
    names = [f"reduce.{number}" for number in range(4)]
    tensors: dict[int, dict[int, dict[tuple[str, Side, int], Value]]] = {
        rank: {0: {(name, Side.OUTPUT, 0): ramp(at + 10 * (rank // 2)) for at, name in enumerate(names)}}
        for rank in range(4)
    }
    tensors[3][0]["reduce.2", Side.OUTPUT, 0] = ramp(99)

    class Grouped(MemorySource):
        def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
            nodes = super().nodes(rank, progress)
            group = (0, 1) if rank < 2 else (2, 3)
            return replace(nodes, group_ranks=dict.fromkeys(range(len(nodes)), group), lineage=nodes.lineage)

    session = Session(Grouped(tensors, ops=[Op(name, "AllReduce") for name in names]))
    found = compare_ranks(session)
    session.close()
    assert found.compared == {ReplicaKind.COLLECTIVE: 8}
    assert [(each.key.node, each.group) for each in found.differences] == [("reduce.2", (2, 3))]


def test_contents_are_remembered_and_read_anew_when_a_file_changed(tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump").root
    shutil.copytree(root / "rank_0", root / "rank_1")
    for file in root.rglob("*.npy"):
        os.utime(file, (1_700_000_000, 1_700_000_000))

    def compared_now() -> tuple[dict[str, int], int]:
        session = open_dump(root)
        try:
            with opened_tensor_files() as opened:
                found = compare_ranks(session)
            return {each.key.node: each.key.rank for each in found.differences}, len(opened)
        finally:
            session.close()

    first, files = compared_now()
    assert first == {}
    assert files
    assert compared_now() == ({}, 0)
    path = file_of(root, "rank_1/Net/0/2/Parameter.fc1_weight.*.npy")
    np.save(path, np.load(path) + 1)
    changed, files = compared_now()
    assert list(changed) == ["fc1.weight"]
    assert files == 1


# -- real dumps ------------------------------------------------------------------------------------


def real(path: Path) -> Replicas:
    session = Session(open_source(path))
    try:
        return compare_ranks(session)
    finally:
        session.close()


def test_a_parameter_that_was_not_reduced_is_named_in_a_real_run(dumps: Callable[[str], Path]) -> None:
    found = real(dumps("msprobe-ranks") / "k_noreduce/B")
    assert {each.parameter for each in found.not_reduced} == {"b.0.mlp.fc1.bias"}
    (difference,) = found.firsts
    assert (difference.key.node, difference.key.step, difference.equal_at) == ("b.0.mlp.fc1.bias", 1, 0)
    assert difference.changed == (0, 1)


@pytest.mark.parametrize(
    ("name", "told_by"),
    [
        ("msprobe-ranks/k_noreduce/A", ToldBy.INFERRED),
        ("sglang-megatron/sglang-2rank", ToldBy.RECORDED),
        ("sglang-megatron/sglang-tp/tp2", ToldBy.RECORDED),
        ("sglang-megatron/megatron-tp2/good", ToldBy.RECORDED),
        ("sglang-megatron/megatron-tp2/bad", ToldBy.RECORDED),
        ("msprobe-mix-2rank-mb-md5/dump", ToldBy.INFERRED),
    ],
)
def test_ranks_of_real_runs_that_are_in_step_do_not_differ(
    dumps: Callable[[str], Path], name: str, told_by: ToldBy
) -> None:
    archive, _, path = name.partition("/")
    found = real(dumps(archive) / path)
    assert not found.found
    assert found.layout.told_by is told_by
    assert sum(found.compared.values())
