"""The threads that calls run in: daemon threads, so that a call that waits never holds up the end of the program.

``ThreadPoolExecutor`` would be joined at exit, where a training that waits for its next command blocks one for good.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_SECONDS: Final = 10.0

_Work = Callable[[], None]


class DaemonThreads(Executor):
    """Runs work in daemon threads that are started when needed and end when idle.

    Work that waits for a thread waits only when there are as many as allowed: a thread may be held for hours, so none
    is counted on that is not free for certain. The queue is not bounded here: gRPC's ``maximum_concurrent_rpcs``
    bounds the calls, and so the work.
    """

    def __init__(self, most: int, name: str) -> None:
        """At most ``most`` threads at a time."""
        self._most, self._name = most, name
        self._changed = threading.Condition(threading.Lock())
        self._work: deque[_Work] = deque()
        self._threads = self._waiting = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a function in one of the threads.

        Raises:
            RuntimeError: after ``shutdown``.
        """
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the future carries it to whoever asks
                future.set_exception(error)

        with self._changed:
            if self._ended:
                msg = "no work is taken any more"
                raise RuntimeError(msg)
            self._work.append(work)
            if len(self._work) <= self._waiting:
                self._changed.notify()
            elif self._threads < self._most:
                self._threads += 1
                named_daemon(self._run, f"{self._name}-{self._threads}")
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """Takes no more work; threads end after what is queued. Never waits."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work()

    def _next(self) -> _Work | None:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._work or self._ended, _IDLE_SECONDS)
            self._waiting -= 1
            if self._work:
                return self._work.popleft()
            self._threads -= 1
            return None


def named_daemon(target: Callable[[], Any], name: str) -> threading.Thread:
    """Starts a daemon thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
