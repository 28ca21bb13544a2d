"""Compares two runs: pairs their ranks and steps, judges each, and puts the results together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tui_debugger.diagnose.ranks.layout import ParallelLayout, Ranks, recorded_layout
from tui_debugger.diagnose.run import DiagnosedRun, ranks_of
from tui_debugger.diagnose.runs.changed_weights import changed_weights
from tui_debugger.diagnose.runs.distance import WITHOUT_ONE, ComparedBy, Distance
from tui_debugger.diagnose.runs.judge import EarlierJudgements, StepJudge
from tui_debugger.diagnose.runs.logged import logged_differences, saved_differences
from tui_debugger.diagnose.runs.matching import Rule
from tui_debugger.diagnose.runs.results import (
    DiffFinding,
    DiffKind,
    NodeJudgement,
    Options,
    RunsReport,
    StepPlace,
    StepReport,
)
from tui_debugger.diagnose.runs.step import Asked, Noise, RunTensors
from tui_debugger.errors import TdbgError
from tui_debugger.model import PARAMETERS, Category, Progress, ProgressFn, no_progress
from tui_debugger.text.numbers import and_more, named, plural

Group = tuple[Ranks, Ranks]
"""Ranks of both runs that are compared together: several of one run hold parts of the same tensors."""
_Files = tuple[RunTensors, RunTensors]

_WORDS: Final = re.compile(r"[./]")
_MOST_NUMBERS: Final = 4
"""The most numbers beside tensors that a finding names."""
_MOST_DOUBTS: Final = 1000
"""The most doubts that are kept."""


def compare_runs(
    a: DiagnosedRun,
    b: DiagnosedRun,
    options: Options | None = None,
    progress: ProgressFn = no_progress,
    *,
    repeat: DiagnosedRun | None = None,
    so_far: Callable[[RunsReport], None] = lambda _: None,
) -> RunsReport:
    """Compares two runs; TdbgError where they have no rank or step in common.

    Differences between the first run and its healthy ``repeat`` count as noise. ``so_far`` gets a report after each
    step.
    """
    options = options or Options()
    if repeat is None:
        return _TwoRunComparison(a, b, options, progress).run(so_far)
    kept = Options(only_steps=options.only_steps, only_ranks=options.only_ranks)
    floor = _TwoRunComparison(a, repeat, kept, progress)
    floor.run(lambda _: None)
    comparison = _TwoRunComparison(a, b, options, progress, floor.found)
    comparison.notes += floor.noise_notes()
    return comparison.run(so_far)


class _TwoRunComparison:
    def __init__(
        self, a: DiagnosedRun, b: DiagnosedRun, options: Options, progress: ProgressFn, noise: Noise | None = None
    ) -> None:
        self.runs = a, b
        self.noise = noise
        self.found: dict[tuple[int, int, int], Distance] = {}
        self.options, self.progress = options, _Overall(progress)
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self._alone: dict[tuple[str, int], list[int]] = {}
        """Ranks by (which run, step), for steps that only one run has."""
        self.findings: list[DiffFinding] = []
        self.steps: list[StepReport] = []
        self.asked = 0
        self.apart: set[Group] = set()
        """Groups that have nodes of their own in both runs."""

    def run(self, so_far: Callable[[RunsReport], None]) -> RunsReport:
        groups = self._groups()
        places = {
            StepPlace(one[0], other[0], *steps): (one, other)
            for one, other in groups
            for steps in self._steps(one[0], other[0])
        }
        self._doubt_steps(len(groups))
        if not places:
            raise TdbgError(
                "the runs have no step in common",
                where=f"{self.runs[0].info.path} and {self.runs[1].info.path}",
                hint="pair steps with --map-step A:B",
            )
        files = {}
        for group in list(dict.fromkeys(places.values())):
            steps = [place[2:] for place, of in places.items() if of == group]
            for each, both in self._staged(group, steps):
                files[each] = both
                places.update({StepPlace(each[0][0], each[1][0], *pair): each for pair in steps})
        self.asked = len(places)
        judges: dict[Group, StepJudge] = {}
        turn = {place: number for number, place in enumerate(sorted(places, key=lambda each: each.step_a))}
        for number, place in enumerate(sorted(places, key=lambda each: (turn[each], each.rank_a))):
            first = min(self.findings, key=self._when, default=None)
            so_late = f", first difference at step {first.place.step_a}: {first.name}" if first is not None else ""
            self.progress(Progress(number, len(places), f"step {place.step_a}{so_late}"))
            group = places[place]
            others = [each for of, each in judges.items() if of != group]
            earlier = EarlierJudgements(judges.get(group), others, self.noise)
            files[group] = self._left(files[group], place)
            judge = StepJudge(Asked(files[group], place, self.options, self.progress), earlier)
            self.steps.append(replace(judge.report(), ranks=group))
            self.findings += judge.findings
            self.found.update(((place.rank_a, *key[0]), found) for key, found in judge.distances.items())
            judges[group] = judge
            judge.forget()
            so_far(self._report())
        self._merge_stages()
        if not self.findings:
            self.findings += changed_weights(self.runs, self.steps)
        self._compare_saved_numbers()
        self._compare_logs()
        self._doubt()
        for pair in files.values():
            self._doubt_mates(pair)
        return self._report()

    def _report(self) -> RunsReport:
        found = sorted(self.findings, key=self._when)
        return RunsReport(self.runs, tuple(self.steps), tuple(found), tuple(self.doubts), tuple(self.notes), self.asked)

    def _compare_logs(self) -> None:
        """Compares logged numbers; a difference is only a note where tensors differ, too."""
        if self.options.steps or self.options.only_steps is not None:
            return
        for ranks in dict.fromkeys(step.place[:2] for step in self.steps):
            notes = [run.run_notes(rank) for run, rank in zip(self.runs, ranks, strict=True)]
            differing = logged_differences(notes[0], notes[1])
            if not differing:
                continue
            first = differing[0]
            place = next(step.place for step in reversed(self.steps) if step.place[:2] == ranks)
            self._note_number(DiffKind.LOGGED, place, first.name, first.text, f"{first.name} {first.text}")
            return

    def _note_number(self, kind: DiffKind, place: StepPlace, name: str, text: str, note: str) -> None:
        if self.findings:
            self.notes.append(note)
        else:
            self.findings.append(DiffFinding(kind, place, 0.0, -1, -1, name, name, (None, None), None, text=text))

    def _compare_saved_numbers(self) -> None:
        """Compares numbers beside tensors in files; a difference is only a note where tensors differ, too."""
        for step in self.steps:
            place = step.place
            one, other = (
                run.saved_numbers(*at)
                for run, at in zip(self.runs, ((place.rank_a, place.step_a), (place.rank_b, place.step_b)), strict=True)
            )
            if not (differing := saved_differences(one, other)):
                continue
            name, text = differing[0]
            if others := [each for each, _ in differing[1:]]:
                text += f"; other numbers that differ: {and_more(others, _MOST_NUMBERS)}"
            self._note_number(DiffKind.SAVED, place, name, text, f"{name} at step {place.step_a}: {text}")
            return

    def _when(self, found: DiffFinding) -> tuple[int, bool, float, int]:
        """A sort key of findings: step, forward before backward pass, order, rank."""
        side, row = (0, found.row_a) if found.row_a >= 0 else (1, found.row_b)
        nodes = self.runs[side].nodes(found.place[side])
        backward = row >= 0 and nodes.category_of(row) is Category.GRADIENT
        return found.place.step_a, backward, found.order, found.place.rank_a

    def noise_notes(self) -> list[str]:
        path = self.runs[1].info.path
        worst = max(
            (judged for step in self.steps for judged in step.judged if math.isfinite(judged.dy)),
            key=lambda judged: judged.dy,
            default=None,
        )
        if worst is None:
            return [f"nothing of the first run was compared with its repeat {path}"]
        rank = self.steps[0].place.rank_a
        largest = f"up to {worst.dy:.3g}, at {self.runs[0].nodes(rank).names[worst.match.a]}"
        notes = [f"noise between the first run and its repeat {path}: {largest if worst.dy else 'none'}"]
        odd = [each for each in self.findings if each.distance is not None and each.distance.odd]
        if odd:
            notes.append(f"the repeat has NaN or infinities that the first run does not have, first at {odd[0].name}")
        return notes + [f"no noise is known there: {doubt}" for doubt in self.doubts[:1]]

    def _staged(self, group: Group, steps: Sequence[tuple[int, int]]) -> Iterator[tuple[Group, _Files]]:
        """Yields a group, and others for nodes that its first rank lacks: of pipeline stages or expert parallelism."""
        if min(map(len, group)) > 1:
            yield from self._staged_both(group, steps)
            return
        both = self._files(group, steps)
        yield group, both
        side = 0 if len(group[0]) > 1 else 1
        covered = both[side].named()
        for number, mate in enumerate(both[side].mates):
            names = mate.named() - covered
            if not names or any(pair[side] not in mate.run.steps(mate.rank) for pair in steps):
                continue
            covered |= names
            others = (mate.rank, *(each.rank for each in both[side].mates[number + 1 :]))
            ranks = (others, group[1]) if side == 0 else (group[0], others)
            files = self._files(ranks, steps)
            files[side].only = frozenset(names)
            both[side].others |= names
            what = f"{plural(len(names), 'node')} that rank {both[side].rank} does not have"
            self.notes.append(f"rank {mate.rank} of {'AB'[side]} has {what}: another stage, or other experts")
            yield ranks, files

    def _staged_both(self, group: Group, steps: Sequence[tuple[int, int]]) -> Iterator[tuple[Group, _Files]]:
        """Does the same as ``_staged`` where both runs have several ranks: pairs stages of both."""
        stages = [self._stages(side, group[side], [pair[side] for pair in steps]) for side in (0, 1)]
        own = [[names for _, names in of] for of in stages]
        maps = self.options.maps
        given = [maps.pairs.get(name, maps.apply(name)) for names in own[0] for name in names]
        spelled = dict(zip((name for names in own[0] for name in names), given, strict=True))
        of_b = {name: number for number, names in enumerate(own[1]) for name in names}
        pairs: dict[tuple[int, int], tuple[set[str], set[str]]] = {}
        left: list[tuple[int, str, int]] = []
        for number, names in enumerate(own[0]):
            for name in names:
                if spelled[name] in of_b:
                    both = pairs.setdefault((number, of_b[spelled[name]]), (set(), set()))
                    both[0].add(name)
                    both[1].add(spelled[name])
                else:
                    left.append((0, name, number))
        known = {name for _, names in pairs.values() for name in names}
        left += [(1, name, number) for name, number in of_b.items() if name not in known]
        for side, name, number in left:  # where most of its stage is, it may have a partner of another name
            beside = [pair for pair in pairs if pair[side] == number]
            most = max(beside, key=lambda pair: len(pairs[pair][0]), default=(number, 0) if side == 0 else (0, number))
            pairs.setdefault(most, (set(), set()))[side].add(name)
        for (one, other), shared in sorted(pairs.items()):
            ranks = stages[0][one][0], stages[1][other][0]
            files = self._files(ranks, steps)
            if len(pairs) > 1:
                self.apart.add(ranks)
                for side in (0, 1):
                    files[side].only = frozenset(shared[side])
            yield ranks, files
        for name, of in zip("AB", stages, strict=True):
            if len(of) > 1:
                ranks_text = ", ".join(str(ranks[0]) for ranks, _ in of)
                self.notes.append(f"ranks {ranks_text} of {name} have other nodes: stages, or other experts")

    def _stages(self, side: int, ranks: Ranks, steps: Sequence[int]) -> list[tuple[Ranks, set[str]]]:
        """Returns the ranks that have nodes which no rank before has, each with the ranks after it and these nodes."""
        files = self._tensors(side, ranks, steps)
        covered: set[str] = set()
        found = []
        for number, each in enumerate((files, *files.mates)):
            names = each.named() - covered
            if names and all(step in self.runs[side].steps(each.rank) for step in steps):
                found.append((ranks[number:], names))
                covered |= names
        return found

    def _left(self, files: _Files, place: StepPlace) -> _Files:
        """Notes which nodes of a step were already compared in other stages."""
        for side, of in enumerate(files):
            if files[1 - side].only is not None:
                stages = [step for step in self.steps if (step.place[side], step.place[2:]) == (place[side], place[2:])]
                of.elsewhere = {judged.match.rows[side]: judged.dy for step in stages for judged in step.judged}
        return files

    def _merge_stages(self) -> None:
        """Removes nodes from "one run only" that another stage has."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, step in enumerate(self.steps):
            for side in (0, 1) if step.ranks not in self.apart else ():
                groups.setdefault((side, step.place[side], *step.place[2:]), []).append(number)
        for (side, *_), numbers in groups.items():
            if len(numbers) < 2:
                continue
            matched = [{each.match.rows[side] for each in self.steps[number].judged} for number in numbers]
            every = set().union(*matched)
            covered = {
                one.row: one.covered
                for number in numbers
                for one in self.steps[number].one_sided
                if one.side == side and one.covered
            }
            for place, number in enumerate(numbers):
                step = self.steps[number]
                left = [
                    replace(one, covered=one.covered or covered.get(one.row, "")) if one.side == side else one
                    for one in step.one_sided
                    if one.side != side or (not place and one.row not in every)
                ]
                self.steps[number] = replace(step, one_sided=tuple(left))
                self.findings = [
                    each
                    for each in self.findings
                    if each.place != step.place
                    or each.kind is not DiffKind.REGION
                    or (each.row_a, each.row_b)[side] not in every - matched[place]
                ]

    def _files(self, group: Group, steps: Sequence[tuple[int, int]]) -> _Files:
        one, other = (self._tensors(side, ranks, [pair[side] for pair in steps]) for side, ranks in enumerate(group))
        return one, other

    def _tensors(self, side: int, ranks: Ranks, steps: Sequence[int]) -> RunTensors:
        run = self.runs[side]
        mates = [
            RunTensors(run, rank, [step for step in steps if step in run.steps(rank)], self.progress)
            for rank in ranks[1:]
        ]
        return RunTensors(run, ranks[0], steps, self.progress, mates)

    def _groups(self) -> list[Group]:
        """Returns which ranks are compared: one with one, or one with all that share its tensors."""
        a, b = (ranks_of(run) for run in self.runs)
        wanted = [rank for rank in a if self.options.only_ranks is None or rank in self.options.only_ranks]
        given = [pair for pair in self.options.ranks if pair[0] in wanted and pair[1] in b]
        groups = _grouped(given)
        taken = {rank for one, _ in groups for rank in one}, {rank for _, other in groups for rank in other}
        named = {one for one, _ in self.options.ranks}, {other for _, other in self.options.ranks}
        if not self.options.ranks and self.options.only_ranks is None and (len(a) == 1) != (len(b) == 1):
            groups = [(tuple(a), tuple(b))]
            one, many = ("A", "B") if len(a) == 1 else ("B", "A")
            count = max(len(a), len(b))
            self.notes.append(f"{one} has one rank, and {many} has {count}: their tensors are put together first")
            return groups
        if not self.options.ranks and self.options.only_ranks is None and min(len(a), len(b)) > 1:
            why = self._why_together(a, b)
            if why:
                self.notes.append(f"{why}: tensors of the {len(a)} ranks of A and the {len(b)} of B are put together")
                return [(tuple(a), tuple(b))]
        for rank in wanted:
            if rank not in taken[0] | named[0] and rank in b and rank not in taken[1] | named[1]:
                groups.append(((rank,), (rank,)))
        if not groups and not self.options.ranks and len(wanted) == len(b) == 1:
            groups = [((wanted[0],), (b[0],))]
            self.notes.append(f"rank {wanted[0]} is compared with rank {b[0]}: each run has one")
        if not groups:
            raise TdbgError(
                "the runs have no rank in common",
                where=f"{self.runs[0].info.path} and {self.runs[1].info.path}",
                hint="pair ranks with --map-rank A:B",
            )
        left = [("the first", rank) for rank in wanted if not any(rank in one for one, _ in groups)]
        if self.options.only_ranks is None:
            left += [("the second", rank) for rank in b if not any(rank in other for _, other in groups)]
        self.doubts += [f"rank {rank} is in {which} run only" for which, rank in left]
        return sorted(groups)

    def _why_together(self, a: Sequence[int], b: Sequence[int]) -> str:
        """Returns why ranks of equal number hold different things in runs of several ranks; empty if they do not."""
        layouts = [
            recorded_layout(ranks, {rank: run.parallel_places(rank)[0] for rank in ranks}, "")
            for run, ranks in zip(self.runs, (a, b), strict=True)
        ]
        if layouts[0] is not None and layouts[1] is not None:
            if _sizes(layouts[0]) == _sizes(layouts[1]):
                return ""
            return f"{_sizes(layouts[0])} in A, {_sizes(layouts[1])} in B"
        common = [rank for rank in a if rank in b]
        if not common:
            return "no rank has the same number"
        steps = self._steps_of_both(common[0])
        if steps is not None and (unlike := self._unlike_parameter(common[0], steps)):
            return f"{unlike} is not of one shape on rank {common[0]} of both"
        if steps is not None and (elsewhere := self._on_another_rank(a, b, common[0], steps)):
            return elsewhere
        few, most = sorted((len(a), len(b)))
        return "" if few == most or most % few else "the runs have other numbers of ranks"

    def _unlike_parameter(self, rank: int, steps: tuple[int, int]) -> str:
        """Returns a parameter that has another shape on the same rank of the other run; empty without one."""
        files = [RunTensors(run, rank, [step], self.progress) for run, step in zip(self.runs, steps, strict=True)]
        names = [
            {
                of.flow.nodes.names[row]: row
                for row in np.unique(of.flow.table(step).node).tolist()
                if of.flow.nodes.category_of(row) in PARAMETERS
            }
            for of, step in zip(files, steps, strict=True)
        ]
        for name, row in names[0].items():
            other = names[1].get(self.options.maps.apply(name))
            if other is None:
                continue
            shapes = files[0].shapes(steps[0], row), files[1].shapes(steps[1], other)
            if None not in shapes and shapes[0] != shapes[1]:
                return str(name)
        return ""

    def _on_another_rank(self, a: Sequence[int], b: Sequence[int], rank: int, steps: tuple[int, int]) -> str:
        """Returns a sentence if nodes of a rank are on another rank in the other run; else empty."""
        maps = self.options.maps
        names: list[dict[int, set[str]]] = []
        for run, ranks, step in zip(self.runs, (a, b), steps, strict=True):
            files = {each: RunTensors(run, each, [step], self.progress) for each in ranks if step in run.steps(each)}
            spell = maps.apply if run is self.runs[0] else str
            names.append({each: {spell(name) for name in of.named()} for each, of in files.items()})
        for one, other, side in ((0, 1, "A"), (1, 0, "B")):
            missing = names[other].get(rank, set()) - names[one].get(rank, set())
            if any(missing & of for each, of in names[one].items() if each != rank):
                return f"another rank than {rank} has its nodes in {side}"
        return ""

    def _steps_of_both(self, rank: int) -> tuple[int, int] | None:
        a, b = (list(run.steps(rank)) for run in self.runs)
        given = dict(self.options.steps)
        if given:
            return next(((step, given[step]) for step in a if given.get(step) in b), None)
        return next(((step, step) for step in a if step in b), (a[0], b[0]) if a and b else None)

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
            self._alone.setdefault((which, step), []).append(rank_a if which == "the first" else rank_b)
        return pairs

    def _doubt_steps(self, groups: int) -> None:
        for (which, step), ranks in self._alone.items():
            of = "" if len(ranks) == groups else f" of {named('rank', sorted(ranks))}"
            self.doubts.append(f"step {step}{of} is in {which} run only")

    def _doubt(self) -> None:
        for step in self.steps:
            where = f"rank {step.place.rank_a} step {step.place.step_a}"
            for name, why in step.failed:
                self.doubts.append(f"{where}: {name}: {why}")
            for judged in step.judged:
                if judged.judgement is NodeJudgement.UNPROVEN and not judged.match.doubtful:
                    self.doubts.append(
                        f"{where}: {self._name(step, 0, judged.match.a)} differs, and not all of its inputs are known"
                    )
            if norms := [each for each in step.judged if each.worst is not None and each.worst.meant == WITHOUT_ONE]:
                weights = f"{plural(len(norms), 'weight')} of norms, such as {self._name(step, 0, norms[0].match.a)},"
                self.doubts.append(
                    f"{where}: one run keeps {weights} without 1, and no file tells whether its program adds the 1 back"
                )
            explained = {(each.place, each.row_a, each.row_b) for each in self.findings}
            for one in step.one_sided:
                key = (step.place, one.row, -1) if one.side == 0 else (step.place, -1, one.row)
                if not one.covered and key not in explained:
                    only = ("first", "second")[one.side]
                    at = f"rank {step.place[one.side]} step {step.place[2 + one.side]}"
                    self.doubts.append(f"{at}: {one.name} is in the {only} run only, and nothing around it tells")
            for match in step.doubtful:
                names = [self._name(step, side, row) for side, row in enumerate(match.rows)]
                by = f"is paired with {names[1]} by the {match.rule.value} only, and no value proves it"
                told = by if match.rule is Rule.SUFFIX else "may be another node of the second run"
                self.doubts.append(f"{where}: {names[0]} {told}")
        if self._strangers():
            self.doubts.insert(0, "no name is in both runs: what was paired is a guess; --map-name pairs names")
        if not any(how is not ComparedBy.NOT for step in self.steps for how in step.compared):
            self.doubts.insert(0, "no tensor of both runs could be compared")
        for run in self.runs:
            self.doubts += [f"{part.where} ({part.why})" for part in run.unreadable()]
        del self.doubts[_MOST_DOUBTS:]

    def _strangers(self) -> bool:
        """Tells whether nodes were paired only by order or a last word such as ``weight``, without any edges."""
        pairs = [(step, judged.match) for step in self.steps for judged in step.judged]
        for step, match in pairs:
            tables = [run.nodes(step.place[side]) for side, run in enumerate(self.runs)]
            names = [_WORDS.split(nodes.names[row]) for nodes, row in zip(tables, match.rows, strict=True)]
            ends = {tuple(words[-2:]) for words in names}
            alike = match.rule is Rule.SUFFIX and (len(ends) == 1 or min(map(len, names)) == 1)
            if alike or match.rule not in {Rule.SUFFIX, Rule.ALIGNED} or any(len(nodes.in_node) for nodes in tables):
                return False
        return bool(pairs) and not any(step.converted for step in self.steps)  # values are no guess

    def _doubt_mates(self, files: _Files) -> None:
        """Adds doubts for nodes that only other ranks of a group hold: they were not looked at."""
        for side, lead in enumerate(files):
            for mate in lead.mates:
                missed = mate.not_seen(lead)
                if missed:
                    name, count = missed[0], len(missed)
                    more = f" and {count - 1} more nodes" if count > 1 else ""
                    self.doubts.append(f"only rank {mate.rank} of {'AB'[side]} has {name}{more}: not compared")
            steps = {step.place[2 + side] for step in self.steps if step.place[side] == lead.rank}
            for mate in lead.mates:
                for step in sorted(steps - set(mate.run.steps(mate.rank))):
                    text = f"rank {mate.rank} of {'AB'[side]} has no step {step}"
                    if text not in self.doubts:
                        self.doubts.append(text)

    def _name(self, step: StepReport, side: int, row: int) -> str:
        return self.runs[side].nodes(step.place[side]).names[row]


class _Overall:
    """Progress over all steps, from that of each."""

    def __init__(self, progress: ProgressFn) -> None:
        self._progress = progress
        self._steps = Progress(0, 0, "")

    def __call__(self, progress: Progress) -> None:
        if progress.text.startswith("step "):
            self._steps = progress
        within = progress.done / progress.total if progress.total and progress is not self._steps else 0.0
        if self._steps.total:
            done = int(1000 * (self._steps.done + within))
            progress = Progress(done, 1000 * self._steps.total, self._steps.text)
        self._progress(progress)


def _sizes(layout: ParallelLayout) -> str:
    sizes = {axis: size for places in layout.places.values() for axis, (_, size) in places.items()}
    return " x ".join(f"{axis} {sizes[axis]}" for axis in layout.axes)


def _grouped(pairs: Sequence[tuple[int, int]]) -> list[Group]:
    """Returns the connected components of pairs of ranks."""
    groups: list[tuple[set[int], set[int]]] = []
    for one, other in pairs:
        touched = [each for each in groups if one in each[0] or other in each[1]]
        groups = [each for each in groups if each not in touched]
        groups.append(({one}.union(*(each[0] for each in touched)), {other}.union(*(each[1] for each in touched))))
    return [(tuple(sorted(one)), tuple(sorted(other))) for one, other in groups]
