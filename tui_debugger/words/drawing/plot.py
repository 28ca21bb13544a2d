"""Curves as text: dots of braille, or of quarter blocks, in a frame with ticks. For the screen and commands alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.arrays import Float64, Int64, Mask
from tui_debugger.words.drawing.axis import Axis, Linear, labels
from tui_debugger.words.steps import step_text

_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Dots:
    """How a cell is made of dots.

    Attributes:
        across, down: dots of a cell.
        glyphs: one character for each set of dots; the dot in row r and column c is bit r·across + c.
    """

    across: int
    down: int
    glyphs: str


def _braille(bits: int) -> str:
    places = (0, 3, 1, 4, 2, 5, 6, 7)
    """Bit of the code point for each dot, row by row."""
    return chr(0x2800 + sum(1 << places[dot] for dot in range(8) if bits >> dot & 1)) if bits else " "


BRAILLE: Final = Dots(2, 4, "".join(_braille(bits) for bits in range(256)))
BLOCKS: Final = Dots(2, 2, " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█")


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What is drawn in one colour.

    Attributes:
        x: ascending.
        y: one for each x; what is not finite is a gap.
        mark: glyph at some of its points, which tells it from others without colour; empty for none.
    """

    x: Float64
    y: Float64
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Axes:
    """Where x and y stand."""

    x: Axis
    y: Axis


@dataclass(frozen=True, slots=True, eq=False)
class Plot:
    """A drawn plot. All lines of cells have the same width.

    Attributes:
        rows: the cells of the plot itself, from the top.
        owners: number of the curve that each cell is of, -1 for empty ones.
        labels: what stands to the left of each row, right-aligned in one width.
        border: the line between label and cells, by row.
        axis: the line below the cells.
        ticks: the labels below it; as wide as the cells, or empty.
        x_axis: where x stands.
        width: cells of a row.
    """

    rows: tuple[str, ...]
    owners: npt.NDArray[np.int8]
    labels: tuple[str, ...]
    border: str
    axis: str
    ticks: str
    x_axis: Axis
    width: int

    @property
    def margin(self) -> int:
        """Cells to the left of the plot: labels and border."""
        return len(self.labels[0]) + 1 if self.labels else 1

    def columns(self, x: Float64) -> Int64:
        """The cell in which each x stands."""
        return _cells(self.x_axis, x, self.width)

    def lines(self, marks: str = "") -> list[str]:
        """The whole plot as lines of text; ``marks`` are laid over the axis where they are not blank."""
        pad = " " * (self.margin - 1)
        over = marks or " " * self.width
        axis = "".join(mark if mark.strip() else line for mark, line in zip(over, self.axis, strict=True))
        body = [f"{label}{edge}{row}" for label, edge, row in zip(self.labels, self.border, self.rows, strict=True)]
        return [*body, f"{pad}└{axis}", f"{pad} {self.ticks}".rstrip()]


def raster(curve: Curve, axes: Axes, width: int, height: int) -> Mask:
    """The dots of a curve, [row from the top, column], on a canvas of ``width`` x ``height`` dots.

    Every finite point within the axes sets the dot nearest to it. Points next to each other are joined by a line,
    across a gap there is none; of many points in one column all from the lowest to the highest are set, so that no
    spike gets lost.
    """
    dots = np.zeros((height, width), np.bool_)
    column, row, at = _dots(curve, axes, width, height)
    if not len(at):
        return dots
    # A run is a row of points without a gap; within a run and a column, all between the extremes is joined.
    new = np.ones(len(at), np.bool_)
    joined = np.diff(at) == 1
    new[1:] = ~joined | (np.diff(column) != 0)
    starts = np.flatnonzero(new)
    top, bottom = np.minimum.reduceat(row, starts), np.maximum.reduceat(row, starts)
    _bars(dots, column[starts], top, bottom)
    for end in (np.flatnonzero(new[1:] & joined)).tolist():
        _line(dots, int(column[end]), int(row[end]), int(column[end + 1]), int(row[end + 1]))
    return dots


def draw(
    curves: Sequence[Curve], axes: Axes, width: int, height: int, dots: Dots = BRAILLE, *, margin: int = 0
) -> Plot:
    """Draws curves over each other, the last ones below.

    Args:
        curves: what is drawn.
        axes: see ``axis_of``.
        width: of the whole plot in cells, labels included.
        height: of the whole plot in lines, ticks included.
        dots: what cells are made of.
        margin: cells for the labels of rows at least, so that plots below each other are in line.
    """
    rows = max(height - 2, 1)
    marked = _row_labels(axes.y, rows)
    room = max(margin, *map(len, marked.values()), 0)
    inner = max(width - room - 1, 1)
    bits = np.zeros((rows, inner), np.int64)
    owners = np.full((rows, inner), -1, np.int8)
    weights = (1 << np.arange(dots.across * dots.down)).reshape(dots.down, dots.across)
    for number in reversed(range(len(curves))):
        raw = raster(curves[number], axes, inner * dots.across, rows * dots.down)
        cells = raw.reshape(rows, dots.down, inner, dots.across)
        own = np.einsum("rdca,da->rc", cells, weights)
        bits |= own
        owners[own > 0] = number
    glyphs = np.array(list(dots.glyphs))[bits]
    for number in reversed(range(len(curves))):
        _put_marks(glyphs, owners, number, curves[number], axes)
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
    """An axis for steps: from the first to the last."""
    return Linear(float(x.min()), float(x.max())) if len(x) else Linear(0.0, 1.0)


def _dots(curve: Curve, axes: Axes, width: int, height: int) -> tuple[Int64, Int64, Int64]:
    """Column and row of the dot of every point that can be drawn, and its number."""
    with np.errstate(invalid="ignore"):
        across, up = _on(axes.x.place(curve.x)), _on(axes.y.place(curve.y))
        at = np.flatnonzero(np.isfinite(curve.y) & (across >= 0) & (across <= 1) & (up >= 0) & (up <= 1))
    column = np.rint(across[at] * (width - 1)).astype(np.int64)
    row = np.rint((1 - up[at]) * (height - 1)).astype(np.int64)
    return column, row, at


def _on(places: Float64) -> Float64:
    """Places that rounding put just beside the end of an axis, put back on it."""
    beside = ((places < 0) & (places > -_ROUNDING)) | ((places > 1) & (places < 1 + _ROUNDING))
    return np.where(beside, np.rint(places), places)


def _cells(axis: Axis, x: Float64, width: int) -> Int64:
    """The cell of the dot of each x: the same as that of its point, whichever the number of dots."""
    dot = np.rint(axis.place(x) * (width * BRAILLE.across - 1)).astype(np.int64)
    return np.clip(dot // BRAILLE.across, 0, width - 1)


def _bars(dots: Mask, column: Int64, top: Int64, bottom: Int64) -> None:
    """Sets the dots from top to bottom in each column."""
    length = bottom - top + 1
    within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    dots[np.repeat(top, length) + within, np.repeat(column, length)] = True


def _line(dots: Mask, column: int, row: int, to_column: int, to_row: int) -> None:
    steps = max(abs(to_column - column), abs(to_row - row), 1)
    share = np.arange(steps + 1) / steps
    columns = np.rint(column + (to_column - column) * share).astype(np.int64)
    dots[np.rint(row + (to_row - row) * share).astype(np.int64), columns] = True


def _put_marks(
    glyphs: npt.NDArray[np.str_], owners: npt.NDArray[np.int8], number: int, curve: Curve, axes: Axes
) -> None:
    """Puts a curve's mark onto cells of its points, far enough from each other to leave the curve in sight."""
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


def _row_labels(axis: Axis, rows: int) -> dict[int, str]:
    """Labels of rows, by row from the top: round values; both ends where there are not two of them."""
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
    """The axis line and the labels below it; steps are whole numbers."""
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
