"""Damaged messages, sent to a server as a client would; whole ones in between say that it still answers."""

from __future__ import annotations

import logging
from typing import Final

import grpc

from tests.fuzz.mutations import mutated
from tests.live.recordings import recording
from tests.live.scripted import ScriptedClient
from tui_debugger.live import wire
from tui_debugger.live.server import serve

CALLS: Final = 12
"""Damaged messages between two whole ones."""
_PATIENCE: Final = 5.0


class _Complaints(logging.Handler):
    """What a server's handlers raise; that a message cannot be taken apart is none of their faults."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "deserializing" not in record.getMessage():
            self.found.append(f"{record.getMessage()}: {record.exc_info[1] if record.exc_info else ''}")


def messages_tried(count: int) -> tuple[int, list[str]]:
    """Sends damaged messages of a recorded training; returns how many there were, and what broke."""
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    calls = [call for call in recording("mlp") if call.name != "WaitCMD" and call.sent]
    server = serve("127.0.0.1", 0)
    try:
        for number in range(count):
            call = calls[number % len(calls)]
            with grpc.insecure_channel(server.address) as channel:
                damaged = [mutated(message, number) for message in call.sent[:3]]
                try:
                    if call.name in wire.UNARY:
                        channel.unary_unary(wire.method(call.name))(damaged[0], timeout=_PATIENCE)
                    else:
                        channel.stream_unary(wire.method(call.name))(iter(damaged), timeout=_PATIENCE)
                except grpc.RpcError as error:
                    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        complaints.found.append(f"{call.name} {number}: no answer after {_PATIENCE:g} s")
            if number % CALLS == 0:
                client = ScriptedClient(server.address)
                client.hello()
                client.close()
    finally:
        logging.getLogger().removeHandler(complaints)
        server.close(terminate=True)
    return count, complaints.found
