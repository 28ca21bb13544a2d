"""Conditions at work: which parameters are allowed, what a record must hold, and how it is judged.

Where a judgement differs from MindInsight's on purpose, ``evaluate`` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tui_debugger.errors import BadWatchpointError
from tui_debugger.model import ErrorBits, ParamResult, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import Bounds, Closeness, Record, RequiredStats
from tui_debugger.watch.condition_table import (
    BOUND_NAMES,
    CONDITIONS,
    EPSILON,
    WIRE_CHANGE_TOO_LARGE,
    WIRE_CHANGE_TOO_SMALL,
    WIRE_NOT_CHANGED,
    WIRE_OPERATOR_OVERFLOW,
    WIRE_OVERFLOW,
    Condition,
    ParamSpec,
    Value,
    by_abbr,
)

__all__ = [
    "CONDITIONS",
    "NOT_FINITE",
    "REASONS",
    "Condition",
    "ParamSpec",
    "Params",
    "Value",
    "by_abbr",
    "evaluate",
    "needs",
    "not_finite_words",
    "reasons",
    "validate",
]

Params = tuple[tuple[str, Value], ...]
"""(name, value) in definition order."""

REASONS: Final[Mapping[ErrorBits, str]] = {
    ErrorBits.NAN: "contains NaN",
    ErrorBits.INF: "contains Inf",
    ErrorBits.NO_PREVIOUS: "no previous step",
    ErrorBits.OUT_OF_MEMORY: "exceeds the memory limit",
    ErrorBits.NO_HISTORY: "no run history",
    ErrorBits.NO_VALUE: "has no value",
    ErrorBits.SHAPE_CHANGED: "shape changed",
    ErrorBits.UNREADABLE: "unreadable",
}
"""Why nothing could be compared, for people."""


NOT_FINITE: Final = ErrorBits.NAN | ErrorBits.INF
"""What makes a tensor a finding by itself, and keeps every other condition from being judged."""


def reasons(error: ErrorBits) -> tuple[str, ...]:
    """The bits of an error in words, lowest bit first."""
    return tuple(text for bit, text in REASONS.items() if error & bit)


def not_finite_words(error: ErrorBits) -> str:
    """``NaN``, ``Inf``, ``NaN or Inf``: what of the two there is."""
    return " or ".join(name for bit, name in ((ErrorBits.NAN, "NaN"), (ErrorBits.INF, "Inf")) if error & bit)


def validate(condition_id: str, params: Mapping[str, Value], one_check: bool = False) -> Params:
    """Checks parameters against every rule and puts them into definition order.

    Hidden parameters that were not set stay unset (their defaults apply when the condition is judged). When no
    deciding parameter is set, those with a default are set to it; a condition without such a default is refused,
    because it could never hit.

    Args:
        condition_id: id or abbreviation.
        params: values by name.
        one_check: also demand at most one deciding parameter, as MindInsight's server does for its web page.
            Otherwise the watchpoint hits when any of them hits, as in its Python API.

    Returns:
        (name, value) in definition order, numbers as float.

    Raises:
        BadWatchpointError: an unknown name, a wrong value, or a broken combination.
    """
    condition = by_abbr(condition_id)
    given = {name: condition.param(name).check_value(value) for name, value in params.items()}
    checks = [spec for spec in condition.params if spec.check and spec.name in given]
    if one_check and len(checks) > 1:
        msg = "only one deciding parameter is allowed"
        raise BadWatchpointError(msg, where=", ".join(spec.name for spec in checks))
    if not any(spec.visible for spec in checks):
        checks += _fill_defaults(condition, given)
    _check_bounds(condition, given, checks)
    return tuple((spec.name, given[spec.name]) for spec in condition.params if spec.name in given)


def _fill_defaults(condition: Condition, given: dict[str, Value]) -> list[ParamSpec]:
    visible = [spec for spec in condition.params if spec.check and spec.visible]
    filled = [spec for spec in visible if spec.default is not None]
    if visible and not filled:
        msg = f"{condition.id} needs at least one value to compare with"
        raise BadWatchpointError(msg, hint="set one of " + ", ".join(spec.name for spec in visible))
    for spec in filled:
        if spec.default is not None:
            given[spec.name] = spec.default
    return filled


def _check_bounds(condition: Condition, given: Mapping[str, Value], checks: list[ParamSpec]) -> None:
    needed = {name for spec in checks for name in spec.needs}
    present = {spec.name for spec in condition.params if not spec.check and spec.name in given}
    if needed - present:
        msg = "a range percentage needs both ends of the range"
        raise BadWatchpointError(
            msg, where=condition.id, hint="set " + " and ".join(sorted(needed - present, reverse=True))
        )
    if present - needed:
        msg = "the ends of a range have no effect without a range percentage"
        raise BadWatchpointError(msg, where=condition.id, hint="set range_percentage_lt or range_percentage_gt")
    if present and given[BOUND_NAMES[0]] > given[BOUND_NAMES[1]]:
        msg = "the range starts above its end"
        raise BadWatchpointError(msg, where=condition.id, hint="exchange the two")


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """A watchpoint's condition with its defaults filled in: computed once, used for every tensor."""

    condition: Condition
    params: Params
    checks: tuple[tuple[str, float, str | None], ...]
    """(quantity, set value, name of the inequality) beside each of ``params``; no inequality: never hits by itself."""
    bounds: Bounds
    closeness: Closeness
    epsilon: float
    need: RequiredStats
    idle: tuple[ParamResult, ...]


_INEQUALITIES: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "gt": lambda actual, value: actual > value,
    "lt": lambda actual, value: actual < value,
    "ge": lambda actual, value: actual >= value,
    "le": lambda actual, value: actual <= value,
}


@lru_cache(maxsize=4096)
def _plan(condition_id: str, params: Params) -> JudgingPlan:
    condition = by_abbr(condition_id)
    values = {spec.name: spec.default for spec in condition.params if spec.required and spec.default is not None}
    values |= dict(params)
    ordered = tuple((spec.name, values[spec.name]) for spec in condition.params if spec.name in values)
    checks = tuple(
        (quantity, float(value), comparison if comparison in _INEQUALITIES else None)
        for name, value in ordered
        for quantity, _, comparison in (name.rpartition("_"),)
    )
    bounds = (float(values.get(BOUND_NAMES[0], -math.inf)), float(values.get(BOUND_NAMES[1], math.inf)))
    closeness = (float(values.get("rtol", 1e-5)), float(values.get("atol", 1e-8)), bool(values.get("equal_nan", False)))
    # A percentage without any bound never hits in the old backend: its range counter does not exist then.
    bounded = any(name in values for name in BOUND_NAMES)
    need = RequiredStats(
        ranges=frozenset({bounds} if bounded and any(what == "range_percentage" for what, _, _ in checks) else ()),
        change=condition.wire in (WIRE_CHANGE_TOO_LARGE, WIRE_CHANGE_TOO_SMALL),
        closeness=frozenset({closeness} if condition.wire == WIRE_NOT_CHANGED else ()),
    )
    idle = tuple(ParamResult(name, value, hit=False, actual=None) for name, value in ordered)
    return JudgingPlan(condition, ordered, checks, bounds, closeness, float(values.get("epsilon", EPSILON)), need, idle)


def judging_plan(watchpoint: Watchpoint) -> JudgingPlan:
    """Tells how a watchpoint is judged."""
    return _plan(watchpoint.condition, watchpoint.params)


def needs(watchpoint: Watchpoint) -> RequiredStats:
    """Returns what a record must hold so that this watchpoint can be judged from it."""
    return _plan(watchpoint.condition, watchpoint.params).need


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
    plan = _plan(watchpoint.condition, watchpoint.params)
    condition = plan.condition
    if condition.wire == WIRE_OPERATOR_OVERFLOW or condition.initial_only != initial:
        return None
    stats = record.stats
    if not record.error and (stats is None or not stats.count):
        return None
    error = _error_bits(plan, record)
    if error:
        return WatchResult(watchpoint.id, condition.id, _verdict(error, first_step), error, plan.idle)
    hit, params = _judge(plan, record)
    if hit:
        return WatchResult(watchpoint.id, condition.id, Verdict.FINDING, ErrorBits.NONE, params)
    if _unrecorded(plan, record):
        return WatchResult(watchpoint.id, condition.id, Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE, params)
    return None


PREVIOUS_BITS: Final[Mapping[str, ErrorBits]] = {
    "none": ErrorBits.NO_PREVIOUS,
    "shape": ErrorBits.SHAPE_CHANGED,
    "unreadable": ErrorBits.UNREADABLE,
    "no value": ErrorBits.NO_VALUE,
}
"""What the fate of the previous step (``Record.previous``) means for a comparison."""


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
        return record.close.get(plan.closeness, False), plan.idle
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


PLAIN: Final = {"max": "maximum", "min": "minimum", "mean": "mean", "abs_mean": "abs_mean"}
"""Quantities that are a statistic as it stands, and the field of ``TensorStats``."""
