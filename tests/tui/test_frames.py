"""When the next frame is drawn: at once, a 60th of a second after the last one, or once the terminal takes more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from textual._context import active_app

from tui_debugger.tui.frames import FRAME, FrameTimer


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes at once: what is due next is due now."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]  # asyncio has no public name for it
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]  # likewise
        super()._run_once()  # type: ignore[misc]  # likewise


class Screen:
    """Counts frames."""

    def __init__(self) -> None:
        self.frames: list[float] = []
        self.errors: list[Exception] = []
        self.breaks = False
        self.driver = SimpleNamespace(behind=False)
        self.app: Any = SimpleNamespace(_driver=self.driver, _exit=False, _handle_exception=self.errors.append)
        this: Any = self
        self.timer = FrameTimer(this, self._draw)

    def _draw(self) -> None:
        self.timer.pause()
        self.frames.append(asyncio.get_running_loop().time())
        if self.breaks:
            raise ValueError


def run(draws: Callable[[Screen], Coroutine[Any, Any, None]]) -> Screen:
    """Runs what draws on a screen, in a time of its own."""
    screen, loop = Screen(), Clock()

    async def main() -> None:
        active_app.set(screen.app)
        await draws(screen)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return screen


def test_the_first_frame_comes_at_once_and_the_next_a_60th_of_a_second_later() -> None:
    async def draws(screen: Screen) -> None:
        screen.timer.resume()
        screen.timer.resume()  # nothing is drawn twice
        await asyncio.sleep(FRAME / 4)
        screen.timer.resume()
        await asyncio.sleep(10)
        screen.timer.resume()
        await asyncio.sleep(FRAME / 2)
        screen.timer.resume()
        await asyncio.sleep(10)

    after_pause = 10 + FRAME / 4
    assert run(draws).frames == pytest.approx([0, FRAME, after_pause, after_pause + FRAME])


def test_what_is_put_off_is_not_drawn() -> None:
    async def draws(screen: Screen) -> None:
        screen.timer.resume()
        screen.timer.pause()
        await asyncio.sleep(1)

    assert run(draws).frames == []


def test_nothing_is_drawn_until_the_terminal_takes_more_and_then_one_frame() -> None:
    async def draws(screen: Screen) -> None:
        screen.driver.behind = True
        for _ in range(100):
            screen.timer.resume()
            await asyncio.sleep(0.1)
        assert screen.frames == []
        screen.driver.behind = False
        await asyncio.sleep(1)

    assert len(run(draws).frames) == 1


def test_nothing_is_drawn_after_the_program_was_left() -> None:
    async def draws(screen: Screen) -> None:
        screen.app._exit = True
        screen.timer.resume()
        await asyncio.sleep(1)

    assert run(draws).frames == []


def test_a_frame_that_breaks_ends_the_program() -> None:
    async def draws(screen: Screen) -> None:
        screen.breaks = True
        screen.timer.resume()
        await asyncio.sleep(1)

    assert [type(error) for error in run(draws).errors] == [ValueError]
