"""The virtual table: draws visible lines only, and nothing jumps under the cursor."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pytest
from rich.text import Text
from textual.app import App, ComposeResult

from tui_debugger.tui import theme
from tui_debugger.tui.widgets.text import Cell, ScopedName, SearchPattern
from tui_debugger.tui.widgets.virtual_table import LazyRows, ListRows, TableColumn, VirtualTable

COLUMNS = (
    TableColumn("step", 4, right=True, frozen=True),
    TableColumn("name", 10, elastic=1),
    TableColumn("dtype", 8),
)


class CountedRows:
    """A million rows that count how often they are drawn."""

    def __init__(self, count: int, first: int = 0) -> None:
        self.row_count = count
        self.first = first
        self.asked = 0

    def cells(self, index: int) -> Sequence[Cell]:
        self.asked += 1
        return str(self.first + index), Text(f"node/{self.first + index}"), "float32"

    def key(self, index: int) -> Hashable:
        return self.first + index

    def find(self, key: Hashable) -> int:
        return key - self.first if isinstance(key, int) and 0 <= key - self.first < self.row_count else -1


class TableApp(App[None]):
    CSS = "VirtualTable { height: 100%; }"

    def __init__(self, table: VirtualTable) -> None:
        super().__init__()
        self.table = table
        self.highlighted: list[Hashable] = []
        self.selected: list[Hashable] = []

    def compose(self) -> ComposeResult:
        yield self.table

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        self.highlighted.append(event.key)

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        self.selected.append(event.key)


def lines(table: VirtualTable) -> list[str]:
    return [table.render_line(y).text.rstrip() for y in range(table.size.height)]


async def test_only_visible_lines_are_asked_for() -> None:
    rows = CountedRows(1_000_000)
    app = TableApp(VirtualTable(COLUMNS, rows))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.press("G")
        assert app.table.cursor_row == 999_999
        assert "node/999999" in lines(app.table)[-1]
        rows.asked = 0
        await pilot.press("up")
        assert rows.asked <= 2
        await pilot.press("pageup")
        assert rows.asked <= 2 * 20


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        ("j j k", 1),
        ("down down up", 1),
        ("G", 99),
        ("end home", 0),
        ("G g", 0),
        ("pagedown", 9),
        ("pagedown pageup", 0),
        ("k", 0),
    ],
)
async def test_keys_move_the_cursor(keys: str, row: int) -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(100)))
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.press(*keys.split())
        assert app.table.cursor_row == row
        assert any(f"node/{row} " in line + " " for line in lines(app.table))
        assert app.highlighted[-1] == row


async def test_rows_inserted_above_do_not_move_what_is_under_the_cursor() -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(100, first=1000)))
    async with app.run_test(size=(60, 10)) as pilot:
        app.table.move_to_key(1050)
        await pilot.press("up", "up")
        line = next(y for y, text in enumerate(lines(app.table)) if "node/1048" in text)
        heard = len(app.highlighted)
        app.table.set_rows(CountedRows(300, first=900))
        await pilot.pause()
        assert app.table.cursor_key == 1048
        assert "node/1048" in lines(app.table)[line]
        assert len(app.highlighted) == heard


async def test_the_cursor_stays_near_when_its_row_goes() -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(100)))
    async with app.run_test(size=(60, 10)) as pilot:
        app.table.move_to(90)
        app.table.set_rows(CountedRows(50))
        await pilot.pause()
        assert app.table.cursor_key == 49
        app.table.set_rows(CountedRows(0))
        await pilot.pause()
        assert app.table.cursor_key is None
        await pilot.press("enter", "up", "down", "G", "pagedown")
        assert app.selected == []


async def test_enter_and_a_second_click_select() -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(100)))
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.press("down", "enter")
        assert app.selected == [1]
        await pilot.click(app.table, offset=(5, 4))
        assert app.table.cursor_row == 3
        assert app.selected == [1]
        await pilot.click(app.table, offset=(5, 4), times=2)
        assert app.selected[-1] == 3


async def test_long_text_is_reached_sideways_while_frozen_columns_stay() -> None:
    name = "/".join(f"scope{i}" for i in range(12))
    app = TableApp(VirtualTable(COLUMNS, ListRows([("7", name, "float32")])))
    async with app.run_test(size=(40, 5)) as pilot:
        assert lines(app.table)[1].endswith("float32")
        assert "…" in lines(app.table)[1]
        assert "scope11" not in lines(app.table)[1]
        for _ in range(20):
            await pilot.press("right")
        assert "scope11" in lines(app.table)[1]
        assert lines(app.table)[1].startswith("▌   7")
        for _ in range(20):
            await pilot.press("left")
        assert "scope0/" in lines(app.table)[1]


async def test_a_name_stays_while_its_scope_and_other_long_texts_are_moved_sideways() -> None:
    columns = (TableColumn("name", 16, elastic=1), TableColumn("why", 8, elastic=1))
    rows = [(ScopedName(Text(name), "Default/net/norm"), "a cause of many words") for name in ("Log-op1", "L" * 20)]
    app = TableApp(VirtualTable(columns, ListRows([*rows, (ScopedName(Text("/a/path/without/a/scope")), "–")])))
    async with app.run_test(size=(30, 5)) as pilot:
        assert lines(app.table)[1:3] == ["▌Log-op1  …/norm   a cause o…", " LLLLLL…LLLLLLLLLL a cause o…"]
        for _ in range(20):
            await pilot.press("right")
        assert lines(app.table)[1] == "▌Log-op1  net/norm many words"
        assert lines(app.table)[2] == " LLLLLL…LLLLLLLLLL many words"
        assert lines(app.table)[3].startswith(" h/without/a/scope"), "what has no scope is a text as others"
        app.table.set_pattern(SearchPattern.of("log"))
        marks = [text for text, style, _ in app.table.render_line(1) if style and style.bgcolor == theme.MATCH.bgcolor]
        assert marks == ["Log"]


async def test_columns_that_do_not_fit_are_reached_sideways() -> None:
    columns = (TableColumn("a", 4, frozen=True), *(TableColumn(f"c{i}", 10) for i in range(8)))
    app = TableApp(VirtualTable(columns, ListRows([("key", *(f"value{i}" for i in range(8)))])))
    async with app.run_test(size=(40, 5)) as pilot:
        assert "value7" not in lines(app.table)[1]
        for _ in range(20):
            await pilot.press("l")
        assert "value7" in lines(app.table)[1]
        assert "c7" in lines(app.table)[0]
        assert lines(app.table)[1].startswith("▌key")


async def test_the_sign_of_more_columns_leaves_no_half_of_a_title() -> None:
    columns = (
        TableColumn("name", 8, frozen=True),
        TableColumn("steps", 10, right=True),
        TableColumn("ranks", 14, right=True),
    )
    app = TableApp(VirtualTable((*columns, TableColumn("place", 20)), ListRows([("a", "1", "2", "3")])))
    async with app.run_test(size=(35, 4)):
        assert lines(app.table)[0].split() == ["name", "steps", "2", "more", "→"]


async def test_the_sign_of_more_columns_leaves_numbers_their_title() -> None:
    columns = (
        TableColumn("name", 8, frozen=True),
        TableColumn("min", 10, right=True),
        TableColumn("max", 10, right=True),
    )
    rows = ListRows([("a", "1.5", "2.5", "0", "x")])
    app = TableApp(VirtualTable((*columns, TableColumn("NaN", 5, right=True), TableColumn("from", 20)), rows))
    async with app.run_test(size=(33, 4)):
        assert lines(app.table) == [" name            min    max +2 →", "▌a               1.5        2.5", "", ""]


@pytest.mark.parametrize(
    "name", ["[bold]x[/]", "a[", "\x1b[31mred\x07", "caf\udce9", "日本語" * 20, "x" * 300, "\u202egnp"]
)
async def test_names_are_shown_literally_and_safely(name: str) -> None:
    app = TableApp(VirtualTable(COLUMNS, ListRows([("1", name, "f"), ("2", Text(name, "bold"), "f")])))
    async with app.run_test(size=(40, 5)) as pilot:
        await pilot.pause()
        for y in range(5):
            strip = app.table.render_line(y)
            assert strip.cell_length == app.table.scrollable_content_region.width
            assert not any(ord(c) < 32 or c in "\x7f\u202e" or 0xD800 <= ord(c) < 0xE000 for c in strip.text)
        if name.startswith("[bold"):
            assert "[bold]x[/]" in app.table.render_line(1).text


async def test_an_empty_table_says_why() -> None:
    app = TableApp(VirtualTable(COLUMNS, empty="nothing found"))
    async with app.run_test(size=(40, 5)):
        assert lines(app.table)[1].strip() == "nothing found"


async def test_it_survives_any_size() -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(100)))
    async with app.run_test(size=(60, 10)) as pilot:
        app.table.move_to(50)
        for size in ((1, 1), (2, 3), (8, 2), (200, 50)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert app.table.cursor_row == 50
        assert any("node/50" in line for line in lines(app.table))


@pytest.mark.parametrize("shown", [True, False], ids=["in sight", "before it has a size"])
async def test_the_cursor_can_be_brought_near_the_first_line(shown: bool) -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(1_000)))
    async with app.run_test(size=(60, 20)) as pilot:
        table = app.table
        table.display = shown
        await pilot.pause()
        table.move_to(500)
        table.show_above(2)
        table.display = True
        await pilot.pause()
        assert table.cursor_row == 500
        assert [line.split()[-2] for line in lines(table)[1:5]] == [f"node/{row}" for row in range(498, 502)]
        table.move_to(999)
        table.show_above(2)
        assert "node/999" in lines(table)[-1], "no line stays empty"


async def test_a_row_that_looks_like_one_that_was_drawn_is_not_drawn_again() -> None:
    drawn = list[str]()

    def rows(*names: str) -> LazyRows[str]:
        def cells(name: str) -> Sequence[Cell]:
            drawn.append(name)
            return "1", name, ""

        return LazyRows(names, cells, lambda name: name, lambda name: name)

    app = TableApp(VirtualTable(COLUMNS, rows("a", "b")))
    async with app.run_test(size=(60, 20)) as pilot:
        table = app.table
        for names, new in ((("c", "a", "b"), {"c", "a"}), (("b", "d", "b", "b"), {"d", "b"}), (("c", "a", "b"), set())):
            drawn.clear()
            table.set_rows(rows(*names), keep=False)
            await pilot.pause()
            assert [line.split()[-1] for line in lines(table)[1 : len(names) + 1]] == list(names)
            assert set(drawn) <= new  # the row under the cursor looks different
        table.set_rows(ListRows([("1", "x", ""), ("1", "y", "")]), keep=False)
        await pilot.pause()
        assert [line.split()[-1] for line in lines(table)[1:3]] == ["x", "y"]
        drawn.clear()
        table.set_rows(rows("a"), keep=False)
        await pilot.pause()
        assert drawn == ["a"], "what other rows looked like is forgotten"


async def test_columns_that_came_while_it_was_hidden_share_the_width_that_it_comes_back_with() -> None:
    app = TableApp(VirtualTable(COLUMNS, CountedRows(100)))
    async with app.run_test(size=(60, 10)) as pilot:
        app.table.display = False
        await pilot.pause()
        app.table.set_columns((TableColumn("step", 6, right=True, frozen=True), *COLUMNS[1:]))
        app.table.display = True
        await pilot.pause()
        assert app.table.size.width == 60
        assert lines(app.table)[1] == "▌     0 " + "node/0".ljust(42) + " float32"


async def test_room_that_one_column_does_not_need_goes_to_the_names() -> None:
    columns = TableColumn("name", 8, elastic=1), TableColumn("why", 20, elastic=4), TableColumn("x", 3)
    name = "Default/network/backbone/norm"
    app = TableApp(VirtualTable(columns, ListRows([(ScopedName(Text(name)), "NaN", "1")])))
    async with app.run_test(size=(48, 5)):
        assert lines(app.table)[1].split() == [f"▌{name}", "NaN", "1"]
        app.table.set_rows(ListRows([(ScopedName(Text(name)), "a cause of very many words", "1")]))
        assert "a cause of very many words" in lines(app.table)[1], "and back to a text that needs it"


@pytest.mark.parametrize("scoped", [False, True])
async def test_a_shortened_name_differs_from_its_neighbours(scoped: bool) -> None:
    names = [f"model.layers.{layer}.{norm}_layernorm" for layer in (0, 1) for norm in ("input", "post_attention")]
    cells = [(ScopedName(Text("Functional.linear"), name) if scoped else ScopedName(Text(name)),) for name in names]
    app = TableApp(VirtualTable((TableColumn("name", 8, elastic=1),), ListRows(cells)))
    for width in (26, 32, 40):
        async with app.run_test(size=(width, 6)):
            shown = [line.strip("▌ ") for line in lines(app.table)[1:5]]
            assert len(set(shown)) == len(names), shown
        app = TableApp(VirtualTable((TableColumn("name", 8, elastic=1),), ListRows(cells)))
