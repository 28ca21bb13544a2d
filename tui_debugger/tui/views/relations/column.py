"""One of the three lists: left and right lead to the next list instead of moving text."""

from __future__ import annotations

from textual.message import Message

from tui_debugger.tui.views.relations.cells import columns
from tui_debugger.tui.widgets.virtual_table import VirtualTable


class RelatedList(VirtualTable):
    """Producers, the tensor itself, or consumers."""

    class Left(Message):
        """Go to another list.

        Attributes:
            by: -1 to the left, 1 to the right.
        """

        def __init__(self, by: int) -> None:
            """Which way."""
            super().__init__()
            self.by = by

    def __init__(self, title: str, empty: str, id: str) -> None:  # noqa: A002 - Textual's own name
        """An empty list."""
        super().__init__(columns(title), empty=empty, id=id)

    def set_title(self, title: str, *, rounds: bool) -> None:
        """Replaces the heading; ``rounds`` makes room for which of several writings a tensor is."""
        self.set_columns(columns(title, rounds=rounds))

    def action_pan_left(self) -> None:
        """To the list on the left."""
        self.post_message(self.Left(-1))

    def action_pan_right(self) -> None:
        """To the list on the right."""
        self.post_message(self.Left(1))
