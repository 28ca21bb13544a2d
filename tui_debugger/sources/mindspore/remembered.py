"""Listings of earlier sessions: a directory that still looks the same is not listed again.

The store holds two kinds of payloads. ``names`` are patterns (see ``lexicon``) with their texts, found by the digest of
their content, so that the steps of a run share one. ``listing`` is the rest of one directory, found by its path: how it
looked when it was listed, the digest of its pattern, and its timestamps. Nothing in a payload is trusted.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Int32, Int64
from tui_debugger.cache.store import DiskCache
from tui_debugger.model import ProgressFn
from tui_debugger.sources.base import Names
from tui_debugger.sources.mindspore.files import Oddities
from tui_debugger.sources.mindspore.layout import Stamp
from tui_debugger.sources.mindspore.lexicon import Lexicon, Pattern
from tui_debugger.sources.mindspore.listing import Part
from tui_debugger.sources.mindspore.names import split_name
from tui_debugger.sources.mindspore.statcsv import FILE as STATISTICS
from tui_debugger.sources.mindspore.statcsv import read_statistics

KIND: Final = "listing"
KIND_NAMES: Final = "names"
WORTHWHILE: Final = 200
"""Entries from which a directory is worth remembering."""
_KEPT = 4
"""So many patterns are kept unpacked: the steps of a run follow one another."""

_VERSION: Final = 3
_STAMPS: Final = 3
_HEAD: Final = struct.Struct(f"<4sB3x16s{4 * _STAMPS}q6q")
"""Magic, version, key of the pattern, stamps, then entries, files, odd names and their bytes, bytes of complaints, and
whether there is a ``statistic.csv``."""
_MAGIC: Final = b"tdbL"
_NAMES_HEAD: Final = struct.Struct("<4sB3x7q")
"""Magic, version, files, and number and bytes of prefixes, devices, endings."""
_NAMES_MAGIC: Final = b"tdbN"
_BLANK: Final = b"\0"


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """A pattern from the store, and where its files were before they were sorted for this lexicon (None: there)."""

    pattern: Pattern
    by: Int64 | None


class RememberedListings:
    """What the store knows of directories. Not thread-safe: its owner locks."""

    def __init__(self, store: DiskCache, lexicon: Lexicon) -> None:
        """Nothing is asked yet."""
        self._store, self._lexicon = store, lexicon
        self._unpacked: OrderedDict[tuple[bytes, int], _Unpacked] = OrderedDict()
        self._keys: WeakKeyDictionary[Pattern, bytes] = WeakKeyDictionary()

    def recall(self, path: Path, place: int, stamps: tuple[Stamp, ...], progress: ProgressFn) -> Part | None:
        """The listing of a directory that looks as it did; its ``statistic.csv`` is read anew.

        Raises:
            CancelledError: from ``progress``.
        """
        payload = self._store.get(KIND, _key(path))
        if payload is None or len(payload) < _HEAD.size:
            return None
        magic, version, key, *numbers = _HEAD.unpack_from(payload)
        looks, counts = tuple(numbers[: 4 * _STAMPS]), numbers[4 * _STAMPS :]
        if (magic, version) != (_MAGIC, _VERSION) or looks != tuple(field for each in stamps for field in each):
            return None
        entries, files, odd, odd_bytes, complained, recorded = counts
        sizes = (8 * files, 8 * odd, 8 * odd, odd_bytes, complained)
        if min(counts) < 0 or odd > files or files > entries or len(payload) != _HEAD.size + sum(sizes):
            return None
        starts = np.cumsum([_HEAD.size, *sizes]).tolist()
        timestamp, odd_at, odd_ends = (_column(payload, starts[i], sizes[i] // 8, "<i8") for i in range(3))
        unpacked = self._pattern(key, place)
        names = payload[starts[3] : starts[4]]
        if unpacked is None or len(unpacked.pattern) != files or not _sound(timestamp, odd_at, odd_ends, names):
            return None
        if unpacked.by is not None:
            timestamp = timestamp[unpacked.by]
            back = np.empty(files, np.int64)
            back[unpacked.by] = np.arange(files)
            odd_at = back[odd_at]
        try:
            statistics = read_statistics(path / STATISTICS, progress) if recorded else None
        except OSError:
            return None
        oddities = Oddities.sorted(odd_at, Names(names, odd_ends))
        complaints = _complaints(payload[starts[4] :])
        return Part(os.fsencode(path), place, unpacked.pattern, timestamp, oddities, statistics, complaints, entries)

    def keep(self, path: Path, stamps: tuple[Stamp, ...], part: Part) -> None:
        """Remembers a directory that looked like this before it was listed and still does."""
        if part.entries < WORTHWHILE or part.missing:  # what cannot be looked at is looked at anew every time
            return
        key = self._keys.get(part.pattern)
        if key is None:
            names = _pack_names(self._lexicon, part.pattern)
            key = self._keys[part.pattern] = blake2b(names, digest_size=16).digest()
            if self._store.get(KIND_NAMES, key) is None:
                self._store.put(KIND_NAMES, key, names)
        odd = list(part.odd.names)
        complaints = "\n".join(f"{count} {text}" for text, count in part.complaints.items()).encode()
        head = _HEAD.pack(
            *(_MAGIC, _VERSION, key, *(field for each in stamps for field in each)),
            *(part.entries, len(part.timestamp), len(odd), sum(map(len, odd)), len(complaints)),
            part.statistics is not None,
        )
        columns = (part.timestamp, part.odd.at, np.cumsum([len(name) for name in odd]))
        blobs = [column.astype("<i8").tobytes() for column in columns]
        self._store.put(KIND, _key(path), b"".join([head, *blobs, *odd, complaints]))

    def _pattern(self, key: bytes, place: int) -> _Unpacked | None:
        found = self._unpacked.get((key, place))
        if found is None:
            payload = self._store.get(KIND_NAMES, key)
            found = _unpack_names(self._lexicon, place, payload) if payload is not None else None
            if found is None:
                return None
            self._unpacked[key, place] = found
            if len(self._unpacked) > _KEPT:
                self._unpacked.popitem(last=False)
            if found.by is None:
                self._keys[found.pattern] = key
        self._unpacked.move_to_end((key, place))
        return found


def _key(path: Path) -> bytes:
    return blake2b(os.path.realpath(os.fsencode(path)), digest_size=16).digest()


def _column(payload: bytes, start: int, count: int, dtype: str) -> npt.NDArray[Any]:
    return np.frombuffer(payload, dtype, count, start)


def _sound(timestamp: Int64, odd_at: Int64, odd_ends: Int64, names: bytes) -> bool:
    """Whether the columns of a listing can be what was written."""
    if len(timestamp) and timestamp.min() < 0:
        return False
    if not len(odd_at):
        return not names
    ascending = bool((np.diff(odd_at) > 0).all()) and bool((np.diff(odd_ends) > 0).all())
    inside = odd_at[0] >= 0 and odd_at[-1] < len(timestamp) and odd_ends[0] > 0 and odd_ends[-1] == len(names)
    return ascending and bool(inside) and b"/" not in names and _BLANK not in names


def _complaints(payload: bytes) -> dict[str, int]:
    found = {}
    for line in payload.decode("utf-8", "replace").splitlines():
        count, _, text = line.partition(" ")
        if count.isdecimal():
            found[text] = int(count)
    return found


def _pack_names(lexicon: Lexicon, pattern: Pattern) -> bytes:
    """A pattern with its texts, numbered from 0 in the order of the lexicon."""
    blobs: list[bytes] = []
    columns: list[bytes] = []
    counts: list[int] = []
    for column, texts in (
        (pattern.prefix, lexicon.prefixes),
        (pattern.device, lexicon.devices),
        (pattern.ending, lexicon.endings),
    ):
        used, numbers = np.unique(column, return_inverse=True)
        blobs.append(_BLANK.join([texts[number] for number in used.tolist()]))
        columns.append(numbers.astype("<i4").tobytes())
        counts += [len(used), len(blobs[-1])]
    return b"".join([_NAMES_HEAD.pack(_NAMES_MAGIC, _VERSION, len(pattern), *counts), *columns, *blobs])


def _unpack_names(lexicon: Lexicon, place: int, payload: bytes) -> _Unpacked | None:
    """A pattern in this lexicon; None when the payload makes no sense."""
    if len(payload) < _NAMES_HEAD.size:
        return None
    magic, version, files, *counts = _NAMES_HEAD.unpack_from(payload)
    blob_sizes = counts[1::2]
    if (magic, version) != (_NAMES_MAGIC, _VERSION) or min(files, *counts) < 0:
        return None
    start = _NAMES_HEAD.size + 12 * files
    if len(payload) != start + sum(blob_sizes) or b"/" in payload[start:]:
        return None
    columns = []
    enter = (lambda text: _prefix(lexicon, place, text), lambda text: _device(lexicon, text), lexicon.ending_number)
    for at, (count, size) in enumerate(zip(counts[::2], blob_sizes, strict=True)):
        texts = payload[start : start + size].split(_BLANK) if count else []
        start += size
        numbers = np.array([enter[at](text) for text in texts], np.int32)
        column = _column(payload, _NAMES_HEAD.size + 4 * at * files, files, "<i4")
        if len(texts) != count or (numbers < 0).any() or (files and not 0 <= column.min() <= column.max() < count):
            return None
        columns.append(numbers[column] if count else np.zeros(0, np.int32))
    return _in_order(lexicon, *columns)


def _in_order(lexicon: Lexicon, prefix: Int32, device: Int32, ending: Int32) -> _Unpacked:
    """The pattern of these columns, sorted if it has to be: the lexicon may know the texts in another order."""
    by: Int64 | None = None
    keys = (prefix.astype(np.int64) << 32) | ending
    if (keys[1:] < keys[:-1]).any():
        by = np.argsort(keys, kind="stable")
        prefix, device, ending = prefix[by], device[by], ending[by]
    if len(device) and (device == device[0]).all():
        device = np.broadcast_to(device[0], device.shape)
    return _Unpacked(lexicon.pattern(prefix, device, ending), by)


def _prefix(lexicon: Lexicon, place: int, text: bytes) -> int:
    return lexicon.prefix_number(place, text) if 0 < text.find(b".") < len(text) - 1 else -1


def _device(lexicon: Lexicon, text: bytes) -> int:
    fields = split_name(b"Type.name" + text + b"0.output.0.F.npy")
    return lexicon.device_number(text) if fields is not None and fields[0] == b"Type.name" else -1
