"""Progress of work that is a part of other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from tui_debugger.check.types import Pair
from tui_debugger.errors import CancelledError, RenumberedError, TdbgError
from tui_debugger.model import Progress, ProgressFn, no_progress


def scaled(progress: ProgressFn, number: int, count: int, span: int = 1) -> ProgressFn:
    """``span`` of ``count`` equal parts, from ``number`` on: 1000 units each, so that a bar moves inside a part too."""

    def tell(snapshot: Progress) -> None:
        progress(Progress(int(1000 * (number + span * (snapshot.part or 0))), 1000 * count, snapshot.text))

    return tell


class Steady:
    """Progress of one job, while another job is done aside and only asks whether to go on."""

    def __init__(self, progress: ProgressFn) -> None:
        self._progress = progress
        self._last = Progress(0, 0)
        self._aside = False

    def __call__(self, snapshot: Progress) -> None:
        """Reports progress, or repeats the last report while the other job runs."""
        if not self._aside:
            self._last = snapshot
        self._progress(self._last)

    @contextmanager
    def aside(self) -> Iterator[None]:
        self._aside, before = True, self._aside
        try:
            yield
        finally:
            self._aside = before

    def silence(self) -> None:
        """Stops reporting progress; the work can no longer be cancelled."""
        self._progress = no_progress


T = TypeVar("T")

ATTEMPTS = 3
"""Attempts at a step whose files change meanwhile; the last result is returned, but not kept as known."""
RENUMBERINGS = 20
"""Attempts at a question whose node numbers change meanwhile; after the last one the error is raised."""


def retry_when_renumbered(ask: Callable[[], T]) -> T:
    """Answers a question, and asks it again when the nodes were read anew in the middle of it.

    A question sees a snapshot: a ``DataFlow`` keeps the node table and step tables that it got. When a graph arrives in
    a growing dump, ``NodeTable.lineage`` changes and nodes are numbered anew, so that the snapshot is over. This
    happens once in the life of a dump.
    """
    for _ in range(RENUMBERINGS):
        with suppress(RenumberedError):
            return ask()
    return ask()


List = Callable[[Pair, ProgressFn], object]
"""Lists a pair, for a source that remembers it."""


class ListingAhead:
    """A thread that lists pairs in advance; errors are ignored, because the user of a pair meets them again."""

    def __init__(self, listing: List) -> None:
        self._listing = listing
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def __enter__(self) -> ListingAhead:  # noqa: PYI034 - nobody derives from it, and Self is 3.11
        return self

    def __exit__(self, *_: object) -> None:
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
