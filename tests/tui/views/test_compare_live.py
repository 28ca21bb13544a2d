"""The comparison of a training that runs: values are fetched, and what is gone is said once."""

from __future__ import annotations

from tests.live.doubles import LOG, WEIGHT
from tests.tui.live_driver import LiveDriver, attached
from tui_debugger.tui.views.compare import CompareView

FORWARD = "right_square_bracket"


async def stands_after(screen: LiveDriver, step: int) -> None:
    await screen.press(FORWARD)
    await screen.ordered("run 1")
    await screen.stopped(screen.trainings.trainings[0], step)


async def compare(screen: LiveDriver, node: str) -> None:
    screen.main.navigator.go_to_row(screen.live.nodes(0).find(node))
    await screen.settled()
    await screen.press("5", "end", "G", "C")
    await screen.until(lambda: isinstance(screen.app.screen, CompareView))
    await screen.settled()


async def test_a_weight_with_what_it_was_before_the_step() -> None:
    async with attached(shape=(300, 300)) as screen:
        await stands_after(screen, 0)
        await stands_after(screen, 1)
        await compare(screen, WEIGHT)
        view = screen.app.screen
        assert isinstance(view, CompareView)
        await screen.until(lambda: view.found is not None)
        assert "here   step 1  rank 0" in screen.text
        assert "there  step 0" in screen.text
        assert view.found is not None
        assert view.found.count == 90_000


async def test_what_the_training_does_not_have_any_more_is_said_once() -> None:
    async with attached() as screen:
        await stands_after(screen, 0)
        await stands_after(screen, 1)
        await compare(screen, LOG)
        await screen.until(lambda: "Nothing to compare with" in screen.text)
        await screen.settled()
        assert isinstance(screen.app.screen, CompareView), "no second message above it"
