"""Arrays side by side: which fit, in which order they are read, what the difference is."""

from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tui_debugger.errors import TdbgError
from tui_debugger.stats import compare_pairs as module
from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.compare import compare
from tui_debugger.stats.compare_pairs import (
    COPIED,
    Fit,
    LargestScores,
    Pairs,
    common_type,
    difference,
    distances,
    fit_of,
    numbers,
)
from tui_debugger.stats.dtypes import dtype_of

pytestmark = pytest.mark.usefixtures("measured_by")

Array = npt.NDArray[Any]
WHOLE = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")


@pytest.mark.parametrize(
    ("here", "there", "fit"),
    [
        ((3, 4), (3, 4), Fit.SAME),
        ((3, 4), (4, 3), Fit.RESHAPED),
        ((12,), (3, 4), Fit.RESHAPED),
        ((), (1, 1), Fit.RESHAPED),
        ((3, 4), (4,), Fit.STRETCHED),
        ((1, 4), (3, 4), Fit.STRETCHED),
        ((3, 4), (), Fit.STRETCHED),
        ((3, 1), (1, 4), None),
        ((3, 4), (3,), None),
        ((0, 3), (5, 0), Fit.RESHAPED),
    ],
)
def test_which_shapes_fit(here: tuple[int, ...], there: tuple[int, ...], fit: Fit | None) -> None:
    assert fit_of(here, there) is fit
    if fit is None:
        with pytest.raises(TdbgError) as caught:
            Pairs(np.zeros(here), np.zeros(there))
        assert caught.value.where
        assert caught.value.hint


def test_other_shapes_are_paired_as_numpy_does() -> None:
    here, there = np.arange(12).reshape(3, 4), np.arange(4)
    assert np.array_equal(Pairs(here, there).there, np.broadcast_to(there, (3, 4)))
    assert np.array_equal(Pairs(here, here.T.copy()).there, here.T.reshape(3, 4))
    assert Pairs(there, here).shape == (3, 4)


def test_a_big_tensor_is_not_copied_into_another_order() -> None:
    big = np.broadcast_to(np.float64(0), (COPIED // 8 + 1, 2))
    with pytest.raises(TdbgError, match="too big"):
        Pairs(np.broadcast_to(np.float64(0), (2, COPIED // 8 + 1)), big)


@pytest.mark.parametrize("here_order", ["C", "F", "slice"])
@pytest.mark.parametrize("there_order", ["C", "F", "slice"])
def test_every_element_comes_once_with_its_own_partner(here_order: str, there_order: str) -> None:
    shape = (7, 5, BLOCK // 16)
    here = ordered(np.arange(math.prod(shape), dtype=np.float64).reshape(shape), here_order)
    there = ordered(here * 2, there_order)
    pairs = Pairs(here, there)
    seen = 0
    for first, one, other in pairs.blocks():
        assert len(one) == len(other) <= BLOCK
        assert np.array_equal(other, one * 2)
        for place in (0, len(one) // 2, len(one) - 1):
            assert here[pairs.index(first + place)] == one[place]
        seen += len(one)
    assert seen == here.size


def ordered(array: Array, order: str) -> Array:
    if order == "F":
        return np.asfortranarray(array)
    return np.repeat(array, 2, axis=-1)[..., ::2] if order == "slice" else array


@given(data=st.data())
def test_integers_are_subtracted_exactly_and_rounded_once(data: st.DataObject) -> None:
    one, other = (
        data.draw(hnp.arrays(np.dtype(data.draw(st.sampled_from(WHOLE))), 4), label=name) for name in ("here", "there")
    )
    found = difference(one, other)
    assert found.dtype == np.float64
    for value, a, b in zip(found.tolist(), one.tolist(), other.tolist(), strict=True):
        assert value == float(int(a) - int(b))


@given(hnp.arrays(np.float32, 6), hnp.arrays(np.float64, 6))
def test_floats_are_subtracted_as_float64_and_equal_infinities_are_0_apart(here: Array, there: Array) -> None:
    for one, other in ((here, there), (here, here), (there, there)):
        with np.errstate(all="ignore"):
            a, b = one.astype(np.float64), other.astype(np.float64)
            wanted = np.where(a == b, 0.0, a - b)
        assert np.array_equal(difference(one, other), wanted, equal_nan=True)


def test_complex_numbers_and_scalars() -> None:
    assert difference(np.array([1 + 2j]), np.array([1.0])).tolist() == [2j]
    assert difference(np.array(3.0), np.array(np.inf)).tolist() == -math.inf
    assert difference(np.array(np.inf), np.array(np.inf)).tolist() == 0


SMALL = (
    *("float16", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)


def all_of(name: str) -> Array:
    """Every finite number of a type, ascending, each once."""
    dtype = dtype_of(name)
    assert dtype is not None
    bits = np.arange(1 << 8 * dtype.itemsize).astype(np.uint8 if dtype.itemsize == 1 else np.uint16)
    values = bits.view(dtype)
    finite = values[np.isfinite(values.astype(np.float32))]
    _, first = np.unique(finite.astype(np.float64), return_index=True)
    return finite[first]


@pytest.mark.parametrize("name", SMALL)
def test_the_numbers_of_a_type_are_counted_without_a_gap(name: str) -> None:
    values = all_of(name)
    assert set(np.diff(numbers(values).astype(np.int64)).tolist()) == {1}
    zero = numbers(values)[values.astype(np.float64) == 0]
    assert not zero.any()


@pytest.mark.parametrize("name", ["float32", "float64"])
@given(data=st.data())
def test_a_walk_by_nextafter(name: str, data: st.DataObject) -> None:
    dtype = np.dtype(name)
    start = data.draw(st.floats(width=32 if name == "float32" else 64, allow_nan=False, allow_infinity=False))
    steps = data.draw(st.integers(0, 40))
    at = begin = dtype.type(start)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            at = np.nextafter(at, dtype.type(np.inf))
    if np.isfinite(at):
        found, valid = distances(np.array([begin]), np.array([at]), dtype)
        assert (found.tolist(), valid) == ([steps], None)


@given(st.floats(1e-300, 1e300), st.integers(1, 1000))
def test_within_a_binade_distances_are_multiples_of_spacing(start: float, steps: int) -> None:
    end = start + steps * np.spacing(start)
    if np.spacing(end) == np.spacing(start):
        assert distances(np.array([start]), np.array([end]), np.dtype("f8"))[0].tolist() == [steps]


def test_the_two_ends_of_float64_are_further_apart_than_int64_reaches() -> None:
    greatest = np.finfo("f8").max
    found, _ = distances(np.array([-greatest]), np.array([greatest]), np.dtype("f8"))
    assert found.tolist() == [2 * 0x7FEFFFFFFFFFFFFF]


def test_zeros_are_one_number_and_byte_order_is_none() -> None:
    assert distances(np.array([0.0]), np.array([-0.0]), np.dtype("f8"))[0].tolist() == [0]
    one = np.array([1.0, 2.0], ">f4")
    assert distances(one, np.nextafter(one, np.float32(9)).astype("<f4"), np.dtype("f4"))[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("here", "there", "unit"),
    [
        ("float32", "float16", "float16"),
        ("float16", "bfloat16", "bfloat16"),
        ("float64", "float32", "float32"),
        ("float8_e4m3fn", "float8_e5m2", "float8_e5m2"),
        ("float32", "int32", None),
        ("bool", "float32", None),
        ("complex64", "float32", None),
    ],
)
def test_the_coarser_type_is_the_unit(here: str, there: str, unit: str | None) -> None:
    one, other = dtype_of(here), dtype_of(there)
    assert one is not None
    assert other is not None
    wanted = None if unit is None else dtype_of(unit)
    assert common_type(one, other) == wanted
    assert common_type(other, one) == wanted


def test_a_number_beyond_the_coarser_type_has_no_distance() -> None:
    here = np.array([1.0, 1e6, 65504.0], np.float32)
    found, valid = distances(here, np.array([1.0, 1.0, 65504.0], np.float16), np.dtype("f2"))
    assert valid is not None
    assert valid.tolist() == [True, False, True]
    assert found[valid].tolist() == [0, 0]


def test_a_float16_copy_of_float32_is_0_apart_and_its_neighbour_1() -> None:
    here = np.linspace(-3, 3, 50, dtype=np.float32)
    copy = here.astype(np.float16)
    assert not distances(here, copy, np.dtype("f2"))[0].any()
    found, _ = distances(here, np.nextafter(copy, np.float16(9)), np.dtype("f2"))
    assert set(found.tolist()) == {1}


def test_bfloat16_kept_in_float32_counts_as_bfloat16() -> None:
    one = np.array([1.0, -2.0], ml_dtypes.bfloat16)
    bits = one.view(np.int16) + np.int16(3)
    found, _ = distances(
        one.astype(np.float32), bits.view(ml_dtypes.bfloat16).astype(np.float32), np.dtype(ml_dtypes.bfloat16)
    )
    assert found.tolist() == [3, 3]


SIZE, TOP = 6_000, 30
CODES = {2: "H", 4: "I", 8: "Q"}


def some_numbers(array: Array) -> list[int]:
    """Each float's number among all floats of its type, by Python's own whole numbers."""
    code, bits = CODES[array.dtype.itemsize], 8 * array.dtype.itemsize
    found = struct.unpack(f"<{array.size}{code}", array.tobytes())
    return [each if each < 1 << (bits - 1) else (1 << (bits - 1)) - each for each in found]


def pair(kind: Any, what: str) -> tuple[Array, Array]:
    """Two tensors that differ everywhere, hardly, in a few places, or by tiny numbers around 0."""
    rng = np.random.default_rng(11)
    here, there = rng.standard_normal((2, SIZE))
    if what == "near":
        there = here * (1 + 1e-3 * there)
    elif what == "few":
        there = np.where(rng.random(SIZE) < 0.01, there, here)
    elif what == "sparse":
        here, there = np.where(rng.random((2, SIZE)) < 0.5, 0.0, [here, there])
        here[::3] *= -1
    with np.errstate(all="ignore"):
        one, other = here.astype(kind), there.astype(kind)
        if what == "tiny":
            scale = float(ml_dtypes.finfo(one.dtype).smallest_subnormal)
            one, other = ((20 * each).round() for each in (here, there))
            one, other = (one * scale).astype(kind), (other * scale).astype(kind)
    return one, other


@pytest.mark.parametrize("what", ["noise", "near", "few", "sparse", "tiny"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", ml_dtypes.bfloat16])
def test_lists_are_those_of_looking_at_everything(kind: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 1000)
    here, there = pair(kind, what)
    found = compare(Pairs(here, there), top=TOP)
    a, b = here.astype(np.float64), there.astype(np.float64)
    error = np.abs(a - b)
    with np.errstate(all="ignore"):
        relative = np.where(b == 0, np.where(error > 0, math.inf, 0.0), error / np.abs(b))
    apart = [abs(one - other) for one, other in zip(some_numbers(here), some_numbers(there), strict=True)]

    def order(size: Any) -> list[tuple[int, ...]]:
        places = sorted((place for place in range(SIZE) if size[place] > 0), key=lambda place: -size[place])
        return [(place,) for place in places[:TOP]]

    assert [entry.index for entry in found.by_abs] == order(error)
    assert [entry.index for entry in found.by_rel] == order(relative)
    assert [entry.index for entry in found.by_ulp] == order([float(each) for each in apart])
    assert found.ulps is not None
    assert (found.ulps.measured, found.ulps.greatest) == (SIZE, max(apart))
    assert found.ulps.within_one == sum(each <= 1 for each in apart)
    assert found.max_rel == relative[b != 0].max()
    assert found.from_zero == int(((b == 0) & (a != 0)).sum())
    assert found.sign_flips == int((np.sign(a) * np.sign(b) == -1).sum())


scores = st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5, 7.0, math.inf]), max_size=40)


@given(scores, st.integers(0, 6), st.integers(0, 40))
def test_lists_of_neighbours_merge(values: list[float], room: int, cut: int) -> None:
    array, places = np.array(values), np.arange(len(values))
    whole, first, second = LargestScores(room), LargestScores(room), LargestScores(room)
    whole.add(array, places)
    first.add(array[:cut], places[:cut])
    second.add(array[cut:], places[cut:])
    first.merge(second)
    assert first.positions() == whole.positions()
    best = sorted((place for place in range(len(values)) if values[place] > 0), key=lambda place: -values[place])
    assert whole.positions() == best[:room]
