"""The order of a tensor's elements on an Ascend device, and the way back to the program's order.

A device stores tensors in padded blocks of 16 channels or so. ``DeviceOrder`` gives the place of each element in such a
buffer; copies between strided views do the rest, for only the elements that are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Int64, UInt8
from tui_debugger.stats import kernel
from tui_debugger.stats.blocks import boxes
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.kernel.elements import copy_elements

Shape = tuple[int, ...]

_CUBE: Final = 16
"""Rows of a block of the device's matrix unit."""


@dataclass(frozen=True, slots=True)
class DeviceOrder:
    """The order of the elements of a tensor in a device's buffer of ``count`` elements, padding included.

    ``shape`` has the indices that name an element, in C order; ``strides`` the distances along them. The axis ``lane``
    (channels) is in blocks: channel c is at ``c // block * strides[lane] + c % block * inner``. Grouped weights have
    their groups on axis 0, ``period`` groups side by side in a run of channels and rows: group g adds ``g // period *
    strides[0] + r * shift`` with ``r = g % period``, and its channels begin at channel ``r * phase``.
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
        """Fills a 1-D array with elements from ``start`` on, in C order; ``buffer`` is the whole device buffer."""
        done = 0
        for box in boxes(self.shape, start, len(target)):
            low, high = tuple(first for first, _ in box), tuple(stop for _, stop in box)
            extent = tuple(stop - first for first, stop in box)
            count = math.prod(extent)
            self._copy_box(buffer, low, high, target[done : done + count].reshape(extent))
            done += count

    def places(self, elements: Int64) -> Int64:
        """Returns the places in the buffer of elements, which are numbered in C order."""
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
        """Copies a box of the groups with ``rest`` in their run: whole blocks at once, then the ends."""
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
    """A buffer of elements that share bytes (the first in the lowest bits); only the kernel reads it."""

    packed: UInt8
    bits: int
    signed: bool


def _copy_strided(buffer: Array | SharedBytes, offset: int, strides: Shape, target: Array) -> None:
    """Fills a view of an array with elements of a buffer from ``offset`` on, ``strides`` elements apart."""
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
    """Yields a range of channels, cut at block ends."""
    while first < last:
        end = min(first - first % block + block, last)
        yield first, end
        first = end


# -- formats -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor on a device: its shape there, and the places of its elements."""

    device: Shape
    order: DeviceOrder


def device_order(fmt: str, device: Shape, host: Shape, groups: int = 1) -> DeviceOrder | None:
    """Returns the order of a tensor's elements on the device; None when it cannot be known.

    The program's dimensions get the format's axes: as MindSpore assigns them, else so that the format gives exactly the
    device's shape, whose last dimension is the block length. A program with another axis order than N, C, H, W is
    recognized if only one order gives that shape. ``groups`` belongs to a grouped convolution's weights.
    """
    if any(n <= 0 for n in (*device, *host)):
        return None
    if fmt in _AXES:
        return _transposed(fmt, device, host)
    if fmt.startswith(_NZ):
        block = device[-1] if device else 0
        own = fmt == _NZ or block == int(fmt.rpartition("_")[2])
        return _exact(_fractal_nz(host, block), device) if own else None
    return _by_axes(fmt, device, host, groups) if fmt in _PLACED and device else None


def _by_axes(fmt: str, device: Shape, host: Shape, groups: int) -> DeviceOrder | None:
    """``device_order`` for formats with an axis for each of N, C, (D,) H and W."""
    (place, rank), block = _PLACED[fmt], device[-1]
    for shape in _assigned(host, rank):
        order = _exact(place(shape, block, groups), device)
        if order is not None:
            return order
    if len(host) != rank or groups > 1:
        return None
    found = set()
    for axes in _OTHER_ORDERS[rank]:
        order = _exact(place(tuple(host[axis] for axis in axes), block, groups), device)
        if order is not None and len(order.shape) == rank:
            found.add(_as_program(order, axes))
    return found.pop() if len(found) == 1 else None


def _exact(placed: DeviceTensor | None, device: Shape) -> DeviceOrder | None:
    return placed.order if placed is not None and placed.device == device else None


_OTHER_ORDERS: Final = {4: ((0, 3, 1, 2), (3, 2, 0, 1)), 5: ((0, 4, 1, 2, 3), (4, 3, 0, 1, 2))}
"""Positions of N, C, (D,) H and W in NHWC and HWCN, or NDHWC and DHWCN."""


def _as_program(order: DeviceOrder, axes: Shape) -> DeviceOrder:
    """Returns the order for a program with another axis order; ``axes`` has the position of each axis there."""
    at = [axes.index(axis) for axis in range(len(axes))]
    shape, strides = (tuple(each[axis] for axis in at) for each in (order.shape, order.strides))
    return replace(order, shape=shape, strides=strides, lane=at.index(order.lane))


def _assigned(host: Shape, rank: int) -> Iterator[Shape]:
    """Yields shapes with the format's number of axes: MindSpore's assignment first, then every choice of axes."""
    if len(host) > rank:
        return
    first = tuple(range(1, 1 + len(host))) if len(host) < rank else tuple(range(rank))
    for axes in (first, *combinations(range(rank), len(host))):
        shape = [1] * rank
        for axis, length in zip(axes, host, strict=True):
            shape[axis] = length
        yield tuple(shape)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _nc1hwc0(host: Shape, block: int, _: int) -> DeviceTensor:
    n, c, h, w = host
    blocks, plane = -(-c // block), h * w * block
    image = blocks * plane
    order = DeviceOrder(host, (image, plane, w * block, block), 1, block, 1, n * image)
    return DeviceTensor((n, blocks, h, w, block), order)


def _nc1hwc0_c04(host: Shape, block: int, _: int) -> DeviceTensor | None:
    return _nc1hwc0(host, 4, 1) if block == 4 else None


def _ndc1hwc0(host: Shape, block: int, _: int) -> DeviceTensor:
    n, c, d, h, w = host
    blocks, plane = -(-c // block), h * w * block
    frame = blocks * plane
    order = DeviceOrder(host, (d * frame, plane, frame, w * block, block), 1, block, 1, n * d * frame)
    return DeviceTensor((n, d, blocks, h, w, block), order)


def _fractal_z(host: Shape, block: int, groups: int) -> DeviceTensor | None:
    n, c, h, w = host
    if groups > 1:
        return _grouped(host, block, groups)
    pixel = _up(n, _CUBE) * block
    pixels = -(-c // block) * h * w
    order = DeviceOrder(host, (block, h * w * pixel, w * pixel, pixel), 1, block, 1, pixels * pixel)
    return DeviceTensor((pixels, _up(n, _CUBE) // _CUBE, _CUBE, block), order)


def _grouped(host: Shape, block: int, groups: int) -> DeviceTensor | None:
    n, c, h, w = host
    rows = n // groups
    if n % groups:
        return None
    period = min(math.lcm(math.lcm(c, block) // c, math.lcm(rows, _CUBE) // rows), groups)
    pixel = _up(period * rows, _CUBE) * block
    pixels = _up(period * c, block) // block * h * w
    run, runs = pixels * pixel, -(-groups // period)
    order = DeviceOrder(
        shape=(groups, rows, c, h, w),
        strides=(run, block, h * w * pixel, w * pixel, pixel),
        lane=2,
        block=block,
        inner=1,
        count=runs * run,
        period=period,
        shift=rows * block,
        phase=c,
    )
    return DeviceTensor((runs * pixels, _up(period * rows, _CUBE) // _CUBE, _CUBE, block), order)


def _fractal_z_3d(host: Shape, block: int, groups: int) -> DeviceTensor | None:
    n, c, d, h, w = host
    if groups > 1:
        return None
    pixel = _up(n, _CUBE) * block
    plane, blocks = h * w * pixel, -(-c // block)
    frame = blocks * plane
    order = DeviceOrder(host, (block, plane, frame, w * pixel, pixel), 1, block, 1, d * frame)
    return DeviceTensor((d * blocks * h * w, _up(n, _CUBE) // _CUBE, _CUBE, block), order)


def _fractal_z_c04(host: Shape, block: int, groups: int) -> DeviceTensor | None:
    """Places four channels of a pixel side by side, the next pixel behind them: pixels are in blocks of 4."""
    n, c, h, w = host
    if c > 4 or block != _CUBE or groups > 1:
        return None
    column, columns = _up(n, _CUBE) * _CUBE, -(-h * w // 4)
    order = DeviceOrder((n, c, h * w), (_CUBE, 1, column), 2, 4, 4, columns * column)
    return DeviceTensor((columns, _up(n, _CUBE) // _CUBE, _CUBE, _CUBE), order)


def _fractal_nz(host: Shape, block: int) -> DeviceTensor | None:
    if not block:
        return None
    rows, columns = host[-2:] if len(host) > 1 else (1, math.prod(host))
    batch = math.prod(host[:-2])
    strip, strips = _up(rows, _CUBE) * block, -(-columns // block)
    matrix = strips * strip
    order = DeviceOrder((batch, rows, columns), (matrix, block, strip), 2, block, 1, batch * matrix)
    return DeviceTensor((*host[:-2], strips, _up(rows, _CUBE) // _CUBE, _CUBE, block), order)


def _c1hwncoc0(host: Shape, block: int, _: int) -> DeviceTensor:
    n, c, h, w = host
    cell, blocks = block * block, -(-c // block)
    plane = h * w * n * cell
    order = DeviceOrder(host, (cell, plane, w * n * cell, n * cell), 1, block, block + 1, blocks * plane)
    return DeviceTensor((blocks, h, w, n, block, block), order)


_NZ: Final = "FRACTAL_NZ"
_PLACED: Final = {
    "NC1HWC0": (_nc1hwc0, 4),
    "NC1HWC0_C04": (_nc1hwc0_c04, 4),
    "FRACTAL_Z": (_fractal_z, 4),
    "FRACTAL_Z_C04": (_fractal_z_c04, 4),
    "NDC1HWC0": (_ndc1hwc0, 5),
    "FRACTAL_Z_3D": (_fractal_z_3d, 5),
    "C1HWNCoC0": (_c1hwncoc0, 4),
}
"""By format, the function that places a tensor, and its number of axes."""
_AXES: Final = {
    "NHWC": (0, 3, 1, 2),
    "HWCN": (3, 2, 0, 1),
    "CHWN": (3, 0, 1, 2),
    "NDHWC": (0, 4, 1, 2, 3),
    "DHWCN": (4, 3, 0, 1, 2),
    "DHWNC": (3, 4, 0, 1, 2),
}
"""By format, the positions of N, C, (D,) H and W."""


def _transposed(fmt: str, device: Shape, host: Shape) -> DeviceOrder | None:
    """Returns the order of an NCHW or NCDHW tensor that the device holds with permuted axes."""
    axes = _AXES[fmt]
    if len(axes) != len(device) or tuple(device[axis] for axis in axes) != host:
        return None
    strides = [math.prod(device[axis + 1 :]) for axis in axes]
    return DeviceOrder(host, tuple(strides), 0, host[0], strides[0], math.prod(host))


def unconverted_order(fmt: str, shape: Shape, dtype: DType) -> DeviceOrder | None:
    """Returns the order of device bytes stored under the program's shape; None: to be read as they are.

    That is known only where nothing is padded. A shape that ends like a device's shape is taken for a device's shape.
    """
    if (fmt not in _PLACED and fmt != _NZ) or not shape or any(n <= 0 for n in shape):
        return None
    block = 4 if fmt == "NC1HWC0_C04" else _block_of(8 * dtype.itemsize)
    if len(shape) > 2 and shape[-1] == block:
        return None
    if fmt == _NZ:
        placed = _fractal_nz(shape, block)
    else:
        place, rank = _PLACED[fmt]
        placed = place(next(_assigned(shape, rank)), block, 1) if len(shape) <= rank else None
    return placed.order if placed is not None and placed.order.count == math.prod(shape) else None


def _block_of(bits: int) -> int:
    return 64 if bits < 8 else 32 if bits == 8 else _CUBE
