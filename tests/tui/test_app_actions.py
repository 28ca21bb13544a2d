"""One registry of actions: every key works, none collides, every page that lists keys agrees."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from textual.binding import Binding

from tests.tui.conftest import OpenScreen
from tests.tui.sizes import every_size
from tui_debugger.tui import actions
from tui_debugger.tui.app import Commands
from tui_debugger.tui.dialogs.pages import HelpScreen, HistoryScreen
from tui_debugger.tui.main_screen import MainScreen
from tui_debugger.tui.panes.nodes import NodeTree
from tui_debugger.tui.widgets.search import SearchBar
from tui_debugger.tui.widgets.virtual_table import VirtualTable

SAFE = re.compile(r"[!-~]|up|down|left|right|pageup|pagedown|home|end|enter|escape|space|backspace|tab|shift\+tab|f\d+")
"""Keys that survive tmux and every terminal."""
ALSO_SAFE = {"ctrl+p", "ctrl+c", "ctrl+l", "ctrl+z", "comma"}
PRODUCER_OVER_UNDO = {"u"}
"""In the tensors ``u`` goes to the producer; undo, which every other pane has, is one key away."""
DELETE_OVER_TWO_RUNS = {"D"}
"""In the watchpoints ``D`` deletes all of them, as ever; the view of two runs is one key away."""
TREE_OVER_LIST = {"left", "right", "h", "l"}
"""The tree opens and closes where a list moves text sideways."""


@pytest.mark.parametrize("pane", [pane for pane, _ in actions.PANES])
def test_no_key_means_two_things_in_one_pane(pane: str) -> None:
    keys = Counter(key for a in actions.ACTIONS if a.where in actions.WHERE[pane] for key in a.keys)
    twice = {key for key, count in keys.items() if count > 1}
    kept = {"nodes": TREE_OVER_LIST, "tensors": PRODUCER_OVER_UNDO, "watchpoints": DELETE_OVER_TWO_RUNS}
    assert twice == kept.get(pane, set())


def test_only_keys_that_survive_tmux_are_used() -> None:
    for action in actions.ACTIONS:
        for key in action.keys:
            assert SAFE.fullmatch(key) or key in ALSO_SAFE, key


def test_ids_are_unique_and_every_pane_has_its_number() -> None:
    assert len(actions.BY_ID) == len(actions.ACTIONS)
    ids = Counter(a.id for a in actions.ACTIONS)
    assert not [id_ for id_, count in ids.items() if count > 1]
    assert [actions.BY_ID["global", f"pane_{pane}"].keys for pane, _ in actions.PANES] == [(c,) for c in "12345"]


async def test_every_action_has_a_handler_and_every_handler_an_action(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", recommended=False) as screen:
        own = {"list": VirtualTable, "tree": NodeTree, actions.SEARCH: VirtualTable, actions.SEARCH_BOX: SearchBar}
        listed = {a.id for a in actions.ACTIONS if a.where not in own}
        assert set(screen.main.handlers) == listed
        for where, widget in own.items():
            for action in actions.ACTIONS:
                if action.where == where:
                    assert hasattr(widget, f"action_{action.id}")


async def test_bindings_come_from_the_registry(open_screen: OpenScreen) -> None:
    def bound(bindings: list[Binding]) -> set[str]:
        return {key for binding in bindings for key in binding.key.split(",")}

    assert bound(list(MainScreen.BINDINGS)) == {
        k for a in (*actions.ACTIONS, *actions.LIVE_ACTIONS) if a.where == "global" for k in a.keys
    }  # type: ignore[arg-type]
    async with open_screen("mindspore-2.0-mlp", recommended=False) as screen:
        for name, pane in screen.main.panes.items():
            assert bound(list(pane.BINDINGS)) == {k for a in actions.ACTIONS if a.where == name for k in a.keys}  # type: ignore[arg-type]


@every_size
async def test_the_footer_names_keys_that_work_here_and_always_help(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen("mindspore-2.0-mlp", size=size) as screen:
        for number, (name, _) in enumerate(actions.PANES, 1):
            await screen.press(str(number))
            assert screen.main.current_pane == name
            line = screen.lines[-1]
            assert line.rstrip().endswith("? Help")
            first = "n Hit  o Origin  E Explain  Enter "
            assert re.match(rf" {first}(Its nodes|\w+)  r Recheck  ", line), "what leads to the cause comes first"
            own = [a for a in actions.ACTIONS if a.where == name and a.id not in actions.BY_ENTER]
            assert f"{own[0].main_key} {own[0].title}" in line
            titles = [part.split(" ", 1)[1] for part in re.split("  +", line.strip())]
            assert len(titles) == len(set(titles)), "no two keys of one meaning"


async def test_the_help_page_lists_every_action(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", size=(120, 200)) as screen:
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        for action in actions.ACTIONS:
            assert action.help[:40] in screen.text


async def test_the_palette_finds_actions_and_does_them(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp") as screen:
        assert Commands in screen.app.COMMANDS
        await screen.press("ctrl+p")
        await screen.type("zoom")
        await screen.until(lambda: "Zoom" in screen.text)
        await screen.press("down", "enter")
        await screen.until(lambda: screen.main.zoomed)


@pytest.mark.turns("size")
@every_size
async def test_the_palette_finds_an_action_by_its_old_word(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen("mindspore-2.0-mlp", size=size) as screen:
        await screen.press("ctrl+p")
        await screen.type("execution history")
        await screen.until(lambda: "MindInsight: execution history" in screen.text)
        await screen.press("down", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, HistoryScreen))


async def test_keys_that_drive_trainings_do_nothing_on_a_dump(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp") as screen:
        await screen.press("escape")  # the message of the first check goes with any key
        before = screen.text
        assert actions.LIVE_ONLY
        for action in actions.LIVE_ACTIONS:
            if action.id in actions.LIVE_ONLY:
                await screen.press(*("full_stop" if key == "." else key for key in action.keys))
        await screen.settled()
        assert screen.text == before
        assert not actions.LIVE_ONLY & {action.id for action in screen.main.keys_here()}


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("pane", [pane for pane, _ in actions.PANES])
async def test_help_begins_with_the_keys_of_the_pane_then_with_what_leads_to_the_cause(
    open_screen: OpenScreen, pane: str, size: tuple[int, int]
) -> None:
    async with open_screen("mindspore-2.0-mlp", size=size) as screen:
        await screen.press(str(1 + [name for name, _ in actions.PANES].index(pane)), "question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        own = next(action for action in actions.ACTIONS if action.where == pane)
        assert screen.lines[2].strip("▌ ") == own.group
        assert screen.lines[3].strip().startswith("Enter")
        help_page = screen.app.screen
        table = help_page.query_one(VirtualTable)
        text = [table.row_text(row).strip() for row in range(table.row_count)]
        headings = [line for line in text if line in {action.group for action in actions.ACTIONS}]
        assert headings[:2] == [own.group, actions.CAUSES]
        assert len(headings) == len(set(headings)), "each heading once"
        await screen.type("upstream")
        assert "Walks from this tensor upstream" in screen.text


async def test_help_in_a_list_that_is_searched_begins_with_the_keys_of_the_search(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-mlp", size=(80, 24)) as screen:
        await screen.press("3", "slash", "w", "enter", "question_mark")
        assert "While searching" in screen.lines[2]
        assert "Watchpoints (3)" in screen.text
