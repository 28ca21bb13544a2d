"""Digests of tensor files of earlier sessions: what names do not tell is not read twice.

The store keeps one payload per directory, found by its path: a row per file that was read, valid as long as the file
has the same size and modification time. Nothing in a payload is trusted.
"""

from __future__ import annotations

import os
import struct
import time
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int64
from tui_debugger.cache.store import DiskCache
from tui_debugger.sources.mindspore.files import Files
from tui_debugger.sources.mindspore.values import WHOLE, Digest

KIND: Final = "contents"
YOUNG_NS: Final = 5 * 10**9
"""A file changed more recently than this may change again and look the same."""
_HEAD: Final = struct.Struct("<4sB3xq")
"""Magic, version, rows."""
_MAGIC: Final = b"tdbC"
_VERSION: Final = 1
_ROW: Final = np.dtype(
    [("name", "V16"), ("size", "<i8"), ("mtime", "<i8"), ("bytes", "<i8"), ("whole", "?"), ("digest", "V16")]
)
"""Digest of the file's name, how the file looked, bytes of its values, whether all of them are in the digest."""

_Row = tuple[int, int, int, bytes]
"""(size, modification time, bytes of the values, digest)."""


class Contents:
    """What the store knows about the contents of one listing's files. For one call of the matcher."""

    def __init__(self, store: DiskCache, files: Files) -> None:
        """Nothing is asked yet."""
        self._store, self._files = store, files
        self._rows: dict[int, dict[tuple[bytes, bool], _Row]] = {}
        self._fresh: set[int] = set()
        self._known: set[int] = set()
        self._looks: dict[int, tuple[bytes, int, int]] = {}

    def get(self, index: int, whole: bool) -> Digest | None:
        """The digest of a file (of its samples, unless it is small or ``whole`` is asked) that looks as it did."""
        rows = self._directory(int(self._files.directory[index]))
        name, size, mtime = self._look(index)
        for kind in (whole, True):
            row = rows.get((name, kind))
            if row is not None and row[:2] == (size, mtime) and (kind == whole or row[2] <= WHOLE):
                self._known.add(index)
                return Digest(row[3], row[2], kind)
        return None

    def put(self, index: int, digest: Digest) -> None:
        """Takes the digest of a file that was just read."""
        self._known.add(index)
        name, size, mtime = self._look(index)
        if size >= 0 and abs(time.time_ns() - mtime) >= YOUNG_NS:
            number = int(self._files.directory[index])
            self._directory(number)[name, digest.whole] = (size, mtime, digest.size, digest.text)
            self._fresh.add(number)

    def read(self) -> tuple[Int64, Int64, Int64] | None:
        """Numbers of the files that were asked for, their sizes and modification times before they were read.

        None when the system refused to read one of them, or one may change without looking different.
        """
        looks = [(index, size, mtime) for index, (_, size, mtime) in self._looks.items()]
        columns = np.array(looks, np.int64).reshape(-1, 3)
        young = np.abs(time.time_ns() - columns[:, 2]) < YOUNG_NS
        if self._looks.keys() - self._known or young.any():
            return None
        return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()

    def keep(self) -> None:
        """Writes what is new."""
        for number in self._fresh:
            rows = [(name, *row[:3], kind, row[3]) for (name, kind), row in self._rows[number].items()]
            column = np.array(rows, _ROW)
            self._store.put(KIND, self._key(number), _HEAD.pack(_MAGIC, _VERSION, len(column)) + column.tobytes())
        self._fresh.clear()

    def _look(self, index: int) -> tuple[bytes, int, int]:
        """(digest of the name, size, modification time) of a file before it was read; size -1 when it is gone."""
        if index not in self._looks:
            path = os.fsencode(self._files.path(index))
            try:
                status = os.stat(path)  # noqa: PTH116 - a path of bytes
                look = (status.st_size, status.st_mtime_ns)
            except (OSError, ValueError):
                look = (-1, 0)
            self._looks[index] = (blake2b(path.rpartition(b"/")[2], digest_size=16).digest(), *look)
        return self._looks[index]

    def _directory(self, number: int) -> dict[tuple[bytes, bool], _Row]:
        if number not in self._rows:
            payload = self._store.get(KIND, self._key(number))
            rows = _unpack(payload) if payload is not None else None
            # A directory into which run after run is dumped does not drag the files of all of them along.
            self._rows[number] = _by_name(rows) if rows is not None and len(rows) <= 4 * len(self._files) else {}
        return self._rows[number]

    def _key(self, number: int) -> bytes:
        return blake2b(os.path.realpath(self._files.directories[number]), digest_size=16).digest()


def _unpack(payload: bytes) -> npt.NDArray[Any] | None:
    if len(payload) < _HEAD.size:
        return None
    magic, version, count = _HEAD.unpack_from(payload)
    if (magic, version) != (_MAGIC, _VERSION) or count < 0 or len(payload) != _HEAD.size + count * _ROW.itemsize:
        return None
    return np.frombuffer(payload, _ROW, count, _HEAD.size)


def _by_name(rows: npt.NDArray[Any]) -> dict[tuple[bytes, bool], _Row]:
    names, digests = rows["name"].tolist(), rows["digest"].tolist()
    numbers = (rows[field].tolist() for field in ("size", "mtime", "bytes"))
    keys = zip(names, rows["whole"].tolist(), strict=True)
    return dict(zip(keys, zip(*numbers, digests, strict=True), strict=True))
