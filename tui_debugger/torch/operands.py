"""The operands of an operator, in the order of its schema: what each input of its node stands for.

A tensor stands for what it was made of. A number of the program (``x * 0.5``, ``full(size, -inf)``) is a constant with
its value. So is a tensor that nobody was seen to make and that cannot hold a NaN: an index, a mask of True and False.
What may be bad and is not known is ``UNKNOWN``: never left out, or the node would be said to be made of clean inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from tui_debugger.torch import internals
from tui_debugger.torch.flow import OVERWRITES, Flow, has_fractions
from tui_debugger.torch.internals import type_name
from tui_debugger.torch.structure import UNKNOWN, constant

_NUMBERS: Final = (bool, int, float)
_OVERWRITTEN: Final = constant("overwritten")
_SAYS_NOTHING: Final = frozenset({_OVERWRITTEN, constant("None")})
_LONGEST: Final = 16
"""Numbers of a list that a constant holds."""


_FILLS: Final = OVERWRITES | {
    *("Uniform", "Normal", "LogNormal", "Random", "Bernoulli", "Exponential", "Geometric", "Cauchy", "Ones"),
}
"""Kinds of operators that in place leave nothing in a tensor of what it was."""


def reads(func: Any, kind: str, args: Any, kwargs: Any) -> Callable[[torch.Tensor], bool]:
    """Returns what tells whether an operator reads one of its tensors, and does not only write to it."""
    if internals.name_of(func).endswith("_") and kind not in _FILLS:
        return lambda _: True
    written = {id(each) for each in internals.written(func, args, kwargs)}
    return lambda tensor: id(tensor) not in written


def read_tensors(flow: Flow, func: Any, args: Any, kwargs: Any) -> Iterator[tuple[list[str], torch.Tensor]]:
    """Yields the floating-point operands that an operator read and did not write: their sources, and their values."""
    written = {id(each) for each in internals.written(func, args, kwargs)}
    for operand in _operands(args, kwargs):
        if isinstance(operand, torch.Tensor) and id(operand) not in written and has_fractions(operand):
            yield flow.sources([operand]) or [UNKNOWN], operand


def operands(flow: Flow, func: Any, kind: str, args: Any, kwargs: Any) -> list[str]:
    """The inputs of a node: one for each operand, and behind them what else the operands were made of."""
    read = reads(func, kind, args, kwargs)
    inputs: list[str] = []
    more: list[str] = []
    for operand in _operands(args, kwargs):
        if isinstance(operand, torch.Tensor) and not read(operand):
            inputs.append(_OVERWRITTEN)
        elif isinstance(operand, torch.Tensor):
            found = flow.sources([operand]) or [_unmade(operand)]
            inputs.append(found[0])
            more += found[1:]
        else:
            inputs.append(constant(_text(operand)))
    while inputs and inputs[-1] in _SAYS_NOTHING:
        inputs.pop()
    return [*inputs, *(each for each in more if each not in inputs)]


def _operands(args: Any, kwargs: Any) -> Iterator[Any]:
    for each in args:
        if isinstance(each, list | tuple) and any(isinstance(part, torch.Tensor) for part in each):
            yield from each
        else:
            yield each
    for each in kwargs.values():
        if isinstance(each, list | tuple):
            yield from (part for part in each if isinstance(part, torch.Tensor))
        elif isinstance(each, torch.Tensor) or (isinstance(each, int | float) and not isinstance(each, bool)):
            yield each


def _unmade(tensor: torch.Tensor) -> str:
    """Stands for a tensor of which no maker is known."""
    if tensor.is_floating_point() or tensor.is_complex():
        return UNKNOWN
    return constant(f"{type_name(tensor.dtype)} tensor")


def _text(operand: Any) -> str:
    """The value of a constant as people read it; a number beyond those of Python's is its type."""
    if isinstance(operand, list | tuple) and all(isinstance(each, _NUMBERS) for each in operand):
        shown = [repr(each) for each in operand[:_LONGEST]]
        return f"({', '.join(shown)}{', …' if len(operand) > _LONGEST else ''})"
    if operand is None or isinstance(operand, _NUMBERS):
        return repr(operand)
    return type(operand).__name__ if not isinstance(operand, torch.dtype) else str(operand).removeprefix("torch.")
