"""The tables of README that come from registries. ``python -m tests.readme_blocks`` rewrites them."""

from __future__ import annotations

import re
from pathlib import Path

from tui_debugger.analysis.condition_table import CONDITIONS, ParamSpec
from tui_debugger.tui.actions import ACTIONS
from tui_debugger.tui.screens.value_keys import VALUE_ACTIONS

README = Path(__file__).parents[1] / "README.md"


def keys() -> str:
    """Every action by group: keys, title, what it does."""
    lines = ["| key | action | what it does |", "|---|---|---|"]
    group = ""
    for action in (*ACTIONS, *VALUE_ACTIONS):
        if action.group != group:
            group = action.group
            lines.append(f"| | **{group}** | |")
        shown = " ".join(f"`{key}`".replace("|", "\\|") for key in action.label.split(" ") if key)
        lines.append(f"| {shown} | {action.title} | {action.help} |")
    return "\n".join(lines)


def conditions() -> str:
    """The 17 conditions with parameters and defaults."""
    lines = ["| | condition | parameters (default) | hits when |", "|---|---|---|---|"]
    for condition in CONDITIONS.values():
        shown = ", ".join(parameter(spec) for spec in condition.params) or "none"
        only = f" ({', '.join(condition.platforms)} only)" if condition.id == "operator_overflow" else ""
        lines.append(f"| {condition.abbr} | `{condition.id}`{only} | {shown} | {condition.summary} |")
    return "\n".join(lines)


def parameter(spec: ParamSpec) -> str:
    """``name`` with its default."""
    return f"`{spec.name}`" + ("" if spec.default is None else f" ({spec.default:g})")


def block(text: str, name: str) -> str:
    """What stands between the markers of a block now."""
    found = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found is not None, name
    return found[1].strip()


def rewritten(text: str) -> str:
    """README with fresh blocks."""
    for name, make in (("keys", keys), ("conditions", conditions)):
        text = re.sub(
            rf"(<!-- {name}:.*?-->\n).*?(<!-- /{name} -->)",
            lambda m, make=make: f"{m[1]}\n{make()}\n\n{m[2]}",  # type: ignore[misc] # mypy cannot type the default
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text("utf-8")), "utf-8")
