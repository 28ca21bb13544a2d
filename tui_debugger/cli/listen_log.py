"""The lines of ``tdbg listen --no-screen``: the findings of each judged step, and the summary."""

from __future__ import annotations

import dataclasses
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from tui_debugger import __version__
from tui_debugger.cli.output import note, print_text, undecided
from tui_debugger.text.documents import Row, document_line, row_of, rows_of
from tui_debugger.text.writer import Meaning, meant, terminal_of, write_data, write_lines

if TYPE_CHECKING:
    from tui_debugger.check.step import PairResult
    from tui_debugger.check.types import Pair
    from tui_debugger.check.verdicts import CheckJudgement, Doubt
    from tui_debugger.errors import TdbgError
    from tui_debugger.model import Hit, TensorKey
    from tui_debugger.notes import ShownNote
    from tui_debugger.session import CheckResult
    from tui_debugger.session.live import LiveSession
    from tui_debugger.text.backlog import Backlog


ANSWER: Final = 60.0
"""Seconds after the first finding in which every rank has to judge that step, with ``--stop-on-hit``."""
_NOTES_ROOM: Final = 60
"""Cells for the notes of a step on the line of a hit."""
_KEPT: Final = 200_000
"""The number of hits that are kept for the summary; later hits are only counted."""
_ORIGINS: Final = 10
"""Origins of a step that get their own line without ``--all-hits``."""
_PATIENCE: Final = 2.0
"""Seconds that the line of a step waits for ranks that have not judged the step."""
_QUIET: Final = 5.0
"""Seconds between two progress lines of trainings without findings."""


@dataclass(frozen=True)
class UnfinishedStep:
    """The findings so far in a step of a rank: later reports of the same step may change them.

    ``graphs``: the training has several graphs, so that a node's name may be ambiguous. ``notes``: the step's scalars.
    """

    result: PairResult
    graphs: bool
    notes: Sequence[ShownNote]


@dataclass
class StepFindings:
    """The findings of a step on the ranks that have judged it: one line, after the lines of hits.

    Attributes:
        since: when the first rank had judged the step, by ``time.monotonic``.
        ranks: the ranks with findings.
        findings: the number of tensors with a finding.
        tensors: the number of judged tensors.
        conditions: tensors by the abbreviation of each condition that found something.
        shown: the hits with their own line, each with the step of its rank.
        first: the first origin, or else the first finding.
    """

    since: float = field(default_factory=time.monotonic)
    ranks: set[int] = field(default_factory=set)
    findings: int = 0
    tensors: int = 0
    conditions: Counter[str] = field(default_factory=Counter)
    origins: int = 0
    shown: list[tuple[Hit, UnfinishedStep]] = field(default_factory=list)
    first: tuple[Hit, UnfinishedStep] | None = None

    def add(self, rank: int, new: Sequence[Hit], step: UnfinishedStep, *, show_all: bool) -> None:
        from tui_debugger.model import Verdict
        from tui_debugger.text.hits import abbreviations

        self.ranks.add(rank)
        self.findings += len(new)
        self.tensors += step.result.coverage.checked
        for hit in new:
            self.conditions.update(abbr for abbr, verdict in abbreviations(hit) if verdict is Verdict.FINDING)
            self.origins += hit.origin
            if show_all or (hit.origin and len(self.shown) < _ORIGINS):
                self.shown.append((hit, step))
        first = next((hit for hit in new if hit.origin), new[0])
        if self.first is None or (first.origin and not self.first[0].origin):
            self.first = first, step

    def line(self, number: int, *, alone: bool) -> str:
        """``step 3  ranks 0–1  41 findings in 120 tensors: TO 40, WCL 1``; ``alone``: no line of a hit precedes it."""
        from tui_debugger.text.hits import hit_text
        from tui_debugger.text.notes import notes_text
        from tui_debugger.text.numbers import plural
        from tui_debugger.text.tensors import ranks_text, step_text

        ranks = f"rank{'' if len(self.ranks) == 1 else 's'} {ranks_text(self.ranks)}"
        by_condition = ", ".join(f"{abbr} {count:,}" for abbr, count in self.conditions.most_common())
        counts = f"{plural(self.findings, 'finding')} in {plural(self.tensors, 'tensor')}: {by_condition}"
        parts = [f"step {step_text(number)}", ranks, counts]
        if alone and self.first is not None:
            hit, step = self.first
            parts += [f"first: {hit.key.node} ({hit_text(hit)})", notes_text(step.notes, _NOTES_ROOM)]
        elif self.origins > sum(hit.origin for hit, _ in self.shown):
            parts.append(f"{plural(self.origins, 'origin')} ◆ (--all-hits lists them)")
        return "  ".join(part for part in parts if part)


class Reasons(Protocol):
    """The problems of a session of listening, besides the findings.

    Attributes:
        cut: the session ended before the trainings did, because the output could not be written.
        gone: sentences about trainings that cannot be followed.
        unsaved: why values could not be saved.
        unanswered: sentences about ranks that did not report in time.
    """

    interrupted: bool
    cut: bool
    gone: list[str]
    unsaved: list[str]
    unanswered: list[str]

    def early_ends(self, steps: Mapping[int, int], sick: Collection[int]) -> list[Doubt]:
        """See ``HeadlessListener``."""


class FindingsLog:
    """The findings, their printed lines, and the summary.

    A step is printed when its rank has judged all of it: the first findings may turn out to be by design.
    ``backlog`` holds printed text that a thread has not written yet, if a thread writes.
    """

    def __init__(self, arguments: Namespace) -> None:
        self.backlog: Backlog | None = None
        self._json: bool = arguments.json
        self._all_hits: bool = arguments.all_hits
        self._arguments = arguments
        self._results: dict[Pair, PairResult] = {}
        self._counts: dict[Pair, int] = {}
        self._unfinished: dict[Pair, UnfinishedStep] = {}
        self._printed: dict[int, tuple[Pair, set[tuple[TensorKey, tuple[int, ...]]]]] = {}
        self._steps: dict[int, StepFindings] = {}
        """The steps by number whose line is not printed yet."""
        self._passed: dict[int, int] = {}
        self._last_note = time.monotonic()
        self._kept = 0
        self._findings = 0
        self._unread: Sequence[str] = ()
        """The lines of a summary that went to stdout as JSON."""

    # -- while it runs -----------------------------------------------------------------------------

    def take(self, pair: Pair, result: PairResult, *, graphs: bool, notes: Sequence[ShownNote] = ()) -> bool:
        """Takes the findings in a step so far; tells whether there are more than before."""
        from tui_debugger.model import Verdict

        before, findings = self._counts.get(pair, 0), int((result.hits.verdict == Verdict.FINDING).sum())
        self._keep(pair, result, findings)
        self._unfinished[pair] = UnfinishedStep(result, graphs, notes)
        return findings > before

    def ended(self, rank: int, step: int | None = None) -> list[int]:
        """Marks a rank's steps up to ``step`` (None: all) as complete; returns the steps with new findings."""
        final = sorted(pair for pair in self._unfinished if pair[0] == rank and (step is None or pair[1] <= step))
        return [pair[1] for pair in final if self._finish(pair, self._unfinished.pop(pair))]

    def flush(self, reached: int | None = None) -> None:
        """Prints the steps that all ranks have judged, up to ``reached`` (None: all)."""
        now = time.monotonic()
        for number in sorted(self._steps):
            if reached is None or number <= reached or now - self._steps[number].since > _PATIENCE:
                self._print_step(number, self._steps.pop(number))

    def _keep(self, pair: Pair, result: PairResult, findings: int) -> None:
        """Keeps the result of a step for the summary; its hits only while there is room."""
        before = self._results.get(pair)
        self._kept -= len(before.hits) if before is not None else 0
        room = self._kept + len(result.hits) <= _KEPT
        self._kept += len(result.hits) if room else 0
        self._results[pair] = result if room else dataclasses.replace(result, hits=result.hits[:0])
        self._findings += findings - self._counts.get(pair, 0)
        self._counts[pair] = findings

    def _finish(self, pair: Pair, step: UnfinishedStep) -> bool:
        from tui_debugger.model import Verdict

        rank, number = pair
        printed = self._printed.get(rank)
        if printed is None or printed[0] != pair:
            printed = self._printed[rank] = (pair, set())
        found = step.result.hits.with_verdict(Verdict.FINDING)
        new = [hit for hit in found if (hit.key, _finders(hit)) not in printed[1]]
        printed[1].update((hit.key, _finders(hit)) for hit in new)
        if not new:
            return False
        self._passed[rank] = max(number, self._passed.get(rank, -1))
        findings = self._steps.setdefault(number, StepFindings())
        findings.add(rank, new, step, show_all=self._all_hits and not self._json)
        if self._json:
            from tui_debugger.text.notes import notes_row
            from tui_debugger.text.rows import hit_row

            for hit in new:
                _print_json({"event": "hit", **hit_row(hit), **notes_row(step.notes)})
        return True

    def _print_step(self, number: int, findings: StepFindings) -> None:
        self._last_note = time.monotonic()
        if self._json:
            note(findings.line(number, alone=True))
            return
        for hit, step in findings.shown:
            _print_hit(hit, step)
        print_text(findings.line(number, alone=not findings.shown))

    def pause(self, session: LiveSession) -> None:
        """Prints the progress of trainings without findings now and then."""
        now = time.monotonic()
        if now - self._last_note < _QUIET:
            return
        self._last_note = now
        for state in session.trainings():
            if state.passed is not None and state.passed > self._passed.get(state.rank, -1):
                self._passed[state.rank] = state.passed
                note(f"step {state.passed}  rank {state.rank}  ended")

    # -- at the end --------------------------------------------------------------------------------

    def failed(self, error: TdbgError) -> None:
        """Prints an error as the last line, with ``--json`` only."""
        if self._json:
            _print_json({"event": "summary", **undecided("listen", None, error)})

    def summary(
        self, session: LiveSession, rules: Collection[int], fail_on: frozenset[str], batch: Reasons, saved: str
    ) -> int:
        from tui_debugger.check.verdicts import Doubt, judge

        for rank in {rank for rank, _ in self._unfinished}:
            self.ended(rank)
        self.flush()
        unprinted = self.backlog.take_all() if self.backlog is not None else 0
        result = self._total(session, cancelled=batch.interrupted)
        steps = _steps(result, session)
        sick = {rank for (rank, _), count in self._counts.items() if count}
        doubts = [*batch.early_ends(steps, sick), *(Doubt("lost", text) for text in batch.gone)]
        doubts += [Doubt("unsaved", text) for text in batch.unsaved]
        doubts += [Doubt("unanswered", text) for text in batch.unanswered]
        if not any(steps.values()):
            doubts.append(Doubt("nothing", "no step was judged"))
        judgement = judge(
            result,
            rules=rules,
            fail_on=fail_on,
            allow_unreadable=self._arguments.allow_unreadable,
            allow_unmatched=self._arguments.allow_unmatched,
            more=doubts,
        )
        code = judgement.outcome.exit_code
        for notice in session.info.notices:
            note(notice)
        texts = self._texts(result, judgement, steps, saved, so_far=" so far" if batch.cut else "")
        if self._json:
            document = self._document(result, judgement, code, steps, saved)
            self._unread = texts
            _print_json({**document, "unprinted": unprinted, "version": __version__})
            return code
        from tui_debugger.cli.check_report import OUTCOMES
        from tui_debugger.text.numbers import plural

        *texts, last = texts
        if unprinted:
            texts.append(f"{plural(unprinted, 'line')} not printed: nobody read the output in time")
        for text in texts:
            note(text, Meaning.DOUBT if text.startswith("cannot judge") else None)
        note(last, OUTCOMES[judgement.outcome])
        return code

    def tell_again(self) -> None:
        """Repeats the summary on stderr after stdout could not be written."""
        for text in self._unread:
            note(text)

    def _total(self, session: LiveSession, *, cancelled: bool) -> CheckResult:
        """Everything that was judged, steps without hits included."""
        from tui_debugger.check.hits import HitList
        from tui_debugger.check.results import combined, repeated
        from tui_debugger.check.types import CheckResult

        version, watchpoints = session.watchpoints.snapshot()
        parts = list(self._results.values())
        covers = [part.coverage for part in parts]
        covers += [repeated(coverage, count) for _, count, coverage in session.silent()]
        coverage = dataclasses.replace(combined(covers), parts=session.unreadable())
        hits = HitList.merged(part.hits for part in parts)
        return CheckResult(coverage.steps, hits, coverage, watchpoints, version, cancelled=cancelled)

    def _document(
        self, result: CheckResult, judgement: CheckJudgement, code: int, steps: dict[int, int], saved: str
    ) -> Row:
        from tui_debugger.causes.by_design_steps import by_design_text
        from tui_debugger.text.rows import coverage_row, key_row, part_rows, watch_row

        coverage = coverage_row(result.coverage)
        del coverage["pairs"]
        return {
            "event": "summary",
            "command": "listen",
            "exit_code": code,
            "verdict": judgement.outcome.value,
            "reasons": rows_of(judgement.doubts, "kind", "text"),
            "watchpoints": [
                {
                    **watch_row(tally.watchpoint, tally.tensors),
                    **row_of(tally, "judged", "findings"),
                    "blocked": tally.blocked.tensors,
                }
                for tally in judgement.tallies
            ],
            "coverage": coverage,
            "by_design": by_design_text(result.hits) or None,
            "unrecorded": part_rows(part for part in result.coverage.parts if part.unrecorded),
            "steps": [{"rank": rank, "steps": count} for rank, count in steps.items()],
            "findings": self._findings,
            "failing": len(judgement.failing),
            "origins": [key_row(hit.key) for hit in result.hits if hit.origin],
            "saved": saved or None,
        }

    def _texts(
        self, result: CheckResult, judgement: CheckJudgement, steps: dict[int, int], saved: str, *, so_far: str
    ) -> list[str]:
        from tui_debugger.causes.by_design_steps import by_design_text
        from tui_debugger.check.verdicts import Outcome
        from tui_debugger.text.numbers import plural

        coverage = result.coverage
        ran = ", ".join(f"rank {rank}: {plural(count, 'step')}" for rank, count in steps.items()) or "no step ran"
        judged = f"{plural(coverage.checked, 'tensor')} judged by the training"
        texts = [f"{ran}; {judged}, {coverage.unreadable:,} unreadable, {coverage.not_comparable:,} not comparable"]
        texts += [designed] if (designed := by_design_text(result.hits)) else []
        texts += [f"saved {saved}"] if saved else []
        texts += [f"cannot judge: {doubt.text}" for doubt in judgement.doubts]
        origins = sum(hit.origin for hit in result.hits)
        found = plural(self._findings, "finding") + (f", {plural(origins, 'origin')} ◆" if origins else "")
        last = {
            Outcome.FINDING: f"FINDINGS: {found}{so_far}",
            Outcome.CLEAN: f"clean{so_far}" + (f": {found}, none that --fail-on names" if self._findings else ""),
            Outcome.CANNOT_JUDGE: "" if judgement.doubts else "cannot judge",
            Outcome.INTERRUPTED: f"interrupted: {found} so far",
        }[judgement.outcome]
        return [*texts, *([last] if last else [])]


def _steps(result: CheckResult, session: LiveSession) -> dict[int, int]:
    """The ended and judged steps by rank. Operations after the last step belong to a step that never ends."""
    counts: dict[int, int] = {}
    ended = session.ended()
    for rank, step in result.coverage.steps:
        counts[rank] = counts.get(rank, 0) + (0 <= step <= ended.get(rank, -1))
    for rank, count, _ in session.silent():
        counts[rank] = counts.get(rank, 0) + count
    return dict(sorted(counts.items()))


def _finders(hit: Hit) -> tuple[int, ...]:
    from tui_debugger.model import Verdict

    return tuple(each.watchpoint for each in hit.results if each.verdict is Verdict.FINDING)


def _print_hit(hit: Hit, step: UnfinishedStep) -> None:
    from tui_debugger.text.hits import hit_text, said_words
    from tui_debugger.text.notes import notes_text
    from tui_debugger.text.tables import Column, Cut, table_lines
    from tui_debugger.text.tensors import place_text, step_text

    words = ("◆ " if hit.origin else "") + hit_text(hit)
    where = f"step {step_text(hit.key.step)}  rank {hit.key.rank}"
    found = meant(words, Meaning.FINDING)
    columns = [
        Column(""),
        Column(""),
        Column("", cut=Cut.END),
        Column("", cut=Cut.MIDDLE, weight=9),
        Column("", cut=Cut.END),
    ]
    place = place_text(hit.key, with_graph=step.graphs)
    cells = [where, said_words(hit), found, place, notes_text(step.notes, _NOTES_ROOM)]
    kept = [at for at, cell in enumerate(cells) if cell]
    row = [cells[at] for at in kept]
    write_lines(*table_lines([columns[at] for at in kept], [row], terminal_of()))


def _print_json(row: Row) -> None:
    write_data(document_line(row), flush=True)
