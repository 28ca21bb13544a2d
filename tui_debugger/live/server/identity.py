"""Who a client is, from what it says and where it calls from. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tui_debugger.live.server.versions import Admission, Judged, judge

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a call comes from.

    A client of MindSpore is known by its connection, all calls of a process share one. Ours shows its session with
    every call, because all clients of a Unix socket look the same, and one that lost its connection comes back
    through another.

    Attributes:
        peer: as gRPC names it: ``ipv4:127.0.0.1:52114``, ``unix:``.
        session: what our own client shows, else empty.
    """

    peer: str
    session: str = ""

    @property
    def key(self) -> str:
        """What calls of one client have in common."""
        return f"session {self.session}" if self.session else f"peer {self.peer}"

    @property
    def host(self) -> str:
        """Where its process runs, without the port."""
        kind, _, rest = self.peer.partition(":")
        return unquote(rest).rpartition(":")[0] if kind.startswith("ip") else kind

    @property
    def address(self) -> str:
        """For people."""
        kind, _, rest = self.peer.partition(":")
        return clean(unquote(rest)) if kind.startswith("ip") else kind


@dataclass(frozen=True, slots=True)
class Hello:
    """How a client introduces itself.

    Attributes:
        judged: whether it is understood.
        own: it is a client of ours.
        session: random, one for each training process; ours only.
        rank: process number, None when it does not say.
        world_size: processes of the run, None when it does not say.
        device: device number as text.
        graphs: how many graphs it will send.
        place: host name and process number, ours only: the same for a process that comes back.
    """

    judged: Judged
    own: bool
    session: str
    rank: int | None
    world_size: int | None
    device: str
    backend: str
    program: str
    features: int
    graphs: int
    place: tuple[str, int] | None


def hello_of(metadata: Any) -> Hello:
    """Reads the ``Metadata`` of a handshake."""
    client = clean(text(metadata.client))
    own = bool(client)
    version = clean(text(metadata.ms_version))
    return Hello(
        judged=Judged(Admission.ADMITTED, (2, 3)) if own else judge(version),
        own=own,
        session=clean(text(metadata.session)) if own else "",
        rank=int(metadata.rank) if own and metadata.HasField("rank") and metadata.rank >= 0 else None,
        world_size=int(metadata.world_size) if own and metadata.world_size > 0 else None,
        device=clean(text(metadata.device_name)).partition(":")[0],
        backend=clean(text(metadata.backend)),
        program=client if own else f"MindSpore {version}".strip(),
        features=int(metadata.features) if own else 0,
        graphs=max(0, int(metadata.graph_num)),
        place=(clean(text(metadata.host)), int(metadata.pid)) if own and metadata.pid else None,
    )


def text(data: bytes) -> str:
    """Bytes of the wire as text, whatever they are."""
    return bytes(data).decode("utf-8", errors="replace")


def clean(words: str) -> str:
    """Without control characters, and not too long: it is shown to people."""
    return _CONTROL.sub("�", words[:_LONGEST])
