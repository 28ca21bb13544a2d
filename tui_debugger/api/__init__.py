"""The Python API: MindInsight's debugger interface on any dump, and what it lacked."""

from tui_debugger.api.conditions import (
    ConditionBase,
    ExpressionCondition,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorChangeBelowThresholdCondition,
    TensorInitializationCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorTooSmallCondition,
    TensorUnchangedCondition,
)
from tui_debugger.api.dump_analyzer import DumpAnalyzer
from tui_debugger.api.hits import Watchpoint, WatchpointHit
from tui_debugger.api.nodes_and_tensors import DebuggerTensor, Node

__all__ = [
    "ConditionBase",
    "DebuggerTensor",
    "DumpAnalyzer",
    "ExpressionCondition",
    "Node",
    "OperatorOverflowCondition",
    "TensorAllZeroCondition",
    "TensorChangeAboveThresholdCondition",
    "TensorChangeBelowThresholdCondition",
    "TensorInitializationCondition",
    "TensorOverflowCondition",
    "TensorRangeCondition",
    "TensorTooLargeCondition",
    "TensorTooSmallCondition",
    "TensorUnchangedCondition",
    "Watchpoint",
    "WatchpointHit",
]
