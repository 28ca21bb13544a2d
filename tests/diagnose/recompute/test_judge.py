"""What rounding explains, and what it does not: the rule by itself, without operators."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from tui_debugger.arrays import Array
from tui_debugger.diagnose.recompute.elementwise import FIT_ERROR, erfc, rough_erfc
from tui_debugger.diagnose.recompute.judge import Expected, OutputCheck, OutputJudge
from tui_debugger.diagnose.recompute.products import LargeProduct, product_of
from tui_debugger.stats.kernel import SWITCH

RANDOM = np.random.default_rng(7)


def judged(expected: Expected, found: Array, **more: float) -> OutputCheck:
    judge = OutputJudge(found.dtype, found.shape, **more)
    judge.take(expected, found)
    return judge.result(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_rounding_to_a_type_is_right_and_five_steps_are_not(dtype: type) -> None:
    value = RANDOM.normal(size=(50, 40))
    found = value.astype(dtype)
    assert judged(Expected(value), found).r < 2
    step = {np.float32: 2**-23, np.float16: 2**-10, ml_dtypes.bfloat16: 2**-7, ml_dtypes.float8_e4m3fn: 2**-3}[dtype]
    assert judged(Expected(value), (value * (1 + 5 * step)).astype(dtype)).wrong


@pytest.mark.parametrize("inner", [32, 1024, 16384])
@pytest.mark.parametrize("cancelling", [False, True])
def test_sums_in_float32_are_right_whatever_cancels(inner: int, cancelling: bool) -> None:
    left, right = RANDOM.normal(size=(8, inner)).astype(np.float32), RANDOM.normal(size=(inner, 6)).astype(np.float32)
    if cancelling:
        left[:, inner // 2 :] = -left[:, : inner // 2]
        right[inner // 2 :] = right[: inner // 2] * np.float32(1 + 1e-5)
    blocked = left @ right
    one_by_one = np.zeros((8, 6), np.float32)
    for at in range(inner):
        one_by_one += left[:, at : at + 1] * right[at]
    for found in (blocked, one_by_one):
        assert judged(product_of(left, right), found).r < 2


def test_sums_of_numbers_of_one_sign_are_right() -> None:
    left, right = np.abs(RANDOM.normal(size=(4, 16384))).astype(np.float32), np.ones((16384, 2), np.float32)
    found = np.zeros((4, 2), np.float32)
    for at in range(16384):
        found += left[:, at : at + 1] * right[at]
    assert judged(product_of(left, right), found).r < 2


def test_one_element_among_many_is_found() -> None:
    value = RANDOM.normal(size=(1000, 1000))
    found = value.astype(np.float32)
    found[123, 456] += np.float32(2e-4)
    check = judged(Expected(value), found)
    assert check.r < 6
    assert check.wrong
    assert check.worst == (123, 456)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("expected", "found", "wrong"),
    [
        (NAN, NAN, False),
        (INF, INF, False),
        (INF, NAN, False),  # in which order they met is the kernel's
        (NAN, 1.0, True),
        (1.0, NAN, True),
        (1.0, INF, True),
        (INF, 1.0, True),
        (1e6, INF, False),  # too large for the type
        (1e6, 65504.0, False),  # devices that stop at the largest number
        (-1e6, 65504.0, True),
        (-1e6, -INF, False),
        (-1e6, INF, True),
        (NAN, INF, False),
        (40000.0, INF, False),  # nearly too large
        (4000.0, INF, True),
        (1e-9, 0.0, False),  # smaller than any number of the type
        (1e-3, 0.0, True),
    ],
)
def test_what_is_not_finite_or_too_small(expected: float, found: float, wrong: bool) -> None:
    check = judged(Expected(np.array([expected])), np.array([found], np.float16))
    assert check.wrong == wrong
    assert wrong == (check.element_r > 64)


def test_integers_and_exact_values_are_equal_or_wrong() -> None:
    whole = np.arange(10)
    assert judged(Expected(whole, exact=True), whole.astype(np.int32)).r == 0
    changed = whole.astype(np.int32)
    changed[4] += 1
    check = judged(Expected(whole, exact=True), changed)
    assert (check.r, check.worst, check.expected, check.found) == (INF, (4,), 4, 5)
    moved = RANDOM.normal(size=5).astype(np.float32)
    moved[2] = NAN
    assert judged(Expected(moved, exact=True), moved.copy()).r == 0
    assert judged(Expected(moved, exact=True), np.nextafter(moved, np.float32(9))).wrong


def test_parts_are_judged_as_the_whole() -> None:
    value, size = RANDOM.normal(size=(100, 7)), np.abs(RANDOM.normal(size=(100, 7)))
    found = (value + 1e-6 * RANDOM.normal(size=value.shape)).astype(np.float32)
    whole = judged(Expected(value, size, 5), found)
    judge = OutputJudge(found.dtype, found.shape)
    for start in range(0, 100, 13):
        part = slice(start, start + 13)
        judge.take(Expected(value[part], size[part], 5), found[part], start * 7)
    parts = judge.result(0)
    assert parts.r == pytest.approx(whole.r)
    assert (parts.worst, parts.element_r) == (whole.worst, whole.element_r)


def test_inputs_that_are_rounded_before_they_are_multiplied_explain_more() -> None:
    left, right = RANDOM.normal(size=(20, 64)).astype(np.float32), RANDOM.normal(size=(64, 20)).astype(np.float32)
    narrow = [each.astype(ml_dtypes.bfloat16).astype(np.float64) for each in (left, right)]
    found = (narrow[0] @ narrow[1]).astype(ml_dtypes.bfloat16)
    assert not judged(product_of(left, right), found, widest=2.0**-24).wrong


def test_an_empty_output_is_right() -> None:
    assert not judged(Expected(np.zeros((0, 3))), np.zeros((0, 3), np.float32)).wrong


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("working", [np.float64, np.float32])
def test_what_is_taken_for_surely_right_is_right(dtype: type, working: type) -> None:
    """The quick look at a part says "right" only where every element is within six roundings."""
    unit = {np.float32: 2.0**-24, np.float16: 2.0**-12, ml_dtypes.bfloat16: 2.0**-9}[dtype]
    if working is np.float32 and dtype is np.float32:
        return  # values of 32 bits are always computed in float64
    value = RANDOM.normal(size=4000) + np.sign(RANDOM.normal(size=4000))
    value[np.abs(value) < 0.01] = 1.0  # near zero float16 rounds by more than its unit
    for factor in (1 + 2 * unit, 1 + 20 * unit, 1.01, -1.0):
        found = (value * factor).astype(dtype)
        exact = judged(Expected(value), found)
        judge = OutputJudge(found.dtype, found.shape)
        quick = judge.take_right(Expected(value.astype(working)), found)
        assert not (quick and exact.wrong)
        if quick:
            assert judge.result(0).r == pytest.approx(exact.r, rel=0.05, abs=0.05)
    for odd in (NAN, INF, -INF):
        found = value.astype(dtype)
        found[77] = odd
        assert not OutputJudge(found.dtype, found.shape).take_right(Expected(value.astype(working)), found)
        value_too = value.copy()
        value_too[77] = odd
        same = OutputJudge(found.dtype, found.shape).take_right(Expected(value_too.astype(working)), found)
        assert same == (not math.isnan(odd))
        assert not OutputJudge(found.dtype, found.shape).take_right(Expected(value_too), value.astype(dtype))


def test_the_rough_error_function_is_as_exact_as_it_says() -> None:
    x = np.concatenate([np.linspace(0, 26, 200_001), 2.0 ** np.arange(-60, 1)])
    assert float(np.max(np.abs(rough_erfc(x) / erfc(x) - 1))) < FIT_ERROR


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("by_kernel", [False, True])
def test_a_large_product_is_held_against_random_vectors(
    dtype: type, bias: bool, by_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not by_kernel:
        monkeypatch.setenv(SWITCH, "off")
    random = np.random.default_rng(5)
    left, right = (random.normal(size=size).astype(dtype) for size in ((300, 200), (200, 400)))
    added = random.normal(size=400).astype(dtype) if bias else None
    made = left.astype(np.float32) @ right.astype(np.float32)
    found = (made + (0 if added is None else added.astype(np.float32))).astype(dtype)

    def checked(found: Array) -> OutputCheck:
        product = product_of(left, right, added)
        assert isinstance(product, LargeProduct)
        judge = OutputJudge(found.dtype, found.shape)
        assert product.judge(judge, found)
        return judge.result(0)

    right_one = checked(found)
    exact = judged(product_of(left, right, added, exact=True), found)
    # With the kernel sums are in float32, which err by up to 0.87 as those of others: r is a bound.
    assert 0.9 * exact.r < right_one.r < 1.1 * math.hypot(exact.r, 0.87 if by_kernel and dtype is np.float32 else 0)
    assert not right_one.wrong
    one = found.copy()
    one[217, 333] = float(one[217, 333]) * 1.5
    turned = found.copy()
    turned[40:48] = -turned[40:48]
    nothing = found.copy()
    nothing[12, 13] = NAN
    scaled = (found.astype(np.float64) * (1 + 10 * {np.float32: 2.0**-24, ml_dtypes.bfloat16: 2.0**-9}[dtype])).astype(
        dtype
    )
    for wrong, worst in ((one, (217, 333)), (turned, None), (nothing, (12, 13)), (scaled, None)):
        check = checked(wrong)
        assert check.wrong == judged(product_of(left, right, added, exact=True), wrong).wrong
        assert check.wrong or wrong is scaled
        assert worst in {None, check.worst}


@pytest.mark.parametrize("switch", ["", "off"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_what_cancels_in_a_large_product_of_16_bits_is_explained_by_its_terms(
    switch: str, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All terms cancel: what is left is what float32 rounded off, which the outputs' own rounding does not explain."""
    monkeypatch.setenv(SWITCH, switch)
    half = RANDOM.normal(size=(300, 128)).astype(dtype)
    right = RANDOM.normal(size=(128, 256)).astype(dtype)
    left, whole = np.concatenate([half, half], axis=1), np.concatenate([right, -right])
    size = np.sqrt(2 * np.square(half.astype(np.float64)) @ np.square(right.astype(np.float64)))
    noise = RANDOM.normal(size=size.shape) * size * 2.0**-24 * 16

    def checked(found: Array) -> OutputCheck:
        product = product_of(left, whole)
        assert isinstance(product, LargeProduct)
        judge = OutputJudge(found.dtype, found.shape)
        assert product.judge(judge, found)
        return judge.result(0)

    assert not checked(noise.astype(dtype)).wrong
    assert checked((30 * noise).astype(dtype)).wrong
