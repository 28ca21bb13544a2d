"""Sums over one block, with bounds on what rounding does to them.

In whatever order n numbers are added in float64, the sum is off by at most n·2⁻⁵³ of the sum of their magnitudes: for a
block 7e-12 of it. In float32, 15 additions may be off by a millionth, so nothing is added there.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import scratch
from tui_debugger.arrays import Float64

DOT: Final = 1 << 13
"""Elements per dot product: BLAS would start threads for longer ones, which wait for each other on a busy machine."""
ENOUGH: Final = 2.0**-10
"""Σ(x − mean)² as a part of Σx² down to which Σx² − (Σx)²/n will do. Rounding makes the first term wrong by at most
n·2⁻⁵³ of itself, and the second, by Cauchy's inequality, by twice that part of the first: a block loses at most
2.2e-11 of Σx², which is 2.3e-8 of the difference."""
_ONES: Final = np.ones(DOT)


def total(x: Float64) -> float:
    """Sum of the elements; may overflow."""
    n = len(x)
    # Either is faster than np.add.reduce: the first for few elements, the second because it adds in another order.
    return float(x.dot(_ONES[:n])) if n <= DOT else float(np.einsum("i->", x))


def sum_of_squares(x: Float64) -> float:
    """Sum of the squares of the elements; may overflow."""
    return sum_of_products(x, x)


def sum_of_products(x: Float64, y: Float64) -> float:
    """Sum of the products of elements that stand at the same place; may overflow."""
    n = len(x)
    if n <= DOT:
        return float(x.dot(y))
    whole = n - n % DOT
    parts = np.matmul(x[:whole].reshape(-1, 1, DOT), y[:whole].reshape(-1, DOT, 1)).reshape(-1)
    return float(parts.dot(_ONES[: len(parts)])) + float(x[whole:].dot(y[whole:]))


def mean_of(x: Float64, sum_x: float) -> float:
    """Mean of finite elements whose sum may have overflowed."""
    return sum_x / len(x) if math.isfinite(sum_x) else total(x / len(x))


def mean_and_spread(x: Float64, sum_x: float, squares: float) -> tuple[float, float]:
    """The mean and Σ(x − mean)² of finite elements, from their sum and the sum of their squares where that will do."""
    n = len(x)
    mean = mean_of(x, sum_x)
    spread = squares - sum_x * mean
    if spread > ENOUGH * squares and spread < math.inf:
        return mean, spread
    away = np.subtract(x, mean, out=scratch.double_work[:n])
    squares, rest = sum_of_squares(away), total(away) / n  # the rest is what rounding took from the mean
    return (mean + rest, max(squares - rest * rest * n, 0.0)) if math.isfinite(squares) else (mean, squares)
