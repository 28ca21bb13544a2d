"""The two header lines while trainings are attached: who and where; what the training does, and the hits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural, size
from tui_debugger.tui import live_words, theme
from tui_debugger.tui.header import Status, coverage, position
from tui_debugger.tui.opening import HeaderLines, progress_line
from tui_debugger.tui.state import State

if TYPE_CHECKING:
    from tui_debugger.model import Progress
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.live_driver import LiveState


def waiting_lines(title: str, trainings: int) -> HeaderLines:
    """Before the first graph is there."""
    words = f"○ {plural(trainings, 'training')} connected, no graph yet" if trainings else "○ waiting for a training"
    left = Text(no_wrap=True).append("tdbg", theme.GOOD).append("  " + clean(title))
    return (left, Text(no_wrap=True)), (Text(words, theme.GOOD, no_wrap=True), Text(no_wrap=True))


def live_lines(
    session: LiveSession, state: State, progress: Mapping[str, Progress], check: Status, *, one_rank: bool
) -> HeaderLines:
    """Both lines of the rank that is shown.

    Args:
        session: with at least one graph.
        state: what is shown.
        progress: of long work, by lane.
        check: in which state the hits are.
        one_rank: commands go to this rank only.
    """
    states = session.trainings()
    here = next((each for each in states if each.rank == state.rank), None)
    place = position(session, state, "kept")
    if one_rank and len(states) > 1:
        place.append("  this rank only", theme.DOUBT)
    if here is None:
        return (Text("tdbg", theme.GOOD, no_wrap=True), place), (Text(no_wrap=True), coverage(session, state))
    doing = progress_line(progress) if progress else _doing(states, here, check)
    return (_who(here), place), (doing, coverage(session, state))


def _who(state: LiveState) -> Text:
    info = state.info
    text = Text(no_wrap=True).append("tdbg", theme.GOOD)
    text.append("  " + clean(info.program), theme.STRONG)
    text.append("  " + clean(f"{info.backend} {info.device}".strip()))
    text.append("  " + clean(info.address), theme.DIM)
    if state.fetched:
        text.append(f"  {size(state.fetched)} fetched", theme.DIM)
    return text


def _doing(states: tuple[LiveState, ...], here: LiveState, check: Status) -> Text:
    glyph, words, style = live_words.status(here)
    text = Text(f"{glyph} {words}", style, no_wrap=True)
    mark, about, check_style = check
    if mark != "●":  # fresh hits need no words
        text.append(f"  {mark} {about}", check_style)
    others = live_words.others(states, here.rank)
    return text.append(f"  {others}", theme.DIM) if others else text
