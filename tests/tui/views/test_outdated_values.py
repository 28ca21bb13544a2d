"""Values on screen are never silently old: a file that was written over, or another one in its place, is told of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sources.writer import write_dump, write_step
from tests.tui.driver import opened
from tests.tui.views.growing import MARK, NAN, NARROW, RELU, WIDE, changed, look, output_of, overwrite
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.views.compare import CompareView
from tui_debugger.tui.views.distribution import DistributionView
from tui_debugger.tui.views.view import View


@pytest.mark.turns("size")
@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_values_that_were_written_over_in_place_are_not_silently_old(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path, size=size) as screen:
        screen.main.navigator.go_to_row(screen.session.nodes(0).find(RELU))
        screen.main.navigator.set_step(1)
        await screen.settled()
        view = await look(screen, ValuesScreen, "values")
        await screen.press("down", "right")
        at = view.cursor_index
        writer.tensor(1, "Print", "Default/Print-op9", np.ones(3))
        await changed(screen)
        assert MARK not in screen.text, "its step grew, its own file is the same"
        overwrite(output_of(writer, RELU, 1), NAN)
        await changed(screen)
        assert MARK in screen.text
        assert "nan" not in screen.text.lower().replace("nan/inf", "").replace("nan 0", ""), (
            "what is shown was read before"
        )
        await screen.press("r")
        await screen.settled()
        assert MARK not in screen.text
        assert view.cursor_index == at == (1, 1)
        assert view.row.stats is not None
        assert view.row.stats.nan == 6
        assert "nan" in screen.lines[-2].lower()
        assert not screen.session.refresh(), "it is told once"
        await screen.press("escape")
        row = screen.main.tensors_pane.current
        assert row is not None


async def test_r_measures_what_nobody_has_told_of_yet(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        await look(screen, ValuesScreen, "values")
        await look(screen, DistributionView, "distribution")
        overwrite(output_of(writer, RELU, 1), NAN)
        for _ in range(2):
            assert "NaN 6" not in screen.text
            await screen.press("r")
            await screen.settled()
            assert "NaN 6" in screen.text
            await screen.press("escape")
            await screen.settled()


@pytest.mark.parametrize(("kind", "id_"), [(CompareView, "compare"), (DistributionView, "distribution")])
async def test_a_comparison_and_a_distribution_look_again_on_r(tmp_path: Path, kind: type[View], id_: str) -> None:
    writer = write_dump(tmp_path, steps=(0, 1, 2))
    async with opened(tmp_path) as screen:
        view = await look(screen, kind, id_)
        write_step(writer, 3)
        await changed(screen)
        assert MARK not in screen.text
        overwrite(output_of(writer, RELU, 1), NAN)
        await changed(screen)
        assert MARK in screen.text
        assert "NaN 6" not in screen.text
        await screen.press("r")
        await screen.settled()
        assert MARK not in screen.text
        if isinstance(view, CompareView):
            assert view.found is not None
            assert view.found.here.nan == 6
        else:
            assert "6 NaN" in screen.text or "NaN 6" in screen.text


async def test_a_tensor_that_was_written_anew_under_another_name_is_another_one(tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=(0, 1))
    async with opened(tmp_path) as screen:
        view = await look(screen, ValuesScreen, "values")
        writer.tensor(1, "ReLU", RELU, NAN)
        await changed(screen)
        assert MARK in screen.text
        await screen.press("r")
        await screen.settled()
        assert view.row.stats is not None
        assert view.row.stats.nan == 6
