"""Progress of work that is a part of other work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tui_debugger.model import Progress, ProgressFn, no_progress


def scaled(progress: ProgressFn, number: int, count: int, span: int = 1) -> ProgressFn:
    """``span`` of several equal parts, from ``number`` on: 1000 units each, so that a bar moves inside a part too."""

    def tell(snapshot: Progress) -> None:
        inside = min(snapshot.done / snapshot.total, 1.0) if snapshot.total else 0.0
        progress(Progress(int(1000 * (number + span * inside)), 1000 * count, snapshot.text))

    return tell


class Steady:
    """Progress that moves with one thing, while another one is done aside and only asks whether to go on."""

    def __init__(self, progress: ProgressFn) -> None:
        """``progress`` is told."""
        self._progress = progress
        self._last = Progress(0, 0)
        self._aside = False

    def __call__(self, snapshot: Progress) -> None:
        """Tells, or repeats what was told last when this comes from what is done aside."""
        if not self._aside:
            self._last = snapshot
        self._progress(self._last)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is told meanwhile does not count."""
        self._aside, before = True, self._aside
        try:
            yield
        finally:
            self._aside = before

    def silence(self) -> None:
        """Nothing is told any more, nor stopped."""
        self._progress = no_progress
