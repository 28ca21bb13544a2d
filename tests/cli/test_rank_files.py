"""One file for each rank, with the number of all ranks in its name: ``model_world_size_2_rank_0.pt``.

Their tensors are DTensors: parts of larger ones, or copies.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
pytest.importorskip("torch.testing._internal.distributed.fake_pg")
from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: E402 - see above
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

from tests.cli.running import Answer, run  # noqa: E402
from tests.stats.dtensors import Wholes, write_ranks  # noqa: E402
from tui_debugger.sources import open_source  # noqa: E402

Capsys = pytest.CaptureFixture[str]


def wholes(seed: int = 0) -> dict[str, tuple[Any, list[Any]]]:
    values = torch.Generator().manual_seed(seed)
    return {
        "fc.weight": (torch.randn(8, 4, generator=values), [Shard(0)]),
        "odd.weight": (torch.randn(5, 3, generator=values), [Shard(0)]),
        "out.weight": (torch.randn(4, 6, generator=values), [Shard(1)]),
        "fc.bias": (torch.randn(6, generator=values), [Replicate()]),
    }


def setting(name: str, value: float, rank: int = 1) -> Callable[[int, dict[str, Any]], None]:
    """Sets one number of a tensor of a rank."""

    def change(at: int, state: dict[str, Any]) -> None:
        if at == rank:
            state[name].to_local().view(-1)[1] = value

    return change


def bad_tensors(answer: Answer) -> list[tuple[int, int, str]]:
    """Step, rank and node of the tensors with NaN."""
    return [(hit["step"], hit["rank"], hit["node"]) for hit in answer.json["hits"] if hit["stats"]["nan"]]


def write_whole(folder: Path, of: Wholes) -> Path:
    folder.mkdir()
    torch.save({name: whole for name, (whole, _) in of.items()}, folder / "model.pt")
    return folder


def test_ranks_and_names_are_those_of_the_files_and_what_they_hold(tmp_path: Path, capsys: Capsys) -> None:
    write_ranks(tmp_path, (2,), wholes(), names=("fsdp",))
    write_ranks(tmp_path, (2,), {"state/0/exp_avg": wholes()["fc.weight"]}, names=("fsdp",), file="optim")
    source = open_source(tmp_path)
    assert list(source.ranks()) == [0, 1]
    source.tensors(1, 0)
    assert sorted(source.nodes(1).names) == [
        *("fc.bias", "fc.weight", "odd.weight", "optim.state.0.exp_avg", "out.weight"),
    ]
    shown = run(capsys, "show", tmp_path, "odd.weight", "--rank", "1", "--json").json
    said = "dims d0[mesh.fsdp] d1; shard 1 of 2 along dimension 0 of [5, 3]"
    assert [each["placement"] for each in shown["tensors"]] == [said]


@pytest.mark.parametrize(("value", "code"), [(1.0, 0), (math.nan, 1)])
def test_a_bad_number_in_the_part_of_a_rank_is_found_on_that_rank(
    tmp_path: Path, capsys: Capsys, value: float, code: int
) -> None:
    write_ranks(tmp_path, (2,), wholes(), names=("fsdp",), change=setting("fc.weight", value))
    answer = run(capsys, "check", tmp_path, "--json")
    assert answer.code == code
    assert bad_tensors(answer) == [(0, 1, "fc.weight")] * code


def test_a_rank_whose_file_is_missing_is_a_doubt(tmp_path: Path, capsys: Capsys) -> None:
    first, _ = write_ranks(tmp_path, (2,), wholes(), names=("fsdp",))
    first.unlink()
    answer = run(capsys, "check", tmp_path)
    assert answer.code == 2
    assert f"{first.name} (the file of a rank that is missing)" in answer.out


def test_who_asks_about_one_of_the_files_asks_about_no_other(tmp_path: Path, capsys: Capsys) -> None:
    first, second = write_ranks(tmp_path, (2,), wholes(), names=("fsdp",), change=setting("fc.weight", math.nan))
    assert run(capsys, "check", first).code == 0
    assert run(capsys, "check", second).code == 1


def test_a_number_of_ranks_that_is_no_number_costs_nothing(tmp_path: Path, capsys: Capsys) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "model_world_size_999999999_rank_3.pt")
    assert run(capsys, "check", tmp_path).code == 2
    missing = open_source(tmp_path).unreadable()
    assert len(missing) == 21
    assert missing[0].where == "model_world_size_999999999_rank_*.pt"
    assert missing[0].why == "the files of 999,999,998 ranks are missing"


def test_steps_of_a_trainer_have_the_files_of_ranks_below_them(tmp_path: Path, capsys: Capsys) -> None:
    """As verl has them: ``global_step_10/actor/model_world_size_2_rank_0.pt``."""
    for step in (10, 20):
        change = setting("fc.weight", math.nan if step == 20 else 1.0)
        files = write_ranks(tmp_path / f"global_step_{step}/actor", (2,), wholes(step), names=("fsdp",), change=change)
        (files[0].parent / "huggingface").mkdir()
        (files[0].parent / "huggingface/config.json").write_text("{}")
    answer = run(capsys, "check", tmp_path, "--json")
    assert answer.code == 1
    assert bad_tensors(answer) == [(20, 1, "actor.fc.weight")]
    assert run(capsys, "check", tmp_path / "global_step_10").code == 0
    files[0].unlink()
    actor = run(capsys, "check", files[1].parent, "--json")
    assert bad_tensors(actor) == [(20, 1, "actor.fc.weight")]
    missing = run(capsys, "check", files[1].parent, "--filter", "odd", "--watch", "TO")
    assert (missing.code, files[0].name in missing.out) == (2, True)
    assert run(capsys, "check", tmp_path, "--step", "10", "--watch", "TO").code == 0
    shutil.rmtree(tmp_path / "global_step_20")
    assert run(capsys, "check", tmp_path).code == 0


@pytest.mark.parametrize(("name", "code"), [("fc.weight", 0), ("fc.bias", 1)])
def test_copies_must_be_equal_and_shards_need_not(tmp_path: Path, capsys: Capsys, name: str, code: int) -> None:
    write_ranks(tmp_path, (2,), wholes(), names=("dp",), change=setting(name, 7.0))
    answer = run(capsys, "ranks", tmp_path, "--json")
    assert answer.code == code
    assert run(capsys, "ranks", tmp_path).out.count("layout: mesh.dp 2 (recorded: meshes of DTensors)") == 1


def test_weights_beside_dtensors_may_differ_between_ranks_of_any_axis(tmp_path: Path, capsys: Capsys) -> None:
    """Experts that only their own rank has are plain tensors, whatever the axis of the mesh is called."""

    def own(rank: int, state: dict[str, Any]) -> None:
        state["experts.0.weight"] = torch.full((2, 2), float(rank)) + torch.eye(2)

    write_ranks(tmp_path, (2,), wholes(), names=("dp",), change=own)
    assert run(capsys, "ranks", tmp_path).code == 0


SQUARE: list[list[Any]] = [
    [Shard(0), Shard(1)],
    [Replicate(), Shard(0)],
    [Shard(0), Shard(0)],
    [_StridedShard(0, split_factor=2), Shard(0)],
    [Shard(1), Partial()],
    [Replicate(), Replicate()],
]


def test_parts_are_put_together_as_the_files_say_and_compared_with_the_whole(tmp_path: Path, capsys: Capsys) -> None:
    of = {f"layer{at}.weight": (torch.randn(8, 4), placements) for at, placements in enumerate(SQUARE)}
    whole = write_whole(tmp_path / "whole", of)
    write_ranks(tmp_path / "parts", (2, 2), of, names=("dp", "tp"))
    answer = run(capsys, "diff", whole, tmp_path / "parts", "--json")
    assert (answer.code, answer.json["coverage"]["judgements"]["same"]) == (0, len(SQUARE))
    assert answer.json["coverage"]["joined"] == {"replicated": 3, "split": 4, "sum": 1}
    write_ranks(tmp_path / "parts", (2, 2), of, names=("dp", "tp"), change=setting("layer3.weight", 9.0, rank=2))
    answer = run(capsys, "diff", whole, tmp_path / "parts", "--json")
    assert answer.code == 1
    assert [each["node"] for each in answer.json["findings"]] == ["layer3.weight"]


def test_shards_of_unequal_sizes_are_put_together_by_their_values(tmp_path: Path, capsys: Capsys) -> None:
    whole = write_whole(tmp_path / "whole", wholes())
    write_ranks(tmp_path / "parts", (2,), wholes(), names=("fsdp",))
    answer = run(capsys, "diff", whole, tmp_path / "parts", "--json")
    assert (answer.code, answer.json["coverage"]["judgements"]["same"]) == (0, 4)
