"""Looks into a server where nothing else shows what it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.patience import PATIENCE
from tui_debugger.live.server import Server


def wait_until(holds: Callable[[], bool]) -> None:
    """Waits for something that nobody announces."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "it did not happen"
        threading.Event().wait(0.005)


def wait_until_it_reads(server: Server) -> None:
    """Waits until a stream has arrived and is being read: breaking it before that would never be noticed."""
    wait_until(lambda: bool(server._patience._heard))
