"""The window onto the values of a tensor: only the cells on the screen are read and formatted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.arrays import Array
from tui_debugger.errors import BadSliceError
from tui_debugger.model import ProgressFn, no_progress
from tui_debugger.stats.dtypes import DType
from tui_debugger.text.clean import clean
from tui_debugger.text.heat_map import heat_table_of, is_drawable
from tui_debugger.text.values import (
    CellKind,
    Index,
    NumberFormat,
    Slice,
    Texts,
    ValueTable,
    best_fold,
    default_slice,
    parse_slice,
)
from tui_debugger.tui.dialogs.modal import Field, Line
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.values.heat_map import HeatMap, Work, legend_of
from tui_debugger.tui.values.search import EXAMPLES, BadSearchError, ElementQuery, Elements, Found, find_element
from tui_debugger.tui.views.view import ValuesView
from tui_debugger.tui.widgets.text import fit

if TYPE_CHECKING:
    from tui_debugger.tui.views.registry import ViewTarget
    from tui_debugger.tui.views.view import ViewHost

QUICK = 1 << 22
"""Up to this many elements a search is done at once (some 10 ms); above, beside the event loop."""
GAP = 1
"""Cells between columns."""
_KINDS = {
    CellKind.ZERO: "value-grid--zero",
    CellKind.NAN: "value-grid--nan",
    CellKind.INF: "value-grid--inf",
    CellKind.OUTSIDE: "value-grid--outside",
}


class ValueGrid(Widget, can_focus=True):
    """A table of numbers with row and column indices, and a cursor cell.

    The column width is that of the widest number seen so far: it grows while one looks around and shrinks only when
    slice or format change, so that columns do not jump.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "value-grid--header",
        "value-grid--zero",
        "value-grid--nan",
        "value-grid--inf",
        "value-grid--outside",
    }
    DEFAULT_CSS = """
    ValueGrid {
        height: 1fr;
        & > .value-grid--header { color: $text-muted; text-style: bold; }
        & > .value-grid--zero { color: $text-muted; }
        & > .value-grid--nan { color: $error; text-style: bold; }
        & > .value-grid--inf { color: #d787ff; text-style: bold; }
        & > .value-grid--outside { color: $warning; text-style: bold; }
    }
    """

    class CursorMoved(Message):
        """The cursor came to another cell, or the cell got another value."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        """Shows nothing until :meth:`set_view`."""
        super().__init__(id=id)
        self.value_table: ValueTable | None = None
        self.form = NumberFormat()
        self.row = self.column = 0
        self._top = self._left = 0
        self._cell = 1
        self._text = ""
        self._window: tuple[object, Texts] = (None, [])

    # -- what it shows ---------------------------------------------------------------------------

    def set_view(self, array: Array, view: Slice) -> None:
        """Shows a part of a tensor; the cursor stays on its row and column where they exist."""
        self.set_table(ValueTable(array, view))

    def set_table(self, value_table: ValueTable) -> None:
        """Shows a value_table; the cursor stays on its row and column where they exist."""
        self.value_table = value_table
        self._text = ""
        self._cell = 1
        self._settle()

    def set_format(self, form: NumberFormat) -> None:
        """Changes how numbers are written."""
        self.form = form
        self._cell = 1
        self._settle()

    def show_text(self, text: str) -> None:
        """Shows text instead of values: why there are none."""
        self.value_table = None
        self._text = text
        self.refresh()

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the cursor's cell; None when nothing is shown."""
        return (
            None
            if self.value_table is None or self.value_table.empty
            else self.value_table.index(self.row, self.column)
        )

    def go_to(self, index: Index) -> bool:
        """Puts the cursor on an element; False when the slice does not show it."""
        place = self.value_table.place(index) if self.value_table else None
        if place is None:
            return False
        self.move_to(*place)
        return True

    # -- moving ----------------------------------------------------------------------------------

    @property
    def page_rows(self) -> int:
        """Rows of values that fit below the header."""
        return max(1, self.size.height - 1)

    @property
    def page_columns(self) -> int:
        """Whole columns that fit."""
        return max(1, (self.size.width - self._label_width) // (self._cell + GAP))

    def move_to(self, row: int, column: int) -> None:
        """Puts the cursor on a cell, within bounds, and brings it into sight."""
        value_table = self.value_table
        if value_table is None or value_table.empty:
            return
        before = (self._top, self._left, self._cell)
        old = self.row
        self.row = max(0, min(row, value_table.rows - 1))
        self.column = max(0, min(column, value_table.columns - 1))
        while value_table.index(self.row, self.column) is None:  # beyond the end of a folded line
            self.column -= 1
        self._reveal()
        if before != (self._top, self._left, self._cell) or self.value_table is not value_table:
            self.refresh()
        else:
            self._refresh_row(old)
            self._refresh_row(self.row)
        self.post_message(self.CursorMoved())

    def move_by(self, rows: int, columns: int) -> None:
        """Moves the cursor; in a folded line, left and right go on in the next row."""
        value_table = self.value_table
        if value_table is not None and value_table.folded and columns and not rows:
            line, part = divmod(self.row, value_table.stride)
            place = line * value_table.fold + self.column + columns
            if 0 <= place < len(value_table.lines[0]):
                line, column = divmod(place, value_table.fold)
                self.move_to(line * value_table.stride + part, column)
            return
        self.move_to(self.row + rows * (value_table.stride if value_table else 1), self.column + columns)

    def page(self, rows: int, columns: int) -> None:
        """Moves the cursor by pages; where several rows belong together by whole ones."""
        stride = self.value_table.stride if self.value_table is not None else 1
        down = max(1, self.page_rows // stride) * stride
        self.move_to(self.row + rows * down, self.column + columns * self.page_columns)

    def to_end(self, axis: int, last: bool) -> None:
        """Goes to the first or last row (axis 0) or column (axis 1)."""
        value_table = self.value_table
        if value_table is None:
            return
        if axis == 0:
            part = self.row % value_table.stride
            self.move_to(value_table.rows - value_table.stride + part if last else part, self.column)
        else:
            self.move_to(self.row, value_table.columns - 1 if last else 0)

    def _reveal(self) -> None:
        """Scrolls by as little as possible, then lets the columns grow for what came into sight."""
        for _ in range(3):  # wider columns can push the cursor out of sight again
            page_rows, page_columns = self.page_rows, self.page_columns
            value_table = self.value_table
            if value_table is None:
                return
            self._top = max(min(self._top, self.row, value_table.rows - page_rows), self.row - page_rows + 1, 0)
            self._left = max(min(self._left, self.column, value_table.columns - page_columns), 0)
            self._left = max(self._left, self.column - page_columns + 1)
            width = self._widest()
            if width <= self._cell:
                return
            self._cell = width
            self._refold()

    def _settle(self) -> None:
        """After a new value_table or format: width, fold, cursor in bounds."""
        value_table = self.value_table
        if value_table is not None and not value_table.empty and self.size.width:
            self.row, self._top = (min(place, value_table.rows - 1) for place in (self.row, self._top))
            self.column, self._left = (min(place, value_table.columns - 1) for place in (self.column, self._left))
            self._cell = self._widest()
            self._refold()
            self.move_to(self.row, self.column)
        else:
            self.post_message(self.CursorMoved())
        self.refresh()

    def _refold(self) -> None:
        """Folds a line anew when the columns do not fit any more; the cursor stays on its element."""
        value_table = self.value_table
        if value_table is None or not value_table.folded:
            return
        room = self.size.width - len(str(max(map(abs, (value_table.lines[0][0], value_table.lines[0][-1]))))) - GAP
        fold = best_fold(room, self._cell + GAP)
        if fold != value_table.fold:
            line, part = divmod(self.row, value_table.stride)
            line, self.column = divmod(min(line * value_table.fold + self.column, len(value_table.lines[0]) - 1), fold)
            self.row = line * value_table.stride + part
            self.value_table = replace(value_table, fold=fold)
            self._top = self.row // self.page_rows * self.page_rows if self.row >= self.page_rows else 0

    def _widest(self) -> int:
        """Cells that the widest visible number or column index takes."""
        texts = self._texts()
        value_table = self.value_table
        columns = range(self._left, self._left + len(texts[0])) if texts else ()
        labels = max((len(value_table.column_label(column)) for column in columns), default=1) if value_table else 1
        return max(labels, max((len(text) for line in texts for text, _ in line), default=1))

    # -- drawing ---------------------------------------------------------------------------------

    @property
    def _label_width(self) -> int:
        value_table = self.value_table
        if value_table is None or value_table.empty:
            return 0
        return max(len(value_table.row_label(0)), len(value_table.row_label(value_table.rows - 1))) + GAP

    def _texts(self) -> Texts:
        """Returns the visible cells as text, kept until something changes."""
        value_table = self.value_table
        if value_table is None or value_table.empty:
            return []
        height = min(self.page_rows, value_table.rows - self._top)
        width = min(self.page_columns, value_table.columns - self._left)
        key = (value_table, self._top, self._left, height, width, self.form)
        if self._window[0] is None or self._window[0] != key:
            self._window = (key, value_table.texts(self._top, self._left, height, width, self.form))
        return self._window[1]

    def _refresh_row(self, row: int) -> None:
        self.refresh(Region(0, row - self._top + 1, self.size.width, 1))

    def on_resize(self) -> None:
        """More or fewer columns fit."""
        self._settle()

    def notify_style_update(self) -> None:
        """Colours changed."""
        super().notify_style_update()
        self.refresh()

    def on_focus(self) -> None:
        """The cursor shows."""
        self._refresh_row(self.row)

    def on_blur(self) -> None:
        """The cursor fades."""
        self._refresh_row(self.row)

    def render_line(self, y: int) -> Strip:
        """Draws one line."""
        base, width = self.rich_style, self.size.width
        if self.value_table is None or self.value_table.empty:
            lines = self._text.split("\n")
            return Strip(fit([Segment(lines[y] if y < len(lines) else "", base)], width, base))
        texts = self._texts()
        if y == 0:
            segments = self._header(len(texts[0]) if texts else 0)
        elif y - 1 < len(texts):
            segments = self._line(self._top + y - 1, texts[y - 1], base)
        else:
            segments = []
        return Strip(segments).simplify().adjust_cell_length(width, base)

    def _header(self, count: int) -> list[Segment]:
        style = self.get_component_rich_style("value-grid--header")
        assert self.value_table is not None  # noqa: S101 - only called with a value_table
        labels = (self.value_table.column_label(self._left + i) for i in range(count))
        text = "".join(label.rjust(self._cell + GAP) for label in labels)
        return [Segment(" " * (self._label_width - GAP) + text, style)]

    def _line(self, row: int, texts: list[tuple[str, CellKind]], base: Style) -> list[Segment]:
        value_table = self.value_table
        assert value_table is not None  # noqa: S101 - only called with a value_table
        header = self.get_component_rich_style("value-grid--header")
        segments = [Segment(value_table.row_label(row).rjust(self._label_width - GAP), header)]
        for offset, (text, kind) in enumerate(texts):
            column = self._left + offset
            if value_table.folded and value_table.index(row, column) is None:
                break
            style = self.get_component_rich_style(_KINDS[kind]) if kind in _KINDS else base
            if (row, column) == (self.row, self.column):
                # Reverse video shows in every terminal and without colour; without focus, underlining does.
                style += Style(reverse=True) if self.has_focus else Style(underline=True)
            segments += [Segment(" " * (self._cell + GAP - len(text)), base), Segment(text, style)]
        return segments

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Puts the cursor on a cell."""
        if event.y and event.x >= self._label_width:
            self.move_to(self._top + event.y - 1, self._left + (event.x - self._label_width) // (self._cell + GAP))

    def on_mouse_scroll_down(self) -> None:
        """Three rows down."""
        self.move_by(3, 0)

    def on_mouse_scroll_up(self) -> None:
        """Three rows up."""
        self.move_by(-3, 0)


class SliceBar(Vertical):
    """Knows the slice of the tensor that is shown beside it.

    Attributes:
        view: the slice; None before a tensor is there.
    """

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
        """Another slice."""

    class Refused(Message):
        """Text that is no slice of the tensor; with an empty text: editing began or ended."""

        def __init__(self, text: str) -> None:
            """``text`` says what is wrong."""
            super().__init__()
            self.text = text

    class Ended(Message):
        """Editing ended: the focus goes back to the values."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        super().__init__(id=id)
        self.view: Slice | None = None
        self._shape: tuple[int, ...] = ()
        self._dimension = 0
        self._note = ""

    def compose(self) -> Iterable[Line | Field]:
        """Lays out the line, or the input in its place."""
        yield Line(id="slice-line")
        yield Field(id="slice-edit")

    @property
    def editing(self) -> bool:
        """Tells whether the text is being edited."""
        return self.has_class("-editing")

    # -- which part --------------------------------------------------------------------------------

    def set_shape(self, shape: tuple[int, ...]) -> None:
        """Another tensor: the slice stays when it has the same shape."""
        if self.view is None or shape != self._shape:
            self._shape, self._dimension = shape, 0
            self.view = None
            self.set_text(default_slice(shape))
        else:
            self._draw()

    def set_text(self, text: str) -> bool:
        """Another slice; says why not when the text is wrong."""
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
        """Tells whether a text is a slice of the tensor."""
        try:
            parse_slice(text, self._shape)
        except BadSliceError:
            return False
        return True

    def include(self, index: Index) -> bool:
        """Shows an element: other fixed indices where needed, and wider ranges where a range leaves it out."""
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
        """Another fixed dimension to move along."""
        fixed = self._fixed()
        if fixed:
            self._dimension, self._note = (self._dimension + by) % len(fixed), ""
            self._draw()
        else:
            self.note("no dimension is fixed in this slice")

    def step(self, by: int) -> None:
        """Along the chosen fixed dimension."""
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
        """Returns the slice text, one word per dimension."""
        return self.view.text[1:-1].split(", ") if self.view and self.view.entries else []

    def _fixed(self) -> list[int]:
        return [i for i, entry in enumerate(self.view.entries) if isinstance(entry, int)] if self.view else []

    # -- the line ----------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Says something beside the slice, until the next one: a line that comes and goes would redraw every number."""
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
        self.query_one("#slice-line", Line).show(Content.assemble(*parts))

    # -- editing -----------------------------------------------------------------------------------

    def edit(self) -> None:
        """Shows the field."""
        edit = self.query_one(Field)
        edit.value = self.view.text if self.view else default_slice(self._shape)
        self.add_class("-editing")
        edit.focus()
        edit.cursor_position = max(0, len(edit.value) - 1)

    def end_editing(self) -> None:
        """Back to the line."""
        self.remove_class("-editing")
        self.post_message(self.Ended())

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        event.stop()
        if self.set_text(event.value.strip() or "[...]"):
            self.end_editing()


class TableOrMap(Vertical):
    """Table and heat map share their cursor: it stays on its element when one takes the other's place.

    Subclasses say what the cells show, and write the line below.
    """

    DEFAULT_CSS = """
    TableOrMap {
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
        """Lays out table or map, legend of the map, the cursor's element."""
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
        """Tells whether the heat map shows."""
        return self.has_class("-mapped")

    @property
    def front(self) -> ValueGrid | HeatMap:
        """The widget that shows."""
        return self.heat if self.mapped else self.grid

    @property
    def cursor_index(self) -> Index | None:
        """Full index of the element under the cursor; in the heat map one in the cursor's cell."""
        value_table = self.value_table
        return (
            value_table.element(*self.heat.element)
            if self.mapped and value_table is not None
            else self.grid.cursor_index
        )

    # -- for subclasses ----------------------------------------------------------------------------

    @property
    def value_table(self) -> ValueTable | None:
        """The table for the heat map; None when there are no elements."""
        raise NotImplementedError

    def fill_grid(self) -> None:
        """Gives the table what it shows, when it takes the heat map's place."""

    def show_cell(self) -> None:
        """Says what is under the cursor."""
        raise NotImplementedError

    # -- table or heat map -------------------------------------------------------------------------

    def switch(self) -> str:
        """Table or heat map; returns why not."""
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
        """The table, with the cursor on an element."""
        if self.mapped:
            self.remove_class("-mapped")
            self.fill_grid()
            self.grid.focus()
            self.post_message(self.Switched())
            if index is not None:
                self.grid.go_to(index)

    def draw(self, index: Index | None = None, extent: Size | None = None) -> None:
        """The value_table as a heat map, when that shows.

        Args:
            index: the element that the cursor goes to; None: it stays in its row and column.
            extent: see ``HeatMap.set_table``.
        """
        value_table = self.value_table
        if value_table is not None and self.mapped:
            heat_table = heat_table_of(value_table)
            row, column = (value_table.spot(index) if index is not None else None) or self.heat.element
            rows, columns = heat_table.shape
            self.heat.set_table(heat_table, (min(row, rows - 1), min(column, columns - 1)), extent)

    @on(HeatMap.Chosen)
    def to_element(self) -> None:
        """From the cursor's cell to its element in the table."""

        def go(element: tuple[int, int]) -> None:
            value_table = self.value_table
            if value_table is not None:
                self.to_table(value_table.element(*element))

        if self.mapped:
            self.heat.shown_element(go)

    # -- the cursor --------------------------------------------------------------------------------

    def put_cursor(self, index: Index) -> bool:
        """Puts the cursor on an element; False when the slice does not show it."""
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
        """More or fewer digits, or larger and smaller cells; returns what is to be said about that."""
        if self.mapped:
            self.heat.zoom_by(by)
            return ""
        self.grid.set_format(self.grid.form.finer(by))
        return f"{self.grid.form.precision} digits"

    def line(self, name: str) -> Line:
        """Returns one of the lines below."""
        return self.query_one(f"#{name}", Line)


class WindowView(ValuesView):
    """A view with a slice of a tensor that its keys move through; see ``actions.moves`` and what follows there.

    Attributes:
        element_query: what ``n`` and ``N`` go to while a search is open.
    """

    DEFAULT_CSS = "WindowView #element-query { height: 1; }"

    def __init__(self, host: ViewHost, about: ViewTarget) -> None:
        super().__init__(host, about)
        self.element_query: ElementQuery | None = None
        self._search_box: Field | None = None
        self._place_before: tuple[str, Index | None] = ("", None)

    @property
    def table_or_map(self) -> TableOrMap:
        """The elements."""
        return self.query_one(TableOrMap)

    @property
    def bar(self) -> SliceBar:
        """The line in which the slice is edited."""
        return self.query_one(SliceBar)

    @property
    def bar_shows(self) -> bool:
        """Tells whether the slice is in sight."""
        return True

    # -- what a view of values overrides to be searched ---------------------------------------------

    def elements_shown(self) -> Elements | None:
        """Returns what a search looks through: what the cells show; None while there is nothing."""
        return None

    @property
    def type_shown(self) -> DType:
        """The element type of that."""
        return np.dtype(np.float64)

    def show_element(self, index: Index) -> None:
        """Puts the cursor on an element, in another slice where needed."""
        raise NotImplementedError

    # -- the search --------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Asks what to look for; in a list beside the values its own search opens."""
        if self.focused is not None and not isinstance(self.focused, (ValueGrid, HeatMap, Field)):
            super().action_search()
            return
        elements = self.elements_shown()
        if elements is None or not elements.size:
            self.say("there are no values to search", note=True)
            return
        if self._search_box is None:
            self._search_box = Field(placeholder=EXAMPLES, id="element-query")
            self.query_one("#box").mount(self._search_box, before="#message")
        self._search_box.value = ""
        self._search_box.display = True
        self._search_box.focus()
        self.say("Enter looks for it, Esc goes back", note=True)

    @on(Input.Submitted, "#element-query")
    def _asked(self, event: Input.Submitted) -> None:
        event.stop()
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
        """Goes to the next or previous element that is looked for, wherever in the tensor."""
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

    def find(self, search: Callable[[ProgressFn], Found | None], size: int, nothing: str) -> None:
        """Goes to what a search finds: at once in a small tensor, else beside the event loop, where Esc stops it."""

        def done(found: Found | None) -> None:
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
        """Ends the search; the cursor stays."""
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
        """Notes go beside the slice: a line that comes and goes would redraw every number."""
        beside = note and self.bar_shows and not self.bar.editing
        super().say("" if beside else text, note=note)
        self.bar.note(text if beside else "")

    def forget_note(self) -> None:
        """Takes back what was noted, unless it says what is under way."""
        if not self.working:
            self.bar.note("")

    def action_cancel(self) -> None:
        """Esc: ends editing, else what is under way, else the search, else the screen."""
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
        """Arrow keys."""
        self.forget_note()
        self.table_or_map.front.move_by(rows, columns)

    def action_page(self, rows: int, columns: int) -> None:
        """A page of rows or columns."""
        self.forget_note()
        self.table_or_map.front.page(rows, columns)

    def action_to_end(self, axis: int, last: bool) -> None:
        """Goes to the first or last row or column."""
        self.forget_note()
        self.table_or_map.front.to_end(axis, last)

    def action_finer(self, by: int) -> None:
        """More or fewer digits; in the heat map zoom."""
        said = self.table_or_map.finer(by)
        if said:
            self.say(said, note=True)
        else:
            self.forget_note()

    def action_scientific(self) -> None:
        """Scientific notation on and off."""
        self.table_or_map.grid.set_format(self.table_or_map.grid.form.toggled())

    def action_fine(self) -> None:
        """The smallest cells there are, or those that cost little."""
        if self.table_or_map.mapped:
            self.table_or_map.heat.toggle_fine()
        else:
            self.say("d is for the heat map: t", note=True)

    def action_choose(self, by: int) -> None:
        """Another fixed dimension for ``[`` and ``]``."""
        self.bar.choose(by)

    def action_fixed(self, by: int) -> None:
        """Along the chosen fixed dimension."""
        self.bar.step(by)

    def action_slice(self) -> None:
        """Edits the slice text."""
        if self.bar.view is not None:
            self.bar.edit()
            self.say("Enter shows it, Esc keeps the old one", note=True)

    def action_heat(self) -> None:
        """Table or heat map; the cursor stays on its element."""
        wrong = self.table_or_map.switch()
        if wrong:
            self.say(wrong, note=True)
