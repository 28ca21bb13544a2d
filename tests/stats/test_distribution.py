from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress, ReadSpec
from tui_debugger.stats import distribution as module
from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.distribution import (
    BINS,
    DOUBLES,
    SINGLES,
    Bin,
    Histogram,
    KeyKind,
    count_below,
    count_bins,
    count_classes,
    histogram,
    linear_bins,
    log_bins,
)
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.quantiles import PERCENTS, order_statistics, quantiles

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]


def of(array: Array, bins: int = BINS) -> Histogram:
    """Between the smallest and the greatest finite element, which plain numpy finds."""
    values = finite(array)
    return histogram(array, float(values.min()), float(values.max()), bins)


def finite(array: Array) -> npt.NDArray[np.float64]:
    doubles = np.abs(array).astype(np.float64) if array.dtype.kind == "c" else array.astype(np.float64)
    return doubles[np.isfinite(doubles)]


@given(st.lists(st.floats(width=32), min_size=1), st.integers(1, 20))
def test_counts_are_those_of_numpy(values: list[float], bins: int) -> None:
    array = np.array(values, np.float32)
    good = finite(array)
    assume(len(good) and good.min() < good.max())
    found = of(array, bins)
    try:
        counts, edges = np.histogram(good, bins, (good.min(), good.max()))
    except ValueError:  # numpy gives up on ranges that hold fewer doubles than bins
        assume(False)
    assert found.counts == tuple(counts.tolist())
    assert found.edges == tuple(edges.tolist())


@given(st.lists(st.floats(), min_size=1), st.integers(1, 12))
def test_every_finite_double_is_in_the_bin_between_its_edges(values: list[float], bins: int) -> None:
    array = np.array(values)
    good = finite(array)
    assume(len(good))
    found = of(array, bins)
    edges = found.edges
    assert (edges[0], edges[-1]) == (good.min(), good.max())
    assert list(edges) == sorted(edges)
    last = len(found.counts) - 1
    expected = [
        sum(low <= x and (x < high or (i == last and x == high)) for x in good.tolist())
        for i, (low, high) in enumerate(pairwise(edges))
    ]
    assert list(found.counts) == expected
    assert sum(found.counts) == len(good)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers_up_to_two_to_the_sixty_three(values: list[int]) -> None:
    array = np.array(values, np.int64)
    found = of(array)
    assert sum(found.counts) == len(values)
    if array.min() != array.max() and float(array.min()) != float(array.max()):
        doubles = array.astype(np.float64)
        assert found.counts == tuple(np.histogram(doubles, BINS, (doubles.min(), doubles.max()))[0].tolist())


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False, True, True]),
        np.arange(256, dtype=np.uint8),
        np.array([0, 2**64 - 1], np.uint64),
        np.array([-65504, 0, 65504, np.inf, np.nan], np.float16),
        np.array([-1, 0.5, 2, np.nan], ml_dtypes.bfloat16),
        np.array([0.5, 1, 448], ml_dtypes.float8_e4m3fn),
        np.array([3 + 4j, 1j, -2, np.nan]),
        np.array([1, 2, 3, 2], ">f4"),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(24.0).reshape(2, 3, 4)[:, ::2, 1:],
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_every_element_type_counts_as_its_double(array: Array) -> None:
    good = finite(array)
    counts, edges = np.histogram(good, BINS, (good.min(), good.max()))
    assert of(array) == Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def test_a_constant_tensor_has_one_bin() -> None:
    assert of(np.full(7, 1e300)) == Histogram((1e300, 1e300), (7,))
    assert of(np.array([0.0, -0.0, np.nan])) == Histogram((0.0, 0.0), (2,))


def test_a_range_wider_than_the_greatest_double() -> None:
    found = of(np.array([-1.7e308, -1e307, 1e307, 1.7e308, np.inf, -np.inf]), 4)
    assert found.counts == (1, 1, 1, 1)
    assert all(map(math.isfinite, found.edges))
    assert found.edges[2] == 0


@pytest.mark.parametrize("array", [np.full(3, np.nan), np.array([np.inf, -np.inf]), np.zeros((0, 4))])
def test_without_a_finite_element_nothing_is_counted(array: Array) -> None:
    assert sum(histogram(array, -1.0, 1.0).counts) == 0


def test_what_lies_outside_the_bounds_is_left_out() -> None:
    assert histogram(np.arange(10.0), 2.0, 5.0, 3).counts == (1, 1, 2)


def test_blocks_add_up() -> None:
    array = np.random.default_rng(1).normal(size=2 * BLOCK + 7).astype(np.float32)
    doubles = array.astype(np.float64)
    assert of(array).counts == tuple(np.histogram(doubles, BINS)[0].tolist())


def test_of_a_memory_map(tmp_path: Path) -> None:
    array = np.random.default_rng(2).normal(size=(3, 2_000_000)).astype(np.float32)
    np.save(tmp_path / "big.npy", array)
    assert of(open_array(ReadSpec(str(tmp_path / "big.npy")))) == of(array)


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (math.nan, 1.0), (0.0, math.inf)])
def test_impossible_bounds_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no histogram"):
        histogram(np.zeros(3), *bounds)


def test_no_bins_and_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="0 bins"):
        histogram(np.zeros(3), 0.0, 1.0, 0)
    with pytest.raises(TypeError, match="element type"):
        histogram(np.array(["a"]), 0.0, 1.0)


DTYPES = (
    *("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", ">f4", ">f8", "complex64"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
)


def sample(dtype: Any, size: int = 5000) -> Array:
    """Values of either sign over some decades, zeros of both signs, NaN and Inf where the type has them."""
    rng = np.random.default_rng(7)
    values = rng.standard_normal(size) * np.exp(rng.normal(0, 2, size))
    values[::7], values[3::14] = 0.0, -0.0
    kind = np.dtype(dtype)
    with np.errstate(all="ignore"):
        array = (values + 1j * values[::-1]).astype(kind) if kind.kind == "c" else values.astype(kind)
    if kind.kind == "f" or kind.name in {"bfloat16", "float8_e5m2"}:
        array[1::17], array[2::19], array[5::23] = np.nan, np.inf, -np.inf
    return array


def finite_keys(array: Array) -> npt.NDArray[np.float64]:
    doubles = np.abs(array.astype(np.complex128)) if array.dtype.kind == "c" else array.astype(np.float64)
    return doubles[np.isfinite(doubles)]


@pytest.mark.parametrize("kind", [SINGLES, DOUBLES])
@given(data=st.data())
def test_keys_rise_with_the_values_and_lead_back_to_them(kind: KeyKind, data: st.DataObject) -> None:
    floats = st.floats(allow_nan=False, width=32 if kind is SINGLES else 64)
    values = np.array(data.draw(st.lists(floats, min_size=2, max_size=20)), kind.value)
    keys = kind.of(values)
    assert np.array_equal(np.argsort(keys, kind="stable"), np.argsort(values, kind="stable"))
    assert np.array_equal(kind.value_of(keys), values)
    low, high = kind.finite
    assert [low <= int(key) < high for key in keys] == np.isfinite(values).tolist()


@given(st.floats(allow_nan=False), st.floats(width=32, allow_nan=False))
def test_a_bound_between_two_values_of_the_type_is_that_of_the_next_one(bound: float, value: float) -> None:
    key = int(SINGLES.of(np.array([value], np.float32))[0])
    assert (key < SINGLES.key_of(bound)) == (value < bound)
    if bound != math.inf:  # nothing is above it
        assert (key < SINGLES.key_of(bound, above=True)) == (value <= bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_below_any_bound_are_counted_as_numpy_counts_them(dtype: Any) -> None:
    array = sample(dtype)
    values = finite_keys(array)
    classes = count_classes(array)
    assert classes.finite == len(values)
    bounds = [values.min(), -1.0, -0.0, 1e-3, 0.5, math.pi, values.max(), 1e300]
    keys = [classes.kind.key_of(bound) for bound in bounds] + [classes.kind.key_of(b, above=True) for b in bounds]
    counted = [count - classes.first for count in count_below(array, classes, keys)]
    assert counted == [int((values < b).sum()) for b in bounds] + [int((values <= b).sum()) for b in bounds]


@pytest.mark.parametrize("kept", [1 << 21, 64, 0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_percentiles_are_those_of_numpy(dtype: Any, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when next to nothing may be kept and sorted, so that every bit is found by counting."""
    monkeypatch.setattr(module, "MOST_KEPT", kept)
    array = sample(dtype)
    found = quantiles(array, count_classes(array))
    assert found.values == tuple(np.percentile(finite_keys(array), PERCENTS).tolist())
    assert found.count == len(finite_keys(array))


@given(st.lists(st.floats(), min_size=1, max_size=30), st.floats(0, 100))
def test_any_percentile_of_any_doubles(values: list[float], percent: float) -> None:
    array = np.array(values)
    good = finite_keys(array)
    (found,) = quantiles(array, count_classes(array), [percent]).values or (None,)
    with np.errstate(all="ignore"):
        expected = float(np.percentile(good, percent)) if len(good) else None
    if expected is not None and math.isfinite(expected):
        assert found == expected
    elif expected is not None:  # numpy's own interpolation overflows
        assert found is not None
        assert good.min() <= found <= good.max()


def test_places_of_the_sorted_tensor() -> None:
    array = np.array([3.0, np.nan, -1.0, np.inf, 0.0, -0.0], np.float32)
    assert order_statistics(array, count_classes(array), range(4)) == {0: -1.0, 1: 0.0, 2: 0.0, 3: 3.0}


@pytest.mark.parametrize("array", [np.zeros(0, np.float32), np.full(3, np.nan), np.array([np.inf, -np.inf])])
def test_without_a_finite_element_there_are_no_percentiles(array: Array) -> None:
    assert quantiles(array, count_classes(array)).values == ()


def test_what_is_not_contiguous_is_counted_whole() -> None:
    array = sample("float32").reshape(50, 100)
    for view in (array.T, array[::2, ::3], np.asfortranarray(array), array[:0]):
        classes = count_classes(view)
        assert classes.finite == len(finite_keys(view))
        if view.size:
            assert quantiles(view, classes).values == tuple(np.percentile(finite_keys(view), PERCENTS).tolist())


def test_other_types_have_no_order() -> None:
    with pytest.raises(TypeError, match="no order"):
        count_classes(np.array(["a"]))


def test_long_work_tells_how_far_it_is_and_can_be_stopped() -> None:
    told: list[Progress] = []
    count_classes(np.zeros(1_000_000, np.float32), told.append)
    assert [each.total for each in told] == [1_000_000] * 4
    assert [each.done for each in told] == sorted(each.done for each in told)

    def stop(progress: Progress) -> None:
        if progress.done:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        count_classes(np.zeros(1_000_000, np.float32), stop)


@pytest.mark.parametrize("size", [40_000, 300_000])
def test_percentiles_of_values_that_are_all_in_a_few_classes(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of a normalisation are all next to 1, and half of an activation is 0 or next to it."""
    monkeypatch.setattr(module, "MOST_KEPT", 100)
    rng = np.random.default_rng(4)
    for values in (1 + 1e-4 * rng.standard_normal(size), np.maximum(rng.standard_normal(size), 0) * 1e-42):
        for kind in ("f4", "f8"):
            array = values.astype(kind)
            found = quantiles(array, count_classes(array))
            assert found.values == tuple(np.percentile(finite_keys(array), PERCENTS).tolist())


def holds(each: Bin, value: float) -> bool:
    above = value > each.low or (each.with_low and value == each.low)
    return above and (value < each.high or (each.with_high and value == each.high))


values_lists = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30)


@given(values_lists, st.integers(1, 60))
def test_every_value_is_in_one_bin_of_equal_width(values: list[float], room: int) -> None:
    bins = linear_bins(min(values), max(values), room)
    assert len(bins) <= room
    assert all(sum(holds(each, value) for each in bins) == 1 for value in values)


@given(values_lists, st.integers(5, 60))
def test_every_value_is_in_one_bin_by_magnitude(values: list[float], room: int) -> None:
    least = min((abs(value) for value in values if value), default=None)
    bins = log_bins(min(values), max(values), least, room)
    assert len(bins) <= room
    assert all(sum(holds(each, value) for each in bins) == 1 for value in values)
    assert all(one.high <= other.low for one, other in pairwise(bins))


@given(st.lists(st.floats(), min_size=1, max_size=200), st.integers(5, 60), st.booleans())
def test_counts_are_what_the_edges_say(values: list[float], room: int, log: bool) -> None:
    array = np.array(values)
    good = [value for value in values if math.isfinite(value)]
    assume(good)
    least = min((abs(value) for value in good if value), default=None)
    low, high = min(good), max(good)
    bins = log_bins(low, high, least, room) if log else linear_bins(low, high, room)
    counts = count_bins(array, count_classes(array), bins)
    assert counts == tuple(sum(holds(each, value) for value in good) for each in bins)
    assert sum(counts) == len(good)


@given(st.integers(-(2**40), 2**40), st.integers(0, 5000), st.integers(1, 100))
def test_bins_of_whole_numbers_begin_at_one_and_hold_as_many(low: int, span: int, room: int) -> None:
    bins = linear_bins(low, low + span, room, whole=True)
    assert len(bins) <= room
    assert bins[0].low == low
    assert bins[-1].high > low + span
    assert len({each.high - each.low for each in bins}) == 1
    assert all(each.low.is_integer() for each in bins)


def test_octaves_are_the_same_on_both_sides_of_zero() -> None:
    assert log_bins(-3.0, 5.0, 1.0, 6) == (
        Bin(-4.0, -2.0, with_low=False, with_high=True),
        Bin(-2.0, -1.0, with_low=False, with_high=True),
        Bin(0.0, 0.0, with_high=True),
        Bin(1.0, 2.0),
        Bin(2.0, 4.0),
        Bin(4.0, 8.0),
    )


def test_an_octave_is_divided_and_octaves_are_joined_as_the_room_allows() -> None:
    assert [each.low for each in log_bins(1.0, 1.9, 1.0, 4)] == [1.0, 1.25, 1.5, 1.75]
    assert [each.low for each in log_bins(1.0, 255.0, 1.0, 4)] == [1.0, 4.0, 16.0, 64.0]


@pytest.mark.parametrize(
    ("bins", "expected"),
    [
        (linear_bins(3.0, 3.0, 10), (Bin(3.0, 3.0, with_high=True),)),
        (log_bins(0.0, 0.0, None, 10), (Bin(0.0, 0.0, with_high=True),)),
        (log_bins(3.0, 3.0, 3.0, 10), (Bin(2.0, 4.0),)),
        (linear_bins(0.0, 1.0, 50, whole=True), (Bin(0.0, 1.0), Bin(1.0, 2.0))),
    ],
)
def test_a_single_value_is_a_single_bin(bins: tuple[Bin, ...], expected: tuple[Bin, ...]) -> None:
    assert bins == expected


def test_the_widest_range_there_is() -> None:
    most = float(np.finfo(np.float64).max)
    for bins in (linear_bins(-most, most, 20), log_bins(-most, most, 5e-324, 20)):
        assert all(sum(holds(each, value) for each in bins) == 1 for value in (-most, -5e-324, 0.0, 5e-324, most))
