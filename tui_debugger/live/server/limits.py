"""What a client may make the server keep or wait for: nothing that it declares is trusted."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server.

    Attributes:
        clients: trainings that are connected at the same time.
        remembered: trainings that are listed, those that are lost or done included; the oldest of these are forgotten.
        message_bytes: one message.
        graph_bytes: all graphs of one client.
        hits: hits of one stop; those above are counted, not kept.
        memory_bytes: graphs and hits of all clients together.
        stray_bytes: bytes of one stream that nobody asked for.
        strikes: broken rules after which a client is cut off.
        handshakes: handshakes of one client in a minute.
        idle: seconds between two messages of a stream.
        view_tensors: tensors in one request for values.
        view_numbers: tensors in one request for statistics or types.
        questions: requests of one client that wait to be sent.
    """

    clients: int = 256
    remembered: int = 512
    message_bytes: int = 4 * 1024 * 1024
    graph_bytes: int = 512 * 1024 * 1024
    hits: int = 200_000
    memory_bytes: int = 2 * 1024 * 1024 * 1024
    stray_bytes: int = 16 * 1024 * 1024
    strikes: int = 20
    handshakes: int = 60
    idle: float = 60.0
    view_tensors: int = 64
    view_numbers: int = 512
    questions: int = 1024


class Memory:
    """Bytes that all clients share."""

    def __init__(self, size: int) -> None:
        """A budget of ``size`` bytes."""
        self._left = size
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that are free."""
        return self._left

    def take(self, size: int) -> bool:
        """Reserves bytes; False when there are not that many left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Frees bytes that were reserved."""
        with self._lock:
            self._left += size
