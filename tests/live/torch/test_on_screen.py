"""The screen of ``tdbg listen`` on real trainings: what it counts, and what it still says of another rank."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")

from tests.cli.running import run
from tests.live.conftest import Happened
from tests.live.torch.driving import Driven
from tests.live.torch.test_distributed import Trainings, started
from tests.tui.driver import Driver
from tests.tui.sizes import every_size
from tui_debugger.cli import listen as listen_common
from tui_debugger.live.server import Server
from tui_debugger.session.live import LiveSession
from tui_debugger.text.hits import hit_text
from tui_debugger.tui.app import TdbgApp
from tui_debugger.tui.live import LiveControl

STEPS, RANKS = 30, 2
Serving = Callable[..., Server]


@asynccontextmanager
async def screen_of(server: Server, size: tuple[int, int], *, recommended: bool = True) -> AsyncIterator[Driver]:
    """The panes, with the training that comes to a server."""
    session = LiveSession(server)
    app = TdbgApp(live=LiveControl(session), recommended=recommended)
    async with app.run_test(size=size) as pilot:
        screen = Driver(app, pilot)
        await screen.until(lambda: app.main.session is not None and app.screen is app.main)
        await screen.settled()
        yield screen
    session.close()


@pytest.fixture
def headless(
    serving: Serving, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """What ``tdbg listen --no-screen`` says at the end of a training of ``programs``."""

    def listened(program: str, **options: object) -> dict[str, Any]:
        server = serving()
        training = Driven(server.address, Happened(server), program, **options)
        session = LiveSession(server)
        monkeypatch.setattr(listen_common, "open_live", lambda _: session)
        answer = run(capsys, "listen", "--no-screen", "--recommended", "--json")
        session.close()
        training.end()
        summary: dict[str, Any] = json.loads(answer.lines[-1])
        return summary

    return listened


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("level", ["module", "op"])
async def test_steps_that_ran_ahead_are_counted_as_without_a_screen(
    train: Callable[..., Driven],
    headless: Callable[..., dict[str, Any]],
    server: Server,
    size: tuple[int, int],
    level: str,
) -> None:
    summary = headless("plain", steps=STEPS, level=level)
    assert (summary["verdict"], summary["steps"]) == ("clean", [{"rank": 0, "steps": STEPS}])
    run = train("plain", steps=STEPS, level=level)
    async with screen_of(server, size) as screen:
        assert "stopped before the first step" in screen.main.header.plain
        await screen.press("c")
        await screen.until(lambda: "finished" in screen.main.header.plain)
        await screen.settled()
        result = screen.session.so_far()
        assert result is not None
        assert (result.silent, result.coverage.checked) == (STEPS, summary["coverage"]["checked"])
        assert not result.not_checked(screen.session.pairs())
        answer = f"Clean: {summary['coverage']['checked']:,} tensors of {STEPS} steps looked at"
        assert any(line.strip().startswith(answer) for line in screen.lines)
        assert "to the next step" not in screen.text, "there is none"
    assert run.outcome()[0] == 0


@pytest.mark.turns("size")
@every_size
async def test_from_before_the_first_step_nodes_of_step_0_are_run_to(
    train: Callable[..., Driven], server: Server, size: tuple[int, int]
) -> None:
    train("plain", steps=4, level="op")
    async with screen_of(server, size) as screen:
        nodes, pane = screen.session.nodes(0), screen.main.nodes_pane
        await screen.press("full_stop")
        await screen.until(lambda: "stopped in step 0 at " in screen.main.header.plain)
        await screen.settled()
        at = screen.main.state.row
        await screen.press_each("1", "g")
        while pane.scopes is None or pane.current < 0 or pane.scopes.path(pane.current) != "head":
            await screen.press_each("down")
        await screen.press("t")
        await screen.until(lambda: "stopped in step 0 at head/" in screen.main.header.plain)
        await screen.settled()
        stands = screen.main.state.row
        assert at < stands == min(row for row, name in enumerate(nodes.names) if name.startswith("head/"))
        await screen.press_each("1", "g", "at")
        assert screen.main.state.row == pane.current_row == stands
        await screen.press("c")
        await screen.until(lambda: "finished" in screen.main.header.plain)
        await screen.settled()
        assert any(line.strip().startswith("Clean: ") for line in screen.lines), screen.text


@pytest.mark.turns("size")
@every_size
async def test_a_watchpoint_that_is_added_while_it_runs_counts_from_a_step_on(
    train: Callable[..., Driven], server: Server, size: tuple[int, int]
) -> None:
    run = train("plain", steps=100_000)
    async with screen_of(server, size, recommended=False) as screen:
        await screen.press("c")
        await screen.until(lambda: "running" in screen.main.header.plain)
        await screen.press("a")
        await screen.until(lambda: "the watchpoints as they are now count from step " in screen.main.footer.notice)
        assert "running" in screen.main.header.plain, "nobody stopped it"
        await screen.press("p")
        await screen.until(lambda: "stopped after step " in screen.main.header.plain)
        await screen.settled()
        result = screen.session.so_far()
        assert result is not None
        assert result.silent > 0
        assert result.silent_before > 0
        run.training.terminate()


@pytest.mark.turns("size")
@every_size
async def test_the_step_before_of_an_activation_is_there_when_it_was_looked_at(
    train: Callable[..., Driven], server: Server, size: tuple[int, int]
) -> None:
    run = train("plain", steps=100)
    async with screen_of(server, size) as screen:
        await screen.press("F")
        await screen.type("3")
        await screen.press("enter")
        await screen.until(lambda: "stopped after step 2" in screen.main.header.plain)
        await screen.settled()
        screen.main.navigator.go_to_row(screen.session.nodes(0).find("head/Linear"))
        await screen.settled()
        output = next(at for at, row in enumerate(screen.pane("tensors")) if row.strip().startswith("out"))
        await screen.press_each("5", "home", *["down"] * output, "enter", "p")
        assert "only parameters are kept: look at it in step 1, too" in screen.text
        await screen.press("escape", "right_square_bracket")
        await screen.until(lambda: "stopped after step 3" in screen.main.header.plain)
        await screen.settled()
        await screen.press_each("5", "enter", "p")
        await screen.until(lambda: "PREVIOUS STEP" in screen.text)
        run.training.terminate()


@pytest.fixture(scope="module")
def two() -> Iterator[Trainings]:
    with started(RANKS) as trainings:
        yield trainings


def said(screen: Driver, rank: int) -> dict[str, str]:
    """The hits of a rank at the bad step, as the hit list has them."""
    result = screen.session.so_far()
    assert result is not None
    hits = [hit for hit in result.hits if (hit.key.rank, hit.key.step) == (rank, 1)]
    return {f"{hit.key.node}:{hit.key.slot}": hit_text(hit) for hit in hits}


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("level", ["module", "op"])
async def test_hits_of_the_other_rank_say_the_same_when_one_goes_there(
    two: Trainings, serving: Serving, size: tuple[int, int], level: str
) -> None:
    job = two.begin("ddp", bad="batch", level=level)
    async with screen_of(serving(job.address), size) as screen:
        await screen.until(lambda: len(screen.session.ranks()) == RANKS)
        await screen.settled()
        await screen.press("c")
        await screen.until(lambda: said(screen, 0) and "inputs.x:0" in said(screen, 1))
        await screen.settled()
        before = {rank: said(screen, rank) for rank in range(RANKS)}
        assert before[1]["inputs.x:0"] == "NaN 1 of 32"
        rows = screen.pane("hits")
        other = 1 - screen.main.state.rank
        await screen.press("greater_than_sign" if other else "less_than_sign")
        await screen.settled()
        assert screen.main.state.rank == other
        assert {rank: said(screen, rank) for rank in range(RANKS)} == before
        assert screen.pane("hits") == rows
        await screen.press("r")
        await screen.settled()
        assert {rank: said(screen, rank) for rank in range(RANKS)} == before
    two.losses()  # it went on
