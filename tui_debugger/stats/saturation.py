"""How many elements of an activation's output stand at its ends, and which units never answer. In blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.stats.blocks import BLOCK, double_blocks

ENDS: Final[dict[str, tuple[float, ...]]] = {"relu": (0.0,), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
"""Values at which the gradient of an activation is 0, by family (``recommend.activation_family``)."""
NEAR: Final = 1e-3
"""So close to an end of tanh or sigmoid an element has less than about a thousandth of its gradient left."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """What was counted.

    Attributes:
        count: all elements.
        at: elements within ``NEAR`` of each end (for relu: at or below 0), in the order of ``ENDS``.
    """

    count: int
    at: tuple[int, ...]

    @property
    def total(self) -> int:
        """Elements at any end."""
        return sum(self.at)


def saturation(array: npt.NDArray[Any], family: str) -> Saturation:
    """Counts the elements at the ends of an activation's output; a memory map is never loaded as a whole.

    Args:
        array: the output, numeric.
        family: ``relu``, ``sigmoid`` or ``tanh``.
    """
    at = [0] * len(ENDS[family])
    for block in double_blocks(array):
        with np.errstate(all="ignore"):
            for number, end in enumerate(ENDS[family]):
                near = block <= 0 if family == "relu" else np.abs(block - end) <= NEAR
                at[number] += int(np.count_nonzero(near))
    return Saturation(int(array.size), tuple(at))


def unit_axis(shape: tuple[int, ...]) -> int | None:
    """Says which axis counts a layer's units: channels of images (N, C, H, W), else the last; None without samples."""
    if len(shape) < 2:
        return None
    return 1 if len(shape) in (4, 5) else len(shape) - 1


def silent_units(array: npt.NDArray[Any]) -> tuple[int, int] | None:
    """Returns how many units are 0 or below for every sample, of how many; None where there is no axis of samples."""
    axis = unit_axis(array.shape)
    if axis is None or not array.size:
        return None
    units = array.shape[axis]
    answered = np.zeros(units, np.bool_)
    inner = int(np.prod(array.shape[1:], dtype=np.int64))
    rows = max(BLOCK // max(inner, 1), 1)  # samples that fit into a block
    others = tuple(number for number in range(array.ndim) if number != axis)
    for start in range(0, array.shape[0], rows):
        part = array[start : start + rows]
        with np.errstate(all="ignore"):
            answered |= (part > 0).any(axis=others) | np.isnan(part.astype(np.float64)).any(axis=others)
    return int(units - np.count_nonzero(answered)), units
