"""Writes files as Ascend devices dump them asynchronously, and says where each element stands: from the specification.

Two implementations that share nothing with each other, nor with the product, of which only conversions are counted
here: ``to_device`` pads and transposes whole arrays; ``device_index`` is the table of index formulas, one element at a
time. No device was at hand to record one.
"""

# ruff: noqa: N806 - the formulas keep the names that the specification gives their numbers

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.sources.writer import MLP, DumpWriter, Generation, Graph, Node
from tui_debugger.stats import ascend_file
from tui_debugger.stats.device_order import DeviceOrder

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

TYPES: dict[str, int] = {
    "float32": 1,
    "float16": 2,
    "int8": 3,
    "uint8": 4,
    "int16": 5,
    "uint16": 6,
    "int32": 7,
    "int64": 8,
    "uint32": 9,
    "uint64": 10,
    "bool": 11,
    "float64": 12,
    "string": 13,
    "complex64": 16,
    "complex128": 17,
    "qint8": 18,
    "qint32": 20,
    "quint8": 21,
    "resource": 23,
    "bfloat16": 27,
    "int4": 28,
    "uint1": 29,
    "int2": 30,
    "uint2": 31,
    "complex32": 32,
    "hifloat8": 33,
    "float8_e5m2": 34,
    "float8_e4m3fn": 35,
    "float8_e8m0fnu": 36,
    "float6_e3m2": 37,
    "float6_e2m3": 38,
    "float4_e2m1": 39,
    "float4_e1m2": 40,
    "hifloat4": 41,
}
FORMATS: dict[str, int] = {
    "NCHW": 0,
    "NHWC": 1,
    "ND": 2,
    "NC1HWC0": 3,
    "FRACTAL_Z": 4,
    "C1HWNC0": 9,
    "NC1HWC0_C04": 12,
    "FRACTAL_Z_C04": 13,
    "CHWN": 14,
    "HWCN": 16,
    "C1HWNCoC0": 25,
    "NDHWC": 27,
    "FRACTAL_ZZ": 28,
    "FRACTAL_NZ": 29,
    "NCDHW": 30,
    "DHWCN": 31,
    "NDC1HWC0": 32,
    "FRACTAL_Z_3D": 33,
    "DHWNC": 36,
    "FRACTAL_ZN_LSTM": 38,
    "RESERVED": 40,
    "ND_RNN_BIAS": 43,
    "FRACTAL_ZN_RNN": 44,
    "FRACTAL_NZ_C0_8": 54,
}
CONVERTED = ("NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0", "FRACTAL_Z_3D", "C1HWNCoC0")
BITS = {"int4": 4, "uint1": 1, "int2": 2, "uint2": 2, "float4_e2m1": 4, "float4_e1m2": 4}
CODES = {"hifloat8": "uint8", "complex32": "uint32", "float4_e2m1": "uint8", "float4_e1m2": "uint8"}
"""Types that numpy does not have, and the type that is written as their elements' codes."""
UNREADABLE = ("float6_e3m2", "float6_e2m3", "hifloat4")
"""Types of which no number is made."""
MISSING = tuple({"float8_e8m0fnu"} - set(dir(ml_dtypes)))
"""Types that old versions of ml_dtypes do not have."""


def bits_of(dtype: str) -> int:
    """Bits of an element."""
    return BITS.get(dtype, 8 * numpy_type(dtype).itemsize)


def block_of(dtype: str, fmt: str = "") -> int:
    """c0: how many channels stand side by side."""
    if fmt == "NC1HWC0_C04":
        return 4
    if dtype in BITS:
        return 64
    return 32 if numpy_type(dtype).itemsize == 1 else 16


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The type whose elements hold those of a named one."""
    if dtype in CODES:
        return np.dtype(CODES[dtype])
    if dtype in BITS:
        return np.dtype("uint8" if dtype.startswith("u") else "int8")
    if hasattr(ml_dtypes, dtype):
        return np.dtype(getattr(ml_dtypes, dtype))
    others = {"qint8": "int8", "qint32": "int32", "quint8": "uint8", "resource": "int64"}
    return np.dtype(others.get(dtype, dtype))


# -- whole arrays --------------------------------------------------------------------------------------------------


def _pad(array: Array, axis: int, step: int) -> Array:
    """Fills an axis up with zeros to a multiple of ``step``."""
    more = -array.shape[axis] % step
    return np.pad(array, [(0, more if each == axis else 0) for each in range(array.ndim)])


def to_device(array: Array, fmt: str, c0: int, groups: int = 1) -> Array:
    """The device's tensor of a host tensor, padded with zeros."""
    if groups > 1:
        return _grouped_to_device(array, c0, groups)
    return _TO_DEVICE[fmt](array, c0)


def _nc1hwc0(array: Array, c0: int) -> Array:
    n, _, h, w = array.shape
    return _pad(array, 1, c0).reshape(n, -1, c0, h, w).transpose(0, 1, 3, 4, 2)


def _ndc1hwc0(array: Array, c0: int) -> Array:
    n, _, d, h, w = array.shape
    return _pad(array, 1, c0).reshape(n, -1, c0, d, h, w).transpose(0, 3, 1, 4, 5, 2)


def _fractal_nz(array: Array, c0: int) -> Array:
    rows, columns = array.shape[-2:]
    at = array.ndim - 2
    blocks = _pad(_pad(array, at + 1, c0), at, 16)
    blocks = blocks.reshape(*array.shape[:at], -(-rows // 16), 16, -(-columns // c0), c0)
    return blocks.transpose(*range(at), at + 2, at, at + 1, at + 3)


def _fractal_z(array: Array, c0: int) -> Array:
    _, _, h, w = array.shape
    blocks = _pad(_pad(array, 1, c0), 0, 16)
    device = blocks.reshape(blocks.shape[0] // 16, 16, -1, c0, h, w).transpose(2, 4, 5, 0, 1, 3)
    return device.reshape(-1, *device.shape[3:])


def _fractal_z_3d(array: Array, c0: int) -> Array:
    _, _, d, h, w = array.shape
    blocks = _pad(_pad(array, 1, c0), 0, 16)
    device = blocks.reshape(blocks.shape[0] // 16, 16, -1, c0, d, h, w).transpose(4, 2, 5, 6, 0, 1, 3)
    return device.reshape(-1, *device.shape[4:])


def _fractal_z_c04(array: Array, _: int) -> Array:
    """Pixels of four channels each, in rows of sixteen numbers."""
    n, _, h, w = array.shape
    pixels = _pad(_pad(array, 1, 4).transpose(0, 2, 3, 1).reshape(n, h * w * 4), 1, 16)
    blocks = _pad(pixels, 0, 16).reshape(-(-n // 16), 16, -1, 16)
    return blocks.transpose(2, 0, 1, 3)


def _c1hwncoc0(array: Array, c0: int) -> Array:
    n, _, h, w = array.shape
    channels = _pad(array, 1, c0).reshape(n, -1, c0, h, w).transpose(1, 3, 4, 0, 2)
    device = np.zeros((*channels.shape, c0), array.dtype)
    for each in range(c0):
        device[..., each, each] = channels[..., each]
    return device


_TO_DEVICE = {
    "NC1HWC0": _nc1hwc0,
    "NC1HWC0_C04": _nc1hwc0,
    "FRACTAL_Z": _fractal_z,
    "FRACTAL_NZ": _fractal_nz,
    "NDC1HWC0": _ndc1hwc0,
    "FRACTAL_Z_3D": _fractal_z_3d,
    "FRACTAL_Z_C04": _fractal_z_c04,
    "C1HWNCoC0": _c1hwncoc0,
}


def _grouped_to_device(array: Array, c0: int, groups: int) -> Array:
    """Groups stand on the diagonal of a bigger weight: ``e`` of them in one."""
    n, cin, h, w = array.shape
    cout = n // groups
    e = min(math.lcm(math.lcm(cin, c0) // cin, math.lcm(cout, 16) // cout), groups)
    runs = []
    for first in range(0, groups, e):
        joined = np.zeros((e * cout, e * cin, h, w), array.dtype)
        for place, group in enumerate(range(first, min(first + e, groups))):
            weights = array[group * cout : (group + 1) * cout]
            joined[place * cout : (place + 1) * cout, place * cin : (place + 1) * cin] = weights
        runs.append(_fractal_z(joined, c0))
    return np.concatenate(runs)


def dirty(values: Array, fmt: str, c0: int, dtype: str, groups: int = 1) -> Array:
    """The device's elements of a tensor, with bits that stand for nothing in the padding."""
    device = np.ascontiguousarray(to_device(values, fmt, c0, groups))
    holes = np.ascontiguousarray(to_device(np.ones(values.shape, np.uint8), fmt, c0, groups)) == 0
    raw = device.view(np.uint8).reshape(*device.shape, -1)
    raw[holes] = 1 if dtype == "bool" else 0xFF
    return device


# -- one element at a time -----------------------------------------------------------------------------------------


def device_index(at: Shape, host: Shape, fmt: str, c0: int, groups: int = 1) -> int:
    """Where one element of the host's tensor stands in the device's buffer."""
    if groups > 1:
        return _grouped_at(at, host, c0, groups)
    return _AT[fmt](at, host, c0)


def _nc1hwc0_at(at: Shape, host: Shape, c0: int) -> int:
    (n, c, h, w), (_, C, H, W) = at, host
    C1 = -(-C // c0)
    return n * C1 * H * W * c0 + (c // c0) * H * W * c0 + h * W * c0 + w * c0 + c % c0


def _fractal_z_at(at: Shape, host: Shape, c0: int) -> int:
    (n, c, h, w), (N, _, H, W) = at, host
    N16 = 16 * -(-N // 16)
    return (c // c0) * H * W * N16 * c0 + h * W * N16 * c0 + w * N16 * c0 + n * c0 + c % c0


def _grouped_at(at: Shape, host: Shape, c0: int, groups: int) -> int:
    (row, c, h, w), (N, cin, H, W) = at, host
    cout = N // groups
    e = min(math.lcm(math.lcm(cin, c0) // cin, math.lcm(cout, 16) // cout), groups)
    cin_opt, cout_opt = c0 * -(-(e * cin) // c0), 16 * -(-(e * cout) // 16)
    C1 = cin_opt // c0
    gi, n = row // cout, row % cout
    ci, co = (gi % e) * cin + c, (gi % e) * cout + n
    place = (gi // e) * C1 * H * W * cout_opt * c0 + (ci // c0) * H * W * cout_opt * c0
    return place + h * W * cout_opt * c0 + w * cout_opt * c0 + co * c0 + ci % c0


def _fractal_nz_at(at: Shape, host: Shape, c0: int) -> int:
    *lead, h, w = at
    *batch, H, W = host
    W1, H1 = -(-W // c0), -(-H // 16)
    t = 0
    for index, length in zip(lead, batch, strict=True):
        t = t * length + index
    return t * W1 * H1 * 16 * c0 + (w // c0) * H1 * 16 * c0 + h * c0 + w % c0


def _ndc1hwc0_at(at: Shape, host: Shape, c0: int) -> int:
    (n, c, d, h, w), (_, C, D, H, W) = at, host
    C1 = -(-C // c0)
    return ((n * D + d) * C1 + c // c0) * H * W * c0 + h * W * c0 + w * c0 + c % c0


def _fractal_z_3d_at(at: Shape, host: Shape, c0: int) -> int:
    (n, c, d, h, w), (N, C, _, H, W) = at, host
    N16, C1 = 16 * -(-N // 16), -(-C // c0)
    return (d * C1 + c // c0) * H * W * N16 * c0 + h * W * N16 * c0 + w * N16 * c0 + n * c0 + c % c0


def _fractal_z_c04_at(at: Shape, host: Shape, _: int) -> int:
    (n, c, h, w), (N, _, _, W) = at, host
    N1 = -(-N // 16)
    k = (h * W + w) * 4 + c
    return (k // 16) * N1 * 256 + (n // 16) * 256 + (n % 16) * 16 + k % 16


def _c1hwncoc0_at(at: Shape, host: Shape, c0: int) -> int:
    (n, c, h, w), (N, _, H, W) = at, host
    Co = c0
    place = (c // c0) * H * W * N * Co * c0 + h * W * N * Co * c0 + w * N * Co * c0
    return place + n * Co * c0 + (c % c0) * c0 + c % c0


_AT = {
    "NC1HWC0": _nc1hwc0_at,
    "NC1HWC0_C04": _nc1hwc0_at,
    "FRACTAL_Z": _fractal_z_at,
    "FRACTAL_NZ": _fractal_nz_at,
    "NDC1HWC0": _ndc1hwc0_at,
    "FRACTAL_Z_3D": _fractal_z_3d_at,
    "FRACTAL_Z_C04": _fractal_z_c04_at,
    "C1HWNCoC0": _c1hwncoc0_at,
}


def from_device(buffer: Sequence[Any], host: Shape, fmt: str, c0: int, groups: int = 1) -> list[Any]:
    """The host's elements in C order."""
    places: Iterator[Shape] = product(*(range(length) for length in host))
    return [buffer[device_index(at, host, fmt, c0, groups)] for at in places]


# -- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A tensor to write.

    Attributes:
        values: as the program knows them.
        dtype, format: by name.
        groups: of a grouped convolution's weights.
        device: the device's elements, where they are not to be made from ``values``.
        header: numbers of the header to write in place of the right ones: ``size``, ``data_type``, ``format``,
            ``shape``, ``original_shape`` (None: none at all), ``sub_format``.
        padding: bytes behind the elements, which belong to the tensor's memory.
    """

    values: Array
    dtype: str = ""
    format: str = "ND"
    groups: int = 1
    device: Array | None = None
    header: Mapping[str, Any] | None = None
    padding: bytes = b""

    @property
    def type_name(self) -> str:
        """The element type by name."""
        return self.dtype or self.values.dtype.name

    def on_device(self) -> Array:
        """The device's tensor."""
        if self.device is not None:
            return self.device
        if self.format not in CONVERTED:
            return self.values
        return to_device(self.values, self.format, block_of(self.type_name, self.format), self.groups)


def packed_bytes(values: Array, dtype: str) -> bytes:
    """The bytes of elements; small ones share a byte, the first one in its lowest bits, of uint1 in its highest bit."""
    if dtype not in BITS:
        return np.ascontiguousarray(values).tobytes()
    bits = BITS[dtype]
    if bits == 1:
        return np.packbits(values.reshape(-1).astype(np.uint8)).tobytes()
    found = bytearray(-(-values.size * bits // 8))
    for number, value in enumerate(values.reshape(-1).tolist()):
        found[number * bits // 8] |= (value & ((1 << bits) - 1)) << (number * bits % 8)
    return bytes(found)


def _varint(value: int) -> bytes:
    found = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        found.append(low | 0x80 if value else low)
        if not value:
            return bytes(found)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _shape(shape: Shape, packed: bool) -> bytes:
    if packed:
        return _block(1, b"".join(map(_varint, shape))) if shape else b""
    return b"".join(_number(1, each) for each in shape)


def _message(tensor: Written, device: Array, size: int, output: bool, packed: bool) -> bytes:
    facts: dict[str, Any] = {
        "data_type": TYPES[tensor.type_name],
        "format": FORMATS[tensor.format],
        "shape": device.shape,
        "size": size,
        "original_shape": tensor.values.shape,
        "sub_format": tensor.groups if tensor.groups > 1 else 0,
        **(tensor.header or {}),
    }
    size_at, original_at, sub_at = (6, 7, 8) if output else (5, 6, 7)
    parts = [_number(1, facts["data_type"]), _number(2, facts["format"]), _block(3, _shape(facts["shape"], packed))]
    if output:
        parts.append(_block(4, _block(1, b"Default/original") + _number(2, 0)))
    parts.append(_number(size_at, facts["size"]))
    if facts["original_shape"] is not None:
        parts.append(_block(original_at, _shape(facts["original_shape"], packed)))
    if facts["sub_format"]:
        parts.append(_number(sub_at, facts["sub_format"]))
    return b"".join(parts)


def file_bytes(
    inputs: Sequence[Written] = (),
    outputs: Sequence[Written] = (),
    *,
    op_name: str = "Default/op",
    buffers: Sequence[bytes] = (),
    spaces: Sequence[bytes] = (),
    unknown: bytes = b"",
    packed: bool = True,
) -> bytes:
    """One file: length of the header, header, all inputs, all outputs, buffers, the device's working memory.

    ``unknown`` are fields that no version of the header has, at the end of it and of every tensor's part.
    """
    header, payload = [_block(1, b"1.0"), _number(2, 1_700_000_000)], b""
    messages: dict[int, list[bytes]] = {3: [], 4: []}
    for field, tensors in ((4, inputs), (3, outputs)):
        for tensor in tensors:
            device = tensor.on_device()
            content = packed_bytes(device, tensor.type_name)
            content += tensor.padding
            message = _message(tensor, device, len(content), field == 3, packed) + unknown
            messages[field].append(_block(field, message))
            payload += content
    header += messages[3] + messages[4]
    for each in buffers:
        header.append(_block(5, _number(1, 0) + _number(3, len(each))))
        payload += each
    header.append(_block(6, op_name.encode()))
    header.append(_block(7, _block(1, b"mode") + _block(2, b"{}")))
    for each in spaces:
        header.append(_block(8, _number(1, 0) + _number(3, len(each))))
        payload += each
    message = b"".join(header) + unknown
    return len(message).to_bytes(8, "little") + message + payload


def random_values(rng: np.random.Generator, shape: Shape, dtype: str) -> Array:
    """Values of a type, without NaN, so that they can be compared."""
    kind = numpy_type(dtype)
    if dtype in BITS:
        half = 1 << (BITS[dtype] - 1)
        low, high = (0, 2 * half) if dtype[0] in "uf" else (-half, half)
        return rng.integers(low, high, shape).astype(kind)
    if kind.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(kind)
    if kind.kind in "biu":
        return rng.integers(0, 2 if kind.kind == "b" else 120, shape).astype(kind)
    normal = rng.normal(size=shape)
    return (np.abs(normal) if dtype == "float8_e8m0fnu" else normal).astype(kind)


def nano_bytes(inputs: list[tuple[Array, int]], outputs: list[tuple[Array, int]], fmt: int = 2) -> bytes:
    """A file of a small device; numbers are those of element types."""

    def block(tag: int, content: bytes) -> bytes:
        return struct.pack("<II", tag, len(content)) + content

    def tensor(values: Array, data_type: int, *, output: bool) -> bytes:
        dims = struct.pack(f"<{values.ndim}Q", *values.shape)
        lists = block(0, dims) + block(1, dims) + (block(2, b"name") if output else b"")
        more = struct.pack("<iii", 0, data_type, fmt) if output else b""
        head = struct.pack("<iii", data_type, fmt, 0) + more + struct.pack("<QQQ", 0, 0, values.nbytes)
        return head + struct.pack("<I", len(lists)) + lists

    sides = [
        struct.pack("<I", len(some)) + b"".join(tensor(*each, output=output) for each in some)
        for some, output in ((inputs, False), (outputs, True))
    ]
    header = struct.pack("<II", 0x5A5A5A5A, 0) + block(4, sides[0]) + block(5, sides[1])
    data = b"".join(packed_bytes(values, values.dtype.name) for values, _ in (*inputs, *outputs))
    return struct.pack("<Q", len(header)) + header + data


# -- dumps ---------------------------------------------------------------------------------------------------------


class DeviceDump:
    """Writes a dump as an Ascend server does asynchronously: one file for each run of an operator."""

    def __init__(self, root: Path, *, op_debug_mode: int = 3, version: str = "1.9.0", net: str = "Net") -> None:
        self.writer = DumpWriter(root, Generation.V2_0, net=net)
        self.mode, self.version = op_debug_mode, version

    def metadata(self, rank: int = 0) -> None:
        """As an asynchronous dump has it."""
        directory = self.writer.rank(rank) / ".dump_metadata"
        directory.mkdir(exist_ok=True)
        common = {"net_name": self.writer.net, "iteration": "all", "op_debug_mode": self.mode, "input_output": 0}
        settings = {"common_dump_settings": common, "async_dump_settings": {"enable": True}}
        (directory / "data_dump.json").write_text(json.dumps(settings))
        facts = {"device_target": "Ascend", "ms_version": self.version}
        (directory / "config.json").write_text(json.dumps(facts))

    def file_name(self, op_type: str, name: str, task: int, stream: int = 2) -> str:
        """The name of the next file; advances the clock."""
        self.writer.clock += 100
        return f"{op_type}.{name.replace('/', '_')}.{task}.{stream}.{self.writer.clock}"

    def operator(
        self,
        step: int,
        node: Node,
        inputs: Sequence[Written],
        outputs: Sequence[Written],
        *,
        task: int,
        rank: int = 0,
        graph: int = 0,
    ) -> Path:
        """One run of one operator."""
        path = self.writer.step(step, rank=rank, graph=graph) / self.file_name(node.type, node.name, task)
        return write(path, file_bytes(inputs, outputs, op_name=node.name))

    def step(
        self, step: int, graph: Graph = MLP, *, rank: int = 0, fmt: str = "FRACTAL_NZ", bad: str = ""
    ) -> dict[str, Array]:
        """One step of a graph: every operator's inputs are what made them; the output of ``bad`` is infinite.

        Returns:
            Output values by canonical node id; of a parameter what was read.
        """
        random = np.random.default_rng((step, rank))
        names = [*graph.parameters, *(node.name for node in graph.nodes)]
        values = {name: random.standard_normal((2, 3)).astype(np.float32) for name in names}
        if bad:
            values[bad][1, 1] = np.inf
        for task, node in enumerate(graph.nodes, 10):
            inputs = [Written(values[producer], format=fmt) for producer, _ in node.inputs]
            self.operator(step, node, inputs, [Written(values[node.name], format=fmt)], task=task, rank=rank)
        return values

    def overflow(self, step: int, content: str | bytes, *, rank: int = 0, beside: bool = False) -> Path:
        """A record of an overflow, in a directory of its own or beside the tensors of the step."""
        directory = self.writer.rank(rank) / "debug_files" / str(step)
        directory = self.writer.step(step, rank=rank) if beside else directory
        name = self.file_name("Opdebug", "Node_OpDebug", 1, 1)
        if isinstance(content, bytes):
            return write(directory / name, content)
        return write(directory / f"{name}.output.0.json", content.encode())


def task_of(node: str, graph: Graph = MLP) -> int:
    """The task under which ``DeviceDump.step`` runs an operator, on stream 2."""
    return 10 + [each.name for each in graph.nodes].index(node)


def write_device_dump(
    root: Path, *, steps: Sequence[int] = (0, 1, 2), ranks: Sequence[int] = (0,), **others: Any
) -> DeviceDump:
    """A complete healthy asynchronous dump of ``MLP``: metadata, graph, order, history, files."""
    dump = DeviceDump(root, **others)
    for rank in ranks:
        dump.metadata(rank)
        dump.writer.graph(MLP, rank=rank)
        for step in steps:
            dump.step(step, rank=rank)
        dump.writer.history(steps, rank=rank)
    return dump


# -- overflow records ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overflow:
    """What one block of an overflow record tells."""

    task: int = 0
    stream: int = 0
    status: int = 0
    model: int = 0
    kernel_code: int = 0
    block: int = 0


_BLOCKS = ("DHA Atomic Add", "L2 Atomic Add", "AI Core")


def overflow_payload(records: Mapping[str, Overflow]) -> bytes:
    """The blocks: three with who it was, three with the status; numbers of 8 bytes."""

    def numbers(values: Sequence[int], size: int) -> bytes:
        return b"".join(each.to_bytes(8, "little") for each in values).ljust(size, b"\0")

    found = b""
    for name, size in zip(_BLOCKS, (128, 128, 256), strict=True):
        each = records.get(name, Overflow())
        found += numbers((each.model, each.stream, each.task, 0, 0x1000, 0x2000), size)
    for name in _BLOCKS[:2]:
        found += numbers((records.get(name, Overflow()).status,), 256)
    core = records.get("AI Core", Overflow())
    return (found + numbers((core.kernel_code, core.block, core.status), 256)).ljust(2048, b"\0")


def overflow_bytes(records: Mapping[str, Overflow]) -> bytes:
    """A record as the device writes it."""
    payload = np.frombuffer(overflow_payload(records), np.uint8)
    return file_bytes(outputs=[Written(payload)], op_name="Node_OpDebug")


def overflow_json(records: Mapping[str, Overflow]) -> str:
    """A record as newer versions write it."""
    content: dict[str, dict[str, Any]] = {}
    for name in _BLOCKS:
        each = records.get(name, Overflow())
        content[name] = {
            "model_id": each.model,
            "stream_id": each.stream,
            "task_id": each.task,
            "task_type": 0,
            "pc_start": "0x1000",
            "para_base": "0x2000",
            "status": each.status,
        }
        if name == "AI Core":
            content[name] |= {"kernel_code": f"{each.kernel_code:#x}", "block_idx": each.block}
    return json.dumps(content)


_CORE_NUMBERS = ("thread_id", "pc_start", "para_base", "core_id", "block_id")
NEW_UNITS = {
    "AIC": _CORE_NUMBERS,
    "AIV": _CORE_NUMBERS,
    "AICPU": ("cpu_id", "thread_id"),
    "SDMA": ("thread_id", "src_addr", "dst_addr", "channel_id"),
}
"""Units that records of the new layout tell of, and their numbers between those of all and the status."""


def new_numbers(unit: str, version: int = 0, status: int = 0x20, **others: int) -> dict[str, Any]:
    """The numbers of a record of the new layout."""
    names = ("model_id", "stream_id", "task_id", "task_type", "context_id", *NEW_UNITS[unit])
    numbers: dict[str, Any] = dict.fromkeys(names, 0) | {"context_id": 65535, "thread_id": 65535, **others}
    several = version == 1 and unit in ("AIC", "AIV")
    return {**numbers, "status": [0, status, 0, 0] if several else status}


def new_overflow_bytes(unit: str, version: int = 0, *, valid: int = 1, size: int = 2048, **numbers: int) -> bytes:
    """A record of the new layout as the device writes it; ``unit`` may be a number that no unit has."""
    number = list(NEW_UNITS).index(unit) if unit in NEW_UNITS else int(unit)
    found = new_numbers(unit if unit in NEW_UNITS else "AIC", version, **numbers)
    words = [each for value in found.values() for each in (value if isinstance(value, list) else [value])]
    head = struct.pack("<IIIIII", 0x5A5A5A5A, version, valid, number, 0, 8 * len(words))
    payload = (head + struct.pack(f"<{len(words)}Q", *words)).ljust(size, b"\0")[:size]
    return file_bytes(outputs=[Written(np.frombuffer(payload, np.uint8))], op_name="Node_OpDebug")


def new_overflow_json(unit: str, version: int = 0, *, valid: int = 1, **numbers: int) -> str:
    """A record of the new layout as the vendor's tool converts it."""
    found = new_numbers(unit if unit in NEW_UNITS else "AIC", version, **numbers)
    found |= {name: hex(found[name]) for name in ("pc_start", "para_base", "src_addr", "dst_addr") if name in found}
    part = {"valid": valid, "acc_type": unit, "rsv": 0, "data_len": 8 * len(found), "data": found}
    return json.dumps({"magic": "0x5a5a5a5a", "version": version, "acc_list": part})


_FRAME = "# In file /root/net/train.py:{}/        return ops.relu(self.fc1(x))/\n"
OVERFLOWING = Graph([replace(node, source=_FRAME.format(30 + at)) for at, node in enumerate(MLP.nodes)], MLP.parameters)
"""``MLP``, each of whose operators has a line of source from 30 on."""


def write_overflowing_dump(root: Path) -> DeviceDump:
    """Two ranks; at step 2 of rank 1 an operator overflows to infinity, at step 1 of rank 0 it saturates."""
    dump, relu = DeviceDump(root), OVERFLOWING.nodes[1].name
    for rank in (0, 1):
        dump.metadata(rank)
        dump.writer.graph(OVERFLOWING, rank=rank)
        for step in range(3):
            dump.step(step, OVERFLOWING, rank=rank, bad=relu if (rank, step) == (1, 2) else "")
        dump.writer.history(range(3), rank=rank)
    task = task_of(relu, OVERFLOWING)
    dump.overflow(1, overflow_bytes({"AI Core": Overflow(task, 2, 0x20, block=4)}))
    dump.overflow(2, overflow_json({"AI Core": Overflow(task, 2, 0x8)}), rank=1)
    return dump


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A file with something wrong: bits turned, bytes cut out, doubled or overwritten, the end missing."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, min(len(found), 400) if rng.random() < 0.8 else len(found))))
        kind = int(rng.integers(0, 5))
        if kind == 0 and found:
            found[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del found[at : at + int(rng.integers(1, 20))]
        elif kind == 2:
            found[at:at] = found[at : at + int(rng.integers(1, 20))]
        elif kind == 3:
            found[at : at + 1] = bytes([int(rng.integers(0, 256))])
        else:
            del found[at:]
    return bytes(found)


def with_header(tensor: Written, **facts: Any) -> Written:
    """The tensor with other facts in its header."""
    return replace(tensor, header={**(tensor.header or {}), **facts})


def write(path: Path, data: bytes) -> Path:
    """Writes a file, its directory included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


class Converted:
    """Counts the elements that are converted from the order of a device.

    Attributes:
        pieces: how many were asked for at once, each time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counts from now on."""
        self.pieces: list[int] = []
        copy, places = DeviceOrder.copy, DeviceOrder.places

        def counted(order: DeviceOrder, buffer: Array, start: int, target: Array) -> None:
            self.pieces.append(len(target))
            copy(order, buffer, start, target)

        def found(order: DeviceOrder, elements: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            self.pieces.append(elements.size)
            return places(order, elements)

        monkeypatch.setattr(DeviceOrder, "copy", counted)
        monkeypatch.setattr(DeviceOrder, "places", found)

    @property
    def most(self) -> int:
        """Most at once."""
        return max(self.pieces)

    @property
    def total(self) -> int:
        """All together."""
        return sum(self.pieces)


LONG: Final = (24, 40, 32, 32)
"""The shape of a tensor that ``take_for_long`` takes for a long one."""


def write_long_tensors(root: Path) -> Array:
    """Writes a dump of two steps with one operator that has a long output; returns its values, the same at both."""
    values = np.random.default_rng(7).standard_normal(LONG).astype(np.float32)
    dump, node = DeviceDump(root), MLP.nodes[1]
    dump.metadata()
    dump.writer.graph(MLP)
    for step in (0, 1):
        dump.operator(step, node, [], [Written(values, format="NC1HWC0")], task=11)
    dump.writer.history((0, 1))
    return values


def take_for_long(monkeypatch: pytest.MonkeyPatch) -> Converted:
    """Has files of some kilobytes treated as those of gigabytes are; counts what is converted of them."""
    monkeypatch.setattr(ascend_file, "WHOLE_FILE", 1 << 14)
    monkeypatch.setattr(ascend_file, "_AHEAD", 1 << 18)
    return Converted(monkeypatch)
