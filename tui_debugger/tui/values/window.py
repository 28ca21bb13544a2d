"""A view of a slice of a tensor, as a table or as a heat map, and the search in its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.errors import BadSliceError
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.stats.dtypes import DType
from tui_debugger.text.clean import clean
from tui_debugger.text.heat_map import heat_table_of, is_drawable
from tui_debugger.text.values import Index, Slice, ValueTable, default_slice, parse_slice
from tui_debugger.tui.dialogs.modal import InputLine, PlainLine, plain_lines
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.heat_map import HeatMap, Work, legend_of
from tui_debugger.tui.values.search import (
    EXAMPLES,
    BadSearchError,
    ElementLine,
    ElementQuery,
    FoundElement,
    find_element,
)
from tui_debugger.tui.views.view import ValuesView

if TYPE_CHECKING:
    from tui_debugger.tui.views.registry import ViewTarget
    from tui_debugger.tui.views.view import ViewHost


QUICK = 1 << 22
"""Elements up to which a search runs on the event loop (some 10 ms); a larger one runs in a worker."""


class SliceBar(Vertical):
    """The line with the slice of a tensor; ``view`` is the slice, None before there is a tensor."""

    DEFAULT_CSS = """
    SliceBar {
        height: 1; width: 1fr;
        #slice-line { height: 1; }
        #slice-edit { display: none; height: 1; }
        &.-editing #slice-line { display: none; }
        &.-editing #slice-edit { display: block; }
    }
    """

    class Changed(Message):
        """The slice changed."""

    @dataclass
    class Refused(Message):
        """A text is no slice of the tensor."""

        text: str

    class Ended(Message):
        """Editing ended: the focus goes back to the values."""

    def __init__(self) -> None:
        super().__init__(id="slice")
        self.view: Slice | None = None
        self._shape: tuple[int, ...] = ()
        self._dimension = 0
        self._note = ""

    def compose(self) -> Iterable[PlainLine | InputLine]:
        yield PlainLine(id="slice-line")
        yield InputLine(id="slice-edit")

    @property
    def editing(self) -> bool:
        return self.has_class("-editing")

    # -- which part --------------------------------------------------------------------------------

    def set_shape(self, shape: tuple[int, ...]) -> None:
        """Takes the shape of a tensor; the slice stays if the shape is the same."""
        if self.view is None or shape != self._shape:
            self._shape, self._dimension = shape, 0
            self.view = None
            self.set_text(default_slice(shape))
        else:
            self._draw()

    def set_text(self, text: str) -> bool:
        """Sets the slice; if the text is wrong, posts ``Refused`` and returns False."""
        try:
            view = parse_slice(text, self._shape)
        except BadSliceError as error:
            self.post_message(self.Refused(str(error)))
            return False
        self.view, self._note = view, ""
        self._draw()
        self.post_message(self.Changed())
        return True

    def fits(self, text: str) -> bool:
        try:
            parse_slice(text, self._shape)
        except BadSliceError:
            return False
        return True

    def include(self, index: Index) -> bool:
        """Changes the slice to show an element: other fixed indices, whole ranges where a range excludes it."""
        if self.view is None:
            return False
        words = self._words()
        for i, (entry, wanted) in enumerate(zip(self.view.entries, index, strict=True)):
            if isinstance(entry, int):
                words[i] = str(wanted)
            elif wanted not in entry:
                words[i] = ":"
        return self.set_text(f"[{', '.join(words)}]")

    def choose(self, by: int) -> None:
        """Chooses the fixed dimension that ``step`` moves along."""
        fixed = self._fixed()
        if fixed:
            self._dimension, self._note = (self._dimension + by) % len(fixed), ""
            self._draw()
        else:
            self.note("no dimension is fixed in this slice")

    def step(self, by: int) -> None:
        """Moves along the chosen fixed dimension."""
        fixed = self._fixed()
        if not fixed or self.view is None:
            self.note("no dimension is fixed in this slice")
            return
        dimension = fixed[self._dimension % len(fixed)]
        entry = self.view.entries[dimension]
        if isinstance(entry, int) and 0 <= entry + by < self._shape[dimension]:
            words = self._words()
            words[dimension] = str(entry + by)
            self.set_text(f"[{', '.join(words)}]")
        else:
            self.note(f"this is the {'last' if by > 0 else 'first'} index of dimension {dimension}")

    def _words(self) -> list[str]:
        return self.view.text[1:-1].split(", ") if self.view and self.view.entries else []

    def _fixed(self) -> list[int]:
        return [i for i, entry in enumerate(self.view.entries) if isinstance(entry, int)] if self.view else []

    # -- the line ----------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Shows a message beside the slice: a line that comes and goes would redraw every number."""
        if text != self._note:
            self._note = text
            self._draw()

    def _draw(self) -> None:
        fixed = self._fixed()
        chosen = fixed[self._dimension % len(fixed)] if fixed else -1
        parts: list[str | tuple[str, str]] = ["slice [" if self.view else ""]
        for i, word in enumerate(self._words()):
            parts += [", " if i else "", (word, "bold underline") if i == chosen else word]
        parts.append("]" if self.view else "")
        aside = self._note
        if not aside and chosen >= 0:
            aside = f"[ ] moves dimension {chosen} (0 to {self._shape[chosen] - 1})"
        parts.append((f"   {clean(aside)}", "bold" if self._note else GREY))
        self.query_one("#slice-line", PlainLine).show(Content.assemble(*parts))

    # -- editing -----------------------------------------------------------------------------------

    def edit(self) -> None:
        edit = self.query_one(InputLine)
        edit.value = self.view.text if self.view else default_slice(self._shape)
        self.add_class("-editing")
        edit.focus()
        edit.cursor_position = max(0, len(edit.value) - 1)

    def end_editing(self) -> None:
        self.remove_class("-editing")
        self.post_message(self.Ended())

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        while text.endswith("]") and text.count("]") > text.count("["):  # Ctrl+U leaves the bracket behind the cursor
            text = text[:-1]
        if self.set_text(text or "[...]"):
            self.end_editing()


class TableOrMap(Vertical):
    """A table and a heat map with a common cursor: it stays on its element when one replaces the other."""

    DEFAULT_CSS = """
    TableOrMap {
        height: 1fr;
        #map, #legend { display: none; }
        #legend, #cell { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        #cell { text-style: bold; }
        &.-mapped ValueGrid { display: none; }
        &.-mapped #map, &.-mapped #legend { display: block; }
    }
    """

    class Switched(Message):
        """The table replaced the heat map, or the heat map the table."""

    def __init__(self, work: Work, *, id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        super().__init__(id=id)
        self._work = work

    def compose(self) -> Iterable[Widget]:
        yield ValueGrid()
        yield HeatMap(self._work)
        yield from plain_lines("legend", "cell")

    @property
    def grid(self) -> ValueGrid:
        return self.query_one(ValueGrid)

    @property
    def heat(self) -> HeatMap:
        return self.query_one(HeatMap)

    @property
    def mapped(self) -> bool:
        return self.has_class("-mapped")

    @property
    def front(self) -> ValueGrid | HeatMap:
        return self.heat if self.mapped else self.grid

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the element under the cursor; in the heat map an element of the cursor's cell."""
        value_table = self.value_table
        return (
            value_table.element(*self.heat.element)
            if self.mapped and value_table is not None
            else self.grid.cursor_index
        )

    # -- for subclasses ----------------------------------------------------------------------------

    @property
    def value_table(self) -> ValueTable | None:
        """The table for the heat map; None if there are no elements."""
        raise NotImplementedError

    def fill_grid(self) -> None:
        """Fills the table when it replaces the heat map."""

    def show_cell(self) -> None:
        """Shows the element or cell under the cursor."""
        raise NotImplementedError

    # -- table or heat map -------------------------------------------------------------------------

    def switch(self) -> str:
        """Switches between table and heat map; returns why not, or an empty text."""
        value_table, index = self.value_table, self.cursor_index
        if self.mapped:
            self.to_table(index)
            return ""
        if value_table is None:
            return "there is nothing to draw"
        if not is_drawable(value_table.array):
            return f"{value_table.array.dtype.name} elements are no numbers: there is no heat map of them"
        width, height = self.grid.size
        self.add_class("-mapped")
        self.line("legend").show("")
        self.draw(index, Size(width, height - 1))  # the legend takes a line
        self.heat.focus()
        self.post_message(self.Switched())
        return ""

    def to_table(self, index: Index | None = None) -> None:
        """Shows the table, with the cursor on an element."""
        if self.mapped:
            self.remove_class("-mapped")
            self.fill_grid()
            self.grid.focus()
            self.post_message(self.Switched())
            if index is not None:
                self.grid.go_to(index)

    def draw(self, index: Index | None = None, extent: Size | None = None) -> None:
        """Draws ``value_table`` as a heat map if that is shown; moves the cursor to ``index`` if given.

        ``extent``: see ``HeatMap.set_table``.
        """
        value_table = self.value_table
        if value_table is not None and self.mapped:
            heat_table = heat_table_of(value_table)
            row, column = (value_table.spot(index) if index is not None else None) or self.heat.element
            rows, columns = heat_table.shape
            self.heat.set_table(heat_table, (min(row, rows - 1), min(column, columns - 1)), extent)

    @on(HeatMap.Chosen)
    def to_element(self) -> None:

        def go(element: tuple[int, int]) -> None:
            value_table = self.value_table
            if value_table is not None:
                self.to_table(value_table.element(*element))

        if self.mapped:
            self.heat.shown_element(go)

    # -- the cursor --------------------------------------------------------------------------------

    def put_cursor(self, index: Index) -> bool:
        """Moves the cursor to an element; False if the slice does not show it."""
        if not self.mapped:
            return self.grid.go_to(index)
        spot = self.value_table.spot(index) if self.value_table is not None else None
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
        if self.mapped:
            self.heat.zoom_by(by)
            return ""
        self.grid.set_format(self.grid.form.finer(by))
        return f"{self.grid.form.precision} digits"

    def line(self, name: str) -> PlainLine:
        return self.query_one(f"#{name}", PlainLine)


class WindowView(ValuesView):
    """A view with a slice of a tensor (keys: ``actions.MOVES`` and others); ``element_query`` is the open search."""

    DEFAULT_CSS = "WindowView #element-query { height: 1; }"

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.element_query: ElementQuery | None = None
        self._search_box: InputLine | None = None
        self._place_before: tuple[str, Index | None] = ("", None)

    @property
    def table_or_map(self) -> TableOrMap:
        return self.query_one(TableOrMap)

    @property
    def bar(self) -> SliceBar:
        return self.query_one(SliceBar)

    @property
    def bar_shows(self) -> bool:
        """Tells whether the line with the slice is visible."""
        return True

    # -- what a view of values overrides to be searched ---------------------------------------------

    def elements_shown(self) -> ElementLine | None:
        """Returns the elements that a search looks through; None while there are none."""
        return None

    @property
    def type_shown(self) -> DType:
        """The element type of ``elements_shown``."""
        return np.dtype(np.float64)

    def show_element(self, index: Index) -> None:
        """Moves the cursor to an element, in another slice if needed."""
        raise NotImplementedError

    # -- the search --------------------------------------------------------------------------------

    def action_search(self) -> None:
        if self.focused is not None and not isinstance(self.focused, (ValueGrid, HeatMap, InputLine)):
            super().action_search()
            return
        elements = self.elements_shown()
        if elements is None or not elements.size:
            self.say("there are no values to search", note=True)
            return
        if self._search_box is None:
            self._search_box = InputLine(placeholder=EXAMPLES, id="element-query")
            self.query_one("#box").mount(self._search_box, before="#message")
        self._search_box.value = ""
        self._search_box.display = True
        self._search_box.focus()
        self.say("Enter looks for it, Esc goes back", note=True)

    @on(Input.Submitted, "#element-query")
    def _asked(self, event: Input.Submitted) -> None:
        if not event.value.strip():
            self._leave_search_box()
            return
        try:
            query = ElementQuery.of(event.value)
        except BadSearchError as error:
            self.say(str(error))
            return
        if self.element_query is None:
            self._place_before = self._place()
        self.element_query = query
        self._leave_search_box()
        self.set_hints(self.hints)
        self.next_sought(1)

    def _leave_search_box(self) -> None:
        if self._search_box is not None:
            self._search_box.display = False
        self.say("")
        self.table_or_map.front.focus()

    @property
    def _asking(self) -> bool:
        return self._search_box is not None and self._search_box.has_focus

    def next_sought(self, direction: int) -> None:
        query, elements = self.element_query, self.elements_shown()
        if query is None or elements is None or not elements.size:
            return
        test, origin = query.test_for(self.type_shown), self.table_or_map.cursor_index
        start = origin if origin is not None else elements.index(0)
        self.find(
            lambda progress: find_element(elements, start, direction, test, progress=progress),
            elements.size,
            f"no element is {query.text}",
        )

    def find(self, search: Callable[[ProgressFn], FoundElement | None], size: int, nothing: str) -> None:
        """Goes to the result of a search: at once for a small tensor, else in a worker, where Esc stops it."""

        def done(found: FoundElement | None) -> None:
            if found is None:
                self.say(nothing, note=True)
                return
            self.show_element(found.index)
            if found.wrapped:
                self.say("went on from the other end", note=True)

        if size <= QUICK:
            done(search(no_progress))
        else:
            self.work("searching", search, done)

    def action_end_search(self) -> None:
        if self.element_query is not None:
            self.element_query = None
            self.set_hints(self.hints)
            self.say("")

    def _place(self) -> tuple[str, Index | None]:
        return self.bar.view.text if self.bar.view is not None else "", self.table_or_map.cursor_index

    def _end_search_and_go_back(self) -> None:
        self.action_end_search()
        text, index = self._place_before
        elements = self.elements_shown()
        if elements is not None and index is not None and self.bar.fits(text):
            self.bar.set_text(text)
            self.show_element(index)

    def _hints(self, hints: Sequence[tuple[str, str]]) -> Content:
        if self.element_query is not None:
            others = (hint for hint in hints if hint[0] not in {"n", "n N", "Esc"})
            hints = (("n N", f"next {self.element_query.text}"), ("Esc", "back to before"), *others)
        return super()._hints(hints)

    # -- what is said ------------------------------------------------------------------------------

    def say(self, text: str, *, note: bool = False) -> None:
        """Shows a line; notes stand beside the slice."""
        beside = note and self.bar_shows and not self.bar.editing
        super().say("" if beside else text, note=note)
        self.bar.note(text if beside else "")

    def forget_note(self) -> None:
        """Removes a note, unless work is running, whose progress it shows."""
        if not self.working:
            self.bar.note("")

    def action_cancel(self) -> None:
        if self.bar.editing:
            self.bar.end_editing()
        elif self._asking:
            self._leave_search_box()
        elif self.element_query is not None and not self.working and not self.list_searched:
            self._end_search_and_go_back()
        else:
            super().action_cancel()

    # -- keys --------------------------------------------------------------------------------------

    def action_move(self, rows: int, columns: int) -> None:
        self.forget_note()
        self.table_or_map.front.move_by(rows, columns)

    def action_page(self, rows: int, columns: int) -> None:
        self.forget_note()
        self.table_or_map.front.page(rows, columns)

    def action_to_end(self, axis: int, last: bool) -> None:
        self.forget_note()
        self.table_or_map.front.to_end(axis, last)

    def action_finer(self, by: int) -> None:
        said = self.table_or_map.finer(by)
        if said:
            self.say(said, note=True)
        else:
            self.forget_note()

    def action_scientific(self) -> None:
        self.table_or_map.grid.set_format(self.table_or_map.grid.form.toggled())

    def action_fine(self) -> None:
        if self.table_or_map.mapped:
            self.table_or_map.heat.toggle_fine()
        else:
            self.say("d is for the heat map: t", note=True)

    def action_choose(self, by: int) -> None:
        self.bar.choose(by)

    def action_fixed(self, by: int) -> None:
        self.bar.step(by)

    def action_slice(self) -> None:
        if self.bar.view is not None:
            self.bar.edit()
            self.say("Enter shows it, Esc keeps the old one", note=True)

    def action_heat(self) -> None:
        wrong = self.table_or_map.switch()
        if wrong:
            self.say(wrong, note=True)
