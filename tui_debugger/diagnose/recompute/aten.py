"""PyTorch's operators below autograd, by the arguments of their schemas: what our own client records at level "op".

Backward operators are computed like any other: their arguments say what they are the gradient of.
"""

# ruff: noqa: A002, ARG001, PLR0917 - arguments are those of the schemas, by name and order

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.diagnose.recompute import data_movement, elementwise, products, reductions
from tui_debugger.diagnose.recompute.convolutions import conv, graph_conv_filter, graph_conv_input, per_dimension
from tui_debugger.diagnose.recompute.elementwise import erf, sigmoid_of
from tui_debugger.diagnose.recompute.judge import ACCUMULATED, LARGEST_INSIDE, Expected, doubles, unit_of, wide
from tui_debugger.diagnose.recompute.kernel_checks import VARIANCE_SHARE
from tui_debugger.diagnose.recompute.reductions import normalised, total
from tui_debugger.diagnose.recompute.table import ATEN, CALLS, ByShape, CannotBindError, aten
from tui_debugger.graph.categories import plain_type

_AS_CALLED: Final = (
    *("T", "Transpose", "Permute", "Unsqueeze", "Stack", "Chunk", "Unbind", "Clone", "Detach", "Alias", "Contiguous"),
    *("LiftFresh", "ToCopy", "Flip", "Roll", "Tril", "Triu", "Gather", "IndexSelect", "Where", "MaskedFill"),
    *("ZerosLike", "OnesLike", "Select", "Narrow", "Cumsum", "Clamp", "Square", "Softplus", "Hardtanh", "Glu"),
    *("Add", "Sub", "Rsub", "Mul", "Div", "Neg", "Abs", "Exp", "Expm1", "Log", "Log2", "Log10", "Log1p", "Sqrt"),
    *("Rsqrt", "Reciprocal", "Sin", "Cos", "Tanh", "Atan", "Erf", "Erfc", "Sigmoid", "Relu", "Silu", "Mish", "Floor"),
    *("Ceil", "Round", "Trunc", "Sign", "Maximum", "Minimum", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "LogicalNot"),
    *("BitwiseNot", "Isnan", "Isfinite", "Addcmul", "Addcdiv", "Lerp", "Gelu", "LeakyRelu", "Linear", "Baddbmm"),
    *("Addmm", "Amax", "Amin", "Argmax", "Sum", "Mean", "Prod", "Logsumexp", "Hardsigmoid", "Hardswish"),
)
"""Operators whose arguments are those of the function of the same name."""
for _name in _AS_CALLED:
    ATEN[_name] = CALLS[plain_type(_name)]


# -- products --------------------------------------------------------------------------------------------------


@aten("matmul", "Mm", "Bmm")
def mm(self: Array, mat2: Array) -> Any:
    return products.product_of(self, mat2)


@aten("matmul", "Mv")
def mv(self: Array, vec: Array) -> Any:
    return products.product_of(self, vec)


@aten("matmul", "Dot")
def dot(self: Array, tensor: Array) -> Any:
    return products.product_of(self, tensor)


@aten("addmm", "Addmv")
def addmv(self: Array, mat: Array, vec: Array, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * self + alpha * mat @ vec``."""
    return products.product_of(mat, vec, self, alpha, beta)


@aten("attention", "ScaledDotProductFlashAttentionForCpu")
def attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Any:
    """The output only: the second output, the logarithms of sums, is not judged."""
    return products.attention(query, key, value, attn_mask, dropout_p, is_causal, scale), None


@aten("conv", "Convolution")
def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    if transposed:
        raise CannotBindError("transposed")
    return conv(input, weight, bias, stride, padding, dilation, groups)


@aten("conv gradient", "ConvolutionBackward")
def convolution_backward(
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    """Gradients of the input, the filters and the bias, as far as ``output_mask`` asks for them."""
    if transposed or groups != 1 or weight.ndim != 4:
        raise CannotBindError("transposed, in groups, or not of two dimensions")
    around = tuple(each for size in per_dimension(padding, 2) for each in (size, size))
    how: dict[str, Any] = {"pad_mode": "pad", "pad": around, "stride": stride, "dilation": dilation}
    made: list[Callable[[], Any]] = [
        lambda: graph_conv_input(grad_output, weight, tuple(input.shape), **how),
        lambda: graph_conv_filter(grad_output, input, **how).function(weight.shape),
        lambda: total(doubles(grad_output), (0, 2, 3), False),
    ]
    return _wanted([make() for make, wanted in zip(made, output_mask, strict=True) if wanted])


def _wanted(found: Sequence[Any]) -> Any:
    """A single gradient is the output itself; several are a tuple."""
    return found[0] if len(found) == 1 else tuple(found)


# -- moves -----------------------------------------------------------------------------------------------------


@aten("reshape", "View", "Reshape", "UnsafeView")
def view(self: Array, size: Any = None, shape: Any = None) -> Expected:
    return data_movement.reshape(self, size if size is not None else shape)


@aten("reshape", "ReshapeAlias")
def reshape_alias(self: Array, size: Any, stride: Any) -> Expected:
    return data_movement.reshape(self, size)


@aten("reshape", "ViewAsReal")
def view_as_real(self: Array) -> Expected:
    """Real and imaginary parts along one more dimension."""
    return Expected(np.stack([self.real, self.imag], -1), exact=True)


@aten("reshape", "ViewAsComplex")
def view_as_complex(self: Array) -> Expected:
    """The same the other way round."""
    made = np.empty(self.shape[:-1], np.complex128)
    made.real, made.imag = self[..., 0], self[..., 1]
    return Expected(made, exact=True)


@aten("conj", "Conj", "ConjPhysical")
def conjugate(self: Array) -> Expected:
    """The imaginary parts with the other sign."""
    return Expected(np.conj(self), exact=True)


@aten("reshape", "Squeeze")
def squeeze(self: Array, dim: Any = None) -> Expected:
    return data_movement.squeeze(self, dim)


@aten("expand", "Expand")
def expand(self: Array, size: Any, implicit: bool = False) -> Expected:
    return data_movement.expand(self, size)


@aten("repeat", "Repeat")
def repeat(self: Array, repeats: Any) -> Expected:
    return data_movement.repeat(self, repeats)


def _slice(length: int, start: Any, end: Any, step: int) -> slice:
    return slice(*slice(start, end, step).indices(length))


@aten("index", "Slice")
def slice_of(self: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Expected:
    at = dim % self.ndim
    return Expected(self[(slice(None),) * at + (_slice(self.shape[at], start, end, step),)], exact=True)


@aten("concatenate", "Cat")
def cat(tensors: Any, dim: int = 0) -> Expected:
    return data_movement.cat(tensors, dim)


@aten("split", "Split")
def split(self: Array, split_size: Any, dim: int = 0) -> Any:
    return data_movement.split(self, split_size, dim)


@aten("split", "SplitWithSizes")
def split_with_sizes(self: Array, split_sizes: Any, dim: int = 0) -> Any:
    return data_movement.split(self, split_sizes, dim)


@aten("copy", "Copy")
def copy(src: Array, self: Any = None) -> Expected:
    """Copies ``src`` into ``self``, which only gives the type."""
    return data_movement.cast(src)


@aten("index", "Index")
def index(self: Array, indices: Any) -> Expected:
    places = tuple(slice(None) if each is None else each for each in indices)
    return data_movement.index(self, places)


@aten("embedding", "Embedding")
def embedding(weight: Array, indices: Array, padding_idx: Any = -1, *_: Any, **__: Any) -> Expected:
    return data_movement.embedding(indices, weight)


@aten("gradient of embedding", "EmbeddingDenseBackward")
def embedding_backward(
    grad_output: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Expected:
    if scale_grad_by_freq:
        raise CannotBindError("scaled by frequency")
    came = doubles(grad_output).reshape(-1, grad_output.shape[-1])
    rows = indices.reshape(-1).astype(np.int64)
    used = rows != padding_idx
    value, squares = np.zeros((num_weights, came.shape[1])), np.zeros((num_weights, came.shape[1]))
    np.add.at(value, rows[used], came[used])
    np.add.at(squares, rows[used], came[used] ** 2)
    most = int(np.bincount(rows[used], minlength=1).max(initial=1))
    # The rows are summed up in the type of the output.
    return Expected(value, np.sqrt(squares), most, narrow=np.sqrt(squares) * math.sqrt(most) * (most > 1))


@aten("index", "SliceBackward")
def slice_backward(grad_output: Array, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Expected:
    found, at = np.zeros(tuple(input_sizes), grad_output.dtype), dim % len(input_sizes)
    found[(slice(None),) * at + (_slice(found.shape[at], start, end, step),)] = grad_output
    return Expected(found, exact=True)


@aten("index", "SelectBackward")
def select_backward(grad_output: Array, input_sizes: Any, dim: int, index: int) -> Expected:
    found = np.zeros(tuple(input_sizes), grad_output.dtype)
    found[(slice(None),) * (dim % found.ndim) + (index,)] = grad_output
    return Expected(found, exact=True)


@aten("fill", "Zeros", "NewZeros", "Zero")
def zeros(self: Any = None, size: Any = None, **_: Any) -> ByShape:
    return ByShape(lambda made: Expected(np.zeros(made), exact=True))


@aten("fill", "Full", "FullLike", "NewFull", "Fill")
def full(fill_value: Any = None, value: Any = None, **_: Any) -> ByShape:
    single = wide(np.asarray(value if fill_value is None else fill_value))
    return ByShape(lambda made: Expected(np.broadcast_to(single, made), converted=True))


@aten("fill", "Ones", "NewOnes")
def ones(self: Any = None, size: Any = None, **_: Any) -> ByShape:
    return ByShape(lambda made: Expected(np.ones(made), exact=True))


# -- elements --------------------------------------------------------------------------------------------------


@aten("pow", "Pow", split="elements")
def power(self: Any, exponent: Any) -> Expected:
    return elementwise.power(self, exponent)


@aten("clamp", "ClampMin", split="elements")
def clamp_min(self: Array, min: Any) -> Expected:
    return elementwise.clamp(self, min)


@aten("clamp", "ClampMax", split="elements")
def clamp_max(self: Array, min: Any = None, max: Any = None) -> Expected:
    return elementwise.clamp(self, min, max)


@aten("elu", "Elu", split="elements")
def elu(self: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expected:
    return elementwise.elu(self, alpha, scale=scale, input_scale=input_scale)


@aten("dropout", "NativeDropout")
def native_dropout(input: Array, p: float, train: bool | None) -> Any:
    """Each element is zero or x / (1 - p); the mask is not judged."""
    return elementwise.dropout(input, p, train is not False), None


@aten("gradient of dropout", "NativeDropoutBackward", split="elements")
def native_dropout_backward(grad_output: Array, mask: Array, scale: float) -> Expected:
    value = doubles(grad_output) * np.asarray(mask).astype(np.float64) * scale
    return Expected(value, narrow=np.abs(value))


@aten("gradient of relu", "ThresholdBackward", split="elements", single=True)
def threshold_backward(grad_output: Array, self: Array, threshold: float) -> Expected:
    came, x = doubles(grad_output), doubles(self)
    return Expected(np.where(x <= threshold, 0.0, came))


def _slope(came: Float64, slope: Float64, off: Any) -> Expected:
    """A gradient times a derivative that is wrong by ``off`` units of rounding."""
    value = came * slope
    return Expected(value, np.nan_to_num(np.abs(came) * off + np.abs(value), posinf=0.0))


@aten("gradient of gelu", "GeluBackward", split="elements")
def gelu_backward(grad_output: Array, self: Array, approximate: str = "none") -> Expected:
    came, x = doubles(grad_output), doubles(self)
    if approximate == "none":
        slope = 0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return _slope(came, slope, 2 + np.minimum(np.abs(x), 8) * 2)
    cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    up = np.tanh(cubic)
    rate = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    slope = 0.5 * (1 + up) + 0.5 * x * (1 - up * up) * rate
    return _slope(came, slope, 2 + np.minimum(np.abs(x) * rate, 64) * 2)


@aten("gradient of silu", "SiluBackward", split="elements")
def silu_backward(grad_output: Array, self: Array) -> Expected:
    came, x = doubles(grad_output), doubles(self)
    share = sigmoid_of(x)
    return _slope(came, share * (1 + x * (1 - share)), share * (3 + 3 * np.abs(x)) + 1)


@aten("gradient of sigmoid", "SigmoidBackward", split="elements")
def sigmoid_backward(grad_output: Array, output: Array) -> Expected:
    came, out = doubles(grad_output), doubles(output)
    value = came * out * (1 - out)
    return Expected(value, 2 * np.abs(came * out), narrow=np.abs(value))


@aten("gradient of tanh", "TanhBackward", split="elements")
def tanh_backward(grad_output: Array, output: Array) -> Expected:
    came, out = doubles(grad_output), doubles(output)
    value = came * (1 - out * out)
    return Expected(value, 2 * np.abs(came), narrow=np.abs(value))


@aten("gradient of leaky relu", "LeakyReluBackward", split="elements")
def leaky_relu_backward(
    grad_output: Array, self: Array, negative_slope: float, self_is_result: bool = False
) -> Expected:
    came, x = doubles(grad_output), doubles(self)
    value = np.where(x > 0, came, came * negative_slope)
    return Expected(value, np.abs(value))


@aten("gradient of softplus", "SoftplusBackward", split="elements")
def softplus_backward(grad_output: Array, self: Array, beta: float, threshold: float) -> Expected:
    """``dy * sigmoid(beta * x)``, and dy above the threshold; either one at the threshold."""
    came, x = doubles(grad_output), doubles(self)
    share = sigmoid_of(beta * x)
    near = np.abs(beta * x - threshold) <= 1e-6 * (1 + abs(threshold))
    value = np.where(beta * x > threshold, came, came * share)
    size = np.abs(came) * (3 + np.abs(beta * x) * (1 - share))
    return Expected(value, size, either=np.where(near, came * share, value))


@aten("gradient of hardtanh", "HardtanhBackward", split="elements")
def hardtanh_backward(grad_output: Array, self: Array, min_val: float, max_val: float) -> Expected:
    """The gradient between two bounds, which may have been rounded to the type of the tensor."""
    came, x = doubles(grad_output), doubles(self)
    low, high = (float(np.asarray(each, self.dtype)) for each in (min_val, max_val))
    edge = (np.abs(x - low) <= 1e-6 * abs(low)) | (np.abs(x - high) <= 1e-6 * abs(high)) | np.isnan(x)
    value = np.where((x <= low) | (x >= high), 0.0, came)
    return Expected(value, either=np.where(edge, np.where(value == 0, came, 0.0), value))


# -- reductions ------------------------------------------------------------------------------------------------


@aten("softmax", "Softmax")
def softmax(self: Array, dim: int, half_to_float: bool = False) -> Expected:
    return reductions.softmax(self, dim)


@aten("log softmax", "LogSoftmax")
def log_softmax(self: Array, dim: int, half_to_float: bool = False) -> Expected:
    return reductions.log_softmax(self, dim)


@aten("gradient of softmax", "SoftmaxBackwardData")
def softmax_backward(grad_output: Array, output: Array, dim: int, input_dtype: Any = None) -> Expected:
    return reductions.graph_softmax_grad(output, grad_output, dim)


@aten("gradient of log softmax", "LogSoftmaxBackwardData")
def log_softmax_backward(grad_output: Array, output: Array, dim: int, input_dtype: Any = None) -> Expected:
    came, out = doubles(grad_output), doubles(output)
    share, inner = np.exp(out), np.sum(came, axis=dim, keepdims=True)
    root = np.sqrt(np.sum(came * came, axis=dim, keepdims=True))
    size = np.abs(came) + share * (np.abs(inner) * (3 + np.minimum(np.abs(out), 1e4)) + root)
    return Expected(came - share * inner, np.nan_to_num(size), out.shape[dim] if out.ndim else 1)


@aten("norm", "Norm")
def norm(self: Array, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Expected:
    """The norm, or along dimensions."""
    return reductions.norm(self, p, dim, keepdim, dtype=dtype)


@aten("norm", "LinalgVectorNorm")
def vector_norm(self: Array, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Expected:
    return reductions.norm(self, ord, dim, keepdim, dtype=dtype)


@aten("max", "Max")
def max_of(self: Array, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
    return reductions.max_of(self, dim, keepdim, other=other)


@aten("min", "Min")
def min_of(self: Array, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
    return reductions.min_of(self, dim, keepdim, other=other)


@aten("layer norm", "NativeLayerNorm")
def native_layer_norm(input: Array, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    made, centre, inverse = reductions.layer_normalised(input, normalized_shape, weight, bias, eps)
    x = doubles(input)
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    root, count = np.sqrt(np.mean(x * x, axis=axes, keepdims=True)), x.size / max(centre.size, 1)
    lost = 2 + (root * inverse) ** 2  # kernels may take the mean of squares and the square of the mean
    too_large = root * root * count > LARGEST_INSIDE  # for the type in which kernels sum up
    deviations = Expected(inverse, inverse * lost, max(count / VARIANCE_SHARE, 1.0), ignored=too_large)
    return made, Expected(centre, root, count), deviations


def normalised_backward(
    gradient: Array,
    input: Array,
    scale: Any,
    eps: float,
    axes: tuple[int, ...],
    rest: tuple[int, ...],
    *,
    centred: bool = True,
    given: tuple[Float64, Float64] | None = None,
) -> tuple[Expected, Expected, Expected]:
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


@aten("gradient of layer norm", "NativeLayerNormBackward")
def native_layer_norm_backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Any,
    mean: Array,
    rstd: Array,
    weight: Any,
    bias: Any,
    output_mask: Sequence[bool],
) -> Any:
    """Gradients of input, scale and shift; means and deviations of the forward pass are those that count."""
    data = doubles(input)
    at = data.ndim - len(normalized_shape)
    axes, rest = tuple(range(at, data.ndim)), tuple(range(at))
    scale = 1.0 if weight is None else doubles(weight)
    kept = [doubles(each).reshape(*data.shape[:at], *[1] * len(axes)) for each in (mean, rstd)]
    given = kept[0], 1 / kept[1] ** 2
    found = normalised_backward(grad_out, input, scale, 0.0, axes, rest, given=given)
    return _wanted([each for each, wanted in zip(found, output_mask, strict=True) if wanted])


@aten("batch norm", "NativeBatchNorm", "CudnnBatchNorm", "NativeBatchNormLegit")
def native_batch_norm(
    input: Array,
    weight: Any,
    bias: Any,
    running_mean: Any = None,
    running_var: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The output only: the statistics for the backward pass are not judged."""
    found = reductions.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return found, None, None


@aten("gradient of batch norm", "NativeBatchNormBackward")
def native_batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Any,
    running_mean: Any = None,
    running_var: Any = None,
    save_mean: Any = None,
    save_invstd: Any = None,
    train: bool = False,
    eps: float = 1e-5,
    output_mask: Sequence[bool] = (True, True, True),
) -> Any:
    if not train:
        raise CannotBindError("with running means")
    data = doubles(input)
    axes = (0, *range(2, data.ndim))
    scale = 1.0 if weight is None else doubles(weight).reshape(1, -1, *[1] * (data.ndim - 2))
    found = normalised_backward(grad_out, input, scale, eps, axes, axes)
    return _wanted([each for each, wanted in zip(found, output_mask, strict=True) if wanted])


# -- losses ----------------------------------------------------------------------------------------------------

_REDUCTIONS: Final = ("none", "mean", "sum")
"""Indexed by the number that schemas use."""


@aten("mse loss", "MseLoss")
def mse_loss(self: Array, target: Array, reduction: int = 1) -> Expected:
    return reductions.mse_loss(self, target, reduction=_REDUCTIONS[reduction])


@aten("gradient of mse loss", "MseLossBackward")
def mse_loss_backward(grad_output: Array, self: Array, target: Array, reduction: int) -> Expected:
    """2 dy (x - target), divided by the number of elements for the mean."""
    came, apart = doubles(grad_output), doubles(self) - doubles(target)
    value = 2 * came * apart / (apart.size if reduction == 1 else 1)
    return Expected(value, 2 * np.abs(value), narrow=np.abs(value))


@aten("nll loss", "NllLossForward", "NllLoss2dForward")
def nll_loss(self: Array, target: Array, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The negative log-probability of the target classes; the sum of weights is not judged."""
    found = reductions.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])
    return found, None


@aten("gradient of nll loss", "NllLossBackward", "NllLoss2dBackward")
def nll_loss_backward(
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Any = None,
) -> Expected:
    axis = 1 if self.ndim > 1 else 0
    wanted, came = target.astype(np.int64), doubles(grad_output)
    used = wanted != ignore_index
    each = np.ones(self.shape[axis]) if weight is None else doubles(weight)
    factors = np.where(used, each[np.where(used, wanted, 0)], 0.0)
    share = -came * factors / (np.sum(factors) if reduction == 1 else 1)
    value = np.zeros(self.shape)
    at = np.expand_dims(np.where(used, wanted, 0), axis)
    np.put_along_axis(value, at, np.expand_dims(share, axis), axis)
    return Expected(value, 2 * np.abs(value), narrow=np.abs(value))


@aten("copy", "ParameterGrad", "BiasAddGrad")
def parameter_gradient(input: Array, **_: Any) -> Expected:
    """The gradient of a weight equals the one recorded operator of the backward pass that made it."""
    return Expected(input, exact=True)
