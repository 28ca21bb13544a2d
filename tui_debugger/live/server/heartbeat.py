"""Whether a client is still there. Pure."""

from __future__ import annotations

from typing import Final

SHORTEST, LONGEST = 5, 3600
"""Seconds that a client may leave between two heartbeats; other numbers are not taken."""
MISSES: Final = 3
ANSWER_SECONDS: Final = 120.0
"""How long a client that was told something may be silent before it says anything, when it does not train."""


class Heartbeat:
    """Signs of life of one client; one that never sent a heartbeat is never missed."""

    def __init__(self, now: float) -> None:
        """A client that was heard of at ``now``."""
        self.period: int | None = None
        self._last = now

    def heard(self, now: float) -> None:
        """Any sign of life."""
        self._last = max(self._last, now)

    def beat(self, period: int, now: float) -> None:
        """A heartbeat, which says when the next will come."""
        if SHORTEST <= period <= LONGEST:
            self.period = period
        self.heard(now)

    def silent(self, now: float) -> bool:
        """Whether a client that has nothing to do but answer has not been heard of for long."""
        return now - self._last > ANSWER_SECONDS

    def missed(self, now: float) -> bool:
        """Whether three heartbeats in a row did not come."""
        return self.period is not None and now - self._last > MISSES * (self.period + 0.5)
