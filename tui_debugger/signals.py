"""Ends a process by a signal in an orderly way: a command as after Ctrl-C, a screen as after ``q``, code 128 + n.

So the clean-up runs: the terminal is restored, unfinished files and spools are removed, trainings are released.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from tui_debugger.errors import CancelledError

ENDING: Final = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "ABRT", "XCPU")
    if hasattr(signal, f"SIG{name}")
)
"""The signals that others send and that end a process which does not handle them: Slurm warns with USR1."""


def exit_code(number: int) -> int:
    return 128 + number


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Makes every ending signal act as Ctrl-C does at that moment, with its own exit code."""
    usual = CancelledError.exit_code

    def end(number: int, frame: FrameType | None) -> None:
        CancelledError.exit_code = exit_code(number)
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:  # SIGINT is ignored, as in a background job of a script
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # An ignored signal stays ignored: nohup asks for that.
    before = {number: signal.getsignal(number) for number in ENDING}
    mine = [number for number in ENDING if before[number] == signal.SIG_DFL]
    for number in mine:
        signal.signal(number, end)
    try:
        yield
    finally:
        CancelledError.exit_code = usual
        for number in mine:
            signal.signal(number, before[number])
