"""``tdbg demo --live``: a real server, and the client's side of a recorded session."""

from __future__ import annotations

from tests.tui.live_driver import demo, to_first_hit


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
