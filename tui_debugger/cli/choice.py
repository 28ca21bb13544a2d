"""Which tensors of the chosen nodes a command is about: side, slot, category."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import Span, spans
from tui_debugger.errors import CancelledError, TdbgError

if TYPE_CHECKING:
    from tui_debugger.session.sweep import TensorChoice

MAX_SLOT = 32767
"""The greatest number a slot can have."""
CONSTANTS = "constants are left out unless --category names them (constant)"


def add_choice(parser: argparse.ArgumentParser) -> None:
    """The options ``--side``, ``--slot`` and ``--category``."""
    group = parser.add_argument_group("which tensors of a node")
    group.add_argument("--side", choices=("in", "out", "all"), default="all", help="inputs, outputs or both (default)")
    group.add_argument("--slot", type=spans, metavar="N", help="inputs or outputs by number, for example 0,2-3")
    group.add_argument(
        "--category",
        metavar="WORD",
        help="only nodes of these categories, for example weight,gradient; " + CONSTANTS,
    )


def choice_of(arguments: argparse.Namespace) -> TensorChoice:
    """What the options choose.

    Raises:
        TdbgError: no category is called so.
    """
    from tui_debugger.model import CATEGORY_WORDS, Side
    from tui_debugger.session.sweep import TensorChoice

    words = [word.strip().lower() for word in (arguments.category or "tensor").split(",")]
    for word in words:
        if word not in CATEGORY_WORDS:
            raise TdbgError(
                f"no category is called {word!r}",
                where=f"--category {arguments.category}",
                hint="one of " + ", ".join(CATEGORY_WORDS),
            )
    return TensorChoice(
        side={"in": Side.INPUT, "out": Side.OUTPUT}.get(arguments.side),
        slots=None if arguments.slot is None else _slots(arguments.slot),
        categories=frozenset(category for word in words for category in CATEGORY_WORDS[word]),
    )


def _slots(wanted: Sequence[Span]) -> frozenset[int]:
    return frozenset(slot for first, last in wanted for slot in range(first, min(last, MAX_SLOT) + 1))


def nothing_chosen(path: Path) -> TdbgError:
    """The error when no tensor is left."""
    return TdbgError(
        "no tensor matches", where=str(path), hint=f"`tdbg ls` lists the nodes and what they have; {CONSTANTS}"
    )


def failure(command: str, path: Path, error: TdbgError) -> dict[str, Any]:
    """The JSON document of a command that could not do its work."""
    code = error.exit_code if isinstance(error, CancelledError) else 2
    reason = {"what": error.what, "where": error.where, "hint": error.hint}
    return {"command": command, "path": str(path), "exit_code": code, "error": reason}
