"""Checks a large output part by part, so that all intermediate values of a part stay in the cache of a core."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute.judge import (
    Expected,
    OutputCheck,
    OutputJudge,
    in_single_precision,
    unit_of,
)
from tui_debugger.diagnose.recompute.kernel_checks import AttentionCheck, KernelCheck
from tui_debugger.diagnose.recompute.outcomes import difference, fitted_to
from tui_debugger.diagnose.recompute.reader import called
from tui_debugger.diagnose.recompute.table import (
    CannotBindError,
    Operator,
    choices_of,
)
from tui_debugger.diagnose.runs.kinds import MOST

PART: Final = 1 << 15
"""The number of elements of an output that are computed at once."""


def difference_of(operator: Operator, args: Sequence[Any], named: Mapping[str, Any], out: Array) -> tuple[str, str]:
    """Tells how a wrong output follows from the right one; empty where it is too large to compute as a whole."""
    if out.size > MOST:
        return "", ""
    first = choices_of(called(operator, args, named))[0]
    fitted = fitted_to(first, out.shape, reshaped=True) if isinstance(first, Expected) else None
    return difference(fitted, out) if fitted is not None else ("", "")


Part = tuple[int, Array, tuple[Any, ...], dict[str, Any]]
"""The flat index of the first element of a part of the output, the part, and the arguments that make it."""


def parts_of(
    operator: Operator, args: Sequence[Any], named: Mapping[str, Any], found: Array
) -> Callable[[], Iterator[Part]] | None:
    """Returns a generator function that cuts a large call into parts; None where it cannot or need not be cut."""
    if not args or not isinstance(args[0], np.ndarray):
        return None
    if operator.split == "sums":
        return _row_sums(args, named, found) if args[0].size > PART else None
    if found.size <= PART:
        return None
    if operator.split == "elements":
        return _element_parts(args, named, found)
    if operator.split == "batches":
        return _batch_parts(args, named, found)
    return _row_parts(operator, args, named, found)


def _row_parts(
    operator: Operator, args: Sequence[Any], named: Mapping[str, Any], found: Array
) -> Callable[[], Iterator[Part]] | None:
    first, shape = args[0], found.shape
    if first.ndim < 2 or first.shape[:-1] != shape[:-1] or _norm_dims(operator, args, named) != 1:
        return None
    if operator.split == "last" and not _is_last(args, named, first.ndim):
        return None
    rows, width, made = math.prod(shape[:-1]), first.shape[-1], shape[-1]
    flat, out = np.reshape(first, (rows, width)), np.reshape(found, (rows, made))
    step = max(PART // max(width, made), 1)
    if operator.split == "last":  # a row keeps only the last dimension
        args = (first, -1, *args[2:]) if len(args) > 1 else args
        named = {**named, "dim": -1} if "dim" in named else named

    def cut() -> Iterator[Part]:
        for start in range(0, rows, step):
            end = min(start + step, rows)
            yield start * made, out[start:end], (flat[start:end], *args[1:]), dict(named)

    return cut


def _batch_parts(args: Sequence[Any], named: Mapping[str, Any], found: Array) -> Callable[[], Iterator[Part]] | None:
    tensors = [each for each in (*args, *named.values()) if isinstance(each, np.ndarray) and each.ndim]
    before = found.shape[:-2]
    if not before or any(each.shape[:-2] not in {before, ()} for each in tensors):
        return None
    size = math.prod(found.shape[-2:])

    def cut() -> Iterator[Part]:
        for number, at in enumerate(np.ndindex(before)):

            def part(value: Any, at: tuple[int, ...] = at) -> Any:
                return value[at] if isinstance(value, np.ndarray) and value.shape[:-2] == before else value

            yield number * size, found[at], tuple(part(each) for each in args), {k: part(v) for k, v in named.items()}

    return cut


def _row_sums(args: Sequence[Any], named: Mapping[str, Any], found: Array) -> Callable[[], Iterator[Part]] | None:
    first = args[0]
    if first.ndim < 2 or not _is_last(args, named, first.ndim):
        return None
    before = first.shape[:-1]
    if found.shape not in {before, (*before, 1)}:
        return None
    rows, width = math.prod(before), first.shape[-1]
    flat, out = np.reshape(first, (rows, width)), np.reshape(found, (rows, *found.shape[len(before) :]))
    step = max(PART // max(width, 1), 1)
    rest = (-1, *args[2:]) if len(args) > 1 else ()
    more = {**named, "dim": -1} if "dim" in named else dict(named)

    def cut() -> Iterator[Part]:
        for start in range(0, rows, step):
            yield start, out[start : start + step], (flat[start : start + step], *rest), more

    return cut


def _is_last(args: Sequence[Any], named: Mapping[str, Any], ndim: int) -> bool:
    dim = args[1] if len(args) > 1 else named.get("dim")
    dims = dim if isinstance(dim, tuple) else (dim,)
    return len(dims) == 1 and dims[0] in {-1, ndim - 1}


def _norm_dims(operator: Operator, args: Sequence[Any], named: Mapping[str, Any]) -> int:
    """Returns how many dimensions a row of the operator has: those that a normalisation goes over, else 1."""
    if "norm" not in operator.kind:
        return 1
    shape = args[1] if len(args) > 1 else named.get("normalized_shape")
    return len(shape) if isinstance(shape, tuple) else 1


def _element_parts(args: Sequence[Any], named: Mapping[str, Any], found: Array) -> Callable[[], Iterator[Part]] | None:
    shape = found.shape
    tensors = [each for each in (*args, *named.values()) if isinstance(each, np.ndarray)]
    if all(each.shape == shape or not each.ndim for each in tensors):
        flat = [np.reshape(each, -1) if each.shape == shape else each for each in tensors]
        return _cut(args, named, np.reshape(found, -1), dict(zip(map(id, tensors), flat, strict=True)))
    try:
        broad = {id(each): np.broadcast_to(each, shape) if each.ndim else each for each in tensors}
    except ValueError:
        return None
    return _cut(args, named, found, broad)


def _cut(
    args: Sequence[Any], named: Mapping[str, Any], found: Array, whole: Mapping[int, Array]
) -> Callable[[], Iterator[Part]]:
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

                yield start, found[at], tuple(part(each) for each in args), {k: part(v) for k, v in named.items()}
                start += min(step, shape[depth] - begin) * inner

    return cut


def checked_by_kernel(
    by_kernel: Sequence[KernelCheck | AttentionCheck],
    parts: Callable[[], Iterator[Part]] | None,
    judge: OutputJudge,
    slot: int,
    found: Array,
) -> OutputCheck | None:
    """Checks an output with the kernel; None where the kernel is not sure, or where ``in_parts`` shall use it."""
    for kernel_check in by_kernel if parts is None or len(by_kernel) > 1 else ():
        each = replace(judge)
        places = [(0, found.size)] if parts is None else ((start, out.size) for start, out, _, _ in parts())
        for place in places:
            result = kernel_check.check(*place)
            if not result.right:
                break
            each.take_norms(*result.norms)
        else:
            return each.result(slot)
    return None


def in_parts(  # noqa: PLR0917 - one call
    operator: Operator,
    parts: Callable[[], Iterator[Part]],
    widest: float,
    slot: int,
    found: Array,
    by_kernel: Sequence[KernelCheck | AttentionCheck] = (),
) -> OutputCheck:
    """Computes and judges the output part by part; of several possible forms, the one that fits best counts."""
    if len(by_kernel) == 1:
        return _checked_by_kernel_in_parts(
            operator, parts, OutputJudge(found.dtype, found.shape, widest), slot, by_kernel[0]
        )
    judges: list[OutputJudge] = []
    single = operator.single and found.dtype.itemsize <= 2 and unit_of(found.dtype) is not None
    for start, out, args, named in parts():
        if single and len(judges) <= 1 and is_narrow((*args, *named.values())):
            with in_single_precision():
                judges = judges or [OutputJudge(found.dtype, found.shape, widest)]
                expected = called(operator, args, named)
            if isinstance(expected, Expected) and judges[0].take_right(expected, out):
                continue
        choices = choices_of(called(operator, args, named))
        if len(judges) != len(choices):  # one judge was enough for parts that are right in every form
            judges = [*judges, *(OutputJudge(found.dtype, found.shape, widest) for _ in choices)][: len(choices)]
        for judge, each in zip(judges, choices, strict=True):
            judge.take(_fitted(each, out), out, start)
    checks = (judge.result(slot) for judge in judges)
    return min(checks, key=lambda check: (check.wrong, check.r))


def _checked_by_kernel_in_parts(
    operator: Operator,
    parts: Callable[[], Iterator[Part]],
    judge: OutputJudge,
    slot: int,
    kernel_check: KernelCheck | AttentionCheck,
) -> OutputCheck:
    """Checks each part with the kernel; computes the parts that are not surely right."""
    for start, out, args, named in parts():
        result = kernel_check.check(start, out.size)
        if result.right:
            judge.take_norms(*result.norms)
            continue
        judge.take(_fitted(called(operator, args, named), out), out, start)
    return judge.result(slot)


def _fitted(expected: Expected, out: Array) -> Expected:
    if (fitted := fitted_to(expected, out.shape, reshaped=True)) is None:
        raise CannotBindError("shapes do not fit")
    return fitted


def is_narrow(values: Sequence[Any]) -> bool:
    return all(each.dtype.itemsize <= 2 or each.dtype == np.bool_ for each in values if isinstance(each, np.ndarray))
