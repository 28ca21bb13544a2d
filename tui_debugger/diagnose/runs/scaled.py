"""Weights kept in one byte an element, with scales for all, for each row, or for blocks.

Such a weight means its elements times their scales. In a healthy copy each element is off by its known rounding; a
wrong scale moves all elements that share it by one factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Shape
from tui_debugger.diagnose.runs.distance import ComparedBy, Distance, unit_of
from tui_debugger.stats.dtypes import dtype_of, name_of

Wide = npt.NDArray[np.float64]

_ENDS: Final = ("_scale_inv", "_scale")
_BLOCKS: Final = (128, 64, 32, 16, 256, 512)
"""Sizes of blocks that share a scale, usual ones first."""
OF_ACTIVATIONS: Final = ("input_scale", "input_scale_inv", "output_scale", "k_scale", "v_scale", "activation_scale")
"""Suffixes of scales that do not belong to weights."""
_ROUNDINGS: Final = 2.0
"""Allowed roundings of an element: a weight may have been cast again with another scale."""
_FACTOR: Final = 1 / 128
"""The relative error of a scale kept in bfloat16."""
_UNSURE: Final = 3.6
"""Six standard deviations of a factor: rounding errors are uniform, with a deviation of 0.6 of the largest."""
_FEW: Final = 8
"""The fewest elements of which one may be wrong."""
_NO_CAST: Final = 0.01
"""The part of elements that may be wrong in a cast of a weight."""
_PIECE: Final = 1 << 20
"""The number of elements that are processed at once."""


def scale_names(weight: str) -> Iterator[str]:
    for end in _ENDS:
        yield f"{weight}{end}"
    if weight.endswith(".weight"):
        yield from (f"{weight.removesuffix('.weight')}.{end[1:]}" for end in _ENDS)


def may_be_scaled(dtype: str) -> bool:
    return dtype.startswith("float8") or dtype == "int8"


@dataclass(frozen=True)
class ScaledWeight:
    """A weight and its scales; each scale belongs to a block of ``values``.

    ``scales`` has as many dimensions as ``values``; ``blocks`` is the size of a block along each dimension.
    """

    values: Array
    scales: Wide
    blocks: Shape

    @property
    def shape(self) -> Shape:
        return self.values.shape

    @property
    def counts(self) -> Shape:
        return self.scales.shape

    @cached_property
    def smallest(self) -> float:
        """The absolute rounding error near zero, relative to the scale."""
        if self.values.dtype.kind == "i":
            return 0.5
        values = np.arange(256, dtype=np.uint8).view(self.values.dtype).astype(np.float64)
        return float(values[values > 0].min()) / 2

    def rows(self, first: int, last: int) -> tuple[Wide, Wide]:
        """Returns some rows times their scales, and the largest rounding error of each element."""
        scales = self.scales[np.ix_(*(self._of(axis, first, last) for axis in range(self.values.ndim)))]
        meant = self.values[first:last].astype(np.float64) * scales
        unit = unit_of((name_of(self.values.dtype),)) if self.values.dtype.kind != "i" else 0.0
        return meant, np.maximum(np.abs(meant) * unit, np.abs(scales) * self.smallest)

    def whole(self) -> npt.NDArray[np.float32]:
        found = np.empty(self.shape, np.float32)
        for first, last in pieces(self.shape):
            found[first:last] = self.rows(first, last)[0]
        return found

    def _of(self, axis: int, first: int, last: int) -> npt.NDArray[np.intp]:
        numbers = np.arange(first, last) if axis == 0 else np.arange(self.shape[axis])
        return numbers // self.blocks[axis]


@dataclass(frozen=True)
class Rounded:
    """Rows that were rounded to a smaller type, each row with its own scale; has the interface of ``ScaledWeight``.

    ``unit`` is the relative rounding error, ``least`` the absolute one near zero.
    """

    values: Array
    unit: float
    least: float

    @property
    def shape(self) -> Shape:
        return self.values.shape

    @property
    def blocks(self) -> Shape:
        return (1, *self.shape[1:])

    @property
    def counts(self) -> Shape:
        return (self.shape[0], *(1 for _ in self.shape[1:]))

    def rows(self, first: int, last: int) -> tuple[Wide, Wide]:
        meant = self.values[first:last].astype(np.float64)
        return meant, np.maximum(np.abs(meant) * self.unit, self.least)


def rounded(values: Array, dtype: str) -> Rounded:
    """Takes rows as rounded to a type of one byte an element."""
    levels = np.arange(256, dtype=np.uint8).view(dtype_of(dtype) or np.uint8).astype(np.float64)
    levels = np.abs(levels[np.isfinite(levels) & (levels != 0)])
    largest = float(np.abs(values.astype(np.float64)).max(initial=0.0))
    unit = unit_of((dtype,)) if dtype != "int8" else 0.0
    return Rounded(values, unit, largest / float(levels.max()) * float(levels.min()) / 2)


class CastMisses(NamedTuple):
    """How many elements of a weight are not a cast of the other weight to the smaller type.

    Attributes:
        rounded: elements that rounding to the nearest value (ties to even) does not explain.
        cut: elements that truncation does not explain.
    """

    rounded: int
    cut: int


def cast_misses(a: Array, b: Array) -> CastMisses | None:
    """Compares two weights of which one may be the other in a smaller type; None where the types are no such types."""
    fine, small = _fine_and_small(a, b)
    units = [unit_of((name_of(each.dtype),)) for each in (fine, small)]
    if not a.ndim or a.shape != b.shape or not all(units) or units[0] == units[1] or "c" in a.dtype.kind + b.dtype.kind:
        return None
    bits, rounded, cut = f"u{small.dtype.itemsize}", 0, 0
    for first, last in pieces(a.shape):
        exact, held = fine[first:last], np.ascontiguousarray(small[first:last])
        with np.errstate(all="ignore"):
            cast = np.ascontiguousarray(exact.astype(small.dtype))
            beyond = np.abs(cast.astype(exact.dtype)) > np.abs(exact)
        known = ~(np.isnan(cast) & np.isnan(held))
        rounded += int(np.count_nonzero((cast.view(bits) != held.view(bits)) & known))
        cut += int(np.count_nonzero((cast.view(bits) - beyond != held.view(bits)) & known))
    return CastMisses(rounded, cut)


def _fine_and_small(a: Array, b: Array) -> tuple[Array, Array]:
    units = [unit_of((name_of(each.dtype),)) for each in (a, b)]
    return (a, b) if units[0] <= units[1] else (b, a)


def cast_apart(a: Array, b: Array) -> Apart | None:
    """Compares two weights element by element where one is nearly a cast of the other; else returns None.

    The norm of a weight hides one wrong element behind the rounding of all others.
    """
    misses = cast_misses(a, b)
    if misses is None or not 0 < misses.rounded <= max(_NO_CAST * a.size, float(a.size >= _FEW)):
        return None
    _, small = _fine_and_small(a, b)
    unit = unit_of((name_of(small.dtype),))
    finest = ml_dtypes.finfo(small.dtype).smallest_subnormal  # type: ignore[no-untyped-call]  # no annotations there
    kept = Rounded(small, 2 * unit, float(finest) / 2)  # the largest error; the unit is one of many elements
    return meant_apart(kept if small is a else a, kept if small is b else b)


def scaled(values: Array, scales: Array) -> ScaledWeight | None:
    """Returns a weight with its scales; None where these do not fit it."""
    blocks = _blocks(values.shape, scales.shape)
    if not values.size or blocks is None or scales.dtype.kind in "bc":
        return None
    if scales.size == 1:
        spread = scales.reshape((1,) * values.ndim)
    else:
        spread = scales.reshape((*scales.shape, *(1,) * (values.ndim - scales.ndim)))
    return ScaledWeight(values, spread.astype(np.float64), blocks)


def _blocks(shape: Shape, scales: Shape) -> Shape | None:
    """Returns the size of blocks along each dimension; None where unknown.

    A vector with fewer scales than rows may have one for each part of a fused weight, and q may be larger than k and v.
    """
    if math.prod(scales) == 1:
        return shape
    if len(scales) == 1 < len(shape) and scales[0] != shape[0]:
        return None
    if not 0 < len(scales) <= len(shape):
        return None
    found = []
    for size, count in zip(shape, (*scales, *(1,) * (len(shape) - len(scales))), strict=True):
        even = (size // count,) if count and not size % count else ()
        usual = [block for block in _BLOCKS if -(-size // block) == count]
        fits = [*even, *usual] if len(scales) < len(shape) or count in {1, size} else [*usual, *even]
        if not fits:
            return None
        found.append(fits[0])
    return tuple(found)


def pieces(shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields (first, end) of rows to process at once."""
    each = max(_PIECE // max(math.prod(shape[1:]), 1), 1)
    for first in range(0, shape[0], each):
        yield first, min(first + each, shape[0])


@dataclass(frozen=True, slots=True)
class Apart:
    """The distance of two weights (the usual rule holds for its ``unit``), and which scale is wrong, if known."""

    distance: Distance
    text: str


def meant_apart(a: Array | ScaledWeight | Rounded, b: Array | ScaledWeight | Rounded) -> Apart:
    """Compares two weights of one shape, times their scales; at least one has scales."""
    grid = max((each for each in (a, b) if not isinstance(each, np.ndarray)), key=lambda each: math.prod(each.counts))
    sides = [_as_rounded(each) if isinstance(each, np.ndarray) else each for each in (a, b)]
    types = [name_of(each.values.dtype) for each in sides]
    found = _ScaleGroups(grid.blocks, grid.counts)
    for first, last in pieces(a.shape):
        found.look(first, sides[0].rows(first, last), sides[1].rows(first, last))
    relative = math.sqrt(found.square / size) if (size := max(found.squares)) else 0.0
    excess, text = found.judged(a.shape)
    if found.odd:
        relative = excess = math.inf
    unit = relative / (3 * excess) if 0 < excess < math.inf else 0.0
    distance = Distance(
        ComparedBy.VALUES,
        max(relative, math.ulp(0.0) if found.differing else 0.0),
        odd=found.odd,
        differing=found.differing,
        count=math.prod(a.shape),
        unit=unit,
        size=math.sqrt(size),
        worst=found.at,
        values=found.values,
        types=(types[0], types[1]),
        shapes=(a.shape, b.shape),
        meant="times its scales",
    )
    return Apart(distance, text)


def _as_rounded(values: Array) -> Rounded:
    return Rounded(values, unit_of((name_of(values.dtype),)), 0.0)


class _ScaleGroups:
    """Accumulates sums over the elements that share a scale; ``worst`` is an element's error by its rounding error."""

    def __init__(self, blocks: Shape, shape: Shape) -> None:
        self.blocks = blocks
        self.worst = 0.0
        self.at: Shape = ()
        self.values: tuple[float, float] | None = None
        self.odd = self.differing = 0
        self.square = 0.0
        self.squares = [0.0, 0.0]
        self._sums = np.zeros((5, *shape))

    def look(self, first: int, one: tuple[Wide, Wide], other: tuple[Wide, Wide]) -> None:
        (x, x_error), (y, y_error) = one, other
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            self.odd += int(np.count_nonzero(~finite & ~(np.isnan(x) & np.isnan(y)) & (x != y)))
            x, y, x_error, y_error = (np.where(finite, each, 0.0) for each in (x, y, x_error, y_error))
        d, error = np.abs(x - y), x_error + y_error
        self.differing += int(np.count_nonzero(d))
        with np.errstate(all="ignore"):
            errors = np.nan_to_num(d / error, posinf=math.inf)
        at = int(errors.argmax()) if errors.size else 0
        if errors.size and errors.flat[at] > self.worst:
            self.worst = float(errors.flat[at])
            row, *others = (int(each) for each in np.unravel_index(at, errors.shape))
            self.at, self.values = (first + row, *others), (float(x.flat[at]), float(y.flat[at]))
        groups = slice(first // self.blocks[0], (first + len(x) - 1) // self.blocks[0] + 1)
        for at, products in enumerate((d * d, error * error, x * x, x * y, (x * error) ** 2)):
            self._sums[at, groups] += self._added(first, products)
        self.square += float(np.vdot(d, d))
        self.squares = [self.squares[0] + float(np.vdot(x, x)), self.squares[1] + float(np.vdot(y, y))]

    def _added(self, first: int, products: Wide) -> Wide:
        for axis, block in enumerate(self.blocks):
            start = -(first % block) if axis == 0 else 0
            starts = np.maximum(np.arange(start, products.shape[axis], block), 0)
            products = np.add.reduceat(products, starts, axis=axis)
        return products

    def judged(self, shape: Shape) -> tuple[float, str]:
        """Returns the largest error over what is expected, and which scale is wrong."""
        d2, error2, x2, xy, moved2 = self._sums
        with np.errstate(all="ignore"):
            excess = max(self.worst / _ROUNDINGS, float(np.nan_to_num(np.sqrt(d2 / error2)).max(initial=0.0)))
            factor = np.where(x2 > 0, xy / x2, 1.0)
            allowed = _FACTOR + _UNSURE * np.sqrt(moved2) / np.where(x2 > 0, x2, 1.0)
            # elements that a wrong scale moved are off by nothing else
            left = np.sqrt(np.maximum(d2 - (factor - 1) ** 2 * x2, 0) / np.where(error2 > 0, error2, 1.0))
        off = np.abs(factor - 1) / allowed
        whole = abs(xy.sum() / x2.sum() - 1) if x2.sum() else 0.0  # many scales that are all off by little
        excess = max(excess, float(off.max(initial=0.0)))
        if excess <= 1 < (times := whole / (_FACTOR + _UNSURE * math.sqrt(moved2.sum()) / (x2.sum() or 1.0))):
            return times, f"all its scales: B is A times {1 + whole * np.sign(xy.sum() - x2.sum()):.4g}"
        wrong = np.argwhere((off > 1) & (left <= 1))
        if not len(wrong):
            return excess, ""
        at = tuple(int(each) for each in wrong[int(np.argmax(off[tuple(wrong.T)]))])
        return excess, f"{self._place(at, shape, len(wrong))}: B is A times {factor[at]:.4g}"

    def _place(self, at: Shape, shape: Shape, wrong: int) -> str:
        if self._sums[0].size == 1:
            return "its scale"
        words = []
        for axis, (number, block) in enumerate(zip(at, self.blocks, strict=True)):
            if block < shape[axis]:
                last = min((number + 1) * block, shape[axis]) - 1
                of = f"dimension {axis}" if len(shape) != 2 else ("row", "column")[axis] + "s" * (block > 1)
                words.append(f"{of} {number * block}{f'-{last}' if block > 1 else ''}")
        more = f" (and {wrong - 1} more of {self._sums[0].size} scales)" if wrong > 1 else ""
        return f"the scale of {', '.join(words)}{more}"
