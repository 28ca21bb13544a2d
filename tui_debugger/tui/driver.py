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
"""Seconds between two looks whether the stand-in has stopped."""
_LOOKS = 20
_NOT_STOPPED = 0.01
"""Seconds: a stop that took less was none."""
_WAITING: Final = 4
"""Writes that wait for the terminal: a frame is one to three. After 30 of them Textual's driver stops the program."""
_PATIENCE: Final = 1.0
"""Seconds that a terminal gets to take what was written, before the program leaves it."""
_MOMENT: Final = 0.02
"""Seconds that it gets for the next piece of a frame that is being written, up to ``_MOMENTS`` times."""
_MOMENTS: Final = 100


class TerminalDriver(LinuxDriver):
    """Textual's driver stops its own process only, and for good where no shell could let it go on.

    It also waits for ever for a terminal that takes nothing: after Ctrl-S, or at the end of a line that hangs.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._away = False
        self._drawing = False

    def write(self, data: str) -> None:
        """Writes, unless the terminal is the shell's."""
        if not self._away:
            super().write(data)

    def start_application_mode(self) -> None:
        """Takes the terminal."""
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's
        self._drawing = True

    def stop_application_mode(self) -> None:
        """Gives it back."""
        self._drawing = False
        self._make_way()
        super().stop_application_mode()

    @property
    def behind(self) -> bool:
        """Tells whether the terminal has yet to take what was written: another frame would wait behind it."""
        writer = self._writer_thread
        return writer is not None and writer._queue.qsize() >= _WAITING  # noqa: SLF001 - Textual does not say

    def _make_way(self) -> None:
        """Drops what a terminal does not take, so that it can be given back."""
        writer = self._writer_thread
        if writer is None or _takes_more(writer, _PATIENCE):
            return
        with suppress(Empty):
            while True:
                writer._queue.get_nowait()  # noqa: SLF001 - Textual has no way to do it
        number = writer.fileno()
        with suppress(termios.error, OSError):  # the terminal is gone
            termios.tcflow(number, termios.TCOON)  # Ctrl-S
            for _ in range(_MOMENTS):  # the thread that writes has a frame in its hands, larger than what was dropped
                termios.tcflush(number, termios.TCOFLUSH)
                termios.tcsetattr(number, termios.TCSANOW, termios.tcgetattr(number))  # wakes who waits for room
                if _takes_more(writer, _MOMENT):
                    return

    def suspend(self) -> None:
        """Gives the terminal back and stops the job; comes back when it goes on."""
        if self._away:
            return
        if not self._drawing:  # the screen was left, or another program has the terminal
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
        """Comes back where the stand-in did not stop: no shell has the terminal."""
        stopped = job_control.stand_in_has_stopped()
        if not self._away or stopped or (stopped is None and not job_control.in_foreground()):
            return
        if times:
            asyncio.get_running_loop().call_later(_LOOK_EVERY, self._return_if_not_stopped, times - 1)
        else:
            self._come_back()

    def _come_back(self) -> None:
        while self._away and not job_control.in_foreground():  # ``bg``: there is nothing to do without a terminal
            begun = time.monotonic()
            job_control.stop()
            if job_control.stand_in() is not None:
                return  # SIGCONT comes again
            if time.monotonic() - begun < _NOT_STOPPED and not job_control.in_foreground():
                self._app.call_later(self._app.exit)  # no shell is left that could give the terminal
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
    """Waits until a terminal takes what is written; False when it does not."""
    try:
        return bool(select.select([], [terminal], [], seconds)[1])
    except (OSError, ValueError):  # it is gone
        return False
