"""The left part of the comparison: slice, numbers or heat map, the element under the cursor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tui_debugger.analysis.difference.differences import entry_at
from tui_debugger.analysis.slicing import Slice
from tui_debugger.session.diagnosis.comparing import Couple
from tui_debugger.tui.screens.modal import Line
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values.field import field_of
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.heat import HeatMap, Work
from tui_debugger.tui.values.legend import legend_of
from tui_debugger.tui.values.sheet import Array, Index, Sheet
from tui_debugger.tui.values.slice_bar import SliceBar
from tui_debugger.tui.views.compare.sheets import Rule, Shown, sheet_of
from tui_debugger.words.differences import element_text


class CompareTable(Vertical):
    """Shows a window of two tensors.

    Attributes:
        couple: both; None before they are read.
        shown: what the cells hold.
        rule: what is allowed.
    """

    DEFAULT_CSS = """
    CompareTable {
        width: 1fr; height: 1fr;
        #cell { height: 1; text-style: bold; }
        #legend { height: 1; display: none; }
        &.-heat #legend { display: block; }
        HeatMap { display: none; }
        &.-heat HeatMap { display: block; }
        &.-heat ValueGrid { display: none; }
    }
    """

    class Refused(Message):
        """Something cannot be shown."""

        def __init__(self, text: str) -> None:
            """``text`` says what, and why."""
            super().__init__()
            self.text = text

    def __init__(self, work: Work) -> None:
        """``work`` does long work of the heat map."""
        super().__init__(id="table")
        self._work = work
        self.couple: Couple | None = None
        self.shown = Shown.ALL
        self.rule = Rule()
        self._going: Index | None = None

    def compose(self) -> Iterable[Widget]:
        """From top to bottom."""
        yield SliceBar(id="slice")
        yield ValueGrid(id="grid")
        yield HeatMap(self._work, id="heat")
        yield Line(id="legend")
        yield Line(id="cell")

    @property
    def grid(self) -> ValueGrid:
        """The numbers."""
        return self.query_one(ValueGrid)

    @property
    def heat(self) -> HeatMap:
        """The colours."""
        return self.query_one(HeatMap)

    @property
    def slice_bar(self) -> SliceBar:
        """The slice."""
        return self.query_one(SliceBar)

    @property
    def hot(self) -> bool:
        """Whether the heat map is on."""
        return self.has_class("-heat")

    @property
    def index(self) -> Index | None:
        """The element under the cursor."""
        sheet = self._sheet(Shown.DIFFERENCE)
        if not self.hot or sheet is None or sheet.empty:
            return self.grid.cursor_index
        row, column = self.heat.element
        return sheet.view.index(column) if sheet.folded else sheet.view.index(*(row, column)[: len(sheet.lines)])

    # -- what is shown -----------------------------------------------------------------------------

    def set_couple(self, couple: Couple, rule: Rule) -> None:
        """Other tensors; the slice and the cursor stay where they were if they can."""
        self.couple, self.rule = couple, rule
        old = self.slice_bar.view
        self.slice_bar.set_shape(couple.pairs.shape)
        if self.slice_bar.view is old:
            self._show()

    def show_text(self, text: str) -> None:
        """Text instead of numbers: why there are none."""
        self.couple = None
        self.remove_class("-heat")
        self.grid.show_text(text)
        self.query_one("#cell", Line).show("")

    def set_rule(self, rule: Rule) -> None:
        """What is allowed."""
        self.rule = rule
        self._show()

    def set_shown(self, shown: Shown) -> None:
        """What the cells hold."""
        if shown is not self.shown:
            index = self.index
            self.shown = shown
            self._show()
            if index is not None:
                self.go_to(index)

    def toggle_heat(self) -> None:
        """Colours or numbers; the cursor stays on its element."""
        index = self.index
        if index is None:
            return
        self.toggle_class("-heat")
        self._show()
        self.go_to(index)
        self.take_focus()

    def take_focus(self) -> None:
        """The keys go to what is shown."""
        (self.heat if self.hot else self.grid).focus()

    def go_to(self, index: Index) -> None:
        """Puts the cursor on an element, in another slice if need be."""
        view = self.slice_bar.view
        sheet = self._sheet(self.shown)
        if view is None or sheet is None:
            return
        if sheet.place(index) is None:
            self._going = index
            self.slice_bar.include(index)
        elif self.hot:
            base = Sheet(sheet.array, view, max(1, len(sheet.lines[0])) if sheet.folded else sheet.fold)
            self.heat.go_to(*(base.place(index) or (0, 0)))
        else:
            self.grid.go_to(index)

    @on(SliceBar.Changed)
    def _sliced(self, event: SliceBar.Changed) -> None:
        event.stop()
        self._show()
        going, self._going = self._going, None
        if going is not None:
            self.go_to(going)

    @on(SliceBar.Refused)
    def _not_sliced(self, event: SliceBar.Refused) -> None:
        event.stop()
        couple = self.couple
        if couple is not None and not couple.pairs.count and self.slice_bar.view is None:
            self.grid.show_text(f"These tensors have no elements: their shape is {couple.pairs.shape}.")
        else:
            self.post_message(self.Refused(event.text))

    @on(SliceBar.Ended)
    def _edited(self, event: SliceBar.Ended) -> None:
        event.stop()
        self.take_focus()
        self.post_message(self.Refused(""))

    def _sheet(self, shown: Shown) -> Sheet | None:
        view = self.slice_bar.view
        return None if self.couple is None or view is None else sheet_of(self.couple.pairs, view, shown, self.rule)

    def _show(self) -> None:
        if self.hot:
            sheet = self._sheet(Shown.DIFFERENCE if self.shown is Shown.ALL else self.shown)
            if sheet is not None and not sheet.empty:
                self.heat.set_field(field_of(sheet), self.heat.element)
            return
        sheet = self._sheet(self.shown)
        if sheet is not None and sheet.empty:
            self.grid.show_text(f"No elements in {sheet.view.text} of shape {sheet.array.shape}.")
        elif sheet is not None:
            self.grid.set_sheet(sheet)

    def window(self) -> Array | None:
        """The difference in the slice that is shown, as numbers; None while there is nothing."""
        sheet = self._sheet(Shown.DIFFERENCE)
        return None if sheet is None else np.asarray(sheet.part(sheet.lines))

    @property
    def view(self) -> Slice | None:
        """The slice."""
        return self.slice_bar.view

    # -- the element under the cursor --------------------------------------------------------------

    @on(ValueGrid.CursorMoved)
    @on(HeatMap.CursorMoved)
    def _show_cell(self, event: Message) -> None:
        event.stop()
        line, parts = self.query_one("#cell", Line), self.cell_parts()
        if self.hot:
            self.query_one("#legend", Line).show(legend_of(self.heat))
        if parts is None:
            line.show("")
        else:
            index, rest = parts
            line.show(Content.assemble(index, (f"  {rest}", f"not bold {GREY}" if self.hot else "not bold")))

    def cell_parts(self, *, exact: bool = False) -> tuple[str, str] | None:
        """Index and numbers of the element under the cursor; ``exact``: with all digits of the difference too."""
        index, couple = self.index, self.couple
        if index is None or couple is None:
            return None
        entry = entry_at(couple.pairs, index, couple.unit)
        text = element_text(entry, exact=exact)
        cell = self.heat.cell if self.hot else None
        if cell is not None and len(cell[0]) * len(cell[1]) > 1:
            text = f"first of {len(cell[0])}×{len(cell[1])} in this cell: {text}"
        return f"[{', '.join(map(str, index))}]", text

    # -- moving ------------------------------------------------------------------------------------

    def move(self, rows: int, columns: int) -> None:
        """Arrow keys."""
        (self.heat if self.hot else self.grid).move_by(rows, columns)

    def page(self, rows: int, columns: int) -> None:
        """A page."""
        grid = self.grid
        if self.hot:
            self.heat.page(rows, columns)
        elif grid.sheet is not None:
            stride = grid.sheet.stride
            down = max(1, grid.page_rows // stride) * stride
            grid.move_to(grid.row + rows * down, grid.column + columns * grid.page_columns)

    def end(self, axis: int, last: bool) -> None:
        """To an end of the rows (axis 0) or columns (1)."""
        grid = self.grid
        if self.hot:
            self.heat.to_end(axis, last)
        elif grid.sheet is not None and axis == 0:
            stride = grid.sheet.stride
            grid.move_to(grid.sheet.rows - stride + grid.row % stride if last else grid.row % stride, grid.column)
        elif grid.sheet is not None:
            grid.move_to(grid.row, grid.sheet.columns - 1 if last else 0)

    def finer(self, by: int) -> None:
        """Digits, or the size of cells."""
        if self.hot:
            self.heat.zoom_by(by)
        else:
            self.grid.set_format(self.grid.form.finer(by))
            self.slice_bar.note(f"{self.grid.form.precision} digits")

    def scientific(self) -> None:
        """Scientific notation on and off."""
        self.grid.set_format(self.grid.form.toggled())

    def step(self, by: int) -> None:
        """Along the chosen fixed dimension."""
        self.slice_bar.step(by)

    def choose(self, by: int) -> None:
        """Another fixed dimension to move along."""
        self.slice_bar.choose(by)

    def fine(self) -> None:
        """Smaller cells of the heat map."""
        if self.hot:
            self.heat.toggle_fine()
