"""The left part of the comparison: slice, numbers or heat map, the element under the cursor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from textual import on
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tui_debugger.analysis.difference.differences import entry_at
from tui_debugger.session.diagnosis.comparing import Couple
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values.heat import Work
from tui_debugger.tui.values.plane import Plane
from tui_debugger.tui.values.sheet import Array, Index, Sheet
from tui_debugger.tui.values.slice_bar import SliceBar
from tui_debugger.tui.views.compare.sheets import Rule, Shown, sheet_of
from tui_debugger.words.differences import element_text


class CompareTable(Plane):
    """Shows a window of two tensors.

    Attributes:
        couple: both; None before they are read.
        shown: what the cells hold.
        rule: what is allowed.
    """

    DEFAULT_CSS = """
    CompareTable { width: 1fr; }
    """

    class Refused(Message):
        """Something cannot be shown."""

        def __init__(self, text: str) -> None:
            """``text`` says what, and why."""
            super().__init__()
            self.text = text

    def __init__(self, work: Work) -> None:
        """``work`` does long work of the heat map."""
        super().__init__(work, id="table")
        self.couple: Couple | None = None
        self.shown = Shown.ALL
        self.rule = Rule()
        self._going: Index | None = None

    def compose(self) -> Iterable[Widget]:
        """The slice stands on top."""
        yield SliceBar(id="slice")
        yield from super().compose()

    @property
    def slice_bar(self) -> SliceBar:
        """The slice."""
        return self.query_one(SliceBar)

    @property
    def sheet(self) -> Sheet | None:
        """What the heat map draws: of both tensors their difference."""
        sheet = self._sheet(Shown.DIFFERENCE if self.shown is Shown.ALL else self.shown)
        return sheet if sheet is not None and not sheet.empty else None

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
        self.to_table()
        self.grid.show_text(text)
        self.line("cell").show("")

    def set_rule(self, rule: Rule) -> None:
        """What is allowed."""
        self.rule = rule
        self._show()

    def set_shown(self, shown: Shown) -> None:
        """What the cells hold."""
        if shown is not self.shown:
            index = self.cursor_index
            self.shown = shown
            self._show()
            if index is not None:
                self.go_to(index)

    def go_to(self, index: Index) -> None:
        """Puts the cursor on an element, in another slice if need be."""
        if self.couple is not None and not self.put_cursor(index):
            self._going = index
            self.slice_bar.include(index)

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
        self.front.focus()
        self.post_message(self.Refused(""))

    def _sheet(self, shown: Shown) -> Sheet | None:
        view = self.slice_bar.view
        return None if self.couple is None or view is None else sheet_of(self.couple.pairs, view, shown, self.rule)

    def _show(self) -> None:
        if self.mapped:
            self.draw()
        else:
            self.fill_grid()

    def fill_grid(self) -> None:
        """What the cells hold now."""
        sheet = self._sheet(self.shown)
        if sheet is not None and sheet.empty:
            self.grid.show_text(f"No elements in {sheet.view.text} of shape {sheet.array.shape}.")
        elif sheet is not None:
            self.grid.set_sheet(sheet)

    def window(self) -> Array | None:
        """The difference in the slice that is shown, as numbers; None while there is nothing."""
        sheet = self._sheet(Shown.DIFFERENCE)
        return None if sheet is None else np.asarray(sheet.part(sheet.lines))

    # -- the element under the cursor --------------------------------------------------------------

    def show_cell(self) -> None:
        """Its index and its numbers."""
        line, parts = self.line("cell"), self.cell_parts()
        if parts is None:
            line.show("")
        else:
            index, rest = parts
            line.show(Content.assemble(index, (f"  {rest}", f"not bold {GREY}" if self.mapped else "not bold")))

    def cell_parts(self, *, exact: bool = False) -> tuple[str, str] | None:
        """Index and numbers of the element under the cursor; ``exact``: with all digits of the difference too."""
        index, couple = self.cursor_index, self.couple
        if index is None or couple is None:
            return None
        entry = entry_at(couple.pairs, index, couple.unit)
        text = element_text(entry, exact=exact)
        cell = self.heat.cell if self.mapped else None
        if cell is not None and len(cell[0]) * len(cell[1]) > 1:
            text = f"first of {len(cell[0])}×{len(cell[1])} in this cell: {text}"
        return f"[{', '.join(map(str, index))}]", text
