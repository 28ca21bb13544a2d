"""Lists and greatest values over many blocks: what is skipped because it cannot matter does not matter."""

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

from tui_debugger.stats import compare_pairs as module
from tui_debugger.stats.compare import compare
from tui_debugger.stats.compare_pairs import Largest, Pairs

Array = npt.NDArray[Any]
SIZE, TOP = 6_000, 30
CODES = {2: "H", 4: "I", 8: "Q"}


def numbers(array: Array) -> list[int]:
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
    apart = [abs(one - other) for one, other in zip(numbers(here), numbers(there), strict=True)]

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


@given(scores, st.integers(0, 6), st.integers(0, 40), st.booleans())
def test_lists_of_neighbours_merge_and_a_floor_that_others_reach_changes_nothing(
    values: list[float], room: int, cut: int, floored: bool
) -> None:
    array = np.array(values)
    whole, first = Largest(room), Largest(room)
    whole.add(array, 0)
    first.add(array[:cut], 0)
    second = Largest(room, first.floor if floored and room else 0.0)
    second.add(array[cut:], min(cut, len(values)))
    first.merge(second)
    assert first.positions() == whole.positions()
    best = sorted((place for place in range(len(values)) if values[place] > 0), key=lambda place: -values[place])
    assert whole.positions() == best[:room]
