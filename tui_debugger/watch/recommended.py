"""The watchpoints that are recommended before a person knows what to look for.

The set must be silent on a healthy run and name the cause on a sick one: tests/zoo trains some twenty networks of each
kind under it. Deliberate differences to MindInsight's set, each measured on the zoo or on recorded dumps:

* No ``weight_initialization``: some matrices begin as 0 on purpose (LoRA's B). ``weight_not_changed`` finds stuck ones.
* ``weight_change_too_large``: mean |change| / (mean |weight| + 0.1). With MindInsight's 1e-9, weights that begin near 0
  exceed any limit in healthy steps (LoRA's B under AdamW at 1e-3: 190,000, then up to 2.2). Learning rates of 1e3 give
  40 to 500 under SGD and 4,000 under Adam. Not for L-BFGS: the curvature decides its steps (1.9 in a healthy fit).
* ``weight_not_changed`` is bitwise: with rtol 1e-5 and atol 1e-8 a GPT-2 fine-tuned at 2e-5 with warm-up gave 15
  findings in its first step (gains of LayerNorms are 1, and move by 5e-6). MindInsight could never offer it.
* No ``weight_change_too_small``: fine-tunes, warm-ups and ends of schedules gave findings in every step. * Change
watches no biases: in front of a softmax or normalization (attention keys, a LayerNorm's beta) a bias has no
  gradient by mathematics. The matrix beside a frozen bias is frozen, too.
* Vanishing and all-zero gradients are looked for in ``weight_gradient`` without biases: in the rest of the backward
  pass masks, constants and untaken branches are 0 in healthy steps. The limit is 1e-12, not 1e-9: gradients of 1e-10
  train well under Adam. Of other tensors only activations are checked for all zeros.
* In live PyTorch trainings "not changed" and "zero" count from the third step in a row on (``in_a_row``): a warm-up
  from 0, and LoRA's A until B has moved, take one or two. Steps in which nothing was to happen do not count (see
  ``torch.training.Expectation``). A dump is judged step by step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tui_debugger.arrays import UInt8
from tui_debugger.graph.categories import BIAS_ADD_GRADIENT, STEP_FACTOR
from tui_debugger.model import (
    BIAS,
    SEARCHED_WEIGHT,
    TRAINABLE,
    WEIGHT_GRADIENT,
    Category,
    NodeKind,
    NodeSelection,
    NodeSelector,
    Watchpoint,
)
from tui_debugger.watch.condition_table import CONDITIONS, Value, validate
from tui_debugger.watch.text import parse_watch

VANISHED: Final = 1e-12
"""Mean magnitude below which a gradient is lost."""
GAIN: Final = 0.1
"""Added to the mean magnitude of a weight that its change is divided by."""
PATIENCE: Final = 3
"""Steps in a row in which "not changed" or "zero" must hold."""
_BIAS_GRADIENTS: Final = (NodeSelector(NodeKind.REGEX, BIAS), NodeSelector(NodeKind.TYPE, BIAS_ADD_GRADIENT))
"""By name as well, because summed gradients have the type of the collective operation."""
RECOMMENDED: Final = "recommend_"
"""Prefix of the names of recommended watchpoints, as in MindInsight."""
_SUFFIX: Final = "_watchpoint"
"""Suffix of these names."""

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
"""Operator types of an activation, alone or at the end of a fused operator; HSigmoid, LeakyReLU ... are others."""


def activation_family(op_type: str) -> str:
    """Returns ``tanh``, ``sigmoid`` or ``relu`` for an operator that is, or ends with, that activation; else empty."""
    return next((family for family, pattern in _FAMILIES.items() if pattern.fullmatch(op_type)), "")


def activation_ranges(op_type: str) -> Iterator[Watchpoint]:
    return _by_activation([op_type])


@dataclass(frozen=True, slots=True)
class RecommendedChanges:
    """A person's changes to the recommended watchpoints, by short name (see ``built_in``).

    ``also`` has watchpoints to add, as text (``watch.text``).
    """

    left_out: frozenset[str] = frozenset()
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.left_out or self.params or self.also)

    def changed(self, watchpoint: Watchpoint) -> Watchpoint:
        """Returns a watchpoint with its chosen parameters, or raises BadWatchpointError for invalid ones."""
        chosen = self.params.get(short_name(watchpoint))
        if not chosen:
            return watchpoint
        return replace(watchpoint, params=validate(watchpoint.condition, {**dict(watchpoint.params), **chosen}))

    def apply(self, watchpoints: Iterable[Watchpoint]) -> Iterator[Watchpoint]:
        """Yields the wanted watchpoints, changed, then the added ones; or raises BadWatchpointError."""
        for watchpoint in watchpoints:
            if short_name(watchpoint) not in self.left_out:
                yield self.changed(watchpoint)
        for text in self.also:
            condition, params, selection = parse_watch(text)
            yield Watchpoint(0, condition, params, selection, name=f"{RECOMMENDED}{condition}{_SUFFIX}")


NO_CHANGES: Final = RecommendedChanges()


def short_name(watchpoint: Watchpoint) -> str:
    """Returns a recommended watchpoint's name without prefix and suffix: ``tensor_overflow``."""
    return watchpoint.name.removeprefix(RECOMMENDED).removesuffix(_SUFFIX)


def built_in() -> dict[str, Watchpoint]:
    """Returns every watchpoint that may be recommended, by its short name."""
    every = (*_by_category(set(Category), searched=False), *_by_activation(_FAMILIES))
    return {short_name(watchpoint): watchpoint for watchpoint in every}


def recommended(
    category: UInt8, types: Sequence[str], *, device: str = "", changes: RecommendedChanges = NO_CHANGES
) -> tuple[Watchpoint, ...]:
    """Returns the watchpoints (id 0) for a run with these nodes, in MindInsight's order, each only if it covers a node.

    ``category`` and ``types`` have an entry for each node. Conditions that never work on ``device`` are left out.
    """
    present = {Category(value) for value in np.unique(category).tolist()}
    gradient = int(Category.GRADIENT)
    forward = {name for name, value in zip(types, category.tolist(), strict=True) if value != gradient}
    searched = STEP_FACTOR in types
    return tuple(
        watchpoint
        for watchpoint in changes.apply((*_by_category(present, searched=searched), *_by_activation(forward)))
        if CONDITIONS[watchpoint.condition].available(device or "unknown")
    )


def _by_category(present: set[Category], *, searched: bool) -> Iterator[Watchpoint]:
    if present & TRAINABLE:
        weights = NodeSelection((_category("trainable"),), (NodeSelector(NodeKind.REGEX, BIAS),))
        rated = replace(weights, exclude=(*weights.exclude, _category(SEARCHED_WEIGHT))) if searched else weights
        yield _watch("weight_change_too_large", rated, abs_mean_update_ratio_gt=1, epsilon=GAIN)
        yield _watch("weight_not_changed", weights, rtol=0, atol=0, in_a_row=PATIENCE)
    gradients = NodeSelection((_category(WEIGHT_GRADIENT),), _BIAS_GRADIENTS)
    if Category.GRADIENT in present:
        yield _watch("gradient_vanishing", gradients, abs_mean_lt=VANISHED, in_a_row=PATIENCE)
    if present - {Category.CONSTANT}:
        everything = NodeSelection((_category("tensor"),))
        yield _watch("operator_overflow", everything)
        yield _watch("tensor_overflow", everything)
    signals = [WEIGHT_GRADIENT] if Category.GRADIENT in present else []
    signals += ["activation"] if Category.ACTIVATION in present else []
    if signals:
        include = tuple(_category(name) for name in signals)
        zeros = NodeSelection(include, gradients.exclude)
        yield _watch("tensor_all_zero", zeros, zero_percentage_ge=100, in_a_row=PATIENCE)


def _by_activation(types: Iterable[str]) -> Iterator[Watchpoint]:
    """Yields watchpoints for saturated or dead activations, also fused ones like ``MatMulBiasAddReluFusion``."""
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
        0, condition, validate(condition, params), selection, name=f"{RECOMMENDED}{name or condition}{_SUFFIX}"
    )
