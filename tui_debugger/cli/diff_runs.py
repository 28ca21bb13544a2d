"""``tdbg diff A B``: two runs side by side. The comparison, and how it is printed."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tui_debugger import __version__
from tui_debugger.arrays import Array
from tui_debugger.cli.options import chosen, open_session
from tui_debugger.cli.output import (
    interruptible,
    note,
    print_above,
    print_exit,
    print_json,
    print_table,
    print_text,
    progress_bar,
)
from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.distance import Distance, How, Tolerance
from tui_debugger.diagnose.runs.kinds import kind_of_difference, kind_of_update
from tui_debugger.diagnose.runs.matching import NameMaps, parse_substitution
from tui_debugger.diagnose.runs.results import Finding, Judged, Judgement, Kind, Options, RunsReport, StepReport
from tui_debugger.errors import TdbgError
from tui_debugger.model import TensorKey
from tui_debugger.session.export_files import fresh_file
from tui_debugger.session.export_graph import cell_text, has_openpyxl, write_text
from tui_debugger.stats.dtypes import canonical_name
from tui_debugger.text import markdown
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import plain
from tui_debugger.text.numbers import NONE, number, plural
from tui_debugger.text.rows import key_row
from tui_debugger.text.tables import Column, Cut
from tui_debugger.text.tensors import shape_text, stack_text
from tui_debugger.text.writer import Meaning, meant, write_data

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import Run
    from tui_debugger.session import Session

VERDICTS: Final = {0: "same", 1: "different", 2: "cannot_judge"}
_MEANINGS: Final = {0: Meaning.CLEAN, 1: Meaning.FINDING, 2: Meaning.DOUBT}
_EXITS: Final = {0: "the same, within what is expected", 1: "different", 2: "cannot judge"}
_FEW: Final = 10
"""Doubts and nodes of one run only that are listed for people."""
_DESCRIBED: Final = 20
"""Findings whose values are looked at to tell what kind of difference they have."""

_WHAT: Final = {
    Kind.INTRODUCED: "its inputs agree and its output does not",
    Kind.RANDOM: "its inputs agree and its output does not",
    Kind.ARGUMENT: "it is called with other arguments",
    Kind.PARAMETER: "a parameter differs",
    Kind.INPUT: "an input differs that no recorded node made",
    Kind.UPDATE: "a parameter was updated differently",
    Kind.MISSING: "one run leaves out a call",
    Kind.REGION: "what one run has in between makes the difference",
}


def run(arguments: argparse.Namespace) -> int:
    """Compares, prints, and returns the exit code."""
    with progress_bar() as bar, interruptible(bar) as progress:
        options = _options(arguments)
        a = open_session(arguments.path, arguments, progress)
        b = open_session(
            Path(arguments.node), argparse.Namespace(**{**vars(arguments), "rank": None, "step": None}), progress
        )
        if any(a.nodes(rank).find(arguments.node) >= 0 for rank in a.ranks()):
            note(f"{arguments.node} is a node and a path: it is taken for the run; {arguments.node}:0 is the node")
        if arguments.rank is not None or arguments.step is not None:
            options = _restricted(options, a, arguments)
        report = compare_runs(a, b, options, progress)
        kinds = [difference_words(report, finding) for finding in report.findings[:_DESCRIBED]]
    if arguments.xlsx is not None:
        write_workbook(report, arguments.xlsx)
    if arguments.markdown is not None:
        write_text(markdown_lines(report, kinds, arguments), arguments.markdown, Path(a.info.path))
    if arguments.json:
        print_json({"command": "diff", "path": str(arguments.path), **document(report, kinds, arguments)})
    elif arguments.csv:
        write_csv(report)
    else:
        print_report(report, kinds, arguments)
    return report.exit_code


def _options(arguments: argparse.Namespace) -> Options:
    substitutions = tuple(parse_substitution(text) for text in arguments.map_name)
    pairs: dict[str, str] = {}
    steps, ranks = list(arguments.map_step), list(arguments.map_rank)
    if arguments.map_file is not None:
        given = _mapping_file(arguments.map_file)
        pairs = given["nodes"]
        substitutions += tuple(parse_substitution(text) for text in given["names"])
        steps += [(int(one), int(other)) for one, other in given["steps"].items()]
        ranks += [(int(one), int(other)) for one, other in given["ranks"].items()]
    tolerance = None
    if arguments.rtol or arguments.atol or arguments.type_tolerance:
        tolerance = Tolerance(arguments.rtol, arguments.atol, tuple(arguments.type_tolerance))
    return Options(NameMaps(substitutions, pairs), tuple(steps), tuple(ranks), tolerance=tolerance)


def _mapping_file(path: Path) -> dict[str, Any]:
    """Reads ``{"nodes": {A: B}, "names": ["s/../../"], "steps": {"0": 1}, "ranks": {"0": 1}}``.

    Raises:
        TdbgError: it cannot be read, or is something else.
    """
    hint = 'a JSON object with "nodes", "names", "steps" or "ranks", such as {"nodes": {"fc1": "dense1"}}'
    try:
        given = json.loads(path.read_text("utf-8"))
        nodes, names = dict(given.get("nodes", {})), list(given.get("names", []))
        numbers = [dict(given.get(key, {})) for key in ("steps", "ranks")]
        whole = all(int(one) >= 0 and int(other) >= 0 for each in numbers for one, other in each.items())
        texts = all(isinstance(each, str) for each in (*nodes, *nodes.values(), *names))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TdbgError(f"no mapping can be read: {error}", where=f"--map-file {path}", hint=hint) from None
    unknown = set(given) - {"nodes", "names", "steps", "ranks"}
    if unknown or not whole or not texts:
        what = f"unknown key {min(unknown)!r}" if unknown else "names are texts, steps and ranks numbers"
        raise TdbgError(f"no mapping can be read: {what}", where=f"--map-file {path}", hint=hint)
    return {"nodes": nodes, "names": names, "steps": numbers[0], "ranks": numbers[1]}


def number_pair(text: str) -> tuple[int, int]:
    """Parses ``0:1``."""
    one, colon, other = text.partition(":")
    if not colon or not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in (one, other)):
        msg = f"{text!r} is not two numbers such as 0:1"
        raise argparse.ArgumentTypeError(msg)
    return int(one), int(other)


def type_tolerance(text: str) -> tuple[str, float, float]:
    """Parses ``bfloat16=1e-2,1e-3``: type, relative and absolute tolerance."""
    name, equals, values = text.partition("=")
    relative, _, absolute = values.partition(",")
    try:
        found = canonical_name(name), float(relative), float(absolute or 0)
    except ValueError:
        found = "", 0.0, 0.0
    if not (equals and found[0] and 0 <= found[1] < float("inf") and 0 <= found[2] < float("inf")):
        msg = f"{text!r} is not a type with tolerances such as bfloat16=1e-2,1e-3"
        raise argparse.ArgumentTypeError(msg)
    return found


def _restricted(options: Options, session: Session, arguments: argparse.Namespace) -> Options:
    ranks = chosen(arguments.rank, session.ranks(), "rank")
    steps = chosen(arguments.step, (step for rank in ranks for step in session.steps(rank)), "step")
    return replace(
        options,
        only_ranks=frozenset(ranks) if arguments.rank is not None else None,
        only_steps=frozenset(steps) if arguments.step is not None else None,
    )


def difference_words(report: RunsReport, finding: Finding) -> tuple[str, str]:
    """Returns what kind of difference a finding has: a word and a sentence."""
    if finding.keys[0] is None or finding.keys[1] is None or finding.distance is None:
        return "", ""
    if finding.distance.how is not How.VALUES:
        return "", ""
    try:
        arrays = [run.read(key) for run, key in zip(report.runs, finding.keys, strict=True) if key is not None]
    except (TdbgError, OSError):
        return "", ""
    unit = finding.distance.unit
    if finding.kind is Kind.UPDATE and (update := _update_words(report, finding, arrays, unit))[0]:
        return update
    return kind_of_difference(arrays[0], arrays[1], unit)


def _update_words(report: RunsReport, finding: Finding, now: Sequence[Array], unit: float) -> tuple[str, str]:
    """What kind of difference there is between the steps that a parameter made."""
    then = []
    for run, key in zip(report.runs, finding.keys, strict=True):
        before = run.before(key) if key is not None else None
        try:
            then.append(run.read(before) if before is not None else None)
        except (TdbgError, OSError):
            return "", ""
    if then[0] is None or then[1] is None:
        return "", ""
    return kind_of_update((then[0], then[1]), (now[0], now[1]), unit)


# -- words that every form shares --------------------------------------------------------------------


def headline_text(finding: Finding, kind: tuple[str, str]) -> str:
    """Returns the answer in a sentence."""
    place = finding.place
    rank = f"rank {place.rank_a} " if place.rank_a else ""
    step = f"{rank}step {place.step_a}"
    words = [finding.text or _WHAT[finding.kind]]
    if kind[1]:
        words.append(kind[1])
    if finding.side >= 0:
        words.append(f"{'AB'[finding.side]} is wrong")
    return f"{finding.name} at {step}: {'; '.join(words)}"


def _times_text(times: float) -> str:
    return NONE if not times else "inf" if times == float("inf") else f"{number(float(f'{times:.3g}'))}×"


def counts_text(report: RunsReport) -> str:
    """Returns how many nodes were compared, and with what result."""
    counts = Counter(judged.judgement for step in report.steps for judged in step.judged)
    words = {
        Judgement.SAME: "the same",
        Judgement.ROUNDING: "differ by rounding",
        Judgement.INHERITED: "pass a difference on",
        Judgement.INSIDE: "differ by what runs inside",
        Judgement.INTRODUCED: "introduce one",
        Judgement.UNPROVEN: "differ, inputs not known",
        Judgement.NOT_COMPARED: "not compared",
    }
    total = plural(sum(counts.values()), "node")
    return f"{total}: " + ", ".join(f"{counts[each]} {text}" for each, text in words.items() if counts[each])


def coverage_text(report: RunsReport) -> str:
    """Returns what was compared."""
    compared = report.compared
    values, statistics = compared.get(How.VALUES, 0), compared.get(How.STATISTICS, 0)
    pairs = sorted({(step.place.rank_a, step.place.step_a) for step in report.steps})
    text = f"compared {plural(values, 'pair')} of tensors by their values"
    if statistics:
        text += f", {statistics} by statistics only (equal statistics do not prove equal values)"
    if compared.get(How.HASHES):
        text += f", {compared[How.HASHES]} by hashes"
    if compared.get(How.NOT):
        text += f", {compared[How.NOT]} could not be compared"
    one_sided = Counter(one.side for step in report.steps for one in step.one_sided)
    if one_sided:
        text += f"; only in A: {one_sided[0]}, only in B: {one_sided[1]}"
    return f"{text}; {plural(len(pairs), 'step')} of {plural(len({rank for rank, _ in pairs}), 'rank')}"


def verdict_text(report: RunsReport) -> str:
    """Returns the verdict in a line."""
    if report.findings:
        return f"different: {plural(len(report.findings), 'difference')} not passed on"
    return f"cannot judge: {report.doubts[0]}" if report.doubts else "the same, within what is expected"


# -- for people --------------------------------------------------------------------------------------

_FINDING_COLUMNS: Final = (
    Column("step", right=True, weight=9),
    Column("rank", right=True),
    Column("kind", weight=8),
    Column("distance", right=True, weight=7),
    Column("of inputs", right=True),
    Column("error/expected", right=True, weight=8),
    Column("node", cut=Cut.MIDDLE, weight=10),
)


def print_report(report: RunsReport, kinds: Sequence[tuple[str, str]], arguments: argparse.Namespace) -> None:
    """Prints everything, from the answer down."""
    for text in report.notes:
        note(text)
    code = report.exit_code
    verdict = meant(verdict_text(report), _MEANINGS[code])
    lines = headline_lines(report, kinds)
    print_above(verdict, *lines, code=code, words=_EXITS[code])
    if report.findings:
        print_text("where differences begin (what only passes them on is left out):")
        shown = report.findings[: arguments.top or None]
        print_table(_FINDING_COLUMNS, (_finding_cells(each) for each in shown))
        if len(report.findings) > len(shown):
            print_text(f"{len(report.findings) - len(shown)} more (--top 0 lists all)")
        print_text("")
    for text in _one_sided_lines(report):
        print_text(text)
    for doubt in report.doubts[:_FEW]:
        print_text(meant(f"doubt: {doubt}", Meaning.DOUBT))
    if len(report.doubts) > _FEW:
        print_text(f"{len(report.doubts) - _FEW} more doubts (--json lists them)")
    print_text(counts_text(report), coverage_text(report), *lines, verdict)
    print_exit(code, _EXITS[code])


def headline_lines(report: RunsReport, kinds: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the first difference: what, by how much, both values, where in the program."""
    finding = report.headline
    if finding is None:
        return []
    lines = [headline_text(finding, kinds[0])]
    distance = finding.distance
    if distance is not None and distance.compared:
        lines.append(
            f"  distance {number(distance.relative)}, of its inputs {number(finding.given)}, "
            f"error / expected {_times_text(finding.times)}"
        )
        if distance.values is not None and distance.worst:
            index = ", ".join(map(str, distance.worst))
            lines.append(f"  at [{index}]: {distance.values[0]:.9g} in A, {distance.values[1]:.9g} in B")
    if finding.consumer:
        lines.append(f"  read first by {clean(finding.consumer)}")
    side, row = (0, finding.row_a) if finding.row_a >= 0 else (1, finding.row_b)
    nodes = report.runs[side].nodes(finding.place[side])
    lines += [f"  {text}" for text in stack_text(nodes.stack(row))]
    return [clean(line) for line in lines]


def _finding_cells(finding: Finding) -> tuple[str, ...]:
    distance = finding.distance
    return (
        str(finding.place.step_a),
        str(finding.place.rank_a),
        finding.kind.word,
        number(distance.relative) if distance is not None else NONE,
        number(finding.given),
        _times_text(finding.times),
        finding.name,
    )


def _one_sided_lines(report: RunsReport) -> Iterator[str]:
    for side, name in ((0, "A"), (1, "B")):
        found: dict[str, list[int]] = {}
        covered: dict[str, str] = {}
        for step in report.steps:
            for one in step.one_sided:
                if one.side == side:
                    found.setdefault(one.name, []).append(step.place[2 + side])
                    covered[one.name] = one.covered
        for text in list(found)[:_FEW]:
            steps = ", ".join(map(str, dict.fromkeys(found[text])))
            yield clean(f"only in {name}: {text} (step {steps}): {covered[text] or 'nothing around it tells'}")
        if len(found) > _FEW:
            yield f"only in {name}: {len(found) - _FEW} more (--json lists them)"


# -- for machines ------------------------------------------------------------------------------------


def document(report: RunsReport, kinds: Sequence[tuple[str, str]], arguments: argparse.Namespace) -> dict[str, Any]:
    """The JSON document."""
    findings = [
        finding_row(report, finding, kinds[place] if place < len(kinds) else ("", ""))
        for place, finding in enumerate(report.findings)
    ]
    return {
        "other": str(arguments.node),
        "verdict": VERDICTS[report.exit_code],
        "exit_code": report.exit_code,
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


def finding_row(report: RunsReport, finding: Finding, kind: tuple[str, str]) -> dict[str, Any]:
    """A finding for JSON."""
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
        "wrong_side": ("here", "there")[finding.side] if finding.side >= 0 else None,
        "stack": _stack(report, finding),
    }


def _stack(report: RunsReport, finding: Finding) -> list[str]:
    side, row = (0, finding.row_a) if finding.row_a >= 0 else (1, finding.row_b)
    return list(stack_text(report.runs[side].nodes(finding.place[side]).stack(row))) if row >= 0 else []


def _tensor_row(run: Run, key: TensorKey | None) -> dict[str, Any] | None:
    if key is None:
        return None
    spec = run.spec(key)
    return {**key_row(key), "file": Path(spec.path).name if spec is not None else None}


def coverage_row(report: RunsReport) -> dict[str, Any]:
    """What was compared, for JSON."""
    compared = report.compared
    counts = Counter(judged.judgement for step in report.steps for judged in step.judged)
    rules = Counter(judged.match.rule.value for step in report.steps for judged in step.judged)
    return {
        "by_values": compared.get(How.VALUES, 0),
        "by_statistics": compared.get(How.STATISTICS, 0),
        "by_hashes": compared.get(How.HASHES, 0),
        "not_compared": compared.get(How.NOT, 0),
        "judgements": {each.name.lower(): counts[each] for each in Judgement},
        "matched_by": dict(rules),
        "steps": [
            dict(zip(("rank", "there_rank", "step", "there_step"), step.place, strict=True)) for step in report.steps
        ],
    }


ROW_TITLES: Final = (
    *("rank", "step", "node", "there_node", "matched_by", "doubtful", "judgement", "slot"),
    *("dtype", "there_dtype", "shape", "distance", "input_distance", "times_expected", "differing", "count"),
    *("here_value", "there_value", "why"),
)
"""The columns of the table of nodes, and keys of its rows."""


def node_rows(report: RunsReport) -> Iterator[dict[str, Any]]:
    """Yields a row for every pair of nodes and step."""
    for step in report.steps:
        tables = [run.nodes(rank) for run, rank in zip(report.runs, step.place[:2], strict=True)]
        for judged in step.judged:
            names = tables[0].names[judged.match.a], tables[1].names[judged.match.b]
            yield dict(zip(ROW_TITLES, _node_cells(step, judged, names), strict=True))


def _node_cells(step: StepReport, judged: Judged, names: tuple[str, str]) -> tuple[Any, ...]:
    worst = judged.worst or Distance(How.NOT)
    values = worst.values or (None, None)
    return (
        step.place.rank_a,
        step.place.step_a,
        *names,
        judged.match.rule.value,
        judged.match.doubtful,
        judged.judgement.name.lower(),
        judged.slot,
        *worst.types,
        shape_text(worst.shapes[0]) if worst.shapes else None,
        plain(judged.dy),
        plain(judged.dx),
        plain(judged.times),
        worst.differing,
        worst.count,
        plain(values[0]),
        plain(values[1]),
        judged.why or None,
    )


def _one_sided_rows(step: StepReport, side: int) -> Iterator[dict[str, Any]]:
    for one in step.one_sided:
        if one.side == side:
            place = {"rank": step.place[side], "step": step.place[2 + side]}
            yield {**place, "node": one.name, "covered_by": one.covered or None}


def write_csv(report: RunsReport) -> None:
    """Writes the table of nodes to stdout as CSV."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(ROW_TITLES)
    for row in node_rows(report):
        out.writerow([_safe(row[title]) for title in ROW_TITLES])
    write_data(text.getvalue(), flush=True)


def _safe(value: object) -> str:
    return cell_text(clean(value) if isinstance(value, str) else value)


def write_workbook(report: RunsReport, path: Path) -> None:
    """Writes the table of nodes as a sheet of a workbook.

    Raises:
        TdbgError: openpyxl is missing; the file exists, lies inside the run, or cannot be written.
    """
    if not has_openpyxl():
        raise TdbgError(
            "writing .xlsx needs openpyxl, which is not installed",
            where=str(path),
            hint="pip install 'tui_debugger[xlsx]', or use --csv",
        )
    from openpyxl import Workbook

    with fresh_file(path, Path(report.runs[0].info.path), what="the workbook") as file:
        book = Workbook(write_only=True)
        page = book.create_sheet("nodes")
        page.append(list(ROW_TITLES))
        for row in node_rows(report):
            cells = [row[title] for title in ROW_TITLES]
            page.append([_safe(each) if isinstance(each, str) else each for each in cells])
        book.save(file)


def markdown_lines(
    report: RunsReport, kinds: Sequence[tuple[str, str]], arguments: argparse.Namespace
) -> Iterator[str]:
    """Yields a report in Markdown, for an issue or a chat."""
    yield "# Two runs compared"
    yield ""
    for name, path in (("A", arguments.path), ("B", arguments.node)):
        yield f"* {name}: {markdown.code(markdown.without_homes(str(path)))}"
    yield ""
    yield f"**{markdown.prose(verdict_text(report))}**"
    yield ""
    yield from markdown.fenced(headline_lines(report, kinds)) if report.findings else ()
    yield ""
    if report.findings:
        titles = [column.title for column in _FINDING_COLUMNS]
        cells = (_finding_cells(each) for each in report.findings[:_DESCRIBED])
        rows = ([*map(markdown.prose, row[:-1]), markdown.code(row[-1])] for row in cells)
        yield from markdown.table(titles, rows, right=("step", "rank", "distance", "of inputs", "error/expected"))
        yield ""
    yield markdown.prose(counts_text(report))
    yield ""
    yield markdown.prose(coverage_text(report))
    for title, lines in (
        ("Only in one run", list(_one_sided_lines(report))),
        ("Doubts", list(report.doubts[:_DESCRIBED])),
    ):
        if lines:
            yield ""
            yield f"## {title}"
            yield ""
            yield from (f"* {markdown.prose(line)}" for line in lines)
