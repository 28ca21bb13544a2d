"""When two elements count as equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import Array, Doubles, Mask
from tui_debugger.analysis.difference.pairs import Pairs, difference, wide
from tui_debugger.model import Progress, ProgressFn, TensorStats, no_progress


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Inside is |here − there| ≤ the larger one of the boundary and ``atol`` + ``rtol``·|there|.

    Attributes:
        rtol, atol: relative and absolute tolerance, not negative.
        percent: the boundary as a part of the greatest finite difference of the whole tensor, 0 to 100: the slider of
            MindInsight's tensor comparison.
    """

    rtol: float = 0.0
    atol: float = 0.0
    percent: float = 0.0

    def boundary(self, stats: TensorStats) -> float:
        """max(|max d|, |min d|) × percent, over the finite differences that ``stats`` are of."""
        if stats.minimum is None or stats.maximum is None:
            return 0.0
        return max(abs(stats.maximum), abs(stats.minimum)) * (self.percent / 100)

    @property
    def exact(self) -> bool:
        """Whether only equal numbers are inside."""
        return self == EXACT


EXACT: Final = Tolerance()


def outside(error: Doubles, reference: Doubles, tolerance: Tolerance, boundary: float) -> Mask:
    """Which of some pairs of finite elements are outside.

    Args:
        error: |here − there|.
        reference: |there|.
        tolerance: what is allowed.
        boundary: see ``Tolerance.boundary``.
    """
    if not tolerance.rtol:
        return np.greater(error, max(boundary, tolerance.atol))
    with np.errstate(all="ignore"):
        return np.greater(error, np.maximum(reference * tolerance.rtol + tolerance.atol, boundary))


def outside_mask(here: Array, there: Array, tolerance: Tolerance, boundary: float) -> Mask:
    """Which elements of two blocks or windows are outside; NaN equals NaN, an infinity one of its sign.

    Where only one side is NaN or infinite no tolerance helps.
    """
    one, other = wide(here), wide(there)
    finite = np.isfinite(one) & np.isfinite(other)
    with np.errstate(all="ignore"):
        apart = outside(np.abs(difference(here, there)), np.abs(other), tolerance, boundary)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
    found: Mask = np.where(finite, apart, ~same)
    return found


def count_outside(pairs: Pairs, tolerance: Tolerance, boundary: float, progress: ProgressFn = no_progress) -> int:
    """Counts the elements outside, block by block.

    Args:
        pairs: the arrays.
        tolerance: what is allowed.
        boundary: see ``Tolerance.boundary``.
        progress: counts elements; may raise to stop.
    """
    found = 0
    for first, here, there in pairs.blocks():
        progress(Progress(first, pairs.count, "tolerance"))
        found += int(np.count_nonzero(outside_mask(here, there, tolerance, boundary)))
    return found
