"""A training client in miniature that follows the protocol message by message, as the client of MindSpore does.

``ScriptedClient`` makes single calls; ``ScriptedTraining`` trains in a thread: it shakes hands, waits for commands,
watches, answers questions and goes on, with values that a test gives it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from tests.patience import PATIENCE
from tui_debugger.live import wire

_TYPES = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "bfloat16": 46, **wire.OWN_TYPES,
}  # fmt: skip

Message = Any


def metadata(step: int = 0, **fields: Any) -> Message:
    """A ``Metadata`` as MindSpore 2.0 fills it; text fields may be given as ``str``."""
    message = wire.message("Metadata")(device_name=b"0:0", backend=b"GPU")
    if step:
        message.cur_step = step
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value.encode() if isinstance(value, str) else value)
    return message


def tensor_messages(
    node: str, array: np.ndarray[Any, Any] | None, *, slot: int = 0, previous: bool = False, truncate: bool = False,
    chunk: int = wire.CHUNK,
) -> Iterator[Message]:  # fmt: skip
    """What the client of MindSpore sends for one tensor: chunks; nothing when it has no elements; one empty message
    when it does not exist (None)."""
    echo = {"node_name": node.encode(), "slot": str(slot).encode(), "iter": b"prev" if previous else b""}
    new = wire.message("TensorProto")
    if array is None:
        yield new(**echo, truncate=truncate, finished=True)
        return
    content = array.tobytes()
    kind = _TYPES[str(array.dtype)]
    for begin in range(0, len(content), chunk):
        yield new(
            **echo,
            truncate=truncate,
            dims=array.shape,
            data_type=kind,
            tensor_content=content[begin : begin + chunk],
            finished=begin + chunk >= len(content),
        )


def hit_message(node: str, watchpoint: int, condition: int = 13, *, slot: int = 0, error: int = 0) -> Message:
    """A hit without parameters."""
    hit = wire.message("WatchpointHit")(id=watchpoint)
    hit.tensor.node_name, hit.tensor.slot, hit.tensor.finished = node.encode(), str(slot).encode(), True
    hit.watch_condition.condition = condition
    if error:
        hit.error_code = error
    return hit


def graph_chunks(*graphs: bytes, chunk: int = wire.CHUNK, finished: bool = True) -> Iterator[Message]:
    """Graphs as ``SendMultiGraphs`` carries them; ``finished=False`` as ``SendGraph`` does."""
    for graph in graphs:
        for begin in range(0, len(graph), chunk):
            message = wire.message("Chunk")(buffer=graph[begin : begin + chunk])
            if finished:
                message.finished = begin + chunk >= len(graph)
            yield message


def graph_bytes(size: int = 1, fill: bytes = b"g") -> bytes:
    """A graph with one node, and a name of so many bytes."""
    graph = wire.message("GraphProto")(name=fill * size)
    graph.node.add(name=b"1", full_name=b"a", op_type=b"Add")
    return bytes(graph.SerializeToString())


class ScriptedClient:
    """Makes the calls of the protocol over a connection of its own."""

    def __init__(self, address: str, *, token: str | None = None, session: str | None = None) -> None:
        self._waiting: list[Any] = []
        # Without a pool of its own, two clients of one test process would share a connection.
        self._channel = grpc.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))
        self._headers = [
            *([(wire.TOKEN_HEADER, token)] if token is not None else []),
            *([(wire.SESSION_HEADER, session)] if session is not None else []),
        ]

    def close(self) -> None:
        """Breaks the connection, as a process that is killed does."""
        self._channel.close()

    def raw(self, name: str, requests: Iterable[bytes] | bytes, timeout: float = PATIENCE) -> bytes:
        """A call with messages that are serialized already."""
        if isinstance(requests, bytes):
            call: Any = self._channel.unary_unary(wire.method(name))
            return bytes(call(requests, timeout=timeout, metadata=self._headers))
        call = self._channel.stream_unary(wire.method(name))
        return bytes(call(iter(requests), timeout=timeout, metadata=self._headers))

    def call(self, name: str, *messages: Message, timeout: float = PATIENCE) -> Message:
        """A call with messages; the reply."""
        if name in wire.UNARY:
            reply = self.raw(name, messages[0].SerializeToString(), timeout)
        else:
            reply = self.raw(name, (message.SerializeToString() for message in messages), timeout)
        return wire.message("EventReply").FromString(reply)

    def stream(self, name: str, messages: Iterable[Message], timeout: float = PATIENCE) -> Message:
        """A call with a stream that is made while it is sent."""
        return wire.message("EventReply").FromString(
            self.raw(name, (message.SerializeToString() for message in messages), timeout)
        )

    def quietly(self, name: str, messages: Iterable[Message]) -> None:
        """As ``stream``, for a connection that is about to break."""
        with contextlib.suppress(grpc.RpcError, ValueError):
            self.stream(name, messages)

    def hello(self, version: str = "2.0.0", graphs: int = 1, **fields: Any) -> Message:
        """The handshake."""
        return self.call("SendMetadata", metadata(graph_num=graphs, ms_version=version, **fields))

    def graph(self, *graphs: bytes) -> Message:
        """Sends one graph, or several."""
        if len(graphs) == 1:
            return self.stream("SendGraph", graph_chunks(*graphs, finished=False))
        return self.stream("SendMultiGraphs", graph_chunks(*graphs))

    def stand(self) -> Any:
        """Shakes hands, sends a graph, and begins to wait for a command: see ``wait_later``."""
        self.hello()
        self.graph(graph_bytes())
        return self.wait_later()

    def beat(self, period: int = 30) -> Message:
        """A heartbeat."""
        return self.call("SendHeartbeat", wire.message("Heartbeat")(message=b"Debugger is alive", period=period))

    def hold_line(self) -> None:
        """Holds a call of heartbeats open: when that breaks, the server knows that this client is gone."""

        sent = threading.Event()

        def beats() -> Iterator[Message]:
            yield wire.message("Heartbeat")(period=30)
            yield wire.message("Heartbeat")(period=30)
            sent.set()
            threading.Event().wait(PATIENCE)

        threading.Thread(target=self.quietly, args=("SendHeartbeat", beats()), daemon=True).start()
        assert sent.wait(PATIENCE), "no heartbeat was sent"

    def wait(self, step: int = 0, timeout: float = PATIENCE, **fields: Any) -> Message:
        """Waits for a command."""
        return self.call("WaitCMD", metadata(step, **fields), timeout=timeout)

    def wait_later(self, step: int = 0, **fields: Any) -> Any:
        """Begins to wait for a command: the call as a future, whose result are bytes."""
        call = self._channel.unary_unary(wire.method("WaitCMD"))
        future = call.future(metadata(step, **fields).SerializeToString(), timeout=PATIENCE, metadata=self._headers)
        self._waiting.append(future)  # a call that nobody holds on to is cancelled
        return future


Key = tuple[str, int, bool]
"""Name, slot, whether of the step before."""


@dataclass
class Script:
    """What a training of a test does.

    Attributes:
        graphs: what it sends first.
        values: the tensors after a step (-1: before the first), by name as they are asked for (the last component
            for those with ``truncate``), slot and "previous"; what is not there is missing.
        hits: the hits at the end of a step, given the watchpoints (by id) that the client knows.
        steps: it is done after so many.
        hello: fields of its handshake.
        fields: fields of ``Metadata`` when it waits.
        own: it is a client of ours: counts its steps.
        cause: what ends it before its time, which only ours say.
    """

    graphs: Sequence[bytes] = (graph_bytes(14),)
    values: Callable[[int], Mapping[Key, np.ndarray[Any, Any]]] = lambda _step: {}
    hits: Callable[[int, Mapping[int, Message]], Sequence[Message]] = lambda _step, _watched: ()
    steps: int | None = None
    hello: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    own: bool = False
    cause: str = ""


class ScriptedTraining:
    """Trains in a thread, until its script, the debugger or a broken connection ends it.

    Attributes:
        step: the last step that it has run, -1 before the first.
        watched: the watchpoints that it knows (``SetCMD`` by id).
        replies: every reply to ``WaitCMD``.
        exited: it was told to end.
        error: what ended it otherwise.
    """

    def __init__(self, address: str, script: Script | None = None, **options: Any) -> None:
        self.script = script or Script()
        self.client = ScriptedClient(address, **options)
        self.step = -1
        self.watched: dict[int, Message] = {}
        self.replies: list[Message] = []
        self.exited = False
        self.error: Exception | None = None
        self.ended = threading.Event()
        threading.Thread(target=self._main, daemon=True).start()

    def kill(self) -> None:
        """Ends it in the middle of whatever it does."""
        self.client.close()

    def join(self) -> None:
        """Waits for its end."""
        assert self.ended.wait(PATIENCE), "the scripted training does not end"

    def _main(self) -> None:
        try:
            self._train()
        except Exception as error:  # noqa: BLE001 - a closed channel raises ValueError, a broken one RpcError
            self.error = error
        finally:
            self.ended.set()
            self.client.close()

    def _train(self) -> None:
        self.client.hello(graphs=len(self.script.graphs), **self.script.hello)
        self.client.graph(*self.script.graphs)
        while self._obey():
            self.step += 1
            if hits := self.script.hits(self.step, self.watched):
                self.client.call("SendWatchpointHits", *hits)
            if self.script.steps is not None and self.step + 1 >= self.script.steps:
                break
        if not self.exited:
            last = metadata(training_done=True)
            if self.script.own:
                last.step, last.cause = self.step, self.script.cause.encode()
            self.client.call("SendMetadata", last)

    def _obey(self) -> bool:
        """Follows commands until it may go on; False when it has to end."""
        while True:
            fields = {**self.script.fields, **({"step": self.step} if self.script.own else {})}
            if self.script.own:
                waiting = metadata(**{name: value for name, value in fields.items() if name != "step"})
                waiting.step = self.step
            else:
                waiting = metadata(max(0, self.step), **fields)
            reply = self.client.call("WaitCMD", waiting, timeout=120.0)
            self.replies.append(reply)
            if reply.exit:
                self.exited = True
                return False
            if reply.HasField("set_cmd"):
                self._set(reply.set_cmd)
            elif reply.HasField("view_cmd"):
                self._show(reply.view_cmd)
            elif reply.run_cmd.run_level == wire.LEVEL_RECHECK:
                if hits := self.script.hits(self.step, self.watched):
                    self.client.call("SendWatchpointHits", *hits)
            elif reply.HasField("run_cmd"):
                return True

    def _set(self, command: Message) -> None:
        if command.delete:
            self.watched.pop(command.id, None)
        else:
            self.watched[command.id] = command

    def _show(self, command: Message) -> None:
        values = self.script.values(self.step)
        asked = [
            (_looked_up(tensor), tensor, values.get((_looked_up(tensor), int(tensor.slot), tensor.iter == b"prev")))
            for tensor in command.tensors
        ]
        if command.level == wire.VALUE:
            self.client.stream(
                "SendTensors",
                (
                    message
                    for name, tensor, array in asked
                    for message in tensor_messages(
                        name, array, slot=int(tensor.slot), previous=tensor.iter == b"prev", truncate=tensor.truncate
                    )
                ),
            )
        elif command.level == wire.STATISTICS:
            self.client.call("SendTensorStats", *(_summary(array) for _, _, array in asked))
        else:
            self.client.call("SendTensorBase", *(_base(array) for _, _, array in asked))


def _looked_up(tensor: Message) -> str:
    name: str = tensor.node_name.decode()
    return name.rpartition("/")[2] if tensor.truncate else name


def _base(array: np.ndarray[Any, Any] | None) -> Message:
    new = wire.message("TensorBase")
    if array is None:
        return new(shape=[0])
    return new(data_type=_TYPES[str(array.dtype)], shape=array.shape, data_size=array.nbytes)


def _summary(array: np.ndarray[Any, Any] | None) -> Message:
    summary = wire.message("TensorSummary")(tensor_base=_base(array))
    statistics = summary.statistics
    if array is None or not array.size:
        statistics.max_value, statistics.min_value = float("-inf"), float("inf")
        return summary
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    statistics.count = array.size
    statistics.nan_count = int(np.isnan(numbers).sum())
    statistics.pos_inf_count = int(np.isposinf(numbers).sum())
    statistics.neg_inf_count = int(np.isneginf(numbers).sum())
    statistics.zero_count = int((numbers == 0).sum())
    statistics.neg_zero_count = int((finite < 0).sum())
    statistics.pos_zero_count = int((finite > 0).sum())
    if finite.size:
        statistics.max_value, statistics.min_value = float(finite.max()), float(finite.min())
        statistics.avg_value = float(finite.mean())
    return summary
