"""Finds tensors that must be equal on several ranks, and the ranks on which one is not.

These are weights of data-parallel ranks, reduced gradients, outputs of collective operations, and tensors that a
program declared replicated. The layout of the ranks is recorded, or inferred from the weights that were equal at first
(see ``layout``). Ranks are compared by bytes where there are values, else by recorded digests, else by statistics.

No rank is blamed without a majority: of two ranks that differ, only the one that changed is known, not the one that is
right.

Gradients rightly differ before their reduction. Then the inputs of collective operations tell: a gradient that went
into none, where those of the other weights did, was not reduced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Int64, UInt8
from tui_debugger.check.contents import Content, KnownBy
from tui_debugger.check.types import Pair
from tui_debugger.diagnose.ranks.batches import shared_batches
from tui_debugger.diagnose.ranks.layout import (
    MODEL,
    Groups,
    ParallelLayout,
    Ranks,
    ToldBy,
    inferred_layout,
    is_expert,
    is_whole,
    read_dims,
    recorded_layout,
    shard_of,
)
from tui_debugger.diagnose.ranks.results import (
    Difference,
    LackedWeight,
    NotReduced,
    RankTensorPlace,
    ReplicaKind,
    Replicas,
)
from tui_debugger.diagnose.ranks.spread import TensorSpread, are_alike, are_nearly_equal, is_norm, is_of_norm
from tui_debugger.diagnose.ranks.tied import TiedWeights, ties
from tui_debugger.diagnose.ranks.unequal_gradients import why_unequal
from tui_debugger.diagnose.ranks.updated import UpdatesOfWeights, judged_updates, update_of_place
from tui_debugger.diagnose.recompute.weight_updates import WeightUpdate
from tui_debugger.diagnose.run import DiagnosedRun
from tui_debugger.errors import TdbgError
from tui_debugger.graph.categories import (
    BIAS_GRADIENT,
    NAMED_GRADIENT,
    PARAMETER_GRADIENTS,
    WEIGHT_GRADIENT,
    gives_all_the_same,
    gradient_of,
    is_collective,
    is_reducing,
    parameter_by_name,
)
from tui_debugger.graph.table import NodeTable
from tui_debugger.model import TRAINABLE, Category, Progress, ProgressFn, Side, TensorKey, no_progress
from tui_debugger.sources.base import TensorTable, made_once

_GRADIENT_TYPES: Final = frozenset({*PARAMETER_GRADIENTS, WEIGHT_GRADIENT, BIAS_GRADIENT})
_MOST: Final = 0.75
"""The share of gradients that go into collective operations, from which the others were left out by mistake."""
_ALMOST_ALL: Final = 0.9
"""The share of weights that are equal on all ranks, from which ranks are replicas, whatever names tell of them."""
_FEW: Final = 3
_SUMMAND: Final = "/local"
"""The suffix that our client for PyTorch gives to a tensor before a collective operation."""


def compare_ranks(
    run: DiagnosedRun, pairs: Sequence[Pair] | None = None, progress: ProgressFn = no_progress
) -> Replicas:
    return _ReplicaComparison(run, run.pairs() if pairs is None else tuple(pairs), progress).result()


Held = dict[int, Content]
"""By rank, the content of a tensor."""
_HeldOf = dict[RankTensorPlace, Held]
_GroupsOf = dict[RankTensorPlace, Groups]
_LEFT_OUT: Final = {
    ReplicaKind.GRADIENT: "gradients were recorded before they were reduced: they are not compared with each other",
    ReplicaKind.COLLECTIVE: "most outputs of collective operations differ: other ranks take part, or they were "
    "recorded before the operations were done; they are not compared",
}


class _ReplicaTensor(NamedTuple):
    """A tensor of a step on ranks that must hold the same; ``varied``: it is not constant."""

    kind: ReplicaKind
    place: RankTensorPlace
    step: int
    group: Ranks
    parts: Groups
    by: KnownBy
    varied: bool
    declared: bool


class _ReplicaNodes:
    """The nodes of a rank that may have to be equal on other ranks."""

    def __init__(self, nodes: NodeTable, *, dims: bool) -> None:
        self.nodes = nodes
        self.reduces = np.array([is_reducing(each) for each in nodes.types] or [False], np.bool_)
        same = np.array([gives_all_the_same(each) for each in nodes.types])
        gradient = np.array([each in _GRADIENT_TYPES for each in nodes.types])
        kinds: UInt8 = np.zeros(len(nodes), np.uint8)
        if len(nodes):
            kinds[same[nodes.type_id]] = ReplicaKind.COLLECTIVE
            kinds[gradient[nodes.type_id]] = ReplicaKind.GRADIENT
        weight = np.isin(nodes.category, [int(each) for each in TRAINABLE])
        kinds[weight] = ReplicaKind.WEIGHT
        for row, name in enumerate(nodes.names):
            if nodes.types[nodes.type_id[row]] == NAMED_GRADIENT and parameter_by_name(name) is Category.WEIGHT:
                kinds[row] = ReplicaKind.GRADIENT
        rows = np.flatnonzero(weight).tolist()
        gradients = {row: own for row in rows if (own := nodes.find(gradient_of(nodes.names[row]))) >= 0}
        kinds[[*gradients.values()]] = ReplicaKind.GRADIENT
        for row, text in nodes.placements.items():
            told = read_dims(text) if text.startswith("dims ") else None
            if (told is None and not is_whole(text)) or (told is not None and told.split_axes):
                kinds[row] = ReplicaKind.SHARD if weight[row] and shard_of(text) else ReplicaKind.NONE
            if dims and told is not None and told.replicated:
                kinds[row] = ReplicaKind.DECLARED
        self.shards_with: dict[str, frozenset[int]] = {}
        """By weight, the ranks with parts and copies of it, as the reduction of its gradient tells."""
        self.reduced_over: dict[str, Ranks] = {}
        """By weight, the ranks over which the recorder says that its gradient is reduced."""
        averaged = set[Ranks]()
        for row, own in gradients.items():
            group, name = tuple(sorted(nodes.group_ranks.get(own, ()))), nodes.names[row]
            if kinds[row] in (ReplicaKind.NONE, ReplicaKind.SHARD):
                kinds[own] = ReplicaKind.NONE
                self.shards_with[name] = frozenset(group)
                averaged.add(group if self.reduces[nodes.type_id[own]] and not same[nodes.type_id[own]] else ())
                continue
            if group and same[nodes.type_id[own]]:
                self.reduced_over[name] = group
            averaged.add(self.reduced_over.get(name, ()))
        self.wrapped_over = averaged.pop() if len(averaged) == 1 else ()
        """The ranks over which the gradients of all weights are reduced, if these are the same for all."""
        for row, name in enumerate(nodes.names):
            if name.endswith(_SUMMAND):
                whole = nodes.find(name.removesuffix(_SUMMAND))
                if whole >= 0 and is_collective(nodes.types[nodes.type_id[whole]]):
                    kinds[row] = ReplicaKind.NONE  # partial: this rank's summand
        self.kinds = kinds


_NODES: Final = {dims: partial(_ReplicaNodes, dims=dims) for dims in (False, True)}


def _of_interest(
    known: _ReplicaNodes, table: TensorTable
) -> tuple[Int64, list[tuple[int, RankTensorPlace, ReplicaKind]]]:
    """Returns the rows of a table that may have to be equal on several ranks, with node, place and kind."""
    nodes, kinds = known.nodes, known.kinds[table.node]
    rows = np.flatnonzero((kinds != ReplicaKind.NONE) & (table.side == int(Side.OUTPUT)))
    columns = (each[rows].tolist() for each in (table.node, table.slot, table.round, kinds))
    return rows, [
        (node, RankTensorPlace(nodes.graph_of(node).name, nodes.names[node], slot, number), ReplicaKind(kind))
        for node, slot, number, kind in zip(*columns, strict=True)
    ]


def _modules_of_norms(nodes: NodeTable) -> frozenset[str]:
    norm = np.array([is_norm(each) for each in nodes.types] or [False], np.bool_)
    return frozenset(nodes.names[node].rpartition("/")[0] for node in np.flatnonzero(norm[nodes.type_id]).tolist())


def _output_of_modules(nodes: NodeTable, table: TensorTable) -> dict[str, int]:
    outputs = np.flatnonzero((table.side == int(Side.OUTPUT)) & (table.slot == 0) & (table.round == 0))
    own = zip(outputs.tolist(), table.node[outputs].tolist(), strict=True)
    return {nodes.names[node].rpartition("/")[0]: row for row, node in own}


class _ReplicaComparison:
    def __init__(self, run: DiagnosedRun, pairs: Sequence[Pair], progress: ProgressFn) -> None:
        self._run, self._pairs, self._progress = run, pairs, progress
        self._ranks = tuple(sorted({rank for rank, _ in pairs}))
        self._steps = tuple(dict.fromkeys(step for _, step in pairs))
        self._nodes: dict[int, _ReplicaNodes] = {}
        self._kinds: dict[RankTensorPlace, ReplicaKind] = {}
        self._own_groups: dict[RankTensorPlace, set[Ranks]] = {}
        """The ranks that take part in a collective operation, as far as the run tells."""
        self._dims: dict[RankTensorPlace, str] = {}
        self._held: dict[int, _HeldOf] = {step: {} for step in self._steps}
        """By step."""
        self._reduced_inputs: dict[int, dict[int, set[tuple[KnownBy, bytes]]]] = {}
        """By step and rank, the inputs of collective operations that reduce."""
        self._notes: list[str] = []
        self._compared: Counter[ReplicaKind] = Counter()
        self._by: KnownBy | None = None
        self._unknown: dict[TensorKey, str] = {}
        self._spreads: dict[RankTensorPlace, TensorSpread] = {}
        self._norms_apart: list[str] = []
        self._unlike: list[str] = []
        self._lacked: list[LackedWeight] = []
        self._beside_parts: set[RankTensorPlace] = set()
        """Weights of modules whose other weights are parts: they may be parts as well."""
        self._same_outputs: _GroupsOf = {}
        """By weight, the ranks whose modules have equal outputs at the first step."""

    def result(self) -> Replicas:
        recorded = self._recorded_layout()
        for rank, step in self._pairs:
            self._take_in(rank, step, dims=recorded is not None)
        self._same_outputs = {} if recorded is not None else self._by_outputs(self._first(ReplicaKind.WEIGHT))
        self._spreads = self._spreads_of_weights(declared=recorded is not None)
        self._lacked = [*self._lacked_weights()]
        layout = recorded or self._inferred_layout()
        own = self._equal_at_first(layout)
        self._doubt_what_lies_beside_parts()
        tied = [*self._ties()]
        updates = self._updates(own, tied)
        differences = [*self._differences(own), *self._untied(tied), *updates.astray]
        differences.sort(key=lambda each: self._steps.index(each.key.step))
        differences = self._with_reasons(differences)
        not_reduced = [each for step in self._steps for each in self._not_reduced(step, own)]
        wrapped = sorted({nodes.wrapped_over for nodes in self._nodes.values()})
        shared = tuple(shared_batches(self._run, self._pairs, wrapped, self._progress))
        self._note_counts()
        return Replicas(
            layout,
            tuple(differences),
            tuple(not_reduced),
            self._compared,
            self._by,
            tuple(self._unknown.items()),
            self._apart(layout),
            tuple(dict.fromkeys(self._notes)),
            {place.node: spread for place, spread in self._spreads.items()},
            tuple(self._norms_apart),
            tuple(tie for tie in tied if tie.parted and not tie.proven),
            shared,
            tuple(self._unlike),
            tuple(self._lacked),
            updated=updates.compared,
            not_updated=tuple(updates.left.items()),
        )

    # -- what there is -----------------------------------------------------------------------------

    def _recorded_layout(self) -> ParallelLayout | None:
        told = {rank: self._run.parallel_places(rank) for rank in self._ranks}
        why = next((why for places, why in told.values() if places), "")
        return recorded_layout(self._ranks, {rank: places for rank, (places, _) in told.items()}, why)

    def _take_in(self, rank: int, step: int, *, dims: bool) -> None:
        flow = self._run.flow(rank, self._progress)
        table = flow.table(step)
        known = self._nodes[rank] = flow.nodes.memo(_NODES[dims])
        rows, places = made_once(table, known, partial(_of_interest, known, table))
        held = self._held[step]
        contents = self._run.contents.of(flow, step, rows, self._progress)
        for (node, place, kind), content in zip(places, contents, strict=True):
            held.setdefault(place, {})[rank] = content
            if place not in self._kinds:
                self._kinds[place] = kind
                self._dims[place] = flow.nodes.placements.get(node, "")
            if kind is ReplicaKind.COLLECTIVE and node in flow.nodes.group_ranks:
                self._own_groups.setdefault(place, set()).add(tuple(sorted(flow.nodes.group_ranks[node])))
            if content.by is KnownBy.NOTHING:
                self._unknown[self._key(place, rank, step)] = content.error
        fed = np.flatnonzero(known.reduces[flow.nodes.type_id[table.node]] & (table.side == int(Side.INPUT)))
        if len(fed):
            contents = self._run.contents.of(flow, step, fed, self._progress)
            self._reduced_inputs.setdefault(step, {})[rank] = {(each.by, each.value) for each in contents if each.by}

    def _tensors(self, step: int, *kinds: ReplicaKind) -> Iterable[tuple[RankTensorPlace, Held]]:
        """What ranks hold at a step, of some kinds."""
        return ((place, held) for place, held in self._held[step].items() if self._kinds[place] in kinds)

    @staticmethod
    def _key(place: RankTensorPlace, rank: int, step: int) -> TensorKey:
        return TensorKey(rank, place.graph, place.node, Side.OUTPUT, place.slot, step, place.round)

    # -- which ranks must have the same --------------------------------------------------------------

    def _first(self, kind: ReplicaKind) -> _HeldOf:
        """Returns what each rank held at the first step at which the most ranks dumped a tensor."""
        found: _HeldOf = {}
        for step in self._steps:
            for place, held in self._tensors(step, kind):
                if len(held) > len(found.get(place, ())):
                    found[place] = held
        return found

    def _reduced_over(self, place: RankTensorPlace) -> Groups:
        found = {nodes.reduced_over.get(place.node, ()) for nodes in set(self._nodes.values())}
        return tuple(sorted(found - {()}))

    def _spreads_of_weights(self, *, declared: bool) -> dict[RankTensorPlace, TensorSpread]:
        """Returns the spread of each weight (see ``spread``); ``declared``: the layout was recorded."""
        found: dict[RankTensorPlace, TensorSpread] = {}
        apart: list[tuple[RankTensorPlace, Held]] = []
        gradients = self._first(ReplicaKind.GRADIENT)  # no two parts of a weight have one gradient
        updated_alike = {place.node: _classes(held, varied=True) for place, held in gradients.items()}
        for place, held in self._first(ReplicaKind.WEIGHT).items():
            if len(held) < 2 or not all(each.by for each in held.values()):
                continue
            alike = [*self._same_outputs.get(place, ()), *updated_alike.get(gradient_of(place.node), ())]
            if self._reduced_over(place) or any(set(held) <= set(group) for group in alike):
                found[place] = TensorSpread.REPLICATED
            elif len(_classes(held)) > 1:
                found[place] = TensorSpread.INDEPENDENT
                apart.append((place, held))
            elif not all(each.constant for each in held.values()):
                found[place] = TensorSpread.REPLICATED
        equal = [place for place, spread in found.items() if spread is TensorSpread.REPLICATED]
        if equal:
            norms = [(place, held) for place, held in apart if is_of_norm(place.node)]
            self._norms_apart = [place.node for place, held in norms if self._of_one_shape(place, held)]
        dense = [(place, held) for place, held in apart if not is_expert(place.node)]
        replicas = _are_almost_all(sum(not is_expert(place.node) for place in equal), len(dense))
        near = [
            place
            for place, held in dense
            if (replicas or not declared) and are_alike(self._values(self._differing(place, held)))
        ]
        # Where few weights are equal, they may be parts drawn with one seed, or averaged now and then.
        most = len(equal) >= _MOST * (len(equal) + len(near))
        found |= dict.fromkeys(near, TensorSpread.REPLICATED if most else TensorSpread.VARYING)
        # In any layout: no two parts of a weight are equal in most elements.
        found |= dict.fromkeys(
            (place for place, held in apart if self._nearly_equal(place, held)), TensorSpread.REPLICATED
        )
        self._unlike = [
            place.node
            for place, held in dense
            if replicas and not self._is_compared(found[place], held) and place.node not in self._norms_apart
        ]
        parted = {_module(place) for place, spread in found.items() if spread is TensorSpread.INDEPENDENT}
        self._beside_parts = {
            place
            for place, spread in found.items()
            if spread is not TensorSpread.INDEPENDENT and _module(place) in parted and not self._is_proven(place)
        }
        return {place: spread for place, spread in found.items() if place not in self._beside_parts}

    def _is_proven(self, place: RankTensorPlace) -> bool:
        """Tells whether more than a weight's values says that it is a replica."""
        return bool(self._reduced_over(place) or self._same_outputs.get(place))

    def _doubt_what_lies_beside_parts(self) -> None:
        """Doubts weights beside parts that go apart: they may be replicas, or parts drawn with one seed."""
        for place in sorted(self._beside_parts):
            held = [(step, own) for step in self._steps if len(own := self._held[step].get(place, {})) > 1]
            began = len(_classes(held[0][1])) if held else 0
            for step, own in held:
                if len(_classes(own)) > began and all(each.by for each in own.values()):
                    why = "it began equal on these ranks, and the other weights of its module are parts: it may be one"
                    self._unknown.setdefault(self._key(place, min(own), step), why)
                    break

    def _nearly_equal(self, place: RankTensorPlace, held: Held) -> bool:
        return are_nearly_equal(self._values(self._differing(place, held)))

    def _differing(self, place: RankTensorPlace, held: Held) -> list[TensorKey]:
        """Returns a key for each distinct content of a weight; empty where contents were not compared by bytes."""
        firsts = [rank for rank, *_ in _classes(held)]
        if any(held[rank].by is not KnownBy.BYTES for rank in firsts):
            return []
        return [self._key(place, rank, self._step_of(place, held)) for rank in firsts]

    def _values(self, keys: Sequence[TensorKey]) -> list[Array]:
        """Returns values; empty where one cannot be read, which was reported where they were first asked for."""
        try:
            return [self._run.read(key, self._progress) for key in keys]
        except TdbgError:
            return []

    def _step_of(self, place: RankTensorPlace, held: Held) -> int:
        return next(step for step in self._steps if self._held[step].get(place) is held)

    def _of_one_shape(self, place: RankTensorPlace, held: Held) -> bool:
        step = self._step_of(place, held)
        rows = [self._run.row_of(self._key(place, rank, step)) for rank in held]
        found = self._run.measure(rows, self._progress)
        return len({None if each.meta is None else each.meta.shape for each in found}) == 1

    def _is_compared(self, spread: TensorSpread | None, held: Held) -> bool:
        return spread is TensorSpread.REPLICATED and set(held) == set(self._ranks)

    def _lacked_weights(self) -> Iterable[LackedWeight]:
        """Yields weights that some ranks lack whose other weights are almost all equal, at the first such step."""
        told = set[str]()
        for step in self._held:
            weights = {
                place: held
                for place, held in self._tensors(step, ReplicaKind.WEIGHT)
                if not is_expert(place.node) and not place.round
            }
            ranks = {rank for held in weights.values() for rank in held}
            lacked = {place.node: ranks - held.keys() for place, held in weights.items() if len(held) < len(ranks)}
            equal = sum(_classes(held, varied=True) == (tuple(sorted(ranks)),) for held in weights.values())
            for name, absent in lacked.items() if _are_almost_all(equal, len(lacked)) else ():
                if name not in told:
                    told.add(name)
                    yield LackedWeight(name, tuple(sorted(absent)), step)

    def _by_outputs(self, weights: _HeldOf) -> _GroupsOf:
        """By weight, the ranks with equal outputs of its module, for norms and modules with a weight constant at first.

        Constant weights prove nothing, but the module's output does: it is equal on ranks that have replicas of its
        input and all its weights. For a norm the output is enough, as it sums up nothing; its weights may have been
        dumped after their update.
        """
        modules: dict[str, list[RankTensorPlace]] = {}
        for place in weights:
            modules.setdefault(place.node.rpartition(".")[0].replace(".", "/"), []).append(place)
        constant = {
            module
            for module, own in modules.items()
            if module and any(all(each.constant for each in weights[place].values()) for place in own)
        }
        norms = set[str]()
        made: dict[str, Held] = {}
        for rank, step in self._pairs:
            flow = self._run.flow(rank, self._progress)
            table = flow.table(step)
            norms |= flow.nodes.memo(_modules_of_norms) & modules.keys()
            known = self._nodes[rank]
            outputs = made_once(table, (_output_of_modules, known), partial(_output_of_modules, known.nodes, table))
            telling = constant | norms
            rows = {
                module: row for module, row in outputs.items() if module in telling and rank not in made.get(module, ())
            }
            contents = self._run.contents.of(flow, step, [*rows.values()], self._progress)
            for module, content in zip(rows, contents, strict=True):
                made.setdefault(module, {})[rank] = content
        found: _GroupsOf = {}
        for module, held in made.items():
            groups = [
                group
                for group in _classes(held, varied=True)
                if module in norms or all(_is_one(weights[place], group) for place in modules[module])
            ]
            found |= dict.fromkeys(modules[module], tuple(groups))
        return found

    def _inferred_layout(self) -> ParallelLayout:
        first = self._first(ReplicaKind.WEIGHT)
        varied = {place: held for place, held in first.items() if not all(each.constant for each in held.values())}
        varied = {place: held for place, held in varied.items() if all(each.by for each in held.values())}
        if len(self._ranks) < 2:
            return ParallelLayout(self._ranks, why="there is one rank")
        if not any(len(held) > 1 for held in varied.values()):
            if any(kind is ReplicaKind.SHARD for kind in self._kinds.values()):
                why = "each rank has its own part of the weights"
            else:
                why = "no weight was dumped by two ranks" if first else "no weights were dumped"
            return ParallelLayout(self._ranks, why=why)
        signatures: dict[tuple[object, ...], list[int]] = {}
        # Tensors that must be equal, but are not, do not tell how ranks share the work, nor do lacked ones of replicas.
        lacked = {each.name for each in self._lacked}
        telling = [
            place
            for place in sorted(varied)
            if not self._is_compared(self._spreads.get(place), varied[place]) and place.node not in lacked
        ]
        if not any(nodes.wrapped_over for nodes in self._nodes.values()):  # no wrapper gathers the parts
            varied |= (shards := self._first(ReplicaKind.SHARD))
            telling += sorted(shards)
        for rank in self._ranks:
            held = (varied[place].get(rank) for place in telling)
            signature = tuple(None if each is None else (each.by, each.value) for each in held)
            signatures.setdefault(signature, []).append(rank)
        names = {tuple(each is not None for each in held) for held in signatures}
        axis = "pp" if len(names) == len(signatures) > 1 else MODEL
        apart = "" if len(signatures) == 1 else ", and those that differ from the start"
        why = f"from the weights that are equal{apart}"
        return inferred_layout(self._ranks, tuple(signatures.values()), why, axis)

    def _equal_at_first(self, layout: ParallelLayout) -> _GroupsOf:
        """By tensor, the groups of ranks that must hold the same at all steps."""
        found: _GroupsOf = {}
        weights = self._first(ReplicaKind.WEIGHT)
        # Where experts are recognised by name, all other weights are the same on the ranks that share experts.
        named = any(is_expert(place.node) for place in weights)
        own = self._own_experts(weights) if layout.told_by is not ToldBy.RECORDED else set[RankTensorPlace]()
        for place, held in ((place, held) for place, held in weights.items() if place not in own):
            told = layout.dense_replicas if named and not is_expert(place.node) else layout.replicas
            groups = [
                *told,
                *(() if place in self._beside_parts else _classes(held, varied=True)),
                *self._same_outputs.get(place, ()),
                *self._reduced_over(place),
            ]
            if self._is_compared(self._spreads.get(place), held) and not self._reduced_over(place):
                groups.append(self._ranks)
            found[place] = _united(groups, held)
        by_gradient = {gradient_of(place.node): place for place in weights}
        for place, held in self._first(ReplicaKind.GRADIENT).items():
            weight = by_gradient.get(place.node)
            of_weight = (
                found.get(weight, ()) if weight is not None else [*layout.replicas, *_classes(held, varied=True)]
            )
            if weight is None and len(_classes(held)) > 1 and self._nearly_equal(place, held):
                of_weight = [tuple(held)]
            found[place] = _united(of_weight, held)
        for place, kind in self._kinds.items():
            if kind is ReplicaKind.DECLARED and (dims := read_dims(self._dims[place])) is not None:
                alike: dict[tuple[int, ...], list[int]] = {}
                for rank in layout.ranks:
                    where = layout.places.get(rank, {})
                    at = tuple(where[axis][0] for axis in layout.axes if axis in where and axis not in dims.replicated)
                    alike.setdefault(at, []).append(rank)
                found[place] = tuple(tuple(each) for each in alike.values())
            elif kind is ReplicaKind.SHARD:
                found[place] = self._same_shards(place)
            elif kind is ReplicaKind.COLLECTIVE:
                members = self._own_groups.get(place)
                found[place] = tuple(sorted(members)) if members else layout.replicas
        return found

    def _own_experts(self, weights: _HeldOf) -> set[RankTensorPlace]:
        """Weights of experts that began equal (drawn with one seed) but mostly end different: each rank has its own."""
        last = {place: held for step in self._steps for place, held in self._held[step].items()}
        drawn: dict[RankTensorPlace, bool] = {}
        for place, held in weights.items():
            groups = [group for group in _classes(held, varied=True) if len(group) > 1]
            if groups and is_expert(place.node) and not self._reduced_over(place):
                drawn[place] = all(_is_one(last[place], group) for group in groups)
        apart = sum(not one for one in drawn.values())
        if apart < max(_FEW, _MOST * len(drawn)):
            return set()
        self._notes.append("experts that began equal differ between ranks: each rank is taken to have its own")
        return set(drawn)

    def _same_shards(self, place: RankTensorPlace) -> Groups:
        """The ranks that have one shard: copies by the mesh, and those whose values begin equal."""
        held = self._first(ReplicaKind.SHARD).get(place, {})
        shards: dict[str, dict[int, bool]] = {}
        for rank in held:
            nodes = self._nodes[rank].nodes
            text, copies = shard_of(nodes.placements.get(nodes.find(place.node, place.graph), "")) or ("", False)
            if text:
                shards.setdefault(text, {})[rank] = copies
        groups: list[Ranks] = []
        for ranks in shards.values():
            if not is_expert(place.node):
                groups += _classes({rank: held[rank] for rank in ranks}, varied=True)
            for rank in (rank for rank, copies in ranks.items() if copies):
                own = self._nodes[rank].shards_with.get(place.node, frozenset())
                groups.append(tuple(own & ranks.keys()))
        return _united(groups, held)

    def _apart(self, layout: ParallelLayout) -> tuple[str, ...]:
        if layout.told_by is ToldBy.RECORDED:
            return ()
        own = (place.node for place, spread in self._spreads.items() if spread is TensorSpread.INDEPENDENT)
        return tuple(dict.fromkeys(own))

    # -- where they have not ---------------------------------------------------------------------------

    def _differences(self, own: _GroupsOf) -> list[Difference]:
        compared = [each for step in self._steps for each in self._compare(step, own)]
        if early := self._reduced_later(compared):
            self._notes.append(_LEFT_OUT[ReplicaKind.GRADIENT])
            compared = [each for each in compared if each not in early]
        for kind, left_out in _LEFT_OUT.items():
            # Gradients may be recorded before they are reduced, outputs before an asynchronous operation is done, and
            # other ranks may take part: the rest is only wrong if most are equal, and not constant.
            of = [each for each in compared if each.kind is kind and not each.declared]
            differing = sum(len(each.parts) > 1 for each in of)
            if differing and sum(each.varied for each in of) - differing <= differing:
                self._notes.append(left_out)
                compared = [each for each in compared if each.kind is not kind or each.declared]
        if not any(each.varied for each in compared):  # equal empty tensors or zeros prove nothing
            compared = [each for each in compared if len(each.parts) > 1]
        for each in compared:
            self._by = each.by if self._by is None else min(self._by, each.by)
            self._compared[each.kind] += 1
        return [self._difference(each) for each in compared if len(each.parts) > 1]

    def _with_reasons(self, differences: Sequence[Difference]) -> list[Difference]:
        """Adds why reduced gradients differ, at the first step at which some do; those that others caused come last."""
        step = next((each.key.step for each in differences if each.kind is ReplicaKind.GRADIENT), None)
        of = {
            each.key.node: each for each in differences if each.kind is ReplicaKind.GRADIENT and each.key.step == step
        }

        def gradients(name: str, rank: int) -> Array | None:
            key = replace(of[name.removesuffix(_SUMMAND)].key, rank=rank, node=name)
            try:
                return self._run.read(key, self._progress)
            except TdbgError:
                return None

        ranks = {name: (each.parts[0][0], each.parts[1][0]) for name, each in of.items()}
        why = why_unequal(ranks, gradients, _SUMMAND)
        told = list(differences)
        for at, each in enumerate(told):
            if of.get(each.key.node) is each and each.key.node in why:
                told[at] = replace(each, why=why[each.key.node].text)
        caused = {name for name, each in why.items() if each.passed_on}
        return sorted(
            told,
            key=lambda each: (self._steps.index(each.key.step), each.key.step == step and each.key.node in caused),
        )

    def _reduced_later(self, compared: Iterable[_ReplicaTensor]) -> set[_ReplicaTensor]:
        """Gradients that differ while the update is equal on all ranks: the optimizer reduces those of a DTensor."""
        differing: set[_ReplicaTensor] = set()
        updated: set[tuple[str, int, Ranks]] = set()
        for each in compared:
            if each.kind is ReplicaKind.GRADIENT and len(each.parts) > 1:
                differing.add(each)
            elif (
                each.kind is ReplicaKind.WEIGHT
                and len(each.parts) == 1
                and each.varied
                and is_whole(self._dims[each.place])
            ):
                updated.add((gradient_of(each.place.node), each.step, each.group))
        return {each for each in differing if (each.place.node, each.step, each.group) in updated}

    def _compare(self, step: int, own: _GroupsOf) -> Iterable[_ReplicaTensor]:
        reduced = {gradient_of(name) for nodes in set(self._nodes.values()) for name in nodes.reduced_over}
        for place, held in self._held[step].items():
            for group in own.get(place, ()):
                known = {rank: held[rank] for rank in group if rank in held and held[rank].by}
                if len(known) > 1 and len({each.by for each in known.values()}) == 1:
                    by, varied = next(iter(known.values())).by, not all(each.constant for each in known.values())
                    kind, declared = self._kinds[place], place.node in reduced
                    yield _ReplicaTensor(kind, place, step, tuple(known), _classes(known), by, varied, declared)

    def _difference(self, found: _ReplicaTensor) -> Difference:
        group, parts, place = found.group, found.parts, found.place
        majority = 2 * len(parts[0]) > len(group)
        outliers = tuple(sorted(rank for part in parts[1:] for rank in part)) if majority else ()
        earlier = [each for each in self._steps[: self._steps.index(found.step)] if place in self._held[each]]
        known: list[tuple[int, Held]] = []
        for step in reversed(earlier):
            held = self._held[step][place]
            if all(rank in held and held[rank].by is found.by for rank in group):
                known.append((step, {rank: held[rank] for rank in group}))
        equal_at = next((step for step, held in known if len(_classes(held)) == 1), None)
        changed = None
        if equal_at is not None:
            then, now = self._held[equal_at][place], self._held[found.step][place]
            changed = tuple(rank for rank in group if then[rank].value != now[rank].value)
        first = all(len(_classes(held)) == 1 for _, held in known)
        astray = self._astray(found) if equal_at is not None and first else ()
        at = (outliers or astray or changed or group)[0]
        key = self._key(place, at, found.step)
        return Difference(found.kind, key, group, parts, outliers, equal_at, changed, astray, found.by, first)

    def _astray(self, found: _ReplicaTensor) -> Ranks:
        """The ranks whose weight is not what their optimizer's update makes, if it is on all others."""
        if found.kind not in {ReplicaKind.WEIGHT, ReplicaKind.SHARD}:
            return ()
        updates = {rank: update_of_place(self._run, found.place, rank, found.step).fits for rank in found.group}
        right = any(fits for fits in updates.values())
        known = None not in updates.values()
        return tuple(rank for rank, fits in updates.items() if not fits) if right and known else ()

    def _updates(self, own: _GroupsOf, tied: Iterable[TiedWeights]) -> UpdatesOfWeights:
        """Compares the weights that no other rank holds with what their optimizers make of them."""
        ends = {end for tie in tied for end in (tie.embedding, tie.weight)}
        found = dict[RankTensorPlace, dict[tuple[int, int], WeightUpdate]]()
        for number, step in enumerate(self._steps if len(self._ranks) > 1 else ()):
            self._progress(Progress(number, len(self._steps), f"updates of weights, step {step}"))
            for place, held in self._tensors(step, ReplicaKind.WEIGHT, ReplicaKind.SHARD):
                shared = {rank for group in own.get(place, ()) for rank in group}
                for rank in (rank for rank in held if rank not in shared and (rank, place.node) not in ends):
                    update = update_of_place(self._run, place, rank, step)
                    found.setdefault(place, {})[rank, step] = update
        judged = judged_updates(found)
        self._unknown |= judged.doubted
        return judged

    # -- tied weights, and batches ---------------------------------------------------------------------

    def _ties(self) -> Iterable[TiedWeights]:
        weights: dict[int, dict[str, Held]] = {}
        places: dict[str, RankTensorPlace] = {}
        for step in self._held:
            for place, held in self._tensors(step, ReplicaKind.WEIGHT):
                if not place.slot and not place.round:
                    weights.setdefault(step, {})[place.node] = held
                    places[place.node] = place

        def began_as_one(step: int, pair: Sequence[tuple[int, str]]) -> bool:
            return are_alike(self._values([self._key(places[name], rank, step) for rank, name in pair]))

        for tie in ties({step: weights[step] for step in self._steps if step in weights}, began_as_one):
            if any(tie.equal.values()):
                self._compared[ReplicaKind.TIED] += len(tie.equal)
            yield tie

    def _untied(self, tied: Iterable[TiedWeights]) -> Iterable[Difference]:
        for tie in (tie for tie in tied if tie.proven):
            equal_at, first = None, True
            for step, equal in tie.equal.items():
                if equal:
                    equal_at, first = step, True
                    continue
                place = next(each for each in self._held[step] if each.node == tie.weight[1])
                group = tuple(sorted((tie.embedding[0], tie.weight[0])))
                parts = tuple((rank,) for rank in group)
                key = self._key(place, tie.weight[0], step)
                yield Difference(
                    ReplicaKind.TIED, key, group, parts, equal_at=equal_at, first=first, twin=tie.embedding
                )
                first = False

    def _not_reduced(self, step: int, own: _GroupsOf) -> Iterable[NotReduced]:
        fed = self._reduced_inputs.get(step, {})
        replicas = {gradient_of(place.node): place for place in own if self._kinds[place] is ReplicaKind.WEIGHT}
        reduced: dict[tuple[str, Ranks], bool] = {}
        keys: dict[str, tuple[RankTensorPlace, KnownBy]] = {}
        for place, held in self._tensors(step, ReplicaKind.GRADIENT):
            for group in own[replicas[place.node]] if place.node in replicas else ():
                ranks = [rank for rank in group if rank in fed and rank in held and held[rank].by]
                if len(ranks) < 2:
                    continue
                went = any((held[rank].by, held[rank].value) in fed[rank] for rank in ranks)
                at = (place.node, group)
                reduced[at] = reduced.get(at, False) or went
                keys[place.node] = (place, held[ranks[0]].by)
        done = sum(reduced.values())
        if done < max(_FEW, _MOST * len(reduced)):
            return
        for (node, group), went in reduced.items():
            if not went:
                place, by = keys[node]
                key = self._key(place, group[0], step)
                yield NotReduced(replicas[node].node, key, group, (done, len(reduced) - 1), by)

    def _note_counts(self) -> None:
        """Notes steps at which ranks ran different numbers of collective operations, as numbers do not match then."""
        for step in self._steps:
            counts = Counter(rank for _, held in self._tensors(step, ReplicaKind.COLLECTIVE) for rank in held)
            if len(set(counts.values())) > 1:
                counts_text = ", ".join(f"rank {rank} {count}" for rank, count in sorted(counts.items())[:8])
                self._notes.append(
                    f"ranks recorded different numbers of collective operations at step {step}: {counts_text}"
                )


def _classes(held: Held, *, varied: bool = False) -> Groups:
    """The ranks that hold the same, the largest group first; ``varied`` leaves out constant tensors."""
    found: dict[tuple[KnownBy, bytes], list[int]] = {}
    for rank, content in held.items():
        if content.by and not (varied and content.constant):
            found.setdefault((content.by, content.value), []).append(rank)
    return tuple(tuple(sorted(ranks)) for ranks in sorted(found.values(), key=lambda each: (-len(each), min(each))))


def _are_almost_all(equal: int, others: int) -> bool:
    return equal > 0 and equal >= _ALMOST_ALL * (equal + others)


def _is_one(held: Held, group: Sequence[int]) -> bool:
    return len(_classes({rank: held[rank] for rank in group if rank in held})) == 1


def _united(groups: Iterable[Iterable[int]], held: Held) -> Groups:
    """Unites groups with a common rank; leaves out ranks that do not have the tensor, and single ranks."""
    found: list[set[int]] = []
    for group in groups:
        own = {rank for rank in group if rank in held}
        apart = [each for each in found if not each & own]
        found = [*apart, own.union(*(each for each in found if each & own))]
    return tuple(tuple(sorted(each)) for each in found if len(each) > 1)


def _module(place: RankTensorPlace) -> str:
    return place.node.rpartition(".")[0]
