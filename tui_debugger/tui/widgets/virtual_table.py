"""A table of any number of rows, which are asked for one at a time.

A cursor key redraws two lines, whatever the number of rows. Rows inserted above the cursor do not move it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Generic, Protocol, TypeVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.reactive import var
from textual.strip import Strip

from tui_debugger.text.clean import clean
from tui_debugger.tui import theme
from tui_debugger.tui.actions import SEARCH, bindings_for
from tui_debugger.tui.widgets.line_window import BLANK, EMPTY, HEADER, LineWindow
from tui_debugger.tui.widgets.text import (
    Cell,
    ScopedName,
    SearchPattern,
    Spans,
    fit,
    joined,
    names_apart,
    segments_of,
    shift,
    width_of,
    with_spans,
)

__all__ = ["ListRows", "TableColumn", "TableRows", "VirtualTable"]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; ``searched``: a search looks at it.

    ``width`` in cells is the least width if ``elastic`` (share of the spare width, 0: fixed) is set. ``frozen`` columns
    come first and do not move sideways.
    """

    title: str
    width: int
    elastic: int = 0
    right: bool = False
    frozen: bool = False
    searched: bool = True


class TableRows(Protocol):
    """The rows of a table. ``cells`` is called for visible lines only."""

    @property
    def row_count(self) -> int:
        """Number of rows."""

    def cells(self, index: int) -> Sequence[Cell]:
        """Returns one cell per column; if there are fewer, the last cell takes the rest of the line."""

    def key(self, index: int) -> Hashable:
        """Returns an identifier of the row that stays when rows are inserted or filtered."""

    def find(self, key: Hashable) -> int:
        """Returns the row of a key, or -1."""


class TableSearch(Protocol):
    """The search in a table, as the table knows it: see ``search.ListSearch``."""

    cleared_by_owner: bool
    pattern: SearchPattern | None

    def rows_changed(self) -> None:
        """Called after the rows changed."""

    def moved(self) -> None:
        """Called after the cursor moved."""

    def walk(self, by: int) -> None:
        """Goes to another match."""

    @property
    def returning(self) -> bool:
        """Tells whether the search is ending and the cursor will go back."""

    def end(self, *, back: bool) -> object:
        """Ends the search; ``back`` moves the cursor to its old place."""


def searched_text(cell: Cell) -> str:
    return cell.path if isinstance(cell, ScopedName) else clean(cell if isinstance(cell, str) else cell.plain)


def _need(cell: Cell) -> int:
    text = cell.full if isinstance(cell, ScopedName) else cell
    return cell_len(text) if isinstance(text, str) else text.cell_len


T = TypeVar("T")


class LazyRows(Generic[T]):
    """Rows whose cells are made when they are drawn."""

    def __init__(
        self,
        items: Sequence[T],
        cells: Callable[[T], Sequence[Cell]],
        key: Callable[[T], Hashable],
        fingerprint: Callable[[T], Hashable] | None = None,
    ) -> None:
        """Makes no cells yet.

        ``fingerprint`` returns everything that a row's cells depend on; a row with an equal one is not drawn again.
        """
        self._items = items
        self._cells = cells
        self._key = key
        self._fingerprint = fingerprint

    @property
    def row_count(self) -> int:
        return len(self._items)

    def cells(self, index: int) -> Sequence[Cell]:
        return self._cells(self._items[index])

    def key(self, index: int) -> Hashable:
        return self._key(self._items[index])

    def find(self, key: Hashable) -> int:
        return self._places.get(key, -1)

    @property
    def has_fingerprints(self) -> bool:
        return self._fingerprint is not None

    def fingerprint(self, index: int) -> Hashable:
        return self._fingerprint(self._items[index]) if self._fingerprint is not None else None

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        return {self._key(item): at for at, item in enumerate(self._items)}


class ListRows(LazyRows[int]):
    """Rows over ready-made cells, for short lists."""

    def __init__(self, rows: Sequence[Sequence[Cell]], keys: Sequence[Hashable] | None = None) -> None:
        """``keys`` defaults to the row numbers."""
        numbers = range(len(rows))
        super().__init__(numbers, rows.__getitem__, (numbers if keys is None else keys).__getitem__)


def _has_fingerprints(rows: TableRows) -> bool:
    return isinstance(rows, LazyRows) and rows.has_fingerprints


_MOST_LOOKS = 4096
"""Most fingerprints that a table remembers."""
_NEIGHBOURS = 32
"""Rows among which a short name is unique."""
PAN_STEP = 8
"""Cells that one press of left or right moves long text."""


class VirtualTable(LineWindow, can_focus=True):
    """Rows with a cursor, drawn on demand; call ``redraw`` if only the contents of cells changed.

    ``moved_to`` is called instead of ``RowHighlighted``: at once after a key, so that it draws in the same
    frame. ``emptied`` is called when the table has no row any more.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_for("list"), *bindings_for(SEARCH)]

    cursor_row: var[int] = var(0, init=False)
    sampled: int = 0
    """Rows beside those on the page that tell how wide columns must be; 0 where rows take long to make."""

    @dataclass
    class RowHighlighted(Message):
        """The cursor came to a row, or the row under the cursor was replaced by another."""

        table: VirtualTable
        row: int
        key: Hashable

        @property
        def control(self) -> VirtualTable:
            return self.table

    class RowSelected(RowHighlighted):
        """Enter, or a second click, on a row."""

    def __init__(
        self,
        columns: Sequence[TableColumn] = (),
        rows: TableRows | None = None,
        *,
        header: bool = True,
        empty: str = "",
        id: str | None = None,  # noqa: A002  (Textual's own parameter name)
        classes: str | None = None,
    ) -> None:
        """``empty`` is the line shown if there are no rows."""
        super().__init__(header=header, id=id, classes=classes)
        self._columns = tuple(columns)
        self._rows: TableRows = rows if rows is not None else ListRows(())
        self._empty = empty
        self._pan = 0
        self._widths: tuple[int, ...] = ()
        self._frozen = self._overflow = 0
        self._key: Hashable = None
        self._keyed = False
        self.search: TableSearch | None = None
        self.moved_to: Callable[[], None] | None = None
        self.emptied: Callable[[], None] | None = None
        self._telling = False
        self._pattern: SearchPattern | None = None
        self._fingerprints: dict[Hashable, int] = {}
        self._told_apart: dict[tuple[int, int, int], dict[str, Text]] = {}

    # -- what it shows ---------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        return self._columns

    @property
    def rows(self) -> TableRows:
        return self._rows

    @property
    def row_count(self) -> int:
        return self._rows.row_count

    @property
    def cursor_key(self) -> Hashable:
        """Key of the row under the cursor; None if there are no rows."""
        return self._key if self._keyed else None

    def set_columns(self, columns: Sequence[TableColumn]) -> None:
        self._columns = tuple(columns)
        self._measure(self.line_width)
        if not self.size.width:  # invisible: measure again when it is shown, even at the old width
            self._width = -1
        self.redraw()

    @property
    def empty(self) -> str:
        return self._empty

    def set_empty(self, text: str) -> None:
        changed, self._empty = text != self._empty, text
        if changed and not self.row_count:
            self.redraw()

    def set_rows(self, rows: TableRows, *, keep: bool = True, alike: bool = False) -> None:
        """Replaces the rows.

        ``keep``: the cursor stays on its key, on the same line of the screen; if the key is gone, at the same height.
        ``alike``: rows with the same ``line_key`` as before look the same.
        """
        old_row, old_key, had = self.cursor_row, self._key, self._keyed
        as_many = rows.row_count == self._rows.row_count
        known = _has_fingerprints(rows) and _has_fingerprints(self._rows) and len(self._fingerprints) <= _MOST_LOOKS
        self._rows = rows
        widths = self._widths
        if not alike and not known:
            self._fingerprints.clear()
            self.forget_rows()
        found = rows.find(old_key) if keep and had else -1
        row = found if found >= 0 else (min(old_row, rows.row_count - 1) if keep else 0)
        self._place(max(row, 0), shift_view=(row - old_row) if found >= 0 else 0)
        self._measure(self.line_width)
        if not as_many and self.styles.auto_dimensions:
            self.refresh(layout=True)
        self.refresh_changed()
        if self._widths != widths:
            self.redraw()
        if self.search is not None:
            self.search.rows_changed()

    def _place(self, row: int, *, shift_view: int = 0) -> None:
        self.set_reactive(VirtualTable.cursor_row, row)
        self._announce()
        self.show_from(self._top + shift_view)
        if not shift_view:
            self._reveal()

    def _announce(self, *, force: bool = False) -> None:
        count = self._rows.row_count
        if not count:
            self._keyed, self._key = False, None
            if self.emptied is not None:
                self.emptied()
            return
        key = self._rows.key(self.cursor_row)
        if force or not self._keyed or key != self._key:
            self._keyed, self._key = True, key
            if force and self.moved_to is not None:
                self.moved_to()
            elif self.moved_to is not None:
                if not self._telling:
                    self._telling = True
                    self.call_next(self._tell)
            else:
                self.post_message(self.RowHighlighted(self, self.cursor_row, key))
            if self.search is not None:
                self.search.moved()

    def _tell(self) -> None:
        self._telling = False
        if self.moved_to is not None and self.row_count:
            self.moved_to()

    # -- moving ----------------------------------------------------------------------------------

    def move_to(self, row: int) -> None:
        """Moves the cursor to a row, within bounds, and scrolls to it."""
        self.cursor_row = max(0, min(row, self.row_count - 1))

    def show_above(self, rows: int) -> None:
        """Scrolls so that ``rows`` rows are above the cursor; works before the table has a size."""
        self._top = max(self.cursor_row - rows, 0)
        self.show_from(self._top)
        self.refresh_changed()

    def move_to_key(self, key: Hashable) -> bool:
        row = self._rows.find(key)
        if row < 0:
            return False
        self.move_to(row)
        return True

    def watch_cursor_row(self, old: int, new: int) -> None:
        self.refresh_row(old)
        self.refresh_row(new)
        self._reveal()
        self._announce(force=True)

    def _reveal(self) -> None:
        self.show_from(max(min(self._top, self.cursor_row), self.cursor_row - self.page + 1))

    def action_cursor_up(self) -> None:
        self.move_to(self.cursor_row - 1)

    def action_cursor_down(self) -> None:
        self.move_to(self.cursor_row + 1)

    def action_page_up(self) -> None:
        self.move_to(self.cursor_row - self.page)

    def action_page_down(self) -> None:
        self.move_to(self.cursor_row + self.page)

    def action_first(self) -> None:
        self.move_to(0)

    def action_last(self) -> None:
        self.move_to(self.row_count - 1)

    def action_pan_left(self) -> None:
        self._pan_to(self._pan - PAN_STEP)

    def action_pan_right(self) -> None:
        self._pan_to(self._pan + PAN_STEP)

    def action_select(self) -> None:
        if self.row_count:
            self.post_message(self.RowSelected(self, self.cursor_row, self._rows.key(self.cursor_row)))

    def _pan_to(self, pan: int) -> None:
        pan = max(0, min(pan, self._hidden_cells()))
        if pan != self._pan:
            self._pan = pan
            self.redraw()

    def _hidden_cells(self) -> int:
        top = self._top
        most = 0
        for row in range(top, min(top + self.page, self.row_count)):
            for column, width, cell in self._laid_out(self._rows.cells(row)):
                stays = isinstance(cell, ScopedName) and cell.still(width) >= width
                if column.elastic and not stays:
                    most = max(most, width_of(segments_of(cell, Style.null())) - width)
        return self._overflow + most

    # -- a search in it --------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The cursor's position among the matches of a search: its row; a subclass may count otherwise."""
        return self.cursor_row

    def go_to(self, position: int) -> None:
        self.move_to(position)

    def place(self) -> object:
        """Returns the cursor's place, for ``go_back``."""
        return self.cursor_key, self._top

    def go_back(self, place: object) -> None:
        """Moves the cursor back to its old row, and that row to its old line."""
        if isinstance(place, tuple):
            key, top = place
            self.move_to_key(key)
            self.show_from(top)
            self._reveal()

    def set_pattern(self, pattern: SearchPattern | None) -> None:
        if pattern != self._pattern:
            self._pattern = pattern
            self.redraw()

    def row_text(self, row: int) -> str:
        """Returns the text of a row that a search looks at."""
        cells = zip(self._columns, self._rows.cells(row), strict=False)
        return " ".join(searched_text(cell) for column, cell in cells if column.searched)

    def match_spans(self, row: int, column: TableColumn, cell: Cell, pattern: SearchPattern) -> Spans:  # noqa: ARG002 - for subclasses
        """Returns where a cell matches, in its ``searched_text``."""
        return pattern.spans(searched_text(cell)) if column.searched else []

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Switches off the keys of a search without one, so that other bindings get them."""
        if action in {"next_match", "previous_match", "clear_search"}:
            search = self.search
            open_ = search is not None and search.pattern is not None
            return open_ and (action != "clear_search" or search is None or not search.cleared_by_owner)
        return super().check_action(action, parameters)

    def action_next_match(self) -> None:
        if self.search is not None:
            self.search.walk(1)

    def action_previous_match(self) -> None:
        if self.search is not None:
            self.search.walk(-1)

    def action_clear_search(self) -> None:
        if self.search is not None:
            self.search.end(back=False)

    # -- mouse -----------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        row = at.y - self._header + self._top if at is not None else -1
        if at is None or at.y < self._header or row >= self.row_count or self.on_bar(at):
            return
        event.stop()
        self.move_to(row)
        if event.chain > 1:
            self.action_select()

    # -- drawing ---------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self._announce(force=True)

    def on_resize(self) -> None:
        self._reveal()

    def state_of(self, row: int) -> int:
        """Returns 0; for the row under the cursor 1, or 2 with the focus."""
        return 0 if row != self.cursor_row else 2 if self.has_focus else 1

    def line_key(self, row: int) -> int:
        """Returns the number of the row's fingerprint if it has one, else the row."""
        rows = self._rows
        if not isinstance(rows, LazyRows) or not rows.has_fingerprints:
            return row
        return self._fingerprints.setdefault(rows.fingerprint(row), len(self._fingerprints))

    def fit_to(self, width: int) -> None:
        self._measure(width)

    def _measure(self, width: int) -> None:
        """Shares the width among the columns (one cell for the cursor bar, one between columns)."""
        columns = self._columns
        room = width - 1
        widths = self._shared_out(room - max(len(columns) - 1, 0))
        self._told_apart.clear()
        self._widths = tuple(widths)
        least = sum(widths) + max(len(columns) - 1, 0)
        self._frozen = 1 + sum(wide + 1 for column, wide in zip(columns, widths, strict=True) if column.frozen)
        self._overflow = max(least - room, 0)
        self._pan = min(self._pan, self._overflow) if self._pan else 0

    def _shared_out(self, room: int) -> list[int]:
        """Returns the widths of the columns.

        No elastic column gets more than its text needs as long as another one needs more; the last gets what is left.
        """
        columns = self._columns
        widths = [column.width for column in columns]
        spare = room - sum(widths)
        elastic = [at for at, column in enumerate(columns) if column.elastic]
        if len(elastic) > 1:
            lacks = self._lacks(elastic)
            wanted = sum(max(lack, 0) for lack in lacks.values())
            for at, lack in lacks.items():
                given = min(max(-lack, 0), max(wanted - spare, 0))
                widths[at] -= given
                spare += given
            shares = sum(columns[at].elastic for at in elastic)
            for at in sorted(elastic, key=lambda at: lacks[at] / columns[at].elastic):
                extra = max(min(lacks[at], -(-spare * columns[at].elastic // shares)), 0)
                widths[at] += extra
                spare -= extra
                shares -= columns[at].elastic
        if elastic:
            widths[elastic[-1]] += max(spare, 0)
        return widths

    def _lacks(self, elastic: Sequence[int]) -> dict[int, int]:
        """Returns the cells that columns need beyond their width (less than 0: can do without), see ``sampled``."""
        columns, count = self._columns, self.row_count
        page = range(self.top, min(self.top + self.page, count))
        others = range(0, count, max(count // self.sampled, 1)) if self.sampled else ()
        rows = map(self._rows.cells, {*page, *others})
        whole = [[column.title for column in columns], *(cells for cells in rows if len(cells) == len(columns))]
        return {at: max(_need(cells[at]) for cells in whole) - columns[at].width for at in elastic}

    def _name_apart(self, row: int, number: int, room: int, path: str) -> Text | None:
        """Returns another short form of a name if a neighbour has the usual short form, too."""
        block = row // _NEIGHBOURS * _NEIGHBOURS
        if (block, number, room) not in self._told_apart:
            rows = map(self._rows.cells, range(block, min(block + _NEIGHBOURS, self.row_count)))
            names = [cells[number] for cells in rows if len(cells) > number]
            self._told_apart[block, number, room] = names_apart(
                (each for each in names if isinstance(each, ScopedName)), room
            )
        return self._told_apart[block, number, room].get(path)

    def draw(self, row: int, state: int, width: int) -> Strip:
        base = self.base_style
        if row == HEADER:
            style = base + theme.HEADING
            titles = self._strip(row, [column.title for column in self._columns], style, state, width)
            return self._with_arrow(titles, width)
        if row == BLANK or (row == EMPTY and not self._empty):
            return Strip.blank(width, base)
        if row == EMPTY:
            return Strip(fit([Segment(" " + self._empty, base + theme.DIM)], width, base))
        style = base
        if state:
            style += theme.CURSOR if state == 2 else theme.CURSOR_BLURRED
        return self._strip(row, self._rows.cells(row), style, state, width)

    def _with_arrow(self, titles: Strip, width: int) -> Strip:
        """Returns the titles with the number of hidden columns: ``3 more →``, ``+3 →``; ``←`` at the right end."""
        if not self._overflow:
            return titles
        left = self._overflow - self._pan
        hidden, end = 0, width + left
        for size in reversed(self._widths):
            hidden += end > width
            end -= size + 1
        text = f" {hidden} more →" if left > 0 else " ←"
        if cell_len(text) >= width:
            return titles
        room, title = width - cell_len(text), ""
        end = width + left
        for column, size in zip(reversed(self._columns), reversed(self._widths), strict=True):
            short = f"{column.title} +{hidden} →"
            if column.right and room < end <= width and end - size <= width - cell_len(short):
                # A column of numbers keeps its title: the short arrow leaves room for it.
                title, text, room = column.title, short, max(end - size, 0)
            end -= size + 1
        kept = titles.crop(0, room)
        if kept.text[-1:].strip() and titles.text[len(kept.text) :][:1].strip():  # no half titles
            kept = kept.crop(0, cell_len(kept.text.rpartition(" ")[0]))
        kept = kept.adjust_cell_length(width - cell_len(text), self.base_style)
        head = [Segment(title, self.base_style + theme.HEADING)] if title else []
        arrow = Segment(text[len(title) :], self.base_style + theme.GOOD)
        return Strip([*kept, *head, arrow]).adjust_cell_length(width, self.base_style)

    def _strip(self, row: int, cells: Sequence[Cell], base: Style, state: int, width: int) -> Strip:
        """Returns one line: the cursor bar, the frozen columns, and the other columns moved sideways by ``_pan``."""
        line_shift = min(self._pan, self._overflow)
        text_shift = self._pan - line_shift
        frozen: list[Segment] = [Segment("▌", base + theme.WATCHED) if state else Segment(" ", base)]
        moving: list[Segment] = []
        gap = Segment(" ", base)
        place = drawn = 0
        pattern = self._pattern if row >= 0 else None
        for number, (column, size, cell) in enumerate(self._laid_out(cells)):
            spans = self.match_spans(row, column, cell, pattern) if pattern is not None else []
            still = 0
            if isinstance(cell, ScopedName):
                still = cell.still(size)
                room = cell.full.cell_len if text_shift and still < size else size
                spans = cell.drawn(spans, room) if spans else spans
                apart = self._name_apart(row, number, room, cell.path) if room < cell.full.cell_len else None
                spans = pattern.spans(apart.plain) if apart and pattern is not None else spans
                cell = apart or cell.within(room)  # noqa: PLW2901 - the cell as it is drawn
            segments = segments_of(cell, base)
            if spans:
                segments = with_spans(segments, spans, theme.MATCH)
            if text_shift and column.elastic:
                moved = shift(segments, still + min(text_shift, max(width_of(segments) - size, 0)))
                segments = [*Strip(segments).crop(0, still), *moved] if still else moved
            target = frozen if column.frozen else moving
            if not column.frozen and self._overflow and self._is_cut(column, place, size, line_shift, width):
                segments = []  # a cut number would read as another number
            place += 0 if column.frozen else size + 1
            drawn += max(size, 0) + 1
            target += fit(segments, size, base, right=column.right)
            target.append(gap)
        line = (frozen + shift(moving, line_shift))[:-1]  # no gap after the last column
        return Strip(joined(line), None if line_shift else drawn).adjust_cell_length(width, base)

    def _is_cut(self, column: TableColumn, place: int, size: int, shifted: int, width: int) -> bool:
        """Tells whether a column is cut so that its visible part could be taken for the whole."""
        return place < shifted < place + size or (column.right and place + size - shifted > width - self._frozen)

    def _laid_out(self, cells: Sequence[Cell]) -> Iterator[tuple[TableColumn, int, Cell]]:
        """Yields column, width and cell; the last cell of a short row spans the remaining columns."""
        last = len(cells) - 1
        spans = last < len(self._columns) - 1
        for number, (column, size, cell) in enumerate(zip(self._columns, self._widths, cells, strict=False)):
            if spans and number == last:
                rest = sum(self._widths[number:]) + len(self._widths) - 1 - number
                yield replace(column, elastic=1, right=False), rest - self._overflow, cell
            else:
                yield column, size, cell
