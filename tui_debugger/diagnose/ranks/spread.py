"""What a tensor is along a dimension of a mesh of ranks: the rule for replicas.

A recorder that says over which ranks the gradient of a weight is reduced decides. Else values do, of the first step at
which a weight was dumped: equal by bytes and not constant is a replica. Weights that are alike, and not equal, began as
one: two parts of a larger weight are no more alike than chance makes them. Constant ones prove nothing by themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.graph.categories import plain_type


class TensorSpread(Enum):
    """What a tensor is along a dimension of a mesh of ranks."""

    REPLICATED = "replicated"
    """All ranks must have the same."""
    INDEPENDENT = "independent"
    """Each rank has one of its own: a part of a larger tensor, or another weight."""
    VARYING = "varying"
    """All ranks have the same tensor of other data, or began with the same and went apart."""
    PARTIAL = "partial"
    """Each rank has a summand, such as a gradient before it is reduced."""


_ALIKE: Final = 0.5
_MOST_EQUAL: Final = 0.5
_FEWEST: Final = 8
_CHANCE: Final = 5.0
"""The number of standard deviations of a correlation of random numbers, beyond which it is no chance."""


def are_alike(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Tells whether tensors of several ranks began as one: they correlate more than random ones of their size do."""
    if not arrays:
        return False
    first, *others = (np.asarray(each, np.float64).ravel() for each in arrays)
    if any(np.shape(each) != np.shape(arrays[0]) for each in arrays) or first.size < 2:
        return False
    least = max(_ALIKE, _CHANCE / math.sqrt(first.size))
    return all(_correlation(first, other) > least for other in others)


def are_nearly_equal(arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Tells whether most elements of tensors are the same on several ranks: no two parts of a larger tensor are so."""
    first, *others = arrays or [np.empty(0)]
    if any(each.shape != first.shape for each in others) or first.size < _FEWEST:
        return False
    usual = first.flat[0]
    return all(np.count_nonzero((each == first) & (first != usual)) > _MOST_EQUAL * first.size for each in others)


def is_norm(op_type: str) -> bool:
    """Tells whether an operator normalises what it gets, and multiplies it by a weight: ``LayerNorm``, ``RMSNorm``."""
    plain = plain_type(op_type)
    return plain.endswith("norm") and plain != "norm"


_NORM: Final = re.compile(
    r"(?:^|[./])(?!(?:q|k|query|key)_?(?:layer)?_?norm|norm_[qk][./])(?:\w*norm\w*|ln(?:_\w+|\d+)?)[./]"
    r"(?:weight|bias|gamma|beta)$",
    re.IGNORECASE,
)
"""Parameters of norms, but not those of queries and keys, which may be divided with the heads of attention."""


def is_of_norm(name: str) -> bool:
    """Tells by its name whether a parameter is that of a norm that all ranks have where they share the layers."""
    return _NORM.search(name) is not None


def _correlation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    with np.errstate(all="ignore"):
        one, other = one - one.mean(), other - other.mean()
        size = math.sqrt(float(one @ one)) * math.sqrt(float(other @ other))
        found = float(one @ other) / size if 0 < size < math.inf else 0.0
    return found if math.isfinite(found) else 0.0
