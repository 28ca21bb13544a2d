"""Sums against exact rational arithmetic, on values chosen to hurt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.model import TensorStats
from tui_debugger.stats.blocks import BLOCK, Accumulator, measure_stats

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
INF, NAN = math.inf, math.nan
MILLIONTH = Fraction(1, 10**6)
CHUNK = 2048
"""Elements whose sums the kernel makes at once."""
LENGTHS = (1, 2, 3, 7, 8, 9, 100, CHUNK - 1, CHUNK, CHUNK + 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 5)
BIG_FLOATS = ("f4", ">f4", "f8", ">f8")
ALL_TYPES = (
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">f4", ">i2", ">f8", "c8", "c16"),
    *(getattr(ml_dtypes, name) for name in dir(ml_dtypes) if name.startswith(("float8", "bfloat16"))),
)


class Moments(NamedTuple):
    """Of finite elements, without any rounding."""

    mean: Fraction
    abs_mean: Fraction
    variance: Fraction
    sum_squares: Fraction


def moments(values: Array) -> Moments:
    """Of doubles: each is a whole number times a power of two, so sums of whole numbers are all that is needed."""
    parts, powers = np.frexp(values)
    whole = (parts * 2.0**53).astype(np.int64)
    total, magnitudes, squares = Fraction(), Fraction(), Fraction()
    for power in np.unique(powers):
        alike = whole[powers == power].astype(object)  # integers of Python: no sum of them overflows
        unit = Fraction(2) ** (int(power) - 53)
        total += unit * sum(alike)
        magnitudes += unit * sum(np.abs(alike))
        squares += unit * unit * sum(alike * alike)
    n = len(values)
    return Moments(total / n, magnitudes / n, squares / n - (total / n) ** 2, squares)


def assert_exact(found: TensorStats, array: Array) -> None:
    """Counts and extremes are exact, sums good to a millionth."""
    with np.errstate(all="ignore"):
        x = np.abs(array.astype(np.complex128)) if array.dtype.kind == "c" else array.astype(np.float64)
    x = x.reshape(-1)
    finite = x[np.isfinite(x)]
    assert found.count == len(x)
    assert (found.nan, found.pos_inf, found.neg_inf) == (np.isnan(x).sum(), (x == INF).sum(), (x == -INF).sum())
    signs = ((finite == 0).sum(), (finite < 0).sum(), (finite > 0).sum())
    assert (found.zero, found.negative, found.positive) == signs
    if not len(finite):
        reals = (found.minimum, found.maximum, found.mean, found.abs_mean, found.variance, found.sum_squares)
        assert reals == (None, None, None, None, None, 0)
        return
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    exact = moments(finite)
    assert found.mean is not None
    assert found.abs_mean is not None
    assert found.variance is not None
    assert abs(Fraction(found.mean) - exact.mean) <= MILLIONTH * exact.abs_mean
    assert abs(Fraction(found.abs_mean) - exact.abs_mean) <= MILLIONTH * exact.abs_mean
    assert abs(Fraction(found.sum_squares) - exact.sum_squares) <= MILLIONTH * exact.sum_squares
    # A mean is a double: distances from it cannot be known better than 1e-14 of the values themselves.
    unknown = exact.sum_squares / len(finite) / 10**28
    assert abs(Fraction(found.variance) - exact.variance) <= MILLIONTH * exact.variance + unknown


def normal(n: int, kind: Any = np.float32) -> Array:
    return np.random.default_rng(n).standard_normal(n).astype(kind)


def cycle(values: Any, n: int, kind: Any = np.float32) -> Array:
    """Values over and over."""
    with np.errstate(all="ignore"):
        return np.resize(np.asarray(values, np.float64), n).astype(kind)


HARD: dict[str, Callable[[int], Array]] = {
    "one value whose last bits are lost in every float32 sum": lambda n: cycle([0.1], n),
    "the same, and one that differs": lambda n: cycle([0.1] * (n - 1) + [0.2], n),
    "a big one, then ones that float32 adds to nothing": lambda n: cycle([2.0**24] + [1.0] * (n - 1), n),
    "ones, then a big one": lambda n: cycle([1.0] * (n - 1) + [2.0**24], n),
    "sums that cancel": lambda n: cycle([1e8, 1.0, -1e8], n),
    "nearly nothing is left of the sum": lambda n: cycle([3e38, -3e38, 1e-24], n),
    "squares below float32": lambda n: cycle([1e-24], n),
    "squares below float32, of both signs": lambda n: normal(n) * np.float32(1e-24),
    "squares above float32": lambda n: cycle([1e38, -3e38], n),
    "the greatest float32": lambda n: cycle([float(np.finfo(np.float32).max)], n),
    "subnormals": lambda n: cycle([1e-45, -3e-45, 1e-40], n),
    "tiny and huge": lambda n: cycle([1e-24, 1e20, -1e-24], n),
    "noise at an offset": lambda n: (1e4 + normal(n, np.float64) * 1e-2).astype(np.float32),
    "noise in the last bit": lambda n: cycle([1.0, 1 + 2.0**-23, 1.0], n),
    "one last bit": lambda n: cycle([1.0] * (n - 1) + [1 + 2.0**-23], n),
    "zeros of both signs": lambda n: cycle([0.0, -0.0], n),
    "zeros and one value": lambda n: cycle([0.0] * (n - 1) + [1e-45], n),
    "positives after a ReLU": lambda n: np.maximum(normal(n), np.float32(0)),
    "negatives": lambda n: -np.abs(normal(n)),
    "noise at 1e8": lambda n: 1e8 + normal(n, np.float64),
    "noise at -1e12": lambda n: -1e12 + normal(n, np.float64),
    "doubles whose squares are huge": lambda n: cycle([1e150, -3e150], n, np.float64),
    "doubles whose squares are tiny": lambda n: cycle([1e-140, -3e-140, 2e-141], n, np.float64),
    "subnormal halves": lambda n: cycle([6e-8, -1.2e-7, 0.0], n, np.float16),
    "the greatest half": lambda n: cycle([65504.0, 1.0], n, np.float16),
    "the greatest bfloat16": lambda n: cycle([3.3e38, 1e-38], n, ml_dtypes.bfloat16),
    "long integers": lambda n: np.resize(np.array([2**63 - 1, -(2**63), 0, 1]), n),
    "long unsigned integers": lambda n: np.resize(np.array([2**64 - 1, 1, 0], np.uint64), n),
    "integers that float32 cannot hold": lambda n: np.resize(np.array([2**24 + 1, 2**31 - 1], np.int32), n),
}


@pytest.mark.covering
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", HARD)
def test_hard_values(name: str, length: int) -> None:
    array = HARD[name](length)
    assert_exact(measure_stats(array)[0], array)


@pytest.mark.parametrize("name", HARD)
def test_hard_values_in_parts(name: str) -> None:
    array = HARD[name](BLOCK + 100)
    parts = [Accumulator() for _ in range(3)]
    for part, piece in zip(parts, np.split(array, [7, BLOCK]), strict=True):
        part.add(piece)
    parts[1].merge(parts[2])
    parts[0].merge(parts[1])
    assert_exact(parts[0].stats(), array)


@pytest.mark.covering
@pytest.mark.parametrize("at", [0, 1, CHUNK, BLOCK - 1, BLOCK, BLOCK + 4])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", ["f4", "f8", "f2", ml_dtypes.bfloat16])
def test_one_bad_element_among_hard_ones(kind: Any, bad: float, at: int) -> None:
    array = cycle([1e4, 1e4 + 64, -1e-2, 0.0], BLOCK + 5, kind)
    array[at] = bad
    assert_exact(measure_stats(array)[0], array)


@pytest.mark.covering
@pytest.mark.parametrize("pattern", [[NAN], [INF], [-INF], [INF, -INF, NAN], [NAN, 1.0], [INF, -0.0, 2.0, NAN, -3.0]])
@pytest.mark.parametrize("length", [1, 6, BLOCK, BLOCK + 1])
def test_many_bad_elements(pattern: list[float], length: int) -> None:
    for kind in ("f4", "f8", "f2", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        array = cycle(pattern, length, kind)
        assert_exact(measure_stats(array)[0], array)


def numbers() -> st.SearchStrategy[list[float]]:
    """Finite values of any size whose squares are doubles, zeros, and what is no number."""
    sizes = st.integers(-140, 150).flatmap(lambda e: st.floats(-10.0, 10.0).map(lambda x: x * 10.0**e))
    alike = st.tuples(st.floats(-1e12, 1e12), st.floats(1e-6, 1.0)).flatmap(
        lambda at: st.integers(-9, 9).map(lambda k: at[0] + k * at[1])
    )
    special = st.sampled_from([0.0, -0.0, NAN, INF, -INF, 1e-24, 1e20, 1e38, 1e-45, 1.0])
    one = st.floats(-1e4, 1e4) | sizes | alike | special
    return st.lists(one, min_size=1, max_size=12) | st.lists(alike, min_size=1, max_size=12)


def layouts(array: Array) -> Iterator[Array]:
    """The same elements in other orders, byte orders and strides."""
    yield array
    yield array.reshape(1, -1)[:, ::-1]
    yield np.repeat(array, 2)[::2]
    if len(array) % 2 == 0:
        yield np.asfortranarray(array.reshape(2, -1))
        yield array.reshape(-1, 2).T[::-1]
    if array.dtype.kind in "iufc" and array.dtype.itemsize > 1:
        yield array.astype(array.dtype.newbyteorder("S"))


@given(
    numbers(), st.sampled_from(ALL_TYPES), st.sampled_from((1, 1, 1, 5, CHUNK, CHUNK + 1, BLOCK - 1, BLOCK, BLOCK + 3))
)
def test_any_values_of_any_type_in_any_layout(values: list[float], kind: Any, length: int) -> None:
    with np.errstate(all="ignore"):
        if np.dtype(kind).kind in "iu":  # casting what does not fit means something else on every machine
            info = np.iinfo(kind)
            tame = [x if math.isfinite(x) else 0.0 for x in values]
            array = np.array([max(info.min, min(info.max, int(x))) for x in tame], np.dtype(kind))
        else:
            array = np.array(values, np.float64).astype(kind)
    array = np.resize(array, max(length, len(array)))
    if np.dtype(kind).itemsize >= 8 and np.dtype(kind).kind in "fc":
        array[np.abs(array) < 1e-145] = 0  # their squares are no doubles
    for one in layouts(array):
        assert_exact(measure_stats(one)[0], one)


def test_doubles_whose_squares_overflow() -> None:
    found = measure_stats(np.array([1e200, -1e200, 3e200]))[0]
    assert found.mean == pytest.approx(1e200)
    assert found.abs_mean == pytest.approx(5e200 / 3)
    assert (found.sum_squares, found.variance) == (INF, INF)
    assert (found.nan, found.pos_inf, found.positive, found.negative) == (0, 0, 2, 1)


@pytest.mark.parametrize("length", [3, BLOCK + 2])
def test_doubles_whose_sum_overflows(length: int) -> None:
    array = cycle([1.7e308, 1.7e308, -1.7e308], length // 3 * 3, np.float64)
    found = measure_stats(array)[0]
    assert found.mean == pytest.approx(1.7e308 / 3)
    assert found.abs_mean == pytest.approx(1.7e308)
    assert found.variance == INF
    equal = measure_stats(np.full(length, -1.7e308))[0]
    assert (equal.mean, equal.abs_mean, equal.variance) == (-1.7e308, 1.7e308, 0)


def test_nothing_is_said_on_stderr_however_strict_numpy_is(recwarn: pytest.WarningsRecorder) -> None:
    with np.errstate(all="raise"):
        for make in HARD.values():
            measure_stats(make(100))
        for kind in ("f4", "f8", "f2", ml_dtypes.bfloat16, "c8"):
            with np.errstate(all="ignore"):
                array = cycle([NAN, INF, -INF, 1e300, -1e300], 100, kind)
            measure_stats(array, [(-1e300, 1e-300)])
    assert not recwarn.list
