"""Who works: right here, local processes, or somebody else; when they start, and that they end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.stats.test_pool import alive, pids, until
from tui_debugger.errors import TdbgError
from tui_debugger.stats import workers as module
from tui_debugger.stats.cluster import executor_of
from tui_debugger.stats.workers import WORTH_HANDING_OVER, WORTH_STARTING, Pool, Workers, cores


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(2)
    yield made
    made.close()


def test_small_work_starts_nothing(workers: Workers) -> None:
    threads = threading.active_count()
    assert workers.executor(WORTH_STARTING - 1) is None
    assert threading.active_count() == threads


def test_big_work_starts_processes_and_later_work_uses_them(workers: Workers) -> None:
    pool = workers.executor(WORTH_STARTING)
    assert isinstance(pool, Pool)
    assert len(pids(pool)) == 2
    assert workers.executor(WORTH_HANDING_OVER) is pool
    assert workers.executor(WORTH_HANDING_OVER - 1) is None
    workers.close()
    assert workers.executor(WORTH_STARTING) is None


def test_one_job_works_right_here() -> None:
    workers = Workers(1)
    workers.prestart()
    assert workers.executor(1 << 50) is None
    workers.close()


def test_processes_can_be_started_ahead(workers: Workers) -> None:
    workers.prestart()
    pool = workers.executor(WORTH_HANDING_OVER)
    assert isinstance(pool, Pool)
    until(lambda: pool.ready)


def test_closing_ends_the_processes(workers: Workers) -> None:
    pool = workers.executor(WORTH_STARTING)
    assert isinstance(pool, Pool)
    started = pids(pool)
    workers.close()
    assert not any(alive(pid) for pid in started)
    workers.close()


def test_a_given_executor_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(3) as threads:
        workers = Workers(executor=threads)
        assert workers.parallel == 3
        assert workers.executor(WORTH_HANDING_OVER) is threads
        workers.close()
        assert threads.submit(os.getpid).result() == os.getpid()


def test_by_default_every_core_works_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "cores", lambda: 128)
    assert Workers().parallel == module.MOST_JOBS
    assert Workers(20).parallel == 20
    monkeypatch.setattr(module, "cores", lambda: 1)
    assert Workers().executor(1 << 50) is None


@pytest.mark.parametrize(
    "text", ["", "dask", "dask:", "dask:tcp://", "dask:tcp://host", "dask:host:8786", "ray:tcp://h:1", "dask:tcp://h:x"]
)
def test_a_text_that_names_no_executor_is_refused(text: str) -> None:
    with pytest.raises(TdbgError) as caught:
        executor_of(text)
    assert caught.value.exit_code == 2
    assert repr(text) in caught.value.what
    assert "dask:tcp://" in caught.value.hint
