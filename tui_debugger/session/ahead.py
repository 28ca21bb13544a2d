"""Lists the steps that come next while the workers read the files of these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.model import Progress, ProgressFn
from tui_debugger.session.types import Pair

List = Callable[[Pair, ProgressFn], object]
"""Lists a pair, for a source that remembers it."""


class Ahead:
    """A thread that lists pairs; what goes wrong is found again by whoever needs them."""

    def __init__(self, listing: List) -> None:
        """Nothing is started yet."""
        self._listing = listing
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> Ahead:  # noqa: PYI034 - nobody derives from it, and Self is 3.11
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stops; a listing that is under way is given up."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def list(self, pairs: Sequence[Pair]) -> None:
        """Lists pairs in the background, unless it is still at work."""
        if pairs and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, args=(pairs,), name="tdbg listing", daemon=True)
            self._thread.start()

    def _run(self, pairs: Sequence[Pair]) -> None:
        try:
            for pair in pairs:
                self._goes_on()
                self._listing(pair, self._goes_on)
        except TdbgError:
            return

    def _goes_on(self, _: Progress | None = None) -> None:
        if self._stopped.is_set():
            raise CancelledError("stopped")
