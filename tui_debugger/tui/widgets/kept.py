"""A widget that hands out the lines it drew last, until something about it changes.

Whenever a cell changes, Textual asks every widget below and beside it for all of its lines, and works out colours,
sizes and filters of each anew: on a screen of five panes most of the time of a key. It is asked the same here, and
answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.widget import Widget as _Base
else:
    # Styles are inherited from the first base that is a widget: this must not stand before the class that it is put to.
    _Base = object


class Kept(_Base):
    """To be put before the class of a widget that is drawn by its ``render_line``, or of a container."""

    _kept_lines: tuple[Region, list[Strip]] | None = None

    def _set_dirty(self, *regions: Region) -> None:
        """Where Textual's own lines become invalid, so do these: contents, styles and sizes all come through here."""
        self._kept_lines = None
        super()._set_dirty(*regions)

    def render_lines(self, crop: Region) -> list[Strip]:
        """What was drawn, or what is drawn now."""
        if self._kept_lines is None or self._kept_lines[0] != crop:
            self._kept_lines = crop, self.drawn_lines(crop)
        return self._kept_lines[1]

    def drawn_lines(self, crop: Region) -> list[Strip]:
        """Draws what is in sight; Textual draws again what is dirty."""
        return super().render_lines(crop)


class KeptRow(Kept, Horizontal):
    """A container from left to right."""


class KeptColumn(Kept, Vertical):
    """A container from top to bottom."""
