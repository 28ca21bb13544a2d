"""``tdbg check``: watchpoints over a dump, an exit code for CI."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import add_watches, add_where, add_work, open_session, pairs_of, several_graphs, whole
from tui_debugger.cli.output import documented, interruptible, progress_bar, undecided
from tui_debugger.errors import BadWatchpointError, CancelledError, TdbgError

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Sequence

    from tui_debugger.cli.check_report import Report
    from tui_debugger.model import ProgressFn, Watchpoint
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.session.types import Pair

DESCRIPTION = """\
Checks every step and rank of a dump with watchpoints, says what was covered,
and ends with an exit code for CI. Without --watch, --watch-file and
--recommended the recommended watchpoints are used.
"""
EPILOG = """\
exit codes:
  0    clean: nothing was found in what was judged, and something was
  1    a finding; it outranks "cannot judge"
  2    cannot judge: no dump at the path, nothing looked at or compared, a
       watchpoint of --watch or --watch-file that looked at no tensor, tensors
       that could not be read or compared; a wrong argument
  130  interrupted: what was finished is printed

examples:
  tdbg check DUMP
  tdbg check DUMP --watch 'TL max_gt=9 @ category=gradient' --watch TO
  tdbg check DUMP --watch-file ci.toml --fail-on TO,TZ --step 0-99 --json
"""


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "check",
        help="check a dump with watchpoints",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="where the dump is")
    add_watches(
        parser,
        "a watchpoint, for example 'TL abs_mean_gt=0.001 @ category=gradient' (may be repeated)",
        "a TOML file of watchpoints, as the screen saves them (may be repeated)",
    )
    parser.add_argument("--recommended", action="store_true", help="add the recommended watchpoints to the given ones")
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
        help="exit code 0 although some tensors could not be read or compared",
    )
    parser.add_argument(
        "--allow-unmatched",
        action="store_true",
        help="exit code 0 although a watchpoint of --watch or --watch-file looked at no tensor",
    )
    parser.add_argument(
        "--limit",
        type=whole("a number of rows such as 20, or 0 for all"),
        default=20,
        metavar="N",
        help="rows of the table (default: 20; 0: all of them)",
    )
    add_where(parser)
    add_work(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with documented("check", arguments, undecided):
        report = _check(arguments)
    from tui_debugger.cli.check_report import print_report

    return print_report(report, arguments)


def _check(arguments: argparse.Namespace) -> Report:
    from tui_debugger.analysis.condition_table import CONDITIONS
    from tui_debugger.cli.check_report import Report
    from tui_debugger.session.verdicts import judge
    from tui_debugger.session.watch_file import watchpoints_from

    given = watchpoints_from(arguments.watch, arguments.watch_file)
    asked = bool(arguments.watch or arguments.watch_file)
    fail_on = conditions_of(arguments.fail_on)
    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress)
        pairs = pairs_of(session, arguments)
        rules = add_watchpoints(session, given, recommended=arguments.recommended or not asked)
        _check_fail_on(fail_on, session.watchpoints.enabled(), arguments.fail_on)
        result = _results(session, pairs, progress)
    judgement = judge(
        result,
        rules=rules,
        fail_on=fail_on,
        allow_unreadable=arguments.allow_unreadable,
        allow_unmatched=arguments.allow_unmatched,
    )
    return Report(
        path=arguments.path,
        result=result,
        judgement=judgement,
        pairs=len(pairs),
        recommended=arguments.recommended or not asked,
        asked=asked or arguments.recommended,
        fail_on=tuple(sorted(fail_on, key=lambda condition: CONDITIONS[condition].abbr)),
        disabled=sum(not watchpoint.enabled for watchpoint in given),
        notices=session.info.notices,
        graphs=several_graphs(session),
    )


def conditions_of(texts: Sequence[str]) -> frozenset[str]:
    """The ids of conditions in texts like ``TO,TZ``.

    Raises:
        BadWatchpointError: no condition is called so.
    """
    from tui_debugger.analysis.condition_table import by_abbr

    words = [word for text in texts for word in text.split(",")]
    try:
        return frozenset(by_abbr(word).id for word in words)
    except BadWatchpointError as error:
        raise BadWatchpointError(error.what, where=f"--fail-on {','.join(texts)}", hint=error.hint) from None


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
        if recommended:
            raise TdbgError(
                "no watchpoint is recommended for this dump: it has no tensors to watch",
                where=session.info.path,
                hint="`tdbg ls` lists the nodes",
            )
        raise TdbgError(
            "every given watchpoint is disabled", where="--watch-file", hint="enable one, or give one with --watch"
        )
    return rules


def _check_fail_on(fail_on: frozenset[str], watchpoints: Sequence[Watchpoint], texts: Sequence[str]) -> None:
    """A condition that nothing looks for would never fail: that is a mistake, not a clean check."""
    from tui_debugger.analysis.condition_table import CONDITIONS

    missing = fail_on - {watchpoint.condition for watchpoint in watchpoints}
    if missing:
        there = dict.fromkeys(CONDITIONS[watchpoint.condition].abbr for watchpoint in watchpoints)
        names = ", ".join(sorted(CONDITIONS[condition].abbr for condition in missing))
        raise TdbgError(
            f"no watchpoint has the condition {names}",
            where=f"--fail-on {','.join(texts)}",
            hint=f"the watchpoints here have {', '.join(there)}; --watch adds others",
        )


def _results(session: Session, pairs: Sequence[Pair], progress: ProgressFn) -> CheckResult:
    """Checks; Ctrl-C is raised anywhere, so what was finished is asked for again when it got lost on its way."""
    try:
        return session.check(pairs, progress)
    except CancelledError:
        finished = [pair for pair in pairs if session.known([pair]) is not None]
        known = session.known(finished)
        if known is None:
            raise
        return dataclasses.replace(known, cancelled=True)
