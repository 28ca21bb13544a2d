"""The main job, end to end: open a real dump and see where it went wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.sources.arrays import write_arrays
from tests.sources.writer import write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.driver import opened
from tui_debugger.errors import NotADumpError
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.session import Session
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.dialogs.modal import ErrorScreen
from tui_debugger.tui.dialogs.pages import HelpScreen


@pytest.mark.parametrize("name", ["mindspore-2.0-nan", "mindspore-2.10-nan"])
async def test_a_nan_run_shows_the_logarithm_first_and_the_division_as_second_origin(
    open_screen: OpenScreen, name: str
) -> None:
    async with open_screen(name) as screen:
        hits = screen.pane("hits")
        assert hits[0].startswith("◆ 3 Log-")
        origins = [row.split()[2].partition("-")[0] for row in hits if row.startswith("◆ 3 ")]
        assert origins == ["Log", "Div"]
        assert not [row for row in hits if row.split()[1] in {"0", "1", "2"}]
        assert "● steps 0–5 checked" in screen.text


@pytest.mark.parametrize("name", ["mindspore-2.0-mlp", "mindspore-2.10-mlp"])
async def test_an_mlp_run_names_the_unchanged_weights_and_the_dead_relu(open_screen: OpenScreen, name: str) -> None:
    async with open_screen(name) as screen:
        hits = "\n".join(screen.pane("hits"))
        assert "fc2.weight" in hits
        assert "fc3.weight" in hits
        assert "act3-ReLU" in hits or "ReLU-op" in hits
        assert "accum." not in hits
        assert "moment" not in hits


async def test_another_dump_beside_the_one_that_is_open_is_a_doubt(tmp_path: Path) -> None:
    write_dump(tmp_path / "first", steps=(0,))
    async with opened(tmp_path) as screen:
        assert "Clean:" in screen.main.header.plain
        assert "● step 0 checked" in screen.main.header.plain
    write_arrays(tmp_path / "second/step_0", {"a": np.ones(3)})
    async with opened(tmp_path) as screen:
        header = screen.main.header.plain
        assert "Cannot judge: 1 entry not looked at: ../second (another dump" in header
        assert "◐ step 0 checked, except what was not looked at" in header
        assert "· 1 entry not looked at" in header.splitlines()[-1]


async def test_the_first_frame_comes_before_the_run_is_open() -> None:
    gate = threading.Event()

    def slow(_: ProgressFn) -> Session:
        gate.wait(20)
        raise NotADumpError("no dump here", where="/somewhere", hint="look elsewhere")

    app = TdbgApp(slow, title="/somewhere")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "/somewhere" in text
        assert "opening" in text
        await pilot.press("j", "r", "n", "slash")
        gate.set()
        while not isinstance(app.screen, ErrorScreen):
            await asyncio.sleep(0.01)
        await pilot.pause()
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        for part in ("no dump here", "/somewhere", "look elsewhere"):
            assert part in text
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 2


async def test_esc_stops_opening() -> None:
    started = threading.Event()

    def endless(progress: ProgressFn) -> Session:
        started.set()
        while True:
            progress(Progress(1, 3, "listing"))
            threading.Event().wait(0.001)

    app = TdbgApp(endless, title="x")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert await asyncio.to_thread(started.wait, 10)
        while "listing" not in app.main.header.plain:
            await asyncio.sleep(0.01)
        assert "33 %" in app.main.header.plain
        await pilot.press("escape")
        while app.return_code is None:
            await asyncio.sleep(0.01)
    assert app.return_code == 130


async def test_help_and_quitting_do_not_wait_for_the_run_to_open() -> None:
    gate = threading.Event()

    def stuck(progress: ProgressFn) -> Session:
        progress(Progress(0, 0, "waiting for a disk"))
        gate.wait(60)  # deaf to being stopped, as a system call is
        raise NotADumpError("too late")

    app = TdbgApp(stuck, title="/somewhere")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.main
        assert "opening" in app.main.header.plain
        await pilot.press("2")
        assert app.main.current_pane == "stack"
        await pilot.press("r")
        assert app.main.footer.notice == "✗ still opening"
        await pilot.press("q")
    assert app.return_code == 0
    assert app.main.work.busy("open")  # nobody waited for it
    gate.set()


async def test_a_run_without_watchpoints_gets_the_recommended_ones_and_says_so(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", recommended=None) as screen:
        assert "8 recommended watchpoints added; u takes them away" in screen.main.footer.notice
        assert len(screen.pane("watchpoints")) == len(screen.session.recommended())
        assert screen.session.watchpoints.offered
        assert screen.pane("hits")


async def test_the_recommended_watchpoints_can_be_left_out(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", recommended=False) as screen:
        assert screen.pane("watchpoints") == []
        assert "no watchpoint" in screen.text
        await screen.press("a")
        await screen.settled()
        assert screen.pane("watchpoints")
        assert "● steps 0–5 checked" in screen.text, "what is quick is checked without being asked for"
        assert screen.pane("hits")


@pytest.mark.parametrize(("size", "panes"), [((200, 50), 5), ((120, 35), 5), ((80, 24), 1), ((60, 15), 1)])
async def test_large_terminals_show_five_panes_and_small_ones_one(
    open_screen: OpenScreen, size: tuple[int, int], panes: int
) -> None:
    async with open_screen("mindspore-2.0-mlp", size=size) as screen:
        shown = [pane for pane in screen.main.panes.values() if pane.size.width]
        assert len(shown) == panes
        assert screen.main.tabs.display == (panes == 1)
        await screen.press("4")
        assert "set → actual" in screen.text or "more →" in screen.text
        assert "Fusion-op89" in screen.text, "a name is cut in its middle"


async def test_resizing_switches_live_and_keeps_the_place(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        await screen.press("n")
        await screen.settled()
        key = screen.main.nodes_pane.table.cursor_key
        for size in ((80, 24), (30, 8), (200, 50), (120, 35)):
            await screen.pilot.resize_terminal(*size)
            await screen.pilot.pause()
        assert screen.main.nodes_pane.table.cursor_key == key
        assert "Log-" in screen.text


async def test_zoom_gives_one_pane_the_screen_and_back(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp") as screen:
        await screen.press("4", "z")
        assert [name for name, pane in screen.main.panes.items() if pane.size.width] == ["hits"]
        await screen.press("5")
        assert [name for name, pane in screen.main.panes.items() if pane.size.width] == ["tensors"]
        await screen.press("escape")
        assert all(pane.size.width for pane in screen.main.panes.values())


async def test_quit_never_asks(open_screen: OpenScreen) -> None:
    before = set(threading.enumerate())
    async with open_screen("mindspore-2.0-mlp") as screen:
        await screen.press("w")
        await screen.press("escape")
        await screen.press("q")
    assert screen.app.return_code == 0
    started = set(threading.enumerate()) - before
    assert not [thread for thread in started if thread.name.startswith("tdbg") and thread.is_alive()]


NOT_BEFORE_THE_FIRST_FRAME = {
    *("numpy", "ml_dtypes", "grpc", "watchfiles", "sqlite3", "google.protobuf", "multiprocessing", "csv", "tomllib"),
    *("rich.markdown", "rich.syntax", "rich.traceback", "pygments", "markdown_it", "tree_sitter"),
    *(
        "tui_debugger.model",
        "tui_debugger.stats",
        "tui_debugger.cache",
        "tui_debugger.graph",
        "tui_debugger.session",
    ),
    *("tui_debugger.sources.base", "tui_debugger.sources.follow", "tui_debugger.text.hits"),
    *(
        f"tui_debugger.tui.{name}"
        for name in ("checker", "context", "export", "inspector", "cells", "live", "navigator")
    ),
    *("tui_debugger.tui.views.view", "tui_debugger.tui.watcher"),
    *("tui_debugger.tui.widgets.open_tree", "tui_debugger.tui.widgets.search"),
    "tui_debugger.tui.panes.hit_rows",
    "tui_debugger.tui.dialogs",
}
"""Modules, and packages with all that is in them."""
FIRST_FRAME = """
import asyncio, sys, threading
from pathlib import Path
from tui_debugger.cli import main, open_
from tui_debugger.sources.registry import find_run
find_run(Path(sys.argv[1]))
from tui_debugger.tui.app import TdbgApp
gate = threading.Event()
app = TdbgApp(lambda _: gate.wait(60), title="x")
async def first_frame():
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        assert "opening" in app.main.header.plain
        print("\\n".join(sys.modules))
        app.exit()
asyncio.run(first_frame())
gate.set()
"""


def test_the_first_frame_waits_for_nothing_but_textual(dumps: Callable[[str], Path]) -> None:
    command = [sys.executable, "-c", FIRST_FRAME, str(dumps("mindspore-2.0-nan"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "tui_debugger.tui.main_screen" in loaded
    assert not [
        name for name in loaded if any(f"{name}.".startswith(f"{each}.") for each in NOT_BEFORE_THE_FIRST_FRAME)
    ]
