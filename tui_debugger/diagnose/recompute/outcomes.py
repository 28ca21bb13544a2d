"""The outcome of a check: recorded outputs compared with the expected ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64, Shape
from tui_debugger.diagnose.recompute.judge import (
    ACCUMULATED,
    Expected,
    OutputCheck,
    OutputJudge,
    doubles,
    unit_of,
)
from tui_debugger.diagnose.recompute.probing import MOST_TO_TELL, ProbedOutput
from tui_debugger.diagnose.recompute.table import CannotBindError, UnlikeError
from tui_debugger.diagnose.runs.kinds import MOST, DifferenceKind, kind_of_difference
from tui_debugger.errors import TdbgError


@dataclass(frozen=True, slots=True)
class OperatorCheck:
    """The recorded outputs of a node, compared with arithmetic; ``kind`` is the same word for all frameworks."""

    kind: str
    outputs: tuple[OutputCheck, ...]
    nbytes: int = 0

    @property
    def wrong(self) -> bool:
        return any(each.wrong for each in self.outputs)


@dataclass(frozen=True, slots=True)
class NotChecked:
    """A node that was not recomputed.

    Attributes:
        reason: ``operator not known: foo``, ``input 1 was not dumped`` ...
        failed: reading what was recorded failed.
        unlike: the output differs from arithmetic, but the recorded values may not be those that the node used.
    """

    reason: str
    kind: str = ""
    failed: bool = False
    unlike: bool = False


SURELY_MEANT: Final = 0.8
"""The share of elements (without zeros) that must fit so that the recorded values are those that the node used."""


def not_checked(error: Exception, kind: str) -> NotChecked:
    failed, unlike = not isinstance(error, CannotBindError), isinstance(error, UnlikeError)
    return NotChecked(why(error), kind, failed, unlike)


def why(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "too large for the memory"
    return f"cannot be read: {error.what}" if isinstance(error, TdbgError) else str(error)


def badness(checks: Sequence[OutputCheck]) -> tuple[bool, float]:
    """A sort key: how bad outputs are, wrong ones last."""
    return any(each.wrong for each in checks), max(each.r for each in checks)


def shape_of(result: Any) -> Any:
    return [
        each.shape if isinstance(each, ProbedOutput) else np.shape(each.value)
        for each in (result if isinstance(result, tuple) else (result,))
        if isinstance(each, Expected | ProbedOutput)
    ]


def judged(
    result: Any, outputs: Mapping[int, Array], widest: float, *, reshaped: bool = False
) -> tuple[OutputCheck, ...]:
    """Judges outputs by slot; returns () where no shape fits. ``reshaped``: a compiler may have removed a reshape."""
    expected = result if isinstance(result, tuple) else (result,)
    checks = []
    for slot, found in outputs.items():
        each = expected[slot] if slot < len(expected) else None
        if each is None:
            continue
        if isinstance(each, ProbedOutput):
            judge = OutputJudge(found.dtype, found.shape, widest)
            with np.errstate(all="ignore"):
                probed = each.judge(judge, np.asarray(found))
            if probed:
                check = judge.result(slot)
                told = check.wrong and found.size <= MOST and each.work <= MOST_TO_TELL
                checks.append(replace(check, difference=difference(each.exact(), found)) if told else check)
                continue
            each = each.exact()
        fitted = fitted_to(each, found.shape, reshaped=reshaped)
        if fitted is None:
            return ()
        checks.append(_judge(fitted, found, slot, widest))
    return tuple(checks)


def fitted_to(expected: Expected, shape: Shape, *, reshaped: bool) -> Expected | None:
    """Returns the expectation in the recorded shape, where only size-1 dimensions or a reshape differ; else None."""
    own = np.shape(expected.value)
    if own == shape:
        return expected
    plain = [size for size in own if size != 1] == [size for size in shape if size != 1]
    return expected.reshaped(shape) if math.prod(own) == math.prod(shape) and (reshaped or plain) else None


def _judge(expected: Expected, found: Array, slot: int, widest: float) -> OutputCheck:
    judge = OutputJudge(found.dtype, found.shape, widest)
    judge.take(expected, np.asarray(found))
    check = judge.result(slot)
    return replace(check, difference=difference(expected, np.asarray(found))) if check.wrong else check


def fits_mostly(expected: Expected, found: Array, beside_zeros: float = 0.0) -> bool:
    """Tells whether most elements are right, so that the expectation has the right form and the rest is a fault.

    ``beside_zeros`` is the share of the elements not zero on both sides that must be right; 0 means half of all
    elements.
    """
    whole, unit = expected.complete(), unit_of(found.dtype) or 0.0
    if np.shape(whole.value) != found.shape:
        return False
    with np.errstate(all="ignore"):
        explained = _explained(whole, whole.value, unit)
        off = np.abs(doubles(found) - whole.value)
        near = off <= 8 * explained
        if whole.either is not None:
            near |= np.abs(doubles(found) - whole.either) <= 8 * explained
    if not beside_zeros:
        return bool(np.mean(near) > 0.5)
    some = np.isfinite(off) & ((found != 0) | (np.asarray(whole.value) != 0))
    return bool(np.any(some)) and float(np.mean(near[some])) >= beside_zeros


def _explained(expected: Expected, value: Array, unit: float) -> Float64:
    """How far rounding may have moved each element."""
    inside = min(ACCUMULATED, unit) * math.sqrt(max(expected.terms, 1.0))
    found: Float64 = unit * (np.abs(value) + expected.narrow) + inside * np.asarray(expected.size)
    return found


def difference(expected: Expected, found: Array) -> DifferenceKind:
    if found.dtype.kind == "c":
        return "values", ""
    unit, expected = unit_of(found.dtype) or 0.0, expected.complete()
    with np.errstate(all="ignore"):
        right, seen = (np.asarray(each).astype(np.float64) for each in (expected.value, found))
        right = np.broadcast_to(right, seen.shape)
        near = np.abs(seen - right) <= 4 * _explained(expected, right, unit)  # rounding alone tells nothing
        word, text = kind_of_difference(right, np.where(near, right, seen), unit)
    if word == "rounding":
        return "values", "more than rounding explains"
    named = {"A": "what is expected", "B": "what was recorded"}
    return word, re.sub(r"\b[AB]\b", lambda match: named[match[0]], text)
