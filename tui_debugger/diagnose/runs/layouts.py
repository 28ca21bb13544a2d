"""Layouts: how parts of a tensor on several ranks make a whole, and which layouts the shapes allow.

Parts of the whole's own shape are replicas, or terms of a sum or a mean (a row-parallel layer before its all-reduce,
gradients of shares of a batch). Smaller parts are slices along dimensions: in rank order (tensor-, sequence-, expert-
and data-parallel), zigzag (causal context-parallel), fused (each part has its slice of q, k and v, or of gate and up),
or of one row of all values with a padded end (FSDP). Where there are more ranks than slices, ranks of one slice are
replicas or terms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from itertools import combinations, product
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Shape
from tui_debugger.diagnose.ranks.layout import Place, Split, same_ranks
from tui_debugger.diagnose.ranks.layout import RankDims as RecordedDims
from tui_debugger.errors import TdbgError

_FUSED: Final = (2, 3)
"""The number of projections in a fused weight: gate and up; q, k and v."""
_MOST_DIMENSIONS: Final = 2
"""The most dimensions that are split at once."""


class PartRelation(Enum):
    """The relation of parts of the same slice."""

    REPLICAS = "replicated"
    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class PartsLayout:
    """How parts of several ranks make a whole.

    Attributes:
        axes: the dimensions that are cut; empty: each part has the whole shape.
        groups: along the first axis, each part has a slice of each of so many equal stretches; 1 for a plain cut.
        zigzag: each part has two slices, the n-th and the n-th from the end.
        flat: all values are cut as one row, whose end may be padded.
        among: the relation of parts of the same slice.
        strided: consecutive ranks hold the same slice, else different ones.
        factor: parts are so many times too large: gradients of a loss that each rank divides by its own share.
    """

    axes: tuple[int, ...] = ()
    groups: int = 1
    zigzag: bool = False
    flat: bool = False
    among: PartRelation = PartRelation.REPLICAS
    strided: bool = False
    factor: int = 1

    @property
    def terms(self) -> bool:
        """Parts of one slice are terms, not copies."""
        return self.among is not PartRelation.REPLICAS

    @property
    def cut(self) -> bool:
        return bool(self.axes) or self.flat

    @property
    def word(self) -> str:
        return "split" if self.axes or self.flat else self.among.value

    def text(self, ranks: int) -> str:
        return f"{ranks} ranks, {self.words}"

    @property
    def words(self) -> str:
        words = []
        if self.flat:
            words.append("one row of all values, cut by rank")
        elif self.axes:
            dimensions = " and ".join(map(str, self.axes))
            how = ", zigzag" if self.zigzag else f", in {self.groups} stretches" if self.groups > 1 else ""
            words.append(f"cut along dimension {dimensions}{how}")
        if not words or self.terms:
            words.append(
                {PartRelation.REPLICAS: "replicas", PartRelation.SUM: "added up", PartRelation.MEAN: "averaged"}[
                    self.among
                ]
            )
        if self.factor > 1:
            words.append(f"divided by {self.factor}")
        return "; ".join(words)


@dataclass(frozen=True, slots=True)
class GivenDims:
    """The user's layouts: patterns of node names with a layout. The first one that fits counts."""

    rules: tuple[tuple[str, PartsLayout], ...] = ()

    def of(self, name: str) -> PartsLayout | None:
        return next((layout for pattern, layout in self.rules if fnmatchcase(name, pattern)), None)


_HOW: Final = re.compile(r"(replicated|sum|mean|flat|(\d)(?::(zigzag|\d+))?)")


def parse_dims(text: str) -> tuple[str, PartsLayout]:
    """Parses ``PATTERN=HOW``; HOW is ``replicated``, ``sum``, ``mean``, ``flat``, ``0``, ``1:zigzag`` or ``0:3``."""
    pattern, equals, how = text.rpartition("=")
    found = _HOW.fullmatch(how)
    if not equals or not pattern or found is None or found[3] == "0":
        hint = (
            "such as '*/mlp/fc1/*=0', '*/attn*=1:zigzag', '*qkv*=0:3', '*/fc2/*=sum', or 'replicated', 'mean', 'flat'"
        )
        raise TdbgError(f"{text!r} does not say how ranks share a tensor", where=f"--dims {text}", hint=hint)
    if found[2] is None:
        return pattern, PartsLayout(flat=True) if how == "flat" else PartsLayout(among=PartRelation(how))
    if found[3] == "zigzag":
        return pattern, PartsLayout((int(found[2]),), zigzag=True)
    return pattern, PartsLayout((int(found[2]),), groups=int(found[3] or 1))


# -- which layouts there may be, and what they make -----------------------------------------------


class TensorKind(NamedTuple):
    """Whether a tensor is a gradient, and whether it is a parameter."""

    backward: bool
    weight: bool

    @property
    def among(self) -> tuple[PartRelation, ...]:
        """The possible relations of parts of one slice, likely ones first."""
        return (PartRelation.REPLICAS,) if self.weight else tuple(PartRelation)


def possible_layouts(whole: Shape, parts: Sequence[Shape], of: TensorKind) -> Iterator[PartsLayout]:
    """Yields the layouts that shapes allow, likely ones first."""
    ranks = len(parts)
    if all(part == whole for part in parts):
        yield from (PartsLayout(among=among) for among in of.among)
        return
    if len({len(part) for part in parts}) == 1 and len(parts[0]) == len(whole):
        yield from _cuts(whole, parts, ranks, of)
    if all(len(part) == 1 for part in parts):
        total = sum(part[0] for part in parts)
        if math.prod(whole) <= total < math.prod(whole) + max(part[0] for part in parts) * ranks:
            yield PartsLayout(flat=True)


def _cuts(whole: Shape, parts: Sequence[Shape], ranks: int, of: TensorKind) -> Iterator[PartsLayout]:
    axes = tuple(axis for axis, size in enumerate(whole) if any(part[axis] != size for part in parts))
    if not 0 < len(axes) <= _MOST_DIMENSIONS:
        return
    if len(set(parts)) > 1:
        if len(axes) == 1 and sum(part[axes[0]] for part in parts) == whole[axes[0]]:
            yield PartsLayout(axes)
        return
    counts = [whole[axis] // parts[0][axis] if parts[0][axis] else 0 for axis in axes]
    even = all(count * parts[0][axis] == whole[axis] for axis, count in zip(axes, counts, strict=True))
    slices = math.prod(counts)
    if not even or not slices or ranks % slices:
        return
    factors = [each for each in range(1, slices + 1) if not slices % each] if of.backward else [1]
    for factor in factors:
        for among in of.among if ranks > slices else (PartRelation.REPLICAS,):
            for strided in (False, True) if ranks > slices else (False,):
                yield PartsLayout(axes, among=among, strided=strided, factor=factor)
                if len(axes) == 1:
                    width = parts[0][axes[0]]
                    if not width % 2 and slices > 1:
                        yield PartsLayout(axes, zigzag=True, among=among, strided=strided, factor=factor)
                    groups = [each for each in (*_FUSED, width) if each > 1 and not width % each]
                    for each in dict.fromkeys(groups):
                        yield PartsLayout(axes, groups=each, among=among, strided=strided, factor=factor)


def wholes_of(layout: PartsLayout, parts: Sequence[Array], shape: Shape) -> list[Array] | None:
    """Returns the wholes that parts make, one for each replica; None where they do not fit."""
    if layout.flat:
        row = np.concatenate([part.reshape(-1) for part in parts])
        size = math.prod(shape)
        return [row[:size].reshape(shape)] if len(row) >= size and not np.any(row[size:]) else None
    count = 1
    if layout.axes:
        if any(part.ndim != len(shape) for part in parts) or max(layout.axes) >= len(shape):
            return None
        count = _number_of_slices(layout, parts, shape)
        if not count or len(parts) % count:
            return None
    copies = [[parts[at] for at in positions] for positions in _copies(layout, len(parts), count)]
    if layout.terms:
        divided = len(copies) if layout.among is PartRelation.MEAN else 1
        copies = [[_sum(terms) / divided for terms in zip(*copies, strict=True)]]
    found = [_put_together(layout, each, shape) for each in copies]
    if any(each is None or each.shape != shape for each in found):
        return None
    whole = [each for each in found if each is not None]
    return [each.astype(np.float64) / layout.factor for each in whole] if layout.factor > 1 else whole


def _copies(layout: PartsLayout, ranks: int, slices: int) -> list[list[int]]:
    """Returns the ranks of each copy of a whole, in the order of its slices."""
    each = ranks // slices
    return [
        [number * each + copy if layout.strided else copy * slices + number for number in range(slices)]
        for copy in range(each)
    ]


def _number_of_slices(layout: PartsLayout, parts: Sequence[Array], shape: Shape) -> int:
    """Returns how many slices a whole has; 0 where parts are no slices of it."""
    if len({part.shape for part in parts}) > 1:
        return len(parts)
    sizes = [(shape[axis], parts[0].shape[axis]) for axis in layout.axes]
    return 0 if any(not part or whole % part for whole, part in sizes) else math.prod(a // b for a, b in sizes)


def _sum(terms: Sequence[Array]) -> Array:
    complex_ = terms[0].dtype.kind == "c"
    total = terms[0].astype(np.complex128 if complex_ else np.float64)
    for term in terms[1:]:
        total = total + term
    return total


def _put_together(layout: PartsLayout, slices: Sequence[Array], shape: Shape) -> Array | None:
    if not layout.axes:
        return slices[0]
    if len(layout.axes) == 2:
        inner = shape[layout.axes[1]] // slices[0].shape[layout.axes[1]]
        rows = [np.concatenate(slices[n : n + inner], layout.axes[1]) for n in range(0, len(slices), inner)]
        return np.concatenate(rows, layout.axes[0])
    axis, pieces = layout.axes[0], 2 if layout.zigzag else layout.groups
    if any(each.shape[axis] % pieces for each in slices):
        return None
    cut = [np.split(each, pieces, axis) for each in slices]
    turns = [cut[::-1] if layout.zigzag and number else cut for number in range(pieces)]
    return np.concatenate([of[number] for number, turn in enumerate(turns) for of in turn], axis)


def fits(layout: PartsLayout, parts: Sequence[Array], shape: Shape) -> bool:
    if layout.flat:
        return all(part.ndim == 1 for part in parts)
    if not layout.cut:
        return all(part.shape == shape for part in parts)
    count = _number_of_slices(layout, parts, shape) if max(layout.axes) < len(shape) == parts[0].ndim else 0
    return bool(count) and not len(parts) % count


def possible_shapes(parts: Sequence[Shape]) -> Iterator[Shape]:
    first = parts[0]
    if len({len(part) for part in parts}) > 1:
        return
    if len(set(parts)) > 1:
        axes = [axis for axis in range(len(first)) if len({part[axis] for part in parts}) > 1]
        if len(axes) == 1:
            whole = list(first)
            whole[axes[0]] = sum(part[axes[0]] for part in parts)
            yield tuple(whole)
        return
    yield first
    counts = [count for count in range(2, len(parts) + 1) if not len(parts) % count]
    for count in counts:
        for axis in range(len(first)):
            yield tuple(size * count if at == axis else size for at, size in enumerate(first))
    for one, other in product(counts, counts):
        if not len(parts) % (one * other):
            for pair in combinations(range(len(first)), 2):
                yield tuple(
                    size * (one if at == pair[0] else other if at == pair[1] else 1) for at, size in enumerate(first)
                )


# -- what the recorder says ---------------------------------------------------------------------


class RecordedParts(NamedTuple):
    """What the recorder wrote about the parts of a tensor; empty or None where it wrote nothing.

    ``places`` has the place of each part's rank along each parallel axis; ``dims`` tells how dimensions are divided.
    """

    places: Sequence[Mapping[str, Place]] = ()
    dims: RecordedDims | None = None


@dataclass(slots=True)
class Parts:
    """The arrays of one run.

    Attributes:
        arrays: of ranks, or already put together as recorded.
        parts: of ranks.
        members: for each array, the positions of the ranks that it is made of, in the order of its slices.
        places: of the ranks; empty where unknown or already used.
        replicas: all arrays are the same, by the recorder.
        how: what was put together as recorded, in words; empty: nothing.
        word: the same in one word, for counts.
    """

    arrays: list[Array]
    parts: Sequence[Array]
    members: Sequence[Sequence[int]]
    places: Sequence[Mapping[str, Place]] = ()
    replicas: bool = False
    how: str = ""
    word: str = ""

    @classmethod
    def of_ranks(cls, parts: Sequence[Array]) -> Parts:
        return cls(list(parts), parts, [(rank,) for rank in range(len(parts))])

    def positions(self, layout: PartsLayout, order: Sequence[int], shape: Shape) -> list[list[int]]:
        """Returns the positions of the ranks of each copy of a whole of ``shape``; ``order`` is that of the arrays."""
        slices = _number_of_slices(layout, self.arrays, shape) if layout.axes else 1
        return [
            [rank for at in copy for rank in self.members[order[at]]]
            for copy in _copies(layout, len(self.arrays), slices)
        ]


def put_together_as_recorded(parts: Sequence[Array], recorded: RecordedParts) -> Parts | None:
    """Puts parts together as recorded; None where that is unknown or does not fit.

    Replicas, and shares of a batch along axes without a record, remain separate arrays.
    """
    dims, places = recorded.dims, recorded.places
    if dims is None or len(parts) < 2 or len(places) != len(parts) or not all(places):
        return None
    if len(dims.names) != parts[0].ndim or len({part.shape for part in parts}) > 1:
        return None
    sizes = {axis: size for each in places for axis, (_, size) in each.items()}
    splits = [
        (number, _axis_of(split, sizes), split)
        for number, own in enumerate(dims.splits)
        for split in reversed(own)
        if _axis_of(split, sizes) in sizes
    ]
    cut = {axis for _, axis, _ in splits}
    others = sorted(set(sizes) - cut - {axis for axis in sizes if same_ranks(axis, cut)})
    groups: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    order = sorted(cut)
    for rank, each in enumerate(places):
        group = groups.setdefault(tuple(each.get(axis, (-1, 0))[0] for axis in others), {})
        group.setdefault(tuple(each.get(axis, (-1, 0))[0] for axis in order), rank)
    whole = math.prod(sizes[axis] for axis in order)
    if any(len(group) != whole for group in groups.values()) or whole * len(groups) != len(parts):
        return None
    arrays = [
        _along_axes({place: parts[rank] for place, rank in group.items()}, order, splits) for group in groups.values()
    ]
    if any(array is None for array in arrays):
        return None
    partial = any(split.partial for _, _, split in splits)
    return Parts(
        [array for array in arrays if array is not None],
        parts,
        [[group[place] for place in sorted(group)] for group in groups.values()],
        replicas=all(axis in dims.replicated for axis in others),
        how="as recorded",
        word=("sum" if partial else "split") if splits else "replicated",
    )


def _axis_of(split: Split, sizes: Mapping[str, int]) -> str:
    """Returns the axis of ranks of a split: ``sp`` means ``tp`` where it is no axis of its own."""
    return "tp" if split.axis == "sp" and "sp" not in sizes else split.axis


def _along_axes(
    group: Mapping[tuple[int, ...], Array], order: Sequence[str], splits: Sequence[tuple[int, str, Split]]
) -> Array | None:
    """Puts parts together along one axis after the other, the innermost first."""
    left = dict(group)
    axes = list(order)
    for dimension, axis, split in splits:
        if axis not in axes:
            return None  # one axis divides two dimensions
        at = axes.index(axis)
        lines: dict[tuple[int, ...], list[tuple[int, Array]]] = {}
        for place, array in left.items():
            lines.setdefault((*place[:at], *place[at + 1 :]), []).append((place[at], array))
        left = {}
        for rest, line in lines.items():
            slices = [array for _, array in sorted(line, key=lambda each: each[0])]
            if split.partial:
                left[rest] = _sum(slices)
                continue
            shape = list(slices[0].shape)
            shape[dimension] *= len(slices)
            joined = _put_together(PartsLayout((dimension,), zigzag=split.zigzag), slices, tuple(shape))
            if joined is None:
                return None
            left[rest] = joined
        del axes[at]
    return left.get(())
