"""Arrays in pieces that stay in the L2 cache, their elements as float32 or float64 without any rounding.

Every element type of at most 24 significant bits fits into float32: half the memory of float64, and numpy is twice as
fast on it. What float32 cannot hold becomes float64; complex elements become their magnitudes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np

from tui_debugger.analysis.dtypes import DType
from tui_debugger.arrays import Array, Float32, Float64

BLOCK: Final = 1 << 16
"""Elements per block: with float64 copies of two tensors it fits into an L2 cache of 2 MiB, and the 10 µs that numpy
calls take whatever they are given weigh little."""
SINGLE: Final = np.dtype(np.float32)
DOUBLE: Final = np.dtype(np.float64)


class Scratch(threading.local):
    """Buffers of one thread: fresh ones would cost more page faults than the arithmetic."""

    def __init__(self) -> None:
        """Room for a block of two tensors, for what is made of them, and for the answers to questions about them."""
        self.singles = (np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32))
        self.doubles = (np.empty(BLOCK), np.empty(BLOCK))
        self.double_work = np.empty(BLOCK)
        self.mask = np.empty(BLOCK, np.bool_)
        self.other_mask = np.empty(BLOCK, np.bool_)


scratch: Final = Scratch()


def exact(block: Array, side: int = 0) -> Float32 | Float64:
    """A 1-D block as contiguous float32 where that holds all values of its type, else as float64.

    Args:
        block: at most ``BLOCK`` elements of a numeric type.
        side: which of two buffers takes the values; float32 and float64 blocks are returned as they are.
    """
    dtype = block.dtype
    if dtype in (SINGLE, DOUBLE) and block.flags.c_contiguous:
        return block
    if not _fits_single(dtype):
        return doubles(block, side)
    out = scratch.singles[side][: len(block)]
    table = _table(dtype)
    if table is None:
        np.copyto(out, block, casting="unsafe")
    else:
        np.take(table, block.view(_unsigned(dtype)), out=out, mode="clip")
    return out


def doubles(block: Array, side: int = 0) -> Float64:
    """A 1-D block as contiguous float64; those that are are returned as they are. Complex: magnitudes."""
    dtype = block.dtype
    if dtype != SINGLE:
        if dtype == DOUBLE and block.flags.c_contiguous:
            return block
        if dtype.kind == "c":
            block = np.abs(block.astype(np.complex128))
        elif dtype.itemsize <= 2:
            block = exact(block, side)
    out = scratch.doubles[side][: len(block)]
    np.copyto(out, block, casting="unsafe")
    return out


def double_blocks(array: Array) -> Iterator[Float64]:
    """All elements as float64 (complex: magnitudes) in pieces of at most ``BLOCK``; each is gone with the next one."""
    for (piece,) in pieces(array):
        for start in range(0, len(piece), BLOCK):
            yield doubles(piece[start : start + BLOCK])


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """1-D pieces of arrays of one shape, elements in the same order in each; views wherever that is possible."""
    if all(array.flags.c_contiguous for array in arrays):
        yield tuple(array.reshape(-1) for array in arrays)
    elif all(array.flags.f_contiguous for array in arrays):
        yield tuple(array.T.reshape(-1) for array in arrays)
    else:
        order = np.nditer(arrays, flags=["external_loop", "buffered", "zerosize_ok"], order="K", buffersize=BLOCK)
        with order:
            for piece in order:
                yield piece if isinstance(piece, tuple) else (piece,)


@lru_cache(maxsize=64)
def _fits_single(dtype: DType) -> bool:
    """Whether float32 holds every value of a type: at most 16 bits, whatever they mean, or float32 itself."""
    return dtype.itemsize <= 2 or dtype.newbyteorder("=") == SINGLE


@lru_cache(maxsize=64)
def _table(dtype: DType) -> Float32 | None:
    """The value of every bit pattern of a type whose conversion is slow; None when numpy's is fast."""
    if dtype.kind in "biu" or dtype.itemsize > 2 or not dtype.isnative or dtype.name == "bfloat16":
        return None
    patterns = np.arange(1 << 8 * dtype.itemsize).astype(_unsigned(dtype))
    with np.errstate(all="ignore"):
        return patterns.view(dtype).astype(np.float32)


def _unsigned(dtype: DType) -> DType:
    return np.dtype(np.uint8 if dtype.itemsize == 1 else np.uint16)
