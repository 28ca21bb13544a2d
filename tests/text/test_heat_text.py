"""Heat maps as text: levels, cells that fit the room, glyphs of what is no number, and bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.stats.heat import shrink
from tui_debugger.text.heat_map import (
    Colors,
    DrawArea,
    HeatPage,
    HeatPainter,
    HeatTable,
    Scale,
    Zoom,
    halves,
    palette_of,
    zooms,
)

SIZES = st.integers(1, 5000)
ROOMS = st.builds(DrawArea, st.integers(1, 60), st.integers(1, 200), st.booleans())


class TestScale:
    def test_both_signs_are_symmetric_around_zero(self) -> None:
        scale = Scale(-1.0, 4.0)
        assert scale.ends == (-4.0, 4.0)
        assert scale.levels(np.array([-4, -1, 0, 1, 4]), 8).tolist() == [-8, -2, 0, 2, 8]

    def test_one_sign_uses_the_whole_scale(self) -> None:
        assert Scale(4.0, 5.0).levels(np.array([4, 4.5, 5]), 10).tolist() == [0, 5, 10]
        assert Scale(-5.0, -4.0).levels(np.array([-4, -4.5, -5]), 10).tolist() == [0, -5, -10]
        assert Scale(0.0, 2.0).levels(np.array([0, 1, 2]), 10).tolist() == [0, 5, 10]

    def test_one_value_only(self) -> None:
        assert Scale(3.0, 3.0).levels(np.array([3.0]), 4).tolist() == [4]
        assert Scale(-3.0, -3.0).levels(np.array([-3.0]), 4).tolist() == [-4]
        assert Scale(0.0, 0.0).levels(np.array([0.0]), 4).tolist() == [0]

    @given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
    def test_no_two_numbers_overflow_it(self, one: float, other: float) -> None:
        scale = Scale(*sorted((one, other)))
        levels = scale.levels(np.array([one, other, math.nan]), 11)
        assert (np.abs(levels) <= 11).all()
        assert abs(levels).max() == 11 or one == other == 0
        for level, value in zip(levels, (one, other), strict=False):
            assert level == 0 or (level > 0) == (value > 0)

    @pytest.mark.parametrize("colors", [Colors.TRUE, Colors.MANY])
    def test_there_are_at_most_24_levels_of_different_colours(self, colors: Colors) -> None:
        palette = palette_of(colors)
        signed = [*palette.negative, palette.zero, *palette.positive]
        for ramp in (signed, [palette.zero, *palette.above], [palette.zero, *palette.below]):
            assert len(set(ramp)) == len(ramp) <= 24
            assert not {palette.nan, palette.inf, palette.marker} & set(ramp)


class TestLayout:
    @given(SIZES, SIZES, ROOMS)
    def test_the_first_zoom_shows_the_whole_table(self, rows: int, columns: int, area: DrawArea) -> None:
        zoom = zooms((rows, columns), area)[0]
        down, across = zoom.grid(area)
        assert down * zoom.rows >= rows
        assert across * zoom.columns >= columns
        assert down * zoom.tall <= area.units
        assert across * zoom.wide <= area.width

    @given(st.integers(1, 10**7), ROOMS)
    def test_a_line_is_wrapped_into_the_room(self, count: int, area: DrawArea) -> None:
        zoom = zooms((1, count), area, folded=True)[0]
        down, across = zoom.grid(area)
        assert down * across * zoom.columns >= count
        assert down * zoom.tall <= area.units
        assert across * zoom.wide <= area.width

    @given(SIZES, SIZES, ROOMS, st.booleans())
    def test_zooming_in_ends_with_single_elements(self, rows: int, columns: int, area: DrawArea, folded: bool) -> None:
        levels = zooms((1 if folded else rows, columns), area, folded=folded)
        assert (levels[-1].rows, levels[-1].columns) == (1, 1)
        areas = [zoom.rows * zoom.columns for zoom in levels]
        assert areas == sorted(areas, reverse=True)
        assert len(set(levels)) == len(levels)

    @given(SIZES, SIZES, ROOMS, st.booleans(), st.integers(2, 16))
    def test_larger_cells_still_show_everything(
        self, rows: int, columns: int, area: DrawArea, folded: bool, times: int
    ) -> None:
        shape = (1 if folded else rows, columns)
        fine = zooms(shape, area, folded=folded)[0]
        cells = fine.window(shape, (0, 0), area).shape
        zoom = fine.coarser(times, cells, area)
        assert zoom.rows % fine.rows == zoom.columns % fine.columns == 0
        window = zoom.window(shape, (0, 0), area)
        assert (window.rows.stop, window.columns.stop) == shape


def page(array: Any, area: DrawArea, colors: Colors, zoom: Zoom | None = None) -> HeatPage:
    values = np.atleast_2d(np.asarray(array, float))
    table = HeatTable(lambda rows, columns: values[rows, columns], values.shape)
    zoom = zoom or zooms(table.shape, area)[0]
    picture = shrink(table.read, zoom.window(table.shape, (0, 0), area))
    return HeatPage(table, picture, zoom, area, HeatPainter(Scale(*(picture.bounds or (0.0, 0.0))), colors))


def plain(found: HeatPage) -> list[str]:
    return ["".join(piece.text for piece in line) for line in found.lines]


class TestLines:
    def test_without_colour_glyphs_tell_sign_and_magnitude(self) -> None:
        values = [[-4, -3, -2, -1, 0, 1, 2, 3, 4, np.nan, np.inf, -np.inf]]
        found = page(values, DrawArea(1, 12, False), Colors.NONE)
        assert plain(found) == ["▤≡=-·░▒▓█N▲▼"]
        assert not any(piece.ink or piece.ground for line in found.lines for piece in line)

    def test_half_blocks_make_two_rows_out_of_a_line(self) -> None:
        found = page([[1, -1], [-1, -1], [0, 0]], DrawArea(2, 2), Colors.TRUE, Zoom(1, 1, 1, 1))
        assert plain(found) == ["▀ ", "▀▀"]
        first, second = found.lines[0]
        assert (first.ink, first.ground) == (found.painter.color(11), found.painter.color(-11))
        assert (second.ink, second.ground) == ("", found.painter.color(-11))
        assert found.lines[1][0].ground == ""

    def test_a_bad_cell_takes_the_whole_character(self) -> None:
        found = page([[np.nan, 1, -np.inf], [1, np.inf, np.nan]], DrawArea(1, 3), Colors.TRUE, Zoom(1, 1, 1, 1))
        assert plain(found) == ["N▲N"]

    def test_neighbours_of_one_look_are_one_run(self) -> None:
        found = page(np.ones((40, 80)), DrawArea(20, 80), Colors.TRUE)
        assert [len(line) for line in found.lines] == [1] * 20
        assert found.cost < 20 * 120

    @given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(Colors), st.data())
    def test_no_nan_is_ever_hidden(self, rows: int, columns: int, colors: Colors, data: st.DataObject) -> None:
        array = np.zeros((rows, columns))
        array[data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))] = np.nan
        area = DrawArea(data.draw(st.integers(1, 12)), data.draw(st.integers(1, 20)), halves(colors))
        assert "N" in "".join(plain(page(array, area, colors)))

    def test_rows_and_columns_are_named(self) -> None:
        found = page(np.zeros((100, 300)), DrawArea(10, 60), Colors.TRUE)
        assert [found.name(line) for line in range(3)] == ["0", "10", "20"]
        assert found.header().split()[:3] == ["0", "25", "50"]

    def test_the_legend_says_what_the_ends_are_and_what_is_bad(self) -> None:
        found = page([[-2, 1, np.nan, np.nan]], DrawArea(1, 4, False), Colors.NONE)
        assert "".join(piece.text for piece in found.scale(9)) == "-2 ▤≡=-·░▒▓█ 2"
        assert "".join(piece.text for piece in found.bad_legend()) == "N NaN 2  "
        assert found.size_text == "cell 1 × 1"
        nothing = page([[np.nan]], DrawArea(1, 4, False), Colors.NONE)
        assert "".join(piece.text for piece in nothing.scale(3)) == "no finite value in sight"
