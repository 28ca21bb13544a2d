"""Processes that tests talk to line by line."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping

from typing_extensions import Self

from tests.patience import PATIENCE

ENDED = "<ended>"


class Process:
    """A Python module in a process of its own; what it prints is read as it comes."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        own = {key: value for key, value in os.environ.items() if not key.startswith("TDBG_")}
        self.popen = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**own, **(environment or {})},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self._readers = [threading.Thread(target=target, daemon=True) for target in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
        self.popen.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(ENDED)

    def _read_errors(self) -> None:
        assert self.popen.stderr is not None
        self.errors.extend(line.rstrip("\n") for line in self.popen.stderr)

    def line(self) -> str:
        """The next line that it prints."""
        return self._lines.get(timeout=PATIENCE)

    def until(self, wanted: str) -> list[str]:
        """All lines up to this one, which must come."""
        lines = [self.line()]
        while lines[-1] != wanted:
            assert lines[-1] != ENDED, f"ended without {wanted!r}: {lines} {self.errors}"
            lines.append(self.line())
        return lines

    def say(self, line: str) -> None:
        """Writes a line to its input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self.popen.send_signal(number)

    def finish(self) -> tuple[int, list[str]]:
        """Waits for its end: exit status and everything on its standard error."""
        status = self.popen.wait(PATIENCE)
        self._readers[1].join(PATIENCE)
        return status, self.errors


def training(address: str, *arguments: str, timeout: float = 1.0, program: str = "training", run: str = "") -> Process:
    """The training of ``training.py``, which looks for its debugger at an address; ``run``: one launcher's."""
    host, _, port = (address, "", "") if address.startswith("unix:") else address.rpartition(":")
    return Process(
        f"tests.live.client.{program}",
        *(("--timeout", str(timeout)) if program == "training" else ()),
        *arguments,
        environment={
            "TDBG_HOST": host,
            **({"TDBG_PORT": port} if port else {}),
            **({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": run} if run else {}),
        },
    )


def debugger(address: str = "127.0.0.1:0", *, hold: str = "") -> tuple[Process, str]:
    """A debugger in a process of its own, and where it listens."""
    process = Process("tests.live.client.debugger", address, *([hold] if hold else []))
    return process, process.line()
