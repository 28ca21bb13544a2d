"""The screen of a tensor's values: table or heat map, slices, jumps to NaN, Inf, extremes and searched elements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.content import Content
from textual.widget import Widget

from tui_debugger.arrays import Array
from tui_debugger.check.types import TensorRow
from tui_debugger.model import ProgressFn, TensorKey
from tui_debugger.stats.dtypes import DType
from tui_debugger.stats.fields import TENSOR_COUNTS, TENSOR_MOMENTS
from tui_debugger.stats.heat import HeatCellKind, strongest
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.text.numbers import number, plural
from tui_debugger.text.tensors import amount, index_text, round_text, step_text
from tui_debugger.text.values import (
    Family,
    Index,
    NumberFormat,
    Slice,
    ValueTable,
    apply,
    bits_text,
    exact_text,
    family,
    format_window,
)
from tui_debugger.tui.actions import MAP_HINTS, TABLE_HINTS, VALUE_ACTIONS
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.export import Cells, Extract, RowsOnDemand, file_stem
from tui_debugger.tui.theme import GREY, ORANGE
from tui_debugger.tui.values.grid import ValueGrid
from tui_debugger.tui.values.heat_map import HeatMap, counts_text
from tui_debugger.tui.values.search import (
    ElementLine,
    MapSearch,
    can_be_bad,
    elements_of,
    find_bad,
    find_extreme,
)
from tui_debugger.tui.values.window import SliceBar, TableOrMap, WindowView
from tui_debugger.tui.views.view import Files, files_of
from tui_debugger.tui.widgets.text import shorten

if TYPE_CHECKING:
    from tui_debugger.tui.views.registry import ViewTarget
    from tui_debugger.tui.views.view import ViewHost


def stats_text(row: TensorRow) -> str:
    """Returns the statistics of the whole tensor, not of the slice; if there are none, why.

    Tensors of bool have only counts.
    """
    stats = row.stats
    if stats is None:
        return clean(row.error) if row.error else "statistics: not computed"
    if row.meta is not None and row.meta.dtype == "bool" and stats.counted:
        true = stats.count - stats.zero
        return f"count {stats.count}  True {true}  False {stats.zero}"
    places = [f"{field.on_screen} {number(field.value(stats))}" for field in TENSOR_MOMENTS]
    counts = [f"{field.on_screen} {amount(stats, field.name, str)}" for field in TENSOR_COUNTS]
    source = ["(as recorded)"] if row.recorded else []
    return "  ".join(places + source) + "\n" + "  ".join(counts)


LOOKED_UP = 1 << 19
"""Elements of a cell up to which each move looks for the element that gives the cell its colour (1 ms)."""
_NAMES = {
    HeatCellKind.NAN: "NaN",
    HeatCellKind.POS_INF: "+Inf",
    HeatCellKind.NEG_INF: "-Inf",
    HeatCellKind.BOTH_INF: "+Inf and -Inf",
}


def slot_of(row: TensorRow) -> str:
    """Returns ``out:0``, with the round if the tensor was written several times in its step."""
    return f"{row.role}:{row.slot}{round_text(row.key.round)}"


def facts_line(row: TensorRow, array: Array | None, *, previous: bool) -> Content:
    key = row.key
    words = [f"{array.dtype.name} {array.shape}" if array is not None else "", f"step {step_text(key.step)}"]
    words += [round_text(key.round, row.rounds), f"rank {key.rank}", clean(key.graph)]
    step = [("  ◀ PREVIOUS STEP", f"bold reverse {ORANGE}")] if previous else []
    return Content.assemble("  ".join(filter(None, words)), *step)


def is_index(index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(index) == len(shape) and all(0 <= at < size for at, size in zip(index, shape, strict=True))


def element_line(index: Index, value: Any, place: str) -> Content:
    """Returns an element with its full index and every digit."""
    return Content.assemble(f"{index_text(index)} = ", exact_text(value), (f"   {place}", f"not bold {GREY}"))


def cell_line(value_table: ValueTable, heat: HeatMap) -> tuple[Content, Any]:
    """Returns the text of the cursor's cell, and the element that gives the cell its colour (None if not looked up)."""
    table, picture, covered, place = heat.table, heat.picture, heat.cell, heat.cursor
    if table is None or picture is None or covered is None:
        return Content(""), None
    rows, columns = covered
    size = len(rows) * len(columns)
    found = strongest(table.read, rows, columns) if size <= LOOKED_UP else None
    if size == 1:
        index = value_table.element(rows.start, columns.start)
        return element_line(index, value_table.array[index], ""), value_table.array[index]
    kind = HeatCellKind(int(picture.kinds[place]))
    text, where, value = _NAMES.get(kind) or number(float(picture.values[place])), "", None
    if found is not None:
        index = value_table.element(*found)
        value = value_table.array[index]
        text, where = exact_text(value), f" at {index_text(index)}"
    shown = f"{value_table.rectangle_text(rows, columns)} shows {text}{where}"
    return Content.assemble(shown, (f"   {counts_text(picture, place)}", f"not bold {GREY}")), value


class ElementsPane(TableOrMap):
    """Shows a slice, and on demand the bytes of the element under the cursor."""

    DEFAULT_CSS = """
    ElementsPane {
        #bits { display: none; }
        &.-bits #bits { display: block; }
    }
    """

    def compose(self) -> Iterable[Widget]:
        yield from super().compose()
        yield PlainLine(id="bits")

    @property
    def value_table(self) -> ValueTable | None:
        """The values that are shown; None if there are no elements."""
        value_table = self.grid.value_table
        return value_table if value_table is not None and not value_table.empty else None

    # -- what it shows -----------------------------------------------------------------------------

    def show(self, array: Array, view: Slice) -> None:
        self.grid.set_view(array, view)
        if self.value_table is None:
            self.show_text(f"No elements in {view.text} of shape {array.shape}.")
        elif self.mapped:
            self.draw()

    def show_text(self, text: str) -> None:
        self.to_table()
        self.grid.show_text(text)
        self.line("cell").show("")
        self.line("bits").show("")

    # -- the cursor --------------------------------------------------------------------------------

    def toggle_bits(self) -> None:
        self.toggle_class("-bits")
        self.show_cell()

    def show_cell(self) -> None:
        """Shows the element with all its digits, or the cell of the heat map."""
        grid, value_table = self.grid, self.grid.value_table
        index = grid.cursor_index
        if value_table is None or index is None:
            return
        if self.mapped:
            text, value = cell_line(value_table, self.heat)
        else:
            value = value_table.array[index]
            place = f"row {grid.row + 1}/{value_table.rows}  column {grid.column + 1}/{value_table.columns}"
            text = element_line(index, value, place)
        self.line("cell").show(text)
        self._show_bits(value)

    def _show_bits(self, value: Any) -> None:
        if self.has_class("-bits"):
            text = "no single element is looked at: zoom in" if value is None else bits_text(value)
            self.line("bits").show(Content.styled(text, GREY))

    def lines_text(self) -> list[str]:
        """Returns the lines below the values as text, after the heat map in glyphs if that is shown."""
        drawn = self.heat.drawn if self.mapped else None
        below = [str(self.line(name).content) for name in ("legend", "cell", "bits") if self.line(name).display]
        return [*(drawn.plain.text() if drawn is not None else ()), *below]


MOST = 20_000
"""Most elements that are written as text: more than a clipboard takes. Files of numbers have all elements."""


def _csv_row(value_table: ValueTable, row: int) -> Cells:
    """Returns index and values of a line, or of an element of the only line."""
    lines = value_table.lines
    if not lines:
        return "", value_table.part(())[()]
    part = value_table.part((lines[0][row : row + 1], *lines[1:]))[0]
    return (lines[0][row], *part) if len(lines) == 2 else (lines[0][row], part)


def extract_of(
    value_table: ValueTable, form: NumberFormat, heading: Sequence[str], element: Index | None, key: TensorKey
) -> Extract:
    """Returns the content of a slice for copy and export.

    ``heading``: lines before the numbers. ``element``: full index of the element under the cursor.
    """
    lines = value_table.lines
    header = ("index", *(str(column) for column in lines[1])) if len(lines) == 2 else ("index", "value")
    count = (value_table.rows if len(lines) == 2 else len(lines[0]) if lines else 1) if not value_table.empty else 0
    return Extract(
        stem=_stem(value_table, key),
        text="\n".join([*heading, "", *_text(value_table, form)]),
        one="" if element is None else exact_text(value_table.array[element]),
        header=header,
        rows=RowsOnDemand(count, partial(_csv_row, value_table)),
        array=lambda: apply(value_table.array, value_table.view),
    )


def _stem(value_table: ValueTable, key: TensorKey) -> str:
    """Returns a file name: the tensor, and the slice unless it is the whole tensor."""
    name = file_stem(key)
    if (
        all(isinstance(entry, range) for entry in value_table.view.entries)
        and value_table.view.text.strip("[:, ]") == ""
    ):
        return name
    words = [word if word != ":" else "all" for word in value_table.view.text[1:-1].split(", ")]
    return f"{name}.{'_'.join(re.sub(r'[^0-9A-Za-z]+', '-', word) for word in words)}"[:160]


def _text(value_table: ValueTable, form: NumberFormat) -> list[str]:
    """Returns at most ``MOST`` numbers in columns, with the indices of rows and columns."""
    if value_table.empty:
        return ["no elements"]
    columns = min(value_table.columns, MOST)
    rows = min(value_table.rows, max(1, MOST // columns))
    cells = [[text for text, _ in row] for row in format_window(value_table.cells(0, 0, rows, columns), form)]
    if value_table.folded:
        cells[-1] = [text for at, text in enumerate(cells[-1]) if value_table.index(rows - 1, at) is not None]
    labels = [value_table.column_label(column) for column in range(columns)]
    width = max(len(text) for row in (labels, *cells) for text in row)
    beside = max(len(value_table.row_label(row)) for row in (0, rows - 1))
    lines = [
        f"{name:>{beside}} " + " ".join(text.rjust(width) for text in row)
        for name, row in zip(("", *(value_table.row_label(row) for row in range(rows))), (labels, *cells), strict=True)
    ]
    left = value_table.rows - rows, value_table.columns - columns
    if any(left):
        lines.append(f"… {plural(left[0], 'row')} and {plural(left[1], 'column')} more: export as .csv or .npy")
    return lines


class ValuesScreen(WindowView):
    """Shows a tensor of any shape. The array is usually a memory map: a tensor of any size opens at once."""

    OWN_ACTIONS = VALUE_ACTIONS
    DEFAULT_CSS = """
    ValuesScreen {
        #facts { color: $text-muted; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """
    hints = TABLE_HINTS

    def __init__(self, host: ViewHost, about: ViewTarget, row: TensorRow, previous: TensorKey | None = None) -> None:
        """Reads nothing before the screen shows.

        ``row``: the tensor's row, with statistics if known. ``previous``: the same tensor at the step before; None:
        there is none.
        """
        super().__init__(host, about)
        self.row = row
        self._previous = previous
        self._array: Array | None = None
        self._arrays: dict[bool, Array] = {}
        self._showing_previous = False
        self.heading = f"{slot_of(row)}  {shorten(row.key.node, 60)}"

    def body(self) -> Iterable[Widget]:
        yield from plain_lines("facts", "stats")
        yield SliceBar()
        yield ElementsPane(self.work)

    def on_mount(self) -> None:
        self.grid.focus()
        self._show_facts()
        self._read(self.row.key, "reading", previous=False)

    def on_resize(self) -> None:
        self.set_heading(f"{slot_of(self.row)}  {shorten(self.row.key.node, max(20, self.size.width - 16))}")

    @property
    def elements(self) -> ElementsPane:
        return self.query_one(ElementsPane)

    @property
    def grid(self) -> ValueGrid:
        return self.elements.grid

    @property
    def heat(self) -> HeatMap:
        return self.elements.heat

    @property
    def cursor_index(self) -> Index | None:
        return self.elements.cursor_index

    @property
    def target_here(self) -> ViewTarget:
        """The tensor that is shown, at the cursor's element."""
        key = self._previous if self._showing_previous else None
        return replace(self.about.at_step(key.step) if key is not None else self.about, at=self.cursor_index)

    def extract(self) -> Extract | None:
        value_table = self.elements.value_table
        if value_table is None:
            return None
        key = self._previous if self._showing_previous and self._previous is not None else self.row.key
        heading = [self.heading, *(str(self.text_line(name).content) for name in ("facts", "stats"))]
        heading += [f"slice {value_table.view.text}", *self.elements.lines_text()]
        return extract_of(value_table, self.grid.form, heading, self.cursor_index, key)

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, key: TensorKey, what: str, *, previous: bool) -> None:
        session = self.session

        def job(progress: ProgressFn) -> tuple[Array, Files]:
            before = files_of(session, [key])
            array = session.read(key, progress)
            return array, files_of(session, [key], before)

        def show(found: tuple[Array, Files]) -> None:
            array, files = found
            self.files = {**self.files, **files}
            self._show_array(array, previous=previous)

        self.work(what, job, show)

    def look_again(self) -> None:
        """Reads the tensor and its statistics again; slice and cursor stay."""
        session, previous, old = self.session, self._showing_previous, self.row
        key = self._previous if previous and self._previous is not None else old.key
        keys = list(dict.fromkeys((key, old.key)))

        def job(progress: ProgressFn) -> tuple[TensorRow, Array, Files]:
            before = files_of(session, keys, anew=True)
            array = session.read(key, progress)
            (row,) = session.measure((session.row_of(old.key),), progress)
            return replace(row, role=old.role, slot=old.slot), array, files_of(session, keys, before)

        def show(found: tuple[TensorRow, Array, Files]) -> None:
            self.row, array, self.files = found
            self._arrays.clear()
            self._show_array(array, previous=previous)

        self.work_anew("reading", job, show)

    def failed(self, error: Exception) -> None:
        """Shows the error in place of the values if there are none."""
        if self._array is None:
            self.say("")
            reason = clean_lines(str(error)) or type(error).__name__
            self.elements.show_text(f"These values cannot be read:\n\n{reason}")
        else:
            super().failed(error)

    def action_cancel(self) -> None:
        """Closes the screen also if Esc stopped the first read."""
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
        if at is not None and is_index(at, array.shape):
            self.show_element(at)

    @on(SliceBar.Changed)
    def _show_slice(self, _: object = None, *, again: bool = False) -> None:
        array, view, value_table = self._array, self.bar.view, self.grid.value_table
        if array is None:
            return
        if view is None:
            self.elements.show_text(f"This tensor has no elements: its shape is {array.shape}.")
            return
        if value_table is not None and value_table.view == view and not again:
            return
        super().say("")
        self.elements.show(array, view)

    def _show_facts(self) -> None:
        previous = self._showing_previous
        self.show_line("facts", facts_line(self.row, self._array, previous=previous))
        elsewhere = Content.styled("statistics are those of the current step: p", GREY)
        self.show_line("stats", elsewhere if previous else Content(stats_text(self.row)))

    # -- keys --------------------------------------------------------------------------------------

    def action_bits(self) -> None:
        self.elements.toggle_bits()

    @on(SliceBar.Refused)
    def _refused(self, event: SliceBar.Refused) -> None:
        if self.bar.view is not None:
            self.say(event.text)

    @on(SliceBar.Ended)
    def _edited(self) -> None:
        self.say("")
        self.elements.front.focus()

    def action_previous(self) -> None:
        """Shows the values of the previous step in the same place, or the current ones again."""
        wanted = not self._showing_previous
        if wanted and self._previous is None:
            self.say(self.session.why_no_previous(self.row.key), note=True)
        elif wanted in self._arrays:
            self._show_array(self._arrays[wanted], previous=wanted)
        elif self._previous is not None and self._array is not None:
            self._read(self._previous, "reading the previous step", previous=True)

    # -- the heat map ------------------------------------------------------------------------------

    @on(ElementsPane.Switched)
    def _switched(self) -> None:
        self.set_hints(MAP_HINTS if self.elements.mapped else TABLE_HINTS)

    def action_element(self) -> None:
        self.elements.to_element()

    # -- jumps -------------------------------------------------------------------------------------

    def action_bad(self, direction: int) -> None:
        """Goes to the next or previous NaN or Inf of the whole tensor; during a search, to the next match."""
        if self.element_query is not None:
            self.next_sought(direction)
            return
        array, value_table = self._array, self.elements.value_table
        if array is None or not array.size:
            return
        nothing = "no NaN or Inf in this tensor"
        stats = None if self._showing_previous else self.row.stats
        if not can_be_bad(array) or (stats is not None and not stats.nan + stats.inf):
            self.say(nothing, note=True)
        elif self.elements.mapped and value_table is not None and self.heat.table is not None:
            cells = MapSearch(value_table, self.heat.table, self.heat.zoom)
            element = self.heat.element
            self.find(lambda progress: cells.next_bad(element, direction, progress), array.size, nothing)
        else:
            origin = self.grid.cursor_index or (0,) * array.ndim
            self.find(
                lambda progress: find_bad(array, origin, direction, progress=progress),
                array.size,
                nothing,
            )

    def action_extreme(self, largest: bool) -> None:
        array = self._array
        if array is not None and array.size:
            nothing = "no finite value in this tensor"
            self.find(lambda progress: find_extreme(array, largest, progress=progress), array.size, nothing)

    def elements_shown(self) -> ElementLine | None:
        array = self._array
        return None if array is None or family(array.dtype) is Family.OTHER else elements_of(array)

    @property
    def type_shown(self) -> DType:
        return self._array.dtype if self._array is not None else super().type_shown

    def show_element(self, index: Index) -> None:
        if not self.elements.put_cursor(index) and self.bar.include(index):
            self._show_slice()
            self.elements.put_cursor(index)
