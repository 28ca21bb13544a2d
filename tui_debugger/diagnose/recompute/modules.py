"""PyTorch modules that are computed from their recorded attributes, which only our own client records."""

# ruff: noqa: A002, PLR0917 - arguments are the attributes of the modules, by name

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.diagnose.recompute import data_movement, elementwise, reductions
from tui_debugger.diagnose.recompute.convolutions import conv
from tui_debugger.diagnose.recompute.elementwise import sigmoid_of
from tui_debugger.diagnose.recompute.judge import Expected, doubles
from tui_debugger.diagnose.recompute.table import CannotBindError, operator

operator("dropout", modules="Dropout", recorded=("p", "training"), split="elements", single=True)(elementwise.dropout)
operator("leaky relu", modules="LeakyReLU", recorded=("negative_slope",), split="elements")(elementwise.leaky_relu)
operator("elu", modules="ELU", recorded=("alpha",), split="elements")(elementwise.elu)
operator("softplus", modules="Softplus", recorded=("beta", "threshold"), split="elements")(elementwise.softplus)
operator("hardtanh", modules="Hardtanh", recorded=("min_val", "max_val"), split="elements")(elementwise.hardtanh)
operator("reshape", modules="Flatten", recorded=("start_dim", "end_dim"))(data_movement.flatten)
operator("max pool", modules="MaxPool2d", recorded=("kernel_size", "stride", "padding", "dilation", "ceil_mode"))(
    data_movement.max_pool2d
)
operator("embedding", modules="Embedding", recorded=("weight",))(data_movement.embedding)


@operator(
    "conv",
    modules="Conv1d Conv2d Conv3d",
    recorded=("weight", "stride", "padding", "dilation", "groups", "padding_mode"),
)
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
    if padding_mode != "zeros":
        raise CannotBindError("padded with something else than zeros")
    return conv(input, weight, bias, stride, padding, dilation, groups)


@operator("batch norm", modules="BatchNorm1d BatchNorm2d BatchNorm3d", recorded=("eps", "training"))
def batch_norm(input: Array, weight: Any = None, bias: Any = None, eps: Any = None, training: Any = None) -> Expected:
    if not training:
        raise CannotBindError("with running means")
    return reductions.batch_norm(input, None, None, weight, bias, True, 0.1, eps)


_FASTEST = 4.0
"""Units of rounding by which a fast sigmoid or tanh may be off."""
_Sized = tuple[Float64, Float64]
"""Numbers, and how far rounding may have moved each, in units of rounding."""


@operator("lstm", modules="LSTM", recorded=("num_layers", "batch_first", "dropout", "bidirectional"))
def lstm(
    input: Array,
    *,
    num_layers: Any = None,
    batch_first: Any = None,
    dropout: Any = None,
    bidirectional: Any = None,
    proj_size: Any = None,
    training: Any = None,
    **weights: Any,
) -> Any:
    """The outputs of all steps, and the last hidden and cell states; assumes an initial state of zeros."""
    for name in weights:
        if not name.startswith(("weight_", "bias_")):
            raise CannotBindError(f"argument not known: {name}")
    if proj_size or (num_layers > 1 and dropout and training) or input.ndim != 3 or input.dtype.itemsize < 4:
        raise CannotBindError("with dropout between its layers, projections, no batch, or of 16 bits")
    values = doubles(input)
    data: _Sized = np.moveaxis(values, 1, 0) if batch_first else values, np.zeros(())
    left: list[tuple[_Sized, _Sized]] = []
    for layer in range(num_layers):
        ways = [_ran(data, weights, f"l{layer}{end}") for end in ("", "_reverse")[: 1 + bool(bidirectional)]]
        left += [(hidden, cell) for _, hidden, cell in ways]
        values, off = (np.concatenate([out[at] for out, _, _ in ways], -1) for at in (0, 1))
        data = values, off
    made = [np.moveaxis(each, 0, 1) if batch_first else each for each in data]
    states = [[np.stack([each[state][at] for each in left]) for at in (0, 1)] for state in (0, 1)]
    return tuple(Expected(value, size) for value, size in (made, *states))


def _ran(data: _Sized, weights: Mapping[str, Any], end: str) -> tuple[_Sized, _Sized, _Sized]:
    """Returns the outputs of one direction of a layer at each step, and its last hidden and cell state."""
    names = [f"weight_{kind}_{end}" for kind in ("ih", "hh")]
    for name in names:
        if weights.get(name) is None:
            raise CannotBindError(f"its {name} was not recorded")
    into, around = (doubles(weights[name]).T for name in names)
    given = [weights.get(f"bias_{kind}_{end}") for kind in ("ih", "hh")]
    shifts = [doubles(each) for each in given if each is not None]
    shape = data[0].shape[1], len(around)
    steps = range(len(data[0]))
    h, c, off_h, off_c = (np.zeros(shape) for _ in range(4))
    out, off = np.zeros((len(steps), *shape)), np.zeros((len(steps), *shape))
    off_x = np.broadcast_to(data[1], data[0].shape)
    for step in reversed(steps) if end.endswith("reverse") else steps:
        x = data[0][step]
        sums = x @ into + h @ around + sum(shifts)
        wide = (np.abs(x) + off_x[step]) @ np.abs(into) + (np.abs(h) + off_h) @ np.abs(around)
        wide = wide + sum(np.abs(each) for each in shifts)
        i, f, g, o = np.split(sums, 4, -1)
        off_i, off_f, off_g, off_o = np.split(wide, 4, -1)
        i, f, g, o = sigmoid_of(i), sigmoid_of(f), np.tanh(g), sigmoid_of(o)
        off_i, off_f, off_g, off_o = (each + _FASTEST for each in (off_i / 4, off_f / 4, off_g, off_o / 4))
        off_c = off_f * np.abs(c) + f * off_c + off_i * np.abs(g) + i * off_g + np.abs(f * c) + np.abs(i * g)
        c = f * c + i * g
        h = o * np.tanh(c)
        off_h = off_o * np.abs(np.tanh(c)) + o * (off_c + _FASTEST) + np.abs(h)
        out[step], off[step] = h, off_h
    return (out, off), (h, off_h), (c, off_c)
