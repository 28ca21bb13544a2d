"""The operands of an operator, in the order of its schema: the meaning of each input of its node.

A tensor stands for its sources, a number of the program (``x * 0.5``) for a constant. So does a tensor of unknown
origin that cannot hold a NaN; any other is ``UNKNOWN``, and never left out: else all inputs of the node would seem
clean.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import torch

from tui_debugger.torch import internals
from tui_debugger.torch.flow import OVERWRITES, StepSources, has_fractions
from tui_debugger.torch.internals import type_name
from tui_debugger.torch.structure import UNKNOWN, constant

_NUMBERS: Final = (bool, int, float)
_OVERWRITTEN: Final = constant("overwritten")
_SAYS_NOTHING: Final = frozenset({_OVERWRITTEN, constant("None")})
_LONGEST: Final = 16
"""The longest list of numbers in a constant."""


_FILLS: Final = OVERWRITES | {
    *("Uniform", "Normal", "LogNormal", "Random", "Bernoulli", "Exponential", "Geometric", "Cauchy", "Ones"),
}
"""Kinds of operators that in place leave nothing of a tensor's earlier values."""


def read_tensors(func: Any, kind: str, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors that an operator reads, and does not only write to."""
    return (each for each, read in _operands(func, kind, args, kwargs) if read and isinstance(each, torch.Tensor))


def read_and_written(func: Any, kind: str, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    written = {internals.storage_of(internals.part_of(each)) for each in internals.written(func, args, kwargs)}
    for operand in read_tensors(func, kind, args, kwargs):
        if has_fractions(operand) and internals.storage_of(internals.part_of(operand)) in written:
            yield operand


def operands(flow: StepSources, func: Any, kind: str, args: Any, kwargs: Any) -> list[str]:
    """The inputs of a node: one for each operand, followed by further sources of the operands."""
    inputs: list[str] = []
    more: list[str] = []
    for operand, read in _operands(func, kind, args, kwargs):
        if isinstance(operand, torch.Tensor) and not read:
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


def _operands(func: Any, kind: str, args: Any, kwargs: Any) -> Iterator[tuple[Any, bool]]:
    """Yields each argument of an operator, and whether the operator reads it."""
    changes = internals.name_of(func).endswith("_") and kind not in _FILLS
    only_written = frozenset() if changes else frozenset(chain.from_iterable(internals.written_arguments(func)))
    for at, each in enumerate(args):
        read = at not in only_written
        if isinstance(each, list | tuple) and any(isinstance(part, torch.Tensor) for part in each):
            yield from ((part, read) for part in each)
        else:
            yield each, read
    for name, each in kwargs.items():
        read = name not in only_written
        if isinstance(each, list | tuple):
            yield from ((part, read) for part in each if isinstance(part, torch.Tensor))
        elif isinstance(each, torch.Tensor) or (isinstance(each, int | float) and not isinstance(each, bool)):
            yield each, read


def _unmade(tensor: torch.Tensor) -> str:
    if tensor.is_floating_point() or tensor.is_complex():
        return UNKNOWN
    return constant(f"{type_name(tensor.dtype)} tensor")


def _text(operand: Any) -> str:
    if isinstance(operand, list | tuple) and all(isinstance(each, _NUMBERS) for each in operand):
        shown = [repr(each) for each in operand[:_LONGEST]]
        return f"({', '.join(shown)}{', …' if len(operand) > _LONGEST else ''})"
    if operand is None or isinstance(operand, _NUMBERS):
        return repr(operand)
    return type(operand).__name__ if not isinstance(operand, torch.dtype) else str(operand).removeprefix("torch.")
