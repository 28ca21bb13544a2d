"""The arguments of a node's call, so that it can be computed again: the input of each argument, and other values.

A tensor argument that is not exactly an input of the graph (a view that is no node, a tensor of unknown origin) is
``Unknown``. Arguments are found once per node, and again only when its inputs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from tui_debugger.torch import internals
from tui_debugger.torch.node_calls import NodeCall, TensorArgument, Unknown

if TYPE_CHECKING:
    from tui_debugger.torch.flow import StepSources

_PLAIN: Final = (bool, int, float, str, type(None))
_LONGEST: Final = 64
"""The longest list of numbers that is kept."""


def call_of(
    flow: StepSources, func: Any, args: Any, kwargs: Any, read: Callable[[torch.Tensor], bool]
) -> NodeCall | None:
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
    return NodeCall(found)


def _tensor(flow: StepSources, tensor: torch.Tensor, place: int = -1) -> TensorArgument | Unknown:
    if internals.part_of(tensor) is not tensor:
        return Unknown("is a part of a tensor of several ranks")
    if tensor.is_conj() or tensor.is_neg():  # a view that shows other values than those in its memory
        return Unknown("was not recorded as it was read")
    if not flow.of(tensor).sources:
        return Unknown("was not recorded: nobody was seen to make it")
    source = flow.itself(tensor)
    return TensorArgument(source, place) if source else Unknown("was not recorded as it was read")


def _value(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return {"type": str(value).removeprefix("torch.")}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple) and len(value) <= _LONGEST and all(isinstance(each, _PLAIN) for each in value):
        return list(value)
    return {"type": type(value).__name__}


def settings_of(module: nn.Module) -> dict[str, Any]:
    """The values that a module of PyTorch keeps as attributes: epsilon, stride, whether it trains ..."""
    plain = {key: _value(each) for key, each in vars(module).items() if not key.startswith("_")}
    return {key: each for key, each in plain.items() if not isinstance(each, dict)}


def update_call(
    parameter: torch.Tensor,
    optimizers: Iterable[torch.optim.Optimizer],
    inputs: Sequence[str],
    kept: Mapping[str, torch.Tensor],
) -> NodeCall | None:
    """The arguments of the update of a weight, if exactly one optimizer of PyTorch itself makes it.

    ``inputs`` are the weight, its gradient, the learning rate, and the optimizer's state (``kept``, by name).
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
    states = {name.partition(".")[0]: TensorArgument(name) for name in kept}
    named = zip(("parameter", "gradient", "rate"), inputs, strict=False)
    tensors = {key: TensorArgument(each, place) for place, (key, each) in enumerate(named) if each}
    return NodeCall({**plain, **states, **tensors, "optimizer": type(optimizer).__name__})


AS_IT_CAME: Final = NodeCall({"unchanged": True})
"""The arguments of a gradient that is unchanged since the backward pass."""


def as_it_came(flow: StepSources, parameter: torch.Tensor) -> NodeCall:
    """Tells whether a weight's gradient comes from one backward pass alone, and whether the program wrote to it."""
    gradient = parameter.grad
    if gradient is None or gradient.layout is not torch.strided or flow.mixed(gradient) or flow.written(gradient):
        return NodeCall({"unchanged": False, "unwritten": False})
    hooks = (getattr(parameter, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))
    work = flow.of(gradient).work  # autocast casts it back in the end; other work is the program's
    untouched = not work.endswith("Function") or work == "ToCopyFunction"
    unchanged = untouched and not any(hooks) and not internals.version_of(gradient)
    return NodeCall({"unchanged": unchanged, "unwritten": True})


def gradient_call(flow: StepSources, gradient: torch.Tensor) -> NodeCall:
    return NodeCall({"input": _tensor(flow, gradient), "unwritten": not flow.written(gradient)})
