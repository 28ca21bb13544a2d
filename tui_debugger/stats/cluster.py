"""An existing dask.distributed cluster as an executor. Needs the extra ``distributed``; workers need this package.

dask moves the tasks of a dead worker to another one. Tasks that it cannot do, without workers or scheduler, fail with
``LostWorkerError`` and are done by this process (see ``scan``): results do not depend on a cluster. A module of its
own, loaded on demand, because asyncio slows down every start.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import time
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tui_debugger.errors import TdbgError
from tui_debugger.stats.workers import LostWorkerError, OwnExecutor
from tui_debugger.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")

CONNECT: Final = 10.0
"""Seconds in which a scheduler has to answer, and to have a worker."""
LOOK_EVERY: Final = 1.0
"""Seconds between two queries for workers."""
GRACE: Final = 15.0
"""Seconds without any worker after which a cluster counts as broken: a nanny needs some to start a new worker."""
_LATE: Final = (OSError, TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError)
"""Errors of distributed without an answer: lost connections are OSErrors; before Python 3.11 TimeoutErrors differed."""
_NOISE: Final = ("distributed", "tornado", "tornado.application")


def executor_of(text: str) -> Executor:
    """Connects to the cluster named ``dask:tcp://HOST:PORT``, or raises TdbgError."""
    match = re.fullmatch(r"dask:((?:tcp|tls|ucx)://\S+:\d{1,5})", text)
    if match is None:
        raise TdbgError(
            f"{text!r} is no executor",
            where="--executor",
            hint="give the scheduler of a dask cluster, as in --executor dask:tcp://10.0.0.1:8786",
        )
    return Cluster(match[1])


class Cluster(OwnExecutor):
    """A connection to a scheduler, such as ``tcp://10.0.0.1:8786``. It never changes the cluster itself."""

    remote = True

    def __init__(self, address: str) -> None:
        """Raises TdbgError when the package is missing, no scheduler answers, or the workers have another version."""
        self._address = address
        self._client = _connected(address)
        self._waiting: set[Future[Any]] = set()
        self._seen = self._asked = time.monotonic()
        try:
            self._check(_worker_answers(self._client, address))
            self._max_workers = max(1, sum(self._client.nthreads().values()))
        except BaseException:
            self._close()
            raise
        self._executor: Executor = self._client.get_executor(pure=False)  # the same question may have a new answer

    @property
    def broken(self) -> bool:
        """Tells whether there was no worker or scheduler for ``GRACE`` seconds. Does not wait for an answer."""
        now = time.monotonic()
        if now - self._asked >= LOOK_EVERY:
            self._asked = now
            with suppress(RuntimeError):  # its loop has ended
                self._client.loop.add_callback(self._ask)
        return now - self._seen > GRACE

    async def _ask(self) -> None:
        """Notes the time if there are workers."""
        with suppress(Exception):  # no answer, for any reason
            if await self._client.scheduler.ncores():
                self._seen = time.monotonic()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Hands over a call. A task that the cluster loses fails with ``LostWorkerError``."""
        outer: Future[T] = Future()
        try:
            inner = self._executor.submit(fn, *args, **kwargs)
        except (RuntimeError, OSError) as error:
            raise LostWorkerError(str(error)) from error
        self._waiting.add(outer)
        outer.add_done_callback(partial(self._settled, inner))
        inner.add_done_callback(partial(self._answered, outer))
        return outer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as Executor has it
        """Disconnects; unfinished tasks fail. Idempotent."""
        for future in tuple(self._waiting):
            _fail(future, LostWorkerError("the connection to the cluster was closed"))
        self._close()

    def _settled(self, inner: Future[T], outer: Future[T]) -> None:
        self._waiting.discard(outer)
        if outer.cancelled():
            inner.cancel()

    def _answered(self, outer: Future[T], inner: Future[T]) -> None:
        try:
            result = inner.result()
        except (CancelledError, *_LATE) as error:
            _fail(outer, LostWorkerError(str(error)))
        except Exception as error:  # noqa: BLE001 - a task itself never raises: the worker could not even begin
            _fail(outer, self._translated(error))
        else:
            if outer.set_running_or_notify_cancel():
                outer.set_result(result)

    def _translated(self, error: Exception) -> Exception:
        from distributed.scheduler import KilledWorker

        return LostWorkerError(str(error)) if isinstance(error, KilledWorker) else _unlike(self._address, str(error))

    def _check(self, greetings: dict[str, Any]) -> None:
        for worker, greeting in greetings.items():
            if isinstance(greeting, BaseException):
                raise _unlike(worker, f"{type(greeting).__name__}: {greeting}")
            if greeting != __version__:
                raise _unlike(worker, f"it has version {greeting}, this is {__version__}")

    def _close(self) -> None:
        with suppress(Exception):
            self._client.close(timeout=LOOK_EVERY)


def greet() -> str:
    """Runs on a worker: returns its version of this package."""
    from tui_debugger.stats import measure  # noqa: F401 - numpy has to be there as well

    return __version__


def _connected(address: str) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise TdbgError(
            f"the package for dask clusters is missing: {error}",
            where=f"--executor dask:{address}",
            hint="pip install 'tui_debugger[distributed]'",
        ) from None
    for name in _NOISE:  # reports of lost connections would garble the screen
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of packages that are not used here
            client: Any = distributed.Client
            return client(address, timeout=CONNECT, set_as_default=False, name="tdbg")
    except (ValueError, *_LATE) as error:
        raise TdbgError(
            f"no dask scheduler answers: {error}",
            where=f"--executor dask:{address}",
            hint="start one with `dask scheduler`, or leave --executor out to work on this machine",
        ) from None


def _worker_answers(client: Any, address: str) -> dict[str, Any]:
    try:
        client.wait_for_workers(1, timeout=CONNECT)
        return dict(client.run(greet, on_error="return"))
    except _LATE:
        raise TdbgError(
            "the dask cluster has no workers",
            where=f"--executor dask:{address}",
            hint=f"start some with `dask worker {address}`",
        ) from None


def _unlike(where: str, why: str) -> TdbgError:
    return TdbgError(
        f"a worker of the cluster cannot do the work: {why}",
        where=where,
        hint=f"install tui_debugger {__version__} where the workers run",
    )


def _fail(future: Future[Any], error: Exception) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
