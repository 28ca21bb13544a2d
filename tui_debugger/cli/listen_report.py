"""What ``tdbg listen --no-screen`` prints: hits as they come, what was covered, the verdict."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from tui_debugger import __version__
from tui_debugger.cli.output import note, undecided

if TYPE_CHECKING:
    from tui_debugger.cli.listen_batch import Batch
    from tui_debugger.errors import TdbgError
    from tui_debugger.model import Coverage, Hit, ProgressFn
    from tui_debugger.session import CheckResult
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.types import Pair
    from tui_debugger.session.verdicts import Doubt, Judgement

_KEPT: Final = 200_000
"""So many hits are kept for the summary; those after them are counted only."""
_COLLECTED: Final = 100
"""Hits of one step around which tensors are fetched to be saved."""
_ROOM: Final = 64 << 20
"""Bytes that are fetched for them."""
_EVERYTHING: Final = 5000
"""Tensors of which statistics are fetched at the last step."""


class Log:
    """What was printed, and what it adds up to."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Nothing came yet."""
        self._json: bool = arguments.json
        self._arguments = arguments
        self._results: dict[Pair, CheckResult] = {}
        self._kept = 0
        self._findings = 0

    # -- while it runs -----------------------------------------------------------------------------

    def report(self, pair: Pair, result: CheckResult, *, graphs: bool) -> Sequence[Hit]:
        """Prints the findings of a step, once; returns them.

        Args:
            pair: (rank, step).
            result: what was found there.
            graphs: the training has several graphs, so that a name alone may mean two nodes.
        """
        from tui_debugger.model import Verdict

        if pair in self._results:
            return ()
        found = result.hits.with_verdict(Verdict.FINDING)
        room = self._kept + len(result.hits) <= _KEPT
        self._kept += len(result.hits) if room else 0
        self._results[pair] = result if room else dataclasses.replace(result, hits=result.hits[:0])
        self._findings += len(found)
        for hit in found:
            self._line(hit, graphs=graphs)
        sys.stdout.flush()
        return found

    def _line(self, hit: Hit, *, graphs: bool) -> None:
        if self._json:
            from tui_debugger.session.tables import hit_row

            _print_json({"event": "hit", **hit_row(hit)})
            return
        from tui_debugger.session.naming import place_text
        from tui_debugger.words.clean import clean
        from tui_debugger.words.hits import hit_text, said_words
        from tui_debugger.words.steps import step_text

        words = ("◆ " if hit.origin else "") + hit_text(hit)
        where = [f"step {step_text(hit.key.step)}", f"rank {hit.key.rank}"]
        parts = [*where, said_words(hit), words, place_text(hit.key, with_graph=graphs)]
        print(clean("  ".join(filter(None, parts))))

    def collect(self, session: LiveSession, hits: Sequence[Hit], progress: ProgressFn) -> None:
        """Fetches the tensors of nodes with findings, inputs included, as far as there is room."""
        from tui_debugger.errors import CancelledError, TdbgError

        left = _ROOM
        try:
            for hit in hits[:_COLLECTED]:
                rows = session.measure(session.tensor_rows(hit.key.rank, hit.key.step, hit.row), progress)
                for row in rows:
                    size = row.meta.nbytes if row.meta is not None else 0
                    if row.remote and 0 < size <= left:
                        session.fetch([row], progress)
                        left -= size
        except CancelledError:
            raise
        except TdbgError as error:
            note(f"not everything around the hits could be fetched: {error.what}")

    def collect_all(self, session: LiveSession, rank: int, step: int, progress: ProgressFn) -> None:
        """Fetches statistics (small tensors whole) of what is watched."""
        import numpy as np

        for row in np.flatnonzero(session.watch_state(rank))[:_EVERYTHING].tolist():
            rows = [each for each in session.tensor_rows(rank, step, row) if each.role == "out"]
            session.measure(rows, progress)

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

        result = self._total(session, cancelled=batch.interrupted)
        steps = _steps(result, session)
        judgement = self._judged(result, rules, fail_on, [Doubt("lost", text) for text in batch.gone])
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
        coverage = combined(covers)
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
        from tui_debugger.session.tables import coverage_row, key_row, watch_row

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
            "steps": [{"rank": rank, "steps": count} for rank, count in steps.items()],
            "findings": self._findings,
            "failing": len(judgement.failing),
            "origins": [key_row(hit.key) for hit in result.hits if hit.origin],
            "saved": saved or None,
            "version": __version__,
        }

    def _texts(self, result: CheckResult, judgement: Judgement, steps: dict[int, int], saved: str) -> list[str]:
        from tui_debugger.session.verdicts import Outcome
        from tui_debugger.words.numbers import plural

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
    """Steps that were judged, by rank."""
    counts: dict[int, int] = {}
    for rank, step in result.coverage.steps:
        counts[rank] = counts.get(rank, 0) + (step >= 0)
    for rank, count, _ in session.silent():
        counts[rank] = counts.get(rank, 0) + count
    return dict(sorted(counts.items()))


def _print_json(row: dict[str, Any]) -> None:
    print(json.dumps(row, allow_nan=False), flush=True)
