"""The comparison of this run with another run, as the screen keeps it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tui_debugger.diagnose.runs.comparison import compare_runs
from tui_debugger.diagnose.runs.results import DiffFinding, Options, RunsReport
from tui_debugger.diagnose.runs.text import DESCRIBED, difference_words
from tui_debugger.errors import TdbgError
from tui_debugger.model import ProgressFn
from tui_debugger.session.session import Session


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """Another run to compare with; ``repeat`` is a healthy repeat of the first run, which tells what is noise."""

    path: str
    options: Options = field(default_factory=Options)
    repeat: str = ""


class RunComparison:
    """The other run and what is known of the comparison; lives as long as the screen is open.

    Attributes:
        report: None before the first step was compared.
        kinds: words for the first ``DESCRIBED`` findings of the report, in their order.
        whole: whether all steps were compared.
    """

    def __init__(self, session: Session, against: ComparedRun) -> None:
        self.session = session
        self.path, self.options, self.repeat = against.path, against.options, against.repeat
        self.report: RunsReport | None = None
        self.kinds: Sequence[tuple[str, str]] = ()
        self.whole = False
        self._so_far: RunsReport | None = None
        self._others: list[Session] = []

    def run(self, progress: ProgressFn) -> tuple[RunsReport, Sequence[tuple[str, str]]]:
        """Compares both runs; TdbgError when the other cannot be opened, is the same, or has no step in common."""
        self._so_far = None
        before = list(self._others)
        other = self._opened(progress)
        repeat = None
        if self.repeat:
            repeat = self.session.another(Path(self.repeat))
            self._others.append(repeat)
            repeat.open(progress)
        report = compare_runs(self.session, other, self.options, progress, repeat=repeat, so_far=self._tell)
        kinds = [difference_words(report, finding) for finding in report.findings[:DESCRIBED]]
        for each in before:  # the screen shows nothing of these runs once this report is there
            self._others.remove(each)
            each.close()
        return report, kinds

    def _opened(self, progress: ProgressFn) -> Session:
        check_comparable(self.session, self.path)
        if os.path.realpath(self.path) == os.path.realpath(self.session.info.path):
            raise TdbgError("both are the same run", where=self.path, hint="choose another one")
        other = self.session.another(Path(self.path))
        self._others.append(other)
        other.open(progress)
        if os.path.realpath(other.info.path) == os.path.realpath(self.session.info.path):
            raise TdbgError("both are the same run", where=self.path, hint="choose another one")
        return other

    def _tell(self, report: RunsReport) -> None:
        self._so_far = report

    def take_so_far(self) -> bool:
        """Adopts the findings of a comparison that still runs or was stopped; False when there is nothing new."""
        found = self._so_far
        if found is None or found is self.report:
            return False
        self.report, self.kinds, self.whole = found, (), False
        return True

    def words(self, finding: DiffFinding) -> tuple[str, str]:
        findings = self.report.findings if self.report is not None else ()
        known = dict(zip(map(id, findings), self.kinds, strict=False))
        return known.get(id(finding), ("", ""))

    def close(self) -> None:
        others, self._others = self._others, []
        for other in others:
            other.close()


def check_comparable(session: Session, where: str = "") -> None:
    """Raises TdbgError for a training that runs."""
    from tui_debugger.session.live import LiveSession  # not where nothing is compared

    if isinstance(session, LiveSession):
        raise TdbgError(
            "a training that runs cannot be compared with another run: its values come and go",
            where=where,
            hint="save what was kept as a dump (S on the main screen), and compare that",
        )
