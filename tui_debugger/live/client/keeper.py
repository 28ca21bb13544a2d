"""The background thread: looks for the debugger, sends signs of life, and notices when it gives none any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from tui_debugger.live.client.address import Settings
from tui_debugger.live.client.link import Link, LinkLostError
from tui_debugger.live.client.messages import PERIOD

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between attempts to connect: doubled from the first to the longest."""
SETTLED: Final = 60.0
"""Seconds after which a connection counts as good: the next attempt after it is lost comes soon."""
TICKS: Final = 5
"""Looks per time-out at a call that is waited for. Of the time-out one tick passes until a call counts as waiting, one
until that is seen, and the rest is for the heartbeat: a frozen debugger is found out within the time-out."""


class Keeper:
    """Owns the thread and the connection. ``link`` is there as soon as, and as long as, the debugger answers."""

    def __init__(self, settings: Settings, session: str, say: Callable[[str], None]) -> None:
        """Starts the thread.

        Args:
            settings: where the debugger is.
            session: of this process.
            say: tells people something, once.
        """
        self.link: Link | None = None
        self._settings = settings
        self._session = session
        self._say = say
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._tried = threading.Event()
        self._opening: Link | None = None
        self._thread = threading.Thread(target=self._run, name="tdbg-keeper", daemon=True)
        self._thread.start()

    def first_attempt(self) -> Link | None:
        """Waits for the outcome of the first attempt to connect, at most until the time-out has passed since the start.

        Returns at once ever after.
        """
        self._tried.wait(max(self._started + self._settings.timeout - time.monotonic(), 0.0))
        return self.link

    def stop(self) -> None:
        """Ends the thread and closes what is open; waits shortly. Idempotent."""
        self._stop.set()
        for link in (self.link, self._opening):
            if link is not None:
                link.close()
        self._tried.set()
        if self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while not self._stop.is_set():
                link = self._open()
                self._tried.set()
                if link is not None:
                    self._keep(link)
                    pause = FIRST_PAUSE if time.monotonic() - link.opened > SETTLED else pause
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        except Exception as error:  # noqa: BLE001 - a thread that dies must not look like a debugger that is away
            self._say(f"the debugger cannot be used ({type(error).__name__}: {error}); training goes on")
        finally:
            self._tried.set()

    def _open(self) -> Link | None:
        """A connection on which the debugger has answered once; None when it does not."""
        link = self._opening = Link(self._settings, self._session)
        error = link.heartbeat(self._settings.timeout)
        if error is None and not self._stop.is_set():
            self.link = link
            return link
        self._opening = None
        link.close()
        if error is not None and not self._stop.is_set() and (error.refused or not self._tried.is_set()):
            refusal = f"the debugger at {self._settings.address} {error}"
            absent = f"no debugger at {self._settings.address}"
            self._say(f"{refusal if error.refused else absent}; training goes on, it is looked for in the background")
        return None

    def _keep(self, link: Link) -> None:
        """Stays until the connection is lost, or given up by the training's thread."""
        tick = self._settings.timeout / TICKS
        heard = time.monotonic()
        while not link.lost.wait(tick):
            silent = time.monotonic() - heard
            if silent >= PERIOD or (silent >= tick and link.waiting() >= tick):
                error = link.heartbeat(min((TICKS - 2) * tick, self._settings.timeout))
                if error is not None:
                    link.fail(error if str(error) else LinkLostError("is gone"))
                heard = time.monotonic()
        self.link = None
        link.close()
