"""Products checked against random sign vectors: the calls of ``probes.c``."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64, Int64
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.kernel import KINDS, NO_SENSE, TABLE8, address, call, described, kind_of

PROBES: Final = 8
"""Signed sums for each group of elements."""
_GROUPS: Final = 8
_LANES: Final = 16
"""``GROUPS`` of ``probes.c``, and the most of ``LANES``."""


def signed_rows(matrix: Array, group: int, signs: Float32) -> tuple[Float64, Float64]:
    """Returns for each row ``PROBES`` signed sums of each group of ``group`` columns, and each group's sum of squares.

    ``matrix`` is contiguous; ``signs`` has ``PROBES`` for each column.
    """
    rows, width = matrix.shape
    groups = -(-width // group)
    sums, squares = np.empty((rows, groups * PROBES)), np.empty((rows, groups))
    call("signed_rows", "eqqqppp", matrix, rows, width, group, signs, sums, squares)
    return sums, squares


def signed_columns(matrix: Array, group: int, signs: Float32) -> tuple[Float64, Float64]:
    """Returns for each group of rows ``PROBES`` rows of signed sums, and a row of sums of squares.

    ``signs`` has ``PROBES`` for each row.
    """
    rows, width = matrix.shape
    groups = -(-rows // group)
    sums, squares = np.empty((groups * PROBES, width)), np.empty((groups, width))
    call("signed_columns", "eqqqppp", matrix, rows, width, group, signs, sums, squares)
    return sums, squares


_SINGLE: Final = frozenset([TABLE8, *(KINDS[name] for name in ("float32", "float16", "bfloat16", "int16", "uint16"))])
"""Kinds of elements that float32 holds exactly: ``fits_single`` of ``kernel.h``."""


def is_single(*dtypes: DType) -> bool:
    """Tells whether the kernel can multiply these types: it knows them, and float32 holds all their values."""
    return all((kind := kind_of(each.newbyteorder("="))) is not None and kind.number in _SINGLE for each in dtypes)


class RightFactor(NamedTuple):
    """The right factor of a product, and an addend, by random vectors.

    ``columns`` has for each term ``PROBES`` sums of each group of outputs, ``squares`` the squares of each group (None:
    sizes are not needed); ``added`` and ``added_squares`` likewise for the addend.
    """

    columns: Float32
    squares: Float32 | None
    added: Float64
    added_squares: Float64
    factor: float = 1.0


class ProbeErrors(NamedTuple):
    """The errors of a product, each with shape (rows, groups).

    Mean square of the signed sums' errors; sum of squares of all terms; sum of squares of the recorded outputs.
    """

    error: Float64
    size: Float64
    value: Float64


def probed(left: Array, right: RightFactor, recorded: Array, group: int, signs: Float32) -> ProbeErrors:
    """Returns the errors of a recorded product; uses one core.

    64 terms each are summed up in float32, these sums in float64. ``left`` is contiguous, of a type that float32 holds;
    ``group`` outputs are taken together; ``signs`` has ``PROBES`` for each output of a row.
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
    packed = sizes + described(left) + described(recorded) + struct.pack("=d9q", right.factor, *map(_place, held))
    call("probed", "p", packed)
    return found


def _place(array: Array | None) -> int:
    return 0 if array is None else address(array)


BEYOND: Final = 32
"""Floats that must follow the planes: ``BEYOND`` of ``probes.c``."""


def convolved(
    planes: Float32, offsets: Int64, filters: Float32, squares: Float32 | None, places: int
) -> tuple[Float64, Float64]:
    """Applies filters to planes: each term reads the plane at a fixed offset from every one of ``places`` places.

    ``planes`` are followed by ``BEYOND`` more floats. ``filters``: (groups, terms, ``PROBES``); ``squares``: (groups,
    terms) or None. Returns sums (groups, ``PROBES``, places), and sums of squares (groups, places).
    """
    groups, terms = filters.shape[:2]
    if filters.shape[2:] != (PROBES,) or offsets.shape != (terms,):
        raise ValueError(NO_SENSE)
    if squares is not None and squares.shape != (groups, terms):
        raise ValueError(NO_SENSE)
    made, sizes = np.empty((groups, PROBES, places)), np.empty((groups, places))
    held: tuple[Array | None, ...] = (planes, offsets, filters, squares, made, sizes)
    call("convolved", "p", struct.pack("=4q6q", terms, places, groups, planes.size, *map(_place, held)))
    return made, sizes


def singles(values: Array) -> Float32:
    """Converts an array of a type that float32 holds."""
    to = np.empty(values.shape, np.float32)
    call("singles", "eqp", values, values.size, to)
    return to
