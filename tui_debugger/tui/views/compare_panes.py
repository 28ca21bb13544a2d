"""The two parts of a comparison: a table or heat map of the difference, and the largest differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tui_debugger.arrays import Array
from tui_debugger.diagnose.compare import Couple
from tui_debugger.stats.compare import Differences, DifferingElement, entry_at
from tui_debugger.stats.compare_pairs import EXACT, Boundary, Pairs, difference, outside_mask
from tui_debugger.text.differences import element_text, stats_lines
from tui_debugger.text.numbers import NONE, number
from tui_debugger.text.tensors import index_text
from tui_debugger.text.values import CellKind, Index, NumberFormat, Slice, Texts, ValueTable, exact_text, format_window
from tui_debugger.tui.dialogs.modal import PlainLine, plain_lines
from tui_debugger.tui.theme import FINDING, GREY
from tui_debugger.tui.values.heat_map import Work
from tui_debugger.tui.values.window import SliceBar, TableOrMap
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import LazyRows, ListRows, TableColumn, VirtualTable

MARK = "!"
"""Follows a difference that is not allowed: colour is never the only sign."""


class CellContent(Enum):
    """The contents of the cells."""

    ALL = "both and difference"
    DIFFERENCE = "difference"
    HERE = "this tensor"
    THERE = "the other one"


@dataclass(frozen=True, slots=True)
class ComparisonRule:
    """The allowed differences: a tolerance, and its boundary for the whole tensor."""

    tolerance: Boundary = EXACT
    boundary: float = 0.0

    def settled(self, here: Array, there: Array) -> Array:
        """Returns the difference of two arrays, 0 where it is within the boundary."""
        found = difference(here, there)
        if self.boundary:
            found[np.abs(found) <= self.boundary] = 0
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class DifferenceTable(ValueTable):
    """A ``ValueTable`` of here - there, computed for visible cells only; ``array`` is the first tensor of ``pairs``.

    Differences within the boundary of ``rule`` are shown as 0, differences that are not allowed with a mark.
    """

    pairs: Pairs
    rule: ComparisonRule = ComparisonRule()

    def windows(self, top: int, left: int, height: int, width: int) -> tuple[Array, Array]:
        here, there = (
            ValueTable(array, self.view, self.fold).cells(top, left, height, width)
            for array in (self.pairs.here, self.pairs.there)
        )
        return here, there

    def texts(self, top: int, left: int, height: int, width: int, form: NumberFormat) -> Texts:
        return self._differences(*self.windows(top, left, height, width), form)

    def _differences(self, here: Array, there: Array, form: NumberFormat) -> Texts:
        found = self.settled(here, there)
        whole = here.dtype.kind in "biu" and there.dtype.kind in "biu"
        texts = format_window(found.astype(np.int64) if whole and abs(found).max() < 2**53 else found, form)
        marked = outside_mask(here, there, self.rule.tolerance, self.rule.boundary)
        if self.rule.tolerance.exact:  # without a tolerance every difference is outside: mark only NaN and Inf
            marked = marked & ~np.isfinite(found)
        return [
            [_cell(text, kind, bool(mark)) for (text, kind), mark in zip(line, marks, strict=True)]
            for line, marks in zip(texts, marked.tolist(), strict=True)
        ]

    def settled(self, here: Array, there: Array) -> Array:
        return self.rule.settled(here, there)

    def part(self, parts: tuple[range, ...]) -> Array:
        """Returns the difference at these indices of the free dimensions."""
        here, there = (ValueTable(array, self.view).part(parts) for array in (self.pairs.here, self.pairs.there))
        return self.settled(here, there)


def _cell(text: str, kind: CellKind, marked: bool) -> tuple[str, CellKind]:
    if marked:
        return text + MARK, CellKind.OUTSIDE
    # NaN on both sides is no difference, so it is shown dimmed like 0.
    return f"{text} ", CellKind.ZERO if kind is CellKind.NAN else kind


@dataclass(frozen=True, eq=False, kw_only=True)
class TripleTable(DifferenceTable):
    """Three lines a row (here, there, difference), so that digits stand below each other."""

    stride: ClassVar[int] = 3

    @cached_property
    def rows(self) -> int:
        return self._plain.rows * self.stride

    @property
    def _plain(self) -> ValueTable:
        return ValueTable(self.array, self.view, self.fold)

    def texts(self, top: int, left: int, height: int, width: int, form: NumberFormat) -> Texts:
        first, last = top // self.stride, -(-(top + height) // self.stride)
        here, there = self.windows(first, left, min(last, self._plain.rows) - first, width)
        parts = (_padded(format_window(here, form)), _padded(format_window(there, form)))
        lines = [line for row in zip(*parts, self._differences(here, there, form), strict=True) for line in row]
        return lines[top - first * self.stride :][:height]

    def index(self, row: int, column: int) -> Index | None:
        return super().index(row // self.stride, column)

    def place(self, index: Index) -> tuple[int, int] | None:
        """Returns the line of the element's difference, and its column."""
        found = super().place(index)
        return None if found is None else (found[0] * self.stride + self.stride - 1, found[1])

    def row_label(self, row: int) -> str:
        """Returns the index in the first line, then a sign for the other tensor and for the difference."""
        line, part = divmod(row, self.stride)
        index = super().row_label(line)
        width = max(1, len(super().row_label(self._plain.rows - 1)))
        return index.rjust(width) if not part else ("·" if part == 1 else "Δ").rjust(width)


def _padded(texts: Texts) -> Texts:
    """Adds room for the mark, so that digits stand below each other."""
    return [[(f"{text} ", kind) for text, kind in line] for line in texts]


def value_table_of(pairs: Pairs, view: Slice, shown: CellContent, rule: ComparisonRule) -> ValueTable:
    if shown is CellContent.HERE:
        return ValueTable(pairs.here, view)
    if shown is CellContent.THERE:
        return ValueTable(pairs.there, view)
    kind: type[DifferenceTable] = TripleTable if shown is CellContent.ALL else DifferenceTable
    return kind(array=pairs.here, view=view, pairs=pairs, rule=rule)


class CompareTable(TableOrMap):
    """Shows a slice of two tensors; ``couple`` is None before they are read, ``shown`` is the contents of the cells."""

    DEFAULT_CSS = """
    CompareTable { width: 1fr; }
    """

    @dataclass
    class Refused(Message):
        """Something cannot be shown; ``text`` says what and why, an empty text removes that message."""

        text: str

    def __init__(self, work: Work) -> None:
        super().__init__(work, id="table")
        self.couple: Couple | None = None
        self.shown = CellContent.ALL
        self.rule = ComparisonRule()
        self._going: Index | None = None

    def compose(self) -> Iterable[Widget]:
        yield SliceBar()
        yield from super().compose()

    @property
    def slice_bar(self) -> SliceBar:
        return self.query_one(SliceBar)

    @property
    def value_table(self) -> ValueTable | None:
        """The table for the heat map; if both tensors are shown, their difference."""
        value_table = self._value_table(CellContent.DIFFERENCE if self.shown is CellContent.ALL else self.shown)
        return value_table if value_table is not None and not value_table.empty else None

    # -- what is shown -----------------------------------------------------------------------------

    def set_couple(self, couple: Couple, rule: ComparisonRule) -> None:
        """Shows other tensors; slice and cursor stay if possible."""
        self.couple, self.rule = couple, rule
        old = self.slice_bar.view
        self.slice_bar.set_shape(couple.pairs.shape)
        if self.slice_bar.view is old:
            self._show()

    def show_text(self, text: str) -> None:
        """Shows a text instead of numbers."""
        self.couple = None
        self.to_table()
        self.grid.show_text(text)
        self.line("cell").show("")

    def set_rule(self, rule: ComparisonRule) -> None:
        self.rule = rule
        self._show()

    def set_shown(self, shown: CellContent) -> None:
        if shown is not self.shown:
            index = self.cursor_index
            self.shown = shown
            self._show()
            if index is not None:
                self.go_to(index)

    def go_to(self, index: Index) -> None:
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

    def _value_table(self, shown: CellContent) -> ValueTable | None:
        view = self.slice_bar.view
        return (
            None if self.couple is None or view is None else value_table_of(self.couple.pairs, view, shown, self.rule)
        )

    def _show(self) -> None:
        if self.mapped:
            self.draw()
        else:
            self.fill_grid()

    def fill_grid(self) -> None:
        value_table = self._value_table(self.shown)
        if value_table is not None and value_table.empty:
            self.grid.show_text(f"No elements in {value_table.view.text} of shape {value_table.array.shape}.")
        elif value_table is not None:
            self.grid.set_table(value_table)

    def window(self) -> Array | None:
        """Returns the difference in the slice as numbers; None while there are no tensors."""
        value_table = self._value_table(CellContent.DIFFERENCE)
        return None if value_table is None else np.asarray(value_table.part(value_table.lines))

    # -- the element under the cursor --------------------------------------------------------------

    def show_cell(self) -> None:
        line, parts = self.line("cell"), self.cell_parts()
        if parts is None:
            line.show("")
        else:
            index, rest = parts
            line.show(Content.assemble(index, (f"  {rest}", f"not bold {GREY}" if self.mapped else "not bold")))

    def cell_parts(self, *, exact: bool = False) -> tuple[str, str] | None:
        """Returns index and numbers of the element under the cursor; ``exact``: the difference with all digits."""
        index, couple = self.cursor_index, self.couple
        if index is None or couple is None:
            return None
        entry = entry_at(couple.pairs, index, couple.unit)
        text = element_text(entry, exact=exact)
        cell = self.heat.cell if self.mapped else None
        if cell is not None and len(cell[0]) * len(cell[1]) > 1:
            text = f"first of {len(cell[0])}×{len(cell[1])} in this cell: {text}"
        return index_text(index), text


class Measure(Enum):
    """The measure by which differences are sorted."""

    ABS = "absolute error"
    REL = "relative error"
    ULP = "units in the last place"

    @property
    def following(self) -> Measure:
        members = list(Measure)
        return members[(members.index(self) + 1) % len(members)]

    def entries(self, found: Differences) -> tuple[DifferingElement, ...]:
        return {Measure.ABS: found.by_abs, Measure.REL: found.by_rel, Measure.ULP: found.by_ulp}[self]


TITLES = ("index", "here", "there", "difference", "relative", "ULP")


def entry_cells(entry: DifferingElement) -> tuple[str, ...]:
    here, there = (exact_text(value) for value in (entry.here, entry.there))
    apart = NONE if entry.ulp is None else number(entry.ulp)
    return (index_text(entry.index), here, there, _short(entry.difference), number(entry.relative), apart)


def _short(value: object) -> str:
    if isinstance(value, complex):
        return exact_text(value)
    return number(float(value))  # type: ignore[arg-type]  # whatever numpy's scalar types are


def _drawn_cells(entry: DifferingElement) -> tuple[Cell, ...]:
    place, here, there, difference, *rest = entry_cells(entry)
    return place, here, there, Text(difference, FINDING if entry.relative is None else ""), *rest


class LargestPane(Vertical):
    """Statistics and the list of the largest differences, sorted by ``measure``."""

    DEFAULT_CSS = """
    LargestPane {
        width: 1fr; height: 1fr;
        #numbers { height: auto; margin-bottom: 1; }
        #list-title { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="largest")
        self.measure = Measure.ABS
        self._found: Differences | None = None

    def compose(self) -> Iterable[Widget]:
        yield from plain_lines("numbers", "list-title")
        yield VirtualTable(empty="no element differs", id="list")

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    def show(self, found: Differences | None) -> None:
        self._found = found
        numbers = self.query_one("#numbers", PlainLine)
        if found is None:
            numbers.show("")
            self.query_one("#list-title", PlainLine).show("")
            self.table.set_empty("not compared yet")
            self.table.set_rows(ListRows(()), keep=False)
            return
        head, *lines = stats_lines(found)
        numbers.show(Content("\n").join([Content.styled(head, f"bold {GREY}"), *(Content(line) for line in lines)]))
        self._show_list()

    def next_measure(self) -> None:
        self.measure = self.measure.following
        self._show_list()

    def _show_list(self) -> None:
        found = self._found
        if found is None:
            return
        entries = self.measure.entries(found)
        title = f"Largest {len(entries)} by {self.measure.value}" if entries else f"By {self.measure.value}"
        self.query_one("#list-title", PlainLine).show(
            Content.assemble((title, "bold"), ("   u changes the order", GREY))
        )
        empty = found.no_ulps if self.measure is Measure.ULP and found.no_ulps else "no element differs"
        self.table.set_empty(empty)
        self.table.set_columns(_columns(entries))
        self.table.set_rows(LazyRows(entries, _drawn_cells, lambda entry: entry.index), keep=False)


def _columns(entries: Sequence[DifferingElement]) -> tuple[TableColumn, ...]:
    cells = [entry_cells(entry) for entry in entries]
    widths = [max([len(title), *(len(line[i]) for line in cells)]) for i, title in enumerate(TITLES)]
    return tuple(
        TableColumn(title, width, right=i > 0, frozen=i == 0)
        for i, (title, width) in enumerate(zip(TITLES, widths, strict=True))
    )
