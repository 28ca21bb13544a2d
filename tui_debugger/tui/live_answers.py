"""What a screen with trainings is told by workers and by the session's own threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from tui_debugger.tui.messages import Finished

if TYPE_CHECKING:
    from tui_debugger.sources.base import Changes


class Stirred(Message):
    """Something happened to a training; what, is in the runner's list of events."""

    def can_replace(self, message: Message) -> bool:
        """One is enough, however much happened."""
        return isinstance(message, Stirred)


class Noted(Message):
    """One line for the footer, from whoever plays the training."""

    def __init__(self, text: str) -> None:
        """The line."""
        super().__init__()
        self.text = text


@dataclass(eq=False)
class Ordered(Finished):
    """A command was taken; ``text`` is for the footer, empty when the header says enough."""

    text: str = ""


@dataclass(eq=False)
class Followed(Finished):
    """What trainings sent was taken in."""

    changes: Changes
