"""Commands as processes whose stderr is a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from typing import Any


class Terminal:
    """A command whose stderr is a terminal of some width, and whose stdout is a pipe or a file.

    Attributes:
        err: everything the terminal got so far.
        out: what came on stdout, after the end.
    """

    def __init__(self, columns: int, *arguments: object, stdout: Any = subprocess.PIPE) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = [sys.executable, "-m", "tui_debugger", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=stdout, stderr=slave)
        os.close(slave)
        self.err = self.out = ""

    def until(self, text: str) -> None:
        """Reads the terminal until it shows a text."""
        while text not in self.err:
            data = os.read(self.master, 4096)
            assert data, self.err
            self.err += data.decode()

    def interrupt(self) -> int:
        """Ctrl-C, then ``end``: nobody waits for a step that takes minutes."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> int:
        """Waits for the end; the exit code."""
        out, _ = self.process.communicate(timeout=60)
        self.out = (out or b"").decode()
        try:
            while data := os.read(self.master, 4096):
                self.err += data.decode()
        except OSError:  # the other end is closed: Linux says EIO
            pass
        os.close(self.master)
        return self.process.returncode
