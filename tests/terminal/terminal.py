"""A real pseudo-terminal with an emulated screen: starts the program as a person would."""

from __future__ import annotations

import fcntl
import struct
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final

import pyte

from tests.patience import PATIENCE
from tests.terminal.program import Program

_QUIET: Final = 0.01
"""Seconds without output after which a frame is taken for whole."""


class Terminal(Program):
    """Runs ``tdbg`` in a pty of the given size; ``text()`` is what a person would see.

    Waiting is always on a condition: a reader thread feeds the emulator and wakes the waiters.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "tui_debugger"),
    ) -> None:
        super().__init__([*program, *arguments], columns=columns, rows=rows, env=env)
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self._changed = threading.Condition()
        self.output = bytearray()
        self._stop = threading.Event()
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.stop_reading()
        super().__exit__(kind, value, trace)

    def stop_reading(self) -> None:
        """Takes nothing more, as the end of a line that hangs."""
        self._stop.set()
        self._reader.join(10)

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                data = self.read(0.05)
            except OSError:
                break
            if data:
                with self._changed:
                    self.output += data
                    self._stream.feed(data)
                    self._changed.notify_all()

    def text(self) -> str:
        """The screen as lines of text."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self.screen.display)

    def resize(self, columns: int, rows: int) -> None:
        """Changes the size as a terminal window would."""
        with self._changed:
            self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, wanted: str | Callable[[str], bool], timeout: float = PATIENCE) -> str:
        """Waits until the screen shows a text (or a predicate holds) and all of the frame, and returns the screen."""
        holds = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                text = "\n".join(line.rstrip() for line in self.screen.display)
                left = deadline - time.monotonic()
                if holds(text):
                    if left > 0 and self._changed.wait(_QUIET):
                        continue  # there was more of the frame, whose lines are not written one after the other
                    return text
                if left <= 0:
                    raise AssertionError(f"waited {timeout} s for {wanted!r}; the screen shows:\n{text}")
                self._changed.wait(min(left, 1))
