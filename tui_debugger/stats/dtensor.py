"""Tells which part of a larger tensor a DTensor is, from the pickle of one rank.

A DTensor has a mesh (ranks along axes), and a placement for each axis: ranks along it have shards of a dimension,
copies, or terms of a sum. FSDP2 and tensor-parallel layers make such tensors; a ``torch.save`` file then has the part
of its rank (``model_world_size_2_rank_0.pt``). Names of axes get the prefix "mesh.": programs choose them freely, so
that "dp" does not promise that ranks hold the same weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

from tui_debugger.stats.restricted_pickle import Instance

SPEC: Final = "_spec"
"""The attribute of a DTensor with its ``DTensorSpec``."""
_MOST: Final = 1 << 62
_NAME: Final = re.compile(r"[\w.-]{1,40}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TensorPart:
    """The part of a larger tensor that a rank has.

    ``text`` begins with the dimensions in the form of SGLang's dumper if they tell how all parts make the whole: ``dims
    d0[mesh.fsdp] d1; shard 0 of 2 along dimension 0 of [8, 4]``. ``places`` has the rank's position and the number of
    ranks along each axis.
    """

    text: str
    places: tuple[tuple[str, tuple[int, int]], ...] = ()


_NOT_KNOWN: Final = TensorPart("part of a larger tensor; which one is not known")


class _MeshAxis(NamedTuple):
    """An axis of the mesh with several ranks, and the rank's part along it; ``order`` is the order of sharding."""

    name: str
    at: int
    size: int
    kind: str
    dimension: int
    strides: int
    order: int


_SHARDS: Final = ("Shard", "_StridedShard")
_STRIDED: Final = "_StridedShard"
_COPY: Final = "Replicate"
_TERMS: Final = ("Partial", "_Partial")


def part_of(spec: Any) -> TensorPart | None:
    """Returns the part from a pickled ``DTensorSpec``; None where one rank has the whole tensor."""
    known = _attributes(spec)
    meta = known.get("tensor_meta")
    shape = meta.arguments[0] if type(meta) is Instance and meta.arguments else None
    if not _are_integers(shape):
        return _NOT_KNOWN
    axes = _axes(known, len(shape))
    if axes is None:
        return _NOT_KNOWN
    if not axes:
        return None
    words = f"{', '.join(map(_words, axes))} of {list(shape)}"
    dims = _dims(axes, len(shape))
    text = f"dims {dims}; {words}" if dims else words
    return TensorPart(text, tuple((axis.name, (axis.at, axis.size)) for axis in axes))


def _axes(known: Mapping[Any, Any], dimensions: int) -> list[_MeshAxis] | None:
    """Returns the axes of a mesh that have several ranks; None where they cannot be understood."""
    mesh, placements = _attributes(known.get("mesh")), _items(known.get("placements"))
    sizes, places = _sizes(mesh), _items(mesh.get("_coordinate_on_dim"))
    if not _are_integers(sizes) or not _are_integers(places) or not len(sizes) == len(places) == len(placements):
        return None
    names = _items(mesh.get("_mesh_dim_names") or mesh.get("mesh_dim_names"))
    names = names if len(names) == len(sizes) else [None] * len(sizes)
    orders = _orders(known.get("shard_order"))
    found = []
    for number, (name, at, size, placement) in enumerate(zip(names, places, sizes, placements, strict=True)):
        kind = placement.kind.rpartition(".")[2] if type(placement) is Instance else ""
        told = _attributes(placement)
        dimension, strides = told.get("dim", 0), told.get("split_factor", 0)
        if type(dimension) is not int or type(strides) is not int or not 0 <= at < size:
            return None
        dimension += dimensions if dimension < 0 else 0
        if kind in _TERMS and told.get("reduce_op") != "sum":
            return None
        if kind not in (*_SHARDS, *_TERMS, _COPY) or (kind in _SHARDS and not 0 <= dimension < dimensions):
            return None
        called = name if type(name) is str and _NAME.fullmatch(name) else str(number)
        order = orders.get((dimension, number), number)
        if size > 1:
            found.append(_MeshAxis(f"mesh.{called}", at, size, kind, dimension, strides, order))
    return found if len({axis.name for axis in found}) == len(found) else None


def _sizes(mesh: Mapping[Any, Any]) -> Any:
    """Returns the number of ranks along each axis; its form changed in PyTorch 2.9 and 2.13."""
    if "_layout" not in mesh:
        return getattr(mesh.get("mesh"), "shape", None)
    layout = _attributes(mesh["_layout"])
    if "axes" in layout:
        return [_count(_attributes(axis).get("shape")) for axis in _items(layout["axes"])]
    shape = layout.get("shape")
    return [_count(each) for each in _items(shape)] or [shape]


def _count(shape: Any) -> Any:
    return math.prod(shape) if _are_integers(shape) else shape


def _orders(entries: Any) -> dict[tuple[int, int], int]:
    """Returns the stated order in which mesh axes divide a dimension, by (dimension, axis)."""
    found: dict[tuple[int, int], int] = {}
    for entry in _items(entries):
        dimension, axes = entry.arguments if type(entry) is Instance and len(entry.arguments) == 2 else (None, ())
        if type(dimension) is int and _are_integers(axes):
            found.update(((dimension, axis), order) for order, axis in enumerate(axes))
    return found


def _words(axis: _MeshAxis) -> str:
    if axis.kind == _COPY:
        return f"copy {axis.at} of {axis.size}"
    if axis.kind in _SHARDS:
        return f"shard {axis.at} of {axis.size} along dimension {axis.dimension}"
    return f"part {axis.at} of {axis.size} of a sum"


def _dims(axes: Sequence[_MeshAxis], dimensions: int) -> str:
    """Returns how the dimensions are divided, outermost axis first; empty where that cannot be expressed."""
    texts = []
    for dimension in range(dimensions):
        of = sorted((axis for axis in axes if axis.kind in _SHARDS and axis.dimension == dimension), key=_order)
        if any(axis.kind == _STRIDED for axis in of):
            # Tensor-parallel ranks divide the dimension before FSDP ranks, although these come first in the mesh.
            if len(of) != 2 or of[1].kind == _STRIDED or of[0].strides != of[1].size:
                return ""
            of.reverse()
        splits = [axis.name for axis in of]
        if not dimension:
            splits += [f"{axis.name}:partial" for axis in axes if axis.kind in _TERMS]
        texts.append(f"d{dimension}[{','.join(splits)}]" if splits else f"d{dimension}")
    copies = [f"{axis.name}:replicated" for axis in axes if axis.kind == _COPY]
    return " ".join([*texts, *(["#", *copies] if copies else [])]) if texts else ""


def _order(axis: _MeshAxis) -> int:
    return axis.order


def _attributes(found: Any) -> Mapping[Any, Any]:
    """Returns the attributes of an object; empty for other values."""
    state = found.state if type(found) is Instance else None
    parts = state if type(state) is tuple else (state,)
    return {name: value for part in parts if type(part) is dict for name, value in part.items()}


def _items(found: Any) -> Sequence[Any]:
    return found if type(found) is list or type(found) is tuple else ()


def _are_integers(values: Any) -> TypeGuard[Sequence[int]]:
    """Tells whether the values are sizes or positions."""
    return type(values) in (list, tuple) and all(type(value) is int and 0 <= value < _MOST for value in values)
