"""A program in a real pseudo-terminal: what it writes, as bytes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from tests.patience import PATIENCE

TREE = Path(__file__).parents[2]
KEYS = {
    "enter": "\r",
    "esc": "\x1b",
    "tab": "\t",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "pgdn": "\x1b[6~",
    "pgup": "\x1b[5~",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "ctrl+p": "\x10",
    "ctrl+c": "\x03",
}


OWN_TERMINAL = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Takes the terminal, without which no resize and no hang-up arrives, and becomes the program. In a process of its own:
between fork and exec of one with threads in it, Python code can end in an abort."""


class Program:
    """A Python program (``-m MODULE ...`` or ``-c CODE``) in a pty of the given size.

    Attributes:
        process: the program.
        master: our end of the terminal.
        slave: its end.
        before: the settings of the terminal before the program started.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        tree: Path = TREE,
    ) -> None:
        """Starts it; ``env`` is added to the environment, ``tree`` is where the program's modules are."""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave  # stays open, so that the settings can be compared after the program has gone
        # A test runner may export its own size, which would win over the terminal's.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        variables = {**inherited, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1", **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", OWN_TERMINAL, sys.executable, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=variables,
            start_new_session=True,
            cwd=tree,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self.master)
        os.close(self.slave)

    def read(self, timeout: float) -> bytes:
        """What it writes next; empty when nothing came in time. Raises OSError when the terminal is gone."""
        ready, _, _ = select.select([self.master], [], [], timeout)
        return os.read(self.master, 65536) if ready else b""

    def send(self, *keys: str) -> None:
        """Types names of KEYS or literal text."""
        for key in keys:
            os.write(self.master, KEYS.get(key, key).encode())

    def hang_up(self) -> None:
        """Takes the terminal away, as a connection that is lost does."""
        os.close(self.master)
        os.close(self.slave)
        self.master, self.slave = os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR)

    def wait_exit(self, timeout: float = PATIENCE) -> int:
        """Waits for the program to end and returns its exit code."""
        return self.process.wait(timeout)

    def settings(self) -> list[object]:
        """The terminal's settings now, to compare with ``before``."""
        return list(termios.tcgetattr(self.slave))
