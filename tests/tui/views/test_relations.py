"""Relations on screen: three lists, walking, back and forward, one hop more, statistics of what is in sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.opened_files import opened_tensor_files
from tests.session.opened import opened as opened_session
from tests.session.runs import write_run
from tests.sources.writer import Graph, Node
from tests.tui.conftest import OpenScreen
from tests.tui.screens_host import Opened, opened
from tests.tui.views.host import PlainHost
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.relations import RelationsView
from tui_debugger.tui.widgets.text import ScopedName

WIDE, NARROW = (200, 50), (80, 24)


@pytest.fixture(scope="module")
def session(dumps: Callable[[str], Path]) -> Callable[[], Session]:
    @cache
    def check() -> Session:
        found = opened_session(dumps("mindspore-2.0-nan"))
        found.add_recommended()
        found.check(found.pairs())
        return found

    return check


def focus_on(session: Session, end: str, step: int) -> ViewTarget:
    nodes = session.nodes(0)
    row = next(row for row in range(len(nodes)) if nodes.names[row].rpartition("/")[2] == end)
    return ViewTarget(TensorKey(0, nodes.graph_of(row).name, nodes.names[row], Side.OUTPUT, 0, step), row)


def names(screen: Opened, which: str) -> list[str]:
    """The names in a list, as far as they are drawn."""
    view = screen.app.opened
    assert isinstance(view, RelationsView)
    rows = view.table(which).rows
    found = [rows.cells(at)[1] for at in range(rows.row_count)]
    return [cell.name.plain.strip() if isinstance(cell, ScopedName) else str(cell) for cell in found]


def lists(screen: Opened) -> tuple[list[str], list[str], list[str]]:
    return names(screen, "producers"), names(screen, "centre"), names(screen, "consumers")


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_producers_tensor_and_consumers_stand_beside_or_above_each_other(
    size: tuple[int, int], session: Callable[[], Session]
) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "Log-op381", 3)), size) as screen:
        assert lists(screen) == (["ReduceSum-op380"], ["Log-op381"], ["ReduceSum-op382"])
        lines = [line for line in screen.lines if "Log-op381" in line or "ReduceSum-op38" in line]
        on_one_line = any("ReduceSum-op380" in line and "ReduceSum-op382" in line for line in lines)
        assert on_one_line == (size == WIDE)
        assert "◆ Log-op381" in screen.text
        assert "✗ ReduceSum-op382" in screen.text
        assert "Log  the tensor in the middle, made by Log-op381" in screen.text
        assert "float32 4 n=4 x∈[4.476, 4.601] μ=4.55 σ=0.05351 -Inf! 1" in screen.text
        assert "✗TO: -Inf 1 of 4" in screen.text
        assert "train_nan.py:53  e = self.log(" in screen.text
        screen.check_clean()


async def test_an_input_is_taken_from_what_feeds_it(session: Callable[[], Session]) -> None:
    out = focus_on(session(), "ReduceSum-op380", 3)
    for slot, source in ((0, "Abs-op379"), (1, "cst14")):
        focus = replace(out, key=replace(out.key, side=Side.INPUT, slot=slot))
        async with opened(RelationsView(PlainHost(session()), focus), NARROW) as screen:
            assert f"the tensor in the middle, taken from {source}" in screen.text


async def test_whether_nothing_was_found_or_nobody_looked(dumps: Callable[[str], Path]) -> None:
    fresh = opened_session(dumps("mindspore-2.0-nan"))
    fresh.add_recommended()
    async with opened(RelationsView(PlainHost(fresh), focus_on(fresh, "ReduceSum-op380", 3)), NARROW) as screen:
        assert "watched by TO: not checked" in screen.text
    fresh.check(fresh.pairs(steps=[3]))
    async with opened(RelationsView(PlainHost(fresh), focus_on(fresh, "ReduceSum-op380", 3)), NARROW) as screen:
        assert "watched by TO: nothing found" in screen.text


async def test_left_and_right_change_the_list_and_the_detail_follows(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "Log-op381", 3)), WIDE) as screen:
        await screen.press("left")
        assert "ReduceSum  in:0 of Log-op381" in screen.text
        await screen.press("left", "right", "l")
        assert "ReduceSum  in:0 of ReduceSum-op382" in screen.text
        await screen.press("right", "h")
        assert "the tensor in the middle" in screen.text


async def test_enter_walks_and_the_way_back_is_remembered(session: Callable[[], Session]) -> None:
    host = PlainHost(session())
    async with opened(RelationsView(host, focus_on(session(), "Log-op381", 3)), WIDE) as screen:
        await screen.press("right", "enter")
        assert names(screen, "centre") == ["ReduceSum-op382"]
        assert "2 of 2 visited" in screen.text
        await screen.press("right", "enter")
        assert names(screen, "centre") == ["Mul-op383"]
        await screen.press("[")
        assert names(screen, "centre") == ["ReduceSum-op382"]
        await screen.press("[", "[")
        assert names(screen, "centre") == ["Log-op381"]
        assert "nothing was visited before" in screen.text
        await screen.press("]", "]", "]")
        assert names(screen, "centre") == ["Mul-op383"]
        assert "this is the last one visited" in screen.text
        await screen.press("[", "left", "enter")
        assert "3 of 3 visited" in screen.text, "what lay ahead is forgotten"
        await screen.press("enter", "v")
        await screen.command("main")
        assert [(view, focus.key.node.rpartition("/")[2]) for view, focus in host.opened] == [
            ("values", "Log-op381")
        ] * 2
        assert [focus.key.node.rpartition("/")[2] for focus in host.gone] == ["Log-op381"]


async def test_space_opens_one_hop_more_and_closes_it(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "ReduceSum-op382", 3)), WIDE) as screen:
        await screen.press("left", "space")
        assert names(screen, "producers")[:2] == ["▾ Log-op381", "ReduceSum-op380"]
        await screen.press("j", "space")
        assert "Abs-op379" in names(screen, "producers")
        await screen.press("k", "space")
        assert names(screen, "producers")[0] == "Log-op381"
        assert "Abs-op379" not in names(screen, "producers")
        await screen.press("space")
        assert "Abs-op379" in names(screen, "producers"), "it opens as it was"
        await screen.press("right", "space")
        assert "put the cursor on a producer or a consumer" in screen.text


async def test_a_weight_says_which_steps_it_links(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "head.bias", 3)), WIDE) as screen:
        assert names(screen, "producers")[0] == "@2 head.bias"
        assert names(screen, "consumers")[0].startswith("@4 MatMulBiasAddFusion")
        await screen.press("left")
        assert "itself after step 2, before Adam-op573 wrote it" in screen.text
        await screen.press("G")
        assert "BiasAddGrad  in:9 of Adam-op573, which wrote it" in screen.text


async def test_constants_show_their_value(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "head.bias", 3)), WIDE) as screen:
        assert any(name.startswith("cst") for name in names(screen, "producers"))


async def test_only_what_is_in_sight_is_measured(tmp_path: Path) -> None:
    many = tuple(Node(f"Default/Neg-op{number}", "Neg", (("x", 0),)) for number in range(300))
    session = opened_session(write_run(tmp_path, {}, graph=Graph(many, ("x",)), inputs=False))
    with opened_tensor_files() as files:
        async with opened(RelationsView(PlainHost(session), focus_on(session, "x", 0)), NARROW) as screen:
            assert len(names(screen, "consumers")) == 300
            assert 1 < len(set(files)) < 30
            await screen.press("right", "G")
            assert "Neg-op299" in screen.text
            assert "…" not in screen.lines[-12]
        assert len(set(files)) < 60


async def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "Default/[red]x[/]\x1b[2J\u202e-op1"
    graph = Graph((Node(name, "Log", (("x", 0),)),), ("x",))
    session = opened_session(write_run(tmp_path, {}, graph=graph, hidden={name}))
    for size in (WIDE, NARROW):
        async with opened(RelationsView(PlainHost(session), focus_on(session, "x", 0)), size) as screen:
            await screen.press("right")
            screen.check_clean()
            assert "[red]x[/]" in screen.text


async def test_everything_can_be_copied(session: Callable[[], Session]) -> None:
    view = RelationsView(PlainHost(session()), focus_on(session(), "Log-op381", 3))
    assert view.extract() is None
    async with opened(view, NARROW) as screen:
        await screen.press("left")
        found = view.extract()
        assert found is not None
        assert found.one.endswith("ReduceSum-op380")
        assert [row[0] for row in found.rows] == ["producers", "centre", "consumers"]
        assert found.rows[1][found.header.index("inf")] == 1
        assert all(len(row) == len(found.header) for row in found.rows)
        assert "made by Log-op381 from:" in found.text
        assert "in:0 of ReduceSum-op382" in found.text


async def test_the_other_views_open_on_the_tensor_under_the_cursor(session: Callable[[], Session]) -> None:
    host = PlainHost(session())
    about = focus_on(session(), "Log-op381", 3)
    async with opened(RelationsView(host, about), WIDE) as screen:
        await screen.press("o", "right", "o")
        assert host.opened[0] == ("origin", about)
        assert host.opened[1][1].key.node.endswith("ReduceSum-op382")
        hit = host.opened[1][1].hit
        assert hit is not None
        assert hit.key == host.opened[1][1].key


async def test_it_opens_from_the_hits_and_leads_back(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan", step=0) as screen:
        await screen.press("s", "3", "enter")
        await screen.settled()
        await screen.press("4", "g", "n", "L")
        await screen.until(lambda: "made from 1" in screen.text)
        await screen.settled()
        await screen.press("right")
        await screen.app.screen.run_action("main")
        await screen.settled()
        assert screen.app.screen is screen.main
        row = screen.main.tensors_pane.current
        assert row is not None
        assert row.key.step == 3


# -- the sketch ------------------------------------------------------------------------------------


def sketch_of(screen: Opened) -> RelationsView:
    view = screen.app.opened
    assert isinstance(view, RelationsView)
    return view


def under_cursor(screen: Opened) -> str:
    related = sketch_of(screen).related
    assert related is not None
    return related.key.node.rpartition("/")[2]


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, (120, 40), NARROW])
async def test_a_key_shows_the_graph_as_boxes_and_lines(size: tuple[int, int], session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "Log-op381", 3)), size) as screen:
        await screen.press("t")
        for text in ("Abs-op379", "cst14", "op380", "op381", "op382", "op383", "▶"):
            assert text in screen.text
        assert under_cursor(screen) == "Log-op381"
        assert "┏◆━" in screen.text, "the cursor is seen without colour"
        assert "✗TO: -Inf 1 of 4" in screen.text
        screen.check_clean()
        await screen.press("t")
        assert lists(screen) == (["ReduceSum-op380"], ["Log-op381"], ["ReduceSum-op382"])
        assert "▶" not in screen.text


async def test_arrows_go_from_box_to_box_and_enter_puts_one_into_the_middle(session: Callable[[], Session]) -> None:
    host = PlainHost(session())
    async with opened(RelationsView(host, focus_on(session(), "Log-op381", 3)), NARROW) as screen:
        await screen.press("t", "left")
        assert under_cursor(screen) == "ReduceSum-op380"
        assert "ReduceSum  in:0 of Log-op381" in screen.text
        await screen.press("h")
        first = under_cursor(screen)
        await screen.press("down", "up", "down")
        assert {first, under_cursor(screen)} <= {"Abs-op379", "cst14"}
        await screen.press("right", "right", "l")
        assert under_cursor(screen) == "ReduceSum-op382"
        await screen.press("enter")
        assert "2 of 2 visited" in screen.text
        assert under_cursor(screen) == "ReduceSum-op382"
        assert "Relations of …/ReduceSum-op382" in screen.text
        assert "╔" not in screen.text, "the cursor is on the box in the middle"
        await screen.press("[")
        assert under_cursor(screen) == "Log-op381"
        await screen.press("enter", "left", "v", "o", "E")
        assert [(view, target.key.node.rpartition("/")[2]) for view, target in host.opened] == [
            ("values", "Log-op381"),
            *((view, "ReduceSum-op380") for view in ("values", "origin", "explain")),
        ]


async def test_what_only_lists_have_is_said_in_the_sketch(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "Log-op381", 3)), WIDE) as screen:
        await screen.press("t", "space")
        assert "the sketch shows two hops" in screen.text
        await screen.press("slash")
        assert "the lists can be searched: t shows them" in screen.text
        found = sketch_of(screen).extract()
        assert found is not None
        assert "║0 Log-op381╟" in found.text


async def test_of_many_consumers_some_are_drawn_and_only_those_are_measured(tmp_path: Path) -> None:
    many = tuple(Node(f"Default/Neg-op{number}", "Neg", (("x", 0),)) for number in range(300))
    session = opened_session(write_run(tmp_path, {}, graph=Graph(many, ("x",)), inputs=False))
    async with opened(RelationsView(PlainHost(session), focus_on(session, "x", 0)), NARROW) as screen:
        with opened_tensor_files() as files:
            await screen.press("t")
            drawn = len(sketch_of(screen).sketch.in_sight) - 1
            assert 2 <= drawn < 12, "the others lie below"
            assert "and 288 more" in sketch_of(screen).sketch.text
            assert len(set(files)) <= drawn + 1
            await screen.press("right", *["down"] * 12)
            assert "Neg-op11" in screen.text
            assert any("Neg-op11." in file for file in files)
        await screen.resize(200, 50)
        assert len(sketch_of(screen).sketch.in_sight) > drawn + 1
        screen.check_clean()


async def test_hostile_names_stay_text_in_the_sketch(tmp_path: Path) -> None:
    name = "Default/[red]x[/]\x1b[2J\u202e-op1"
    graph = Graph((Node(name, "Log", (("x", 0),)),), ("x",))
    session = opened_session(write_run(tmp_path, {}, graph=graph, hidden={name}))
    for size in (WIDE, NARROW):
        async with opened(RelationsView(PlainHost(session), focus_on(session, "x", 0)), size) as screen:
            await screen.press("t", "right")
            screen.check_clean()
            assert "-op1" in screen.text


async def test_a_click_moves_the_cursor_and_a_second_one_walks(session: Callable[[], Session]) -> None:
    async with opened(RelationsView(PlainHost(session()), focus_on(session(), "Log-op381", 3)), WIDE) as screen:
        await screen.press("t")
        line = next(y for y, text in enumerate(screen.lines) if "ReduceSum-op382" in text and "▶" in text)
        at = (screen.lines[line].index("ReduceSum-op382"), line)
        await screen.pilot.click(offset=at)
        assert under_cursor(screen) == "ReduceSum-op382"
        await screen.pilot.click(offset=at, times=2)
        await screen.pilot.pause()
        assert names(screen, "centre") == ["ReduceSum-op382"]
