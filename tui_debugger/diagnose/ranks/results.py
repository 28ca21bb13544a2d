"""The results of a comparison of ranks: what must be equal on several of them, and where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tui_debugger.check.contents import KnownBy
from tui_debugger.diagnose.ranks.batches import SharedBatch
from tui_debugger.diagnose.ranks.layout import ParallelLayout
from tui_debugger.diagnose.ranks.spread import TensorSpread
from tui_debugger.diagnose.ranks.tied import TiedWeights
from tui_debugger.model import TensorKey


class ReplicaKind(IntEnum):
    """Why a tensor must be the same on several ranks."""

    NONE = 0
    WEIGHT = 1
    GRADIENT = 2
    """Of a weight, after it was reduced."""
    COLLECTIVE = 3
    """The output of a collective operation that gives all ranks the same."""
    DECLARED = 4
    """The program said so."""
    TIED = 5
    """It is also a weight of another stage of the pipeline: see ``tied``."""
    SHARD = 6
    """The same part of a weight."""


KIND_WORDS: Final = {
    ReplicaKind.WEIGHT: "weight",
    ReplicaKind.GRADIENT: "reduced gradient",
    ReplicaKind.COLLECTIVE: "output of a collective operation",
    ReplicaKind.DECLARED: "tensor declared replicated",
    ReplicaKind.TIED: "tied weight",
    ReplicaKind.SHARD: "shard of weight",
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
    """A tensor as every rank calls it: the output of a node, in a round of a step."""

    graph: str
    node: str
    slot: int
    round: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A tensor that must be equal on some ranks, and is not.

    Attributes:
        kind: why it must be.
        key: the tensor, on the first of the ranks that are named, else on the first of the group.
        group: the ranks that must have the same.
        parts: those of them that have the same, the largest number first.
        outliers: ranks that differ from more than half of the group; none where there is no such majority.
        equal_at: the last step before at which they were equal; None where they never were.
        changed: the ranks whose tensor changed since that step; None where that is not known.
        astray: the ranks whose weight does not follow from their optimizer's update, if all other ranks' do.
        by: what they were compared by.
        first: no earlier step has this difference.
        twin: of a tied weight the other one: its rank and its name.
        why: a few words; empty where nothing tells.
    """

    kind: ReplicaKind
    key: TensorKey
    group: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]
    outliers: tuple[int, ...] = ()
    equal_at: int | None = None
    changed: tuple[int, ...] | None = None
    astray: tuple[int, ...] = ()
    by: KnownBy = KnownBy.BYTES
    first: bool = True
    twin: tuple[int, str] | None = None
    why: str = ""

    @property
    def named(self) -> tuple[int, ...]:
        """The wrong ranks; all ranks if the wrong ones are not known."""
        return self.outliers or self.astray or self.group


@dataclass(frozen=True, slots=True)
class NotReduced:
    """A gradient that went into no collective operation, although those of other weights did.

    Attributes:
        parameter: the weight.
        key: its gradient, on the first rank of the group.
        group: the ranks that have replicas of the weight.
        others: how many other gradients did, and of how many.
        by: what the tensors were compared by.
    """

    parameter: str
    key: TensorKey
    group: tuple[int, ...]
    others: tuple[int, int]
    by: KnownBy


@dataclass(frozen=True, slots=True)
class Replicas:
    """The result of a comparison of ranks.

    Attributes:
        layout: how ranks share the work.
        differences: in the order of time.
        not_reduced: in the order of time.
        compared: how many tensors of how many steps were compared between ranks, by kind.
        by: the weakest that any of them were compared by; None: nothing was compared.
        unknown: tensors that must be equal and of which nothing is known, with the reason.
        apart: weights that differed when they were first dumped, where nobody recorded whether they are shards.
        notes: what was not compared, and why, one sentence each.
        spreads: the spread of each weight over the ranks, where the spread is known.
        norms_apart: parameters of norms that differ from the start on ranks that have other weights in common.
        loosened: weights that may be tied, and are not the same at every step.
        shared: batches that several data-parallel ranks read.
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

    @property
    def went_apart(self) -> tuple[str, ...]:
        """Weights that were equal on all ranks at first, and that no recorder calls replicated."""
        return tuple(name for name, spread in self.spreads.items() if spread is TensorSpread.VARYING)

    @property
    def found(self) -> bool:
        """Tells whether ranks differ where they must not."""
        return bool(self.differences or self.not_reduced)

    @property
    def firsts(self) -> tuple[Difference, ...]:
        """The differences, each at its first step only."""
        return tuple(each for each in self.differences if each.first)
