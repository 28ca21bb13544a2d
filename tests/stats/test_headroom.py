"""What would become of values in another type is what becomes of them when numpy and ml_dtypes convert them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.distribution import count_classes
from tui_debugger.stats.dtypes import dtype_of
from tui_debugger.stats.quantiles import TARGETS, Headroom, capacity, headroom, limits_of

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
EDGES = (
    *(65504.0, 65519.996, 65520.0, 448.0, 464.0, 464.00003, 57344.0, 61439.996, 61440.0, 3.3895314e38, 3.3961775e38),
    *(2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0000001, 2.0**-126, 2.0**-133, 2.0**-134, 2.0**-149, 2.0**-9),
    *(2.0**-10, 2.0**-16, 2.0**-17, 2.0**-6),
)
"""Where rounding changes what becomes of a value."""


def of(array: Array, dtype: str = "") -> Headroom:
    return headroom(array, count_classes(array), dtype or array.dtype.name)


def converted(array: Array, name: str) -> tuple[int, int, int]:
    """Elements that overflow, become 0, become or stay subnormal, by converting them."""
    target, limits = dtype_of(name), limits_of(name)
    assert target is not None
    assert limits is not None
    source = array[np.isfinite(array.astype(np.float64))]
    with np.errstate(all="ignore"):
        there = source.astype(target).astype(np.float64)
    wide = source.astype(np.float64)
    small = (there != 0) & (np.abs(wide) < limits.normal)
    return int((~np.isfinite(there)).sum()), int(((there == 0) & (wide != 0)).sum()), int((small & (wide != 0)).sum())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_shares_are_those_of_the_conversion(dtype: str) -> None:
    rng = np.random.default_rng(3)
    sizes = np.exp2(rng.uniform(-150, 128, 20_000)) * rng.choice([-1, 1], 20_000)
    special = np.array([*EDGES, *(-edge for edge in EDGES), 0.0, -0.0, np.nan, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        array = np.concatenate([sizes, special]).astype(np.float32).astype(dtype_of(dtype))
    found = of(array, dtype)
    assert [each.limits.name for each in found.conversions] == list(dict.fromkeys([dtype, *TARGETS]))
    for each in found.conversions:
        name = each.limits.name
        assert (each.overflowing, each.vanishing, each.subnormal) == converted(array, name), name


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from(TARGETS))
def test_any_float32(values: list[float], name: str) -> None:
    array = np.array(values, np.float32)
    (conversion,) = [conversion for conversion in of(array).conversions if conversion.limits.name == name]
    assert (conversion.overflowing, conversion.vanishing, conversion.subnormal) == converted(array, name)


@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_greatest_and_least_magnitude(values: list[float]) -> None:
    sizes = [abs(value) for value in values if np.isfinite(value)]
    found = of(np.array(values))
    assert found.greatest == max(sizes, default=None)
    assert found.least == min((size for size in sizes if size), default=None)
    assert found.finite == len(sizes)


def test_integers_have_no_fate_and_complex_numbers_that_of_their_parts() -> None:
    assert of(np.arange(-3, 5, dtype=np.int32)).conversions == ()
    found = of(np.array([3 + 4j], np.complex64))
    assert found.greatest == 5.0
    assert found.own == limits_of("float32")


def test_a_type_that_is_stored_wider_keeps_its_own_limits() -> None:
    found = of(np.array([3.3961775e38], np.float32), "bfloat16")
    assert found.own == limits_of("bfloat16")
    assert found.conversions[0].overflowing == 1


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        ("float16", 65504.0),
        ("bfloat16", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)),
        ("float8_e4m3fn", 448.0),
        ("complex64", float(np.finfo(np.float32).max)),
        ("int8", 128.0),
        ("uint8", 255.0),
        ("int4", 8.0),
        ("bool", None),
        ("", None),
    ],
)
def test_what_a_type_can_hold(dtype: str, largest: float | None) -> None:
    assert capacity(dtype) == largest


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_extremes_that_are_known_need_not_be_found(sign: int) -> None:
    values = np.random.default_rng(2).standard_normal(5000).astype(np.float32)
    array = values if not sign else sign * np.abs(values)
    classes = count_classes(array)
    found = headroom(array, classes, "float32", extremes=(float(array.min()), float(array.max())))
    assert found == headroom(array, classes, "float32")
    assert (found.greatest, found.least) == (np.abs(array).max(), np.abs(array).min())
