"""A window onto any number of lines: draws the visible lines, and again only lines that look different.

Textual's scroll view lays out the screen when the number of lines changes, and draws all lines when it scrolls or the
focus changes. And for each changed cell Textual asks the widgets around it for all of their lines. ``CachedLines``
answers with the lines that it drew last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import count as count_from
from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.containers import Horizontal, Vertical
from textual.dom import NoScreen
from textual.geometry import Offset, Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tui_debugger.text.numbers import runs
from tui_debugger.tui import theme

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
    from typing_extensions import Self
else:
    # Textual inherits styles from the first base that is a widget, so a mixin must not be a widget.
    _Base = object


class SizedOnce(_Base):
    """A mixin for widgets that do not scroll: skips Textual's second layout after a change of size. Put it first."""

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:  # noqa: ARG002
        """Takes the size; the layout that sets a new size also draws the whole widget."""
        resized = size != self.outer_size
        told = super()._size_updated(size, virtual_size, container_size, layout=False)
        if resized:
            self._repaint_regions.clear()
        return told


class CachedLines(SizedOnce):
    """A mixin for containers and for widgets drawn by ``render_line``: keeps the drawn lines. Put it first."""

    _cached_lines: tuple[Region, list[Strip]] | None = None

    def call_next(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Calls a callback after the current message, without Textual's inspection of the callback's arguments."""
        if args or kwargs:
            super().call_next(callback, *args, **kwargs)
            return
        message = events.Callback(callback=callback)
        message._prevent.update(self._get_prevented_messages())  # noqa: SLF001 - as Textual does
        self._next_callbacks.append(message)
        self.check_idle()

    def _set_dirty(self, *regions: Region) -> None:
        """Drops the kept lines; every change of contents, style or size comes through here."""
        self._cached_lines = None
        super()._set_dirty(*regions)

    @property
    def unchanged(self) -> bool:
        return not self._repaint_regions

    def render_lines(self, crop: Region) -> list[Strip]:
        if self._cached_lines is None or self._cached_lines[0] != crop:
            self._cached_lines = crop, self.drawn_lines(crop)
        return self._cached_lines[1]

    def drawn_lines(self, crop: Region) -> list[Strip]:
        return super().render_lines(crop)


class PaintedLines(CachedLines, Widget):
    """A widget that draws single lines, each again only when it is dirty. It has no effects such as a tint."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's own name
        self._painted: list[Strip] = []
        self._stale: set[int] = set()
        self._base: Style | None = None
        self._background: Color | None = None
        self._left = self._right = Strip([])
        super().__init__(id=id, classes=classes)

    @property
    def base_style(self) -> Style:
        """The widget's own colours, cached: Textual computes them from all widgets around it."""
        if self._base is None:
            self._base = self.rich_style
        return self._base

    def _content_size(self) -> Size:
        return self.size

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._base = self._background = None

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Has lines drawn in the next frame, without the two messages that Textual sends for each widget."""
        if layout or recompose or not repaint or not self._is_mounted:
            return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)
        self._layout_cache.clear()
        self._set_dirty(*regions)
        self.clear_cached_dimensions()
        self.draw_in_next_frame()
        return self

    def draw_in_next_frame(self) -> None:
        """Has the screen ask this widget for its changes; an invisible widget is drawn when it is shown."""
        if self._parent is None or self._closing or not self.display:
            return
        try:
            screen = self.screen
        except NoScreen:  # it is being removed
            return
        if self in screen._compositor.visible_widgets:  # noqa: SLF001 - as Textual asks
            screen._dirty_widgets.add(self)  # noqa: SLF001 - likewise
            due: Any = screen._update_timer._active  # noqa: SLF001 - the next frame
            if not due.is_set():
                screen.check_idle()

    def _set_dirty(self, *regions: Region) -> None:
        if not regions:
            self._painted.clear()
        for region in regions:
            self._stale.update(region.line_range)
        super()._set_dirty(*regions)

    def drawn_lines(self, crop: Region) -> list[Strip]:
        """Draws dirty lines only, between borders and padding that are drawn once."""
        sides, (width, height) = self.gutter, self._content_size()
        if sides.height or crop != Region(0, 0, width + sides.width, height):
            return super().drawn_lines(crop)
        if len(self._painted) != height:
            first = super().drawn_lines(Region(0, 0, crop.width, 1))[0]
            self._left, self._right = first.crop(0, sides.left), first.crop(crop.width - sides.right)
            self._painted, self._stale = [first] * height, set(range(1, height))
        if self._stale:
            filters = self.get_line_filters()
            if self._background is None:
                _, self._background = self.background_colors
            background = self._background
            for y in sorted(self._stale):
                if y < height:
                    line = self.render_line(y)
                    for line_filter in filters:
                        line = line.apply_filter(line_filter, background)
                    self._painted[y] = Strip([*self._left, *line, *self._right], crop.width) if sides else line
            self._stale.clear()
        return list(self._painted)


def ground(draw: Callable[[Region], list[Strip]], crop: Region, top: int = 0, bottom: int = 0) -> list[Strip]:
    """Returns the lines of a container: draws one line for all lines that look the same.

    ``draw`` draws a region; ``top`` and ``bottom`` are the lines of the frame in ``crop``.
    """
    alike = crop.height - top - bottom
    if alike < 2:
        return draw(crop)
    first = draw(Region(crop.x, crop.y, crop.width, top + 1))
    last = draw(Region(crop.x, crop.bottom - bottom, crop.width, bottom)) if bottom else []
    return first + first[-1:] * (alike - 1) + last


class CachedGround(CachedLines):
    """A mixin for containers and screens without a frame. Put it first."""

    def drawn_lines(self, crop: Region) -> list[Strip]:
        return ground(super().drawn_lines, crop)


class CachedRow(CachedGround, Horizontal):
    """A container from left to right."""


class CachedColumn(CachedGround, Vertical):
    """A container from top to bottom."""


def thumb(rows: int, page: int, top: int) -> range:
    """Returns the lines of the scroll bar that the thumb covers; empty if all rows fit.

    ``page``: rows on the screen, and lines of the bar. ``top``: first row on the screen.
    """
    if rows <= page:
        return range(0)
    size = max(page * page // rows, 1)
    room, last = page - size, rows - page
    # The thumb touches an end of the bar only if there are no more rows there.
    first = 0 if top <= 0 else room if top >= last else max(min(round(room * top / last), room - 1), min(1, room))
    return range(first, first + size)


def row_at(line: int, rows: int, page: int) -> int:
    """Returns the first row on the screen after the thumb was pulled to a line of the bar."""
    size = max(page * page // rows, 1) if rows else 1
    room, last = max(page - size, 1), max(rows - page, 0)
    return min(max(round((line - size // 2) * last / room), 0), last)


HEADER, EMPTY, BLANK = -1, -2, -3
"""Lines without a row of their own: above the rows, instead of rows, below them."""
_CACHE_LIMIT = 2048


class LineWindow(PaintedLines):
    """Rows below an optional header line, with a scroll bar in the last column. Subclasses draw."""

    DEFAULT_CSS = "LineWindow { width: 1fr; height: 1fr; }"

    def __init__(self, *, header: bool, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, classes=classes)
        self._header = 1 if header else 0
        self._top = 0
        self._ahead = 0
        self._strips: dict[tuple[int, int, bool], Strip] = {}
        self._drawn: dict[int, Strip] = {}
        self._comparing = False
        self._width, self._height = -1, 0

    # -- for subclasses --------------------------------------------------------------------------

    @property
    def row_count(self) -> int:
        raise NotImplementedError

    def draw(self, row: int, state: int, width: int) -> Strip:
        """Draws a row, or HEADER, EMPTY, BLANK; the result is kept until ``redraw``."""
        raise NotImplementedError

    def state_of(self, row: int) -> int:  # noqa: ARG002 - for subclasses
        return 0

    def line_key(self, row: int) -> int:
        """Returns the cache key (not negative) of a row's drawing."""
        return row

    def fit_to(self, width: int) -> None:
        """Called when lines get another width."""

    # -- where the window is ---------------------------------------------------------------------

    @property
    def page(self) -> int:
        return max(self.size.height - self._header, 1)

    @property
    def top(self) -> int:
        return self._top

    @property
    def line_width(self) -> int:
        return max(self.size.width - 1, 0)

    def show_from(self, top: int) -> None:
        """Scrolls so that a row is the first line, as far as there are rows below it."""
        height = self.size.height
        if not height:  # nothing fits yet
            return
        page = max(height - self._header, 1)
        old, self._top = self._top, max(0, min(top, self.row_count - page))
        if self._top != old:
            self._ahead = page if self._top > old else -page
            self.refresh_changed()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - Textual's own names
        return self.row_count + self._header

    # -- what is drawn again ---------------------------------------------------------------------

    def redraw(self) -> None:
        """Draws everything again: the contents of rows changed."""
        self._strips.clear()
        self.refresh_changed()

    def forget_rows(self) -> None:
        """Drops kept drawings of rows, but not of the header and of blank lines."""
        self._strips = {key: strip for key, strip in self._strips.items() if key[0] in {HEADER, BLANK}}

    def _forget(self, line_key: int) -> None:
        for key in [key for key in self._strips if key[0] == line_key]:
            del self._strips[key]

    def refresh_row(self, row: int) -> None:
        line = row - self._top + self._header
        width, height = self.size
        if not height:
            self._set_dirty()  # see ``_compare``
        elif self._header <= line < height:
            self.refresh(Region(0, line, width, 1))

    def refresh_changed(self) -> None:
        """Draws the lines that look different now; they are found when the next frame is drawn."""
        self._comparing = True
        if self._is_mounted:
            self.draw_in_next_frame()

    @property
    def unchanged(self) -> bool:
        return not self._comparing and super().unchanged

    def _exchange_repaint_regions(self) -> Collection[Region]:
        self._compare()
        return super()._exchange_repaint_regions()

    def render_lines(self, crop: Region) -> list[Strip]:
        self._compare()
        return super().render_lines(crop)

    def _compare(self) -> None:
        if not self._comparing:
            return
        self._comparing = False
        self._note_size()
        if not self._height:
            # An invisible window has no lines to compare; when it is shown again, Textual would show its old lines.
            self._set_dirty()
            return
        drawn = self._drawn
        lines = zip(range(self._height), self._lines(), strict=False)
        changed = [y for y, line in lines if line is not drawn.get(y) and line != drawn.get(y)]
        if changed:
            self._set_dirty(*(Region(0, first, self._width, last - first + 1) for first, last in runs(changed)))

    def on_resize(self) -> None:
        self.show_from(self._top)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    # -- the focus -------------------------------------------------------------------------------

    def on_focus(self, event: events.Focus) -> None:
        """Draws the rows that changed, instead of everything as Textual does."""
        event.prevent_default()
        self.has_focus = True
        self.refresh_changed()
        if isinstance(self.parent, Widget):
            self.parent.post_message(events.DescendantFocus(self))

    def on_blur(self, event: events.Blur) -> None:
        event.prevent_default()
        self.has_focus = False
        self.refresh_changed()
        if isinstance(self.parent, Widget):
            self.parent.post_message(events.DescendantBlur(self))

    def _forward_event(self, event: events.Event) -> None:
        """Sends keys to the screen at once: neither lines nor their containers handle key events."""
        if isinstance(event, events.Key):
            event._set_forwarded()  # noqa: SLF001 - as Textual marks a key that has been to the widget with the focus
            self.screen.post_message(event)
        else:
            super()._forward_event(event)

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Does nothing: no style depends on the focus."""

    # -- mouse -----------------------------------------------------------------------------------

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.show_from(self._top + int(self.app.scroll_sensitivity_y))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.show_from(self._top - int(self.app.scroll_sensitivity_y))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        at = event.get_content_offset(self)
        if at is not None and self.on_bar(at):
            event.stop()
            self.capture_mouse()
            self._pull(at)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.app.mouse_captured is self:
            self._pull(event.get_content_offset_capture(self))

    def on_mouse_up(self) -> None:
        self.release_mouse()

    def on_bar(self, at: Offset) -> bool:
        return at.x >= self.line_width and self.row_count > self.page

    def _pull(self, at: Offset) -> None:
        self.show_from(row_at(at.y - self._header, self.row_count, self.page))

    # -- drawing ---------------------------------------------------------------------------------

    def _content_size(self) -> Size:
        self._note_size()
        return Size(self._width, self._height)

    def drawn_lines(self, crop: Region) -> list[Strip]:
        if self._ahead:  # after this frame was written
            ahead, self._ahead = self._ahead, 0
            self.call_next(self._draw_ahead, ahead)
        return super().drawn_lines(crop)

    def render_line(self, y: int) -> Strip:
        strip = self._drawn[y] = self._line(y)
        return strip

    def _note_size(self) -> None:
        """Caches the size, which Textual looks up in the whole screen."""
        width, self._height = self.size
        if self._width != width:
            self._width = width
            self._strips.clear()
            self.fit_to(self.line_width)

    def _line(self, y: int) -> Strip:
        return next(self._lines(y))

    def _lines(self, y: int = 0) -> Iterator[Strip]:
        count, top, header = self.row_count, self._top, self._header
        pulled = thumb(count, max(self._height - header, 1), top)
        for line in count_from(y - header):
            row = HEADER if line < 0 else top + line
            if row >= count:
                row = BLANK if count or line > 0 else EMPTY
            yield self._kept(row, self.state_of(row) if row >= 0 else 0, line in pulled)

    def _kept(self, row: int, state: int, pulled: bool) -> Strip:
        key = (self.line_key(row) if row >= 0 else row, state, pulled)
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) >= _CACHE_LIMIT:
                self._strips.clear()
            strip = self.draw(row, state, self.line_width)
            if self._width:
                bar = Segment(" ", self.base_style + theme.THUMB if pulled else self.base_style)
                strip = Strip([*strip, bar], self._width)
            self._strips[key] = strip
        return strip

    def _draw_ahead(self, lines: int) -> None:
        first = max(self._top + lines, 0)
        for row in range(first, min(first + self.page, self.row_count)):
            self._kept(row, 0, pulled=False)
