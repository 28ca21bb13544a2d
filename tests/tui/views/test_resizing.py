"""Every view in a terminal that changes its size, while it shows and while it works; and what stopping one leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.sources.writer import write_dump
from tests.tui.driver import Driver, opened
from tests.tui.views.growing import RELU, look
from tui_debugger.session.comparison import ComparedRun, RunComparison
from tui_debugger.tui.views.registry import VIEWS, ViewKind

SIZES = ((200, 50), (60, 15), (20, 5), (140, 40), (80, 24))


async def test_a_view_comes_back_from_every_size_as_it_was(tmp_path: Path) -> None:
    """One program for all views."""
    async with _two_runs(tmp_path) as screen:
        for kind in VIEWS:
            await look(screen, kind.load(), kind.id)
            before = screen.text
            await _through_sizes(screen)
            assert screen.text == before, kind.id
            await _leave(screen, kind)


async def test_a_view_that_works_keeps_saying_so_and_esc_stops_it(tmp_path: Path) -> None:
    """One program for all views."""
    async with _two_runs(tmp_path) as screen:
        run = screen.main.views.run
        for kind in VIEWS:
            screen.main.views.run = lambda *_: None  # type: ignore[method-assign]
            view = await look(screen, kind.load(), kind.id)
            await _through_sizes(screen)
            assert "Esc stops" in screen.text, kind.id
            await screen.press("escape")
            assert "stopped" in screen.text, kind.id
            assert "Esc stops" not in screen.text, kind.id
            screen.main.views.run = run  # type: ignore[method-assign]
            assert screen.app.screen is view, kind.id
            await screen.press("r")
            await screen.settled()
            named = "weight" if kind.id == "trajectory" else RELU.rpartition("/")[2]
            assert named in screen.text, f"{kind.id}:\n{screen.text}"
            assert "stopped" not in screen.text, kind.id
            await _leave(screen, kind)


async def _leave(screen: Driver, kind: ViewKind) -> None:
    await screen.press("escape")
    assert len(screen.app.screen_stack) == 1, kind.id
    await screen.settled()


@asynccontextmanager
async def _two_runs(path: Path) -> AsyncIterator[Driver]:
    """The screen of a run, and another one that it can be compared with."""
    write_dump(path / "this")
    write_dump(path / "other")
    async with opened(path / "this", size=(80, 24)) as screen:
        screen.main.views.comparison = RunComparison(screen.session, ComparedRun(str(path / "other")))
        yield screen


async def _through_sizes(screen: Driver) -> None:
    for size in SIZES:
        await screen.pilot.resize_terminal(*size)
        await screen.settled()
