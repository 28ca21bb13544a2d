"""The node tree: a toggle computes one index array, a key draws a line or a page, also with 100,000 nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from textual.app import App, ComposeResult

from tests.sources.memory import Op, table_of
from tui_debugger.graph.table import GraphInfo, NodeTable
from tui_debugger.graph.tree import ScopeTree, build_tree
from tui_debugger.tui.panes.nodes import NodeTree
from tui_debugger.tui.watcher import TreeMarks

LARGE = 100_000


def nodes_at(*paths: str) -> NodeTable:
    return table_of([Op(path) for path in paths], [GraphInfo("kernel_graph_0", 0)])


def tree_of(*paths: str) -> ScopeTree:
    return build_tree(nodes_at(*paths))


def large_tree() -> ScopeTree:
    return tree_of(*(f"Default/block{i // 1000}/layer{i // 10 % 100}/Op-op{i}" for i in range(LARGE)))


class TreeApp(App[None]):
    CSS = "NodeTree { height: 100%; }"

    def __init__(self, tree: ScopeTree | None = None) -> None:
        super().__init__()
        self.widget = CountingTree()
        self.first = tree

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_mount(self) -> None:
        if self.first is not None:
            self.widget.set_tree(self.first)


class CountingTree(NodeTree):
    drawn = 0

    def entry_cells(self, index: int):  # type: ignore[no-untyped-def]
        self.drawn += 1
        return super().entry_cells(index)


def lines(widget: NodeTree) -> list[str]:
    return [widget.render_line(y).text.rstrip() for y in range(widget.size.height)]


@pytest.mark.parametrize(
    ("key", "most"), [("down", 2), ("pagedown", 40), ("G", 20), ("*", 20), ("left", 20), ("right", 20), ("end", 20)]
)
async def test_a_key_draws_at_most_a_page_of_a_hundred_thousand_nodes_and_the_one_beyond(key: str, most: int) -> None:
    app = TreeApp(large_tree())
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.press("asterisk", "asterisk", "asterisk")
        await pilot.pause()
        app.widget.drawn = 0
        await pilot.press("asterisk" if key == "*" else key)
        await pilot.pause()
        assert app.widget.drawn <= most


async def test_everything_opens_and_closes_with_one_key() -> None:
    app = TreeApp(large_tree())
    async with app.run_test(size=(80, 20)) as pilot:
        assert app.widget.row_count == 101  # Default and its blocks
        await pilot.press("asterisk")
        assert app.widget.row_count == 1 + 100 + 100 * 100 + LARGE
        await pilot.press("asterisk")
        assert app.widget.row_count == 1


async def test_going_to_a_node_opens_the_way_to_it() -> None:
    tree = large_tree()
    app = TreeApp(tree)
    async with app.run_test(size=(80, 20)) as pilot:
        assert app.widget.reveal(tree.index_of_row(54_321))
        await pilot.pause()
        assert any(line.startswith("▌") and "Op-op54321" in line for line in lines(app.widget))
        assert app.widget.row_count < 1000


async def test_a_filter_opens_its_matches_and_gives_the_old_view_back() -> None:
    tree = large_tree()
    app = TreeApp(tree)
    async with app.run_test(size=(80, 20)) as pilot:
        rows = np.zeros(LARGE, np.bool_)
        rows[[77_777, 99_999]] = True
        app.widget.set_keep(tree.keep_mask(rows), expand=True)
        await pilot.pause()
        assert app.widget.row_count == 7
        assert not app.widget.reveal(tree.index_of_row(5))
        app.widget.set_keep(None)
        await pilot.pause()
        assert app.widget.row_count == 101


async def test_marks_are_glyphs_and_scopes_gather_them() -> None:
    tree = tree_of("a/x", "a/y", "b/z", "c/w")
    app = TreeApp(tree)
    async with app.run_test(size=(40, 10)) as pilot:
        watched, hit, origin = (np.array(mask, np.bool_) for mask in ([1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]))
        marks = TreeMarks.none(len(tree))
        marks = dataclasses.replace(
            marks, watch=tree.coverage(watched), hit=tree.keep_mask(hit), origin=tree.keep_mask(origin)
        )
        app.widget.set_marks(marks)
        await pilot.pause()
        assert [line[1:3] for line in lines(app.widget)[:7]] == ["✗◐", " ●", "✗ ", "◆●", "◆●", "  ", "  "]


async def test_a_grown_tree_keeps_what_is_open_and_what_is_under_the_cursor() -> None:
    app = TreeApp(tree_of("b/x", "b/y", "c/z"))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.press("down", "down")  # b/y
        grown = nodes_at("b/x", "b/y", "c/z", "a/new", "b/more")
        order = np.array([1, 3, 4, 0, 2], np.int32)
        app.widget.set_tree(build_tree(dataclasses.replace(grown, order=order)))
        await pilot.pause()
        line = next(line for line in lines(app.widget) if line.startswith("▌"))
        assert line.split()[-1] == "y"
        assert "more" in "\n".join(lines(app.widget))


@pytest.mark.parametrize("name", ["[red]x[/]", "\x1b[2Jx", "n" * 300, "caf\udce9", "宽" * 100, ""])
async def test_labels_are_literal_and_safe(name: str) -> None:
    app = TreeApp(tree_of(f"scope/{name}", "scope/other"))
    async with app.run_test(size=(30, 6)) as pilot:
        await pilot.press("down", "right", "right", "left")
        for y in range(6):
            strip = app.widget.render_line(y)
            assert strip.cell_length == app.widget.scrollable_content_region.width
            assert not any(ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 for c in strip.text)


async def test_an_empty_tree_takes_every_key() -> None:
    app = TreeApp()
    async with app.run_test(size=(30, 6)) as pilot:
        await pilot.press("down", "left", "right", "asterisk", "enter", "G", "g", "space")
        app.widget.set_tree(tree_of())
        await pilot.press("down", "left", "right", "asterisk", "enter", "G")
        assert app.widget.current == -1
