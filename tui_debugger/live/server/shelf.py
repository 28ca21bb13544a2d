"""What is kept of a training: its graphs, and the hits of its last stop. Bounded; not thread-safe."""

from __future__ import annotations

from collections.abc import Sequence

from tui_debugger.live.server.limits import Memory
from tui_debugger.live.types import ReceivedHit


class Shelf:
    """Graphs and hits, and the memory that they take.

    Attributes:
        graphs: all of them, empty until they are all there.
        hits: of the last stop.
        left_out: hits of the last stop that were not kept.
    """

    def __init__(self, memory: Memory, most_hits: int, graphs: int) -> None:
        """Waits for so many graphs."""
        self._memory, self._most_hits = memory, most_hits
        self._expected = graphs
        self.graphs: tuple[bytes, ...] = ()
        self.hits: tuple[ReceivedHit, ...] = ()
        self.left_out = 0
        self._graph_bytes = self._hit_bytes = 0
        self._arriving: list[bytes] = []
        self._arriving_bytes = 0
        self._coming: list[ReceivedHit] = []
        self._coming_bytes = self._coming_left_out = 0

    def expect(self, graphs: int) -> None:
        """A new handshake: the graphs come again; hits that are on their way stay."""
        self._expected = graphs
        self._memory.give(self._graph_bytes + self._arriving_bytes)
        self.graphs, self._graph_bytes = (), 0
        self._arriving, self._arriving_bytes = [], 0

    def add_graphs(self, graphs: Sequence[bytes], size: int) -> bool:
        """Graphs of one stream; True when all are there now."""
        self._arriving.extend(graphs)
        self._arriving_bytes += size
        return len(self._arriving) >= max(self._expected, 1) and self.publish_late()

    def publish_late(self) -> bool:
        """All that came is all that will come; False when there is nothing new."""
        if not self._arriving:
            return False
        self._memory.give(self._graph_bytes)
        self.graphs, self._graph_bytes = tuple(self._arriving), self._arriving_bytes
        self._arriving, self._arriving_bytes = [], 0
        return True

    def add_hits(self, hits: Sequence[ReceivedHit], size: int, left_out: int) -> None:
        """Hits of one stream, which took ``size`` bytes."""
        room = max(0, self._most_hits - len(self._coming))
        self._coming.extend(hits[:room])
        self._coming_left_out += left_out + max(0, len(hits) - room)
        if hits:
            self._coming_bytes += size
        else:
            self._memory.give(size)

    def show_hits(self) -> None:
        """A stop: what came since the last one are its hits."""
        self._memory.give(self._hit_bytes)
        self.hits, self._hit_bytes = tuple(self._coming), self._coming_bytes
        self.left_out = self._coming_left_out
        self._coming, self._coming_bytes, self._coming_left_out = [], 0, 0

    def drop_coming(self) -> None:
        """Their stop will never be."""
        self._memory.give(self._coming_bytes)
        self._coming, self._coming_bytes, self._coming_left_out = [], 0, 0

    def clear(self) -> None:
        """Frees everything."""
        self.drop_coming()
        self.show_hits()
        self.expect(0)
