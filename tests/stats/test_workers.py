"""Who works: this thread, threads, or an executor that was given; and what they make of items comes in order."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tui_debugger.errors import CancelledError, TdbgError
from tui_debugger.stats import workers as module
from tui_debugger.stats.cluster import executor_of
from tui_debugger.stats.workers import WORTH_HANDING_OVER, DaemonThreads, MeasureWorkers, cores, in_order


def until(condition: Callable[[], Any]) -> Any:
    """Waits for something; returns what it is."""
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs: one that has ended but is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def workers() -> Iterator[MeasureWorkers]:
    made = MeasureWorkers(2)
    yield made
    made.close()


def test_small_work_is_done_right_here(workers: MeasureWorkers) -> None:
    threads = threading.active_count()
    assert not workers.shares(WORTH_HANDING_OVER - 1)
    assert workers.executor(WORTH_HANDING_OVER - 1) is None
    assert workers.asked == WORTH_HANDING_OVER - 1
    assert threading.active_count() == threads


def test_big_work_is_shared_by_threads_that_stay(workers: MeasureWorkers) -> None:
    threads = workers.executor(WORTH_HANDING_OVER)
    assert isinstance(threads, DaemonThreads)
    assert not threads.remote
    assert threads.submit(os.getpid).result() == os.getpid()
    assert workers.executor(WORTH_HANDING_OVER) is threads
    workers.close()
    assert workers.executor(WORTH_HANDING_OVER) is None


def test_closing_ends_the_threads(workers: MeasureWorkers) -> None:
    executor = workers.executor(WORTH_HANDING_OVER)
    assert executor is not None
    thread = executor.submit(threading.current_thread).result()
    assert thread.is_alive()
    workers.close()
    thread.join(60)
    assert not thread.is_alive()
    workers.close()


def test_one_job_works_right_here() -> None:
    workers = MeasureWorkers(1)
    assert not workers.shares(1 << 50)
    assert workers.executor(1 << 50) is None
    workers.close()


def test_a_given_executor_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(3) as threads:
        workers = MeasureWorkers(executor=threads)
        assert workers.parallel == 3
        assert workers.executor(WORTH_HANDING_OVER) is threads
        workers.close()
        assert threads.submit(os.getpid).result() == os.getpid()


def test_by_default_every_core_works_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "cores", lambda: 128)
    assert MeasureWorkers().parallel == module.MOST_JOBS
    assert MeasureWorkers(20).parallel == 20
    monkeypatch.setattr(module, "cores", lambda: 1)
    assert MeasureWorkers().executor(1 << 50) is None


# -- what they make of items -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(jobs: int) -> None:
    workers, gate = MeasureWorkers(jobs), threading.Event()

    def slow_first(number: int) -> int:
        if not number and jobs > 1:
            assert gate.wait(60)
        gate.set()
        return number * number

    assert list(workers.map(slow_first, range(50), 1 << 30)) == [number * number for number in range(50)]
    workers.close()


def test_items_are_asked_for_when_somebody_is_free(workers: MeasureWorkers) -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    found = workers.map(str, items(), 1 << 30)
    assert next(found) == "0"
    assert len(asked) == 2 * module.AHEAD
    found.close()  # type: ignore[attr-defined]  # it is a generator
    assert len(asked) == 2 * module.AHEAD


def test_what_an_item_raises_comes_back_and_nothing_more_is_begun(workers: MeasureWorkers) -> None:
    done: list[int] = []

    def fails(number: int) -> None:
        done.append(number)
        if number == 3:
            raise ValueError("the fourth")

    with pytest.raises(ValueError, match="the fourth"):
        list(workers.map(fails, range(100), 1 << 30))
    assert len(done) < 10


def test_whoever_waits_can_stop(workers: MeasureWorkers) -> None:
    may, done = threading.Event(), list[int]()

    def waits(number: int) -> None:
        done.append(number)
        assert may.wait(60)

    def stop() -> None:
        raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        list(workers.map(waits, range(100), 1 << 30, stop))
    may.set()
    assert len(done) <= 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_closing_stops(jobs: int) -> None:
    workers = MeasureWorkers(jobs)
    with pytest.raises(CancelledError):
        list(workers.map(lambda _: workers.close(), range(100), 1 << 30))


def test_closing_before_an_item_is_handed_over_stops(workers: MeasureWorkers) -> None:
    def items() -> Iterator[int]:
        yield 0
        workers.close()
        yield 1

    with pytest.raises(CancelledError):
        list(workers.map(str, items(), 1 << 30))


def test_what_threads_do_not_take_is_done_right_here() -> None:
    threads = ThreadPoolExecutor(2)
    threads.shutdown()
    assert list(in_order(threads, 4, str, range(10))) == [str(number) for number in range(10)]


@pytest.mark.parametrize(
    "text", ["", "dask", "dask:", "dask:tcp://", "dask:tcp://host", "dask:host:8786", "ray:tcp://h:1", "dask:tcp://h:x"]
)
def test_a_text_that_names_no_executor_is_refused(text: str) -> None:
    with pytest.raises(TdbgError) as caught:
        executor_of(text)
    assert caught.value.exit_code == 2
    assert repr(text) in caught.value.what
    assert "dask:tcp://" in caught.value.hint
