"""Why reduced gradients of a step differ between ranks.

A gradient that still is what its rank put into the reduction was not reduced. Where the gradients of two ranks are the
same but for one factor, a norm was clipped by another factor on each of them: that passes on a difference, and the
gradients that the factor does not explain are the ones that caused it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Pair = tuple[npt.NDArray[Any], npt.NDArray[Any]]
_FEWEST: Final = 4
"""Gradients that have to differ before most of them tell what happened to all."""
_MOST: Final = 0.7
_SAME: Final = 1e-4
"""Relative differences of factors, and of what they leave: gradients are float32, or were until they were clipped."""


class Unequal(NamedTuple):
    """What is known of one gradient.

    Attributes:
        text: why it differs; empty where that is not known.
        passed_on: what another gradient caused.
    """

    text: str
    passed_on: bool


def why_unequal(
    names: Mapping[str, tuple[int, int]], gradients: Callable[[str, int], npt.NDArray[Any] | None], summand: str
) -> dict[str, Unequal]:
    """Returns why gradients differ, by the names of their nodes, as far as that is known.

    Args:
        names: the nodes of the gradients that differ, each with two ranks on which they do.
        gradients: returns the values of a node on a rank; None where they are not there or cannot be read.
        summand: the end of the name of what a rank puts into a reduction.
    """
    found: dict[str, Unequal] = {}
    factors: dict[str, float] = {}
    for name, ranks in names.items():
        both = [gradients(name, rank) for rank in ranks]
        put_in = [gradients(name + summand, rank) for rank in ranks]
        if any(one is None for one in both):
            continue
        if all(
            own is not None and one is not None and _factor(own, one)  # clipped, or as it was
            for one, own in zip(both, put_in, strict=True)
        ):
            found[name] = Unequal("each rank has what it put in: it was not reduced", passed_on=False)
        elif both[0] is not None and both[1] is not None and (factor := _factor(both[0], both[1])):
            factors[name] = factor
    rest = names.keys() - found.keys()
    if len(rest) < _FEWEST or not factors:
        return found
    common, count = Counter(round(math.log(each) / _SAME / 10) for each in factors.values()).most_common(1)[0]
    alike = {name: each for name, each in factors.items() if abs(math.log(each) / _SAME / 10 - common) <= 1}
    if count < _MOST * len(rest) or len(alike) == len(rest):
        return found
    factor = float(np.median(list(alike.values())))
    told = Unequal(f"by the factor {factor:.6g}, as most gradients: clipping passes on another one's", passed_on=True)
    return found | dict.fromkeys(alike, told)


def _factor(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float | None:
    """Returns by what factor the second gradient is the first one; None where it is something else."""
    if one.shape != other.shape:
        return None
    a, b = (each.astype(np.float64, copy=False).ravel() for each in (one, other))
    square = float(a @ a)
    factor = float(a @ b) / square if 0 < square < math.inf else 0.0
    if not 0 < factor < math.inf:
        return None
    left = b - factor * a
    return factor if float(left @ left) <= (_SAME * factor) ** 2 * square else None
