"""A real pseudo-terminal with an emulated screen: starts the program as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyte
from typing_extensions import Self

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


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """Runs ``tdbg`` in a pty of the given size; ``text()`` is what a person would see.

    Waiting is always on a condition: a reader thread feeds the emulator and wakes the waiters.
    """

    def __init__(
        self, arguments: Sequence[str], *, columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Condition()
        self.output = bytearray()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave  # stays open, so that the settings can be compared after the program has gone
        # A test runner may export its own size, which would win over the terminal's.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        variables = {**inherited, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1", **(env or {})}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tui_debugger", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=variables,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - one ioctl; without it no resize and no hang-up arrives
            cwd=Path(__file__).parents[2],
        )
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._stop.set()
        self._reader.join(10)
        os.close(self.master)
        os.close(self._slave)

    def _read(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self.master], [], [], 0.05)
            if not ready:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            with self._changed:
                self.output += data
                self._stream.feed(data)
                self._changed.notify_all()

    def text(self) -> str:
        """The screen as lines of text."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self.screen.display)

    def send(self, *keys: str) -> None:
        """Types names of KEYS or literal text."""
        for key in keys:
            os.write(self.master, KEYS.get(key, key).encode())

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size as a terminal window would."""
        with self._changed:
            self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, wanted: str | Callable[[str], bool], timeout: float = 30) -> str:
        """Waits until the screen shows a text (or a predicate holds) and returns the screen."""
        holds = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                text = "\n".join(line.rstrip() for line in self.screen.display)
                if holds(text):
                    return text
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"waited {timeout} s for {wanted!r}; the screen shows:\n{text}")
                self._changed.wait(min(left, 1))

    def wait_exit(self, timeout: float = 30) -> int:
        """Waits for the program to end and returns its exit code."""
        return self.process.wait(timeout)

    def settings(self) -> list[object]:
        """The terminal's settings now, to compare with ``before``."""
        return list(termios.tcgetattr(self._slave))
