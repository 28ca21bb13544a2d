"""The view of the weights over the steps: the answer, a row for each weight, and where its keys lead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import numpy as np
import pytest

from tests.session.opened import opened as session_on
from tests.sources.memory import MemorySource, Op
from tests.tui.screens_host import HOSTILE, Opened
from tests.tui.views.host import PlainHost, opened_view
from tui_debugger.model import Category, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.views.registry import ViewTarget
from tui_debugger.tui.views.trajectory import TrajectoryView

WIDE, MIDDLE, NARROW = (200, 50), (120, 40), (80, 24)
Dumps = Callable[[str], Path]
MLP = "mindspore-2.10-mlp"


def followed(
    session: Session, size: tuple[int, int] = NARROW, about: ViewTarget | None = None
) -> AbstractAsyncContextManager[tuple[Opened, PlainHost, TrajectoryView]]:
    return opened_view(TrajectoryView, session, size, about)


@pytest.mark.parametrize("size", [WIDE, MIDDLE, NARROW])
async def test_the_answer_and_every_weight_are_on_the_first_screen(dumps: Dumps, size: tuple[int, int]) -> None:
    async with followed(session_on(dumps(MLP)), size) as (screen, _, view):
        text = " ".join(screen.text.split())
        assert "4 of 10 weights never move: fc2.bias, fc2.weight, fc3.bias, fc3.weight" in text
        assert view.table.row_count == 10
        rows = [line for line in screen.lines if "never moves" in line]
        assert sum("·····" in line for line in rows) == 4
        assert "10 weights followed by values over steps 0–5" in text
        screen.check_clean()


async def test_enter_opens_the_trend_and_v_the_values(dumps: Dumps) -> None:
    async with followed(session_on(dumps(MLP))) as (screen, host, view):
        await screen.press("down", "enter", "v")
        weight = view.weight
        assert weight is not None
        assert weight.key.node == "head.weight"
        assert host.opened == [("trend", view.target_here), ("values", view.target_here)]
        assert view.target_here.key == weight.key


async def test_it_begins_on_the_weight_that_it_was_opened_on(dumps: Dumps) -> None:
    session = session_on(dumps(MLP))
    nodes = session.nodes(0)
    row = next(at for at, name in enumerate(nodes.names) if name == "fc1.weight")
    key = TensorKey(0, nodes.graph_of(row).name, nodes.names[row], Side.OUTPUT, 0, 2)
    async with followed(session, about=ViewTarget(key, row)) as (_, _, view):
        assert view.target_here == ViewTarget(key, row)


async def test_only_those_with_remarks_and_the_order_of_moving(dumps: Dumps) -> None:
    async with followed(session_on(dumps(MLP))) as (screen, _, view):
        await screen.press("x")
        assert view.table.row_count == 4
        assert "x shows all" in screen.text
        await screen.press("x", "comma", "home")
        assert view.table.row_count == 10
        assert view.weight is not None
        assert view.weight.key.node == "head.bias"
        sizes = [view.found.weights[int(str(view.table.rows.key(at)))].usual for at in range(10)] if view.found else []
        assert sizes == sorted(sizes, reverse=True)


async def test_what_is_under_the_cursor_is_said_whole(dumps: Dumps) -> None:
    async with followed(session_on(dumps(MLP)), MIDDLE) as (screen, _, _):
        await screen.press("down")
        assert "head.weight  3×16  norm 1.04 to 1.03  ·  update 0.0249, last 0.0249" in screen.text
        assert "effective rank 2.81→2.8" in screen.text


async def test_other_sizes_lay_the_bars_out_anew() -> None:
    steps = {step: {("w", Side.OUTPUT, 0): np.full(4, 1.0 + 0.01 * step)} for step in range(100)}
    session = Session(MemorySource({0: steps}, ops=[Op("w", "Parameter", category=Category.WEIGHT)]))
    async with followed(session, NARROW) as (screen, _, view):
        narrow = view.table.columns[1].width
        await screen.resize(*WIDE)
        assert view.table.columns[1].width == 40 > narrow == 16
        screen.check_clean()


async def test_a_run_without_weights_says_so() -> None:
    session = Session(MemorySource({0: {0: {("ReLU", Side.OUTPUT, 0): np.ones(3)}}}))
    async with followed(session) as (screen, host, view):
        assert "no weight was dumped at these steps" in screen.text
        await screen.press("enter", "v", "x", "comma", "r")
        assert host.opened == []
        assert view.target_here is view.about


async def test_the_table_that_is_handed_out_has_every_digit(dumps: Dumps) -> None:
    async with followed(session_on(dumps(MLP))) as (_, _, view):
        handed = view.extract()
        assert handed is not None
        assert view.found is not None
        growth = handed.header.index("growth")
        assert [row[growth] for row in handed.rows] == [each.growth for each in view.found.weights]


@pytest.mark.parametrize("size", [WIDE, NARROW, (40, 10)])
async def test_names_of_any_kind_are_shown_safely(size: tuple[int, int]) -> None:
    tensors = {step: {(name, Side.OUTPUT, 0): np.full(3, 1.0 + step) for name in HOSTILE} for step in (0, 1)}
    ops = [Op(name, "Parameter", category=Category.WEIGHT) for name in HOSTILE]
    async with followed(Session(MemorySource({0: tensors}, ops=ops)), size) as (screen, _, view):
        for _ in HOSTILE:
            await screen.press("down")
            screen.check_clean()
        await screen.press("x", "comma", "r")
        screen.check_clean()
        handed = view.extract()
        assert handed is not None
        assert "\x1b" not in handed.text
