"""A training: its steps, weights and gradients, the values of the step before, and what was to be expected.

A weight that stays as it is, or a gradient of zeros, is a finding only where something else was to be expected. It was
not where the optimizer did not step or a gradient scaler left the step out, while the learning rate still rises (a
warm-up), where the parameter is frozen, and where its module ran without gradients, not at all, or on nothing (an
expert without tokens).
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import torch

from tui_debugger.graph.categories import without_wrappers
from tui_debugger.live.client.agent import Identity
from tui_debugger.live.client.judging import ClientJudge, ConsecutiveSteps, StepMemory, watched
from tui_debugger.live.wire import RemoteWatchpoint
from tui_debugger.model import Verdict, WatchResult
from tui_debugger.torch import captures
from tui_debugger.torch.captures import Capture, CapturedStep, Plans, Quick, UnknownWatchpoints, WatchPlan, measure
from tui_debugger.torch.distributed import Distribution, distribution_of
from tui_debugger.torch.drawing import States, draw, parameters_of, rates_of, tensors_of
from tui_debugger.torch.flow import has_fractions
from tui_debugger.torch.internals import (
    can_stand_back,
    copy_all,
    dense,
    differences,
    is_simple,
    local,
    meta_of,
    numeric,
    part_of,
    readable,
    version_of,
)
from tui_debugger.torch.optimizers import Steps
from tui_debugger.torch.program_writes import SMALL, ProgramWrites
from tui_debugger.torch.recording import StepRecording
from tui_debugger.torch.structure import GRADIENTS, UNKNOWN, ModelTree, Structure, gradient_of, tree_of
from tui_debugger.torch.verdicts import look_now
from tui_debugger.watch.condition_table import CONDITIONS

SUMMED: Final = 1e-3
"""The error that a sum made in float32 may have, as a part of it."""
LOOSE: Final = 1.05
"""The ratio that the bounds of Σ|x| may have until it is measured again."""
_MEASURED: Final = Quick.EXTREMES | Quick.TOTAL | Quick.ZEROS
CHUNK: Final = 1 << 24
"""Elements of weights that are compared with the step before at a time: what bounds the memory for differences."""


class Previous:
    """Copies of the weights before the step, as far as watchpoints compare them; before the first step of all."""

    def __init__(self) -> None:
        self._values: dict[str, torch.Tensor] = {}
        self._sums: dict[str, tuple[float, float]] = {}

    def get(self, name: str) -> torch.Tensor | None:
        return self._values.get(name)

    def sum_of(self, name: str) -> tuple[float, float] | None:
        """Bounds of Σ|x| of the kept values; None when it has to be measured."""
        return self._sums.get(name)

    def follow(self, step: CapturedStep) -> None:
        """Bounds Σ|x| of the new values by the measured change Σ|cur − prev|, which saves measuring it."""
        sums: dict[str, tuple[float, float]] = {}
        for capture in step.entries:
            if isinstance(capture, Capture) and capture.difference and step.fetched is not None:
                changed = sum(float(step.fetched.all(place)[0]) for place in capture.difference)
                low, high = capture.between or (math.inf, -math.inf)
                if capture.reference:
                    measured = sum(float(step.fetched.all(place)[0]) for place in capture.reference)
                    low, high = measured * (1 - SUMMED), measured * (1 + SUMMED)
                low, high = low - changed * (1 + SUMMED), high + changed * (1 + SUMMED)
                if 0 < low <= high <= low * LOOSE and "16" not in capture.meta.dtype:
                    sums[capture.name] = low, high
        self._sums = sums

    def clear(self) -> None:
        self._values.clear()
        self._sums.clear()

    def keep(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Keeps copies of these tensors, and no others; reuses the memory of copies that fit."""
        kept: dict[str, torch.Tensor] = {}
        targets: list[torch.Tensor] = []
        sources: list[torch.Tensor] = []
        for name, tensor in weights:
            now, old = dense(local(tensor)), self._values.get(name)
            if old is not None and (old.shape, old.dtype, old.device) == (now.shape, now.dtype, now.device):
                kept[name] = old
                targets.append(old)
                sources.append(now)
            else:
                kept[name] = now.clone(memory_format=torch.contiguous_format)
        self._values = kept
        for group in _alike(targets):
            copy_all([targets[at] for at in group], [sources[at] for at in group])


@dataclass(slots=True)
class Grouping:
    """Tensors by what is looked at: those that one number decides on together, and the others one by one."""

    groups: list[tuple[WatchPlan, list[str], list[torch.Tensor]]] = field(default_factory=list)  # of a type and device
    others: list[tuple[str, torch.Tensor]] = field(default_factory=list)


class Lasting:
    """Weights and optimizer state: mostly the same tensors in every step, grouped anew only when they are not."""

    def __init__(self) -> None:
        self._plans: Plans | None = None
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._grouping = Grouping()

    def grouped(self, tensors: list[tuple[str, torch.Tensor]], plans: Plans) -> Grouping:
        same = self._plans is plans and len(tensors) == len(self._tensors)
        same = same and all(
            new[1] is old[1] and new[0] == old[0] for new, old in zip(tensors, self._tensors, strict=True)
        )
        if not same:
            self._plans, self._tensors, self._grouping = plans, tensors, grouping(tensors, plans)
        return self._grouping

    def clear(self) -> None:
        self._plans, self._tensors, self._grouping = None, [], Grouping()


def grouping(tensors: Iterable[tuple[str, torch.Tensor]], plans: Plans) -> Grouping:
    groups: dict[tuple[int, torch.dtype, torch.device], tuple[WatchPlan, list[str], list[torch.Tensor]]] = {}
    others: list[tuple[str, torch.Tensor]] = []
    for name, tensor in tensors:
        plan = plans.of(name)
        if plan is not None and plan.one_number and is_simple(tensor):
            key = (id(plan), tensor.dtype, tensor.device)
            _, names, members = groups.setdefault(key, (plan, [], []))
            names.append(name)
            members.append(tensor)
        elif readable(tensor):
            others.append((name, tensor))
    return Grouping(list(groups.values()), others)


def see_all(
    step: CapturedStep, tensors: Grouping | Iterable[tuple[str, torch.Tensor]], plans: Plans, previous: Previous | None
) -> None:
    """Adds a line for each tensor and begins its quick numbers, with few kernels. ``previous``: None: not compared."""
    grouped = tensors if isinstance(tensors, Grouping) else grouping(tensors, plans)
    summed: dict[int, list[tuple[Capture, torch.Tensor]]] = {1: [], 2: []}
    changed: list[tuple[Capture, torch.Tensor, torch.Tensor]] = []
    for name, tensor in grouped.others:
        plan, values = plans.of(name), local(tensor)
        capture = Capture(name, 0, meta_of(tensor), plan, values, version_of(values))
        step.add(capture)
        if previous is not None:
            capture.previous = previous.get(name)
        if plan is None or not numeric(tensor) or (values.is_complex() and plan.need.previous):
            continue  # a complex weight that is compared is looked at exactly: |cur| − |prev| tells too little
        if plan.many & _MEASURED or plan.ranges:
            measure(capture, values, step.waiting, plan, many=True)
        x = captures.plain(dense(values))
        for order, kind in ((1, Quick.MAGNITUDE), (2, Quick.ENERGY)):
            if plan.many & kind:
                summed[order].append((capture, x))
        if plan.need.previous and capture.previous is not None and capture.previous.shape == values.shape:
            changed.append((capture, x, captures.plain(capture.previous)))
            capture.between = previous.sum_of(name) if previous is not None else None
    for plan, names, members in grouped.groups:
        with torch.no_grad():
            step.note_all(names, members, plan, captures.norms(members, 2))
    for order, lines in summed.items():
        for (capture, _), norm in zip(lines, captures.norms([x for _, x in lines], order), strict=True):
            setattr(capture, "magnitude" if order == 1 else "energy", step.waiting.add(norm))
    _compare(changed, step)


def _compare(changed: Sequence[tuple[Capture, torch.Tensor, torch.Tensor]], step: CapturedStep) -> None:
    """Σ|cur − prev| and Σ|prev|, in groups and pieces of a bounded size."""
    pieces = [piece for each in changed for piece in _pieces(*each)]
    difference: dict[int, list[int]] = {}
    reference: dict[int, list[int]] = {}
    for group in _alike([before for _, _, before in pieces]):
        for part in _bounded(group, [before for _, _, before in pieces]):
            apart = differences([pieces[at][1] for at in part], [pieces[at][2] for at in part])
            for at, norm in zip(part, captures.magnitudes(apart), strict=True):
                difference.setdefault(id(pieces[at][0]), []).append(step.waiting.add(norm))
            unknown = [at for at in part if pieces[at][0].between is None]
            for at, norm in zip(unknown, captures.norms([pieces[at][2] for at in unknown], 1), strict=True):
                reference.setdefault(id(pieces[at][0]), []).append(step.waiting.add(norm))
    for capture, _, _ in changed:
        capture.difference = tuple(difference.get(id(capture), ()))
        capture.reference = tuple(reference.get(id(capture), ()))


def _pieces(
    capture: Capture, now: torch.Tensor, before: torch.Tensor
) -> list[tuple[Capture, torch.Tensor, torch.Tensor]]:
    if now.numel() <= CHUNK or not now.is_contiguous():
        return [(capture, now, before)]
    parts = zip(torch.split(now.view(-1), CHUNK), torch.split(before.view(-1), CHUNK), strict=True)
    return [(capture, part, other) for part, other in parts]


def _alike(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of the tensors that one kernel can take together, by group."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(number)
    return list(groups.values())


def _bounded(group: Sequence[int], tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """A group in parts of at most ``CHUNK`` elements (or one tensor)."""
    parts: list[list[int]] = []
    size = CHUNK + 1
    for number in group:
        size += tensors[number].numel()
        if size > CHUNK:
            parts.append([])
            size = tensors[number].numel()
        parts[-1].append(number)
    return parts


OptimizerStepped = Callable[[torch.optim.Optimizer, bool], None]


class Expectation:
    """What optimizers and modules did in the step that is recorded."""

    def __init__(self) -> None:
        self.skipped = False  # a gradient scaler left the step out, because gradients were not finite
        self.scaled = False  # there is one: nobody uses gradients before it has looked at them
        self.at_once = False  # operators are recorded, not modules
        self._stepped: set[int] = set()
        self._rates: dict[int, float] = {}
        self._rates_before: dict[int, float] = {}
        self._with_gradient: set[str] = set()
        self._captures: Iterable[Capture] = ()
        self._outputs: dict[str, bool] = {}
        self._nodes: Collection[str] = ()
        self._losses: Collection[str] = ()
        self._scaled: Collection[str] = ()
        self._of_gradients: Collection[str] = ()
        self._optimizer: dict[int, int] = {}
        self._owners: dict[str, list[str]] = {}
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._by_gradient: dict[str, str] = {}

    def know(self, tree: ModelTree) -> None:
        names = {id(parameter): name for name, parameter in tree.parameters.items()}
        self._parameters = tree.parameters
        self._by_gradient = {gradient_of(name): name for name in tree.parameters}
        self._owners = {}
        for place in tree.places:
            for parameter in place.module.parameters(recurse=False):
                self._owners.setdefault(names.get(id(parameter), ""), []).append(place.scope)

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            rate = float(group.get("lr") or 0.0)
            for parameter in group["params"]:
                self._rates[id(parameter)] = rate
                self._optimizer[id(parameter)] = id(optimizer)

    def ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Notes that an optimizer stepped; a fused one may have skipped the step by itself."""
        self._stepped.add(id(optimizer))
        found = getattr(optimizer, "found_inf", None)
        self.skipped |= isinstance(found, torch.Tensor) and bool(found.any())

    def saw_gradients(self, names: Iterable[str]) -> None:
        self._with_gradient.update(names)

    def holds(self, optimizer: torch.optim.Optimizer) -> bool:
        own = {id(parameter) for parameter in self._parameters.values()}
        groups = getattr(optimizer, "param_groups", ())  # not every object with a ``step`` has them
        return any(id(parameter) in own for group in groups for parameter in group["params"])

    def look_at(self, captures: Iterable[Capture], structure: Structure) -> None:
        """Takes the captures of the step and all known nodes; they are read only when an excuse is asked for."""
        self._captures, self._nodes = captures, structure.nodes
        self._losses, self._scaled, self._of_gradients = structure.losses, structure.scaled, structure.of_gradients
        self._outputs.clear()

    def next_step(self) -> None:
        self.skipped = False
        self._stepped.clear()
        self._rates_before |= self._rates
        self._with_gradient.clear()
        self._captures = ()
        self._outputs.clear()

    def excuses(self, name: str, result: WatchResult) -> bool:
        """Tells whether something explains the result of a watchpoint on a node, so that it is no finding."""
        parameter = name if name in self._parameters else self._by_gradient.get(name, "")
        condition = CONDITIONS[result.condition]
        if condition.is_overflow or result.verdict is Verdict.BLOCKED:
            unused = self.skipped or (self.scaled and not self._stepped)
            return unused and (name.startswith(GRADIENTS) or name in self._scaled or name in self._of_gradients)
        if not parameter:
            return False
        if self.skipped and name != parameter:
            return True
        if condition.is_stillness and (self.skipped or self._idle(parameter)):
            return True
        return condition.is_not_changed and name == parameter and self._at_rest(parameter)

    def _at_rest(self, name: str) -> bool:
        """Tells whether no optimizer was to change a parameter in this step, or the learning rate still rises.

        What no optimizer has and no gradient reaches may stand for other weights: see ``functional_call``.
        """
        parameter, key = self._parameters[name], id(self._parameters[name])
        stands_for_others = self._optimizer and key not in self._optimizer and name not in self._with_gradient
        if not parameter.requires_grad or stands_for_others:
            return True
        if key in self._optimizer and self._optimizer[key] not in self._stepped:
            return True
        return key in self._rates_before and self._rates[key] > self._rates_before[key]

    def _idle(self, parameter: str) -> bool:
        """Tells whether the modules that own a parameter did not run in this step, or on nothing."""
        owners = self._owners.get(parameter, [])
        ran = self._ran()
        if not owners or any(ran.get(owner) for owner in owners):
            return False
        known = parameter not in self._with_gradient or any(owner in ran for owner in owners)
        return known or any(node.rpartition("/")[0] in owners for node in self._nodes if node not in self._losses)

    def _ran(self) -> dict[str, bool]:
        """By scope whether its module returned anything; of operators: whether none of them returned nothing."""
        if not self._outputs:
            for each in self._captures:
                if each.name in self._losses:
                    continue
                scope = each.name.rpartition("/")[0]
                some, before = 0 not in each.meta.shape, self._outputs.get(scope, self.at_once)
                self._outputs[scope] = (before and some) if self.at_once else (before or some)
        return self._outputs


def unscales(optimizer: torch.optim.Optimizer) -> bool:
    """Tells whether a gradient scaler has left it to an optimizer to unscale the gradients, as fused ones do."""
    return getattr(optimizer, "grad_scale", None) is not None


class Scalers:
    """Reports when a ``GradScaler`` has made or skipped a step: the optimizer does not notice."""

    def __init__(self, told: OptimizerStepped) -> None:
        """``told`` is called with the optimizer and whether it stepped, after the scaler's ``step``."""
        self._told = told

    def install(self) -> None:
        if self._told not in _listeners:
            _listeners.append(self._told)
        if not hasattr(_scaler.step, _WRAPPED):
            _scaler.step = _reporting(_scaler.step)

    def remove(self) -> None:
        """Listens no more; the last one leaves ``GradScaler`` as it was."""
        if self._told in _listeners:
            _listeners.remove(self._told)
        if not _listeners and hasattr(_scaler.step, _WRAPPED):
            _scaler.step = getattr(_scaler.step, _WRAPPED)


_scaler: Any = torch.amp.GradScaler
_listeners: Final[list[OptimizerStepped]] = []
_WRAPPED: Final = "_tdbg_wrapped"


def _reporting(original: Any) -> Any:
    """``GradScaler.step``, which then says whether the optimizer stepped."""

    def step(scaler: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        stepped: list[bool] = []
        steps = Steps(optimizer, lambda _: stepped.append(True))
        seen = steps.seen
        try:
            returned = original(scaler, optimizer, *args, **kwargs)
        finally:
            steps.remove()
        for tell in tuple(_listeners):
            tell(steps.optimizer or optimizer, bool(stepped) or not seen)
        return returned

    setattr(step, _WRAPPED, original)
    return step


ADDED: Final = "modules and weights that were put into the model after tdbg.attach (call it again then)"
"""The things that are not recorded."""


class TrainingState:
    """The state of a training."""

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], recording: StepRecording
    ) -> None:
        self._uncompiled = recording.every_operator and can_stand_back()
        self.tree: ModelTree = tree_of(model, uncompiled=self._uncompiled)
        self.distribution = Distribution()
        self.recording = recording
        self.previous = Previous()
        self.optimizers = list(optimizers)  # given, or seen to update parameters of the model
        self.expectation = Expectation()
        self.patience = ConsecutiveSteps(self.expectation.excuses)
        self.memory = StepMemory(ranks()[0])  # what expressions ask for of the step before
        self._trained: set[str] = set()
        self._scopes: dict[int, str] = {}
        self._model = model
        self._buffers: dict[str, tuple[int, int]] = {}
        self._moving: list[str] = []
        self._masks: list[str] = []
        self._writes = ProgramWrites(recording, self.previous.get, lambda: self.tree, self._shards)
        recording.at_begin = self._writes.call_begins
        self._names: set[str] = set()
        self._young: set[str] = set()
        self._seen: set[str] = set()
        self._lasting = Lasting()
        self._weights: Grouping | None = None  # the last sight of what outlives a step
        self._states = States()
        self._known_states = 0
        self._weights_seen = False
        self._seen_last: dict[str, tuple[weakref.ref[torch.Tensor], int]] = {}  # gradients, by weight
        self._bad_gradients = False
        self._of_step: set[str] = set()
        """Weights of which a gradient was seen in this step."""
        self._at_backward: dict[str, tuple[tuple[int, int], Capture | None]] = {}

    def look_again(self) -> None:
        """Finds modules and parameters anew: some may have been replaced since."""
        self.tree = tree_of(self._model, uncompiled=self._uncompiled)
        self._scopes = {id(place.module): place.scope for place in self.tree.places}
        self.distribution = distribution_of(self._model, self.tree, self.distribution)
        self.expectation.know(self.tree)
        self._know_parameters()
        self._buffers = {name: (id(each), version_of(each)) for name, each in self.tree.buffers.items() if _plain(each)}

    def _know_parameters(self, *more: tuple[str, torch.Tensor]) -> None:
        """Names weights and buffers as sources; at operator level a buffer of integers counts as a constant."""
        whole = not self.recording.every_operator
        buffers = [(name, each) for name, each in self.tree.buffers.items() if whole or _plain(each)]
        states = () if whole else self._states.of(self.tree, self.optimizers)
        self._known_states = len(states)
        self.recording.flow.know_parameters([*self.tree.parameters.items(), *buffers, *more, *states])

    def owns(self, module: torch.nn.Module) -> bool:
        return id(module) in self._scopes

    def put_in(self, owner: torch.nn.Module, name: str, new: torch.nn.Module | torch.Tensor) -> None:
        """The program puts something into a module of the model; no hook is on modules and weights that are new."""
        path = without_wrappers(f"{self._scopes[id(owner)].replace('/', '.')}.{name}".removeprefix("."))
        if isinstance(new, torch.nn.Module):
            if not all(self.owns(each) for each in new.modules()):
                self.recording.lost(ADDED, path)
        elif not isinstance(new, torch.nn.Parameter):
            if self.tree.buffers.add(path, owner, name) and _plain(new):
                self._buffers[path] = id(new), version_of(new)
                self._know_parameters((path, new))
        elif all(new is not each for each in self.tree.parameters.values()):
            if path not in self.tree.parameters:
                self.recording.lost(ADDED, path)
                return
            self.tree.parameters[path] = new
            self.expectation.know(self.tree)
            self._know_parameters()

    def start(self, budget: int) -> None:
        """The first recorded step begins: weights are kept as they are, as far as there is room."""
        kept: list[tuple[str, torch.Tensor]] = []
        for name, parameter in self.tree.parameters.items():
            if readable(parameter) and (size := meta_of(parameter).nbytes) <= budget:
                budget -= size
                kept.append((name, parameter))
        self.previous.keep(kept)
        self._writes.first_step_begins()

    def learned(self) -> None:
        """The first recorded step is over."""
        self._look_at_buffers()
        self.recording.passes.settle()
        self.recording.learning = False

    def _look_at_buffers(self) -> None:
        """Finds the buffers that are worth looking at: those that change, and those that some node reads.

        Of those that never change, and that are infinite in places, it is by design: they are masks. What operators do
        with a mask is seen, so the rule decides that there.
        """
        self._notice_changes()
        used = self.recording.structure.used()
        for name in self._buffers:
            if name in self._moving or name in self._masks:
                continue
            buffer = self.tree.buffers.get(name)
            if buffer is None or not (name in used or name in self.recording.structure.fed):
                continue
            seen = self.recording.every_operator or name in self.recording.structure.fed
            mask = not seen and _mask(buffer)
            (self._masks if mask else self._moving).append(name)
            self._weights_seen = self._weights_seen and mask  # the step that it changed in is judged by it, too

    def _notice_changes(self) -> None:
        """A buffer that changes is made by the module that has it."""
        structure, changed = self.recording.structure, self.recording.flow.changed
        for name, before in self._buffers.items():
            if name not in structure.fed:
                buffer = self.tree.buffers.get(name)
                if buffer is not None and (name in changed or (id(buffer), version_of(buffer)) != before):
                    structure.feed(name, self._owners(name))

    def names_of(self, parameters: Iterable[torch.Tensor]) -> list[str]:
        wanted = {id(each) for each in parameters}
        return [name for name, each in self.tree.parameters.items() if id(each) in wanted]

    def _shards(self) -> set[str]:
        """Names of sharded weights: modules read the weights gathered from all processes instead."""
        return {reading.parameter for reading in self.distribution.readings}

    def _owners(self, buffer: str) -> list[str]:
        """The nodes of the module that has a buffer."""
        scope = buffer.rpartition(".")[0].replace(".", "/")
        places = {place.name for place in self.tree.places if place.scope == scope}
        return [*(name for name in self.recording.structure.nodes if name.partition("#")[0] in places), UNKNOWN]

    @property
    def unseen(self) -> bool:
        """Tells whether a step has run and no module was seen in it."""
        return not self.recording.learning and self.recording.structure.nodes.keys() <= self.recording.structure.losses

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        self._notice_changes()
        self._writes.optimizer_begins()
        self.expectation.begins(optimizer)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped. Fused ones write to weights, and to what they keep, without counting that."""
        self.expectation.ended(optimizer)
        parameters = list(parameters_of(optimizer))
        kept = (each for parameter in parameters for each in tensors_of(optimizer.state.get(parameter)))
        self.recording.overwrite(chain(parameters, kept))

    def see_gradients(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Gradients are what an optimizer will use now; without one what is left of them. Each once a step."""
        if optimizer is not None:
            self.begins(optimizer)
        wanted = None if optimizer is None else {id(each) for each in parameters_of(optimizer)}
        found: list[tuple[str, torch.Tensor]] = []
        for name, parameter in self.tree.parameters.items():
            if optimizer is None and name not in self._seen:
                self._see_as_left(name, parameter)
            if name in self._seen or parameter.grad is None or (wanted is not None and id(parameter) not in wanted):
                continue
            if optimizer is None and self._is_of_before(name, parameter.grad):
                continue
            seen_before = name in self._of_step
            self._seen.add(name)
            self._of_step.add(name)
            self._seen_last[name] = weakref.ref(parameter.grad), version_of(parameter.grad)
            found.append((gradient_of(name), parameter.grad))
            self._trained.add(name)
            self.expectation.saw_gradients([name])
            if optimizer is not None:
                self.recording.collected(name, gradient_of(name), parameter, parameter.grad)
            elif not seen_before:
                self.recording.left(gradient_of(name), parameter.grad)
        if optimizer is not None and found and all(each is not optimizer for each in self.optimizers):
            self.optimizers.append(optimizer)
        waiting = self.recording.step.waiting
        before = len(waiting)
        see_all(self.recording.step, found + self._rates(optimizer), self.recording.plans, None)
        if optimizer is not None:
            bad, self._bad_gradients = self._bad_gradients, waiting.may_be_bad(before)
            if self._bad_gradients and not bad:
                self._writes.gradients_became_bad()

    def _is_of_before(self, name: str, gradient: torch.Tensor) -> bool:
        """Tells whether a gradient is left from the step before: neither made nor used in this step."""
        known, version = self._seen_last.get(name, (None, 0))
        same = known is not None and known() is gradient and version_of(gradient) == version
        return same and name not in self._of_step

    def backward_ended(self) -> None:
        """Looks at gradients where no optimizer is known, while they are there: the program may clear them at once."""
        if self.optimizers:
            return
        recording, left = self.recording, CapturedStep(0)
        found = [(name, each.grad) for name, each in self.tree.parameters.items() if each.grad is not None]
        see_all(left, [(gradient_of(name), gradient) for name, gradient in found], recording.plans, None)
        seen = {
            each.name: each
            for each in look_now(left, recording.plans.judge if recording.plans else UnknownWatchpoints())
        }
        for each in seen.values():
            each.tensor = None
        self._at_backward = {
            name: ((id(gradient), version_of(gradient)), seen.get(gradient_of(name))) for name, gradient in found
        }

    def _see_as_left(self, name: str, parameter: torch.nn.Parameter) -> None:
        """If the program changed a gradient after the backward pass, uses what was seen when that pass ended."""
        known, capture = self._at_backward.get(name, (None, None))
        gradient = parameter.grad
        if known is None or (gradient is not None and (id(gradient), version_of(gradient)) == known):
            return
        self._seen.add(name)
        self._trained.add(name)
        self.expectation.saw_gradients([name])
        if capture is not None:
            self.recording.step.adopt([capture])

    def see_rates(self, optimizer: torch.optim.Optimizer) -> None:
        """Records the learning rates when an optimizer starts that makes the gradients while it runs."""
        with self.recording.at_work():
            see_all(self.recording.step, self._rates(optimizer), self.recording.plans, None)

    def _rates(self, optimizer: torch.optim.Optimizer | None) -> list[tuple[str, torch.Tensor]]:
        """The learning rates that an optimizer steps with now, as tensors by node."""
        own = [id(group) for group in optimizer.param_groups] if optimizer is not None else []
        named = [(name, group.get("lr")) for name, group in rates_of(self.optimizers) if id(group) in own]
        return [(name, torch.tensor(float(rate), dtype=torch.float64)) for name, rate in named if rate is not None]

    def see_weights(self) -> None:
        """Records weights, optimizer state and changing buffers at the end of the step, once."""
        if self._weights_seen:
            return
        self._weights_seen = True
        self.see_gradients()
        plans = self.recording.plans
        self._weights = self._lasting.grouped(list(self._kept()), plans)
        see_all(self.recording.step, self._weights, plans, self.previous)

    def goes_on(self) -> None:
        """Weights and gradients were looked at before the step was over: at its end they are seen again."""
        self._seen.clear()
        self._weights_seen = False

    def next_step(self) -> None:
        """Drops what the step no longer needs. Weights that are compared are kept for the next step."""
        self._writes.step_ends()
        if self.recording.every_operator and len(self._states.of(self.tree, self.optimizers)) != self._known_states:
            self._know_parameters()
        self.patience.next_step(chain(self.recording.step.names(), self.recording.passes.names))
        self.expectation.next_step()
        self.memory.next_step()
        agent = self.recording.agent
        self.memory.step = -1 if agent is None else agent.step + 1
        plans = self.recording.plans
        seen = (self._weights or grouping(self._kept(), plans)) if plans else Grouping()
        kept = {name: each for name, each in seen.others if (plan := plans.of(name)) and plan.need.previous}
        watched = [(name, each) for name, each in self.tree.parameters.items() if readable(each)] if plans else []
        # What a module read shows whether what it made was its own work, so as much of it as costs nothing is kept.
        kept.update((name, each) for name, each in watched if part_of(each).nbytes <= SMALL)
        self.previous.follow(self.recording.step)
        self.previous.keep(kept.items())
        self.forget_step()

    def forget_step(self) -> None:
        self.recording.clear()
        self.recording.by_hand = not self.optimizers
        self._at_backward.clear()
        self._seen.clear()
        self._of_step.clear()
        self._weights = None
        self._weights_seen = False

    def let_go(self) -> None:
        """Stops watching: nothing is held any more."""
        self.recording.plans = Plans(ClientJudge())
        self.previous.clear()
        self._lasting.clear()
        self._states.clear()
        self._writes.step_ends()
        self.forget_step()

    def initial(self) -> list[tuple[str, torch.Tensor]]:
        """Weights before the first step."""
        pairs = ((name, self.previous.get(name)) for name in self.tree.parameters)
        return [(name, values) for name, values in pairs if values is not None]

    def parameter(self, name: str) -> torch.Tensor | None:
        """A parameter, buffer, optimizer state or gradient as it is now."""
        for known, tensor in self._kept():
            if known == name:
                return tensor
        for known, parameter in self.tree.parameters.items():
            if gradient_of(known) == name:
                gradient = parameter.grad
                return None if gradient is None or self._is_of_before(known, gradient) else gradient
        return None

    def graph(self) -> bytes:
        self._look_at_buffers()
        data = draw(
            self.tree,
            self.recording.structure,
            self.optimizers,
            self._moving,
            self.distribution,
            constants=[
                *self._masks,
                *(name for name, each in self.tree.buffers.items() if not has_fractions(each)),
            ],
            frozen=self._frozen(),
            learned=not self.recording.learning,
        )
        names = set(self._all_names())
        self._young = names - self._names if self._names else set()
        self._names = names
        return data

    def names(self) -> set[str]:
        """Nodes and parameters of the graph that was made last."""
        return self._names

    def plans(self, watchpoints: Sequence[RemoteWatchpoint]) -> Plans:
        """Returns what watchpoints ask for; the first list after a new graph may come from before that was seen."""
        young, self._young = self._young, set()
        known = self._names - young
        nodes = self.recording.structure.nodes
        forward = [each for each in nodes if each in known and not each.startswith(GRADIENTS)]
        judge = watched(watchpoints, self._names)
        judge.patience, judge.memory = self.patience, self.memory
        return Plans(judge, known, forward)

    def identity(self) -> Identity:
        device = next((each.device for each in self.tree.parameters.values()), torch.device("cpu"))
        rank, world = ranks()
        program = f"PyTorch {torch.__version__}"
        if self.unseen:
            program += " (no module is seen)"
        elif self.tree.compiled:
            program += f" (torch.compile hides {self.tree.hidden} modules)"
        backend = {"cpu": "CPU", "cuda": "GPU", "npu": "Ascend"}.get(device.type, device.type.upper())
        return Identity(
            program=program,
            rank=rank,
            world_size=world,
            backend=backend,
            device=str(device.index or 0),
            stops_at_nodes=True,
        )

    def _kept(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Everything that outlives a step, by name."""
        yield from self.tree.parameters.items()
        for name in self._moving:
            buffer = self.tree.buffers.get(name)
            if buffer is not None and readable(buffer):
                yield name, buffer
        yield from self._states.of(self.tree, self.optimizers)

    def _all_names(self) -> Iterator[str]:
        structure = self.recording.structure
        yield from structure.nodes or (place.name for place in self.tree.places)
        yield from structure.inputs
        yield from (name for name, _ in rates_of(self.optimizers))
        yield from (name for name, _ in self._kept())
        frozen = self._frozen()
        yield from (gradient_of(name) for name in self.tree.parameters if name not in frozen)

    def _frozen(self) -> set[str]:
        """Parameters that want no gradient and never had one: frozen on purpose."""
        return {name for name, each in self.tree.parameters.items() if not each.requires_grad} - self._trained


def _plain(buffer: torch.Tensor) -> bool:
    return has_fractions(buffer) and readable(buffer) and not buffer.is_inference()


def _mask(buffer: torch.Tensor) -> bool:
    """Tells whether a buffer that never changes has infinities by design."""
    values = local(buffer)
    return bool(values.isinf().any()) and not bool(values.isnan().any())


def ranks() -> tuple[int, int | None]:
    """Rank and world size of torch.distributed, else the rank that a launcher gave."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank = os.environ.get("RANK", "")
    return (int(rank) if rank.isdecimal() else 0), None
