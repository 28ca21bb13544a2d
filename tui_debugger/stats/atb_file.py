"""Reads tensor files of ATB on Ascend servers (MindIE, vLLM): lines of text, then the elements.

``$Version=1.0``, ``$Object.Count=1``, ``$Object.Length=24``, ``format=2``, ``dtype=0``, ``dims=2,3``,
``$Object.data=0,24``, ``$End=1``. A file may name another file instead of elements: ``data=outtensor0.bin``.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from tui_debugger.model import ReadSpec, word_pairs
from tui_debugger.stats.archive import FileBytes, opened, unreadable
from tui_debugger.stats.npy import StoredValues

MARK: Final = b"$Version="
"""The first bytes of such a file."""
_LONGEST: Final = 1 << 14
"""Most bytes of the lines."""
_END: Final = b"$End="
_OBJECT: Final = b"$Object.data"
_TYPES: Final = word_pairs("""
    0 float32  1 float16  2 int8  3 int32  4 uint8  6 int16  7 uint16  8 uint32  9 int64  10 uint64  11 float64  12 bool
    16 complex64  17 complex128  27 bfloat16
    """)
"""Element types by the numbers of ACL."""


class _Head(NamedTuple):
    """The lines of a file by name, and their length in bytes."""

    said: dict[bytes, bytes]
    length: int


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> StoredValues:
    """Returns the reader of the tensor: a ``npy.OpenValue``."""
    content = FileBytes(descriptor, 0, status.st_size, spec.path)
    head = _read_head(content, spec.path)
    if _OBJECT not in head.said:
        other = head.said.get(b"data", b"").decode("utf-8", "replace")
        raise unreadable(spec.path, f"has the values of another file: {other}" if other else "has no values")
    number, dims = head.said.get(b"dtype", b""), head.said.get(b"dims", b"")
    place = re.fullmatch(rb"(\d{1,15}),(\d{1,15})", head.said[_OBJECT])
    if not number.isdigit() or place is None or re.fullmatch(rb"(?:\d{1,15}(?:,\d{1,15})*)?", dims) is None:
        raise unreadable(spec.path, "has lines that make no sense: it is damaged")
    dtype = _TYPES.get(str(int(number)))
    if dtype is None:
        raise unreadable(spec.path, f"has elements of type {int(number)} of ACL, which is not read")
    start, length = int(place[1]), int(place[2])
    shape = tuple(int(size) for size in dims.split(b",") if size)
    values = StoredValues(content, ReadSpec(spec.path, "raw", dtype, shape, head.length + start), header=False)
    if values.layout.nbytes != length:
        raise unreadable(
            spec.path, f"says that it has {length:,} bytes of values, and that they need {values.layout.nbytes:,}"
        )
    more = status.st_size - head.length - start - length
    if more > 0:
        raise unreadable(spec.path, f"has {more:,} bytes behind its values: it is damaged")
    return values


def named_instead(path: str) -> tuple[str, ...]:
    """Returns the name of the file with the values; empty for a file with values, and for a damaged one."""
    with opened(path) as (descriptor, status):
        content = FileBytes(descriptor, 0, status.st_size, path)
        head = content.read(0, _LONGEST)
    other = re.search(rb"\ndata=([^\n]*)\n", head)
    if _OBJECT in head or other is None or not head.startswith(MARK) or _END not in head:
        return ()
    return (other[1].decode("utf-8", "surrogateescape"),)


def _read_head(content: FileBytes, path: str) -> _Head:
    head = content.read(0, _LONGEST)
    found = re.search(rb"(?:\A|\n)\$End=[^\n]*\n", head)
    if found is None:
        raise unreadable(path, "is empty" if not head else "ends inside its lines, or they are too long: it is damaged")
    lines = head[: found.start()].split(b"\n")
    return _Head({name: value for name, _, value in (line.partition(b"=") for line in lines)}, found.end())
