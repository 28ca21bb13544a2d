"""How often the watchpoints hit: counted once, where the check was done, and not whenever something is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui_debugger.model import Verdict

if TYPE_CHECKING:
    from tui_debugger.session import CheckResult
    from tui_debugger.session.hits import Blocked


@dataclass(frozen=True)
class Tally:
    """What there is to count in a result.

    Attributes:
        findings: hits that are findings.
        by_watchpoint: findings of each watchpoint, by id; those without any are left out.
        blocked: what NaN or Inf kept each watchpoint from judging, by id; those that judged everything are left out.
        doubts: why nobody can say that the rest is clean, one sentence each.
    """

    findings: int
    by_watchpoint: Mapping[int, int]
    blocked: Mapping[int, Blocked]
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: CheckResult) -> Tally:
        """Counts; as slow as the result is large."""
        from tui_debugger.session.verdicts import judge  # with the condition table: not before there are hits

        counts = result.hits.counts()
        found = {watchpoint: count for (watchpoint, verdict), count in counts.items() if verdict is Verdict.FINDING}
        doubts = tuple(doubt.text for doubt in judge(result).doubts) if result.watchpoints else ()
        return cls(result.hits.findings, found, result.hits.blocked(), doubts)
