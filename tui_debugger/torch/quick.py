"""Quick looks: one or two reductions of a tensor as it is, on its own device.

They never decide that a watchpoint hits. They tell which tensors might, with room for rounding (see ``suspects``), and
those alone are looked at element by element, in float64, by ``exact``: on a healthy run that is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

from tui_debugger.stats.blocks import single_bounds
from tui_debugger.stats.records import Bounds
from tui_debugger.torch import internals
from tui_debugger.torch.transfer import Waiting, wide_type

_REDUCED: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
"""Element types that reductions take as they are, in every version of PyTorch and on every device."""
_EXACT_IN_SINGLE: Final = 2
"""Bytes of an element up to which float32 holds all values of a type."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that reductions take: fp8, small integers and bool as float32, other integers as float64, |complex|."""
    if tensor.dtype in _REDUCED:
        return tensor
    if tensor.is_complex():
        return tensor.abs()
    return tensor.to(torch.float32 if tensor.element_size() <= _EXACT_IN_SINGLE else wide_type(tensor.device))


def extremes(x: torch.Tensor, waiting: Waiting) -> int:
    """Starts to find the least and the greatest element; two places. NaN when an element is."""
    low, high = torch.aminmax(x)
    place = waiting.add(low)
    waiting.add(high)
    return place


def norm(x: torch.Tensor, order: int) -> torch.Tensor:
    """Σ|x| or the root of Σx²; half types are summed in float32."""
    found: torch.Tensor = torch.linalg.vector_norm(x, order, dtype=_summed_as(x))
    return found


def total(x: torch.Tensor) -> torch.Tensor:
    """Σx; half types are summed in float32."""
    return x.sum(dtype=_summed_as(x))


def inside(x: torch.Tensor, bounds: Bounds) -> torch.Tensor:
    """How many elements lie in a range, exactly as if they had been cast to double first."""
    if x.element_size() <= _EXACT_IN_SINGLE:
        x = x.to(torch.float32)
    start, end = (float(each) for each in single_bounds(*bounds)) if x.dtype == torch.float32 else bounds
    tests = [x >= start] if start > -math.inf else []
    tests += [x <= end] if end < math.inf else []
    if not tests:
        return (~x.isnan()).sum()
    return (tests[0].logical_and_(tests[1]) if len(tests) > 1 else tests[0]).sum()


def _summed_as(x: torch.Tensor) -> torch.dtype | None:
    return torch.float32 if x.element_size() <= _EXACT_IN_SINGLE else None


def norms(tensors: Sequence[torch.Tensor], order: int) -> list[torch.Tensor]:
    """``norm`` of many tensors, in as few kernels as there can be."""
    found = [torch.empty(0)] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(tensors):
        if tensor.numel():
            groups.setdefault((tensor.device, tensor.dtype), []).append(number)
        else:
            found[number] = torch.zeros((), device=tensor.device)
    for members in groups.values():
        group = [tensors[number] for number in members]
        for number, each in zip(members, internals.norms(group, order, _summed_as(group[0])), strict=True):
            found[number] = each
    return found


def magnitudes(scratch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Σ|x| of tensors that nobody needs afterwards. On a CPU two passes are faster than the norm's one."""
    if not scratch or scratch[0].device.type != "cpu":
        return norms(scratch, 1)
    return [x.abs_().sum(dtype=_summed_as(x)) for x in scratch]
