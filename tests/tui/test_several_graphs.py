"""Several root graphs, runs out of order, several runs in a step: what the screen says and where its keys lead."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest

from tests.sources.memory import Key, MemorySource, Op
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened_by
from tests.tui.sizes import every_size
from tui_debugger.model import GraphRun, ProgressFn, Side
from tui_debugger.session import Session
from tui_debugger.tui.dialogs.pages import HistoryScreen
from tui_debugger.tui.dialogs.prompts import StepPrompt, find_step

EVAL = "mindspore-2.0-multi-eval"
TRAIN_GRAPH, EVAL_GRAPH = "graph_0", "graph_1"
BAD = np.array([1.0, np.nan])


def screen_of(
    source: MemorySource, size: tuple[int, int] = (120, 40), step: int | None = None
) -> AbstractAsyncContextManager[Driver]:
    def open_session(progress: ProgressFn) -> Session:
        session = Session(source)
        session.open(progress)
        return session

    return opened_by(open_session, size=size, title="memory", recommended=True, step=step)


def unordered() -> MemorySource:
    """Steps ran in the order 2, 1, 4, 3; graph 1 ran twice at step 4, and both times it was bad."""
    good: dict[Key, np.ndarray] = {("net/Add-op1", Side.OUTPUT, 0): np.ones(2)}
    twice: dict[Key, np.ndarray] = {
        ("net/Add-op1", Side.OUTPUT, 0): np.ones(2),
        ("net/Log-op2", Side.OUTPUT, 0, 1): BAD,
        ("net/Log-op2", Side.OUTPUT, 0, 2): BAD * 2,
    }
    runs = [
        GraphRun(2, 0, TRAIN_GRAPH, True),
        GraphRun(1, 0, TRAIN_GRAPH, True),
        GraphRun(4, 1, EVAL_GRAPH, True, 1),
        GraphRun(4, 0, TRAIN_GRAPH, True),
        GraphRun(4, 1, EVAL_GRAPH, True, 2),
        GraphRun(3, 0, TRAIN_GRAPH, True),
    ]
    ops = [Op("net/Add-op1", "Add", graph=TRAIN_GRAPH), Op("net/Log-op2", "Log", graph=EVAL_GRAPH)]
    return MemorySource({0: {1: good, 2: good, 3: good, 4: twice}}, ops=ops, history=runs)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_keys_for_steps_follow_the_order_of_the_runs(size: tuple[int, int]) -> None:
    async with screen_of(unordered(), size, step=2) as screen:
        assert screen.main.state.step == 2
        reached = []
        for key in ("right_square_bracket", "right_square_bracket", "right_square_bracket", "left_square_bracket"):
            await screen.press(key)
            await screen.settled()
            reached.append(screen.main.state.step)
        assert reached == [1, 4, 3, 4]
        await screen.press("right_square_bracket", "right_square_bracket")
        await screen.settled()
        assert screen.main.state.step == 3
        assert "last" in screen.text
        if size[0] > 100:
            assert "order of runs 2,1,4,3" in screen.text


async def test_runs_of_another_order_than_their_steps_are_said(open_screen: OpenScreen) -> None:
    """Each step began in the order of its number, but steps of graph 1 ran as 2, 1, 4, 3, 6, 5."""
    async with open_screen("mindspore-2.10-multi-order", size=(80, 24)) as screen:
        assert "runs out of order (key y)" in screen.lines[0]
    async with open_screen(EVAL, size=(80, 24)) as screen:
        assert "order" not in screen.lines[0]


async def test_continue_stops_at_the_next_step_in_the_order_of_the_runs() -> None:
    async with screen_of(unordered(), step=2) as screen:
        await screen.press("c")
        await screen.settled()
        assert screen.main.state.step == 4


async def test_lists_of_steps_and_runs_are_in_the_order_of_the_runs() -> None:
    async with screen_of(unordered()) as screen:
        await screen.press("s")
        await screen.until(lambda: isinstance(screen.app.screen, StepPrompt))
        assert isinstance(screen.app.screen, StepPrompt)
        assert list(screen.app.screen.steps) == [2, 1, 4, 3]
        assert "graph_1#1, graph_0, graph_1#2" in screen.text
        await screen.press("escape", "y")
        await screen.until(lambda: isinstance(screen.app.screen, HistoryScreen))
        await screen.settled()
        assert "in the order in which they ran" in screen.text
        steps = [line.split()[0].strip("▌▶") or line.split()[1] for line in screen.lines if "● dumped" in line]
        assert [step.lstrip("▶") for step in steps][1:] == ["1", "4#1", "4", "4#2", "3"]


async def test_hits_say_their_graph_and_round_and_lead_to_the_row_of_that_round() -> None:
    async with screen_of(unordered()) as screen:
        await screen.press("R", "4")
        await screen.settled()
        rows = screen.pane("hits")
        assert any("out:0#1" in row for row in rows)
        assert any("out:0#2" in row for row in rows)
        assert all(" 1 " in row for row in rows if "Log-op2" in row)
        hits = screen.main.hits_pane
        first = next(at for at, hit in enumerate(hits.hits) if hit.key.round == 1)
        hits.table.move_to(first)
        await screen.press("enter")
        await screen.settled()
        current = screen.main.tensors_pane.current
        assert current is not None
        assert (current.key.round, current.rounds, current.earlier) == (1, 2, True)
        table = screen.pane("tensors")
        assert [row for row in table if "0#2" in row]
        assert [row for row in table if "0#1" in row]
        assert "graph 1" in screen.main.tensors_pane.count
        assert "#1 of 2 in step 4" in screen.text


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_braces_restrict_nodes_and_hits_and_backspace_shows_all(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(EVAL, size=size) as screen:
        await screen.press("R", "4")
        await screen.settled()
        hits = screen.main.hits_pane
        every = hits.shown
        await screen.press("right_curly_bracket", "right_curly_bracket")
        await screen.settled()
        assert {hit.key.graph for hit in hits.hits} == {"kernel_graph_1"}
        assert 0 < hits.shown < every
        assert "graph 1" in hits.count
        assert screen.main.state.query.graphs == {"kernel_graph_1"}
        await screen.press("left_curly_bracket")
        await screen.settled()
        assert {hit.key.graph for hit in hits.hits} == {"kernel_graph_0"}
        await screen.press("backspace")
        await screen.settled()
        assert hits.shown == every
        assert not screen.main.state.query.graphs
        assert "graph" not in hits.count


@pytest.mark.turns("size")
@every_size
async def test_tensors_follow_the_hit_when_a_graph_leaves_the_node_list(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(EVAL, size=size) as screen:
        await screen.press("4", "N", "right_curly_bracket")
        await screen.settled()
        hit = screen.main.hits_pane.current
        assert hit is not None
        assert hit.key.node == "_backbone.fc2.weight"
        assert screen.main.tensors_pane.count.endswith(hit.key.node)
        await screen.press("1")
        await screen.settled()
        assert screen.main.nodes_pane.current_row == hit.row
        while screen.main.nodes_pane.current_row in {-1, hit.row}:
            await screen.press("up")
        await screen.settled()
        assert not screen.main.tensors_pane.count.endswith(hit.key.node), "here they follow this cursor"


async def test_backspace_in_the_node_list_shows_the_hits_of_all_graphs(open_screen: OpenScreen) -> None:
    async with open_screen(EVAL) as screen:
        await screen.press("right_curly_bracket")
        await screen.settled()
        assert screen.main.hits_pane.filter.graphs == {"kernel_graph_0"}
        await screen.press("1", "backspace")
        await screen.settled()
        assert not screen.main.hits_pane.filter.graphs
        assert not screen.main.state.query.graphs


async def test_one_graph_takes_no_column(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        assert "graph" not in [column.title for column in screen.main.hits_pane.table.columns]


@pytest.mark.parametrize(
    ("text", "step"), [("first", 2), ("last", 5), ("+", 4), ("+3", 6), ("-", 2), ("5", 5), ("0", None), ("9", None)]
)
def test_step_text_counts_in_the_order_of_the_runs(text: str, step: int | None) -> None:
    try:
        found: int | None = find_step(text, [2, 1, 4, 3, 6, 5], 1)
    except ValueError:
        found = None
    assert found == step
