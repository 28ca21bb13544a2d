"""Checks a large output part by part, so that all intermediate values of a part stay in the cache of a core."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute.judge import (
    Expected,
    OutputCheck,
    OutputJudge,
    in_single_precision,
    unit_of,
)
from tui_debugger.diagnose.recompute.kernel_checks import AttentionCheck, KernelCheck, KernelChecks
from tui_debugger.diagnose.recompute.outcomes import difference, fitted_to
from tui_debugger.diagnose.recompute.table import (
    BoundCall,
    CannotBindError,
    Operator,
    choices_of,
)
from tui_debugger.diagnose.runs.kinds import MOST, DifferenceKind

PART: Final = 1 << 15
"""The number of elements of an output that are computed at once."""


class Part(NamedTuple):
    """A part of an output, the flat index of its first element, and the call that makes it."""

    start: int
    out: Array
    call: BoundCall


Parts = Callable[[], Iterator[Part]]


def difference_of(call: BoundCall, out: Array) -> DifferenceKind:
    """Tells how a wrong output follows from the right one; empty where it is too large to compute as a whole."""
    if out.size > MOST:
        return "", ""
    first = choices_of(call.result())[0]
    fitted = fitted_to(first, out.shape, reshaped=True) if isinstance(first, Expected) else None
    return difference(fitted, out) if fitted is not None else ("", "")


def parts_of(call: BoundCall, found: Array) -> Parts | None:
    """Returns a generator function that cuts a large call into parts; None where it cannot or need not be cut."""
    if not call.args or not isinstance(call.args[0], np.ndarray):
        return None
    split = call.operator.split
    if split == "sums":
        return _row_sums(call, found) if call.args[0].size > PART else None
    if found.size <= PART:
        return None
    if split == "elements":
        return _element_parts(call, found)
    return _batch_parts(call, found) if split == "batches" else _row_parts(call, found)


def _row_parts(call: BoundCall, found: Array) -> Parts | None:
    first = call.args[0]
    if first.ndim < 2 or first.shape[:-1] != found.shape[:-1] or _norm_dims(call) != 1:
        return None
    if call.operator.split != "last":
        return _by_rows(call, found, found.shape[-1])
    return _by_rows(call.along_last(), found, found.shape[-1]) if _is_last(call) else None


def _row_sums(call: BoundCall, found: Array) -> Parts | None:
    first = call.args[0]
    if first.ndim < 2 or not _is_last(call) or found.shape not in {first.shape[:-1], (*first.shape[:-1], 1)}:
        return None
    return _by_rows(call.along_last(), found, 1)


def _by_rows(call: BoundCall, found: Array, made: int) -> Parts:
    """Cuts a call along all but the last dimension of its first argument; a row makes ``made`` elements."""
    first, *rest = call.args
    before, width = first.shape[:-1], first.shape[-1]
    rows = math.prod(before)
    flat, out = np.reshape(first, (rows, width)), np.reshape(found, (rows, *found.shape[len(before) :]))
    step = max(PART // max(width, made), 1)

    def cut() -> Iterator[Part]:
        for start in range(0, rows, step):
            part = slice(start, start + step)
            yield Part(start * made, out[part], call._replace(args=(flat[part], *rest)))

    return cut


def _batch_parts(call: BoundCall, found: Array) -> Parts | None:
    before = found.shape[:-2]
    tensors = [each for each in call.values if isinstance(each, np.ndarray) and each.ndim]
    if not before or any(each.shape[:-2] not in {before, ()} for each in tensors):
        return None
    size = math.prod(found.shape[-2:])

    def cut() -> Iterator[Part]:
        for number, at in enumerate(np.ndindex(before)):

            def part(value: Any, at: tuple[int, ...] = at) -> Any:
                return value[at] if isinstance(value, np.ndarray) and value.shape[:-2] == before else value

            yield Part(number * size, found[at], call.with_each(part))

    return cut


def _is_last(call: BoundCall) -> bool:
    dim = call.args[1] if len(call.args) > 1 else call.named.get("dim")
    dims = dim if isinstance(dim, tuple) else (dim,)
    return len(dims) == 1 and dims[0] in {-1, call.args[0].ndim - 1}


def _norm_dims(call: BoundCall) -> int:
    """Returns how many dimensions a row of the operator has: those that a normalisation goes over, else 1."""
    if "norm" not in call.operator.kind:
        return 1
    shape = call.args[1] if len(call.args) > 1 else call.named.get("normalized_shape")
    return len(shape) if isinstance(shape, tuple) else 1


def _element_parts(call: BoundCall, found: Array) -> Parts | None:
    shape = found.shape
    tensors = [each for each in call.values if isinstance(each, np.ndarray)]
    if all(each.shape == shape or not each.ndim for each in tensors):
        flat = {id(each): np.reshape(each, -1) if each.shape == shape else each for each in tensors}
        return _cut(call, np.reshape(found, -1), flat)
    try:
        broad = {id(each): np.broadcast_to(each, shape) if each.ndim else each for each in tensors}
    except ValueError:
        return None
    return _cut(call, found, broad)


def _cut(call: BoundCall, found: Array, whole: Mapping[int, Array]) -> Parts:
    shape = found.shape
    depth = next(at for at in range(len(shape)) if math.prod(shape[at + 1 :]) <= PART)
    inner = math.prod(shape[depth + 1 :])
    step = max(PART // max(inner, 1), 1)

    def cut() -> Iterator[Part]:
        start = 0
        for outer in np.ndindex(shape[:depth]):
            for begin in range(0, shape[depth], step):
                at = (*outer, slice(begin, begin + step))

                def part(value: Any, at: Any = at) -> Any:
                    taken = whole.get(id(value)) if isinstance(value, np.ndarray) else None
                    return value if taken is None or not taken.ndim else taken[at]

                yield Part(start, found[at], call.with_each(part))
                start += min(step, shape[depth] - begin) * inner

    return cut


def checked_by_kernel(
    by_kernel: KernelChecks, parts: Parts | None, judge: OutputJudge, slot: int, found: Array
) -> OutputCheck | None:
    """Checks an output with the kernel; None where the kernel is not sure, or where ``in_parts`` shall use it."""
    for kernel_check in by_kernel if parts is None or len(by_kernel) > 1 else ():
        each = replace(judge)
        places = [(0, found.size)] if parts is None else ((part.start, part.out.size) for part in parts())
        for place in places:
            result = kernel_check.check(*place)
            if not result.right:
                break
            each.take_norms(*result.norms)
        else:
            return each.result(slot)
    return None


def in_parts(
    operator: Operator, parts: Parts, judge: OutputJudge, slot: int, by_kernel: KernelChecks = ()
) -> OutputCheck:
    """Computes and judges the output part by part; of several possible forms, the one that fits best counts.

    ``judge`` is one that has seen nothing.
    """
    if len(by_kernel) == 1:
        return _checked_by_kernel_in_parts(parts, judge, slot, by_kernel[0])
    judges: list[OutputJudge] = []
    single = operator.single and judge.dtype.itemsize <= 2 and unit_of(judge.dtype) is not None
    for start, out, call in parts():
        if single and len(judges) <= 1 and is_narrow(call.values):
            with in_single_precision():
                judges = judges or [replace(judge)]
                expected = call.result()
            if isinstance(expected, Expected) and judges[0].take_right(expected, out):
                continue
        choices = choices_of(call.result())
        if len(judges) != len(choices):  # one judge was enough for parts that are right in every form
            judges = [*judges, *(replace(judge) for _ in choices)][: len(choices)]
        for own, each in zip(judges, choices, strict=True):
            own.take(_fitted(each, out), out, start)
    checks = (each.result(slot) for each in judges)
    return min(checks, key=lambda check: (check.wrong, check.r))


def _checked_by_kernel_in_parts(
    parts: Parts, judge: OutputJudge, slot: int, kernel_check: KernelCheck | AttentionCheck
) -> OutputCheck:
    """Checks each part with the kernel; computes the parts that are not surely right."""
    for start, out, call in parts():
        result = kernel_check.check(start, out.size)
        if result.right:
            judge.take_norms(*result.norms)
        else:
            judge.take(_fitted(call.result(), out), out, start)
    return judge.result(slot)


def _fitted(expected: Expected, out: Array) -> Expected:
    if (fitted := fitted_to(expected, out.shape, reshaped=True)) is None:
        raise CannotBindError("shapes do not fit")
    return fitted


def is_narrow(values: Sequence[Any]) -> bool:
    return all(each.dtype.itemsize <= 2 or each.dtype == np.bool_ for each in values if isinstance(each, np.ndarray))
