"""What a stretch of two tensors adds up to: block by block, in buffers that stay in the L2 cache.

A pass over a block costs as much as most arithmetic, so nothing is computed twice (the statistics of the difference say
what its greatest error is, and whether any element differs), and the lists of the largest differences are looked at
only where a block can still get into one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tui_debugger.analysis.blocks import SINGLE
from tui_debugger.analysis.difference import ulp
from tui_debugger.analysis.difference.block import (
    Block,
    add_to,
    buffers,
    dot_of,
    exact_beside,
    magnitudes_of,
    opposite_signs,
    squares_of,
    subtracted,
    widened,
)
from tui_debugger.analysis.difference.largest import Largest, Positions
from tui_debugger.analysis.difference.odd import OddElements
from tui_debugger.analysis.difference.pairs import PIECE, Pairs, exact_difference, wide, wide_difference
from tui_debugger.analysis.difference.tolerance import Tolerance, outside
from tui_debugger.analysis.dtypes import DType
from tui_debugger.analysis.sharing import Checkpoint, Span
from tui_debugger.analysis.stats import Accumulator
from tui_debugger.arrays import Array, Float32, Float64, Mask

_SLACK: Final = 1 - 2.0**-50
"""A quotient that is rounded to a bound or above it exceeds the product of its divisor with a bit less than that."""
_FAR: Final = 1 << 8
"""Distances from which on it is worth a try to tell most pairs that are closer by their magnitudes."""
_GLANCE: Final = 64
"""Elements that are compared before all: most blocks that differ do so at once."""
_ZEROS: Final = np.zeros(PIECE, np.float32)


@dataclass(frozen=True, slots=True)
class Floors:
    """What other stretches have found already: less than that need not be looked at.

    Attributes:
        by_abs, by_rel, by_ulp: see ``Largest``.
        max_rel: greatest relative error so far.
        max_ulp: greatest distance in units in the last place so far.
    """

    by_abs: float = 0.0
    by_rel: float = 0.0
    by_ulp: float = 0.0
    max_rel: float = 0.0
    max_ulp: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about two tensors.

    Attributes:
        tolerance: what counts as equal; one by percent is counted in a pass of its own.
        top: how many of the largest differences are kept.
        unit: the type whose units in the last place count; None for none.
        halves: see ``pairs.needs_halves``.
        floors: what is known already; makes no difference to the result.
    """

    tolerance: Tolerance
    top: int
    unit: DType | None
    halves: bool
    floors: Floors = Floors()


class Tally:
    """Sums, counts and lists of all blocks so far. ``merge`` adds those of the next stretch."""

    def __init__(self, question: Question) -> None:
        """Nothing yet."""
        self.question = question
        self.here, self.there, self.difference = Accumulator(), Accumulator(), Accumulator()
        top, floors = question.top, question.floors
        self.odd = OddElements(top)
        self.by_abs, self.by_rel = Largest(top, floors.by_abs), Largest(top, floors.by_rel)
        self.by_ulp = Largest(top, floors.by_ulp)
        self.finite = self.same = self.flips = self.from_zero = self.outside = 0
        self.max_abs = self.sum_abs = self.squares = 0.0
        self.max_rel = floors.max_rel
        self.dot = self.own_squares = self.other_squares = 0.0
        self.ulps = self.within_one = 0
        self.max_ulp = floors.max_ulp

    @property
    def floors(self) -> Floors:
        """What others need not look at any more."""
        return Floors(self.by_abs.floor, self.by_rel.floor, self.by_ulp.floor, self.max_rel, self.max_ulp)

    def merge(self, other: Tally) -> None:
        """Adds what was found in the elements that come next."""
        for name in ("here", "there", "difference", "odd", "by_abs", "by_rel", "by_ulp"):
            getattr(self, name).merge(getattr(other, name))
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("max_abs", "max_rel", "max_ulp"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    def add(self, first: int, here: Array, there: Array) -> None:
        """Adds a block of at most ``PIECE`` elements; ``first``: number of the first one."""
        with np.errstate(all="ignore"):
            if "c" in (here.dtype.kind, there.dtype.kind):
                self._add(Block(first, None, here, there, wide(here), wide(there)))
            else:
                x, y = exact_beside(here, 0, buffers.one), exact_beside(there, 1, buffers.other)
                if not self._add_same(here, there, x):
                    self._add(Block(first, None, here, there, x, y))

    def _add_same(self, here: Array, there: Array, x: Float32 | Float64) -> bool:
        """Adds a block that is finite and the same on both sides, bit by bit; False for any other block."""
        if here.dtype != there.dtype or self.question.unit not in (None, here.dtype):
            return False
        bits = f"u{here.itemsize}"
        one, other, n = here.view(bits), there.view(bits), len(here)
        if not (np.array_equal(one[:_GLANCE], other[:_GLANCE]) and np.array_equal(one, other)):
            return False
        block = Accumulator()
        block.add(x)
        if block.finite < n:
            return False
        self.here.merge(block)
        self.there.merge(block)
        self.difference.add(_ZEROS[:n])
        self._add_products(block.squares, block.squares, block.squares)
        self.finite += n
        self.same += n
        if self.question.unit is not None:
            self.ulps += n
            self.within_one += n
        return True

    def _add(self, block: Block) -> None:
        """Adds a block that may hold anything."""
        n, own, its = len(block.x), Accumulator(), Accumulator()
        one, other = widened(block.x, buffers.one), widened(block.y, buffers.other)
        add_to(own, block.x, one, buffers.difference)
        add_to(its, block.y, other, buffers.difference)
        self.here.merge(own)
        self.there.merge(its)
        if own.finite == its.finite == n:
            self._add_products(dot_of(one, other), own.squares, its.squares)
        else:
            block = self._take_odd(block, one, other)
            one, other = widened(block.x, buffers.one), widened(block.y, buffers.other)
            self._add_products(dot_of(one, other), squares_of(one), squares_of(other))
        if len(one):
            halves = self.question.halves
            found = exact_difference(block.here, block.there) if halves else subtracted(one, other)
            if not block.complex:
                block.opposite, flips = opposite_signs(block.x, block.y, zeros=own.zero + its.zero > 0)
                self.flips += flips
            self._measure(block, other, found)

    def _take_odd(self, block: Block, one: Array, other: Array) -> Block:
        """Sets aside what is not finite; returns the rest."""
        both: Mask = np.isfinite(block.x)
        both &= np.isfinite(block.y)
        odd = np.flatnonzero(~both)
        self.odd.take(one[odd], other[odd], block.first + odd)
        found = wide_difference(one[odd], other[odd])
        add_to(self.difference, found, found, buffers.difference)
        return block.only(both)

    def _add_products(self, dot: float, own: float, other: float) -> None:
        self.dot += dot
        self.own_squares += own
        self.other_squares += other

    def _measure(self, block: Block, other: Array, found: Array) -> None:
        """Adds pairs of finite elements, by the second ones of them and the differences."""
        n, change = len(found), Accumulator()
        add_to(change, found, found, buffers.one)
        self.difference.merge(change)
        self.finite += n
        self.same += change.zero
        if change.zero < n:
            error = magnitudes_of(found, change, buffers.one)
            reference = np.abs(other, out=buffers.other[:n])
            self._measure_errors(block, change, error, reference)
        if self.question.unit is not None:
            self._count_ulps(block)

    def _measure_errors(self, block: Block, change: Accumulator, error: Float64, reference: Float64) -> None:
        """Adds errors, at least one of which is not 0; ``reference`` is overwritten."""
        n = len(error)
        if change.finite < n:  # the difference of two finite numbers may be beyond the range of float64
            greatest, self.sum_abs, self.squares = float(error.max()), math.inf, math.inf
        else:
            greatest = change.greatest
            self.sum_abs += change.abs_sum
            self.squares += change.squares
        self.max_abs = max(self.max_abs, greatest)
        if greatest >= self.by_abs.floor:
            self.by_abs.add(error, block.first, block.places)
        tolerance = self.question.tolerance
        if tolerance.exact:
            self.outside += n - change.zero
        elif not tolerance.percent:
            self.outside += int(np.count_nonzero(outside(error, reference, tolerance, 0.0)))
        self._measure_relative(block, error, reference)

    def _measure_relative(self, block: Block, error: Float64, reference: Float64) -> None:
        """Divides only where a quotient may be great enough to matter."""
        n = len(error)
        bound, mask = (buffers.one if error.base is buffers.difference else buffers.difference)[:n], buffers.mask[:n]
        np.multiply(reference, min(self.max_rel, self.by_rel.floor) * _SLACK, out=bound)
        # Products that are rounded up to a subnormal number must not hide a quotient: float32 is far above those.
        (np.greater if block.y.dtype == SINGLE else np.greater_equal)(error, bound, out=mask)
        if not mask.any():
            return
        at = np.flatnonzero(mask)
        error, reference = error[at], reference[at]
        relative = error / reference
        zero = reference == 0
        new = zero & (error > 0)
        relative[zero] = 0
        self.from_zero += int(np.count_nonzero(new))
        self.max_rel = max(self.max_rel, float(relative.max()))
        relative[new] = math.inf
        self.by_rel.add(relative, block.first, block.at(at))

    def _count_ulps(self, block: Block) -> None:
        unit, here, there = self.question.unit, block.here, block.there
        assert unit is not None  # noqa: S101 - asked for only then
        if ulp.alike(here, there, unit):
            if not block.opposite:
                self._add_ulps(block, ulp.same_sign_distances(here, there, buffers.one), block.places)
                return
            if self._sift_ulps(block):
                return
        apart, valid = ulp.distances(here, there, unit)
        places = block.places
        if valid is not None:
            at = np.flatnonzero(valid)
            apart, places = apart[at], block.at(at)
        if len(apart):
            self._add_ulps(block, apart, places)

    def _sift_ulps(self, block: Block) -> bool:
        """Looks only at pairs that may be far enough apart to matter; False where those are too many for that."""
        least, n = int(min(self.max_ulp, self.by_ulp.floor) * _SLACK), len(block.here)
        if least < _FAR:
            return False
        near, far = ulp.sift(block.here, block.there, least, (buffers.one, buffers.other), buffers.mask[:n])
        if np.count_nonzero(far) > n // 8:
            return False
        at = np.flatnonzero(far)
        if len(at):
            apart = ulp.distances_of_bits(block.here[at], block.there[at])
            near -= int(np.count_nonzero(apart <= apart.dtype.type(1)))  # which are counted with the others
            self._add_ulps(block, apart, block.at(at))
        self.ulps += n - len(at)
        self.within_one += near
        return True

    def _add_ulps(self, block: Block, apart: Array, places: Positions | None) -> None:
        greatest = int(apart.max())
        self.ulps += len(apart)
        self.max_ulp = max(self.max_ulp, greatest)
        self.within_one += len(apart) if greatest <= 1 else int(np.count_nonzero(apart <= apart.dtype.type(1)))
        if greatest >= self.by_ulp.floor:
            self.by_ulp.add(apart, block.first, places)


@dataclass(frozen=True, slots=True)
class Count:
    """The task of a span: its tally."""

    question: Question
    cost: int = 12

    def prepare(self, arrays: tuple[Array, ...]) -> Pairs:
        """The arrays side by side."""
        here, there = arrays
        return Pairs(here, there)

    def do(self, prepared: Pairs, span: Span, checkpoint: Checkpoint) -> Tally:
        """See ``sharing.Task``."""
        tally = Tally(self.question)
        for first, here, there in prepared.blocks(*span):
            checkpoint(first - span[0])
            tally.add(first, here, there)
        return tally


_SUMS: Final = (
    *("finite", "same", "flips", "from_zero", "outside", "sum_abs", "squares"),
    *("dot", "own_squares", "other_squares", "ulps", "within_one"),
)
