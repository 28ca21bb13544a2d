"""Operators that move values without changing them: the output must be equal to the last bit."""

# ruff: noqa: A002, A006, ARG001, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tui_debugger.arrays import Array, Shape
from tui_debugger.diagnose.recompute.convolutions import graph_padding, per_dimension, spatial
from tui_debugger.diagnose.recompute.judge import Expected, wide
from tui_debugger.diagnose.recompute.table import ByShape, CannotBindError, operator


def _moved(value: Array) -> Expected:
    return Expected(value, exact=True)


def _numbers(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes or dimensions, given one by one or as a tuple."""
    flat = values[0] if len(values) == 1 and isinstance(values[0], (tuple, list, np.ndarray)) else values
    found = np.asarray(flat).reshape(-1).tolist()
    if not all(isinstance(each, int) for each in found):
        raise CannotBindError("sizes that are no integers")
    return tuple(found)


def _tried(function: Any, *args: Any, **named: Any) -> Expected:
    try:
        return _moved(function(*args, **named))
    except (ValueError, IndexError, TypeError) as error:
        raise CannotBindError(f"arguments do not fit: {error}") from error


@operator("reshape", "reshape view _unsafe_view")
def reshape(input: Array, *shape: Any) -> Expected:
    if any(not isinstance(each, (int, tuple, list, np.ndarray)) for each in shape):
        raise CannotBindError("viewed as another type")
    return _tried(np.reshape, input, _numbers(shape))


@operator("reshape", graphs="Reshape", unneeded=("shape",))
def graph_reshape(x: Array, shape: Any = None) -> Any:
    """Takes the shape from the output."""
    return ByShape(lambda made: _tried(np.reshape, x, made))


@operator("reshape", "flatten")
def flatten(input: Array, start_dim: int = 0, end_dim: int = -1) -> Expected:
    first, last = start_dim % max(input.ndim, 1), end_dim % max(input.ndim, 1)
    return _tried(np.reshape, input, (*input.shape[:first], -1, *input.shape[last + 1 :]))


operator("reshape", graphs="Flatten")(lambda x: flatten(x, 1))


@operator("reshape", "squeeze squeeze_", graphs="Squeeze")
def squeeze(input: Array, dim: Any = None) -> Expected:
    if dim in (None, ()):
        return _moved(np.squeeze(input))
    dims = tuple(each for each in _numbers((dim,)) if input.shape[each] == 1)
    return _tried(np.squeeze, input, axis=dims)


@operator("reshape", "unsqueeze unsqueeze_ expand_dims", graphs="ExpandDims")
def unsqueeze(input: Array, dim: Any) -> Expected:
    return _tried(np.expand_dims, input, _numbers((dim,))[0])


@operator(
    "copy",
    "contiguous clone detach detach_ copy cpu cuda npu alias identity lift_fresh",
    graphs="TensorMove Identity",
    modules="Identity",
    aten="ParameterGrad BiasAddGrad",
)
def same(input: Array, *_: Any, **__: Any) -> Expected:
    return _moved(input)


@operator(
    "cast",
    "to type float half bfloat16 double long int _to_copy bool type_as",
    graphs="Cast",
    split="elements",
    single=True,
)
def cast(input: Array, *_: Any, **__: Any) -> Expected:
    """The same values in the output's type, rounded once; to whole numbers towards zero."""
    return Expected(wide(input), converted=True)


@operator("fill", graphs="FillV2")
def graph_fill(shape: Any, value: Any) -> Any:
    single = np.asarray(value)
    return ByShape(lambda made: _moved(np.broadcast_to(single.reshape(()), made)))


@operator("transpose", "transpose swapaxes swapdims transpose_")
def transpose(input: Array, *dims: Any, dim0: Any = None, dim1: Any = None) -> Expected:
    """Exchanges two dimensions; reorders all of them for the forms of MindSpore and NumPy."""
    if dim0 is not None and dim1 is not None:
        dims = (dim0, dim1)
    found = _numbers(dims)
    if len(found) == 2 and not isinstance(dims[0], tuple):
        return _tried(np.swapaxes, input, *found)
    return _tried(np.transpose, input, found)


operator("transpose", "t")(lambda input: _moved(input.T))


operator("transpose", "permute")(lambda input, *dims: _tried(np.transpose, input, _numbers(dims)))


@operator("transpose", graphs="Transpose")
def graph_transpose(x: Array, perm: Any) -> Any:
    order = _numbers((perm,))
    if len(order) == x.ndim:
        return _tried(np.transpose, x, order)

    def made(shape: Shape) -> Expected:
        if len(shape) != len(order) or math.prod(shape) != x.size:
            raise CannotBindError(f"shape {x.shape} has not as many dimensions as {order}")
        before = [0] * len(shape)
        for place, dim in enumerate(order):
            before[dim] = shape[place]
        return _tried(np.transpose, x.reshape(before), order)

    return ByShape(made)


@operator("concatenate", "cat concat concatenate")
def cat(tensors: Any, dim: int = 0) -> Expected:
    if not isinstance(tensors, tuple):
        raise CannotBindError("no list of tensors")
    parts = [each for each in tensors if each.shape != (0,)]
    if len({each.dtype for each in parts}) != 1:
        raise CannotBindError("tensors of several types")
    return _tried(np.concatenate, parts, axis=dim)


@operator("stack", "stack")
def stack(tensors: Any, dim: int = 0) -> Expected:
    if not isinstance(tensors, tuple):
        raise CannotBindError("no list of tensors")
    return _tried(np.stack, tensors, axis=dim)


@operator("concatenate", graphs="Concat")
def graph_concat(*inputs: Any, dim: int = 0) -> Expected:
    arrays = [each for each in inputs if isinstance(each, np.ndarray)]
    last = inputs[-1] if inputs and isinstance(inputs[-1], int) else dim
    return _tried(np.concatenate, arrays, axis=last)


@operator("split", "split split_with_sizes")
def split(input: Array, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> Any:
    size = split_size_or_sections if split_size_or_sections is not None else split_size
    length = input.shape[dim]
    if isinstance(size, int):
        ends = list(range(size, length, size)) if size > 0 else []
    else:
        ends = np.cumsum(_numbers((size,))[:-1]).tolist()
    return tuple(_moved(each) for each in np.split(input, ends, axis=dim))


@operator("split", "chunk")
def chunk(input: Array, chunks: int, dim: int = 0) -> Any:
    size = -(-input.shape[dim] // chunks)
    return split(input, max(size, 1), dim)


@operator("split", "unbind")
def unbind(input: Array, dim: int = 0) -> Any:
    return tuple(_moved(each) for each in np.moveaxis(input, dim, 0))


@operator("split", graphs="Split")
def graph_split(x: Array, dim: int = 0, output_num: int = 1) -> Any:
    return tuple(_moved(each) for each in np.split(x, output_num, axis=dim))


@operator("expand", "expand broadcast_to", graphs="BroadcastTo")
def expand(input: Array, *shape: Any) -> Expected:
    sizes = list(_numbers(shape))
    for at in range(1, input.ndim + 1):
        if sizes[-at] == -1:
            sizes[-at] = input.shape[-at]
    return _tried(np.broadcast_to, input, tuple(sizes))


operator("expand", "expand_as")(lambda input, other: expand(input, other.shape))


@operator("repeat", graphs="Tile")
def graph_tile(x: Array, multiples: Any) -> Any:
    times = _numbers((multiples,))
    if x.ndim >= len(times):
        return _tried(np.tile, x, times)

    def made(shape: Shape) -> Expected:
        before = [size // each for size, each in zip(shape, times, strict=True)] if len(shape) == len(times) else []
        return _tried(lambda: np.tile(x.reshape(before), times))

    return ByShape(made)


operator("repeat", "repeat tile")(lambda input, *repeats: _tried(np.tile, input, _numbers(repeats)))


operator("flip", "flip")(lambda input, *dims: _tried(np.flip, input, _numbers(dims)))


operator("roll", "roll")(lambda input, shifts, dims=None: _tried(np.roll, input, shifts, dims))


def _enter_triangle(name: str, triangle: Callable[[Array, int], Array]) -> None:
    @operator("triangle", name)
    def compute(input: Array, diagonal: int = 0) -> Expected:
        inside = triangle(np.ones(input.shape[-2:], np.bool_), diagonal)
        return _moved(np.where(inside, input, np.zeros((), input.dtype)))


_enter_triangle("tril", np.tril)
_enter_triangle("triu", np.triu)


def _inside(index: Array, size: int) -> Array:
    found = index.astype(np.int64)
    if np.any((found < -size) | (found >= size)):
        raise CannotBindError("an index that is outside")
    return found


@operator("embedding", "embedding")
def embedding(
    input: Array,
    weight: Array,
    padding_idx: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expected:
    if max_norm is not None:
        raise CannotBindError("rows that are scaled")
    if input.dtype.kind in "iu":
        return _moved(weight[_inside(input, len(weight))])
    return _moved(input[_inside(weight, len(input))])  # ATen passes the table first


@operator("embedding", modules="EmbeddingLookup")
def module_embedding(input: Array, weight: Any = None, embedding_table: Any = None) -> Expected:
    table = weight if weight is not None else embedding_table
    if table is None:
        raise CannotBindError("no table")
    return embedding(input, table)


@operator("embedding", graphs="Gather GatherV2 EmbeddingLookup")
def graph_gather(params: Array, indices: Array, dim: int = 0, batch_dims: int = 0) -> Expected:
    if batch_dims:
        raise CannotBindError("batches of indices")
    at = int(np.asarray(dim))
    return _moved(np.take(params, _inside(indices, params.shape[at]), axis=at))


@operator("gather", "gather")
def gather(input: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Expected:
    inside = tuple(slice(None) if at == dim % input.ndim else slice(0, size) for at, size in enumerate(index.shape))
    return _tried(np.take_along_axis, input[inside], _inside(index, input.shape[dim]), dim)


@operator("gather", "index_select")
def index_select(input: Array, dim: int, index: Array) -> Expected:
    return _moved(np.take(input, _inside(np.asarray(index), input.shape[dim]), axis=dim))


@operator("index", "index")
def index(input: Array, at: Any) -> Expected:
    places = at if isinstance(at, tuple) else (at,)
    if not all(each is None or isinstance(each, (int, slice, np.ndarray)) for each in places):
        raise CannotBindError("index not recorded")
    indices = tuple(
        each.astype(np.int64) if isinstance(each, np.ndarray) and each.dtype.kind in "iu" else each for each in places
    )
    return _tried(lambda: np.asarray(input[indices]))


operator("gather", "select")(lambda input, dim, index: _tried(np.take, input, index, axis=dim))


operator("index", "narrow")(
    lambda input, dim, start, length: _tried(np.take, input, range(start, start + length), axis=dim)
)


operator("fill", "zeros_like", graphs="ZerosLike")(lambda input, **_: _moved(np.zeros(input.shape)))
operator("fill", "ones_like", graphs="OnesLike")(lambda input, **_: _moved(np.ones(input.shape)))


@operator("one hot", graphs="OneHot")
def graph_one_hot(indices: Array, depth: Any, on_value: Any, off_value: Any, dim: int = -1) -> Expected:
    count = int(np.asarray(depth))
    at = dim if dim >= 0 else indices.ndim
    found = np.moveaxis(indices.astype(np.int64)[..., None] == np.arange(count), -1, at)
    values = (wide(np.asarray(each)) for each in (on_value, off_value))
    return Expected(np.where(found, *values), converted=True)


# -- pooling -----------------------------------------------------------------------------------------------


@operator("max pool", graphs="MaxPool")
def graph_max_pool(
    x: Array,
    *,
    kernel_size: Any = None,
    strides: Any = None,
    pad_mode: Any = None,
    format: str = "NCHW",
) -> Expected:
    if kernel_size is None or strides is None or pad_mode is None or format != "NCHW":
        raise CannotBindError("layout, window or padding not known")
    kernel, steps = spatial(kernel_size, 2), spatial(strides, 2)
    around = graph_padding(pad_mode, None, x.shape[2:], kernel, steps, (1, 1))
    return pooled(wide(x), kernel, steps, around)


def pooled(x: Array, kernel: Any, steps: Any, around: Any) -> Expected:
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(np.int64).min
    data = np.pad(x, [(0, 0)] * (x.ndim - 2) + list(around), constant_values=lowest)
    windows = np.lib.stride_tricks.sliding_window_view(data, tuple(kernel), axis=(-2, -1))
    windows = windows[..., :: steps[0], :: steps[1], :, :]
    return Expected(windows.max(axis=(-2, -1)))


@operator("max pool", "max_pool2d max_pool2d_with_indices")
def max_pool2d(
    input: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Expected:
    if ceil_mode or per_dimension(dilation, 2) != (1, 1):
        raise CannotBindError("windows with holes, or that end outside")
    kernel = per_dimension(kernel_size, 2)
    steps = kernel if stride is None or stride == () else per_dimension(stride, 2)
    around = [(each, each) for each in per_dimension(padding, 2)]
    return pooled(wide(input), kernel, steps, around)
