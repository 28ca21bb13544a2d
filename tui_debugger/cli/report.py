"""``tdbg report``: a Markdown report of a check, fit for a bug report."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from tui_debugger.cli.options import (
    Commands,
    add_command,
    add_recommended,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    flag,
    given_watchpoints,
    open_session,
    pairs_of,
    whole,
)
from tui_debugger.cli.output import Answer, note
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from tui_debugger.diagnose.report import Material
    from tui_debugger.model import ProgressFn

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


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "report",
        "a Markdown report of a check, for a bug report",
        DESCRIPTION,
        EPILOG,
        answer=_reported,
        judges=True,
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it to this file instead of stdout")
    flag(parser, "--force", "replace the file if it is there already")
    add_watches(parser)
    add_recommended(parser)
    parser.add_argument(
        "--max-hits",
        type=whole("a number of rows"),
        default=_HITS,
        metavar="N",
        help=f"rows of the hits table (default: {_HITS})",
    )
    flag(parser, "--full-paths", "leave your home directory in paths as it is")
    add_where(parser)
    add_work(parser)


def _reported(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger import __version__
    from tui_debugger.check.verdicts import judge
    from tui_debugger.diagnose.report import gather, material_row
    from tui_debugger.session.export_files import checked_target

    given = given_watchpoints(arguments)
    session = open_session(arguments, progress, is_text=arguments.output is not None)
    if arguments.output is not None:  # before the work, not after it
        hint = "choose another name, or --force to replace it"
        checked_target(arguments.output, Path(session.info.path), force=arguments.force, hint=hint)
    pairs = pairs_of(session, arguments)
    rules = add_watchpoints(session, given, pairs, progress, recommended=arguments.recommended or not given)
    result = session.check(pairs, progress)
    given_scope = (("--filter", arguments.filter), ("--graph", arguments.graph))
    scope = [word for pair in given_scope if pair[1] is not None for word in pair]
    material = gather(session, str(arguments.path), result, judge(result, rules=rules), progress, scope=scope)
    written = None if arguments.output is None else _write(material, arguments)
    return Answer(
        code=material.judgement.outcome.exit_code,
        verdict=material.judgement.outcome.value,
        document=lambda: {
            **material_row(material, arguments.max_hits),
            "written": written,
            "version": __version__,
        },
        show=lambda _: write_lines(*(() if written else _markdown(material, arguments).removesuffix("\n").split("\n"))),
    )


def _markdown(material: Material, arguments: Namespace) -> str:
    from tui_debugger.diagnose.report import Style, markdown

    return markdown(material, Style(arguments.max_hits, arguments.full_paths))


def _write(material: Material, arguments: Namespace) -> str:
    from tui_debugger.session.export_files import fresh_text

    written: Path = arguments.output.expanduser()
    with fresh_text(written, Path(material.info.path), force=arguments.force) as file:
        file.write(_markdown(material, arguments))
    note(f"wrote {written}")
    return str(written)
