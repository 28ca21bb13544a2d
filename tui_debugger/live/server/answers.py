"""Takes the answers to questions message by message, without trusting the types or sizes that they declare."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tui_debugger.graph.messages import type_name
from tui_debugger.live.server.conversation import own_id
from tui_debugger.live.server.identity import MemoryLimit
from tui_debugger.live.wire import OWN_TYPES, ReceivedHit, RemoteStats, RemoteTensor, ValueSink, text_of
from tui_debugger.model import AtLeast, OperandState, ParamResult, TensorMeta, TensorStats
from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.stats.fields import SENT, STORED

_OWN_NAMES: Final = {number: name for name, number in OWN_TYPES.items()}
_MOST_DIMS: Final = 64
_MOST_BYTES: Final = 1 << 60
_NO_DIMS: Final[Sequence[int]] = ()


@lru_cache(maxsize=256)
def element(number: int) -> tuple[str, int] | None:
    """Name and size of an element type by its number; None when its values cannot be read."""
    name = _OWN_NAMES.get(number) or type_name(number)
    dtype = dtype_of(name)
    return None if dtype is None else (name, dtype.itemsize)


def meta_of(data_type: int, dims: Sequence[int] = _NO_DIMS) -> TensorMeta | None:
    """Type, shape and the bytes that follow from them; None when they make no sense."""
    kind = element(data_type)
    if kind is None or len(dims) > _MOST_DIMS or any(dim < 0 for dim in dims):
        return None
    nbytes = math.prod(dims) * kind[1]
    return TensorMeta(kind[0], tuple(dims), nbytes) if nbytes < _MOST_BYTES else None


def stats_of(base: Any, statistics: Any | None, *, full: bool) -> RemoteStats:
    """A client's ``TensorBase`` and ``Statistics``, if asked for; ``full``: the client sends our additions."""
    meta = meta_of(int(base.data_type), base.shape)
    if meta is None or statistics is None:
        return RemoteStats(meta)
    stats = _stats(statistics, full)
    return RemoteStats(meta, stats, complete=full and stats is not None)


def stats_beside_hit(hit: Any) -> tuple[TensorMeta | None, TensorStats | None]:
    """The type and statistics that our own client sends along with a hit."""
    meta = meta_of(int(hit.base.data_type), hit.base.shape) if hit.HasField("base") else None
    return meta, _stats(hit.statistics, full=True) if meta and hit.HasField("statistics") else None


def _stats(message: Any, full: bool) -> TensorStats | None:
    if full and not (message.count or message.HasField("count")):
        return None  # the elements are no numbers
    finite = message.count - message.nan_count - message.neg_inf_count - message.pos_inf_count
    values: dict[str, Any] = {field.name: field.unknown for field in STORED}
    for field, sent in SENT:
        if not sent.ours:
            values[field.name] = int(getattr(message, sent.name))
        elif full:
            if message.HasField(sent.name):  # an older client of ours does not know all of them
                values[field.name] = getattr(message, sent.name)
        elif sent.rounded and finite > 0:  # all-NaN is written as lowest and highest number, and zero not at all
            values[field.name] = _finite(getattr(message, sent.rounded))
    return TensorStats(**values, at_least=AtLeast(message.at_least & sum(AtLeast)) if full else AtLeast.NONE)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) and abs(value) < _LOWEST else None


_LOWEST: Final = 3.4e38
"""Just below the largest float32, which clients send as the extremes of an all-NaN tensor."""

_NO_ACTUAL: Final = frozenset(
    {b"rtol", b"atol", b"equal_nan", b"epsilon", b"range_start_inclusive", b"range_end_inclusive"}
)
"""Parameters that only support others: nothing is measured for them."""
_BOOLS: Final = frozenset({b"equal_nan"})
_MOST_PARAMS: Final = 32
_MOST_QUANTITIES: Final = 64


def hit_of(message: Any) -> ReceivedHit | None:
    """A ``WatchpointHit``; None without a tensor or with an impossible slot."""
    slot = message.tensor.slot or b"0"
    if not message.tensor.node_name or not slot.isdigit() or len(slot) > 9:
        return None
    error = max(0, int(message.error_code))
    meta, stats = stats_beside_hit(message)
    return ReceivedHit(
        node=text_of(message.tensor.node_name),
        slot=int(slot),
        watchpoint=own_id(int(message.id)),
        condition=int(message.watch_condition.condition),
        params=tuple(
            _param(param, error) for param in message.watch_condition.params[:_MOST_PARAMS] if not param.disabled
        ),
        error=error,
        meta=meta,
        stats=stats,
        inputs_unknown=bool(message.inputs_unknown),
        operands=tuple(
            (text_of(each.name), OperandState(each.state))
            for each in message.operands[:_MOST_PARAMS]
            if each.state in set(OperandState)
        ),
    )


def _param(param: Any, error: int) -> ParamResult:
    if param.text:
        quantities = tuple((text_of(each.name), _found(each)) for each in param.quantities[:_MOST_QUANTITIES])
        return ParamResult(text_of(param.name), text_of(param.text), bool(param.hit), None, quantities)
    value = bool(param.value) if param.name in _BOOLS else float(param.value)
    measured = not error and param.name not in _NO_ACTUAL
    return ParamResult(text_of(param.name), value, bool(param.hit), float(param.actual_value) if measured else None)


def _found(quantity: Any) -> float | str | None:
    if quantity.text:
        return text_of(quantity.text)
    return float(quantity.value) if quantity.HasField("value") else None


class AnswerTooLargeError(Exception):
    """A client sends more than it may."""


class GraphAssembly:
    """The graphs of one stream, within ``most`` bytes from ``memory``; those of a broken stream are dropped."""

    def __init__(self, memory: MemoryLimit, most: int) -> None:
        self._memory, self._most = memory, most
        self._chunks: list[bytes] = []
        self._taken = 0
        self._graphs: list[bytes] = []

    def take(self, buffer: bytes, finished: bool) -> None:
        """Takes the next chunk; AnswerTooLargeError over the limits, then ``drop`` frees the memory."""
        # An empty chunk costs memory too.
        size = len(buffer) or 64
        if self._taken + size > self._most:
            msg = f"its graphs are larger than {self._most / 2**20:,.0f} MiB"
            raise AnswerTooLargeError(msg)
        if not self._memory.take(size):
            msg = "there is no memory left for its graphs"
            raise AnswerTooLargeError(msg)
        self._taken += size
        if buffer:
            self._chunks.append(buffer)
        if finished:
            self._close()

    def end(self) -> tuple[tuple[bytes, ...], int]:
        """Returns the graphs after the stream ended well, and their bytes, which their owner must give back."""
        self._close()
        taken, self._taken = self._taken, 0
        return tuple(self._graphs), taken

    def drop(self) -> None:
        """The stream broke: all of its graphs are dropped."""
        self._memory.give(self._taken)
        self._taken = 0
        self._chunks.clear()
        self._graphs.clear()

    def _close(self) -> None:
        if self._chunks:
            self._graphs.append(b"".join(self._chunks))
            self._chunks.clear()


PREVIOUS: Final = b"prev"


class ViewAnswer(ABC):
    """The answer to one view."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self.stray = 0  # bytes that came without being asked for
        self.failure: Exception | None = None  # exception of the receiver of values

    def take(self, message: Any, size: int) -> None:
        with self._lock:
            if self._cancelled:
                return
            try:
                self._take(message, size)
            except Exception as error:  # noqa: BLE001 - raised again to the caller; the stream is read to its end
                self.failure, self._cancelled = error, True

    def cancel(self) -> None:
        """Gives the answer up: later data is dropped. No receiver is called after this."""
        with self._lock:
            self._cancelled = True

    def finish(self) -> None:
        with self._lock:
            if self._cancelled:
                return
            try:
                self._finish()
            except Exception as error:  # noqa: BLE001 - raised again to the caller
                self.failure = error
            self._cancelled = True

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Tells whether nothing more has to come."""

    @abstractmethod
    def _take(self, message: Any, size: int) -> None: ...

    def _finish(self) -> None:  # noqa: B027 - entries that did not come are missing
        pass


class NumbersAnswer(ViewAnswer):
    """Statistics or types, in the order asked."""

    def __init__(self, count: int, *, full: bool) -> None:
        super().__init__()
        self._count, self._full = count, full
        self._entries: list[RemoteStats] = []

    @property
    def complete(self) -> bool:
        return len(self._entries) == self._count

    @property
    def come(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[RemoteStats]:
        """One entry for each tensor; a tensor that did not come is not at the client."""
        return self._entries + [RemoteStats(None)] * (self._count - len(self._entries))

    def _take(self, message: Any, size: int) -> None:
        if len(self._entries) == self._count:
            self.stray += size
            return
        summary = message.DESCRIPTOR.name == "TensorSummary"
        base = message.tensor_base if summary else message
        statistics = message.statistics if summary else None
        self._entries.append(stats_of(base, statistics, full=self._full))


@dataclass(slots=True)
class _Arriving:
    number: int
    meta: TensorMeta
    wanted: bool
    left: int


class ValuesAnswer(ViewAnswer):
    """Values, handed on chunk by chunk."""

    def __init__(self, tensors: Sequence[RemoteTensor], first: int, sink: ValueSink) -> None:
        """``first`` is the number of the first of these tensors in the request."""
        super().__init__()
        self._tensors, self._first, self._sink = tensors, first, sink
        self._at = -1
        self._now: _Arriving | None = None
        self.done: list[bool | None] = [None] * len(tensors)  # whether all of it came; None: nothing was said
        self.received = self.declared = 0

    @property
    def complete(self) -> bool:
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
        """The tensor of a message: the tensor that arrives, or the next requested tensor of that name."""
        if self._at >= 0 and _is(self._tensors[self._at], message) and (self._now or self._same(message)):
            return self._at
        for number in range(self._at + 1, len(self._tensors)):
            if _is(self._tensors[number], message):
                self._cut_off()
                self._at = number
                return number
        return None

    def _same(self, message: Any) -> bool:
        """Tells whether a message is a further chunk of a tensor that was given up, not the next of that name."""
        later = self._tensors[self._at + 1 :]
        return self.done[self._at] is False and not any(_is(tensor, message) for tensor in later)

    def _begin(self, number: int, message: Any) -> None:
        if self.done[number] is not None:
            self.stray += len(message.tensor_content)
            return
        meta = meta_of(int(message.data_type), message.dims)
        if meta is None:  # the client does not have it, or sends nonsense
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
    name = text_of(message.node_name)
    wanted = {tensor.node, tensor.node.rpartition("/")[2]} if tensor.truncate else {tensor.node}
    return (
        name in wanted and text_of(message.slot) == str(tensor.slot) and (message.iter == PREVIOUS) == tensor.previous
    )
