"""Every key of every action, in its place, on a real dump: what one sees it do. The tables cover the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources.writer import MLP as SMALL
from tests.sources.writer import DumpWriter, Graph, Node, write_step
from tests.thorough import later
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tui_debugger.tui import checker
from tui_debugger.tui.actions import ACTIONS, VALUE_ACTIONS, Action
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.tui.widgets.search import SearchBar

NAN, MANY = "mindspore-2.0-nan", "two ranks with two graphs"
WIDE, NARROW = (200, 50), (80, 24)


@dataclass(frozen=True)
class ScreenState:
    """What one sees at a moment."""

    screen: str
    pane: str
    cursor: int
    rows: tuple[str, ...]
    text: str
    header: str
    notice: str
    chips: str
    position: tuple[int, int | None, int]
    """Rank, step, node row."""
    panes: int
    """Panes on the screen."""
    code: int | None
    """Exit code."""
    typing: bool
    """Keys go into the search box."""

    @property
    def row(self) -> str:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else ""


@dataclass(frozen=True)
class Cell:
    """What one sees of the values."""

    row: int
    column: int
    index: tuple[int, ...] | None
    slice: str
    digits: int
    scientific: bool
    previous: bool
    screen: str
    editing: bool
    text: str
    chosen: int


@dataclass(frozen=True)
class Case:
    """Keys that lead to a situation, and what the key does there."""

    effect: Callable[[ScreenState, ScreenState], bool]
    keys: str = ""
    dump: str = NAN
    size: tuple[int, int] = WIDE


@dataclass(frozen=True)
class Opens:
    """The effect of a key that opens a screen above the panes, and does nothing else."""

    screen: str

    def __call__(self, old: ScreenState, new: ScreenState) -> bool:
        return old.screen == "MainScreen" and new.screen == self.screen


def opens(screen: str) -> Opens:
    return Opens(screen)


def to_pane(pane: str) -> Callable[[ScreenState, ScreenState], bool]:
    return lambda old, new: old.pane != pane and new.pane == pane


def says(text: str) -> Callable[[ScreenState, ScreenState], bool]:
    return lambda old, new: text in new.notice and text not in old.notice


def step(by: int) -> Callable[[ScreenState, ScreenState], bool]:
    return lambda old, new: (new.position[1] or 0) - (old.position[1] or 0) == by and "●" in new.header


def fewer(old: ScreenState, new: ScreenState) -> bool:
    return len(new.rows) < len(old.rows)


def more(old: ScreenState, new: ScreenState) -> bool:
    return len(new.rows) > len(old.rows)


ON_MAIN_SCREEN: dict[tuple[str, str], Case] = {
    ("list", "cursor_up"): Case(lambda a, b: b.cursor == a.cursor - 1, "4 j j"),
    ("list", "cursor_down"): Case(lambda a, b: b.cursor == a.cursor + 1, "4"),
    ("list", "page_up"): Case(lambda a, b: a.cursor - b.cursor > 5, "4 end"),
    ("list", "page_down"): Case(lambda a, b: b.cursor - a.cursor > 5, "4"),
    ("list", "first"): Case(lambda a, b: a.cursor > 0 and b.cursor == 0, "4 end"),
    ("list", "last"): Case(lambda a, b: b.cursor == len(b.rows) - 1 > a.cursor, "4"),
    ("list", "pan_left"): Case(lambda a, b: a.text != b.text and "ckbone" in b.text, "4 n 5 right", size=NARROW),
    ("list", "pan_right"): Case(lambda a, b: a.text != b.text and a.cursor == b.cursor, "4 n 5", size=NARROW),
    ("list", "select"): Case(lambda _, b: b.pane == "tensors" and "Log-op381" in b.text, "4"),
    **{("global", f"pane_{pane}"): Case(to_pane(pane), "4") for pane in ("nodes", "stack", "watchpoints", "tensors")},
    ("global", "pane_hits"): Case(to_pane("hits")),
    ("global", "next_pane"): Case(lambda a, b: (a.pane, b.pane) == ("hits", "tensors"), "4"),
    ("global", "previous_pane"): Case(lambda a, b: (a.pane, b.pane) == ("hits", "watchpoints"), "4"),
    ("global", "zoom"): Case(lambda a, b: (a.panes, b.panes) == (5, 1)),
    ("global", "search"): Case(lambda a, b: "search (~ for" in b.text and "search (~ for" not in a.text),
    ("global", "back"): Case(more, "4 / L o g enter"),
    ("search box", "keep_search"): Case(
        lambda a, b: a.typing and not b.typing and "Log" in b.row and a.rows == b.rows, "4 / L o g"
    ),
    ("search box", "drop_search"): Case(
        lambda a, b: a.typing and not b.typing and more(a, b) and b.row.startswith("◆ 3 Log-op381"), "4 / D i v"
    ),
    ("search", "next_match"): Case(lambda a, b: b.cursor == a.cursor + 1 and a.rows == b.rows, "4 / D i v enter"),
    ("search", "previous_match"): Case(lambda a, b: b.cursor == a.cursor - 1 and a.rows == b.rows, "4 / D i v enter n"),
    ("search", "clear_search"): Case(lambda a, b: more(a, b) and a.row == b.row, "3 / w n c enter"),
    ("global", "step"): Case(opens("StepPrompt")),
    ("global", "step_back"): Case(step(-1), "]"),
    ("global", "step_forward"): Case(step(1)),
    ("global", "forward"): Case(opens("NumberPrompt")),
    ("global", "continue"): Case(lambda _, b: b.position[1] == 3 and " 3 " in b.row and "Log" in b.row, "4"),
    ("global", "pause"): Case(says("nothing is running")),
    ("global", "rank_back"): Case(lambda a, b: (a.position[0], b.position[0]) == (1, 0), ">", MANY),
    ("global", "rank_forward"): Case(
        lambda a, b: (a.position[0], b.position[0]) == (0, 1) and "rank 1" in b.header, "", MANY
    ),
    ("global", "graph_back"): Case(lambda a, b: not a.chips and "graph1" in b.chips, "", MANY),
    ("global", "graph_forward"): Case(lambda a, b: not a.chips and "graph0" in b.chips, "", MANY),
    ("global", "whole_run"): Case(says("this is the whole run")),
    ("global", "history"): Case(opens("HistoryScreen")),
    ("global", "recheck"): Case(lambda a, b: "not checked yet" in a.header and "◐ step 0 checked" in b.header),
    ("global", "recheck_all"): Case(lambda a, b: "not checked yet" in a.header and "● steps 0–5 checked" in b.header),
    ("global", "next_hit"): Case(lambda _, b: b.position[1] == 3 and "Log-op381" in b.row and "hit 1 of" in b.notice),
    ("global", "previous_hit"): Case(lambda a, b: "ReduceSum-op382" in a.row and "Log-op381" in b.row, "n n"),
    ("global", "this_step_only"): Case(fewer, "n ] ] 4"),
    ("global", "next_origin"): Case(lambda a, b: "Log-op381" in a.row and "Div-op385" in b.row, "O"),
    ("global", "report"): Case(opens("TextPrompt"), "n"),
    ("global", "loss"): Case(opens("TrendView"), "n R"),
    **{("global", view.id): Case(opens(view.load().__name__), "n") for view in VIEWS if view.id != "runs"},
    ("global", "runs"): Case(opens("RunPrompt"), "n"),
    ("tree", "close_scope"): Case(lambda a, b: "▾" in a.row and "▸" in b.row and fewer(a, b)),
    ("tree", "open_scope"): Case(lambda a, b: "▸" in a.row and "▾" in b.row and more(a, b), "left"),
    ("tree", "open_all"): Case(lambda a, b: len(b.rows) > len(a.rows) + 100),
    ("nodes", "toggle_watch"): Case(lambda a, b: "●" in b.row and "●" not in a.row, "n"),
    ("nodes", "filter_nodes"): Case(opens("FilterScreen")),
    ("nodes", "clear_filter"): Case(
        lambda a, b: a.rows != b.rows and "Log" in a.chips and not b.chips, "/ L o g enter"
    ),
    ("stack", "clear_line"): Case(lambda a, b: "⌫" in a.text and "⌫" not in b.text, "n 2 enter"),
    ("stack", "stack_mode"): Case(lambda a, b: more(a, b) and "of the run" in b.text, "n 2"),
    ("global", "source"): Case(opens("SourceScreen"), "n"),
    ("global", "new_watchpoint"): Case(opens("WatchpointForm")),
    ("global", "add_recommended"): Case(more, "3 d"),
    ("watchpoints", "edit_watchpoint"): Case(opens("WatchpointForm"), "3"),
    ("watchpoints", "toggle_enabled"): Case(lambda a, b: "●" in a.row and "○" in b.row, "3"),
    ("watchpoints", "delete_watchpoint"): Case(
        lambda a, b: len(b.rows) == len(a.rows) - 1 and "u undoes" in b.notice, "3"
    ),
    ("global", "undo"): Case(more, "3 d"),
    ("global", "redo"): Case(fewer, "3 d u"),
    ("watchpoints", "show_covered"): Case(lambda _, b: "watched by WCL #1" in b.text, "3"),
    ("watchpoints", "save_watchpoints"): Case(opens("TextPrompt"), "3"),
    ("hits", "filter_hits"): Case(opens("HitFilterScreen"), "4"),
    ("hits", "sort_hits"): Case(lambda a, b: "by step" in a.text and "by severity" in b.text, "4"),
    ("hits", "origins_only"): Case(lambda a, b: fewer(a, b) and all("◆" in row for row in b.rows), "4"),
    ("hits", "scope_only"): Case(lambda a, b: fewer(a, b) and "_backbone-Net" in b.chips, "n 4"),
    ("hits", "unfold_hit"): Case(lambda a, b: len(b.rows) == len(a.rows) + 2 and "▾0–1" in b.row, "4", MANY),
    ("hits", "unfold_hits"): Case(lambda a, b: len(b.rows) == 3 * len(a.rows), "4", MANY),
    ("hits", "show_quiet"): Case(more, "4"),
    ("hits", "clear_hit_filter"): Case(more, "4 / L o g enter"),
    ("hits", "export_hit"): Case(opens("TextPrompt"), "4"),
    ("tensors", "export"): Case(opens("TextPrompt"), "n 5"),
    ("tensors", "producer"): Case(
        lambda a, b: "Log-op381" in a.text and "ReduceSum-op380" in b.header + b.text, "n 5 g"
    ),
    ("tensors", "consumers"): Case(
        lambda _, b: "5 Tensors · Default/network-WithLossCell/_backbone-Net/ReduceSum-op382" in b.text, "n 5"
    ),
    ("global", "copy_here"): Case(says("copied 52 characters"), "n"),
    ("global", "screenshot"): Case(says("wrote "), "n"),
    ("global", "notices"): Case(opens("NoticesScreen")),
    ("global", "help"): Case(opens("HelpScreen")),
    ("global", "palette"): Case(opens("CommandPalette")),
    ("global", "redraw"): Case(lambda a, b: a.rows == b.rows and a.panes == b.panes),
    ("global", "suspend"): Case(says("no shell to go back to")),
    ("global", "quit"): Case(lambda a, b: (a.code, b.code) == (None, 0)),
}
"""What each action does: (where, id) of the registry → the situation and the change one sees."""

VALUES: dict[str, tuple[str, Callable[[Cell, Cell], bool]]] = {
    "move(-1,0)": ("j", lambda a, b: (a.row, b.row) == (1, 0)),
    "move(1,0)": ("", lambda a, b: (a.row, b.row) == (0, 1)),
    "move(0,-1)": ("l", lambda a, b: (a.column, b.column) == (1, 0)),
    "move(0,1)": ("", lambda a, b: (a.column, b.column) == (0, 1)),
    "page(-1,0)": ("G", lambda a, b: (a.row, b.row) == (7, 0)),
    "page(1,0)": ("", lambda a, b: (a.row, b.row) == (0, 7)),
    "page(0,-1)": ("end", lambda a, b: (a.column, b.column) == (7, 0)),
    "page(0,1)": ("", lambda a, b: (a.column, b.column) == (0, 7)),
    "to_end(1,False)": ("end", lambda a, b: (a.column, b.column) == (7, 0)),
    "to_end(1,True)": ("", lambda a, b: (a.column, b.column) == (0, 7)),
    "to_end(0,False)": ("G", lambda a, b: (a.row, b.row) == (7, 0)),
    "to_end(0,True)": ("", lambda a, b: (a.row, b.row) == (0, 7)),
    "heat": ("", lambda a, b: "cell 1 × 1" in b.text and "cell 1 × 1" not in a.text),
    "element": ("t l", lambda a, b: "cell 1 × 1" not in b.text and (a.column, b.column) == (0, 1)),
    "fine": ("t", lambda a, b: "fine" in b.text.rpartition("cell 1")[2] and a.text != b.text),
    "slice": ("", lambda a, b: b.editing and not a.editing),
    "fixed(-1)": ("]", lambda a, b: (a.slice, b.slice) == ("[1, 0, :, :]", "[0, 0, :, :]")),
    "fixed(1)": ("", lambda a, b: (a.slice, b.slice) == ("[0, 0, :, :]", "[1, 0, :, :]")),
    "choose(-1)": ("}", lambda a, b: (a.chosen % 2, b.chosen % 2) == (1, 0) and a.text != b.text),
    "choose(1)": ("", lambda a, b: (a.chosen % 2, b.chosen % 2) == (0, 1) and a.text != b.text),
    "bad(1)": ("", lambda a, b: a.index != b.index and "= NaN" in b.text),
    "bad(-1)": ("", lambda a, b: a.index != b.index and "= NaN" in b.text),
    "extreme(True)": ("", lambda a, b: a.index != b.index and "= NaN" not in b.text),
    "extreme(False)": ("", lambda a, b: a.index != b.index and "= NaN" not in b.text),
    "finer(1)": ("", lambda a, b: b.digits == a.digits + 1),
    "finer(-1)": ("", lambda a, b: b.digits == a.digits - 1),
    "scientific": ("", lambda _, b: b.scientific and ("e-" in b.text or "e+" in b.text)),
    "search": ("", lambda a, b: "nan, inf, -inf, > 1e3" in b.text and "nan, inf, -inf, > 1e3" not in a.text),
    "end_search": ("/ 0 enter", lambda a, b: "next 0" in a.text and "next 0" not in b.text and a.index == b.index),
    "bits": ("", lambda a, b: "mantissa" in b.text and "mantissa" not in a.text),
    "previous": ("", lambda a, b: b.previous and not a.previous and a.text != b.text),
    "look_again": ("down right", lambda a, b: a == b),  # nothing was written over
}
"""The same for the values of a tensor of shape (4, 2, 8, 8) with 128 NaN: keys before, and the change."""


_OPENING = {place for place, case in ON_MAIN_SCREEN.items() if isinstance(case.effect, Opens)}
OPENING = [action for action in ACTIONS if (action.where, action.id) in _OPENING]
"""What is closed with Esc, and nothing has happened."""


def of_registry() -> list[object]:
    """Every action by its first key every time, and by its other keys in a thorough run."""
    return [
        (later if at else pytest.param)(action, key, id=f"{action.where}.{action.id}-{key}")
        for action in ACTIONS
        if action not in OPENING
        for at, key in enumerate(action.keys)
    ]


def test_the_tables_cover_every_action() -> None:
    assert set(ON_MAIN_SCREEN) == {(action.where, action.id) for action in ACTIONS if action.keys}
    assert set(VALUES) == {action.id for action in VALUE_ACTIONS}


def read_state(screen: Driver) -> ScreenState:
    main, state = screen.main, screen.main.state
    pane = main.panes[main.current_pane]
    return ScreenState(
        screen=type(screen.app.screen).__name__,
        pane=main.current_pane,
        cursor=pane.table.cursor_row,
        rows=tuple(screen.rows(pane.table)),
        text="" if screen.app.return_code is not None else screen.text,
        header=main.header.plain,
        notice=main.footer.notice,
        chips=str(pane.filters.render()) if pane.filters.display else pane.search_text,
        position=(state.rank, state.step, state.row),
        panes=sum(bool(each.size.width) for each in main.panes.values()),
        code=screen.app.return_code,
        typing=isinstance(screen.app.focused, SearchBar),
    )


NAMES = {
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    "{": "left_curly_bracket",
    "}": "right_curly_bracket",
    "/": "slash",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "*": "asterisk",
    "?": "question_mark",
    "!": "exclamation_mark",
    ":": "colon",
    "$": "dollar_sign",
    "+": "plus",
    "-": "minus",
    "=": "equals_sign",
}
"""What Textual calls the keys that the registry writes as characters."""


async def press(screen: Driver, keys: str) -> None:
    for key in keys.split():
        await screen.press(NAMES.get(key, key))
        await screen.settled()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, each with two root graphs and two steps."""
    writer = DumpWriter(tmp_path_factory.mktemp("many"))
    other = Graph(nodes=(Node("Default/other-Net/Exp-op9", "Exp", (("x", 0),)),), parameters=("x",), id=1, root=1)
    for rank in (0, 1):
        writer.metadata(rank=rank)
        for graph in (SMALL, other):
            writer.graph(graph, rank=rank)
            writer.history([0, 1], rank=rank, graph=graph.id)
        for number in (0, 1):
            write_step(writer, number, rank=rank, seed=number)
            write_step(writer, number, other, rank=rank, seed=number)
    return writer.root


@pytest.mark.parametrize(("action", "key"), of_registry())
async def test_a_key_does_what_the_help_says(
    action: Action,
    key: str,
    open_screen: OpenScreen,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = ON_MAIN_SCREEN[action.where, action.id]
    if action.id in {"recheck", "recheck_all"}:
        monkeypatch.setattr(checker, "QUICK", -1)  # what is quick is checked before anybody asks
    dump = request.getfixturevalue("many") if case.dump == MANY else case.dump
    async with open_screen(dump, size=case.size, step=0) as screen:
        await press(screen, case.keys)
        before = read_state(screen)
        await screen.pilot.press(NAMES.get(key, key))
        if action.id == "quit":
            await screen.until(lambda: screen.app.return_code is not None)
        else:
            await screen.settled()
        after = read_state(screen)
        assert case.effect(before, after), f"{action.help}\nbefore:\n{before}\n\nafter:\n{after.text}\n{after}"


async def test_every_key_that_opens_a_screen_opens_the_one_the_help_says(open_screen: OpenScreen) -> None:
    """One program for all of them."""
    async with open_screen(NAN, step=0) as screen:
        for action in OPENING:
            case = ON_MAIN_SCREEN[action.where, action.id]
            assert (case.dump, case.size) == (NAN, WIDE)
            for key in action.keys:
                await press(screen, case.keys)
                before = read_state(screen)
                await press(screen, key)
                after = read_state(screen)
                assert case.effect(before, after), f"{key}: {action.help}\n{after.screen}:\n{after.text}"
                while screen.app.screen is not screen.main:
                    await press(screen, "escape")


def cell(screen: Driver, values: ValuesScreen) -> Cell:
    grid = values.grid
    return Cell(
        row=grid.row,
        column=grid.column,
        index=grid.cursor_index,
        slice=grid.value_table.view.text if grid.value_table is not None else "",
        digits=grid.form.precision,
        scientific=grid.form.scientific,
        previous=values._showing_previous,
        screen=type(screen.app.screen).__name__,
        editing=values.bar.editing,
        text=screen.text,
        chosen=values.bar._dimension,
    )


async def test_every_key_of_the_values_does_what_the_help_says(open_screen: OpenScreen) -> None:
    """One program for all keys: opening the dump takes longer than any of them."""
    async with open_screen(NAN) as screen:
        await press(screen, "4 / B a t c h M a t M u l - o p 3 9 7 enter enter g")
        for action in VALUE_ACTIONS:
            for key in action.keys or ("",):
                await press(screen, "enter")
                values = screen.app.screen
                assert isinstance(values, ValuesScreen)
                await screen.until(lambda grid=values.grid: grid.value_table is not None)
                keys, effect = VALUES[action.id]
                await press(screen, keys)
                before = cell(screen, values)
                if key:
                    await press(screen, key)
                else:
                    values.run_listed(action)
                    await screen.settled()
                after = cell(screen, values)
                assert effect(before, after), (
                    f"{key}: {action.help}\nbefore:\n{before}\n\nafter:\n{after.text}\n{after}"
                )
                while screen.app.screen is not screen.main:
                    await press(screen, "escape")
