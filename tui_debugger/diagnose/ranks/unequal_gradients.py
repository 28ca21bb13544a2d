"""Why reduced gradients of a step differ between ranks.

A gradient that equals its rank's input of the reduction was not reduced. Gradients of two ranks that are equal but for
one common factor were clipped by different norms, because some other gradient differs. The gradients that the factor
does not explain are the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tui_debugger.arrays import Array
from tui_debugger.diagnose.runs.distance import unit_of
from tui_debugger.diagnose.runs.kinds import factor_between
from tui_debugger.diagnose.runs.rescaled import of_one_factor
from tui_debugger.stats.dtypes import name_of


class Unequal(NamedTuple):
    """Why a gradient differs (empty where unknown), and whether another gradient caused it."""

    text: str
    passed_on: bool


def why_unequal(
    names: Mapping[str, tuple[int, int]], gradients: Callable[[str, int], Array | None], summand: str
) -> dict[str, Unequal]:
    """Returns why gradients differ, by the names of their nodes, as far as known.

    ``names`` has for each gradient two ranks on which it differs. ``gradients`` returns the values of a node on a rank,
    or None. ``summand`` is the suffix of the node that holds a rank's input of the reduction.
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
            own is not None and one is not None and _factor(own, one)  # unchanged, or clipped
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


def _factor(one: Array | None, other: Array | None) -> float | None:
    """Returns the positive number by which one gradient is the other; None where there is none."""
    if one is None or other is None or one.shape != other.shape:
        return None
    found = factor_between(one, other, _unit(one))
    return found if found is not None and found > 0 else None


def _unit(gradient: Array) -> float:
    return unit_of((name_of(gradient.dtype),))
