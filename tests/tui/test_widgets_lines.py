"""Windows onto many lines: what is drawn again, the scroll bar, the wheel."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.strip import Strip
from textual.widgets import Input

from tests.tui.test_widgets_table import COLUMNS, CountedRows
from tui_debugger.tui import theme
from tui_debugger.tui.widgets.bars import HeaderBar
from tui_debugger.tui.widgets.line_window import row_at, thumb
from tui_debugger.tui.widgets.text import changed_until, joined
from tui_debugger.tui.widgets.virtual_table import ListRows, VirtualTable

STYLES = [
    Style(),
    Style(bold=True),
    Style(color="red"),
    Style(bgcolor="blue"),
    Style(reverse=True),
    Style(bgcolor="red"),
]
PIECES = st.tuples(st.text("ab ─", min_size=1, max_size=6), st.sampled_from(STYLES)).map(lambda two: Segment(*two))
LINES = st.lists(PIECES, max_size=8)


def cells(segments: list[Segment]) -> list[tuple[str, Style | None]]:
    """Characters with their styles; everything here is one cell wide."""
    return [(char, segment.style) for segment in segments for char in segment.text]


def looks(char: str, style: Style | None) -> object:
    """What a person sees: of a blank in plain styles only the background."""
    plain = style is not None and not style.reverse
    return (char, style.bgcolor) if style is not None and char == " " and plain else (char, style)


@given(LINES)
def test_joined_pieces_look_the_same_and_are_no_more(line: list[Segment]) -> None:
    found = joined(line)
    assert len(found) <= len(line)
    assert [looks(*cell) for cell in cells(found)] == [looks(*cell) for cell in cells(line)]


def test_blanks_between_words_of_one_background_cost_no_change_of_style() -> None:
    red, dim = Style(color="red"), Style(color="grey50")
    line = [Segment(" ", Style()), Segment("x", red), Segment("  ", dim), Segment("y", dim), Segment(" ", red)]
    assert joined(line) == [Segment(" x  ", red), Segment("y ", dim)]


@given(LINES, LINES)
def test_a_line_is_drawn_up_to_its_last_change(old: list[Segment], new: list[Segment]) -> None:
    until = changed_until(Strip(old), Strip(new))
    before, after = cells(old), cells(new)
    if len(before) == len(after):
        assert after[:until] + before[until:] == after
        assert until or before == after
    else:
        assert until == len(after)
    assert changed_until(Strip(new), Strip([*new])) == 0


def test_wide_characters_are_drawn_whole() -> None:
    old, new = Strip([Segment("a宽", Style())]), Strip([Segment("b宽", Style())])
    assert changed_until(old, new) == 3
    assert changed_until(None, new) == 3
    assert changed_until(new, new) == 0


@given(st.integers(0, 2000), st.integers(1, 60), st.data())
def test_the_thumb_tells_where_one_is(rows: int, page: int, data: st.DataObject) -> None:
    last = max(rows - page, 0)
    top = data.draw(st.integers(0, last))
    found = thumb(rows, page, top)
    if rows <= page:
        assert not found
        return
    assert 0 <= found.start < found.stop <= page
    if page - len(found) >= 2:
        assert (found.start == 0) == (top == 0)
        assert (found.stop == page) == (top == last)
    assert thumb(rows, page, max(top - 1, 0)).start <= found.start


@given(st.integers(0, 2000), st.integers(1, 60), st.integers(-5, 70))
def test_the_scroll_bar_leads_everywhere(rows: int, page: int, line: int) -> None:
    assert 0 <= row_at(line, rows, page) <= max(rows - page, 0)
    assert row_at(-5, rows, page) == 0
    assert row_at(page + 5, rows, page) == max(rows - page, 0)


class CountedTable(VirtualTable):
    """A table that counts how often each of its lines is drawn."""

    def __init__(self, *rows: str) -> None:
        super().__init__(COLUMNS, ListRows([(row, row, row) for row in rows]) if rows else CountedRows(1_000_000))
        self.lines: Counter[int] = Counter()

    def render_line(self, y: int) -> Strip:
        self.lines[y] += 1
        return super().render_line(y)


class TableApp(App[None]):
    def __init__(self, table: CountedTable) -> None:
        super().__init__()
        self.table = table

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Input()
            yield self.table


async def test_a_change_of_one_row_draws_that_row() -> None:
    table = CountedTable("a", "b", "c")
    async with TableApp(table).run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        table.lines.clear()
        table.set_rows(ListRows([(row, row, row) for row in ("a", "B", "c")]))
        await pilot.pause()
        assert table.lines == {2: 1}  # the header is line 0
        table.set_rows(ListRows([(row, row, row) for row in ("a", "B", "c", "d")]))
        await pilot.pause()
        assert table.lines == {2: 1, 4: 1}
        table.redraw()
        await pilot.pause()
        assert table.lines == {2: 1, 4: 1}


async def test_the_focus_draws_the_cursor_only() -> None:
    table = CountedTable("a", "b", "c")
    async with TableApp(table).run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        table.lines.clear()
        table.focus(scroll_visible=False)
        await pilot.pause()
        assert table.has_focus
        assert table.lines[1] >= 1
        table.lines.clear()
        pilot.app.query_one(Input).focus(scroll_visible=False)
        await pilot.pause()
        assert not table.has_focus
        assert table.lines == {1: 1}
        assert not table.has_pseudo_class("focus")


async def test_the_wheel_moves_the_window_and_not_the_cursor() -> None:
    table = CountedTable()
    async with TableApp(table).run_test(size=(40, 12)) as pilot:
        await pilot._post_mouse_events([_event("MouseScrollDown")], table, offset=(3, 3))
        await pilot.pause()
        assert table.top > 0
        assert table.cursor_row == 0
        await pilot._post_mouse_events([_event("MouseScrollUp")], table, offset=(3, 3))
        await pilot.pause()
        assert table.top == 0


@pytest.mark.parametrize(("line", "part"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
async def test_the_scroll_bar_can_be_pulled(line: float, part: float) -> None:
    table = CountedTable()
    async with TableApp(table).run_test(size=(40, 24)) as pilot:
        await pilot.pause()
        y = 1 + round((table.page - 1) * line)
        await pilot.mouse_down(table, offset=(table.size.width - 1, y))
        await pilot.pause()
        assert table.top / (table.row_count - table.page) == pytest.approx(part, abs=0.06)
        await pilot.hover(table, offset=(2, 1))
        await pilot.pause()
        assert table.top == 0  # still pulled, though the pointer left the bar
        await pilot.mouse_up(table, offset=(2, 1))
        await pilot.hover(table, offset=(2, 12))
        await pilot.pause()
        assert table.top == 0
        assert table.cursor_row == 0


def _event(name: str) -> type:
    from textual import events

    found: type = getattr(events, name)
    return found


async def test_the_state_of_the_hits_and_its_keys_stay_and_details_beside_it_go_where_there_is_little_room() -> None:
    class Bars(App[None]):
        def compose(self) -> ComposeResult:
            yield HeaderBar()

    covered = Text("921 findings").append(" · 4,149 checked", theme.DIM).append(" · 30 Inf by design", theme.DIM)
    covered.append("  ! 2 notices", theme.DOUBT)
    state, nothing = Text("◐ 3 of 9 steps checked: R goes on"), Text()
    for width, right in (
        (110, covered.plain),
        (80, "921 findings · 4,149 checked  ! 2 notices"),
        (62, "921 findings  ! 2 notices"),
    ):
        app = Bars()
        async with app.run_test(size=(width, 24)) as pilot:
            header = app.query_one(HeaderBar)
            header.show((nothing, nothing), (nothing, nothing), (state, covered))
            await pilot.pause()
            line = header.render_line(2).text
            assert line.startswith(f" {state.plain}  ")
            assert line.endswith(f" {right} ")


async def test_the_title_stays_and_details_of_the_place_go_where_there_is_little_room() -> None:
    class Bars(App[None]):
        def compose(self) -> ComposeResult:
            yield HeaderBar()

    run = Text("tdbg", theme.GOOD).append("  TinyTrans", theme.STRONG).append("  MindSpore 2.0")
    place = Text("rank ", theme.DIM).append("0", theme.STRONG).append(" of 8 ranks", theme.DIM)
    place.append("  step ", theme.DIM).append("3", theme.STRONG).append(" of 0–5, 4 dumped", theme.DIM)
    nothing = Text()
    for width, line in (
        (70, " tdbg  TinyTrans  MindSp…  rank 0 of 8 ranks  step 3 of 0–5, 4 dumped "),
        (60, " tdbg  TinyTrans  MindSpore 2.0   rank 0 of 8 ranks  step 3 "),
        (44, " tdbg  TinyTrans  MindSpor…  rank 0  step 3 "),
    ):
        app = Bars()
        async with app.run_test(size=(width, 24)) as pilot:
            header = app.query_one(HeaderBar)
            header.show((run, place), (nothing, nothing), (nothing, nothing))
            await pilot.pause()
            assert header.render_line(0).text == line
