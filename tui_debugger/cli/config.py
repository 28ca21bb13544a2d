"""``tdbg config``: the configuration, the index of statistics, completions of shells."""

from __future__ import annotations

import argparse
import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.completion import FILES, shell_file
from tui_debugger.cli.options import Commands, add_appearance, add_config, flag, screen_config
from tui_debugger.cli.output import Answer, print_table, print_text, runner
from tui_debugger.errors import TdbgError, reason_of
from tui_debugger.text.documents import to_json
from tui_debugger.text.writer import write_data, write_lines

if TYPE_CHECKING:
    from tui_debugger.config import Config
    from tui_debugger.model import ProgressFn

DESCRIPTION = """\
Says where the configuration lies, checks it, and lists what is in force: each
value, and whether it is the default, from the file, or from an option. A
mistake in the file is an error, here and in every command that uses it;
--no-config leaves the file out.

With --cache: the index. Statistics of tensors, listings, digests and
differences of two runs are kept in the user's cache directory, so that a file
is read once; values of tensors never are, and nothing is written into a dump. A
file is the same while its size, number, and times of modification and change
are; every command measures a part of the index again, and a difference empties
the index.

With --completion: a script that completes commands, options, files, conditions
and topics. A package that is installed into a prefix such as /usr/local brings
it already.

bash  tdbg config --completion bash \\
          > ~/.local/share/bash-completion/completions/tdbg
zsh   tdbg config --completion zsh > DIR/_tdbg
          with fpath=(DIR $fpath) before compinit
fish  tdbg config --completion fish > ~/.config/fish/completions/tdbg.fish

TDBG_CONFIG       the file (default: $XDG_CONFIG_HOME/tdbg/config.toml or
                  ~/.config/tdbg/config.toml); empty: none
TDBG_CACHE_DIR    the place of the index (default: $XDG_CACHE_HOME/tdbg or
                  ~/.cache/tdbg); empty: nowhere
TDBG_CACHE_LIMIT  bytes at most, as 500M or 2 GiB (default: 1G); entries that
                  were not used for the longest time go first; 0: no index
"""
EPILOG = """\
exit codes:
  0    the configuration is right, or there is none; the index is right
  1    with --cache verify: the index was wrong
  2    the configuration is wrong or cannot be read; with --init: there is one
       already; with --cache verify: cannot judge
"""


def register(commands: Commands) -> None:
    parser = commands.add_parser(
        "config",
        help="the configuration, the index of statistics, completions of shells",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    flag(what, "--init", "write an example, with every setting as a comment; overwrites nothing")
    what.add_argument(
        "--cache",
        nargs="*",
        metavar="ACTION",
        help="the index: its place, size and contents; clear: empty it; verify DUMP: measure again each statistic "
        "that it has of DUMP, and empty it where one differs",
    )
    shells = tuple(name for name in FILES if name != "man")
    what.add_argument("--completion", choices=shells, metavar="SHELL", help=f"print the script: {', '.join(shells)}")
    add_appearance(parser)
    add_config(parser)
    flag(parser, "--json", "one JSON document on stdout instead of a table")
    whole_dump: dict[str, object] = dict.fromkeys(("rank", "step", "filter", "graph", "jobs", "executor"))
    run = runner("config", _configured)
    parser.set_defaults(run=run, path=None, no_cache=False, ignore=(), no_default_ignore=False, **whole_dump)


def _configured(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.config import config_path

    if arguments.completion:
        script = shell_file(arguments.completion)
        return Answer(show=lambda _: write_data(script), document=lambda: {"script": script})
    if arguments.cache is not None:
        from tui_debugger.cli.cache import index

        return index(arguments, progress)
    path = arguments.path = config_path()
    if arguments.init:
        _init(path)
        return Answer(
            document=lambda: {"written": True},
            show=lambda _: write_lines(f"{path} is written: take the # away from what you want to change"),
        )
    from tui_debugger.tui.settings import check_keys

    config = screen_config(arguments)
    check_keys(config)
    found = list(settings(config, arguments))
    rows = [{"setting": each.name, "value": each.value, "from": each.source} for each in found]
    return Answer(
        document=lambda: {"found": config.found, "settings": rows}, show=lambda _: _print(path, config, found)
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that is in force.

    ``source`` is ``default``, ``file`` or ``option``. The table leaves out settings that are ``usual``: one of many
    that have their default.
    """

    name: str
    value: Any
    source: str
    usual: bool = False

    @property
    def text(self) -> str:
        if isinstance(self.value, bool):
            return "on" if self.value else "off"
        return " ".join(self.value) if isinstance(self.value, list) else str(self.value)


def settings(config: Config, arguments: Namespace) -> Iterator[Setting]:
    """Yields every setting, in the order of the file that ``--init`` writes."""
    from tui_debugger.config import column_names, tables
    from tui_debugger.tui.settings import ADJUSTABLE
    from tui_debugger.watch.recommended import NO_CHANGES, built_in
    from tui_debugger.watch.text import format_value

    def source(name: str, *, chosen: bool = False) -> str:
        return "option" if chosen else "file" if name in config.lines else "default"

    yield Setting("theme", config.theme, source("theme", chosen=arguments.theme is not None))
    yield Setting("mouse", config.mouse, source("mouse", chosen=arguments.mouse is not None))
    yield Setting("ignore", list(config.ignore), source("ignore"))
    for table in tables():
        given = "file" if table in config.columns else "default"
        yield Setting(f"columns.{table}", column_names(config.table(table)), given)
    changes = config.recommended or NO_CHANGES
    asks = "file" if config.asks else source("recommended.ask")  # recommended = "ask" has no line of that name
    yield Setting("recommended.ask", config.asks, asks)
    for name, watchpoint in built_in().items():
        params = [f"{param}={format_value(value)}" for param, value in changes.changed(watchpoint).params]
        given = "file" if name in changes.left_out or name in changes.params else "default"
        yield Setting(f"recommended.{name}", False if name in changes.left_out else params or True, given)
    for text in changes.also:
        yield Setting("recommended.also", text, "file")
    for action in ADJUSTABLE:
        chosen = config.keys.get(action.setting)
        given = "default" if chosen is None else "file"
        yield Setting(f"keys.{action.setting}", list(chosen or action.usual_keys), given, usual=chosen is None)


def _print(path: Path | None, config: Config, found: list[Setting]) -> None:
    if config.path is None:
        write_lines("file  none: --no-config" if path is not None else "file  none: TDBG_CONFIG is empty")
    else:
        there = "" if config.found else "  (not there; tdbg config --init writes an example)"
        print_text(f"file  {path}{there}", hang=6)
    write_lines("")
    print_table(("setting", "value", "from"), [(each.name, each.text, each.source) for each in found if not each.usual])
    if "NO_COLOR" in os.environ:
        write_lines("")
        print_text("NO_COLOR is set: the screen has no colours, whatever the theme is")
    usual = sum(each.usual for each in found)
    write_lines("")
    print_text(f"{usual} actions have their usual keys: `tdbg help configuration` lists them")


def _init(path: Path | None) -> None:
    """Writes the example. Raises TdbgError if the file exists or cannot be written."""
    from tui_debugger.config import VARIABLE

    if path is None:
        raise TdbgError("there is no place for a configuration", where=f"{VARIABLE} is empty", hint="unset it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(example())
    except FileExistsError:
        hint = "edit it, or move it away; `tdbg help configuration` shows every setting"
        raise TdbgError("there is a configuration already", where=str(path), hint=hint) from None
    except OSError as error:
        what = f"the example cannot be written: {reason_of(error)}"
        raise TdbgError(what, where=str(path), hint="see who owns it") from None


def example() -> str:
    """Returns all defaults as comments: ``#`` before a setting, ``# `` before words."""
    from tui_debugger.config import THEMES, column_names, tables
    from tui_debugger.tui.settings import ADJUSTABLE
    from tui_debugger.watch.condition_table import CONDITIONS
    from tui_debugger.watch.recommended import built_in
    from tui_debugger.watch.text import format_value

    lines = ["# The configuration of tdbg. `tdbg config` checks it, `tdbg help configuration` explains it.", ""]
    lines += [f"# {name}: {help_text}" for name, help_text in THEMES.items()]
    lines += ['#theme = "dark"', "", "# files and directories that no command looks at", "#ignore = ['*.bak']", ""]
    lines += ["# false leaves the mouse to the terminal's own selection", "#mouse = true", ""]
    lines += ["# The statistics that tables show, in their order.", "[columns]"]
    for name, table in tables().items():
        lines += [f"# {table.help}; there are {', '.join(table.known)}"]
        lines += [f"#{name} = {to_json(column_names(table.default))}"]
    lines += ["", "# The recommended watchpoints: false leaves one out, a table changes its parameters."]
    lines += [
        "[recommended]",
        "# true: the screen asks before it adds them to a run that never had any.",
        "#ask = false",
    ]
    for name, watchpoint in built_in().items():
        lines.append(f"# {CONDITIONS[watchpoint.condition].summary}")
        params = ", ".join(f"{param} = {format_value(value)}" for param, value in watchpoint.params)
        lines.append(f"#{name} = {{ {params} }}" if params else f"#{name} = true")
    lines += ["# More of them, as --watch takes them.", "#also = []", ""]
    lines += ["# Keys by the name of the action: one, or a list. Enter, Esc, arrows have their names:"]
    lines += ['# "enter", "up", "pageup", "ctrl+l", "f5". What is not named keeps its usual keys.', "[keys]"]
    group = ""
    for action in ADJUSTABLE:
        if action.group != group:
            group = action.group
            lines += ["", f"# -- {group}"]
        keys = list(action.usual_keys)
        lines += [f"# {action.help}", f"#{action.setting} = {to_json(keys[0] if len(keys) == 1 else keys)}"]
    return "\n".join(lines) + "\n"
