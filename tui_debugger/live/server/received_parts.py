"""What a server keeps of a training: its graphs, and the hits of its last stop, within a limit of memory."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.live import wire
from tui_debugger.live.server.identity import MemoryLimit
from tui_debugger.live.wire import ReceivedHit


class ReceivedParts:
    """Graphs (empty until all are there) and the hits of the last stop, with the memory that they take."""

    def __init__(self, memory: MemoryLimit, most_hits: int, graphs: int) -> None:
        self._memory, self._most_hits = memory, most_hits
        self._expected = graphs
        self.graphs: tuple[bytes, ...] = ()
        self.hits: tuple[ReceivedHit, ...] = ()
        self.left_out = 0  # hits of the last stop that were not kept
        self._graph_bytes = self._hit_bytes = 0
        self._arriving: list[bytes] = []
        self._arriving_bytes = 0
        self._coming: list[ReceivedHit] = []
        self._coming_bytes = self._coming_left_out = 0

    def expect(self, graphs: int, *, more: bool = False) -> None:
        """A new handshake: the graphs come again, or ``more`` besides them; hits on their way stay."""
        self._expected = graphs
        self._memory.give(self._arriving_bytes)
        self._arriving, self._arriving_bytes = [], 0
        if not more:
            self._memory.give(self._graph_bytes)
            self.graphs, self._graph_bytes = (), 0

    def add_graphs(self, graphs: Sequence[bytes], size: int) -> bool:
        self._arriving.extend(graphs)
        self._arriving_bytes += size
        return len(self._arriving) >= max(self._expected, 1) and self.publish_late()

    def publish_late(self) -> bool:
        """Publishes the graphs so far, as no more will come; False when there is nothing new."""
        if not self._arriving:
            return False
        taken = self._graph_bytes + self._arriving_bytes
        self.graphs = _joined(self.graphs, self._arriving)
        self._graph_bytes = min(sum(map(len, self.graphs)), taken)
        self._memory.give(taken - self._graph_bytes)
        self._arriving, self._arriving_bytes = [], 0
        return True

    def add_hits(self, hits: Sequence[ReceivedHit], size: int, left_out: int) -> None:
        room = max(0, self._most_hits - len(self._coming))
        self._coming.extend(hits[:room])
        self._coming_left_out += left_out + max(0, len(hits) - room)
        if hits:
            self._coming_bytes += size
        else:
            self._memory.give(size)

    def show_hits(self) -> None:
        """A stop: the hits since the last stop belong to it."""
        self._memory.give(self._hit_bytes)
        self.hits, self._hit_bytes = tuple(self._coming), self._coming_bytes
        self.left_out = self._coming_left_out
        self._coming, self._coming_bytes, self._coming_left_out = [], 0, 0

    def drop_coming(self) -> None:
        """Drops hits whose stop will never come."""
        self._memory.give(self._coming_bytes)
        self._coming, self._coming_bytes, self._coming_left_out = [], 0, 0

    def clear(self) -> None:
        self.drop_coming()
        self.show_hits()
        self.expect(0)


def _joined(before: Sequence[bytes], more: Sequence[bytes]) -> tuple[bytes, ...]:
    """Adds graphs to others; a graph replaces an earlier one of the same name."""
    if not before:
        return tuple(more)
    named = {_name_of(graph): graph for graph in more}
    kept = [named.pop(_name_of(graph), graph) for graph in before]
    return (*kept, *named.values())


def _name_of(graph: bytes) -> bytes:
    try:
        return bytes(wire.message("GraphProto").FromString(graph).name)
    except Exception:  # noqa: BLE001 - which class protobuf raises depends on its version
        return b""
