"""Set and actual values of a hit in sentences, and how the same quantity was one step earlier."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tui_debugger.model import ParamResult, TensorStats, WatchResult
from tui_debugger.session.guidance.evidence import Evidence
from tui_debugger.session.hazards.cause import Cause, Standing
from tui_debugger.text.hits import param_words
from tui_debugger.text.phrases import num, times
from tui_debugger.text.tensors import run_text
from tui_debugger.watch.conditions import PLAIN

_SIGN = re.compile("[<>≥≤]")
GROWN = 10.0
"""A quantity that became so many times as large (or small) within a step changed abruptly."""


def found_words(result: WatchResult) -> str:
    """``mean |x| is 0.73 (watched for: > 0.5), 1.5 times the limit``, for every parameter that hit."""
    return "; ".join(_one(result.condition, param) for param in hit_params(result))


def hit_params(result: WatchResult) -> tuple[ParamResult, ...]:
    """The parameters whose inequality held."""
    return tuple(param for param in result.params if param.hit)


def _one(condition: str, param: ParamResult) -> str:
    label, limit = _split(condition, param)
    if param.actual is None:
        return f"{label} {limit}".strip()
    percent = " %" if limit.endswith("%") else ""
    factor = "" if percent else _factor(param)
    return f"{label} is {num(param.actual)}{percent} (watched for: {limit})" + (f", {factor}" if factor else "")


def _split(condition: str, param: ParamResult) -> tuple[str, str]:
    """``mean |x|`` and ``< 1e-12``."""
    words = param_words(condition, param.name, param.value)
    found = _SIGN.search(words)
    return (words[: found.start()].strip(), words[found.start() :]) if found is not None else (words, "")


def _factor(param: ParamResult) -> str:
    """How far off the limit: ``46 times the limit``, ``a 46th`` is hard to read, so ``46 times below it``."""
    actual, limit = param.actual, float(param.value)
    if actual is None or not math.isfinite(actual) or not limit or actual * limit <= 0 or actual == limit:
        return ""
    ratio = actual / limit
    above = abs(ratio) > 1
    factor = ratio if above else 1 / ratio
    if factor < 1.005:
        return "hardly beyond the limit"
    return f"{times(factor)} the limit" if above else f"{times(factor)} smaller than the limit"


def quantity(stats: TensorStats | None, name: str) -> float | None:
    """A quantity of a condition's parameter (``abs_mean_gt``) from plain statistics."""
    what = name.rpartition("_")[0]
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    if what == "max_min":
        return stats.maximum - stats.minimum
    if what == "zero_percentage":
        return stats.zero_percentage
    return getattr(stats, PLAIN[what]) if what in PLAIN else None


def course(evidence: Evidence, result: WatchResult) -> Iterator[str]:
    """How the quantities that hit were one step earlier."""
    before = evidence.before
    for param in hit_params(result):
        earlier = quantity(before.stats if before is not None else None, param.name)
        if before is None or earlier is None or param.actual is None:
            continue
        label, limit = _split(result.condition, param)
        percent = " %" if limit.endswith("%") else ""
        words = course_words(earlier, param.actual, share=bool(percent))
        yield f"{label} was {num(earlier)}{percent} at step {run_text(before.key)}: {words}"


def course_words(earlier: float, now: float, *, share: bool) -> str:
    """``it grew to 1.7 times that``.

    Args:
        earlier: the quantity one step before.
        now: the quantity.
        share: it is a percentage, which is no magnitude.
    """
    if earlier == now:
        return "unchanged"
    if earlier * now <= 0 or not earlier:
        return "it rose since" if now > earlier else "it fell since"
    ratio = now / earlier
    if 0.99 <= ratio <= 1.01:
        return f"almost the same ({(ratio - 1) * 100:+.2g} %)"
    it = "it" if share or now > 0 else "its magnitude"
    if ratio > 1:
        return f"{it} grew to {times(ratio)} that"
    return f"{it} shrank by a factor of {times(1 / ratio).removesuffix(' times')}"


def suddenly(evidence: Evidence, what: str = "it") -> Cause | None:
    """Whether the tensor's mean magnitude changed abruptly since the step before."""
    before, now = evidence.before, evidence.stats
    earlier = before.stats.abs_mean if before is not None and before.stats is not None else None
    if before is None or not earlier or now is None or now.abs_mean is None:
        return None
    ratio = now.abs_mean / earlier
    words = f"mean |x| went from {num(earlier)} at step {run_text(before.key)} to {num(now.abs_mean)}"
    title = f"{what} changed abruptly " + (
        "with this step" if evidence.adjacent else f"since step {run_text(before.key)}"
    )
    if ratio >= GROWN or (ratio and ratio <= 1 / GROWN) or not ratio:
        return Cause(title, words, Standing.LIKELY)
    return Cause(title, words, Standing.RULED_OUT)
