"""Judges a whole check: a finding, clean, or why neither. A clean answer needs something looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from tui_debugger.check.hits import Blocked, HitList
from tui_debugger.check.results import counted_parts, parts_text
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.errors import CancelledError
from tui_debugger.model import Coverage, NodeKind, Verdict, Watchpoint, WatchResult
from tui_debugger.text.hits import watch_line
from tui_debugger.text.numbers import named, plural
from tui_debugger.text.rows import reasons_of
from tui_debugger.watch.condition_table import (
    CONDITIONS,
    NO_VALUE_WORDS,
    REASONS,
    not_finite_words,
)
from tui_debugger.watch.text import format_watch


class Outcome(Enum):
    """The outcome of a check."""

    FINDING = "finding"
    CLEAN = "clean"
    CANNOT_JUDGE = "cannot_judge"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        if self is Outcome.INTERRUPTED:
            return CancelledError.exit_code
        return {Outcome.CLEAN: 0, Outcome.FINDING: 1, Outcome.CANNOT_JUDGE: 2}[self]


_NONE_BLOCKED: Final = Blocked()
_GROUPS: Final = 3
"""The most groups of ranks with the same missing steps that are named."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The tensors that one watchpoint looked at, and its verdicts; ``blocked`` tensors are no findings of it."""

    watchpoint: Watchpoint
    tensors: int
    findings: int
    not_comparable: int
    cannot_judge: int
    blocked: Blocked = _NONE_BLOCKED
    by_design: int = 0

    @property
    def judged(self) -> int:
        """The number of tensors that could be judged; an Inf by design only by watchpoints that look for Inf."""
        overflow = CONDITIONS[self.watchpoint.condition].is_overflow
        unjudged = self.not_comparable + self.cannot_judge + self.blocked.tensors
        return self.tensors - unjudged - (0 if overflow else self.by_design)

    @property
    def idle(self) -> bool:
        """Whether the watchpoint looked at tensors and could judge none of them."""
        return self.tensors > 0 and not self.judged


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason why a check cannot say "clean".

    ``kind``: ``nothing`` was looked at or compared; a watchpoint is ``unmatched``; tensors or parts of the dump are
    ``unreadable``; a training left something ``unrecorded``; tensors could not be compared (``uncomparable``); a
    training ``ended`` early, was ``lost``, or could not be saved (``unsaved``).
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckJudgement:
    """The outcome of a check, and its reasons."""

    outcome: Outcome  # a finding outranks a doubt
    tallies: tuple[Tally, ...]
    doubts: tuple[Doubt, ...]  # why it could not say "clean"; given beside a finding too
    failing: HitList  # findings of a condition that counts, or NaN or Inf that kept it from being judged
    others: HitList  # findings of other conditions only
    unsure: HitList  # could not be judged, and have no finding


def judge(
    result: CheckResult,
    *,
    rules: Collection[int] = (),
    fail_on: Collection[str] = (),
    allow_unreadable: bool = False,
    allow_unmatched: bool = False,
    more: Iterable[Doubt] = (),
) -> CheckJudgement:
    """Judges a whole check; only findings of the conditions ``fail_on`` (empty: all) count.

    ``rules`` are ids of watchpoints that a person wrote: each has to match a tensor, else it may hold a typo, unless
    ``allow_unmatched``. With ``allow_unreadable`` tensors and parts that cannot be read or compared are no doubt.
    ``more`` are doubts that the result does not tell; only one says that there is ``nothing``.
    """
    hits = result.hits.with_verdict(Verdict.FINDING)
    chosen = hits.found_by(fail_on) if fail_on else hits.verdict == Verdict.FINDING
    failing, others = hits.chosen(chosen), hits.chosen(~chosen)
    unsure = result.hits.with_verdict(Verdict.CANNOT_JUDGE)
    tallies = _tallies(result)
    doubts: tuple[Doubt, ...] = ()
    if not result.cancelled:  # the missing part of a cancelled check is no doubt
        doubts = (
            *_nothing(result, tallies, fail_on),
            *([] if allow_unmatched else _unmatched(tallies, rules, result.coverage)),
            *([] if allow_unreadable else _unjudged(result)),
            *_unclaimed(result),
        )
    nothing = any(doubt.kind == "nothing" for doubt in doubts)
    doubts += tuple(doubt for doubt in more if not (nothing and doubt.kind == "nothing"))
    if result.cancelled:
        outcome = Outcome.INTERRUPTED
    elif failing:
        outcome = Outcome.FINDING
    else:
        outcome = Outcome.CANNOT_JUDGE if doubts else Outcome.CLEAN
    return CheckJudgement(outcome, tallies, doubts, failing, others, unsure)


def _tallies(result: CheckResult) -> tuple[Tally, ...]:
    watched = dict(result.coverage.watched)
    counts, blocked = result.hits.counts(), result.hits.blocked()
    return tuple(
        Tally(
            watchpoint=watchpoint,
            tensors=watched.get(watchpoint.id, 0),
            findings=counts[watchpoint.id, Verdict.FINDING],
            not_comparable=counts[watchpoint.id, Verdict.NOT_COMPARABLE],
            cannot_judge=counts[watchpoint.id, Verdict.CANNOT_JUDGE],
            blocked=blocked.get(watchpoint.id, _NONE_BLOCKED),
            by_design=counts[watchpoint.id, Verdict.BY_DESIGN],
        )
        for watchpoint in result.watchpoints
    )


def _nothing(result: CheckResult, tallies: tuple[Tally, ...], fail_on: Collection[str]) -> Iterator[Doubt]:
    coverage = result.coverage
    if not coverage.checked:
        text = "no tensor could be read" if coverage.unreadable else "no tensor was looked at"
        yield Doubt("nothing", text)
        return
    failing = [tally for tally in tallies if not fail_on or tally.watchpoint.condition in fail_on]
    if any(tally.judged for tally in failing):
        return
    if not any(tally.tensors for tally in failing):
        done = "looked at any tensor"
    elif any(tally.not_comparable for tally in failing):
        done = "compared any tensor: there is no step before the first dumped one"
    elif any(tally.blocked.tensors for tally in failing):
        done = "could judge any tensor: they hold NaN or Inf"
    else:
        done = "could judge any tensor"
    that = (
        f" that can fail this check ({', '.join(sorted(CONDITIONS[each].abbr for each in fail_on))})" if fail_on else ""
    )
    yield Doubt("nothing", f"no watchpoint{that} {done}")


def _unmatched(tallies: tuple[Tally, ...], rules: Collection[int], coverage: Coverage) -> Iterator[Doubt]:
    for tally in tallies:
        if tally.watchpoint.id in rules and not tally.tensors:
            condition = CONDITIONS[tally.watchpoint.condition]
            why = ""
            if condition.is_device_overflow:
                why = ": nothing here tells what the device recorded of operators that overflow"
            elif condition.initial_only:
                why = ": initial values are judged at the first dumped step only"
            elif coverage.constants and any(
                selector.kind is NodeKind.CATEGORY for selector in tally.watchpoint.selection.include
            ):
                why = ": of inputs that hold graph constants it judges those of nodes that it names"
            yield Doubt("unmatched", f"{format_watch(tally.watchpoint)} looked at no tensor{why}")


def _unjudged(result: CheckResult) -> Iterator[Doubt]:
    lost = [part for part in result.coverage.parts if part.unrecorded]
    parts = [part for part in result.coverage.parts if not part.unrecorded and not part.unclaimed]
    if parts:
        yield Doubt("unreadable", parts_text(parts))
    if lost:
        yield Doubt("unrecorded", parts_text(lost))
    unreadable = result.coverage.unreadable
    if unreadable:
        yield Doubt("unreadable", f"{plural(unreadable, 'tensor')} cannot be read")
    left = Counter[str]()
    doubtful = result.hits.with_any(Verdict.CANNOT_JUDGE)
    for hit in doubtful.chosen(doubtful.measured()):  # others are unreadable themselves, and counted
        errors = [each for each in hit.results if each.verdict is Verdict.CANNOT_JUDGE]
        if errors:
            left[_why(errors)] += 1
    for why, count in left.items():
        yield Doubt("uncomparable", f"{plural(count, 'tensor')} could not be compared: {why}")


def _unclaimed(result: CheckResult) -> Iterator[Doubt]:
    """Entries with tensors that no reader looked at: only the user may leave them out, with ``--ignore``."""
    unclaimed = [part for part in result.coverage.parts if part.unclaimed]
    if unclaimed:
        yield Doubt("not looked at", parts_text(unclaimed))


def _why(results: list[WatchResult]) -> str:
    texts = {text: None for each in results for text in reasons_of(each)}
    order = [*REASONS.values(), *NO_VALUE_WORDS]
    words = sorted(texts, key=order.index)
    return ", ".join("the previous step is unreadable" if text == "unreadable" else text for text in words)


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
    parts = [counts, *counted_parts(coverage.parts), named("step", sorted(steps)), named("rank", sorted(ranks))]
    if len(coverage.steps) < len(ranks) * len(steps):
        parts.append(f"{len(coverage.steps):,} of these pairs{_lacking(coverage.steps)}")
    if coverage.constants:
        hold = "input holds a graph constant" if coverage.constants == 1 else "inputs hold graph constants"
        parts.append(f"{coverage.constants:,} {hold}: judged for NaN and Inf only")
    return "; ".join(parts)


def _lacking(pairs: Collection[Pair]) -> str:
    """``: rank 1 without steps 4,5``; nothing for more than ``_GROUPS`` groups."""
    steps_of: dict[int, set[int]] = {}
    for rank, step in pairs:
        steps_of.setdefault(rank, set()).add(step)
    every = set().union(*steps_of.values())
    ranks_without: dict[tuple[int, ...], list[int]] = {}
    for rank in sorted(steps_of):
        if without := tuple(sorted(every - steps_of[rank])):
            ranks_without.setdefault(without, []).append(rank)
    if len(ranks_without) > _GROUPS:
        return ""
    lacking = (f"{named('rank', ranks)} without {named('step', steps)}" for steps, ranks in ranks_without.items())
    return f": {', '.join(lacking)}"


def tally_table(tallies: Sequence[Tally]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
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


def stopped_line(result: CheckResult) -> str:
    steps, ranks = (sorted({pair[part] for pair in result.pairs}) for part in (1, 0))
    which = [named("step", steps), *([named("rank", ranks)] if len(ranks) > 1 else [])]
    done = f"stopped: {len(result.pairs):,} of {plural(result.asked, 'step')} checked"
    return done + (f" ({', '.join(which)})" if result.pairs else "")


def findings_line(hits: HitList, result: CheckResult) -> str:
    """``NaN or Inf in 314 tensors, other findings in 5, at step 3, 2 origins ◆``; ``5 tensors at step 3``."""
    text = f"{_kinds(hits)} at {named('step', np.unique(hits.step).tolist())}"
    if len(result.ranks) > 1:
        text += f" of {named('rank', np.unique(hits.rank).tolist())}"
    origins = int(hits.origin.sum())
    return text + (f", {plural(origins, 'origin')} ◆" if origins else "")


def _kinds(hits: HitList) -> str:
    """Counts tensors; one with NaN or Inf counts only as such."""
    overflow = hits.chosen(hits.overflow())
    if not len(overflow):
        return plural(len(hits), "tensor")
    others = len(hits) - len(overflow)
    text = f"{not_finite_words(overflow.not_finite())} in {plural(len(overflow), 'tensor')}"
    return text + (f", other findings in {others:,}," if others else "")
