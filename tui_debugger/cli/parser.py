"""The parser of every command: with ``--json``, a wrong argument is a document on stdout as any other error is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from tui_debugger.cli.output import failure, print_json
from tui_debugger.errors import TdbgError


class Parser(argparse.ArgumentParser):
    """As argparse has it; subparsers are of the same class."""

    def __init__(self, **named: Any) -> None:
        """Takes what argparse takes, all by name."""
        super().__init__(**named)
        self._given: list[str] = []

    # Its overloads say no more than this, at the length of this file.
    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Remembers what was given."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and leaves with 2."""
        if "--json" in self._given:
            command = self.prog.split()[1:] or self._given
            wrong = TdbgError(
                message, where=" ".join(self._given), hint=f"`tdbg {command[0]} --help` lists the options"
            )
            print_json(failure(command[0], None, wrong))
        super().error(message)
