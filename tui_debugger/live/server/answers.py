"""Takes the answers to questions as they come, message by message, and believes no size that they declare.

Filled by the thread of a call, read by the thread of whoever asked: each answer has a lock.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tui_debugger.live.server.elements import meta_of, stats_of
from tui_debugger.live.types import RemoteStats, RemoteTensor, ValueSink
from tui_debugger.model import TensorMeta

PREVIOUS: Final = b"prev"


class Answer(ABC):
    """The answer to one view.

    Attributes:
        stray: bytes that came without being asked for.
        failure: what the receiver of values raised, None when all is well.
    """

    def __init__(self) -> None:
        """Nothing has come."""
        self._lock = threading.Lock()
        self._cancelled = False
        self.stray = 0
        self.failure: Exception | None = None

    def take(self, message: Any, size: int) -> None:
        """The next message, of so many bytes on the wire."""
        with self._lock:
            if self._cancelled:
                return
            try:
                self._take(message, size)
            except Exception as error:  # noqa: BLE001 - raised again to whoever asked; the stream is read to its end
                self.failure, self._cancelled = error, True

    def cancel(self) -> None:
        """Nobody wants it any more: what still comes is dropped. No receiver is called after this."""
        with self._lock:
            self._cancelled = True

    def finish(self) -> None:
        """Nothing more will come."""
        with self._lock:
            if self._cancelled:
                return
            try:
                self._finish()
            except Exception as error:  # noqa: BLE001 - raised again to whoever asked
                self.failure = error
            self._cancelled = True

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether nothing more has to come."""

    @abstractmethod
    def _take(self, message: Any, size: int) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...


class Numbers(Answer):
    """Statistics or types, in the order asked."""

    def __init__(self, count: int, *, full: bool) -> None:
        """An answer of ``count`` entries; ``full``: the client sends our additions."""
        super().__init__()
        self._count, self._full = count, full
        self._entries: list[RemoteStats] = []

    @property
    def complete(self) -> bool:
        """Whether all have come."""
        return len(self._entries) == self._count

    @property
    def come(self) -> int:
        """How many have come."""
        return len(self._entries)

    @property
    def entries(self) -> list[RemoteStats]:
        """One for each tensor; those that did not come are missing at the client."""
        return self._entries + [RemoteStats(None)] * (self._count - len(self._entries))

    def _take(self, message: Any, size: int) -> None:
        if len(self._entries) == self._count:
            self.stray += size
            return
        summary = message.DESCRIPTOR.name == "TensorSummary"
        base = message.tensor_base if summary else message
        statistics = message.statistics if summary else None
        self._entries.append(stats_of(base, statistics, full=self._full))

    def _finish(self) -> None:
        pass  # what did not come is missing


@dataclass(slots=True)
class _Arriving:
    number: int
    meta: TensorMeta
    wanted: bool
    left: int


class Values(Answer):
    """Values, handed on chunk by chunk.

    Attributes:
        done: for each tensor whether all of it came; None for those of which nothing was said at all.
        received: bytes of values.
        declared: bytes of the tensors that have begun.
    """

    def __init__(self, tensors: Sequence[RemoteTensor], first: int, sink: ValueSink) -> None:
        """Values of some tensors of a request, of which the first has the number ``first``."""
        super().__init__()
        self._tensors, self._first, self._sink = tensors, first, sink
        self._at = -1
        self._now: _Arriving | None = None
        self.done: list[bool | None] = [None] * len(tensors)
        self.received = self.declared = 0

    @property
    def complete(self) -> bool:
        """Whether something was said to the end of every tensor."""
        return None not in self.done

    def _take(self, message: Any, size: int) -> None:
        number = self._place(message)
        if number is None:
            self.stray += size
            return
        if self._now is None:
            self._begin(number, message)
        if self._now is not None:
            self._write(self._now, message)

    def _place(self, message: Any) -> int | None:
        """Which tensor it belongs to: the one that arrives, or the next one of that name that was asked for."""
        if self._at >= 0 and _is(self._tensors[self._at], message) and (self._now or self._same(message)):
            return self._at
        for number in range(self._at + 1, len(self._tensors)):
            if _is(self._tensors[number], message):
                self._cut_off()
                self._at = number
                return number
        return None

    def _same(self, message: Any) -> bool:
        """A further chunk of a tensor that was given up: not the next request of the same name."""
        later = self._tensors[self._at + 1 :]
        return self.done[self._at] is False and not any(_is(tensor, message) for tensor in later)

    def _begin(self, number: int, message: Any) -> None:
        if self.done[number] is not None:
            self.stray += len(message.tensor_content)
            return
        meta = meta_of(int(message.data_type), message.dims)
        if meta is None:  # the client does not have it, or says what cannot be
            self._end(number, complete=False)
            return
        wanted = self._sink.begin(self._first + number, meta.dtype, meta.shape)
        self.declared += meta.nbytes
        self._now = _Arriving(number, meta, wanted, meta.nbytes)

    def _write(self, arriving: _Arriving, message: Any) -> None:
        chunk = message.tensor_content
        broken = len(chunk) > arriving.left or tuple(message.dims) != arriving.meta.shape
        if not broken:
            arriving.left -= len(chunk)
            self.received += len(chunk)
            if chunk and arriving.wanted:
                self._sink.write(self._first + arriving.number, chunk)
        if broken or message.finished:
            self._now = None
            self._end(arriving.number, complete=not broken and not arriving.left, told=arriving.wanted)

    def _cut_off(self) -> None:
        if self._now is not None:
            arriving, self._now = self._now, None
            self._end(arriving.number, complete=False, told=arriving.wanted)

    def _end(self, number: int, *, complete: bool, told: bool = True) -> None:
        self.done[number] = complete and told
        if told:
            self._sink.end(self._first + number, complete)

    def _finish(self) -> None:
        self._cut_off()


def _is(tensor: RemoteTensor, message: Any) -> bool:
    name = message.node_name.decode("utf-8", errors="replace")
    wanted = {tensor.node, tensor.node.rpartition("/")[2]} if tensor.truncate else {tensor.node}
    return (
        name in wanted
        and message.slot.decode("utf-8", errors="replace") == str(tensor.slot)
        and (message.iter == PREVIOUS) == tensor.previous
    )
