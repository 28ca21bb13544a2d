"""The screen of ``tdbg listen``: waiting, stepping, several ranks, lost and finished trainings, leaving."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.events import ScreenResume

from tests.live.doubles import LOG, MATMUL, WEIGHT, FakeTraining
from tests.tui.live_driver import LiveDriver, attached, listening
from tests.tui.sizes import every_size
from tui_debugger.live import wire
from tui_debugger.live.wire import Event, Phase, Unrecorded
from tui_debugger.tui.dialogs.pages import HelpScreen
from tui_debugger.tui.dialogs.prompts import ConfirmScreen, NumberPrompt, TextPrompt
from tui_debugger.tui.live import WaitingScreen
from tui_debugger.tui.values.screen import ValuesScreen

FORWARD, BACK = "right_square_bracket", "left_square_bracket"


def first(screen: LiveDriver) -> FakeTraining:
    return screen.trainings.trainings[0]


# -- waiting -----------------------------------------------------------------------------------------


async def test_the_waiting_page_says_what_to_set_and_who_was_turned_away() -> None:
    async with listening(size=(80, 24), warning="listens at 0.0.0.0") as screen:
        for text in (
            "ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=127.0.0.1 MS_DEBUGGER_PORT=50051",
            "TDBG_HOST=127.0.0.1 TDBG_PORT=50051",
            "import tui_debugger.torch as tdbg; tdbg.attach(model, optimizer)",
            "! listens at 0.0.0.0",
        ):
            assert text in screen.text
        screen.trainings.refuse("10.0.0.9 showed no token")
        await screen.until(lambda: "✗ refused: 10.0.0.9 showed no token" in screen.text)
        screen.trainings.connect()
        await screen.until(
            lambda: "↓ rank 0 · PyTorch 2.13.0 · GPU 0 · 10.0.0.1:4711: receiving the graph" in screen.text
        )


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_leaving_the_waiting_page_leaves_the_program(key: str) -> None:
    async with listening() as screen:
        await screen.press(key)
        await screen.until(lambda: screen.app.return_code == 0)


async def test_nothing_is_drawn_while_nobody_comes() -> None:
    async with listening() as screen:
        drawn: list[object] = []
        screen.app.screen._compositor_refresh = lambda: drawn.append(1)  # type: ignore[method-assign]
        for _ in range(5):
            await screen.pilot.pause(0.1)
        assert not screen.app.screen._dirty_widgets
        assert not [timer for timer in screen.main._timers if timer.name and "Interval" in timer.name]
        assert screen.control._ticker is None, "no counter moves"


async def test_the_first_graph_shows_the_panes_and_adds_the_recommended_watchpoints_once() -> None:
    async with attached(recommended=None) as screen:
        assert screen.app.screen is screen.main
        assert "step start" in screen.header
        assert "■ stopped before the first step" in screen.header
        assert any("Log-op2" in row for row in screen.pane("nodes"))
        assert len(screen.pane("watchpoints")) >= 3
        screen.trainings.begin(1)
        await screen.until(lambda: len(screen.live.ranks()) == 2)
        await screen.settled()
        assert screen.app.screen is screen.main


async def test_another_version_is_said_and_can_be_terminated() -> None:
    async with listening() as screen:
        training = screen.trainings.connect(program="MindSpore 9.0")
        training.become(Phase.MISMATCH, Event.REFUSED)
        await screen.until(lambda: "≠ rank 0 · MindSpore 9.0" in screen.text)
        assert isinstance(screen.app.screen, WaitingScreen)
        await screen.press("T", "y")
        await screen.until(lambda: training.orders == ["terminate"])


# -- stepping ----------------------------------------------------------------------------------------


async def test_a_step_is_run_and_shown_when_it_ends() -> None:
    async with attached() as screen:
        await screen.press(FORWARD)
        await screen.ordered("run 1")
        await screen.until(lambda: "▶ running" in screen.header)
        assert "step start" in screen.header
        await screen.stopped(first(screen), 0)
        assert "■ stopped after step 0" in screen.header
        assert screen.main.state.step == 0
        assert "outdated" not in screen.header


async def test_a_running_training_refuses_in_words_and_pauses() -> None:
    async with attached() as screen:
        await screen.press("c")
        await screen.ordered("run None")
        await screen.press(FORWARD)
        assert "rank 0 is running: p stops it" in screen.notice
        await screen.press("p")
        assert first(screen).orders == ["pause"]


async def test_hits_are_told_and_n_goes_to_the_first() -> None:
    async with attached() as screen:
        await screen.press("home", "c")  # who has moved the cursor keeps it
        await screen.ordered("run None")
        await screen.stopped(first(screen), 3)
        await screen.until(lambda: "step 3: 1 hit, n goes to the first" in screen.notice)
        await screen.press("n", "5")
        await screen.settled()
        assert screen.pane("hits")[0].split()[1:3] == ["3", "Log-op2"]
        assert any("out 0 2×3 float32 0 6" in row for row in screen.pane("tensors"))


async def test_what_a_training_could_not_record_stands_in_the_header_and_among_the_notices() -> None:
    async with attached() as screen:
        first(screen).unrecorded = (Unrecorded("modules inside torch.compile", 3, "blocks.1", 0),)
        await screen.press("c")
        await screen.ordered("run None")
        await screen.stopped(first(screen), 0)
        await screen.until(lambda: "1 thing not recorded" in screen.header)
        assert "except what was not recorded" in screen.header
        await screen.press("exclamation_mark")
        await screen.until(lambda: "not recorded: rank 0: modules inside torch.compile" in screen.text)


async def test_the_prompt_runs_many_steps() -> None:
    async with attached() as screen:
        await screen.press("F")
        assert isinstance(screen.app.screen, NumberPrompt)
        await screen.press("5", "0", "enter")
        await screen.ordered("run 50")


async def test_kept_steps_are_walked_through_before_a_new_one_is_run() -> None:
    async with attached() as screen:
        for step in (0, 1):
            await screen.press(FORWARD)
            await screen.ordered("run 1")
            await screen.stopped(first(screen), step)
        await screen.press(BACK, BACK)
        await screen.settled()
        assert screen.main.state.step == -1
        await screen.press(FORWARD)
        await screen.settled()
        assert (screen.main.state.step, first(screen).orders) == (0, [])
        await screen.press(FORWARD, FORWARD)
        await screen.ordered("run 1")
        assert screen.main.state.step == 1


async def test_a_stop_does_not_take_the_screen_away_from_an_older_step() -> None:
    async with attached() as screen:
        await screen.press(FORWARD)
        await screen.ordered("run 1")
        await screen.stopped(first(screen), 0)
        await screen.press("c")
        await screen.ordered("run None")
        await screen.press(BACK)
        await screen.settled()
        await screen.stopped(first(screen), 7)
        assert screen.main.state.step == -1
        assert "rank 0 stopped" in screen.notice
        assert "■ stopped after step 7" in screen.header


async def test_a_changed_list_is_outdated_until_the_training_looks_again() -> None:
    async with attached() as screen:
        await screen.press(FORWARD)
        await screen.ordered("run 1")
        await screen.stopped(first(screen), 3)
        await screen.press("3", "d")
        await screen.settled()
        assert "outdated" in screen.header
        await screen.press("r")
        await screen.ordered("recheck")
        assert "outdated" not in screen.header


async def test_nodes_can_be_run_to_where_the_training_can() -> None:
    async with attached(features=wire.RUNS_TO_NODES) as screen:
        await screen.press("1", "slash", "L", "o", "g", "enter")
        await screen.settled()
        row = screen.live.nodes(0).find(LOG)
        screen.main.navigator.go_to_row(row)
        await screen.settled()
        await screen.press("t")
        await screen.ordered(f"run to {LOG}")
        await screen.stopped(first(screen), 0, node=MATMUL)
        assert f"■ stopped in step 0 at {MATMUL}" in screen.header
        assert screen.main.state.row == screen.live.nodes(0).find(MATMUL)
        await screen.press("full_stop")
        await screen.ordered("run to the next node")


@pytest.mark.turns("size")
@every_size
async def test_a_scope_is_run_to_its_first_operator_and_a_key_leads_back(size: tuple[int, int]) -> None:
    async with attached(size=size, features=wire.RUNS_TO_NODES) as screen:
        pane, nodes = screen.main.nodes_pane, screen.live.nodes(0)
        await screen.press("1", "g")
        while pane.scopes is None or pane.current < 0 or pane.scopes.path(pane.current) != "Default":
            await screen.press("down")
            await screen.settled()
        assert screen.main.state.row == -1
        await screen.press("t")
        await screen.ordered(f"run to {MATMUL}")
        await screen.stopped(first(screen), 0, node=MATMUL)
        await screen.press("down")
        await screen.settled()
        assert screen.main.state.row == nodes.find(WEIGHT)
        await screen.press("at")
        await screen.settled()
        assert screen.main.state.row == pane.current_row == nodes.find(MATMUL)
        assert screen.main.state.step == 0
        assert f"stopped in step 0 at {MATMUL}" in screen.notice
        await screen.press("up", "t")
        await screen.ordered(f"run to {MATMUL}")


async def test_it_is_said_where_it_cannot() -> None:
    async with attached() as screen:
        for key in ("t", "full_stop"):
            await screen.press(key)
            assert "PyTorch 2.13.0 stops at the end of steps only" in screen.notice
        assert not first(screen).orders


# -- several ranks -----------------------------------------------------------------------------------


async def test_commands_go_to_all_ranks_or_to_one() -> None:
    async with attached(2) as screen:
        await screen.press("c")
        await screen.until(lambda: screen.orders == [["run None"], ["run None"]])
        for training in screen.trainings.trainings:
            await screen.stopped(training, 0)
            training.orders.clear()
        await screen.press("A")
        assert "rank that is shown only" in screen.notice
        assert "this rank only" in screen.header
        await screen.press("greater_than_sign")
        await screen.settled()
        await screen.press(FORWARD)
        await screen.ordered("run 1", rank=1)
        assert screen.orders == [[], []]
        assert "1 other stopped" in screen.header


async def test_hits_of_all_ranks_stand_in_one_list() -> None:
    async with attached(2) as screen:
        await screen.press("c")
        await screen.until(lambda: screen.orders == [["run None"], ["run None"]])
        await screen.stopped(screen.trainings.trainings[1], 3)
        assert screen.main.state.step == -1
        assert "rank 1 stopped" in screen.notice or "hit" in screen.notice
        await screen.stopped(screen.trainings.trainings[0], 4)
        rows = [row.split()[1:4] for row in screen.pane("hits")]
        assert rows == [["3", "1", "Log-op2"], ["4", "0", "Log-op2"]]


# -- lost, back, finished ----------------------------------------------------------------------------


async def test_a_lost_training_stays_browsable_and_may_come_back() -> None:
    async with attached() as screen:
        await screen.press(FORWARD)
        await screen.ordered("run 1")
        await screen.stopped(first(screen), 3)
        first(screen).become(Phase.LOST, Event.LOST)
        await screen.until(lambda: "✗ lost, may come back" in screen.header)
        assert "S saves it, q leaves" in screen.notice
        await screen.press(FORWARD)
        assert "rank 0 is lost" in screen.notice
        await screen.press("4", "enter")
        await screen.settled()
        assert screen.main.current_pane == "tensors"
        first(screen).become(Phase.STOPPED, Event.BACK)
        await screen.until(lambda: "■ stopped after step 3" in screen.header)


async def test_a_finished_training_says_the_way_out() -> None:
    async with attached() as screen:
        first(screen).become(Phase.DONE, Event.DONE)
        await screen.until(lambda: "● finished" in screen.header)
        assert "has finished" in screen.notice
        await screen.press("q")
        await screen.until(lambda: screen.app.return_code == 0)


async def test_a_slash_after_an_accepted_search_begins_a_new_text() -> None:
    async with attached() as screen:
        await screen.press("1", "slash")
        await screen.type("log")
        await screen.settled()
        await screen.press_each("enter", "slash")
        await screen.type("mat")
        await screen.settled()
        bar = screen.main.nodes_pane.search_bar
        assert bar is not None
        assert (bar.value, bar.count.partition(" of ")[0]) == ("mat", "1")


# -- values, saving ----------------------------------------------------------------------------------


@pytest.mark.turns("size")
@every_size
async def test_the_key_of_the_previous_step_says_why_a_training_has_none(size: tuple[int, int]) -> None:
    async with attached(size=size) as screen:
        await screen.stopped(screen.trainings.trainings[0], 3)
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        screen.main.navigator.go_to_row(nodes.find(MATMUL))
        await screen.settled()
        output = next(at for at, row in enumerate(screen.pane("tensors")) if row.strip().startswith("out"))
        await screen.press("5", "home", *["down"] * output, "enter")
        await screen.until(lambda: isinstance(screen.app.screen, ValuesScreen))
        await screen.settled()
        await screen.press("p")
        assert "only parameters are kept: look at it in step 2, too" in screen.text


async def test_values_are_fetched_with_progress_and_esc_ends_it() -> None:
    async with attached(shape=(300, 300)) as screen:  # too large to come together with its statistics
        await screen.press(FORWARD)
        await screen.ordered("run 1")
        await screen.stopped(first(screen), 0)
        screen.main.navigator.go_to_row(screen.live.nodes(0).find(WEIGHT))
        await screen.settled()
        first(screen).open.clear()
        await screen.press("5", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, ValuesScreen))
        await screen.until(lambda: "reading 25.0 % …" in screen.text)
        await screen.press("escape")
        assert screen.app.screen is screen.main
        await screen.until(lambda: not screen.main.work.busy("view 1"))
        first(screen).open.set()
        await screen.settled()
        await screen.press("enter")
        await screen.until(lambda: "[0, 0] = " in screen.text)


async def test_what_was_kept_is_saved_as_a_dump(tmp_path: Path) -> None:
    async with attached() as screen:
        await screen.press(FORWARD)
        await screen.ordered("run 1")
        await screen.stopped(first(screen), 0)
        await screen.press("S")
        prompt = screen.app.screen
        assert isinstance(prompt, TextPrompt)
        prompt.query_one("#text").value = str(tmp_path / "saved")  # type: ignore[attr-defined]
        await screen.press("enter")
        await screen.until(lambda: "wrote" in screen.notice)
        assert (tmp_path / "saved").is_dir()


# -- leaving -----------------------------------------------------------------------------------------


async def test_leaving_asks_what_becomes_of_a_training_that_waits() -> None:
    async with attached() as screen:
        await screen.press("q")
        assert isinstance(screen.app.screen, ConfirmScreen)
        assert "rank 0 · PyTorch 2.13.0" in screen.text
        await screen.press("escape")
        assert screen.app.screen is screen.main
        await screen.press("q", "enter")
        await screen.until(lambda: screen.app.return_code == 0)
    assert "terminate" not in first(screen).orders
    assert screen.trainings.closed[:1] == [False]


async def test_a_training_can_be_terminated_on_the_way_out_and_before() -> None:
    async with attached(2) as screen:
        await screen.press("A", "T", "n")
        assert screen.orders == [[], []]
        await screen.press("T", "y")
        await screen.ordered("terminate")
        await screen.press("q", "t")
        await screen.until(lambda: screen.app.return_code == 0)
    assert screen.orders[1] == ["terminate"]


async def test_a_training_of_mindspore_ends_with_the_program_so_it_stays() -> None:
    """Its client gives up when nobody answers, waiting or not."""
    async with attached(program="MindSpore 2.0.0", stays=True) as screen:
        await screen.press("c")
        await screen.ordered("run None")
        await screen.press("q")
        question = screen.app.screen
        assert isinstance(question, ConfirmScreen)
        assert "tdbg stays, without the screen, until its end" in question.lines[-1]
        await screen.press("g")
        await screen.until(lambda: screen.app.return_code == 0)
    assert screen.control.staying
    assert first(screen).orders == ["release"]
    assert not screen.trainings.closed
    screen.live.close()


async def test_a_running_training_needs_no_question() -> None:
    async with attached() as screen:
        await screen.press("c")
        await screen.ordered("run None")
        await screen.press("q")
        await screen.until(lambda: screen.app.return_code == 0)


async def test_a_graph_that_comes_while_the_waiting_page_opens_leaves_the_offer_alone() -> None:
    """The page hears that it is in front only after it has gone: what stands there then is another screen."""
    async with listening() as screen:
        page = screen.app.screen
        assert isinstance(page, WaitingScreen)
        page.leave()
        screen.app.push_screen(HelpScreen(()))
        page.post_message(ScreenResume())
        await screen.pilot.pause()
        assert isinstance(screen.app.screen, HelpScreen)
