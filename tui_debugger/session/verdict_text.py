"""What a check looked at and what it found, in a line each: for commands and reports alike."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.model import Coverage, Hit
from tui_debugger.session.types import CheckResult
from tui_debugger.words.numbers import named, plural


def coverage_line(result: CheckResult) -> str:
    """``1,141 tensors checked, 3 unreadable, 0 skipped, 52 not comparable; steps 0-5; rank 0``."""
    coverage = result.coverage
    ranks, steps = ({pair[part] for pair in coverage.steps} for part in (0, 1))
    counts = (
        f"{plural(coverage.checked, 'tensor')} checked, {coverage.unreadable:,} unreadable, "
        f"{coverage.skipped:,} skipped, {coverage.not_comparable:,} not comparable"
    )
    parts = [counts, *_unlisted(coverage), named("step", sorted(steps)), named("rank", sorted(ranks))]
    if len(coverage.steps) < len(ranks) * len(steps):
        parts.append(f"{len(coverage.steps):,} of these pairs")
    return "; ".join(parts)


def _unlisted(coverage: Coverage) -> list[str]:
    return [f"{plural(len(coverage.parts), 'part')} of the dump not listed"] if coverage.parts else []


def stopped_line(result: CheckResult) -> str:
    """``stopped: 9 of 50 steps checked (steps 0-8)``."""
    steps, ranks = (sorted({pair[part] for pair in result.pairs}) for part in (1, 0))
    which = [named("step", steps), *([named("rank", ranks)] if len(ranks) > 1 else [])]
    done = f"stopped: {len(result.pairs):,} of {plural(result.asked, 'step')} checked"
    return done + (f" ({', '.join(which)})" if result.pairs else "")


def findings_line(hits: Sequence[Hit], result: CheckResult) -> str:
    """``314 tensors at step 3, 2 origins ◆``."""
    text = f"{plural(len(hits), 'tensor')} at {named('step', sorted({hit.key.step for hit in hits}))}"
    if len({rank for rank, _ in result.pairs}) > 1:
        text += f" of {named('rank', sorted({hit.key.rank for hit in hits}))}"
    origins = sum(hit.origin for hit in hits)
    return text + (f", {plural(origins, 'origin')} ◆" if origins else "")
