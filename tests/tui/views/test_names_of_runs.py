"""Where a run has several graphs, or a step several runs, every view says which one it shows, and leads to that one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as opened_session
from tests.sources.memory import GRAPH, Key, MemorySource, Op
from tests.tui.conftest import OpenScreen
from tests.tui.screens_host import opened
from tests.tui.test_several_graphs import EVAL_GRAPH, screen_of, unordered
from tests.tui.views.host import PlainHost
from tui_debugger.model import GraphRun, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.views.distribution import DistributionView
from tui_debugger.tui.views.explain import ExplainView
from tui_debugger.tui.views.origin import OriginView
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.relations import RelationsView
from tui_debugger.tui.views.trend import TrendView

GAN = "mindspore-2.10-multi-gan"
SIZES = [(80, 24), (200, 50)]


@pytest.fixture(scope="module")
def gan(dumps: Callable[[str], Path]) -> Callable[[], Session]:
    @cache
    def checked() -> Session:
        session = opened_session(dumps(GAN), "TO")
        session.check(session.pairs())
        return session

    return checked


def focus(session: Session, graph: str, node: str, step: int, number: int = 0) -> ViewTarget:
    key = TensorKey(0, graph, node, Side.OUTPUT, 0, step, number)
    return ViewTarget(key, session.nodes(0).find(node, graph))


def rounds() -> MemorySource:
    """A graph that ran three times at step 1; the second time its output was bad."""
    node = ("net/Log-op1", Side.OUTPUT, 0)
    three: dict[Key, np.ndarray] = {(*node, n): np.array([n, np.nan if n == 2 else 1.0]) for n in (1, 2, 3)}
    steps: dict[int, dict[Key, np.ndarray]] = {0: {node: np.zeros(2)}, 1: three, 2: {node: np.ones(2)}}
    runs = [GraphRun(step, 0, GRAPH, True, number) for step, number in ((0, 0), (1, 1), (1, 2), (1, 3), (2, 0))]
    return MemorySource({0: steps}, ops=[Op("net/Log-op1", "Log")], history=runs)


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", SIZES)
async def test_a_path_says_graph_and_run(gan: Callable[[], Session], size: tuple[int, int]) -> None:
    session = gan()
    view = OriginView(PlainHost(session), focus(session, "kernel_graph1", "d_opt.disc.fc1.weight", 3))
    async with opened(view, size) as screen:
        assert "kernel_graph1" in view.heading
        assert "step 1#2, kernel_graph0" in screen.text
        assert "graph" in [column.title for column in view.table.columns]
        assert "out:0#2" in screen.text
        found = view.extract()
        assert found is not None
        assert found.one == "Div-op0:out:0#2  kernel_graph0/Gradients/Default/network-DiscLoss/Grad_Log/Div-op0"
        assert found.header[:2] == ("graph", "step")
        assert [row[0] for row in found.rows][:2] == ["kernel_graph1", "kernel_graph0"]
        assert found.rows[1][4] == "out:0#2"


async def test_a_path_of_one_graph_has_no_column_for_it(dumps: Callable[[str], Path]) -> None:
    session = opened_session(dumps("mindspore-2.0-nan"), "TO")
    node = "Default/network-WithLossCell/_backbone-Net/Log-op381"
    view = OriginView(PlainHost(session), focus(session, session.nodes(0).graphs[0].name, node, 3))
    async with opened(view, (120, 40)):
        assert "graph" not in [column.title for column in view.table.columns]
        assert "kernel" not in view.heading
        found = view.extract()
        assert found is not None
        assert found.header[:2] == ("step", "rank")


async def test_an_explanation_says_graph_and_run(gan: Callable[[], Session]) -> None:
    session = gan()
    about = focus(session, "kernel_graph0", "Default/network-DiscLoss/Log-op0", 1, 2)
    view = ExplainView(PlainHost(session), about)
    async with opened(view, (120, 40)) as screen:
        assert "kernel_graph0" in view.heading
        assert view.heading.endswith("Log-op0:out:0#2")
        assert "kernel_graph0/Default/network-DiscLoss/Log-op0:out:0#2" in screen.text


async def test_relations_say_where_another_run_or_graph_is_meant(gan: Callable[[], Session]) -> None:
    session = gan()
    about = focus(session, "kernel_graph0", "d_opt.moment1.disc.fc1.weight", 1, 2)
    view = RelationsView(PlainHost(session), about)
    async with opened(view, (200, 50)) as screen:
        assert "@1#1 d_opt." in screen.text
        assert "@2 graph 1 d_opt." in screen.text
        assert any("out:0#2" in line for line in screen.lines[1:4])
        assert "out:0#2  step 1  rank 0  kernel_graph0" in screen.text


async def test_two_runs_of_a_step_are_told_apart_in_a_distribution() -> None:
    session = Session(rounds())
    session.open()
    view = DistributionView(PlainHost(session), focus(session, session.nodes(0).graphs[0].name, "net/Log-op1", 1, 3))
    async with opened(view, (120, 40)) as screen:
        assert "step 1#3" in screen.text
        await screen.press("p")
        found = view.extract()
        assert found is not None
        assert found.header[-2:] == ("count step 1#3", "count step 1#2")


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", SIZES)
async def test_every_run_of_a_step_has_a_line_of_its_own_in_a_trend(size: tuple[int, int]) -> None:
    session = Session(rounds())
    session.open()
    host = PlainHost(session)
    graph = session.nodes(0).graphs[0].name
    view = TrendView(host, focus(session, graph, "net/Log-op1", 1, 2))
    async with opened(view, size) as screen:
        assert view.point == (1, 2)
        table = view.table
        assert [table.rows.key(row) for row in range(table.row_count)] == [(0, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
        reached = []
        for key in ("home", "down", "down", "down", "down"):
            await screen.press(key)
            reached.append((view.target_here.key.step, view.target_here.key.round))
        assert reached == [(0, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
        await screen.press("home", "n")
        assert view.point == (1, 2)
        assert "step 1#2" in screen.text
        await screen.press("up", "enter")
        assert [(name, about.key.step, about.key.round) for name, about in host.opened] == [("values", 1, 1)]
        await screen.press("down", "down", "enter")
        assert host.opened[-1][1].key.round == 3


async def test_a_trend_keeps_the_cursor_on_its_run_when_results_come() -> None:
    session = Session(rounds())
    session.open()
    graph = session.nodes(0).graphs[0].name
    view = TrendView(PlainHost(session), focus(session, graph, "net/Log-op1", 1, 1))
    async with opened(view, (120, 40)) as screen:
        session.add_recommended()
        await screen.press("r")
        assert view.point == (1, 1)
        series = view.overlay.here
        assert series is not None
        assert dict(series.hit_texts) == {(1, 2): "TO"}


async def test_values_of_each_run_stand_beside_the_run_before(open_screen: OpenScreen) -> None:
    """The weights of the discriminator are shared: before graph 1 ran at step 3, graph 0 had written them (1#2)."""
    async with open_screen(GAN, size=(120, 40)) as screen:
        session = screen.session
        key = TensorKey(0, "kernel_graph1", "d_opt.disc.fc1.weight", Side.OUTPUT, 0, 3)
        screen.main.views.open_values(ViewTarget(key, session.nodes(0).find(key.node, key.graph)))
        await screen.settled()
        before = screen.app.screen._previous  # type: ignore[attr-defined]  # what it compares with is not shown yet
        assert (before.graph, before.step, before.round) == ("kernel_graph0", 1, 2)


async def test_copies_of_hits_and_tensors_say_graph_and_run() -> None:
    async with screen_of(unordered()) as screen:
        await screen.press("R", "4")
        await screen.settled()
        hits = screen.main.hits_pane
        hits.table.move_to(next(at for at, hit in enumerate(hits.hits) if hit.key.round == 1))
        await screen.press("Y")
        assert screen.app.clipboard.startswith("step 4  node net/Log-op2  slot out:0#1  hit TO")
        await screen.press("enter")
        await screen.settled()
        await screen.press("5", "Y")
        assert screen.app.clipboard.startswith(f"{EVAL_GRAPH}/net/Log-op2  io out  slot 0#1  ")
        await screen.press("1", "Y")
        assert screen.app.clipboard == f"{EVAL_GRAPH}/net/Log-op2"


async def test_a_search_in_the_hit_list_finds_a_graph(open_screen: OpenScreen) -> None:
    async with open_screen(GAN, size=(120, 40)) as screen:
        await screen.press("R", "4")
        await screen.settled()
        hits = screen.main.hits_pane
        every = hits.shown
        await screen.press("slash")
        await screen.type("kernel_graph1")
        await screen.press("enter")
        await screen.settled()
        assert 0 < hits.shown < every
        assert {hit.key.graph for hit in hits.hits} == {"kernel_graph1"}
