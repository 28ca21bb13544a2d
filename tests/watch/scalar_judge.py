"""The rules of the conditions as one writes them down for one tensor: what the program's columns are held against.

Of the program it uses the table of conditions and the records, nothing of what judges them.
"""

from __future__ import annotations

import math
import operator
from typing import Final

from tests.watch import expressions
from tui_debugger.model import AtLeast, ErrorBits, ParamResult, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import Record
from tui_debugger.watch.condition_table import (
    CONDITIONS,
    WIRE_CHANGE_TOO_LARGE,
    WIRE_CHANGE_TOO_SMALL,
    WIRE_EXPRESSION,
    WIRE_NOT_CHANGED,
    WIRE_OPERATOR_OVERFLOW,
    WIRE_OVERFLOW,
)
from tui_debugger.watch.expression import Quantity, name_text, parse

CHANGES: Final = {WIRE_CHANGE_TOO_LARGE, WIRE_CHANGE_TOO_SMALL, WIRE_NOT_CHANGED}
FLAGS: Final = {WIRE_OVERFLOW, WIRE_NOT_CHANGED}
INEQUALITIES: Final = {"gt": operator.gt, "lt": operator.lt, "ge": operator.ge, "le": operator.le}
PREVIOUS: Final = {
    "ok": ErrorBits.NONE,
    "none": ErrorBits.NO_PREVIOUS,
    "shape": ErrorBits.SHAPE_CHANGED,
    "unreadable": ErrorBits.UNREADABLE,
    "no value": ErrorBits.NO_VALUE,
}
ROUNDED: Final = 0.01
"""Sums and means were rounded: bounds that follow from them are wider by so much."""
NEEDED: Final = {"max": "maximum", "min": "minimum", "mean": "mean", "abs_mean": "abs_mean"}
"""Quantities that are a statistic, and its name."""


def judge_scalar(
    watchpoint: Watchpoint, record: Record, *, first_step: bool, initial: bool = False
) -> WatchResult | None:
    """Judges one watchpoint on one tensor; None where there is nothing to report."""
    condition = CONDITIONS[watchpoint.condition]
    if condition.wire == WIRE_OPERATOR_OVERFLOW or condition.initial_only != initial:
        return None
    if condition.wire == WIRE_EXPRESSION:
        return told_by_expression(watchpoint, record, first_step=first_step)
    if not record.error and (record.stats is None or record.stats.count == 0):
        return None
    error = prevented(watchpoint, record)
    if error:
        kind = kind_of(error, first_step=first_step)
        return WatchResult(watchpoint.id, condition.id, kind, error, unmet(parameters(watchpoint)))
    found = told_by_flags(watchpoint, record) if condition.wire in FLAGS else told_by_values(watchpoint, record)
    return None if found is None else WatchResult(watchpoint.id, condition.id, *found)


def told_by_expression(watchpoint: Watchpoint, record: Record, *, first_step: bool) -> WatchResult | None:
    """Conditions of one's own: true, false, or unknown for a reason."""
    ((name, text),) = watchpoint.params
    expression, stats = parse(str(text)), record.stats
    if not record.error and stats is None:
        return None
    none = (ParamResult(name, text, hit=False, actual=None),)
    names = {(each.name, isinstance(each, Quantity) and each.previous) for each in expression.names}
    error = ErrorBits.UNREADABLE if record.error else ErrorBits.NONE
    if stats is not None and not names & {(each, False) for each in ("nan", "inf", "pos_inf", "neg_inf")}:
        error |= ErrorBits.NAN if stats.nan else ErrorBits.NONE
        error |= ErrorBits.INF if stats.inf else ErrorBits.NONE
    if error:
        return WatchResult(watchpoint.id, "expression", kind_of(error, first_step=first_step), error, none)
    outcome = expressions.holds(expression.tree, record)
    if outcome:
        quantities = tuple((name_text(each), expressions.side(each, record)) for each in expression.names)
        found = (ParamResult(name, text, hit=True, actual=None, quantities=quantities),)
        return WatchResult(watchpoint.id, "expression", Verdict.FINDING, ErrorBits.NONE, found)
    if outcome is False or record.meta is None or not (math.prod(record.meta.shape) or (stats and stats.count)):
        return None
    error = PREVIOUS[record.previous_stats.state] if expression.previous and record.previous_stats else error
    error = error or ErrorBits.NO_VALUE
    return WatchResult(watchpoint.id, "expression", kind_of(error, first_step=first_step), error, none)


Told = tuple[Verdict, ErrorBits, tuple[ParamResult, ...]]


def told_by_flags(watchpoint: Watchpoint, record: Record) -> Told | None:
    """Conditions that hold or do not hold, without a value: NaN or Inf is there, everything is close to what it was."""
    params = parameters(watchpoint)
    if CONDITIONS[watchpoint.condition].wire == WIRE_OVERFLOW:
        hit = record.stats is not None and record.stats.bad
        if record.stats is not None and not hit and record.stats.at_least & (AtLeast.NAN | AtLeast.INF):
            return Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE, unmet(params)
    else:
        hit = record.close.get((params.get("rtol", 1e-5), params["atol"], bool(params["equal_nan"])), False)
    return (Verdict.FINDING, ErrorBits.NONE, unmet(params)) if hit else None


def told_by_values(watchpoint: Watchpoint, record: Record) -> Told | None:
    """Conditions that hold a quantity of the tensor against a value."""
    params = parameters(watchpoint)
    found = tuple(compared(name, value, params, record) for name, value in params.items())
    if any(each.hit or bounded(each, record) for each in found):
        return Verdict.FINDING, ErrorBits.NONE, found
    open_ones = {name: value for name, value in params.items() if not is_decided(name, value, record)}
    return (Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE, found) if incomplete(open_ones, record) else None


def is_decided(name: str, value: float, record: Record) -> bool:
    """Tells whether other statistics leave one answer only."""
    return bounded(ParamResult(name, value, hit=False, actual=None), record) is not None


def unmet(params: dict[str, float | bool]) -> tuple[ParamResult, ...]:
    """Parameters of which none was compared."""
    return tuple(ParamResult(name, value, hit=False, actual=None) for name, value in params.items())


def parameters(watchpoint: Watchpoint) -> dict[str, float | bool]:
    """The parameters in definition order, those that cannot be off with their defaults."""
    given = dict(watchpoint.params)
    found: dict[str, float | bool] = {}
    for spec in CONDITIONS[watchpoint.condition].params:
        if spec.name in given:
            found[spec.name] = given[spec.name]
        elif spec.required and spec.default is not None:
            found[spec.name] = spec.default
    return found


def prevented(watchpoint: Watchpoint, record: Record) -> ErrorBits:
    """What keeps the condition from being judged; nothing keeps one on overflow from it but an unreadable tensor."""
    wire, stats = CONDITIONS[watchpoint.condition].wire, record.stats
    if record.error or stats is None:
        return ErrorBits.UNREADABLE
    error = ErrorBits.NONE
    if wire == WIRE_OVERFLOW:
        return error
    if stats.nan and not (wire == WIRE_NOT_CHANGED and parameters(watchpoint)["equal_nan"]):
        error |= ErrorBits.NAN
    if stats.pos_inf or stats.neg_inf:
        error |= ErrorBits.INF
    if wire in CHANGES:
        error |= PREVIOUS[record.previous]
    return error


def kind_of(error: ErrorBits, *, first_step: bool) -> Verdict:
    """What kind of thing it is that a condition was kept from being judged."""
    if error & ErrorBits.SHAPE_CHANGED:
        return Verdict.FINDING
    if error & (ErrorBits.NAN | ErrorBits.INF):
        return Verdict.BLOCKED
    if error == ErrorBits.NO_PREVIOUS and first_step:
        return Verdict.NOT_COMPARABLE
    return Verdict.CANNOT_JUDGE


def compared(name: str, value: float, params: dict[str, float | bool], record: Record) -> ParamResult:
    """A parameter with what was found for it; one that is no inequality supports the others."""
    quantity, _, sign = name.rpartition("_")
    if sign not in INEQUALITIES:
        return ParamResult(name, value, hit=False, actual=None)
    actual = actual_value(quantity, params, record)
    return ParamResult(name, value, actual is not None and INEQUALITIES[sign](actual, value), actual)


def actual_value(quantity: str, params: dict[str, float | bool], record: Record) -> float | None:
    """None where it is not known, or NaN: that never hits."""
    stats = record.stats
    if stats is None:
        return None
    value: float | None = None
    if quantity in NEEDED:
        value = getattr(stats, NEEDED[quantity])
    elif quantity == "zero_percentage":
        value = 100.0 * stats.zero / stats.count if stats.finite else None
    elif stats.minimum is None or stats.maximum is None:
        return None
    elif quantity == "abs_mean_update_ratio" and record.change is not None:
        difference, before = record.change.mean_abs_difference, record.change.mean_abs_previous + params["epsilon"]
        value = difference / before if before else difference * math.inf
    elif quantity == "range_percentage" and bounds(params) in record.ranges:
        value = 100.0 * record.ranges[bounds(params)] / stats.count
    elif quantity == "max_min":
        value = stats.maximum - stats.minimum
    return None if value is None or math.isnan(value) else value


def bounded(param: ParamResult, record: Record) -> bool | None:
    """Tells whether a mean of magnitudes that nobody took surely meets a parameter or surely does not; else None."""
    quantity, _, sign = param.name.rpartition("_")
    stats = record.stats
    if quantity != "abs_mean" or stats is None or stats.abs_mean is not None or not stats.finite:
        return None
    count = max(stats.count, 1)
    peak = None if stats.minimum is None or stats.maximum is None else max(abs(stats.minimum), abs(stats.maximum))
    squares = stats.sum_squares if stats.sum_squares > 0 else None
    low, high = abs(stats.mean or 0.0), math.inf if peak is None else peak
    if squares is not None and peak is not None and count > 1:  # squares add up to at most peak times the magnitudes
        least = squares / (count * peak) if peak else math.inf
        low = max(low, 0.0 if math.isnan(least) else least)
    if squares is not None:
        high = min(high, math.sqrt(squares / count))
    if peak is None and squares is None:
        high = math.nan
    low, high = low * (1 - ROUNDED), high * (1 + ROUNDED)
    holds = INEQUALITIES[sign]
    if holds(low, param.value) and holds(high, param.value):
        return True
    decided = not (math.isnan(low) or math.isnan(high) or holds(low, param.value) or holds(high, param.value))
    return False if decided else None


def bounds(params: dict[str, float | bool]) -> tuple[float, float]:
    """The range that a percentage is about."""
    return params.get("range_start_inclusive", -math.inf), params.get("range_end_inclusive", math.inf)


def incomplete(params: dict[str, float | bool], record: Record) -> bool:
    """Whether a quantity that decides is missing although there are elements: a statistic.csv holds only some."""
    stats = record.stats
    deciding = {quantity for quantity, _, sign in (name.rpartition("_") for name in params) if sign in INEQUALITIES}
    if not deciding or stats is None or stats.count == stats.nan + stats.pos_inf + stats.neg_inf:
        return False
    if deciding - NEEDED.keys() - {"zero_percentage"} and (stats.minimum is None or stats.maximum is None):
        return True
    bounded = "range_start_inclusive" in params or "range_end_inclusive" in params
    if "range_percentage" in deciding and bounded and bounds(params) not in record.ranges:
        return True
    return any(getattr(stats, NEEDED[quantity]) is None for quantity in deciding & NEEDED.keys())
