"""The header of an open run: the run and the position; the answer in one line; the state of the hits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rich.style import Style
from rich.text import Text

from tui_debugger.model import Progress, Verdict
from tui_debugger.text.clean import clean
from tui_debugger.text.notes import NOTES_ROOM, notes_text
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import order_text, step_text, steps_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import key_of
from tui_debugger.tui.context import ScreenState
from tui_debugger.tui.widgets.bars import SCOPE, HeaderLines, progress_line
from tui_debugger.tui.widgets.text import shorten

if TYPE_CHECKING:
    from tui_debugger.diagnose.headline import Headline
    from tui_debugger.session import Session

_LISTED_STEPS = 8
"""Most steps that the header lists if they did not run in ascending order."""
Status = tuple[str, str, Style]
"""Glyph, words, style."""


def header_lines(
    run: Text, session: Session, state: ScreenState, progress: Mapping[str, Progress], status: Status
) -> HeaderLines:
    """Returns the three header lines; ``run`` comes from ``run_cell``."""
    answer, leads = answer_cells(session, state, checking_text(progress, status))
    checks = _state_cell(progress, status)
    if not answer and not progress:  # nothing was checked: what would be read, and which key does it
        answer, checks = checks, answer
    return (run, position_text(session, state)), (answer, leads), (checks, coverage_text(session, state))


_STYLES: Final = {
    "finding": theme.FINDING,
    "clean": theme.GOOD,
    "cannot_judge": theme.DOUBT,
    "interrupted": theme.DOUBT,
}
"""The style of the answer, by the value of its ``check.verdicts.Outcome``."""


def answer_cells(session: Session, state: ScreenState, checking: str) -> tuple[Text, Text]:
    """Returns the answer and the keys that lead on from it; ``checking`` stands there until there is an answer."""
    found = state.headline
    left, right = Text(no_wrap=True), Text(no_wrap=True)
    if found is None:
        return left.append(checking, theme.DIM), right
    left.append(f"{found.start} ", _STYLES[found.outcome.value])
    left.append(_scope(found), SCOPE).append(found.what, theme.STRONG)
    if found.reason:
        left.append(f" ({found.reason})")
    if found.more:
        left.append(f" · {found.more}", theme.DIM)
    for action, word in _leads(found, session, state):
        right.append("  " if right.plain else "")
        right.append(key_of(action), theme.GOOD + _click(action)).append(f" {word}", theme.DIM + _click(action))
    return left, right


def _scope(found: Headline) -> str:
    """Returns the part of the node's path that the answer leaves out."""
    parts = clean(found.hit.key.node).split("/") if found.hit is not None else []
    known = next((at for at in range(1, len(parts)) if found.what.startswith("/".join(parts[at:]))), 0)
    return "".join(f"{part}/" for part in parts[:known])


def checking_text(progress: Mapping[str, Progress], status: Status) -> str:
    """Returns the progress of a check without findings so far; empty if none runs."""
    check = progress.get("check")
    if check is None and status[1] != "checking":
        return ""
    part = None if check is None else check.part
    return "Checking" + ("" if part is None else f" {100 * part:.0f} %") + ": no finding so far"


def _leads(found: Headline, session: Session, state: ScreenState) -> tuple[tuple[str, str], ...]:
    """Returns the useful next actions after this answer: (action id, word)."""
    if found.hit is not None:
        return ("origin", "path"), ("explain", "explain")
    if session.ongoing:
        return ("step_forward", "run a step"), ("continue", "continue")
    if found.outcome.value == "interrupted":
        return (("recheck_all", "check all"),)
    # Watchpoints look at one tensor at a time; these views check that ranks agree and operators compute right.
    others = (("ranks", "ranks"),) if len(session.ranks()) > 1 else ()
    if found.outcome.value == "clean":
        return *others, ("audit", "audit")
    listed = state.result is not None and bool((state.result.hits.verdict == Verdict.CANNOT_JUDGE).any())
    which = (("pane_hits", "which"), ("explain", "explain")) if listed else ()
    return *which, *((("notices", "notices"),) if session.notices else ()), *others


def run_cell(session: Session) -> Text:
    """Returns the run's name, layout and limits; it reads from disk, so do not call it for every key."""
    text = Text(no_wrap=True).append("tdbg", theme.GOOD)
    info = session.info
    if info.title:
        text.append("  " + clean(info.title), theme.STRONG)
    # The limits come before the layout: a narrow terminal must not cut them.
    limits = [limit.partition(":")[0] for limit in info.limits]
    if limits:
        text.append("  " + " · ".join(map(clean, limits))).append(f" (key {key_of('notices')} explains)", theme.DIM)
    text.append("  " + " · ".join(clean(part) for part in (info.layout, info.device) if part))
    if not session.scope.whole:
        text.append("  " + clean(session.scope.name), theme.DOUBT)
        return text.append(f" (key {key_of('whole_run')}: all)", theme.DIM)
    return text.append("  " + shorten(info.path, 60), theme.DIM)


def position_text(session: Session, state: ScreenState, kept: str = "dumped") -> Text:
    """Returns rank and step; ``kept`` is the word for stored steps."""
    text = Text(no_wrap=True)
    ranks, steps = session.ranks(), session.steps(state.rank)
    if len(state.query.graphs) == 1:
        text.append(clean(next(iter(state.query.graphs))) + "  ", theme.WATCHED)
    text.append("rank ", theme.DIM).append(str(state.rank), theme.STRONG)
    if len(ranks) > 1:
        text.append(f" of {plural(len(ranks), 'rank')}", theme.DIM)
    text.append("  step ", theme.DIM)
    text.append(theme.NONE if state.step is None else step_text(state.step), theme.STRONG)
    if len(steps) > 1:
        first, last = min(steps), max(steps)
        holes = "" if last - first + 1 == len(steps) else f", {len(steps)} {kept}"
        text.append(f" of {step_text(first)}–{last}{holes}", theme.DIM)
        if any(later < earlier for earlier, later in pairwise(steps)):
            text.append(f"; order of runs {order_text(steps, _LISTED_STEPS)}", theme.DIM)
        elif state.unordered:
            text.append(f"; runs out of order (key {key_of('history')})", theme.DOUBT)
    elif not steps:
        text.append(f" none {kept}", theme.DOUBT)
    if state.gone:
        text.append(f"; {steps_text(state.gone)} gone", theme.DOUBT)
    if state.overflowed:
        text.append(f"  {theme.OVERFLOW_GLYPH}{state.overflowed:,} overflowed", theme.FINDING)
    if state.step is not None and (notes := session.notes_at(state.rank, state.step)):
        text.append("  " + notes_text(notes, NOTES_ROOM, marked=False), theme.STRONG)
        text.append(f"  {key_of('loss')}", theme.GOOD).append(" plot", theme.DIM)
    return text


def _state_cell(progress: Mapping[str, Progress], status: Status) -> Text:
    if progress:
        return progress_line(progress)
    glyph, words, style = status
    return Text(f"{glyph} {words}", style, no_wrap=True)


def coverage_text(session: Session, state: ScreenState) -> Text:
    """Returns how many tensors the checks looked at, and what they could not check."""
    text = Text(no_wrap=True)
    if state.result is not None and state.tally is not None:
        findings, cover = state.tally.findings, state.result.coverage
        text.append(plural(findings, "finding"), theme.FINDING if findings else theme.NORMAL)
        text.append(f" · {cover.checked:,} checked", theme.DIM)
        if cover.not_comparable:
            text.append(f" · {cover.not_comparable:,} not comparable", theme.DIM)
        if cover.by_design:
            text.append(f" · {cover.by_design:,} Inf by design", theme.DIM)
        if cover.unreadable:
            text.append(f" · {cover.unreadable:,} unreadable", theme.DOUBT)
        if cover.parts:
            lost = sum(part.unrecorded for part in cover.parts)
            incomplete = sum(part.incomplete for part in cover.parts)
            if lost:
                text.append(f" · {plural(lost, 'thing')} not recorded", theme.DOUBT)
            if incomplete:
                text.append(f" · {plural(incomplete, 'step')} incomplete", theme.DOUBT)
            unclaimed = sum(part.unclaimed for part in cover.parts)
            if unclaimed:
                text.append(f" · {plural(unclaimed, 'entry', 'entries')} not looked at", theme.DOUBT)
            if unlisted := len(cover.parts) - lost - incomplete - unclaimed:
                text.append(f" · {plural(unlisted, 'part')} not listed", theme.DOUBT)
    notices = len(session.notices)
    if notices:
        text.append("  " if text.plain else "")
        text.append(f"! {plural(notices, 'notice')}", theme.DOUBT + _click("notices"))
    return text


def _click(action: str) -> Style:
    return Style(meta={"@click": f"screen.act('{action}')"})
