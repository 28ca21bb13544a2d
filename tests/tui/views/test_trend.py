"""A tensor through the steps on screen: plots, table, cursor, other tensors laid over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as opened_session
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import MLP, DumpWriter, write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.screens_host import HOSTILE, Opened, opened
from tests.tui.views.host import PlainHost
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.trend import TrendView

WIDE, NARROW = (200, 50), (80, 24)
LOG = "Default/network-WithLossCell/_backbone-Net/Log-op381"
RELU = MLP.nodes[1].name


def focus_on(session: Session, node: str, step: int, *, rank: int = 0) -> ViewTarget:
    nodes = session.nodes(rank)
    row = nodes.find(node)
    return ViewTarget(TensorKey(rank, nodes.graph_of(row).name, node, Side.OUTPUT, 0, step), row)


def view_of(session: Session, node: str, step: int = 0) -> tuple[TrendView, PlainHost]:
    host = PlainHost(session)
    return TrendView(host, focus_on(session, node, step)), host


def axis_of(screen: Opened) -> str:
    """The first axis line of the plots."""
    return next(line for line in screen.lines if "└" in line)


def marked_column(screen: Opened) -> int:
    """Where the vertical mark stands on the blank part of the plots."""
    (column,) = {line.index("┊") for line in screen.lines if "┊" in line}
    return column


@pytest.fixture
def session(dumps: Callable[[str], Path]) -> Session:
    found = opened_session(dumps("mindspore-2.0-nan"), "TO")
    found.check(found.pairs())
    return found


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_plots_table_and_cursor_belong_together(session: Session, size: tuple[int, int]) -> None:
    view, _ = view_of(session, LOG, 3)
    async with opened(view, size) as screen:
        assert "max, mean, min   ▽ max   ○ mean   △ min" in screen.text
        assert "float32 4, 6 steps: 6 measured" in screen.text
        assert view.step == 3
        assert axis_of(screen).count("◆") == 1
        assert axis_of(screen)[marked_column(screen)] == "◆"
        assert any(line.split()[-3:] == ["0", "1", "TO"] for line in screen.lines)
        before = marked_column(screen)
        await screen.press("left")
        assert view.step == 2
        assert marked_column(screen) < before
        await screen.press("n")
        assert view.step == 3
        assert marked_column(screen) == before
        screen.check_clean()


async def test_a_large_screen_shows_several_statistics(session: Session) -> None:
    view, _ = view_of(session, LOG)
    async with opened(view, WIDE) as screen:
        titles = [each.title for each in view.plots.drawings]
        assert titles[:2] == ["max, mean, min", "norm"]
        assert len({each.plot.margin for each in view.plots.drawings}) == 1
        await screen.press("m", "y")
        assert view.plots.drawings[0].title == "norm (log)"
        await screen.command("dots")
        assert not any(0x2800 < ord(char) < 0x2900 for char in screen.text)
        await screen.resize(80, 24)
        assert len(view.plots.drawings) == 1
        await screen.press("z")
        assert view.plots.drawings[0].plot.width > 60
        await screen.press("z", "z")
        screen.check_clean()


async def test_enter_shows_the_values_of_the_step(session: Session) -> None:
    view, host = view_of(session, LOG, 0)
    async with opened(view, NARROW) as screen:
        await screen.press("down", "down", "down", "enter")
        ((name, focus),) = host.opened
        assert (name, focus.key.step, focus.key.node) == ("values", 3, LOG)
        assert focus.hit is not None
        await screen.press("E")
        assert host.opened[-1] == ("explain", focus)


async def test_other_tensors_are_laid_over_it(session: Session) -> None:
    view, _ = view_of(session, "head.weight", 2)
    async with opened(view, WIDE) as screen:
        await screen.press("w")
        assert "What belongs to it" in screen.text
        await screen.type("gradient")
        await screen.press("enter")
        assert [key.node.rpartition("/")[2] for key in view.overlay.keys] == ["head.weight", "MatMul-op445"]
        assert "○ head.weight:out:0" in screen.text
        assert "△ Gradients/" in screen.text
        assert view.plots.drawings[0].title == "norm"
        assert view.overlay.here is not None
        assert view.overlay.here.key.node.endswith("MatMul-op445")
        await screen.press("tab")
        assert view.overlay.here.key.node == "head.weight"
        await screen.press("a")
        await screen.type("Log-op381")
        await screen.press("enter")
        assert len(view.overlay.shown) == 3
        await screen.command("over('node')")
        await screen.press("enter")
        assert len(view.overlay.shown) == 4
        await screen.press("d", "d", "d")
        assert [key.node for key in view.overlay.keys] == ["head.weight"]
        assert view.plots.drawings[0].title == "max, mean, min"
        await screen.press("d")
        assert "this is the only tensor" in screen.text


async def test_the_same_tensor_of_another_rank(tmp_path: Path) -> None:
    session = opened_session(write_dump(tmp_path, ranks=(0, 1)).root)
    view, _ = view_of(session, "fc1.weight")
    async with opened(view, NARROW) as screen:
        await screen.command("over('rank')")
        assert [key.rank for key in view.overlay.keys] == [0, 1]
        assert "△ rank 1 fc1.weight:out:0" in screen.text
        await screen.command("over('rank')")
        assert "all of these are shown already" in screen.text
        await screen.press("w")
        assert "no update operator" not in screen.text


async def test_steps_that_were_not_checked_are_checked_by_key(dumps: Callable[[str], Path]) -> None:
    session = opened_session(dumps("mindspore-2.0-nan"), "TO")
    view, _ = view_of(session, LOG, 3)
    async with opened(view, NARROW) as screen:
        assert "6 not checked: r checks them" in screen.text
        assert axis_of(screen).count("∞") == 1  # its statistics say so much
        await screen.press("r")
        assert axis_of(screen).count("◆") == 1
        assert "not checked" not in screen.text
        await screen.press("r")
        assert "all of these steps were checked" in screen.text


async def test_without_watchpoints_there_is_nothing_to_check(tmp_path: Path) -> None:
    view, _ = view_of(opened_session(write_dump(tmp_path).root), RELU)
    async with opened(view, NARROW) as screen:
        await screen.press("r")
        assert "no watchpoint is enabled" in screen.text


async def test_gaps_and_broken_files_are_told(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=range(5))
    at = tmp_path / "rank_0" / writer.net / "0"
    for file in (at / "1").glob("ReLU*"):
        file.unlink()
    (broken,) = (at / "3").glob("ReLU*output*")
    broken.write_bytes(b"broken")
    view, host = view_of(opened_session(tmp_path), RELU, 1)
    async with opened(view, NARROW) as screen:
        assert "5 steps: 3 measured, 1 unreadable, 1 not dumped" in screen.text
        await screen.press("enter")
        assert "it was not dumped at this step" in screen.text
        assert host.opened == []
        await screen.press("n")
        assert view.step == 3
        assert axis_of(screen).count("?") == 1


async def test_statistics_without_values(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.metadata()
    writer.graph(MLP)
    for step in range(3):
        row = ("ReLU", RELU.replace("/", "_"), "output", 0, np.array([[step, np.nan]], np.float32))
        writer.statistics(step, [row])
    writer.history(range(3))
    view, host = view_of(opened_session(tmp_path), RELU, 1)
    async with opened(view, WIDE) as screen:
        assert "3 with recorded statistics only" in screen.text
        assert axis_of(screen).count("N") == 3
        await screen.press("enter")
        assert "only statistics were dumped" in screen.text
        assert host.opened == []


async def test_two_thousand_steps() -> None:
    steps = {step: {("a", 1, 0): np.array([np.nan if step == 777 else float(step)])} for step in range(2000)}
    view, _ = view_of(Session(MemorySource({0: steps}, ops=[Op("a")])), "a", 1234)
    async with opened(view, NARROW) as screen:
        assert "2,000 steps: 2,000 measured" in screen.text
        assert view.step == 1234
        await screen.press("N")
        assert view.step == 777
        assert axis_of(screen).count("N") == 1
        await screen.press("G")
        assert view.step == 1999


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW, (40, 10)])
async def test_names_of_any_kind_are_shown_safely(size: tuple[int, int]) -> None:
    tensors = {step: {(name, 1, 0): np.array([1.0, step]) for name in HOSTILE} for step in range(3)}
    session = Session(MemorySource({0: tensors}, ops=[Op(name) for name in HOSTILE]))
    for name in HOSTILE:
        view, _ = view_of(session, name)
        async with opened(view, size) as screen:
            screen.check_clean()
            await screen.press("a")
            screen.check_clean()
            await screen.press("enter", "m", "y", "d", "z", "tab")
            screen.check_clean()


async def test_everything_can_be_handed_out(session: Session) -> None:
    view, _ = view_of(session, "head.weight", 3)
    async with opened(view, NARROW):
        found = view.extract()
        assert found is not None
        assert found.one.startswith("head.weight:out:0  step 3")
        assert found.header[:3] == ("tensor", "step", "state")
        assert len(found.rows) == 6
        assert "head.weight:out:0\n  float32 4×16" in found.text
        assert "└" in found.text


async def test_from_a_hit_and_to_its_values(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        await screen.press("4", "H")
        await screen.settled()
        assert isinstance(screen.app.screen, TrendView)
        assert "Log-op381:out:0" in screen.text
        await screen.press("enter")
        await screen.settled()
        assert "step 3" in screen.text
        await screen.press("escape", "escape")
        await screen.settled()
        assert screen.app.screen is screen.main


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, (120, 40), NARROW])
async def test_counts_of_nan_are_bars_at_their_steps(session: Session, size: tuple[int, int]) -> None:
    view, _ = view_of(session, "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385", 3)
    async with opened(view, size) as screen:
        while view.plots.drawings[0].title != "NaN, Inf":
            await screen.press("m")
        plot = view.plots.drawings[0].plot
        columns = plot.columns(np.arange(6.0)).tolist()
        high = {x for x, char in enumerate(plot.rows[1]) if char != " "}
        assert high
        assert all(abs(x - columns[3]) <= 4 for x in high), "the NaN of step 3 is no slope from step 2 or to step 4"
        assert all(plot.rows[-1][column] != " " for column in columns), "none at all was found in the others"
        screen.check_clean()
