"""What ``tdbg listen --no-screen`` prints: hits as they come, what was covered, the verdict."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from tui_debugger import __version__
from tui_debugger.cli.output import note, undecided, with_schema

if TYPE_CHECKING:
    from tui_debugger.cli.listen_batch import Batch
    from tui_debugger.errors import TdbgError
    from tui_debugger.model import Coverage, Hit, ProgressFn, TensorKey
    from tui_debugger.session import CheckResult
    from tui_debugger.session.checking import PairResult
    from tui_debugger.session.hits import HitList
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.types import Pair
    from tui_debugger.session.verdicts import Doubt, Judgement

_KEPT: Final = 200_000
"""So many hits are kept for the summary; those after them are counted only."""
_ROOM: Final = 256 << 20
"""Bytes of values that are fetched at one step to be saved."""
_EVERYTHING: Final = 5000
"""Tensors that are fetched then."""
_SETTLED: Final = 2.0
"""Seconds without a word of a step after which it is summed up although its training still runs."""
_QUIET: Final = 5.0
"""Seconds between two lines that say how far a training is that has nothing to say."""


class Log:
    """What was printed, and what it adds up to."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Nothing came yet."""
        self._json: bool = arguments.json
        self._arguments = arguments
        self._results: dict[Pair, PairResult] = {}
        self._counts: dict[Pair, int] = {}
        self._printed: dict[int, tuple[Pair, set[tuple[TensorKey, tuple[int, ...]]]]] = {}
        self._open: dict[int, Pair] = {}
        """By rank the step with findings that is not summed up yet."""
        self._first: dict[int, HitList] = {}
        self._passed: dict[int, int] = {}
        self._heard: dict[int, float] = {}
        """By rank when a finding came last."""
        self._said = time.monotonic()
        self._kept = 0
        self._findings = 0

    # -- while it runs -----------------------------------------------------------------------------

    def report(self, pair: Pair, result: PairResult, *, graphs: bool) -> Sequence[Hit]:
        """Prints the findings of a step, each once; returns those that are new.

        Args:
            pair: (rank, step).
            result: what was found there so far.
            graphs: the training has several graphs, so that a name alone may mean two nodes.
        """
        from tui_debugger.model import Verdict

        rank = pair[0]
        if self._open.get(rank, pair) != pair:
            self._sum_up(rank)
        found = result.hits.with_verdict(Verdict.FINDING)
        printed = self._printed.get(rank)
        if printed is None or printed[0] != pair:
            printed = self._printed[rank] = (pair, set())
        new = [hit for hit in found if (hit.key, _finders(hit)) not in printed[1]]
        printed[1].update((hit.key, _finders(hit)) for hit in new)
        self._keep(pair, result, len(found))
        for hit in new:
            self._line(hit, graphs=graphs)
        if new:
            self._open[rank], self._heard[rank] = pair, time.monotonic()
        sys.stdout.flush()
        return new

    def _keep(self, pair: Pair, result: PairResult, findings: int) -> None:
        """For the summary."""
        before = self._results.get(pair)
        self._kept -= len(before.hits) if before is not None else 0
        room = self._kept + len(result.hits) <= _KEPT
        self._kept += len(result.hits) if room else 0
        self._results[pair] = result if room else dataclasses.replace(result, hits=result.hits[:0])
        self._findings += findings - self._counts.get(pair, 0)
        self._counts[pair] = findings
        self._first[pair[0]] = result.hits

    def pause(self, session: LiveSession) -> None:
        """Nothing happens just now: sums up the steps with findings, and says now and then how far others are."""
        from tui_debugger.live.types import Phase

        now = time.monotonic()
        for rank in list(self._open):
            # At operator level the findings of a step come one after the other.
            if session.state(rank).phase is not Phase.RUNNING or now - self._heard[rank] > _SETTLED:
                self._sum_up(rank)
        if now - self._said < _QUIET:
            return
        self._said = now
        for state in session.trainings():
            if state.passed is not None and state.passed > self._passed.get(state.rank, -1):
                self._passed[state.rank] = state.passed
                note(f"step {state.passed}  rank {state.rank}  no new findings")

    def _sum_up(self, rank: int) -> None:
        """One line for a step with findings."""
        from tui_debugger.text.hits import hit_text
        from tui_debugger.text.numbers import plural
        from tui_debugger.text.tensors import step_text

        pair, hits = self._open.pop(rank), self._first.pop(rank, None)
        result = self._results[pair]
        if hits is None or not self._counts[pair]:
            return
        first = next((hit for hit in hits if hit.origin), None) or _first_finding(hits)
        named = f"{first.key.node.rpartition('/')[2]} ({hit_text(first)})" if first is not None else ""
        parts = [f"step {step_text(pair[1])}", f"rank {rank}", plural(result.coverage.checked, "tensor")]
        note("  ".join([*parts, plural(self._counts[pair], "finding"), f"first: {named}"]))
        self._passed[rank] = max(pair[1], self._passed.get(rank, -1))
        self._said = time.monotonic()

    def _line(self, hit: Hit, *, graphs: bool) -> None:
        if self._json:
            from tui_debugger.session.tables import hit_row

            _print_json({"event": "hit", **hit_row(hit)})
            return
        from tui_debugger.session.naming import place_text
        from tui_debugger.text.clean import clean
        from tui_debugger.text.hits import hit_text, said_words
        from tui_debugger.text.tensors import step_text

        words = ("◆ " if hit.origin else "") + hit_text(hit)
        where = [f"step {step_text(hit.key.step)}", f"rank {hit.key.rank}"]
        parts = [*where, said_words(hit), words, place_text(hit.key, with_graph=graphs)]
        print(clean("  ".join(filter(None, parts))))

    def collect(self, session: LiveSession, pair: Pair, result: PairResult, progress: ProgressFn) -> None:
        """Fetches the tensors around findings, to be saved: see ``LiveSession.keep``."""
        from tui_debugger.errors import CancelledError, TdbgError
        from tui_debugger.session.live_evidence import Budget

        try:
            session.keep(*pair, result.hits, Budget(_EVERYTHING, _ROOM, _ROOM), progress)
        except CancelledError:
            raise
        except TdbgError as error:
            note(f"not everything around the hits could be fetched: {error.what}")

    def collect_all(self, session: LiveSession, rank: int, step: int, progress: ProgressFn) -> None:
        """Fetches what is watched at the last step, to be saved."""
        from tui_debugger.session.hits import HitList
        from tui_debugger.session.live_evidence import Budget

        session.keep(rank, step, HitList(()), Budget(_EVERYTHING, _ROOM, _ROOM), progress)

    # -- at the end --------------------------------------------------------------------------------

    def failed(self, error: TdbgError) -> None:
        """With ``--json`` an error is the last line."""
        if self._json:
            _print_json({"event": "summary", **undecided("listen", None, error)})

    def summary(
        self, session: LiveSession, rules: Collection[int], fail_on: frozenset[str], batch: Batch, saved: str
    ) -> int:
        """Prints what it all comes to; returns the exit code."""
        from tui_debugger.cli.check_report import EXIT_CODES
        from tui_debugger.session.verdicts import Doubt

        for rank in list(self._open):
            self._sum_up(rank)
        result = self._total(session, cancelled=batch.interrupted)
        steps = _steps(result, session)
        doubts = [Doubt("lost", text) for text in batch.gone] + [Doubt("unsaved", text) for text in batch.unsaved]
        judgement = self._judged(result, rules, fail_on, doubts)
        if not any(steps.values()):
            judgement = _doubted(judgement, Doubt("nothing", "no step was judged"))
        code = EXIT_CODES[judgement.outcome]
        for notice in session.info.notices:
            note(notice)
        if self._json:
            _print_json(self._document(result, judgement, code, steps, saved))
            return code
        for text in self._texts(result, judgement, steps, saved):
            note(text)
        return code

    def _total(self, session: LiveSession, *, cancelled: bool) -> CheckResult:
        """Everything that was judged, steps without hits included."""
        from tui_debugger.session.hits import HitList
        from tui_debugger.session.results import combined
        from tui_debugger.session.types import CheckResult

        version, watchpoints = session.watchpoints.snapshot()
        parts = list(self._results.values())
        covers = [part.coverage for part in parts]
        covers += [_times(coverage, count) for _, count, coverage in session.silent()]
        coverage = dataclasses.replace(combined(covers), parts=session.unreadable())
        hits = HitList.merged(part.hits for part in parts)
        return CheckResult(coverage.steps, hits, coverage, watchpoints, version, cancelled=cancelled)

    def _judged(
        self, result: CheckResult, rules: Collection[int], fail_on: frozenset[str], doubts: Sequence[Doubt]
    ) -> Judgement:
        from tui_debugger.session.verdicts import judge

        judgement = judge(
            result,
            rules=rules,
            fail_on=fail_on,
            allow_unreadable=self._arguments.allow_unreadable,
            allow_unmatched=self._arguments.allow_unmatched,
        )
        for doubt in doubts:
            judgement = _doubted(judgement, doubt)
        return judgement

    def _document(
        self, result: CheckResult, judgement: Judgement, code: int, steps: dict[int, int], saved: str
    ) -> dict[str, Any]:
        from tui_debugger.session.tables import coverage_row, key_row, part_rows, watch_row

        coverage = coverage_row(result.coverage)
        del coverage["pairs"]
        return {
            "event": "summary",
            "command": "listen",
            "exit_code": code,
            "verdict": judgement.outcome.value,
            "reasons": [{"kind": doubt.kind, "text": doubt.text} for doubt in judgement.doubts],
            "watchpoints": [
                {
                    **watch_row(tally.watchpoint, tally.tensors),
                    "judged": tally.judged,
                    "findings": tally.findings,
                    "blocked": tally.blocked.tensors,
                }
                for tally in judgement.tallies
            ],
            "coverage": coverage,
            "unrecorded": part_rows(part for part in result.coverage.parts if part.unrecorded),
            "steps": [{"rank": rank, "steps": count} for rank, count in steps.items()],
            "findings": self._findings,
            "failing": len(judgement.failing),
            "origins": [key_row(hit.key) for hit in result.hits if hit.origin],
            "saved": saved or None,
            "version": __version__,
        }

    def _texts(self, result: CheckResult, judgement: Judgement, steps: dict[int, int], saved: str) -> list[str]:
        from tui_debugger.session.verdicts import Outcome
        from tui_debugger.text.numbers import plural

        coverage = result.coverage
        ran = ", ".join(f"rank {rank}: {plural(count, 'step')}" for rank, count in steps.items()) or "no step ran"
        judged = f"{plural(coverage.checked, 'tensor')} judged by the training"
        texts = [f"{ran}; {judged}, {coverage.unreadable:,} unreadable, {coverage.not_comparable:,} not comparable"]
        texts += [f"saved {saved}"] if saved else []
        texts += [f"cannot judge: {doubt.text}" for doubt in judgement.doubts]
        origins = sum(hit.origin for hit in result.hits)
        found = plural(self._findings, "finding") + (f", {plural(origins, 'origin')} ◆" if origins else "")
        last = {
            Outcome.FINDING: f"FINDINGS: {found}",
            Outcome.CLEAN: "clean" if not self._findings else f"clean: {found}, none that --fail-on names",
            Outcome.CANNOT_JUDGE: "" if judgement.doubts else "cannot judge",
            Outcome.INTERRUPTED: f"interrupted: {found} so far",
        }[judgement.outcome]
        return [*texts, *([last] if last else [])]


def _doubted(judgement: Judgement, doubt: Doubt) -> Judgement:
    """With one more reason not to say "clean", unless there is one of its kind that says as much."""
    from tui_debugger.session.verdicts import Outcome

    if doubt.kind == "nothing" and any(each.kind == "nothing" for each in judgement.doubts):
        return judgement
    outcome = Outcome.CANNOT_JUDGE if judgement.outcome is Outcome.CLEAN else judgement.outcome
    return dataclasses.replace(judgement, doubts=(*judgement.doubts, doubt), outcome=outcome)


def _times(coverage: Coverage, count: int) -> Coverage:
    return dataclasses.replace(
        coverage,
        checked=coverage.checked * count,
        skipped=coverage.skipped * count,
        watched=tuple((watchpoint, tensors * count) for watchpoint, tensors in coverage.watched),
    )


def _steps(result: CheckResult, session: LiveSession) -> dict[int, int]:
    """Steps that ended and were judged, by rank: what runs after the last one belongs to a step that never ends."""
    counts: dict[int, int] = {}
    ended = session.ended()
    for rank, step in result.coverage.steps:
        counts[rank] = counts.get(rank, 0) + (0 <= step <= ended.get(rank, -1))
    for rank, count, _ in session.silent():
        counts[rank] = counts.get(rank, 0) + count
    return dict(sorted(counts.items()))


def _finders(hit: Hit) -> tuple[int, ...]:
    """The watchpoints that found it."""
    from tui_debugger.model import Verdict

    return tuple(each.watchpoint for each in hit.results if each.verdict is Verdict.FINDING)


def _first_finding(hits: HitList) -> Hit | None:
    from tui_debugger.model import Verdict

    return next(iter(hits.with_verdict(Verdict.FINDING)), None)


def _print_json(row: dict[str, Any]) -> None:
    print(json.dumps(with_schema(row), allow_nan=False), flush=True)
