"""Processes of trainings that are forked off one process which has imported PyTorch: importing it takes a second.

Each is a real process, with pipes, an exit status and an end of its own, and runs a module as ``python -m`` does. What
a training leaves behind when its interpreter ends is as ever: a fork leaves the loop of its parent, and runs the module
last.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
_MESSAGE = 1 << 20


class Fork:
    """A process, as ``subprocess.Popen`` gives one with pipes for what it says."""

    def __init__(self, pid: int, parent: Parent, stdout: IO[str], stderr: IO[str], stdin: IO[str] | None) -> None:
        self.pid = pid
        self.stdout, self.stderr, self.stdin = stdout, stderr, stdin
        self._parent = parent

    @property
    def returncode(self) -> int | None:
        return self._parent.status(self.pid, 0)

    def poll(self) -> int | None:
        """The exit status; None as long as it runs."""
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 60.0) -> int:
        status = self._parent.status(self.pid, timeout)
        if status is None:
            raise subprocess.TimeoutExpired("a training", timeout)
        return status

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it says until it ends."""
        said: dict[str, str] = {}
        pipes = {"stdout": self.stdout, "stderr": self.stderr}
        readers = [
            threading.Thread(target=lambda name=name, pipe=pipe: said.update({name: pipe.read()}), daemon=True)
            for name, pipe in pipes.items()
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return said["stdout"], said["stderr"]

    def end(self) -> None:
        """Ends the process, however, and closes its pipes."""
        self.kill()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


class Parent:
    """The process that has imported PyTorch."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        self._changed = threading.Condition()
        self._pids: list[int] = []
        self._ended: dict[int, int] = {}
        threading.Thread(target=self._hear, daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """It ends when nobody is there to ask it any more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait()

    def fork(self, module: str, arguments: Sequence[str], *, stdin: bool = False, stderr: int | None = None) -> Fork:
        """A new process that runs a module, with this process' environment.

        Args:
            stdin: it is written to.
            stderr: a file for what it says there, instead of a pipe.
        """
        out, out_there = os.pipe()
        err, err_there = os.pipe()
        pipes = [out_there, err_there if stderr is None else stderr]
        in_there, write = os.pipe() if stdin else (None, None)
        asked = json.dumps({"module": module, "arguments": list(arguments), "environment": dict(os.environ)})
        socket.send_fds(self._socket, [asked.encode()], [*pipes, *([] if in_there is None else [in_there])])
        for each in (out_there, err_there, in_there):
            if each is not None:
                os.close(each)
        with self._changed:
            assert self._changed.wait_for(lambda: self._pids, 60), "PyTorch is still not imported"
            pid = self._pids.pop()
        return Fork(pid, self, os.fdopen(out), os.fdopen(err), None if write is None else os.fdopen(write, "w"))

    def status(self, pid: int, timeout: float) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: pid in self._ended, timeout)
            return self._ended.get(pid)

    def _hear(self) -> None:
        while message := self._socket.recv(_MESSAGE):
            number, status = json.loads(message)
            with self._changed:
                if status is None:
                    self._pids.append(number)
                else:
                    self._ended[number] = status
                self._changed.notify_all()


def finished(module: str, *arguments: object, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Runs a module to its end, in a process of its own."""
    fork = parent().fork(module, [str(each) for each in arguments])
    try:
        out, err = fork.communicate(timeout)
        return subprocess.CompletedProcess([module, *map(str, arguments)], fork.wait(timeout), out, err)
    finally:
        fork.end()


@cache
def parent() -> Parent:
    """One for each process that runs tests; it starts when the first test needs it."""
    return Parent()


def serve(asking: socket.socket) -> tuple[str, list[str]]:
    """Forks whenever that is asked for. Returns in the forks only: the module to run, and its arguments."""
    woken, wakes = socket.socketpair()
    for each in (woken, wakes):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    while True:
        ready, _, _ = select.select([asking, woken], [], [])
        if woken in ready:
            woken.recv(_MESSAGE)
            while (ended := _ended()) is not None:
                asking.send(json.dumps(ended).encode())
        if asking in ready:
            message, pipes, _, _ = socket.recv_fds(asking, _MESSAGE, 3)
            if not message:
                os._exit(0)
            asked = json.loads(message)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for pipe, number in zip(pipes, (1, 2, 0), strict=False):
                    os.dup2(pipe, number)
                for each in (asking, woken, wakes):
                    each.close()
            for pipe in pipes:
                os.close(pipe)
            if not pid:
                os.environ.clear()
                os.environ.update(asked["environment"])
                return asked["module"], asked["arguments"]
            asking.send(json.dumps((pid, None)).encode())


def _ended() -> tuple[int, int] | None:
    """A fork that has ended, and its exit status as ``subprocess`` tells it."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401 - what all this is for; the first step of an optimizer imports it, too

    gc.collect()
    gc.freeze()  # a fork need not look at it, and copy it, again
    module, arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
