"""Whether the connection of a client still stands, as the operating system sees it.

gRPC tells a server nothing of a connection that closes while no call is open, and MindSpore's client has none while it
trains. Linux lists connections; elsewhere only heartbeats tell.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_MOST: Final = 16 << 20
"""Bytes of a table that are read: of a machine with more connections nothing is concluded."""
_ESTABLISHED, _LISTENS = "01", "0A"

Peer = tuple[str, int]
"""Address and port."""


def gone(peers: Iterable[str], port: int, tables: Callable[[], str | None] | None = None) -> set[str]:
    """Of some clients of this server, as gRPC names them, those whose connection stands no more.

    Args:
        peers: ``ipv4:127.0.0.1:52114``; what is no address of the internet is passed over.
        port: where this server listens: tables in which that is not are of another network, and tell nothing.
        tables: gives the text of the tables; None where there are none.
    """
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
    """IPv4 in IPv6 as IPv4: which of the two a table or gRPC says depends on the socket that listens."""
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
