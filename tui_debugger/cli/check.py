"""``tdbg check``: watchpoints over a dump, an exit code for CI."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
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
    open_session,
    pairs_of,
    several_graphs,
)
from tui_debugger.cli.output import documented, interruptible, progress_bar, undecided
from tui_debugger.errors import CancelledError, TdbgError

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Sequence

    from tui_debugger.check.types import Pair
    from tui_debugger.cli.check_report import Report
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

with --shard: 0 where its tensors were measured, else 2; what was found is said
once tdbg merge has put the parts together, by tdbg check without --shard

examples:
  tdbg check DUMP
  tdbg check DUMP --watch 'TL max_gt=9 @ category=gradient' --watch TO
  tdbg check DUMP --watch-file ci.toml --fail-on TO,TZ --step 0-99 --json
"""


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "check",
        "check a dump with watchpoints",
        DESCRIPTION,
        EPILOG,
        several=True,
    )
    add_watches(parser)
    add_recommended(parser)
    add_judging(parser)
    jobs = parser.add_argument_group("a part of the work, for one of several jobs")
    jobs.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="only measure part I of N (1/4 ... 4/4), and write what was measured to a file for tdbg merge",
    )
    jobs.add_argument(
        "--part", type=Path, metavar="FILE", help="that file, replaced if it is there (default: tdbg-part-I-of-N)"
    )
    add_limit(parser, "rows of the table")
    add_where(parser)
    add_work(parser)
    parser.set_defaults(run=_run)


def _shard(text: str) -> tuple[int, int]:
    """Parses ``2/4``."""
    number, slash, of = text.partition("/")
    numbers = [int(each) for each in (number, of) if each.isascii() and each.isdecimal() and len(each) < 7]
    if not slash or len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1]:
        parts = f"parts are 1/{numbers[1]} to {numbers[1]}/{numbers[1]}" if len(numbers) == 2 and numbers[1] else ""
        raise argparse.ArgumentTypeError(f"{text!r} is no part: {parts or 'write I/N, such as 2/4'}")
    return numbers[0], numbers[1]


def _run(arguments: argparse.Namespace) -> int:
    if arguments.shard is not None:
        with documented("check", arguments, undecided):
            return _measure_shard(arguments)
    with documented("check", arguments, undecided):
        if arguments.part is not None:
            raise TdbgError("--part is the file of a shard", where=f"--part {arguments.part}", hint="give --shard, too")
        report = _check(arguments)
    from tui_debugger.cli.check_report import print_report

    return print_report(report, arguments)


def _measure_shard(arguments: argparse.Namespace) -> int:
    """Measures a part, writes it, and says how much that was."""
    from tui_debugger import __version__
    from tui_debugger.check.shards import IndexPart, Shard, pack_part, unpack_part
    from tui_debugger.cli.output import note, print_json, print_text
    from tui_debugger.opener import read_regular
    from tui_debugger.session.export_files import fresh_file
    from tui_debugger.text.clean import clean
    from tui_debugger.text.numbers import plural
    from tui_debugger.text.rows import part_rows
    from tui_debugger.text.tensors import place_text

    shard = Shard(*arguments.shard)
    target: Path = arguments.part or Path(f"tdbg-part-{shard.number}-of-{shard.of}")
    given = given_watchpoints(arguments)
    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress)
        pairs = pairs_of(session, arguments)
        add_watchpoints(session, given, pairs, progress, recommended=arguments.recommended or not given)
        found = session.measure_shard(pairs, shard, progress)
        parts = session.unreadable(pairs)
    run = Path(session.info.path)
    try:
        ours = not target.exists() or unpack_part(read_regular(target, 1 << 32)) is not None
    except OSError:
        ours = False
    if not ours:
        hint = "choose another one with --part"
        raise TdbgError("the file is there, and is no part of an index", where=str(target), hint=hint)
    with fresh_file(target, run, force=True, what="the part") as file:
        file.write(pack_part(IndexPart(str(run.absolute()), shard.number, shard.of, found.entries)))
    unread = [f"rank {key.rank} step {key.step} {place_text(key)}: {why}" for key, why in found.unreadable]
    code = TdbgError.exit_code if found.unreadable or parts or not found.all_tensors else 0
    if arguments.json:
        print_json(
            {
                "command": "check",
                "path": str(arguments.path),
                "exit_code": code,
                "shard": {"number": shard.number, "of": shard.of, "part": str(target)},
                "tensors": found.tensors,
                "all_tensors": found.all_tensors,
                "unreadable": part_rows(parts),
                "reasons": [{"kind": "unreadable", "text": text} for text in unread],
                "notices": list(session.info.notices),
                "version": __version__,
            }
        )
        return code
    for notice in session.info.notices:
        note(notice)
    read = found.tensors - len(found.unreadable)
    tensors = plural(found.tensors, "tensor")
    print_text(f"shard {shard}: {read:,} of {tensors} measured, of {found.all_tensors:,} in all")
    print_text(*(clean(f"cannot judge: {text}") for text in unread[:20]))
    for part in parts[:20]:
        print_text(clean(f"cannot judge: {part.where}: {part.why}"))
    print_text(clean(f"written to {target}; tdbg merge {arguments.path} PART... puts the parts together"))
    return code


def _check(arguments: argparse.Namespace) -> Report:
    from tui_debugger.check.verdicts import judge
    from tui_debugger.cli.check_report import Report
    from tui_debugger.watch.condition_table import CONDITIONS

    given = given_watchpoints(arguments)
    recommended = arguments.recommended or not given
    fail_on = conditions_of(arguments.fail_on)
    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress)
        pairs = pairs_of(session, arguments)
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
    return Report(
        path=arguments.path,
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


def _check_fail_on(fail_on: frozenset[str], watchpoints: Sequence[Watchpoint], texts: Sequence[str]) -> None:
    """A condition that nothing looks for would never fail: that is a mistake, not a clean check."""
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
    """Checks; Ctrl-C is raised anywhere, so what was finished is asked for again when it got lost on its way."""
    try:
        return session.check(pairs, progress)
    except CancelledError:
        finished = [pair for pair in pairs if session.known([pair]) is not None]
        known = session.known(finished)
        if known is None:
            raise
        return dataclasses.replace(known, cancelled=True)
