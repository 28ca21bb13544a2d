"""A dump that grows or shrinks while it is open: the answer speaks of what is there now."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.session.opened import EVERYTHING
from tests.sources.writer import write_dump, write_step
from tests.tui.driver import Driver, opened
from tests.tui.sizes import every_size
from tests.tui.views.growing import NAN, RELU, changed, output_of
from tui_debugger.tui import checker


async def watch_nan(screen: Driver) -> None:
    screen.session.watchpoints.add("tensor_overflow", (), EVERYTHING)
    screen.main.checker.changed()
    await screen.settled()


@pytest.mark.turns("size")
@every_size
@pytest.mark.parametrize("quick", [True, False])
async def test_a_step_that_arrives_is_checked_or_said_not_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], *, quick: bool
) -> None:
    writer = write_dump(tmp_path)
    async with opened(tmp_path, size=size, recommended=False) as screen:
        await watch_nan(screen)
        assert screen.lines[1].startswith(" Clean:")
        write_step(writer, 3)
        output_of(writer, RELU, 3).unlink()
        writer.tensor(3, "ReLU", RELU, NAN)
        if not quick:
            monkeypatch.setattr(checker, "QUICK", -1)
        await changed(screen)
        if not quick:
            assert screen.lines[1].startswith(" Step 3 not checked yet: no finding in ")
            assert "R check all" in screen.lines[1]
            await screen.press("R")
            await screen.settled()
        assert screen.lines[1].startswith(" Begins at step 3:")


async def test_a_clean_step_that_arrives_leaves_the_run_clean(tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    async with opened(tmp_path, recommended=False) as screen:
        await watch_nan(screen)
        here = screen.main.state.step
        write_step(writer, 3)
        await changed(screen)
        assert screen.lines[1].startswith(" Clean:")
        assert "steps 0–3 checked" in screen.lines[2]
        assert screen.main.state.step == here


@pytest.mark.turns("size")
@every_size
async def test_steps_that_are_gone_are_said_to_be(tmp_path: Path, size: tuple[int, int]) -> None:
    writer = write_dump(tmp_path)
    async with opened(tmp_path, size=size, step=0) as screen:
        shutil.rmtree(writer.step(0))
        await changed(screen)
        assert "step 1 of 1–2; step 0 gone" in screen.lines[0]
        write_step(writer, 3)
        await changed(screen)
        assert "step 1 of 1–3; step 0 gone" in screen.lines[0], "until the dump is opened again"
        assert "steps 1–3 checked" in screen.lines[2]
