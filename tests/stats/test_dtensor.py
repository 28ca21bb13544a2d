"""Which part of a larger tensor a DTensor is, as the file of a rank says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
pytest.importorskip("torch.testing._internal.distributed.fake_pg")
from torch.distributed.device_mesh import DeviceMesh  # noqa: E402 - see above
from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

from tests.stats.dtensors import write_ranks  # noqa: E402
from tui_debugger.stats.torch_file import read_tree  # noqa: E402

LAST = (("mesh.dp", (1, 2)), ("mesh.tp", (1, 2)))
"""The place of the last of four ranks."""


def part(path: Path) -> Any:
    """What the file of a rank says of its one tensor."""
    ((_, ref),) = read_tree(str(path)).tensors
    return ref.part


def last_part(tmp_path: Path, placements: list[Any], sizes: tuple[int, ...] = (2, 2)) -> Any:
    names = ("dp", "tp")[: len(sizes)]
    return part(write_ranks(tmp_path, sizes, {"w": (torch.ones(8, 4), placements)}, names=names)[-1])


@pytest.mark.parametrize(
    ("placements", "text"),
    [
        (
            [Shard(0), Shard(1)],
            "dims d0[mesh.dp] d1[mesh.tp]; shard 1 of 2 along dimension 0, shard 1 of 2 along dimension 1 of [8, 4]",
        ),
        (
            [Replicate(), Shard(1)],
            "dims d0 d1[mesh.tp] # mesh.dp:replicated; copy 1 of 2, shard 1 of 2 along dimension 1 of [8, 4]",
        ),
        (
            [Shard(0), Shard(0)],
            "dims d0[mesh.dp,mesh.tp] d1; shard 1 of 2 along dimension 0, shard 1 of 2 along dimension 0 of [8, 4]",
        ),
        (
            [_StridedShard(0, split_factor=2), Shard(0)],
            "dims d0[mesh.tp,mesh.dp] d1; shard 1 of 2 along dimension 0, shard 1 of 2 along dimension 0 of [8, 4]",
        ),
        (
            [Shard(1), Partial()],
            "dims d0[mesh.tp:partial] d1[mesh.dp]; shard 1 of 2 along dimension 1, part 1 of 2 of a sum of [8, 4]",
        ),
    ],
)
def test_a_part_is_said_in_words_and_by_dimensions(tmp_path: Path, placements: list[Any], text: str) -> None:
    found = last_part(tmp_path, placements)
    assert (found.text, found.places) == (text, LAST)


def test_how_strided_parts_lie_is_not_said_where_other_axes_do_not_tell(tmp_path: Path) -> None:
    found = last_part(tmp_path, [_StridedShard(0, split_factor=2), Replicate()])
    assert found.text == "shard 1 of 2 along dimension 0, copy 1 of 2 of [8, 4]"


def test_a_mean_is_no_sum(tmp_path: Path) -> None:
    found = last_part(tmp_path, [Shard(0), Partial("avg")])
    assert (found.text, found.places) == ("part of a larger tensor; which one is not known", ())


def test_a_tensor_of_one_rank_is_whole(tmp_path: Path) -> None:
    assert last_part(tmp_path, [Shard(0)], (1,)) is None


def test_axes_without_names_have_numbers(tmp_path: Path) -> None:
    found = part(write_ranks(tmp_path, (2,), {"w": (torch.ones(5, 3), [Shard(0)])})[1])
    assert (found.text, found.places) == (
        "dims d0[mesh.0] d1; shard 1 of 2 along dimension 0 of [5, 3]",
        (("mesh.0", (1, 2)),),
    )


class _Layout:
    """The layout of a mesh as PyTorch 2.9 to 2.12 has it."""

    def __init__(self) -> None:
        self.shape, self.stride = (2, 2), (2, 1)


def before_2_9(mesh: Any) -> dict[str, Any]:
    places = list(mesh.get_coordinate())
    return {"mesh": torch.arange(4).view(2, 2), "mesh_dim_names": ("dp", "tp"), "_coordinate_on_dim": places}


def before_2_13(mesh: Any) -> dict[str, Any]:
    return {"_layout": _Layout(), "_mesh_dim_names": ("dp", "tp"), "_coordinate_on_dim": mesh.get_coordinate()}


@pytest.mark.parametrize("attributes", [before_2_9, before_2_13])
def test_meshes_of_earlier_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attributes: Any) -> None:
    monkeypatch.setattr(DeviceMesh, "__getstate__", attributes)
    found = last_part(tmp_path, [Shard(0), Shard(1)])
    assert found.text.startswith("dims d0[mesh.dp] d1[mesh.tp]; ")
    assert found.places == LAST


@pytest.mark.parametrize("places", [None, (0,), (0, 7), ("0", "1"), (0, -1), (0, 10**30)])
def test_a_mesh_without_the_place_of_the_rank_says_that_there_are_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Any
) -> None:
    def attributes(_: Any) -> dict[str, Any]:
        return {"mesh": torch.arange(4).view(2, 2), "_coordinate_on_dim": places}

    monkeypatch.setattr(DeviceMesh, "__getstate__", attributes)
    found = last_part(tmp_path, [Shard(0), Shard(1)])
    assert (found.text, found.places) == ("part of a larger tensor; which one is not known", ())
