"""How far two tensors are apart; expected numbers from plain numpy."""

from __future__ import annotations

import math
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
from tui_debugger.diagnose.runs.distance import How, Tolerance, distance, distance_of_files, distance_of_statistics
from tui_debugger.diagnose.runs.kinds import kind_of_difference, kind_of_update
from tui_debugger.model import ReadSpec
from tui_debugger.stats.blocks import measure_stats

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
    assert (found.how, found.why, found.shapes) == (How.NOT, "shapes differ", ((2, 3), (3, 2)))


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
    assert distance_of_files((specs["a"], specs["c"])).how is How.NOT
    assert distance_of_files((specs["c"], specs["d"])).how is How.NOT, "equal bytes that nobody can read"


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
