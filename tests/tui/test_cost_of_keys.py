"""A key costs the same whatever the size of the run: bytes, lines and calls of functions are counted, never seconds."""

from __future__ import annotations

from collections import Counter

import pytest
from textual._compositor import ReflowResult
from textual.events import Callback, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.message_pump import MessagePump
from textual.strip import Strip
from textual.widget import Widget

from tests.terminal.large import open_large
from tests.tui.conftest import OpenScreen
from tests.tui.meter import Cost, Terminal, metered
from tui_debugger.tui.widgets.line_window import CachedLines
from tui_debugger.tui.written_lines import PartsCompositor, PartsUpdate

SMALL, LARGE = 1_000, 20_000
STEPS = 3
KEYS = (
    *("asterisk", "down", "up", "pagedown", "pageup", "end", "home", "down", "left", "right"),
    *("tab", "tab", "1", "right_square_bracket", "left_square_bracket"),
    *("4", "down", "pagedown", "end", "home", "n", "n", "N", "o", "m", "m", "3", "2", "m", "m", "1", "space", "space"),
)
"""A tour that touches every pane."""
KILOBYTE = 1 << 10


async def toured(nodes: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Cost]]:
    async with metered(nodes, STEPS, monkeypatch, open_large) as screen:  # the tour changes what is watched
        assert len(screen.main.hits_pane.hits) == nodes * STEPS  # the hit list is long too
        return [(key, await screen.cost(key)) for key in KEYS]


async def test_a_key_does_the_same_work_on_twenty_times_as_many_nodes_and_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = await toured(SMALL, monkeypatch), await toured(LARGE, monkeypatch)
    for (key, few), (_, many) in zip(small, large, strict=True):
        assert many.calls < 1.5 * few.calls + 1_000, key
        assert sum(many.lines.values()) <= sum(few.lines.values()) + 12, key
        assert many.bytes <= 1.5 * few.bytes + 2 * KILOBYTE, key


async def test_a_cursor_key_draws_two_lines_and_sends_less_than_a_kilobyte(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        await screen.cost("asterisk", "home", "pagedown", "up", "up", "up", "up")
        # The other panes follow a moment after the last key: they are no part of what a held key costs.
        monkeypatch.setattr(screen.main.inspector, "show_node", lambda _: None)
        for key in ("up", "down", "down", "up"):
            cost = await screen.cost(key)
            assert cost.lines["node-tree"] == 2
            assert 0 < cost.bytes <= KILOBYTE
        await screen.cost("4", "down", "down", "down")
        for key in ("down", "down", "up", "up"):
            cost = await screen.cost(key)
            assert cost.lines["hit-table"] == 2
            assert 0 < cost.bytes <= KILOBYTE


async def test_a_cursor_key_asks_no_widget_that_it_leaves_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        await screen.cost("4", "down")
        monkeypatch.setattr(screen.main.inspector, "show_node", lambda _: None)
        asked = set[object]()
        ask = CachedLines.render_lines

        def counted(self: CachedLines, crop: Region) -> list[Strip]:
            asked.add(self)
            return ask(self, crop)

        monkeypatch.setattr(CachedLines, "render_lines", counted)
        await screen.cost("down")
        assert asked == {screen.main.hits_pane.table, screen.main.hits_pane._lower}


async def test_a_cursor_key_sends_few_messages_although_four_panes_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        await screen.cost("4", "down")
        sent = Counter[str]()
        dispatch = MessagePump._dispatch_message

        async def counted(self: MessagePump, message: Message) -> None:
            sent[type(message).__name__] += not isinstance(message, Callback)  # by which a test waits
            await dispatch(self, message)

        monkeypatch.setattr(MessagePump, "_dispatch_message", counted)
        await screen.cost("down", "down", "up", "up")
        assert sum(sent.values()) <= 4 * 16, sent


async def test_a_page_draws_every_line_once_and_sends_less_than_16_kilobytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        await screen.cost("asterisk", "home")
        for pane, key in (("nodes", "1"), ("hits", "4")):
            await screen.cost(key)
            table = screen.main.panes[pane].table
            for page in ("pagedown", "pagedown", "pagedown", "pageup", "end", "home"):
                cost = await screen.cost(page)
                assert 1 < cost.lines[str(table.id)] <= table.size.height
                assert 0 < cost.bytes <= 16 * KILOBYTE


async def test_going_to_another_pane_draws_frames_and_cursors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        for key in ("tab", "tab", "tab", "tab", "tab", "4", "1"):
            cost = await screen.cost(key)
            drawn = {name: count for name, count in cost.lines.items() if name not in {"FrameLine", "footer"}}
            assert all(count == 1 for count in drawn.values())
            assert len(drawn) <= 2
            assert cost.lines["FrameLine"] == 4
            assert cost.bytes <= 4 * KILOBYTE


async def test_another_step_draws_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        for key in ("right_square_bracket", "right_square_bracket", "left_square_bracket"):
            cost = await screen.cost(key)
            assert cost.lines["node-tree"] <= 2  # the same nodes hit in every step
            assert cost.lines["hit-table"] <= screen.main.hits_pane.table.size.height
            assert cost.bytes <= 16 * KILOBYTE


async def test_a_scope_that_opens_or_closes_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        await screen.cost("asterisk", "home", "down", "down")
        for key in ("left", "right", "left", "right"):
            cost = await screen.cost(key)
            assert 1 < cost.lines["node-tree"] <= screen.main.nodes_pane.table.size.height
            assert cost.bytes <= 16 * KILOBYTE


async def test_nothing_is_drawn_that_looks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        await screen.cost("4")
        cost = await screen.cost("m")  # shows rows of which there are none
        assert set(cost.lines) == {"footer"}
        screen.main.nodes_pane.table.redraw()
        screen.main.hits_pane.refresh_rows()
        screen.main.watcher.mark()
        await screen.settled()
        again = await screen.cost()
        assert not again.lines
        assert not again.bytes


async def test_a_letter_of_a_search_draws_the_list_once_and_a_walk_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    async with metered(LARGE, STEPS, monkeypatch) as screen:
        for pane, name in (("4", "hit-table"), ("1", "node-tree")):
            await screen.cost(pane, "slash")
            table = screen.main.panes[screen.main.current_pane].table
            for letter in "op19":
                cost = await screen.cost(letter)
                assert cost.lines[name] <= table.size.height
                assert cost.bytes <= 24 * KILOBYTE
            await screen.cost("enter")
            monkeypatch.setattr(screen.main.inspector, "show_node", lambda _: None)
            for key in ("n", "n", "N"):
                cost = await screen.cost(key)
                assert cost.lines[name] == 2
                assert 0 < cost.bytes <= 2 * KILOBYTE
            await screen.cost("escape")


async def test_a_size_that_comes_back_before_it_is_drawn_is_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terminals do with their lines what they like when their size changes, and nothing is laid out anew here."""
    async with metered(SMALL, STEPS, monkeypatch) as screen:
        whole = (await screen.cost("ctrl+l")).bytes
        before, size = Terminal.written, screen.app.size
        await screen.app.on_event(Resize(size, size))
        await screen.until(lambda: Terminal.written - before > 0.9 * whole)


async def test_a_cursor_key_draws_one_frame_where_one_pane_is_shown(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen("mindspore-2.0-nan", size=(80, 24)) as screen:
        await screen.press("4", "home", "down")
        await screen.settled()
        updates: list[object] = []
        draw = PartsCompositor.render_partial_update

        def noted(self: PartsCompositor) -> object:
            updates.append(draw(self))
            return updates[-1]

        monkeypatch.setattr(PartsCompositor, "render_partial_update", noted)
        await screen.press("down")
        await screen.settled()
        drawn = [update for update in updates if update is not None]
        assert len(drawn) == 1
        assert isinstance(drawn[0], PartsUpdate)
        assert len(drawn[0].parts) == 3, "two rows, and what is said of the second in the footer"


async def test_another_pane_is_laid_out_once_where_one_is_shown(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen("mindspore-2.0-nan", size=(80, 24)) as screen:
        await screen.press("4", "home")
        await screen.settled()
        shown: list[list[str]] = []
        lay_out = PartsCompositor.reflow

        def noted(self: PartsCompositor, parent: Widget, size: Size) -> ReflowResult:
            result = lay_out(self, parent, size)
            shown.append([name for name, pane in screen.main.panes.items() if pane in self.full_map])
            return result

        monkeypatch.setattr(PartsCompositor, "reflow", noted)
        for key, pane in (("enter", "tensors"), ("tab", "nodes"), ("2", "stack")):
            shown.clear()
            await screen.press(key)
            await screen.settled()
            assert shown == [[screen.main.current_pane]], key
            assert screen.main.current_pane == pane


async def test_a_view_is_laid_out_and_styled_once_before_it_has_anything_to_show(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen("mindspore-2.0-nan", size=(120, 40)) as screen:
        await screen.press("4")
        laid_out: list[object] = []
        lay_out = PartsCompositor.reflow

        def noted(self: PartsCompositor, parent: Widget, size: Size) -> ReflowResult:
            laid_out.append(parent)
            return lay_out(self, parent, size)

        monkeypatch.setattr(PartsCompositor, "reflow", noted)
        await screen.press("question_mark")
        await screen.settled()
        assert screen.main not in laid_out, "it lies below"
        assert laid_out.count(screen.app.screen) <= 3
