"""Time that passes when a test says so."""

from __future__ import annotations


class Clock:
    """Seconds that only grow."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> bool:
        """Lets time pass; always true."""
        self.now += seconds
        return True
