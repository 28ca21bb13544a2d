"""A server on a port of its own, and what happens at it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live.recordings import RecordedCall
from tests.live.recordings import recording as _recording
from tests.patience import PATIENCE
from tui_debugger.live.server import Server, serve
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import Event


class Happened:
    """What listeners were told; waits for it with an end, never by sleeping."""

    def __init__(self, server: Server) -> None:
        self.events: list[tuple[RemoteTraining | None, Event]] = []
        self._changed = threading.Condition()
        self.end = server.listen(self._heard)

    def _heard(self, training: RemoteTraining | None, event: Event) -> None:
        with self._changed:
            self.events.append((training, event))
            self._changed.notify_all()

    def wait(self, event: Event, times: int = 1) -> RemoteTraining | None:
        """Waits until something has happened so many times in all; the training of the last time."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: self.count(event) >= times, PATIENCE)
            assert arrived, f"{event} did not happen {times} times: {[each for _, each in self.events]}"
            return [training for training, each in self.events if each is event][times - 1]

    def training(self, event: Event, times: int = 1) -> RemoteTraining:
        """As ``wait``, for events that have a training."""
        training = self.wait(event, times)
        assert training is not None
        return training

    def until(self, reached: Callable[[], bool]) -> None:
        """Waits until something holds, which is asked whenever something happened."""
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE), [each for _, each in self.events]

    def count(self, event: Event) -> int:
        """How many times it happened so far."""
        return sum(each is event for _, each in self.events)


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    """Opens servers: ``serving(port=0, ...)``; they are closed after the test."""
    servers: list[Server] = []

    def opened(host: str = "127.0.0.1", port: int = 0, **options: Any) -> Server:
        servers.append(serve(host, port, **options))
        return servers[-1]

    yield opened
    for server in servers:
        server.close(terminate=True)


@pytest.fixture
def server(serving: Callable[..., Server]) -> Server:
    """A server on a free port of the loopback interface."""
    return serving()


@pytest.fixture
def happened(server: Server) -> Happened:
    """What happens at ``server``."""
    return Happened(server)


@pytest.fixture(scope="session")
def recording() -> Callable[[str], tuple[RecordedCall, ...]]:
    """The calls of a recorded session of MindSpore 2.0.0: ``recording("nan")``."""
    return _recording
