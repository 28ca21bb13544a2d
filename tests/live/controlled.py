"""What trainings without a wire have in common, whatever a test makes them do: see ``live.control``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tui_debugger.errors import LostError, NotStoppedError
from tui_debugger.live.server.training import Listener, RemoteTraining
from tui_debugger.live.wire import Event, Phase, ValueSink
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats.dtypes import name_of

T = TypeVar("T", bound=RemoteTraining)
PIECE = 16
"""Bytes that are sent together."""


def need_stopped(phase: Phase) -> None:
    """Refuses what only a training that waits can do."""
    if phase is Phase.LOST:
        raise LostError("the training went away")
    if phase is not Phase.STOPPED:
        raise NotStoppedError(f"the training is {phase.value}")


def send(sink: ValueSink, number: int, values: np.ndarray[Any, Any] | None, progress: ProgressFn = no_progress) -> bool:
    """Sends the values of one tensor, as far as it has some; returns whether it has."""
    if values is None:
        sink.end(number, complete=False)
    elif sink.begin(number, name_of(values.dtype), values.shape):
        data = values.tobytes()
        for start in range(0, len(data), PIECE):
            progress(Progress(start, len(data)))
            sink.write(number, data[start : start + PIECE])
        sink.end(number, complete=True)
    return values is not None


class Server(Generic[T]):
    """A server that is none: it knows trainings, and tells its listeners what a test makes happen."""

    def __init__(self, address: str = "127.0.0.1:50051") -> None:
        self.address = address
        self.trainings: list[T] = []
        self.refused: list[str] = []
        self._listeners: list[Listener] = []

    @property
    def encrypted(self) -> bool:
        return False

    @property
    def refusals(self) -> Sequence[str]:
        return tuple(self.refused)

    def all(self) -> Sequence[RemoteTraining]:
        return tuple(self.trainings)

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def refuse(self, why: str) -> None:
        self.refused.append(why)
        self.tell(None, Event.REFUSED)

    def tell(self, training: RemoteTraining | None, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(training, event)
