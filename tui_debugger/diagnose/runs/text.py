"""The results of a comparison of two runs in sentences and tables, for the screen, commands and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tui_debugger.arrays import Array
from tui_debugger.diagnose.runs.distance import WITHOUT_ONE, ComparedBy, Distance
from tui_debugger.diagnose.runs.kinds import DifferenceKind, kind_of_difference, kind_of_update
from tui_debugger.diagnose.runs.results import (
    ACTIVATION_SCALE,
    COVERED,
    NO_OUTPUT,
    DiffFinding,
    DiffKind,
    JudgedNode,
    NodeJudgement,
    Options,
    RunsReport,
    StepReport,
)
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.text import markdown
from tui_debugger.text.clean import clean
from tui_debugger.text.documents import plain
from tui_debugger.text.numbers import NONE, and_more, number, plural
from tui_debugger.text.tables import Column, Cut
from tui_debugger.text.tensors import index_text, shape_text, stack_text

FEW: Final = 10
"""The most doubts and one-sided nodes that are listed for people."""
_NAMED: Final = 3
"""The most one-sided nodes that are named although the values around them prove what they do."""
DESCRIBED: Final = 20
"""The most findings whose values are read to describe their difference."""

_WHAT: Final = {
    DiffKind.INTRODUCED: "its inputs agree and its output does not",
    DiffKind.RANDOM: "its inputs agree and its output does not",
    DiffKind.ARGUMENT: "it is called with other arguments",
    DiffKind.PARAMETER: "a parameter differs",
    DiffKind.INPUT: "an input differs that no recorded node made",
    DiffKind.UPDATE: "a parameter was updated differently",
    DiffKind.MISSING: "one run leaves out a call",
    DiffKind.REGION: "what one run has in between makes the difference",
    DiffKind.LOGGED: "the programs logged other numbers",
    DiffKind.SAVED: "the checkpoints hold other numbers beside the tensors",
}


def headline_text(finding: DiffFinding, kind: DifferenceKind) -> str:
    place = finding.place
    rank = f"rank {place.rank_a} " if place.rank_a else ""
    step = f"{rank}step {place.step_a}"
    words = [finding.text or _WHAT[finding.kind]]
    if kind[1]:
        words.append(kind[1])
    if finding.side >= 0:
        words.append(f"{'AB'[finding.side]} is wrong")
    return f"{finding.name} at {step}: {'; '.join(words)}"


def times_text(times: float) -> str:
    return NONE if not times else "inf" if times == float("inf") else f"{number(float(f'{times:.3g}'))}×"


def counts_text(report: RunsReport) -> str:
    counts = Counter(judged.judgement for step in report.steps for judged in step.judged)
    words = {
        NodeJudgement.SAME: "the same",
        NodeJudgement.ROUNDING: "differ by rounding",
        NodeJudgement.INHERITED: "pass a difference on",
        NodeJudgement.INSIDE: "differ by what runs inside",
        NodeJudgement.INTRODUCED: "introduce one",
        NodeJudgement.UNPROVEN: "differ, inputs not known",
        NodeJudgement.NOT_COMPARED: "not compared",
    }
    total = plural(sum(counts.values()), "node")
    same_statistics = sum(
        judged.judgement is NodeJudgement.SAME
        and judged.worst is not None
        and judged.worst.how is ComparedBy.STATISTICS
        for step in report.steps
        for judged in step.judged
    )
    counts[NodeJudgement.SAME] -= same_statistics
    none, around = (
        sum(judged.why == why for step in report.steps for judged in step.judged) for why in (NO_OUTPUT, COVERED)
    )
    counts[NodeJudgement.NOT_COMPARED] -= none + around
    parts = [f"{counts[each]} {text}" for each, text in words.items() if counts[each]]
    parts += [f"{same_statistics} with the same statistics"] if same_statistics else []
    parts += [f"{around} known by all around them"] if around else []
    parts += [f"{none} without an output that both dumped"] if none else []
    return f"{total}: {', '.join(parts)}" if parts else total


def coverage_text(report: RunsReport) -> str:
    compared = report.compared
    values, statistics = compared.get(ComparedBy.VALUES, 0), compared.get(ComparedBy.STATISTICS, 0)
    pairs = sorted({(step.place.rank_a, step.place.step_a) for step in report.steps})
    text = f"compared {plural(values, 'pair')} of tensors by their values"
    if statistics:
        text += f", {statistics} by statistics only (equal statistics do not prove equal values)"
    if compared.get(ComparedBy.HASHES):
        text += f", {compared[ComparedBy.HASHES]} by hashes"
    meant = [judged.worst.meant for step in report.steps for judged in step.judged if judged.worst is not None]
    if shifted := meant.count(WITHOUT_ONE):
        text += f", {plural(shifted, 'weight')} of norms that one run keeps without 1"
    if scaled := sum(map(bool, meant)) - shifted:
        text += f", {plural(scaled, 'weight')} as the elements times their scales mean, within their rounding"
    covered = sum(step.covered for step in report.steps)
    if covered:
        text += f", {covered} that neither run recorded by all around them, which agrees"
    if compared.get(ComparedBy.NOT, 0) > covered:
        text += f", {compared[ComparedBy.NOT] - covered} could not be compared"
    one_sided = Counter(one.side for step in report.steps for one in step.one_sided)
    if one_sided:
        text += f"; only in A: {one_sided[0]}, only in B: {one_sided[1]}"
    bases = Counter(judged.match.rule.basis for step in report.steps for judged in step.judged)
    bases["value"] += sum(len(step.converted) for step in report.steps)
    paired = [f"{bases[each]} by {each}" for each in ("name", "order", "value") if bases[each]]
    text = f"{text}; {plural(len(pairs), 'step')} of {plural(len({rank for rank, _ in pairs}), 'rank')}"
    return f"{text}; paired {', '.join(paired)}" if paired else text


def verdict_text(report: RunsReport) -> str:
    if report.cancelled:
        found = plural(len(report.findings), "difference") if report.findings else "no difference"
        return f"interrupted: {len(report.steps)} of {plural(report.asked, 'step')} compared; {found} so far"
    if report.findings:
        return f"different: {plural(len(report.findings), 'difference')} not passed on"
    if report.doubts:
        return f"cannot judge: {report.doubts[0]}"
    by_statistics = report.compared.get(ComparedBy.STATISTICS, 0)
    if by_statistics:
        return (
            f"no difference beyond what is expected; {plural(by_statistics, 'pair')} of tensors by statistics only, "
            "which do not prove that the values are the same"
        )
    return "the same, within what is expected"


def options_text(options: Options, repeat: str = "") -> str:
    words = [f"names by s/{old.pattern}/{new}/" for old, new, _ in options.maps.substitutions]
    words += [f"node {one} is {other}" for one, other in options.maps.pairs.items()]
    words += [f"step {one} is {other}" for one, other in options.steps]
    words += [f"rank {one} is with {other}" for one, other in options.ranks]
    words += [f"dims {pattern}: {layout.words}" for pattern, layout in options.dims.rules]
    if options.tolerance is not None:
        kinds = [("", options.tolerance.relative, options.tolerance.absolute)]
        kinds += [(f" of {name}", relative, absolute) for name, relative, absolute in options.tolerance.by_type]
        words += [f"rtol{of} {number(relative)}, atol {number(absolute)}" for of, relative, absolute in kinds]
    if repeat:
        words.append(f"noise as in {repeat}")
    return clean("; ".join(words))


def difference_words(report: RunsReport, finding: DiffFinding) -> DifferenceKind:
    """Returns the kind of a finding's difference: a word and a sentence; both may be empty."""
    if finding.keys[0] is None or finding.keys[1] is None or finding.distance is None:
        return "", ""
    if (
        finding.distance.how is not ComparedBy.VALUES
        or finding.distance.meant
        or (finding.distance.joined and min(finding.distance.replicas) < 0)
    ):
        return "", ""  # no two tensors are what differs: parts of several ranks are
    try:
        arrays = [run.read(key) for run, key in zip(report.runs, finding.keys, strict=True) if key is not None]
    except CancelledError:
        raise
    except (TdbgError, OSError):
        return "", ""
    unit = finding.distance.unit
    if finding.kind is DiffKind.UPDATE and (update := _update_words(report, finding, arrays, unit))[0]:
        return update
    return kind_of_difference(arrays[0], arrays[1], unit)


def _update_words(report: RunsReport, finding: DiffFinding, now: Sequence[Array], unit: float) -> DifferenceKind:
    then = []
    for run, key in zip(report.runs, finding.keys, strict=True):
        before = run.before(key) if key is not None else None
        try:
            then.append(run.read(before) if before is not None else None)
        except CancelledError:
            raise
        except (TdbgError, OSError):
            return "", ""
    if then[0] is None or then[1] is None:
        return "", ""
    return kind_of_update((then[0], then[1]), (now[0], now[1]), unit)


# -- for people ---

FINDING_COLUMNS: Final = (
    Column("step", right=True, weight=9),
    Column("rank", right=True),
    Column("kind", weight=8),
    Column("distance", right=True, weight=7),
    Column("of inputs", right=True),
    Column("error/expected", right=True, weight=8),
    Column("node", cut=Cut.MIDDLE, weight=10),
)


def values_text(distance: Distance) -> str:
    """Both values where two tensors differ most; integers with all digits."""
    one, other = (f"{each:.0f}" if distance.exact else f"{each:.9g}" for each in distance.values or ())
    return f"{one} in A, {other} in B"


def headline_lines(report: RunsReport, kinds: Sequence[DifferenceKind]) -> list[str]:
    finding = report.headline
    if finding is None:
        return []
    lines = [headline_text(finding, kinds[0])]
    distance = finding.distance
    if distance is not None and distance.compared:
        lines.append(
            f"  distance {number(distance.relative)}, of its inputs {number(finding.given)}, "
            f"error / expected {times_text(finding.times)}"
        )
        if distance.values is not None and distance.worst:
            lines.append(f"  at {index_text(distance.worst)}: {values_text(distance)}")
    if finding.consumer:
        lines.append(f"  read first by {clean(finding.consumer)}")
    side, row = (0, finding.row_a) if finding.row_a >= 0 else (1, finding.row_b)
    nodes = report.runs[side].nodes(finding.place[side])
    lines += [f"  {text}" for text in (stack_text(nodes.stack(row)) if row >= 0 else ())]
    return [clean(line) for line in lines]


def finding_cells(finding: DiffFinding) -> tuple[str, ...]:
    distance = finding.distance
    return (
        str(finding.place.step_a),
        str(finding.place.rank_a),
        finding.kind.word,
        number(distance.relative) if distance is not None and distance.compared else NONE,
        number(finding.given),
        times_text(finding.times),
        finding.name,
    )


def one_sided_lines(report: RunsReport) -> Iterator[str]:
    for side, name in ((0, "A"), (1, "B")):
        found: dict[str, list[int]] = {}
        covered: dict[str, str] = {}
        for step in report.steps:
            for one in step.one_sided:
                if one.side == side:
                    found.setdefault(one.name, []).append(step.place[2 + side])
                    covered[one.name] = one.covered
        proven = [text for text in found if covered[text] not in {"", ACTIVATION_SCALE}]
        if len(proven) > _NAMED:
            for text in proven:
                del found[text]
            yield clean(f"only in {name}, accounted for: {and_more(proven, _NAMED)} (--json says how)")
        for text in list(found)[:FEW]:
            steps = ", ".join(map(str, dict.fromkeys(found[text])))
            yield clean(f"only in {name}: {text} (step {steps}): {covered[text] or 'nothing around it tells'}")
        if len(found) > FEW:
            yield f"only in {name}: {len(found) - FEW} more (--json lists them)"


# -- tables ---

ROW_TITLES: Final = (
    *("rank", "step", "node", "there_node", "matched_by", "doubtful", "judgement", "slot"),
    *("dtype", "there_dtype", "shape", "distance", "input_distance", "times_expected", "noise", "differing", "count"),
    *("here_value", "there_value", "why"),
)
"""The columns of the table of nodes, and keys of its rows."""


def node_rows(report: RunsReport) -> Iterator[dict[str, Any]]:
    for step in report.steps:
        tables = [run.nodes(rank) for run, rank in zip(report.runs, step.place[:2], strict=True)]
        for judged in step.judged:
            names = tables[0].names[judged.match.a], tables[1].names[judged.match.b]
            yield dict(zip(ROW_TITLES, node_cells(step, judged, names), strict=True))


def node_cells(step: StepReport, judged: JudgedNode, names: tuple[str, str]) -> tuple[Any, ...]:
    """Returns the cells of ``ROW_TITLES``; ``names`` are those of both runs."""
    worst = judged.worst or Distance(ComparedBy.NOT)
    values = worst.values or (None, None)
    return (
        step.place.rank_a,
        step.place.step_a,
        *names,
        judged.match.rule.word,
        judged.match.doubtful,
        judged.judgement.name.lower(),
        judged.slot,
        *worst.types,
        shape_text(worst.shapes[0]) if worst.shapes else None,
        plain(judged.dy),
        plain(judged.dx),
        plain(judged.times),
        plain(worst.noise),
        worst.differing,
        worst.count,
        plain(values[0]),
        plain(values[1]),
        judged.why or None,
    )


def markdown_lines(report: RunsReport, kinds: Sequence[DifferenceKind], paths: tuple[str, str]) -> Iterator[str]:
    yield "# Two runs compared"
    yield ""
    for name, path in zip("AB", paths, strict=True):
        yield f"* {name}: {markdown.code(markdown.with_tilde(path))}"
    yield ""
    yield f"**{markdown.prose(verdict_text(report))}**"
    yield ""
    yield from markdown.fenced(headline_lines(report, kinds)) if report.findings else ()
    yield ""
    if report.findings:
        titles = [column.title for column in FINDING_COLUMNS]
        cells = (finding_cells(each) for each in report.findings[:DESCRIBED])
        rows = ([*map(markdown.prose, row[:-1]), markdown.code(row[-1])] for row in cells)
        yield from markdown.table(titles, rows, right=("step", "rank", "distance", "of inputs", "error/expected"))
        yield ""
    yield markdown.prose(counts_text(report))
    yield ""
    yield markdown.prose(coverage_text(report))
    for title, lines in (
        ("Only in one run", list(one_sided_lines(report))),
        ("Doubts", list(report.doubts[:DESCRIBED])),
    ):
        if lines:
            yield ""
            yield f"## {title}"
            yield ""
            yield from (f"* {markdown.prose(line)}" for line in lines)
