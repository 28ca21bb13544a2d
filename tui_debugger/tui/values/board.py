"""A slice of a tensor as numbers or as a heat map, with a cursor, and below what is under it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from tui_debugger.analysis.slicing import Slice
from tui_debugger.tui.screens.modal import Line
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values import said
from tui_debugger.tui.values.field import field_of, is_drawable
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.heat import HeatMap, Work
from tui_debugger.tui.values.legend import legend_of
from tui_debugger.tui.values.sheet import Array, Index, Sheet


class Board(Vertical):
    """The table and the heat map share their cursor: it stays on its element when one takes the other's place."""

    DEFAULT_CSS = """
    Board {
        height: 1fr;
        #map, #legend, #bits { display: none; }
        #legend, #cell { height: 1; }
        &.-mapped ValueGrid { display: none; }
        &.-mapped #map, &.-mapped #legend, &.-bits #bits { display: block; }
        #cell { text-style: bold; }
    }
    """

    class Switched(Message):
        """The table took the place of the heat map, or the other way round."""

    def __init__(self, work: Work, *, id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        """``work`` is ``View.work``."""
        super().__init__(id=id)
        self._work = work

    def compose(self) -> Iterable[Widget]:
        """Table or map, legend of the map, the cursor's element and its bytes."""
        yield ValueGrid(id="grid")
        yield HeatMap(self._work, id="map")
        yield Line(id="legend")
        yield Line(id="cell")
        yield Line(id="bits")

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
    def sheet(self) -> Sheet | None:
        """What is shown; None when there are no elements."""
        sheet = self.grid.sheet
        return sheet if sheet is not None and not sheet.empty else None

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the element under the cursor; in the heat map one in the cursor's cell."""
        sheet = self.sheet
        return sheet.element(*self.heat.element) if self.mapped and sheet is not None else self.grid.cursor_index

    # -- what it shows -----------------------------------------------------------------------------

    def show(self, array: Array, view: Slice) -> None:
        """Another part of a tensor."""
        self.grid.set_view(array, view)
        if self.sheet is None:
            self.show_text(f"No elements in {view.text} of shape {array.shape}.")
        elif self.mapped:
            self._draw()

    def show_text(self, text: str) -> None:
        """Why there are no values."""
        self.to_table()
        self.grid.show_text(text)
        self._line("cell").show("")
        self._line("bits").show("")

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
        self._line("legend").show("")
        self._draw(index, Size(width, height - 1))  # the legend takes a line
        self.heat.focus()
        self.post_message(self.Switched())
        return ""

    def to_table(self, index: Index | None = None) -> None:
        """The table, with the cursor on an element."""
        if self.mapped:
            self.remove_class("-mapped")
            self.grid.focus()
            self.post_message(self.Switched())
            if index is not None:
                self.grid.go_to(index)

    def _draw(self, index: Index | None = None, extent: Size | None = None) -> None:
        sheet = self.sheet
        if sheet is not None and self.mapped:
            spot = sheet.spot(index) if index is not None else None
            self.heat.set_field(field_of(sheet), spot or (0, 0), extent)

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

    def go_to(self, index: Index) -> bool:
        """Puts the cursor on an element; False when the slice does not show it."""
        if not self.grid.go_to(index):
            return False
        spot = self.sheet.spot(index) if self.sheet is not None else None
        if self.mapped and spot is not None:
            self.heat.go_to(*spot)
        return True

    def toggle_bits(self) -> None:
        """The bytes of what is under the cursor."""
        self.toggle_class("-bits")
        if self.mapped:
            self._show_cell()
        else:
            self._show_element()

    @on(ValueGrid.CursorMoved)
    def _show_element(self) -> None:
        grid = self.grid
        index, sheet = grid.cursor_index, grid.sheet
        if index is not None and sheet is not None and not self.mapped:
            value = sheet.array[index]
            place = f"row {grid.row + 1}/{sheet.rows}  column {grid.column + 1}/{sheet.columns}"
            self._line("cell").show(said.element(index, value, place))
            self._show_bits(value)

    @on(HeatMap.CursorMoved)
    def _show_cell(self) -> None:
        sheet = self.sheet
        if sheet is not None and self.mapped:
            self._line("legend").show(legend_of(self.heat))
            text, value = said.cell(sheet, self.heat)
            self._line("cell").show(text)
            self._show_bits(value)

    def _show_bits(self, value: Any) -> None:
        if self.has_class("-bits"):
            self._line("bits").show(Content.styled(said.bits(value), GREY))

    def said(self) -> list[str]:
        """The lines below as text, after the heat map in glyphs when that shows."""
        drawn = self.heat.drawn if self.mapped else None
        below = [str(self._line(name).content) for name in ("legend", "cell", "bits") if self._line(name).display]
        return [*(drawn.plain.text() if drawn is not None else ()), *below]

    def _line(self, name: str) -> Line:
        return self.query_one(f"#{name}", Line)
