"""Watchpoints in plain words, for people who do not know the abbreviations yet."""

from __future__ import annotations

from tui_debugger.analysis.conditions import CONDITIONS
from tui_debugger.analysis.watch_text import format_selection, format_value
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Watchpoint
from tui_debugger.tui.widgets.text import clean

_PLURALS = {
    "tensor": "all tensors",
    "weight": "weights",
    "gradient": "gradients",
    "activation": "activations",
    "parameter": "parameters",
    "optimizer_state": "optimizer state",
}


def watch_words(watchpoint: Watchpoint) -> str:
    """``weights: changed too much since the previous step (update ratio > 1)``."""
    condition = CONDITIONS.get(watchpoint.condition)
    if condition is None:
        return clean(watchpoint.condition)
    parts = []
    specs = {spec.name: spec for spec in condition.params}
    for name, value in watchpoint.params:
        spec = specs.get(name)
        if spec is not None and spec.visible:
            label, percent, _ = spec.label.partition(" %")
            parts.append(f"{label} {format_value(value)}{percent}")
    limits = f" ({', '.join(parts)})" if parts else ""
    summary = condition.summary.rstrip(".")
    return f"{selection_words(watchpoint.selection)}: {summary[0].lower()}{summary[1:]}{limits}"


def selection_words(selection: NodeSelection) -> str:
    """``weights``, ``Tanh operators``; anything less simple as selection text."""
    if selection.exclude or not selection.include:
        return clean(format_selection(selection)) or "no nodes"
    types = [clean(selector.text) for selector in selection.include if selector.kind is NodeKind.TYPE]
    parts = [_words(selector) for selector in selection.include if selector.kind is not NodeKind.TYPE]
    return ", ".join([*parts, *([f"{', '.join(types)} operators"] if types else [])])


def _words(selector: NodeSelector) -> str:
    if selector.kind is NodeKind.CATEGORY:
        return _PLURALS.get(selector.text, clean(selector.text))
    return clean(format_selection(NodeSelection((selector,))))
