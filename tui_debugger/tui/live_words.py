"""The state of a training in a glyph and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui_debugger.live.wire import Phase
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme

if TYPE_CHECKING:
    from tui_debugger.session.live_driver import LiveState
    from tui_debugger.tui.header import Status

WAY_OUT = "what was kept can be looked at; S saves it, q leaves"
"""What is left to do when a training is gone."""

_LOOKS = {
    Phase.RECEIVING: ("↓", theme.GOOD),
    Phase.STOPPED: ("■", theme.GOOD),
    Phase.RUNNING: ("▶", theme.GOOD),
    Phase.MISMATCH: ("≠", theme.FINDING),
    Phase.LOST: ("✗", theme.FINDING),
    Phase.DONE: ("●", theme.NORMAL),
}


def status(state: LiveState) -> Status:
    """Glyph, words, style of one training."""
    glyph, style = _LOOKS[state.phase]
    return glyph, _words(state), style


def _words(state: LiveState) -> str:
    if state.phase is Phase.STOPPED:
        return f"stopped {where(state)}"
    if state.phase is Phase.RUNNING:
        left = "until a hit" if state.remaining is None else f"{state.remaining:,} left" if state.remaining else ""
        done = "" if state.passed is None or state.passed < 0 else f", step {state.passed} done"
        return f"running{done}" + (f", {left}" if left else "")
    if state.phase is Phase.MISMATCH:
        return "another version: T terminates it"
    if state.phase is Phase.LOST:
        return f"lost, may come back: {WAY_OUT}"
    return f"finished: {WAY_OUT}" if state.phase is Phase.DONE else state.phase.value


def where(state: LiveState) -> str:
    """Where a training stands: ``after step 3``."""
    stop = state.stop
    if stop is None:
        return ""
    if stop.node:
        return f"in step {step_text(stop.step)} at {clean(stop.node)}"
    return "before the first step" if stop.step < 0 else f"after step {stop.step}"


def others(states: Sequence[LiveState], rank: int) -> str:
    """What the other trainings do: ``2 others running, 1 other lost``."""
    counts = Counter(state.phase for state in states if state.rank != rank)
    return ", ".join(f"{plural(count, 'other')} {phase.value}" for phase, count in counts.items())


def who(state: LiveState) -> str:
    """Who a training is: ``rank 0 · MindSpore 2.0.0 · GPU 0 · 127.0.0.1:4711``."""
    info = state.info
    parts = (f"rank {state.rank}", info.program, f"{info.backend} {info.device}".strip(), info.address)
    return " · ".join(clean(part) for part in parts if part)


def refusal(state: LiveState | None) -> str:
    """Why a command cannot go to a training now."""
    if state is None:
        return "no training has come yet"
    name = f"rank {state.rank}"
    return {
        Phase.RECEIVING: f"{name} is still sending its graph",
        Phase.STOPPED: f"{name} is not running",
        Phase.RUNNING: f"{name} is running: p stops it at the end of its step",
        Phase.MISMATCH: f"{name} speaks another version: T terminates it",
        Phase.LOST: f"{name} is lost: {WAY_OUT}",
        Phase.DONE: f"{name} has finished: {WAY_OUT}",
    }[state.phase]
