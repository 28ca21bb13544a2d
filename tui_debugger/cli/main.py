"""The command line: one parser, one exit code rule, no traceback for what a user can understand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tui_debugger import __version__
from tui_debugger.cli import demo, open_
from tui_debugger.errors import TdbgError

EPILOG = """\
exit codes: 0 done, 2 nothing recognisable at the path or a wrong argument, 130 interrupted
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser with every command."""
    parser = argparse.ArgumentParser(
        prog="tdbg",
        description="A terminal debugger for the values of deep-learning training.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tdbg {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    open_.register(commands)
    demo.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit code; errors are printed on stderr as what, where, what to do.
    """
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except TdbgError as error:
        print(f"tdbg: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tdbg: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
