"""Curves as text: linear or logarithmic axes with labels, and dots of braille or quarter blocks in a frame.

Commands and the screen draw the same plot, and the core imports neither textual nor rich.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Float64, Int8, Int64, Mask
from tui_debugger.text.numbers import number
from tui_debugger.text.tensors import step_text

_LARGEST: Final = float(np.finfo(np.float64).max)
_DECADES: Final = 12
"""Powers of ten on each side of zero of a logarithmic axis for signed data, at most."""


class Axis(Protocol):
    """A range of values, laid out from 0 (low) to 1 (high)."""

    @property
    def low(self) -> float:
        """The value at 0."""

    @property
    def high(self) -> float:
        """The value at 1."""

    def place(self, values: Float64) -> Float64:
        """Places of finite values, 0 to 1; NaN for values that cannot stand on this axis."""

    def ticks(self, most: int) -> list[float]:
        """At most so many round values within the range, ascending."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal differences are equal distances."""

    low: float
    high: float

    def place(self, values: Float64) -> Float64:
        return _between(values, self.low, self.high)

    def ticks(self, most: int) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten."""
        span = self.high / 2 - self.low / 2
        if most < 1 or span <= 0:
            return [self.low]
        exponent = math.floor(math.log10(max(span / most, 5e-324))) - 1
        for power in range(exponent, exponent + 4):
            for digit in (1, 2, 5):
                found = _multiples(digit, power, self.low, self.high, most)
                if found is not None:
                    return found
        return [self.low]


@dataclass(frozen=True, slots=True)
class LogScale:
    """Equal factors are equal distances; ``low`` is above 0."""

    low: float
    high: float

    def place(self, values: Float64) -> Float64:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log10(values)
        logs[~(values > 0)] = np.nan
        return _between(logs, math.log10(self.low), math.log10(self.high))

    def ticks(self, most: int) -> list[float]:
        """Powers of ten; values between them if the range is shorter than one."""
        first, last = math.ceil(_log10(self.low)), math.floor(_log10(self.high))
        if last <= first:
            return Linear(self.low, self.high).ticks(most)
        return [_power(each) for each in _thinned(first, last, most)]


@dataclass(frozen=True, slots=True)
class SymmetricLog:
    """Logarithmic away from 0 on both sides, linear within ``threshold`` of it."""

    low: float
    high: float
    threshold: float

    def place(self, values: Float64) -> Float64:
        low, high = self._bent(np.array([self.low, self.high], np.float64)).tolist()
        return _between(self._bent(values), low, high)

    def _bent(self, values: Float64) -> Float64:
        bent: Float64 = np.copysign(np.log1p(np.abs(values / self.threshold)), values)
        return bent

    def ticks(self, most: int) -> list[float]:
        """0 and powers of ten on both sides."""
        first = math.ceil(_log10(self.threshold))
        per_side = max((most - 1) // 2, 1)
        found = [0.0] if self.low <= 0 <= self.high else []
        for sign, edge in ((-1, -self.low), (1, self.high)):
            last = math.floor(_log10(edge)) if edge > 0 else first - 1
            if last >= first:
                found += [sign * _power(each) for each in _thinned(first, last, per_side)]
        return sorted(found)


def axis_of(values: Float64, *, log: bool) -> Axis:
    """Returns an axis for all finite values; with ``log`` values of both signs or zeros get a symmetric one."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Linear(0.0, 1.0)
    low, high = float(finite.min()), float(finite.max())
    if not log:
        return Linear(*_widened(low, high))
    if low > 0:
        return LogScale(low, high) if high > low else LogScale(max(low / 2, 5e-324), min(high * 2, _LARGEST))
    sizes = np.abs(finite[finite != 0])
    if not len(sizes):
        return Linear(*_widened(low, high))
    largest, smallest = float(sizes.max()), float(sizes.min())
    threshold = max(smallest, largest * 10.0**-_DECADES, 1e-300)
    return SymmetricLog(*(_widened(low, high) if low == high else (low, high)), threshold)


def labels(values: list[float]) -> list[str]:
    """Returns ticks as text, with enough digits to tell them apart; zero is 0."""
    said = [number(value + 0.0) for value in values]
    for digits in range(6, 18):
        if len(set(said)) == len(set(values)):
            break
        said = [f"{value + 0.0:.{digits}g}" for value in values]
    return said


def _widened(low: float, high: float) -> tuple[float, float]:
    if low < high:
        return low, high
    by = abs(low) * 0.05 or 1.0
    return max(low - by, -_LARGEST), min(high + by, _LARGEST)


def _between(values: Float64, low: float, high: float) -> Float64:
    """Returns the places of values between two others, without overflow; 0.5 if both are equal."""
    if math.isfinite(high - low):
        span, from_low = high - low, values - low
    else:
        span, from_low = high / 2 - low / 2, values / 2 - low / 2
    return from_low / span if span > 0 else np.where(np.isnan(values), np.nan, 0.5)


def _multiples(digit: int, power: int, low: float, high: float, most: int) -> list[float] | None:
    """Returns the multiples of digit·10^power within a range; None if there are more than ``most``."""
    unit = digit * _power(power)
    if unit <= 0 or not math.isfinite(low / unit) or not math.isfinite(high / unit):
        return None
    first, last = math.ceil(low / unit), math.floor(high / unit)
    if last - first + 1 > most:
        return None
    # Through the decimal text, so that 3 times 0.1 is 0.3.
    found = [float(f"{each * digit}e{power}") for each in range(first, last + 1)]
    return [each for each in found if low <= each <= high]


def _thinned(first: int, last: int, most: int) -> list[int]:
    """Returns whole numbers from first to last in equal steps, at most ``most`` of them."""
    every = max(-(-(last - first + 1) // max(most, 1)), 1)
    return [each for each in range(first, last + 1) if each % every == 0] or [first]


def _log10(value: float) -> float:
    """Returns log10 without rounding errors such as log10(1000) = 2.9999999999999996."""
    exact = math.log10(value)
    return float(round(exact)) if abs(exact - round(exact)) < 1e-12 else exact


def _power(exponent: int) -> float:
    return float(f"1e{exponent}")


_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Dots:
    """The dots of a cell; in a set of dots, the dot in row r and column c is bit r·across + c of the glyph's number."""

    across: int
    down: int
    glyphs: str


def _braille(bits: int) -> str:
    places = (0, 3, 1, 4, 2, 5, 6, 7)
    """The bit of the code point for each dot, row by row."""
    return chr(0x2800 + sum(1 << places[dot] for dot in range(8) if bits >> dot & 1)) if bits else " "


BRAILLE: Final = Dots(2, 4, "".join(_braille(bits) for bits in range(256)))
BLOCKS: Final = Dots(2, 2, " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█")


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The points that are drawn in one colour.

    ``x`` ascends; a ``y`` that is not finite is a gap. ``mark`` is a glyph at some points, which tells curves apart
    without colour. ``bars``: each point is a count, drawn as a bar from 0, without a line between points.
    """

    x: Float64
    y: Float64
    mark: str = ""
    bars: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """The ranges of x and y."""

    x: Axis
    y: Axis


@dataclass(frozen=True, slots=True, eq=False)
class Plot:
    """A drawn plot. All lines of cells have the same width.

    ``owners``: the number of the curve of each cell, -1 for empty cells. ``labels`` stand left of the rows;
    ``border``: the line between label and cells. ``axis`` and ``ticks`` are the lines below the cells.
    """

    rows: tuple[str, ...]
    owners: Int8
    labels: tuple[str, ...]
    border: str
    axis: str
    ticks: str
    x_axis: Axis
    width: int

    @property
    def margin(self) -> int:
        return len(self.labels[0]) + 1 if self.labels else 1

    def columns(self, x: Float64) -> Int64:
        return _cells(self.x_axis, x, self.width)

    def lines(self, marks: str = "") -> list[str]:
        """The whole plot as lines of text; ``marks`` are laid over the axis where they are not blank."""
        pad = " " * (self.margin - 1)
        over = marks or " " * self.width
        axis = "".join(mark if mark.strip() else line for mark, line in zip(over, self.axis, strict=True))
        body = [f"{label}{edge}{row}" for label, edge, row in zip(self.labels, self.border, self.rows, strict=True)]
        return [*body, f"{pad}└{axis}", f"{pad} {self.ticks}".rstrip()]


def raster(curve: Curve, axes: Axes, width: int, height: int) -> Mask:
    """Returns the dots of a curve, [row from the top, column], on a canvas of ``width`` x ``height`` dots.

    Every finite point within the axes sets the nearest dot. A line joins neighbouring points, unless a value is missing
    or they are farther apart than usual. Many points in one column set all dots from the lowest to the highest, so that
    no spike gets lost.
    """
    dots = np.zeros((height, width), np.bool_)
    column, row, at = _dots(curve, axes, width, height)
    if not len(at):
        return dots
    # A run is a row of points without a gap; within a run and a column, all between the extremes is joined.
    new = np.ones(len(at), np.bool_)
    joined = (np.diff(at) == 1) & (np.diff(curve.x[at]) <= usual_distance(curve.x))
    new[1:] = ~joined | (np.diff(column) != 0)
    starts = np.flatnonzero(new)
    top, bottom = np.minimum.reduceat(row, starts), np.maximum.reduceat(row, starts)
    _bars(dots, column[starts], top, bottom)
    for end in (np.flatnonzero(new[1:] & joined)).tolist():
        _line(dots, int(column[end]), int(row[end]), int(column[end + 1]), int(row[end + 1]))
    return dots


def usual_distance(x: Float64) -> float:
    """Returns the usual distance of points, by the larger half of distances; longer ones are gaps."""
    distances = np.diff(x)
    distances = np.sort(distances[distances > 0])
    return float(distances[len(distances) // 2]) if len(distances) else np.inf


def count_axis(values: Float64, *, log: bool) -> Axis:
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.max() <= 0:
        return Linear(0.0, 1.0)
    return axis_of(np.append(finite, 0.0), log=log)


_WIDEST_BAR: Final = 4


@dataclass(frozen=True, slots=True)
class _CurveBars:
    """The bars of one of several curves that share a plot.

    ``cell``: the first cell of each bar; ``cells``: the width of bars, 0 if several share a cell; ``dots``: the first
    dot of a bar in its cell and the dot after its last one; ``top``: its upper end in dots; ``high``: more than a line.
    """

    cell: Int64
    cells: int
    dots: tuple[int, int]
    top: Int64
    high: Mask
    mark: str

    def raster(self, width: int, height: int, across: int) -> Mask:
        """Returns the dots of the bars; of several bars in one place the highest counts."""
        columns = range(*self.dots) if not self.cells else range(self.cells * across)
        tops = np.full(width, height, np.int64)
        for column in columns:
            at = self.cell * across + column
            inside = at < width
            np.minimum.at(tops, at[inside], self.top[inside])
        found: Mask = np.arange(height)[:, None] >= tops[None, :]
        return found


def _bars_of(curves: Sequence[Curve], axes: Axes, size: tuple[int, int], dots: Dots) -> dict[int, _CurveBars]:
    """Returns the bars by curve, side by side around the cell of their step; ``size``: cells of a row, rows."""
    bar_curves = [place for place, curve in enumerate(curves) if curve.bars]
    if not bar_curves:
        return {}
    width, height = size[0], size[1] * dots.down
    places = np.unique(np.concatenate([_cells(axes.x, curves[place].x, width) for place in bar_curves]))
    apart = int(np.diff(places).min()) if len(places) > 1 else width
    wide = min(2 * apart // (3 * len(bar_curves)), _WIDEST_BAR)  # a third stays free: the outermost ones are moved in
    found = {}
    for at, place in enumerate(bar_curves):
        curve = curves[place]
        with np.errstate(invalid="ignore"):
            up, across = _on(axes.y.place(curve.y)), _on(axes.x.place(curve.x))
            known = np.isfinite(curve.y) & (up >= 0) & (up <= 1) & (across >= 0) & (across <= 1)
        total = max(wide * len(bar_curves), 1)
        first = np.clip(_cells(axes.x, curve.x[known], width) - (total - 1) // 2, 0, max(width - total, 0))
        high = curve.y[known] > 0
        dots_high = np.rint(up[known] * (height - 1)).astype(np.int64)
        dots_high = np.where(high, np.maximum(dots_high, 1), 0)  # of any at all more is seen than of none
        left = at * dots.across // len(bar_curves)
        share = (left, max((at + 1) * dots.across // len(bar_curves), left + 1))
        found[place] = _CurveBars(
            first + at * wide, wide, share, np.maximum(height - 1 - dots_high, 0), high, curve.mark
        )
    return found


def draw(
    curves: Sequence[Curve], axes: Axes, width: int, height: int, dots: Dots = BRAILLE, *, margin: int = 0
) -> Plot:
    """Draws curves over each other, the last ones below.

    ``width`` (cells) includes labels, ``height`` (lines) includes ticks. ``margin``: the least cells for row labels, so
    that plots below each other are aligned.
    """
    rows = max(height - 2, 1)
    marked = _row_labels(axes.y, rows)
    room = max(margin, *map(len, marked.values()), 0)
    inner = max(width - room - 1, 1)
    bits = np.zeros((rows, inner), np.int64)
    owners = np.full((rows, inner), -1, np.int8)
    weights = (1 << np.arange(dots.across * dots.down)).reshape(dots.down, dots.across)
    bars = _bars_of(curves, axes, (inner, rows), dots)
    for place in reversed(range(len(curves))):
        if place in bars:
            raw = bars[place].raster(inner * dots.across, rows * dots.down, dots.across)
        else:
            raw = raster(curves[place], axes, inner * dots.across, rows * dots.down)
        cells = raw.reshape(rows, dots.down, inner, dots.across)
        own = np.einsum("rdca,da->rc", cells, weights)
        bits |= own
        owners[own > 0] = place
    glyphs = np.array(list(dots.glyphs))[bits]
    for place in reversed(range(len(curves))):
        if place in bars:
            _put_bar_marks(glyphs, owners, place, bars[place], dots.down)
        else:
            _put_marks(glyphs, owners, place, curves[place], axes)
    axis, ticks = _ticks(axes.x, inner)
    return Plot(
        rows=tuple("".join(line) for line in glyphs.tolist()),
        owners=owners,
        labels=tuple(marked.get(row, "").rjust(room) for row in range(rows)),
        border="".join("┤" if row in marked else "│" for row in range(rows)),
        axis=axis,
        ticks=ticks,
        x_axis=axes.x,
        width=inner,
    )


def x_axis_of(x: Float64) -> Axis:
    return Linear(float(x.min()), float(x.max())) if len(x) else Linear(0.0, 1.0)


def _dots(curve: Curve, axes: Axes, width: int, height: int) -> tuple[Int64, Int64, Int64]:
    """Returns column and row of the dot of every point that can be drawn, and its number."""
    with np.errstate(invalid="ignore"):
        across, up = _on(axes.x.place(curve.x)), _on(axes.y.place(curve.y))
        at = np.flatnonzero(np.isfinite(curve.y) & (across >= 0) & (across <= 1) & (up >= 0) & (up <= 1))
    column = np.rint(across[at] * (width - 1)).astype(np.int64)
    row = np.rint((1 - up[at]) * (height - 1)).astype(np.int64)
    return column, row, at


def _on(places: Float64) -> Float64:
    """Moves places back onto the axis that rounding put just beside its end."""
    beside = ((places < 0) & (places > -_ROUNDING)) | ((places > 1) & (places < 1 + _ROUNDING))
    return np.where(beside, np.rint(places), places)


def _cells(axis: Axis, x: Float64, width: int) -> Int64:
    """Returns the cell of each x, the same for any number of dots."""
    dot = np.rint(axis.place(x) * (width * BRAILLE.across - 1)).astype(np.int64)
    return np.clip(dot // BRAILLE.across, 0, width - 1)


def _bars(dots: Mask, column: Int64, top: Int64, bottom: Int64) -> None:
    length = bottom - top + 1
    within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    dots[np.repeat(top, length) + within, np.repeat(column, length)] = True


def _line(dots: Mask, column: int, row: int, to_column: int, to_row: int) -> None:
    steps = max(abs(to_column - column), abs(to_row - row), 1)
    share = np.arange(steps + 1) / steps
    columns = np.rint(column + (to_column - column) * share).astype(np.int64)
    dots[np.rint(row + (to_row - row) * share).astype(np.int64), columns] = True


def _put_marks(glyphs: npt.NDArray[np.str_], owners: Int8, number: int, curve: Curve, axes: Axes) -> None:
    """Puts a curve's mark onto cells of its points, far enough apart to leave the curve in sight."""
    if not curve.mark:
        return
    rows, width = glyphs.shape
    column, row, _ = _dots(curve, axes, width * BRAILLE.across, rows * BRAILLE.down)
    column, row = column // BRAILLE.across, row // BRAILLE.down
    apart = 1 if len(np.unique(column)) * 4 <= width else max(width // 8, 4)
    last = -apart
    for at in np.unique(column, return_index=True)[1].tolist():
        if column[at] - last >= apart:
            last = int(column[at])
            glyphs[row[at], last], owners[row[at], last] = curve.mark, number


def _put_bar_marks(glyphs: npt.NDArray[np.str_], owners: Int8, place: int, bars: _CurveBars, down: int) -> None:
    """Puts the mark of a curve onto the upper ends of its bars, if they are more than a line."""
    rows, cells = bars.top[bars.high] // down, bars.cell[bars.high]
    last: dict[int, int] = {}
    for row, cell in zip(rows.tolist(), cells.tolist(), strict=True):
        last[cell] = min(last.get(cell, row), row)
    for cell, row in last.items() if bars.mark else ():
        glyphs[row, cell], owners[row, cell] = bars.mark, place


def _row_labels(axis: Axis, rows: int) -> dict[int, str]:
    """Returns labels by row from the top: round values; both ends if there are fewer than two round values."""
    ticks = axis.ticks(max(rows // 3, 2))
    if len(ticks) < 2 and axis.low < axis.high:
        ticks = [axis.low, axis.high]
    places = _on(axis.place(np.array(ticks, np.float64)))
    found: dict[int, str] = {}
    for place, label in zip(places.tolist(), labels(ticks), strict=True):
        if 0 <= place <= 1:
            found.setdefault(round((1 - place) * (rows - 1)), label)
    return found


def _ticks(axis: Axis, width: int) -> tuple[str, str]:
    """Returns the axis line and the labels below it; steps are whole numbers."""
    line, below = ["─"] * width, [" "] * width
    ticks = [each for each in axis.ticks(max(width // 8, 1)) if each == int(each)]
    free = 0
    for tick, column in zip(ticks, _cells(axis, np.array(ticks, np.float64), width).tolist(), strict=True):
        text = step_text(int(tick))
        start = max(min(column - len(text) // 2, width - len(text)), 0)
        if start >= free and start + len(text) <= width:
            line[column] = "┬"
            below[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(line), "".join(below)
