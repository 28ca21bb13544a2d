"""``tdbg demo --pytorch``: the screen opens at the cause."""

from __future__ import annotations

from tests.tui.driver import opened
from tui_debugger.demo import PYTORCH, demo_dump


async def test_the_screen_opens_at_the_cause() -> None:
    async with opened(demo_dump(PYTORCH), size=(200, 50)) as screen:
        await screen.until(lambda: "Begins at step 1: Torch.log, NaN 13 of 512" in screen.text)
        assert screen.main.state.step == 1
        await screen.press("o")
        await screen.until(lambda: "logarithm of" in screen.text)
        await screen.press("escape")
        await screen.until(lambda: "Begins at step 1" in screen.text)
