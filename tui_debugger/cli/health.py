"""``tdbg health``: a map with steps across and scopes down; each cell shows the worst result in a glyph."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    MAP_NAMES,
    MAP_ROWS,
    add_command,
    add_map_rows,
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
from tui_debugger.cli.output import (
    documented,
    doubt_lines,
    interruptible,
    judged_head,
    note,
    print_above,
    print_exit,
    print_json,
    print_text,
    progress_bar,
    undecided,
)
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    import numpy as np
    import numpy.typing as npt

    from tui_debugger.check.verdicts import CheckJudgement
    from tui_debugger.diagnose.health import HealthMap
    from tui_debugger.model import UnreadablePart
    from tui_debugger.text.writer import Pieces

DESCRIPTION = """\
A map of a dump: steps across, scopes and nodes down, and one glyph for the
worst that was found there, so that one look shows when it began and where it
spread. Without --watch, --watch-file and --recommended it looks for NaN and
Inf.
"""
EPILOG = """\
exit codes: as of tdbg check

Where there are more steps than columns, neighbouring steps share one: the worst
stands, so that no NaN is hidden. Several ranks are merged in the same way.
"""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A map, and the judgement of the checks behind it."""

    map: HealthMap
    judgement: CheckJudgement
    notices: tuple[str, ...]
    parts: tuple[UnreadablePart, ...] = ()
    limits: tuple[str, ...] = ()


def register(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "health",
        "a map of all steps and scopes: where it is bad",
        DESCRIPTION,
        EPILOG,
    )
    add_map_rows(parser)
    parser.add_argument(
        "--width",
        type=whole("a number of cells from 20 to 100000", 20, 100_000),
        metavar="N",
        help="cells of a line (default: those of the terminal)",
    )
    add_watches(
        parser,
        "look for this instead of NaN and Inf, for example 'TL max_gt=100 @ category=gradient' (may be repeated)",
    )
    add_recommended(parser, "look for what the recommended watchpoints find")
    add_where(parser)
    add_work(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with documented("health", arguments, undecided):
        report = _made(arguments)

    code = report.judgement.outcome.exit_code
    for notice in report.notices:
        note(notice)
    entries = _entries(report.map, arguments)
    if arguments.json:
        print_json(_document(report, entries, arguments))
    else:
        _print(report, entries, arguments)
    return code


def _made(arguments: argparse.Namespace) -> HealthReport:
    from tui_debugger.check.verdicts import judge
    from tui_debugger.diagnose.health import HealthChecks, health

    given = given_watchpoints(arguments)
    with progress_bar() as bar, interruptible(bar) as progress:
        session = open_session(arguments.path, arguments, progress)
        pairs = pairs_of(session, arguments)
        rules: frozenset[int] = frozenset()
        if given or arguments.recommended:
            rules = add_watchpoints(session, given, pairs, progress, recommended=arguments.recommended)
        checks = HealthChecks(session)
        result = checks.check(pairs, progress)
    # What was finished is shown, also after Ctrl-C.
    made = health(session, checks, pairs)
    return HealthReport(
        made, judge(result, rules=rules), session.info.notices, result.coverage.parts, session.info.limits
    )


def _entries(map_: HealthMap, arguments: argparse.Namespace) -> npt.NDArray[np.int64]:
    from tui_debugger.diagnose.health import rows_of

    shown = map_.noteworthy(map_.ranks) if arguments.bad else map_.shown
    return rows_of(map_, shown, depth=arguments.depth, flat=arguments.nodes, most=MAP_ROWS)


def _print(report: HealthReport, entries: npt.NDArray[np.int64], arguments: argparse.Namespace) -> None:
    from tui_debugger.check.verdicts import Outcome
    from tui_debugger.cli.check_report import OUTCOMES
    from tui_debugger.diagnose.health import map_parts, watched_lines
    from tui_debugger.text.health import glyph_pieces, legend_pieces, legend_text
    from tui_debugger.text.tables import GAP, cut_middle, width_of
    from tui_debugger.text.writer import meant, terminal_of

    map_, outcome, terminal = report.map, report.judgement.outcome, terminal_of()
    covered, code = map_.covered_text(), outcome.exit_code
    doubts = doubt_lines(doubt.text for doubt in report.judgement.doubts)
    if terminal is not None:
        verdict = {Outcome.FINDING: "FINDINGS", Outcome.CANNOT_JUDGE: "cannot judge"}.get(outcome, outcome.value)
        covered = meant(f"{verdict}: {covered}", OUTCOMES[outcome])
        print_above(covered, *doubts, code=code)
    room = max((arguments.width or shutil.get_terminal_size().columns) - MAP_NAMES, 10)
    lines: list[Pieces] = []
    for cells, name in map_parts(map_, entries, map_.ranks, room, flat=arguments.nodes):
        left = terminal.columns - width_of(cells + GAP) if terminal is not None and not arguments.width else None
        shown = name if left is None else cut_middle(name, left)
        lines.append((*(glyph_pieces(cells) if lines else (cells,)), GAP, shown))
    write_lines(*(lines or [("no row to show" + (": nothing was found" if arguments.bad else ""),)]))
    legend = legend_text(room + MAP_NAMES if terminal is None else min(room + MAP_NAMES, terminal.columns))
    write_lines("", legend_pieces(legend))
    print_text(*watched_lines(map_), covered)
    if map_.coverage.by_design:
        print_text(f"Inf by design: {map_.coverage.by_design:,} (masks that their consumers absorb): no findings")
    print_text(*doubts)
    print_exit(code)


def _document(report: HealthReport, entries: npt.NDArray[np.int64], arguments: argparse.Namespace) -> dict[str, Any]:
    from tui_debugger import __version__
    from tui_debugger.diagnose.health import map_rows
    from tui_debugger.text.documents import row_of, rows_of
    from tui_debugger.text.rows import coverage_row, part_rows, watch_row

    map_, judgement = report.map, report.judgement
    return {
        **judged_head("health", arguments.path, judgement.outcome),
        "reasons": rows_of(judgement.doubts, "kind", "text"),
        "unreadable": part_rows(report.parts),
        "watchpoints": [watch_row(each) for each in map_.watchpoints],
        "by_default": map_.by_default,
        "coverage": {**coverage_row(map_.coverage), "pairs_asked": len(map_.pairs)},
        **row_of(map_, "findings", "ranks", "steps"),
        "rows": [
            {"path": path, "scope": scope, "cells": cells} for path, scope, cells in map_rows(map_, entries, map_.ranks)
        ],
        **row_of(report, "notices", "limits"),
        "version": __version__,
    }
