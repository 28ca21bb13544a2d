"""``tdbg completion``, and the files for shells and man that come with the package.

They are written by ``tests/shell_files.py`` from the tables of the command line, so nothing is needed to make them at
run time; a test holds them against the program.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.text.writer import write_data

if TYPE_CHECKING:
    from argparse import _SubParsersAction

SHARE: Final = Path(__file__).parents[1] / "share"
FILES: Final = {
    "bash": "bash-completion/completions/tdbg",
    "zsh": "zsh/site-functions/_tdbg",
    "fish": "fish/vendor_completions.d/tdbg.fish",
    "man": "man/man1/tdbg.1",
}
"""The directories below ``share``, in this package and in the prefix that it is installed into."""
DESCRIPTION = """\
Prints a script that completes commands, options, files, conditions and topics.
A package that is installed into a prefix such as /usr/local brings it already.

bash  tdbg completion bash > ~/.local/share/bash-completion/completions/tdbg
zsh   tdbg completion zsh > DIR/_tdbg, with fpath=(DIR $fpath) before compinit
fish  tdbg completion fish > ~/.config/fish/completions/tdbg.fish
"""


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shells = tuple(name for name in FILES if name != "man")
    parser.add_argument("shell", choices=shells, metavar="SHELL", help=", ".join(shells))
    parser.set_defaults(run=lambda arguments: print_file(arguments.shell))


def print_file(kind: str) -> int:
    """Prints one of ``FILES`` and returns the exit code."""
    write_data((SHARE / FILES[kind]).read_text("utf-8"))
    return 0
