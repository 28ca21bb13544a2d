"""What the kernel makes of inputs is what Python's own functions make of them; what is beyond is not called right."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tui_debugger.stats.kernel import KINDS, address, available, described, expected, function
from tui_debugger.stats.kernel.expected import ERROR, ByRow, Elementwise, ErrorLimits, KernelOperand, ScaledTerms

pytestmark = pytest.mark.skipif(not available(), reason="the kernel is not built")

RANDOM = np.random.default_rng(5)
EXACTLY = ErrorLimits(ERROR, 0.0, 0.0, 1e-300)
"""Nothing is explained but what the functions are off by themselves."""
EVERYWHERE = np.concatenate(
    [np.linspace(-30, 30, 20_001), *(sign * 2.0 ** np.arange(-60, 9) for sign in (-1, 1)), [0.0, -0.0, 700.0, -700.0]]
)


def gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x / math.sqrt(2)) if x > -20 else -0.0


FUNCTIONS: dict[Elementwise, Callable[[float], float]] = {
    Elementwise.SAME: float,
    Elementwise.NEGATIVE: lambda x: -x,
    Elementwise.MAGNITUDE: abs,
    Elementwise.RELU: lambda x: max(x, 0.0),
    Elementwise.EXP: math.exp,
    Elementwise.TANH: math.tanh,
    Elementwise.SIGMOID: lambda x: 1 / (1 + math.exp(-x)),
    Elementwise.SILU: lambda x: x / (1 + math.exp(-x)),
    Elementwise.SQRT: lambda x: math.sqrt(x) if x >= 0 else math.nan,
    Elementwise.RSQRT: lambda x: 1 / math.sqrt(x) if x > 0 else math.nan,
    Elementwise.RECIPROCAL: lambda x: 1 / x if x else math.nan,
    Elementwise.SQUARE: lambda x: x * x,
}


@pytest.mark.parametrize("operator", FUNCTIONS, ids=str)
def test_a_function_is_as_exact_as_it_says(operator: Elementwise) -> None:
    right = np.array([FUNCTIONS[operator](x) for x in EVERYWHERE.tolist()])
    x, right = EVERYWHERE[np.isfinite(right)], right[np.isfinite(right)]
    call = expected.elementwise(operator, [KernelOperand(x)], right, EXACTLY)
    found = call.check(0, len(x))
    assert found.state, found.worst
    assert math.sqrt(found.error) <= ERROR * math.sqrt(found.value)
    assert (
        not expected.elementwise(operator, [KernelOperand(x)], right * (1 + 3 * ERROR), EXACTLY).check(0, len(x)).state
    )


def test_gelu_is_as_exact_as_the_error_function() -> None:
    """Of the input where it is positive, of the output below that as well."""
    x = np.linspace(-18, 30, 30_001)
    right = np.array([gelu(each) for each in x.tolist()])
    assert expected.elementwise(Elementwise.GELU, [KernelOperand(x)], right, EXACTLY).check(0, len(x)).state


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("operator", [Elementwise.EXP, Elementwise.GELU, Elementwise.RSQRT], ids=str)
def test_what_is_looked_up_is_what_is_computed(dtype: type, operator: Elementwise) -> None:
    """Of every number of 16 bits: many elements are looked up, few are computed, and what is found is the same."""
    every = np.arange(1 << 16, dtype=np.uint16)
    x = np.concatenate([every, every[::-1]]).view(dtype)
    recorded = RANDOM.normal(size=len(x)).astype(dtype)
    for start in range(0, len(x), 1 << 12):
        part = slice(start, start + (1 << 12))
        from_table = expected.elementwise(operator, [KernelOperand(x)], recorded, EXACTLY).check(start, 1 << 12)
        computed = expected.elementwise(operator, [KernelOperand(x[part])], recorded[part], EXACTLY).check(0, 1 << 12)
        assert np.array_equal(from_table, computed, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(40, 33), (1, 33), (40, 1), (1, 1)])
def test_operands_are_repeated_as_numpy_does(dtype: type, shape: tuple[int, int]) -> None:
    one, other = RANDOM.normal(size=(40, 33)).astype(dtype), RANDOM.normal(size=shape).astype(dtype)
    right = one.astype(np.float64) * other.astype(np.float64)
    inner = {(40, 33): (1, 0), (1, 33): (1, 33), (40, 1): (33, 40), (1, 1): (1, 1)}[shape]
    call = expected.elementwise(
        Elementwise.MULTIPLY, [KernelOperand(one), KernelOperand(other, *inner)], right, EXACTLY
    )
    assert call.check(0, right.size).state
    assert call.check(700, 333).state
    right.reshape(-1)[801] += 1
    assert call.check(0, 801).state
    assert not call.check(700, 333).state


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_side_is_not_right(bad: float) -> None:
    x = RANDOM.normal(size=3000)
    for at in (0, 1700, 2999):
        spoilt = x.copy()
        spoilt[at] = bad
        found = expected.elementwise(Elementwise.SAME, [KernelOperand(x)], spoilt, EXACTLY).check(0, 3000)
        assert not found.state
        assert found.worst == math.inf
    call = expected.elementwise(Elementwise.SAME, [KernelOperand(spoilt)], spoilt, EXACTLY)
    assert bool(call.check(0, 3000).state) is not math.isnan(bad)


def normal(x: np.ndarray, scaled: ScaledTerms) -> np.ndarray:
    plain = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + scaled.epsilon)
    return plain * scaled.scale + scaled.shift


@pytest.mark.parametrize("width", [1, 7, 512, 513, 3000])
@pytest.mark.parametrize("operator", ByRow, ids=str)
def test_rows_are_as_numpy_makes_them(operator: ByRow, width: int) -> None:
    x = RANDOM.normal(size=(9, width)).astype(np.float32)
    wide = x.astype(np.float64)
    scaled = ScaledTerms(RANDOM.normal(size=width), RANDOM.normal(size=width), 1e-5)
    raised = np.exp(wide - wide.max(-1, keepdims=True))
    right = {
        ByRow.SOFTMAX: raised / raised.sum(-1, keepdims=True),
        ByRow.LOG_SOFTMAX: wide - wide.max(-1, keepdims=True) - np.log(raised.sum(-1, keepdims=True)),
        ByRow.LAYER_NORM: normal(wide, scaled),
        ByRow.RMS_NORM: wide / np.sqrt(np.mean(wide**2, -1, keepdims=True) + 1e-5) * scaled.scale + scaled.shift,
        ByRow.SUM: wide.sum(-1),
        ByRow.MEAN: wide.mean(-1),
    }[operator]
    limits = ErrorLimits(ERROR, 1e-12, 0.0, 1e-12)
    call = expected.by_row(operator, (x, width), np.ascontiguousarray(right), limits, scaled)
    assert call.check(0, 9).state
    right[4] += 1e-3
    call = expected.by_row(operator, (x, width), np.ascontiguousarray(right), limits, scaled)
    assert call.check(0, 4).state
    assert call.check(5, 4).state
    assert not call.check(3, 2).state


def test_logarithms_of_sums() -> None:
    x = RANDOM.normal(size=(20, 700)) * 30
    x[3, 5], x[4, 6] = math.nan, -math.inf
    top, sums = expected.log_sums(x)
    assert math.isnan(sums[3])
    right = np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1))
    assert np.allclose(np.delete(sums, 3), np.delete(right, 3), rtol=1e-8, atol=1e-8)
    assert np.array_equal(np.delete(top, 3), np.delete(x.max(-1), 3))


def test_one_nan_makes_the_logarithm_of_a_sum_nan_wherever_it_is() -> None:
    x = RANDOM.normal(size=(65, 65))
    np.fill_diagonal(x, math.nan)
    assert np.isnan(expected.log_sums(x)[1]).all()


@pytest.mark.parametrize(("rows", "width"), [(-1, 4), (4, -1), (1 << 40, 1 << 40), (1 << 62, 3), ((1 << 63) - 1, 1)])
def test_lengths_that_make_no_sense_are_refused(rows: int, width: int) -> None:
    """Nothing is read: products of lengths would be larger than any address."""
    x, to = np.zeros(16, np.float32), np.zeros(16)
    what, where = described(x), address(to)
    assert function("log_sums", "pqqppp")(what, rows, width, where, where, where) == -1


def test_arguments_that_make_no_sense_are_refused() -> None:
    x = np.zeros(4)
    call = expected.elementwise(Elementwise.EXP, [KernelOperand(x)], x, EXACTLY)
    with pytest.raises(ValueError, match="no sense"):
        call.check(-1, 2)
    with pytest.raises(ValueError, match="no sense"):
        expected.elementwise(Elementwise.EXP, [KernelOperand(x, 0, 4)], x, EXACTLY).check(0, 4)
    to = np.zeros(4)
    assert function("table_of", "qqp")(Elementwise.ADD, KINDS["bfloat16"], address(to)) == -1
    assert function("table_of", "qqp")(Elementwise.EXP, KINDS["float32"], address(to)) == -1
