"""The search in a list: its box, its pattern, the rows that match, and the moves of the cursor between them.

The list belongs to a ``SearchOwner``: a pane keeps only the rows that match, a view marks them. While the user types,
the cursor goes to the first match. Enter goes into the list, where ``n`` and ``N`` go through the matches. Esc goes
back to the cursor's old place.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widgets import Input

from tui_debugger.text.numbers import plural
from tui_debugger.tui import theme
from tui_debugger.tui.actions import SEARCH_BOX, bindings_for
from tui_debugger.tui.widgets.text import SearchPattern

if TYPE_CHECKING:
    from tui_debugger.tui.widgets.virtual_table import VirtualTable

MAX_LENGTH = 255
"""Most characters of a search text."""
COUNT_WIDTH = 17
"""Cells for ``99,999 of 100,000``."""
SLICE = 0.008
"""Seconds that a search in a view may look through rows before keys are handled."""


class SearchOwner(Protocol):
    """The pane or view that a searched list belongs to."""

    def mount_search(self, bar: SearchBar) -> None:
        """Puts the box onto the screen."""

    def look_for(self, search: ListSearch) -> None:
        """Looks for ``search.pattern`` and answers with ``search.answered``."""

    def rows_changed(self, search: ListSearch) -> None:
        """Counts the matches again after the rows changed; the cursor stays."""

    def tell_search_error(self, why: str) -> None:
        """Shows an error of the search text; an empty text: it is valid again."""

    def search_changed(self) -> None:
        """Updates the key hints after the end of a search."""

    def place(self, search: ListSearch) -> object:
        """Returns the cursor's place, for ``go_back``."""

    def go_back(self, search: ListSearch, place: object) -> None:
        """Moves the cursor back to a place."""


class ListSearch:
    """The search in one list.

    Attributes:
        pattern: None for an empty search text; an invalid expression leaves the last pattern.
        matches: ascending positions in the list; see ``VirtualTable.position``.
        cleared_by_owner: the owner handles the key that ends the search, because the key ends more than the search.
    """

    def __init__(self, table: VirtualTable, owner: SearchOwner, *, cleared_by_owner: bool = False) -> None:
        self.table = table
        self.cleared_by_owner = cleared_by_owner
        self.pattern: SearchPattern | None = None
        self.matches: Sequence[int] = ()
        self._owner = owner
        self._complete = True
        self._jump = False
        self._place: object = None
        self._scan = 0
        self.bar = SearchBar(self)
        table.search = self
        owner.mount_search(self.bar)

    @property
    def text(self) -> str:
        return self.pattern.text if self.pattern is not None else ""

    @property
    def returning(self) -> bool:
        """Tells whether the cursor goes back to its old place once the list shows all rows again."""
        return self.pattern is None and self._jump and self._place is not None

    @property
    def typing(self) -> bool:
        return self.bar.is_attached and self.bar.screen.focused is self.bar

    def open(self) -> None:
        """Opens the box; unless a search is open already, Esc will go back to the cursor's present place."""
        if self.pattern is None:
            self._place = self._owner.place(self)
        self.bar.open()

    def typed(self, text: str) -> None:
        from tui_debugger.errors import BadQueryError

        try:
            pattern = SearchPattern.of(text)
        except BadQueryError as error:
            self.bar.set_class(True, "-wrong")
            self._tell()
            self._owner.tell_search_error(error.what)
            return
        if self.bar.has_class("-wrong"):
            self.bar.remove_class("-wrong")
            self._owner.tell_search_error("")
        if pattern != self.pattern:
            self.pattern, self._jump = pattern, True
            self._owner.look_for(self)
        self._tell()

    def answered(self, matches: Sequence[int], *, complete: bool = True) -> None:
        """Takes matches; the first answer after a change of the text moves the cursor to the first match.

        ``complete`` is False for a part of the matches.
        """
        self.matches, self._complete = matches if self.pattern is not None else (), complete
        self.table.set_pattern(self.pattern)
        if self._jump and self.pattern is None:
            self._jump = False
            if self._place is not None:
                self._owner.go_back(self, self._place)
        elif self._jump and len(matches):
            self._jump = False
            self.table.go_to(int(matches[0]))
        elif complete:
            self._jump = False
        self._tell()
        if not self._jump and self.bar.leaving:
            self._into_list()

    def failed(self) -> None:
        self._jump = False
        if self.bar.leaving:
            self._into_list()

    def look_through(self) -> None:
        """Searches the rows of the table in slices of ``SLICE`` seconds. A later call replaces this search."""
        self._scan += 1
        if self.pattern is None:
            self.answered(())
        else:
            self._search_on(self._scan, self.pattern, 0, [])

    def _search_on(self, scan: int, pattern: SearchPattern, row: int, found: list[int]) -> None:
        if scan != self._scan or not self.table.is_attached:
            return
        end = time.monotonic() + SLICE
        count = self.table.row_count
        while row < count and time.monotonic() < end:
            if pattern.test(self.table.row_text(row)):
                found.append(row)
            row += 1
        self.answered(found, complete=row >= count)
        if row < count:
            self.table.set_timer(0.001, lambda: self._search_on(scan, pattern, row, found))

    def walk(self, by: int) -> None:
        """Moves the cursor to the next match or the match before; after the last match comes the first."""
        if not len(self.matches):
            return
        here = self.table.position
        at = bisect_right(self.matches, here) if by > 0 else bisect_left(self.matches, here) - 1
        self.table.go_to(int(self.matches[at % len(self.matches)]))

    def leave(self) -> None:
        """Moves the focus from the box into the list once the first match is known; keys wait until then."""
        if self.bar.has_class("-wrong"):
            self.typed(self.bar.value)  # shows the error again
        elif self._jump:
            self.bar.leaving = True
        else:
            self._into_list()

    def end(self, *, back: bool) -> bool:
        """Ends the search; False if there was none. ``back`` moves the cursor back to its old place."""
        if not self.bar.display:
            return False
        if not back:
            self._place = None
        if self.typing:
            self._into_list()
        self.bar.drop()
        if self.pattern is not None:
            self.pattern, self._jump = None, True
            self._owner.look_for(self)
        elif self._place is not None:
            self._owner.go_back(self, self._place)
        self._owner.search_changed()
        return True

    def moved(self) -> None:
        if self.pattern is not None:
            self._tell()

    def rows_changed(self) -> None:
        if self.pattern is not None:
            self._owner.rows_changed(self)

    def counted(self, matches: Sequence[int]) -> None:
        """Takes the matches after the rows changed; the cursor stays."""
        self.matches = matches
        self._tell()

    def _into_list(self) -> None:
        self.table.screen.set_focus(self.table, scroll_visible=False)
        self.bar.give_back_keys()

    def _tell(self) -> None:
        self.bar.show_count(self._count())

    def _count(self) -> str:
        if self.bar.has_class("-wrong"):
            return "broken expression"
        if self.pattern is None:
            return ""
        count = len(self.matches)
        if not count:
            return "no match" if self._complete and not self._jump else "…"
        here = self.table.position
        at = bisect_left(self.matches, here)
        more = "" if self._complete else "+"
        if at < count and self.matches[at] == here:
            return f"{at + 1:,} of {count:,}{more}"
        return plural(count, "match", "matches") + more


class SearchBar(Input):
    """The search box: one line, with the number of matches at its end."""

    BINDINGS: ClassVar[list[BindingType]] = list(bindings_for(SEARCH_BOX))
    DEFAULT_CSS = f"""
    SearchBar, SearchBar:focus {{
        height: 1; border: none; padding: 0 {COUNT_WIDTH + 2} 0 1; background: $panel; overflow: hidden;
        &.-wrong {{ color: $error; text-style: bold; }}
    }}
    """

    # The box always has one line. By default Textual would lay out the whole screen for every letter.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0))

    def __init__(self, search: ListSearch) -> None:
        super().__init__(
            placeholder="search (~ for a regular expression)",
            max_length=MAX_LENGTH,
            select_on_focus=False,
        )
        self.cursor_blink = False
        self.leaving = False
        self._search = search
        self._count = ""
        self._waiting: list[events.Key] = []

    def open(self) -> None:
        """Shows the box and takes the focus; typing replaces the old text."""
        self.display = True
        self.focus()
        self.select_all()

    def drop(self) -> None:
        self.value = ""
        self.display = False
        self.remove_class("-wrong")
        self.show_count("")

    def show_count(self, text: str) -> None:
        if text != self._count:
            width = max(len(text), len(self._count))
            self._count = text
            self.refresh(Region(self._count_end - width, 0, width, 1))

    @property
    def _count_end(self) -> int:
        return self.size.width + COUNT_WIDTH + 1

    @property
    def count(self) -> str:
        return self._count

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draws the line, with the count over its padding."""
        lines = super().render_lines(crop)
        text = self._count
        start = self.gutter.left + self._count_end - len(text) - crop.x
        if not text or not lines or crop.y or not 0 <= start <= start + len(text) <= crop.width:
            return lines
        style = self.rich_style + (theme.FINDING if self.has_class("-wrong") else theme.DIM)
        line, drawn = lines[0], [Segment(text, style)]
        for recoloring in self.app.get_line_filters():  # the line has them already
            drawn = recoloring.apply(drawn, self.background_colors[1])
        first, last = line.crop(0, start), line.crop(start + len(text))
        return [Strip([*first, *drawn, *last], line.cell_length), *lines[1:]]

    def action_drop_search(self) -> None:
        self.leaving = False
        self._search.end(back=True)

    def action_keep_search(self) -> None:
        self._search.leave()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._search.typed(event.value)

    async def _on_key(self, event: events.Key) -> None:
        """Keeps keys that arrive while the cursor is on its way to the match; they are for the list."""
        if self.leaving and event.key != "escape":
            event.stop()
            event.prevent_default()
            self._waiting.append(event)
            return
        await super()._on_key(event)

    def give_back_keys(self) -> None:
        """Sends the kept keys to the list."""
        waiting, self._waiting, self.leaving = self._waiting, [], False
        for event in waiting:
            again = event.copy()
            again.set_sender(self.app)  # with another sender, the key would not reach the screen's bindings
            self.app.post_message(again)

    def on_blur(self, _: events.Blur) -> None:
        if not self.value:
            self.display = False
