"""``tdbg open PATH``: the screen on a dump directory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tui_debugger.cli import screen
from tui_debugger.cli.options import add_command

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "open",
        "open a dump directory in the terminal",
        "Opens a tensor dump. PATH may be the dump directory, one or two levels above it, "
        "or any directory inside it (rank, net, graph, step).",
    )
    screen.add_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return screen.run(arguments.path, arguments)
