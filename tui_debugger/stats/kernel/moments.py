"""Every statistic of an array in one pass: the call of ``moments.c``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Float64, Int64
from tui_debugger.stats.kernel import (
    NO_SENSE,
    Kinds,
    address,
    available,
    checked,
    function,
    kind_of,
)

Bounds = tuple[float, float]


class Moments(NamedTuple):
    """The sums of some elements. Means, deviations and extremes are those of the finite ones.

    Attributes:
        elements: how many there are.
        nan: NaN among them.
        pos_inf: +Inf among them.
        neg_inf: -Inf among them.
        negative: finite ones below 0.
        positive: finite ones above 0.
        minimum: the least finite one; +Inf without any, and never -0.
        maximum: the greatest finite one; -Inf without any, and never -0.
        mean: 0 without any.
        abs_mean: mean of the magnitudes.
        deviations: sum of the squared distances from the mean.
        squares: sum of the squares.
    """

    elements: int
    nan: int
    pos_inf: int
    neg_inf: int
    negative: int
    positive: int
    minimum: float
    maximum: float
    mean: float
    abs_mean: float
    deviations: float
    squares: float


MOMENTS: Final = np.dtype([(name, "f8" if number >= 6 else "i8") for number, name in enumerate(Moments._fields)])
"""``struct moments``."""


def moments(elements: Array, ranges: Sequence[Bounds] = ()) -> tuple[Moments, list[int]] | None:
    """Measures an array; None where the kernel does not: it is not there, or does not know the elements.

    Args:
        elements: of any shape, contiguous, at any address.
        ranges: inclusive bounds whose elements are counted.
    """
    kind = kind_of(elements.dtype)
    if not available() or kind is None or not elements.flags.c_contiguous:
        return None
    sums, inside, bounds = np.empty((), MOMENTS), np.zeros(len(ranges), np.int64), bounds_table(ranges)
    values, wanted = (address(elements), elements.nbytes), (address(bounds), len(ranges))
    call = function("moments", "ipqppqpp")
    checked(call(kind.number, *values, kind.table, *wanted, address(inside), address(sums)))
    return Moments(*sums.item()), inside.tolist()


def moments_of_each(
    places: Int64, nbytes: Int64, kinds: Kinds, ranges: Sequence[Bounds] = ()
) -> tuple[npt.NDArray[Any], Int64]:
    """Measures many arrays at once.

    Args:
        places: where the elements of each begin; the caller holds them.
        nbytes: bytes of each.
        kinds: of the elements of each.
        ranges: inclusive bounds whose elements are counted.

    Returns:
        A structured array with the fields of ``Moments``, and for each array and range how many elements are inside.

    Raises:
        ValueError: some values are no elements of their kind.
    """
    n, bounds = len(places), bounds_table(ranges)
    if len(kinds.number) != n or len(nbytes) != n:
        raise ValueError(NO_SENSE)
    sums, inside = np.empty(n, MOMENTS), np.zeros((n, len(ranges)), np.int64)
    where, lengths = np.ascontiguousarray(places, np.int64), np.ascontiguousarray(nbytes, np.int64)
    arguments = (n, *kinds.addresses(), address(where), address(lengths), address(bounds), len(ranges))
    checked(function("moments_of_each", "qpppppqpp")(*arguments, address(inside), address(sums)))
    return sums, inside


def bounds_table(ranges: Sequence[Bounds]) -> Float64:
    """Returns inclusive bounds as the kernel reads them."""
    return np.array(ranges, np.float64).reshape(len(ranges), 2)
