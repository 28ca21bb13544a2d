"""What operators make of their inputs, and whether a recorded output is surely right: the calls of ``expected.c``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.kernel import KINDS, NO_SENSE, TABLE8, address, checked, described, function, kind_of

ERROR: Final = 2.0**-29
"""How far exp, tanh and the error function are off at most, as a part of their value."""
PROBES: Final = 8
"""Sums with signs that are made of each group of elements."""
_CHUNK: Final = 2048
"""``CHUNK`` of ``kernel.h``."""


class Elementwise(IntEnum):
    """Operators that look at one element at a time, by their numbers in ``expected.c``."""

    SAME = 0
    NEGATIVE = 1
    MAGNITUDE = 2
    RELU = 3
    EXP = 4
    TANH = 5
    SIGMOID = 6
    SILU = 7
    GELU = 8
    GELU_TANH = 9
    SQRT = 10
    RSQRT = 11
    RECIPROCAL = 12
    SQUARE = 13
    CLAMP = 14
    LEAKY_RELU = 15
    DROPOUT = 16
    ADD = 17
    SUBTRACT = 18
    MULTIPLY = 19
    DIVIDE = 20
    LARGER = 21
    SMALLER = 22
    WHERE = 23


class ByRow(IntEnum):
    """Operators that look at one row at a time; from ``SUM`` on each row makes one number."""

    SOFTMAX = 0
    LOG_SOFTMAX = 1
    LAYER_NORM = 2
    RMS_NORM = 3
    SUM = 4
    MEAN = 5


class Operand(NamedTuple):
    """An input: element i of the output needs ``values[i // repeat % period]``; ``values[i]`` where ``period`` is 0."""

    values: Array
    repeat: int = 1
    period: int = 0

    def packed(self) -> bytes:
        """As the kernel reads it; whoever passes it on holds the values."""
        return described(self.values) + struct.pack("=qq", self.repeat, self.period)


class Scaled(NamedTuple):
    """What a normalisation multiplies with and adds, as many elements as a row; and what it adds to the variance."""

    scale: Array
    shift: Array
    epsilon: float


class Limits(NamedTuple):
    """What an error may be: so many times the value, the size of its terms, what is rounded on the way; and more."""

    value: float
    size: float
    narrow: float
    tiny: float


class Found(NamedTuple):
    """What the kernel says of some elements.

    Attributes:
        error, value, inside: sums of the squares of errors, of values, and of what is allowed for what was rounded on
            the way to them.
        first, recorded: the first value, and what was recorded in its place.
        worst: where they are not surely right, the largest error in what is allowed; inf where that is no number.
        state: 0: not surely right; 1: right, as the value's own rounding explains; 2: right.
    """

    error: float
    value: float
    inside: float
    first: float
    recorded: float
    worst: float
    state: int


_FOUND: Final = struct.Struct("=6dq")


class Call:
    """An operator with its inputs and its recorded output, of which parts can be looked at."""

    def __init__(self, name: str, operator: int, rest: bytes, limits: Limits, held: Sequence[object]) -> None:
        self._name, self._operator, self._rest, self._held = name, operator, rest, tuple(held)
        self.limits = limits

    def look(self, first: int, count: int) -> Found:
        """Looks at elements, or rows, of the output."""
        found = bytearray(_FOUND.size)
        at = address(np.frombuffer(found, np.uint8))
        checked(function(self._name, "pp")(struct.pack("=qqq", self._operator, first, count) + self._rest, at))
        return Found(*_FOUND.unpack(found))


def elementwise(
    operator: Elementwise,
    inputs: Sequence[Operand],
    recorded: Array,
    limits: Limits,
    bounds: tuple[float, float] = (0.0, 0.0),
) -> Call:
    """An operator by element: one to three inputs; ``bounds`` are its numbers (of ``CLAMP`` both)."""
    packed = b"".join([each.packed() for each in inputs]) + bytes(40 * (3 - len(inputs)))
    rest = packed + described(recorded) + struct.pack("=4d2d", *limits, *bounds)
    return Call("elementwise", operator, rest, limits, (*inputs, recorded))


def by_row(
    operator: ByRow, rows: tuple[Array, int], recorded: Array, limits: Limits, scaled: Scaled | None = None
) -> Call:
    """An operator by row: ``rows`` are the elements, and how many of them are one."""
    values, width = rows
    work = np.empty(4 * width if operator < ByRow.SUM else _CHUNK, np.float64)
    more = described(scaled.scale) + described(scaled.shift) if scaled is not None else bytes(48)
    rest = struct.pack("=q", width) + described(values) + more + described(recorded)
    rest += struct.pack("=5dq", *limits, scaled.epsilon if scaled is not None else 0.0, address(work))
    return Call("rows", operator, rest, limits, (values, scaled, recorded, work))


def log_sums(rows: Array) -> tuple[Float64, Float64]:
    """Returns of each row of a matrix the largest element, and the logarithm of the sum of exp(x - largest)."""
    count, width = rows.shape
    top, sums, work = np.empty(count), np.empty(count), np.empty(width)
    call = function("log_sums", "pqqppp")
    checked(call(described(rows), count, width, address(work), address(top), address(sums)))
    return top, sums


def signed_rows(matrix: Array, group: int, signs: Float64) -> tuple[Float64, Float64]:
    """Returns, of each row and each group of columns, sums with signs and the sum of squares.

    Args:
        matrix: contiguous.
        group: columns of a group.
        signs: ``PROBES`` rows as wide as the matrix.

    Returns:
        For each row ``PROBES`` sums of each group; for each row the squares of each group.
    """
    rows, width = matrix.shape
    groups = -(-width // group)
    sums, squares = np.empty((rows, groups * PROBES)), np.empty((rows, groups))
    call = function("signed_rows", "pqqqppp")
    checked(call(described(matrix), rows, width, group, address(signs), address(sums), address(squares)))
    return sums, squares


def signed_columns(matrix: Array, group: int, signs: Float64) -> tuple[Float64, Float64]:
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


class Squared(IntEnum):
    """Which matrix of a product is taken by the squares of its elements."""

    NEITHER = 0
    LEFT = 1
    RIGHT = 2


def is_single(*dtypes: DType) -> bool:
    """Tells whether float32 holds all values of these types that the kernel knows, and ``product`` takes them."""
    return all((kind := kind_of(each.newbyteorder("="))) is not None and kind.number in _SINGLE for each in dtypes)


def product(left: Array, right: Array, squared: Squared = Squared.NEITHER) -> Float64:
    """Returns the product of two matrices whose types float32 holds.

    Each 64 terms are summed up in float32, all of these in float64. It takes one core only.
    """
    rows, terms = left.shape
    width = right.shape[1]
    if len(right) != terms:
        raise ValueError(NO_SENSE)
    to = np.empty((rows, width))
    call = function("product", "ppqqqip")
    checked(call(described(left), described(right), rows, terms, width, squared, address(to)))
    return to


def singles(values: Array) -> Float32:
    """Returns an array of a type that float32 holds in float32."""
    to = np.empty(values.shape, np.float32)
    checked(function("singles", "pqp")(described(values), values.size, address(to)))
    return to
