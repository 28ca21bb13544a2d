"""One tensor against another one: against the definition, element by element."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.records import Closeness, StepChange
from tui_debugger.stats.side_by_side import BlockComparison, compare

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
INF, NAN = math.inf, math.nan
TIGHT: Closeness = (1e-5, 1e-8, False)
TESTS: tuple[Closeness, ...] = (
    *(TIGHT, (1e-5, 1e-8, True), (0.0, 0.0, False), (0.0, 1e-3, False)),
    *((0.5, 0.0, True), (0.0, INF, False), (-1.0, 1.0, False), (1e-3, -1e-9, True), (NAN, 1.0, False)),
)
KINDS = ("f4", "f8", "f2", "i4", "i8", "u1", "?", ">f4", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)


def is_close(now: float, before: float, closeness: Closeness) -> bool:
    """The definition, for one pair of doubles."""
    rtol, atol, equal_nan = closeness
    if math.isnan(now) or math.isnan(before):
        return equal_nan and math.isnan(now) and math.isnan(before)
    if now == before:
        return True
    return math.isfinite(before) and abs(now - before) <= atol + rtol * abs(before)


def assert_defined(current: Array, previous: Array, closenesses: Iterable[Closeness] = TESTS) -> None:
    """What comes out is what the definition says."""
    change, close = compare(current, previous, closenesses)
    with np.errstate(all="ignore"):
        now, before = (array.astype(np.float64).ravel() for array in (current, previous))
        differences, magnitudes = np.abs(now - before), np.abs(before)
    assert change.mean_abs_difference == pytest.approx(mean(differences), rel=1e-11, abs=0, nan_ok=True)
    assert change.mean_abs_previous == pytest.approx(mean(magnitudes), rel=1e-11, abs=0, nan_ok=True)
    pairs = set(zip(now.tolist(), before.tolist(), strict=True))
    assert close == {one: bool(pairs) and all(is_close(*pair, one) for pair in pairs) for one in closenesses}


def mean(values: Array) -> float:
    if not len(values) or np.isnan(values).any():
        return NAN
    return math.fsum(values) / len(values) if np.isfinite(values).all() else INF


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


class TestMeans:
    def test_complex_differences_are_distances(self) -> None:
        change, close = compare(np.array([3 + 4j]), np.array([0j + 0]), [(0.0, 5.0, False), (0.0, 4.9, False)])
        assert (change.mean_abs_difference, change.mean_abs_previous) == (5, 0)
        assert list(close.values()) == [True, False]

    def test_unsigned_and_bool_do_not_wrap_around(self) -> None:
        assert compare(np.array([0], np.uint8), np.array([255], np.uint8))[0].mean_abs_difference == 255
        assert compare(np.array([True]), np.array([False]))[0].mean_abs_difference == 1

    def test_differences_are_those_of_doubles(self) -> None:
        """In float32, 1e8 − 0.1 is 1e8."""
        assert compare(f32(1e8), f32(0.1))[0].mean_abs_difference == 1e8 - float(np.float32(0.1))

    def test_differences_that_overflow_float32(self) -> None:
        change, close = compare(f32(3e38), f32(-3e38), [TIGHT])
        assert change.mean_abs_difference == 2 * float(np.float32(3e38))
        assert close == {TIGHT: False}

    def test_nan_and_the_same_inf_make_the_mean_nan(self) -> None:
        for pair in ((f32(NAN, 1), f32(1, 1)), (f32(1, 1), f32(1, NAN)), (f32(INF), f32(INF))):
            assert math.isnan(compare(*pair)[0].mean_abs_difference)
        assert compare(f32(INF, 1), f32(1, 1))[0] == StepChange(INF, 1)


class TestInputs:
    def test_layouts_may_differ(self) -> None:
        array = np.random.default_rng(4).standard_normal((30, 40))
        key = (0.0, 0.0, False)
        change, close = compare(array, np.asfortranarray(array), [key])
        assert (change.mean_abs_difference, close) == (0, {key: True})

    def test_inputs_are_not_written_to(self) -> None:
        for kind in ("f4", "f8"):
            now, before = np.arange(-5, 5, dtype=kind), np.arange(10, dtype=kind)
            now.flags.writeable = before.flags.writeable = False
            compare(now, before, TESTS)
            assert now.tolist() == list(range(-5, 5))

    def test_empty_tensors_are_never_close(self) -> None:
        change, close = compare(f32(), f32(), [(1.0, 1.0, True)])
        assert close == {(1.0, 1.0, True): False}
        assert math.isnan(change.mean_abs_difference)

    def test_other_shapes_are_refused(self) -> None:
        with pytest.raises(ValueError, match="shapes"):
            compare(f32(1), f32(1, 2))


class TestCloseness:
    @pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 3 * BLOCK - 1])
    @pytest.mark.parametrize("value", [2.0, NAN, INF, -INF])
    def test_an_outlier_in_any_block_is_not_close(self, at: int, value: float) -> None:
        before = np.ones(3 * BLOCK, np.float32)
        after = before.copy()
        after[at] = value
        assert compare(before, before, [TIGHT])[1] == {TIGHT: True}
        assert compare(after, before, [TIGHT])[1] == {TIGHT: False}
        assert compare(before, after, [TIGHT])[1] == {TIGHT: False}

    def test_the_element_that_differs_most_need_not_be_the_one_that_is_not_close(self) -> None:
        key = (1e-3, 0.0, False)
        assert compare(f32(1000.5, 1), f32(1000, 1), [key])[1] == {key: True}
        assert compare(f32(1000.5, 1.25), f32(1000, 1), [key])[1] == {key: False}

    @pytest.mark.parametrize("kind", ["f4", "f8"])
    def test_a_tolerance_is_met_exactly_or_not_at_all(self, kind: str) -> None:
        rng = np.random.default_rng(5)
        before = rng.standard_normal(1000).astype(kind)
        now = before + (rng.standard_normal(1000) * 1e-6).astype(kind)
        differences = np.abs(now.astype(np.float64) - before.astype(np.float64))
        limit = float(differences.max())
        below = float(np.nextafter(limit, 0))
        tests = [(0.0, limit, False), (0.0, below, False)]
        assert list(compare(now, before, tests)[1].values()) == [True, False]
        ratios = differences / np.abs(before.astype(np.float64))
        assert_defined(now, before, [(float(r), 0.0, False) for r in np.sort(ratios)[-3:]] + [(0.0, below, True)])

    def test_halves_differ_as_doubles_do(self) -> None:
        now, before = np.array([1.001], np.float16), np.array([1], np.float16)
        apart = float(now[0]) - 1
        tests = [(0.0, apart, False), (0.0, math.nextafter(apart, 0), False)]
        assert list(compare(now, before, tests)[1].values()) == [True, False]

    def test_inf_is_close_to_itself_only(self) -> None:
        key = (1.0, 1.0, False)
        for now, before, close in (
            *((INF, INF, True), (-INF, -INF, True), (INF, -INF, False)),
            *((INF, 1.0, False), (1.0, INF, False), (NAN, INF, False), (NAN, NAN, False)),
        ):
            assert compare(f32(now, 0), f32(before, 0), [key])[1] == {key: close}, (now, before)


VALUES = [0.0, -0.0, 1.0, 1.0 + 1e-7, 1.1, -2.0, 1e-45, 1e-8, 3e38, -3e38, NAN, INF, -INF]
FINITE = VALUES[:-3]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    """Two arrays of one shape and of any element types."""
    kinds = draw(st.sampled_from(KINDS)), draw(st.sampled_from(KINDS))
    shape = draw(hnp.array_shapes(max_dims=2, min_side=0))
    wide = [
        draw(hnp.arrays("f8", shape, elements=st.sampled_from(draw(st.sampled_from([VALUES, FINITE]))))) for _ in "12"
    ]
    if draw(st.booleans()):
        wide[1] = wide[0]
    with np.errstate(all="ignore"):
        first, second = (
            (np.clip(np.nan_to_num(each), 0, 100) if np.dtype(kind).kind in "iu" else each).astype(kind)
            for each, kind in zip(wide, kinds, strict=True)
        )
    return first, second


@given(pairs(), st.sampled_from((1, 1, 1, 5000, BLOCK)))
def test_any_pair_is_compared_as_defined(pair: tuple[Array, Array], repeats: int) -> None:
    current, previous = (np.tile(array.reshape(-1), repeats) for array in pair)
    if len(current) > 3 * BLOCK:
        current, previous = current[: 2 * BLOCK + 7], previous[: 2 * BLOCK + 7]
    assert_defined(current, previous)


@given(pairs(), st.integers(0, 30))
def test_parts_merge_to_the_whole(pair: tuple[Array, Array], cut: int) -> None:
    current, previous = (array.reshape(-1) for array in pair)
    first, second = BlockComparison(TESTS), BlockComparison(TESTS)
    first.add(current[:cut], previous[:cut])
    second.add(current[cut:], previous[cut:])
    first.merge(second)
    change, close = first.result()
    whole, whole_close = compare(current, previous, TESTS)
    assert close == whole_close
    assert change.mean_abs_difference == pytest.approx(whole.mean_abs_difference, nan_ok=True)
    assert change.mean_abs_previous == pytest.approx(whole.mean_abs_previous, nan_ok=True)


PAIRS = hnp.array_shapes(max_dims=2).flatmap(
    lambda shape: st.tuples(
        *[hnp.arrays("f8", shape, elements=st.sampled_from([0.0, 1.0, 1.0 + 1e-7, 1.1, -2.0, NAN, INF, -INF]))] * 2
    )
)


@given(PAIRS, st.sampled_from([(0.0, 0.0), (1e-5, 1e-8), (0.5, 0.0), (0.0, 1.0)]), st.booleans())
def test_closeness_equals_numpy_where_inf_is_equal_only_to_itself(
    pair: tuple[Array, Array], tolerance: tuple[float, float], equal_nan: bool
) -> None:
    current, previous = pair
    key = (*tolerance, equal_nan)
    with np.errstate(invalid="ignore"):
        expected = np.allclose(current, previous, rtol=key[0], atol=key[1], equal_nan=equal_nan)
    assert compare(current, previous, [key])[1] == {key: expected}
