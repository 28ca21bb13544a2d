"""The clients that are understood, MindSpore 1.1 to 2.3 and our own, and the limits of what is kept of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final
from urllib.parse import unquote

from tui_debugger.live.wire import Unrecorded
from tui_debugger.notes import Note, limited
from tui_debugger.text.clean import clean


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server.

    Attributes:
        clients: trainings that are connected at the same time.
        remembered: trainings that are listed, those that are lost or done included; the oldest of these are forgotten.
        message_bytes: one message.
        graph_bytes: all graphs of one client.
        hits: hits of one stop; those above are counted, not kept.
        memory_bytes: graphs and hits of all clients together.
        stray_bytes: bytes of one stream that nobody asked for.
        strikes: broken rules after which a client is cut off.
        handshakes: handshakes of one client in a minute.
        idle: seconds between two messages of a stream.
        view_tensors: tensors in one request for values.
        view_numbers: tensors in one request for statistics or types.
        questions: requests of one client that wait to be sent.
    """

    clients: int = 256
    remembered: int = 512
    message_bytes: int = 4 * 1024 * 1024
    graph_bytes: int = 512 * 1024 * 1024
    hits: int = 200_000
    memory_bytes: int = 2 * 1024 * 1024 * 1024
    stray_bytes: int = 16 * 1024 * 1024
    strikes: int = 20
    handshakes: int = 60
    idle: float = 60.0
    view_tensors: int = 64
    view_numbers: int = 512
    questions: int = 1024


class MemoryLimit:
    """Bytes that all clients share."""

    def __init__(self, size: int) -> None:
        """A budget of ``size`` bytes."""
        self._left = size
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that are free."""
        return self._left

    def take(self, size: int) -> bool:
        """Reserves bytes; False when there are not that many left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Frees bytes that were reserved."""
        with self._lock:
            self._left += size


NEWEST: Final = (2, 3)
"""The last version of MindSpore with a client."""
VIEWS_NUMBERS: Final = (1, 5)
"""From here on clients answer requests for statistics and types."""
RIGHT_TOLERANCES: Final = (1, 6)
"""From here on clients read rtol before atol; older ones read them the other way round."""


class Admission(Enum):
    """The decision about a client."""

    ADMITTED = "admitted"
    MISMATCH = "mismatch"
    """The client says what it is and waits to be ended: its messages are not known here."""
    TOO_OLD = "too old"
    """The client does not know of versions: it gets the command to exit."""


@dataclass(frozen=True, slots=True)
class ClientVersion:
    """A client's version, judged.

    Attributes:
        admission: whether the client is admitted, or how it is refused.
        version: major and minor; (0, 0) when unknown.
        warning: for an admitted client, what people should know, or empty.
        refusal: for one that is not, one sentence, or empty.
    """

    admission: Admission
    version: tuple[int, int]
    warning: str = ""
    refusal: str = ""


def judge(text: str) -> ClientVersion:
    """Judges the version that a client of MindSpore gives; empty means 1.0, which gives none."""
    if not text:
        return ClientVersion(
            Admission.TOO_OLD,
            (1, 0),
            refusal="MindSpore 1.0 or older: its debugger speaks other messages; 1.1 to 2.3 are understood",
        )
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text)
    if found is None:
        return ClientVersion(
            Admission.MISMATCH, (0, 0), refusal=f"a client of an unknown version ({text}); 1.1 to 2.3 are understood"
        )
    version = (int(found[1]), int(found[2]))
    if version < (1, 1):
        return ClientVersion(
            Admission.TOO_OLD,
            version,
            refusal=f"MindSpore {text}: its debugger speaks other messages; 1.1 to 2.3 are understood",
        )
    if version[0] > NEWEST[0]:
        return ClientVersion(
            Admission.MISMATCH, version, refusal=f"MindSpore {text} is not known; 1.1 to 2.3 are understood"
        )
    if version[0] == NEWEST[0] and version > NEWEST:
        return ClientVersion(
            Admission.ADMITTED, version, f"MindSpore {text} is newer than 2.3, the newest that this was made for"
        )
    return ClientVersion(Admission.ADMITTED, version)


_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """The origin of a call.

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
        """The key that the calls of one client have in common."""
        return f"session {self.session}" if self.session else f"peer {self.peer}"

    @property
    def host(self) -> str:
        """The host of its process, without the port."""
        kind, _, rest = self.peer.partition(":")
        return unquote(rest).rpartition(":")[0] if kind.startswith("ip") else kind

    @property
    def address(self) -> str:
        """For people."""
        kind, _, rest = self.peer.partition(":")
        return cut_and_clean(unquote(rest)) if kind.startswith("ip") else kind


@dataclass(frozen=True, slots=True)
class Handshake:
    """The introduction of a client.

    Attributes:
        judged: whether it is understood.
        own: it is a client of ours.
        session: random, one for each training process; ours only.
        rank: process number, None when it does not say.
        world_size: processes of the run, None when it does not say.
        device: device number as text.
        graphs: how many graphs it will send.
        place: host name and process number, ours only: the same for a process that comes back.
        run: what all processes that one launcher started have in common, ours only; empty when no launcher is known,
            None from a client that says nothing of it.
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
        """Tells whether both are of one run, as far as that can be told.

        Without a launcher that is known, they have to be different ranks of as many processes.
        """
        if self.run is None or other.run is None or (self.place is not None and self.place == other.place):
            return True
        if self.run or other.run:
            return self.run == other.run
        return self.world_size == other.world_size and self.rank != other.rank


def handshake_of(metadata: Any) -> Handshake:
    """Reads the ``Metadata`` of a handshake."""
    client = cut_and_clean(text(metadata.client))
    own = bool(client)
    version = cut_and_clean(text(metadata.ms_version))
    return Handshake(
        judged=ClientVersion(Admission.ADMITTED, (2, 3)) if own else judge(version),
        own=own,
        session=cut_and_clean(text(metadata.session)) if own else "",
        rank=int(metadata.rank) if own and metadata.HasField("rank") and metadata.rank >= 0 else None,
        world_size=int(metadata.world_size) if own and metadata.world_size > 0 else None,
        device=cut_and_clean(text(metadata.device_name)).partition(":")[0],
        backend=cut_and_clean(text(metadata.backend)),
        program=client if own else f"MindSpore {version}".strip(),
        features=int(metadata.features) if own else 0,
        graphs=max(0, int(metadata.graph_num)),
        place=(cut_and_clean(text(metadata.host)), int(metadata.pid)) if own and metadata.pid else None,
        run=cut_and_clean(text(metadata.run)) if own and metadata.HasField("run") else None,
    )


def text(data: bytes) -> str:
    """Bytes of the wire as text, whatever they are."""
    return bytes(data).decode("utf-8", errors="replace")


def cut_and_clean(words: str) -> str:
    """Returns the beginning of a text that a peer sent, safe to print."""
    return clean(words[:_LONGEST])[:_LONGEST]


KINDS: Final = 32
"""The most kinds that are counted apart."""
_MOST: Final = 1 << 62
_OTHERS: Final = "other things"


def unrecorded_of(message: Any) -> tuple[Unrecorded, ...]:
    """Reads the ``unrecorded`` of a ``Metadata``: texts are cleaned, what counts nothing is left out."""
    found = (
        Unrecorded(
            cut_and_clean(text(each.what)) or _OTHERS,
            min(int(each.count), _MOST),
            cut_and_clean(text(each.example)),
            max(int(each.step), 0),
        )
        for each, _ in zip(message.unrecorded, range(16 * KINDS), strict=False)
    )
    return together((), (each for each in found if each.count > 0))


def notes_of(message: Any) -> list[tuple[int, dict[str, Note]]]:
    """Reads the ``notes`` of a ``Metadata``, within the limits: what is no note is left out."""
    return [
        (int(each.step), limited((text(note.name), _value(note)) for note in each.notes))
        for each in message.notes
        if each.step >= 0
    ]


def _value(note: Any) -> object:
    for name in ("real", "integer", "truth"):
        if note.HasField(name):
            return getattr(note, name)
    return text(note.text) if note.HasField("text") else None


def together(before: Iterable[Unrecorded], now: Iterable[Unrecorded]) -> tuple[Unrecorded, ...]:
    """Joins what was said before and what is said now, by kind: counts are of all so far: the larger one is right."""
    kinds = {each.what: each for each in before}
    for each in now:
        what = each.what if each.what in kinds or len(kinds) < KINDS - 1 else _OTHERS
        known = kinds.get(what)
        if known is None:
            kinds[what] = replace(each, what=what)
        else:
            kinds[what] = replace(known, count=max(known.count, each.count), step=min(known.step, each.step))
    return tuple(kinds.values())
