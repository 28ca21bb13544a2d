"""The arguments of a node, for whoever computes it once more: which of its inputs is which, and all other values.

An argument that is not exactly what the graph has for an input (a view that is no node, a tensor that nobody was seen
to make) is ``Unknown``. They are worked out once for a node, and again only where its inputs are others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from tui_debugger.torch import internals

if TYPE_CHECKING:
    from tui_debugger.torch.flow import Flow
    from tui_debugger.torch.structure import Structure

_PLAIN: Final = (bool, int, float, str, type(None))
_LONGEST: Final = 64
"""Numbers of a list that are told."""


@dataclass(frozen=True, slots=True)
class Given:
    """An argument that is a recorded tensor.

    Attributes:
        source: the input of the node that it is.
        place: of that among the inputs; -1: wherever it stands.
    """

    source: str
    place: int = -1


@dataclass(frozen=True, slots=True)
class Unknown:
    """An argument that is not recorded.

    Attributes:
        why: not.
    """

    why: str


OTHERS: Final = Unknown("is another one in some steps")


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a node.

    Attributes:
        arguments: by name: ``Given``, ``Unknown``, a list of them, or the value.
        module: it is a module: values are those of its attributes.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    module: bool = False

    def merged(self, other: Call) -> Call:
        """The same for both of two calls: what differs is unknown."""
        if other.arguments == self.arguments:
            return self
        one, two = self.arguments, other.arguments
        keys = (*one, *(each for each in two if each not in one))
        both = {key: one[key] if key in one and key in two and _same(one[key], two[key]) else OTHERS for key in keys}
        return Call(both, self.module)

    def text(self, name: str, inputs: Sequence[str], left_out: Collection[str], structure: Structure) -> str:
        """What the graph says of the call.

        Args:
            name: of the node.
            inputs: of the node.
            left_out: those of them that are not drawn.
            structure: what was seen of the step.
        """
        kept = [at for at, each in enumerate(inputs) if each not in left_out]
        touched, again = structure.touched, structure.again
        unsure = [name] if name in touched else []
        several = structure.repeated or name in again or not again.isdisjoint(inputs)

        def told(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [told(each) for each in value]
            if isinstance(value, Unknown):
                return {"no": value.why}
            if not isinstance(value, Given):
                return value
            place = value.place
            if place < 0 and list(inputs).count(value.source) == 1:
                place = list(inputs).index(value.source)
            if not 0 <= place < len(inputs) or inputs[place] != value.source or place not in kept:
                return {"no": OTHERS.why if place not in kept or place < 0 else "is not recorded"}
            if value.source in touched:
                unsure.append(value.source)
            return {"in": kept.index(place)}

        found = {key: told(each) for key, each in self.arguments.items()}
        more = {"module": True} if self.module else {}
        more |= {"passes": True} if several else {}
        return json.dumps({"arguments": found, **more, **({"unsure": unsure} if unsure else {})})


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))  # noqa: PLR0124 - NaN


def call_of(flow: Flow, func: Any, args: Any, kwargs: Any, read: Callable[[torch.Tensor], bool]) -> Call | None:
    """The arguments of an operator, by the names in its schema; places are those of ``operands``."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    found: dict[str, Any] = {}
    place = 0

    def given(value: Any) -> Any:
        nonlocal place
        place += 1
        if isinstance(value, torch.Tensor):
            return _tensor(flow, value, place - 1)
        return _value(value)

    for argument, value in zip(schema.arguments, args, strict=False):
        if isinstance(value, list | tuple) and any(isinstance(part, torch.Tensor) for part in value):
            found[argument.name] = [given(part) for part in value]
        elif isinstance(value, torch.Tensor) and not read(value):
            place += 1
        else:
            found[argument.name] = given(value)
    for name, value in kwargs.items():
        if isinstance(value, list | tuple) and any(isinstance(part, torch.Tensor) for part in value):
            found[name] = [given(part) for part in value if isinstance(part, torch.Tensor)]
        elif isinstance(value, torch.Tensor) and not read(value):
            place += 1
        elif isinstance(value, torch.Tensor) or (isinstance(value, int | float) and not isinstance(value, bool)):
            found[name] = given(value)
        else:
            found[name] = _value(value)
    return Call(found)


def _tensor(flow: Flow, tensor: torch.Tensor, place: int = -1) -> Given | Unknown:
    if internals.part_of(tensor) is not tensor:
        return Unknown("is a part of a tensor of several ranks")
    if not flow.of(tensor).sources:
        return Unknown("was not recorded: nobody was seen to make it")
    source = flow.itself(tensor)
    return Given(source, place) if source else Unknown("was not recorded as it was read")


def _value(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return {"type": str(value).removeprefix("torch.")}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple) and len(value) <= _LONGEST and all(isinstance(each, _PLAIN) for each in value):
        return list(value)
    return {"type": type(value).__name__}


def settings_of(module: nn.Module) -> dict[str, Any]:
    """The values that a module of PyTorch's own keeps as attributes: epsilon, stride, whether it trains ..."""
    plain = {key: _value(each) for key, each in vars(module).items() if not key.startswith("_")}
    return {key: each for key, each in plain.items() if not isinstance(each, dict)}


def update_call(
    parameter: torch.Tensor,
    optimizers: Iterable[torch.optim.Optimizer],
    inputs: Sequence[str],
    kept: Mapping[str, torch.Tensor],
) -> Call | None:
    """The arguments of the update of a weight, where one optimizer of PyTorch's own makes it.

    Args:
        parameter: the weight.
        optimizers: those of the model.
        inputs: of the update: the weight, its gradient, the learning rate, what the optimizer keeps.
        kept: what the optimizer keeps for the weight, by the name that it has in the graph.
    """
    found = [
        (optimizer, group)
        for optimizer in optimizers
        for group in optimizer.param_groups
        if any(parameter is each for each in group["params"])
    ]
    if len(found) != 1 or not type(found[0][0]).__module__.startswith("torch.optim."):
        return None
    optimizer, group = found[0]
    settings = {key: _value(each) for key, each in group.items() if key not in {"params", "lr"}}
    plain = {key: each for key, each in settings.items() if not isinstance(each, dict)}
    states = {name.partition(".")[0]: Given(name) for name in kept}
    named = zip(("parameter", "gradient", "rate"), inputs, strict=False)
    tensors = {key: Given(each, place) for place, (key, each) in enumerate(named) if each}
    return Call({**plain, **states, **tensors, "optimizer": type(optimizer).__name__})


AS_IT_CAME: Final = Call({"unchanged": True})
"""The arguments of a gradient that the backward pass left as it is."""


def as_it_came(flow: Flow, parameter: torch.Tensor) -> Call:
    """Tells whether the gradient of a weight is what one backward pass made, and whether the program wrote to it."""
    gradient = parameter.grad
    if gradient is None or gradient.layout is not torch.strided or flow.mixed(gradient) or flow.written(gradient):
        return Call({"unchanged": False, "unwritten": False})
    hooks = (getattr(parameter, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))
    work = flow.of(gradient).work  # autocast makes it wide in the end; anything else is the program's
    untouched = not work.endswith("Function") or work == "ToCopyFunction"
    unchanged = untouched and not any(hooks) and not internals.version_of(gradient)
    return Call({"unchanged": unchanged, "unwritten": True})


def gradient_call(flow: Flow, gradient: torch.Tensor) -> Call:
    """The gradient of a weight is what one operator made, where that is all."""
    return Call({"input": _tensor(flow, gradient), "unwritten": not flow.written(gradient)})
