"""What keys do while a training is attached: one registry, as for dumps."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.thorough import later
from tests.tui.live_driver import attached
from tests.tui.sizes import every_size
from tests.tui.test_every_key import NAMES as NAMED
from tui_debugger.live import wire
from tui_debugger.live.wire import Event, Phase
from tui_debugger.tui import actions
from tui_debugger.tui.dialogs.pages import HelpScreen

NAMES = {**NAMED, ".": "full_stop"}
EVENTS = {Phase.RUNNING: Event.RUNNING, Phase.LOST: Event.LOST, Phase.DONE: Event.DONE}


def test_entries_that_mean_more_keep_their_keys() -> None:
    for action in actions.LIVE_ACTIONS:
        known = actions.BY_ID.get(("global", action.id))
        assert known is None or known.keys == action.keys


@pytest.mark.parametrize("pane", [pane for pane, _ in actions.PANES])
def test_no_key_means_two_things_in_one_pane(pane: str) -> None:
    keys = Counter(
        key for action in actions.reachable(pane, live=True) for key in action.keys if action.where != "list"
    )
    assert {key for key, count in keys.items() if count > 1} == set()


async def test_every_action_has_a_handler_and_every_handler_an_action() -> None:
    async with attached() as screen:
        listed = {
            a.id
            for a in (*actions.ACTIONS, *actions.LIVE_ACTIONS)
            if a.where not in {"list", "tree", actions.SEARCH, actions.SEARCH_BOX}
        }
        assert set(screen.main.handlers) == listed


@pytest.mark.turns("size")
@every_size
async def test_the_footer_names_what_drives_the_training_and_always_help(size: tuple[int, int]) -> None:
    async with attached(size=size) as screen:
        line = screen.lines[-1]
        assert line.strip().startswith("] Run a step  c Continue  p Pause")
        assert line.endswith("? Help")


async def test_the_help_page_lists_them_first() -> None:
    async with attached(size=(120, 200)) as screen:
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        assert screen.lines[2].strip() == actions.LIVE_GROUP or actions.LIVE_GROUP in screen.text.split("Moving")[0]
        for action in actions.LIVE_ACTIONS:
            assert action.help[:40] in screen.text
        assert actions.BY_ID["global", "step_forward"].help not in screen.text


async def test_the_palette_finds_them() -> None:
    async with attached() as screen:
        await screen.press("ctrl+p")
        await screen.type("save as")
        await screen.until(lambda: "Save as dump" in screen.text)


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.RUNNING, later(Phase.LOST), later(Phase.DONE)])
async def test_every_action_can_be_asked_for_in_every_state(phase: Phase) -> None:
    """Whatever it does there, the screen goes on; what each does for dumps is tested with dumps."""
    async with attached(2, features=wire.RUNS_TO_NODES) as screen:
        for training in screen.trainings.trainings:
            await screen.stopped(training, 0)
            await screen.stopped(training, 3)
            if phase is not Phase.STOPPED:
                training.become(phase, EVENTS[phase])
        await screen.until(lambda: {state.phase for state in screen.live.trainings()} == {phase})
        await screen.settled()
        pressed: set[tuple[str, str]] = {("global", "quit")}
        for number, (pane, _) in enumerate(actions.PANES, 1):
            for action in actions.reachable(pane, live=True):
                if (action.where, action.id) in pressed:
                    continue
                pressed.add((action.where, action.id))
                await screen.press(str(number), NAMES.get(action.keys[0], action.keys[0]))
                await screen.settled()
                while screen.app.screen is not screen.main:
                    await screen.press("escape")
                    await screen.settled()
                for training in screen.trainings.trainings:
                    if training.phase is Phase.RUNNING and phase is Phase.STOPPED:
                        await screen.stopped(training, training.stop.step + 1 if training.stop else 0)
        assert screen.app.return_code is None
        assert not any("terminate" in orders for orders in screen.orders)
