"""What a check looked at and what it found, in a line each: for commands and reports alike."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.model import Coverage, Hit
from tui_debugger.session.hits import Blocked, is_overflow
from tui_debugger.session.types import CheckResult
from tui_debugger.session.verdicts import Tally
from tui_debugger.text.hits import watch_line
from tui_debugger.text.numbers import named, plural
from tui_debugger.watch.conditions import not_finite_words


def coverage_line(result: CheckResult) -> str:
    """``1,141 tensors checked, 3 unreadable, 0 skipped, 52 not comparable; steps 0-5; rank 0``."""
    coverage = result.coverage
    ranks, steps = ({pair[part] for pair in coverage.steps} for part in (0, 1))
    counts = (
        f"{plural(coverage.checked, 'tensor')} checked, {coverage.unreadable:,} unreadable, "
        f"{coverage.skipped:,} skipped, {coverage.not_comparable:,} not comparable"
    )
    if coverage.by_design:
        counts += f", {coverage.by_design:,} with Inf by design"
    parts = [counts, *_unlisted(coverage), named("step", sorted(steps)), named("rank", sorted(ranks))]
    if len(coverage.steps) < len(ranks) * len(steps):
        parts.append(f"{len(coverage.steps):,} of these pairs")
    if coverage.constants:
        hold = "input holds a graph constant" if coverage.constants == 1 else "inputs hold graph constants"
        parts.append(f"{coverage.constants:,} {hold}: judged for overflow at most")
    return "; ".join(parts)


def tally_table(tallies: Sequence[Tally]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and rows of what each watchpoint came to; what it did not judge has columns where there is some."""
    columns: list[tuple[str, list[str]]] = [
        ("tensors", [f"{tally.tensors:,}" for tally in tallies]),
        ("findings", [f"{tally.findings:,}" for tally in tallies]),
    ]
    if any(tally.blocked.tensors for tally in tallies):
        columns.append(("not judged", [_blocked(tally.blocked) for tally in tallies]))
    if any(tally.by_design for tally in tallies):
        columns.append(("by design", [f"{tally.by_design:,}" for tally in tallies]))
    columns.append(("watchpoint", [watch_line(tally.watchpoint) for tally in tallies]))
    titles, cells = zip(*columns, strict=True)
    return titles, list(zip(*cells, strict=True))


def _blocked(blocked: Blocked) -> str:
    return f"{blocked.tensors:,}: {not_finite_words(blocked.error)}" if blocked.tensors else "0"


def _unlisted(coverage: Coverage) -> list[str]:
    return [f"{plural(len(coverage.parts), 'part')} of the dump not listed"] if coverage.parts else []


def stopped_line(result: CheckResult) -> str:
    """``stopped: 9 of 50 steps checked (steps 0-8)``."""
    steps, ranks = (sorted({pair[part] for pair in result.pairs}) for part in (1, 0))
    which = [named("step", steps), *([named("rank", ranks)] if len(ranks) > 1 else [])]
    done = f"stopped: {len(result.pairs):,} of {plural(result.asked, 'step')} checked"
    return done + (f" ({', '.join(which)})" if result.pairs else "")


def findings_line(hits: Sequence[Hit], result: CheckResult) -> str:
    """``NaN or Inf in 314 tensors, other findings in 5, at step 3, 2 origins ◆``; ``5 tensors at step 3``."""
    text = f"{_kinds(hits)} at {named('step', sorted({hit.key.step for hit in hits}))}"
    if len({rank for rank, _ in result.pairs}) > 1:
        text += f" of {named('rank', sorted({hit.key.rank for hit in hits}))}"
    origins = sum(hit.origin for hit in hits)
    return text + (f", {plural(origins, 'origin')} ◆" if origins else "")


def _kinds(hits: Sequence[Hit]) -> str:
    """How many tensors: one with NaN or Inf counts as that, whatever else was asked."""
    overflow = [hit for hit in hits if is_overflow(hit)]
    if not overflow:
        return plural(len(hits), "tensor")
    others = len(hits) - len(overflow)
    text = f"{_not_finite(overflow)} in {plural(len(overflow), 'tensor')}"
    return text + (f", other findings in {others:,}," if others else "")


def _not_finite(hits: Sequence[Hit]) -> str:
    """Which of NaN and Inf there is; both where a training did not say."""
    stats = [hit.stats for hit in hits]
    nan = any(each is None or each.nan for each in stats)
    inf = any(each is None or each.inf for each in stats)
    return " or ".join([*(["NaN"] if nan else []), *(["Inf"] if inf else [])]) or "NaN or Inf"
