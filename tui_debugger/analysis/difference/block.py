"""Two blocks side by side: what is made of them, in buffers that stay in the L2 cache."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import SINGLE, exact, scratch
from tui_debugger.analysis.difference.largest import Positions
from tui_debugger.analysis.difference.pairs import PIECE
from tui_debugger.analysis.stats import Accumulator
from tui_debugger.analysis.sums import sum_of_products
from tui_debugger.arrays import Array, Float32, Float64, Mask


class Room(threading.local):
    """Buffers of one thread, for float64 copies of a block, and for what is made of them."""

    def __init__(self) -> None:
        """Room for three of them, and for the answers to a question."""
        self.one, self.other, self.difference = np.empty(PIECE), np.empty(PIECE), np.empty(PIECE)
        self.mask = np.empty(PIECE, np.bool_)


buffers: Final = Room()


@dataclass
class Block:
    """Pairs of finite elements.

    Attributes:
        first: position of the block that they are of.
        both: where they stand in it; None: they are all of it.
        here, there: of their own types.
        x, y: as float32 or float64, or complex.
        opposite: how many have different sign bits.
    """

    first: int
    both: Mask | None
    here: Array
    there: Array
    x: Array
    y: Array
    opposite: int = 0

    @property
    def complex(self) -> bool:
        """Whether either side is complex."""
        return "c" in (self.x.dtype.kind, self.y.dtype.kind)

    @cached_property
    def places(self) -> Positions | None:
        """Where each stands after ``first``; None: one after the other."""
        return None if self.both is None else np.flatnonzero(self.both)

    def at(self, chosen: Positions) -> Positions:
        """The places of some of them."""
        return chosen if self.places is None else self.places[chosen]

    def only(self, both: Mask) -> Block:
        """Some of them."""
        here, there = self.here[both], self.there[both]
        x = here if self.x is self.here else self.x[both]
        y = there if self.y is self.there else self.y[both]
        return Block(self.first, both, here, there, x, y)


def add_to(statistics: Accumulator, x: Array, wide_: Array, room: Float64) -> None:
    """Adds a block to its statistics; ``room`` may be overwritten."""
    if x.dtype.kind == "c":
        statistics.add(x)
    else:
        statistics.add_wide(x, wide_, room)


def exact_beside(block: Array, side: int, room: Float64) -> Float32 | Float64:
    """See ``blocks.exact``; what is converted to float64 goes where the statistics of other blocks leave it alone."""
    x = exact(block, side)
    if x.base is not scratch.doubles[side]:
        return x
    np.copyto(room[: len(x)], x)
    return room[: len(x)]


def widened(x: Array, room: Float64) -> Array:
    """The elements as float64, in ``room`` unless they are that already; complex ones as they are."""
    if x.dtype != SINGLE:
        return x
    out = room[: len(x)]
    np.copyto(out, x)
    return out


def subtracted(one: Array, other: Array) -> Array:
    """The difference of finite elements, float64 or complex."""
    if "c" in (one.dtype.kind, other.dtype.kind):
        return np.asarray(one - other)
    return np.subtract(one, other, out=buffers.difference[: len(one)])


def magnitudes_of(found: Array, block: Accumulator, room: Float64) -> Float64:
    """|found|, where its statistics have left it, if they needed it."""
    out = room[: len(found)]
    if found.dtype.kind != "c":
        if block.finite == len(found) and not block.negative:
            return found
        if block.finite == len(found) and block.mixed:
            return out
    return np.abs(found, out=out)


def opposite_signs(x: Array, y: Array, *, zeros: bool) -> tuple[int, int]:
    """Pairs whose sign bits differ, and those among them without a 0 (if there are ``zeros``), which has no sign."""
    n = len(x)
    if x.dtype != y.dtype:
        x, y = x.astype(np.float64, copy=False), y.astype(np.float64, copy=False)
    bits = np.dtype(f"i{x.itemsize}")
    signs = np.bitwise_xor(x.view(bits), y.view(bits), out=scratch.double_work.view(bits)[:n])
    apart = np.less(signs, bits.type(0), out=buffers.mask[:n])
    found = flips = int(np.count_nonzero(apart))
    if found and zeros:
        flips -= int(np.count_nonzero(apart & ((x == 0) | (y == 0))))
    return found, flips


def dot_of(one: Array, other: Array) -> float:
    """The inner product; of complex vectors that of the real vectors that they are twice as long."""
    if "c" in (one.dtype.kind, other.dtype.kind):
        one, other = (np.ascontiguousarray(each, np.complex128).view(np.float64) for each in (one, other))
    return sum_of_products(one, other)


def squares_of(x: Array) -> float:
    """Sum of the squares of the magnitudes."""
    return dot_of(x, x)
