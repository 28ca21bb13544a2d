"""A small debugger for tests of the client: a real gRPC server that does what a test tells it to."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from typing_extensions import Self

from tests.patience import PATIENCE
from tui_debugger.live import wire

_HANDLERS = {"SendHeartbeat": "heartbeat", "SendMetadata": "metadata", "WaitCMD": "wait"}


def reply(**fields: Any) -> Any:
    """An ``EventReply``."""
    return wire.message("EventReply")(**fields)


def run(level: bytes = wire.LEVEL_STEP, node: bytes | None = None, ahead: int = 0, *, together: bool = False) -> Any:
    """Go on; ``ahead``: over so many steps more without asking; ``together``: later hits at the end of a step."""
    command = reply()
    command.run_cmd.run_level = level
    if node is None:
        command.run_cmd.run_steps, command.run_cmd.ahead, command.run_cmd.together = 1, ahead, together
    else:
        command.run_cmd.node_name = node
    return command


def watch(number: int, condition: int, nodes: list[str], **params: float) -> Any:
    """A watchpoint; every parameter that is not given is switched off, names first in the order given."""
    command = reply()
    command.set_cmd.id = number
    command.set_cmd.watch_condition.condition = condition
    for name, value in params.items():
        command.set_cmd.watch_condition.params.add(name=name.encode(), value=value, disabled=False)
    for node in nodes:
        command.set_cmd.watch_nodes.add(node_name=node.encode(), node_type=b"leaf", graph_name=b"kernel_graph_0")
    return command


def unwatch(number: int) -> Any:
    """Deletes a watchpoint."""
    command = reply()
    command.set_cmd.id = number
    command.set_cmd.delete = True
    return command


def view(level: int, *nodes: str, slot: bytes = b"0", previous: bool = False) -> Any:
    """Asks for tensors."""
    command = reply()
    command.view_cmd.level = level
    for node in nodes:
        command.view_cmd.tensors.add(node_name=node.encode(), slot=slot, iter=b"prev" if previous else b"")
    return command


class Debugger:
    """Takes every call down, and answers ``WaitCMD`` with what ``command`` is given.

    Attributes:
        calls: (name, message) of everything that came but heartbeats, in order; for streams (name, list).
        headers: metadata of the last call by its name.
        beats: a semaphore that is released at every heartbeat.
    """

    def __init__(self, address: str = "127.0.0.1:0", *, matched: bool = True, hold: str = "") -> None:
        self.calls: list[tuple[str, Any]] = []
        self.headers: dict[str, dict[str, str]] = {}
        self.beats = threading.Semaphore(0)
        self.heart: list[Any] = []
        self.held = threading.Event()
        self._matched = matched
        self._hold = hold
        self._release = threading.Event()
        self._stops: queue.Queue[Any] = queue.Queue()
        self._done: queue.Queue[Any] = queue.Queue()
        self._answers: queue.Queue[tuple[str, list[Any]]] = queue.Queue()
        self._commands: queue.Queue[Any] = queue.Queue()
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, self._handlers()),))
        port = self._server.add_insecure_port(address)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every call and stops."""
        self._release.set()
        self._server.stop(0).wait(PATIENCE)

    # -- what tests do -------------------------------------------------------------------------------

    def stop(self, *commands: Any) -> Any:
        """Waits until the training asks for a command, gives it these one after the other; what it said it is."""
        stop = self._stops.get(timeout=PATIENCE)
        for number, command in enumerate(commands):
            if number:
                self._stops.get(timeout=PATIENCE)
            self._commands.put(command)
        return stop

    def give(self, *commands: Any) -> None:
        """What the next ``WaitCMD`` calls are answered with."""
        for command in commands:
            self._commands.put(command)

    def answer(self, name: str) -> list[Any]:
        """The next stream that comes, which must be this one."""
        got, messages = self._answers.get(timeout=PATIENCE)
        assert got == name, f"{got} came instead of {name}"
        return messages

    def done(self) -> Any:
        """Waits until the training says that it is over."""
        return self._done.get(timeout=PATIENCE)

    # -- handlers --------------------------------------------------------------------------------------

    def _handlers(self) -> dict[str, Any]:
        handlers = {}
        for name in wire.UNARY:
            handlers[name] = grpc.unary_unary_rpc_method_handler(
                getattr(self, _HANDLERS[name]),
                request_deserializer=wire.message(wire.UNARY[name]).FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
        for name in wire.STREAMS:
            handlers[name] = grpc.stream_unary_rpc_method_handler(
                self._stream(name),
                request_deserializer=wire.message(wire.STREAMS[name]).FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
        return handlers

    def _note(self, name: str, message: Any, context: Any) -> None:
        self.headers[name] = {key: value for key, value in context.invocation_metadata() if key.startswith("tdbg-")}
        self.calls.append((name, message))
        if name == self._hold:
            self.held.set()
            self._release.wait(PATIENCE)

    def heartbeat(self, request: Any, _: Any) -> Any:
        self.heart.append(request)
        self.beats.release()
        return reply()

    def metadata(self, request: Any, context: Any) -> Any:
        self._note("SendMetadata", request, context)
        if request.training_done:
            self._done.put(request)
            return reply()
        return reply(version_matched=self._matched)

    def wait(self, request: Any, context: Any) -> Any:
        self._note("WaitCMD", request, context)
        self._stops.put(request)
        while context.is_active() and not self._release.is_set():
            with contextlib.suppress(queue.Empty):
                return self._commands.get(timeout=0.02)
        return reply(status=wire.FAILED)

    def _stream(self, name: str) -> Any:
        def handler(requests: Iterator[Any], context: Any) -> Any:
            self._note(name, None, context)
            messages = list(requests)
            self.calls[-1] = (name, messages)
            if not name.endswith(("Graph", "Graphs")):
                self._answers.put((name, messages))
            return reply()

        return handler


def main() -> None:
    """A debugger in a process of its own: says where it listens, then does what the lines of its input say.

    ``run``, ``view NAME``, ``watch NAME``: answers the next ``WaitCMD`` with that. A second argument names a call that
    is never answered.
    """
    hold = sys.argv[2] if len(sys.argv) > 2 else ""
    debugger = Debugger(sys.argv[1], hold=hold)
    _say(debugger.address)
    threading.Thread(target=_tell, args=(debugger,), daemon=True).start()
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        if word == "run":
            debugger.give(run())
        elif word == "view":
            debugger.give(view(wire.VALUE, name))
        elif word == "watch":
            debugger.give(watch(1, 15, [name], max_gt=-1e30))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _tell(debugger: Debugger) -> None:
    """Says when something happens that tests wait for."""
    while True:
        if debugger._hold and debugger.held.wait(0.01):
            _say("held")
            return
        with contextlib.suppress(queue.Empty):
            _say(f"stop {debugger._stops.get(timeout=0.01).step}")


if __name__ == "__main__":
    main()
