"""Whole sessions of the real client of MindSpore 2.0.0, message by message."""

from __future__ import annotations

import base64
import json
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tui_debugger.live import wire

_ARCHIVE = Path(__file__).parents[1] / "data" / "mindspore-2.0-live.tar.xz"


@dataclass
class RecordedCall:
    """One call: what the client sent, and what the server replied, serialized."""

    name: str
    sent: list[bytes] = field(default_factory=list)
    reply: bytes = b""

    @property
    def command(self) -> Any:
        """The reply as a message."""
        return wire.message("EventReply").FromString(self.reply)

    def messages(self) -> list[Any]:
        """What was sent, as messages."""
        kind = wire.message((wire.UNARY | wire.STREAMS)[self.name])
        return [kind.FromString(raw) for raw in self.sent]


@cache
def recording(name: str) -> tuple[RecordedCall, ...]:
    """The calls of a session (``mlp`` or ``nan``), in order."""
    calls: dict[int, RecordedCall] = {}
    with tarfile.open(_ARCHIVE) as archive:
        file = archive.extractfile(f"mindspore-2.0-live/{name}.raw.jsonl")
        assert file is not None
        for line in file:
            entry = json.loads(line)
            call = calls.setdefault(entry["call"], RecordedCall(entry["rpc"]))
            if entry["kind"] == "reply":
                call.reply = base64.b64decode(entry["raw"])
            elif entry["kind"] != "end":
                call.sent.append(base64.b64decode(entry["raw"]))
    return tuple(calls.values())


def recorded_graph(name: str) -> bytes:
    """The graph of a session, a serialized ``GraphProto``."""
    return b"".join(
        message.buffer for call in recording(name) if call.name == "SendGraph" for message in call.messages()
    )
