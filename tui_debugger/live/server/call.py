"""One call of a client: who makes it, its messages, and whether it ended well."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NoReturn

from tui_debugger.live import wire
from tui_debugger.live.server.identity import Caller, clean, text
from tui_debugger.live.server.patience import Patience

_SOON: Final = 0.05
"""A connection that breaks shows the end of the stream first, and that it broke a moment later."""


def _nothing() -> None:
    """Nobody wants to know."""


def _was_cancelled(context: Any) -> bool:
    """Whether a call that is over was cut before its reply was sent.

    gRPC knows, and has no public way to say it. Where its insides change, a broken connection is noticed later, by
    missing heartbeats.
    """
    return getattr(getattr(context, "_state", None), "client", None) == "cancelled"


class MalformedError(Exception):
    """A message that is none."""


class Call:
    """One call: who makes it, and its messages."""

    def __init__(self, name: str, messages: Iterator[bytes], context: Any, patience: Patience) -> None:
        """A call of the method ``name``."""
        self.name, self.context = name, context
        self.connection = 0
        self.began = patience.clock()
        shown = {entry.key: entry.value for entry in context.invocation_metadata() or ()}
        self.token: str | bytes | None = shown.get(wire.TOKEN_HEADER)
        session = shown.get(wire.SESSION_HEADER, "")
        self.caller = Caller(context.peer(), clean(session if isinstance(session, str) else text(session)))
        self._messages, self._patience = messages, patience
        self._broken = threading.Event()
        self._on_break: Callable[[], None] = _nothing
        self._done = False
        if not context.add_callback(self._over):
            self._broken.set()
        self._class = wire.message((wire.UNARY | wire.STREAMS)[name])

    def raw(self) -> Generator[bytes, None, None]:
        """Its messages as bytes; ends too when the connection breaks, see ``whole``."""
        # gRPC raises whatever it likes when a connection ends in the middle of a stream.
        with self._patience.watch(self.context) as watched, contextlib.suppress(Exception):
            for message in self._messages:
                watched.renew()
                yield message

    def messages(self) -> Iterator[tuple[Any, int]]:
        """Its messages, each with its size on the wire."""
        for raw in self.raw():
            yield self._parse(raw), len(raw)

    def only(self) -> Any:
        """The one message of a call that has one; an empty message when the connection broke."""
        with contextlib.closing(self.raw()) as messages:
            return self._parse(next(messages, b""))

    def is_whole(self, *, doubtful: bool = False) -> bool:
        """Whether the connection still stands: a stream that has ended then ended well.

        Args:
            doubtful: wait a moment for the news that it broke.
        """
        if doubtful:
            self._broken.wait(_SOON)
        return not self._broken.is_set() and bool(self.context.is_active())

    def when_it_breaks(self, do: Callable[[], None]) -> None:
        """Calls ``do`` when the connection breaks before the reply is out, as far as gRPC says."""
        self._on_break = do

    def replied(self, reply: bytes) -> bytes:
        """The reply is on its way."""
        self._done = True
        return reply

    def abort(self, code: Any, why: str) -> NoReturn:
        """Ends the call with an error."""
        self.context.abort(code, clean(why))
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
