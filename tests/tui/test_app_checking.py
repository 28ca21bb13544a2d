"""The state of the hits is always visible and never wrong: fresh, outdated, running, stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.session.opened import EVERYTHING
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import write_dump
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver, opened
from tests.tui.screens_host import HOSTILE
from tests.tui.sizes import every_size
from tests.unreadable import wound
from tui_debugger.check import pipeline
from tui_debugger.check.plan import StepPlan
from tui_debugger.check.step import StepChecker
from tui_debugger.errors import CancelledError
from tui_debugger.model import NodeKind, NodeSelection, NodeSelector, Progress, Side
from tui_debugger.session import Session
from tui_debugger.tui import checker
from tui_debugger.tui.app import TdbgApp

NAN, MLP = "mindspore-2.0-nan", "mindspore-2.0-mlp"


async def test_a_large_step_is_not_read_before_it_is_asked_for(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "QUICK", -1)
    async with open_screen(NAN, measured=False) as screen:
        assert screen.main.state.result is None
        assert "not checked yet: r checks this step (" in screen.main.header.plain
        assert "MB" in screen.main.header.plain
        assert "R every step and rank" in screen.text
        await screen.press("s", "3", "enter")
        await screen.settled()
        assert screen.main.state.result is None
        await screen.press("r")
        await screen.settled()
        assert "◐ step 3 checked: R checks 5 more" in screen.main.header.plain
        await screen.press("left_square_bracket", "right_square_bracket")
        await screen.settled()
        assert "◐ step 3 checked" in screen.main.header.plain  # it stays known


@pytest.mark.turns("size")
@every_size
async def test_who_asks_for_a_check_is_told_what_came_out(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen(NAN, size=size) as screen:
        everything = screen.pane("hits")
        for keys, said in (
            (("r",), "step 3 checked: 314 hits"),
            (("left_square_bracket", "r"), "step 2 checked: no hit"),
            (("R",), "steps 0–5 checked: 914 hits"),
        ):
            await screen.press(*keys)
            await screen.settled()
            assert screen.lines[-2].strip() == said
            assert screen.pane("hits") == everything, "a new check of one step throws nothing away"
            assert "● steps 0–5 checked" in screen.lines[2]
        await screen.press("3", "space")
        await screen.settled()
        assert "checked" not in screen.lines[-2], "nobody asked for this one"


async def test_the_order_of_steps_is_not_found_out_by_the_thread_of_the_screen(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take all statistics of all ranks."""
    pairs, by_screen = Session.pairs, list[bool]()

    def noted(self: Session, *args: Any) -> Any:
        by_screen.append(threading.current_thread() is threading.main_thread())
        return pairs(self, *args)

    monkeypatch.setattr(Session, "pairs", noted)
    async with open_screen(NAN) as screen:
        assert not by_screen[0]
        assert screen.main.state.result is not None


async def test_keys_wait_for_the_order_of_steps_beside_the_screen() -> None:
    """The ranks behind the first one take their time."""
    values = {("Default/Log-op1", Side.OUTPUT, 0): np.ones(4, np.float32)}
    gate, by_screen = threading.Event(), list[int]()

    class Slow(Session):
        def steps(self, rank: int) -> Sequence[int]:
            if rank and not gate.is_set():
                if threading.current_thread() is threading.main_thread():
                    by_screen.append(rank)
                else:
                    gate.wait()
            return super().steps(rank)

    app = TdbgApp(lambda _: Slow(MemorySource({rank: {0: values, 1: values} for rank in range(3)})))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = Driver(app, pilot)
        await screen.until(lambda: app.main.session is not None and app.main.session.watchpoints.enabled())
        await screen.press("right_square_bracket", "left_square_bracket", "R", "c", "F", "r")
        assert not by_screen
        assert screen.main.state.result is None
        gate.set()
        await screen.settled()
        assert screen.main.state.result is not None
        assert {rank for rank, _ in screen.main.state.result.pairs} == {0, 1, 2}


@pytest.mark.turns("size")
@every_size
async def test_a_long_check_shows_progress_and_esc_stops_it(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    async with open_screen(NAN, size=size, recommended=False, measured=False) as screen:
        await screen.press("a")
        check = screen.session.check
        gate = threading.Event()

        def slow(pairs: Any, progress: Any, on_result: Any = None) -> Any:
            def never_ending(_: Progress) -> None:
                while True:
                    progress(Progress(1, 4, "step 2"))
                    gate.wait(0.001)

            return check(pairs, never_ending, on_result)

        monkeypatch.setattr(screen.session, "check", slow)
        await screen.press("R")
        await screen.until(lambda: "25 %" in screen.main.header.plain)
        assert screen.lines[1].startswith(" Checking 25 %: no finding so far")
        assert "25 %" in screen.lines[2]
        assert "Esc stops" in screen.lines[2]
        await screen.press("escape")
        await screen.until(lambda: not screen.main.work.busy("check"))
        await screen.until(lambda: "Esc stops" not in screen.text)
        assert "stopped" in screen.main.footer.notice
        monkeypatch.undo()
        await screen.press("R")
        await screen.settled()
        assert "● steps 0–5 checked" in screen.main.header.plain


async def test_a_step_that_a_running_check_comes_to_waits_for_it(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN, recommended=False) as screen:
        check, gate, checks = screen.session.check, threading.Event(), []

        def held(pairs: Any, progress: Any, on_result: Any = None) -> Any:
            checks.append(len(pairs))
            assert gate.wait(20)
            return check(pairs, progress, on_result)

        monkeypatch.setattr(screen.session, "check", held)
        await screen.press("a")
        await screen.until(lambda: checks)
        assert "checking: no hit so far" in screen.text
        assert "nothing checked" not in screen.text
        assert "not checked" not in screen.text
        await screen.press("right_square_bracket", "right_square_bracket")
        gate.set()
        await screen.settled()
        assert checks == [6]  # the check of all steps was neither stopped nor begun anew
        assert "● steps 0–5 checked" in screen.main.header.plain
        assert screen.main.state.step == 2


async def test_a_step_that_a_stopped_check_did_not_come_to_is_not_checked_unasked(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN, recommended=False, measured=False) as screen:
        check, started, gate = screen.session.check, threading.Event(), threading.Event()

        def never_ending(pairs: Any, progress: Any, on_result: Any = None) -> Any:
            def wait(_: Progress) -> None:
                started.set()
                while True:
                    progress(Progress(1, 4, "step 2"))
                    gate.wait(0.001)

            return check(pairs, wait, on_result)

        monkeypatch.setattr(screen.session, "check", never_ending)
        await screen.press("a")
        await screen.until(started.is_set)
        await screen.press("right_square_bracket", "escape")
        await screen.settled()
        assert screen.main.state.step == 1
        assert "stopped" in screen.main.header.plain


async def test_a_step_that_is_known_is_shown_without_putting_the_results_together_again(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN) as screen:
        result, together = screen.main.state.result, []
        monkeypatch.setattr(screen.session, "so_far", lambda: together.append(1))
        for key in ("right_square_bracket", "right_square_bracket", "left_square_bracket"):
            await screen.press(key)
            await screen.settled()
        assert screen.main.state.result is result
        assert not together
        assert "● steps 0–5 checked" in screen.main.header.plain


async def test_hits_appear_while_the_rest_is_being_checked(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "MIN_INTERVAL", 0.0)
    async with open_screen(MLP, recommended=False) as screen:
        await screen.press("a")
        told: list[int] = []
        shown = screen.main.checker.checked

        def listen(message: Any) -> None:
            told.append(len(message.result.hits) if message.result is not None else 0)
            shown(message)

        monkeypatch.setattr(screen.main.checker, "checked", listen)
        await screen.press("R")
        await screen.settled()
        assert len(told) > 1
        assert told == sorted(told)
        assert told[-1] == len(screen.main.hits_pane.hits) + screen.main.hits_pane.hidden


async def test_without_watchpoints_the_screen_says_what_to_do(open_screen: OpenScreen) -> None:
    async with open_screen(MLP, recommended=False) as screen:
        assert "w makes one, a adds the recommended ones" in screen.text
        for key in ("r", "R", "c"):
            await screen.press(key)
            assert "no watchpoint is enabled" in screen.main.footer.notice


async def test_continue_ends_at_the_last_step(open_screen: OpenScreen) -> None:
    async with open_screen(MLP, recommended=False) as screen:
        screen.session.watchpoints.add(
            "tensor_overflow", {}, NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),))
        )
        await screen.press("c")
        await screen.settled()
        last = screen.session.steps(0)[-1]
        assert screen.main.state.step == last
        assert f"no hit up to step {last}" in screen.main.footer.notice
        await screen.press("c")
        assert "last dumped step" in screen.main.footer.notice


async def test_a_path_into_a_step_starts_there(open_screen: OpenScreen, dumps: Callable[[str], Path]) -> None:
    step = next(path for path in dumps(NAN).rglob("3") if path.is_dir() and next(path.glob("*.npy"), None))
    async with open_screen(step) as screen:
        assert screen.main.state.step == 3


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
async def test_names_from_hell_are_shown_literally_and_safely(size: tuple[int, int]) -> None:
    ops = [Op(f"Default/{name}/Op-op{i}", path=f"Default/{name}/Op-op{i}") for i, name in enumerate(HOSTILE)]
    values = {(op.name, Side.OUTPUT, 0): np.array([np.nan, 1.0], np.float32) for op in ops}
    source = MemorySource({0: {0: values}}, ops=ops, title=HOSTILE[0], notices=HOSTILE)

    def open_session(_: Any) -> Session:
        session = Session(source)
        session.open()
        session.watchpoints.add("tensor_overflow", {}, NodeSelection((NodeSelector(NodeKind.CATEGORY, "tensor"),)))
        return session

    app = TdbgApp(open_session, title=HOSTILE[1], recommended=False)
    async with app.run_test(size=size) as pilot:
        screen = Driver(app, pilot)
        await screen.until(lambda: app.main.session is not None)
        await screen.settled()
        walk = ["n", "4", "5", "2", "3"]
        for keys in (["1", "asterisk"], *(walk for _ in ops), ["5", "enter"], ["escape", "exclamation_mark"]):
            await screen.press(*keys)
            await screen.settled()
            for line in screen.lines:
                assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in line)
        await screen.press("escape", "4")
        assert len(screen.pane("hits")) == len(ops)
        assert "[red]x[/]" in "\n".join(screen.pane("hits"))


@pytest.mark.turns("size")
@every_size
async def test_a_stopped_check_says_how_far_it_came_and_the_next_one_goes_on(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(pipeline, "MOST", 1)  # step by step, so that it is known what is finished when
    async with open_screen(NAN, size=size, recommended=False, measured=False) as screen:
        judged: list[int] = []
        real = StepChecker.judge

        def judge(self: StepChecker, plans: Sequence[StepPlan], progress: Any) -> Any:
            (plan,) = plans
            if plan.step == 2 and 2 not in judged:
                judged.append(2)
                screen.main.work.cancel("check")
            judged.append(plan.step)
            progress(Progress(0, 1, "judging"))
            return real(self, plans, progress)

        monkeypatch.setattr(StepChecker, "judge", judge)
        await screen.press("a", "R")
        await screen.settled()
        assert "◐ stopped: 2 of 6 steps checked (steps 0,1)" in screen.main.header.plain
        assert "stopped: 2 of 6 steps checked (steps 0,1)" in screen.main.footer.notice
        assert "●" not in screen.main.header.plain
        assert screen.lines[1].startswith(" Steps 2–5 not checked yet: no finding in 788 tensors of steps 0–1")
        await screen.press("4")
        assert "no hit so far" in screen.text
        judged[:] = [2]
        await screen.press("R")
        await screen.settled()
        assert judged == [2, 2, 3, 4, 5], "what was finished is not judged again"
        assert "● steps 0–5 checked" in screen.main.header.plain


async def test_a_check_that_is_stopped_before_anything_is_finished_is_not_fresh(
    open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_screen(NAN, recommended=False, measured=False) as screen:

        def judge(*_: Any) -> Any:
            raise CancelledError("stopped")

        monkeypatch.setattr(StepChecker, "judge", judge)
        await screen.press("a", "R")
        await screen.settled()
        assert "◐ stopped: 0 of 6 steps checked" in screen.main.header.plain
        assert "●" not in screen.main.header.plain


@every_size
async def test_a_dump_that_was_cut_is_never_clean_on_the_screen(tmp_path: Path, size: tuple[int, int]) -> None:
    root = write_dump(tmp_path / "dump", steps=range(4)).root
    (lost,) = root.glob("rank_0/Net/0/3/ReLU.*.output.0.*")
    lost.unlink()
    async with opened(root, size=size, recommended=False) as screen:
        screen.session.watchpoints.add("tensor_overflow", (), EVERYTHING)
        await screen.press("R")
        await screen.settled()
        assert "◐ steps 0–3 checked, except what is not there" in screen.main.header.plain
        assert "1 step incomplete" in screen.main.header.plain
        assert "1 step is incomplete" in screen.text
        await screen.press("exclamation_mark")
        await screen.settled()
        assert "incomplete: rank_0/Net/0/3 (nothing of ReLU." in screen.text


async def test_a_dump_that_cannot_be_listed_is_never_clean_on_the_screen(tmp_path: Path) -> None:
    root = write_dump(tmp_path / "dump", steps=range(4)).root
    wound(root / "rank_0/Net/0/2", "fifo")
    async with opened(root, recommended=False) as screen:
        await screen.press("w")
        await screen.press("escape")
        screen.session.watchpoints.add("tensor_overflow", (), EVERYTHING)
        await screen.press("R")
        await screen.settled()
        assert "◐ steps 0–3 checked, except what cannot be listed" in screen.main.header.plain
        assert "1 part not listed" in screen.main.header.plain
        assert "it cannot be called clean: 1 part of the dump cannot be listed: rank_0/Net/0/2" in screen.text
        await screen.press("exclamation_mark")
        await screen.settled()
        assert "cannot be listed: rank_0/Net/0/2 (a FIFO in place of a directory)" in screen.text
        await screen.press("escape")
        await screen.press("y")
        await screen.settled()
        assert "? unreadable" in screen.text


@every_size
async def test_a_step_that_was_reset_is_checked_again(open_screen: OpenScreen, size: tuple[int, int]) -> None:
    async with open_screen("mindspore-2.0-nan", size=size) as screen:
        await screen.press_each("s", "4", "enter", "r")
        assert screen.main.state.step == 4
        assert screen.main.footer.notice == "step 4 checked: 300 hits"
