"""The state of trainings on the screen: words, the two header lines, and the page that waits for the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from tui_debugger.live.wire import Phase
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural, size
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.context import ScreenState
from tui_debugger.tui.dialogs.modal import Line, Modal
from tui_debugger.tui.header import Status, answer, coverage, position
from tui_debugger.tui.theme import GREY, ORANGE
from tui_debugger.tui.widgets.bars import HeaderLines, progress_line

if TYPE_CHECKING:
    from tui_debugger.model import Progress
    from tui_debugger.session.live import LiveSession
    from tui_debugger.session.live_driver import LiveState


WAY_OUT = "what was kept can be looked at; S saves it, q leaves"
"""The hint for a training that is gone."""

_LOOKS = {
    Phase.RECEIVING: ("↓", theme.GOOD),
    Phase.STOPPED: ("■", theme.GOOD),
    Phase.RUNNING: ("▶", theme.GOOD),
    Phase.MISMATCH: ("≠", theme.FINDING),
    Phase.LOST: ("✗", theme.FINDING),
    Phase.DONE: ("●", theme.NORMAL),
}


def training_status(state: LiveState) -> Status:
    """Returns glyph, words, style of one training."""
    glyph, style = _LOOKS[state.phase]
    return glyph, _words(state), style


def _words(state: LiveState) -> str:
    if state.phase is Phase.STOPPED:
        return f"stopped {stop_text(state)}"
    if state.phase is Phase.RUNNING:
        left = "until a hit" if state.remaining is None else f"{state.remaining:,} left" if state.remaining else ""
        done = "" if state.passed is None or state.passed < 0 else f", step {state.passed} done"
        return f"running{done}" + (f", {left}" if left else "")
    if state.phase is Phase.MISMATCH:
        return "another version: T terminates it"
    if state.phase is Phase.LOST:
        return f"lost, may come back: {WAY_OUT}"
    return f"finished: {WAY_OUT}" if state.phase is Phase.DONE else state.phase.value


def stop_text(state: LiveState) -> str:
    """Returns the place of a training: ``after step 3``."""
    stop = state.stop
    if stop is None:
        return ""
    if stop.node:
        return f"in step {step_text(stop.step)} at {clean(stop.node)}"
    return "before the first step" if stop.step < 0 else f"after step {stop.step}"


def other_trainings(states: Sequence[LiveState], rank: int) -> str:
    """Returns what the other trainings do: ``2 others running, 1 other lost``."""
    counts = Counter(state.phase for state in states if state.rank != rank)
    return ", ".join(f"{plural(count, 'other')} {phase.value}" for phase, count in counts.items())


def training_name(state: LiveState) -> str:
    """Returns the name of a training: ``rank 0 · MindSpore 2.0.0 · GPU 0 · 127.0.0.1:4711``."""
    info = state.info
    parts = (f"rank {state.rank}", info.program, f"{info.backend} {info.device}".strip(), info.address)
    return " · ".join(clean(part) for part in parts if part)


def why_refused(state: LiveState | None) -> str:
    """Says why a command cannot go to a training now."""
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


def waiting_lines(title: str, trainings: int) -> HeaderLines:
    """Before the first graph is there."""
    words = f"○ {plural(trainings, 'training')} connected, no graph yet" if trainings else "○ waiting for a training"
    left = Text(no_wrap=True).append("tdbg", theme.GOOD).append("  " + clean(title))
    nothing = Text(no_wrap=True)
    return (left, nothing), (nothing, nothing), (Text(words, theme.GOOD, no_wrap=True), nothing)


def live_lines(
    session: LiveSession, state: ScreenState, progress: Mapping[str, Progress], check: Status, *, one_rank: bool
) -> HeaderLines:
    """Returns the lines of the rank that is shown.

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
        nothing = Text(no_wrap=True)
        return (
            (Text("tdbg", theme.GOOD, no_wrap=True), place),
            (nothing, nothing),
            (nothing, coverage(session, state)),
        )
    doing = progress_line(progress) if progress else _doing(states, here, check)
    return (_who(here), place), answer(state, checking=check[1] == "checking"), (doing, coverage(session, state))


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
    glyph, words, style = training_status(here)
    text = Text(f"{glyph} {words}", style, no_wrap=True)
    mark, about, check_style = check
    if mark != "●":  # fresh hits need no words
        text.append(f"  {mark} {about}", check_style)
    others = other_trainings(states, here.rank)
    return text.append(f"  {others}", theme.DIM) if others else text


ATTACH = "import tui_debugger.torch as tdbg; tdbg.attach(model, optimizer)"
"""The line that a PyTorch program needs."""


class WaitingScreen(Modal[None]):
    """Nothing on it moves until something happens."""

    FULL = True
    DEFAULT_CSS = "WaitingScreen #page { height: 1fr; scrollbar-size-vertical: 1; }"
    heading = "Waiting for a training"
    hints = (("Esc q", "leave"), ("T", "terminate"), ("↑ ↓", "scroll"), ("Shift+mouse", "select"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "cancel", show=False),
        Binding("T", "terminate", show=False),
    ]

    def __init__(
        self, text: Callable[[], str], warning: str, leave: Callable[[], None], terminate: Callable[[], None]
    ) -> None:
        """Draws itself when it has a size.

        Args:
            text: what to copy, asked for whenever the page is drawn.
            warning: about the address that is listened at; may be empty.
            leave: what Esc does.
            terminate: what T does.
        """
        super().__init__()
        self._text = text
        self._warning = warning
        self._leave = leave
        self._terminate = terminate
        self._over = False
        self._trainings: Sequence[LiveState] = ()
        self._refusals: Sequence[str] = ()

    def body(self) -> Iterable[Widget]:
        """Lays out the text without frames at its sides, so that it can be selected."""
        with VerticalScroll(id="page"):
            yield Line(id="lines")

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one("#page").focus()
        self._draw()

    def show(self, trainings: Sequence[LiveState], refusals: Sequence[str]) -> None:
        """Shows the trainings that came, and those that were turned away."""
        if (tuple(trainings), tuple(refusals)) != (tuple(self._trainings), tuple(self._refusals)):
            self._trainings, self._refusals = tuple(trainings), tuple(refusals)
            if self.query("#lines"):  # else it draws itself when it is there
                self._draw()

    def leave(self) -> None:
        """Goes: a graph came, and the panes show it now. Below a question it waits until that is answered."""
        self._over = True
        self._go()

    def on_screen_resume(self) -> None:
        """Goes once a question that stood above it was answered."""
        if self._over:
            self._go()

    def _go(self) -> None:
        # The page may have gone already when it hears of its own beginning: it must not take another screen along.
        if self.app.screen is self:
            self.dismiss(None)

    def _draw(self) -> None:
        lines: list[Content | str] = ["", *how_to_come(self._text())]
        if self._warning:
            lines += ["", Content.styled(f"! {clean(self._warning)}", ORANGE)]
        for state in self._trainings:
            glyph, words, _ = training_status(state)
            lines += ["", Content.styled(f"{glyph} {training_name(state)}: {words}", "bold")]
            if state.info.warning:
                lines.append(Content.styled(f"! {clean(state.info.warning)}", ORANGE))
        for refusal in reversed(self._refusals):
            lines += ["", Content.styled(f"✗ refused: {clean(refusal)}", f"bold {ORANGE}")]
        parts = [Content(line) if isinstance(line, str) else line for line in lines]
        self.query_one("#lines", Line).show(Content("\n").join(parts))

    def action_cancel(self) -> None:
        """Esc and q: leaves the program."""
        self._leave()

    def action_terminate(self) -> None:
        """Ends trainings that cannot be driven."""
        self._terminate()


def how_to_come(text: str) -> list[Content | str]:
    """Returns what to set for each kind of training, from lines of ``kind:  VARIABLE=value ...``."""
    lines: list[Content | str] = [Content.styled("Start the training with this in its environment:", "bold")]
    for line in text.splitlines():
        kind, _, variables = clean(line).partition(":  ")
        lines += ["", Content.styled(kind, GREY), f"  {variables.strip()}"]
    return [*lines, Content.styled("  and in a PyTorch program:", GREY), f"  {ATTACH}"]
