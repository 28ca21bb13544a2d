"""X on the main screen: the report of what the hit list shows, to a new file outside the dump."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.opened import snapshot, writable_copy
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tests.tui.live_driver import demo, to_first_hit
from tui_debugger.tui.dialogs.modal import PlainLine
from tui_debugger.tui.dialogs.prompts import TextPrompt

NAN = "mindspore-2.0-nan"


async def write_to(screen: Driver, path: Path) -> None:
    await screen.press("X")
    await screen.until(lambda: isinstance(screen.app.screen, TextPrompt))
    await screen.press("ctrl+u")
    await screen.type(str(path))
    await screen.press("enter")
    await screen.settled()


def message(screen: Driver) -> str:
    return str(screen.app.screen.query_one("#message", PlainLine).render())


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_the_report_of_the_hit_list_is_written_without_checking_again(
    open_screen: OpenScreen, tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.md"
    async with open_screen(NAN, size=size) as screen:
        await screen.press("n")
        await screen.settled()

        def never(*_: object) -> None:
            raise AssertionError("nothing is checked again")

        monkeypatch.setattr(screen.session, "check", never)
        await write_to(screen, target)
        await screen.until(target.exists)
        await screen.settled()
        assert f"wrote {target}" in screen.main.footer.notice
    text = target.read_text("utf-8")
    assert "**FINDINGS: NaN or Inf in 910 tensors, other findings in 4, at steps 3-5, 2 origins ◆**" in text
    assert "the logarithm of 0" in text
    assert "tdbg origin" in text


async def test_nothing_is_overwritten_and_nothing_enters_the_dump(
    open_screen: OpenScreen, tmp_path: Path, dumps: object
) -> None:
    assert callable(dumps)
    root = writable_copy(dumps(NAN), tmp_path / "dump")
    there = tmp_path / "there.md"
    there.write_text("mine", "utf-8")
    before = snapshot(root)
    async with open_screen(root) as screen:
        await screen.press("n")
        await screen.settled()
        await write_to(screen, there)
        assert isinstance(screen.app.screen, TextPrompt)
        assert "nothing is overwritten" in message(screen)
        await screen.press("escape")
        await write_to(screen, root / "report.md")
        assert "a dump is never written to" in message(screen)
    assert there.read_text("utf-8") == "mine"
    assert snapshot(root) == before


async def test_without_a_check_there_is_nothing_to_report(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        await screen.press("X")
        await screen.settled()
        assert not isinstance(screen.app.screen, TextPrompt)
        assert "nothing was checked yet" in screen.main.footer.notice


async def test_the_palette_knows_it(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("n")
        await screen.settled()
        await screen.press("colon")
        await screen.settled()
        await screen.type("report")
        await screen.until(lambda: "Writes a Markdown report" in screen.text or "Report" in screen.text)
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, TextPrompt))


async def test_a_training_that_runs_is_explained_and_reported_with_what_is_known(tmp_path: Path) -> None:
    target = tmp_path / "live.md"
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("E")
        await screen.until(lambda: "the logarithm of 0" in screen.text)
        await screen.press("escape")
        await screen.settled()
        await write_to(screen, target)
        await screen.until(target.exists)
    text = target.read_text("utf-8")
    assert "| layout | live training |" in text
    assert "Log-op415` (Log), step 3, rank 0" in text
    assert "the logarithm of 0" in text
    assert "tdbg origin" not in text  # no command can look at a training that is over
