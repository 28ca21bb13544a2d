"""Values of trainings: fetched when they are looked at, with progress, until Esc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui_debugger.tui.inspector import Inspector
from tui_debugger.tui.values.live import Fetch, LiveValuesScreen

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey
    from tui_debugger.session.live import LiveSession
    from tui_debugger.tui.live_desk import LiveDesk


class LiveInspector(Inspector):
    """See ``Inspector``."""

    def __init__(self, desk: LiveDesk) -> None:
        """Nothing selected."""
        super().__init__(desk)
        self._live: LiveSession = desk.live

    def values_screen(self) -> type[LiveValuesScreen]:
        """The screen that says how far fetching is."""
        return LiveValuesScreen

    def reader(self, key: TensorKey) -> Any:
        """Fetches what is only at the training."""
        return Fetch(lambda progress: self._live.read(key, progress))
