"""A slice of a tensor as numbers or as a heat map, with a cursor, and below what is under it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.content import Content
from textual.widget import Widget

from tui_debugger.analysis.slicing import Slice
from tui_debugger.arrays import Array
from tui_debugger.tui.screens.modal import Line
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values import said
from tui_debugger.tui.values.plane import Plane
from tui_debugger.tui.values.sheet import Sheet


class Board(Plane):
    """Shows a slice, and on demand the bytes of the element under the cursor."""

    DEFAULT_CSS = """
    Board {
        #bits { display: none; }
        &.-bits #bits { display: block; }
    }
    """

    def compose(self) -> Iterable[Widget]:
        """The bytes stand below the cursor's element."""
        yield from super().compose()
        yield Line(id="bits")

    @property
    def sheet(self) -> Sheet | None:
        """What is shown; None when there are no elements."""
        sheet = self.grid.sheet
        return sheet if sheet is not None and not sheet.empty else None

    # -- what it shows -----------------------------------------------------------------------------

    def show(self, array: Array, view: Slice) -> None:
        """Another part of a tensor."""
        self.grid.set_view(array, view)
        if self.sheet is None:
            self.show_text(f"No elements in {view.text} of shape {array.shape}.")
        elif self.mapped:
            self.draw()

    def show_text(self, text: str) -> None:
        """Why there are no values."""
        self.to_table()
        self.grid.show_text(text)
        self.line("cell").show("")
        self.line("bits").show("")

    # -- the cursor --------------------------------------------------------------------------------

    def toggle_bits(self) -> None:
        """The bytes of what is under the cursor."""
        self.toggle_class("-bits")
        self.show_cell()

    def show_cell(self) -> None:
        """The element with all its digits, or what the cell of the map shows."""
        grid, sheet = self.grid, self.grid.sheet
        index = grid.cursor_index
        if sheet is None or index is None:
            return
        if self.mapped:
            text, value = said.cell(sheet, self.heat)
        else:
            value = sheet.array[index]
            place = f"row {grid.row + 1}/{sheet.rows}  column {grid.column + 1}/{sheet.columns}"
            text = said.element(index, value, place)
        self.line("cell").show(text)
        self._show_bits(value)

    def _show_bits(self, value: Any) -> None:
        if self.has_class("-bits"):
            self.line("bits").show(Content.styled(said.bits(value), GREY))

    def said(self) -> list[str]:
        """The lines below as text, after the heat map in glyphs when that shows."""
        drawn = self.heat.drawn if self.mapped else None
        below = [str(self.line(name).content) for name in ("legend", "cell", "bits") if self.line(name).display]
        return [*(drawn.plain.text() if drawn is not None else ()), *below]
