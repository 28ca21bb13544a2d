"""Computes operators, and tells whether recorded outputs are surely right: ``expected.c``, ``attention.c``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from tui_debugger.arrays import Array, Float32, Float64
from tui_debugger.stats.kernel import KINDS, NO_SENSE, address, call, described

ERROR: Final = 2.0**-29
"""Largest relative error of exp, tanh and erf in the kernel."""
_CHUNK: Final = 2048
"""``CHUNK`` of ``kernel.h``."""


class Elementwise(IntEnum):
    """Operators by element, with their numbers in ``expected.c``."""

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
    """Operators by row; from ``SUM`` on each row gives one number."""

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
    """Factors and addends of a normalisation, one for each element of a row, and the epsilon added to the variance."""

    scale: Array
    shift: Array
    epsilon: float


class ErrorLimits(NamedTuple):
    """Allowed error: factors of the value, of the size of its terms, of intermediate rounding; an absolute part."""

    value: float
    size: float
    narrow: float
    tiny: float


class KernelAnswer(NamedTuple):
    """The kernel's answer about some elements.

    Attributes:
        error, value, inside: sums of squares of errors, of values, and of the error allowed for intermediate rounding.
        first, recorded: the first value, and the recorded element in its place.
        worst: largest error relative to the allowed one if not surely right; inf for an error that is no number.
        state: 0: not surely right; 1: right, within the value's own rounding; 2: right.
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
    """An operator with its inputs and its recorded output, of which parts can be checked."""

    def __init__(self, name: str, operator: int, rest: bytes, limits: ErrorLimits, held: Sequence[object]) -> None:
        self._name, self._operator, self._rest, self._held = name, operator, rest, tuple(held)
        self.limits = limits

    def check(self, first: int, count: int) -> KernelAnswer:
        """Checks ``count`` elements, or rows, of the output."""
        found = np.empty(_FOUND.size, np.uint8)
        call(self._name, "pp", struct.pack("=qqq", self._operator, first, count) + self._rest, found)
        return KernelAnswer(*_FOUND.unpack(found.tobytes()))


def elementwise(
    operator: Elementwise,
    inputs: Sequence[KernelOperand],
    recorded: Array,
    limits: ErrorLimits,
    bounds: tuple[float, float] = (0.0, 0.0),
) -> OperatorCall:
    """Makes a call with one to three inputs; ``bounds`` are the operator's parameters (for ``CLAMP`` both are used)."""
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
"""Operators for which a table look-up is faster."""
_MANY: Final = 1 << 17
"""Elements from which on a table is worth making."""


def _table_for(operator: Elementwise, left: KernelOperand) -> Float64 | None:
    """Returns the results for all 16-bit numbers, if a table saves time."""
    dtype = left.values.dtype
    if operator not in _COSTLY or left.period or left.values.size < _MANY or dtype.name not in {"float16", "bfloat16"}:
        return None
    return table_of(operator, KINDS[dtype.name])


@lru_cache(maxsize=4)
def table_of(operator: Elementwise, kind: int) -> Float64:
    """Returns (result, its size) of an operator for every 16-bit pattern of a kind."""
    table = np.empty((1 << 16, 2))
    call("table_of", "qqp", operator, kind, table)
    table.flags.writeable = False
    return table


def by_row(
    operator: ByRow, rows: tuple[Array, int], recorded: Array, limits: ErrorLimits, scaled: ScaledTerms | None = None
) -> OperatorCall:
    """Makes a call for an operator by row; ``rows``: the elements, and the length of a row."""
    values, width = rows
    work = np.empty(4 * width if operator < ByRow.SUM else _CHUNK, np.float64)
    more = described(scaled.scale) + described(scaled.shift) if scaled is not None else bytes(48)
    rest = struct.pack("=q", width) + described(values) + more + described(recorded)
    rest += struct.pack("=5dq", *limits, scaled.epsilon if scaled is not None else 0.0, address(work))
    return OperatorCall("rows", operator, rest, limits, (values, scaled, recorded, work))


def log_sums(rows: Array) -> tuple[Float64, Float64]:
    """Returns for each row of a matrix the largest element, and log(sum(exp(x - largest)))."""
    count, width = rows.shape
    top, sums, work = np.empty(count), np.empty(count), np.empty(width)
    call("log_sums", "eqqppp", rows, count, width, work, top, sums)
    return top, sums


ATTENTION_COLUMNS: Final = 12
"""Columns that are averaged; the last one must be all ones."""
_ATTENTION_WIDEST: Final = 64
_ATTENTION_ROWS: Final = 12
"""The most of ``TILE_WIDTH``, and ``ROWS``, of ``attention.c``."""


def attended(
    query: Array, key: Array, columns: Float32, mask: Array | None, *, causal: bool, factor: float
) -> tuple[Float64, Float64]:
    """Returns ``softmax(query @ key.T * factor + mask) @ columns`` of one head, and the largest score of each row.

    ``query`` and ``key`` are of a type that float32 holds. ``columns`` has ``ATTENTION_COLUMNS`` for each key, the last
    one all ones. ``mask`` has for each row and key whether it is seen (bool), or the addend of its score. ``causal``: a
    row sees only keys up to its own number.
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
    packed = struct.pack("=5q", rows, keys, width, kind, causal) + described(query) + described(key)
    packed += bytes(24) if mask is None else described(mask)
    call("attended", "p", packed + struct.pack("=d4q", factor, *map(address, (columns, work, made, top))))
    return made, top
