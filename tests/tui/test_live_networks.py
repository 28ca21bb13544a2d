"""A training of several networks on the screen: the second graph comes, and takes nothing away."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.live.session.test_several_networks import DISC, GAN, GEN, playing
from tests.patience import PATIENCE
from tests.tui.driver import Driver
from tests.tui.sizes import every_size
from tui_debugger.session.live import LiveSession
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.dialogs.pages import HistoryScreen
from tui_debugger.tui.live import LiveControl

Dumps = Callable[[str], Path]


@asynccontextmanager
async def screen_of(
    path: Path,
    size: tuple[int, int] = (120, 40),
    *,
    recommended: bool = True,
    before_step: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[Driver]:
    """Before the first step of a training of several networks."""
    with playing(path) as live:
        live.training.before_step = before_step
        app = TdbgApp(live=LiveControl(live.session), recommended=recommended)
        async with app.run_test(size=size) as pilot:
            live.training.start()
            screen = Driver(app, pilot)
            await screen.until(lambda: app.main.session is not None and app.screen is app.main)
            await screen.settled()
            yield screen


async def run_to(screen: Driver, step: int) -> None:
    """Runs step by step, over those with hits too."""
    while screen.main.state.step != step:
        before = screen.main.state.step
        await screen.press("right_square_bracket")
        await screen.until(lambda before=before: screen.main.state.step != before)
        await screen.settled()


@pytest.mark.turns("size")
@every_size
async def test_graphs_are_filters_and_runs_a_history(dumps: Dumps, size: tuple[int, int]) -> None:
    async with screen_of(dumps(GAN), size) as screen:
        await run_to(screen, 1)
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        assert [info.name for info in nodes.graphs] == [DISC]
        await run_to(screen, 4)
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        assert [info.name for info in nodes.graphs] == [DISC, GEN]
        hits = screen.main.hits_pane
        assert {(hit.key.step, hit.key.graph) for hit in hits.hits} == {(3, DISC), (4, GEN)}
        await screen.press("right_curly_bracket")
        await screen.settled()
        assert {hit.key.graph for hit in hits.hits} == {DISC}
        assert screen.main.state.query.graphs == {DISC}
        await screen.press("right_curly_bracket")
        await screen.settled()
        assert {hit.key.graph for hit in hits.hits} == {GEN}
        await screen.press("left_curly_bracket", "left_curly_bracket", "y")
        await screen.until(lambda: isinstance(screen.app.screen, HistoryScreen))
        await screen.settled()
        rows = [line.replace("▌", " ").replace("▶", " ").split() for line in screen.lines if "kernel_graph_" in line]
        assert [row[0] for row in rows][-5:] == ["0", "1", "2", "3", "4"]
        assert [next(word for word in row if word.startswith("kernel_")) for row in rows][-5:] == [
            *(DISC, DISC, GEN),
            *(DISC, GEN),
        ]


async def test_what_was_found_before_the_second_network_came_is_still_there(dumps: Dumps) -> None:
    async with screen_of(dumps("mindspore-2.0-multi-eval")) as screen:
        await run_to(screen, 1)
        found = {hit.key for hit in screen.main.hits_pane.hits}
        assert found
        await run_to(screen, 2)
        assert found <= {hit.key for hit in screen.main.hits_pane.hits}
        assert "dropped" not in screen.text
        await run_to(screen, 6)
        origins = [hit.key.node for hit in screen.main.hits_pane.hits if hit.origin]
        assert [name.rpartition("/")[2] for name in origins] == ["Log-op191"]


@pytest.mark.turns("size")
@every_size
async def test_watchpoints_that_are_added_while_it_runs_count_from_the_end_of_its_step(
    dumps: Dumps, size: tuple[int, int]
) -> None:
    held, reached = {step: threading.Event() for step in (1, 3)}, set[int]()

    def hold(step: int) -> None:
        reached.add(step)
        if step in held:
            assert held[step].wait(PATIENCE)

    async with screen_of(dumps(GAN), size, recommended=False, before_step=hold) as screen:
        session = screen.main.session
        assert isinstance(session, LiveSession)
        await screen.press("c")
        await screen.until(lambda: 1 in reached)
        await screen.press("a")
        await screen.until(lambda: bool(session.watchpoints.items()) and session.idle)
        held[1].set()
        await screen.until(lambda: "count from step 2 on" in screen.main.footer.notice)
        held[3].set()
        await screen.until(lambda: "stopped after step 3" in screen.main.header.plain and screen.pane("hits"))
        await screen.settled()
        assert {hit.key.step for hit in screen.main.hits_pane.hits} == {3}
