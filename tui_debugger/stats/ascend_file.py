"""Reads asynchronous dumps of Ascend devices, without the vendor's toolkit and without writing any file.

A file holds all tensors of one execution of an operator: the length of a header (8 bytes), the header (a protobuf
message ``DumpData``), the bytes of all inputs, outputs and buffers. Tensors are stored in the device's layout: padded,
in blocks of 16 channels or so (see ``device_order``). A ``.npy`` file whose name says that its values are still in that
layout is read as well. The header is parsed strictly, and no number in it is trusted.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, cast

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, Int64, UInt8
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec, Side, words
from tui_debugger.opener import open_regular
from tui_debugger.stats import kernel
from tui_debugger.stats.archive import FileBytes, unreadable
from tui_debugger.stats.ascend_nano import (
    MAX_RANK,
    MAX_TENSORS,
    NANO,
    BadHeaderError,
    HeaderTensor,
    nano_tensors,
    plausible,
)
from tui_debugger.stats.decoded_types import DECODED, DecodedType
from tui_debugger.stats.device_order import DeviceOrder, Shape, SharedBytes, device_order, unconverted_order
from tui_debugger.stats.dtypes import DType, dtype_of
from tui_debugger.stats.kernel.elements import copy_elements
from tui_debugger.stats.npy import WHOLE_FILE, FileArray, StoredValues, ValueLayout, ValueReader
from tui_debugger.stats.protobuf_fields import fields_of, varint

MAX_HEADER: Final = 1 << 24
"""Longest header accepted, in bytes: enough for 100,000 tensors."""
_LENGTH: Final = 8
_AHEAD: Final = 1 << 24
"""Bytes that are converted ahead for a sequential reader.

Neighbours in the tensor may lie far apart in the file: the more rows at once, the longer the contiguous runs that are
copied.
"""

_TYPES: Final = words("""
    undefined float32 float16 int8 uint8 int16 uint16 int32 int64 uint32 uint64 bool float64 string dual_sub_int8
    dual_sub_uint8 complex64 complex128 qint8 qint16 qint32 quint8 quint16 resource string_ref dual variant bfloat16
    int4 uint1 int2 uint2 complex32 hifloat8 float8_e5m2 float8_e4m3fn float8_e8m0fnu float6_e3m2 float6_e2m3
    float4_e2m1 float4_e1m2 hifloat4
    """)
_READ_AS: Final = {
    "qint8": "int8",
    "qint16": "int16",
    "qint32": "int32",
    "quint8": "uint8",
    "quint16": "uint16",
    "resource": "int64",
}
"""Types that are read as another type: quantised values as their integers, handles as numbers."""
_BYTE: Final = np.dtype("S1")
_BITS: Final = {"int4": 4, "int2": 2, "uint2": 2, "uint1": 1, "float4_e2m1": 4, "float4_e1m2": 4}
"""Types with several elements in a byte, the first one in the lowest bits; for uint1 in the highest bit."""
_NO_NUMBERS: Final = frozenset({"string", "string_ref", "variant", "dual", "dual_sub_int8", "dual_sub_uint8"})
"""Types whose elements are no numbers: they are read as bytes, without statistics."""
_UNREADABLE: Final = {
    "undefined": "whose type the device did not know",
    "float6_e3m2": "and how six bits are packed is not published",
    "float6_e2m3": "and how six bits are packed is not published",
    "hifloat4": "whose layout is not published",
}

_FORMATS: Final = words("""
    NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0 FRACTAL_DECONV_TRANSPOSE
    FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN FRACTAL_DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0
    BN_WEIGHT FILTER_HWCK HASHTABLE_LOOKUP_LOOKUPS HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE
    HASHTABLE_LOOKUP_OUTPUT HASHTABLE_LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW DHWCN NDC1HWC0
    FRACTAL_Z_3D CN NC DHWNC FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS
    FRACTAL_ZN_RNN YUV YUV_A NCL FRACTAL_Z_WINO C1HWC0 FRACTAL_NZ_C0_16 FRACTAL_NZ_C0_32 FRACTAL_NZ_C0_2
    FRACTAL_NZ_C0_4 FRACTAL_NZ_C0_8
    """)
_RANKS: Final = {"NCHW": 4, "NHWC": 4, "CHWN": 4, "HWCN": 4, "NCDHW": 5, "NDHWC": 5, "DHWCN": 5, "DHWNC": 5}
"""Formats that name one axis each; for a tensor of another rank such a format means as little as ND."""
_PLAIN: Final = frozenset({*_RANKS, "ND", "MD", "CN", "NC"})
"""Formats that only name the dimensions: C order, no padding."""
DEVICE_FORMATS: Final = frozenset(_FORMATS) - _PLAIN
"""Formats whose elements may be in another order than in the program."""


# -- the header --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpedTensor:
    """One tensor of a file, as the header describes it.

    ``shape`` is the device's, ``original_shape`` the program's (None: not stated). ``data_type`` and ``format`` are
    names, empty for unknown numbers, which are in ``codes``. ``groups`` is not 1 only for a grouped convolution's
    weights. ``start`` and ``size`` are the place of the bytes in the file.
    """

    side: Side
    slot: int
    data_type: str
    format: str
    shape: Shape
    original_shape: Shape | None
    groups: int
    start: int
    size: int
    codes: tuple[int, int]

    @property
    def member(self) -> str:
        """The name in ``ReadSpec.member``, such as ``input.0``."""
        return member_name(self.side, self.slot)

    @property
    def absent(self) -> bool:
        """Tells whether there is no tensor: an optional input that was not given."""
        return not self.shape and not self.size


@dataclass(frozen=True)
class DumpHeader:
    """The header of one file; ``tensors`` has inputs, then outputs.

    ``size`` counts the bytes that the file must have, with the device's buffers and workspace behind the tensors.
    """

    tensors: tuple[DumpedTensor, ...]
    op_name: str
    size: int

    @cached_property
    def by_member(self) -> dict[str, DumpedTensor]:
        return {each.member: each for each in self.tensors}


def member_name(side: Side | int, slot: int) -> str:
    return f"{'output' if side == Side.OUTPUT else 'input'}.{slot}"


def read_header(path: str | bytes) -> DumpHeader:
    """Returns the header of a file.

    Raises OSError when the file cannot be read, BadHeaderError for a damaged header or another format.
    """
    descriptor, status = open_regular(path)
    try:
        return _header(descriptor, status)
    finally:
        opener.close(descriptor)


def _header(descriptor: int, status: os.stat_result) -> DumpHeader:
    head = opener.pread(descriptor, 1 << 12, 0)
    if len(head) < _LENGTH:
        raise BadHeaderError("is empty" if not head else "ends inside its header")
    length = int.from_bytes(head[:_LENGTH], "little")
    if not length:
        raise BadHeaderError("has no header: zeros, or values that nothing describes")
    if length > MAX_HEADER:
        raise BadHeaderError(f"has a header of {length:,} bytes, which is not plausible")
    if length > status.st_size - _LENGTH:
        raise BadHeaderError("ends inside its header")
    while len(head) < _LENGTH + length:
        piece = opener.pread(descriptor, _LENGTH + length - len(head), len(head))
        if not piece:
            raise BadHeaderError("ends inside its header")
        head += piece
    header = parse_header(head[_LENGTH : _LENGTH + length])
    if not header.tensors and (rest := status.st_size - header.size) > 0:
        raise BadHeaderError(f"holds {rest:,} bytes, and its header tells of no tensor")
    return header


@lru_cache(maxsize=64)
def parse_header(message: bytes) -> DumpHeader:
    """Parses a ``DumpData`` message, or the header that small devices write instead; BadHeaderError: not understood."""
    if message.startswith(NANO):
        inputs, outputs = nano_tensors(message)
        return _placed(len(message), inputs, outputs)
    found: dict[int, list[HeaderTensor]] = {3: [], 4: []}
    behind, name = 0, b""
    for number, value in _fields(message):
        if number in found:
            if len(found[number]) == MAX_TENSORS:
                raise BadHeaderError(f"has more than {MAX_TENSORS:,} tensors on one side")
            found[number].append(_tensor(_bytes(value), number == 3))
        elif number in (5, 8):
            behind += _size_of(value)
        elif number == 6:
            name = _bytes(value)
    return _placed(len(message), found[4], found[3], name.decode("utf-8", "replace"), behind)


def _placed(
    length: int, inputs: Sequence[HeaderTensor], outputs: Sequence[HeaderTensor], name: str = "", behind: int = 0
) -> DumpHeader:
    """Returns a header whose tensors lie one after the other."""
    tensors: list[DumpedTensor] = []
    start = _LENGTH + length
    for side, found in ((Side.INPUT, inputs), (Side.OUTPUT, outputs)):
        if len(found) > MAX_TENSORS:
            raise BadHeaderError(f"has more than {MAX_TENSORS:,} tensors on one side")
        for slot, each in enumerate(found):
            tensors.append(_dumped(each, side, slot, start))
            start += each.size
    return DumpHeader(tuple(tensors), name, start + behind)


def _size_of(value: int | bytes) -> int:
    """Returns the size of a buffer or workspace."""
    return next((_number(size) for field, size in _fields(_bytes(value)) if field == 3), 0)


def _dumped(tensor: HeaderTensor, side: Side, slot: int, start: int) -> DumpedTensor:
    fmt = _FORMATS[tensor.format] if tensor.format < len(_FORMATS) else ""
    return DumpedTensor(
        side=side,
        slot=slot,
        data_type=_TYPES[tensor.data_type] if tensor.data_type < len(_TYPES) else "",
        format=fmt,
        shape=tensor.shape,
        original_shape=tensor.original,
        groups=tensor.sub_format if fmt.startswith("FRACTAL_Z") and tensor.sub_format > 1 else 1,
        start=start,
        size=tensor.size,
        codes=(tensor.data_type, tensor.format),
    )


@lru_cache(maxsize=1 << 14)  # an operator's tensors have the same description in every step
def _tensor(message: bytes, output: bool) -> HeaderTensor:
    """Reads an ``OpOutput`` or ``OpInput``; the field numbers of the two differ."""
    size_field, original_field, sub_field = (6, 7, 8) if output else (5, 6, 7)
    found = dict(_fields(message))
    data_type, fmt, size, sub_format = (_number(found.get(at, 0)) for at in (1, 2, size_field, sub_field))
    shape, original = (_shape(_bytes(found[at])) if at in found else None for at in (3, original_field))
    if size >= 1 << 62:
        raise BadHeaderError("has a tensor of an impossible size")
    return HeaderTensor(data_type, fmt, shape or (), original, sub_format, size)


def _shape(message: bytes) -> Shape:
    dims: list[int] = []
    for number, value in _fields(message):
        if number != 1:
            continue
        if isinstance(value, int):
            dims.append(value)
        else:
            dims += _packed(value)
        if len(dims) > MAX_RANK:
            raise BadHeaderError(f"has a shape of more than {MAX_RANK} dimensions")
    return plausible(tuple(dims))


def _packed(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        try:
            number, at = varint(value, at)
        except ValueError:
            raise BadHeaderError("has a damaged header") from None
        yield number


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields field numbers and values of a message; fixed-width values as bytes."""
    try:
        yield from fields_of(message, len(message))
    except ValueError:
        raise BadHeaderError("has a damaged header") from None


def _number(value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    raise BadHeaderError("has a damaged header")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise BadHeaderError("has a damaged header")


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The place and the format of one tensor's values, checked against the number of bytes.

    Attributes:
        layout: in the program's shape, or in the device's if its order cannot be undone.
        order: places of the elements; None for C order.
        bits: bits of an element when several share a byte, else 0; ``signed``: the highest is a sign.
        count: elements in the file, padding included.
        decoded: conversion of elements for which numpy has no type, else None.
    """

    layout: ValueLayout
    order: DeviceOrder | None
    stored: DType
    bits: int
    signed: bool
    count: int
    decoded: DecodedType | None = None

    @property
    def nbytes(self) -> int:
        return -(-self.count * self.bits // 8) if self.bits else self.count * self.stored.itemsize


def stored_tensor(tensor: DumpedTensor) -> StoredTensor:
    """Returns how a tensor is to be read; raises BadHeaderError for a contradictory header or an unreadable type."""
    name = tensor.data_type
    if not name:
        raise BadHeaderError(f"has the unknown element type number {tensor.codes[0]}")
    if name in _UNREADABLE:
        raise BadHeaderError(f"has elements of type {name}, {_UNREADABLE[name]}")
    if name in _NO_NUMBERS:
        layout = ValueLayout(_BYTE, name, (tensor.size,), False, 0, tensor.size)
        return StoredTensor(layout, None, _BYTE, 0, False, tensor.size)
    decoded = DECODED.get(name)
    dtype = decoded.stored if decoded is not None else dtype_of(_READ_AS.get(name, name))
    if dtype is None:
        raise BadHeaderError(f"has elements of type {name}, which this numpy does not know")
    bits = _BITS.get(name, 0)
    device = tensor.shape
    if not device and tensor.size > dtype.itemsize:  # a list of elements without a shape
        device = (tensor.size * 8 // (bits or 8 * dtype.itemsize),)
    shape, order = _program_shape(tensor, device)
    values = decoded.values if decoded is not None else dtype
    layout = ValueLayout(values, _READ_AS.get(name, name), shape, False, 0, math.prod(shape))
    stored = StoredTensor(layout, order, dtype, bits, name in ("int4", "int2"), math.prod(device), decoded)
    if tensor.size < stored.nbytes:
        raise BadHeaderError(f"has {tensor.size:,} bytes of values, where its shape takes {stored.nbytes:,}")
    return stored


def _program_shape(tensor: DumpedTensor, device: Shape) -> tuple[Shape, DeviceOrder | None]:
    """Returns shape and element order to read with: the device's shape, without an order, where no rule is known."""
    host = tensor.original_shape
    if host is None or host == device:
        return device, None
    if 0 in device:
        return (host if 0 in host else device), None
    order = device_order(tensor.format, device, host, tensor.groups)
    if order is not None:
        return host, order
    says_nothing = len(device) != _RANKS.get(tensor.format, -1)
    as_it_is = tensor.format in ("NCHW", "NCDHW") or (tensor.format in _PLAIN and says_nothing)
    if as_it_is and [n for n in host if n != 1] == [n for n in device if n != 1]:
        return host, None  # dimensions of size 1 may differ
    return device, None


def is_readable(tensor: DumpedTensor) -> bool:
    try:
        stored_tensor(tensor)
    except BadHeaderError:
        return False
    return True


@lru_cache(maxsize=1 << 14)
def is_converted(tensor: DumpedTensor) -> bool:
    """Tells whether a tensor is read in the program's shape and order, not in the device's with padding."""
    try:
        shape = stored_tensor(tensor).layout.shape
    except BadHeaderError:
        return True  # it is not read at all
    if tensor.data_type in _NO_NUMBERS:
        return True
    if tensor.original_shape:
        return shape == tensor.original_shape
    return tensor.format in _PLAIN or len(shape) < 2


class _MappedBytes:
    """A mapped stretch of a file: it stays valid when the file is closed, and any thread may read it."""

    def __init__(self, mapped: mmap.mmap, start: int) -> None:
        self._mapped, self._start = mapped, start

    def read_into(self, first: int, target: UInt8) -> None:
        target[:] = np.frombuffer(self._mapped, np.uint8, len(target), self._start + first)

    def mapped(self) -> tuple[mmap.mmap, int]:
        return self._mapped, self._start


class AscendReader(ValueReader):
    """Reads the values of one tensor: a ``npy.ElementReader``, too."""

    def __init__(self, content: FileBytes | _MappedBytes, stored: StoredTensor) -> None:
        """Takes the bytes of the tensor in its file."""
        self.layout = stored.layout
        self._content, self._stored = content, stored
        size = stored.layout.dtype.itemsize
        # Integers as wide as the elements: numpy copies only its own types at full speed.
        self._unit = np.dtype(f"u{size}") if size <= 8 else np.dtype("c16")
        self._ahead, self._first, self._next = np.zeros(0, self._unit), 0, -1
        self._lock = threading.Lock()
        """Guards the values that were read ahead."""

    def read_into(self, start: int, target: Array) -> None:
        into, order = target.view(self._unit), self._stored.order
        if order is not None:
            with self._lock:
                self._convert(order, start, into)
        elif self._stored.bits:
            self._read_small(start, into)
        else:
            self._content.read_into(start * self._unit.itemsize, into.view(np.uint8))

    def array(self) -> Array:
        """Returns all values: a view of the file for a long tensor without conversion, else an array in memory."""
        if self._is_long and not self._is_costly:
            (mapped, start), layout = self._mapped, self.layout
            return np.frombuffer(mapped, layout.dtype, layout.count, start).reshape(layout.shape)
        return super().array()

    def lazy_array(self) -> Array:
        if not (self._is_long and self._is_costly):
            return self.array()
        # For mypy it is an array; code that reads pieces treats it as one, and any other use converts the whole tensor.
        return cast("Array", FileArray(self.kept()))

    def kept(self) -> AscendReader:
        """Returns a reader of the same values that stays valid when the file is closed."""
        return AscendReader(_MappedBytes(*self._mapped), self._stored)

    @cached_property
    def _mapped(self) -> tuple[mmap.mmap, int]:
        return self._content.mapped()

    @property
    def _is_long(self) -> bool:
        return max(self._stored.nbytes, self.layout.nbytes) > WHOLE_FILE

    @property
    def _is_costly(self) -> bool:
        return self._stored.order is not None or self._stored.bits > 0

    def gather(self, elements: Int64) -> Array:
        """Returns elements by their numbers in C order."""
        stored = self._stored
        places: Int64 = elements if stored.order is None else stored.order.places(elements)
        mapped, start = self._mapped
        if not stored.bits:
            found: Array = np.frombuffer(mapped, self._unit, stored.count, start)[places]
            return found.view(self.layout.dtype)
        # One byte for each element; shifts remove its neighbours, first the bits above it, then the bits below.
        bits = stored.bits
        raw = _first_lowest(np.frombuffer(mapped, np.uint8, stored.nbytes, start)[places * bits // 8], bits)
        raw = raw << (8 - bits - places * bits % 8).astype(np.uint8)
        small: Array = (raw.view(np.int8) if stored.signed else raw) >> (8 - bits)
        return small.view(self.layout.dtype)

    def close(self) -> None:
        """Drops the values that were read ahead."""
        self._ahead = np.zeros(0, self._unit)

    def _convert(self, order: DeviceOrder, start: int, target: Array) -> None:
        """Converts elements; for sequential calls more than were asked for, in growing pieces."""
        goes_on = self._next == start
        self._next = start + len(target)
        done = 0
        while done < len(target):
            at, rest = start + done - self._first, len(target) - done
            if 0 <= at < len(self._ahead):
                part = self._ahead[at : at + rest]
                target[done : done + len(part)] = part
                done += len(part)
                continue
            most = min(self.layout.count - start - done, _AHEAD // self._unit.itemsize)
            if not goes_on or rest >= most:
                self._copy(order, start + done, target[done:])
                return
            self._first = start + done
            self._ahead = np.empty(min(most, max(4 * rest, 2 * len(self._ahead))), self._unit)
            self._copy(order, self._first, self._ahead)

    def _copy(self, order: DeviceOrder, start: int, target: Array) -> None:
        if self._stored.bits and kernel.available():
            order.copy(SharedBytes(self._bytes, self._stored.bits, self._stored.signed), start, target)
            return
        if not (self._stored.bits and self._is_long):
            order.copy(self._buffer, start, target)
            return
        for first in range(0, len(target), _GATHERED):  # the whole tensor, one element a byte, would exceed the file
            last = min(first + _GATHERED, len(target))
            target[first:last] = self.gather(np.arange(start + first, start + last)).view(self._unit)

    def _read_small(self, start: int, target: Array) -> None:
        """Reads elements that share bytes and are in C order."""
        bits = self._stored.bits
        for done in range(0, len(target), _SMALL):
            into = target[done : done + _SMALL]
            first = (start + done) * bits // 8
            packed = np.empty(-(-(start + done + len(into)) * bits // 8) - first, np.uint8)
            self._content.read_into(first, packed)
            packed = _first_lowest(packed, bits)
            skipped = start + done - first * 8 // bits
            into[:] = _unpacked(packed, self._stored)[skipped : skipped + len(into)]

    @cached_property
    def _bytes(self) -> UInt8:
        """All bytes of the tensor: in memory when they are few, else mapped."""
        if self._stored.nbytes > WHOLE_FILE:
            mapped, start = self._mapped
            return _first_lowest(np.frombuffer(mapped, np.uint8, self._stored.nbytes, start), self._stored.bits)
        raw = np.empty(self._stored.nbytes, np.uint8)
        self._content.read_into(0, raw)
        return _first_lowest(raw, self._stored.bits)

    @cached_property
    def _buffer(self) -> Array:
        """All elements in the device's order, 1-D."""
        return _unpacked(self._bytes, self._stored) if self._stored.bits else self._bytes.view(self._unit)


_GATHERED: Final = 1 << 18
"""Elements sharing bytes that are gathered by their numbers at once."""
_SMALL: Final = 1 << 20
"""Elements sharing bytes that are read at once."""


_REVERSED: Final = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)[:, ::-1]).reshape(256)
"""Each byte value with its bits reversed."""


def _first_lowest(packed: UInt8, bits: int) -> UInt8:
    """Returns bytes with their first element in the lowest bits; only single bits are stored the other way round."""
    return _REVERSED[packed] if bits == 1 else packed


class _DecodingReader(ValueReader):
    """Reads values of a type that numpy does not have: a ``npy.ElementReader``, too over the reader of the codes."""

    def __init__(self, codes: AscendReader, layout: ValueLayout, decoded: DecodedType) -> None:
        self.layout = layout
        self._codes, self._decoded = codes, decoded

    def read_into(self, start: int, target: Array) -> None:
        for first in range(0, len(target), _SMALL):
            into = target[first : first + _SMALL]
            codes = np.empty(len(into), self._decoded.stored)
            self._codes.read_into(start + first, codes)
            into[:] = self._decoded.decode(codes)

    def lazy_array(self) -> Array:
        if self.layout.nbytes <= WHOLE_FILE:
            return self.array()
        return cast("Array", FileArray(_DecodingReader(self._codes.kept(), self.layout, self._decoded)))

    def gather(self, elements: Int64) -> Array:
        return self._decoded.decode(self._codes.gather(elements))

    def close(self) -> None:
        self._codes.close()


def _unpacked(packed: UInt8, stored: StoredTensor) -> Array:
    """Returns elements that share bytes as one byte each."""
    bits = stored.bits
    if kernel.available():
        values: Array = np.empty(len(packed) * 8 // bits, np.uint8)
        copy_elements(packed, 0, (1,), values, bits=bits, signed=stored.signed)
        return values
    each = np.empty((len(packed), 8 // bits), np.uint8)
    for at in range(8 // bits):
        np.left_shift(packed, 8 - bits * (at + 1), out=each[:, at])
    flat: UInt8 = each.reshape(-1)
    shifted: Array = flat.view(np.int8) if stored.signed else flat
    shifted >>= 8 - bits
    return flat


_MEMBER: Final = re.compile(r"(input|output)\.\d{1,5}")


def open_value(descriptor: int, status: os.stat_result, spec: ReadSpec) -> ValueReader:
    """Opens one tensor of a file: a ``npy.OpenValue``.

    ``spec.member`` is ``input.0`` or ``output.1``; for a ``.npy`` file in a device's layout, the name of the layout.
    """
    if not _MEMBER.fullmatch(spec.member):
        return _open_npy(descriptor, status, spec)
    try:
        header = _header(descriptor, status)
        tensor = header.by_member.get(spec.member)
        if tensor is None:
            raise _unreadable(spec, "is not in the file", "the file was written anew: look again")
        stored = stored_tensor(tensor)
    except BadHeaderError as error:
        raise _unreadable(spec, str(error)) from None
    missing = tensor.start + tensor.size - status.st_size
    if missing > 0:
        what = f"is truncated: {min(missing, tensor.size):,} of {tensor.size:,} bytes of values are missing"
        raise _unreadable(spec, what, "the dump was interrupted, or is still being written")
    if status.st_size > header.size and _holds_more(descriptor, header.size):
        what = f"has {status.st_size - header.size:,} bytes more than its header tells of: it is damaged"
        raise _unreadable(spec, what)
    content = FileBytes(descriptor, tensor.start, stored.nbytes, _where(spec))
    if stored.decoded is None:
        return AscendReader(content, stored)
    codes = replace(stored, layout=replace(stored.layout, dtype=stored.stored))
    return _DecodingReader(AscendReader(content, codes), stored.layout, stored.decoded)


def _holds_more(descriptor: int, start: int) -> bool:
    """Tells whether anything but zeros follows ``start``."""
    while piece := opener.pread(descriptor, _AHEAD, start):
        if piece.strip(b"\0"):
            return True
        start += len(piece)
    return False


def first_output(path: str | bytes, most: int) -> tuple[int, bytes]:
    """Returns the size of a file's first output, and up to ``most`` of its bytes.

    Raises OSError when the file cannot be read, BadHeaderError for another format or a file without outputs.
    """
    descriptor, status = open_regular(path)
    try:
        tensor = _header(descriptor, status).by_member.get(member_name(Side.OUTPUT, 0))
        if tensor is None:
            raise BadHeaderError("has no output")
        return tensor.size, opener.pread(descriptor, min(tensor.size, most), tensor.start)
    finally:
        opener.close(descriptor)


def _open_npy(descriptor: int, status: os.stat_result, spec: ReadSpec) -> ValueReader:
    """Opens a ``.npy`` file that may hold a device's layout under the program's shape."""
    plain = StoredValues(FileBytes(descriptor, 0, status.st_size, spec.path), replace(spec, format="npy", member=""))
    layout = plain.layout
    order = unconverted_order(spec.member, layout.shape, layout.dtype) if not layout.fortran else None
    if order is None:
        return plain
    stored = StoredTensor(replace(layout, offset=0), order, layout.dtype, 0, False, layout.count)
    return AscendReader(FileBytes(descriptor, layout.offset, layout.nbytes, spec.path), stored)


def _unreadable(spec: ReadSpec, what: str, hint: str = "") -> UnreadableTensorError:
    return unreadable(_where(spec), what, hint)


def _where(spec: ReadSpec) -> str:
    return f"{spec.path}:{spec.member}" if _MEMBER.fullmatch(spec.member) else spec.path
