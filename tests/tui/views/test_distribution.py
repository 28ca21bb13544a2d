"""The distribution of a tensor on the screen: every number is that of numpy, every key does what the help says."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.sources.memory import MemorySource
from tests.sources.writer import MLP, DumpWriter, Generation
from tests.tui.conftest import OpenScreen
from tests.tui.live_driver import demo, to_first_hit
from tests.tui.meter import Terminal, in_256_colours
from tests.tui.screens_host import Host, Opened, opened
from tests.tui.views.host import PlainHost
from tui_debugger.diagnose import distribution as headless
from tui_debugger.model import Side, TensorKey
from tui_debugger.session import Session
from tui_debugger.sources.registry import open_source
from tui_debugger.tui.dialogs.pages import HelpScreen
from tui_debugger.tui.views.distribution import DISTRIBUTION_ACTIONS, DistributionView
from tui_debugger.tui.views.registry import ViewTarget

DIV = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385"
SIZES = pytest.mark.parametrize("size", [(200, 50), (80, 24)])


@pytest.fixture
def session(dumps: Callable[[str], Path]) -> Iterator[Session]:
    found = Session(open_source(dumps("mindspore-2.0-nan")))
    yield found
    found.close()


def view_of(session: Session, node: str, step: int) -> DistributionView:
    nodes = session.nodes(0)
    row = nodes.find(node)
    key = TensorKey(0, nodes.graph_of(row).name, nodes.names[row], Side.OUTPUT, 0, step)
    return DistributionView(PlainHost(session), ViewTarget(key, row))


def in_memory(*values: npt.NDArray[Any]) -> Session:
    return Session(MemorySource({0: {step: {("a", Side.OUTPUT, 0): value} for step, value in enumerate(values)}}))


def bin_line(screen: Opened) -> str:
    """The line about the bin under the cursor."""
    return screen.lines[-2].strip()


@pytest.mark.turns("size")
@SIZES
async def test_all_numbers_and_the_bars_stand_on_one_screen(size: tuple[int, int], session: Session) -> None:
    view = view_of(session, DIV, 3)
    values = session.read(view.about.key).astype(np.float64)
    good = values[np.isfinite(values)]
    async with opened(view, size) as screen:
        screen.check_clean()
        text = " ".join(line.strip() for line in screen.lines)
        for words in ("512 elements", f"NaN {np.isnan(values).sum()}", f"negative {(good < 0).sum()}", "zero 0"):
            assert words in text
        for words in ("min -0.24128", "max 0.24768", "σ 0.077878", f"norm {np.sqrt((good**2).sum()):.5g}"):
            assert words in text
        for percent in (0.1, 1, 5, 25, 50, 75, 95, 99, 99.9):
            assert f"{percent:g} %: {np.percentile(good, percent):.4g}" in text
        assert "max |x| 0.2477 is 1e39× below float32's greatest" in text
        assert "in float8_e4m3fn: 0.5 % become 0 (2)" in text
        assert "128 not finite, in no bar" in text
        assert sum(view._histograms.bars[0].counts) == len(good) if view._histograms else False
        assert "█" in text


async def test_the_cursor_says_the_edges_and_the_count_of_its_bin(session: Session) -> None:
    async with opened(view_of(session, DIV, 3)) as screen:
        assert bin_line(screen).startswith("[-0.241282, -0.234195)   1 element (0.2 %)")
        await screen.press("right", "l", "pagedown")
        assert bin_line(screen).startswith("[-0.156245, -0.149159)")
        await screen.press("G")
        assert "0.24768]" in bin_line(screen)
        await screen.press("home")
        assert bin_line(screen).startswith("[-0.241282")


async def test_bins_by_magnitude_mean_the_same_on_both_sides_of_zero(session: Session) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view) as screen:
        await screen.press("t")
        assert "39 bins by magnitude, 2 an octave" in screen.text
        assert bin_line(screen).startswith("(-0.25, -0.1875]")
        await screen.press("end")
        assert bin_line(screen).startswith("[0.1875, 0.25)")
        await screen.press("t")
        assert "bins of equal width" in screen.text
        assert bin_line(screen).startswith("[0.212248, 0.219334)")  # where the middle of the other bin lies


async def test_low_bars_grow_with_log_counts() -> None:
    values = np.concatenate([np.zeros(100_000), np.ones(3)])
    async with opened(view_of(in_memory(values), "a", 0)) as screen:
        flat = screen.text.count("█")
        await screen.press("y")
        assert "log counts" in screen.text
        assert screen.text.count("█") > flat


async def test_zoom_shows_finer_bins_around_the_cursor_and_goes_back(session: Session) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view) as screen:
        for _ in range(30):
            await screen.press("right")
        middle = bin_line(screen)
        await screen.press("+")
        assert "- zooms out" in screen.text
        near = bin_line(screen)
        assert near != middle
        await screen.press("+")
        await screen.press("-")
        assert bin_line(screen).split("   ")[0] == near.split("   ")[0]
        await screen.press("minus")
        assert bin_line(screen) == middle
        await screen.press("minus")
        assert "this is the whole range" in screen.text
        await screen.press("+")
        await screen.command("zoom_all")
        assert "- zooms out" not in screen.text


async def test_without_the_numbers_the_bars_are_higher(session: Session) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view) as screen:
        before = view._chart.size.height
        await screen.press("z")
        assert view._chart.size.height > before + 5
        assert "elements:" not in screen.text
        await screen.press("z")
        assert view._chart.size.height == before
        assert "512 elements:" in screen.text


async def test_the_previous_step_stands_below_in_the_same_bins(session: Session) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view, (200, 50)) as screen:
        await screen.press("p")
        assert "step 3: 384 of 512" in screen.text
        assert "step 2" in screen.text
        assert "step 3: " in bin_line(screen)
        assert "step 2: " in bin_line(screen)
        await screen.press("p")
        assert "step 2" not in screen.text


async def test_the_first_step_has_no_previous_one(session: Session) -> None:
    async with opened(view_of(session, DIV, 0)) as screen:
        await screen.press("p")
        assert "this tensor has no previous step" in screen.text
        await screen.press("[")
        assert "step 0 is the first one" in screen.text


async def test_brackets_go_to_the_steps_beside_it(session: Session) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view) as screen:
        await screen.press("]")
        assert "step 4" in screen.text
        assert "NaN 0" in screen.text
        assert view.target_here.key.step == 4
        await screen.press("[", "[")
        assert "step 2" in screen.text


async def test_a_step_in_which_it_was_not_dumped_says_so_and_leads_back() -> None:
    source = MemorySource({0: {0: {("a", Side.OUTPUT, 0): np.ones(3)}, 1: {("b", Side.OUTPUT, 0): np.ones(3)}}})
    async with opened(view_of(Session(source), "a", 0)) as screen:
        assert "3 elements" in screen.text
        await screen.press("]")
        assert "There is nothing to show at this step" in screen.text
        assert "3 elements" not in screen.text
        assert "not dumped" in screen.text
        await screen.press("[")
        assert "3 elements" in screen.text


async def test_percentiles_of_a_large_tensor_come_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless, "QUICK", 10)
    async with opened(view_of(in_memory(np.arange(1000.0)), "a", 0)) as screen:
        assert "percentiles: m finds them, exactly, reading 8 kB a few times" in screen.text
        await screen.press("m")
        assert "50 %: 499.5" in screen.text


@pytest.mark.turns("size")
@SIZES
async def test_statistics_without_values_say_what_is_missing(size: tuple[int, int], tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    writer.statistics(0, [("MatMul", "MatMul-op1", "output", 0, np.array([1.0, -2.5]))])
    session = Session(open_source(tmp_path))
    name = next(name for name in session.nodes(0).names if name.endswith("MatMul-op1"))
    async with opened(view_of(session, name, 0), size) as screen:
        assert "Only statistics of this tensor are known, not its values" in screen.text
        assert "max 1" in screen.text
        await screen.press("m")
        assert "there are no values to take percentiles of" in screen.text
        for key in ("t", "y", "plus", "right", "G"):
            await screen.press(key)
        assert screen.open


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(0, np.float32),
        np.full(5, np.nan, np.float32),
        np.zeros((2, 2)),
        np.float64(3.0),
        np.array([True, False, True]),
        np.arange(-128, 128).astype(np.int8),
        np.array([1 + 1j, np.nan], np.complex64),
        np.array([-np.inf, np.inf, 1e-300, -1e300]),
    ],
)
async def test_every_kind_of_tensor_can_be_shown(values: npt.NDArray[Any]) -> None:
    view = view_of(in_memory(np.asarray(values), np.asarray(values)), "a", 1)
    async with opened(view) as screen:
        for key in ("t", "y", "p", "plus", "minus", "G", "t", "Y", "z"):
            await screen.press(key)
            screen.check_clean()
            assert screen.open
        if values.size and np.isfinite(values).any():
            assert sum(view._histograms.bars[0].counts) == np.isfinite(values).sum() if view._histograms else False
        else:
            assert "No finite value" in screen.text


async def test_in_what_way_the_numbers_are_not_the_elements_is_said_in_full() -> None:
    session = in_memory(np.array([2**62 + 1, -5], np.int64))
    async with opened(view_of(session, "a", 0), (60, 24)) as screen:
        assert "as float64: whole numbers above 2^53 are rounded" in screen.text
        screen.check_clean()


async def test_a_smaller_screen_gets_fewer_bins(session: Session) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view, (200, 50)) as screen:
        wide = view._chart.bins
        await screen.resize(80, 24)
        assert view._chart.bins < wide
        screen.check_clean()
        assert sum(view._histograms.bars[0].counts) == 384 if view._histograms else False


async def test_what_the_view_says_can_be_handed_out(session: Session, tmp_path: Path) -> None:
    view = view_of(session, DIV, 3)
    async with opened(view) as screen:
        await screen.press("p", "t", "Y")
        assert screen.app.clipboard.startswith("(-0.25, -0.1875]   step 3: ")
        await screen.command("copy_all")
        assert "exact percentiles: 0.1 %: " in screen.app.clipboard
        assert DIV in screen.app.clipboard
        extract = view.extract()
        assert extract is not None
        assert extract.stem == "Div-op385.out0.rank0.step3.distribution"
        await screen.press("e")
        screen.app.screen.query_one("#text").value = str(tmp_path / "x.csv")  # type: ignore[attr-defined]  # an Input
        await screen.press("enter")
    with (tmp_path / "x.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["low", "low included", "high", "high included", "count step 3", "count step 2"]
    assert rows[0][:4] == ["-0.25", "False", "-0.1875", "True"]
    assert sum(int(row[4]) for row in rows) == 384


async def test_enter_and_the_keys_of_the_other_views_take_the_tensor_along(session: Session) -> None:
    view = view_of(session, DIV, 3)
    host = view.host
    assert isinstance(host, PlainHost)
    async with opened(view) as screen:
        await screen.press("]", "enter", "o")
        here = replace(view.about.key, step=4)
        assert [(name, focus.key) for name, focus in host.opened] == [("values", here), ("origin", here)]


async def test_help_lists_every_key_and_every_action_is_there(session: Session) -> None:
    view = view_of(session, DIV, 3)
    for action in DISTRIBUTION_ACTIONS:
        assert hasattr(view, f"action_{action.id.partition('(')[0]}"), action
    async with opened(view, (200, 60)) as screen:
        await screen.press("question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        for action in DISTRIBUTION_ACTIONS:
            assert action.help in screen.text


async def test_a_cursor_key_sends_less_than_a_kilobyte(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    in_256_colours(monkeypatch)
    app = Host(view_of(session, DIV, 3))
    app.driver_class = Terminal
    async with app.run_test(headless=False, size=(200, 50)) as pilot:
        await pilot.pause()
        for key in ("right", "right", "left", "pagedown"):
            before = Terminal.written
            await pilot.press(key)
            await pilot.pause()
            assert 0 < Terminal.written - before <= 1 << 10


async def test_from_a_hit_to_its_distribution_in_the_whole_program(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan", step=0) as screen:
        await screen.press("n", "b")
        await screen.until(lambda: "-Inf 1 (25.0 %)" in screen.text)
        assert "Log-op381" in screen.text
        await screen.press("t", "p", "y")  # faster than anything is counted
        await screen.until(lambda: "step 2" in screen.text)
        assert "by magnitude" in screen.text
        assert "log counts" in screen.text
        await screen.press("[", "[")
        await screen.until(lambda: "step 1  rank 0" in screen.text)
        await screen.press("escape")
        await screen.until(lambda: screen.app.screen is screen.main)


async def test_the_values_of_a_training_that_runs() -> None:
    async with demo() as screen:
        await to_first_hit(screen)
        await screen.press("b")
        await screen.until(lambda: "-Inf 1 (25.0 %)" in screen.text)
        assert "exact percentiles" in screen.text
