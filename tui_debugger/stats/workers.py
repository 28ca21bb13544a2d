"""The workers of a session: this thread, a pool of local processes, or an executor that was given.

``concurrent.futures.ProcessPoolExecutor`` would do but for its ways to start a process. *fork* is unsafe while other
threads run, and the screen has several. *spawn* and *forkserver* run the main module of the program again in each
process, which is a user's training script when this is used as a library. Here a worker is a fresh interpreter that
imports ``stats`` and runs ``serve``: calls come in through stdin, answers go out through stdout. It dies with its
parent, as its stdin ends, and is replaced when it is killed.

Measured on 2 cores with files in the page cache, speed against one thread right here:

* 2 GB in 1,170 float32 tensors, everything asked: two threads 0.9x, two processes 1.8x. Between two pieces numpy holds
  the interpreter's lock for most of the time, so that threads only take it from each other.
* 47,500 files of some hundred bytes: two threads 0.9x, two processes 1.5x.
* A worker process is there 0.1 s after it was asked for, and keeps 20 MB of memory.

So: processes, as soon as there is work for more than the time that they take to start; the work begins right here until
they are there (see ``scan``).
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import IO, Any, Final, NoReturn, TypeVar, cast

START: Final = """\
import sys
size = int.from_bytes(sys.stdin.buffer.read(8), "little")
sys.path[:] = __import__("pickle").loads(sys.stdin.buffer.read(size))
from tui_debugger.stats.workers import serve
serve("tui_debugger.stats.scan")
"""
"""The program of a worker: it first gets the places where its modules are. What it is going to need is loaded before
anybody waits for it; its name stands here because that module imports this one."""
_ONE_THREAD: Final = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Every core has a worker already: more threads would take memory and time from each other."""
_KEEP_FREED: Final = {"MALLOC_MMAP_THRESHOLD_": str(1 << 22), "MALLOC_TRIM_THRESHOLD_": str(1 << 24)}
"""Memory of arrays is used again (glibc): by default it goes back to the system and comes anew, page by page, for every
window of small tensors, which takes a quarter of the time. 16 MB of it are kept at most."""
ENVIRONMENT: Final = _ONE_THREAD | _KEEP_FREED
"""The variables that a worker's environment has beyond ours."""


def send(pipe: IO[bytes], message: bytes) -> None:
    """Writes a message."""
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """Reads a message.

    Raises:
        EOFError: there is none left, or it breaks off.
    """
    size = int.from_bytes(pipe.read(8), "little")
    message = pipe.read(size)
    if not size or len(message) < size:
        raise EOFError
    return message


def serve(module: str) -> NoReturn:
    """Answers calls until nobody is left to make any.

    The first message just says that the worker is there; an answer is (True, result) or (False, exception), pickled.

    Args:
        module: is imported first.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever presses Ctrl-C means the parent, and that decides
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the answers
    import_module(module)
    try:
        send(answers, b"here")
        while True:
            send(answers, _answer(receive(calls)))
    except (EOFError, OSError):
        os._exit(0)  # nothing is left to be put in order: a worker only reads


def _answer(message: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(message)  # noqa: S301 - the parent's own
        return pickle.dumps((True, function(*arguments)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - the parent gets it, whatever it is
        try:
            return pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - or hears of it
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


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
    """The interface of executors that belong to this program, beyond that of all executors.

    Attributes:
        remote: whether the workers may see other files than this machine does.
    """

    remote = False

    @property
    def ready(self) -> bool:
        """True if a worker is there to take a task."""
        return True

    @property
    def broken(self) -> bool:
        """True if no worker is left, nor can be expected."""
        return False


class Pool(OwnExecutor):
    """Local worker processes. Cheap to make: they are started by ``start`` or by the first task."""

    def __init__(self, workers: int) -> None:
        """``workers``: number of processes."""
        self._max_workers = workers
        self._threads = _PoolThreads(workers)
        self._finalizer = weakref.finalize(self, self._threads.stop)

    def start(self) -> None:
        """Starts the processes without waiting for them. Idempotent."""
        self._threads.start()

    @property
    def ready(self) -> bool:
        """True if a worker is there to take a task."""
        return self._threads.ready > 0

    @property
    def broken(self) -> bool:
        """True if no worker is left, nor can be expected."""
        return self._threads.broken

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Hands over a call of a function that a worker can import.

        Raises:
            BrokenExecutor: no worker is left, or the pool was shut down.
        """
        if kwargs:
            msg = "a worker takes no keyword arguments"
            raise TypeError(msg)
        return self._threads.submit((fn, args))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """Ends the processes at once, whatever they are doing; what was not finished fails. Idempotent."""
        self._finalizer()


class _PoolThreads:
    """The state that the threads of a pool share. They do not hold the pool itself, so that a forgotten one ends."""

    def __init__(self, size: int) -> None:
        self.ready = 0
        self.broken = False
        self._owner = os.getpid()
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._size = size
        self._running = 0
        self._replaced = 0
        self._processes: set[_Process] = set()

    def start(self) -> None:
        """Begins work."""
        with self._lock:
            if self._running or self.broken:
                return
            self._running = self._size
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
            process = self._start_process()
            while process is not None and (task := self._tasks.get()) is not None:
                future, call = task
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(process.ask(call))
                except LostWorkerError as error:
                    self._end_process(process)
                    process = self._start_process(replaced=True)  # first: who gets the error may try again at once
                    future.set_exception(error)
                except Exception as error:  # noqa: BLE001 - of the call, whatever it is
                    future.set_exception(error)
        finally:
            if process is not None:
                self._end_process(process)
            self._leave()

    def _start_process(self, *, replaced: bool = False) -> _Process | None:
        """Returns a process that is there; None when none can be had."""
        if not self._may_start(replaced=replaced):
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
            self._end_process(process, counted=False)
            return None
        with self._lock:
            self.ready += 1
        return process

    def _may_start(self, *, replaced: bool) -> bool:
        if getattr(sys, "frozen", False):  # the executable is no Python, but this program in one file
            return False
        with self._lock:
            self._replaced += replaced
            return not self.broken and self._replaced <= REPLACED

    def _end_process(self, process: _Process, *, counted: bool = True) -> None:
        process.end()
        process.close()
        with self._lock:
            self._processes.discard(process)
            self.ready -= counted

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            last = not self._running
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
        """Returns the result of a call.

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


WORTH_STARTING: Final = 1 << 27
"""Bytes of work, as ``measure.costs`` counts it, from which on worker processes are started: 0.1 s right here."""
WORTH_HANDING_OVER: Final = 1 << 23
"""The same for workers that are there: some 5 ms."""
MOST_JOBS: Final = 8
"""Workers that are started unless more are asked for: storage is slower than so many, and each takes memory."""


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on this system
        return os.cpu_count() or 1


class Workers:
    """The workers that a session measures tensors with. Cheap to make; safe to use from several threads.

    Attributes:
        parallel: how many work at the same time once it is worth it.
        closed: whether ``close`` was called.
        asked: cost of all work so far, see ``measure.costs``.
    """

    def __init__(self, jobs: int | None = None, executor: Executor | None = None) -> None:
        """Nothing is started before it is worth it.

        Args:
            jobs: local processes; 1 works right here, None takes the cores of this process, at most ``MOST_JOBS``.
            executor: works instead of local processes, whatever ``jobs`` says. ``close`` shuts it down when it came
                from ``cluster.executor_of``; any other is the caller's.
        """
        self.parallel = jobs if jobs is not None else min(cores(), MOST_JOBS)
        self.closed = False
        self.asked = 0
        self._lock = threading.Lock()
        self._executor = executor
        if executor is not None:
            self.parallel = int(getattr(executor, "_max_workers", 0)) or cores()
        self._local = executor is None
        self._working = executor is not None
        self._notices: list[str] = []

    @property
    def notices(self) -> tuple[str, ...]:
        """The problems that did not spoil the results, one sentence each."""
        return tuple(self._notices)

    def note(self, text: str) -> None:
        """Adds a notice, once."""
        with self._lock:
            if text not in self._notices:
                self._notices.append(text)

    def executor(self, cost: int) -> Executor | None:
        """Returns where to do work of a cost (see ``measure.costs``); None: right here."""
        with self._lock:
            self.asked += cost
            if self.closed or (self.parallel < 2 and self._local):
                return None
            if cost < (WORTH_HANDING_OVER if self._working else WORTH_STARTING):
                return None
            return self._started()

    def prestart(self, cost: int = WORTH_STARTING) -> bool:
        """Starts local processes in the background, for whoever knows that work of this cost is coming. Cheap.

        Returns whether anybody else works.
        """
        with self._lock:
            if not self.closed and self._local and self.parallel > 1 and cost >= WORTH_STARTING:
                self._started()
            return self._executor is not None

    def give_up(self, executor: Executor, why: str) -> None:
        """No more work for an executor that is broken; all work is done right here from now on."""
        with self._lock:
            if executor is not self._executor or self.closed:
                return
            self._executor, self._working = None, False
            self._local, self.parallel = True, 1
        _end(executor)
        self.note(why)

    def close(self) -> None:
        """Stops everything at once, work that is still going on included. Idempotent."""
        with self._lock:
            self.closed = True
            executor, self._executor = self._executor, None
        if executor is not None:
            _end(executor)

    def _started(self) -> Executor | None:
        if self._executor is None and self._local:
            pool = Pool(self.parallel)
            pool.start()
            self._executor, self._working = pool, True
        return self._executor


def _end(executor: Executor) -> None:
    if isinstance(executor, OwnExecutor):
        executor.shutdown()
