"""Elements from one order to another: the call of ``shapes.c``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.stats.kernel import address, checked, function


def copy_elements(
    source: Array, offset: int, steps: Sequence[int], target: Array, *, bits: int = 0, signed: bool = False
) -> None:
    """Copies elements of a buffer into an array of any strides above 0.

    Args:
        source: 1-D; bytes where elements share them.
        offset: the number of the first element.
        steps: how far its neighbours are apart along each axis of ``target``, in elements.
        target: takes the elements; of the same width, one byte for each that shares one.
        bits: of elements of which several share a byte, the first in its lowest bits; 0: they do not.
        signed: whether the highest of these bits is a sign.

    Raises:
        ValueError: the steps leave the buffer, or the elements do not fit.
    """
    if len(steps) != target.ndim or target.itemsize != (1 if bits else source.itemsize):
        msg = "the elements do not fit"
        raise ValueError(msg)
    count = source.nbytes * 8 // bits if bits else len(source)
    layout = np.array([target.shape, steps, target.strides], np.int64)
    at = address(layout)
    checked(
        function("copy", "pqqiipippp")(
            address(source),
            count,
            offset,
            bits or 8 * source.itemsize,
            signed,
            target.ctypes.data,
            target.ndim,
            at,
            at + layout.strides[0],
            at + 2 * layout.strides[0],
        )
    )
