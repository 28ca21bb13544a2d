"""Weights of more than two dimensions whose axes stand in another order, as programs keep those of convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Final

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.diagnose.runs.conversions import WeightConversion, is_near
from tui_debugger.diagnose.runs.distance import Distance, distance
from tui_debugger.diagnose.runs.kinds import kind_of_difference
from tui_debugger.stats.dtypes import name_of

_LEAST: Final = 3
_MOST: Final = 5
"""Axes of a weight of which all orders are tried."""


def with_other_axes(
    arrays: Sequence[Mapping[str, Array]], pairs: Sequence[tuple[str, str]]
) -> Iterator[WeightConversion]:
    """Yields weights of the second run that values prove to be those of the first, with their axes in another order.

    A weight whose axes have the order that is proven of others, and whose values differ, is wrong.

    Args:
        arrays: the weights of both runs.
        pairs: names of both runs that are paired, and have other shapes.
    """
    known: set[tuple[int, ...]] = set()
    left: list[tuple[str, str]] = []
    for one, other in pairs:
        near = [(order, apart) for order, apart in _orders(arrays[0].get(one), arrays[1].get(other)) if is_near(apart)]
        for order, apart in near[:1]:
            known.add(order)
            yield WeightConversion(other, (one,), "", f"made of {one}, axes {_text(order)}", apart, turned=True)
        if not near:
            left.append((one, other))
    for one, other in left:
        for order, apart in _orders(arrays[0].get(one), arrays[1].get(other)):
            if order in known:
                both = np.transpose(arrays[0][one], order), arrays[1][other]
                text = f"its axes are {_text(order)}, as those of others: {kind_of_difference(*both, apart.unit)[1]}"
                yield WeightConversion(other, (one,), one, text, apart, turned=True)


def _orders(one: Array | None, other: Array | None) -> Iterator[tuple[tuple[int, ...], Distance]]:
    """Yields the orders of axes that make one shape of the other, and how far both weights are apart then."""
    if one is None or other is None or one.ndim != other.ndim or not _LEAST <= one.ndim <= _MOST:
        return
    types = name_of(one.dtype), name_of(other.dtype)
    for order in permutations(range(one.ndim)):
        turned = np.transpose(one, order)
        if turned.shape == other.shape:
            yield order, distance(np.ascontiguousarray(turned), other, types)


def _text(order: Sequence[int]) -> str:
    return f"in the order {' '.join(map(str, order))}"
