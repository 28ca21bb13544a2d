"""The rank grid on screen: ranks beside each other, what stands out, what differs, where Enter leads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.ranks import ODD, write_ranks
from tests.session.opened import opened as opened_session
from tests.sources.memory import MemorySource, Op
from tests.tui.screens_host import Opened, opened
from tests.tui.sizes import SIZES, every_size
from tests.tui.views.host import PlainHost
from tui_debugger.diagnose.ranks.grid import REPLICAS, VERDICT
from tui_debugger.model import Category, Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.tui.view_opener import NOWHERE
from tui_debugger.tui.views import ranks as module
from tui_debugger.tui.views.ranks import RanksView
from tui_debugger.tui.views.registry import ViewTarget

Dumps = Callable[[str], Path]


def view_of(session: Session, about: ViewTarget | None = None) -> tuple[RanksView, PlainHost]:
    host = PlainHost(session)
    return RanksView(host, about or ViewTarget(NOWHERE, -1)), host


def row_line(screen: Opened, name: str) -> str:
    """The line of a row, below what was found."""
    return next(line.strip() for line in screen.lines[3:] if name in line)


def many(ranks: int = 16, steps: int = 2) -> Session:
    """A run whose rank 5 has another weight from step 1 on, and NaN in an activation."""

    def tensors(rank: int, step: int) -> dict[tuple[str, Side, int], np.ndarray[tuple[int], np.dtype[np.float32]]]:
        broken = rank == 5 and step == 1
        return {
            ("net.weight", Side.OUTPUT, 0): np.arange(1, 9, dtype=np.float32) * (3 if broken else 1),
            ("net.relu", Side.OUTPUT, 0): np.full(8, np.nan if broken else 1 + rank / 1e4, np.float32),
        }

    ops = (
        Op("net.weight", "Parameter", category=Category.WEIGHT, path="net/weight"),
        Op("net.relu", "ReLU", category=Category.ACTIVATION, path="net/relu"),
    )
    run = {rank: {step: tensors(rank, step) for step in range(steps)} for rank in range(ranks)}
    return Session(MemorySource(run, ops=ops))


@pytest.mark.turns("size")
@every_size
async def test_one_look_shows_which_rank_stands_out(size: tuple[int, int]) -> None:
    view, _ = view_of(many())
    async with opened(view, size) as screen:
        await screen.press("]")
        assert row_line(screen, "weight").split()[-16:] == ["·"] * 5 + ["▇"] + ["·"] * 10
        assert row_line(screen, "relu").split()[-11] == "!"
        assert "norm at step 1" in screen.text
        screen.check_clean()


@pytest.mark.turns("size")
@every_size
async def test_ranks_that_must_be_equal_are_compared(size: tuple[int, int]) -> None:
    view, _ = view_of(many())
    async with opened(view, size) as screen:
        await screen.press("=")
        assert view.shown == REPLICAS
        assert view.step == 1
        assert "Rank 5 differs from 15 other ranks: weight net.weight" in screen.text
        assert row_line(screen, "▾ net").split().count("×") == 1
        screen.check_clean()


async def test_a_small_run_is_compared_by_itself_and_nothing_moves() -> None:
    view, _ = view_of(many())
    async with opened(view, SIZES[0]) as screen:
        assert "Rank 5 differs from 15 other ranks: weight net.weight" in screen.text
        assert (view.shown, view.grid.cursor_row) == ("norm", 0)


async def test_a_large_run_is_compared_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", -1)
    view, _ = view_of(many())
    async with opened(view, SIZES[0]) as screen:
        assert "= compares ranks" in screen.text
        await screen.press("=")
        assert "Rank 5 differs from 15 other ranks: weight net.weight" in screen.text


async def test_the_cell_under_the_cursor_is_said_in_numbers() -> None:
    session = many()
    row = session.nodes(0).find("net.weight")
    view, _ = view_of(session, ViewTarget(session.nodes(0).key(5, 1, row), row))
    async with opened(view, SIZES[1]) as screen:
        assert "rank 5 (dp 5 of 16)  net/weight" in screen.text
        assert "norm 42.849" in screen.text
        assert "off by 2 of the median" in screen.text
        await screen.press("left")
        assert "rank 4 (dp 4 of 16)  net/weight" in screen.text


async def test_enter_opens_the_values_of_the_rank() -> None:
    session = many()
    row = session.nodes(0).find("net.relu")
    view, host = view_of(session, ViewTarget(session.nodes(0).key(0, 1, row), row))
    async with opened(view, SIZES[1]) as screen:
        await screen.press("right", "right", "enter")
        name, target = host.opened[-1]
        assert name == "values"
        assert target.key == TensorKey(2, "kernel_graph_0", "net.relu", Side.OUTPUT, 0, 1)


async def test_verdicts_are_those_of_the_health_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", -1)  # what differs between ranks would be shown as well
    view, _ = view_of(many())
    async with opened(view, SIZES[1]) as screen:
        await screen.press("r", "]")
        assert view.shown == VERDICT
        assert row_line(screen, "relu").split()[-16:].count("◆") == 1
        await screen.press("x")
        assert not [line for line in screen.lines if "weight" in line and "·" in line]


async def test_steps_end_where_the_run_does() -> None:
    view, _ = view_of(many())
    async with opened(view, SIZES[1]) as screen:
        await screen.press("[", "[")
        assert "there is no step before" in screen.text
        await screen.press("]", "]")
        assert "there is no later step" in screen.text
        assert view.step == 1


async def test_every_statistic_has_its_turn() -> None:
    view, _ = view_of(many(2))
    async with opened(view, SIZES[2]) as screen:
        seen = set()
        for _ in range(20):
            await screen.press("m")
            seen.add(view.shown)
            screen.check_clean()
        assert {"norm", "mean", "zero_percentage", "nan", VERDICT, REPLICAS} <= seen


@pytest.mark.turns("size")
@every_size
async def test_a_thousand_ranks_share_columns(size: tuple[int, int]) -> None:
    view, _ = view_of(many(1000))
    async with opened(view, size) as screen:
        await screen.press("]")
        assert row_line(screen, "weight").count("▇") == 1
        await screen.press("z", "end")
        assert "ranks a column" not in screen.text
        screen.check_clean()


async def test_a_real_run_names_the_parameter_that_was_not_reduced(dumps: Dumps) -> None:
    view, _ = view_of(opened_session(dumps("msprobe-ranks") / "k_noreduce/B"))
    async with opened(view, SIZES[2]) as screen:
        await screen.press("=")
        assert "The gradient of b.0.mlp.fc1.bias was not reduced over ranks 0,1 at step 0" in screen.text
        assert (view.grid.rows.cells(view.grid.cursor_row)[0], view.step) == ("bias", 0)
        assert "not reduced: the gradient of b.0.mlp.fc1.bias went into no collective operation" in screen.text


async def test_rows_are_handed_out() -> None:
    view, _ = view_of(many(3))
    async with opened(view, SIZES[1]):
        extract = view.extract()
        assert extract is not None
        assert extract.header == ("path", "rank 0", "rank 1", "rank 2")
        assert [row[0] for row in extract.rows] == ["net", "net/weight", "net/relu"]


async def test_a_rank_stands_out_in_a_dump_of_statistics_alone(tmp_path: Path) -> None:
    session = opened_session(write_ranks(tmp_path / "dump", ODD + 3, 30, 2))
    view, _ = view_of(session)
    async with opened(view, SIZES[2]) as screen:
        await screen.press("t")
        cells = row_line(screen, "MatMul-op0").split()[-(ODD + 3) :]
        assert [at for at, cell in enumerate(cells) if cell in "▆▇█"] == [ODD]
        await screen.press("=")
        assert "Nothing to compare between ranks: no weights were dumped" in screen.text
