"""The calls of ``debugger.EventListener``: reads messages within limits, and passes them on.

Calls whose messages stop coming are ended: each holds a thread. Every call is taken as a stream of raw messages, also
those with one message (it is the same on the wire): so the wait for the first message has a limit, and nothing is read
before the caller was let in.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc

from tui_debugger.live import wire
from tui_debugger.live.server.answers import AnswerTooLargeError, GraphAssembly, hit_of
from tui_debugger.live.server.conversation import Exit, Level, RunStep, TrainingReport, encode, reply
from tui_debugger.live.server.identity import (
    Admission,
    Caller,
    MemoryLimit,
    ServerLimits,
    cut_and_clean,
    handshake_of,
    notes_of,
    unrecorded_of,
)
from tui_debugger.live.server.training import Registry, RemoteTraining
from tui_debugger.live.wire import ReceivedHit, text_of


class IdleCalls:
    """All calls that read, and how long they may wait for a message."""

    def __init__(self, idle: float, clock: Callable[[], float]) -> None:
        self._idle, self.clock = idle, clock
        self._lock = threading.Lock()
        self._heard: dict[Any, float] = {}
        """The time of the last message, by the context of a call."""

    def heard(self, context: Any) -> None:
        with self._lock:
            self._heard[context] = self.clock()

    def leave(self, context: Any) -> None:
        with self._lock:
            self._heard.pop(context, None)

    def tick(self) -> None:
        now = self.clock()
        with self._lock:
            late = [context for context, heard in self._heard.items() if now - heard > self._idle]
        for context in late:
            context.cancel()


_SOON: Final = 0.05
"""A broken connection shows the end of the stream first, and the break a moment later."""


def _nothing() -> None:
    """Does nothing."""


def _was_cancelled(context: Any) -> bool:
    """Tells by internals of gRPC whether a finished call was cut before its reply; else heartbeats tell it later."""
    return getattr(getattr(context, "_state", None), "client", None) == "cancelled"


class MalformedError(Exception):
    """Bytes that are no message."""


class ClientCall:
    """One call: its caller, and its messages."""

    def __init__(self, name: str, messages: Iterator[bytes], context: Any, patience: IdleCalls) -> None:
        self.name, self.context = name, context
        self.connection = 0
        self.began = patience.clock()
        shown = {entry.key: entry.value for entry in context.invocation_metadata() or ()}
        self.token: str | bytes | None = shown.get(wire.TOKEN_HEADER)
        session = shown.get(wire.SESSION_HEADER, "")
        self.caller = Caller(context.peer(), cut_and_clean(session if isinstance(session, str) else text_of(session)))
        self._messages, self._patience = messages, patience
        self._broken = threading.Event()
        self._on_break: Callable[[], None] = _nothing
        self._done = False
        if not context.add_callback(self._over):
            self._broken.set()
        self._class = wire.message((wire.UNARY | wire.STREAMS)[name])

    def raw(self) -> Generator[bytes, None, None]:
        """The messages of the call as bytes; also ends when the connection breaks, see ``is_whole``."""
        # No context manager that is a generator: where this one is closed, those of Python 3.10 leave the exception and
        # its frames in a circle, the call within it, and gRPC counts the call as open until garbage is collected.
        self._patience.heard(self.context)
        try:
            # gRPC raises whatever it likes when a connection ends in the middle of a stream.
            with contextlib.suppress(Exception):
                for message in self._messages:
                    self._patience.heard(self.context)
                    yield message
        finally:
            self._patience.leave(self.context)

    def messages(self) -> Iterator[tuple[Any, int]]:
        for raw in self.raw():
            yield self._parse(raw), len(raw)

    def only(self) -> Any:
        """The message of a call with one message; an empty message when the connection broke."""
        with contextlib.closing(self.raw()) as messages:
            return self._parse(next(messages, b""))

    def is_whole(self, *, doubtful: bool = False) -> bool:
        """Tells whether the connection still stands; ``doubtful``: wait a moment for the news of a break."""
        if doubtful:
            self._broken.wait(_SOON)
        return not self._broken.is_set() and bool(self.context.is_active())

    def when_it_breaks(self, do: Callable[[], None]) -> None:
        """Calls ``do`` when the connection breaks before the reply is out, as far as gRPC tells."""
        self._on_break = do

    def replied(self, reply: bytes) -> bytes:
        self._done = True
        return reply

    def abort(self, code: Any, why: str) -> NoReturn:
        self.context.abort(code, cut_and_clean(why))
        raise AssertionError  # abort raises

    def _over(self) -> None:
        if not self._done:
            self._broken.set()
        elif _was_cancelled(self.context):
            self._on_break()

    def _parse(self, raw: bytes) -> Any:
        try:
            return self._class.FromString(raw)
        except Exception:  # noqa: BLE001 - which class protobuf raises depends on its version
            raise MalformedError from None


UNIX = "unix:"


def is_private(host: str) -> bool:
    """Tells whether only this machine can reach an address: loopback, or a Unix socket."""
    if host.startswith(UNIX) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets calls in."""

    token: str | None  # our own clients must show it; None: there is none
    private: bool  # only this machine can reach the server
    allow_unauthenticated: bool  # also lets in clients without token (MindSpore's) from other machines

    def refusal(self, shown: str | bytes | None) -> str:
        """The reason to turn a call away, or empty. A wrong token is never let in."""
        if shown is None:
            if self.private or self.allow_unauthenticated:
                return ""
            return "it shows no token; MindSpore's client cannot, and is let in with --allow-unauthenticated only"
        if self.token is None:
            return ""
        given = shown.encode() if isinstance(shown, str) else shown
        return "" if hmac.compare_digest(given, self.token.encode()) else "it shows a wrong token"

    def own_refusal(self, shown: str | bytes | None) -> str:
        """Like ``refusal`` for our own client, which must show a token."""
        if shown is None and self.token is not None and not self.private:
            return "it shows no token: set TDBG_TOKEN where it runs"
        return self.refusal(shown)


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
_FAILED: Final = reply(status=wire.FAILED)
_OK: Final = b""
"""OK takes no bytes, as in MindSpore's own replies."""


class Service:
    """Answers the calls."""

    def __init__(
        self, registry: Registry, gate: Gate, limits: ServerLimits, memory: MemoryLimit, patience: IdleCalls
    ) -> None:
        self._registry, self._gate = registry, gate
        self._limits, self._memory, self._patience = limits, memory, patience
        self.closing = False

    def handlers(self) -> Any:
        methods = {name: grpc.stream_unary_rpc_method_handler(self._answer(name)) for name in wire.UNARY | wire.STREAMS}
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    def _answer(self, name: str) -> Callable[[Iterator[bytes], Any], bytes]:
        handle: Callable[[ClientCall], bytes] = {
            "WaitCMD": self._wait,
            "SendMetadata": self._metadata,
            "SendHeartbeat": self._heartbeat,
        }.get(name, self._stream)

        def answer(messages: Iterator[bytes], context: Any) -> bytes:
            call = ClientCall(name, messages, context, self._patience)
            self._admit(call)
            try:
                return call.replied(handle(call))
            except MalformedError:
                self._registry.strike(call.caller, "its messages are none of this protocol")
                call.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a message of this protocol")

        return answer

    def _admit(self, call: ClientCall) -> None:
        if self.closing:
            call.abort(grpc.StatusCode.UNAVAILABLE, "the debugger is closing")
        self._let_in(call, self._gate.refusal(call.token))
        if self._registry.is_cut_off(call.caller):
            call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "cut off: too many broken rules")

    def _let_in(self, call: ClientCall, refusal: str) -> None:
        if refusal:
            self._registry.refuse(call.caller.host, refusal)
            call.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)

    # Calls with one message ----------------------------------------------------------------------------------------

    def _metadata(self, call: ClientCall) -> bytes:
        message = call.only()
        if message.training_done:
            if training := self._registry.find(call.caller):
                training.lacks(unrecorded_of(message))
                training.notes.add(notes_of(message))
                training.finish(_step_of(training, message), cut_and_clean(text_of(message.cause)))
            return _OK
        handshake = handshake_of(message)
        if handshake.own:
            self._let_in(call, self._gate.own_refusal(call.token))
        if handshake.judged.admission is Admission.TOO_OLD:
            self._registry.turn_away(call.caller, handshake)
            return reply(version_matched=False)  # omitting it would read as a server of 1.0
        if refusal := self._registry.refuses(call.caller, handshake):
            self._turn_away(call, refusal)
        if self._registry.greet(call.caller, handshake) is None:
            self._registry.strike(call.caller, "too many handshakes")
            call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many trainings, or too many handshakes")
        return reply(version_matched=handshake.judged.admission is Admission.ADMITTED)

    def _heartbeat(self, call: ClientCall) -> bytes:
        """One heartbeat, or a line of many that a client holds open: when that breaks, its process is gone."""
        training = self._registry.find(call.caller)
        if training:
            call.connection = training.connection
        beats = 0
        for message, _ in call.messages():
            beats += 1
            if beats > _BEATS + _BEATS_A_SECOND * (self._patience.clock() - call.began):
                self._cut(call, "its heartbeats do not end")
            if training:
                training.beat(int(message.period))
            else:
                self._registry.early_beat(call.caller, int(message.period))
        if training and beats > 1:
            self._ended(call, training, doubtful=True)
        return _FAILED if training is None and call.caller.session else _OK

    def _wait(self, call: ClientCall) -> bytes:
        message = call.only()
        if not call.is_whole():
            return _FAILED
        training = self._registry.find(call.caller)
        if training is None:
            if self._registry.is_turned_away(call.caller):
                return encode(Exit())
            if call.caller.session or message.client:
                return _FAILED
            device = cut_and_clean(text_of(message.device_name)).partition(":")[0]
            training = self._registry.adopt(call.caller, device)
        if training is None:
            self._registry.refuse(
                call.caller.address,
                "it began before this debugger was started, and goes on by itself; start it again to debug it",
            )
            return encode(RunStep())
        if not training.has_graphs() and not training.counted:
            self._registry.refuse(
                call.caller.address, "it has shown no tensor yet, and goes on by itself until it does"
            )
            return encode(RunStep())
        if refusal := self._registry.admit(training):  # fewer graphs came than announced
            self._turn_away(call, refusal)
        self._follow(call, training)
        training.lacks(unrecorded_of(message))
        training.notes.add(notes_of(message))
        report = TrainingReport(_step_of(training, message), text_of(message.cur_node), _root_of(training, message))
        command = training.wait(report, call.context.add_callback)
        if command is None:
            call.abort(grpc.StatusCode.CANCELLED, "another call waits in place of this one")
        return command

    def _turn_away(self, call: ClientCall, why: str) -> NoReturn:
        """Refuses a training of another run, which goes on by itself."""
        self._registry.refuse(call.caller.address, f"{why}, and goes on by itself; --port gives it a listener")
        call.abort(grpc.StatusCode.ALREADY_EXISTS, why)

    # Streams -------------------------------------------------------------------------------------------------------

    def _stream(self, call: ClientCall) -> bytes:
        """Takes the messages of a training; those of unknown callers are read up to a limit and dropped."""
        training = self._registry.find(call.caller)
        if training is None:
            self._drain(call)
            return _FAILED if call.caller.session else _OK
        self._follow(call, training)
        training.heard()
        if call.name in _LEVELS:
            self._views(call, training)
        elif call.name == "SendWatchpointHits":
            self._hits(call, training)
        else:
            self._graphs(call, training)
        return _OK

    def _follow(self, call: ClientCall, training: RemoteTraining) -> None:
        """Marks the training as lost when this call breaks."""
        connection = call.connection = training.connection
        call.when_it_breaks(lambda: training.lose(connection))

    def _drain(self, call: ClientCall) -> None:
        size = 0
        for raw in call.raw():
            size += len(raw) or 64
            if size > self._limits.stray_bytes:
                self._cut(call, "it sends data that was not asked for")

    def _cut(self, call: ClientCall, why: str) -> NoReturn:
        self._registry.refuse(call.caller.address, why, self._registry.find(call.caller))
        self._registry.strike(call.caller, why)
        call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)

    def _ended(self, call: ClientCall, training: RemoteTraining, *, doubtful: bool = False) -> bool:
        """Tells whether a stream ended well; ``doubtful`` when it matters to know before going on."""
        if call.is_whole(doubtful=doubtful):
            return True
        training.lose(call.connection)
        return False

    def _graphs(self, call: ClientCall, training: RemoteTraining) -> None:
        assembly = GraphAssembly(self._memory, self._limits.graph_bytes)
        try:
            for message, _ in call.messages():
                training.heard()
                assembly.take(message.buffer, bool(message.finished) and call.name == "SendMultiGraphs")
            if self._ended(call, training, doubtful=True):
                graphs, size = assembly.end()
                shown = [1] if training.counted else [_nodes(graph) for graph in graphs]
                if -1 in shown or not any(shown):
                    self._memory.give(size)
                    if any(shown):
                        raise MalformedError
                elif training.take_graphs(graphs, size) and (refusal := self._registry.admit(training)):
                    self._turn_away(call, refusal)
        except AnswerTooLargeError as error:
            assembly.drop()
            self._cut(call, str(error))
        finally:
            assembly.drop()

    def _hits(self, call: ClientCall, training: RemoteTraining) -> None:
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

    def _views(self, call: ClientCall, training: RemoteTraining) -> None:
        asked = training.view(_LEVELS[call.name])
        if asked is None:
            self._drain(call)
            return
        question, answer = asked
        for message, size in call.messages():
            training.heard()
            answer.take(message, size)
            if answer.stray > self._limits.stray_bytes:
                self._cut(call, "it sends data that was not asked for")
        if self._ended(call, training, doubtful=not answer.complete):
            training.viewed(question)


def _nodes(data: bytes) -> int:
    """The number of nodes and parameters of a graph, -1 when it is none; our client may send an empty graph first."""
    try:
        graph = wire.message("GraphProto").FromString(data)
    except Exception:  # noqa: BLE001 - which class protobuf raises depends on its version
        return -1
    return len(graph.node) + len(graph.parameters)


def _root_of(training: RemoteTraining, message: Any) -> int | None:
    """The root graph that a client of MindSpore names behind the device in a ``Metadata``; None from ours."""
    number = text_of(message.device_name).partition(":")[2]
    known = not training.handshake.own and number.isdecimal() and len(number) < 10
    return int(number) if known else None


def _step_of(training: RemoteTraining, message: Any) -> int | None:
    """The step of a ``Metadata``; None from clients that cannot be trusted to count."""
    return int(message.step) if training.handshake.own and message.HasField("step") else None
