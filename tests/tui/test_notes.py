"""The header shows what the program noted of the step, and the loss that a dump holds."""

from __future__ import annotations

import math
import re

import pytest

from tests.hostile import EVIL, unsafe
from tests.tui.conftest import OpenScreen
from tests.tui.live_driver import attached
from tests.tui.sizes import every_size


@pytest.mark.turns("size")
@every_size
async def test_the_loss_of_a_dump_stands_beside_the_step(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen("mindspore-2.0-nan", size=size) as screen:
        await screen.settled()
        assert "step 3 of 0–5  loss NaN" in screen.text.splitlines()[0]
        await screen.press("left_square_bracket")
        await screen.settled()
        assert "step 2 of 0–5  loss 1.3859" in screen.text.splitlines()[0]


@pytest.mark.turns("size")
@every_size
async def test_the_loss_is_that_of_the_hit_under_the_cursor(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen("mindspore-2.10-mlp", size=size) as screen:
        for key, loss in (("home", "1.0879"), ("end", "1.0988")):
            await screen.press_each("4", key)
            hit = screen.main.hits_pane.current
            assert hit is not None
            assert f"step {hit.key.step} of 0–5  loss {loss}" in screen.text.splitlines()[0]
            assert hit.key.node.rpartition("/")[2] in screen.main.hits_pane.detail, (
                "before the loss, where there is little room"
            )
        assert screen.main.hits_pane.detail.endswith("weight not changed · loss 1.0988")


@pytest.mark.turns("size")
@every_size
async def test_what_a_training_notes_stands_beside_the_step(size: tuple[int, int]) -> None:
    async with attached(size=size) as screen:
        training = screen.trainings.trainings[0]
        training.notes.add([(0, {"loss": math.nan, "lr": 1e-4}), (1, {EVIL: EVIL})])
        await screen.press("right_square_bracket")
        await screen.ordered("run 1")
        await screen.stopped(training, 0)
        assert "step 0 of start–0  loss NaN  lr 1e-4" in screen.text.splitlines()[0]
        await screen.press("right_square_bracket")
        await screen.ordered("run 1")
        await screen.stopped(training, 1)
        first = screen.text.splitlines()[0]
        assert "rank 0  step 1 " in first, "of how many goes first where there is little room"
        assert not unsafe(screen.text)


@every_size
async def test_a_key_beside_the_loss_plots_it_and_says_where_it_comes_from(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen("mindspore-2.0-nan", size=size) as screen:
        await screen.settled()
        assert "loss NaN  $" in screen.lines[0]
        await screen.press("dollar_sign")
        await screen.settled()
        assert type(screen.app.screen).__name__ == "TrendView"
        assert re.search(r"loss recognised, not noted by the program: output of \w+", screen.text)
        assert re.search(r"loss \(recognised\)", screen.text), "its plot comes first"
