"""Plots: every value at its place, none lost, none invented."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_debugger.text.plot import (
    BLOCKS,
    BRAILLE,
    Axes,
    Axis,
    Curve,
    Dots,
    Linear,
    LogScale,
    SymmetricLog,
    axis_of,
    count_axis,
    draw,
    raster,
    usual_distance,
    x_axis_of,
)

VALUES = st.floats(-1e6, 1e6, allow_nan=False)
MAYBE = st.one_of(VALUES, st.just(float("nan")), st.just(float("inf")), st.just(float("-inf")))
SIZES = st.tuples(st.integers(1, 40), st.integers(1, 30))
ANY = st.floats(allow_nan=False, allow_infinity=False)


def curve(values: list[float], mark: str = "") -> Curve:
    return Curve(np.arange(len(values), dtype=np.float64), np.array(values, np.float64), mark)


def axes(of: Curve, *, log: bool = False) -> Axes:
    return Axes(x_axis_of(of.x), axis_of(of.y, log=log))


def nearest(value: float, low: float, high: float, dots: int) -> set[int]:
    """The dots that a value may set: the nearest one, either of two that are equally near."""
    if low == high:
        return {int(0.5 * (dots - 1)), int(0.5 * (dots - 1) + 0.5)}
    place = (Fraction(value) - Fraction(low)) / (Fraction(high) - Fraction(low)) * (dots - 1)
    # The rounding of a float quotient may decide a tie.
    slack = Fraction(1, 10**6)
    return {round(place + slack), round(place - slack), round(place)}


@given(st.lists(MAYBE, min_size=1, max_size=60), SIZES)
def test_every_finite_value_sets_the_dot_nearest_to_it(values: list[float], size: tuple[int, int]) -> None:
    width, height = size
    of = curve(values)
    at = axes(of)
    dots = raster(of, at, width, height)
    for number, value in enumerate(values):
        if np.isfinite(value):
            columns = nearest(number, at.x.low, at.x.high, width)
            rows = {height - 1 - row for row in nearest(value, at.y.low, at.y.high, height)}
            assert any(dots[row, column] for row in rows for column in columns), (number, value)


@given(st.lists(MAYBE, min_size=1, max_size=30), SIZES)
def test_values_between_gaps_set_no_other_dot(values: list[float], size: tuple[int, int]) -> None:
    apart = [each for value in values for each in (value, float("nan"))]
    dots = raster(curve(apart), axes(curve(apart)), *size)
    assert dots.sum() <= sum(np.isfinite(apart))


@given(st.lists(MAYBE, min_size=2, max_size=60), SIZES)
def test_dots_stay_between_the_values_around_them(values: list[float], size: tuple[int, int]) -> None:
    """A line leads from one value to the next: no dot is above both or below both."""
    width, height = size
    of = curve(values)
    at = axes(of)
    column = np.rint(at.x.place(of.x) * (width - 1))
    finite = np.where(np.isfinite(of.y), of.y, at.y.low)
    row = np.rint((1 - at.y.place(finite)) * (height - 1))
    allowed = np.zeros((height, width), np.bool_)
    for number, value in enumerate(values):
        for other in (number, number + 1):
            if other < len(values) and np.isfinite(value) and np.isfinite(values[other]):
                rows = sorted((int(row[number]), int(row[other])))
                columns = sorted((int(column[number]), int(column[other])))
                allowed[rows[0] : rows[1] + 1, columns[0] : columns[1] + 1] = True
    assert not (raster(of, at, width, height) & ~allowed).any()


def test_a_gap_is_a_gap() -> None:
    dots = raster(curve([1, 1, float("nan"), float("nan"), 1, 1]), Axes(Linear(0, 5), Linear(0, 2)), 51, 5)
    assert dots.any(axis=0).tolist() == [column <= 10 or column >= 40 for column in range(51)]


def test_of_a_hundred_thousand_steps_no_spike_is_lost() -> None:
    values = np.zeros(100_000)
    values[54_321] = 1.0
    dots = raster(Curve(np.arange(1e5), values), Axes(Linear(0, 99_999), Linear(0, 1)), 100, 20)
    assert dots[:, 54].all()
    assert dots[:-1].any(axis=0).sum() == 1


@pytest.mark.parametrize("dots", [BRAILLE, BLOCKS])
@given(values=st.lists(VALUES, min_size=1, max_size=40))
def test_the_glyphs_hold_exactly_the_dots(dots: Dots, values: list[float]) -> None:
    of = curve(values)
    plot = draw([of], axes(of), 40, 12, dots)
    raw = raster(of, axes(of), plot.width * dots.across, len(plot.rows) * dots.down)
    read = np.zeros_like(raw)
    for y, line in enumerate(plot.rows):
        for x, glyph in enumerate(line):
            for bit in range(dots.across * dots.down):
                if dots.glyphs.index(glyph) >> bit & 1:
                    read[y * dots.down + bit // dots.across, x * dots.across + bit % dots.across] = True
    assert np.array_equal(read, raw)
    assert ((plot.owners >= 0) == np.array([[glyph != " " for glyph in line] for line in plot.rows])).all()


def test_braille_dots_are_where_unicode_says() -> None:
    assert BRAILLE.glyphs[0b00000001] == "⠁"
    assert BRAILLE.glyphs[0b00000010] == "⠈"
    assert BRAILLE.glyphs[0b01000000] == "⡀"
    assert BRAILLE.glyphs[0b10000000] == "⢀"
    assert BRAILLE.glyphs[0b11111111] == "⣿"


@given(st.lists(MAYBE, max_size=30), st.integers(1, 120), st.integers(1, 40), st.booleans())
def test_lines_are_as_wide_as_asked_for(values: list[float], width: int, height: int, log: bool) -> None:
    of = curve(values, "○")
    plot = draw([of, of], axes(of, log=log), width, height)
    assert len(plot.rows) == max(height - 2, 1)
    assert {len(row) for row in (*plot.rows, plot.axis, plot.ticks)} == {plot.width}
    assert len({len(label) for label in plot.labels}) == 1
    assert plot.width + plot.margin == width or plot.width == 1


@given(st.lists(VALUES, min_size=1, max_size=30))
def test_marks_stand_on_the_first_point_at_least(values: list[float]) -> None:
    of = curve(values, "○")
    plot = draw([of], axes(of), 60, 12)
    column = int(plot.columns(of.x)[0])
    assert "○" in [row[column] for row in plot.rows]


def test_the_first_curve_is_on_top() -> None:
    of = curve([0, 1])
    assert set(np.unique(draw([of, of], axes(of), 20, 6).owners).tolist()) == {-1, 0}


def test_plots_below_each_other_are_in_line() -> None:
    of = curve([0, 1])
    assert draw([of], axes(of), 30, 8, margin=9).margin == 10


@given(st.lists(ANY, min_size=1, max_size=30), st.booleans())
def test_every_finite_value_stands_on_its_axis(values: list[float], log: bool) -> None:
    axis = axis_of(np.array(values), log=log)
    places = axis.place(np.array(values))
    assert (places > -1e-9).all()
    assert (places < 1 + 1e-9).all()
    ordered = axis.place(np.sort(values))
    assert (np.diff(ordered) >= -1e-12).all()


@given(st.lists(ANY, min_size=1, max_size=30), st.booleans(), st.integers(1, 12))
def test_ticks_lie_within_the_axis_and_are_few(values: list[float], log: bool, most: int) -> None:
    axis: Axis = axis_of(np.array(values), log=log)
    ticks = axis.ticks(most)
    assert ticks == sorted(ticks)
    assert all(axis.low <= tick <= axis.high for tick in ticks)
    assert len(ticks) <= max(most, 3)


@pytest.mark.parametrize(
    ("values", "log", "kind"),
    [
        ([1.0, 1000.0], True, LogScale),
        ([-1.0, 1000.0], True, SymmetricLog),
        ([0.0, 1000.0], True, SymmetricLog),
        ([0.0, 0.0], True, Linear),
        ([1.0, 1000.0], False, Linear),
        ([], True, Linear),
    ],
)
def test_a_logarithmic_axis_is_chosen_where_it_means_something(values: list[float], log: bool, kind: type) -> None:
    assert isinstance(axis_of(np.array(values), log=log), kind)


def test_ticks_are_round() -> None:
    assert Linear(0, 1).ticks(6) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert Linear(-3, 7).ticks(3) == [0, 5]
    assert LogScale(1e-3, 1e3).ticks(9) == [1e-3, 1e-2, 0.1, 1, 10, 100, 1000]
    assert SymmetricLog(-100, 100, 1).ticks(7) == [-100, -10, -1, 0, 1, 10, 100]


# -- what was not recorded -------------------------------------------------------------------------


def test_a_line_breaks_where_steps_were_not_recorded() -> None:
    of = Curve(np.array([0.0, 1, 2, 8, 9, 10]), np.ones(6))
    dots = raster(of, Axes(Linear(0, 10), Linear(0, 2)), 101, 5)
    assert dots.any(axis=0).tolist() == [column <= 20 or column >= 80 for column in range(101)]


@pytest.mark.parametrize(
    ("steps", "usual"), [([0, 10, 20, 30], 10), ([5], np.inf), ([0, 1, 2, 100], 1), ([0, 7], 7), ([1, 1, 1, 4], 3)]
)
def test_steps_that_are_always_as_far_apart_have_no_gap(steps: list[float], usual: float) -> None:
    assert usual_distance(np.array(steps, np.float64)) == usual


COUNTS = st.lists(st.one_of(st.integers(0, 10**9), st.none()), min_size=1, max_size=30)


def counted(values: list[int | None], mark: str = "") -> Curve:
    y = [np.nan if value is None else float(value) for value in values]
    return Curve(np.arange(len(y), dtype=np.float64), np.array(y), mark, bars=True)


def bar_axes(*of: Curve, log: bool = False) -> Axes:
    return Axes(x_axis_of(of[0].x), count_axis(np.concatenate([each.y for each in of]), log=log))


@given(COUNTS, st.integers(20, 160), st.integers(3, 30), st.booleans(), st.sampled_from([BRAILLE, BLOCKS]))
def test_a_count_is_a_bar_at_its_step_and_nothing_stands_between_or_where_nothing_was_recorded(
    values: list[int | None], width: int, height: int, log: bool, dots: Dots
) -> None:
    of = counted(values)
    plot = draw([of], bar_axes(of, log=log), width, height, dots)
    columns = plot.columns(of.x).tolist()
    lengths = [sum(row[x] != " " for row in plot.rows) for x in range(plot.width)]
    assert all(row[x] == " " or plot.rows[-1][x] != " " for row in plot.rows for x in range(plot.width)), "from below"
    known = {column for column, value in zip(columns, values, strict=True) if value is not None}
    apart = min((b - a for a, b in itertools.pairwise(columns) if b > a), default=plot.width)
    for x, length in enumerate(lengths):
        near = min((abs(x - column) for column in known), default=plot.width)
        assert not length or near <= max(apart // 2, 4), "no bar where nothing was recorded"
    for column, value in zip(columns, values, strict=True):
        others = [each for at, each in zip(columns, values, strict=True) if at == column and each is not None]
        if value is not None:
            assert lengths[column] >= 1
            most = max(others)
            place = float(plot.rows and bar_axes(of, log=log).y.place(np.array([float(most)]))[0])
            assert abs(lengths[column] - place * len(plot.rows)) <= 1.5


def test_none_at_all_is_a_line_at_the_bottom_and_unknown_is_blank() -> None:
    of = counted([0, None, 0])
    plot = draw([of], bar_axes(of), 42, 8)
    first, second, third = plot.columns(of.x).tolist()
    assert plot.rows[-1][first] == plot.rows[-1][third] == "⣀"
    assert all(row[second] == " " for row in plot.rows)


def test_counts_of_several_kinds_stand_beside_each_other() -> None:
    nan, inf = counted([5, 0, 5], "N"), counted([5, 5, 0], "I")
    plot = draw([nan, inf], bar_axes(nan, inf), 62, 8)
    assert [sorted(set(plot.owners[0].tolist())), plot.rows[0].count("N"), plot.rows[0].count("I")] == [
        [-1, 0, 1],
        2,
        2,
    ]
    narrow = draw([nan, inf], bar_axes(nan, inf), 8, 8)
    assert any("⡇" in row or "⢸" in row or "⣿" in row for row in narrow.rows), "they share cells where there is no room"


def test_of_a_hundred_thousand_steps_the_one_with_nan_is_seen() -> None:
    values: list[int | None] = [0] * 100_000
    values[54_321] = 1
    plot = draw([counted(values)], bar_axes(counted(values)), 102, 8)
    assert sum(char != " " for char in plot.rows[0]) == 1
