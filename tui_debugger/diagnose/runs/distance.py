"""How far two tensors are apart, in one number that does not depend on their scale; made to run in other processes.

``relative`` is |a - b|₂ / max(|a|₂, |b|₂) over what is finite on both sides. NaN against a number, and an infinity
against anything else, is a difference without a size. Integers and truth values are equal or they are not.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array
from tui_debugger.errors import TdbgError
from tui_debugger.model import ReadSpec, TensorStats
from tui_debugger.opener import open_regular
from tui_debugger.stats.dtypes import DType, dtype_of, is_numeric, name_of
from tui_debugger.stats.npy import TensorFile

PIECE: Final = 1 << 18
"""Elements that are looked at together: what is made of them stays within a few megabytes."""
_SMALL: Final = 1 << 18
"""Bytes of the largest files that are compared as they are."""
UNITS: Final = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-12, "bfloat16": 2.0**-9}
"""Half a unit in the last place of 1, as it was measured against rounding in real runs."""


class How(Enum):
    """By what two tensors were compared."""

    VALUES = "values"
    STATISTICS = "statistics"
    HASHES = "hashes"
    NOT = "not compared"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Elements are equal where |a - b| <= absolute + relative * |b|.

    Attributes:
        relative, absolute: for types that ``by_type`` does not name.
        by_type: (relative, absolute) by element type.
    """

    relative: float = 0.0
    absolute: float = 0.0
    by_type: tuple[tuple[str, float, float], ...] = ()

    def of(self, names: Sequence[str]) -> tuple[float, float]:
        """Returns (relative, absolute) for tensors of some types."""
        for name, relative, absolute in self.by_type:
            if name in names:
                return relative, absolute
        return self.relative, self.absolute


@dataclass(frozen=True, slots=True)
class Distance:
    """The difference between two tensors.

    Attributes:
        how: by what they were compared.
        relative: the distance; inf where NaN or an infinity stands against something else, or integers differ.
        element: the largest distance of one element over the larger of its value and the root mean square.
        odd: elements that are NaN or infinite on one side only, or differently so.
        differing: elements that differ.
        count: elements.
        unit: what rounding alone may make of 1, for the coarser of both types; 0 for integers.
        exact: whether the values are integers or truth values.
        size: the larger of both norms; 0 where it was not needed.
        worst: index of the element that differs most, or of the first odd one.
        values: what both have there.
        types, shapes: of both.
        why: what kept them from being compared.
    """

    how: How
    relative: float = 0.0
    element: float = 0.0
    odd: int = 0
    differing: int = 0
    count: int = 0
    unit: float = 0.0
    exact: bool = False
    size: float = 0.0
    worst: tuple[int, ...] = ()
    values: tuple[float, float] | None = None
    types: tuple[str, str] = ("", "")
    shapes: tuple[tuple[int, ...], ...] = ()
    why: str = ""

    @property
    def compared(self) -> bool:
        """Whether anything was compared."""
        return self.how is not How.NOT

    @property
    def equal(self) -> bool:
        """Whether they are the same, as far as it was looked at."""
        return self.compared and not self.relative


def not_compared(why: str, shapes: tuple[tuple[int, ...], ...] = (), types: tuple[str, str] = ("", "")) -> Distance:
    """Returns the distance of two tensors that cannot be compared."""
    return Distance(How.NOT, why=why, shapes=shapes, types=types)


def unit_of(types: Sequence[str]) -> float:
    """Returns the unit of the coarsest of some element types; 0 without a floating-point one."""
    return max((_unit(name) for name in types), default=0.0)


def _unit(name: str) -> float:
    if name in UNITS:
        return UNITS[name]
    if name.startswith("complex"):
        return UNITS["float32" if name == "complex64" else "float64"]
    dtype = dtype_of(name)
    if dtype is None or not name.startswith("float8"):
        return 0.0
    exponents = [value for value in np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64) if value > 1]
    return (min(exponents) - 1) / 2


def distance_of_files(pair: tuple[ReadSpec, ReadSpec], tolerance: Tolerance | None = None) -> Distance:
    """Compares two files; what cannot be read is said."""
    try:
        with TensorFile(pair[0]) as one:
            if _same_bytes(pair):
                name = _type_name(one.layout.meta.dtype, one.layout.dtype)
                return _equal(one.layout.dtype, (name, name), (one.layout.shape, one.layout.shape))
            with TensorFile(pair[1]) as other:
                layouts = one.layout, other.layout
                shapes = layouts[0].shape, layouts[1].shape
                names = (
                    _type_name(layouts[0].meta.dtype, layouts[0].dtype),
                    _type_name(layouts[1].meta.dtype, layouts[1].dtype),
                )
                if shapes[0] != shapes[1]:
                    return not_compared("shapes differ", shapes, names)
                return distance(one.array(), other.array(), names, tolerance)
    except (TdbgError, OSError, ValueError, OverflowError, MemoryError) as error:
        return not_compared(str(error))


def _same_bytes(pair: tuple[ReadSpec, ReadSpec]) -> bool:
    """Tells whether two files hold the same bytes, and are to be read alike: quicker than unpacking both."""
    if replace(pair[0], path="") != replace(pair[1], path=""):
        return False
    states = [opener.stat(spec.path) for spec in pair]
    if states[0].st_size != states[1].st_size or not stat.S_ISREG(states[0].st_mode & states[1].st_mode):
        return False
    if os.path.samestat(*states):
        return True
    if states[0].st_size > _SMALL:
        return False
    contents = []
    for spec in pair:
        descriptor, _ = open_regular(spec.path)
        try:
            contents.append(opener.pread(descriptor, _SMALL + 1, 0))
        finally:
            opener.close(descriptor)
    return contents[0] == contents[1] and len(contents[0]) == states[0].st_size


def _type_name(declared: str, dtype: DType) -> str:
    meant = dtype_of(declared) if declared else None
    return name_of(meant if meant is not None else dtype)


def _equal(dtype: DType, names: tuple[str, str], shapes: tuple[tuple[int, ...], ...]) -> Distance:
    count = math.prod(shapes[0])
    return Distance(How.VALUES, count=count, unit=unit_of(names), exact=_is_exact(dtype), types=names, shapes=shapes)


def _is_exact(dtype: DType) -> bool:
    return dtype.kind in "biu"


def distance(a: Array, b: Array, types: tuple[str, str] = ("", ""), tolerance: Tolerance | None = None) -> Distance:
    """Compares two arrays."""
    shapes = a.shape, b.shape
    if not types[0]:
        types = name_of(a.dtype), name_of(b.dtype)
    if a.shape != b.shape:
        return not_compared("shapes differ", shapes, types)
    if not (is_numeric(a.dtype) and is_numeric(b.dtype)):
        return not_compared("only numbers can be compared", shapes, types)
    exact = _is_exact(a.dtype) and _is_exact(b.dtype)
    found = _Sums(a, b)
    limits = tolerance.of(types) if tolerance is not None and not exact else None
    outside = found.look(limits)
    if not found.differing:
        return _equal(a.dtype, types, shapes)
    size = max(found.squares)
    relative = math.sqrt(found.square / size) if size else 0.0
    element = found.element(math.sqrt(size / max(found.count, 1)))
    if found.odd or exact or limits is not None:
        relative = element = math.inf if found.odd or exact or outside else 0.0
    worst = tuple(int(each) for each in np.unravel_index(found.worst, a.shape)) if a.shape else ()
    values = _number(a, worst), _number(b, worst)
    return Distance(
        How.VALUES,
        relative,
        element,
        found.odd,
        found.differing,
        found.count,
        unit_of(types),
        exact,
        math.sqrt(size),
        worst,
        values,
        types,
        shapes,
    )


def _number(array: Array, index: tuple[int, ...]) -> float:
    value = array[index]
    return float(abs(value)) if array.dtype.kind == "c" else float(value)


class _Sums:
    """Goes through two arrays, a piece at a time."""

    def __init__(self, a: Array, b: Array) -> None:
        self.a, self.b = np.ravel(a), np.ravel(b)
        self.count = int(self.a.size)
        self.odd = self.differing = 0
        self.square = 0.0
        self.squares = [0.0, 0.0]
        self.worst = 0
        self._pieces: list[int] = []

    def look(self, limits: tuple[float, float] | None) -> int:
        """Adds up all pieces; returns how many elements are outside of limits (relative, absolute)."""
        outside, most = 0, -1.0
        for first in range(0, self.count, PIECE):
            one, other = self.a[first : first + PIECE], self.b[first : first + PIECE]
            if one.dtype == other.dtype and one.tobytes() == other.tobytes():
                x = _wide(one)
                square = float(np.dot(x[ok], x[ok])) if not (ok := np.isfinite(x)).all() else float(np.dot(x, x))
                self.squares = [self.squares[0] + square, self.squares[1] + square]
                continue
            x, y = _wide(one), _wide(other)
            with np.errstate(all="ignore"):
                apart = (x != y) & ~(np.isnan(x) & np.isnan(y))
                if not apart.any():
                    continue
                self._pieces.append(first)
                self.differing += int(np.count_nonzero(apart))
                finite = np.isfinite(x) & np.isfinite(y)
                odd = apart & ~finite
                if odd.any():
                    if not self.odd:
                        self.worst = first + int(np.argmax(odd))
                    self.odd += int(np.count_nonzero(odd))
                    x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
                elif not finite.all():
                    x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
                d = np.abs(x - y)
                greatest = float(d.max())
                if not self.odd and greatest > most:
                    most, self.worst = greatest, first + int(np.argmax(d))
                if limits is not None:
                    outside += int(np.count_nonzero(d > limits[1] + limits[0] * np.abs(y)))
                self.square += float(np.dot(d, d))
                self.squares = [self.squares[0] + float(np.dot(x, x)), self.squares[1] + float(np.dot(y, y))]
        return outside

    def element(self, rms: float) -> float:
        """Returns the largest distance of one element over its own size, or the usual size where it is smaller."""
        found = 0.0
        for first in self._pieces:
            x, y = _wide(self.a[first : first + PIECE]), _wide(self.b[first : first + PIECE])
            with np.errstate(all="ignore"):
                ratio = np.abs(x - y) / np.maximum(np.maximum(np.abs(x), np.abs(y)), rms)
                ratio = ratio[np.isfinite(ratio)]
            found = max(found, float(ratio.max()) if len(ratio) else 0.0)
        return found


def _wide(block: Array) -> npt.NDArray[np.float64]:
    """Elements as float64; complex ones as twice as many."""
    if block.dtype.kind == "c":
        return np.ascontiguousarray(block).view(block.real.dtype).astype(np.float64)
    found: npt.NDArray[Any] = block.astype(np.float64)
    return found


def distance_of_statistics(
    a: TensorStats | None,
    b: TensorStats | None,
    metas: tuple[tuple[str, tuple[int, ...]] | None, tuple[str, tuple[int, ...]] | None],
    hashes: tuple[int, int] = (0, 0),
) -> Distance:
    """Compares what was recorded of two tensors: equal statistics do not prove equal values.

    All numbers are lower bounds of the distance of the values. Hashes (0: none) tell whether they are the same, not
    how far they are apart: where they differ and statistics do not, that may be rounding or anything else.
    """
    found = _distance_of_statistics(a, b, metas)
    if not all(hashes) or (found.compared and found.relative) or len({meta for meta in metas if meta}) > 1:
        return found
    if hashes[0] == hashes[1]:
        return replace(found, how=How.HASHES, why="")
    return not_compared("hashes differ; how far the values are apart was not recorded", found.shapes, found.types)


def _distance_of_statistics(
    a: TensorStats | None,
    b: TensorStats | None,
    metas: tuple[tuple[str, tuple[int, ...]] | None, tuple[str, tuple[int, ...]] | None],
) -> Distance:
    if a is None or b is None:
        return not_compared("no values and no statistics were dumped")
    names = tuple(name_of(found) if meta and (found := dtype_of(meta[0])) is not None else "" for meta in metas)
    types = names[0], names[1]
    shapes = tuple(meta[1] for meta in metas if meta is not None)
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        return not_compared("shapes differ", shapes, types)
    count = math.prod(shapes[0]) if shapes else max(a.count, b.count)
    unit = max(unit_of(types), UNITS["float32"])
    if any(bool(one) != bool(other) for one, other in ((a.nan, b.nan), (a.inf, b.inf))):
        return Distance(How.STATISTICS, math.inf, math.inf, 1, 1, count, unit, types=types, shapes=shapes)
    apart, size = 0.0, 0.0
    norms = a.norm, b.norm
    largest = max((abs(each) for each in (a.minimum, a.maximum, b.minimum, b.maximum) if each is not None), default=0.0)
    size = max((each for each in norms if each is not None), default=0.0) or largest * math.sqrt(max(count, 1))
    if norms[0] is not None and norms[1] is not None:
        apart = abs(norms[0] - norms[1])
    for name, weight in (("minimum", 1.0), ("maximum", 1.0), ("mean", math.sqrt(max(count, 1)))):
        one, other = getattr(a, name), getattr(b, name)
        if one is not None and other is not None and math.isfinite(one) and math.isfinite(other):
            apart = max(apart, abs(one - other) * weight)
    differs = apart > 0
    return Distance(
        How.STATISTICS,
        apart / size if size else float(differs),
        differing=int(differs),
        count=count,
        unit=unit,
        size=size,
        types=types,
        shapes=shapes,
        values=(a.mean, b.mean) if a.mean is not None and b.mean is not None else None,
    )
