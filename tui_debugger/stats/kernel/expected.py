"""Computes operators, and tells whether recorded outputs are surely right.

The calls of ``expected.c``, and of ``attention.c``: a head of an attention.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.stats.kernel import KINDS, NO_SENSE, address, checked, described, function

ERROR: Final = 2.0**-29
"""The largest error of exp, tanh and the error function, as a part of their value."""
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


class KernelOperand(NamedTuple):
    """An input: element i of the output needs ``values[i // repeat % period]``; ``values[i]`` where ``period`` is 0."""

    values: Array
    repeat: int = 1
    period: int = 0

    def packed(self) -> bytes:
        """Returns the operand as the kernel reads it; the caller keeps the values alive."""
        return described(self.values) + struct.pack("=qq", self.repeat, self.period)


class ScaledTerms(NamedTuple):
    """The factors and summands of a normalisation, as many elements as a row; and what it adds to the variance."""

    scale: Array
    shift: Array
    epsilon: float


class ErrorLimits(NamedTuple):
    """What an error may be: so many times the value, the size of its terms, what is rounded on the way; and more."""

    value: float
    size: float
    narrow: float
    tiny: float


class KernelAnswer(NamedTuple):
    """The answer of the kernel about some elements.

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


class OperatorCall:
    """An operator with its inputs and its recorded output, of which parts can be looked at."""

    def __init__(self, name: str, operator: int, rest: bytes, limits: ErrorLimits, held: Sequence[object]) -> None:
        self._name, self._operator, self._rest, self._held = name, operator, rest, tuple(held)
        self.limits = limits

    def check(self, first: int, count: int) -> KernelAnswer:
        """Looks at elements, or rows, of the output."""
        found = bytearray(_FOUND.size)
        at = address(np.frombuffer(found, np.uint8))
        checked(function(self._name, "pp")(struct.pack("=qqq", self._operator, first, count) + self._rest, at))
        return KernelAnswer(*_FOUND.unpack(found))


def elementwise(
    operator: Elementwise,
    inputs: Sequence[KernelOperand],
    recorded: Array,
    limits: ErrorLimits,
    bounds: tuple[float, float] = (0.0, 0.0),
) -> OperatorCall:
    """An operator by element: one to three inputs; ``bounds`` are its numbers (of ``CLAMP`` both)."""
    packed = b"".join([each.packed() for each in inputs]) + bytes(40 * (3 - len(inputs)))
    table = _table_for(operator, inputs[0])
    place = 0 if table is None else address(table)
    rest = packed + described(recorded) + struct.pack("=4d2dq", *limits, *bounds, place)
    return OperatorCall("elementwise", operator, rest, limits, (*inputs, recorded, table))


_COSTLY: Final = frozenset(
    (
        *(Elementwise.EXP, Elementwise.TANH, Elementwise.SIGMOID, Elementwise.SILU),
        *(Elementwise.GELU, Elementwise.GELU_TANH, Elementwise.RSQRT),
    )
)
"""Operators of which a look into a table is faster."""
_MANY: Final = 1 << 17
"""Elements from which a table is worth making."""


def _table_for(operator: Elementwise, left: KernelOperand) -> Float64 | None:
    """The table of an operator by element, where that saves time: what it makes of all numbers of 16 bits."""
    dtype = left.values.dtype
    if operator not in _COSTLY or left.period or left.values.size < _MANY or dtype.name not in {"float16", "bfloat16"}:
        return None
    return table_of(operator, KINDS[dtype.name])


@lru_cache(maxsize=4)
def table_of(operator: Elementwise, kind: int) -> Float64:
    """Returns what an operator makes of every pattern of 16 bits of a kind, and the size of that: in rows."""
    table = np.empty((1 << 16, 2))
    checked(function("table_of", "qqp")(operator, kind, address(table)))
    table.flags.writeable = False
    return table


def by_row(
    operator: ByRow, rows: tuple[Array, int], recorded: Array, limits: ErrorLimits, scaled: ScaledTerms | None = None
) -> OperatorCall:
    """An operator by row: ``rows`` are the elements, and how many of them are one."""
    values, width = rows
    work = np.empty(4 * width if operator < ByRow.SUM else _CHUNK, np.float64)
    more = described(scaled.scale) + described(scaled.shift) if scaled is not None else bytes(48)
    rest = struct.pack("=q", width) + described(values) + more + described(recorded)
    rest += struct.pack("=5dq", *limits, scaled.epsilon if scaled is not None else 0.0, address(work))
    return OperatorCall("rows", operator, rest, limits, (values, scaled, recorded, work))


def log_sums(rows: Array) -> tuple[Float64, Float64]:
    """Returns of each row of a matrix the largest element, and the logarithm of the sum of exp(x - largest)."""
    count, width = rows.shape
    top, sums, work = np.empty(count), np.empty(count), np.empty(width)
    call = function("log_sums", "pqqppp")
    checked(call(described(rows), count, width, address(work), address(top), address(sums)))
    return top, sums


ATTENTION_COLUMNS: Final = 12
"""Columns that are averaged; the last one has to be all ones."""
_ATTENTION_WIDEST: Final = 64
_ATTENTION_ROWS: Final = 12
"""The most of ``TILE_WIDTH``, and ``ROWS``, of ``attention.c``."""


def attended(
    query: Array, key: Array, columns: Float32, mask: Array | None, *, causal: bool, factor: float
) -> tuple[Float64, Float64]:
    """Returns ``softmax(query @ key.T * factor + mask) @ columns``, in float32.

    Args:
        query: of a head, in a type that float32 holds.
        key: the same.
        columns: ``ATTENTION_COLUMNS`` for each key, of which the last one is all ones.
        mask: for each row and key whether it is seen, or what is added to its score.
        causal: a row sees only the keys up to its own number.
        factor: of the scores.

    Returns:
        For each row the averages of the columns, and the largest score.
    """
    (rows, width), keys = query.shape, len(key)
    if columns.shape != (keys, ATTENTION_COLUMNS) or key.shape != (keys, width) or rows < 0:
        raise ValueError(NO_SENSE)
    if mask is not None and mask.shape != (rows, keys):
        raise ValueError(NO_SENSE)
    kind = 0 if mask is None else 1 if mask.dtype == np.bool_ else 2
    padded = keys + _ATTENTION_WIDEST
    work = np.empty(padded * (width + 16 + _ATTENTION_ROWS + 1) + _ATTENTION_ROWS * width + 16, np.float32)
    made, top = np.empty((rows, ATTENTION_COLUMNS)), np.empty(rows)
    call = struct.pack("=5q", rows, keys, width, kind, causal) + described(query) + described(key)
    call += bytes(24) if mask is None else described(mask)
    call += struct.pack("=d4q", factor, *(address(each) for each in (columns, work, made, top)))
    checked(function("attended", "p")(call))
    return made, top
