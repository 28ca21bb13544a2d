"""The conditions of watchpoints, and checks of arguments, by MindInsight's rules."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from tui_debugger.errors import BadWatchpointError, DebuggerParamTypeError, DebuggerParamValueError
from tui_debugger.watch.condition_table import CONDITIONS, EXPRESSION, IN_A_ROW, Condition, validate
from tui_debugger.watch.expression import parse

__all__ = [
    "ConditionBase",
    "ExpressionCondition",
    "OperatorOverflowCondition",
    "TableCondition",
    "TensorAllZeroCondition",
    "TensorChangeAboveThresholdCondition",
    "TensorChangeBelowThresholdCondition",
    "TensorInitializationCondition",
    "TensorOverflowCondition",
    "TensorRangeCondition",
    "TensorTooLargeCondition",
    "TensorTooSmallCondition",
    "TensorUnchangedCondition",
    "required",
]


T = TypeVar("T")

LEAST_MB, MOST_MB = 2 * 1024, 2**31 - 1

Numbers = int | list[int] | set[int] | None
"""Iterations or ranks: one number, several, or None for all."""


def checked(value: object, name: str, kind: type[T], text: str) -> T:
    if isinstance(value, kind):
        return value
    raise wrong_type(value, name, text)


def wrong_type(value: object, name: str, text: str) -> DebuggerParamTypeError:
    found = type(value).__name__
    listed = "list" in text and isinstance(value, Iterable) and not isinstance(value, str | bytes)
    hint = f"list(...) makes a list of a {found}" if listed else f"pass {text}"
    return DebuggerParamTypeError(f"{name} should be {text}, not {found}", where=repr(value)[:200], hint=hint)


def number(value: object, name: str) -> float:
    """Returns a threshold as float; DebuggerParamTypeError: no number, DebuggerParamValueError: NaN or too large."""
    if not isinstance(value, Real):  # NumPy's numbers are registered as such; so is bool, a kind of int
        raise wrong_type(value, name, "a number")
    try:
        converted = float(value)
    except OverflowError:
        raise DebuggerParamValueError(f"{name} is too large for a float", hint="pass a smaller number") from None
    if math.isnan(converted):
        raise DebuggerParamValueError(f"{name} is NaN: no comparison with it ever holds", hint="pass a number")
    return converted


def numbers(value: Numbers, name: str, there: Collection[int], *, strict: bool = True) -> list[int]:
    """Returns iterations or ranks as a list, in the order given.

    A number not in ``there`` raises DebuggerParamValueError, or is dropped if not ``strict``; no ``there``: all stay.
    """
    if value is None:
        return list(there)
    chosen: list[int] = []
    given: list[object] = list(value) if isinstance(value, list | set) else [value]
    for each in given:
        if not isinstance(each, Integral):
            raise wrong_type(each, name, "an int, a list of ints, or None")
        if not there or int(each) in there:
            chosen.append(int(each))
        elif strict:
            raise DebuggerParamValueError(
                f"{name} has no {each}", where=f"{name}={value!r}", hint=f"there is {list(there)}"
            )
    return chosen


def slot_numbers(value: list[int] | None) -> list[int] | None:
    if value is None:
        return None
    given: list[object] = list(checked(value, "slots", list, "a list of ints or None"))
    for each in given:
        if not isinstance(each, Integral):
            raise wrong_type(each, "slots", "a list of ints or None")
    return value


def memory_limit(value: object) -> int | None:
    """Returns a limit in MB that MindInsight accepts, or None; 0 means no limit there."""
    if value is None:
        return None
    limit = checked(value, "mem_limit", int, "an int or None")
    if limit and not LEAST_MB <= limit <= MOST_MB:
        raise DebuggerParamValueError(f"mem_limit is {limit} MB", hint=f"it may be None, or {LEAST_MB} to {MOST_MB}")
    return limit


class ConditionBase:
    """The condition of a watchpoint. With several parameters, each that holds makes a hit.

    NaN or Inf prevents every comparison except ``TensorOverflowCondition``: the tensor gets an error code instead.

    Examples:
        >>> from tui_debugger import TensorTooLargeCondition
        >>> condition = TensorTooLargeCondition(abs_mean_gt=0.5, max_gt=10)
        >>> condition.name, condition.condition_id, condition.param_dict
        ('TensorTooLarge', 15, {'abs_mean_gt': 0.5, 'max_gt': 10.0})
    """

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def condition_id(self) -> int:
        """Number of the condition on MindInsight's wire."""
        raise NotImplementedError

    @property
    def param_dict(self) -> Mapping[str, float | str]:
        return {}

    @property
    def param_names(self) -> list[str]:
        """All parameters of the condition, in wire order."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(dict(self.param_dict))


class TableCondition(ConditionBase):
    """A condition of the condition table; ``row`` is its row there."""

    row: ClassVar[Condition]

    def __init__(self, **values: float | None) -> None:
        given = {name: number(value, name) for name, value in values.items() if value is not None}
        self._params: dict[str, float | str] = {
            spec.name: given[spec.name] for spec in self.row.params if spec.name in given
        }

    @property
    def name(self) -> str:
        return type(self).__name__.removesuffix("Condition")

    @property
    def condition_id(self) -> int:
        return self.row.wire

    @property
    def param_dict(self) -> dict[str, float | str]:
        return dict(self._params)

    @property
    def param_names(self) -> list[str]:
        return [spec.name for spec in self.row.params if spec.name != IN_A_ROW]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._params.items())})"

    def demand_any(self) -> None:
        deciding = [spec.name for spec in self.row.params if spec.check]
        if not any(name in self._params for name in deciding):
            raise DebuggerParamValueError(
                f"{type(self).__name__} needs something to compare with", hint="set one of " + ", ".join(deciding)
            )


def required(value: Any, name: str) -> float:
    if value is None:
        raise wrong_type(value, name, "a number")
    return number(value, name)


class TensorTooLargeCondition(TableCondition):
    """Hits when the mean magnitude, largest element, smallest element or mean is above its threshold (one is required).

    Examples:
        >>> from tui_debugger import TensorTooLargeCondition
        >>> print(TensorTooLargeCondition(abs_mean_gt=0.0).name)
        TensorTooLarge
    """

    row = CONDITIONS["tensor_too_large"]

    def __init__(
        self,
        abs_mean_gt: float | None = None,
        max_gt: float | None = None,
        min_gt: float | None = None,
        mean_gt: float | None = None,
    ) -> None:
        super().__init__(abs_mean_gt=abs_mean_gt, max_gt=max_gt, min_gt=min_gt, mean_gt=mean_gt)
        self.demand_any()


class TensorTooSmallCondition(TableCondition):
    """Hits when the mean magnitude, largest element, smallest element or mean is below its threshold (one is required).

    Examples:
        >>> from tui_debugger import TensorTooSmallCondition
        >>> print(TensorTooSmallCondition(abs_mean_lt=0.2))
        {'abs_mean_lt': 0.2}
    """

    row = CONDITIONS["tensor_too_small"]

    def __init__(
        self,
        abs_mean_lt: float | None = None,
        max_lt: float | None = None,
        min_lt: float | None = None,
        mean_lt: float | None = None,
    ) -> None:
        super().__init__(abs_mean_lt=abs_mean_lt, max_lt=max_lt, min_lt=min_lt, mean_lt=mean_lt)
        self.demand_any()


class TensorRangeCondition(TableCondition):
    """Hits tensors by the spread of their elements. One of the last four parameters is required.

    Hits when less (more) than ``range_percentage_lt`` (``range_percentage_gt``) percent of the elements are inside the
    inclusive range, or when largest and smallest element differ by less (more) than ``max_min_lt`` (``max_min_gt``).

    Examples:
        >>> from tui_debugger import TensorRangeCondition
        >>> TensorRangeCondition(range_start_inclusive=-1, range_end_inclusive=1, range_percentage_lt=50).param_dict
        {'range_start_inclusive': -1.0, 'range_end_inclusive': 1.0, 'range_percentage_lt': 50.0}
    """

    row = CONDITIONS["tensor_range"]

    def __init__(  # noqa: PLR0917 - the old signature
        self,
        range_start_inclusive: float | None = None,
        range_end_inclusive: float | None = None,
        range_percentage_lt: float | None = None,
        range_percentage_gt: float | None = None,
        max_min_lt: float | None = None,
        max_min_gt: float | None = None,
    ) -> None:
        super().__init__(
            range_start_inclusive=range_start_inclusive,
            range_end_inclusive=range_end_inclusive,
            range_percentage_lt=range_percentage_lt,
            range_percentage_gt=range_percentage_gt,
            max_min_lt=max_min_lt,
            max_min_gt=max_min_gt,
        )
        self.demand_any()
        needed = {name for spec in self.row.params if spec.name in self._params for name in spec.needs}
        if missing := [name for name in self.param_names if name in needed and name not in self._params]:
            raise DebuggerParamValueError(
                "a range percentage needs both ends of the range", hint="set " + " and ".join(missing)
            )


class TensorOverflowCondition(TableCondition):
    """Hits tensors with NaN or infinite elements.

    Examples:
        >>> from tui_debugger import TensorOverflowCondition
        >>> TensorOverflowCondition().param_dict
        {}
    """

    row = CONDITIONS["tensor_overflow"]

    def __init__(self) -> None:
        super().__init__()


class OperatorOverflowCondition(TableCondition):
    """Hits operators whose overflow the device recorded (asynchronous Ascend dumps).

    In a dump of values it never hits; ``check_watchpoints`` logs a warning then.

    Examples:
        >>> from tui_debugger import OperatorOverflowCondition
        >>> OperatorOverflowCondition().condition_id
        2
    """

    row = CONDITIONS["operator_overflow"]

    def __init__(self) -> None:
        super().__init__()


class TensorAllZeroCondition(TableCondition):
    """Hits when at least ``zero_percentage_ge`` percent of the elements are zero.

    Examples:
        >>> from tui_debugger import TensorAllZeroCondition
        >>> TensorAllZeroCondition(zero_percentage_ge=99.9).param_dict
        {'zero_percentage_ge': 99.9}
    """

    row = CONDITIONS["tensor_all_zero"]

    def __init__(self, zero_percentage_ge: float) -> None:
        super().__init__(zero_percentage_ge=required(zero_percentage_ge, "zero_percentage_ge"))


class TensorUnchangedCondition(TableCondition):
    """Hits when every element is close to the previous step: |now - before| <= atol + rtol * |before|.

    An infinite element that became finite has changed.

    Examples:
        >>> from tui_debugger import TensorUnchangedCondition
        >>> TensorUnchangedCondition().param_dict
        {'rtol': 1e-05, 'atol': 1e-08}
    """

    row = CONDITIONS["weight_not_changed"]

    def __init__(self, rtol: float = 1e-5, atol: float = 1e-8) -> None:
        super().__init__(rtol=required(rtol, "rtol"), atol=required(atol, "atol"))


class TensorChangeBelowThresholdCondition(TableCondition):
    """Hits when mean |now - before| / (mean |before| + epsilon) is below ``abs_mean_update_ratio_lt``.

    Examples:
        >>> from tui_debugger import TensorChangeBelowThresholdCondition
        >>> TensorChangeBelowThresholdCondition(abs_mean_update_ratio_lt=1e-3).param_dict
        {'abs_mean_update_ratio_lt': 0.001, 'epsilon': 1e-09}
    """

    row = CONDITIONS["weight_change_too_small"]

    def __init__(self, abs_mean_update_ratio_lt: float, epsilon: float = 1e-9) -> None:
        super().__init__(
            abs_mean_update_ratio_lt=required(abs_mean_update_ratio_lt, "abs_mean_update_ratio_lt"),
            epsilon=required(epsilon, "epsilon"),
        )


class TensorChangeAboveThresholdCondition(TableCondition):
    """Hits when mean |now - before| / (mean |before| + epsilon) is above ``abs_mean_update_ratio_gt``.

    Examples:
        >>> from tui_debugger import TensorChangeAboveThresholdCondition
        >>> print(TensorChangeAboveThresholdCondition(abs_mean_update_ratio_gt=0.1).name)
        TensorChangeAboveThreshold
    """

    row = CONDITIONS["weight_change_too_large"]

    def __init__(self, abs_mean_update_ratio_gt: float, epsilon: float = 1e-9) -> None:
        super().__init__(
            abs_mean_update_ratio_gt=required(abs_mean_update_ratio_gt, "abs_mean_update_ratio_gt"),
            epsilon=required(epsilon, "epsilon"),
        )


class TensorInitializationCondition(TableCondition):
    """Hits parameters by their *initial* values: percentage of zeros, largest or smallest element (one is required).

    MindInsight's API has no such condition. It judges what the first consumer of the parameter read at the first dumped
    step, because a parameter's own file holds its value after the update. Other tensors are skipped.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, TensorInitializationCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> weights = run.select_tensors("head.bias")
        >>> watchpoint = Watchpoint(weights, TensorInitializationCondition(zero_percentage_ge=100))
        >>> [(hit.tensor.node.name, hit.tensor.iteration) for hit in run.check_watchpoints([watchpoint])]
        [('head.bias', 0)]
    """

    row = CONDITIONS["weight_initialization"]

    def __init__(
        self, zero_percentage_ge: float | None = None, max_gt: float | None = None, min_lt: float | None = None
    ) -> None:
        super().__init__(zero_percentage_ge=zero_percentage_ge, max_gt=max_gt, min_lt=min_lt)
        self.demand_any()
        try:
            validate(self.row.id, self._params)
        except BadWatchpointError as error:
            raise DebuggerParamValueError(error.what, hint=error.hint) from None


class ExpressionCondition(TableCondition):
    """Hits where an expression over statistics, previous statistics, and facts holds; not in MindInsight.

    ``tdbg help conditions`` explains expressions such as ``max > 6*std and zero_pct < 50`` or ``norm > 10*prev.norm``.
    A syntax error raises DebuggerParamValueError with the marked place.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, ExpressionCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> tensors = run.select_tensors("Mul-op383", iterations=[0, 1, 2])
        >>> hits = run.check_watchpoints([Watchpoint(tensors, ExpressionCondition("step > 0 and min >= 0"))])
        >>> [hit.tensor.iteration for hit in hits]
        [1, 2]
    """

    row = CONDITIONS[EXPRESSION]

    def __init__(self, expression: str) -> None:
        super().__init__()
        try:
            text = parse(checked(expression, "expression", str, "a str")).text
        except BadWatchpointError as error:
            raise DebuggerParamValueError(error.what, where=error.where, hint=error.hint) from None
        self._params = {EXPRESSION: text}
