"""Checks large products with random vectors: an error shows without computing the whole product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64, Shape
from tui_debugger.diagnose.recompute.judge import ACCUMULATED, Expected, OutputJudge
from tui_debugger.diagnose.recompute.kernel_checks import signs_of
from tui_debugger.stats.kernel import is_known, native
from tui_debugger.stats.kernel import probes as compiled
from tui_debugger.stats.kernel.probes import PROBES, RightFactor
from tui_debugger.stats.kernel.probes import ProbeErrors as Distances

LARGE: Final = 1 << 23
"""Multiplications from which a product is checked with random vectors."""
_GROUP: Final = 128
_PASSED: Final = 2.0
_FEW: Final = 32
"""The most failed rows that are recomputed by themselves."""
ROWS_SIZE: Final = 1 << 18
"""The number of elements in the rows that are processed at once."""

MOST_TO_TELL: Final = 1 << 32
"""Multiplications beyond which a wrong output gets no ``difference``: computing all of it takes seconds of one core."""


class ProbedOutput(ABC):
    """An expected output that is checked with random vectors; ``work`` is the multiplications of computing it."""

    shape: Shape
    work: int = 0

    @abstractmethod
    def exact(self) -> Expected:
        """Computes all of the output."""

    @abstractmethod
    def judge(self, judge: OutputJudge, found: Array) -> bool:
        """Takes in the output; returns False and changes nothing where it cannot be probed."""


class ProbedBlock(NamedTuple):
    """A part of an output that was checked with random vectors.

    Attributes:
        start: flat index of its first element.
        ratio: error of the worst group by what rounding explains; inf where unknown.
        beyond: rows with a group that did not pass.
        error: approximate norm of the error of the whole block.
        value: norm of what rounding of the values explains.
        size: norm of what rounding of the terms explains.
        exact: computes all rows (None) or some rows, and returns them with what was recorded.
    """

    start: int
    ratio: float
    beyond: Array
    error: float
    value: float
    size: float
    exact: Callable[[Array | None], tuple[Expected, Array]]


def block_of(
    start: int,
    error_and_explained: tuple[Float64, Float64],
    unit_and_value: tuple[float, Float64],
    inside_and_size: tuple[float, Float64],
    exact: Callable[[Array | None], tuple[Expected, Array]],
) -> ProbedBlock:
    """Makes a block from arrays by row and group; all but what explains the errors (a norm) are squared norms."""
    error, explained = error_and_explained
    with np.errstate(all="ignore"):
        ratios = np.sqrt(error) / explained
    ratio = float(np.max(ratios, initial=0.0, where=(error > 0) | ~(explained >= 0)))
    beyond = np.flatnonzero((ratios > _PASSED).any(axis=1))
    whole, value, size = (float(each.sum()) for each in (error, unit_and_value[1], inside_and_size[1]))
    if not all(map(math.isfinite, (whole, value, size, ratio))):
        return ProbedBlock(start, math.inf, beyond, 0.0, 0.0, 0.0, exact)
    value, size = unit_and_value[0] * math.sqrt(value), inside_and_size[0] * math.sqrt(size)
    return ProbedBlock(start, ratio, beyond, math.sqrt(whole), value, size, exact)


def take_blocks(judge: OutputJudge, blocks: Sequence[ProbedBlock]) -> None:
    """Takes in right blocks by their norms; computes the others, worst first, until the output is surely wrong."""
    explained = math.sqrt(sum((each.value + each.size) ** 2 for each in blocks))
    for each in sorted(blocks, key=lambda block: -block.ratio):
        known = math.isfinite(each.ratio)
        if known and (each.ratio <= _PASSED or judge.is_surely_wrong(explained) or _few_are_right(each, judge)):
            judge.take_norms(each.error, each.value, each.size)
        else:
            judge.take(*each.exact(None), each.start)


def passes(error: Float64, explained: Float64) -> bool:
    """Tells whether all groups pass; ``error`` is squared, ``explained`` is not."""
    return bool(np.all(error <= np.square(_PASSED * explained)))


def looked_closer(made: Callable[..., ProbedBlock], unit: float) -> ProbedBlock:
    """Returns a block that is as exact as needed.

    ``made(whole=False)`` leaves out the sizes of terms: for outputs of 16 bits, their own rounding explains nearly all.
    """
    if unit > ACCUMULATED and (first := made(whole=False)).ratio <= _PASSED:
        return first
    return made(whole=True)


def _few_are_right(block: ProbedBlock, judge: OutputJudge) -> bool:
    """Tells whether the failed rows are few and all right when computed exactly: a few of many fail by chance."""
    if len(block.beyond) > _FEW:
        return False
    made, found = block.exact(block.beyond)
    alone = OutputJudge(found.dtype, found.shape, judge.widest)
    alone.take(made, found)
    return not alone.result(0).wrong


def group_of(width: int) -> int:
    """Returns how many columns of the output share one set of random vectors."""
    return min(max(_GROUP, _GROUP * (width // 1024)), 4 * _GROUP)


def probes_for(arrays: Sequence[Array], width: int, group: int) -> Probes:
    """Random signs for outputs of ``width`` columns; uses the kernel where it knows the types of all arrays."""
    kernel = is_known(*(each.dtype for each in arrays))
    single = all(each.dtype.itemsize <= (4 if kernel else 2) for each in arrays)
    return Probes(signs_of(width), group, np.dtype(np.float32 if single else np.float64), kernel)


@dataclass(frozen=True, slots=True)
class Probes:
    """Random signs, of shape (width, ``PROBES``), for groups of ``group`` columns of the output.

    Products are taken in float32 where float32 holds the values: these sums err no more than the sums under test.
    ``kernel`` tells that the compiled kernel is used where it can be.
    """

    signs: Float32
    group: int
    kind: np.dtype[Any]
    kernel: bool

    def of_rows(self, matrix: Array) -> tuple[Float64, Float64]:
        """For each row: sums with the signs of each group of columns, and the sums of squares of each group."""
        if self.kernel:
            return compiled.signed_rows(native(matrix), self.group, self.signs)
        wide = matrix.astype(self.kind)
        sums, squares = [], []
        for at in range(0, matrix.shape[1], self.group):
            part = wide[:, at : at + self.group]
            sums.append(part @ self.signs[at : at + self.group].astype(self.kind))
            squares.append(np.einsum("ij,ij->i", part, part))
        return np.concatenate(sums, axis=1).astype(np.float64), np.stack(squares, axis=1).astype(np.float64)

    def of_columns(self, matrix: Array) -> tuple[Array, Array]:
        """Like ``of_rows`` for a right factor, whose columns are the outputs; in ``kind``."""
        if matrix.T.flags.c_contiguous and not matrix.flags.c_contiguous:
            sums, squares = (each.T for each in self.of_channels(matrix.T))
        else:
            sums, squares = self.of_rows(matrix)
        return np.ascontiguousarray(sums, self.kind), np.ascontiguousarray(squares, self.kind)

    def of_channels(self, matrix: Array) -> tuple[Float64, Float64]:
        """The same as ``of_rows`` for each column, with groups of rows; the results are transposed."""
        if self.kernel:
            return compiled.signed_columns(native(matrix), self.group, self.signs)
        sums, squares = self.of_rows(matrix.T)
        return sums.T, squares.T

    def multiplies(self, *arrays: Array) -> bool:
        return self.kernel and self.kind == np.float32 and compiled.is_single(*(each.dtype for each in arrays))

    def distances(self, left: Array, right: RightFactor, found: Array) -> Distances:
        """Returns the errors of the rows of a product; ``of_columns`` and ``of_rows`` make the parts of ``right``."""
        if self.multiplies(left):
            return compiled.probed(native(left), right, native(found), self.group, self.signs)
        whole = Distances(*(np.empty((len(left), len(right.added_squares))) for _ in range(3)))
        step = max(ROWS_SIZE // max(left.shape[1], found.shape[1]), 1)
        for begin in range(0, len(left), step):
            rows = slice(begin, begin + step)
            seen, whole.value[rows] = self.of_rows(found[rows])
            some = left[rows].astype(self.kind, copy=False)
            error = (some @ right.columns).astype(np.float64) * right.factor + right.added - seen
            error = error.reshape(len(some), -1, PROBES)
            whole.error[rows] = np.einsum("ijk,ijk->ij", error, error) / PROBES
            whole.size[rows] = right.added_squares
            if right.squares is not None:
                whole.size[rows] += right.factor**2 * (np.square(some) @ right.squares).astype(np.float64)
        return whole
