"""A model that several processes train: the collective operations of its gradients, weights and outputs.

The graph has a node for each collective operation, so that data of another process is never taken for this process's
own work:

* ``Gradients/<parameter>`` is the gradient that the optimizer uses. If gradients are summed over processes, its type is
  the collective's, and its input is ``Gradients/<parameter>/local``: the gradient of this process.
* ``AllGather/<parameter>`` is a weight put together from the shards of all processes (FSDP), as modules read it.
* For a tensor-parallel module that sums the results of all processes, ``<module>/local`` is the part of this process.

Failures here only lose such a link: gradients then count as summed over all processes.
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
    """A collective operation; ``kind`` is its operator type."""

    kind: str
    ranks: tuple[int, ...] = ()  # empty: all, or unknown
    reduction: str = ""  # ``mean`` or ``sum``; empty: unknown


@dataclass(frozen=True, slots=True, eq=False)
class GatheredWeightRead:
    """A weight that is put together for a module to read."""

    module: nn.Module
    attribute: str  # the name of the weight in the module
    name: str  # the name that the whole weight would have
    parameter: str  # what the optimizer updates: the shard, or a flat parameter with many shards


@dataclass(slots=True, eq=False)
class Distribution:
    """How a model is distributed over processes.

    Attributes:
        gradients: by parameter the collective between its gradient and the optimizer.
        gathered: by name of a gathered weight the collective; ``readings``: the modules that read these weights.
        parallel: by ``id`` of a module that computes with its part of a weight the collective of its results.
        placements: by parameter in words which part of it this process has.
        gathered_inputs: nodes whose inputs a collective has put together from those of all processes.
        shared_inputs: nodes of which all processes compute parts from the same input: its gradients are summed.
        unknown: the distribution could not be found out: anything may come from another process.
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
    """Looks at a model with its wrappers; facts of ``before`` that were seen while the model ran stay known."""
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
        mean = "" if getattr(module, "_comm_hooks", True) else "mean"  # a communication hook may do anything
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
    """Weights that know which part they are; weights that are never gathered are computed with as such."""
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
    return flat.rpartition(".")[0] + "." * ("." in flat)


class ExchangeHooks:
    """Hooks on the inputs of collective operations in this process, and on the weights they produce."""

    def __init__(self, recording: StepRecording, guard: Guard) -> None:
        self._recording = recording
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._leaves: dict[str, tuple[weakref.ref[torch.Tensor], RemovableHandle]] = {}
        self._distribution = Distribution()

    def install(self, tree: ModelTree, distribution: Distribution) -> None:
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
        for handle in (*self._handles, *(handle for _, handle in self._leaves.values())):
            handle.remove()
        self._handles.clear()
        self._leaves.clear()

    # -- hooks ---------------------------------------------------------------------------------------

    def _before(self, readings: list[GatheredWeightRead], module: nn.Module, _: Any) -> None:
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
        """Hooks the gradient of a weight before it is summed. A leaf keeps its hook, any other tensor loses it."""
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
        """Takes the gradient before the sum overwrites it. A whole gradient is too large to keep with sharding."""
        keep = self._distribution.gradients[name].kind == ALL_REDUCE
        with self._recording.at_work():
            self._recording.passed(local_of(name), "", gradient, keep=keep)

    def _part(self, place: ModulePlace, module: nn.Module, args: Any, out: Any) -> None:
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
    """Tensor-parallel weights: autograd hands their hooks gradients that are summed as they are read."""
    return frozenset(distribution.placements) - frozenset(r.parameter for r in distribution.readings)
