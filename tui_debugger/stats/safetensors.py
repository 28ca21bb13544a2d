"""Reads the headers of .safetensors files: eight bytes of length, JSON, then the values one after the other.

The safetensors library is not needed: reading values in place takes only type, shape and offset (``ReadSpec`` of format
``raw``). Headers that the library refuses are refused, too: wrong sizes, overlaps, holes, duplicate keys.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import sub
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger import opener
from tui_debugger.errors import reason_of
from tui_debugger.model import ReadSpec, word_pairs
from tui_debugger.stats.archive import FileBytes, State, opened, state_of, unreadable
from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.stats.kept import Kept
from tui_debugger.stats.npy import StoredValues

SUFFIX: Final = ".safetensors"
MAX_HEADER: Final = 100_000_000
"""Longest header in bytes, as in the library."""
_LENGTH: Final = 8
_EACH: Final = 200
"""Approximate bytes of memory for each tensor: its name and its columns."""
_NAMES: Final = word_pairs("""
    BOOL bool  I8 int8  I16 int16  I32 int32  I64 int64  U8 uint8  U16 uint16  U32 uint32  U64 uint64  F16 float16
    F32 float32  F64 float64  BF16 bfloat16  C64 complex64  F8_E4M3 float8_e4m3fn  F8_E5M2 float8_e5m2
    F8_E4M3FNUZ float8_e4m3fnuz  F8_E5M2FNUZ float8_e5m2fnuz  F8_E8M0 float8_e8m0fnu
    """)
_TYPES: Final = {word: (name, dtype.itemsize) for word, name in _NAMES.items() if (dtype := dtype_of(name)) is not None}
"""Our name of each element type, and its bytes."""
_PACKED: Final = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of elements that share bytes; these types are known by name only."""

Kind = tuple[str, tuple[int, ...]]
"""Element type and shape."""


class _HeaderEntry(NamedTuple):
    """The unchecked entry of one tensor in the header."""

    dtype: Any
    shape: Any
    data_offsets: Any


_ENTRY: Final = set(_HeaderEntry._fields)


class HeaderSpecs(Mapping[str, ReadSpec]):
    """The specs of a file's tensors, without the path, in the order of their values.

    A file may have a million, so they are columns: ``rows`` by name, ``starts`` (with the end), and indices into
    ``kinds``.
    """

    def __init__(self, rows: dict[str, int], starts: array[int], kinds: Sequence[Kind], kind: array[int]) -> None:
        self._rows, self._starts, self._kinds, self._kind = rows, starts, kinds, kind

    def __getitem__(self, name: str) -> ReadSpec:
        row = self._rows[name]
        start = self._starts[row]
        return ReadSpec("", "raw", *self._kinds[self._kind[row]], start, name, self._starts[row + 1] - start)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the names, with the bytes of each tensor."""
        return zip(self._rows, map(sub, self._starts[1:], self._starts), strict=False)


@dataclass(frozen=True, slots=True)
class SafetensorsHeader:
    """The header of a file."""

    specs: HeaderSpecs
    metadata: dict[str, str] = field(default_factory=dict)


_headers: Kept[tuple[str, State], SafetensorsHeader] = Kept(lambda header: len(header.specs) * _EACH)


def read_header(path: str) -> SafetensorsHeader:
    """Returns the header of a file, cached; or raises UnreadableTensorError."""
    with opened(path) as (descriptor, status):
        try:
            return _known(descriptor, status, path)
        except OSError as error:
            raise unreadable(path, f"cannot be read: {reason_of(error, within=True)}") from error


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> StoredValues:
    """Returns the reader of one tensor (``npy.OpenValue``), by the current header, not the listed one."""
    found = _known(descriptor, status, spec.path).specs.get(spec.member)
    if found is None:
        raise unreadable(f"{spec.path}:{spec.member}", "is not in the file", "the file was written anew: look again")
    content = FileBytes(descriptor, 0, status.st_size, spec.path)
    return StoredValues(content, found.at(spec.path), header=False)


def _known(descriptor: int, status: os.stat_result, path: str) -> SafetensorsHeader:
    key = (path, state_of(status))
    return _headers.get(key, lambda: _read(descriptor, status.st_size, path))


def _read(descriptor: int, size: int, path: str) -> SafetensorsHeader:
    start = opener.pread(descriptor, _LENGTH, 0)
    length = int.from_bytes(start, "little")
    if len(start) < _LENGTH or _LENGTH + length > size:
        raise unreadable(path, "ends inside its header", "the file was probably never written to the end")
    if length > MAX_HEADER:
        raise unreadable(path, f"has a header of {length:,} bytes: that is not plausible")
    try:
        entries = _Entries()
        found = json.loads(opener.pread(descriptor, length, _LENGTH), object_pairs_hook=entries.table)
        return _header(found, entries, _LENGTH + length, size)
    except (ValueError, RecursionError) as error:
        what = (
            str(error) if isinstance(error, _DamagedHeaderError) else "is no .safetensors file: its header is no JSON"
        )
        raise unreadable(path, what) from error


class _DamagedHeaderError(ValueError):
    """A header that breaks the format."""


class _Entries:
    """The tensor entries of a header as columns, made while it is parsed: objects would take ten times the memory.

    ``first`` and ``end`` count from the first tensor's first byte; ``kind`` indexes ``kinds``.
    """

    def __init__(self) -> None:
        self.first, self.end, self.kind = array("q"), array("q"), array("i")
        self.kinds: dict[Kind, int] = {}

    def table(self, pairs: list[tuple[str, Any]]) -> Any:
        """Returns the stand-in for a JSON object of the header: ``_TAKEN`` for a valid entry."""
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _DamagedHeaderError("has a key in its header twice: which one counts is not known")
        if found.keys() != _ENTRY:
            return found
        entry = _HeaderEntry(**found)
        try:
            first, end, dtype, shape = _checked("", entry)
        except _DamagedHeaderError:
            return entry  # ``_header``, which knows its name, reports the error
        if end > _MOST:
            return entry
        self.first.append(first)
        self.end.append(end)
        self.kind.append(self.kinds.setdefault((dtype, shape), len(self.kinds)))
        return _TAKEN


_TAKEN: Final = object()
"""Stands for the entry of a tensor that is a row of ``_Entries``."""
_MOST: Final = 1 << 62
"""More bytes than any file has."""


def _header(found: Any, entries: _Entries, begin: int, size: int) -> SafetensorsHeader:
    if not isinstance(found, dict):
        raise _DamagedHeaderError("has a header that is no table")
    metadata = found.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _DamagedHeaderError("has notes in its header that are no text")
    for name, each in found.items():
        if each is not _TAKEN:
            stated = begin + _checked(name, each)[1]
            raise _DamagedHeaderError(_wrong_size(stated, size))
    names = list(found)
    first, end = np.array(entries.first, np.int64), np.array(entries.end, np.int64)
    order = np.lexsort((end, first))
    first, end = first[order], end[order]
    before = np.concatenate([np.zeros(1, np.int64), end])[:-1]
    for row in np.flatnonzero(first != before)[:1].tolist():
        what = "a hole" if first[row] > before[row] else "an overlap"
        raise _DamagedHeaderError(f"has {what} before {names[int(order[row])]!r:.100}: it is damaged")
    starts = array("q", (begin + np.append(first, end[-1:] if len(end) else 0)).tobytes())
    if starts[-1] != size:
        raise _DamagedHeaderError(_wrong_size(starts[-1], size))
    kind = array("i", np.array(entries.kind, np.int32)[order].tobytes())
    rows = {names[at]: row for row, at in enumerate(order.tolist())}
    return SafetensorsHeader(HeaderSpecs(rows, starts, list(entries.kinds), kind), metadata)


def _wrong_size(stated: int, size: int) -> str:
    what = "is cut off" if stated > size else "has bytes behind its values: it is damaged"
    return f"{what}: {stated:,} bytes are stated, and there are {size:,}"


def _checked(name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Returns first byte, end, element type and shape of one tensor."""
    if not isinstance(entry, _HeaderEntry) or not isinstance(entry.dtype, str):
        raise _DamagedHeaderError(f"says something else of {name!r:.100} than type, shape and place")
    dtype, shape, offsets = entry
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _DamagedHeaderError(f"has a shape or a place of {name!r:.100} that is none")
    known = _TYPES.get(dtype)
    bits = known[1] * 8 if known is not None else _PACKED.get(dtype)
    if bits is None:
        raise _DamagedHeaderError(f"has the unknown element type {dtype!r:.40}")
    first, end = offsets
    if (end - first) * 8 != math.prod(shape) * bits:
        raise _DamagedHeaderError(
            f"states {end - first:,} bytes for {name!r:.100}, which do not fit its shape {shape!s:.100}"
        )
    return first, end, known[0] if known is not None else dtype, tuple(shape)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
