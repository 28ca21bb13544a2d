"""What all conditions have in common: names, parameters and numbers, from the one condition table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tui_debugger.api.arguments import number, wrong_type
from tui_debugger.errors import DebuggerParamValueError
from tui_debugger.watch.condition_table import IN_A_ROW, Condition

__all__ = ["ConditionBase", "TableCondition", "required"]


class ConditionBase:
    """What a watchpoint looks for. With several parameters, each that holds makes a hit.

    A NaN or an infinite element prevents every comparison but that of ``TensorOverflowCondition``: such a tensor is
    reported with an error code instead.

    Examples:
        >>> from tui_debugger import TensorTooLargeCondition
        >>> condition = TensorTooLargeCondition(abs_mean_gt=0.5, max_gt=10)
        >>> condition.name, condition.condition_id, condition.param_dict
        ('TensorTooLarge', 15, {'abs_mean_gt': 0.5, 'max_gt': 10.0})
    """

    @property
    def name(self) -> str:
        """Name of the condition, for example ``TensorTooLarge``."""
        raise NotImplementedError

    @property
    def condition_id(self) -> int:
        """Number of the condition on MindInsight's wire."""
        raise NotImplementedError

    @property
    def param_dict(self) -> Mapping[str, float]:
        """The parameters that are set, by name."""
        return {}

    @property
    def param_names(self) -> list[str]:
        """Every parameter that the condition knows, in its order on the wire."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The parameters, as a dict prints."""
        return str(dict(self.param_dict))


class TableCondition(ConditionBase):
    """A condition of the condition table. ``row`` is its row there; instances differ in their parameters only."""

    row: ClassVar[Condition]

    def __init__(self, **values: float | None) -> None:
        """Keeps what is set; no value is None for a parameter that has to be set.

        Raises:
            DebuggerParamTypeError: a value is no number.
        """
        given = {name: number(value, name) for name, value in values.items() if value is not None}
        self._params = {spec.name: given[spec.name] for spec in self.row.params if spec.name in given}

    @property
    def name(self) -> str:
        """Name of the class without ``Condition``."""
        return type(self).__name__.removesuffix("Condition")

    @property
    def condition_id(self) -> int:
        """Number of the condition on MindInsight's wire."""
        return self.row.wire

    @property
    def param_dict(self) -> dict[str, float]:
        """The parameters that are set, by name, in their order on the wire."""
        return dict(self._params)

    @property
    def param_names(self) -> list[str]:
        """Every parameter that the condition knows, in its order on the wire."""
        return [spec.name for spec in self.row.params if spec.name != IN_A_ROW]

    def __repr__(self) -> str:
        """As it is made."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._params.items())})"

    def demand_any(self) -> None:
        """Refuses a condition that could never hit."""
        deciding = [spec.name for spec in self.row.params if spec.check]
        if not any(name in self._params for name in deciding):
            raise DebuggerParamValueError(
                f"{type(self).__name__} needs something to compare with", hint="set one of " + ", ".join(deciding)
            )


def required(value: Any, name: str) -> float:
    """A parameter without which the condition means nothing."""
    if value is None:
        raise wrong_type(value, name, "a number")
    return number(value, name)
