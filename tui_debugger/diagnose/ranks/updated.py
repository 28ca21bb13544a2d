"""Compares weights that no other rank holds with what their optimizer makes of the step before.

Such a weight has no replica: it is a part of a larger weight, or belongs to one stage. One that does not fit is a
finding only where the optimizer's rule is known to apply to it: the rule explains the weight at another step, and at
this step the parts of it on other ranks, which their programs do not write to themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def updates_of_weights(
    run: DiagnosedRun, held: Iterable[tuple[RankTensorPlace, Mapping[int, Iterable[int]]]]
) -> UpdatesOfWeights:
    """Compares weights; ``held`` has, by rank, the steps at which the rank dumped one that no other rank holds."""
    astray = list[Difference]()
    doubted, left = dict[TensorKey, str](), dict[TensorKey, str]()
    compared = 0
    for place, of in held:
        found = {(rank, step): update_of_place(run, place, rank, step) for rank, steps in of.items() for step in steps}
        told = set[int]()
        for (rank, step), update in sorted(found.items(), key=lambda each: (each[0][1], each[0][0])):
            key = TensorKey(rank, place.graph, place.node, Side.OUTPUT, place.slot, step, place.round)
            fit = {other for (other, at), each in found.items() if at == step and each.fits}
            plain = {other for other in fit if not found[other, step].written}
            elsewhere = any(each.fits for (of_rank, _), each in found.items() if of_rank == rank)
            if update.fits:
                compared += 1
            elif update.fits is None or not (plain or not update.why):
                left[key] = update.why
            elif elsewhere and fit == plain and (not update.why or not is_expert(place.node)):
                compared += 1
                astray.append(
                    Difference(
                        ReplicaKind.UPDATE,
                        key,
                        (rank,),
                        ((rank,),),
                        astray=(rank,),
                        first=rank not in told,
                        why=update.why,
                    )
                )
                told.add(rank)
            else:
                doubted[key] = f"it is not what the optimizer makes of it{update.why and f': {update.why}'}"
    return UpdatesOfWeights(tuple(astray), doubted, compared, left)
