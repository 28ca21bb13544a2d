"""The connection of a training to a debugger: its address, its calls, and its messages to the user.

Every call ends: answered, timed out, or given up. It is begun in one thread and waited for in another.

``WaitCMD`` may take as long as the user thinks. To tell that from a dead or frozen debugger, ``Keeper`` sends
heartbeats meanwhile: when they are not answered, it calls ``fail``, which ends the waiting call.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from tui_debugger.errors import TdbgError, reason_of
from tui_debugger.live import wire
from tui_debugger.live.client import messages
from tui_debugger.text.clean import clean
from tui_debugger.text.writer import write_errors


class Notice:
    """Writes lines to the standard error, never the same twice in a row, and never fails."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        if text == self._last:
            return
        self._last = text
        with contextlib.suppress(Exception):  # no standard error, a closed pipe ...
            write_errors(f"tdbg: {text}")


HOST: Final = "TDBG_HOST"
PORT: Final = "TDBG_PORT"
TOKEN: Final = "TDBG_TOKEN"  # noqa: S105 - the name of the variable
TLS_CA: Final = "TDBG_TLS_CA"
TLS_NAME: Final = "TDBG_TLS_NAME"
SYSTEM: Final = "system"
"""The certificate authorities that gRPC knows by itself, in place of a file."""
DEFAULT_PORT: Final = 50051
DEFAULT_HOST: Final = "127.0.0.1"
TIMEOUT: Final = 5.0
_UNIX: Final = "unix:"
_IPV6: Final = re.compile(r"\[[0-9A-Fa-f:.]+(%\w+)?\]")


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The way from a training to its debugger.

    Attributes:
        address: ``host:port`` or ``unix:/path``; empty: there is none, and nothing is started.
        token: sent with every call; may be empty.
        timeout: seconds after which a debugger that cannot be reached, or does not answer, is given up.
        trusted: certificates in PEM that vouch for the debugger; empty: those of gRPC; None: not encrypted.
        tls_name: the name in its certificate, where that is not the address.
    """

    address: str = ""
    token: str = ""
    timeout: float = TIMEOUT
    trusted: bytes | None = None
    tls_name: str = ""


def settings(
    address: str | None = None, *, timeout: float = TIMEOUT, environment: Mapping[str, str] | None = None
) -> LinkSettings:
    """The given address, else that of the environment (``TDBG_HOST``, ``TDBG_PORT``), else none.

    Either variable alone is enough: the port is 50051 and the host 127.0.0.1 unless given. ``TDBG_HOST`` may be
    ``unix:/path``. ``TDBG_TOKEN`` is the token; ``TDBG_TLS_CA`` and ``TDBG_TLS_NAME`` are about TLS. An empty
    ``address`` switches off, whatever the environment says. A wrong address in the environment is reported in one line,
    and counts as not set; a wrong ``address`` raises TdbgError.
    """
    variables = os.environ if environment is None else environment
    if timeout <= 0:
        raise TdbgError(f"the time-out must be above 0, not {timeout}", hint=f"{TIMEOUT:g} seconds is usual")
    token = variables.get(TOKEN, "")
    found = LinkSettings("", token, timeout, tls_name=variables.get(TLS_NAME, ""))
    if address is not None:
        return replace(found, address=_checked(address.strip()), trusted=_trusted(variables))
    try:
        return replace(found, address=_checked(_from_environment(variables)), trusted=_trusted(variables))
    except TdbgError as error:  # maybe set for a whole cluster: the training has to start anyway
        about = "" if error.what.startswith(TLS_CA) else f"{HOST} and {PORT} are "
        Notice()(f"{about}{error.what} ({error.where}); training goes on without a debugger")
        return found


def _trusted(variables: Mapping[str, str]) -> bytes | None:
    """See ``LinkSettings.trusted``; TdbgError if unreadable: data is never sent openly instead of encrypted."""
    path = variables.get(TLS_CA, "")
    if not path:
        return None
    if path == SYSTEM:
        return b""
    try:
        found = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        what = f"{TLS_CA} cannot be read: {reason_of(error)}"
        raise TdbgError(what, where=path, hint="name a file in PEM, or `system`") from None
    if b"-----BEGIN CERTIFICATE-----" not in found:
        raise TdbgError(f"{TLS_CA} holds no certificate", where=path, hint="name a file in PEM, or `system`")
    return found


def _from_environment(variables: Mapping[str, str]) -> str:
    host, port = variables.get(HOST, "").strip(), variables.get(PORT, "").strip()
    if not host and not port:
        return ""
    host = host or DEFAULT_HOST
    if host.startswith(_UNIX):
        return host
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{port or DEFAULT_PORT}"


def _checked(address: str) -> str:
    if not address:
        return ""
    if address.startswith(_UNIX):
        if len(address) == len(_UNIX):
            raise TdbgError("the path of the socket is empty", where=address, hint="write unix:/run/tdbg.sock")
        return address
    host, port = _split(address)
    bad_host = not host or (":" in host and not _IPV6.fullmatch(host))
    if bad_host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise TdbgError(
            "not the address of a debugger", where=address, hint="write host:port (127.0.0.1:50051) or unix:/path"
        )
    return f"{host}:{int(port)}"


def _split(address: str) -> tuple[str, str]:
    """Host and port; an address with more than one colon and no bracket is an IPv6 host alone."""
    if address.startswith("["):
        host, _, rest = address.partition("]")
        return host + "]", rest.removeprefix(":") or str(DEFAULT_PORT)
    if address.count(":") > 1:
        return f"[{address}]", str(DEFAULT_PORT)
    host, colon, port = address.partition(":")
    return host, port if colon else str(DEFAULT_PORT)


_QUEUED: Final = 2
"""Messages of a stream that wait to be sent: 6 MiB."""
_SLICE: Final = 0.2
"""Seconds of one wait."""


class ProtocolCall:
    """One call: begun and cancelled in the thread that makes calls, waited for elsewhere."""

    def __init__(self, name: str, request: Any, limit: float | None) -> None:
        self.name, self.limit = name, limit
        self.done = threading.Event()  # answered, failed or given up
        self.reply: Any = None  # None when the call failed
        self.failure: Any = None  # the error, as far as gRPC knows
        self._request = request
        self._call: Any = None

    def begin(self, method: Any, headers: Any) -> None:
        if self.done.is_set():
            return
        try:
            self._call = method.future(self._request, timeout=self.limit, metadata=headers)
            self._call.add_done_callback(self._finished)
        except Exception as error:  # noqa: BLE001 - the channel is closed, or gRPC is broken
            self.failure = error
            self.done.set()

    def _finished(self, call: Any) -> None:
        if not call.cancelled():
            self.failure = call.exception()
            self.reply = call.result() if self.failure is None else None
        self.give_up()

    def wait(self, limit: float | None) -> bool:
        """Waits at most ``limit`` seconds until it is done; in slices, because a signal would not end one long wait."""
        end = None if limit is None else time.monotonic() + limit
        while not self.done.wait(_SLICE):
            if end is not None and time.monotonic() > end:
                return False
        return True

    def give_up(self) -> None:
        if isinstance(self._request, MessageStream):
            self._request.end()
        self.done.set()

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()


class MessageStream(Iterator[Any]):
    """Hands messages from the training's thread to gRPC's, a few ahead."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Any] = deque()
        self._ended = False

    def put(self, message: Any, limit: float) -> bool:
        """Hands over a message; False when there was no room for ``limit`` seconds, or the stream has ended."""
        with self._changed:
            room = self._changed.wait_for(lambda: self._ended or len(self._waiting) < _QUEUED, limit)
            if not room or self._ended:
                return False
            self._waiting.append(message)
            self._changed.notify_all()
            return True

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._waiting))
            if not self._waiting:
                raise StopIteration
            message = self._waiting.popleft()
            self._changed.notify_all()
            return message


LARGEST_REPLY: Final = 64 << 20
"""Bytes of a reply: a watchpoint on some hundred thousand nodes."""
_LAST_ANSWER: Final = 12
"""Time-outs to wait for the answer to a stream: the debugger may have to write the data to disk."""
_CLOSING: Final = 1.0
"""Seconds to wait for a channel to close."""

_SILENT: Final = "gives no sign of life"
_GONE: Final = "is gone"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", LARGEST_REPLY),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is for downloads
    ("grpc.use_local_subchannel_pool", 1),  # a new channel tries at once, without the back-off of an older one
)


def _channel(grpc: Any, settings: LinkSettings) -> Any:
    if settings.trusted is None or settings.address.startswith(_UNIX):
        return grpc.insecure_channel(settings.address, options=_OPTIONS)
    name = [("grpc.ssl_target_name_override", settings.tls_name)] if settings.tls_name else []
    credentials = grpc.ssl_channel_credentials(root_certificates=settings.trusted or None)
    return grpc.secure_channel(settings.address, credentials, options=(*_OPTIONS, *name))


class LinkLostError(Exception):
    """The debugger is gone, frozen, or answers nonsense; ``refused``: it rejects this client for good."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


class InterruptedWait(BaseException):
    """A signal handler raised ``cause``, which belongs to the training, while a call was waited for."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__()
        self.cause = cause


class DebuggerLink:
    """A channel and the calls on it. One call of the protocol at a time, besides heartbeats from another thread.

    A thread of its own makes the calls: in the main thread a signal handler may raise in the middle of gRPC's
    bookkeeping, after which closing the channel waits for ever.
    """

    def __init__(self, settings: LinkSettings, session: str) -> None:
        import grpc  # not before there is an address

        self._grpc = grpc
        self.timeout = settings.timeout
        self.opened = time.monotonic()
        self.lost = threading.Event()
        self._error: LinkLostError | None = None
        self._lock = threading.RLock()  # reentrant: a signal handler of the training may call close
        self._exchange: ProtocolCall | None = None
        self._line: MessageStream | None = None
        self._line_call: Any = None
        self._waiting_since: float | None = None
        self._headers = [(wire.SESSION_HEADER, session)]
        if settings.token:
            self._headers.append((wire.TOKEN_HEADER, settings.token))
        self._channel = _channel(grpc, settings)
        self._calls = {name: self._method(name) for name in (*wire.UNARY, *wire.STREAMS)}
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._hands = threading.Thread(target=self._run, name="tdbg-calls", daemon=True)
        self._hands.start()

    def _open_line(self) -> None:
        line = self._line
        if line is not None and not self.lost.is_set():
            with contextlib.suppress(Exception):  # errors show in the other calls
                self._line_call = self._method("SendHeartbeat", line=True).future(line, metadata=self._headers)

    def _method(self, name: str, *, line: bool = False) -> Any:
        one = name in wire.UNARY and not line
        make = self._channel.unary_unary if one else self._channel.stream_unary
        return make(
            wire.method(name),
            request_serializer=_serialize,
            response_deserializer=wire.message("EventReply").FromString,
        )

    def call(self, name: str, message: Any, *, patient: bool = False, limit: float | None = None) -> Any:
        """One request, one reply; None when there is none within ``limit`` seconds, which keeps the connection.

        ``patient``: wait as long as the debugger answers heartbeats. LinkLostError: no reply, for any reason.
        InterruptedWait: from a signal handler.
        """
        exchange = ProtocolCall(name, message, None if patient or limit is not None else self.timeout)
        try:
            self._begin(exchange)
            if limit is not None and not self._wait(exchange, limit):
                return None
            return self._reply(exchange, exchange.limit if limit is None else 0.0)
        finally:
            self._end(exchange)

    def stream(self, name: str, requests: Iterable[Any]) -> Any:
        """Many requests, one reply. Requests are made while they are sent, a few ahead. Raises as ``call``."""
        feed = MessageStream()
        exchange = ProtocolCall(name, feed, None)
        try:
            self._begin(exchange)
            for request in requests:
                if not self._put(feed, request):
                    if not exchange.done.is_set():
                        self.fail(LinkLostError("does not take what it asked for"))
                    break
            feed.end()
            return self._reply(exchange, self.timeout * _LAST_ANSWER)
        finally:
            self._end(exchange)

    def heartbeat(self, limit: float) -> LinkLostError | None:
        """Tells whether the debugger answers, from any thread but the main one: None, or the error."""
        if self._line is not None:
            self._line.put(messages.heartbeat(), 0.0)
        try:
            self._calls["SendHeartbeat"](messages.heartbeat(), timeout=limit, metadata=self._headers)
        except self._grpc.RpcError as error:
            code = error.code()
            codes = self._grpc.StatusCode
            if code in (codes.UNIMPLEMENTED, codes.RESOURCE_EXHAUSTED):
                return None  # it lives
            return self._meaning(error)
        except ValueError:  # the channel was closed meanwhile
            return LinkLostError("was let go")
        return None

    def hold_line(self) -> None:
        """Holds a line of heartbeats open: when it breaks, a debugger knows at once that this process is gone.

        The line is not needed otherwise: MindSpore's debugger takes only one heartbeat a call.
        """
        if self._line is None:
            self._line = MessageStream()
            for _ in range(2):  # the second heartbeat marks the call as a line
                self._line.put(messages.heartbeat(), 0.0)
            self._work.put(self._open_line)

    def waiting(self) -> float:
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    def fail(self, error: LinkLostError) -> None:
        """Gives the connection up, from any thread: the present call ends. The first reason counts."""
        with self._lock:
            self._error = self._error or error
            self.lost.set()
            exchange = self._exchange
        if self._line is not None:
            self._line.end()
        if exchange is not None:
            exchange.give_up()
            self._work.put(exchange.cancel)

    def close(self) -> None:
        """Gives up and closes the channel; waits for that shortly. Idempotent."""
        self.fail(LinkLostError("was let go"))
        self._work.put(None)
        if threading.current_thread() is not self._hands:
            self._hands.join(_CLOSING)

    # -- inside --------------------------------------------------------------------------------------

    def _begin(self, exchange: ProtocolCall) -> None:
        self._check()
        with self._lock:
            self._exchange = exchange
        self._work.put(lambda: exchange.begin(self._calls[exchange.name], self._headers))

    def _end(self, exchange: ProtocolCall) -> None:
        with self._lock:
            self._exchange = None
        if not exchange.done.is_set():
            exchange.give_up()
            self._work.put(exchange.cancel)

    def _put(self, feed: MessageStream, request: Any) -> bool:
        try:
            return feed.put(request, self.timeout)
        except BaseException as error:  # noqa: BLE001 - raised by a signal handler: it is handed on
            raise self._interrupted(error) from None

    def _wait(self, exchange: ProtocolCall, limit: float | None) -> bool:
        try:
            return exchange.wait(limit)
        except BaseException as error:  # noqa: BLE001 - raised by a signal handler: it is handed on
            raise self._interrupted(error) from None

    def _interrupted(self, error: BaseException) -> InterruptedWait:
        self.fail(LinkLostError("was interrupted"))
        return InterruptedWait(error)

    def _reply(self, exchange: ProtocolCall, limit: float | None) -> Any:
        self._waiting_since = time.monotonic()
        try:
            answered = self._wait(exchange, None if limit is None else limit + 1.0)  # gRPC's own deadline comes first
        finally:
            self._waiting_since = None
        if not answered:
            self.fail(LinkLostError(_SILENT))
        self._check()
        if exchange.reply is None:
            self.fail(self._meaning(exchange.failure))
            self._check()
        return exchange.reply

    def _meaning(self, failure: Any) -> LinkLostError:
        if not isinstance(failure, self._grpc.RpcError):
            return LinkLostError(_GONE)
        code, codes = failure.code(), self._grpc.StatusCode
        if code in (codes.UNAUTHENTICATED, codes.PERMISSION_DENIED):
            return LinkLostError("refuses this training: is TDBG_TOKEN right?", refused=True)
        if code is codes.ALREADY_EXISTS:
            return LinkLostError(f"refuses this training: {clean(failure.details() or '')}", refused=True)
        if code is codes.DEADLINE_EXCEEDED:
            return LinkLostError(_SILENT)
        if code in (codes.UNAVAILABLE, codes.CANCELLED):
            return LinkLostError(_GONE)
        return LinkLostError(f"answers with an error ({code.name.lower()})")

    def _check(self) -> None:
        if self.lost.is_set():
            raise self._error or LinkLostError(_GONE)

    def _run(self) -> None:
        for job in iter(self._work.get, None):
            job()
        with contextlib.suppress(Exception):
            self._channel.close()


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
