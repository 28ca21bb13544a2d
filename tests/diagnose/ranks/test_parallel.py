"""Data-, tensor-, pipeline- and expert-parallel runs: what must be equal, in dumps that say how ranks share the work.

Each kind is written as SGLang's dumper, Megatron-LM and msprobe write it: a healthy run raises no alarm, and a rank
whose weight went astray is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tui_debugger.diagnose.ranks.layout import ToldBy, is_expert
from tui_debugger.diagnose.ranks.replicas import compare_ranks
from tui_debugger.diagnose.ranks.results import Replicas
from tui_debugger.session.session import open_dump

Array = npt.NDArray[np.float32]
Weights = dict[int, dict[int, dict[str, Array]]]
"""By step and rank."""
STEPS = 3
ASTRAY_AT = 2


def value(*what: int) -> Array:
    """Some numbers, others for others."""
    return np.random.default_rng(what).standard_normal((4, 4)).astype(np.float32)


@dataclass(frozen=True)
class Kind:
    """A way to share the work.

    Attributes:
        places: of each rank along each axis.
        names: the weights of a rank; each with the numbers that its values follow from beside the step.
        outlier: a rank and the weight of it that goes astray.
        among: the ranks that must have the same of it.
    """

    places: Mapping[int, Mapping[str, tuple[int, int]]]
    names: Callable[[Mapping[str, tuple[int, int]]], dict[str, tuple[int, ...]]]
    outlier: tuple[int, str]
    among: tuple[int, ...]

    def weights(self, *, astray: bool) -> Weights:
        """The weights of all ranks, as a training changes them."""
        found: Weights = {
            step: {
                rank: {name: value(step, *numbers) for name, numbers in self.names(places).items()}
                for rank, places in self.places.items()
            }
            for step in range(STEPS)
        }
        rank, name = self.outlier
        for step in range(ASTRAY_AT, STEPS) if astray else ():
            found[step][rank][name] = found[step][rank][name] + np.float32(1e-6)
        return found


def _dense(numbers: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    return {"embedding.weight": (0, *numbers), "norm.weight": (1,), "fc.weight": (2, *numbers)}


EXPERT = "mlp.experts.local_experts.0.fc1.weight"
KINDS = {
    "dp": Kind(
        {rank: {"dp": (rank, 4)} for rank in range(4)}, lambda _: _dense(), (2, "fc.weight"), (0, 1, 2, 3)
    ),
    "tp": Kind(  # three copies of a model that two ranks share
        {rank: {"dp": (rank // 2, 3), "tp": (rank % 2, 2)} for rank in range(6)},
        lambda at: _dense((at["tp"][0],)),
        (3, "fc.weight"),
        (1, 3, 5),
    ),
    "pp": Kind(  # stages count their layers from 0, so that they have the same names
        {rank: {"dp": (rank // 2, 3), "pp": (rank % 2, 2)} for rank in range(6)},
        lambda at: {
            **{f"layers.{number}.weight": (number, at["pp"][0]) for number in range(3)},
            **({"head.weight": (9,)} if at["pp"][0] else {}),
        },
        (5, "layers.1.weight"),
        (1, 3, 5),
    ),
    "ep": Kind(  # every second rank has the same expert; all have the same router and attention
        {rank: {"dp": (rank, 6), "ep": (rank % 2, 2)} for rank in range(6)},
        lambda at: {"attn.weight": (1,), "mlp.router.weight": (2,), EXPERT: (3, at["ep"][0])},
        (4, EXPERT),
        (0, 2, 4),
    ),
}  # fmt: skip


def by_dumper(root: Path, kind: Kind, weights: Weights) -> None:
    """What SGLang's dumper saves of the parameters, with the place of each rank."""
    for step, ranks in weights.items():
        for rank, own in ranks.items():
            info: dict[str, int] = {}
            for axis, (place, size) in kind.places[rank].items():
                info |= {f"{axis}_rank": place, f"{axis}_size": size}
            for number, (name, array) in enumerate(own.items()):
                tags = f"step={step}___rank={rank}___dump_index={number + 1}___name=param__{name}"
                meta = {"step": step, "rank": rank, "megatron_parallel_info": info, "world_size": len(kind.places)}
                root.mkdir(exist_ok=True)
                torch.save(
                    {"value": torch.from_numpy(array), "meta": meta}, root / f"{tags}___recompute_status=disabled.pt"
                )


def by_megatron(root: Path, kind: Kind, weights: Weights) -> None:
    """What ``--save-params-interval`` saves: the names of files have the place of each rank, and data is left out."""
    for step, ranks in weights.items():
        for rank, own in ranks.items():
            at = {axis: kind.places[rank].get(axis, (0, 1))[0] for axis in ("tp", "pp", "ep")}
            path = root / f"params/iter_{step + 1:07}/mp_rank_{at['tp']:02}_{at['pp']:03}_{at['ep']:03}.pth"
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"model_chunk0": {name: torch.from_numpy(array) for name, array in own.items()}}, path)


def by_msprobe(root: Path, kind: Kind, weights: Weights) -> None:  # noqa: ARG001 - it does not record places
    """What msprobe records of modules that hold the weights: nothing says how ranks share the work."""
    for step, ranks in weights.items():
        for rank, own in ranks.items():
            folder = root / f"step{step}/rank{rank}"
            values = folder / "dump_tensor_data"
            values.mkdir(parents=True)
            data = {}
            for name, array in own.items():
                key = f"Module.{name.rpartition('.')[0]}.Linear.forward.0"
                weight = recorded(array, values / f"{key}.parameters.weight.pt")
                data[key] = {"input_args": [], "input_kwargs": {}, "output": [], "parameters": {"weight": weight}}
            write_calls(folder, "L0", data)


def recorded(array: Array, path: Path) -> dict[str, object]:
    """Writes a tensor, and returns what msprobe says of it."""
    torch.save(torch.from_numpy(array), path)
    extremes = {"Max": float(array.max()), "Min": float(array.min()), "Mean": float(array.mean())}
    described = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4], "requires_grad": True}
    return {**described, **extremes, "Norm": float(np.linalg.norm(array)), "data_name": path.name}


def write_calls(folder: Path, level: str, data: dict[str, object]) -> None:
    where = str(folder / "dump_tensor_data")
    top = {"task": "tensor", "level": level, "framework": "pytorch", "dump_data_dir": where, "data": data}
    (folder / "dump.json").write_text(json.dumps(top))
    (folder / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    (folder / "stack.json").write_text("{}")


def compared(root: Path) -> Replicas:
    session = open_dump(root, remember=False)
    try:
        return compare_ranks(session)
    finally:
        session.close()


RECORDED = {
    "dp": "dp 4 (recorded: parallel_info of the dumper)",
    "tp": "dp 3 x tp 2 (recorded: parallel_info of the dumper)",
    "pp": "dp 3 x pp 2 (recorded: parallel_info of the dumper)",
    "ep": "dp 6 x ep 2 (recorded: parallel_info of the dumper)",
}


@pytest.mark.parametrize("name", KINDS)
class TestPlacesThatWereRecorded:
    def test_a_healthy_run_raises_no_alarm(self, tmp_path: Path, name: str) -> None:
        kind = KINDS[name]
        by_dumper(tmp_path / "dump", kind, kind.weights(astray=False))
        found = compared(tmp_path / "dump")
        assert str(found.layout) == RECORDED[name]
        assert not found.found
        assert not found.apart
        assert sum(found.compared.values()) >= STEPS

    def test_the_rank_that_goes_astray_is_named(self, tmp_path: Path, name: str) -> None:
        kind = KINDS[name]
        by_dumper(tmp_path / "dump", kind, kind.weights(astray=True))
        (found,) = compared(tmp_path / "dump").firsts
        rank, weight = kind.outlier
        assert (found.key.node, found.outliers, found.key.step) == (weight, (rank,), ASTRAY_AT)
        assert found.group == kind.among
        assert found.equal_at == ASTRAY_AT - 1


@pytest.mark.parametrize("name", KINDS)
class TestPlacesThatFollowFromWeights:
    def test_a_healthy_run_raises_no_alarm_and_says_what_was_inferred(self, tmp_path: Path, name: str) -> None:
        kind = KINDS[name]
        by_msprobe(tmp_path / "dump", kind, kind.weights(astray=False))
        found = compared(tmp_path / "dump")
        assert found.layout.told_by is ToldBy.INFERRED
        assert "(inferred: from the weights that are equal" in str(found.layout)
        assert kind.among in found.layout.replicas
        assert not found.found

    def test_the_rank_that_goes_astray_is_named(self, tmp_path: Path, name: str) -> None:
        kind = KINDS[name]
        by_msprobe(tmp_path / "dump", kind, kind.weights(astray=True))
        (found,) = compared(tmp_path / "dump").firsts
        rank, weight = kind.outlier
        assert (found.key.node, found.outliers, found.key.step) == (weight, (rank,), ASTRAY_AT)
        assert found.group == kind.among


EXPERTS = Kind(
    {rank: {"tp": (0, 1), "pp": (rank // 3, 2), "ep": (rank % 3, 3)} for rank in range(6)},
    lambda at: {
        "attn.weight": (1, at["pp"][0]),
        "mlp.router.weight": (2, at["pp"][0]),
        "mlp.experts.linear_fc1.weight0": (3, at["pp"][0], at["ep"][0]),
    },
    (4, "mlp.router.weight"),
    (3, 4, 5),
)
"""Two stages of three ranks each, which share experts."""


def test_names_of_files_say_the_places_of_ranks(tmp_path: Path) -> None:
    by_megatron(tmp_path / "healthy", EXPERTS, EXPERTS.weights(astray=False))
    found = compared(tmp_path / "healthy")
    assert str(found.layout) == "pp 2 x ep 3 (recorded: names of files)"
    assert not found.found
    by_megatron(tmp_path / "astray", EXPERTS, EXPERTS.weights(astray=True))
    (difference,) = compared(tmp_path / "astray").firsts
    assert difference.group == EXPERTS.among
    assert len(difference.outliers) == 1
    assert difference.key.node == "mlp.router.weight"


def test_what_belongs_to_no_expert_is_equal_from_the_start(tmp_path: Path) -> None:
    """The layout says so: of inferred ones nobody knows whether it is a part of something larger."""
    kind = Kind(
        {rank: {"dp": (rank, 3), "ep": (rank, 3)} for rank in range(3)},
        KINDS["ep"].names,
        (1, "attn.weight"),
        (0, 1, 2),
    )
    weights = kind.weights(astray=False)
    for step in range(STEPS):
        weights[step][1]["attn.weight"] = value(step, 77)
    by_dumper(tmp_path / "recorded", kind, weights)
    (found,) = compared(tmp_path / "recorded").firsts
    assert (found.key.node, found.outliers, found.key.step, found.equal_at) == ("attn.weight", (1,), 0, None)
    by_msprobe(tmp_path / "inferred", kind, weights)
    inferred = compared(tmp_path / "inferred")
    assert not inferred.found
    assert "attn.weight" in inferred.apart


def by_process_groups(root: Path, sums: Mapping[int, list[Array]]) -> None:
    """What msprobe records of sums over process groups: of rank 0 with 2, and 1 with 3."""
    for rank, arrays in sums.items():
        folder = root / f"step0/rank{rank}"
        values = folder / "dump_tensor_data"
        values.mkdir(parents=True)
        group = {"type": "ProcessGroup", "group_ranks": [rank % 2, rank % 2 + 2], "group_id": str(rank % 2)}
        data = {}
        for number, array in enumerate(arrays):
            key = f"Distributed.all_reduce.{number}.forward"
            made = recorded(array, values / f"{key}.output.0.pt")
            data[key] = {"input_args": [], "input_kwargs": {"group": group}, "output": [made]}
        write_calls(folder, "L1", data)


def test_process_groups_say_who_must_have_the_same(tmp_path: Path) -> None:
    """Each group has sums of its own; where one rank has another sum than the other, both are named."""
    sums = {rank: [value(rank % 2, number) for number in range(4)] for rank in range(4)}
    by_process_groups(tmp_path / "healthy", sums)
    healthy = compared(tmp_path / "healthy")
    assert not healthy.found
    assert sum(healthy.compared.values()) == 8
    sums[3][2] = value(3, 2)
    by_process_groups(tmp_path / "astray", sums)
    (found,) = compared(tmp_path / "astray").differences
    assert (found.group, found.outliers) == ((1, 3), ())
    assert "all_reduce" in found.key.node


@pytest.mark.parametrize(
    ("name", "expert"),
    [
        ("decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight", True),
        ("model/layers/0/mlp/experts/7/w1.weight", True),
        ("experts.linear_fc1.weight0", True),
        ("block_sparse_moe.experts.0.w1.weight", True),
        ("moe.expert_3.weight", True),
        ("moe.expert3.weight", True),
        ("mlp.shared_experts.linear_fc1.weight", False),
        ("mlp.shared_expert_gate.weight", False),
        ("mlp.router.weight", False),
        ("mlp.router.expert_bias", True),
        ("attention.weight", False),
    ],
)
def test_experts_are_told_by_their_names(name: str, expert: bool) -> None:
    assert is_expert(name) is expert
