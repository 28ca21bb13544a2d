"""``tdbg report``: a Markdown report of a check, fit for a bug report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    add_command,
    add_recommended,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    given_watchpoints,
    open_session,
    pairs_of,
    whole,
)
from tui_debugger.cli.output import documented, interruptible, judged_head, note, print_json, progress_bar, undecided
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from tui_debugger.diagnose.report import Material

DESCRIPTION = """\
Checks a dump as tdbg check does and writes a Markdown report to paste into a
bug report: run and coverage, where it begins with statistics and source lines,
how it spread, the hits, and what usually causes them with the numbers of this
run.
"""
EPILOG = """\
Your home directory becomes ~ unless --full-paths is given. The report
stays below 60,000 characters, which an issue takes; it says what it left out.

exit codes: as of tdbg check

examples:
  tdbg report DUMP > report.md
  tdbg report DUMP --watch 'TL max_gt=9 @ category=gradient' -o report.md
"""
_HITS = 50


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "report",
        "a Markdown report of a check, for a bug report",
        DESCRIPTION,
        EPILOG,
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it to this file instead of stdout")
    parser.add_argument("--force", action="store_true", help="replace the file if it is there already")
    add_watches(parser)
    add_recommended(parser)
    parser.add_argument(
        "--max-hits",
        type=whole("a number of rows"),
        default=_HITS,
        metavar="N",
        help=f"rows of the hits table (default: {_HITS})",
    )
    parser.add_argument("--full-paths", action="store_true", help="leave your home directory in paths as it is")
    add_where(parser)
    add_work(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with documented("report", arguments, undecided):
        material = _gathered(arguments)
        return _write(material, arguments)


def _gathered(arguments: argparse.Namespace) -> Material:
    from tui_debugger.check.verdicts import judge
    from tui_debugger.diagnose.report import gather
    from tui_debugger.session.export_files import checked_target

    given = given_watchpoints(arguments)
    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress, is_text=arguments.output is not None)
        if arguments.output is not None:  # before the work, not after it
            hint = "choose another name, or --force to replace it"
            checked_target(arguments.output, Path(session.info.path), force=arguments.force, hint=hint)
        pairs = pairs_of(session, arguments)
        rules = add_watchpoints(session, given, pairs, progress, recommended=arguments.recommended or not given)
        result = session.check(pairs, progress)
        given_scope = (("--filter", arguments.filter), ("--graph", arguments.graph))
        scope = [word for pair in given_scope if pair[1] is not None for word in pair]
        return gather(session, str(arguments.path), result, judge(result, rules=rules), progress, scope=scope)


def _write(material: Material, arguments: argparse.Namespace) -> int:
    from tui_debugger import __version__
    from tui_debugger.diagnose.report import Style, markdown, material_row
    from tui_debugger.session.export_files import fresh_text

    written = None
    if arguments.output is not None or not arguments.json:
        text = markdown(material, Style(arguments.max_hits, arguments.full_paths))
        if arguments.output is None:
            write_lines(*text.removesuffix("\n").split("\n"))
        else:
            written = arguments.output.expanduser()
            with fresh_text(written, Path(material.info.path), force=arguments.force) as file:
                file.write(text)
            note(f"wrote {written}")
    if arguments.json:
        print_json(
            {
                **judged_head("report", arguments.path, material.judgement.outcome),
                **material_row(material, arguments.max_hits),
                "written": str(written) if written is not None else None,
                "version": __version__,
            }
        )
    return material.judgement.outcome.exit_code
