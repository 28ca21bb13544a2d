"""Modules of PyTorch that are computed from their attributes, where these were recorded: our own client does."""

# ruff: noqa: A002, PLR0917 - arguments are the attributes of the modules, by name

from __future__ import annotations

from typing import Any

from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute import data_movement, elementwise, reductions
from tui_debugger.diagnose.recompute.convolutions import conv
from tui_debugger.diagnose.recompute.judge import Expected
from tui_debugger.diagnose.recompute.table import CannotBindError, module


def _known(**settings: Any) -> None:
    """Raises where an attribute is not known."""
    for name, value in settings.items():
        if value is None:
            raise CannotBindError(f"its {name} was not recorded")


@module("dropout", "Dropout", split="elements", single=True)
def dropout(input: Array, p: Any = None, training: Any = None) -> Expected:
    """Every element is zero, or x / (1 - p); as it was where it does not train."""
    _known(p=p, training=training)
    return elementwise.dropout(input, p, training)


@module("log softmax", "LogSoftmax")
def log_softmax(input: Array, dim: Any = None) -> Expected:
    """The logarithm of softmax."""
    _known(dim=dim)
    return reductions.log_softmax(input, dim)


@module("leaky relu", "LeakyReLU", split="elements")
def leaky_relu(input: Array, negative_slope: Any = None) -> Expected:
    """x, or its share below zero."""
    _known(negative_slope=negative_slope)
    return elementwise.leaky_relu(input, negative_slope)


@module("elu", "ELU", split="elements")
def elu(input: Array, alpha: Any = None) -> Expected:
    """Alpha (exp(x) - 1) below zero."""
    _known(alpha=alpha)
    return elementwise.elu(input, alpha)


@module("softplus", "Softplus", split="elements")
def softplus(input: Array, beta: Any = None, threshold: Any = None) -> Expected:
    """log(1 + exp(beta x)) / beta."""
    _known(beta=beta, threshold=threshold)
    return elementwise.softplus(input, beta, threshold)


@module("hardtanh", "Hardtanh", split="elements")
def hardtanh(input: Array, min_val: Any = None, max_val: Any = None) -> Expected:
    """Cut off at two values."""
    _known(min_val=min_val, max_val=max_val)
    return elementwise.hardtanh(input, min_val, max_val)


@module("reshape", "Flatten")
def flatten(input: Array, start_dim: Any = None, end_dim: Any = None) -> Expected:
    """Several dimensions in one."""
    _known(start_dim=start_dim, end_dim=end_dim)
    return data_movement.flatten(input, start_dim, end_dim)


@module("max pool", "MaxPool2d")
def max_pool(
    input: Array,
    kernel_size: Any = None,
    stride: Any = None,
    padding: Any = None,
    dilation: Any = None,
    ceil_mode: Any = None,
    return_indices: Any = None,
) -> Any:
    """The largest element in a window."""
    _known(kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)
    return data_movement.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, bool(return_indices))


@module("conv", "Conv1d", "Conv2d", "Conv3d")
def convolution(
    input: Array,
    weight: Any = None,
    bias: Any = None,
    stride: Any = None,
    padding: Any = None,
    dilation: Any = None,
    groups: Any = None,
    padding_mode: Any = None,
) -> Any:
    """A convolution of what is padded with zeros."""
    _known(weight=weight, stride=stride, padding=padding, dilation=dilation, groups=groups, padding_mode=padding_mode)
    if padding_mode != "zeros":
        raise CannotBindError("padded with something else than zeros")
    return conv(input, weight, bias, stride, padding, dilation, groups)


@module("batch norm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
def batch_norm(input: Array, weight: Any = None, bias: Any = None, eps: Any = None, training: Any = None) -> Expected:
    """Normalised over the batch."""
    _known(eps=eps, training=training)
    if not training:
        raise CannotBindError("with running means")
    return reductions.batch_norm(input, None, None, weight, bias, True, 0.1, eps)


@module("embedding", "Embedding")
def embedding(input: Array, weight: Any = None, max_norm: Any = None) -> Expected:
    """Rows of a table."""
    _known(weight=weight)
    return data_movement.embedding(input, weight, max_norm=max_norm)
