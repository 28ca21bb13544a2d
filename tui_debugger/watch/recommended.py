"""The watchpoints a person gets offered before knowing what to look for.

The set has to be silent on a healthy run and to name the cause on a sick one: tests/zoo trains some twenty networks of
each kind under it. Conditions and names are MindInsight's; these differences are on purpose, each measured there or on
recorded dumps:

* No ``weight_initialization``: matrices that begin as 0 are a choice (LoRA's B, the last layer of a residual branch).
  What is wrong is that they stay 0, which ``weight_not_changed`` says.
* ``weight_change_too_large``: the ratio is mean |change| / (mean |weight| + 0.1). With MindInsight's 1e-9 whatever
  begins as 0 or almost 0 changes beyond all bounds (LoRA's B under AdamW at 1e-3 with warm-up: 190,000 in the first
  step and up to 2.2 in the next two; the heads of the recorded MLP and of the recorded run with an ``if``: above 1 in
  healthy steps). Learning rates of 1e3 give 40 to 500 under SGD and 4,000 under Adam. Weights of L-BFGS are left out:
  one of its steps is several, and the curvature decides how large they are (1.9 in the first step of a healthy fit).
* ``weight_not_changed``, which MindInsight could never offer (its group of trainable weights was always empty):
  bitwise. With rtol 1e-5 and atol 1e-8 a small GPT-2 fine-tuned at 2e-5 with warm-up from 0 gave 15 findings in its
  first step and 5 in the next two (the gains of LayerNorms are 1, and move by 5e-6); a Trainer-like loop at 5e-4 gave
  15 in its first step.
* No ``weight_change_too_small``: it is what fine-tunes, warm-ups and the ends of schedules are made of. With 1e-4 the
  fine-tune gave findings in every step, for gains 5 a step, and the Trainer-like loop 5 a step from its 12th of 16
  steps on. A weight that hardly moves for a bad reason has a gradient that is lost, or does not move at all.
* Change watches weights without biases. A bias (a LayerNorm's beta) in front of a softmax or a normalization, such as
  that of attention keys, has no gradient by mathematics and never changes. The matrix beside a frozen bias is frozen
  too.
* Vanishing gradients and all-zero gradients are looked for where optimizers use them (``weight_gradient``), not on
  every operator of the backward pass: there masks (``Equal``, 6 findings a step in a recorded GAN), filled constants,
  and what goes to branches that were not taken (``Tile``, ``RealDiv`` in a recorded run with an ``if``) are 0 in
  healthy steps. The limit is 1e-12, not 1e-9: gradients of 1e-10 train well under Adam. Biases are left out, for the
  reason above.
* All-zero tensors are looked for among those gradients and activations only. Fresh optimizer state, a learning rate
  of 0, masks, labels and ``0 * x`` are zero in healthy runs.
* In live PyTorch trainings what does not change, and what is 0, counts from the third step in a row on
  (``in_a_row``): a learning rate of 0 at the beginning of a warm-up, and LoRA's A, whose gradient is 0 until B has
  moved, take one or two. Steps in which nothing was to happen do not count: see ``torch.training.Expectation``. A
  dump is judged step by step: its first step, where warm-ups stand at 0, has no step before to compare with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

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
"""Added to the size of a weight before its change is related to it."""
PATIENCE: Final = 3
"""Steps in a row in which something soft has to hold."""
_BIAS_GRADIENTS: Final = (NodeSelector(NodeKind.REGEX, BIAS), NodeSelector(NodeKind.TYPE, BIAS_ADD_GRADIENT))
"""By name as well: where processes sum their gradients up the type is that of the collective operation."""
RECOMMENDED: Final = "recommend_"
"""The names of recommended watchpoints begin with it, in MindInsight as here."""
_SUFFIX: Final = "_watchpoint"
"""The suffix of their names."""

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


def activation_ranges(op_type: str) -> Iterator[Watchpoint]:
    """Returns what is recommended for the outputs of an operator because it is an activation."""
    return _by_activation([op_type])


@dataclass(frozen=True, slots=True)
class RecommendedChanges:
    """The changes that a person makes to the recommended watchpoints.

    Attributes:
        left_out: names of watchpoints that are not wanted, see ``built_in``.
        params: parameters by the name of the watchpoint; those that are not named stay.
        also: watchpoints to add, as text (``watch.text``).
    """

    left_out: frozenset[str] = frozenset()
    params: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Tells whether anything is different."""
        return bool(self.left_out or self.params or self.also)

    def changed(self, watchpoint: Watchpoint) -> Watchpoint:
        """Returns a recommended watchpoint with the parameters that were chosen for it.

        Raises:
            BadWatchpointError: a rule of the condition table is broken.
        """
        chosen = self.params.get(short_name(watchpoint))
        if not chosen:
            return watchpoint
        return replace(watchpoint, params=validate(watchpoint.condition, {**dict(watchpoint.params), **chosen}))

    def apply(self, watchpoints: Iterable[Watchpoint]) -> Iterator[Watchpoint]:
        """Yields what is left of recommended watchpoints, changed, then those that are added.

        Raises:
            BadWatchpointError: a rule of the condition table is broken.
        """
        for watchpoint in watchpoints:
            if short_name(watchpoint) not in self.left_out:
                yield self.changed(watchpoint)
        for text in self.also:
            condition, params, selection = parse_watch(text)
            yield Watchpoint(0, condition, params, selection, name=f"{RECOMMENDED}{condition}{_SUFFIX}")


NO_CHANGES: Final = RecommendedChanges()


def short_name(watchpoint: Watchpoint) -> str:
    """Returns the name of a recommended watchpoint without what all of them share: ``tensor_overflow``."""
    return watchpoint.name.removeprefix(RECOMMENDED).removesuffix(_SUFFIX)


def built_in() -> dict[str, Watchpoint]:
    """Returns every watchpoint that may be recommended, by its short name."""
    every = (*_by_category(set(Category), searched=False), *_by_activation(_FAMILIES))
    return {short_name(watchpoint): watchpoint for watchpoint in every}


def recommended(
    category: npt.NDArray[np.uint8], types: Sequence[str], *, device: str = "", changes: RecommendedChanges = NO_CHANGES
) -> tuple[Watchpoint, ...]:
    """The recommended watchpoints for a run with these nodes, each only when it covers some node.

    Args:
        category: ``model.Category`` values, one per node.
        types: operator type names, one per node.
        device: ``Ascend``, ``GPU``, ``CPU`` or empty: conditions that never work there are left out.
        changes: what a person changed about the set.

    Returns:
        Watchpoints with id 0, in MindInsight's order.
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
        0, condition, validate(condition, params), selection, name=f"{RECOMMENDED}{name or condition}{_SUFFIX}"
    )
