"""The results of a comparison of ranks: which tensors must be equal on several ranks, and where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tui_debugger.check.contents import KnownBy
from tui_debugger.diagnose.ranks.batches import SharedBatch
from tui_debugger.diagnose.ranks.layout import Groups, ParallelLayout, Ranks
from tui_debugger.diagnose.ranks.spread import TensorSpread
from tui_debugger.diagnose.ranks.tied import TiedWeights
from tui_debugger.model import TensorKey


class ReplicaKind(IntEnum):
    """Why a tensor must be the same on several ranks."""

    NONE = 0
    WEIGHT = 1
    GRADIENT = 2
    """The gradient of a weight, after its reduction."""
    COLLECTIVE = 3
    """The output of a collective operation that gives all ranks the same result."""
    DECLARED = 4
    """The program declared the tensor replicated."""
    TIED = 5
    """A weight that is also a weight of another stage of the pipeline: see ``tied``."""
    SHARD = 6
    """The same part of a weight on several ranks."""
    UPDATE = 7
    """A weight that one rank holds, compared with what the optimizer makes of it: see ``updated``."""


KIND_WORDS: Final = {
    ReplicaKind.WEIGHT: "weight",
    ReplicaKind.GRADIENT: "reduced gradient",
    ReplicaKind.COLLECTIVE: "output of a collective operation",
    ReplicaKind.DECLARED: "tensor declared replicated",
    ReplicaKind.TIED: "tied weight",
    ReplicaKind.SHARD: "shard of weight",
    ReplicaKind.UPDATE: "weight",
}
KINDS_WORDS: Final = {
    ReplicaKind.WEIGHT: "weights",
    ReplicaKind.GRADIENT: "reduced gradients",
    ReplicaKind.COLLECTIVE: "outputs of collective operations",
    ReplicaKind.DECLARED: "declared replicated",
    ReplicaKind.TIED: "tied weights",
    ReplicaKind.SHARD: "shards of weights",
}


class RankTensorPlace(NamedTuple):
    """A tensor's name without rank and step: the output of a node in a round."""

    graph: str
    node: str
    slot: int
    round: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor that must be equal on some ranks, and is not.

    Attributes:
        kind: why it must be equal.
        key: the tensor, on the first of the wrong ranks if known, else of the changed ranks or the group.
        parts: the group, split into ranks with equal tensors, the largest part first.
        outliers: ranks that differ from more than half of the group; empty without such a majority.
        equal_at: the last step before at which all were equal; None where they never were.
        changed: the ranks whose tensor changed since that step; None where unknown.
        astray: the ranks whose weight is not what their optimizer's update makes, if it is on all other ranks.
        by: what they were compared by.
        first: no earlier step has this difference.
        twin: the rank and name of the other of two tied weights.
        why: the reason in a few words; empty where unknown.
    """

    kind: ReplicaKind
    key: TensorKey
    group: Ranks
    parts: Groups
    outliers: Ranks = ()
    equal_at: int | None = None
    changed: Ranks | None = None
    astray: Ranks = ()
    by: KnownBy = KnownBy.BYTES
    first: bool = True
    twin: tuple[int, str] | None = None
    why: str = ""

    @property
    def named(self) -> Ranks:
        """The wrong ranks; the whole group if the wrong ones are not known."""
        return self.outliers or self.astray or self.group


@dataclass(frozen=True, slots=True)
class NotReduced:
    """A gradient that went into no collective operation, although ``others`` of (number, total) other gradients did."""

    parameter: str
    key: TensorKey
    group: Ranks
    others: tuple[int, int]
    by: KnownBy


class LackedWeight(NamedTuple):
    """A weight that some ranks lack at a step, though almost all other weights are equal on all ranks."""

    name: str
    ranks: Ranks
    step: int


@dataclass(frozen=True, slots=True)
class Replicas:
    """The result of a comparison of ranks.

    Attributes:
        differences, not_reduced: in the order of time.
        compared: number of comparisons between ranks (a tensor at a step), by kind.
        by: the weakest evidence that any were compared by; None: nothing was compared.
        unknown: tensors that must be equal but cannot be compared, with the reason.
        apart: weights that differed when first dumped, where the recorder does not tell whether they are shards.
        notes: what was not compared, and why, one sentence each.
        spreads: by name of the weight, where known.
        norms_apart: parameters of norms that differ from the start on ranks that have other weights in common.
        loosened: weights that may be tied, and differ at some step.
        shared: batches that several data-parallel ranks read.
        unlike: weights that differ from the start where almost all weights are equal; they may be parts.
        lacked: weights that some ranks lack where almost all weights are equal.
        updated: number of weights that no other rank holds (one at a step) that were compared with their update.
        not_updated: weights that no other rank holds and that could not be compared, with the reason.
    """

    layout: ParallelLayout
    differences: tuple[Difference, ...] = ()
    not_reduced: tuple[NotReduced, ...] = ()
    compared: Mapping[ReplicaKind, int] = field(default_factory=dict)
    by: KnownBy | None = None
    unknown: tuple[tuple[TensorKey, str], ...] = ()
    apart: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    spreads: Mapping[str, TensorSpread] = field(default_factory=dict)
    norms_apart: tuple[str, ...] = ()
    loosened: tuple[TiedWeights, ...] = ()
    shared: tuple[SharedBatch, ...] = ()
    unlike: tuple[str, ...] = ()
    lacked: tuple[LackedWeight, ...] = ()
    updated: int = 0
    not_updated: tuple[tuple[TensorKey, str], ...] = ()

    @property
    def went_apart(self) -> tuple[str, ...]:
        """Weights that began as one on all ranks, and that no recorder calls replicated."""
        return tuple(name for name, spread in self.spreads.items() if spread is TensorSpread.VARYING)

    @property
    def found(self) -> bool:
        return bool(self.differences or self.not_reduced)

    @property
    def firsts(self) -> tuple[Difference, ...]:
        """The differences without those that an earlier step has as well."""
        return tuple(each for each in self.differences if each.first)
