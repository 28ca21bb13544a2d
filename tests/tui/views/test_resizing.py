"""Every view in a terminal that changes its size, while it shows and while it works; and what stopping one leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sources.writer import write_dump
from tests.tui.driver import Driver, opened
from tests.tui.views.growing import RELU, look
from tui_debugger.session.comparison import Against, Comparison
from tui_debugger.tui.view_opener import load_view
from tui_debugger.tui.views.registry import VIEWS, ViewKind

SIZES = ((200, 50), (60, 15), (20, 5), (140, 40), (80, 24))


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.id)
async def test_a_view_comes_back_from_every_size_as_it_was(kind: ViewKind, tmp_path: Path) -> None:
    async with _two_runs(tmp_path) as screen:
        await look(screen, load_view(kind), kind.id)
        before = screen.text
        await _through_sizes(screen)
        assert screen.text == before


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.id)
async def test_a_view_that_works_keeps_saying_so_and_esc_stops_it(kind: ViewKind, tmp_path: Path) -> None:
    async with _two_runs(tmp_path) as screen:
        run = screen.main.views.run
        screen.main.views.run = lambda *_: None  # type: ignore[method-assign]
        view = await look(screen, load_view(kind), kind.id)
        await _through_sizes(screen)
        assert "Esc stops" in screen.text
        await screen.press("escape")
        assert "stopped" in screen.text
        assert "Esc stops" not in screen.text
        screen.main.views.run = run  # type: ignore[method-assign]
        assert screen.app.screen is view
        await screen.press("r")
        await screen.settled()
        assert ("weight" if kind.id == "trajectory" else RELU.rpartition("/")[2]) in screen.text
        assert "stopped" not in screen.text
        await screen.press("escape")
        assert len(screen.app.screen_stack) == 1


@asynccontextmanager
async def _two_runs(path: Path) -> AsyncIterator[Driver]:
    """The screen of a run, and another one that it can be compared with."""
    write_dump(path / "this")
    write_dump(path / "other")
    async with opened(path / "this", size=(80, 24)) as screen:
        screen.main.views.comparison = Comparison(screen.session, Against(str(path / "other")))
        yield screen


async def _through_sizes(screen: Driver) -> None:
    for size in SIZES:
        await screen.pilot.resize_terminal(*size)
        await screen.settled()
