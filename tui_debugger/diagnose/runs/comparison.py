"""Two runs side by side: which ranks and steps belong together, all of them judged, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tui_debugger.diagnose.run import Run
from tui_debugger.diagnose.runs.distance import How
from tui_debugger.diagnose.runs.judge import Earlier, StepJudge
from tui_debugger.diagnose.runs.results import Finding, Judged, Judgement, Options, Place, RunsReport, StepReport
from tui_debugger.diagnose.runs.step import RunTensors
from tui_debugger.errors import TdbgError
from tui_debugger.model import Progress, ProgressFn, no_progress

_MOST_DOUBTS: Final = 1000
"""Doubts that are kept."""


def compare_runs(a: Run, b: Run, options: Options | None = None, progress: ProgressFn = no_progress) -> RunsReport:
    """Compares two runs.

    Raises:
        TdbgError: they have no rank, or no step, in common.
    """
    return _Comparison(a, b, options or Options(), progress).run()


class _Comparison:
    def __init__(self, a: Run, b: Run, options: Options, progress: ProgressFn) -> None:
        self.runs = a, b
        self.options, self.progress = options, progress
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.findings: list[Finding] = []
        self.steps: list[StepReport] = []

    def run(self) -> RunsReport:
        ranks = self._ranks()
        places = [Place(*pair, *steps) for pair in ranks for steps in self._steps(*pair)]
        if not places:
            raise TdbgError(
                "the runs have no step in common",
                where=f"{self.runs[0].info.path} and {self.runs[1].info.path}",
                hint="pair steps with --map-step A:B",
            )
        files: dict[tuple[int, int], tuple[RunTensors, RunTensors]] = {}
        for pair in dict.fromkeys((place.rank_a, place.rank_b) for place in places):
            steps = [place for place in places if (place.rank_a, place.rank_b) == pair]
            files[pair] = (
                RunTensors(self.runs[0], pair[0], [place.step_a for place in steps], self.progress),
                RunTensors(self.runs[1], pair[1], [place.step_b for place in steps], self.progress),
            )
        judges: dict[tuple[int, int], StepJudge] = {}
        turn = {place: number for number, place in enumerate(sorted(places, key=lambda each: each.step_a))}
        for number, place in enumerate(sorted(places, key=lambda each: (turn[each], each.rank_a))):
            self.progress(Progress(number, len(places), f"step {place.step_a}"))
            before = judges.get((place.rank_a, place.rank_b))
            others = [each for pair, each in judges.items() if pair != (place.rank_a, place.rank_b)]
            judge = StepJudge(
                files[place.rank_a, place.rank_b], place, self.options, Earlier(before, others), self.progress
            )
            self.steps.append(judge.report())
            self.findings += judge.findings
            judges[place.rank_a, place.rank_b] = judge
            judge.forget()
        self._doubt()
        order = {step.place: number for number, step in enumerate(self.steps)}
        step_order = {place: place.step_a for place in order}
        rank_of = {place: place.rank_a for place in order}
        found = sorted(self.findings, key=lambda each: (step_order[each.place], each.order, rank_of[each.place]))
        return RunsReport(self.runs, tuple(self.steps), tuple(found), tuple(self.doubts), tuple(self.notes))

    def _ranks(self) -> list[tuple[int, int]]:
        a, b = (list(run.ranks()) for run in self.runs)
        wanted = [rank for rank in a if self.options.only_ranks is None or rank in self.options.only_ranks]
        given = dict(self.options.ranks)
        taken = set(given.values())
        pairs = [(rank, given.get(rank, rank)) for rank in wanted]
        pairs = [(one, other) for one, other in pairs if other in b and (one in given or other not in taken)]
        if not pairs and not given and len(wanted) == len(b) == 1:
            pairs = [(wanted[0], b[0])]
            self.notes.append(f"rank {wanted[0]} is compared with rank {b[0]}: each run has one")
        if not pairs:
            raise TdbgError(
                "the runs have no rank in common",
                where=f"{self.runs[0].info.path} and {self.runs[1].info.path}",
                hint="pair ranks with --map-rank A:B",
            )
        left = [("the first", rank) for rank in wanted if rank not in {one for one, _ in pairs}]
        if self.options.only_ranks is None:
            left += [("the second", rank) for rank in b if rank not in {other for _, other in pairs}]
        self.doubts += [f"rank {rank} is in {which} run only" for which, rank in left]
        return pairs

    def _steps(self, rank_a: int, rank_b: int) -> list[tuple[int, int]]:
        a, b = list(self.runs[0].steps(rank_a)), list(self.runs[1].steps(rank_b))
        wanted = [step for step in a if self.options.only_steps is None or step in self.options.only_steps]
        given = dict(self.options.steps)
        if given:
            return [(step, given[step]) for step in wanted if step in given and given[step] in b]
        pairs = [(step, step) for step in wanted if step in b]
        if not pairs and wanted and b and self.options.only_steps is None:
            pairs = list(zip(wanted, b, strict=False))
            self.notes.append("no step has the same number in both runs: they are paired in order")
        left = [("the first", step) for step in wanted if step not in {one for one, _ in pairs}]
        if self.options.only_steps is None:
            left += [("the second", step) for step in b if step not in {other for _, other in pairs}]
        for which, step in left:
            text = f"step {step} is in {which} run only"
            if text not in self.doubts:
                self.doubts.append(text)
        return pairs

    def _doubt(self) -> None:
        for step in self.steps:
            where = f"rank {step.place.rank_a} step {step.place.step_a}"
            for name, why in step.failed:
                self.doubts.append(f"{where}: {name}: {why}")
            for judged in step.judged:
                if judged.judgement is Judgement.UNPROVEN:
                    self.doubts.append(
                        f"{where}: {self._name(step, judged)} differs, and not all of its inputs are known"
                    )
            explained = {(each.place, each.row_a, each.row_b) for each in self.findings}
            for one in step.one_sided:
                key = (step.place, one.row, -1) if one.side == 0 else (step.place, -1, one.row)
                if not one.covered and key not in explained:
                    only = ("first", "second")[one.side]
                    self.doubts.append(f"{where}: {one.name} is in the {only} run only, and nothing around it tells")
            for match in step.doubtful:
                name = self.runs[0].nodes(step.place.rank_a).names[match.a]
                self.doubts.append(f"{where}: {name} may be another node of the second run")
        if not any(count for how, count in self._compared() if how is not How.NOT):
            self.doubts.append("no tensor is in both runs")
        for run in self.runs:
            self.doubts += [f"{part.where} ({part.why})" for part in run.unreadable()]
        del self.doubts[_MOST_DOUBTS:]

    def _compared(self) -> Iterator[tuple[How, int]]:
        for step in self.steps:
            yield from step.compared.items()

    def _name(self, step: StepReport, judged: Judged) -> str:
        return self.runs[0].nodes(step.place.rank_a).names[judged.match.a]
