"""The terminal of the program: given back to the shell on Ctrl-Z, and taken again with ``fg``."""

from __future__ import annotations

import asyncio
import select
import termios
import time
from contextlib import suppress
from queue import Empty
from typing import Any, Final

from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver

from tui_debugger.tui import job_control

_LOOK_EVERY = 0.05
"""Seconds between two checks whether the stand-in has stopped (see ``job_control``)."""
_LOOKS = 20
_NOT_STOPPED = 0.01
"""Seconds: a stop that returned sooner did not stop the process."""
_WAITING: Final = 4
"""Writes in the queue that count as behind: a frame is one to three writes. Textual's driver blocks the program at 30.
"""
_PATIENCE: Final = 1.0
"""Seconds that a terminal gets to take the queued writes before the program leaves it."""
_MOMENT: Final = 0.02
"""Seconds that a terminal gets for the next piece of the frame being written, up to ``_MOMENTS`` times."""
_MOMENTS: Final = 100


class TerminalDriver(LinuxDriver):
    """A driver that stops the whole job on Ctrl-Z, and does not block when the terminal takes no output.

    Textual's driver stops its own process only, for good where no shell could continue it. It also waits for ever for a
    terminal that takes nothing: after Ctrl-S, or at the end of a connection that hangs.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._away = False
        self._drawing = False

    def write(self, data: str) -> None:
        """Writes, unless the shell has the terminal."""
        if not self._away:
            super().write(data)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's
        self._drawing = True

    def stop_application_mode(self) -> None:
        self._drawing = False
        self._make_way()
        super().stop_application_mode()

    @property
    def behind(self) -> bool:
        """Tells whether so many writes wait for the terminal that another frame would only wait behind them."""
        writer = self._writer_thread
        return writer is not None and writer._queue.qsize() >= _WAITING  # noqa: SLF001 - Textual does not say

    def _make_way(self) -> None:
        """Drops output that the terminal does not take, so that the terminal can be given back."""
        writer = self._writer_thread
        if writer is None or _takes_more(writer, _PATIENCE):
            return
        with suppress(Empty):
            while True:
                writer._queue.get_nowait()  # noqa: SLF001 - Textual has no way to do it
        number = writer.fileno()
        with suppress(termios.error, OSError):  # the terminal was closed
            termios.tcflow(number, termios.TCOON)  # undoes Ctrl-S
            for _ in range(_MOMENTS):  # the writer thread may still be writing one large frame
                termios.tcflush(number, termios.TCOFLUSH)
                termios.tcsetattr(number, termios.TCSANOW, termios.tcgetattr(number))  # wakes the blocked writer
                if _takes_more(writer, _MOMENT):
                    return

    def suspend(self) -> None:
        """Gives the terminal back and stops the job; takes the terminal again when the job continues."""
        if self._away:
            return
        if not self._drawing:  # the screen does not own the terminal now
            job_control.stop()
            return
        self.suspend_application_mode()
        self._away = True
        job_control.stop()
        if job_control.stand_in() is None:
            self._come_back()
        else:
            self._return_if_not_stopped(_LOOKS)

    def _return_if_not_stopped(self, times: int) -> None:
        """Takes the terminal again if the stand-in did not stop: then there is no shell with job control."""
        stopped = job_control.stand_in_has_stopped()
        if not self._away or stopped or (stopped is None and not job_control.in_foreground()):
            return
        if times:
            asyncio.get_running_loop().call_later(_LOOK_EVERY, self._return_if_not_stopped, times - 1)
        else:
            self._come_back()

    def _come_back(self) -> None:
        while self._away and not job_control.in_foreground():  # ``bg``: the screen is useless in the background
            begun = time.monotonic()
            job_control.stop()
            if job_control.stand_in() is not None:
                return  # SIGCONT comes again
            if time.monotonic() - begun < _NOT_STOPPED and not job_control.in_foreground():
                self._app.call_later(self._app.exit)  # no shell is left that could hand over the terminal
                return
        if self._away:
            self._away = False
            self.resume_application_mode()
            self._app.post_message(self.SignalResume())
            self._app.call_later(self._draw_anew)

    def _draw_anew(self) -> None:
        screen = self._app.screen
        screen.refresh(repaint=True, layout=True)

    def _sigtstp_application(self, *_: object) -> None:
        self.suspend()

    def _sigcont_application(self, *_: object) -> None:
        self._come_back()


def _takes_more(terminal: WriterThread, seconds: float) -> bool:
    """Waits until a terminal takes more output; False when it does not within ``seconds``."""
    try:
        return bool(select.select([], [terminal], [], seconds)[1])
    except (OSError, ValueError):  # the terminal was closed
        return False
