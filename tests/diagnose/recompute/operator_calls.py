"""Records what runs below autograd, as level "op" does, in memory: every operator with its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.sources.memory import MemorySource, Op
from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck, check_operator
from tui_debugger.model import Side
from tui_debugger.session.session import Session
from tui_debugger.sources.base import CallArguments, OtherArgument, TensorSlot
from tui_debugger.torch import internals
from tui_debugger.torch.structure import kind_of


@dataclass
class OperatorCall:
    """One operator that ran.

    Attributes:
        kind: its type in a graph.
        arguments: by the names of its schema.
        inputs: as they were before it ran, by slot.
        outputs: by slot.
        case: the call of PyTorch that it is a part of.
    """

    kind: str
    arguments: dict[str, Any] = field(default_factory=dict)
    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    case: str = ""

    def __str__(self) -> str:
        types = [each.dtype.name for each in (*self.inputs, *self.outputs)]
        return f"{self.kind} of {self.case} {' '.join(types)}"


def _array(tensor: torch.Tensor) -> Array:
    found: Array = internals.as_array(tensor.detach().clone()).copy()
    return found


class OperatorCalls(TorchDispatchMode):
    """Keeps the operators that run inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OperatorCall] = []
        self.case = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, call = kwargs or {}, OperatorCall(kind_of(func), case=self.case)

        def told(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                call.inputs.append(_array(value))
                return TensorSlot(len(call.inputs) - 1)
            if isinstance(value, list | tuple):
                return tuple(map(told, value))
            if isinstance(value, bool | int | float | str | type(None)):
                return value
            if isinstance(value, complex):
                return OtherArgument("complex")
            text = str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else type(value).__name__
            return OtherArgument("type", text)

        names = [each.name for each in func._schema.arguments]
        call.arguments = {key: told(each) for key, each in (*zip(names, args, strict=False), *kwargs.items())}
        made = func(*args, **kwargs)
        every = made if isinstance(made, list | tuple) else (made,)
        call.outputs = [_array(each) for each in every if isinstance(each, torch.Tensor)]
        self.calls.append(call)
        return made

    def of(self, case: str, function: Callable[[], Any]) -> None:
        """Runs a call of PyTorch, if it has a kernel for it."""
        self.case = case
        with suppress(RuntimeError, TypeError, ValueError, IndexError, NotImplementedError), self:
            function()


class _Source(MemorySource):
    def __init__(self, calls: list[OperatorCall]) -> None:
        self._calls = calls
        tensors = {
            (str(at), side, slot): array
            for at, call in enumerate(calls)
            for side, arrays in ((Side.INPUT, call.inputs), (Side.OUTPUT, call.outputs))
            for slot, array in enumerate(arrays)
        }
        ops = [
            Op(str(at), call.kind, [("", 0)] * len(call.inputs), outputs=len(call.outputs))
            for at, call in enumerate(calls)
        ]
        super().__init__({0: {0: tensors}}, ops=ops)

    def arguments(self, rank: int, step: int, row: int, round: int = 0) -> CallArguments:  # type: ignore[override]  # noqa: A002, ARG002 - what is known
        return CallArguments((), self._calls[row].arguments, aten=True)


class Checks:
    """What the audit says of recorded operators."""

    def __init__(self, calls: list[OperatorCall]) -> None:
        self.calls = calls
        self._session = Session(_Source(calls))
        self._session.open()

    def of(self, row: int, output: int = 0, planted: Array | None = None) -> OperatorCheck | NotChecked:
        """Of one operator, with other values of an output where they are given."""
        call = self.calls[row]
        values = {("in", slot): array for slot, array in enumerate(call.inputs)}
        values |= {("out", slot): array for slot, array in enumerate(call.outputs)}
        if planted is not None:
            values["out", output] = planted
        return check_operator(self._session, 0, 0, row, instead=values)

    def all(self) -> Iterator[tuple[int, OperatorCall, OperatorCheck | NotChecked]]:
        """Of every operator."""
        for row, call in enumerate(self.calls):
            yield row, call, self.of(row)


def planted(values: Array) -> Array | None:
    """The same with one element that is wrong: by 1 % where its type can tell, by several steps of its type else."""
    found = np.array(values)
    flat = found.reshape(-1)
    if not flat.size:
        return None
    if flat.dtype == np.bool_:
        flat[0] = not flat[0]
        return found
    if flat.dtype.kind in "iu":
        flat[-1] ^= 1
        return found
    with np.errstate(all="ignore"):
        size = np.abs(flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64))
    size[~np.isfinite(size)] = -1
    at = int(np.argmax(size))
    share = {1: 0.75, 2: 0.3}.get(flat.dtype.itemsize, 0.01)
    flat[at] = flat[at] * (1 - share) if size[at] > 0 else 1
    return found
