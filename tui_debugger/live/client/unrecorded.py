"""What a training ran and its client could not record: counted, so that nobody calls it clean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tui_debugger.live.wire import Unrecorded


class UnrecordedCounts:
    """Counts by kind, since the process began."""

    def __init__(self) -> None:
        """Everything was recorded so far."""
        self._by_kind: dict[str, Unrecorded] = {}

    def add(self, what: str, step: int, example: str = "", count: int = 1) -> None:
        """Counts something that could not be recorded; see ``Unrecorded``."""
        known = self._by_kind.get(what)
        if known is None:
            self._by_kind[what] = Unrecorded(what, count, example, max(step, 0))
        else:
            self._by_kind[what] = replace(known, count=known.count + count)

    def all(self) -> Sequence[Unrecorded]:
        """Every kind, in the order in which it came up."""
        return tuple(self._by_kind.values())
