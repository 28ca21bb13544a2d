"""Reads tensors in several pieces: checkpoints in which every rank of a training wrote its part.

PyTorch's distributed checkpoint has an index, ``.metadata``, and files of concatenated ``torch.save`` archives, one
archive for each piece. Its other form has .safetensors files whose metadata say where each piece belongs. Pieces are
put together when they are read, no more of them than needed. They must cover the whole tensor, each element once.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array
from tui_debugger.model import ReadSpec
from tui_debugger.stats.archive import State, state_of, temporary_array, unreadable
from tui_debugger.stats.blocks import boxes
from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.stats.kept import Kept
from tui_debugger.stats.npy import WHOLE_FILE, TensorFile, ValueReader, checked_layout, open_array
from tui_debugger.stats.restricted_pickle import Global, Instance
from tui_debugger.stats.safetensors import SafetensorsHeader, read_header
from tui_debugger.stats.torch_file import read_objects

MAX_PIECES: Final = 1 << 12
"""Most pieces of a tensor."""
SHARD: Final = re.compile(r"shard-\d{1,9}-model-\d{1,9}-of-\d{1,9}\.safetensors")
"""Names of files whose metadata say where their pieces belong."""
_NOTES: Final = "DCP_SHARDING_INFO"
_KEPT: Final = 8
"""Pieces of a tensor that stay open."""
_EACH: Final = 1000
"""Approximate bytes of memory for each tensor: its pieces and their places."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """A part of a tensor; ``offsets`` is the index of its first element in the whole."""

    spec: ReadSpec
    offsets: Shape
    shape: Shape


@dataclass(frozen=True, slots=True)
class Sharded:
    """A tensor in pieces, without empty ones; ``problem`` says why they do not make the whole of ``shape``."""

    dtype: str
    shape: Shape
    pieces: tuple[TensorPiece, ...]
    problem: str = ""


# -- an index and files of torch -------------------------------------------------------------------

PART: Final = ".distcp"
"""Suffix of the files of a distributed checkpoint."""


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """The index of a distributed checkpoint; ``tensors`` are in its order.

    ``objects`` has for each pickled Python object where it lies (a ``torch.save`` file within a file), or why that is
    unknown; ``stretches`` first bytes and ends of all entries in each file.
    """

    tensors: dict[str, Sharded]
    objects: dict[str, ReadSpec | str]
    stretches: dict[str, list[tuple[int, int]]]


_indexes: Kept[tuple[str, State], CheckpointIndex] = Kept(lambda index: len(index.tensors) * _EACH)


def read_index(path: str) -> CheckpointIndex:
    """Returns the index of a distributed checkpoint, cached.

    Raises:
        UnreadableTensorError: the index is missing, damaged, or names unexpected classes.
    """
    try:
        key = path, state_of(opener.stat(path))
    except (OSError, ValueError):
        key = path, (0, 0, 0, 0)
    return _indexes.get(key, lambda: _read_index(path))


def _read_index(path: str) -> CheckpointIndex:
    found = read_objects(path)
    try:
        return _index_of(found, os.path.dirname(path))  # noqa: PTH120 - as above
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise unreadable(path, "is no index of a distributed checkpoint, or a damaged one") from error


def not_indexed(path: str) -> list[tuple[str, str]]:
    """Returns the files that the index at ``path`` does not account for, with the reason.

    Raises UnreadableTensorError as ``read_index``, and OSError when the directory cannot be listed.
    """
    folder, found = os.path.dirname(path), list[tuple[str, str]]()  # noqa: PTH120 - as above
    stretches = read_index(path).stretches
    there = {name for name in opener.listdir(folder) if name.endswith(PART)}
    for name in sorted(there | stretches.keys()):
        if name not in there:
            why = "a part of the checkpoint that is missing"
        elif name not in stretches:
            why = "a part that the index of the checkpoint does not name"
        else:
            spare = _spare(stretches[name], opener.stat(f"{folder}/{name}").st_size)
            why = f"has {spare:,} bytes that the index of the checkpoint does not name" if spare else ""
        if why:
            found.append((f"{folder}/{name}", why))
    return found


def _spare(stretches: list[tuple[int, int]], size: int) -> int:
    """Returns how many bytes of a file are in no stretch."""
    spare = at = 0
    for first, end in sorted(stretches):
        spare += max(min(first, size) - at, 0)
        at = max(at, end)
    return spare + max(size - at, 0)


def open_indexed(_: int, __: os.stat_result, spec: ReadSpec) -> ShardedValues:
    """Returns the reader of a tensor of a distributed checkpoint (``npy.OpenValue``); ``spec.path`` is the index."""
    index = read_index(spec.path)
    problem = index.objects.get(spec.member)
    if isinstance(problem, str):
        raise unreadable(f"{spec.path}:{spec.member}", problem)
    return _opened(index.tensors, spec)


def _index_of(index: Any, folder: str) -> CheckpointIndex:
    state = index.state
    stored = {_place(key): info.state for key, info in state["storage_data"].items()}
    tensors: dict[str, Sharded] = {}
    objects: dict[str, ReadSpec | str] = {}
    for name, described in state["state_dict_metadata"].items():
        if type(name) is not str:
            raise ValueError("no name")
        if not described.kind.endswith(".TensorStorageMetadata"):
            info = stored.get((name, None))
            objects[name] = _unusable(info) or _window(folder, info)
            continue
        facts = described.state
        chunks = [(_sizes(chunk.state["offsets"]), _sizes(chunk.state["sizes"])) for chunk in facts["chunks"]]
        infos = [stored.get((name, offsets)) for offsets, _ in chunks]
        problem = next((what for info in infos if (what := _unusable(info))), "")
        pieces = (
            ()
            if problem
            else tuple(
                TensorPiece(_window(folder, info), *chunk)
                for info, chunk in zip(infos, chunks, strict=True)
                if math.prod(chunk[1])
            )
        )
        tensors[name] = _put_together(_type_of(facts["properties"]), _sizes(facts["size"]), pieces, problem)
    return CheckpointIndex(tensors, objects, _stretches(stored.values()))


def _stretches(infos: Iterable[Any]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for info in infos:
        if not _unusable(info):
            first, length = info["offset"], info["length"]
            found.setdefault(info["relative_path"], []).append((first, first + length))
    return found


def _place(key: Instance) -> tuple[str, Shape | None]:
    fqn, offset = key.state["fqn"], key.state.get("offset")
    return fqn, None if offset is None else _sizes(offset)


def _window(folder: str, info: Any) -> ReadSpec:
    return ReadSpec(f"{folder}/{info['relative_path']}", "pt", offset=info["offset"], length=info["length"])


def _unusable(info: Any) -> str:
    """Returns why the values of a piece cannot be found; empty: they can."""
    if info is None:
        return "has a piece that its index does not place: it is damaged"
    name, first, length = info["relative_path"], info["offset"], info["length"]
    if info.get("transform_descriptors"):
        return "was packed or encrypted when it was saved, which is not read"
    inside = type(name) is str and name not in ("", ".", "..") and not set(name) & {"/", "\\", "\0"}
    good = inside and type(first) is int and type(length) is int and first >= 0 and length > 0
    return "" if good else "has a piece in no file beside its index: it is damaged"


def _type_of(properties: Instance) -> str:
    state = properties.state
    dtype = state["dtype"] if type(state) is dict else state[0]
    return dtype.name.removeprefix("torch.") if type(dtype) is Global else ""


def _sizes(values: Any) -> Shape:
    if type(values) is not tuple or not all(type(value) is int and value >= 0 for value in values):
        raise ValueError("no sizes")
    return values


# -- files of safetensors with notes ---------------------------------------------------------------

_shards: Kept[tuple[tuple[str, State], ...], dict[str, Sharded]] = Kept(lambda found: len(found) * _EACH)


def read_shards(folder: str) -> dict[str, Sharded]:
    """Returns the tensors of all shard files of a directory by name, cached.

    Raises:
        UnreadableTensorError: a file is damaged, or does not say where its pieces belong.
    """
    try:
        names = sorted(name for name in opener.listdir(folder) if SHARD.fullmatch(name))
        key = tuple((f"{folder}/{name}", state_of(opener.stat(f"{folder}/{name}"))) for name in names)
    except (OSError, ValueError) as error:
        raise unreadable(folder, f"cannot be listed: {error}") from error
    return _shards.get(key, lambda: _shards_of((path, read_header(path)) for path, _ in key))


def open_shards(_: int, __: os.stat_result, spec: ReadSpec) -> ShardedValues:
    """Returns the reader of a tensor in shard files (``npy.OpenValue``); ``spec.path`` is any of the files."""
    return _opened(read_shards(os.path.dirname(spec.path)), spec)  # noqa: PTH120 - as above


def _shards_of(headers: Iterable[tuple[str, SafetensorsHeader]]) -> dict[str, Sharded]:
    pieces: dict[str, list[TensorPiece]] = {}
    for path, header in headers:
        for name, offsets in _offsets(path, header):
            spec = replace(header.specs[name], path=path)
            pieces.setdefault(name, []).append(TensorPiece(spec, offsets, spec.shape or ()))
    found = {}
    for name, each in pieces.items():
        ends = [tuple(map(sum, zip(piece.offsets, piece.shape, strict=False))) for piece in each]
        ranks = {len(end) for end in ends} | {len(piece.shape) for piece in each}
        types = {piece.spec.dtype for piece in each}
        problem = "" if len(ranks) == 1 and len(types) == 1 else "has pieces of several shapes or types: it is damaged"
        shape = tuple(max(sizes) for sizes in zip(*ends, strict=True)) if not problem else ()
        filled = tuple(piece for piece in each if math.prod(piece.shape))
        found[name] = _put_together(each[0].spec.dtype, shape, filled, problem)
    return found


def _offsets(path: str, header: SafetensorsHeader) -> list[tuple[str, Shape]]:
    try:
        notes = json.loads(header.metadata[_NOTES])
        return [(name, _sizes(tuple(notes[name]["saved_offsets"]))) for name in header.specs]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise unreadable(path, "does not say where its pieces of tensors belong") from error


# -- pieces and the whole --------------------------------------------------------------------------


def _put_together(dtype: str, shape: Shape, pieces: tuple[TensorPiece, ...], problem: str) -> Sharded:
    return Sharded(dtype, shape, pieces, problem or _problem(shape, pieces))


def _problem(shape: Shape, pieces: tuple[TensorPiece, ...]) -> str:
    """Returns why pieces do not fill a tensor, each element once; empty: they do."""
    if math.prod(shape) >= 1 << 60:
        return "has an impossible shape"
    if len(pieces) > MAX_PIECES:
        return f"is in {len(pieces):,} pieces: that is not plausible"
    for piece in pieces:
        fits = len(piece.offsets) == len(piece.shape) == len(shape) and all(
            first + size <= whole for first, size, whole in zip(piece.offsets, piece.shape, shape, strict=True)
        )
        if not fits:
            return "has a piece that reaches beyond it: it is damaged"
    filled, whole = sum(math.prod(piece.shape) for piece in pieces), math.prod(shape)
    if filled < whole:
        return f"lacks {whole - filled:,} of its {whole:,} elements: a piece of it is missing"
    if filled > whole or _overlap(pieces):
        return "has pieces that overlap: it is damaged"
    return ""


def _overlap(pieces: tuple[TensorPiece, ...]) -> bool:
    if not pieces or not pieces[0].shape:
        return False
    first = np.array([piece.offsets for piece in pieces], np.int64)
    end = first + np.array([piece.shape for piece in pieces], np.int64)
    return any(
        ((first[at] < end[at + 1 :]) & (first[at + 1 :] < end[at])).all(axis=1).any() for at in range(len(pieces) - 1)
    )


def _opened(tensors: dict[str, Sharded], spec: ReadSpec) -> ShardedValues:
    where = f"{spec.path}:{spec.member}"
    found = tensors.get(spec.member)
    if found is None:
        raise unreadable(where, "is not in the checkpoint", "it was written anew: look again")
    if found.problem:
        raise unreadable(where, found.problem)
    return ShardedValues(found, where)


class ShardedValues(ValueReader):
    """The values of a tensor in pieces: a ``npy.ValueReader``."""

    __slots__ = ("_arrays", "_tensor", "_where", "layout", "packed")

    def __init__(self, tensor: Sharded, where: str) -> None:
        """Raises UnreadableTensorError when the first piece cannot be read, or the shape cannot be represented."""
        self._tensor, self._where, self.packed = tensor, where, True
        self._arrays: dict[int, Array] = {}
        dtype, name = dtype_of(tensor.dtype), tensor.dtype
        if tensor.pieces:
            with TensorFile(tensor.pieces[0].spec) as file:
                dtype, name = file.layout.dtype, file.layout.name
        if dtype is None:
            raise unreadable(where, f"has elements of type {tensor.dtype or '(none)'}, which are not read")
        self.layout = checked_layout(dtype, name, tensor.shape, where)

    def read_into(self, start: int, target: Array) -> None:
        done = 0
        for box in boxes(self.layout.shape, start, len(target)):
            sizes = tuple(end - first for first, end in box)
            count = math.prod(sizes)
            part = target[done : done + count].reshape(sizes)
            for number, piece in enumerate(self._tensor.pieces):
                there, here = _common(box, piece)
                if all(each.stop > each.start for each in there):
                    part[there] = self._piece(number)[here]
            done += count

    def array(self) -> Array:
        layout = self.layout
        whole = temporary_array(layout.count, layout.dtype, WHOLE_FILE).reshape(layout.shape)
        for number, piece in enumerate(self._tensor.pieces):
            there, here = _common([(0, size) for size in layout.shape], piece)
            whole[there] = self._piece(number)[here]
        return whole

    def check(self, zeros: int) -> None:
        for piece in self._tensor.pieces:
            with TensorFile(piece.spec) as file:
                file.check(zeros)

    def close(self) -> None:
        self._arrays.clear()

    def _piece(self, number: int) -> Array:
        found = self._arrays.get(number)
        if found is None:
            piece = self._tensor.pieces[number]
            found = open_array(piece.spec)
            if (found.shape, found.dtype) != (piece.shape, self.layout.dtype):
                what = f"has a piece of {found.dtype.name} {found.shape} in place of {self.layout.name} {piece.shape}"
                raise unreadable(self._where, f"{what}: it is damaged")
            while len(self._arrays) >= _KEPT:
                self._arrays.pop(next(iter(self._arrays)))
            self._arrays[number] = found
        return found


def _common(box: Iterable[tuple[int, int]], piece: TensorPiece) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Returns the intersection of a box and a piece, as slices of the box and of the piece."""
    there, here = [], []
    for (first, end), offset, size in zip(box, piece.offsets, piece.shape, strict=True):
        begin, stop = max(first, offset), min(end, offset + size)
        there.append(slice(begin - first, stop - first))
        here.append(slice(begin - offset, stop - offset))
    return tuple(there), tuple(here)
