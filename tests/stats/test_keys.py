"""Keys sort as values do; percentiles, bins and shares counted with them are those of plain numpy in float64."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.stats import distribution as module
from tui_debugger.stats.distribution import DOUBLES, SINGLES, KeyKind, count_below, count_classes
from tui_debugger.stats.quantiles import PERCENTS, order_statistics, quantiles

Array = npt.NDArray[Any]
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


def finite(array: Array) -> npt.NDArray[np.float64]:
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
    values = finite(array)
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
    assert found.values == tuple(np.percentile(finite(array), PERCENTS).tolist())
    assert found.count == len(finite(array))


@given(st.lists(st.floats(), min_size=1, max_size=30), st.floats(0, 100))
def test_any_percentile_of_any_doubles(values: list[float], percent: float) -> None:
    array = np.array(values)
    good = finite(array)
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
        assert classes.finite == len(finite(view))
        if view.size:
            assert quantiles(view, classes).values == tuple(np.percentile(finite(view), PERCENTS).tolist())


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
            assert found.values == tuple(np.percentile(finite(array), PERCENTS).tolist())
