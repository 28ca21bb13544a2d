"""Values as whole numbers that sort like them: what percentiles and histograms of any size are counted with.

The bits of a float, read as a whole number, rise with its magnitude; with the bits of negative ones turned over they
rise with the value. The upper 16 bits name one of 65536 classes (for float32 sign, exponent and 7 bits of the
mantissa), so that one pass with little memory tells how many values lie in each class. What is asked after that
concerns a few classes only, and one more pass over their elements answers it exactly.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.blocks import BLOCK, SINGLE, doubles, exact
from tui_debugger.analysis.dtypes import DType, is_numeric
from tui_debugger.analysis.sharing import Checkpoint, Span
from tui_debugger.arrays import Float32, Float64, Mask

CLASSES: Final = 1 << 16
SIGN: Final = 1 << 15
ZERO_CLASS: Final = SIGN
"""The class of 0, and of positive numbers so small that their upper bits say nothing of them."""
CLASS_OF_BITS: Final = np.arange(CLASSES) ^ np.where(np.arange(CLASSES) & SIGN, CLASSES - 1, SIGN)
"""The class of each value of the upper 16 bits; but that of -0 is that of 0."""
Keys = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class KeyKind:
    """Keys of 32 or 64 bits.

    Attributes:
        bits: of a key.
        value: type of the values.
        key: type of the keys.
    """

    bits: int
    value: DType
    key: DType

    @property
    def shift(self) -> int:
        """Bits of a key below its class."""
        return self.bits - 16

    def of(self, values: Float32 | Float64) -> Keys:
        """The keys of values of this kind; −0 counts as 0."""
        bits = (values + self.value.type(0)).view(self.key)
        signs = bits.view(f"i{self.bits // 8}") >> (self.bits - 1)  # all bits of negative ones, none of the others
        keys: Keys = signs.view(self.key)
        keys |= self.key.type(1 << (self.bits - 1))
        keys ^= bits
        return keys

    @property
    def zero(self) -> int:
        """The key of 0."""
        return 1 << (self.bits - 1)

    def upper_bits(self, values: Float32 | Float64 | Keys) -> npt.NDArray[np.uint16]:
        """The upper 16 bits of every value, or key, as they are: a view."""
        parts = self.bits // 16
        return values.view(np.uint16)[parts - 1 if sys.byteorder == "little" else 0 :: parts]

    def key_of(self, value: float, *, above: bool = False) -> int:
        """The least key of a value not below ``value``, with ``above`` of a greater one; at most the key of Inf."""
        with np.errstate(all="ignore"):
            near = self.value.type(value) + self.value.type(0)
            if float(near) < value or (above and float(near) == value):
                near = np.nextafter(near, self.value.type(math.inf))
        return int(self.of(np.array([near], self.value))[0])

    def value_of(self, keys: Keys) -> Float32 | Float64:
        """The values of keys."""
        top = self.key.type(1 << (self.bits - 1))
        bits = keys ^ np.where(keys & top, top, ~self.key.type(0))
        values: Float32 | Float64 = bits.astype(self.key).view(self.value)
        return values

    @property
    def finite(self) -> tuple[int, int]:
        """The first key of a finite value, and the one after the last."""
        infinite = self.of(np.array([-math.inf, math.inf], self.value))
        return int(infinite[0]) + 1, int(infinite[1])


SINGLES: Final = KeyKind(32, np.dtype(np.float32), np.dtype(np.uint32))
DOUBLES: Final = KeyKind(64, np.dtype(np.float64), np.dtype(np.uint64))


def kind_of(dtype: DType) -> KeyKind:
    """32 bits where float32 holds every value of a type, else 64: see ``blocks.exact``.

    Raises:
        TypeError: the element type is not numeric.
    """
    if not is_numeric(dtype):
        msg = f"element type {dtype} has no order"
        raise TypeError(msg)
    return SINGLES if exact(np.zeros(1, dtype)).dtype == SINGLE else DOUBLES


def value_blocks(line: Any, kind: KeyKind, span: Span, checkpoint: Checkpoint) -> Iterator[Float32 | Float64]:
    """The elements of a span as float32 or float64, as the kind of their keys is, in pieces; complex: magnitudes."""
    for start in range(*span, BLOCK):
        checkpoint(start - span[0])
        block = np.asarray(line[start : min(start + BLOCK, span[1])])
        with np.errstate(all="ignore"):
            yield exact(block) if kind == SINGLES else doubles(block)


def chosen_keys(line: Any, kind: KeyKind, wanted: Mask, span: Span, checkpoint: Checkpoint) -> Iterator[Keys]:
    """The keys of the elements of a span that are in some classes, in pieces; those of 0 are left out.

    Args:
        line: see ``sharing.in_line``.
        kind: of the keys.
        wanted: the classes, as one of 65536 truths for each.
        span: first element and end.
        checkpoint: see ``sharing``.
    """
    by_bits = wanted[CLASS_OF_BITS]
    with_zero = wanted[ZERO_CLASS] or by_bits[SIGN]  # -0 has the upper bits of tiny negative numbers
    zero = kind.key.type(kind.zero)
    for values in value_blocks(line, kind, span, checkpoint):
        found = kind.of(values[np.take(by_bits, kind.upper_bits(values), out=_mask.room[: len(values)], mode="clip")])
        if with_zero:
            found = found[found != zero]
        if len(found):
            yield found


class _Room(threading.local):
    """A buffer of one thread."""

    def __init__(self) -> None:
        self.room = np.empty(BLOCK, np.bool_)


_mask: Final = _Room()
