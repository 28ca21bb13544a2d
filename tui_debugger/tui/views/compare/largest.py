"""The right part of the comparison: statistics of both and of the difference, and the largest differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.text import Text
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget

from tui_debugger.analysis.difference.differences import Differences, Entry
from tui_debugger.tui.screens.modal import Line
from tui_debugger.tui.theme import DOUBT, FINDING, GREY
from tui_debugger.tui.values.sheet import Index
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, VirtualTable
from tui_debugger.words.differences import stats_lines
from tui_debugger.words.numbers import NONE, number
from tui_debugger.words.values import exact_text


class Measure(Enum):
    """What makes a difference large."""

    ABS = "absolute error"
    REL = "relative error"
    ULP = "units in the last place"

    @property
    def following(self) -> Measure:
        """The next one."""
        members = list(Measure)
        return members[(members.index(self) + 1) % len(members)]

    def entries(self, found: Differences) -> tuple[Entry, ...]:
        """The largest ones."""
        return {Measure.ABS: found.by_abs, Measure.REL: found.by_rel, Measure.ULP: found.by_ulp}[self]


TITLES = ("index", "here", "there", "difference", "relative", "ULP")


def entry_cells(entry: Entry) -> tuple[str, ...]:
    """A line of the list."""
    here, there = (exact_text(value) for value in (entry.here, entry.there))
    apart = NONE if entry.ulp is None else number(entry.ulp)
    return (index_text(entry.index), here, there, _short(entry.difference), number(entry.relative), apart)


def index_text(index: Index) -> str:
    """``[0, 3]``."""
    return f"[{', '.join(map(str, index))}]"


def _short(value: object) -> str:
    return exact_text(value) if isinstance(value, complex) else number(float(exact_float(value)))


def exact_float(value: object) -> float:
    """A scalar of numpy as a float."""
    return float(value)  # type: ignore[arg-type]  # whatever numpy's scalar types are


@dataclass(frozen=True, eq=False)
class EntryRows:
    """The largest differences as rows of a table."""

    entries: Sequence[Entry]

    @property
    def row_count(self) -> int:
        """How many there are."""
        return len(self.entries)

    def cells(self, index: int) -> tuple[Cell, ...]:
        """Index, both values, difference, relative error, units in the last place."""
        entry = self.entries[index]
        place, *rest = entry_cells(entry)
        style = FINDING if entry.relative is None else DOUBT
        return (place, rest[0], rest[1], Text(rest[2], style if entry.relative is None else ""), *rest[3:])

    def key(self, index: int) -> Index:
        """The element."""
        return self.entries[index].index

    def find(self, key: object) -> int:
        """Row of an element, or -1."""
        return next((row for row, entry in enumerate(self.entries) if entry.index == key), -1)


class LargestPane(Vertical):
    """Statistics and list.

    Attributes:
        measure: by what the list is ordered.
    """

    DEFAULT_CSS = """
    LargestPane {
        width: 1fr; height: 1fr;
        #numbers { height: auto; margin-bottom: 1; }
        #list-title { height: 1; }
    }
    """

    def __init__(self) -> None:
        """Empty."""
        super().__init__(id="largest")
        self.measure = Measure.ABS
        self._found: Differences | None = None

    def compose(self) -> Iterable[Widget]:
        """From top to bottom."""
        yield Line(id="numbers")
        yield Line(id="list-title")
        yield VirtualTable(empty="no element differs", id="list")

    @property
    def table(self) -> VirtualTable:
        """The list."""
        return self.query_one(VirtualTable)

    def show(self, found: Differences | None) -> None:
        """Other numbers; None while they are worked out."""
        self._found = found
        numbers = self.query_one("#numbers", Line)
        if found is None:
            numbers.show("")
            self.query_one("#list-title", Line).show("")
            self.table.set_empty("not compared yet")
            self.table.set_rows(EntryRows(()), keep=False)
            return
        head, *lines = stats_lines(found)
        numbers.show(Content("\n").join([Content.styled(head, f"bold {GREY}"), *(Content(line) for line in lines)]))
        self._show_list()

    def next_measure(self) -> None:
        """Another order of the list."""
        self.measure = self.measure.following
        self._show_list()

    def _show_list(self) -> None:
        found = self._found
        if found is None:
            return
        entries = self.measure.entries(found)
        title = f"Largest {len(entries)} by {self.measure.value}" if entries else f"By {self.measure.value}"
        self.query_one("#list-title", Line).show(Content.assemble((title, "bold"), ("   u changes the order", GREY)))
        empty = found.no_ulps if self.measure is Measure.ULP and found.no_ulps else "no element differs"
        self.table.set_empty(empty)
        self.table.set_columns(_columns(entries))
        self.table.set_rows(EntryRows(entries), keep=False)


def _columns(entries: Sequence[Entry]) -> tuple[Column, ...]:
    """As wide as what stands in them."""
    cells = [entry_cells(entry) for entry in entries]
    widths = [max([len(title), *(len(line[i]) for line in cells)]) for i, title in enumerate(TITLES)]
    return tuple(
        Column(title, width, right=i > 0, frozen=i == 0)
        for i, (title, width) in enumerate(zip(TITLES, widths, strict=True))
    )
