"""Names the parameters in the flat tensors of DeepSpeed's ZeRO.

ZeRO concatenates the parameters of an optimizer's group, and gives every rank a part: its file
``zero_pp_rank_1_mp_rank_00_optim_states.pt`` has flat tensors without names. The model's file beside it has names and
shapes in that order (``param_shapes``). Stages 1 and 2 cut the whole group into parts of one size; stage 3 cuts every
parameter. Where sizes do not add up, nothing is named.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tui_debugger import opener
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.sources.rank_names import ZERO, read_rank
from tui_debugger.stats.dtensor import TensorPart
from tui_debugger.stats.saved_objects import Path
from tui_debugger.stats.torch_file import SavedTree, read_tree

_STATE: Final = "optimizer_state_dict"
_WHOLE_GROUPS: Final = "single_partition_of_fp32_groups"
"""The weights of stages 1 and 2, a flat tensor for each group."""
_EACH_PARAMETER: Final = "fp32_flat_groups"
"""The weights of stage 3, a flat tensor for each of its groups."""
_COUNT: Final = "partition_count"
_SHAPES: Final = "param_shapes"
_ALIGNED: Final = 2
"""The size of a part is a multiple of this number of elements in stages 1 and 2."""
_PADDING: Final = "padding"

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class NamedRange:
    """A parameter, or a part of it, in a flat tensor."""

    name: str
    """Name of the parameter; ``padding`` behind the last one."""
    start: int
    """Index of its first element in the flat tensor."""
    shape: Shape
    """Shape of a whole parameter; of a part its number of elements."""
    part: TensorPart | None = None
    """The part of the parameter; None: the whole parameter."""


def file_with_names(path: str) -> str:
    """The file with the names for a file of ZeRO's optimizer; empty for any other file, or without one."""
    folder, name = os.path.split(path)
    found = read_rank(os.path.splitext(name)[0])  # noqa: PTH122 - text all the way, for many
    places = {} if found is None or found.end != "_optim_states" else dict(found.places)
    if ZERO not in places:
        return ""
    model = f"mp_rank_{places['tp']:02}_model_states.pt"
    beside = (f"{folder}/{model}", f"{folder}/zero_pp_rank_{places[ZERO]}_{model}")
    return next((each for each in beside if opener.lexists(each)), "")


def named_ranges(path: str, tree: SavedTree) -> dict[Path, list[NamedRange]]:
    """The parameters in each flat tensor of a file, by its place; empty where they are unknown."""
    beside = file_with_names(path)
    saved = tree.value.get(_STATE) if beside and type(tree.value) is dict else None
    found = read_rank(os.path.basename(path))  # noqa: PTH119 - as above
    groups = _shapes_in(beside) if type(saved) is dict else []
    if type(saved) is not dict or found is None or not groups:
        return {}
    rank, flat = dict(found.places)[ZERO], _flat_tensors(tree)
    sizes = {place[2]: size for place, size in flat.items() if place[1] in (_WHOLE_GROUPS, _EACH_PARAMETER)}
    counts = saved.get(_COUNT)
    counts = counts if type(counts) is list else [counts] * len(sizes)
    if sorted(sizes) != [*range(len(counts))] or not all(type(each) is int and each > rank for each in counts):
        return {}
    if _EACH_PARAMETER in saved:
        ranges = _cut_each(groups, rank, counts[0], sizes)
    else:
        ranges = {
            group: _cut_whole(groups[group], rank, counts[group], size)
            for group, size in sizes.items()
            if len(groups) == len(sizes)
        }
    named = {}
    for place, size in flat.items():
        group = _group(place)
        if ranges.get(group) and sizes[group] == size:
            named[place] = ranges[group]
    return named


def place_of(place: Path, name: str) -> tuple[str, ...]:
    """The place of a parameter, without the number of the group, which its name tells."""
    at = len(place) - 1 - place[::-1].index(_group(place))
    return (*map(str, (*place[:at], *place[at + 1 :])), name)


def _group(place: Path) -> int:
    return next((key for key in reversed(place) if type(key) is int), -1)


def _flat_tensors(tree: SavedTree) -> dict[Path, int]:
    """Sizes of tensors that may be flat ones, by place."""
    return {
        place: ref.shape[0]
        for place, ref in tree.tensors
        if len(place) > 2 and place[0] == _STATE and len(ref.shape) == 1 and not ref.problem and ref.values is None
    }


def _shapes_in(path: str) -> list[Shapes]:
    """The parameters of each group of the optimizer, in the order in which they lie there."""
    try:
        saved = read_tree(path).value
    except UnreadableTensorError:
        return []  # listing that file reports it
    groups = saved.get(_SHAPES) if type(saved) is dict else None
    groups = [groups] if type(groups) is dict else groups
    return groups if type(groups) is list and all(map(_are_shapes, groups)) else []


def _are_shapes(group: Any) -> bool:
    return type(group) is dict and all(
        type(name) is str and type(shape) is tuple and all(type(each) is int and each >= 0 for each in shape)
        for name, shape in group.items()
    )


def _cut_whole(shapes: Shapes, rank: int, count: int, size: int) -> list[NamedRange]:
    """The parameters in a rank's part of a group; the parts of all ranks have one size."""
    total = sum(map(math.prod, shapes.values()))
    each = _ALIGNED * -(-total // (_ALIGNED * count))
    first = rank * each
    if size not in (each, max(total - first, 0)):  # the last one may be saved without its padding
        return []
    return list(_in_window(shapes, first, size))


def _in_window(shapes: Shapes, first: int, size: int) -> Iterator[NamedRange]:
    begin = 0
    for name, shape in shapes.items():
        count = math.prod(shape)
        start, stop = max(first, begin), min(first + size, begin + count)
        if start < stop:
            yield _range(name, start - first, shape, start - begin, stop - begin)
        begin += count
    if first + size > (start := max(first, begin)):
        yield NamedRange(_PADDING, start - first, (first + size - start,))


def _cut_each(groups: Sequence[Shapes], rank: int, count: int, sizes: Mapping[int, int]) -> dict[int, list[NamedRange]]:
    """A rank's part of each parameter, in all flat tensors of stage 3."""
    shapes = {name: shape for group in groups for name, shape in group.items()}
    found: dict[int, list[NamedRange]] = {group: [] for group in sizes}
    group, at = 0, 0
    for name, shape in shapes.items():
        whole = math.prod(shape)
        each = -(-whole // count)
        while group in sizes and at == sizes[group] and each:
            group, at = group + 1, 0
        if group not in sizes or at + each > sizes[group]:
            return {}
        first = min(rank * each, whole)
        stop = min(first + each, whole)
        if first < stop:
            found[group].append(_range(name, at, shape, first, stop))
        if stop - first < each:
            found[group].append(NamedRange(f"{_PADDING}/{name}", at + stop - first, (each - stop + first,)))
        at += each
    return found if at == sizes.get(group) and group == max(sizes) else {}


def _range(name: str, at: int, shape: Shape, first: int, stop: int) -> NamedRange:
    if stop - first == math.prod(shape):
        return NamedRange(name, at, shape)
    return NamedRange(name, at, (stop - first,), TensorPart(f"elements {first} to {stop - 1} of {list(shape)}"))
