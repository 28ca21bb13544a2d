"""Elements as numbers or as a heat map, with one cursor for both, and below what is under it."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from tui_debugger.tui.screens.modal import Line
from tui_debugger.tui.values.field import field_of, is_drawable
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.heat import HeatMap, Work
from tui_debugger.tui.values.legend import legend_of
from tui_debugger.tui.values.sheet import Index, Sheet


class Plane(Vertical):
    """Table and heat map share their cursor: it stays on its element when one takes the other's place.

    What they show, and what is said below, is for subclasses.
    """

    DEFAULT_CSS = """
    Plane {
        height: 1fr;
        #map, #legend { display: none; }
        #legend, #cell { height: 1; }
        #cell { text-style: bold; }
        &.-mapped ValueGrid { display: none; }
        &.-mapped #map, &.-mapped #legend { display: block; }
    }
    """

    class Switched(Message):
        """The table took the place of the heat map, or the other way round."""

    def __init__(self, work: Work, *, id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        """``work`` is ``View.work``."""
        super().__init__(id=id)
        self._work = work

    def compose(self) -> Iterable[Widget]:
        """Table or map, legend of the map, the cursor's element."""
        yield ValueGrid(id="grid")
        yield HeatMap(self._work, id="map")
        yield Line(id="legend")
        yield Line(id="cell")

    @property
    def grid(self) -> ValueGrid:
        """The table."""
        return self.query_one(ValueGrid)

    @property
    def heat(self) -> HeatMap:
        """The heat map."""
        return self.query_one(HeatMap)

    @property
    def mapped(self) -> bool:
        """Whether the heat map shows."""
        return self.has_class("-mapped")

    @property
    def front(self) -> ValueGrid | HeatMap:
        """What shows."""
        return self.heat if self.mapped else self.grid

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the element under the cursor; in the heat map one in the cursor's cell."""
        sheet = self.sheet
        return sheet.element(*self.heat.element) if self.mapped and sheet is not None else self.grid.cursor_index

    # -- for subclasses ----------------------------------------------------------------------------

    @property
    def sheet(self) -> Sheet | None:
        """What the heat map draws; None when there are no elements."""
        raise NotImplementedError

    def fill_grid(self) -> None:
        """Gives the table what it shows, when it takes the heat map's place."""

    def show_cell(self) -> None:
        """Says what is under the cursor."""
        raise NotImplementedError

    # -- table or heat map -------------------------------------------------------------------------

    def switch(self) -> str:
        """Table or heat map; returns why not."""
        sheet, index = self.sheet, self.cursor_index
        if self.mapped:
            self.to_table(index)
            return ""
        if sheet is None:
            return "there is nothing to draw"
        if not is_drawable(sheet.array):
            return f"{sheet.array.dtype.name} elements are no numbers: there is no heat map of them"
        width, height = self.grid.size
        self.add_class("-mapped")
        self.line("legend").show("")
        self.draw(index, Size(width, height - 1))  # the legend takes a line
        self.heat.focus()
        self.post_message(self.Switched())
        return ""

    def to_table(self, index: Index | None = None) -> None:
        """The table, with the cursor on an element."""
        if self.mapped:
            self.remove_class("-mapped")
            self.fill_grid()
            self.grid.focus()
            self.post_message(self.Switched())
            if index is not None:
                self.grid.go_to(index)

    def draw(self, index: Index | None = None, extent: Size | None = None) -> None:
        """The sheet as a heat map, when that shows.

        Args:
            index: the element that the cursor goes to; None: it stays in its row and column.
            extent: see ``HeatMap.set_field``.
        """
        sheet = self.sheet
        if sheet is not None and self.mapped:
            field = field_of(sheet)
            row, column = (sheet.spot(index) if index is not None else None) or self.heat.element
            rows, columns = field.shape
            self.heat.set_field(field, (min(row, rows - 1), min(column, columns - 1)), extent)

    @on(HeatMap.Chosen)
    def to_element(self) -> None:
        """From the cursor's cell to its element in the table."""

        def go(element: tuple[int, int]) -> None:
            sheet = self.sheet
            if sheet is not None:
                self.to_table(sheet.element(*element))

        if self.mapped:
            self.heat.shown_element(go)

    # -- the cursor --------------------------------------------------------------------------------

    def put_cursor(self, index: Index) -> bool:
        """Puts the cursor on an element; False when the slice does not show it."""
        if not self.mapped:
            return self.grid.go_to(index)
        spot = self.sheet.spot(index) if self.sheet is not None else None
        if spot is not None:
            self.heat.go_to(*spot)
        return spot is not None

    @on(ValueGrid.CursorMoved)
    @on(HeatMap.CursorMoved)
    def _moved(self, event: Message) -> None:
        event.stop()
        if isinstance(event, HeatMap.CursorMoved) is self.mapped:
            if self.mapped:
                self.line("legend").show(legend_of(self.heat))
            self.show_cell()

    def finer(self, by: int) -> str:
        """More or fewer digits, or larger and smaller cells; returns what is to be said about that."""
        if self.mapped:
            self.heat.zoom_by(by)
            return ""
        self.grid.set_format(self.grid.form.finer(by))
        return f"{self.grid.form.precision} digits"

    def line(self, name: str) -> Line:
        """One of the lines below."""
        return self.query_one(f"#{name}", Line)
