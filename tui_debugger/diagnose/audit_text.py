"""The audit in words: sentences and rows of tables, the same for a terminal, a report and the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tui_debugger.diagnose.audit import AuditReport, Finding, KindCoverage
from tui_debugger.diagnose.recompute.check import NotChecked, OperatorCheck
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE, plural
from tui_debugger.text.tensors import index_text, stack_text

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import Run

_REASONS: Final = 2
"""Reasons that are listed for each kind of operator."""


def headline_text(finding: Finding) -> str:
    """Returns a finding in a sentence."""
    rank = f"rank {finding.rank} " if finding.rank else ""
    return f"{finding.name} at {rank}step {finding.step}: {finding.text}"


def headline_lines(report: AuditReport, run: Run) -> list[str]:
    """Returns the answer: what, by how much, where, expected and found value, where in the program."""
    finding = report.headline
    if finding is None:
        return []
    check = finding.check
    lines = [headline_text(finding)]
    if math.isfinite(check.r) or check.worst:
        lines.append(f"  {finding.kind}, output {check.slot}: r = {r_text(check.r)} (rounding explains 6)")
        lines.append(f"  at {index_text(check.worst)}: {check.expected:.9g} expected, {check.found:.9g} found")
    if finding.shown_by:
        lines.append(f"  the same output is that of {', '.join(finding.shown_by)}")
    lines += [f"  {text}" for text in stack_text(run.nodes(finding.rank).stack(finding.row))]
    return [clean(line) for line in lines]


def r_text(value: float) -> str:
    """A distance in what rounding explains."""
    return f"{value:.3g}" if math.isfinite(value) else "inf"


def verdict_text(report: AuditReport) -> str:
    """Returns the verdict in a line."""
    if report.findings:
        nodes = len(report.findings) + sum(len(finding.shown_by) for finding in report.findings)
        counted = f", recorded of {nodes:,} nodes" if nodes > len(report.findings) else ""  # the table counts nodes
        return f"{plural(len(report.findings), 'output')} wrong{counted}"
    if not report.checked:
        return "cannot judge: no operator could be checked"
    if report.missing:
        kind, why = report.missing[0]
        return f"cannot judge: {kind} was required: {why}"
    if report.doubts:
        return f"cannot judge: {report.doubts[0]}"
    return "no known operator is wrong"


def coverage_text(report: AuditReport) -> str:
    """Returns what was looked at."""
    ranks, steps = {rank for rank, _ in report.pairs}, {step for _, step in report.pairs}
    unknown = sum(each.not_checked for each in report.coverage if not each.known)
    known = report.not_checked - unknown
    return (
        f"{plural(report.checked, 'operator')} checked of {report.checked + report.not_checked}: "
        f"{known} known ones lack something, {unknown} are of no known kind; "
        f"{plural(len(steps), 'step')} of {plural(len(ranks), 'rank')}"
    )


def finding_cells(finding: Finding) -> tuple[str, ...]:
    """A row of the table of findings."""
    check = finding.check
    return (
        str(finding.step),
        str(finding.rank),
        finding.kind,
        r_text(check.r),
        index_text(check.worst),
        f"{check.expected:.6g}",
        f"{check.found:.6g}",
        finding.fault.value,
        finding.name,
    )


def coverage_cells(row: KindCoverage) -> tuple[str, ...]:
    """A row of the table of coverage."""
    why = "; ".join(f"{reason} ({count})" for reason, count in row.left.most_common(_REASONS))
    more = len(row.left) - _REASONS
    return (
        row.kind,
        str(row.checked) if row.known else NONE,
        str(row.wrong) if row.known else NONE,
        f"{row.largest:.2f}" if row.checked else NONE,
        str(row.not_checked),
        why + (f"; {more} more reasons" if more > 0 else ""),
    )


def check_text(check: OperatorCheck | NotChecked) -> str:
    """Returns what is known of one operator, in a sentence without its name."""
    if isinstance(check, NotChecked):
        return f"its arithmetic was not checked: {check.reason}"
    if not check.wrong:
        return f"its arithmetic is right: r up to {r_text(max(each.r for each in check.outputs))} (wrong from 6 on)"
    worst = max(check.outputs, key=lambda each: (each.wrong, each.r))
    detail = f"; {worst.difference[1]}" if worst.difference[1] else ""
    return (
        f"its arithmetic is wrong: r = {r_text(worst.r)}, at {index_text(worst.worst)} {worst.expected:.6g} expected, "
        f"{worst.found:.6g} found{detail}"
    )
