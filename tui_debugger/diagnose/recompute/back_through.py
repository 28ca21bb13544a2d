"""Gradients that came back through PyTorch's own modules, as our client records them at level "module".

The gradients of a module's output and of its weights are recorded separately. A rule applies where one module alone
read a tensor: the class of the module tells what it makes of the gradient of its output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute import aten, products, reductions
from tui_debugger.diagnose.recompute.convolutions import graph_conv_filter, graph_conv_input, symmetric
from tui_debugger.diagnose.recompute.judge import Expected, doubles
from tui_debugger.diagnose.recompute.reader import GRADIENTS_SCOPE
from tui_debugger.diagnose.recompute.table import GRADIENTS, CannotBindError
from tui_debugger.graph.categories import OPTIMIZER_UPDATE, gradient_of
from tui_debugger.graph.table import PARAMETER, NodeTable, real_consumers, real_inputs

_OF_OUTPUT: Final = re.compile(r"(.*)Grad((?:#\d+)*)")


def forward_name(gradient: str) -> str:
    """The name of the forward node whose output's gradient the node is; empty for other nodes."""
    of_backward = gradient.startswith(GRADIENTS_SCOPE)
    match = _OF_OUTPUT.fullmatch(gradient.removeprefix(GRADIENTS_SCOPE)) if of_backward else None
    return match[1] + match[2] if match is not None else ""


def parameter_of(nodes: NodeTable, row: int) -> int:
    """The row of the weight whose gradient the node is; -1 for other nodes."""
    return nodes.memo(_weights).get(nodes.names[row], -1)


def _weights(nodes: NodeTable) -> dict[str, int]:
    at = nodes.types.index(PARAMETER) if PARAMETER in nodes.types else -1
    rows = np.flatnonzero(nodes.type_id == at).tolist()
    named = ((gradient_of(nodes.names[row]), row) for row in rows)
    return {each: row for name, row in named for each in (name, f"{name}/local")}


def only_reader(nodes: NodeTable, row: int) -> int:
    """The only forward node that reads a tensor; CannotBindError where there is none, or several."""
    readers = {
        reader
        for reader, _ in real_consumers(nodes, row)
        if not nodes.names[reader].startswith(GRADIENTS_SCOPE) and nodes.op_type(reader) != OPTIMIZER_UPDATE
    }
    if len(readers) != 1:
        raise CannotBindError(f"{len(readers)} nodes read what it is the gradient of, not one")
    return readers.pop()


def gradient_into(nodes: NodeTable, row: int, reader: int) -> int:
    """The row of the gradient of ``reader``'s output; CannotBindError unless ``row`` was made of it alone."""
    came = {each for each, _ in real_inputs(nodes, row) if each >= 0 and nodes.names[each].startswith(GRADIENTS_SCOPE)}
    if len(came) != 1 or forward_name(nodes.names[found := came.pop()]) != nodes.names[reader]:
        raise CannotBindError("it was not made of the gradient of one module's output alone")
    return found


@dataclass(frozen=True, slots=True)
class Ran:
    """A module that ran, with the gradient that ``came`` to its output.

    ``of`` has its input, output and weights by name; ``settings`` has the values of its attributes.
    """

    came: Array
    of: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __getitem__(self, name: str) -> Array:
        """A tensor of the module; CannotBindError where it was not recorded."""
        found = self.of.get(name)
        if not isinstance(found, np.ndarray):
            raise CannotBindError(f"its {name} was not recorded")
        return found

    @property
    def weight(self) -> Array | None:
        """Its weight; None for a module that has none."""
        return self["weight"] if "weight" in self.of else None

    def setting(self, name: str) -> Any:
        """The value of an attribute; CannotBindError where it was not recorded."""
        if name not in self.settings:
            raise CannotBindError(f"its {name} was not recorded")
        return self.settings[name]


_Rule = Callable[[Ran], Any]
INPUTS: Final[dict[str, _Rule]] = {}
"""The gradient of a module's input, by class."""
WEIGHTS: Final[dict[tuple[str, str], _Rule]] = {}
"""The gradient of a module's own weight, by class and name of the weight."""


def _input(kind: str, *classes: str) -> Callable[[_Rule], _Rule]:
    def enter(rule: _Rule) -> _Rule:
        INPUTS.update(dict.fromkeys(classes, rule))
        GRADIENTS.update(dict.fromkeys(classes, f"gradient of {kind}"))
        return rule

    return enter


_input("linear", "Linear")(lambda ran: products.product_of(ran.came, ran["weight"]))
_input("relu", "ReLU")(lambda ran: aten.threshold_backward(ran.came, ran["output"], 0.0))
_input("gelu", "GELU")(lambda ran: aten.gelu_backward(ran.came, ran["input"], ran.setting("approximate")))
_input("silu", "SiLU")(lambda ran: aten.silu_backward(ran.came, ran["input"]))
_input("sigmoid", "Sigmoid")(lambda ran: reductions.sigmoid_grad(ran["output"], ran.came))
_input("tanh", "Tanh")(lambda ran: reductions.tanh_grad(ran["output"], ran.came))
_input("softmax", "Softmax")(lambda ran: reductions.softmax_grad(ran["output"], ran.came, ran.setting("dim")))
_input("log softmax", "LogSoftmax")(lambda ran: aten.log_softmax_backward(ran.came, ran["output"], ran.setting("dim")))
_input("leaky relu", "LeakyReLU")(
    lambda ran: aten.leaky_relu_backward(ran.came, ran["input"], ran.setting("negative_slope"))
)
_input("softplus", "Softplus")(
    lambda ran: aten.softplus_backward(ran.came, ran["input"], ran.setting("beta"), ran.setting("threshold"))
)
_input("copy", "Identity")(lambda ran: Expected(ran.came, exact=True))
_input("reshape", "Flatten", "Unflatten")(lambda ran: Expected(ran.came.reshape(ran["input"].shape), exact=True))
_input("layer norm", "LayerNorm")(lambda ran: _of_layer_norm(ran)[0])
_input("batch norm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d")(lambda ran: _of_batch_norm(ran)[0])
_input("rms norm", "RMSNorm")(lambda ran: _of_rms_norm(ran)[0])
_input("group norm", "GroupNorm")(lambda ran: _of_group_norm(ran)[0])
_input("conv", "Conv2d")(
    lambda ran: graph_conv_input(ran.came, ran["weight"], tuple(ran["input"].shape), **_convolved(ran))
)
GRADIENTS["Conv2d"] = "conv gradient"


@_input("dropout", "Dropout")
def _dropout(ran: Ran) -> Expected:
    """The gradient of kept elements, scaled; where the input is zero, the output does not tell whether it was kept."""
    came, share = doubles(ran.came), float(ran.setting("p"))
    if not ran.setting("training") or not share:
        return Expected(came)
    scaled = came / (1 - share) if share < 1 else came * 0
    value = np.where(ran["output"] != 0, scaled, 0.0)
    return Expected(value, narrow=np.abs(scaled), either=np.where(ran["input"] == 0, scaled - value, value))


def _of_layer_norm(ran: Ran, *, centred: bool = True) -> reductions.NormGradients:
    given, eps = ran["input"], ran.setting("eps")
    eps = float(np.finfo(given.dtype).eps) if eps is None else eps  # PyTorch's default for RMS norms
    dims = len(ran.setting("normalized_shape"))
    return reductions.layer_norm_backward(ran.came, given, dims, ran.weight, eps, centred=centred)


def _of_rms_norm(ran: Ran) -> reductions.NormGradients:
    return _of_layer_norm(ran, centred=False)


def _of_group_norm(ran: Ran) -> reductions.NormGradients:
    given = ran["input"]
    batch, channels, groups = given.shape[0], given.shape[1], int(ran.setting("num_groups"))
    parts = given.reshape(batch, groups, -1)
    scale: Any = 1.0
    if ran.weight is not None:
        of_channel = doubles(ran.weight).reshape(1, -1, *[1] * (given.ndim - 2))
        scale = np.broadcast_to(of_channel, given.shape).reshape(parts.shape)
    found = reductions.normalised_backward(ran.came.reshape(parts.shape), parts, scale, ran.setting("eps"), (2,), (0,))
    by_input, by_scale, by_shift = (each.complete() for each in found)
    return by_input.reshaped(given.shape), _by_channel(by_scale, channels), _by_channel(by_shift, channels)


def _by_channel(found: Expected, channels: int) -> Expected:
    value, size = doubles(found.value).reshape(channels, -1), np.broadcast_to(found.size, np.shape(found.value))
    terms = found.terms * value.shape[1]
    return Expected(value.sum(1), np.sqrt((size.reshape(channels, -1) ** 2).sum(1)), terms)


def _of_batch_norm(ran: Ran) -> reductions.NormGradients:
    if not ran.setting("training"):
        raise CannotBindError("with running means")
    return reductions.batch_norm_backward(ran.came, ran["input"], ran.weight, ran.setting("eps"))


def _convolved(ran: Ran) -> dict[str, Any]:
    around = ran.setting("padding")
    if ran.setting("groups") != 1 or ran.setting("padding_mode") != "zeros" or isinstance(around, str):
        raise CannotBindError("in groups, or padding that is no number of zeros")
    return symmetric(ran.setting("stride"), around, ran.setting("dilation"))


def _rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])


def _embedding(ran: Ran) -> Expected:
    if ran.setting("max_norm") is not None or ran.setting("sparse"):
        raise CannotBindError("rows that are scaled, or sparse")
    padding = ran.setting("padding_idx")
    rows = len(ran["weight"])
    frequency = ran.setting("scale_grad_by_freq")
    return aten.embedding_backward(ran.came, ran["input"], rows, -1 if padding is None else padding, frequency)


WEIGHTS["Linear", "weight"] = lambda ran: products.product_of(_rows(ran.came).T, _rows(ran["input"]))
WEIGHTS["Linear", "bias"] = lambda ran: reductions.total(doubles(_rows(ran.came)), (0,), False)
WEIGHTS["Conv2d", "weight"] = lambda ran: graph_conv_filter(ran.came, ran["input"], **_convolved(ran)).function(
    ran["weight"].shape
)
WEIGHTS["Conv2d", "bias"] = lambda ran: reductions.total(doubles(ran.came), (0, 2, 3), False)
WEIGHTS["Embedding", "weight"] = _embedding


def _enter_norms(classes: Iterable[str], gradients: Callable[[Ran], Sequence[Expected]]) -> None:
    for each in classes:
        WEIGHTS[each, "weight"] = lambda ran: gradients(ran)[1]
        WEIGHTS[each, "bias"] = lambda ran: gradients(ran)[2]


_enter_norms(("LayerNorm",), _of_layer_norm)
_enter_norms(("RMSNorm",), _of_rms_norm)
_enter_norms(("GroupNorm",), _of_group_norm)
_enter_norms(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d"), _of_batch_norm)
