"""The header of small Ascend devices, instead of a protobuf message: tags, lengths, values.

Definitions shared by both kinds of headers are here, too.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from tui_debugger.stats.device_order import Shape

MAX_RANK: Final = 32
MAX_TENSORS: Final = 1 << 15
"""Most inputs, or outputs, of one operator."""
NANO: Final = b"\x5a" * 4
"""The first bytes of such a header."""
_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE = 0, 1
_TYPES: Final = {
    **dict(enumerate((1, 2, 3, 7, 4))),
    **dict(enumerate((5, 6, 9, 8, 10, 12, 11), 6)),
    **{number: number for number in range(13, 28)},
    **dict(enumerate((0, 28, 29, 30, 31), 28)),
}
"""The number of an element type in a protobuf message, by its number here."""
_UNKNOWN: Final = 1 << 16


class BadHeaderError(ValueError):
    """A header is invalid; the text says why."""


@dataclass(frozen=True, slots=True)
class HeaderTensor:
    """A tensor in a header, in the numbers of the protobuf message. See ``ascend_file.DumpedTensor``."""

    data_type: int
    format: int
    shape: Shape
    original: Shape | None
    sub_format: int
    size: int


class _Bytes:
    """Reads one number after the other."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def __bool__(self) -> bool:
        return self._at < len(self._content)

    def numbers(self, layout: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def take(self, length: int) -> bytes:
        found = self._content[self._at : self._at + length]
        if len(found) < length:
            raise BadHeaderError("has a damaged header")
        self._at += length
        return found


def nano_tensors(header: bytes) -> tuple[list[HeaderTensor], list[HeaderTensor]]:
    """Returns inputs and outputs; raises BadHeaderError for an invalid header."""
    content = _Bytes(header)
    _, version = content.numbers("II")
    if version:
        raise BadHeaderError(f"has a header of the unknown version {version}")
    found: dict[int, list[HeaderTensor]] = {_INPUTS: [], _OUTPUTS: []}
    while content:
        tag, length = content.numbers("II")
        part = _Bytes(content.take(length))
        if tag not in found:
            continue
        (count,) = part.numbers("I")
        if count > MAX_TENSORS:
            raise BadHeaderError(f"has more than {MAX_TENSORS:,} tensors on one side")
        found[tag] += [_tensor(part, output=tag == _OUTPUTS) for _ in range(count)]
    return found[_INPUTS], found[_OUTPUTS]


def _tensor(content: _Bytes, *, output: bool) -> HeaderTensor:
    data_type, fmt, _ = content.numbers("iii")
    if output:
        content.numbers("iii")
    _, _, size, length = content.numbers("QQQI")
    shapes: dict[int, Shape] = {}
    values = _Bytes(content.take(length))
    while values:
        tag, count = values.numbers("II")
        value = values.take(count)
        if tag in (_SHAPE, _ORIGINAL_SHAPE):
            shapes[tag] = _shape(value)
    if size >= 1 << 62:
        raise BadHeaderError("has a tensor of an impossible size")
    number = fmt if fmt >= 0 else _UNKNOWN
    kind = _TYPES.get(data_type, _UNKNOWN)
    return HeaderTensor(kind, number & 0xFF, shapes.get(_SHAPE, ()), shapes.get(_ORIGINAL_SHAPE), number >> 8, size)


def _shape(content: bytes) -> Shape:
    if len(content) % 8 or len(content) > 8 * MAX_RANK:
        raise BadHeaderError("has a damaged header")
    return plausible(struct.unpack(f"<{len(content) // 8}Q", content))


def plausible(shape: Shape) -> Shape:
    """Returns the shape, or raises BadHeaderError when no tensor can have it."""
    if len(shape) > MAX_RANK:
        raise BadHeaderError(f"has a shape of more than {MAX_RANK} dimensions")
    if math.prod(n for n in shape if n) >= 1 << 60:
        raise BadHeaderError("has an impossible shape")
    return shape
