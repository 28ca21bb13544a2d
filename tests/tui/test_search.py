"""The search goes there: the cursor on the first match, matches counted, marked and walked, and Esc back to before."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.terminal.large import open_large
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened_by
from tests.tui.sizes import every_size
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session
from tui_debugger.tui import theme
from tui_debugger.tui.actions import PANES
from tui_debugger.tui.views.origin import OriginView
from tui_debugger.tui.views.registry import VIEWS
from tui_debugger.tui.views.view import View
from tui_debugger.tui.widgets.search import SearchBar
from tui_debugger.tui.widgets.text import SearchPattern
from tui_debugger.tui.widgets.virtual_table import VirtualTable

NAN = "mindspore-2.0-nan"
NUMBERS = {pane: str(number) for number, (pane, _) in enumerate(PANES, 1)}


async def typed(screen: Driver, pane: str, text: str) -> None:
    """Opens the search of a pane and types; keys settle one after the other, as a person's do."""
    await screen.press(NUMBERS[pane], "slash")
    await screen.type(text)
    await screen.settled()


def table(screen: Driver) -> VirtualTable:
    return screen.main.panes[screen.main.current_pane].table


def current(screen: Driver) -> str:
    """The row under the cursor of the pane that has the focus; a hit without its conditions, see ``HitRows``."""
    rows = screen.rows(table(screen))
    row = rows[table(screen).cursor_row].strip() if rows else ""
    return row.partition("out:0")[0] if screen.main.current_pane == "hits" else row


def count(screen: Driver) -> str:
    """How many match, as it stands in the box."""
    bar = screen.main.panes[screen.main.current_pane].search_bar
    assert bar is not None
    line = screen.app.screen._compositor.render_strips()[bar.region.y].crop(bar.region.x, bar.region.right)
    assert line.text.rstrip("│┃ ").endswith(bar.count)
    return bar.count


def marked(screen: Driver, widget: VirtualTable) -> set[str]:
    """The texts of a list that stand out as matches."""
    found = set()
    region = widget.region
    for strip in screen.app.screen._compositor.render_strips()[region.y : region.bottom]:
        for text, style, _ in strip.crop(region.x, region.right):
            if style is not None and style.bgcolor == theme.MATCH.bgcolor:
                found.add(text)
    return found


@pytest.mark.turns("size")
@every_size
async def test_in_nodes_the_cursor_goes_to_the_first_node_that_matches(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("1", "home")
        before = current(screen)
        await typed(screen, "nodes", "Mul-op4")
        assert "Mul-op4" in current(screen)
        assert count(screen).startswith("1 of ")
        assert marked(screen, table(screen)) == {"Mul-op4"}
        await screen.press("enter")
        first = screen.main.state.row
        assert screen.main.nodes_pane.current_row == first >= 0
        await screen.press("n")
        await screen.settled()
        assert count(screen).startswith("2 of ")
        assert "Mul-op4" in current(screen)
        assert screen.main.state.row > first
        await screen.press("N", "N")
        await screen.settled()
        total = int(count(screen).partition(" of ")[2])
        assert count(screen) == f"{total} of {total}"  # after the first comes the last
        await screen.press("escape")
        await screen.settled()
        assert current(screen) == before
        assert not marked(screen, table(screen))
        assert "Mul-op4" not in screen.main.nodes_pane.count


@pytest.mark.turns("size")
@every_size
async def test_the_next_key_acts_on_the_match(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("1", "home")
        await typed(screen, "nodes", "div-op385")
        await screen.press("enter", "o")
        await screen.settled()
        assert isinstance(screen.app.screen, OriginView)
        assert screen.app.screen.about.key.node.endswith("Div-op385")
        await screen.press("escape", "enter")
        await screen.settled()
        assert screen.main.current_pane == "tensors"
        assert screen.main.tensors_pane.count.endswith("Div-op385")


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize(
    ("pane", "text", "marks"),
    [
        ("hits", "norm-rownorm", "norm-RowNorm"),
        ("stack", "self.log", "self.log"),
        ("tensors", "float32", "float32"),
        ("watchpoints", "weight", "weight"),
    ],
)
async def test_every_pane_searches_alike(
    open_screen: OpenScreen, size: tuple[int, int], pane: str, text: str, marks: str
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press(NUMBERS[pane])
        before, rows = current(screen), screen.pane(pane)
        await typed(screen, pane, text)
        assert re.fullmatch(r"1 of \d+", count(screen))
        total = int(count(screen).partition(" of ")[2])
        assert isinstance(screen.app.focused, SearchBar)
        assert marked(screen, table(screen)) <= {marks, marks.partition("-")[2]}
        first = current(screen)
        await screen.press("down")
        assert screen.app.focused is table(screen)
        assert current(screen) == first
        await screen.press("n")
        await screen.settled()
        assert count(screen) == f"{min(2, total)} of {total}"
        await screen.press("N")
        await screen.settled()
        assert (current(screen), count(screen)) == (first, f"1 of {total}")
        await screen.press("escape")
        await screen.settled()
        assert (current(screen), screen.pane(pane)) == (before, rows)
        bar = screen.main.panes[pane].search_bar
        assert bar is not None
        assert not bar.size.height


def at_the_top(screen: Driver) -> int:
    """How many nodes the scopes and nodes at the top of the tree come to, by the numbers beside them."""
    pane = screen.main.nodes_pane
    assert pane.scopes is not None
    found, rows = 0, pane.table.rows
    for row in range(rows.row_count):
        entry = rows.key(row)
        assert isinstance(entry, int)
        if pane.scopes.depth[entry] == 0:
            label = str(rows.cells(row)[1])
            found += int(label.rpartition(" ")[2].replace(",", "")) if pane.scopes.is_scope(entry) else 1
    return found


@pytest.mark.turns("size")
@every_size
async def test_title_tree_search_and_filter_count_the_same_nodes(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        pane = screen.main.nodes_pane
        await screen.press("1", "home")
        assert at_the_top(screen) == int(pane.count) == 346
        await typed(screen, "nodes", "layernorm")
        assert pane.count == f"{at_the_top(screen)} of 346"
        assert count(screen) == f"1 of {at_the_top(screen)}"
        await screen.press("escape")
        await screen.settled()
        assert at_the_top(screen) == 346
        await typed(screen, "watchpoints", "zero")
        assert screen.main.watchpoints_pane.count == "1 of 6"
        if screen.main.has_class("-single"):
            assert "3 Watchpoints 6 " in screen.text


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("pane", NUMBERS)
async def test_a_slash_after_an_accepted_search_begins_a_new_text(
    open_screen: OpenScreen, size: tuple[int, int], pane: str
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press(NUMBERS[pane])
        before = current(screen), screen.pane(pane)
        await typed(screen, pane, "zz")
        await screen.press("enter")
        await screen.settled()
        await typed(screen, pane, "e")
        bar = screen.main.panes[pane].search_bar
        assert bar is not None
        assert bar.value == "e"
        assert count(screen).startswith("1 of ")
        await screen.press("enter", "slash", "enter")  # without a letter the text stays
        await screen.settled()
        assert bar.value == "e"
        await screen.press("escape")
        await screen.settled()
        assert (current(screen), screen.pane(pane)) == before


@pytest.mark.turns("size")
@every_size
async def test_esc_in_the_box_takes_everything_back(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        for pane, number in NUMBERS.items():
            await screen.press(number)
            place, rows = (table(screen).cursor_row, table(screen).top), screen.pane(pane)
            await typed(screen, pane, "a")
            await screen.press("escape")
            await screen.settled()
            assert ((table(screen).cursor_row, table(screen).top), screen.pane(pane)) == (place, rows)
            assert screen.app.focused is table(screen)


async def test_an_empty_box_stands_where_the_search_began(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("4", "down", "down")
        before = current(screen)
        await typed(screen, "hits", "div")
        assert current(screen) != before
        await screen.press("backspace", "backspace", "backspace")
        await screen.settled()
        assert current(screen) == before
        assert not count(screen)


async def test_backspace_in_the_list_shows_all_and_the_cursor_stays(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        for pane, text in (("nodes", "op442"), ("hits", "op442"), ("stack", "self.div"), ("watchpoints", "zero")):
            await typed(screen, pane, text)
            await screen.press("enter")
            match, few = current(screen), len(screen.pane(pane))
            await screen.press("backspace")
            await screen.settled()
            assert current(screen) == match
            assert len(screen.pane(pane)) > few


async def test_the_cursor_stays_in_hits_that_came_part_by_part(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        pane, result = screen.main.hits_pane, screen.main.state.result
        assert result is not None
        for part, final in ((replace(result), False), (result, True)):
            pane.show(part, place=(0, 3), state="", empty="", final=final)
        await typed(screen, "hits", "op442")
        match = current(screen)
        await screen.press("enter", "backspace")
        await screen.settled()
        assert "op442" in match
        assert current(screen) == match


@pytest.mark.parametrize("pane", NUMBERS)
async def test_a_broken_expression_says_so_and_moves_nothing(open_screen: OpenScreen, pane: str) -> None:
    async with open_screen(NAN) as screen:
        await typed(screen, pane, "~a")
        row, rows = current(screen), screen.pane(pane)
        await screen.press("left_square_bracket")
        await screen.settled()
        assert "not a regular expression" in screen.main.footer.notice
        assert count(screen) == "broken expression"
        assert (current(screen), screen.pane(pane)) == (row, rows)
        await screen.press("enter")
        assert isinstance(screen.app.focused, SearchBar)  # there is something to put right
        await screen.press("right_square_bracket", "backspace", "backspace")
        await screen.settled()
        assert not screen.main.footer.notice
        assert re.fullmatch(r"1 of [\d,]+|no match", count(screen))


@pytest.mark.turns("size")
@every_size
async def test_where_nothing_is_found_nothing_is_said_of_a_row(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        await screen.press("1", "home")
        for pane, number in NUMBERS.items():
            await screen.press(number)
            await screen.settled()
            before = screen.main.panes[pane].detail
            await typed(screen, pane, "zzz")
            assert (count(screen), screen.main.panes[pane].detail) == ("no match", "")
            await screen.press("escape")
            await screen.settled()
            assert screen.main.panes[pane].detail == before


async def test_nothing_found_is_said(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        for pane in NUMBERS:
            await typed(screen, pane, "no such thing")
            assert count(screen) == "no match"
            await screen.press("enter", "n", "escape")
            await screen.settled()


@every_size
async def test_tensors_that_a_search_hides_are_not_said_to_be_missing(
    open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size) as screen:
        await typed(screen, "tensors", "zzz")
        assert count(screen) == "no match"
        assert "no tensor matches" in screen.text
        assert "nothing of this node" not in screen.text
        await screen.press("escape")
        await screen.settled()
        assert "no tensor matches" not in screen.text


async def test_without_a_search_n_walks_the_hits(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await typed(screen, "watchpoints", "w")
        await screen.press("enter", "n")
        assert not screen.main.footer.notice
        await screen.press("1", "n")  # the search is in another pane
        assert screen.main.footer.notice.startswith("hit ")


async def test_the_footer_names_the_keys_of_the_search(open_screen: OpenScreen) -> None:
    async with open_screen(NAN, size=(80, 24)) as screen:
        await screen.press("1")
        usual = screen.lines[-1]
        await typed(screen, "nodes", "log")
        assert screen.lines[-1].split() == ["Enter", "To", "the", "match", "Esc", "Back"]
        await screen.press("enter")
        assert screen.lines[-1].startswith(" n Next  N Previous  Esc Back  ⌫ Show all")
        assert screen.lines[-1].endswith("? Help")
        await screen.press("escape")
        await screen.settled()
        assert screen.lines[-1] == usual


async def test_a_walk_through_found_hits_shows_their_tensors(open_screen: OpenScreen) -> None:
    async with open_screen(NAN) as screen:
        await screen.press("4")
        step, row = screen.main.state.step, screen.main.state.row
        await typed(screen, "hits", "realdiv")
        await screen.press("enter", "n", "n")
        await screen.settled()
        hit = screen.main.hits_pane.current
        assert hit is not None
        assert (screen.main.state.step, screen.main.state.row) == (hit.key.step, hit.row) != (step, row)
        await screen.press("escape")
        await screen.settled()
        assert (screen.main.state.step, screen.main.state.row) == (step, row)


# -- views -----------------------------------------------------------------------------------------

VIEW_TEXTS = {
    "origin": "e",
    "explain": "tensor",
    "relations": "e",
    "trend": ".",
    "trajectory": "e",
    "health": "mul",
    "ranks": "mul",
    "audit": "mul",
}
"""What is found in the list of each view that has one."""


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("kind", VIEW_TEXTS)
async def test_views_mark_the_rows_and_the_cursor_walks_them(
    open_screen: OpenScreen, size: tuple[int, int], kind: str
) -> None:
    key = {view.id: view.key for view in VIEWS}[kind]
    async with open_screen(NAN, size=size) as screen:
        await screen.press("4", "end", key)
        await screen.settled()
        view = screen.app.screen
        assert isinstance(view, View)
        lists = list(view.query(VirtualTable))

        def places() -> list[tuple[bool, int, int]]:
            return [(each.has_focus, each.cursor_row, each.row_count) for each in lists]

        before, text = places(), VIEW_TEXTS[kind]
        await screen.press("slash")
        await screen.type("".join(text))
        await screen.settled()
        bar = view.query_one(SearchBar)
        await screen.until(lambda: re.fullmatch(r"1 of \d+", bar.count))
        total = int(bar.count.partition(" of ")[2])
        assert any(line.rstrip().endswith(bar.count) for line in screen.lines)
        found = {mark.lower().rstrip("…") for each in lists for mark in marked(screen, each)}
        assert found == {text}
        await screen.press("enter")
        for number in [*range(2, total + 1), 1]:
            await screen.press("n")
            await screen.settled()
            assert bar.count == f"{number} of {total}"
            shown = view.focused
            assert isinstance(shown, VirtualTable)
            assert text in shown.row_text(shown.cursor_row).lower()
        await screen.press("N")
        assert bar.count == f"{total} of {total}"
        assert "matches" in screen.text
        await screen.press("escape")
        await screen.settled()
        assert screen.app.screen is view
        assert places() == before
        assert not any(marked(screen, each) for each in lists)
        await screen.press("escape")
        assert screen.app.screen is screen.main


# -- large runs --------------------------------------------------------------------------------------

NODES = 100_000


@pytest.fixture
def open_100_000() -> Callable[[ProgressFn], Session]:
    def open_session(progress: ProgressFn) -> Session:
        session = open_large(NODES, 1)
        session.open(progress)
        return session

    return open_session


async def test_keys_get_through_while_100_000_rows_are_searched_and_stale_answers_are_dropped(
    open_100_000: Callable[[ProgressFn], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_by(open_100_000, title="large", recommended=False) as screen:
        gate, asked = threading.Event(), []
        select = Session.select

        def slow(self: Session, rank: int, query: object, step: int | None) -> object:
            asked.append(getattr(query, "text", ""))
            assert gate.wait(20)
            return select(self, rank, query, step)  # type: ignore[arg-type]  # what it was called with

        monkeypatch.setattr(Session, "select", slow)
        await screen.press("1", "slash")
        await screen.type("op9")
        await screen.until(lambda: asked)
        await screen.type("99")
        bar = screen.main.nodes_pane.search_bar
        assert bar is not None
        assert (bar.value, bar.count) == ("op999", "…")  # the box follows while the search waits
        await screen.press("enter", "n")  # goes on ahead of the answer
        gate.set()
        await screen.settled()
        assert len(asked) < len("op999")  # what was typed meanwhile is one question
        assert bar.value == "op999"
        await screen.until(lambda: re.fullmatch(r"2 of [\d,]+", bar.count))
        nodes = screen.main.nodes_pane.nodes
        assert nodes is not None
        assert "op999" in nodes.names[screen.main.nodes_pane.current_row]
        expected = sum("op999" in name for name in nodes.names)
        assert bar.count == f"2 of {expected:,}"


# -- what is looked for ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [("fc", ["FC"]), ("~f.", ["FC", "fc"]), ("c2", ["C2"]), (".", ["."]), ("~x*", []), ("zz", [])],
)
def test_a_pattern_finds_parts_whatever_the_case(text: str, found: list[str]) -> None:
    pattern = SearchPattern.of(text)
    assert pattern is not None
    name = "FC2.fc" if text == "~f." else "FC2.weight"
    spans = pattern.spans(name)
    assert [name[first:last] for first, last in spans] == found
    assert pattern.test(name) == bool(found or text == "~x*")


@pytest.mark.parametrize("text", ["", "~"])
def test_nothing_to_look_for_is_no_pattern(text: str) -> None:
    assert SearchPattern.of(text) is None
