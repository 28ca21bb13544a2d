"""Reads the headers of .safetensors files: eight bytes that say how long, JSON, then the values one after the other.

The library of that name is not needed: to read values where they lie, only the header matters, and what a tensor needs
then is a type, a shape and an offset (``ReadSpec`` of the format ``raw``). What the library refuses is refused here,
too: sizes that do not fit, tensors that overlap or leave holes, keys that occur twice.
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

from tui_debugger import opener
from tui_debugger.errors import reason_of
from tui_debugger.model import ReadSpec
from tui_debugger.stats.archive import FileBytes, State, opened, state_of, unreadable
from tui_debugger.stats.npy import StoredValues

SUFFIX: Final = ".safetensors"
MAX_HEADER: Final = 100_000_000
"""Bytes of the longest header, as the library has it."""
_LENGTH: Final = 8
_KEPT: Final = 32
_TYPES: Final = {
    "BOOL": ("bool", 1),
    **{
        f"{sign}{bits}": (f"{name}{bits}", bits // 8)
        for sign, name in (("I", "int"), ("U", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{f"F{bits}": (f"float{bits}", bits // 8) for bits in (16, 32, 64)},
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "C64": ("complex64", 8),
}
"""Our names of element types, and bytes of an element."""
_PACKED: Final = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of elements that share bytes; they are known by name only."""

Kind = tuple[str, tuple[int, ...]]
"""Element type and shape."""


class _Entry(NamedTuple):
    """What the header says of one tensor, as it stands there: nothing is known of its values."""

    dtype: Any
    shape: Any
    data_offsets: Any


_ENTRY: Final = set(_Entry._fields)


class Specs(Mapping[str, ReadSpec]):
    """How each tensor of a file is read, without the path, in the order of their values.

    A file may have a million of them: they are kept as columns, and made when they are asked for.
    """

    def __init__(self, rows: dict[str, int], starts: array[int], kinds: Sequence[Kind], kind: array[int]) -> None:
        """Takes the columns.

        Args:
            rows: the rows by the names of the tensors.
            starts: first byte of each tensor, and of what is behind the last one.
            kinds: element types and shapes.
            kind: which of these each tensor has.
        """
        self._rows, self._starts, self._kinds, self._kind = rows, starts, kinds, kind

    def __getitem__(self, name: str) -> ReadSpec:
        """Returns how a tensor is read."""
        row = self._rows[name]
        start = self._starts[row]
        return ReadSpec("", "raw", *self._kinds[self._kind[row]], start, name, self._starts[row + 1] - start)

    def __iter__(self) -> Iterator[str]:
        """Returns the names."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Returns the number of tensors."""
        return len(self._rows)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the names, with the bytes of each tensor."""
        return zip(self._rows, map(sub, self._starts[1:], self._starts), strict=False)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file.

    Attributes:
        specs: how each tensor is read.
        metadata: what else was written down.
    """

    specs: Specs
    metadata: dict[str, str] = field(default_factory=dict)


_headers: dict[tuple[str, State], Header] = {}


def read_header(path: str) -> Header:
    """Returns what the header of a file says; the last ones are kept.

    Raises:
        UnreadableTensorError: the file is missing, no such file, damaged or cut off.
    """
    with opened(path) as (descriptor, status):
        try:
            return _known(descriptor, status, path)
        except OSError as error:
            raise unreadable(path, f"cannot be read: {reason_of(error, within=True)}") from error


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> StoredValues:
    """Returns the reader of one tensor: see ``npy.FORMATS``. It is where the header says now, not when it was listed.

    Raises:
        UnreadableTensorError: the file is damaged, or does not hold it.
    """
    found = _known(descriptor, status, spec.path).specs.get(spec.member)
    if found is None:
        raise unreadable(f"{spec.path}:{spec.member}", "is not in the file", "the file was written anew: look again")
    content = FileBytes(descriptor, 0, status.st_size, spec.path)
    return StoredValues(content, found.at(spec.path), header=False)


def _known(descriptor: int, status: os.stat_result, path: str) -> Header:
    key = (path, state_of(status))
    found = _headers.get(key)
    if found is None:
        found = _read(descriptor, status.st_size, path)
        while len(_headers) >= _KEPT:
            _headers.pop(next(iter(_headers)), None)
        _headers[key] = found
    return found


def _read(descriptor: int, size: int, path: str) -> Header:
    start = opener.pread(descriptor, _LENGTH, 0)
    length = int.from_bytes(start, "little")
    if len(start) < _LENGTH or _LENGTH + length > size:
        raise unreadable(path, "ends inside its header", "the file was probably never written to the end")
    if length > MAX_HEADER:
        raise unreadable(path, f"has a header of {length:,} bytes: that is not plausible")
    try:
        found = json.loads(opener.pread(descriptor, length, _LENGTH), object_pairs_hook=_without_twins)
        return _header(found, _LENGTH + length, size)
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, _DamagedError) else "is no .safetensors file: its header is no JSON"
        raise unreadable(path, what) from error


class _DamagedError(ValueError):
    """Something in a header that is not as it has to be."""


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Entry:
    """Returns a table; the entry of a tensor as what takes a third of its memory."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _DamagedError("has a key in its header twice: which one counts is not known")
    return _Entry(**found) if found.keys() == _ENTRY else found


def _header(found: Any, begin: int, size: int) -> Header:
    if not isinstance(found, dict):
        raise _DamagedError("has a header that is no table")
    metadata = found.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _DamagedError("has notes in its header that are no text")
    entries = sorted(((*_checked(name, each), name) for name, each in found.items()), key=lambda entry: entry[:2])
    at = 0
    for first, end, _, _, name in entries:
        if first != at:
            raise _DamagedError(f"has {'a hole' if first > at else 'an overlap'} before {name!r:.100}: it is damaged")
        at = end
    if begin + at != size:
        what = "is cut off" if begin + at > size else "has bytes behind its values: it is damaged"
        raise _DamagedError(f"{what}: {begin + at:,} bytes are stated, and there are {size:,}")
    kinds: dict[Kind, int] = {}
    kind = array("i", (kinds.setdefault((dtype, shape), len(kinds)) for _, _, dtype, shape, _ in entries))
    starts = array("q", (begin + first for first, *_ in entries))
    starts.append(begin + at)
    rows = {name: row for row, (*_, name) in enumerate(entries)}
    return Header(Specs(rows, starts, list(kinds), kind), metadata)


def _checked(name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Returns first byte, end, element type and shape of one tensor."""
    if not isinstance(entry, _Entry) or not isinstance(entry.dtype, str):
        raise _DamagedError(f"says something else of {name!r:.100} than type, shape and place")
    dtype, shape, offsets = entry
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _DamagedError(f"has a shape or a place of {name!r:.100} that is none")
    known = _TYPES.get(dtype)
    bits = known[1] * 8 if known is not None else _PACKED.get(dtype)
    if bits is None:
        raise _DamagedError(f"has the unknown element type {dtype!r:.40}")
    first, end = offsets
    if (end - first) * 8 != math.prod(shape) * bits:
        raise _DamagedError(
            f"states {end - first:,} bytes for {name!r:.100}, which do not fit its shape {shape!s:.100}"
        )
    return first, end, known[0] if known is not None else dtype, tuple(shape)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)
