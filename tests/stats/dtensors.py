"""Writes the files of ranks whose tensors are DTensors, as FSDP2 and trainers of language models do.

This process believes to be each of the ranks in turn: no other process is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

Wholes = Mapping[str, tuple[torch.Tensor, Sequence[Any]]]
"""Whole tensors, and how they are placed along each axis of a mesh."""


@contextmanager
def rank_of(rank: int, world: int) -> Iterator[None]:
    """Lets this process believe that it is one of several ranks."""
    torch.distributed.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def write_ranks(
    folder: Path,
    sizes: Sequence[int],
    wholes: Wholes,
    *,
    names: Sequence[str] = (),
    change: Callable[[int, dict[str, Any]], None] = lambda _rank, _state: None,
    file: str = "model",
) -> list[Path]:
    """Writes ``model_world_size_2_rank_0.pt`` and so on.

    Args:
        folder: where to.
        sizes: of the mesh.
        wholes: the tensors.
        names: of the axes of the mesh; none where they have none.
        change: makes something else of the state of a rank.
        file: the start of the names of files.

    Returns:
        The files.
    """
    world = math.prod(sizes)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for rank in range(world):
        with rank_of(rank, world):
            mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names) or None)
            state: dict[str, Any] = {}
            for name, (whole, placements) in wholes.items():
                local = _local(whole, placements, sizes, mesh.get_coordinate() or ())
                state[name] = DTensor.from_local(local, mesh, placements, shape=whole.shape, stride=whole.stride())
            change(rank, state)
            files.append(folder / f"{file}_world_size_{world}_rank_{rank}.pt")
            torch.save(state, files[-1])
    return files


def _local(whole: torch.Tensor, placements: Sequence[Any], sizes: Sequence[int], at: Sequence[int]) -> torch.Tensor:
    """Returns the part of one rank; the terms of a sum are equal."""
    local = whole
    axes = list(range(len(sizes)))
    if any(isinstance(placement, _StridedShard) for placement in placements):
        axes.reverse()
    for axis in axes:
        placement = placements[axis]
        if isinstance(placement, Shard | _StridedShard):
            pieces = local.chunk(sizes[axis], placement.dim)
            local = pieces[at[axis]] if at[axis] < len(pieces) else local[:0]
        elif isinstance(placement, Partial):
            local = local / sizes[axis]
        else:
            assert isinstance(placement, Replicate)
    return local.clone()
