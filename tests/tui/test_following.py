"""The tensors and the stack follow the cursor: at once after a single key, once it rests after a key that is held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tui_debugger.model import ProgressFn
from tui_debugger.session import Session, TensorRow
from tui_debugger.tui import inspector
from tui_debugger.tui.context import Context
from tui_debugger.tui.inspector import CursorFollower

NAN = "mindspore-2.0-nan"
AN_HOUR = 3600.0


class Clock:
    """Calls nothing by itself, and knows what it was asked to call when."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, asyncio.TimerHandle, Callable[[], None]]] = []

    def call_in(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        handle = asyncio.get_running_loop().call_later(AN_HOUR, callback)
        self.asked.append((seconds, handle, callback))
        return handle

    def ring(self) -> None:
        """Calls what is left."""
        for _, handle, callback in self.asked:
            if not handle.cancelled():
                handle.cancel()
                callback()
        self.asked.clear()

    @property
    def delays(self) -> list[float]:
        return [seconds for seconds, _, _ in self.asked]


async def test_a_single_key_is_followed_soon_and_a_held_one_once_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspector, "QUIET", AN_HOUR)
    clock, followed = Clock(), list[str]()
    follower = CursorFollower(cast("Context", SimpleNamespace(call_in=clock.call_in)), lambda: followed.append("here"))
    follower.moved()
    assert clock.delays == [inspector.SOON]
    assert follower.pending
    clock.ring()
    assert followed == ["here"]
    assert not follower.pending
    for _ in range(5):
        follower.moved()
    assert clock.delays == [AN_HOUR] * 5
    clock.ring()
    assert followed == ["here"] * 2, "once, whatever the number of keys"
    follower.moved()
    follower.stop()
    clock.ring()
    assert followed == ["here"] * 2
    assert not follower.pending


async def test_what_is_quick_follows_a_single_key_at_once_and_a_held_one_once_it_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspector, "QUIET", AN_HOUR)
    clock, followed, at_once = Clock(), list[str](), list[Callable[[], None]]()
    context = cast("Context", SimpleNamespace(call_in=clock.call_in, call_next=at_once.append))
    follower = CursorFollower(context, lambda: followed.append("here"), at_once=lambda: True)
    follower.moved()
    follower.moved()  # of one key, which moved several things
    assert follower.pending
    assert len(at_once) == 1
    at_once.pop()()
    assert followed == ["here"]
    assert not follower.pending
    for _ in range(5):
        follower.moved()
    assert clock.delays == [AN_HOUR] * 5
    assert not at_once
    clock.ring()
    assert followed == ["here"] * 2


async def test_tensors_that_are_known_come_to_the_screen_in_the_same_frame_as_the_cursor(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "WAIT", 30.0)  # however busy the machine is
    async with open_screen(NAN, size=(120, 40)) as screen:
        await screen.press("4", "home", "down", "down", "up", "up")
        await screen.settled()
        frames = list[tuple[object, ...]]()
        display = screen.app._display

        def noted(*arguments: Any) -> None:
            if arguments[1] is not None:
                frames.append(following(screen))
            display(*arguments)

        monkeypatch.setattr(screen.app, "_display", noted)
        for key in ("down", "down", "up"):
            frames.clear()
            await screen.press(key)
            await screen.settled()
            assert frames == [await expected(screen)]


def following(screen: Driver) -> tuple[object, ...]:
    """What the panes that follow show."""
    main = screen.main
    return [row.key for row in main.tensors_pane.rows], main.stack_pane.table.row_count, main.stack_pane.frame


async def expected(screen: Driver) -> tuple[object, ...]:
    """What they are to show of the node that is selected."""
    state, nodes = screen.main.state, screen.main.nodes_pane.nodes
    assert nodes is not None
    assert state.step is not None
    stack = nodes.stack(state.row)
    rows = screen.session.tensor_rows(state.rank, state.step, state.row, every=True)
    return [row.key for row in rows], len(stack), stack[0] if stack else None


@pytest.mark.parametrize("pane", ["nodes", "hits"])
async def test_a_key_that_is_held_ends_where_the_cursor_is(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch, pane: str
) -> None:
    async with open_screen(NAN, size=(120, 40)) as screen:
        main = screen.main
        await screen.press(*(("4", "home") if pane == "hits" else ("1", "home", "asterisk")))
        await screen.settled()
        loads = list[int]()
        load = main.inspector._load
        monkeypatch.setattr(main.inspector._follower, "_follow", lambda: (loads.append(main.state.row), load()))
        monkeypatch.setattr(inspector, "QUIET", 1.0)  # far more than these keys are apart on any machine
        for _ in range(15):
            await screen.press("down")
        assert len(loads) <= 1, "no more than what the first key led to"
        await screen.settled()
        current = main.hits_pane.current.row if pane == "hits" else main.nodes_pane.current_row  # type: ignore[union-attr]
        if current >= 0:  # the cursor may rest on a scope
            assert main.state.row == current
        assert loads[-1] == main.state.row
        assert len(loads) <= 2
        assert main.inspector.up_to_date
        assert following(screen) == await expected(screen)
        assert all(row.stats is not None for row in main.tensors_pane.rows if row.has_value)


class Measuring:
    """Lets tensors be measured only when it is allowed."""

    def __init__(self, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = threading.Event()
        measure = session.measure

        def waiting(rows: Sequence[TensorRow], progress: ProgressFn) -> Any:
            assert self.allowed.wait(30)
            return measure(rows, progress)

        monkeypatch.setattr(session, "measure", waiting)


async def test_tensors_that_take_long_to_measure_are_shown_before_and_their_statistics_after(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN, size=(120, 40)) as screen:
        await screen.press("4", "home")
        await screen.settled()
        measuring = Measuring(screen.session, monkeypatch)
        await screen.press("down")
        pane = screen.main.tensors_pane
        await screen.until(lambda: not pane._measured)
        assert pane.rows
        assert all(row.stats is None for row in pane.rows)
        assert "…" in "\n".join(screen.pane("tensors"))
        measuring.allowed.set()
        await screen.settled()
        assert all(row.stats is not None for row in pane.rows if row.has_value)
        assert "…" not in "\n".join(screen.pane("tensors"))


async def test_what_was_measured_in_time_is_not_replaced_by_what_was_not(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "SLOW", 0.0)
    async with open_screen(NAN, size=(120, 40)) as screen:
        await screen.press("4", "home")
        for key in ("down", "down", "up", "down", "up", "up") * 2:
            await screen.press(key)
            await screen.settled()
            assert screen.main.tensors_pane._measured
            assert following(screen) == await expected(screen)


async def test_a_cursor_that_comes_back_before_anything_was_measured_finds_its_own_stack(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN, size=(120, 40)) as screen:
        await screen.press("4", "home")
        await screen.settled()
        before = following(screen)
        measuring = Measuring(screen.session, monkeypatch)
        for key in ("down", "up"):
            await screen.press(key)
            await screen.until(lambda: not screen.main.inspector.pending)
        measuring.allowed.set()
        await screen.settled()
        assert following(screen) == before == await expected(screen)
