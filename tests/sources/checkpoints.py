"""Writes checkpoints that many ranks wrote a part of: with torch's own classes, and as .safetensors files."""

from __future__ import annotations

import io
import itertools
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from tests.sources.arrays import write_safetensors
from tui_debugger.model import ReadSpec

Array = npt.NDArray[Any]
Cut = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes of a piece."""
INDEX = ".metadata"


def cuts_of(shape: Sequence[int], edges: Sequence[Sequence[int]]) -> list[Cut]:
    """A grid of pieces."""
    sides = []
    for size, inner in zip(shape, edges, strict=True):
        ends = [0, *sorted({edge for edge in inner if 0 < edge < size}), size]
        sides.append([(first, end - first) for first, end in itertools.pairwise(ends)])
    return [(tuple(first for first, _ in each), tuple(size for _, size in each)) for each in itertools.product(*sides)]


def write_checkpoint(
    folder: Path,
    values: dict[str, Array],
    cuts: dict[str, list[Cut]],
    objects: dict[str, Any] | None = None,
    **odd: Any,
) -> str:
    """Writes a distributed checkpoint as several ranks do, with torch's own classes, and returns its index."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [io.BytesIO(), io.BytesIO()]
    described: dict[str, Any] = {}
    places: dict[dcp.MetadataIndex, Any] = {}
    for name, value in ({"lr": 0.1} if objects is None else objects).items():
        start = files[0].tell()
        torch.save(value, files[0])
        described[name] = dcp.BytesStorageMetadata()
        places[dcp.MetadataIndex(name)] = _StorageInfo("__0_0.distcp", start, files[0].tell() - start)
    for name, array in values.items():
        for number, (offsets, sizes) in enumerate(cuts[name]):
            part = array[tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))]
            rank, start = number % 2, files[number % 2].tell()
            torch.save(torch.from_numpy(np.array(part)), files[rank])
            info = _StorageInfo(odd.get("path", f"__{rank}_0.distcp"), start, files[rank].tell() - start)
            if "packed" in odd:
                info.transform_descriptors = ["zstd"]
            places[dcp.MetadataIndex(name, torch.Size(offsets), number)] = info
        described[name] = dcp.TensorStorageMetadata(
            dcp.TensorProperties(dtype=torch.from_numpy(array).dtype),
            torch.Size(odd.get("shape", array.shape)),
            [dcp.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in cuts[name]],
        )
    for rank, file in enumerate(files):
        (folder / f"__{rank}_0.distcp").write_bytes(file.getvalue())
    (folder / INDEX).unlink(missing_ok=True)
    (folder / INDEX).write_bytes(pickle.dumps(dcp.Metadata(described, None, places), 4))
    return str(folder / INDEX)


def write_shards(folder: Path, array: Array, cuts: list[Cut]) -> ReadSpec:
    """Writes files of .safetensors whose notes say where each piece belongs."""
    folder.mkdir(exist_ok=True)
    for number, (offsets, sizes) in enumerate(cuts):
        part = array[tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))]
        notes = {"DCP_SHARDING_INFO": json.dumps({"w": {"saved_offsets": offsets}})}
        path = folder / f"shard-{number + 1:05}-model-00001-of-00001.safetensors"
        write_safetensors(path, {"w": np.array(part)}, notes)
    return ReadSpec(str(folder / "shard-00001-model-00001-of-00001.safetensors"), "shards", member="w")
