"""Everything of PyTorch that has no public name, in one place: it is there from 2.4 to 2.13.

What is missing in another version makes attaching fail, which is said in one line; the training goes on.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch as dispatch

from tui_debugger.torch.leaves import leaves


def version_of(tensor: torch.Tensor) -> int:
    """How often the values were changed in place; 0 for those that do not count that."""
    try:
        return tensor._version  # noqa: SLF001 - see above
    except RuntimeError:  # made in inference mode
        return 0


Counter = torch.Tensor | weakref.ref[torch.Tensor]
"""What tells how often the values of a tensor were changed."""


def counters(operator: Any, args: Any, kwargs: Any, outputs: Sequence[torch.Tensor]) -> Sequence[Counter]:
    """What counts the changes of each output of an operator that is just being run.

    Outputs do not have the counts yet that the program's tensors will have: views will share that of the tensor that
    they look into. What is made of nothing, or only like another tensor, gets one of its own, and would be copied if
    a tensor of ours had the same: it is held weakly.
    """
    viewed = _viewed_argument(operator)
    if viewed is not None:
        place, name = viewed
        base = args[place] if place < len(args) else kwargs.get(name)
        if isinstance(base, torch.Tensor):
            return [base] * len(outputs)
    if name_of(operator).endswith("_like") or not leaves((args, kwargs)):
        return [weakref.ref(each) for each in outputs]
    return outputs


def counting(tensor: torch.Tensor) -> torch.Tensor:
    """The same values without their history, and with the same count of changes, also while an operator is run."""
    with torch._C._SetExcludeDispatchKeyGuard(_COUNTS, False):  # noqa: SLF001 - see above
        return tensor.detach()


def saves_for_itself(operator: Any, args: Sequence[Any]) -> bool:
    """Whether autograd itself, and no program, runs an operator.

    It takes the history from what it saves, without going through its own layers (those below it run with them
    switched off; a tensor of inference mode, which it cannot save, never goes through them), and from the gradient of
    a parameter before it keeps that.
    """
    if operator is not torch.ops.aten.detach.default or args[0].is_inference():
        return False
    function = torch._C._current_autograd_node()  # noqa: SLF001 - see above
    if function is not None and function.name() == "torch::autograd::AccumulateGrad":
        return True
    return not torch._C._dispatch_tls_is_dispatch_key_excluded(_COUNTS)  # noqa: SLF001 - see above


_COUNTS = torch._C.DispatchKey.ADInplaceOrView  # noqa: SLF001 - see above
"""The layer in which changes in place are counted."""


def in_backward() -> bool:
    """Whether autograd runs in this thread: a module that is called now is being recomputed for a checkpoint."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - see above


def backward_function() -> int:
    """Number of the function that autograd runs, -1 when it runs none."""
    function = torch._C._current_autograd_node()  # noqa: SLF001 - see above
    return -1 if function is None else int(function._sequence_nr())  # noqa: SLF001 - see above


def last_function() -> int:
    """Number of the function that autograd made last: for the operator that runs now, if it is differentiated."""
    autograd: Any = torch.autograd
    return int(autograd._get_sequence_nr()) - 1  # noqa: SLF001 - see above


def no_autocast() -> AbstractContextManager[None]:
    """Operators compute in the types that they are given."""
    guard: AbstractContextManager[None] = torch._C._DisableAutocast()  # noqa: SLF001 - see above
    return guard


transformed: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 - see above
"""Whether a tensor stands for others inside ``torch.func`` (vmap, grad ...)."""


def norms(tensors: Sequence[torch.Tensor], order: int, dtype: torch.dtype | None) -> Sequence[torch.Tensor]:
    """Norms of tensors of one device and element type, in few kernels."""
    options = {} if dtype is None else {"dtype": dtype}
    found: Sequence[torch.Tensor] = torch._foreach_norm(list(tensors), order, **options)  # noqa: SLF001 - see above
    return found


def differences(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Each tensor less another one, in few kernels."""
    found: Sequence[torch.Tensor] = torch._foreach_sub(list(tensors), list(others))  # noqa: SLF001 - see above
    return found


def copy_all(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Writes over tensors, in few kernels."""
    torch._foreach_copy_(list(targets), list(sources))


def name_of(operator: Any) -> str:
    """Name of an operator with its namespace: ``aten::mm``."""
    return str(operator._schema.name)  # noqa: SLF001 - see above


def changes_its_arguments(operator: Any) -> bool:
    """Whether an operator works in place."""
    return bool(operator._schema.is_mutable)  # noqa: SLF001 - see above


@functools.cache
def _viewed_argument(operator: Any) -> tuple[int, str] | None:
    """The argument, by place and name, in whose memory an operator returns views; None for most operators."""
    schema = operator._schema  # noqa: SLF001 - see above
    if schema.is_mutable or not any(each.alias_info is not None for each in schema.returns):
        return None
    arguments = enumerate(schema.arguments)
    return next(((at, each.name) for at, each in arguments if each.alias_info is not None), None)


@functools.cache
def written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """The arguments that an operator writes to, by place and name."""
    arguments = enumerate(operator._schema.arguments)  # noqa: SLF001 - see above
    return tuple((at, each.name) for at, each in arguments if each.alias_info is not None and each.alias_info.is_write)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that this process has, any other tensor as it is."""
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor


def storage_of(tensor: torch.Tensor) -> int | None:
    """What tells the memory of a tensor from others while it lives; None where a tensor has none of its own."""
    if tensor.layout is not torch.strided or tensor.is_meta or transformed(tensor):
        return None
    try:
        return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - see above
    except (NotImplementedError, RuntimeError):
        return None


def hold_weakly(tensor: torch.Tensor) -> StorageWeakRef:
    """Keeps ``storage_of`` from being used for other memory, and lets the memory itself go."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call] # PyTorch does not say its type


def other_mode() -> bool:
    """Whether something sees every operator already."""
    return bool(torch._C._len_torch_dispatch_stack())  # noqa: SLF001 - see above


def calling_scaler() -> Any:
    """The GradScaler that calls the optimizer whose hook runs now; None when the program calls it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way, and part of Python's documentation
    for _ in range(_NEAR):
        if frame is None:
            return None
        if frame.f_code in _SCALER:
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def updates_of(scaler: Any) -> int:
    """How often a GradScaler was updated."""
    scale = scaler._scale  # noqa: SLF001 - see above
    return 0 if scale is None else int(scale._version)  # noqa: SLF001 - see above


_NEAR = 16
"""Calls between a hook of an optimizer and the scaler."""
_SCALER = frozenset(
    {torch.amp.GradScaler._maybe_opt_step.__code__, torch.amp.GradScaler.step.__code__}  # noqa: SLF001 - see above
)


class EveryOperator(dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call] # PyTorch does not say its type
    """Shows every operator that runs, with its arguments and what it made."""

    def __init__(self, show: Callable[[Any, Any, Any, Any], None]) -> None:
        """``show(operator, args, kwargs, out)`` is called after each."""
        super().__init__()  # type: ignore[no-untyped-call] # likewise
        self._show = show

    def enter(self) -> None:
        """Shows what this thread runs, and the backward passes that it starts."""
        self.__enter__()  # type: ignore[no-untyped-call] # PyTorch does not say its type

    def leave(self) -> bool:
        """Shows no more. False where that cannot be now: another mode was entered since, or an operator is shown."""
        current: Any = dispatch._get_current_dispatch_mode  # noqa: SLF001 - see above
        if current() is not self:
            return False
        self.__exit__(None, None, None)
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator."""
        out = func(*args, **(kwargs or {}))
        self._show(func, args, kwargs or {}, out)
        return out
