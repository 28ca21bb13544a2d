"""Small questions: steps, numbers, text, choices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.screens_host import HOSTILE, opened
from tui_debugger.model import GraphRun
from tui_debugger.tui.dialogs.prompts import (
    ChoiceScreen,
    NoSuchStepError,
    NumberPrompt,
    StepPrompt,
    TextPrompt,
    find_step,
    nearest_step,
)

STEPS = [0, 5, 10, 40]
RUNS = [GraphRun(step, graph, f"kernel_graph_{graph}", step in STEPS) for step in range(41) for graph in (0, 3)]


FOUND = {0: 0, 5: 1200, 10: 3}
"""Findings by step; the last step was not checked."""


class TestStepText:
    @pytest.mark.parametrize(
        ("text", "step"),
        [
            ("5", 5),
            (" 40 ", 40),
            ("+", 10),
            ("+1", 10),
            ("+2", 40),
            ("- 1", 0),
            ("-", 0),
            ("+0", 5),
            ("first", 0),
            ("f", 0),
            ("LAST", 40),
        ],
    )
    def test_ways_to_name_a_step(self, text: str, step: int) -> None:
        assert find_step(text, STEPS, 5) == step

    @pytest.mark.parametrize(
        ("text", "message", "nearest"),
        [
            ("7", "step 7 is not dumped: 5 comes before, 10 after it", 5),
            ("9", "step 9 is not dumped: 5 comes before, 10 after it", 10),
            ("41", "step 41 is not dumped: the last is 40", 40),
            ("+3", "only 2 dumped steps come after step 5: last is 40", 40),
            ("-2", "only 1 dumped step comes before step 5: first is 0", 0),
            ("abc", "'abc' is no step: write a number, +3, -2, first or last", None),
            ("1.5", "'1.5' is no step: write a number, +3, -2, first or last", None),
            ("", "'' is no step: write a number, +3, -2, first or last", None),
        ],
    )
    def test_what_is_no_dumped_step_is_refused_with_its_neighbours(
        self, text: str, message: str, nearest: int | None
    ) -> None:
        with pytest.raises(NoSuchStepError) as caught:
            find_step(text, STEPS, 5)
        assert str(caught.value) == message
        assert caught.value.nearest == nearest

    def test_before_the_first(self) -> None:
        with pytest.raises(NoSuchStepError, match="step 3 is not dumped: the first is 5"):
            find_step("3", [5, 6], 5)
        with pytest.raises(NoSuchStepError, match="no dumped step comes before step 5"):
            find_step("-", [5, 6], 5)

    def test_nothing_dumped(self) -> None:
        with pytest.raises(NoSuchStepError, match="no step is dumped"):
            find_step("1", [], 0)

    @given(st.sets(st.integers(0, 60), min_size=1), st.integers(0, 60), st.text(alphabet="+-0123456789 fl", max_size=4))
    def test_the_answer_is_always_a_dumped_step(self, dumped: set[int], current: int, text: str) -> None:
        steps = sorted(dumped)
        try:
            found: int | None = find_step(text, steps, current)
        except NoSuchStepError as error:
            found = error.nearest
        assert found is None or found in dumped
        near = nearest_step(current, steps)
        assert abs(near - current) == min(abs(step - current) for step in steps)


class TestStepPrompt:
    async def test_starts_at_the_current_step_and_lists_steps_with_their_findings_and_graphs(self) -> None:
        async with opened(StepPrompt(STEPS, 10, RUNS, FOUND)) as view:
            listed = [line.strip(" │▌▶").split() for line in view.lines if "kernel_graph" in line]
            graphs = ["kernel_graph_0,", "kernel_graph_3"]
            assert listed[:3] == [["0", "0", *graphs], ["5", "1,200", *graphs], ["10", "3", *graphs]]
            assert listed[3] == ["40", "not", "checked", *graphs]
            assert any("▌▶       10" in line for line in view.lines)
            await view.press("enter")
            assert view.result == 10

    async def test_graphs_that_are_the_same_at_every_step_take_no_room(self) -> None:
        runs = [run for run in RUNS if run.has_data]
        async with opened(StepPrompt(STEPS, 10, runs, FOUND)) as view:
            assert "findings" in view.text
            assert "graph" not in view.text

    async def test_typing_shows_the_nearest_and_refuses_what_is_not_dumped(self) -> None:
        async with opened(StepPrompt(STEPS, 10, RUNS, FOUND)) as view:
            await view.type("38")
            assert "step 38 is not dumped: 10 comes before, 40 after it" in view.text
            assert any(line.lstrip(" │").startswith("▌        40") for line in view.lines)
            await view.press("enter")
            assert view.open
            await view.press("up", "enter")
            assert view.result == 10

    @pytest.mark.parametrize(("text", "step"), [("5", 5), ("+1", 40), ("-1", 5), ("last", 40), ("f", 0)])
    async def test_enter_goes(self, text: str, step: int) -> None:
        async with opened(StepPrompt(STEPS, 10, RUNS, FOUND)) as view:
            await view.type(text)
            await view.press("enter")
            assert view.result == step

    async def test_arrow_and_page_keys_pick_whatever_was_typed(self) -> None:
        async with opened(StepPrompt(STEPS, 10, RUNS, FOUND)) as view:
            await view.type("x")
            await view.press("pageup", "down", "enter")
            assert view.result == 5
        async with opened(StepPrompt(STEPS, 10, RUNS, FOUND)) as view:
            await view.press("pagedown", "enter")
            assert view.result == 40

    async def test_esc_returns_nothing(self) -> None:
        async with opened(StepPrompt(STEPS, 10, RUNS, FOUND)) as view:
            await view.type("5")
            await view.press("escape")
            assert view.result is None

    async def test_a_current_step_that_is_not_dumped(self) -> None:
        async with opened(StepPrompt(STEPS, 11, RUNS, FOUND)) as view:
            await view.press("enter")
            assert view.result == 10

    async def test_a_hundred_thousand_steps(self) -> None:
        async with opened(StepPrompt(range(100_000), 5, (), {})) as view:
            await view.type("99998")
            await view.press("enter")
            assert view.result == 99_998

    async def test_no_step_at_all(self) -> None:
        async with opened(StepPrompt([], 0, (), {})) as view:
            await view.press("enter", "1", "enter", "down", "enter")
            assert "no step is dumped" in view.text
            assert view.open

    async def test_hostile_graph_names_and_runs_without_data(self) -> None:
        runs = [GraphRun(0, i, name, has_data=bool(i % 2)) for i, name in enumerate(HOSTILE)]
        async with opened(StepPrompt([0], 0, runs, {})) as view:
            assert "[red]x[/] (no data)" in view.text
            view.check_clean()


class TestNumberPrompt:
    async def test_typing_replaces_the_suggestion(self) -> None:
        async with opened(NumberPrompt("How many?", 3)) as view:
            await view.type("12")
            await view.press("enter")
            assert view.result == 12

    async def test_arrows_change_it_within_its_bounds(self) -> None:
        async with opened(NumberPrompt("How many?", 3, high=15)) as view:
            await view.press("up", "up", "down", "pageup", "enter")
            assert view.result == 14
        async with opened(NumberPrompt("How many?", 3, high=15)) as view:
            await view.press("pagedown", "enter")
            assert view.result == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("0", "the smallest is 1"),
            ("16", "the largest is 15"),
            ("1x", "'1x' is not a whole number"),
            ("²", "'²' is not a whole number"),
            ("9" * 30, "is not a whole number"),
        ],
    )
    async def test_what_is_refused(self, text: str, message: str) -> None:
        async with opened(NumberPrompt("How many?", 3, high=15)) as view:
            await view.type(text)
            await view.press("enter")
            assert message in view.text
            assert view.open
            await view.press("escape")
            assert view.result is None

    async def test_nothing_typed(self) -> None:
        async with opened(NumberPrompt("How many?", 3)) as view:
            await view.press("delete", "enter")
            assert "a whole number is needed" in view.text
            await view.press("up", "enter")
            assert view.result == 4


class TestTextPrompt:
    @staticmethod
    def check(text: str) -> str | None:
        return None if text.endswith(".npy") else "must end in .npy [b]"

    async def test_checks_while_one_types(self) -> None:
        async with opened(TextPrompt("Save as", "a.npy", self.check)) as view:
            await view.type("x")
            assert "must end in .npy [b]" in view.text
            await view.press("enter")
            assert view.open
            await view.press("backspace")
            assert "must end" not in view.text
            await view.press("enter")
            assert view.result == "a.npy"

    async def test_esc_returns_nothing(self) -> None:
        async with opened(TextPrompt("Save as", "a.npy")) as view:
            await view.press("escape")
            assert view.result is None

    @pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
    async def test_hostile_titles(self, name: str) -> None:
        async with opened(TextPrompt(name, "x", note="note")) as view:
            view.check_clean()


class TestChoiceScreen:
    OPTIONS = ("all graphs", "kernel_graph_0", "kernel_graph_1", "[red]other[/]")

    async def test_starts_at_the_current_one(self) -> None:
        async with opened(ChoiceScreen("Which?", self.OPTIONS, 2)) as view:
            assert "▌▶ kernel_graph_1" in view.text
            await view.press("up", "enter")
            assert view.result == 1

    async def test_typing_filters_and_the_index_is_that_of_the_whole_list(self) -> None:
        async with opened(ChoiceScreen("Which?", self.OPTIONS)) as view:
            await view.type("RED")
            assert "kernel_graph" not in view.text
            assert "[red]other[/]" in view.text
            await view.press("enter")
            assert view.result == 3

    async def test_nothing_matches(self) -> None:
        async with opened(ChoiceScreen("Which?", self.OPTIONS)) as view:
            await view.type("zzz")
            assert "nothing matches" in view.text
            await view.press("enter")
            assert view.open
            await view.press("escape")
            assert view.result is None

    async def test_keys_of_a_long_list(self) -> None:
        async with opened(ChoiceScreen("Which?", [str(i) for i in range(1000)])) as view:
            await view.press("pagedown", "down", "pageup", "enter")
            assert view.result == 1

    async def test_hostile_options(self) -> None:
        async with opened(ChoiceScreen("Which?", HOSTILE)) as view:
            view.check_clean()
            assert "[red]x[/]" in view.text
