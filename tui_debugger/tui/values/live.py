"""The values of a tensor of a training: they may have to be fetched first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tui_debugger.errors import CancelledError
from tui_debugger.tui.bridge import MIN_INTERVAL
from tui_debugger.tui.values.screen import ValuesScreen
from tui_debugger.tui.values.search import Wanted
from tui_debugger.tui.values.sheet import Array
from tui_debugger.words.numbers import percent, size

if TYPE_CHECKING:
    from tui_debugger.model import Progress, ProgressFn


class Fetch:
    """Reads a tensor; tells how far it is and can be stopped."""

    def __init__(self, read: Callable[[ProgressFn], Array]) -> None:
        """``read`` is called in a worker."""
        self._read = read
        self._stop = threading.Event()
        self._progress: Progress | None = None

    def __call__(self) -> Array:
        """Reads.

        Raises:
            CancelledError: it was stopped.
            TdbgError: see ``LiveSession.read``.
        """
        self._stop.clear()
        self._progress = None
        return self._read(self._told)

    def stop(self) -> None:
        """Ends the reading soon."""
        self._stop.set()

    @property
    def text(self) -> str:
        """How far it is; empty while nobody knows."""
        progress = self._progress
        if progress is None or not progress.total:
            return ""
        return f"{percent(100 * min(progress.done / progress.total, 1.0))} % of {size(progress.total)}"

    def _told(self, progress: Progress, /) -> None:
        self._progress = progress
        if self._stop.is_set():
            raise CancelledError("stopped")


class LiveValuesScreen(ValuesScreen):
    """See ``ValuesScreen``; ``load`` and ``previous`` are fetches."""

    def _start(self, what: str, work: Callable[[Wanted], object], done: Callable[[object], None]) -> None:
        super()._start(what, work, done)
        job = self._job
        fetches = self._fetches()

        def tell() -> None:
            if self._job is not job or not self.is_attached:
                ticker.stop()
                return
            text = next((fetch.text for fetch in fetches if fetch.text), "")
            if text:
                self.say(f"{what} {text}  Esc cancels", note=True)

        ticker = self.set_interval(MIN_INTERVAL, tell)

    def _fetches(self) -> list[Fetch]:
        return [each for each in (self._load, self._load_previous) if isinstance(each, Fetch)]

    def action_cancel(self) -> None:
        """Esc: what is on its way is no longer wanted."""
        for fetch in self._fetches():
            fetch.stop()
        super().action_cancel()
