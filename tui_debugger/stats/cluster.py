"""An existing dask.distributed cluster as an executor. It needs the extra ``distributed``, the workers this package.

dask gives the tasks of a worker that died to another one by itself. What it cannot do, for want of workers or of its
scheduler, comes back as lost, and is done right here (see ``scan``): results do not depend on a cluster.

A file of its own, loaded when a cluster is asked for: it needs asyncio, which costs every start.
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
"""Seconds between two questions whether there are workers."""
GRACE: Final = 15.0
"""Seconds without any worker after which no more is expected of a cluster: a nanny needs some to start a new one."""
_LATE: Final = (OSError, TimeoutError, asyncio.TimeoutError, concurrent.futures.TimeoutError)
"""The errors by which distributed says that a worker or the scheduler does not answer: lost connections are OSErrors,
and before Python 3.11 there were several TimeoutErrors."""
_NOISE: Final = ("distributed", "tornado", "tornado.application")


def executor_of(text: str) -> Executor:
    """Returns the executor that a text names: ``dask:tcp://HOST:PORT`` is an existing dask.distributed cluster.

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
    return Cluster(match[1])


class Cluster(OwnExecutor):
    """A connection to a scheduler. The cluster itself is left alone."""

    remote = True

    def __init__(self, address: str) -> None:
        """Connects to a scheduler, for example ``tcp://10.0.0.1:8786``, and asks its workers who they are.

        Raises:
            TdbgError: the package is missing, nobody answers, or the workers are not like this machine.
        """
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
        """Tells whether there has been no worker for some time, or no scheduler to ask. Does not wait for an answer."""
        now = time.monotonic()
        if now - self._asked >= LOOK_EVERY:
            self._asked = now
            with suppress(RuntimeError):  # its loop has ended
                self._client.loop.add_callback(self._ask)
        return now - self._seen > GRACE

    async def _ask(self) -> None:
        """Notes that there are workers; as long as nobody answers, there are none."""
        with suppress(Exception):  # whatever keeps the scheduler from answering
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
        """Lets go of the cluster; what was not finished fails. Idempotent."""
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
    """Returns what a worker says of itself: the version of this package."""
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
    for name in _NOISE:  # lost connections would be told in the middle of the screen
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of packages that play no part here
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
