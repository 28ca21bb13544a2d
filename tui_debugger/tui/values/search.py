"""The search in values: its query, and the next element that matches.

It reads block by block in memory order, so that a memory-mapped tensor of many GB needs one block of memory. Between
blocks it calls ``progress``, which may raise to stop it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array
from tui_debugger.model import Progress, ProgressFn, no_progress
from tui_debugger.stats.compare_pairs import Pairs
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.heat import HeatCellKind, HeatWindow, next_bad
from tui_debugger.stats.kernel import elements as kernel_elements
from tui_debugger.stats.kernel import is_known
from tui_debugger.text.heat_map import HeatTable, Zoom
from tui_debugger.text.values import Family, Index, ValueTable, family

Bad = Callable[[Array], npt.NDArray[np.bool_]]
"""A test for the elements of a block."""
BLOCK = 1 << 20
"""Elements that are read at once."""


@dataclass(frozen=True, slots=True)
class FoundElement:
    """An element that was found: its full index, and whether the search wrapped around the end of the tensor."""

    index: Index
    wrapped: bool = False


def not_finite(block: Array) -> npt.NDArray[np.bool_]:
    return ~np.isfinite(block)


class ElementLine(Protocol):
    """The elements of a tensor as one line, with positions for full indices."""

    @property
    def size(self) -> int:
        """Number of elements."""

    def read(self, start: int, stop: int) -> Array:
        """Returns the elements ``start`` to ``stop`` of the line."""

    def index(self, position: int) -> Index:
        """Returns the full index of a position."""

    def position(self, index: Index) -> int:
        """Returns the position of a full index."""


class _Flat:
    """An array as one line in memory order (C or Fortran)."""

    def __init__(self, array: Array) -> None:
        self.shape = array.shape
        self.fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        ordered = array.T if self.fortran else array
        # ``reshape`` would copy an array that is not contiguous; ``flat`` copies a block at a time.
        self.line = ordered.reshape(-1) if ordered.flags.c_contiguous else ordered.flat
        self.size = array.size

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.line[start:stop])

    def index(self, position: int) -> Index:
        shape = self.shape[::-1] if self.fortran else self.shape
        index = tuple(int(i) for i in np.unravel_index(position, shape))
        return index[::-1] if self.fortran else index

    def position(self, index: Index) -> int:
        shape = self.shape[::-1] if self.fortran else self.shape
        return int(np.ravel_multi_index(index[::-1] if self.fortran else index, shape)) if shape else 0


def _numbers(block: Array) -> Array:
    """Returns the block in a dtype that numpy can compare: ml_dtypes floats as float32, complex as magnitudes."""
    kind = family(block.dtype)
    if kind is Family.COMPLEX:
        magnitude: Array = np.abs(block)
        return magnitude
    if block.dtype.kind in "biuf":
        return block
    return block.astype(np.float32 if kind is Family.FLOAT else np.int64)


def can_be_bad(array: Array) -> bool:
    """Tells whether the element type can hold NaN or Inf."""
    return family(array.dtype) in {Family.FLOAT, Family.COMPLEX}


def _spans(start: int, stop: int, direction: int) -> Iterator[tuple[int, int]]:
    if direction > 0:
        yield from ((low, min(low + BLOCK, stop)) for low in range(start, stop, BLOCK))
    else:
        yield from ((max(start, high - BLOCK), high) for high in range(stop, start, -BLOCK))


def find_bad(array: Array, origin: Index, direction: int, *, progress: ProgressFn = no_progress) -> FoundElement | None:
    """Returns the next (``direction`` 1) or previous (-1) NaN or Inf after ``origin`` in memory order, or None.

    Wraps around once, so that ``origin`` (a full index) comes last.
    """
    if not array.size or not can_be_bad(array):
        return None
    if not is_known(array.dtype):
        return find_element(
            _Flat(array), origin, direction, lambda block: not_finite(_numbers(block)), progress=progress
        )
    kinds = kernel_elements.NAN | kernel_elements.INF

    def place(block: Array) -> int | None:
        return kernel_elements.find_bad(block, kinds, last=direction < 0)

    return _find(_Flat(array), origin, direction, place, progress)


def find_element(
    elements: ElementLine, origin: Index, direction: int, test: Bad, *, progress: ProgressFn = no_progress
) -> FoundElement | None:
    """Like ``find_bad``, for the elements that pass ``test`` (called with blocks)."""

    def place(block: Array) -> int | None:
        with np.errstate(all="ignore"):
            places = np.flatnonzero(test(block))
        return int(places[0 if direction > 0 else -1]) if places.size else None

    return _find(elements, origin, direction, place, progress)


def _find(
    elements: ElementLine, origin: Index, direction: int, place: Callable[[Array], int | None], progress: ProgressFn
) -> FoundElement | None:
    """Like ``find_element``; ``place`` returns the first (or last) match in a block, None for none."""
    here = elements.position(origin)
    ahead, behind = (here + 1, elements.size), (0, here + 1)
    if direction < 0:
        ahead, behind = (0, here), (here, elements.size)
    looked = 0
    for wrapped, (start, stop) in enumerate((ahead, behind)):
        for low, high in _spans(start, stop, direction):
            progress(Progress(looked, elements.size))
            found = place(elements.read(low, high))
            if found is not None:
                return FoundElement(elements.index(low + found), bool(wrapped))
            looked += high - low
    return None


def elements_of(array: Array) -> ElementLine:
    return _Flat(array)


@dataclass(frozen=True, slots=True)
class DifferenceElements:
    """The elements of the difference of two tensors, computed as they are read: see ``ElementLine``.

    ``difference`` computes the difference of two stretches of ``pairs``, as the cells show it.
    """

    pairs: Pairs
    difference: Callable[[Array, Array], Array]

    @property
    def size(self) -> int:
        return self.pairs.count

    def read(self, start: int, stop: int) -> Array:
        return self.difference(*self.pairs.elements(start, stop))

    def index(self, position: int) -> Index:
        return self.pairs.index(position)

    def position(self, index: Index) -> int:
        return self.pairs.position(index)


# -- what is asked for -----------------------------------------------------------------------------

EXAMPLES: Final = "nan, inf, -inf, > 1e3, |x| <= 0.5, 0.25, != 0"
_COMPARED = re.compile(r"(\|x\||abs|x)?\s*(>=|<=|==|!=|>|<|=|≥|≤|≠)\s*(\S+)")
_SAME = {"==": "=", "≥": ">=", "≤": "<=", "≠": "!="}
_ASKED: Final[Mapping[str, Bad]] = {
    "nan": np.isnan,
    "inf": np.isinf,
    "+inf": np.isposinf,
    "-inf": np.isneginf,
}
_TRUTH: Final = {"true": "1", "false": "0"}


class BadSearchError(ValueError):
    """A text that is no query. The message says why, and gives examples."""


@dataclass(frozen=True, slots=True)
class ElementQuery:
    """The elements that are searched for.

    Attributes:
        text: as it was typed.
        kind: ``nan``, ``inf``, ``+inf``, ``-inf``, or a comparison ``>``, ``>=``, ``<``, ``<=``, ``=``, ``!=``, or
            ``~``: equal to ``number`` after rounding to its digits.
        absolute: compare magnitudes.
    """

    text: str
    kind: str
    number: Decimal = Decimal(0)
    absolute: bool = False

    @classmethod
    def of(cls, text: str) -> ElementQuery:
        """Reads a search text.

        Raises:
            BadSearchError: the text is no query.
        """
        text = text.strip()
        word = text.lower()
        word = _TRUTH.get(word, word)
        if word.replace("infinity", "inf") in _ASKED:
            return cls(text, word.replace("infinity", "inf"))
        compared = _COMPARED.fullmatch(word)
        if compared is not None:
            absolute, sign, number = compared.groups()
            return cls(text, _SAME.get(sign, sign), _decimal(number), absolute in {"|x|", "abs"})
        return cls(text, "~" if "." in word else "=", _decimal(word))

    def test_for(self, dtype: DType) -> Bad:
        """Returns the test for blocks of an element type; it compares complex numbers by magnitude."""
        asked = _ASKED.get(self.kind)
        if asked is not None:
            if family(dtype) not in {Family.FLOAT, Family.COMPLEX}:
                return lambda block: np.zeros(len(block), np.bool_)
            return lambda block: asked(_numbers(block))
        if family(dtype) in {Family.INT, Family.BOOL}:
            return self._test_of_integers()
        low, high = self._bounds(dtype)
        return lambda block: self._compare(_magnitude(_numbers(block), absolute=self.absolute), low, high)

    def _bounds(self, dtype: DType) -> tuple[float, float]:
        """Returns the least and the greatest number that counts as equal; the same number twice, except for ``~``."""
        number = float(self.number)
        if self.kind == "~":
            half = float(Decimal(5).scaleb(int(self.number.as_tuple().exponent) - 1))
            return number - half, number + half
        if family(dtype) is Family.FLOAT:
            with np.errstate(all="ignore"):
                meant = float(np.asarray(number).astype(dtype))  # compare with 0.1 as rounded to the element type
            number = meant if np.isfinite(meant) else number
        return number, number

    def _test_of_integers(self) -> Bad:
        """Returns an exact test: float64 cannot represent every integer."""
        number = self.number
        whole = int(number)
        if number == whole:
            low = high = whole
        else:  # a fraction equals no integer
            low, high = (whole, whole + 1) if number > 0 else (whole - 1, whole)
        kind = "=" if self.kind == "~" else self.kind
        if low != high and kind in {"=", "!="}:
            return lambda block: np.full(len(block), kind == "!=")
        bound = low if kind in {">", "<="} else high
        return lambda block: self._compare_integers(_magnitude(_numbers(block), absolute=self.absolute), kind, bound)

    @staticmethod
    def _compare_integers(block: Array, kind: str, number: int) -> npt.NDArray[np.bool_]:
        limits = np.iinfo(block.dtype) if block.dtype.kind in "iu" else None
        least, most = (int(limits.min), int(limits.max)) if limits is not None else (0, 1)
        if not least <= number <= most:
            beyond = {">": number < least, ">=": number < least, "<": number > most, "<=": number > most}
            return np.full(len(block), beyond.get(kind, kind == "!="))
        found: npt.NDArray[np.bool_] = _COMPARE[kind](block, block.dtype.type(number))
        return found

    def _compare(self, block: Array, low: float, high: float) -> npt.NDArray[np.bool_]:
        wide = block.astype(np.float64, copy=False) if block.dtype.itemsize <= 8 else block
        if self.kind == "~":
            return np.asarray((wide >= low) & (wide <= high))
        return np.asarray(_COMPARE[self.kind](wide, low))


_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
        finite = number.is_finite() and abs(number.adjusted()) < 400
    except ArithmeticError:
        finite = False
    if not text or not finite:
        msg = f"{text!r} is not a number: write {EXAMPLES}" if text else f"write {EXAMPLES}"
        raise BadSearchError(msg)
    return number


def _magnitude(block: Array, *, absolute: bool) -> Array:
    if not absolute or block.dtype.kind in "bu":
        return block
    return np.asarray(np.abs(block.astype(np.int64) if block.dtype.kind == "i" else block))


def find_extreme(array: Array, largest: bool, *, progress: ProgressFn = no_progress) -> FoundElement | None:
    """Returns the first largest (or smallest) finite element in memory order; complex numbers by magnitude.

    None if no element is finite.
    """
    if family(array.dtype) is Family.OTHER:
        return None
    flat = _Flat(array)
    best: tuple[Any, int] | None = None
    for low, high in _spans(0, flat.size, +1):
        progress(Progress(low, flat.size))
        with np.errstate(all="ignore"):
            candidate = _block_extreme(_numbers(flat.line[low:high]), largest)
        if candidate is not None:
            value, offset = candidate
            if best is None or (value > best[0] if largest else value < best[0]):
                best = (value, low + offset)
    return None if best is None else FoundElement(flat.index(best[1]))


def _block_extreme(block: Array, largest: bool) -> tuple[Any, int] | None:
    offset = int(block.argmax() if largest else block.argmin())
    if not np.isfinite(block[offset]):
        places = np.flatnonzero(np.isfinite(block))
        if not places.size:
            return None
        finite = block[places]
        offset = int(places[finite.argmax() if largest else finite.argmin()])
    return block[offset], offset


_BAD: Final = frozenset({HeatCellKind.POS_INF, HeatCellKind.NEG_INF, HeatCellKind.NAN})


@dataclass(frozen=True, slots=True)
class MapSearch:
    """The search in the cells of a heat map, over the whole slice.

    Attributes:
        value_table: the slice.
        table: the same slice as a heat table.
        zoom: the size of the cells.
    """

    value_table: ValueTable
    table: HeatTable
    zoom: Zoom

    def next_bad(
        self, element: tuple[int, int], direction: int, progress: ProgressFn = no_progress
    ) -> FoundElement | None:
        """Returns the first match in the cells after (or before) ``element``'s, then in the rest of the tensor.

        ``element``: row and column in ``table``.
        """
        rows, columns = self.table.shape
        window = HeatWindow(range(0, rows, self.zoom.rows), range(0, columns, self.zoom.columns))
        here = window.place(*element) or (0, 0)
        place = self._next(window, here, direction, progress)
        if place is not None:
            return self._found(window, place, wrapped=False)
        array = self.value_table.array
        if array.size > rows * columns:
            edge = self.value_table.element(rows - 1, columns - 1) if direction > 0 else self.value_table.element(0, 0)
            return find_bad(array, edge, direction, progress=progress)
        height, width = window.shape
        outside = (0, -1) if direction > 0 else (height - 1, width)
        place = self._next(window, outside, direction, progress)
        return self._found(window, place, wrapped=True) if place is not None else None

    def _next(
        self, window: HeatWindow, after: tuple[int, int], direction: int, progress: ProgressFn
    ) -> tuple[int, int] | None:
        return next_bad(self.table.read, window, after, direction, kinds=_BAD, progress=progress)

    def _found(self, window: HeatWindow, place: tuple[int, int], *, wrapped: bool) -> FoundElement:
        rows, columns = window.cell(*place)
        part = self.table.read(slice(rows.start, rows.stop), slice(columns.start, columns.stop))
        last = tuple(size - 1 for size in part.shape)
        inside = find_bad(part, last, 1)
        row, column = inside.index if inside is not None else (0, 0)
        return FoundElement(self.value_table.element(rows.start + row, columns.start + column), wrapped)
