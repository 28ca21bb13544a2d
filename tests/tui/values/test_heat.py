"""The tensor view as a heat map: keys, zoom, jumps, what is under the cursor, what a key costs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.thorough import later
from tests.tui.screens_host import Opened, opened
from tests.tui.values.test_screen import Later, row_of, screen_of, stats_of, where
from tui_debugger.text.heat_map import GLYPHS
from tui_debugger.tui.values import heat_map as heat_module
from tui_debugger.tui.values.screen import ValuesScreen

Array = np.ndarray[Any, Any]
WIDE = (200, 50)


@pytest.fixture(params=["truecolor", "256", "standard", "NO_COLOR"])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Terminals of all sorts."""
    if request.param == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        colored(monkeypatch, request.param)
    return str(request.param)


def colored(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", system)


def noise(*shape: int) -> Array:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def map_text(view: Opened) -> str:
    """What stands between the slice and the legend."""
    screen = view.app.opened
    assert isinstance(screen, ValuesScreen)
    region = screen.heat.region
    return "\n".join(view.lines[region.y : region.bottom])


@pytest.mark.usefixtures("terminal")
async def test_t_goes_there_and_back_and_the_cursor_stays_on_its_element() -> None:
    screen = screen_of(noise(40, 60))
    async with opened(screen) as view:
        await view.press("down", "down", "right", "t")
        assert screen.elements.mapped
        assert "zoom 1/" in view.text
        cell = screen.heat.cell
        assert cell is not None
        assert 2 in cell[0]
        assert 1 in cell[1]
        await view.press("t")
        assert not screen.elements.mapped
        assert where(screen) == (2, 1)
        view.check_clean()


@pytest.mark.usefixtures("terminal")
async def test_nan_and_inf_have_glyphs_of_their_own_in_every_terminal() -> None:
    array = noise(3000, 500)
    array[1234, 56], array[2000, 300], array[10, 400] = np.nan, np.inf, -np.inf
    screen = screen_of(array)
    async with opened(screen, WIDE) as view:
        await view.press("t")
        for keys in ((), ("d",)):
            await view.press(*keys)
            shown = map_text(view)
            for glyph in list(GLYPHS.values())[:3]:
                assert glyph in shown
            assert "N NaN 1  ▲ +Inf 1  ▼ -Inf 1" in view.text


async def test_the_line_below_says_what_the_cell_covers_and_which_element_it_shows() -> None:
    array = np.zeros((2, 300, 400), np.float32)
    array[0, 3, 2] = -7.25
    array[0, 0, 1] = 3
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("t")
        rows, columns = screen.heat.zoom.rows, screen.heat.zoom.columns
        assert rows > 3
        assert columns > 2
        assert f"[0, 0:{rows}, 0:{columns}] shows -7.25 at [0, 3, 2]   {rows * columns} elements" in view.text
        await view.press("right")
        assert f"[0, 0:{rows}, {columns}:{2 * columns}] shows 0.0" in view.text


async def test_zooming_in_keeps_the_element_and_ends_in_the_table() -> None:
    array = np.zeros((4000, 3000), np.float32)
    array[1234, 2345] = np.nan
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("t", "n")
        levels = screen.heat.zoomed[1]
        assert levels > 3
        for _ in range(levels):
            cell = screen.heat.cell
            assert cell is not None
            assert 1234 in cell[0]
            assert 2345 in cell[1]
            assert "shows NaN at [1234, 2345]" in view.text or "[1234, 2345] = NaN" in view.text
            await view.press("plus")
        assert "[1234, 2345] = NaN" in view.text
        assert screen.heat.zoomed == (levels, levels)
        await view.press("plus")
        assert not screen.elements.mapped
        assert where(screen) == (1234, 2345)


async def test_zooming_out_shows_everything_again() -> None:
    screen = screen_of(noise(400, 300))
    async with opened(screen) as view:
        await view.press("t")
        before = map_text(view)
        await view.press("plus", "plus", "plus")
        assert map_text(view) != before
        await view.press("-", "-", "-", "-", "-")
        assert map_text(view) == before


async def test_enter_goes_to_the_element_that_the_cell_shows() -> None:
    array = np.zeros((300, 400), np.float32)
    array[1, 2] = 5
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("t", "enter")
        assert not screen.elements.mapped
        assert where(screen) == (1, 2)


async def test_keys_move_by_cells_pages_and_to_the_ends() -> None:
    screen = screen_of(noise(5000, 5000))
    async with opened(screen, WIDE) as view:
        await view.press("t", "plus", "plus", "plus", "plus")
        await view.press("g", "home")
        assert where(screen) == (0, 0)
        rows, columns = screen.heat.zoom.rows, screen.heat.zoom.columns
        down, across = screen.heat._grid
        await view.press("down", "j", "right", "l")
        assert where(screen) == (2 * rows, 2 * columns)
        await view.press("up", "left")
        assert where(screen) == (rows, columns)
        await view.press("pagedown", "greater_than_sign")
        assert where(screen) == ((1 + down) * rows, (1 + across) * columns)
        await view.press("pageup", "less_than_sign")
        assert where(screen) == (rows, columns)
        await view.press("G", "end")
        cell = screen.heat.cell
        assert cell is not None
        assert (cell[0].stop, cell[1].stop) == (5000, 5000)


async def test_every_bad_cell_is_visited_once_and_then_again_from_the_start() -> None:
    array = np.zeros((2, 600, 500), np.float32)
    array[0, 5, 5:400], array[0, 590, 0], array[1, 300, 300] = np.nan, np.inf, -np.inf
    screen = screen_of(array, row_of(array, stats=stats_of(array)))
    async with opened(screen) as view:
        await view.press("t")
        cells = np.count_nonzero(screen.heat.picture.kinds)  # type: ignore[union-attr]  # it is drawn
        seen = []
        for _ in range(cells + 1):
            await view.press("n")
            seen.append(where(screen))
        assert len(set(seen)) == cells + 1
        assert (1, 300, 300) in seen
        assert seen[-1] == (0, 5, 5)  # the cursor was in that cell already
        assert "went on from the other end" in view.text


async def test_x_and_m_go_to_the_extremes() -> None:
    array = noise(600, 500)
    array[123, 456], array[321, 65] = 99, -99
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("t", "x")
        assert where(screen) == (123, 456)
        assert "shows 99.0 at [123, 456]" in view.text
        await view.press("m")
        assert where(screen) == (321, 65)


@pytest.mark.turns("size")
@pytest.mark.parametrize(
    "array",
    [
        np.array(3.25),
        np.array([1.0, -2.0, np.nan]),
        noise(768),
        noise(100_000),
        np.ones((1, 7)),
        np.ones((7, 1)),
        noise(2, 3, 4, 5),
        np.eye(9, dtype=bool),
        np.arange(-32, 32, dtype=np.int8).reshape(8, 8),
        np.full((4, 4), np.nan, np.float16),
        (noise(5, 5) + 1j).astype(np.complex64),
        noise(20, 20).astype(ml_dtypes.bfloat16),
        noise(20, 20).astype(ml_dtypes.float8_e4m3fn),
        np.asfortranarray(noise(300, 200)),
        np.full((3, 3), 1e308) * [1, -1, 1],
    ],
    ids=lambda array: f"{array.dtype.name}-{array.shape}",
)
@pytest.mark.parametrize("size", [later((80, 24)), later((200, 50)), (24, 12)])
async def test_arrays_of_every_kind_and_shape_have_a_map(array: Array, size: tuple[int, int]) -> None:
    screen = screen_of(array)
    async with opened(screen, size) as view:
        await view.press("t")
        assert screen.heat.picture is not None
        assert screen.heat.picture.window.size == np.prod([*array.shape[-2:]])
        for keys in ("plus", "d", "right", "down", "n", "x", "G", "end", "g", "-", "B", "]", "p", "Y"):
            await view.press(keys)
            view.check_clean()
        assert view.open


async def test_text_has_no_map_and_says_so() -> None:
    screen = screen_of(np.array(["a", "b"]))
    async with opened(screen) as view:
        await view.press("t")
        assert "no heat map of them" in view.text
        assert not screen.elements.mapped


async def test_an_empty_slice_goes_back_to_the_table() -> None:
    screen = screen_of(noise(5, 5))
    async with opened(screen) as view:
        await view.press("t", "s", "ctrl+u", "delete")
        await view.type("[1:1, :]")
        await view.press("enter")
        assert "No elements" in view.text
        assert not screen.elements.mapped


async def test_brackets_and_a_new_slice_draw_anew() -> None:
    screen = screen_of(np.stack([np.zeros((5, 5)), np.ones((5, 5))]))
    async with opened(screen) as view:
        await view.press("t")
        assert "[0, 0, 0] = 0.0" in view.text
        await view.press("]")
        assert "[1, 0, 0] = 1.0" in view.text
        await view.press("p", "[")
        assert "[0, 0, 0] = 0.0" in view.text


async def test_the_window_of_a_slice_is_named_by_the_tensors_own_indices() -> None:
    array = noise(1000, 1000)
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("s", "ctrl+u", "delete")
        await view.type("[900:100:-2, 10:510:5]")
        await view.press("enter", "t")
        rows, columns = screen.heat.zoom.rows, screen.heat.zoom.columns
        end = 900 - 2 * rows
        assert f"[900:{end}:-2, 10:{10 + 5 * columns}:5] shows" in view.text
        assert "\n 900 " in map_text(view)


async def test_a_resized_screen_keeps_the_cursors_element() -> None:
    array = np.zeros((1000, 1000), np.float32)
    array[777, 888] = np.nan
    screen = screen_of(array)
    async with opened(screen) as view:
        await view.press("t", "n", "plus")
        for size in ((200, 50), (40, 12), (80, 24)):
            await view.resize(*size)
            cell = screen.heat.cell
            assert cell is not None
            assert 777 in cell[0]
            assert 888 in cell[1]
            view.check_clean()


async def test_a_large_picture_is_made_beside_the_event_loop_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heat_module, "QUICK", 10)
    array = noise(50, 50)
    later = Later(array)
    screen = screen_of(array, host=later)
    async with opened(screen) as view:
        later.finish()
        await view.press("t")
        assert "drawing …  Esc stops" in view.text
        await view.press("right", "n", "plus", "enter")
        await view.press("escape")
        assert view.open
        assert later.stopped == 1
        await view.press("t", "t")
        later.finish(-1)
        await view.pilot.pause()
        assert "zoom 1/" in view.text


async def test_the_mouse_puts_the_cursor_on_a_cell() -> None:
    screen = screen_of(noise(400, 400))
    async with opened(screen) as view:
        await view.press("t")
        await view.pilot.click("HeatMap", offset=(30, 5))
        await view.pilot.pause()
        assert screen.heat.row > 0
        assert screen.heat.column > 0


class TestBytes:
    """What a page of noise, the worst case, and a key cost."""

    @pytest.mark.covering
    @pytest.mark.parametrize("system", ["truecolor", "256"])
    @pytest.mark.parametrize("array", [noise(4096, 2048), noise(64, 32), noise(100_000), np.eye(500)], ids=np.shape)
    async def test_the_cells_of_a_page_cost_little_until_one_asks_for_more(
        self, array: Array, system: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        colored(monkeypatch, system)
        screen = screen_of(array)
        async with opened(screen, WIDE) as view:
            await view.press("t")
            drawn = screen.heat.drawn
            assert drawn is not None
            heat = screen.heat
            strips = [drawn.strip(y, heat.rich_style, heat.rich_style) for y in range(len(drawn.lines))]
            names = sum(len(drawn.name(y)) + 45 for y in range(len(drawn.lines)))
            assert sum(len(strip.render(view.app.console).encode()) for strip in strips) - names < heat_module.PAGE
            coarse = drawn.picture.window.shape
            await view.command("fine")
            assert "fine" in view.text
            finer = screen.heat.drawn
            assert finer is not None
            assert finer.picture.window.shape >= coarse
            await view.command("fine")
            assert screen.heat.drawn is not None
            assert screen.heat.drawn.picture.window.shape == coarse

    async def test_a_cursor_key_draws_the_lines_of_two_cells_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn: list[int] = []
        draw = heat_module.HeatMap.render_line

        def counting(self: heat_module.HeatMap, y: int) -> Any:
            drawn.append(y)
            return draw(self, y)

        monkeypatch.setattr(heat_module.HeatMap, "render_line", counting)
        async with opened(screen_of(noise(4096, 2048)), WIDE) as view:
            await view.press("t")
            for key in ("right", "down", "left", "up"):
                drawn.clear()
                await view.press(key)
                assert len(set(drawn)) <= 2
