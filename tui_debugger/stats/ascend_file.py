"""Reads what Ascend devices dump asynchronously, without the vendor's toolkit and without writing any file.

One file holds all tensors of one run of an operator: the length of a header (8 bytes), the header (a protobuf message
``DumpData``), the bytes of all inputs, of all outputs, of buffers. Tensors stand there as the device held them: in
blocks of 16 channels or so, padded. ``DeviceOrder`` says where each element of the tensor as the program knows it
stands in such a buffer; copies between strided views do the rest, for as many elements as are asked for.

Values that a recorder saved as ``.npy`` without undoing that order say so in their file's name: they are read as well.
A header is parsed strictly, and nothing that it says about itself is trusted.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, cast

import numpy as np

from tui_debugger import opener
from tui_debugger.arrays import Array, Int64, UInt8
from tui_debugger.errors import UnreadableTensorError
from tui_debugger.model import ReadSpec, Side
from tui_debugger.opener import open_regular
from tui_debugger.stats import kernel
from tui_debugger.stats.archive import FileBytes, unreadable
from tui_debugger.stats.dtypes import DType, dtype_of
from tui_debugger.stats.kernel.shapes import copy_elements
from tui_debugger.stats.npy import WHOLE_FILE, FileArray, Layout, StoredValues, ValueReader

MAX_HEADER: Final = 1 << 24
"""Longest header accepted: that of 100,000 tensors."""
MAX_TENSORS: Final = 1 << 15
"""Inputs, and outputs, of one operator: no slot has a higher number."""
MAX_RANK: Final = 32
_LENGTH: Final = 8
_CUBE: Final = 16
"""Rows of a block of the device's matrix unit."""
_AHEAD: Final = 1 << 24
"""Bytes that are converted ahead for who reads one piece after the other. Neighbours in the tensor may stand far apart
on the device: the more rows at once, the longer the runs that are copied."""

_TYPES: Final = (
    *("undefined", "float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64"),
    *("bool", "float64", "string", "dual_sub_int8", "dual_sub_uint8", "complex64", "complex128", "qint8", "qint16"),
    *("qint32", "quint8", "quint16", "resource", "string_ref", "dual", "variant", "bfloat16", "int4", "uint1"),
    *("int2", "uint2"),
)
_READ_AS: Final = {
    "dual_sub_int8": "int8",
    "dual_sub_uint8": "uint8",
    "qint8": "int8",
    "qint16": "int16",
    "qint32": "int32",
    "quint8": "uint8",
    "quint16": "uint16",
}
"""Types that another one holds: quantised values are read as the integers that they are."""
_BITS: Final = {"int4": 4, "int2": 2, "uint2": 2, "uint1": 1}
"""Types of which several elements share a byte, the first one in its lowest bits."""
_NO_NUMBERS: Final = frozenset({"undefined", "string", "resource", "string_ref", "dual", "variant"})

_FORMATS: Final = (
    *("NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW", "FRACTAL_DECONV", "C1HWNC0"),
    *("FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS", "NC1HWC0_C04", "FRACTAL_Z_C04", "CHWN"),
    *("FRACTAL_DECONV_SP_STRIDE8_TRANS", "HWCN", "NC1KHKWHWC0", "BN_WEIGHT", "FILTER_HWCK", "HASHTABLE_LOOKUP_LOOKUPS"),
    *("HASHTABLE_LOOKUP_KEYS", "HASHTABLE_LOOKUP_VALUE", "HASHTABLE_LOOKUP_OUTPUT", "HASHTABLE_LOOKUP_HITS"),
    *("C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW", "DHWCN", "NDC1HWC0", "FRACTAL_Z_3D", "CN", "NC"),
    *("DHWNC", "FRACTAL_Z_3D_TRANSPOSE", "FRACTAL_ZN_LSTM", "FRACTAL_Z_G", "RESERVED"),
)
_PLAIN: Final = frozenset({"NCHW", "NHWC", "ND", "CHWN", "HWCN", "MD", "NDHWC", "NCDHW", "DHWCN", "CN", "NC", "DHWNC"})
"""Formats that only say what the dimensions mean: the device holds them as the program does."""
CONVERTED: Final = frozenset(
    {"NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0", "FRACTAL_Z_3D", "C1HWNCoC0"}
)
DEVICE_FORMATS: Final = frozenset(_FORMATS) - _PLAIN
"""Formats whose elements stand in another order than the program's."""

Shape = tuple[int, ...]


# -- the header --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpedTensor:
    """One tensor of a file, as the header tells.

    Attributes:
        side, slot: which input or output.
        data_type: its element type by name; empty when the number is unknown.
        format: the order of its elements by name; empty when the number is unknown.
        shape: as the device holds it.
        original_shape: as the program knows it; None when the header does not say.
        groups: number of groups of a grouped convolution's weights, 1 for any other tensor.
        start, size: where its bytes are in the file.
        codes: the numbers of type and format.
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
        """What ``ReadSpec.member`` calls it: ``input.0``."""
        return member_name(self.side, self.slot)


@dataclass(frozen=True)
class DumpHeader:
    """The header of one file.

    Attributes:
        tensors: inputs, then outputs.
        op_name: the operator's name as the device has it.
        size: bytes that the file must have.
    """

    tensors: tuple[DumpedTensor, ...]
    op_name: str
    size: int

    @cached_property
    def by_member(self) -> dict[str, DumpedTensor]:
        """The tensors by ``DumpedTensor.member``."""
        return {each.member: each for each in self.tensors}


class BadHeaderError(ValueError):
    """A header makes no sense; the text says why."""


def member_name(side: Side | int, slot: int) -> str:
    """Returns what ``ReadSpec.member`` calls an input or output."""
    return f"{'output' if side == Side.OUTPUT else 'input'}.{slot}"


def read_header(path: str | bytes) -> DumpHeader:
    """Returns the header of a file.

    Raises:
        OSError: the file cannot be read.
        BadHeaderError: it is none of these files, or is damaged.
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
    if length > MAX_HEADER:
        raise BadHeaderError(f"has a header of {length:,} bytes, which is not plausible")
    if length > status.st_size - _LENGTH:
        raise BadHeaderError("ends inside its header")
    while len(head) < _LENGTH + length:
        piece = opener.pread(descriptor, _LENGTH + length - len(head), len(head))
        if not piece:
            raise BadHeaderError("ends inside its header")
        head += piece
    return parse_header(head[_LENGTH : _LENGTH + length])


@lru_cache(maxsize=64)
def parse_header(message: bytes) -> DumpHeader:
    """Parses a ``DumpData`` message.

    Raises:
        BadHeaderError: it makes no sense.
    """
    found: dict[int, list[_Tensor]] = {3: [], 4: []}
    buffers, name = 0, b""
    for number, value in _fields(message):
        if number in found:
            if len(found[number]) == MAX_TENSORS:
                raise BadHeaderError(f"has more than {MAX_TENSORS:,} tensors on one side")
            found[number].append(_tensor(_bytes(value), number == 3))
        elif number == 5:
            buffers += next((_number(size) for field, size in _fields(_bytes(value)) if field == 3), 0)
        elif number == 6:
            name = _bytes(value)
    tensors: list[DumpedTensor] = []
    start = _LENGTH + len(message)
    for side, number in ((Side.INPUT, 4), (Side.OUTPUT, 3)):
        for slot, each in enumerate(found[number]):
            tensors.append(each.at(side, slot, start))
            start += each.size
    return DumpHeader(tuple(tensors), name.decode("utf-8", "replace"), start + buffers)


@dataclass(frozen=True, slots=True)
class _Tensor:
    data_type: int
    format: int
    shape: Shape
    original: Shape | None
    sub_format: int
    size: int

    def at(self, side: Side, slot: int, start: int) -> DumpedTensor:
        """Returns it with its place in the file."""
        fmt = _FORMATS[self.format] if self.format < len(_FORMATS) else ""
        return DumpedTensor(
            side=side,
            slot=slot,
            data_type=_TYPES[self.data_type] if self.data_type < len(_TYPES) else "",
            format=fmt,
            shape=self.shape,
            original_shape=self.original,
            groups=self.sub_format if fmt.startswith("FRACTAL_Z") and self.sub_format > 1 else 1,
            start=start,
            size=self.size,
            codes=(self.data_type, self.format),
        )


@lru_cache(maxsize=1 << 14)  # an operator's tensors are described alike in every step
def _tensor(message: bytes, output: bool) -> _Tensor:
    """Reads an ``OpOutput`` or ``OpInput``; the numbers of their later fields differ."""
    size_field, original_field, sub_field = (6, 7, 8) if output else (5, 6, 7)
    data_type = fmt = size = sub_format = 0
    shape: Shape = ()
    original: Shape | None = None
    for number, value in _fields(message):
        if number == 1:
            data_type = _number(value)
        elif number == 2:
            fmt = _number(value)
        elif number == 3:
            shape = _shape(_bytes(value))
        elif number == size_field:
            size = _number(value)
        elif number == original_field:
            original = _shape(_bytes(value))
        elif number == sub_field:
            sub_format = _number(value)
    if size >= 1 << 62:
        raise BadHeaderError("has a tensor of an impossible size")
    return _Tensor(data_type, fmt, shape, original, sub_format, size)


def _shape(message: bytes) -> Shape:
    dims: list[int] = []
    for number, value in _fields(message):
        if number != 1:
            continue
        if isinstance(value, int):
            dims.append(value)
        else:
            at = 0
            while at < len(value):
                dim, at = _varint(value, at)
                dims.append(dim)
        if len(dims) > MAX_RANK:
            raise BadHeaderError(f"has a shape of more than {MAX_RANK} dimensions")
    if math.prod(n for n in dims if n) >= 1 << 60:
        raise BadHeaderError("has an impossible shape")
    return tuple(dims)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (number, value) of the fields of a message; values of fixed width as their bytes."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise BadHeaderError("has a damaged header")
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise BadHeaderError("has a damaged header")
        if length > end - at:
            raise BadHeaderError("has a damaged header")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise BadHeaderError("has a damaged header")


def _number(value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    raise BadHeaderError("has a damaged header")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise BadHeaderError("has a damaged header")


# -- the order of elements on the device -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """Where the elements of a tensor stand in the buffer of a device.

    Elements are named by as many indices as ``shape`` has; in C order they are those of the tensor. One axis, that of
    channels, comes in blocks: of channel c, ``c // block`` counts ``strides[lane]`` and ``c % block`` counts ``inner``.
    Grouped weights have their groups on axis 0, ``period`` of them side by side in one run of channels and rows: group
    g stands where ``g // period`` counts ``strides[0]`` and ``r = g % period`` counts ``shift``, and its channels begin
    at channel ``r * phase``.

    Attributes:
        shape: indices.
        strides: distance of neighbours along each axis, in elements.
        lane: the axis that comes in blocks.
        block: elements of a block.
        inner: distance of neighbours in a block.
        count: elements of the buffer, padding included.
    """

    shape: Shape
    strides: Shape
    lane: int
    block: int
    inner: int
    count: int
    period: int = 1
    shift: int = 0
    phase: int = 0

    def copy(self, buffer: Array | SharedBytes, start: int, target: Array) -> None:
        """Fills an array with elements in C order, from one on.

        Args:
            buffer: all of the device's, 1-D.
            start: the first one.
            target: 1-D, of the same type; bytes where several elements share one.
        """
        done = 0
        for low, high in _boxes(self.shape, start, start + len(target)):
            extent = tuple(stop - first for first, stop in zip(low, high, strict=True))
            count = math.prod(extent)
            self._copy_box(buffer, low, high, target[done : done + count].reshape(extent))
            done += count

    def places(self, elements: Int64) -> Int64:
        """Returns where elements stand in the buffer; they are numbered in C order."""
        at = list(np.unravel_index(elements, self.shape))
        channel, found = at[self.lane], np.zeros(elements.shape, np.int64)
        if self.period > 1:
            at[0], rest = np.divmod(at[0], self.period)
            channel = channel + rest * self.phase
            found += rest * self.shift
        at[self.lane] = channel // self.block
        for index, stride in zip(at, self.strides, strict=True):
            found += index * stride
        return found + channel % self.block * self.inner

    def _copy_box(self, buffer: Array | SharedBytes, low: Shape, high: Shape, target: Array) -> None:
        """Copies the elements between two corners."""
        if self.period == 1:
            self._copy_lanes(buffer, low, high, target)
            return
        for group in range(low[0], min(high[0], low[0] + self.period)):
            turn, rest = divmod(group, self.period)
            turns = -(-(high[0] - group) // self.period)
            corners = (turn, *low[1:]), (turn + turns, *high[1:])
            into = target[group - low[0] :: self.period]
            self._copy_lanes(buffer, *corners, into, rest)

    def _copy_lanes(self, buffer: Array | SharedBytes, low: Shape, high: Shape, target: Array, rest: int = 0) -> None:
        """Copies a box of the groups that are number ``rest`` in their run: whole blocks at once, then the ends."""
        lane, block = self.lane, self.block
        first, last = low[lane] + rest * self.phase, high[lane] + rest * self.phase
        whole = min(-(-first // block) * block, last), max(last - last % block, first)
        ends = (first, whole[0]), whole, (max(whole), last)
        corner = (*low[:lane], 0, *low[lane + 1 :])
        base = rest * self.shift + sum(at * stride for at, stride in zip(corner, self.strides, strict=True))
        for begin, end in ends if whole[0] < whole[1] else _within_blocks(first, last, block):
            if begin >= end:
                continue
            part = (slice(None),) * lane + (slice(begin - first, end - first),)
            into = target[part]
            blocks = (end - begin) // block if begin % block == 0 and end % block == 0 else 0
            if blocks > 1:
                extent: tuple[int, ...] = (blocks, block)
                steps: tuple[int, ...] = (self.strides[lane], self.inner)
            else:
                extent, steps = (end - begin,), (self.inner,)
            shape = (*into.shape[:lane], *extent, *into.shape[lane + 1 :])
            strides = (*self.strides[:lane], *steps, *self.strides[lane + 1 :])
            offset = base + (begin // block) * self.strides[lane] + (begin % block) * self.inner
            _copy_strided(buffer, offset, strides, into.reshape(shape))


@dataclass(frozen=True, slots=True)
class SharedBytes:
    """A buffer of elements of which several share a byte: read by the kernel alone.

    Attributes:
        packed: the bytes.
        bits: of an element; the first one in the lowest bits of a byte.
        signed: whether the highest of these is a sign.
    """

    packed: UInt8
    bits: int
    signed: bool


def _copy_strided(buffer: Array | SharedBytes, offset: int, strides: Shape, target: Array) -> None:
    """Fills a view of an array with elements of a buffer, from one on and so far apart along each axis."""
    if isinstance(buffer, SharedBytes):
        copy_elements(buffer.packed, offset, strides, target, bits=buffer.bits, signed=buffer.signed)
    elif kernel.available():
        copy_elements(buffer, offset, strides, target)
    else:
        size = buffer.itemsize
        steps = tuple(each * size for each in strides)
        # Whatever the numbers say, numpy refuses a view that leaves the buffer.
        view: Array = np.ndarray(target.shape, buffer.dtype, buffer.data, offset * size, steps)
        np.copyto(target, view)


def _within_blocks(first: int, last: int, block: int) -> Iterator[tuple[int, int]]:
    """Yields a range of channels cut where a block ends."""
    while first < last:
        end = min(first - first % block + block, last)
        yield first, end
        first = end


def _boxes(shape: Shape, start: int, stop: int) -> Iterator[tuple[Shape, Shape]]:
    """Yields the corners of the boxes that elements ``start`` to ``stop`` in C order make up, in that order."""
    if start >= stop:
        return
    if not shape:
        yield (), ()
        return
    inner = math.prod(shape[1:])
    (first, before), (last, behind) = divmod(start, inner), divmod(stop, inner)
    if first == last:
        for low, high in _boxes(shape[1:], before, behind):
            yield (first, *low), (first + 1, *high)
        return
    if before:
        for low, high in _boxes(shape[1:], before, inner):
            yield (first, *low), (first + 1, *high)
        first += 1
    if first < last:
        yield (first, *(0 for _ in shape[1:])), (last, *shape[1:])
    for low, high in _boxes(shape[1:], 0, behind):
        yield (last, *low), (last + 1, *high)


def device_order(fmt: str, device: Shape, host: Shape, name: str, groups: int = 1) -> DeviceOrder | None:
    """Returns the order of a tensor's elements on the device; None when the two shapes do not fit this format.

    Args:
        fmt: one of ``CONVERTED``.
        device: the device's shape; its last dimension says how long blocks are.
        host: the program's shape.
        name: element type, which says it where the device's shape does not.
        groups: of a grouped convolution's weights.
    """
    if any(n <= 0 for n in (*device, *host)):
        return None
    block = device[-1] if len(device) > 3 else _blocks_of(name)
    order = _ORDERS[fmt](host, block, groups)
    if order is None or order.count != math.prod(device):
        return None
    return order


def _blocks_of(name: str) -> int:
    if name in _BITS:
        return 64
    dtype = dtype_of(_READ_AS.get(name, name))
    return 32 if dtype is not None and dtype.itemsize == 1 else _CUBE


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _padded(host: Shape) -> Shape | None:
    """Returns a shape as N, C, H, W: a lone dimension is channels."""
    if len(host) > 4:
        return None
    return (1, *host, 1, 1) if len(host) == 1 else (*host, *(1 for _ in range(4 - len(host))))


def _nc1hwc0(host: Shape, block: int, _: int) -> DeviceOrder | None:
    shape = _padded(host)
    if shape is None:
        return None
    n, c, h, w = shape
    plane = h * w * block
    image = -(-c // block) * plane
    return DeviceOrder(shape, (image, plane, w * block, block), 1, block, 1, n * image)


def _nc1hwc0_c04(host: Shape, block: int, _: int) -> DeviceOrder | None:
    return _nc1hwc0(host, 4, 1) if block == 4 else None


def _ndc1hwc0(host: Shape, block: int, _: int) -> DeviceOrder | None:
    if len(host) != 5:
        return None
    n, c, d, h, w = host
    plane = h * w * block
    frame = -(-c // block) * plane
    return DeviceOrder(host, (d * frame, plane, frame, w * block, block), 1, block, 1, n * d * frame)


def _fractal_z(host: Shape, block: int, groups: int) -> DeviceOrder | None:
    shape = _padded(host)
    if shape is None:
        return None
    n, c, h, w = shape
    if groups > 1:
        return _grouped(shape, block, groups)
    pixel = _up(n, _CUBE) * block
    return DeviceOrder(shape, (block, h * w * pixel, w * pixel, pixel), 1, block, 1, -(-c // block) * h * w * pixel)


def _grouped(host: Shape, block: int, groups: int) -> DeviceOrder | None:
    n, c, h, w = host
    rows = n // groups
    if n % groups:
        return None
    period = min(math.lcm(math.lcm(c, block) // c, math.lcm(rows, _CUBE) // rows), groups)
    pixel = _up(period * rows, _CUBE) * block
    run = _up(period * c, block) // block * h * w * pixel
    return DeviceOrder(
        shape=(groups, rows, c, h, w),
        strides=(run, block, h * w * pixel, w * pixel, pixel),
        lane=2,
        block=block,
        inner=1,
        count=-(-groups // period) * run,
        period=period,
        shift=rows * block,
        phase=c,
    )


def _fractal_z_3d(host: Shape, block: int, groups: int) -> DeviceOrder | None:
    if len(host) != 5 or groups > 1:
        return None
    n, c, d, h, w = host
    pixel = _up(n, _CUBE) * block
    plane = h * w * pixel
    frame = -(-c // block) * plane
    return DeviceOrder(host, (block, plane, frame, w * pixel, pixel), 1, block, 1, d * frame)


def _fractal_nz(host: Shape, block: int, _: int) -> DeviceOrder | None:
    rows, columns = host[-2:] if len(host) > 1 else (1, math.prod(host))
    batch = math.prod(host[:-2])
    strip = _up(rows, _CUBE) * block
    matrix = -(-columns // block) * strip
    return DeviceOrder((batch, rows, columns), (matrix, block, strip), 2, block, 1, batch * matrix)


def _c1hwncoc0(host: Shape, block: int, _: int) -> DeviceOrder | None:
    shape = _padded(host)
    if shape is None:
        return None
    n, c, h, w = shape
    cell = block * block
    plane = h * w * n * cell
    return DeviceOrder(shape, (cell, plane, w * n * cell, n * cell), 1, block, block + 1, -(-c // block) * plane)


_ORDERS: Final = {
    "NC1HWC0": _nc1hwc0,
    "NC1HWC0_C04": _nc1hwc0_c04,
    "FRACTAL_Z": _fractal_z,
    "FRACTAL_NZ": _fractal_nz,
    "NDC1HWC0": _ndc1hwc0,
    "FRACTAL_Z_3D": _fractal_z_3d,
    "C1HWNCoC0": _c1hwncoc0,
}


# -- values ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """How the values of one tensor are stored, checked against the bytes that there are.

    Attributes:
        layout: what is read: the program's shape, or the device's where nothing undoes its order.
        order: where the elements stand; None: one after the other.
        stored: elements of the file as numpy reads them.
        bits: of an element of which several share a byte; 0: no such type.
        signed: whether the highest of these bits is a sign.
        count: elements in the file, padding included.
    """

    layout: Layout
    order: DeviceOrder | None
    stored: DType
    bits: int
    signed: bool
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return -(-self.count * self.bits // 8) if self.bits else self.count * self.stored.itemsize


def stored_tensor(tensor: DumpedTensor) -> StoredTensor:
    """Returns how a tensor is to be read.

    Raises:
        BadHeaderError: what the header says makes no sense, or no number can be made of its elements.
    """
    name = tensor.data_type
    if not name:
        raise BadHeaderError(f"has the unknown element type number {tensor.codes[0]}")
    if name in _NO_NUMBERS:
        raise BadHeaderError(f"has elements of type {name}, which are no numbers")
    if not tensor.format and tensor.codes[1] != 255:
        raise BadHeaderError(f"has the unknown format number {tensor.codes[1]}")
    dtype = dtype_of(_READ_AS.get(name, name))
    if dtype is None:
        raise BadHeaderError(f"has elements of type {name}, which this numpy does not know")
    device, host = tensor.shape, tensor.original_shape
    order: DeviceOrder | None = None
    if tensor.format in CONVERTED and host is not None and host != device:
        order = device_order(tensor.format, device, host, name, tensor.groups)
    elif host is not None and math.prod(host) == math.prod(device) and tensor.format not in DEVICE_FORMATS:
        device = host  # the same elements, whatever the device calls their dimensions
    shape = host if order is not None and host is not None else device
    layout = Layout(dtype, _READ_AS.get(name, name), shape, False, 0, math.prod(shape))
    bits = _BITS.get(name, 0)
    stored = StoredTensor(layout, order, dtype, bits, name in ("int4", "int2"), math.prod(tensor.shape))
    if tensor.size != stored.nbytes:
        raise BadHeaderError(f"has {tensor.size:,} bytes of values, where its shape takes {stored.nbytes:,}")
    return stored


@lru_cache(maxsize=1 << 14)
def is_converted(tensor: DumpedTensor) -> bool:
    """Tells whether a tensor is read as the program knows it; else it comes as the device holds it, with padding."""
    try:
        return tensor.format not in DEVICE_FORMATS or stored_tensor(tensor).order is not None
    except BadHeaderError:
        return True  # it is not read at all


class _MappedBytes:
    """A stretch of a file that is mapped: it outlives the file's being closed, and any thread may read it."""

    def __init__(self, mapped: mmap.mmap, start: int) -> None:
        self._mapped, self._start = mapped, start

    def read_into(self, first: int, target: UInt8) -> None:
        target[:] = np.frombuffer(self._mapped, np.uint8, len(target), self._start + first)

    def mapped(self) -> tuple[mmap.mmap, int]:
        return self._mapped, self._start


class AscendReader:
    """Reads the values of one tensor: a ``npy.ConvertingReader``.

    Attributes:
        layout: what they are.
        packed: never: any piece can be read without those before it.
    """

    packed: Final = False

    def __init__(self, content: FileBytes | _MappedBytes, stored: StoredTensor) -> None:
        """``content`` are its bytes in the file."""
        self.layout = stored.layout
        self._content, self._stored = content, stored
        size = stored.layout.dtype.itemsize
        # Integers as wide as the elements: numpy copies those of its own types alone at full speed.
        self._unit = np.dtype(f"u{size}") if size <= 8 else np.dtype("c16")
        self._ahead, self._first, self._next = np.zeros(0, self._unit), 0, -1
        self._lock = threading.Lock()
        """Guards what was read ahead."""

    def read_into(self, start: int, target: Array) -> None:
        """Fills an array with the elements from one on, in C order.

        Raises:
            UnreadableTensorError: the file became shorter meanwhile, or the device fails.
        """
        into, order = target.view(self._unit), self._stored.order
        if order is not None:
            with self._lock:
                self._convert(order, start, into)
        elif self._stored.bits:
            self._read_small(start, into)
        else:
            self._content.read_into(start * self._unit.itemsize, into.view(np.uint8))

    def array(self) -> Array:
        """Returns all values: a view of the file where nothing has to be converted, else converted in memory."""
        if self._is_long and not self._is_costly:
            (mapped, start), layout = self._mapped, self.layout
            return np.frombuffer(mapped, layout.dtype, layout.count, start).reshape(layout.shape)
        values = np.empty(self.layout.count, self.layout.dtype)
        self.read_into(0, values)
        return values.reshape(self.layout.shape)

    def lazy_array(self) -> Array:
        """See ``npy.ConvertingReader``."""
        if not (self._is_long and self._is_costly):
            return self.array()
        # mypy takes it for an array, as those do who read pieces of arrays; whoever wants more of it gets all of it.
        return cast("Array", FileArray(AscendReader(_MappedBytes(*self._mapped), self._stored)))

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
        """Returns elements, numbered in C order, as an array of the same shape."""
        stored = self._stored
        places: Int64 = elements if stored.order is None else stored.order.places(elements)
        mapped, start = self._mapped
        if not stored.bits:
            found: Array = np.frombuffer(mapped, self._unit, stored.count, start)[places]
            return found.view(self.layout.dtype)
        # One byte for each element, its neighbours shifted out: first those above it, then those below.
        bits = stored.bits
        raw = np.frombuffer(mapped, np.uint8, stored.nbytes, start)[places * bits // 8]
        raw = raw << (8 - bits - places * bits % 8).astype(np.uint8)
        small: Array = (raw.view(np.int8) if stored.signed else raw) >> (8 - bits)
        return small.view(self.layout.dtype)

    def close(self) -> None:
        """Forgets what was read ahead."""
        self._ahead = np.zeros(0, self._unit)

    def _convert(self, order: DeviceOrder, start: int, target: Array) -> None:
        """Converts elements; for who reads on where he stopped, more than were asked for, ever more."""
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
        for first in range(0, len(target), _GATHERED):  # all of them, one a byte, would be longer than the file
            last = min(first + _GATHERED, len(target))
            target[first:last] = self.gather(np.arange(start + first, start + last)).view(self._unit)

    def _read_small(self, start: int, target: Array) -> None:
        """Reads elements that share bytes and stand one after the other."""
        bits = self._stored.bits
        for done in range(0, len(target), _SMALL):
            into = target[done : done + _SMALL]
            first = (start + done) * bits // 8
            packed = np.empty(-(-(start + done + len(into)) * bits // 8) - first, np.uint8)
            self._content.read_into(first, packed)
            skipped = start + done - first * 8 // bits
            into[:] = _unpacked(packed, self._stored)[skipped : skipped + len(into)]

    @cached_property
    def _bytes(self) -> UInt8:
        """All bytes of the device: in memory when they are few, else mapped."""
        if self._stored.nbytes > WHOLE_FILE:
            mapped, start = self._mapped
            return np.frombuffer(mapped, np.uint8, self._stored.nbytes, start)
        raw = np.empty(self._stored.nbytes, np.uint8)
        self._content.read_into(0, raw)
        return raw

    @cached_property
    def _buffer(self) -> Array:
        """All elements of the device, 1-D."""
        return _unpacked(self._bytes, self._stored) if self._stored.bits else self._bytes.view(self._unit)


_GATHERED: Final = 1 << 18
"""Elements that share bytes which are found one by one at once."""
_SMALL: Final = 1 << 20
"""Elements that share bytes which are read at once."""


def _unpacked(packed: UInt8, stored: StoredTensor) -> Array:
    """Returns elements that share bytes, one a byte."""
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
    """Opens one tensor of a file: see ``npy.ValueReader``.

    ``spec.member`` is ``input.0`` or ``output.1``; of a ``.npy`` file whose name says that its values stand as the
    device held them, the name of that format.

    Raises:
        UnreadableTensorError: anything wrong with the file, or with this tensor of it.
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
    if status.st_size > header.size:
        what = f"has {status.st_size - header.size:,} bytes more than its header tells of: it is damaged"
        raise _unreadable(spec, what)
    return AscendReader(FileBytes(descriptor, tensor.start, tensor.size, _where(spec)), stored)


def _open_npy(descriptor: int, status: os.stat_result, spec: ReadSpec) -> ValueReader:
    """Opens a ``.npy`` file that may hold a device's bytes under the program's shape."""
    plain = StoredValues(FileBytes(descriptor, 0, status.st_size, spec.path), replace(spec, format="npy", member=""))
    layout = plain.layout
    order = unconverted_order(spec.member, layout.shape, layout.dtype) if not layout.fortran else None
    if order is None:
        return plain
    stored = StoredTensor(replace(layout, offset=0), order, layout.dtype, 0, False, layout.count)
    return AscendReader(FileBytes(descriptor, layout.offset, layout.nbytes, spec.path), stored)


def unconverted_order(fmt: str, shape: Shape, dtype: DType) -> DeviceOrder | None:
    """Returns how to read device bytes that stand under the program's shape; None: as they are.

    That shape tells how they stand only where nothing is padded. A shape that ends like a device's is taken for one.
    """
    if fmt not in CONVERTED or not shape or any(n <= 0 for n in shape):
        return None
    block = 4 if fmt == "NC1HWC0_C04" else 32 if dtype.itemsize == 1 else _CUBE
    if len(shape) > 2 and shape[-1] == block:
        return None
    order = _ORDERS[fmt](shape, block, 1)
    return order if order is not None and order.count == math.prod(shape) else None


def _unreadable(spec: ReadSpec, what: str, hint: str = "") -> UnreadableTensorError:
    return unreadable(_where(spec), what, hint)


def _where(spec: ReadSpec) -> str:
    return f"{spec.path}:{spec.member}" if _MEMBER.fullmatch(spec.member) else spec.path
