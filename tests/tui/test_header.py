"""The header: what is counted is listed, keys and counts can be clicked, what was not read is not called checked."""

from __future__ import annotations

import re

import pytest

from tests.tui.conftest import OpenScreen
from tests.tui.sizes import every_size
from tui_debugger.tui.dialogs.pages import NoticesScreen
from tui_debugger.tui.views.explain import ExplainView

XOR = "msprobe-xor"


@pytest.mark.turns("size")
@every_size
async def test_the_notices_that_are_counted_are_the_ones_that_are_listed(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(XOR, size=size) as screen:
        place = re.search(r"! (\d+) notices?", screen.lines[2])
        assert place is not None
        await screen.pilot.click("#header", offset=(place.start(), 2))
        await screen.until(lambda: isinstance(screen.app.screen, NoticesScreen))
        marked = [line for line in screen.lines if re.match(r".{1,3}! ", line)]
        assert len(marked) == int(place[1])
        assert f"Notices ({place[1]})" in screen.text
        assert screen.text.count("edges") == screen.text.count("edges inferred") + screen.text.count("the edges that")


async def test_a_key_in_the_answer_can_be_clicked(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan", size=(120, 40)) as screen:
        await screen.pilot.click("#header", offset=(screen.lines[1].index("E explain"), 1))
        await screen.until(lambda: isinstance(screen.app.screen, ExplainView))


@pytest.mark.turns("size")
@every_size
async def test_what_could_not_be_read_is_not_checked(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(XOR, size=size) as screen:
        assert "◐ steps 2–3 checked in part" in screen.lines[2]
        assert "402 unreadable" in screen.lines[2]
