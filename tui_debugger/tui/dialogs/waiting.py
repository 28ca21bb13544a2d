"""Before the first training: where this program listens, what to copy into a shell, who was turned away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from tui_debugger.text.clean import clean
from tui_debugger.tui import live_words
from tui_debugger.tui.dialogs.modal import Line, Modal
from tui_debugger.tui.theme import GREY, ORANGE

if TYPE_CHECKING:
    from tui_debugger.session.live_driver import LiveState

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
        """Text without frames at its sides, so that it can be selected."""
        with VerticalScroll(id="page"):
            yield Line(id="lines")

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one("#page").focus()
        self._draw()

    def show(self, trainings: Sequence[LiveState], refusals: Sequence[str]) -> None:
        """Who came, and who was turned away."""
        if (tuple(trainings), tuple(refusals)) != (tuple(self._trainings), tuple(self._refusals)):
            self._trainings, self._refusals = tuple(trainings), tuple(refusals)
            if self.query("#lines"):  # else it draws itself when it is there
                self._draw()

    def leave(self) -> None:
        """A graph came: the panes show it now."""
        self._over = True
        if self.is_current:
            self.dismiss(None)

    def on_screen_resume(self) -> None:
        """A question that stood above it was answered."""
        if self._over:
            self.dismiss(None)

    def _draw(self) -> None:
        lines: list[Content | str] = ["", *how_to_come(self._text())]
        if self._warning:
            lines += ["", Content.styled(f"! {clean(self._warning)}", ORANGE)]
        for state in self._trainings:
            glyph, words, _ = live_words.status(state)
            lines += ["", Content.styled(f"{glyph} {live_words.who(state)}: {words}", "bold")]
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
    """What to set for each kind of training, from lines of ``kind:  VARIABLE=value ...``."""
    lines: list[Content | str] = [Content.styled("Start the training with this in its environment:", "bold")]
    for line in text.splitlines():
        kind, _, variables = clean(line).partition(":  ")
        lines += ["", Content.styled(kind, GREY), f"  {variables.strip()}"]
    return [*lines, Content.styled("  and in a PyTorch program:", GREY), f"  {ATTACH}"]
