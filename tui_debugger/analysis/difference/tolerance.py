"""When two elements count as equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.difference.block import buffers, exact_beside, subtracted, widened
from tui_debugger.analysis.difference.pairs import Pairs, difference, needs_halves, wide
from tui_debugger.analysis.sharing import Checkpoint, Span, in_order
from tui_debugger.arrays import Array, Float64, Mask
from tui_debugger.model import ProgressFn, TensorStats, no_progress


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


def outside(error: Float64, reference: Float64, tolerance: Tolerance, boundary: float) -> Mask:
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
    task = _CountOutside(tolerance, boundary)
    return sum(in_order(pairs.stock, lambda: task, "tolerance", progress))


@dataclass(frozen=True, slots=True)
class _CountOutside:
    """The task of a span: how many of its elements are outside."""

    tolerance: Tolerance
    boundary: float
    cost: int = 6

    def prepare(self, arrays: tuple[Array, ...]) -> Pairs:
        here, there = arrays
        return Pairs(here, there)

    def do(self, prepared: Pairs, span: Span, checkpoint: Checkpoint) -> int:
        found = 0
        for first, here, there in prepared.blocks(*span):
            checkpoint(first - span[0])
            found += self._count(here, there)
        return found

    def _count(self, here: Array, there: Array) -> int:
        if "c" not in (here.dtype.kind, there.dtype.kind) and not needs_halves(here, there):
            one = widened(exact_beside(here, 0, buffers.one), buffers.one)
            other = widened(exact_beside(there, 1, buffers.other), buffers.other)
            with np.errstate(all="ignore"):
                error = subtracted(one, other)
                if np.isfinite(error, out=buffers.mask[: len(error)]).all():  # so are both sides, then
                    reference = np.abs(other, out=buffers.other[: len(error)]) if self.tolerance.rtol else other
                    mask = outside(np.abs(error, out=error), reference, self.tolerance, self.boundary)
                    return int(np.count_nonzero(mask))
        return int(np.count_nonzero(outside_mask(here, there, self.tolerance, self.boundary)))
