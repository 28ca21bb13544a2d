"""How far two tensors are apart; expected numbers from plain numpy."""

from __future__ import annotations

import cmath
import math
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.thorough import examples
from tui_debugger.diagnose.runs import distance as module
from tui_debugger.diagnose.runs.distance import (
    ComparedBy,
    Tolerance,
    distance,
    distance_of_files,
    distance_of_statistics,
)
from tui_debugger.diagnose.runs.kinds import kind_of_difference, kind_of_update
from tui_debugger.model import AtLeast, ReadSpec, TensorStats
from tui_debugger.stats.blocks import measure_stats
from tui_debugger.stats.compare_pairs import needs_halves
from tui_debugger.stats.kernel import SWITCH, available, is_known
from tui_debugger.stats.kernel.pairs import apart

Array = npt.NDArray[Any]
FLOATS = arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-1e6, 1e6, width=32))


@given(FLOATS, st.floats(0.5, 2, width=32))
@examples(80)
def test_the_distance_is_that_of_the_norms(a: Array, factor: float) -> None:
    b = (a * np.float32(factor)).astype(np.float32)
    wide = a.astype(np.float64), b.astype(np.float64)
    size = max(np.linalg.norm(wide[0]), np.linalg.norm(wide[1]))
    found = distance(a, b)
    assert found.relative == pytest.approx(np.linalg.norm(wide[0] - wide[1]) / size if size else 0, rel=1e-12)
    assert found.differing == np.count_nonzero(a != b)


@given(FLOATS, st.data())
@examples(40)
def test_nan_against_a_number_is_always_a_difference(a: Array, data: st.DataObject) -> None:
    b = a.copy()
    b[data.draw(st.integers(0, len(a) - 1))] = np.nan
    assert distance(a, b).relative == distance(b, a).relative == math.inf
    assert distance(b, b.copy()).equal


DTYPES = (
    *("float16", "float32", "float64", "complex64", "complex128", "int8", "int64", "uint64", "bool"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
)
SPECIAL = (0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e-45, 1e-200, 5e-324, 1e200, 1.7e308, 3.4e38, 2.0**60, 1e-3)


def anything(dtype: Any, shape: tuple[int, ...], seed: int, share: float) -> Array:
    """Numbers of all sizes, and what is no number, as far as a type has them."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind in "biu":
        found = rng.integers(0, 2 if kind == "b" else 100, shape) + (2**60 if np.dtype(dtype).itemsize == 8 else 0)
        return np.asarray(found).astype(dtype)
    wide = np.where(rng.random(shape) < share, rng.choice(SPECIAL, shape), rng.normal(size=shape))
    with np.errstate(all="ignore"):
        return (
            (wide + 1j * rng.permutation(wide.reshape(-1)).reshape(shape)).astype(dtype)
            if kind == "c"
            else wide.astype(dtype)
        )


def are_same(a: Array, b: Array) -> bool:
    """Element by element as Python compares numbers, whose integers and floats are exact. -0.0 is 0.0, NaN is NaN."""
    if a.shape != b.shape:
        return False
    pairs = zip(_python_numbers(a), _python_numbers(b), strict=True)
    return all(x == y or (cmath.isnan(x) and cmath.isnan(y)) for x, y in pairs)


def _python_numbers(array: Array) -> list[Any]:
    flat = array.reshape(-1)
    return (flat if flat.dtype.kind in "biufc" else flat.astype(np.float64)).tolist()


@given(
    st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    st.sampled_from([(0,), (), (1,), (7,), (2, 3), (300,)]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
)
@examples(1500)
def test_no_two_tensors_that_differ_are_the_same(
    types: tuple[Any, Any], shape: tuple[int, ...], seed: int, share: float, copied: bool
) -> None:
    """Of any types and values; and none that are the same differ, whichever of both is the first."""
    a = anything(types[0], shape, seed, share)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        b = np.array(a.astype(types[1])) if copied else anything(types[1], shape, seed + 1, share)
    if "c" in (a.dtype.kind, b.dtype.kind) and (np.isnan(a.astype(complex)).any() or np.isnan(b.astype(complex)).any()):
        return  # of a complex NaN one part may be a number
    for pair in ((a, b), (b, a)):
        assert distance(*pair).equal == are_same(a, b)


@pytest.mark.skipif(not available(), reason="the kernel was not built")
@given(
    st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    st.sampled_from([1, 7, 300, 3000]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from([None, (0.0, 0.0), (0.1, 0.01)]),
)
@examples(300)
def test_the_kernel_finds_what_numpy_does(
    types: tuple[Any, Any], count: int, seed: int, share: float, limits: tuple[float, float] | None
) -> None:
    a, b = (anything(each, (count,), seed + number, share) for number, each in enumerate(types))
    whole = any(each.dtype.kind in "iu" and each.itemsize == 8 for each in (a, b))
    if not is_known(a.dtype, b.dtype) or whole != needs_halves(a, b):
        return  # numpy compares them
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        b[::3] = a[::3].astype(b.dtype)
    for scale in (1.0, 2.0**-600):
        found = apart(a, b, scale, limits, halves=needs_halves(a, b))
        plain = module.pair_sums(a, b, scale, limits)
        assert found[:5] == plain[:5]
        assert found[5:] == pytest.approx(plain[5:], rel=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        compiled = distance(a, b)
        patch.setenv(SWITCH, "off")
        by_numpy = distance(a, b)
    assert (compiled.relative, compiled.element) == pytest.approx((by_numpy.relative, by_numpy.element), rel=1e-9)
    assert (compiled.odd, compiled.differing, compiled.worst) == (by_numpy.odd, by_numpy.differing, by_numpy.worst)


def test_integers_beyond_the_precision_of_floats_are_told_apart_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.array([2**53, 2**60, 5], np.int64)
    b = np.array([2**53 + 1, 2**60 + 3, 5], np.int64)
    for switch in ("", "off"):
        monkeypatch.setenv(SWITCH, switch)
        found = distance(a, b)
        assert (found.differing, found.worst) == (2, (1,))
        assert distance(np.array([2.0**60]), b[1:2]).differing == 1


def test_a_stretch_that_differs_in_the_signs_of_zeros_counts_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones(module.PIECE + 1, np.float32)
    a[0] = 0
    b = a.copy()
    b[0], b[-1] = -0.0, 2
    for switch in ("", "off"):
        monkeypatch.setenv(SWITCH, switch)
        found = distance(a, b)
        assert (found.differing, found.worst) == (1, (len(a) - 1,))
        assert found.size == pytest.approx(np.linalg.norm(b))


@given(FLOATS, st.integers(0, 2**32 - 1))
@examples(60)
def test_one_changed_bit_is_a_difference(a: Array, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in (np.float64, np.float32, np.int64):
        wide = a.astype(dtype)
        b = wide.copy()
        bits = b.view(f"u{b.itemsize}")
        bits[rng.integers(len(b))] ^= np.asarray(1, bits.dtype)
        assert not distance(wide, b).equal
        assert distance(wide, b).worst == distance(b, wide).worst == (int(np.flatnonzero(wide != b)[0]),)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
def test_numbers_whose_squares_do_not_fit_are_as_far_apart_as_others(size: float) -> None:
    a = np.random.default_rng(0).normal(size=100)
    found, plain = distance(a * size, a * size * 1.25), distance(a, a * 1.25)
    assert found.relative == pytest.approx(plain.relative, rel=1e-6)
    assert found.element == pytest.approx(plain.element, rel=1e-6)


def test_an_infinity_against_another_one_is_a_difference() -> None:
    a, b = np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])
    assert distance(a, b).odd == 1
    assert distance(a, a.copy()).equal


def test_whole_numbers_are_equal_or_not() -> None:
    a = np.arange(10**6, 10**6 + 4)
    assert distance(a, a + np.array([0, 0, 1, 0])).relative == math.inf
    assert distance(a, a.copy()).equal


def test_the_unit_is_that_of_the_coarser_type() -> None:
    a = np.ones(3, np.float32)
    assert distance(a, a.astype(ml_dtypes.bfloat16) * 2).unit == 2.0**-9
    assert distance(a, a * 2).unit == 2.0**-24
    assert distance(a, a.astype(ml_dtypes.float8_e4m3fn) * 2).unit == 2.0**-4


def test_other_shapes_are_not_compared() -> None:
    found = distance(np.ones((2, 3)), np.ones((3, 2)))
    assert (found.how, found.why, found.shapes) == (ComparedBy.NOT, "shapes differ", ((2, 3), (3, 2)))


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=1000).astype(np.float32)
    b = a.copy()
    b[700] += 1
    whole = distance(a, b)
    monkeypatch.setattr(module, "PIECE", 64)
    parts = distance(a, b)
    assert (parts.worst, parts.differing) == (whole.worst, whole.differing) == ((700,), 1)
    assert parts.relative == pytest.approx(whole.relative)
    assert parts.element == pytest.approx(whole.element)


def test_within_a_tolerance_nothing_differs() -> None:
    a = np.array([1.0, 2.0])
    assert distance(a, a * 1.01, tolerance=Tolerance(0.02)).relative == 0
    assert distance(a, a * 1.01, tolerance=Tolerance(0.001)).relative == math.inf
    by_type = Tolerance(by_type=(("float32", 0.02, 0.0),))
    assert distance(a, a * 1.01, tolerance=by_type).relative == math.inf
    assert distance(a.astype(np.float32), a * 1.01, tolerance=by_type).relative == 0


def test_equal_files_are_equal_and_a_spoilt_one_is_not_compared(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.arange(4.0))
    (tmp_path / "c.npy").write_bytes(b"spoilt")
    (tmp_path / "d.npy").write_bytes(b"spoilt")
    specs = {name: ReadSpec(str(tmp_path / f"{name}.npy")) for name in "abcd"}
    assert distance_of_files((specs["a"], specs["b"])).equal
    assert distance_of_files((specs["a"], specs["c"])).how is ComparedBy.NOT
    assert distance_of_files((specs["c"], specs["d"])).how is ComparedBy.NOT, "equal bytes that nobody can read"


@given(FLOATS, FLOATS)
@examples(80)
def test_statistics_never_say_more_than_the_values(a: Array, b: Array) -> None:
    b = np.resize(b, a.shape)
    meta = "float32", a.shape
    found = distance_of_statistics(measure_stats(a)[0], measure_stats(b)[0], (meta, meta))
    assert found.relative <= distance(a, b).relative * (1 + 1e-6) + 1e-9
    assert distance_of_statistics(measure_stats(a)[0], measure_stats(a)[0], (meta, meta)).equal


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("scale", lambda x: x * np.float32(1.05)),
        ("sign", lambda x: -x),
        ("offset", lambda x: x + np.float32(0.5)),
        ("permuted", lambda x: np.roll(x, 5)),
        ("transposed", lambda x: x.T.copy()),
        ("row", lambda x: _changed(x, (3, slice(None)), 2)),
        ("element", lambda x: _changed(x, (7, 9), 5)),
        ("nan", lambda x: _changed(x, (0, 0), np.nan)),
        ("inf", lambda x: _changed(x, (0, 0), np.inf)),
        ("random", lambda x: np.where(np.arange(1024).reshape(32, 32) % 2, x, 0)),
        ("rounding", lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32)),
        (
            "rounding",
            lambda x: (x.astype(np.float64) * (1 + 1e-8 * np.sin(np.arange(1024)).reshape(32, 32))).astype("f4"),
        ),
    ],
)
def test_what_kind_of_difference_it_is(word: str, change: Any) -> None:
    x = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
    one = np.where(np.arange(1024).reshape(32, 32) % 2 == 0, x, 0) if word == "random" else x
    other = change(x)
    if not np.array_equal(one, other):
        assert kind_of_difference(one, other, 2.0**-24)[0] == word


def test_a_smaller_type_that_values_went_through_is_named() -> None:
    x = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
    for name in ("bfloat16", "float16"):
        through = x.astype(name).astype(np.float32)
        assert kind_of_difference(x, through, 2.0**-24)[1] == f"B is A rounded to {name}"
        assert kind_of_difference(through, x, 2.0**-24)[1] == f"A is B rounded to {name}"


@pytest.mark.parametrize(
    ("word", "times", "more"),
    [
        ("step", 0.5, 0.0),
        ("step", 3.0, 0.0),
        ("sign", -1.0, 0.0),
        ("missing", 0.0, 0.0),
        ("", 1.0, 0.0),
        ("", 1.0, 0.3),
    ],
)
@examples(20)
@given(st.integers(0, 2**32 - 1))
def test_what_kind_of_update_it_is(word: str, times: float, more: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, step, other = (rng.normal(size=(16, 8)).astype(np.float32) * scale for scale in (1.0, 1e-3, 1e-3))
    after = weights - step, weights - np.float32(times) * step - np.float32(more) * other
    assert kind_of_update((weights, weights), after, 2.0**-24)[0] == word


def _changed(x: Array, where: Any, value: float) -> Array:
    found = x.copy()
    found[where] = found[where] * value + value if np.isfinite(value) else value
    return found


# -- statistics ----------------------------------------------------------------------------------------

META = "float32", (8,)
NOTHING = dict.fromkeys(("minimum", "maximum", "mean", "abs_mean", "variance"))
UNKNOWN = AtLeast.NAN | AtLeast.INF


def stats(**known: Any) -> TensorStats:
    """What a log recorded of eight numbers: only what is given."""
    counts = {"count": 8, "nan": 0, "pos_inf": 0, "neg_inf": 0, "zero": 0, "negative": 0, "positive": 0}
    return TensorStats(**{**counts, **NOTHING, "sum_squares": math.nan, **known})


@pytest.mark.parametrize("name", ["minimum", "maximum", "mean", "abs_mean", "variance"])
def test_one_statistic_that_differs_is_enough(name: str) -> None:
    """Of each tensor PyTorch's DebugMode has the mean of the magnitudes only."""
    found = distance_of_statistics(stats(**{name: 1.0}), stats(**{name: 1.01}), (META, META))
    assert found.how is ComparedBy.STATISTICS
    assert not found.equal


def test_where_no_statistic_is_there_in_both_nothing_is_compared() -> None:
    assert distance_of_statistics(stats(), stats(), (META, META)).how is ComparedBy.NOT
    assert distance_of_statistics(stats(mean=1.0), stats(maximum=1.0), (META, META)).how is ComparedBy.NOT


def test_hashes_tell_whether_tensors_are_the_same_and_no_more() -> None:
    assert distance_of_statistics(None, None, (META, META), (5, 5)).how is ComparedBy.HASHES
    differs = distance_of_statistics(None, None, (META, META), (5, 6))
    assert (differs.how, differs.why.partition(";")[0]) == (ComparedBy.NOT, "hashes differ")


def test_more_nan_is_a_difference_and_an_unknown_number_of_them_is_none() -> None:
    assert distance_of_statistics(stats(nan=1, mean=1.0), stats(nan=2, mean=1.0), (META, META)).relative == math.inf
    some = stats(nan=1, mean=1.0, at_least=AtLeast.NAN)
    assert distance_of_statistics(some, stats(nan=2, mean=1.0), (META, META)).equal
    assert distance_of_statistics(some, stats(mean=1.0), (META, META)).relative == math.inf
    assert (
        distance_of_statistics(stats(nan=1), stats(mean=1.0, at_least=AtLeast.INF), (META, META)).relative == math.inf
    )


def test_what_printing_seven_digits_makes_is_rounding() -> None:
    printed = stats(abs_mean=1.234567), stats(abs_mean=1.234568)
    found = distance_of_statistics(*printed, (META, META))
    assert 0 < found.relative < 3 * found.unit
    exact = distance_of_statistics(stats(abs_mean=1.23456701), stats(abs_mean=1.23456801), (META, META))
    assert exact.relative > 3 * exact.unit
