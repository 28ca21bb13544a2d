"""Names that command a terminal: the screen draws none of them, in any pane, dialog or view."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from textual.content import Content

from tests.hostile import EVIL, LOG, UNSAFE, write_hostile_dump
from tests.thorough import few
from tests.tui.driver import Driver, opened
from tests.tui.live_driver import listening
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.session.comparison import ComparedRun
from tui_debugger.tui.dialogs.modal import PlainLine
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.tui.views.runs import RunsView


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hostile_dump(tmp_path_factory.mktemp("hostile"))


def safe(screen: Driver) -> bool:
    """Whether nothing drawn is unsafe; says what is."""
    lines = [strip.text for strip in screen.app.screen._compositor.render_strips()]
    found = [
        ascii(line[max(match.start() - 40, 0) : match.end() + 20]) for line in lines for match in UNSAFE.finditer(line)
    ]
    assert not found, found[:5]
    return True


async def to_node(screen: Driver, name: str) -> None:
    """Searches for a node and puts the cursor on it."""
    await screen.press("1", "slash")
    await screen.type(name)
    await screen.press("enter")
    await screen.settled()
    await screen.press("end")
    await screen.settled()


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_no_pane_draws_them(hostile: Path, size: tuple[int, int]) -> None:
    async with opened(hostile, size=size) as screen:
        assert safe(screen)
        for pane in "12345":
            await screen.press(pane)
            for key in ("end", "home", "down", "down", "right"):
                await screen.press(key)
                await screen.settled()
                assert safe(screen)
        for key in ("]", "n", "o", "O", "left_square_bracket"):
            await screen.press(key)
            await screen.settled()
            assert safe(screen)


KEYS = ("w", "W", "f", "F", "/", "y", "s", "S", "g", "i", "?", "v", "e", "colon", "t", "!", "ctrl+p")
"""What opens a dialog, a search line or a menu from some pane."""


async def test_no_dialog_draws_them(hostile: Path) -> None:
    """One program for all panes."""
    async with opened(hostile) as screen:
        for pane in "12345":
            await screen.press(pane, "down")
            for key in KEYS:
                await screen.press(key)
                await screen.pilot.pause()
                assert safe(screen)
                for _ in range(3):
                    await screen.press("escape")
                await screen.pilot.pause()
                await screen.press(pane)
                assert safe(screen)


@pytest.mark.parametrize("node", few(["Log", "ReLU", "Lonely", "Spoilt", "Text"], 2))
async def test_no_view_draws_them(hostile: Path, node: str) -> None:
    """One program for all views of a node."""
    async with opened(hostile) as screen:
        for view in VIEWS:
            await to_node(screen, node)
            await screen.press("5")
            await screen.press(view.key)
            await screen.settled()
            assert safe(screen)
            if node == "ReLU":
                assert screen.app.screen is not screen.main, f"the view never opened: {view.id}"
            for key in ("down", "enter", "right", "end"):
                await screen.press(key)
                await screen.settled()
                assert safe(screen)
            while screen.app.screen is not screen.main:
                await screen.press("escape")
                await screen.settled()


@pytest.mark.parametrize("node", ["Log", "Text", "Spoilt"])
async def test_values_and_what_is_copied_are_safe(hostile: Path, node: str) -> None:
    async with opened(hostile) as screen:
        await to_node(screen, node)
        await screen.press("Y")
        assert not UNSAFE.search(screen.app.clipboard)
        await screen.press("5", "enter")
        await screen.settled()
        assert safe(screen)
        await screen.press("Y")
        await screen.app.screen.run_action("copy_all")
        await screen.settled()
        assert not UNSAFE.search(screen.app.clipboard)
        assert safe(screen)
        if node == "Log":
            assert isinstance(screen.app.screen, ValuesScreen)


async def test_a_line_of_a_dialog_makes_safe_whatever_it_is_given(hostile: Path) -> None:
    async with opened(hostile) as screen:
        for content in (EVIL, Content.assemble(("bold \x1b[31m", "bold"), EVIL)):
            line = PlainLine(content)
            await screen.main.mount(line)
            line.show(content)
            await screen.pilot.pause()
            assert safe(screen)
            assert not UNSAFE.search(str(line.content))
            assert "aGFjaw==" in str(line.content)


async def test_the_screen_of_a_live_training_draws_none_of_what_it_says() -> None:
    async with listening(title=f"unix:{EVIL}", warning=EVIL) as screen:
        assert safe(screen)
        screen.trainings.connect(program=f"PyTorch 2.13.0 {EVIL}")
        await screen.pilot.pause()
        assert safe(screen)
        training = screen.trainings.trainings[0]
        graph = GraphBuilder()
        graph.add_parameter(f"w{EVIL}", ("float32", (2, 3)))
        graph.add_node(LOG, f"Log{EVIL}", [f"w{EVIL}"], [("float32", (2, 3))])
        training.send_graph(graph.serialize())
        await screen.stopped(training, 3)
        met = 0
        for key in (
            "1",
            "end",
            "enter",
            "5",
            "enter",
            "escape",
            "4",
            "down",
            "enter",
            "escape",
            "1",
            "w",
            "escape",
            "?",
        ):
            await screen.press(key)
            await screen.pilot.pause()
            assert safe(screen)
            met += "aGFjaw==" in screen.text
        assert met


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_two_runs_do_not_draw_them(hostile: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    other = tmp_path / "\x1b[31mother"
    shutil.copytree(hostile, other)
    for file in sorted(other.rglob("ReLU*output*"))[:1]:
        np.save(file, np.load(file) + np.float32(1))
    async with opened(hostile, size=size, against=ComparedRun(str(other))) as screen:
        assert isinstance(screen.app.screen, RunsView)
        for key in ("n", "down", "f", "enter", "end", "tab", "down", "t", "down", "escape", "!", "escape", "Y", "w"):
            await screen.press("exclamation_mark" if key == "!" else key)
            await screen.settled()
            assert safe(screen)
            assert not UNSAFE.search(screen.app.clipboard)
        await screen.press("escape", "1", "enter")
        await screen.settled()
        assert safe(screen)
