"""Weights of stages that are one, norms that all ranks share, copies of shards, and batches: told by values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import run
from tests.sources.memory import Key, MemorySource, Op, Value
from tui_debugger.diagnose.ranks.layout import is_whole, shard_of
from tui_debugger.diagnose.ranks.replicas import compare_ranks
from tui_debugger.diagnose.ranks.results import ReplicaKind, Replicas
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category, ProgressFn, Side, no_progress
from tui_debugger.session.session import Session

Array = npt.NDArray[np.float32]
Capsys = pytest.CaptureFixture[str]
STEPS = range(4)


def value(*numbers: int, size: int = 256) -> Array:
    """Some numbers, others for others."""
    return np.random.default_rng(numbers).standard_normal(size).astype(np.float32)


def write(root: Path, ranks: Mapping[int, Mapping[int, Mapping[str, Array]]]) -> Path:
    """Writes by rank and step the weights of a run."""
    for rank, steps in ranks.items():
        for step, arrays in steps.items():
            folder = root / f"step_{step}"
            folder.mkdir(parents=True, exist_ok=True)
            own: dict[str, Any] = {**arrays}
            np.savez(folder / f"rank-{rank}.npz", **own)
    return root


def stages(parts_at: int) -> dict[int, dict[int, dict[str, Array]]]:
    """Two stages of a pipeline; from that step on the head is no longer updated as the embedding is."""
    found: dict[int, dict[int, dict[str, Array]]] = {0: {}, 1: {}}
    for step in STEPS:
        moved = value(1) + np.float32(0.01) * value(step, 2)
        found[0][step] = {"embedding.weight": moved, "layers.0.weight": value(3, step)}
        head = moved if step < parts_at else moved + np.float32(0.01) * value(step, 4)
        found[1][step] = {"layers.1.weight": value(5, step), "output_layer.weight": head}
    return found


def test_an_embedding_that_two_stages_share_is_compared(tmp_path: Path, capsys: Capsys) -> None:
    answer = run(capsys, "ranks", write(tmp_path, stages(99)))
    assert answer.code == 0
    assert "tied weights 4" in answer.lines[0]


def test_tied_weights_that_part_after_an_update_are_a_finding(tmp_path: Path, capsys: Capsys) -> None:
    answer = run(capsys, "ranks", write(tmp_path, stages(2)))
    assert answer.code == 1
    assert answer.lines[0].startswith("Ranks 0,1 differ: tied weight output_layer.weight:out:0")
    assert "(embedding.weight on rank 0) at step 2, equal at step 1" in answer.lines[0]


@pytest.mark.parametrize("parts_at", [0, 1])
def test_weights_that_began_as_one_may_have_been_copied(tmp_path: Path, capsys: Capsys, parts_at: int) -> None:
    answer = run(capsys, "ranks", write(tmp_path, stages(parts_at)))
    assert answer.code == 2
    assert f"began as embedding.weight of rank 0 and differs at step {parts_at}" in " ".join(answer.lines)


def tensor_parallel(norm: str, *, apart: bool) -> dict[int, dict[int, dict[str, Array]]]:
    """Each rank has a part of a layer, both have the head; the gains of a norm began as ones."""
    return {
        rank: {
            step: {
                f"{norm}.weight": np.float32(1) + np.float32(0.01) * value(step, rank if apart else 9),
                "up.weight": value(rank, step),
                "head.weight": value(7, step),
            }
            for step in STEPS
        }
        for rank in range(2)
    }


@pytest.mark.parametrize(
    ("norm", "apart", "code"),
    [("layers.0.input_layernorm", True, 2), ("ln_f", True, 2), ("norm", False, 0), ("attn.q_norm", True, 0)],
)
def test_norms_that_differ_where_other_weights_are_shared_are_a_doubt(
    tmp_path: Path, capsys: Capsys, norm: str, apart: bool, code: int
) -> None:
    """The gains of queries and keys are divided with the heads."""
    answer = run(capsys, "ranks", write(tmp_path, tensor_parallel(norm, apart=apart)))
    assert answer.code == code
    assert ("norms that differ between ranks" in answer.lines[0]) is (code == 2)


# -- what our client for PyTorch records -----------------------------------------------------------


class Placed(MemorySource):
    """A run that says of its weight which part of it a rank has, and over which ranks its gradient is reduced."""

    placements: ClassVar[Mapping[int, str]] = {}
    reduces = "ReduceScatter"

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        nodes = super().nodes(rank, progress)
        rows = [row for row, name in enumerate(nodes.names) if nodes.types[nodes.type_id[row]] == self.reduces]
        placed = {nodes.find("fc.weight"): self.placements[rank]} if rank in self.placements else {}
        groups = dict.fromkeys(rows, tuple(self.ranks()))
        return replace(nodes, group_ranks=groups, placements=placed, lineage=nodes.lineage)


class Wrapped(Placed):
    """All ranks share all gradients."""

    reduces = "AllReduce"


def compared(source: type[Placed], tensors: Mapping[int, Mapping[int, dict[Key, Value]]]) -> Replicas:
    ops = [
        Op("fc.weight", "Parameter", category=Category.WEIGHT),
        Op("inputs.x", "Parameter", category=Category.PARAMETER),
        Op("Gradients/fc/weight", source.reduces, category=Category.GRADIENT),
    ]
    session = Session(source(tensors, ops=ops))
    try:
        return compare_ranks(session)
    finally:
        session.close()


class Hybrid(Placed):
    """Ranks 0 and 2 have copies of one shard, 1 and 3 of the other."""

    placements: ClassVar[Mapping[int, str]] = {
        rank: f"copy {rank // 2} of 2, shard {rank % 2} of 2 along dimension 0 of [512]" for rank in range(4)
    }


def shards(diverged: int = -1) -> dict[int, dict[int, dict[Key, Value]]]:
    return {
        rank: {
            step: {("fc.weight", Side.OUTPUT, 0): value(rank % 2, step) + np.float32(step > 1 and rank == diverged)}
            for step in STEPS
        }
        for rank in range(4)
    }


def test_copies_of_one_shard_are_compared() -> None:
    healthy = compared(Hybrid, shards())
    assert not healthy.found
    assert healthy.compared == {ReplicaKind.SHARD: 8}
    (found,) = compared(Hybrid, shards(diverged=3)).firsts
    assert (found.kind, found.group, found.key.node, found.key.step) == (ReplicaKind.SHARD, (1, 3), "fc.weight", 2)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("shard 0 of 2 along dimension 0 of [4]", ("shard 0 of 2 along dimension 0 of [4]", False)),
        ("dims d0[mesh.0] d1; copy 1 of 2, shard 0 of 2 along dimension 0 of [4, 2]", ("shard 0 of 2", True)),
        ("elements 0 to 17 of [4, 8]", ("elements 0 to 17 of [4, 8]", False)),
        ("copy 1 of 2 of [4]", None),
        ("part 0 of 2 of a sum of [4]", None),
        ("part of larger tensor; which one is not known", None),
    ],
)
def test_which_shard_a_placement_tells_of(text: str, part: tuple[str, bool] | None) -> None:
    found = shard_of(text)
    assert (found is None) is (part is None)
    if found is not None and part is not None:
        assert found[0].startswith(part[0])
        assert found[1] is part[1]
    assert is_whole(text) is text.startswith("copy 1 of 2 of")


def batches(*same: int, ranks: int = 4) -> dict[int, dict[int, dict[Key, Value]]]:
    """Rank 1 reads the batch of rank 0 at some steps."""
    return {
        rank: {
            step: {
                ("fc.weight", Side.OUTPUT, 0): value(5, step),
                ("inputs.x", Side.OUTPUT, 0): value(step, 0 if step in same and rank == 1 else rank, 9),
            }
            for step in STEPS
        }
        for rank in range(ranks)
    }


def test_a_batch_that_two_data_parallel_ranks_read_is_told_with_its_step() -> None:
    (found,) = compared(Wrapped, batches(2, 3)).shared
    assert (found.ranks, found.key.node, found.key.step, found.steps) == ((0, 1), "inputs.x", 2, 2)
    assert not compared(Wrapped, batches()).shared


def test_one_batch_on_all_ranks_at_every_step_is_told_once() -> None:
    """Nobody gave each rank its part of the data: the ranks all do the same work."""
    (found,) = compared(Wrapped, batches(*STEPS, ranks=2)).shared
    assert (found.ranks, found.steps) == ((0, 1), len(STEPS))


def test_where_no_wrapper_reduces_gradients_ranks_may_read_one_batch() -> None:
    """Tensor-parallel ranks do."""
    assert not compared(Placed, batches(2)).shared


# -- plain files -----------------------------------------------------------------------------------


def experts(*, apart: int) -> dict[int, dict[int, dict[str, Array]]]:
    """Experts that all ranks drew with one seed; that many of the four are not the same later."""
    return {
        rank: {
            step: {
                "router.weight": value(7, step),
                **{f"experts.{at}.weight": value(at, step, rank if step and at < apart else 0) for at in range(4)},
            }
            for step in STEPS
        }
        for rank in range(2)
    }


@pytest.mark.parametrize(("apart", "code"), [(0, 0), (1, 1), (4, 0)])
def test_ranks_may_have_experts_of_their_own(tmp_path: Path, capsys: Capsys, apart: int, code: int) -> None:
    """One that differs among replicas is a finding; where all do, each rank trains its own."""
    assert run(capsys, "ranks", write(tmp_path, experts(apart=apart))).code == code


def gradients(lost_at: int, *, reduced: bool) -> dict[int, dict[int, dict[str, Array]]]:
    """What two ranks saved of weights and gradients; at that step one gradient did not arrive on rank 1."""
    names = [f"layers.{at}.weight" for at in range(4)]
    found: dict[int, dict[int, dict[str, Array]]] = {0: {}, 1: {}}
    for rank, steps in found.items():
        for step in STEPS:
            steps[step] = {f"model.{name}": value(at, step) for at, name in enumerate(names)}
            for at, name in enumerate(names):
                lost = rank == 1 and at == 2 and step == lost_at
                steps[step][f"grads.{name}"] = value(at, step, 8, rank if lost or not reduced else 0)
    return found


def test_a_gradient_that_was_lost_is_named_and_those_before_the_reduction_are_not(
    tmp_path: Path, capsys: Capsys
) -> None:
    assert run(capsys, "ranks", write(tmp_path / "healthy", gradients(99, reduced=True))).code == 0
    assert run(capsys, "ranks", write(tmp_path / "before", gradients(99, reduced=False))).code == 0
    answer = run(capsys, "ranks", write(tmp_path / "lost", gradients(2, reduced=True)))
    assert answer.code == 1
    assert "reduced gradient grads.layers.2.weight:out:0 at step 2, equal at step 1" in answer.lines[0]
