"""Which tensors of the chosen nodes a command is about: side, slot, category."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import Span, spans
from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.model import Category
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
        action="append",
        default=[],
        metavar="WORD",
        help="only nodes of these categories, for example weight,gradient (may be repeated); " + CONSTANTS,
    )


def choice_of(arguments: argparse.Namespace) -> TensorChoice:
    """What the options choose.

    Raises:
        TdbgError: no category is called so.
    """
    from tui_debugger.model import CATEGORY_WORDS, Side
    from tui_debugger.session.sweep import TensorChoice

    categories = categories_of(arguments.category)
    return TensorChoice(
        side={"in": Side.INPUT, "out": Side.OUTPUT}.get(arguments.side),
        slots=None if arguments.slot is None else _slots(arguments.slot),
        categories=categories or CATEGORY_WORDS["tensor"],
    )


def categories_of(texts: Sequence[str]) -> frozenset[Category]:
    """The categories in texts like ``weight,gradient``; none for no text.

    Raises:
        TdbgError: no category is called so.
    """
    from tui_debugger.model import CATEGORY_WORDS

    words = [word.strip().lower() for text in texts for word in text.split(",")]
    for word in words:
        if word not in CATEGORY_WORDS:
            raise TdbgError(
                f"no category is called {word!r}",
                where=f"--category {','.join(texts)}",
                hint="one of " + ", ".join(CATEGORY_WORDS),
            )
    return frozenset(category for word in words for category in CATEGORY_WORDS[word])


def _slots(wanted: Sequence[Span]) -> frozenset[int]:
    return frozenset(slot for first, last in wanted for slot in range(first, min(last, MAX_SLOT) + 1))


def nothing_chosen(path: Path) -> TdbgError:
    """The error when no tensor is left."""
    return TdbgError(
        "no tensor matches", where=str(path), hint=f"`tdbg ls` lists the nodes and what they have; {CONSTANTS}"
    )
