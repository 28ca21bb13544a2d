"""The path and the relations of a training that runs: what they need is fetched."""

from __future__ import annotations

from tests.tui.live_driver import demo, to_first_hit


async def test_the_path_of_a_training_that_stands_is_found_by_fetching() -> None:
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("4", "G", "o")
        await screen.until(lambda: "origin: Div-op" in screen.text or "origin: Log-op" in screen.text)
        assert "hops upstream" in screen.text
        await screen.press("L")
        await screen.until(lambda: "made from" in screen.text)
        await screen.settled()
        assert "NaN" in screen.text
        await screen.press("escape")
        assert "hops upstream" in screen.text
