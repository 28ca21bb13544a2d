"""The clients that are understood, MindSpore 1.1 to 2.3 and our own, and the limits of the server."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final
from urllib.parse import unquote

from tui_debugger.live.wire import Unrecorded, text_of
from tui_debugger.notes import Note, limited
from tui_debugger.text.clean import clean


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server."""

    clients: int = 256  # trainings that are connected at the same time
    remembered: int = 512  # listed trainings, including lost and done ones; the oldest of these are forgotten
    message_bytes: int = 4 * 1024 * 1024  # one message
    graph_bytes: int = 512 * 1024 * 1024  # all graphs of one client
    hits: int = 200_000  # hits of one stop; further ones are counted, not kept
    memory_bytes: int = 2 * 1024 * 1024 * 1024  # graphs and hits of all clients together
    stray_bytes: int = 16 * 1024 * 1024  # bytes of one stream that nobody asked for
    strikes: int = 20  # broken rules after which a client is cut off
    handshakes: int = 60  # handshakes of one client in a minute
    idle: float = 60.0  # seconds between two messages of a stream
    view_tensors: int = 64  # tensors in one request for values
    view_numbers: int = 512  # tensors in one request for statistics or types
    questions: int = 1024  # requests of one client that wait to be sent


class MemoryLimit:
    """Bytes that all clients share."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        return self._left

    def take(self, size: int) -> bool:
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        with self._lock:
            self._left += size


NEWEST: Final = (2, 3)
"""The last version of MindSpore with a client."""
VIEWS_NUMBERS: Final = (1, 5)
"""Clients from this version on answer requests for statistics and types."""
RIGHT_TOLERANCES: Final = (1, 6)
"""Clients from this version on read rtol before atol; older ones in reverse order."""


class Admission(Enum):
    """The decision about a client."""

    ADMITTED = "admitted"
    MISMATCH = "mismatch"
    """The client says what it is and waits to be ended: its messages are not known here."""
    TOO_OLD = "too old"
    """The client knows no versions: it gets the command to exit."""


@dataclass(frozen=True, slots=True)
class ClientVersion:
    """A client's version (major, minor; (0, 0): unknown), judged."""

    admission: Admission
    version: tuple[int, int]
    warning: str = ""  # for users, about an admitted client
    refusal: str = ""  # one sentence about a refused client


def judge(text: str) -> ClientVersion:
    """Judges the version of a client of MindSpore; empty means 1.0, which gives none."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text)
    version = (int(found[1]), int(found[2])) if found is not None else (0, 0) if text else (1, 0)
    if not text or (found is not None and version < (1, 1)):
        name = f"MindSpore {text}" if text else "MindSpore 1.0 or older"
        refusal = f"{name}: its debugger speaks other messages; 1.1 to 2.3 are understood"
        return ClientVersion(Admission.TOO_OLD, version, refusal=refusal)
    if found is None or version[0] > NEWEST[0]:
        name = f"MindSpore {text} is not known" if found is not None else f"a client of an unknown version ({text})"
        return ClientVersion(Admission.MISMATCH, version, refusal=f"{name}; 1.1 to 2.3 are understood")
    newer = f"MindSpore {text} is newer than 2.3, the newest that this was made for"
    return ClientVersion(Admission.ADMITTED, version, newer if version > NEWEST else "")


_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """The origin of a call.

    A client of MindSpore is known by its connection, which all calls of a process share. Ours shows its session with
    every call, because clients of a Unix socket look the same and may come back on another connection.
    """

    peer: str  # as gRPC names it: ``ipv4:127.0.0.1:52114``, ``unix:``
    session: str = ""

    @property
    def key(self) -> str:
        return f"session {self.session}" if self.session else f"peer {self.peer}"

    @property
    def host(self) -> str:
        kind, _, rest = self.peer.partition(":")
        return unquote(rest).rpartition(":")[0] if kind.startswith("ip") else kind

    @property
    def address(self) -> str:
        kind, _, rest = self.peer.partition(":")
        return cut_and_clean(unquote(rest)) if kind.startswith("ip") else kind


@dataclass(frozen=True, slots=True)
class Handshake:
    """The introduction of a client; ``session``, ``place`` and ``run`` come from our own client only.

    Attributes:
        session: random, one for each training process.
        place: host name and process number: the same for a process that comes back.
        run: shared by all processes of one launcher; empty without a known launcher, None from a client without this
            field.
    """

    judged: ClientVersion
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
    run: str | None = None

    def trains_with(self, other: Handshake) -> bool:
        """Tells whether both are of one run; without a launcher: different ranks of the same number of processes."""
        if self.run is None or other.run is None or (self.place is not None and self.place == other.place):
            return True
        if self.run or other.run:
            return self.run == other.run
        return self.world_size == other.world_size and self.rank != other.rank


def handshake_of(metadata: Any) -> Handshake:
    client = cut_and_clean(text_of(metadata.client))
    own = bool(client)
    version = cut_and_clean(text_of(metadata.ms_version))
    return Handshake(
        judged=ClientVersion(Admission.ADMITTED, (2, 3)) if own else judge(version),
        own=own,
        session=cut_and_clean(text_of(metadata.session)) if own else "",
        rank=int(metadata.rank) if own and metadata.HasField("rank") and metadata.rank >= 0 else None,
        world_size=int(metadata.world_size) if own and metadata.world_size > 0 else None,
        device=cut_and_clean(text_of(metadata.device_name)).partition(":")[0],
        backend=cut_and_clean(text_of(metadata.backend)),
        program=client if own else f"MindSpore {version}".strip(),
        features=int(metadata.features) if own else 0,
        graphs=max(0, int(metadata.graph_num)),
        place=(cut_and_clean(text_of(metadata.host)), int(metadata.pid)) if own and metadata.pid else None,
        run=cut_and_clean(text_of(metadata.run)) if own and metadata.HasField("run") else None,
    )


def cut_and_clean(words: str) -> str:
    """The beginning of a text that a peer sent, safe to print."""
    return clean(words[:_LONGEST])[:_LONGEST]


KINDS: Final = 32
"""The most kinds that are counted separately."""
_MOST: Final = 1 << 62
_OTHERS: Final = "other things"


def unrecorded_of(message: Any) -> tuple[Unrecorded, ...]:
    """Reads the ``unrecorded`` of a ``Metadata``; texts are cleaned, entries without a count are left out."""
    found = (
        Unrecorded(
            cut_and_clean(text_of(each.what)) or _OTHERS,
            min(int(each.count), _MOST),
            cut_and_clean(text_of(each.example)),
            max(int(each.step), 0),
        )
        for each, _ in zip(message.unrecorded, range(16 * KINDS), strict=False)
    )
    return together((), (each for each in found if each.count > 0))


def notes_of(message: Any) -> list[tuple[int, dict[str, Note]]]:
    """Reads the ``notes`` of a ``Metadata``, within the limits; other values are left out."""
    return [
        (int(each.step), limited((text_of(note.name), _value(note)) for note in each.notes))
        for each in message.notes
        if each.step >= 0
    ]


def _value(note: Any) -> object:
    for name in ("real", "integer", "truth"):
        if note.HasField(name):
            return getattr(note, name)
    return text_of(note.text) if note.HasField("text") else None


def together(before: Iterable[Unrecorded], now: Iterable[Unrecorded]) -> tuple[Unrecorded, ...]:
    """Joins earlier and present counts by kind: both count from the start, so the larger one is right."""
    kinds = {each.what: each for each in before}
    for each in now:
        what = each.what if each.what in kinds or len(kinds) < KINDS - 1 else _OTHERS
        known = kinds.get(what)
        if known is None:
            kinds[what] = replace(each, what=what)
        else:
            kinds[what] = replace(known, count=max(known.count, each.count), step=min(known.step, each.step))
    return tuple(kinds.values())
