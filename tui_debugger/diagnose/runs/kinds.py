"""Names the kind of difference between two tensors of one shape, in a few words."""

from __future__ import annotations

from itertools import permutations
from typing import Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Array, Mask
from tui_debugger.text.numbers import number
from tui_debugger.text.tensors import index_text

DifferenceKind = tuple[str, str]
"""A word, and a sentence; both are empty where nothing is known."""
MOST: Final = 1 << 24
"""The largest number of elements that are looked at."""
_FIT: Final = 1e-3
"""The part of a difference that may remain where a factor or an offset explains it."""
_STEP_FIT: Final = 1e-2
"""Like ``_FIT``, for updates, which are small beside the values."""
_DIMENSIONS: Final = 4
_SMALLER: Final = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))


@np.errstate(all="ignore")
def kind_of_difference(a: Array, b: Array, unit: float = 0.0) -> DifferenceKind:
    """Returns a word and a sentence on how the second tensor follows from the first; both are empty if nothing fits."""
    if a.shape != b.shape or not 0 < a.size <= MOST:
        return "", ""
    x, y = _wide(a), _wide(b)
    odd = np.isnan(x) != np.isnan(y)
    if odd.any():
        return "nan", _bad_text("NaN", np.isnan(x), np.isnan(y))
    odd = (np.isinf(x) != np.isinf(y)) | (np.isinf(x) & np.isinf(y) & (x != y))
    if odd.any():
        return "inf", _bad_text("infinite", np.isinf(x), np.isinf(y))
    apart = (x != y) & ~np.isnan(x)
    count = int(np.count_nonzero(apart))
    if a.dtype.kind in "biu":  # of 64 bits float64 does not hold all
        return "values", f"{np.count_nonzero(a != b) if b.dtype.kind in 'biu' else count} of {a.size} differ"
    return (
        _few(x, y, apart)
        or _masked(x, y, apart)
        or _cast(x, y)
        or _scale(x, y, unit)
        or _offset(x, y, unit)
        or _arranged(x, y)
        or _one_row(apart)
        or _rounding(x, y, unit)
        or ("values", f"{count} of {a.size} elements differ")
    )


@np.errstate(all="ignore")
def kind_of_update(before: tuple[Array, Array], after: tuple[Array, Array], unit: float = 0.0) -> DifferenceKind:
    """The same for updates, from values (first run, second run) ``before`` and ``after``; empty if values tell more."""
    if len({each.shape for each in (*before, *after)}) > 1 or not 0 < after[0].size <= MOST:
        return "", ""
    steps = [_wide(now) - _wide(then) for then, now in zip(before, after, strict=True)]
    square = float(np.vdot(steps[0], steps[0]))
    for name, step, other in (("B", steps[1], steps[0]), ("A", steps[0], steps[1])):
        if not step.any() and other.any():
            return "missing", f"{name} was not updated"
    if not square or not all(np.isfinite(step).all() for step in steps):
        return "", ""
    factor = float(np.vdot(steps[0], steps[1])) / square
    rest = float(np.linalg.norm(steps[1] - factor * steps[0]))
    rounded = 4 * unit * max(float(np.linalg.norm(_wide(each))) for each in after)  # all that is left of small steps
    size = float(np.linalg.norm(steps[1]))
    if rest > _STEP_FIT * size + rounded or rounded > size / 10 or abs(factor - 1) < _STEP_FIT:
        return "", ""
    how = f"B moved {abs(factor):.4g} times as far as A"
    if factor > 0:
        how += ": another learning rate, or another scale of its gradient"
    return ("step", how) if factor > 0 else ("sign", f"{how}, the other way")


Wide = npt.NDArray[np.float64]


def _wide(array: Array) -> Wide:
    found: Wide = np.abs(array).astype(np.float64) if array.dtype.kind == "c" else array.astype(np.float64)
    return found


def _bad_text(word: str, x: Mask, y: Mask) -> str:
    counts = int(np.count_nonzero(x)), int(np.count_nonzero(y))
    sides = [f"{count} of {x.size} in {name}" for count, name in zip(counts, ("A", "B"), strict=True) if count]
    return f"{word}: {', '.join(sides)}"


def _few(x: Wide, y: Wide, apart: Mask) -> DifferenceKind | None:
    where = np.argwhere(apart)
    if not 0 < len(where) <= max(1, x.size // 1000) or x.size < 2:
        return None
    index = tuple(int(each) for each in where[0])
    many = "one element differs" if len(where) == 1 else f"{len(where)} elements differ, the first"
    return "element", f"{many} at {index_text(index)}: {number(float(x[index]))} in A, {number(float(y[index]))} in B"


def _masked(x: Wide, y: Wide, apart: Mask) -> DifferenceKind | None:
    """All nonzero elements agree: another dropout mask."""
    if (
        apart.any()
        and bool(((x == 0) | (y == 0))[apart].all())
        and not bool((x[apart] == 0).all() or (y[apart] == 0).all())
    ):
        return "random", "what is not zero on both sides agrees: other elements were set to zero"
    return None


def _cast(x: Wide, y: Wide) -> DifferenceKind | None:
    """One side is the other, rounded to a smaller type."""
    for dtype in _SMALLER:
        for one, other, names in ((x, y, "BA"), (y, x, "AB")):
            if np.array_equal(one.astype(np.float32).astype(dtype).astype(np.float64), other):
                return "rounding", f"{names[0]} is {names[1]} rounded to {dtype.name}"
    return None


def _scale(x: Wide, y: Wide, unit: float) -> DifferenceKind | None:
    factor = factor_between(x, y, unit)
    if factor is None or abs(factor - 1) < 4 * unit:
        return None
    if abs(factor + 1) < _FIT:
        return "sign", "B is A with the sign turned"
    return "scale", f"B is A times {factor:.6g}"


@np.errstate(all="ignore")
def factor_between(a: Array, b: Array, unit: float) -> float | None:
    """Returns the number that turns the first tensor into the second, within rounding; None without one."""
    x, y = _wide(a), _wide(b)
    finite = np.isfinite(x)
    square = float(np.dot(x[finite], x[finite]))
    if not square:
        return None
    factor = float(np.dot(x[finite], y[finite])) / square
    rest, whole = (float(np.linalg.norm(each[finite])) for each in (y - factor * x, y - x))
    return None if rest > max(_FIT * whole, 4 * unit * float(np.linalg.norm(y[finite]))) else factor


def _offset(x: Wide, y: Wide, unit: float) -> DifferenceKind | None:
    d = (y - x)[np.isfinite(x)]
    mean = float(d.mean()) if d.size else 0.0
    limit = max(_FIT * abs(mean), 4 * unit * float(np.abs(x[np.isfinite(x)]).max(initial=0.0)))
    if d.size > 1 and mean and float(np.abs(d - mean).max()) <= limit and abs(mean) > limit:
        return "offset", f"B is A plus {mean:.6g}"
    return None


def _arranged(x: Wide, y: Wide) -> DifferenceKind | None:
    if not np.array_equal(np.sort(x, axis=None), np.sort(y, axis=None)):
        return None
    for axes in permutations(range(x.ndim)) if 1 < x.ndim <= _DIMENSIONS else ():
        turned = y.transpose(axes)
        if axes != tuple(range(x.ndim)) and turned.shape == x.shape and np.array_equal(turned, x):
            return "transposed", f"B is A transposed: {axes}"
    return "permuted", "B has the values of A in another order"


def _one_row(apart: Mask) -> DifferenceKind | None:
    for axis in range(apart.ndim) if apart.ndim > 1 else ():
        others = tuple(each for each in range(apart.ndim) if each != axis)
        rows = np.flatnonzero(apart.any(axis=others))
        if 0 < len(rows) <= max(1, apart.shape[axis] // 8) and apart.shape[axis] > 1:
            listed = ", ".join(str(int(row)) for row in rows[:5])
            return "row", f"only {len(rows)} of {apart.shape[axis]} along dimension {axis} differ: {listed}"
    return None


def _rounding(x: Wide, y: Wide, unit: float) -> DifferenceKind | None:
    size = max(float(np.linalg.norm(x[np.isfinite(x)])), float(np.linalg.norm(y[np.isfinite(y)])))
    if size and float(np.linalg.norm((x - y)[np.isfinite(x)])) <= 6 * unit * size:
        return "rounding", "rounding"
    return None
