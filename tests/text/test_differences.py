"""How two tensors differ, in words; tolerances as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.compare import Differences, compare, entry_at
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Pairs
from tui_debugger.text import differences as words
from tui_debugger.text.differences import format_tolerance, parse_tolerance

NAN, INF = np.nan, np.inf


def found(here: Any, there: Any, tolerance: Boundary = EXACT, dtype: str = "f4") -> Differences:
    return compare(Pairs(np.array(here, dtype), np.array(there, dtype)), tolerance=tolerance)


@pytest.mark.parametrize(
    ("here", "there", "tolerance", "text"),
    [
        ([1, 2], [1, 2], EXACT, "equal: all 2 elements"),
        ([1, 2], [1, 3], EXACT, "different: 1 of 2 (50.0 %)"),
        ([1, 2], [1, 3], Boundary(atol=1), "equal within the tolerance: 1 of 2 (50.0 %) differ by less"),
        ([1, 2], [1, 5], Boundary(atol=1), "different beyond the tolerance: 1 of 2 (50.0 %)"),
        ([NAN], [NAN], EXACT, "cannot judge: the only element is NaN on both sides: nothing to compare"),
        (
            [NAN] * 2,
            [NAN] * 2,
            Boundary(atol=1),
            "cannot judge: all 2 elements are NaN on both sides: nothing to compare",
        ),
        ([NAN, 1], [NAN, 1], EXACT, "equal: 1 of 2 (50.0 %); 1 is NaN on both sides"),
        (
            [NAN, NAN, 1, 2],
            [NAN, NAN, 1, 3],
            Boundary(atol=1),
            "equal within the tolerance: 1 of 4 (25.0 %) differ by less; 2 are NaN on both sides",
        ),
        ([NAN, 1], [NAN, 2], EXACT, "different: 1 of 2 (50.0 %)"),
        ([], [], EXACT, "equal: both are without elements"),
    ],
)
def test_the_verdict(here: list[float], there: list[float], tolerance: Boundary, text: str) -> None:
    assert words.verdict(found(here, there, tolerance)) == text


def test_counts_name_only_what_there_is() -> None:
    assert words.counts_text(found([1, 2], [1, -3])) == "equal 1  different 1  sign flips 1"
    odd = found([NAN, NAN, 1, INF, 1, INF, INF], [NAN, 1, NAN, 1, INF, INF, -INF])
    assert words.counts_text(odd) == (
        "equal 1  different 5  NaN only here 1  NaN only there 1  both NaN 1  Inf only here 1  Inf only there 1  "
        "opposite Inf 1  same Inf 1"
    )


def test_errors_say_what_they_are_over() -> None:
    assert words.error_text(found([1, 3], [1, 2])) == "max |d| 1  mean |d| 0.5  max relative 0.5"
    partial = words.error_text(found([1, 3, NAN], [0, 2, 1]))
    assert partial == "max |d| 1  mean |d| 1  max relative 0.5  (and 1 from 0)  over 2 finite pairs"
    assert words.error_text(found([NAN], [1])) == "no element is finite on both sides: there are no errors to measure"
    assert words.vector_text(found([NAN], [1])) == words.ulp_text(found([NAN], [1])) == ""


def test_vectors_and_units_in_the_last_place() -> None:
    assert words.vector_text(found([3, 4], [3, 4])) == "cosine 1  ‖d‖ 0 (0 of ‖there‖)"
    assert words.vector_text(found([0, 0], [3, 4])) == "cosine no direction  ‖d‖ 5 (1 of ‖there‖)"
    one = np.nextafter(np.float32(1), np.float32(2))
    assert words.ulp_text(found([one, 1], [1, 1])) == "max 1 ULP of float32  within 1 ULP 2 of 2 (100 %)"
    assert "floating-point" in words.ulp_text(found([1], [2], dtype="i4"))


def test_statistics_of_all_three_with_counts_where_there_are_some() -> None:
    head, here, there, difference = words.stats_lines(found([1, 2], [2, 4]))
    assert head.split() == ["min", "max", "mean", "mean", "|x|", "σ", "norm"]
    assert here.split() == ["here", "1", "2", "1.5", "1.5", "0.5", "2.2361"]
    assert there.split()[:3] == ["there", "2", "4"]
    assert difference.split()[:3] == ["d", "-2", "-1"]
    head, here, *_ = words.stats_lines(found([1, NAN], [2, 4]))
    assert (head.split()[-1], here.split()[-1]) == ("NaN", "1")


def test_an_element() -> None:
    pairs = Pairs(np.array([0.1, NAN], np.float32), np.array([0.2, 1], np.float32))
    assert words.element_text(entry_at(pairs, (0,), None)) == "here 0.1  there 0.2  d -0.1  rel 0.5"
    exact = words.element_text(entry_at(pairs, (0,), np.dtype("f4")), exact=True)
    assert exact == "here 0.1  there 0.2  d -0.10000000149011612  rel 0.5  8388608 ULP"
    assert words.element_text(entry_at(pairs, (1,), np.dtype("f4"))) == "here NaN  there 1.0  d NaN"


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [
        ("", EXACT),
        ("exact", EXACT),
        ("rtol=1e-5 atol=1e-8", Boundary(1e-5, 1e-8)),
        ("rtol=1e-5, atol=1e-8", Boundary(1e-5, 1e-8)),
        ("5%", Boundary(percent=5)),
        ("5 %", Boundary(percent=5)),
        ("percent=5 atol=1", Boundary(atol=1, percent=5)),
    ],
)
def test_tolerances_are_read(text: str, tolerance: Boundary) -> None:
    assert parse_tolerance(text) == tolerance


@pytest.mark.parametrize("text", ["rtol", "rtol=x", "rtol=-1", "101%", "atol=inf", "atol=nan", "x=1", "5"])
def test_what_is_no_tolerance_says_why(text: str) -> None:
    assert isinstance(parse_tolerance(text), str)


@given(st.builds(Boundary, st.floats(0, 1e300), st.floats(0, 1e300), st.floats(0, 100)))
def test_every_tolerance_reads_back(tolerance: Boundary) -> None:
    assert parse_tolerance(format_tolerance(tolerance)) == tolerance


def test_a_tolerance_in_words() -> None:
    assert words.tolerance_text(EXACT, 0) == "exact"
    assert words.tolerance_text(Boundary(1e-5, 1e-8), 0) == "|d| ≤ 1e-8 + 1e-5·|there|"
    assert words.tolerance_text(Boundary(rtol=1e-5), 0) == "|d| ≤ 1e-5·|there|"
    assert words.tolerance_text(Boundary(atol=1, percent=5), 0.25) == "|d| ≤ 1 or |d| ≤ 0.25 (5 % of the greatest)"
