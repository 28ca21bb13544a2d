"""What a tensor is over the ranks: what the recorder says of a reduction decides, else values of the first step.

Runs are written as our client for PyTorch records them: ``Gradients/fc/weight/local`` is what a rank puts into the
reduction, ``Gradients/fc/weight`` what its optimizer uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import run
from tests.sources.memory import Key, MemorySource, Op, Value
from tui_debugger.diagnose.ranks.replicas import compare_ranks
from tui_debugger.diagnose.ranks.results import ReplicaKind, Replicas
from tui_debugger.diagnose.ranks.spread import TensorSpread, are_alike
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import Category, ProgressFn, Side, no_progress
from tui_debugger.session.session import Session

Array = npt.NDArray[np.float32]
Tensors = dict[Key, Value]
Capsys = pytest.CaptureFixture[str]


def value(*numbers: int, size: int = 256) -> Array:
    """Some numbers, others for others."""
    return np.random.default_rng(numbers).standard_normal(size).astype(np.float32)


class Reduced(MemorySource):
    """A run of which a wrapper says that all ranks share the gradients."""

    def nodes(self, rank: int, progress: ProgressFn = no_progress) -> NodeTable:
        nodes = super().nodes(rank, progress)
        rows = [row for row, name in enumerate(nodes.names) if nodes.types[nodes.type_id[row]] == "AllReduce"]
        return replace(nodes, group_ranks=dict.fromkeys(rows, tuple(self.ranks())), lineage=nodes.lineage)


OPS = [
    Op("norm/LayerNorm", "LayerNorm"),
    Op("norm.weight", "Parameter", category=Category.WEIGHT),
    Op("fc.weight", "Parameter", category=Category.WEIGHT),
    Op("fc.bias", "Parameter", category=Category.WEIGHT),
    Op("out.weight", "Parameter", category=Category.WEIGHT),
    *(Op(f"Gradients/{name}/weight/local", "ParameterGrad", category=Category.GRADIENT) for name in ("fc", "norm")),
    *(Op(f"Gradients/{name}/weight", "AllReduce", category=Category.GRADIENT) for name in ("fc", "norm")),
]


def compared(tensors: Mapping[int, Mapping[int, Tensors]], *, wrapper: bool) -> Replicas:
    session = Session((Reduced if wrapper else MemorySource)(tensors, ops=OPS))
    try:
        return compare_ranks(session)
    finally:
        session.close()


def outputs(**named: Array) -> Tensors:
    names = {"norm": "norm/LayerNorm"}
    return {(names.get(name, name.replace("_", ".")), Side.OUTPUT, 0): array for name, array in named.items()}


def data_parallel(ranks: int = 2, *, lost: bool = False) -> dict[int, dict[int, Tensors]]:
    """Each rank has other data; ``lost``: rank 1 did not get a part of the reduced gradient of the first step."""
    found: dict[int, dict[int, Tensors]] = {}
    for rank in range(ranks):
        for step in range(2):
            reduced, weight = value(step, 7), value(5) - np.float32(0.01 * step)
            if lost and rank == 1:
                reduced[9:], weight = 0, weight + np.float32(0.001) * value(step, 3)
            found.setdefault(rank, {})[step] = {
                **outputs(norm=value(rank, step), norm_weight=np.ones(256, np.float32), fc_weight=weight),
                ("Gradients/fc/weight/local", Side.OUTPUT, 0): value(rank, step, 7),
                ("Gradients/fc/weight", Side.OUTPUT, 0): reduced,
            }
    return found


def test_summands_are_not_compared_with_each_other() -> None:
    found = compared(data_parallel(), wrapper=True)
    assert not found.found
    assert found.compared == {ReplicaKind.WEIGHT: 4, ReplicaKind.GRADIENT: 2}
    assert found.spreads["fc.weight"] is TensorSpread.REPLICATED


def test_a_lost_reduction_is_found_though_weights_differ_from_the_first_step_on() -> None:
    found = compared(data_parallel(4, lost=True), wrapper=True)
    assert {(each.key.node, each.outliers, each.key.step) for each in found.firsts} == {
        ("fc.weight", (1,), 0),
        ("Gradients/fc/weight", (1,), 0),
    }


def test_gradients_that_a_wrapper_should_reduce_are_found_though_all_of_them_differ() -> None:
    """The wrapper was bypassed: nothing is equal any more."""
    tensors = data_parallel()
    for steps in tensors.values():
        for own in steps.values():
            own["Gradients/fc/weight", Side.OUTPUT, 0] = own["Gradients/fc/weight/local", Side.OUTPUT, 0]
    assert [each.key.node for each in compared(tensors, wrapper=True).firsts] == ["Gradients/fc/weight"]
    assert not compared(tensors, wrapper=False).found


def tensor_parallel(*, partial: bool) -> dict[int, dict[int, Tensors]]:
    """Each rank has a part of ``fc``, both have ``norm``; ``partial``: nobody reduced the gradient of that."""
    found: dict[int, dict[int, Tensors]] = {}
    for rank in range(2):
        for step in range(2):
            gain = np.ones(256, np.float32) - np.float32(0.01) * value(step, rank if partial else 5)
            found.setdefault(rank, {})[step] = outputs(
                norm=value(1, step), norm_weight=gain, fc_weight=value(rank, 8), out_weight=value(4, step)
            )
    return found


def test_a_norm_that_all_ranks_have_is_a_replica_and_parts_are_none() -> None:
    healthy = compared(tensor_parallel(partial=False), wrapper=False)
    assert not healthy.found
    assert (healthy.spreads["norm.weight"], healthy.spreads["fc.weight"]) == (
        TensorSpread.REPLICATED,
        TensorSpread.INDEPENDENT,
    )
    (found,) = compared(tensor_parallel(partial=True), wrapper=False).firsts
    assert (found.key.node, found.key.step) == ("norm.weight", 0)


@pytest.mark.parametrize(("apart", "doubted"), [(False, False), (True, True)])
def test_what_is_equal_beside_parts_of_its_module_may_be_a_part(apart: bool, doubted: bool) -> None:
    """Each rank drew the bias of its part with one seed: it is no replica that broke."""
    tensors = tensor_parallel(partial=False)
    for rank, steps in tensors.items():
        for step, own in steps.items():
            own["fc.bias", Side.OUTPUT, 0] = value(8) + np.float32(0.01) * value(step, rank if apart and step else 3)
    found = compared(tensors, wrapper=False)
    assert not found.found
    assert [key.node for key, _ in found.unknown] == ["fc.bias"] * doubted


@pytest.mark.parametrize("constant", [False, True])
def test_constant_parameters_prove_nothing(constant: bool) -> None:
    """Gains of ones are equal on all ranks at first. What the module makes tells whether they are parts."""
    tensors = tensor_parallel(partial=True)
    for rank, steps in tensors.items():
        steps[0]["norm.weight", Side.OUTPUT, 0] = np.ones(256, np.float32)
        if constant:
            for step, own in steps.items():
                own["norm/LayerNorm", Side.OUTPUT, 0] = value(rank, step, 9)
    assert compared(tensors, wrapper=False).found is not constant


@pytest.mark.parametrize(
    ("arrays", "alike"),
    [
        ([value(1), value(1) + np.float32(0.1) * value(2)], True),
        ([value(1), value(2)], False),
        ([value(1), value(1, size=128)], False),
        ([np.ones(64), np.ones(64)], False),
        ([1 + np.float32(0.01) * value(1), 1 + np.float32(0.01) * value(2)], False),
        ([value(1, size=4), value(1, size=4) + np.float32(0.1)], False),
        ([value(1), value(1) * np.nan], False),
    ],
    ids=["gone apart", "strangers", "other shapes", "constant", "around one number", "too few", "not finite"],
)
def test_weights_that_began_as_one_are_alike(arrays: Sequence[Array], alike: bool) -> None:
    assert are_alike(arrays) is alike


def write(root: Path, weights: Mapping[int, Mapping[str, Array]]) -> Path:
    root.mkdir()
    for rank, own in weights.items():
        arrays: dict[str, Any] = {**own}
        np.savez(root / f"step_3_rank{rank}.npz", **arrays)
    return root


def test_in_files_a_weight_that_went_apart_is_no_part_of_a_larger_one(tmp_path: Path, capsys: Capsys) -> None:
    """A reduction that lost most of a gradient: 977 of 1,024 elements differ, in the only step that was saved."""
    weight, others = value(1, size=1024), {f"layers.{at}.weight": value(at, 3) for at in range(3)}
    lost = weight.copy()
    lost[47:] += np.float32(0.01) * value(2, size=977)
    answer = run(
        capsys,
        "ranks",
        write(tmp_path / "lost", {0: {"fc.weight": weight, **others}, 1: {"fc.weight": lost, **others}}),
    )
    assert answer.code == 1
    assert answer.lines[0].startswith("Ranks 0,1 differ: weight fc.weight:out:0 at step 3")
    parts = {rank: {"fc.weight": value(rank, size=1024), **others} for rank in range(2)}
    assert run(capsys, "ranks", write(tmp_path / "parts", parts)).code == 0


def test_where_all_weights_went_apart_it_is_not_known_whether_they_must_be_equal(
    tmp_path: Path, capsys: Capsys
) -> None:
    """Local SGD averages now and then; a run that forgot its reductions looks the same."""
    ranks = {
        rank: {f"layers.{at}.weight": value(at, 3) + np.float32(0.05) * value(at, rank) for at in range(3)}
        for rank in range(2)
    }
    answer = run(capsys, "ranks", write(tmp_path / "local", ranks))
    assert answer.code == 2
    assert "began as one on all ranks and differ" in answer.lines[0]


def test_parts_that_were_drawn_with_one_seed_are_a_doubt_and_no_finding(tmp_path: Path, capsys: Capsys) -> None:
    """Norms and embeddings are equal on all ranks, and most weights are not: tensor parallel, with one seed."""
    ranks = {
        rank: {
            "embedding.weight": value(9),
            **{f"layers.{at}.weight": value(at, 3) + np.float32(0.05) * value(at, rank) for at in range(3)},
        }
        for rank in range(2)
    }
    assert run(capsys, "ranks", write(tmp_path / "seed", ranks)).code == 2
