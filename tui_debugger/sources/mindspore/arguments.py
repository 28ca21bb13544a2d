"""What operators of MindSpore's graphs are called with: inputs in order, constants by value, attributes by name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from tui_debugger.graph.table import NodeTable, real_inputs
from tui_debugger.sources.base import Argument, CallArguments, OtherArgument, TensorSlot

OperatorAttributes = Mapping[tuple[str, str], tuple[tuple[str, str], ...]]
"""Names and texts of the attributes of operators, by graph and full name."""
_VALUES = (bool, int, float, str)


def graph_arguments(nodes: NodeTable, row: int, attributes: Iterable[tuple[str, str]]) -> CallArguments:
    """Returns the arguments of an operator."""
    positional: list[Argument] = []
    for slot, (holder, _) in enumerate(real_inputs(nodes, row)):
        if holder >= 0 and nodes.orders_only(holder):
            continue
        text = nodes.constants.get(holder, "") if holder >= 0 else ""
        value = _value(text) if text else OtherArgument("")
        positional.append(TensorSlot(slot) if isinstance(value, OtherArgument) else value)
    return CallArguments(tuple(positional), attributes={name: _value(text) for name, text in attributes})


def _value(text: str) -> Argument:
    """A constant or attribute by its text; long ones are cut, and stay text."""
    lowered = text.lower()
    if lowered in {"inf", "-inf", "nan"}:
        return float(lowered)
    try:
        return _plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return OtherArgument("", text)


def _plain(value: object) -> Argument:
    if isinstance(value, (tuple, list)):
        return tuple([_plain(each) for each in value])
    if value is None or isinstance(value, _VALUES):
        return value
    return OtherArgument(type(value).__name__, str(value))
