"""What a watchpoint form holds while it is filled in, without a screen: texts in, a draft or a reason out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from tui_debugger.analysis.conditions import CONDITIONS, Condition, ParamSpec, validate
from tui_debugger.analysis.watch_text import format_value, format_watch, parse_selection
from tui_debugger.model import NodeSelection, Watchpoint

Params = tuple[tuple[str, float | bool], ...]


@dataclass(frozen=True, slots=True)
class WatchDraft:
    """A filled-in form: everything of a watchpoint but its id.

    Attributes:
        condition: id in the condition table.
        params: validated (name, value) in definition order.
        selection: the nodes.
        name: free text, may be empty.
    """

    condition: str
    params: Params
    selection: NodeSelection
    name: str = ""

    @property
    def text(self) -> str:
        """The draft as ``--watch`` takes it, without quotes around it."""
        return format_watch(Watchpoint(0, self.condition, self.params, self.selection))

    @property
    def option(self) -> str:
        """The whole command-line option, quoted for a shell."""
        return f"--watch {shlex.quote(self.text)}"


def visible_params(condition: Condition) -> tuple[ParamSpec, ...]:
    """The parameters a form asks for."""
    return tuple(spec for spec in condition.params if spec.visible)


def default_text(spec: ParamSpec) -> str:
    """What a field starts with: the default, or nothing (the parameter is off)."""
    return "" if spec.default is None else format_value(spec.default)


def make_draft(
    condition: Condition, fields: Mapping[str, str], nodes: str, name: str, hidden: Mapping[str, float | bool]
) -> WatchDraft:
    """Reads a form.

    Args:
        condition: the chosen condition.
        fields: text by parameter name; empty text switches a parameter off.
        nodes: selection text, grammar of ``--watch``.
        name: free text.
        hidden: parameters a form does not show but the edited watchpoint has.

    Raises:
        BadWatchpointError: the first rule that is broken, in the words of the command line.
    """
    given: dict[str, float | bool] = {
        key: value for key, value in hidden.items() if any(spec.name == key for spec in condition.params)
    }
    for spec in visible_params(condition):
        text = fields.get(spec.name, "").strip()
        if text:
            given[spec.name] = spec.parse(text)
    return WatchDraft(condition.id, validate(condition.id, given), parse_selection(nodes), name.strip())


def hidden_params(watchpoint: Watchpoint | None) -> dict[str, float | bool]:
    """The parameters of a watchpoint that a form does not show."""
    if watchpoint is None or watchpoint.condition not in CONDITIONS:
        return {}
    shown = {spec.name for spec in visible_params(CONDITIONS[watchpoint.condition])}
    return {name: value for name, value in watchpoint.params if name not in shown}
