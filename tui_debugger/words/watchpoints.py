"""Watchpoints in plain words, for people who do not know the abbreviations yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tui_debugger.analysis.conditions import CONDITIONS, Condition
from tui_debugger.analysis.recommend import RECOMMENDED
from tui_debugger.analysis.watch_text import format_selection, format_value, format_watch
from tui_debugger.model import BIAS, NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.words.clean import clean

_PLURALS = {
    "tensor": "all tensors",
    "trainable": "weights",
    "weight": "weights",
    "gradient": "gradients",
    "weight_gradient": "gradients of weights",
    "activation": "activations",
    "parameter": "parameters",
    "optimizer_state": "optimizer state",
}


def watch_words(watchpoint: Watchpoint) -> str:
    """``weights: changed too much since the previous step (update ratio > 1)``."""
    condition = CONDITIONS.get(watchpoint.condition)
    if condition is None:
        return clean(watchpoint.condition)
    parts = list(_limits(condition, dict(watchpoint.params)))
    limits = f" ({', '.join(parts)})" if parts else ""
    summary = condition.summary.rstrip(".")
    return f"{selection_words(watchpoint.selection)}: {summary[0].lower()}{summary[1:]}{limits}"


def watch_line(watchpoint: Watchpoint) -> str:
    """What ``--watch`` takes; for a recommended watchpoint, whose nodes take a long expression, words instead."""
    if watchpoint.name.startswith(RECOMMENDED):
        return f"{CONDITIONS[watchpoint.condition].abbr} {watch_words(watchpoint)}"
    return format_watch(watchpoint)


def _limits(condition: Condition, params: Mapping[str, float | bool]) -> Iterable[str]:
    values = {name: format_value(value) for name, value in params.items()}
    start, end = values.get("range_start_inclusive"), values.get("range_end_inclusive")
    for spec in condition.params:
        if spec.name not in values or not (spec.visible and spec.check):
            continue
        label, percent, _ = spec.label.partition(" %")
        inside = f" from {start} to {end}" if spec.needs else ""
        yield f"{label} {values[spec.name]}{'%' if percent else ''}{inside}"


def selection_words(selection: NodeSelection) -> str:
    """``weights without biases``, ``Tanh operators``; what has no words, as selection text."""
    if not selection.include:
        return "no nodes"
    without = f" without {_union(selection.exclude)}" if selection.exclude else ""
    return _union(selection.include) + without


def _union(selectors: Iterable[NodeSelector]) -> str:
    types: list[str] = []
    parts: list[str] = []
    for selector in selectors:
        if selector.kind is NodeKind.TYPE:
            types.append(clean(selector.text))
        elif selector.kind is NodeKind.CATEGORY:
            parts.append(_PLURALS.get(selector.text, clean(selector.text)))
        elif selector == NodeSelector(NodeKind.REGEX, BIAS):
            parts.append("biases")
        else:
            parts.append(clean(format_selection(NodeSelection((selector,)))))
    return ", ".join([*parts, *([f"{', '.join(types)} operators"] if types else [])])
