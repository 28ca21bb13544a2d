"""The watchpoints a person gets offered before knowing what to look for.

Conditions and names are MindInsight's, with two more that it could never offer (its group of trainable weights was
always empty): weights that do not change, and weights that change too little. The set has to be silent on a
healthy run, so three groups of nodes are narrower than there, and one value is smaller:

* Change and initialization watch weights without biases. A bias (a LayerNorm's beta) starts at zero, so its first
  relative changes are arbitrarily large; one in front of a softmax or a normalization, such as the bias of attention
  keys, has no gradient at all by mathematics and never changes. The matrix beside a frozen bias is frozen too.
* Vanishing gradients and all-zero tensors leave out the gradients of biases, for the same reason.
* All-zero tensors are looked for among weights, gradients and activations only. Fresh optimizer state, a learning
  rate of 0, masks, labels and ``0 * x`` are zero in healthy runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.conditions import CONDITIONS, Value, validate
from tui_debugger.model import TRAINABLE, Category, NodeKind, NodeSelection, NodeSelector, Watchpoint

BIAS: Final = r"(^|[._/])(bias|beta|bias_[ih]h\w*)$"
"""Parameter names that are biases: of MindSpore's and PyTorch's layers, LayerNorm's beta, recurrent layers."""
VANISHED: Final = 1e-12
"""Mean magnitude below which a gradient is lost."""
BIAS_GRADIENT: Final = "BiasAddGrad"
_BIAS_GRADIENTS: Final = (NodeSelector(NodeKind.REGEX, BIAS), NodeSelector(NodeKind.TYPE, BIAS_GRADIENT))
"""By name as well: where processes sum their gradients up the type is that of the collective operation."""
RECOMMENDED: Final = "recommend_"
"""How the names of recommended watchpoints begin, in MindInsight as here."""

_SATURATION: Final[dict[str, dict[str, Value]]] = {
    "tanh": {
        "range_start_inclusive": math.tanh(-8.8),
        "range_end_inclusive": math.tanh(8.8),
        "range_percentage_lt": 0.1,
    },
    "sigmoid": {
        "range_start_inclusive": 1 / (1 + math.exp(16.2)),
        "range_end_inclusive": 1 / (1 + math.exp(-16.2)),
        "range_percentage_lt": 0.1,
    },
    "relu": {"range_start_inclusive": -1.0, "range_end_inclusive": 0.0, "range_percentage_gt": 99.9},
}
_FAMILIES: Final = {
    "tanh": re.compile(r"(?i:tanh)|.*[a-z]TanhFusion"),
    "sigmoid": re.compile(r"(?i:sigmoid)|.*[a-z]SigmoidFusion"),
    "relu": re.compile(r"(?i:relu|reluv2)|.*[a-z](?<!Leaky)(Relu|ReLU)Fusion|.*Add(Relu|ReLU)"),
}
"""Operator types of one activation, alone or at the end of a fused operator. HSigmoid, LeakyReLU ... are others."""


def activation_family(op_type: str) -> str:
    """``tanh``, ``sigmoid`` or ``relu`` for an operator that is, or ends with, that activation; else empty."""
    return next((family for family, pattern in _FAMILIES.items() if pattern.fullmatch(op_type)), "")


def recommended(category: npt.NDArray[np.uint8], types: Sequence[str], *, device: str = "") -> tuple[Watchpoint, ...]:
    """The recommended watchpoints for a run with these nodes, each only when it covers some node.

    Args:
        category: ``model.Category`` values, one per node.
        types: operator type names, one per node.
        device: ``Ascend``, ``GPU``, ``CPU`` or empty: conditions that never work there are left out.

    Returns:
        Watchpoints with id 0, in MindInsight's order.
    """
    present = {Category(value) for value in np.unique(category).tolist()}
    gradient = int(Category.GRADIENT)
    forward = {name for name, value in zip(types, category.tolist(), strict=True) if value != gradient}
    return tuple(
        watchpoint
        for watchpoint in (*_by_category(present), *_by_activation(forward))
        if CONDITIONS[watchpoint.condition].available(device or "unknown")
    )


def _by_category(present: set[Category]) -> Iterator[Watchpoint]:
    if present & TRAINABLE:
        weights = NodeSelection((_category("trainable"),), (NodeSelector(NodeKind.REGEX, BIAS),))
        yield _watch("weight_initialization", weights, zero_percentage_ge=100)
        yield _watch("weight_change_too_large", weights, abs_mean_update_ratio_gt=1)
        yield _watch("weight_not_changed", weights, rtol=1e-5, atol=1e-8)
        yield _watch("weight_change_too_small", weights, abs_mean_update_ratio_lt=1e-4)
    if Category.GRADIENT in present:
        gradients = NodeSelection((_category("gradient"),), _BIAS_GRADIENTS)
        yield _watch("gradient_vanishing", gradients, abs_mean_lt=VANISHED)
    if present - {Category.CONSTANT}:
        everything = NodeSelection((_category("tensor"),))
        yield _watch("operator_overflow", everything)
        yield _watch("tensor_overflow", everything)
    signals = ["trainable"] if present & TRAINABLE else []
    signals += [c.name.lower() for c in (Category.GRADIENT, Category.ACTIVATION) if c in present]
    if signals:
        include = tuple(_category(name) for name in signals)
        yield _watch("tensor_all_zero", NodeSelection(include, _BIAS_GRADIENTS), zero_percentage_ge=100)


def _by_activation(types: Iterable[str]) -> Iterator[Watchpoint]:
    """Saturated or dead activations, fused operators such as ``MatMulBiasAddReluFusion`` included."""
    for family, pattern in _FAMILIES.items():
        members = sorted({name for name in types if pattern.fullmatch(name)})
        if members:
            include = tuple(NodeSelector(NodeKind.TYPE, name) for name in members)
            selection = NodeSelection(include, (_category("gradient"),))
            yield _watch("activation_range", selection, f"{family}_activation_range", **_SATURATION[family])


def _category(name: str) -> NodeSelector:
    return NodeSelector(NodeKind.CATEGORY, name)


def _watch(condition: str, selection: NodeSelection, name: str = "", /, **params: Value) -> Watchpoint:
    return Watchpoint(
        0, condition, validate(condition, params), selection, name=f"{RECOMMENDED}{name or condition}_watchpoint"
    )
