"""Operators that reduce or normalise along dimensions: sums, norms, softmax, losses."""

# ruff: noqa: A002, ARG001, PLR0917 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64, Shape
from tui_debugger.diagnose.recompute.elementwise import sigmoid_of
from tui_debugger.diagnose.recompute.judge import (
    ACCUMULATED,
    LARGEST_INSIDE,
    Expected,
    OutputJudge,
    doubles,
    is_float,
    unit_of,
    wide,
)
from tui_debugger.diagnose.recompute.kernel_checks import USUAL_EPSILONS, VARIANCE_SHARE
from tui_debugger.diagnose.recompute.probing import ProbedOutput
from tui_debugger.diagnose.recompute.table import Alternatives, ByShape, CannotBindError, operator
from tui_debugger.stats.kernel import expected, is_known, native

Axes = tuple[int, ...]
NormGradients = tuple[Expected, Expected, Expected]
"""Of the input, the scale and the shift of a normalisation."""


def axes_of(dim: Any, ndim: int) -> Axes:
    """The dimensions to reduce, not negative: all of them for None and for an empty tuple."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    dims = dim if isinstance(dim, (tuple, list)) else np.asarray(dim).reshape(-1).tolist()
    if not all(isinstance(each, int) and -max(ndim, 1) <= each < max(ndim, 1) for each in dims):
        raise CannotBindError(f"dimension not known: {dim}")
    return tuple(int(each) % max(ndim, 1) for each in dims) if ndim else ()


def _count(array: Array, axes: Axes) -> int:
    return max(math.prod([int(array.shape[axis]) for axis in axes]), 1)


def total(x: Array, axes: Axes, keep: bool) -> Expected:
    terms = _count(x, axes)
    if x.dtype.kind not in "fc":
        return Expected(np.asarray(np.sum(x, axis=axes, keepdims=keep, dtype=np.int64)), exact=True)
    value = np.asarray(np.sum(x, axis=axes, keepdims=keep))

    def whole() -> Expected:
        size = np.sqrt(np.sum(x * x if x.dtype.kind == "f" else np.abs(x) ** 2, axis=axes, keepdims=keep))
        return Expected(value, np.nan_to_num(size, posinf=0.0), terms)

    return Expected(value, whole=whole)


@operator("sum", "sum", split="sums", single=True)
def sum_of(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expected:
    x = wide(input)
    return _of_type(total(x, axes_of(dim, x.ndim), keepdim), dtype)


def _of_type(found: Expected, dtype: Any) -> Expected:
    """Returns what is made of elements that may be rounded to another type first, which the output shows."""
    return found if dtype is None or found.exact else replace(found.complete(), cast=True)


@operator("sum", graphs="ReduceSum", split="sums", single=True)
def graph_sum(input_x: Array, dim: Any = None, keepdim: bool = False, skip_mode: bool = False) -> Expected:
    if skip_mode and dim in (None, ()):
        return Expected(wide(input_x))
    return sum_of(input_x, dim, keepdim)


@operator("mean", "mean", graphs="ReduceMean", split="sums", single=True)
def mean(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expected:
    x = doubles(input)
    axes = axes_of(dim, x.ndim)
    found, count = total(x, axes, keepdim), _count(x, axes)

    def whole() -> Expected:
        every = found.complete()
        return Expected(every.value / count, every.size / count, count)

    return _of_type(Expected(found.value / count, whole=whole), dtype)


@operator("prod", "prod", graphs="ReduceProd")
def prod(input: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expected:
    x = wide(input)
    axes = axes_of(dim, x.ndim)
    if x.dtype.kind != "f":
        if dtype is not None:
            raise CannotBindError("a product in another type")
        return Expected(np.prod(x, axis=axes, keepdims=keepdim, dtype=np.int64), exact=True)
    value = np.asarray(np.prod(x, axis=axes, keepdims=keepdim))
    count = _count(x, axes)
    return Expected(value, np.abs(value) * math.sqrt(count), count, narrow=np.abs(value) * math.sqrt(count) / 2)


@operator("cumsum", "cumsum", graphs="CumSum")
def cumsum(input: Array, dim: int, *, dtype: Any = None) -> Expected:
    x = wide(input)
    if x.dtype.kind != "f":
        return Expected(np.cumsum(x, axis=dim, dtype=np.int64), exact=True)
    return _of_type(Expected(np.cumsum(x, axis=dim), np.sqrt(np.cumsum(x * x, axis=dim)), x.shape[dim]), dtype)


def _extreme_of(
    functions: tuple[Any, Any], input: Array, dim: Any = None, keepdim: bool = False, other: Any = None
) -> Any:
    """The larger of two tensors (``functions[0]``), or the largest element along a dimension (``functions[1]``)."""
    second = dim if isinstance(dim, np.ndarray) and dim.ndim else other
    if second is not None:
        return Expected(functions[0](wide(input), wide(second)))
    x = wide(input)
    value = np.asarray(functions[1](x, axis=axes_of(dim, x.ndim), keepdims=keepdim))
    return Expected(value, exact=x.dtype.kind != "f")


for _kind, _functions in (("max", (np.maximum, np.max)), ("min", (np.minimum, np.min))):
    _extreme = partial(_extreme_of, _functions)
    operator(_kind, _kind)(_extreme)
    operator(_kind, f"a{_kind}", graphs=f"Reduce{_kind}", split="sums", single=True)(_extreme)


@operator("var", "var")
def var(
    input: Array,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Expected:
    if isinstance(dim, bool):  # ``dim`` is ``unbiased`` in the form without dimensions
        dim, unbiased = None, dim
    x = doubles(input)
    axes = axes_of(dim, x.ndim)
    count = _count(x, axes)
    apart = x - np.mean(x, axis=axes, keepdims=True)
    left = max(count - float(unbiased if correction is None else correction), 0)
    value = np.sum(apart**2, axis=axes, keepdims=keepdim) / left
    size = value + np.sqrt(np.sum(apart**2 * x * x, axis=axes, keepdims=keepdim)) * 2 / left
    size = size + np.mean(x * x, axis=axes, keepdims=keepdim) / math.sqrt(count)
    return Expected(np.asarray(value), np.nan_to_num(np.asarray(size), posinf=0.0), count)


@operator("std", "std")
def std(
    input: Array,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Expected:
    found = var(input, dim, unbiased, keepdim, correction=correction)
    value = np.sqrt(found.value)
    size = np.where(value > 0, found.size / (2 * value), np.sqrt(found.size))
    return Expected(value, size, found.terms)


class LargestIndices(ProbedOutput):
    """Indices of the largest elements along ``dim``: any index of several equal elements is right."""

    def __init__(self, x: Array, dim: int) -> None:
        self.x, self.dim = x, dim
        self.shape = (*x.shape[:dim], *x.shape[dim + 1 :])

    def exact(self) -> Expected:
        return Expected(np.argmax(self.x, axis=self.dim), exact=True)

    def judge(self, judge: OutputJudge, found: Array) -> bool:
        if found.dtype.kind not in "iu" or found.size != math.prod(self.shape):
            return False
        at = np.expand_dims(found.reshape(self.shape).astype(np.int64), self.dim)
        if np.any((at < 0) | (at >= self.x.shape[self.dim])):
            return False
        chosen = np.take_along_axis(self.x, at, self.dim)
        most = np.max(self.x, axis=self.dim, keepdims=True)
        if not np.array_equal(chosen, most):
            return False  # or there are NaNs: ``exact`` decides
        judge.take(Expected(found, exact=True), found)
        return True


@operator("argmax", "argmax", graphs="Argmax ArgMaxV2")
def argmax(input: Array, dim: Any = None, keepdim: Any = False) -> Any:
    """The third positional argument of MindSpore's operator is a type."""
    if dim is None:
        return LargestIndices(np.reshape(input, -1), 0)
    return LargestIndices(input, _dim(dim, input.ndim))


@operator("norm", "norm vector_norm linalg_norm linalg_vector_norm")
def norm(
    input: Array, p: Any = 2, dim: Any = None, keepdim: bool = False, *, ord: Any = None, dtype: Any = None
) -> Expected:
    order = ord if ord is not None else p
    order = 2 if order in ("fro", None) else order
    x = np.abs(doubles(input))
    axes = axes_of(dim, x.ndim)
    if order in (math.inf, -math.inf):
        furthest = np.max if order > 0 else np.min
        return _of_type(Expected(np.asarray(furthest(x, axis=axes, keepdims=keepdim))), dtype)
    if order == 0:
        return _of_type(Expected(np.asarray(np.sum(x != 0, axis=axes, keepdims=keepdim).astype(np.float64))), dtype)
    if not isinstance(order, (int, float)) or order < 0:
        raise CannotBindError(f"norm not known: {order}")
    value = np.asarray(np.sum(x**order, axis=axes, keepdims=keepdim)) ** (1 / order)
    some = x[np.isfinite(x) & (x > 0)]
    peak = float(np.max(some, initial=0.0)) ** order * _count(x, axes)
    # Powers are approximated: of each term, and of their sum.
    lost = 1.0 if order in (1, 2) else 3 + 1 / order + float(np.max(np.abs(np.log(some)), initial=0.0)) * 2
    size = np.nan_to_num(value, posinf=0.0) * lost
    return _of_type(Expected(value, size, _count(x, axes), peak=peak), dtype)


# -- softmax -----------------------------------------------------------------------------------------------


def _below_top(x: Float64, dim: int) -> tuple[Float64, Float64, Float64]:
    """Returns the distances from the largest element, their exponentials, and the sum of these."""
    top = np.max(x, axis=dim, keepdims=True)
    shifted = x - top
    raised = np.exp(shifted)
    return shifted, raised, np.sum(raised, axis=dim, keepdims=True)


def _dim(dim: Any, ndim: int) -> int:
    dims = axes_of(dim, ndim)
    if dim is None or len(dims) != 1:
        raise CannotBindError("dimension not recorded" if dim is None else "several dimensions")
    return dims[0]


@operator("softmax", "softmax _softmax", graphs="Softmax SoftmaxV2", modules="Softmax", split="last", single=True)
def softmax(input: Array, dim: Any = None, dtype: Any = None, _stacklevel: int = 3) -> Expected:
    x = doubles(input)
    at = _dim(dim, x.ndim) if x.ndim else 0
    shifted, raised, sum_ = _below_top(np.atleast_1d(x), at)
    value = np.divide(raised, sum_, out=raised)

    def whole() -> Expected:
        size = np.where(value > 0, value * (np.abs(shifted) + 3 + math.sqrt(value.shape[at]) / 4), 0.0)
        return Expected(value.reshape(x.shape), np.nan_to_num(size).reshape(x.shape))

    def sized() -> Expected:
        return Expected(value.reshape(x.shape), (value * (3 - shifted)).reshape(x.shape), whole=whole)

    return Expected(value.reshape(x.shape), whole=sized)


@operator(
    "log softmax", "log_softmax _log_softmax", graphs="LogSoftmax", modules="LogSoftmax", split="last", single=True
)
def log_softmax(input: Array, dim: Any = None, dtype: Any = None, _stacklevel: int = 3) -> Expected:
    x = doubles(input)
    shifted, _, sum_ = _below_top(x, _dim(dim, x.ndim))
    value = shifted - np.log(sum_)

    def whole() -> Expected:
        size = np.abs(shifted) + np.abs(np.log(sum_)) + 1 + np.abs(x)
        # Kernels may keep the sum in 16 bits: its logarithm is then off by one unit of 16 bits.
        return Expected(value, np.where(np.isfinite(size), size, 0.0), narrow=np.ones_like(value))

    return Expected(value, whole=lambda: Expected(value, narrow=np.ones_like(value), whole=whole))


@operator("logsumexp", "logsumexp")
def logsumexp(input: Array, dim: Any, keepdim: bool = False) -> Expected:
    """The largest element is subtracted first and added at the end, which may cancel."""
    x = doubles(input)
    axes = axes_of(dim, x.ndim)
    top = np.max(x, axis=axes, keepdims=True)
    value = np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True)) + top
    kept, top = (value, top) if keepdim else (np.squeeze(each, axis=axes) for each in (value, top))
    return Expected(kept, np.abs(kept) + 1, partial=np.abs(kept - top) + 1)


# -- normalisation -----------------------------------------------------------------------------------------


def normalised(
    x: Float64,
    axes: Axes,
    scale: Float64 | float,
    shift: Float64 | float,
    eps: float,
    centred: bool = True,
    given: tuple[Float64, Float64] | None = None,
) -> tuple[Expected, Float64, Float64]:
    """Normalises x along ``axes``; also returns the means and the inverse deviations.

    RMS norms are not ``centred``: they keep the mean. ``given`` are a mean and variance in place of those of x.
    """
    count = _count(x, axes)
    if given is not None:
        centre, variance = given
        plain = x - centre
        power = np.maximum(centre * centre, variance)
    else:
        centre = np.mean(x, axis=axes, keepdims=True) if centred else np.zeros_like(x[(slice(0, 1),) * x.ndim])
        plain = x - centre if centred else x.copy()
        variance = _mean_square(plain, axes)
        power = variance + centre * centre
    inverse = 1 / np.sqrt(variance + eps)
    plain *= inverse
    value = plain * scale
    if np.ndim(shift) or shift:
        value += shift
    terms = max(count / VARIANCE_SHARE, 1.0)

    def sized() -> Expected:
        return Expected(value, np.sqrt(power) * inverse * np.abs(scale) + np.abs(shift), terms, whole=whole)

    def whole() -> Expected:
        lost = 2 + power * inverse * inverse  # kernels may take the mean of squares and the square of the mean
        size = ((np.abs(x) + np.sqrt(power)) * inverse + np.abs(plain) * lost) * np.abs(scale) + np.abs(shift)
        peak = float(np.max(power, initial=0.0, where=np.isfinite(power))) * count
        rounded = np.abs(np.nan_to_num(value - shift, posinf=0.0, neginf=0.0))
        ignored = np.broadcast_to(power * count > LARGEST_INSIDE, value.shape) if peak > LARGEST_INSIDE else None
        size = np.nan_to_num(size, posinf=0.0)
        return Expected(value, size, terms, narrow=rounded, peak=peak, ignored=ignored)

    return Expected(value, whole=sized), centre, inverse


def _mean_square(x: Float64, axes: Axes) -> Float64:
    found: Float64
    if axes == (x.ndim - 1,) and x.ndim == 2:
        found = np.einsum("ij,ij->i", x, x)[:, None] / max(x.shape[1], 1)
        return found
    found = np.mean(x * x, axis=axes, keepdims=True)
    return found


@operator("layer norm", "layer_norm native_layer_norm", split="rows", single=True)
def layer_norm(
    input: Array,
    normalized_shape: Any,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Expected:
    return layer_normalised(input, normalized_shape, weight, bias, eps)[0]


def layer_normalised(
    input: Array, normalized_shape: Any, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Expected, Float64, Float64]:
    return normalised(doubles(input), _last(input, normalized_shape), _or(weight, 1.0), _or(bias, 0.0), eps)


def _last(input: Array, normalized_shape: Any) -> Axes:
    """The last dimensions of an input, which have the shape."""
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    if input.shape[input.ndim - len(shape) :] != shape:
        raise CannotBindError(f"shape {input.shape} does not end with {shape}")
    return tuple(range(input.ndim - len(shape), input.ndim))


def _or(array: Any, other: float) -> Any:
    return other if array is None else doubles(array)


@operator("rms norm", "rms_norm", split="rows", single=True)
def rms_norm(input: Array, normalized_shape: Any, weight: Array | None = None, eps: float | None = None) -> Expected:
    if eps is None:
        raise CannotBindError("epsilon not recorded")
    return normalised(doubles(input), _last(input, normalized_shape), _or(weight, 1.0), 0.0, eps, centred=False)[0]


@operator("rms norm", "npu_rms_norm", graphs="RmsNorm")
def npu_rms_norm(x: Array, gamma: Array, eps: float = 1e-6) -> Any:
    found, _, inverse = normalised(
        doubles(x), tuple(range(x.ndim - gamma.ndim, x.ndim)), doubles(gamma), 0.0, eps, centred=False
    )
    return found, Expected(inverse, 2 * inverse, x.shape[-1])


@operator("layer norm", graphs="LayerNorm LayerNormV3")
def graph_layer_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    begin_norm_axis: int = -1,
    begin_params_axis: int = -1,
    eps: float | None = None,
) -> Any:
    if eps is None:
        forms = [_graph_layer_norm(x, gamma, beta, begin_norm_axis, each).choices for each in USUAL_EPSILONS]
        return Alternatives(*(choice for form in forms for choice in form), guessed=_NO_EPSILON)
    return _graph_layer_norm(x, gamma, beta, begin_norm_axis, eps)


_NO_EPSILON: Final = "epsilon not recorded, and none of the usual ones fits"


@operator("layer norm", modules="LayerNorm")
def module_layer_norm(
    input: Array, weight: Any = None, bias: Any = None, gamma: Any = None, beta: Any = None, eps: Any = None
) -> Any:
    """Normalises along the dimensions of the scale; tries the usual epsilons where none was recorded."""
    scale, shift = (weight, bias) if weight is not None else (gamma, beta)
    if scale is None:
        raise CannotBindError("no scale: which dimensions are normalised was not recorded")
    if eps is not None:
        return layer_norm(input, scale.shape, scale, shift, eps)
    return Alternatives(
        *(layer_norm(input, scale.shape, scale, shift, each) for each in USUAL_EPSILONS), guessed=_NO_EPSILON
    )


def _graph_layer_norm(x: Array, gamma: Array, beta: Array, begin_norm_axis: int, eps: float) -> Alternatives:
    data = doubles(x)
    axes = tuple(range(begin_norm_axis % data.ndim, data.ndim))
    found, centre, inverse = normalised(data, axes, doubles(gamma), doubles(beta), eps)
    root = np.sqrt(np.mean(data * data, axis=axes, keepdims=True))
    variance = np.mean((data - centre) ** 2, axis=axes, keepdims=True)
    count = _count(data, axes)
    means = Expected(centre, root / math.sqrt(count), count)
    # The third output is the variance on some devices, and the inverse deviation on others.
    size = root * root + variance
    return Alternatives(
        (found, means, Expected(variance, size, count)),
        (found, means, Expected(inverse, inverse * (1 + size * inverse * inverse), count)),
    )


def normalised_backward(
    gradient: Array,
    input: Array,
    scale: Any,
    eps: float,
    axes: Axes,
    rest: Axes,
    *,
    centred: bool = True,
    given: tuple[Float64, Float64] | None = None,
) -> NormGradients:
    """Gradients of input, scale and shift of a normalisation along ``axes``, the last two summed up along ``rest``."""
    came, data = doubles(gradient), doubles(input)
    # For inputs of 16 bits, kernels may sum up the gradients of a wider scale and shift in 16 bits.
    coarse = max([1.0, *(unit / ACCUMULATED for each in (gradient, input) if (unit := unit_of(each.dtype)))])
    made, centre, inverse = normalised(data, axes, 1.0, 0.0, eps, centred, given)
    off = np.asarray(made.complete().size)
    plain, scaled = (data - centre if centred else data) * inverse, came * scale
    first, second = np.mean(scaled, axis=axes, keepdims=True), np.mean(scaled * plain, axis=axes, keepdims=True)
    root = np.sqrt(np.mean(scaled * scaled, axis=axes, keepdims=True))
    size = inverse * (np.abs(scaled) + root + np.abs(plain) * root + off * root * 2) * 2
    count, rows = (max(math.prod(data.shape[at] for at in some), 1) for some in (axes, rest))
    moved = np.sqrt(np.sum((came * (np.abs(plain) + off)) ** 2, axis=rest))
    # Kernels sum up other terms, which cancel: they subtract the mean at the end.
    by_scale = Expected(np.sum(came * plain, axis=rest), moved * 4 * coarse, rows)
    by_shift = total(came, rest, False)
    if coarse > 1:
        by_shift = replace(whole := by_shift.complete(), size=np.asarray(whole.size) * coarse)
    value = inverse * ((scaled - first if centred else scaled) - plain * second)
    narrow: Any = 0.0
    if coarse > 1 and given is None:  # means and deviations may have been kept in 16 bits
        narrow = np.abs(value) + 2 * inverse * np.abs(plain * second)
        narrow = narrow + inverse * inverse * np.abs(centre) * (np.abs(second) + np.abs(plain * first))
    return Expected(value, size, count, narrow=narrow), by_scale, by_shift


def layer_norm_backward(
    gradient: Array,
    input: Array,
    dims: int,
    weight: Any,
    eps: float,
    *,
    centred: bool = True,
    given: tuple[Float64, Float64] | None = None,
) -> NormGradients:
    """The gradients of a normalisation along the last ``dims`` dimensions."""
    at = input.ndim - dims
    axes, rest = tuple(range(at, input.ndim)), tuple(range(at))
    return normalised_backward(gradient, input, _or(weight, 1.0), eps, axes, rest, centred=centred, given=given)


def batch_norm_backward(gradient: Array, input: Array, weight: Any, eps: float) -> NormGradients:
    axes = (0, *range(2, input.ndim))
    return normalised_backward(gradient, input, _by_channel(weight, 1.0, input.ndim), eps, axes, axes)


def _by_channel(array: Array | None, other: float, ndim: int) -> Any:
    return other if array is None else doubles(array).reshape(1, -1, *[1] * (ndim - 2))


@operator("group norm", "group_norm")
def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Expected:
    x = doubles(input)
    parts = x.reshape(x.shape[0], num_groups, -1)
    broad = (1, -1, *[1] * (x.ndim - 2))

    def spread(array: Array | None, other: float) -> Float64:
        values = np.full(x.shape[1], other) if array is None else doubles(array)
        found: Float64 = np.broadcast_to(values.reshape(broad), x.shape).reshape(parts.shape)
        return found

    made, _, _ = normalised(parts, (2,), spread(weight, 1.0), spread(bias, 0.0), eps)
    return made.reshaped(x.shape)


@operator("batch norm", "batch_norm", aten="NativeBatchNorm CudnnBatchNorm NativeBatchNormLegit")
def batch_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Expected:
    x = doubles(input)
    axes = (0, *range(2, x.ndim))
    given = None
    if not training:
        if running_mean is None or running_var is None:
            raise CannotBindError("no running means")
        given = _by_channel(running_mean, 0.0, x.ndim), _by_channel(running_var, 1.0, x.ndim)
    scale, shift = _by_channel(weight, 1.0, x.ndim), _by_channel(bias, 0.0, x.ndim)
    return normalised(x, axes, scale, shift, eps, given=given)[0]


# -- losses ------------------------------------------------------------------------------------------------


def _reduced(losses: Expected, reduction: str, weights: Float64 | None = None) -> Expected:
    if reduction == "none":
        return losses
    value = np.asarray(losses.value, np.float64)
    size = np.broadcast_to(losses.size, value.shape)
    count = float(value.size) if weights is None else float(np.sum(weights))
    share = 1.0 if reduction == "sum" else (1 / count if count else math.nan)
    if reduction not in {"sum", "mean"}:
        raise CannotBindError(f"reduction not known: {reduction}")
    root = math.sqrt(float(np.sum(value * value))) + math.sqrt(float(np.sum(size * size)))
    # Kernels composed of others round the losses to the type of the output before they reduce them.
    rounded = math.sqrt(float(np.sum(value * value))) + math.sqrt(float(np.sum(np.square(losses.narrow))))
    return Expected(
        np.asarray(np.sum(value) * share),
        np.asarray(np.nan_to_num(root * share)),
        value.size,
        narrow=np.asarray(np.nan_to_num(rounded * share)),
    )


_REDUCTIONS: Final = ("none", "mean", "sum")
"""Indexed by the number that schemas use."""


def _reduction(size_average: Any, reduce: Any, reduction: str | int) -> str:
    if isinstance(reduction, int):
        return _REDUCTIONS[reduction]
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _negative_log(
    logs: Expected, target: Array, weight: Array | None, ignore_index: int, reduction: str, smoothing: float
) -> Expected:
    """The loss of log-probabilities (classes are dimension 1, or 0) for target classes or target probabilities."""
    log, axis = np.asarray(logs.value), 1 if np.ndim(logs.value) > 1 else 0
    size = np.broadcast_to(logs.size, log.shape)
    classes = log.shape[axis]
    each = np.ones(classes) if weight is None else doubles(weight)
    broad = each.reshape([-1 if at == axis else 1 for at in range(log.ndim)])
    if is_float(target):
        shares = doubles(target) * (1 - smoothing) + smoothing / classes
        value = -np.sum(shares * log * broad, axis=axis)
        off = np.sum(np.abs(shares * broad) * size, axis=axis)
        rounded = np.sqrt(np.sum((shares * broad * log) ** 2, axis=axis))
        found = _reduced(Expected(value, off, narrow=rounded), reduction if reduction != "mean" else "sum")
        if reduction == "mean":
            count = max(value.size, 1)
            found = Expected(found.value / count, found.size / count, found.terms, narrow=found.narrow / count)
        return found
    wanted = target.astype(np.int64)
    used = wanted != ignore_index
    safe = np.where(used, wanted, 0)
    if np.any((safe < 0) | (safe >= classes)):
        raise CannotBindError("a class that is not there")
    at = np.expand_dims(safe, axis)
    weights = np.where(used, each[safe], 0.0)
    chosen = -np.squeeze(np.take_along_axis(log, at, axis), axis) * each[safe]
    off = np.squeeze(np.take_along_axis(size, at, axis), axis) * np.abs(each[safe])
    rounded = np.abs(chosen) + np.abs(each[safe]) * np.max(logs.narrow, initial=0.0)
    if smoothing:
        smooth = -np.sum(log * broad, axis=axis)
        rounded = (
            rounded + np.sqrt(np.sum((log * broad) ** 2, axis=axis)) * smoothing / classes + np.abs(smooth) * smoothing
        )
        chosen = chosen * (1 - smoothing) + smooth * smoothing / classes
        off = off * (1 - smoothing) + np.sum(size * broad, axis=axis) * smoothing / classes
    value, off = np.where(used, chosen, 0.0), np.where(used, off, 0.0)
    return _reduced(Expected(value, off, narrow=np.where(used, rounded, 0.0)), reduction, weights)


@operator("cross entropy", "cross_entropy")
def cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Expected:
    reduction = _reduction(size_average, reduce, reduction)
    if input.ndim == 2 and input.size > _ROWS_OF and target.dtype.kind in "iu" and not label_smoothing:
        return _chosen_by_rows(input, target, weight, ignore_index, reduction)
    logs = log_softmax(input, 1 if input.ndim > 1 else 0).complete()
    return _negative_log(logs, target, weight, ignore_index, reduction, label_smoothing)


_ROWS_OF: Final = 1 << 15
"""The number of elements in the rows that are taken at once: they stay in the cache."""


def _chosen_by_rows(input: Array, target: Array, weight: Array | None, ignore_index: int, reduction: str) -> Expected:
    """The cross entropy of many classes: only the logarithms of the target classes are computed."""
    rows, classes = input.shape
    wanted = target.reshape(-1).astype(np.int64)
    used = wanted != ignore_index
    safe = np.where(used, wanted, 0)
    if len(wanted) != rows or np.any((safe < 0) | (safe >= classes)):
        raise CannotBindError("a class that is not there")
    top, lost = _log_sums(input)
    chosen = doubles(input[np.arange(rows), safe])
    logs = chosen - top - lost
    size = np.abs(chosen - top) + np.abs(lost) + 1 + np.abs(chosen)
    each = np.ones(rows) if weight is None else doubles(weight)[safe]
    value = np.where(used, -logs * each, 0.0)
    off = np.where(used, np.nan_to_num(size, posinf=0.0) * np.abs(each), 0.0)
    rounded = np.where(used, np.abs(value) + np.abs(each), 0.0)  # as in ``_negative_log``
    return _reduced(Expected(value, off, narrow=rounded), reduction, np.where(used, each, 0.0))


def _log_sums(rows: Array) -> tuple[Float64, Float64]:
    """For each row the largest element, and the logarithm of the sum of exp(x - largest)."""
    if is_known(rows.dtype):
        return expected.log_sums(native(rows))
    top, lost = np.empty(len(rows)), np.empty(len(rows))
    step = max(_ROWS_OF // max(rows.shape[1], 1), 1)
    for start in range(0, len(rows), step):
        x = doubles(rows[start : start + step])
        top[start : start + step] = x.max(axis=1)
        x -= top[start : start + step, None]
        lost[start : start + step] = np.log(np.sum(np.exp(x, out=x), axis=1))
    return top, lost


@operator("nll loss", "nll_loss", aten="NllLossForward NllLoss2dForward")
def nll_loss(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str | int = "mean",
) -> Expected:
    how = _reduction(size_average, reduce, reduction)
    return _negative_log(Expected(doubles(input)), target, weight, ignore_index, how, 0.0)


def _enter_loss(kind: str, name: str, loss: Callable[[Float64], Expected]) -> None:
    """Enters a loss that is made of the differences between input and target."""

    @operator(kind, name)
    def compute(
        input: Array, target: Array, size_average: Any = None, reduce: Any = None, reduction: str | int = "mean"
    ) -> Expected:
        return _reduced(loss(doubles(input) - doubles(target)), _reduction(size_average, reduce, reduction))


_enter_loss("mse loss", "mse_loss", lambda apart: Expected(apart**2, 2 * apart**2))
_enter_loss("l1 loss", "l1_loss", lambda apart: Expected(np.abs(apart), np.abs(apart)))


@operator("smooth l1 loss", "smooth_l1_loss")
def smooth_l1_loss(
    input: Array,
    target: Array,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Expected:
    off = np.abs(doubles(input) - doubles(target))
    value = np.where(off < beta, 0.5 * off * off / beta, off - 0.5 * beta) if beta else off
    return _reduced(Expected(value, 2 * value + off), _reduction(size_average, reduce, reduction))


def _weighted(losses: Float64, size: Float64, weight: Array | None) -> Expected:
    factor = _or(weight, 1.0)
    return Expected(losses * factor, size * np.abs(factor))


@operator("bce loss", "binary_cross_entropy")
def binary_cross_entropy(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Expected:
    p, t = doubles(input), doubles(target)
    value = -(t * np.maximum(np.log(p), -100) + (1 - t) * np.maximum(np.log1p(-p), -100))
    size = np.abs(value) * 2 + 1
    return _reduced(_weighted(value, size, weight), _reduction(size_average, reduce, reduction))


@operator("bce loss with logits", "binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: Array,
    target: Array,
    weight: Array | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Array | None = None,
) -> Expected:
    x, t = doubles(input), doubles(target)
    positive = _or(pos_weight, 1.0)
    log_one, log_zero = -np.logaddexp(0, -x), -np.logaddexp(0, x)
    value = -(positive * t * log_one + (1 - t) * log_zero)
    size = np.abs(positive * t * log_one) + np.abs((1 - t) * log_zero) + np.abs(x) + 1
    return _reduced(_weighted(value, size, weight), _reduction(size_average, reduce, reduction))


# -- MindSpore's graphs ------------------------------------------------------------------------------------


@operator("cross entropy", graphs="SparseSoftmaxCrossEntropyWithLogits")
def graph_sparse_cross_entropy(features: Array, labels: Array, is_grad: bool = False, sens: float = 1.0) -> Expected:
    """The mean loss, or its gradient: softmax minus one at the target class."""
    if not is_grad:
        return cross_entropy(features, labels.reshape(-1))
    found = softmax(features, 1).complete()
    wanted = np.zeros_like(found.value)
    wanted[np.arange(len(features)), labels.reshape(-1).astype(np.int64)] = 1.0
    share = sens / len(features)
    return Expected((found.value - wanted) * share, (np.asarray(found.size) + wanted + found.value) * abs(share))


@operator("cross entropy", graphs="SoftmaxCrossEntropyWithLogits")
def graph_cross_entropy(logits: Array, labels: Array) -> Any:
    shares, logs = softmax(logits, 1).complete(), log_softmax(logits, 1).complete()
    wanted = doubles(labels)
    value = -np.sum(np.where(wanted == 0, 0, wanted * logs.value), axis=1)
    size = np.sqrt(np.sum((wanted * logs.size) ** 2, axis=1)) + np.abs(value)
    return Expected(value, size, logits.shape[1]), Expected(
        shares.value - wanted, np.asarray(shares.size) + np.abs(wanted) + shares.value
    )


@operator("gradient of bias", graphs="BiasAddGrad")
def graph_bias_grad(dout: Array, *_: Any, data_format: str = "NCHW", format: str = "") -> Any:
    """The sum of the output's gradient by channel, of all layouts that fit the output."""
    came = doubles(dout)
    channel = came.ndim - 1 if "NHWC" in {data_format, format} or came.ndim == 2 else 1

    def made(shape: Shape) -> Any:
        choices = []
        if came.shape[channel : channel + 1] == shape:
            choices.append(total(came, tuple(axis for axis in range(came.ndim) if axis != channel), False))
        if math.prod(shape) and came.size % math.prod(shape) == 0:  # the input was reshaped to a matrix
            choices.append(total(came.reshape(-1, math.prod(shape)), (0,), False))
        return Alternatives(*choices)

    return ByShape(made)


@operator("gradient of layer norm", graphs="LayerNormGrad")
def graph_layer_norm_grad(
    x: Array,
    dy: Array,
    variance: Array,
    mean: Array,
    gamma: Array,
    begin_norm_axis: int = -1,
    begin_params_axis: int = -1,
    eps: float | None = None,
) -> Any:
    """MindSpore 2.0 has no epsilon here: its kernel for CPU adds 1e-12, whatever the forward pass added."""
    if dy.size != x.size:
        raise CannotBindError(f"shapes {x.shape} and {dy.shape} do not fit")
    dims = x.ndim - begin_norm_axis % x.ndim
    return layer_norm_backward(dy.reshape(x.shape), x, dims, gamma, 1e-12 if eps is None else eps)


@operator("gradient of softmax", graphs="SoftmaxGradFusion SoftmaxGrad", aten="SoftmaxBackwardData")
def softmax_grad(output: Array, grad_output: Array, dim: Any = -1) -> Expected:
    out, came = doubles(output), doubles(grad_output)
    if out.shape != came.shape:
        came = came.reshape(out.shape)
    at = _dim(dim if isinstance(dim, (int, tuple)) and dim != () else -1, out.ndim)
    inner = np.sum(came * out, axis=at, keepdims=True)
    size = np.abs(out) * (np.abs(came) + np.sqrt(np.sum((came * out) ** 2, axis=at, keepdims=True)) + np.abs(inner))
    return Expected((came - inner) * out, size, out.shape[at])


operator("sigmoid cross entropy", graphs="SigmoidCrossEntropyWithLogits")(
    lambda logits, label: binary_cross_entropy_with_logits(logits, label, reduction="none")
)


@operator("gradient of sigmoid cross entropy", graphs="SigmoidCrossEntropyWithLogitsGrad")
def graph_sigmoid_cross_entropy_grad(logits: Array, label: Array, dout: Array) -> Expected:
    share, wanted, came = sigmoid_of(doubles(logits)), doubles(label), doubles(dout)
    return Expected((share - wanted) * came, 3 * (share + np.abs(wanted)) * np.abs(came))


@operator("gradient of sigmoid", graphs="SigmoidGrad", aten="SigmoidBackward", split="elements")
def sigmoid_grad(output: Array, grad_output: Array) -> Expected:
    out, came = doubles(output), doubles(grad_output)
    value = came * out * (1 - out)
    return Expected(value, 2 * np.abs(came * out), narrow=np.abs(value))


@operator("gradient of tanh", graphs="TanhGrad", aten="TanhBackward", split="elements")
def tanh_grad(output: Array, grad_output: Array) -> Expected:
    out, came = doubles(output), doubles(grad_output)
    value = came * (1 - out * out)
    return Expected(value, 2 * np.abs(came), narrow=np.abs(value))
