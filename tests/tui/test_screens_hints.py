"""The line of key hints of a full screen: what leads to all other keys, and out, stands there at any width."""

from __future__ import annotations

import pytest

from tests.tui.screens_host import opened
from tui_debugger.tui.dialogs.modal import Modal, fitting, hint_line

HINTS = (("Enter", "go there"), ("Space", "other bad inputs"), ("v", "values"), ("?", "keys"), ("Esc", "back"))


class Screen(Modal[None]):
    FULL = True
    hints = HINTS


@pytest.mark.parametrize("room", range(12, 80))
def test_the_first_hints_that_fit_are_shown_and_the_way_out(room: int) -> None:
    shown = fitting(HINTS, room)
    assert shown[-2:] == [("?", "keys"), ("Esc", "back")]
    assert shown[:-2] == list(HINTS[: len(shown) - 2])
    assert hint_line(shown).cell_length <= room or len(shown) == 2


async def test_a_screen_that_grows_shows_more_of_them() -> None:
    async with opened(Screen(), size=(44, 12)) as shown:
        assert shown.lines[-1].strip("─").strip() == "Enter go there  ? keys  Esc back"
        await shown.resize(80, 12)
        assert "Space other bad inputs  v values  ? keys  Esc back" in shown.lines[-1]
