"""What a tensor is along a dimension of a mesh of ranks: the rule for replicas.

The recorder decides where it says over which ranks the gradient of a weight is reduced. Else the values at the first
dumped step decide: weights that are equal by bytes, and not constant, are replicas. Weights that are alike, but not
equal, began as one: two parts of a larger weight are no more alike than by chance. Constant weights prove nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import Enum
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Float64
from tui_debugger.graph.categories import plain_type


class TensorSpread(Enum):
    """What a tensor is along a dimension of a mesh of ranks."""

    REPLICATED = "replicated"
    """All ranks must have the same."""
    INDEPENDENT = "independent"
    """Each rank has its own: a part of a larger tensor, or another weight."""
    VARYING = "varying"
    """The same tensor of different data, or weights that began equal and went apart."""


_ALIKE: Final = 0.5
_MOST_EQUAL: Final = 0.5
_FEWEST: Final = 8
_CHANCE: Final = 5.0
"""A correlation beyond this many standard deviations of that of random numbers is no chance."""


def are_alike(arrays: Sequence[Array]) -> bool:
    """Tells whether tensors of several ranks began as one: they correlate more than random tensors of their size."""
    if not arrays:
        return False
    first, *others = (np.asarray(each, np.float64).ravel() for each in arrays)
    if any(np.shape(each) != np.shape(arrays[0]) for each in arrays) or first.size < 2:
        return False
    least = max(_ALIKE, _CHANCE / math.sqrt(first.size))
    return all(_correlation(first, other) > least for other in others)


def are_nearly_equal(arrays: Sequence[Array]) -> bool:
    """Tells whether most elements are equal on all ranks, which no two parts of a larger tensor are."""
    first, *others = arrays or [np.empty(0)]
    if any(each.shape != first.shape for each in others) or first.size < _FEWEST:
        return False
    usual = first.flat[0]
    return all(np.count_nonzero((each == first) & (first != usual)) > _MOST_EQUAL * first.size for each in others)


def is_norm(op_type: str) -> bool:
    """Tells whether an operator normalises its input and multiplies it by a weight: ``LayerNorm``, ``RMSNorm``."""
    plain = plain_type(op_type)
    return plain.endswith("norm") and plain != "norm"


_NORM: Final = re.compile(
    r"(?:^|[./])(?!(?:q|k|query|key)_?(?:layer)?_?norm|norm_[qk][./])(?:\w*norm\w*|ln(?:_\w+|\d+)?)[./]"
    r"(?:weight|bias|gamma|beta)$",
    re.IGNORECASE,
)
"""Parameters of norms, but not of norms of queries and keys, which may be divided with the heads of attention."""


def is_of_norm(name: str) -> bool:
    """Tells by the name whether a parameter is of a norm that all ranks have where they share the layers."""
    return _NORM.search(name) is not None


def _correlation(one: Float64, other: Float64) -> float:
    with np.errstate(all="ignore"):
        one, other = one - one.mean(), other - other.mean()
        size = math.sqrt(float(one @ one)) * math.sqrt(float(other @ other))
        found = float(one @ other) / size if 0 < size < math.inf else 0.0
    return found if math.isfinite(found) else 0.0
