"""What the commands share that take watchpoints: the options, what was given, and how a session gets it."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger.errors import BadWatchpointError, TdbgError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tui_debugger.model import Watchpoint
    from tui_debugger.session import Session

_FILE: Final = "a TOML file of watchpoints, as the screen saves them (may be repeated)"


def add_watches(
    parser: argparse.ArgumentParser,
    watch: str = "a watchpoint, for example 'TL abs_mean_gt=0.001 @ category=gradient' (may be repeated)",
    watch_file: str = _FILE,
) -> None:
    """``--watch`` and ``--watch-file``, with help where a command does something else with them."""
    parser.add_argument("--watch", action="append", default=[], metavar="TEXT", help=watch)
    parser.add_argument("--watch-file", action="append", default=[], type=Path, metavar="FILE", help=watch_file)


def add_recommended(
    parser: argparse.ArgumentParser, says: str = "add the recommended watchpoints to the given ones"
) -> None:
    """``--recommended``, of the commands that judge."""
    parser.add_argument("--recommended", action="store_true", help=says)


def add_judging(parser: argparse._ActionsContainer) -> None:
    """What makes the exit code: the options of the commands for CI."""
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="TO,TZ",
        help="only findings of these conditions give exit code 1; the others are listed all the same",
    )
    parser.add_argument(
        "--allow-unreadable",
        action="store_true",
        help="exit code 0 although some tensors could not be read or compared, or parts of the dump not listed",
    )
    parser.add_argument(
        "--allow-unmatched",
        action="store_true",
        help="exit code 0 although a watchpoint of --watch or --watch-file looked at no tensor",
    )


def given_watchpoints(arguments: argparse.Namespace) -> tuple[Watchpoint, ...]:
    """What --watch and --watch-file say, disabled ones included; empty only when neither was given.

    Raises:
        BadWatchpointError: naming the text, or the file and the entry.
    """
    if not (arguments.watch or arguments.watch_file):
        return ()
    from tui_debugger.session.watch_file import watchpoints_from

    return watchpoints_from(arguments.watch, arguments.watch_file)


def enabled_watchpoints(arguments: argparse.Namespace) -> list[Watchpoint]:
    """The enabled ones of them, each once, numbered from 1.

    Raises:
        BadWatchpointError: naming the text, or the file and the entry.
        TdbgError: every one of them is disabled.
    """
    given = given_watchpoints(arguments)
    enabled = dict.fromkeys(watch for watch in given if watch.enabled)
    if given and not enabled:
        raise _disabled()
    return [dataclasses.replace(watch, id=number) for number, watch in enumerate(enabled, 1)]


def _disabled() -> TdbgError:
    return TdbgError(
        "every given watchpoint is disabled", where="--watch-file", hint="enable one, or give one with --watch"
    )


def add_watchpoints(session: Session, given: Sequence[Watchpoint], *, recommended: bool) -> frozenset[int]:
    """Fills the list of a session; returns the ids of the given ones.

    Raises:
        TdbgError: no enabled watchpoint is left.
    """
    # A disabled one must not keep the same rule, enabled elsewhere, from being added.
    session.watchpoints.add_missing(watchpoint for watchpoint in given if watchpoint.enabled)
    rules = frozenset(watchpoint.id for watchpoint in session.watchpoints.items())
    if recommended:
        session.add_recommended()
    if not len(session.watchpoints):
        if not recommended:
            raise _disabled()
        raise TdbgError(
            "no watchpoint is recommended for this dump: it has no tensors to watch",
            where=session.info.path,
            hint="`tdbg ls` lists the nodes",
        )
    return rules


def conditions_of(texts: Sequence[str]) -> frozenset[str]:
    """The ids of conditions in texts like ``TO,TZ``.

    Raises:
        BadWatchpointError: no condition is called so.
    """
    from tui_debugger.watch.condition_table import by_abbr

    words = [word for text in texts for word in text.split(",")]
    try:
        return frozenset(by_abbr(word).id for word in words)
    except BadWatchpointError as error:
        raise BadWatchpointError(error.what, where=f"--fail-on {','.join(texts)}", hint=error.hint) from None
