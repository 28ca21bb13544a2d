"""How the values of a tensor are spread between its smallest and its greatest one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.blocks import BLOCK, double_blocks
from tui_debugger.analysis.dtypes import is_numeric
from tui_debugger.analysis.sharing import Stock
from tui_debugger.analysis.spread.below import count_below
from tui_debugger.analysis.spread.bins import Bin, equal_edges
from tui_debugger.analysis.spread.classes import ClassCounts
from tui_debugger.model import ProgressFn, no_progress

BINS: Final = 10
"""Bins unless asked otherwise: what fits into a line and still shows two peaks apart."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Number of elements between neighbouring edges.

    Attributes:
        edges: ascending, one more than counts. Bin i is edges[i] ≤ x < edges[i + 1]; the last one holds its upper
            edge too. A single bin when all elements are equal.
        counts: elements per bin.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


def histogram(array: npt.NDArray[Any], low: float, high: float, bins: int = BINS) -> Histogram:
    """Counts the elements from ``low`` to ``high``, block by block: a memory map is never loaded as a whole.

    Elements are cast to float64, complex ones to their magnitude, as for statistics. NaN, and what lies outside the
    bounds, counts nowhere.

    Args:
        array: numeric, of any shape, order and byte order.
        low: finite lower bound, usually the minimum.
        high: finite upper bound, not below ``low``; the range may be wider than the greatest double.
        bins: number of bins, all of the same width.

    Raises:
        TypeError: the element type is not numeric.
        ValueError: bounds that are not finite or not ascending, or no bins.
    """
    if not is_numeric(array.dtype):
        msg = f"no histogram for element type {array.dtype}"
        raise TypeError(msg)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high) or bins < 1:
        msg = f"no histogram of {bins} bins from {low} to {high}"
        raise ValueError(msg)
    edges = [low, high] if low == high else equal_edges(low, high, bins)
    # Comparing with every edge needs no arithmetic, so nothing overflows or is rounded into the bin beside, NaN drops
    # out by itself, and for a dozen edges it is faster than computing bin numbers.
    reached = [0] * len(edges)
    mask = np.empty(BLOCK, np.bool_)
    with np.errstate(all="ignore"):
        for block in double_blocks(array):
            out = mask[: len(block)]
            for i, edge in enumerate(edges[:-1]):
                reached[i] += int(np.count_nonzero(np.greater_equal(block, edge, out=out)))
            reached[-1] += int(np.count_nonzero(np.greater(block, high, out=out)))
    return Histogram(tuple(edges), tuple(here - above for here, above in pairwise(reached)))


def count_bins(
    array: npt.NDArray[Any] | Stock, classes: ClassCounts, bins: Sequence[Bin], progress: ProgressFn = no_progress
) -> tuple[int, ...]:
    """Counts the elements in each of any bins, in one pass at most; none where the bins end where classes do.

    Args:
        array: what ``classes`` were counted of.
        classes: from ``keys.count_classes``.
        bins: of any widths.
        progress: may raise CancelledError.
    """
    key_of = classes.kind.key_of
    bounds = []
    for each in bins:
        bounds += [key_of(each.low, above=not each.with_low), key_of(each.high, above=each.with_high)]
    below = count_below(array, classes, bounds, progress)
    return tuple(max(below[i + 1] - below[i], 0) for i in range(0, len(below), 2))
