"""A session on a training that the test drives, and a way to wait for what happens in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live.session.doubles import ScriptedTraining, ScriptedTrainings
from tests.patience import PATIENCE
from tui_debugger.live.server import Server
from tui_debugger.live.wire import Event
from tui_debugger.session.live import LiveEvent, LiveSession


class Told:
    """The events of a session; waits for them with an end, never by sleeping."""

    def __init__(self, session: LiveSession) -> None:
        self.events: list[LiveEvent] = []
        self._changed = threading.Condition()
        session.subscribe(self._heard)

    def _heard(self, event: LiveEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, kind: Event, times: int = 1) -> LiveEvent:
        """Waits until something was told so many times; the event of the last time."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: self.count(kind) >= times, PATIENCE)
            assert arrived, f"{kind} was not told {times} times: {self.events}"
            return [event for event in self.events if event.kind is kind][times - 1]

    def count(self, kind: Event) -> int:
        """How many times it was told so far."""
        return sum(event.kind is kind for event in self.events)


class Live:
    """A session, its trainings, what it told."""

    def __init__(self, session: LiveSession, trainings: ScriptedTrainings, training: ScriptedTraining) -> None:
        self.session, self.trainings, self.training = session, trainings, training
        self.told = Told(session)

    def arrive(self) -> None:
        """The training comes, and waits before its first step."""
        self.training.arrive()
        self.told.wait(Event.STOPPED)

    def run(self, steps: int | None = 1) -> int:
        """Runs to the next stop; its step."""
        before = self.told.count(Event.STOPPED)
        self.session.run(steps)
        step = self.told.wait(Event.STOPPED, before + 1).step
        assert step is not None
        return step


@pytest.fixture
def opened() -> Iterator[Callable[..., LiveSession]]:
    """Opens sessions; they are closed after the test."""
    sessions: list[LiveSession] = []

    def open_(trainings: Server, **options: Any) -> LiveSession:
        sessions.append(LiveSession(trainings, **options))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


@pytest.fixture
def live(opened: Callable[..., LiveSession]) -> Callable[..., Live]:
    """A session on one scripted training: ``live(hits=..., features=...)``; ``spool_limit`` is the session's."""

    def make(spool_limit: int = 1 << 30, **options: Any) -> Live:
        training = ScriptedTraining(**options)
        trainings = ScriptedTrainings(training)
        return Live(opened(trainings, spool_limit=spool_limit), trainings, training)

    return make
