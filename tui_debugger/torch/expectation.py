"""What was to happen in a step: which parameters an optimizer had reason to change, and which steps were left out.

A weight that stays as it is, and a gradient of zeros, are findings only where something else was to be expected.
Reasons why not: the optimizer did not step, or a gradient scaler left the step out; the learning rate still rises (a
warm-up); the parameter is frozen now; its module did not run with gradients, or ran on nothing (an expert without
tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import torch

from tui_debugger.model import Verdict, WatchResult
from tui_debugger.torch.captures import Capture
from tui_debugger.torch.naming import GRADIENTS, Tree, gradient_of
from tui_debugger.torch.structure import Structure
from tui_debugger.watch.condition_table import CONDITIONS, WIRE_NOT_CHANGED, WIRE_OVERFLOW

Told = Callable[[torch.optim.Optimizer, bool], None]


class Expectation:
    """What optimizers and modules did in the step that is recorded."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.skipped = False
        """A gradient scaler left the step out, because gradients were not finite."""
        self.scaled = False
        """There is one: nobody uses gradients before it has looked at them."""
        self.at_once = False
        """Operators are recorded, not modules."""
        self._stepped: set[int] = set()
        self._rates: dict[int, float] = {}
        self._rates_before: dict[int, float] = {}
        self._with_gradient: set[str] = set()
        self._captures: Iterable[Capture] = ()
        self._outputs: dict[str, bool] = {}
        self._nodes: Collection[str] = ()
        self._losses: Collection[str] = ()
        self._scaled: Collection[str] = ()
        self._optimizer: dict[int, int] = {}
        self._owners: dict[str, list[str]] = {}
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._by_gradient: dict[str, str] = {}

    def know(self, tree: Tree) -> None:
        """Which modules own which parameters."""
        names = {id(parameter): name for name, parameter in tree.parameters.items()}
        self._parameters = tree.parameters
        self._by_gradient = {gradient_of(name): name for name in tree.parameters}
        self._owners = {}
        for place in tree.places:
            for parameter in place.module.parameters(recurse=False):
                self._owners.setdefault(names.get(id(parameter), ""), []).append(place.scope)

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step: at which learning rates."""
        for group in optimizer.param_groups:
            rate = float(group.get("lr") or 0.0)
            for parameter in group["params"]:
                self._rates[id(parameter)] = rate
                self._optimizer[id(parameter)] = id(optimizer)

    def ended(self, optimizer: torch.optim.Optimizer) -> None:
        """It has stepped; a fused one may have left the step out by itself."""
        self._stepped.add(id(optimizer))
        found = getattr(optimizer, "found_inf", None)
        self.skipped |= isinstance(found, torch.Tensor) and bool(found.any())

    def saw_gradients(self, names: Iterable[str]) -> None:
        """Parameters that have a gradient in this step."""
        self._with_gradient.update(names)

    def holds(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether an optimizer is one of this model."""
        own = {id(parameter) for parameter in self._parameters.values()}
        return any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"])

    def look_at(self, captures: Iterable[Capture], structure: Structure) -> None:
        """What was seen of the step, and all nodes that are known. Looked at when somebody asks for an excuse."""
        self._captures, self._nodes = captures, structure.nodes
        self._losses, self._scaled = structure.losses, structure.scaled
        self._outputs.clear()

    def next_step(self) -> None:
        """The step is over."""
        self.skipped = False
        self._stepped.clear()
        self._rates_before |= self._rates
        self._with_gradient.clear()
        self._captures = ()
        self._outputs.clear()

    def excuses(self, name: str, result: WatchResult) -> bool:
        """Whether there is a reason for what a watchpoint found on a node."""
        parameter = name if name in self._parameters else self._by_gradient.get(name, "")
        condition = CONDITIONS[result.condition]
        if condition.wire == WIRE_OVERFLOW or result.verdict is Verdict.BLOCKED:
            unused = self.skipped or (self.scaled and not self._stepped)
            return unused and (name.startswith(GRADIENTS) or name in self._scaled)
        if not parameter:
            return False
        if self.skipped or self._idle(parameter):
            return True
        return condition.wire == WIRE_NOT_CHANGED and name == parameter and self._at_rest(self._parameters[parameter])

    def _at_rest(self, parameter: torch.nn.Parameter) -> bool:
        """Whether no optimizer was to change a parameter in this step, or the learning rate still rises."""
        key = id(parameter)
        if not parameter.requires_grad or (key in self._optimizer and self._optimizer[key] not in self._stepped):
            return True
        return key in self._rates_before and self._rates[key] > self._rates_before[key]

    def _idle(self, parameter: str) -> bool:
        """Whether the modules that own a parameter did not run in this step, or on nothing."""
        owners = self._owners.get(parameter, [])
        ran = self._ran()
        if not owners or any(ran.get(owner) for owner in owners):
            return False
        known = parameter not in self._with_gradient or any(owner in ran for owner in owners)
        return known or any(node.rpartition("/")[0] in owners for node in self._nodes if node not in self._losses)

    def _ran(self) -> dict[str, bool]:
        """By scope whether there was anything in what its module returned, of those that ran.

        At operator level a module ran on nothing when one of its operators returned nothing.
        """
        if not self._outputs:
            for each in self._captures:
                if each.name in self._losses:
                    continue
                scope = each.name.rpartition("/")[0]
                some, before = 0 not in each.meta.shape, self._outputs.get(scope, self.at_once)
                self._outputs[scope] = (before and some) if self.at_once else (before or some)
        return self._outputs


class Scalers:
    """Tells when a ``GradScaler`` has made a step or left it out: the optimizer does not hear of that."""

    def __init__(self, told: Told) -> None:
        """``told`` is called with the optimizer and whether it stepped, after the scaler's ``step``."""
        self._told = told

    def install(self) -> None:
        """Listens."""
        if self._told not in _listeners:
            _listeners.append(self._told)
        if not hasattr(_scaler.step, _WRAPPED):
            _scaler.step = _telling(_scaler.step)

    def remove(self) -> None:
        """Listens no more; the last one leaves ``GradScaler`` as it was."""
        if self._told in _listeners:
            _listeners.remove(self._told)
        if not _listeners and hasattr(_scaler.step, _WRAPPED):
            _scaler.step = getattr(_scaler.step, _WRAPPED)


_scaler: Any = torch.amp.GradScaler
_listeners: Final[list[Told]] = []
_WRAPPED: Final = "_tdbg_wrapped"


def _telling(original: Any) -> Any:
    """``GradScaler.step``, which then says whether the optimizer stepped."""

    def step(scaler: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        stepped: list[bool] = []
        handle = optimizer.register_step_pre_hook(lambda *_: stepped.append(True))
        try:
            returned = original(scaler, optimizer, *args, **kwargs)
        finally:
            handle.remove()
        for tell in tuple(_listeners):
            tell(optimizer, bool(stepped))
        return returned

    setattr(step, _WRAPPED, original)
    return step
