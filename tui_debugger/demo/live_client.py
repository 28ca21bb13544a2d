"""Plays the recorded training against a server: the client's side of the protocol, as MindSpore 2.0.0 speaks it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np

from tui_debugger.demo.recording import Recording
from tui_debugger.live import wire
from tui_debugger.live.client import messages
from tui_debugger.live.client.judging import Judge, watched
from tui_debugger.live.client.measure import measure, meta_of
from tui_debugger.live.client.probe import ClientHit, ClientValue
from tui_debugger.live.wire import START, RemoteTensor, RemoteWatchpoint
from tui_debugger.stats.records import RequiredStats

BEAT: Final = 5.0
"""Seconds between signs of life."""
_EXACT: Final = ("minimum", "maximum", "mean", "abs_mean", "variance", "sum_squares")
"""Statistics that MindSpore's client does not know."""


class RecordedTraining:
    """A training that does what it did when it was recorded, in a daemon thread of its own."""

    def __init__(
        self, recording: Recording, address: str, *, pace: float = 0.0, missing: Callable[[str], None] | None = None
    ) -> None:
        """Nothing happens before ``start``.

        Args:
            recording: what is known.
            address: of the server, as gRPC takes it.
            pace: seconds that a step takes.
            missing: told of what was asked for and is not in the recording; called in the thread.
        """
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
        self._judge = Judge()
        self._step = START

    def start(self) -> None:
        """Connects."""
        import grpc

        self._channel = grpc.insecure_channel(self._address)
        for thread in self._threads:
            thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Ends the training wherever it is. Idempotent."""
        self._stop.set()
        if self._channel is not None:
            self._channel.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout)

    # -- the wire ------------------------------------------------------------------------------------

    def _send(self, name: str, message: Any) -> Any:
        """One message, or a stream of them; the server's answer."""
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
        """Who and where: the step counts from 0, and the first stop after a step is again at 0."""
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
        """One step, or another look at this one; False at the end of the recording."""
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
        """What the watchpoints find after a step, by execution order."""
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
                continue  # MindSpore says nothing of a tensor without elements
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
