"""Who does the work of a session: this thread, local worker processes, or an executor that was given.

Measured on 2 cores with files in the page cache, speed against one thread right here:

* 2 GB in 1,170 float32 tensors, everything asked: two threads 0.9x, two processes 1.8x. Between two pieces numpy holds
  the interpreter's lock for most of the time, so that threads only take it from each other.
* 47,500 files of some hundred bytes: two threads 0.9x, two processes 1.5x.
* A worker process is there 0.1 s after it was asked for, and keeps 20 MB of memory.

So: processes, as soon as there is work for more than the time that they take to start; the work begins right here until
they are there (see ``scan``). How they are started: see ``pool``.
"""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import Executor
from typing import Final

from tui_debugger.analysis.pool import OwnExecutor, Pool
from tui_debugger.errors import TdbgError

WORTH_STARTING: Final = 1 << 27
"""Bytes of work, as ``cut.costs`` counts it, from which on worker processes are started: 0.1 s right here."""
WORTH_HANDING_OVER: Final = 1 << 23
"""The same for workers that are there: some 5 ms."""
MOST_JOBS: Final = 8
"""Workers that are started unless more are asked for: storage is slower than so many, and each takes memory."""


def cores() -> int:
    """Number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not on this system
        return os.cpu_count() or 1


class Workers:
    """What a session measures tensors with. Cheap to make; safe to use from several threads.

    Attributes:
        parallel: how many work at the same time once it is worth it.
        closed: whether ``close`` was called.
        asked: cost of all work so far, see ``cut.costs``.
    """

    def __init__(self, jobs: int | None = None, executor: Executor | None = None) -> None:
        """Nothing is started before it is worth it.

        Args:
            jobs: local processes; 1 works right here, None takes the cores of this process, at most ``MOST_JOBS``.
            executor: works instead of local processes, whatever ``jobs`` says. ``close`` shuts it down when it came
                from ``executor_of``; any other is the caller's.
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
        """What went wrong on the way without spoiling the results, one sentence each."""
        return tuple(self._notices)

    def note(self, text: str) -> None:
        """Adds a notice, once."""
        with self._lock:
            if text not in self._notices:
                self._notices.append(text)

    def executor(self, cost: int) -> Executor | None:
        """Where to do work of a cost (see ``cut.costs``); None: right here."""
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


def executor_of(text: str) -> Executor:
    """The executor that a text names: ``dask:tcp://HOST:PORT`` is an existing dask.distributed cluster.

    Raises:
        TdbgError: the text names none, the package for it is missing, or nobody answers there.
    """
    match = re.fullmatch(r"dask:((?:tcp|tls|ucx)://\S+:\d{1,5})", text)
    if match is None:
        raise TdbgError(
            f"{text!r} is no executor",
            where="--executor",
            hint="give the scheduler of a dask cluster, as in --executor dask:tcp://10.0.0.1:8786",
        )
    from tui_debugger.analysis.cluster import Cluster

    return Cluster(match[1])


def _end(executor: Executor) -> None:
    if isinstance(executor, OwnExecutor):
        executor.shutdown()
