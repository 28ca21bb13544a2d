"""The sketch of scopes: boxes that open and close, the flow between them, and what was found in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as opened_session
from tests.sources.writer import write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.driver import opened as opened_screen
from tests.tui.live_driver import demo, to_first_hit
from tests.tui.screens_host import Opened, opened
from tests.tui.views.growing import NARROW, WIDE, changed, look
from tests.tui.views.host import PlainHost
from tests.tui.views.test_relations import focus_on
from tui_debugger.session import Session
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.relations import RelationsView

LOG = "Log-op381"


@pytest.fixture(scope="module")
def session(dumps: Callable[[str], Path]) -> Callable[[], Session]:
    @cache
    def check() -> Session:
        found = opened_session(dumps("mindspore-2.0-nan"))
        found.add_recommended()
        found.check(found.pairs())
        return found

    return check


def view_of(screen: Opened) -> RelationsView:
    view = screen.app.opened
    assert isinstance(view, RelationsView)
    return view


def here(screen: Opened) -> str:
    """The last part of the path of the box under the cursor."""
    view = view_of(screen)
    assert view._scopes is not None
    return view._scopes.tree.path(view._entry).rpartition("/")[2]


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, (120, 40), NARROW])
async def test_minus_makes_the_scope_around_a_tensor_one_box(
    size: tuple[int, int], session: Callable[[], Session]
) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), LOG, 3)), size) as screen:
        await screen.press("t", "-")
        assert here(screen) == "_backbone-Net"
        for text in ("┏◆73━", "▸ _backbone-Net┣", "133 nodes┛", "▸ Gradients", "▸ optimizer-Adam│", "34 ▸"):
            assert text in screen.text
        assert "73 nodes with findings at step 3, ◆ 2 origins" in screen.text
        assert "reads 0 tensors of other boxes, they read 39 tensors of it" in screen.text
        screen.check_clean()
        await screen.press("-")
        assert here(screen) == "network-WithLossCell"
        await screen.press("-", "-")
        assert here(screen) == "Default"
        assert "there is no scope around it" in screen.text


async def test_enter_opens_a_scope_and_goes_to_a_node(session: Callable[[], Session]) -> None:
    host = PlainHost(session())
    async with opened(RelationsView(host, focus_on(session(), LOG, 3)), NARROW) as screen:
        await screen.press("t", "-", "enter")
        assert here(screen) == "norm-RowNorm", "the first in it with a finding"
        assert "ReduceSum-op380" in screen.text
        await screen.press("enter")
        assert here(screen) == "Div-op385"
        assert "train_nan.py" in screen.text, "a node has its source line"
        await screen.press("-")
        assert here(screen) == "norm-RowNorm"
        await screen.press("enter", "enter")
        assert "Relations of Default/…/Div-op385" in screen.text
        assert "2 of 2 visited" in screen.text
        await screen.press("-", "[")
        assert "Relations of Default/…/Div-op385" in screen.text, "back to the tensor"
        await screen.press("[")
        assert view_of(screen).side == "centre"
        assert LOG in screen.text


async def test_arrows_follow_the_flow_and_beyond_the_picture_it_moves_on(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), LOG, 3)), NARROW) as screen:
        await screen.press("t", "-", "right")
        assert here(screen) in {"Gradients", "_loss_fn-SoftmaxCrossEntropyWithLogits"}
        await screen.press("down", "right")
        assert here(screen) == "optimizer-Adam"
        await screen.press("right")
        assert here(screen) == "optimizer-Adam", "nothing reads it"
        await screen.press("left", "left", "left")
        assert here(screen) == "_backbone-Net"
        await screen.press("enter", "right")
        seen = [here(screen)]
        for _ in range(6):
            await screen.press("right")
            seen.append(here(screen))
        assert seen[-1] == "optimizer-Adam", "from layer to layer, although they do not fit side by side"
        assert len(set(seen)) > 2


async def test_a_click_moves_the_cursor_and_a_second_one_opens(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), LOG, 3)), WIDE) as screen:
        await screen.press("t", "-")
        line = next(y for y, text in enumerate(screen.lines) if "▸ Gradients" in text)
        at = (screen.lines[line].index("Gradients"), line)
        await screen.pilot.click(offset=at)
        assert here(screen) == "Gradients"
        await screen.pilot.click(offset=at, times=2)
        assert here(screen) != "Gradients"
        assert "Scopes around Gradients/" in screen.text


async def test_other_views_open_on_the_worst_tensor_of_a_box(session: Callable[[], Session]) -> None:
    host = PlainHost(session())
    view = RelationsView(host, focus_on(session(), LOG, 3))
    async with opened(view, WIDE) as screen:
        await screen.press("t", "-", "o", "right", "down", "v")
        await screen.command("main")
        assert (host.opened[0][0], host.opened[0][1].key.node.rpartition("/")[2]) == ("origin", LOG)
        assert host.opened[1][1].hit is not None
        assert host.opened[1][1].key.node.startswith("Gradients/")
        assert len(host.gone) == 1
        found = view.extract()
        assert found is not None
        assert found.one == "Gradients"
        assert "▸ optimizer-Adam" in found.text
        await screen.press("t")
        assert "made from" in screen.text
        assert "Relations of" in screen.text


async def test_names_are_as_long_as_they_differ(dumps: Callable[[str], Path]) -> None:
    found = opened_session(dumps("mindspore-2.10-nan"))
    row = next(row for row, path in enumerate(found.nodes(0).paths) if "0-Block/attn-Attention/q-Dense/" in path)
    nodes = found.nodes(0)
    async with opened(RelationsView(PlainHost(found), ViewTarget(nodes.key(0, 0, row), row)), WIDE) as screen:
        await screen.press("t", "-", "-")
        assert here(screen) == "attn-Attention"
        assert "step 0 was not checked" in screen.text
        drawn = [line for line in view_of(screen).sketch.text.splitlines() if "▸" in line]
        names = [name for line in drawn for name in re.findall(r"▸ ([\w/…-]+)", line)]
        assert len(names) > 3
        assert len(set(names)) == len(names)


async def test_a_dump_that_does_not_tell_the_flow_says_so(dumps: Callable[[str], Path], tmp_path: Path) -> None:
    inferred = opened_session(dumps("msprobe-L1-nan"))
    async with opened(RelationsView(PlainHost(inferred), focus_on(inferred, "Functional.linear.3", 1)), WIDE) as screen:
        await screen.press("t")
        assert "lines are inferred from equal tensors" in screen.text
        await screen.press("-")
        assert here(screen) == "Functional"
        assert "lines are inferred from equal tensors" in screen.text
        assert "backwards, not drawn" in screen.text, "a circle"
    for step in (0, 1):
        for name in ("a/x", "a/y", "b/z"):
            path = tmp_path / f"step{step}" / f"{name}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.ones(3))
    plain = opened_session(tmp_path)
    row = next(row for row, path in enumerate(plain.nodes(0).paths) if path.endswith("x"))
    target = ViewTarget(plain.nodes(0).key(0, 1, row), row)
    async with opened(RelationsView(PlainHost(plain), target), NARROW) as screen:
        await screen.press("t", "-")
        assert here(screen) == "a"
        assert "nothing in the dump tells what is made from what" in screen.text


async def test_the_graph_of_scopes_begins_at_a_scope_of_the_node_list(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", recommended=False) as screen:
        await screen.press("1", "home", "L")
        await screen.until(lambda: isinstance(screen.app.screen, RelationsView))
        await screen.settled()
        assert "Scopes around Default" in screen.text
        await screen.press("enter")
        assert "Scopes around Default/" in screen.text
        await screen.press("t")
        assert "made from" in screen.text
        await screen.press("escape")
        assert screen.app.screen is screen.main


async def test_open_scopes_stay_open_in_a_run_that_goes_on(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    async with opened_screen(tmp_path) as screen:
        view = await look(screen, RelationsView, "relations", "fc1.weight")
        await screen.press("t", "-")
        await screen.settled()
        before = screen.text
        assert "Scopes around" in before
        writer.tensor(1, "Print", "Default/Print-op9", np.ones(3))
        await changed(screen)
        await screen.press("r")
        await screen.settled()
        assert view._scopes is not None
        assert before.splitlines()[0] in screen.text


async def test_scopes_of_a_training() -> None:
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("4", "g", "L")
        await screen.until(lambda: "made from" in screen.text)
        await screen.settled()
        await screen.press("t", "-")
        await screen.settled()
        assert "Scopes around" in screen.text
        assert "◆" in screen.text
