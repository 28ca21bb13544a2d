"""A part of a run on the screen: the header says so, other parts are not shown, and a key opens the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sources.writer import write_dump
from tests.tui.conftest import OpenScreen


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    write_dump(tmp_path / "dump", steps=(0, 1, 2))
    return tmp_path / "dump"


async def test_a_step_of_a_dump(open_screen: OpenScreen, dump: Path) -> None:
    async with open_screen(dump / "rank_0/Net/0/1") as screen:
        assert "rank_0/Net/0/1 of dump/, one of 3 (key Z: all)" in screen.main.header.plain
        assert (screen.main.state.rank, screen.main.state.step) == (0, 1)
        await screen.press("]")
        assert screen.main.state.step == 1
        await screen.press("Z")
        assert screen.app.return_value == dump


async def test_the_whole_has_no_more(open_screen: OpenScreen, dump: Path) -> None:
    async with open_screen(dump) as screen:
        assert "key Z" not in screen.main.header.plain
        await screen.press("Z")
        assert screen.app.return_value is None
        assert "this is the whole run" in screen.main.footer.notice
