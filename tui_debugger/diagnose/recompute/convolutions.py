"""Convolutions and their gradients: sums over the positions of a kernel."""

# ruff: noqa: A002, ARG001, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tui_debugger.arrays import Array, Float64, Int64, Shape
from tui_debugger.diagnose.recompute.judge import ACCUMULATED, Expected, OutputJudge, doubles, unit_of
from tui_debugger.diagnose.recompute.probing import (
    LARGE,
    ROWS_SIZE,
    ProbedBlock,
    ProbedOutput,
    block_of,
    group_of,
    looked_closer,
    probes_for,
    take_blocks,
)
from tui_debugger.diagnose.recompute.products import MOST_WORK, peak_of, product_of
from tui_debugger.diagnose.recompute.table import ByShape, CannotBindError, operator
from tui_debugger.stats.kernel import native
from tui_debugger.stats.kernel import probes as compiled
from tui_debugger.stats.kernel.probes import BEYOND, PROBES


def per_dimension(value: Any, count: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(each) for each in (values * count if len(values) == 1 else values))


def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Expected:
    """Adds up the positions of the kernel one after the other."""
    count = weight.ndim - 2
    batched = input.ndim == weight.ndim
    data = doubles(input if batched else input[None])
    if data.ndim != weight.ndim or data.shape[1] != weight.shape[1] * groups or weight.shape[0] % max(groups, 1):
        raise CannotBindError(f"shapes {input.shape} and {weight.shape} do not fit")
    data = np.pad(data, [(0, 0), (0, 0), *padding])
    kernel = weight.shape[2:]
    out = tuple((data.shape[2 + at] - dilation[at] * (kernel[at] - 1) - 1) // stride[at] + 1 for at in range(count))
    if min(out, default=1) < 1:
        raise CannotBindError("the kernel is larger than its input")
    per_in, per_out = weight.shape[1], weight.shape[0] // groups
    filters = doubles(weight).reshape(groups, per_out, per_in, *kernel)
    value = np.zeros((len(data), groups, per_out, math.prod(out)))
    squares = np.zeros_like(value)
    if value.size * per_in * math.prod(kernel) > MOST_WORK:
        raise CannotBindError("too large")
    for position in product(*(range(size) for size in kernel)):
        part = data[_seen(position, out, stride, dilation)]
        part = part.reshape(len(data), groups, per_in, -1)
        place: tuple[Any, ...] = (..., *position)
        tap = filters[place]
        value += np.matmul(tap, part)
        squares += np.matmul(tap * tap, part * part)
    shape = (len(data), weight.shape[0], *out)
    value, squares = value.reshape(shape), squares.reshape(shape)
    partial = np.abs(value) if bias is not None else np.zeros_like(value)
    if bias is not None:
        added = doubles(bias).reshape(-1, *[1] * count)
        value, squares = value + added, squares + added * added
    terms = per_in * math.prod(kernel) + 1
    if not batched:
        value, squares, partial = value[0], squares[0], partial[0]
    return Expected(
        value, np.sqrt(squares), terms, partial=partial, peak=peak_of(data, filters) * math.prod(kernel), cast=True
    )


_Images = Callable[[int, bool], tuple[Float64, Float64]]
"""Convolves the image of a number with the random sums of filters; the flag asks for the squares as well."""


class LargeConvolution(ProbedOutput):
    """A convolution that is checked with random vectors, like ``LargeProduct``, with channels as columns."""

    def __init__(self, input: Array, weight: Array, bias: Array | None, how: tuple[Any, Any, Any]) -> None:
        """``how`` is (strides, padding, dilation)."""
        self.input, self.weight, self.bias, self.how = input, weight, bias, how
        steps, around, apart = how
        sizes = zip(input.shape[2:], around, apart, weight.shape[2:], steps, strict=True)
        out = ((size + sum(pad) - hole * (width - 1) - 1) // step + 1 for size, pad, hole, width, step in sizes)
        self.shape = (len(input), len(weight), *out)
        self.work = math.prod(self.shape) * math.prod(weight.shape[1:])

    def exact(self) -> Expected:
        return convolution(self.input, self.weight, self.bias, *self.how, 1)

    def judge(self, judge: OutputJudge, found: Array) -> bool:
        unit = unit_of(found.dtype)
        if unit is None or found.shape != self.shape or min(found.shape) < 1:
            return False
        channels = len(self.weight)
        group = group_of(channels)
        probes = probes_for((self.input, self.weight, found), channels, group)
        sums, squares = probes.of_columns(self.weight.reshape(channels, -1).T)
        added, added_squares = np.zeros(sums.shape[1]), np.zeros(squares.shape[1])
        if self.bias is not None:
            added, added_squares = (each[0] for each in probes.of_rows(self.bias.astype(np.float64)[None]))
        made_of = (self._in_planes if probes.multiplies(self.input) else self._in_images)(sums, squares)
        inside = ACCUMULATED * math.sqrt(len(sums) + 1)

        def block(at: int, *, whole: bool) -> ProbedBlock:
            made, their_squares = made_of(at, whole)
            seen, value = probes.of_channels(found[at].reshape(channels, -1))
            size = their_squares + added_squares[:, None]
            error = (seen - added[:, None]).reshape(made.shape)
            error -= made
            error = np.square(error, out=error).reshape(len(size), PROBES, -1).mean(axis=1)
            explained = unit * np.sqrt(value) + inside * np.sqrt(size + value / 4)
            if judge.widest < unit:
                explained += unit * np.sqrt(size)
            start = at * math.prod(self.shape[1:])
            exact = partial(self._exact, found, at)
            return block_of(start, (error.T, explained.T), (unit, value), (inside, size), exact)

        take_blocks(judge, [looked_closer(partial(block, at), unit) for at in range(len(self.input))])
        return True

    def _in_planes(self, sums: Array, squares: Array) -> _Images:
        """Convolves with the compiled kernel; results are by group, probe and place.

        With strides, the input is split into planes, so that the places that one position of the kernel reads are
        contiguous.
        """
        steps, around, apart = self.how
        channels, kernel, out = self.weight.shape[1], self.weight.shape[2:], self.shape[2:]
        sizes = [size + sum(both) for size, both in zip(self.input.shape[2:], around, strict=True)]
        inner = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
        places = out[0] * math.prod(inner[1:])
        every = channels * math.prod(steps) * math.prod(inner)
        planes = np.zeros(every + places + BEYOND, np.float32)
        pairs = [each for pair in zip(inner, steps, strict=True) for each in pair]
        turned = [0, *range(2, 2 * len(steps) + 2, 2), *range(1, 2 * len(steps) + 1, 2)]
        view = planes[:every].reshape(channels, *steps, *inner)
        plain = math.prod(steps) == 1
        padded = view.reshape(channels, *pairs) if plain else np.zeros((channels, *pairs), np.float32)
        inner_part = padded.reshape(channels, *(one * step for one, step in zip(inner, steps, strict=True)))
        beside = zip(around, self.input.shape[2:], strict=True)
        inside = (slice(None), *(slice(low, low + size) for (low, _), size in beside))
        offsets = _offsets(view, kernel, steps, apart)
        groups = squares.shape[1]
        filters = np.ascontiguousarray(sums.reshape(-1, groups, PROBES).transpose(1, 0, 2))
        their_squares = np.ascontiguousarray(squares.T)
        wanted: tuple[Any, ...] = (Ellipsis, slice(None), *(slice(size) for size in out[1:]))

        def made_of(at: int, squared: bool) -> tuple[Float64, Float64]:
            inner_part[inside] = compiled.singles(native(self.input[at]))
            if not plain:
                view[...] = padded.transpose(turned)
            both = compiled.convolved(planes, offsets, filters, their_squares if squared else None, places)
            made, size = (each.reshape(*each.shape[:-1], out[0], *inner[1:])[wanted] for each in both)
            return made, size.reshape(groups, -1)

        return made_of

    def _in_images(self, sums: Array, squares: Array) -> _Images:
        groups, shape = squares.shape[1], self.weight.shape[1:]
        filters, their_squares = (each.T.reshape(-1, *shape) for each in (sums, squares))

        def made_of(at: int, squared: bool) -> tuple[Float64, Float64]:
            padded = np.pad(self.input[at].astype(sums.dtype), [(0, 0), *self.how[1]])
            made = self._convolved(padded, filters).reshape(groups, PROBES, -1)
            return made, self._convolved(np.square(padded), their_squares) if squared else np.zeros(
                (groups, made.shape[-1])
            )

        return made_of

    def _convolved(self, padded: Array, filters: Array) -> Float64:
        """Convolves an image with a few filters: multiplies it with each kernel position, then shifts the products."""
        stride, _, dilation = self.how
        flat, out = padded.reshape(len(padded), -1), self.shape[2:]
        value = np.zeros((len(filters), *out))
        positions = list(product(*(range(size) for size in filters.shape[2:])))
        most = max(ROWS_SIZE // max(len(filters) * flat.shape[1], 1), 1)
        for begin in range(0, len(positions), most):
            some = positions[begin : begin + most]
            places: list[tuple[Any, ...]] = [(Ellipsis, *position) for position in some]
            made = np.concatenate([filters[place] for place in places]) @ flat
            made = made.reshape(len(some), len(filters), *padded.shape[1:])
            for number, position in enumerate(some):
                window: tuple[Any, ...] = (number, slice(None), *_window(position, out, stride, dilation))
                value += made[window]
        return value.reshape(len(filters), -1)

    def _exact(self, found: Array, at: int, places: Array | None) -> tuple[Expected, Array]:
        steps, around, apart = self.how
        if places is None:
            return convolution(self.input[at : at + 1], self.weight, self.bias, *self.how, 1), found[at : at + 1]
        where = np.unravel_index(places, self.shape[2:])
        data = np.pad(self.input[at], [(0, 0), *around])
        seen = tuple(hole * (size - 1) + 1 for hole, size in zip(apart, self.weight.shape[2:], strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(data, seen, axis=tuple(range(1, data.ndim)))
        seen_from: tuple[Any, ...] = (slice(None), *(each * step for each, step in zip(where, steps, strict=True)))
        holes: tuple[Any, ...] = (Ellipsis, *(slice(None, None, hole) for hole in apart))
        some = windows[seen_from][holes]
        patches = np.moveaxis(some, 1, 0).reshape(len(places), -1)
        made: Expected = product_of(patches, self.weight.reshape(len(self.weight), -1).T, self.bias, exact=True)
        recorded: tuple[Any, ...] = (slice(None), *where)
        return made, found[at][recorded].T


def _offsets(planes: Array, kernel: Sequence[int], steps: Sequence[int], apart: Sequence[int]) -> Int64:
    """Returns the offset of each term from the first place; ``planes`` is (channel, offset within a stride, place)."""
    channel, *strides = (each // planes.itemsize for each in planes.strides)
    found = []
    for position in product(*(range(size) for size in kernel)):
        seen = [at * hole for at, hole in zip(position, apart, strict=True)]
        begun = [at % step for at, step in zip(seen, steps, strict=True)]
        place = [at // step for at, step in zip(seen, steps, strict=True)]
        found.append(sum(at * stride for at, stride in zip((*begun, *place), strides, strict=True)))
    return (np.arange(len(planes), dtype=np.int64)[:, None] * channel + np.array(found, np.int64)).reshape(-1)


def _window(
    position: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """The places of the input that one position of the kernel reads, for all places of the output."""
    return tuple(
        slice(at * apart, at * apart + (size - 1) * step + 1, step)
        for at, size, step, apart in zip(position, out, stride, dilation, strict=True)
    )


def _seen(
    position: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    return slice(None), slice(None), *_window(position, out, stride, dilation)


def _padded(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0) for _ in kernel]
    if padding == "same":
        total = [apart * (size - 1) for size, apart in zip(kernel, dilation, strict=True)]
        return [(each // 2, each - each // 2) for each in total]
    if isinstance(padding, str):
        raise CannotBindError(f"padding not known: {padding}")
    return [(each, each) for each in per_dimension(padding, len(kernel))]


@operator("conv", "conv1d conv2d conv3d npu_conv2d")
def conv(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    count = weight.ndim - 2
    steps, apart = per_dimension(stride, count), per_dimension(dilation, count)
    around = _padded(padding, weight.shape[2:], apart)
    if any(each for pair in around for each in pair) and not np.all(np.isfinite(weight)):
        raise CannotBindError("weights that are not finite, beside padding: kernels leave it out or not")
    if groups == 1 and input.ndim == weight.ndim and len(weight) >= 2 * PROBES and input.size * len(weight) >= LARGE:
        return LargeConvolution(input, weight, bias, (steps, around, apart))
    return convolution(input, weight, bias, steps, around, apart, groups)


# -- MindSpore's graphs ------------------------------------------------------------------------------------


def graph_padding(
    mode: Any, pad: Any, shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after each dimension, by MindSpore's rules."""
    word = str(mode).lower() if mode is not None else ""
    if word in {"valid", "2"}:
        return [(0, 0) for _ in kernel]
    if word in {"same", "1"}:
        found = []
        for size, width, step, apart in zip(shape, kernel, stride, dilation, strict=True):
            total = max((-(-size // step) - 1) * step + apart * (width - 1) + 1 - size, 0)
            found.append((total // 2, total - total // 2))
        return found
    around = per_dimension(pad if pad is not None else 0, 2 * len(kernel))
    return [(around[2 * at], around[2 * at + 1]) for at in range(len(kernel))]


def spatial(value: Any, count: int) -> tuple[int, ...]:
    """Strides and similar settings: MindSpore writes them with or without the first two dimensions."""
    return per_dimension(1 if value is None else value, count)[-count:]


@operator("conv", graphs="Conv2D Conv3D Conv2DBiasAddFusion DepthwiseConv2dNative")
def graph_conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    pad_mode: Any = None,
    pad: Any = None,
    pad_list: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    group: int = 1,
    format: str = "NCHW",
) -> Expected:
    if format not in {"NCHW", "NCDHW"} or (pad_mode is None and pad is None):
        raise CannotBindError("layout or padding not known")
    count = w.ndim - 2
    steps, apart = spatial(stride, count), spatial(dilation, count)
    around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, x.shape[2:], w.shape[2:], steps, apart)
    return convolution(x, w, bias, steps, around, apart, group)


def symmetric(stride: Any, padding: Any, dilation: Any) -> dict[str, Any]:
    """The settings of a convolution of two dimensions with zeros around, as graphs name them."""
    pad = tuple(each for size in per_dimension(padding, 2) for each in (size, size))
    return {"pad_mode": "pad", "pad": pad, "stride": stride, "dilation": dilation}


@operator("conv gradient", graphs="Conv2DBackpropFilter", unneeded=("w_size",))
def graph_conv_filter(
    dout: Array,
    x: Array,
    w_size: Any = None,
    *,
    kernel_size: Any = None,
    filter_sizes: Any = None,
    pad_mode: Any = None,
    pad: Any = None,
    pad_list: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    group: int = 1,
    format: str = "NCHW",
) -> ByShape:
    if group != 1 or format != "NCHW" or (pad_mode is None and pad is None):
        raise CannotBindError("layout, groups or padding not known")
    steps, apart = spatial(stride, 2), spatial(dilation, 2)

    def made(shape: Shape) -> Expected:
        if len(shape) != 4 or shape[0] != dout.shape[1]:
            raise CannotBindError("shapes do not fit")
        kernel = shape[2:]
        around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, x.shape[2:], kernel, steps, apart)
        data, came = np.pad(doubles(x), [(0, 0), (0, 0), *around]), doubles(dout)
        flat = came.transpose(1, 0, 2, 3).reshape(came.shape[1], -1)
        value = np.zeros((came.shape[1], data.shape[1], *kernel))
        squares = np.zeros_like(value)
        for position in product(*(range(size) for size in kernel)):
            part = data[_seen(position, came.shape[2:], steps, apart)]
            part = part.transpose(0, 2, 3, 1).reshape(-1, data.shape[1])
            value[:, :, position[0], position[1]] = flat @ part
            squares[:, :, position[0], position[1]] = (flat * flat) @ (part * part)
        return Expected(value, np.sqrt(squares), flat.shape[1], cast=True)

    return ByShape(made)


@operator("conv gradient", graphs="Conv2DBackpropInput")
def graph_conv_input(
    dout: Array,
    w: Array,
    x_size: Any = None,
    *,
    input_sizes: Any = None,
    pad_mode: Any = None,
    pad: Any = None,
    pad_list: Any = None,
    stride: Any = 1,
    dilation: Any = 1,
    group: int = 1,
    format: str = "NCHW",
) -> Expected:
    shape = x_size if isinstance(x_size, tuple) else input_sizes
    if group != 1 or format != "NCHW" or (pad_mode is None and pad is None) or not isinstance(shape, tuple):
        raise CannotBindError("layout, groups, size or padding not known")
    steps, apart = spatial(stride, 2), spatial(dilation, 2)
    around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, shape[2:], w.shape[2:], steps, apart)
    came, filters = doubles(dout), doubles(w)
    padded = [size + sum(both) for size, both in zip(shape[2:], around, strict=True)]
    value = np.zeros((shape[0], shape[1], *padded))
    squares = np.zeros_like(value)
    flat = came.reshape(len(came), came.shape[1], -1)
    for position in product(*(range(size) for size in w.shape[2:])):
        place: tuple[Any, ...] = (..., *position)
        tap = filters[place].T
        at = _seen(position, came.shape[2:], steps, apart)
        part = (len(came), shape[1], *came.shape[2:])
        value[at] += np.matmul(tap, flat).reshape(part)
        squares[at] += np.matmul(tap * tap, flat * flat).reshape(part)
    inside = (
        slice(None),
        slice(None),
        *(slice(low, low + size) for (low, _), size in zip(around, shape[2:], strict=True)),
    )
    return Expected(value[inside], np.sqrt(squares[inside]), w.shape[0] * math.prod(w.shape[2:]), cast=True)
