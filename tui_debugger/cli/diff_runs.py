"""``tdbg diff A B``: compares two runs and prints the comparison."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_debugger import __version__
from tui_debugger.cli.options import chosen, open_session
from tui_debugger.cli.output import Answer, meaning_of, note, print_doubts, print_exit, print_first, print_text
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.distance import ComparedBy, Tolerance
from tui_debugger.diagnose.runs.layouts import GivenDims, parse_dims
from tui_debugger.diagnose.runs.matching import NameMaps, parse_substitution
from tui_debugger.diagnose.runs.results import DiffFinding, NodeJudgement, Options, RunsReport, StepReport
from tui_debugger.diagnose.runs.text import (
    DESCRIBED,
    FEW,
    FINDING_COLUMNS,
    ROW_TITLES,
    counts_text,
    coverage_text,
    difference_words,
    finding_cells,
    headline_lines,
    headline_text,
    markdown_lines,
    node_rows,
    one_sided_lines,
    verdict_text,
)
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import ProgressFn, TensorKey
from tui_debugger.opener import METADATA_LIMIT, read_given
from tui_debugger.session.export_files import fresh_file
from tui_debugger.session.export_graph import write_text
from tui_debugger.text.documents import Row, plain
from tui_debugger.text.rows import key_row
from tui_debugger.text.spreadsheets import Workbook, require_openpyxl
from tui_debugger.text.tensors import stack_text
from tui_debugger.text.writer import meant

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun
    from tui_debugger.session import Session

INTERRUPTED: Final = -1
"""Stands for the exit code of an interrupted comparison, which depends on the signal."""
VERDICTS: Final = {0: "same", 1: "different", 2: "cannot_judge", INTERRUPTED: "interrupted"}
_EXITS: Final = {0: "the same, within what is expected", 1: "different", 2: "cannot judge", INTERRUPTED: "interrupted"}


def compared(arguments: Namespace, progress: ProgressFn) -> Answer:
    options = how_compared(arguments)
    whole = Namespace(**{**vars(arguments), "rank": None, "step": None})
    a, b = open_session(arguments, progress), open_session(whole, progress, Path(arguments.node))
    if any(a.nodes(rank).find(arguments.node) >= 0 for rank in a.ranks()):
        note(f"{arguments.node} is a node and a path: it is taken for the run; {arguments.node}:0 is the node")
    if arguments.rank is not None or arguments.step is not None:
        options = _restricted(options, a, arguments)
    repeat = open_session(whole, progress, arguments.noise) if arguments.noise is not None else None
    report, kinds = _compared(a, b, options, progress, repeat)
    if arguments.xlsx is not None:
        write_workbook(report, arguments.xlsx)
    if arguments.markdown is not None:
        paths = str(arguments.path), str(arguments.node)
        write_text(markdown_lines(report, kinds, paths), arguments.markdown, Path(a.info.path))
    return Answer(
        code=report.exit_code,
        verdict=VERDICTS[INTERRUPTED if report.cancelled else report.exit_code],
        document=lambda: document(report, kinds, arguments),
        csv=lambda: (ROW_TITLES, _rows(report)),
        show=lambda _: print_report(report, kinds, arguments),
    )


def _compared(
    a: Session, b: Session, options: Options, progress: ProgressFn, repeat: Session | None
) -> tuple[RunsReport, list[tuple[str, str]]]:
    """Compares. After Ctrl-C the report covers the steps that were compared until then."""
    so_far: list[RunsReport] = []
    try:
        report = compare_runs(a, b, options, progress, repeat=repeat, so_far=so_far.append)
        return report, [difference_words(report, finding) for finding in report.findings[:DESCRIBED]]
    except CancelledError:
        if not so_far:
            raise CancelledError("interrupted: no step was compared yet") from None
        report = replace(so_far[-1], cancelled=True)
        return report, [("", "")] * len(report.findings[:DESCRIBED])


def how_compared(arguments: Namespace) -> Options:
    """Returns the options of the comparison. Raises TdbgError for a wrong text or mapping file."""
    substitutions = tuple(parse_substitution(text) for text in arguments.map_name)
    options = Options(NameMaps(substitutions), tuple(arguments.map_step), tuple(arguments.map_rank))
    dims = tuple(parse_dims(text) for text in arguments.dims)
    if arguments.map_file is not None:
        given = _mapping_file(arguments.map_file)
        substitutions = (*options.maps.substitutions, *(parse_substitution(text) for text in given["names"]))
        steps = (*options.steps, *((int(one), int(other)) for one, other in given["steps"].items()))
        ranks = (*options.ranks, *((int(one), int(each)) for one, other in given["ranks"].items() for each in other))
        options = Options(NameMaps(substitutions, given["nodes"]), steps, ranks)
        dims += tuple(parse_dims(f"{nodes}={how}") for nodes, how in given["dims"].items())
    tolerance = None
    if arguments.rtol or arguments.atol or arguments.type_tolerance:
        tolerance = Tolerance(arguments.rtol, arguments.atol, tuple(arguments.type_tolerance))
    return replace(options, tolerance=tolerance, dims=GivenDims(dims))


def _mapping_file(path: Path) -> Row:
    """Reads ``{"nodes": {A: B}, "names": ["s/a/b/"], "steps": {"0": 1}, "ranks": {"0": [0, 1]}, "dims": {"*": "0"}}``.

    A list of ranks shares one tensor. Raises TdbgError if the file cannot be read or has another form.
    """
    hint = 'a JSON object with "nodes", "names", "steps", "ranks" or "dims", such as {"nodes": {"fc1": "dense1"}}'
    try:
        given = json.loads(read_given(path, METADATA_LIMIT))
        nodes, names = dict(given.get("nodes", {})), list(given.get("names", []))
        steps, dims = dict(given.get("steps", {})), dict(given.get("dims", {}))
        ranks = {
            one: list(other) if isinstance(other, list) else [other]
            for one, other in dict(given.get("ranks", {})).items()
        }
        numbers = (*steps, *steps.values(), *ranks, *(each for others in ranks.values() for each in others))
        whole = all(int(each) >= 0 for each in numbers)
        texts = all(isinstance(each, str) for each in (*nodes, *nodes.values(), *names, *dims.values()))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TdbgError(f"no mapping can be read: {error}", where=f"--map-file {path}", hint=hint) from None
    unknown = set(given) - {"nodes", "names", "steps", "ranks", "dims"}
    if unknown or not whole or not texts:
        what = f"unknown key {min(unknown)!r}" if unknown else "names and dims are texts, steps and ranks numbers"
        raise TdbgError(f"no mapping can be read: {what}", where=f"--map-file {path}", hint=hint)
    return {"nodes": nodes, "names": names, "steps": steps, "ranks": ranks, "dims": dims}


def _restricted(options: Options, session: Session, arguments: Namespace) -> Options:
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    steps = chosen(arguments.step, (step for rank in ranks for step in session.steps(rank)), "step")
    return replace(
        options,
        only_ranks=frozenset(ranks) if arguments.rank is not None else None,
        only_steps=frozenset(steps) if arguments.step is not None else None,
    )


# -- for people --------------------------------------------------------------------------------------


def print_report(report: RunsReport, kinds: Sequence[tuple[str, str]], arguments: Namespace) -> None:
    for text in report.notes:
        note(text)
    code = report.exit_code
    outcome = INTERRUPTED if report.cancelled else code
    verdict = meant(verdict_text(report), meaning_of(outcome))
    lines = headline_lines(report, kinds)
    if report.findings:
        print_text("where differences begin (what only passes them on is left out):")
        print_first(FINDING_COLUMNS, report.findings, finding_cells, arguments.top)
        print_text("")
    for text in one_sided_lines(report):
        print_text(text)
    print_doubts(report.doubts, FEW)
    print_text(counts_text(report), coverage_text(report), *lines, verdict)
    print_exit(code, _EXITS[outcome])


# -- for machines ------------------------------------------------------------------------------------


def document(report: RunsReport, kinds: Sequence[tuple[str, str]], arguments: Namespace) -> Row:
    findings = [
        finding_row(report, finding, kinds[place] if place < len(kinds) else ("", ""))
        for place, finding in enumerate(report.findings)
    ]
    return {
        "other": str(arguments.node),
        "cancelled": report.cancelled,
        "headline": findings[0] if findings else None,
        "findings": findings,
        "coverage": coverage_row(report),
        "nodes": [row for row in node_rows(report) if row["judgement"] != "same"],
        "only_here": [each for step in report.steps for each in _one_sided_rows(step, 0)],
        "only_there": [each for step in report.steps for each in _one_sided_rows(step, 1)],
        "reasons": [{"kind": "uncomparable", "text": text} for text in report.doubts],
        "notices": list(report.notes),
        "version": __version__,
    }


def finding_row(report: RunsReport, finding: DiffFinding, kind: tuple[str, str]) -> Row:
    distance = finding.distance
    return {
        "node": finding.name,
        "there_node": finding.other_name or None,
        "kind": finding.kind.word,
        "difference_kind": kind[0] or None,
        "text": headline_text(finding, kind),
        "rank": finding.place.rank_a,
        "step": finding.place.step_a,
        "there_rank": finding.place.rank_b,
        "there_step": finding.place.step_b,
        "here": _tensor_row(report.runs[0], finding.keys[0]),
        "there": _tensor_row(report.runs[1], finding.keys[1]),
        "distance": plain(distance.relative) if distance is not None else None,
        "input_distance": plain(finding.given),
        "times_expected": plain(finding.times),
        "differing": distance.differing if distance is not None else None,
        "count": distance.count if distance is not None else None,
        "index": list(distance.worst) if distance is not None and distance.values else None,
        "values": [plain(each) for each in distance.values] if distance is not None and distance.values else None,
        "read_by": finding.consumer or None,
        "joined": (distance.joined or None) if distance is not None else None,
        "wrong_side": ("here", "there")[finding.side] if finding.side >= 0 else None,
        "stack": _stack(report, finding),
    }


def _stack(report: RunsReport, finding: DiffFinding) -> list[str]:
    side, row = (0, finding.row_a) if finding.row_a >= 0 else (1, finding.row_b)
    return list(stack_text(report.runs[side].nodes(finding.place[side]).stack(row))) if row >= 0 else []


def _tensor_row(run: DiagnosedRun, key: TensorKey | None) -> Row | None:
    if key is None:
        return None
    spec = run.spec(key)
    return {**key_row(key), "file": Path(spec.path).name if spec is not None else None}


def coverage_row(report: RunsReport) -> Row:
    compared = report.compared
    counts = Counter(judged.judgement for step in report.steps for judged in step.judged)
    rules = Counter(judged.match.rule.word for step in report.steps for judged in step.judged)
    return {
        "by_values": compared.get(ComparedBy.VALUES, 0),
        "by_statistics": compared.get(ComparedBy.STATISTICS, 0),
        "by_hashes": compared.get(ComparedBy.HASHES, 0),
        "not_compared": compared.get(ComparedBy.NOT, 0),
        "judgements": {each.name.lower(): counts[each] for each in NodeJudgement},
        "matched_by": dict(rules),
        "made_of": [
            {
                "node": each.made,
                "side": ("here", "there")[each.side],
                "sources": list(each.sources),
                "wrong": each.wrong or None,
                "text": each.text,
            }
            for step in report.steps
            for each in step.converted
        ],
        "steps_asked": report.asked,
        "joined": dict(sum((Counter(step.joined) for step in report.steps), Counter())),
        "steps": [
            dict(zip(("rank", "there_rank", "step", "there_step"), step.place, strict=True))
            | {"ranks": list(step.ranks[0]), "there_ranks": list(step.ranks[1])}
            for step in report.steps
        ],
    }


def _one_sided_rows(step: StepReport, side: int) -> Iterator[Row]:
    for one in step.one_sided:
        if one.side == side:
            place = {"rank": step.place[side], "step": step.place[2 + side]}
            yield {**place, "node": one.name, "covered_by": one.covered or None}


def _rows(report: RunsReport) -> Iterator[Iterable[object]]:
    return ([row[title] for title in ROW_TITLES] for row in node_rows(report))


def write_workbook(report: RunsReport, path: Path) -> None:
    """Writes the table of nodes as a sheet. Raises TdbgError if openpyxl is missing or the file cannot be written."""
    require_openpyxl(path, "use --csv")
    with fresh_file(path, Path(report.runs[0].info.path), what="the workbook") as file:
        book = Workbook({"nodes": ROW_TITLES})
        for row in _rows(report):
            book.append("nodes", row)
        book.save(file)
