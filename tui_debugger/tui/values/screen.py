"""The values of one tensor: a window of at most two of its dimensions, as numbers or as a heat map."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from textual import on
from textual.binding import BindingType
from textual.widget import Widget

from tui_debugger.arrays import Array
from tui_debugger.model import ProgressFn, TensorKey, no_progress
from tui_debugger.tui.actions import bindings
from tui_debugger.tui.screens.modal import Line, clean_lines
from tui_debugger.tui.values import said
from tui_debugger.tui.values.board import Board
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.heat import HeatMap
from tui_debugger.tui.values.jumps import WISHES, Cells
from tui_debugger.tui.values.keys import MAP_HINTS, TABLE_HINTS, VALUE_ACTIONS
from tui_debugger.tui.values.search import Found, can_be_bad, find_bad, find_extreme
from tui_debugger.tui.values.sheet import Index
from tui_debugger.tui.values.slice_bar import SliceBar
from tui_debugger.tui.values.taking import take
from tui_debugger.tui.values.window import WindowView
from tui_debugger.tui.views.view import Files, files_of
from tui_debugger.tui.widgets.text import shorten

if TYPE_CHECKING:
    from tui_debugger.session.types import TensorRow
    from tui_debugger.tui.views.export import Extract
    from tui_debugger.tui.views.registry import Focus
    from tui_debugger.tui.views.view import Host

QUICK = 1 << 22
"""Up to this many elements a search is done at once (some 10 ms); above, beside the event loop."""


class ValuesScreen(WindowView):
    """Shows an N-D tensor. The array is usually a memory map: a tensor of any size opens at once."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(VALUE_ACTIONS)]
    OWN_ACTIONS = VALUE_ACTIONS
    DEFAULT_CSS = """
    ValuesScreen {
        #facts { color: $text-muted; height: 1; }
    }
    """
    hints = TABLE_HINTS

    def __init__(self, host: Host, about: Focus, row: TensorRow, previous: TensorKey | None = None) -> None:
        """Nothing is read before the screen shows.

        Args:
            host: who opened it.
            about: the tensor, and where to look.
            row: the same with its statistics, when they are known.
            previous: the same tensor at the step before; None when there is none.
        """
        super().__init__(host, about)
        self.row = row
        self._previous = previous
        self._array: Array | None = None
        self._arrays: dict[bool, Array] = {}
        self._showing_previous = False
        self.heading = f"{said.slot_of(row)}  {shorten(row.key.node, 60)}"

    def body(self) -> Iterable[Widget]:
        """Facts, statistics, slice, numbers or heat map, the cursor's value."""
        yield Line(id="facts")
        yield Line(id="stats")
        yield SliceBar(id="slice")
        yield Board(self.work)

    def on_mount(self) -> None:
        """Starts reading."""
        self.grid.focus()
        self._show_facts()
        self._read(self.row.key, "reading", previous=False)

    def on_resize(self) -> None:
        """The node's name takes the room there is."""
        self.set_heading(f"{said.slot_of(self.row)}  {shorten(self.row.key.node, max(20, self.size.width - 16))}")

    @property
    def board(self) -> Board:
        """The values."""
        return self.query_one(Board)

    @property
    def grid(self) -> ValueGrid:
        """The same as numbers."""
        return self.board.grid

    @property
    def heat(self) -> HeatMap:
        """The same as a picture."""
        return self.board.heat

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the element under the cursor."""
        return self.board.cursor_index

    @property
    def focus_here(self) -> Focus:
        """The tensor that shows, at the cursor's element."""
        key = self._previous if self._showing_previous else None
        return replace(self.about.at_step(key.step) if key is not None else self.about, at=self.cursor_index)

    def extract(self) -> Extract | None:
        """The slice."""
        sheet = self.board.sheet
        if sheet is None:
            return None
        key = self._previous if self._showing_previous and self._previous is not None else self.row.key
        heading = [self.heading, *(str(self._line(name).content) for name in ("facts", "stats"))]
        heading += [f"slice {sheet.view.text}", *self.board.said()]
        return take(sheet, self.grid.form, heading, self.cursor_index, key)

    def _line(self, name: str) -> Line:
        return self.query_one(f"#{name}", Line)

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, key: TensorKey, what: str, *, previous: bool) -> None:
        session = self.host.session

        def job(progress: ProgressFn) -> tuple[Array, Files]:
            before = files_of(session, [key])
            array = np.asanyarray(session.read(key, progress))
            return array, files_of(session, [key], before)

        def show(found: tuple[Array, Files]) -> None:
            array, files = found
            self.files = {**self.files, **files}
            self._show_array(array, previous=previous)

        self.work(what, job, show)

    def look_again(self) -> None:
        """Reads the tensor again, with its statistics; slice, cursor and everything else stay."""
        session, previous, old = self.host.session, self._showing_previous, self.row
        key = self._previous if previous and self._previous is not None else old.key
        keys = list(dict.fromkeys((key, old.key)))

        def job(progress: ProgressFn) -> tuple[TensorRow, Array, Files]:
            before = files_of(session, keys, anew=True)
            array = np.asanyarray(session.read(key, progress))
            (row,) = session.measure((session.row_of(old.key),), progress)
            return replace(row, role=old.role, slot=old.slot), array, files_of(session, keys, before)

        def show(found: tuple[TensorRow, Array, Files]) -> None:
            self.row, array, self.files = found
            self._arrays.clear()
            self._show_array(array, previous=previous)

        self.work_anew("reading", job, show)

    def failed(self, error: Exception) -> None:
        """In place of the values, when there are none."""
        if self._array is None:
            self.say("")
            reason = clean_lines(str(error)) or type(error).__name__
            self.board.show_text(f"These values cannot be read:\n\n{reason}")
        else:
            super().failed(error)

    def action_cancel(self) -> None:
        """Esc: ends editing, else what is under way, else the screen."""
        nothing_yet = self.working and self._array is None
        super().action_cancel()
        if nothing_yet:
            self.dismiss(None)

    # -- what is shown -----------------------------------------------------------------------------

    def _show_array(self, array: Array, *, previous: bool) -> None:
        known, at = self._array, self.about.at if self._array is None else None
        self._arrays[previous] = self._array = array
        self._showing_previous = previous
        self.bar.set_shape(array.shape)
        self._show_slice(again=known is not None)
        self._show_facts()
        if at is not None and said.is_index(at, array.shape):
            self._go_to(at)

    @on(SliceBar.Changed)
    def _show_slice(self, _: object = None, *, again: bool = False) -> None:
        """The part of the tensor that the slice is, unless it shows already."""
        array, view, sheet = self._array, self.bar.view, self.grid.sheet
        if array is None:
            return
        if view is None:
            self.board.show_text(f"This tensor has no elements: its shape is {array.shape}.")
            return
        if sheet is not None and sheet.view == view and not again:
            return
        super().say("")
        self.board.show(array, view)

    def _show_facts(self) -> None:
        shown = self._array if self._array is not None else None
        self._line("facts").show(said.facts(self.row, shown, previous=self._showing_previous))
        self._line("stats").show(said.statistics(self.row, previous=self._showing_previous))

    # -- keys --------------------------------------------------------------------------------------

    def action_bits(self) -> None:
        """The bytes of the value under the cursor."""
        self.board.toggle_bits()

    @on(SliceBar.Refused)
    def _refused(self, event: SliceBar.Refused) -> None:
        if self.bar.view is not None:
            self.say(event.text)

    @on(SliceBar.Ended)
    def _edited(self) -> None:
        self.say("")
        self.board.front.focus()

    def action_previous(self) -> None:
        """The previous step's values in the same place, and back."""
        wanted = not self._showing_previous
        if wanted and self._previous is None:
            self.say("this tensor has no previous step", note=True)
        elif wanted in self._arrays:
            self._show_array(self._arrays[wanted], previous=wanted)
        elif self._previous is not None and self._array is not None:
            self._read(self._previous, "reading the previous step", previous=True)

    # -- the heat map ------------------------------------------------------------------------------

    @on(Board.Switched)
    def _switched(self) -> None:
        self.set_hints(MAP_HINTS if self.board.mapped else TABLE_HINTS)

    def action_element(self) -> None:
        """From a cell to its element in the table."""
        self.board.to_element()

    # -- jumps -------------------------------------------------------------------------------------

    def action_bad(self, direction: int, kind: str = "") -> None:
        """To the next or previous NaN or Inf of the whole tensor, whatever slice shows it."""
        array, sheet, wish = self._array, self.board.sheet, WISHES[kind]
        if array is None or not array.size:
            return
        nothing = f"no {wish.name} in this tensor"
        stats = None if self._showing_previous else self.row.stats
        if not can_be_bad(array) or (stats is not None and not said.count_of(stats, kind)):
            self.say(nothing, note=True)
        elif self.board.mapped and sheet is not None and self.heat.field is not None:
            cells = Cells(sheet, self.heat.field, self.heat.zoom)
            self._search(lambda progress: cells.next_bad(self.heat.element, direction, wish, progress), nothing)
        else:
            origin = self.grid.cursor_index or (0,) * array.ndim
            self._search(lambda progress: find_bad(array, origin, direction, bad=wish.bad, progress=progress), nothing)

    def action_extreme(self, largest: bool) -> None:
        """To the largest or smallest finite value."""
        array = self._array
        if array is not None and array.size:
            self._search(
                lambda progress: find_extreme(array, largest, progress=progress), "no finite value in this tensor"
            )

    def _search(self, find: Callable[[ProgressFn], Found | None], nothing: str) -> None:
        def done(found: Found | None) -> None:
            if found is None:
                self.say(nothing, note=True)
                return
            self._go_to(found.index)
            if found.wrapped:
                self.say("went on from the other end", note=True)

        if self._array is not None and self._array.size <= QUICK:
            done(find(no_progress))
        else:
            self.work("searching", find, done)

    def _go_to(self, index: Index) -> None:
        """Shows an element, in another slice where needed."""
        if not self.board.put_cursor(index) and self.bar.include(index):
            self._show_slice()
            self.board.put_cursor(index)
