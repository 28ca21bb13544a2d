"""PyTorch's operators below autograd, by the arguments of their schemas: what our own client records at level "op".

Backward operators are computed like any other: their arguments say what they are the gradient of.
"""

# ruff: noqa: A002, ARG001, PLR0917 - arguments are those of the schemas, by name and order

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.diagnose.recompute import data_movement, reductions
from tui_debugger.diagnose.recompute.convolutions import conv, graph_conv_filter, graph_conv_input, symmetric
from tui_debugger.diagnose.recompute.elementwise import erf, sigmoid_of
from tui_debugger.diagnose.recompute.judge import LARGEST_INSIDE, Expected, doubles, wide
from tui_debugger.diagnose.recompute.kernel_checks import VARIANCE_SHARE
from tui_debugger.diagnose.recompute.reductions import total
from tui_debugger.diagnose.recompute.table import ATEN, CALLS, ByShape, CannotBindError, operator
from tui_debugger.graph.categories import plain_type

_AS_CALLED: Final = """
    T Transpose Permute View Reshape UnsafeView Squeeze Unsqueeze Expand Repeat Cat Stack Split SplitWithSizes Chunk
    Unbind Clone Detach Alias Contiguous LiftFresh ToCopy Flip Roll Tril Triu Gather IndexSelect Embedding Where
    MaskedFill ZerosLike OnesLike Select Narrow Cumsum Clamp Square Softplus Hardtanh Glu Add Sub Rsub Mul Div Pow
    Neg Abs Exp Expm1 Log Log2 Log10 Log1p Sqrt Rsqrt Reciprocal Sin Cos Tanh Atan Erf Erfc Sigmoid Relu Silu Mish
    Elu Floor Ceil Round Trunc Sign Maximum Minimum Eq Ne Lt Le Gt Ge LogicalNot BitwiseNot Isnan Isfinite Addcmul
    Addcdiv Lerp Gelu LeakyRelu Linear Mm Bmm Mv Addmv Dot Baddbmm Addmm Max Min Amax Amin Argmax Sum Mean Prod
    Logsumexp Hardsigmoid Hardswish Softmax LogSoftmax Norm LinalgVectorNorm MseLoss
"""
"""Operators whose arguments are those of the function of the same name."""
ATEN.update({name: CALLS[plain_type(name)] for name in _AS_CALLED.split()})


# -- products --------------------------------------------------------------------------------------------------


@operator("conv", aten="Convolution")
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


@operator("conv gradient", aten="ConvolutionBackward")
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
    how = symmetric(stride, padding, dilation)
    made: list[Callable[[], Any]] = [
        lambda: graph_conv_input(grad_output, weight, tuple(input.shape), **how),
        lambda: graph_conv_filter(grad_output, input, **how).function(weight.shape),
        lambda: total(doubles(grad_output), (0, 2, 3), False),
    ]
    return _wanted([make() if wanted else None for make, wanted in zip(made, output_mask, strict=True)], output_mask)


def _wanted(gradients: Sequence[Any], output_mask: Sequence[bool]) -> Any:
    """Returns those that ``output_mask`` asks for: a single one is the output itself, several are a tuple."""
    found = tuple(each for each, wanted in zip(gradients, output_mask, strict=True) if wanted)
    return found[0] if len(found) == 1 else found


# -- moves -----------------------------------------------------------------------------------------------------


operator("reshape", aten="ReshapeAlias")(lambda self, size, **_: data_movement.reshape(self, size))


@operator("reshape", aten="ViewAsReal")
def view_as_real(self: Array) -> Expected:
    """Real and imaginary parts along one more dimension."""
    return Expected(np.stack([self.real, self.imag], -1), exact=True)


@operator("reshape", aten="ViewAsComplex")
def view_as_complex(self: Array) -> Expected:
    """The same the other way round."""
    made = np.empty(self.shape[:-1], np.complex128)
    made.real, made.imag = self[..., 0], self[..., 1]
    return Expected(made, exact=True)


def _along(array: Array, dim: int, at: Any) -> tuple[Any, ...]:
    """The index that takes ``at`` along one dimension."""
    return (slice(None),) * (dim % array.ndim) + (at,)


@operator("index", aten="Slice")
def slice_of(self: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Expected:
    return Expected(self[_along(self, dim, slice(start, end, step))], exact=True)


operator("copy", aten="Copy")(lambda src, **_: data_movement.cast(src))  # into ``self``, which only gives the type


@operator("index", aten="Index")
def index(self: Array, indices: Any) -> Expected:
    places = tuple(slice(None) if each is None else each for each in indices)
    return data_movement.index(self, places)


@operator("gradient of embedding", aten="EmbeddingDenseBackward")
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


@operator("index", aten="SliceBackward")
def slice_backward(grad_output: Array, input_sizes: Any, dim: int, start: int, end: int, step: int) -> Expected:
    return _spread(grad_output, input_sizes, dim, slice(start, end, step))


@operator("index", aten="SelectBackward")
def select_backward(grad_output: Array, input_sizes: Any, dim: int, index: int) -> Expected:
    return _spread(grad_output, input_sizes, dim, index)


def _spread(gradient: Array, sizes: Any, dim: int, at: Any) -> Expected:
    """Zeros but for the gradient of a part."""
    found = np.zeros(tuple(sizes), gradient.dtype)
    found[_along(found, dim, at)] = gradient
    return Expected(found, exact=True)


@operator("fill", aten="Full FullLike NewFull Fill")
def full(fill_value: Any = None, value: Any = None, **_: Any) -> ByShape:
    single = wide(np.asarray(value if fill_value is None else fill_value))
    return ByShape(lambda made: Expected(np.broadcast_to(single, made), converted=True))


operator("conj", aten="Conj ConjPhysical")(lambda self: Expected(np.conj(self), exact=True))
operator("fill", aten="Zeros NewZeros Zero")(lambda **_: ByShape(lambda made: Expected(np.zeros(made), exact=True)))
operator("fill", aten="Ones NewOnes")(lambda **_: ByShape(lambda made: Expected(np.ones(made), exact=True)))


# -- elements --------------------------------------------------------------------------------------------------


@operator("gradient of dropout", aten="NativeDropoutBackward", split="elements")
def native_dropout_backward(grad_output: Array, mask: Array, scale: float) -> Expected:
    value = doubles(grad_output) * np.asarray(mask).astype(np.float64) * scale
    return Expected(value, narrow=np.abs(value))


@operator("gradient of relu", aten="ThresholdBackward", split="elements", single=True)
def threshold_backward(grad_output: Array, self: Array, threshold: float) -> Expected:
    came, x = doubles(grad_output), doubles(self)
    return Expected(np.where(x <= threshold, 0.0, came))


def _slope(came: Float64, slope: Float64, off: Any) -> Expected:
    """A gradient times a derivative that is wrong by ``off`` units of rounding."""
    value = came * slope
    return Expected(value, np.nan_to_num(np.abs(came) * off + np.abs(value), posinf=0.0))


@operator("gradient of gelu", aten="GeluBackward", split="elements")
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


@operator("gradient of silu", aten="SiluBackward", split="elements")
def silu_backward(grad_output: Array, self: Array) -> Expected:
    came, x = doubles(grad_output), doubles(self)
    share = sigmoid_of(x)
    return _slope(came, share * (1 + x * (1 - share)), share * (3 + 3 * np.abs(x)) + 1)


@operator("gradient of leaky relu", aten="LeakyReluBackward", split="elements")
def leaky_relu_backward(
    grad_output: Array, self: Array, negative_slope: float, self_is_result: bool = False
) -> Expected:
    came, x = doubles(grad_output), doubles(self)
    value = np.where(x > 0, came, came * negative_slope)
    return Expected(value, np.abs(value))


@operator("gradient of softplus", aten="SoftplusBackward", split="elements")
def softplus_backward(grad_output: Array, self: Array, beta: float, threshold: float) -> Expected:
    """``dy * sigmoid(beta * x)``, and dy above the threshold; either one at the threshold."""
    came, x = doubles(grad_output), doubles(self)
    share = sigmoid_of(beta * x)
    near = np.abs(beta * x - threshold) <= 1e-6 * (1 + abs(threshold))
    value = np.where(beta * x > threshold, came, came * share)
    size = np.abs(came) * (3 + np.abs(beta * x) * (1 - share))
    return Expected(value, size, either=np.where(near, came * share, value))


@operator("gradient of hardtanh", aten="HardtanhBackward", split="elements")
def hardtanh_backward(grad_output: Array, self: Array, min_val: float, max_val: float) -> Expected:
    """The gradient between two bounds, which may have been rounded to the type of the tensor."""
    came, x = doubles(grad_output), doubles(self)
    low, high = (float(np.asarray(each, self.dtype)) for each in (min_val, max_val))
    edge = (np.abs(x - low) <= 1e-6 * abs(low)) | (np.abs(x - high) <= 1e-6 * abs(high)) | np.isnan(x)
    value = np.where((x <= low) | (x >= high), 0.0, came)
    return Expected(value, either=np.where(edge, np.where(value == 0, came, 0.0), value))


# -- reductions ------------------------------------------------------------------------------------------------


@operator("gradient of log softmax", aten="LogSoftmaxBackwardData")
def log_softmax_backward(grad_output: Array, output: Array, dim: int, input_dtype: Any = None) -> Expected:
    came, out = doubles(grad_output), doubles(output)
    share, inner = np.exp(out), np.sum(came, axis=dim, keepdims=True)
    root = np.sqrt(np.sum(came * came, axis=dim, keepdims=True))
    size = np.abs(came) + share * (np.abs(inner) * (3 + np.minimum(np.abs(out), 1e4)) + root)
    return Expected(came - share * inner, np.nan_to_num(size), out.shape[dim] if out.ndim else 1)


@operator("layer norm", aten="NativeLayerNorm")
def native_layer_norm(input: Array, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    made, centre, inverse = reductions.layer_normalised(input, normalized_shape, weight, bias, eps)
    x = doubles(input)
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    root, count = np.sqrt(np.mean(x * x, axis=axes, keepdims=True)), x.size / max(centre.size, 1)
    lost = 2 + (root * inverse) ** 2  # kernels may take the mean of squares and the square of the mean
    too_large = root * root * count > LARGEST_INSIDE  # for the type in which kernels sum up
    deviations = Expected(inverse, inverse * lost, max(count / VARIANCE_SHARE, 1.0), ignored=too_large)
    return made, Expected(centre, root, count), deviations


@operator("gradient of layer norm", aten="NativeLayerNormBackward")
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
    dims = len(normalized_shape)
    shape = *input.shape[: input.ndim - dims], *[1] * dims
    given = doubles(mean).reshape(shape), 1 / doubles(rstd).reshape(shape) ** 2
    return _wanted(reductions.layer_norm_backward(grad_out, input, dims, weight, 0.0, given=given), output_mask)


@operator("gradient of batch norm", aten="NativeBatchNormBackward")
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
    return _wanted(reductions.batch_norm_backward(grad_out, input, weight, eps), output_mask)


# -- losses ----------------------------------------------------------------------------------------------------


@operator("gradient of mse loss", aten="MseLossBackward")
def mse_loss_backward(grad_output: Array, self: Array, target: Array, reduction: int) -> Expected:
    """2 dy (x - target), divided by the number of elements for the mean."""
    came, apart = doubles(grad_output), doubles(self) - doubles(target)
    value = 2 * came * apart / (apart.size if reduction == 1 else 1)
    return Expected(value, 2 * np.abs(value), narrow=np.abs(value))


@operator("gradient of nll loss", aten="NllLossBackward NllLoss2dBackward")
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
