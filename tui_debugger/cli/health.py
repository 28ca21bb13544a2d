"""``tdbg health``: a map with steps across and scopes down; each cell shows the worst result in a glyph."""

from __future__ import annotations

import shutil
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    MAP_NAMES,
    MAP_ROWS,
    Commands,
    add_command,
    add_map_rows,
    add_recommended,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    given_watchpoints,
    open_pairs,
    whole,
)
from tui_debugger.cli.output import Answer, doubt_lines, meaning_of, print_exit, print_text
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from tui_debugger.arrays import Int64
    from tui_debugger.check.verdicts import CheckJudgement
    from tui_debugger.diagnose.health import HealthMap
    from tui_debugger.model import ProgressFn
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


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "health",
        "a map of all steps and scopes: where it is bad",
        DESCRIPTION,
        EPILOG,
        answer=_made,
        judges=True,
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


def _made(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger import __version__
    from tui_debugger.check.verdicts import judge
    from tui_debugger.diagnose.health import HealthChecks, health
    from tui_debugger.text.documents import row_of, rows_of
    from tui_debugger.text.rows import part_rows

    given = given_watchpoints(arguments)
    session, pairs = open_pairs(arguments, progress)
    rules: frozenset[int] = frozenset()
    if given or arguments.recommended:
        rules = add_watchpoints(session, given, pairs, progress, recommended=arguments.recommended)
    checks = HealthChecks(session)
    result = checks.check(pairs, progress)
    # What was finished is shown, also after Ctrl-C.
    map_, judgement, info = health(session, checks, pairs), judge(result, rules=rules), session.info
    entries = _entries(map_, arguments)
    return Answer(
        code=judgement.outcome.exit_code,
        verdict=judgement.outcome.value,
        notices=info.notices,
        document=lambda: {
            "reasons": rows_of(judgement.doubts, "kind", "text"),
            "unreadable": part_rows(result.coverage.parts),
            **_document(map_, entries),
            **row_of(info, "notices", "limits"),
            "version": __version__,
        },
        show=lambda code: _print(map_, judgement, entries, arguments, code),
    )


def _entries(map_: HealthMap, arguments: Namespace) -> Int64:
    from tui_debugger.diagnose.health import rows_of

    shown = map_.noteworthy(map_.ranks) if arguments.bad else map_.shown
    return rows_of(map_, shown, depth=arguments.depth, flat=arguments.nodes, most=MAP_ROWS)


def _print(
    map_: HealthMap,
    judgement: CheckJudgement,
    entries: Int64,
    arguments: Namespace,
    code: int,
) -> None:
    from tui_debugger.check.verdicts import Outcome
    from tui_debugger.diagnose.health import map_parts, watched_lines
    from tui_debugger.text.health import glyph_pieces, legend_pieces, legend_text
    from tui_debugger.text.tables import GAP, cut_middle, width_of
    from tui_debugger.text.writer import meant, terminal_of

    outcome, terminal, covered = judgement.outcome, terminal_of(), map_.covered_text()
    doubts = doubt_lines(doubt.text for doubt in judgement.doubts)
    if terminal is not None:
        verdict = {Outcome.FINDING: "FINDINGS", Outcome.CANNOT_JUDGE: "cannot judge"}.get(outcome, outcome.value)
        covered = meant(f"{verdict}: {covered}", meaning_of(code))
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


def _document(map_: HealthMap, entries: Int64) -> dict[str, Any]:
    from tui_debugger.diagnose.health import map_rows
    from tui_debugger.text.documents import row_of
    from tui_debugger.text.rows import coverage_row, watch_row

    return {
        "watchpoints": [watch_row(each) for each in map_.watchpoints],
        "by_default": map_.by_default,
        "coverage": {**coverage_row(map_.coverage), "pairs_asked": len(map_.pairs)},
        **row_of(map_, "findings", "ranks", "steps"),
        "rows": [
            {"path": path, "scope": scope, "cells": cells} for path, scope, cells in map_rows(map_, entries, map_.ranks)
        ],
    }
