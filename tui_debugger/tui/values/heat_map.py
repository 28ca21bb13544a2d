"""A table of numbers as a heat map: coloured cells, a cursor, zoom; only visible cells are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from tui_debugger.config import in_use
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.stats.heat import Picture, strongest
from tui_debugger.text.heat_map import (
    BADS,
    ColoredText,
    Colors,
    DrawArea,
    HeatPage,
    HeatPainter,
    HeatTable,
    Scale,
    Zoom,
    colors_named,
    halves,
    zooms,
)
from tui_debugger.text.numbers import plural
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.widgets.line_window import PaintedLines
from tui_debugger.tui.widgets.text import fit

_MARK: Final = Style(color="#000000", bgcolor="#ffffff", bold=True)
_FADED: Final = Style(bold=True, underline=True)


def colors_of(app: App[Any]) -> Colors:
    """Returns the colours that the terminal can show and the theme allows."""
    system = "standard" if in_use().theme == "terminal" else app.console.color_system
    return colors_named(system, plain=app.no_color)


@lru_cache(maxsize=1024)
def _style(base: Style, ink: str, ground: str) -> Style:
    # A piece with its own ground needs no base style: fewer bytes to write.
    own = Style(color=ink or None, bgcolor=ground or None)
    return own if ground else base + own


@dataclass(frozen=True, eq=False)
class HeatLines(HeatPage):
    """A page of a heat map for a widget."""

    def trimmed(self) -> HeatLines:
        """Returns the page with an area no larger than its cells need."""
        rows, columns = self.picture.window.shape
        if self.table.folded:
            rows = -(-columns // self.across)
        lines = max(1, min(self.area.lines, -(-rows * self.zoom.tall // self.area.each)))
        width = self.area.columns if self.table.folded else min(self.area.columns, columns * self.zoom.wide)
        return replace(self, area=replace(self.area, lines=lines, columns=width))

    def strip(self, line: int, base: Style, names: Style) -> Strip:
        """Returns a line of cells, after its name."""
        segments = [Segment(self.name(line).rjust(self.margin - 1) + " ", names)]
        if line < len(self.lines):
            segments += [Segment(piece.text, _style(base, piece.ink, piece.ground)) for piece in self.lines[line]]
        return Strip(segments)

    def marked(self, strip: Strip, row: int, column: int, *, strong: bool) -> Strip:
        """Returns a line with the cursor on it: brackets where there is space, else a half block or reverse video."""
        _, start, stop = self.marker(row, column)
        before, cell, after = (strip.crop(*ends) for ends in ((0, start), (start, stop), (stop, None)))
        if self.area.halves and self.zoom.tall == 1:
            other = self.painter.ground(self.picture, self.place(row + 1 - row % 2 * 2, column))
            style = Style(color=self.painter.palette.marker, bgcolor=other or None, bold=strong)
            return Strip.join([before, Strip([Segment("▄▀"[row % 2 == 0] * (stop - start), style)]), after])
        mark = _MARK if strong else _FADED
        if stop - start == 1:
            return Strip.join([before, Strip([Segment(cell.text, mark)]), after])
        return Strip.join(
            [before, Strip([Segment("[", mark)]), cell.crop(1, stop - start - 1), Strip([Segment("]", mark)]), after]
        )


QUICK: Final = 1 << 21
"""Elements up to which a picture is made on the event loop (some ms); a larger picture is made in a worker."""
PAGE: Final = 10_000
"""Most bytes for the cells of a page; blanks, names and frame take 6 kB more. A costlier page gets larger cells."""
LARGER: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16)

_FINE: Final[WeakKeyDictionary[App[Any], bool]] = WeakKeyDictionary()
"""The choice of ``fine`` by running program: it applies to all heat maps."""

Cell = tuple[range, range]
"""Rows and columns of the table that make a cell."""
Work = Callable[[str, Callable[[ProgressFn], Any], Callable[[Any], None]], None]
"""Runs long work beside the event loop: ``View.work``."""


class HeatMap(PaintedLines, can_focus=True):
    """Shows a table as cells. The cursor is a cell, which stands for a rectangle of elements.

    Attributes:
        scale: maps values to colours; computed from the whole table, even if only a part is shown.
        row, column: the cursor's place among the visible cells.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"heat-map--names"}
    DEFAULT_CSS = """
    HeatMap {
        height: 1fr;
        & > .heat-map--names { color: $text-muted; }
    }
    """

    class CursorMoved(Message):
        """The cursor came to another cell, or the picture changed."""

    class Chosen(Message):
        """Asks to show the elements of the cursor's cell."""

    def __init__(self, work: Work) -> None:
        """Shows nothing until ``set_table``; ``work`` is ``View.work``."""
        super().__init__(id="map")
        self._work = work
        self.table: HeatTable | None = None
        self.scale: Scale | None = None
        self.row = self.column = 0
        self._drawn: HeatLines | None = None
        self._level = 0
        self._extent = Size(0, 0)
        self._wanted: object = None
        self._element = (0, 0)

    # -- what it shows ---------------------------------------------------------------------------

    def set_table(self, table: HeatTable, element: tuple[int, int] = (0, 0), extent: Size | None = None) -> None:
        """Shows a whole table; the cursor goes to the cell with ``element`` (row, column).

        ``extent``: the size that the widget is about to get, if it is not visible yet, so that it is drawn only once.
        """
        self._extent = extent or self._extent
        self.table, self.scale, self._drawn, self._level = table, None, None, 0
        self._element = element
        self._redraw()
        self.refresh()

    @property
    def fine(self) -> bool:
        """Tells whether cells are as small as possible, whatever a page costs; the same for all heat maps."""
        return _FINE.get(self.app, False)

    @property
    def area(self) -> DrawArea:
        margin = self.table.margin if self.table is not None else 0
        return DrawArea(
            max(1, self._extent.height - 1), max(1, self._extent.width - margin), halves(colors_of(self.app))
        )

    @property
    def picture(self) -> Picture | None:
        return self._drawn.picture if self._drawn is not None else None

    @property
    def zoom(self) -> Zoom:
        return self._drawn.zoom if self._drawn is not None else Zoom(1, 1, 1, 1)

    @property
    def _grid(self) -> tuple[int, int]:
        return self._drawn.zoom.grid(self._drawn.area) if self._drawn is not None else (1, 1)

    @property
    def drawn(self) -> HeatLines | None:
        return self._drawn

    @property
    def zoomed(self) -> tuple[int, int]:
        """The zoom level, and the highest level."""
        table = self.table
        return self._level, len(zooms(table.shape, self.area, folded=table.folded)) - 1 if table is not None else 0

    @property
    def cell(self) -> Cell | None:
        return self._drawn.picture.window.cell(*self.cursor) if self._drawn is not None else None

    @property
    def cursor(self) -> tuple[int, int]:
        """The cursor's cell as (row, column) of the picture's arrays."""
        return self._drawn.place(self.row, self.column) if self._drawn is not None else (0, 0)

    @property
    def element(self) -> tuple[int, int]:
        """An element (row, column) in the cursor's cell: the last one gone to, else the first."""
        cell = self.cell
        if cell is None:
            return self._element
        inside = self._element[0] in cell[0] and self._element[1] in cell[1]
        return self._element if inside else (cell[0].start, cell[1].start)

    def shown_element(self, then: Callable[[tuple[int, int]], None]) -> None:
        """Calls ``then`` with the element that gives the cursor's cell its colour."""
        table, cell = self.table, self.cell
        if table is None or cell is None:
            return

        def find(progress: ProgressFn) -> tuple[int, int]:
            return strongest(table.read, *cell, progress) or (cell[0].start, cell[1].start)

        self._do("looking", len(cell[0]) * len(cell[1]), find, then)

    def _do(self, what: str, size: int, job: Callable[[ProgressFn], Any], done: Callable[[Any], None]) -> None:
        """Runs a job at once, or in a worker if ``size`` (elements) is large; drops results of replaced jobs."""
        mine = self._wanted = object()

        def finished(result: Any) -> None:
            if self._wanted is mine:
                done(result)

        if size <= QUICK:
            finished(job(no_progress))
        else:
            self._work(what, job, finished)

    # -- pictures --------------------------------------------------------------------------------

    def _redraw(self) -> None:
        """Draws everything again at the current zoom level; the cursor's element stays in sight."""
        table = self.table
        if table is None or not all(table.shape) or not self._extent.width:
            return
        area = self.area
        levels = zooms(table.shape, area, folded=table.folded)
        self._level = min(self._level, len(levels) - 1)
        zoom = levels[self._level]
        origin = (0, 0)
        if self._level:
            old = self.zoom
            place = (self.row * old.tall // zoom.tall, self.column * old.wide // zoom.wide)
            origin = self._origin(zoom, area, place)
        self._draw(zoom, area, origin, choose=True)

    def _origin(self, zoom: Zoom, area: DrawArea, place: tuple[int, int]) -> tuple[int, int]:
        """Returns the first visible element (at a cell's edge) that puts the cursor's element at ``place``."""
        table = self.table
        assert table is not None  # noqa: S101 - only called with a table
        grid = zoom.grid(area)
        row, column = (min(at, most - 1) for at, most in zip(place, grid, strict=True))
        if table.folded:
            ahead = row * grid[1] + column
            return 0, _start(self._element[1], ahead, zoom.columns, grid[0] * grid[1], table.shape[1])
        return (
            _start(self._element[0], row, zoom.rows, grid[0], table.shape[0]),
            _start(self._element[1], column, zoom.columns, grid[1], table.shape[1]),
        )

    def _draw(self, zoom: Zoom, area: DrawArea, origin: tuple[int, int], *, choose: bool = False) -> None:
        """Computes a picture and shows it; ``choose`` enlarges cells until a page costs at most ``PAGE`` bytes."""
        table = self.table
        assert table is not None  # noqa: S101 - only called with a table
        window = zoom.window(table.shape, origin, area)

        def done(picture: Picture) -> None:
            if self.scale is None:
                self.scale = Scale(*(picture.bounds or (0.0, 0.0)))
            drawn = HeatLines(table, picture, zoom, area, HeatPainter(self.scale, colors_of(self.app)))
            if not choose or self.fine:
                self._show(drawn)
                return
            drawn = self._cheap(drawn)
            if all(at % step == 0 for at, step in zip(origin, (drawn.zoom.rows, drawn.zoom.columns), strict=True)):
                self._show(drawn)
            else:  # cells begin at multiples of their size, whatever part is shown
                place = drawn.spot(drawn.picture.window.place(*self._element) or (0, 0))
                self._draw(drawn.zoom, drawn.area, self._origin(drawn.zoom, drawn.area, place))

        self._do("drawing", window.size, lambda progress: table.picture(window, progress), done)

    @staticmethod
    def _cheap(fine: HeatLines) -> HeatLines:
        """Returns a page of at most ``PAGE`` bytes if possible: first with smaller drawn cells, then with fewer."""
        drawn, cells = fine, fine.picture.window.shape
        for zoom in chain((fine.zoom,), fine.zoom.smaller(fine.area)):
            drawn = replace(fine, zoom=zoom).trimmed()
            if drawn.cost <= PAGE:
                return drawn
        for times in LARGER:
            zoom = drawn.zoom.coarser(times, cells, fine.area)
            picture = fine.picture.coarser(zoom.rows // fine.zoom.rows, zoom.columns // fine.zoom.columns)
            larger = replace(fine, zoom=zoom, picture=picture).trimmed()
            if larger.cost <= PAGE or times == LARGER[-1]:
                return larger
        return drawn

    def _show(self, drawn: HeatLines) -> None:
        self._drawn = drawn
        self.row, self.column = drawn.spot(drawn.picture.window.place(*self._element) or (0, 0))
        self.refresh()
        self.post_message(self.CursorMoved())

    # -- the cursor ------------------------------------------------------------------------------

    def go_to(self, row: int, column: int) -> None:
        """Moves the cursor to the cell with an element, scrolling if needed."""
        self._element = (row, column)
        drawn = self._drawn
        if drawn is None:
            return
        place = drawn.picture.window.place(row, column)
        if place is None:
            down, across = drawn.zoom.grid(drawn.area)
            self._draw(drawn.zoom, drawn.area, self._origin(drawn.zoom, drawn.area, (down // 2, across // 2)))
            return
        self._refresh_marker()
        self.row, self.column = drawn.spot(place)
        self._refresh_marker()
        self.post_message(self.CursorMoved())

    def move_by(self, rows: int, columns: int) -> None:
        """Moves the cursor by cells; at the edge the map scrolls by half a page."""
        table, cell, zoom = self.table, self.cell, self.zoom
        if table is None or cell is None:
            return
        if table.folded:
            step = rows * self._grid[1] + columns
            at = cell[1].start + step * zoom.columns
            if 0 <= at < table.shape[1] or rows:
                self.go_to(0, max(0, min(at, table.shape[1] - 1)))
            return
        row, column = cell[0].start + rows * zoom.rows, cell[1].start + columns * zoom.columns
        self.go_to(max(0, min(row, table.shape[0] - 1)), max(0, min(column, table.shape[1] - 1)))

    def page(self, rows: int, columns: int) -> None:
        down, across = self._grid
        self.move_by(rows * down, columns * across)

    def to_end(self, axis: int, last: bool) -> None:
        """Goes to the first or last row (axis 0) or column (axis 1); of a folded row: of the row or of its line."""
        table, cell = self.table, self.cell
        if table is None or cell is None:
            return
        place = [cell[0].start, cell[1].start]
        if table.folded:
            line = cell[1].start - self.column * self.zoom.columns
            width = (self._grid[1] - 1) * self.zoom.columns
            ends = (0, table.shape[1] - 1) if axis == 0 else (line, line + width)
            place[1] = min(ends[last], table.shape[1] - 1)
        else:
            place[axis] = table.shape[axis] - 1 if last else 0
        self.go_to(place[0], place[1])

    # -- zoom ------------------------------------------------------------------------------------

    def zoom_by(self, by: int) -> None:
        """Changes the zoom level; the element that gives the cursor's cell its colour stays in place.

        Beyond the highest level it posts ``Chosen``.
        """
        table = self.table
        if table is None or self.picture is None:
            return
        count = len(zooms(table.shape, self.area, folded=table.folded))
        if self._level + by >= count:
            self.post_message(self.Chosen())
        elif self._level + by >= 0:

            def zoomed(element: tuple[int, int]) -> None:
                self._element = element
                self._level += by
                self._redraw()

            self.shown_element(zoomed)

    def toggle_fine(self) -> None:
        _FINE[self.app] = not self.fine
        self._element = self.element
        self._redraw()

    # -- drawing ---------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        if event.size != self._extent:
            self._extent = event.size
            self._redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def on_focus(self) -> None:
        self._refresh_marker()

    def on_blur(self) -> None:
        self._refresh_marker()

    def _refresh_marker(self) -> None:
        if self._drawn is not None:
            line, start, stop = self._drawn.marker(self.row, self.column)
            self.refresh(Region(start, line + 1, stop - start, 1))

    def render_line(self, y: int) -> Strip:
        base, width, drawn = self.base_style, self.size.width, self._drawn
        if drawn is None:
            return Strip.blank(width, base)
        names = self.get_component_rich_style("heat-map--names")
        if y == 0:
            return Strip(fit([Segment(drawn.header(), names)], width, base))
        strip = drawn.strip(y - 1, base, names).simplify().adjust_cell_length(width, base)
        if y - 1 == drawn.marker(self.row, self.column)[0]:
            strip = drawn.marked(strip, self.row, self.column, strong=self.has_focus)
        return strip

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        drawn = self._drawn
        place = drawn.at(event.x, event.y) if drawn is not None else None
        if drawn is not None and place is not None:
            rows, columns = drawn.picture.window.cell(*place)
            self.go_to(rows.start, columns.start)


def _start(at: int, ahead: int, step: int, shown: int, count: int) -> int:
    """Returns the first element, a multiple of ``step``, that puts ``ahead`` cells before ``at`` and fills the page."""
    last = -(-(count - shown * step) // step) * step
    return max(0, min(at // step * step - ahead * step, last))


BAR = 23
NARROW = 100
"""Columns below which the bar is shorter."""
Part = Content | str | tuple[str, str]


def legend_of(heat: HeatMap) -> Content:
    """Returns the scale with its ends, the size of a cell, and the glyphs of the visible kinds of NaN and Inf."""
    page = heat.drawn
    if page is None:
        return Content("")
    level, most = heat.zoomed
    zoom = f"zoom {level + 1}/{most + 1}" + (" fine" if heat.fine else "")
    scale = page.scale(BAR if heat.size.width >= NARROW else BAR // 2)
    return Content.assemble(*map(_part, scale), (f"  {page.size_text}  {zoom}  ", GREY), *map(_part, page.bad_legend()))


def _part(piece: ColoredText) -> Part:
    style = " on ".join(filter(None, (piece.ink or piece.ground, piece.ground)))
    return (piece.text, style) if style else piece.text


def counts_text(picture: Picture, place: tuple[int, int]) -> str:
    rows, columns = picture.window.cell(*place)
    words = [plural(len(rows) * len(columns), "element")]
    for (_, name), counts in zip(BADS, (picture.nan, picture.pos_inf, picture.neg_inf), strict=True):
        if counts[place]:
            words.append(f"{counts[place]} {name}")
    return "  ".join(words)
