"""``tdbg audit``: computes every known operator again from its recorded inputs and names wrong outputs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.cli.options import Commands, add_command, add_top, add_where, add_work, flag, open_pairs
from tui_debugger.cli.output import Answer, meaning_of, print_doubts, print_exit, print_first, print_table, print_text
from tui_debugger.errors import TdbgError
from tui_debugger.text.documents import Row
from tui_debugger.text.tables import Column, Cut
from tui_debugger.text.writer import Meaning, meant

if TYPE_CHECKING:
    from tui_debugger.diagnose.audit import AuditFinding, AuditReport
    from tui_debugger.model import ProgressFn
    from tui_debugger.session import Session

DESCRIPTION = """\
Computes every known operator again, in float64 from its own recorded inputs,
and names each whose recorded output no rounding explains: a kernel that
computes wrong, silent corruption, a tensor that was written over before it was
saved, a value of an earlier step, a missing update. No second run is needed. r
is the distance in what rounding explains: up to 3 in healthy runs, wrong from 6
on.
"""
EPILOG = """\
exit codes:
  0    no known operator is wrong
  1    an operator is wrong
  2    nothing could be audited, not all of what --require names, or a part of
       the dump could not be read
  130  interrupted

examples:
  tdbg audit DUMP
  tdbg audit DUMP --step 3 --filter attention
  tdbg audit DUMP --require matmul,linear --json

tdbg help audit says what is computed for each kind of operator.
"""
_EXITS: Final = {
    0: "no known operator is wrong",
    1: "an operator is wrong",
    2: "cannot judge",
}
_FEW: Final = 20
"""The number of findings, and of doubts, that are listed for people."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "audit",
        "compute every operator again: which is wrong",
        DESCRIPTION,
        EPILOG,
        answer=_audited,
        judges=True,
    )
    parser.add_argument("--node", metavar="NODE", help="only this node: its id, the end of it, or a part only it has")
    parser.add_argument(
        "--require",
        metavar="KINDS",
        default="",
        help="kinds of operators, for example matmul,linear, all of which must be checked: else the exit code is 2",
    )
    add_top(parser, "findings", _FEW)
    flag(parser, "--csv", "a row for every finding on stdout")
    parser.add_argument("--xlsx", type=Path, metavar="FILE", help="findings and coverage as a workbook")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="a report for an issue or a chat")
    add_where(parser)
    add_work(parser)


def _audited(arguments: Namespace, progress: ProgressFn) -> Answer:
    from tui_debugger.session.auditing import audit_session

    if arguments.executor is not None:
        raise TdbgError(
            "the audit does not work on a cluster",
            where=f"--executor {arguments.executor}",
            hint="--jobs says how many threads work; --rank and --step divide the run among machines",
        )
    session, pairs = open_pairs(arguments, progress)
    nodes = None
    if arguments.node is not None:
        from tui_debugger.session.naming import find_in

        nodes = {find_in(session, dict.fromkeys(rank for rank, _ in pairs), arguments.node, progress).node}
    required = tuple(dict.fromkeys(each.strip() for each in arguments.require.split(",") if each.strip()))
    report = audit_session(session, pairs, progress, nodes=nodes, required=required)
    if arguments.xlsx is not None:
        write_workbook(report, session, arguments.xlsx)
    if arguments.markdown is not None:
        from tui_debugger.session.export_graph import write_text

        write_text(markdown_lines(report, session, arguments), arguments.markdown, Path(session.info.path))
    return Answer(
        code=report.exit_code,
        verdict={0: "clean", 1: "finding", 2: "cannot_judge"}[report.exit_code],
        notices=session.info.notices,
        document=lambda: document(report, session),
        csv=lambda: (TITLES, _rows(report, session)),
        show=lambda code: print_report(report, session, arguments, code),
    )


# -- for people --------------------------------------------------------------------------------------


_FINDING_COLUMNS: Final = (
    Column("step", right=True, weight=9),
    Column("rank", right=True),
    Column("kind", weight=8),
    Column("r", right=True, weight=8),
    Column("at", weight=4),
    Column("expected", right=True, weight=6),
    Column("found", right=True, weight=6),
    Column("fault", weight=7),
    Column("node", cut=Cut.MIDDLE, weight=10),
)
_COVERAGE_COLUMNS: Final = (
    Column("operator", weight=9),
    Column("checked", right=True, weight=9),
    Column("wrong", right=True, weight=8),
    Column("largest r", right=True, weight=5),
    Column("not checked", right=True, weight=9),
    Column("why", weight=6),
)


def print_report(report: AuditReport, session: Session, arguments: Namespace, code: int) -> None:
    from tui_debugger.diagnose.audit import (
        coverage_cells,
        coverage_text,
        finding_cells,
        headline_lines,
        verdict_text,
    )

    verdict, lines = meant(verdict_text(report), meaning_of(code)), headline_lines(report, session)
    if report.findings:
        print_text("operators whose output is wrong, in execution order:")
        print_first(_FINDING_COLUMNS, report.findings, finding_cells, arguments.top)
        print_text("")
    if report.coverage:
        print_table(_COVERAGE_COLUMNS, (coverage_cells(each) for each in report.coverage))
        print_text("")
    for kind, why in report.missing:
        print_text(meant(f"required: {kind}: {why}", Meaning.DOUBT))
    print_doubts(report.doubts, _FEW)
    print_text(coverage_text(report), *lines, verdict)
    print_exit(code, _EXITS[code])


# -- for machines ------------------------------------------------------------------------------------


def document(report: AuditReport, session: Session) -> Row:
    from tui_debugger import __version__
    from tui_debugger.text.documents import plain, row_of
    from tui_debugger.text.rows import part_rows

    pairs = report.pairs
    findings = [finding_row(each, session) for each in report.findings]
    headline = report.headline
    reasons = [{"kind": "uncomparable", "text": f"{kind}: {why}"} for kind, why in report.missing]
    reasons += [{"kind": "unreadable", "text": text} for text in report.doubts]
    if not report.checked:
        reasons.append({"kind": "nothing", "text": "no operator could be checked"})
    return {
        "headline": findings[report.findings.index(headline)] if headline is not None else None,
        "findings": findings,
        "coverage": {
            **row_of(report, "checked", "not_checked", "nbytes"),
            "ranks": sorted({rank for rank, _ in pairs}),
            "steps": sorted({step for _, step in pairs}),
            "operators": [
                {
                    **row_of(each, "kind", "known", "checked", "wrong"),
                    "largest_r": plain(each.largest),
                    "not_checked": each.not_checked,
                    "why": [{"text": reason, "count": count} for reason, count in each.left.most_common()],
                }
                for each in report.coverage
            ],
        },
        "required": [{"kind": kind, "text": why} for kind, why in report.missing],
        "reasons": reasons,
        "unreadable": part_rows(session.unreadable(pairs)),
        "notices": list(session.info.notices),
        "limits": list(session.info.limits),
        "version": __version__,
    }


def finding_row(finding: AuditFinding, session: Session) -> Row:
    from tui_debugger.diagnose.audit import headline_text
    from tui_debugger.text.documents import row_of
    from tui_debugger.text.rows import key_row
    from tui_debugger.text.tensors import stack_text

    check = finding.check
    return {
        "node": finding.name,
        **row_of(finding, "rank", "step", "kind", "fault"),
        "difference_kind": check.difference[0] or None,
        "text": headline_text(finding),
        "tensor": key_row(finding.key) if finding.key is not None else None,
        **row_of(check, "slot", "r", "element_r"),
        "index": list(check.worst),
        **row_of(check, "expected", "found"),
        "inputs_sound": finding.sound,
        "shown_by": list(finding.shown_by),
        "stack": list(stack_text(session.nodes(finding.rank).stack(finding.row))),
    }


TITLES: Final = (
    *("rank", "step", "node", "kind", "fault", "slot", "r", "element_r", "index", "expected", "found"),
    *("inputs_sound", "difference_kind", "text"),
)
"""The columns of the table of findings, and the keys of its rows."""
COVERAGE_TITLES: Final = ("operator", "known", "checked", "wrong", "largest_r", "not_checked", "why")


def _rows(report: AuditReport, session: Session) -> Iterator[list[Any]]:
    from tui_debugger.text.tensors import index_text

    for finding in report.findings:
        row = {**finding_row(finding, session), "index": index_text(finding.check.worst)}
        yield [row[title] for title in TITLES]


def write_workbook(report: AuditReport, session: Session, path: Path) -> None:
    """Writes findings and coverage as sheets. Raises TdbgError if openpyxl is missing or the file cannot be written."""
    from tui_debugger.diagnose.audit import coverage_cells
    from tui_debugger.session.export_files import fresh_file
    from tui_debugger.text.spreadsheets import Workbook, require_openpyxl

    require_openpyxl(path, "use --csv")
    with fresh_file(path, Path(session.info.path), what="the workbook") as file:
        book = Workbook({"findings": TITLES, "coverage": COVERAGE_TITLES})
        for row in _rows(report, session):
            book.append("findings", row)
        for each in report.coverage:
            counts = (each.known, each.checked, each.wrong, each.largest, each.not_checked)
            book.append("coverage", (each.kind, *counts, coverage_cells(each)[-1]))
        book.save(file)


def markdown_lines(report: AuditReport, session: Session, arguments: Namespace) -> Iterator[str]:
    """Yields the report in Markdown, for an issue or a chat."""
    from tui_debugger.diagnose.audit import (
        coverage_cells,
        coverage_text,
        finding_cells,
        headline_lines,
        verdict_text,
    )
    from tui_debugger.text import markdown

    yield "# Audit"
    yield ""
    yield f"{markdown.code(markdown.with_tilde(str(arguments.path)))}"
    yield ""
    yield f"**{markdown.prose(verdict_text(report))}**"
    yield ""
    if report.findings:
        yield from markdown.fenced(headline_lines(report, session))
        yield ""
        titles = [column.title for column in _FINDING_COLUMNS]
        rows = (finding_cells(each) for each in report.findings[: arguments.top or None])
        cells = ([*map(markdown.prose, row[:-1]), markdown.code(row[-1])] for row in rows)
        yield from markdown.table(titles, cells, right=("step", "rank", "r", "expected", "found"))
        yield ""
    yield markdown.prose(coverage_text(report))
    yield ""
    titles = [column.title for column in _COVERAGE_COLUMNS]
    coverage = ([markdown.prose(cell) for cell in coverage_cells(each)] for each in report.coverage)
    yield from markdown.table(titles, coverage, right=("checked", "wrong", "largest r", "not checked"))
    doubts = [*(f"required: {kind}: {why}" for kind, why in report.missing), *report.doubts[:_FEW]]
    if doubts:
        yield ""
        yield "## Doubts"
        yield ""
        yield from (f"* {markdown.prose(each)}" for each in doubts)
