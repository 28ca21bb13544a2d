"""Gradients that all differ by one factor.

Clipping or unscaling multiplies all gradients by a number that any of them may have changed: gradients without the
factor are where the difference begins. Where all have it, the factor is the only finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tui_debugger.diagnose.runs.kinds import factor_between
from tui_debugger.diagnose.runs.results import BothRuns, DiffFinding
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.text.numbers import plural

T = TypeVar("T")
_MANY: Final = 3
"""The fewest gradients that must share a factor."""


def without_rescaled(found: Sequence[DiffFinding], runs: BothRuns) -> list[DiffFinding]:
    """Returns the findings on gradients that no common factor explains."""
    factors = {each.row_a: _factor(each, runs) for each in found} if len(found) >= _MANY else {}
    unit = max((each.distance.unit for each in found if each.distance is not None), default=0.0)
    rescaled, _ = of_one_factor(factors, unit)
    if not rescaled:
        return list(found)
    if len(rescaled) < len(found):
        return [each for each in found if each.row_a not in rescaled]
    many = plural(len(found), "gradient")
    text = f"{many} of parameters differ by one factor, as clipping or the scale of a loss makes it"
    return [replace(found[0], text=text)]


def of_one_factor(factors: Mapping[T, float | None], unit: float) -> tuple[set[T], float]:
    """Returns the gradients that have the usual factor, and that factor; an empty set where most do not share one."""
    known = sorted(factor for factor in factors.values() if factor is not None)
    if not known:
        return set(), 1.0
    usual = known[len(known) // 2]
    near = abs(usual - 1) / 100 + 4 * unit
    same = {each for each, factor in factors.items() if factor is not None and abs(factor - usual) <= near}
    return (same if len(same) >= max(_MANY, len(factors) / 2) else set()), usual


def _factor(finding: DiffFinding, runs: BothRuns) -> float | None:
    if finding.distance is None or None in finding.keys:
        return None
    try:
        one, other = (run.read(key) for run, key in zip(runs, finding.keys, strict=True) if key is not None)
    except CancelledError:
        raise
    except (TdbgError, OSError, ValueError):
        return None  # statistics only
    return factor_between(one, other, finding.distance.unit) if one.shape == other.shape else None
