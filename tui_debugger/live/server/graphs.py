"""Puts graphs together from their chunks. Pure."""

from __future__ import annotations

from tui_debugger.live.server.limits import Memory


class TooLargeError(Exception):
    """A client sends more than it may."""


class GraphAssembly:
    """The graphs of one stream.

    ``SendGraph`` never says that its graph is finished: the end of the stream does. ``SendMultiGraphs`` marks the last
    chunk of each graph. What a broken stream left is dropped.
    """

    def __init__(self, memory: Memory, most: int) -> None:
        """At most ``most`` bytes, from what is left of ``memory``."""
        self._memory, self._most = memory, most
        self._chunks: list[bytes] = []
        self._taken = 0
        self._graphs: list[bytes] = []

    def take(self, buffer: bytes, finished: bool) -> None:
        """The next chunk.

        Raises:
            TooLargeError: that is more than a client may send; what was kept is freed by ``drop``.
        """
        # An empty chunk costs memory too.
        size = len(buffer) or 64
        if self._taken + size > self._most:
            msg = f"its graphs are larger than {self._most / 2**20:,.0f} MiB"
            raise TooLargeError(msg)
        if not self._memory.take(size):
            msg = "there is no memory left for its graphs"
            raise TooLargeError(msg)
        self._taken += size
        if buffer:
            self._chunks.append(buffer)
        if finished:
            self._close()

    def end(self) -> tuple[tuple[bytes, ...], int]:
        """The stream ended well: its graphs, and the bytes that whoever keeps them gives back some day."""
        self._close()
        taken, self._taken = self._taken, 0
        return tuple(self._graphs), taken

    def drop(self) -> None:
        """The stream broke: nothing of it is kept."""
        self._memory.give(self._taken)
        self._taken = 0
        self._chunks.clear()
        self._graphs.clear()

    def _close(self) -> None:
        if self._chunks:
            self._graphs.append(b"".join(self._chunks))
            self._chunks.clear()
