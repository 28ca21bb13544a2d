"""The watchpoint list as a file: saved and loaded on the screen, the same file as for ``--watch-file``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tui_debugger.session.watchpoints import read_watch_file
from tui_debugger.tui.dialogs.modal import ErrorScreen
from tui_debugger.tui.dialogs.prompts import TextPrompt

NAN = "mindspore-2.0-nan"


async def answer(screen: Driver, key: str, path: Path | str) -> None:
    """Runs an action of the watchpoints pane, by its key or its name, and answers the prompt with a path."""
    await screen.press("3")
    if len(key) == 1:
        await screen.press(key)
    else:
        await screen.press("colon")
        await screen.until(lambda: screen.app.screen is not screen.main)
        await screen.press(*key, "enter")
    await screen.until(lambda: isinstance(screen.app.screen, TextPrompt))
    prompt = screen.app.screen
    assert isinstance(prompt, TextPrompt)
    prompt.query_one("#text").value = str(path)  # type: ignore[attr-defined] # a path is long to type
    await screen.press("enter")
    await screen.settled()


async def test_the_saved_file_holds_the_list(open_screen: OpenScreen, tmp_path: Path) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("3", "space")  # the first one is switched off
        await answer(screen, "e", tmp_path / "set.toml")
        assert screen.main.footer.notice == f"wrote {tmp_path / 'set.toml'}"
        assert read_watch_file(tmp_path / "set.toml") == screen.session.watchpoints.items()
        assert not screen.session.watchpoints.items()[0].enabled


async def test_nothing_is_overwritten_and_nothing_is_written_into_the_dump(
    open_screen: OpenScreen, tmp_path: Path
) -> None:
    (tmp_path / "set.toml").write_text("mine")
    async with open_screen(NAN) as screen:
        await answer(screen, "e", tmp_path / "set.toml")
        assert "nothing is overwritten" in screen.text
        await screen.press("escape")
        inside = Path(screen.session.info.path) / "set.toml"
        await answer(screen, "e", inside)
        assert isinstance(screen.app.screen, ErrorScreen)
        assert "never written to" in screen.text
        assert not inside.exists()
    assert (tmp_path / "set.toml").read_text() == "mine"


async def test_an_empty_list_is_not_saved(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        await screen.press("3", "e")
        assert "no watchpoint to save" in screen.main.footer.notice


async def test_loading_adds_what_is_missing(open_screen: OpenScreen, tmp_path: Path) -> None:
    path = tmp_path / "set.toml"
    path.write_text("[[watchpoint]]\nwatch = 'TO'\n[[watchpoint]]\nwatch = 'TL max_gt=1'\nenabled = false\n")
    async with open_screen(NAN) as screen:
        before = len(screen.session.watchpoints)
        await answer(screen, "load", path)
        *_, added = screen.session.watchpoints.items()
        assert len(screen.session.watchpoints) == before + 1
        assert (added.condition, dict(added.params), added.enabled) == ("tensor_too_large", {"max_gt": 1.0}, False)
        assert screen.main.footer.notice == "TL #7 added; u undoes (1 there already)"
        assert "tensor too large" in screen.text


async def test_a_wrong_file_says_what_and_where(open_screen: OpenScreen, tmp_path: Path) -> None:
    (tmp_path / "set.toml").write_text("[[watchpoint]]\nwatch = 'XX'\n")
    async with open_screen(NAN) as screen:
        before = screen.session.watchpoints.items()
        await answer(screen, "load", tmp_path / "set.toml")
        assert isinstance(screen.app.screen, ErrorScreen)
        assert "no condition is called 'XX'" in screen.text
        assert "watchpoint 1" in screen.text
        assert screen.session.watchpoints.items() == before


@pytest.mark.parametrize("path", ["", "/nowhere/set.toml", "/", "\0", "~nobody-at-all/x"])
async def test_a_path_without_a_file_is_answered_in_the_prompt(open_screen: OpenScreen, path: str) -> None:
    async with open_screen(NAN) as screen:
        await answer(screen, "load", path)
        assert isinstance(screen.app.screen, TextPrompt)
