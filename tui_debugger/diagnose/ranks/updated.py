"""Compares weights that no other rank holds with what their optimizer makes of the step before.

Such a weight has no replica: it is a part of a larger weight, or belongs to one stage. One that does not fit is a
finding only where the optimizer's rule is known to apply to it: the rule explains the weight at another step, and at
this step the parts of it on other ranks, which their programs do not write to themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tui_debugger.diagnose.ranks.layout import is_expert
from tui_debugger.diagnose.ranks.results import Difference, RankTensorPlace, ReplicaKind
from tui_debugger.diagnose.recompute.weight_updates import WeightUpdate, weight_update
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.model import Side, TensorKey


class UpdatesOfWeights(NamedTuple):
    """The comparison of all weights that no other rank holds; each is counted once a step.

    Attributes:
        astray: weights that are not what the optimizer makes of them.
        doubted: weights that do not fit either, with the reason; whether the rule applies to them is not known.
        compared: the number of weights that fit or are ``astray``.
        left: weights that could not be compared, with the reason.
    """

    astray: tuple[Difference, ...]
    doubted: Mapping[TensorKey, str]
    compared: int
    left: Mapping[TensorKey, str]


def update_of_place(run: DiagnosedRun, place: RankTensorPlace, rank: int, step: int) -> WeightUpdate:
    return weight_update(run, rank, step, run.nodes(rank).find(place.node, place.graph))


Updates = Mapping[tuple[int, int], WeightUpdate]
"""By rank and step, the updates of a weight, or of the parts of it on several ranks."""


def judged_updates(updates: Mapping[RankTensorPlace, Updates]) -> UpdatesOfWeights:
    astray = list[Difference]()
    doubted, left = dict[TensorKey, str](), dict[TensorKey, str]()
    fitting = 0
    for place, found in updates.items():
        told = set[int]()
        for rank, step in sorted(found, key=lambda each: each[::-1]):
            key = TensorKey(rank, place.graph, place.node, Side.OUTPUT, place.slot, step, place.round)
            update = found[rank, step]
            if update.fits:
                fitting += 1
                continue
            parts = [each for (_, at), each in found.items() if at == step and each.fits]
            plain = [each for each in parts if not each.written]
            if update.fits is None or (update.why and not plain):
                left[key] = update.why  # a rule that fits no part, or programs that write to all of them
                continue
            applies = any(each.fits for (of, _), each in found.items() if of == rank) and len(plain) == len(parts)
            if not applies or (update.why and is_expert(place.node)):  # experts may be drawn anew one by one
                doubted[key] = f"it is not what the optimizer makes of it{update.why and f': {update.why}'}"
                continue
            own, first = (rank,), rank not in told
            told.add(rank)
            astray.append(Difference(ReplicaKind.UPDATE, key, own, (own,), astray=own, first=first, why=update.why))
    return UpdatesOfWeights(tuple(astray), doubted, fitting + len(astray), left)
