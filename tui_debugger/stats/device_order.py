"""The order in which an Ascend device holds the elements of a tensor, and the way back to the program's order.

A device holds tensors in blocks of 16 channels or so, padded. ``DeviceOrder`` says where each element of the tensor as
the program knows it stands in such a buffer; copies between strided views do the rest, for as many elements as are
asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Int64, UInt8
from tui_debugger.stats import kernel
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.kernel.elements import copy_elements

Shape = tuple[int, ...]

_CUBE: Final = 16
"""Rows of a block of the device's matrix unit."""


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """The order of the elements of a tensor in the buffer of a device.

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
        # Numpy refuses a view that leaves the buffer, so wrong numbers do no harm.
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


def device_order(fmt: str, device: Shape, host: Shape, bits: int, groups: int = 1) -> DeviceOrder | None:
    """Returns the order of a tensor's elements on the device; None when the two shapes do not fit this format.

    Args:
        fmt: one of ``CONVERTED``.
        device: the device's shape; its last dimension says how long blocks are.
        host: the program's shape.
        bits: of an element, which say it where the device's shape does not.
        groups: of a grouped convolution's weights.
    """
    if any(n <= 0 for n in (*device, *host)):
        return None
    block = device[-1] if len(device) > 3 else _block_of(bits)
    order = _ORDERS[fmt](host, block, groups)
    if order is None or order.count != math.prod(device):
        return None
    return order


def _block_of(bits: int) -> int:
    return 64 if bits < 8 else 32 if bits == 8 else _CUBE


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
CONVERTED: Final = frozenset(_ORDERS)
"""Formats whose order is undone."""


def unconverted_order(fmt: str, shape: Shape, dtype: DType) -> DeviceOrder | None:
    """Returns how to read device bytes that stand under the program's shape; None: as they are.

    That shape tells how they stand only where nothing is padded. A shape that ends like a device's is taken for one.
    """
    if fmt not in CONVERTED or not shape or any(n <= 0 for n in shape):
        return None
    block = 4 if fmt == "NC1HWC0_C04" else _block_of(8 * dtype.itemsize)
    if len(shape) > 2 and shape[-1] == block:
        return None
    order = _ORDERS[fmt](shape, block, 1)
    return order if order is not None and order.count == math.prod(shape) else None
