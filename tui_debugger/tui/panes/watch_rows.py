"""The rows of the watchpoint list, and how often each watchpoint hit: counted once, where the check was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from tui_debugger.model import ErrorBits, Verdict, Watchpoint
from tui_debugger.text.hits import param_words
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.watch.condition_table import CONDITIONS, not_finite_words
from tui_debugger.watch.recommended import RECOMMENDED
from tui_debugger.watch.text import format_selection

if TYPE_CHECKING:
    from tui_debugger.check.hits import Blocked
    from tui_debugger.session import CheckResult


@dataclass(frozen=True)
class Tally:
    """The counts of a result.

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
        """Counts a result; as slow as the result is large."""
        from tui_debugger.check.verdicts import judge  # with the condition table: not before there are hits

        counts = result.hits.counts()
        found = {watchpoint: count for (watchpoint, verdict), count in counts.items() if verdict is Verdict.FINDING}
        doubts = tuple(doubt.text for doubt in judge(result).doubts) if result.watchpoints else ()
        return cls(result.hits.findings, found, result.hits.blocked(), doubts)


def cells(watchpoint: Watchpoint, nodes: int | None, tally: Tally | None, *, outdated: bool) -> Sequence[Cell]:
    """Returns one row.

    Args:
        watchpoint: the watchpoint.
        nodes: how many it covers; None while they are counted.
        tally: findings, and what could not be judged; None when nothing was checked.
        outdated: the list changed since the last check, so that ``tally`` is about an older one.
    """
    hits = None if tally is None else tally.by_watchpoint.get(watchpoint.id, 0)
    blocked = None if tally is None or outdated or not watchpoint.enabled else tally.blocked.get(watchpoint.id)
    condition = CONDITIONS.get(watchpoint.condition)
    style = theme.NORMAL if watchpoint.enabled else theme.DIM
    found = Text("" if hits is None else str(hits), theme.FINDING if hits else theme.DIM)
    if outdated or not watchpoint.enabled:
        found = Text(theme.NONE if hits is None else f"({hits})", theme.DIM)
    return (
        Text("●" if watchpoint.enabled else "○", theme.WATCHED if watchpoint.enabled else theme.DIM),
        Text(str(watchpoint.id), theme.DIM),
        Text(condition.abbr if condition else "?", style + theme.STRONG),
        _described(watchpoint, style),
        Text("…" if nodes is None else f"{nodes:,}", theme.DOUBT if nodes == 0 else style),
        found,
        Text("" if blocked is None else f"{blocked.tensors:,} {_kind(blocked.error)}", theme.DIM),
    )


def _kind(error: ErrorBits) -> str:
    return not_finite_words(error).replace(" or ", "/")


def describe(watchpoint: Watchpoint) -> str:
    """Returns condition and parameters: ``tensor too large  mean |x| > 0.5``. Hidden parameters are left out."""
    condition = CONDITIONS.get(watchpoint.condition)
    hidden = {spec.name for spec in condition.params if not spec.visible} if condition is not None else set()
    params = "  ".join(
        param_words(watchpoint.condition, name, value) for name, value in watchpoint.params if name not in hidden
    )
    words = watchpoint.condition.replace("_", " ")
    return f"{words}  {params}".rstrip()


def _described(watchpoint: Watchpoint, style: Style) -> Text:
    text = Text(describe(watchpoint), style, no_wrap=True)
    own_name = watchpoint.name and not watchpoint.name.startswith(RECOMMENDED)
    return text.append(f"  {watchpoint.name}", theme.DIM) if own_name else text


def search_text(watchpoint: Watchpoint) -> str:
    """Returns the text that a search looks at."""
    condition = CONDITIONS.get(watchpoint.condition)
    abbr = condition.abbr if condition else ""
    return f"{abbr} {describe(watchpoint)} {watchpoint.name} {format_selection(watchpoint.selection)}"
