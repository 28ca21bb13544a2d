"""Arrays side by side: which fit, in which order they are read, what the difference is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tui_debugger.errors import TdbgError
from tui_debugger.stats.blocks import BLOCK
from tui_debugger.stats.compare_pairs import COPIED, Fit, Pairs, difference, fit_of

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
