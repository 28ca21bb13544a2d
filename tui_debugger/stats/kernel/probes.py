"""Products that are held against random vectors of signs: the calls of ``probes.c``."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64, Int64
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.kernel import KINDS, NO_SENSE, TABLE8, address, checked, described, function, kind_of

PROBES: Final = 8
"""Sums with signs that are made of each group of elements."""
_GROUPS: Final = 8
_LANES: Final = 16
"""``GROUPS`` of ``probes.c``, and the most of ``LANES``."""


def signed_rows(matrix: Array, group: int, signs: Float32) -> tuple[Float64, Float64]:
    """Returns, of each row and each group of columns, sums with signs and the sum of squares.

    Args:
        matrix: contiguous.
        group: columns of a group.
        signs: ``PROBES`` for each column.

    Returns:
        For each row ``PROBES`` sums of each group; for each row the squares of each group.
    """
    rows, width = matrix.shape
    groups = -(-width // group)
    sums, squares = np.empty((rows, groups * PROBES)), np.empty((rows, groups))
    call = function("signed_rows", "pqqqppp")
    checked(call(described(matrix), rows, width, group, address(signs), address(sums), address(squares)))
    return sums, squares


def signed_columns(matrix: Array, group: int, signs: Float32) -> tuple[Float64, Float64]:
    """Returns the same of each column, for each group of rows; ``signs`` has ``PROBES`` for each row.

    Returns:
        For each group ``PROBES`` rows of sums; for each group a row of squares.
    """
    rows, width = matrix.shape
    groups = -(-rows // group)
    sums, squares = np.empty((groups * PROBES, width)), np.empty((groups, width))
    call = function("signed_columns", "pqqqppp")
    checked(call(described(matrix), rows, width, group, address(signs), address(sums), address(squares)))
    return sums, squares


_SINGLE: Final = frozenset([TABLE8, *(KINDS[name] for name in ("float32", "float16", "bfloat16", "int16", "uint16"))])
"""Kinds of elements that float32 holds: ``fits_single`` of ``kernel.h``."""


def is_single(*dtypes: DType) -> bool:
    """Tells whether float32 holds all values of these types that the kernel knows: it multiplies them."""
    return all((kind := kind_of(each.newbyteorder("="))) is not None and kind.number in _SINGLE for each in dtypes)


class RightFactor(NamedTuple):
    """The right factor of a product, and what is added to it, by random vectors.

    Attributes:
        columns: for each term ``PROBES`` sums of each group of outputs.
        squares: for each term the squares of each group; None: sizes are not needed.
        added: ``PROBES`` sums of each group of what is added.
        added_squares: the squares of these.
        factor: of the product.
    """

    columns: Float32
    squares: Float32 | None
    added: Float64
    added_squares: Float64
    factor: float = 1.0


class ProbeErrors(NamedTuple):
    """The errors of rows of a product: for each row a number of each group.

    Attributes:
        error: the mean square of what the sums with signs are off by.
        size: the sum of the squares of all terms.
        value: the sum of the squares of what was recorded.
    """

    error: Float64
    size: Float64
    value: Float64


def probed(left: Array, right: RightFactor, recorded: Array, group: int, signs: Float32) -> ProbeErrors:
    """Returns how far a recorded product is off.

    Each 64 terms are summed up in float32, all of these in float64. It takes one core only.

    Args:
        left: contiguous, of a type that float32 holds.
        right: what it is multiplied with.
        recorded: the product.
        group: outputs that are taken together.
        signs: ``PROBES`` for each output of a row.
    """
    (rows, terms), width = left.shape, recorded.shape[1]
    groups = -(-width // group)
    shapes = (terms, groups * PROBES), (terms, groups), (groups * PROBES,), (groups,)
    parts: tuple[Array | None, ...] = right[:4]
    pairs = zip(parts, shapes, strict=True)
    if any(each is not None and each.shape != shape for each, shape in pairs) or len(recorded) != rows:
        raise ValueError(NO_SENSE)
    work = np.empty(terms * (_GROUPS * PROBES + _LANES) + _LANES, np.float32)
    found = ProbeErrors(*(np.empty((rows, groups)) for _ in range(3)))
    held: tuple[Array | None, ...] = (
        signs,
        right.columns,
        right.squares,
        right.added,
        right.added_squares,
        work,
        *found,
    )
    sizes = struct.pack("=qqqq", rows, terms, width, group)
    call = sizes + described(left) + described(recorded) + struct.pack("=d9q", right.factor, *map(_place, held))
    checked(function("probed", "p")(call))
    return found


def _place(array: Array | None) -> int:
    return 0 if array is None else address(array)


BEYOND: Final = 32
"""Numbers that planes have beyond those that any term looks at: ``BEYOND`` of ``probes.c``."""


def convolved(
    planes: Float32, offsets: Int64, filters: Float32, squares: Float32 | None, places: int
) -> tuple[Float64, Float64]:
    """Returns what filters make of planes in which each term looks at a number, the same way from every place.

    Args:
        planes: numbers, and ``BEYOND`` more.
        offsets: where each term looks from the first place.
        filters: for each group and each term ``PROBES`` numbers.
        squares: for each group and each term one; None: their sums are not needed, and 0.
        places: how many there are.

    Returns:
        ``PROBES`` sums of each group for each place; for each group the sums of squares.
    """
    groups, terms = filters.shape[:2]
    if filters.shape[2:] != (PROBES,) or offsets.shape != (terms,):
        raise ValueError(NO_SENSE)
    if squares is not None and squares.shape != (groups, terms):
        raise ValueError(NO_SENSE)
    made, sizes = np.empty((groups, PROBES, places)), np.empty((groups, places))
    held: tuple[Array | None, ...] = (planes, offsets, filters, squares, made, sizes)
    call = struct.pack("=4q6q", terms, places, groups, planes.size, *map(_place, held))
    checked(function("convolved", "p")(call))
    return made, sizes


def singles(values: Array) -> Float32:
    """Returns an array of a type that float32 holds in float32."""
    to = np.empty(values.shape, np.float32)
    checked(function("singles", "pqp")(described(values), values.size, address(to)))
    return to
