"""What leaves the main screen: what Y copies in each pane, and the picture that P writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.text import Text

from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tui_debugger.tui import export
from tui_debugger.tui.export import row_text
from tui_debugger.tui.widgets.text import ScopedName

NAN = "mindspore-2.0-nan"
LOG = "Default/network-WithLossCell/_backbone-Net/Log-op381"


async def copied(screen: Driver, keys: str) -> str:
    for key in keys.split():
        await screen.press(key)
        await screen.settled()
    await screen.press("Y")
    return screen.app.clipboard


async def test_each_pane_hands_out_what_is_under_its_cursor(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, step=0) as screen:
        assert await copied(screen, "n") == LOG
        assert (
            await copied(screen, "4")
            == f"step 3  node {LOG}  slot out:0  hit tensor overflow  set → actual -Inf 1 of 4"
        )
        tensor = await copied(screen, "5 g")
        assert tensor.startswith(f"{LOG}  io in  slot 0  shape 4  dtype float32")
        assert "min 0  max 99.547" in tensor
        line = await copied(screen, "2 g")
        assert line.startswith("/data/dumps/run/A_nan_tensor_all/_run/train_nan.py:53  e = self.log(")
        assert await copied(screen, "3 g") == (
            r"WCL abs_mean_update_ratio_gt=1 epsilon=0.1 @ category=trainable, -(^|[._/])(bias|beta|bias_[ih]h\w*)$"
        )
        assert await copied(screen, "1 left left") == "Default/network-WithLossCell/_backbone-Net"
        assert screen.main.footer.notice == "copied 42 characters (the terminal must allow OSC 52)"


async def test_an_empty_list_copies_nothing_and_says_so(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        assert await copied(screen, "4") == ""
        assert screen.main.footer.notice == "✗ nothing under the cursor"


async def test_inside_tmux_the_note_names_the_option_of_tmux(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", "/run/tmux,1,0")
    async with open_screen(NAN, step=0) as screen:
        await copied(screen, "1")
        assert screen.main.footer.notice.endswith("(tmux needs set-clipboard on)")


async def test_what_is_too_long_for_a_terminal_is_not_copied(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LIMIT", 10)
    async with open_screen(NAN, step=0) as screen:
        assert await copied(screen, "n") == ""
        assert "52 bytes are too much for the clipboard of a terminal (at most 10)" in screen.main.footer.notice


async def test_a_picture_of_the_screen_lands_in_the_working_directory(
    open_screen: OpenScreen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_screen(NAN, step=0) as screen:
        for _ in range(2):
            await screen.press("P")
        written = sorted(path.name for path in tmp_path.glob("tdbg-nodes-*.svg"))
        assert len(written) == 2
        assert screen.main.footer.notice.startswith(f"wrote {tmp_path}/tdbg-nodes-")
        picture = (tmp_path / written[0]).read_text()
        assert "TinyTrans" in picture
        assert "http" not in picture.replace("http://www.w3.org", "").replace("https://www.textualize.io", "")


async def test_no_picture_is_written_into_a_dump(open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_screen(NAN, step=0) as screen:
        monkeypatch.chdir(screen.session.info.path)
        await screen.press("P")
        assert "a dump is never written to" in screen.main.footer.notice
        assert not list(Path(screen.session.info.path).glob("*.svg"))


def test_a_row_as_text_leaves_out_marks_and_empty_cells_and_keeps_names_whole() -> None:
    cells = ["◆", "3", ScopedName(Text("Log\x1b[2J"), "a/b"), "", Text("–")]
    assert row_text(["", "step", "node", "slot", "hit"], cells) == "step 3  node a/b/Log\\x1b[2J"
