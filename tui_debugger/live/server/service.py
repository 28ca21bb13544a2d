"""The calls of ``debugger.EventListener``: reads what comes, within limits, and passes it on.

Every call is taken as a stream of raw messages, also those with one message (it is the same on the wire): so the first
message of any call can be waited for with an end, and nothing is read before the caller was let in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import grpc

from tui_debugger.live import wire
from tui_debugger.live.server.admission import Gate
from tui_debugger.live.server.call import Call, MalformedError
from tui_debugger.live.server.commands import Exit, Level, RunStep, encode, matched, status
from tui_debugger.live.server.exchange import Report
from tui_debugger.live.server.graphs import GraphAssembly, TooLargeError
from tui_debugger.live.server.hits import hit_of
from tui_debugger.live.server.identity import clean, hello_of, text
from tui_debugger.live.server.limits import Limits, Memory
from tui_debugger.live.server.patience import Patience
from tui_debugger.live.server.registry import Registry
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.server.unrecorded import unrecorded_of
from tui_debugger.live.server.versions import Admission
from tui_debugger.live.types import ReceivedHit

_HIT_COST: Final = 8
"""A hit in memory against its bytes on the wire, about."""

_BEATS: Final = 100
_BEATS_A_SECOND: Final = 10
"""Heartbeats of one call: more are a flood."""

_LEVELS: Final = {
    "SendTensors": Level.VALUE,
    "SendTensorStats": Level.STATISTICS,
    "SendTensorBase": Level.BASE,
}
_FAILED: Final = status(wire.FAILED)
_OK: Final = status(wire.OK)


class Service:
    """Answers the calls."""

    def __init__(self, registry: Registry, gate: Gate, limits: Limits, memory: Memory, patience: Patience) -> None:
        """The calls of one server."""
        self._registry, self._gate = registry, gate
        self._limits, self._memory, self._patience = limits, memory, patience
        self.closing = False

    def handlers(self) -> Any:
        """What gRPC is given."""
        methods = {name: grpc.stream_unary_rpc_method_handler(self._answer(name)) for name in wire.UNARY | wire.STREAMS}
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    def _answer(self, name: str) -> Callable[[Iterator[bytes], Any], bytes]:
        handle: Callable[[Call], bytes] = {
            "WaitCMD": self._wait,
            "SendMetadata": self._metadata,
            "SendHeartbeat": self._heartbeat,
            "SendGraph": self._graphs,
            "SendMultiGraphs": self._graphs,
            "SendWatchpointHits": self._hits,
        }.get(name, self._views)

        def answer(messages: Iterator[bytes], context: Any) -> bytes:
            call = Call(name, messages, context, self._patience)
            self._admit(call)
            try:
                return call.replied(handle(call))
            except MalformedError:
                self._registry.strike(call.caller, "its messages are none of this protocol")
                call.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a message of this protocol")

        return answer

    def _admit(self, call: Call) -> None:
        if self.closing:
            call.abort(grpc.StatusCode.UNAVAILABLE, "the debugger is closing")
        refusal = self._gate.refusal(call.token)
        if refusal:
            self._registry.refuse(call.caller.host, refusal)
            call.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        if self._registry.is_cut_off(call.caller):
            call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "cut off: too many broken rules")

    # Calls with one message ----------------------------------------------------------------------------------------

    def _metadata(self, call: Call) -> bytes:
        message = call.only()
        if message.training_done:
            if training := self._registry.find(call.caller):
                training.lacks(unrecorded_of(message))
                training.finish(_step_of(training, message))
            return _OK
        hello = hello_of(message)
        if hello.own and (refusal := self._gate.own_refusal(call.token)):
            self._registry.refuse(call.caller.host, refusal)
            call.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)
        if hello.judged.admission is Admission.TOO_OLD:
            self._registry.turn_away(call.caller, hello)
            return matched(False)
        if self._registry.greet(call.caller, hello) is None:
            self._registry.strike(call.caller, "too many handshakes")
            call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many trainings, or too many handshakes")
        return matched(hello.judged.admission is Admission.ADMITTED)

    def _heartbeat(self, call: Call) -> bytes:
        """One heartbeat, or a line of many that a client holds open: when that breaks, its process is gone."""
        training = self._registry.find(call.caller)
        if training:
            call.connection = training.connection
        beats = 0
        for message, _ in call.messages():
            beats += 1
            if beats > _BEATS + _BEATS_A_SECOND * self._patience.since(call.began):
                self._cut(call, "its heartbeats do not end")
            if training:
                training.beat(int(message.period))
            else:
                self._registry.early_beat(call.caller, int(message.period))
        if training and beats > 1:
            self._ended(call, training, doubtful=True)
        return _FAILED if training is None and call.caller.session else _OK

    def _wait(self, call: Call) -> bytes:
        message = call.only()
        if not call.is_whole():
            return _FAILED
        training = self._registry.find(call.caller)
        if training is None:
            if self._registry.is_turned_away(call.caller):
                return encode(Exit())
            if call.caller.session or message.client:
                return _FAILED
            device = clean(text(message.device_name)).partition(":")[0]
            training = self._registry.adopt(call.caller, device)
        if training is None:
            self._registry.refuse(
                call.caller.address,
                "it began before this debugger was started, and goes on by itself; start it again to debug it",
            )
            return encode(RunStep())
        self._follow(call, training)
        training.lacks(unrecorded_of(message))
        report = Report(_step_of(training, message), text(message.cur_node))
        reply = training.wait(report, call.context.add_callback)
        if reply is None:
            call.abort(grpc.StatusCode.CANCELLED, "another call waits in place of this one")
        return reply

    # Streams -------------------------------------------------------------------------------------------------------

    def _known(self, call: Call) -> RemoteTraining | None:
        """The training that sends; what others send is read to a bounded end and dropped."""
        training = self._registry.find(call.caller)
        if training is None:
            self._drain(call)
        else:
            self._follow(call, training)
            training.heard()
        return training

    def _follow(self, call: Call, training: RemoteTraining) -> None:
        """When this call breaks, the training is lost."""
        connection = call.connection = training.connection
        call.when_it_breaks(lambda: training.lose(connection))

    def _drain(self, call: Call) -> None:
        size = 0
        for raw in call.raw():
            size += len(raw) or 64
            if size > self._limits.stray_bytes:
                self._cut(call, "it sends what nobody asked for")

    def _cut(self, call: Call, why: str) -> NoReturn:
        self._registry.refuse(call.caller.address, why, self._registry.find(call.caller))
        self._registry.strike(call.caller, why)
        call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    def _ended(self, call: Call, training: RemoteTraining, *, doubtful: bool = False) -> bool:
        """Whether a stream ended well; ``doubtful`` when it matters to know before going on."""
        if call.is_whole(doubtful=doubtful):
            return True
        training.lose(call.connection)
        return False

    def _graphs(self, call: Call) -> bytes:
        training = self._known(call)
        if training is None:
            return _FAILED if call.caller.session else _OK
        assembly = GraphAssembly(self._memory, self._limits.graph_bytes)
        try:
            for message, _ in call.messages():
                training.heard()
                assembly.take(message.buffer, bool(message.finished) and call.name == "SendMultiGraphs")
            if self._ended(call, training, doubtful=True):
                training.take_graphs(*assembly.end())
        except TooLargeError as error:
            assembly.drop()
            self._cut(call, str(error))
        finally:
            assembly.drop()
        return _OK

    def _hits(self, call: Call) -> bytes:
        training = self._known(call)
        if training is None:
            return _FAILED if call.caller.session else _OK
        hits: list[ReceivedHit] = []
        taken = left_out = 0
        kept = False
        try:
            for message, size in call.messages():
                training.heard()
                hit = hit_of(message)
                if hit is None:
                    continue
                if len(hits) < self._limits.hits and self._memory.take(_HIT_COST * size):
                    taken += _HIT_COST * size
                    hits.append(hit)
                else:
                    left_out += 1
                    if left_out > 10 * self._limits.hits:
                        self._cut(call, "its hits do not end")
            if self._ended(call, training):
                kept = True
                training.take_hits(hits, taken, left_out)
        finally:
            if not kept:
                self._memory.give(taken)
        return _OK

    def _views(self, call: Call) -> bytes:
        training = self._known(call)
        if training is None:
            return _FAILED if call.caller.session else _OK
        asked = training.view(_LEVELS[call.name])
        if asked is None:
            self._drain(call)
            return _OK
        question, answer = asked
        for message, size in call.messages():
            training.heard()
            answer.take(message, size)
            if answer.stray > self._limits.stray_bytes:
                self._cut(call, "it sends what nobody asked for")
        if self._ended(call, training, doubtful=not answer.complete):
            training.viewed(question)
        return _OK


def _step_of(training: RemoteTraining, message: Any) -> int | None:
    """The step of a ``Metadata``; None from clients that cannot be trusted to count."""
    return int(message.step) if training.hello.own and message.HasField("step") else None
