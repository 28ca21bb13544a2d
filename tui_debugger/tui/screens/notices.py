"""What was missing or odd in the dump, one sentence each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text
from textual.widget import Widget

from tui_debugger.tui.screens.modal import Modal
from tui_debugger.tui.theme import DOUBT
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable
from tui_debugger.words.clean import clean


class NoticesScreen(Modal[None]):
    """A scrollable list of sentences."""

    FULL = True
    hints = (("Esc", "back"), ("↑ ↓", "scroll"))

    def __init__(self, notices: Sequence[str]) -> None:
        """Shows the notices in their order."""
        super().__init__()
        self.notices = notices
        self.heading = f"Notices ({len(notices)})" if notices else "Notices"

    def body(self) -> Iterable[Widget]:
        """The list."""
        yield VirtualTable(
            (Column("", 1), Column("", 10, elastic=1)),
            header=False,
            empty="nothing to report: everything that was looked for is there",
        )

    def on_mount(self) -> None:
        """Arrow keys scroll."""
        self.query_one(VirtualTable).focus()

    def on_resize(self) -> None:
        """Sentences are wrapped to the new width."""
        self.call_after_refresh(self._show)

    def _show(self) -> None:
        table = self.query_one(VirtualTable)
        rows: list[tuple[Cell, Cell]] = []
        for notice in self.notices:
            lines = textwrap.wrap(clean(notice), max(20, table.size.width - 6)) or [""]
            rows += [(Text("!" if i == 0 else " ", DOUBT), line) for i, line in enumerate(lines)]
        table.set_rows(ListRows(rows), keep=False)
