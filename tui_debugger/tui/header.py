"""The two header lines: what is open and where we are; in which state the hits are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from tui_debugger.model import Progress, Verdict
from tui_debugger.tui import theme
from tui_debugger.tui.state import State
from tui_debugger.tui.widgets.text import shorten
from tui_debugger.words.clean import clean
from tui_debugger.words.numbers import plural

if TYPE_CHECKING:
    from tui_debugger.session import CheckResult, Session

_BAR = 12
Status = tuple[str, str, Style]
"""Glyph, words, style."""


def header_lines(title: str, session: Session | None, state: State, status: Status) -> tuple[tuple[Text, Text], ...]:
    """Both lines, each as left and right part."""
    return (
        (_run(title, session), _position(session, state)),
        (_state(state, status), _coverage(session, state.result)),
    )


def _run(title: str, session: Session | None) -> Text:
    text = Text(no_wrap=True).append("tdbg", theme.GOOD)
    info = session.info if session is not None else None
    if info is None:
        return text.append("  " + clean(title), theme.NORMAL)
    if info.title:
        text.append("  " + clean(info.title), theme.STRONG)
    text.append("  " + " · ".join(clean(part) for part in (info.layout, info.device) if part))
    return text.append("  " + shorten(info.path, 60), theme.DIM)


def _position(session: Session | None, state: State) -> Text:
    text = Text(no_wrap=True)
    if session is None:
        return text
    ranks, steps = session.ranks(), session.steps(state.rank)
    if len(state.query.graphs) == 1:
        text.append(clean(next(iter(state.query.graphs))) + "  ", theme.WATCHED)
    text.append("rank ", theme.DIM).append(str(state.rank), theme.STRONG)
    if len(ranks) > 1:
        text.append(f" of {plural(len(ranks), 'rank')}", theme.DIM)
    text.append("  step ", theme.DIM)
    text.append(theme.NONE if state.step is None else str(state.step), theme.STRONG)
    if len(steps) > 1:
        holes = "" if steps[-1] - steps[0] + 1 == len(steps) else f", {len(steps)} dumped"
        text.append(f" of {steps[0]}–{steps[-1]}{holes}", theme.DIM)
    elif not steps:
        text.append(" none dumped", theme.DOUBT)
    return text


def _state(state: State, status: Status) -> Text:
    if state.progress:
        lane, progress = next(iter(state.progress.items()))
        return _progress(lane, progress)
    glyph, words, style = status
    return Text(f"{glyph} {words}", style, no_wrap=True)


def _progress(lane: str, progress: Progress) -> Text:
    text = Text(no_wrap=True).append("▶ ", theme.GOOD)
    words = {
        "open": "opening",
        "check": "checking",
        "nodes": "reading nodes",
        "save": "writing",
        "tensors": "measuring",
    }
    text.append(words.get(lane, lane) + " ", theme.GOOD)
    if progress.total:
        part = min(progress.done / progress.total, 1.0)
        full = int(_BAR * part)
        text.append("━" * full, theme.GOOD).append("─" * (_BAR - full), theme.DIM).append(f" {part:4.0%} ")
    text.append(clean(progress.text))
    return text.append("  Esc stops", theme.DIM)


def _coverage(session: Session | None, result: CheckResult | None) -> Text:
    text = Text(no_wrap=True)
    if result is not None:
        findings = sum(hit.verdict is Verdict.FINDING for hit in result.hits)
        cover = result.coverage
        text.append(plural(findings, "finding"), theme.FINDING if findings else theme.NORMAL)
        text.append(f" · {cover.checked:,} checked", theme.DIM)
        if cover.not_comparable:
            text.append(f" · {cover.not_comparable:,} not comparable", theme.DIM)
        if cover.unreadable:
            text.append(f" · {cover.unreadable:,} unreadable", theme.DOUBT)
    notices = len(session.info.notices) if session is not None else 0
    if notices:
        text.append("  " if text.plain else "").append(f"! {plural(notices, 'notice')}", theme.DOUBT)
    return text
