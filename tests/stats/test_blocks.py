"""Statistics of arrays of any type and layout, against their definition."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tui_debugger.model import TensorStats
from tui_debugger.stats.blocks import BLOCK, Accumulator, double_blocks, doubles, measure_stats, pieces
from tui_debugger.stats.dtypes import is_numeric
from tui_debugger.stats.fields import STORED, STORED_NAMES, Form

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
NARROW = (
    *("?", "i1", "u1", "i2", "u2", "f2", ">f2", ">i2", ">u2"),
    *(getattr(ml_dtypes, name) for name in dir(ml_dtypes) if name.startswith(("float8", "bfloat16"))),
)


def every_value(kind: Any) -> Array:
    """Every bit pattern of an element type."""
    dtype = np.dtype(kind)
    if dtype == np.bool_:
        return np.array([False, True])
    size = dtype.itemsize
    patterns = np.arange(1 << 8 * size).astype(f"u{size}")
    return patterns.view(dtype)


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_every_value_of_a_narrow_type_is_itself_as_float64(kind: Any) -> None:
    values = every_value(kind)
    found = doubles(values)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32)
        np.testing.assert_array_equal(found, expected.astype(np.float64))
    assert (np.signbit(found) == np.signbit(expected))[found == 0].all()


def test_what_is_returned_is_contiguous_and_the_input_stays_as_it_is() -> None:
    for kind in ("f4", "f8", "f2", "i4", "c8", ">f4", np.longdouble):
        strided = np.arange(20).astype(kind)[::-2]
        kept = strided.copy()
        assert doubles(strided).flags.c_contiguous
        np.testing.assert_array_equal(doubles(strided), np.abs(kept))
        np.testing.assert_array_equal(strided, kept)


def test_pieces_of_several_arrays_keep_their_elements_together() -> None:
    array = np.arange(60.0).reshape(3, 4, 5)
    others = [array, np.asfortranarray(array), array[::-1], array.transpose(2, 0, 1), array[:, ::2]]
    for one in others:
        for other in others:
            if one.shape == other.shape:
                together = {pair for a, b in pieces(one, other) for pair in zip(a.tolist(), b.tolist(), strict=True)}
                assert together == set(zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))


@pytest.mark.parametrize("kind", [*NARROW, "f4", "f8", "i8", "c16"], ids=str)
@pytest.mark.parametrize("count", [0, 1, BLOCK, BLOCK + 1])
def test_double_blocks_hold_every_element_once(kind: Any, count: int) -> None:
    array = np.tile(np.array([0, 1, 1, 1], kind), count // 4 + 1)[:count]
    blocks = [block.copy() for block in double_blocks(array)]
    assert all(len(block) <= BLOCK for block in blocks)
    found = np.concatenate(blocks) if blocks else np.empty(0)
    np.testing.assert_array_equal(found, array.astype(np.complex128).real)
    assert is_numeric(array.dtype)


INF, NAN = math.inf, math.nan
REAL_TYPES = (
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">f4", ">i2", ">f8"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
)


def brute(array: Array) -> TensorStats:
    """The definition, in whole-array float64 operations and exact sums."""
    x = np.abs(array.astype(np.complex128)) if array.dtype.kind == "c" else array.astype(np.float64)
    x = x.reshape(-1)
    finite = x[np.isfinite(x)]
    some = len(finite) > 0
    mean = math.fsum(finite) / len(finite) if some else 0.0
    return TensorStats(
        count=x.size,
        nan=int(np.isnan(x).sum()),
        pos_inf=int((x == INF).sum()),
        neg_inf=int((x == -INF).sum()),
        zero=int((x == 0).sum()),
        negative=int((finite < 0).sum()),
        positive=int((finite > 0).sum()),
        minimum=float(finite.min()) if some else None,
        maximum=float(finite.max()) if some else None,
        mean=mean if some else None,
        abs_mean=math.fsum(np.abs(finite)) / len(finite) if some else None,
        variance=math.fsum((finite - mean) ** 2) / len(finite) if some else None,
        sum_squares=math.fsum(finite**2),
    )


def assert_same(found: TensorStats, expected: TensorStats) -> None:
    exact = ("count", "nan", "pos_inf", "neg_inf", "zero", "negative", "positive", "minimum", "maximum")
    for name in exact:
        assert getattr(found, name) == getattr(expected, name), name
    if expected.mean is None or expected.abs_mean is None or expected.variance is None:
        assert (found.mean, found.abs_mean, found.variance, found.sum_squares) == (None, None, None, 0.0)
        return
    assert found.mean == pytest.approx(expected.mean, rel=0, abs=1e-6 * expected.abs_mean)
    assert found.abs_mean == pytest.approx(expected.abs_mean, rel=1e-6, abs=0)
    assert found.variance == pytest.approx(expected.variance, rel=1e-6, abs=1e-28 * expected.sum_squares)
    assert found.sum_squares == pytest.approx(expected.sum_squares, rel=1e-6, abs=0)


def stats(array: Array) -> TensorStats:
    return measure_stats(array)[0]


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


class TestPublishedAnswers:
    def test_a_small_matrix(self) -> None:
        found = stats(np.array([[7.5, 8.56, -9.78], [10, -11, 0]], np.float32))
        assert (found.maximum, found.minimum, found.negative, found.positive) == (10, -11, 2, 3)
        assert found.mean == pytest.approx(0.8800001144409179, rel=1e-12)
        assert (found.zero, found.count) == (1, 6)

    def test_averages_above_20000_elements_are_right(self) -> None:
        """The old tool says 0.2000000000000003."""
        found = stats(np.concatenate([np.zeros(10000, np.float32), np.ones(15000, np.float32)]))
        assert (found.mean, found.maximum, found.minimum) == (0.6, 1, 0)
        assert (found.zero, found.positive) == (10000, 15000)

    def test_averages_below_20000_elements_agree(self) -> None:
        found = stats(np.concatenate([np.zeros(10000, np.float32), np.ones(9000, np.float32)]))
        assert found.mean == pytest.approx(0.4736842105263164, rel=1e-12)

    def test_nan_and_inf_are_left_out_of_everything_but_their_counts(self) -> None:
        for bad in (NAN, INF):
            found = stats(f32(1, bad, -5))
            assert (found.maximum, found.minimum, found.mean, found.count) == (1, -5, -2, 3)
        assert stats(f32(1, INF, -5)).pos_inf == 1
        mixed = stats(f32(0.1, -0.0, 0, NAN, INF, -INF))
        assert (mixed.maximum, mixed.minimum) == (0.10000000149011612, 0)
        assert mixed.mean == pytest.approx(0.03333333383003871, rel=1e-12)
        assert (mixed.zero, mixed.nan, mixed.pos_inf, mixed.neg_inf, mixed.positive, mixed.negative) == (
            2,
            1,
            1,
            1,
            1,
            0,
        )

    def test_bool_and_scalar(self) -> None:
        found = stats(np.array([True, False, True]))
        assert (found.maximum, found.minimum) == (1, 0)
        assert found.mean == pytest.approx(2 / 3, rel=1e-12)
        assert (found.zero, found.positive) == (1, 2)
        scalar = stats(np.float32(3.5).reshape(()))
        assert (scalar.count, scalar.maximum, scalar.minimum, scalar.mean, scalar.variance) == (1, 3.5, 3.5, 3.5, 0)


class TestNothingFinite:
    @pytest.mark.parametrize("array", [f32(), f32(NAN, NAN), f32(INF, -INF, NAN), np.zeros((3, 0, 2), np.int8)])
    def test_there_is_no_extreme_and_no_mean(self, array: Array) -> None:
        """The old tool shows ±1.8e308."""
        found = stats(array)
        assert (found.minimum, found.maximum, found.mean, found.abs_mean, found.variance) == (None,) * 5
        assert (found.count, found.finite, found.sum_squares) == (array.size, 0, 0.0)


class TestLayouts:
    @pytest.mark.parametrize("kind", REAL_TYPES)
    def test_every_element_type(self, kind: Any) -> None:
        array = (np.random.default_rng(2).standard_normal((7, 11)) * 5).astype(kind)
        assert_same(stats(array), brute(array))

    def test_order_and_strides_make_no_difference(self) -> None:
        base = np.random.default_rng(3).standard_normal((6, 50, 70)).astype(np.float32)
        base[3, 4, 5] = NAN
        for view in (np.asfortranarray(base), base.transpose(2, 0, 1), base[::2, ::-1, 3:60:4], base[:, 0, 0]):
            assert_same(stats(view), brute(view))
        readonly = base[1]
        readonly.flags.writeable = False
        assert_same(stats(readonly), brute(readonly))

    def test_complex_counts_by_magnitude(self) -> None:
        found = stats(np.array([3 + 4j, -1, 0, complex(NAN, 1), complex(INF, NAN)], np.complex64))
        assert (found.maximum, found.minimum, found.abs_mean, found.mean) == (5, 0, 2, 2)
        assert (found.negative, found.nan, found.pos_inf, found.neg_inf, found.zero) == (0, 1, 1, 0, 1)
        assert found.sum_squares == 26

    @pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * BLOCK, 2 * BLOCK + 4])
    @pytest.mark.parametrize("bad", [NAN, INF, -INF])
    def test_one_bad_element_anywhere_is_found(self, at: int, bad: float) -> None:
        array = np.ones(2 * BLOCK + 5, np.float32)
        array[at] = bad
        found = stats(array)
        assert found.bad
        assert found.finite == len(array) - 1
        assert (found.mean, found.variance) == (1, 0)

    def test_text_has_no_statistics(self) -> None:
        with pytest.raises(TypeError, match="element type"):
            stats(np.array(["a"]))


class TestValues:
    def test_they_come_in_the_order_of_a_row_of_records(self) -> None:
        accumulator = Accumulator()
        accumulator.add(f32(NAN, INF, INF, -INF, 0, -1, -2, 4, 5, 6))
        values = dict(zip(STORED_NAMES, accumulator.values(), strict=True))
        found = accumulator.stats()
        assert values == {name: getattr(found, name) for name in values}
        assert (values["nan"], values["pos_inf"], values["neg_inf"]) == (1, 2, 1)
        assert (values["zero"], values["negative"], values["positive"]) == (1, 2, 3)

    @pytest.mark.parametrize("array", [f32(), f32(NAN, INF)])
    def test_nan_stands_for_what_there_is_not(self, array: Array) -> None:
        accumulator = Accumulator()
        accumulator.add(array)
        values = dict(zip(STORED_NAMES, accumulator.values(), strict=True))
        assert values["count"] == len(array)
        reals = [field.name for field in STORED if field.form is Form.REAL]
        assert [name for name in reals if not math.isnan(values[name])] == ["sum_squares"]


class TestRanges:
    def test_bounds_are_inclusive_and_nan_is_outside(self) -> None:
        array = f32(-INF, -3, -1, 0, 2, INF, NAN)
        bounds = [(-3.0, 0.0), (-INF, INF), (0.0, INF), (5.0, 4.0)]
        assert measure_stats(array, bounds)[1] == dict(zip(bounds, (3, 6, 3, 0), strict=True))

    @pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i4", "i8", ">f4"])
    def test_blocks_far_from_a_bound_count_as_a_whole(self, kind: str) -> None:
        array = np.repeat(np.array([1, 50, 100], kind), BLOCK)
        bounds = {
            (0.0, 200.0): 3 * BLOCK,
            (2.0, 49.0): 0,
            (40.0, 60.0): BLOCK,
            (-INF, 99.0): 2 * BLOCK,
            (50.0, INF): 2 * BLOCK,
        }
        assert measure_stats(array, bounds)[1] == bounds

    def test_elements_are_doubles_before_they_are_compared(self) -> None:
        """float32 0.1 lies above 0.1."""
        assert measure_stats(f32(0.1), [(0.0, 0.1)])[1] == {(0.0, 0.1): 0}

    def test_bounds_beyond_what_the_element_type_can_hold(self) -> None:
        bounds = {(-1e300, 1e300): 2, (1e300, INF): 1, (-INF, -1e300): 1, (1e-300, 1e300): 1, (NAN, 1.0): 0}
        assert measure_stats(f32(0, 1, INF, -INF), bounds)[1] == bounds


BOUNDS = st.sampled_from([-INF, -1e300, -2.0, -1.0, -0.1, -0.0, 0.0, 1e-45, 0.1, 1.0, 1.0 + 1e-9, 2.0, 1e300, INF])
IN_RANGE = st.sampled_from([-INF, -2.0, -1.0, -0.1, 0.0, 1e-45, 0.1, 1.0, 2.0, INF, NAN])


@given(
    st.lists(IN_RANGE, max_size=8), st.lists(st.tuples(BOUNDS, BOUNDS), max_size=4), st.sampled_from(["f2", "f4", "f8"])
)
def test_ranges_equal_the_definition(values: list[float], bounds: list[tuple[float, float]], kind: str) -> None:
    array = np.array(values, kind)
    wide = [float(value) for value in array]
    expected = {(low, high): sum(low <= x <= high for x in wide) for low, high in bounds}
    assert measure_stats(array, bounds)[1] == expected


ANY = st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u8", "?", ">f4"]).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
)
TAME = hnp.arrays(
    "f8", hnp.array_shapes(max_dims=3), elements=st.floats(-1e100, 1e100) | st.sampled_from([NAN, INF, -INF, 0.0])
)


@given(ANY.filter(lambda a: a.dtype != np.float64) | TAME)
def test_statistics_equal_the_definition(array: Array) -> None:
    assert_same(stats(array), brute(array))


@given(TAME, st.integers(0, 200))
def test_parts_merge_to_the_whole(array: Array, cut: int) -> None:
    flat = array.reshape(-1)
    first, second = Accumulator([(-1.0, 1.0)]), Accumulator([(-1.0, 1.0)])
    first.add(flat[:cut])
    second.add(flat[cut:])
    first.merge(second)
    whole, ranges = measure_stats(array, [(-1.0, 1.0)])
    assert_same(first.stats(), whole)
    assert first.ranges == ranges
