"""A model, what trains it, and what is recorded of the step."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from typing import Final

import torch

from tui_debugger.live.client.agent import Identity
from tui_debugger.live.client.judging import Judge, Patience, watched
from tui_debugger.live.wire import RemoteWatchpoint
from tui_debugger.torch.captures import Capture, Step
from tui_debugger.torch.distributed import Distribution, distribution_of
from tui_debugger.torch.drawing import States, draw, parameters_of, rates_of
from tui_debugger.torch.elements import local, meta_of, readable
from tui_debugger.torch.expectation import Expectation
from tui_debugger.torch.internals import part_of, version_of
from tui_debugger.torch.naming import GRADIENTS, Tree, clean, gradient_of, tree_of
from tui_debugger.torch.plans import Foresight, Plans
from tui_debugger.torch.recording import Recording
from tui_debugger.torch.structure import UNKNOWN
from tui_debugger.torch.verdicts import look_now
from tui_debugger.torch.weights import Grouping, Lasting, Previous, grouping, see_all

SMALL: Final = 1 << 16
"""Bytes of a weight whose values of the step before are kept whatever is watched."""

ADDED: Final = "modules and weights that were put into the model after tdbg.attach (call it again then)"
"""What is not recorded."""


class Training:
    """What is known of a training.

    Attributes:
        tree: the model by names.
        distribution: what lies between the processes that train it.
        recording: of the step.
        previous: weights as they were before the step.
        optimizers: those that were given, and those that were seen to update parameters of the model.
        expectation, patience: what was to be expected of the step, and for how long something else held.
    """

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], recording: Recording
    ) -> None:
        """Looks at the model."""
        self.tree: Tree = tree_of(model)
        self.distribution = Distribution()
        self.recording = recording
        self.previous = Previous()
        self.optimizers = list(optimizers)
        self.expectation = Expectation()
        self.patience = Patience(self.expectation.excuses)
        self._trained: set[str] = set()
        self._scopes: dict[int, str] = {}
        self._model = model
        self._buffers: dict[str, tuple[int, int]] = {}
        self._moving: list[str] = []
        self._masks: list[str] = []
        self._versions: dict[str, tuple[int, int, int]] = {}
        recording.at_begin = lambda: self._notice_tampering(self._shards())
        self._names: set[str] = set()
        self._young: set[str] = set()
        self._seen: set[str] = set()
        self._lasting = Lasting()
        self._weights: Grouping | None = None
        """What was seen last of what outlives a step."""
        self._states = States()
        self._weights_seen = False
        self._at_backward: dict[str, tuple[tuple[int, int], Capture | None]] = {}

    def look_again(self) -> None:
        """Finds modules and parameters anew: some may have been replaced since."""
        self.tree = tree_of(self._model)
        self._scopes = {id(place.module): place.scope for place in self.tree.places}
        self.distribution = distribution_of(self._model, self.tree, self.distribution)
        self.expectation.know(self.tree)
        self.recording.flow.know_parameters([*self.tree.parameters.items(), *self.tree.buffers.items()])
        self._buffers = {name: (id(each), version_of(each)) for name, each in self.tree.buffers.items() if _plain(each)}

    def owns(self, module: torch.nn.Module) -> bool:
        """Whether a module is part of the model."""
        return id(module) in self._scopes

    def put_in(self, owner: torch.nn.Module, name: str, new: torch.nn.Module | torch.nn.Parameter) -> None:
        """The program puts a module or a weight into a module of the model.

        A weight in the place of another one is that weight from now on. No hook is on what was not there before.
        """
        path = clean(f"{self._scopes[id(owner)].replace('/', '.')}.{name}".removeprefix("."))
        if isinstance(new, torch.nn.Module):
            if not all(self.owns(each) for each in new.modules()):
                self.recording.lost(ADDED, path)
        elif all(new is not each for each in self.tree.parameters.values()):
            if path not in self.tree.parameters:
                self.recording.lost(ADDED, path)
                return
            self.tree.parameters[path] = new
            self.expectation.know(self.tree)
            self.recording.flow.know_parameters([*self.tree.parameters.items(), *self.tree.buffers.items()])

    def start(self, budget: int) -> None:
        """The first recorded step begins: weights are kept as they are, as far as there is room."""
        kept: list[tuple[str, torch.Tensor]] = []
        for name, parameter in self.tree.parameters.items():
            if readable(parameter) and (size := meta_of(parameter).nbytes) <= budget:
                budget -= size
                kept.append((name, parameter))
        self.previous.keep(kept)
        # The program initialized all of them: whether it did so well is looked at once.
        self._versions = {name: (0, -1, 0) for name, each in self.tree.parameters.items() if readable(each)}

    def learned(self) -> None:
        """The first recorded step is over."""
        self._look_at_buffers()
        self.recording.passes.settle()
        self.recording.learning = False

    def _look_at_buffers(self) -> None:
        """Finds the buffers that are worth looking at: those that change, and those that some node reads.

        Of those that never change, and that are infinite in places, it is by design: they are masks.
        """
        self._notice_changes()
        used = self.recording.structure.used()
        for name in self._buffers:
            if name in self._moving or name in self._masks:
                continue
            buffer = self.tree.buffers.get(name)
            if buffer is None or not (name in used or name in self.recording.structure.fed):
                continue
            mask = name not in self.recording.structure.fed and _mask(buffer)
            (self._masks if mask else self._moving).append(name)

    def _notice_changes(self) -> None:
        """A buffer that changes is made by the module that has it."""
        structure, changed = self.recording.structure, self.recording.flow.changed
        for name, before in self._buffers.items():
            if name not in structure.fed:
                buffer = self.tree.buffers.get(name)
                if buffer is not None and (name in changed or (id(buffer), version_of(buffer)) != before):
                    structure.feed(name, self._owners(name))

    def _notice_tampering(self, but: Container[str] = ()) -> None:
        """A weight that the program itself changed between two steps may have become bad by that.

        Args:
            but: names of those to be looked at later.
        """
        structure, shards = self.recording.structure, self._shards()
        asked = {name: known for name, known in self._versions.items() if name not in but}
        changed = [name for name, known in asked.items() if self._version(name, shards) != known]
        with self.recording.at_work():
            bad = {name for name in changed if not bool(local(self.tree.parameters[name]).isfinite().all())}
        for name in asked:
            if name in bad:
                structure.feed(name, ())  # for good: another graph would cost what is known of this step
            del self._versions[name]

    def _shards(self) -> set[str]:
        """Weights that stand for what was gathered from all processes while the model runs."""
        return {reading.parameter for reading in self.distribution.readings}

    def _version(self, name: str, shards: Container[str]) -> tuple[int, int, int]:
        """What changes when the program writes to a weight, or puts other memory into it (``weight.data = ...``)."""
        parameter = self.tree.parameters[name]
        part = part_of(parameter)
        fixed = part is parameter and part.layout is torch.strided and name not in shards
        return id(parameter), version_of(part), part.data_ptr() if fixed else 0

    def _owners(self, buffer: str) -> list[str]:
        """The nodes of the module that has a buffer."""
        scope = buffer.rpartition(".")[0].replace(".", "/")
        places = {place.name for place in self.tree.places if place.scope == scope}
        return [*(name for name in self.recording.structure.nodes if name.partition("#")[0] in places), UNKNOWN]

    @property
    def unseen(self) -> bool:
        """Whether a step has run and no module was seen in it."""
        return not self.recording.learning and self.recording.structure.nodes.keys() <= self.recording.structure.losses

    def see_gradients(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Gradients are what an optimizer will use now; without one what is left of them. Each once a step."""
        if optimizer is not None:
            self._notice_changes()
            self._notice_tampering()
        wanted = None if optimizer is None else {id(each) for each in parameters_of(optimizer)}
        found: list[tuple[str, torch.Tensor]] = []
        for name, parameter in self.tree.parameters.items():
            if optimizer is None and name not in self._seen:
                self._see_as_left(name, parameter)
            if name in self._seen or parameter.grad is None or (wanted is not None and id(parameter) not in wanted):
                continue
            self._seen.add(name)
            found.append((gradient_of(name), parameter.grad))
            self._trained.add(name)
            self.expectation.saw_gradients([name])
            if optimizer is not None:
                self.recording.collected(name, gradient_of(name), parameter.grad)
        if optimizer is not None:
            self.expectation.begins(optimizer)
        if optimizer is not None and found and all(each is not optimizer for each in self.optimizers):
            self.optimizers.append(optimizer)
        see_all(self.recording.step, found + self._rates(optimizer), self.recording.plans, None)

    def backward_ended(self) -> None:
        """Where no optimizer is known the program updates the weights by itself, and may clear the gradients at once.

        What may be a finding is looked at now, as long as it is there.
        """
        if self.optimizers:
            return
        recording, left = self.recording, Step(0)
        found = [(name, each.grad) for name, each in self.tree.parameters.items() if each.grad is not None]
        see_all(left, [(gradient_of(name), gradient) for name, gradient in found], recording.plans, None)
        seen = {each.name: each for each in look_now(left, recording.plans.judge if recording.plans else Foresight())}
        for each in seen.values():
            each.tensor = None
        self._at_backward = {
            name: ((id(gradient), version_of(gradient)), seen.get(gradient_of(name))) for name, gradient in found
        }

    def _see_as_left(self, name: str, parameter: torch.nn.Parameter) -> None:
        """A gradient that the program changed since the backward pass left it says nothing: what it was does."""
        known, capture = self._at_backward.get(name, (None, None))
        gradient = parameter.grad
        if known is None or (gradient is not None and (id(gradient), version_of(gradient)) == known):
            return
        self._seen.add(name)
        self._trained.add(name)
        self.expectation.saw_gradients([name])
        if capture is not None:
            self.recording.step.adopt([capture])

    def _rates(self, optimizer: torch.optim.Optimizer | None) -> list[tuple[str, torch.Tensor]]:
        """The learning rates that an optimizer steps with now, as tensors by node."""
        own = [id(group) for group in optimizer.param_groups] if optimizer is not None else []
        named = [(name, group.get("lr")) for name, group in rates_of(self.optimizers) if id(group) in own]
        return [(name, torch.tensor(float(rate), dtype=torch.float64)) for name, rate in named if rate is not None]

    def see_weights(self) -> None:
        """Weights, and what else changed, as they are at the end of the step. Once."""
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
        """Nobody looks at the step any more. Weights that are compared are kept for the next one."""
        self.patience.next_step(chain(self.recording.step.names(), self.recording.passes.names))
        self.expectation.next_step()
        plans = self.recording.plans
        seen = (self._weights or grouping(self._kept(), plans)) if plans else Grouping()
        kept = {name: each for name, each in seen.others if (plan := plans.of(name)) and plan.need.previous}
        watched = [(name, each) for name, each in self.tree.parameters.items() if readable(each)] if plans else []
        shards = self._shards()
        self._versions = {name: self._version(name, shards) for name, _ in watched}
        # What a module read shows whether what it made was its own work, so as much of it as costs nothing is kept.
        kept.update((name, each) for name, each in watched if part_of(each).nbytes <= SMALL)
        self.previous.follow(self.recording.step)
        self.previous.keep(kept.items())
        self.forget_step()

    def forget_step(self) -> None:
        """Lets go of the step."""
        self.recording.clear()
        self.recording.by_hand = not self.optimizers
        self._at_backward.clear()
        self._seen.clear()
        self._weights = None
        self._weights_seen = False

    def let_go(self) -> None:
        """Nobody watches any more: nothing is held."""
        self.recording.plans = Plans(Judge())
        self.previous.clear()
        self._lasting.clear()
        self._states.clear()
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
                return parameter.grad
        return None

    def graph(self) -> bytes:
        """The graph as it is known now."""
        self._look_at_buffers()
        data = draw(
            self.tree,
            self.recording.structure,
            self.optimizers,
            self._moving,
            self.distribution,
            # What operators make of a mask is infinite as well: that is nobody's fault, and no operator's own work.
            constants=[
                *(() if self.recording.every_operator else self._masks),
                *(name for name in self.tree.buffers if name not in self._buffers),
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
        """What a list of watchpoints asks for.

        The first list after the graph was sent anew may have been made before the debugger had seen the new nodes.
        """
        young, self._young = self._young, set()
        known = self._names - young
        nodes = self.recording.structure.nodes
        forward = [each for each in nodes if each in known and not each.startswith(GRADIENTS)]
        judge = watched(watchpoints, self._names)
        judge.patience = self.patience
        return Plans(judge, known, forward)

    def identity(self) -> Identity:
        """Who trains."""
        device = next((each.device for each in self.tree.parameters.values()), torch.device("cpu"))
        rank, world = _ranks()
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
    return buffer.is_floating_point() and readable(buffer) and not buffer.is_inference()


def _mask(buffer: torch.Tensor) -> bool:
    """Whether a buffer that never changes has infinities by design."""
    values = local(buffer)
    return bool(values.isinf().any()) and not bool(values.isnan().any())


def _ranks() -> tuple[int, int | None]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank = os.environ.get("RANK", "")
    return (int(rank) if rank.isdecimal() else 0), None
