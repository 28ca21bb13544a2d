"""The workers of a session: this thread, threads of this process, or a given executor.

Most time of a batch of files or a span of a tensor is one call of the kernel, which releases the GIL. So threads share
the work without the cost of worker processes: 0.1 s of start, 20 MB of memory each, and every result pickled.

Measured on 2 busy cores with files in the page cache, whole ``tdbg check`` of seven conditions, processor time with two
processes and with two threads: 2 GB in 64 files 1.72 s and 1.47 s, 47,500 small files 2.0 s and 1.7 s, one tensor of 1
GB 1.12 s and 0.84 s. Without the kernel, threads wait for each other more than processes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from concurrent.futures import CancelledError as DroppedError
from itertools import islice
from typing import Any, Final, ParamSpec, TypeVar

from tui_debugger.errors import CancelledError

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")


class LostWorkerError(BrokenExecutor):
    """The worker of a task is gone; another worker can do the task."""


class OwnExecutor(Executor):
    """An executor of this program; ``remote``: the workers may see other files than this machine does."""

    remote = False

    @property
    def broken(self) -> bool:
        """Tells whether no worker is left, nor can be expected."""
        return False


_IDLE_SECONDS: Final = 10.0


class DaemonThreads(OwnExecutor):
    """Runs work in at most ``most`` daemon threads, which start when needed and end when idle.

    Threads of ``ThreadPoolExecutor`` are joined at exit: a file that never comes, or a training that waits for a
    command, would block the exit forever. A thread may be held for hours, so work waits for one only when all allowed
    threads run. The queue is not bounded here: the caller bounds it.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        # Ctrl-C may interrupt the holder of the lock: only the lock's own ``with`` surely releases it, not that of
        # the condition, which Python can interrupt between acquiring and entering.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[tuple[Future[Any], Callable[[], None]]] = deque()
        self._threads = self._waiting = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises RuntimeError after ``shutdown``, or when this machine has no thread left."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries it to the caller
                future.set_exception(error)

        with self._lock:
            if self._ended:
                msg = "no work is taken any more"
                raise RuntimeError(msg)
            if len(self._queue) < self._waiting:
                self._changed.notify()
            elif self._threads < self._most:
                named_daemon(self._run, f"{self._name}-{self._threads + 1}")
                self._threads += 1
            self._queue.append((future, work))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """Takes no more work; threads end after the queue, or at once with ``cancel_futures``. Never waits."""
        dropped: list[Future[Any]] = []
        with self._lock:
            self._ended = True
            if cancel_futures:
                dropped = [future for future, _ in self._queue]
                self._queue.clear()
            self._changed.notify_all()
        for future in dropped:
            future.cancel()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            self._waiting += 1
            self._changed.wait_for(lambda: self._queue or self._ended, _IDLE_SECONDS)
            self._waiting -= 1
            if self._queue:
                return self._queue.popleft()[1]
            self._threads -= 1
            return None


def named_daemon(target: Callable[[], Any], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


WORTH_HANDING_OVER: Final = 1 << 23
"""Bytes of work (as ``measure.costs`` counts) from which on other workers share it: some 5 ms."""
MOST_JOBS: Final = 8
"""Default limit of threads: storage is not faster with more, and each takes memory."""
AHEAD: Final = 2
"""Pieces of work handed over for each worker: one is worked on, one waits."""
POLL: Final = 0.05
"""The most seconds between two calls of ``progress`` while workers work: it may cancel."""


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # does not exist on this system
        return os.cpu_count() or 1


def nobody_waits() -> None:
    """Does nothing while others work."""


def in_order(
    executor: Executor,
    most: int,
    function: Callable[[Item], T],
    items: Iterable[Item],
    waiting: Callable[[], None] = nobody_waits,
) -> Iterator[T]:
    """Yields ``function(item)`` for each item, in their order, with at most ``most`` items handed over at a time.

    ``waiting`` is called in this thread while it waits; when it raises, no more item is handed over.
    """
    left, pending = iter(items), deque[Future[T]]()

    def handed_over(item: Item) -> Future[T]:
        try:
            return executor.submit(function, item)
        except RuntimeError:  # it was shut down, or this machine has no thread left
            waiting()
            done = Future[T]()
            done.set_result(function(item))
            return done

    try:
        while True:
            pending.extend(map(handed_over, islice(left, most - len(pending))))
            if not pending:
                return
            waiting()
            while not pending[0].done():
                wait(pending, POLL, FIRST_COMPLETED)
                waiting()
            yield _result(pending.popleft())
    finally:
        for future in pending:
            future.cancel()


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except DroppedError as error:  # cancelled before it began
        raise CancelledError("closed") from error


class MeasureWorkers:
    """The workers that a session measures tensors with. Cheap to make; thread-safe.

    ``parallel`` work at the same time when it is worth sharing. ``asked`` is the cost so far, see ``measure.costs``.
    """

    def __init__(self, jobs: int | None = None, executor: Executor | None = None) -> None:
        """Starts nothing yet.

        ``jobs`` None takes the cores of this process, at most ``MOST_JOBS``; 1 works in the calling thread. An
        ``executor`` works instead of our threads; ``close`` shuts it down only if it came from ``cluster.executor_of``.
        """
        self.parallel = jobs if jobs is not None else min(cores(), MOST_JOBS)
        self.closed = False
        self.asked = 0
        self._lock = threading.Lock()
        self._executor = executor
        if executor is not None:
            self.parallel = int(getattr(executor, "_max_workers", 0)) or cores()
        self._local = executor is None
        self._notices: list[str] = []

    @property
    def notices(self) -> tuple[str, ...]:
        """Problems that did not spoil the results, one sentence each."""
        return tuple(self._notices)

    @property
    def local(self) -> bool:
        """Tells whether no executor was given, so that all work happens in this process, on these arrays."""
        return self._local

    def note(self, text: str) -> None:
        """Adds a notice, once."""
        with self._lock:
            if text not in self._notices:
                self._notices.append(text)

    def shares(self, cost: int) -> bool:
        """Tells whether workers exist already, or would share work of this cost (see ``measure.costs``)."""
        return self._executor is not None or self._is_worth_sharing(cost)

    def executor(self, cost: int) -> Executor | None:
        """Returns the executor for work of this cost (see ``measure.costs``); None: the calling thread."""
        with self._lock:
            self.asked += cost
            if not self._is_worth_sharing(cost):
                return None
            if self._executor is None and self._local:
                self._executor = DaemonThreads(self.parallel, "tdbg worker")
            return self._executor

    def _is_worth_sharing(self, cost: int) -> bool:
        return not self.closed and cost >= WORTH_HANDING_OVER and (self.parallel > 1 or not self._local)

    def map(
        self,
        function: Callable[[Item], T],
        items: Iterable[Item],
        cost: int,
        waiting: Callable[[], None] = nobody_waits,
    ) -> Iterator[T]:
        """Yields ``function(item)`` for each item, in their order; only threads of this process share the work.

        ``cost`` is of all items. ``waiting`` is called in this thread again and again; when it raises, no more item is
        handed over. Raises CancelledError when the workers were closed meanwhile.
        """

        def go_on() -> None:
            if self.closed:
                raise CancelledError("closed")
            waiting()

        executor = self.executor(cost)
        if isinstance(executor, DaemonThreads):
            yield from in_order(executor, self.parallel * AHEAD, function, items, go_on)
            return
        for item in items:
            go_on()
            yield function(item)

    def give_up(self, executor: Executor, why: str) -> None:
        """Stops using a broken executor; the calling thread does all work from now on."""
        with self._lock:
            if executor is not self._executor or self.closed:
                return
            self._executor, self._local, self.parallel = None, True, 1
        _end(executor)
        self.note(why)

    def close(self) -> None:
        """Stops everything: running work ends at its next step. Idempotent."""
        with self._lock:
            self.closed = True
            executor, self._executor = self._executor, None
        if executor is not None:
            _end(executor)


def _end(executor: Executor) -> None:
    if isinstance(executor, OwnExecutor):
        executor.shutdown(wait=False, cancel_futures=True)
