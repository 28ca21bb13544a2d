"""A model that several processes train: the collective operations that its gradients, weights and outputs go through.

A collective operation hands on what any process put in. Where one lies between two tensors the graph says so, by a
node of its type, so that what one process got from another one is never taken for its own work:

* ``Gradients/<parameter>`` is what the optimizer uses. Where gradients are summed up over processes its type is the
  collective's, and its input is ``Gradients/<parameter>/local``: the gradient that this process has put in.
* ``AllGather/<parameter>`` is a weight put together from the shards of all processes (FSDP), as modules read it.
* Of a tensor-parallel module that sums up what the processes computed, ``<module>/local`` is the part of this one.

Whatever fails here loses such a link, and never the training: gradients then count as summed up over all processes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.graph.categories import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, without_wrappers
from tui_debugger.torch import internals
from tui_debugger.torch.internals import CallHook, leaves
from tui_debugger.torch.recording import StepRecording
from tui_debugger.torch.structure import ModelTree, ModulePlace, gathered_of, local_of, local_output_of

Guard = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation.

    Attributes:
        kind: its operator type.
        ranks: the processes that take part; empty: all, or nobody knows.
        reduction: ``mean`` or ``sum``; empty: nobody knows.
    """

    kind: str
    ranks: tuple[int, ...] = ()
    reduction: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class GatheredWeightRead:
    """The way in which a module gets at a weight that is put together for it.

    Attributes:
        module: the module.
        attribute: the name of the weight there.
        name: of the weight, as it would be called were it whole.
        parameter: what the optimizer updates: the shard, or a flat parameter with many of them.
    """

    module: nn.Module
    attribute: str
    name: str
    parameter: str


@dataclass(slots=True, eq=False)
class Distribution:
    """See the module.

    Attributes:
        gradients: by parameter what its gradient goes through before the optimizer uses it.
        gathered: by name of a weight what puts it together, for those that are.
        readings: which modules read those.
        parallel: by ``id`` of a module that computes with its part of a weight what the parts are put together by.
        placements: by parameter which part of it this process has, in words.
        gathered_inputs: nodes whose inputs a collective operation has put together from those of all processes.
        unknown: how the model is distributed could not be found out: anything may come from another process.
        shared_inputs: nodes of which all processes compute parts from the same input: its gradients are summed up.
    """

    gradients: dict[str, Collective] = field(default_factory=dict)
    gathered: dict[str, Collective] = field(default_factory=dict)
    readings: list[GatheredWeightRead] = field(default_factory=list)
    parallel: dict[int, Collective] = field(default_factory=dict)
    placements: dict[str, str] = field(default_factory=dict)
    gathered_inputs: set[str] = field(default_factory=set)
    shared_inputs: set[str] = field(default_factory=set)
    unknown: bool = False


def distribution_of(model: nn.Module, tree: ModelTree, before: Distribution) -> Distribution:
    """Looks at a model. Of one that no wrapper distributes gradients may be summed up by the program itself.

    Args:
        model: with what wraps it.
        tree: the model by names.
        before: what was known of it; what was seen while it ran stays known.
    """
    found = Distribution(gathered_inputs=before.gathered_inputs, shared_inputs=before.shared_inputs)
    if _world() < 2:
        return found
    names = {id(parameter): name for name, parameter in tree.parameters.items()}
    try:
        for module in model.modules():
            _look_at(module, names, found)
        _look_at_shards(tree, found)
    except Exception:  # noqa: BLE001 - PyTorch keeps this to itself, and may change it
        found.unknown = True
        found.gradients.clear()
        found.gathered.clear()
        found.readings.clear()
        found.parallel.clear()
    if not (found.gradients or found.parallel):
        found.gradients = dict.fromkeys(tree.parameters, Collective(ALL_REDUCE))
    return found


def _world() -> int:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return 1


def _look_at(module: nn.Module, names: Mapping[int, str], found: Distribution) -> None:
    if isinstance(module, nn.parallel.DistributedDataParallel):
        mean = "" if getattr(module, "_comm_hooks", True) else "mean"  # a hook may do anything
        exchange = Collective(ALL_REDUCE, _ranks_of(module.process_group), mean)
        ignored = {without_wrappers(name) for name in getattr(module, "parameters_to_ignore", ())}
        for name, parameter in module.module.named_parameters():
            if id(parameter) in names and without_wrappers(name) not in ignored:
                found.gradients[names[id(parameter)]] = exchange
        return
    for shard in internals.flat_shards(module):
        gather = Collective(ALL_GATHER if shard.sharded else "", _ranks_of(shard.group))
        ranks = () if shard.more_groups else gather.ranks
        reduction = Collective(REDUCE_SCATTER if shard.sharded else ALL_REDUCE, ranks)
        prefix = _prefix(names.get(id(shard.flat), ""))
        for part in shard.parts:
            name = names.get(id(part.parameter)) or names.get(id(shard.flat), "")
            whole = names.get(id(part.parameter)) or prefix + without_wrappers(part.name)
            if name:
                _add_shard(found, GatheredWeightRead(part.module, part.attribute, whole, name), gather, reduction)
                if part.placement:
                    found.placements[name] = part.placement
        if id(shard.flat) in names:
            found.placements[names[id(shard.flat)]] = shard.placement
    for each in internals.shards(module):
        name = names.get(id(each.parameter))
        if name is not None:
            gather = Collective(ALL_GATHER, _ranks_of(each.group))
            reduction = Collective(REDUCE_SCATTER, tuple(each.ranks))
            for owner, attribute in each.owners:
                _add_shard(found, GatheredWeightRead(owner, attribute, name, name), gather, reduction)
                if each.parallel:
                    found.parallel[id(owner)] = Collective(ALL_REDUCE)


def _add_shard(found: Distribution, reading: GatheredWeightRead, gather: Collective, reduction: Collective) -> None:
    if gather.kind:
        found.readings.append(reading)
        found.gathered[reading.name] = gather
    found.gradients[reading.parameter] = reduction


def _look_at_shards(tree: ModelTree, found: Distribution) -> None:
    """Weights that know themselves which part they are; those that nobody puts together are computed with as such."""
    names = {id(parameter): name for name, parameter in tree.parameters.items()}
    for name, parameter in tree.parameters.items():
        spread = internals.spread_of(parameter)
        if spread is not None:
            found.placements[name] = spread.text
    for place in tree.places:
        for parameter in place.module.parameters(recurse=False):
            spread, name = internals.spread_of(parameter), names.get(id(parameter), "")
            if spread is None or name in found.gathered:
                continue
            found.parallel[id(place.module)] = Collective(ALL_REDUCE, spread.ranks)
            if spread.replicated and name:
                found.gradients[name] = Collective(ALL_REDUCE, spread.ranks)


def _ranks_of(group: Any) -> tuple[int, ...]:
    try:
        return tuple(torch.distributed.get_process_group_ranks(group)) if group is not None else ()
    except (RuntimeError, ValueError, KeyError):
        return ()


def _prefix(flat: str) -> str:
    """``blocks.0.`` of ``blocks.0._flat_param``."""
    return flat.rpartition(".")[0] + "." * ("." in flat)


class ExchangeHooks:
    """Hooks that see what this process puts into collective operations, and the weights that come out of them."""

    def __init__(self, recording: StepRecording, guard: Guard) -> None:
        """Installs nothing yet. ``guard``: runs something without letting an exception out."""
        self._recording = recording
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._leaves: dict[str, tuple[weakref.ref[torch.Tensor], RemovableHandle]] = {}
        self._distribution = Distribution()

    def install(self, tree: ModelTree, distribution: Distribution) -> None:
        """Adds the hooks, in place of those that are there."""
        self.remove()
        self._distribution = distribution
        flat = {reading.parameter for reading in distribution.readings if reading.parameter != reading.name}
        read = {reading.parameter for reading in distribution.readings} - flat
        for name in distribution.gradients:
            if name not in read and name not in _spread(distribution):
                self._await_leaf(name, tree.parameters[name])
        by_module: dict[int, list[GatheredWeightRead]] = {}
        for reading in distribution.readings:
            by_module.setdefault(id(reading.module), []).append(reading)
        for readings in by_module.values():
            hook = CallHook(self._before, readings)
            self._handles.append(readings[0].module.register_forward_pre_hook(hook))
        for place in tree.places:
            if id(place.module) in distribution.parallel:
                hook = CallHook(self._part, place)
                self._handles.append(place.module.register_forward_hook(hook, prepend=True))

    def remove(self) -> None:
        """Takes them all away."""
        for handle in (*self._handles, *(handle for _, handle in self._leaves.values())):
            handle.remove()
        self._handles.clear()
        self._leaves.clear()

    # -- hooks ---------------------------------------------------------------------------------------

    def _before(self, readings: list[GatheredWeightRead], module: nn.Module, _: Any) -> None:
        """A module is about to read weights that were put together for it."""
        if module is readings[0].module and not internals.in_backward() and torch.is_grad_enabled():
            self._guard(lambda: self._read(readings))

    def _read(self, readings: list[GatheredWeightRead]) -> None:
        for reading in readings:
            weight = getattr(reading.module, reading.attribute, None)
            if not isinstance(weight, torch.Tensor):
                continue
            with self._recording.at_work():
                self._recording.passed(gathered_of(reading.name), ALL_GATHER, weight, [reading.parameter])
            if reading.parameter == reading.name and weight.requires_grad:
                self._await(reading.name, weight)

    def _await(self, name: str, weight: torch.Tensor) -> None:
        """The gradient of a weight before it is summed up. A leaf keeps its hook, any other tensor loses it."""
        if weight.is_leaf:
            self._await_leaf(name, weight)
        else:
            hook = CallHook(self._gradient, name)
            weight.register_hook(hook)  # type: ignore[no-untyped-call] # PyTorch does not say its type

    def _await_leaf(self, name: str, weight: torch.Tensor) -> None:
        known = self._leaves.get(name)
        if not weight.requires_grad or (known is not None and known[0]() is weight):
            return
        hook = CallHook(self._gradient, name)
        handle = weight.register_hook(hook)  # type: ignore[no-untyped-call] # likewise
        self._leaves[name] = (weakref.ref(weight), handle)

    def _gradient(self, name: str, gradient: torch.Tensor) -> None:
        self._guard(lambda: self._came(name, gradient))

    def _came(self, name: str, gradient: torch.Tensor) -> None:
        """Takes what is summed up: it is written over in place. A whole gradient is too large for who shards them."""
        keep = self._distribution.gradients[name].kind == ALL_REDUCE
        with self._recording.at_work():
            self._recording.passed(local_of(name), "", gradient, keep=keep)

    def _part(self, place: ModulePlace, module: nn.Module, args: Any, out: Any) -> None:
        """A module has computed its part of what all processes put together."""
        if module is place.module and not internals.in_backward() and torch.is_grad_enabled():
            self._guard(lambda: self._computed(place, args, out))

    def _computed(self, place: ModulePlace, args: Any, out: Any) -> None:
        given = leaves(args)
        if any(internals.is_exchanged(each) for each in given):
            self._distribution.gathered_inputs.add(place.name)
        if any(internals.is_replicated(each) for each in given):
            self._distribution.shared_inputs.add(place.name)
        parts = [each for each in leaves(out) if internals.is_partial(each)]
        if len(parts) == 1:
            with self._recording.at_work():
                self._recording.passed(local_output_of(place.name), place.kind, parts[0])


def _spread(distribution: Distribution) -> frozenset[str]:
    """Weights that are tensor-parallel: what autograd hands to their hooks is summed up as it is read."""
    return frozenset(distribution.placements) - frozenset(r.parameter for r in distribution.readings)
