"""The recorded session of a real MindSpore 2.0.0 client, and the demo dump's values of the same training.

The session was recorded at the client's socket: its metadata and graph are bytes on the wire. The dump in the package
is of the same training, bit for bit, so that every tensor can be shown, not only those requested in the recording.
"""

from __future__ import annotations

import base64
import json
import lzma
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.demo import demo_dump
from tui_debugger.graph.build import build_table
from tui_debugger.graph.messages import parse_graph
from tui_debugger.graph.table import CONSTANT, PARAMETER, NodeTable, real_consumers
from tui_debugger.live import wire
from tui_debugger.live.client import messages
from tui_debugger.live.client.judging import ClientJudge, watched
from tui_debugger.live.client.probe import ClientHit, ClientValue
from tui_debugger.live.client.recorded import measure, meta_of
from tui_debugger.live.wire import START, RemoteTensor, RemoteWatchpoint
from tui_debugger.model import Side
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.stats.fields import SENT
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.records import RequiredStats

if TYPE_CHECKING:
    from tui_debugger.session.live import LiveSession


SESSION: Final = Path(__file__).with_name("mindspore-2.0-nan-live.jsonl.xz")
"""One line a message, as on the wire: number of the call, its name, part, base64."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the client."""

    call: int
    rpc: str
    message: Any


def recorded(path: Path = SESSION) -> Iterator[SentMessage]:
    kinds = {**wire.UNARY, **wire.STREAMS}
    with lzma.open(path, "rt", encoding="ascii") as file:
        for line in file:
            row = json.loads(line)
            if row["kind"] in {"request", "stream"}:
                message = wire.message(kinds[row["rpc"]])()
                message.ParseFromString(base64.b64decode(row["raw"]))
                yield SentMessage(row["call"], row["rpc"], message)


class SavedTraining:
    """The training as it was: graph, and the values of every step from the open demo dump, which the caller closes."""

    def __init__(self, dump: Source) -> None:
        self._dump = dump
        sent = list(recorded())
        self.metadata = next(each.message for each in sent if each.rpc == "SendMetadata")
        self.chunks = tuple(each.message for each in sent if each.rpc == "SendGraph")

    @cached_property
    def table(self) -> NodeTable:
        """The nodes by the names that the client uses."""
        return build_table([parse_graph(b"".join(chunk.buffer for chunk in self.chunks))])

    @property
    def steps(self) -> int:
        return len(self._dump.steps(0))

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters, the only nodes with a previous value at the client."""
        return frozenset(self.table.names[row] for row in range(len(self.table)) if _is(self.table, row, PARAMETER))

    def value(self, node: str, slot: int, step: int) -> Array | None:
        """Returns an output after a step (``START``: a parameter before the first step); None where unknown."""
        row = self._rows.get(node)
        if row is None or step >= self.steps:
            return None
        if step <= START:
            return self._initial(row) if step == START and node in self.parameters else None
        table = self._dump.tensors(0, step)
        return self._read(step, table.find(row, Side.OUTPUT, slot))

    @cached_property
    def run_order(self) -> Sequence[int]:
        """Rows in the order of MindSpore's client: parameters, then operators as they ran."""
        order = self._dump.nodes(0).order
        ran = {name: int(order[row]) for name, row in self._rows.items() if name not in self.parameters}
        return sorted(range(len(self.table)), key=lambda row: ran.get(self.table.names[row], -1))

    def _initial(self, row: int) -> Array | None:
        """Returns a parameter as its first reader read it in the first step."""
        table = self._dump.tensors(0, 0)
        readers = real_consumers(self._dump.nodes(0), row)
        found = [index for reader, at in readers if (index := table.find(reader, Side.INPUT, at)) >= 0]
        first = min(found, key=lambda index: int(table.order[index]), default=-1)
        return self._read(0, first)

    def _read(self, step: int, index: int) -> Array | None:
        table = self._dump.tensors(0, step)
        if index < 0 or int(table.flags[index]) & TensorFlag.STAT_ONLY:
            return None
        return open_array(table.spec(index))

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Rows of the dump by the client's names: the compiler numbered the operators anew, in the same order."""
        dump = self._dump.nodes(0)
        ours = [row for row in range(len(self.table)) if _is_operator(self.table, row)]
        theirs = [row for row in range(len(dump)) if _is_operator(dump, row)]
        rows = {self.table.names[mine]: row for mine, row in zip(ours, theirs, strict=True)}
        return rows | {name: dump.find(name) for name in self.parameters}


def _is(table: NodeTable, row: int, kind: str) -> bool:
    return table.op_type(row) == kind


def _is_operator(table: NodeTable, row: int) -> bool:
    return not _is(table, row, PARAMETER) and not _is(table, row, CONSTANT)


BEAT: Final = 5.0
"""Seconds between heartbeats."""
_EXACT: Final = tuple(sent.name for _, sent in SENT if sent.ours)
"""Statistics that MindSpore's client does not know."""


class RecordedTraining:
    """A training that replays the recording, in daemon threads.

    A step takes ``pace`` seconds. ``missing`` is told of requests that the recording cannot answer, in the thread.
    """

    def __init__(
        self, recording: SavedTraining, address: str, *, pace: float = 0.0, missing: Callable[[str], None] | None = None
    ) -> None:
        self._recording = recording
        self._address = address
        self._pace = pace
        self._missing = missing or (lambda _: None)
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"tdbg-demo-{name}", daemon=True)
            for name, target in (("training", self._run), ("alive", self._beat))
        ]
        self._channel: Any = None
        self._watchpoints: dict[int, RemoteWatchpoint] = {}
        self._judge = ClientJudge()
        self._step = START

    def start(self) -> None:
        import grpc

        self._channel = grpc.insecure_channel(self._address)
        for thread in self._threads:
            thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Ends the training. Idempotent."""
        self._stop.set()
        if self._channel is not None:
            self._channel.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout)

    # -- the wire ------------------------------------------------------------------------------------

    def _send(self, name: str, message: Any) -> Any:
        """Sends one message, or a stream of messages; returns the server's answer."""
        unary = name in wire.UNARY
        sent = wire.message(wire.UNARY[name] if unary else wire.STREAMS[name])
        kind = self._channel.unary_unary if unary else self._channel.stream_unary
        call = kind(wire.method(name), sent.SerializeToString, wire.message("EventReply").FromString)
        return call(message)

    def _beat(self) -> None:
        import grpc

        with suppress(grpc.RpcError, ValueError):  # the server has gone, or the channel was closed
            while not self._stop.wait(BEAT):
                self._send("SendHeartbeat", messages.heartbeat())

    def _run(self) -> None:
        import grpc

        try:
            first = self._send("SendMetadata", self._recording.metadata)
            if first.version_matched:
                self._send("SendGraph", iter(self._recording.chunks))
                self._train()
        except (grpc.RpcError, ValueError):
            pass
        finally:
            self._stop.set()

    def _train(self) -> None:
        while not self._stop.is_set():
            reply = self._send("WaitCMD", self._metadata())
            if reply.status != wire.OK:
                self._stop.wait(0.2)
            elif reply.exit:
                return
            elif reply.HasField("set_cmd"):
                self._set(reply.set_cmd)
            elif reply.HasField("view_cmd"):
                self._show(reply.view_cmd)
            elif reply.HasField("run_cmd") and not self._go(reply.run_cmd):
                return

    def _metadata(self, **more: Any) -> Any:
        """Returns the state: the step counts from 0, and the first stop after a step is again at 0."""
        recorded = self._recording.metadata
        return wire.message("Metadata")(
            device_name=recorded.device_name, backend=recorded.backend, cur_step=max(self._step, 0), **more
        )

    # -- commands ------------------------------------------------------------------------------------

    def _set(self, command: Any) -> None:
        if command.delete:
            self._watchpoints.pop(command.id, None)
        else:
            self._watchpoints[command.id] = messages.watchpoint_of(command)
        self._judge = watched(self._watchpoints.values(), self._recording.table.names)

    def _go(self, command: Any) -> bool:
        """Plays one step, or rechecks the current one; False at the end of the recording."""
        if command.run_level != wire.LEVEL_RECHECK:
            self._stop.wait(self._pace)
            if self._step + 1 >= self._recording.steps:
                self._send("SendMetadata", self._metadata(training_done=True))
                return False
            self._step += 1
        found = list(messages.hit_messages(self.hits(self._step), self._watchpoints))
        if found:
            self._send("SendWatchpointHits", iter(found))
        return True

    def hits(self, step: int) -> Iterator[ClientHit]:
        recording, judge = self._recording, self._judge
        table = recording.table
        for row in recording.run_order:
            name = table.names[row]
            need = judge.need(name)
            if need is None:
                continue
            for slot in range(int(table.outputs[row])):
                value = recording.value(name, slot, step)
                if value is None:
                    continue
                before = recording.value(name, slot, step - 1) if name in recording.parameters else None
                record = measure(value, need, before)
                for result in judge.results(name, record, initial=step == START):
                    yield ClientHit(name, slot, result)

    # -- questions -----------------------------------------------------------------------------------

    def _show(self, view: Any) -> None:
        asked = messages.asked(view)
        if view.level == wire.VALUE:
            self._send("SendTensors", self._tensors(asked))
        elif view.level == wire.STATISTICS:
            self._send("SendTensorStats", iter([self._summary(each) for each in asked]))
        else:
            values = [self._value(each) for each in asked]
            self._send("SendTensorBase", iter([messages.base(None if v is None else meta_of(v)) for v in values]))

    def _tensors(self, asked: Iterable[RemoteTensor]) -> Iterator[Any]:
        for tensor in asked:
            value = self._value(tensor)
            if value is None:
                self._missing(f"not in the recording: {tensor.node}:{tensor.slot} {_when(tensor, self._step)}")
            elif not value.nbytes:
                continue  # MindSpore sends nothing for a tensor without elements
            yield from messages.tensor_messages(tensor, None if value is None else _sent(value))

    def _summary(self, tensor: RemoteTensor) -> Any:
        value = self._value(tensor)
        if value is None:
            return messages.summary(None)
        message = messages.summary((meta_of(value), measure(value, RequiredStats()).stats))
        for name in _EXACT:
            message.statistics.ClearField(name)
        return message

    def _value(self, tensor: RemoteTensor) -> Any:
        name = tensor.node.rpartition("/")[2] if tensor.truncate else tensor.node
        if tensor.previous and name not in self._recording.parameters:
            return None
        return self._recording.value(name, tensor.slot, self._step - tensor.previous)


def _sent(value: Any) -> ClientValue:
    meta = meta_of(value)
    return ClientValue(meta.dtype, meta.shape, iter([np.ascontiguousarray(value).tobytes()]))


def _when(tensor: RemoteTensor, step: int) -> str:
    return "before this step" if tensor.previous else "before the first step" if step == START else f"at step {step}"


PACE: Final = 0.4
"""Seconds for a step of the recorded training: long enough to see that it runs."""


@contextmanager
def playing(
    missing: Callable[[str], None],
    *,
    source_map: Sequence[tuple[str, str]] = (),
    pace: float = PACE,
) -> Iterator[tuple[LiveSession, RecordedTraining]]:
    """Yields a live session, and a training that has not been started; both end with the block.

    ``missing`` is called from the training's thread for requests that the recording cannot answer. TdbgError: the demo
    dump cannot be unpacked, or no port is free.
    """
    from tui_debugger.live.server import serve
    from tui_debugger.session.live import LiveSession
    from tui_debugger.sources.registry import open_source

    with ExitStack() as stack:
        source = open_source(demo_dump())
        stack.callback(source.close)
        trainings = serve(port=0)
        stack.callback(trainings.close)
        training = RecordedTraining(SavedTraining(source), trainings.address, pace=pace, missing=missing)
        stack.callback(training.close)
        session = LiveSession(trainings, source_map=source_map)
        stack.callback(session.close)  # resumes the training, which needs its thread
        yield session, training
