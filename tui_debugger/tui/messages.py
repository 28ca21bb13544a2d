"""What workers tell the screen: past-tense messages with immutable results and the number of their request.

Here is what can arrive before a run is open; ``answers`` has the rest, which the first frame does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.model import Progress
    from tui_debugger.session import Session


class Finished(Message):
    """Base of all results.

    Attributes:
        lane, request: which request of which lane this answers; the bridge fills them in.
    """

    def __post_init__(self) -> None:
        """Textual's own part of a message, for the dataclasses of ``answers`` too."""
        super().__post_init__()
        self.lane = ""
        self.request = 0


class Opened(Finished):
    """The session is open."""

    def __init__(self, session: Session) -> None:
        """The session."""
        super().__init__()
        self.session = session


class Answered(Finished):
    """Work for a dialog is done."""

    def __init__(self, value: object) -> None:
        """``value`` goes to whoever asked."""
        super().__init__()
        self.value = value


class Failed(Finished):
    """Work ended with an error that people may see."""

    def __init__(self, error: Exception) -> None:
        """The error."""
        super().__init__()
        self.error = error


class Progressed(Finished):
    """How far long work is; a later one replaces an earlier one that was not handled yet."""

    def __init__(self, progress: Progress) -> None:
        """A snapshot."""
        super().__init__()
        self.progress = progress

    def can_replace(self, message: Message) -> bool:
        """Only the newest matters."""
        return isinstance(message, Progressed) and message.lane == self.lane


class Started(Message):
    """For the app: a session is open."""

    def __init__(self, session: Session) -> None:
        """The session."""
        super().__init__()
        self.session = session


class Settled(Message):
    """For the app: much was made that stays."""


class Unopened(Message):
    """For the app: the run could not be opened."""

    def __init__(self, error: Exception) -> None:
        """Why."""
        super().__init__()
        self.error = error


def presentable(error: Exception) -> TdbgError:
    """Any exception as one of ours."""
    if isinstance(error, TdbgError):
        return error
    return TdbgError(
        f"{type(error).__name__}: {error}", hint="this is a mistake in tdbg; the rest of the screen goes on working"
    )
