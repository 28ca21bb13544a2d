"""``tdbg demo --live``: a real server, and the client's side of a recorded session."""

from __future__ import annotations

import pytest

from tests.tui.live_driver import demo, to_first_hit
from tests.tui.sizes import every_size
from tui_debugger.tui.dialogs.pages import HistoryScreen
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.views.compare import CompareView

TENSORS = 349
"""Of a step of the recording that are judged."""


async def test_the_training_is_run_to_its_nan_and_its_values_are_looked_at() -> None:
    async with demo() as screen:
        assert "MindSpore 2.0.0  GPU 0" in screen.main.header.plain
        await to_first_hit(screen)
        names = [row.split()[2].partition("-")[0] for row in screen.pane("hits")[:4]]
        assert names == ["Log", "ReduceSum", "Mul", "Div"]
        await screen.press("5")  # the cursor is there
        await screen.settled()
        assert any("out 0 4 float32 0 1 4.476 4.6006" in row for row in screen.pane("tensors"))
        await screen.press("G", "enter")
        await screen.until(lambda: "[0] = 4.573498" in screen.text)
        assert "-Inf" in screen.text


async def test_the_recording_ends() -> None:
    async with demo() as screen:
        while "finished" not in screen.main.header.plain:
            before = screen.main.header.plain
            await screen.press("c")
            await screen.until(lambda before=before: screen.main.header.plain != before)
            await screen.until(lambda: "running" not in screen.main.header.plain)
            await screen.settled()
        assert screen.main.state.step == 5


@pytest.mark.turns("size")
@every_size
async def test_steps_that_ran_until_the_hit_are_counted_as_without_a_screen(size: tuple[int, int]) -> None:
    async with demo(size) as screen:
        await to_first_hit(screen)
        result = screen.session.so_far()
        assert result is not None
        assert (result.silent, result.coverage.checked) == (3, 4 * TENSORS)
        assert not result.not_checked(screen.session.pairs())
        assert "314 findings" in screen.text


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("key", ["full_stop", "t"])
async def test_a_client_that_stops_after_steps_only_says_so_and_stays_where_it_is(
    size: tuple[int, int], key: str
) -> None:
    async with demo(size) as screen:
        await screen.press("1", key)
        await screen.settled()
        assert "MindSpore 2.0.0 stops at the end of steps only" in screen.text
        assert "stopped before the first step" in screen.main.header.plain


@pytest.mark.turns("size")
@every_size
async def test_the_step_before_of_an_activation_is_there_when_it_was_looked_at(size: tuple[int, int]) -> None:
    async with demo(size) as screen:
        await to_first_hit(screen)
        await screen.press_each("4", "home", "enter", "enter")
        assert isinstance(screen.app.screen, ValuesScreen)
        await screen.press("p")
        assert "only parameters are kept: look at it in step 2, too" in screen.text
        await screen.press_each("escape", "C")
        assert isinstance(screen.app.screen, CompareView)
        await screen.until(lambda: "Nothing to compare with:" in screen.text)
        assert "only parameters are kept: look at it in step 2, too" in screen.text
        await screen.press_each("escape", "right_square_bracket")
        await screen.until(lambda: "stopped after step 4" in screen.main.header.plain)
        await screen.settled()
        await screen.press_each("5", "enter", "p")
        await screen.until(lambda: "PREVIOUS STEP" in screen.text)
        assert "-Inf" in screen.text


@pytest.mark.turns("size")
@every_size
async def test_the_run_history_begins_at_the_start(size: tuple[int, int]) -> None:
    async with demo(size) as screen:
        await to_first_hit(screen)
        await screen.press("y")
        await screen.until(lambda: isinstance(screen.app.screen, HistoryScreen))
        await screen.settled()
        steps = [line.replace("▌", " ").replace("▶", " ").split()[0] for line in screen.lines if "kernel_graph" in line]
        assert steps == ["start", "2", "3"]


@pytest.mark.turns("size")
@every_size
async def test_a_slash_after_an_accepted_search_begins_a_new_text(size: tuple[int, int]) -> None:
    async with demo(size) as screen:
        await screen.press("1", "slash")
        await screen.type("log")
        await screen.settled()
        await screen.press_each("enter", "slash")
        await screen.type("softmax")
        await screen.settled()
        bar = screen.main.nodes_pane.search_bar
        assert bar is not None
        assert bar.value == "softmax"
        assert bar.count.startswith("1 of ")
