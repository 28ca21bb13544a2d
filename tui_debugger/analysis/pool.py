"""A pool of worker processes that is safe to start at any time.

``concurrent.futures.ProcessPoolExecutor`` would do but for its ways to start a process. *fork* is unsafe while other
threads run, and the screen has several. *spawn* and *forkserver* run the main module of the program again in each
process, which is a user's training script when this is used as a library. Here a worker is a fresh interpreter that
imports ``analysis`` and nothing else; it dies with its parent, as its stdin ends, and is replaced when it is killed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO, Any, Final, TypeVar, cast

from tui_debugger.analysis.worker import ENVIRONMENT, START, receive, send

T = TypeVar("T")

REPLACED: Final = 3
"""Workers that are replaced before the pool gives up: something must be killing them."""
PATIENCE: Final = 1.0
"""Seconds to wait for a killed process: it may hang in a read of a file server that is gone."""

GONE: Final = "a worker process is gone"

_Call = tuple[Callable[..., Any], tuple[Any, ...]]
_Task = tuple["Future[Any]", _Call]


class LostWorkerError(BrokenExecutor):
    """The worker that had the task is gone; the task can be given to another one."""


class OwnExecutor(Executor):
    """What executors that belong to this program can say beyond what all executors can.

    Attributes:
        remote: whether the workers may see other files than this machine does.
    """

    remote = False

    @property
    def ready(self) -> bool:
        """Whether a worker is there to take a task."""
        return True

    @property
    def broken(self) -> bool:
        """Whether no worker is left, nor can be expected."""
        return False


class Pool(OwnExecutor):
    """Local worker processes. Cheap to make: they are started by ``start`` or by the first task."""

    def __init__(self, workers: int) -> None:
        """``workers``: number of processes."""
        self._max_workers = workers
        self._crew = _Crew(workers)
        self._finalizer = weakref.finalize(self, self._crew.stop)

    def start(self) -> None:
        """Starts the processes without waiting for them. Idempotent."""
        self._crew.start()

    @property
    def ready(self) -> bool:
        """Whether a worker is there to take a task."""
        return self._crew.ready > 0

    @property
    def broken(self) -> bool:
        """Whether no worker is left, nor can be expected."""
        return self._crew.broken

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Hands over a call of a function that a worker can import.

        Raises:
            BrokenExecutor: no worker is left, or the pool was shut down.
        """
        if kwargs:
            msg = "a worker takes no keyword arguments"
            raise TypeError(msg)
        return self._crew.submit((fn, args))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """Ends the processes at once, whatever they are doing; what was not finished fails. Idempotent."""
        self._finalizer()


class _Crew:
    """What the threads of a pool share. They do not hold the pool itself, so that a forgotten one ends."""

    def __init__(self, size: int) -> None:
        self.ready = 0
        self.broken = False
        self._owner = os.getpid()
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._size = size
        self._hands = 0
        self._replaced = 0
        self._processes: set[_Process] = set()

    def start(self) -> None:
        """Begins work."""
        with self._lock:
            if self._hands or self.broken:
                return
            self._hands = self._size
        threads = [threading.Thread(target=self._work, name="tdbg worker", daemon=True) for _ in range(self._size)]
        while threads:
            try:
                threads.pop().start()
            except RuntimeError:  # no more threads on this machine  # noqa: PERF203 - never, usually
                self._leave()

    def submit(self, call: _Call) -> Future[Any]:
        """Queues a call."""
        self.start()
        future: Future[Any] = Future()
        with self._lock:
            if self.broken:
                msg = "no worker is left"
                raise BrokenExecutor(msg)
            self._tasks.put((future, call))
        return future

    def stop(self) -> None:
        """Ends everything."""
        if os.getpid() != self._owner:  # the copy of a pool in a process that somebody forked
            return
        with self._lock:
            self.broken = True
            processes = list(self._processes)
        self._drop_tasks()
        for _ in range(self._size):
            self._tasks.put(None)
        for process in processes:
            process.end()

    def _work(self) -> None:
        """One thread, which has one process at a time."""
        process = None
        try:
            process = self._hire()
            while process is not None and (task := self._tasks.get()) is not None:
                future, call = task
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(process.ask(call))
                except LostWorkerError as error:
                    self._dismiss(process)
                    process = self._hire(replaced=True)  # first: who gets the error may try again at once
                    future.set_exception(error)
                except Exception as error:  # noqa: BLE001 - of the call, whatever it is
                    future.set_exception(error)
        finally:
            if process is not None:
                self._dismiss(process)
            self._leave()

    def _hire(self, *, replaced: bool = False) -> _Process | None:
        """A process that is there; None when none can be had."""
        if not self._may_hire(replaced=replaced):
            return None
        try:
            process = _Process()
        except (OSError, ValueError):
            return None
        with self._lock:
            self._processes.add(process)
            stopped = self.broken
        if stopped:  # while it was being started
            process.end()
        try:
            process.greet()
        except LostWorkerError:
            self._dismiss(process, counted=False)
            return None
        with self._lock:
            self.ready += 1
        return process

    def _may_hire(self, *, replaced: bool) -> bool:
        if getattr(sys, "frozen", False):  # the executable is no Python, but this program in one file
            return False
        with self._lock:
            self._replaced += replaced
            return not self.broken and self._replaced <= REPLACED

    def _dismiss(self, process: _Process, *, counted: bool = True) -> None:
        process.end()
        process.close()
        with self._lock:
            self._processes.discard(process)
            self.ready -= counted

    def _leave(self) -> None:
        with self._lock:
            self._hands -= 1
            last = not self._hands
            self.broken |= last
        if last:
            self._drop_tasks()

    def _drop_tasks(self) -> None:
        with suppress(Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is not None and task[0].set_running_or_notify_cancel():
                    task[0].set_exception(BrokenExecutor("no worker is left"))


class _Process:
    """One worker process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-I", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a traceback must not run over the screen
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,  # Ctrl-C at the terminal is not meant for it
        )
        self._calls = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)

    def greet(self) -> None:
        """Waits until it is there."""
        self._send(sys.path)
        self._receive()

    def ask(self, call: _Call) -> Any:
        """The result of a call.

        Raises:
            LostWorkerError: the process is gone.
            Exception: what the call raised.
        """
        self._send(call)
        ok, result = pickle.loads(self._receive())  # noqa: S301 - our own worker's
        if not ok:
            raise result
        return result

    def end(self) -> None:
        """Kills it: there is nothing that it could leave half done."""
        with suppress(OSError):
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)

    def close(self) -> None:
        """Lets go of it, after its end. Only for the thread that talks to it."""
        for pipe in (self._calls, self._answers):
            with suppress(OSError):  # there is something left that could not be sent
                pipe.close()

    def _send(self, message: object) -> None:
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            send(self._calls, data)
        except (OSError, ValueError) as error:
            raise LostWorkerError(GONE) from error

    def _receive(self) -> bytes:
        try:
            return receive(self._answers)
        except (EOFError, OSError, ValueError) as error:
            raise LostWorkerError(GONE) from error
