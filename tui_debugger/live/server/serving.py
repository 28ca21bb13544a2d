"""Opens and closes the gRPC server: its sockets, its threads, and broken connections.

gRPC does not report a connection that closes while no call is open, and MindSpore's client has none while it trains.
Linux lists connections; elsewhere only heartbeats tell. Calls run in daemon threads, so that a training that waits for
its next command never holds up the end of the program.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import grpc

from tui_debugger.errors import TdbgError
from tui_debugger.live.server.identity import MemoryLimit, ServerLimits
from tui_debugger.live.server.service import UNIX, Gate, IdleCalls, Service, is_private
from tui_debugger.live.server.training import Listener, Registry, RemoteTraining
from tui_debugger.stats.workers import DaemonThreads, named_daemon

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_MOST: Final = 16 << 20
"""Bytes of a table that are read: a machine with more connections is not judged."""
_ESTABLISHED, _LISTENS = "01", "0A"

Peer = tuple[str, int]
"""Address and port."""


def gone(peers: Iterable[str], port: int, tables: Callable[[], str | None] | None = None) -> set[str]:
    """The clients (``ipv4:127.0.0.1:52114``) without connection, by tables in which this server listens at ``port``."""
    named = {name: peer for name in peers if (peer := peer_of(name)) is not None}
    text = (tables or _read)() if named else None
    if text is None:
        return set()
    rows = [line.split()[:4] for line in text.splitlines()]
    if not any(row[3:] == [_LISTENS] and _port(row[1]) == port for row in rows):
        return set()
    there = {_far_end(row[2]) for row in rows if row[3:] == [_ESTABLISHED]}
    return {name for name, peer in named.items() if peer not in there}


def peer_of(name: str) -> Peer | None:
    """``ipv4:127.0.0.1:52114`` and ``ipv6:%5B::1%5D:52114`` as address and port; None for others."""
    kind, _, rest = unquote(name).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdigit():
        return None
    try:
        return _plain(ipaddress.ip_address(host.strip("[]").partition("%")[0])), int(port)
    except ValueError:
        return None


def _far_end(word: str) -> Peer | None:
    try:
        data = bytes.fromhex(word.partition(":")[0])
    except ValueError:
        return None
    if len(data) not in {4, 16}:
        return None
    # Words of four bytes, each in the order of the machine.
    parts = (data[at : at + 4] for at in range(0, len(data), 4))
    packed = b"".join(part[::-1] if sys.byteorder == "little" else part for part in parts)
    return _plain(ipaddress.ip_address(packed)), _port(word)


def _port(word: str) -> int:
    try:
        return int(word.rpartition(":")[2], 16)
    except ValueError:
        return -1


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """IPv4 in IPv6 as IPv4: which form a table or gRPC uses depends on the listening socket."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _read() -> str | None:
    texts = [text for path in _TABLES if (text := _text_of(path)) is not None]
    return "\n".join(texts) if texts and all(len(text) < _MOST for text in texts) else None


def _text_of(path: Path) -> str | None:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_MOST)
    except OSError:
        return None


_TICK_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 2.0
"""Between two looks at the connections of clients without an open call."""
_GOODBYE_SECONDS: Final = 2.0
"""Seconds that a closing server waits for trainings to take their last commands."""
_GRACE_SECONDS: Final = 0.5
_LONGEST_UNIX_PATH: Final = 100
_LEAST_TOKEN: Final = 16
"""Characters of a token that other machines may guess at."""
_MOST_TOKEN: Final = 4096

_OPTIONS: Final = (
    # Two debuggers on one port would share its clients at random.
    ("grpc.so_reuseport", 0),
    # A client that waits sends nothing: only pings find out that its machine is gone.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    # Calls of one connection at a time: a client has one or two, and a heartbeat.
    ("grpc.max_concurrent_streams", 16),
    ("grpc.max_metadata_size", 16 * 1024),
    # Nothing is unpacked: a small message cannot become a large one.
    ("grpc.compression_enabled_algorithms_bitset", 1),
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM texts with which a server proves its identity and encrypts; ``chain`` has its own certificate first."""

    chain: bytes
    key: bytes = field(repr=False)


class Server:
    """A listening server, and all trainings that have come to it, in the order of first contact."""

    def __init__(
        self,
        host: str,
        port: int,
        gate: Gate,
        limits: ServerLimits,
        clock: Callable[[], float],
        *,
        certificate: Certificate | None = None,
    ) -> None:
        """Listens at once; TdbgError when the address is not available."""
        memory = MemoryLimit(limits.memory_bytes)
        self._clock = clock
        self._port = 0
        self._looked = clock()
        self._registry = Registry(clock, limits, memory)
        self._patience = IdleCalls(limits.idle, clock)
        self._service = Service(self._registry, gate, limits, memory, self._patience)
        # One call that waits for each client, one that sends, heartbeats; threads are started only when needed.
        most = 4 * limits.clients + 32
        self._threads = DaemonThreads(most, "tdbg-call")
        self._server = grpc.server(
            self._threads,
            options=(*_OPTIONS, ("grpc.max_receive_message_length", limits.message_bytes)),
            maximum_concurrent_rpcs=most,
        )
        self._server.add_generic_rpc_handlers((self._service.handlers(),))
        self._unix: Path | None = None
        self._certificate = certificate
        self.address = self._bind(host, port)
        self._server.start()
        self._ended = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        named_daemon(self._tick, "tdbg-tick")

    @property
    def encrypted(self) -> bool:
        return self._certificate is not None

    @property
    def refusals(self) -> Sequence[str]:
        """The reasons why clients were turned away, the newest last; bounded."""
        return self._registry.refusals

    def all(self) -> Sequence[RemoteTraining]:
        """Every training, including lost and done ones."""
        return self._registry.all()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls ``listener`` for every event from now on; the returned function ends that."""
        return self._registry.listen(listener)

    def tick(self) -> None:
        """Looks for lost trainings and idle calls; called a few times a second."""
        self._patience.tick()
        for training in self.all():
            training.tick()
        if self._clock() - self._looked >= _LOOK_SECONDS:
            self._looked = self._clock()
            self._look_at_connections()

    def _look_at_connections(self) -> None:
        """A client without an open call may have died: only its connection knows."""
        silent = [(training, *route) for training in self.all() if (route := training.silent_connection()) is not None]
        lost = gone([peer for _, peer, _ in silent], self._port)
        for training, peer, connection in silent:
            if peer in lost:
                training.lose(connection)

    def close(self, *, terminate: bool = False) -> None:
        """Lets every training go on (or ends it), waits shortly for that, and stops. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            for training in self.all():
                if terminate:
                    training.terminate()
                else:
                    training.release()
            self._say_goodbye()
            self._service.closing = True
            self._server.stop(_GRACE_SECONDS).wait(_GRACE_SECONDS + _GOODBYE_SECONDS)
            self._ended.set()
            self._threads.shutdown(wait=False)
            if self._unix is not None:
                with contextlib.suppress(OSError):
                    self._unix.unlink()

    def _say_goodbye(self) -> None:
        until = time.monotonic() + _GOODBYE_SECONDS
        while time.monotonic() < until and not all(training.settled for training in self.all()):
            self._ended.wait(0.01)

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            self.tick()

    def _bind(self, host: str, port: int) -> str:
        if host.startswith(UNIX):
            self._unix = _free_path(host)
            with _private_files():
                self._add(host, host)
            return host
        _check_address(host, port)
        shown = f"[{host}]" if ":" in host else host
        self._port = self._add(f"{shown}:{port}", f"{shown}:{port}")
        return f"{shown}:{self._port}"

    def _add(self, address: str, where: str) -> int:
        try:
            port: int = self._open(address)
        except RuntimeError:
            port = 0  # older versions of gRPC return 0 instead
        if not port and self._certificate is not None:
            raise TdbgError(
                f"cannot listen on {where} with this certificate",
                where=where,
                hint="see that certificate and key are PEM and belong together (`openssl x509 -in FILE -noout -text`)",
            )
        if not port:
            raise TdbgError(
                f"cannot listen on {where}", where=where, hint="see that nothing else listens there, or name another"
            )
        return port

    def _open(self, address: str) -> int:
        if self._certificate is None:
            return int(self._server.add_insecure_port(address))
        pair = self._certificate.key, self._certificate.chain
        return int(self._server.add_secure_port(address, grpc.ssl_server_credentials([pair])))


def serve(
    host: str = "127.0.0.1",
    port: int = 50051,
    *,
    token: str | None = None,
    allow_unauthenticated: bool = False,
    certificate: Certificate | None = None,
    limits: ServerLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Server:
    """Listens for trainings at an address of this machine, a host name, or ``unix:PATH``; port 0 takes any free port.

    Our own clients must show ``token`` when other machines can reach the server; ``allow_unauthenticated`` lets clients
    without token in, such as MindSpore's. ``certificate`` encrypts connections by TLS, which MindSpore's client does
    not speak. TdbgError: the address is not available, or no client could ever connect.
    """
    private = is_private(host)
    if token is not None and not (token.isascii() and token.isprintable() and 0 < len(token) <= _MOST_TOKEN):
        raise TdbgError("a token is printable ASCII text", hint="set TDBG_TOKEN to letters and digits")
    if not private and token is None and not allow_unauthenticated:
        raise TdbgError(
            f"{host} can be reached from other machines, and there is no token",
            where=host,
            hint="set TDBG_TOKEN here and where the training runs, to what `tdbg listen --new-token` prints; "
            "MindSpore's client needs --allow-unauthenticated",
        )
    if not private and token is not None and len(token) < _LEAST_TOKEN:
        raise TdbgError(
            f"a token of {len(token)} characters can be guessed, and others than this machine may try",
            where=host,
            hint=f"take {_LEAST_TOKEN} at least: `tdbg listen --new-token` prints one",
        )
    if certificate is not None and host.startswith(UNIX):
        raise TdbgError("a Unix socket is not encrypted: only you can read it", where=host, hint="leave --tls-cert out")
    gate = Gate(token, private, allow_unauthenticated)
    return Server(host, port, gate, limits or ServerLimits(), clock, certificate=certificate)


def _check_address(host: str, port: int) -> None:
    """Binds the address as a test, because gRPC does not say what is wrong with it."""
    where = f"{host}:{port}"
    if not host:
        raise TdbgError("no address was named", where=where, hint="127.0.0.1 is this machine, 0.0.0.0 every address")
    if not 0 <= port <= 65535:
        raise TdbgError(f"{port} is no port", where=where, hint="ports are 1 to 65535; 0 takes any that is free")
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise TdbgError(
            f"{host!r} is no address of this machine", where=where, hint="try 127.0.0.1, or see `hostname -I`"
        ) from None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                raise _cannot(error, where) from None


def _cannot(error: OSError, where: str) -> TdbgError:
    hints: dict[int | None, str] = {
        errno.EADDRINUSE: "another debugger may listen there: end it, or name another port with --port",
        errno.EACCES: "ports below 1024 are for the administrator: name another with --port",
        errno.EADDRNOTAVAIL: "that is no address of this machine: try 127.0.0.1, or see `hostname -I`",
    }
    reason = os.strerror(error.errno) if error.errno else str(error)
    return TdbgError(f"cannot listen on {where}: {reason}", where=where, hint=hints.get(error.errno, ""))


def _free_path(host: str) -> Path:
    """The path of a Unix socket that nobody listens on; gRPC would take over another server's socket."""
    path = Path(host[len(UNIX) :])
    if not path.name or len(os.fsencode(path)) > _LONGEST_UNIX_PATH:
        raise TdbgError("that is no path for a socket", where=host, hint="name a short path: unix:/tmp/tdbg.sock")
    if not path.parent.is_dir():
        raise TdbgError("the directory of the socket does not exist", where=str(path.parent), hint="create it first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise TdbgError(
            "no socket can be made there", where=str(path.parent), hint="name a directory that you may write to"
        )
    try:
        mode = path.lstat().st_mode
    except OSError:
        return path
    if not stat.S_ISSOCK(mode):
        raise TdbgError("a file of that name exists, and is no socket", where=str(path), hint="name another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
            try:
                probe.connect(str(path))
            except PermissionError as error:
                raise _cannot(error, host) from None
            raise _cannot(OSError(errno.EADDRINUSE, ""), host)
    return path


@contextlib.contextmanager
def _private_files() -> Iterator[None]:
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
