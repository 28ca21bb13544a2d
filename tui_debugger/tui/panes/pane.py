"""The base of the panes: a frame with a title, a search box, a line about filters, a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Static

from tui_debugger.tui.actions import PANES, bindings_for
from tui_debugger.tui.widgets.bars import FrameLine
from tui_debugger.tui.widgets.line_window import CachedColumn
from tui_debugger.tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from tui_debugger.tui.widgets.search_bar import SearchBar

NUMBERS = {pane: number for number, (pane, _) in enumerate(PANES, 1)}
TITLES = dict(PANES)


class Pane(CachedColumn, can_focus=False):
    """Base of the panes. ``PANE`` is its id in the action registry.

    Attributes:
        detail: what is said of the row under the cursor.
    """

    PANE: ClassVar[str] = ""
    table: VirtualTable

    class Searched(Message):
        """The text in the search box changed."""

        def __init__(self, pane: Pane, text: str) -> None:
            """Text without the box's own decoration."""
            super().__init__()
            self.pane = pane
            self.text = text

    class DetailChanged(Message):
        """Another text belongs into the lower edge of the frame."""

    def __init__(self) -> None:
        super().__init__(id=self.PANE, classes="pane")
        self.detail = ""
        self._search_bar: SearchBar | None = None
        self._filters: Static | None = None
        self._count = ""
        self._upper = FrameLine(upper=True)
        self._lower = FrameLine(upper=False)
        self._filter_text: str | None = None

    def compose(self) -> ComposeResult:
        """Lays out the frame and the table; search box and filter line come between them when they are first needed."""
        yield self._upper
        yield self.table
        yield self._lower

    def on_mount(self) -> None:
        """First title."""
        self.set_count("")

    def set_count(self, text: str) -> None:
        """Shows text after the title, for example a count."""
        self._count = text
        self._upper.show(f"{NUMBERS[self.PANE]} {TITLES[self.PANE]}", text)

    def set_look(self, *, active: bool, single: bool) -> None:
        """Draws the frame: heavy when active, without sides when the pane is alone on the screen."""
        self._upper.set_look(active=active, corners=not single)
        self._lower.set_look(active=active, corners=not single)
        self._lower.display = not single

    @property
    def count(self) -> str:
        """The text after the title."""
        return self._count

    def set_detail(self, text: str) -> None:
        """Shows text in the lower edge of the frame, or in the footer where there is none."""
        if text != self.detail:
            self.detail = text
            self._lower.show("", text)
            if not self._lower.display:
                self.post_message(self.DetailChanged())

    @property
    def detail_room(self) -> int:
        """Cells that the lower edge has for text: its two ends and blanks aside."""
        return self.size.width - 6

    def set_filters(self, text: Text | None) -> None:
        """Shows the line that says what is filtered; None takes it away."""
        plain = None if text is None else text.plain
        if plain == self._filter_text:
            return
        self._filter_text = plain
        if text is not None:
            self.filters.update(text)
        if self._filters is not None:
            self._filters.display = text is not None

    @property
    def filters(self) -> Static:
        """The line that says what is filtered."""
        if self._filters is None:
            self._filters = Static(id=f"{self.PANE}-filters", classes="filters", markup=False)
            self._filters.display = False
            self.mount(self._filters, before=self.table)
        return self._filters

    @property
    def search_bar(self) -> SearchBar:
        """The search box, open when it is new."""
        if self._search_bar is None:
            from tui_debugger.tui.widgets.search_bar import SearchBar

            self._search_bar = SearchBar(classes="-open")
            self.mount(self._search_bar, after=self._upper)
        return self._search_bar

    def open_search(self) -> None:
        """Opens the search box."""
        self.search_bar.open()

    @property
    def search_text(self) -> str:
        """The text in the search box."""
        return "" if self._search_bar is None else self._search_bar.value

    def clear_search(self) -> bool:
        """Ends the search; False when there was none."""
        if not self.search_text:
            return False
        self.search_bar.drop()
        return True

    def mark_search(self, wrong: bool) -> None:
        """Shows that the search text cannot be used."""
        if self._search_bar is not None:
            self._search_bar.set_class(wrong, "-wrong")

    def on_search_bar_typed(self, event: SearchBar.Typed) -> None:
        """Passes the text on."""
        event.stop()
        self.post_message(self.Searched(self, event.text))

    def on_search_bar_left(self, event: SearchBar.Left) -> None:
        """Back into the list."""
        event.stop()
        self.screen.set_focus(self.table, scroll_visible=False)


def pane_bindings(pane: str) -> list[BindingType]:
    """Returns the key bindings of a pane."""
    return list(bindings_for(pane))


def matcher(text: str) -> Callable[[str], bool] | None:
    """Returns a test for search text: substring without case, or a regular expression after ``~``.

    Returns:
        None when the expression is broken.
    """
    if text.startswith("~"):
        try:
            search = re.compile(text[1:], re.IGNORECASE).search
        except (re.error, RecursionError, OverflowError):
            return None
        return lambda candidate: search(candidate) is not None
    needle = text.lower()
    return lambda candidate: needle in candidate.lower()
