"""The layout of ranks: which ranks hold the same weights, which hold parts, and how that is known.

A layout is *recorded* where the recorder wrote the place of each rank (``tp 0 of 2``) or the processes of a collective
operation. Else it is *inferred*: ranks whose weights were equal when first dumped hold replicas.

``read_dims`` reads a program's declaration of a tensor that is a part of a larger one, in the syntax of SGLang's
dumper: ``b s[cp:zigzag] h[tp] d # ep:replicated``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from tui_debugger.text.numbers import plural

Place = tuple[int, int]
"""The index of a rank along an axis, and the size of the axis."""

Ranks = tuple[int, ...]
Groups = tuple[Ranks, ...]
"""Groups of ranks that must hold the same."""
DATA: Final = "dp"
"""The axis along which ranks hold the same weights and read different batches."""
MODEL: Final = "model parallel"
"""The name of an inferred axis along which ranks hold different weights, or different parts of them."""
_SAME_WEIGHTS: Final = frozenset({DATA, "cp", "attn_cp", "sp"})
"""The axes along which all weights are the same. Sequence-parallel ranks are those of ``tp``."""
_EXPERTS_ONLY: Final = frozenset({"ep", "moe_ep", "moe_tp", "moe_dp"})
"""The axes along which only experts are divided."""
_EXPERT: Final = re.compile(r"(^|[./])(local_|routed_)?experts?(\d+|[._/]|$)")
_PART_OF: Final[Mapping[str, str]] = {"attn_dp": "tp", "attn_tp": "tp", "moe_tp": "tp", "moe_ep": "ep", "moe_dp": "dp"}
"""Axes that divide the ranks of another axis in another way."""
_ORDER: Final = (DATA, "pp", "vpp", "tp", "cp", "sp", "ep")


def same_ranks(axis: str, others: Collection[str]) -> bool:
    """Tells whether an axis divides the same ranks as one of the others."""
    return _PART_OF.get(axis) in others or any(_PART_OF.get(other) == axis for other in others)


class ToldBy(Enum):
    """The source of a layout."""

    RECORDED = "recorded"
    INFERRED = "inferred"
    """Inferred from which weights are equal."""
    NOBODY = "not known"


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """The places of ranks among those that share the work.

    Attributes:
        ranks: ascending.
        places: by rank, its place along each axis with several ranks: ``{"tp": (0, 2)}``.
        told_by: the source.
        why: where it was recorded, or what it was inferred from; or why it is not known.
    """

    ranks: Ranks
    places: Mapping[int, Mapping[str, Place]] = field(default_factory=dict)
    told_by: ToldBy = ToldBy.NOBODY
    why: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        found = {axis for places in self.places.values() for axis in places}
        return tuple(sorted(found, key=lambda axis: (_ORDER.index(axis) if axis in _ORDER else len(_ORDER), axis)))

    @property
    def replicas(self) -> Groups:
        """The groups of ranks whose weights must all be equal; each rank is alone where the layout is not known."""
        if self.told_by is ToldBy.NOBODY:
            return tuple((rank,) for rank in self.ranks)
        return self._alike(axis for axis in self.axes if axis not in _SAME_WEIGHTS)

    @property
    def dense_replicas(self) -> Groups:
        """``replicas`` for weights that belong to no expert: ranks that share experts have the same."""
        if self.told_by is ToldBy.NOBODY:
            return self.replicas
        return self._alike(axis for axis in self.axes if axis not in _SAME_WEIGHTS | _EXPERTS_ONLY)

    def place_text(self, rank: int) -> str:
        """Returns ``tp 0 of 2, dp 1 of 4``; empty where unknown."""
        places = self.places.get(rank, {})
        return ", ".join(f"{axis} {places[axis][0]} of {places[axis][1]}" for axis in self.axes if axis in places)

    @property
    def brief(self) -> str:
        """``dp 2 x tp 4 (recorded)``, without ``why``."""
        return str(replace(self, why=""))

    def __str__(self) -> str:
        sizes = {axis: size for places in self.places.values() for axis, (_, size) in places.items()}
        parts = " x ".join(
            f"{axis} {sizes[axis]}" for axis in self.axes if axis not in _PART_OF or axis == self.axes[0]
        )
        if not parts and len(self.ranks) == 1:
            return "1 rank"
        return f"{parts or plural(len(self.ranks), 'rank')} ({self.told_by.value}{f': {self.why}' if self.why else ''})"

    def _alike(self, axes: Iterable[str]) -> Groups:
        axes = tuple(axes)
        found: dict[tuple[int, ...], list[int]] = {}
        for rank in self.ranks:
            places = self.places.get(rank, {})
            found.setdefault(tuple(places[axis][0] if axis in places else -1 for axis in axes), []).append(rank)
        return tuple(tuple(group) for group in found.values())


def is_expert(name: str) -> bool:
    """Tells by the name whether a weight belongs to an expert that not all ranks share."""
    return _EXPERT.search(name) is not None


def recorded_layout(ranks: Sequence[int], places: Mapping[int, Mapping[str, Place]], why: str) -> ParallelLayout | None:
    """Returns the layout that a recorder wrote; None where places are missing or contradict each other."""
    kept = {
        rank: {axis: (number, size) for axis, (number, size) in places.get(rank, {}).items() if size > 1}
        for rank in ranks
    }
    axes = {frozenset(of) for of in kept.values()}
    sizes: dict[str, set[int]] = {}
    for of in kept.values():
        for axis, (number, size) in of.items():
            sizes.setdefault(axis, set()).add(size)
            if not 0 <= number < size:
                return None
    if len(axes) != 1 or any(len(each) > 1 for each in sizes.values()) or not sizes:
        return None
    return ParallelLayout(tuple(ranks), kept, ToldBy.RECORDED, why)


def inferred_layout(
    ranks: Sequence[int], groups: Sequence[Sequence[int]], why: str, axis: str = MODEL
) -> ParallelLayout:
    """Returns the layout in which the ranks of each group hold the same weights; groups differ along ``axis``."""
    places: dict[int, dict[str, Place]] = {rank: {} for rank in ranks}
    for number, group in enumerate(groups):
        for at, rank in enumerate(group):
            if len(group) > 1:
                places[rank][DATA] = (at, len(group))
            if len(groups) > 1:
                places[rank][axis] = (number, len(groups))
    return ParallelLayout(tuple(ranks), places, ToldBy.INFERRED, why)


@dataclass(frozen=True, slots=True)
class Split:
    """How one dimension is divided over the ranks along an axis.

    Attributes:
        zigzag: each rank has a piece from the front and one from the back, as in context-parallel attention.
        partial: nothing is divided: each rank has a summand of the whole.
    """

    axis: str
    zigzag: bool = False
    partial: bool = False


@dataclass(frozen=True, slots=True)
class RankDims:
    """The dimensions of a tensor, and which part of each a rank has.

    Attributes:
        splits: by dimension, the outermost split first.
        replicated: axes along which all ranks have the same.
    """

    names: tuple[str, ...]
    splits: tuple[tuple[Split, ...], ...]
    replicated: frozenset[str] = frozenset()

    @property
    def split_axes(self) -> frozenset[str]:
        return frozenset(split.axis for splits in self.splits for split in splits)


_TOKEN: Final = re.compile(r"(?P<name>\([^()\[\]]+\)|[^\s\[\]()]+)(?:\[(?P<splits>[^\[\]]*)\])?")
_QUALIFIERS: Final = frozenset({"zigzag", "natural", "partial"})
_PREFIX: Final = "dims "


def read_dims(text: str) -> RankDims | None:
    """Parses a declaration of dimensions, with or without ``dims`` before it and a placement after it; else None."""
    declared = text.removeprefix(_PREFIX).partition(";")[0]
    declared, _, rest = declared.partition("#")
    names, splits = list[str](), list[tuple[Split, ...]]()
    for token in declared.split():
        match = _TOKEN.fullmatch(token)
        found = None if match is None else _splits(match["splits"] or "")
        if match is None or found is None:
            return None
        names.append(match["name"].strip("()"))
        splits.append(found)
    replicated = set[str]()
    for word in rest.split():
        axis, _, what = word.partition(":")
        if what == "replicated":
            replicated.add(axis)
        elif axis != DATA or not what.startswith("="):
            return None
    return RankDims(tuple(names), tuple(splits), frozenset(replicated)) if names else None


_COPY: Final = re.compile(r"copy \d+ of \d+(?:, )?")
_COPIES: Final = re.compile(r"(?:copy \d+ of \d+(?:, )?)+ of \[")
_SHARD: Final = re.compile(r"(?:shard \d|elements \d)")


def is_whole(text: str) -> bool:
    """Tells whether a placement means a whole weight with copies on other ranks: ``copy 0 of 2``."""
    return _COPIES.match(text) is not None


def shard_of(text: str) -> tuple[str, bool] | None:
    """Parses a placement such as ``copy 0 of 2, shard 1 of 2 along dimension 0 of [4, 32]``; None if it is no shard.

    Returns words that are the same on all ranks with this shard, and whether the mesh has copies of it.
    """
    words = text.partition("; ")[2] if text.startswith(_PREFIX) else text
    rest, copies = _COPY.subn("", words)
    return (rest, copies > 0) if _SHARD.match(rest) and "of a sum" not in rest else None


def _splits(text: str) -> tuple[Split, ...] | None:
    found = []
    for part in text.split(",") if text.strip() else ():
        axis, *qualifiers = (word.strip() for word in part.split(":"))
        if not axis or not _QUALIFIERS.issuperset(qualifiers):
            return None
        found.append(Split(axis, zigzag="zigzag" in qualifiers, partial="partial" in qualifiers))
    return tuple(found)
