"""What is computed for each kind of operator, and what explains a difference from it: faults below that are not seen.

The page about the audit is made of this table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tui_debugger.diagnose.recompute.table import ATEN, CALLS, GRADIENTS, GRAPHS, LINEAR_GRADIENT, MODULES, kinds


class Floor(NamedTuple):
    """A kind of operator.

    Attributes:
        computed: what it is held against.
        explained: what may explain a difference, in units of rounding; faults of six times that are named.
    """

    computed: str
    explained: str


_ROUNDED: Final = "u·|y|"
_APPROXIMATED: Final = "u·|y| + 2⁻²⁴·2·|y|"
_BY_ONE: Final = "u·|y| + 2⁻²⁴·(1 + |y|)"
_BY_INPUT: Final = "u·|y| + 2⁻²⁴·(|x| + |y|)"
_SUM: Final = "u·|y| + 2⁻²⁴·√K·√(Σx² + y²/4)"
_PRODUCT: Final = "u·|y| + 2⁻²⁴·√K·√(Σ(x·w)² + y²/4), u·√Σ(x·w)² more where wider inputs are rounded first"
_EXACT: Final = "0: equal to the last bit"
_NORMAL: Final = "u·(|y| + |y - shift|) + 2⁻²⁴·√(K/16)·(|x| + rms x)·|scale|/σ"
_LOSS: Final = "u·|y| twice + 2⁻²⁴·√K·√Σ(terms²)"
_UPDATE: Final = "u·|y| + 2⁻²⁴·(|y| + twice the size of the step)"


def _of(computed: str, explained: str, *names: str) -> dict[str, Floor]:
    return {name: Floor(computed, explained) for name in names}


FLOORS: Final[dict[str, Floor]] = {
    **_of("the function, by element", _ROUNDED, "abs", "neg", "sqrt", "square", "relu", "relu6", "maximum", "minimum"),
    **_of("the function, by element", _ROUNDED, "ceil", "floor", "round", "trunc", "sign", "clamp", "hardtanh"),
    **_of("the function, by element", _APPROXIMATED, "rsqrt", "reciprocal", "tanh", "atan", "log1p"),
    **_of("the function, by element", _BY_ONE, "log", "log2", "log10", "expm1", "erf", "erfc", "asin", "acos"),
    **_of("the function, by element", _BY_ONE, "logsigmoid", "hardsigmoid"),
    **_of("the function, by element", _BY_INPUT, "sin", "cos", "mish", "hardswish"),
    **_of("the function, by element", "u·|y| + 2⁻²⁴·(|x| + 2)·|y|", "exp", "exp2", "sinh", "cosh", "silu"),
    **_of("the function, by element", "u·|y| + 2⁻²⁴·(2 + |x|·(1 - y))·y", "sigmoid"),
    **_of("x·Φ(x), or the form with tanh", "u·|y| + 2⁻²⁴·(min(|x|, 8) + |y|)", "gelu"),
    **_of("x·sigmoid(1.702·x)", "u·|y| + 2⁻²⁴·(2 + 1.702·|x|)·|y|", "fast gelu"),
    **_of("log(1 + exp(βx))/β", "u·|y| + 2⁻²⁴·(|y| + 1/β)", "softplus"),
    **_of("x, or another function below zero", "u·|y| + 2⁻²⁴·(α + |y|)", "elu", "selu", "celu", "leaky relu"),
    **_of("x, or its share below zero", _ROUNDED, "prelu"),
    **_of("x moved towards zero; x above a threshold", "u·|y| + 2⁻²⁴·λ", "shrink", "threshold"),
    **_of("the function, in two steps", "u·|y| twice", "softsign", "tanh shrink"),
    **_of(
        "one half times a function of the other",
        "u·|y| (twice in swiglu) + 2⁻²⁴·(2 + |x|)·|y|",
        "glu",
        "swiglu",
    ),
    **_of(
        "one operation by element",
        "u·|y|, twice where a Python number is rounded first",
        "add",
        "sub",
        "mul",
        "div",
    ),
    **_of("one operation by element", _ROUNDED, "bias add"),
    **_of("powers by element", "u·|y| + 2⁻²⁴·(2 + |p·log x|)·|y|", "pow"),
    **_of("three operands by element", "u·|y| + 2⁻²⁴·2·(the sizes of the terms)", "addcmul", "addcdiv", "lerp"),
    **_of("the comparison; truth values", _EXACT, "comparison", "logic"),
    **_of("a choice by element", _ROUNDED, "where", "masked fill"),
    **_of("zero or x/(1 - p) by element: which one is chance", "u·|y| + 2⁻²⁴·|y|", "dropout"),
    **_of("the product of matrices, with its bias", _PRODUCT, "linear", "matmul", "addmm"),
    **_of("the gradient of a linear module's input, from that of its output", _PRODUCT, "gradient of linear"),
    **_of("the sum of products by letters", _PRODUCT, "einsum"),
    **_of("all products of two vectors", _ROUNDED, "outer"),
    **_of("the convolution, position by position of the kernel", _PRODUCT, "conv"),
    **_of("the gradient of the convolution's input or weight", _PRODUCT, "conv gradient"),
    **_of(
        "softmax(q·kᵀ·scale + mask)·v",
        "u·(|y| + √Σ(p·v)²) + 2⁻²⁴·(√K·√Σ(p·v)² + what √d·|q·k| of the scores moves)",
        "attention",
    ),
    **_of("the sum, mean or cumulated sum", _SUM, "sum", "mean", "cumsum"),
    **_of("the product of elements", "√K·u·|y|", "prod"),
    **_of("where the largest element is; of several any", _EXACT, "argmax"),
    **_of("the extreme element; indices are not looked at", _ROUNDED, "max", "min"),
    **_of(
        "variance or deviation, in two passes",
        "u·|y| + 2⁻²⁴·√K·(y + √Σ(x - m)²x²/K + mean x²/√K)",
        "var",
        "std",
    ),
    **_of("the norm", "u·|y| + 2⁻²⁴·√K·|y|, times 3 + 1/p + 2·|log x| where p is not 1 or 2", "norm"),
    **_of("exp(x) as shares of their sum", "u·y + 2⁻²⁴·(|x - max| + 3 + √K/4)·y", "softmax"),
    **_of("the logarithm of softmax", "u·(|y| + 1) + 2⁻²⁴·(|x - max| + log Σ + 1 + |x|)", "log softmax"),
    **_of("the logarithm of the sum of exponentials", _BY_ONE, "logsumexp"),
    **_of(
        "mean 0 and variance 1 along dimensions, scale and shift",
        _NORMAL,
        "layer norm",
        "rms norm",
        "group norm",
        "batch norm",
    ),
    **_of("the loss, by element or reduced", _LOSS, "cross entropy", "nll loss", "mse loss", "l1 loss"),
    **_of("the loss, by element or reduced", _LOSS, "smooth l1 loss", "bce loss", "bce loss with logits"),
    **_of("the loss by element", _LOSS, "sigmoid cross entropy"),
    **_of("the gradient, by element from what came in", _ROUNDED, "gradient of relu", "gradient of maximum"),
    **_of(
        "the gradient, by element from what came in",
        "u·|y| + 2⁻²⁴·(1 ... 6 times the sizes of the terms)",
        "gradient of sqrt",
        "gradient of sigmoid",
        "gradient of tanh",
        "gradient of sigmoid cross entropy",
    ),
    **_of(
        "the gradient, by element from what came in",
        "u·|y| + 2⁻²⁴·(1 ... 16 times the sizes of the terms)",
        "gradient of gelu",
        "gradient of silu",
        "gradient of softplus",
        "gradient of leaky relu",
    ),
    **_of("the gradient, between two values", _ROUNDED, "gradient of hardtanh"),
    **_of("what was kept gets its gradient, over 1 - p", "u·|y| twice", "gradient of dropout"),
    **_of("the same elements", _EXACT, "gradient of copy", "gradient of reshape"),
    **_of("the gradient of the loss", "u·|y| twice + 2⁻²⁴·2·|y|", "gradient of mse loss", "gradient of nll loss"),
    **_of("the sum of what came to every row", _SUM, "gradient of embedding"),
    **_of("dy - exp(y)·Σ dy", "u·|y| + 2⁻²⁴·√K·(|dy| + exp(y)·(3 + |y|)·|Σ dy|)", "gradient of log softmax"),
    **_of("the gradient of a module's own weight, from that of its output", _PRODUCT, "gradient of weight"),
    **_of("the sum of what came in, by channel", _SUM, "gradient of bias"),
    **_of(
        "gradients of input, scale and shift",
        "u·|y| + " + _NORMAL.partition("+ ")[2],
        "gradient of layer norm",
        "gradient of rms norm",
        "gradient of group norm",
        "gradient of batch norm",
    ),
    **_of(
        "all steps from a state of zeros: σ(f)·c + σ(i)·tanh(g), σ(o)·tanh(c)",
        "u·|y| + 2⁻²⁴·e, e what the terms of products, 4 for each σ and tanh, and earlier steps add up to",
        "lstm",
    ),
    **_of("(dy - Σ dy·y)·y", "u·|y| + 2⁻²⁴·√K·|y|·(|dy| + √Σ(dy·y)²)", "gradient of softmax"),
    **_of("the parameter and the states after the update", _UPDATE, "adam", "adamw", "momentum", "sgd"),
    **_of("the weight and the states after PyTorch's SGD, Adam or AdamW", _UPDATE, "optimizer"),
    **_of("the variable afterwards", "0, u·|y| where something is added", "assign"),
    **_of("the same elements in another place", _EXACT, "reshape", "transpose", "expand", "repeat", "flip", "roll"),
    **_of("the same elements in another place", _EXACT, "concatenate", "stack", "split", "index", "gather", "copy"),
    **_of("the same elements; zeros elsewhere", _EXACT, "triangle"),
    **_of("rows of a table", _EXACT, "embedding"),
    **_of("one value, converted to the type of the output", "0, or one step of the type", "fill"),
    **_of("the imaginary part with the other sign", _EXACT, "conj"),
    **_of("one value at the index, another elsewhere", "0, or one step of the type", "one hot"),
    **_of("converted to the type of the output", "u·|y|, of one element one step of the type", "cast"),
    **_of("the largest element of every window; indices are not looked at", _ROUNDED, "max pool"),
    **_of("sum, mean, largest or smallest of the inputs of all ranks", _SUM, "all reduce"),
}
"""Every kind of operator of the table."""


def operator_names(kind: str) -> list[str]:
    """The operators of a kind, as frameworks call them, without case and underscores."""
    found = [name for table in (CALLS, GRAPHS, MODULES, ATEN) for name, each in table.items() if each.kind == kind]
    found += [f"{name}Grad" for name, each in GRADIENTS.items() if each == kind]
    own = {LINEAR_GRADIENT: "linearbackward"}.get(kind, kind.replace(" ", ""))
    return list(dict.fromkeys(name.lower() for name in found)) or [own]


def floor_lines() -> list[str]:
    """The list of the manual: kind, operators, what is computed, what explains a difference."""
    lines = []
    for kind in kinds():
        names = ", ".join(operator_names(kind))
        lines.append(f"- **{kind}** ({names}): {FLOORS[kind].computed}. Rounding explains `{FLOORS[kind].explained}`")
    return lines
