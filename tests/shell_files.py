"""The man page and the completions that ship in the wheel: written from the tables of the command line.

``python -m tests.shell_files`` writes them; a test says when they are not those of the program.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import shtab

from tests.readme_blocks import subparsers
from tui_debugger.cli.completion import FILES, SHARE
from tui_debugger.cli.help import TOPICS
from tui_debugger.cli.main import COMMANDS, EPILOG, build_parser
from tui_debugger.cli.options import given_path
from tui_debugger.model import CATEGORY_WORDS
from tui_debugger.watch.condition_table import CONDITIONS

# -- completions ---------------------------------------------------------------------------------------

ABBREVIATIONS = tuple(condition.abbr for condition in CONDITIONS.values())
WORDS: Mapping[str, tuple[str, ...]] = {
    "--watch": ABBREVIATIONS,
    "--fail-on": ABBREVIATIONS,
    "--category": tuple(CATEGORY_WORDS),
    "WORD": (*TOPICS, *COMMANDS),
}
"""What can be said where argparse takes any text, by option or by name of the argument."""
DIRECTORIES = ("PATH", "DIR")


def completion(shell: str) -> str:
    """The script of a shell."""
    parser = build_parser()
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    summaries = {each.dest: each.help for each in commands._choices_actions}
    for name, command in commands.choices.items():
        command.description = summaries[name]
        for action in command._actions:
            _say_what_fits(action)
    return str(shtab.complete(parser, shell=shell)).rstrip() + "\n"


def _say_what_fits(action: argparse.Action) -> None:
    """Adds to an argument what shells can offer for it."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    for name in (*action.option_strings, metavar):
        if name in WORDS and action.choices is None:
            action.choices = WORDS[name]
    if action.choices is None and action.type in {Path, given_path}:
        action.complete = shtab.DIRECTORY if metavar in DIRECTORIES else shtab.FILE  # type: ignore[attr-defined]


# -- man page ------------------------------------------------------------------------------------------

ENVIRONMENT: Mapping[str, str] = {
    "TDBG_CONFIG": "the configuration file; empty: none",
    "TDBG_CACHE_DIR": "where is kept what was measured before; empty: nowhere",
    "TDBG_CACHE_LIMIT": "bytes at most that are kept, such as 500M; 0: nothing",
    "TDBG_HOST, TDBG_PORT, TDBG_TOKEN": "where a training process finds tdbg listen",
    "NO_COLOR": "no colours",
    "PAGER": "the pager of tdbg help; empty: none",
}
PLACES: Mapping[str, str] = {
    "~/.config/tdbg/config.toml": "the configuration ($XDG_CONFIG_HOME); tdbg help configuration",
    "~/.local/state/tdbg": "the watchpoints of each dump, and the recent dumps ($XDG_STATE_HOME)",
    "~/.cache/tdbg": "what was measured before ($XDG_CACHE_HOME)",
}


def man_page() -> str:
    """The whole page, in the macros of man(7)."""
    parser = build_parser()
    lines = ['.TH TDBG 1 "" tdbg "User Commands"', ".SH NAME"]
    lines += [f"tdbg \\- {_text(_lower(parser.description or ''))}"]
    lines += [".SH SYNOPSIS", ".B tdbg", ".I COMMAND", ".RI [ ARGUMENT ...]", ".br", ".B tdbg \\-\\-version"]
    lines += [".SH DESCRIPTION", *_paragraph("Opens dumps of tensors and attaches to training that runs, and finds")]
    lines += _paragraph("where a NaN, an Inf or anything else that a watchpoint looks for began.")
    lines += [".B tdbg help", "shows the manual;", ".B tdbg help", ".I COMMAND", "shows the options of a command."]
    lines += [".SH COMMANDS"]
    for name, command in subparsers().items():
        lines += [f".SS tdbg {_text(name)}{_arguments(command)}", *_laid_out(command.description or "")]
        for action in command._actions:
            if not isinstance(action, argparse._HelpAction):
                lines += _argument(action, command.prog)
        if command.epilog:
            lines += [".PP", ".nf", *_verbatim(command.epilog), ".fi"]
    lines += [".SH ENVIRONMENT", *_terms(ENVIRONMENT), ".SH FILES", *_terms(PLACES)]
    lines += [".SH EXIT STATUS", ".nf", *_verbatim(_exit_codes()), ".fi"]
    return "\n".join(lines) + "\n"


def _exit_codes() -> str:
    return EPILOG.split("exit codes:\n")[1].split("\n\n")[0]


def _arguments(command: argparse.ArgumentParser) -> str:
    """``PATH [NODE]``: what a command takes besides options."""
    found = []
    for action in command._actions:
        if action.option_strings:
            continue
        name = _text(action.metavar if isinstance(action.metavar, str) else action.dest.upper())
        found.append(f"[{name}]" if action.nargs in {"?", "*"} else name)
    return "".join(f" {name}" for name in (*found, "[OPTION ...]"))


def _argument(action: argparse.Action, prog: str) -> Iterator[str]:
    """One argument with its help."""
    takes = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    words = " ".join(takes) if isinstance(takes, tuple) else takes
    names = ", ".join(rf"\fB{_text(option)}\fR" for option in action.option_strings)
    value = rf"\fI{_text(words)}\fR" if words else ""
    yield ".TP"
    yield " ".join(filter(None, (names, value)))
    yield from _paragraph(" ".join(((action.help or "") % {"default": action.default, "prog": prog}).split()))


def _terms(table: Mapping[str, str]) -> Iterator[str]:
    for term, meaning in table.items():
        yield from (".TP", rf"\fB{_text(term)}\fR", *_paragraph(meaning))


def _laid_out(text: str) -> list[str]:
    """Sentences flow; what is laid out in columns stays as it is."""
    columns = any("   " in line for line in text.splitlines())
    return [".nf", *_verbatim(text), ".fi"] if columns else _paragraph(" ".join(text.split()))


def _verbatim(text: str) -> list[str]:
    return [_line(line) if line else ".sp" for line in text.strip("\n").splitlines()]


def _paragraph(text: str) -> list[str]:
    return [_line(text)] if text else []


def _line(text: str) -> str:
    shown = _text(text)
    return rf"\&{shown}" if shown.startswith((".", "'")) else shown


SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


def _text(text: str) -> str:
    """A text without anything that roff obeys or changes."""
    return re.sub(r"[\\\-'`^~]|[^\x00-\x7f]", lambda m: SPECIAL.get(m[0]) or rf"\[u{ord(m[0]):04X}]", text)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


MAKERS: Mapping[str, Callable[[], str]] = {
    "man": man_page,
    **{shell: lambda shell=shell: completion(shell) for shell in FILES if shell != "man"},
}


if __name__ == "__main__":
    for kind, file in FILES.items():
        path = SHARE / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MAKERS[kind](), "utf-8")
