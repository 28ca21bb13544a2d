"""Pane 3: the watchpoint list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from textual.message import Message

from tui_debugger.tui.actions import watchpoint_keys
from tui_debugger.tui.panes.pane import Pane
from tui_debugger.tui.widgets.virtual_table import ListRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import Watchpoint
    from tui_debugger.tui.cells import ResultCounts
    from tui_debugger.tui.widgets.text import Cell

_NODES, _HITS, _NOT_JUDGED = 4, 5, 6
"""Indices of columns."""
_READABLE = 24
"""Fewest cells of the condition column beside the column "not judged"; else only the lower edge says that."""


def _columns(rows: Sequence[Sequence[Cell]], width: int) -> tuple[TableColumn, ...]:
    """Returns columns in which every count is whole."""

    def widest(column: int, title: str) -> int:
        return max([len(title), *(cell_len(str(cells[column])) for cells in rows)])

    columns = (
        TableColumn("", 1, frozen=True, searched=False),
        TableColumn("id", max(3, widest(1, "id")), right=True, frozen=True, searched=False),
        TableColumn("", 4, frozen=True),
        TableColumn("condition", 8, elastic=1),
        TableColumn("nodes", widest(_NODES, "nodes"), right=True, searched=False),
        TableColumn("hits", widest(_HITS, "hits"), right=True, searched=False),
    )
    last = TableColumn("not judged", max(11, widest(_NOT_JUDGED, "not judged")), right=True, searched=False)
    rest = width - sum(column.width + 1 for column in (*columns, last)) + columns[3].width
    return (*columns, last) if rest >= _READABLE else columns


class WatchpointsPane(Pane):
    """The watchpoints, with the numbers of their nodes and hits."""

    PANE = "watchpoints"

    @dataclass
    class WatchpointHighlighted(Message):
        """The cursor came to a watchpoint (None: the list is empty)."""

        watchpoint: int | None
        opened: bool = False
        """Enter was pressed."""

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable(_columns((), 0), empty=f"none: {watchpoint_keys()}", id="watchpoint-table")
        self._listed: tuple[Watchpoint, ...] = ()
        self._covered: Mapping[int, int] | None = None
        self._tally: ResultCounts | None = None
        self._outdated = False
        self._rows: Sequence[Sequence[Cell]] = ()

    def show(
        self,
        items: tuple[Watchpoint, ...],
        nodes: Mapping[int, int],
        tally: ResultCounts | None,
        *,
        outdated: bool,
    ) -> None:
        """Shows the list; ``nodes`` maps watchpoint ids to covered nodes, without ids that are still being counted."""
        new = (items, nodes, tally, outdated)
        if new != (self._listed, self._covered, self._tally, self._outdated):
            self._listed, self._covered, self._tally, self._outdated = new
            self.refresh_rows()

    @property
    def total(self) -> str:
        """The number of watchpoints, for the tab; empty before there is a list."""
        return str(len(self._listed)) if self.count else ""

    def refresh_rows(self) -> None:
        from tui_debugger.tui.cells import watchpoint_cells, watchpoint_search_text

        pattern = self.pattern
        shown = [w for w in self._listed if pattern is None or pattern.test(watchpoint_search_text(w))]
        nodes, tally = self._covered or {}, self._tally
        self._rows = [watchpoint_cells(w, nodes.get(w.id), tally, outdated=self._outdated) for w in shown]
        self._fit_columns()
        self.table.set_rows(ListRows([cells[: len(self.table.columns)] for cells in self._rows], [w.id for w in shown]))
        off = sum(not w.enabled for w in self._listed)
        count = str(len(self._listed)) if pattern is None else f"{len(shown)} of {len(self._listed)}"
        parts = [count] + ([f"{off} off"] if off else []) + (["outdated"] if self._outdated else [])
        self.set_count(" · ".join(parts))
        self.show_row()

    def on_resize(self) -> None:
        if self._listed:
            self.refresh_rows()

    def _fit_columns(self) -> None:
        columns = _columns(self._rows, self.table.line_width)
        if columns != self.table.columns:
            self.table.set_columns(columns)

    @property
    def current(self) -> int | None:
        key = self.table.cursor_key
        return key if isinstance(key, int) else None

    def on_virtual_table_row_selected(self) -> None:
        self.post_message(self.WatchpointHighlighted(self.current, opened=True))

    def show_row(self) -> None:
        from tui_debugger.text.hits import not_judged, selection_words

        found = next((w for w in self._listed if w.id == self.current), None)
        blocked = self._tally.blocked.get(found.id) if found is not None and self._tally is not None else None
        kept = "" if blocked is None or self._outdated else f" · {not_judged(blocked.tensors, blocked.error)}"
        if found is None:
            self.set_detail("")
        else:
            name = found.condition.replace("_", " ")
            nodes = f": {selection_words(found.selection, raw=False)}"
            short = "" if not kept or blocked is None else f" · {blocked.tensors:,} not judged"
            whole = (name + nodes + kept, name + nodes + short if short else "", name + kept, name + short, name)
            room = max(self.detail_room, 1)
            fitting = next((text for text in whole if text and cell_len(text) <= room), "")
            if fitting == name and not short:  # as much of the nodes as fits
                fitting = set_cell_size(name + nodes, room - 1) + "…"
            self.set_detail(fitting or set_cell_size(name, room - 1) + "…")
        self.post_message(self.WatchpointHighlighted(self.current))
