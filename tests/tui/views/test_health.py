"""The health map on screen: one look, the cell under the cursor, where Enter leads, what is checked and what not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as opened_session
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import MLP, write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.live_driver import demo, to_first_hit
from tests.tui.screens_host import HOSTILE, Opened, opened
from tests.tui.views.host import PlainHost
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.session.live_driver import Driver
from tui_debugger.tui.actions import VIEW_ACTIONS, opening_actions
from tui_debugger.tui.view_opener import NOWHERE
from tui_debugger.tui.views.health import HealthView
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.trend import TrendView

WIDE, NARROW = (200, 50), (80, 24)
RELU = MLP.nodes[1].name
NAN = np.full((2, 3), np.nan, np.float32)


def view_of(session: Session, about: ViewTarget | None = None) -> tuple[HealthView, PlainHost]:
    host = PlainHost(session)
    return HealthView(host, about or ViewTarget(NOWHERE, -1)), host


def focus_on(session: Session, node: str, step: int) -> ViewTarget:
    nodes = session.nodes(0)
    row = nodes.find(node)
    return ViewTarget(TensorKey(0, nodes.graph_of(row).name, node, Side.OUTPUT, 0, step), row)


def row_line(screen: Opened, name: str) -> str:
    """The line of a row."""
    return next(line.strip() for line in screen.lines if name in line and "step " not in line)


@pytest.fixture
def bad_run(tmp_path: Path) -> Path:
    """Two ranks, forty steps; in rank 1 the ReLU gives NaN at step 33."""
    writer = write_dump(tmp_path, ranks=(0, 1), steps=range(40))
    (file,) = (tmp_path / "rank_1" / writer.net / "0" / "33").glob("ReLU*output*")
    np.save(file, NAN)
    return tmp_path


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_one_look_shows_when_and_where(dumps: Callable[[str], Path], size: tuple[int, int]) -> None:
    session = opened_session(dumps("mindspore-2.0-nan"), "TO")
    session.check(session.pairs())
    view, _ = view_of(session)
    async with opened(view, size) as screen:
        assert row_line(screen, "▾ Default/").endswith("· · · ◆ N N")
        assert row_line(screen, "Log-op381").endswith("· · · ◆ · ·")
        assert "2,292 tensors checked in all 6 steps, 910 findings" in screen.text
        # The cursor starts where it began to be bad.
        assert "◆ origin  step 3  Default" in screen.text
        assert "Log-op381:out:0 TO -Inf 1 of 4" in screen.text
        screen.check_clean()


async def test_it_starts_at_the_tensor_that_it_was_opened_from(dumps: Callable[[str], Path]) -> None:
    session = opened_session(dumps("mindspore-2.0-nan"), "TO")
    session.check(session.pairs())
    view, _ = view_of(session, focus_on(session, "head.weight", 4))
    async with opened(view, WIDE) as screen:
        assert "N NaN  step 4  Default/network-WithLossCell/_backbone-Net/head-Dense/head.weight" in screen.text
        assert view.target_here.hit is not None
        assert (view.target_here.key.node, view.target_here.key.step) == ("head.weight", 4)


async def test_without_watchpoints_nan_and_inf_are_looked_for(bad_run: Path) -> None:
    view, _ = view_of(opened_session(bad_run))
    async with opened(view, WIDE) as screen:
        assert "looked for NaN and Inf in every tensor" in screen.text
        assert "nothing is checked yet of 80 steps of 2 ranks together" in screen.text
        assert "…" in row_line(screen, "ReLU-op2")
        await screen.press("r")
        assert "480 tensors checked in all 40 steps of each of 2 ranks, 1 finding" in screen.text
        assert row_line(screen, "ReLU-op2").count("◆") == 1
        await screen.press("r")
        assert "everything was checked with these watchpoints" in screen.text


async def test_the_cursor_goes_to_findings_and_enter_to_the_tensor(bad_run: Path) -> None:
    session = opened_session(bad_run, "TO")
    view, host = view_of(session, focus_on(session, RELU, 0))
    async with opened(view, WIDE) as screen:
        await screen.press("r", "n")
        assert "◆ origin  step 33 rank 1  Default/network-Net/act-ReLU/ReLU-op2" in screen.text
        assert "out:0 TO NaN 6 of 6" in screen.text
        await screen.press("n")
        assert "no step after this one stands out in this row" in screen.text
        await screen.press("enter")
        (gone,) = host.gone
        assert (gone.key.rank, gone.key.step, gone.key.node) == (1, 33, RELU)
        assert session.nodes(1).names[gone.row] == RELU
        await screen.press("left", "H", "enter")
        # Without a finding it is the node's own first output.
        assert host.opened == [("trend", host.gone[1])]
        assert (host.gone[1].key.step, host.gone[1].key.node, host.gone[1].hit) == (32, RELU, None)


async def test_enter_opens_and_closes_a_scope(bad_run: Path) -> None:
    view, host = view_of(opened_session(bad_run, "TO"))
    async with opened(view, WIDE) as screen:
        assert "ReLU-op2" in screen.text
        await screen.press("enter")
        assert "ReLU-op2" not in screen.text
        assert "▸ Default/" in screen.text
        await screen.press("space", "-", "-")
        assert "act-ReLU/" not in screen.text
        assert "▸ network-Net/" in screen.text
        await screen.press("+")
        assert "▸ act-ReLU/" in screen.text
        await screen.press("*", "*")
        assert host.gone == []


async def test_rows_with_findings_only(bad_run: Path) -> None:
    session = opened_session(bad_run, "TO")
    session.check(session.pairs())
    view, _ = view_of(session)
    async with opened(view, WIDE) as screen:
        assert "MatMul-op1" in screen.text
        await screen.press("x")
        assert "MatMul-op1" not in screen.text
        assert "ReLU-op2" in screen.text
        await screen.press("t")
        assert view.grid.row_count == 1
        assert row_line(screen, RELU)
        await screen.press("x", "t")
        assert "MatMul-op1" in screen.text


async def test_ranks_one_by_one(bad_run: Path) -> None:
    session = opened_session(bad_run, "TO")
    session.check(session.pairs())
    view, _ = view_of(session)
    async with opened(view, WIDE) as screen:
        assert "all 2 ranks, the worst is shown" in screen.text
        assert "◆" in row_line(screen, "ReLU-op2")
        await screen.press(">")
        assert "rank 0" in screen.text
        assert "◆" not in row_line(screen, "ReLU-op2")
        await screen.press(">")
        assert "◆" in row_line(screen, "ReLU-op2")
        await screen.press(">")
        assert view.ranks == (0, 1)


async def test_more_steps_than_columns() -> None:
    tensors = {step: {("a", 1, 0): np.array([np.nan if step == 617 else 1.0])} for step in range(1000)}
    session = Session(MemorySource({0: tensors}, ops=[Op("a")]))
    view, _ = view_of(session)
    async with opened(view, NARROW) as screen:
        await screen.press("r")
        assert row_line(screen, "▌  a").count("◆") == 1
        assert "up to 16 steps a column, the worst is shown" in screen.text
        await screen.press("n")
        assert "(worst at 617)" in screen.text
        await screen.press("z")  # one step a column: the cursor stays where it was
        assert int(view.grid.steps_here[0]) in range(600, 618)
        await screen.press("n" if view.grid.steps_here[0] < 617 else "N")
        assert "◆ origin  step 617" in screen.text or view.grid.steps_here == (617,)
        await screen.press("[", "]", "]", "[")
        assert view.grid.steps_here == (617,)


async def test_esc_shows_what_was_finished(bad_run: Path) -> None:
    session = opened_session(bad_run, "TO")
    view, _ = view_of(session)
    async with opened(view, WIDE) as screen:
        await screen.press("r", "escape")
        assert not screen.open


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW, (40, 10)])
async def test_names_of_any_kind_are_shown_safely(size: tuple[int, int]) -> None:
    tensors = {0: {(name, 1, 0): np.array([np.nan]) for name in HOSTILE}}
    view, _ = view_of(Session(MemorySource({0: tensors}, ops=[Op(name) for name in HOSTILE])))
    async with opened(view, size) as screen:
        await screen.press("r", *("down",) * 8, "t", "x", "G", "g", "pagedown")
        screen.check_clean()
        assert view.extract() is not None


async def test_everything_can_be_handed_out(bad_run: Path) -> None:
    session = opened_session(bad_run, "TO")
    session.check(session.pairs())
    view, _ = view_of(session, focus_on(session, RELU, 33))
    async with opened(view, NARROW):
        found = view.extract()
        assert found is not None
        assert found.one.startswith("◆ origin  step 33 rank 1  Default/network-Net/act-ReLU/ReLU-op2  out:0 TO NaN")
        assert found.header[:2] == ("path", "step 0")
        (row,) = [row for row in found.rows if str(row[0]).endswith("ReLU-op2")]
        assert row[34] == "origin"
        assert "480 tensors checked in all 40 steps of each of 2 ranks" in found.text


async def test_a_run_without_steps_is_no_error() -> None:
    view, _ = view_of(Session(MemorySource({0: {}}, ops=[Op("a")])))
    async with opened(view, NARROW) as screen:
        await screen.press("r", "enter", "left", "right", "n", "z", "t", "x", ">")
        screen.check_clean()


async def test_from_the_main_screen_and_back(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        await screen.press("M")
        await screen.settled()
        assert isinstance(screen.app.screen, HealthView)
        await screen.press("r")
        await screen.settled()
        await screen.press("t", "x")
        await screen.settled()
        await screen.press("g", "enter")
        await screen.settled()
        assert screen.app.screen is screen.main
        assert screen.main.state.step == 3
        assert "Log-op381" in screen.text


def test_every_key_has_a_handler_and_none_is_taken_by_another_view() -> None:
    keys_of_every_view = {key for action in (*opening_actions(), *VIEW_ACTIONS) for key in action.keys}
    for view in (HealthView, TrendView):
        own = [key for action in view.OWN_ACTIONS for key in action.keys]
        assert len(own) == len(set(own))
        assert not keys_of_every_view & set(own)
        assert all(callable(getattr(view, f"action_{action.id.partition('(')[0]}")) for action in view.OWN_ACTIONS)


async def test_hits_of_a_training_have_counts_where_it_stands() -> None:
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("M")
        await screen.until(lambda: "Inf 1" in screen.text)
        assert "NaN/Inf" not in screen.text
        assert next(line for line in screen.lines if "ReduceSum-op416" in line).endswith("∞")
        assert next(line for line in screen.lines if "Mul-op417" in line).endswith("N")


async def test_what_a_training_says_of_nan_or_inf_without_counts_has_a_glyph_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients before MindSpore 1.5 cannot be asked for them."""
    monkeypatch.setattr(Driver, "_keep_evidence", lambda _self, _live, _stop, _watched, found, _hits: found)
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("M")
        await screen.until(lambda: "! NaN/Inf" in screen.text)
        assert next(line for line in screen.lines if "ReduceSum-op416" in line).endswith("!")
        assert next(line for line in screen.lines if "Log-op415" in line).endswith("◆")
        assert next(line for line in screen.lines if "Abs-op413" in line).endswith("·")
