"""Operators on single elements: arithmetic, activations, comparisons.

``size`` says how far a result may be off where it is more than one rounding away from the input: kernels approximate
exp, erf and tanh differently, and a small difference of large numbers is only as exact as these.
"""

# ruff: noqa: A002, A006 - arguments are those of the frameworks, by name and order

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array, Float64, Mask
from tui_debugger.diagnose.recompute.judge import Expected, doubles, is_float, wide
from tui_debugger.diagnose.recompute.table import Alternatives, CannotBindError, operator

Size = Callable[[Float64, Float64], Any]
"""The size of an element's terms, from its input and its output."""
_APPROXIMATED: Final = 2.0
"""The error of kernels for exp, erf and similar functions, in units of rounding, besides the last rounding."""


# -- the error function, which numpy does not have ---------------------------------------------------------

_P1: Final = (3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02, 3.20937758913846947e03)
_P1_LAST: Final = 1.85777706184603153e-1
_Q1: Final = (2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03, 2.84423683343917062e03)
_P2: Final = (
    *(5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01, 2.98635138197400131e02),
    *(8.81952221241769090e02, 1.71204761263407058e03, 2.05107837782607147e03, 1.23033935479799725e03),
)
_P2_LAST: Final = 2.15311535474403846e-8
_Q2: Final = (
    *(1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02, 1.62138957456669019e03),
    *(3.29079923573345963e03, 4.36261909014324716e03, 3.43936767414372164e03, 1.23033935480374942e03),
)
_P3: Final = (
    *(3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1),
    *(1.60837851487422766e-2, 6.58749161529837803e-4),
)
_P3_LAST: Final = 1.63153871373020978e-2
_Q3: Final = (
    *(2.56852019228982242e00, 1.87295284992346725e00, 5.27905102951428412e-1),
    *(6.05183413124413191e-2, 2.33520497626869185e-3),
)


def _ratio(x: Float64, top: tuple[float, ...], last: float, bottom: tuple[float, ...]) -> Float64:
    above, below = last * x, x
    for up, down in zip(top[:-1], bottom[:-1], strict=True):
        above, below = (above + up) * x, (below + down) * x
    ratio: Float64 = (above + top[-1]) / (below + bottom[-1])
    return ratio


_FIT: Final = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807)
_FIT_REST: Final = (-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223)
FIT_ERROR: Final = 1.3e-7
"""The relative error of ``rough_erfc``."""


def rough_erfc(size: Float64) -> Float64:
    """1 - erf(x) for x >= 0, with relative error ``FIT_ERROR`` (Chebyshev fit of Numerical Recipes); fast."""
    t = 1 / (1 + 0.5 * size)
    power = np.multiply(t, _FIT[0])
    for each in (*_FIT[1:], *_FIT_REST):
        power += each
        power *= t
    power /= t
    power -= size * size
    np.exp(power, out=power)
    power *= t
    return power


def erfc(x: Float64) -> Float64:
    """1 - erf(x), exact to the last digits even where it is tiny (Cody's rational approximations)."""
    size = np.abs(x)
    small, large = size <= 0.46875, size > 4
    result = np.empty_like(size)
    near = x[small]
    result[small] = 1 - near * _ratio(near * near, _P1, _P1_LAST, _Q1)
    for where in (~small & ~large, large):
        y = np.minimum(size[where], 30.0)
        if where is large:
            inverse = 1 / (y * y)
            tail = inverse * _ratio(inverse, _P3, _P3_LAST, _Q3)
            tail = (1 / math.sqrt(math.pi) - tail) / y
        else:
            tail = _ratio(y, _P2, _P2_LAST, _Q2)
        rough = np.trunc(y * 16) / 16
        tail = np.exp(-rough * rough) * np.exp(-(y - rough) * (y + rough)) * tail
        result[where] = np.where(x[where] < 0, 2 - tail, tail)
    return np.where(np.isnan(x), x, result)


def erf(x: Float64) -> Float64:
    near = np.clip(x, -0.46875, 0.46875)
    found: Float64 = np.where(np.abs(x) <= 0.46875, near * _ratio(near * near, _P1, _P1_LAST, _Q1), 1 - erfc(x))
    return found


# -- one argument ------------------------------------------------------------------------------------------


def sigmoid_of(x: Float64) -> Float64:
    """1 / (1 + exp(-x)); the result is zero where exp overflows."""
    found: Float64 = np.negative(x)
    np.exp(found, out=found)
    found += 1
    return np.reciprocal(found, out=found)


def _approximated(_: Float64, y: Float64) -> Float64:
    return _APPROXIMATED * np.abs(y)


def _by_input(x: Float64, y: Float64) -> Float64:
    return np.abs(x) + np.abs(y)


def _by_one(_: Float64, y: Float64) -> Float64:
    return 1 + np.abs(y)


def _exponential(x: Float64, y: Float64) -> Float64:
    return np.where(y > 0, np.minimum(np.abs(x), 1e4) + _APPROXIMATED, 0) * np.where(np.isfinite(y), y, 0)


def _no(_: Float64, __: Float64) -> float:
    return 0.0


_UNARY: Final[dict[str, tuple[Callable[[Float64], Any], Size]]] = {
    "neg": (np.negative, _no),
    "abs": (np.abs, _no),
    "exp": (np.exp, _exponential),
    "expm1": (np.expm1, _by_one),
    "exp2": (np.exp2, _exponential),
    "log": (np.log, _by_one),
    "log2": (np.log2, _by_one),
    "log10": (np.log10, _by_one),
    "log1p": (np.log1p, _approximated),
    "sqrt": (np.sqrt, _no),
    "rsqrt": (lambda x: 1 / np.sqrt(x), _approximated),
    "reciprocal": (lambda x: 1 / x, _approximated),
    "square": (np.square, _no),
    "sin": (np.sin, _by_input),
    "cos": (np.cos, lambda x, _: 1 + np.abs(x)),
    "tanh": (np.tanh, _approximated),
    "sinh": (np.sinh, lambda x, y: _exponential(x, np.abs(y))),
    "cosh": (np.cosh, _exponential),
    "atan": (np.arctan, _approximated),
    "asin": (np.arcsin, _by_one),
    "acos": (np.arccos, _by_one),
    "erf": (erf, _by_one),
    "erfc": (erfc, _by_one),
    "sigmoid": (sigmoid_of, lambda x, y: y * (_APPROXIMATED + np.abs(x) * (1 - y))),
    "relu": (lambda x: np.maximum(x, 0), _no),
    "relu6": (lambda x: np.clip(x, 0, 6), _no),
    "silu": (lambda x: x * sigmoid_of(x), lambda x, y: np.abs(y) * (_APPROXIMATED + np.abs(x))),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), _by_input),
    "logsigmoid": (lambda x: -np.logaddexp(0, -x), _by_one),
    "hardsigmoid": (lambda x: np.clip(x / 6 + 0.5, 0, 1), _by_one),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, _by_input),
    "floor": (np.floor, _no),
    "ceil": (np.ceil, _no),
    "round": (np.round, _no),
    "trunc": (np.trunc, _no),
    "sign": (np.sign, _no),
}
_INTEGERS_STAY: Final = frozenset({"neg", "abs", "relu", "square", "sign", "floor", "ceil", "round", "trunc", "relu6"})
_MODULES: Final = {
    "relu": "ReLU",
    "relu6": "ReLU6",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "silu": "SiLU",
    "mish": "Mish",
    "logsigmoid": "LogSigmoid",
}
_NAMES: Final = {
    "neg": "neg negative",
    "abs": "abs absolute",
    "silu": "silu swish",
    "reciprocal": "reciprocal inv",
    "atan": "atan arctan",
    "asin": "asin arcsin",
    "acos": "acos arccos",
    "hardswish": "hardswish hswish",
    "hardsigmoid": "hardsigmoid hsigmoid",
    "logsigmoid": "logsigmoid log_sigmoid",
}


_CANCELLING: Final = frozenset(
    {"expm1", "log", "log2", "log10", "log1p", "sin", "cos", "asin", "acos", "mish", "hardswish"}
)
"""Functions that can be near zero while the input or an intermediate value is not: float32 may lose much of them."""


def _enter_unary(kind: str, function: Callable[[Float64], Any], size: Size) -> None:
    def compute(input: Array) -> Expected:
        if input.dtype.kind in "iub" and kind in _INTEGERS_STAY:
            return Expected(np.asarray(function(wide(input).astype(np.int64))), exact=True)
        x = doubles(input)
        y = np.asarray(function(x))
        y = y if y.dtype == x.dtype or x.dtype.kind == "c" else y.astype(x.dtype)

        def whole() -> Expected:
            explained = np.nan_to_num(np.asarray(size(x, y), np.float64), nan=0.0, posinf=0.0)
            # Kernels differ in what the sign of NaN is.
            return Expected(y, explained, either=np.nan_to_num(y, nan=0.0) if kind == "sign" else None)

        return Expected(y, whole=whole)

    single = kind not in _CANCELLING
    names = _NAMES.get(kind, kind)
    operator(kind, names, graphs=names, modules=_MODULES.get(kind, ""), split="elements", single=single)(compute)


for _kind, (_function, _size) in _UNARY.items():
    _enter_unary(_kind, _function, _size)


@operator("gelu", "gelu", split="elements", single=True)
def gelu(input: Array, approximate: str = "none") -> Expected:
    x = doubles(input)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        y = x * sigmoid_of(2 * inner)
    elif approximate == "none":
        size = np.abs(x)
        tail = rough_erfc(size * math.sqrt(0.5))
        tail *= size
        tail *= 0.5
        y = np.maximum(x, 0) - tail
    else:
        raise CannotBindError(f"form not known: {approximate}")

    loose = FIT_ERROR if approximate == "none" else 0.0

    def sized() -> Expected:
        return Expected(y, np.minimum(np.abs(x), 8), loose=loose, whole=exact)

    def exact() -> Expected:
        value = x * 0.5 * erfc(-x / math.sqrt(2)) if approximate == "none" else y
        value = np.where(np.isneginf(x), np.nan, value)
        near = np.where(np.isfinite(x), np.minimum(np.abs(x), 8), 0)
        return Expected(value, near + np.where(np.isfinite(value), np.abs(value), 0))

    return Expected(y, loose=loose, whole=sized)


@operator("gelu", modules="GELU", split="elements", single=True)
def module_gelu(input: Array, approximate: str = "") -> Any:
    """Gelu in the recorded form; in either form where none was recorded."""
    return gelu(input, approximate) if approximate else gelu_of_some_form(input)


@operator("gelu", graphs="GeLU Gelu FastGelu", split="elements", single=True)
def gelu_of_some_form(input: Array) -> Alternatives:
    return Alternatives(gelu(input), gelu(input, "tanh"))


@operator("fast gelu", "fast_gelu npu_fast_gelu quick_gelu", split="elements")
def fast_gelu(input: Array) -> Expected:
    x = doubles(input)
    y = x * sigmoid_of(1.702 * x)
    return Expected(y, np.abs(y) * (_APPROXIMATED + 1.702 * np.abs(x)))


@operator("softplus", "softplus", split="elements")
def softplus(input: Array, beta: float = 1.0, threshold: float = 20.0) -> Expected:
    """log(1 + exp(beta x)) / beta; x above the threshold; either one at the threshold."""
    x = doubles(input)
    smooth, large = np.logaddexp(0, beta * x) / beta, beta * x > threshold
    near = np.abs(beta * x - threshold) <= 1e-6 * (1 + abs(threshold))
    y = np.where(large, x, smooth)
    return Expected(y, np.abs(y) + 1 / abs(beta), either=np.where(near, np.where(large, smooth, x), y))


@operator("leaky relu", "leaky_relu", graphs="LeakyReLU", split="elements", single=True)
def leaky_relu(input: Array, negative_slope: float = 0.01) -> Expected:
    x = doubles(input)
    y = np.where(x > 0, x, negative_slope * x)
    return Expected(y, np.abs(y))


@operator("elu", "elu", split="elements")
def elu(input: Array, alpha: float = 1.0, *, scale: float = 1.0, input_scale: float = 1.0) -> Expected:
    x = doubles(input)
    y = scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x * input_scale, 0)))
    below = abs(scale * alpha) + np.abs(y) * (1 + abs(input_scale))
    return Expected(y, np.where(x > 0, np.abs(y) * (scale != 1), below))


@operator("selu", "selu", split="elements")
def selu(input: Array) -> Expected:
    return elu(input, 1.6732632423543772, scale=1.0507009873554805)


@operator("celu", "celu", split="elements")
def celu(input: Array, alpha: float = 1.0) -> Expected:
    return elu(input, alpha, input_scale=1 / alpha)


@operator("hardtanh", "hardtanh", split="elements", single=True)
def hardtanh(input: Array, min_val: float = -1.0, max_val: float = 1.0) -> Expected:
    return clamp(input, min_val, max_val)


@operator("clamp", "clamp clip", aten="ClampMin ClampMax", split="elements", single=True)
def clamp(input: Array, min: Any = None, max: Any = None) -> Expected:
    x = wide(input)
    for bound in (min, max):
        _require_fitting(bound, input)
    if min is not None:
        x = np.maximum(x, wide(np.asarray(min)))
    if max is not None:
        x = np.minimum(x, wide(np.asarray(max)))
    return Expected(x)


@operator("threshold", "threshold", split="elements")
def threshold(input: Array, threshold: float, value: float) -> Expected:
    x = doubles(input)
    return Expected(np.where((x > threshold) | np.isnan(x), x, value))


@operator("shrink", "softshrink", split="elements")
def softshrink(input: Array, lambd: float = 0.5) -> Expected:
    x = doubles(input)
    y = np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, x * 0))
    return Expected(y, np.where(y == 0, 0.0, abs(lambd)))


@operator("softsign", "softsign", graphs="Softsign", modules="Softsign", split="elements")
def softsign(input: Array) -> Expected:
    """``x / (1 + |x|)``, rounded twice."""
    x = doubles(input)
    y = np.where(np.isinf(x), np.nan, x / (1 + np.abs(x)))
    return Expected(y, narrow=np.nan_to_num(np.abs(y)))


@operator("tanh shrink", "tanhshrink", split="elements")
def tanhshrink(input: Array) -> Expected:
    """``x - tanh(x)``, rounded twice."""
    x = doubles(input)
    near = np.abs(np.tanh(x))
    return Expected(x - np.tanh(x), _APPROXIMATED * near, narrow=near)


@operator("prelu", "prelu")
def prelu(input: Array, weight: Array) -> Expected:
    x, slope = doubles(input), doubles(weight)
    if slope.size > 1:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return Expected(np.where(x > 0, x, slope * x))


@operator("glu", "glu")
def glu(input: Array, dim: int = -1) -> Expected:
    first, second = np.split(doubles(input), 2, axis=dim)
    share = sigmoid_of(second)
    y = first * share
    return Expected(y, np.abs(y) * (_APPROXIMATED + np.abs(second) * (1 - share)))


@operator("swiglu", "npu_swiglu swiglu")
def swiglu(input: Array, dim: int = -1) -> Expected:
    first, second = np.split(doubles(input), 2, axis=dim)
    y = first * sigmoid_of(first) * second
    return Expected(y, np.abs(y) * (_APPROXIMATED + np.abs(first)), narrow=np.abs(y))


# -- two arguments -----------------------------------------------------------------------------------------


def _pair(left: Any, right: Any) -> tuple[Array, Array, bool]:
    """Both operands in the type to calculate in, and whether they are integers."""
    one, other = np.asarray(left), np.asarray(right)
    whole = one.dtype.kind in "iub" and other.dtype.kind in "iub"
    if whole:
        _require_fitting(left, other)
        _require_fitting(right, one)
        return wide(one).astype(np.int64), wide(other).astype(np.int64), True
    return doubles(_beside(one, right)), doubles(_beside(other, left)), False


def _require_fitting(number: Any, values: Array) -> None:
    """Checks that a number fits the integer type of the tensor; kernels differ in what they make of others.

    Raises:
        CannotBindError: it is not.
    """
    if np.ndim(number) or not np.ndim(values) or values.dtype.kind not in "iu" or np.asarray(number).dtype.kind != "i":
        return
    limits = np.iinfo(values.dtype)
    if number is not None and not limits.min <= int(number) <= limits.max:
        raise CannotBindError("a number outside of the type of the tensor")


_OF_FLOAT32: Final = 1 << 24
"""Whole numbers up to which float32 holds all."""


def _beside(values: Array, other: Any) -> Array:
    """Returns whole numbers in the type of the fractions that they are combined with.

    Raises:
        CannotBindError: that is not known, and matters.
    """
    if values.dtype.kind not in "iu" or not values.ndim:
        return values
    if np.ndim(other) and is_float(other):
        return values.astype(other.dtype)
    if np.any(np.abs(values.astype(np.float64)) > _OF_FLOAT32):
        raise CannotBindError("whole numbers that are rounded before they are calculated with")
    return values


def _rounded_scalar(values: Float64, *operands: Any) -> Float64 | float:
    """Returns what rounding a Python number to the tensor's type may change; 0 where both operands are tensors."""
    scalar = any(not isinstance(each, np.ndarray) or each.ndim == 0 for each in operands)
    return np.where(np.isfinite(values), np.abs(values), 0.0) if scalar else 0.0


@operator("add", "add", split="elements", single=True)
def add(input: Any, other: Any, *, alpha: float = 1) -> Expected:
    one, two, whole = _pair(input, other)
    if one.dtype == np.int64 and np.asarray(input).dtype == np.bool_ and np.asarray(other).dtype == np.bool_:
        return Expected((one + two) > 0, exact=True)
    y = one + two if alpha == 1 else one - two if alpha == -1 else one + alpha * two
    if whole:
        return Expected(y, exact=True)

    def complete() -> Expected:
        # A Python number, and a factor, may be rounded to the type of the tensor first.
        rounded = np.abs(alpha * two) if alpha not in {1, -1} or np.ndim(other) == 0 else np.zeros(y.shape)
        if np.ndim(input) == 0:
            rounded = rounded + np.abs(one)
        return Expected(y, narrow=np.nan_to_num(rounded, posinf=0.0))

    return Expected(y, whole=complete)


@operator("sub", "sub subtract", split="elements", single=True)
def sub(input: Any, other: Any, *, alpha: float = 1) -> Expected:
    return add(input, other, alpha=-alpha)


@operator("sub", "rsub", split="elements", single=True)
def rsub(input: Any, other: Any, *, alpha: float = 1) -> Expected:
    return add(other, input, alpha=-alpha)


@operator("mul", "mul multiply", graphs="Mul", split="elements", single=True)
def mul(input: Any, other: Any) -> Expected:
    one, two, whole = _pair(input, other)
    y = one * two
    if whole:
        return Expected(y, exact=True)
    return Expected(y, whole=lambda: Expected(y, narrow=_rounded_scalar(y, input, other)))


@operator("div", "div", split="elements", single=True)
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Expected:
    if rounding_mode is not None:
        raise CannotBindError("division that rounds")
    one, two, _ = _pair(input, other)
    y = one / two
    return Expected(y, whole=lambda: Expected(y, narrow=_rounded_scalar(y, input, other)))


@operator("div", "rdiv", split="elements", single=True)
def rdiv(input: Any, other: Any) -> Expected:
    return div(other, input)


@operator("div", graphs="Div RealDiv", split="elements", single=True)
def graph_div(x: Any, y: Any) -> Expected:
    """Refuses integers, whose rounding differs between kernels."""
    if np.asarray(x).dtype.kind in "iub" and np.asarray(y).dtype.kind in "iub":
        raise CannotBindError("division of integers")
    return div(x, y)


operator("add", graphs="Add TensorAdd", split="elements", single=True)(lambda x, y: add(*_reshaped(x, y)))


operator("sub", graphs="Sub", split="elements", single=True)(lambda x, y: sub(*_reshaped(x, y)))


def _reshaped(x: Any, y: Any) -> tuple[Any, Any]:
    """Gives y the shape of x where the compiler removed a reshape between them."""
    try:
        np.broadcast_shapes(np.shape(x), np.shape(y))
    except ValueError:
        if np.size(x) == np.size(y):
            return x, np.reshape(y, np.shape(x))
        raise CannotBindError(f"shapes {np.shape(x)} and {np.shape(y)} do not fit") from None
    return x, y


@operator("add", graphs="AddN")
def graph_add_n(*inputs: Array) -> Expected:
    arrays = [wide(each) for each in inputs]
    value = np.sum(arrays, axis=0)
    if value.dtype.kind == "i":
        return Expected(value, exact=True)
    return Expected(value, np.sqrt(np.sum([each * each for each in arrays], axis=0)), len(arrays))


@operator("bias add", graphs="BiasAdd")
def graph_bias_add(x: Array, bias: Array, *_: Any, data_format: str = "NCHW", format: str = "") -> Expected:
    shape = np.ones(x.ndim, int)
    shape[-1 if "NHWC" in {data_format, format} or x.ndim == 2 else 1] = bias.size
    try:
        return Expected(doubles(x) + doubles(bias).reshape(shape))
    except ValueError as error:
        raise CannotBindError(f"shapes {x.shape} and {bias.shape} do not fit") from error


@operator("pow", "pow", graphs="Pow", split="elements")
def power(input: Any, exponent: Any = None, *, other: Any = None) -> Expected:
    raised = exponent if exponent is not None else other
    one, two, whole = _pair(input, raised)
    if whole:
        if np.any(np.asarray(raised) < 0):
            raise CannotBindError("integers to negative powers")
        return Expected(one**two, exact=True)
    one, two = doubles(one), doubles(two)
    y = np.power(one, two)
    moved = np.nan_to_num(np.abs(two * np.log(np.maximum(np.abs(one), 1e-300))))
    size = np.where(np.isfinite(y), np.abs(y), 0.0)
    rounded = size * moved if np.ndim(raised) == 0 or np.ndim(input) == 0 else 0.0  # a Python number
    return Expected(y, size * (moved + _APPROXIMATED), narrow=rounded)


operator("pow", "rpow", split="elements")(lambda input, other: power(other, input))


def _enter_extreme(kind: str, function: Callable[[Any, Any], Any], of_numbers: Callable[[Any, Any], Any]) -> None:
    @operator(kind, kind, split="elements", single=True)
    def extreme(input: Any, other: Any) -> Expected:
        one, two, whole = _pair(input, other)
        return Expected(function(one, two), exact=whole)

    @operator(kind, graphs=kind, split="elements")
    def in_graph(x: Any, y: Any) -> Expected:
        """Kernels differ in whether they propagate NaN."""
        found = extreme(x, y)
        return found if found.exact else Expected(found.value, either=of_numbers(doubles(x), doubles(y)))


_enter_extreme("maximum", np.maximum, np.fmax)
_enter_extreme("minimum", np.minimum, np.fmin)


def _enter_comparison(graphs: str, name: str, function: Callable[[Any, Any], Any]) -> None:
    @operator("comparison", f"{name} __{name}__", graphs=graphs, split="elements")
    def compare(input: Any, other: Any) -> Expected:
        one, two = np.asarray(input), np.asarray(other)
        # A Python number is compared in the type of the tensor.
        if np.ndim(other) == 0 and not isinstance(other, np.ndarray) and one.dtype.kind not in "iub":
            two = two.astype(one.dtype)
        left, right, _ = _pair(one, two)
        return Expected(np.asarray(function(left, right)), exact=True)


_enter_comparison("Equal", "eq", np.equal)
_enter_comparison("NotEqual", "ne", np.not_equal)
_enter_comparison("Less", "lt", np.less)
_enter_comparison("LessEqual", "le", np.less_equal)
_enter_comparison("Greater", "gt", np.greater)
_enter_comparison("GreaterEqual", "ge", np.greater_equal)


operator("logic", "__invert__ bitwise_not", split="elements")(lambda input: Expected(~input, exact=True))


operator("logic", "logical_not", split="elements")(lambda input: Expected(input == 0, exact=True))


operator("logic", "isnan", split="elements")(lambda input: Expected(np.isnan(doubles(input)), exact=True))


operator("logic", "isfinite", split="elements")(lambda input: Expected(np.isfinite(doubles(input)), exact=True))


# -- choices -----------------------------------------------------------------------------------------------


def _mask(array: Any) -> Mask:
    return np.asarray(array).astype(np.bool_, copy=False)


@operator("where", "where", graphs="Select", split="elements", single=True)
def where(condition: Array, input: Any = None, other: Any = None) -> Expected:
    if input is None or other is None:
        raise CannotBindError("places, not values")
    if np.asarray(condition).dtype != np.bool_ and np.asarray(input).dtype == np.bool_:
        return where(input, condition, other)  # the method: x.where(condition, other)
    one, two, whole = _pair(input, other)
    return Expected(np.where(_mask(condition), one, two), exact=whole)


@operator("gradient of maximum", graphs="MaximumGrad")
def graph_maximum_grad(x1: Any, x2: Any, grads: Array) -> Any:
    one, other, came = np.broadcast_arrays(doubles(x1), doubles(x2), doubles(grads))
    first = one >= other
    if np.shape(x1) != np.shape(grads) or np.shape(x2) != np.shape(grads) or np.any(np.isnan(one) | np.isnan(other)):
        raise CannotBindError("operands that were repeated, or NaN among them")
    return Expected(np.where(first, came, 0.0)), Expected(np.where(first, 0.0, came))


@operator("gradient of sqrt", graphs="SqrtGrad", split="elements")
def graph_sqrt_grad(y: Array, dy: Array) -> Expected:
    value = doubles(dy) / (2 * doubles(y))
    return Expected(value, np.where(np.isfinite(value), np.abs(value), 0.0))


@operator("masked fill", "masked_fill masked_fill_", split="elements", single=True)
def masked_fill(input: Array, mask: Array, value: Any) -> Expected:
    x = wide(input) if np.shape(mask) == np.shape(input) else np.array(np.broadcast_arrays(wide(input), mask)[0])
    x = x.copy() if x.dtype == np.bool_ else x
    np.copyto(x, np.asarray(value).astype(x.dtype), where=_mask(mask))
    return Expected(x, exact=x.dtype.kind != "f")


@operator("addcmul", "addcmul", split="elements")
def addcmul(input: Array, tensor1: Array, tensor2: Array, *, value: float = 1) -> Expected:
    one, added = doubles(input), value * doubles(tensor1) * doubles(tensor2)
    return Expected(one + added, np.abs(added))


@operator("addcdiv", "addcdiv", split="elements")
def addcdiv(input: Array, tensor1: Array, tensor2: Array, *, value: float = 1) -> Expected:
    one, added = doubles(input), value * doubles(tensor1) / doubles(tensor2)
    return Expected(one + added, 2 * np.abs(added))


@operator("lerp", "lerp")
def lerp(input: Array, end: Array, weight: Any) -> Expected:
    one, other, share = doubles(input), doubles(end), doubles(weight)
    return Expected(one + share * (other - one), np.abs(share) * (np.abs(other) + np.abs(one)) + np.abs(one))


@operator("dropout", "dropout alpha_dropout_", aten="NativeDropout", split="elements", single=True)
def dropout(input: Array, p: float = 0.5, training: bool = True) -> Expected:
    """Each element is zero or x / (1 - p), at random."""
    x = doubles(input)
    if (not training and training is not None) or p == 0:
        return Expected(x)
    kept = x / (1 - p) if p < 1 else x * 0
    return Expected(kept, or_zero=True, whole=lambda: Expected(kept, np.abs(kept), either=np.zeros_like(kept)))


@operator("relu", graphs="ReLU ReLUV2", split="elements")
def graph_relu(x: Array) -> Expected:
    """max(x, 0); kernels for CPU also turn NaN into zero."""
    values = doubles(x)
    return Expected(np.maximum(values, 0), either=np.fmax(values, 0))


@operator("relu6", graphs="ReLU6", split="elements")
def graph_relu6(x: Array) -> Expected:
    values = doubles(x)
    return Expected(np.clip(values, 0, 6), either=np.fmin(np.fmax(values, 0), 6))


@operator("log", graphs="Log", split="elements")
def graph_log(x: Array) -> Expected:
    """log(x); MindSpore 2.0's kernel for CPU is off by 1.4e-6 where the result is zero, and turns NaN into a number."""
    values = doubles(x)
    y = np.log(values)
    return Expected(y, np.where(np.isfinite(y), 16 * (1 + np.abs(y)), 0.0), ignored=np.isnan(values))


@operator("gradient of relu", graphs="ReluGrad", split="elements", single=True)
def graph_relu_grad(dy: Array, y: Array) -> Expected:
    came, out = doubles(dy), doubles(y)
    if came.shape != out.shape and came.size == out.size:
        came = came.reshape(out.shape)
    return Expected(np.where(out > 0, came, 0.0))
