"""The tables of README that come from registries. ``python -m tests.readme_blocks`` rewrites them."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from tui_debugger.cli.main import build_parser, main
from tui_debugger.demo import DEMO, unpack
from tui_debugger.tui.actions import ACTIONS, LIVE_ACTIONS, VALUE_ACTIONS, VIEW_ACTIONS
from tui_debugger.tui.view_opener import load_view
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.watch.condition_table import CONDITIONS, ParamSpec

README = Path(__file__).parents[1] / "README.md"


def keys() -> str:
    """Every action by group: keys, title, what it does."""
    lines = ["| key | action | what it does |", "|---|---|---|"]
    group = ""
    own = [
        replace(action, group=f"{view.title} ({view.key})") for view in VIEWS for action in load_view(view).OWN_ACTIONS
    ]
    for action in (*ACTIONS, *LIVE_ACTIONS, *VIEW_ACTIONS, *VALUE_ACTIONS, *own):
        if action.group != group:
            group = action.group
            lines.append(f"| | **{group}** | |")
        shown = " ".join(f"`{key}`".replace("|", "\\|") for key in action.label.split(" ") if key)
        lines.append(f"| {shown} | {sentence(action.title)} | {sentence(action.help)} |")
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


def commands() -> str:
    """Every command with its arguments and options; those that all headless commands share come first."""
    parsers = subparsers()
    shared = {text for text in rows(parsers["check"]) if text in rows(parsers["stat"])}
    lines = ["| every headless command | |", "|---|---|"]
    lines += [text for text in rows(parsers["stat"]) if text in shared]
    for name, parser in parsers.items():
        lines += ["", *described(name, parser), ""]
        own = [text for text in rows(parser) if text not in shared]
        lines += ["| argument | |", "|---|---|", *own] if own else []
    return "\n".join(lines)


def subparsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command by name."""
    (found,) = [action for action in build_parser()._actions if isinstance(action.choices, dict)]
    return dict(found.choices)


def described(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """The description of a command; one that is laid out in lines keeps them."""
    text = (parser.description or "").strip()
    if parser.formatter_class is not argparse.RawDescriptionHelpFormatter:
        return [f"**`tdbg {name}`**: {sentence(text)}"]
    first, _, rest = text.partition("\n")
    return [f"**`tdbg {name}`**: {first}", "", "```text", rest.strip("\n"), "```"]


def rows(parser: argparse.ArgumentParser) -> list[str]:
    """One table row per argument of a command."""
    made = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        takes = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
        words = " ".join(takes) if isinstance(takes, tuple) else takes
        shown = ", ".join(f"`{option} {words}`".replace(" `", "`") for option in action.option_strings) or f"`{words}`"
        help_text = (action.help or "") % {"default": action.default, "prog": parser.prog}
        made.append(f"| {shown} | {sentence(help_text)} |")
    return made


def sentence(text: str) -> str:
    """Help text as one line of Markdown."""
    return " ".join(text.split()).replace("|", "\\|")


def block(text: str, name: str) -> str:
    """What stands between the markers of a block now."""
    found = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- /{name} -->", text, re.DOTALL)
    assert found is not None, name
    return found[1].strip()


def origin() -> str:
    """What ``tdbg origin`` says about the demo dump."""
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        main(["origin", str(unpack(DEMO, Path(folder))), "--spread", "3"])
    return f"```console\n$ tdbg origin $(tdbg demo --unpack) --spread 3\n{out.getvalue().rstrip()}\n```"


BLOCKS = {"commands": commands, "origin": origin, "keys": keys, "conditions": conditions}
"""What stands between the markers of each block."""


def rewritten(text: str) -> str:
    """README with fresh blocks."""
    for name, make in BLOCKS.items():
        text = re.sub(
            rf"(<!-- {name}:.*?-->\n).*?(<!-- /{name} -->)",
            lambda m, make=make: f"{m[1]}\n{make()}\n\n{m[2]}",  # type: ignore[misc] # mypy cannot type the default
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text("utf-8")), "utf-8")
