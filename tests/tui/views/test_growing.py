"""Open views of a run that goes on: what is cheap comes by itself, the rest says it is outdated and waits for r."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.writer import MLP, DumpWriter, write_dump, write_step
from tests.tui.driver import opened
from tests.tui.live_driver import LiveDriver, attached, demo, to_first_hit
from tests.tui.views.growing import MARK, MATMUL, NAN, NARROW, RELU, WIDE, changed, look, output_of
from tui_debugger.tui.views.explain import ExplainView
from tui_debugger.tui.views.health import HealthView
from tui_debugger.tui.views.origin import OriginView
from tui_debugger.tui.views.relations import RelationsView
from tui_debugger.tui.views.trend import TrendView
from tui_debugger.tui.views.view import View, ViewChanges, notify_views

# -- what comes by itself ---------------------------------------------------------------------------


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_new_steps_appear_in_a_history_and_nothing_moves(tmp_path: Path, size: tuple[int, int]) -> None:
    writer = write_dump(tmp_path, steps=range(40))
    async with opened(tmp_path, size=size) as screen:
        view = await look(screen, TrendView, "trend", step=20)
        await screen.press("m", "y", "down", "pageup")
        here, top, group = view.step, view.table.top, view._first_group
        said: list[str] = []
        view.say = lambda text, **_: said.append(text)  # type: ignore[method-assign]
        write_step(writer, 40)
        output_of(writer, RELU, 40).unlink()
        writer.tensor(40, "ReLU", RELU, NAN)
        await changed(screen)
        shown = view.overlay.here
        assert shown is not None
        assert shown.steps.tolist() == list(range(41))
        assert shown.of("nan")[-1] == 6
        assert (view.step, view.table.top, view._first_group, view.log_axis) == (here, top, group, True)
        assert said == [], "nothing comes and goes"
        assert "○" not in view._hints(view.hints).plain


async def test_a_step_that_is_still_written_is_read_again_and_no_other(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    writer.tensor(2, "MatMul", MATMUL, NAN)
    async with opened(tmp_path) as screen:
        view = await look(screen, TrendView, "trend")
        shown = view.overlay.here
        assert shown is not None
        assert np.isnan(shown.of("nan")[2]), "not there yet"
        asked: list[list[int]] = []
        measure = screen.session.measure

        def counted(rows, *rest):  # type: ignore[no-untyped-def]
            asked.append([row.key.step for row in rows if row.key.node == RELU])
            return measure(rows, *rest)

        screen.session.measure = counted  # type: ignore[method-assign]
        writer.tensor(2, "ReLU", RELU, NAN)
        await changed(screen)
        shown = view.overlay.here
        assert shown is not None
        assert shown.of("nan")[2] == 6
        assert [steps for steps in asked if steps] == [[2]]


@pytest.mark.parametrize("recommended", [True, False])
async def test_the_health_map_gets_new_columns_and_nothing_moves(tmp_path: Path, *, recommended: bool) -> None:
    writer = write_dump(tmp_path, steps=range(10))
    async with opened(tmp_path, recommended=recommended) as screen:
        view = await look(screen, HealthView, "health", step=4)
        await screen.press("r")
        await screen.settled()
        await screen.press("f")
        row, step, top = view.grid.rows.cells(view.grid.cursor_row)[0], tuple(view.grid.steps_here), view.grid.top
        assert step == (4,)
        write_step(writer, 10)
        output_of(writer, RELU, 10).unlink()
        writer.tensor(10, "ReLU", RELU, NAN)
        await changed(screen)
        assert view.map is not None
        assert view.map.steps == tuple(range(11))
        missing = [] if recommended else [(0, 10)]  # what is new the main screen finds out by itself
        assert [pair for pair, known in view.map.pairs.items() if known is None] == missing
        assert (view.grid.rows.cells(view.grid.cursor_row)[0], tuple(view.grid.steps_here), view.grid.top) == (
            row,
            step,
            top,
        )
        assert ("r checks what is missing" in screen.text) is not recommended
        await screen.press("r")
        await screen.settled()
        assert view.map.findings
        writer.tensor(9, "Print", "Default/Print-op9", np.ones(3))
        await changed(screen)
        again = [] if recommended else [(0, 9), (0, 10)]
        assert [pair for pair, known in view.map.pairs.items() if known is None] == again


async def test_the_map_fills_while_the_main_screen_checks(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=range(70))  # more than are checked on opening
    async with opened(tmp_path) as screen:
        view = await look(screen, HealthView, "health")
        assert view.map is not None
        assert len(view.map.missing) == 69
        screen.main.checker.act_recheck_all()
        await screen.settled()
        await screen.until(lambda: view.map is not None and not view.map.missing)
        assert "r checks what is missing" not in screen.text


# -- what says that it is outdated ------------------------------------------------------------------


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_a_path_is_outdated_when_what_is_upstream_changed_and_is_found_again_in_place(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    output_of(writer, RELU, 1).unlink()
    writer.tensor(1, "ReLU", RELU, NAN)
    async with opened(tmp_path, size=size) as screen:
        view = await look(screen, OriginView, "origin")
        assert MARK not in screen.text
        assert "ReLU-op2" in screen.text
        write_step(writer, 2)
        await changed(screen)
        assert MARK not in screen.text, "a later step changes nothing"
        output_of(writer, MATMUL, 1).unlink()
        writer.tensor(1, "MatMul", MATMUL, NAN)
        for file in writer.step(1).glob("ReLU*input.0*"):
            file.unlink()
        await changed(screen)
        assert MARK in screen.text
        assert screen.lines[-1].startswith(" ○") or MARK in screen.lines[-1], "among the hints"
        before = len(view._lines)
        await screen.press("r")
        await screen.settled()
        assert MARK not in screen.text
        assert len(view._lines) == before + 1
        assert "origin: MatMul-op1" in screen.text
        assert view.line is not None
        assert view.line.tensor.key.node == RELU, "the cursor stays on its tensor"


async def test_relations_and_explain_are_outdated_by_their_own_steps(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        await look(screen, ExplainView, "explain")
        view = await look(screen, RelationsView, "relations", "fc1.weight")
        explain = screen.app.screen_stack[-2]
        write_step(writer, 2)
        await changed(screen)
        assert MARK in screen.text, "what reads the weight is there now"
        assert isinstance(explain, ExplainView)
        assert not explain.outdated
        view.table("consumers").focus()
        await screen.press("r")
        await screen.settled()
        assert MARK not in screen.text
        assert view.side == "consumers"
        assert any(item.related.tensor.index >= 0 for item in view._items["consumers"])
        writer.tensor(1, "Print", "Default/Print-op9", np.ones(3))
        await changed(screen)
        assert MARK in screen.text
        await screen.press("escape")
        await screen.settled()
        assert MARK in screen.text, "the view below learned of it, too"
        await screen.press("r")
        await screen.settled()
        assert MARK not in screen.text


async def test_what_checks_find_meanwhile_is_news_for_relations(tmp_path: Path) -> None:
    write_dump(tmp_path)
    async with opened(tmp_path, recommended=False) as screen:
        screen.session.add_recommended()
        view = await look(screen, RelationsView, "relations")
        screen.session.check([(0, 2)])
        notify_views(screen.app, ViewChanges())
        await screen.settled()
        assert not view.outdated, "another step"
        screen.session.check([(0, 1)])
        notify_views(screen.app, ViewChanges())
        await screen.settled()
        assert "○ new check results: r looks again" in screen.text
        await screen.press("r")
        await screen.settled()
        assert not view.outdated


# -- how it is done ---------------------------------------------------------------------------------


async def test_nothing_is_done_while_a_view_works_or_stands_below_another(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        view = await look(screen, TrendView, "trend")
        done: list[str] = []
        take_in = view.take_in

        def followed(changes: ViewChanges) -> None:
            done.append("followed")
            take_in(changes)

        view.take_in = followed  # type: ignore[method-assign]
        view._job = object()  # it works
        for step in (2, 3):
            write_step(writer, step)
            await changed(screen)
        assert done == []
        view._job = None
        await screen.press("question_mark")
        await screen.until(lambda: screen.app.screen is not view)
        view.run_changed(ViewChanges())
        assert done == [], "not in front"
        await screen.press("escape")
        await screen.until(lambda: screen.app.screen is view and done == ["followed"])
        await screen.settled()
        assert view.overlay.here is not None
        assert view.overlay.here.steps.tolist() == [0, 1, 2, 3], "both steps together, once"


async def test_a_key_comes_before_news_and_news_are_not_lost(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        view = await look(screen, HealthView, "health")
        started: list[object] = []
        run = screen.main.views.run

        def first_held(*given: Any) -> None:
            started.append(given)
            if len(started) > 1:
                run(*given)

        screen.main.views.run = first_held  # type: ignore[method-assign,assignment]
        view.run_changed(ViewChanges(results=True))
        assert len(started) == 1
        assert not view.working, "nobody asked for it"
        view._load()
        await screen.until(lambda: len(started) == 3)


async def test_what_comes_while_a_view_is_closed_is_not_shown(tmp_path: Path) -> None:
    """Its widgets go first: it would look for them in vain."""
    write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        view = await look(screen, HealthView, "health")
        deliveries: list[Callable[[object], None]] = []
        screen.main.views.run = lambda _, __, done, *___: deliveries.append(done)  # type: ignore[method-assign,assignment]
        shown = view.map
        assert shown is not None
        view._load()
        await view.query("*").remove()  # as Textual does, one by one, when the program ends
        view.remove()
        deliveries[0](replace(shown))
        assert view.map is shown


async def test_esc_leaves_a_view_that_takes_in_news(tmp_path: Path) -> None:
    write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        view = await look(screen, HealthView, "health")
        screen.main.views.run = lambda *_: None  # type: ignore[method-assign]
        view.run_changed(ViewChanges(results=True))
        await screen.press("escape")
        await screen.until(lambda: screen.app.screen is screen.main)


async def test_nodes_that_were_numbered_anew_are_found_by_name(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for step in (0, 1):
        write_step(writer, step)
    async with opened(tmp_path) as screen:
        view = await look(screen, TrendView, "trend", screen.session.nodes(0).names[-1])
        writer.graph(MLP)
        await changed(screen)
        assert view.overlay.here is not None
        await screen.press("E")
        await screen.settled()
        assert isinstance(screen.app.screen, View)


# -- trainings --------------------------------------------------------------------------------------


async def test_views_follow_a_training_that_goes_on() -> None:
    async with attached() as screen:
        training = screen.trainings.trainings[0]
        await _run_to(screen, 0)
        await _run_to(screen, 1)
        node = screen.live.nodes(0).names[-1]
        origin = await look(screen, OriginView, "origin", node, 1)
        view = await look(screen, TrendView, "trend", node, 1)
        steps = view.overlay.here.steps.tolist() if view.overlay.here is not None else []
        screen.live.run(1)
        await screen.ordered("run 1")
        await screen.stopped(training, 2)
        assert view.overlay.here is not None
        assert view.overlay.here.steps.tolist() == [*steps, 2]
        assert view.step == 1
        assert not origin.outdated, "what it had after step 1 stays what it was"


async def test_the_live_demo_fills_an_open_map() -> None:
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("M")
        await screen.until(lambda: isinstance(screen.app.screen, HealthView))
        view = screen.app.screen
        assert isinstance(view, HealthView)
        await screen.until(lambda: view.map is not None)
        before = view.map.steps if view.map is not None else ()
        screen.main.handlers["step_forward"]()
        await screen.until(lambda: view.map is not None and view.map.steps[-1] > before[-1])
        await screen.settled()
        assert screen.app.screen is view


async def _run_to(screen: LiveDriver, step: int) -> None:
    await screen.press("right_square_bracket")
    await screen.ordered("run 1")
    await screen.stopped(screen.trainings.trainings[0], step)
