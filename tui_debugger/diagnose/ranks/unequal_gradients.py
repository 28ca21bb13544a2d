"""Why reduced gradients of a step differ between ranks.

A gradient that still is what its rank put into the reduction was not reduced. Where the gradients of two ranks are the
same but for one factor, a norm was clipped by another factor on each of them: that passes on a difference, and the
gradients that the factor does not explain are the ones that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

from tui_debugger.diagnose.runs.distance import unit_of
from tui_debugger.diagnose.runs.kinds import factor_between
from tui_debugger.diagnose.runs.rescaled import of_one_factor
from tui_debugger.stats.dtypes import name_of


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
    factors: dict[str, float | None] = {}
    unit = 0.0
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
        else:
            factors[name] = _factor(both[0], both[1])
            unit = max(unit, *(_unit(one) for one in both if one is not None))
    alike, factor = of_one_factor(factors, unit)
    if len(alike) == len(factors):
        return found
    told = Unequal(f"by the factor {factor:.6g}, as most gradients: clipping passes on another one's", passed_on=True)
    return found | dict.fromkeys(alike, told)


def _factor(one: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> float | None:
    """Returns by what number the second gradient is the first one; None where it is something else."""
    if one is None or other is None or one.shape != other.shape:
        return None
    found = factor_between(one, other, _unit(one))
    return found if found is not None and found > 0 else None


def _unit(gradient: npt.NDArray[Any]) -> float:
    return unit_of((name_of(gradient.dtype),))
