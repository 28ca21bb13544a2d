"""Values as whole numbers that sort like them: what percentiles and histograms of any size are counted with.

The bits of a float, read as a whole number, rise with its magnitude; with the bits of negative ones turned over they
rise with the value. The upper 16 bits name one of 65536 classes (for float32 sign, exponent and 7 bits of the
mantissa), so that one pass with little memory tells how many values lie in each class. What is asked after that
concerns a few classes only, and one more pass over their elements answers it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.blocks import BLOCK, SINGLE, Array, Doubles, Singles, doubles, exact, pieces
from tui_debugger.analysis.dtypes import DType, is_numeric
from tui_debugger.model import Progress, ProgressFn, no_progress

CLASSES: Final = 1 << 16
Int64 = npt.NDArray[np.int64]
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

    def of(self, values: Singles | Doubles) -> Keys:
        """The keys of values of this kind; −0 counts as 0."""
        bits = (values + self.value.type(0)).view(self.key)
        signs = bits.view(f"i{self.bits // 8}") >> (self.bits - 1)  # all bits of negative ones, none of the others
        keys: Keys = signs.view(self.key)
        keys |= self.key.type(1 << (self.bits - 1))
        keys ^= bits
        return keys

    def key_of(self, value: float, *, above: bool = False) -> int:
        """The least key of a value not below ``value``, with ``above`` of a greater one; at most the key of Inf."""
        with np.errstate(all="ignore"):
            near = self.value.type(value) + self.value.type(0)
            if float(near) < value or (above and float(near) == value):
                near = np.nextafter(near, self.value.type(math.inf))
        return int(self.of(np.array([near], self.value))[0])

    def value_of(self, keys: Keys) -> Singles | Doubles:
        """The values of keys."""
        top = self.key.type(1 << (self.bits - 1))
        bits = keys ^ np.where(keys & top, top, ~self.key.type(0))
        values: Singles | Doubles = bits.astype(self.key).view(self.value)
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


def key_blocks(array: Array, kind: KeyKind, progress: ProgressFn, what: str) -> Iterator[Keys]:
    """The keys of all elements in pieces; complex ones by their magnitude. NaN has keys beyond the infinite ones."""
    done, total = 0, array.size
    for (piece,) in pieces(array):
        for start in range(0, len(piece), BLOCK):
            block = piece[start : start + BLOCK]
            progress(Progress(done, total, what))
            done += len(block)
            with np.errstate(all="ignore"):
                yield kind.of(exact(block) if kind is SINGLES else doubles(block))


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """How many elements each class holds.

    Attributes:
        kind: the keys.
        counts: elements by class, NaN and Inf included.
        below: elements below each class, 65537 of them.
        finite: finite elements; those below the first finite one are −Inf and NaN.
        first: elements with keys before the first finite one.
    """

    kind: KeyKind
    counts: Int64
    below: Int64
    finite: int
    first: int


def count_classes(array: Array, progress: ProgressFn = no_progress) -> ClassCounts:
    """Counts every element by its class, in one pass.

    Raises:
        TypeError: the element type is not numeric.
        CancelledError: from ``progress``.
    """
    kind = kind_of(array.dtype)
    low, high = kind.finite
    counts = np.zeros(CLASSES, np.int64)
    before = finite = 0
    for keys in key_blocks(array, kind, progress, "counting"):
        counts += np.bincount((keys >> kind.key.type(kind.shift)).astype(np.uint16), minlength=CLASSES)
        under = int(np.count_nonzero(keys < kind.key.type(low)))
        before += under
        finite += int(np.count_nonzero(keys < kind.key.type(high))) - under
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return ClassCounts(kind, counts, below, finite, before)


def count_below(
    array: Array, classes: ClassCounts, bounds: Sequence[int], progress: ProgressFn = no_progress
) -> list[int]:
    """How many elements have keys below each of ``bounds``; reads the array only when a bound lies inside a class.

    Args:
        array: what ``classes`` were counted of.
        classes: from ``count_classes``.
        bounds: keys, in any order.
        progress: may raise CancelledError.
    """
    kind = classes.kind
    shift, inner = kind.shift, (1 << kind.shift) - 1
    split = np.zeros(CLASSES, np.bool_)
    cut = sorted({bound for bound in bounds if bound & inner and classes.counts[bound >> shift]})
    split[[bound >> shift for bound in cut]] = True
    found: dict[int, int] = {}
    if cut:
        among = np.zeros(len(cut) + 1, np.int64)
        edges = np.array(cut, kind.key)
        for keys in key_blocks(array, kind, progress, "counting"):
            chosen = keys[split[(keys >> kind.key.type(shift)).astype(np.uint16)]]
            if len(chosen):
                among += np.bincount(np.searchsorted(edges, chosen, "right"), minlength=len(cut) + 1)
        in_split = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(split, classes.counts, 0))])
        sums = np.cumsum(among)
        found = {
            bound: int(classes.below[bound >> shift] - in_split[bound >> shift] + sums[i])
            for i, bound in enumerate(cut)
        }
    return [found[bound] if bound in found else int(classes.below[bound >> shift]) for bound in bounds]
