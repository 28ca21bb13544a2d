"""The recommended watchpoints, offered once when a dump is opened for the first time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from tui_debugger.analysis.conditions import CONDITIONS
from tui_debugger.model import Watchpoint
from tui_debugger.tui.screens.modal import Line, Modal
from tui_debugger.tui.theme import STRONG
from tui_debugger.tui.widgets.text import Cell
from tui_debugger.tui.widgets.virtual_table import Column, ListRows, VirtualTable
from tui_debugger.words.watchpoints import watch_words

WIDTH = 62
"""Cells for the words of one watchpoint; the box is 76 wide."""


class OfferScreen(Modal[bool]):
    """Lists the set; Enter uses it, Esc or ``n`` does not (nothing is lost: the list can be made later)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "use", show=False, priority=True),
        Binding("n,q", "cancel", show=False),
    ]
    DEFAULT_CSS = "OfferScreen VirtualTable { height: auto; }"
    heading = "Recommended watchpoints"
    hints = (("Enter", "use them"), ("n Esc", "not now"))

    def __init__(self, watchpoints: Sequence[Watchpoint]) -> None:
        """Shows the watchpoints in their order."""
        super().__init__()
        self.watchpoints = watchpoints

    def body(self) -> Iterable[Widget]:
        """A question and the list."""
        yield Line("Watch this run for what usually goes wrong?")
        rows: list[tuple[Cell, Cell]] = []
        for watchpoint in self.watchpoints:
            condition = CONDITIONS.get(watchpoint.condition)
            lines = textwrap.wrap(watch_words(watchpoint), WIDTH, subsequent_indent="  ") or [""]
            rows += [
                (Text(condition.abbr if condition and not i else "", STRONG), line) for i, line in enumerate(lines)
            ]
        yield VirtualTable(
            (Column("", 4, frozen=True), Column("", 10, elastic=1)), ListRows(rows), header=False, id="offered"
        )
        yield Line("They can be changed, disabled or deleted in the watchpoint list at any time.")

    def on_mount(self) -> None:
        """As high as the list needs."""
        table = self.query_one(VirtualTable)
        table.styles.height = max(1, min(table.row_count, self.app.size.height - 6))
        table.focus()

    def action_use(self) -> None:
        """Enter."""
        self.dismiss(True)

    def action_cancel(self) -> None:
        """Esc, n."""
        self.dismiss(False)
