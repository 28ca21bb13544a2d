"""Whether two tensors hold the same values in another order: a transposed weight, a shuffled batch."""

from __future__ import annotations

from itertools import permutations
from typing import Final

import numpy as np

from tui_debugger.analysis.difference.differences import Differences
from tui_debugger.arrays import Array

MOST: Final = 1 << 20
"""Elements up to which it is looked for: sorting them takes a tenth of a second."""
_DIMENSIONS: Final = 4


def rearranged(here: Array, there: Array, found: Differences) -> str:
    """How one follows from the other, in words; empty when it does not, or nothing differs, or they are too big.

    Args:
        here: one array in its own shape.
        there: the other one in its own.
        found: how they differ.
    """
    same_type = here.dtype == there.dtype and here.size == there.size
    if not found.different or not same_type or here.size > MOST or not _alike(found):
        return ""
    for axes in permutations(range(there.ndim)) if there.ndim <= _DIMENSIONS else ():
        turned = there.transpose(axes)
        if axes != tuple(range(there.ndim)) and turned.shape == here.shape and _equal(here, turned):
            return f"equal when the other one is transposed: {axes}"
    for axis in range(here.ndim) if here.shape == there.shape else ():
        if _equal(here, np.flip(there, axis)):
            return f"equal when the other one is reversed along dimension {axis}"
    if here.dtype.kind != "b" and _equal(np.sort(here, axis=None), np.sort(there, axis=None)):
        return "the same values in another order"
    return ""


def _alike(found: Differences) -> bool:
    """Whether counts and extremes allow it at all."""
    one, other = found.here, found.there
    counts = ("nan", "pos_inf", "neg_inf", "zero", "negative", "positive", "minimum", "maximum")
    return all(getattr(one, name) == getattr(other, name) for name in counts)


def _equal(one: Array, other: Array) -> bool:
    return bool(np.array_equal(one, other) or np.array_equal(_bits(one), _bits(other)))


def _bits(array: Array) -> Array:
    """Elements as unsigned integers, so that NaN equals itself."""
    return (
        np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if array.dtype.itemsize in (1, 2, 4, 8) else array
    )
