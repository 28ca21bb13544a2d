"""A part of the index as a file of its own: what one of several jobs measured, to be put together on another machine.

A header (``_HEAD``: magic, version, which shard of how many, number of entries, bytes of the run's path), the path, the
entries (``_ENTRY``: lengths of key and payload, both behind it), and a digest of everything before. Numbers are little
endian. A file that is cut, changed or none of ours is refused as a whole.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

_HEAD: Final = struct.Struct("<8sIIIII")
_ENTRY: Final = struct.Struct("<HQ")
_MAGIC: Final = b"tdbgpart"
_VERSION: Final = 1
_DIGEST: Final = 16
LARGEST: Final = 1 << 32
"""Bytes of a file of ours, and of what it holds unpacked."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The statistics that one job measured.

    Attributes:
        run: the directory of the dump.
        shard, of: which part of how many, from 1.
        entries: payloads of the index by key.
    """

    run: str
    shard: int
    of: int
    entries: Mapping[bytes, bytes] = field(default_factory=dict)


def pack_part(part: IndexPart) -> bytes:
    """Returns a part as the bytes of a file."""
    run = part.run.encode("utf-8", "surrogateescape")
    pieces = [_HEAD.pack(_MAGIC, _VERSION, part.shard, part.of, len(part.entries), len(run)), run]
    for key, payload in part.entries.items():
        packed = zlib.compress(payload, 1)
        pieces += [_ENTRY.pack(len(key), len(packed)), key, packed]
    body = b"".join(pieces)
    return body + blake2b(body, digest_size=_DIGEST).digest()


def unpack_part(data: bytes) -> IndexPart | None:
    """Returns what the bytes of a file hold; None where they are no part of an index, or a damaged one."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    if len(body) < _HEAD.size or blake2b(body, digest_size=_DIGEST).digest() != digest:
        return None
    magic, version, shard, of, count, length = _HEAD.unpack_from(body)
    at = _HEAD.size + length
    if (magic, version) != (_MAGIC, _VERSION) or not 1 <= shard <= of or at > len(body):
        return None
    run = body[_HEAD.size : at].decode("utf-8", "surrogateescape")
    try:
        return IndexPart(run, shard, of, dict(_entries(body, at, count)))
    except (ValueError, zlib.error, struct.error):
        return None


def _entries(body: bytes, at: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the entries; raises ValueError, zlib.error or struct.error where there are others."""
    left = LARGEST
    for _ in range(count):
        of_key, of_payload = _ENTRY.unpack_from(body, at)
        start = at + _ENTRY.size
        at = start + of_key + of_payload
        unpacker = zlib.decompressobj()
        payload = unpacker.decompress(body[start + of_key : at], left)
        left -= len(payload)
        if at > len(body) or not unpacker.eof or left <= 0:
            raise ValueError("an entry is cut")
        yield body[start : start + of_key], payload
    if at != len(body):
        raise ValueError("there is more than it says")
