"""What leaves a view: clipboard, files by their suffix, pictures; nothing is overwritten, nothing enters the dump."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from textual.app import ComposeResult

from tests.tui.screens_host import Opened, opened
from tests.tui.views.host import PlainHost
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source
from tui_debugger.tui.dialogs.modal import PlainLine
from tui_debugger.tui.dialogs.prompts import TextPrompt
from tui_debugger.tui.export import Extract, check_path
from tui_debugger.tui.view_opener import NOWHERE
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.view import View

FULL = Extract(
    "a-table",
    "two lines\nof \x1b[31mtext",
    "one \x1b]52;c;evil\x07",
    ("name", "value"),
    (("=cmd|' /C calc'!A0", 0.1), ("-1.5", np.float32(0.1)), ("a,b\n\x1b", float("nan")), ("", float("-inf"))),
    lambda: np.arange(6).reshape(2, 3),
)


class Plain(View):
    """A view that says what it is given."""

    def __init__(self, host: PlainHost, extract: Extract | None) -> None:
        super().__init__(host, ViewTarget(NOWHERE, -1))
        self.given = extract

    def body(self) -> ComposeResult:
        yield PlainLine("the content", id="content")

    def extract(self) -> Extract | None:
        return self.given

    @property
    def message(self) -> str:
        return str(self.query_one("#message", PlainLine).render())


@pytest.fixture
def host(dumps: Callable[[str], Path]) -> Iterator[PlainHost]:
    session = Session(open_source(dumps("mindspore-2.0-nan")))
    yield PlainHost(session)
    session.close()


async def write(screen: Opened, name: str) -> None:
    """Presses ``e`` and types a path over the proposed one."""
    await screen.press("e")
    prompt = screen.app.screen
    assert isinstance(prompt, TextPrompt)
    prompt.query_one("#text").value = name  # type: ignore[attr-defined]  # Field is an Input
    await screen.press("enter")
    await screen.pilot.pause()


async def test_copy_takes_what_is_under_the_cursor_and_copy_all_everything(host: PlainHost) -> None:
    view = Plain(host, FULL)
    async with opened(view) as screen:
        await screen.press("Y")
        assert screen.app.clipboard == "one \\x1b]52;c;evil\\x07"
        assert view.message == "copied 22 characters (the terminal must allow OSC 52)"
        await screen.command("copy_all")
        assert screen.app.clipboard == "two lines\nof \\x1b[31mtext"


async def test_copying_says_why_there_is_nothing_or_too_much(host: PlainHost) -> None:
    view = Plain(host, None)
    async with opened(view) as screen:
        await screen.press("Y")
        assert view.message == "there is nothing here yet"
        view.given = Extract("x", "text")
        await screen.press("Y")
        assert view.message == "nothing under the cursor; : Copy all copies everything"
        view.given = Extract("x", "é" * 40_000)
        await screen.command("copy_all")
        assert "80,000 bytes are too much for the clipboard" in view.message
        assert "e export to a file" in view.message
        assert screen.app.clipboard == ""


async def test_the_suffix_decides_what_is_written(
    host: PlainHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    view = Plain(host, FULL)
    async with opened(view) as screen:
        await screen.press("e")
        assert "a-table.npy" in screen.text
        assert ".npy, .csv, .txt or .svg" in screen.text
        await screen.press("enter")
        assert view.message == "wrote a-table.npy"
        for name in ("a-table.csv", "a.txt", "A.SVG"):
            await write(screen, name)
            assert view.message == f"wrote {name}"
    assert np.load("a-table.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Path("a.txt").read_text() == "two lines\nof \\x1b[31mtext\n"
    with Path("a-table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["name", "value"],
        ["'=cmd|' /C calc'!A0", "0.1"],
        ["-1.5", "0.1"],
        ["a,b\n\\x1b", "nan"],
        ["", "-inf"],
    ]


async def test_a_picture_shows_the_view_and_not_the_question(host: PlainHost, tmp_path: Path) -> None:
    async with opened(Plain(host, FULL)) as screen:
        await screen.press("Y")
        await write(screen, str(tmp_path / "view.svg"))
        await screen.pilot.pause()
    picture = (tmp_path / "view.svg").read_text()
    assert "copied" not in picture
    assert "the&#160;content" in picture
    assert "Export" not in picture


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x.parquet", "this view can be written as .npy, .csv, .txt or .svg"),
        ("x", "this view can be written as"),
        ("", "a file name is needed"),
        ("there.csv", "this file exists; nothing is overwritten"),
        ("no/such/x.csv", "its directory does not exist"),
    ],
)
async def test_a_path_that_cannot_be_taken_keeps_the_question_open(
    name: str, why: str, host: PlainHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.csv").write_text("mine")
    async with opened(Plain(host, FULL)) as screen:
        await write(screen, name)
        assert isinstance(screen.app.screen, TextPrompt)
        assert why in screen.text
    assert Path("there.csv").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]


async def test_nothing_is_written_into_the_dump(host: PlainHost) -> None:
    dump = Path(host.session.info.path)
    async with opened(Plain(host, FULL)) as screen:
        await write(screen, str(dump / "x.csv"))
        assert "a dump is never written to" in screen.text
    assert not (dump / "x.csv").exists()


async def test_a_view_without_table_and_values_has_text_and_picture(host: PlainHost) -> None:
    async with opened(Plain(host, Extract("only-text", "text"))) as screen:
        await screen.press("e")
        assert "only-text.txt" in screen.text
        assert ".txt or .svg" in screen.text
        assert ".csv" not in screen.text


async def test_a_screenshot_is_named_after_the_view(
    host: PlainHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    view = Plain(host, FULL)
    async with opened(view) as screen:
        await screen.press("Y", "P")
        await screen.pilot.pause()
        (picture,) = tmp_path.glob("tdbg-plain-*.svg")
        assert view.message.replace("\n", "") == f"wrote {picture}"
        assert "copied" not in picture.read_text()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("~nobody-has-this-name/x.txt", "not a usable path"),
        (f"{'n' * 300}.txt", "not a usable path"),
        ("~", "this is a directory"),
        ("nowhere/x.txt", "its directory does not exist"),
        ("  ", "a file name is needed"),
    ],
)
def test_a_path_that_cannot_be_is_refused_while_it_is_typed(text: str, wrong: str) -> None:
    assert str(check_path(text)).startswith(wrong)
