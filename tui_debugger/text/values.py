"""Values of a tensor as text, and slices such as ``[0, :, 3:9, -1]``: the 2-D window of an N-D tensor to show."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np

from tui_debugger.arrays import Array
from tui_debugger.errors import BadSliceError
from tui_debugger.stats.dtypes import DType, name_of
from tui_debugger.stats.npy import part_of
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import NONE

MAX_FREE = 2
"""A screen has rows and columns."""
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True)
class Slice:
    """A checked slice: an index (never negative) or a range (maybe backwards) per dimension, and its canonical text."""

    entries: tuple[int | range, ...]
    text: str

    @property
    def free(self) -> tuple[int, ...]:
        """The dimensions that stay: the last one runs along the columns, the one before along the rows."""
        return tuple(i for i, entry in enumerate(self.entries) if isinstance(entry, range))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the window, one number per free dimension."""
        return tuple(len(entry) for entry in self.entries if isinstance(entry, range))

    def index(self, *cell: int) -> tuple[int, ...]:
        """Returns the tensor's own index of a cell of the window (one number per free dimension)."""
        position = iter(cell)
        return tuple(entry[next(position)] if isinstance(entry, range) else entry for entry in self.entries)


def default_slice(shape: Sequence[int]) -> str:
    """Returns the first plane: the last two dimensions free, index 0 in the others; empty dimensions are free."""
    order = sorted(range(len(shape)), key=lambda i: (shape[i] != 0, -i))
    free = set(order[:MAX_FREE])
    return "[" + ", ".join(":" if i in free else "0" for i in range(len(shape))) + "]"


def parse_slice(text: str, shape: Sequence[int]) -> Slice:
    """Reads slice text; brackets are optional, ``...`` stands for the missing dimensions. Raises BadSliceError."""
    words = _words(text)
    words = _expand(words, len(shape), text)
    entries = tuple(_entry(word, size, i, text) for i, (word, size) in enumerate(zip(words, shape, strict=True)))
    free = sum(isinstance(entry, range) for entry in entries)
    if free > MAX_FREE:
        msg = f"at most two dimensions can stay free, here {free}"
        raise BadSliceError(msg, where=text, hint=f"give an index in the others, for example {default_slice(shape)}")
    return Slice(entries, "[" + ", ".join(_canonical(e, n) for e, n in zip(entries, shape, strict=True)) + "]")


def apply(array: Array, window: Slice) -> Array:
    return part_of(array, window.entries)


def range_text(entry: range) -> str:
    if not entry:
        return "0:0"
    stop = "" if entry.stop < 0 else str(entry.stop)
    step = "" if entry.step == 1 else f":{entry.step}"
    return f"{entry.start}:{stop}{step}"


def _words(text: str) -> list[str]:
    body = text.strip()
    if body.startswith("[") != body.endswith("]"):
        msg = "the brackets do not match"
        raise BadSliceError(msg, where=text, hint="write it like [0, :, 3:9, :]")
    if body.startswith("["):
        body = body[1:-1].strip()
    return [word.strip() for word in body.split(",")] if body else []


def _expand(words: list[str], rank: int, text: str) -> list[str]:
    dots = words.count("...")
    if dots > 1:
        msg = "'...' can stand only once"
        raise BadSliceError(msg, where=text)
    if dots and len(words) - 1 <= rank:
        at = words.index("...")
        return [*words[:at], *[":"] * (rank - len(words) + 1), *words[at + 1 :]]
    if len(words) != rank:
        msg = f"the tensor has {rank} dimensions, the slice {len(words) - dots} entries"
        raise BadSliceError(msg, where=text, hint="one entry per dimension, or '...' for the rest")
    return words


def _entry(word: str, size: int, dimension: int, text: str) -> int | range:
    if ":" in word:
        parts = [_number(part, text) if part.strip() else None for part in word.split(":")]
        if len(parts) > 3:
            msg = f"{word!r} has too many colons"
            raise BadSliceError(msg, where=text, hint="start:stop or start:stop:step")
        if len(parts) == 3 and parts[2] == 0:
            msg = "a step of 0 goes nowhere"
            raise BadSliceError(msg, where=text)
        return range(size)[slice(*parts)]
    index = _number(word, text)
    if not -size <= index < size:
        what = f"index {index} is outside dimension {dimension}, which has {size} elements"
        raise BadSliceError(what if size else "the tensor is empty", where=text)
    return index % size


def _number(word: str, text: str) -> int:
    if not _INTEGER.fullmatch(word.strip()):
        msg = f"{word!r} is not a whole number"
        raise BadSliceError(msg, where=text, hint="write it like [0, :, 3:9, :]")
    return int(word)


def _canonical(entry: int | range, size: int) -> str:
    if isinstance(entry, int):
        return str(entry)
    if entry == range(size):
        return ":"
    return range_text(entry)


MAX_PRECISION = 10
LARGE = 1e6
"""From here on a decimal number is wider than its scientific form and harder to read."""


class Family(Enum):
    """How the elements of an array are written."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    COMPLEX = "complex"
    OTHER = "other"


class CellKind(IntEnum):
    """The content of a cell, for its colour. The text says it too: colour is never the only sign."""

    NORMAL = 0
    ZERO = 1
    NAN = 2
    INF = 3
    OUTSIDE = 4
    """A difference beyond the tolerance."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """The form of floating-point cells: ``precision`` (0 to 10) digits after the point; ``scientific``: always."""

    precision: int = 4
    scientific: bool = False

    def finer(self, by: int) -> NumberFormat:
        return replace(self, precision=min(MAX_PRECISION, max(0, self.precision + by)))

    def toggled(self) -> NumberFormat:
        return replace(self, scientific=not self.scientific)


def family(dtype: np.dtype[Any]) -> Family:
    """Returns the family of an element type; the types of ``ml_dtypes`` (bfloat16, fp8 ...) are floats or ints."""
    if dtype.kind in "biufc":
        return {"b": Family.BOOL, "i": Family.INT, "u": Family.INT, "f": Family.FLOAT, "c": Family.COMPLEX}[dtype.kind]
    if dtype.type.__module__.startswith("ml_dtypes"):
        return Family.INT if "int" in dtype.name else Family.FLOAT
    return Family.OTHER


def float_text(value: float, form: NumberFormat) -> str:
    """Returns one number. A nonzero value never reads as zero: tiny ones become scientific."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    if form.scientific:
        return f"{value:.{form.precision}e}"
    decimal = f"{value:.{form.precision}f}" if abs(value) < LARGE else ""
    if not decimal.strip("-0."):
        return f"{value:.{min(form.precision, 3)}e}"
    return decimal


def complex_text(value: complex, form: NumberFormat) -> str:
    """Returns real and imaginary part, ``1.5+2j``."""
    imaginary = float_text(value.imag, form)
    sign = "" if imaginary.startswith(("+", "-")) else "+"
    return f"{float_text(value.real, form)}{sign}{imaginary}j"


def _float_kind(value: float) -> CellKind:
    if math.isfinite(value):
        return CellKind.NORMAL if value else CellKind.ZERO
    return CellKind.NAN if math.isnan(value) else CellKind.INF


def _complex_kind(value: complex) -> CellKind:
    return max(_float_kind(value.real), _float_kind(value.imag)) if value else CellKind.ZERO


def format_window(window: Array, form: NumberFormat) -> list[list[tuple[str, CellKind]]]:
    """Returns texts and kinds of the visible window, shape (rows, columns), row by row."""
    kind = family(window.dtype)
    if kind is Family.FLOAT:
        wide = window.astype(np.float64)
        return [[(float_text(v, form), _float_kind(v)) for v in row] for row in wide.tolist()]
    if kind is Family.COMPLEX:
        wide = window.astype(np.complex128)
        return [[(complex_text(v, form), _complex_kind(v)) for v in row] for row in wide.tolist()]
    if kind is Family.INT:
        return [[(str(int(v)), CellKind.NORMAL if v else CellKind.ZERO) for v in row] for row in window]
    if kind is Family.BOOL:
        return [[(str(v), CellKind.NORMAL if v else CellKind.ZERO) for v in row] for row in window.tolist()]
    return [[(clean(str(v)), CellKind.NORMAL) for v in row] for row in window]


def exact_text(value: Any) -> str:
    """Returns a scalar with every digit: the shortest text that reads back to the same value of its type."""
    text = str(value)
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text, clean(text))


MOST_BYTES: Final = 16
_MOST_BINARY: Final = 16
"""Bits up to which an integer is written out."""
_SCALE: Final = "float8_e8m0fnu"
"""A type that is nothing but an exponent."""


def bits_text(value: Any) -> str:
    """Returns the bytes of a numpy scalar (little end first) as one hexadecimal number, and the meaning of the bits."""
    element = np.asarray(value)
    kind = family(element.dtype)
    if kind is Family.COMPLEX:
        return f"real {bits_text(element.real[()])}  imag {bits_text(element.imag[()])}"
    raw = _bytes(element)
    shown = raw[:MOST_BYTES].hex(" ") + (" …" if len(raw) > MOST_BYTES else "")
    if kind is Family.OTHER:
        return f"bytes {shown}"
    number = int.from_bytes(raw, "little")
    words = [f"bytes {shown}", f"0x{number:0{2 * len(raw)}x}"]
    if kind is Family.FLOAT:
        words += _fields(element, number)
    elif kind is Family.INT and 8 * len(raw) <= _MOST_BINARY:
        words.append(f"0b{number:0{8 * len(raw)}b}")
    return "  ".join(words)


def _bytes(element: Any) -> bytes:
    little = element.astype(element.dtype.newbyteorder("<")) if element.dtype.kind in "iufU" else element
    return bytes(little.tobytes())


def _fields(element: Any, number: int) -> list[str]:
    dtype = element.dtype
    if name_of(dtype) == _SCALE:
        nan = number == 0xFF
        ulp = NONE if nan else f"{math.ldexp(1.0, number - 127):.6g}"
        return [f"exponent {number:08b}" + ("" if nan else f" (2^{number - 127})"), f"ULP {ulp}"]
    known = _format(dtype)
    if known is None:
        return []
    exponents, digits, lowest = known
    sign, exponent = number >> (exponents + digits), number >> digits & ((1 << exponents) - 1)
    mantissa = number & ((1 << digits) - 1)
    power = lowest + max(exponent, 1) - 1
    finite = math.isfinite(float(element))
    meaning = f" (2^{power}{', subnormal' if not exponent and mantissa else ''})" if finite and float(element) else ""
    ulp = f"{math.ldexp(1.0, power - digits):.6g}" if finite else NONE
    return [
        f"sign {sign}",
        f"exponent {exponent:0{exponents}b}{meaning}",
        f"mantissa {mantissa:0{digits}b}",
        f"ULP {ulp}",
    ]


def _format(dtype: DType) -> tuple[int, int, int] | None:
    """Returns the bits of exponent and mantissa, and the exponent of the smallest normal number; None if unknown."""
    if dtype.kind == "f" and dtype.itemsize > 8:
        return None
    about: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # it has no annotations
    digits = int(about.nmant)
    return 8 * dtype.itemsize - 1 - digits, digits, int(about.minexp)


Index = tuple[int, ...]
Texts = list[list[tuple[str, CellKind]]]
FOLDS = (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, 64, 80, 100)
"""Column counts for a folded line: numbers in which people can count."""


@dataclass(frozen=True, eq=False)
class ValueTable:
    """At most two free dimensions of a tensor as a table; windows of a memory map are read on demand.

    Two free dimensions are rows and columns. One is folded into rows of ``fold`` elements; none is a single cell.
    """

    array: Array
    view: Slice
    fold: int = 10

    stride: ClassVar[int] = 1
    """Lines of a row of elements: more than one if numbers of an element stand below each other."""

    @cached_property
    def lines(self) -> tuple[range, ...]:
        return tuple(entry for entry in self.view.entries if isinstance(entry, range))

    @cached_property
    def rows(self) -> int:
        if not self.lines:
            return 1
        first = len(self.lines[0])
        return -(-first // self.fold) if self.folded else first

    @cached_property
    def columns(self) -> int:
        if not self.lines:
            return 1
        return min(self.fold, len(self.lines[0])) if self.folded else len(self.lines[1])

    @property
    def empty(self) -> bool:
        return not (self.rows and self.columns)

    @property
    def folded(self) -> bool:
        return len(self.lines) == 1

    def cells(self, top: int, left: int, height: int, width: int) -> Array:
        """Returns the values of a window inside the table; a short last row is padded with its last element."""
        if not self.lines:
            return np.asarray(self.part(())).reshape(1, 1)
        if self.folded:
            return self._folded_cells(top, left, height, width)
        return self.part((self.lines[0][top : top + height], self.lines[1][left : left + width]))

    def _folded_cells(self, top: int, left: int, height: int, width: int) -> Array:
        values = self.part((self.lines[0][top * self.fold : (top + height) * self.fold],))
        missing = -len(values) % self.fold
        if missing:
            values = np.concatenate([values, np.repeat(values[-1:], missing)])
        return values.reshape(-1, self.fold)[:, left : left + width]

    def part(self, parts: tuple[range, ...]) -> Array:
        part = iter(parts)
        entries = tuple(next(part) if isinstance(entry, range) else entry for entry in self.view.entries)
        return np.asarray(apply(self.array, Slice(entries, "")))

    def texts(self, top: int, left: int, height: int, width: int, form: NumberFormat) -> Texts:
        return format_window(self.cells(top, left, height, width), form)

    def index(self, row: int, column: int) -> Index | None:
        """Returns the full index in the tensor of a cell; None beyond the end of a folded line."""
        if not self.folded:
            return self.view.index(*(row, column)[: len(self.lines)])
        place = row * self.fold + column
        return self.view.index(place) if place < len(self.lines[0]) else None

    def place(self, index: Index) -> tuple[int, int] | None:
        """Returns (row, column) of a full index; None if the table does not show it."""
        places = []
        for axis, i in zip(self.view.entries, index, strict=True):
            if isinstance(axis, int):
                if axis != i:
                    return None
            elif i not in axis:
                return None
            else:
                places.append(axis.index(i))
        if self.folded:
            return divmod(places[0], self.fold)
        return (places[0], places[1]) if places else (0, 0)

    def spot(self, index: Index) -> tuple[int, int] | None:
        """Like ``place``, with a folded line as one row."""
        place = self.place(index)
        return (0, place[0] * self.fold + place[1]) if place is not None and self.folded else place

    def element(self, row: int, column: int) -> Index:
        """Returns the full index of an element, with a folded line as one row."""
        return self.view.index(*(column,) if self.folded else (row, column)[: len(self.lines)])

    def rectangle_text(self, rows: range, columns: range) -> str:
        """Returns the full index of a rectangle of elements, as a slice that can be typed; a folded line is one row."""
        parts = iter((columns,) if self.folded else (rows, columns))
        words = []
        for entry in self.view.entries:
            if isinstance(entry, range):
                part = next(parts)
                along = entry[part.start : part.stop]
                words.append(str(along[0]) if len(along) == 1 else range_text(along))
            else:
                words.append(str(entry))
        return f"[{', '.join(words)}]"

    def row_label(self, row: int) -> str:
        """Returns the label of a row: its index in the tensor (for a folded line the index of its first element)."""
        if not self.lines:
            return ""
        return str(self.lines[0][row * self.fold if self.folded else row])

    def column_label(self, column: int) -> str:
        """Returns the label of a column: its index; for a folded line the offset from the row's first element."""
        if not self.lines:
            return ""
        return f"+{column * self.lines[0].step}" if self.folded else str(self.lines[1][column])


def best_fold(room: int, cell: int) -> int:
    """Returns how many cells of a width fit into ``room``, as a round number."""
    fitting = max(1, room // max(1, cell))
    return max(fold for fold in FOLDS if fold <= fitting)
