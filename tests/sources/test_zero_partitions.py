"""Checkpoints of DeepSpeed's ZeRO: what is in a flat tensor is called after its parameter, on the rank that has it.

Files are as DeepSpeed writes them: stages 1 and 2 cut the flat tensor of a whole group, stage 3 each parameter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import run
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec
from tui_debugger.session.session import open_dump
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.torch_file import member_of_range

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

Capsys = pytest.CaptureFixture[str]
SHAPES = {"wte.weight": (24, 5), "layers.0.weight": (7, 5), "layers.0.bias": (7,), "head.weight": (3, 7)}
GROUPS = {1: [list(SHAPES)], 2: [[name for name in SHAPES if "bias" not in name], ["layers.0.bias"]]}
WEIGHTS = {2: "single_partition_of_fp32_groups", 3: "fp32_flat_groups"}
BASE = {2: "base_optimizer_state", 3: "optimizer_state_dict"}


def values(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def part(tensors: Mapping[str, Any], names: Sequence[str], stage: int, rank: int, ranks: int) -> Any:
    """What a rank has of a group of parameters."""
    if stage == 3:
        sizes = {name: math.ceil(tensors[name].numel() / ranks) for name in names}
        flat = {name: torch.zeros(sizes[name] * ranks) for name in names}
        for name in names:
            flat[name][: tensors[name].numel()] = tensors[name].flatten()
        return torch.cat([flat[name][rank * sizes[name] :][: sizes[name]] for name in names])
    whole = torch.cat([tensors[name].flatten() for name in names])
    whole = torch.cat([whole, torch.zeros(-len(whole) % (2 * ranks))])
    return whole.chunk(ranks)[rank].clone()


def write(
    root: Path,
    stage: int,
    ranks: int = 2,
    groups: int = 1,
    *,
    bad: tuple[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """Writes a checkpoint; ``bad``: of the weight, or of ``exp_avg/`` of it, that element is NaN."""
    weights, averages = values(0), values(1)
    if bad is not None:
        name, of = bad[0].removeprefix("exp_avg/"), averages if bad[0].startswith("exp_avg/") else weights
        of[name].view(-1)[bad[1]] = math.nan
    folder = root / "global_step8"
    folder.mkdir(parents=True)
    said = SHAPES if shapes is None else shapes
    named = [{name: torch.Size(said[name]) for name in group if name in said} for group in GROUPS[groups]]
    model = {"module": {name: each.bfloat16() for name, each in values(0).items()}, "param_shapes": named}
    if stage == 2:
        torch.save(model, folder / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        if stage == 3:
            empty = {"module": dict.fromkeys(SHAPES, torch.empty(0)), "param_shapes": named}
            torch.save(empty, folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        states = {
            number: {"exp_avg": part(averages, group, stage, rank, ranks), "step": torch.tensor(8.0)}
            for number, group in enumerate(GROUPS[groups])
        }
        saved = {
            "zero_stage": stage,
            "partition_count": ranks if stage == 3 else [ranks] * groups,
            BASE[stage]: {"state": states, "param_groups": [{"lr": 0.1}] * groups},
            WEIGHTS[stage]: [part(weights, group, stage, rank, ranks) for group in GROUPS[groups]],
        }
        torch.save({"optimizer_state_dict": saved}, folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return root


def held(root: Path, stage: int, name: str) -> list[Any]:
    """All that ranks have of a weight, one after the other."""
    session = open_dump(root)
    try:
        found = []
        for rank in session.ranks():
            nodes = session.nodes(rank)
            row = nodes.find(f"optim_states.optimizer_state_dict.{WEIGHTS[stage]}.{name}")
            found += [session.read(each.key) for each in session.tensor_rows(rank, 8, row)] if row >= 0 else []
        return found
    finally:
        session.close()


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stage", "ranks"), [(2, 2), (2, 4), (3, 2), (3, 4)])
def test_the_parts_of_all_ranks_are_the_parameters(tmp_path: Path, stage: int, ranks: int, groups: int) -> None:
    root = write(tmp_path, stage, ranks, groups)
    for name, value in values(0).items():
        parts = held(root, stage, name)
        np.testing.assert_array_equal(np.concatenate([each.ravel() for each in parts]), value.numpy().ravel())
        if len(parts) == 1:
            assert parts[0].shape == SHAPES[name]


@pytest.mark.parametrize(
    ("stage", "bad", "rank"),
    [
        (2, ("layers.0.weight", 9), 1),
        (2, ("exp_avg/wte.weight", 3), 0),
        (3, ("head.weight", 12), 1),
        (3, ("exp_avg/head.weight", 0), 0),
    ],
)
def test_an_element_of_a_flat_tensor_is_told_with_its_parameter(
    tmp_path: Path, capsys: Capsys, stage: int, bad: tuple[str, int], rank: int
) -> None:
    root = write(tmp_path, stage, bad=bad)
    place = f"{BASE[stage]}.state.exp_avg." if "/" in bad[0] else f"{WEIGHTS[stage]}."
    told = run(capsys, "ranks", root).lines[0]
    assert told.startswith(f"Rank {rank} broke first: step 8, optim_states.optimizer_state_dict.")
    assert f"{place}{bad[0].removeprefix('exp_avg/')}:out:0, NaN 1 of" in told


@pytest.mark.parametrize("stage", [2, 3])
def test_a_healthy_checkpoint_accuses_nobody_and_nothing_is_compared(
    tmp_path: Path, capsys: Capsys, stage: int
) -> None:
    """Each element is on one rank only; the weights of stage 3 that are left in the model are empty."""
    root = write(tmp_path, stage)
    assert run(capsys, "check", root).code == 0
    answer = run(capsys, "ranks", root)
    assert answer.code == 2
    assert "no tensor was dumped that must be equal on several ranks" in answer.lines[0]


@pytest.mark.parametrize("stage", [2, 3])
def test_where_sizes_do_not_add_up_nothing_is_named(tmp_path: Path, capsys: Capsys, stage: int) -> None:
    other = {**SHAPES, "wte.weight": (64, 5)}
    answer = run(capsys, "ranks", write(tmp_path, stage, bad=("head.weight", 12), shapes=other))
    assert f"{WEIGHTS[stage]}/0:out:0" in answer.lines[0]


def test_a_range_that_a_tensor_does_not_have_is_not_read(tmp_path: Path) -> None:
    torch.save({"flat": torch.arange(6.0)}, tmp_path / "a.pt")

    def read(start: int, shape: tuple[int, ...]) -> list[Any]:
        spec = ReadSpec(str(tmp_path / "a.pt"), "pt", member=member_of_range(("flat",), start, shape))
        found: list[Any] = open_array(spec).tolist()
        return found

    assert read(1, (2, 2)) == [[1, 2], [3, 4]]
    for start, shape in ((3, (2, 2)), (-1, (2,))):
        with pytest.raises(UnreadableTensorError):
            read(start, shape)
