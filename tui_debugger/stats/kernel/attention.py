"""A head of an attention: the call of ``attention.c``."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.stats.kernel import NO_SENSE, address, checked, described, function

COLUMNS: Final = 12
"""Columns that are averaged; the last one has to be all ones."""
_WIDEST: Final = 64
_ROWS: Final = 12
"""The most of ``TILE_WIDTH``, and ``ROWS``, of ``attention.c``."""


def attended(
    query: Array, key: Array, columns: Float32, mask: Array | None, *, causal: bool, factor: float
) -> tuple[Float64, Float64]:
    """Returns ``softmax(query @ key.T * factor + mask) @ columns``, in float32.

    Args:
        query: of a head, in a type that float32 holds.
        key: the same.
        columns: ``COLUMNS`` for each key, of which the last one is all ones.
        mask: for each row and key whether it is seen, or what is added to its score.
        causal: a row sees only the keys up to its own number.
        factor: of the scores.

    Returns:
        For each row the averages of the columns, and the largest score.
    """
    (rows, width), keys = query.shape, len(key)
    if columns.shape != (keys, COLUMNS) or key.shape != (keys, width) or rows < 0:
        raise ValueError(NO_SENSE)
    if mask is not None and mask.shape != (rows, keys):
        raise ValueError(NO_SENSE)
    kind = 0 if mask is None else 1 if mask.dtype == np.bool_ else 2
    padded = keys + _WIDEST
    work = np.empty(padded * (width + 16 + _ROWS + 1) + _ROWS * width + 16, np.float32)
    made, top = np.empty((rows, COLUMNS)), np.empty(rows)
    call = struct.pack("=5q", rows, keys, width, kind, causal) + described(query) + described(key)
    call += bytes(24) if mask is None else described(mask)
    call += struct.pack("=d4q", factor, *(address(each) for each in (columns, work, made, top)))
    checked(function("attended", "p")(call))
    return made, top
