"""Operators that multiply and sum up: products of matrices, convolutions, attention.

Every one is computed twice: the product itself, and that of the squares, whose root is the size before cancelling.
"""

# ruff: noqa: A002, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.diagnose.recompute.judge import Expected, wide
from tui_debugger.diagnose.recompute.table import ByShape, CannotBindError, Either, call, graph, module

_MOST_WORK: Final = 1 << 36
"""Multiplications beyond which an operator is not recomputed: minutes of one core."""


def doubles(array: Any) -> Float64:
    """An array in float64."""
    return np.asarray(wide(np.asarray(array)), np.float64)


def product_of(left: Array, right: Array, bias: Any = None, alpha: float = 1.0, beta: float = 1.0) -> Expected:
    """``alpha * left @ right + beta * bias``, with batches as ``numpy.matmul`` takes them."""
    left, right = doubles(left), doubles(right)
    if left.ndim == 0 or right.ndim == 0 or left.shape[-1] != right.shape[-2 if right.ndim > 1 else 0]:
        raise CannotBindError(f"shapes {left.shape} and {right.shape} cannot be multiplied")
    terms = left.shape[-1]
    if left.size * (right.shape[-1] if right.ndim > 1 else 1) > _MOST_WORK:
        raise CannotBindError("too large")
    value = alpha * np.matmul(left, right)
    squares = alpha * alpha * np.matmul(left * left, right * right)
    partial = 0.0 if bias is None else np.abs(value)
    if bias is not None:
        added = beta * doubles(bias)
        value, squares, terms = value + added, squares + added * added, terms + 1
    return Expected(value, np.sqrt(squares), terms, partial=partial, peak=_peak(left, right), cast=True)


def _peak(left: Float64, right: Float64) -> float:
    """A bound of partial sums, as far as finite numbers make them."""
    with np.errstate(all="ignore"):
        largest: list[float] = [
            float(np.max(np.abs(each), initial=0.0, where=np.isfinite(each))) for each in (left, right)
        ]
        return largest[0] * largest[1] * max(int(left.shape[-1]), 1)


@module("linear", "Linear", "Dense", split="rows")
@call("linear", "linear", split="rows")
def linear(input: Array, weight: Array, bias: Array | None = None) -> Expected:
    """``input @ weight.T + bias``."""
    return product_of(input, np.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight, bias)


@call("matmul", "matmul", "mm", "bmm", "mv", "dot", "npu_bmmV2")
def matmul(input: Array, other: Array) -> Expected:
    """``input @ other``."""
    return product_of(input, other)


@call("matmul", "__rmatmul__", "rmatmul")
def rmatmul(input: Array, other: Array) -> Expected:
    """``other @ input``."""
    return product_of(other, input)


@call("addmm", "addmm", "addmv")
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1) -> Expected:
    """``beta * input + alpha * mat1 @ mat2``."""
    return product_of(mat1, mat2, input, alpha, beta)


@call("addmm", "baddbmm")
def baddbmm(input: Array, batch1: Array, batch2: Array, *, beta: float = 1, alpha: float = 1) -> Expected:
    """``beta * input + alpha * batch1 @ batch2``."""
    return product_of(batch1, batch2, input, alpha, beta)


@call("outer", "outer", "ger")
def outer(input: Array, vec2: Array) -> Expected:
    """All products of two vectors."""
    return Expected(np.outer(doubles(input), doubles(vec2)))


@call("einsum")
def einsum(equation: str, *operands: Any) -> Expected:
    """A sum of products by letters."""
    arrays = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple) else operands
    wides = [doubles(each) for each in arrays]
    try:
        value = np.einsum(equation.replace(" ", ""), *wides, optimize=True)
        squares = np.einsum(equation.replace(" ", ""), *(each * each for each in wides), optimize=True)
    except ValueError as error:
        raise CannotBindError(f"equation not understood: {error}") from error
    return Expected(np.asarray(value), np.sqrt(squares), _inner(equation, wides), cast=True)


def _inner(equation: str, arrays: Sequence[Float64]) -> int:
    """The number of terms that are summed up; 1 where it cannot be told from the letters."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    sizes = {
        letter: size
        for letters, array in zip(inputs.split(","), arrays, strict=False)
        if len(letters) == array.ndim
        for letter, size in zip(letters, array.shape, strict=True)
    }
    return math.prod(size for letter, size in sizes.items() if letter not in output)


# -- convolutions ------------------------------------------------------------------------------------------


def per_dimension(value: Any, count: int) -> tuple[int, ...]:
    """One number for each dimension."""
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
    """A convolution, one position of the kernel after the other."""
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
    if value.size * per_in * math.prod(kernel) > _MOST_WORK:
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
        value, np.sqrt(squares), terms, partial=partial, peak=_peak(data, filters) * math.prod(kernel), cast=True
    )


def _window(
    position: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """What one position of the kernel sees of every place of the output."""
    return tuple(
        slice(at * apart, at * apart + (size - 1) * step + 1, step)
        for at, size, step, apart in zip(position, out, stride, dilation, strict=True)
    )


def _seen(
    position: Sequence[int], out: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """The same with all of the batch and of the channels."""
    return slice(None), slice(None), *_window(position, out, stride, dilation)


def _padded(
    padding: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after, as PyTorch understands it."""
    if padding == "valid":
        return [(0, 0) for _ in kernel]
    if padding == "same":
        total = [apart * (size - 1) for size, apart in zip(kernel, dilation, strict=True)]
        return [(each // 2, each - each // 2) for each in total]
    if isinstance(padding, str):
        raise CannotBindError(f"padding not known: {padding}")
    del stride
    return [(each, each) for each in per_dimension(padding, len(kernel))]


@call("conv", "conv1d", "conv2d", "conv3d", "npu_conv2d")
def conv(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Expected:
    """PyTorch's convolutions."""
    count = weight.ndim - 2
    steps, apart = per_dimension(stride, count), per_dimension(dilation, count)
    around = _padded(padding, weight.shape[2:], steps, apart)
    return convolution(input, weight, bias, steps, around, apart, groups)


# -- attention ---------------------------------------------------------------------------------------------


@call("attention", "scaled_dot_product_attention")
def attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expected:
    """``softmax(query @ key.T * scale + mask) @ value``."""
    if dropout_p:
        raise CannotBindError("random: dropout inside the attention")
    q, k, v = doubles(query), doubles(key), doubles(value)
    if enable_gqa and q.shape[-3] != k.shape[-3]:
        k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
    if q.shape[:-1] != (*k.shape[:-2], q.shape[-2]) and q.ndim != k.ndim:
        raise CannotBindError("shapes do not fit")
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if q.size * k.shape[-2] > _MOST_WORK:
        raise CannotBindError("too large")
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * factor
    sizes = np.sqrt(np.matmul(q * q, np.swapaxes(k * k, -1, -2))) * abs(factor)
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], np.bool_)), scores, -np.inf)
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + doubles(mask)
    with np.errstate(all="ignore"):
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        parts = np.exp(scores - np.where(np.isfinite(top), top, 0.0))
        total = parts.sum(axis=-1, keepdims=True)
        shares = parts / total
    empty = ~np.isfinite(top) & np.all(np.isneginf(scores), axis=-1, keepdims=True)
    result = np.matmul(shares, v)
    if np.any(empty):  # nothing is attended to: NaN in some kernels, zeros in others
        raise CannotBindError("rows that attend to nothing: kernels differ in what that is")
    # What the scores are off by moves every share, in units of u √d |q·k|; the shares are rounded to the type as well.
    shift = np.max(
        np.where(shares > 0, sizes * math.sqrt(q.shape[-1]) + np.abs(np.where(np.isfinite(scores), scores, 0)), 0),
        axis=-1,
        keepdims=True,
    )
    terms = k.shape[-2]
    spread = np.sqrt(np.matmul(shares * shares, v * v))
    size = spread + np.matmul(shares, np.abs(v)) * shift / math.sqrt(terms) * 2
    return Expected(result, size, terms, narrow=spread, cast=True)


# -- MindSpore's graphs ------------------------------------------------------------------------------------


def _turned(array: Array, turn: bool) -> Array:
    return np.swapaxes(array, -1, -2) if turn else array


def _matrices(left: Array, right: Array, turns: tuple[Any, Any], bias: Array | None = None) -> ByShape:
    """A product whose operands may be transposed; where that was not recorded, all that fit."""

    def made(shape: tuple[int, ...]) -> Any:
        choices = []
        for first, second in product(*([each] if isinstance(each, bool) else [False, True] for each in turns)):
            one, other = left, right
            if len(shape) == 2 and min(shape):
                # A reshape may have been taken out: the output tells the other dimension of both.
                one = _as_matrix(left, shape[0], last=first)
                other = _as_matrix(right, shape[1], last=not second)
            one, other = _turned(one, first), _turned(other, second)
            if one.ndim > 1 and other.ndim > 1 and one.shape[-1] == other.shape[-2]:
                choices.append(product_of(one, other, bias))
        if not choices:
            raise CannotBindError(f"shapes {left.shape} and {right.shape} cannot be multiplied")
        return choices[0] if len(choices) == 1 else Either(*choices)

    return ByShape(made)


def _as_matrix(array: Array, size: int, *, last: bool) -> Array:
    """A matrix of which one dimension is known."""
    if array.ndim == 2 and array.shape[last] == size:
        return array
    if array.size % size:
        raise CannotBindError(f"shape {array.shape} does not fit")
    return array.reshape((-1, size) if last else (size, -1))


@graph("matmul", "MatMul", "BatchMatMul", "MatMulV2", "BatchMatMulV2")
def graph_matmul(x1: Array, x2: Array, transpose_a: Any = None, transpose_b: Any = None) -> Any:
    """MindSpore's products of matrices."""
    return _matrices(x1, x2, (transpose_a, transpose_b))


@graph("linear", "MatMulBiasAddFusion", "Dense")
def graph_linear(x1: Array, x2: Array, bias: Array, transpose_a: Any = False, transpose_b: Any = None) -> Any:
    """A product of matrices and a bias, fused."""
    return _matrices(x1, x2, (transpose_a, transpose_b), bias)


@graph("linear", "MatMulBiasAddReluFusion")
def graph_linear_relu(x1: Array, x2: Array, bias: Array, transpose_a: Any = False, transpose_b: Any = None) -> Any:
    """A product of matrices, a bias and a ReLU, fused."""
    inner = _matrices(x1, x2, (transpose_a, transpose_b), bias)

    def made(shape: tuple[int, ...]) -> Any:
        found = inner.function(shape)
        for each in found.choices if isinstance(found, Either) else (found,):
            each.value, each.either = np.maximum(each.value, 0), np.fmax(each.value, 0)  # some make a zero of NaN
        return found

    return ByShape(made)


def graph_padding(
    mode: Any, pad: Any, shape: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after, as MindSpore understands it."""
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
    """Strides and the like: MindSpore writes them with or without the first two dimensions."""
    return per_dimension(1 if value is None else value, count)[-count:]


@graph("conv", "Conv2D", "Conv3D", "Conv2DBiasAddFusion", "DepthwiseConv2dNative")
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
    """MindSpore's convolutions."""
    if format not in {"NCHW", "NCDHW"} or (pad_mode is None and pad is None):
        raise CannotBindError("layout or padding not known")
    count = w.ndim - 2
    steps, apart = spatial(stride, count), spatial(dilation, count)
    around = graph_padding(pad_mode, pad_list if pad_list is not None else pad, x.shape[2:], w.shape[2:], steps, apart)
    return convolution(x, w, bias, steps, around, apart, group)


@graph("conv gradient", "Conv2DBackpropFilter", unneeded=("w_size",))
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
    """The gradient of a convolution's weights: products of what came in with what is seen of it."""
    del w_size, kernel_size, filter_sizes
    if group != 1 or format != "NCHW" or (pad_mode is None and pad is None):
        raise CannotBindError("layout, groups or padding not known")
    steps, apart = spatial(stride, 2), spatial(dilation, 2)

    def made(shape: tuple[int, ...]) -> Expected:
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


@graph("conv gradient", "Conv2DBackpropInput")
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
    """The gradient of a convolution's input: every product goes back to where it was seen."""
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
