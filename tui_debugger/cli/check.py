"""``tdbg check``: watchpoints over a dump, an exit code for CI."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_judging,
    add_limit,
    add_recommended,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    conditions_of,
    given_watchpoints,
    open_pairs,
    several_graphs,
)
from tui_debugger.errors import CancelledError, TdbgError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tui_debugger.check.types import Pair
    from tui_debugger.cli.output import Answer
    from tui_debugger.model import ProgressFn, Watchpoint
    from tui_debugger.session import CheckResult, Session

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
       that could not be read or compared, a part of the dump that could not
       be listed; a wrong argument
  130  interrupted: what was finished is printed

examples:
  tdbg check DUMP
  tdbg check DUMP --watch 'TL max_gt=9 @ category=gradient' --watch TO
  tdbg check DUMP --watch-file ci.toml --fail-on TO,TZ --step 0-99 --json
"""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "check",
        "check a dump with watchpoints",
        DESCRIPTION,
        EPILOG,
        answer=_check,
        judges=True,
        several=True,
    )
    add_watches(parser)
    add_recommended(parser)
    add_judging(parser)
    add_limit(parser, "rows of the table")
    add_where(parser)
    add_work(parser)


def _check(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.check.verdicts import judge
    from tui_debugger.cli.check_report import CheckReport, answer
    from tui_debugger.watch.condition_table import CONDITIONS

    given = given_watchpoints(arguments)
    recommended = arguments.recommended or not given
    fail_on = conditions_of(arguments.fail_on)
    session, pairs = open_pairs(arguments, progress)
    rules = add_watchpoints(session, given, pairs, progress, recommended=recommended)
    _check_fail_on(fail_on, session.watchpoints.enabled(), arguments.fail_on)
    result = _results(session, pairs, progress)
    judgement = judge(
        result,
        rules=rules,
        fail_on=fail_on,
        allow_unreadable=arguments.allow_unreadable,
        allow_unmatched=arguments.allow_unmatched,
    )
    report = CheckReport(
        result=result,
        judgement=judgement,
        pairs=len(pairs),
        recommended=recommended,
        asked=bool(given) or arguments.recommended,
        fail_on=tuple(sorted(fail_on, key=lambda condition: CONDITIONS[condition].abbr)),
        disabled=sum(not watchpoint.enabled for watchpoint in given),
        notices=session.info.notices,
        inventory=session.inventory,
        limits=session.info.limits,
        graphs=several_graphs(session),
        notes={pair: notes for pair in result.pairs if (notes := session.notes_at(*pair))},
    )
    return answer(report, arguments)


def _check_fail_on(fail_on: frozenset[str], watchpoints: Sequence[Watchpoint], texts: Sequence[str]) -> None:
    """Raises TdbgError if no watchpoint has a condition of ``--fail-on``: such a check could never fail."""
    from tui_debugger.watch.condition_table import CONDITIONS

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
    """Checks. After Ctrl-C it returns the finished part, which the session kept."""
    try:
        return session.check(pairs, progress)
    except CancelledError:
        finished = [pair for pair in pairs if session.known([pair]) is not None]
        known = session.known(finished)
        if known is None:
            raise
        return dataclasses.replace(known, cancelled=True)
