"""Lays out and paints a screen once for all of its widgets that ask for it, and in time.

Textual lays out and paints a screen that comes to the front two to four times: each mounted widget asks for a layout
after the layout that placed all of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from textual import events, messages
from textual._context import active_app
from textual._time import get_time
from textual.geometry import Region, Size
from textual.timer import Timer

from tui_debugger.tui.widgets.line_window import CachedLines
from tui_debugger.tui.written_lines import PartsCompositor

if TYPE_CHECKING:
    from textual.screen import Screen
    from typing_extensions import Self

    _AnyScreen = Screen[Any]
else:
    # Textual inherits styles from the first base that is a widget, so a mixin must not be a widget.
    _AnyScreen = object

FRAME: Final = 1 / 60
"""Seconds between two frames."""


class FrameTimer(Timer):
    """Draws the next frame at once, or a 60th of a second after the last frame.

    Textual's own timer counts from the first frame of a screen, and skips a tick after a pause: the second frame of a
    key, with the footer or a list that follows, comes 17 to 33 ms after the first. It also draws into a terminal that
    takes no output, until the program blocks.
    """

    def __init__(self, screen: Screen[Any], draw: Callable[[], None]) -> None:
        super().__init__(screen, FRAME, name="frame", callback=draw, pause=True)
        self._draw = draw
        self._asked: Any = self._active  # Textual's attribute has no type for mypy
        self._last = -math.inf
        self._due: asyncio.TimerHandle | None = None

    def resume(self) -> None:
        """Asks for the next frame."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._asked.set()
            self._due = loop.call_at(max(self._last + FRAME, loop.time()), self._frame)

    def pause(self) -> None:
        """Cancels the next frame: it was drawn already, or the screen is hidden."""
        self._asked.clear()
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _frame(self) -> None:
        loop, app = asyncio.get_running_loop(), active_app.get()
        self._last = loop.time()
        if getattr(app._driver, "behind", False):  # noqa: SLF001 - see ``TerminalDriver``
            self._due = loop.call_later(FRAME, self._frame)
        elif not app._exit:  # noqa: SLF001 - as Textual does
            try:
                self._draw()
            except Exception as error:  # noqa: BLE001 - whatever it is, the program ends and gives the terminal back
                app._handle_exception(error)  # noqa: SLF001 - likewise


class DrawnOnce(_AnyScreen):
    """A mixin for screens, first in the bases: skips layouts and paints that were done after they were requested."""

    _laid_out_at = 0.0
    _painted_in_front: bool | None = None
    """Whether the screen was painted since it came to the front; None after the first request to paint the screen."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._compositor = PartsCompositor()
        self._frames = FrameTimer(self, self._on_timer_update)
        self._shown_before = False

    @property
    def is_open(self) -> bool:
        """Tells whether the screen's widgets exist: Textual removes them before the screen itself."""
        return self.is_attached and not self._pruning

    @property
    def _update_timer(self) -> Timer:
        return self._frames

    def _on_screen_resume(self, event: events.ScreenResume) -> None:
        """Prepares for coming to the front; Textual's own handler of the event runs next.

        That handler would compute all styles, which the widgets of a new screen got when they were mounted, and it
        always asks for a paint of everything.
        """
        if not self._shown_before:
            self._shown_before = True
            event.refresh_styles = False
        self._painted_in_front = False if self.is_attached else None

    def _screen_resized(self, size: Size) -> None:
        """Ignores a resize to the present size, for which Textual would lay out once more."""
        if size != self.outer_size:
            super()._screen_resized(size)

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Skips Textual's request for a full paint if the screen was painted while it came to the front."""
        painted, self._painted_in_front = self._painted_in_front, None
        if painted and not (regions or layout or recompose):
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lays out everything now, which answers all earlier requests for a layout."""
        begun = get_time()
        super()._refresh_layout(size, scroll)
        if size and not scroll:
            self._layout_required = False
            self._laid_out_at = begun
            if self._painted_in_front is False and self.is_current and not self.app._batch_count:  # noqa: SLF001 - as Textual asks
                self._painted_in_front = True

    async def _on_layout(self, message: messages.Layout) -> None:
        """Drops a widget's request that is older than the last layout."""
        if message.time < self._laid_out_at:
            message.stop()
            message.prevent_default()

    def _on_timer_update(self) -> None:
        """Draws the next frame without widgets that were painted since they asked for it."""
        self._dirty_widgets = {
            widget for widget in self._dirty_widgets if not (isinstance(widget, CachedLines) and widget.unchanged)
        }
        super()._on_timer_update()
