"""Evaluates one watchpoint on many tensors at once: on which it says something, and what kind of thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Float64, Int8, Int16, Int64, Mask
from tui_debugger.model import ErrorBits, ParamResult, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.records import (
    BEFORE_WORDS,
    CHANGE_KNOWN,
    Bounds,
    Closeness,
    Records,
    RequiredStats,
    State,
)
from tui_debugger.watch.condition_table import (
    BOUND_NAMES,
    EPSILON,
    NOT_FINITE,
    WIRE_CHANGE_TOO_LARGE,
    WIRE_CHANGE_TOO_SMALL,
    WIRE_NOT_CHANGED,
    WIRE_OPERATOR_OVERFLOW,
    WIRE_OVERFLOW,
    Condition,
    Params,
    by_abbr,
)

_Holds = Callable[[Float64, float], Mask]
_HOLDS: Final[Mapping[str, _Holds]] = {
    "gt": lambda actual, value: actual > value,
    "lt": lambda actual, value: actual < value,
    "ge": lambda actual, value: actual >= value,
    "le": lambda actual, value: actual <= value,
}


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
    unmet: tuple[ParamResult, ...]
    """The parameters as they are reported where none was compared."""


@lru_cache(maxsize=4096)
def _plan(condition_id: str, params: Params) -> JudgingPlan:
    condition = by_abbr(condition_id)
    values = {spec.name: spec.default for spec in condition.params if spec.required and spec.default is not None}
    values |= dict(params)
    ordered = tuple((spec.name, values[spec.name]) for spec in condition.params if spec.name in values)
    checks = tuple(
        (quantity, float(value), comparison if comparison in _HOLDS else None)
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
    unmet = tuple(ParamResult(name, value, hit=False, actual=None) for name, value in ordered)
    return JudgingPlan(
        condition, ordered, checks, bounds, closeness, float(values.get("epsilon", EPSILON)), need, unmet
    )


def judging_plan(watchpoint: Watchpoint) -> JudgingPlan:
    """Tells how a watchpoint is judged."""
    return _plan(watchpoint.condition, watchpoint.params)


def needs(watchpoint: Watchpoint) -> RequiredStats:
    """Returns what a record must hold so that this watchpoint can be judged from it."""
    return _plan(watchpoint.condition, watchpoint.params).need


PREVIOUS_BITS: Final[Mapping[str, ErrorBits]] = {
    "none": ErrorBits.NO_PREVIOUS,
    "shape": ErrorBits.SHAPE_CHANGED,
    "unreadable": ErrorBits.UNREADABLE,
    "no value": ErrorBits.NO_VALUE,
}
"""The error that the fate of the previous step (``Record.previous``) is for a comparison."""


PLAIN: Final = {"max": "maximum", "min": "minimum", "mean": "mean", "abs_mean": "abs_mean"}
"""Quantities that are a statistic as it stands, and the field of ``TensorStats``."""

Rows = npt.NDArray[np.integer[Any]]

SILENT: Final = -1
"""Verdict of a row about which there is nothing to report."""

_BEFORE_BITS: Final = np.array([int(PREVIOUS_BITS.get(word, ErrorBits.NONE)) for word in BEFORE_WORDS], np.int16)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The verdicts of a watchpoint on some rows.

    Attributes:
        verdict: ``SILENT`` or a ``Verdict``.
        error: ``ErrorBits`` that kept the condition from being judged.
        compared: whether quantities of the tensor were held against the parameters.
    """

    verdict: Int8
    error: Int16
    compared: Mask

    @property
    def finding(self) -> Int16:
        """The error bits of what makes a tensor a finding (0: the condition itself holds), -1 where there is none."""
        found = (self.verdict == Verdict.FINDING) | (self.verdict == Verdict.BLOCKED)
        return np.where(found, self.error, np.int16(-1)).astype(np.int16)


class ColumnEvaluator:
    """Rows of a table, ready to be judged by any number of watchpoints.

    Rules (MindSpore 1.1 to 2.3, measured on 2.0.0): NaN or Inf anywhere suppresses every other comparison and is
    reported instead, as blocked: the tensor is a finding then, but no hit of the condition; the overflow conditions
    report only whether there is NaN or Inf; an empty tensor and one without numbers never hit;
    ``operator_overflow`` is not decided by values and never hits here.

    Deliberate differences: ``epsilon`` and ``equal_nan`` are used (with ``equal_nan`` a NaN does not prevent the
    comparison); a changed shape is reported, as a finding of the condition also where there is NaN; an Inf that became
    finite counts as changed.
    """

    def __init__(self, records: Records, rows: Rows) -> None:
        """``records`` are made for at least the needs of the watchpoints; rows that are unknown stay silent."""
        self._records = records
        self._rows = rows
        # One gather of what every watchpoint asks; what only some ask is gathered when they do.
        table = self._table = np.take(records.rows, rows, axis=0)
        self.count = len(rows)
        self._broken: Mask = table["state"] == State.UNREADABLE
        self._measured: Mask = (table["state"] == State.MEASURED) & (table["count"] > 0)
        self._nan: Mask = table["nan"] > 0
        self._infinite: Mask = (table["pos_inf"] > 0) | (table["neg_inf"] > 0)
        self._error = np.where(self._nan, np.int16(ErrorBits.NAN), np.int16(0))
        self._error[self._infinite] |= int(ErrorBits.INF)

    def evaluate(self, watchpoint: Watchpoint, first_step: Mask | bool, *, initial: bool = False) -> Evaluated:
        """Judges a watchpoint on the rows.

        Args:
            watchpoint: condition and parameters; its selection is not looked at.
            first_step: whether this is the first dumped step, where nothing can have a previous value; of all rows,
                or of each.
            initial: the tensors hold initial values: only then is ``weight_initialization`` judged, and only it.
        """
        plan = judging_plan(watchpoint)
        wire = plan.condition.wire
        verdict = np.full(self.count, SILENT, np.int8)
        nothing = np.zeros(self.count, np.bool_)
        if not self.count or wire == WIRE_OPERATOR_OVERFLOW or plan.condition.initial_only != initial:
            return Evaluated(verdict, np.zeros(self.count, np.int16), nothing)
        error = self._errors(plan)
        (kept,) = error.nonzero()
        if len(kept):
            verdict[kept] = _verdicts(error[kept], first_step if isinstance(first_step, bool) else first_step[kept])
        open_rows = self._measured & (error == 0)
        if wire == WIRE_OVERFLOW:
            verdict[open_rows & (self._nan | self._infinite)] = Verdict.FINDING
            return Evaluated(verdict, error, nothing)
        if wire == WIRE_NOT_CHANGED:
            column = self._records.close.get(plan.closeness)
            if column is not None:
                verdict[open_rows & (column[self._rows] == 1)] = Verdict.FINDING
            return Evaluated(verdict, error, nothing)
        hit, unknown = self._compare(plan)
        verdict[hit & open_rows] = Verdict.FINDING
        unknown &= open_rows
        verdict[unknown] = Verdict.CANNOT_JUDGE
        error[unknown] = int(ErrorBits.NO_VALUE)
        return Evaluated(verdict, error, open_rows)

    def results(
        self, watchpoint: Watchpoint, first_step: Mask | bool, *, initial: bool = False
    ) -> list[WatchResult | None]:
        """Judges a watchpoint on the rows and gives the details: which parameter hit, by which actual value.

        Args:
            watchpoint: see ``evaluate``.
            first_step: see ``evaluate``.
            initial: see ``evaluate``.

        Returns:
            For each row the outcome, None where there is nothing to report.
        """
        plan, evaluated = judging_plan(watchpoint), self.evaluate(watchpoint, first_step, initial=initial)
        found: list[WatchResult | None] = [None] * self.count
        (reported,) = (evaluated.verdict != SILENT).nonzero()
        if not len(reported):
            return found
        details = self._details(plan, reported[evaluated.compared[reported]])
        columns = (reported, evaluated.verdict[reported], evaluated.error[reported])
        for at, verdict, error in zip(*(each.tolist() for each in columns), strict=True):
            params = details.get(at, plan.unmet)
            found[at] = WatchResult(watchpoint.id, plan.condition.id, Verdict(verdict), ErrorBits(error), params)
        return found

    def _details(self, plan: JudgingPlan, rows: Int64) -> dict[int, tuple[ParamResult, ...]]:
        """Returns the parameters of some rows with what was found for each."""
        if not len(rows):
            return {}
        columns: list[list[ParamResult]] = []
        for (name, value), (quantity, threshold, inequality), unmet in zip(
            plan.params, plan.checks, plan.unmet, strict=True
        ):
            if inequality is None:
                columns.append([unmet] * len(rows))
                continue
            with np.errstate(all="ignore"):
                actual = np.where(self._extremes, self._quantity(quantity, plan), np.nan)[rows]
                hit = _HOLDS[inequality](actual, threshold)
            columns.append(
                [
                    unmet if math.isnan(each) else ParamResult(name, value, holds, each)
                    for each, holds in zip(actual.tolist(), hit.tolist(), strict=True)
                ]
            )
        return dict(zip(rows.tolist(), zip(*columns, strict=True), strict=True))

    def _errors(self, plan: JudgingPlan) -> Int16:
        """Everything that keeps a condition from being judged."""
        if plan.condition.wire == WIRE_OVERFLOW:
            error = np.zeros(self.count, np.int16)
        else:
            error = self._error.copy()
            if plan.condition.wire == WIRE_NOT_CHANGED and plan.closeness[2]:
                error[self._nan] &= ~int(ErrorBits.NAN)
            if plan.need.previous:
                error |= _BEFORE_BITS[self._table["before"]]
            error[~self._measured] = 0
        error[self._broken] = int(ErrorBits.UNREADABLE)
        return error

    def _compare(self, plan: JudgingPlan) -> tuple[Mask, Mask]:
        """Conditions that hold a quantity against a value: where one holds, and where a quantity is not known."""
        hit = np.zeros(self.count, np.bool_)
        checks = [(quantity, value, holds) for quantity, value, holds in plan.checks if holds is not None]
        if not checks:
            return hit, hit
        known = self._extremes.copy()
        for bounds in plan.need.ranges:
            column = self._records.ranges.get(bounds)
            known &= column[self._rows] >= 0 if column is not None else np.False_
        with np.errstate(all="ignore"):
            for quantity, value, holds in checks:
                hit |= _HOLDS[holds](self._quantity(quantity, plan), value)  # NaN never holds
                if quantity in PLAIN:
                    known &= ~np.isnan(self._table[PLAIN[quantity]])
        hit &= self._extremes
        return hit, self._some_finite & ~known & ~hit

    @cached_property
    def _extremes(self) -> Mask:
        known: Mask = ~(np.isnan(self._table["minimum"]) | np.isnan(self._table["maximum"]))
        return known

    @cached_property
    def _some_finite(self) -> Mask:
        table = self._table
        some: Mask = table["count"] - table["nan"] - table["pos_inf"] - table["neg_inf"] > 0
        return some

    def _quantity(self, name: str, plan: JudgingPlan) -> Float64:
        """The actual values behind a parameter, NaN where unknown."""
        table = self._table
        result: Float64
        if name in PLAIN:
            result = table[PLAIN[name]]
            return result
        result = np.full(self.count, np.nan)
        if name == "abs_mean_update_ratio":
            ratio = table["difference"] / (table["reference"] + plan.epsilon)
            result = np.where((table["asked"] & CHANGE_KNOWN) != 0, ratio, np.nan)
        elif name == "range_percentage":
            column = self._records.ranges.get(plan.bounds)
            if column is not None:
                inside = column[self._rows]
                result = np.where(inside >= 0, 100.0 * inside / table["count"], np.nan)
        elif name == "max_min":
            result = table["maximum"] - table["minimum"]
        elif name == "zero_percentage":
            result = 100.0 * table["zero"] / table["count"]
        return result


def _verdicts(error: Int16, first_step: Mask | bool) -> Int8:
    """Returns what kind of thing the error bits of rows are."""
    verdict = np.full(len(error), Verdict.CANNOT_JUDGE, np.int8)
    verdict[(error == int(ErrorBits.NO_PREVIOUS)) & first_step] = Verdict.NOT_COMPARABLE
    verdict[(error & int(NOT_FINITE)) != 0] = Verdict.BLOCKED
    verdict[(error & int(ErrorBits.SHAPE_CHANGED)) != 0] = Verdict.FINDING
    return verdict
