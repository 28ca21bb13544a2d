"""Watchpoints: a condition on tensors."""

from __future__ import annotations

from tui_debugger.api.arguments import checked
from tui_debugger.api.condition_base import ConditionBase
from tui_debugger.api.debugger_tensor import DebuggerTensor
from tui_debugger.api.tensors import Tensors

__all__ = ["Watchpoint"]


class Watchpoint:
    """A condition on tensors.

    Args:
        tensors: what ``select_tensors`` gave, or a list of tensors.
        condition: what to look for.

    Raises:
        DebuggerParamTypeError: an argument of a wrong type.

    Examples:
        >>> from tui_debugger import DumpAnalyzer, TensorTooLargeCondition, Watchpoint
        >>> from tui_debugger.demo import demo_dump
        >>> run = DumpAnalyzer(demo_dump())
        >>> tensors = run.select_tensors("Log-op381")
        >>> watchpoint = Watchpoint(tensors=tensors, condition=TensorTooLargeCondition(abs_mean_gt=0.0))
        >>> print(watchpoint.condition.name, len(watchpoint.tensors))
        TensorTooLarge 6
    """

    def __init__(self, tensors: Tensors | list[DebuggerTensor], condition: ConditionBase) -> None:
        """See the class."""
        if not isinstance(tensors, Tensors):
            for tensor in checked(tensors, "tensors", list, "a list of DebuggerTensor"):
                checked(tensor, "tensors", DebuggerTensor, "a list of DebuggerTensor")
        self._tensors = tensors
        self._condition = checked(condition, "condition", ConditionBase, "a condition")

    @property
    def tensors(self) -> Tensors | list[DebuggerTensor]:
        """The tensors to check, as they were given."""
        return self._tensors

    @property
    def condition(self) -> ConditionBase:
        """What to look for."""
        return self._condition
