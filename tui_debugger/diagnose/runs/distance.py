"""The distance of two tensors, in one number that does not depend on their scale; runs in worker processes as well.

``relative`` is |a - b|₂ / max(|a|₂, |b|₂) over elements that are finite on both sides. NaN against a number, and an
infinity against anything else, differ without a size. Integers and booleans are equal or not.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger import opener
from tui_debugger.arrays import Array, Shape, Shapes
from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import ReadSpec, TensorStats
from tui_debugger.opener import open_regular
from tui_debugger.stats.compare_pairs import exact_difference, needs_halves
from tui_debugger.stats.dtypes import UNITS, DType, dtype_of, is_numeric, name_of
from tui_debugger.stats.kernel import is_known
from tui_debugger.stats.kernel.pairs import PairDistance, apart, apart_each
from tui_debugger.stats.npy import TensorFile

INTRODUCED: Final = 3.0
"""Above this quotient a node made a difference; healthy operators stay below 2, and passed on differences below 2.5."""
WITHOUT_ONE: Final = "plus 1"
"""How the weights of norms are meant that one run keeps without 1."""
PIECE: Final = 1 << 18
"""The number of elements that are processed at once: temporary arrays stay within a few megabytes."""
_TOLD: Final = 64
"""The number of pieces between two progress reports."""
_LEAST: Final = 1e-280
"""Smaller sums of squares may have lost terms to underflow."""
_SMALL: Final = 1 << 18
"""The largest files, in bytes, that are compared as bytes first."""


Types = tuple[str, str]
"""The element types of two tensors."""


class ComparedBy(Enum):
    """How two tensors were compared."""

    VALUES = "values"
    STATISTICS = "statistics"
    HASHES = "hashes"
    NOT = "not compared"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Elements are equal where |a - b| <= absolute + relative * |b|; ``by_type`` has (type, relative, absolute)."""

    relative: float = 0.0
    absolute: float = 0.0
    by_type: tuple[tuple[str, float, float], ...] = ()

    def of(self, names: Sequence[str]) -> tuple[float, float]:
        for name, relative, absolute in self.by_type:
            if name in names:
                return relative, absolute
        return self.relative, self.absolute


@dataclass(frozen=True, slots=True)
class Distance:
    """The difference between two tensors.

    Attributes:
        relative: the distance; inf where NaN or infinities differ, or integers differ.
        element: the largest distance of one element, by the larger of its value and the root mean square.
        odd: number of elements that are NaN or infinite on one side only, or differently so.
        differing: number of elements that differ.
        unit: relative error by rounding for the coarser type (and noise); 0 for integers.
        exact: the values are integers or booleans.
        size: the larger norm; 0 where it was not needed.
        worst: index of the element that differs most, or of the first odd one.
        values: both values there.
        why: why they were not compared.
        joined: how parts of several ranks were put together, in words; empty without parts.
        noise: distance between the first run and its healthy repeat; included in ``unit``.
        replicas: for each run, the position of the rank whose replica differs most; -1 where no two tensors are it.
        unlike: (run, position of the rank) of a replica that differs from the others.
        meant: how elements were interpreted, such as times scales; empty where as they are.
    """

    how: ComparedBy
    relative: float = 0.0
    element: float = 0.0
    odd: int = 0
    differing: int = 0
    count: int = 0
    unit: float = 0.0
    exact: bool = False
    size: float = 0.0
    worst: Shape = ()
    values: tuple[float, float] | None = None
    types: Types = ("", "")
    shapes: Shapes = ()
    why: str = ""
    joined: str = ""
    replicas: tuple[int, int] = (-1, -1)
    unlike: tuple[int, int] = (-1, -1)
    noise: float = 0.0
    meant: str = ""

    @property
    def compared(self) -> bool:
        return self.how is not ComparedBy.NOT

    @property
    def equal(self) -> bool:
        return self.compared and not self.relative


_KEPT: Final = (
    *(
        "relative",
        "element",
        "odd",
        "differing",
        "count",
        "unit",
        "exact",
        "size",
        "worst",
        "values",
        "types",
        "shapes",
    ),
)


def pack_distance(found: Distance) -> bytes:
    """Returns the distance of two files as bytes, for the index."""
    return json.dumps([getattr(found, name) for name in _KEPT]).encode()


def unpack_distance(payload: bytes) -> Distance | None:
    """Reverses ``pack_distance``; None for other bytes."""
    try:
        *numbers, worst, values, types, shapes = json.loads(payload)
        told = tuple(worst), values and tuple(values), tuple(types), tuple(map(tuple, shapes))
        return Distance(ComparedBy.VALUES, **dict(zip(_KEPT, (*numbers, *told), strict=True)))
    except (ValueError, TypeError):
        return None


TypeAndShape = tuple[str, tuple[int, ...]]


def not_compared(why: str, shapes: Shapes = (), types: Types = ("", "")) -> Distance:
    return Distance(ComparedBy.NOT, why=why, shapes=shapes, types=types)


def above_noise(found: Distance, noise: Distance) -> Distance:
    """Allows for noise: what a healthy repeat differs by is expected, like rounding.

    Integers that differ between repeats are random: for these the share of differing elements counts. NaN against a
    number is never noise.
    """
    if not noise.compared or not noise.relative or noise.odd:
        return found
    if found.exact and noise.exact and found.relative:
        floor = noise.differing / max(noise.count, 1)
        share = found.differing / max(found.count, 1)
        return replace(found, relative=share, element=0.0, exact=False, unit=found.unit + floor, noise=floor)
    if not math.isfinite(noise.relative):
        return found
    return replace(found, unit=found.unit + noise.relative, noise=noise.relative)


def error_over_expected(made: float, given: float, unit: float) -> float:
    """Returns error over what is expected; 0 where the input differs without a size already."""
    if not made or math.isinf(given):
        return 0.0
    if math.isinf(made):
        return math.inf
    return made / (given + unit) if given + unit else math.inf


def unit_of(types: Sequence[str]) -> float:
    """The relative rounding error of the coarsest of some types; 0 without a floating-point type."""
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


def distance_of_files(
    pair: tuple[ReadSpec, ReadSpec], tolerance: Tolerance | None = None, tell: Callable[[], None] | None = None
) -> Distance:
    """Compares two files; unreadable ones give a distance with ``why``. ``tell`` is called from time to time."""
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
                return distance(one.array(), other.array(), names, tolerance, tell)
    except CancelledError:
        raise
    except (TdbgError, OSError, ValueError, OverflowError, MemoryError) as error:
        return not_compared(str(error))


def _same_bytes(pair: tuple[ReadSpec, ReadSpec]) -> bool:
    if _how_to_read(pair[0]) != _how_to_read(pair[1]):
        return False
    one, state = open_regular(pair[0].path)
    try:
        other, others = open_regular(pair[1].path)
        try:
            if state.st_size != others.st_size or os.path.samestat(state, others):
                return state.st_size == others.st_size
            if state.st_size > _SMALL:
                return False
            content = opener.pread(one, _SMALL + 1, 0)
            return content == opener.pread(other, _SMALL + 1, 0) and len(content) == state.st_size
        finally:
            opener.close(other)
    finally:
        opener.close(one)


def _how_to_read(spec: ReadSpec) -> tuple[object, ...]:
    return spec.format, spec.dtype, spec.shape, spec.offset, spec.member, spec.length


def _type_name(declared: str, dtype: DType) -> str:
    meant = dtype_of(declared) if declared else None
    return name_of(meant if meant is not None else dtype)


def _equal(dtype: DType, names: Types, shapes: Shapes) -> Distance:
    count = math.prod(shapes[0])
    return Distance(
        ComparedBy.VALUES, count=count, unit=unit_of(names), exact=_is_exact(dtype), types=names, shapes=shapes
    )


def _is_exact(dtype: DType) -> bool:
    return dtype.kind in "biu"


def distance(
    a: Array,
    b: Array,
    types: Types = ("", ""),
    tolerance: Tolerance | None = None,
    tell: Callable[[], None] | None = None,
) -> Distance:
    shapes = a.shape, b.shape
    if not types[0]:
        types = name_of(a.dtype), name_of(b.dtype)
    if a.shape != b.shape:
        return not_compared("shapes differ", shapes, types)
    if not (is_numeric(a.dtype) and is_numeric(b.dtype)):
        return not_compared("only numbers can be compared", shapes, types)
    exact = _is_exact(a.dtype) and _is_exact(b.dtype)
    limits = tolerance.of(types) if tolerance is not None and not exact else None
    found = _Sums(a, b)
    outside = found.look(limits, tell)
    if not found.differing:
        return _equal(a.dtype, types, shapes)
    size = max(found.squares)
    if not _LEAST < size < math.inf and found.largest:  # squares that are too small or too large for float64
        found = _Sums(a, b, math.ldexp(1.0, min(-math.frexp(found.largest)[1], 1000)))
        found.look(None)
        size = max(found.squares)
    relative = max(math.sqrt(found.square / size) if size else 0.0, math.ulp(0.0))  # it differs, by however little
    element = found.element(math.sqrt(size / max(found.count, 1)) / found.scale)
    if found.odd or exact or limits is not None:
        relative = element = math.inf if found.odd or exact or outside else 0.0
    worst = tuple(int(each) for each in np.unravel_index(found.worst, a.shape)) if a.shape else ()
    values = _number(a, worst), _number(b, worst)
    return Distance(
        ComparedBy.VALUES,
        relative,
        element,
        found.odd,
        found.differing,
        found.count,
        unit_of(types),
        exact,
        math.sqrt(size) / found.scale,
        worst,
        values,
        types,
        shapes,
    )


def _number(array: Array, index: Shape) -> float:
    value = array[index]
    return float(abs(value)) if array.dtype.kind == "c" else float(value)


def pair_sums(one: Array, other: Array, scale: float = 1.0, limits: tuple[float, float] | None = None) -> PairDistance:
    """Compares two equally long stretches in numpy, with the results of ``kernel.pairs.apart``.

    Both are multiplied by ``scale`` before squaring; ``limits`` are (relative, absolute) tolerance.
    """
    with np.errstate(all="ignore"):
        x, y = _wide(one), _wide(other)
        d = _apart(one, other)
        differs = (d != 0) if _has_64_bits(one.dtype, other.dtype) else (x != y)
        unlike = differs & ~(np.isnan(x) & np.isnan(y))
        finite = np.isfinite(x) & np.isfinite(y)
        odd = unlike & ~finite
        if not finite.all():
            x, y, d = (np.where(finite, each, 0.0) for each in (x, y, d))
        differing, strange = int(np.count_nonzero(unlike)), int(np.count_nonzero(odd))
        worst = int(np.argmax(odd if strange else np.where(unlike, d, -1.0))) if differing else 0
        most = math.inf if strange else float(d[worst]) if differing else -1.0
        outside = int(np.count_nonzero(d > limits[1] + limits[0] * np.abs(y))) if limits is not None else 0
        if scale != 1.0:
            x, y = x * scale, y * scale
            d = np.abs(x - y)
        square, own, its = (float(np.dot(each, each)) for each in (d, x, y))
        largest = max(float(np.abs(each).max(initial=0)) for each in (x, y))
        return PairDistance(differing, strange, worst, outside, most, square, own, its, largest)


def _apart(one: Array, other: Array) -> npt.NDArray[np.float64]:
    """Returns |one - other|, rounded once: float64 does not hold all 64-bit integers."""
    if needs_halves(one, other):
        return np.abs(exact_difference(one, other))
    if _has_64_bits(one.dtype, other.dtype):
        found: npt.NDArray[np.float64] = np.abs(one.astype(np.longdouble) - other.astype(np.longdouble)).astype(float)
        return found
    return np.abs(_wide(one) - _wide(other))


def _has_64_bits(*dtypes: DType) -> bool:
    """Tells whether there are integers that float64 does not hold."""
    return any(dtype.kind in "iu" and dtype.itemsize == 8 for dtype in dtypes)


class _Sums:
    """Accumulates the comparison of two arrays, a piece at a time; a complex element counts as two numbers."""

    def __init__(self, a: Array, b: Array, scale: float = 1.0) -> None:
        self.scale = scale
        complex_ = "c" in (a.dtype.kind, b.dtype.kind)
        self.each = 2 if complex_ else 1
        self.a, self.b = (_parts(each) if complex_ else np.ravel(each) for each in (a, b))
        self.count = int(self.a.size) // self.each
        self.odd = self.differing = self.worst = 0
        self.square = self.largest = 0.0
        self.squares = [0.0, 0.0]
        self._pieces: list[int] = []
        self._halves = needs_halves(self.a, self.b)
        types = self.a.dtype, self.b.dtype
        self._compiled = is_known(*types) and (self._halves or not _has_64_bits(*types))

    def look(self, limits: tuple[float, float] | None, tell: Callable[[], None] | None = None) -> int:
        """Adds all pieces; returns how many elements are outside ``limits`` (relative, absolute)."""
        outside, most = 0, -1.0
        for first in range(0, len(self.a), PIECE):
            if tell is not None and first and not first % (_TOLD * PIECE):
                tell()
            one, other = self.a[first : first + PIECE], self.b[first : first + PIECE]
            found = self._looked_at(one, other, limits)
            outside += found.outside
            self.square += found.square
            self.squares = [self.squares[0] + found.own_squares, self.squares[1] + found.other_squares]
            self.largest = max(self.largest, found.largest)
            if not found.differing:
                continue
            self._pieces.append(first)
            self.differing += found.differing
            if found.most > most:
                most, self.worst = found.most, (first + found.worst) // self.each
            self.odd += found.odd
        return outside

    def _looked_at(self, one: Array, other: Array, limits: tuple[float, float] | None) -> PairDistance:
        if self._compiled:
            return apart(one, other, self.scale, limits, halves=self._halves)
        if one.dtype == other.dtype and one.tobytes() == other.tobytes():
            with np.errstate(all="ignore"):
                x = _wide(one)
                x = (x if (ok := np.isfinite(x)).all() else x[ok]) * self.scale
                square = float(np.dot(x, x))
            return PairDistance(0, 0, 0, 0, -1.0, 0.0, square, square, float(np.abs(x).max(initial=0)))
        return pair_sums(one, other, self.scale, limits)

    def element(self, rms: float) -> float:
        """Returns the largest distance of one element, by the larger of its value and ``rms``."""
        found = 0.0
        for first in self._pieces:
            one, other = self.a[first : first + PIECE], self.b[first : first + PIECE]
            if self._compiled:
                found = max(found, apart_each(one, other, rms, halves=self._halves))
                continue
            x, y = _wide(one), _wide(other)
            with np.errstate(all="ignore"):
                ratio = _apart(one, other) / np.maximum(np.maximum(np.abs(x), np.abs(y)), rms)
                ratio = ratio[np.isfinite(ratio)]
            found = max(found, float(ratio.max()) if len(ratio) else 0.0)
        return found


def _wide(block: Array) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = block.astype(np.float64)
    return found


def _parts(array: Array) -> Array:
    """Interleaves the real and imaginary parts of elements."""
    if array.dtype.kind != "c":
        return np.ravel(np.stack([np.ravel(array), np.zeros(array.size, array.dtype)], axis=1))
    return np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)


def distance_of_statistics(
    a: TensorStats | None,
    b: TensorStats | None,
    metas: tuple[TypeAndShape | None, TypeAndShape | None],
    hashes: tuple[int, int] = (0, 0),
    *,
    sums: bool = False,
) -> Distance:
    """Compares recorded statistics: equal ones do not prove equal values, and differences are lower bounds.

    Equal hashes (0: none) prove equal values, unless they are ``sums``, which do not depend on the order. Different
    hashes do not tell how far values are apart.
    """
    found = _distance_of_statistics(a, b, metas)
    if not all(hashes) or (found.compared and found.relative) or len({meta for meta in metas if meta}) > 1:
        return found
    if hashes[0] == hashes[1]:
        return replace(found, how=ComparedBy.STATISTICS if sums else ComparedBy.HASHES, why="")
    return not_compared("hashes differ; how far the values are apart was not recorded", found.shapes, found.types)


def _distance_of_statistics(
    a: TensorStats | None,
    b: TensorStats | None,
    metas: tuple[TypeAndShape | None, TypeAndShape | None],
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
    if {_is_bad(a), _is_bad(b)} == {True, False} or _counts_differ(a, b, ("nan", "pos_inf", "neg_inf")):
        return Distance(ComparedBy.STATISTICS, math.inf, math.inf, 1, 1, count, unit, types=types, shapes=shapes)
    apart, told = 0.0, bool(a.nan or a.inf)
    root = math.sqrt(max(count, 1))
    largest = max((abs(each) for each in (a.minimum, a.maximum, b.minimum, b.maximum) if each is not None), default=0.0)
    average = max((each for each in (a.abs_mean, b.abs_mean) if each is not None and math.isfinite(each)), default=0.0)
    norms = a.norm, b.norm
    size = max((each for each in norms if each is not None), default=0.0) or max(largest, average) * root
    deviations = tuple(None if each.variance is None else math.sqrt(each.variance) for each in (a, b))
    pairs: tuple[tuple[float | None, float | None, float], ...] = (
        (*norms, 1.0),
        (a.minimum, b.minimum, 1.0),
        (a.maximum, b.maximum, 1.0),
        (a.mean, b.mean, root),
        (a.abs_mean, b.abs_mean, root),
        (deviations[0], deviations[1], root),
    )
    for one, other, weight in pairs:
        if one is not None and other is not None and math.isfinite(one) and math.isfinite(other):
            told = True
            apart = max(apart, abs(one - other) * weight)
            unit = max(unit, _PRINTED if _is_printed(one) and _is_printed(other) and one != other else 0.0)
    if not told and not (a.counted and b.counted):
        return not_compared("no statistic was recorded in both runs", shapes, types)
    if not apart and _counts_differ(a, b, ("zero", "negative", "positive")):
        apart = math.ulp(size)  # some element differs, it is not known by how much
    differs = apart > 0
    return Distance(
        ComparedBy.STATISTICS,
        apart / size if size else float(differs),
        differing=int(differs),
        count=count,
        unit=unit,
        size=size,
        types=types,
        shapes=shapes,
        values=(a.mean, b.mean) if a.mean is not None and b.mean is not None else None,
    )


_PRINTED: Final = 5e-7
"""The rounding error of a statistic printed with seven digits."""


def _is_printed(value: float) -> bool:
    """Tells whether a number has at most seven digits, like numbers in logs."""
    return float(f"{value:.6e}") == value


def _counts_differ(a: TensorStats, b: TensorStats, names: Sequence[str]) -> bool:
    """Tells whether two tensors certainly have different counts; some counts are only lower bounds."""
    for name in names:
        one, other = (int(getattr(each, name)) for each in (a, b))
        bounds = a.is_lower_bound(name), b.is_lower_bound(name)
        if not all(bounds) and one != other and not (bounds[0] and one < other) and not (bounds[1] and other < one):
            return True
    return False


def _is_bad(stats: TensorStats) -> bool | None:
    """Tells whether there is NaN or an infinity; None where that was not recorded."""
    if stats.bad:
        return True
    unsure = stats.is_lower_bound("nan") or stats.is_lower_bound("pos_inf")
    return None if unsure else False
