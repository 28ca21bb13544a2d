"""Judges one watchpoint on one record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tui_debugger.model import ErrorBits, ParamResult, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import Record
from tui_debugger.watch.condition_table import NOT_FINITE, WIRE_NOT_CHANGED, WIRE_OPERATOR_OVERFLOW, WIRE_OVERFLOW
from tui_debugger.watch.evaluate import PLAIN, PREVIOUS_BITS, JudgingPlan, judging_plan

_INEQUALITIES: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "gt": lambda actual, value: actual > value,
    "lt": lambda actual, value: actual < value,
    "ge": lambda actual, value: actual >= value,
    "le": lambda actual, value: actual <= value,
}


def evaluate(watchpoint: Watchpoint, record: Record, *, first_step: bool, initial: bool = False) -> WatchResult | None:
    """Judges one watchpoint on one tensor.

    Rules (MindSpore 1.1 to 2.3, measured on 2.0.0): NaN or Inf anywhere suppresses every other comparison and is
    reported instead, as blocked: the tensor is a finding then, but no hit of the condition; the overflow conditions
    report only whether there is NaN or Inf; an empty tensor and one without numbers never hit;
    ``operator_overflow`` is not decided by values and never hits here.

    Deliberate differences: ``epsilon`` and ``equal_nan`` are used (with ``equal_nan`` a NaN does not prevent the
    comparison); a changed shape is reported, as a finding of the condition also where there is NaN; an Inf that became
    finite counts as changed.

    Args:
        watchpoint: condition and parameters; its selection is not looked at.
        record: made for at least ``needs(watchpoint)``.
        first_step: this is the first dumped step, where nothing can have a previous value.
        initial: the tensor holds initial values: only then is ``weight_initialization`` judged, and only it.

    Returns:
        The outcome, or None when there is nothing to report.
    """
    plan = judging_plan(watchpoint)
    condition = plan.condition
    if condition.wire == WIRE_OPERATOR_OVERFLOW or condition.initial_only != initial:
        return None
    stats = record.stats
    if not record.error and (stats is None or not stats.count):
        return None
    error = _error_bits(plan, record)
    if error:
        return WatchResult(watchpoint.id, condition.id, _verdict(error, first_step), error, plan.unmet)
    hit, params = _judge(plan, record)
    if hit:
        return WatchResult(watchpoint.id, condition.id, Verdict.FINDING, ErrorBits.NONE, params)
    if _unrecorded(plan, record):
        return WatchResult(watchpoint.id, condition.id, Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE, params)
    return None


def _error_bits(plan: JudgingPlan, record: Record) -> ErrorBits:
    """Everything that keeps the condition from being judged. The overflow conditions are never kept from it."""
    stats = record.stats
    if record.error or stats is None:
        return ErrorBits.UNREADABLE
    if plan.condition.wire == WIRE_OVERFLOW:
        return ErrorBits.NONE
    error = ErrorBits.NONE
    if stats.nan and not (plan.condition.wire == WIRE_NOT_CHANGED and plan.closeness[2]):
        error |= ErrorBits.NAN
    if stats.inf:
        error |= ErrorBits.INF
    if plan.need.previous:
        error |= PREVIOUS_BITS.get(record.previous, ErrorBits.NONE)
    return error


def _verdict(error: ErrorBits, first_step: bool) -> Verdict:
    if error & ErrorBits.SHAPE_CHANGED:
        return Verdict.FINDING
    if error & NOT_FINITE:
        return Verdict.BLOCKED
    if error == ErrorBits.NO_PREVIOUS and first_step:
        return Verdict.NOT_COMPARABLE
    return Verdict.CANNOT_JUDGE


def _judge(plan: JudgingPlan, record: Record) -> tuple[bool, tuple[ParamResult, ...]]:
    if plan.condition.wire == WIRE_OVERFLOW:
        return record.stats is not None and record.stats.bad, ()
    if plan.condition.wire == WIRE_NOT_CHANGED:
        return record.close.get(plan.closeness, False), plan.unmet
    results = []
    for (name, value), (quantity, threshold, holds) in zip(plan.params, plan.checks, strict=True):
        actual = _quantity(quantity, plan, record) if holds else None
        hit = holds is not None and actual is not None and _INEQUALITIES[holds](actual, threshold)
        results.append(ParamResult(name, value, hit, actual))
    return any(result.hit for result in results), tuple(results)


def _unrecorded(plan: JudgingPlan, record: Record) -> bool:
    """Tells whether a quantity that decides is missing although there are elements: a statistic.csv holds only some."""
    stats = record.stats
    if stats is None or not stats.finite:
        return False
    wanted = [what for what, _, holds in plan.checks if holds]
    extremes = stats.minimum is not None and stats.maximum is not None
    counted = plan.need.ranges <= record.ranges.keys()
    known = (getattr(stats, PLAIN[what]) is not None for what in wanted if what in PLAIN)
    return bool(wanted) and not (extremes and counted and all(known))


def _quantity(name: str, plan: JudgingPlan, record: Record) -> float | None:
    """The actual value behind a parameter; None when it is unknown or NaN, which never hits."""
    stats = record.stats
    if stats is None or stats.minimum is None or stats.maximum is None:
        return None
    value: float | None = None
    if name == "abs_mean_update_ratio" and record.change is not None:
        value = record.change.ratio(plan.epsilon)
    elif name == "range_percentage" and plan.bounds in record.ranges:
        value = 100.0 * record.ranges[plan.bounds] / stats.count
    elif name == "max_min":
        value = stats.maximum - stats.minimum
    elif name == "zero_percentage":
        value = stats.zero_percentage
    elif name in PLAIN:
        value = getattr(stats, PLAIN[name])
    return None if value is None or math.isnan(value) else value
