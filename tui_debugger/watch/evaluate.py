"""Evaluates one watchpoint on many tensors at once.

On a tensor with NaN or Inf an expression over its statistics is blocked, like other conditions, unless it names
``nan``, ``inf``, ``pos_inf`` or ``neg_inf``: its other quantities are then over the finite elements. An unknown
expression means "cannot judge", or "not comparable" without a previous step at the first step. Statistics of the
previous step are used with any shape, and with NaN in that tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Float64, Int8, Int16, Int64, Integers, Mask
from tui_debugger.model import (
    CATEGORY_WORDS,
    AtLeast,
    Category,
    ErrorBits,
    ParamResult,
    Verdict,
    Watchpoint,
    WatchResult,
)
from tui_debugger.stats.fields import QUANTITIES
from tui_debugger.stats.records import (
    BEFORE_WORDS,
    CHANGE_KNOWN,
    Bounds,
    Closeness,
    Records,
    RecordState,
    RequiredStats,
)
from tui_debugger.watch.condition_table import (
    BOUND_NAMES,
    EPSILON,
    EXPRESSION,
    NOT_FINITE,
    Condition,
    Params,
    by_abbr,
)
from tui_debugger.watch.expression import (
    TEXT_FACTS,
    Arithmetic,
    ComparisonChain,
    Expression,
    Fact,
    FunctionCall,
    Joined,
    Named,
    Negative,
    Node,
    Not,
    Number,
    Quantity,
    Text,
    name_text,
    parse,
)

_Holds = Callable[[Float64, float], Mask]
_HOLDS: Final[Mapping[str, _Holds]] = {
    "gt": np.greater,
    "lt": np.less,
    "ge": np.greater_equal,
    "le": np.less_equal,
}


@dataclass(frozen=True, slots=True)
class JudgingPlan:
    """A watchpoint's condition with its defaults filled in: computed once, used for every tensor."""

    condition: Condition
    params: Params
    checks: tuple[tuple[str, float, str | None], ...]
    """(quantity, threshold, inequality) for each of ``params``; without an inequality it never hits by itself."""
    bounds: Bounds
    closeness: Closeness
    epsilon: float
    need: RequiredStats
    unmet: tuple[ParamResult, ...]
    """The parameters in a report where nothing was compared."""
    expression: Expression | None = None

    @property
    def beyond_values(self) -> bool:
        """Tells whether equal values may be judged differently: by the previous step, or by facts of the node."""
        of_nodes = self.expression is not None and self.expression.of_nodes
        return self.need.previous or self.need.previous_stats or of_nodes


@lru_cache(maxsize=4096)
def _plan(condition_id: str, params: Params) -> JudgingPlan:
    condition = by_abbr(condition_id)
    values = {spec.name: spec.default for spec in condition.params if spec.required and spec.default is not None}
    values |= dict(params)
    ordered = tuple((spec.name, values[spec.name]) for spec in condition.params if spec.name in values)
    expression = parse(str(values[EXPRESSION])) if EXPRESSION in values else None
    checks = tuple(
        (quantity, float(value), comparison if comparison in _HOLDS else None)
        for name, value in ordered
        if name != EXPRESSION
        for quantity, _, comparison in (name.rpartition("_"),)
    )
    bounds = (float(values.get(BOUND_NAMES[0], -math.inf)), float(values.get(BOUND_NAMES[1], math.inf)))
    closeness = (float(values.get("rtol", 1e-5)), float(values.get("atol", 1e-8)), bool(values.get("equal_nan", False)))
    # In MindSpore's backend a percentage without any bound never hits: it has no range counter then.
    bounded = any(name in values for name in BOUND_NAMES)
    need = RequiredStats(
        ranges=frozenset({bounds} if bounded and any(what == "range_percentage" for what, _, _ in checks) else ()),
        change=condition.is_change_ratio,
        closeness=frozenset({closeness} if condition.is_not_changed else ()),
        previous_stats=expression is not None and expression.previous,
    )
    unmet = tuple(ParamResult(name, value, hit=False, actual=None) for name, value in ordered)
    epsilon = float(values.get("epsilon", EPSILON))
    return JudgingPlan(condition, ordered, checks, bounds, closeness, epsilon, need, unmet, expression)


def judging_plan(watchpoint: Watchpoint) -> JudgingPlan:
    return _plan(watchpoint.condition, watchpoint.params)


def needs(watchpoint: Watchpoint) -> RequiredStats:
    return _plan(watchpoint.condition, watchpoint.params).need


PREVIOUS_BITS: Final[Mapping[str, ErrorBits]] = {
    "none": ErrorBits.NO_PREVIOUS,
    "shape": ErrorBits.SHAPE_CHANGED,
    "unreadable": ErrorBits.UNREADABLE,
    "no value": ErrorBits.NO_VALUE,
}
"""The error bit for each state of the previous step (``Record.previous``)."""


PLAIN: Final = {"max": "maximum", "min": "minimum", "mean": "mean", "abs_mean": "abs_mean"}
"""Quantities that are a field of ``TensorStats`` unchanged."""


_ROUNDED: Final = 0.01
"""Relative error of statistics that were recorded in the element type of the tensor, such as bfloat16."""
SILENT: Final = -1
"""Verdict of a row without anything to report."""

_BEFORE_BITS: Final = np.array([int(PREVIOUS_BITS.get(word, ErrorBits.NONE)) for word in BEFORE_WORDS], np.int16)


_IS_FINDING: Final = np.array([int(each) in (Verdict.FINDING, Verdict.BLOCKED) for each in (*Verdict, SILENT)])
"""By verdict; the last entry is for ``SILENT`` (-1)."""
_NO_FINDING: Final = np.int16(-1)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The verdicts of a watchpoint on some rows: ``SILENT`` or a ``Verdict``.

    ``error`` bits kept the condition from being judged; ``compared`` marks rows with a comparison of quantities.
    """

    verdict: Int8
    error: Int16
    compared: Mask

    @property
    def finding(self) -> Int16:
        """The error bits of a finding (0: the condition itself holds), -1 without a finding."""
        return np.where(_IS_FINDING[self.verdict], self.error, _NO_FINDING)


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts about the tensors of some rows that no record holds; -1, None or an empty text where unknown."""

    step: Int64
    rank: int | None
    name: Callable[[], Sequence[str]]
    type: Callable[[], Sequence[str]]
    category: Callable[[], Int64]

    @classmethod
    def unknown(cls, count: int) -> Facts:
        nothing = np.full(count, -1, np.int64)
        return cls(nothing, None, lambda: [""] * count, lambda: [""] * count, lambda: nothing)


class ColumnEvaluator:
    """Rows of a table, ready to be judged by any number of watchpoints.

    Rules (MindSpore 1.1 to 2.3, measured on 2.0.0): NaN or Inf suppresses every other comparison and is reported as
    blocked: the tensor is a finding, but no hit of the condition. Overflow conditions only report NaN or Inf. A tensor
    without elements or numbers never hits. ``operator_overflow`` hits where the device recorded an overflow. Deliberate
    differences: ``epsilon`` and ``equal_nan`` are used (with ``equal_nan`` a NaN does not prevent the comparison); a
    changed shape is a finding of the condition, even with NaN; an Inf that became finite counts as changed.
    """

    def __init__(
        self,
        records: Records,
        rows: Integers,
        facts: Callable[[], Facts] | None = None,
        overflowed: Mask | None = None,
    ) -> None:
        """Prepares rows of ``records``, which must answer the watchpoints' needs; unknown rows stay silent.

        ``facts`` is called when an expression needs it. ``overflowed`` marks rows written by an operator that
        overflowed on the device; None: the device recorded nothing.
        """
        self._facts = facts
        self._overflowed = overflowed
        self._records = records
        self._rows = rows
        # One gather for all watchpoints; other columns are gathered on demand. All rows together need no copy.
        everything = len(rows) >= len(records) and np.array_equal(rows, np.arange(len(records)))
        table = self._table = records.rows if everything else np.take(records.rows, rows, axis=0)
        self.count = len(rows)
        self._broken: Mask = table["state"] == RecordState.UNREADABLE
        self._measured: Mask = (table["state"] == RecordState.MEASURED) & (table["count"] > 0)
        self._nan: Mask = table["nan"] > 0
        self._infinite: Mask = (table["pos_inf"] > 0) | (table["neg_inf"] > 0)
        self._error = np.where(self._nan, np.int16(ErrorBits.NAN), np.int16(0))
        self._error[self._infinite] |= int(ErrorBits.INF)

    def evaluate(self, watchpoint: Watchpoint, first_step: Mask | bool, *, initial: bool = False) -> Evaluated:
        """Judges a watchpoint on the rows; its selection is ignored.

        ``first_step`` marks rows of the first dumped step, where nothing has a previous value. With ``initial`` the
        tensors hold initial values: only ``weight_initialization`` is judged then, and only then.
        """
        plan = judging_plan(watchpoint)
        condition = plan.condition
        verdict = np.full(self.count, SILENT, np.int8)
        nothing = np.zeros(self.count, np.bool_)
        if plan.expression is not None and self.count and not initial:
            return self._evaluate_expression(plan.expression, first_step)
        if self.count and condition.is_device_overflow and self._overflowed is not None and not initial:
            verdict[self._overflowed & (self._table["state"] != RecordState.UNKNOWN)] = Verdict.FINDING
        if not self.count or condition.is_device_overflow or condition.initial_only != initial:
            return Evaluated(verdict, np.zeros(self.count, np.int16), nothing)
        error = self._errors(plan)
        (kept,) = error.nonzero()
        if len(kept):
            verdict[kept] = _verdicts(error[kept], first_step if isinstance(first_step, bool) else first_step[kept])
        open_rows = self._measured & (error == 0)
        if condition.is_overflow:
            verdict[open_rows & (self._nan | self._infinite)] = Verdict.FINDING
            unknown = open_rows & ~(self._nan | self._infinite)
            unknown &= (self._table["at_least"] & int(AtLeast.NAN | AtLeast.INF)) != 0
            verdict[unknown] = Verdict.CANNOT_JUDGE
            error[unknown] = int(ErrorBits.NO_VALUE)
            return Evaluated(verdict, error, nothing)
        if condition.is_not_changed:
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

    def _evaluate_expression(self, expression: Expression, first_step: Mask | bool) -> Evaluated:
        table = self._table
        numbers = table["state"] == RecordState.MEASURED  # empty tensors, too: an expression may test for them
        error = np.zeros(self.count, np.int16)
        if not expression.of_not_finite:
            error[numbers] = self._error[numbers]
        error[self._broken] = int(ErrorBits.UNREADABLE)
        verdict = np.full(self.count, SILENT, np.int8)
        open_rows: Mask = numbers & (error == 0)
        with np.errstate(all="ignore"):
            outcome = self._expressions.holds(expression.tree)
        verdict[open_rows & outcome.true] = Verdict.FINDING
        unknown = open_rows & outcome.unknown & ~self._expressions.empty
        error[unknown] = self._expressions.missing(expression)[unknown]
        (kept,) = (error != 0).nonzero()
        verdict[kept] = _verdicts(error[kept], first_step if isinstance(first_step, bool) else first_step[kept])
        return Evaluated(verdict, error, open_rows & ~unknown)

    @cached_property
    def _expressions(self) -> _ExpressionColumns:
        facts = self._facts() if self._facts is not None else Facts.unknown(self.count)
        return _ExpressionColumns(self._records, self._rows, self._table, facts)

    def results(
        self, watchpoint: Watchpoint, first_step: Mask | bool, *, initial: bool = False
    ) -> list[WatchResult | None]:
        """Returns for each row the result with the parameters' actual values, None for nothing to report."""
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
        if not len(rows):
            return {}
        if plan.expression is not None:
            return self._expression_details(plan.expression, rows)
        columns: list[list[ParamResult]] = []
        for (name, value), (quantity, threshold, inequality), unmet in zip(
            plan.params, plan.checks, plan.unmet, strict=True
        ):
            if inequality is None:
                columns.append([unmet] * len(rows))
                continue
            with np.errstate(all="ignore"):
                there = self._some_finite if quantity in PLAIN or quantity == "zero_percentage" else self._extremes
                actual = np.where(there, self._quantity(quantity, plan), np.nan)[rows]
                hit = _HOLDS[inequality](actual, threshold)
            columns.append(
                [
                    unmet if math.isnan(each) else ParamResult(name, value, holds, each)
                    for each, holds in zip(actual.tolist(), hit.tolist(), strict=True)
                ]
            )
        return dict(zip(rows.tolist(), zip(*columns, strict=True), strict=True))

    def _expression_details(self, expression: Expression, rows: Int64) -> dict[int, tuple[ParamResult, ...]]:
        columns = [self._expressions.values(name, rows) for name in expression.names]
        names = [name_text(name) for name in expression.names]
        return {
            row: (
                ParamResult(
                    EXPRESSION,
                    expression.text,
                    hit=True,
                    actual=None,
                    quantities=tuple(zip(names, (column[at] for column in columns), strict=True)),
                ),
            )
            for at, row in enumerate(rows.tolist())
        }

    def _errors(self, plan: JudgingPlan) -> Int16:
        """Returns everything that keeps a condition from being judged."""
        if plan.condition.is_overflow:
            error = np.zeros(self.count, np.int16)
        else:
            error = self._error.copy()
            if plan.condition.is_not_changed and plan.closeness[2]:
                error[self._nan] &= ~int(ErrorBits.NAN)
            if plan.need.previous:
                error |= _BEFORE_BITS[self._table["before"]]
            error[~self._measured] = 0
        error[self._broken] = int(ErrorBits.UNREADABLE)
        return error

    def _compare(self, plan: JudgingPlan) -> tuple[Mask, Mask]:
        """Returns where any comparison with a threshold holds, and where a needed quantity is unknown."""
        hit = np.zeros(self.count, np.bool_)
        checks = [(quantity, value, holds) for quantity, value, holds in plan.checks if holds is not None]
        if not checks:
            return hit, hit
        known = np.ones(self.count, np.bool_)
        for bounds in plan.need.ranges:
            column = self._records.ranges.get(bounds)
            known &= column[self._rows] >= 0 if column is not None else np.False_
        with np.errstate(all="ignore"):
            for quantity, value, holds in checks:
                found = _HOLDS[holds](self._quantity(quantity, plan), value)  # NaN never holds
                if quantity == "abs_mean":
                    sure, decided = self._between(self._abs_mean_bounds, _HOLDS[holds], value)
                    missing = np.isnan(self._table["abs_mean"])
                    found |= missing & sure
                    known &= ~missing | decided
                elif quantity in PLAIN:
                    known &= ~np.isnan(self._table[PLAIN[quantity]])
                elif quantity == "zero_percentage":
                    known &= self._counted | ((holds == "ge") & (self._most_zeros < value))
                else:
                    found &= self._extremes
                    known &= self._extremes
                hit |= found
        hit &= self._some_finite
        return hit, self._some_finite & ~known & ~hit

    @cached_property
    def _extremes(self) -> Mask:
        known: Mask = ~(np.isnan(self._table["minimum"]) | np.isnan(self._table["maximum"]))
        return known

    @cached_property
    def _some_finite(self) -> Mask:
        some: Mask = _finite(self._table) > 0
        return some

    @staticmethod
    def _between(bounds: tuple[Float64, Float64], holds: _Holds, value: float) -> tuple[Mask, Mask]:
        """Tells where a quantity between two bounds surely meets a condition, and where the bounds decide."""
        low, high = bounds
        both, neither = holds(low, value) & holds(high, value), ~(holds(low, value) | holds(high, value))
        decided: Mask = both | (neither & ~np.isnan(low) & ~np.isnan(high))
        return both, decided

    @property
    def _abs_mean_bounds(self) -> tuple[Float64, Float64]:
        """The bounds that other statistics imply for a mean of magnitudes that was not recorded."""
        table = self._table
        peak = np.maximum(np.abs(table["minimum"]), np.abs(table["maximum"]))
        squares = np.where(table["sum_squares"] > 0, table["sum_squares"], np.nan)  # 0: not recorded
        count = np.maximum(table["count"], 1)
        # The sum of squares is at most the greatest magnitude times the sum of magnitudes. A count of 1 may be a lower
        # bound, so it gives no bound of the mean.
        least = np.where(count > 1, squares / (count * peak), 0.0)
        low = np.fmax(np.abs(table["mean"]), np.fmax(least, 0.0)) * (1 - _ROUNDED)
        high = np.fmin(peak, np.sqrt(squares / count)) * (1 + _ROUNDED)
        return low, high

    @cached_property
    def _counted(self) -> Mask:
        """Tells where zeros were counted: recorders that do not count them write 0, and the counts do not add up."""
        return _adds_up(self._table)

    @property
    def _most_zeros(self) -> Float64:
        """The greatest possible percentage of zeros: non-zero extremes are elements, and a mean or norm needs one."""
        table = self._table
        least, greatest = table["minimum"], table["maximum"]
        others = ((least != 0) & ~np.isnan(least)).astype(np.int64) + ((greatest != 0) & ~np.isnan(greatest))
        some = (table["mean"] != 0) & ~np.isnan(table["mean"])
        some |= (table["abs_mean"] > 0) | (table["sum_squares"] > 0)
        others = np.maximum(others, some)
        most: Float64 = 100.0 * (1 - others / np.maximum(table["count"], 1))
        # Where the number of elements is not known, a non-zero element may be one of very many.
        vague = (others > table["count"]) | ((table["at_least"] & int(AtLeast.COUNT)) != 0)
        most[vague] = np.where(others[vague] > 0, np.nextafter(100.0, 0.0), 100.0)
        return most

    def _quantity(self, name: str, plan: JudgingPlan) -> Float64:
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
            result = np.where(self._counted, 100.0 * table["zero"] / table["count"], np.nan)
        return result


def _finite(table: Array) -> Int64:
    found: Int64 = table["count"] - table["nan"] - table["pos_inf"] - table["neg_inf"]
    return found


def _adds_up(table: Array) -> Mask:
    """Tells where zeros were counted: recorders that do not count them write 0."""
    counted: Mask = table["zero"] + table["negative"] + table["positive"] == _finite(table)
    return counted


def _verdicts(error: Int16, first_step: Mask | bool) -> Int8:
    verdict = np.full(len(error), Verdict.CANNOT_JUDGE, np.int8)
    verdict[(error == int(ErrorBits.NO_PREVIOUS)) & first_step] = Verdict.NOT_COMPARABLE
    verdict[(error & int(NOT_FINITE)) != 0] = Verdict.BLOCKED
    verdict[(error & int(ErrorBits.SHAPE_CHANGED)) != 0] = Verdict.FINDING
    return verdict


@dataclass(frozen=True, eq=False)
class _ConditionOutcome:
    """The outcome of a condition on each row: true, false, or unknown (neither)."""

    true: Mask
    false: Mask

    @property
    def unknown(self) -> Mask:
        return ~(self.true | self.false)

    def negated(self) -> _ConditionOutcome:
        return _ConditionOutcome(self.false, self.true)


def _both(one: _ConditionOutcome, other: _ConditionOutcome) -> _ConditionOutcome:
    return _ConditionOutcome(one.true & other.true, one.false | other.false)


_COMPARED: Final[Mapping[str, Callable[[Float64, Float64], Mask]]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_CALCULATED: Final[Mapping[str, Callable[[Float64, Float64], Float64]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}
_CALLED: Final[Mapping[str, Callable[[Float64], Float64]]] = {"abs": np.abs, "sqrt": np.sqrt, "log10": np.log10}
_EXTREME: Final[Mapping[str, Callable[[Float64, Float64], Float64]]] = {"min": np.minimum, "max": np.maximum}
"""NaN, which stands for unknown, propagates through all of them."""
_LOWER_BOUNDS: Final[Mapping[str, AtLeast]] = {
    **dict.fromkeys(("count", "zero", "negative", "positive"), AtLeast.COUNT),
    "nan": AtLeast.NAN,
    **dict.fromkeys(("inf", "pos_inf", "neg_inf"), AtLeast.INF),
}
"""Count quantities, and the bits of ``at_least`` that mark them as lower bounds."""
_TURNED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def _count(name: str, table: Array) -> Float64:
    found: Float64 = (table["pos_inf"] + table["neg_inf"] if name == "inf" else table[name]).astype(np.float64)
    return found


_SQUARED: Final = frozenset({"norm", "std", "variance", "sum_squares"})
"""Quantities that are Inf when finite elements exceed 1e154, because float64 cannot hold their squares."""
_COUNTED: Final = frozenset({"zero", "zero_percentage", "negative", "positive"})
"""Quantities from counts of finite elements."""


class _ExpressionColumns:
    """The values of names in expressions, as columns in which NaN stands for unknown."""

    def __init__(self, records: Records, rows: Integers, table: Array, facts: Facts) -> None:
        self._records = records
        self._rows = rows
        self._table = table
        self._facts = facts
        self._count = len(rows)

    @cached_property
    def empty(self) -> Mask:
        """Tensors without elements; a tensor whose shape has elements is not empty even if none were counted."""
        nothing: Mask = ~(self._number_fact("size") > 0) & (self._table["count"] == 0)
        return nothing

    @cached_property
    def _previous(self) -> Array | None:
        column = self._records.previous_stats
        return None if column is None else np.take(column, self._rows)

    @cached_property
    def _has_previous(self) -> Mask:
        if self._previous is None:
            return np.zeros(self._count, np.bool_)
        there: Mask = self._previous["before"] == BEFORE_WORDS.index("ok")
        return there

    def missing(self, expression: Expression) -> Int16:
        """Returns why an expression is unknown: no previous step, or no value."""
        reason = np.full(self._count, int(ErrorBits.NO_VALUE), np.int16)
        if expression.previous:
            before = np.zeros(self._count, np.int8) if self._previous is None else self._previous["before"]
            bits = _BEFORE_BITS[np.maximum(before, 0)]
            reason = np.where(bits != 0, bits, reason)
        return reason

    def holds(self, node: Node) -> _ConditionOutcome:  # noqa: PLR0911 - one for each kind of node
        match node:
            case Not(of):
                return self.holds(of).negated()
            case Joined("and", parts):
                return reduce(_both, map(self.holds, parts))
            case Joined(_, parts):
                return reduce(_both, (self.holds(each).negated() for each in parts)).negated()
            case ComparisonChain(Text(text), ((sign, Fact(name)),)) | ComparisonChain(
                Fact(name), ((sign, Text(text)),)
            ):
                equal = self._is(name, text)
                return equal if sign == "==" else equal.negated()
            case ComparisonChain(Quantity(name, previous), ((sign, Number(value)),)) if name in _LOWER_BOUNDS:
                return self._count_link(name, sign, value, previous=previous)
            case ComparisonChain(Number(value), ((sign, Quantity(name, previous)),)) if name in _LOWER_BOUNDS:
                return self._count_link(name, _TURNED[sign], value, previous=previous)
            case ComparisonChain(first, rest):
                numbers = [self.number(first), *(self.number(each) for _, each in rest)]
                links = [
                    self._link(sign, left, right)
                    for (sign, _), left, right in zip(rest, numbers[:-1], numbers[1:], strict=True)
                ]
                return reduce(_both, links)
            case _:
                raise TypeError(node)

    def _count_link(self, name: str, sign: str, value: float, *, previous: bool) -> _ConditionOutcome:
        """Compares a count with a number: a lower bound can prove that the count is greater."""
        known = self.number(Quantity(name, previous))
        outcome = self._link(sign, known, np.full(self._count, value))
        table = self._previous if previous else self._table
        if table is None:
            return outcome
        there = self._has_previous if previous else np.ones(self._count, np.bool_)
        beyond = np.greater_equal if sign in {">=", "<"} else np.greater
        above = there & np.isnan(known) & beyond(_count(QUANTITIES[name].name, table), value)
        if sign in {">", ">=", "!="}:
            return _ConditionOutcome(outcome.true | above, outcome.false)
        return _ConditionOutcome(outcome.true, outcome.false | above)

    def _link(self, sign: str, left: Float64, right: Float64) -> _ConditionOutcome:
        known = ~(np.isnan(left) | np.isnan(right))
        holds = _COMPARED[sign](left, right)
        return _ConditionOutcome(holds & known, ~holds & known)

    def number(self, node: Node) -> Float64:  # noqa: PLR0911 - one for each kind of node
        match node:
            case Number(value):
                return np.full(self._count, value)
            case Quantity(name, previous):
                return self._of_previous(name) if previous else self._quantity(name, self._table)
            case Fact(name):
                return self._number_fact(name)
            case Negative(of):
                return -self.number(of)
            case Arithmetic(first, rest):
                result = self.number(first)
                for sign, each in rest:
                    result = _CALCULATED[sign](result, self.number(each))
                return result
            case FunctionCall(function, arguments):
                if function in _CALLED:
                    return _CALLED[function](self.number(arguments[0]))
                return reduce(_EXTREME[function], map(self.number, arguments))
            case _:
                raise TypeError(node)

    def _of_previous(self, name: str) -> Float64:
        if self._previous is None:
            return np.full(self._count, np.nan)
        before = np.where(self._has_previous, self._quantity(name, self._previous), np.nan)
        if name in _SQUARED:  # an overflowed statistic is of finite elements: two of them are not equal
            before[np.isposinf(before)] = np.nan
        return before

    def _quantity(self, name: str, table: Array) -> Float64:
        field = QUANTITIES[name]
        result: Float64
        if field.name == "count":
            result = np.where((table["count"] > 0) | self.empty, table["count"], np.nan)
        elif field.name == "inf":
            result = _count("inf", table)
        elif field.name == "zero_percentage":
            result = 100.0 * table["zero"] / table["count"]
        elif field.name == "std":
            result = np.sqrt(table["variance"])
        elif field.name == "norm":
            squares = table["sum_squares"]
            zeros = (table["minimum"] == 0) & (table["maximum"] == 0)
            result = np.where((_finite(table) > 0) & ((squares != 0) | zeros), np.sqrt(squares), np.nan)
        else:
            result = table[field.name].astype(np.float64)
        if field.name in _COUNTED:
            # A recorder that counts only some kinds writes 0 for the others; then the counts do not add up.
            result = np.where(_adds_up(table), result, np.nan)
        bounds = _LOWER_BOUNDS.get(name, AtLeast.NONE)
        if bounds:
            result = np.where(table["at_least"] & int(bounds), np.nan, result)
        return result

    def _number_fact(self, name: str) -> Float64:
        if name == "step":
            return np.where(self._facts.step >= 0, self._facts.step, np.nan)
        if name == "rank":
            return np.full(self._count, np.nan if self._facts.rank is None else float(self._facts.rank))
        shapes = [each.shape for each in self._records.metas]
        of = [float(math.prod(shape) if name == "size" else len(shape)) for shape in shapes]
        found: Float64 = np.array([*of, np.nan])[self._table["meta"]]
        return found

    def _texts(self, name: str) -> Sequence[str]:
        """Returns a fact as text, empty where it is not known."""
        if name == "dtype":
            types = [*(each.dtype for each in self._records.metas), ""]
            return [types[number] for number in self._table["meta"].tolist()]
        if name == "category":
            words = [*(each.name.lower() for each in Category), ""]
            return [words[number] for number in self._facts.category().tolist()]
        return self._facts.name() if name == "name" else self._facts.type()

    def _is(self, name: str, text: str) -> _ConditionOutcome:
        """Tells where a fact equals a text; types ignore case, and some words name several categories."""
        found = self._texts(name)
        if name == "category":
            meant = {each.name.lower() for each in CATEGORY_WORDS[text]}
        elif name == "type":
            meant, found = {text.casefold()}, [each.casefold() for each in found]
        else:
            meant = {text}
        known = np.array([bool(each) for each in found], np.bool_)
        equal = np.array([each in meant for each in found], np.bool_)
        return _ConditionOutcome(equal & known, ~equal & known)

    def values(self, name: Named, rows: Int64) -> list[float | str | None]:
        if isinstance(name, Fact) and name.name in TEXT_FACTS:
            texts = self._texts(name.name)
            return [texts[row] or None for row in rows.tolist()]
        with np.errstate(all="ignore"):
            numbers = self.number(name)[rows]
        return [None if math.isnan(each) else each for each in numbers.tolist()]
