"""The base of the panes: a frame with a title, a search box, a line about filters, a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Static

from tui_debugger.tui.actions import BY_ID, PANES, SEARCH, SEARCH_BOX, bindings_for
from tui_debugger.tui.widgets.bars import FrameLine
from tui_debugger.tui.widgets.line_window import CachedColumn
from tui_debugger.tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from tui_debugger.tui.widgets.search import ListSearch, SearchBar
    from tui_debugger.tui.widgets.text import SearchPattern

NUMBERS = {pane: number for number, (pane, _) in enumerate(PANES, 1)}
TITLES = dict(PANES)


class Pane(CachedColumn, can_focus=False):
    """Base of the panes. A search keeps the rows that match.

    ``PANE`` is its id in the action registry. ``CLEARS_SEARCH`` says that it has a key that ends searches and more.

    Attributes:
        detail: what is said of the row under the cursor.
        detail_changed: called when the frame has no lower edge for another ``detail``.
    """

    PANE: ClassVar[str] = ""
    CLEARS_SEARCH: ClassVar[bool] = False
    table: VirtualTable

    class Searched(Message, bubble=False):
        """The list should show what matches ``search_text``: call ``asked`` first, and ``searched`` when it does."""

        def __init__(self, pane: Pane) -> None:
            super().__init__()
            self.pane = pane

    class SearchChanged(Message):
        """A search ended, or something is wrong with its text."""

        def __init__(self, pane: Pane, wrong: str | None = None) -> None:
            """``wrong`` says what is wrong with the text; an empty text that it is right again."""
            super().__init__()
            self.pane = pane
            self.wrong = wrong

    def __init__(self) -> None:
        super().__init__(id=self.PANE, classes="pane")
        self.detail = ""
        self.detail_changed: Callable[[], None] = lambda: None
        self._search: ListSearch | None = None
        self._unasked = 0
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
        self.table.moved_to = self.row_highlighted
        self.table.emptied = lambda: self.set_detail("")
        self.set_count("")

    def row_highlighted(self, row: int) -> None:
        """Says what is under the cursor."""

    def set_count(self, text: str) -> None:
        """Shows text after the title, for example a count."""
        self._count = text
        self._upper.show(f"{NUMBERS[self.PANE]} {TITLES[self.PANE]}", text)

    def set_frame(self, *, active: bool, single: bool) -> None:
        """Draws the frame: heavy when active, without sides when the pane is alone on the screen."""
        self._upper.set_frame(active=active, corners=not single)
        self._lower.set_frame(active=active, corners=not single)
        if self._lower.display == single:  # setting what it is already would lay the screen out once more
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
                self.detail_changed()

    @property
    def detail_room(self) -> int:
        """Cells that there are for the detail: the lower edge without its ends and blanks, or the footer."""
        return self.size.width - (6 if self._lower.display else 2)

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

    # -- the search ------------------------------------------------------------------------------

    def open_search(self) -> None:
        """Opens the search box."""
        if self._search is None:
            from tui_debugger.tui.widgets.search import ListSearch

            self._search = ListSearch(self.table, self, cleared_by_owner=self.CLEARS_SEARCH)
        self._search.open()

    @property
    def search_bar(self) -> SearchBar | None:
        """The search box, once it was opened."""
        return None if self._search is None else self._search.bar

    @property
    def pattern(self) -> SearchPattern | None:
        """Returns what is searched for; None for nothing. A broken expression changes nothing."""
        return None if self._search is None else self._search.pattern

    @property
    def search_text(self) -> str:
        """The same as it was typed."""
        return "" if self._search is None else self._search.text

    @property
    def search_keys(self) -> str:
        """The group of actions that the search adds: see ``actions.footer``."""
        if self._search is None:
            return ""
        return SEARCH_BOX if self._search.typing else SEARCH if self._search.pattern is not None else ""

    def act_on_search(self, action: str) -> bool:
        """Does an action of ``search_keys``; False where it is another one."""
        if self._search is None or (self.search_keys, action) not in BY_ID:
            return False
        where = self._search.bar if self._search.typing else self.table
        getattr(where, f"action_{action}")()
        return True

    def clear_search(self, *, back: bool = False) -> bool:
        """Ends the search; False when there was none. ``back``: the cursor goes back to where it was before."""
        return self._search is not None and self._search.end(back=back)

    def ask(self) -> None:
        """Asks for the rows that match."""
        self._unasked += 1
        self.screen.post_message(self.Searched(self))

    def asked(self) -> None:
        """Work on the answer is under way."""
        self._unasked -= 1

    def searched(self) -> None:
        """The list shows what was asked for last."""
        if self._search is not None and not self._unasked:
            self._search.answered(self.matches())

    def search_failed(self) -> None:
        """Shows that the search failed."""
        if self._search is not None:
            self._search.failed()

    def matches(self) -> Sequence[int]:
        """Returns the positions of what matches, see ``VirtualTable.position``: by default every row that is left."""
        return range(self.table.row_count)

    # See SearchOwner.

    def mount_search(self, bar: SearchBar) -> None:
        """Puts the box above the list."""
        self.mount(bar, after=self._upper)

    def look_for(self, _: ListSearch) -> None:
        """See ``ask``."""
        self.ask()

    def rows_changed(self, search: ListSearch) -> None:
        """Counts anew."""
        search.counted(self.matches())

    def refuse_search(self, why: str) -> None:
        """Says what is wrong with the text."""
        self.post_message(self.SearchChanged(self, why))

    def accept_search(self) -> None:
        """Takes that back."""
        self.post_message(self.SearchChanged(self, ""))

    def search_changed(self) -> None:
        """Says that other keys work."""
        self.post_message(self.SearchChanged(self))

    def place(self, search: ListSearch) -> object:
        """Returns where the cursor is."""
        return search.table.place()

    def go_back(self, search: ListSearch, place: object) -> None:
        """Moves the cursor back."""
        search.table.go_back(place)


def pane_bindings(pane: str) -> list[BindingType]:
    """Returns the key bindings of a pane."""
    return list(bindings_for(pane))
