"""A screen that comes to the front is laid out and painted once, however many of its widgets ask for it.

Every widget that was mounted asks the screen to lay it out, and then to paint it. The requests arrive one by one after
the layout that gave all of them their places: Textual lays out and paints the whole screen again for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual import events, messages
from textual._time import get_time
from textual.geometry import Region, Size

from tui_debugger.tui.widgets.line_window import CachedLines

if TYPE_CHECKING:
    from textual.screen import Screen
    from typing_extensions import Self

    _AnyScreen = Screen[Any]
else:
    # Styles are inherited from the first base that is a widget: this must not stand before the class that it is put to.
    _AnyScreen = object


class LaidOutOnce(_AnyScreen):
    """To be put before the class of a screen: it does not do again what was done after it was asked for."""

    _laid_out_at = 0.0
    _painted_in_front: bool | None = None
    """Whether the screen was painted since it came to the front; None once it has asked for that itself."""

    def _on_screen_resume(self, _: events.ScreenResume) -> None:
        """Textual's own answer comes next: it lays out what has another size, and always asks for a paint of all."""
        self._painted_in_front = False if self.is_attached else None

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Has it painted, unless that was part of coming to the front."""
        painted, self._painted_in_front = self._painted_in_front, None
        if painted and not (regions or layout or recompose):
            return self
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Lays out everything as it is now."""
        begun = get_time()
        super()._refresh_layout(size, scroll)
        if size and not scroll:
            if self._painted_in_front is False and self.is_current and not self.app._batch_count:  # noqa: SLF001 - as Textual asks
                self._painted_in_front = True
            self._laid_out_at = begun

    async def _on_layout(self, message: messages.Layout) -> None:
        """A widget asks to be laid out."""
        if message.time < self._laid_out_at:
            message.stop()
            message.prevent_default()

    def _on_timer_update(self) -> None:
        """The next frame: widgets that were painted since they asked for it would only be painted again."""
        self._dirty_widgets = {
            widget for widget in self._dirty_widgets if not (isinstance(widget, CachedLines) and widget.unchanged)
        }
        super()._on_timer_update()
