"""Ctrl-Z: the terminal goes back to the shell until ``fg``.

The screen of a dump stops with its job, as any program does. The screen of live trainings must not stop: trainings
would wait for it, or give it up. There the process that the shell started becomes a stand-in, which stops; the real
program is its child, which gives back the terminal and goes on answering trainings.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from tui_debugger.signals import ENDING

_STAND_IN: list[int] = []
"""Process id of the stand-in of this process; empty without a stand-in."""


def stand_in() -> int | None:
    """Returns the process id of this process's stand-in; None where there is none."""
    return _STAND_IN[0] if _STAND_IN else None


def in_foreground() -> bool:
    """Tells whether this process may use its terminal; True if the terminal is closed."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]  # checked by the except
    except (OSError, ValueError, AttributeError):
        return True


def leave_to_stand_in() -> None:
    """Forks: this process becomes the stand-in, and the program goes on in the child. Call it before starting threads.

    Does nothing where no shell with job control could stop this process.
    """
    if not hasattr(os, "fork") or os.getsid(0) == os.getpid() or not _is_terminal() or not in_foreground():
        return
    living, life = os.pipe()
    stands_in = os.getpid()
    program = os.fork()
    if program:
        os.close(living)
        _stand_in_for(program)  # the open pipe ``life`` shows that the stand-in lives
    os.close(life)
    _STAND_IN.append(stands_in)
    threading.Thread(target=_end_with, args=(living,), name="stand-in", daemon=True).start()


def _is_terminal() -> bool:
    stdin = sys.__stdin__
    return stdin is not None and not stdin.closed and stdin.isatty()


def _end_with(living: int) -> None:
    """Ends the program when the stand-in was killed: no shell could reach the program any more."""
    os.read(living, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _stand_in_for(program: int) -> None:
    """Waits for the program, passes on signals, and ends with the program's exit code or signal."""
    for number in ENDING:
        signal.signal(number, lambda received, _: os.kill(program, received))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the program by itself
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def stop() -> None:
    """Stops all processes of the job; a process with a stand-in does not stop itself.

    Where no shell could continue the job, nothing happens. Without a stand-in, the call returns when the job continues.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL if stand_in() is None else signal.SIG_IGN)
    try:
        os.killpg(os.getpgrp(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)


def stand_in_has_stopped() -> bool | None:
    """Tells whether the stand-in is stopped; None where the system has no ``/proc``."""
    process = stand_in()
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[:1] == ["T"]
