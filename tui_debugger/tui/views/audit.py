"""Computes the operators of the run again: which are wrong, by how much, and how many were checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from rich.text import Text
from textual import on
from textual.widget import Widget

from tui_debugger.diagnose.audit import (
    AuditFinding,
    AuditReport,
    check_text,
    coverage_cells,
    coverage_text,
    finding_cells,
    headline_lines,
    verdict_text,
)
from tui_debugger.diagnose.recompute.check import check_operator
from tui_debugger.model import ProgressFn
from tui_debugger.session.auditing import audit_session
from tui_debugger.tui import theme
from tui_debugger.tui.actions import LOOK_AGAIN, SEARCH_VIEW, Action, view_actions
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.export import Extract
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import RUN_CHANGED, View, ViewChanges
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable

FINDINGS: tuple[TableColumn, ...] = (
    TableColumn("step", 5, right=True),
    TableColumn("rank", 4, right=True),
    TableColumn("kind", 10, elastic=1),
    TableColumn("r", 9, right=True),
    TableColumn("expected", 12, right=True),
    TableColumn("found", 12, right=True),
    TableColumn("node", 12, elastic=4),
)
_SHOWN = (0, 1, 2, 3, 5, 6, 8)
"""The cells of a finding that the list has; the line below shows the others."""
COVERAGE: tuple[TableColumn, ...] = (
    TableColumn("operator", 16, elastic=1),
    TableColumn("checked", 8, right=True),
    TableColumn("wrong", 6, right=True),
    TableColumn("largest r", 9, right=True),
    TableColumn("not checked", 11, right=True),
    TableColumn("why", 12, elastic=4),
)
_GROUP = "Audit"
OWN: tuple[Action, ...] = (
    LOOK_AGAIN,
    SEARCH_VIEW,
    *view_actions(
        _GROUP,
        ("of_kind", "f", "Filter", "Only findings of the kind under the cursor, or all again."),
        ("values", "v", "Values", "Opens the values of the wrong output, at the element that is worst."),
    ),
)


class AuditView(View):
    """Audits the node under the cursor, then the whole run. Enter goes to a wrong output on the main screen."""

    OWN_ACTIONS = OWN
    DEFAULT_CSS = """
    AuditView {
        #here { color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; height: 1; }
        #answer { max-height: 5; }
        #findings { height: 2fr; min-height: 3; }
        #finding { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #coverage { height: 3fr; min-height: 3; }
        #covered { color: $text-muted; max-height: 2; }
    }
    """
    heading = "Audit: is every output what its inputs make?"
    hints = (
        *(("Enter", "go there"), ("v", "values"), ("f", "one kind"), ("Tab", "coverage"), ("r", "anew")),
        *(("?", "keys"), ("Esc", "back")),
    )

    report: AuditReport | None = None
    kind = ""
    _findings: tuple[AuditFinding, ...] = ()

    def body(self) -> Iterable[Widget]:
        yield from plain_lines("here", "answer")
        yield VirtualTable(FINDINGS, empty="", id="findings")
        yield PlainLine(id="finding")
        yield VirtualTable(COVERAGE, empty="", id="coverage")
        yield PlainLine(id="covered")

    @property
    def findings(self) -> VirtualTable:
        return self.query_one("#findings", VirtualTable)

    @property
    def coverage(self) -> VirtualTable:
        return self.query_one("#coverage", VirtualTable)

    def on_mount(self) -> None:
        self.findings.focus()
        if self.about.row < 0:
            self.look_again()
            return
        key = self.about.key
        job = partial(check_operator, self.session, key.rank, key.step, self.about.row, round=key.round)
        self.work("computing this node again", lambda _: check_text(job()), self._show_here)

    def _show_here(self, text: str) -> None:
        key = self.about.key
        self.show_line("here", f"{key.node.rpartition('/')[2] or key.node} at step {key.step}: {text}")
        self.look_again()

    def look_again(self) -> None:
        session = self.session

        def job(progress: ProgressFn) -> AuditReport:
            return audit_session(session, session.pairs(), progress)

        self.work_anew("auditing", job, self._show)

    def outdated_by(self, changes: ViewChanges) -> str:
        return RUN_CHANGED if changes.anywhere else ""

    # -- showing -----------------------------------------------------------------------------------

    def _show(self, report: AuditReport) -> None:
        self.report = report
        answer = [verdict_text(report), *headline_lines(report, self.session)]
        self.show_line("answer", "\n".join(answer))
        self.show_line("covered", coverage_text(report))
        rows = [tuple(Text(cell) for cell in coverage_cells(each)) for each in report.coverage]
        self.coverage.set_rows(ListRows(rows, [each.kind for each in report.coverage]))
        self._show_findings()
        if not report.findings:
            self.coverage.focus()

    def _show_findings(self) -> None:
        report = self.report
        if report is None:
            return
        self._findings = tuple(each for each in report.findings if self.kind in {"", each.kind})
        rows = []
        for each in self._findings:
            cells = finding_cells(each)
            style = theme.FINDING if each is report.headline else theme.NORMAL if each.sound else theme.DIM
            rows.append(tuple(Text(cells[at], style) for at in _SHOWN))
        keys = [(each.rank, each.step, each.name, each.check.slot) for each in self._findings]
        self.findings.set_rows(ListRows(rows, keys))
        self._show_finding()

    def _show_finding(self) -> None:
        finding = self.finding
        self.show_line("finding", "" if finding is None else f"{finding.fault.value}: {finding.text}")

    @property
    def finding(self) -> AuditFinding | None:
        row = self.findings.cursor_row
        return self._findings[row] if 0 <= row < len(self._findings) else None

    @property
    def target_here(self) -> ViewTarget:
        """The wrong output under the cursor, else the view's own tensor."""
        finding = self.finding
        if finding is None or finding.key is None:
            return self.about
        return ViewTarget(finding.key, finding.row, at=finding.check.worst or None)

    @on(VirtualTable.RowHighlighted)
    def _moved(self, event: VirtualTable.RowHighlighted) -> None:
        event.stop()
        self._show_finding()

    @on(VirtualTable.RowSelected)
    def _chosen(self, event: VirtualTable.RowSelected) -> None:
        if event.control is self.coverage:
            self.action_of_kind()
        elif self.finding is not None:
            self._with_tensor(self.host.go_to)

    def action_values(self) -> None:
        self._with_tensor(partial(self.host.open, "values"))

    def _with_tensor(self, do: Callable[[ViewTarget], None]) -> None:
        target = self.target_here
        if target.row < 0:
            self.say("no tensor under the cursor", note=True)
            return
        do(target)

    def action_of_kind(self) -> None:
        if self.kind:
            self.kind = ""
        elif self.coverage.has_focus:
            self.kind = str(self.coverage.cursor_key)
        elif self.finding is not None:
            self.kind = self.finding.kind
        self.say(f"only {self.kind}: f shows all again" if self.kind else "", note=True)
        self._show_findings()

    # -- handing out -------------------------------------------------------------------------------

    def extract(self) -> Extract | None:
        report = self.report
        if report is None:
            return None
        found = [finding_cells(each) for each in report.findings]
        covered = [coverage_cells(each) for each in report.coverage]
        lines = [verdict_text(report), *headline_lines(report, self.session), ""]
        lines += ["  ".join(row) for row in (*found, *covered)]
        titles = ("step", "rank", "kind", "r", "at", "expected", "found", "fault", "node")
        return Extract(
            stem="audit",
            text="\n".join([*lines, coverage_text(report)]),
            one=self.finding.name if self.finding is not None else verdict_text(report),
            header=titles if found else tuple(each.title for each in COVERAGE),
            rows=found or covered,
        )
