"""Pane 3: the watchpoint list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.message import Message

from tui_debugger.tui.panes.pane import Pane, pane_bindings
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import Watchpoint
    from tui_debugger.tui.cells import ResultCounts

_COLUMNS = (
    Column("", 1, frozen=True, searched=False),
    Column("id", 3, right=True, frozen=True, searched=False),
    Column("", 4, frozen=True),
    Column("condition", 12, elastic=1),
    Column("nodes", 6, right=True, searched=False),
    Column("hits", 5, right=True, searched=False),
    Column("not judged", 11, right=True, searched=False),
)


class WatchpointsPane(Pane):
    """The watchpoints, how many nodes each covers and how often it hit."""

    PANE = "watchpoints"
    BINDINGS: ClassVar[list[BindingType]] = pane_bindings("watchpoints")

    class WatchpointHighlighted(Message):
        """The cursor came to a watchpoint (None: the list is empty)."""

        def __init__(self, watchpoint: int | None, *, opened: bool = False) -> None:
            """``opened``: Enter was pressed."""
            super().__init__()
            self.watchpoint = watchpoint
            self.opened = opened

    def __init__(self) -> None:
        super().__init__()
        self.table = VirtualTable(
            _COLUMNS, empty="none: w makes one, a adds the recommended ones", id="watchpoint-table"
        )
        self._listed: tuple[Watchpoint, ...] = ()
        self._covered: Mapping[int, int] | None = None
        self._tally: ResultCounts | None = None
        self._outdated = False

    def show(
        self,
        items: tuple[Watchpoint, ...],
        nodes: Mapping[int, int],
        tally: ResultCounts | None,
        *,
        outdated: bool,
    ) -> None:
        """Shows the list.

        Args:
            items: the watchpoints.
            nodes: covered nodes by watchpoint id; missing while they are counted.
            tally: how often they hit; None when nothing was checked.
            outdated: the list changed since the last check.
        """
        new = (items, nodes, tally, outdated)
        if new != (self._listed, self._covered, self._tally, self._outdated):
            self._listed, self._covered, self._tally, self._outdated = new
            self.refresh_rows()

    def refresh_rows(self) -> None:
        """Applies the search text."""
        from tui_debugger.tui.cells import watchpoint_cells, watchpoint_search_text

        pattern = self.pattern
        shown = [w for w in self._listed if pattern is None or pattern.test(watchpoint_search_text(w))]
        nodes, tally = self._covered or {}, self._tally
        rows = [watchpoint_cells(w, nodes.get(w.id), tally, outdated=self._outdated) for w in shown]
        self.table.set_rows(ListRows(rows, [w.id for w in shown]))
        off = sum(not w.enabled for w in self._listed)
        parts = [str(len(self._listed))] + ([f"{off} off"] if off else []) + (["outdated"] if self._outdated else [])
        self.set_count(" · ".join(parts))
        self._show_selection()

    @property
    def current(self) -> int | None:
        """Id of the watchpoint under the cursor."""
        key = self.table.cursor_key
        return key if isinstance(key, int) else None

    def on_virtual_table_row_highlighted(self, event: VirtualTable.RowHighlighted) -> None:
        """Tells which watchpoint is selected."""
        event.stop()
        self._show_selection()

    def on_virtual_table_row_selected(self, event: VirtualTable.RowSelected) -> None:
        """Enter edits."""
        event.stop()
        self.post_message(self.WatchpointHighlighted(self.current, opened=True))

    def _show_selection(self) -> None:
        from tui_debugger.text.hits import not_judged
        from tui_debugger.watch.text import format_selection

        found = next((w for w in self._listed if w.id == self.current), None)
        blocked = self._tally.blocked.get(found.id) if found is not None and self._tally is not None else None
        kept = "" if blocked is None or self._outdated else not_judged(blocked.tensors, blocked.error) + "  "
        self.set_detail("" if found is None else kept + "@ " + format_selection(found.selection))
        self.post_message(self.WatchpointHighlighted(self.current))
