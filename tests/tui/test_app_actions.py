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
from tui_debugger.tui.views.compare import CompareView
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.tui.views.runs_map import RunsMapView
from tui_debugger.tui.widgets.search import SearchBar
from tui_debugger.tui.widgets.virtual_table import VirtualTable

SAFE = re.compile(r"[!-~]|up|down|left|right|pageup|pagedown|home|end|enter|escape|space|backspace|tab|shift\+tab|f\d+")
"""Keys that survive tmux and every terminal."""
ALSO_SAFE = {"ctrl+p", "ctrl+c", "ctrl+l", "ctrl+z", "comma"}
NOT_NOW = {"clear_filter", "clear_hit_filter", "clear_line"}
"""Actions that do nothing as long as nothing is filtered."""
TREE_OVER_LIST = {"left", "right", "h", "l"}
"""The tree opens and closes where a list moves text sideways."""


@pytest.mark.parametrize("pane", [pane for pane, _ in actions.PANES])
def test_no_key_means_two_things_in_one_pane(pane: str) -> None:
    keys = Counter(key for a in actions.ACTIONS if a.where in actions.WHERE[pane] for key in a.keys)
    twice = {key for key, count in keys.items() if count > 1}
    assert twice == (TREE_OVER_LIST if pane == "nodes" else set())


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
            keys = {k for a in actions.ACTIONS if a.where == name for k in a.keys or (actions.NO_KEY,)}
            assert bound(list(pane.BINDINGS)) == keys  # type: ignore[arg-type]


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
            assert re.match(rf" {first}(Its nodes|\w+)  s Step  w Watch  ", line), "what leads to the cause comes first"
            if size[0] >= 120:
                assert "  C Compare  D Runs  X Report  q Quit  " in line, "no ranks, and nothing to undo"
            if size[0] >= 200:
                own = [a for a in actions.ACTIONS if a.where == name and a.id not in {*actions.BY_ENTER, *NOT_NOW}]
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


MEANINGS = 130
"""Half of what keys meant before they meant the same in every list: 259 pairs of a key and a title."""


def test_a_key_means_the_same_wherever_it_works() -> None:
    views = [action for view in VIEWS for action in view.load().OWN_ACTIONS]
    every = (*actions.ACTIONS, *actions.LIVE_ACTIONS, *actions.START_ACTIONS, *actions.VIEW_ACTIONS)
    titles: dict[str, set[str]] = {}
    for action in (*every, *actions.VALUE_ACTIONS, *views, *RunsMapView.OWN_ACTIONS):
        for key in action.keys:
            titles.setdefault(key, set()).add(action.title)
    assert sum(map(len, titles.values())) <= MEANINGS
    for key, title in {"n": "Next", "N": "Previous", "f": "Filter", "comma": "Sort", "e": "Export"}.items():
        assert titles[key] == {title}, key
    assert titles["D"] == {"Two runs"}
    assert titles["u"] == {"Undo"}


@pytest.mark.parametrize(
    ("words", "title"),
    [
        *[(word, word.capitalize()) for word in ("explain", "recheck", "zoom", "export", "quit", "compare")],
        ("loss", "Through the steps"),
        ("reset", "Step"),
        ("undo", "Undo"),
        ("delete all", "Delete all"),
        ("next hit", "Next"),
    ],
)
async def test_help_and_palette_find_an_action_by_any_of_its_words(
    open_screen: OpenScreen, words: str, title: str
) -> None:
    async with open_screen("mindspore-2.0-mlp") as screen:
        await screen.press("question_mark")
        await screen.type(words)
        assert f" {title}: " in screen.text
        await screen.press("escape", "colon")
        await screen.type(words)
        await screen.until(lambda: f"  {title}" in screen.text)


@every_size
async def test_help_runs_the_action_under_its_cursor(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen("mindspore-2.0-mlp", size=size) as screen:
        await screen.press("question_mark")
        await screen.type("delete all")
        await screen.press("enter")
        await screen.settled()
        assert not screen.pane("watchpoints")
        assert "undoes" in screen.main.footer.notice
        await screen.press("question_mark")
        await screen.type("compare")
        await screen.press("enter")
        await screen.settled()
        assert type(screen.app.screen).__name__ == "CompareView"
        await screen.press("escape", "question_mark")
        await screen.type("after the last the first")
        await screen.press("enter")
        assert "n works elsewhere: While searching (/)" in screen.main.footer.notice
        await screen.press("C", "colon")
        await screen.type("scientific")
        await screen.until(lambda: "Scientific notation on and off" in screen.text)
        await screen.press("enter")
        compare = screen.app.screen_stack[1]
        assert isinstance(compare, CompareView)
        await screen.until(lambda: compare.table.grid.form.scientific)


async def test_the_palette_begins_with_what_was_used_then_with_what_is_most_useful(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        Commands._used.clear()
        await screen.press("colon")
        await screen.until(lambda: "Goes to the next hit" in screen.text)
        places = [
            screen.text.index(text) for text in ("Goes to the next hit", "Walks from this tensor", "Goes to a step")
        ]
        assert places == sorted(places)
        await screen.type("run history")
        await screen.until(lambda: "Run history  y" in screen.text)
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, HistoryScreen))
        await screen.press("escape", "colon")
        await screen.until(lambda: "Goes to the next hit" in screen.text)
        assert screen.text.index("Run history") < screen.text.index("Goes to the next hit")


async def test_the_footer_has_only_what_is_possible_now(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        assert "⌫" not in screen.lines[-1]
        assert "u Undo" not in screen.lines[-1]
        await screen.press("3", "d")
        await screen.settled()
        assert "u Undo" in screen.lines[-1]
        await screen.press("1", "slash", "L", "o", "g", "enter")
        await screen.settled()
        assert "⌫ Show all" in screen.lines[-1]


async def test_escape_clears_a_filter_where_it_was_set_and_goes_back_to_where_one_came_from(
    open_screen: OpenScreen,
) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        await screen.press_each("4", "x")
        origins = len(screen.pane("hits"))
        await screen.press_each("escape")
        assert len(screen.pane("hits")) > origins
        await screen.press_each("enter")
        assert screen.main.current_pane == "tensors"
        await screen.press_each("escape")
        assert screen.main.current_pane == "hits"
        await screen.press_each("5", "escape")
        assert screen.main.current_pane == "tensors", "one did not come from anywhere"
        for key in ("escape", "backspace"):
            await screen.press_each("2", "enter")
            assert screen.main.state.query.line is not None
            await screen.press_each("2", key)
            assert screen.main.state.query.line is None
