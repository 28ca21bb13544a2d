"""Digests of all rows and columns of a weight: equal rows have equal digests, also in different weights.

A digest is the sum, modulo 2^64, of the elements as whole numbers times fixed random odd numbers. Where one run holds
weights in fp8, only the signs of elements are digested, because rounding does not change them.
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
"""The number of elements that are processed at once."""
_OF_LENGTH: Final = 0x9E3779B97F4A7C15
_LEAST_SIGNS: Final = 32
"""Signs of shorter rows do not identify them."""


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of rows and columns of a weight; for a stack, of all its matrices. None for rows of one value."""

    rows: tuple[int | None, ...]
    columns: tuple[int | None, ...]


def rows_of(array: Array, *, swapped: bool) -> Array:
    """Returns a weight as rows: a vector as rows of one element, a stack as the rows of all its matrices."""
    if array.ndim < 2:
        return array.reshape(-1, 1)
    turned = np.swapaxes(array, -1, -2) if swapped else array
    return np.ascontiguousarray(turned).reshape(-1, turned.shape[-1])


def rows_and_width(array: Array, *, swapped: bool) -> tuple[int, int]:
    width = 1 if array.ndim < 2 else array.shape[-2 if swapped else -1]
    return array.size // max(width, 1), width


def digests(array: Array, coarse: np.dtype[np.generic] | None, *, signs: bool = False) -> Digests:
    """Returns the digests of a weight; ``coarse`` is the type to which floating-point elements are cast first."""
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
    if signs:
        return np.signbit(rows.astype(np.float32)).astype(np.uint64)
    cast = rows if coarse is None or rows.dtype.kind in "biu" else rows.astype(coarse, copy=False)
    size = cast.dtype.itemsize
    raw = np.ascontiguousarray(cast).view(f"u{min(size, 8)}").astype(np.uint64)
    return raw if size <= 8 else raw.reshape(len(rows), -1, size // 8).sum(axis=2, dtype=np.uint64)


@lru_cache(maxsize=2)
def _factors(count: int) -> Words:
    """Random odd numbers; the first ones do not depend on the count."""
    made: Words = np.random.default_rng(0x7DB6).integers(0, 1 << 64, size=max(count, 1 << 16), dtype=np.uint64)
    made |= np.uint64(1)
    return made
