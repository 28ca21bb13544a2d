"""Two tensors that differ are never called the same: every type, every kind of difference, every kind of evidence.

Equal are what is equal as numbers: -0 and 0, and NaN with NaN whatever its payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.diagnose.runs.test_judge import OUT, compared
from tests.sources.memory import Op, Recorded
from tests.thorough import few
from tui_debugger.diagnose.runs.distance import ComparedBy, distance, distance_of_statistics
from tui_debugger.diagnose.runs.results import NodeJudgement, RunsReport
from tui_debugger.diagnose.runs.text import verdict_text
from tui_debugger.stats.blocks import measure_stats

Array = npt.NDArray[Any]

FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
COMPLEX = (np.complex64, np.complex128)
TYPES = {np.dtype(each).name: np.dtype(each) for each in (*FLOATS, *INTEGERS, *COMPLEX, np.bool_)}
OPS = (Op("Custom-op1", "Custom"),)


def tensor(dtype: np.dtype[Any]) -> Array:
    made = np.random.default_rng(7)
    if dtype.kind == "b":
        return made.random(60) < 0.5
    if dtype.kind in "iu":
        return made.integers(0, 100, 60).astype(dtype)
    if dtype.kind == "c":
        return (made.normal(size=60) + 1j * made.normal(size=60)).astype(dtype)
    return (made.normal(size=60) * 2).astype(dtype)


def bits(array: Array) -> Array:
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def one_element(array: Array) -> Array:
    if array.dtype.kind == "b":
        array[13] = not array[13]
    elif array.dtype.kind in "iu":
        array[13] += 1
    else:
        array[13] = -array[13]
    return array


def last_element(array: Array) -> Array:
    return np.roll(one_element(np.roll(array, 14)), -14)


def one_bit(array: Array) -> Array | None:
    if array.dtype.kind in "bc":
        return None
    bits(array)[5] ^= 1
    return array


def swapped(array: Array) -> Array:
    """Two elements change places: all sums are as before."""
    other = int(np.flatnonzero(array != array[0])[0])
    array[[0, other]] = array[[other, 0]]
    return array


def turned(array: Array) -> Array:
    return array[::-1].copy()


def not_a_number(array: Array) -> Array | None:
    if array.dtype.kind in "biu":
        return None
    array[59] = np.nan
    return array


def shape(array: Array) -> Array:
    return array.reshape(6, 10)


def shorter(array: Array) -> Array:
    return array[:-1].copy()


def beyond_float64(array: Array) -> Array | None:
    """The largest number and the one below: float64 holds neither of 64 bits."""
    if array.dtype.kind not in "iu":
        return None
    array[3] = np.iinfo(array.dtype).max - 1
    return array


def imaginary(array: Array) -> Array | None:
    if array.dtype.kind != "c":
        return None
    return array.real + 1j * -array.imag


KINDS: dict[str, Callable[[Array], Array | None]] = {
    each.__name__: each
    for each in (
        *(one_element, last_element, one_bit, swapped, turned, not_a_number, shape, shorter, beyond_float64),
        imaginary,
    )
}


def pair(type_: str, kind: str) -> tuple[Array, Array] | None:
    one = tensor(TYPES[type_])
    if kind == "beyond_float64" and one.dtype.kind in "iu":
        one[3] = np.iinfo(one.dtype).max
    other = KINDS[kind](one.copy())
    return None if other is None else (one, other.astype(one.dtype))


PAIRS = [(type_, kind) for type_ in TYPES for kind in KINDS if pair(type_, kind) is not None]


@pytest.mark.parametrize(("type_", "kind"), PAIRS)
def test_two_arrays_that_differ_are_not_equal(type_: str, kind: str) -> None:
    both = pair(type_, kind)
    assert both is not None
    for one, other in (both, both[::-1]):
        found = distance(one, other)
        assert not found.equal
        assert not found.compared or found.relative > 0


def called_the_same(report: RunsReport) -> bool:
    """Whether anything says so: of what differs by rounding it is said that it does, and of equal statistics that."""
    judged = [each for step in report.steps for each in step.judged]
    same = [each for each in judged if each.judgement is NodeJudgement.SAME]
    if any(each.worst is not None and each.worst.how is not ComparedBy.STATISTICS for each in same):
        return True
    rounded = any(each.judgement is NodeJudgement.ROUNDING for each in judged)
    return report.exit_code == 0 and verdict_text(report).startswith("the same") and not rounded


@pytest.mark.parametrize("evidence", ["values", "statistics", "values and statistics"])
@pytest.mark.parametrize(("type_", "kind"), few(PAIRS, 30))
def test_two_runs_that_differ_are_not_called_the_same(type_: str, kind: str, evidence: str) -> None:
    both = pair(type_, kind)
    assert both is not None

    def recorded(array: Array, *, values: bool) -> Any:
        return array if values else Recorded(measure_stats(array)[0], array.dtype.name, array.shape)

    values = evidence.startswith("values"), evidence == "values"
    sides = [recorded(array, values=of) for array, of in zip(both, values, strict=True)]
    for one, other in (sides, sides[::-1]):
        report = compared({("Custom-op1", OUT, 0): one}, {("Custom-op1", OUT, 0): other}, ops=OPS)
        assert not called_the_same(report)
        if evidence == "values" and kind != "one_bit" and not type_.startswith("float8"):
            assert report.exit_code != 0  # 8 bits round to an eighth: one small element is within that


def test_hashes_that_are_sums_are_statistics() -> None:
    """The L1 norm of an operation's output, or the exclusive or of its words, is that of any other order, too."""
    meta = "float32", (60,)
    assert distance_of_statistics(None, None, (meta, meta), (5, 5)).how is ComparedBy.HASHES
    assert distance_of_statistics(None, None, (meta, meta), (5, 5), sums=True).how is ComparedBy.STATISTICS
    for sums in (False, True):
        assert not distance_of_statistics(None, None, (meta, meta), (5, 6), sums=sums).compared


@pytest.mark.parametrize("type_", TYPES)
def test_equal_are_equal_numbers(type_: str) -> None:
    one = tensor(TYPES[type_])
    assert distance(one, one.copy()).equal
    assert distance(one[:0], one[:0].copy()).equal
    if one.dtype.kind in "fV" or type_.startswith(("bfloat", "float8")):
        one[4] = 0.0
        other = one.copy()
        other[4] = -0.0
        assert bits(one)[4] != bits(other)[4]
        assert distance(one, other).equal
