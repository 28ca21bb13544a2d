"""The search for elements: what can be asked for, where it leads, in values and in a comparison."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.screens_host import opened
from tests.tui.values.test_screen import Later, counted, screen_of, where
from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.stats.compare_pairs import Pairs, difference
from tui_debugger.tui.values import search, window
from tui_debugger.tui.values.search import (
    BadSearchError,
    DifferenceElements,
    ElementQuery,
    FoundElement,
    elements_of,
    find_element,
)

NAN, INF = np.nan, np.inf


def found_in(text: str, values: Any, dtype: Any = np.float32) -> list[int]:
    """The places that a text finds in a line of values."""
    array = np.array(values).astype(dtype)
    return np.flatnonzero(ElementQuery.of(text).test_for(array.dtype)(array)).tolist()


class TestWhatIsAskedFor:
    @pytest.mark.parametrize(
        ("text", "places"),
        [
            ("nan", [1]),
            (" NaN ", [1]),
            ("inf", [2, 3]),
            ("+inf", [2]),
            ("-Infinity", [3]),
            ("> 1e3", [2, 4]),
            (">=1000", [2, 4, 5]),
            ("< 0", [3, 6]),
            ("≤ -0.25", [3, 6]),
            ("|x| < 0.3", [0, 6, 7]),
            ("abs >= 1e3", [2, 3, 4, 5]),
            ("= 0.1", [7]),
            ("0", [0]),
            ("0.10", [7]),
            ("-0.4", []),
            ("-0.25", [6]),
            ("!= 0", [1, 2, 3, 4, 5, 6, 7]),
        ],
    )
    def test_of_floating_point_numbers(self, text: str, places: list[int]) -> None:
        assert found_in(text, [0, NAN, INF, -INF, 2000, 1000, -0.25, 0.1]) == places

    def test_a_number_finds_what_reads_so_and_a_whole_one_what_it_is(self) -> None:
        values = [0.12336, 0.12344, 0.12346, 3.0, 3.2]
        assert found_in("0.1234", values) == [0, 1]
        assert found_in("3", values) == [3]
        assert found_in("3.0", values) == [3]

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
    def test_a_tenth_is_meant_as_the_element_type_has_it(self, dtype: Any) -> None:
        assert found_in("= 0.1", [0.1, 0.2], dtype) == [0]
        assert found_in("> 0.1", [0.1, 0.2], dtype) == [1]

    @pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, ml_dtypes.int4])
    def test_integers_are_compared_exactly(self, dtype: Any) -> None:
        assert found_in("> 2.5", [1, 2, 3], dtype) == [2]
        assert found_in("<= 2.5", [1, 2, 3], dtype) == [0, 1]
        assert found_in("2.5", [1, 2, 3], dtype) == []
        assert found_in("2", [1, 2, 3], dtype) == [1]
        assert found_in("< 1e30", [1, 2, 3], dtype) == [0, 1, 2]
        assert found_in("> -1e30", [1, 2, 3], dtype) == [0, 1, 2]
        assert found_in("nan", [1, 2, 3], dtype) == []

    def test_an_integer_that_no_float_has_is_found(self) -> None:
        big = 2**53 + 1
        values = np.array([big - 1, big, big + 1])
        assert np.flatnonzero(ElementQuery.of(str(big)).test_for(values.dtype)(values)).tolist() == [1]

    def test_truth_values_and_complex_numbers(self) -> None:
        assert found_in("true", [0, 1, 1], np.bool_) == [1, 2]
        assert found_in("false", [0, 1, 1], np.bool_) == [0]
        assert found_in("> 4", [3 + 4j, 1j, complex(NAN, 0)], np.complex64) == [0]
        assert found_in("nan", [3 + 4j, 1j, complex(NAN, 0)], np.complex64) == [2]

    @pytest.mark.parametrize("text", ["", ">", "> x", "1 2", "nanx", "1e999", "= nan", "0x10", "--1"])
    def test_anything_else_is_refused_with_what_can_be_written(self, text: str) -> None:
        with pytest.raises(BadSearchError, match=r"write nan, inf"):
            ElementQuery.of(text)

    @given(
        st.lists(st.floats(width=32), min_size=1, max_size=30),
        st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
        st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
    def test_comparisons_say_what_numpy_says(self, values: list[float], sign: str, number: float) -> None:
        array = np.array(values, np.float32)
        plain = {
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
            "=": np.equal,
            "!=": np.not_equal,
        }
        expected = plain[sign](array, np.float32(number))
        assert ElementQuery.of(f"{sign} {Decimal(number)}").test_for(array.dtype)(array).tolist() == expected.tolist()


class TestWhereItIs:
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("direction", [1, -1])
    def test_every_one_is_visited_in_the_order_of_memory_and_then_the_first_again(
        self, order: Any, direction: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(search, "BLOCK", 7)
        array = np.asarray(np.random.default_rng(0).integers(0, 4, (5, 6, 2)), order=order)
        test, at, seen = ElementQuery.of("3").test_for(array.dtype), (0, 0, 0), []
        for _ in range(int((array == 3).sum())):
            found = find_element(elements_of(array), at, direction, test)
            assert found is not None
            at = found.index
            seen.append(at)
        assert sorted(seen) == [tuple(place) for place in np.argwhere(array == 3).tolist()]

    def test_none(self) -> None:
        array = counted(4, 4)
        assert find_element(elements_of(array), (0, 0), 1, ElementQuery.of("nan").test_for(array.dtype)) is None

    def test_between_blocks_it_can_be_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(search, "BLOCK", 4)

        def stop(progress: Progress) -> None:
            if progress.done >= 8:
                raise CancelledError("stopped")

        array = counted(100)
        with pytest.raises(CancelledError):
            find_element(elements_of(array), (0,), 1, ElementQuery.of("> 50").test_for(array.dtype), progress=stop)

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_the_difference_of_two_tensors(self, order: Any) -> None:
        here = np.asarray(counted(3, 4), order=order)
        there = here.copy(order="K")
        there[2, 1] += 5
        elements = DifferenceElements(Pairs(here, there), difference)
        test = ElementQuery.of("|x| > 4").test_for(np.dtype(np.float64))
        assert find_element(elements, (0, 0), 1, test) == FoundElement((2, 1))


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_enter_goes_to_the_next_one_n_and_N_go_on_and_esc_goes_back(size: tuple[int, int]) -> None:  # noqa: N802
    array = counted(2, 3, 40, 60)
    screen = screen_of(array)
    async with opened(screen, size) as view:
        await view.press("down", "/")
        await view.type("> 7000")
        await view.press("enter")
        assert where(screen) == (0, 2, 36, 41)
        assert "[0, 2, 36, 41] = 7001.0" in view.text
        assert "n N next > 7000" in view.text
        await view.press("n")
        assert where(screen) == (0, 2, 36, 42)
        await view.press("N", "N")
        assert where(screen) == (1, 2, 39, 59)
        assert "went on from the other end" in view.text
        view.check_clean()
        await view.press("escape")
        assert (where(screen), "slice [0, 0, :, :]" in view.text) == ((0, 0, 1, 0), True)
        assert view.open
        assert "NaN/Inf" in view.text
        await view.press("escape")
        assert not view.open


async def test_a_search_that_finds_nothing_or_is_wrong_says_so_and_moves_nothing() -> None:
    screen = screen_of(counted(5, 5))
    async with opened(screen) as view:
        await view.press("right", "/")
        await view.type("many")
        await view.press("enter")
        assert "'many' is not a number: write nan, inf" in view.text
        await view.press("ctrl+u")
        await view.type("nan")
        await view.press("enter")
        assert "no element is nan" in view.text
        assert where(screen) == (0, 1)
        await view.press("backspace", "n")
        assert "no NaN or Inf in this tensor" in view.text


async def test_esc_in_the_box_looks_for_nothing() -> None:
    screen = screen_of(counted(5, 5))
    async with opened(screen) as view:
        await view.press("/")
        await view.type("3")
        await view.press("escape", "n")
        assert view.open
        assert where(screen) == (0, 0)


async def test_it_works_in_the_heat_map() -> None:
    screen = screen_of(counted(50, 50))
    async with opened(screen) as view:
        await view.press("t", "/")
        await view.type("1234")
        await view.press("enter")
        assert screen.elements.mapped
        assert where(screen) == (24, 34)
        await view.press("n")
        assert "went on from the other end" in view.text


async def test_in_a_large_tensor_it_runs_beside_the_keys_and_esc_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "QUICK", 4)
    later = Later(counted(5, 5))
    screen = screen_of(counted(5, 5), host=later)
    async with opened(screen) as view:
        later.finish()
        await view.pilot.pause()
        await view.press("/")
        await view.type("> 20")
        await view.press("enter")
        assert "searching …  Esc stops" in view.text
        await view.press("down")
        assert where(screen) == (1, 0)
        await view.press("escape")
        later.finish()
        await view.pilot.pause()
        assert where(screen) == (1, 0), "what comes after Esc moves nothing"
        await view.press("n")
        later.finish()
        await view.pilot.pause()
        assert where(screen) == (4, 1)
