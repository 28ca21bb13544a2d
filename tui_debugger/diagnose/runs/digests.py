"""Digests of all rows and columns of a weight in one reading: equal rows have equal digests, in other weights too.

A digest is the sum of the elements, taken as whole numbers, times odd numbers that are drawn once, modulo 2^64. The
signs of a row are digested where one weight holds its values in fp8: no rounding turns them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array

Words = npt.NDArray[np.uint64]

_PIECE: Final = 1 << 18
"""Elements that are looked at together."""
_OF_LENGTH: Final = 0x9E3779B97F4A7C15
_LEAST_SIGNS: Final = 32
"""Elements of the shortest row that its signs tell from others."""


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of the rows of a weight; of a stack of matrices those of all of them.

    Attributes:
        rows: of the rows.
        columns: of the columns, as ``rows_of`` has them where they are swapped.
    """

    rows: tuple[int | None, ...]
    columns: tuple[int | None, ...]


def rows_of(array: Array, *, swapped: bool) -> Array:
    """Returns a weight as rows: a vector as rows of one element, a stack of matrices as the rows of all of them."""
    if array.ndim < 2:
        return array.reshape(-1, 1)
    turned = np.swapaxes(array, -1, -2) if swapped else array
    return np.ascontiguousarray(turned).reshape(-1, turned.shape[-1])


def rows_and_width(array: Array, *, swapped: bool) -> tuple[int, int]:
    """Returns how many rows ``rows_of`` makes, and how many elements each has."""
    width = 1 if array.ndim < 2 else array.shape[-2 if swapped else -1]
    return array.size // max(width, 1), width


def digests(array: Array, coarse: np.dtype[np.generic] | None, *, signs: bool = False) -> Digests:
    """Returns the digests of a weight; None of rows that tell nothing: those of one value, which many have.

    Args:
        array: of two dimensions or more.
        coarse: the type in which floating-point elements are taken.
        signs: take the signs of the elements only.
    """
    if not array.size:
        return Digests((), ())
    rows: list[int | None] = []
    columns: list[int | None] = []
    for matrix in array.reshape(-1, *array.shape[-2:]):
        own, its = _of_matrix(matrix, coarse, signs=signs)
        rows += own
        columns += its
    return Digests(tuple(rows), tuple(columns))


def _of_matrix(
    matrix: Array, coarse: np.dtype[np.generic] | None, *, signs: bool
) -> tuple[list[int | None], list[int | None]]:
    height, width = matrix.shape
    factors = _factors(max(height, width))
    rows, columns = np.zeros(height, np.uint64), np.zeros(width, np.uint64)
    first_row, first_column = np.zeros(width, np.uint64), np.zeros(height, np.uint64)
    each = max(_PIECE // width, 1)
    for first in range(0, height, each):
        words = _words(matrix[first : first + each], coarse, signs=signs)
        last = first + len(words)
        rows[first:last] = np.einsum("ij,j->i", words, factors[:width])
        columns += np.einsum("ij,i->j", words, factors[first:last])
        first_column[first:last] = words[:, 0]
        first_row = first_row if first else words[0].copy()
    found = []
    for sums, firsts, length in ((rows, first_column, width), (columns, first_row, height)):
        plain = sums == firsts * factors[:length].sum(dtype=np.uint64)
        if signs and length < _LEAST_SIGNS:
            plain[:] = True
        made = sums + np.uint64(length * _OF_LENGTH % (1 << 64))  # a row that zeros follow is another one
        found.append([None if none else value for value, none in zip(made.tolist(), plain.tolist(), strict=True)])
    return found[0], found[1]


def _words(rows: Array, coarse: np.dtype[np.generic] | None, *, signs: bool) -> Words:
    """Returns elements as whole numbers."""
    if signs:
        return np.signbit(rows.astype(np.float32)).astype(np.uint64)
    cast = rows if coarse is None or rows.dtype.kind in "biu" else rows.astype(coarse, copy=False)
    size = cast.dtype.itemsize
    raw = np.ascontiguousarray(cast).view(f"u{min(size, 8)}").astype(np.uint64)
    return raw if size <= 8 else raw.reshape(len(rows), -1, size // 8).sum(axis=2, dtype=np.uint64)


@lru_cache(maxsize=2)
def _factors(count: int) -> Words:
    """Returns odd numbers; the first of them are the same for any count."""
    made: Words = np.random.default_rng(0x7DB6).integers(0, 1 << 64, size=max(count, 1 << 16), dtype=np.uint64)
    made |= np.uint64(1)
    return made
