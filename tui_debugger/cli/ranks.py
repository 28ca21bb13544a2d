"""``tdbg ranks``: a map with ranks across and scopes down: the rank that broke first, and replicas that differ."""

from __future__ import annotations

import math
import shutil
from argparse import Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tui_debugger.cli.options import (
    MAP_NAMES,
    MAP_ROWS,
    Commands,
    add_command,
    add_map_rows,
    add_watches,
    add_watchpoints,
    add_where,
    add_work,
    flag,
    given_path,
    given_watchpoints,
    open_pairs,
)
from tui_debugger.cli.output import Answer, doubt_lines, meaning_of, print_exit, print_text
from tui_debugger.text.numbers import first_of
from tui_debugger.text.writer import write_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tui_debugger.arrays import Int64, UInt8
    from tui_debugger.diagnose.health import HealthMap
    from tui_debugger.diagnose.ranks.grid import RankValues
    from tui_debugger.diagnose.ranks.report import RankReport
    from tui_debugger.model import ProgressFn
    from tui_debugger.text.writer import Pieces

DESCRIPTION = """\
Compares the ranks of a run: which one broke first and where, which weights,
reduced gradients and outputs of collective operations differ that must be
equal, and which gradient was not reduced. Ranks are across, scopes down.

How ranks share the work is read where it was recorded, else inferred from
which weights are equal; the answer says which of the two. Of two ranks that
differ none is blamed, but one with a weight that its optimizer did not make:
it says which one changed since they were equal.
"""
EPILOG = """\
exit codes:
  0    clean: ranks were compared, nothing differs, no NaN or Inf
  1    a finding: NaN or Inf, ranks that differ where they must not, or, with
       --against, ranks that differ from another run
  2    cannot judge: one rank, nothing that must be equal was dumped, tensors
       that could not be read; a wrong argument
  130  interrupted

examples:
  tdbg ranks DUMP
  tdbg ranks DUMP --stat norm --step 3 --nodes --filter 'layers\\.0'
  tdbg ranks DUMP --against OLD_DUMP
  tdbg ranks hostA/dump hostB/dump
"""
SHOWN = ("verdict", "replicas", "norm", "mean", "abs_mean", "std", "min", "max", "zero_percentage", "nan", "inf")
"""See ``diagnose.ranks.grid.SHOWN``, which needs numpy."""
FEW = 8
"""Up to this number of ranks each rank has a column of numbers."""
_LEAST_NAME = 12
"""Cells for names beside numbers on a terminal: below this, levels replace numbers."""


@dataclass(frozen=True, slots=True)
class ShownRanks:
    """The answer that is printed.

    ``shown`` names the content of cells, see ``SHOWN``. ``step`` is the step of the numbers; None: the worst of all.
    ``hosts`` maps ranks to their directories if there are several.
    """

    report: RankReport
    map: HealthMap
    shown: str
    step: int | None
    values: RankValues | None
    hosts: dict[int, str]


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "ranks",
        "many ranks: which broke first, which differ",
        DESCRIPTION,
        EPILOG,
        answer=_made,
        judges=True,
        several=True,
    )
    parser.add_argument(
        "--stat",
        choices=SHOWN,
        metavar="NAME",
        help=f"what cells show: {', '.join(SHOWN)} (default: verdict; replicas where ranks differ and nothing else is "
        "found, but not with --json and --csv)",
    )
    parser.add_argument(
        "--against",
        type=given_path,
        metavar="DUMP",
        help="also look on every rank for the first tensor that differs there",
    )
    add_map_rows(parser)
    flag(parser, "--csv", "a row for every node and scope on stdout")
    add_watches(
        parser,
        "look for this instead of NaN and Inf, for example 'TL max_gt=100 @ category=gradient' (may be repeated)",
    )
    add_where(parser)
    add_work(parser)


def _made(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger import __version__
    from tui_debugger.check.verdicts import judge
    from tui_debugger.diagnose.health import HealthChecks, health
    from tui_debugger.diagnose.ranks.grid import STATISTICS, rank_values
    from tui_debugger.diagnose.ranks.replicas import compare_ranks
    from tui_debugger.diagnose.ranks.report import compare_with, rank_report
    from tui_debugger.text.documents import row_of

    given = given_watchpoints(arguments)
    session, pairs = open_pairs(arguments, progress)
    rules = add_watchpoints(session, given, recommended=False) if given else frozenset[int]()
    checks = HealthChecks(session)
    result = checks.check(pairs, progress)
    replicas = compare_ranks(session, pairs, progress)
    against = None
    if arguments.against is not None:
        other = session.another(arguments.against)
        arguments.at_exit.callback(other.close)
        against = compare_with(session, other, str(arguments.against), pairs, progress)
    report = rank_report(result, judge(result, rules=rules), replicas, against)
    made = health(session, checks, pairs)
    step, values = None, None
    shown = arguments.stat or _default_cells(arguments, report)
    if shown != "verdict":
        steps = [finding.step for finding in report.findings if finding.step in made.steps]
        step = (steps or made.steps)[0]
    if shown in STATISTICS and step is not None:
        values = rank_values(session, made, step, shown, progress)
    info = session.info
    grid = ShownRanks(report, made, shown, step, values, session.hosts())
    entries = _entries(grid, arguments)
    return Answer(
        code=report.outcome.exit_code,
        verdict=report.outcome.value,
        notices=info.notices,
        document=lambda: {
            **_document(grid, entries),
            **row_of(info, "notices", "limits"),
            "version": __version__,
        },
        csv=lambda: _csv(grid, entries),
        show=lambda code: _print(grid, entries, arguments, code),
    )


def _default_cells(arguments: Namespace, report: RankReport) -> str:
    """Returns the default content of cells: findings for people, a constant choice for programs."""
    only_differ = report.replicas.found and not report.first_bad
    return "replicas" if only_differ and not (arguments.json or arguments.csv) else "verdict"


def _entries(grid: ShownRanks, arguments: Namespace) -> Int64:
    from tui_debugger.diagnose.health import rows_of
    from tui_debugger.diagnose.ranks.grid import noteworthy

    map_ = grid.map
    shown = noteworthy(map_, grid.report.replicas) & map_.shown if arguments.bad else map_.shown
    every = arguments.csv and arguments.depth is None
    return rows_of(map_, shown, depth=99 if every else arguments.depth, flat=arguments.nodes, most=MAP_ROWS)


def _codes(grid: ShownRanks, entries: Int64) -> UInt8:
    """[entry, rank] of the shown codes."""
    import numpy as np

    from tui_debugger.diagnose.ranks.grid import replica_codes

    map_ = grid.map
    if grid.values is not None:
        return grid.values.levels(entries)
    if grid.shown == "replicas":
        return replica_codes(map_, grid.report.replicas, grid.step or 0)[entries]
    codes: UInt8 = np.concatenate(
        [map_.cells(entries, map_.steps, (rank,)).max(axis=1, keepdims=True) for rank in map_.ranks], axis=1
    )
    return codes


def _words(grid: ShownRanks, entries: Int64) -> list[list[str | float | None]]:
    """The cells for programs: numbers, or words."""
    from tui_debugger.diagnose.ranks.grid import NOT_FINITE, REPLICA_WORDS
    from tui_debugger.stats.health import Health
    from tui_debugger.text.documents import plain

    if grid.values is not None:
        numbers, marks = grid.values.numbers[entries].tolist(), grid.values.marks[entries].tolist()
        return [
            [
                plain(None if math.isnan(number) and mark != NOT_FINITE else number)
                for number, mark in zip(*row, strict=True)
            ]
            for row in zip(numbers, marks, strict=True)
        ]
    codes = _codes(grid, entries).tolist()
    if grid.shown == "replicas":
        return [[REPLICA_WORDS[code] for code in row] for row in codes]
    return [[Health(code).name.lower() for code in row] for row in codes]


def _print(grid: ShownRanks, entries: Int64, arguments: Namespace, code: int) -> None:
    from tui_debugger.check.verdicts import Outcome
    from tui_debugger.diagnose.health import watched_lines
    from tui_debugger.diagnose.ranks.report import compared_text, finding_lines
    from tui_debugger.text.clean import clean
    from tui_debugger.text.writer import meant, terminal_of

    report, map_ = grid.report, grid.map
    headline = meant(report.headline, meaning_of(code))
    findings = finding_lines(report)
    if terminal_of() is None:
        print_text(headline)
    if len(findings) > 1:
        print_text(*findings)
    print_text(f"layout: {report.replicas.layout}")
    for rank in map_.ranks[:MAP_ROWS] if grid.hosts or report.replicas.layout.told_by.value == "recorded" else ():
        where = [clean(grid.hosts[rank])] if rank in grid.hosts else []
        print_text(f"  rank {rank}: {', '.join(filter(None, (*where, report.replicas.layout.place_text(rank))))}")
    write_lines("")
    write_lines(*_grid_lines(grid, entries, flat=arguments.nodes))
    write_lines("")
    print_text(*watched_lines(map_), map_.covered_text(), compared_text(report.replicas))
    print_text(*(f"note: {each}" for each in report.replicas.notes))
    if report.replicas.apart:
        apart = first_of([*map(clean, report.replicas.apart)], 4)
        print_text(f"note: {apart} differ from the start: parts of a larger weight, or wrong; which was not recorded")
    if report.outcome is not Outcome.CLEAN:
        print_text(*doubt_lines(report.doubts))
    if terminal_of() is not None:
        print_text(headline)  # the grid has scrolled the first line away
    print_exit(code)


def _grid_lines(grid: ShownRanks, entries: Int64, *, flat: bool) -> list[Pieces]:
    """The grid: cells first, then names that are cut in the middle at the width of the terminal."""
    import numpy as np

    from tui_debugger.diagnose.health import entry_name
    from tui_debugger.diagnose.ranks.grid import LEVEL_GLYPHS, REPLICA_GLYPHS
    from tui_debugger.stats.health import Health, even_bounds, worst_of_groups
    from tui_debugger.text.health import (
        GLYPHS,
        column_width,
        glyph_pieces,
        header,
        legend_pieces,
        legend_text,
        span_text,
    )
    from tui_debugger.text.numbers import number
    from tui_debugger.text.tables import GAP, cut_middle, fold, width_of
    from tui_debugger.text.writer import terminal_of

    map_, ranks, terminal = grid.map, grid.map.ranks, terminal_of()
    names = [
        ("" if flat else "  " * int(map_.tree.depth[entry])) + entry_name(map_, entry, flat=flat)
        for entry in entries.tolist()
    ]
    if not len(entries) or not ranks:
        return [("no row to show",)]
    step = "" if grid.step is None else f" at step {grid.step}"

    def line(cells: Pieces, said: str) -> Pieces:
        left = None if terminal is None else max(terminal.columns - width_of("".join(cells) + GAP), 0)
        return (*cells, GAP, said if left is None else cut_middle(said, left))

    texts: list[list[str]] = []
    if grid.values is not None and len(ranks) <= FEW:
        texts = [[number(each) for each in row] for row in grid.values.numbers[entries].tolist()]
    width = max((len(text) + len(GAP) for row in texts for text in row), default=0)
    width = max(width, 8)
    if texts and (terminal is None or width * len(ranks) + len(GAP) + _LEAST_NAME <= terminal.columns):
        lines = [line(("".join(f"rank {rank}".rjust(width) for rank in ranks),), f"{grid.shown}{step}")]
        lines += [line(("".join(t.rjust(width) for t in row),), name) for row, name in zip(texts, names, strict=True)]
        return lines
    room = max(shutil.get_terminal_size().columns - MAP_NAMES, 10)
    bounds = even_bounds(len(ranks), room)
    groups = [ranks[first:stop] for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    labels = [span_text(group) for group in groups]
    width = column_width(labels, room)
    labels = labels if width > 2 else [str(group[0]) for group in groups]
    merged = worst_of_groups(_codes(grid, entries), np.asarray(bounds))
    if grid.values is not None:
        glyphs = list(LEVEL_GLYPHS)
        legend = "off the median of the ranks by: · nothing  ▂ 1e-4  ▄ 0.01  ▆ all of it  █ more  ! NaN/Inf  ? not read"
    elif grid.shown == "replicas":
        glyphs = list(REPLICA_GLYPHS)
        legend = "· nothing differs  ≠ differs from other ranks  × differs from most ranks"
    else:
        glyphs = [GLYPHS[health] for health in Health]
        legend = legend_text()
    title = f"rank: {grid.shown}{step}" + (
        " (several in a column, the worst is shown)" if len(groups) < len(ranks) else ""
    )
    across = width * len(labels)
    found = [line((header(labels, width, across).ljust(across),), title)]
    for row, name in zip(merged.tolist(), names, strict=True):
        found.append(line(glyph_pieces("".join(glyphs[code].ljust(width) for code in row)), name))
    return [*found, (), *fold(legend_pieces(legend), terminal, 0)]


def _csv(grid: ShownRanks, entries: Int64) -> tuple[Iterable[str], Iterable[Iterable[object]]]:
    tree = grid.map.tree
    return ("path", "scope", "shown", "step", *(f"rank {rank}" for rank in grid.map.ranks)), (
        (tree.path(entry), tree.is_scope(entry), grid.shown, grid.step, *cells)
        for entry, cells in zip(entries.tolist(), _words(grid, entries), strict=True)
    )


def _document(grid: ShownRanks, entries: Int64) -> dict[str, Any]:
    from tui_debugger.text.documents import row_of
    from tui_debugger.text.rows import coverage_row, hit_row, key_row, part_rows

    report, map_ = grid.report, grid.map
    replicas, layout = report.replicas, report.replicas.layout
    return {
        "headline": report.headline,
        "reasons": list(report.doubts),
        "layout": {
            **row_of(layout, "told_by", "why", "axes"),
            "places": [
                {"rank": rank, "axis": axis, "place": place, "size": size}
                for rank in layout.ranks
                for axis, (place, size) in layout.places.get(rank, {}).items()
            ],
            "replicas": _lists(layout.replicas),
        },
        "hosts": [{"rank": rank, "host": host} for rank, host in grid.hosts.items()],
        "findings": [
            {
                "kind": each.story.value,
                "ranks": list(each.ranks),
                **{f"tensor_{name}": value for name, value in key_row(each.key).items()},
                "text": each.text,
            }
            for each in report.findings
        ],
        "differences": [
            {
                **key_row(each.key),
                "kind": each.kind.name.lower(),
                "group": list(each.group),
                "parts": _lists(each.parts),
                **row_of(each, "outliers", "equal_at", "changed", "astray"),
                "compared_by": each.by.name.lower(),
            }
            for each in replicas.differences
        ],
        "not_reduced": [{**key_row(each.key), **row_of(each, "parameter", "group")} for each in replicas.not_reduced],
        "compared": [{"kind": kind.name.lower(), "count": count} for kind, count in replicas.compared.items()],
        "updates": {
            "compared": replicas.updated,
            "not_compared": [{**key_row(key), "why": why} for key, why in replicas.not_updated],
        },
        "compared_by": None if replicas.by is None else replicas.by.name.lower(),
        "differ_from_the_start": list(replicas.apart),
        "notes": list(replicas.notes),
        "first_bad": [hit_row(hit) for hit in report.first_bad.values()],
        "coverage": coverage_row(map_.coverage),
        "unreadable": part_rows(map_.parts),
        **row_of(map_, "ranks", "steps"),
        **row_of(grid, "shown", "step"),
        "rows": [
            {"path": map_.tree.path(entry), "scope": map_.tree.is_scope(entry), "cells": cells}
            for entry, cells in zip(entries.tolist(), _words(grid, entries), strict=True)
        ],
    }


def _lists(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(group) for group in groups]
