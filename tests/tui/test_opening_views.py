"""What a view opened on the main screen is about: what stands under the cursor, nothing that stood there before."""

from __future__ import annotations

from tests.tui.conftest import OpenScreen
from tui_debugger.tui.views.view import View


async def test_on_a_scope_there_is_no_tensor_whatever_the_tensor_table_still_shows(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", recommended=False) as screen:
        await screen.press("1", "end")
        await screen.settled()
        assert screen.main.nodes_pane.current_row >= 0
        await screen.press("home")
        await screen.settled()
        for key in "oEHCb":
            await screen.press(key)
            assert screen.app.screen is screen.main
            assert "no tensor under the cursor" in screen.text
        await screen.press("M")
        await screen.settled()
        assert isinstance(screen.app.screen, View), "the health map is about the run"
