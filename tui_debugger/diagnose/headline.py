"""The answer of a check in one line: where it began, that all is clean, or why that is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger.check.hits import HitList, is_overflow
from tui_debugger.check.types import CheckResult, Pair
from tui_debugger.check.verdicts import Outcome, judge
from tui_debugger.diagnose.explain.explain import explain
from tui_debugger.diagnose.explain.guidance import Standing
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Hit, ProgressFn, Side, Verdict, no_progress
from tui_debugger.text.clean import clean
from tui_debugger.text.hits import contents
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import ranks_text, step_text, steps_text
from tui_debugger.watch.condition_table import CONDITIONS

if TYPE_CHECKING:
    from tui_debugger.diagnose.run import DiagnosedRun

_SHORT: Final = 34
"""Longer reasons are cut at a colon or a comma."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The outcome of a check in one line.

    Attributes:
        outcome: CLEAN only when all steps and ranks were looked at.
        start: ``Begins at step 3:``, ``Clean:`` ...
        what: the tensor and what it holds, or what was looked at.
        reason: the likely cause in a few words; empty when there is none, or before ``with_reason``.
        more: how much else there is, ``1 more origin``; empty when that is all.
        hit: the finding that the headline is about.
    """

    outcome: Outcome
    start: str
    what: str
    reason: str = ""
    more: str = ""
    hit: Hit | None = None

    def __str__(self) -> str:
        """``Begins at step 3: Log-op381, -Inf 1 of 4 (the logarithm of 0) · 1 more origin``."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.start} {self.what}{reason}" + (f" · {self.more}" if self.more else "")


def headline(result: CheckResult, run: Sequence[Pair], *, ongoing: bool = False) -> Headline:
    """Returns the answer of everything that was checked.

    ``run`` has all (rank, step) of the run: only when all were checked can it be clean. ``ongoing`` means that more
    steps will come, so it is clean so far.
    """
    if result.hits.findings:
        return _found(result.hits, result)
    judgement = judge(result)
    missing = sorted({step for _, step in result.not_checked(run)})
    checked = f"{plural(result.coverage.checked, 'tensor')} of {_where(result)} looked at"
    if result.silent_before:
        checked += f", {plural(result.silent_before, 'more step')} by the watchpoints of before"
    if result.outdated:
        return Headline(Outcome.INTERRUPTED, "No finding by the watchpoints of before:", checked)
    if ongoing and result.coverage.nothing_came:
        return Headline(Outcome.INTERRUPTED, "Nothing to judge yet:", "no tensor came so far")
    if judgement.doubts:
        return Headline(
            Outcome.CANNOT_JUDGE, "Cannot judge:", "; ".join(clean(doubt.text) for doubt in judgement.doubts)
        )
    if missing:
        rest = steps_text(missing)
        start = f"{rest[0].upper()}{rest[1:]} not checked yet:"
        return Headline(Outcome.INTERRUPTED, start, f"no finding in {checked.removesuffix(' looked at')}")
    return Headline(Outcome.CLEAN, "Clean so far:" if ongoing else "Clean:", checked)


def _found(hits: HitList, result: CheckResult) -> Headline:
    """Returns where it begins: at the first origin, else at the first finding, NaN and Inf before others."""
    findings = hits.chosen(hits.found())
    origins = findings.chosen(findings.origin)
    listed = origins if len(origins) else findings
    first = origins[0] if len(origins) else _first(findings)
    start = "Begins" if len(origins) else "First known bad" if is_overflow(first) else "Found"
    # The same finding on several ranks counts once.
    things = listed.across_ranks()
    ranks = listed.rank[things == things[listed.find(first.key)]]
    rank = ""
    if len({rank for rank, _ in result.pairs}) > 1:
        rank = f" of rank{'' if len(ranks) == 1 else 's'} {ranks_text(ranks.tolist())}"
    others = len(np.unique(things)) - 1
    more = plural(others, "more origin" if len(origins) else "more finding") if others else ""
    return Headline(
        Outcome.FINDING,
        f"{start} at step {step_text(first.key.step)}{rank}:",
        f"{place_of(first)}, {what_of(first)}",
        more=more,
        hit=first,
    )


def _first(findings: HitList) -> Hit:
    """Returns the first finding with NaN or Inf, as other findings may follow from it; else the first one."""
    overflow = next((hit for hit in findings if is_overflow(hit)), None)
    return overflow if overflow is not None else findings[0]


def _where(result: CheckResult) -> str:
    ranks, steps = ({pair[part] for pair in result.pairs} for part in (0, 1))
    text = steps_text(steps)
    if result.silent:
        text = f"{plural(result.silent + sum(step >= 0 for step in steps), 'step')}"
    return text + (f" of {plural(len(ranks), 'rank')}" if len(ranks) > 1 else "")


def place_of(hit: Hit) -> str:
    """Returns the end of the name: ``Log-op381``, ``Log-op381:in:0``, ``fc2.weight``.

    Names that occur in many scopes keep their scope: operators numbered anew in each (``Log-op0``), and names without a
    number (``qkv/activation``).
    """
    parts = hit.key.node.split("/")
    name = parts[-1]
    if len(parts) > 1 and (name.endswith(("-op0", "-op1")) or not any(map(str.isdigit, name))):
        name = "/".join(parts[-2:])
    slot = "" if hit.key.side is Side.OUTPUT and hit.key.slot == 0 else f":{hit.key.side.label}:{hit.key.slot}"
    return clean(name + slot)


def what_of(hit: Hit) -> str:
    """Returns what was found: ``-Inf 1 of 4``, ``gradient vanishing``."""
    if is_overflow(hit):
        return contents(hit.stats) or "NaN or Inf"
    found = next((result for result in hit.results if result.verdict is Verdict.FINDING), None)
    condition = CONDITIONS.get(found.condition) if found is not None else None
    return condition.title[:1].lower() + condition.title[1:] if condition is not None else "a finding"


def with_reason(found: Headline, run: DiagnosedRun, progress: ProgressFn = no_progress) -> Headline:
    """Adds the likely cause, if any; reads the tensor and the inputs of its node."""
    if found.hit is None:
        return found
    try:
        guidance = explain(run, found.hit.key, found.hit, progress)
    except CancelledError:
        raise
    except (TdbgError, OSError):
        return found  # a headline needs no reason; Explain tells what went wrong
    likely = (cause for section in guidance.sections for cause in section.causes if cause.standing is Standing.LIKELY)
    cause = next(likely, None)
    if cause is None:
        return found
    return Headline(found.outcome, found.start, found.what, _brief(cause.title), found.more, found.hit)


def _brief(title: str) -> str:
    if len(title) <= _SHORT:
        return clean(title)
    cut = min((at for at in (title.find(": "), title.find(", ")) if at > 0), default=-1)
    return clean(title[:cut] if cut > 0 else title)
