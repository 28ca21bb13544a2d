"""The base of the panes: a frame with a title, a search box, a line about filters, a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from tui_debugger.tui.actions import BY_ID, PANES, SEARCH, SEARCH_BOX, bindings_for
from tui_debugger.tui.frames import DrawnOnce
from tui_debugger.tui.widgets.bars import FooterBar, FrameLine, HeaderBar
from tui_debugger.tui.widgets.line_window import CachedColumn, CachedGround
from tui_debugger.tui.widgets.virtual_table import VirtualTable
from tui_debugger.tui.work import Delivery

if TYPE_CHECKING:
    from tui_debugger.tui.widgets.search import ListSearch, SearchBar
    from tui_debugger.tui.widgets.text import SearchPattern

NUMBERS = {pane: number for number, (pane, _) in enumerate(PANES, 1)}
TITLES = dict(PANES)


class Pane(CachedColumn, can_focus=False):
    """Base of the panes. A search keeps the rows that match.

    ``PANE`` is its id in the action registry. ``CLEARS_SEARCH``: the pane's own key that clears filters also ends a
    search. ``detail_changed`` is called when ``detail`` changed and the frame has no lower edge for it.
    """

    PANE: ClassVar[str] = ""
    CLEARS_SEARCH: ClassVar[bool] = False
    table: VirtualTable

    def __init_subclass__(cls, **named: Any) -> None:
        cls.BINDINGS = [*bindings_for(cls.PANE)]
        super().__init_subclass__(**named)

    @dataclass
    class Searched(Message, bubble=False):
        """Asks for the rows that match ``search_text``: call ``asked`` first, ``searched`` once they are shown."""

        pane: Pane

    @dataclass
    class SearchChanged(Message):
        """A search ended, or its text became wrong or right."""

        pane: Pane
        wrong: str | None = None
        """The error of the text; an empty string: the text is right again."""

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
        yield self._upper
        yield self.table
        yield self._lower

    def on_mount(self) -> None:
        self.table.moved_to = self.show_row
        self.table.emptied = lambda: self.set_detail("")
        self.set_count("")

    def show_row(self) -> None:
        """Shows the detail of the row under the cursor, after the cursor moved."""

    def set_count(self, text: str) -> None:
        self._count = text
        self._upper.show(f"{NUMBERS[self.PANE]} {TITLES[self.PANE]}", text)

    def set_frame(self, *, active: bool, single: bool) -> None:
        """Draws the frame: heavy if active, without sides if the pane is alone on the screen."""
        self._upper.set_frame(active=active, corners=not single)
        self._lower.set_frame(active=active, corners=not single)
        if self._lower.display == single:  # setting an equal value would lay out the screen again
            self._lower.display = not single

    @property
    def count(self) -> str:
        return self._count

    def set_detail(self, text: str) -> None:
        """Shows text in the lower edge of the frame, or in the footer if there is no edge."""
        if text != self.detail:
            self.detail = text
            self._lower.show("", text)
            if not self._lower.display:
                self.detail_changed()

    @property
    def detail_room(self) -> int:
        """Cells for the detail: the lower edge without its ends and blanks, or the footer."""
        return self.size.width - (6 if self._lower.display else 2)

    def set_filters(self, text: Text | None) -> None:
        """Shows the line about filters; None removes it."""
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
        if self._filters is None:
            self._filters = Static(id=f"{self.PANE}-filters", classes="filters", markup=False)
            self._filters.display = False
            self.mount(self._filters, before=self.table)
        return self._filters

    # -- the search ------------------------------------------------------------------------------

    def open_search(self) -> None:
        if self._search is None:
            from tui_debugger.tui.widgets.search import ListSearch

            self._search = ListSearch(self.table, self, cleared_by_owner=self.CLEARS_SEARCH)
        self._search.open()

    @property
    def search_bar(self) -> SearchBar | None:
        return None if self._search is None else self._search.bar

    @property
    def pattern(self) -> SearchPattern | None:
        """The pattern of the search; None without one."""
        return None if self._search is None else self._search.pattern

    @property
    def search_text(self) -> str:
        return "" if self._search is None else self._search.text

    @property
    def search_keys(self) -> str:
        """The ``where`` of the actions that the search adds: see ``actions.footer``."""
        if self._search is None:
            return ""
        return SEARCH_BOX if self._search.typing else SEARCH if self._search.pattern is not None else ""

    def act_on_search(self, action: str) -> bool:
        """Does an action of ``search_keys``; False for all other actions."""
        if self._search is None or (self.search_keys, action) not in BY_ID:
            return False
        where = self._search.bar if self._search.typing else self.table
        getattr(where, f"action_{action}")()
        return True

    def clear_search(self, *, back: bool = False) -> bool:
        """Ends the search; False if there was none. ``back`` moves the cursor back to its old place."""
        return self._search is not None and self._search.end(back=back)

    def ask(self) -> None:
        self._unasked += 1
        self.screen.post_message(self.Searched(self))

    def asked(self) -> None:
        self._unasked -= 1

    def searched(self) -> None:
        """Called once the list shows the rows that match."""
        if self._search is not None and not self._unasked:
            self._search.answered(self.matches())

    def search_failed(self) -> None:
        if self._search is not None:
            self._search.failed()

    def matches(self) -> Sequence[int]:
        """Returns the positions that match, see ``VirtualTable.position``; by default every row that is left."""
        return range(self.table.row_count)

    # See SearchOwner.

    def mount_search(self, bar: SearchBar) -> None:
        self.mount(bar, after=self._upper)

    def look_for(self, _: ListSearch) -> None:
        self.ask()

    def rows_changed(self, search: ListSearch) -> None:
        search.counted(self.matches())

    def tell_search_error(self, why: str) -> None:
        self.post_message(self.SearchChanged(self, why))

    def search_changed(self) -> None:
        self.post_message(self.SearchChanged(self))

    def place(self, search: ListSearch) -> object:
        return search.table.place()

    def go_back(self, search: ListSearch, place: object) -> None:
        search.table.go_back(place)


class PanesScreen(DrawnOnce, CachedGround, Screen[None]):
    """The base of screens with panes: header and footer, keys of the footer, results of work."""

    # Textual repaints the whole screen whenever the focus moves; the panes draw their own focus.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    AUTO_FOCUS = ""  # else Textual focuses a search box

    def __init__(self) -> None:
        super().__init__()
        self.header = HeaderBar()
        self.footer = FooterBar()

    @property
    def pane(self) -> Pane:
        """The pane with the focus."""
        raise NotImplementedError

    def action_act(self, action: str) -> None:
        raise NotImplementedError

    def update_footer(self) -> None:
        raise NotImplementedError

    def show_error(self, error: Exception) -> None:
        from tui_debugger.tui.dialogs.modal import ErrorScreen
        from tui_debugger.tui.work import presentable

        self.app.push_screen(ErrorScreen(presentable(error)))

    def on_delivery(self, message: Delivery) -> None:
        message.deliver()

    def on_pane_search_changed(self, event: Pane.SearchChanged) -> None:
        """Updates the footer's keys, and shows an error of the search text as long as it lasts."""
        if event.wrong:
            self.footer.say(event.wrong, bad=True)
        elif event.wrong is not None:
            self.footer.clear_notice()
        self.update_footer()

    def on_footer_bar_pressed(self, event: FooterBar.Pressed) -> None:
        self.run_action_of(event.action, "list" if event.action == "select" else "")

    def run_action_of(self, action: str, where: str) -> None:
        """Does an action as its key does; ``where`` as in ``Action``, or empty."""
        if where in {"list", "tree"}:
            getattr(self.pane.table, f"action_{action}")()
        elif not self.pane.act_on_search(action) and where not in {SEARCH, SEARCH_BOX}:
            self.action_act(action)
