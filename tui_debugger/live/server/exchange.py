"""What a conversation is about: questions, runs and reports. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tui_debugger.live.server.commands import Recheck, View


class Asked(Enum):
    """What has become of a question."""

    QUEUED = "queued"
    SENT = "sent"
    ANSWERED = "answered"
    LOST = "lost"
    """The training went away, or will be ended."""


@dataclass(slots=True)
class Question:
    """Something that a client is asked for while it waits.

    Attributes:
        command: how it is asked.
        answer: what whoever asked wants to have at hand when the answer comes; not looked at here.
        state: what has become of it.
    """

    command: View | Recheck
    answer: object = None
    state: Asked = Asked.QUEUED

    @property
    def open(self) -> bool:
        """Whether an answer can still come."""
        return self.state in (Asked.QUEUED, Asked.SENT)


@dataclass(slots=True)
class Course:
    """How a training goes on.

    Attributes:
        left: steps after the one that is asked for now; None without end.
        stop_on_hit: hits end it.
        node: a node to stop at (empty: the next one), None to run by steps.
        stop_on_new_nodes: a graph that is sent anew interrupts it.
    """

    left: int | None
    stop_on_hit: bool = True
    node: str | None = None
    stop_on_new_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a training says when it enters: ``step`` is None from clients that cannot be trusted to count."""

    step: int | None = None
    node: str = ""
