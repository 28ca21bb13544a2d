"""The parts of README and its pages that come from the program. ``python -m tests.readme_blocks`` rewrites them."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import re
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.diagnose.recompute.floors import floor_lines
from tui_debugger.cli.help import PAGES, TOPICS
from tui_debugger.cli.ls_formats import ABILITIES, ability_words
from tui_debugger.cli.main import build_parser, main
from tui_debugger.config import THEMES, column_names, tables
from tui_debugger.demo import DEMO, unpack
from tui_debugger.diagnose.recompute import check as _  # noqa: F401 - it fills the table of operators
from tui_debugger.sources.registry import READERS, own_reader, shows_of
from tui_debugger.stats.fields import QUANTITIES
from tui_debugger.text.old_words import old_words_table
from tui_debugger.tui.actions import ACTIONS, LIVE_ACTIONS, START_ACTIONS, VALUE_ACTIONS, VIEW_ACTIONS
from tui_debugger.tui.settings import ADJUSTABLE
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.tui.views.runs_map import RunsMapView
from tui_debugger.watch.condition_table import CONDITIONS, ParamSpec
from tui_debugger.watch.recommended import built_in
from tui_debugger.watch.text import format_value

README = Path(__file__).parents[1] / "README.md"
FILES = (README, *(PAGES / f"{topic}.md" for topic in TOPICS))
"""The first page, and every other one."""


def keys() -> str:
    """A row for each place: what a key does in several of them once, then what is left for each."""
    own = [replace(action, group=f"{view.title} ({view.key})") for view in VIEWS for action in view.load().OWN_ACTIONS]
    own += RunsMapView.OWN_ACTIONS
    listed = (*ACTIONS, *LIVE_ACTIONS, *START_ACTIONS, *VIEW_ACTIONS, *VALUE_ACTIONS, *own)
    places: dict[tuple[str, str], set[str]] = {}
    for action in listed:
        for key in action.keys:
            places.setdefault((key, action.title), set()).add(action.group)
    rows: dict[str, list[str]] = {EVERYWHERE: []}
    said: set[tuple[str, str]] = set()
    for action in listed:
        new = {(key, action.title) for key in action.keys} - said
        if action.keys and not new:
            continue  # said before, of another place
        said |= new
        everywhere = any(len(places[each]) > MANY for each in new)
        shown = " ".join(f"`{key}`" for key in action.label.split(" ") if key)
        item = sentence(f"{shown} {action.title}" if shown else action.title)
        rows.setdefault(EVERYWHERE if everywhere else action.group.split(" (tdbg")[0], []).append(item)
    lines = ["| | |", "|---|---|"]
    for place, items in rows.items():
        with_keys = " · ".join(item for item in items if "`" in item)
        without = ", ".join(dict.fromkeys(item for item in items if "`" not in item))
        commands = f"`:` {without}" if without else ""
        lines.append(f"| {place.partition(' (Enter')[0]} | {' · '.join(filter(None, (with_keys, commands)))} |")
    return "\n".join(lines)


EVERYWHERE = "Everywhere"
MANY = 2
"""What a key does in more places than these is said once."""


def conditions() -> str:
    """All conditions with parameters and defaults."""
    lines = ["| | condition | hits when; its parameters with their defaults |", "|---|---|---|"]
    for condition in CONDITIONS.values():
        shown = ", ".join(parameter(spec) for spec in condition.params)
        more = f" Parameters: {shown}." if shown else ""
        lines.append(f"| {condition.abbr} | `{condition.id}` | {condition.summary}{more} |")
    return "\n".join(lines)


def parameter(spec: ParamSpec) -> str:
    """``name`` with its default."""
    return f"`{spec.name}`" + ("" if spec.default is None else f" ({spec.default:g})")


def commands() -> str:
    """Every command with its arguments and options; those that all headless commands share come first."""
    parsers = subparsers()
    shared = {text for text in rows(parsers["check"]) if text in rows(parsers["stat"])}
    lines = ["### Every command without a screen", "", "| | |", "|---|---|"]
    lines += [text for text in rows(parsers["stat"]) if text in shared]
    for name, parser in parsers.items():
        lines += ["", f"### tdbg {name}", "", *described(parser)]
        own = [text for text in rows(parser) if text not in shared]
        lines += ["", "| | |", "|---|---|", *own] if own else []
    return "\n".join(lines)


def subparsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command by name."""
    return dict(build_parser().commands)


def described(parser: argparse.ArgumentParser) -> list[str]:
    """The description of a command: sentences as paragraphs, what is laid out in columns as it is."""
    lines = (parser.description or "").strip().splitlines()
    made: list[str] = []
    for columns, group in itertools.groupby(filter(None, lines), lambda line: line.startswith(" ") or "   " in line):
        text = list(group)
        body = ["```text", *textwrap.dedent("\n".join(text)).splitlines(), "```"] if columns else [" ".join(text)]
        made += [*([""] if made else []), *body]
    return made


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


def settings() -> str:
    """Every setting of the configuration with its default, and every action with its usual keys."""
    themes = "; ".join(f"`{name}`: {text}" for name, text in THEMES.items())
    lines = ["| | default | |", "|---|---|---|", f"| `theme` | `dark` | {themes} |"]
    lines += ["| `mouse` | `true` | `false` leaves the mouse to the terminal's own selection |"]
    lines += ["", "### [columns]", "", "| | default | |", "|---|---|---|"]
    for name, table in tables().items():
        default = " ".join(f"`{each}`" for each in column_names(table.default))
        known = " ".join(f"`{each}`" for each in table.known)
        lines.append(f"| `{name}` | {default} | {table.help}; of {known} |")
    lines += ["", "### [recommended]", "", "| | parameters | |", "|---|---|---|"]
    for name, watchpoint in built_in().items():
        params = " ".join(f"`{param}={format_value(value)}`" for param, value in watchpoint.params)
        lines.append(f"| `{name}` | {params} | {CONDITIONS[watchpoint.condition].summary} |")
    lines += ["| `also` | | More watchpoints, as text. |"]
    lines += ['| `ask` | `false` | The screen asks before it adds them; `recommended = "ask"` says the same. |']
    lines += ["", "### [keys]", "", "| | usual | |", "|---|---|---|"]
    for action in ADJUSTABLE:
        keys = " ".join(f"`{key}`".replace("|", "\\|") for key in action.usual_keys)
        lines.append(f"| `{action.setting}` | {keys} | {action.group}: {sentence(action.title)} |")
    return "\n".join(lines)


def quantities() -> str:
    """What an expression may name of a tensor."""
    text = f"- quantities: `{' '.join(QUANTITIES)}`, as in the columns on screen; over the finite elements"
    return textwrap.fill(text, 120, subsequent_indent="  ")


def formats() -> str:
    """Every layout, and what it can show."""
    known = [own_reader(text) for text in READERS]
    lines = ["| layout | " + " | ".join(ABILITIES) + " |", "|---|" + "---|" * len(ABILITIES)]
    lines += [f"| {each.name} | " + " | ".join(ability_words(shows_of(each))) + " |" for each in known]
    return "\n".join(lines)


def pages() -> str:
    """Every page with its line, as a link."""
    lines = ["| page | |", "|---|---|"]
    for topic in TOPICS:
        page = PAGES / f"{topic}.md"
        summary = page.read_text("utf-8").split("\n\n", 2)[1]
        lines.append(f"| [`tdbg help {topic}`]({page.relative_to(README.parent)}) | {sentence(summary)} |")
    return "\n".join(lines)


def origin() -> str:
    """What ``tdbg origin`` says about the demo dump."""
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        main(["origin", str(unpack(DEMO, Path(folder))), "--spread", "3"])
    return f"```console\n$ tdbg origin $(tdbg demo --unpack) --spread 3\n{out.getvalue().rstrip()}\n```"


@dataclass(frozen=True)
class Block:
    """A part between two markers: in which file, and what makes it."""

    file: Path
    make: Callable[[], str]

    def written(self, name: str) -> str:
        """What stands between the markers now."""
        found = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- /{name} -->", self.file.read_text("utf-8"), re.DOTALL)
        assert found is not None, name
        return found[1].strip()

    def rewrite(self, name: str) -> None:
        """Makes it anew."""
        fresh = re.sub(
            rf"(<!-- {name}:.*?-->\n).*?(<!-- /{name} -->)",
            lambda marks: f"{marks[1]}\n{self.make()}\n\n{marks[2]}",
            self.file.read_text("utf-8"),
            flags=re.DOTALL,
        )
        self.file.write_text(fresh, "utf-8")


BLOCKS = {
    "origin": Block(README, origin),
    "pages": Block(README, pages),
    "commands": Block(PAGES / "commands.md", commands),
    "keys": Block(PAGES / "keys.md", keys),
    "formats": Block(PAGES / "formats.md", formats),
    "settings": Block(PAGES / "configuration.md", settings),
    "conditions": Block(PAGES / "conditions.md", conditions),
    "quantities": Block(PAGES / "conditions.md", quantities),
    "old-words": Block(PAGES / "mindinsight.md", lambda: "\n".join(old_words_table())),
    "floors": Block(PAGES / "audit.md", lambda: "\n".join(floor_lines())),
}
"""Every part that is written by the program, by the name in its markers."""


if __name__ == "__main__":
    for name, block in BLOCKS.items():
        block.rewrite(name)
