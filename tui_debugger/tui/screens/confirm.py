"""A question with two answers, each with a key; Enter gives the first one, Esc none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import events
from textual.widget import Widget

from tui_debugger.tui.screens.modal import Line, Modal, clean_lines

Answer = tuple[str, str, str]
"""(key, words, what is returned)."""


class ConfirmScreen(Modal[str]):
    """Asks before something that cannot be taken back."""

    def __init__(self, heading: str, lines: Sequence[str], answers: Sequence[Answer]) -> None:
        """The first answer is Enter's, and that of Ctrl+C: it must be the harmless one."""
        super().__init__()
        self.heading = heading
        self.lines = lines
        self._answers = {key: value for key, _, value in answers} | {"enter": answers[0][2], "ctrl+c": answers[0][2]}
        first, *rest = answers
        self.hints = (
            (f"Enter {first[0]}", first[1]),
            *((key, words) for key, words, _ in rest),
            ("Esc", "back"),
        )

    def body(self) -> Iterable[Widget]:
        """What it is about."""
        yield Line(clean_lines("\n".join(self.lines)))

    def on_key(self, event: events.Key) -> None:
        """One of the keys."""
        if event.key in self._answers:
            event.stop()
            event.prevent_default()
            self.dismiss(self._answers[event.key])
